"""The policies, one family a file."""

from tacit.policies.actions import DuelPolicy, FeaturePolicy, SlatePolicy
from tacit.policies.base import About, Counts, Impression, Policy
from tacit.policies.beat_the_mean import BeatTheMean, BeatTheMeanPAC, sample_size
from tacit.policies.bwc import BWC, Restart
from tacit.policies.cascade import CascadeKLUCB, CascadeUCB1
from tacit.policies.cascade_ec import CascadeEC
from tacit.policies.cusum_restart import CUSUMRestart
from tacit.policies.cusum_ucb import CUSUMUCB
from tacit.policies.discounted_ucb import DiscountedUCB
from tacit.policies.double_thompson import DoubleThompsonSampling
from tacit.policies.epsilon_greedy import EpsilonGreedy
from tacit.policies.examination import ECBandit, LaplaceEC, LaplaceECMixture
from tacit.policies.exp3 import EXP3, EXP3S
from tacit.policies.exploration_floor import ExplorationFloor
from tacit.policies.features import ClickModel
from tacit.policies.gaussian import Belief
from tacit.policies.glr_kl_ucb import GLRKLUCB
from tacit.policies.hidden import HLinUCB
from tacit.policies.identifiability import IdentifiabilityWarning, identifiability
from tacit.policies.index import IndexPolicy
from tacit.policies.interleaved_filter import InterleavedFilter1, InterleavedFilter2
from tacit.policies.kl_ucb import KLUCB
from tacit.policies.linear import LinTS, LinUCB, LogisticTS
from tacit.policies.linear_greedy import LinearEpsilonGreedy
from tacit.policies.m_ucb import MUCB
from tacit.policies.oracle_restart import OracleRestart
from tacit.policies.polya_gamma import PolyaGammaTS
from tacit.policies.position_based import PBMUCB, PBMThompson, PlacedPBMUCB
from tacit.policies.probation import ProbationBandit
from tacit.policies.ranked import RankedBandit
from tacit.policies.rmed import RMED1
from tacit.policies.rucb import RUCB
from tacit.policies.self_sparring import SelfSparring
from tacit.policies.sliding_window_ucb import SlidingWindowUCB
from tacit.policies.spec import policy_from_spec, policy_to_spec
from tacit.policies.testable_ucb1 import Guess, TestableUCB1
from tacit.policies.thompson import Thompson
from tacit.policies.ucb1 import UCB1
from tacit.policies.uniform import UniformRandom
from tacit.policies.winner_stays import WinnerStays

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
    "About",
    "BeatTheMean",
    "BeatTheMeanPAC",
    "Belief",
    "CUSUMRestart",
    "CascadeEC",
    "CascadeKLUCB",
    "CascadeUCB1",
    "ClickModel",
    "Counts",
    "DiscountedUCB",
    "DoubleThompsonSampling",
    "DuelPolicy",
    "ECBandit",
    "EpsilonGreedy",
    "ExplorationFloor",
    "FeaturePolicy",
    "Guess",
    "HLinUCB",
    "IdentifiabilityWarning",
    "Impression",
    "IndexPolicy",
    "InterleavedFilter1",
    "InterleavedFilter2",
    "LaplaceEC",
    "LaplaceECMixture",
    "LinTS",
    "LinUCB",
    "LinearEpsilonGreedy",
    "LogisticTS",
    "OracleRestart",
    "PBMThompson",
    "PlacedPBMUCB",
    "Policy",
    "PolyaGammaTS",
    "ProbationBandit",
    "RankedBandit",
    "Restart",
    "SelfSparring",
    "SlatePolicy",
    "SlidingWindowUCB",
    "TestableUCB1",
    "Thompson",
    "UniformRandom",
    "WinnerStays",
    "identifiability",
    "policy_from_spec",
    "policy_to_spec",
    "sample_size",
]
