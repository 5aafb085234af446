"""Ranked bandits: one bandit per position (Radlinski, Kleinberg, Joachims 2008)."""

# 1. ``RankedBandit``: a bandit for each position; if it chooses an arm that is listed above, a random arm
#    replaces it.
# 2. ``draw_replacement``: an arm that is not listed above.
# 3. ``find_list``, ``forget_list``: lists with replacements, as a replaced choice gets reward 0.

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core.arrays import Generator, Ints
from tacit.core.dispatch import choose, epoch, kernel, learn, learned_propensity, observe, refit
from tacit.core.part import int_range, set_field
from tacit.core.state_ranges import ArmIndex, ArmIndexOrNone, ValueRange
from tacit.errors import InvalidValue
from tacit.policies.actions import SlatePolicy, delegate_property
from tacit.policies.base import About, Impression, Outcome, Policy, enrol_arms
from tacit.policies.lists.one_draw import find_place
from tacit.policies.stationary.ucb import UCB1

STORED_LISTS = 16 + 1
"""Number of lists with a replaced arm that a key stores until their feedback comes, plus the next one."""


@dataclass(frozen=True)
class RankedBandit(SlatePolicy):
    """Choose the arm of each position, from the top, by a separate bandit per position.

    A bandit whose choice is already shown above gets a reward of 0 for it, and its position shows
    another arm drawn at random. Every other bandit gets the click on its own position. So the
    bandit of a position learns which arm attracts the users whom the arms above do not.

    Replaced choices are stored for the last 16 lists of a key that had a replacement and await
    feedback; feedback on an older list counts for the arms shown. A
    policy that learns from propensities gets those of the moment at which it learns. A log has
    the arms that were shown, not the replaced choices: this policy cannot be learned from a log,
    and the service does not support it.

    Parameters
    ----------
    policy : Policy
        The bandit of every position; shows one arm.
    positions : int, default 3
        Length of the list; at least 1.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range, or the policy does not choose among fixed arms.

    References
    ----------
    Radlinski, Kleinberg, Joachims (2008), "Learning diverse rankings with multi-armed bandits",
    algorithm 2 (ranked bandits algorithm).

    Examples
    --------
    >>> import tacit
    >>> policy = tacit.policies.baselines.RankedBandit(tacit.UCB1(arms=["a", "b", "c"]), positions=2)
    >>> learner = tacit.Learner(policy, seed=1)
    >>> for _ in range(3000):
    ...     decision = learner.choose("query")
    ...     _ = learner.learn(decision, [float(arm == "c") for arm in decision.slate])
    >>> learner.choose("query").slate[0]
    'c'
    """

    class State(NamedTuple):
        policy: Any  # of lanes × positions lanes
        shown: ArmIndexOrNone  # (lanes, UNDER_WAY, positions) lists that had a replacement
        wanted: ArmIndexOrNone  # (lanes, UNDER_WAY, positions) the bandits' choices for these lists
        cursor: Annotated[Ints, ValueRange(0, STORED_LISTS - 1)]  # (lanes,) where the next list is stored
        one: ArmIndex  # (lanes, 1) workspace for the action of a bandit; 0 between updates

    about: ClassVar[About] = About(
        source="Radlinski, Kleinberg, Joachims (2008), ranked bandits algorithm",
        regret="against (1 − 1/e) of the best list's clicks: positions × the bandit's own",
        assumes="that one click at most matters; with EXP3 nothing about what attracts whom",
        fails="lower positions please only those whom the upper ones did not, although readers want several",
        otherwise="CascadeKLUCB, faster where attraction does not depend on the arms above",
    )
    randomized: ClassVar[bool] = False
    remembers: ClassVar[str] = "which arms were replaced in lists whose feedback is to come"

    arms: Any = field(init=False, repr=False, compare=False)
    policy: Policy
    positions: Annotated[int, int_range(1, 10_000)] = 3

    def __post_init__(self) -> None:
        """Validate the hyperparameters; take the arms of ``policy``, which must show one arm, known by name.

        Raises InvalidValue otherwise.
        """
        super().__post_init__()
        if not isinstance(self.policy, Policy) or not self.policy.showing.single:
            raise InvalidValue(
                "policy", self.policy, "give a policy that shows one arm, such as UCB1(arms=5)"
            )
        if self.policy.arms is None:
            raise InvalidValue("policy", self.policy, "it knows arms by features; give one over fixed arms")
        set_field(self, "arms", self.policy.arms)

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance over UCB1 with min(``arms``, 3) positions; ``dim`` is ignored."""
        return cls(UCB1(arms), positions=min(arms, 3))

    def with_arms(self, arms: int | tuple[str, ...]) -> Self:
        """Return the policy with these arms for the bandits of all positions."""
        return replace(self, policy=self.policy.with_arms(arms))

    context_dim = delegate_property("context_dim")

    def init(self, lanes: int) -> State:
        """Return the state of ``lanes`` keys; the inner policy has a lane for each position of each key."""
        lists = (lanes, STORED_LISTS, self.positions)
        return self.State(
            policy=self.policy.init(lanes * self.positions),
            shown=np.full(lists, -1, np.int64),
            wanted=np.full(lists, -1, np.int64),
            cursor=np.zeros(lanes, np.int64),
            one=np.zeros((lanes, 1), np.int64),
        )

    @property
    def sums(self) -> tuple[str, ...]:  # type: ignore[override]
        """Dotted names of the sums in the inner policy's part of the state."""
        return tuple(f"policy.{name}" for name in self.policy.sums)

    def enrol(self, state: State, lanes: int, known: int) -> None:
        """Initialise new arms, from index ``known`` on, for the bandits of all positions."""
        enrol_arms(self.policy, state.policy, lanes * self.positions, known)

    @staticmethod
    def refit(params: RankedBandit, state: State) -> None:
        """Let the inner policy recompute the values that follow from its sums, as after states were
        merged.
        """
        refit(params.policy, state.policy)

    @staticmethod
    def observe(params: RankedBandit, state: State, lane: int, impression: Impression) -> None:
        """Let the bandits of all positions observe the impression."""
        positions = state.shown.shape[2]
        for k in range(positions):
            observe(params.policy, state.policy, lane * positions + k, impression)

    @staticmethod
    def epoch(params: RankedBandit, state: State, lane: int) -> int:
        """Return how often the bandits of a key's positions have restarted, in total."""
        positions = state.shown.shape[2]
        total = 0
        for k in range(positions):
            total += epoch(params.policy, state.policy, lane * positions + k)
        return total

    @staticmethod
    def decide(
        params: RankedBandit, state: State, lane: int, impression: Impression, rng: Generator, action: Ints
    ) -> None:
        """Fill ``action`` with a list: each position's bandit chooses an arm, and repeated arms are replaced
        at random.

        Positions beyond the arms on offer get −1. A list with a replacement is stored, with the bandits'
        choices, until its feedback comes.
        """
        positions = len(action)
        choices = state.wanted[lane, state.cursor[lane]]
        replaced = False
        for k in range(positions):
            if k >= len(impression.arms):
                action[k] = choices[k] = -1
                continue
            arm = choose(params.policy, state.policy, lane * positions + k, impression, rng)
            choices[k] = arm
            if find_place(action, k, arm) < k:
                replaced = True
                arm = draw_replacement(action, k, impression, rng)
            action[k] = arm
        if replaced:
            for k in range(positions):
                state.shown[lane, state.cursor[lane], k] = action[k]
            state.cursor[lane] = (state.cursor[lane] + 1) % STORED_LISTS
        else:
            forget_list(state, lane, state.cursor[lane])

    @staticmethod
    def learn(params: RankedBandit, state: State, lane: int, outcome: Outcome) -> None:
        """Let each position's bandit learn the reward of its own choice; a choice that was replaced gets 0.

        A list that was stored for this is removed.
        """
        impression, action = outcome.impression, outcome.shown
        positions = len(action)
        place = find_list(state, lane, action)
        inner_action = state.one[lane]
        for k in range(positions):
            if action[k] >= 0:
                inner_action[0] = action[k] if place < 0 else state.wanted[lane, place, k]
                reward = outcome.reward[k] if inner_action[0] == action[k] else 0.0
                inner = lane * positions + k
                arm_propensity = learned_propensity(
                    params.policy, state.policy, inner, impression, inner_action[0]
                )
                single = Outcome(impression, inner_action[0], reward, arm_propensity)
                learn(params.policy, state.policy, inner, single)
        inner_action[0] = 0
        if place >= 0:
            forget_list(state, lane, place)


@kernel
def draw_replacement(action: Ints, k: int, impression: Impression, rng: Generator) -> int:
    """Return an arm on offer, drawn uniformly from those not listed above position ``k``; −1 if there is
    none.
    """
    pick = int(rng.random() * (len(impression.arms) - k))
    for arm in impression.arms:
        if find_place(action, k, arm) == k:
            if pick == 0:
                return int(arm)
            pick -= 1
    return -1


@kernel
def find_list(state: RankedBandit.State, lane: int, action: Ints) -> int:
    """Return the index at which the list ``action`` is stored with its replaced choices; −1 if it is not
    stored.
    """
    for i in range(STORED_LISTS):
        same = state.shown[lane, i, 0] >= 0
        for k in range(len(action)):
            same = same and state.shown[lane, i, k] == action[k]
        if same:
            return i
    return -1


@kernel
def forget_list(state: RankedBandit.State, lane: int, place: int) -> None:
    """Clear the entry ``place`` of a lane's stored lists."""
    for k in range(state.shown.shape[2]):
        state.shown[lane, place, k] = -1
        state.wanted[lane, place, k] = -1
