"""What every policy is: frozen hyperparameters, a state of arrays, and kernels."""

# 1. ``Impression`` and ``Outcome``: what a kernel is given to decide and to learn.
# 2. ``Counts`` and ``ArmBeliefs``: the state that many policies have, and what one believes for those who
#    look.
# 3. ``About``: source, bound, assumptions, what to use instead; each policy fills it in.
# 4. ``Policy``: hyperparameters, what a policy reads and shows, then its kernels, each with what it is by
#    default.

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core import checks, dispatch
from tacit.core.arrays import Floats, Generator, Ints, byte_count
from tacit.core.part import Part
from tacit.core.state_ranges import Count
from tacit.core.text import html_table
from tacit.errors import InvalidValue
from tacit.policies.action_kind import Shows, shows_of
from tacit.policies.context import Declared

NO_FEATURES = np.zeros((0, 0))


class Impression(NamedTuple):
    """One chance to show something, as kernels see it.

    Attributes
    ----------
    arms : array of int64, shape (offered,)
        Slots of the arms on offer.
    context : array of float64, shape (context_dim,)
        Signals about the key.
    relevance, examination : array of float64, shape (offered, d)
        Features of the arms on offer that speak of their relevance, and of how likely they are
        to be seen; of shape (0, 0) where there are none.
    """

    arms: Ints
    context: Floats
    relevance: Floats = NO_FEATURES
    examination: Floats = NO_FEATURES


class Outcome(NamedTuple):
    """What came of a decision, as kernels see it.

    Attributes
    ----------
    impression : Impression
    shown : int, (int, int) or array of int64, shape (positions,)
        The slot of an arm, those of a duel, or those of a slate, where −1 is an empty position.
    reward : float or array of float64, shape (positions,)
        The reward in [0, 1]; a slate's, one for each position.
    propensity : float
        The probability of showing just that; NaN where the policy does not learn from it.
    """

    impression: Impression
    shown: Any
    reward: Any
    propensity: float


@dispatch.kernel
def outcome_of(
    params: Any, impression: Impression, action: Ints, feedback: Floats, propensity: float
) -> Outcome:
    """Return the outcome of a decision from its row of slots and its row of feedback."""
    shown = dispatch.shown_in(params, action)
    return Outcome(impression, shown, dispatch.reward_in(params, feedback), propensity)


class Counts(NamedTuple):
    """Plays and rewards per arm, and rounds per lane: the state of many policies.

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
        """Return the counts of lanes that have seen nothing."""
        return cls(np.zeros((lanes, arms)), np.zeros((lanes, arms)), np.zeros(lanes))


class ArmBeliefs(NamedTuple):
    """What a policy believes of its arms for one key; each array is of shape (arms,).

    Attributes
    ----------
    plays, means : array of float64
        As far as it remembers; the mean, in [0, 1], is NaN where nothing is known.
    successes, failures : array of float64
        Parameters of the Beta posterior of each mean reward.
    """

    plays: Floats
    means: Floats
    successes: Floats
    failures: Floats

    @classmethod
    def of_counts(cls, plays: Floats, rewards: Floats) -> ArmBeliefs:
        """Return what follows from counts alone, with a uniform prior."""
        known = np.where(plays > 0, plays, np.nan)
        clicks = np.clip(rewards, 0.0, plays)
        return cls(plays.copy(), clicks / known, clicks + 1.0, plays - clicks + 1.0)

    @classmethod
    def of_posteriors(cls, plays: Floats, successes: Floats, failures: Floats) -> ArmBeliefs:
        """Return what Beta posteriors say, with their means."""
        return cls(plays, successes / (successes + failures), successes, failures)


@dispatch.kernel
def count(state: Counts, lane: int, arm: int, reward: float) -> None:
    """Add one play and its reward."""
    state.rounds[lane] += 1.0
    state.plays[lane, arm] += 1.0
    state.rewards[lane, arm] += reward


@dispatch.kernel
def uncount(state: Counts, lane: int, arm: int, reward: float) -> None:
    """Take out one play and its reward."""
    state.rounds[lane] -= 1.0
    state.plays[lane, arm] -= 1.0
    state.rewards[lane, arm] -= reward


@dispatch.kernel
def forget(state: Counts, lane: int) -> None:
    """Set the counts of a lane to zero."""
    state.rounds[lane] = 0.0
    state.plays[lane, :] = 0.0
    state.rewards[lane, :] = 0.0


class About(NamedTuple):
    """What a policy rests on.

    Attributes
    ----------
    source : str
        Paper and algorithm.
    regret : str
        Known regret bound.
    assumes : str
        What must hold for that bound.
    fails : str
        What goes wrong when it does not.
    otherwise : str
        What to use then.
    suits : str
        For what it is recommended, and why.
    weak : str
        Where another policy, tuned, has less regret, and by how much: measured.
    """

    source: str
    regret: str
    assumes: str
    fails: str = ""
    otherwise: str = ""
    suits: str = ""
    weak: str = ""


registry: dict[str, type[Policy]] = {}
"""Every policy class that has been defined, by its canonical name."""


@dataclass(frozen=True)
class Policy(Part, abstract=True):
    """Base of all policies: hyperparameters that are frozen, validated, hashable and printable.

    A subclass is a frozen dataclass with a nested named tuple ``State`` (arrays with a leading
    lane axis; of 1, whatever the number of lanes, where all keys share an array), the method
    :meth:`init`, and the static methods ``choose`` and ``learn``, whose ``params`` have the fields
    that are numbers (:class:`~tacit.core.part.Part`). ``observe``, ``propensity``, ``epoch`` and
    ``refit`` have defaults. What it shows is one arm; see :mod:`tacit.policies.actions` for more.

    Further static methods are optional: ``unlearn(params, state, lane, outcome)`` takes
    an outcome out again, whatever was learned since, for statistics that are sums;
    ``restart(params, state, lane)`` forgets all, and ``estimate(params, state, lane, arm)`` returns
    the mean reward of an arm so far, 0 before its first play, for policies that others restart.
    ``decide_and_weigh(params, state, lane, impression, rng, action)`` decides and returns the propensity,
    where that is less work than one after the other.
    A method ``beliefs(state, lane)`` returns :class:`ArmBeliefs`, for ``Learner.estimates``; of a
    policy that reads features, ``reward_draws(state, lane, impression, rng, draws)`` returns draws
    of the mean reward of each arm on offer, of shape (draws, offered).

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.

    Raises
    ------
    InvalidValue
        If a hyperparameter is out of its range.
    """

    shows: ClassVar[str] = "arm"
    """What an action is: an ``arm``, a ``duel`` of two, or a ``slate``; see :attr:`showing`."""
    about: ClassVar[About] = About("", "", "")
    kernels: ClassVar[tuple[Any, ...]] = dispatch.POLICY_KERNELS
    named: ClassVar[dict[str, Any]] = registry
    randomized: ClassVar[bool] = True
    """Whether ``propensity`` may be logged; a deterministic policy's decisions carry null."""
    begins_in_turn: ClassVar[bool] = False
    """Whether a key that knows nothing is shown arms in their order, as its schedule wants."""
    remembers: ClassVar[str] = ""
    """What ``decide`` writes down of a decision for ``learn``, in words, if anything. No log holds
    that, so none folds to what was learned: the service refuses such a policy."""
    sums: ClassVar[tuple[str, ...]] = ()
    """Which arrays of the state (or tuples of them) that all keys share are sums over rewards, by
    their dotted names: learners that went apart add them up, and then :meth:`refit`."""
    earlier: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Defaults of earlier versions where today's differ: what began with them keeps them."""

    arms: Annotated[Any, checks.arms]

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return one of its kind: for warm-up, measurements, the tables of the docs and tests.

        Parameters
        ----------
        arms : int, default 2
            How many arms there are.
        dim : int, default 1
            Signals in a context, or features of each kind, where it reads any.
        """
        return cls(arms)

    def with_arms(self, arms: Any) -> Self:
        """Return the same policy over other arms."""
        return replace(self, arms=arms)

    def check_folds(self) -> None:
        """Refuse a policy whose decisions cannot be learned from a log.

        Raises
        ------
        InvalidValue
            If it :attr:`remembers` something of them.
        """
        if self.remembers:
            remedy = "give one that learns from what was shown alone, as CascadeKLUCB or PBMUCB do"
            why = f"it remembers {self.remembers}, which no log holds"
            raise InvalidValue("policy", self, f"{why}; {remedy}")

    @property
    def arm_count(self) -> int:
        """How many arms there are."""
        return self.arms if isinstance(self.arms, int) else len(self.arms)

    @property
    def context_dim(self) -> int:
        """Length of the context that the policy reads; 0 if it reads none."""
        return 0

    @property
    def schema(self) -> Declared:
        """What each field of a context holds, where contexts may be dicts; empty where they are numbers."""
        return ()

    @property
    def feature_dims(self) -> tuple[int, int]:
        """Numbers of relevance and of examination features per arm: its fields; 0 where it reads none."""
        return getattr(self, "relevance_dim", 0), getattr(self, "examination_dim", 0)

    @property
    def learns_seen(self) -> bool:
        """Whether it learns from what is known to have been seen, or not."""
        return False

    @property
    def action_width(self) -> int:
        """How many slots an action takes."""
        return 1

    @property
    def feedback_width(self) -> int:
        """How many numbers come back for an action."""
        return 1

    @property
    def knows_places(self) -> bool:
        """Whether it shows lists, and the probability of each arm at each position can be computed."""
        return False

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """All fields but ``arms`` by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "arms"}

    @property
    def label(self) -> str:
        """The name with what differs from the defaults, but without the arms."""
        shown = [
            _labelled(f.name, value)
            for f in fields(self)
            for value in [getattr(self, f.name)]
            if f.name != "arms" and value != f.default
        ]
        return type(self).__name__ + (f"({', '.join(shown)})" if shown else "")

    @property
    def reads(self) -> str:
        """What of an impression it reads besides its key and arms, in words; empty where that is nothing.

        Examples
        --------
        >>> import tacit
        >>> tacit.auto(arms=3, context={"age": "number", "device": ["ios", "web"]}).reads
        'a context of age, device; one model for all keys'
        >>> tacit.auto(arms=3, signals_dim=2).reads
        'signals, 2 numbers given as context'
        """
        fields = ", ".join(name for name, _ in self.schema)
        said = [f"a context of {fields or f'{self.context_dim} numbers'}"] if self.context_dim else []
        for what, dim in zip(("relevance", "examination"), self.feature_dims, strict=True):
            said += [f"{what} of each arm, {dim} numbers"] if dim else []
        return "; ".join(said)

    @property
    def key_bytes(self) -> int:
        """What each key takes, in bytes, besides what all keys share.

        Examples
        --------
        >>> import tacit
        >>> tacit.ContextMixture(10, 64).key_bytes, tacit.ContextMixture(10, 64, per_key=True).key_bytes
        (0, 99816)
        """
        return byte_count(self.init(2)) - byte_count(self.init(1))

    def _repr_html_(self) -> str:
        arms = self.arms if isinstance(self.arms, int) else ", ".join(map(str, self.arms or ()))
        first, *lines = self.reason.splitlines()
        said = [line.strip().partition("  ") for line in lines]
        rows = [("arms", arms or "known by features"), *((word, text.strip()) for word, _, text in said)]
        return html_table([{"": word, first: text} for word, text in rows])

    @property
    def reason(self) -> str:
        """Why to use it, what it assumes, and what to use where that does not hold.

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
        lines = {
            "reads": self.reads,
            "suits": about.suits,
            "assumes": about.assumes,
            "if not": about.fails,
            "weak": self.weak,
            "instead": about.otherwise,
        }
        rows = [f"  {word:<7}  {text}" for word, text in lines.items() if text]
        return "\n".join([f"{self.label}, of {about.source}", *rows])

    @property
    def weak(self) -> str:
        """Where it is known to be worse than another one, with the numbers."""
        return self.about.weak

    def init(self, lanes: int) -> Any:
        """Return the state of ``lanes`` lanes that have seen nothing; there may be none yet."""
        name = f"{type(self).__name__}.init"
        raise InvalidValue(name, None, "define init(self, lanes), which returns its State")

    def enrol(self, state: Any, lanes: int, known: int) -> None:
        """Let new arms into lanes that have learned; by default they are as at the start.

        Parameters
        ----------
        state : State
            Of this policy; the new part of each array is as :meth:`init` made it.
        lanes : int
            How many of its lanes have learned.
        known : int
            How many arms there were; those from this slot on are new.
        """

    @staticmethod
    def choose(params: Any, state: Any, lane: int, impression: Impression, rng: Generator) -> Any:
        """Choose an arm's slot; a duel's two."""
        raise NotImplementedError("define choose, a @staticmethod")

    @staticmethod
    def learn(params: Any, state: Any, lane: int, outcome: Outcome) -> None:
        """Learn from what came of a decision."""
        raise NotImplementedError("define learn, a @staticmethod")

    @staticmethod
    def observe(params: Any, state: Any, lane: int, impression: Impression) -> None:
        """Take in an impression before the choice; by default nothing."""

    @staticmethod
    def propensity(params: Any, state: Any, lane: int, impression: Impression, shown: Any) -> float:
        """Return the probability of showing just that; by default unknown."""
        return math.nan

    @staticmethod
    def count_open(params: Any, state: Any, lane: int, arm: int, hits: int, plays: int) -> None:
        """Count more clicks and plays of decisions that are not yet learned; by default nothing."""

    @staticmethod
    def epoch(params: Any, state: Any, lane: int) -> int:
        """Return how often the lane has restarted; by default never."""
        return 0

    @staticmethod
    def refit(params: Any, state: Any) -> None:
        """Compute anew what follows from shared sums: others were added, or arms came."""

    @staticmethod
    def decide(
        params: Any, state: Any, lane: int, impression: Impression, rng: Generator, action: Ints
    ) -> None:
        """Fill a row of slots with what is shown: by default, one arm."""
        action[0] = dispatch.choose(params, state, lane, impression, rng)

    @staticmethod
    def decide_and_weigh(
        params: Any, state: Any, lane: int, impression: Impression, rng: Generator, action: Ints
    ) -> float:
        """Decide, and return the propensity: by default one after the other."""
        dispatch.decide(params, state, lane, impression, rng, action)
        return dispatch.propensity(  # type: ignore[no-any-return]
            params, state, lane, impression, dispatch.shown_in(params, action)
        )

    @property
    def showing(self) -> Shows:
        """What is known of what it shows."""
        return shows_of(self.shows)

    @staticmethod
    def shown_in(params: Any, action: Ints) -> Any:
        """Return what a row of slots shows: by default, one arm."""
        return action[0]

    @staticmethod
    def reward_in(params: Any, feedback: Floats) -> Any:
        """Return what a row of feedback says: by default, one reward."""
        return feedback[0]

    def advise(self, relevance: Floats, examination: Floats) -> None:
        """Warn of what these features leave undetermined; by default of nothing."""

    @property
    def correctable(self) -> bool:
        """Whether a reward that was learned can be taken out again and another one put in.

        Only a kernel ``unlearn`` that belongs to the very ``learn`` in use will do.
        """
        kind = type(self)
        return hasattr(kind, "unlearn") and issubclass(_home(kind, "unlearn"), _home(kind, "learn"))

    @property
    def knows_propensity(self) -> bool:
        """Whether the probability of each choice can be computed, be it logged or not."""
        return type(self).propensity is not Policy.propensity

    @property
    def propensities(self) -> str:
        """How the propensities of its decisions are known.

        ``exact``: decisions carry them. ``exact in a floor``: there is no chance in the choice, so
        they are null, but for those of an :class:`~tacit.ExplorationFloor` over it. ``drawn in a
        floor``: they are not known, and such a floor draws candidates that make them exact.
        ``null``: they are not known.
        """
        if self.randomized and self.knows_propensity:
            return "exact"
        if self.showing.listed:
            return "null"
        return "exact in a floor" if self.knows_propensity else "drawn in a floor"

    @property
    def forgets(self) -> bool:
        """Whether what it says of arms may rest on less than all that it learned of them."""
        return type(self).epoch is not Policy.epoch or hasattr(self, "beliefs")

    @property
    def least_share(self) -> float:
        """What the propensity of any arm on offer is at least, times the number of these.

        Of a duel, times the number of pairs. What weighs by propensities refuses smaller
        ones. By default 0: nothing is promised.
        """
        return 0.0

    @property
    def restartable(self) -> bool:
        """Whether another policy may restart this one and ask for its estimates."""
        return hasattr(self, "restart") and hasattr(self, "estimate")


def _home(kind: type, method: str) -> type:
    """Return the class that a method of ``kind`` comes from."""
    return next(base for base in kind.__mro__ if method in base.__dict__)


def _labelled(name: str, value: Any) -> str:
    """Return a hyperparameter as a label shows it."""
    if isinstance(value, Policy):
        return value.label
    if is_dataclass(value):
        return type(value).__name__
    if value and isinstance(value, tuple) and all(isinstance(each, tuple) for each in value):
        # What was given by name is shown so.
        value = {first: rest[0] if len(rest) == 1 else rest for first, *rest in value}
    return f"{name}={value:g}" if type(value) in (int, float) else f"{name}={value}"
