"""Decisions: what was shown, and all that learning from it needs."""

# 1. ``Decision``: one decision, with its form as JSON, in which it may wait elsewhere for its feedback.
# 2. ``described``: of what was on offer, that of which learning needs the features.
# 3. ``in_pieces``, ``laid_out``: how many decisions are laid out as arrays at once.
# 4. ``Decisions``: many, as columns; a ``Decision`` is made of a row only when somebody asks for it.
# 5. ``LearningWatch``: who learns the same decision twice, or nothing, or clicks alone, or clicks and zeros
#    in an order of their own, is warned once.

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
"""A key as it is given; a number stands for its digits."""
NOTHING: Floats = np.empty(0)
LATEST = 8192
"""How many of the decisions learned last are remembered, by their numbers modulo this."""
NEWEST = LATEST - 1
LAID_OUT = 2**22
"""Numbers of features that are laid out at once, 32 MiB."""
SOME, MANY = 1000, 10_000
"""After so many decisions of a learner it is looked at whether they teach it."""
WATCHED, LOOK = 200, 50
"""The order of so many decisions that are learned first is watched, and tested after each 50."""
DISTANCE = 10
"""A decision is learned late if it is so many decisions behind a newer one of its key."""
ORDER_ERROR = 1e-4 / (2 * WATCHED // LOOK)
IN_ORDER = (
    "learn each decision once, in the order of decisions, as 0.0 when no click is waited for any more: "
    "tacit.FeedbackWindow(learner, seconds=…) does"
)
SMALL = 0.01
"""Where no reward is larger, they are mostly percent, or of a scale of their own."""
NAMED = 10
"""How many of many decisions are named where they are shown."""


class Decision(NamedTuple, Generic[ArmT_co]):
    """What was shown for one impression.

    Where the arms are names, a type checker may know: ``Decision[str]``.

    Attributes
    ----------
    id : int
        Counts the decisions of the learner from 0.
    key : str
    shown : tuple of int or str
        The arm, the left and the right arm of a duel, or the arms of a slate, best first; by
        the names that the policy's ``arms`` gives them.
    propensity : float or None
        Probability with which the policy chose it; None where the policy is deterministic.
    epoch : int
        How often the key's lane had restarted.
    offered : array of int64
        Slots of the arms that were on offer.
    slots : array of int64
        Slots of what was shown; −1 for an empty position of a slate.
    context : array of float64
    relevance, examination : array of float64, shape (offered, d)
        Features of the arms that were on offer; of a :meth:`lean` decision, of those that it shows.
    prefix_propensities : array of float64, shape (positions,)
        Of a slate: the probability with which the policy begins a slate so, down to each position.
        Empty where it is not known, or was not asked for.
    position_propensities : array of float64, shape (positions,)
        Of a slate: the probability with which the policy shows each of its arms at its position,
        whatever stands elsewhere; 1 at an empty position. Empty where it is not known.
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
        """Return the decision with the features of what it shows alone, from which it is learned.

        Decisions on candidates out of a catalogue are so. Others take as much memory as the features of
        all that was on offer, for as long as they wait for feedback. A :class:`ClickMixture` measures
        how large features are by all that it learns with a decision: by those shown, then.

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
        """Return the decision as a JSON object, to be learned from elsewhere or later.

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
            If it is none.
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
        """The arm that was shown; the left one of a duel, the first one of a slate."""
        if len(self.slots) > 1:
            doubt = f"arm: {self.shown[0]!r} is the first alone of what is shown; decision.shown has all"
            warnings.warn(doubt, AssumptionWarning, stacklevel=2)
        return self.shown[0]

    @property
    def slot(self) -> int:
        """The slot of that arm."""
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
    """Return a decision from JSON data, checked."""
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
    """Return an array of JSON data; without it, an empty one."""
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
    """Return what decisions have whose propensities by position are not known."""
    return np.empty((0, 0))


class Described(NamedTuple):
    """The arms whose features a decision has, what it shows among these, and the features."""

    arms: Ints
    slots: Ints
    relevance: Floats
    examination: Floats


def described(
    offered: Ints, slots: Ints, relevance: Floats, examination: Floats, *, named: bool, listed: bool
) -> Described:
    """Return the arms whose features a decision has, and what it shows among these.

    They are those on offer, or those that a lean decision shows. Where arms are not ``named``, their slot is
    their place among them. Where they are ``listed`` that counts, as the order offered says something: there
    a lean decision's are all that were on offer, with zeros for what nobody saw.

    Examples
    --------
    >>> described(np.arange(9), np.array([7]), np.ones((1, 1)), NO_FEATURES, named=False, listed=False)[:2]
    (array([0]), array([0]))
    >>> slots, vectors = np.array([3, -1, 1]), np.array([[5.0], [6.0]])
    >>> found = described(np.arange(4), slots, vectors, NO_FEATURES, named=False, listed=True)
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
    """Yield stretches of decisions whose features are so many numbers at most, by default 32 MiB.

    One decision may take more. Of many decisions among thousands of items they would take gigabytes.

    Parameters
    ----------
    sizes : sequence of int
        How many arms each has features of.
    width : int
        Numbers of one arm.
    numbers : int, optional

    Examples
    --------
    >>> list(in_pieces([9, 1, 2**21, 2**21], 2))
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
    """Return for how many numbers of each arm on offer there is room where a decision is read; 0 for none.

    It is for all on offer where the order of a list says something.
    """
    return sum(policy.feature_dims) if policy.arms is None and policy.showing.listed else 0


def _placed(rows: Floats, places: Ints, count: int) -> Floats:
    """Return rows at their places among so many; zeros at all others."""
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
        The arm of each slot.
    offers : sequence or None
        The arms that were on offer, per decision, where arms have no slots of their own; None
        for a decision whose arms were not named.
    actions : array of int64, shape (rows, action_width)
        Slots of what was shown.
    epochs : array of int64, shape (rows,)
    propensities : array of float64, shape (rows,)
        NaN where the policy is deterministic.
    batch : Batch
        The impressions.
    lanes : mapping
        Where the learner that decided keeps what it learned of each key.
    prefixes, places : array of float64, shape (rows, positions)
        Of slates, ``prefix_propensities`` and ``position_propensities``; without rows where they
        are not known.
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
        """The slot of the (first) arm of each decision."""
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
        # Column by column: in a loop over rows, Python would cost more than deciding.
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
    """Return numbers as Python's, NaN as None.

    Examples
    --------
    >>> none_for_nan(np.array([0.5, np.nan]))
    [0.5, None]
    """
    numbers = values.tolist()
    # A sum with a NaN in it is one; with both infinities, too, which does no harm.
    whole = sum(numbers)
    return [None if x != x else x for x in numbers] if whole != whole else numbers


def small(most: float) -> str:
    """Return what is doubted of many rewards of which this is the largest.

    Examples
    --------
    >>> small(0.0), small(0.25)
    ('', '')
    """
    if not 0.0 < most <= SMALL:
        return ""
    return f"reward: none is above {most:g}, and so little teaches little; give 1 for as much as there can be"


class LearningWatch:
    """Watch what a learner learns, and find what is wrong with it: repetitions, clicks alone, a sorted order.

    Attributes
    ----------
    ring : array of int
        At each number modulo its length the latest of these that was learned; −1 for none.
    warned : bool
        Whether a repetition was warned of, after which none is looked for.
    missed : bool
        Whether any was learned for which nothing came back; of duels, whose 0 is a win, from the start.
    most : float
        The largest reward that was learned.
    left : int
        Of how many decisions more the order is watched.
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
        """Watch neither order nor what is lacking: a feedback window learns in order."""
        self.left, self._stopped = 0, True

    def find_lack(self, made: int) -> str:
        """Return what is wrong with how the many decisions that a learner made were learned, or ""."""
        count = LATEST - self.ring.count(-1)
        if self._stopped:
            return small(self.most) if made >= MANY else ""
        if not count and made >= MANY:
            return f"learn: of {made:,} decisions none was learned; call learn(decision, reward) for each"
        if not self.missed and WATCHED // 10 <= count <= min(LATEST, made) // 2:
            return f"reward: of {made:,} decisions few were learned, and none with 0.0; {IN_ORDER}"
        return small(self.most) if made >= MANY else ""

    def find_sorted(self, decision: Decision, clicked: bool, made: int, keys: int) -> str:
        """Watch the order of one more decision that is learned; return what is wrong with it, or "".

        Among the first 200, none is 0 although a third of the decisions up to the last is not learned: at
        random this has a probability of .00004 at most where .95 of the decisions have a reward, and less
        below. Or zeros and rewards differ in how many are learned late, ten decisions of a key or more behind
        a newer one of it: Fisher's exact test, after each 50, both sides, 1.25e-5 each, so 1e-4 in all if
        outcomes do not depend on when they are learned. Decisions of other learners are not watched.
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
        """Warn, once, that decisions were learned before; the first of them is given.

        A learner that made fewer knows the number only from another one. The warning points at the
        caller so many calls up.
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
        """Note decisions that were learned, warn of repeated ones; return what else is wrong, or ""."""
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
    """Return how likely so unequal numbers of late ones are, on the more extreme side, by Fisher's test.

    Examples
    --------
    >>> chance_of_late(10, 5, 10, 5) > 0.5, chance_of_late(30, 30, 20, 0) < 1e-9
    (True, True)
    """
    late, count = late_zeros + late_rewards, zeros + rewards
    ways = [math.comb(zeros, k) * math.comb(rewards, late - k) for k in range(late + 1)]
    side = min(sum(ways[: late_zeros + 1]), sum(ways[late_zeros:]))
    return side / math.comb(count, late)
