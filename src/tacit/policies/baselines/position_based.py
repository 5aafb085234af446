"""The position-based model: a click needs a position that is seen and an arm that is attractive."""

# 1. Counts by arm and position; ``estimate_effects``: the positions' effects by alternating maximisation.
# 2. ``PlacedPBMUCB``: each arm is an item at a position.
# 3. ``PBMUCB``: a list by upper bounds; ``PBMThompson``: by draws from a posterior on a grid.

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import kernel
from tacit.core.part import Positive, int_range, param, set_field
from tacit.errors import InvalidValue
from tacit.policies.actions import SlatePolicy
from tacit.policies.base import About, Impression, Outcome, Policy
from tacit.policies.index import IndexPolicy

MAX_POSITIONS = 1000


class PositionCounts(NamedTuple):
    """Counts of impressions and clicks of arms at positions.

    Attributes
    ----------
    clicks, shows : array of float64, shape (lanes, arms, positions)
    effects : array of float64, shape (lanes, positions)
        Probability that a position is seen; if estimated, the largest is 1.
    rounds : array of float64, shape (lanes,)
    """

    clicks: Floats
    shows: Floats
    effects: Floats
    rounds: Floats

    @classmethod
    def zeros(cls, lanes: int, arms: int, positions: int, effects: Any) -> PositionCounts:
        """Return zero counts, with the given position effects or, if None, effects of 1."""
        shape = lanes, arms, positions
        values = np.ones(positions) if effects is None else np.array(effects)
        table = np.broadcast_to(values, (lanes, positions)).copy()
        return cls(np.zeros(shape), np.zeros(shape), table, np.zeros(lanes))


class PositionTotals(NamedTuple):
    """An arm's counts: clicks S, shows N, and shows weighted by the positions' effects Ñ."""

    clicks: float
    shows: float
    weighted_shows: float


@kernel
def sum_counts(counts: PositionCounts, lane: int, arm: int) -> PositionTotals:
    """Return an arm's clicks, its shows, and its shows times the position's effect, each summed over
    positions.
    """
    clicks, shows, weighted_shows = 0.0, 0.0, 0.0
    for j in range(counts.shows.shape[2]):
        clicks += counts.clicks[lane, arm, j]
        shows += counts.shows[lane, arm, j]
        weighted_shows += counts.effects[lane, j] * counts.shows[lane, arm, j]
    return PositionTotals(clicks, shows, weighted_shows)


@kernel
def upper_bound(counts: PositionCounts, lane: int, arm: int, scale: float) -> float:
    """Return an upper confidence bound S/Ñ + sqrt(N/Ñ)·sqrt(δ/(2Ñ)), δ = scale·ln t, on an arm's attraction.

    S, N and Ñ are those of :class:`PositionTotals`, t the lane's rounds; infinite for an arm never shown.
    """
    totals = sum_counts(counts, lane, arm)
    if totals.weighted_shows <= 0.0:
        return np.inf
    budget = scale * np.log(max(counts.rounds[lane], 1.0))
    radius = np.sqrt(totals.shows / totals.weighted_shows * budget / (2.0 * totals.weighted_shows))
    return float(totals.clicks / totals.weighted_shows + radius)


@kernel
def count_show(counts: PositionCounts, lane: int, arm: int, position: int, reward: float) -> None:
    """Count an impression of an arm at a position, and add its reward to the clicks there."""
    counts.shows[lane, arm, position] += 1.0
    counts.clicks[lane, arm, position] += reward


@kernel
def estimate_effects(counts: PositionCounts, lane: int) -> None:
    """Replace the position effects by one step of alternating maximum likelihood from the counts.

    It assumes rare clicks, whose counts are Poisson: the effect of a position is its clicks over the clicks
    expected by the attraction of its arms; an arm's attraction follows from the effects likewise. The largest
    effect is scaled to 1; none is below 0.001.
    """
    largest = 0.0
    for j in range(counts.effects.shape[1]):
        clicks, expected = 1.0, 1.0
        for arm in range(counts.shows.shape[1]):
            if counts.shows[lane, arm, j] > 0.0:
                totals = sum_counts(counts, lane, arm)
                attraction = (totals.clicks + 0.5) / (totals.weighted_shows + 1.0)
                clicks += counts.clicks[lane, arm, j]
                expected += counts.shows[lane, arm, j] * attraction
        counts.effects[lane, j] = clicks / expected
        largest = max(largest, counts.effects[lane, j])
    for j in range(counts.effects.shape[1]):
        counts.effects[lane, j] = max(counts.effects[lane, j] / largest, 1e-3)


def check_effects(positions: int, effects: Any) -> tuple[float, ...] | None:
    """Return position effects as a tuple; None means that they are to be estimated.

    Raises InvalidValue unless there are ``positions`` numbers in (0, 1].
    """
    if effects is None:
        return None
    try:
        values = np.asarray(effects, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.shape != (positions,) or not ((values > 0.0) & (values <= 1.0)).all():
        remedy = f"give {positions} numbers in (0, 1], or none to have them estimated"
        raise InvalidValue("position_effects", effects, remedy)
    return tuple(values.tolist())


# One arm, placed -----------------------------------------------------------------------------


class PositionPolicy(Policy, abstract=True):
    """Base of the policies with the fields ``positions`` and ``position_effects``."""

    positions: Annotated[int, int_range(1, MAX_POSITIONS)]
    position_effects: Any

    def __post_init__(self) -> None:
        """Validate ``position_effects`` and store them as a tuple."""
        super().__post_init__()
        set_field(self, "position_effects", check_effects(self.positions, self.position_effects))

    @param
    def has_effects(self) -> bool:
        """True if the position effects are configured, not estimated."""
        return self.position_effects is not None


@dataclass(frozen=True)
class PlacedPBMUCB(PositionPolicy, IndexPolicy):
    """Choose an item and its position by the position-based model's upper confidence bounds.

    An arm is an item at a position: arm index = item·positions + position. A click has probability
    κ_position·θ_item; the arm with the largest product of κ and the item's bound is played. This
    adaptation of PBM-UCB was used in the comparison with E-C Bandit.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, items times positions, or their names.
    positions : int
        Number of positions; the number of arms must be a multiple of it.
    position_effects : sequence of float, optional
        Probability κ that each position is seen, in (0, 1]. By default estimated from the clicks, up to a
        common factor.
    scale : float, default 1
        Factor on ln t in the bound; above 0.

    Raises
    ------
    InvalidValue
        If a hyperparameter is out of its range.

    References
    ----------
    Lagrée, Vernade, Cappé (2016), "Multiple-play bandits in the position-based model", PBM-UCB;
    Qi, Wu, Wang, Tang, Sun (2018), section 6.3.

    Examples
    --------
    >>> import tacit
    >>> policy = tacit.policies.baselines.PlacedPBMUCB(arms=6, positions=3, position_effects=(1.0, 0.5, 0.25))
    >>> policy.label
    'PlacedPBMUCB(positions=3, position_effects=(1.0, 0.5, 0.25))'
    """

    about: ClassVar[About] = About(
        source="Lagrée, Vernade, Cappé (2016), PBM-UCB, as Qi et al. (2018) adapt it",
        regret="O(ln T) with known position effects",
        assumes="that examination depends on the position only",
        fails="takes for unwanted what was hidden by something else than its position",
        otherwise="LaplaceEC where it depends on more",
    )

    positions: int
    position_effects: Any = None
    scale: Positive = 1.0

    def __post_init__(self) -> None:
        """Validate the hyperparameters; raise InvalidValue unless the number of arms is a multiple of
        ``positions``.
        """
        super().__post_init__()
        if self.arm_count % self.positions:
            raise InvalidValue("arms", self.arms, f"give a multiple of {self.positions} positions")

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance with one item at ``arms`` positions; ``dim`` is ignored."""
        return cls(arms, positions=arms)

    def init(self, lanes: int) -> PositionCounts:
        """Return zero counts of each item at each position, with the configured position effects or 1."""
        items = self.arm_count // self.positions
        return PositionCounts.zeros(lanes, items, self.positions, self.position_effects)

    @staticmethod
    def index(params: PlacedPBMUCB, state: PositionCounts, lane: int, arm: int, confidence: float) -> float:
        """Return the upper confidence bound on the item's attraction, times the effect of the position."""
        item, position = arm // params.positions, arm % params.positions
        bound = min(upper_bound(state, lane, item, params.scale), 1e9)
        return float(bound * state.effects[lane, position])

    @staticmethod
    def learn(params: PlacedPBMUCB, state: PositionCounts, lane: int, outcome: Outcome) -> None:
        """Count a show and its reward for the item at its position, and estimate position effects unless
        configured.
        """
        state.rounds[lane] += 1.0
        count_show(
            state, lane, outcome.shown // params.positions, outcome.shown % params.positions, outcome.reward
        )
        if not params.has_effects:
            estimate_effects(state, lane)


# A list --------------------------------------------------------------------------------------


@kernel
def fill_by_score(scores: Floats, arms: Ints, order: Floats, action: Ints) -> None:
    """Fill ``action`` with the arms of the highest scores: the best arm at the position of the largest
    effect, and so on.

    ``order`` has the positions' effects. Positions without an arm get −1. The scores of the arms on offer are
    reset to 0. Arms and positions are marked once they are used, so that nothing has to be sorted or
    allocated.
    """
    for j in range(len(action)):
        action[j] = -1
    for _ in range(min(len(action), len(arms))):
        place, widest = 0, -1.0
        for j in range(len(action)):
            if action[j] < 0 and order[j] > widest:
                place, widest = j, order[j]
        leader, best = 0, -np.inf
        for i in range(len(arms)):
            if scores[arms[i]] > best:
                leader, best = arms[i], scores[arms[i]]
        action[place] = leader
        scores[leader] = -np.inf
    for i in range(len(arms)):
        scores[arms[i]] = 0.0


@dataclass(frozen=True)
class PBMUCB(PositionPolicy, SlatePolicy):
    """Fill a list by upper confidence bounds in the position-based model.

    A click on arm k at position l has probability κ_l·θ_k. The arms with the highest bounds on θ
    are shown, the highest at the position that is seen most.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    positions : int, default 3
        Length of the list; at least 1.
    position_effects : sequence of float, optional
        Probability κ that each position is seen, in (0, 1]. By default estimated from the clicks, up to a
        common factor.
    scale : float, default 1
        Factor on ln t in the bound; above 0.

    Raises
    ------
    InvalidValue
        If a hyperparameter is out of its range.

    References
    ----------
    Lagrée, Vernade, Cappé (2016), "Multiple-play bandits in the position-based model", PBM-UCB.

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.policies.baselines.PBMUCB(arms=5, positions=2), seed=1)
    >>> decision = learner.choose("query")
    >>> learner.learn(decision, [1.0, 0.0])
    True
    """

    class State(NamedTuple):
        counts: PositionCounts
        scores: Floats  # (lanes, arms), zeros between calls

    about: ClassVar[About] = About(
        source="Lagrée, Vernade, Cappé (2016), PBM-UCB",
        regret="O(ln T) with known position effects (theorem 6)",
        assumes="that a position is seen with a probability of its own, whatever stands there",
        fails="what hides an arm in some places only is held against the arm",
        otherwise="a cascade policy where users read from the top and stop",
    )
    randomized: ClassVar[bool] = False

    positions: int = 3
    position_effects: Any = None
    scale: Positive = 1.0

    def init(self, lanes: int) -> State:
        """Return zero counts of each arm at each position, with the configured position effects or 1."""
        counts = PositionCounts.zeros(lanes, self.arm_count, self.positions, self.position_effects)
        return self.State(counts, np.zeros((lanes, self.arm_count)))

    @staticmethod
    def decide(
        params: PBMUCB, state: State, lane: int, impression: Impression, rng: Generator, action: Ints
    ) -> None:
        """Fill ``action`` with the arms of the highest upper bounds, the best one at the position that is
        seen most.

        A tiny random factor breaks ties.
        """
        scores = state.scores[lane]
        for arm in impression.arms:
            # A small random factor breaks ties, above all between arms that were never shown.
            bound = upper_bound(state.counts, lane, arm, params.scale)
            scores[arm] = min(bound, 1e9) * (1.0 + 1e-9 * rng.random())
        fill_by_score(scores, impression.arms, state.counts.effects[lane], action)

    @staticmethod
    def learn(params: PBMUCB, state: State, lane: int, outcome: Outcome) -> None:
        """Count the shows and rewards of a list, and estimate position effects unless they are configured."""
        action = outcome.shown
        state.counts.rounds[lane] += 1.0
        for j in range(len(action)):
            if action[j] >= 0:
                count_show(state.counts, lane, action[j], j, outcome.reward[j])
        if not params.has_effects:
            estimate_effects(state.counts, lane)


GRID = 256
"""Number of points at which PBMThompson stores the posterior of an arm's attraction."""


@kernel
def draw_from_grid(cumulative: Floats, rng: Generator) -> float:
    """Return a number in [0, 1] drawn by the cumulative weights of a grid's cells, uniformly within a
    cell.
    """
    u = rng.random() * cumulative[-1]
    low, high = 0, len(cumulative) - 1
    while low < high:
        middle = (low + high) // 2
        if cumulative[middle] > u:
            high = middle
        else:
            low = middle + 1
    below = cumulative[low - 1] if low > 0 else 0.0
    share = (u - below) / max(cumulative[low] - below, 1e-300)
    return float((low + share) / len(cumulative))


@kernel
def weigh_grid(logs: Floats, cumulative: Floats, effect: float, reward: float) -> None:
    """Multiply the posterior weights of a grid of attractions by the likelihood of a reward, in place.

    ``logs`` has the log weights, rescaled to a maximum of 0; ``cumulative`` gets the cumulative weights.
    ``effect`` is the probability that the position is seen.
    """
    largest = -np.inf
    for g in range(len(logs)):
        attraction = (g + 0.5) / len(logs)
        none = max(1.0 - effect * attraction, 1e-12)
        logs[g] += reward * np.log(attraction) + (1.0 - reward) * np.log(none)
        largest = max(largest, logs[g])
    total = 0.0
    for g in range(len(logs)):
        logs[g] -= largest
        total += np.exp(logs[g])
        cumulative[g] = total


@dataclass(frozen=True)
class PBMThompson(PositionPolicy, SlatePolicy):
    """Fill a list by draws from the posterior in the position-based model.

    A click on arm k at position l has probability κ_l·θ_k. The posterior of each θ_k, from a
    uniform prior, is stored at 256 points; the arms with the highest draws are shown, the highest
    at the position that is seen most.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    positions : int, default 3
        Length of the list; at least 1.
    position_effects : sequence of float, optional
        Probability κ that each position is seen, in (0, 1]. By default estimated from the clicks, up to a
        common factor; then each reward is learned with the estimate at that time.

    Raises
    ------
    InvalidValue
        If a hyperparameter is out of its range.

    References
    ----------
    Lagrée, Vernade, Cappé (2016), "Multiple-play bandits in the position-based model", section 6,
    where draws are by rejection.

    Examples
    --------
    >>> import tacit
    >>> tacit.policies.baselines.PBMThompson(arms=5, positions=2, position_effects=(1.0, 0.5)).action_width
    2
    """

    class State(NamedTuple):
        counts: PositionCounts
        logs: Floats  # (lanes, arms, GRID)
        cumulative: Floats  # (lanes, arms, GRID)
        scores: Floats  # (lanes, arms), zeros between calls

    about: ClassVar[About] = PBMUCB.about._replace(
        source="Lagrée, Vernade, Cappé (2016), section 6", regret="no bound is known"
    )
    randomized: ClassVar[bool] = False

    positions: int = 3
    position_effects: Any = None

    def init(self, lanes: int) -> State:
        """Return zero counts, and a uniform posterior of each arm's attraction on the grid."""
        shape = lanes, self.arm_count, GRID
        counts = PositionCounts.zeros(lanes, self.arm_count, self.positions, self.position_effects)
        cumulative = np.broadcast_to(np.arange(1.0, GRID + 1), shape).copy()
        return self.State(counts, np.zeros(shape), cumulative, np.zeros(shape[:2]))

    @staticmethod
    def decide(
        params: PBMThompson, state: State, lane: int, impression: Impression, rng: Generator, action: Ints
    ) -> None:
        """Fill ``action`` with the arms of the highest posterior draws, the best one at the position that is
        seen most.
        """
        scores = state.scores[lane]
        for arm in impression.arms:
            scores[arm] = draw_from_grid(state.cumulative[lane, arm], rng)
        fill_by_score(scores, impression.arms, state.counts.effects[lane], action)

    @staticmethod
    def learn(params: PBMThompson, state: State, lane: int, outcome: Outcome) -> None:
        """Count the shows and rewards of a list, and update the arms' posteriors on the grid.

        Position effects are estimated anew unless they are configured.
        """
        for j in range(len(outcome.shown)):
            arm = outcome.shown[j]
            if arm >= 0:
                count_show(state.counts, lane, arm, j, outcome.reward[j])
                effect = state.counts.effects[lane, j]
                logs, cumulative = state.logs[lane, arm], state.cumulative[lane, arm]
                weigh_grid(logs, cumulative, effect, outcome.reward[j])
        if not params.has_effects:
            estimate_effects(state.counts, lane)
