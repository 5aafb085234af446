"""UCB1, KL-UCB and TestableUCB1, which also reports the best arms: optimism in the face of uncertainty."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tacit.core import checks
from tacit.core.dispatch import kernel
from tacit.core.part import Positive, PositiveFraction, float_range, int_range, param, set_field
from tacit.core.state_ranges import IntCount, ValueRange
from tacit.policies.base import ADDED_LATER, About, Counts, Outcome, count, forget
from tacit.policies.index import CountingPolicy, IndexPolicy, RadiusPolicy


@dataclass(frozen=True)
class UCB1(CountingPolicy, RadiusPolicy):
    """Play the arm with the highest upper confidence bound.

    The index of an arm with mean μ after n plays, in round t of its key, is
    μ + α·sqrt(8·ln(t0 + t)/n). The default, α = 1/2 and t0 = 0, is the classical UCB1, whose
    radius is sqrt(2·ln t/n) = ½·sqrt(8·ln t/n); α = 1 is the radius as Syed et al. quote it.
    Arms that were never played come first.

    Parameters
    ----------
    arms : int or sequence of str
        Number of arms, or their names.
    alpha : float, default 0.5
        Scale of the confidence radius; above 0.
    t0 : float, default 0
        Rounds added to the clock inside the logarithm; at least 0.
    priors : dict of arm to (float, float), optional
        Prior successes and failures of arms, with which each key begins. ``{"film": (4, 96)}`` is 4
        clicks in 100 impressions.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Auer, Cesa-Bianchi, Fischer (2002), "Finite-time analysis of the multiarmed bandit problem",
    figure 1. The parameters α and t0: Syed, Slivkins, Mishra (2009), section 6.

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.UCB1(arms=["holiday", "film"]), seed=1)
    >>> for _ in range(100):
    ...     decision = learner.choose("independence day")
    ...     _ = learner.learn(decision, reward=1.0 if decision.arm == "film" else 0.0)
    >>> learner.choose("independence day").arm
    'film'
    """

    about: ClassVar[About] = About(
        source="Auer, Cesa-Bianchi, Fischer (2002), figure 1",
        regret="Σ 8·ln T/Δ + (1 + π²/3)·Δ over the suboptimal arms (theorem 1)",
        assumes="click probabilities that never change",
        fails="goes on showing what was best for long after a shift",
        otherwise="EXP3S, or Thompson with a discount, where intent shifts",
    )

    alpha: Positive = 0.5
    t0: Annotated[float, float_range(0.0, 2.0**53)] = 0.0
    priors: Any = field(default=(), kw_only=True, metadata=ADDED_LATER)

    @staticmethod
    def confidence(params: UCB1, state: Counts, lane: int) -> float:
        """Return α·sqrt(8·ln(t0 + t)) in round t of the lane; an arm's radius is this over the root of its
        plays.
        """
        return float(params.alpha * np.sqrt(8.0 * np.log(params.t0 + state.rounds[lane] + 1.0)))


# ---- KL-UCB: optimism with the exact shape of Bernoulli deviations (Garivier, Cappé 2011)


@kernel
def bernoulli_kl(p: float, q: float) -> float:
    """Return the Kullback–Leibler divergence kl(p, q) of Bernoulli(p) from Bernoulli(q), which may be
    infinite.
    """
    divergence = 0.0
    if p > 0.0:
        divergence += p * np.log(p / q) if q > 0.0 else math.inf
    if p < 1.0:
        divergence += (1.0 - p) * np.log((1.0 - p) / (1.0 - q)) if q < 1.0 else math.inf
    return float(divergence)


@kernel
def kl_upper_bound(mean: float, budget: float) -> float:
    """Return the largest q ≥ mean with kl(mean, q) ≤ budget, to 1e-9.

    Newton's method from above on a convex function never crosses the root, so it needs no
    safeguard: the start is Pinsker's bound, or 1 if that is closer.
    """
    if mean >= 1.0:
        return 1.0
    if mean < 1e-15:
        return float(max(-np.expm1(-budget), mean))
    # 1 − (1 − mean)·exp(−(budget + H)/(1 − mean)) is another upper bound of q, and below 1.
    entropy = -mean * np.log(mean) - (1.0 - mean) * np.log(1.0 - mean)
    tail = np.exp(-(budget + entropy) / (1.0 - mean))
    if tail < 1e-12:
        return float(1.0 - tail)
    q = min(mean + np.sqrt(0.5 * budget), 1.0 - tail)
    for _ in range(50):
        slope = (q - mean) / (q * (1.0 - q))
        if not slope > 0.0:
            break
        step = (bernoulli_kl(mean, q) - budget) / slope
        # Only rounding errors, next to the root, make a step that is not downwards.
        if not step > 0.0:
            break
        q -= step
        if step < 1e-10:
            break
    return float(max(q, mean))


@kernel
def kl_index(counts: Any, lane: int, arm: int, budget: float) -> float:
    """Return the largest q with plays·kl(mean, q) ≤ budget; infinity before an arm's first play."""
    plays = counts.plays[lane, arm]
    if plays == 0.0:
        return math.inf
    return kl_upper_bound(counts.rewards[lane, arm] / plays, budget / plays)


@kernel
def kl_budget(counts: Counts, lane: int, c: float) -> float:
    """Return ln t + c·ln ln t in round t of a lane, the bound on plays·kl; only ln t while that is at
    most 1.
    """
    log_t = np.log(counts.rounds[lane] + 1.0)
    return float(log_t + c * np.log(log_t)) if log_t > 1.0 else float(log_t)


@dataclass(frozen=True)
class KLUCB(CountingPolicy):
    """Play the arm with the highest Kullback–Leibler upper confidence bound.

    The index of an arm with mean μ after n plays, in round t of its key, is the largest q with
    n·kl(μ, q) ≤ ln t + c·ln ln t. Arms that were never played come first.

    Parameters
    ----------
    arms : int or sequence of str
        Number of arms, or their names.
    c : float, default 0
        Weight of ln ln t; at least 0. The proof requires 3, the authors recommend 0.
    priors : dict of arm to (float, float), optional
        Prior successes and failures of arms, with which each key begins. ``{"film": (4, 96)}`` is 4
        clicks in 100 impressions.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Garivier, Cappé (2011), "The KL-UCB algorithm for bounded stochastic bandits and beyond",
    algorithm 1.

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.KLUCB(arms=3), seed=1)
    >>> sorted(learner.choose(key).arm in (0, 1, 2) for key in ["a", "b"])
    [True, True]
    """

    about: ClassVar[About] = UCB1.about._replace(
        source="Garivier, Cappé (2011), algorithm 1",
        regret="Σ Δ/kl(μ, μ*)·ln T, asymptotically optimal (theorem 2)",
    )

    c: Annotated[float, float_range(0.0, 1000000.0)] = 0.0
    priors: Any = field(default=(), kw_only=True, metadata=ADDED_LATER)

    @staticmethod
    def confidence(params: KLUCB, state: Counts, lane: int) -> float:
        """Return ln t + c·ln ln t in round t of the lane, the bound on plays·kl for the index."""
        return kl_budget(state, lane, params.c)

    @staticmethod
    def index(params: KLUCB, state: Counts, lane: int, arm: int, confidence: float) -> float:
        """Return the largest q with plays·kl(mean, q) ≤ ``confidence``; infinity before the arm's first
        play.
        """
        return kl_index(state, lane, arm, confidence)


# ---- The testable bandit of Syed et al. (2009)
#
# UCB1 that also reports the arms that it believes best, G⁺, and worse, G⁻, with the confidence that ``BWC``
# needs to detect an event: first the sets, then the policy.


class Guess(NamedTuple):
    """The guess of a testable bandit: its sets of best and of worse arms.

    Attributes
    ----------
    plus : frozenset of int
        G⁺, indices of the arms that it believes best.
    minus : frozenset of int
        G⁻, indices of the arms that it believes worse by ``min_shift``.
    reference : int
        v*, the index of the arm that the others are compared with.
    """

    plus: frozenset[int]
    minus: frozenset[int]
    reference: int


@dataclass(frozen=True)
class TestableUCB1(IndexPolicy):
    """Play the arm with the highest upper confidence bound, and guess which arms are best.

    The index of an arm with mean μ (0 before its first play) after n plays, in round t of its
    key, is μ + α·sqrt(8·ln(t0 + t)/(1 + n)). The guess after t rounds compares all arms with v*,
    the one played most often in the last ⌊t/2⌋ rounds: an arm is in G⁺ if its mean is at most
    ``min_shift``/4 below that of v*, and in G⁻ if it is more than ``min_shift``/2 below.

    The defaults are algorithm 2 of the paper, which is made for proofs: for tens of thousands of rounds
    it mostly explores. :meth:`practical` learns as fast as UCB1.

    A round costs O(1), apart from the indices. A lane takes ⌊horizon/2⌋ + 1 bytes (twice that beyond
    256 arms, four times beyond 65 536) for its latest plays, and 24·arms + 8 bytes. After
    ``horizon`` rounds the window no longer grows: it is then the last ⌊horizon/2⌋ rounds.

    Parameters
    ----------
    arms : int or sequence of str
        Number of arms, or their names.
    horizon : int
        Rounds of a key, T; from 1 to 2^40.
    min_shift : float, default 0.1
        ε, the gap from which on an arm is in G⁻ for sure; in (0, 1].
    alpha : float, default 6
        Scale of the confidence radius; above 0.
    t0 : float, optional
        Rounds added to the clock inside the logarithm, at least 0; by default ``horizon``.
    prior_plays : int, default 1
        Plays that the radius adds to those of an arm: 1, or 0 for the classical radius, with which
        arms that were never played come first.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Syed, Slivkins, Mishra (2009), "Adapting to the shifting intent of search queries", full
    version, section 6 and algorithm 2.

    Examples
    --------
    >>> import tacit
    >>> policy = tacit.policies.TestableUCB1.practical(arms=["holiday", "film"], horizon=400)
    >>> learner = tacit.Learner(policy, seed=1)
    >>> for _ in range(400):
    ...     decision = learner.choose("independence day")
    ...     _ = learner.learn(decision, reward=1.0 if decision.arm == "film" else 0.0)
    >>> policy.guess(learner.state, learner.lane("independence day"))
    Guess(plus=frozenset({1}), minus=frozenset({0}), reference=1)
    """

    class State(NamedTuple):
        counts: Counts
        late: IntCount  # (lanes, arms) plays in the window
        recent: Annotated[npt.NDArray[Any], ValueRange(0, -1, "arms")]  # (lanes, horizon // 2 + 1) a ring

    about: ClassVar[About] = About(
        source="Syed, Slivkins, Mishra (2009), full version, algorithm 2",
        regret="min(8·(α + 1)²·n·ln(t0 + T)/Δ, (α + 1)·sqrt(32·n·T·ln(t0 + T))) + n for α ≥ 1 "
        "(equation 5; constants in studies/eventful/theory.py)",
        assumes="click probabilities that never change, and a known horizon",
        fails="goes on showing what was best for long after a shift; past the horizon its "
        "bound does not hold",
        otherwise="BWC over this policy, where contexts announce a change",
    )

    __test__: ClassVar[bool] = False
    """Keeps pytest from collecting the class as a test case because of its name."""

    horizon: Annotated[int, int_range(1, 2**40)]
    min_shift: PositiveFraction = 0.1
    alpha: Positive = 6.0
    t0: float | None = None
    prior_plays: Annotated[int, int_range(0, 1)] = 1

    def __post_init__(self) -> None:
        """Validate the hyperparameters; set ``t0`` to ``horizon`` if it is None."""
        super().__post_init__()
        set_field(self, "t0", checks.number("t0", self.rounds_before, 0.0, 2.0**53))

    @param
    def rounds_before(self) -> float:
        """Number of rounds that are added to t in the index: ``t0``, or ``horizon`` if ``t0`` is None."""
        return self.horizon if self.t0 is None else self.t0

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance with a horizon of 10,000 rounds; ``dim`` is ignored."""
        return cls(arms, horizon=10_000)

    @classmethod
    def theory(cls, arms: int | tuple[str, ...], horizon: int, min_shift: float = 0.1) -> Self:
        """Return algorithm 2 as published: the index μ + 12·sqrt(2·ln(t + T)/(1 + n)).

        Parameters
        ----------
        arms : int or sequence of str
        horizon : int
        min_shift : float, default 0.1
        """
        return cls(arms, horizon, min_shift)

    @classmethod
    def practical(cls, arms: int | tuple[str, ...], horizon: int, min_shift: float = 0.1) -> Self:
        """Return the policy with the index of classical UCB1, μ + sqrt(2·ln t/n).

        The theorems do not cover it, but it suits experiments with usual horizons.

        Parameters
        ----------
        arms : int or sequence of str
        horizon : int
        min_shift : float, default 0.1
        """
        return cls(arms, horizon, min_shift, alpha=0.5, t0=0.0, prior_plays=0)

    def guess(self, state: State, lane: int) -> Guess:
        """Return the sets of best and worse arms that the policy believes after a lane's rounds so far.

        Parameters
        ----------
        state : State
        lane : int

        Returns
        -------
        Guess
            Ties for v* go to the lowest arm index.
        """
        means = [self.estimate(self.params, state, lane, arm) for arm in range(self.arm_count)]
        reference = int(state.late[lane].argmax())
        gaps = [means[reference] - mean for mean in means]
        return Guess(
            plus=frozenset(arm for arm, gap in enumerate(gaps) if gap <= self.min_shift / 4),
            minus=frozenset(arm for arm, gap in enumerate(gaps) if gap > self.min_shift / 2),
            reference=reference,
        )

    def init(self, lanes: int) -> State:
        """Return zero counts and an empty window of latest plays for each lane."""
        shape, ring = (lanes, self.arm_count), (lanes, self.horizon // 2 + 1)
        return self.State(
            Counts.zeros(*shape),
            np.zeros(shape, np.int64),
            np.zeros(ring, np.min_scalar_type(self.arm_count - 1)),
        )

    @staticmethod
    def confidence(params: TestableUCB1, state: State, lane: int) -> float:
        """Return α·sqrt(8·ln(t0 + t)) in round t of the lane; an arm's radius is this over sqrt(plays +
        prior_plays).
        """
        return float(
            params.alpha * np.sqrt(8.0 * np.log(params.rounds_before + state.counts.rounds[lane] + 1.0))
        )

    @staticmethod
    def index(params: TestableUCB1, state: State, lane: int, arm: int, confidence: float) -> float:
        """Return mean + confidence/sqrt(plays + prior_plays); infinity if the divisor is 0.

        The mean of an arm without plays is 0.
        """
        plays = state.counts.plays[lane, arm]
        if plays + params.prior_plays == 0.0:
            return math.inf
        mean = state.counts.rewards[lane, arm] / max(plays, 1.0)
        return float(mean + confidence / np.sqrt(plays + params.prior_plays))

    @staticmethod
    def learn(params: TestableUCB1, state: State, lane: int, outcome: Outcome) -> None:
        """Add the outcome to the counts, and the play to the window of latest plays, from which its oldest
        play may drop.

        The window is the last ⌊t/2⌋ rounds of t, at most the last ⌊horizon/2⌋.
        """
        arm = outcome.shown
        count(state.counts, lane, arm, outcome.reward)
        round, size = int(state.counts.rounds[lane]), state.recent.shape[1]
        state.recent[lane, round % size] = arm
        state.late[lane, arm] += 1
        # The window loses its oldest round in every second round, and in every round once it is full.
        if round % 2 == 1 or round > params.horizon:
            dropped_round = round - min(round, params.horizon) // 2
            state.late[lane, state.recent[lane, dropped_round % size]] -= 1

    @staticmethod
    def restart(params: TestableUCB1, state: State, lane: int) -> None:
        """Set the counts of a lane and its plays in the window to zero."""
        forget(state.counts, lane)
        state.late[lane, :] = 0

    @staticmethod
    def estimate(params: TestableUCB1, state: State, lane: int, arm: int) -> float:
        """Return the mean reward of an arm; 0 before its first play."""
        plays = state.counts.plays[lane, arm]
        return float(state.counts.rewards[lane, arm] / plays) if plays > 0.0 else 0.0
