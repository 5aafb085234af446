"""User Behavior Insights (UBI 1.3) of a service: rows of the log as its records, its records as feedback.

The words of records; records as feedback, and rows as records; the whole log as files of records; then what
the route takes and answers, and the route.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tacit.core import checks
from tacit.core.checks import DEEPEST, is_deeper
from tacit.errors import InvalidValue, TacitError
from tacit.logs import ubi_records
from tacit.logs.decided import at_position, given_above
from tacit.logs.ubi_records import CLICKS as CLICK_ACTIONS
from tacit.logs.ubi_records import EXAMINED as EXAMINED_ACTIONS
from tacit.policies.spec import policy_from_stored
from tacit.service.engine.service import Service
from tacit.service.errors import InConflict, UnknownDecision
from tacit.service.http.messages import problem_of
from tacit.service.http.route import RouteCall, route_of
from tacit.service.log.requests import Clicked, FeedbackRequest, action_of, checked_id
from tacit.service.log.rows import (
    ACTIVATE,
    CLICKS,
    EVENT,
    EXAMINED,
    QUERY,
    REWARD,
    DecisionRow,
    FeedbackRow,
    RecordRow,
    slate_of,
)
from tacit.service.log.sql import Store
from tacit.service.log.store import Snapshot, StoredPlacement
from tacit.service.placements.aspects.items import items_then
from tacit.service.placements.lists import matrix
from tacit.service.placements.placement import Placement
from tacit.wire.decisions import Durability
from tacit.wire.verbs import Verb

# ---- Rows of the log as records of User Behavior Insights (UBI 1.3), and records as feedback

NO_CLICK = "no_click"
SEEN_ID = "ubi-seen"
ACTIVATED_ID = "ubi-query"
NOWHERE = 0
"""The ordinal of an event about a whole list; the schema demands one."""


def listed(row: DecisionRow) -> list[str | None] | None:
    """Return what a decision showed, as text, from the top; None at an empty position.

    A pair of rankers without a list is None.
    """
    if row.shown is None:
        return [str(row.arm)]
    shown = json.loads(row.shown)
    if isinstance(shown, list):
        items = shown
    elif "slate" in shown:
        items = shown["slate"]
    elif "interleaved" in shown:
        items = shown["interleaved"]["items"]
    elif "pair" in shown:
        return None
    else:
        items = [row.arm]
    return [None if item is None else str(item) for item in items]


def shows_one(row: DecisionRow) -> bool:
    """Whether a decision showed one arm, so that its feedback is a reward."""
    shown = None if row.shown is None else json.loads(row.shown)
    return (isinstance(shown, dict) and not {"pair", "slate"} & set(shown)) or shown is None


# Records as feedback -------------------------------------------------------------------------


def feedback_of(
    row: DecisionRow, event: ubi_records.UbiEvent, actions: Container[str] = ()
) -> FeedbackRequest | None:
    """Return what an event tells of a decision; None if it is none of the actions that count.

    Parameters
    ----------
    row : DecisionRow
    event : UbiEvent
    actions : container of str
        Those on an item of a list that count besides clicks.

    Raises
    ------
    InvalidValue
        If it is about something that the decision did not show.
    """
    ours = event.ours
    named = None if ours.get("feedback_id") is None else _id(ours["feedback_id"])
    id = named or ubi_records.digest(event._replace(ours={})._asdict())
    action, single = event.action, shows_one(row)
    if action == ACTIVATE:
        return FeedbackRequest(row.id, ACTIVATE, None, id)
    if action == REWARD and "reward" in ours:
        reward = checks.number("event_attributes.tacit.reward", ours["reward"], 0.0, 1.0)
        return FeedbackRequest(row.id, REWARD, reward, id)
    if action == NO_CLICK and not single:
        return FeedbackRequest(row.id, CLICKS, None, id, Clicked([]))
    if action in EXAMINED_ACTIONS:
        _place(row, event)
        return FeedbackRequest(row.id, EXAMINED, None, named or SEEN_ID)
    if action in actions and action not in CLICK_ACTIONS:
        return FeedbackRequest(row.id, CLICKS, None, id, Clicked([_place(row, event)], action=action))
    if action not in CLICK_ACTIONS:
        return None
    place = _place(row, event)
    if single:
        return FeedbackRequest(row.id, REWARD, 1.0, id)
    # An event may say all clicks of the feedback that it is a part of.
    clicks = ours.get("clicks", [place])
    if not isinstance(clicks, list):
        raise InvalidValue("event_attributes.tacit.clicks", clicks, "give a list of positions")
    return FeedbackRequest(row.id, CLICKS, None, id, Clicked(clicks))


def _id(value: Any) -> str:
    field = "event_attributes.tacit.feedback_id"
    if not isinstance(value, str):
        raise InvalidValue(field, value, "give text")
    return checked_id(field, value)


def _place(row: DecisionRow, event: ubi_records.UbiEvent) -> int:
    items = listed(row)
    if items is None:
        raise InvalidValue(
            "action_name", event.action, "the decision showed no list; send its outcome as feedback"
        )
    place = ubi_records.place_of(event.objects, event.ordinal, [item or "" for item in items])
    if place is None or items[place] is None:
        value = event.objects[0] if event.objects else event.ordinal
        raise InvalidValue("event_attributes.object", value, f"the decision showed {items}")
    return place


# Rows as records -----------------------------------------------------------------------------


class Names:
    """What records say of a placement besides what its rows hold.

    Parameters
    ----------
    name : str
    stored : StoredPlacement
    base : Snapshot or None
        Where its log begins, if old rows were dropped.

    Attributes
    ----------
    items : ItemsThen or None
        Its catalogue, as it was at the row that is written.
    """

    def __init__(self, name: str, stored: StoredPlacement, base: Snapshot | None) -> None:
        policy = policy_from_stored(json.loads(stored.spec))
        self.items = items_then(policy, base)
        arms, self._dims = policy.arms, policy.feature_dims
        self.placement = name
        self.policy = policy.label
        self.version = hashlib.sha256(stored.spec.encode()).hexdigest()[:16]
        self._arms = [str(arm) for arm in (range(arms) if isinstance(arms, int) else arms or ())]

    def query(self, row: DecisionRow) -> dict[str, Any]:
        """Return a decision as a query record."""
        items = listed(row)
        record: dict[str, Any] = {
            "query_id": query_id(row),
            "user_query": row.key,
            "timestamp": ubi_records.time_text(row.time),
            "query_attributes": {ubi_records.OURS: self._attributes(row) | self._of_query(row)},
        }
        if len(self.placement) <= ubi_records.LONGEST_NAME:
            record["application"] = self.placement
        if items is not None:
            record["query_response_hit_ids"] = [item for item in items if item is not None]
        return record

    def _attributes(self, row: DecisionRow) -> dict[str, Any]:
        return {
            "placement": self.placement,
            "decision_id": row.id,
            "policy": self.policy,
            "version": self.version,
            "propensity": row.propensity or None,
        }

    def _of_query(self, row: DecisionRow) -> dict[str, Any]:
        attributes: dict[str, Any] = {"mode": row.mode, "epoch": row.epoch}
        if row.deferred:
            attributes["deferred"] = True
        if row.context is not None:
            attributes["context"] = json.loads(row.context)
        if shows_one(row):
            attributes["arms"] = self._offered(row)
            return attributes
        items, teams = listed(row), _teams(row)
        if items and None in items:
            attributes["slate"] = items
        if teams is None and (slate := slate_of(row.shown)).places:
            shown = [k for k, arm in enumerate(slate.arms) if arm is not None]
            attributes["arms"] = self._offered(row)
            attributes["propensities"] = [given_above(slate.prefixes, k) for k in shown]
            attributes["position_propensities"] = [at_position(slate.places, k) for k in shown]
        return attributes | ({} if teams is None else teams)

    def _offered(self, row: DecisionRow) -> list[str]:
        if row.offered is not None:
            return [str(arm) for arm in json.loads(row.offered)]
        if self._arms or row.asked is None:
            return self._arms
        found = None if self.items is None else self.items.candidates(row)
        if found is not None:
            return list(map(str, found.ids))
        # Without names, the arms are the rows of their features.
        features = json.loads(row.asked)
        counts = [
            len(matrix(features.get(field), dim))
            for field, dim in zip(("relevance", "examination"), self._dims, strict=True)
        ]
        return [str(arm) for arm in range(max(counts))]

    def events(self, row: DecisionRow, feedback: FeedbackRow) -> Iterator[dict[str, Any]]:
        """Yield feedback as event records: one for each object that it is about."""
        items = listed(row)
        ours = self._attributes(row)
        if feedback.id is not None:
            ours["feedback_id"] = feedback.id
        action = feedback.kind
        places: list[int] = []
        if feedback.kind == CLICKS:
            done = [action_of(action) for action in json.loads(feedback.clicks or "[]")]
            places = [position for position, _ in done]
            # Feedback tells of one action.
            action = done[0][1] if done else NO_CLICK
            if action in (ubi_records.CLICK, NO_CLICK):
                ours["clicks"] = places
        elif feedback.kind == EXAMINED:
            action = ubi_records.IMPRESSION
            places = [at for at, item in enumerate(items or ()) if item is not None]
        elif feedback.kind == REWARD:
            ours["reward"] = feedback.reward
            places = [] if items is None else [0]
            action = ubi_records.CLICK if places and feedback.reward == 1.0 else REWARD
        teams = (_teams(row) or {}).get("teams") or []
        objects: list[int | None] = [*places] or [None]
        for place in objects:
            attributes = _object(items, place) | {ubi_records.OURS: ours | _team(teams, place)}
            yield {
                "action_name": action,
                "query_id": query_id(row),
                "user_query": row.key,
                "timestamp": ubi_records.time_text(feedback.time),
                "event_attributes": attributes,
            }


def query_id(row: DecisionRow) -> str:
    """Return the query's id of a decision: its own, unless UBI has no room for it."""
    return row.id if len(row.id) <= ubi_records.LONGEST_NAME else ubi_records.digest({"decision_id": row.id})


def _teams(row: DecisionRow) -> dict[str, Any] | None:
    """Return the rankers of a duel, the probability of its list, and whose each item is."""
    shown = None if row.shown is None else json.loads(row.shown)
    if not isinstance(shown, dict) or "pair" not in shown:
        return None
    left, right = pair = shown["pair"]
    found: dict[str, Any] = {"left": left, "right": right}
    interleaved = shown.get("interleaved")
    if interleaved is not None:
        teams = interleaved["memory"].get("teams")
        found["probability"] = interleaved["probability"]
        if teams is not None:
            found["teams"] = [None if team is None else pair[team] for team in teams]
    return found


def _team(teams: list[str | None], place: int | None) -> dict[str, str]:
    team = None if place is None or place >= len(teams) else teams[place]
    return {} if team is None else {"team": team}


def _object(items: list[str | None] | None, place: int | None) -> dict[str, Any]:
    if items is None or place is None:
        return {"position": {"ordinal": NOWHERE}}
    return {"object": {"object_id": items[place]}, "position": {"ordinal": place + 1}}


# ---- The log as files of User Behavior Insights (UBI 1.3) records


QUERIES, EVENTS = "ubi_queries", "ubi_events"


def export_ubi(store: Store, folder: Path) -> dict[str, int]:
    """Write the log to ``ubi_queries.ndjson`` and ``ubi_events.ndjson``, a record a line.

    What tacit knows besides (the decision's id, policy, its version, propensity, teams, the ids of
    feedback) stands in ``query_attributes.tacit`` and ``event_attributes.tacit``. Records that were
    kept beside the log follow as they came. :func:`tacit.logs.read_ubi` reads the folder.

    Returns
    -------
    dict of str to int
        How many records each file has.
    """
    folder.mkdir(parents=True, exist_ok=True)
    counts = {QUERIES: 0, EVENTS: 0}
    paths = {name: folder / f"{name}.ndjson" for name in counts}
    with paths[QUERIES].open("wb") as queries, paths[EVENTS].open("wb") as events:
        files = {QUERIES: queries, EVENTS: events}
        for name, line in _lines(store):
            files[name].write(line + b"\n")
            counts[name] += 1
    return counts


def _lines(store: Store) -> Iterator[tuple[str, bytes]]:
    encode = msgspec.json.Encoder().encode
    names = {
        stored.id: Names(name, stored, store.base(stored.id)) for name, stored in store.placements().items()
    }
    made: dict[int, DecisionRow] = {}
    for row in store.events(0):
        if isinstance(row, DecisionRow):
            made[row.seq] = row
            yield QUERIES, encode(names[row.placement].query(row))
        elif isinstance(row, FeedbackRow):
            decision = made[row.decision]
            for record in names[row.placement].events(decision, row):
                yield EVENTS, encode(record)
        elif row.placement is not None and (items := names[row.placement].items) is not None:
            items.marked(row)
    for kept in store.records():
        yield QUERIES if kept.kind == QUERY else EVENTS, kept.content.encode()


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

Read = ubi_records.UbiQuery | ubi_records.UbiEvent
_Step = FeedbackRequest | RecordRow | UbiOutcome


async def take(engine: Service, call: RouteCall) -> UbiAnswer:
    """Take feedback to decisions made here, keep all else; a wrong record stops no other."""
    name, request = call.placement, call.request
    records = [*request.queries, *request.events]
    count = len(request.queries)
    read = [
        _read(ubi_records.query_of if i < count else ubi_records.event_of, r) for i, r in enumerate(records)
    ]
    ids = dict.fromkeys(_decision(record) for record in read if not isinstance(record, UbiOutcome))
    rows = await engine.made(name, list(ids))
    placement = engine.placement(name)
    steps = [
        asked if isinstance(asked, UbiOutcome) else _step(placement, asked, record, rows)
        for asked, record in zip(read, records, strict=True)
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
        if is_deeper(record):
            raise InvalidValue("record", "…", f"nest at most {DEEPEST} lists and objects")
        asked = read(record)
        checked_id("query_id", _decision(asked))
        return asked
    except InvalidValue as error:
        return _refused(error)


def _decision(asked: Read) -> str:
    """Return the id of the decision that a record may be about."""
    named = asked.ours.get("decision_id")
    if isinstance(named, str):
        return named
    return asked.id if isinstance(asked, ubi_records.UbiQuery) else asked.query


def _step(
    placement: Placement, asked: Read, record: Mapping[str, Any], rows: Mapping[str, DecisionRow]
) -> _Step:
    """Return what is to be done with a record, or what became of it."""
    row = rows.get(_decision(asked))
    if row is None and "decision_id" in asked.ours:
        return _refused(
            UnknownDecision(
                f"decision_id: the placement made no decision {asked.ours['decision_id']!r}; "
                "send the id that its answer gave, or none"
            )
        )
    if isinstance(asked, ubi_records.UbiQuery):
        if row is None:
            return _row(placement.id, QUERY, asked.id, record)
        if row.deferred:
            return FeedbackRequest(row.id, ACTIVATE, None, ACTIVATED_ID)
        return UbiOutcome(KNOWN, row.id)
    try:
        feedback = None if row is None else feedback_of(row, asked, placement.actions)
    except InvalidValue as error:
        return _refused(error)
    if feedback is not None:
        return feedback
    return _row(placement.id, EVENT, ubi_records.digest(asked._replace(ours={})._asdict()), record)


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
