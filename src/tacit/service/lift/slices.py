"""What control and policy earned in stretches of time, kept in a fixed number of slices."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.proof import HoldoutSums

COUNT = 128
FIRST_WIDTH = 60_000_000
"""Microseconds of a slice at first."""


class Stretch(NamedTuple):
    """Sums over a stretch of time, and from when to when it is."""

    sums: HoldoutSums
    begin: int
    end: int


class Slices:
    """Sums by the time of the decision; when it outgrows the slices, each becomes twice as wide.

    Examples
    --------
    >>> slices = Slices()
    >>> slices.add(np.array([0, 1, 0]), np.array([0, 1, 1]), np.array([0.0, 1.0, 1.0]))
    >>> slices.add(np.array([300 * FIRST_WIDTH]), np.array([1]), np.array([0.5]))
    >>> slices.width // FIRST_WIDTH, slices.between(0, 2**62).sums.counts
    (4, array([1., 3.]))
    >>> slices.between(0, FIRST_WIDTH).sums.totals
    array([0., 2.])
    """

    def __init__(self) -> None:
        self.start, self.width = -1, FIRST_WIDTH
        self.table = np.zeros((3, 2, COUNT))

    def add(self, times: Ints, groups: Ints, rewards: Floats) -> None:
        """Add decisions, one after the other.

        Parameters
        ----------
        times : array of int64, shape (n,)
            When they were made, in microseconds.
        groups : array of int64, shape (n,)
        rewards : array of float64, shape (n,)
        """
        if self.start < 0:
            self.start = int(times[0])
        begun = 0
        while begun < len(times):
            # Slices are joined where the first one that is too late comes, however many come
            # together: the sums are then the same bits.
            late = np.flatnonzero(times[begun:] >= self.start + COUNT * self.width)
            stop = begun + int(late[0]) if len(late) else len(times)
            part = slice(begun, stop)
            places = np.maximum((times[part] - self.start) // self.width, 0)
            earned = rewards[part]
            for sums, values in zip(self.table, (np.ones_like(earned), earned, earned * earned), strict=True):
                np.add.at(sums, (groups[part], places), values)
            if stop < len(times):
                self._widen()
            begun = stop

    def _widen(self) -> None:
        pairs = self.table.reshape(3, 2, COUNT // 2, 2).sum(axis=3)
        self.table[:, :, : COUNT // 2], self.table[:, :, COUNT // 2 :] = pairs, 0.0
        self.width *= 2

    def between(self, begin: int, end: int) -> Stretch:
        """Return the sums over the slices that begin within [begin, end)."""
        edges = self.start + self.width * np.arange(COUNT)
        within = (edges + self.width > begin) & (edges < end)
        counts, totals, squares = self.table[:, :, within].sum(axis=2)
        filled = edges[within & (self.table[0].sum(axis=0) > 0)]
        first, last = (int(filled[0]), int(filled[-1])) if len(filled) else (0, 0)
        return Stretch(HoldoutSums(counts, totals, squares), first, last + self.width)

    def merged(self, other: Slices) -> Slices:
        """Return the sums over the decisions of both."""
        both = Slices()
        begun = sorted((one for one in (self, other) if one.start >= 0), key=lambda one: one.start)
        if not begun:
            return both
        both.start = begun[0].start
        both.width = max(one.width for one in begun)
        ends = [one.start + COUNT * one.width for one in begun]
        while both.start + COUNT * both.width < max(ends):
            both.width *= 2
        for one in begun:
            places = (one.start - both.start + one.width * np.arange(COUNT)) // both.width
            for g in range(2):
                for sums, table in zip(both.table, one.table, strict=True):
                    np.add.at(sums[g], places, table[g])
        return both

    def saved(self) -> dict[str, Any]:
        """Return the sums as JSON data."""
        return {"start": self.start, "width": self.width, "table": self.table.tolist()}

    @classmethod
    def restored(cls, saved: dict[str, Any]) -> Slices:
        """Return what :meth:`saved` gave."""
        made = cls()
        made.start, made.width = saved["start"], saved["width"]
        made.table[:] = saved["table"]
        return made
