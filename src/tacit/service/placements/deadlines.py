"""Decisions by when something ends for them, as columns: nothing is made for one of them alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tacit.core.arrays import Booleans, Ints

SPARE = 64


class Ending(NamedTuple):
    """Decisions, in the order in which something ends for them.

    Attributes
    ----------
    deadlines : array of int64
        When it ends.
    slots : array of int64
    seqs : array of int64
        Their numbers in the log, which tell slots that were given to others since.
    """

    deadlines: Ints
    slots: Ints
    seqs: Ints

    def where(self, wanted: Booleans) -> Ending:
        """Return some of them."""
        return Ending(self.deadlines[wanted], self.slots[wanted], self.seqs[wanted])


class Deadlines:
    """A queue of decisions: first come those for which something ends first.

    Attributes
    ----------
    first, last : int or None
        When it ends for the first and the last of them; None for an empty queue. They are numbers of
        their own, as another thread may ask.

    Examples
    --------
    >>> queue = Deadlines()
    >>> queue.put(20, np.array([3, 4]), np.array([30, 40]))
    >>> queue.put(10, np.array([5]), np.array([50]))
    >>> queue.first, queue.last, queue.take(15).slots, queue.all().slots
    (10, 20, array([5]), array([3, 4]))
    """

    def __init__(self) -> None:
        self._rows = np.empty((3, SPARE), np.int64)
        self._begin = self._end = 0
        self.first: int | None = None
        self.last: int | None = None

    def put(self, deadlines: int | Ints, slots: Ints, seqs: Ints) -> None:
        """Add decisions, of ascending deadlines or one, behind all for which it ends no later."""
        count = len(slots)
        if self._end + count > self._rows.shape[1]:
            self._make_room(count)
        begin, end = self._end, self._end + count
        rows, self._end = self._rows, end
        rows[0, begin:end], rows[1, begin:end], rows[2, begin:end] = deadlines, slots, seqs
        first = int(rows[0, begin]) if count else self.last
        if self.last is not None and first is not None and first < self.last:
            # Windows got shorter.
            known = rows[:, self._begin : end]
            known[:] = known[:, np.argsort(known[0], kind="stable")]
        self._note_ends()

    def take(self, until: int) -> Ending:
        """Remove and return those for which it ends by a time."""
        found = self._rows[:, self._begin : self._end]
        count = int(np.searchsorted(found[0], until, "right"))
        self._begin += count
        self._note_ends()
        return Ending(*found[:, :count].copy())

    def all(self) -> Ending:
        """Return all of them."""
        return Ending(*self._rows[:, self._begin : self._end])

    @property
    def bytes(self) -> int:
        """How many bytes they take."""
        return self._rows.nbytes

    def _note_ends(self) -> None:
        if self._begin == self._end:
            self._begin = self._end = 0
            self.first = self.last = None
        else:
            self.first, self.last = int(self._rows[0, self._begin]), int(self._rows[0, self._end - 1])

    def _make_room(self, count: int) -> None:
        """Move all to the front, of larger columns if those are half full."""
        known = self._rows[:, self._begin : self._end]
        self._end -= self._begin
        self._begin = 0
        needed = self._end + count
        if 2 * needed > self._rows.shape[1]:
            self._rows = np.empty((3, 2 * needed), np.int64)
        self._rows[:, : self._end] = known
