"""Feeds: who feeds events to the service says how far it is; kept in memory, for people and metrics."""

# 1. ``Feeds``: what feeds reported last.
# 2. ``Hooks``: events that others push: the sender is proven, the body read, its events mapped as a feed
#    does.

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
"""Of more feeds of one key, those that were silent for longest are forgotten."""


class _Reported(NamedTuple):
    report: FeedReport
    time: float


class Feeds:
    """What each key reported last of each of its feeds: no key overwrites or crowds out those of another.

    Parameters
    ----------
    clock : function, optional
        Returns the time in seconds since 1970.

    Examples
    --------
    >>> feeds = Feeds(lambda: 1000.0)
    >>> feeds.report("clicks", FeedReport(read=7, last=940.0))
    >>> [(feed.name, feed.read, feed.lag) for feed in feeds.now()]
    [('clicks', 7, 60.0)]
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._reports: dict[str | None, dict[str, _Reported]] = {}

    def report(self, name: str, report: FeedReport, caller: Caller = ANYBODY) -> None:
        """Take a report."""
        reports = self._reports.setdefault(caller.name, {})
        reports.pop(name, None)
        reports[name] = _Reported(report, self._clock())
        if len(reports) > MOST:
            del reports[next(iter(reports))]

    def now(self, caller: Caller = ANYBODY) -> list[FeedNow]:
        """Return the feeds that a caller may know of: its own, unless its key reaches all placements."""
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


# ---- Webhooks: events that others push, by the map of a feed

AT_ONCE = 250
"""Events that are mapped and recorded together, so that no decision waits for a large body."""
REMEMBERED = 100_000
"""Decisions of a feed to which events without an id can be joined."""
PERIOD = 60.0
"""Seconds over which a rate is an average."""
SIGNATURE = b"x-signature"
BINARY, ATTRIBUTE = b"ce-specversion", b"ce-"
"""Headers of CloudEvents in binary mode: that it is one, and how its attributes begin."""

Outcome = str | BadEvent


class _Hook(EventCounts):
    """A feed that others push, and what became of its events since this process began."""

    def __init__(self, event_map: EventMap) -> None:
        super().__init__()
        self.map, self.mapper = event_map, Mapper(event_map, REMEMBERED)
        self._rate, self._since = 0.0, time.monotonic()

    def take(self, taken: EventsTaken, last: float | None) -> FeedReport:
        """Count what became of a body's events, and return how far the feed is."""
        now = time.monotonic()
        past, self._since = math.exp((self._since - now) / PERIOD), now
        self._rate = self._rate * past + taken.read / PERIOD
        self.read, self.left_out = self.read + taken.read, self.left_out + taken.left_out
        self.sent.update(taken.sent)
        self.rejected.update(taken.rejected)
        self.last = max((time for time in (self.last, last) if time is not None), default=None)
        return self.report(self._rate)


class Hooks:
    """Takes the bodies of all feeds that others push.

    Parameters
    ----------
    engine : Service
        What records them, and its configuration of now.
    feeds : Feeds
        Where each says how far it is.
    """

    def __init__(self, engine: Service, feeds: Feeds) -> None:
        self._engine, self._feeds = engine, feeds
        self._hooks: dict[str, _Hook] = {}

    async def take(
        self, name: str, body: bytes, headers: Mapping[bytes, bytes], caller: Caller
    ) -> EventsTaken | Answer:
        """Take a body, and say what became of its events.

        Raises
        ------
        msgspec.DecodeError, TacitError
            If it is no JSON, or no event; or if nothing can be recorded at present.
        """
        config = self._engine.config.feeds.get(name)
        if not _proven(config, body, headers, caller):
            what = "x-signature: it is not that of this body and of the feed's secret; Segment signs " \
                "single events, so send no batches"  # fmt: skip
            refusal = problem("unauthorized", "x-signature", what)
            return refused(refusal, (b"www-authenticate", b'Bearer realm="tacit"'))
        # A signature covers the body, and no header.
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
            # Where nothing is recorded, nothing else lets others in.
            await asyncio.sleep(0)
        taken = taking.taken(len(events))
        self._feeds.report(name, hook.take(taken, taking.last))
        return taken


def _proven(config: HookConfig | None, body: bytes, headers: Mapping[bytes, bytes], caller: Caller) -> bool:
    """Whether a body is signed, or its sender has shown a key where that is asked for."""
    if config is None or config.secret is None:
        return caller is not UNPROVEN
    return config.secret.signed(body, headers.get(SIGNATURE, b""))


# ---- A body as events


def _events(body: Any, headers: Mapping[bytes, bytes]) -> Sequence[Any]:
    """Return the events of a body: itself, its items, or what its headers say of it."""
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
    """Events of one body under way."""

    def __init__(self, engine: Service, mapper: Mapper, caller: Caller) -> None:
        super().__init__()
        self._engine, self._mapper, self._caller = engine, mapper, caller
        self._first: dict[str, str] = {}

    def taken(self, read: int) -> EventsTaken:
        """Return what became of so many events."""
        return EventsTaken(read, self.left_out, dict(self.sent), dict(self.rejected), self._first)

    async def take(self, events: Sequence[Any]) -> None:
        """Take some events: decisions before what came back for them."""
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
        """Yield those that say what the service does not know."""
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
        """Return an event as feedback; None where the map leaves it out."""
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
        """Return what became of messages of one type; what is wrong with one stops no other."""
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
