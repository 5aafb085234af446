"""What policies have in common that run another policy and restart it."""

from __future__ import annotations

from typing import Any

from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import choose, learn, propensity, refit
from tacit.errors import InvalidValue
from tacit.policies.actions import FeaturePolicy
from tacit.policies.base import Impression, Outcome, Policy, said_within


class Restarting(Policy):
    """Base of the policies that leave the choice to another one and only restart it.

    A subclass has the field ``policy``, and the member ``policy`` in its Params and its State.
    """

    policy: Any

    posterior = said_within("posterior", "What is believed since the last start, where it is said.")
    beliefs = said_within("beliefs", "What is believed of the arms since then, where it is said.")
    reward_draws = said_within("reward_draws", "Draws of what is believed of features, likewise.")

    @property
    def feature_dims(self) -> tuple[int, int]:
        dims: tuple[int, int] = self.policy.feature_dims
        return dims

    @property
    def context_dim(self) -> int:
        dim: int = self.policy.context_dim
        return dim

    @property
    def knows_propensity(self) -> bool:
        known: bool = self.policy.knows_propensity
        return known

    def advise(self, relevance: Floats, examination: Floats) -> None:
        self.policy.advise(relevance, examination)

    @property
    def sums(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(f"policy.{name}" for name in self.policy.sums)

    def enrol(self, state: Any, lanes: int, known: int) -> None:
        self.policy.enrol(state.policy, lanes, known)

    @staticmethod
    def refit(params: Any, state: Any) -> None:
        refit(params.policy, state.policy)

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
