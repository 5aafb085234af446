"""A placement's catalogue: items that marks of its log put and remove, and decisions among them.

The catalogue is the learner's, and is in its snapshots. A decision keeps the vector of what it showed in its
row of the log: what it teaches, the log says without the catalogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from tacit.core.arrays import Floats
from tacit.errors import InvalidValue
from tacit.learning.catalogue import Catalogue, Located
from tacit.learning.decisions import Arm, Decision
from tacit.learning.learner import restored
from tacit.learning.snapshot import from_bytes
from tacit.policies import Policy
from tacit.service.log.requests import DecisionRequest
from tacit.service.log.rows import ITEMS, DecisionRow, MarkRow, parsed, text_of
from tacit.service.log.store import Snapshot
from tacit.service.placements.aspects.aspect import Aspect, Effect
from tacit.wire.decisions import ItemsGone, ItemsNow, ItemsOf

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement

SKIP = "skip"
VECTORS = '"vector":', '"vectors":'
"""What rows have of decisions among items of a catalogue; a text in JSON cannot be so."""


class Items(Aspect):
    """Keeps items for requests that name their candidates, in the catalogue of the learner.

    Attributes
    ----------
    elsewhere : ItemsNow or None
        What there is, where shards keep it.
    """

    mark = ITEMS
    elsewhere: ItemsNow | None = None

    def now(self, placement: Placement) -> ItemsNow:
        """Return what there is, as a whole."""
        items = placement.learner.items
        return self.elsewhere or ItemsNow(len(items), items.version, items.segments())

    def marked(self, placement: Placement, mark: MarkRow) -> None:
        """Take in a mark."""
        placement.since_snapshot += take_mark(placement.learner.items, mark.value)

    def part(self, placement: Placement) -> ItemsNow:
        """Return what there is in a shard."""
        return self.now(placement)

    def show(self, placement: Placement, parts: Sequence[ItemsNow]) -> None:
        """Show what there is in the first shard: every one has all of them."""
        self.elsewhere = parts[0]


def items_for(policy: Policy) -> Items | None:
    """Return the aspect for a policy that knows arms by their relevance alone; None for any other."""
    by_relevance = policy.arms is None and policy.feature_dims[0] > 0 and policy.feature_dims[1] == 0
    return Items() if by_relevance else None


# ---- Changes of the catalogue, as marks of the log


class ItemsMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is put into a catalogue, or taken out, as a mark of the log holds it.

    Attributes
    ----------
    ids : list of str
    vectors : bytes or None
        Numbers of half precision, one vector after the other; None where the items are taken out.
    segments : list of str or None
        Of each item that is put; none where no item has one.
    """

    ids: list[int | str]
    vectors: bytes | None = None
    segments: list[str | None] = []


class ItemShown(msgspec.Struct, frozen=True):
    """What a decision among items showed, as its row of the log holds it.

    Attributes
    ----------
    vector : bytes
        Numbers of half precision.
    place : int
        Of the item among the candidates.
    of : int
        How many candidates there were.
    """

    vector: bytes
    place: int
    of: int

    @property
    def relevance(self) -> Floats:
        """The vector, shape (1, dim)."""
        return np.frombuffer(self.vector, np.float16).astype(np.float64)[None]


def _catalogue(placement: Placement) -> Catalogue:
    """Return the catalogue of a placement.

    Raises
    ------
    InvalidValue
        If it has none.
    """
    if placement.items is None:
        why = 'it has no catalogue; ask one of kind = "features" that knows its arms by relevance_dim alone'
        raise InvalidValue("placement", placement.name, why)
    return placement.learner.items


def _put(placement: Placement, asked: ItemsOf, time: int) -> str:
    """Return the mark that puts items into a catalogue; nothing is changed yet.

    Raises
    ------
    InvalidValue
        If one does not fit, or there is no catalogue.
    """
    items = _catalogue(placement)
    for i, item in enumerate(asked.items):
        if len(item.vector) != items.dim:
            remedy = f"the policy reads {items.dim} numbers of each item"
            raise InvalidValue(f"items[{i}].vector", f"{len(item.vector)} numbers", remedy)
        for field, text in (("id", item.id), ("segment", item.segment or "")):
            if "\0" in text:
                raise InvalidValue(f"items[{i}].{field}", text, "leave out the character U+0000")
    ids, segments = [item.id for item in asked.items], [item.segment for item in asked.items]
    names, halves, segments = items.checked(ids, [item.vector for item in asked.items], segments)
    return text_of(ItemsMark(names, halves.tobytes(), segments if any(segments) else []))


def _remove(placement: Placement, asked: ItemsGone, time: int) -> str:
    """Return the mark that takes items out of a catalogue; nothing is changed yet.

    Raises
    ------
    InvalidValue, UnknownName
        If one is not there, or is named twice; or there is no catalogue.
    """
    return text_of(ItemsMark(_catalogue(placement).present(asked.ids)))


def take_mark(items: Catalogue, value: str) -> int:
    """Change a catalogue as a mark says; return how many items that were."""
    mark = msgspec.json.decode(value, type=ItemsMark)
    if mark.vectors is None:
        items.remove(mark.ids)
    else:
        halves = np.frombuffer(mark.vectors, np.float16).reshape(len(mark.ids), items.dim)
        items.put(mark.ids, halves, mark.segments or None)
    return len(mark.ids)


def items_now(placement: Placement, time: int = 0) -> ItemsNow:
    """Return what is asked of a catalogue as a whole.

    Raises
    ------
    InvalidValue
        If the placement has none.
    """
    _catalogue(placement)
    assert placement.items is not None
    return placement.items.now(placement)


# ---- Candidates of a request: by id, of a segment, or all


class Sought(NamedTuple):
    """Where the candidates of a request without features are found, once it is decided.

    A request that comes again is answered as before, whatever became of them, and of many shards each looks
    them up itself.

    Attributes
    ----------
    segment : str or None
        All items of it are candidates; without one all that are named, or all that there are.
    skips : bool
        Whether what is named and not there is left out.
    """

    segment: str | None
    skips: bool

    @property
    def text(self) -> str:
        """What the log keeps of it."""
        return text_of({} if self.segment is None else {"segment": self.segment})

    def candidates(self, items: Catalogue, arms: Sequence[Arm] | None) -> Located:
        """Return the candidates as they are now.

        Raises
        ------
        InvalidValue, UnknownName
            If there are none or too many, or one is not there and is not to be skipped.
        """
        if arms is not None:
            there = items.known(arms) if self.skips else arms
            if arms and not there:
                raise InvalidValue("arms", arms, "none of them is in the catalogue; put them there")
            return items.located(there)
        return items.located(None, self.segment)

    def count_candidates(self, items: Catalogue, arms: Sequence[Arm] | None) -> int:
        """Return how many candidates there are, if these arms are named."""
        return items.count(self.segment) if arms is None else len(arms)


def sought_by(request: DecisionRequest) -> Sought:
    """Return where the candidates of a request without features are found.

    Raises
    ------
    InvalidValue
        If they are named and of a segment, too.
    """
    if request.arms is not None and request.segment is not None:
        raise InvalidValue("segment", request.segment, "leave it out, or the arms: these are the candidates")
    return Sought(request.segment, request.unknown == SKIP)


# ---- The catalogue of then, as the log is read


class ItemsThen:
    """The catalogue of a placement as it was at each row of its log, which is read from the beginning.

    Parameters
    ----------
    policy : Policy
    base : Snapshot or None
        Where the log begins, if old rows were dropped.
    """

    def __init__(self, policy: Policy, base: Snapshot | None) -> None:
        kept = None if base is None else from_bytes(base.learner, "base", restored).kept_items
        self._items = Catalogue(policy.feature_dims[0]) if kept is None else kept

    def marked(self, mark: MarkRow) -> None:
        """Take in a mark of the placement."""
        if mark.kind == ITEMS:
            take_mark(self._items, mark.value)

    def candidates(self, row: DecisionRow) -> Located | None:
        """Return the candidates of a decision; None if they came with its request."""
        if not any(key in (row.shown or "") for key in VECTORS):
            return None
        return Sought(parsed(row.asked).get("segment"), False).candidates(self._items, parsed(row.offered))


def items_then(policy: Policy, base: Snapshot | None) -> ItemsThen | None:
    """Return what follows the catalogue of a placement with such a policy; None where it has none."""
    return None if items_for(policy) is None else ItemsThen(policy, base)


def shown_text(candidates: Located, decision: Decision) -> str:
    """Return what a decision among candidates showed, as the log keeps it."""
    place = decision.slot
    vector = candidates.halves[candidates.rows[place]].tobytes()
    return text_of(ItemShown(vector, place, len(candidates)))


def shown_of(text: str | None) -> ItemShown | None:
    """Return what :func:`shown_text` gave; None for a decision of other candidates."""
    return None if text is None else msgspec.json.decode(text, type=ItemShown)


def as_array(given: Any) -> Any:
    """Return the vectors of candidates; features that came with a request as they are."""
    return given.vectors if isinstance(given, Located) else given


# ---- The verbs that change it


Items.changes = {
    ItemsOf: Effect(ITEMS, _put, items_now, in_shards=True),
    ItemsGone: Effect(ITEMS, _remove, items_now, in_shards=True),
}
