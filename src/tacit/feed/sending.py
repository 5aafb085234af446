"""Batches of feedback sent to a service: for as long as it takes, and what it refuses kept apart."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

from tacit.client.errors import InvalidRequest, NotFound, ServiceError, Unavailable
from tacit.errors import InvalidValue
from tacit.events.mapping import BadEvent, Message, outcome_of
from tacit.feed.tally import FeedTally
from tacit.wire.decisions import Event, Feedback, LocalDecision, Recorded, TakenOver

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
    pause : function
        Waits for some seconds.
    """

    def __init__(
        self,
        client: Any,
        patience: float,
        stopping: Callable[[], bool] = lambda: False,
        waiting: Callable[[str], None] = lambda why: None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._patience = patience
        self._stopping = stopping
        self._waiting = waiting
        self._pause = pause

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
            self._pause(pause)
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
