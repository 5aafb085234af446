"""Lists that leave a good order only by steps that the clicks have earned."""

# 1. ``stand``: the standing order, with what is new on offer behind it.
# 2. ``pairs``: which neighbours are compared in this list; one draw exchanges those whose scores it turns.
# 3. ``learn``: what clicks teach; neighbours change places for good where means differ by more than
#    deviations.

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.core.dispatch import clear, kernel
from tacit.policies.base import About, ArmBeliefs, Impression, Outcome
from tacit.policies.index import mass
from tacit.policies.lists.one_draw import EVERYTHING, Draw, MixPolicy, narrowed, place_in
from tacit.policies.lists.readers import Readers, beliefs_of, believe, forget_beliefs, read_list

NOTHING = -1


class State(NamedTuple):
    """What a SafeListMix has learned.

    Attributes
    ----------
    readers : Readers
    standing : array of int64, shape (lanes, arms)
        The standing list of slots, best first; −1 behind its end.
    order : array of int64, shape (lanes, arms)
        Room for the arms on offer as they stand; −1 between calls.
    learned : array of int64, shape (lanes,)
        How many lists were learned from; which neighbours are compared follows its parity.
    """

    readers: Readers
    standing: Ints
    order: Ints
    learned: Ints


@kernel
def stand(state: State, lane: int, arms: Ints) -> int:
    """Fill ``order`` with the standing list and what is new on offer; return its length.

    A new arm comes in behind the one that precedes it among those on offer. Ranks must be there.
    """
    order, rank = state.order[lane], state.readers.rank[lane]
    count = 0
    while count < len(order) and state.standing[lane, count] >= 0:
        slot = state.standing[lane, count]
        order[count] = slot
        count += 1
        if rank[slot] >= 0:
            rank[slot] = -2 - rank[slot]
    for i in range(len(arms)):
        arm = arms[i]
        if rank[arm] < 0:
            rank[arm] = -2 - rank[arm]
            continue
        place = count
        while place > 0 and (i == 0 or order[place - 1] != arms[i - 1]):
            order[place] = order[place - 1]
            place -= 1
        order[place] = arm
        count += 1
    return count


@kernel
def pairs(learned: int, positions: int, offered: int) -> tuple[int, int]:
    """Return where the first pair of compared neighbours begins and behind which the last one."""
    return learned % 2, min(positions, offered - 1)


@dataclass(frozen=True)
class SafeListMix(MixPolicy):
    """Keep the order in which arms are offered; exchange neighbours as the clicks tell.

    The standing list begins as the caller's. In every list, each second pair of neighbours, the
    first arm below the list included, is exchanged where mean + z·deviation of the lower one is
    the larger: one draw z = \\|N(0, 1)\\| for the list, and the other pairs after the next lesson.
    The standing list itself moves by exchanges of neighbours whose means differ by more than the
    deviation of their difference. Beliefs are those of :class:`~tacit.ListMix`.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    positions : int, default 3
        Length of the list; at least 1.
    epsilon : float, default 0
        Probability in [0, 1] that an arm drawn uniformly is put at a position drawn uniformly;
        above 0 for logs that shall answer for every other policy.
    at_least : dict of arm to float, optional
        As for :class:`~tacit.ListMix`.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Li, Kveton, Lattimore, Markov, de Rijke, Szepesvári, Zoghi (2019), "BubbleRank: safe online
    learning to re-rank via implicit click feedback", for the exchanges.

    Examples
    --------
    >>> import tacit
    >>> policy = tacit.SafeListMix(arms=["a", "b", "c", "d"], positions=3)
    >>> learner = tacit.Learner(policy, seed=1)
    >>> slate = learner.choose("query").slate
    >>> all(abs(slate.index(arm) - "abcd".index(arm)) <= 1 for arm in slate)
    True
    """

    about: ClassVar[About] = About(
        source="tacit's own: the beliefs of ListMix, the exchanges of BubbleRank (Li et al. 2019)",
        regret="no bound is known",
        assumes="the order on offer is good; readers near one of twelve hypotheses",
        fails="a bad order is left by one step at a time, slowly",
        otherwise="ListMix",
        suits="lists whose order is good already: never far below it, exact propensities",
        weak="an order that is not good: 8 to 29 % of the best list's clicks are missed in 5,000 lists, by "
        "ListMix 1 to 14 %",
    )

    def init(self, lanes: int) -> State:
        table = lanes, self.arm_count
        return State(
            readers=Readers.blank(*table),
            standing=np.full(table, NOTHING, np.int64),
            order=np.full(table, NOTHING, np.int64),
            learned=np.zeros(lanes, np.int64),
        )

    def beliefs(self, state: State, lane: int) -> ArmBeliefs:
        """Return what it believes of the arms' attraction, over all hypotheses."""
        return beliefs_of(state.readers, lane, False)

    @staticmethod
    def arrange(params: SafeListMix, state: State, lane: int, impression: Impression) -> State:
        believe(state.readers, lane, impression.arms, False)
        order, offered = state.order[lane], 0
        for i in range(stand(state, lane, impression.arms)):
            slot = order[i]
            order[i] = NOTHING
            if state.readers.rank[lane, slot] >= 0:
                order[offered] = slot
                offered += 1
        return state

    @staticmethod
    def clear(params: SafeListMix, state: State, lane: int) -> None:
        forget_beliefs(state.readers, lane)
        for i in range(state.order.shape[1]):
            state.order[lane, i] = NOTHING

    @staticmethod
    def line_up(
        params: SafeListMix, state: State, lane: int, impression: Impression, draw: Draw, action: Ints
    ) -> None:
        order, mean, spread = (state.order[lane], state.readers.mean[lane], state.readers.spread[lane])
        offered = len(impression.arms)
        start, stop = pairs(state.learned[lane], params.positions, offered)
        for i in range(start, stop, 2):
            upper, lower = order[i], order[i + 1]
            if mean[lower] + draw.z * spread[lower] > mean[upper] + draw.z * spread[upper]:
                order[i], order[i + 1] = lower, upper
        place_in_order = 0
        for k in range(min(len(action), offered)):
            if k == draw.place:
                action[k] = draw.arm
                continue
            if order[place_in_order] == draw.arm:
                place_in_order += 1
            action[k] = order[place_in_order]
            place_in_order += 1

    @staticmethod
    def share(
        params: SafeListMix,
        state: State,
        lane: int,
        impression: Impression,
        begin: Ints,
        count: int,
        without: int,
    ) -> float:
        order, mean, spread = (state.order[lane], state.readers.mean[lane], state.readers.spread[lane])
        start, stop = pairs(state.learned[lane], params.positions, len(impression.arms))
        low, high = EVERYTHING
        i = 0
        k = following(begin, 0, count, without)
        while k < count:
            upper = order[i]
            paired = i >= start and i < stop and (i - start) % 2 == 0
            lower = order[i + 1] if paired else upper
            i += 2 if paired else 1
            if upper == without or not paired:
                upper = lower
            elif lower == without:
                lower = upper
            if upper == without:
                continue
            if upper == lower:
                if begin[k] != upper:
                    return 0.0
                k = following(begin, k + 1, count, without)
                continue
            gap, slope = mean[upper] - mean[lower], spread[upper] - spread[lower]
            if begin[k] == upper:
                low, high = narrowed(low, high, gap, slope, True)
                other = lower
            elif begin[k] == lower:
                low, high = narrowed(low, high, -gap, -slope, False)
                other = upper
            else:
                return 0.0
            k = following(begin, k + 1, count, without)
            if k < count:
                if begin[k] != other:
                    return 0.0
                k = following(begin, k + 1, count, without)
        return mass(low, high)

    @staticmethod
    def learn(params: SafeListMix, state: State, lane: int, outcome: Outcome) -> None:
        readers, arms = state.readers, outcome.impression.arms
        read_list(readers, lane, arms, outcome.shown, outcome.reward, False)
        believe(readers, lane, arms, False)
        mean, spread, standing = readers.mean[lane], readers.spread[lane], state.standing[lane]
        upper = -1
        for i in range(stand(state, lane, arms)):
            lower = standing[i] = state.order[lane, i]
            if readers.rank[lane, lower] < 0:
                continue
            if upper >= 0:
                above = standing[upper]
                deviation = math.hypot(spread[above], spread[lower])
                if mean[lower] - mean[above] > deviation:
                    standing[upper], standing[i] = lower, above
            upper = i
        state.learned[lane] += 1
        clear(params, state, lane)

    @staticmethod
    def ranks(
        params: SafeListMix,
        state: State,
        lane: int,
        impression: Impression,
        arm: int,
        without: int,
        chances: Floats,
    ) -> None:
        order, mean, spread = (state.order[lane], state.readers.mean[lane], state.readers.spread[lane])
        offered = len(impression.arms)
        start, stop = pairs(state.learned[lane], params.positions, offered)
        i = place_in(order, offered, arm)
        for k in range(len(chances)):
            chances[k] = 0.0
        other = i
        if start <= i and (i - start) % 2 == 1 and i - 1 < stop:
            other = i - 1
        elif start <= i < stop:
            other = i + 1
        exchanged = 0.0
        if without >= 0 and order[other] == without:
            # Of the two that are exchanged, the one that is left stands first.
            i = other = min(i, other)
        if other != i:
            upper, lower = order[min(i, other)], order[max(i, other)]
            gap, slope = mean[lower] - mean[upper], spread[lower] - spread[upper]
            low, high = narrowed(0.0, np.inf, gap, slope, False)
            exchanged = mass(low, high)
        moved = 1 if without >= 0 and place_in(order, offered, without) < i else 0
        if i - moved < len(chances):
            chances[i - moved] = 1.0 - exchanged
        if other - moved < len(chances):
            chances[other - moved] += exchanged


@kernel
def following(begin: Ints, k: int, count: int, without: int) -> int:
    """Return the first place from ``k`` on that holds another arm than ``without``."""
    while k < count and begin[k] == without:
        k += 1
    return k
