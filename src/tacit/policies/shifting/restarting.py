"""Policies that run another policy and restart it; and the oracle that restarts at every shift."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core.arrays import Generator, Ints
from tacit.core.dispatch import choose, decide, learn, propensity, restart
from tacit.core.part import whole
from tacit.errors import InvalidValue
from tacit.policies.actions import FeaturePolicy, Wrapper
from tacit.policies.base import About, Impression, Outcome, Policy
from tacit.policies.stationary.ucb import UCB1

# ---- What policies have in common that run another policy and restart it


class Restarting(Wrapper, abstract=True):
    """Base of the policies that leave the choice to another one and only restart it."""

    @property
    def knows_propensity(self) -> bool:
        known: bool = self.policy.knows_propensity
        return known

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
    >>> policies = [tacit.OracleRestart(tacit.UCB1(arms=3)), tacit.UCB1(arms=3)]
    >>> result = tacit.simulate(policies, environment, horizon=20_000, runs=10, seed=1)
    >>> result.compare(0, 1).difference < 0
    True
    """

    class State(NamedTuple):
        policy: Any
        restarts: Ints

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
        self._set("arms", self.policy.arms)
        self._set("randomized", self.policy.randomized)
        self._set("shows", self.policy.shows)

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
