"""Catalogue of a placement: items that change events put and remove, and decisions among them.

The learner holds the catalogue and stores it in its snapshots. A decision's row of the log holds the vector
of the shown item, so that learning from the log needs no catalogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tacit.core.arrays import Floats
from tacit.errors import InvalidValue
from tacit.learning.catalogue import CandidateSet, Catalogue, stack_vectors
from tacit.learning.columns import find_catalogue
from tacit.learning.decisions import Arm
from tacit.learning.learner import restore_learner
from tacit.learning.snapshot import from_bytes
from tacit.policies import Policy
from tacit.service.deciders.aspect import Aspect
from tacit.service.deciders.policy import PolicyDecider
from tacit.service.log.requests import DecisionRequest
from tacit.service.log.rows import ITEMS, ChangeRow, DecisionRow, decode_json, encode_json
from tacit.service.log.store import Snapshot
from tacit.wire.decisions import ItemsNow

SKIP = "skip"
VECTORS = '"vector":', '"vectors":'
"""Field names that occur in rows of decisions among catalogue items; no JSON string can contain them."""


class Items(Aspect):
    """The catalogue of the learner, for requests that select their candidates from it.

    Parameters
    ----------
    policy : PolicyDecider
    """

    change_kind = ITEMS

    def __init__(self, policy: PolicyDecider) -> None:
        self._policy = policy

    def get_status(self) -> ItemsNow:
        """Return the size, version and segments of the catalogue."""
        items = self._policy.learner.items
        return ItemsNow(len(items), items.version, items.segments())

    def apply_change(self, change: ChangeRow) -> int:
        """Apply a change event: put items into the learner's catalogue, or remove them.

        Returns the number of items: each counts as an event towards the next snapshot.
        """
        return apply_items_change(self._policy.learner.items, change.value)


def has_catalogue(policy: Policy) -> bool:
    """True if the policy knows arms by relevance features alone; then the placement may have a catalogue."""
    return policy.arms is None and policy.feature_dims[0] > 0 and policy.feature_dims[1] == 0


# ---- Changes of the catalogue, as change events of the log


class ItemsChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """Items put into a catalogue or removed from it, as a change event holds them.

    Attributes
    ----------
    ids : list of str
    vectors : bytes or None
        Numbers of half precision, one vector after the other; None to remove the items.
    segments : list of str or None
        Segment of each item; empty if no item has one.
    """

    ids: list[int | str]
    vectors: bytes | None = None
    segments: list[str | None] = []


class ShownItem(msgspec.Struct, frozen=True):
    """The item that a decision showed, as its row of the log holds it.

    Attributes
    ----------
    vector : bytes
        Numbers of half precision.
    place : int
        Position of the item among the candidates.
    of : int
        Number of candidates.
    """

    vector: bytes
    place: int
    of: int

    @property
    def relevance(self) -> Floats:
        """The item's vector, shape (1, dim)."""
        return np.frombuffer(self.vector, np.float16).astype(np.float64)[None]


def apply_items_change(items: Catalogue, value: str) -> int:
    """Put items into a catalogue or remove them, as a change event says; return the number of items named."""
    change = msgspec.json.decode(value, type=ItemsChange)
    if change.vectors is None:
        items.remove(change.ids)
    else:
        halves = np.frombuffer(change.vectors, np.float16).reshape(len(change.ids), items.dim)
        items.put(change.ids, halves, change.segments or None)
    return len(change.ids)


# ---- Candidates of a request: by id, of a segment, or all


class CandidateQuery(NamedTuple):
    """The query that selects the candidates of a request without features.

    It is answered when the request is decided, by each shard itself.

    Attributes
    ----------
    segment : str or None
        All items of the segment are candidates; without it the named items, or all.
    skips : bool
        Whether to leave out named items that are missing.
    """

    segment: str | None
    skips: bool

    @property
    def text(self) -> str:
        """The query as JSON text for the log."""
        return encode_json({} if self.segment is None else {"segment": self.segment})

    def find_candidates(self, items: Catalogue, arms: Sequence[Arm] | None) -> CandidateSet:
        """Return the distinct items that are candidates: the named arms, a segment, or the whole catalogue.

        Raises
        ------
        InvalidValue, UnknownName
            If there are none or too many, or one is missing and must not be skipped.
        """
        if arms is not None:
            ids = items.known(arms) if self.skips else arms
            if arms and not ids:
                raise InvalidValue("arms", arms, "none of them is in the catalogue; put them there")
            return items.locate(ids)
        return items.locate(ids=None, segment=self.segment)

    def count_candidates(self, items: Catalogue, arms: Sequence[Arm] | None) -> int:
        """Return the number of named arms; if none are named, of the segment's items, or of all."""
        return items.count(self.segment) if arms is None else len(arms)


def make_candidate_query(request: DecisionRequest) -> CandidateQuery:
    """Return the candidate query of a request that has no features.

    Raises
    ------
    InvalidValue
        If both arms and a segment are given.
    """
    if request.arms is not None and request.segment is not None:
        raise InvalidValue("segment", request.segment, "leave it out, or the arms: these are the candidates")
    return CandidateQuery(request.segment, request.unknown == SKIP)


# ---- The catalogue at each row of the log


class CatalogueHistory:
    """The catalogue of a placement at each row of its log, read from the beginning.

    Parameters
    ----------
    policy : Policy
    base : Snapshot or None
        Snapshot at the log's beginning, if old rows were dropped.
    """

    def __init__(self, policy: Policy, base: Snapshot | None) -> None:
        """Begin with the catalogue of the snapshot, or an empty one."""
        catalogue = None
        if base is not None:
            catalogue = find_catalogue(from_bytes(base.learner, "base", restore_learner))
        self._items = Catalogue(policy.feature_dims[0]) if catalogue is None else catalogue

    def apply_change(self, change: ChangeRow) -> None:
        """Apply a change event to the catalogue; events of other kinds change nothing."""
        if change.kind == ITEMS:
            apply_items_change(self._items, change.value)

    def find_candidates(self, row: DecisionRow) -> CandidateSet | None:
        """Return the candidates of a logged decision, from the catalogue as of the last applied change.

        None if the features came with the request.
        """
        if not any(key in (row.shown or "") for key in VECTORS):
            return None
        return CandidateQuery(decode_json(row.asked).get("segment"), skips=False).find_candidates(
            self._items, decode_json(row.offered)
        )


def make_catalogue_history(policy: Policy, base: Snapshot | None) -> CatalogueHistory | None:
    """Make the catalogue history of a placement; None if its policy uses no catalogue."""
    return CatalogueHistory(policy, base) if has_catalogue(policy) else None


def format_shown_item(candidates: CandidateSet, position: int) -> str:
    """Return vector and position of the item that a decision showed as JSON for the log."""
    vector = candidates.halves[candidates.rows[position]].tobytes()
    return encode_json(ShownItem(vector, position, len(candidates)))


def parse_shown_item(text: str | None) -> ShownItem | None:
    """Parse the output of :func:`format_shown_item`; None for None."""
    return None if text is None else msgspec.json.decode(text, type=ShownItem)


def read_vectors(features: Sequence[Any], dim: int) -> Any:
    """Return the features of several impressions, ``dim`` numbers for each arm, with vectors in place of
    candidates.
    """
    if all(isinstance(each, CandidateSet) for each in features):
        return stack_vectors(features, dim)
    return [each.vectors if isinstance(each, CandidateSet) else each for each in features]
