"""An exploration floor under any policy, and exact propensities for policies that do not know theirs."""

# 1. ``Candidates``: a few choices of a policy that does not know its propensities, one of which is drawn
#    uniformly: so the propensity is known.
# 2. ``ExplorationFloor``: a uniform choice with probability ε, else the policy's.
# 3. ``MinimumShares``: minimum probabilities for some arms; ``MinimumDuelShares``: the same for duels.

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import (
    choose,
    count_open,
    decide,
    epoch,
    kernel,
    learn,
    observe,
    propensity,
    refit,
    unlearn,
)
from tacit.core.part import Fraction, PositiveFraction, int_range, set_field
from tacit.core.seeds import derive_generator
from tacit.core.state_ranges import ValueRange
from tacit.errors import AssumptionWarning, InvalidValue
from tacit.policies.actions import Wrapper, delegate_property
from tacit.policies.base import About, Impression, Outcome, Policy, decide_arm, enrol_arms, is_correctable
from tacit.policies.duels.random_horizon import HorizonDraw
from tacit.policies.features.linear import LogisticTS
from tacit.policies.index import check_shares
from tacit.policies.stationary.ucb import UCB1

# ---- Exact propensities for policies that do not know theirs: a few candidates, one of which is shown
#
# Each candidate is a choice of the policy with a generator that is seeded by the lane's history alone
# (:func:`tacit.core.seeds.derive_generator`). One candidate is drawn uniformly, and only that one is
# computed; for the propensity all are computed again. The state stores a hash of the history, and no
# candidates.

MODULUS, FACTOR = 2**31 - 1, 48271
"""Constants of the generator of Park and Miller, by which the hash of a history is updated."""
STEPS_OF_REWARDS = 2.0**20


class HistoryHash(NamedTuple):
    """A hash of the history of each lane.

    Attributes
    ----------
    code : array of int64, shape (lanes,)
        Hash of the impressions and the rewards, in their order.
    """

    code: Annotated[Ints, ValueRange(-(2.0**63), 2.0**63)]


@kernel
def update_history(history: HistoryHash, lane: int, event: int) -> None:
    """Update a lane's hash in place with an event: 1 for an impression, from 2 on for a reward."""
    history.code[lane] = (history.code[lane] * FACTOR + event) % MODULUS


def require_no_list(field: str, policy: Any) -> Policy:
    """Return ``policy`` if it shows one arm or a duel; raise InvalidValue otherwise, also if it is no
    policy.
    """
    if not isinstance(policy, Policy):
        raise InvalidValue(field, policy, "give a policy, such as UCB1(arms=5)")
    if policy.showing.listed:
        raise InvalidValue(field, policy, "give a policy that shows one arm or two")
    return policy


@dataclass(frozen=True)
class Candidates(Wrapper):
    """Draw one of a few candidate choices of another policy, so that the propensity is known.

    A policy that draws its parameters from a posterior does not know the probability of its choice.
    Here it makes ``draws`` candidate choices, with random numbers that are seeded by the history of the
    key, and one candidate is drawn uniformly. Arms are shown as often as by the policy alone; the
    propensity, given the candidates, is the share of candidates that are this choice: it is exact,
    because the candidates can be computed again from the same state. Arms that are no candidate have
    propensity 0, so put this policy in an :class:`~tacit.ExplorationFloor` (which does this by itself).

    A decision costs one choice of the policy, and its propensity ``draws`` more.

    Parameters
    ----------
    policy : Policy
        The policy that chooses; it shows one arm or two.
    draws : int, default 16
        Number of candidates; from 1 to 10,000.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range, or the policy shows a list.

    Examples
    --------
    >>> import tacit
    >>> policy = tacit.policies.Candidates(tacit.policies.baselines.DoubleThompsonSampling(arms=3), draws=8)
    >>> decision = tacit.Learner(policy, seed=1).choose("query")
    >>> decision.propensity * 8 in range(1, 9)
    True
    """

    class State(NamedTuple):
        policy: Any
        past: HistoryHash

    about: ClassVar[About] = About(
        source="ours",
        regret="that of the policy",
        assumes="what the policy assumes",
        fails="what goes wrong for the policy; arms that are no candidate have no propensity",
        otherwise="an ExplorationFloor, which makes them by itself and gives all arms one",
    )

    arms: Any = field(init=False, repr=False, compare=False)
    policy: Annotated[Policy, require_no_list]
    draws: Annotated[int, int_range(1, 10_000)] = 16

    def __post_init__(self) -> None:
        """Validate the hyperparameters; take arms and kind of action from the wrapped policy."""
        super().__post_init__()
        self._copy_fields("arms", "shows")

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance over LogisticTS, with ``dim`` features."""
        return cls(LogisticTS.example(arms, dim))

    def init(self, lanes: int) -> State:
        """Return the wrapped policy's initial state and empty history hashes."""
        return self.State(self.policy.init(lanes), HistoryHash(np.zeros(lanes, np.int64)))

    @staticmethod
    def observe(params: Candidates, state: State, lane: int, impression: Impression) -> None:
        """Add an event to the lane's history hash, and let the wrapped policy observe the impression."""
        update_history(state.past, lane, 1)
        observe(params.policy, state.policy, lane, impression)

    @staticmethod
    def choose(params: Candidates, state: State, lane: int, impression: Impression, rng: Generator) -> Any:
        """Draw one of the candidates uniformly, and return its choice; the other candidates are not computed.

        A candidate's random numbers follow from the lane's history and the candidate's number.
        """
        candidate_rng = derive_generator(state.past.code[lane], lane, int(rng.random() * params.draws))
        return choose(params.policy, state.policy, lane, impression, candidate_rng)

    @staticmethod
    def decide(
        params: Candidates, state: State, lane: int, impression: Impression, rng: Generator, action: Ints
    ) -> None:
        """Draw one of the candidates uniformly, and fill ``action`` with its arms; for duels, as ``choose``
        for one arm.
        """
        candidate_rng = derive_generator(state.past.code[lane], lane, int(rng.random() * params.draws))
        decide(params.policy, state.policy, lane, impression, candidate_rng, action)

    @staticmethod
    def propensity(params: Candidates, state: State, lane: int, impression: Impression, shown: Any) -> float:
        """Return the share of candidates that choose ``shown``; all are computed again, with equal random
        numbers.
        """
        same = 0
        for candidate in range(params.draws):
            candidate_rng = derive_generator(state.past.code[lane], lane, candidate)
            if choose(params.policy, state.policy, lane, impression, candidate_rng) == shown:
                same += 1
        return same / params.draws

    @staticmethod
    def learn(params: Candidates, state: State, lane: int, outcome: Outcome) -> None:
        """Add the reward, in steps of 2⁻²⁰, to the lane's history hash, and let the wrapped policy learn the
        outcome.
        """
        update_history(state.past, lane, 2 + int(outcome.reward * STEPS_OF_REWARDS))
        learn(params.policy, state.policy, lane, outcome)

    @staticmethod
    def epoch(params: Candidates, state: State, lane: int) -> Any:
        """Return how often the wrapped policy has restarted the lane."""
        return epoch(params.policy, state.policy, lane)


# ---- An exploration floor under any policy, so that its log is fit for offline evaluation


@dataclass(frozen=True)
class ExplorationFloor(Wrapper):
    """Show a uniformly chosen arm with probability ε, otherwise the choice of another policy.

    Every arm on offer then has a propensity of at least ε/(number of arms on offer). It is
    reported exactly, for deterministic policies too: ε/(number of arms) + (1 − ε)·(the policy's
    own propensity, which is 1 for the choice of a deterministic policy). A policy that does not know
    its propensities, as those that draw all parameters from a posterior over features, makes
    :class:`~tacit.policies.Candidates`: the propensity of an arm is its share of the candidates. In a
    duel, both arms are chosen uniformly with probability ε, so that among n arms every pair
    (an arm against itself, too) has a propensity of at least ε/n².

    Parameters
    ----------
    policy : Policy
        The policy that chooses otherwise; it shows one arm or two.
    epsilon : float, default 0.05
        Probability of a uniform choice, in (0, 1].
    draws : int, default 16
        Number of candidates for a policy that does not know its propensity, up to 10,000. Each
        decision with a propensity costs as many choices, plus one. With 0 there are no candidates, and
        the propensity of decisions is None.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range, or the policy shows a list.

    Warns
    -----
    AssumptionWarning
        If the policy does not know its propensity and ``draws`` is 0, so that the log cannot be
        weighted.

    References
    ----------
    Strehl, Langford, Li, Kakade (2010), "Learning from logged implicit exploration data".

    Examples
    --------
    >>> import tacit
    >>> policy = tacit.ExplorationFloor(tacit.UCB1(arms=4), epsilon=0.2)
    >>> learner = tacit.Learner(policy, seed=1)
    >>> for _ in range(60):
    ...     decision = learner.choose("query")
    ...     _ = learner.learn(decision, reward=float(decision.arm == 2))
    >>> sorted({round(learner.choose("query").propensity, 3) for _ in range(50)})
    [0.05, 0.85]
    """

    class Params(NamedTuple):
        policy: Any
        epsilon: float
        width: int

    about: ClassVar[About] = About(
        source="Strehl, Langford, Li, Kakade (2010)",
        regret="that of the policy, plus ε·(mean gap) a round",
        assumes="what the policy assumes",
        fails="what goes wrong for the policy; the logged propensities stay right",
        otherwise="the policy alone, where nothing will be evaluated offline",
    )

    earlier: ClassVar[Mapping[str, Any]] = MappingProxyType({"draws": 0})

    arms: Any = field(init=False, repr=False, compare=False)
    policy: Annotated[Policy, require_no_list]
    epsilon: PositiveFraction = 0.05
    draws: Annotated[int, int_range(0, 10_000)] = 16

    def __post_init__(self) -> None:
        """Validate the hyperparameters; take arms and kind of action from the wrapped policy.

        Warns (AssumptionWarning) if the wrapped policy has a floor already or its propensities are not known.
        """
        super().__post_init__()
        self._copy_fields("arms", "shows")
        set_field(self, "randomized", self.knows_propensity)
        if type(self) is type(self.policy) is ExplorationFloor:
            warnings.warn(
                f"policy: it has a floor already, epsilon={self.policy.epsilon:g}, and explores by both; "
                "give the policy without it, and one epsilon",
                AssumptionWarning,
                stacklevel=3,
            )
        if not self.knows_propensity:
            warnings.warn(
                f"ExplorationFloor: {type(self.policy).__name__} does not know its propensity, so "
                "decisions carry none and their log cannot be weighted; leave draws at its default",
                AssumptionWarning,
                stacklevel=3,
            )

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance over UCB1; ``dim`` is ignored."""
        return cls(UCB1(arms))

    @cached_property
    def chooser(self) -> Policy:
        """The wrapped policy, or :class:`Candidates` over it if it does not know its propensities."""
        if self.policy.knows_propensity or not self.draws:
            return self.policy
        return Candidates(self.policy, self.draws)

    knows_propensity = delegate_property("knows_propensity", "chooser")
    forgets = delegate_property("forgets", "chooser")
    observes = delegate_property("observes", "chooser")
    sums = delegate_property("sums", "chooser")
    posterior = delegate_property("posterior", "chooser")
    read_unit = delegate_property("read_unit", "chooser")
    beliefs = delegate_property("beliefs", "chooser")
    reward_draws = delegate_property("reward_draws", "chooser")
    beliefs_in = delegate_property("beliefs_in", "chooser")
    restarts = delegate_property("restarts", "chooser")
    diagnostics = delegate_property("diagnostics", "chooser")

    @property
    def least_share(self) -> float:  # type: ignore[override]
        """Lower bound of (an arm's propensity) × (number of arms on offer): ε + (1 − ε)·(the inner policy's
        bound).
        """
        return self.epsilon + (1.0 - self.epsilon) * self.chooser.least_share

    @staticmethod
    def refit(params: Params, state: Any) -> None:
        """Let the inner policy recompute the values that follow from its sums, as after states were
        merged.
        """
        refit(params.policy, state)

    @cached_property
    def params(self) -> Params:
        """Numbers that the kernels read: the inner policy's, ε, and the number of arms in an action."""
        return self.Params(self.chooser.params, self.epsilon, self.action_width)

    def init(self, lanes: int) -> Any:
        """Return the inner policy's initial state; the floor has none of its own."""
        return self.chooser.init(lanes)

    def enrol(self, state: Any, lanes: int, known: int) -> None:
        """Initialise arms that were added, from index ``known`` on, in the inner policy's state."""
        enrol_arms(self.chooser, state, lanes, known)

    @staticmethod
    def observe(params: Params, state: Any, lane: int, impression: Impression) -> None:
        """Let the inner policy observe an impression before the choice."""
        observe(params.policy, state, lane, impression)

    @staticmethod
    def choose(params: Params, state: Any, lane: int, impression: Impression, rng: Generator) -> Any:
        """Return a uniformly drawn arm with probability ε, else the inner policy's choice."""
        arms = impression.arms
        if rng.random() < params.epsilon:
            return arms[int(rng.random() * len(arms))]
        return choose(params.policy, state, lane, impression, rng)

    @staticmethod
    def decide(
        params: Params, state: Any, lane: int, impression: Impression, rng: Generator, action: Ints
    ) -> None:
        """Fill ``action`` with uniformly drawn arms (probability ε), else with the inner policy's choice."""
        arms = impression.arms
        if rng.random() < params.epsilon:
            for i in range(len(action)):
                action[i] = arms[int(rng.random() * len(arms))]
        else:
            decide(params.policy, state, lane, impression, rng, action)

    @staticmethod
    def propensity(params: Params, state: Any, lane: int, impression: Impression, shown: Any) -> Any:
        """Return ε/(number of possible actions) + (1 − ε)·(the inner policy's propensity of ``shown``).

        There are (arms on offer) actions, or their square for duels.
        """
        inner = propensity(params.policy, state, lane, impression, shown)
        ways = float(len(impression.arms)) ** params.width
        return params.epsilon / ways + (1.0 - params.epsilon) * inner

    @staticmethod
    def count_open(params: Params, state: Any, lane: int, arm: int, hits: int, plays: int) -> None:
        """Let the inner policy add ``hits`` clicks and ``plays`` of decisions that are not learned yet."""
        count_open(params.policy, state, lane, arm, hits, plays)

    @staticmethod
    def learn(params: Params, state: Any, lane: int, outcome: Outcome) -> None:
        """Let the inner policy learn the outcome."""
        learn(params.policy, state, lane, outcome)

    @property
    def unlearns_exactly(self) -> bool:  # type: ignore[override]
        """Whether a learned reward can be replaced, which the inner policy decides."""
        return is_correctable(self.chooser)

    @staticmethod
    def unlearn(params: Params, state: Any, lane: int, outcome: Outcome) -> None:
        """Let the inner policy remove an outcome that it learned."""
        unlearn(params.policy, state, lane, outcome)

    @staticmethod
    def epoch(params: Params, state: Any, lane: int) -> Any:
        """Return how often the inner policy has restarted the lane."""
        return epoch(params.policy, state, lane)


# ---- Minimum probabilities for some arms


@dataclass(frozen=True)
class MinimumShares(ExplorationFloor):
    """Show some arms with at least a minimum probability each; otherwise follow another policy.

    An arm is shown with probability f + (1 − F)·p: f is its minimum share (0 if it has none), F the sum of
    shares over the arms on offer, p the probability with which an exploration floor over the policy shows
    it. Propensities are exact. The share of an arm that is not on offer goes to the policy.

    Parameters
    ----------
    policy : Policy
        The policy that chooses otherwise; it shows one arm, and knows arms by name.
    epsilon : float, default 0
        Probability of a uniform choice among the decisions without a share, in [0, 1].
    draws : int, default 16
        Number of candidates for a policy that does not know its propensity, up to 10,000; 0 for none.
    at_least : dict of arm to float
        Shares in (0, 0.5] of arms by their names; together at most 0.5.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range, an arm is not the policy's, or the policy shows no single arm.

    Examples
    --------
    >>> import tacit
    >>> arms = ["control", "new", "bold"]
    >>> policy = tacit.policies.MinimumShares(tacit.Thompson(arms), at_least={"control": 0.1, "new": 0.02})
    >>> learner = tacit.Learner(policy, seed=1)
    >>> for _ in range(500):
    ...     decision = learner.choose("query")
    ...     _ = learner.learn(decision, reward=float(decision.arm == "bold"))
    >>> sorted({round(decision.propensity, 2) for decision in learner.choose_many(["query"] * 500)})
    [0.02, 0.1, 0.88]
    """

    class Params(NamedTuple):
        policy: Any
        epsilon: float
        width: int
        shares: Floats

    promises: ClassVar[str] = "arm"
    """The kind of action that shares are of."""

    epsilon: Fraction = 0.0
    at_least: Any = ()

    def __post_init__(self) -> None:
        """Validate the hyperparameters; store the shares in the order of arm indices.

        Raises InvalidValue if the policy shows another kind of action or does not know arms by name.
        """
        super().__post_init__()
        if self.policy.shows != self.promises or self.policy.arms is None:
            remedy = f"give a policy that shows one {self.promises}, of an arm known by its name"
            raise InvalidValue("policy", self.policy, remedy)
        set_field(self, "at_least", check_shares(self.at_least, self.policy.arms))

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance over UCB1 in which arm 0 has a share of 0.1; ``dim`` is ignored."""
        return cls(UCB1(arms), at_least={0: 0.1})

    @cached_property
    def params(self) -> Any:
        """Numbers for the kernels: the inner policy's, ε, the arms in an action, and each arm's share."""
        shares_by_arm = dict(self.at_least)
        names = range(self.arm_count) if isinstance(self.arms, int) else self.arms
        shares = np.array([shares_by_arm.get(arm, 0.0) for arm in names])
        return self.Params(self.chooser.params, self.epsilon, self.action_width, shares)

    @property
    def covers_all(self) -> bool:
        """Whether each arm has a positive probability, whatever the policy chooses.

        That is so if ε is above 0 or all arms have a share.
        """
        return self.epsilon > 0.0 or len(self.at_least) == self.arm_count

    @property
    def least_share(self) -> float:  # type: ignore[override]
        """Lower bound of (an arm's propensity) × (number of arms on offer): (1 − sum of shares)·(the floor's
        bound).
        """
        remainder: float = 1.0 - sum(share for _, share in self.at_least)
        return remainder * super().least_share

    @staticmethod
    def choose(params: Any, state: Any, lane: int, impression: Impression, rng: Generator) -> Any:
        """Return an arm with the probability of its share, else the choice of an exploration floor.

        One uniform draw decides: each arm on offer takes an interval of its share, and ε of the remainder is
        uniform.
        """
        arms, reached, draw = impression.arms, 0.0, rng.random()
        for arm in arms:
            reached += params.shares[arm]
            if draw < reached:
                return arm
        if draw < reached + (1.0 - reached) * params.epsilon:
            return arms[int(rng.random() * len(arms))]
        return choose(params.policy, state, lane, impression, rng)

    decide = staticmethod(decide_arm)

    @staticmethod
    def propensity(params: Any, state: Any, lane: int, impression: Impression, shown: Any) -> Any:
        """Return the probability of the arm ``shown`` among the arms on offer.

        It is its share + (1 − shares on offer)·(its propensity under the exploration floor).
        """
        reached, arms = 0.0, impression.arms
        for arm in arms:
            reached += params.shares[arm]
        inner = propensity(params.policy, state, lane, impression, shown)
        policy_share = params.epsilon / len(arms) + (1.0 - params.epsilon) * inner
        return params.shares[shown] + (1.0 - reached) * policy_share


@kernel
def pair_probability(
    params: Any, state: Any, lane: int, impression: Impression, left: int, right: int
) -> float:
    """Return the probability that an exploration floor over the policy shows the ordered pair (``left``,
    ``right``).
    """
    inner = propensity(params.policy, state, lane, impression, (left, right))
    return float(params.epsilon / len(impression.arms) ** 2 + (1.0 - params.epsilon) * inner)


@dataclass(frozen=True)
class MinimumDuelShares(MinimumShares):
    """Include some arms in duels with at least a minimum probability each; otherwise follow another policy.

    An exploration floor over the policy draws two arms. With probability of its share, an arm that is none
    of the two replaces one of them, each with probability ½; so its opponent is mostly the leader.
    Propensities are exact. The share of an arm that is not on offer goes to the policy.

    Parameters
    ----------
    policy : Policy
        The policy that chooses otherwise; it shows a duel.
    epsilon : float, default 0
        Probability of two arms drawn uniformly, in [0, 1].
    draws : int, default 16
        Number of candidates for a policy that does not know its propensity, up to 10,000; 0 for none.
    at_least : dict of arm to float
        Shares in (0, 0.5] of arms by their names; together at most 0.5.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range, an arm is not the policy's, or the policy shows no duel.

    Examples
    --------
    >>> import tacit
    >>> from tacit.policies import MinimumDuelShares
    >>> policy = MinimumDuelShares(tacit.HorizonDraw(["old", "new", "bold"]), at_least={"old": 0.2})
    >>> learner = tacit.Learner(policy, seed=1)
    >>> for _ in range(3000):
    ...     decision = learner.choose("query")
    ...     first, second = decision.pair
    ...     _ = learner.learn(decision, 0.5 + 0.5 * ((first == "bold") - (second == "bold")))
    >>> shown = [decision.pair for decision in learner.choose_many(["query"] * 1000)]
    >>> sum("old" in pair for pair in shown) >= 170
    True
    """

    class Params(NamedTuple):
        policy: Any
        epsilon: float
        width: int
        shares: Floats

    promises: ClassVar[str] = "duel"

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance over HorizonDraw in which arm 0 has a share of 0.1; ``dim`` is ignored."""
        return cls(HorizonDraw(arms), at_least={0: 0.1})

    @staticmethod
    def decide(
        params: Any, state: Any, lane: int, impression: Impression, rng: Generator, action: Ints
    ) -> None:
        """Fill ``action`` with the exploration floor's duel, or with that duel after one arm is replaced.

        An arm is drawn with the probability of its share. If it is none of the two, it replaces one of them,
        each with probability ½.
        """
        arms, reached, draw = impression.arms, 0.0, rng.random()
        if rng.random() < params.epsilon:
            for i in range(2):
                action[i] = arms[int(rng.random() * len(arms))]
        else:
            decide(params.policy, state, lane, impression, rng, action)
        for arm in arms:
            reached += params.shares[arm]
            if draw < reached:
                if action[0] != arm and action[1] != arm:
                    action[int(rng.random() * 2)] = arm
                return

    @staticmethod
    def propensity(params: Any, state: Any, lane: int, impression: Impression, shown: Any) -> Any:
        """Return the probability of the ordered pair ``shown``.

        It sums the ways to this pair: the exploration floor draws it and no arm replaces one of the two, or
        the floor draws another pair and an arm of ``shown`` replaces one of its arms.
        """
        arms, shares = impression.arms, params.shares
        left_arm, right_arm = shown[0], shown[1]
        pair_share = shares[left_arm] + (shares[right_arm] if right_arm != left_arm else 0.0)
        unreserved, probability = 1.0 + pair_share, 0.0
        for arm in arms:
            unreserved -= shares[arm]
        probability = unreserved * pair_probability(params, state, lane, impression, left_arm, right_arm)
        if left_arm != right_arm and pair_share > 0.0:
            # An arm with a share may have replaced any other arm of the pair.
            for arm in arms:
                if arm != left_arm:
                    probability += (
                        0.5
                        * shares[left_arm]
                        * pair_probability(params, state, lane, impression, arm, right_arm)
                    )
                if arm != right_arm:
                    probability += (
                        0.5
                        * shares[right_arm]
                        * pair_probability(params, state, lane, impression, left_arm, arm)
                    )
        return probability
