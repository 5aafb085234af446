"""The policies, one family a file."""

from tacit.policies.base import About, Counts, Impression, Policy
from tacit.policies.epsilon_greedy import EpsilonGreedy
from tacit.policies.exp3 import EXP3, EXP3S
from tacit.policies.exploration_floor import ExplorationFloor
from tacit.policies.index import IndexPolicy
from tacit.policies.kl_ucb import KLUCB
from tacit.policies.oracle_restart import OracleRestart
from tacit.policies.spec import policy_from_spec, policy_to_spec
from tacit.policies.thompson import Thompson
from tacit.policies.ucb1 import UCB1
from tacit.policies.uniform import UniformRandom

__all__ = [
    "EXP3",
    "EXP3S",
    "KLUCB",
    "UCB1",
    "About",
    "Counts",
    "EpsilonGreedy",
    "ExplorationFloor",
    "Impression",
    "IndexPolicy",
    "OracleRestart",
    "Policy",
    "Thompson",
    "UniformRandom",
    "policy_from_spec",
    "policy_to_spec",
]
