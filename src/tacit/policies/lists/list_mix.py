"""Lists by one draw over a mixture of what readers may be like, with exact propensities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core import checks, dispatch
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import arrange, clear, kernel, line_up, share
from tacit.policies.actions import SlatePolicy
from tacit.policies.base import About, Impression
from tacit.policies.lists.readers import Readers, believe, forget_beliefs, read_list

EVERYTHING = 0.0, np.inf


@kernel
def narrowed(low: float, high: float, gap: float, slope: float, level: bool) -> tuple[float, float]:
    """Return the part of an interval of z ≥ 0 in which gap + z·slope is above 0.

    Where both are 0, that is all of it if ``level``, else nothing.
    """
    if slope > 0.0:
        return max(low, -gap / slope), high
    if slope < 0.0:
        return low, min(high, -gap / slope)
    if gap > 0.0 or (gap == 0.0 and level):
        return low, high
    return np.inf, 0.0


@kernel
def mass(low: float, high: float) -> float:
    """Return the probability that |z|, z being standard normal, is in an interval."""
    if high <= low:
        return 0.0
    return math.erfc(low * math.sqrt(0.5)) - math.erfc(high * math.sqrt(0.5))


@dataclass(frozen=True)
class MixPolicy(SlatePolicy):
    """Base of the policies that line up the arms on offer by one draw z = \\|N(0, 1)\\|.

    With probability ``epsilon``, an arm drawn uniformly is put at a position drawn uniformly, and
    the others are lined up around it. So every arm is at every position with a probability of at
    least ε/(arms on offer · positions), and the probability of a list, of its beginning and of an
    arm at a position are known exactly.

    A subclass gives the kernels ``arrange``, ``line_up``, ``share`` and ``clear``, and the method
    :meth:`rank_chances`.
    """

    kernels: ClassVar[tuple[Any, ...]] = dispatch.POLICY_KERNELS + dispatch.LIST_KERNELS

    positions: int = 3
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("positions", checks.integer("positions", self.positions, 1, 10_000))
        self._set("epsilon", checks.number("epsilon", self.epsilon, 0.0, 1.0))

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        return cls(arms, positions=min(arms, 3), epsilon=0.1)

    @property
    def knows_propensity(self) -> bool:
        return True

    @staticmethod
    def arrange(params: Any, state: Any, lane: int, impression: Impression) -> None:
        """Put into the scratch of the state what lining up the arms on offer takes."""
        raise NotImplementedError

    @staticmethod
    def line_up(
        params: Any,
        state: Any,
        lane: int,
        impression: Impression,
        z: float,
        arm: int,
        place: int,
        action: Ints,
    ) -> None:
        """Fill a list in the order of z; ``arm``, if not −1, is put at ``place``."""
        raise NotImplementedError

    @staticmethod
    def share(
        params: Any,
        state: Any,
        lane: int,
        impression: Impression,
        begin: Ints,
        count: int,
        without: int,
    ) -> float:
        """Give the probability that the order, one arm taken out, begins with the first arms of
        ``begin``, that arm left out there, too."""
        raise NotImplementedError

    @staticmethod
    def clear(params: Any, state: Any, lane: int) -> None:
        """Put the scratch back as it was."""
        raise NotImplementedError

    def rank_chances(self, state: Any, lane: int, impression: Impression) -> Floats:
        """Return the probability of each rank that z gives to each arm on offer.

        Returns
        -------
        array of float64, shape (arms on offer, min(positions, arms on offer) + 1)
        """
        raise NotImplementedError

    def position_chances(self, state: Any, lane: int, impression: Impression) -> Floats:
        """Return the probability with which each arm on offer is shown at each position.

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
        ranks = self.rank_chances(state, lane, impression)
        arms, k = len(ranks), np.arange(ranks.shape[1] - 1.0)
        positions = len(k)
        above = np.pad(ranks, ((0, 0), (1, 0)))[:, :positions]
        here, below = ranks[:, :positions], ranks[:, 1:]
        # Of the arms × positions that may be drawn, so many bring an arm to a position by putting
        # it there, by moving one from below it to above it, by leaving it where it was, or by
        # moving one from above it to below it.
        moved = (
            1.0
            + (k + 1.0) * (positions - 1.0 - k) * below
            + ((arms - 1.0 - k) * (positions - 1.0 - k) + k * k) * here
            + (arms - k) * k * above
        )
        mixed = (1.0 - self.epsilon) * here + self.epsilon / (arms * positions) * moved
        return np.asarray(mixed)

    @staticmethod
    def decide(
        params: Any, state: Any, lane: int, impression: Impression, rng: Generator, action: Ints
    ) -> None:
        arms = impression.arms
        length = min(len(action), len(arms))
        for k in range(len(action)):
            action[k] = -1
        z, arm, place = abs(rng.standard_normal()), -1, -1
        if params.epsilon > 0.0 and rng.random() < params.epsilon:
            arm = arms[int(rng.random() * len(arms))]
            place = int(rng.random() * length)
        arrange(params, state, lane, impression)
        line_up(params, state, lane, impression, z, arm, place, action)
        clear(params, state, lane)

    @staticmethod
    def chance(params: Any, state: Any, lane: int, impression: Impression, action: Ints) -> float:
        """Give the probability of showing a list; of beginning with it, if it is a shorter one."""
        arms, count = impression.arms, 0
        while count < len(action) and action[count] >= 0:
            count += 1
        positions = min(params.positions, len(arms))
        arrange(params, state, lane, impression)
        found = share(params, state, lane, impression, action, count, -1)
        if params.epsilon > 0.0:
            moved = 0.0
            for j in range(len(arms)):
                # How many of the positions leave such a list when this arm is put there.
                ways = positions - count
                for k in range(count):
                    if action[k] == arms[j]:
                        ways = 1
                if ways > 0:
                    others = share(params, state, lane, impression, action, count, arms[j])
                    moved += ways * others
            drawn = params.epsilon / (len(arms) * positions)
            found = (1.0 - params.epsilon) * found + drawn * moved
        clear(params, state, lane)
        return float(found)


@dataclass(frozen=True)
class ListMix(MixPolicy):
    """List the arms of the largest mean + z·deviation of their attraction, z drawn once a list.

    Attraction is believed under twelve hypotheses about reading: positions are seen with
    probability k^−a (a of 0, ½, 1, 1½); or readers go from the top, on with probability 1 or 0.85
    after a skip and with 0, 0.3, 0.6 or 0.9 after a click. Each key weighs the hypotheses by how
    well they told its clicks. The order in which arms are offered counts as a first guess: offer
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
    propensities are exact. :meth:`position_chances` gives those of an arm at a position; ``chance``
    of a shorter list that of a beginning.

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

    class Params(NamedTuple):
        positions: int
        epsilon: float

    about: ClassVar[About] = About(
        source="tacit's own: Bayesian averaging over position-based and chain models of clicks "
        "(Chuklin, Markov, de Rijke 2015), one draw for all arms",
        regret="no bound is known",
        assumes="readers near one of twelve hypotheses; attractions never change and do not "
        "depend on the arms beside",
        fails="arms are ranked by clicks that their places won or lost them",
        otherwise="SafeListMix where the order on offer is good already; RankedBandit where "
        "attractions depend on the arms above, or change",
    )

    def init(self, lanes: int) -> Readers:
        return Readers.blank(lanes, self.arm_count)

    @staticmethod
    def arrange(params: Params, state: Readers, lane: int, impression: Impression) -> None:
        believe(state, lane, impression.arms)

    @staticmethod
    def clear(params: Params, state: Readers, lane: int) -> None:
        forget_beliefs(state, lane)

    @staticmethod
    def line_up(
        params: Params,
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
        params: Params,
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
    def update(
        params: Params,
        state: Readers,
        lane: int,
        impression: Impression,
        action: Ints,
        feedback: Floats,
        propensity: float,
    ) -> None:
        read_list(state, lane, impression.arms, action, feedback)

    def rank_chances(self, state: Readers, lane: int, impression: Impression) -> Floats:
        arms = impression.arms
        self.arrange(self.params, state, lane, impression)
        mean, spread = state.mean[lane, arms].copy(), state.spread[lane, arms].copy()
        self.clear(self.params, state, lane)
        found = np.zeros((len(arms), len(arms)))
        for i in range(len(arms)):
            gap, slope = mean - mean[i], spread - spread[i]
            level = (slope > 0.0) | ((slope == 0.0) & (np.arange(len(arms)) < i))
            rank = int(np.count_nonzero((gap > 0.0) | ((gap == 0.0) & level)))
            crossing = np.flatnonzero(gap * slope < 0.0)
            crossing = crossing[np.argsort(-gap[crossing] / slope[crossing], kind="stable")]
            low = 0.0
            for j in crossing:
                high = -gap[j] / slope[j]
                found[i, rank] += mass(low, high)
                rank += 1 if slope[j] > 0.0 else -1
                low = high
            found[i, rank] += mass(low, np.inf)
        return np.pad(found, ((0, 0), (0, 1)))[:, : min(self.positions, len(arms)) + 1]
