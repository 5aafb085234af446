"""What the page says of the arms of one key: rates with intervals, and which is likely the best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tacit.core.arrays import Floats
from tacit.learning.estimates.posteriors import chances_best, intervals


class Believed(NamedTuple):
    """What is believed of one number.

    Attributes
    ----------
    name : str
    trials : float
        What the estimate rests on: how often an arm was shown, or a list was read that far.
    estimate, low, high : float
        The estimate, and the ends of its 95 % interval.
    best : float or None
        The probability that this arm is the best one.
    ever : float or None
        How often the arm was shown and learned from, be it forgotten or not; None if not known.
    """

    name: str
    trials: float
    estimate: float
    low: float
    high: float
    best: float | None = None
    ever: float | None = None


def arms_believed(
    names: Sequence[str], plays: Floats, rewards: Floats, most: int | None = None
) -> list[Believed]:
    """Return what is believed of each arm, from uniform priors on the chance of a click.

    Parameters
    ----------
    names : sequence of str
    plays, rewards : array of float64, shape (arms,)
    most : int, optional
        Of more arms, those that are most likely the best, in the order of the arms.

    Examples
    --------
    >>> film, shop = arms_believed(["film", "shop"], np.array([1.0, 0.0]), np.array([1.0, 0.0]))
    >>> [round(x, 3) for x in (film.low, film.high, film.best, shop.best)]
    [0.224, 1.0, 0.667, 0.333]
    """
    successes = 1.0 + np.asarray(rewards, np.float64)
    failures = 1.0 + np.maximum(plays - rewards, 0.0)
    best = chances_best(successes, failures)
    among = np.sort(np.lexsort((-plays, -best))[:most])
    with np.errstate(invalid="ignore"):
        rates = np.divide(rewards, plays)[among]
    ends = intervals(successes[among], failures[among], rates)
    rows = zip(among.tolist(), np.nan_to_num(rates).tolist(), ends.tolist(), strict=True)
    return [
        Believed(names[i], float(plays[i]), rate, low, high, float(best[i])) for i, rate, (low, high) in rows
    ]


def placed_believed(
    names: Sequence[str], shows: Floats, clicks: Floats, effects: Floats
) -> tuple[list[Believed], list[Believed]]:
    """Return what is believed of each arm's relevance and each position's examination.

    Clicks of an arm at a position are taken for Poisson with mean shows · relevance · examination;
    each interval takes the other estimates as given.

    Parameters
    ----------
    names : sequence of str
    shows, clicks : array of float64, shape (arms, positions)
    effects : array of float64, shape (positions,)
        How likely each position is examined.
    """
    seen, came = shows @ effects, clicks.sum(axis=1)
    arms = [_poisson(name, *of) for name, *of in zip(names, came, seen, strict=True)]
    relevance = np.array([arm.estimate for arm in arms])
    positions = []
    for place, (effect, own) in enumerate(zip(effects, clicks.sum(axis=0), strict=True)):
        margin = 1.96 * np.sqrt(own + 1.0) / max(float(shows[:, place] @ relevance), 1e-12)
        low, high = max(effect - margin, 0.0), min(effect + margin, 1.0)
        named = f"position {place + 1}"
        trials = float(shows[:, place].sum())
        positions.append(Believed(named, trials, float(effect), float(low), float(high)))
    return arms, positions


def _poisson(name: str, clicks: float, seen: float) -> Believed:
    if not seen:
        return Believed(name, 0.0, 0.0, 0.0, 1.0)
    margin = 1.96 * np.sqrt(clicks + 1.0) / seen
    rate = min(clicks / seen, 1.0)
    return Believed(
        name, float(seen), float(rate), float(max(rate - margin, 0.0)), float(min(rate + margin, 1))
    )


def share_believed(name: str, count: float, trials: float) -> Believed:
    """Return what is believed of a share; the interval is that of its Beta posterior."""
    (believed,) = arms_believed([name], np.array([trials]), np.array([count]))
    return believed._replace(best=None)
