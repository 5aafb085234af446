"""One group of requests, applied to the placements.

Feedback finds its decision or is refused with the reason; decisions that were made before are answered
again, the rest is chosen at once; the rows wait in the order of the log.

:func:`apply`, at the end, is the whole of it; what stands before are its two large parts:

1. time goes by: windows that are due close, and what they earned is learned;
2. marks are made: modes, arms and whatever else is changed holds for all that follows;
3. :func:`decide`: one block of impressions for each placement, chosen by one call of its learner;
4. :func:`record`: one block of feedback, each piece by the window of its decision, if that is open, or by
   what the store has of it;
5. what was learned is exported, for other shards.

Nothing here waits or is durable: the writer (:mod:`tacit.service.engine.writer`) commits the rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from tacit.core.arrays import Ints
from tacit.errors import InvalidValue, TacitError
from tacit.service.engine.pending_rows import Key, Outcome, PendingLog
from tacit.service.errors import InConflict, RepeatedFeedback, UnknownDecision
from tacit.service.log.blocks import Block, distinct, values
from tacit.service.log.requests import (
    Ask,
    CheckDecisions,
    Decide,
    Export,
    FeedbackRequest,
    Impression,
    Mark,
    Record,
    Request,
)
from tacit.service.log.rows import GUARDRAIL, REWARD, TICK, Content, DecisionRow, FeedbackRow, FoundDecision
from tacit.service.placements.attribution import DUPLICATE
from tacit.service.placements.placement import CHANGES, Placement

# ---- Recording feedback for a group: each piece finds its decision, or is refused with the reason

MOST_FEEDBACK = 100

Accepted = tuple[int, str | None]
"""The place of the decision in the log, and clicked positions as the log keeps them."""


def record(
    pending: PendingLog, requests: Mapping[int, Record], found: Mapping[Key, FoundDecision], now: int
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
    parts: dict[str, list[Sequence[FeedbackRequest]]] = {}
    for request in requests.values():
        parts.setdefault(request.placement, []).append(request.feedback)
    outcomes = {}
    for name, given in parts.items():
        recorder = _Recorder(pending, pending.placements[name], found, now)
        joined: Block[FeedbackRequest] = Block.joined(FeedbackRequest, given)
        # What came back for a decision before decides what becomes of the next piece.
        outcomes[name] = iter(
            [outcome for part in distinct(joined, "decision") for outcome in recorder.recorded(part)]
        )
    return {
        i: list(islice(outcomes[request.placement], len(request.feedback))) for i, request in requests.items()
    }


class _Recorder:
    """Records feedback of one placement at one moment."""

    def __init__(
        self, pending: PendingLog, placement: Placement, found: Mapping[Key, FoundDecision], now: int
    ) -> None:
        self._pending, self._placement, self._found, self._now = pending, placement, found, now

    def recorded(self, feedback: Block[FeedbackRequest]) -> list[Outcome]:
        """Return what became of feedback in which no decision comes twice."""
        placement = self._placement
        entries = self._open_entries(feedback)
        if entries is not None:
            seqs = placement.windows.seqs(entries)
            rows = self._logged(feedback, seqs, [None] * len(feedback))
            return list(placement.take_in(rows, entries))
        # Judged before any is taken in: what is refused must leave no row, and rows have their numbers in
        # order.
        judged = [self._judged(piece) for piece in feedback]
        places = [i for i, outcome in enumerate(judged) if isinstance(outcome, tuple)]
        accepted = [row for row in judged if isinstance(row, tuple)]
        rows = self._logged(
            feedback.take(places), [seq for seq, _ in accepted], [clicks for _, clicks in accepted]
        )
        for i, row in zip(places, rows, strict=True) if self._found or self._pending.ahead else ():
            # The decision is closed: what came for it now must be known to whatever the same group brings
            # next.
            before = self._closed(feedback[i].decision)
            if before is not None:
                before.feedback.append(row)
        became = iter(placement.take_in(rows) if accepted else ())
        return [next(became) if isinstance(row, tuple) else row for row in judged]

    def _open_entries(self, feedback: Block[FeedbackRequest]) -> Ints | None:
        """Return the entries of the decisions where all feedback is fit at first sight."""
        # Rewards for open decisions, by clients that name no feedback: nearly all traffic. They need no
        # row-by-row comparison with what came before.
        plain = self._placement.kind.showing.single and set(feedback.column("kind")) == {REWARD}
        if self._pending.ahead or not plain or any(feedback.column("id")):
            return None
        windows = self._placement.windows
        found = list(map(windows.find, feedback.column("decision")))
        if None in found:
            return None
        entries = np.array(found, np.int64)
        return entries if windows.answered_less(entries, MOST_FEEDBACK) else None

    def _logged(
        self, feedback: Block[FeedbackRequest], seqs: list[int], clicks: list[str | None]
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

    def _closed(self, id: str) -> FoundDecision | None:
        """Return a decision that the store or the pending log knows."""
        return self._found.get((self._placement.id, id)) or self._pending.uncommitted(self._placement, id)

    def _judged(self, feedback: FeedbackRequest) -> Accepted | Outcome:
        """Return what the log keeps of feedback; or the outcome of what is not recorded."""
        placement, windows, id = self._placement, self._placement.windows, feedback.decision
        entry = windows.find(id)
        if entry is not None:
            decision, known = windows.row(entry), windows.contents(entry)
            times = windows.times_answered(entry)
        else:
            before = self._closed(id)
            if before is None:
                return UnknownDecision(
                    f"decision_id: placement {placement.name!r} made no decision "
                    f"{id!r}; send the id that its answer gave"
                )
            decision, came, times = before.decision, before.feedback, len(before.feedback)
            known = {row.id: row.content for row in came if row.id}
        try:
            clicks = placement.positions(decision, feedback)
        except InvalidValue as error:
            return error
        refusal = _refusal(feedback, clicks, known, times)
        return (decision.seq, clicks) if refusal is None else refusal


def _refusal(
    feedback: FeedbackRequest, clicks: str | None, known: Mapping[str, Content], times: int
) -> str | TacitError | None:
    """Return why feedback is not recorded after what came before; None where it is."""
    id = feedback.id
    if id is not None and id in known:
        # An id with the same content is a repetition, as after a lost answer, and is no error.
        said = feedback.kind, feedback.reward, clicks
        if known[id] == (said if feedback.metrics is None else (*said, feedback.metrics)):
            return DUPLICATE
        return InConflict(f"feedback_id: {id!r} stands for other feedback; send the same, or another id")
    if times >= MOST_FEEDBACK:
        return RepeatedFeedback(
            f"decision_id: {feedback.decision!r} has had feedback {times} times; send no more"
        )
    return None


# ---- Deciding for a group: what was decided before is answered again, the rest is chosen at once

FoundDecisions = Mapping[Key, FoundDecision]
Answers = range | list[DecisionRow | int]
"""Decisions that were made before, and the places of new ones."""


def decide(
    pending: PendingLog, requests: Mapping[int, Decide], found: Mapping[Key, FoundDecision], now: int
) -> dict[int, Any]:
    """Return the decisions of each request, or the error that it met; then nothing of it is new.

    Parameters
    ----------
    pending : PendingLog
    requests : dict of int to Decide
    found : dict
        Decisions that the store knows.
    now : int
        Time of the log.
    """
    batches: dict[str, _Batch] = {}
    answers: dict[int, Any] = {}
    for i, request in requests.items():
        batch = batches.get(request.placement)
        if batch is None:
            batch = batches[request.placement] = _Batch(pending, request.placement, found)
        try:
            answers[i] = batch.add(request.impressions)
        except TacitError as error:
            answers[i] = error
    for batch in batches.values():
        batch.choose(now)
    return {
        i: answer if isinstance(answer, TacitError) else batches[requests[i].placement].decisions(answer)
        for i, answer in answers.items()
    }


class _Batch:
    """What a placement is to decide, of all requests of a group."""

    def __init__(self, pending: PendingLog, name: str, found: Mapping[Key, FoundDecision]) -> None:
        self._pending, self._name, self._found = pending, name, found
        self._placement = pending.placements[name]
        self._parts: list[Sequence[Impression]] = []
        self._size = 0
        self._new_keys: set[str] = set()
        # Impressions whose ids the clients gave, and their places.
        self._named: dict[str, tuple[int, Impression]] = {}
        self._rows: Sequence[DecisionRow] = []
        self._each: list[DecisionRow] | None = None

    def add(self, impressions: Sequence[Impression]) -> Answers:
        """Return each impression's decision if it was made before, or else its place.

        Raises
        ------
        InConflict
            If an id stands for another decision; then nothing is added.
        InvalidValue, UnknownName
            If an arm is no longer on offer, or there is no room for a key; likewise.
        Overloaded
            If as many decisions are open as may be; likewise.
        """
        # Without ids of the clients' nothing can have been decided before: the block goes on as it is.
        ids = values(impressions, "id")
        if ids.count(None) == len(ids):
            start = self._size
            self._parts.append(self._checked(impressions, range(len(impressions))))
            self._size += len(impressions)
            return range(start, self._size)
        answers: list[DecisionRow | int] = []
        new: list[Impression] = []
        places: list[int] = []
        named: dict[str, tuple[int, Impression]] = {}
        for place, impression in enumerate(impressions):
            answer = self._made_before(impression, named, place, places)
            if answer is None:
                answer = self._size + len(new)
                new.append(impression)
                places.append(place)
                if impression.id is not None:
                    named[impression.id] = answer, impression
            answers.append(answer)
        checked = self._checked(new, places)
        # Only now: an error before must leave nothing of this request behind.
        self._named |= named
        self._parts.append(checked)
        self._size += len(checked)
        return answers

    def _checked(self, impressions: Sequence[Impression], places: Sequence[int]) -> Sequence[Impression]:
        """Return impressions as they are decided: what may have changed since the request came is checked."""
        placement = self._placement
        # The request was checked when it came; arms may have gone since, in this group or before.
        if placement.living.wholes:
            placement.check_offered(impressions)
        pending = self._pending
        if impressions and pending.open_count + self._size + len(impressions) > pending.most_open:
            pending.refuse_room()
        found = placement.looked_up(impressions, places)
        if placement.key_limit is not None:
            self._new_keys |= placement.let_in(values(impressions, "key"), self._new_keys)
        return found

    def _made_before(
        self,
        impression: Impression,
        named: Mapping[str, tuple[int, Impression]],
        place: int,
        places: Sequence[int],
    ) -> DecisionRow | int | None:
        """Return the decision of this id, or its place in this group, or None if it is new.

        Of its request are those that are ``named``, at their ``places``, and itself at ``place``.
        """
        id = impression.id
        if id is None:
            return None
        row = self._pending.remembered(self._placement, id)
        if row is None and (self._placement.id, id) in self._found:
            row = self._found[self._placement.id, id].decision
        answer: DecisionRow | int
        if row is not None:
            same, answer = self._placement.asked_before(impression, row), row
        # Two requests with one id in one group: the second gets the answer of the first.
        elif id in named or id in self._named:
            answer, earlier = named.get(id) or self._named[id]
            same = self._placement.asks_the_same(impression, earlier)
        else:
            return None
        if not same:
            if row is None and id in named:
                before = places[named[id][0] - self._size]
                raise InConflict(
                    f"decisions[{place}].decision_id: {id!r} stands for another decision at "
                    f"decisions[{before}] of this batch; give each an id of its own"
                )
            raise InConflict(
                f"decision_id: {id!r} stands for a decision that was asked for with other "
                "values; send the same request, or another id"
            )
        return answer

    def choose(self, now: int) -> None:
        """Decide for all that is new."""
        if self._size:
            several = len(self._parts) > 1
            impressions = Block.joined(Impression, self._parts) if several else self._parts[0]
            self._placement.learn_turns()
            rows = self._placement.choose(impressions, self._pending.seq + 1, now)
            self._pending.log_decisions(self._name, rows)
            self._rows = rows

    def decisions(self, answers: Answers) -> Sequence[DecisionRow]:
        """Return the decisions that answer a request."""
        if len(answers) == self._size and isinstance(answers, range):
            return self._rows
        if self._each is None:
            self._each = list(self._rows)
        each = self._each
        if isinstance(answers, range):
            return each[answers.start : answers.stop]
        return [each[answer] if isinstance(answer, int) else answer for answer in answers]


# ---- One group of requests, applied to the placements; its rows wait in the order of the log


def apply(
    pending: PendingLog, requests: Sequence[Request], found: dict[Key, FoundDecision]
) -> list[Any | Exception]:
    """Close windows, change what is asked, decide, record and export, in this order.

    Parameters
    ----------
    pending : PendingLog
    requests : sequence of Request
    found : dict
        What the store knows of what is :meth:`~PendingLog.unknown`.

    Returns
    -------
    list
        For each request its result, or the error that it met.
    """
    # 1. Time goes by. Feedback of this group may still name a decision whose window closes right now.
    now = pending.time.advance()
    closing = pending.closing(now)
    if closing:
        _keep_closing(pending, requests, found, now)
    # The others have nothing due: for them no time needs to go by.
    touched = {request.placement for request in requests} | {p.name for p in closing}
    for name in touched:
        pending.placements[name].advance(now)
    if closing:
        # What has closed makes room for what is decided now.
        pending.touch(touched)
    # 2. Marks. A decision of the same group is already made as they say.
    before = pending.seq
    results: dict[int, Any] = {}
    kinds: defaultdict[type, dict[int, Any]] = defaultdict(dict)
    for i, request in enumerate(requests):
        kinds[type(request)][i] = request
    for kind, step in STEPS.items():
        for i, change in kinds.pop(kind, {}).items():
            results[i] = step(pending, change, now)
    # 3. and 4. Decisions stand before feedback in the log, so that a client may send both together.
    if Decide in kinds:
        results |= decide(pending, kinds[Decide], found, now)
    if Record in kinds:
        results |= record(pending, kinds[Record], found, now)
    for i, request in kinds.pop(CheckDecisions, {}).items():
        results[i] = _check(pending, request, found)
    # 5. Exports, of what this group taught, too.
    for i, export in kinds.pop(Export, {}).items():
        results[i] = now, _exported(pending.placements[export.placement], export.everything)
    # 6. What is proved by now to do harm is shown no more, from the next group on.
    for name in touched:
        if pending.placements[name].guardrail is not None:
            _guard(pending, name, now)
    if closing and pending.seq == before:
        # Nothing else in the log says that these windows have closed.
        pending.log_mark(None, now, TICK, "")
    pending.touch(touched)
    return [results[i] for i in range(len(requests))]


def _keep_closing(
    pending: PendingLog, requests: Sequence[Request], found: dict[Key, FoundDecision], now: int
) -> None:
    """Remember the decisions that are asked for while their windows close."""
    for placement, named in pending.named(requests):
        windows = placement.windows
        for id in named:
            entry = windows.find(id)
            if entry is not None and windows.deadline(entry) <= now:
                row, contents = windows.row(entry), windows.contents(entry)
                times = windows.times_answered(entry)
                nameless = [(None, (REWARD, None, None))] * times
                feedback = [
                    FeedbackRow(0, placement.id, row.seq, name, 0, *content)
                    for name, content in [*contents.items(), *nameless]
                ]
                found[placement.id, id] = FoundDecision(row, feedback[:times])


def _check(
    pending: PendingLog, request: CheckDecisions, found: Mapping[Key, FoundDecision]
) -> TacitError | None:
    """Return why impressions cannot be decided; None if they can."""
    try:
        _Batch(pending, request.placement, found).add(request.impressions)
    except TacitError as error:
        return error
    return None


def _mark(pending: PendingLog, request: Mark, now: int) -> None:
    placement = pending.placements[request.placement]
    _, value, kind, who = request
    if placement.is_news(kind, value):
        placement.marked(pending.log_mark(placement.id, now, kind, value, who))


def _guard(pending: PendingLog, name: str, now: int) -> None:
    """Let the guardrail of a placement act, if there is harm."""
    placement = pending.placements[name]
    assert placement.guardrail is not None
    for kind, value in placement.guardrail.marks(placement):
        _mark(pending, Mark(name, value, kind, GUARDRAIL), now)


def _ask(pending: PendingLog, asked: Ask, now: int) -> Any:
    """Return what is so after a change, or why it cannot be."""
    placement = pending.placements[asked.placement]
    change = CHANGES[type(asked.request)]
    try:
        value = change.mark(placement, asked.request, now)
    except TacitError as error:
        return error
    if value is not None:
        _mark(pending, Mark(asked.placement, value, change.kind, asked.who), now)
    return change.answer(placement, now)


STEPS: dict[type, Callable[[PendingLog, Any, int], Any]] = {Mark: _mark, Ask: _ask}
"""What is changed before anything is decided, in this order."""


def _exported(placement: Placement, everything: bool) -> dict[str, Any]:
    if placement.shared is None:
        return {}
    return placement.shared.learned(placement, everything)
