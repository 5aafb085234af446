"""The pending log: placements, and their rows that are not committed yet."""

# Rows take three steps to the log; until the last one, placements are ahead of the log:
# 1. ``log_rows``, ``log_change``: rows get the next numbers and are added to ``tail``.
# 2. ``begin_commit``: the rows of ``tail`` are now ``in_flight``; new rows are added to a new ``tail``.
# 3. ``end_commit``: the rows are in the log; or the commit failed, and ``broken`` names the placements that
#    learned from lost rows.
# The pending log also has the next due time of windows, and the answered decisions that are not committed.

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Any, NamedTuple

from tacit.errors import TacitError
from tacit.service.config.schema import BUFFERED
from tacit.service.log.blocks import Block
from tacit.service.log.ids import LogTime
from tacit.service.log.requests import CheckDecisions, Decide, Record, Request
from tacit.service.log.rows import ChangeRow, DecisionRow, DecisionWithFeedback, FeedbackRow, Rows
from tacit.service.placements.placement import Placement

Key = tuple[int, str]
"""A placement's number and a decision's id."""
Outcome = str | TacitError
FOREVER = 2**63
NO_ROWS = Rows([], [], [])


class PendingBlocks(NamedTuple):
    """Rows of the log by kind, decisions and feedback in blocks; all lists can grow."""

    decisions: list[Sequence[DecisionRow]]
    feedback: list[Sequence[FeedbackRow]]
    changes: list[ChangeRow]


class PendingLog:
    """The placements, and their rows that are not in the log yet.

    Parameters
    ----------
    placements : dict of str to Placement
    seq : int
        Number of the last row of the log.
    time : LogTime
        The time of the log.

    Attributes
    ----------
    tail : PendingBlocks
        Rows whose commit has not begun.
    in_flight : Rows
        Rows that are being committed.
    broken : set of str
        Names of committed placements that have learned from lost rows, and must be loaded again.
    frozen : bool
        Whether another thread reads the placements.
    open_count : int
        Number of open decisions of all placements.
    most_open, most_buffered : int
        Limits of open decisions, and of rows in memory only.
    touched : set of str
        Names of the placements that changed since the last upkeep.
    waiting : int
        Number of rows in ``tail``.
    buffering : set of str
        Names of the buffered placements, which may be ahead of the log.
    uncommitted : dict of (int, str) to DecisionWithFeedback
        Decisions of buffered placements that are not in the log yet, with feedback on closed ones.
    """

    def __init__(self, placements: dict[str, Placement], seq: int, time: LogTime) -> None:
        self.placements = placements
        self.seq = seq
        self.time = time
        self.tail, self.waiting = PendingBlocks([], [], []), 0
        self.in_flight = NO_ROWS
        self.broken: set[str] = set()
        self.frozen = False
        self.uncommitted: dict[Key, DecisionWithFeedback] = {}
        # A heap of the next due times of placements, each as of the last change of the placement.
        self._dues: list[tuple[int, str]] = []
        self._earliest: dict[str, int] = {}
        self.touched: set[str] = set()
        self.most_open = self.most_buffered = FOREVER
        self.touch_all()

    # Due windows -----------------------------------------------------------------------------

    def touch_all(self) -> None:
        """Recompute open counts, due times and the names in ``buffering`` for all placements.

        Called when placements were added, removed or replaced.
        """
        self._open: dict[str, int] = {}
        self.open_count = 0
        named = self.placements.items()
        self.buffering = {name for name, placement in named if placement.config.durability == BUFFERED}
        self.touch(self.placements)

    def touch(self, names: Iterable[str]) -> None:
        """Update the due times and open counts of changed placements, and mark them for the next upkeep."""
        self.touched.update(names)
        for name in names:
            placement = self.placements[name]
            placement.version += 1
            due, count = placement.windows.next_deadline, len(placement.windows.open.by_id)
            # The heap may have an earlier one of it.
            if due is not None and due < self._earliest.get(name, FOREVER):
                self._earliest[name] = due
                heappush(self._dues, (due, name))
            self.open_count += count - self._open.get(name, 0)
            self._open[name] = count

    @property
    def due(self) -> int | None:
        """Time at which the next window of any placement closes; None without open windows.

        Reading it removes outdated due times from the heap.
        """
        # The heap may have several due times of a placement, of which old ones are outdated. They are
        # replaced once they reach the top, so a change costs O(log placements).
        while self._dues:
            time, name = self._dues[0]
            placement = self.placements.get(name)
            due = None if placement is None else placement.windows.next_deadline
            if due == time:
                return time
            self._pop_due()
            if due is not None and due < self._earliest.get(name, FOREVER):
                self._earliest[name] = due
                heappush(self._dues, (due, name))
        return None

    def _pop_due(self) -> str:
        """Remove the earliest due time from the heap, and return its placement's name."""
        time, name = heappop(self._dues)
        if self._earliest.get(name) == time:
            del self._earliest[name]
        return name

    def take_due_placements(self, now: int) -> list[Placement]:
        """Return the placements that have windows due at a time, and remove their due times from the heap."""
        if not self._dues or self._dues[0][0] > now:
            # Outdated times are too early, never too late.
            return []
        placements = {}
        while (due := self.due) is not None and due <= now:
            name = self._pop_due()
            placements[name] = self.placements[name]
        return list(placements.values())

    @contextmanager
    def freeze(self) -> Iterator[None]:
        """In a ``with`` block: set ``frozen``, so that other threads may read the placements.

        Queued decisions are added to the lift's sums before: otherwise the first thread that reads the sums
        would add them, and change the placement. The writer changes no placement in the block.
        """
        for placement in self.placements.values():
            placement.reward_sums.sums.settle()
        self.frozen = True
        try:
            yield
        finally:
            self.frozen = False

    def can_answer_early(self, request: Request) -> bool:
        """True if a request can be answered from memory, before its rows are in the log.

        It must decide or record for a buffered placement, and name only decisions that are in memory.
        """
        ahead = request.placement in self.buffering and isinstance(request, Decide | Record)
        return ahead and not self.list_unknown([request])

    @property
    def memory_rows(self) -> int:
        """Number of rows that are not in the log yet, pending or being committed."""
        return self.waiting + self.in_flight.size

    # Look-ups --------------------------------------------------------------------------------

    def list_unknown(self, requests: Sequence[Request]) -> list[Key]:
        """Return the decisions that requests name and memory lacks, as pairs of placement number and id."""
        unknown: dict[Key, None] = {}
        for placement, ids in self.iterate_named_ids(requests):
            find = placement.windows.open.find
            if None in map(find, ids):
                keys = [(placement.id, id) for id in ids if find(id) is None]
                unknown.update((key, None) for key in keys if key not in self.uncommitted)
        return list(unknown)

    def iterate_named_ids(self, requests: Sequence[Request]) -> Iterator[tuple[Placement, list[str]]]:
        """Yield, for each request that names decisions, its placement and the ids of these decisions."""
        for request in requests:
            if isinstance(request, Decide | CheckDecisions):
                ids = [id for id in request.impressions.column("id") if id is not None]
            else:
                ids = request.feedback.column("decision") if isinstance(request, Record) else []
            if ids:
                yield self.placements[request.placement], ids

    def find_decision(self, placement: Placement, id: str) -> DecisionRow | None:
        """Return a decision that is open or not committed; None for other ids."""
        entry = placement.windows.open.find(id)
        if entry is not None:
            return placement.windows.open.get_row(entry)
        # A short window may have closed before its decision was committed.
        uncommitted = self.uncommitted.get((placement.id, id))
        return None if uncommitted is None else uncommitted.decision

    # Logging ---------------------------------------------------------------------------------

    def log_rows(self, placement: str, rows: Block[Any]) -> None:
        """Append decisions or feedback, which must have the next sequence numbers, to ``tail``.

        Decisions of a buffered placement can be found by id until they are committed.
        """
        self.seq += len(rows)
        self.waiting += len(rows)
        if rows.kind is FeedbackRow:
            self.tail.feedback.append(rows)
            return
        self.tail.decisions.append(rows)
        if placement in self.buffering:
            self.uncommitted.update(((row.placement, row.id), DecisionWithFeedback(row, [])) for row in rows)

    def log_change(
        self, placement: int | None, time: int, kind: str, value: str, who: str | None = None
    ) -> ChangeRow:
        """Append a change event with the next sequence number to ``tail``, without applying it; return it."""
        self.seq += 1
        self.waiting += 1
        change = ChangeRow(self.seq, placement, time, kind, value, who)
        self.tail.changes.append(change)
        return change

    # Committing ------------------------------------------------------------------------------

    def begin_commit(self) -> int:
        """Move the pending rows from ``tail`` to ``in_flight``, to be committed, and return their number."""
        count, (decisions, feedback, changes) = self.waiting, self.tail
        joined = Block.concatenate(DecisionRow, decisions), Block.concatenate(FeedbackRow, feedback)
        self.in_flight, self.tail, self.waiting = Rows(*joined, changes), PendingBlocks([], [], []), 0
        return count

    def end_commit(self, *, failed: bool) -> None:
        """End a commit: clear ``in_flight``, and forget the uncommitted decisions that are now in the log.

        If it failed, the rows of buffered placements become pending again, the rows of other placements are
        dropped, and the names of these placements are added to ``broken``.
        """
        written, self.in_flight = self.in_flight, NO_ROWS
        if not failed and not self.uncommitted:
            return
        # Requests to buffered placements were answered: their rows must reach the log eventually. Requests
        # to others were not, so their rows are dropped and the placements loaded again.
        unbuffered = {p.id: name for name, p in self.placements.items() if name not in self.buffering}
        if failed:
            self.broken |= {unbuffered[row.placement] for row in written.all() if row.placement in unbuffered}
            buffered_rows = written.select(lambda row: row.placement not in unbuffered)
            decisions, feedback, changes = self.tail
            earlier = [buffered_rows.decisions], [buffered_rows.feedback]
            self.tail = PendingBlocks(
                earlier[0] + decisions, earlier[1] + feedback, buffered_rows.changes + changes
            )
            self.waiting += buffered_rows.size
        for row in written.decisions if self.uncommitted else ():
            if not failed or row.placement in unbuffered:
                self.uncommitted.pop((row.placement, row.id), None)

    def mark_all_broken(self) -> None:
        """Mark all placements as broken and drop pending rows, after a group failed at an unknown step."""
        self.broken |= set(self.placements)
        self.tail, self.waiting = PendingBlocks([], [], []), 0
