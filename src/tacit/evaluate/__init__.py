"""Offline evaluation: what a policy would have earned, and what parameters a log suggests."""

from typing import TYPE_CHECKING

from tacit.later import later

if TYPE_CHECKING:
    from tacit.evaluate.conclusion import conclude
    from tacit.evaluate.estimators import (
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
        named_estimators,
    )
    from tacit.evaluate.examination import Examination, examine
    from tacit.evaluate.learners import Learning, Ranking
    from tacit.evaluate.proposal import Proposal, Shift, propose
    from tacit.evaluate.rejection import ReplayResult, replay
    from tacit.evaluate.results import Estimate, OffPolicyResult, Segment
    from tacit.evaluate.rewards import (
        ArmMeans,
        Frequencies,
        Greedy,
        Predicted,
        RewardFunction,
        RewardModel,
        Rewards,
    )
    from tacit.evaluate.rows import arms_of
    from tacit.evaluate.sums import Sums
    from tacit.evaluate.targets import ByClassifier, Probabilities, Table, Target, Uniform, fixed_target
    from tacit.evaluate.weighing import off_policy

# The service reads parts of this room, and no log: pyarrow is brought along by who does.
__getattr__, __dir__ = later(
    __name__,
    {
        "arms_of": "tacit.evaluate.rows",
        "Examination": "tacit.evaluate.examination",
        "examine": "tacit.evaluate.examination",
        "Proposal": "tacit.evaluate.proposal",
        "Shift": "tacit.evaluate.proposal",
        "propose": "tacit.evaluate.proposal",
        "replay": "tacit.evaluate.rejection",
        "ReplayResult": "tacit.evaluate.rejection",
        "Sums": "tacit.evaluate.sums",
        "Target": "tacit.evaluate.targets",
        "Uniform": "tacit.evaluate.targets",
        "ByClassifier": "tacit.evaluate.targets",
        "Probabilities": "tacit.evaluate.targets",
        "Learning": "tacit.evaluate.learners",
        "Ranking": "tacit.evaluate.learners",
        "Table": "tacit.evaluate.targets",
        "ArmMeans": "tacit.evaluate.rewards",
        "conclude": "tacit.evaluate.conclusion",
        "IPS": "tacit.evaluate.estimators",
        "SNIPS": "tacit.evaluate.estimators",
        "DirectMethod": "tacit.evaluate.estimators",
        "DoublyRobust": "tacit.evaluate.estimators",
        "Estimator": "tacit.evaluate.estimators",
        "SwitchDR": "tacit.evaluate.estimators",
        "Frequencies": "tacit.evaluate.rewards",
        "off_policy": "tacit.evaluate.weighing",
        "Greedy": "tacit.evaluate.rewards",
        "Predicted": "tacit.evaluate.rewards",
        "Estimate": "tacit.evaluate.results",
        "OffPolicyResult": "tacit.evaluate.results",
        "Segment": "tacit.evaluate.results",
        "RewardFunction": "tacit.evaluate.rewards",
        "RewardModel": "tacit.evaluate.rewards",
        "Rewards": "tacit.evaluate.rewards",
        "CascadeIPS": "tacit.evaluate.estimators",
        "IndependentIPS": "tacit.evaluate.estimators",
        "PositionBasedIPS": "tacit.evaluate.estimators",
        "SlateIPS": "tacit.evaluate.estimators",
        "fixed_target": "tacit.evaluate.targets",
        "named_estimators": "tacit.evaluate.estimators",
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
