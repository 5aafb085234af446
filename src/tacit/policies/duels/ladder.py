"""Where duels stand: who leads, how far it is settled against whom, and whether something has changed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.core.dispatch import kernel
from tacit.policies.duels.margins import Margins, ahead, fade_pairs, gain_of, gate_of, margin_of

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
    """

    margins: Margins
    rounds: Floats
    leader: Ints
    beaten: Ints
    gates: Floats
    gains: Floats
    soonest: Floats
    walk: Floats
    room: Floats

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
