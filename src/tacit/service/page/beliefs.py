"""What the page says of the arms of one key: rates with intervals, and which is likely the best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tacit.core.arrays import Floats

POINTS = 1025
REACH = 9.0
"""Standard deviations on either side of the mode, in log-odds; the tails beyond are longer."""


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
    """

    name: str
    trials: float
    estimate: float
    low: float
    high: float
    best: float | None = None


def arms_believed(names: Sequence[str], plays: Floats, rewards: Floats) -> list[Believed]:
    """Return what is believed of each arm, from uniform priors on the chance of a click.

    Parameters
    ----------
    names : sequence of str
    plays, rewards : array of float64, shape (arms,)

    Examples
    --------
    >>> film, shop = arms_believed(["film", "shop"], np.array([1.0, 0.0]), np.array([1.0, 0.0]))
    >>> [round(x, 3) for x in (film.low, film.high, film.best, shop.best)]
    [0.224, 1.0, 0.667, 0.333]
    """
    posteriors = Posteriors(plays, rewards)
    return [
        Believed(name, float(n), float(r / n) if n else 0.0, *posteriors.interval(i),
                 best=posteriors.best(i))
        for i, (name, n, r) in enumerate(zip(names, plays, rewards, strict=True))
    ]  # fmt: skip


class Posteriors:
    """Independent Beta posteriors of several arms, on grids over their log-odds.

    Parameters
    ----------
    plays, rewards : array of float64, shape (arms,)
    """

    def __init__(self, plays: Floats, rewards: Floats) -> None:
        s = 1.0 + np.asarray(rewards, np.float64)[:, None]
        f = 1.0 + np.maximum(np.asarray(plays, np.float64)[:, None] - s + 1.0, 0.0)
        mode, deviation = np.log(s) - np.log(f), np.sqrt(1.0 / s + 1.0 / f)
        # The tails fall like exp(s·y) and exp(−f·y).
        low, high = mode - REACH * deviation - 10.0 / s, mode + REACH * deviation + 10.0 / f
        with np.errstate(invalid="ignore"):
            self._rates = np.divide(rewards, plays)
        self._y = low + (high - low) * np.linspace(0.0, 1.0, POINTS)
        exponent = s * self._y - (s + f) * np.logaddexp(0.0, self._y)
        density = np.exp(exponent - exponent.max(axis=1, keepdims=True))
        self._mass = density / density.sum(axis=1, keepdims=True)
        self._below = np.cumsum(self._mass, axis=1) - 0.5 * self._mass

    def interval(self, arm: int) -> tuple[float, float]:
        """Return the ends of an arm's central 95 % interval.

        Where its rate lies outside of that, as that of an arm without clicks does, the interval
        of the same probability that ends there.
        """
        rate, below, y = self._rates[arm], self._below[arm], self._y[arm]
        with np.errstate(divide="ignore"):
            odds = np.log(rate) - np.log1p(-rate)
        under = float(np.interp(odds, y, below, 0.0, 1.0))
        # Without plays there is no rate, and any comparison with it fails.
        start = max(min(0.025, under), under - 0.95)
        ends = np.interp([start, start + 0.95], below, y)
        low, high = 1.0 / (1.0 + np.exp(-ends))
        # The grid ends, and numbers are rounded, a little beside.
        return float(np.fmin(low, rate)), float(np.fmax(high, rate))

    def best(self, arm: int) -> float:
        """Return the probability that an arm has the highest rate."""
        chance = self._mass[arm].copy()
        for other in range(len(self._y)):
            if other != arm:
                chance *= np.interp(self._y[arm], self._y[other], self._below[other], 0.0, 1.0)
        return float(min(chance.sum(), 1.0))


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
