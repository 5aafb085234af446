"""What became of events: counted, the first of each kind of trouble kept, all trouble written to a file."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from tacit.errors import ConfigError
from tacit.feed.mapping import EventCounts
from tacit.feed.sources import REJECTED, Found
from tacit.wire.decisions import OUTCOMES, Feedback

DUPLICATE, FORESEEN, REMEMBERED = "duplicate", "foreseen", "remembered"
MADE = {
    "logged": "it was decided elsewhere, and is a decision here now",
    REMEMBERED: "it says what was shown, and events without a decision's id are joined to it",
}
"""What became of events besides feedback."""
ONLY_CLICKS = (
    "no event says what was not clicked, which is learned only as windows close: of past events that is "
    "after all clicks, and misleads; add events that are worth 0, or feed them with --past"
)
TOO_LATE = (
    "aggregation: {:,} rewards above 0 came to decisions that had one, mostly 0, and the first counts: "
    'leave out what is worth 0, which is learned as windows close, or give the placement aggregation = "max"'
)
ALL_LEFT_OUT = "the map leaves all events out: mend its [where], [reward] or event"
TELLING, MOSTLY = 10, 0.9
"""So many rewards, and so large a share of them, are not repeated by second clicks."""
FIELD = re.compile(r"[\w.\[\]-]+(?=: )")
MOST_FAULTS, MOST_SAID = 50, 3
CHARACTERS = 200
"""The most that is shown of an event."""


class First(NamedTuple):
    """The first event that was rejected for a reason."""

    source: str
    line: int
    place: str
    detail: str
    text: str


class FeedTally(EventCounts):
    """Counts of what became of events, with the first of each kind of trouble.

    Attributes
    ----------
    faults : Counter
        Rejected ones by reason and field, where there is one.
    firsts : dict
        The first of each of these.
    unclicked : int
        Events that say that there was no reward.
    clicked : Counter
        Events with a reward, by what the service made of them.
    why_left_out : Counter
        Those that the map leaves out, by the first reasons that there were.

    Parameters
    ----------
    doubts : sequence of str
        What is doubted of the map, which may grow meanwhile.
    """

    def __init__(self, doubts: Sequence[str] = ()) -> None:
        super().__init__()
        self._doubts = doubts
        self.clicked: Counter[str] = Counter()
        self.faults: Counter[tuple[str, str]] = Counter()
        self.firsts: dict[tuple[str, str], First] = {}
        self.unclicked = 0
        self.why_left_out: Counter[str] = Counter()

    @property
    def first(self) -> dict[str, First]:
        """The first rejected one by reason."""
        return {reason: first for (reason, _), first in reversed(self.firsts.items())}

    @property
    def judged(self) -> int:
        """How many the map does not leave out."""
        return self.read - self.left_out

    @property
    def share(self) -> float:
        """The share of these that is rejected."""
        return self.rejected.total() / max(1, self.judged)

    def leave_out(self, why: str) -> None:
        """Count an event that the map leaves out."""
        self.left_out += 1
        if why in self.why_left_out or len(self.why_left_out) < MOST_FAULTS:
            self.why_left_out[why] += 1

    @property
    def warnings(self) -> list[str]:
        """What misleads in what was sent."""
        made, known, repeated = self.sent["logged"], self.sent[REMEMBERED], self.clicked["repeated"]
        late = self.unclicked and repeated >= max(TELLING, MOSTLY * self.clicked.total())
        return [
            *[ONLY_CLICKS] * (0 < made < self.sent.total() - known and not self.unclicked),
            *[TOO_LATE.format(repeated)] * bool(late),
            *[ALL_LEFT_OUT] * (0 < self.read == self.left_out),
            *self._doubts,
        ]

    def settle(self, message: Any, outcome: str, time: float | None) -> None:
        """Count an event that was sent, by what was in it, too."""
        self.count(outcome, time)
        if isinstance(message, Feedback):
            nothing = not any((message.reward, *(message.metrics or {}).values()))
            self.unclicked += nothing
            self.clicked[outcome] += not nothing

    def reject(self, found: Found, reason: str, detail: str) -> None:
        """Count an event that was rejected."""
        self.rejected[reason] += 1
        named = FIELD.match(detail)
        # Events may bring fields of any name.
        fault = reason, named[0] if named and len(self.firsts) < MOST_FAULTS else ""
        self.faults[fault] += 1
        if fault not in self.firsts:
            self.firsts[fault] = First(found.source, found.line, found.place, detail, shown(found))

    def summary(self) -> str:
        """Return what became of all, in lines."""
        sent, rejected = self.sent.total() - self.sent[REMEMBERED], self.rejected.total()
        word = "would be sent" if self.sent[FORESEEN] else "sent"
        counts = f"{sent:,} {word}, {self.left_out:,} left out by the map, {rejected:,} rejected"
        lines = [f"{self.read:,} events: {counts}"]
        if remembered := self.sent[REMEMBERED]:
            lines[0] += f", {remembered:,} remembered"
        for outcome, count in self.sent.most_common():
            if outcome == FORESEEN:
                continue
            lines.append(f"  {count:,} {outcome}: {(OUTCOMES | MADE).get(outcome, 'as the service says it')}")
        lines += [f"  {count:,} left out: {why}" for why, count in self.why_left_out.most_common(MOST_SAID)]
        for fault, count in self.faults.most_common():
            reason, first = fault[0], self.firsts[fault]
            lines += [
                f"  {count:,} rejected, {reason}; the first in {first.place}:",
                f"    {first.detail}",
                f"    {first.text}",
            ]
        if sent and sent == self.sent[DUPLICATE]:
            lines.append(f"nothing changed: all {sent:,} were sent before")
        return "\n".join([*lines, *self.warnings])

    def as_dict(self) -> dict[str, Any]:
        """Return what became of all, for machines."""
        return {
            "read": self.read,
            "left_out": self.left_out,
            "sent": dict(self.sent),
            "rejected": dict(self.rejected),
            "first": {reason: first._asdict() for reason, first in self.first.items()},
            "last": self.last,
            "warnings": self.warnings,
        }


def shown(found: Found) -> str:
    """Return an event as it is shown to people, at most 200 characters of it."""
    text = found.text if found.event is None else msgspec.json.encode(found.event, enc_hook=str).decode()
    return text if len(text) <= CHARACTERS else text[: CHARACTERS - 3] + "..."


class RejectedFile:
    """A file of JSON lines to which rejected events are added; none where there is no path.

    Parameters
    ----------
    path : path or None

    Raises
    ------
    ConfigError
        If it cannot be written.
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

    def write(self, found: Found, reason: str, detail: str) -> None:
        """Add an event, with the reason and the place where it was."""
        why = {"reason": reason, "detail": detail, "source": found.source, "line": found.line}
        event = found.text if found.event is None else found.event
        line = {REJECTED: why | {"named": found.named}, "event": event}
        self._file.write(msgspec.json.encode(line, enc_hook=str) + b"\n")

    def flush(self) -> None:
        """See to it that what was added is in the file."""
        self._file.flush()
