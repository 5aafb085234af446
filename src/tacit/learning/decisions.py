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
from functools import cached_property
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
NO_VALUES: Floats = np.empty(0)
NO_TABLE: Floats = np.empty((0, 0))
"""Propensities by position of decisions for which they are unknown."""
RING_SIZE = 8192
"""Number of decisions learned last that are remembered, by their ids modulo this."""
RING_MASK = RING_SIZE - 1
NO_IDS = array("q", [-1]) * RING_SIZE
MAX_NUMBERS = 2**22
"""Most feature values in one batch, 32 MiB."""
FIRST_CHECK, SECOND_CHECK = 1000, 10_000
"""Numbers of decisions after which a learner is checked for misuse."""
WATCHED_COUNT, TEST_INTERVAL = 200, 50
"""Number of first learned decisions whose order is watched, and how often it is tested."""
LATE_DISTANCE = 10
"""A decision is learned late if it is this many decisions behind a newer one of its key."""
ORDER_ERROR = 1e-4 / (2 * WATCHED_COUNT // TEST_INTERVAL)
ORDER_REMEDY = (
    "learn each decision once, in the order of decisions, as 0.0 when no click is waited for any more: "
    "tacit.FeedbackWindow(learner, seconds=…) does"
)
SMALL_REWARD = 0.01
"""If no reward is larger, rewards are probably on another scale, such as percent."""
MAX_NAMED = 10
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
    prefix_propensities: Floats = NO_VALUES
    position_propensities: Floats = NO_VALUES

    def __repr__(self) -> str:
        """Return id, key, arms shown and propensity as text; other attributes are left out."""
        arms = self.shown[0] if len(self.shown) == 1 else self.shown
        return f"<Decision {self.id} for {self.key!r}: {arms!r}, propensity {self.propensity}>"

    def __eq__(self, value: object) -> bool:
        """True if all attributes are equal; arrays are compared element by element."""
        if not isinstance(value, Decision):
            return False
        pairs: Iterator[tuple[Any, Any]] = zip(self, value, strict=True)
        return all(np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in pairs)

    def __ne__(self, value: object) -> bool:
        """True if an attribute differs."""
        return not self == value

    def __hash__(self) -> int:
        """Return a hash of id, key and arms shown; equal decisions have equal ones."""
        return hash((self.id, self.key, self.shown))

    def lean(self) -> Decision[ArmT_co]:
        """Return a copy with only the features of the arms shown, which suffice to learn from it.

        Returns the decision itself if it has no other features. Decisions on candidates from a catalogue are
        lean already. Others hold the features of all arms on offer in memory while their feedback is pending.
        A :class:`ClickMixture` scales features by all features of a decision: for a lean one, by the features
        of the arms shown.

        Examples
        --------
        >>> import tacit
        >>> learner = tacit.Learner(tacit.auto(relevance_dim=2), seed=1)
        >>> decision = learner.choose(relevance=[[0.0, 1.0]] * 200)
        >>> decision.lean().relevance, learner.learn(decision.lean(), 1.0)
        (array([[0., 1.]]), True)
        """
        feature_rows = max(len(self.relevance), len(self.examination))
        if feature_rows != len(self.offered) or feature_rows <= np.count_nonzero(self.slots >= 0):
            return self
        places = [(self.offered == slot).argmax() for slot in self.slots.tolist() if slot >= 0]
        blocks = [block[places] if len(block) else block for block in (self.relevance, self.examination)]
        return self._replace(relevance=blocks[0], examination=blocks[1])

    def to_json(self) -> str:
        """Return the decision as the text of a JSON object, so that its feedback can be learned later or
        elsewhere.

        Examples
        --------
        >>> import tacit
        >>> learner = tacit.Learner(tacit.UCB1(arms=["film", "holiday"]), seed=1)
        >>> text = learner.choose("independence day").to_json()
        >>> learner.learn(tacit.Decision.from_json(text), 1.0)
        True
        """
        plain = {name: checks.as_list(value) for name, value in self._asdict().items()}
        empty: tuple[Any, ...] = ([], NO_FEATURES.tolist())
        present = {name: value for name, value in plain.items() if value not in empty}
        return json.dumps(present, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Decision[Any]:
        """Return the decision in a text of :meth:`to_json`, with equal numbers bit for bit.

        Raises
        ------
        InvalidValue
            If the text is not such an object.
        """
        try:
            fields = json.loads(text)
        except (TypeError, ValueError):
            fields = None
        if not isinstance(fields, dict) or not set(fields) <= set(cls._fields):
            remedy = "give the JSON object that to_json returned, or, to a FeedbackWindow, decision.id"
            raise InvalidValue("decision", text, remedy)
        return _parse_decision(fields)

    @property
    def arm(self) -> ArmT_co:
        """The arm shown; for a duel the left one and for a slate the first one, with a warning that there are
        more.
        """
        if len(self.slots) > 1:
            message = f"arm: {self.shown[0]!r} is the first alone of what is shown; decision.shown has all"
            warnings.warn(message, AssumptionWarning, stacklevel=2)
        return self.shown[0]

    @property
    def slot(self) -> int:
        """The index of the first arm shown, without a warning for duels and slates."""
        return int(self.slots[0])

    @property
    def pair(self) -> tuple[ArmT_co, ArmT_co]:
        """The left and the right arm of a duel; raises InvalidValue for other decisions."""
        if len(self.shown) != 2:
            remedy = "it is of decisions of a duel; take .arm, or .slate of a list"
            raise InvalidValue("pair", self.shown, remedy)
        left_arm, right_arm = self.shown
        return left_arm, right_arm

    @property
    def slate(self) -> tuple[ArmT_co, ...]:
        """All arms shown: the arms of a slate, best first."""
        return self.shown


def _parse_decision(fields: dict[str, Any]) -> Decision:
    """Validate the JSON fields of a decision and return it; the propensity and the arrays may be absent."""
    arms = fields.get("shown")
    if not isinstance(arms, list) or not arms or not set(map(type, arms)) <= {int, str}:
        raise InvalidValue("shown", arms, "give a list of arms, names or numbers")
    propensity = fields.get("propensity")
    if propensity is not None:
        propensity = checks.number("propensity", propensity, 0.0, 1.0)
    return Decision(
        checks.integer("id", fields.get("id"), 0),
        checks.name("key", fields.get("key")),
        tuple(arms),
        propensity,
        checks.integer("epoch", fields.get("epoch"), 0),
        _parse_array("offered", fields, np.int64, 1),
        _parse_array("slots", fields, np.int64, 1),
        _parse_array("context", fields, np.float64, 1),
        *(_parse_array(name, fields, np.float64, 2) for name in ("relevance", "examination")),
        # The last two: propensities of a slate's prefixes and of its positions.
        *(_parse_array(name, fields, np.float64, 1) for name in Decision._fields[-2:]),
    )


def _parse_array(field: str, fields: dict[str, Any], kind: Any, axes: int) -> Any:
    """Return the JSON ``field`` as an array of type ``kind`` with ``axes`` axes; an absent field is an empty
    array.

    Raises InvalidValue unless it holds finite numbers in that shape.
    """
    if field not in fields:
        return np.empty(0, kind) if axes == 1 else NO_FEATURES
    try:
        array = np.array(fields[field])
        fits = array.ndim == axes and array.dtype.kind in ("i" if kind is np.int64 else "if")
    except ValueError:
        fits = False
    if not fits or not np.isfinite(array).all():
        what = "whole numbers" if kind is np.int64 else "finite numbers"
        lists = "a list of" if axes == 1 else "equally long lists of"
        raise InvalidValue(field, fields[field], f"give {lists} {what}")
    return array.astype(kind)


class FeaturedArms(NamedTuple):
    """The arms whose features a decision holds, the indices of the shown arms among these, and the
    features.
    """

    arms: Ints
    slots: Ints
    relevance: Floats
    examination: Floats


def find_featured_arms(
    offered: Ints, slots: Ints, relevance: Floats, examination: Floats, *, named: bool, listed: bool
) -> FeaturedArms:
    """Return the arms whose features a decision holds, the indices of the shown arms among these, and the
    features.

    The arms are all arms on offer, or only the shown ones if the decision is lean. Arms without names are
    numbered by the rows of their features, so a lean decision's arms are renumbered from 0. A ``listed``
    policy reads the order on offer: there all arms on offer are returned, and arms that were not shown get
    features of 0.

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
    # Indices stay as they are without features, or with features of all arms on offer.
    if max(len(relevance), len(examination)) in (0, len(offered)):
        return FeaturedArms(offered, slots, relevance, examination)
    filled = slots >= 0
    if named:
        return FeaturedArms(slots[filled], slots, relevance, examination)
    if not listed:
        places = np.arange(len(slots))
        return FeaturedArms(places, places, relevance, examination)
    blocks = [_scatter_rows(block, slots[filled], len(offered)) for block in (relevance, examination)]
    return FeaturedArms(offered, slots, *blocks)


def split_by_size(sizes: Sequence[int], width: int, numbers: int | None = None) -> Iterator[slice]:
    """Yield slices of consecutive decisions, each with at most ``numbers`` feature values, to bound memory.

    A slice of a single decision may have more.

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
    start, total, limit = 0, 0, (numbers or MAX_NUMBERS) // max(width, 1)
    for i, size in enumerate(sizes):
        if i > start and total + size > limit:
            yield slice(start, i)
            start, total = i, 0
        total += size
    yield slice(start, len(sizes))


def count_features_per_arm(policy: Policy) -> int:
    """Return the number of feature values that reading a lean decision allocates for each arm on offer.

    It is 0, except for list policies that know arms by their features: they need all arms on offer, in their
    order.
    """
    return sum(policy.feature_dims) if policy.arms is None and policy.showing.listed else 0


def _scatter_rows(rows: Floats, places: Ints, count: int) -> Floats:
    """Return an array of ``count`` rows that has ``rows`` at the indices ``places``, and zeros elsewhere.

    If ``rows`` is empty, it is returned unchanged.
    """
    if not len(rows):
        return rows
    table = np.zeros((count, rows.shape[1]))
    table[places] = rows
    return table


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
    prefixes: Floats = field(default_factory=lambda: NO_TABLE)
    places: Floats = field(default_factory=lambda: NO_TABLE)

    def __repr__(self) -> str:
        """Return a text with the number of decisions, the first id, and up to 10 decisions' first arms."""
        arms = ", ".join(map(repr, self._first_arms()))
        more = ", …" if len(self) > MAX_NAMED else ""
        return f"<{len(self):,} decisions from {self.first_id} on: {arms}{more}>"

    def _repr_html_(self) -> str:
        """Return an HTML table of the first ten decisions: id, arm, key and propensity."""
        columns = self._first_arms(), self.keys[:MAX_NAMED], self.propensities[:MAX_NAMED].tolist()
        first = zip(count(self.first_id), *columns, strict=False)
        names = "id", "arm", "key", "propensity"
        return html_table([dict(zip(names, row, strict=True)) for row in first])

    def _first_arms(self) -> list[Any]:
        """Return the first arm of each of the first 10 decisions, or its index if arms have no names."""
        return [self.names[slot] if self.names else slot for slot in self.slots[:MAX_NAMED].tolist()]

    @property
    def arms(self) -> list[ArmT_co]:
        """The arm of each decision; of duels and slates only the first one."""
        if self.actions.shape[1] > 1 and self.offers is not None:
            return [decision.shown[0] for decision in self]
        slots = self.actions[:, 0].tolist()
        if self.offers is None:
            return [self.names[slot] for slot in slots]
        pairs = zip(self.offers, slots, strict=True)
        return [slot if offer is None else offer[slot] for offer, slot in pairs]

    @property
    def slots(self) -> Ints:
        """The arm index of each decision, shape (rows,); of duels and slates only of the first arm."""
        return self.actions[:, 0]

    def __len__(self) -> int:
        """Return the number of decisions."""
        return len(self.actions)

    @overload
    def __getitem__(self, index: int) -> Decision[ArmT_co]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Decision[ArmT_co]]: ...
    def __getitem__(self, index: int | slice) -> Decision | list[Decision[ArmT_co]]:
        """Return the decision of a row, or a list of decisions of a slice of rows."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]
        propensity = float(self.propensities[i])
        offer = slice(self.batch.starts[i], self.batch.stops[i])
        return Decision(
            id=self.first_id + i,
            key=self.keys[i],
            shown=self._find_shown_arms(i),
            propensity=None if propensity != propensity else propensity,
            epoch=int(self.epochs[i]),
            offered=self.batch.arms[offer],
            slots=self.actions[i],
            context=self.batch.contexts[i],
            relevance=self.batch.relevance[offer],
            examination=self.batch.examination[offer],
            prefix_propensities=self.prefixes[i] if len(self.prefixes) else NO_VALUES,
            position_propensities=self.places[i] if len(self.places) else NO_VALUES,
        )

    def __iter__(self) -> Iterator[Decision[ArmT_co]]:
        """Iterate over the rows as :class:`Decision`."""
        # Column by column, since a Python loop over rows would take longer than deciding.
        batch, contexts = self.batch, self.batch.contexts
        whole = (batch.starts == 0).all() and (batch.stops == len(batch.arms)).all()
        offer_slices: Any = ()
        if not whole or len(batch.relevance) or len(batch.examination):
            ends = zip(batch.starts.tolist(), batch.stops.tolist(), strict=True)
            offer_slices = [slice(start, stop) for start, stop in ends]
        is_single = self.actions.shape[1] == 1
        arm_tuples: Any = zip(self.arms) if is_single else map(self._find_shown_arms, range(len(self)))
        columns = (
            count(self.first_id),
            self.keys,
            arm_tuples,
            nan_to_none(self.propensities),
            self.epochs.tolist(),
            repeat(batch.arms) if whole else [batch.arms[offer] for offer in offer_slices],
            self.actions,
            contexts if contexts.shape[1] else repeat(NO_VALUES),
            *(
                [block[offer] for offer in offer_slices] if len(block) else repeat(block)
                for block in (batch.relevance, batch.examination)
            ),
            *(block if len(block) else repeat(NO_VALUES) for block in (self.prefixes, self.places)),
        )
        # Not strict: ``count`` and ``repeat`` are endless.
        return map(Decision._make, zip(*columns, strict=False))

    def _find_shown_arms(self, i: int) -> tuple[ArmT_co, ...]:
        """Return the names of the arms shown in row ``i``, without empty positions; their indices if they
        have none.
        """
        indices = [index for index in self.actions[i].tolist() if index >= 0]
        if self.offers is None:
            return tuple(self.names[index] for index in indices)
        offer = self.offers[i]
        return tuple(indices if offer is None else (offer[index] for index in indices))


def nan_to_none(values: Floats) -> list[float | None]:
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


def describe_small_rewards(most: float) -> str:
    """Return a warning text if the largest of many rewards is above 0 and at most 0.01, else "".

    Examples
    --------
    >>> describe_small_rewards(0.0), describe_small_rewards(0.25)
    ('', '')
    """
    if not 0.0 < most <= SMALL_REWARD:
        return ""
    return f"reward: none is above {most:g}, and so little teaches little; give 1 for as much as there can be"


class LearningWatch:
    """Detect misuse in the decisions that a learner learns: repetitions, clicks without zeros, sorted order.

    Attributes
    ----------
    warned : bool
        Whether a repetition was warned of; then no more are searched for.
    has_zero : bool
        Whether any reward of 0 was learned; True from the start if rewards are not clicks.
    largest : float
        The largest reward learned; infinite if rewards are not clicks.
    remaining : int
        Number of further decisions whose order is watched.
    """

    def __init__(self, clicks: bool, watches_order: bool) -> None:
        """Create a watch that has seen no decision.

        With ``clicks``, most rewards should be 0, and missing zeros and tiny rewards are looked for. With
        ``watches_order``, the order in which zeros and other rewards are learned is tested, too.
        """
        self.warned = False
        self.has_zero, self.largest = not clicks, 0.0 if clicks else math.inf
        self.remaining, self._stopped = WATCHED_COUNT if clicks else 0, False
        self._tests_order = watches_order
        self._newest: dict[str, int] = {}
        self._late = [[0, 0], [0, 0]]
        self._first, self._last = -1, -1

    @cached_property
    def ring(self) -> array[int]:
        """The latest learned id, at its place modulo the array's length; −1 for none; made at first use."""
        return NO_IDS[:]

    def stop(self) -> None:
        """Stop looking for missing zeros and sorted order for good; for feedback windows, which avoid
        both.
        """
        self.remaining, self._stopped = 0, True

    def check_missing(self, decision_count: int) -> str:
        """Return a warning about rewards learned for ``decision_count`` decisions, or ""; change nothing.

        It warns if nothing was learned of 10,000 decisions; if at most half of the decisions were learned, at
        least 20 of them and none with reward 0; or if after 10,000 decisions no reward was above 0.01.
        """
        # Number of learned decisions, up to the ring's size.
        count = RING_SIZE - self.ring.count(-1)
        if self._stopped:
            return describe_small_rewards(self.largest) if decision_count >= SECOND_CHECK else ""
        if not count and decision_count >= SECOND_CHECK:
            return (
                f"learn: of {decision_count:,} decisions none was learned; "
                "call learn(decision, reward) for each"
            )
        if not self.has_zero and WATCHED_COUNT // 10 <= count <= min(RING_SIZE, decision_count) // 2:
            return (
                f"reward: of {decision_count:,} decisions few were learned, and none with 0.0; {ORDER_REMEDY}"
            )
        return describe_small_rewards(self.largest) if decision_count >= SECOND_CHECK else ""

    def check_order(self, decision: Decision, clicked: bool, decision_count: int, keys: int) -> str:
        """Record when a decision is learned; return a warning if zeros are missing or learned apart from
        other rewards, else "".

        Zeros are missing if none is among the first 200 learned decisions although at least a third of the
        decisions in their range of ids is not learned: if .95 of the decisions have a reward, this happens by
        chance with a probability of at most .00004, else with a smaller one.

        Zeros and other rewards are learned apart if one kind is late more often. A decision is late if it is
        learned after a decision of its key that is ten or more newer. Fisher's exact test compares both kinds
        after each 50 decisions; its error is 1.25e-5 on each side, and 1e-4 in all tests, if outcomes do not
        depend on when they are learned.

        ``clicked`` is True if the reward is not 0. ``decision_count`` and ``keys`` are the learner's numbers
        of decisions and of keys. Decisions of other learners, with larger ids, are not recorded.
        """
        if decision.id >= decision_count:
            return ""
        self.remaining -= 1
        newest = self._newest.get(decision.key, -1)
        # Ids count the decisions of all keys: ten decisions of a key take about 10 × keys of them.
        self._late[clicked][decision.id + LATE_DISTANCE * keys <= newest] += 1
        self._newest[decision.key] = max(newest, decision.id)
        self._first = decision.id if self._first < 0 else min(self._first, decision.id)
        self._last = max(self._last, decision.id)
        if self.remaining % TEST_INTERVAL:
            return ""
        # Decisions learned on time, and late; below both together, and late.
        (zeros, late_zeros), (rewards, late_rewards) = self._late
        zeros, rewards = zeros + late_zeros, rewards + late_rewards
        if not self.remaining and not zeros and 2 * (self._last + 1 - self._first) >= 3 * WATCHED_COUNT:
            return f"reward: {WATCHED_COUNT} decisions were learned, and none with 0.0; {ORDER_REMEDY}"
        if (
            not self._tests_order
            or compute_late_p_value(zeros, late_zeros, rewards, late_rewards) > ORDER_ERROR
        ):
            return ""
        self.remaining = 0
        late = f"{late_zeros} of {zeros} zeros and {late_rewards} of {rewards} others were learned"
        behind = f"{LATE_DISTANCE * keys:,} decisions or more behind a newer one"
        return f"reward: {late} {behind}, which is taken for changes of what is best; {ORDER_REMEDY}"

    def warn_repeated(
        self, decision: Decision, decision_count: int, repeated: int = 1, depth: int = 3
    ) -> None:
        """Warn, only once, that ``repeated`` decisions had been learned before; ``decision`` is the first of
        them.

        A decision of another learner, with an id of at least ``decision_count``, is ignored. The warning
        shows the line of code ``depth`` calls up.
        """
        if self.warned or decision.id >= decision_count:
            return
        self.warned = True
        warnings.warn(
            f"decision: {repeated:,} learned before and counted twice, first {decision.id} of key "
            f"{decision.key!r}; learn each decision once: when the click came, or can "
            "come no more; policies of sums change what they learned by correct_many (decisions of several "
            "learners share their numbers: to tell them apart, let a learner learn either its own or those "
            "of others)",
            AssumptionWarning,
            stacklevel=depth,
        )

    def record_many(
        self, decisions: Sequence[Decision], rewards: Floats, decision_count: int, keys: int
    ) -> str:
        """Record ids, rewards and order of learned decisions; warn if some had been learned before.

        Returns the text of another warning, about zeros that are missing or learned apart, which the caller
        issues; or "". ``decision_count`` and ``keys`` are the learner's numbers of decisions and of keys.
        """
        clicked: Any = rewards.any(axis=1)
        self.has_zero = self.has_zero or not clicked.all()
        self.largest = max(self.largest, rewards.max(initial=0.0))
        message = ""
        for decision, click in zip(decisions, clicked.tolist(), strict=False) if self.remaining else ():
            message = message or self.check_order(decision, click, decision_count, keys)
            if not self.remaining:
                break
        if self.warned or not len(decisions):
            return message
        if isinstance(decisions, Decisions):
            numbers = decisions.first_id + np.arange(len(decisions))
        else:
            numbers = np.array([decision.id for decision in decisions], np.int64)
        ring = np.frombuffer(self.ring, np.int64)
        is_repeated = ring[numbers % RING_SIZE] == numbers
        ring[numbers % RING_SIZE] = numbers
        if is_repeated.any():
            first = decisions[int(np.argmax(is_repeated))]
            self.warn_repeated(first, decision_count, int(is_repeated.sum()), depth=5)
        return message


def compute_late_p_value(zeros: int, late_zeros: int, rewards: int, late_rewards: int) -> float:
    """Return the p-value of Fisher's exact test of whether zeros and rewards are late equally often.

    It is one-sided: the smaller one of both sides. ``zeros`` and ``rewards`` are counts of learned decisions,
    the late ones included.

    Examples
    --------
    >>> compute_late_p_value(10, 5, 10, 5) > 0.5, compute_late_p_value(30, 30, 20, 0) < 1e-9
    (True, True)
    """
    late, count = late_zeros + late_rewards, zeros + rewards
    ways = [math.comb(zeros, k) * math.comb(rewards, late - k) for k in range(late + 1)]
    side = min(sum(ways[: late_zeros + 1]), sum(ways[late_zeros:]))
    return side / math.comb(count, late)
