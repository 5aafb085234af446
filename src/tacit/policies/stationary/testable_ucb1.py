"""UCB1 that can say which arms are best: the testable bandit of Syed et al. (2009)."""

# UCB1 that also says which arms it takes for best, G⁺, and which for worse, G⁻, with the confidence that
# ``BWC`` needs to tell whether there was an event: first the sets, then the policy.

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tacit.core import checks
from tacit.core.arrays import Ints
from tacit.core.part import Positive, PositiveFraction, param, whole
from tacit.policies.base import About, Counts, Outcome, count, forget
from tacit.policies.index import IndexPolicy


class Guess(NamedTuple):
    """What a testable bandit believes of its arms.

    Attributes
    ----------
    plus : frozenset of int
        G⁺, slots of the arms that it takes for best.
    minus : frozenset of int
        G⁻, slots of the arms that it takes for worse by ``min_shift``.
    reference : int
        v*, the slot of the arm that the others were compared with.
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

    The defaults are algorithm 2 of the paper, made for proofs: in tens of thousands of rounds it
    does little but explore. :meth:`practical` learns as UCB1 does.

    A round costs O(1) but for the indices. A lane takes ⌊horizon/2⌋ + 1 bytes (twice that beyond
    256 arms, four times beyond 65 536) for its latest plays, and 24·arms + 8 bytes. After
    ``horizon`` rounds the window no longer grows: it is then the last ⌊horizon/2⌋ rounds.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    horizon : int
        Rounds of a key, T; from 1 to 2^40.
    min_shift : float, default 0.1
        ε, by how much an arm must be worse to be in G⁻ for sure; in (0, 1].
    alpha : float, default 6
        Scale of the confidence radius; above 0.
    t0 : float, optional
        Rounds added to the clock inside the logarithm, at least 0; by default ``horizon``.
    prior_plays : int, default 1
        Plays that the radius adds to those of an arm: 1, or 0 for the classical radius, under
        which an arm that was never played comes before all that were.

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
    >>> policy = tacit.TestableUCB1.practical(arms=["holiday", "film"], horizon=400)
    >>> learner = tacit.Learner(policy, seed=1)
    >>> for _ in range(400):
    ...     decision = learner.choose("independence day")
    ...     _ = learner.learn(decision, reward=1.0 if decision.arm == "film" else 0.0)
    >>> policy.guess(learner.state, learner.lane("independence day"))
    Guess(plus=frozenset({1}), minus=frozenset({0}), reference=1)
    """

    class State(NamedTuple):
        counts: Counts
        late: Ints  # (lanes, arms) plays in the window
        recent: npt.NDArray[Any]  # (lanes, horizon // 2 + 1) a ring of arms

    about: ClassVar[About] = About(
        source="Syed, Slivkins, Mishra (2009), full version, algorithm 2",
        regret="min(8·(α + 1)²·n·ln(t0 + T)/Δ, (α + 1)·sqrt(32·n·T·ln(t0 + T))) + n for α ≥ 1 "
        "(equation 5; constants from tacit.reproduce.eventful.theory)",
        assumes="click probabilities that never change, and a known horizon",
        fails="goes on showing what was best for long after a shift; past the horizon its "
        "bound does not hold",
        otherwise="BWC over this policy, where contexts announce a change",
    )

    __test__: ClassVar[bool] = False
    """No test case, whatever pytest makes of the name."""

    horizon: Annotated[int, whole(1, 2**40)]
    min_shift: PositiveFraction = 0.1
    alpha: Positive = 6.0
    t0: float | None = None
    prior_plays: Annotated[int, whole(0, 1)] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("t0", checks.number("t0", self.rounds_before, 0.0, 2.0**53))

    @param
    def rounds_before(self) -> float:
        """t0: how many rounds the index holds for past before the first."""
        return self.horizon if self.t0 is None else self.t0

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        return cls(arms, horizon=10_000)

    @classmethod
    def theory(cls, arms: int | tuple[str, ...], horizon: int, min_shift: float = 0.1) -> Self:
        """Return algorithm 2 as it stands: the index μ + 12·sqrt(2·ln(t + T)/(1 + n)).

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

        The theorems do not cover it, but it is what experiments at usual horizons call for.

        Parameters
        ----------
        arms : int or sequence of str
        horizon : int
        min_shift : float, default 0.1
        """
        return cls(arms, horizon, min_shift, alpha=0.5, t0=0.0, prior_plays=0)

    def guess(self, state: State, lane: int) -> Guess:
        """Return what a lane's rounds so far say of the arms.

        Parameters
        ----------
        state : State
        lane : int

        Returns
        -------
        Guess
            Ties for v* go to the lowest slot.
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
        shape, ring = (lanes, self.arm_count), (lanes, self.horizon // 2 + 1)
        return self.State(
            Counts.zeros(*shape),
            np.zeros(shape, np.int64),
            np.zeros(ring, np.min_scalar_type(self.arm_count - 1)),
        )

    @staticmethod
    def confidence(params: TestableUCB1, state: State, lane: int) -> float:
        return float(
            params.alpha * np.sqrt(8.0 * np.log(params.rounds_before + state.counts.rounds[lane] + 1.0))
        )

    @staticmethod
    def index(params: TestableUCB1, state: State, lane: int, arm: int, confidence: float) -> float:
        plays = state.counts.plays[lane, arm]
        if plays + params.prior_plays == 0.0:
            return math.inf
        mean = state.counts.rewards[lane, arm] / max(plays, 1.0)
        return float(mean + confidence / np.sqrt(plays + params.prior_plays))

    @staticmethod
    def learn(params: TestableUCB1, state: State, lane: int, outcome: Outcome) -> None:
        arm = outcome.shown
        count(state.counts, lane, arm, outcome.reward)
        round, size = int(state.counts.rounds[lane]), state.recent.shape[1]
        state.recent[lane, round % size] = arm
        state.late[lane, arm] += 1
        # The window loses its oldest round every second time, and always once it is full.
        if round % 2 == 1 or round > params.horizon:
            gone = round - min(round, params.horizon) // 2
            state.late[lane, state.recent[lane, gone % size]] -= 1

    @staticmethod
    def restart(params: TestableUCB1, state: State, lane: int) -> None:
        forget(state.counts, lane)
        state.late[lane, :] = 0

    @staticmethod
    def estimate(params: TestableUCB1, state: State, lane: int, arm: int) -> float:
        plays = state.counts.plays[lane, arm]
        return float(state.counts.rewards[lane, arm] / plays) if plays > 0.0 else 0.0
