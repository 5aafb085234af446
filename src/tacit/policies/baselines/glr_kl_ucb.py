"""GLR-klUCB: restart when two rates explain an arm's rewards better than one (Besson et al. 2022).

The generalized likelihood ratio of a split depends only on the number of rewards before it and their
sum: a point. For fixed rates before and after, the ratio is linear in that point, so the best
split is a vertex of the convex hull of these points. New points come at the right end,
where a stack updates the hull at a constant average cost per reward; a hull of n rewards has some
ln n vertices on each side. So the exact maximum over all splits takes the memory and the time
of a coarse grid (Romano, Eckley, Fearnhead, Rigaill 2023).
"""

# 1. ``Hull``: only splits on the convex hull of (rewards, sum) can have the largest ratio; each play adds a
#    point.
# 2. ``likelihood_ratio``: the test; its cost grows with the vertices of the hull, not with the rewards.
# 3. ``GLRKLUCB``: KL-UCB, forced exploration in turn, and a restart of one arm or of all.

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Ints
from tacit.core.dispatch import kernel
from tacit.core.part import Flag, Fraction, PositiveFraction, int_range, param
from tacit.core.state_ranges import IntCount, ValueRange
from tacit.policies.base import About, Counts, Outcome, count
from tacit.policies.baselines.detector_ucb import ForcingDetector
from tacit.policies.stationary.ucb import bernoulli_kl, kl_index

BELOW, ABOVE = 0, 1


class Hull(NamedTuple):
    """The convex hull of the points (number of rewards, their sum), from below and from above.

    The first vertex is the origin. The upper side is stored with negated sums, so that both
    sides are convex.

    Attributes
    ----------
    times, sums : array of float64, shape (lanes, arms, 2, vertices)
    sizes : array of int64, shape (lanes, arms, 2)
    """

    times: Floats
    sums: Floats
    sizes: Annotated[Ints, ValueRange(0, 0, "times")]


@kernel
def extend_hull(hull: Hull, lane: int, arm: int, side: int, time: float, total: float) -> None:
    """Add a point (rewards so far, their sum) at the right end of one side of an arm's hull, in place.

    Points that are no longer vertices are removed. If there is no space, the oldest split is dropped.
    """
    times, sums = hull.times[lane, arm, side], hull.sums[lane, arm, side]
    size = hull.sizes[lane, arm, side]
    while size > 1:
        last, before = size - 1, size - 2
        step = (sums[last] - sums[before]) * (time - times[last])
        if step < (total - sums[last]) * (times[last] - times[before]):
            break
        size -= 1
    if size == len(times):
        # No space: drop the oldest split, which has been tested most often.
        for i in range(2, size):
            times[i - 1], sums[i - 1] = times[i], sums[i]
        size -= 1
    times[size], sums[size] = time, total
    hull.sizes[lane, arm, side] = size + 1


@kernel
def likelihood_ratio(hull: Hull, lane: int, arm: int) -> float:
    """Return the largest log-likelihood ratio, over all splits of an arm's rewards, of two rates against one.

    The two are Bernoulli rates before and after the split. It is 0 if all rewards so far are 0, or all are 1.
    """
    size = hull.sizes[lane, arm, BELOW]
    count, total = hull.times[lane, arm, BELOW, size - 1], hull.sums[lane, arm, BELOW, size - 1]
    best = 0.0
    if not 0.0 < total < count:
        return best
    mean = total / count
    # The ratio is convex in the point of the split, so that its maximum is at a vertex of the hull.
    for side in (BELOW, ABOVE):
        sign = 1.0 if side == BELOW else -1.0
        for i in range(1, hull.sizes[lane, arm, side] - 1):
            before = hull.times[lane, arm, side, i]
            after = count - before
            first = sign * hull.sums[lane, arm, side, i]
            ratio = before * bernoulli_kl(first / before, mean)
            ratio += after * bernoulli_kl((total - first) / after, mean)
            best = max(best, ratio)
    return best


class RatioState(NamedTuple):
    """Counts since each arm's restart, and the candidate splits of its test.

    Attributes
    ----------
    counts : Counts
        Plays and rewards since the arm's restart; ``rounds`` counts all rounds.
    started : array of float64, shape (lanes, arms)
        The round after which the arm was restarted.
    hull : Hull
    shown, restarts : array of int64, shape (lanes,)
        Numbers of impressions and of restarts.
    """

    counts: Counts
    started: Floats
    hull: Hull
    shown: IntCount
    restarts: IntCount


@kernel
def restart_arm(state: RatioState, lane: int, arm: int) -> None:
    """Reset the plays, rewards and hull of an arm, and store the present round as the start of its counts."""
    state.counts.plays[lane, arm] = 0.0
    state.counts.rewards[lane, arm] = 0.0
    state.started[lane, arm] = state.counts.rounds[lane]
    state.hull.sizes[lane, arm, BELOW] = 1
    state.hull.sizes[lane, arm, ABOVE] = 1


@dataclass(frozen=True)
class GLRKLUCB(ForcingDetector):
    """Play KL-UCB, explore in turn, and restart when a likelihood-ratio test finds a change.

    Of every ⌊arms/α⌋ impressions the first show each arm once. Otherwise, with N the plays of an
    arm since its restart, μ their mean reward and t the rounds since then, the index is the
    largest q with N·kl(μ, q) ≤ ln t. After a reward of an arm, with n rewards since its restart
    of which the first s have mean μ₁, the others mean μ₂ and all of them mean μ, the arm has
    changed if s·kl(μ₁, μ) + (n − s)·kl(μ₂, μ) ≥ ln(3·n·sqrt(n)/δ) for some s. Then all arms are
    restarted, or this one alone; either way the lane has a new epoch.

    The maximum over s is exact, over every s from 1 to n − 1: it is found among the vertices of
    the convex hull of the cumulative sums, of which each side has about ln n + 1 after n rewards
    of the same rate (13 of 100 000, with a standard deviation of 3). If a side has more
    than ``vertices`` of them, the oldest is dropped; then the test may find a change later than
    the exact test, but never one that the exact test would not. A vertex costs some 20 ns a test.
    A lane takes arms·(40 + 32·vertices) + 24 bytes: 5.3 kB for 5 arms by default.

    The threshold is that of the authors' first experiments (SMPyBandits, 2019; their later code omits
    the 3). The threshold for which they prove a false alarm rate of at most δ is larger, by a factor that
    tends to 1 as δ does to 0.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    alpha : float, default 0.005
        Share α of forced exploration, in [0, 1]. Each of K arms gets at least α/K
        of the rounds: with 5 arms and the default one in 1000. Forced exploration costs the gap of the
        explored arm, for ever; it finds an arm that has risen without being shown. 0 is best if every shift
        changes the clicks on shown arms: ``python -m studies shift-horizons`` has both cases.
    delta : float, default 0.001
        The δ of the threshold, in (0, 1]: about the probability that an arm whose rate never
        changes is ever restarted.
    local : bool, default False
        Whether a change of an arm restarts that arm alone, instead of all. A rarely played arm that
        rises when another one falls is then found by forced exploration only: set a larger
        ``alpha``, such as 0.02.
    every : int, default 1
        Number of rewards of an arm between two tests of it; at least 1.
    vertices : int, default 32
        Most vertices on each side of a hull, its end points included; at least 3.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Besson, Kaufmann, Maillard, Seznec (2022), "Efficient change-point detection for tackling
    piecewise-stationary bandits", GLR-klUCB with forced exploration at a constant rate, checked
    against the authors' code for its experiments. For an unknown number of shifts they let
    α grow with the root of the number of restarts; here it does not. The hull: Romano, Eckley,
    Fearnhead, Rigaill (2023), "Fast online changepoint detection via functional pruning CUSUM
    statistics".

    Examples
    --------
    >>> policy = GLRKLUCB.from_horizon(arms=5, horizon=100_000, shifts=5)
    >>> round(policy.alpha, 4), round(policy.delta, 5)
    (0.0054, 0.00316)
    """

    about: ClassVar[About] = About(
        source="Besson, Kaufmann, Maillard, Seznec (2022), GLR-klUCB",
        regret="O(sqrt(Υ·K·T·ln T)) with Υ shifts in T rounds, if segments are long enough; proved "
        "for ten times the tuned α",
        assumes="shifts far enough apart for each to be found before the next",
        fails="finds a shift late that comes soon after another, or lifts an arm that is hardly shown",
        otherwise="ShiftMixture, which has less regret in a fifth of the memory; SlidingWindowUCB "
        "where intent drifts; Thompson with a discount where better arms rise unseen",
    )

    begins_in_turn: ClassVar[bool] = True
    earlier: ClassVar[Mapping[str, Any]] = MappingProxyType({"alpha": 0.02})

    alpha: Fraction = 0.005
    delta: PositiveFraction = 1e-3
    local: Flag = False
    every: Annotated[int, int_range(1, 2**31)] = 1
    vertices: Annotated[int, int_range(3, 2**20)] = 32

    @classmethod
    def from_horizon(
        cls, arms: int | tuple[str, ...], horizon: int, shifts: int, local: bool = False
    ) -> Self:
        """Return the policy with α and δ for a horizon, with a tenth of the published exploration.

        With T rounds, K arms and Υ shifts, α = 0.1·sqrt(Υ·K·ln T/T) and δ = 1/sqrt(T), for
        global and local restarts. The proved rule has no factor 0.1; the authors find it
        better in practice, as does ``python -m studies shift-horizons``. (Their
        preprint of 2019 had no K in α for global restarts, and δ = 1/sqrt(Υ·T).)

        Parameters
        ----------
        arms : int or sequence of str
        horizon : int
            Number of rounds T of a key; at least 2.
        shifts : int
            Number of changes Υ of the click probabilities in the horizon; from 1 to half of the rounds.
        local : bool, default False

        Raises
        ------
        InvalidValue
            If a parameter is out of its range.
        """
        policy = cls(arms, local=local)
        t = checks.integer("horizon", horizon, 2)
        changes = checks.integer("shifts", shifts, 1, t // 2)
        alpha = 0.1 * math.sqrt(changes * policy.arm_count * math.log(t) / t)
        return cls(arms, min(1.0, alpha), 1.0 / math.sqrt(t), local)

    @param
    def share(self) -> float:
        """α, the share of impressions that explore arms in turn."""
        return self.alpha

    def init(self, lanes: int) -> RatioState:
        """Return zero counts, hulls of the origin alone and zero restarts for each lane."""
        shape = (lanes, self.arm_count)
        return RatioState(
            Counts.zeros(*shape),
            np.zeros(shape),
            Hull(
                np.zeros((*shape, 2, self.vertices)),
                np.zeros((*shape, 2, self.vertices)),
                np.ones((*shape, 2), np.int64),
            ),
            np.zeros(lanes, np.int64),
            np.zeros(lanes, np.int64),
        )

    @staticmethod
    def confidence(params: GLRKLUCB, state: RatioState, lane: int) -> float:
        """Return t, the number of the coming round, from which ``index`` computes each arm's budget."""
        return float(state.counts.rounds[lane] + 1.0)

    @staticmethod
    def index(params: GLRKLUCB, state: RatioState, lane: int, arm: int, confidence: float) -> float:
        """Return the largest q with plays·kl(mean, q) ≤ ln(rounds since the arm's restart); infinity before
        its first play.
        """
        return kl_index(state.counts, lane, arm, np.log(confidence - state.started[lane, arm]))

    @staticmethod
    def learn(params: GLRKLUCB, state: RatioState, lane: int, outcome: Outcome) -> None:
        """Count the reward, test the arm for a change and, if there is one, restart the arm, or all arms
        unless ``local``.

        The test is run at every ``every``-th play of the arm. A change counts as one restart of the lane.
        """
        arm = outcome.shown
        count(state.counts, lane, arm, outcome.reward)
        plays, total = state.counts.plays[lane, arm], state.counts.rewards[lane, arm]
        extend_hull(state.hull, lane, arm, BELOW, plays, total)
        extend_hull(state.hull, lane, arm, ABOVE, plays, -total)
        if plays % params.every != 0.0:
            return
        threshold = np.log(3.0 * plays * np.sqrt(plays) / params.delta)
        if likelihood_ratio(state.hull, lane, arm) < threshold:
            return
        for arm_index in range(state.started.shape[1]):
            if arm_index == arm or not params.local:
                restart_arm(state, lane, arm_index)
        state.restarts[lane] += 1
