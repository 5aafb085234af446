"""Base classes: policies that show two arms or a list, that know arms by features, or that wrap a policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from tacit.core import dispatch
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import count_open, refit, reward_in, shown_in
from tacit.core.part import set_field
from tacit.policies.base import Impression, Policy, enrol_arms, read_row

Duel = tuple[int, int]
"""The arm indices of a duel, left and right."""

# ---- Policies that show two arms or a list of arms, or know arms by their features


def decide_duel(
    params: Any, state: Any, lane: int, impression: Impression, rng: Generator, action: Ints
) -> None:
    """Fill ``action``, in place, with the left and the right arm that ``choose`` returns."""
    left_arm, right_arm = dispatch.choose(params, state, lane, impression, rng)
    action[0] = left_arm
    action[1] = right_arm


def read_duel(params: Any, action: Ints) -> Any:
    """Return the first two arm indices of ``action``, left and right, as a pair."""
    return action[0], action[1]


class DuelPolicy(Policy, abstract=True):
    """Base of the policies that show two arms and learn which of them won.

    The kernel ``choose`` returns two arm indices, left and right, which may be equal; ``learn``
    and ``propensity`` get them as a pair. The reward is 1.0 if the left arm won, 0.0 if the right
    arm won, and 0.5 for a tie.
    """

    shows: ClassVar[str] = "duel"
    defaults: ClassVar[dict[str, Any]] = {**Policy.defaults, "decide": decide_duel, "shown_in": read_duel}

    action_width = 2


class SlatePolicy(Policy, abstract=True):
    """Base of the policies that show a list of arms, with a field ``positions``.

    A subclass has the kernels ``decide``, which fills the positions with arm indices, best first, and
    ``learn``, which gets a reward in [0, 1] for each position. If there are fewer arms on offer than
    positions, the last positions are −1.
    """

    shows: ClassVar[str] = "slate"
    defaults: ClassVar[dict[str, Any]] = {**Policy.defaults, "shown_in": read_row, "reward_in": read_row}

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance with ``arms`` arms and min(``arms``, 3) positions; ``dim`` is ignored."""
        return cls(arms, positions=min(arms, 3))  # type: ignore[call-arg]

    @property
    def action_width(self) -> int:  # type: ignore[override]
        """Number of positions of a list."""
        return int(self.positions)  # type: ignore[attr-defined]

    @property
    def feedback_width(self) -> int:  # type: ignore[override]
        """Number of rewards for a list: one for each position."""
        return self.action_width

    @staticmethod
    def decide(
        params: Any, state: Any, lane: int, impression: Impression, rng: Generator, action: Ints
    ) -> None:
        """Fill ``action`` with the arm index of each position, −1 for an empty one; each subclass defines
        it.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class FeaturePolicy(Policy, abstract=True):
    """Base of the policies that know arms by their features only.

    Each decision brings the arms on offer and their features. An arm has no index of its own: its
    place among the arms on offer serves as one. A subclass defines ``feature_dims``.
    """

    arms: Any = field(default=None, init=False, repr=False, compare=False)

    def with_arms(self, arms: Any) -> Self:
        """Return the policy itself: its arms have no names that could be replaced."""
        return self

    @property
    def arm_count(self) -> int:
        """0, since the arms are known only at each decision."""
        return 0


# ---- Policies that wrap another policy, which makes the choice or most of it


def delegate_method(name: str) -> Any:
    """Return a property whose value is the wrapped policy's method ``name``, called with ``state.policy`` as
    its state.

    The property raises AttributeError if the wrapped policy has no such method.
    """

    def bind_method(self: Any) -> Callable[..., Any]:
        """Return a function that passes its state's ``policy``, and its other arguments, to the wrapped
        policy's method.
        """
        method = getattr(self.policy, name)
        return lambda state, *args: method(state.policy, *args)

    return property(bind_method, doc=f"The method ``{name}`` of the wrapped policy, where it has one.")


def delegate_property(name: str, part: str = "policy") -> Any:
    """Return a property that reads the attribute ``name`` of the object in field ``part``, the wrapped policy
    by default.

    The property raises AttributeError if that object has no such attribute.
    """
    doc = f"The ``{name}`` of ``{part}``, where it has one."
    return property(lambda self: getattr(getattr(self, part), name), doc=doc)


class Wrapper(Policy, abstract=True):
    """Base of the policies that wrap another policy: they show and read the same as it.

    A subclass has the field ``policy``, and its State has a member of that name.
    """

    policy: Any

    posterior = delegate_method("posterior")
    read_unit = delegate_method("read_unit")
    beliefs = delegate_method("beliefs")
    reward_draws = delegate_method("reward_draws")
    beliefs_in = delegate_method("beliefs_in")

    advise = delegate_property("advise")
    reads = delegate_property("reads")
    learns_seen = delegate_property("learns_seen")
    takes_open_ranges = delegate_property("takes_open_ranges")
    arm_count = delegate_property("arm_count")
    schema = delegate_property("schema")
    context_dim = delegate_property("context_dim")
    feature_dims = delegate_property("feature_dims")
    action_width = delegate_property("action_width")
    feedback_width = delegate_property("feedback_width")

    def _copy_fields(self, *fields: str) -> None:
        """Set the named fields of this policy to the wrapped policy's values; for ``__post_init__``, as
        policies are frozen.
        """
        for name in fields:
            set_field(self, name, getattr(self.policy, name))

    @property
    def per_key(self) -> bool:
        """Whether each key has a model of its own."""
        return bool(getattr(self.policy, "per_key", False))

    def with_arms(self, arms: Any) -> Self:
        """Return a copy of the wrapper whose wrapped policy has other arms."""
        return replace(self, policy=self.policy.with_arms(arms))  # type: ignore[call-arg]

    @property
    def sums(self) -> tuple[str, ...]:  # type: ignore[override]
        """Dotted names, from this policy's state on, of the wrapped policy's state arrays that are sums."""
        return tuple(f"policy.{name}" for name in self.policy.sums)

    def enrol(self, state: Any, lanes: int, known: int) -> None:
        """Initialise arms that were added, from index ``known`` on, in the wrapped policy's part of the
        state.
        """
        enrol_arms(self.policy, state.policy, lanes, known)

    @staticmethod
    def refit(params: Any, state: Any) -> None:
        """Let the wrapped policy recompute the values that follow from sums, as after states were merged."""
        refit(params.policy, state.policy)

    @staticmethod
    def count_open(params: Any, state: Any, lane: int, arm: int, hits: int, plays: int) -> None:
        """Let the wrapped policy add ``hits`` clicks and ``plays`` of decisions that are not learned yet."""
        count_open(params.policy, state.policy, lane, arm, hits, plays)

    @staticmethod
    def shown_in(params: Any, action: Ints) -> Any:
        """Return the arm indices of ``action`` in the form that the wrapped policy reads: an arm, a pair or a
        list.
        """
        return shown_in(params.policy, action)

    @staticmethod
    def reward_in(params: Any, feedback: Floats) -> Any:
        """Return the rewards of ``feedback`` in the form that the wrapped policy reads: one number, or one
        per position.
        """
        return reward_in(params.policy, feedback)
