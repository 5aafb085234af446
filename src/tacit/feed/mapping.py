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
from tacit.feed.event_map import UNIFORM, EventMap, Fixed, Scalar, ShownMap, Worth
from tacit.logs.time_units import EARLIEST, FARTHEST, LATEST, UNITS
from tacit.wire.decisions import Context, Event, Feedback, LocalDecision, Recorded, TakenOver
from tacit.wire.lists import Clicks
from tacit.wire.site import FeedReport

# ---- Events without a decision's id: joined to a decision only if it is unambiguous

MOST = 500_000
"""Most decisions in memory; beyond, those added first are dropped."""
MOST_EACH = 10_000
"""Most decisions with the same identity, such as a user; beyond, the earliest are dropped."""

Identity = tuple[str, ...]
"""Values shared by an event and its decision: the placement, and the mapped fields of key, user and arm."""


class Joining:
    """Recent decisions by identity and time, to which events are joined.

    Parameters
    ----------
    window : float
        Seconds after a decision within which events may be joined to it.
    most : int
        Most decisions in memory.

    Examples
    --------
    >>> shown = Joining(60.0)
    >>> shown.note(("home", "user 1"), 100.0, "a")
    >>> shown.note(("home", "user 1"), 130.0, "b")
    >>> shown.find(("home", "user 1"), 120.0), shown.find(("home", "user 1"), 140.0)
    (('a', 1), ('b', 1))
    >>> shown.find(("home", "user 1"), 200.0), shown.find(("home", "user 2"), 120.0)
    (('', 0), ('', 0))
    """

    def __init__(self, window: float, most: int = MOST) -> None:
        self._window = window
        self._most = most
        self._decisions: dict[Identity, list[tuple[float, str]]] = {}
        self._order: OrderedDict[tuple[Identity, tuple[float, str]], None] = OrderedDict()

    def note(self, who: Identity, time: float, decision: str) -> None:
        """Add a decision."""
        entry = time, decision
        if (who, entry) in self._order:
            return
        self._order[who, entry] = None
        entries = self._decisions.setdefault(who, [])
        insort(entries, entry)
        if len(entries) > MOST_EACH:
            self._forget(who, entries[0])
        elif len(self._order) > self._most:
            self._forget(*next(iter(self._order)))

    def _forget(self, who: Identity, entry: tuple[float, str]) -> None:
        del self._order[who, entry]
        entries = self._decisions[who]
        del entries[bisect_left(entries, entry)]
        if not entries:
            del self._decisions[who]

    def find(self, who: Identity, time: float) -> tuple[str, int]:
        """Return the last decision in the window before a time, and the number of decisions at that time."""
        entries = self._decisions.get(who, [])
        end = bisect_right(entries, time, key=itemgetter(0))
        if not end or time - entries[end - 1][0] > self._window:
            return "", 0
        return entries[end - 1][1], end - bisect_left(entries, (entries[end - 1][0], ""))


Message = Feedback | Clicks | Event | LocalDecision
Get = Callable[[Any], Any]

LONGEST_ID, MOST_OTHERS = 256, 5
TRUTHS = {"true": 1.0, "false": 0.0}


# ---- Conversion of an event to feedback


class BadEvent(Exception):
    """Raised for an event that cannot be feedback, with a reason code and a detailed message."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


REFUSED = {
    "unknown-decision": "the placement made no such decision; see that the event has the id of its answer",
    "conflict": "its id stands for something else already; give each event an id of its own",
    "repeated-feedback": "the decision has had all the feedback that it can have",
    "invalid-value": "it does not fit what the decision showed",
}
"""Details of outcomes with which the service refuses a message."""


def outcome_of(answer: Recorded | TakenOver) -> str | BadEvent:
    """Return a message's outcome from the service's answer, or a BadEvent if it was refused."""
    if answer.outcome not in REFUSED:
        return answer.outcome
    return BadEvent(answer.outcome, getattr(answer, "detail", "") or REFUSED[answer.outcome])


class EventCounts:
    """Counts of events by outcome.

    Attributes
    ----------
    read, left_out : int
        Number of events read, and of those that the map leaves out.
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
        """Count a sent event."""
        self.sent[outcome] += 1
        if time is not None:
            self.last = time if self.last is None else max(self.last, time)

    def report(self, rate: float, ended: bool = False) -> FeedReport:
        """Return a progress report for the service."""
        return FeedReport(
            read=self.read, left_out=self.left_out, sent=dict(self.sent), rejected=dict(self.rejected),
            rate=rate, last=self.last, ended=ended,
        )  # fmt: skip


class Mapped(NamedTuple):
    """An event converted to a message.

    Attributes
    ----------
    placement : str
    message : Feedback, Clicks, Event, LocalDecision or None
        None for an impression of the service's own decision, which is only remembered.
    time : float or None
        Time of the event in seconds since 1970, if the map has its field.
    """

    placement: str
    message: Message | None
    time: float | None


class Mapper:
    """Convert events to feedback.

    Parameters
    ----------
    event_map : EventMap
    most : int
        Most decisions in memory, to which events without a decision's id are joined.

    Attributes
    ----------
    doubts : list of str
        Warnings about parts of the map that are valid but probably mistakes for these events.
    has_one_placement : bool
        True if no event names its placement.

    Examples
    --------
    >>> from tacit.feed.event_map import map_of
    >>> mapper = Mapper(map_of('placement = "p"\\ndecision_id = "decision"\\nreward = "clicked"'))
    >>> mapper.mapped({"p": "home", "decision": "018b", "clicked": True}, "line 7").message
    Feedback(decision_id='018b', reward=1.0, feedback_id='line 7', metrics=None)
    """

    def __init__(self, event_map: EventMap, most: int = MOST) -> None:
        self._map = event_map
        self.doubts: list[str] = []
        self._where = conditions(event_map.where)
        self._shown = None if event_map.shown is None else ShownMapper(event_map.shown, event_map)
        self._seen = None if event_map.seen is None else conditions(event_map.seen.where)
        self._seen_id = (event_map.seen and event_map.seen.decision_id) or event_map.decision_id
        self._decisions = {id: path(id) for id in (event_map.decision_id, self._seen_id) if id is not None}
        self._joining = Joining(event_map.join_seconds, most)
        self._joined_by = [
            (field, path(field)) for field in map(event_map.__getattribute__, event_map.joined_by)
        ]
        self._worths = {kind: (worth, path(worth.field)) for kind, worth in event_map.worths.items()}
        self._kind, self._id = path(event_map.event), path(event_map.id)
        self._placement = path(event_map.placement)
        self.has_one_placement = isinstance(event_map.placement, Fixed)
        self._time = path(event_map.time)
        reward = None if isinstance(event_map.reward, dict) else event_map.reward
        self._value = path(event_map.clicks or event_map.items if reward is None else reward)

    def read(self, event: dict[str, Any], named: str = "") -> Mapped | str:
        """Convert an event to feedback; return a text with the reason if the map leaves it out.

        Parameters
        ----------
        event : dict
        named : str, optional
            The event's id if the map has no field for it; by default a hash of its content.

        Raises
        ------
        BadEvent
            If it cannot be feedback, for whatever reason.
        """
        try:
            if is_deeper(event):
                raise BadEvent("too-deep", f"nest at most {DEEPEST} lists and objects")
            why = self.left_out(event)
            return self.mapped(event, named) if why is None else why
        except BadEvent:
            raise
        except Exception as error:
            # One event must not stop the feed.
            raise BadEvent("unreadable", f"{type(error).__name__}: {error}") from error

    def left_out(self, event: dict[str, Any]) -> str | None:
        """Return the reason why the map leaves an event out; None if it does not."""
        if self.is_shown(event) or self.is_seen(event):
            return None
        if (other := unlike(event, self._where)) is not None:
            return f"{other}; [where] has {wanted(self._map.where)}"
        if self._worths and (kind := self._kind(event)) is not None and not self._worth_of(kind):
            shows = "" if self._shown is None else f", [shown] is where {self._shown.wanted}"
            return f"{self._map.event} is {shown(kind)}; [reward] has {shown(', '.join(self._worths))}{shows}"
        return None

    def is_shown(self, event: dict[str, Any]) -> bool:
        """True if an event is an impression."""
        return self._shown is not None and self._shown.matches(event)

    def is_seen(self, event: dict[str, Any]) -> bool:
        """True if an event records that the user saw an impression."""
        return self._seen is not None and unlike(event, self._seen) is None

    def mapped(self, event: dict[str, Any], named: str) -> Mapped:
        """Convert an event that is not left out to feedback.

        Parameters
        ----------
        event : dict
        named : str
            The event's id if the map has no field for it; if empty, a hash of its content.

        Raises
        ------
        BadEvent
        """
        fields = self._map
        name = fields.placement if isinstance(fields.placement, str) else "placement"
        given = self._placement(event)
        if given is None:
            # The usual mistake is to give the placement's name instead of a field.
            remedy = f'if that is its name, give placement = {{ value = "{name}" }}, or else name a field'
            raise BadEvent("missing-field", f"{name}: it is not there; {remedy}")
        placement = text_of(name, given, "bad-placement")
        time = None if fields.time is None else seconds_of(fields.time, self._time(event), fields.time_unit)
        if self._shown is None or not self.is_shown(event):
            seen = self.is_seen(event)
            decision = self._decided(event, placement, time, self._seen_id if seen else fields.decision_id)
            id = self._id_of(event, named)
            return Mapped(
                placement, Event(decision, id) if seen else self._message(event, decision, id), time
            )
        decision = self._shown.id_of(event) or self._id_of(event, named)
        if self._joined_by:
            assert time is not None
            self._joining.note((placement, *self._shown.identity(event)), time, decision)
        return Mapped(placement, self._shown.decided(event, decision), time)

    def _id_of(self, event: dict[str, Any], named: str) -> str:
        field = self._map.id
        if field is not None:
            return text_of(field, self._id(event), "bad-id")
        # The same event has the same id when it is sent again in another request.
        return named or blake2b(msgspec.json.encode(event, order="sorted"), digest_size=16).hexdigest()

    def _decided(self, event: dict[str, Any], placement: str, time: float | None, field: str | None) -> str:
        """Return the id of an event's decision, from its field or by joining."""
        value = None if field is None else self._decisions[field](event)
        if not self._joined_by or value not in (None, ""):
            return text_of(field or "decision_id", value, "bad-decision-id")
        assert time is not None
        who = placement, *(text_of(field, get(event), "bad-join") for field, get in self._joined_by)
        decision, count = self._joining.find(who, time)
        if count == 1:
            return decision
        by = f"{', '.join(self._map.joined_by)}: {', '.join(map(repr, who[1:]))}"
        if count:
            raise BadEvent("ambiguous", f"{by}: {count} decisions at the same time; join by more fields")
        if doubt := self._shown and self._shown.doubt:
            raise BadEvent("unmatched", f"{by}: {doubt}")
        within = f"the {self._map.join_seconds:g} s before"
        raise BadEvent(
            "unmatched", f"{by}: nothing was shown in {within}; see that events come in order of time"
        )

    def _message(self, event: dict[str, Any], decision: str, id: str) -> Message:
        fields = self._map
        if self._worths:
            return self._of_worth(event, decision, id)
        if fields.reward is not None:
            return Feedback(decision, reward_of(str(fields.reward), self._value(event)), id)
        if fields.clicks is not None:
            return Clicks(decision, clicks=positions_of(fields.clicks, self._value(event)), feedback_id=id)
        assert fields.items is not None
        return Clicks(decision, items=items_of(fields.items, self._value(event)), feedback_id=id)

    def _of_worth(self, event: dict[str, Any], decision: str, id: str) -> Feedback:
        assert self._map.event is not None
        found = self._worth_of(present(self._map.event, self._kind(event)))
        assert found is not None
        worth, get = found
        if worth.metric is None:
            reward = worth.reward if worth.field is None else reward_of(worth.field, get(event))
            return Feedback(decision, reward, id)
        if worth.field is None and not self.doubts and (place := _amount_in(event, worth.metric)):
            kind = self._kind(event)
            self.doubts.append(
                f"reward.{kind}: each counts 1 of {worth.metric}, but events bring it in {place}; "
                f'give {{ metric = "{worth.metric}", field = "{place}" }}'
            )
        amount = 1.0 if worth.field is None else number_of(worth.field, get(event), "bad-amount")
        return Feedback(decision, worth.reward, id, {worth.metric: amount})

    def _worth_of(self, kind: Any) -> tuple[Worth, Get] | None:
        return self._worths.get(kind) if isinstance(kind, str) else None


def _amount_in(event: dict[str, Any], metric: str) -> str | None:
    """Return the path of a field named like a metric with a number other than 1; None without one."""
    inside = ((f"{name}.", value) for name, value in event.items() if isinstance(value, dict))
    for path, fields in (("", event), *inside):
        if type(amount := fields.get(metric)) in (int, float) and amount != 1:
            return f"{path}{metric}"
    return None


# ---- Impression events, to which other events are joined


class ShownMapper:
    """Read impression events.

    Parameters
    ----------
    table : ShownMap
    event_map : EventMap
        The whole map, which contains ``table``.
    """

    def __init__(self, table: ShownMap, event_map: EventMap) -> None:
        self._where = conditions(table.where)
        self.wanted = wanted(table.where)
        self._matched, self._others = False, dict[str, None]()
        self._table = table
        self._id = table.decision_id or event_map.decision_id
        self._joined_by = [getattr(table, name) for name in event_map.joined_by]
        context = table.context if isinstance(table.context, dict) else {}
        even = table.propensity == UNIFORM
        self._propensity = path(None if even else table.propensity)
        self._arms, self._even, self._key = path(table.arms), even, path(table.key)
        named = [self._id, table.arm, *self._joined_by, *context.values()]
        if isinstance(table.context, str):
            named.append(table.context)
        self._get = {name: path(name) for name in named if name is not None}

    def matches(self, event: dict[str, Any]) -> bool:
        """True if an event is an impression."""
        other = unlike(event, self._where)
        self._matched |= other is None
        if other is not None and not self._matched and len(self._others) < MOST_OTHERS:
            self._others[other] = None
        return other is None

    @property
    def doubt(self) -> str:
        """Message that no event so far is an impression, with the remedy; empty if one was."""
        what = f"no event so far is what [shown] wants, {self.wanted}: {', '.join(self._others)}"
        return "" if self._matched else f"{what}; mend its where"

    def identity(self, event: dict[str, Any]) -> tuple[str, ...]:
        """Return the values by which other events are joined to an impression."""
        return tuple(text_of(field, self._get[field](event), "bad-join") for field in self._joined_by)

    def id_of(self, event: dict[str, Any]) -> str | None:
        """Return the decision's id; None if the event's own id serves as such."""
        return None if self._id is None else text_of(self._id, self._get[self._id](event), "bad-decision-id")

    def decided(self, event: dict[str, Any], id: str) -> LocalDecision | None:
        """Return an impression's decision if another system made it, else None.

        Raises
        ------
        BadEvent
        """
        table, get = self._table, self._get
        if not table.elsewhere:
            return None
        assert table.arm is not None
        arm = arm_of(table.arm, get[table.arm](event))
        propensity, arms, context = None, None, None
        if (value := self._propensity(event)) is not None:
            propensity = number_of(str(table.propensity), value, "bad-propensity")
            if not 0.0 < propensity <= 1.0:
                raise BadEvent("bad-propensity", f"{table.propensity}: {shown(value)} is not in (0, 1]")
        if (value := self._arms(event)) is not None or self._even:
            arms = items_of(str(table.arms), value)
            if arm not in arms:
                remedy = "; a cell of a CSV has a list as JSON" if isinstance(value, str) else ""
                raise BadEvent(
                    "invalid-value", f"{table.arms}: {arm!r} was shown, and is not in {shown(value)}{remedy}"
                )
            propensity = 1.0 / len(arms) if self._even else propensity
        if isinstance(table.context, dict):
            context = {name: get[field](event) for name, field in table.context.items()}
        elif table.context is not None:
            context = get[table.context](event)
        try:
            context = msgspec.convert(context, Context | None)
        except (msgspec.ValidationError, OverflowError) as error:
            raise BadEvent(
                "invalid-value", f"context: {error}; give numbers, or names with values"
            ) from error
        key = ONLY_KEY if table.key is None else text_of(str(table.key), self._key(event), "bad-key")
        return LocalDecision(id, key, arm, propensity, arms, context)


# ---- Selecting events, and getting fields of events

Conditions = list[tuple[str, Get, list[Scalar]]]


def conditions(where: dict[str, Scalar | list[Scalar]]) -> Conditions:
    """Compile the conditions of a table ``where``: field, getter and allowed values of each."""
    return [
        (field, path(field), allowed if isinstance(allowed, list) else [allowed])
        for field, allowed in where.items()
    ]


def wanted(where: dict[str, Scalar | list[Scalar]]) -> str:
    """Return the conditions of a table ``where`` as text for messages."""
    return ", ".join(f"{field} = {shown(value)}" for field, value in where.items())


def unlike(event: dict[str, Any], where: Conditions) -> str | None:
    """Return the first condition that an event does not meet, as text; None if it meets all."""
    for field, get, allowed in where:
        if (value := get(event)) not in allowed:
            return f"{field} is {shown(value)}"
    return None


def path(name: str | Any | None) -> Get:
    """Return a function that gets a field of an event, or None; a value that is no path is a constant.

    A field whose name is the whole path takes precedence, because columns of CSV may have dots.

    Examples
    --------
    >>> get = path("params.id.value")
    >>> get({"params": [{"key": "page", "value": 1}, {"key": "id", "value": "a"}]})
    'a'
    >>> get({"params": '{"id": {"value": 2}}'}), get({"params.id.value": 3}), get({"params": 4})
    (2, 3, None)
    """
    if not isinstance(name, str):
        value = name.value if isinstance(name, Fixed) else name
        return lambda event: value
    steps = name.split(".")
    if len(steps) == 1:
        return lambda event: event.get(name)

    def get(event: dict[str, Any]) -> Any:
        if name in event:
            return event[name]
        value: Any = event
        for step in steps:
            value = _inside(value, step)
        return value

    return get


def _inside(value: Any, step: str) -> Any:
    if isinstance(value, str) and value[:1] in ("{", "["):
        value = _decoded(value)
    if isinstance(value, dict):
        return value.get(step)
    if not isinstance(value, list):
        return None
    if step.isdecimal():
        return value[int(step)] if int(step) < len(value) else None
    keyed = (each for each in value if isinstance(each, dict) and each.get("key") == step)
    return next(keyed, None)


def _decoded(text: str) -> Any:
    """Return the value of a JSON text; None if it is no JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None


# ---- Parsing of fields


def present(field: str, value: Any) -> Any:
    """Return a value; raise BadEvent if it is missing.

    Raises
    ------
    BadEvent
    """
    if value is None or value == "":
        raise BadEvent(
            "missing-field",
            f"{field}: it is not there; name another field, or leave such events out by [where]",
        )
    return value


def text_of(field: str, value: Any, reason: str) -> str:
    """Return a name or id as text; whole numbers are converted.

    Raises
    ------
    BadEvent
    """
    value = present(field, value)
    is_whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**LONGEST_ID
    text = str(value) if is_whole else value
    if not isinstance(text, str) or len(text) > LONGEST_ID or not text.isprintable():
        raise BadEvent(reason, f"{field}: {shown(value)}; give 1 to {LONGEST_ID} printable characters")
    return text


def number_of(field: str, value: Any, reason: str) -> float:
    """Return a number, parsed if it is text or a boolean.

    Raises
    ------
    BadEvent
    """
    value = present(field, value)
    if isinstance(value, str):
        text = value.strip().lower()
        try:
            number = TRUTHS[text] if text in TRUTHS else float(text)
        except ValueError:
            number = math.nan
    else:
        number = _float(value)
    if not math.isfinite(number):
        raise BadEvent(reason, f"{field}: {shown(value)} is no number; name a field that has one")
    return number


def _float(value: Any) -> float:
    try:
        return math.nan if isinstance(value, dict | list) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def reward_of(field: str, value: Any) -> float:
    """Return a reward, in [0, 1].

    Raises
    ------
    BadEvent
    """
    number = number_of(field, value, "bad-reward")
    if not 0.0 <= number <= 1.0:
        raise BadEvent(
            "bad-reward",
            f"{field}: {shown(value)} is not in [0, 1]; divide it in the source, or send it as a metric",
        )
    return number


def positions_of(field: str, value: Any) -> list[int]:
    """Return the clicked positions, given as one or a list.

    Raises
    ------
    BadEvent
    """
    value = present(field, value)
    given = value if isinstance(value, list) else [value]
    numbers = [number_of(field, each, "bad-clicks") for each in given]
    if any(number != int(number) or not 0 <= number <= 100_000 for number in numbers):
        raise BadEvent("bad-clicks", f"{field}: {shown(value)}; give positions from 0")
    return [int(number) for number in numbers]


def items_of(field: str, value: Any) -> list[int | str]:
    """Return the clicked items, given as one or a list.

    Raises
    ------
    BadEvent
    """
    value = present(field, value)
    # A cell of CSV has a list as JSON text.
    items = _decoded(value) if isinstance(value, str) and value.startswith("[") else value
    items = items if isinstance(items, list) else [value]
    return [item if _is_number(item) else text_of(field, item, "bad-items") for item in items]


def arm_of(field: str, value: Any) -> int | str:
    """Return the single arm in a field.

    Raises
    ------
    BadEvent
    """
    arms = items_of(field, value)
    if len(arms) != 1:
        raise BadEvent(
            "invalid-value", f"{field}: {shown(value)} is not one arm; name the field that has one"
        )
    return arms[0]


def _is_number(item: Any) -> bool:
    return type(item) is int and abs(item) < 2**62


def seconds_of(field: str, value: Any, unit: str | None) -> float:
    """Return a time in seconds since 1970; text without a zone is UTC.

    Raises
    ------
    BadEvent

    Examples
    --------
    >>> seconds_of("t", "2017-07-04T12:00:00Z", None), seconds_of("t", 1499169600000, None)
    (1499169600.0, 1499169600.0)
    """
    value = present(field, value)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value) if not value.isdecimal() else int(value)
        except ValueError:
            raise _no_time(field, value) from None
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _no_time(field, value)
    if unit is not None and abs(value) < FARTHEST * UNITS[unit]:
        return value / UNITS[unit]
    scales = () if unit is not None else UNITS.values()
    seconds = [value / scale for scale in scales if EARLIEST * scale <= value < LATEST * scale]
    if not seconds:
        raise _no_time(field, value)
    return seconds[0]


def _no_time(field: str, value: Any) -> BadEvent:
    remedy = "send ISO 8601, or a number, whose time_unit the map says"
    return BadEvent("bad-time", f"{field}: {shown(value)} is no time; {remedy}")


def shown(value: Any) -> str:
    """Return a value as text for messages, of at most 80 characters."""
    try:
        text = repr(value)
    except ValueError:
        # Python refuses to print integers of several thousand digits.
        text = f"{type(value).__name__} of too many digits"
    return text if len(text) <= 80 else text[:77] + "..."
