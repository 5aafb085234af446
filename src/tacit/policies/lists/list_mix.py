"""List policies that average over user models: ListMix, and SafeListMix, which starts from a good order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.core.dispatch import clear, kernel
from tacit.core.part import Flag
from tacit.core.state_ranges import ArmList, IntCount
from tacit.policies.base import About, ArmBeliefs, Impression, Outcome
from tacit.policies.index import interval_probability
from tacit.policies.lists.one_draw import (
    FULL_INTERVAL,
    Draw,
    LinePolicy,
    Lines,
    MixPolicy,
    find_place,
    narrow_interval,
)
from tacit.policies.lists.user_models import (
    UserModels,
    clear_beliefs,
    learn_clicks,
    summarize_beliefs,
    update_beliefs,
)


@dataclass(frozen=True)
class ListMix(LinePolicy):
    """List the arms of the largest mean + z·deviation of their attraction, z drawn once a list.

    Attraction is estimated under twelve user models: position k is seen with probability k^−a (a of 0, ½, 1,
    1½); or users read from the top and continue with probability 1 or 0.85 after a skip and with 0, 0.3, 0.6
    or 0.9 after a click. Each key weighs the models by how well they predicted its clicks. The order in which
    arms are offered counts as an uncertain first guess: offer them best first.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    positions : int, default 3
        Length of the list; at least 1.
    epsilon : float, default 0
        Probability in [0, 1] that an arm drawn uniformly is put at a position drawn uniformly;
        above 0 for logs on which every other policy can be evaluated.
    doubt : bool, default True
        Whether the order in which arms are offered counts as an uncertain guess of their quality. If False,
        the first arms start at nine times the rate of the last, as in earlier versions; placements that began
        so keep it.
    at_least : dict of arm to float, optional
        Minimum probabilities that arms are in the list, each at a position drawn uniformly, whatever
        is learned: shares in (0, 0.5] by arm name, together at most 0.5. The share of an arm that
        is not on offer is left to the policy.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    Notes
    -----
    Each arm's mean + z·deviation is a line in z, so each list belongs to an interval of z and its
    propensities are exact: of the list (``propensity`` of a decision), of its prefixes
    (``prefix_propensities``), and of each arm at its position (``position_propensities``);
    :meth:`~tacit.Learner.probabilities` returns those of all arms at all positions.

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
        weak="readers whom a click may content: 13 % of the best list's clicks are missed, as by all others; "
        "an order that is good, 1.05 ± 0.03 times what is missed if that is known (doubt=False)",
    )

    earlier: ClassVar[Mapping[str, Any]] = MappingProxyType({"doubt": False})

    doubt: Flag = True

    def init(self, lanes: int) -> UserModels:
        """Return the state of ``lanes`` keys before the first list: no clicks, and equal weights of the user
        models.
        """
        return UserModels.blank(lanes, self.arm_count)

    def beliefs(self, state: UserModels, lane: int) -> ArmBeliefs:
        """Return a key's posteriors of all arms' attraction, averaged over all user models."""
        return summarize_beliefs(state, lane, self.doubt)

    @staticmethod
    def arrange(params: ListMix, state: UserModels, lane: int, impression: Impression) -> Lines:
        """Return the scores of the arms on offer as lines mean + z·deviation; they are kept in the state's
        workspace.
        """
        update_beliefs(state, lane, impression.arms, params.doubt)
        return Lines(state.mean[lane], state.spread[lane], state.rank[lane])

    @staticmethod
    def clear(params: ListMix, state: UserModels, lane: int) -> None:
        """Reset the workspace of a lane, which ``arrange`` filled."""
        clear_beliefs(state, lane)

    @staticmethod
    def learn(params: ListMix, state: UserModels, lane: int, outcome: Outcome) -> None:
        """Update counts and weights of all user models with the clicks on a list."""
        learn_clicks(state, lane, outcome.impression.arms, outcome.shown, outcome.reward, params.doubt)


# ---- SafeListMix: the order on offer changes only where clicks show that another one is better
#
# 1. ``order_arms``: the standing order, with new arms inserted.
# 2. ``pair_range``: the neighbours that are compared in this list; one draw exchanges them where it reverses
#    the order of their scores.
# 3. ``learn``: update user models; exchange neighbours in the standing list where means differ by more than
#    the deviation of their difference.


NO_ARM = -1


class State(NamedTuple):
    """State of SafeListMix: its user models and, for each lane, the standing list that draws start from.

    Attributes
    ----------
    readers : UserModels
    standing : array of int64, shape (lanes, arms)
        The standing list of arm indices, best first; −1 behind its end.
    order : array of int64, shape (lanes, arms)
        Workspace for the arms on offer in standing order; −1 between calls.
    learned : array of int64, shape (lanes,)
        Number of lists learned from; its parity decides which neighbours are compared.
    """

    readers: UserModels
    standing: ArmList
    order: ArmList
    learned: IntCount


@kernel
def order_arms(state: State, lane: int, arms: Ints) -> int:
    """Fill the workspace ``order`` with the standing list, extended by new arms on offer; return its length.

    A new arm is inserted behind the arm that precedes it on offer. ``readers.rank`` must hold the ranks of
    the arms on offer, −1 for others; it is changed while the function runs, and restored.
    """
    order, rank = state.order[lane], state.readers.rank[lane]
    count = 0
    while count < len(order) and state.standing[lane, count] >= 0:
        standing_arm = state.standing[lane, count]
        order[count] = standing_arm
        count += 1
        if rank[standing_arm] >= 0:
            # Marks an arm on offer that is in the standing list already.
            rank[standing_arm] = -2 - rank[standing_arm]
    for i in range(len(arms)):
        arm = arms[i]
        if rank[arm] < 0:
            # It is in the list: remove the mark.
            rank[arm] = -2 - rank[arm]
            continue
        place = count
        # Shift the arms behind its predecessor on offer; without one, all of them.
        while place > 0 and (i == 0 or order[place - 1] != arms[i - 1]):
            order[place] = order[place - 1]
            place -= 1
        order[place] = arm
        count += 1
    return count


@kernel
def pair_range(learned: int, positions: int, offered: int) -> tuple[int, int]:
    """Return where the first pair of neighbours to compare in this list begins, and before which place pairs
    begin.

    Every second place from the first one on begins a pair. The first is 0 or 1 in turn, by the number of
    learned lists.
    """
    return learned % 2, min(positions, offered - 1)


@dataclass(frozen=True)
class SafeListMix(MixPolicy):
    """Keep the order in which arms are offered; exchange neighbours as the clicks suggest.

    The standing list starts as the caller's order. In every list, each second pair of neighbours, the
    first arm below the list included, is exchanged where mean + z·deviation of the lower arm is
    the larger, with one draw z = \\|N(0, 1)\\| for the list; the other pairs follow after the next update.
    In the standing list, neighbours are exchanged if their means differ by more than the
    deviation of their difference. Estimates are those of :class:`~tacit.ListMix`.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    positions : int, default 3
        Length of the list; at least 1.
    epsilon : float, default 0
        Probability in [0, 1] that an arm drawn uniformly is put at a position drawn uniformly;
        above 0 for logs on which every other policy can be evaluated.
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
    >>> policy = tacit.policies.SafeListMix(arms=["a", "b", "c", "d"], positions=3)
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
        """Return the state of ``lanes`` keys before the first list, with empty standing lists."""
        table = lanes, self.arm_count
        return State(
            readers=UserModels.blank(*table),
            standing=np.full(table, NO_ARM, np.int64),
            order=np.full(table, NO_ARM, np.int64),
            learned=np.zeros(lanes, np.int64),
        )

    def beliefs(self, state: State, lane: int) -> ArmBeliefs:
        """Return a key's posteriors of all arms' attraction, averaged over all user models."""
        return summarize_beliefs(state.readers, lane, False)

    @staticmethod
    def arrange(params: SafeListMix, state: State, lane: int, impression: Impression) -> State:
        """Write beliefs, and the arms on offer in standing order, into the workspace; return the state, which
        holds it.
        """
        update_beliefs(state.readers, lane, impression.arms, False)
        order, offered = state.order[lane], 0
        # The order contains the standing list's arms that are not on offer, too; they are removed in place.
        for i in range(order_arms(state, lane, impression.arms)):
            arm = order[i]
            order[i] = NO_ARM
            if state.readers.rank[lane, arm] >= 0:
                order[offered] = arm
                offered += 1
        return state

    @staticmethod
    def clear(params: SafeListMix, state: State, lane: int) -> None:
        """Reset the workspace of a lane: beliefs and ``order``."""
        clear_beliefs(state.readers, lane)
        for i in range(state.order.shape[1]):
            state.order[lane, i] = NO_ARM

    @staticmethod
    def line_up(
        params: SafeListMix, state: State, lane: int, impression: Impression, draw: Draw, action: Ints
    ) -> None:
        """Fill ``action`` with the list that a draw of z gives: the standing order, with some neighbours
        exchanged.

        Of the pairs that are compared in this list, those whose scores mean + z·deviation are in reverse
        order are exchanged, in the workspace ``order``, too. A forced arm of the draw is put at its place.
        """
        order, mean, spread = (state.order[lane], state.readers.mean[lane], state.readers.spread[lane])
        offered = len(impression.arms)
        start, stop = pair_range(state.learned[lane], params.positions, offered)
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
        """Return the probability that the order of a draw begins with the first ``count`` arms of ``begin``.

        Pairs of neighbours are exchanged in an interval of z; the probability is that of the intersection of
        these intervals. The arm ``without``, unless −1, is removed from the order and from ``begin``.
        """
        order, mean, spread = (state.order[lane], state.readers.mean[lane], state.readers.spread[lane])
        start, stop = pair_range(state.learned[lane], params.positions, len(impression.arms))
        low, high = FULL_INTERVAL
        i = 0
        k = next_place(begin, 0, count, without)
        while k < count:
            upper = order[i]
            # Two arms of a pair, or one arm twice if it is not paired, or its partner is left out.
            paired = i >= start and i < stop and (i - start) % 2 == 0
            lower = order[i + 1] if paired else upper
            i += 2 if paired else 1
            if upper == without or not paired:
                upper = lower
            elif lower == without:
                lower = upper
            if upper == without:
                continue
            # An arm without a partner has a fixed place.
            if upper == lower:
                if begin[k] != upper:
                    return 0.0
                k = next_place(begin, k + 1, count, without)
                continue
            # The pair keeps its order where the upper arm's score is at least as high; else it is exchanged.
            gap, slope = mean[upper] - mean[lower], spread[upper] - spread[lower]
            if begin[k] == upper:
                low, high = narrow_interval(low, high, gap, slope, True)
                partner = lower
            elif begin[k] == lower:
                low, high = narrow_interval(low, high, -gap, -slope, False)
                partner = upper
            else:
                return 0.0
            # The pair's other arm comes next, unless ``begin`` ends between the two.
            k = next_place(begin, k + 1, count, without)
            if k < count:
                if begin[k] != partner:
                    return 0.0
                k = next_place(begin, k + 1, count, without)
        return interval_probability(low, high)

    @staticmethod
    def learn(params: SafeListMix, state: State, lane: int, outcome: Outcome) -> None:
        """Learn the clicks on a list, then update the standing list: exchange neighbours whose means differ
        enough.

        Enough is more than the deviation of their difference. New arms on offer join the standing list; the
        count of learned lists grows by 1.
        """
        models, arms = state.readers, outcome.impression.arms
        learn_clicks(models, lane, arms, outcome.shown, outcome.reward, False)
        update_beliefs(models, lane, arms, False)
        mean, spread, standing = models.mean[lane], models.spread[lane], state.standing[lane]
        upper = -1
        for i in range(order_arms(state, lane, arms)):
            lower = standing[i] = state.order[lane, i]
            if models.rank[lane, lower] < 0:
                continue
            if upper >= 0:
                # ``upper`` is the place of the last arm on offer; arms that are not on offer are passed over.
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
        """Fill ``chances`` with the probability that an arm has rank 0, 1, … in the order of a draw.

        An arm has one of two ranks, as only one pair of neighbours contains it. The arm ``without``, unless
        −1, is removed from the order.
        """
        order, mean, spread = (state.order[lane], state.readers.mean[lane], state.readers.spread[lane])
        offered = len(impression.arms)
        start, stop = pair_range(state.learned[lane], params.positions, offered)
        i = find_place(order, offered, arm)
        for k in range(len(chances)):
            chances[k] = 0.0
        # ``partner`` is the place of the other arm of the pair, or ``i`` for an arm in no pair.
        partner = i
        if start <= i and (i - start) % 2 == 1 and i - 1 < stop:
            partner = i - 1
        elif start <= i < stop:
            partner = i + 1
        exchanged = 0.0
        if without >= 0 and order[partner] == without:
            # The partner is left out, so the arm has the place of the upper one, exchanged or not.
            i = partner = min(i, partner)
        if partner != i:
            upper, lower = order[min(i, partner)], order[max(i, partner)]
            gap, slope = mean[lower] - mean[upper], spread[lower] - spread[upper]
            low, high = narrow_interval(0.0, np.inf, gap, slope, False)
            exchanged = interval_probability(low, high)
        # The arm that is left out moves all arms below it up by one.
        moved = 1 if without >= 0 and find_place(order, offered, without) < i else 0
        if i - moved < len(chances):
            chances[i - moved] = 1.0 - exchanged
        if partner - moved < len(chances):
            chances[partner - moved] += exchanged


@kernel
def next_place(begin: Ints, k: int, count: int, without: int) -> int:
    """Return the first place from ``k`` on, below ``count``, whose arm is not ``without``; ``count`` if there
    is none.
    """
    while k < count and begin[k] == without:
        k += 1
    return k
