"""Rows of a log as lists: the rows of one decision, which stand together in the log."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.errors import UnfitLog
from tacit.evaluate.rows import LoggedRows, positions
from tacit.logs.lists import beginnings


class Lists(NamedTuple):
    """Which list each row is of.

    Attributes
    ----------
    first : array of int64, shape (lists,)
        The first row of each list.
    of, place : array of int64, shape (rows,)
        The list of each row, and its position in it.
    """

    first: Ints
    of: Ints
    place: Ints

    @property
    def down(self) -> Ints:
        """The rows in the order of their lists and positions."""
        return np.lexsort((self.place, self.of))

    def table(self, values: Floats, width: int, empty: float) -> Floats:
        """Return values of the rows, a row for each list; ``empty`` where a list has nothing."""
        found = np.full((len(self.first), width), empty)
        found[self.of, self.place] = values
        return found


def lists_of(rows: LoggedRows, slots: int | None = None) -> Lists:
    """Return the lists of some rows, in the order of the log.

    Parameters
    ----------
    rows : LoggedRows
        Whole lists.
    slots : int, optional
        The most places that a list has.

    Raises
    ------
    UnfitLog
        If a row has no position, or the same one as another row of its list; or if it is none of
        so many places.
    """
    place = positions(rows)
    starts = beginnings(rows.chunk.batch["decision_id"])
    lists = Lists(np.flatnonzero(starts), np.cumsum(starts) - 1, place)
    if slots is not None and len(place) and int(place.max()) >= slots:
        row = int(np.argmax(place >= slots))
        raise UnfitLog(
            f"{rows.where(row)}: position: {place[row]} is none of a list of slots={slots}; give "
            "as many slots as a page has, positions from 0"
        )
    down = lists.down
    twice = (lists.of[down][1:] == lists.of[down][:-1]) & (place[down][1:] == place[down][:-1])
    if twice.any():
        row = int(down[1:][np.argmax(twice)])
        raise UnfitLog(
            f"{rows.where(row)}: position: another row of its decision_id has {place[row]}, too; "
            "log one arm for each position, and the rows of a decision together"
        )
    return lists
