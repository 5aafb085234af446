"""Recording feedback for a group: each piece finds its decision, or is refused with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np

from tacit.core.arrays import Ints
from tacit.errors import InvalidValue, TacitError
from tacit.service.attribution.attribution import DUPLICATE
from tacit.service.engine.pending import Key, Outcome, PendingLog
from tacit.service.errors import Conflict, RepeatedFeedback, UnknownDecision
from tacit.service.log.blocks import Block, distinct
from tacit.service.log.requests import Feedback, Record
from tacit.service.log.rows import REWARD, Content, FeedbackRow, Found
from tacit.service.placements.base import Placement

MOST_FEEDBACK = 100

Accepted = tuple[int, str | None]
"""The place of the decision in the log, and clicked positions as the log keeps them."""


def record(
    pending: PendingLog, requests: Mapping[int, Record], found: Mapping[Key, Found], now: int
) -> dict[int, list[Outcome]]:
    """Return for each request what became of its feedback; that of a placement is learned at once.

    Parameters
    ----------
    pending : PendingLog
    requests : dict of int to Record
    found : dict
        Decisions that the store knows, and what came back for them.
    now : int
        Time of the log.
    """
    parts: dict[str, list[Sequence[Feedback]]] = {}
    for request in requests.values():
        parts.setdefault(request.placement, []).append(request.feedback)
    outcomes = {}
    for name, given in parts.items():
        recorder = _Recorder(pending, pending.placements[name], found, now)
        joined: Block[Feedback] = Block.joined(Feedback, given)
        # What came back for a decision before decides what becomes of the next piece.
        outcomes[name] = iter(
            [one for part in distinct(joined, "decision") for one in recorder.recorded(part)]
        )
    return {
        i: list(islice(outcomes[request.placement], len(request.feedback))) for i, request in requests.items()
    }


class _Recorder:
    """Records feedback of one placement at one moment."""

    def __init__(
        self, pending: PendingLog, placement: Placement, found: Mapping[Key, Found], now: int
    ) -> None:
        self._pending, self._placement, self._found, self._now = pending, placement, found, now

    def recorded(self, feedback: Block[Feedback]) -> list[Outcome]:
        """Return what became of feedback in which no decision comes twice."""
        placement = self._placement
        slots = self._open_slots(feedback)
        if slots is not None:
            seqs = placement.windows.seqs(slots)
            rows = self._logged(feedback, seqs, [None] * len(feedback))
            return list(placement.told(rows, slots))
        judged = [self._judged(one) for one in feedback]
        places = [i for i, one in enumerate(judged) if isinstance(one, tuple)]
        accepted = [one for one in judged if isinstance(one, tuple)]
        rows = self._logged(
            feedback.take(places), [seq for seq, _ in accepted], [clicks for _, clicks in accepted]
        )
        for i, row in zip(places, rows, strict=True) if self._found or self._pending.ahead else ():
            before = self._closed(feedback[i].decision)
            if before is not None:
                before.feedback.append(row)
        became = iter(placement.told(rows) if accepted else ())
        return [next(became) if isinstance(one, tuple) else one for one in judged]

    def _open_slots(self, feedback: Block[Feedback]) -> Ints | None:
        """Return the slots of the decisions where all feedback is fit at first sight."""
        plain = self._placement.shows_one and set(feedback.column("kind")) == {REWARD}
        if self._pending.ahead or not plain or any(feedback.column("id")):
            return None
        windows = self._placement.windows
        found = list(map(windows.find, feedback.column("decision")))
        if None in found:
            return None
        slots = np.array(found, np.int64)
        return slots if windows.told_less(slots, MOST_FEEDBACK) else None

    def _logged(
        self, feedback: Block[Feedback], seqs: list[int], clicks: list[str | None]
    ) -> Block[FeedbackRow]:
        """Log feedback that is accepted."""
        count, first = len(feedback), self._pending.seq + 1
        # A store may lose the sign of a zero.
        rewards = [0.0 if reward == 0.0 else reward for reward in feedback.column("reward")]
        rows: Block[FeedbackRow] = Block(
            FeedbackRow,
            (
                list(range(first, first + count)),
                [self._placement.id] * count,
                seqs,
                feedback.column("id"),
                [self._now] * count,
                feedback.column("kind"),
                rewards,
                clicks,
                feedback.column("metrics"),
            ),
        )
        self._pending.log_feedback(rows)
        return rows

    def _closed(self, id: str) -> Found | None:
        """Return a decision that the store or the pending log knows."""
        return self._found.get((self._placement.id, id)) or self._pending.uncommitted(self._placement, id)

    def _judged(self, feedback: Feedback) -> Accepted | Outcome:
        """Return what the log keeps of feedback; or the outcome of what is not recorded."""
        placement, windows, id = self._placement, self._placement.windows, feedback.decision
        slot = windows.find(id)
        if slot is not None:
            decision, known = windows.row(slot), windows.contents(slot)
            times = windows.times_told(slot)
        else:
            before = self._closed(id)
            if before is None:
                return UnknownDecision(
                    f"decision_id: placement {placement.name!r} made no decision "
                    f"{id!r}; send the id that its answer gave"
                )
            decision, known, times = (before.decision, _contents(before.feedback), len(before.feedback))
        try:
            clicks = placement.positions(decision, feedback.kind, feedback.clicks)
        except InvalidValue as error:
            return error
        refusal = _refusal(feedback, clicks, known, times)
        return (decision.seq, clicks) if refusal is None else refusal


def _refusal(
    feedback: Feedback, clicks: str | None, known: Mapping[str, Content], times: int
) -> str | TacitError | None:
    """Return why feedback is not recorded after what came before; None where it is."""
    id = feedback.id
    if id is not None and id in known:
        said = feedback.kind, feedback.reward, clicks
        if known[id] == (said if feedback.metrics is None else (*said, feedback.metrics)):
            return DUPLICATE
        return Conflict(f"feedback_id: {id!r} stands for other feedback; send the same, or another id")
    if times >= MOST_FEEDBACK:
        return RepeatedFeedback(
            f"decision_id: {feedback.decision!r} has had feedback {times} times; send no more"
        )
    return None


def _contents(rows: Sequence[FeedbackRow]) -> dict[str, Content]:
    return {row.id: row.content for row in rows if row.id}
