"""Exact propensities for policies that do not know theirs: a few candidates, one of which is shown.

The candidates are whole choices of the policy, each with a generator that follows from the lane's
past alone (:func:`tacit.core.derived.derived`). One is shown, drawn uniformly, so only that one is
made to choose; for the propensity all are made again. The past is part of what was learned, and
nothing else is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core.arrays import Generator, Ints
from tacit.core.derived import derived
from tacit.core.dispatch import choose, decide, epoch, kernel, learn, observe
from tacit.core.ranges import whole
from tacit.errors import InvalidValue
from tacit.policies.base import About, Impression, Outcome, Policy
from tacit.policies.features.linear import LogisticTS
from tacit.policies.wrapper import Wrapper

MODULUS, FACTOR = 2**31 - 1, 48271
"""Of the generator of Park and Miller, which the code of a past goes on like."""
STEPS_OF_REWARDS = 2.0**20


class Past(NamedTuple):
    """What a lane has met, told apart from other pasts.

    Attributes
    ----------
    code : array of int64, shape (lanes,)
        A number that follows from the impressions and the rewards, in their order.
    """

    code: Ints


@kernel
def go_on(past: Past, lane: int, met: int) -> None:
    """Take what a lane meets into its code."""
    past.code[lane] = (past.code[lane] * FACTOR + met) % MODULUS


@dataclass(frozen=True)
class Candidates(Wrapper):
    """Show one of a few choices that another policy would make now, and know how likely each is.

    A policy that draws its parameters from a posterior does not know how likely it shows an arm.
    Here it chooses ``draws`` times over, with random numbers that follow from what the key has met
    so far, and one of these candidates is drawn uniformly. What is shown is drawn as by the policy
    alone; its propensity, given the candidates, is the share of them that are the same: exact, as
    they are found again from the same state. Arms that are no candidate have none, so put it in an
    :class:`~tacit.ExplorationFloor` (which does this by itself).

    A decision costs one choice of the policy, and its propensity ``draws`` more.

    Parameters
    ----------
    policy : Policy
        The policy that chooses; any that shows one arm or two.
    draws : int, default 16
        How many candidates there are; from 1 to 10,000.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range, or the policy shows a list.

    Examples
    --------
    >>> import tacit
    >>> policy = tacit.Candidates(tacit.DoubleThompsonSampling(arms=3), draws=8)
    >>> decision = tacit.Learner(policy, seed=1).choose("query")
    >>> decision.propensity * 8 in range(1, 9)
    True
    """

    class Params(NamedTuple):
        policy: Any
        draws: int

    class State(NamedTuple):
        policy: Any
        past: Past

    about: ClassVar[About] = About(
        source="ours",
        regret="that of the policy",
        assumes="what the policy assumes",
        fails="what goes wrong for the policy; arms that are no candidate have no propensity",
        otherwise="an ExplorationFloor, which makes them by itself and gives all arms one",
    )

    arms: Any = field(init=False, repr=False, compare=False)
    policy: Policy
    draws: Annotated[int, whole(1, 10_000)] = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.policy, Policy):
            raise InvalidValue("policy", self.policy, "give a policy, such as LinTS(5, 5)")
        if self.policy.shows == "slate":
            raise InvalidValue("policy", self.policy, "give a policy that shows one arm or two")
        self._set("arms", self.policy.arms)
        self._set("shows", self.policy.shows)

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        return cls(LogisticTS.example(arms, dim))

    @cached_property
    def params(self) -> Params:
        return self.Params(self.policy.params, self.draws)

    def init(self, lanes: int) -> State:
        return self.State(self.policy.init(lanes), Past(np.zeros(lanes, np.int64)))

    @staticmethod
    def observe(params: Params, state: State, lane: int, impression: Impression) -> None:
        go_on(state.past, lane, 1)
        observe(params.policy, state.policy, lane, impression)

    @staticmethod
    def choose(params: Params, state: State, lane: int, impression: Impression, rng: Generator) -> Any:
        drawn = derived(state.past.code[lane], lane, int(rng.random() * params.draws))
        return choose(params.policy, state.policy, lane, impression, drawn)

    @staticmethod
    def decide(
        params: Params, state: State, lane: int, impression: Impression, rng: Generator, action: Ints
    ) -> None:
        drawn = derived(state.past.code[lane], lane, int(rng.random() * params.draws))
        decide(params.policy, state.policy, lane, impression, drawn, action)

    @staticmethod
    def propensity(params: Params, state: State, lane: int, impression: Impression, shown: Any) -> float:
        same = 0
        for candidate in range(params.draws):
            drawn = derived(state.past.code[lane], lane, candidate)
            if choose(params.policy, state.policy, lane, impression, drawn) == shown:
                same += 1
        return same / params.draws

    @staticmethod
    def learn(params: Params, state: State, lane: int, outcome: Outcome) -> None:
        go_on(state.past, lane, 2 + int(outcome.reward * STEPS_OF_REWARDS))
        learn(params.policy, state.policy, lane, outcome)

    @staticmethod
    def epoch(params: Params, state: State, lane: int) -> Any:
        return epoch(params.policy, state.policy, lane)
