"""Simulated users, and users derived from real search interest."""

from tacit.environments.base import Environment
from tacit.environments.bernoulli import BernoulliArms
from tacit.environments.cascade import CascadeArms
from tacit.environments.contextual_cascade import ContextualCascade
from tacit.environments.duel import DuelEnvironment
from tacit.environments.examination import ExaminationArms
from tacit.environments.preference_matrix import PreferenceMatrix
from tacit.environments.search_interest import SearchInterest
from tacit.environments.shifting import ShiftingArms
from tacit.environments.spec import environment_from_spec

__all__ = [
    "BernoulliArms",
    "CascadeArms",
    "ContextualCascade",
    "DuelEnvironment",
    "Environment",
    "ExaminationArms",
    "PreferenceMatrix",
    "SearchInterest",
    "ShiftingArms",
    "environment_from_spec",
]
