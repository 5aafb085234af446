"""What travels for User Behavior Insights (UBI 1.3): its records, as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tacit.errors import InvalidValue, TacitError
from tacit.logs.ubi_records import UbiEvent, UbiQuery, digest, event_of, query_of
from tacit.service.doors.ubi_records import ACTIVATED_ID, feedback_of
from tacit.service.engine.service import Service
from tacit.service.errors import InConflict, UnknownDecision
from tacit.service.http.messages import DEEPEST, deeper, problem_of
from tacit.service.http.route import RouteCall, route_of
from tacit.service.log.requests import FeedbackRequest, checked_id
from tacit.service.log.rows import ACTIVATE, EVENT, QUERY, DecisionRow, RecordRow
from tacit.service.placements.placement import Placement
from tacit.wire.decisions import Durability
from tacit.wire.verbs import Verb

# ---- What travels for User Behavior Insights (UBI 1.3): its records, as they are

Records = Annotated[list[dict[str, Any]], Meta(max_length=1000)]


class UbiRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Query and event records, as the JSON schemas of UBI 1.3 say."""

    queries: Records = []
    events: Records = []


class UbiOutcome(msgspec.Struct, omit_defaults=True):
    """What became of a record.

    The outcome is that of feedback, if it is about a decision made here, and ``known`` for the
    query record of one; ``kept``, if it is not or its action does not count: kept as it came, and
    nothing learned; ``duplicate``, if it was kept before; or the kind of its problem, with the
    field and what is wrong with it.
    """

    outcome: str
    decision_id: str | None = None
    field: str | None = None
    detail: str | None = None


class UbiAnswer(msgspec.Struct):
    """What became of each record, in the order of the request."""

    queries: list[UbiOutcome]
    events: list[UbiOutcome]
    durability: Durability


# ---- The route that takes User Behavior Insights (UBI 1.3) records: feedback, or kept as they are

KNOWN, KEPT, DUPLICATE = "known", "kept", "duplicate"

Read = UbiQuery | UbiEvent
_Step = FeedbackRequest | RecordRow | UbiOutcome


async def take(engine: Service, call: RouteCall) -> UbiAnswer:
    """Take feedback to decisions made here, keep all else; a wrong record stops no other."""
    name, request = call.placement, call.request
    records = [*request.queries, *request.events]
    count = len(request.queries)
    read = [_read(query_of if i < count else event_of, r) for i, r in enumerate(records)]
    ids = dict.fromkeys(_decision(record) for record in read if not isinstance(record, UbiOutcome))
    rows = await engine.made(name, list(ids))
    placement = engine.placement(name)
    steps = [
        one if isinstance(one, UbiOutcome) else _step(placement, one, record, rows)
        for one, record in zip(read, records, strict=True)
    ]
    outcomes = await _done(engine, name, steps)
    durability: Any = engine.durability(name)
    return UbiAnswer(outcomes[:count], outcomes[count:], durability)


async def _done(engine: Service, name: str, steps: Sequence[_Step]) -> list[UbiOutcome]:
    """Record the feedback, and keep the other records; return what became of everything."""
    outcomes = [step if isinstance(step, UbiOutcome) else UbiOutcome("") for step in steps]
    feedback = {i: step for i, step in enumerate(steps) if isinstance(step, FeedbackRequest)}
    if feedback:
        became = await engine.record_many(name, list(feedback.values()))
        for i, outcome in zip(feedback, became, strict=True):
            found = _refused(outcome) if isinstance(outcome, TacitError) else UbiOutcome(outcome)
            found.decision_id = feedback[i].decision
            outcomes[i] = found
    kept = {i: step for i, step in enumerate(steps) if isinstance(step, RecordRow)}
    if kept:
        before = await engine.keep(name, list(kept.values()))
        for i, content in zip(kept, before, strict=True):
            outcomes[i] = _kept(kept[i], content)
    return outcomes


def _read(read: Callable[[Mapping[str, Any]], Read], record: Mapping[str, Any]) -> Any:
    try:
        if deeper(record):
            raise InvalidValue("record", "…", f"nest at most {DEEPEST} lists and objects")
        one = read(record)
        checked_id("query_id", _decision(one))
        return one
    except InvalidValue as error:
        return _refused(error)


def _decision(one: Read) -> str:
    """Return the id of the decision that a record may be about."""
    named = one.ours.get("decision_id")
    if isinstance(named, str):
        return named
    return one.id if isinstance(one, UbiQuery) else one.query


def _step(
    placement: Placement, one: Read, record: Mapping[str, Any], rows: Mapping[str, DecisionRow]
) -> _Step:
    """Return what is to be done with a record, or what became of it."""
    row = rows.get(_decision(one))
    if row is None and "decision_id" in one.ours:
        return _refused(
            UnknownDecision(
                f"decision_id: the placement made no decision {one.ours['decision_id']!r}; "
                "send the id that its answer gave, or none"
            )
        )
    if isinstance(one, UbiQuery):
        if row is None:
            return _row(placement.id, QUERY, one.id, record)
        if row.deferred:
            return FeedbackRequest(row.id, ACTIVATE, None, ACTIVATED_ID)
        return UbiOutcome(KNOWN, row.id)
    try:
        feedback = None if row is None else feedback_of(row, one, placement.actions)
    except InvalidValue as error:
        return _refused(error)
    if feedback is not None:
        return feedback
    return _row(placement.id, EVENT, digest(one._replace(ours={})._asdict()), record)


def _row(placement: int, kind: str, id: str, record: Mapping[str, Any]) -> RecordRow:
    return RecordRow(placement, kind, id, 0, msgspec.json.encode(record, order="sorted").decode())


def _kept(row: RecordRow, before: str | None) -> UbiOutcome:
    if before is None:
        return UbiOutcome(KEPT)
    if row.kind == EVENT or before == row.content:
        return UbiOutcome(DUPLICATE)
    return _refused(
        InConflict(f"query_id: {row.id!r} stands for another query; send the same, or another id")
    )


def _refused(error: TacitError) -> UbiOutcome:
    found = problem_of(error)
    return UbiOutcome(found.type.rpartition(":")[2], None, found.field, found.detail)


UBI = Verb("ubi", "Send records of User Behavior Insights", "POST", "ubi", UbiRequest, UbiAnswer, "feedback")
ROUTES = (route_of(UBI, take)._replace(limit="batch_limit"),)
