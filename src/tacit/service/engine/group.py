"""Apply one group of requests to the placements.

:func:`apply`, at the end, has these steps; :func:`record` and :func:`decide` are its two large parts:

1. due windows close, and their rewards are learned;
2. change events: modes, arms and other settings change before anything is decided;
3. :func:`decide`: for each placement, one call of its learner decides for a block of impressions; repeated
   requests get the decision that was made before;
4. :func:`record`: for each placement, one block of feedback; each piece belongs to an open decision or to one
   in the store, or is refused with a reason;
5. learned sums are exported, for other shards;
6. guardrails act.

The rows become pending in the order of the log; the writer (:mod:`tacit.service.engine.writer`) commits them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from tacit.errors import InvalidValue, TacitError
from tacit.service.engine.pending_rows import Key, Outcome, PendingLog
from tacit.service.errors import InConflict, Overloaded, RepeatedFeedback, UnknownDecision
from tacit.service.log.blocks import Block, split_distinct
from tacit.service.log.requests import (
    AppendChange,
    ChangePlacement,
    CheckDecisions,
    Decide,
    Export,
    FeedbackRequest,
    Impression,
    Record,
    Request,
)
from tacit.service.log.rows import (
    GUARDRAIL,
    REWARD,
    TICK,
    Content,
    DecisionRow,
    DecisionWithFeedback,
    FeedbackRow,
)
from tacit.service.placements.changes import EFFECTS
from tacit.service.placements.guardrail_changes import plan_guardrail_changes
from tacit.service.placements.placement import Placement
from tacit.service.projections.attribution import DUPLICATE

# ---- Recording feedback for a group: each piece is assigned to its decision, or refused with a reason

MOST_FEEDBACK = 100

Accepted = tuple[int, str | None, int | None]
"""Sequence number of the decision, clicked positions as JSON for the log, and entry if it is open."""


def record(
    pending: PendingLog,
    requests: Mapping[int, Record],
    stored_decisions: Mapping[Key, DecisionWithFeedback],
    now: int,
) -> dict[int, list[Outcome]]:
    """Log and learn the feedback of requests; return the outcomes of each request, by its index in the group.

    An outcome is a word, or the error that refused a piece of feedback. The rows become pending.

    Parameters
    ----------
    pending : PendingLog
    requests : dict of int to Record
    stored_decisions : dict
        Decisions from the store, with their feedback.
    now : int
        Time of the log.
    """
    parts: dict[str, list[Block[FeedbackRequest]]] = {}
    for request in requests.values():
        parts.setdefault(request.placement, []).append(request.feedback)
    outcomes = {}
    for name, pieces in parts.items():
        recorder = _Recorder(pending, pending.placements[name], stored_decisions, now)
        joined: Block[FeedbackRequest] = Block.concatenate(FeedbackRequest, pieces)
        # The outcome of feedback depends on earlier feedback on its decision.
        outcomes[name] = iter(
            [outcome for part in split_distinct(joined, "decision") for outcome in recorder.record(part)]
        )
    # The pieces were joined in the order of the requests.
    return {
        i: list(islice(outcomes[request.placement], len(request.feedback))) for i, request in requests.items()
    }


@dataclass
class _Recorder:
    """Records the feedback of a group of requests for one placement."""

    pending: PendingLog
    placement: Placement
    stored_decisions: Mapping[Key, DecisionWithFeedback]
    now: int

    def record(self, feedback: Block[FeedbackRequest]) -> list[Outcome]:
        """Log and learn feedback on distinct decisions; return the outcome of each piece, in order.

        Refused feedback is neither logged nor learned; its outcome is the error, or "duplicate".
        """
        placement, open = self.placement, self.placement.windows.open
        # Nearly all traffic is rewards without ids for open decisions. They need no row-by-row comparison
        # with earlier feedback.
        plain = placement.shows.single and set(feedback.column("kind")) == {REWARD}
        if plain and not self.pending.uncommitted and not any(feedback.column("id")):
            indices = list(map(open.find, feedback.column("decision")))
            entries = None if None in indices else np.array(indices, np.int64)
            if entries is not None and (open.windows.answers[entries] < MOST_FEEDBACK).all():
                # Rewards have no clicks.
                seqs = open.windows.seq[entries].tolist()
                rows = self._log_feedback(feedback, seqs, [None] * len(feedback))
                return list(placement.learning.apply_feedback(rows, entries))
        # All pieces are checked before the first is learned: refused ones get no row and no number.
        results = [self._check(piece) for piece in feedback]
        places = [i for i, outcome in enumerate(results) if isinstance(outcome, tuple)]
        accepted = [row for row in results if isinstance(row, tuple)]
        seqs, clicks, open_entries = map(list, zip(*accepted, strict=True)) if accepted else ([], [], [])
        rows = self._log_feedback(feedback.take(places), seqs, clicks)
        for i, row in (
            zip(places, rows, strict=True) if self.stored_decisions or self.pending.uncommitted else ()
        ):
            # The decision is closed: later feedback of the same group must see this row.
            before = self._find_closed(feedback[i].decision)
            if before is not None:
                before.feedback.append(row)
        # With None, the learner looks up each decision: some are closed.
        entries = None if None in open_entries else np.array(open_entries, np.int64)
        outcomes = iter(placement.learning.apply_feedback(rows, entries) if accepted else ())
        return [next(outcomes) if isinstance(row, tuple) else row for row in results]

    def _log_feedback(
        self, feedback: Block[FeedbackRequest], seqs: list[int], clicks: list[str | None]
    ) -> Block[FeedbackRow]:
        """Append accepted feedback to the pending log as rows, and return the rows.

        ``seqs`` are the sequence numbers of its decisions, ``clicks`` the clicked positions as JSON.
        """
        count, first = len(feedback), self.pending.seq + 1
        # A store may lose the sign of a zero.
        rewards = [0.0 if reward == 0.0 else reward for reward in feedback.column("reward")]
        rows: Block[FeedbackRow] = Block(
            FeedbackRow,
            (
                list(range(first, first + count)),
                [self.placement.id] * count,
                seqs,
                feedback.column("id"),
                [self.now] * count,
                feedback.column("kind"),
                rewards,
                clicks,
                feedback.column("metrics"),
            ),
        )
        self.pending.log_rows(self.placement.name, rows)
        return rows

    def _find_closed(self, id: str) -> DecisionWithFeedback | None:
        """Return a closed or uncommitted decision with its feedback; None if neither log has it."""
        key = self.placement.id, id
        return self.stored_decisions.get(key) or self.pending.uncommitted.get(key)

    def _check(self, feedback: FeedbackRequest) -> Accepted | Outcome:
        """Check a piece of feedback; return its decision, clicks and entry, or its outcome if it is refused.

        That outcome is an error, or "duplicate". Changes nothing.
        """
        placement, windows, id = self.placement, self.placement.windows.open, feedback.decision
        entry = windows.find(id)
        if entry is not None:
            decision, contents = windows.get_row(entry), windows.named_feedback.get(entry, {})
            times = int(windows.windows.answers[entry])
        else:
            before = self._find_closed(id)
            if before is None:
                return UnknownDecision(
                    f"decision_id: placement {placement.name!r} made no decision "
                    f"{id!r}; send the id that its answer gave"
                )
            decision, earlier, times = before.decision, before.feedback, len(before.feedback)
            contents = {row.id: row.content for row in earlier if row.id}
        try:
            clicks = placement.results.format_clicks(decision, feedback)
        except InvalidValue as error:
            return error
        refusal = _find_refusal(feedback, clicks, contents, times)
        return (decision.seq, clicks, entry) if refusal is None else refusal


def _find_refusal(
    feedback: FeedbackRequest, clicks: str | None, contents: Mapping[str, Content], times: int
) -> str | TacitError | None:
    """Return "duplicate" or an error for feedback that must not be recorded; None if it may be.

    ``contents`` are the contents of earlier feedback by its id, ``times`` the number of all earlier feedback.
    """
    id = feedback.id
    if id is not None and id in contents:
        # The same content with the same id is a repetition, as after a lost answer, and not an error.
        content = feedback.kind, feedback.reward, clicks
        if contents[id] == (content if feedback.metrics is None else (*content, feedback.metrics)):
            return DUPLICATE
        return InConflict(f"feedback_id: {id!r} stands for other feedback; send the same, or another id")
    if times >= MOST_FEEDBACK:
        return RepeatedFeedback(
            f"decision_id: {feedback.decision!r} has had feedback {times} times; send no more"
        )
    return None


# ---- Deciding for a group: repeated requests get earlier decisions, all others are decided together

Answers = range | list[DecisionRow | int]
"""Earlier decisions, and indices of new ones in the batch; a range if all are new."""


def decide(
    pending: PendingLog,
    requests: Mapping[int, Decide],
    stored_decisions: Mapping[Key, DecisionWithFeedback],
    now: int,
) -> dict[int, Any]:
    """Decide for requests and log the decisions; return for each, by its index, its decisions or its error.

    A request with an error makes no decisions. Repeated requests get the earlier decisions. The rows become
    pending.

    Parameters
    ----------
    pending : PendingLog
    requests : dict of int to Decide
    stored_decisions : dict
        Decisions from the store.
    now : int
        Time of the log.
    """
    batches: dict[str, _Batch] = {}
    answers: dict[int, Any] = {}
    for i, request in requests.items():
        batch = batches.get(request.placement)
        if batch is None:
            placement = pending.placements[request.placement]
            batch = batches[request.placement] = _Batch(pending, placement, stored_decisions)
        try:
            answers[i] = batch.add(request.impressions)
        except TacitError as error:
            answers[i] = error
    for name, batch in batches.items():
        if batch.size:
            # Rewards whose turn in the learning order has come are learned before.
            batch.placement.learning.learn_turns()
            impressions: Block[Impression] = Block.concatenate(Impression, batch.parts)
            batch.rows = rows = batch.placement.decide(impressions, pending.seq + 1, now)
            pending.log_rows(name, rows)
    return {
        i: answer if isinstance(answer, TacitError) else batches[requests[i].placement].get_decisions(answer)
        for i, answer in answers.items()
    }


@dataclass
class _Batch:
    """The impressions of a group for one placement, and their decisions.

    Attributes
    ----------
    parts : list of Block
        The impressions of each request.
    size : int
        Their number.
    rows : sequence of DecisionRow
        The decisions, once they are made.
    """

    pending: PendingLog
    placement: Placement
    stored_decisions: Mapping[Key, DecisionWithFeedback]
    parts: list[Block[Impression]] = field(default_factory=list)
    size: int = 0
    rows: Sequence[DecisionRow] = ()
    _new_keys: set[str] = field(default_factory=set)
    # By the clients' ids: the index in the batch, and the impression.
    _by_id: dict[str, tuple[int, Impression]] = field(default_factory=dict)
    _row_list: list[DecisionRow] | None = None

    def add(self, impressions: Block[Impression]) -> Answers:
        """Add a request's impressions to the batch.

        Return for each its earlier decision, or its index in the batch.

        If an error is raised, nothing is added.

        Raises
        ------
        InConflict
            If an id belongs to another decision.
        InvalidValue, UnknownName
            If an arm is no longer offered, or there is no room for a key.
        Overloaded
            If the limit of open decisions is reached.
        """
        ids, by_id = impressions.column("id"), {}
        answers: Answers = range(self.size, self.size + len(ids))
        new, places = impressions, range(len(ids))
        # Without clients' ids no decision can be a repetition: the block is added unchanged.
        if ids.count(None) < len(ids):
            answers, new, places, by_id = self._separate_repeats(impressions)
        placement, pending, reader = self.placement, self.pending, self.placement.reader
        # The request was checked on arrival; arms may have been retired since, in this group or before.
        if placement.lifecycle.full_offers:
            reader.check_offer(new)
        if new and pending.open_count + self.size + len(new) > pending.most_open:
            raise Overloaded(
                f"service: {pending.open_count:,} decisions are open, and server.open_decisions allows "
                f"{pending.most_open:,}; try again when windows have closed"
            )
        candidates = reader.look_up_candidates(new, places) if placement.kind.by_features else new
        if reader.key_limit is not None:
            self._new_keys |= reader.find_new_keys(new.column("key"), self._new_keys, placement.learners)
        # After all checks: an error must leave nothing of this request behind.
        self._by_id |= by_id
        self.parts.append(candidates)
        self.size += len(new)
        return answers

    def _separate_repeats(self, impressions: Block[Impression]) -> tuple[Any, ...]:
        """Separate new impressions from repeated ones.

        Returns the answer to each impression, the new impressions, their positions, and a dict of those that
        have ids.
        """
        answers: list[DecisionRow | int] = []
        places: list[int] = []
        by_id: dict[str, tuple[int, Impression]] = {}
        for place, impression in enumerate(impressions):
            answer = self._find_earlier(impression, by_id, place, places)
            if answer is None:
                answer = self.size + len(places)
                places.append(place)
                if impression.id is not None:
                    by_id[impression.id] = answer, impression
            answers.append(answer)
        return answers, impressions.take(places), places, by_id

    def _find_earlier(
        self,
        impression: Impression,
        by_id: Mapping[str, tuple[int, Impression]],
        place: int,
        places: Sequence[int],
    ) -> DecisionRow | int | None:
        """Return the earlier decision with an impression's id, or its index in the batch.

        None if the id is new.

        Raises InConflict if the earlier request had other values. ``by_id`` has the earlier impressions of
        the same request that have ids. ``places`` are their positions in the request, and ``place`` is the
        impression's own, for the message.
        """
        id = impression.id
        if id is None:
            return None
        row = self.pending.find_decision(self.placement, id)
        if row is None and (self.placement.id, id) in self.stored_decisions:
            row = self.stored_decisions[self.placement.id, id].decision
        answer: DecisionRow | int
        if row is not None:
            same, answer = self.placement.reader.is_same_request(impression, row), row
        # Two requests with the same id in one group: the second gets the decision of the first.
        elif id in by_id or id in self._by_id:
            answer, earlier = by_id.get(id) or self._by_id[id]
            same = self.placement.reader.is_same_impression(impression, earlier)
        else:
            return None
        if not same:
            if row is None and id in by_id:
                # From the index in the batch to the one in this request.
                before = places[by_id[id][0] - self.size]
                raise InConflict(
                    f"decisions[{place}].decision_id: {id!r} stands for another decision at "
                    f"decisions[{before}] of this batch; give each an id of its own"
                )
            raise InConflict(
                f"decision_id: {id!r} stands for a decision that was asked for with other "
                "values; send the same request, or another id"
            )
        return answer

    def get_decisions(self, answers: Answers) -> Sequence[DecisionRow]:
        """Return the decisions for an answer of :meth:`add`; call it once they are made."""
        if len(answers) == self.size and isinstance(answers, range):
            return self.rows
        if self._row_list is None:
            self._row_list = list(self.rows)
        rows = self._row_list
        if isinstance(answers, range):
            return rows[answers.start : answers.stop]
        return [rows[answer] if isinstance(answer, int) else answer for answer in answers]


# ---- One group of requests, applied to the placements; its rows become pending in the order of the log


def apply(
    pending: PendingLog, requests: Sequence[Request], stored_decisions: dict[Key, DecisionWithFeedback]
) -> list[Any | Exception]:
    """Apply a group of requests to the placements; return for each request its result or its error.

    Closes due windows, changes placements, decides, records feedback, exports and applies guardrails, in this
    order. The rows become pending, and the changed placements are marked for the next commit. Decisions may
    be added to ``stored_decisions``.

    Parameters
    ----------
    pending : PendingLog
    requests : sequence of Request
    stored_decisions : dict
        Decisions from the store, of those that :meth:`~PendingLog.list_unknown` returns.

    Returns
    -------
    list
        For each request its result or its error.
    """
    # 1. Due windows close. Feedback of this group may still name a decision whose window closes now.
    now = pending.time.advance()
    closing = pending.take_due_placements(now)
    if closing:
        _add_closing_decisions(pending, requests, stored_decisions, now)
    # The other placements have no due windows, and need not be advanced.
    touched = {request.placement for request in requests} | {p.name for p in closing}
    for name in touched:
        pending.placements[name].learning.advance(now)
    if closing:
        # Closed windows make room for new decisions.
        pending.touch(touched)
    # 2. Change events. They hold for decisions of the same group.
    before = pending.seq
    results: dict[int, Any] = {}
    kinds: defaultdict[type, dict[int, Any]] = defaultdict(dict)
    for i, request in enumerate(requests):
        kinds[type(request)][i] = request
    for kind, step in STEPS.items():
        for i, change in kinds.pop(kind, {}).items():
            results[i] = step(pending, change, now)
    # 3. and 4. Decisions precede feedback in the log, so that a client may send both together.
    if Decide in kinds:
        results |= decide(pending, kinds[Decide], stored_decisions, now)
    if Record in kinds:
        results |= record(pending, kinds[Record], stored_decisions, now)
    for i, request in kinds.pop(CheckDecisions, {}).items():
        results[i] = _check(pending, request, stored_decisions)
    # 5. Exports, which include the rewards that this group learned.
    for i, export in kinds.pop(Export, {}).items():
        shared = pending.placements[export.placement].shared
        results[i] = now, {} if shared is None else shared.export_update(export.everything)
    # 6. Guardrails act: arms that proved harmful are not shown from the next group on.
    for name in touched:
        placement = pending.placements[name]
        for change_kind, value in plan_guardrail_changes(placement) if placement.guardrail else ():
            _append_change(pending, AppendChange(name, value, change_kind, GUARDRAIL), now)
    if closing and pending.seq == before:
        # No other row records the time at which these windows closed.
        pending.log_change(None, now, TICK, "")
    pending.touch(touched)
    return [results[i] for i in range(len(requests))]


def _add_closing_decisions(
    pending: PendingLog,
    requests: Sequence[Request],
    stored_decisions: dict[Key, DecisionWithFeedback],
    now: int,
) -> None:
    """Add the decisions that requests name and whose windows close by ``now`` to ``stored_decisions``.

    Feedback of this group then still finds them, with their earlier feedback.
    """
    for placement, ids in pending.iterate_named_ids(requests):
        windows = placement.windows.open
        for id in ids:
            entry = windows.find(id)
            if entry is not None and windows.windows.deadline[entry] <= now:
                row, contents = windows.get_row(entry), windows.named_feedback.get(entry, {})
                times = int(windows.windows.answers[entry])
                # Of feedback without an id only the number is known, and needed: placeholders fill it up.
                nameless = [(None, (REWARD, None, None))] * times
                # Rows and times of the feedback are not read, and are 0.
                feedback = [
                    FeedbackRow(0, placement.id, row.seq, name, 0, *content)
                    for name, content in [*contents.items(), *nameless]
                ]
                stored_decisions[placement.id, id] = DecisionWithFeedback(row, feedback[:times])


def _check(
    pending: PendingLog, request: CheckDecisions, stored_decisions: Mapping[Key, DecisionWithFeedback]
) -> TacitError | None:
    """Return the error that a request to decide would get, without deciding; None if it would get none."""
    try:
        _Batch(pending, pending.placements[request.placement], stored_decisions).add(request.impressions)
    except TacitError as error:
        return error
    return None


def _append_change(pending: PendingLog, request: AppendChange, now: int) -> None:
    """Log a change event and apply it, unless it would change nothing."""
    placement = pending.placements[request.placement]
    _, value, kind, who = request
    if placement.is_change(kind, value):
        placement.apply_change(pending.log_change(placement.id, now, kind, value, who))


def _change_placement(pending: PendingLog, request: ChangePlacement, now: int) -> Any:
    """Change a placement and log the change; return its new setting, or the error of an invalid change."""
    placement = pending.placements[request.placement]
    change = EFFECTS[type(request.request)]
    try:
        value = change.change_value(placement, request.request, now)
    except TacitError as error:
        return error
    # None: the request changes nothing that is logged.
    if value is not None:
        _append_change(pending, AppendChange(request.placement, value, change.kind, request.who), now)
    return change.answer(placement, now)


STEPS: dict[type, Callable[[PendingLog, Any, int], Any]] = {
    AppendChange: _append_change,
    ChangePlacement: _change_placement,
}
"""Functions that apply requests for changes, before anything is decided, in this order."""
