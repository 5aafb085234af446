"""tacit learns what to show from clicks, although clicks lie."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tacit.classifiers import Classifier, FiniteConcepts, Hyperplane, Rectangle, SafeClassifier
from tacit.decisions import Decision, Decisions
from tacit.dispatch import kernel
from tacit.environments import (
    BernoulliArms,
    CascadeArms,
    DuelEnvironment,
    Environment,
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
    RMED1,
    RUCB,
    UCB1,
    BeatTheMean,
    BeatTheMeanPAC,
    CascadeKLUCB,
    CascadeUCB1,
    DiscountedUCB,
    DoubleThompsonSampling,
    DuelPolicy,
    EpsilonGreedy,
    ExplorationFloor,
    FeaturePolicy,
    Impression,
    IndexPolicy,
    InterleavedFilter1,
    InterleavedFilter2,
    OracleRestart,
    Policy,
    ProbationBandit,
    RankedBandit,
    SelfSparring,
    SlatePolicy,
    SlidingWindowUCB,
    TestableUCB1,
    Thompson,
    UniformRandom,
    WinnerStays,
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
    "RMED1",
    "RUCB",
    "UCB1",
    "BeatTheMean",
    "BeatTheMeanPAC",
    "BernoulliArms",
    "CascadeArms",
    "CascadeKLUCB",
    "CascadeUCB1",
    "Classifier",
    "Comparison",
    "Decision",
    "Decisions",
    "DiscountedUCB",
    "DoubleThompsonSampling",
    "DuelEnvironment",
    "DuelPolicy",
    "Environment",
    "EpsilonGreedy",
    "ExplorationFloor",
    "FeaturePolicy",
    "FiniteConcepts",
    "Hyperplane",
    "Impression",
    "IndexPolicy",
    "InterleavedFilter1",
    "InterleavedFilter2",
    "Learner",
    "OracleRestart",
    "Policy",
    "PreferenceMatrix",
    "ProbationBandit",
    "RankedBandit",
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
