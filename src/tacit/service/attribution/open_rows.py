"""The rows of open decisions, in the blocks in which they came."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Any

from tacit.core.arrays import Ints
from tacit.service.log.blocks import Block
from tacit.service.log.rows import DecisionRow


class OpenRows:
    """Blocks of decisions, each for as long as one of its decisions is held.

    Examples
    --------
    >>> import numpy as np
    >>> rows = OpenRows()
    >>> block = Block.of(DecisionRow, [DecisionRow(7, "a", 1, 1, 0, "k", None, 0, 1.0, 0, None)])
    >>> number = rows.put(block, np.array([40]))
    >>> rows.slot_of(7), rows.slot_of(8), rows.block(number)[0].id
    (40, None, 'a')
    >>> rows.release(np.array([number]))
    >>> rows.slot_of(7) is None
    True
    """

    def __init__(self) -> None:
        self._blocks: dict[int, Block[DecisionRow]] = {}
        self._slots: dict[int, Ints] = {}
        self._held: dict[int, int] = {}
        # Of the blocks that came in the order of the log: their numbers, and first decisions.
        self._numbers: list[int] = []
        self._firsts: list[int] = []
        self._strays: dict[int, int] = {}
        self._last = 0

    def put(self, block: Block[DecisionRow], slots: Ints, *, in_order: bool = True) -> int:
        """Hold decisions that were given slots; return the block's number.

        Parameters
        ----------
        block : Block
        slots : array of int64, shape (rows,)
        in_order : bool
            Whether they come after all others in the log, ascending.
        """
        self._last += 1
        self._blocks[self._last], self._slots[self._last] = block, slots
        self._held[self._last] = len(block)
        seqs = block.column("seq")
        if in_order:
            self._numbers.append(self._last)
            self._firsts.append(seqs[0])
        else:
            self._strays.update(zip(seqs, slots.tolist(), strict=True))
        return self._last

    def release(self, numbers: Ints) -> None:
        """Hold one decision less of a block, for each time that its number is given."""
        each = numbers.tolist()
        # Most often they are of one block.
        for number in set(each):
            self._held[number] -= each.count(number)
            if not self._held[number]:
                self._drop(number)

    def _drop(self, number: int) -> None:
        block = self._blocks.pop(number)
        del self._slots[number], self._held[number]
        place = bisect_left(self._numbers, number)
        if place < len(self._numbers) and self._numbers[place] == number:
            del self._numbers[place], self._firsts[place]
        else:
            for seq in block.column("seq"):
                del self._strays[seq]

    def block(self, number: int) -> Block[DecisionRow]:
        """Return a block by its number."""
        return self._blocks[number]

    def change(self, field: str, change: Callable[[Any], Any]) -> None:
        """Let a field of every row have another value."""
        for number, block in self._blocks.items():
            self._blocks[number] = block.with_column(field, list(map(change, block.column(field))))

    def slot_of(self, seq: int) -> int | None:
        """Return the slot that a decision was given, by its place in the log.

        It may have been given to another one since, if others of its block are held.
        """
        stray = self._strays.get(seq)
        if stray is not None:
            return stray
        place = bisect_right(self._firsts, seq) - 1
        if place < 0:
            return None
        number = self._numbers[place]
        seqs = self._blocks[number].column("seq")
        within = bisect_left(seqs, seq)
        if within == len(seqs) or seqs[within] != seq:
            return None
        return int(self._slots[number][within])
