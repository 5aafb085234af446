"""What a learner believes of single arms: means, intervals, the chance to be the best."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats
from tacit.core.text import Tabulated, aligned
from tacit.learning.estimates.posteriors import chances_best, intervals
from tacit.learning.offer import Offer
from tacit.policies.base import ArmBeliefs


class ArmEstimate(NamedTuple):
    """What is believed of an arm.

    Attributes
    ----------
    arm : str or int
    plays : int or None
        How often it was shown and learned from, ever; None where a key has learned in version 0.2
        or before, which did not count that, and where arms are known by their features.
    plays_now : float or None
        How many plays count now: those that the policy has not forgotten, by a shift that it
        believes in, a window or a discount; with those of ``priors``. None where arms are known by
        their features.
    mean : float or None
        Its mean reward; None where nothing is known.
    low, high : float
        An interval, which holds the mean.
    chance_best : float
        The probability that it is the best arm on offer; 0 for one that is off offer.
    """

    arm: Any
    plays: int | None
    plays_now: float | None
    mean: float | None
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
        counted = any(each.plays_now is not None for each in self)
        body = [
            [
                str(each.arm),
                *([_shown(each.plays, ",.0f"), _shown(each.plays_now, ",.0f")] if counted else []),
                _shown(each.mean, ".3f"),
                f"[{each.low:.3f}, {each.high:.3f}]",
                f"{100 * each.chance_best:.1f} %",
            ]
            for each in self
        ]
        sure = f"{self.confidence:.0%}".replace("%", " %")
        head = ["arm", *(["plays", "count now"] if counted else []), "mean", sure, "best"]
        return aligned([head, *body])


def _shown(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def estimates_of(believed: ArmBeliefs, plays: Floats, offer: Offer, confidence: float) -> Estimates:
    """Return what beliefs in all arms come to, with those on offer held against one another.

    Parameters
    ----------
    believed : ArmBeliefs
    plays : array of float64, shape (arms,)
        How often each was shown, ever; NaN where that is not known.
    offer : Offer
    confidence : float

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
            None if np.isnan(plays[slot]) else round(plays[slot]),
            float(believed.plays[slot]),
            None if np.isnan(believed.means[slot]) else float(believed.means[slot]),
            float(ends[slot, 0]),
            float(ends[slot, 1]),
            float(best[slot]),
        )
        for slot, arm in enumerate(offer.names)
    )
    found.confidence = confidence
    return found
