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
from tacit.feed.mapping import BadEvent, EventCounts, Mapped, Mapper, outcome_of
from tacit.service.config.keys import ANYBODY, UNPROVEN, Caller, HookConfig
from tacit.service.engine.service import Service
from tacit.service.http.messages import decoded, problem, problem_of, refused
from tacit.service.http.route import Answer, RouteCall
from tacit.service.http.verbs import MANY
from tacit.wire.decisions import LocalDecision
from tacit.wire.site import EventsTaken, FeedNow, FeedReport

# ---- What feeds report

MOST = 100
"""Feeds that are remembered for each key; beyond that, the ones that reported least recently are dropped."""


class _Reported(NamedTuple):
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
        self._reports: dict[str | None, dict[str, _Reported]] = {}

    def report(self, name: str, report: FeedReport, caller: Caller = ANYBODY) -> None:
        """Store the report of a feed."""
        reports = self._reports.setdefault(caller.name, {})
        reports.pop(name, None)
        reports[name] = _Reported(report, self._clock())
        if len(reports) > MOST:
            del reports[next(iter(reports))]

    def now(self, caller: Caller = ANYBODY) -> list[FeedNow]:
        """Return the feeds that a caller may see: all for a key of all placements, else the caller's own."""
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


class _Hook(EventCounts):
    """A pushed feed with the counts of its events since this process started."""

    def __init__(self, event_map: EventMap) -> None:
        super().__init__()
        self.map, self.mapper = event_map, Mapper(event_map, REMEMBERED)
        self._rate, self._since = 0.0, time.monotonic()

    def take(self, taken: EventsTaken, last: float | None) -> FeedReport:
        """Add the counts of one body to the feed's totals and return the feed's progress report."""
        now = time.monotonic()
        past, self._since = math.exp((self._since - now) / PERIOD), now
        self._rate = self._rate * past + taken.read / PERIOD
        self.read, self.left_out = self.read + taken.read, self.left_out + taken.left_out
        self.sent.update(taken.sent)
        self.rejected.update(taken.rejected)
        self.last = max((time for time in (self.last, last) if time is not None), default=None)
        return self.report(self._rate)


class Hooks:
    """Receives the bodies of all pushed feeds and records their events.

    Parameters
    ----------
    engine : Service
        Records the events, and holds the current configuration.
    feeds : Feeds
        Stores the progress reports.
    """

    def __init__(self, engine: Service, feeds: Feeds) -> None:
        self._engine, self._feeds = engine, feeds
        self._hooks: dict[str, _Hook] = {}

    async def take(
        self, name: str, body: bytes, headers: Mapping[bytes, bytes], caller: Caller
    ) -> EventsTaken | Answer:
        """Record the events of a body and return their counts by outcome, or a refusal.

        Raises
        ------
        msgspec.DecodeError, TacitError
            If the body is not JSON or holds no event, or if nothing can be recorded at present.
        """
        config = self._engine.config.feeds.get(name)
        if not _proven(config, body, headers, caller):
            what = "x-signature: it is not that of this body and of the feed's secret; Segment signs " \
                "single events, so send no batches"  # fmt: skip
            refusal = problem("unauthorized", "x-signature", what)
            return refused(refusal, (b"www-authenticate", b'Bearer realm="tacit"'))
        # A signature covers only the body, so headers of a signed request are not trusted.
        signed = config is not None and config.secret is not None
        events = _events(decoded(msgspec.json.decode, body), {} if signed else headers)
        if config is None:
            return refused(problem("unknown-path", "feed", f"feed: there is none; configure [feeds.{name}]"))
        hook = self._hooks.get(name)
        if hook is None or hook.map != config.map:
            hook = self._hooks[name] = _Hook(config.map)
        reached = ANYBODY if signed else caller
        taking = _Taking(self._engine, hook.mapper, reached)
        for first in range(0, len(events), AT_ONCE):
            await taking.take(events[first : first + AT_ONCE])
            # If no event was recorded, nothing above gave other tasks their turn.
            await asyncio.sleep(0)
        taken = taking.taken(len(events))
        self._feeds.report(name, hook.take(taken, taking.last))
        return taken


def _proven(config: HookConfig | None, body: bytes, headers: Mapping[bytes, bytes], caller: Caller) -> bool:
    """True if the feed's secret signs the body or, for a feed without a secret, the caller has a key."""
    if config is None or config.secret is None:
        return caller is not UNPROVEN
    return config.secret.signed(body, headers.get(SIGNATURE, b""))


# ---- A body as events


def _events(body: Any, headers: Mapping[bytes, bytes]) -> Sequence[Any]:
    """Return the events of a body: a list's items, one object, or a CloudEvent of headers and body."""
    if BINARY in headers:
        said = {
            name.removeprefix(ATTRIBUTE).decode("latin-1"): unquote(value.decode("latin-1"))
            for name, value in headers.items()
            if name.startswith(ATTRIBUTE)
        }
        return [said | {"data": body}]
    if isinstance(body, list):
        return body
    if not isinstance(body, dict):
        raise InvalidValue("body", type(body).__name__, "send an event as a JSON object, or a list of them")
    return [body]


# ---- Events as feedback


class _Taking(EventCounts):
    """Maps and records the events of one body, and counts the outcomes."""

    def __init__(self, engine: Service, mapper: Mapper, caller: Caller) -> None:
        super().__init__()
        self._engine, self._mapper, self._caller = engine, mapper, caller
        self._first: dict[str, str] = {}

    def taken(self, read: int) -> EventsTaken:
        """Return the counts of outcomes, for a body of ``read`` events."""
        return EventsTaken(read, self.left_out, dict(self.sent), dict(self.rejected), self._first)

    async def take(self, events: Sequence[Any]) -> None:
        """Map and record some events: decisions first, then the feedback for them."""
        groups: dict[tuple[bool, str, type], list[Mapped]] = {}
        for piece in self._pieces(events):
            kind = type(piece.message)
            groups.setdefault((kind is not LocalDecision, piece.placement, kind), []).append(piece)
        for _, placement, kind in sorted(groups, key=lambda group: group[0]):
            pieces = groups[kind is not LocalDecision, placement, kind]
            outcomes = await self._recorded(placement, [piece.message for piece in pieces])
            for piece, outcome in zip(pieces, outcomes, strict=True):
                if isinstance(outcome, BadEvent):
                    self._reject(outcome)
                else:
                    self.count(outcome, piece.time)

    def _pieces(self, events: Sequence[Any]) -> Iterator[Mapped]:
        """Map events and yield those to be recorded; count the others as left out, remembered or rejected."""
        for event in events:
            try:
                mapped = self._mapped(event)
            except BadEvent as error:
                self._reject(error)
                continue
            if mapped is None:
                self.left_out += 1
            elif mapped.message is None:
                self.count("remembered", mapped.time)
            else:
                yield mapped

    def _mapped(self, event: Any) -> Mapped | None:
        """Return an event mapped to a message; None if the map leaves the event out."""
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
        self.rejected[error.reason] += 1
        self._first.setdefault(error.reason, error.detail)

    async def _recorded(self, placement: str, messages: Sequence[Any]) -> list[Outcome]:
        """Record messages of one type and return the outcome of each; invalid messages do not stop others.

        If a batch is refused, its halves are recorded separately, down to single messages.
        """
        handler, many = MANY[type(messages[0])]
        try:
            answer = await handler(self._engine, RouteCall(placement, request=many(messages)))
        except (InvalidValue, UnknownName) as error:
            if len(messages) == 1:
                return [BadEvent(problem_of(error).type.rpartition(":")[2], str(error))]
            half = len(messages) // 2
            parts = messages[:half], messages[half:]
            return [outcome for part in parts for outcome in await self._recorded(placement, part)]
        return [outcome_of(became) for became in getattr(answer, "feedback", None) or answer.decisions]
