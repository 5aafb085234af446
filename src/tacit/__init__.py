"""tacit learns what to show from clicks, although clicks lie."""

from __future__ import annotations

from tacit.dispatch import kernel
from tacit.environments import BernoulliArms, Environment, SearchInterest, ShiftingArms
from tacit.errors import TacitError
from tacit.learner import Decision, Decisions, Learner
from tacit.policies import (
    EXP3,
    EXP3S,
    KLUCB,
    UCB1,
    EpsilonGreedy,
    ExplorationFloor,
    Impression,
    IndexPolicy,
    Policy,
    Thompson,
    UniformRandom,
)
from tacit.simulation import Comparison, SimulationResult, simulate

__version__ = "0.1.0"
