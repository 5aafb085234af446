"""Feed events of a source to a service: read, map, send in batches, count."""

# 1. ``Sender``: sends batches with retries, and isolates refused messages.
# 2. ``Limits``: a feed stops if too many events are rejected.
# 3. ``Feeder``: reads the next batch while one is sent; a position is saved only after the service has
#    answered, so an event is sent at least once, and its id lets the service ignore repetitions.
# 4. ``preview_events``: the same without sending.

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

# ---- Sending batches, with retries; refused messages are isolated

MOST = 1000
"""Most messages in a request."""
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
        Seconds without an answer after which sending fails.
    stopping : function
        Returns True if sending shall fail at once when the service gives no answer.
    waiting : function
        Called with the reason whenever the service gives no answer.
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
        """Send messages of one kind; return the outcome of each, in order.

        Raises
        ------
        ServiceError
            If the service refuses all messages, or gives no answer for too long; outcomes are then unknown.
        """
        answers: list[Answer] = []
        # Stack of batches to send; a refused batch is replaced by its parts, the next one on top.
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
        """Send messages by the call for their kind; return the service's answers."""
        client, kind = self._client, type(messages[0])
        calls = {
            Feedback: client.feedback_many, LocalDecision: client.take_over, Event: client.examined_many
        }  # fmt: skip
        call = calls.get(kind, client.clicks_many)
        recorded: list[Recorded | TakenOver] = self._answered(call, placement, messages)
        return recorded

    def keep(self, placement: str, feed: str, offsets: Mapping[str, int]) -> None:
        """Save in the service's log the offsets up to which a feed's events were sent."""
        self._answered(self._client.fed, placement, feed, offsets)

    def kept(self, feed: str) -> Mapping[str, int]:
        """Return the offsets at which a feed resumes, from the service's log."""
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
    """Report a feed's progress to the service from time to time, for information only.

    Parameters
    ----------
    client : Client
    name : str
        Name of the feed.
    tally : FeedTally
    """

    def __init__(self, client: Any, name: str, tally: FeedTally) -> None:
        self._client, self._name, self._tally = client, name, tally
        self._before = time.monotonic(), 0

    def __call__(self, *, ended: bool = False) -> None:
        """Send a report if the last one is long enough ago, or the feed has ended."""
        (then, read), now = self._before, time.monotonic()
        if now - then < REPORT_SECONDS and not ended:
            return
        self._before = now, self._tally.read
        rate = (self._tally.read - read) / max(now - then, 1e-3)
        with suppress(ServiceError, InvalidValue):
            self._client.report_feed(self._name, self._tally.report(0.0 if ended else rate, ended))


def _parted(messages: Sequence[Message], field: str) -> list[Sequence[Message]]:
    """Split messages of which one was refused: around the one named in the error, or in halves."""
    named = _PLACE.match(field)
    bad = int(named[1]) if named else len(messages) // 2
    cuts = [0, bad, bad + 1, len(messages)] if named else [0, bad, len(messages)]
    return [messages[begin:end] for begin, end in pairwise(cuts) if begin < end]


LARGEST_BATCH = 16 * 2**20
"""Bytes of events in a batch, which bounds memory however large events are."""
KEEP_SECONDS = 1.0
"""Seconds between saved positions."""
JUDGED_FIRST = 1000
"""Minimum number of sent or rejected events before the share of rejected ones can stop a feed."""


# ---- Limits of rejected events


class TooManyRejected(TacitError):
    """Raised when a feed has more rejected events than its limits allow."""


class Limits(NamedTuple):
    """Limits of rejected events, beyond which a feed stops.

    Attributes
    ----------
    strict : bool
        Stop at the first rejected event.
    share : float
        Stop at a larger share of rejected events, after the first thousand events or at the end.
    """

    strict: bool = False
    share: float = 0.05


class Piece(NamedTuple):
    """An event and its message to the service."""

    found: Found
    placement: str
    message: Message
    time: float | None


# ---- Feeding: read, map, send in batches, count when the service has answered


class Feeder:
    """Feed events to a service; while one batch is sent, the next is read.

    Parameters
    ----------
    source : EventSource
    mapper : Mapper
    sender : Sender
    tally : FeedTally
    rejected : RejectedFile
    limits : Limits
    stopping : function
        Returns True to end after the current batch.
    progress : function
        Called whenever counts change.
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
            If the limits are exceeded; earlier events have been sent.
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
        """Yield batches of events to send: when a batch is full, or the source has no more for now."""
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
        """Map an event to its message, or count why it has none."""
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
        """Send a batch, one request per placement and kind of message; return the outcome of each event."""
        groups: dict[tuple[str, type], list[int]] = {}
        for i, piece in enumerate(batch):
            groups.setdefault((piece.placement, type(piece.message)), []).append(i)
        answers: dict[int, Answer] = {}
        # Decisions before their feedback.
        for (placement, _), places in sorted(
            groups.items(), key=lambda group: group[0][1] is not LocalDecision
        ):
            try:
                sent = self._sender.send(placement, [batch[i].message for i in places])
            except Denied as error:
                # If events name placements, access denied to one placement must not stop the others.
                if error.field != "placement" or self._mapper.has_one_placement:
                    raise
                sent = [BadEvent("forbidden", str(error))] * len(places)
            answers.update(zip(places, sent, strict=True))
        return [answers[i] for i in range(len(batch))]

    def _settle(self) -> None:
        """Wait for the batch in flight, and count the outcomes of its events."""
        if self._under_way is not None:
            (batch, position, sent), self._under_way = self._under_way, None
            for piece, answer in zip(batch, sent.result(), strict=True):
                if isinstance(answer, BadEvent):
                    self._reject(piece.found, answer)
                else:
                    self._placement = piece.placement
                    self._tally.settle(piece.message, answer, piece.time)
            self._rejected.flush()
            # If the feed stops for a rejected event, that event is read again next time.
            if not self._too_many():
                self._position = position
            if time.monotonic() - self._kept > KEEP_SECONDS:
                self._keep()
        self._progress()

    def _keep(self) -> None:
        """Save the position in the service's log, then commit it to the source."""
        if not self._position:
            return
        if self._placement:
            self._sender.keep(self._placement, self._source.name, self._position)
        self._source.sent(self._position)
        self._position, self._kept = None, time.monotonic()

    def _too_many(self, ended: bool = False) -> bool:
        """True if more events are rejected than the limits allow."""
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


# ---- Preview without sending (``--check``)


def foreseen(mapper: Mapper, source: Iterable[Found | None], tally: FeedTally, most: int) -> Iterator[str]:
    """Yield a line for each of the first events with the message it would send, without sending.

    Parameters
    ----------
    mapper : Mapper
    source : iterable of Found or None
    tally : FeedTally
        Counts the events.
    most : int
        Most events to preview.
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
