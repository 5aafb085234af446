"""Offline evaluation: what a policy would have earned, and what parameters a log suggests."""

from typing import TYPE_CHECKING

from tacit.later import later

if TYPE_CHECKING:
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

# The service reads parts of this room, and no log: pyarrow is brought along by who does.
__getattr__, __dir__ = later(
    __name__,
    {
        "arms_of": "tacit.evaluate.arms",
        "Examination": "tacit.evaluate.examination",
        "examine": "tacit.evaluate.examination",
        "Proposal": "tacit.evaluate.proposal.result",
        "Shift": "tacit.evaluate.proposal.result",
        "propose": "tacit.evaluate.proposal.rules",
        "replay": "tacit.evaluate.rejection.method",
        "ReplayResult": "tacit.evaluate.rejection.result",
        "Sums": "tacit.evaluate.sums",
        "Target": "tacit.evaluate.targets.base",
        "Uniform": "tacit.evaluate.targets.base",
        "ByClassifier": "tacit.evaluate.targets.functions",
        "Probabilities": "tacit.evaluate.targets.functions",
        "Learning": "tacit.evaluate.targets.learning",
        "Ranking": "tacit.evaluate.targets.ranking",
        "Table": "tacit.evaluate.targets.tables",
        "ArmMeans": "tacit.evaluate.weighting.arm_means",
        "conclude": "tacit.evaluate.weighting.conclusion",
        "IPS": "tacit.evaluate.weighting.estimators",
        "SNIPS": "tacit.evaluate.weighting.estimators",
        "DirectMethod": "tacit.evaluate.weighting.estimators",
        "DoublyRobust": "tacit.evaluate.weighting.estimators",
        "Estimator": "tacit.evaluate.weighting.estimators",
        "SwitchDR": "tacit.evaluate.weighting.estimators",
        "Frequencies": "tacit.evaluate.weighting.frequencies",
        "off_policy": "tacit.evaluate.weighting.method",
        "Greedy": "tacit.evaluate.weighting.predicted",
        "Predicted": "tacit.evaluate.weighting.predicted",
        "Estimate": "tacit.evaluate.weighting.result",
        "OffPolicyResult": "tacit.evaluate.weighting.result",
        "Segment": "tacit.evaluate.weighting.result",
        "RewardFunction": "tacit.evaluate.weighting.rewards",
        "RewardModel": "tacit.evaluate.weighting.rewards",
        "Rewards": "tacit.evaluate.weighting.rewards",
        "CascadeIPS": "tacit.evaluate.weighting.slates",
        "IndependentIPS": "tacit.evaluate.weighting.slates",
        "PositionBasedIPS": "tacit.evaluate.weighting.slates",
        "SlateIPS": "tacit.evaluate.weighting.slates",
        "fixed_target": "tacit.evaluate.weighting.spec",
        "named_estimators": "tacit.evaluate.weighting.spec",
    },
)

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
