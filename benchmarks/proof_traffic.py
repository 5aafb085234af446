"""Simulated experiments for proof.py: many runs at once, looked at again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.uplift import HoldoutSums
from tacit.uplift.boundary import BUCKETS
from tacit.uplift.propensity_lift import Scores

FIRST, LAST = 200, 1_000_000
DAY = 5_000
"""Decisions a day, for seasons."""
Plan = list[tuple[float, float]]
"""Until when a chapter is, in decisions, and the share of its control."""


def looks(count: int, last: int = LAST) -> Floats:
    """Return after how many decisions an experiment is looked at."""
    return np.unique(np.geomspace(FIRST, last, count).astype(np.int64))


def constant(rate: float) -> Callable[[Floats], Floats]:
    """Return a click rate that stays."""
    return lambda at: np.full(len(at), rate)


def drifting(rate: float) -> Callable[[Floats], Floats]:
    """Return a click rate with days, and with a trend: it falls to a half."""

    def rates(at: Floats) -> Floats:
        season = 1 + 0.4 * np.sin(2 * np.pi * at / DAY)
        return rate * season * (1 - 0.5 * at / at[-1])

    return rates


def clicks(
    rng: Generator, runs: int, at: Floats, share: float, control: Floats, policy: Floats
) -> Iterator[HoldoutSums]:
    """Yield the sums of all runs at each look; rates are those since the look before."""
    counts, totals = np.zeros((2, runs)), np.zeros((2, runs))
    for n, p0, p1 in zip(np.diff(at, prepend=0), control, policy, strict=True):
        n0 = rng.binomial(n, share, runs)
        for g, (m, p) in enumerate(((n0, p0), (n - n0, p1))):
            counts[g] += m
            totals[g] += rng.binomial(m, p)
        # Of clicks, the squares are the clicks.
        yield HoldoutSums(counts, totals, totals)


def stepping(rng: Generator, rate: float) -> Callable[[Floats], Floats]:
    """Return a click rate that steps whenever an arm is added or retired: every 5,000 decisions."""
    factors = rng.uniform(0.5, 1.5, LAST // DAY + 1)
    return lambda at: rate * factors[(at - 1) // DAY]


def with_edges(at: Floats, edges: Floats) -> Floats:
    """Return looks with those at which something changes among them."""
    return np.unique(np.concatenate([at, edges]))


def chapters(
    rng: Generator, runs: int, at: Floats, plan: Plan, control: Floats, policy: Floats
) -> Iterator[list[HoldoutSums]]:
    """Yield the sums of all runs at each look, of each chapter that has begun.

    Every chapter of the plan, (until, share), ends at a look.
    """
    shape = len(plan), 2, runs
    counts, totals, chapter = np.zeros(shape), np.zeros(shape), 0
    for n, end, p0, p1 in zip(np.diff(at, prepend=0), at, control, policy, strict=True):
        while end > plan[chapter][0]:
            chapter += 1
        n0 = rng.binomial(n, plan[chapter][1], runs)
        for g, (m, p) in enumerate(((n0, p0), (n - n0, p1))):
            counts[chapter, g] += m
            totals[chapter, g] += rng.binomial(m, p)
        yield [HoldoutSums(counts[c], totals[c], totals[c]) for c in range(chapter + 1)]


def revenue(
    rng: Generator, runs: int, at: Floats, share: float, buyers: float, sigma: float
) -> Iterator[HoldoutSums]:
    """Yield the sums at each look, where some buy for lognormal amounts, in both groups alike."""
    counts, totals, squares = np.zeros((2, runs)), np.zeros((2, runs)), np.zeros((2, runs))
    for n in np.diff(at, prepend=0):
        n0 = rng.binomial(n, share, runs)
        for g, m in enumerate((n0, n - n0)):
            bought = rng.binomial(m, buyers)
            whose = np.repeat(np.arange(runs), bought)
            amounts = rng.lognormal(0.0, sigma, len(whose))
            counts[g] += m
            totals[g] += np.bincount(whose, amounts, minlength=runs)
            squares[g] += np.bincount(whose, amounts**2, minlength=runs)
        yield HoldoutSums(counts, totals, squares)


def sticky(
    rng: Generator, at: Floats, share: float, users: int, rate: float, *, clustered: bool
) -> Iterator[HoldoutSums]:
    """Yield the sums of one run at each look, whose users stay in their group; see
    :func:`sticky_chapters`."""
    for each in sticky_chapters(rng, at, [(np.inf, share)], users, rate, clustered=clustered):
        yield each[0]


def sticky_chapters(
    rng: Generator, at: Floats, plan: Plan, users: int, rate: float, *, clustered: bool
) -> Iterator[list[HoldoutSums]]:
    """Yield the sums of one run at each look, of each chapter that has begun.

    Users differ: by the click rate (a beta distribution of a + b = 4) and by how often they come.
    A user who is the control's at some share is so at every larger one.
    """
    coin, chapter, found = rng.random(users), 0, [HoldoutSums.empty()]
    rates, busy = rng.beta(4 * rate, 4 * (1 - rate), users), rng.gamma(0.5, size=users)
    busy, bucket = busy / busy.sum(), rng.integers(BUCKETS, size=users)
    came, clicked = np.zeros(users), np.zeros(users)
    for n, end in zip(np.diff(at, prepend=0), at, strict=True):
        while end > plan[chapter][0]:
            found.append(found[-1])
            came, clicked, chapter = np.zeros(users), np.zeros(users), chapter + 1
        control = coin < plan[chapter][1]
        now = rng.poisson(n * busy)
        came, clicked = came + now, clicked + rng.binomial(now, rates)
        sums = [np.array([x[control].sum(), x[~control].sum()]) for x in (came, clicked)]
        parts = (came * control, came, clicked) if clustered else ()
        buckets = [np.bincount(bucket, part, minlength=BUCKETS) for part in parts]
        found[-1] = HoldoutSums(sums[0], sums[1], sums[1], np.array(buckets) if clustered else None)
        yield list(found)


def equal_arms(
    rng: Generator, runs: int, at: Floats, arms: int, rates: Floats, floor: float
) -> Iterator[tuple[Scores, Scores, Floats, Floats]]:
    """Yield comparisons of arms that are all the same, shown by a policy that follows clicks.

    Between two looks it shows the arm with the most clicks per show with the propensity
    1 − (K − 1)/K·floor, the others with floor/K.

    Yields
    ------
    (Scores, Scores, array, array)
        Of the arm in front against each arm, shape (arms, runs), whose d is NaN for the arm itself;
        of the policy against uniform; then the shows and the clicks of each arm.
    """
    shape = arms, runs
    shows, hits = np.zeros(shape), np.zeros(shape)
    d, dd, gg = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    uniform = np.zeros((3, runs))
    everyone = np.arange(runs)
    for n, p in zip(np.diff(at, prepend=0), rates, strict=True):
        means = (hits + 0.5) / (shows + 1)
        q = np.full(shape, floor / arms)
        q[np.argmax(means, axis=0), everyone] += 1 - floor
        mean = hits.sum(axis=0) / np.maximum(shows.sum(axis=0), 1)
        shown = rng.multinomial(n, q.T).T
        clicked = rng.binomial(shown, p)
        apart = clicked - shown * mean
        apart2 = clicked * (1 - mean) ** 2 + (shown - clicked) * mean**2
        shows, hits = shows + shown, hits + clicked
        d, dd, gg = d + apart / q, dd + apart2 / q**2, gg + shown / q**2
        coef = 1 - 1 / (arms * q)
        parts = coef * apart, coef**2 * apart2, coef**2 * shown
        uniform = uniform + [part.sum(axis=0) for part in parts]
        total, decided = hits.sum(axis=0), shows.sum(axis=0)
        front = np.argmax(d, axis=0), everyone
        ahead = d[front] - d
        ahead[front] = np.nan
        pair = Scores(decided, total, total, ahead, dd[front] + dd, gg[front] + gg)
        yield pair, Scores(decided, total, total, *uniform), shows, hits
