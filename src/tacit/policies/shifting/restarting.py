"""Policies that restart another: at announced shifts, the oracle at each; or a click model by its clicks."""

# 1. ``Restarting``: the choice is left to another policy, which begins anew now and then.
# 2. ``OracleRestart``: at every event, as a bound on what can be reached.
# 3. ``CUSUMRestart``: when clicks no longer are what a click model expects.

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import believed, choose, decide, learn, propensity, restart
from tacit.core.part import Positive, whole, within
from tacit.core.state_ranges import IntCount
from tacit.errors import InvalidValue
from tacit.policies.actions import FeaturePolicy, Wrapper, passed_on
from tacit.policies.base import About, Impression, Outcome, Policy
from tacit.policies.features.click_model import ClickModel
from tacit.policies.features.laplace import LaplaceEC
from tacit.policies.stationary.ucb import UCB1

# ---- What policies have in common that run another policy and restart it


class Restarting(Wrapper, abstract=True):
    """Base of the policies that leave the choice to another one and only restart it."""

    knows_propensity = passed_on("knows_propensity")

    @staticmethod
    def choose(params: Any, state: Any, lane: int, impression: Impression, rng: Generator) -> Any:
        return choose(params.policy, state.policy, lane, impression, rng)

    @staticmethod
    def propensity(params: Any, state: Any, lane: int, impression: Impression, arm: int) -> Any:
        return propensity(params.policy, state.policy, lane, impression, arm)

    @staticmethod
    def learn(params: Any, state: Any, lane: int, outcome: Outcome) -> None:
        learn(params.policy, state.policy, lane, outcome)


def check_restartable(field: str, policy: Any, *, estimates: bool = True) -> None:
    """Refuse what cannot be restarted, or, where they are needed, gives no estimates."""
    restarts = isinstance(policy, Policy) and hasattr(policy, "restart")
    if restarts and (policy.restartable or not estimates):
        return
    remedy = "give a policy that can restart, such as UCB1(arms=5)"
    if restarts and isinstance(policy, FeaturePolicy):
        remedy = (
            "it knows arms by features and has no estimate of each; give one over fixed arms, or "
            "use CUSUMRestart, which restarts at unexpected clicks, or OracleRestart"
        )
    raise InvalidValue(field, policy, remedy)


# ---- The oracle of Syed et al. (2009): a policy that starts over at every event


@dataclass(frozen=True)
class OracleRestart(Restarting):
    """Run a policy and restart it, before the choice, in each round whose signal says so.

    The paper calls it ORA. With a signal that tells the truth it bounds what any detection of
    shifts can gain for the same policy; with an editor's flag it is of use as it is.

    Parameters
    ----------
    policy : Policy
        What is restarted: UCB1, KLUCB, Thompson, EpsilonGreedy, or a policy over features;
        it may show lists, as CascadeEC does.
    signal : int, default 0
        Which number of the context says so, by exceeding 1/2.

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
    signal: Annotated[int, whole(0, 10_000)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_restartable("policy", self.policy, estimates=False)
        self._take_over("arms", "randomized", "shows")

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        return cls(UCB1(arms), signal=dim)

    @property
    def context_dim(self) -> int:
        return self.signal + 1

    def init(self, lanes: int) -> State:
        return self.State(self.policy.init(lanes), np.zeros(lanes, np.int64))

    @staticmethod
    def observe(params: OracleRestart, state: State, lane: int, impression: Impression) -> None:
        if impression.context[params.signal] > 0.5:
            restart(params.policy, state.policy, lane)
            state.restarts[lane] += 1

    @staticmethod
    def decide(
        params: OracleRestart, state: State, lane: int, impression: Impression, rng: Generator, action: Ints
    ) -> None:
        decide(params.policy, state.policy, lane, impression, rng, action)

    @staticmethod
    def epoch(params: OracleRestart, state: State, lane: int) -> int:
        return int(state.restarts[lane])


# ---- Restart a click model when its clicks no longer are what it expects


@dataclass(frozen=True)
class CUSUMRestart(Restarting):
    """Run a policy over features and restart it when a two-sided CUSUM of its residuals says so.

    A residual is the reward minus the probability f that the policy's mean gives it, over
    sqrt(f(1 − f)). Two walks that never go below 0 add up residuals − k and −residuals − k; when
    one of them exceeds h, the policy starts over. The test is armed some rounds after each start,
    when the policy has found its feet.

    Parameters
    ----------
    policy : Policy
        What is restarted: LaplaceEC, ECBandit, LogisticTS and the like.
    drift : float, default 0.15
        The drift k that is tolerated, in standard deviations of a click; at least 0.
    threshold : float, default 30
        The height h of an alarm; above 0. The default suits parameters of scale 1 to 4 that are
        drawn anew every 10,000 rounds; at 20 false alarms cost more than the delay at 30.
    armed : int, default 200
        Rewards after a start before the test begins; at least 0.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range, or the policy is not over features or shows lists.

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
    drift: Annotated[float, within(0.0, 1000000.0)] = 0.15
    threshold: Positive = 30.0
    armed: Annotated[int, whole(0)] = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.policy, ClickModel):
            raise InvalidValue("policy", self.policy, "give one over features, as LaplaceEC(5, 5)")
        if not self.policy.showing.single:
            remedy = "give one that shows one arm; for lists there are OracleRestart and a discount"
            raise InvalidValue("policy", self.policy, remedy)
        self._take_over("arms", "randomized")

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        return cls(LaplaceEC(dim, dim))

    def init(self, lanes: int) -> State:
        counts = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
        return self.State(self.policy.init(lanes), np.zeros((lanes, 2)), *counts)

    @staticmethod
    def learn(params: CUSUMRestart, state: State, lane: int, outcome: Outcome) -> None:
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
        return int(state.restarts[lane])
