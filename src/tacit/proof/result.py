"""What is said of a lift: intervals and what they claim."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

Claim = Literal["early", "undecided", "better", "worse"]


class Interval(NamedTuple):
    """An estimate, and what it lies between.

    Attributes
    ----------
    estimate, low, high : float
    """

    estimate: float
    low: float
    high: float


class Lift(NamedTuple):
    """What the policy earned more than the control, on average over all decisions so far.

    Attributes
    ----------
    claim : str
        ``better`` or ``worse`` if the intervals leave no doubt, else ``undecided``; ``early`` if
        there is too little traffic for any interval.
    ratio : Interval or None
        The policy's mean reward over the control's; None if too early, or where a ratio of
        rewards has no meaning or is not estimated.
    difference : Interval or None
        The policy's mean reward minus the control's, per decision; None if too early.

    Examples
    --------
    >>> Lift("better", Interval(1.2, 1.04, 1.4), Interval(0.01, 0.002, 0.02)).as_dict()["ratio"]
    {'estimate': 1.2, 'low': 1.04, 'high': 1.4}
    """

    claim: Claim
    ratio: Interval | None = None
    difference: Interval | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the lift as JSON data; None for an end that is infinite or not known."""
        return {
            "claim": self.claim,
            "ratio": None if self.ratio is None else _finite(self.ratio),
            "difference": None if self.difference is None else _finite(self.difference),
        }


def _finite(interval: Interval) -> dict[str, float | None]:
    fields = interval._asdict().items()
    return {name: value if math.isfinite(value) else None for name, value in fields}


def claim_of(low: float, high: float) -> Claim:
    """Return what the interval of a difference claims.

    Examples
    --------
    >>> claim_of(-1.0, 2.0), claim_of(0.04, 0.4)
    ('undecided', 'better')
    """
    return "better" if low > 0.0 else "worse" if high < 0.0 else "undecided"
