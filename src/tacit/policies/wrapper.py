"""What policies have in common that leave the choice, or most of it, to another policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

from tacit.core.arrays import Floats, Ints
from tacit.core.dispatch import refit, reward_in, shown_in
from tacit.policies.base import Policy


def said_within(name: str, says: str) -> Any:
    """Return a property: what the field ``policy`` can say of its own state, where it can."""

    def said(self: Any) -> Callable[..., Any]:
        own = getattr(self.policy, name)
        return lambda state, *given: own(state.policy, *given)

    return property(said, doc=says)


class Wrapper(Policy):
    """Base of the policies around another one: what that one shows and reads, they do.

    A subclass has the field ``policy``, and the member ``policy`` in its Params and its State.
    """

    policy: Any

    posterior = said_within("posterior", "What the policy believes, where it says so.")
    beliefs = said_within("beliefs", "What the policy believes of its arms, where it says so.")
    reward_draws = said_within("reward_draws", "Draws of what it believes of features, likewise.")

    def with_arms(self, arms: Any) -> Self:
        return replace(self, policy=self.policy.with_arms(arms))  # type: ignore[call-arg]

    @property
    def arm_count(self) -> int:
        count: int = self.policy.arm_count
        return count

    @property
    def context_dim(self) -> int:
        dim: int = self.policy.context_dim
        return dim

    @property
    def feature_dims(self) -> tuple[int, int]:
        dims: tuple[int, int] = self.policy.feature_dims
        return dims

    @property
    def action_width(self) -> int:
        width: int = self.policy.action_width
        return width

    @property
    def feedback_width(self) -> int:
        width: int = self.policy.feedback_width
        return width

    @property
    def sums(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(f"policy.{name}" for name in self.policy.sums)

    def advise(self, relevance: Floats, examination: Floats) -> None:
        self.policy.advise(relevance, examination)

    def enrol(self, state: Any, lanes: int, known: int) -> None:
        self.policy.enrol(state.policy, lanes, known)

    @staticmethod
    def refit(params: Any, state: Any) -> None:
        refit(params.policy, state.policy)

    @staticmethod
    def shown_in(params: Any, action: Ints) -> Any:
        return shown_in(params.policy, action)

    @staticmethod
    def reward_in(params: Any, feedback: Floats) -> Any:
        return reward_in(params.policy, feedback)
