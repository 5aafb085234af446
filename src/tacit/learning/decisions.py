"""Decisions: the arms shown for an impression, and all data needed to learn from their feedback."""

# 1. ``Decision``: one decision; as JSON it can be stored until its feedback comes.
# 2. ``find_featured_arms``: the arms whose features learning needs.
# 3. ``split_by_size``, ``count_features_per_arm``: bounds on the memory of a batch.
# 4. ``Decisions``: many decisions as columns; a row becomes a ``Decision`` only on access.
# 5. ``LearningWatch``: warns once of misuse: decisions learned twice or never, clicks without zeros, or
#    clicks and zeros learned in separate orders.

from __future__ import annotations

import json
import math
import warnings
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, repeat
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, overload

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Ints
from tacit.core.text import html_table
from tacit.errors import AssumptionWarning, InvalidValue
from tacit.learning.batch import Batch
from tacit.policies.base import NO_FEATURES, Policy

Arm = int | str
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    ArmT_co = TypeVar("ArmT_co", bound=Arm, default=Arm, covariant=True)
else:
    from typing import TypeVar

    ArmT_co = TypeVar("ArmT_co")
Key = str | int
"""A key as an argument; a number is converted to a string."""
NOTHING: Floats = np.empty(0)
LATEST = 8192
"""Number of decisions learned last that are remembered, by their ids modulo this."""
NEWEST = LATEST - 1
LAID_OUT = 2**22
"""Most feature values in one batch, 32 MiB."""
SOME, MANY = 1000, 10_000
"""Numbers of decisions after which a learner is checked for misuse."""
WATCHED, LOOK = 200, 50
"""Number of first learned decisions whose order is watched, and how often it is tested."""
DISTANCE = 10
"""A decision is learned late if it is this many decisions behind a newer one of its key."""
ORDER_ERROR = 1e-4 / (2 * WATCHED // LOOK)
IN_ORDER = (
    "learn each decision once, in the order of decisions, as 0.0 when no click is waited for any more: "
    "tacit.FeedbackWindow(learner, seconds=…) does"
)
SMALL = 0.01
"""If no reward is larger, rewards are probably on another scale, such as percent."""
NAMED = 10
"""Number of decisions that a view of many names."""


class Decision(NamedTuple, Generic[ArmT_co]):
    """The decision for one impression.

    The type of arms may be declared for type checkers: ``Decision[str]``.

    Attributes
    ----------
    id : int
        Number of the learner's decision, from 0.
    key : str
    shown : tuple of int or str
        The arm, the left and the right arm of a duel, or the arms of a slate, best first; named as
        in the policy's ``arms``.
    propensity : float or None
        Probability with which the policy chose it; None if the policy is deterministic.
    epoch : int
        How often the key's lane had restarted.
    offered : array of int64
        Indices of the arms on offer.
    slots : array of int64
        Indices of the arms shown; −1 for an empty position of a slate.
    context : array of float64
    relevance, examination : array of float64, shape (offered, d)
        Features of the arms on offer; of a :meth:`lean` decision, of the arms shown.
    prefix_propensities : array of float64, shape (positions,)
        Of a slate: the probability that the policy's slate begins with the same arms, down to each
        position. Empty if unknown or not requested.
    position_propensities : array of float64, shape (positions,)
        Of a slate: the probability that the policy's slate has the same arm at each position; 1 at an
        empty position. Empty if unknown.
    """

    id: int
    key: str
    shown: tuple[ArmT_co, ...]
    propensity: float | None
    epoch: int
    offered: Ints
    slots: Ints
    context: Floats
    relevance: Floats = NO_FEATURES
    examination: Floats = NO_FEATURES
    prefix_propensities: Floats = NOTHING
    position_propensities: Floats = NOTHING

    def __repr__(self) -> str:
        shown = self.shown[0] if len(self.shown) == 1 else self.shown
        return f"<Decision {self.id} for {self.key!r}: {shown!r}, propensity {self.propensity}>"

    def lean(self) -> Decision[ArmT_co]:
        """Return the decision with only the features of the arms shown, which suffice to learn from it.

        Decisions on candidates from a catalogue are lean already. Others hold the features of all arms
        on offer in memory while their feedback is pending. A :class:`ClickMixture` scales features by
        all features of a decision: for a lean one, by the features of the arms shown.

        Examples
        --------
        >>> import tacit
        >>> learner = tacit.Learner(tacit.auto(relevance_dim=2), seed=1)
        >>> decision = learner.choose(relevance=[[0.0, 1.0]] * 200)
        >>> decision.lean().relevance, learner.learn(decision.lean(), 1.0)
        (array([[0., 1.]]), True)
        """
        given = max(len(self.relevance), len(self.examination))
        if given != len(self.offered) or given <= np.count_nonzero(self.slots >= 0):
            return self
        places = [np.flatnonzero(self.offered == slot)[0] for slot in self.slots.tolist() if slot >= 0]
        blocks = [block[places] if len(block) else block for block in (self.relevance, self.examination)]
        return self._replace(relevance=blocks[0], examination=blocks[1])

    def to_json(self) -> str:
        """Return the decision as a JSON object, so that its feedback can be learned later or elsewhere.

        Examples
        --------
        >>> import tacit
        >>> learner = tacit.Learner(tacit.UCB1(arms=["film", "holiday"]), seed=1)
        >>> text = learner.choose("independence day").to_json()
        >>> learner.learn(tacit.Decision.from_json(text), 1.0)
        True
        """
        plain = {name: checks.listed(value) for name, value in self._asdict().items()}
        empty: tuple[Any, ...] = ([], NO_FEATURES.tolist())
        present = {name: value for name, value in plain.items() if value not in empty}
        return json.dumps(present, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Decision[Any]:
        """Return the decision that :meth:`to_json` wrote, bit for bit.

        Raises
        ------
        InvalidValue
            If the text is not such an object.
        """
        try:
            given = json.loads(text)
        except (TypeError, ValueError):
            given = None
        if not isinstance(given, dict) or not set(given) <= set(cls._fields):
            raise InvalidValue("decision", text, "give the JSON object that to_json returned")
        return _read(given)

    @property
    def arm(self) -> ArmT_co:
        """The arm shown; the left one of a duel, the first one of a slate."""
        if len(self.slots) > 1:
            doubt = f"arm: {self.shown[0]!r} is the first alone of what is shown; decision.shown has all"
            warnings.warn(doubt, AssumptionWarning, stacklevel=2)
        return self.shown[0]

    @property
    def slot(self) -> int:
        """The index of that arm."""
        return int(self.slots[0])

    @property
    def pair(self) -> tuple[ArmT_co, ArmT_co]:
        """The left and the right arm of a duel."""
        if len(self.shown) != 2:
            raise InvalidValue(
                "pair", self.shown, "it is of decisions of a duel; take .arm, or .slate of a list"
            )
        left, right = self.shown
        return left, right

    @property
    def slate(self) -> tuple[ArmT_co, ...]:
        """The arms of a slate, best first."""
        return self.shown


def _read(given: dict[str, Any]) -> Decision:
    """Validate JSON data and return the decision."""
    shown = given.get("shown")
    if not isinstance(shown, list) or not shown or not set(map(type, shown)) <= {int, str}:
        raise InvalidValue("shown", shown, "give a list of arms, names or numbers")
    propensity = given.get("propensity")
    if propensity is not None:
        propensity = checks.number("propensity", propensity, 0.0, 1.0)
    return Decision(
        checks.integer("id", given.get("id"), 0),
        checks.name("key", given.get("key")),
        tuple(shown),
        propensity,
        checks.integer("epoch", given.get("epoch"), 0),
        _array("offered", given, np.int64, 1),
        _array("slots", given, np.int64, 1),
        _array("context", given, np.float64, 1),
        *(_array(name, given, np.float64, 2) for name in ("relevance", "examination")),
        *(_array(name, given, np.float64, 1) for name in Decision._fields[-2:]),
    )


def _array(field: str, given: dict[str, Any], kind: Any, axes: int) -> Any:
    """Validate a field of JSON data and return it as an array; an absent field is an empty array."""
    if field not in given:
        return np.empty(0, kind) if axes == 1 else NO_FEATURES
    try:
        array = np.array(given[field])
        fits = array.ndim == axes and array.dtype.kind in ("i" if kind is np.int64 else "if")
    except ValueError:
        fits = False
    if not fits or not np.isfinite(array).all():
        what = "whole numbers" if kind is np.int64 else "finite numbers"
        lists = "a list of" if axes == 1 else "equally long lists of"
        raise InvalidValue(field, given[field], f"give {lists} {what}")
    return array.astype(kind)


def no_places() -> Floats:
    """Return an empty array, the value of unknown propensities by position."""
    return np.empty((0, 0))


class Described(NamedTuple):
    """The arms whose features a decision has, the shown arms among them, and the features."""

    arms: Ints
    slots: Ints
    relevance: Floats
    examination: Floats


def described(
    offered: Ints, slots: Ints, relevance: Floats, examination: Floats, *, named: bool, listed: bool
) -> Described:
    """Return the arms whose features a decision has, with the shown arms among them.

    These are the arms on offer, or the shown arms of a lean decision. If arms are not ``named``, an arm's
    index is its row among the features. For ``listed`` policies the order on offer matters, so a lean
    decision's features are expanded to all arms on offer, with zeros for arms not shown.

    Examples
    --------
    >>> blocks = np.ones((1, 1)), NO_FEATURES
    >>> find_featured_arms(np.arange(9), np.array([7]), *blocks, named=False, listed=False)[:2]
    (array([0]), array([0]))
    >>> slots, vectors = np.array([3, -1, 1]), np.array([[5.0], [6.0]])
    >>> found = find_featured_arms(np.arange(4), slots, vectors, NO_FEATURES, named=False, listed=True)
    >>> found.slots, found.relevance.ravel()
    (array([ 3, -1,  1]), array([0., 6., 0., 5.]))
    """
    if max(len(relevance), len(examination)) in (0, len(offered)):
        return Described(offered, slots, relevance, examination)
    filled = slots >= 0
    if named:
        return Described(slots[filled], slots, relevance, examination)
    if not listed:
        places = np.arange(len(slots))
        return Described(places, places, relevance, examination)
    blocks = [_placed(block, slots[filled], len(offered)) for block in (relevance, examination)]
    return Described(offered, slots, *blocks)


def in_pieces(sizes: Sequence[int], width: int, numbers: int | None = None) -> Iterator[slice]:
    """Yield slices of decisions with at most ``numbers`` feature values each, to bound memory.

    A single decision may have more.

    Parameters
    ----------
    sizes : sequence of int
        Number of arms with features, for each decision.
    width : int
        Number of features of one arm.
    numbers : int, optional
        By default 2**22, which take 32 MiB.

    Examples
    --------
    >>> list(split_by_size([9, 1, 2**21, 2**21], 2))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    start, taken, most = 0, 0, (numbers or LAID_OUT) // max(width, 1)
    for i, size in enumerate(sizes):
        if i > start and taken + size > most:
            yield slice(start, i)
            start, taken = i, 0
        taken += size
    yield slice(start, len(sizes))


def laid_out(policy: Policy) -> int:
    """Return the number of feature values per arm on offer that reading a decision allocates, or 0.

    It is not 0 for list policies that identify arms by their features, as the order on offer matters there.
    """
    return sum(policy.feature_dims) if policy.arms is None and policy.showing.listed else 0


def _placed(rows: Floats, places: Ints, count: int) -> Floats:
    """Return an array of ``count`` rows that has ``rows`` at ``places`` and zeros elsewhere."""
    if not len(rows):
        return rows
    found = np.zeros((count, rows.shape[1]))
    found[places] = rows
    return found


@dataclass(frozen=True)
class Decisions(Sequence[Decision[ArmT_co]]):
    """Decisions as columns; a sequence of :class:`Decision`.

    Attributes
    ----------
    first_id : int
    keys : sequence of str
    names : tuple
        The arm of each arm index.
    offers : sequence or None
        The arms on offer per decision, if the policy identifies arms by their features; None for a
        decision whose arms were not named.
    actions : array of int64, shape (rows, action_width)
        Indices of the arms shown.
    epochs : array of int64, shape (rows,)
    propensities : array of float64, shape (rows,)
        NaN if the policy is deterministic.
    batch : Batch
        The impressions.
    lanes : mapping
        The lane of each key in the learner that decided.
    prefixes, places : array of float64, shape (rows, positions)
        Of slates, ``prefix_propensities`` and ``position_propensities``; without rows if unknown.
    """

    first_id: int
    keys: Sequence[str]
    names: tuple[ArmT_co, ...]
    offers: Sequence[Sequence[Any] | None] | None
    actions: Ints
    epochs: Ints
    propensities: Floats
    batch: Batch
    lanes: Mapping[str, int]
    prefixes: Floats = field(default_factory=no_places)
    places: Floats = field(default_factory=no_places)

    def __repr__(self) -> str:
        arms = ", ".join(map(repr, self._first_arms()))
        more = ", …" if len(self) > NAMED else ""
        return f"<{len(self):,} decisions from {self.first_id} on: {arms}{more}>"

    def _repr_html_(self) -> str:
        columns = self._first_arms(), self.keys[:NAMED], self.propensities[:NAMED].tolist()
        first = zip(count(self.first_id), *columns, strict=False)
        names = "id", "arm", "key", "propensity"
        return html_table([dict(zip(names, row, strict=True)) for row in first])

    def _first_arms(self) -> list[Any]:
        return [self.names[slot] if self.names else slot for slot in self.slots[:NAMED].tolist()]

    @property
    def arms(self) -> list[ArmT_co]:
        """The (first) arm of each decision."""
        if self.offers is None:
            return [self.names[slot] for slot in self.actions[:, 0].tolist()]
        return [decision.shown[0] for decision in self]

    @property
    def slots(self) -> Ints:
        """The index of the (first) arm of each decision."""
        return self.actions[:, 0]

    def __len__(self) -> int:
        return len(self.actions)

    @overload
    def __getitem__(self, index: int) -> Decision[ArmT_co]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Decision[ArmT_co]]: ...
    def __getitem__(self, index: int | slice) -> Decision | list[Decision[ArmT_co]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]
        propensity = float(self.propensities[i])
        offer = slice(self.batch.starts[i], self.batch.stops[i])
        return Decision(
            id=self.first_id + i,
            key=self.keys[i],
            shown=self._shown(i),
            propensity=None if propensity != propensity else propensity,
            epoch=int(self.epochs[i]),
            offered=self.batch.arms[offer],
            slots=self.actions[i],
            context=self.batch.contexts[i],
            relevance=self.batch.relevance[offer],
            examination=self.batch.examination[offer],
            prefix_propensities=self.prefixes[i] if len(self.prefixes) else NOTHING,
            position_propensities=self.places[i] if len(self.places) else NOTHING,
        )

    def __iter__(self) -> Iterator[Decision[ArmT_co]]:
        # Column by column, since a Python loop over rows would take longer than deciding.
        batch, contexts = self.batch, self.batch.contexts
        whole = (batch.starts == 0).all() and (batch.stops == len(batch.arms)).all()
        offers: Any = ()
        if not whole or len(batch.relevance) or len(batch.examination):
            ends = zip(batch.starts.tolist(), batch.stops.tolist(), strict=True)
            offers = [slice(start, stop) for start, stop in ends]
        shown: Any = map(self._shown, range(len(self)))
        if self.offers is None and self.actions.shape[1] == 1:
            shown = [(self.names[slot],) for slot in self.slots.tolist()]
        columns = (
            count(self.first_id),
            self.keys,
            shown,
            none_for_nan(self.propensities),
            self.epochs.tolist(),
            repeat(batch.arms) if whole else [batch.arms[offer] for offer in offers],
            self.actions,
            contexts if contexts.shape[1] else repeat(NOTHING),
            *(
                [block[offer] for offer in offers] if len(block) else repeat(block)
                for block in (batch.relevance, batch.examination)
            ),
            *(block if len(block) else repeat(NOTHING) for block in (self.prefixes, self.places)),
        )
        return map(Decision._make, zip(*columns, strict=False))

    def _shown(self, i: int) -> tuple[ArmT_co, ...]:
        slots = [slot for slot in self.actions[i].tolist() if slot >= 0]
        if self.offers is None:
            return tuple(self.names[slot] for slot in slots)
        offer = self.offers[i]
        return tuple(slots if offer is None else (offer[slot] for slot in slots))


def none_for_nan(values: Floats) -> list[float | None]:
    """Convert an array to a list of floats, with None for NaN.

    Examples
    --------
    >>> nan_to_none(np.array([0.5, np.nan]))
    [0.5, None]
    """
    numbers = values.tolist()
    # The sum is NaN if any number is; with both infinities it is, too, which does no harm.
    whole = sum(numbers)
    return [None if x != x else x for x in numbers] if whole != whole else numbers


def small(most: float) -> str:
    """Return a warning if the largest of many rewards is suspiciously small, else "".

    Examples
    --------
    >>> describe_small_rewards(0.0), describe_small_rewards(0.25)
    ('', '')
    """
    if not 0.0 < most <= SMALL:
        return ""
    return f"reward: none is above {most:g}, and so little teaches little; give 1 for as much as there can be"


class LearningWatch:
    """Detect misuse in the decisions that a learner learns: repetitions, clicks without zeros, sorted order.

    Attributes
    ----------
    ring : array of int
        The latest learned id, at its place modulo the array's length; −1 for none.
    warned : bool
        Whether a repetition was warned of; then no more are searched for.
    has_zero : bool
        Whether any reward of 0 was learned; for duels, whose 0 is a win, True from the start.
    largest : float
        The largest reward learned.
    remaining : int
        Number of further decisions whose order is watched.
    """

    def __init__(self, compared: bool, watches_order: bool) -> None:
        self.ring = array("q", [-1]) * LATEST
        self.warned = False
        self.missed, self.most = compared, 0.0
        self.left, self._stopped = 0 if compared else WATCHED, False
        self._tests_order = watches_order
        self._newest: dict[str, int] = {}
        self._late = [[0, 0], [0, 0]]
        self._first, self._last = -1, -1

    def stop(self) -> None:
        """Stop watching the order and missing zeros, as a feedback window takes care of both."""
        self.left, self._stopped = 0, True

    def find_lack(self, made: int) -> str:
        """Return a warning if, of many decisions made, too few were learned or none with 0, else ""."""
        count = LATEST - self.ring.count(-1)
        if self._stopped:
            return small(self.most) if made >= MANY else ""
        if not count and made >= MANY:
            return f"learn: of {made:,} decisions none was learned; call learn(decision, reward) for each"
        if not self.missed and WATCHED // 10 <= count <= min(LATEST, made) // 2:
            return f"reward: of {made:,} decisions few were learned, and none with 0.0; {IN_ORDER}"
        return small(self.most) if made >= MANY else ""

    def find_sorted(self, decision: Decision, clicked: bool, made: int, keys: int) -> str:
        """Record the order of a learned decision; return a warning if zeros are missing or sorted, else "".

        Zeros are missing if none is among the first 200 although a third of the decisions up to the last is
        not learned: by chance this has a probability of at most .00004 if .95 of the decisions have a reward,
        and less otherwise. Zeros and rewards are sorted if they differ in how many are learned late, that is
        at least ten decisions of a key behind a newer one of the same key: by Fisher's exact test, after each
        50 decisions, on both sides, with an error of 1.25e-5 each and 1e-4 in total if outcomes do not depend
        on when they are learned. Decisions of other learners are not recorded.
        """
        if decision.id >= made:
            return ""
        self.left -= 1
        newest = self._newest.get(decision.key, -1)
        self._late[clicked][decision.id + DISTANCE * keys <= newest] += 1
        self._newest[decision.key] = max(newest, decision.id)
        self._first = decision.id if self._first < 0 else min(self._first, decision.id)
        self._last = max(self._last, decision.id)
        if self.left % LOOK:
            return ""
        (zeros, late_zeros), (rewards, late_rewards) = self._late
        zeros, rewards = zeros + late_zeros, rewards + late_rewards
        if not self.left and not zeros and 2 * (self._last + 1 - self._first) >= 3 * WATCHED:
            return f"reward: {WATCHED} decisions were learned, and none with 0.0; {IN_ORDER}"
        if not self._tests_order or chance_of_late(zeros, late_zeros, rewards, late_rewards) > ORDER_ERROR:
            return ""
        self.left = 0
        late = f"{late_zeros} of {zeros} zeros and {late_rewards} of {rewards} others were learned"
        behind = f"{DISTANCE * keys:,} decisions or more behind a newer one"
        return f"reward: {late} {behind}, which is taken for changes of what is best; {IN_ORDER}"

    def warn_repeated(self, decision: Decision, made: int, again: int = 1, depth: int = 3) -> None:
        """Warn once that ``repeated`` decisions were learned before, of which ``decision`` is the first.

        Decisions of other learners, with ids that this learner has not reached, are ignored. The warning
        points at the caller ``depth`` calls up.
        """
        if self.warned or decision.id >= made:
            return
        self.warned = True
        warnings.warn(
            f"decision: {again:,} learned before and counted twice, first {decision.id} of key "
            f"{decision.key!r}; learn each decision once: when the click came, or can "
            "come no more; policies of sums change what they learned by correct_many (decisions of several "
            "learners share their numbers: to tell them apart, let a learner learn either its own or those "
            "of others)",
            AssumptionWarning,
            stacklevel=depth,
        )

    def note_many(self, decisions: Sequence[Decision], rewards: Floats, made: int, keys: int) -> str:
        """Record learned decisions and warn of repeated ones; return another warning to give, or ""."""
        clicked: Any = rewards.any(axis=1)
        self.missed = self.missed or not clicked.all()
        self.most = max(self.most, rewards.max(initial=0.0))
        doubt = ""
        for decision, click in zip(decisions, clicked.tolist(), strict=False) if self.left else ():
            doubt = doubt or self.find_sorted(decision, click, made, keys)
            if not self.left:
                break
        if self.warned or not len(decisions):
            return doubt
        if isinstance(decisions, Decisions):
            numbers = decisions.first_id + np.arange(len(decisions))
        else:
            numbers = np.array([decision.id for decision in decisions], np.int64)
        ring = np.frombuffer(self.ring, np.int64)
        again = ring[numbers % LATEST] == numbers
        ring[numbers % LATEST] = numbers
        if again.any():
            self.warn_repeated(decisions[int(np.argmax(again))], made, int(again.sum()), depth=5)
        return doubt


def chance_of_late(zeros: int, late_zeros: int, rewards: int, late_rewards: int) -> float:
    """Return the one-sided p-value of Fisher's exact test that zeros and rewards are late equally often.

    Examples
    --------
    >>> compute_late_p_value(10, 5, 10, 5) > 0.5, compute_late_p_value(30, 30, 20, 0) < 1e-9
    (True, True)
    """
    late, count = late_zeros + late_rewards, zeros + rewards
    ways = [math.comb(zeros, k) * math.comb(rewards, late - k) for k in range(late + 1)]
    side = min(sum(ways[: late_zeros + 1]), sum(ways[late_zeros:]))
    return side / math.comb(count, late)
