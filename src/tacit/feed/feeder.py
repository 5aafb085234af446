"""Events from a source to a service: read, mapped, sent in batches, counted."""

# 1. ``Sender``: batches of feedback, sent for as long as it takes, and what is refused kept apart.
# 2. What stops a feed: too many rejected events.
# 3. ``Feeder``: the next batch is read while one is sent; a position is kept only when the service has
#    answered, so that an event is sent at least once, and its id makes the second time a repetition.
# 4. ``foreseen``: the same without sending.

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice, pairwise
from typing import Any, NamedTuple

from tacit.client.call import Denied, InvalidRequest, NotFound, ServiceError, Unavailable
from tacit.errors import InvalidValue, TacitError
from tacit.feed.mapping import BadEvent, Mapper, Message, outcome_of
from tacit.feed.sources import EventSource, Found
from tacit.feed.tally import FORESEEN, REMEMBERED, FeedTally, RejectedFile
from tacit.wire.decisions import Event, Feedback, LocalDecision, Recorded, TakenOver

# ---- Batches of feedback sent to a service: for as long as it takes, and what it refuses kept apart

MOST = 1000
"""Messages in a request."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
REPORT_SECONDS = 5.0

_PLACE = re.compile(r"(?:feedback|decisions)\[(\d+)\]")

Answer = str | BadEvent


class Sender:
    """Sends feedback to a service.

    Parameters
    ----------
    client : Client
    patience : float
        Seconds without any answer after which it gives up.
    stopping : function
        Whether it shall give up as soon as the service gives no answer.
    waiting : function
        Called with the reason whenever the service gives none.
    """

    def __init__(
        self,
        client: Any,
        patience: float,
        stopping: Callable[[], bool] = lambda: False,
        waiting: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._client = client
        self._patience = patience
        self._stopping = stopping
        self._waiting = waiting

    def send(self, placement: str, messages: Sequence[Message]) -> list[Answer]:
        """Return what became of messages of one kind, in their order.

        Raises
        ------
        ServiceError
            If the service refuses all, or gives no answer for too long: then nothing is known of these.
        """
        answers: list[Answer] = []
        # Of what was refused for one of it, the parts wait here, the next of them last.
        parts = [messages]
        while parts:
            part = parts.pop()
            try:
                answers += map(outcome_of, self._recorded(placement, part))
            except (InvalidValue, InvalidRequest, NotFound) as error:
                refusal = BadEvent(getattr(error, "kind", "") or "invalid-value", str(error))
                if error.field == "placement" or refusal.reason == "unknown-placement":
                    answers += [refusal] * len(part)
                elif refusal.reason not in ("invalid-value", "body-too-large"):
                    raise
                elif len(part) == 1:
                    answers.append(refusal)
                else:
                    parts += reversed(_parted(part, error.field))
        return answers

    def _recorded(self, placement: str, messages: Sequence[Message]) -> list[Recorded | TakenOver]:
        """Return the service's answer, however often it must be asked."""
        client, kind = self._client, type(messages[0])
        calls = {
            Feedback: client.feedback_many, LocalDecision: client.take_over, Event: client.examined_many
        }  # fmt: skip
        call = calls.get(kind, client.clicks_many)
        recorded: list[Recorded | TakenOver] = self._answered(call, placement, messages)
        return recorded

    def keep(self, placement: str, feed: str, offsets: Mapping[str, int]) -> None:
        """Let the log say how far a feed has come, all of which was sent."""
        self._answered(self._client.fed, placement, feed, offsets)

    def kept(self, feed: str) -> Mapping[str, int]:
        """Return where a feed goes on, as the log says it."""
        offsets: Mapping[str, int] = self._answered(self._client.fed_now, feed).offsets
        return offsets

    def _answered(self, call: Callable[..., Any], *asked: Any) -> Any:
        since, pause = time.monotonic(), FIRST_PAUSE
        while True:
            try:
                return call(*asked)
            except Unavailable as error:
                if self._stopping() or time.monotonic() - since > self._patience:
                    raise
                self._waiting(error.what)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


class Reporter:
    """Says to the service how far a feed is, now and then; nothing depends on it.

    Parameters
    ----------
    client : Client
    name : str
        Of the feed.
    tally : FeedTally
    """

    def __init__(self, client: Any, name: str, tally: FeedTally) -> None:
        self._client, self._name, self._tally = client, name, tally
        self._before = time.monotonic(), 0

    def __call__(self, *, ended: bool = False) -> None:
        """Say it, if that is a while ago, or all ended."""
        (then, read), now = self._before, time.monotonic()
        if now - then < REPORT_SECONDS and not ended:
            return
        self._before = now, self._tally.read
        rate = (self._tally.read - read) / max(now - then, 1e-3)
        with suppress(ServiceError, InvalidValue):
            self._client.report_feed(self._name, self._tally.report(0.0 if ended else rate, ended))


def _parted(messages: Sequence[Message], field: str) -> list[Sequence[Message]]:
    """Return messages of which one was refused in parts: around the one that is named, or in halves."""
    named = _PLACE.match(field)
    bad = int(named[1]) if named else len(messages) // 2
    cuts = [0, bad, bad + 1, len(messages)] if named else [0, bad, len(messages)]
    return [messages[begin:end] for begin, end in pairwise(cuts) if begin < end]


LARGEST_BATCH = 16 * 2**20
"""Bytes of events in a batch, so that memory is bounded however large they are."""
KEEP_SECONDS = 1.0
"""How often the log is to know how far the events have come."""
JUDGED_FIRST = 1000
"""How many events must be sent or rejected before the share of rejected ones can stop it."""


# ---- What stops a feed


class TooManyRejected(TacitError):
    """A feed in which more events were rejected than it allows."""


class Limits(NamedTuple):
    """What of rejected events stops a feed.

    Attributes
    ----------
    strict : bool
        The first one.
    share : float
        More than this share of events, after the first thousand or at the end.
    """

    strict: bool = False
    share: float = 0.05


class Piece(NamedTuple):
    """An event and the feedback that it is."""

    found: Found
    placement: str
    message: Message
    time: float | None


# ---- Feeding: read, mapped, sent in batches, settled when the service has answered


class Feeder:
    """Feeds events to a service; while one batch is sent, the next is read.

    Parameters
    ----------
    source : EventSource
    mapper : Mapper
    sender : Sender
    tally : FeedTally
    rejected : RejectedFile
    limits : Limits
    stopping : function
        Whether to end after the batch under way.
    progress : function
        Called whenever something was counted.
    """

    def __init__(
        self,
        source: EventSource,
        mapper: Mapper,
        sender: Sender,
        tally: FeedTally,
        rejected: RejectedFile,
        limits: Limits,
        stopping: Callable[[], bool] = lambda: False,
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        self._source = source
        self._mapper = mapper
        self._sender = sender
        self._tally = tally
        self._rejected = rejected
        self._limits = limits
        self._stopping = stopping
        self._progress = progress
        self._under_way: tuple[list[Piece], Any, Future[list[Answer]]] | None = None
        self._position: Any = None
        self._placement = ""
        self._kept = time.monotonic()

    def feed(self) -> None:
        """Feed all events of the source.

        Raises
        ------
        TooManyRejected
            As the limits say; what came before is sent.
        ServiceError
            If the service refuses everything, or gives no answer for too long.
        """
        with ThreadPoolExecutor(1, "tacit-feed") as threads:
            for batch in self._batches():
                position = self._source.position()
                self._settle()
                self._under_way = batch, position, threads.submit(self._sent, batch)
            self._settle()
        self._keep()
        self._check_limits()

    def _batches(self) -> Iterator[list[Piece]]:
        """Yield events that are to be sent, as soon as they are many or nothing more is there for now."""
        batch: list[Piece] = []
        size = 0
        for found in self._source:
            if found is not None and (piece := self._piece(found)) is not None:
                batch.append(piece)
                size += found.size
            if found is None or len(batch) == MOST or size >= LARGEST_BATCH:
                yield batch
                batch, size = [], 0
            if found is None:
                self._settle()
                self._keep()
            if self._stopping() or self._too_many():
                break
        yield batch

    def _piece(self, found: Found) -> Piece | None:
        """Return an event as feedback, or count why it is none."""
        self._tally.read += 1
        if self._tally.read % MOST == 0:
            self._progress()
        if found.event is None:
            self._reject(found, BadEvent(found.reason, found.detail))
            return None
        try:
            mapped = self._mapper.read(found.event, found.named)
        except BadEvent as error:
            self._reject(found, error)
            return None
        if isinstance(mapped, str):
            self._tally.leave_out(mapped)
            return None
        placement, message, time = mapped
        if message is None:
            self._tally.count(REMEMBERED, time)
            return None
        return Piece(found, placement, message, time)

    def _reject(self, found: Found, why: BadEvent) -> None:
        self._tally.reject(found, why.reason, why.detail)
        self._rejected.write(found, why.reason, why.detail)

    def _sent(self, batch: list[Piece]) -> list[Answer]:
        """Return what became of a batch: the feedback of each placement is a request of its own."""
        groups: dict[tuple[str, type], list[int]] = {}
        for i, piece in enumerate(batch):
            groups.setdefault((piece.placement, type(piece.message)), []).append(i)
        answers: dict[int, Answer] = {}
        # Decisions before what came back for them.
        for (placement, _), places in sorted(
            groups.items(), key=lambda group: group[0][1] is not LocalDecision
        ):
            try:
                sent = self._sender.send(placement, [batch[i].message for i in places])
            except Denied as error:
                # Where events name placements, one that the key does not reach stops no other.
                if error.field != "placement" or self._mapper.has_one_placement:
                    raise
                sent = [BadEvent("forbidden", str(error))] * len(places)
            answers.update(zip(places, sent, strict=True))
        return [answers[i] for i in range(len(batch))]

    def _settle(self) -> None:
        """Count what became of the batch under way, once the service has answered."""
        if self._under_way is not None:
            (batch, position, sent), self._under_way = self._under_way, None
            for piece, answer in zip(batch, sent.result(), strict=True):
                if isinstance(answer, BadEvent):
                    self._reject(piece.found, answer)
                else:
                    self._placement = piece.placement
                    self._tally.settle(piece.message, answer, piece.time)
            self._rejected.flush()
            # Where it ends for a rejected event, that is read again.
            if not self._too_many():
                self._position = position
            if time.monotonic() - self._kept > KEEP_SECONDS:
                self._keep()
        self._progress()

    def _keep(self) -> None:
        """Let the service's log know how far the events have come, and then the source."""
        if not self._position:
            return
        if self._placement:
            self._sender.keep(self._placement, self._source.name, self._position)
        self._source.sent(self._position)
        self._position, self._kept = None, time.monotonic()

    def _too_many(self, ended: bool = False) -> bool:
        """Whether more events are rejected than is allowed, be all sent that are not rejected yet."""
        tally, limits = self._tally, self._limits
        if not tally.rejected:
            return False
        return limits.strict or ((ended or tally.judged >= JUDGED_FIRST) and tally.share > limits.share)

    def _check_limits(self) -> None:
        tally, limits = self._tally, self._limits
        if self._too_many(ended=not self._stopping()):
            allowed = "none is allowed" if limits.strict else f"at most {100 * limits.share:g} % are allowed"
            raise TooManyRejected(
                f"{'strict' if limits.strict else 'most_rejected'}: {tally.rejected.total():,} of "
                f"{tally.judged:,} events are rejected, {allowed}; mend the map or the source, or allow more"
            )


# ---- What would be sent, where nothing is (``--check``)


def foreseen(mapper: Mapper, source: Iterable[Found | None], tally: FeedTally, most: int) -> Iterator[str]:
    """Yield what would be sent of each of the first events, without sending it.

    Parameters
    ----------
    mapper : Mapper
    source : iterable of Found or None
    tally : FeedTally
        What is counted.
    most : int
        After so many events it ends.
    """
    for found in islice((found for found in source if found is not None), most):
        tally.read += 1
        yield f"{found.place}: {_foreseen(mapper, found, tally)}"


def _foreseen(mapper: Mapper, found: Found, tally: FeedTally) -> str:
    try:
        if found.event is None:
            raise BadEvent(found.reason, found.detail)
        mapped = mapper.read(found.event, found.named)
    except BadEvent as error:
        tally.reject(found, error.reason, error.detail)
        return f"rejected, {error.reason}: {error.detail}"
    if isinstance(mapped, str):
        tally.leave_out(mapped)
        return f"left out: {mapped}"
    placement, message, time = mapped
    if message is None:
        tally.count(REMEMBERED, time)
        return f"{placement}: what was shown, to be joined to"
    tally.count(FORESEEN, time)
    sent = ", ".join(
        f"{field} {getattr(message, field)}"
        for field in ("key", "arm", "propensity", "reward", "clicks", "items", "metrics")
        if getattr(message, field, None) is not None
    )
    return f"{placement}: decision {message.decision_id}: {sent or 'seen'}"
