"""Open decisions as columns, each in a slot of its own: nothing is made for one of them alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from tacit.core.arrays import Ints
from tacit.core.state import copied_into
from tacit.learning.decisions import none_for_nan
from tacit.service.attribution.open_rows import OpenRows
from tacit.service.attribution.windows import Windows, loops
from tacit.service.log.blocks import Block
from tacit.service.log.rows import Content, DecisionRow

Beside = Callable[[Ints], Iterable[Iterable[Any]]]
"""Returns columns of what is known elsewhere of decisions, by their slots."""

SPARE_SLOTS = 256


class OpenSlots:
    """The slots of open decisions, and what came with them."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}
        self.find = self._open.get
        """Return the slot of an open decision by its id, or None."""
        self._windows = Windows.zeros(0)
        self._loops = loops()
        self._free = np.empty(0, np.int64)
        self._free_count = 0
        self._spent: list[Ints] = []
        self._rows = OpenRows()
        self._ids: dict[int, dict[str, Content]] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def capacity(self) -> int:
        """How many slots there are."""
        return len(self._windows.seq)

    @property
    def oldest(self) -> int | None:
        """The place in the log of the first decision from which something may still be learned."""
        known = self._windows.open | self._windows.defaulted
        return int(self._windows.seq[known].min()) if known.any() else None

    def row(self, slot: int) -> DecisionRow:
        """Return the row of a decision."""
        block = self._rows.block(int(self._windows.block[slot]))
        return block[int(self._windows.place[slot])]

    def of(self, seq: int) -> DecisionRow:
        """Return the row of an open decision by its place in the log."""
        return self.row(self._located(seq))

    def _located(self, seq: int) -> int:
        """Return the slot of a decision by its place in the log; −1 if it is long forgotten."""
        slot, windows = self._rows.slot_of(seq), self._windows
        if slot is None or windows.seq[slot] != seq:
            return -1
        return slot if windows.open[slot] or windows.defaulted[slot] else -1

    def rows(self, slots: Ints) -> list[DecisionRow]:
        """Return the rows of decisions."""
        blocks = map(self._rows.block, self._windows.block[slots].tolist())
        places = self._windows.place[slots].tolist()
        return [block[place] for block, place in zip(blocks, places, strict=True)]

    def change(self, field: str, change: Callable[[Any], Any]) -> None:
        """Let a field of the row of every open decision have another value."""
        self._rows.change(field, change)

    def values(self, slots: Ints, field: str) -> list[Any]:
        """Return one field of the rows of decisions."""
        return self.columns(slots, field)[0]

    def columns(self, slots: Ints, *fields: str) -> list[list[Any]]:
        """Return some fields of the rows of decisions, a list for each."""
        numbers = self._windows.block[slots].tolist()
        places = self._windows.place[slots].tolist()
        blocks = {number: self._rows.block(number) for number in set(numbers)}
        found = []
        for field in fields:
            columns = {number: block.column(field) for number, block in blocks.items()}
            pairs = zip(numbers, places, strict=True)
            found.append([columns[number][place] for number, place in pairs])
        return found

    def seqs(self, slots: Ints) -> list[int]:
        """Return the numbers of decisions in the log."""
        numbers: list[int] = self._windows.seq[slots].tolist()
        return numbers

    def deadline(self, slot: int) -> int:
        """Return when a decision's window closes."""
        return int(self._windows.deadline[slot])

    def clicked(self, slots: Ints) -> list[bool]:
        """Return for each decision whether something came back for it that is not 0."""
        answers: list[bool] = (np.nan_to_num(self._windows.reward[slots]) != 0.0).tolist()
        return answers

    def times_told(self, slot: int) -> int:
        """Return how much feedback came for a decision."""
        return int(self._windows.told[slot])

    def told_less(self, slots: Ints, most: int) -> bool:
        """Whether each of some decisions had feedback less than ``most`` times."""
        times: list[int] = self._windows.told[slots].tolist()
        return max(times) < most

    def contents(self, slot: int) -> dict[str, Content]:
        """Return what came with an id, by that id."""
        return self._ids.get(slot, {})

    def _given(self, block: Block[DecisionRow], deadline: int, *, in_order: bool = True) -> Ints:
        """Give decisions slots, open until a time."""
        self._release()
        count = len(block)
        if self._free_count < count:
            self._grow(count)
        self._free_count -= count
        slots = self._free[self._free_count : self._free_count + count].copy()
        number = self._rows.put(block, slots, in_order=in_order)
        seqs = np.array(block.column("seq"), np.int64)
        self._loops.open(self._windows, slots, seqs, number, deadline)
        self._open.update(zip(block.column("id"), slots.tolist(), strict=True))
        return slots

    def _grow(self, count: int) -> None:
        old = self.capacity
        new = max(SPARE_SLOTS, 2 * old, old + count)
        self._windows = copied_into(self._windows, Windows.zeros(new))
        # There is room for all slots, so that none is ever made when they are given back.
        free = np.empty(new, np.int64)
        free[: new - old] = np.arange(old, new)
        free[new - old : new - old + self._free_count] = self._free[: self._free_count]
        self._free, self._free_count = free, self._free_count + new - old

    def _release(self) -> None:
        """Free slots whose decisions are closed."""
        for slots in self._spent:
            self._free[self._free_count : self._free_count + len(slots)] = slots
            self._free_count += len(slots)
            self._rows.release(self._windows.block[slots])
        self._spent.clear()

    def _packed(self, slots: Ints, beside: Beside) -> Iterator[tuple[Any, ...]]:
        windows = self._windows
        numbers = windows.block[slots].tolist()
        blocks = {number: self._rows.block(number) for number in set(numbers)}
        contents: Iterable[Any] = repeat(None)
        if self._ids:
            found = map(self._ids.get, slots.tolist())
            contents = [content and dict(content) for content in found]
        rows = zip(
            numbers,
            windows.place[slots].tolist(),
            windows.deadline[slots].tolist(),
            windows.active[slots].tolist(),
            self._so_far(slots),
            windows.examined[slots].tolist(),
            windows.settled[slots].tolist(),
            windows.told[slots].tolist(),
            contents,
            *beside(slots),
            strict=False,
        )
        return ((blocks[number][place], *rest) for number, place, *rest in rows)

    def _so_far(self, slots: Ints) -> list[Any]:
        """Return what came for decisions; None for nothing."""
        return none_for_nan(self._windows.reward[slots])

    def _take_so_far(self, slot: int, reward: Any) -> None:
        self._windows.reward[slot] = reward

    def _unpacked(self, saved: Iterable[Sequence[Any]], *, named: bool) -> Ints:
        """Give decisions of a snapshot slots, as they were; without their feedback's ids if not
        ``named``."""
        parts = [one[:8] for one in saved]
        if not parts:
            return np.empty(0, np.int64)
        rows, deadlines, active, rewards, examined, settled, told, ids = zip(*parts, strict=True)
        # Rows of earlier versions are shorter.
        block: Block[DecisionRow] = Block.of(DecisionRow, [DecisionRow(*row) for row in rows])
        slots, windows = self._given(block, 0, in_order=False), self._windows
        windows.deadline[slots], windows.active[slots] = deadlines, active
        windows.examined[slots], windows.settled[slots] = examined, settled
        windows.told[slots] = told
        for slot, reward, contents in zip(slots.tolist(), rewards, ids, strict=True):
            if reward is not None:
                self._take_so_far(slot, reward)
            if contents and named:
                self._ids[slot] = {id: tuple(content) for id, content in contents.items()}
        return slots
