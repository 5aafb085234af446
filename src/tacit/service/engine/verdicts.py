"""Verdicts on duels of rankers, from the searches in the log, which is read on request."""

# 1. ``DuelLog``: sums over the searches in the log of one placement.
# 2. ``Verdicts``: on a request, the log is read from the end of the last reading.

from __future__ import annotations

import asyncio
import time as clocks
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from tacit.errors import InvalidValue
from tacit.evaluate.interleaved.report import InterleavedReport, SearchAccumulator
from tacit.evaluate.interleaved.searches import Search, parse_duel_row
from tacit.interleaving import CreditRule
from tacit.service.engine.writer import Serving
from tacit.service.log.blocks import split_distinct
from tacit.service.log.ids import as_datetime
from tacit.service.log.rows import DecisionRow, Event, FeedbackRow, split_into_blocks
from tacit.service.placements.duels import DuelOptions, export_duel
from tacit.service.projections.attribution import attribute_clicks
from tacit.service.projections.learning_order import TrainingBatch
from tacit.uplift.boundary import ANY_TIME
from tacit.uplift.sentences import pending_sentence

# ---- Sums over the searches in the log of a duel placement

MOST_UNITS = 100_000
MOST_VALUES = 200
"""Number of values of a segment that are counted separately: the first ones in the log."""


class DuelLog:
    """Sums over the searches of a placement, updated row by row; they equal the ones of ``tacit duel``.

    A search counts once its window has closed, in the order of decisions: so the sums depend on the log
    alone. Memory grows with the open windows, and is bounded otherwise.

    Parameters
    ----------
    placement : Placement
        A placement of duels; its number, its rule and its options are read.

    Attributes
    ----------
    seq, time : int
        Number and time of the last row that was read; 0 before the first.
    since : int or None
        Time of the first decision.
    beyond : dict of str to int
        For each segment, the number of searches whose value is not counted separately.
    """

    def __init__(self, placement: Any) -> None:
        options: DuelOptions = placement.config.options
        self._id, self._rule = placement.id, placement.config.rule
        self._windows = attribute_clicks(self._rule)
        self._fold = SearchAccumulator(CreditRule(options.worth), options.segments, most_units=MOST_UNITS)
        self._values: dict[str, set[str]] = {name: set() for name in options.segments}
        self._rankers: set[str] = set()
        # Decisions that are not counted yet, each with its latest closing time.
        self._waiting: deque[tuple[int, int]] = deque()
        self._closed: dict[int, Search | None] = {}
        self.seq = self.time = 0
        self.since: int | None = None
        self.beyond: dict[str, int] = {}

    @property
    def open(self) -> int:
        """Number of decisions that are not counted yet, because their windows may be open."""
        return len(self._waiting)

    @property
    def closes(self) -> int | None:
        """Time by which all open decisions will be counted, in microseconds; None without any."""
        return max((end for _, end in self._waiting), default=None)

    def add_rows(self, events: Sequence[Event]) -> None:
        """Add the next rows of the log to the sums; rows of other placements only advance the time.

        Decisions open windows, feedback is applied to them, and searches whose windows have closed are
        counted. Also updates the attributes: ``seq`` and ``time`` of the last row, ``since`` (the time of the
        first decision) and ``beyond`` (counts of searches whose segment is not counted separately).
        """
        for rows in split_into_blocks(events):
            self._store_closed(self._windows.advance(rows.column("time")[0]))
            if rows.column("placement")[0] != self._id:
                continue
            if rows.kind is DecisionRow:
                self._windows.open_windows(rows)
                self._queue_decisions(rows)
            elif rows.kind is FeedbackRow:
                for part in split_distinct(rows, "decision"):
                    # Of its results, only the windows that this feedback closes are needed.
                    for rewards in self._windows.apply_feedback(part)[1]:
                        self._store_closed(rewards)
        if events:
            self.seq, self.time = events[-1].seq, events[-1].time
        self._count_closed()

    def report(self, confidence: float, false_share: float) -> InterleavedReport | None:
        """Return the report on all counted searches; None as long as no two rankers have dueled.

        Raises
        ------
        InvalidValue
            If a parameter is out of its range.
        """
        sums = self._fold.compute_sums(sorted(self._rankers))
        if not sums.tally.sums:
            return None
        return InterleavedReport(sums, confidence, false_share)

    def _queue_decisions(self, rows: Any) -> None:
        """Queue decisions to be counted, each with its latest closing time; set ``since`` at the first."""
        if self.since is None:
            self.since = rows.column("time")[0]
        for seq, time, deferred in zip(
            *(rows.column(name) for name in ("seq", "time", "deferred")), strict=True
        ):
            longest = self._rule.window + (self._rule.activation if deferred else 0)
            self._waiting.append((seq, time + longest))

    def _store_closed(self, rewards: TrainingBatch) -> None:
        """Store closed windows as searches, by sequence number of the decision, until they are counted."""
        rows = map(self._windows.open.get_row, rewards.entries.tolist())
        for row, feedback in zip(rows, rewards.values, strict=True):
            self._closed[row.seq] = self._make_search(row, feedback)

    def _make_search(self, row: DecisionRow, feedback: Any) -> Search | None:
        """Return a decision and its feedback as a search.

        None for the control group and for invalid searches.
        """
        if row.control:
            return None
        duel = export_duel(row, feedback)
        try:
            search = parse_duel_row(duel, row.id)
        except InvalidValue:
            return None
        segments = {name: duel[name] for name in self._values if name in duel}
        return search._replace(unit=duel["user"] or search.unit, segments=segments)

    def _count_closed(self) -> None:
        """Add closed searches to the sums in the order of decisions, up to the first that may still be open.

        Counted decisions leave the queue.
        """
        while self._waiting:
            seq, end = self._waiting[0]
            # A deferred decision that was not activated in time ends without a closed window.
            if seq not in self._closed and end > self._windows.time:
                return
            self._waiting.popleft()
            search = self._closed.pop(seq, None)
            if search is not None:
                self._rankers.update(search.rankers)
                self._fold.add(search._replace(segments=self._select_segments(search)))

    def _select_segments(self, search: Search) -> dict[str, str]:
        """Return the segments of a search, by name, whose values are counted separately.

        The first :data:`MOST_VALUES` values of a segment are; others are counted in ``beyond``.
        """
        segments = {}
        for name, value in search.segments.items():
            values = self._values[name]
            if len(values) < MOST_VALUES:
                values.add(value)
            if value in values:
                segments[name] = value
            else:
                self.beyond[name] = self.beyond.get(name, 0) + 1
        return segments


# ---- Verdicts on duels, read from the log on request
#
# A log is read in the background from the end of the last reading, in parts, and one log at a time. A caller
# waits for a moment, and gets the verdict on the rows read so far, and whether they are all. A verdict on a
# part of the log is an earlier look at the same sequential test, so its confidence level holds.

ROWS = 500
"""Rows per read, so that neither commits nor decisions wait long."""
PATIENCE = 2.0
"""Seconds for which a caller waits for the log to be read."""
MOST_CACHED = 10
"""Number of verdicts that are cached until more rows are read."""
TOO_EARLY = "Too early:"
NO_DUEL = f"{TOO_EARLY} no two rankers have dueled."
NOT_READ = "The log is being read; ask again."
NOT_IN_SHARDS = "no verdict is read in shards: run tacit log export for each, and give all logs to tacit duel"


class ReadVerdict(NamedTuple):
    """The verdict on the rankers of a placement, from the rows read so far.

    Attributes
    ----------
    verdict : str
        In words.
    report : dict or None
        Report as :class:`~tacit.evaluate.interleaved.InterleavedReport` returns it; None before two rankers
        have dueled.
    since : int or None
        Time of the first decision in the log, in microseconds since 1970.
    until : int
        Time of the last row that was read; 0 before the first.
    open : int
        Number of decisions that are not counted yet, since their windows are open.
    whole : bool
        Whether the log was read to its end; if not, request the verdict again.
    beyond : dict of str to int
        For each segment, the number of searches whose value is not counted separately.
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
        self._lock = asyncio.Lock()

    async def read(
        self, name: str, confidence: float, false_share: float, patience: float = PATIENCE
    ) -> ReadVerdict:
        """Return the verdict on the rankers of a placement, from the rows of the log read so far.

        A task reads the log to its end in the background; the call starts it unless it is running, and waits
        for it up to ``patience`` seconds. If it has not finished by then, ``whole`` of the result is False.

        Parameters
        ----------
        name : str
        confidence : float
            0.9, 0.95 or 0.99.
        false_share : float
            False discovery rate of the differences between segments; in (0, 1].
        patience : float
            Seconds to wait for the log to be read.

        Raises
        ------
        UnknownName, InvalidValue
            If there is no such placement, it is not one of duels, or a parameter is out of its range.
        Unavailable
            If the store fails.
        """
        if confidence not in ANY_TIME:
            raise InvalidValue("confidence", confidence, f"give one of {list(ANY_TIME)}")
        if not 0.0 < false_share <= 1.0:
            raise InvalidValue("false_share", false_share, "give a number above 0, up to 1")
        placement = self._engine.placement(name)
        reading = self._logs.get(name)
        if reading is None or reading.settings != _read_fold_settings(placement):
            reading = self._logs[name] = _Reading(placement)
        if reading.task is None or reading.task.done():
            reading.task = asyncio.create_task(self._read(name, reading))
            # Mark the error as retrieved: the caller may have stopped waiting.
            reading.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.wait([reading.task], timeout=patience)
        if reading.task.done():
            # Raises the error of the reading, if it failed.
            reading.task.result()
        async with reading.busy:
            return await asyncio.to_thread(reading.verdict, confidence, false_share)

    def forget_sums(self) -> None:
        """Drop the sums of all placements, so that their logs are read from the beginning again.

        Call it after old rows have changed.
        """
        self._logs.clear()

    async def _read(self, name: str, reading: _Reading) -> None:
        """Read a log to its end and add its rows to the sums of ``reading``, with pauses for other requests.

        Only one log is read at a time. Sets ``reading.whole`` to False, and to True at the end.
        """
        async with self._lock:
            reading.whole = False
            while rows := await self._engine.read_log(name, reading.log.seq, ROWS):
                begun = clocks.monotonic()
                async with reading.busy:
                    await asyncio.to_thread(reading.add_rows, rows)
                if len(rows) < ROWS:
                    break
                # Half of the time is left for decisions.
                await asyncio.sleep(clocks.monotonic() - begun)
            reading.whole = True


class _Reading:
    """Sums over the log of one placement, as far as it is read, and its cached verdicts."""

    def __init__(self, placement: Any) -> None:
        self.settings, self.log = _read_fold_settings(placement), DuelLog(placement)
        self.busy, self.whole = asyncio.Lock(), False
        self.task: asyncio.Task[None] | None = None
        self._cache: dict[tuple[float, float], ReadVerdict] = {}

    def add_rows(self, rows: Sequence[Event]) -> None:
        """Add the next rows of the log to the sums, and clear the cached verdicts."""
        self.log.add_rows(rows)
        self._cache.clear()

    def verdict(self, confidence: float, false_share: float) -> ReadVerdict:
        """Return the verdict on the rows read so far, and cache it until more rows are read.

        Its text is :data:`NOT_READ` if there is no report yet and the log was not read to its end.
        """
        key = confidence, false_share
        if key not in self._cache:
            if len(self._cache) == MOST_CACHED:
                self._cache.clear()
            self._cache[key] = self._compute(*key)
        result = self._cache[key]
        if result.report is None and not self.whole:
            result = result._replace(verdict=NOT_READ)
        return result._replace(whole=self.whole)

    def _compute(self, confidence: float, false_share: float) -> ReadVerdict:
        """Compute the verdict on the rows read so far, with ``whole`` False, which the caller replaces.

        Without duels its report is None.

        If it is early and decisions are open, its text says when their windows close.
        """
        log = self.log
        report = log.report(confidence, false_share)
        table = None if report is None else report.as_dict()
        verdict = NO_DUEL if report is None else report.verdict
        if log.closes is not None and (report is None or report.early):
            not_yet = pending_sentence(log.open, as_datetime(log.time), as_datetime(log.closes))
            verdict = f"{TOO_EARLY} {not_yet}" if report is None else f"{verdict} {not_yet}"
        return ReadVerdict(verdict, table, log.since, log.time, log.open, False, dict(log.beyond))


def _read_fold_settings(placement: Any) -> Any:
    """Return the settings of a placement on which the sums depend: its number, rule and options."""
    return placement.id, placement.config.rule, placement.config.options
