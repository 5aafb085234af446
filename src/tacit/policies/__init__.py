"""The policies, one family a file."""

from tacit.policies.actions import DuelPolicy, FeaturePolicy, SlatePolicy
from tacit.policies.base import About, Counts, Impression, Policy
from tacit.policies.beat_the_mean import BeatTheMean, BeatTheMeanPAC, sample_size
from tacit.policies.bwc import BWC, Restart
from tacit.policies.cascade import CascadeKLUCB, CascadeUCB1
from tacit.policies.cusum_ucb import CUSUMUCB
from tacit.policies.discounted_ucb import DiscountedUCB
from tacit.policies.double_thompson import DoubleThompsonSampling
from tacit.policies.epsilon_greedy import EpsilonGreedy
from tacit.policies.exp3 import EXP3, EXP3S
from tacit.policies.exploration_floor import ExplorationFloor
from tacit.policies.glr_kl_ucb import GLRKLUCB
from tacit.policies.index import IndexPolicy
from tacit.policies.interleaved_filter import InterleavedFilter1, InterleavedFilter2
from tacit.policies.kl_ucb import KLUCB
from tacit.policies.m_ucb import MUCB
from tacit.policies.oracle_restart import OracleRestart
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
    "RMED1",
    "RUCB",
    "UCB1",
    "About",
    "BeatTheMean",
    "BeatTheMeanPAC",
    "CascadeKLUCB",
    "CascadeUCB1",
    "Counts",
    "DiscountedUCB",
    "DoubleThompsonSampling",
    "DuelPolicy",
    "EpsilonGreedy",
    "ExplorationFloor",
    "FeaturePolicy",
    "Guess",
    "Impression",
    "IndexPolicy",
    "InterleavedFilter1",
    "InterleavedFilter2",
    "OracleRestart",
    "Policy",
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
    "policy_from_spec",
    "policy_to_spec",
    "sample_size",
]
