"""Convert events to feedback by an event map."""

# 1. ``DecisionIndex``: finds the decision of an event without a decision's id.
# 2. ``Mapper``: converts an event to feedback, or gives the reason why it cannot.
# 3. ``ImpressionMapper``: reads impression events, to which other events are joined.
# 4. ``compile_conditions``, ``compile_path``: select events, and get fields of events.
# 5. Parsing of fields: names, numbers, rewards, positions, times.

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import Counter, OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import blake2b
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from tacit.core.checks import DEEPEST, ONLY_KEY, is_deeper
from tacit.feed.event_map import ANY, UNIFORM, EventMap, EventReward, Fixed, Scalar, ShownMap
from tacit.logs.time_units import EARLIEST, FARTHEST, LATEST, UNITS
from tacit.wire.decisions import Context, Event, Feedback, LocalDecision, Recorded, TakenOver
from tacit.wire.lists import Clicks
from tacit.wire.site import FeedReport

# ---- Events without a decision's id: joined to a decision only if it is unambiguous

MAX_DECISIONS = 500_000
"""Most decisions in memory; beyond, those added first are dropped."""
MAX_DECISIONS_EACH = 10_000
"""Most decisions with the same identity, such as a user; beyond, the earliest are dropped."""

Identity = tuple[str, ...]
"""Values shared by an event and its decision: the placement, and the mapped fields of key, user and arm."""


class DecisionIndex:
    """Recent decisions by identity and time, to which events are joined.

    Parameters
    ----------
    window : float
        Seconds after a decision within which events may be joined to it.
    max_decisions : int
        Most decisions in memory; beyond, those added first are dropped.

    Examples
    --------
    >>> shown = DecisionIndex(60.0)
    >>> shown.add(("home", "user 1"), 100.0, "a")
    >>> shown.add(("home", "user 1"), 130.0, "b")
    >>> shown.find(("home", "user 1"), 120.0), shown.find(("home", "user 1"), 140.0)
    (('a', 1), ('b', 1))
    >>> shown.find(("home", "user 1"), 200.0), shown.find(("home", "user 2"), 120.0)
    (('', 0), ('', 0))
    """

    def __init__(self, window: float, max_decisions: int = MAX_DECISIONS) -> None:
        self._window, self._max_decisions = window, max_decisions
        self._decisions: dict[Identity, list[tuple[float, str]]] = {}
        self._order: OrderedDict[tuple[Identity, tuple[float, str]], None] = OrderedDict()

    def add(self, identity: Identity, time: float, decision: str) -> None:
        """Add a decision's id with its time in seconds; one that is stored already changes nothing.

        Beyond 10,000 decisions of this identity its earliest is dropped, beyond ``max_decisions`` in all the
        one that was added first.
        """
        entry = time, decision
        if (identity, entry) in self._order:
            return
        self._order[identity, entry] = None
        entries = self._decisions.setdefault(identity, [])
        insort(entries, entry)
        if len(entries) > MAX_DECISIONS_EACH:
            self._forget(identity, entries[0])
        elif len(self._order) > self._max_decisions:
            self._forget(*next(iter(self._order)))

    def _forget(self, identity: Identity, entry: tuple[float, str]) -> None:
        """Remove a decision from the index."""
        del self._order[identity, entry]
        entries = self._decisions[identity]
        del entries[bisect_left(entries, entry)]
        if not entries:
            del self._decisions[identity]

    def find(self, identity: Identity, time: float) -> tuple[str, int]:
        """Return the id of the identity's last decision up to ``time``, and how many have that same time.

        More than one means that the join is ambiguous. If none is within the window, return ``("", 0)``.
        """
        entries = self._decisions.get(identity, [])
        end = bisect_right(entries, time, key=itemgetter(0))
        if not end or time - entries[end - 1][0] > self._window:
            return "", 0
        return entries[end - 1][1], end - bisect_left(entries, (entries[end - 1][0], ""))


class PastList(NamedTuple):
    """A list that another system decided.

    Attributes
    ----------
    decision_id, key : str
    items : list of int or str
    positions : list of int
        The position of each item, from 0, ascending.
    teams : list of str or None
        The ranker of each item, if two were interleaved.
    user : str or None
        The user, if the event names one.
    """

    decision_id: str
    key: str
    items: list[int | str]
    positions: list[int]
    teams: list[str] | None
    user: str | None


Message = Feedback | Clicks | Event | LocalDecision | PastList
FieldGetter = Callable[[Any], Any]

MAX_ID_LENGTH, MAX_MISMATCHES = 256, 5
BOOLEAN_TEXTS = {"true": 1.0, "false": 0.0}


# ---- Conversion of an event to feedback


class BadEvent(Exception):
    """Raised for an event that cannot be converted or is refused, with a reason code and a message."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


REFUSALS = {
    "unknown-decision": "the placement made no such decision; see that the event has the id of its answer",
    "conflict": "its id stands for something else already; give each event an id of its own",
    "repeated-feedback": "the decision has had all the feedback that it can have",
    "invalid-value": "it does not fit what the decision showed",
}
"""Details of outcomes with which the service refuses a message."""


def parse_outcome(answer: Recorded | TakenOver) -> str | BadEvent:
    """Return the outcome in a service's answer to a message; for a refusal, return (not raise) a BadEvent."""
    if answer.outcome not in REFUSALS:
        return answer.outcome
    return BadEvent(answer.outcome, getattr(answer, "detail", "") or REFUSALS[answer.outcome])


class EventCounts:
    """Counts of events by outcome.

    Attributes
    ----------
    read, left_out : int
        Number of events read, and of events that the map leaves out.
    sent : Counter
        Sent events by outcome; ``remembered`` are impressions of the service's own decisions.
    rejected : Counter
        Rejected events by reason.
    last : float or None
        Latest time of a sent event, in seconds since 1970.
    """

    def __init__(self) -> None:
        self.read = self.left_out = 0
        self.sent: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.last: float | None = None

    def count(self, outcome: str, time: float | None) -> None:
        """Count a sent event by its outcome; update the latest time, in seconds since 1970."""
        self.sent[outcome] += 1
        if time is not None:
            self.last = time if self.last is None else max(self.last, time)

    def report(self, rate: float, ended: bool = False) -> FeedReport:
        """Return the counts as a progress report for the service, with a rate in events per second.

        ``ended`` says that the feed has ended.
        """
        return FeedReport(
            read=self.read, left_out=self.left_out, sent=dict(self.sent), rejected=dict(self.rejected),
            rate=rate, last=self.last, ended=ended,
        )  # fmt: skip


class MappedEvent(NamedTuple):
    """An event converted to a message.

    Attributes
    ----------
    placement : str
    message : Feedback, Clicks, Event, LocalDecision, PastList or None
        None for an impression of the service's own decision, which is only remembered.
    time : float or None
        Time of the event in seconds since 1970, if the map has its field.
    """

    placement: str
    message: Message | None
    time: float | None


class Mapper:
    """Convert events to feedback, examinations or decisions; store impressions to join events to them.

    Parameters
    ----------
    event_map : EventMap
    max_decisions : int
        Most decisions in memory, to which events without a decision's id are joined.

    Attributes
    ----------
    warnings : list of str
        Warnings about parts of the map that are valid but probably mistakes for these events.
    has_one_placement : bool
        True if no event names its placement.

    Examples
    --------
    >>> from tacit.feed.event_map import parse_map
    >>> mapper = Mapper(parse_map('placement = "p"\\ndecision_id = "decision"\\nreward = "clicked"'))
    >>> mapper.map_event({"p": "home", "decision": "018b", "clicked": True}, "line 7").message
    Feedback(decision_id='018b', reward=1.0, feedback_id='line 7', metrics=None)
    """

    def __init__(self, event_map: EventMap, max_decisions: int = MAX_DECISIONS) -> None:
        self._map = event_map
        self.warnings: list[str] = []
        self._where = compile_conditions(event_map.where)
        self._impressions = None if event_map.shown is None else ImpressionMapper(event_map.shown, event_map)
        self._examinations = None if event_map.seen is None else compile_conditions(event_map.seen.where)
        self._examination_id_field = (event_map.seen and event_map.seen.decision_id) or event_map.decision_id
        id_fields = event_map.decision_id, self._examination_id_field
        self._decisions = {field: compile_path(field) for field in id_fields if field is not None}
        self._decision_index = DecisionIndex(event_map.join_seconds, max_decisions)
        self._join_fields = [
            (field, compile_path(field)) for field in map(event_map.__getattribute__, event_map.join_fields)
        ]
        self._rewards = {
            kind: (event_reward, compile_path(event_reward.field))
            for kind, event_reward in event_map.rewards_by_kind.items()
        }
        self._kind, self._id = compile_path(event_map.event), compile_path(event_map.id)
        self._placement = compile_path(event_map.placement)
        self.has_one_placement = isinstance(event_map.placement, Fixed)
        self._time = compile_path(event_map.time)
        shown_map = event_map.shown
        # Many events belong to no list, such as the purchase of an item that a user searched for by name.
        self._leaves_unmatched = shown_map is not None and shown_map.elsewhere and shown_map.items is not None
        self._reward = compile_path(None if isinstance(event_map.reward, dict) else event_map.reward)
        self._clicked = compile_path(event_map.clicks or event_map.items)

    def read(self, event: dict[str, Any], event_id: str = "") -> MappedEvent | str:
        """Convert an event to a message; return a text with the reason if the map leaves the event out.

        An impression is also stored for joining later events. Any failure is raised as BadEvent.

        Parameters
        ----------
        event : dict
        event_id : str, optional
            The event's id if the map has no field for it; by default a hash of its content.

        Raises
        ------
        BadEvent
            If it cannot be feedback, for whatever reason. An event that belongs to no list of another system
        is left out.
        """
        try:
            if is_deeper(event):
                raise BadEvent("too-deep", f"nest at most {DEEPEST} lists and objects")
            reason = self.skip_reason(event)
            return self.map_event(event, event_id) if reason is None else reason
        except BadEvent as error:
            if error.reason == "unmatched" and self._leaves_unmatched:
                return str(error)
            raise
        except Exception as error:
            # One event must not stop the feed.
            raise BadEvent("unreadable", f"{type(error).__name__}: {error}") from error

    def skip_reason(self, event: dict[str, Any]) -> str | None:
        """Return a text why the map leaves an event out; None if the map uses it.

        Left out are events that do not fit ``where``, or whose kind has no reward, except impressions and
        examinations.
        """
        if self.is_impression(event) or self.is_examination(event):
            return None
        if (mismatch := find_mismatch(event, self._where)) is not None:
            return f"{mismatch}; [where] has {conditions_text(self._map.where)}"
        if self._rewards and (kind := self._kind(event)) is not None and not self._get_reward(kind):
            text = f"{self._map.event} is {shorten(kind)}; [reward] has {shorten(', '.join(self._rewards))}"
            impressions = self._impressions
            return text if impressions is None else f"{text}, [shown] is where {impressions.conditions_text}"
        return None

    def is_impression(self, event: dict[str, Any]) -> bool:
        """True if the map has impressions and the event fits their conditions.

        Mismatches are stored for a warning until the first event fits.
        """
        return self._impressions is not None and self._impressions.matches(event)

    def is_examination(self, event: dict[str, Any]) -> bool:
        """True if an event fits the map's conditions of examinations: the user saw an impression."""
        return self._examinations is not None and find_mismatch(event, self._examinations) is None

    def map_event(self, event: dict[str, Any], event_id: str) -> MappedEvent:
        """Convert an event that is not left out to a message with placement and time.

        An impression is stored for joining, if the map joins. Its message is None if the service made the
        decision.

        Parameters
        ----------
        event : dict
        event_id : str
            The event's id if the map has no field for it; if empty, a hash of its content.

        Raises
        ------
        BadEvent
            If a field is missing or invalid, or no single decision fits.
        """
        event_map = self._map
        name = event_map.placement if isinstance(event_map.placement, str) else "placement"
        placement_value = self._placement(event)
        if placement_value is None:
            # The usual mistake is to give the placement's name instead of a field.
            remedy = f'if that is its name, give placement = {{ value = "{name}" }}, or else name a field'
            raise BadEvent("missing-field", f"{name}: it is not there; {remedy}")
        placement = parse_text(name, placement_value, "bad-placement")
        time = None
        if event_map.time is not None:
            time = parse_seconds(event_map.time, self._time(event), event_map.time_unit)
            if not EARLIEST <= time < LATEST and (unit := guess_unit(self._time(event))):
                doubt = f"time_unit: {event_map.time_unit!r} puts no time into this century; give {unit!r}"
                self.warnings += [doubt] * (doubt not in self.warnings)
        if self._impressions is None or not self.is_impression(event):
            is_examination = self.is_examination(event)
            field = self._examination_id_field if is_examination else event_map.decision_id
            decision = self._find_decision_id(event, placement, time, field)
            id = self._get_event_id(event, event_id)
            message = Event(decision, id) if is_examination else self._make_message(event, decision, id)
            return MappedEvent(placement, message, time)
        decision = self._impressions.decision_id(event) or self._get_event_id(event, event_id)
        for identity in self._impressions.read_identities(event) if self._join_fields else ():
            assert time is not None
            self._decision_index.add((placement, *identity), time, decision)
        return MappedEvent(placement, self._impressions.local_decision(event, decision), time)

    def _get_event_id(self, event: dict[str, Any], event_id: str) -> str:
        """Return the event's id from the map's field, else ``event_id``, else a hash of the content."""
        field = self._map.id
        if field is not None:
            return parse_text(field, self._id(event), "bad-id")
        # The same event has the same id when it is sent again in another request.
        return event_id or blake2b(msgspec.json.encode(event, order="sorted"), digest_size=16).hexdigest()

    def _find_decision_id(
        self, event: dict[str, Any], placement: str, time: float | None, field: str | None
    ) -> str:
        """Return the id of an event's decision, from ``field`` or by joining it to a stored impression.

        Raises BadEvent if no impression, or more than one at the same time, fits.
        """
        value = None if field is None else self._decisions[field](event)
        if not self._join_fields or value not in (None, ""):
            return parse_text(field or "decision_id", value, "bad-decision-id")
        assert time is not None
        for name, get in self._join_fields if self._leaves_unmatched else ():
            if get(event) is None:
                raise BadEvent("unmatched", f"{name}: it is not there, nor is {field}")
        identity = placement, *(parse_text(name, get(event), "bad-join") for name, get in self._join_fields)
        decision, count = self._decision_index.find(identity, time)
        if count == 1:
            return decision
        join_text = f"{', '.join(self._map.join_fields)}: {', '.join(map(repr, identity[1:]))}"
        if count:
            detail = f"{join_text}: {count} decisions at the same time; join by more fields"
            raise BadEvent("ambiguous", detail)
        if warning := self._impressions and self._impressions.warning:
            raise BadEvent("unmatched", f"{join_text}: {warning}")
        window_text = f"the {self._map.join_seconds:g} s before"
        detail = f"{join_text}: nothing was shown in {window_text}; see that events come in order of time"
        raise BadEvent("unmatched", detail)

    def _make_message(self, event: dict[str, Any], decision: str, id: str) -> Message:
        """Return the feedback or clicks of an event on a decision, by the map's reward, clicks or items."""
        event_map, reward, metrics = self._map, None, None
        if self._rewards:
            feedback = self._make_reward_feedback(event, decision, id)
            reward, metrics = feedback.reward, feedback.metrics
        elif event_map.reward is not None:
            reward = parse_reward(str(event_map.reward), self._reward(event))
        is_list = event_map.clicks is not None or event_map.items is not None
        if not is_list or (self._rewards and reward is None):
            return Feedback(decision, reward, id, metrics)
        clicks, items = None, None
        if event_map.clicks is not None:
            clicks = parse_positions(event_map.clicks, self._clicked(event), event_map.positions_from)
        else:
            items = parse_items(str(event_map.items), self._clicked(event))
        rewards = None if reward is None else [reward] * len(clicks or items or ())
        return Clicks(decision, clicks, items, id, metrics, rewards=rewards)

    def _make_reward_feedback(self, event: dict[str, Any], decision: str, id: str) -> Feedback:
        """Return the feedback for an event's kind, with a reward, a metric or both.

        If the map counts 1 for a metric whose amount the event has, a warning is added once.
        """
        assert self._map.event is not None
        reward_field = self._get_reward(require_present(self._map.event, self._kind(event)))
        assert reward_field is not None
        event_reward, get = reward_field
        reward, metric, field = event_reward.reward, event_reward.metric, event_reward.field
        if metric is None:
            return Feedback(decision, reward if field is None else parse_reward(field, get(event)), id)
        amount = 1.0
        if field is not None:
            amount = parse_number(field, get(event), "bad-amount")
        elif not self.warnings and (amount_field := _find_amount(event, metric)):
            self.warnings.append(
                f"reward.{self._kind(event)}: each counts 1 of {metric}, but events bring it "
                f'in {amount_field}; give {{ metric = "{metric}", field = "{amount_field}" }}'
            )
        return Feedback(decision, reward, id, {metric: amount})

    def _get_reward(self, kind: Any) -> tuple[EventReward, FieldGetter] | None:
        """Return the reward of a kind of event with its field's getter; None for an unknown kind."""
        return self._rewards.get(kind) if isinstance(kind, str) else None


def _find_amount(event: dict[str, Any], metric: str) -> str | None:
    """Return the path of a field named like a metric with a number other than 1; None without one."""
    nested = ((f"{name}.", value) for name, value in event.items() if isinstance(value, dict))
    for path, fields in (("", event), *nested):
        if type(amount := fields.get(metric)) in (int, float) and amount != 1:
            return f"{path}{metric}"
    return None


# ---- Impression events, to which other events are joined


class ImpressionMapper:
    """Recognize impression events, and read their decisions.

    Parameters
    ----------
    table : ShownMap
    event_map : EventMap
        The whole map, which contains ``table``.
    """

    def __init__(self, table: ShownMap, event_map: EventMap) -> None:
        self._where = compile_conditions(table.where)
        self.conditions_text = conditions_text(table.where)
        self._has_matched, self._mismatches = False, dict[str, None]()
        self._table = table
        self._id = table.decision_id or event_map.decision_id
        # An impression of a list is joined by each of its items.
        self._joins_items = table.items is not None and "arm" in event_map.join_fields
        names = [name for name in event_map.join_fields if name != "arm" or not self._joins_items]
        self._join_fields = [getattr(table, name) for name in names]
        context = table.context if isinstance(table.context, dict) else {}
        self._is_uniform = table.propensity == UNIFORM
        self._propensity = compile_path(None if self._is_uniform else table.propensity)
        self._arms, self._key = compile_path(table.arms), compile_path(table.key)
        fields = [self._id, table.arm, table.items, table.positions, table.teams, table.user]
        fields += [*self._join_fields, *context.values()]
        self._first_position = event_map.positions_from
        if isinstance(table.context, str):
            fields.append(table.context)
        self._get = {name: compile_path(name) for name in fields if name is not None}

    def matches(self, event: dict[str, Any]) -> bool:
        """True if an event fits the conditions of an impression.

        Until the first that fits, up to five mismatches are stored for ``warning``.
        """
        mismatch = find_mismatch(event, self._where)
        self._has_matched |= mismatch is None
        if mismatch is not None and not self._has_matched and len(self._mismatches) < MAX_MISMATCHES:
            self._mismatches[mismatch] = None
        return mismatch is None

    @property
    def warning(self) -> str:
        """Message that no event so far was an impression, with values that did not fit; empty if one was."""
        text = f"no event so far is what [shown] wants, {self.conditions_text}: {', '.join(self._mismatches)}"
        return "" if self._has_matched else f"{text}; mend its where"

    def read_identities(self, event: dict[str, Any]) -> list[tuple[str, ...]]:
        """Return an impression's values of key, user and arm by which other events are joined to it, as text.

        There are several for a list that is joined by its items, and none for a decision of another system
        that lacks a value. Raises BadEvent if one is invalid, or the service's own decision lacks one.
        """
        values = [self._get[field](event) for field in self._join_fields]
        if self._table.elsewhere and self._id is not None and None in values:
            return []
        shared = tuple(
            parse_text(field, value, "bad-join")
            for field, value in zip(self._join_fields, values, strict=True)
        )
        if not self._joins_items:
            return [shared]
        field = str(self._table.items)
        return [(*shared, str(item)) for item in parse_items(field, self._get[field](event))]

    def decision_id(self, event: dict[str, Any]) -> str | None:
        """Return the decision's id from its field; None without a field, when the event's own id serves."""
        field = self._id
        return None if field is None else parse_text(field, self._get[field](event), "bad-decision-id")

    def local_decision(self, event: dict[str, Any], id: str) -> LocalDecision | PastList | None:
        """Return an impression's decision, with propensity and context, if another system made it; else None.

        Raises
        ------
        BadEvent
            If a field is invalid, or the shown arm is not among the arms on offer.
        """
        table, get = self._table, self._get
        if not table.elsewhere:
            return None
        key = ONLY_KEY if table.key is None else parse_text(str(table.key), self._key(event), "bad-key")
        if table.items is not None:
            return self._read_list(event, id, key)
        assert table.arm is not None
        arm = parse_arm(table.arm, get[table.arm](event))
        propensity, arms, context = None, None, None
        if (value := self._propensity(event)) is not None:
            propensity = parse_number(str(table.propensity), value, "bad-propensity")
            if not 0.0 < propensity <= 1.0:
                raise BadEvent("bad-propensity", f"{table.propensity}: {shorten(value)} is not in (0, 1]")
        if (value := self._arms(event)) is not None or self._is_uniform:
            arms = parse_items(str(table.arms), value)
            if arm not in arms:
                remedy = "; a cell of a CSV has a list as JSON" if isinstance(value, str) else ""
                detail = f"{table.arms}: {arm!r} was shown, and is not in {shorten(value)}{remedy}"
                raise BadEvent("invalid-value", detail)
            propensity = 1.0 / len(arms) if self._is_uniform else propensity
        if isinstance(table.context, dict):
            context = {name: get[field](event) for name, field in table.context.items()}
        elif table.context is not None:
            context = get[table.context](event)
        try:
            context = msgspec.convert(context, Context | None)
        except (msgspec.ValidationError, OverflowError) as error:
            detail = f"context: {error}; give numbers, or names with values"
            raise BadEvent("invalid-value", detail) from error
        return LocalDecision(id, key, arm, propensity, arms, context)

    def _read_list(self, event: dict[str, Any], id: str, key: str) -> PastList:
        """Return the list of an impression, with its items in the order of their positions.

        Raises BadEvent if an item or a position is there twice, or a column has not one for each item.
        """
        table, get = self._table, self._get
        items = parse_items(str(table.items), get[str(table.items)](event))
        columns: list[Any] = [items, range(len(items)), None]
        # Google Analytics writes "(not set)" for a missing value.
        if (field := table.positions) is not None and set(get[field](event) or ()) - {None, "(not set)"}:
            columns[1] = parse_positions(field, get[field](event), self._first_position)
        if (field := table.teams) is not None:
            teams = parse_items(field, get[field](event))
            columns[2] = [parse_text(field, team, "bad-team") for team in teams]
        for name, values in zip((table.items, table.positions, table.teams), columns, strict=True):
            # A team may have several items.
            distinct = len(items) if name == table.teams else len(set(values))
            if values is not None and (len(values) != len(items) or distinct != len(items)):
                detail = f"{name}: {shorten(values)}; give one for each of {len(items)} items, all different"
                raise BadEvent("invalid-value", detail)
        order = sorted(range(len(items)), key=columns[1].__getitem__)
        items, positions, rankers = (values and [values[i] for i in order] for values in columns)
        user = None if table.user is None else get[table.user](event)
        return PastList(id, key, items, positions, rankers, None if user is None else str(user))


# ---- Selecting events, and getting fields of events

Conditions = list[tuple[str, FieldGetter, list[Scalar]]]


def compile_conditions(where: dict[str, Scalar | list[Scalar]]) -> Conditions:
    """Return the conditions of a table ``where`` as tuples of field, getter and list of allowed values."""
    return [
        (field, compile_path(field), allowed if isinstance(allowed, list) else [allowed])
        for field, allowed in where.items()
    ]


def conditions_text(where: dict[str, Scalar | list[Scalar]]) -> str:
    """Return the conditions of a table ``where`` as text for messages, such as "type = 'click'"."""
    return ", ".join(f"{field} = {shorten(value)}" for field, value in where.items())


def find_mismatch(event: dict[str, Any], where: Conditions) -> str | None:
    """Return the first field whose value is not allowed, as "FIELD is VALUE"; None if all are allowed."""
    for field, get, allowed in where:
        if (value := get(event)) not in allowed and (value is None or ANY not in allowed):
            return f"{field} is {shorten(value)}"
    return None


def compile_path(name: str | Any | None) -> FieldGetter:
    """Return a function that returns the field of an event at a path, or None if it is missing.

    Without a path, the function returns a constant: the value of a Fixed, or ``name`` itself. A field whose
    name is the whole path takes precedence, because columns of CSV may have dots.

    Examples
    --------
    >>> get = compile_path("params.id.value")
    >>> get({"params": [{"key": "page", "value": 1}, {"key": "id", "value": "a"}]})
    'a'
    >>> get({"params": '{"id": {"value": 2}}'}), get({"params.id.value": 3}), get({"params": 4})
    (2, 3, None)
    >>> compile_path("items.*.id")({"items": [{"id": "a"}, {"id": "b"}]})
    ['a', 'b']
    """
    if not isinstance(name, str):
        value = name.value if isinstance(name, Fixed) else name
        return lambda event: value
    steps = name.split(".")
    if len(steps) == 1:
        return lambda event: event.get(name)

    def get(event: dict[str, Any]) -> Any:
        """Return the event's field of this name, or else the value at the path; None if it is missing."""
        return event[name] if name in event else _follow_path(event, steps)

    return get


def _follow_path(value: Any, steps: list[str]) -> Any:
    """Return the value at a path of steps; behind a step ``*``, a list with the value of each element."""
    for number, step in enumerate(steps):
        if step == ANY:
            value = _decode_json(value) if isinstance(value, str) else value
            return (
                [_follow_path(item, steps[number + 1 :]) for item in value]
                if isinstance(value, list)
                else None
            )
        value = _get_step(value, step)
    return value


def _get_step(value: Any, step: str) -> Any:
    """Return an item of a dict, or of a list by number, ``key`` or ``name``; None if missing.

    JSON text is parsed.
    """
    if isinstance(value, str) and value[:1] in ("{", "["):
        value = _decode_json(value)
    if isinstance(value, dict):
        return value.get(step)
    if not isinstance(value, list):
        return None
    if step.isdecimal():
        return value[int(step)] if int(step) < len(value) else None
    dicts = [item for item in value if isinstance(item, dict)]
    return next((item for item in dicts if step in (item.get("key"), item.get("name"))), None)


def _decode_json(text: str) -> Any:
    """Return the value of a JSON text; None if it is no JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None


# ---- Parsing of fields


def require_present(field: str, value: Any) -> Any:
    """Return the value unchanged; raise BadEvent if it is None or an empty text.

    Raises
    ------
    BadEvent
    """
    if value is None or value == "":
        detail = f"{field}: it is not there; name another field, or leave such events out by [where]"
        raise BadEvent("missing-field", detail)
    return value


def parse_text(field: str, value: Any, reason: str) -> str:
    """Return a name or id as text of at most 256 printable characters; whole numbers are converted.

    Raises
    ------
    BadEvent
        With the code ``reason``, if it is invalid.
    """
    value = require_present(field, value)
    is_whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**MAX_ID_LENGTH
    text = str(value) if is_whole else value
    if not isinstance(text, str) or len(text) > MAX_ID_LENGTH or not text.isprintable():
        raise BadEvent(reason, f"{field}: {shorten(value)}; give 1 to {MAX_ID_LENGTH} printable characters")
    return text


def parse_number(field: str, value: Any, reason: str) -> float:
    """Return a finite number as float; text and booleans are converted.

    Raises
    ------
    BadEvent
        With the code ``reason``, if it is no finite number.
    """
    value = require_present(field, value)
    text = value.strip().lower() if isinstance(value, str) else value
    try:
        number = float(BOOLEAN_TEXTS.get(text, text))
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise BadEvent(reason, f"{field}: {shorten(value)} is no number; name a field that has one")
    return number


def parse_reward(field: str, value: Any) -> float:
    """Return a field's reward as float; raise BadEvent if it is not a number in [0, 1].

    Raises
    ------
    BadEvent
    """
    number = parse_number(field, value, "bad-reward")
    if not 0.0 <= number <= 1.0:
        remedy = "divide it in the source, or send it as a metric"
        raise BadEvent("bad-reward", f"{field}: {shorten(value)} is not in [0, 1]; {remedy}")
    return number


def parse_positions(field: str, value: Any, first: int = 0) -> list[int]:
    """Return positions, counted from 0, as a list; the value is one number or a list of them.

    Raises
    ------
    BadEvent
        If one is not a whole number from ``first``, the position at the top, to 100,000.
    """
    value = require_present(field, value)
    values = value if isinstance(value, list) else [value]
    numbers = [parse_number(field, item, "bad-clicks") for item in values]
    if any(number != int(number) or not first <= number <= 100_000 for number in numbers):
        remedy = "; positions_from says where they begin" if not first else ""
        raise BadEvent("bad-clicks", f"{field}: {shorten(value)}; give positions from {first}{remedy}")
    return [int(number) - first for number in numbers]


def parse_items(field: str, value: Any) -> list[int | str]:
    """Return the items or arms in a field as a list of integers and texts, with one element for a single one.

    The value is one item, a list, or a list as JSON text.

    Raises
    ------
    BadEvent
        If there is none, or one is neither an integer nor a printable text.
    """
    value = require_present(field, value)
    # A cell of CSV has a list as JSON text.
    items = _decode_json(value) if isinstance(value, str) and value.startswith("[") else value
    items = items if isinstance(items, list) else [value]
    return [
        item if type(item) is int and abs(item) < 2**62 else parse_text(field, item, "bad-items")
        for item in items
    ]


def parse_arm(field: str, value: Any) -> int | str:
    """Return the single arm in a field; raise BadEvent if the field has none or several.

    Raises
    ------
    BadEvent
    """
    arms = parse_items(field, value)
    if len(arms) != 1:
        detail = f"{field}: {shorten(value)} is not one arm; name the field that has one"
        raise BadEvent("invalid-value", detail)
    return arms[0]


def parse_seconds(field: str, value: Any, unit: str | None) -> float:
    """Return a time of a field in seconds since 1970; text without a zone is UTC.

    Without a ``unit``, a number's unit is the one that gives a time from 2000 to 2099.

    Raises
    ------
    BadEvent

    Examples
    --------
    >>> parse_seconds("t", "2017-07-04T12:00:00Z", None), parse_seconds("t", 1499169600000, None)
    (1499169600.0, 1499169600.0)
    """
    value = require_present(field, value)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value) if not value.isdecimal() else int(value)
        except ValueError:
            raise _bad_time(field, value) from None
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _bad_time(field, value)
    if unit is not None and abs(value) < FARTHEST * UNITS[unit]:
        return value / UNITS[unit]
    if unit is None and (guessed := guess_unit(value)):
        return value / UNITS[guessed]
    raise _bad_time(field, value)


def guess_unit(value: Any) -> str | None:
    """Return the unit in which a number, or its digits, is a time from 2000 to 2099; None without one."""
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if not isinstance(number, int | float):
        return None
    return next((unit for unit, scale in UNITS.items() if EARLIEST * scale <= number < LATEST * scale), None)


def _bad_time(field: str, value: Any) -> BadEvent:
    """Return (not raise) a BadEvent for a value that is no time."""
    remedy = "send ISO 8601, or a number, whose time_unit the map says"
    return BadEvent("bad-time", f"{field}: {shorten(value)} is no time; {remedy}")


def shorten(value: Any) -> str:
    """Return the repr of a value, cut to at most 80 characters, for messages."""
    try:
        text = repr(value)
    except ValueError:
        # Python refuses to print integers of several thousand digits.
        text = f"{type(value).__name__} of too many digits"
    return text if len(text) <= 80 else text[:77] + "..."
