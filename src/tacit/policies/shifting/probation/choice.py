"""How a probation chooses: an explanation is drawn, and arms are ranked under it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import kernel
from tacit.policies.base import Impression
from tacit.policies.shifting.probation.odds import (
    QUIET,
    UNSEEN,
    Lanes,
    Odds,
    bayes_factor,
    draw_single,
    propensity_to_shift,
    surprise_rate,
    weigh,
    whole_share,
)
from tacit.policies.stationary.beta_mixture import mixture_largest
from tacit.policies.stationary.kl_ucb import kl_upper_bound
from tacit.policies.stationary.two_values import two_valued_largest

BASES = ("thompson", "kl-ucb")
THOMPSON, KL_UCB = range(2)

EXCLUDED = 1e-12
"""Explanations that are less probable do not count for the chance of an arm."""


class Doubt(NamedTuple):
    """What the arms of a lane have in common while each may have changed without a warning.

    Attributes
    ----------
    recently, long_ago : float
        Rates of changes of an arm, per round since any arm was tested, and since it was itself.
    tested : float
        The round at which an arm was tested last.
    """

    recently: float
    long_ago: float
    tested: float


@kernel
def doubt_of(params: Any, state: Any, lane: int) -> Doubt:
    """Return how much the arms of a quiet lane are in doubt."""
    lanes = state.lanes
    arms = lanes.factor.shape[1]
    row = 0 if params.shared else lane
    rate = surprise_rate(params, state.record, row) * propensity_to_shift(lanes, lane)
    share = whole_share(state.record, row)
    tested = 0.0
    for arm in range(arms):
        tested = max(tested, lanes.start[lane, arm])
    return Doubt(rate * share, rate * (share * UNSEEN + (1.0 - share) / arms), tested)


@kernel
def odds_of_arm(params: Any, lanes: Lanes, lane: int, arm: int, doubt: Doubt) -> Any:
    """Return the odds that an arm has changed where each may have: weights for and against it."""
    factor = bayes_factor(lanes, lane, arm)
    if lanes.mode[lane] == QUIET:
        age = lanes.rounds[lane] - lanes.start[lane, arm]
        change = doubt.recently * (lanes.rounds[lane] - doubt.tested) + doubt.long_ago * age
        return change * factor, 1.0
    return params.changes * factor, 1.0 - params.changes


@kernel
def plays_in_all(lanes: Lanes, lane: int, impression: Impression, whole: bool) -> float:
    """Return how often the arms on offer were played; if all have changed, in their windows."""
    total = 0.0
    for i in range(len(impression.arms)):
        arm = impression.arms[i]
        for k in range(2):
            total += lanes.new[lane, arm, k] + (0.0 if whole else lanes.old[lane, arm, k])
    return total


@kernel
def bound(successes: float, failures: float, total: float) -> float:
    """Return an upper confidence bound; above all others before the first play."""
    plays = successes + failures
    if plays == 0.0:
        return 2.0
    return float(kl_upper_bound(successes / plays, np.log(total + 1.0) / plays))


@kernel
def drawn_choice(params: Any, state: Any, lane: int, impression: Impression, rng: Generator) -> int:
    """Draw an explanation, and return the arm that is best under it."""
    lanes = state.lanes
    quiet = lanes.mode[lane] == QUIET
    whole, single = False, -1
    doubt = Doubt(0.0, 0.0, 0.0)
    uniform = rng.random()
    if quiet:
        doubt = doubt_of(params, state, lane)
    else:
        odds = weigh(params, state, lane)
        drawn = uniform * (odds.whole + odds.single + odds.nothing)
        whole = drawn < odds.whole
        if odds.whole <= drawn < odds.whole + odds.single:
            single = draw_single(lanes, lane, (drawn - odds.whole) / odds.single)
    total = plays_in_all(lanes, lane, impression, whole) if params.base == KL_UCB else 0.0
    best, leader, ties = -1.0, -1, 0.0
    for i in range(len(impression.arms)):
        arm = impression.arms[i]
        changed = arm == single
        if quiet or whole:
            change, unchanged = odds_of_arm(params, lanes, lane, arm, doubt)
            changed = rng.random() * (change + unchanged) < change
        successes, failures = lanes.new[lane, arm, 0], lanes.new[lane, arm, 1]
        if not changed:
            successes += lanes.old[lane, arm, 0]
            failures += lanes.old[lane, arm, 1]
        if params.base == THOMPSON:
            score = rng.beta(1.0 + successes, 1.0 + failures)
        else:
            score = bound(successes, failures, total)
        if score > best:
            best, leader, ties = score, arm, 1.0
        elif score == best:
            ties += 1.0
            if rng.random() * ties < 1.0:
                leader = arm
    return int(leader)


class Scores(NamedTuple):
    """The two scores that an arm on offer may have: unchanged, and from its window alone.

    Attributes
    ----------
    first, second : array of float64, shape (2·offered,)
        Parameters of the Betas that scores are drawn from, or the scores and nothing; first those
        of all arms if unchanged.
    shares : array of float64, shape (2·offered,)
        How likely an arm has them.
    """

    first: Floats
    second: Floats
    shares: Floats


@kernel
def fill_scores(
    params: Any, lanes: Lanes, lane: int, impression: Impression, place: int, doubt: Doubt, scores: Scores
) -> None:
    """Fill in the scores if the arm at a place has changed, or, at −1, each may have."""
    count = len(impression.arms)
    whole = place < 0 and lanes.mode[lane] != QUIET
    total = plays_in_all(lanes, lane, impression, whole) if params.base == KL_UCB else 0.0
    for i in range(2 * count):
        arm = impression.arms[i % count]
        successes, failures = lanes.new[lane, arm, 0], lanes.new[lane, arm, 1]
        share = 1.0 if i % count == place else 0.0
        if place < 0:
            change, unchanged = odds_of_arm(params, lanes, lane, arm, doubt)
            share = change / (change + unchanged)
        if i < count:
            share = 1.0 - share
            successes += lanes.old[lane, arm, 0]
            failures += lanes.old[lane, arm, 1]
        if params.base == THOMPSON:
            scores.first[i], scores.second[i] = 1.0 + successes, 1.0 + failures
        else:
            scores.first[i] = bound(successes, failures, total)
        scores.shares[i] = share


@kernel
def drawn_chance(params: Any, state: Any, lane: int, impression: Impression, shown: int) -> float:
    """Return the probability that :func:`drawn_choice` returns an arm.

    It is summed over the explanations: that each arm may have changed by itself, that the one at a
    place has, or that nothing has. In each the scores of the arms are independent.
    """
    lanes, arms, count = state.lanes, impression.arms, len(impression.arms)
    odds, doubt = Odds(1.0, 0.0, 0.0), Doubt(0.0, 0.0, 0.0)
    if lanes.mode[lane] == QUIET:
        doubt = doubt_of(params, state, lane)
    else:
        odds = weigh(params, state, lane)
    factors, chosen = 0.0, 0
    for other in range(lanes.factor.shape[1]):
        factors += bayes_factor(lanes, lane, other)
    for i in range(count):
        if arms[i] == shown:
            chosen = i
    scores = Scores(np.empty(2 * count), np.empty(2 * count), np.empty(2 * count))
    total = odds.whole + odds.single + odds.nothing
    left, chance = total, 0.0
    for place in range(-1, count + 1):
        # What is left in the end: that nothing has changed, or an arm that is not on offer.
        weight = left
        if place < 0:
            weight = odds.whole
        elif place < count:
            weight = odds.single * bayes_factor(lanes, lane, arms[place]) / factors
        left -= weight
        if weight > EXCLUDED * total:
            fill_scores(params, lanes, lane, impression, place, doubt, scores)
            if params.base == THOMPSON:
                largest = mixture_largest(scores.first, scores.second, scores.shares, count, chosen)
            else:
                largest = two_valued_largest(scores.first, scores.shares, count, chosen)
            chance += weight / total * largest
    return chance
