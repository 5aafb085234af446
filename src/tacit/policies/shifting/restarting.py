"""Policies that restart another policy: at a signal, or when clicks deviate from a click model."""

# 1. ``Restarting``: base of the policies that run another policy and restart it.
# 2. ``OracleRestart``: restarts at every event, as a bound on what detection can reach.
# 3. ``CUSUMRestart``: restarts when clicks deviate from the predictions of a click model.

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import believed, choose, decide, learn, propensity, restart
from tacit.core.part import Positive, float_range, int_range
from tacit.core.state_ranges import IntCount
from tacit.errors import InvalidValue
from tacit.policies.actions import FeaturePolicy, Wrapper, delegate_property
from tacit.policies.base import About, Impression, Outcome, Policy
from tacit.policies.features.click_model import ClickModel
from tacit.policies.features.laplace import LaplaceEC
from tacit.policies.stationary.ucb import UCB1

# ---- Base of the policies that run another policy and restart it


class Restarting(Wrapper, abstract=True):
    """Base of the policies that leave the choice to another policy and only restart it."""

    knows_propensity = delegate_property("knows_propensity")

    @staticmethod
    def choose(params: Any, state: Any, lane: int, impression: Impression, rng: Generator) -> Any:
        """Return the inner policy's choice."""
        return choose(params.policy, state.policy, lane, impression, rng)

    @staticmethod
    def propensity(params: Any, state: Any, lane: int, impression: Impression, arm: int) -> Any:
        """Return the inner policy's propensity of an arm."""
        return propensity(params.policy, state.policy, lane, impression, arm)

    @staticmethod
    def learn(params: Any, state: Any, lane: int, outcome: Outcome) -> None:
        """Let the inner policy learn the outcome."""
        learn(params.policy, state.policy, lane, outcome)


def check_restartable(policy: Any, *, estimates: bool = True) -> None:
    """Raise InvalidValue if a policy has no ``restart``, or, with ``estimates``, no estimate of an arm's mean
    reward.
    """
    restarts = isinstance(policy, Policy) and hasattr(policy, "restart")
    if restarts and (hasattr(policy, "estimate") or not estimates):
        return
    remedy = "give a policy that can restart, such as UCB1(arms=5)"
    if restarts and isinstance(policy, FeaturePolicy):
        remedy = (
            "it knows arms by features and has no estimate of each; give one over fixed arms, or "
            "use CUSUMRestart, which restarts at unexpected clicks, or OracleRestart"
        )
    raise InvalidValue("policy", policy, remedy)


# ---- The oracle of Syed et al. (2009): a policy that is restarted at every event


@dataclass(frozen=True)
class OracleRestart(Restarting):
    """Run a policy and restart it, before the choice, in each round with a restart signal.

    The paper calls it ORA. With a signal of all true events it bounds the gain of any detection of
    shifts for the same policy; with an editor's flag as the signal it is of practical use.

    Parameters
    ----------
    policy : Policy
        The policy to restart: UCB1, KLUCB, Thompson, EpsilonGreedy, or a policy over features;
        it may show lists, as CascadeEC does.
    signal : int, default 0
        Index of the number in the context that signals a restart, by exceeding 1/2.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range, or the policy cannot be restarted.

    References
    ----------
    Syed, Slivkins, Mishra (2009), section 8.

    Examples
    --------
    >>> import tacit
    >>> environment = tacit.ShiftingArms(arms=3, events=5, announced=True)
    >>> policies = [tacit.policies.OracleRestart(tacit.UCB1(arms=3)), tacit.UCB1(arms=3)]
    >>> result = tacit.simulate(policies, environment, horizon=20_000, runs=10, seed=1)
    >>> result.compare(0, 1).difference < 0
    True
    """

    class State(NamedTuple):
        policy: Any
        restarts: IntCount

    about: ClassVar[About] = About(
        source="Syed, Slivkins, Mishra (2009), section 8 (ORA)",
        regret="(k + 1) times the policy's regret over T/(k + 1) rounds, for k events",
        assumes="that the signal tells all events and nothing else",
        fails="misses the shifts that the signal misses, and forgets for nothing when it is wrong",
        otherwise="BWC, which learns what announces an event",
    )

    arms: Any = field(init=False, repr=False, compare=False)
    policy: Policy
    signal: Annotated[int, int_range(0, 10_000)] = 0

    def __post_init__(self) -> None:
        """Validate the hyperparameters; take arms and kind of action from the inner policy."""
        super().__post_init__()
        check_restartable(self.policy, estimates=False)
        self._copy_fields("arms", "randomized", "shows")

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance over UCB1 whose signal is number ``dim`` of the context."""
        return cls(UCB1(arms), signal=dim)

    @property
    def context_dim(self) -> int:  # type: ignore[override]
        """Length of the context: the signal is its last number."""
        return self.signal + 1

    def init(self, lanes: int) -> State:
        """Return the inner policy's initial state and zero restarts."""
        return self.State(self.policy.init(lanes), np.zeros(lanes, np.int64))

    @staticmethod
    def observe(params: OracleRestart, state: State, lane: int, impression: Impression) -> None:
        """Restart the inner policy and count the restart if the signal exceeds 1/2."""
        if impression.context[params.signal] > 0.5:
            restart(params.policy, state.policy, lane)
            state.restarts[lane] += 1

    @staticmethod
    def decide(
        params: OracleRestart, state: State, lane: int, impression: Impression, rng: Generator, action: Ints
    ) -> None:
        """Fill ``action`` with the inner policy's choice."""
        decide(params.policy, state.policy, lane, impression, rng, action)

    @staticmethod
    def epoch(params: OracleRestart, state: State, lane: int) -> int:
        """Return how often the lane was restarted."""
        return int(state.restarts[lane])


# ---- Restart a click model when clicks deviate from its predictions


@dataclass(frozen=True)
class CUSUMRestart(Restarting):
    """Run a policy over features and restart it when a two-sided CUSUM test of its residuals raises an alarm.

    A residual is the reward minus the click probability f under the policy's mean, over
    sqrt(f(1 − f)). Two walks that never go below 0 add up residuals − k and −residuals − k; when
    one of them exceeds h, the policy is restarted. The test begins some rounds after each start,
    when the policy's estimates are usable.

    Parameters
    ----------
    policy : Policy
        The policy to restart: LaplaceEC, ECBandit, LogisticTS and the like.
    drift : float, default 0.15
        The drift k that is tolerated, in standard deviations of a click; at least 0.
    threshold : float, default 30
        The height h of an alarm; above 0. The default suits parameters of scale 1 to 4 that are
        redrawn every 10,000 rounds; at 20, false alarms cost more than the delay at 30.
    armed : int, default 200
        Rewards after a start before the test begins; at least 0.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range, or the policy does not use features or shows lists.

    References
    ----------
    Page (1954), "Continuous inspection schemes".

    Examples
    --------
    >>> import tacit
    >>> environment = tacit.ExaminationArms(scale=4, redraws=(4000,))
    >>> from tacit.policies import CUSUMRestart, LaplaceEC
    >>> policies = [CUSUMRestart(LaplaceEC(5, 5)), LaplaceEC(5, 5)]
    >>> result = tacit.simulate(policies, environment, horizon=12_000, runs=5, seed=1)
    >>> result.compare(0, 1).difference < 0
    True
    """

    class State(NamedTuple):
        policy: Any
        walks: Floats  # (lanes, 2)
        rounds: IntCount  # (lanes,) since the last start
        restarts: IntCount  # (lanes,)

    about: ClassVar[About] = About(
        source="Page (1954), on the residuals of any model of clicks",
        regret="no bound is known",
        assumes="abrupt shifts, large enough that clicks on what is shown change",
        fails="slow drift, and shifts that leave the clicks on what is shown as they are, go unnoticed",
        otherwise="a discount below 1 of the policy itself, for slow drift",
    )

    arms: Any = field(init=False, repr=False, compare=False)
    policy: ClickModel
    drift: Annotated[float, float_range(0.0, 1000000.0)] = 0.15
    threshold: Positive = 30.0
    armed: Annotated[int, int_range(0)] = 200

    def __post_init__(self) -> None:
        """Validate the hyperparameters; take arms from the inner policy.

        Raises InvalidValue if that policy is no click model or does not show one arm.
        """
        super().__post_init__()
        if not isinstance(self.policy, ClickModel):
            raise InvalidValue("policy", self.policy, "give one over features, as LaplaceEC(5, 5)")
        if not self.policy.showing.single:
            remedy = "give one that shows one arm; for lists there are OracleRestart and a discount"
            raise InvalidValue("policy", self.policy, remedy)
        self._copy_fields("arms", "randomized")

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance over LaplaceEC with ``dim`` features of each kind."""
        return cls(LaplaceEC(dim, dim))

    def init(self, lanes: int) -> State:
        """Return the inner policy's initial state, walks of zero and zero counts."""
        counts = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
        return self.State(self.policy.init(lanes), np.zeros((lanes, 2)), *counts)

    @staticmethod
    def learn(params: CUSUMRestart, state: State, lane: int, outcome: Outcome) -> None:
        """Add the residual of the reward to both walks, then let the inner policy learn the outcome.

        If a walk then exceeds the threshold, the inner policy is restarted instead and does not learn this
        outcome; the walks are reset, and the restart is counted. The first ``armed`` rewards after a start
        are not tested.
        """
        state.rounds[lane] += 1
        if state.rounds[lane] > params.armed:
            chance = believed(params.policy, state.policy, lane, outcome.impression, outcome.shown)
            residual = (max(outcome.reward, 0.0) - chance) / np.sqrt(max(chance * (1.0 - chance), 1e-6))
            rise = max(0.0, state.walks[lane, 0] + residual - params.drift)
            fall = max(0.0, state.walks[lane, 1] - residual - params.drift)
            state.walks[lane, 0] = rise
            state.walks[lane, 1] = fall
            if max(rise, fall) > params.threshold:
                restart(params.policy, state.policy, lane)
                state.walks[lane, 0] = 0.0
                state.walks[lane, 1] = 0.0
                state.rounds[lane] = 0
                state.restarts[lane] += 1
                return
        learn(params.policy, state.policy, lane, outcome)

    @staticmethod
    def epoch(params: CUSUMRestart, state: State, lane: int) -> int:
        """Return how often the lane was restarted."""
        return int(state.restarts[lane])
