"""Simulated users, and users derived from real search interest."""

from tacit.core.dispatch import public_names as _public
from tacit.environments.base import Environment as Environment
from tacit.environments.bernoulli import BernoulliArms as BernoulliArms
from tacit.environments.bernoulli import LongTail as LongTail
from tacit.environments.cascade import CascadeArms as CascadeArms
from tacit.environments.cascade import ContextualCascade as ContextualCascade
from tacit.environments.duels import ContextualDuels as ContextualDuels
from tacit.environments.duels import DuelEnvironment as DuelEnvironment
from tacit.environments.duels import PreferenceMatrix as PreferenceMatrix
from tacit.environments.examination import ExaminationArms as ExaminationArms
from tacit.environments.graded import GradedArms as GradedArms
from tacit.environments.item_lists import ItemLists as ItemLists
from tacit.environments.logged import simulate_log as simulate_log
from tacit.environments.reward_table import RewardTable as RewardTable
from tacit.environments.search_interest import SearchInterest as SearchInterest
from tacit.environments.shifting import ShiftingArms as ShiftingArms
from tacit.environments.spec import environment_from_spec as environment_from_spec

# Type checkers and the reference use the imports above; __all__ is derived from them.
globals()["__all__"] = _public(globals())
