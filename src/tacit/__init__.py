"""tacit learns what to show from clicks, although clicks lie."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tacit.classifiers import Classifier, FiniteConcepts, Hyperplane, Rectangle, SafeClassifier
from tacit.decisions import Decision, Decisions
from tacit.dispatch import kernel
from tacit.environments import (
    BernoulliArms,
    DuelEnvironment,
    Environment,
    ExaminationArms,
    PreferenceMatrix,
    SearchInterest,
    ShiftingArms,
)
from tacit.errors import TacitError
from tacit.learner import Learner
from tacit.policies import (
    BWC,
    CUSUMUCB,
    EXP3,
    EXP3S,
    GLRKLUCB,
    KLUCB,
    MUCB,
    PBMUCB,
    RMED1,
    RUCB,
    UCB1,
    BeatTheMean,
    BeatTheMeanPAC,
    ClickModel,
    CUSUMRestart,
    DiscountedUCB,
    DoubleThompsonSampling,
    DuelPolicy,
    ECBandit,
    EpsilonGreedy,
    ExplorationFloor,
    FeaturePolicy,
    HLinUCB,
    IdentifiabilityWarning,
    Impression,
    IndexPolicy,
    InterleavedFilter1,
    InterleavedFilter2,
    LaplaceEC,
    LaplaceECMixture,
    LinTS,
    LinUCB,
    LogisticTS,
    OracleRestart,
    PBMThompson,
    PlacedPBMUCB,
    Policy,
    PolyaGammaTS,
    ProbationBandit,
    SelfSparring,
    SlatePolicy,
    SlidingWindowUCB,
    TestableUCB1,
    Thompson,
    UniformRandom,
    WinnerStays,
    identifiability,
    policy_from_spec,
)
from tacit.simulation import Comparison, SimulationResult, simulate

if TYPE_CHECKING:
    from tacit.environments.interleaved_rankers import InterleavedRankers, from_rankers
    from tacit.evaluate import (
        OffPolicyResult,
        Proposal,
        ReplayResult,
        examine,
        off_policy,
        propose,
        replay,
    )
    from tacit.logs import read_log, read_open_bandit, write_log

__version__ = "0.1.0"

__all__ = [
    "BWC",
    "CUSUMUCB",
    "EXP3",
    "EXP3S",
    "GLRKLUCB",
    "KLUCB",
    "MUCB",
    "PBMUCB",
    "RMED1",
    "RUCB",
    "UCB1",
    "BeatTheMean",
    "BeatTheMeanPAC",
    "BernoulliArms",
    "CUSUMRestart",
    "Classifier",
    "ClickModel",
    "Comparison",
    "Decision",
    "Decisions",
    "DiscountedUCB",
    "DoubleThompsonSampling",
    "DuelEnvironment",
    "DuelPolicy",
    "ECBandit",
    "Environment",
    "EpsilonGreedy",
    "ExaminationArms",
    "ExplorationFloor",
    "FeaturePolicy",
    "FiniteConcepts",
    "HLinUCB",
    "Hyperplane",
    "IdentifiabilityWarning",
    "Impression",
    "IndexPolicy",
    "InterleavedFilter1",
    "InterleavedFilter2",
    "InterleavedRankers",
    "LaplaceEC",
    "LaplaceECMixture",
    "Learner",
    "LinTS",
    "LinUCB",
    "LogisticTS",
    "OffPolicyResult",
    "OracleRestart",
    "PBMThompson",
    "PlacedPBMUCB",
    "Policy",
    "PolyaGammaTS",
    "PreferenceMatrix",
    "ProbationBandit",
    "Proposal",
    "Rectangle",
    "ReplayResult",
    "SafeClassifier",
    "SearchInterest",
    "SelfSparring",
    "ShiftingArms",
    "SimulationResult",
    "SlatePolicy",
    "SlidingWindowUCB",
    "TacitError",
    "TestableUCB1",
    "Thompson",
    "UniformRandom",
    "WinnerStays",
    "examine",
    "from_rankers",
    "identifiability",
    "kernel",
    "off_policy",
    "policy_from_spec",
    "propose",
    "read_log",
    "read_open_bandit",
    "replay",
    "simulate",
    "write_log",
]

# pyarrow would double the time that the import takes, and click models would add to it.
_LATER = {
    "Proposal": "tacit.evaluate",
    "InterleavedRankers": "tacit.environments.interleaved_rankers",
    "from_rankers": "tacit.environments.interleaved_rankers",
    "ReplayResult": "tacit.evaluate",
    "propose": "tacit.evaluate",
    "OffPolicyResult": "tacit.evaluate",
    "examine": "tacit.evaluate",
    "off_policy": "tacit.evaluate",
    "replay": "tacit.evaluate",
    "read_log": "tacit.logs",
    "read_open_bandit": "tacit.logs",
    "write_log": "tacit.logs",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")
