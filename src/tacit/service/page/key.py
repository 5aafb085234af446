"""Views of keys for the pages: the busiest keys, and one key with the estimates of its arms."""

# 1. Estimates of arms and positions with intervals.
# 2. The busiest keys, and the page of one key.

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats
from tacit.learning.decisions import nan_to_none
from tacit.learning.estimates import compute_best_probabilities, compute_intervals
from tacit.policies.base import ArmBeliefs
from tacit.service.engine.reports import KeyFacts
from tacit.service.page.charts import format_age
from tacit.service.placements.placement import Placement

# ---- Estimates of arms and positions with intervals


class RateEstimate(NamedTuple):
    """Estimate of a rate, such as an arm's chance of a click, with its interval.

    Attributes
    ----------
    name : str
    trials : float
        Number of trials: impressions of an arm, or lists that were read as far as a position.
    estimate, low, high : float
        The estimate, and the ends of its 95 % interval.
    best : float or None
        The probability that this arm is the best one.
    ever : float or None
        Impressions of the arm that were ever learned, even if forgotten since; None if not known.
    """

    name: str
    trials: float
    estimate: float
    low: float
    high: float
    best: float | None = None
    ever: float | None = None

    def scale(self, width: float) -> RateEstimate:
        """Return the estimate and its interval multiplied by ``width``."""
        return self._replace(estimate=width * self.estimate, low=width * self.low, high=width * self.high)


def estimate_arms(names: Sequence[str], beliefs: ArmBeliefs, most: int | None = None) -> list[RateEstimate]:
    """Return each arm's estimated rate, 95 % interval and probability to be best, in order of the arms.

    Parameters
    ----------
    names : sequence of str
    beliefs : ArmBeliefs
    most : int, optional
        Largest number of arms; the arms that are most likely the best are returned.

    Examples
    --------
    >>> of = ArmBeliefs.from_counts(np.array([1.0, 0.0]), np.array([1.0, 0.0]))
    >>> film, shop = estimate_arms(["film", "shop"], of)
    >>> [round(x, 3) for x in (film.low, film.high, film.best, shop.best)]
    [0.224, 1.0, 0.667, 0.333]
    """
    best = compute_best_probabilities(beliefs.successes, beliefs.failures)
    # Selected by the probability to be best, then by plays; None selects all.
    indices = np.sort(np.lexsort((-beliefs.plays, -best))[:most])
    ends = compute_intervals(beliefs.successes[indices], beliefs.failures[indices], beliefs.means[indices])
    rows = zip(indices.tolist(), np.nan_to_num(beliefs.means[indices]).tolist(), ends.tolist(), strict=True)
    return [
        RateEstimate(names[i], float(beliefs.plays[i]), mean, low, high, float(best[i]))
        for i, mean, (low, high) in rows
    ]


def estimate_positions(
    names: Sequence[str], shows: Floats, clicks: Floats, effects: Floats
) -> tuple[list[RateEstimate], list[RateEstimate]]:
    """Return estimates of each arm's relevance and each position's examination.

    Clicks of an arm at a position are modelled as Poisson with mean shows · relevance · examination;
    each interval treats the other estimates as exact.

    Parameters
    ----------
    names : sequence of str
    shows, clicks : array of float64, shape (arms, positions)
    effects : array of float64, shape (positions,)
        Estimated examination probability of each position.
    """
    examinations, arm_clicks = shows @ effects, clicks.sum(axis=1)
    arms = [
        _estimate_poisson(name, *counts)
        for name, *counts in zip(names, arm_clicks, examinations, strict=True)
    ]
    relevance = np.array([arm.estimate for arm in arms])
    positions = []
    for place, (effect, position_clicks) in enumerate(zip(effects, clicks.sum(axis=0), strict=True)):
        # One more click, so that none at all does not seem certain.
        margin = 1.96 * np.sqrt(position_clicks + 1.0) / max(float(shows[:, place] @ relevance), 1e-12)
        low, high = max(effect - margin, 0.0), min(effect + margin, 1.0)
        label = f"position {place + 1}"
        trials = float(shows[:, place].sum())
        positions.append(RateEstimate(label, trials, float(effect), float(low), float(high)))
    return arms, positions


def _estimate_poisson(name: str, clicks: float, examinations: float) -> RateEstimate:
    """Return an arm's rate of clicks per examination, at most 1, with a 95 % interval.

    Without examinations, the rate is 0 and the interval [0, 1].
    """
    if not examinations:
        return RateEstimate(name, 0.0, 0.0, 0.0, 1.0)
    margin = 1.96 * np.sqrt(clicks + 1.0) / examinations
    rate = min(clicks / examinations, 1.0)
    return RateEstimate(
        name, float(examinations), float(rate), float(max(rate - margin, 0.0)), float(min(rate + margin, 1))
    )


def estimate_share(name: str, count: float, trials: float) -> RateEstimate:
    """Return the estimate of the share count / trials, with the 95 % interval of its Beta posterior."""
    (estimate,) = estimate_arms([name], ArmBeliefs.from_counts(np.array([trials]), np.array([count])))
    return estimate._replace(best=None)


# ---- The busiest keys, and the page of one key

MOST_RESTARTS = 20
MOST_ARMS = 30


class BusyKey(NamedTuple):
    """One of the keys with the most impressions.

    Attributes
    ----------
    name : str
    ever : float
        Impressions that were ever learned; NaN if not known.
    plays : float
        Impressions that count now: since the last restart, or weighted by a window or a discount.
    epoch : int
    leader : RateEstimate or None
        The arm that is most likely the best by the policy's estimates; None if none was shown since the
        last restart.
    """

    name: str
    ever: float
    plays: float
    epoch: int
    leader: RateEstimate | None


class RestartRow(NamedTuple):
    """A restart of a key: time, context that announced it, and whether that was right, if known."""

    when: str
    context: str
    came_true: str


def make_busy_rows(
    facts: Sequence[KeyFacts], arms: Sequence[str], retired: Container[str] = ()
) -> list[BusyKey]:
    """Return a row for each key, with the leading arm on offer.

    Keys whose policy has no estimates of arms are left out.
    """
    rows, indices = [], [i for i, arm in enumerate(arms) if arm not in retired]
    for fact in facts:
        if fact.believed is None:
            continue
        on_offer = ArmBeliefs(*(column[indices] for column in fact.believed))
        leader = estimate_arms([arms[i] for i in indices], on_offer, most=1)
        plays, ever = float(fact.believed.plays.sum()), float(fact.plays.sum())
        leading_arm = leader[0].scale(fact.width) if on_offer.plays.any() else None
        rows.append(BusyKey(fact.name, ever, plays, fact.epoch, leading_arm))
    return rows


class KeyView:
    """The page's view of one key.

    Parameters
    ----------
    facts : KeyFacts
    placement : Placement
    now : int
        Microseconds since 1970.
    """

    def __init__(self, facts: KeyFacts, placement: Placement, now: int) -> None:
        self.name, self.epoch = facts.name, facts.epoch
        self.placement = placement.name
        self.policy = type(placement.config.policy).__name__
        self.listed, self.unit = placement.kind.showing.listed, placement.config.scale
        self.restarting = placement.restarts
        self._facts, self._placement, self._now = facts, placement, now

    @cached_property
    def _estimates(self) -> tuple[list[RateEstimate], list[RateEstimate]]:
        """Estimates of arms, at most ``MOST_ARMS``, and of positions; empty if the policy has none."""
        names = [str(arm) for arm in self._placement.arms]
        if self._facts.placed is not None:
            arms, positions = estimate_positions(names, *self._facts.placed)
            indices = sorted(range(len(arms)), key=lambda i: -arms[i].trials)[:MOST_ARMS]
            return [arms[i] for i in sorted(indices)], positions
        if self._facts.believed is not None:
            estimates = estimate_arms(names, self._facts.believed, most=MOST_ARMS)
            return [estimate.scale(self._facts.width) for estimate in estimates], []
        return [], []

    @property
    def arms(self) -> list[RateEstimate]:
        """Estimates of at most ``MOST_ARMS`` arms since the last restart; empty if the policy has none."""
        ever = dict(zip(map(str, self._placement.arms), nan_to_none(self._facts.plays), strict=False))
        return [arm._replace(ever=ever.get(arm.name)) for arm in self._estimates[0]]

    @property
    def counted(self) -> bool:
        """True if the number of impressions ever learned is known for any arm."""
        return any(arm.ever is not None for arm in self.arms)

    @property
    def left_out(self) -> int:
        """Number of arms that are left out of ``arms`` because there are too many."""
        return max(len(self._placement.arms) - len(self.arms), 0) if self.arms else 0

    @property
    def positions(self) -> list[RateEstimate]:
        """Estimates of each position's examination; empty if the policy does not model it."""
        return self._estimates[1]

    @property
    def explained(self) -> bool:
        """True if the context that announced a restart is known for any restart."""
        return any(restart.context for restart in self.restarts)

    @cached_property
    def restarts(self) -> list[RestartRow]:
        """The key's latest restarts, the last one first: the policy's record, or else the placement's."""
        if self._facts.restarts is not None:
            return [_make_restart_row(restart) for restart in self._facts.restarts[: -MOST_RESTARTS - 1 : -1]]
        shifts = [shift for shift in self._placement.series.shifts if shift.key == self.name]
        return [RestartRow(format_age(self._now - shift.time), "", "") for shift in reversed(shifts)]


def _make_restart_row(restart: Any) -> RestartRow:
    """Return a restart as text: its impression, its context, and whether the announcement was right."""
    context = getattr(restart, "context", None)
    label = {None: "not known yet", True: "yes", False: "no, a false alarm"}
    return RestartRow(
        f"impression {restart.round}",
        "" if context is None else ", ".join(f"{value:.3g}" for value in context),
        label[getattr(restart, "label", None)],
    )
