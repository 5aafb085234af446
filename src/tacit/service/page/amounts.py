"""Probabilities, times and sizes as people read them."""

from __future__ import annotations

from collections.abc import Sequence

SECOND = 1_000_000
UNITS = (("d", 86_400, 2), ("h", 3600, 2), ("min", 60, 1), ("s", 1, 1))
"""Each with its seconds, and how many units it is written in: days with their hours."""


def chance(probability: float) -> str:
    """Write a probability without claiming certainty.

    Examples
    --------
    >>> chance(0.5), chance(0.9999), chance(0.0001)
    ('50 %', '> 99 %', '< 1 %')
    """
    if probability > 0.99:
        return "> 99 %"
    return "< 1 %" if probability < 0.01 else f"{100 * probability:.0f} %"


def age(microseconds: int) -> str:
    """Return how long ago something was, in words.

    Examples
    --------
    >>> age(400_000), age(90_000_000), age(7_300_000_000)
    ('now', '1 min ago', '2 h 1 min ago')
    """
    return _age(microseconds, 0)


def ages(microseconds: Sequence[int]) -> list[str]:
    """Return how long ago each of several moments was, as precisely as it takes to tell them apart.

    Examples
    --------
    >>> ages([90_000_000, 75_000_000])
    ['1 min 30 s ago', '1 min 15 s ago']
    """
    different = len({time // SECOND for time in microseconds})
    finer = 0
    while len(set(texts := [_age(time, finer) for time in microseconds])) < different:
        finer += 1
    return texts


def _age(microseconds: int, finer: int) -> str:
    seconds = microseconds // SECOND
    first = next((i for i, (_, length, _) in enumerate(UNITS) if seconds >= length), None)
    if first is None:
        return "now"
    parts = []
    for name, length, _ in UNITS[first : first + UNITS[first][2] + finer]:
        count, seconds = divmod(seconds, length)
        parts.append(f"{count} {name}")
    return f"{' '.join(parts)} ago"


def size(count: int) -> str:
    """Write a number of bytes.

    Examples
    --------
    >>> size(900), size(5_600_000)
    ('900 B', '5.6 MB')
    """
    if count < 1000:
        return f"{count} B"
    unit, factor = next((u, f) for u, f in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if count >= f)
    return f"{count / factor:.1f} {unit}"


def seconds(time: float) -> str:
    """Write a short time.

    Examples
    --------
    >>> seconds(0.0022), seconds(0.0464), seconds(1.5), seconds(float("inf"))
    ('2.2 ms', '46 ms', '1.5 s', 'more than 15 s')
    """
    if time == float("inf"):
        return "more than 15 s"
    return f"{1000 * time:.2g} ms" if time < 0.0995 else f"{time:.2g} s"
