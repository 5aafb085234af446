"""Count events by outcome, with an example of each fault, and write rejected events to a file."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from tacit.errors import ConfigError
from tacit.feed.mapping import BadEvent, EventCounts, MappedEvent, Mapper
from tacit.feed.sources import REJECTED_KEY, SourceEvent
from tacit.wire.decisions import OUTCOMES, Feedback

DUPLICATE, FORESEEN, REMEMBERED = "duplicate", "foreseen", "remembered"
EVENT_OUTCOMES = {
    "logged": "it was decided elsewhere, and is a decision here now",
    REMEMBERED: "it says what was shown, and events without a decision's id are joined to it",
}
"""Meanings of outcomes of events other than feedback."""
ONLY_CLICKS = (
    "no event says what was not clicked, which is learned only as windows close: of past events that is "
    "after all clicks, and misleads; add events that are worth 0, or feed them with --past"
)
TOO_LATE = (
    "aggregation: {:,} rewards above 0 came to decisions that had one, mostly 0, and the first counts: "
    'leave out what is worth 0, which is learned as windows close, or give the placement aggregation = "max"'
)
ALL_LEFT_OUT = "the map leaves all events out: mend its [where], [reward] or event"
MIN_REPEATED, MIN_REPEATED_SHARE = 10, 0.9
"""More repeated rewards than this, in number and share, cannot be second clicks."""
FIELD = re.compile(r"[\w.\[\]-]+(?=: )")
MAX_FAULTS, MAX_REASONS = 50, 3
MAX_CHARACTERS = 200
"""Most characters of an event in messages."""


class FirstRejected(NamedTuple):
    """The first event rejected for a reason."""

    source: str
    line: int
    place: str
    detail: str
    text: str


class FeedTally(EventCounts):
    """Counts of a feed's events by outcome, with the first event of each fault.

    Attributes
    ----------
    faults : Counter
        Rejected events by reason and field, if the message names one.
    firsts : dict
        The first event of each fault, by reason and field.
    unclicked : int
        Number of feedback events whose reward and metrics are 0 or missing.
    clicked : Counter
        Feedback events with a reward or metric above 0, by outcome.
    skip_reasons : Counter
        Events that the map leaves out, by reason; only the first reasons are counted.

    Parameters
    ----------
    map_warnings : sequence of str
        Warnings about the map, a sequence that may grow.
    """

    def __init__(self, map_warnings: Sequence[str] = ()) -> None:
        super().__init__()
        self._map_warnings = map_warnings
        self.clicked: Counter[str] = Counter()
        self.faults: Counter[tuple[str, str]] = Counter()
        self.firsts: dict[tuple[str, str], FirstRejected] = {}
        self.unclicked = 0
        self.skip_reasons: Counter[str] = Counter()

    @property
    def first(self) -> dict[str, FirstRejected]:
        """The earliest rejected event of each reason, by reason."""
        return {reason: first for (reason, _), first in reversed(self.firsts.items())}

    @property
    def event_count(self) -> int:
        """Number of events read that the map does not leave out."""
        return self.read - self.left_out

    @property
    def share(self) -> float:
        """Share of rejected events among all that the map does not leave out, in [0, 1]."""
        return self.rejected.total() / max(1, self.event_count)

    def map_event(self, mapper: Mapper, source_event: SourceEvent) -> MappedEvent | str | BadEvent:
        """Map an event and count it as read and, if it has no message, as rejected, left out or remembered.

        Return the mapped event, whose message is None if it is only remembered; the text why the map leaves
        it out; or, for a malformed or invalid event, the BadEvent, which is not raised.
        """
        self.read += 1
        try:
            if source_event.event is None:
                raise BadEvent(source_event.reason, source_event.detail)
            mapped = mapper.read(source_event.event, source_event.event_id)
        except BadEvent as error:
            self.reject(source_event, error)
            return error
        if isinstance(mapped, str):
            self.left_out += 1
            # Only the first reasons are told apart.
            if mapped in self.skip_reasons or len(self.skip_reasons) < MAX_FAULTS:
                self.skip_reasons[mapped] += 1
        elif mapped.message is None:
            self.count(REMEMBERED, mapped.time)
        return mapped

    @property
    def warnings(self) -> list[str]:
        """Warnings about the events so far, such as clicks without non-clicks, then those about the map."""
        logged, remembered, repeated = self.sent["logged"], self.sent[REMEMBERED], self.clicked["repeated"]
        many = max(MIN_REPEATED, MIN_REPEATED_SHARE * self.clicked.total())
        comes_late = self.unclicked and repeated >= many
        return [
            *[ONLY_CLICKS] * (0 < logged < self.sent.total() - remembered and not self.unclicked),
            *[TOO_LATE.format(repeated)] * bool(comes_late),
            *[ALL_LEFT_OUT] * (0 < self.read == self.left_out),
            *self._map_warnings,
        ]

    def settle(self, message: Any, outcome: str, time: float | None) -> None:
        """Count a sent event by its outcome; feedback also by whether it has a reward or metric above 0.

        ``time`` is the event's time in seconds since 1970, which updates the latest one.
        """
        self.count(outcome, time)
        if isinstance(message, Feedback):
            is_unclicked = not any((message.reward, *(message.metrics or {}).values()))
            self.unclicked += is_unclicked
            self.clicked[outcome] += not is_unclicked

    def reject(self, source_event: SourceEvent, error: BadEvent) -> None:
        """Count a rejected event by reason and field, and store the first event of each such fault.

        The field is the one that begins the error's message.
        """
        self.rejected[error.reason] += 1
        field = FIELD.match(error.detail)
        # Bounded, because events may have fields of any name.
        fault = error.reason, field[0] if field and len(self.firsts) < MAX_FAULTS else ""
        self.faults[fault] += 1
        if fault not in self.firsts:
            place = source_event.source, source_event.line, source_event.place
            self.firsts[fault] = FirstRejected(*place, error.detail, event_text(source_event))

    def summary(self) -> str:
        """Return all counts, the first event of each fault and the warnings, in lines of text."""
        sent_count, rejected = self.sent.total() - self.sent[REMEMBERED], self.rejected.total()
        word = "would be sent" if self.sent[FORESEEN] else "sent"
        counts = f"{sent_count:,} {word}, {self.left_out:,} left out by the map, {rejected:,} rejected"
        lines = [f"{self.read:,} events: {counts}"]
        if remembered := self.sent[REMEMBERED]:
            lines[0] += f", {remembered:,} remembered"
        for outcome, count in self.sent.most_common():
            if outcome == FORESEEN:
                continue
            lines.append(
                f"  {count:,} {outcome}: {(OUTCOMES | EVENT_OUTCOMES).get(outcome, 'as the service says it')}"
            )
        lines += [
            f"  {count:,} left out: {skip_reason}"
            for skip_reason, count in self.skip_reasons.most_common(MAX_REASONS)
        ]
        for fault, count in self.faults.most_common():
            reason, first = fault[0], self.firsts[fault]
            lines += [
                f"  {count:,} rejected, {reason}; the first in {first.place}:",
                f"    {first.detail}",
                f"    {first.text}",
            ]
        if sent_count and sent_count == self.sent[DUPLICATE]:
            lines.append(f"nothing changed: all {sent_count:,} were sent before")
        return "\n".join([*lines, *(f"warning: {warning}" for warning in self.warnings)])

    def as_dict(self) -> dict[str, Any]:
        """Return all counts, first rejected events and warnings as a dict for JSON."""
        return {
            "read": self.read,
            "left_out": self.left_out,
            "sent": dict(self.sent),
            "rejected": dict(self.rejected),
            "first": {reason: first._asdict() for reason, first in self.first.items()},
            "last": self.last,
            "warnings": self.warnings,
        }


def event_text(source_event: SourceEvent) -> str:
    """Return an event as JSON, or a malformed entry as it is, of at most 200 characters, for messages."""
    text, event = source_event.text, source_event.event
    if event is not None:
        text = msgspec.json.encode(event, enc_hook=str).decode()
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 3] + "..."


class RejectedFile:
    """A file of JSON lines to which rejected events are appended; without a path they are discarded.

    Parameters
    ----------
    path : path or None

    Raises
    ------
    ConfigError
        If the file cannot be written.
    """

    def __init__(self, path: Path | None) -> None:
        try:
            self._file = Path(path or os.devnull).open("ab")  # noqa: SIM115
        except OSError as error:
            raise ConfigError(f"rejected: {path} cannot be written: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._file.close()

    def write(self, source_event: SourceEvent, error: BadEvent) -> None:
        """Append an event as a JSON line, with the reason, message and place of its rejection."""
        rejection = {
            "reason": error.reason,
            "detail": error.detail,
            "source": source_event.source,
            "line": source_event.line,
            "named": source_event.event_id,
        }
        event = source_event.text if source_event.event is None else source_event.event
        line = {REJECTED_KEY: rejection, "event": event}
        self._file.write(msgspec.json.encode(line, enc_hook=str) + b"\n")

    def flush(self) -> None:
        """Write the buffered lines to the file."""
        self._file.flush()
