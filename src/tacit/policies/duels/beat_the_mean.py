"""Beat-the-Mean: compare arms with the mean arm, and eliminate those that are surely worse than the best."""

# 1. ``State``; ``count_comparison`` and ``move_recent`` count a comparison.
# 2. ``update_bounds``, ``is_separated``, ``update_radius``: the confidence interval of each arm's share of
#    wins, by the fewest comparisons of any arm.
# 3. ``eliminate``: remove an arm and all comparisons with it, as the mean arm is the mean of those in play.
# 4. ``Elimination``: the policy; ``BeatTheMean`` and ``BeatTheMeanPAC`` set its radius.

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tacit.core import checks
from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import kernel
from tacit.core.part import float_range, int_range, optional, param, set_field
from tacit.core.state_ranges import ArmIndexOrNone, IntCount, ValueRange
from tacit.errors import InvalidValue
from tacit.policies.base import About, Impression, Outcome
from tacit.policies.duels import working_set

FULL = 127
"""Most comparisons of a pair whose half wins fit into 8 bits."""


class State(NamedTuple):
    """State of Beat-the-Mean.

    Attributes
    ----------
    working : WorkingSet
    wins, means : array of float64, shape (lanes, arms)
        Wins of an arm in its recorded comparisons, and their share.
    plays : array of int64, shape (lanes, arms)
        Recorded comparisons of an arm.
    recent : array of uint8, shape (lanes, arms, arms, 2)
        Half wins (a tie is one) and comparisons by opponent that are not yet in ``met``; so
        small that the counts of hundreds of arms fit into the processor's cache.
    met : array of int64, shape (lanes, arms, arms, 2)
        The same, for all earlier comparisons.
    low, high : array of float64, shape (lanes,)
        The least and the greatest share in the working set; between sweeps, bounds on them.
    radius : array of float64, shape (lanes,)
        The confidence radius.
    spent : array of int64, shape (lanes,)
        Number of comparisons learned from.
    winner : array of int64, shape (lanes,)
        The best arm; −1 while exploring.
    """

    working: working_set.WorkingSet
    wins: Floats
    means: Floats
    plays: IntCount
    recent: Annotated[npt.NDArray[np.uint8], ValueRange(0)]
    met: IntCount
    low: Floats
    high: Floats
    radius: Floats
    spent: IntCount
    winner: ArmIndexOrNone


@kernel
def count_comparison(state: State, lane: int, arm: int, rival: int, outcome: float) -> None:
    """Add an outcome (1 win, ½ tie, 0 loss) to an arm's recent counts against a rival.

    Counts that fill 8 bits are moved to the totals in ``met``.
    """
    comparisons = state.recent[lane, arm, rival, 1] + 1
    state.recent[lane, arm, rival, 0] += np.uint8(2.0 * outcome)
    state.recent[lane, arm, rival, 1] = comparisons
    if comparisons == FULL:
        move_recent(state, lane, arm, rival)


@kernel
def move_recent(state: State, lane: int, arm: int, rival: int) -> None:
    """Add an arm's recent comparisons with a rival to the totals in ``met``, and set them to 0."""
    for i in range(2):
        state.met[lane, arm, rival, i] += np.int64(state.recent[lane, arm, rival, i])
        state.recent[lane, arm, rival, i] = 0


@kernel
def update_bounds(state: State, lane: int) -> None:
    """Recompute ``low`` and ``high``: the least and the greatest share of wins in the working set."""
    low, high = math.inf, -math.inf
    for i in range(state.working.size[lane]):
        value = state.means[lane, state.working.members[lane, i]]
        low = value if value < low else low
        high = value if value > high else high
    state.low[lane], state.high[lane] = low, high


@kernel
def is_separated(state: State, lane: int) -> bool:
    """True if the greatest share of wins exceeds the least by at least two confidence radii: the worst arm is
    eliminated.
    """
    radius = state.radius[lane]
    return bool(state.low[lane] + radius <= state.high[lane] - radius)


@kernel
def update_radius(state: State, lane: int, kappa: float, enough: int) -> bool:
    """Set the confidence radius to kappa/√n, n being the fewest comparisons of any arm in the working set; 1
    if n = 0.

    Also regroups the working set. Returns True if n is at least ``enough``.
    """
    least = working_set.regroup(state.working, lane, state.plays)
    state.radius[lane] = kappa / np.sqrt(least) if least > 0 else 1.0
    return least >= enough


@kernel
def find_arm(state: State, lane: int, value: float) -> int:
    """Return the lowest index of an arm in the working set with a share of wins of ``value``; the number of
    arms if none.
    """
    lowest = state.means.shape[1]
    for i in range(state.working.size[lane]):
        arm = state.working.members[lane, i]
        if state.means[lane, arm] == value:
            lowest = min(lowest, arm)
    return int(lowest)


@kernel
def eliminate(state: State, lane: int, leaving: int) -> None:
    """Remove the arm ``leaving`` from the working set, and all comparisons with it from the other arms'
    counts.

    Their shares of wins and the bounds are recomputed; an arm without comparisons has a share of ½.
    """
    working_set.remove_arm(state.working, lane, leaving, state.spent[lane])
    for i in range(state.working.size[lane]):
        arm = state.working.members[lane, i]
        move_recent(state, lane, arm, leaving)
        state.wins[lane, arm] -= 0.5 * state.met[lane, arm, leaving, 0]
        state.plays[lane, arm] -= state.met[lane, arm, leaving, 1]
        n = state.plays[lane, arm]
        state.means[lane, arm] = state.wins[lane, arm] / n if n > 0 else 0.5
    update_bounds(state, lane)


class Elimination(working_set.EliminationPolicy, abstract=True):
    """Base of Beat-the-Mean in both settings; the concrete classes set radius and limits."""

    @param
    def kappa(self) -> float:
        """Factor of the confidence radius: after n comparisons it is kappa/√n."""
        raise NotImplementedError

    @param
    def budget(self) -> int:
        """Total number of comparisons after which exploration ends; 2⁶² for no limit."""
        return 2**62

    @param
    def enough(self) -> int:
        """Number of comparisons of each arm after which exploration ends; 2⁶² for no limit."""
        return 2**62

    def init(self, lanes: int) -> State:
        """Return the state of ``lanes`` keys before the first comparison: all arms in the working set."""
        arms = self.arm_count
        return State(
            working=working_set.WorkingSet.full(lanes, arms),
            wins=np.zeros((lanes, arms)),
            means=np.full((lanes, arms), 0.5),
            plays=np.zeros((lanes, arms), np.int64),
            recent=np.zeros((lanes, arms, arms, 2), np.uint8),
            met=np.zeros((lanes, arms, arms, 2), np.int64),
            low=np.full(lanes, 0.5),
            high=np.full(lanes, 0.5),
            radius=np.ones(lanes),
            spent=np.zeros(lanes, np.int64),
            winner=np.full(lanes, 0 if arms == 1 else -1),
        )

    @staticmethod
    def choose(params: Any, state: State, lane: int, impression: Impression, rng: Generator) -> Any:
        """Return a pair: an arm of the fewest comparisons and any arm of the working set; or the winner
        twice.

        If the needed arms are not on offer, two arms on offer are drawn at random.
        """
        winner = state.winner[lane]
        if winner < 0:
            left_arm, right_arm = working_set.draw_pair(state.working, lane, state.plays, impression, rng)
            if left_arm >= 0:
                return left_arm, right_arm
        elif working_set.is_on_offer(impression, winner):
            return winner, winner
        return working_set.draw_any_pair(impression, rng)

    @staticmethod
    def propensity(params: Any, state: State, lane: int, impression: Impression, pair: Any) -> float:
        """Return the probability that ``choose`` returns this ordered pair."""
        winner = state.winner[lane]
        if winner < 0:
            left_chance = working_set.draw_chance(state.working, lane, state.plays, impression, True, pair[0])
            none_chance = working_set.draw_chance(state.working, lane, state.plays, impression, True, -1)
            if none_chance < 1.0:
                return left_chance * working_set.draw_chance(
                    state.working, lane, state.plays, impression, False, pair[1]
                )
        elif working_set.is_on_offer(impression, winner):
            return 1.0 if pair[0] == winner and pair[1] == winner else 0.0
        return 1.0 / len(impression.arms) ** 2

    @staticmethod
    def learn(params: Any, state: State, lane: int, outcome: Outcome) -> None:
        """Count a comparison for the left arm, and eliminate the worst arm if it is separated from the best.

        Sets the winner once one arm is left or a limit is reached. Ignores comparisons with eliminated arms,
        and all comparisons after the winner is set.
        """
        arm, rival = outcome.shown
        # A late result about an eliminated arm is ignored.
        if (
            state.winner[lane] >= 0
            or not working_set.is_member(state.working, lane, arm)
            or not working_set.is_member(state.working, lane, rival)
        ):
            return
        count_comparison(state, lane, arm, rival, outcome.reward)
        state.wins[lane, arm] += outcome.reward
        state.plays[lane, arm] += 1
        state.spent[lane] += 1
        share = state.wins[lane, arm] / state.plays[lane, arm]
        state.means[lane, arm] = share
        if share < state.low[lane]:
            state.low[lane] = share
        elif share > state.high[lane]:
            state.high[lane] = share
        done = state.spent[lane] >= params.budget
        if working_set.mark_compared(state.working, lane, arm):
            done |= update_radius(state, lane, params.kappa, params.enough)
            update_bounds(state, lane)
        if is_separated(state, lane):
            # The bounds only widen between updates, so they may be too wide.
            update_bounds(state, lane)
            if is_separated(state, lane):
                eliminate(state, lane, find_arm(state, lane, state.low[lane]))
                done = update_radius(state, lane, params.kappa, params.enough)
                done |= state.spent[lane] >= params.budget or state.working.size[lane] == 1
        if done:
            update_bounds(state, lane)
            state.winner[lane] = find_arm(state, lane, state.high[lane])


@dataclass(frozen=True)
class BeatTheMean(Elimination):
    """Compare the arm with the fewest comparisons with a random one, until one arm is left.

    An arm's comparisons with random members of the working set estimate its share of wins against the mean
    arm. Whenever the worst share of wins is two confidence radii below the best, the worst arm
    is eliminated, and all comparisons with it are dropped. The last arm is then played against
    itself. The confidence radius after n comparisons is scale·sqrt(ln(1/δ)/n), δ = 1/(2TK).

    A comparison costs O(1), amortised, and an elimination O(arms); a lane takes 18·arms² bytes.
    A tie counts half a win. Arms that are added later are never compared.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    horizon : int
        Number of comparisons of a key, T; at least 1.
    gamma : float, default 1
        γ of relaxed stochastic transitivity, from 1 to 100; 1 is strong transitivity.
    scale : float, optional
        Scale of the radius, above 0; by default 3γ² (equation 4), but 1 (equation 9) for γ = 1,
        for which the guarantee holds too.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Yue, Joachims (2011), "Beat the mean bandit", algorithms 1 and 2.

    Examples
    --------
    >>> import tacit
    >>> policy = tacit.policies.BeatTheMean(arms=["old", "new"], horizon=10_000)
    >>> learner = tacit.Learner(policy, seed=1)
    >>> for _ in range(500):
    ...     decision = learner.choose("ranking")
    ...     left, right = decision.pair
    ...     _ = learner.learn(decision, 0.5 if left == right else float(left == "new"))
    >>> policy.result(learner.state, learner.lane("ranking")).winner
    1
    """

    about: ClassVar[About] = About(
        source="Yue, Joachims (2011), algorithms 1 and 2",
        regret="O(γ⁷·K/ε*·ln T) with high probability (theorem 1)",
        assumes="a Condorcet winner, γ-relaxed stochastic transitivity, the stochastic triangle "
        "inequality, and a known horizon",
        fails="a wrong γ or horizon can drop the best arm for good; even where all holds it explores long",
        otherwise="RMED1, which needs a Condorcet winner only and has far less regret",
    )

    horizon: Annotated[int, int_range(1, 2**53)]
    gamma: Annotated[float, float_range(1.0, 100.0)] = 1.0
    scale: Annotated[float | None, optional(checks.positive)] = None

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance with a horizon of 10,000 comparisons; ``dim`` is ignored."""
        return cls(arms, horizon=10_000)

    @param
    def kappa(self) -> float:
        """Factor of the confidence radius kappa/√n after n comparisons."""
        scale = self.scale or (1.0 if self.gamma == 1.0 else 3.0 * self.gamma**2)
        return scale * math.sqrt(math.log(2.0 * self.horizon * self.arm_count))

    @param
    def budget(self) -> int:
        """Total number of comparisons after which exploration ends: the horizon."""
        return self.horizon

    @property
    def guarantee(self) -> str:
        """The guarantee for the winner as text, with its probability and assumptions."""
        return (
            f"the best arm, with probability at least 1 − 1/{self.horizon:,}, under "
            f"{self.gamma:g}-relaxed stochastic transitivity and the triangle inequality, "
            "unless the horizon came first"
        )


def check_open_range(field: str, value: Any, high: float) -> float:
    """Return ``value`` as a float if it is in (0, high); raise InvalidValue otherwise. ``field`` names it in
    the error.
    """
    return checks.number(field, value, 0.0, math.nextafter(high, 0.0), open_low=True)


def sample_size(arms: int, epsilon: float, delta: float, gamma: float = 1.0) -> int:
    """Return the comparisons per arm that a PAC guarantee needs: the smallest N = ⌈36γ⁶/ε²·ln(K³N/δ)⌉.

    The equation is iterated from below, which cannot step over its smallest solution.

    Parameters
    ----------
    arms : int
        K, at least 2.
    epsilon, delta : float
        In (0, 1/2), and in (0, 1).
    gamma : float, default 1

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Yue, Joachims (2011), equation 8.

    Examples
    --------
    >>> sample_size(2, epsilon=0.25, delta=0.1)
    7677
    """
    if not (isinstance(arms, Integral) and arms >= 2):
        remedy = "give a whole number of at least 2, of arms to duel; for an A/B test it is "
        raise InvalidValue("arms", arms, remedy + "tacit.uplift.decisions_needed(rate, lift)")
    check_open_range("epsilon", epsilon, 0.5)
    check_open_range("delta", delta, 1.0)
    factor = 36.0 * gamma**6 / epsilon**2
    n, larger = 0, 1
    while larger > n:
        n = larger
        larger = math.ceil(factor * math.log(arms**3 * n / delta))
    return n


@dataclass(frozen=True)
class BeatTheMeanPAC(Elimination):
    """Find, with probability 1 − δ, an arm that the best one beats by at most ε.

    As :class:`BeatTheMean`, but exploration ends when one arm is left or every arm has N recorded
    comparisons (:func:`sample_size`); the radius is 3γ²·sqrt(ln(K³N/δ)/n).

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    epsilon : float
        ε: the best arm beats the returned arm with probability at most 1/2 + ε; in (0, 1/2).
    delta : float
        δ, probability of failure; in (0, 1).
    gamma : float, default 1
        γ of relaxed stochastic transitivity, from 1 to 100.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Yue, Joachims (2011), "Beat the mean bandit", algorithms 1 and 3.

    Examples
    --------
    >>> import tacit
    >>> policy = tacit.policies.BeatTheMeanPAC(arms=2, epsilon=0.25, delta=0.1)
    >>> policy.enough
    7677
    >>> policy.guarantee.split(",")[0]
    'the best arm beats it with a probability of at most 0.75'
    """

    about: ClassVar[About] = About(
        source="Yue, Joachims (2011), algorithms 1 and 3",
        regret="none; O(K·γ⁶/ε²·ln(K·N/δ)) comparisons with high probability (theorem 2)",
        assumes="a Condorcet winner, γ-relaxed stochastic transitivity and the stochastic "
        "triangle inequality",
        fails="may return an arm that is farther than ε from the best",
        otherwise="BeatTheMean or RMED1, where regret counts and no guarantee is asked for",
    )

    epsilon: float
    delta: float
    gamma: Annotated[float, float_range(1.0, 100.0)] = 1.0

    def __post_init__(self) -> None:
        """Validate the hyperparameters; raise InvalidValue unless ``epsilon`` is in (0, ½) and ``delta`` in
        (0, 1).
        """
        super().__post_init__()
        set_field(self, "epsilon", check_open_range("epsilon", self.epsilon, 0.5))
        set_field(self, "delta", check_open_range("delta", self.delta, 1.0))

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance with ε of 0.4 and δ of 0.1; ``dim`` is ignored."""
        return cls(arms, epsilon=0.4, delta=0.1)

    @param
    def enough(self) -> int:
        """Number N of comparisons of each arm after which exploration ends; see :func:`sample_size`."""
        return sample_size(self.arm_count, self.epsilon, self.delta, self.gamma)

    @param
    def kappa(self) -> float:
        """Factor of the confidence radius kappa/√n after n comparisons: 3γ²·sqrt(ln(K³N/δ))."""
        confidence = math.log(self.arm_count**3 * self.enough / self.delta)
        return 3.0 * self.gamma**2 * math.sqrt(confidence)

    @property
    def guarantee(self) -> str:
        """The guarantee for the winner as text, with its probability and assumptions."""
        return (
            f"the best arm beats it with a probability of at most {0.5 + self.epsilon:g}, with "
            f"probability at least {1.0 - self.delta:g}, under {self.gamma:g}-relaxed stochastic "
            "transitivity and the triangle inequality"
        )
