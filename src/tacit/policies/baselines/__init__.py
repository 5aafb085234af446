"""Baselines: published policies to compare with the defaults and with the policies of other papers."""

from tacit.core.dispatch import public_names as _public
from tacit.policies.baselines.detector_ucb import CUSUMUCB as CUSUMUCB
from tacit.policies.baselines.detector_ucb import MUCB as MUCB
from tacit.policies.baselines.dueling_thompson import FeelGoodThompson as FeelGoodThompson
from tacit.policies.baselines.dueling_thompson import SelfSparring as SelfSparring
from tacit.policies.baselines.forgetting_ucb import EXP3S as EXP3S
from tacit.policies.baselines.forgetting_ucb import DiscountedUCB as DiscountedUCB
from tacit.policies.baselines.forgetting_ucb import SlidingWindowUCB as SlidingWindowUCB
from tacit.policies.baselines.glr_kl_ucb import GLRKLUCB as GLRKLUCB
from tacit.policies.baselines.hidden_linucb import HLinUCB as HLinUCB
from tacit.policies.baselines.position_based import PBMUCB as PBMUCB
from tacit.policies.baselines.position_based import PBMThompson as PBMThompson
from tacit.policies.baselines.position_based import PlacedPBMUCB as PlacedPBMUCB
from tacit.policies.baselines.ranked_bandit import RankedBandit as RankedBandit
from tacit.policies.baselines.rucb import RUCB as RUCB
from tacit.policies.baselines.rucb import DoubleThompsonSampling as DoubleThompsonSampling
from tacit.policies.baselines.winner_stays import WinnerStays as WinnerStays

__all__ = _public(globals())
