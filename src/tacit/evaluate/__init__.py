"""Offline evaluation: what a policy would have earned, and what parameters a log suggests."""

from typing import TYPE_CHECKING

from tacit.later import later

if TYPE_CHECKING:
    from tacit.evaluate.examination import Examination, examine
    from tacit.evaluate.proposal.rules import Proposal, Shift, propose
    from tacit.evaluate.rejection.method import ReplayResult, replay
    from tacit.evaluate.rows import arms_of
    from tacit.evaluate.sums import Sums
    from tacit.evaluate.targets.base import ByClassifier, Probabilities, Table, Target, Uniform
    from tacit.evaluate.targets.learning import Learning, Ranking
    from tacit.evaluate.weighting.conclusion import conclude
    from tacit.evaluate.weighting.estimators import (
        IPS,
        SNIPS,
        CascadeIPS,
        DirectMethod,
        DoublyRobust,
        Estimator,
        IndependentIPS,
        PositionBasedIPS,
        SlateIPS,
        SwitchDR,
    )
    from tacit.evaluate.weighting.method import off_policy
    from tacit.evaluate.weighting.result import Estimate, OffPolicyResult, Segment
    from tacit.evaluate.weighting.rewards import (
        ArmMeans,
        Frequencies,
        Greedy,
        Predicted,
        RewardFunction,
        RewardModel,
        Rewards,
    )
    from tacit.evaluate.weighting.weighing import fixed_target, named_estimators

# The service reads parts of this room, and no log: pyarrow is brought along by who does.
__getattr__, __dir__ = later(
    __name__,
    {
        "arms_of": "tacit.evaluate.rows",
        "Examination": "tacit.evaluate.examination",
        "examine": "tacit.evaluate.examination",
        "Proposal": "tacit.evaluate.proposal.rules",
        "Shift": "tacit.evaluate.proposal.rules",
        "propose": "tacit.evaluate.proposal.rules",
        "replay": "tacit.evaluate.rejection.method",
        "ReplayResult": "tacit.evaluate.rejection.method",
        "Sums": "tacit.evaluate.sums",
        "Target": "tacit.evaluate.targets.base",
        "Uniform": "tacit.evaluate.targets.base",
        "ByClassifier": "tacit.evaluate.targets.base",
        "Probabilities": "tacit.evaluate.targets.base",
        "Learning": "tacit.evaluate.targets.learning",
        "Ranking": "tacit.evaluate.targets.learning",
        "Table": "tacit.evaluate.targets.base",
        "ArmMeans": "tacit.evaluate.weighting.rewards",
        "conclude": "tacit.evaluate.weighting.conclusion",
        "IPS": "tacit.evaluate.weighting.estimators",
        "SNIPS": "tacit.evaluate.weighting.estimators",
        "DirectMethod": "tacit.evaluate.weighting.estimators",
        "DoublyRobust": "tacit.evaluate.weighting.estimators",
        "Estimator": "tacit.evaluate.weighting.estimators",
        "SwitchDR": "tacit.evaluate.weighting.estimators",
        "Frequencies": "tacit.evaluate.weighting.rewards",
        "off_policy": "tacit.evaluate.weighting.method",
        "Greedy": "tacit.evaluate.weighting.rewards",
        "Predicted": "tacit.evaluate.weighting.rewards",
        "Estimate": "tacit.evaluate.weighting.result",
        "OffPolicyResult": "tacit.evaluate.weighting.result",
        "Segment": "tacit.evaluate.weighting.result",
        "RewardFunction": "tacit.evaluate.weighting.rewards",
        "RewardModel": "tacit.evaluate.weighting.rewards",
        "Rewards": "tacit.evaluate.weighting.rewards",
        "CascadeIPS": "tacit.evaluate.weighting.estimators",
        "IndependentIPS": "tacit.evaluate.weighting.estimators",
        "PositionBasedIPS": "tacit.evaluate.weighting.estimators",
        "SlateIPS": "tacit.evaluate.weighting.estimators",
        "fixed_target": "tacit.evaluate.weighting.weighing",
        "named_estimators": "tacit.evaluate.weighting.weighing",
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
