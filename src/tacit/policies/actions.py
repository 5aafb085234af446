"""Policies that show two arms or a list of them, or know arms by their features."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from tacit.core import dispatch
from tacit.core.arrays import Floats, Generator, Ints
from tacit.policies.base import Impression, Policy


class DuelPolicy(Policy):
    """Base of the policies that show two arms and learn which of them won.

    The kernel ``choose`` returns two slots, left and right, which may be the same; ``learn``
    and ``propensity`` are given them as a pair. The reward is 1.0 where the left one won, 0.0
    where the right one did, and 0.5 for a tie.
    """

    shows: ClassVar[str] = "duel"

    @property
    def action_width(self) -> int:
        return 2

    @staticmethod
    def decide(
        params: Any, state: Any, lane: int, impression: Impression, rng: Generator, action: Ints
    ) -> None:
        left, right = dispatch.choose(params, state, lane, impression, rng)
        action[0] = left
        action[1] = right

    @staticmethod
    def shown_in(params: Any, action: Ints) -> Any:
        return action[0], action[1]


class SlatePolicy(Policy):
    """Base of the policies that show a list of arms, with a field ``positions``.

    A subclass has the kernels ``decide``, which fills as many slots, best first, and
    ``learn``, which is given a number in [0, 1] for each. Where fewer arms than positions are
    on offer, the rest of the slots is −1.
    """

    shows: ClassVar[str] = "slate"

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        return cls(arms, positions=min(arms, 3))  # type: ignore[call-arg]

    @property
    def knows_places(self) -> bool:
        """Whether the probability of each arm at each position can be computed."""
        return hasattr(self, "placed") and hasattr(self, "cells")

    @property
    def action_width(self) -> int:
        return int(self.positions)  # type: ignore[attr-defined]

    @property
    def feedback_width(self) -> int:
        return self.action_width

    @staticmethod
    def decide(
        params: Any, state: Any, lane: int, impression: Impression, rng: Generator, action: Ints
    ) -> None:
        """Fill the slate."""
        raise NotImplementedError

    @staticmethod
    def shown_in(params: Any, action: Ints) -> Any:
        return action

    @staticmethod
    def reward_in(params: Any, feedback: Floats) -> Any:
        return feedback


@dataclass(frozen=True)
class FeaturePolicy(Policy):
    """Base of the policies that know arms by their features only.

    Which arms are on offer, and their features, is said at each decision; an arm has no slot
    of its own, and its place among those on offer stands for it. A subclass defines
    ``feature_dims``.
    """

    arms: Any = field(default=None, init=False, repr=False, compare=False)

    def with_arms(self, arms: Any) -> Self:
        return self

    @property
    def arm_count(self) -> int:
        return 0
