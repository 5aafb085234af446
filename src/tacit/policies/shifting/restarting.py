"""What policies have in common that run another policy and restart it."""

from __future__ import annotations

from typing import Any

from tacit.core.arrays import Generator
from tacit.core.dispatch import choose, learn, propensity
from tacit.errors import InvalidValue
from tacit.policies.actions import FeaturePolicy
from tacit.policies.base import Impression, Outcome, Policy
from tacit.policies.wrapper import Wrapper


class Restarting(Wrapper):
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
