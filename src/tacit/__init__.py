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
    UCB1,
    ClickModel,
    CUSUMRestart,
    DiscountedUCB,
    DuelPolicy,
    ECBandit,
    EpsilonGreedy,
    ExplorationFloor,
    FeaturePolicy,
    HLinUCB,
    IdentifiabilityWarning,
    Impression,
    IndexPolicy,
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
    SlatePolicy,
    SlidingWindowUCB,
    TestableUCB1,
    Thompson,
    UniformRandom,
    identifiability,
    policy_from_spec,
)
from tacit.simulation import Comparison, SimulationResult, simulate

if TYPE_CHECKING:
    from tacit.evaluate import ReplayResult, replay
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
    "UCB1",
    "BernoulliArms",
    "CUSUMRestart",
    "Classifier",
    "ClickModel",
    "Comparison",
    "Decision",
    "Decisions",
    "DiscountedUCB",
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
    "LaplaceEC",
    "LaplaceECMixture",
    "Learner",
    "LinTS",
    "LinUCB",
    "LogisticTS",
    "OracleRestart",
    "PBMThompson",
    "PlacedPBMUCB",
    "Policy",
    "PolyaGammaTS",
    "ProbationBandit",
    "Rectangle",
    "ReplayResult",
    "SafeClassifier",
    "SearchInterest",
    "ShiftingArms",
    "SimulationResult",
    "SlatePolicy",
    "SlidingWindowUCB",
    "TacitError",
    "TestableUCB1",
    "Thompson",
    "UniformRandom",
    "identifiability",
    "kernel",
    "policy_from_spec",
    "read_log",
    "read_open_bandit",
    "replay",
    "simulate",
    "write_log",
]

# These need pyarrow, which would double the time that the import takes.
_LATER = {
    "ReplayResult": "tacit.evaluate",
    "replay": "tacit.evaluate",
    "read_log": "tacit.logs",
    "read_open_bandit": "tacit.logs",
    "write_log": "tacit.logs",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")
