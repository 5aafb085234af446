"""Standings of duels: pairwise margins, the current leader, and a test for changes."""

# 1. ``Margins``: the utilities of arms, learned from all duels, plus an effect of each pair.
# 2. ``update_utilities``, ``count_duel``, ``fade_pairs``: a duel updates the utilities by a Gaussian step.
# 3. ``duel_gate``, ``possible_gain``: the horizon from which a duel of two arms pays off, and its gain.
# 4. ``Standings``: the leader; ``update_walk`` tests whether the leader still wins, ``update_leader`` finds
#    the new one.

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.core.arrays import Floats, Ints
from tacit.core.dispatch import kernel
from tacit.core.state_ranges import ArmIndexOrNone, Count, ValueRange

# ---- Pairwise margins: utilities, learned from all duels, plus an effect of each pair

# Prior variances of an arm's utility and of a pair's effect: margins of some tenths, nearly transitive.
UTILITY_VARIANCE, PAIR_VARIANCE = 0.12**2, 0.05**2


class Margins(NamedTuple):
    """Gaussian model of all pairwise margins.

    Attributes
    ----------
    wins : array of float64, shape (lanes, arms, arms)
        Wins of the row's arm over the column's. A win counts |2·outcome − 1|, so a tie counts nothing.
    mean : array of float64, shape (lanes, arms)
        Mean of the arms' utilities.
    covariance : array of float64, shape (lanes, arms, arms)
        Covariance of the arms' utilities.
    """

    wins: Floats
    mean: Floats
    covariance: Floats

    @classmethod
    def blank(cls, lanes: int, arms: int) -> Margins:
        """Return the prior of ``lanes`` keys: no wins, independent utilities of mean 0."""
        covariance = np.zeros((lanes, arms, arms))
        covariance[:, range(arms), range(arms)] = UTILITY_VARIANCE
        return cls(np.zeros((lanes, arms, arms)), np.zeros((lanes, arms)), covariance)


@kernel
def net_wins(margins: Margins, lane: int, arm: int, rival: int) -> float:
    """Return an arm's wins over a rival minus its losses against it, in duels of these two."""
    return float(margins.wins[lane, arm, rival] - margins.wins[lane, rival, arm])


@kernel
def signed_margin(margins: Margins, lane: int, arm: int, rival: int) -> float:
    """Return a number with the sign of an arm's mean margin over a rival: above 0 if the arm is probably
    better.
    """
    mean = margins.mean[lane]
    return float(mean[arm] - mean[rival] + 2.0 * PAIR_VARIANCE * net_wins(margins, lane, arm, rival))


@kernel
def pair_margin(margins: Margins, lane: int, arm: int, rival: int) -> tuple[float, float]:
    """Return the posterior mean and variance of an arm's margin over a rival: its win probability minus ½."""
    covariance = margins.covariance[lane]
    duels = margins.wins[lane, arm, rival] + margins.wins[lane, rival, arm]
    shrinkage = 1.0 / (1.0 + 4.0 * PAIR_VARIANCE * duels)
    utility_variance = covariance[arm, arm] + covariance[rival, rival] - 2.0 * covariance[arm, rival]
    return shrinkage * signed_margin(margins, lane, arm, rival), shrinkage * shrinkage * max(
        utility_variance, 0.0
    ) + PAIR_VARIANCE * shrinkage


@kernel
def pair_evidence(margins: Margins, lane: int, arm: int, rival: int) -> tuple[float, float]:
    """Return the evidence of a pair's own duels about its difference of utilities: precision, and precision ×
    mean.
    """
    duels = margins.wins[lane, arm, rival] + margins.wins[lane, rival, arm]
    shrinkage = 1.0 / (1.0 + 4.0 * PAIR_VARIANCE * duels)
    return 4.0 * shrinkage * duels, 2.0 * shrinkage * net_wins(margins, lane, arm, rival)


@kernel
def update_utilities(
    margins: Margins, lane: int, arm: int, rival: int, precision: float, linear: float
) -> None:
    """Update mean and covariance of the utilities, in place, with an observed difference of two arms'
    utilities.

    The difference, ``arm`` minus ``rival``, was observed with Gaussian noise of the given ``precision``;
    ``linear`` is precision × observed value.
    """
    mean, covariance = margins.mean[lane], margins.covariance[lane]
    arms = len(mean)
    utility_variance = covariance[arm, arm] + covariance[rival, rival] - 2.0 * covariance[arm, rival]
    # A Kalman step for one scalar observation.
    scale = 1.0 / (1.0 + precision * utility_variance)
    step = scale * (linear - precision * (mean[arm] - mean[rival]))
    for i in range(arms):
        mean[i] += step * (covariance[i, arm] - covariance[i, rival])
    # Update the rows of these two arms last: all other rows are computed from them.
    for i in range(arms):
        if i != arm and i != rival:
            row = covariance[i]
            part = scale * precision * (row[arm] - row[rival])
            for j in range(arms):
                row[j] -= part * (covariance[arm, j] - covariance[rival, j])
    first, second = covariance[arm], covariance[rival]
    a = scale * precision * (first[arm] - first[rival])
    b = scale * precision * (second[arm] - second[rival])
    for j in range(arms):
        difference = first[j] - second[j]
        first[j] -= a * difference
        second[j] -= b * difference


@kernel
def count_duel(margins: Margins, lane: int, left_arm: int, right_arm: int, outcome: float) -> None:
    """Learn the outcome of a duel (1: the left arm won, ½: tie): add to the wins, and update the
    utilities.
    """
    before, linear_before = pair_evidence(margins, lane, left_arm, right_arm)
    margins.wins[lane, left_arm, right_arm] += max(2.0 * outcome - 1.0, 0.0)
    margins.wins[lane, right_arm, left_arm] += max(1.0 - 2.0 * outcome, 0.0)
    precision, linear = pair_evidence(margins, lane, left_arm, right_arm)
    update_utilities(margins, lane, left_arm, right_arm, precision - before, linear - linear_before)


@kernel
def fade_pairs(margins: Margins, lane: int, most: float) -> None:
    """Scale the wins of each pair with more than ``most`` duels down to ``most``, and refit the utilities to
    all wins.
    """
    wins, arms = margins.wins[lane], margins.mean.shape[1]
    margins.mean[lane] = 0.0
    margins.covariance[lane] = 0.0
    for i in range(arms):
        margins.covariance[lane, i, i] = UTILITY_VARIANCE
    for i in range(arms):
        for j in range(i):
            duels = wins[i, j] + wins[j, i]
            if duels > most:
                wins[i, j] *= most / duels
                wins[j, i] *= most / duels
            if duels > 0.0:
                precision, linear = pair_evidence(margins, lane, i, j)
                update_utilities(margins, lane, i, j, precision, linear)


@kernel
def duel_gate(margins: Margins, lane: int, arm: int, rival: int) -> float:
    """Return the logarithm of the horizon from which more duels of two arms pay off.

    It weighs the cost of duels against their possible gain (Lai 1988). It is at most twice the lead of the
    better arm in the pair's own duels: two arms without a lead in these duel, however sure other pairs are.
    """
    mean, variance = pair_margin(margins, lane, arm, rival)
    net_lead = net_wins(margins, lane, arm, rival)
    net_lead = max(net_lead if mean > 0.0 else -net_lead, 0.0)
    return float(min(np.log(0.125 / variance) + 1.5 * mean * mean / variance, 2.0 * net_lead))


@kernel
def possible_gain(margins: Margins, lane: int, arm: int, rival: int) -> float:
    """Return the expected gain if the arm that seems worse is better after all: the mean of max(0, its
    margin).
    """
    mean, variance = pair_margin(margins, lane, arm, rival)
    deviation = np.sqrt(variance)
    x = abs(mean) / deviation
    density = 0.3989422804014327 * np.exp(-0.5 * x * x)
    return float(deviation * (density - 0.5 * x * math.erfc(x * 0.7071067811865476)))


# ---- Standings

# Range of a rival's win probability under a walk's alternative hypothesis, that the leader is wrong.
WRONG_LOW, WRONG_HIGH = 0.52, 0.62
# Height of a walk at which it raises an alarm, after this many duels at least; duels that pairs keep then.
ALARM, ALARM_DUELS, ALARM_MEMORY = 6.0, 3.0, 5.0


class DuelStandings(NamedTuple):
    """Margins, leader and test for changes of each lane.

    Attributes
    ----------
    margins : Margins
    rounds : array of float64, shape (lanes,)
    leader : array of int64, shape (lanes,)
        The arm that beats most others by the mean margins; −1 before the first decided duel.
    beaten : array of int64, shape (lanes,)
        Number of arms that the leader beats.
    gates : array of float64, shape (lanes, arms, arms)
        :func:`duel_gate` of the leader and each arm; of all pairs, if the leader does not beat all arms.
    gains : array of float64, shape (lanes, arms)
        :func:`possible_gain` of a leader that beats all arms, against each.
    soonest : array of float64, shape (lanes,)
        The least of the leader's gates, if it beats all arms; −∞ while a walk is above 0.
    walk : array of float64, shape (lanes, arms)
        Evidence from the last duels of leader and arm that the leader does not win most of them.
    room : array of float64, shape (1, 2, arms)
        Workspace for counting; all zero between calls.
    open : array of int32, shape (lanes,)
        Number of duels decided but not yet learned, in units of 1/1024.
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
    def blank(cls, lanes: int, arms: int) -> DuelStandings:
        """Return the standings of ``lanes`` keys before the first duel, without a leader."""
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
def count_wins(state: DuelStandings, lane: int, arms: Ints) -> None:
    """Write to the workspace how many of the arms on offer each of them beats, by the mean margins.

    ``state.room[0, 0]`` must be 0 before; ties count for neither arm.
    """
    wins = state.room[0, 0]
    for i in range(len(arms)):
        for j in range(i):
            margin = signed_margin(state.margins, lane, arms[i], arms[j])
            if margin > 0.0:
                wins[arms[i]] += 1.0
            elif margin < 0.0:
                wins[arms[j]] += 1.0


@kernel
def find_leader(state: DuelStandings, lane: int, arms: Ints) -> int:
    """Return the arm that beats most arms, by the counts in the workspace.

    Of equal ones it is the present leader, else the one of the highest mean utility.
    """
    wins, mean, present = state.room[0, 0], state.margins.mean[lane], state.leader[lane]
    best = arms[0]
    for arm in arms:
        better = arm == present or (best != present and mean[arm] > mean[best])
        if wins[arm] > wins[best] or (wins[arm] == wins[best] and better):
            best = arm
    return int(best)


@kernel
def beats_all(state: DuelStandings, lane: int, arms: Ints) -> bool:
    """True if the leader is on offer and beats all other arms on offer by the mean margins."""
    leader, offered = state.leader[lane], False
    beats_every_arm = state.beaten[lane] == state.walk.shape[1] - 1
    for arm in arms:
        if arm == leader:
            offered = True
        elif not beats_every_arm and signed_margin(state.margins, lane, leader, arm) <= 0.0:
            return False
    return offered


@kernel
def update_walk(state: DuelStandings, lane: int, rival: int, outcome: float) -> None:
    """Update the test for changes with a duel of the leader and a rival (``outcome`` 1: the leader won, ½:
    tie).

    The rival's walk rises when the leader loses unexpectedly, and falls otherwise, down to 0. Above the alarm
    level, after at least three duels of the two, most duels of all pairs are forgotten, and all walks are set
    to 0.
    """
    margins, leader = state.margins, state.leader[lane]
    mean, _ = pair_margin(margins, lane, leader, rival)
    upset = min(max(0.5 - abs(mean), 0.02), 0.499)
    alternative = min(max(1.0 - upset, WRONG_LOW), WRONG_HIGH)
    against = (outcome < 0.5) == (mean > 0.0)
    step = np.log(alternative / upset) if against else np.log((1.0 - alternative) / (1.0 - upset))
    walk = max(0.0, state.walk[lane, rival] + abs(2.0 * outcome - 1.0) * step)
    state.walk[lane, rival] = walk
    duels = margins.wins[lane, leader, rival] + margins.wins[lane, rival, leader]
    if walk > ALARM and duels >= ALARM_DUELS:
        fade_pairs(margins, lane, ALARM_MEMORY)
        state.walk[lane] = 0.0


@kernel
def update_leader(state: DuelStandings, lane: int, arms: Ints) -> None:
    """Find the leader among ``arms``, and recompute the stored gates and gains of duels.

    Also recomputes ``beaten`` and ``soonest``. If the leader changes, all walks of the test for changes are
    set to 0.
    """
    count_wins(state, lane, arms)
    leader = find_leader(state, lane, arms)
    state.room[0] = 0.0
    if leader != state.leader[lane]:
        state.leader[lane] = leader
        state.walk[lane] = 0.0
    arm_count, beaten, soonest = state.walk.shape[1], 0, np.inf
    for arm in range(arm_count):
        if arm != leader and signed_margin(state.margins, lane, leader, arm) > 0.0:
            beaten += 1
    state.beaten[lane] = beaten
    gates = state.gates[lane]
    # While no arm beats all others, any pair may be due for a duel; then only the leader's pairs may.
    if beaten < arm_count - 1:
        for arm in range(arm_count):
            for rival in range(arm):
                gates[arm, rival] = gates[rival, arm] = duel_gate(state.margins, lane, arm, rival)
        soonest = -np.inf
    else:
        for arm in range(arm_count):
            if arm != leader:
                gates[leader, arm] = duel_gate(state.margins, lane, leader, arm)
                state.gains[lane, arm] = possible_gain(state.margins, lane, leader, arm)
                soonest = min(soonest, gates[leader, arm] if state.walk[lane, arm] == 0.0 else -np.inf)
    state.soonest[lane] = soonest
