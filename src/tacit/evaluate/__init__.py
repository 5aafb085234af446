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
    from tacit.evaluate.intervals import Sums
    from tacit.evaluate.learners import Frozen, Learning, Ranking
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
    from tacit.evaluate.ridge import ArmRidges
    from tacit.evaluate.rows import arms_of
    from tacit.evaluate.targets import ByClassifier, Probabilities, Table, Target, Uniform, fixed_target
    from tacit.evaluate.weighing import off_policy

# The service reads parts of this package, and no log: pyarrow is brought along by who does.
_HOMES = {
    "conclusion": ("conclude",),
    "estimators": (
        "CascadeIPS",
        "DirectMethod",
        "DoublyRobust",
        "Estimator",
        "IPS",
        "IndependentIPS",
        "PositionBasedIPS",
        "SNIPS",
        "SlateIPS",
        "SwitchDR",
        "named_estimators",
    ),
    "examination": ("Examination", "examine"),
    "learners": ("Frozen", "Learning", "Ranking"),
    "proposal": ("Proposal", "Shift", "propose"),
    "rejection": ("ReplayResult", "replay"),
    "results": ("Estimate", "OffPolicyResult", "Segment"),
    "rewards": ("ArmMeans", "Frequencies", "Greedy", "Predicted", "RewardFunction", "RewardModel", "Rewards"),
    "ridge": ("ArmRidges",),
    "rows": ("arms_of",),
    "targets": ("ByClassifier", "Probabilities", "Table", "Target", "Uniform", "fixed_target"),
    "weighing": ("off_policy",),
}
__getattr__, __dir__ = later(
    __name__, {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names}
)

__all__ = [
    "IPS",
    "SNIPS",
    "ArmMeans",
    "ArmRidges",
    "ByClassifier",
    "CascadeIPS",
    "DirectMethod",
    "DoublyRobust",
    "Estimate",
    "Estimator",
    "Examination",
    "Frequencies",
    "Frozen",
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
