"""What a learner believes of single arms: means, intervals, the chance to be the best."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats
from tacit.core.text import Tabulated, aligned
from tacit.learning.offer import Offer
from tacit.policies.base import ArmBeliefs

POINTS, REACH = 401, 12.0
"""Points of a density, over so many standard deviations of the log-odds to either side."""


class ArmEstimate(NamedTuple):
    """What is believed of an arm.

    Attributes
    ----------
    arm : str or int
    plays : float
        How often it was shown, as far as the policy remembers; NaN where it knows arms by their
        features, and does not count.
    mean, low, high : float
        Its mean reward, and an interval for that; the mean is NaN where nothing is known.
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
    tail = (1 - checks.number("confidence", confidence, 0.0, 1.0, open_low=True)) / 2
    logits, densities = _densities(believed.successes, believed.failures)
    below = _cumulated(logits, densities)
    points = 1 / (1 + np.exp(-logits))
    best = np.zeros(len(below))
    best[offer.slots] = _chances(logits, densities[offer.slots], below[offer.slots])
    found = Estimates(
        ArmEstimate(
            arm,
            float(believed.plays[slot]),
            float(believed.means[slot]),
            float(np.interp(tail, below[slot], points)),
            float(np.interp(1 - tail, below[slot], points)),
            float(best[slot]),
        )
        for slot, arm in enumerate(offer.names)
    )
    found.confidence = confidence
    return found


def _densities(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return points of log-odds, close together where any density is, and each density there."""
    centre, spread = np.log(a / b), np.sqrt((a + b) / (a * b))
    reach = REACH * np.linspace(-1, 1, POINTS)
    logits = np.unique(np.concatenate(centre[:, None] + spread[:, None] * reach))
    heights = a[:, None] * -np.logaddexp(0, -logits) + b[:, None] * -np.logaddexp(0, logits)
    densities = np.exp(heights - heights.max(axis=1, keepdims=True))
    areas = np.trapezoid(densities, logits, axis=1)
    return logits, densities / areas[:, None]


def _cumulated(logits: Floats, densities: Floats) -> Floats:
    steps = np.diff(logits) * (densities[:, 1:] + densities[:, :-1]) / 2
    return np.concatenate([np.zeros((len(densities), 1)), np.cumsum(steps, axis=1)], axis=1)


def _chances(logits: Floats, densities: Floats, below: Floats) -> Floats:
    """Return with what probability each is the largest: ∫ fᵢ ∏ Fⱼ over the others."""
    chances = [
        np.trapezoid(densities[i] * np.delete(below, i, axis=0).prod(axis=0), logits)
        for i in range(len(below))
    ]
    return np.array(chances, np.float64) / float(sum(chances))
