"""Evidence from duels that is valid at all times, and the interval that follows."""

from __future__ import annotations

import math


def log_evidence(score: float, plays: float, mean: float) -> float:
    """Return the logarithm of the evidence that outcomes in [0, 1] have another mean.

    It is the likelihood under a Beta(1/2, 1/2) mixture of means over that under ``mean``: a
    supermartingale if ``mean`` is true, so that it ever exceeds log(1/α) with probability at most
    α, however long one goes on and whenever one looks.

    Parameters
    ----------
    score : float
        Sum of the outcomes.
    plays : float
        How many there are.
    mean : float
        In [0, 1].

    References
    ----------
    Robbins (1970), "Statistical methods related to the law of the iterated logarithm"; Ville's
    inequality.

    Examples
    --------
    >>> round(log_evidence(8, 10, mean=0.5), 4)
    0.5163
    """
    mixture = math.lgamma(0.5 + score) + math.lgamma(0.5 + plays - score)
    mixture -= math.lgamma(1.0 + plays) + math.log(math.pi)
    for amount, chance in ((score, mean), (plays - score, 1.0 - mean)):
        if amount > 0.0:
            if chance <= 0.0:
                return math.inf
            mixture -= amount * math.log(chance)
    return mixture


def safe_interval(score: float, plays: float, alpha: float) -> tuple[float, float]:
    """Return all means against which there never was enough evidence, at any time so far.

    Parameters
    ----------
    score : float
        Sum of outcomes in [0, 1].
    plays : float
        How many there are.
    alpha : float
        The probability, at most, that the interval ever excludes the true mean.

    Examples
    --------
    >>> low, high = safe_interval(80, 100, alpha=0.05)
    >>> round(low, 3), round(high, 3)
    (0.648, 0.909)
    """
    if plays == 0:
        return 0.0, 1.0
    bound = math.log(1.0 / alpha)
    ends = []
    for end in (0.0, 1.0):
        inside, outside = score / plays, end
        for _ in range(60):
            middle = (inside + outside) / 2
            if log_evidence(score, plays, middle) < bound:
                inside = middle
            else:
                outside = middle
        ends.append(outside)
    return ends[0], ends[1]
