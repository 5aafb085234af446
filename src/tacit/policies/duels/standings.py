"""Where duels stand: by how much each arm beats each other, who leads, and whether something has changed."""

# 1. ``Margins``: an arm's utility, which all duels teach, and what a pair has of its own beside it.
# 2. ``take_in``, ``count_duel``, ``fade_pairs``: a duel moves the utilities by a Gaussian step, then its
#    pair.
# 3. ``gate_of``, ``gain_of``: from which horizon on a duel is worth it, and by how much.
# 4. ``Ladder``: who leads; a walk watches whether the leader is still right; ``renew`` finds a new one.

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.core.arrays import Floats, Ints
from tacit.core.dispatch import kernel
from tacit.core.state_ranges import ArmIndexOrNone, Count, ValueRange

# ---- How much each arm beats each other: utilities that all duels teach, and what a pair has of its own

# Variances of an arm's utility and of what a pair has of its own: margins of some tenths, nearly in order.
UTILITY, OWN = 0.12**2, 0.05**2


class Margins(NamedTuple):
    """What is known of all margins.

    Attributes
    ----------
    wins : array of float64, shape (lanes, arms, arms)
        How often the row's arm beat the column's, weighed by how decided a duel was: a tie counts nothing.
    mean : array of float64, shape (lanes, arms)
        Of the arms' utilities.
    covariance : array of float64, shape (lanes, arms, arms)
    """

    wins: Floats
    mean: Floats
    covariance: Floats

    @classmethod
    def blank(cls, lanes: int, arms: int) -> Margins:
        """Return what lanes know that have seen nothing."""
        covariance = np.zeros((lanes, arms, arms))
        covariance[:, range(arms), range(arms)] = UTILITY
        return cls(np.zeros((lanes, arms, arms)), np.zeros((lanes, arms)), covariance)


@kernel
def lead(margins: Margins, lane: int, arm: int, other: int) -> float:
    """Return by how many duels of theirs the arm is ahead of the other."""
    return float(margins.wins[lane, arm, other] - margins.wins[lane, other, arm])


@kernel
def ahead(margins: Margins, lane: int, arm: int, other: int) -> float:
    """Return a number of the sign of the mean margin of an arm over another one."""
    mean = margins.mean[lane]
    return float(mean[arm] - mean[other] + 2.0 * OWN * lead(margins, lane, arm, other))


@kernel
def margin_of(margins: Margins, lane: int, arm: int, other: int) -> tuple[float, float]:
    """Return mean and variance of the margin of an arm over another one."""
    covariance = margins.covariance[lane]
    duels = margins.wins[lane, arm, other] + margins.wins[lane, other, arm]
    left = 1.0 / (1.0 + 4.0 * OWN * duels)
    apart = covariance[arm, arm] + covariance[other, other] - 2.0 * covariance[arm, other]
    return left * ahead(margins, lane, arm, other), left * left * max(apart, 0.0) + OWN * left


@kernel
def says(margins: Margins, lane: int, arm: int, other: int) -> tuple[float, float]:
    """Return what a pair's duels say of the difference of utilities: a precision, and it times the mean."""
    duels = margins.wins[lane, arm, other] + margins.wins[lane, other, arm]
    left = 1.0 / (1.0 + 4.0 * OWN * duels)
    return 4.0 * left * duels, 2.0 * left * lead(margins, lane, arm, other)


@kernel
def take_in(margins: Margins, lane: int, arm: int, other: int, precision: float, linear: float) -> None:
    """Let the utilities know more of the difference of two of them."""
    mean, covariance = margins.mean[lane], margins.covariance[lane]
    arms = len(mean)
    apart = covariance[arm, arm] + covariance[other, other] - 2.0 * covariance[arm, other]
    scale = 1.0 / (1.0 + precision * apart)
    step = scale * (linear - precision * (mean[arm] - mean[other]))
    for i in range(arms):
        mean[i] += step * (covariance[i, arm] - covariance[i, other])
    # Rows but those of the two first: those are read until the end.
    for i in range(arms):
        if i != arm and i != other:
            row = covariance[i]
            part = scale * precision * (row[arm] - row[other])
            for j in range(arms):
                row[j] -= part * (covariance[arm, j] - covariance[other, j])
    first, second = covariance[arm], covariance[other]
    a = scale * precision * (first[arm] - first[other])
    b = scale * precision * (second[arm] - second[other])
    for j in range(arms):
        difference = first[j] - second[j]
        first[j] -= a * difference
        second[j] -= b * difference


@kernel
def count_duel(margins: Margins, lane: int, left: int, right: int, outcome: float) -> None:
    """Learn the outcome of a duel of two arms."""
    before, linear_before = says(margins, lane, left, right)
    margins.wins[lane, left, right] += max(2.0 * outcome - 1.0, 0.0)
    margins.wins[lane, right, left] += max(1.0 - 2.0 * outcome, 0.0)
    precision, linear = says(margins, lane, left, right)
    take_in(margins, lane, left, right, precision - before, linear - linear_before)


@kernel
def fade_pairs(margins: Margins, lane: int, most: float) -> None:
    """Keep of each pair at most so many duels, won by the same shares, and compute the rest anew."""
    wins, arms = margins.wins[lane], margins.mean.shape[1]
    margins.mean[lane] = 0.0
    margins.covariance[lane] = 0.0
    for i in range(arms):
        margins.covariance[lane, i, i] = UTILITY
    for i in range(arms):
        for j in range(i):
            duels = wins[i, j] + wins[j, i]
            if duels > most:
                wins[i, j] *= most / duels
                wins[j, i] *= most / duels
            if duels > 0.0:
                precision, linear = says(margins, lane, i, j)
                take_in(margins, lane, i, j, precision, linear)


@kernel
def gate_of(margins: Margins, lane: int, arm: int, other: int) -> float:
    """Return the logarithm of the horizon from which on two arms are worth more duels.

    It is the duels that they would take against what may be gained (Lai 1988); and however sure it seems
    from other pairs, two arms in whose own duels nobody leads are met.
    """
    mean, variance = margin_of(margins, lane, arm, other)
    own = lead(margins, lane, arm, other)
    own = max(own if mean > 0.0 else -own, 0.0)
    return float(min(np.log(0.125 / variance) + 1.5 * mean * mean / variance, 2.0 * own))


@kernel
def gain_of(margins: Margins, lane: int, arm: int, other: int) -> float:
    """Return by how much the arm that seems worse is expected to be better: E max(0, its margin)."""
    mean, variance = margin_of(margins, lane, arm, other)
    deviation = np.sqrt(variance)
    x = abs(mean) / deviation
    density = 0.3989422804014327 * np.exp(-0.5 * x * x)
    return float(deviation * (density - 0.5 * x * math.erfc(x * 0.7071067811865476)))


# ---- Where duels stand

# The least and the most that a walk supposes of the chance of an outcome, if the leader is wrong.
WRONG_LOW, WRONG_HIGH = 0.52, 0.62
# Where a walk says that something has changed, after so many duels at least; what pairs keep of theirs then.
ALARM, ALARM_DUELS, KEPT_DUELS = 6.0, 3.0, 5.0


class Ladder(NamedTuple):
    """What is known of each lane.

    Attributes
    ----------
    margins : Margins
    rounds : array of float64, shape (lanes,)
    leader : array of int64, shape (lanes,)
        The arm that beats most others by what is known; −1 before a duel was decided.
    beaten : array of int64, shape (lanes,)
        How many arms it beats, of all.
    gates : array of float64, shape (lanes, arms, arms)
        :func:`gate_of` of the leader's row; of all pairs, if it does not beat all arms.
    gains : array of float64, shape (lanes, arms)
        :func:`gain_of` of a leader that beats all arms, against each.
    soonest : array of float64, shape (lanes,)
        The least of the leader's gates, if it beats all arms; −∞ while a walk is under way.
    walk : array of float64, shape (lanes, arms)
        Evidence from the last duels of leader and arm that the leader does not win most of them.
    room : array of float64, shape (1, 2, arms)
        For counting; all zero between calls.
    open : array of int32, shape (lanes,)
        How many duels wait to be learned, in units of 1/1024.
    """

    margins: Margins
    rounds: Count
    leader: ArmIndexOrNone
    beaten: Annotated[Ints, ValueRange(0, 0, "arms")]
    gates: Floats
    gains: Floats
    soonest: Floats
    walk: Floats
    room: Floats
    open: Annotated[npt.NDArray[np.int32], ValueRange(-(2**31))]

    @classmethod
    def blank(cls, lanes: int, arms: int) -> Ladder:
        """Return where lanes stand that have seen nothing."""
        single = (lanes, arms)
        return cls(
            margins=Margins.blank(lanes, arms),
            rounds=np.zeros(lanes),
            leader=np.full(lanes, -1, np.int64),
            beaten=np.zeros(lanes, np.int64),
            gates=np.zeros((*single, arms)),
            gains=np.zeros(single),
            soonest=np.full(lanes, -np.inf),
            walk=np.zeros(single),
            room=np.zeros((1, 2, arms)),
            open=np.zeros(lanes, np.int32),
        )


@kernel
def count_wins(state: Ladder, lane: int, arms: Ints) -> None:
    """Count in the room which of the arms on offer each beats by what is known."""
    wins = state.room[0, 0]
    for i in range(len(arms)):
        for j in range(i):
            margin = ahead(state.margins, lane, arms[i], arms[j])
            if margin > 0.0:
                wins[arms[i]] += 1.0
            elif margin < 0.0:
                wins[arms[j]] += 1.0


@kernel
def most_winning(state: Ladder, lane: int, arms: Ints) -> int:
    """Return who has most wins in the room: of several the present leader, else the one of most utility."""
    wins, mean, present = state.room[0, 0], state.margins.mean[lane], state.leader[lane]
    best = arms[0]
    for arm in arms:
        better = arm == present or (best != present and mean[arm] > mean[best])
        if wins[arm] > wins[best] or (wins[arm] == wins[best] and better):
            best = arm
    return int(best)


@kernel
def beats_all(state: Ladder, lane: int, arms: Ints) -> bool:
    """Return whether the leader is on offer and beats all others that are."""
    leader, offered = state.leader[lane], False
    known = state.beaten[lane] == state.walk.shape[1] - 1
    for arm in arms:
        if arm == leader:
            offered = True
        elif not known and ahead(state.margins, lane, leader, arm) <= 0.0:
            return False
    return offered


@kernel
def watch(state: Ladder, lane: int, other: int, outcome: float) -> None:
    """Let the walk of the leader and a rival go on; where it says that something has changed, forget."""
    margins, leader = state.margins, state.leader[lane]
    mean, _ = margin_of(margins, lane, leader, other)
    upset = min(max(0.5 - abs(mean), 0.02), 0.499)
    instead = min(max(1.0 - upset, WRONG_LOW), WRONG_HIGH)
    against = (outcome < 0.5) == (mean > 0.0)
    step = np.log(instead / upset) if against else np.log((1.0 - instead) / (1.0 - upset))
    walk = max(0.0, state.walk[lane, other] + abs(2.0 * outcome - 1.0) * step)
    state.walk[lane, other] = walk
    duels = margins.wins[lane, leader, other] + margins.wins[lane, other, leader]
    if walk > ALARM and duels >= ALARM_DUELS:
        fade_pairs(margins, lane, KEPT_DUELS)
        state.walk[lane] = 0.0


@kernel
def renew(state: Ladder, lane: int, arms: Ints) -> None:
    """Find the leader anew, and what it may gain from whom."""
    count_wins(state, lane, arms)
    leader = most_winning(state, lane, arms)
    state.room[0] = 0.0
    if leader != state.leader[lane]:
        state.leader[lane] = leader
        state.walk[lane] = 0.0
    every, beaten, soonest = state.walk.shape[1], 0, np.inf
    for arm in range(every):
        if arm != leader and ahead(state.margins, lane, leader, arm) > 0.0:
            beaten += 1
    state.beaten[lane] = beaten
    gates = state.gates[lane]
    if beaten < every - 1:
        for arm in range(every):
            for other in range(arm):
                gates[arm, other] = gates[other, arm] = gate_of(state.margins, lane, arm, other)
        soonest = -np.inf
    else:
        for arm in range(every):
            if arm != leader:
                gates[leader, arm] = gate_of(state.margins, lane, leader, arm)
                state.gains[lane, arm] = gain_of(state.margins, lane, leader, arm)
                soonest = min(soonest, gates[leader, arm] if state.walk[lane, arm] == 0.0 else -np.inf)
    state.soonest[lane] = soonest
