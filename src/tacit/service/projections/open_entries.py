"""Open decisions: their rows in the log, their windows and their feedback, by entry."""

# 1. ``OpenRows``: rows by sequence number, in the blocks in which they came, so that nothing is copied.
# 2. ``OpenEntries``: ids, windows and feedback by entry, in columns for compiled loops.
# The data with which a policy learns a decision are in ``OpenDecisions``, by the same entries.
# An entry is free again when its decision is closed and its default can no longer be corrected; a block is
# dropped with the last of its decisions. So memory follows the open decisions, not all decisions ever made.

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from operator import call
from typing import Any

import numpy as np

from tacit.core.arrays import Floats, Ints, copy_to_larger
from tacit.learning.decisions import nan_to_none
from tacit.service.log.blocks import Block
from tacit.service.log.requests import select_clicks
from tacit.service.log.rows import Content, DecisionRow
from tacit.service.projections.windows import Windows, compile_loops

# ---- Rows of open decisions, in the blocks in which they came


SMALL_BLOCK, MAX_JOINED_ROWS = 256, 512
"""Blocks below the first size are joined up to the second: a small block costs more memory than its rows."""
NUMBERS = "seq", "time"
"""Fields that a joined block stores as arrays of numbers, not as Python objects."""


class OpenRows:
    """Blocks of open decisions; a block is dropped when all its decisions are released.

    Examples
    --------
    >>> import numpy as np
    >>> rows = OpenRows()
    >>> block = Block.from_rows(DecisionRow, [DecisionRow(7, "a", 1, 1, 0, "k", None, 0, 1.0, 0, None)])
    >>> number, place = rows.append_small(block, np.array([40]))
    >>> rows.find_entry(7), rows.find_entry(8), rows.get_block(number)[place].id
    (40, None, 'a')
    >>> rows.release(np.array([number]))
    >>> rows.find_entry(7) is None
    True
    """

    def __init__(self) -> None:
        """Begin without blocks."""
        self._blocks: dict[int, Block[DecisionRow]] = {}
        self._entries: dict[int, Sequence[int] | Ints] = {}
        self._open_counts: dict[int, int] = {}
        # Numbers and first sequence numbers of the blocks that came in the order of the log.
        self._numbers: list[int] = []
        self._first_seqs: list[int] = []
        self._out_of_order_entries: dict[int, int] = {}
        self._last_number = 0
        # Number of the block to which small ones are joined (0 for none), its row count, and the functions
        # that extend its columns.
        self._growing_number = self._growing_size = 0
        self._extend_functions: list[Callable[[Iterable[Any]], None]] = []

    def add_block(
        self, block: Block[DecisionRow], entries: Ints, *, in_order: bool = True
    ) -> tuple[int, int]:
        """Add a block of decisions; return its number and the index of its first row in the block.

        Parameters
        ----------
        block : Block
        entries : array of int64, shape (rows,)
            Entries of the decisions.
        in_order : bool
            Whether the decisions follow all earlier ones in the log, in ascending order.
        """
        number = self._begin_block(block, entries)
        self._open_counts[number] = len(block)
        seqs = block.column("seq")
        if in_order:
            self._growing_number = 0
            self._numbers.append(number)
            self._first_seqs.append(seqs[0])
        else:
            self._out_of_order_entries.update(zip(seqs, entries.tolist(), strict=True))
        return number, 0

    def _begin_block(self, block: Block[DecisionRow], entries: Sequence[int] | Ints) -> int:
        """Store a block and its entries under the next number; return the number."""
        self._last_number += 1
        self._blocks[self._last_number], self._entries[self._last_number] = block, entries
        return self._last_number

    def append_small(self, block: Block[DecisionRow], entries: Ints) -> tuple[int, int]:
        """Append a small block, the latest in the log, to the growing block, or begin a new one.

        Returns the number of the growing block, and the index of the first appended row in it.
        """
        number, count = self._growing_number, len(block)
        # With one decision a request, each block would be a dozen lists of length one.
        if not number or self._growing_size + count > MAX_JOINED_ROWS:
            columns: Any = [array("q") if field in NUMBERS else [] for field in DecisionRow._fields]
            number = self._growing_number = self._begin_block(Block(DecisionRow, columns), array("q"))
            self._growing_size = self._open_counts[number] = 0
            self._numbers.append(number)
            self._first_seqs.append(block.column("seq")[0])
            self._extend_functions = [column.extend for column in columns]
        row_index = self._growing_size
        # ``any`` runs the calls in C: each returns None.
        any(map(call, self._extend_functions, block.columns))
        self._entries[number].extend(entries.tolist())  # type: ignore[union-attr]
        self._open_counts[number] += count
        self._growing_size += count
        return number, row_index

    def release(self, numbers: Ints) -> None:
        """Count one decision less as open for each number of a block; drop blocks without open decisions."""
        block_numbers = numbers.tolist()
        # Most often all numbers are the same.
        for number in set(block_numbers):
            self._open_counts[number] -= block_numbers.count(number)
            if not self._open_counts[number]:
                self._drop(number)

    def _drop(self, number: int) -> None:
        """Remove a block, its entries and its place in the index."""
        block = self._blocks.pop(number)
        if number == self._growing_number:
            self._growing_number = 0
        del self._entries[number], self._open_counts[number]
        index = bisect_left(self._numbers, number)
        if index < len(self._numbers) and self._numbers[index] == number:
            del self._numbers[index], self._first_seqs[index]
        else:
            for seq in block.column("seq"):
                del self._out_of_order_entries[seq]

    def is_next(self, seqs: Sequence[int]) -> bool:
        """True if sequence numbers ascend and follow those of all blocks in the order of the log."""
        last = self._blocks[self._numbers[-1]].column("seq")[-1] if self._numbers else 0
        return bool((np.diff(seqs, prepend=last) > 0).all())

    def copy_blocks(self) -> dict[int, Block[DecisionRow]]:
        """Return a copy of the current blocks by number."""
        return dict(self._blocks)

    def get_block(self, number: int) -> Block[DecisionRow]:
        """Return a block by its number."""
        return self._blocks[number]

    def apply_to_field(self, field: str, function: Callable[[Any], Any]) -> None:
        """Replace a field of every row by ``function`` of its value; later rows go to new blocks."""
        self._growing_number = 0
        for number, block in self._blocks.items():
            self._blocks[number] = block.with_column(field, list(map(function, block.column(field))))

    def find_entry(self, seq: int) -> int | None:
        """Return the entry of a decision by its sequence number; None if no block has the decision."""
        entry = self._out_of_order_entries.get(seq)
        if entry is not None:
            return entry
        # Blocks are in the order of the log, so two binary searches find a decision without an index.
        index = bisect_right(self._first_seqs, seq) - 1
        if index < 0:
            return None
        number = self._numbers[index]
        seqs = self._blocks[number].column("seq")
        row_index = bisect_left(seqs, seq)
        if row_index == len(seqs) or seqs[row_index] != seq:
            return None
        return int(self._entries[number][row_index])


# ---- Windows of open decisions as columns, one entry each: no Python object for a single decision

ExtraColumns = Callable[[Ints], Iterable[Ints | list[Any]]]
"""Returns additional columns of a snapshot for the decisions with these entries."""

ROWS_PER_PIECE = 4096
"""Number of rows that are converted from columns at once."""
SPARE_ENTRIES = 256
ROW_BYTES = 430
"""Bytes of Python objects for an open decision: its row, its id and its place in the dict of ids."""


class OpenEntries:
    """The entries of open decisions, their rows, windows, feedback and feedback ids.

    Attributes
    ----------
    windows : Windows
        Columns by entry; replaced when they grow.
    clicks : dict of int to list
        Clicked positions of lists so far, by entry.
    zero : float
        Reward of the amount 0 of a learned metric; 0 for other rewards.
    """

    zero = 0.0

    def __init__(self) -> None:
        """Begin without entries."""
        self._by_id: dict[str, int] = {}
        self.find = self._by_id.get
        """Return the entry of an open decision by its id, or None."""
        self.windows = Windows.zeros(0)
        self.clicks: dict[int, list[Any]] = {}
        self._loops = compile_loops()
        self._free = np.empty(0, np.int32)
        self._free_count = 0
        self._closed_entries: list[Ints] = []
        self._rows = OpenRows()
        self._ids: dict[int, dict[str, Content]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def bytes(self) -> int:
        """Approximate size of the entries in bytes, without the blocks' columns and the learner's data."""
        columns = sum(column.nbytes for column in (*self.windows, self._free))
        return columns + ROW_BYTES * len(self._by_id)

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
        block = self._rows.get_block(int(self.windows.block[entry]))
        return block[int(self.windows.place[entry])]

    def find_row(self, seq: int) -> DecisionRow:
        """Return the row of an open decision by its sequence number; the decision must be open."""
        return self.get_row(self.find_entry(seq))

    def find_entry(self, seq: int) -> int:
        """Return the entry of a decision by its sequence number.

        −1 if it is closed and cannot be corrected.
        """
        entry, windows = self._rows.find_entry(seq), self.windows
        if entry is None or windows.seq[entry] != seq:
            return -1
        return entry if windows.open[entry] or windows.defaulted[entry] else -1

    def get_rows(self, entries: Ints) -> list[DecisionRow]:
        """Return the rows of decisions by their entries."""
        blocks = map(self._rows.get_block, self.windows.block[entries].tolist())
        row_indices = self.windows.place[entries].tolist()
        return [block[row_index] for block, row_index in zip(blocks, row_indices, strict=True)]

    def apply_to_field(self, field: str, function: Callable[[Any], Any]) -> None:
        """Replace a field of every open decision's row by the result of a function."""
        self._rows.apply_to_field(field, function)

    def get_column(self, entries: Ints, field: str) -> list[Any]:
        """Return a field of the rows of decisions, one value for each entry."""
        return self.get_columns(entries, field)[0]

    def get_columns(self, entries: Ints, *fields: str) -> list[list[Any]]:
        """Return a list of values for each field, with one value for each entry's row."""
        numbers = self.windows.block[entries].tolist()
        row_indices = self.windows.place[entries].tolist()
        blocks = {number: self._rows.get_block(number) for number in set(numbers)}
        lists = []
        for field in fields:
            columns = {number: block.column(field) for number, block in blocks.items()}
            pairs = zip(numbers, row_indices, strict=True)
            lists.append([columns[number][row_index] for number, row_index in pairs])
        return lists

    def get_seqs(self, entries: Ints) -> list[int]:
        """Return the sequence numbers of decisions (their rows in the log)."""
        numbers: list[int] = self.windows.seq[entries].tolist()
        return numbers

    def get_deadline(self, entry: int) -> int:
        """Return the time at which a decision's window closes, in microseconds since 1970."""
        return int(self.windows.deadline[entry])

    def is_clicked(self, entries: Ints) -> list[bool]:
        """True for each decision that has a click, or so far a reward other than that of the amount 0."""
        rewards, clicks = np.nan_to_num(self.windows.reward[entries], nan=self.zero), self.clicks
        flags: list[bool] = (rewards != self.zero).tolist()
        if not clicks:
            return flags
        pairs = zip(entries.tolist(), flags, strict=True)
        return [bool(select_clicks(clicks[entry])) if entry in clicks else flag for entry, flag in pairs]

    def count_feedback(self, entry: int) -> int:
        """Return the number of feedback rows for a decision."""
        return int(self.windows.answers[entry])

    def get_reward(self, entry: int) -> float:
        """Return the reward of a decision so far; NaN without feedback."""
        return float(self.windows.reward[entry])

    def has_less_feedback(self, entries: Ints, most: int) -> bool:
        """True if each of the decisions has fewer than ``most`` feedback rows."""
        times: list[int] = self.windows.answers[entries].tolist()
        return max(times) < most

    def get_named_feedback(self, entry: int) -> dict[str, Content]:
        """Return the contents of a decision's feedback that came with an id: {feedback id: content}."""
        return self._ids.get(entry, {})

    def note_id(self, entry: int, id: str, content: Content) -> None:
        """Store the content of a decision's feedback with an id."""
        self._ids.setdefault(entry, {})[id] = content

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
        count = len(block)
        if self._free_count < count:
            self._grow(count)
        self._free_count -= count
        # The entry that was freed last is used first: the same few entries stay in the processor's cache.
        entries = self._free[self._free_count : self._free_count + count].astype(np.int64)
        if in_order and count < SMALL_BLOCK:
            number, row_index = self._rows.append_small(block, entries)
        else:
            number, row_index = self._rows.add_block(block, entries, in_order=in_order)
        seqs = np.array(block.column("seq"), np.int64)
        self._loops.open(self.windows, entries, seqs, number, row_index, deadline)
        self._by_id.update(zip(block.column("id"), entries.tolist(), strict=True))
        return entries

    def _grow(self, count: int) -> None:
        """Enlarge the columns by at least ``count`` free entries."""
        old = self.capacity
        new = max(SPARE_ENTRIES, 2 * old, old + count)
        self.windows = copy_to_larger(self.windows, Windows.zeros(new))
        # Large enough for all entries, so that releasing them never allocates.
        free = np.empty(new, np.int32)
        free[: new - old] = np.arange(old, new)
        free[new - old : new - old + self._free_count] = self._free[: self._free_count]
        self._free, self._free_count = free, self._free_count + new - old

    def _release(self) -> None:
        """Make the entries of closed decisions free, and drop their rows and clicks."""
        for entries in self._closed_entries:
            self._free[self._free_count : self._free_count + len(entries)] = entries
            self._free_count += len(entries)
            self._rows.release(self.windows.block[entries])
            for entry in entries.tolist() if self.clicks else ():
                self.clicks.pop(entry, None)
        self._closed_entries.clear()

    def forget_ids(self, entries: Ints) -> None:
        """Drop the ids of closed decisions and of their feedback; rows, windows and clicks stay."""
        # Ids are unique in a placement.
        for id in self.get_column(entries, "id"):
            del self._by_id[id]
        for entry in entries.tolist() if self._ids else ():
            self._ids.pop(entry, None)

    def mark_free(self, entries: Ints) -> None:
        """Mark the entries of closed decisions, which become free when the next decisions are added."""
        self._closed_entries.append(entries)

    # Snapshots -------------------------------------------------------------------------------

    def export(self, entries: Ints, extra_columns: ExtraColumns) -> Iterator[tuple[Any, ...]]:
        """Return an iterator over open decisions as tuples for JSON: row, window, feedback, further columns.

        Columns are copied at the call, so that later changes do not affect the iterator.
        """
        windows, blocks = self.windows, self._rows.copy_blocks()
        contents: Iterable[Any] = repeat(None)
        if self._ids:
            saved_contents = map(self._ids.get, entries.tolist())
            contents = [content and dict(content) for content in saved_contents]
        # Columns are copied now, which is fast; rows are built later, when they are written.
        columns: list[Any] = [
            windows.block[entries],
            windows.place[entries],
            windows.deadline[entries],
            windows.active[entries],
            self._get_feedback(entries),
            windows.examined[entries],
            windows.settled[entries],
            windows.answers[entries],
        ]
        rows = _iterate_rows([*columns, *extra_columns(entries)], len(entries))
        return (
            (blocks[number][row_index], *fields[:6], content, *fields[6:])
            for (number, row_index, *fields), content in zip(rows, contents, strict=False)
        )

    def _get_feedback(self, entries: Ints) -> Floats | list[Any]:
        """Return the clicks or the reward of each decision so far; NaN, or None in a list, without any."""
        rewards: Floats = self.windows.reward[entries]
        if not self.clicks:
            return rewards
        pairs = zip(entries.tolist(), nan_to_none(rewards), strict=True)
        return [self.clicks.get(entry, reward) for entry, reward in pairs]

    def restore(self, saved: Sequence[Sequence[Any]], *, named: bool) -> tuple[Ints, Block[DecisionRow]]:
        """Assign entries to the decisions of a snapshot, with their windows and feedback.

        Returns the entries and the rows of the decisions. ``saved`` has the columns of :meth:`export`; those
        after the eighth are ignored. Feedback ids are restored only if ``named``.
        """
        rows, deadlines, active, rewards, examined, settled, answers, ids = saved[:8]
        fields = zip(DecisionRow._fields, zip(*rows, strict=True), strict=True)
        block: Block[DecisionRow] = Block(DecisionRow, [list(values) for _, values in fields])
        entries, windows = self.add(block, 0, in_order=self._rows.is_next(block.column("seq"))), self.windows
        windows.deadline[entries], windows.active[entries] = deadlines, active
        windows.examined[entries], windows.settled[entries] = examined, settled
        windows.answers[entries] = answers
        for entry, reward, contents in zip(entries.tolist(), rewards, ids, strict=True):
            if reward is not None:
                self.set_feedback(entry, reward)
            if contents and named:
                self._ids[entry] = {id: tuple(content) for id, content in contents.items()}
        return entries, block


def _iterate_rows(columns: Sequence[Any], count: int) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of columns as tuples of Python values; columns are converted piece by piece."""
    for first in range(0, count, ROWS_PER_PIECE):
        piece = [_as_python(column[first : first + ROWS_PER_PIECE]) for column in columns]
        yield from zip(*piece, strict=True)


def _as_python(column: Any) -> list[Any]:
    """Convert a column to a list of Python values; NaN becomes None."""
    if isinstance(column, list):
        return column
    values: list[Any] = nan_to_none(column) if column.dtype.kind == "f" else column.tolist()
    return values
