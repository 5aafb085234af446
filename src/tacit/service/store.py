"""What the engine asks of a store, and the rows that pass between them.

The log is the truth. A store keeps decisions and feedback under one ascending sequence number,
appends a group of them whole or not at all, and gives them back in that order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from tacit.decisions import Arm

LEARNED = "learned"
LATE = "late-epoch"


class DecisionRow(NamedTuple):
    """A decision in the log.

    Attributes
    ----------
    seq : int
        Place in the log, from 1; shared with feedback.
    id : str
        Unique among all decisions.
    placement, policy : int
        The store's numbers for them.
    time : int
        Microseconds since 1970.
    key : str
    offered : str or None
        JSON list of the arms that were on offer; None for all of them.
    arm : int or str
    propensity : float or None
        None where the policy is deterministic.
    epoch : int
    context : str or None
        JSON list of numbers.
    """

    seq: int
    id: str
    placement: int
    policy: int
    time: int
    key: str
    offered: str | None
    arm: Arm
    propensity: float | None
    epoch: int
    context: str | None


class FeedbackRow(NamedTuple):
    """Feedback in the log.

    Attributes
    ----------
    seq : int
    decision : int
        ``seq`` of the decision.
    time : int
        Microseconds since 1970.
    reward : float
        In [0, 1].
    outcome : str
        ``learned``, or ``late-epoch`` where the key had restarted since the decision.
    """

    seq: int
    decision: int
    time: int
    reward: float
    outcome: str


class Answered(NamedTuple):
    """Feedback beside the decision that it is for."""

    feedback: FeedbackRow
    decision: DecisionRow


class Progress(NamedTuple):
    """How far a placement has come with a group: its generator, its counters, the log's end."""

    generator: str
    decisions: int
    feedback: int
    seq: int
    placement: int


class StoredPlacement(NamedTuple):
    """A placement as the store has it; ``generator`` is None until its first decision.

    None of its events comes after ``seq``.
    """

    id: int
    policy: int
    spec: str
    seed: int
    generator: str | None
    decisions: int
    feedback: int
    seq: int


class Snapshot(NamedTuple):
    """What a placement had learned from the log up to ``seq``."""

    placement: int
    seq: int
    time: int
    learner: bytes
    series: bytes


class Store(Protocol):
    """A log that survives.

    Writing methods run one at a time, in one thread; the others may run beside them, also one
    at a time. Each raises StoreError if the store fails.
    """

    def placement(self, name: str, spec: str, seed: int) -> StoredPlacement:
        """Return a placement, which gets ``spec`` and ``seed`` if it is new."""

    def append(
        self,
        decisions: Sequence[DecisionRow],
        feedback: Sequence[FeedbackRow],
        progress: Sequence[Progress],
    ) -> None:
        """Make a group durable: all of it, or nothing."""

    def decision(self, id: str) -> tuple[DecisionRow, bool] | None:
        """Find a decision, and say whether it has its feedback."""

    def events(self, after: int) -> Iterator[DecisionRow | Answered]:
        """Give the log after a sequence number, in order."""

    def last_seq(self) -> int:
        """Return the log's last sequence number; 0 if it is empty."""

    def snapshot(self, placement: int) -> Snapshot | None:
        """Return a placement's latest snapshot."""

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a snapshot in place of the one before."""

    def probe(self, time: int) -> None:
        """Commit something small, to show that commits work."""

    def size(self) -> int:
        """Return the bytes that the store takes."""

    def close(self) -> None:
        """Release everything; the store cannot be used afterwards."""
