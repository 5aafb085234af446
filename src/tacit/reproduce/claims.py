"""What a paper claims and whether it holds: verdicts that the numbers choose."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np


def beyond(value: float, limit: float, error: float) -> bool | None:
    """Whether a value exceeds a limit; None within two standard errors of it.

    Examples
    --------
    >>> beyond(1.0, 0.8, 0.05), beyond(0.6, 0.8, 0.05), beyond(0.75, 0.8, 0.05)
    (True, False, None)
    """
    return value > limit if abs(value - limit) >= 2.0 * error else None


def both(first: bool | None, second: bool | None) -> bool | None:
    """Whether two things hold; None if that is open.

    Examples
    --------
    >>> both(True, True), both(None, False), both(True, None)
    (True, False, None)
    """
    if first is False or second is False:
        return False
    return True if first and second else None


def rate(count: int, trials: int) -> str:
    """Return the interval of a probability in words.

    Examples
    --------
    >>> rate(0, 1000)
    'at most 0.37 %, with 95 % confidence'
    """
    low, high = (100.0 * bound for bound in exact_interval(count, trials))
    least = f"{low:.2g} to " if count else "at most "
    return f"{least}{high:.2g} %, with 95 % confidence"


def verdict(claim: str, holds: bool | None, evidence: str) -> str:
    """Return one claim of the paper with what was found; None is neither."""
    found = "Not decided" if holds is None else "Holds" if holds else "Does not hold"
    return f"- **{found}**: {claim} {evidence}"


def log_slope(x: Sequence[float], means: Sequence[float], errors: Sequence[float]) -> tuple[float, float]:
    """Return the least-squares slope of ln mean over ln x, and its standard error.

    The error is that of the means, propagated to first order; it does not cover curvature.

    Parameters
    ----------
    x, means : sequence of float
        Above 0.
    errors : sequence of float
        Standard errors of the means, relative to them.

    Examples
    --------
    >>> slope, error = log_slope([10, 100, 1000], [3.0, 30.0, 300.0], [0.0, 0.0, 0.0])
    >>> round(slope, 12), error
    (1.0, 0.0)
    """
    logs = np.log(x)
    weights = (logs - logs.mean()) / ((logs - logs.mean()) ** 2).sum()
    return float(weights @ np.log(means)), float(np.sqrt(((weights * errors) ** 2).sum()))


def exact_interval(count: int, trials: int) -> tuple[float, float]:
    """Return the 95 % interval of Clopper and Pearson for a probability.

    Examples
    --------
    >>> [round(bound, 5) for bound in exact_interval(0, 1000)]
    [0.0, 0.00368]
    >>> [round(bound, 4) for bound in exact_interval(5, 10)]
    [0.1871, 0.8129]
    """
    tail = (1.0 - 0.95) / 2.0

    def at_most(k: int, p: float) -> float:
        return sum(math.exp(ways(i) + i * math.log(p) + (trials - i) * math.log1p(-p)) for i in range(k + 1))

    def ways(i: int) -> float:
        return math.lgamma(trials + 1) - math.lgamma(i + 1) - math.lgamma(trials - i + 1)

    def root(above: Callable[[float], bool]) -> float:
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2.0
            low, high = (middle, high) if above(middle) else (low, middle)
        return low

    lower = root(lambda p: 1.0 - at_most(count - 1, p) < tail) if count > 0 else 0.0
    upper = root(lambda p: at_most(count, p) > tail) if count < trials else 1.0
    return lower, upper
