"""Thompson sampling: play each arm as often as it is likely to be the best (Thompson 1933)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.core.arrays import Floats, Generator, borrow_array, release_array
from tacit.core.dispatch import OPEN_UNIT, kernel
from tacit.core.part import PositiveFraction, float_range
from tacit.core.state_ranges import ValueRange
from tacit.policies.base import ADDED_LATER, About, ArmBeliefs, Impression, Outcome
from tacit.policies.index import PriorsPolicy, read_prior_counts
from tacit.policies.stationary.beta_maximum import probability_largest


@kernel
def posterior_with_open(params: Any, state: Any, lane: int, arm: int) -> tuple[float, float]:
    """Return the parameters of the Beta posterior of an arm, to which decisions that are not learned yet
    contribute.

    Their clicks and plays were added by ``count_open``, in units of 1/OPEN_UNIT.
    """
    a = params.prior_successes + state.successes[lane, arm]
    b = params.prior_failures + state.failures[lane, arm]
    hits, plays = state.open[lane, arm, 0], state.open[lane, arm, 1]
    if plays > 0 or hits > 0:
        a += hits / OPEN_UNIT
        b += max(plays - hits, 0) / OPEN_UNIT
    return a, b


@dataclass(frozen=True)
class Thompson(PriorsPolicy):
    """Draw a click probability per arm from its Beta posterior, play the arm with the highest.

    A reward r in [0, 1] counts as r successes and 1 − r failures. The propensity is the exact
    probability that the arm's draw is the highest, integrated to 1e-8; it costs 2 to 3 µs for
    10 arms and is computed only on request.

    Parameters
    ----------
    arms : int or sequence of str
        Number of arms, or their names.
    prior_successes, prior_failures : float, default 1
        Parameters of the Beta prior of every arm; above 0.
    discount : float, default 1
        Factor on earlier counts, at each reward of the key, in (0, 1]. Below 1 the
        policy forgets and so can follow shifting intent; its memory is 1/(1 − discount) rounds.
    priors : dict of arm to (float, float), optional
        Prior successes and failures of arms, with which each key begins. ``{"film": (4, 96)}`` is 4
        clicks in 100 impressions.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Thompson (1933); Agrawal, Goyal (2012), "Analysis of Thompson sampling for the multi-armed
    bandit problem", algorithm 1. The discount: Raj, Kalyani (2017), "Taming non-stationary
    bandits: a Bayesian approach", algorithm 1.

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.Thompson(arms=2), seed=1)
    >>> decision = learner.choose("query")
    >>> round(decision.propensity, 6)
    0.5
    """

    class State(NamedTuple):
        successes: Annotated[Floats, ValueRange(-1)]
        failures: Annotated[Floats, ValueRange(-1)]
        open: Annotated[npt.NDArray[np.int32], ValueRange(-(2**31))]

    about: ClassVar[About] = About(
        source="Thompson (1933); Agrawal, Goyal (2012), algorithm 1",
        regret="(1 + ε)·Σ Δ/kl(μ, μ*)·ln T + O(1/ε²) (Agrawal, Goyal 2013, theorem 1)",
        assumes="click probabilities that never change (with discount = 1)",
        fails="goes on showing what was best for long after a shift",
        otherwise="GLRKLUCB where intent shifts; a discount below 1, which must suit the shifts",
    )

    prior_successes: Annotated[float, float_range(0.001, 1000000.0)] = 1.0
    prior_failures: Annotated[float, float_range(0.001, 1000000.0)] = 1.0
    discount: PositiveFraction = 1.0
    priors: Any = field(default=(), kw_only=True, metadata=ADDED_LATER)

    def init(self, lanes: int) -> State:
        """Return the initial state of new lanes: zero counts, or the successes and failures of the priors."""
        shape = (lanes, self.arm_count)
        state = self.State(np.zeros(shape), np.zeros(shape), np.zeros((*shape, 2), np.int32))
        if self.priors:
            state.successes[:], state.failures[:] = read_prior_counts(self).T
        return state

    @staticmethod
    def choose(params: Thompson, state: State, lane: int, impression: Impression, rng: Generator) -> int:
        """Draw from the Beta posterior of each offered arm, and return the arm of the highest draw."""
        best, leader = -1.0, -1
        for arm in impression.arms:
            a, b = posterior_with_open(params, state, lane, arm)
            draw = rng.beta(a, b)
            if draw > best:
                best, leader = draw, arm
        return leader

    @staticmethod
    def propensity(params: Thompson, state: State, lane: int, impression: Impression, arm: int) -> float:
        """Return the probability that the arm's posterior draw is the highest of the offered arms."""
        count = len(impression.arms)
        if count == 1:
            return 1.0
        workspace, place = borrow_array(2, count), 0
        successes, failures = workspace[0], workspace[1]
        for i in range(count):
            offered = impression.arms[i]
            successes[i], failures[i] = posterior_with_open(params, state, lane, offered)
            if offered == arm:
                place = i
        probability = probability_largest(successes, failures, place)
        release_array(workspace)
        return probability

    @staticmethod
    def count_open(params: Thompson, state: State, lane: int, arm: int, hits: int, plays: int) -> None:
        """Add clicks (``hits``) and plays of decisions that are not learned yet to an arm's open counts.

        They are integers in units of 1/OPEN_UNIT, and negative when a decision is learned.
        """
        state.open[lane, arm, 0] += hits
        state.open[lane, arm, 1] += plays

    @staticmethod
    def learn(params: Thompson, state: State, lane: int, outcome: Outcome) -> None:
        """Multiply all counts of the lane by the discount, then add the outcome to the arm that was shown.

        The reward r counts as r successes and 1 − r failures.
        """
        if params.discount < 1.0:
            for i in range(state.successes.shape[1]):
                state.successes[lane, i] *= params.discount
                state.failures[lane, i] *= params.discount
        state.successes[lane, outcome.shown] += outcome.reward
        state.failures[lane, outcome.shown] += 1.0 - outcome.reward

    @property
    def unlearns_exactly(self) -> bool:  # type: ignore[override]
        """Whether a learned reward can be removed: only without a discount."""
        # Later rewards have discounted it, an unknown number of times.
        return self.discount == 1.0

    @staticmethod
    def unlearn(params: Thompson, state: State, lane: int, outcome: Outcome) -> None:
        """Subtract an outcome from the shown arm's successes and failures."""
        state.successes[lane, outcome.shown] -= outcome.reward
        state.failures[lane, outcome.shown] -= 1.0 - outcome.reward

    @property
    def forgets(self) -> bool:
        """Whether earlier rewards are discounted, so that beliefs rest on fewer rewards than were learned."""
        return self.discount < 1.0

    def beliefs(self, state: State, lane: int) -> ArmBeliefs:
        """Return the Beta posteriors of the arms of one lane, without decisions that are not yet learned."""
        clicks, misses = state.successes[lane], state.failures[lane]
        a, b = clicks + self.prior_successes, misses + self.prior_failures
        return ArmBeliefs.from_posteriors(clicks + misses, a, b)

    @staticmethod
    def restart(params: Thompson, state: State, lane: int) -> None:
        """Set the successes and failures of a lane to zero.

        Priors of arms (``priors``) are lost; counts of decisions that are not learned yet stay.
        """
        state.successes[lane, :] = 0.0
        state.failures[lane, :] = 0.0

    @staticmethod
    def estimate(params: Thompson, state: State, lane: int, arm: int) -> float:
        """Return the mean reward of an arm; 0 before its first play."""
        plays = state.successes[lane, arm] + state.failures[lane, arm]
        return float(state.successes[lane, arm] / plays) if plays > 0.0 else 0.0
