"""Progress reports of event feeds, kept in memory for pages and metrics; and webhooks for pushed events."""

# 1. ``Feeds``: the latest progress report of each feed.
# 2. ``Hooks``: bodies of pushed events: authenticate the sender, parse the body, map and record its events.

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from tacit.errors import InvalidValue, UnknownName
from tacit.feed.event_map import EventMap
from tacit.feed.mapping import BadEvent, EventCounts, MappedEvent, Mapper, parse_outcome
from tacit.service.config.keys import ANYBODY, UNPROVEN, Caller, HookConfig
from tacit.service.engine.engine import Engine
from tacit.service.http.messages import answer_problem, convert_error, decode_body, make_problem
from tacit.service.http.route import Answer, RouteCall
from tacit.service.http.verbs import MANY
from tacit.wire.decisions import LocalDecision
from tacit.wire.site import EventsTaken, FeedNow, FeedReport

# ---- What feeds report

MOST = 100
"""Feeds that are remembered for each key; beyond that, the ones that reported least recently are dropped."""


class _StoredReport(NamedTuple):
    """A feed's report and the time at which it came, in seconds since 1970."""

    report: FeedReport
    time: float


class Feeds:
    """The latest report of each feed, stored by key so that keys cannot overwrite each other's reports.

    Parameters
    ----------
    clock : function, optional
        Returns the time in seconds since 1970.

    Examples
    --------
    >>> feeds = Feeds(lambda: 1000.0)
    >>> feeds.report("clicks", FeedReport(read=7, last=940.0))
    >>> [(feed.name, feed.read, feed.lag) for feed in feeds.list_feeds()]
    [('clicks', 7, 60.0)]
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._reports: dict[str | None, dict[str, _StoredReport]] = {}

    def report(self, name: str, report: FeedReport, caller: Caller = ANYBODY) -> None:
        """Store a feed's report and the time, in place of the feed's last report.

        Beyond ``MOST`` feeds of the caller's key, the feed that reported least recently is dropped.
        """
        reports = self._reports.setdefault(caller.name, {})
        reports.pop(name, None)
        reports[name] = _StoredReport(report, self._clock())
        if len(reports) > MOST:
            del reports[next(iter(reports))]

    def list_feeds(self, caller: Caller = ANYBODY) -> list[FeedNow]:
        """Return the latest report of each feed, sorted by name, with its age and lag in seconds.

        A key of all placements gets all feeds; another key gets only its own.
        """
        now = self._clock()
        feeds = [
            FeedNow(
                **msgspec.structs.asdict(report),
                name=name,
                key=key,
                seconds=max(0.0, now - time),
                lag=None if report.last is None else max(0.0, time - report.last),
            )
            for key, reports in self._reports.items()
            if caller.placements is None or key == caller.name
            for name, (report, time) in reports.items()
        ]
        return sorted(feeds, key=lambda feed: (feed.name, feed.key or ""))


# ---- Webhooks: pushed events, mapped by the map of a feed

AT_ONCE = 250
"""Events that are mapped and recorded in one go; more would make decisions wait."""
REMEMBERED = 100_000
"""Decisions remembered for each feed, so that events without a decision id can be joined to them."""
PERIOD = 60.0
"""Time constant in seconds of the moving average of a feed's event rate."""
SIGNATURE = b"x-signature"
BINARY, ATTRIBUTE = b"ce-specversion", b"ce-"
"""Headers of CloudEvents in binary mode: the header that identifies it, and the prefix of attributes."""

Outcome = str | BadEvent


class _PushedFeed(EventCounts):
    """A feed whose events are pushed by webhook, with their counts since this process started."""

    def __init__(self, event_map: EventMap) -> None:
        super().__init__()
        self.map, self.mapper = event_map, Mapper(event_map, REMEMBERED)
        self._rate, self._since = 0.0, time.monotonic()

    def count_events(self, summary: EventsTaken, last: float | None) -> FeedReport:
        """Add the counts of one body to the feed's totals, update its event rate, and return its report.

        ``last`` is the time of the body's last event, or None.
        """
        now = time.monotonic()
        decay, self._since = math.exp((self._since - now) / PERIOD), now
        self._rate = self._rate * decay + summary.read / PERIOD
        self.read, self.left_out = self.read + summary.read, self.left_out + summary.left_out
        self.sent.update(summary.sent)
        self.rejected.update(summary.rejected)
        self.last = max((time for time in (self.last, last) if time is not None), default=None)
        return self.report(self._rate)


class Hooks:
    """Receives the bodies of all pushed feeds and records their events.

    Parameters
    ----------
    engine : Engine
        Records the events, and holds the current configuration.
    feeds : Feeds
        Stores the progress reports.
    """

    def __init__(self, engine: Engine, feeds: Feeds) -> None:
        self._engine, self._feeds = engine, feeds
        self._hooks: dict[str, _PushedFeed] = {}

    async def record_body(
        self, name: str, body: bytes, headers: Mapping[bytes, bytes], caller: Caller
    ) -> EventsTaken | Answer:
        """Map and record the events of a pushed body, store the feed's report, and return counts by outcome.

        If the signature or key is wrong or the feed is unknown, an answer that refuses the body is returned
        instead. Events are recorded in groups of ``AT_ONCE``; decisions are served in between.

        Raises
        ------
        msgspec.DecodeError, TacitError
            If the body is not JSON or holds no event, or if nothing can be recorded at present.
        """
        config = self._engine.config.feeds.get(name)
        if not _is_authentic(config, body, headers, caller):
            what = "x-signature: it is not that of this body and of the feed's secret; Segment signs " \
                "single events, so send no batches"  # fmt: skip
            refusal = make_problem("unauthorized", "x-signature", what)
            return answer_problem(refusal, (b"www-authenticate", b'Bearer realm="tacit"'))
        # A signature covers only the body, so headers of a signed request are not trusted.
        signed = config is not None and config.secret is not None
        events = _parse_events(decode_body(msgspec.json.decode, body), {} if signed else headers)
        if config is None:
            return answer_problem(
                make_problem("unknown-path", "feed", f"feed: there is none; configure [feeds.{name}]")
            )
        hook = self._hooks.get(name)
        if hook is None or hook.map != config.map:
            hook = self._hooks[name] = _PushedFeed(config.map)
        batch = _EventBatch(self._engine, hook.mapper, ANYBODY if signed else caller)
        for first in range(0, len(events), AT_ONCE):
            await batch.record_events(events[first : first + AT_ONCE])
            # If no event was recorded, nothing above gave other tasks their turn.
            await asyncio.sleep(0)
        summary = batch.summarize(len(events))
        self._feeds.report(name, hook.count_events(summary, batch.last))
        return summary


def _is_authentic(
    config: HookConfig | None, body: bytes, headers: Mapping[bytes, bytes], caller: Caller
) -> bool:
    """True if the feed's secret signs the body; for a feed without a secret, if the caller has a key."""
    if config is None or config.secret is None:
        return caller is not UNPROVEN
    return config.secret.verify(body, headers.get(SIGNATURE, b""))


# ---- A body as events


def _parse_events(body: Any, headers: Mapping[bytes, bytes]) -> Sequence[Any]:
    """Return the events of a decoded body: the items of a list, or one object; raise InvalidValue otherwise.

    In the binary mode of CloudEvents, the event is made of the headers and the body.
    """
    if BINARY in headers:
        attributes = {
            name.removeprefix(ATTRIBUTE).decode("latin-1"): unquote(value.decode("latin-1"))
            for name, value in headers.items()
            if name.startswith(ATTRIBUTE)
        }
        return [attributes | {"data": body}]
    if isinstance(body, list):
        return body
    if not isinstance(body, dict):
        raise InvalidValue("body", type(body).__name__, "send an event as a JSON object, or a list of them")
    return [body]


# ---- Events as feedback


class _EventBatch(EventCounts):
    """Maps and records the events of one body, and counts the outcomes."""

    def __init__(self, engine: Engine, mapper: Mapper, caller: Caller) -> None:
        super().__init__()
        self._engine, self._mapper, self._caller = engine, mapper, caller
        self._first: dict[str, str] = {}

    def summarize(self, read: int) -> EventsTaken:
        """Return the counts by outcome of a body of ``read`` events, and the first message of each reason."""
        return EventsTaken(read, self.left_out, dict(self.sent), dict(self.rejected), self._first)

    async def record_events(self, events: Sequence[Any]) -> None:
        """Map events; record their decisions, then their feedback; count the outcome of each event."""
        groups: dict[tuple[bool, str, type], list[MappedEvent]] = {}
        for piece in self._map_events(events):
            kind = type(piece.message)
            groups.setdefault((kind is not LocalDecision, piece.placement, kind), []).append(piece)
        # Decisions first (False), since feedback of the same body may be on them.
        for _, placement, kind in sorted(groups, key=lambda group: group[0]):
            pieces = groups[kind is not LocalDecision, placement, kind]
            outcomes = await self._record_messages(placement, [piece.message for piece in pieces])
            for piece, outcome in zip(pieces, outcomes, strict=True):
                if isinstance(outcome, BadEvent):
                    self._reject(outcome)
                else:
                    self.count(outcome, piece.time)

    def _map_events(self, events: Sequence[Any]) -> Iterator[MappedEvent]:
        """Map events to messages and yield the ones to record.

        Count the others as left out, remembered or rejected.
        """
        for event in events:
            try:
                mapped = self._map_event(event)
            except BadEvent as error:
                self._reject(error)
                continue
            if mapped is None:
                self.left_out += 1
            elif mapped.message is None:
                self.count("remembered", mapped.time)
            else:
                yield mapped

    def _map_event(self, event: Any) -> MappedEvent | None:
        """Map an event to a message; None, and the reason is stored, if the map leaves the event out.

        Raises ``BadEvent`` if it is not an object, cannot be mapped, or the key does not reach its placement.
        """
        if not isinstance(event, dict):
            raise BadEvent("not-an-object", "it is JSON, but no object; send objects")
        mapped = self._mapper.read(event)
        if isinstance(mapped, str):
            self._first.setdefault("left-out", mapped)
            return None
        if not self._caller.reaches(mapped.placement):
            raise BadEvent("forbidden", "the key does not reach the placement; send one that does")
        return mapped

    def _reject(self, error: BadEvent) -> None:
        """Count a rejected event by its reason, and store the message of the reason's first one."""
        self.rejected[error.reason] += 1
        self._first.setdefault(error.reason, error.detail)

    async def _record_messages(self, placement: str, messages: Sequence[Any]) -> list[Outcome]:
        """Record messages of one type for a placement; return the outcome of each, a ``BadEvent`` if invalid.

        If the messages are refused together, each half is recorded alone, down to single messages.
        """
        handler, many = MANY[type(messages[0])]
        try:
            answer = await handler(self._engine, RouteCall(placement, request=many(messages)))
        except (InvalidValue, UnknownName) as error:
            if len(messages) == 1:
                return [BadEvent(convert_error(error).kind, str(error))]
            half = len(messages) // 2
            parts = messages[:half], messages[half:]
            return [outcome for part in parts for outcome in await self._record_messages(placement, part)]
        return [parse_outcome(result) for result in getattr(answer, "feedback", None) or answer.decisions]
