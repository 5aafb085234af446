"""Offline evaluation: what a policy would have earned, and what parameters a log suggests."""

from tacit.evaluate.estimators import IPS, SNIPS, DirectMethod, DoublyRobust, Estimator, SwitchDR
from tacit.evaluate.examination import Examination, examine
from tacit.evaluate.learning import Learning
from tacit.evaluate.proposal import Proposal, Shift, propose
from tacit.evaluate.rejection import ReplayResult, arms_of, replay
from tacit.evaluate.rewards import ArmMeans, RewardFunction, RewardModel, Rewards
from tacit.evaluate.slates import CascadeIPS, IndependentIPS, PositionBasedIPS, SlateIPS
from tacit.evaluate.spec import fixed_target, named_estimators
from tacit.evaluate.sums import Sums
from tacit.evaluate.targets import Model, Probabilities, Table, Target, Uniform
from tacit.evaluate.weighting import Estimate, OffPolicyResult, conclude, off_policy

__all__ = [
    "IPS",
    "SNIPS",
    "ArmMeans",
    "CascadeIPS",
    "DirectMethod",
    "DoublyRobust",
    "Estimate",
    "Estimator",
    "Examination",
    "IndependentIPS",
    "Learning",
    "Model",
    "OffPolicyResult",
    "PositionBasedIPS",
    "Probabilities",
    "Proposal",
    "ReplayResult",
    "RewardFunction",
    "RewardModel",
    "Rewards",
    "Shift",
    "SlateIPS",
    "Sums",
    "SwitchDR",
    "Table",
    "Target",
    "Uniform",
    "arms_of",
    "conclude",
    "examine",
    "fixed_target",
    "named_estimators",
    "off_policy",
    "propose",
    "replay",
]
