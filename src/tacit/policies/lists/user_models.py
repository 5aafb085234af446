"""User models: twelve hypotheses about how users examine a list, and the attraction of arms under them."""

# 1. ``UserModels``: weights of twelve hypotheses, with the clicks and examinations of arms.
# 2. ``position_effect``, ``next_examination``: the probability that a position is examined.
# 3. ``base_rate``, ``attraction``, ``prior_shift``: the click rate of an arm once examined; its prior follows
#    from the order on offer.
# 4. ``update_beliefs``: mean and spread over all hypotheses; ``learn_clicks``: update all hypotheses with
#    the clicks on a list.

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.core.dispatch import kernel
from tacit.core.state_ranges import ValueRange
from tacit.policies.base import ArmBeliefs

POSITION_MODELS = 4
"""Number of position-based hypotheses: position k, from 1, is seen with probability k^−a,
a ∈ {0, ½, 1, 1½}."""
AFTER_SKIP = 1.0, 0.85
AFTER_CLICK = 0.0, 0.3, 0.6, 0.9
"""Chain hypotheses: users read from the top and continue with one of these probabilities after a skip and
after a click."""
HYPOTHESES = POSITION_MODELS + len(AFTER_SKIP) * len(AFTER_CLICK)

DROP_BELOW = -30.0
"""A hypothesis whose log weight is this far below the best one's is dropped for good."""
MIN_CHANCE = 1e-4
"""Least distance of click probabilities from 0 and 1."""
NOT_OFFERED = -1
PRIOR_SHIFT, DOUBTED_SHIFT, SHIFT_VARIANCE = 0.8, 0.6, 0.8**2 / 12.0
"""Prior of an arm by its rank: the first arm on offer starts this share of the base rate above it, the last
one as much below. The first value is for an order that is known to be good; the others are mean and variance
where the share is uniform on [0.2, 1]."""


class UserModels(NamedTuple):
    """User models and arm counts of all keys; the last three fields are a workspace.

    Attributes
    ----------
    clicks : array of float64, shape (lanes, arms)
    seen : array of float64, shape (lanes, hypotheses, arms)
        Expected number of examinations of an arm under each hypothesis.
    weights : array of float64, shape (lanes, hypotheses)
        Log weights, 0 for the best one; −inf where a hypothesis was dropped.
    mean, spread : array of float64, shape (lanes, arms)
        Mean and standard deviation of the attraction of the arms on offer; 0 between calls.
    rank : array of int64, shape (lanes, arms)
        Place of an arm in the caller's list, from 0; −1 between calls. −2 − rank once a kernel has placed
        the arm.
    """

    clicks: Floats
    seen: Floats
    weights: Floats
    mean: Floats
    spread: Floats
    rank: Annotated[Ints, ValueRange(-1, -1, "arms")]

    @classmethod
    def blank(cls, lanes: int, arms: int) -> UserModels:
        """Return the state before the first list: no clicks or examinations, and equal weights of the
        hypotheses.
        """
        return cls(
            clicks=np.zeros((lanes, arms)),
            seen=np.zeros((lanes, HYPOTHESES, arms)),
            weights=np.zeros((lanes, HYPOTHESES)),
            mean=np.zeros((lanes, arms)),
            spread=np.zeros((lanes, arms)),
            rank=np.full((lanes, arms), NOT_OFFERED, np.int64),
        )


@kernel
def position_effect(hypothesis: int, k: int) -> float:
    """Return the probability (k + 1)^−a that position ``k``, from 0, is seen.

    The exponent a of hypotheses 0 to 4 is 0, ½, 1, 1½ and 2½.
    """
    if hypothesis == 0:
        return 1.0
    if hypothesis == 1:
        return 1.0 / math.sqrt(k + 1.0)
    if hypothesis == 2:
        return 1.0 / (k + 1.0)
    if hypothesis == 3:
        return 1.0 / ((k + 1.0) * math.sqrt(k + 1.0))
    return 1.0 / ((k + 1.0) * (k + 1.0) * math.sqrt(k + 1.0))


@kernel
def next_examination(chain: int, examined: float, attraction: float, reward: float) -> float:
    """Return the probability that a user who reads from the top examines the next position, under a chain
    model.

    ``chain`` (0 to 7) selects the probabilities of continuing after a skip and after a click. After a skip
    the result also depends on the probability ``examined`` that this position was examined, and on the arm's
    ``attraction``.
    """
    if reward > 0.0:
        return AFTER_CLICK[chain % 4]
    return AFTER_SKIP[chain // 4] * examined * (1.0 - attraction) / (1.0 - examined * attraction)


@kernel
def base_rate(models: UserModels, lane: int, hypothesis: int, arms: Ints) -> float:
    """Return the attraction of the arms on offer, from their pooled counts under a hypothesis; at most 0.9.

    One examination with 0.3 clicks is added, as a prior.
    """
    clicks, examinations = 0.3, 1.0
    for i in range(len(arms)):
        clicks += models.clicks[lane, arms[i]]
        examinations += models.seen[lane, hypothesis, arms[i]]
    return min(0.9, clicks / examinations)


@kernel
def attraction(models: UserModels, lane: int, hypothesis: int, arm: int, base: float, shift: float) -> float:
    """Return the posterior mean of an arm's attraction under a hypothesis.

    The prior counts as four examinations, at the rate ``base`` times 1 + ``shift``; see :func:`prior_shift`.
    """
    clicks = models.clicks[lane, arm] + 4.0 * base * (1.0 + shift)
    return float(min(clicks / (models.seen[lane, hypothesis, arm] + 4.0), 1.0 - MIN_CHANCE))


@kernel
def rank_score(rank: int, arms: int) -> float:
    """Map a rank linearly to [−1, 1]: 1 for the first rank, −1 for the last one."""
    return 1.0 - 2.0 * rank / max(arms - 1, 1)


@kernel
def prior_shift(rank: int, arms: int, doubted: bool) -> float:
    """Return how far an arm's prior is above the base rate, as a share of it, by the arm's rank on offer;
    below 0 for the last ranks.
    """
    return (DOUBTED_SHIFT if doubted else PRIOR_SHIFT) * rank_score(rank, arms)


@kernel
def update_beliefs(models: UserModels, lane: int, arms: Ints, doubted: bool) -> None:
    """Fill ``mean``, ``spread`` and ``rank`` of ``models`` for the arms on offer, averaged over all
    hypotheses.

    The three must be clear before. ``doubted`` says that the order on offer may be a weak guess of the arms'
    quality: this widens the spread, most for arms that were examined least. Under each hypothesis,
    attractions are scaled to the best hypothesis's base rate, as they are identified only up to a factor.
    """
    weights = models.weights[lane]
    mean, spread = models.mean[lane], models.spread[lane]
    best, total = 0, 0.0
    for h in range(HYPOTHESES):
        total += math.exp(weights[h])
        if weights[h] > weights[best]:
            best = h
    best_base = base_rate(models, lane, best, arms)
    for h in range(HYPOTHESES):
        if weights[h] == -np.inf:
            continue
        base = base_rate(models, lane, h, arms)
        scale, weight = best_base / base, math.exp(weights[h]) / total
        for i in range(len(arms)):
            arm = arms[i]
            examinations = models.seen[lane, h, arm]
            arm_mean = attraction(models, lane, h, arm, base, prior_shift(i, len(arms), doubted))
            # Variance of a Beta posterior, of which the prior is worth four examinations.
            variance = arm_mean * (1.0 - arm_mean) / (examinations + 5.0)
            if doubted:
                distance = 4.0 * base * rank_score(i, len(arms))
                variance += (
                    SHIFT_VARIANCE * distance * distance / ((examinations + 4.0) * (examinations + 5.0))
                )
            # ``spread`` has second moments until all hypotheses are added.
            mean[arm] += weight * scale * arm_mean
            spread[arm] += weight * scale * scale * (variance + arm_mean * arm_mean)
    for i in range(len(arms)):
        arm = arms[i]
        spread[arm] = math.sqrt(max(spread[arm] - mean[arm] * mean[arm], 0.0))
        models.rank[lane, arm] = i


def summarize_beliefs(models: UserModels, lane: int, doubted: bool) -> ArmBeliefs:
    """Return the Beta posteriors of the attraction of all arms of a key; the state does not change.

    They have the means and variances of :func:`update_beliefs`. Plays are expected examinations.
    """
    lane_models = UserModels._make(field[lane : lane + 1].copy() for field in models)
    update_beliefs(lane_models, 0, np.arange(lane_models.clicks.shape[1]), doubted)
    means = np.clip(lane_models.mean[0], MIN_CHANCE, 1.0 - MIN_CHANCE)
    counts = np.maximum(means * (1.0 - means) / lane_models.spread[0] ** 2 - 1.0, MIN_CHANCE)
    weights = np.exp(lane_models.weights[0])
    examinations = weights / weights.sum() @ lane_models.seen[0]
    return ArmBeliefs.from_posteriors(examinations, means * counts, (1.0 - means) * counts)


@kernel
def clear_beliefs(models: UserModels, lane: int) -> None:
    """Reset the workspace of a lane, which :func:`update_beliefs` filled: mean and spread to 0, ranks to
    −1.
    """
    for arm in range(models.mean.shape[1]):
        models.mean[lane, arm] = 0.0
        models.spread[lane, arm] = 0.0
        models.rank[lane, arm] = NOT_OFFERED


@kernel
def learn_clicks(
    models: UserModels, lane: int, arms: Ints, action: Ints, feedback: Floats, doubted: bool
) -> None:
    """Update the counts and weights of all hypotheses with the clicks on a list, from the top.

    Adds clicks and expected examinations to the arms, and log-likelihoods to the hypotheses' log weights,
    which are rescaled to 0 for the best; hypotheses far below it are dropped. Empty positions (−1) are
    skipped. Ranks are −1 after the call.
    """
    weights, rank = models.weights[lane], models.rank[lane]
    for i in range(len(arms)):
        rank[arms[i]] = i
    best_weight = -np.inf
    for h in range(HYPOTHESES):
        if weights[h] == -np.inf:
            continue
        base = base_rate(models, lane, h, arms)
        chain = max(h - POSITION_MODELS, 0)
        examined = 1.0
        for k in range(len(action)):
            arm = action[k]
            if arm < 0:
                continue
            # Position models know it from the position, chain models from the results above.
            if h < POSITION_MODELS:
                examined = position_effect(h, k)
            mean = attraction(models, lane, h, arm, base, prior_shift(rank[arm], len(arms), doubted))
            click_chance = min(max(examined * mean, MIN_CHANCE), 1.0 - MIN_CHANCE)
            reward = feedback[k]
            if reward > 0.0:
                weights[h] += reward * math.log(click_chance)
            if reward < 1.0:
                weights[h] += (1.0 - reward) * math.log(1.0 - click_chance)
            models.seen[lane, h, arm] += examined
            examined = next_examination(chain, examined, mean, reward)
        best_weight = max(best_weight, weights[h])
    for h in range(HYPOTHESES):
        weights[h] -= best_weight
        if weights[h] < DROP_BELOW:
            weights[h] = -np.inf
    for k in range(len(action)):
        if action[k] >= 0:
            models.clicks[lane, action[k]] += feedback[k]
    for i in range(len(arms)):
        rank[arms[i]] = NOT_OFFERED
