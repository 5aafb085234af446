"""Lists by one draw over a mixture of what readers may be like, with exact propensities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.policies.base import About, ArmBeliefs, Impression, Outcome
from tacit.policies.index import mass
from tacit.policies.lists.one_draw import EVERYTHING, MixPolicy, narrowed, place_in
from tacit.policies.lists.readers import Readers, beliefs_of, believe, forget_beliefs, read_list


@dataclass(frozen=True)
class ListMix(MixPolicy):
    """List the arms of the largest mean + z·deviation of their attraction, z drawn once a list.

    Attraction is believed under twelve hypotheses about reading: positions are seen with
    probability k^−a (a of 0, ½, 1, 1½); or readers go from the top, on with probability 1 or 0.85
    after a skip and with 0, 0.3, 0.6 or 0.9 after a click. Each key weighs the hypotheses by how
    well they predicted its clicks. The order in which arms are offered counts as a first guess: offer
    them best first.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    positions : int, default 3
        Length of the list; at least 1.
    epsilon : float, default 0
        Probability in [0, 1] that an arm drawn uniformly is put at a position drawn uniformly;
        above 0 for logs that shall answer for every other policy.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    Notes
    -----
    Each arm's mean + z·deviation is a line in z, so the lists belong to intervals of z and their
    propensities are exact: of a list (``propensity`` of a decision), of its beginnings
    (``prefix_propensities``), and of each arm at its position (``position_propensities``);
    :meth:`~tacit.Learner.probabilities` gives those of all arms at all positions.

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.ListMix(arms=["a", "b", "c"], positions=2), seed=1)
    >>> for _ in range(300):
    ...     decision = learner.choose("query")
    ...     _ = learner.learn(decision, [float(arm == "c") for arm in decision.slate])
    >>> learner.choose("query").slate[0]
    'c'
    """

    about: ClassVar[About] = About(
        source="tacit's own: Bayesian averaging over position-based and chain models of clicks "
        "(Chuklin, Markov, de Rijke 2015), one draw for all arms",
        regret="no bound is known",
        assumes="readers near one of twelve hypotheses; attractions never change and do not "
        "depend on the arms beside",
        fails="arms are ranked by clicks that their places won or lost them",
        otherwise="SafeListMix where the order on offer is good already; RankedBandit where "
        "attractions depend on the arms above, or change",
        suits="lists, however they are read: no knobs, exact propensities",
    )

    def init(self, lanes: int) -> Readers:
        return Readers.blank(lanes, self.arm_count)

    def beliefs(self, state: Readers, lane: int) -> ArmBeliefs:
        """Return what it believes of the arms' attraction, over all hypotheses."""
        return beliefs_of(state, lane)

    @staticmethod
    def arrange(params: ListMix, state: Readers, lane: int, impression: Impression) -> None:
        believe(state, lane, impression.arms)

    @staticmethod
    def clear(params: ListMix, state: Readers, lane: int) -> None:
        forget_beliefs(state, lane)

    @staticmethod
    def line_up(
        params: ListMix,
        state: Readers,
        lane: int,
        impression: Impression,
        z: float,
        arm: int,
        place: int,
        action: Ints,
    ) -> None:
        arms, rank = impression.arms, state.rank[lane]
        if arm >= 0:
            rank[arm] = -2 - rank[arm]
        for k in range(min(len(action), len(arms))):
            leader, best = arm, -np.inf
            if k != place:
                for i in range(len(arms)):
                    score = state.mean[lane, arms[i]] + z * state.spread[lane, arms[i]]
                    if rank[arms[i]] >= 0 and score > best:
                        leader, best = arms[i], score
                rank[leader] = -2 - rank[leader]
            action[k] = leader

    @staticmethod
    def share(
        params: ListMix,
        state: Readers,
        lane: int,
        impression: Impression,
        begin: Ints,
        count: int,
        without: int,
    ) -> float:
        mean, spread, rank = state.mean[lane], state.spread[lane], state.rank[lane]
        low, high = EVERYTHING
        last = -1
        for k in range(count):
            arm = begin[k]
            rank[arm] = -2 - rank[arm]
            if arm != without:
                if last >= 0:
                    gap, slope = mean[last] - mean[arm], spread[last] - spread[arm]
                    low, high = narrowed(low, high, gap, slope, rank[last] > rank[arm])
                last = arm
        if last >= 0:
            first = -2 - rank[last]
            for i in range(len(impression.arms)):
                arm = impression.arms[i]
                if rank[arm] >= 0 and arm != without:
                    gap, slope = mean[last] - mean[arm], spread[last] - spread[arm]
                    low, high = narrowed(low, high, gap, slope, first < rank[arm])
        for k in range(count):
            rank[begin[k]] = -2 - rank[begin[k]]
        return mass(low, high)

    @staticmethod
    def learn(params: ListMix, state: Readers, lane: int, outcome: Outcome) -> None:
        read_list(state, lane, outcome.impression.arms, outcome.shown, outcome.reward)

    @staticmethod
    def shares(
        params: ListMix, state: Readers, lane: int, impression: Impression, begin: Ints, count: int
    ) -> float:
        # Without the arm that limits the interval most, the next one does; all others do not count.
        if count == 0:
            return float(len(impression.arms))
        mean, spread, rank = state.mean[lane], state.spread[lane], state.rank[lane]
        low, high = EVERYTHING
        for k in range(1, count):
            one, next = begin[k - 1], begin[k]
            gap, slope = mean[one] - mean[next], spread[one] - spread[next]
            low, high = narrowed(low, high, gap, slope, rank[one] < rank[next])
        last, others = begin[count - 1], 0
        lowest, low_arm, highest, high_arm = low, -1, high, -1
        for i in range(len(impression.arms)):
            arm = impression.arms[i]
            if place_in(begin, count, arm) == count:
                others += 1
                gap, slope = mean[last] - mean[arm], spread[last] - spread[arm]
                least, most = narrowed(0.0, np.inf, gap, slope, rank[last] < rank[arm])
                if least > lowest:
                    low, lowest, low_arm = lowest, least, arm
                elif least > low:
                    low = least
                if most < highest:
                    high, highest, high_arm = highest, most, arm
                elif most < high:
                    high = most
        if low_arm == high_arm:
            limiting = 1.0 if low_arm >= 0 else 0.0
            found = limiting * mass(low, high)
        else:
            limiting = (1.0 if low_arm >= 0 else 0.0) + (1.0 if high_arm >= 0 else 0.0)
            found = mass(low, highest) if low_arm >= 0 else 0.0
            found += mass(lowest, high) if high_arm >= 0 else 0.0
        return found + (others - limiting) * mass(lowest, highest)

    @staticmethod
    def ranks(
        params: ListMix, state: Readers, lane: int, impression: Impression, arm: int, chances: Floats
    ) -> None:
        # The arm falls by a rank where another line crosses its own upwards, and rises where one
        # crosses downwards; the former stand in front, the latter behind.
        mean, spread, order = state.mean[lane], state.spread[lane], state.rank[lane]
        arms = impression.arms
        crossings = np.empty(len(arms))
        rank, falls, rises = 0, 0, len(arms)
        for i in range(len(arms)):
            gap, slope = mean[arms[i]] - mean[arm], spread[arms[i]] - spread[arm]
            level = slope > 0.0 or (slope == 0.0 and order[arms[i]] < order[arm])
            if gap > 0.0 or (gap == 0.0 and level):
                rank += 1
            if gap < 0.0 < slope:
                crossings[falls] = -gap / slope
                falls += 1
            elif slope < 0.0 < gap:
                rises -= 1
                crossings[rises] = -gap / slope
        crossings[:falls].sort()
        crossings[rises:].sort()
        for k in range(len(chances)):
            chances[k] = 0.0
        low, fall, rise = 0.0, 0, rises
        while fall < falls or rise < len(arms):
            falling = rise == len(arms) or (fall < falls and crossings[fall] <= crossings[rise])
            high = crossings[fall] if falling else crossings[rise]
            if rank < len(chances):
                chances[rank] += mass(low, high)
            low = high
            if falling:
                rank += 1
                fall += 1
            else:
                rank -= 1
                rise += 1
        if rank < len(chances):
            chances[rank] += mass(low, np.inf)
