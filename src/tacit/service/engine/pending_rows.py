"""The pending log: placements, and the rows that they are ahead of the log by."""

# Rows take three steps to the log, and placements are ahead of it meanwhile:
# 1. ``log_decisions``, ``log_feedback``, ``log_mark``: they get the next numbers, and wait in ``tail``.
# 2. ``begin_commit``: what waits is ``in_flight``, as one piece; what comes now waits behind it.
# 3. ``end_commit``: all is in the log; or it failed, and ``broken`` names the placements that learned from
#    what is lost.
# Besides it knows when windows close next, and which decisions were answered and are not committed yet.

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heappop, heappush

from tacit.errors import TacitError
from tacit.service.config.schema import BUFFERED
from tacit.service.errors import Overloaded
from tacit.service.log.blocks import Block, values
from tacit.service.log.ids import LogTime
from tacit.service.log.requests import CheckDecisions, Decide, Record, Request
from tacit.service.log.rows import DecisionRow, FeedbackRow, FoundDecision, MarkRow, Rows
from tacit.service.placements.placement import Placement

Key = tuple[int, str]
"""A placement's number and a decision's id."""
Outcome = str | TacitError
FOREVER = 2**63
NO_ROWS = Rows([], [], [])


class PendingLog:
    """Placements, and what happened to them that is not in the log yet.

    Parameters
    ----------
    placements : dict of str to Placement
    seq : int
        The last row of the log.
    time : LogTime
        The time of the next row.

    Attributes
    ----------
    tail : Rows
        Rows that wait to be written.
    in_flight : Rows
        Rows that are being written.
    broken : set of str
        Names of the placements that are ahead of the log and may not be.
    frozen : bool
        Whether the placements are being read by another thread.
    open_count : int
        How many decisions are open, of all placements.
    most_open, most_buffered : int
        How many may be open, and how many rows in memory only before those
        that need not wait for the store have to.
    touched : set of str
        Names of the placements to which something has happened that upkeep has not seen.
    waiting : int
        How many rows wait to be written.
    buffering : set of str
        Names of the placements that may be ahead of the log.
    """

    def __init__(self, placements: dict[str, Placement], seq: int, time: LogTime) -> None:
        self.placements = placements
        self.seq = seq
        self.time = time
        self.tail, self.waiting = Rows.none(), 0
        self.in_flight = NO_ROWS
        self.broken: set[str] = set()
        self.frozen = False
        self._uncommitted: dict[Key, FoundDecision] = {}
        # When the windows of placements close next, as it was when each was touched last.
        self._dues: list[tuple[int, str]] = []
        self._earliest: dict[str, int] = {}
        self.touched: set[str] = set()
        self.most_open = self.most_buffered = FOREVER
        self.touch_all()

    # What is due -----------------------------------------------------------------------------

    def touch_all(self) -> None:
        """Note that placements came, went or changed."""
        self._open: dict[str, int] = {}
        self.open_count = 0
        named = self.placements.items()
        self.buffering = {name for name, placement in named if placement.config.durability == BUFFERED}
        self.touch(self.placements)

    def touch(self, names: Iterable[str]) -> None:
        """Note that something has happened to placements, or that they were made anew."""
        for name in names:
            self.touched.add(name)
            windows = self.placements[name].windows
            self._push_due(name, windows.due)
            count = len(windows)
            self.open_count += count - self._open.get(name, 0)
            self._open[name] = count

    def refuse_room(self) -> None:
        """Raise Overloaded: there is no room for so many more open decisions."""
        raise Overloaded(
            f"service: {self.open_count:,} decisions are open, and server.open_decisions allows "
            f"{self.most_open:,}; try again when windows have closed"
        )

    @property
    def due(self) -> int | None:
        """When the next window of any placement closes."""
        # The heap has a due time for each change of one: what is at its top may have moved since, and is
        # looked at again. So a change costs O(log placements), and nothing is searched for.
        while self._dues:
            time, name = self._dues[0]
            placement = self.placements.get(name)
            if placement is not None and placement.windows.due == time:
                return time
            self._pop_due()
            if placement is not None:
                self._push_due(name, placement.windows.due)
        return None

    def _push_due(self, name: str, due: int | None) -> None:
        if due is not None and due < self._earliest.get(name, FOREVER):
            self._earliest[name] = due
            heappush(self._dues, (due, name))

    def _pop_due(self) -> str:
        time, name = heappop(self._dues)
        if self._earliest.get(name) == time:
            del self._earliest[name]
        return name

    def closing(self, now: int) -> list[Placement]:
        """Return the placements with windows that close by now."""
        if not self._dues or self._dues[0][0] > now:
            # None closes earlier than that.
            return []
        found = {}
        while (due := self.due) is not None and due <= now:
            name = self._pop_due()
            found[name] = self.placements[name]
        return list(found.values())

    @contextmanager
    def freeze(self) -> Iterator[None]:
        """Let nothing change the placements for a while."""
        # Several threads may read them now.
        for placement in self.placements.values():
            placement.settle()
        self.frozen = True
        try:
            yield
        finally:
            self.frozen = False

    def runs_ahead(self, request: Request) -> bool:
        """Whether a request can be answered from memory, before its rows are in the log."""
        ahead = request.placement in self.buffering and isinstance(request, Decide | Record)
        return ahead and not self.unknown([request])

    @property
    def buffered(self) -> int:
        """How many rows are in memory only."""
        return self.waiting + self.in_flight.size

    # What is known ---------------------------------------------------------------------------

    def unknown(self, requests: Sequence[Request]) -> list[Key]:
        """Return the decisions that requests name and only the store can know."""
        unknown: dict[Key, None] = {}
        for request in requests:
            ids = _named(request)
            if not ids:
                continue
            placement = self.placements[request.placement]
            find = placement.windows.find
            if None in map(find, ids):
                keys = [(placement.id, id) for id in ids if find(id) is None]
                unknown.update((key, None) for key in keys if key not in self._uncommitted)
        return list(unknown)

    def named(self, requests: Sequence[Request]) -> Iterator[tuple[Placement, list[str]]]:
        """Yield the placement and the ids of the decisions that each request names."""
        for request in requests:
            ids = _named(request)
            if ids:
                yield self.placements[request.placement], ids

    def remembered(self, placement: Placement, id: str) -> DecisionRow | None:
        """Return a decision whose window is open or which is not committed yet."""
        entry = placement.windows.find(id)
        if entry is not None:
            return placement.windows.row(entry)
        # A short window may have closed before its decision was committed.
        made = self._uncommitted.get((placement.id, id))
        return None if made is None else made.decision

    def uncommitted(self, placement: Placement, id: str) -> FoundDecision | None:
        """Return a decision that is not committed yet, and what came back for it."""
        return self._uncommitted.get((placement.id, id))

    @property
    def ahead(self) -> bool:
        """Whether decisions of placements that may be ahead of the log are not committed yet."""
        return bool(self._uncommitted)

    def count_numbers(self, request: Request) -> int:
        """Return how many numbers of candidates a request has its placement read."""
        placement = self.placements.get(request.placement)
        if placement is None or not isinstance(request, Decide):
            return 0
        return placement.candidate_size * sum(placement.count_candidates(request.impressions))

    # Logging ---------------------------------------------------------------------------------

    def log_decisions(self, placement: str, rows: Block[DecisionRow]) -> None:
        """Append decisions, which have the next sequence numbers."""
        self.seq += len(rows)
        self.waiting += len(rows)
        self.tail.decisions.extend(rows)
        if placement in self.buffering:
            self._uncommitted.update(((row.placement, row.id), FoundDecision(row, [])) for row in rows)

    def log_feedback(self, rows: Block[FeedbackRow]) -> None:
        """Append feedback, which has the next sequence numbers."""
        self.seq += len(rows)
        self.waiting += len(rows)
        self.tail.feedback.extend(rows)

    def log_mark(
        self, placement: int | None, time: int, kind: str, value: str, who: str | None = None
    ) -> MarkRow:
        """Append a mark, and return it."""
        self.seq += 1
        self.waiting += 1
        mark = MarkRow(self.seq, placement, time, kind, value, who)
        self.tail.marks.append(mark)
        return mark

    # Committing ------------------------------------------------------------------------------

    def begin_commit(self) -> int:
        """Let the rows that wait be those that are written; return how many they are."""
        count = self.waiting
        self.in_flight, self.tail, self.waiting = self.tail, Rows.none(), 0
        return count

    def end_commit(self, *, failed: bool) -> None:
        """End a commit; if it failed, keep the rows of placements that may be ahead of the log."""
        written, self.in_flight = self.in_flight, NO_ROWS
        if not failed and not self._uncommitted:
            return
        # Answers of a buffered placement are out already: its rows must reach the log, whatever it takes.
        # Others were not answered, so their rows are dropped and the placements made anew.
        behind = {p.id: name for name, p in self.placements.items() if name not in self.buffering}
        if failed:
            self.broken |= {behind[row.placement] for row in written.all() if row.placement in behind}
            kept = written.where(lambda row: row.placement not in behind)
            self.tail = kept.and_then(self.tail)
            self.waiting = self.tail.size
        for row in written.decisions if self._uncommitted else ():
            if not failed or row.placement in behind:
                self._uncommitted.pop((row.placement, row.id), None)

    def forget(self) -> None:
        """Take all placements for broken: nobody knows how far a group has come."""
        self.broken |= set(self.placements)
        self.tail, self.waiting = Rows.none(), 0


def _named(request: Request) -> list[str]:
    """Return the ids of the decisions that a request names."""
    if isinstance(request, Decide | CheckDecisions):
        return [id for id in values(request.impressions, "id") if id is not None]
    return values(request.feedback, "decision") if isinstance(request, Record) else []
