"""Simulated users, and users derived from real search interest."""

from tacit.core.dispatch import public as _public
from tacit.environments.base import Environment as Environment
from tacit.environments.bernoulli import BernoulliArms as BernoulliArms
from tacit.environments.cascade import CascadeArms as CascadeArms
from tacit.environments.contextual_cascade import ContextualCascade as ContextualCascade
from tacit.environments.contextual_duels import ContextualDuels as ContextualDuels
from tacit.environments.duel import DuelEnvironment as DuelEnvironment
from tacit.environments.examination import ExaminationArms as ExaminationArms
from tacit.environments.logged import simulated_log as simulated_log
from tacit.environments.long_tail import LongTail as LongTail
from tacit.environments.preference_matrix import PreferenceMatrix as PreferenceMatrix
from tacit.environments.search_interest import SearchInterest as SearchInterest
from tacit.environments.shifting import ShiftingArms as ShiftingArms
from tacit.environments.spec import environment_from_spec as environment_from_spec

# Where no tool reads it: type checkers and the reference go by the imports above.
globals()["__all__"] = _public(globals())
