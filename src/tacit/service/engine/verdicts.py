"""Verdicts on duels, from the searches that the log tells, read when somebody asks."""

# 1. ``DuelLog``: the searches of one placement, followed through its log, added up.
# 2. ``Verdicts``: the log is read when somebody asks, from where the last reading ended.

from __future__ import annotations

import asyncio
import time as clocks
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from tacit.errors import InvalidValue
from tacit.evaluate.interleaved.report import Fold, InterleavedReport
from tacit.evaluate.interleaved.searches import Search, own_search
from tacit.interleaving import CreditRule
from tacit.service.engine.writer import Serving
from tacit.service.log.blocks import distinct
from tacit.service.log.ids import moment
from tacit.service.log.rows import DecisionRow, Event, FeedbackRow, stretches
from tacit.service.placements.attribution import ClickAttribution, Lessons
from tacit.service.placements.duels import DuelOptions, duel_of
from tacit.uplift.boundary import ANY_TIME
from tacit.uplift.sentences import open_sentence

# ---- The searches of a duel placement, as its log tells them, added up for the verdict

MOST_UNITS = 100_000
MOST_VALUES = 200
"""So many values of a segment are kept apart, those that came first."""


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
        Per segment, searches whose value is not kept apart, since so many came before.
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
                    for rewards in self._windows.take_in(part)[1]:
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

    def _close(self, rewards: Lessons) -> None:
        rows = self._windows.rows(rewards.entries)
        for row, came in zip(rows, rewards.values, strict=True):
            self._closed[row.seq] = self._search(row, came)

    def _search(self, row: DecisionRow, came: Any) -> Search | None:
        """Return a search; None of what a control showed, or what no log of searches can hold."""
        if row.control:
            return None
        duel = duel_of(row, came)
        try:
            search = own_search(duel, row.id)
        except InvalidValue:
            return None
        segments = {name: duel[name] for name in self._values if name in duel}
        return search._replace(unit=duel["user"] or search.unit, segments=segments)

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
        """Return the segments of a search that are kept apart."""
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


# ---- Verdicts on duels, read from the log when somebody asks, and not before
#
# A log is read on from where it was read to before, in the background, a part at a time, one log at
# a time: a caller waits a moment, gets what is known by then, and whether that is all. What
# is known of a part of the log is an earlier look at the same test, and as safe as any.

ROWS = 500
"""Rows that are read at once, so that no commit waits long, and no decision either."""
PATIENCE = 2.0
"""Seconds for which somebody who asks waits for the log to be read."""
MOST_SAID = 10
"""So many questions are remembered with their answers, until more is read."""
TOO_EARLY = "Too early:"
NO_DUEL = f"{TOO_EARLY} no two rankers have dueled."
NOT_READ = "The log is being read; ask again."
NOT_IN_SHARDS = "in shards each has a part of the log; export the logs of all, and give them to tacit duel"


class ReadVerdict(NamedTuple):
    """What the searches of a placement say by now.

    Attributes
    ----------
    verdict : str
        In words.
    report : dict or None
        As :class:`~tacit.evaluate.interleaved.InterleavedReport` gives it; None before two rankers
        have dueled.
    since : int or None
        When the first decision that the log has was made, in microseconds since 1970.
    until : int
        The time of the last row that was read; 0 before the first.
    open : int
        Decisions that were read and are not counted yet, as their windows are open.
    whole : bool
        Whether the log was read to its end; else ask again.
    beyond : dict of str to int
        Per segment, searches whose value is not kept apart.
    """

    verdict: str
    report: dict[str, Any] | None
    since: int | None
    until: int
    open: int
    whole: bool
    beyond: dict[str, int]


class Verdicts:
    """Verdicts on the duel placements of an engine.

    Parameters
    ----------
    engine : Serving
    """

    def __init__(self, engine: Serving) -> None:
        self._engine = engine
        self._logs: dict[str, _Reading] = {}
        self._one = asyncio.Lock()

    async def of(
        self, name: str, confidence: float, false_share: float, patience: float = PATIENCE
    ) -> ReadVerdict:
        """Return what the searches of a placement say by now.

        Parameters
        ----------
        name : str
        confidence : float
            0.9, 0.95 or 0.99.
        false_share : float
            Of the segments that are found, so much is wrong at most, on average; in (0, 1].
        patience : float
            Seconds to wait for what is not read yet.

        Raises
        ------
        UnknownName, InvalidValue
            If there is no such placement, it is none of duels, or a value is out of its range.
        Unavailable
            If the store fails.
        """
        if confidence not in ANY_TIME:
            raise InvalidValue("confidence", confidence, f"give one of {list(ANY_TIME)}")
        if not 0.0 < false_share <= 1.0:
            raise InvalidValue("false_share", false_share, "give a number above 0, up to 1")
        placement = self._engine.placement(name)
        known = self._logs.get(name)
        if known is None or known.means != _means(placement):
            known = self._logs[name] = _Reading(placement)
        if known.task is None or known.task.done():
            known.task = asyncio.create_task(self._read(name, known))
            # Nobody may be there to see what went wrong.
            known.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.wait([known.task], timeout=patience)
        if known.task.done():
            # What went wrong is for the caller.
            known.task.result()
        async with known.busy:
            return await asyncio.to_thread(known.verdict, confidence, false_share)

    def begin_anew(self) -> None:
        """Read every log from its beginning again, as rows of it have changed."""
        self._logs.clear()

    async def _read(self, name: str, reading: _Reading) -> None:
        """Read a log to its end."""
        async with self._one:
            reading.whole = False
            while rows := await self._engine.logged(name, reading.log.seq, ROWS):
                begun = clocks.monotonic()
                async with reading.busy:
                    await asyncio.to_thread(reading.take, rows)
                if len(rows) < ROWS:
                    break
                # Half of the time is for those who decide.
                await asyncio.sleep(clocks.monotonic() - begun)
            reading.whole = True


class _Reading:
    """A log that is read, and what was said of it."""

    def __init__(self, placement: Any) -> None:
        self.means, self.log = _means(placement), DuelLog(placement)
        self.busy, self.whole = asyncio.Lock(), False
        self.task: asyncio.Task[None] | None = None
        self._said: dict[tuple[float, float], ReadVerdict] = {}

    def take(self, rows: Sequence[Event]) -> None:
        """Take in the next rows."""
        self.log.take(rows)
        self._said.clear()

    def verdict(self, confidence: float, false_share: float) -> ReadVerdict:
        """Return the verdict on what was read; the same question is answered once."""
        asked = confidence, false_share
        if asked not in self._said:
            if len(self._said) == MOST_SAID:
                self._said.clear()
            self._said[asked] = self._worked_out(*asked)
        said = self._said[asked]
        if said.report is None and not self.whole:
            said = said._replace(verdict=NOT_READ)
        return said._replace(whole=self.whole)

    def _worked_out(self, confidence: float, false_share: float) -> ReadVerdict:
        log = self.log
        report = log.report(confidence, false_share)
        table = None if report is None else report.as_dict()
        verdict = NO_DUEL if report is None else report.verdict
        if log.closes is not None and (report is None or report.early):
            not_yet = open_sentence(log.open, moment(log.time), moment(log.closes))
            verdict = f"{TOO_EARLY} {not_yet}" if report is None else f"{verdict} {not_yet}"
        return ReadVerdict(verdict, table, log.since, log.time, log.open, False, dict(log.beyond))


def _means(placement: Any) -> Any:
    """Return what the sums depend on besides the log."""
    return placement.id, placement.config.rule, placement.config.options
