"""Probabilities, times and sizes as people read them."""

from __future__ import annotations

SECOND = 1_000_000


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
    """Say how long ago something was.

    Examples
    --------
    >>> age(400_000), age(90_000_000), age(7_300_000_000)
    ('now', '1 min ago', '2 h 1 min ago')
    """
    seconds = microseconds // SECOND
    if seconds < 1:
        return "now"
    for name, length, finer, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60)):
        if seconds >= length:
            count, rest = divmod(seconds, length)
            return f"{count} {name} {rest // part} {finer} ago"
    return f"{seconds // 60} min ago" if seconds >= 60 else f"{seconds} s ago"


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
