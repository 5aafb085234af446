"""Open decisions: their rows in the log, their windows and their feedback, by entry."""

# 1. ``OpenDecisions``: ids, windows and feedback by entry, in columns for compiled loops.
# 2. Rows stay in the blocks in which they came, so that nothing is copied; columns hold block and index.
# 3. Columns of others, such as the data with which a policy learns, grow with the entries.
# An entry is free again when its decision is closed and its default can no longer be corrected; a block is
# dropped with the last of its decisions. So memory follows the open decisions, not all decisions ever made.

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import call
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np

from tacit.core.arrays import Floats, Ints, copy_to_larger
from tacit.learning.decisions import nan_to_none
from tacit.service.deciders.windows import Windows, compile_loops
from tacit.service.log.blocks import Block
from tacit.service.log.requests import select_clicks
from tacit.service.log.rows import Content, DecisionRow

SMALL_BLOCK, MAX_JOINED_ROWS = 256, 512
"""Blocks below the first size are joined up to the second: a small block costs more memory than its rows."""
NUMBERS = "seq", "time"
"""Fields that a joined block stores as arrays of numbers, not as Python objects."""

ExtraColumns = Callable[[Ints], Iterable[Ints | list[Any]]]
"""Returns additional columns of a snapshot for the decisions with these entries."""

PIECE_ROWS = 1024
"""Number of open decisions in a piece of a snapshot."""
ROW_COLUMNS = len(DecisionRow._fields)
WINDOW_COLUMNS = ROW_COLUMNS + 7
"""Number of columns of a piece that describe rows; that describe rows, windows and feedback."""
SPARE_ENTRIES = 256
ROW_BYTES = 430
"""Bytes of Python objects for an open decision: its row, its id and its place in the dict of ids."""


class ColumnOwner(Protocol):
    """Owner of further columns of the open decisions.

    Attributes
    ----------
    columns : named tuple of array
        By entry; replaced when they grow.
    """

    columns: Any

    def create_columns(self, size: int) -> Any:
        """Return columns for a number of entries, all of them free."""


@dataclass(slots=True)
class RowBlock:
    """A block of rows, with the entries of its decisions, and the number of decisions that are not released.

    Blocks in the order of the log are found by their first sequence number.
    """

    rows: Block[DecisionRow]
    entries: Sequence[int] | Ints
    open_count: int
    in_order: bool = True


class OpenDecisions:
    """The entries of open decisions, their rows, windows, feedback and feedback ids.

    Attributes
    ----------
    by_id : dict of str to int
        Entries of the open decisions, by id.
    find : function
        Returns the entry of an open decision by its id, or None.
    windows : Windows
        Columns by entry; replaced when they grow.
    clicks : dict of int to list
        Clicked positions of lists so far, by entry.
    named_feedback : dict of int to dict
        Contents of the feedback that came with an id, by entry: {feedback id: content}.
    zero : float
        Reward of the amount 0 of a learned metric; 0 for other rewards.

    Examples
    --------
    >>> import numpy as np
    >>> open = OpenDecisions()
    >>> row = DecisionRow(7, "a", 1, 1, 0, "k", None, 0, 1.0, 0, None)
    >>> entries = open.add(Block.from_rows(DecisionRow, [row]), deadline=30)
    >>> [open.find("a")] == [open.find_entry(7)] == entries.tolist(), open.find_entry(8)
    (True, -1)
    >>> open.get_row(entries[0]).key
    'k'
    >>> open.forget_ids(entries)
    >>> open.find("a") is None
    True
    """

    zero = 0.0

    def __init__(self) -> None:
        """Begin without entries."""
        self.by_id: dict[str, int] = {}
        self.find = self.by_id.get
        self.windows = Windows.zeros(0)
        self.clicks: dict[int, list[Any]] = {}
        self.named_feedback: dict[int, dict[str, Content]] = {}
        self._loops = compile_loops()
        # An owner that is replaced, such as a learning order, leaves the set with its last reference.
        self._owners: WeakSet[ColumnOwner] = WeakSet()
        self._free = np.empty(0, np.int32)
        self._free_count = 0
        self._closed_entries: list[Ints] = []
        self._blocks: dict[int, RowBlock] = {}
        # Numbers and first sequence numbers of the blocks that came in the order of the log.
        self._numbers: list[int] = []
        self._first_seqs: list[int] = []
        self._out_of_order_entries: dict[int, int] = {}
        self._last_number = 0
        # The block to which small ones are joined, its number, and the functions that extend its columns.
        self._growing: RowBlock | None = None
        self._growing_number = 0
        self._extend_functions: list[Callable[[Iterable[Any]], None]] = []

    @property
    def bytes(self) -> int:
        """Approximate size of the entries in bytes, with all columns that grow with them."""
        columns: list[Any] = [
            self._free,
            *self.windows,
            *(column for owner in self._owners for column in owner.columns),
        ]
        size: int = sum(column.nbytes for column in columns)
        return size + ROW_BYTES * len(self.by_id)

    @property
    def capacity(self) -> int:
        """Number of entries, free ones included."""
        return len(self.windows.seq)

    @property
    def first_learnable_seq(self) -> int | None:
        """Sequence number of the first decision that may still be learned; None without any."""
        is_learnable = self.windows.open | self.windows.defaulted
        return int(self.windows.seq[is_learnable].min()) if is_learnable.any() else None

    def get_row(self, entry: int) -> DecisionRow:
        """Return the row of a decision by its entry."""
        return self._blocks[int(self.windows.block[entry])].rows[int(self.windows.place[entry])]

    def find_entry(self, seq: int) -> int:
        """Return the entry of a decision by its sequence number.

        −1 if it is closed and cannot be corrected.
        """
        entry, windows = self._out_of_order_entries.get(seq, -1), self.windows
        # Blocks are in the order of the log, so two binary searches find a decision without an index.
        index = bisect_right(self._first_seqs, seq) - 1
        if entry < 0 <= index:
            block = self._blocks[self._numbers[index]]
            seqs = block.rows.column("seq")
            row_index = bisect_left(seqs, seq)
            entry = int(block.entries[row_index]) if row_index < len(seqs) else -1
        is_current = entry >= 0 and windows.seq[entry] == seq
        return entry if is_current and (windows.open[entry] or windows.defaulted[entry]) else -1

    def apply_to_field(self, field: str, function: Callable[[Any], Any]) -> None:
        """Replace a field of every row by ``function`` of its value; later rows go to new blocks."""
        self._growing = None
        for block in self._blocks.values():
            block.rows = block.rows.with_column(field, list(map(function, block.rows.column(field))))

    def get_columns(self, entries: Ints, *fields: str) -> list[list[Any]]:
        """Return a list of values for each field, with one value for each entry's row."""
        blocks, numbers = self._blocks, self.windows.block[entries].tolist()
        rows = {number: blocks[number].rows for number in set(numbers)}
        return _collect_columns(rows, numbers, self.windows.place[entries].tolist(), fields)

    def is_clicked(self, entries: Ints) -> list[bool]:
        """True for each decision that has a click, or so far a reward other than that of the amount 0."""
        rewards, clicks = np.nan_to_num(self.windows.reward[entries], nan=self.zero), self.clicks
        flags: list[bool] = (rewards != self.zero).tolist()
        if not clicks:
            return flags
        pairs = zip(entries.tolist(), flags, strict=True)
        return [bool(select_clicks(clicks[entry])) if entry in clicks else flag for entry, flag in pairs]

    def set_feedback(self, entry: int, feedback: Any) -> None:
        """Replace the feedback of a decision so far by a list of clicked positions or by a reward."""
        if isinstance(feedback, list):
            # Any number marks the decision as answered.
            self.clicks[entry], feedback = feedback, 0.0
        else:
            self.clicks.pop(entry, None)
        self.windows.reward[entry] = feedback

    # Entries are assigned and freed ----------------------------------------------------------

    def add(self, block: Block[DecisionRow], deadline: int, *, in_order: bool = True) -> Ints:
        """Assign entries to new decisions, with windows that are open until ``deadline``; return the entries.

        First, the entries of closed decisions become free. ``in_order`` is False for decisions of a snapshot,
        which may precede others in the log.
        """
        if self._closed_entries:
            self._release()
        count, seqs = len(block), block.column("seq")
        if self._free_count < count:
            self._grow(count)
        self._free_count -= count
        # The entry that was freed last is used first: the same few entries stay in the processor's cache.
        entries = self._free[self._free_count : self._free_count + count].astype(np.int64)
        place = 0
        if not in_order or count >= SMALL_BLOCK:
            number = self._add_block(RowBlock(block, entries, count, in_order), seqs)
        else:
            growing = self._growing
            if growing is None or len(growing.entries) + count > MAX_JOINED_ROWS:
                growing = self._begin_joined_block(seqs)
            number, place = self._growing_number, len(growing.entries)
            # ``any`` runs the calls in C: each returns None.
            any(map(call, self._extend_functions, block.columns))
            growing.entries.extend(entries.tolist())  # type: ignore[union-attr]
            growing.open_count += count
        self._loops.open(self.windows, entries, np.array(seqs, np.int64), number, place, deadline)
        self.by_id.update(zip(block.column("id"), entries.tolist(), strict=True))
        return entries

    def _add_block(self, block: RowBlock, seqs: Sequence[int]) -> int:
        """Store a block, whose rows have or will have these sequence numbers; return its number."""
        number = self._last_number = self._last_number + 1
        self._blocks[number] = block
        if block.in_order:
            self._growing = None
            self._numbers.append(number)
            self._first_seqs.append(seqs[0])
        else:
            self._out_of_order_entries.update(zip(seqs, map(int, block.entries), strict=True))
        return number

    def _begin_joined_block(self, seqs: Sequence[int]) -> RowBlock:
        """Return a new block without rows, to which small blocks are joined from these numbers on."""
        # With one decision a request, each block would be a dozen lists of length one.
        columns: Any = [array("q") if field in NUMBERS else [] for field in DecisionRow._fields]
        block = RowBlock(Block(DecisionRow, columns), array("q"), 0)
        self._growing_number = self._add_block(block, seqs)
        self._growing, self._extend_functions = block, [column.extend for column in columns]
        return block

    def grow_columns(self, owner: ColumnOwner) -> None:
        """Create the columns of an owner, which grow with the entries from now on."""
        owner.columns = owner.create_columns(self.capacity)
        self._owners.add(owner)

    def _grow(self, count: int) -> None:
        """Enlarge all columns by at least ``count`` free entries."""
        old = self.capacity
        new = max(SPARE_ENTRIES, 2 * old, old + count)
        self.windows = copy_to_larger(self.windows, Windows.zeros(new))
        for owner in self._owners:
            owner.columns = copy_to_larger(owner.columns, owner.create_columns(new))
        # Large enough for all entries, so that releasing them never allocates.
        free = np.empty(new, np.int32)
        free[: new - old] = np.arange(old, new)
        free[new - old : new - old + self._free_count] = self._free[: self._free_count]
        self._free, self._free_count = free, self._free_count + new - old

    def _release(self) -> None:
        """Make the entries of closed decisions free; drop their clicks, and blocks without open decisions."""
        for entries in self._closed_entries:
            self._free[self._free_count : self._free_count + len(entries)] = entries
            self._free_count += len(entries)
            numbers = self.windows.block[entries].tolist()
            # Most often all numbers are the same.
            for number in set(numbers):
                block = self._blocks[number]
                block.open_count -= numbers.count(number)
                if not block.open_count:
                    self._drop_block(number)
            for entry in entries.tolist() if self.clicks else ():
                self.clicks.pop(entry, None)
        self._closed_entries.clear()

    def _drop_block(self, number: int) -> None:
        """Remove a block, its entries and its place in the index."""
        block = self._blocks.pop(number)
        if block is self._growing:
            self._growing = None
        if block.in_order:
            index = bisect_left(self._numbers, number)
            del self._numbers[index], self._first_seqs[index]
        else:
            for seq in block.rows.column("seq"):
                del self._out_of_order_entries[seq]

    def forget_ids(self, entries: Ints) -> None:
        """Drop the ids of closed decisions and of their feedback; rows, windows and clicks stay."""
        (ids,) = self.get_columns(entries, "id")
        # Ids are unique in a placement.
        for id in ids:
            del self.by_id[id]
        for entry in entries.tolist() if self.named_feedback else ():
            self.named_feedback.pop(entry, None)

    def mark_free(self, entries: Ints) -> None:
        """Mark the entries of closed decisions, which become free when the next decisions are added."""
        self._closed_entries.append(entries)

    # Snapshots -------------------------------------------------------------------------------

    def export(self, entries: Ints, extra_columns: ExtraColumns) -> Iterator[list[list[Any]]]:
        """Return an iterator over pieces of open decisions, each a list of columns for JSON.

        Columns of rows come first, then columns of windows and feedback, then ``extra_columns``. All are
        copied at the call, so that later changes do not affect the iterator.
        """
        windows, blocks = self.windows, {number: block.rows for number, block in self._blocks.items()}
        contents: list[Any] = [None] * len(entries)
        if self.named_feedback:
            saved_contents = map(self.named_feedback.get, entries.tolist())
            contents = [content and dict(content) for content in saved_contents]
        # Columns are copied now, which is fast; rows are looked up later, when they are written.
        columns: list[Any] = [
            windows.block[entries],
            windows.place[entries],
            windows.deadline[entries],
            windows.active[entries],
            self._get_feedback(entries),
            windows.examined[entries],
            windows.settled[entries],
            windows.answers[entries],
            contents,
            *extra_columns(entries),
        ]
        return _iterate_pieces(blocks, columns, len(entries))

    def _get_feedback(self, entries: Ints) -> Floats | list[Any]:
        """Return the clicks or the reward of each decision so far; NaN, or None in a list, without any."""
        rewards: Floats = self.windows.reward[entries]
        if not self.clicks:
            return rewards
        pairs = zip(entries.tolist(), nan_to_none(rewards), strict=True)
        return [self.clicks.get(entry, reward) for entry, reward in pairs]

    def restore(self, saved: Sequence[list[Any]], *, named: bool) -> tuple[Ints, Block[DecisionRow]]:
        """Assign entries to the decisions of a snapshot, with their windows and feedback.

        Returns the entries and the rows of the decisions. ``saved`` is a piece of :meth:`export`; its extra
        columns are ignored. Feedback ids are restored only if ``named``.
        """
        block: Block[DecisionRow] = Block(DecisionRow, saved[:ROW_COLUMNS])
        deadlines, active, rewards, examined, settled, answers, ids = saved[ROW_COLUMNS:WINDOW_COLUMNS]
        last = self._blocks[self._numbers[-1]].rows.column("seq")[-1] if self._numbers else 0
        in_order = bool((np.diff(block.column("seq"), prepend=last) > 0).all())
        entries, windows = self.add(block, deadline=0, in_order=in_order), self.windows
        windows.deadline[entries], windows.active[entries] = deadlines, active
        windows.examined[entries], windows.settled[entries] = examined, settled
        windows.answers[entries] = answers
        if list in set(map(type, rewards)):  # clicks on positions
            for entry, reward in zip(entries.tolist(), rewards, strict=True):
                if reward is not None:
                    self.set_feedback(entry, reward)
        else:
            # NumPy converts None to NaN.
            windows.reward[entries] = np.array(rewards, np.float64)
        for entry, contents in zip(entries.tolist(), ids, strict=True) if named and any(ids) else ():
            if contents:
                self.named_feedback[entry] = {id: tuple(content) for id, content in contents.items()}
        return entries, block


def _collect_columns(
    blocks: Mapping[int, Block[DecisionRow]],
    numbers: list[int],
    row_indices: list[int],
    fields: Iterable[str],
) -> list[list[Any]]:
    """Return a list of values for each field of the rows with these block numbers and indices in blocks."""
    lists = []
    for field in fields:
        columns = {number: blocks[number].column(field) for number in set(numbers)}
        pairs = zip(numbers, row_indices, strict=True)
        lists.append([columns[number][row_index] for number, row_index in pairs])
    return lists


def _iterate_pieces(
    blocks: dict[int, Block[DecisionRow]], columns: Sequence[Any], count: int
) -> Iterator[list[list[Any]]]:
    """Yield columns in pieces, as lists; the first two, block and index, become the columns of the rows."""
    for first in range(0, count, PIECE_ROWS):
        numbers, row_indices, *rest = (_as_python(column[first : first + PIECE_ROWS]) for column in columns)
        yield [*_collect_columns(blocks, numbers, row_indices, DecisionRow._fields), *rest]


def _as_python(column: Any) -> list[Any]:
    """Convert a column to a list of Python values; NaN becomes None."""
    if isinstance(column, list):
        return column
    values: list[Any] = nan_to_none(column) if column.dtype.kind == "f" else column.tolist()
    return values
