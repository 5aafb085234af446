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
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, NamedTuple

from tacit.client.call import Denied, InvalidRequest, NotFound, ServiceError, Unavailable
from tacit.errors import InvalidValue, TooManyRejected
from tacit.feed.mapping import BadEvent, MappedEvent, Mapper, Message, parse_outcome
from tacit.feed.sources import EventSource, SourceEvent
from tacit.feed.tally import FORESEEN, FeedTally, RejectedFile
from tacit.wire.decisions import Event, Feedback, LocalDecision, Recorded, TakenOver

# ---- Sending batches, with retries; refused messages are isolated

MAX_MESSAGES = 1000
"""Most messages in a request."""
FIRST_PAUSE, MAX_PAUSE = 0.1, 5.0
REPORT_SECONDS = 5.0

_MESSAGE_INDEX = re.compile(r"(?:feedback|decisions)\[(\d+)\]")

Answer = str | BadEvent


@dataclass
class Sender:
    """Sends feedback, decisions and offsets of a feed to a service, with retries while it does not answer.

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

    client: Any
    patience: float
    stopping: Callable[[], bool] = lambda: False
    waiting: Callable[[str], None] = lambda why: None

    def send(self, placement: str, messages: Sequence[Message]) -> list[Answer]:
        """Send messages of one kind to a placement; return the outcome of each, in order.

        A message that the service refuses has a BadEvent as outcome. To find it, a refused batch is split,
        and its parts are sent again.

        Raises
        ------
        ServiceError
            If the service refuses all messages, or gives no answer for too long; outcomes are then unknown.
        """
        answers: list[Answer] = []
        # Stack of batches to send; a refused batch is replaced by its parts, the next one on top.
        batches = [messages]
        while batches:
            batch = batches.pop()
            try:
                answers += map(parse_outcome, self._send_messages(placement, batch))
            except (InvalidValue, InvalidRequest, NotFound) as error:
                refusal = BadEvent(getattr(error, "kind", "") or "invalid-value", str(error))
                if error.field == "placement" or refusal.reason == "unknown-placement":
                    answers += [refusal] * len(batch)
                elif refusal.reason not in ("invalid-value", "body-too-large"):
                    raise
                elif len(batch) == 1:
                    answers.append(refusal)
                else:
                    batches += reversed(_split_messages(batch, error.field))
        return answers

    def _send_messages(self, placement: str, messages: Sequence[Message]) -> list[Recorded | TakenOver]:
        """Send messages, all of one type, by the client's call for that type; return the service's answers.

        The call is repeated while the service does not answer.
        """
        client, kind = self.client, type(messages[0])
        calls: dict[type, Any] = {
            Feedback: client.feedback_many,
            LocalDecision: client.log_decisions,
            Event: client.record_examinations,
        }
        call = calls.get(kind, client.clicks_many)
        recorded: list[Recorded | TakenOver] = self._call_until_answered(call, placement, messages)
        return recorded

    def save_offsets(self, placement: str, feed: str, offsets: Mapping[str, int]) -> None:
        """Save in the service's log the offsets up to which a feed's events were sent."""
        self._call_until_answered(self.client.log_feed_offsets, placement, feed, offsets)

    def read_offsets(self, feed: str) -> Mapping[str, int]:
        """Return a feed's saved offset of each partition, from the service's log; with retries."""
        offsets: Mapping[str, int] = self._call_until_answered(self.client.read_feed_offsets, feed).offsets
        return offsets

    def _call_until_answered(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of a call, repeated with growing pauses while the service is unavailable.

        ``waiting`` is called before each pause. Raises Unavailable if patience ends or the feed is stopping.
        """
        start, pause = time.monotonic(), FIRST_PAUSE
        while True:
            try:
                return call(*arguments)
            except Unavailable as error:
                if self.stopping() or time.monotonic() - start > self.patience:
                    raise
                self.waiting(error.what)
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE)


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
        self._last_report = time.monotonic(), 0

    def __call__(self, *, ended: bool = False) -> None:
        """Send a report to the service if the last one is 5 seconds old or the feed has ended; ignore errors.

        A report has the tally's counts, and the rate in events per second since the last report.
        """
        (last_time, last_read), now = self._last_report, time.monotonic()
        if now - last_time < REPORT_SECONDS and not ended:
            return
        self._last_report = now, self._tally.read
        rate = (self._tally.read - last_read) / max(now - last_time, 1e-3)
        with suppress(ServiceError, InvalidValue):
            self._client.report_feed(self._name, self._tally.report(0.0 if ended else rate, ended))


def _split_messages(messages: Sequence[Message], field: str) -> list[Sequence[Message]]:
    """Return a refused batch cut into parts, in order, none of them empty.

    If the refused ``field`` names an index, such as ``feedback[7].reward``, the parts are the messages before
    it, the message itself, and the messages after it; otherwise two halves.
    """
    match = _MESSAGE_INDEX.match(field)
    refused = int(match[1]) if match else len(messages) // 2
    cuts = [0, refused, refused + 1, len(messages)] if match else [0, refused, len(messages)]
    return [messages[begin:end] for begin, end in pairwise(cuts) if begin < end]


MAX_BATCH_BYTES = 16 * 2**20
"""Bytes of events in a batch, which bounds memory however large events are."""
SAVE_SECONDS = 1.0
"""Seconds between saved positions."""
MIN_JUDGED = 1000
"""Minimum number of sent or rejected events before the share of rejected ones can stop a feed."""


# ---- Limits of rejected events


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


class PendingEvent(NamedTuple):
    """An event and its message to the service."""

    source_event: SourceEvent
    placement: str
    message: Message
    time: float | None


# ---- Feeding: read, map, send in batches, count when the service has answered


@dataclass
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

    source: EventSource
    mapper: Mapper
    sender: Sender
    tally: FeedTally
    rejected: RejectedFile
    limits: Limits
    stopping: Callable[[], bool] = lambda: False
    progress: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._batch_in_flight: tuple[list[PendingEvent], Any, Future[list[Answer]]] | None = None
        self._position: Any = None
        self._placement = ""
        self._saved_at = time.monotonic()

    def feed(self) -> None:
        """Send all events of the source in batches, count their outcomes, and save positions now and then.

        Rejected events are written to the file of rejected events. It ends early if ``stopping`` is true.

        Raises
        ------
        TooManyRejected
            If the limits are exceeded; earlier events have been sent.
        ServiceError
            If the service refuses everything, or gives no answer for too long.
        """
        with ThreadPoolExecutor(1, "tacit-feed") as threads:
            for batch in self._iter_batches():
                position = self.source.position()
                self._settle()
                self._batch_in_flight = batch, position, threads.submit(self._send_batch, batch)
            self._settle()
        self._save_position()
        self._check_limits()

    def _iter_batches(self) -> Iterator[list[PendingEvent]]:
        """Yield batches of events to send: when a batch is full, or the source has no more for now.

        If the source has no more for now, also settle the batch in flight and save the position. It ends with
        the source, on a stop, or if too many events are rejected; the last batch may be empty.
        """
        batch: list[PendingEvent] = []
        size = 0
        for source_event in self.source:
            if source_event is not None and (pending := self._map_event(source_event)) is not None:
                batch.append(pending)
                size += source_event.size
            if source_event is None or len(batch) == MAX_MESSAGES or size >= MAX_BATCH_BYTES:
                yield batch
                batch, size = [], 0
            if source_event is None:
                self._settle()
                self._save_position()
            if self.stopping() or self._has_too_many_rejected():
                break
        yield batch

    def _map_event(self, source_event: SourceEvent) -> PendingEvent | None:
        """Count an event, and return it with its message to the service, or None if it has none.

        None is returned for malformed events, which are also written to the file of rejected events, for
        events that the map leaves out, and for impressions of the service's decisions, which the mapper
        stores.
        """
        mapped = self.tally.map_event(self.mapper, source_event)
        if self.tally.read % MAX_MESSAGES == 0:
            self.progress()
        if isinstance(mapped, BadEvent):
            self.rejected.write(source_event, mapped)
        elif isinstance(mapped, MappedEvent) and mapped.message is not None:
            return PendingEvent(source_event, mapped.placement, mapped.message, mapped.time)
        return None

    def _send_batch(self, batch: list[PendingEvent]) -> list[Answer]:
        """Send a batch, one request per placement and kind of message; return the events' outcomes, in order.

        Decisions are sent before feedback. If access to a placement is denied and events name placements, its
        events have a BadEvent as outcome; otherwise Denied is raised.
        """
        groups: dict[tuple[str, type], list[int]] = {}
        for i, pending in enumerate(batch):
            groups.setdefault((pending.placement, type(pending.message)), []).append(i)
        answers: dict[int, Answer] = {}
        decisions_first = sorted(groups.items(), key=lambda group: group[0][1] is not LocalDecision)
        for (placement, _), indices in decisions_first:
            try:
                group_answers = self.sender.send(placement, [batch[i].message for i in indices])
            except Denied as error:
                # If events name placements, access denied to one placement must not stop the others.
                if error.field != "placement" or self.mapper.has_one_placement:
                    raise
                group_answers = [BadEvent("forbidden", str(error))] * len(indices)
            answers.update(zip(indices, group_answers, strict=True))
        return [answers[i] for i in range(len(batch))]

    def _settle(self) -> None:
        """Wait for the answers to the batch in flight, if any, and count or reject its events.

        Also flush the file of rejected events, save the position if the last save is more than a second old,
        and call ``progress``. The position to save does not advance if too many events are rejected.
        """
        if self._batch_in_flight is not None:
            (batch, position, answers), self._batch_in_flight = self._batch_in_flight, None
            for pending, answer in zip(batch, answers.result(), strict=True):
                if isinstance(answer, BadEvent):
                    self.tally.reject(pending.source_event, answer)
                    self.rejected.write(pending.source_event, answer)
                else:
                    self._placement = pending.placement
                    self.tally.settle(pending.message, answer, pending.time)
            self.rejected.flush()
            # If the feed stops for a rejected event, that event is read again next time.
            if not self._has_too_many_rejected():
                self._position = position
            if time.monotonic() - self._saved_at > SAVE_SECONDS:
                self._save_position()
        self.progress()

    def _save_position(self) -> None:
        """Save the position of the last settled batch in the service's log, then commit it to the source.

        Nothing happens if there is no new position.
        """
        if not self._position:
            return
        if self._placement:
            self.sender.save_offsets(self._placement, self.source.name, self._position)
        self.source.commit(self._position)
        self._position, self._saved_at = None, time.monotonic()

    def _has_too_many_rejected(self, ended: bool = False) -> bool:
        """True if the rejected events exceed the limits.

        Their share is judged only from 1,000 events on, or if ``ended``.
        """
        tally, limits = self.tally, self.limits
        if not tally.rejected:
            return False
        return limits.strict or ((ended or tally.event_count >= MIN_JUDGED) and tally.share > limits.share)

    def _check_limits(self) -> None:
        """Raise TooManyRejected if the rejected events exceed the limits at the end of a feed."""
        tally, limits = self.tally, self.limits
        if self._has_too_many_rejected(ended=not self.stopping()):
            allowed = "none is allowed" if limits.strict else f"at most {100 * limits.share:g} % are allowed"
            raise TooManyRejected(
                f"{'strict' if limits.strict else 'most_rejected'}: {tally.rejected.total():,} of "
                f"{tally.event_count:,} events are rejected, {allowed}; "
                "mend the map or the source, or allow more"
            )


# ---- Preview without sending (``--check``)


def preview_events(
    mapper: Mapper, source: Iterable[SourceEvent | None], tally: FeedTally, max_events: int
) -> Iterator[str]:
    """Yield a line for each of the first events with the message it would send, without sending.

    The tally counts each event as it is read: as foreseen, remembered, left out or rejected.

    Parameters
    ----------
    mapper : Mapper
    source : iterable of SourceEvent or None
    tally : FeedTally
    max_events : int
        Most events to preview.
    """
    for source_event in islice(filter(None, source), max_events):
        yield f"{source_event.place}: {_preview_event(mapper, source_event, tally)}"


def _preview_event(mapper: Mapper, source_event: SourceEvent, tally: FeedTally) -> str:
    """Return the text of an event's message, or why it has none; count the event in the tally."""
    mapped = tally.map_event(mapper, source_event)
    if isinstance(mapped, BadEvent):
        return f"rejected, {mapped.reason}: {mapped.detail}"
    if isinstance(mapped, str):
        return f"left out: {mapped}"
    placement, message, time = mapped
    if message is None:
        return f"{placement}: what was shown, to be joined to"
    tally.count(FORESEEN, time)
    fields = ", ".join(
        f"{field} {getattr(message, field)}"
        for field in ("key", "arm", "propensity", "reward", "clicks", "items", "metrics")
        if getattr(message, field, None) is not None
    )
    return f"{placement}: decision {message.decision_id}: {fields or 'seen'}"
