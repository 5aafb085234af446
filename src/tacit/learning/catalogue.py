"""A catalogue of items with their vectors, so that decisions need only name their candidates."""

# 1. ``CandidateVectors`` and ``Candidates``: the candidates of decisions, unaffected by later changes.
# 2. ``Catalogue``: items are put and removed; an item that changes gets a new row, so that earlier
#    ``Candidates`` stay valid; vectors are in one array of half precision, which grows by a quarter.

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.core import checks
from tacit.core.arrays import Floats, Ints
from tacit.errors import AssumptionWarning, InvalidValue, UnknownName, suggest_name, with_suggestions
from tacit.frames import to_numeric
from tacit.learning.decisions import Arm

Halves = npt.NDArray[np.float16]

MAX_CANDIDATES = 10_000
"""Most candidates of one decision; for larger catalogues a search must select them first."""
MIN_ROWS = 1024
MAX_NUMBER = float(np.finfo(np.float16).max)


class CandidateVectors(NamedTuple):
    """Vectors of the candidates of several decisions, concatenated, and each decision's number of them."""

    vectors: Floats
    sizes: Ints


@dataclass(frozen=True)
class CandidateSet:
    """Candidates with their present vectors, unaffected by later changes of the catalogue.

    Attributes
    ----------
    ids : sequence of str or int
    halves : array of float16
        The vectors of the whole catalogue.
    rows : array of int64
        The candidates' rows in ``halves``.
    """

    ids: Sequence[Arm]
    halves: Halves
    rows: Ints

    def __len__(self) -> int:
        """Return the number of candidates."""
        return len(self.rows)

    @property
    def vectors(self) -> Floats:
        """A copy of the candidates' vectors as float64, shape (candidates, dim)."""
        return self.halves.take(self.rows, axis=0).astype(np.float64)


class AllCandidates(CandidateSet):
    """All items of a catalogue as candidates; their vectors are converted once."""

    @cached_property
    def vectors(self) -> Floats:
        """The candidates' vectors as float64, shape (candidates, dim), which must not be changed."""
        return super().vectors


def stack_vectors(candidates: Sequence[CandidateSet], dim: int) -> CandidateVectors:
    """Return the vectors, of ``dim`` numbers, of the candidates of several decisions."""
    blocks = [each.vectors for each in candidates] or [np.empty((0, dim))]
    sizes = np.array(list(map(len, candidates)), np.int64)
    return CandidateVectors(blocks[0] if len(blocks) == 1 else np.concatenate(blocks), sizes)


class AllIds(list[Arm]):
    """The ids of all items, or of all items of a segment, in the order in which they were put."""


class Catalogue:
    """Items by id, each with its vector and optionally a segment.

    A learner whose policy identifies arms by their relevance features has a catalogue ``learner.items``.
    Its decisions name candidates as ``arms``, without ``relevance``; without ``arms`` all items are
    candidates. Vectors are stored in half precision (11 binary digits): 100,000 of 384 numbers take 77 MB.

    Parameters
    ----------
    dim : int
        Length of a vector.

    Attributes
    ----------
    dim : int
    version : int
        Number of changes: how often items were put or removed.

    Examples
    --------
    >>> import numpy as np
    >>> import tacit
    >>> learner = tacit.Learner(tacit.EmbeddingMixture(relevance_dim=40), seed=1)
    >>> vectors = np.random.default_rng(1).standard_normal((3, 40))
    >>> learner.items.put(["film", "song", "news"], vectors, segments=["fun", "fun", "serious"])
    >>> learner.choose(arms=["film", "news"]).arm in ("film", "news")
    True
    >>> learner.choose().arm in learner.items
    True
    >>> learner.choose(arms=learner.items.ids("serious")).arm
    'news'
    >>> learner.items.remove(["news"])
    >>> len(learner.items), learner.items.known(["film", "news"]), learner.items.version
    (2, ['film'], 2)
    """

    def __init__(self, dim: int) -> None:
        """Create an empty catalogue of version 0."""
        self.dim = dim
        self.version = 0
        self._has_warned = False
        # Rows are only ever added, so that copies may share the array.
        self._vectors: Halves = np.empty((0, dim), np.float16)
        self._ids: list[Arm | None] = []  # None for a row whose item is gone, or has another row
        self._segments: list[str | None] = []
        self._rows: dict[Arm, int] = {}  # in the order of the rows
        self._members: dict[str, dict[Arm, int]] = {}  # the same for each segment
        # Cache of ``locate`` for all items and for segments, with the version it is valid for.
        self._cache: tuple[int, dict[str | None, CandidateSet]] = 0, {}

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._rows)

    def __bool__(self) -> bool:
        """True always: an empty catalogue is one, too."""
        return True

    def __contains__(self, id: object) -> bool:
        """True if an item has this id."""
        return id in self._rows

    def __repr__(self) -> str:
        """Return the numbers of items and of coordinates, and the version, as text."""
        return f"<Catalogue: {len(self):,} items of {self.dim} numbers, version {self.version}>"

    @property
    def nbytes(self) -> int:
        """Bytes of the vectors, including spare rows."""
        return self._vectors.nbytes

    def __deepcopy__(self, memo: Any) -> Catalogue:
        """Return :meth:`copy`, which shares the vectors, as they are never changed."""
        return self.copy()

    # Change ----------------------------------------------------------------------------------

    @with_suggestions
    def put(
        self, ids: Sequence[Arm], vectors: npt.ArrayLike, segments: str | Sequence[str | None] | None = None
    ) -> None:
        """Add items, or replace the vector and segment of existing ones; ``version`` grows by 1.

        Warns if all vectors are equal.

        Parameters
        ----------
        ids : sequence of str or int
            Each once; a name has at most 512 bytes.
        vectors : array of float, shape (items, dim), or table
            Each number within ±65,504.
        segments : str, or sequence of str or None, optional
            One segment for all items, or one per item.

        Raises
        ------
        InvalidValue
            If an argument is invalid; then nothing is put.
        """
        names, halves, item_segments = self.validate(ids, vectors, segments)
        if len(names) > 1 and (halves == halves[0]).all():
            message = f"vectors: all {len(names)} are alike, and tell no item from another; give embeddings"
            warnings.warn(message, AssumptionWarning, stacklevel=2)
        self._make_room(len(names))
        first = len(self._ids)
        self._vectors[first : first + len(names)] = halves
        for row, (name, segment) in enumerate(zip(names, item_segments, strict=True), first):
            if name in self._rows:
                self._remove_row(name)
            self._rows[name] = row
            if segment is not None:
                self._members.setdefault(segment, {})[name] = row
        self._ids += names
        self._segments += item_segments
        self.version += 1

    def validate(
        self, ids: Sequence[Arm], vectors: npt.ArrayLike, segments: str | Sequence[str | None] | None = None
    ) -> tuple[list[Arm], Halves, list[str | None]]:
        """Validate the arguments of :meth:`put`; return ids, vectors in half precision, and a segment or None
        per item.

        Raises InvalidValue if an argument is invalid; the catalogue is unchanged.
        """
        if vectors is None and isinstance(ids, Mapping):
            raise InvalidValue("vectors", None, "give list(ids.values()), and as ids list(ids)")
        names, halves = self._validate_ids(ids), self._convert_vectors(vectors)
        if len(halves) != len(names):
            raise InvalidValue("vectors", halves.shape, f"give one for each of {len(names)} items")
        return names, halves, self._validate_segments(segments, len(names))

    def remove(self, ids: Sequence[Arm]) -> None:
        """Remove items, so that they are no longer candidates; ``version`` grows by 1.

        Feedback on decisions that showed them is still learned.

        Raises
        ------
        UnknownName
            If an item is not in the catalogue; then none is removed.
        """
        for name in self.check_present(ids):
            self._remove_row(name)
        self.version += 1

    def check_present(self, ids: Sequence[Arm]) -> list[Arm]:
        """Return ids as a list; raise UnknownName if one is not in the catalogue, InvalidValue if one is
        repeated.
        """
        names = self._validate_ids(ids)
        self._find_rows("ids", names)
        return names

    def _remove_row(self, name: Arm) -> None:
        """Remove one item from the lookups and from its segment; its vector's row stays."""
        row = self._rows.pop(name)
        segment, self._ids[row] = self._segments[row], None
        if segment is not None:
            del self._members[segment][name]
            if not self._members[segment]:
                del self._members[segment]

    def warn_of_passed_vectors(self, offers: Sequence[Any]) -> None:
        """Warn, only once, if vectors are passed for items of the catalogue: the passed ones are used, not
        the catalogue's.

        ``offers`` has the candidates of each decision; only the first one of each is looked up.
        """
        firsts = (arm for arms in offers if arms is not None for arm in islice(checks.offer(arms), 1))
        stored_arm = next((arm for arm in firsts if arm in self._rows), None)
        if stored_arm is not None and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"relevance: {stored_arm!r} has a vector in items, and the one given here is taken in its "
                "place; leave relevance out, or put the new vector into items",
                AssumptionWarning,
                stacklevel=3,
            )

    # Look up ---------------------------------------------------------------------------------

    def ids(self, segment: str | None = None) -> list[Arm]:
        """Return the ids of all items, or of the items of a segment, in the order in which they were put.

        A segment without items gives an empty list; if its name resembles that of another one, a warning says
        so.
        """
        if segment is None:
            return list(self._rows)
        name = checks.name("segment", segment)
        if name not in self._members and (near := suggest_name(name, self._members)):
            message = f"segment: no item is of {segment!r}{near}; items.segments() says what there is"
            warnings.warn(message, AssumptionWarning, stacklevel=2)
        return list(self._members.get(name, ()))

    def known(self, ids: Sequence[Arm]) -> list[Arm]:
        """Return the ids that are in the catalogue, in their order; others, such as of removed items, are
        left out.
        """
        return [id for id in checks.names("ids", checks.as_list(ids)) if id in self._rows]

    def segments(self) -> dict[str, int]:
        """Return a dict from each segment to its number of items; items without segment are not counted."""
        return {segment: len(members) for segment, members in self._members.items()}

    def locate(self, ids: Sequence[Arm] | None, segment: str | None = None) -> CandidateSet:
        """Return items with their present vectors as candidates: the items ``ids``, or all items, or all of a
        segment.

        Raises
        ------
        InvalidValue
            If there are none, too many, or an item twice.
        UnknownName
            If an item is not in the catalogue.
        """
        if ids is None:
            return self._locate_all(segment)
        names = list(checks.names("arms", checks.as_list(ids)))
        rows = self._find_rows("arms", names)
        if len(set(names)) < len(names):
            raise InvalidValue("arms", f"{len(names)} ids", "offer each item once")
        self._check_count(len(names), segment)
        return CandidateSet(names, self._vectors, rows)

    def _locate_all(self, segment: str | None) -> CandidateSet:
        """Return all items, or all of a segment, as candidates; cached until the catalogue changes.

        Raises InvalidValue if there are none or more than 10,000.
        """
        if self._cache[0] != self.version:
            self._cache = self.version, {}
        candidates = self._cache[1].get(segment)
        if candidates is None:
            members = self._rows if segment is None else self._members.get(segment, {})
            self._check_count(len(members), segment)
            rows = np.fromiter(members.values(), np.int64, len(members))
            kind = AllCandidates if segment is None else CandidateSet
            candidates = self._cache[1][segment] = kind(AllIds(members), self._vectors, rows)
        return candidates

    def count(self, segment: str | None = None) -> int:
        """Return the number of all items, or of the items of a segment; 0 for an unknown segment."""
        return len(self._rows if segment is None else self._members.get(segment, ()))

    def _check_count(self, count: int, segment: str | None) -> None:
        """Raise InvalidValue unless a decision can have ``count`` candidates: 1 to 10,000."""
        if not 1 <= count <= MAX_CANDIDATES:
            remedy = f"offer 1 to {MAX_CANDIDATES:,} items: one of items.segments(), or what a search finds"
            of_segment = "" if segment is None else f" of segment {segment!r}"
            raise InvalidValue("arms", f"{count:,} candidates{of_segment}", remedy)

    def vectors(self, ids: Sequence[Arm]) -> Floats:
        """Return the vectors of items as float64, shape (items, dim), in the order of ``ids``.

        Raises
        ------
        UnknownName
            If an item is not in the catalogue.
        """
        return self._vectors[self._find_rows("ids", checks.as_list(ids))].astype(np.float64)

    def find_candidates(self, arms: Any, decisions: int) -> tuple[list[Sequence[Arm]], CandidateVectors]:
        """Return the ids of each decision's candidates, and the vectors of all decisions, concatenated.

        Parameters
        ----------
        arms : sequence of sequence of ids, or None
            The candidates of each decision; None for all items.
        decisions : int

        Raises
        ------
        InvalidValue
            If a decision has none or too many.
        UnknownName
            If an item is not in the catalogue.
        """
        if arms is not None and len(checks.names("arms", arms)) != decisions:
            raise InvalidValue("arms", arms, f"give one list of arms for each of {decisions} impressions")
        candidate_lists = [self.locate(offer) for offer in ([None] * decisions if arms is None else arms)]
        return [candidates.ids for candidates in candidate_lists], stack_vectors(candidate_lists, self.dim)

    # Copy and save ---------------------------------------------------------------------------

    def copy(self) -> Catalogue:
        """Return a copy that later changes do not affect; it shares the vectors."""
        copy = Catalogue(self.dim)
        copy.version = self.version
        copy._vectors = self._vectors[: len(self._ids)]
        copy._ids, copy._segments = list(self._ids), list(self._segments)
        copy._rows = dict(self._rows)
        copy._members = {segment: dict(members) for segment, members in self._members.items()}
        return copy

    def columns(self) -> tuple[list[Arm], list[str | None], Halves]:
        """Return ids, segments and vectors of all items, in the order of ids; the caller must not change
        them.

        Rows of removed and replaced items are dropped from the catalogue first.
        """
        if len(self._rows) < len(self._ids):
            self._close_gaps()
        return self._ids, self._segments, self._vectors[: len(self._ids)]  # type: ignore[return-value]

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the items as an Arrow stream with the columns ``id``, ``vector`` and ``segment``."""
        import pyarrow as pa

        ids, segments, halves = self.columns()
        numbers = pa.array(halves.astype(np.float32).reshape(-1))
        vectors = pa.FixedSizeListArray.from_arrays(numbers, self.dim)
        names = pa.array(list(map(str, ids)), pa.string())
        columns = {"id": names, "vector": vectors, "segment": pa.array(segments, pa.string())}
        return pa.table(columns).__arrow_c_stream__(requested_schema)

    @classmethod
    def from_columns(
        cls, ids: Sequence[Arm], segments: Sequence[str | None], vectors: Halves, version: int
    ) -> Catalogue:
        """Return a catalogue with items and version from columns as :meth:`columns` returns them."""
        catalogue = cls(vectors.shape[1])
        catalogue.put(ids, vectors, segments)
        catalogue.version = version
        return catalogue

    # Internal --------------------------------------------------------------------------------

    def _find_rows(self, field: str, ids: Sequence[Arm]) -> Ints:
        """Return the rows of items in the catalogue; raise UnknownName if one is missing, naming the argument
        ``field``.
        """
        try:
            return np.fromiter(map(self._rows.__getitem__, ids), np.int64, len(ids))
        except (KeyError, TypeError):
            lacking = [id for id in ids if not isinstance(id, str | int) or id not in self._rows]
        first = lacking[0]
        twin: Any = int(first) if isinstance(first, str) and first.isdecimal() else str(first)
        more = f" (did you mean {twin!r}?)" if twin in self._rows else ""
        more += f" (and {len(lacking) - 1} more)" if len(lacking) > 1 else ""
        raise UnknownName(
            f"{field}: {first!r}{more} is not in the catalogue; put it there, or leave it out: "
            "items.known(ids) returns those that are; to a service send unknown = 'skip'"
        )

    def _validate_ids(self, ids: Sequence[Arm]) -> list[Arm]:
        """Return ids as a list; raise InvalidValue if one is repeated, too long or no name or number."""
        names = list(checks.names("ids", checks.as_list(ids)))
        for name in names:
            if type(name) is not int:
                checks.name("ids", name)
        if len(set(names)) < len(names):
            twice = next(name for i, name in enumerate(names) if name in names[:i])
            raise InvalidValue("ids", twice, "give each item once")
        return names

    def _convert_vectors(self, vectors: Any) -> Halves:
        """Return vectors in half precision, shape (items, dim).

        Raises InvalidValue for another shape, or numbers that are not finite in half precision.
        """
        try:
            numbers = to_numeric("vectors", vectors)
            with np.errstate(over="ignore"):
                halves: Halves = numbers.astype(np.float16)
        except (TypeError, ValueError):
            numbers = vectors if len(vectors) < 9 else f"{len(vectors)} vectors"
            remedy = f"give rows of {self.dim} numbers, one for each item"
            raise InvalidValue("vectors", numbers, remedy) from None
        if halves.ndim == 1 and halves.size:
            remedy = "it is one row of numbers; give a row for each item, as [vector] of one"
            raise InvalidValue("vectors", halves.shape, remedy)
        if halves.ndim != 2 or (halves.shape[1] != self.dim and len(halves)):
            raise InvalidValue("vectors", halves.shape, f"give rows of {self.dim} numbers, one for each item")
        wrong = ~np.isfinite(halves)
        if wrong.any():
            at = tuple(int(place[0]) for place in np.nonzero(wrong))
            remedy = f"give finite numbers within ±{MAX_NUMBER:,.0f}; divide larger ones, such as prices"
            raise InvalidValue(f"vectors[{at[0]}, {at[1]}]", float(numbers[at]), remedy)
        return halves

    def _validate_segments(self, argument: Any, count: int) -> list[str | None]:
        """Return a segment or None for each of ``count`` items; ``argument`` is one for all, or one for each.

        Raises InvalidValue for a list of another length.
        """
        if argument is None or isinstance(argument, str):
            return [argument if argument is None else checks.name("segments", argument)] * count
        segments = list(checks.as_list(argument))
        if len(segments) != count or isinstance(argument, Mapping):
            raise InvalidValue("segments", argument, f"give one for all, or one for each of {count} items")
        return [None if segment is None else checks.name("segments", segment) for segment in segments]

    def _make_room(self, count: int) -> None:
        """Enlarge the array of vectors by at least a quarter if ``count`` more rows do not fit.

        If a quarter of the rows is unused, these are dropped first.
        """
        row_count = len(self._ids)
        if row_count + count <= len(self._vectors):
            return
        if 4 * len(self._rows) < 3 * row_count:
            self._close_gaps()
            row_count = len(self._ids)
        room = max(MIN_ROWS, row_count + count, row_count + row_count // 4)
        vectors = np.empty((room, self.dim), np.float16)
        vectors[:row_count] = self._vectors[:row_count]
        self._vectors = vectors

    def _close_gaps(self) -> None:
        """Drop the rows of removed and replaced items from all columns; the remaining rows are renumbered in
        order.
        """
        rows = np.fromiter(self._rows.values(), np.int64, len(self._rows))
        self._vectors = self._vectors[rows]
        self._segments = [self._segments[row] for row in rows.tolist()]
        self._ids = list(self._rows)
        self._rows = {id: row for row, id in enumerate(self._rows)}
        self._members = {}
        for (id, row), segment in zip(self._rows.items(), self._segments, strict=True):
            if segment is not None:
                self._members.setdefault(segment, {})[id] = row
