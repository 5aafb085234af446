"""tacit learns what to show from clicks, although clicks lie."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tacit.classifiers import Classifier, FiniteConcepts, Hyperplane, Rectangle, SafeClassifier
from tacit.dispatch import kernel
from tacit.environments import BernoulliArms, Environment, SearchInterest, ShiftingArms
from tacit.errors import TacitError
from tacit.learner import Decision, Decisions, Learner
from tacit.policies import (
    BWC,
    CUSUMUCB,
    EXP3,
    EXP3S,
    GLRKLUCB,
    KLUCB,
    MUCB,
    UCB1,
    DiscountedUCB,
    EpsilonGreedy,
    ExplorationFloor,
    Impression,
    IndexPolicy,
    OracleRestart,
    Policy,
    ProbationBandit,
    SlidingWindowUCB,
    TestableUCB1,
    Thompson,
    UniformRandom,
    policy_from_spec,
)
from tacit.simulation import Comparison, SimulationResult, simulate

if TYPE_CHECKING:
    from tacit.evaluate import OffPolicyResult, ReplayResult, examine, off_policy, replay
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
    "UCB1",
    "BernoulliArms",
    "Classifier",
    "Comparison",
    "Decision",
    "Decisions",
    "DiscountedUCB",
    "Environment",
    "EpsilonGreedy",
    "ExplorationFloor",
    "FiniteConcepts",
    "Hyperplane",
    "Impression",
    "IndexPolicy",
    "Learner",
    "OffPolicyResult",
    "OracleRestart",
    "Policy",
    "ProbationBandit",
    "Rectangle",
    "ReplayResult",
    "SafeClassifier",
    "SearchInterest",
    "ShiftingArms",
    "SimulationResult",
    "SlidingWindowUCB",
    "TacitError",
    "TestableUCB1",
    "Thompson",
    "UniformRandom",
    "examine",
    "kernel",
    "off_policy",
    "policy_from_spec",
    "read_log",
    "read_open_bandit",
    "replay",
    "simulate",
    "write_log",
]

# These need pyarrow, which would double the time that the import takes.
_LATER = {
    "OffPolicyResult": "tacit.evaluate",
    "ReplayResult": "tacit.evaluate",
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
