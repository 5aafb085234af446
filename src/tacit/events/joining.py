"""Events without a decision's id: the decision that they are about is looked for, and never guessed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque

MOST = 500_000
"""Decisions that are remembered; of more, the first ones that came are forgotten."""

Identity = tuple[str, ...]
"""What event and decision have in common: the placement, and what the map names of key, user and arm."""


class Joining:
    """What was shown to whom and when.

    Parameters
    ----------
    window : float
        Seconds after a decision in which events may be about it.
    most : int
        Decisions that are remembered.

    Examples
    --------
    >>> shown = Joining(60.0)
    >>> shown.note(("home", "user 1"), 100.0, "a")
    >>> shown.note(("home", "user 1"), 130.0, "b")
    >>> shown.found(("home", "user 1"), 120.0), shown.found(("home", "user 1"), 140.0)
    (['a'], ['b'])
    >>> shown.found(("home", "user 1"), 200.0), shown.found(("home", "user 2"), 120.0)
    ([], [])
    """

    def __init__(self, window: float, most: int = MOST) -> None:
        self._window = window
        self._most = most
        self._of: dict[Identity, list[tuple[float, str]]] = {}
        self._order: deque[tuple[Identity, tuple[float, str]]] = deque()

    def note(self, who: Identity, time: float, decision: str) -> None:
        """Remember a decision."""
        kept, known = self._of.setdefault(who, []), (time, decision)
        place = bisect_left(kept, known)
        if kept[place : place + 1] == [known]:
            return
        kept.insert(place, known)
        self._order.append((who, known))
        if len(self._order) > self._most:
            oldest, gone = self._order.popleft()
            self._of[oldest].remove(gone)
            if not self._of[oldest]:
                del self._of[oldest]

    def found(self, who: Identity, time: float) -> list[str]:
        """Return the last decision before a time, within the window; several if all of them were the last."""
        kept = self._of.get(who, [])
        end = bisect_right(kept, time, key=_time)
        if not end or time - kept[end - 1][0] > self._window:
            return []
        begin = bisect_left(kept, kept[end - 1][0], key=_time)
        return [decision for _, decision in kept[begin:end]]


def _time(known: tuple[float, str]) -> float:
    return known[0]
