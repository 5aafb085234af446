"""Base of list policies that order all arms by one random number, with exact list propensities."""

# 1. ``MixPolicy``: one draw z orders the arms, so a list has the probability of intervals of z.
# 2. ``draw_list``, ``sum_promises``, ``pick_promised_arm``: a list, in which arms with a promise get their
#    share.
# 3. ``prefix_propensity``, ``fill_position_chances``, ``position_chance``: the exact probabilities of a
#    list's first arms and of arms at positions.
# 4. ``LinePolicy``: the policies whose scores are lines mean + z·deviation.

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core import dispatch
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import arrange, cells, clear, kernel, line_up, ranks, share, shares
from tacit.core.part import Fraction, int_range, param, set_field
from tacit.errors import InvalidValue
from tacit.policies.actions import SlatePolicy
from tacit.policies.base import Impression
from tacit.policies.index import check_shares, interval_probability

FULL_INTERVAL = 0.0, np.inf


@kernel
def narrow_interval(low: float, high: float, gap: float, slope: float, level: bool) -> tuple[float, float]:
    """Return the part [low, high] of an interval of z in which gap + z·slope > 0; (inf, 0) if there is none.

    If gap and slope are 0, it is the whole interval if ``level`` is True, else none.
    """
    if slope > 0.0:
        return max(low, -gap / slope), high
    if slope < 0.0:
        return low, min(high, -gap / slope)
    if gap > 0.0 or (gap == 0.0 and level):
        return low, high
    return np.inf, 0.0


class Draw(NamedTuple):
    """The random numbers behind a list: the draw z, and an arm (−1: none) that is put at a place."""

    z: float
    arm: int
    place: int


def clear_nothing(params: Any, state: Any, lane: int) -> None:
    """Leave the state as it is: ``arrange`` has written into arrays of its own."""


@dataclass(frozen=True)
class MixPolicy(SlatePolicy, abstract=True):
    """Base of the policies that order the arms on offer by one draw z = \\|N(0, 1)\\|.

    With the probability promised to it in ``at_least``, an arm is put at a position drawn uniformly. Of the
    remaining lists, a share ``epsilon`` has an arm drawn uniformly at a position drawn uniformly. The other
    arms keep their order around it. So in the remaining lists every arm is at every position with a
    probability of at least ε/(arms on offer · positions), and the probabilities of a list, of its first arms
    and of an arm at a position are known exactly.

    A subclass gives the kernels ``arrange``, ``line_up``, ``share`` and ``ranks``, and ``clear`` if
    ``arrange`` writes into the state, as :mod:`tacit.core.dispatch` describes them.
    """

    kernels: ClassVar[tuple[Any, ...]] = dispatch.POLICY_KERNELS + dispatch.LIST_KERNELS
    defaults: ClassVar[dict[str, Any]] = {**SlatePolicy.defaults, "clear": clear_nothing}

    positions: Annotated[int, int_range(1, 10_000)] = 3
    epsilon: Fraction = 0.0
    at_least: Any = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        """Validate ``at_least`` and store it as pairs (arm, share); raise InvalidValue if arms have no
        names.
        """
        super().__post_init__()
        if self.at_least and self.arms is None:
            raise InvalidValue("at_least", self.at_least, "leave it out: a promise is to an arm by its name")
        set_field(self, "at_least", check_shares(self.at_least, self.arms))

    @param
    def promises(self) -> Floats:
        """Minimum share of each arm by arm index, from ``at_least``; empty if there are no minimum shares."""
        promised_shares = dict(self.at_least)
        names = (
            () if not promised_shares else range(self.arm_count) if isinstance(self.arms, int) else self.arms
        )
        return np.array([promised_shares.get(arm, 0.0) for arm in names], np.float64)

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance with min(``arms``, 3) positions and ε of 0.1; ``dim`` is ignored."""
        return cls(arms, positions=min(arms, 3), epsilon=0.1)

    knows_propensity = True

    @staticmethod
    def shares(
        params: Any, arranged: Any, lane: int, impression: Impression, begin: Ints, count: int
    ) -> float:
        """Return the sum of ``share`` over the arms on offer that are not in ``begin``, each left out in
        turn.

        It is the default kernel; :class:`LinePolicy` has a faster one.
        """
        total = 0.0
        for arm in impression.arms:
            if find_place(begin, count, arm) == count:
                total += share(params, arranged, lane, impression, begin, count, arm)
        return total

    def position_chances(self, state: Any, lane: int, impression: Impression) -> Floats:
        """Return the probability that each arm on offer is shown at each position.

        Parameters
        ----------
        state : State
        lane : int
        impression : Impression

        Returns
        -------
        array of float64, shape (arms on offer, min(positions, arms on offer))

        Examples
        --------
        >>> import numpy as np, tacit
        >>> policy = tacit.ListMix(arms=4, positions=2, epsilon=0.08)
        >>> impression = tacit.Impression(np.arange(4), np.zeros(0))
        >>> chances = policy.position_chances(policy.init(1), 0, impression)
        >>> chances.sum(axis=0).round(12).tolist(), bool(chances.min() >= 0.01)
        ([1.0, 1.0], True)
        """
        arms = len(impression.arms)
        chances = np.zeros((arms, min(self.positions, arms)))
        cells(self.params, state, lane, impression, chances)
        return chances

    @staticmethod
    def cells(params: Any, state: Any, lane: int, impression: Impression, table: Floats) -> None:
        """Fill ``table`` with the probability that each arm on offer (row) is shown at each position
        (column).

        Resets the workspace of the state.
        """
        arms, positions = impression.arms, min(params.positions, len(impression.arms))
        chances, places = np.empty(positions + 1), np.empty(positions)
        arranged = arrange(params, state, lane, impression)
        for i in range(len(arms)):
            fill_position_chances(params, arranged, lane, impression, arms[i], chances, places)
            table[i] = places
        clear(params, state, lane)

    @staticmethod
    def placed(
        params: Any,
        state: Any,
        lane: int,
        impression: Impression,
        action: Ints,
        prefixes: Floats,
        places: Floats,
    ) -> None:
        """Fill ``prefixes`` and ``places`` with the probabilities of a shown list's beginnings and of its
        positions.

        ``prefixes[k]`` is the probability that a list begins with the first k + 1 arms of ``action``.
        ``places[k]`` is the probability that position k shows its arm of ``action``, and 1 if it shows none.
        Resets the workspace of the state.
        """
        positions = min(params.positions, len(impression.arms))
        rank_chances, arm_chances = np.empty(positions + 1), np.empty(positions)
        arranged = arrange(params, state, lane, impression)
        for k in range(len(action)):
            # An empty position changes no probability.
            prefixes[k] = 1.0 if k == 0 else prefixes[k - 1]
            places[k] = 1.0
            if action[k] >= 0:
                prefixes[k] = prefix_propensity(params, arranged, lane, impression, action, k + 1)
                fill_position_chances(
                    params, arranged, lane, impression, action[k], rank_chances, arm_chances
                )
                places[k] = arm_chances[k]
        clear(params, state, lane)

    @staticmethod
    def decide(
        params: Any, state: Any, lane: int, impression: Impression, rng: Generator, action: Ints
    ) -> None:
        """Draw a list of arms, and fill ``action`` with it. Resets the workspace of the state."""
        arranged = arrange(params, state, lane, impression)
        draw_list(params, arranged, lane, impression, rng, action)
        clear(params, state, lane)

    @staticmethod
    def propensity(params: Any, state: Any, lane: int, impression: Impression, action: Ints) -> float:
        """Return the probability of showing the list ``action``; if it ends with −1, of a list that begins
        with it.
        """
        count = find_place(action, len(action), -1)
        arranged = arrange(params, state, lane, impression)
        chance = prefix_propensity(params, arranged, lane, impression, action, count)
        clear(params, state, lane)
        return float(chance)


@kernel
def draw_list(
    params: Any, arranged: Any, lane: int, impression: Impression, rng: Generator, action: Ints
) -> None:
    """Draw a list of arms and fill ``action`` with it, with −1 at positions for which no arm is left.

    One draw z orders the arms by the scores in ``arranged``, which ``arrange`` returned. With its minimum
    share (a promise) an arm, or in a share ``epsilon`` of the remaining lists a uniformly drawn arm, is put
    at a uniformly drawn position of this order.
    """
    arms = impression.arms
    length = min(len(action), len(arms))
    for k in range(len(action)):
        action[k] = -1
    z, arm, place = abs(rng.standard_normal()), -1, -1
    # One uniform number decides on both: below ``promise_share`` it keeps a promise, from there to
    # ``forced_share`` it explores. Either way one arm is put at one place of the order that z gives, so a
    # list's probability stays a sum over intervals of z.
    promise_share = sum_promises(params, arms)
    forced_share = promise_share + (1.0 - promise_share) * params.epsilon
    uniform = rng.random() if forced_share > 0.0 else 1.0
    if uniform < forced_share:
        arm = (
            pick_promised_arm(params, arms, uniform)
            if uniform < promise_share
            else arms[int(rng.random() * len(arms))]
        )
        place = int(rng.random() * length)
    line_up(params, arranged, lane, impression, Draw(z, arm, place), action)


@kernel
def sum_promises(params: Any, arms: Ints) -> float:
    """Return the sum of the minimum shares of ``arms``; 0 if no arm has one."""
    total = 0.0
    if len(params.promises) > 0:
        for arm in arms:
            total += params.promises[arm]
    return total


@kernel
def pick_promised_arm(params: Any, arms: Ints, uniform: float) -> int:
    """Return the arm that ``uniform``, a draw in [0, 1), selects by the arms' minimum shares; −1 if it
    exceeds their sum.
    """
    promised_arm, reached = -1, 0.0
    for arm in arms:
        reached += params.promises[arm]
        if promised_arm < 0 and uniform < reached:
            promised_arm = arm
    return promised_arm


@kernel
def find_place(begin: Ints, count: int, arm: int) -> int:
    """Return the index of an arm among the first ``count`` entries of ``begin``; ``count`` if it is not
    there.
    """
    for k in range(count):
        if begin[k] == arm:
            return k
    return count


@kernel
def prefix_propensity(
    params: Any, arranged: Any, lane: int, impression: Impression, begin: Ints, count: int
) -> float:
    """Return the exact probability that a drawn list begins with the first ``count`` arms of ``begin``.

    It is a sum over the ways of :func:`draw_list`: by the order of scores alone, or with an arm that a
    minimum share or exploration puts at a position.
    """
    # A forced arm that is not in the prefix leaves the prefix as it is if it is put below it; an arm of the
    # prefix does only at the place that it has in it.
    arms = len(impression.arms)
    positions = min(params.positions, arms)
    promise_share = sum_promises(params, impression.arms)
    explore_weight = (1.0 - promise_share) * params.epsilon / (arms * positions)
    total = 0.0
    for k in range(-1, count if explore_weight + promise_share > 0.0 else 0):
        # −1: by scores alone. Else the arm at place k was forced to it, and the others follow by score.
        without = begin[k] if k >= 0 else -1
        weight = explore_weight if k >= 0 else (1.0 - promise_share) * (1.0 - params.epsilon)
        if k >= 0 and promise_share > 0.0:
            weight += params.promises[without] / positions
        total += weight * share(params, arranged, lane, impression, begin, count, without)
    # An arm that is not in the prefix was forced to a place below it.
    if explore_weight > 0.0 and count < positions:
        other_shares = shares(params, arranged, lane, impression, begin, count)
        total += explore_weight * (positions - count) * other_shares
    if promise_share > 0.0 and count < positions:
        for arm in impression.arms:
            weight = params.promises[arm] * (positions - count) / positions
            if weight > 0.0 and find_place(begin, count, arm) == count:
                total += weight * share(params, arranged, lane, impression, begin, count, arm)
    return float(total)


@kernel
def fill_position_chances(
    params: Any, arranged: Any, lane: int, impression: Impression, arm: int, chances: Floats, places: Floats
) -> None:
    """Fill ``places`` with the probability that an arm is shown at each position, minimum shares included.

    ``chances`` is a workspace for the probabilities of the arm's ranks by score, one longer than ``places``.
    """
    arms, positions = impression.arms, len(places)
    promise_share = sum_promises(params, arms)
    ranks(params, arranged, lane, impression, arm, -1, chances)
    for k in range(positions):
        places[k] = (1.0 - promise_share) * position_chance(chances, k, len(arms), positions, params.epsilon)
    if promise_share > 0.0:
        for promised_arm in arms:
            weight = params.promises[promised_arm] / positions
            if promised_arm == arm:
                places += weight
            elif weight > 0.0:
                # A promised arm that is put above this arm moves it down; put below it, it does not.
                ranks(params, arranged, lane, impression, arm, promised_arm, chances)
                for k in range(positions):
                    above = chances[k - 1] if k > 0 else 0.0
                    places[k] += weight * ((positions - 1 - k) * chances[k] + k * above)


@kernel
def position_chance(chances: Floats, k: int, arms: int, positions: int, epsilon: float) -> float:
    """Return the probability that an arm is shown at position ``k``, from the probabilities ``chances`` of
    its ranks.

    It covers exploration, which puts one of ``arms`` arms at one of ``positions`` positions, but no minimum
    shares. The arm reaches position k if it is drawn for k itself; or if another arm is drawn and taken from
    above the arm (rank k + 1 becomes k), put above it (rank k − 1 becomes k), or leaves its rank k as it is.
    """
    above = chances[k - 1] if k > 0 else 0.0
    current, below = chances[k], chances[k + 1]
    moved = (
        1.0
        + (k + 1.0) * (positions - 1.0 - k) * below
        + ((arms - 1.0 - k) * (positions - 1.0 - k) + k * k) * current
        + (arms - k) * k * above
    )
    return float((1.0 - epsilon) * current + epsilon / (arms * positions) * moved)


# ---- Each arm's score is a line in z: an order of arms belongs to an interval


class Lines(NamedTuple):
    """The scores mean + z·deviation of arms, by arm index.

    Attributes
    ----------
    mean, spread : array of float64, shape (arms,)
    rank : array of int64, shape (arms,)
        Place of an arm in the caller's list, from 0, for arms that are on offer. While a kernel runs, an arm
        that it has placed has −2 − rank.
    """

    mean: Floats
    spread: Floats
    rank: Ints


@dataclass(frozen=True)
class LinePolicy(MixPolicy, abstract=True):
    """Base of the policies that list the arms of the largest mean + z·deviation.

    A subclass gives the kernel ``arrange``, which returns :class:`Lines`. Arms of equal
    score keep the caller's order.
    """

    @staticmethod
    def decide_and_weigh(
        params: Any, state: Any, lane: int, impression: Impression, rng: Generator, action: Ints
    ) -> float:
        """Draw a list, fill ``action`` with it, and return its propensity. Resets the workspace of the
        state.
        """
        arranged = arrange(params, state, lane, impression)
        draw_list(params, arranged, lane, impression, rng, action)
        chance = prefix_propensity(
            params, arranged, lane, impression, action, find_place(action, len(action), -1)
        )
        clear(params, state, lane)
        return float(chance)

    @staticmethod
    def line_up(
        params: Any, arranged: Lines, lane: int, impression: Impression, draw: Draw, action: Ints
    ) -> None:
        """Fill ``action`` with the arms in descending order of mean + z·deviation; ties keep the order on
        offer.

        A forced arm of the draw is put at its place.
        """
        arms, (mean, spread, rank), (z, arm, place) = impression.arms, arranged, draw
        # An arm that is placed, or forced, has the rank −2 − rank until the list is complete.
        if arm >= 0:
            rank[arm] = -2 - rank[arm]
        for k in range(min(len(action), len(arms))):
            leader, best = arm, -np.inf
            if k != place:
                for i in range(len(arms)):
                    score = mean[arms[i]] + z * spread[arms[i]]
                    if rank[arms[i]] >= 0 and score > best:
                        leader, best = arms[i], score
                rank[leader] = -2 - rank[leader]
            action[k] = leader
        for k in range(min(len(action), len(arms))):
            rank[action[k]] = -2 - rank[action[k]]

    @staticmethod
    def share(
        params: Any, arranged: Lines, lane: int, impression: Impression, begin: Ints, count: int, without: int
    ) -> float:
        """Return the probability that the order by scores begins with the first ``count`` arms of ``begin``.

        It is the probability of an interval of z. The arm ``without``, unless −1, is removed from the order
        and from ``begin``.
        """
        mean, spread, rank = arranged
        low, high = FULL_INTERVAL
        # Each arm of ``begin`` scores above the next. Arms of ``begin`` have the rank −2 − rank until the
        # end.
        last = -1
        for k in range(count):
            arm = begin[k]
            rank[arm] = -2 - rank[arm]
            if arm != without:
                if last >= 0:
                    gap, slope = mean[last] - mean[arm], spread[last] - spread[arm]
                    low, high = narrow_interval(low, high, gap, slope, rank[last] > rank[arm])
                last = arm
        # The last one scores above all arms that are not in ``begin``.
        if last >= 0:
            first = -2 - rank[last]
            for arm in impression.arms:
                if rank[arm] >= 0 and arm != without:
                    gap, slope = mean[last] - mean[arm], spread[last] - spread[arm]
                    low, high = narrow_interval(low, high, gap, slope, first < rank[arm])
        for k in range(count):
            rank[begin[k]] = -2 - rank[begin[k]]
        return interval_probability(low, high)

    @staticmethod
    def shares(
        params: Any, arranged: Lines, lane: int, impression: Impression, begin: Ints, count: int
    ) -> float:
        """Return the sum of ``share`` over the arms on offer that are not in ``begin``, each left out in
        turn.

        It takes one pass over the arms.
        """
        # Leaving out an arm changes the interval of z only if that arm sets its lower or upper end; then the
        # next arm does.
        if count == 0:
            return float(len(impression.arms))
        mean, spread, rank = arranged
        low, high = FULL_INTERVAL
        # The interval of z in which the arms of ``begin`` are in their order.
        for k in range(1, count):
            upper, lower = begin[k - 1], begin[k]
            gap, slope = mean[upper] - mean[lower], spread[upper] - spread[lower]
            low, high = narrow_interval(low, high, gap, slope, rank[upper] < rank[lower])
        last, candidate_count = begin[count - 1], 0
        lowest, low_arm, highest, high_arm = low, -1, high, -1
        for arm in impression.arms:
            if find_place(begin, count, arm) == count:
                candidate_count += 1
                gap, slope = mean[last] - mean[arm], spread[last] - spread[arm]
                least, most = narrow_interval(0.0, np.inf, gap, slope, rank[last] < rank[arm])
                # The two highest lower ends and the two lowest upper ends that other arms set, with the arms.
                if least > lowest:
                    low, lowest, low_arm = lowest, least, arm
                elif least > low:
                    low = least
                if most < highest:
                    high, highest, high_arm = highest, most, arm
                elif most < high:
                    high = most
        # Left out, the limiting arms widen the interval to the next end; any other arm leaves it as it is.
        if low_arm == high_arm:
            limiting = 1.0 if low_arm >= 0 else 0.0
            total = limiting * interval_probability(low, high)
        else:
            limiting = (1.0 if low_arm >= 0 else 0.0) + (1.0 if high_arm >= 0 else 0.0)
            total = interval_probability(low, highest) if low_arm >= 0 else 0.0
            total += interval_probability(lowest, high) if high_arm >= 0 else 0.0
        return total + (candidate_count - limiting) * interval_probability(lowest, highest)

    @staticmethod
    def ranks(
        params: Any,
        arranged: Lines,
        lane: int,
        impression: Impression,
        arm: int,
        without: int,
        chances: Floats,
    ) -> None:
        """Fill ``chances`` with the probability that an arm has rank 0, 1, … by score.

        The arm ``without``, unless −1, is removed from the order.
        """
        # With growing z, the arm falls by a rank where another line crosses its own line upwards, and rises
        # where one crosses it downwards; ``crossings`` has the former in front, the latter at the end.
        mean, spread, order = arranged
        arms = impression.arms
        crossings = np.empty(len(arms))
        rank, falls, rises = 0, 0, len(arms)
        for i in range(len(arms)):
            if arms[i] == without:
                continue
            # The other arm's line minus this arm's, at z = 0 and per unit of z.
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
        # Go through the crossings from z = 0 on; between two of them the rank is constant.
        low, fall, rise = 0.0, 0, rises
        while fall < falls or rise < len(arms):
            falling = rise == len(arms) or (fall < falls and crossings[fall] <= crossings[rise])
            high = crossings[fall] if falling else crossings[rise]
            if rank < len(chances):
                chances[rank] += interval_probability(low, high)
            low = high
            if falling:
                rank += 1
                fall += 1
            else:
                rank -= 1
                rise += 1
        if rank < len(chances):
            chances[rank] += interval_probability(low, np.inf)
