"""The searches of a duel placement, as its log tells them, added up for the verdict."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from tacit.errors import InvalidValue
from tacit.evaluate.interleaved.folding import Fold
from tacit.evaluate.interleaved.own import own_search
from tacit.evaluate.interleaved.report import InterleavedReport
from tacit.evaluate.interleaved.searches import Search
from tacit.interleaving import CreditRule
from tacit.service.attribution.attribution import Rewards
from tacit.service.attribution.clicks import ClickAttribution
from tacit.service.log.blocks import distinct
from tacit.service.log.rows import DecisionRow, Event, FeedbackRow, stretches
from tacit.service.placements.duels import DuelOptions, duel_of

MOST_UNITS = 100_000
MOST_VALUES = 200
"""So many values of a segment are told apart, those that came first."""


class DuelLog:
    """Follows the log of a placement, part by part: the sums are those of ``tacit duel``.

    Searches count once their windows have closed, in the order in which they were decided,
    whenever that is: so the sums depend on the log alone. Memory is that of the open windows, and
    a bound.

    Parameters
    ----------
    placement : Placement
        Of duels; its number, its rule and its options are read.

    Attributes
    ----------
    seq, time : int
        The last row that was taken in; 0 before the first.
    since : int or None
        When the first decision was made.
    beyond : dict of str to int
        Per segment, searches whose value is not told apart, since so many came before.
    """

    def __init__(self, placement: Any) -> None:
        options: DuelOptions = placement.config.options
        self._id, self._rule = placement.id, placement.config.rule
        self._windows = ClickAttribution(self._rule)
        self._fold = Fold(CreditRule(options.worth), options.segments, most_units=MOST_UNITS)
        self._values: dict[str, set[str]] = {name: set() for name in options.segments}
        self._rankers: set[str] = set()
        # Decisions that are not counted yet, each with when it is given up at the latest.
        self._waiting: deque[tuple[int, int]] = deque()
        self._closed: dict[int, Search | None] = {}
        self.seq = self.time = 0
        self.since: int | None = None
        self.beyond: dict[str, int] = {}

    @property
    def open(self) -> int:
        """How many decisions are not counted yet."""
        return len(self._waiting)

    @property
    def closes(self) -> int | None:
        """When the last of them counts, at the latest."""
        return max((end for _, end in self._waiting), default=None)

    def take(self, events: Sequence[Event]) -> None:
        """Take in the next rows of the log, of whatever placement."""
        for rows in stretches(events):
            self._close(self._windows.advance(rows.column("time")[0]))
            if rows.column("placement")[0] != self._id:
                continue
            if rows.kind is DecisionRow:
                self._windows.decided(rows)
                self._wait(rows)
            elif rows.kind is FeedbackRow:
                for part in distinct(rows, "decision"):
                    for rewards in self._windows.told(part)[1]:
                        self._close(rewards)
        if events:
            self.seq, self.time = events[-1].seq, events[-1].time
        self._count()

    def report(self, confidence: float, false_share: float) -> InterleavedReport | None:
        """Return what all searches so far say; None before two rankers have dueled.

        Raises
        ------
        InvalidValue
            If a value is out of its range.
        """
        found = self._fold.found(sorted(self._rankers))
        if not found.tally.sums:
            return None
        return InterleavedReport(found, confidence, false_share)

    def _wait(self, rows: Any) -> None:
        if self.since is None:
            self.since = rows.column("time")[0]
        for seq, time, deferred in zip(
            *(rows.column(name) for name in ("seq", "time", "deferred")), strict=True
        ):
            longest = self._rule.window + (self._rule.activation if deferred else 0)
            self._waiting.append((seq, time + longest))

    def _close(self, rewards: Rewards) -> None:
        rows = self._windows.rows(rewards.slots)
        for row, came in zip(rows, rewards.values, strict=True):
            self._closed[row.seq] = self._search(row, came)

    def _search(self, row: DecisionRow, came: Any) -> Search | None:
        """Return a search; None of what a control showed, or what no log of searches can hold."""
        if row.control:
            return None
        told = duel_of(row, came)
        try:
            search = own_search(told, row.id)
        except InvalidValue:
            return None
        segments = {name: told[name] for name in self._values if name in told}
        return search._replace(unit=told["user"] or search.unit, segments=segments)

    def _count(self) -> None:
        """Count all that are closed, up to the first that may still be."""
        while self._waiting:
            seq, end = self._waiting[0]
            if seq not in self._closed and end > self._windows.time:
                return
            self._waiting.popleft()
            search = self._closed.pop(seq, None)
            if search is not None:
                self._rankers.update(search.rankers)
                self._fold.add(search._replace(segments=self._apart(search)))

    def _apart(self, search: Search) -> dict[str, str]:
        """Return the segments of a search that are told apart."""
        kept = {}
        for name, value in search.segments.items():
            known = self._values[name]
            if len(known) < MOST_VALUES:
                known.add(value)
            if value in known:
                kept[name] = value
            else:
                self.beyond[name] = self.beyond.get(name, 0) + 1
        return kept
