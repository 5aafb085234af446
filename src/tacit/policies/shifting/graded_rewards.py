"""Evidence of graded rewards: how many clicks a play counts as, learned for each arm and key.

Counts of plays stay plays. Where rewards vary less than clicks of the same mean, a posterior multiplies them
by the number of clicks that a play of this arm counts as. Where the range of rewards has an open end, a
reward's place in [0, 1] follows from a width that grows with the largest reward.
"""

# 1. ``GradedRewards``: the state; ``Evidence``: what one reward counts as.
# 2. ``scale_reward``, ``grow_width``: from a reward to [0, 1]; the width of an open range.
# 3. ``rescale_counts``: counts that were learned in a smaller width, as they are in the present one.
# 4. ``arm_variance_share``, ``count_equivalents``: clicks that a play of an arm counts as, from the squared
#    surprises of all keys and of this one.
# 5. ``record_surprise``: add a reward to these sums; ``open_prior``: the prior of an open range.

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.core.arrays import Floats
from tacit.core.dispatch import kernel
from tacit.core.state_ranges import ValueRange

# At most, a play counts as this many clicks.
MAX_EQUIVALENTS = 1e4
# Weight of the other arms in an arm's share of variance, and of the arm's in a key's; weight of the prior
# share in the mean over arms; unseen events of the prior share that bound an arm of equal rewards.
ARM_WEIGHT, PRIOR_ARMS, UNSEEN_EVENTS = 2.0, 0.5, 5.0
# An upper value of the share of variance, in standard deviations.
DEVIATIONS = 2.0
# Surprises are remembered for about this many; the factor by which older ones fade.
SURPRISES, FADING = 33.0, 0.99
# A surprise weighs hypotheses as one of at most this many standard deviations.
MOST_DEVIATIONS = 3.0
# An open range is at least this many times as wide as the largest reward.
HEADROOM = 16.0
# Equivalents are fitted after each of so many first rewards, then after every eighth.
FIRST_FITS, FIT_STEP = 200.0, 8.0
# No width is smaller than 2 to this power, so that its fourth power is not 0.
LEAST_EXPONENT = -100
# The exponent of a width before the first reward other than 0.
NO_WIDTH = -(2**14)
SQUARES, FOURTHS, MEANS, MEAN_SQUARES, PLAYS = range(5)
NONZERO, HIGHEST, LOWEST = range(3)


class GradedRewards(NamedTuple):
    """State of the evidence of rewards. Sums by key are in the unit of the key's width, others as received.

    Attributes
    ----------
    sums : array of float64, shape (1, arms, 5)
        Over all keys, for each arm: sums of squares and of fourth powers of surprises (differences between
        rewards and their expectations), of expectations and of their squares, and the number of plays; older
        plays fade.
    fractions : array of float64, shape (1,)
        Number of rewards that were neither end of a range with two ends.
    totals : array of float64, shape (1, 2)
        Number and sum of all rewards.
    records : array of float64, shape (1, arms, 3)
        For each arm: number of rewards other than 0, the highest and the lowest reward.
    largest : array of float64, shape (1,)
        The largest absolute reward.
    equivalents : array of float64, shape (1, arms)
        Number of clicks that a play of each arm counts as, over all keys.
    exponent : array of int16, shape (1,)
        The width of an open range is 2 to this power.
    key_sums : array of float32, shape (lanes, arms, 5)
        The sums of each key.
    key_exponent : array of int16, shape (lanes,)
        Exponent of the width in which a key's counts and sums are.
    """

    sums: Floats
    fractions: Floats
    totals: Floats
    records: Floats
    largest: Floats
    equivalents: Floats
    exponent: Annotated[npt.NDArray[np.int16], ValueRange(NO_WIDTH, 2**12)]
    key_sums: npt.NDArray[np.float32]
    key_exponent: Annotated[npt.NDArray[np.int16], ValueRange(NO_WIDTH, 2**12)]

    @classmethod
    def initial(cls, lanes: int, arms: int, ends: int) -> GradedRewards:
        """Return the state before the first reward; ``ends`` is the number of known ends of the range."""
        exponent = 0 if ends == 2 else NO_WIDTH
        return cls(
            sums=np.zeros((1, arms, 5)),
            fractions=np.zeros(1),
            totals=np.zeros((1, 2)),
            records=np.zeros((1, arms, 3)),
            largest=np.zeros(1),
            equivalents=np.ones((1, arms)),
            exponent=np.full(1, exponent, np.int16),
            key_sums=np.zeros((lanes, arms, 5), np.float32),
            key_exponent=np.full(lanes, exponent, np.int16),
        )


class Evidence(NamedTuple):
    """Numbers by which one reward is learned.

    Attributes
    ----------
    reward : float
        The reward in [0, 1].
    likely : float
        The reward by which hypotheses are weighed, clipped to three standard deviations.
    clicks : float
        Number of clicks that the reward counts as where hypotheses are weighed.
    factor : float
        Factor on counts of plays in a posterior.
    plays : float
        Number of plays that are added to the counts.
    """

    reward: float
    likely: float
    clicks: float
    factor: float
    plays: float


@kernel
def scale_reward(reward: float, exponent: int, ends: int) -> float:
    """Return a reward scaled to [0, 1] in a range of width 2**exponent.

    With two known ends (``ends``) the reward is in [0, 1] already. With one, 0 stays 0; with none, 0 becomes
    ½.
    """
    if ends == 2:
        return reward
    ratio = 0.0 if exponent == NO_WIDTH else float(np.ldexp(reward, -exponent))
    return ratio if ends == 1 else 0.5 * (1.0 + ratio)


@kernel
def grow_width(graded: GradedRewards, arm: int, reward: float, ends: int) -> float:
    """Record a reward of an open range, widen the range if needed, and return the reward, limited by earlier
    ones.

    The result lies within the highest (and, if neither end is known, the lowest) earlier reward of the arm,
    so that one outlier does not widen the range. An arm's first two rewards other than 0 are not limited.
    """
    records, size = graded.records[0, arm], reward
    if records[NONZERO] >= 2.0:
        size = min(size, records[HIGHEST])
        if ends == 0:
            size = max(size, records[LOWEST])
    if reward != 0.0:
        records[NONZERO] += 1.0
    records[HIGHEST] = max(records[HIGHEST], reward)
    records[LOWEST] = min(records[LOWEST], reward)
    graded.largest[0] = max(graded.largest[0], abs(size))
    if size != 0.0:
        needed = int(np.ceil(np.log2(abs(size) * HEADROOM)))
        graded.exponent[0] = max(graded.exponent[0], needed, LEAST_EXPONENT)
    return float(size)


@kernel
def width_ratio(graded: GradedRewards, lane: int) -> float:
    """Return the width in which a key's counts are stored, divided by the present width; 0 before the key's
    first reward.
    """
    if graded.key_exponent[lane] == NO_WIDTH:
        return 0.0
    return float(np.ldexp(1.0, graded.key_exponent[lane] - graded.exponent[0]))


@kernel
def rescale_counts(hits: float, misses: float, ratio: float, ends: int) -> tuple[float, float]:
    """Return successes and failures for a width that is 1/``ratio`` times as large; their sum stays.

    A success is a share of the width, so successes shrink, towards 0 or, if neither end is known, towards
    half of the plays.
    """
    total = hits + misses
    hits = ratio * hits
    if ends == 0:
        hits += 0.5 * (1.0 - ratio) * total
    return hits, total - hits


@kernel
def enter_width(graded: GradedRewards, lane: int) -> float:
    """Rescale a key's sums in place to the present width; return the ratio by which the caller rescales its
    counts.
    """
    ratio = width_ratio(graded, lane)
    graded.key_exponent[lane] = graded.exponent[0]
    if ratio != 1.0:
        for arm in range(graded.key_sums.shape[1]):
            sums = graded.key_sums[lane, arm]
            sums[SQUARES] *= np.float32(ratio**2)
            sums[FOURTHS] *= np.float32(ratio**4)
            sums[MEANS] *= np.float32(ratio)
            sums[MEAN_SQUARES] *= np.float32(ratio**2)
    return ratio


@kernel
def click_variance(sums: Any, width: float, ends: int) -> float:
    """Return the sum of the variances that clicks of the same means would have, in units of width²."""
    if ends == 0:
        return 0.25 * (float(sums[PLAYS]) - float(sums[MEAN_SQUARES]) / width**2)
    return float(sums[MEANS]) / width - float(sums[MEAN_SQUARES]) / width**2


@kernel
def variance_share(sums: Any, width: float, ends: int) -> tuple[float, float, float, float]:
    """Return how variable rewards are compared with clicks of the same means, and how much data this rests
    on.

    The four numbers are the share of the clicks' variance, at most 1; the effective number of squared
    surprises; their sum; and the clicks' variance. Squares are in units of the range.
    """
    span = width if ends > 0 else 2.0 * width
    squares, fourths = float(sums[SQUARES]) / span**2, float(sums[FOURTHS]) / span**4
    variance = click_variance(sums, width, ends)
    if fourths <= 0.0 or variance <= 0.0:
        return 1.0, 0.0, squares, max(variance, 0.0)
    # Squares² over fourth powers is about the number of squares that matter.
    return min(squares / variance, 1.0), squares * squares / fourths, squares, variance


@kernel
def prior_share(graded: GradedRewards, width: float, ends: int) -> float:
    """Return the share of the clicks' variance that is assumed for an arm without data.

    Without a known highest reward, the largest reward so far tells what a typical event is worth.
    """
    if ends == 2 or graded.largest[0] == 0.0:
        return 1.0
    ratio = graded.largest[0] / width
    return float(ratio if ends == 1 else ratio * ratio)


@kernel
def mean_share(sums: Floats, width: float, ends: int, unknown: float) -> float:
    """Return the mean over arms of the share of the clicks' variance; ``unknown``, the prior share, counts as
    half an arm.

    Arms count more the more data they have.
    """
    total, weight = PRIOR_ARMS * unknown, PRIOR_ARMS
    for arm in range(len(sums)):
        share, number, _, _ = variance_share(sums[arm], width, ends)
        total += number / (number + ARM_WEIGHT) * share
        weight += number / (number + ARM_WEIGHT)
    return float(total / weight)


@kernel
def arm_equivalents(sums: Any, width: float, ends: int, unknown: float, mean: float) -> float:
    """Return the number of clicks that a play of an arm counts as, at least 1.

    It is 1/(share of the clicks' variance). The arm's share, from its ``sums``, is shrunk to the ``mean``
    over arms; it is at most the share if five events of the prior share (``unknown``) had come, and is then
    raised by two standard deviations, so that evidence is rather too weak than too strong.
    """
    share, number, squares, variance = variance_share(sums, width, ends)
    # An upper value of the share: shrunk, bounded, then raised by two deviations.
    upper = (number * share + ARM_WEIGHT * mean) / (number + ARM_WEIGHT)
    bound = (UNSEEN_EVENTS * unknown**2 + squares) / (UNSEEN_EVENTS * unknown + variance)
    upper = min(upper, bound) * (1.0 + DEVIATIONS / np.sqrt(number + ARM_WEIGHT))
    return float(min(max(1.0 / upper, 1.0), MAX_EQUIVALENTS))


@kernel
def are_clicks(graded: GradedRewards, ends: int) -> bool:
    """True if rewards so far carry no grades: each was an end of a range with two ends, or 0 in an open
    range.
    """
    return bool(graded.fractions[0] == 0.0 if ends == 2 else graded.exponent[0] == NO_WIDTH)


@kernel
def read_width(graded: GradedRewards, ends: int) -> float:
    """Return the present width of an open range, or 1 if both ends are known."""
    return float(np.ldexp(1.0, graded.exponent[0])) if ends < 2 else 1.0


@kernel
def is_fit_due(graded: GradedRewards) -> bool:
    """True after each of the first 200 rewards of all keys, then after every eighth."""
    return bool(graded.totals[0, 0] <= FIRST_FITS or graded.totals[0, 0] % FIT_STEP == 0.0)


@kernel
def fit_equivalents(graded: GradedRewards, ends: int) -> None:
    """Recompute, in place, the number of clicks that a play of each arm counts as, from the sums over all
    keys.

    It stays 1 as long as rewards are clicks.
    """
    if are_clicks(graded, ends):
        return
    width, sums = read_width(graded, ends), graded.sums[0]
    unknown = prior_share(graded, width, ends)
    mean = mean_share(sums, width, ends, unknown)
    for arm in range(len(sums)):
        graded.equivalents[0, arm] = arm_equivalents(sums[arm], width, ends, unknown, mean)


@kernel
def count_equivalents(graded: GradedRewards, lane: int, arm: int, ends: int) -> float:
    """Return the number of clicks that a play of an arm counts as for a key; 1 while rewards are clicks.

    The key's share of the clicks' variance is shrunk to the arm's share over all keys.
    """
    if are_clicks(graded, ends):
        return 1.0
    share, number, _, _ = variance_share(graded.key_sums[lane, arm], 1.0, ends)
    shrunk = (number * share + ARM_WEIGHT / graded.equivalents[0, arm]) / (number + ARM_WEIGHT)
    return float(min(max(1.0 / shrunk, 1.0), MAX_EQUIVALENTS))


@kernel
def weigh_reward(reward: float, mean: float, clicks: float) -> Evidence:
    """Return the evidence of a reward in [0, 1] whose expectation is ``mean`` and whose plays count as
    ``clicks``.

    For the weights of hypotheses, the reward is limited to three standard deviations from its expectation.
    """
    likely = reward
    if clicks > 1.0:
        most = max(1.0, MOST_DEVIATIONS * np.sqrt(clicks * mean * (1.0 - mean))) / clicks
        likely = min(max(reward, mean - most), mean + most)
    return Evidence(reward, likely, clicks, clicks, 1.0)


@kernel
def add_surprise(sums: Any, surprise: float, mean: float) -> None:
    """Add a surprise (reward − expectation) and its expectation, ``mean``, to an arm's sums, in place.

    All sums fade by 0.99 until they rest on at most 33 surprises; as fourth powers count outliers, one large
    surprise does not make them fade.
    """
    # Fourth powers of tiny surprises are 0 in single precision, and the smallest numbers never fade.
    while float(sums[SQUARES]) ** 2 > SURPRISES * float(sums[FOURTHS]) > 0.0:
        for k in range(5):
            sums[k] *= FADING
    sums[SQUARES] += surprise**2
    sums[FOURTHS] += surprise**4
    sums[MEANS] += mean
    sums[MEAN_SQUARES] += mean**2
    sums[PLAYS] += 1.0


@kernel
def record_surprise(graded: GradedRewards, lane: int, arm: int, size: float, mean: float, ends: int) -> None:
    """Add a reward to the sums of its arm, over all keys and of its key.

    ``size`` is the reward in the caller's unit, ``mean`` its expectation in [0, 1]. While an open range has
    no width, because all rewards were 0, only their number and sum are counted.
    """
    if ends == 2:
        graded.fractions[0] += 1.0 if 0.0 < size < 1.0 else 0.0
    graded.totals[0, 0] += 1.0
    graded.totals[0, 1] += size
    if graded.exponent[0] == NO_WIDTH:
        return
    width = read_width(graded, ends)
    expected = mean * width if ends > 0 else (2.0 * mean - 1.0) * width
    add_surprise(graded.sums[0, arm], size - expected, expected)
    add_surprise(graded.key_sums[lane, arm], (size - expected) / width, expected / width)


@kernel
def open_prior(graded: GradedRewards, ends: int) -> tuple[float, float]:
    """Return the parameters of the Beta prior of every arm in an open range.

    If the lowest reward is known, it is one success at the mean reward of all arms; otherwise one play at
    that mean. Before the first reward other than 0, it is Beta(1, 1).
    """
    if graded.exponent[0] == NO_WIDTH:
        return 1.0, 1.0
    number, total = graded.totals[0, 0], graded.totals[0, 1]
    # The mean of all rewards, and of one reward of half the largest, if the lowest is known.
    mean = scale_reward(
        (total + (0.5 * graded.largest[0] if ends == 1 else 0.0)) / (number + 1.0), graded.exponent[0], ends
    )
    if ends == 1:
        return 1.0, (1.0 - mean) / mean
    clicks = graded.equivalents.mean()
    return clicks * mean, clicks * (1.0 - mean)
