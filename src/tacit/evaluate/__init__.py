"""Offline evaluation: what a policy would have earned, and what parameters a log suggests."""

from tacit.evaluate.arms import arms_of
from tacit.evaluate.examination import Examination, examine
from tacit.evaluate.proposal.result import Proposal, Shift
from tacit.evaluate.proposal.rules import propose
from tacit.evaluate.rejection.method import replay
from tacit.evaluate.rejection.result import ReplayResult
from tacit.evaluate.sums import Sums
from tacit.evaluate.targets.base import Target, Uniform
from tacit.evaluate.targets.functions import ByClassifier, Probabilities
from tacit.evaluate.targets.learning import Learning
from tacit.evaluate.targets.ranking import Ranking
from tacit.evaluate.targets.tables import Table
from tacit.evaluate.weighting.arm_means import ArmMeans
from tacit.evaluate.weighting.conclusion import conclude
from tacit.evaluate.weighting.estimators import (
    IPS,
    SNIPS,
    DirectMethod,
    DoublyRobust,
    Estimator,
    SwitchDR,
)
from tacit.evaluate.weighting.frequencies import Frequencies
from tacit.evaluate.weighting.method import off_policy
from tacit.evaluate.weighting.predicted import Greedy, Predicted
from tacit.evaluate.weighting.result import Estimate, OffPolicyResult, Segment
from tacit.evaluate.weighting.rewards import RewardFunction, RewardModel, Rewards
from tacit.evaluate.weighting.slates import CascadeIPS, IndependentIPS, PositionBasedIPS, SlateIPS
from tacit.evaluate.weighting.spec import fixed_target, named_estimators

__all__ = [
    "IPS",
    "SNIPS",
    "ArmMeans",
    "ByClassifier",
    "CascadeIPS",
    "DirectMethod",
    "DoublyRobust",
    "Estimate",
    "Estimator",
    "Examination",
    "Frequencies",
    "Greedy",
    "IndependentIPS",
    "Learning",
    "OffPolicyResult",
    "PositionBasedIPS",
    "Predicted",
    "Probabilities",
    "Proposal",
    "Ranking",
    "ReplayResult",
    "RewardFunction",
    "RewardModel",
    "Rewards",
    "Segment",
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
