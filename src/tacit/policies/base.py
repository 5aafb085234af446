"""The base class of policies: frozen hyperparameters, a state of arrays, and kernels."""

# 1. ``Impression`` and ``Outcome``: a kernel's input to decide and to learn.
# 2. ``Counts`` and ``ArmBeliefs``: the state of many policies, and beliefs about arms for reports.
# 3. ``About``: source, bound, assumptions, alternatives; each policy fills it in.
# 4. ``Policy``: hyperparameters, inputs and actions of a policy, then its kernels; their defaults before it.
# 5. ``is_correctable`` to ``enrol_arms``: what a policy can do beyond deciding and learning.

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core import checks, dispatch
from tacit.core.arrays import Floats, Generator, Ints, byte_count
from tacit.core.part import Part, set_field
from tacit.core.reward_range import UNIT_RANGE, RewardRange, read_range
from tacit.core.state_ranges import Count
from tacit.core.text import html_table
from tacit.errors import InvalidValue
from tacit.policies.action_kind import ActionKind, get_action_kind
from tacit.policies.context import Schema

ADDED_LATER = MappingProxyType({"later": True})
"""Metadata of fields added in later versions, such as ``priors``: a spec omits them at their default."""
NO_FEATURES = np.zeros((0, 0))


class Impression(NamedTuple):
    """The arms on offer for one decision, with context and features, as kernels see them.

    Attributes
    ----------
    arms : array of int64, shape (offered,)
        Indices of the arms on offer.
    context : array of float64, shape (context_dim,)
        Signals about the key.
    relevance, examination : array of float64, shape (offered, d)
        Features of the arms on offer: of their relevance, and of how likely they are to be seen;
        of shape (0, 0) if there are none.
    """

    arms: Ints
    context: Floats
    relevance: Floats = NO_FEATURES
    examination: Floats = NO_FEATURES


class Outcome(NamedTuple):
    """A decision and its reward, as kernels see them.

    Attributes
    ----------
    impression : Impression
    shown : int, (int, int) or array of int64, shape (positions,)
        The index of the arm, the two of a duel, or those of a slate, where −1 is an empty position.
    reward : float or array of float64, shape (positions,)
        The reward in [0, 1]; for a slate, one for each position.
    propensity : float
        The probability of this action; NaN if the policy does not learn from it.
    """

    impression: Impression
    shown: Any
    reward: Any
    propensity: float


@dispatch.kernel
def make_outcome(
    params: Any, impression: Impression, action: Ints, feedback: Floats, propensity: float
) -> Outcome:
    """Return an ``Outcome`` for ``learn``: arm indices (``action``) and rewards (``feedback``) in the form
    that the policy reads.
    """
    choice = dispatch.shown_in(params, action)
    return Outcome(impression, choice, dispatch.reward_in(params, feedback), propensity)


class Counts(NamedTuple):
    """Plays and rewards per arm, and rounds per lane: the state of many policies.

    A lane is the row of one key.

    Attributes
    ----------
    plays, rewards : array of float64, shape (lanes, arms)
    rounds : array of float64, shape (lanes,)
    """

    plays: Count
    rewards: Floats
    rounds: Count

    @classmethod
    def zeros(cls, lanes: int, arms: int) -> Counts:
        """Return counts of zero plays, rewards and rounds for ``lanes`` lanes and ``arms`` arms."""
        return cls(np.zeros((lanes, arms)), np.zeros((lanes, arms)), np.zeros(lanes))


class ArmBeliefs(NamedTuple):
    """A policy's beliefs about its arms for one key; each array is of shape (arms,).

    Attributes
    ----------
    plays, means : array of float64
        As far as the policy remembers; the mean, in [0, 1], is NaN for an arm without data.
    successes, failures : array of float64
        Parameters of the Beta posterior of each mean reward.
    """

    plays: Floats
    means: Floats
    successes: Floats
    failures: Floats

    @classmethod
    def from_counts(cls, plays: Floats, rewards: Floats) -> ArmBeliefs:
        """Return the beliefs that follow from plays and rewards per arm, with a uniform Beta(1, 1) prior.

        Rewards are clipped to [0, plays]; the mean of an arm without plays is NaN.
        """
        positive_plays = np.where(plays > 0, plays, np.nan)
        clicks = np.clip(rewards, 0.0, plays)
        return cls(plays.copy(), clicks / positive_plays, clicks + 1.0, plays - clicks + 1.0)

    @classmethod
    def from_posteriors(cls, plays: Floats, successes: Floats, failures: Floats) -> ArmBeliefs:
        """Return the beliefs of Beta(``successes``, ``failures``) posteriors, with their means."""
        return cls(plays, successes / (successes + failures), successes, failures)


@dispatch.kernel
def count(state: Counts, lane: int, arm: int, reward: float) -> None:
    """Add one play and its reward to an arm's counts, and one round to the lane."""
    state.rounds[lane] += 1.0
    state.plays[lane, arm] += 1.0
    state.rewards[lane, arm] += reward


@dispatch.kernel
def uncount(state: Counts, lane: int, arm: int, reward: float) -> None:
    """Undo :func:`count`: remove one play and its reward from an arm's counts, and one round from the
    lane.
    """
    state.rounds[lane] -= 1.0
    state.plays[lane, arm] -= 1.0
    state.rewards[lane, arm] -= reward


@dispatch.kernel
def forget(state: Counts, lane: int) -> None:
    """Set plays, rewards and rounds of a lane to zero."""
    state.rounds[lane] = 0.0
    state.plays[lane, :] = 0.0
    state.rewards[lane, :] = 0.0


class About(NamedTuple):
    """A policy's source, guarantees and assumptions.

    Attributes
    ----------
    source : str
        Paper and algorithm.
    regret : str
        Known regret bound.
    assumes : str
        Conditions of that bound.
    fails : str
        How the policy fails if they do not hold.
    otherwise : str
        Policy to use then.
    suits : str
        Problems for which it is recommended, and why.
    weak : str
        Problems where another, tuned policy has less regret, with measured numbers.
    """

    source: str
    regret: str
    assumes: str
    fails: str = ""
    otherwise: str = ""
    suits: str = ""
    weak: str = ""


# ---- Default kernels of policies


def observe_nothing(params: Any, state: Any, lane: int, impression: Impression) -> None:
    """Do nothing: by default, an impression does not change the state before the choice."""


def count_nothing_open(params: Any, state: Any, lane: int, arm: int, hits: int, plays: int) -> None:
    """Do nothing: by default, decisions that are not learned yet do not count."""


def never_restart(params: Any, state: Any, lane: int) -> int:
    """Return 0: the policy has not restarted the lane."""
    return 0


def refit_nothing(params: Any, state: Any) -> None:
    """Do nothing: by default, no values follow from sums that were merged, or from arms that were added."""


def decide_arm(
    params: Any, state: Any, lane: int, impression: Impression, rng: Generator, action: Ints
) -> None:
    """Fill ``action``, in place, with the one arm that ``choose`` returns."""
    action[0] = dispatch.choose(params, state, lane, impression, rng)


def decide_then_weigh(
    params: Any, state: Any, lane: int, impression: Impression, rng: Generator, action: Ints
) -> float:
    """Fill ``action``, in place, by ``decide`` and return the ``propensity`` of this action."""
    dispatch.decide(params, state, lane, impression, rng, action)
    return dispatch.propensity(  # type: ignore[no-any-return]
        params, state, lane, impression, dispatch.shown_in(params, action)
    )


def read_first(params: Any, row: Any) -> Any:
    """Return the first entry of a row: the one arm of an action, or its reward."""
    return row[0]


def read_row(params: Any, row: Any) -> Any:
    """Return the row itself: the arms of a list, or its rewards by position."""
    return row


registry: dict[str, type[Policy]] = {}
"""Every policy class that has been defined, by its canonical name."""


@dataclass(frozen=True)
class Policy(Part, abstract=True):
    """Base of all policies: hyperparameters that are frozen, validated, hashable and printable.

    A subclass is a frozen dataclass with a nested named tuple ``State`` (arrays with a leading
    lane axis, one lane per key; the axis has length 1 in an array that all keys share), the method
    :meth:`init`, and the static methods ``choose`` and ``learn``, whose ``params`` have the fields
    that are numbers (:class:`~tacit.core.part.Part`). A policy shows one arm; see
    :mod:`tacit.policies.actions` for others.

    Further static methods are optional. ``observe(params, state, lane, impression)`` updates a lane before
    the choice. ``epoch(params, state, lane)`` returns how often the policy has restarted a lane.
    ``refit(params, state)`` recomputes values that follow from shared sums, after sums were merged or arms
    added. ``count_open(params, state, lane, arm, hits, plays)`` adds clicks (``hits``) and plays of decisions
    not yet learned, in units of 1/1024; negative numbers remove them.
    ``unlearn(params, state, lane, outcome)`` removes an outcome whatever was learned since, for statistics
    that are sums. For policies that others restart,
    ``restart(params, state, lane)`` forgets everything, and ``estimate(params, state, lane, arm)``
    returns the mean reward of an arm so far, 0 before its first play.
    ``decide(params, state, lane, impression, rng, action)`` fills ``action`` with the indices of the arms to
    show; ``decide_and_weigh``, of the same parameters, also returns the propensity, if that is less work
    than one after the other.
    The method ``enrol(state, lanes, known)`` initialises new arms, from index ``known`` on, in the first
    ``lanes`` lanes, which have learned; the new part of each array is as :meth:`init` returns it.
    The method ``advise(relevance, examination)`` warns if these features of arms cannot determine the
    policy's parameters. The method ``beliefs(state, lane)`` returns :class:`ArmBeliefs`, for
    ``Learner.estimates``. In a policy that reads features, ``reward_draws(state, lane, impression, rng,
    draws)`` returns draws of the mean reward of each arm on offer, of shape (draws, offered).

    Parameters
    ----------
    arms : int or sequence of str
        Number of arms, or their names.
    reward_range : (float, float), (float, None) or None, default (0, 1)
        The lowest and the highest reward there can be; None where there is no bound. The state holds
        rewards in [0, 1]; only a policy that :attr:`takes_open_ranges` has one without a highest reward.

    Raises
    ------
    InvalidValue
        If a hyperparameter is out of its range.
    """

    shows: ClassVar[str] = "arm"
    """The kind of action: an ``arm``, a ``duel`` of two arms, or a ``slate``; see :attr:`showing`."""
    about: ClassVar[About] = About("", "", "")
    kernels: ClassVar[tuple[Any, ...]] = dispatch.POLICY_KERNELS
    defaults: ClassVar[dict[str, Any]] = {
        "observe": observe_nothing,
        "count_open": count_nothing_open,
        "epoch": never_restart,
        "refit": refit_nothing,
        "decide": decide_arm,
        "decide_and_weigh": decide_then_weigh,
        "shown_in": read_first,
        "reward_in": read_first,
    }
    named: ClassVar[dict[str, Any]] = registry
    randomized: ClassVar[bool] = True
    """Whether ``propensity`` may be logged; a deterministic policy's decisions carry null."""
    begins_in_turn: ClassVar[bool] = False
    """Whether a new key is shown the arms in their order, as the policy's schedule requires."""
    remembers: ClassVar[str] = ""
    """What ``decide`` stores of a decision for ``learn``, in words; empty if nothing. A log does not hold it,
    so the state cannot be rebuilt from a log, and the service refuses such a policy."""
    sums: ClassVar[tuple[str, ...]] = ()
    """Dotted names of the shared arrays of the state (or tuples of arrays) that are sums over rewards:
    to merge learners, these are added up, and then :meth:`refit` is called."""
    earlier: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Defaults of earlier versions that differ from today's; stored policies of these versions keep them."""

    context_dim = 0
    """Length of the context that the policy reads; 0 if it reads none."""
    schema: ClassVar[Schema] = ()
    """Schema of contexts that are dicts; empty if contexts are numbers."""
    learns_seen: ClassVar[bool] = False
    """Whether the policy learns from feedback on which results were seen."""
    action_width: ClassVar[int] = 1
    """Number of arm indices in an action."""
    feedback_width: ClassVar[int] = 1
    """Number of rewards for an action."""
    least_share: ClassVar[float] = 0.0
    """Lower bound of the propensity of any arm on offer, times the number of arms on offer; for a duel,
    times the number of pairs. Estimators that weigh by propensities refuse smaller ones. 0: no guarantee."""

    keeps_repr: ClassVar[bool] = True
    takes_open_ranges: ClassVar[bool] = False
    """Whether ``learn`` takes rewards of a range without a highest one."""
    unlearns_exactly: ClassVar[bool] = True
    """Whether ``unlearn``, if the policy has it, removes an outcome that was learned."""
    weak_with: ClassVar[dict[str, str]] = {}
    """Further problems where another policy has less regret if a field is set, by the field."""

    arms: Annotated[Any, checks.arms]
    reward_range: Annotated[Any, read_range] = field(default=UNIT_RANGE, kw_only=True, metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        """Validate the hyperparameters; take the reward range from the wrapped policy, if there is one.

        Raises InvalidValue for a reward range that the policy or the wrapped policy cannot learn from.
        """
        super().__post_init__()
        inner = getattr(self, "policy", None)
        if isinstance(inner, Policy) and self.reward_range in (UNIT_RANGE, inner.reward_range):
            set_field(self, "reward_range", inner.reward_range)
        elif isinstance(inner, Policy):
            raise InvalidValue("reward_range", self.reward_range, f"give it to {type(inner).__name__} alone")
        elif self.reward_range.is_open and not self.takes_open_ranges:
            remedy = f"{type(self).__name__} must know the highest reward: give (lowest, highest); for named"
            raise InvalidValue("reward_range", self.reward_range.text, f"{remedy} arms, auto needs none")
        elif self.showing.compared and self.reward_range != UNIT_RANGE:
            remedy = "leave it out: of a duel, the reward is 1 if the left arm won, else 0"
            raise InvalidValue("reward_range", self.reward_range.text, remedy)

    def __repr__(self) -> str:
        """Return the policy as a call, without fields of later versions that have their default."""
        settings = (
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if field.repr and not (field.metadata.get("later") and getattr(self, field.name) == field.default)
        )
        return f"{type(self).__name__}({', '.join(settings)})"

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance for warm-up, measurements, tests and the tables of the docs.

        Parameters
        ----------
        arms : int, default 2
            Number of arms.
        dim : int, default 1
            Length of a context, or number of features of each kind, if the policy reads any.
        """
        return cls(arms)

    def with_arms(self, arms: Any) -> Self:
        """Return the policy with the same hyperparameters over other arms (a number or names)."""
        return self if arms == self.arms else replace(self, arms=arms)

    def with_range(self, reward_range: Any) -> Self:
        """Return a copy of the policy, and of the policy that it wraps, for another range of rewards.

        Raises InvalidValue if the policy cannot learn rewards of this range.
        """
        if read_range("reward_range", reward_range) == self.reward_range:
            return self
        inner = getattr(self, "policy", None)
        wrapped = {"policy": inner.with_range(reward_range)} if isinstance(inner, Policy) else {}
        return replace(self, reward_range=reward_range, **wrapped)

    @property
    def arm_count(self) -> int:
        """Number of arms."""
        return self.arms if isinstance(self.arms, int) else len(self.arms)

    @property
    def feature_dims(self) -> tuple[int, int]:
        """Number of relevance and of examination features per arm; 0 if the policy reads none."""
        return getattr(self, "relevance_dim", 0), getattr(self, "examination_dim", 0)

    @property
    def observes(self) -> bool:
        """True if ``observe`` is called before each choice, as it may change the state."""
        return hasattr(self, "observe")

    @property
    def label(self) -> str:
        """The class name, with the hyperparameters that differ from their defaults, but without the arms."""
        settings = [
            _format_setting(f.name, value)
            for f in fields(self)
            for value in [getattr(self, f.name)]
            if f.name != "arms" and value != f.default
        ]
        return type(self).__name__ + (f"({', '.join(settings)})" if settings else "")

    @property
    def reads(self) -> str:
        """Inputs that the policy reads apart from key and arms, in words; empty if there are none.

        Examples
        --------
        >>> import tacit
        >>> tacit.auto(arms=3, context={"age": "number", "device": ["ios", "web"]}).reads
        'a context of age, device; one model for all keys, levels of arms by key'
        >>> tacit.auto(arms=3, signals_dim=2).reads
        'signals, 2 numbers given as context'
        """
        fields = ", ".join(name for name, _ in self.schema)
        inputs = [f"a context of {fields or f'{self.context_dim} numbers'}"] if self.context_dim else []
        for what, dim in zip(("relevance", "examination"), self.feature_dims, strict=True):
            inputs += [f"{what} of each arm, {dim} numbers"] if dim else []
        return "; ".join(inputs)

    @property
    def key_bytes(self) -> int:
        """Bytes of state for each key, without the state that all keys share.

        Examples
        --------
        >>> import tacit
        >>> tacit.ContextMixture(10, 64).key_bytes, tacit.ContextMixture(10, 64, per_key=True).key_bytes
        (161, 100216)
        """
        return byte_count(self.init(2)) - byte_count(self.init(1))

    def _repr_html_(self) -> str:
        """Return an HTML table of the arms and of the lines of :attr:`reason`, for notebooks."""
        arms = self.arms if isinstance(self.arms, int) else ", ".join(map(str, self.arms or ()))
        first, *lines = self.reason.splitlines()
        entries = [line.strip().partition("  ") for line in lines]
        rows = [("arms", arms or "known by features"), *((word, text.strip()) for word, _, text in entries)]
        return html_table([{"": word, first: text} for word, text in rows])

    @property
    def reason(self) -> str:
        """Text: why to use the policy, its assumptions, and what to use if they do not hold.

        Examples
        --------
        >>> import tacit
        >>> print(tacit.UCB1(arms=3).reason)
        UCB1, of Auer, Cesa-Bianchi, Fischer (2002), figure 1
          assumes  click probabilities that never change
          if not   goes on showing what was best for long after a shift
          instead  EXP3S, or Thompson with a discount, where intent shifts
        """
        about = self.about
        weaknesses = [text for field, text in self.weak_with.items() if getattr(self, field)]
        lines = {
            "reads": self.reads,
            "suits": about.suits,
            "assumes": about.assumes,
            "if not": about.fails,
            "weak": "; ".join([about.weak, *weaknesses]),
            "instead": about.otherwise,
        }
        rows = [f"  {word:<7}  {text}" for word, text in lines.items() if text]
        return "\n".join([f"{self.label}, of {about.source}", *rows])

    def init(self, lanes: int) -> Any:
        """Return the initial state of ``lanes`` lanes; ``lanes`` may be 0.

        The base class raises InvalidValue.
        """
        name = f"{type(self).__name__}.init"
        raise InvalidValue(name, None, "define init(self, lanes), which returns its State")

    @staticmethod
    def choose(params: Any, state: Any, lane: int, impression: Impression, rng: Generator) -> Any:
        """Return the index of the chosen arm; for a duel, two. The state is not changed."""
        raise NotImplementedError("define choose, a @staticmethod")

    @staticmethod
    def learn(params: Any, state: Any, lane: int, outcome: Outcome) -> None:
        """Update one lane of the state, in place, with the outcome of a decision."""
        raise NotImplementedError("define learn, a @staticmethod")

    @staticmethod
    def propensity(params: Any, state: Any, lane: int, impression: Impression, shown: Any) -> float:
        """Return the probability that :meth:`choose` returns the action ``shown``.

        By default NaN, for unknown.
        """
        return math.nan

    @property
    def showing(self) -> ActionKind:
        """The :class:`ActionKind` record of the action that the policy takes (one arm, a duel or a list)."""
        return get_action_kind(self.shows)

    @property
    def knows_propensity(self) -> bool:
        """Whether the policy can compute the probability of each choice, logged or not."""
        return type(self).propensity is not Policy.propensity

    @property
    def forgets(self) -> bool:
        """Whether beliefs about arms may rest on fewer rewards than were learned, as after restarts or
        discounts.
        """
        return hasattr(self, "epoch") or hasattr(self, "beliefs")


def read_unit(policy: Policy, state: Any) -> RewardRange:
    """Return the range of rewards whose ends are 0 and 1 in a state of the policy.

    It is the policy's range, except for an open one: that is as wide as the largest reward so far requires,
    and open before the first reward.
    """
    unit = policy.reward_range
    return policy.read_unit(state) if unit.is_open else unit  # type: ignore[attr-defined,no-any-return]


def _format_setting(name: str, value: Any) -> str:
    """Return a hyperparameter as ``name=value`` for a label.

    A nested policy becomes its label alone, another dataclass its class name alone.
    """
    if isinstance(value, Policy):
        return value.label
    if isinstance(value, RewardRange):
        return f"{name}={value.text}"
    if is_dataclass(value):
        return type(value).__name__
    if value and isinstance(value, tuple) and all(isinstance(pair, tuple) for pair in value):
        # Values by arm are shown as a dict, as users write them.
        value = {arm: numbers[0] if len(numbers) == 1 else numbers for arm, *numbers in value}
    return f"{name}={value:g}" if type(value) in (int, float) else f"{name}={value}"


# ---- What a policy can do beyond deciding and learning: corrections, propensities, logs, new arms


def is_correctable(policy: Policy) -> bool:
    """True if a learned reward can be replaced by another one, by ``unlearn`` and then ``learn``.

    A subclass that defines ``learn`` must define ``unlearn``, too: an inherited one would not undo it.
    """
    if not (hasattr(policy, "unlearn") and policy.unlearns_exactly):
        return False
    classes = type(policy).__mro__
    unlearner, learner = (next(c for c in classes if name in vars(c)) for name in ("unlearn", "learn"))
    return issubclass(unlearner, learner)


def can_weigh_places(policy: Policy) -> bool:
    """True if the policy shows lists and can compute the probability of each arm at each position.

    The kernels ``placed`` and ``cells`` do so.
    """
    return hasattr(policy, "placed") and hasattr(policy, "cells")


def describe_propensities(policy: Policy) -> str:
    """Return how the propensities of a policy's decisions are known, as a word or two.

    ``exact``: decisions carry them. ``exact in a floor``: the choice is deterministic, so they are
    null, except under an :class:`~tacit.ExplorationFloor`. ``drawn in a floor``: they are not
    known, but an exploration floor draws candidates that make them exact. ``null``: they are
    not known.
    """
    if policy.randomized and policy.knows_propensity:
        return "exact"
    if policy.showing.listed:
        return "null"
    return "exact in a floor" if policy.knows_propensity else "drawn in a floor"


def check_folds(policy: Policy) -> None:
    """Raise if a policy cannot learn its decisions from a log.

    Raises
    ------
    InvalidValue
        If it :attr:`~tacit.Policy.remembers` something about its decisions.
    """
    if policy.remembers:
        remedy = "give one that learns from what was shown alone, as CascadeKLUCB or PBMUCB do"
        why = f"it remembers {policy.remembers}, which no log holds"
        raise InvalidValue("policy", policy, f"{why}; {remedy}")


def enrol_arms(policy: Policy, state: Any, lanes: int, known: int) -> None:
    """Initialise arms that were added to lanes that have learned, by the policy's ``enrol`` if it has one.

    Without ``enrol``, new arms stay as ``init`` returns them.

    Parameters
    ----------
    policy : Policy
    state : State
        State of this policy; the new part of each array is as ``init`` returns it.
    lanes : int
        Number of lanes that have learned.
    known : int
        Number of arms before; arms from this index on are new.
    """
    if hasattr(policy, "enrol"):
        policy.enrol(state, lanes, known)
