"""What a learner believes of single arms: means, intervals, the chance to be the best."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tacit.core import checks
from tacit.core.text import Tabulated, aligned
from tacit.learning.estimates.posteriors import chances_best, intervals
from tacit.learning.offer import Offer
from tacit.policies.base import ArmBeliefs


class ArmEstimate(NamedTuple):
    """What is believed of an arm.

    Attributes
    ----------
    arm : str or int
    plays : float
        How often it was shown, as far as the policy remembers; NaN where it knows arms by their
        features, and does not count.
    mean, low, high : float
        Its mean reward, and an interval around that; the mean is NaN where nothing is known.
    chance_best : float
        The probability that it is the best arm on offer; 0 for one that is off offer.
    """

    arm: Any
    plays: float
    mean: float
    low: float
    high: float
    chance_best: float


class Estimates(tuple[ArmEstimate, ...], Tabulated):
    """An :class:`ArmEstimate` for each arm, in the order of the arms."""

    confidence: float

    def records(self) -> list[dict[str, Any]]:
        """Return one flat dict per arm."""
        return [each._asdict() for each in self]

    def __str__(self) -> str:
        counted = [each for each in self if each.plays == each.plays]
        body = [
            [
                str(each.arm),
                *([f"{each.plays:,.0f}"] if counted else []),
                f"{each.mean:.3f}",
                f"[{each.low:.3f}, {each.high:.3f}]",
                f"{100 * each.chance_best:.1f} %",
            ]
            for each in self
        ]
        sure = f"{self.confidence:.0%}".replace("%", " %")
        head = ["arm", *(["plays"] if counted else []), "mean", sure, "best"]
        return aligned([head, *body])


def estimates_of(believed: ArmBeliefs, offer: Offer, confidence: float) -> Estimates:
    """Return what beliefs in all arms come to, with those on offer held against one another.

    Raises
    ------
    InvalidValue
        If the confidence is none.
    """
    checks.number("confidence", confidence, 0.0, 1.0, open_low=True)
    a, b = believed.successes, believed.failures
    ends = intervals(a, b, believed.means, confidence)
    best = np.zeros(len(a))
    best[offer.slots] = chances_best(a[offer.slots], b[offer.slots])
    found = Estimates(
        ArmEstimate(
            arm,
            float(believed.plays[slot]),
            float(believed.means[slot]),
            float(ends[slot, 0]),
            float(ends[slot, 1]),
            float(best[slot]),
        )
        for slot, arm in enumerate(offer.names)
    )
    found.confidence = confidence
    return found
