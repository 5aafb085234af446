"""Learn click logs: each row is learned as if the learner had made the decision."""

# 1. Features of arms: from a table of arms, from the log's columns, or from a table of items.
# 2. ``learn_log``: learns a log in training batches.
# 3. ``_BatchReader``: converts chunks of a log to training batches: of single arms, of lists, with features.

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.core import checks
from tacit.core.arrays import Floats, Ints
from tacit.core.parallel import counted
from tacit.errors import AssumptionWarning, InvalidValue, UnfitLog, UnknownName
from tacit.frames import frame_batches, frame_names, is_frame, matrix
from tacit.learning.batch import Batch
from tacit.learning.columns import ColumnLearner
from tacit.learning.decisions import MANY, small
from tacit.logs.data_warnings import FROM_ONE, REMEDY
from tacit.logs.items import ItemTable, items_of
from tacit.logs.parts import beginnings, has_times_in_order, sort_by_time, whole_lists
from tacit.logs.reader import LogReader
from tacit.logs.rows import Chunk, lengths, numbers
from tacit.logs.schema import FEATURE
from tacit.logs.selection import list_codes, selected
from tacit.policies.base import NO_FEATURES, Policy

# ---- Features of arms, from columns of the click log or from a separate table

FIELDS = "relevance", "examination"
AT_ONCE = 2**22
"""Most feature values of items that are looked up at once."""
NO_TIME = -(2**62)
SURELY = 100
"""From this many decisions on, two logs with equal rewards are the same log, not equal by chance."""
WAYS = (
    '{field}=["price", "age"], columns of the log, where rows have the features of the arm shown; '
    'or {field}={{"film": [0.2, 0.9], …}} or a table with a column "arm", where arms have theirs '
    "for good; or items=, a table with the columns id and vector"
)


class ArmTable(NamedTuple):
    """Features of arms by their names."""

    field: str
    names: Any  # pyarrow.Array of string
    rows: Floats  # (arms, d)

    def of(self, chunk: Chunk, arms: Any) -> Floats:
        """Return the features of arms, a row for each."""
        found = pc.index_in(arms.cast(pa.string()), value_set=self.names)
        if found.null_count:
            lacking = arms.filter(found.is_null())[0].as_py()
            raise UnknownName(
                f"{chunk.source}: arms: {self.field} has no features of {lacking!r}; give them, "
                "or leave out what offers it"
            )
        rows: Floats = self.rows[found.to_numpy()]
        return rows


class RowColumns(NamedTuple):
    """Features of the arm shown in each row, in columns of the log."""

    field: str
    names: list[str]

    def of(self, chunk: Chunk, arms: Any) -> Floats:
        """Return the features of the rows' arms."""
        found = np.empty((len(chunk.rows), len(self.names)))
        for column, name in enumerate(self.names):
            values = chunk.batch[FEATURE + name]
            try:
                read = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
            except pa.ArrowException:
                read = np.full(len(values), np.nan)
            wrong = ~np.isfinite(read)
            if wrong.any():
                row = int(np.argmax(wrong))
                raise UnfitLog(
                    f"{chunk.where(row)}: {name}: it is no finite number; make numbers of what "
                    "is none, such as by a transformer of scikit-learn, and give each row one"
                )
            found[:, column] = read
        return found


class ItemVectors(NamedTuple):
    """Vectors of arms in a table of items, separate from the log."""

    table: ItemTable

    def of(self, chunk: Chunk, arms: Any, rows: Ints | None = None) -> Floats:
        """Return the vectors of arms; ``rows`` are the log rows of the arms, by default one row per arm."""
        times = chunk.batch["timestamp"] if self.table.dated else None
        times = times if times is None or rows is None else times.take(pa.array(rows))
        codes = self.table.codes(arms, chunk.source)
        return self.table.vectors(self.table.rows(codes, times, chunk.source))


class LoggedFeatures:
    """The sources of the features of a log's arms, for a policy that reads features.

    Parameters
    ----------
    policy : Policy
    sources : tuple
        The sources of relevance and of examination: names of columns, a table of arms, or None.
    items : ItemTable, optional
        The source of relevance if ``sources`` has none.

    Attributes
    ----------
    by_row : bool
        True if rows have only the features of the arm shown.
    by_offer : bool
        True if the features of all arms on offer are looked up, as list policies need.

    Raises
    ------
    InvalidValue
        If a source is missing, or has another number of features than the policy reads.
    """

    def __init__(self, policy: Policy, given: tuple[Any, Any], items: ItemTable | None = None) -> None:
        if given[0] is None and policy.feature_dims[0] and items is not None:
            given = items, given[1]
        self._blocks = [
            _block(policy, field, dim, block)
            for field, dim, block in zip(FIELDS, policy.feature_dims, given, strict=True)
        ]
        columns = [block for block in self._blocks if isinstance(block, RowColumns)]
        by_item = [block for block in self._blocks if isinstance(block, ItemVectors)]
        self.by_offer = bool(by_item) and policy.showing.listed
        self.by_row = bool(columns or by_item) and not self.by_offer
        self._schema = policy.schema
        self.names = list(dict.fromkeys(name for block in columns for name in block.names))
        self.needed = [FEATURE + name for name in self.names]
        self.needed += ["timestamp"] if any(block.table.dated for block in by_item) else []
        self.at_once = max(1, AT_ONCE // sum(policy.feature_dims)) if by_item else None

    def opened(self, log: Any) -> Any:
        """Return the log reader, set to read the columns of contexts and features, too."""
        if isinstance(log, LogReader):
            log = log.with_context(self._schema)
        if not self.names:
            return log
        if not isinstance(log, LogReader):
            raise InvalidValue("log", log, "give the whole log, not a part of one")
        return log.with_features(self.names)

    def of(self, chunk: Chunk, arms: Any, rows: Ints) -> tuple[Floats, Floats]:
        """Return relevance and examination of arms on offer; ``rows`` are the log rows of the arms."""
        found = []
        for block in self._blocks:
            if isinstance(block, ItemVectors):
                found.append(block.of(chunk, arms, rows))
            else:
                found.append(NO_FEATURES if block is None else block.of(chunk, arms))
        return found[0], found[1]


def _block(policy: Policy, field: str, dim: int, given: Any) -> ArmTable | RowColumns | ItemVectors | None:
    if given is None:
        if not dim:
            return None
        remedy = f"the policy reads {dim} features of arms here; give {WAYS.format(field=field)}"
        raise InvalidValue(field, None, remedy)
    if not dim:
        raise InvalidValue(field, given, f"leave it out: {type(policy).__name__} reads none")
    if isinstance(given, ItemTable):
        if given.dim != dim:
            raise InvalidValue("items", f"{given.dim} numbers", f"the policy reads {dim} of each item")
        return ItemVectors(given)
    block = (
        RowColumns(field, list(checks.names(field, checks.listed(given))))
        if _is_names(given)
        else arm_table(field, given)
    )
    count = len(block.names) if isinstance(block, RowColumns) else block.rows.shape[1]
    if count != dim:
        remedy = f"the policy reads {dim} features of arms here, and this has {count}"
        raise InvalidValue(field, given, f"{remedy}; give as many, or another {field}_dim")
    return block


def features_given(given: Any) -> int:
    """Return the number of features in a source: columns of a log, or of a table of arms."""
    if given is None:
        return 0
    return len(given) if _is_names(given) else arm_table(FIELDS[0], given).rows.shape[1]


def _is_names(given: Any) -> bool:
    return not isinstance(given, Mapping) and not is_frame(given) and isinstance(given, Sequence)


def arm_table(field: str, given: Any) -> ArmTable:
    """Return a table of arms from a dict of arms to features, or from a table with a column ``arm``."""
    if isinstance(given, Mapping) and "arm" not in given:
        arms, rows = list(map(str, given)), list(given.values())
    elif is_frame(given) and "arm" in frame_names(given):
        others = [name for name in frame_names(given) if name != "arm"]
        batches = list(frame_batches(given, ["arm", *others]))
        arms = [str(arm) for batch in batches for arm in batch["arm"].to_pylist()]
        rows = [row for batch in batches for row in matrix(field, batch.select(others))]
    else:
        raise InvalidValue(field, given, f"give {WAYS.format(field=field)}")
    try:
        table = np.array(rows, np.float64)
    except (TypeError, ValueError):
        table = np.full(0, np.nan)
    if table.ndim != 2 or not np.isfinite(table).all() or len(set(arms)) < len(arms):
        each = "give each arm once, and as many finite numbers as any other one"
        raise InvalidValue(field, given, each)
    return ArmTable(field, pa.array(arms, pa.string()), table)


# ---- Learning a click log in training batches


class Lesson(NamedTuple):
    """Rows of a log as columns: impressions, the arms shown, and their feedback.

    Attributes
    ----------
    batch : Batch
    actions : array of int64, shape (impressions, action_width)
    feedback : array of float64, shape (impressions, feedback_width)
    propensities : array of float64, shape (impressions,)
    """

    batch: Batch
    actions: Ints
    feedback: Floats
    propensities: Floats


class _Offered(NamedTuple):
    """The arms on offer: names, all in one array, with the start and stop of each impression.

    ``row_arms`` has for each row the index of its arm among these names.
    """

    names: Any
    starts: Ints
    stops: Ints
    shown: Ints


def learn_log(
    learner: ColumnLearner,
    log: Any,
    placement: str | None,
    missing_reward: float | None,
    features: tuple[Any, Any] = (None, None),
) -> int:
    """Learn a whole log; return the number of learned decisions.

    Parameters
    ----------
    learner : ColumnLearner
    log : LogReader
    placement, missing_reward
        As for :meth:`tacit.Learner.fit_log`.
    features : tuple
        Its arguments ``relevance`` and ``examination``.

    Raises
    ------
    InvalidValue, UnknownName, LogError
        As ``fit_log``; then nothing is learned.
    """
    learner.policy.check_folds()
    if learner.policy.showing.compared:
        remedy = "it shows duels, of which a click log holds none; teach it by learn_many"
        raise InvalidValue("policy", learner.policy, remedy)
    if missing_reward is not None:
        checks.number("missing_reward", missing_reward, 0.0, 1.0)
    found = LoggedFeatures(learner.policy, features, _items_for(learner, log))
    reader = _LogLessons(learner, placement, missing_reward, found)
    made = learner.decisions
    try:
        mark, most = _learn_rows(learner, reader.read(found.opened(log)))
    except _TimesGoBack:
        # All rows are read into memory only if the log is not sorted by time.
        reader = _LogLessons(learner, placement, missing_reward, found)
        mark, most = _learn_rows(learner, reader.read(found.opened(log), by_time=True))
        getattr(log, "log", log).report.ignore_order()
    count = learner.decisions - made
    if count >= MANY and small(most):
        warnings.warn(f"log: {small(most)}", AssumptionWarning, stacklevel=3)
    if (count, mark) in learner.logs_learned and count >= SURELY:
        what = (
            f"log: the same {count:,} decisions in a row were learned from a log before, and count twice now"
        )
        warnings.warn(f"{what}; let each learner learn a log once", AssumptionWarning, stacklevel=3)
    learner.logs_learned.add((count, mark))
    learner.lanes.logged = True
    return count


def _learn_rows(learner: ColumnLearner, lessons: Iterator[Lesson]) -> tuple[int, float]:
    """Learn all rows or none; return a hash of their rewards and the largest."""
    mark, most = 0, 0.0
    before, made = learner.lanes.kept(), learner.decisions
    try:
        with counted("learning") as report:
            for lesson in lessons:
                mark = crc32(lesson.feedback.tobytes(), mark)
                most = max(most, lesson.feedback.max(initial=0.0))
                learner.relive(lesson.batch, lesson.actions, lesson.feedback, lesson.propensities)
                report(learner.decisions - made)
    except BaseException:
        learner.lanes.take_back(before)
        learner.decisions = made
        raise
    return mark, most


def _items_for(learner: ColumnLearner, log: Any) -> ItemTable | None:
    """Return the items that a log was opened with, or else the learner's items."""
    kept = learner.kept_items
    return items_of(log) or (ItemTable(kept) if kept is not None and len(kept) else None)


class _TimesGoBack(Exception):
    """A row of a log is earlier than one before it."""


class _LogLessons:
    def __init__(
        self,
        learner: ColumnLearner,
        placement: str | None,
        missing_reward: float | None,
        features: LoggedFeatures,
    ) -> None:
        self._learner, self._placement, self._missing = learner, placement, missing_reward
        self._features = features
        self._lists = learner.policy.showing.listed
        self._only = placement is None
        self._names = pa.array(list(map(str, learner.offer.names)))
        self._there: set[str] = set()

    def read(self, log: Any, by_time: bool = False) -> Iterator[Lesson]:
        columns = ["placement", "key", "propensity", "reward", "timestamp"]
        columns += ["context"] if self._learner.policy.context_dim else []
        columns += ["decision_id", "position"] if self._lists else []
        chunks = selected(log, columns + self._features.needed)
        latest = NO_TIME
        chunks = whole_lists(chunks) if self._lists else chunks
        for chunk in sort_by_time(chunks, self._lists) if by_time else chunks:
            in_order, latest = has_times_in_order(chunk, latest)
            if not (in_order or by_time):
                raise _TimesGoBack
            mine = self._placed(chunk)
            if not self._lists and self._missing is None:
                mine = mine.only(mine.batch["reward"].is_valid())
            size = self._features.at_once or max(len(mine.rows), 1)
            for part in self._lists_in(mine) if self._lists and len(mine.rows) else ():
                yield self._of_lists(part)
            for start in range(0, 0 if self._lists else len(mine.rows), size):
                yield self._of_arms(mine.part(start, start + size))
        if self._placement not in self._there:
            there = ", ".join(map(repr, sorted(self._there)[:10]))
            remedy = f"no row of the log is of it; give one of {there}"
            raise InvalidValue("placement", self._placement, remedy)

    def _placed(self, chunk: Chunk) -> Chunk:
        """Return a chunk's rows of the placement to learn; if none was named, there may be only one."""
        names = chunk.batch["placement"]
        if self._placement is None and len(names):
            self._placement = names[0].as_py()
        self._there.update(names.unique().to_pylist())
        others = pc.not_equal(names.cast(pa.string()), self._placement)
        if self._only and pc.any(others).as_py():
            row = int(np.argmax(others.to_numpy(zero_copy_only=False)))
            raise UnfitLog(
                f"{chunk.where(row)}: placement: it is {names[row].as_py()!r}, rows before are of "
                f"{self._placement!r}; say which one to learn with placement=..."
            )
        return chunk.only(pc.invert(others))

    def _lists_in(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield a chunk in parts of whole lists, with a bounded number of candidates each."""
        if not self._features.by_offer:
            yield chunk
            return
        first = np.flatnonzero(beginnings(chunk.batch["decision_id"]))
        most = int(lengths(chunk.batch["arms"])[first].max())
        ends = np.append(first, len(chunk.rows))[:: max(1, (self._features.at_once or most) // most)]
        for start, stop in itertools.pairwise([*ends.tolist(), len(chunk.rows)]):
            if stop > start:
                yield chunk.part(start, stop)

    def _of_arms(self, chunk: Chunk) -> Lesson:
        first = np.arange(len(chunk.rows))
        batch, shown = self._impressions(chunk, first, first)
        rewards = chunk.batch["reward"].fill_null(self._missing or 0.0).to_numpy()
        known = numbers(chunk.batch, "propensity")
        self._learner.check_propensities(
            known, batch.stops - batch.starts, lambda row, wrong: UnfitLog(f"{chunk.where(row)}: {wrong}")
        )
        return Lesson(batch, shown[:, None], rewards[:, None].copy(), known)

    def _of_lists(self, chunk: Chunk) -> Lesson:
        starts = beginnings(chunk.batch["decision_id"])
        first, of = np.flatnonzero(starts), np.cumsum(starts) - 1
        place = numbers(chunk.batch, "position", np.nan)
        width = self._learner.policy.action_width
        wrong = ~((place >= 0) & (place < width))
        cells = of * width + np.where(wrong, 0, place).astype(np.int64)
        twice = np.ones(len(cells), np.bool_)
        twice[np.unique(cells, return_index=True)[1]] = False
        if (wrong | twice).any():
            row = int(np.argmax(wrong | twice))
            counted = f"; {REMEDY[FROM_ONE]}" * bool(place.min() > 0)
            raise UnfitLog(
                f"{chunk.where(row)}: position: {place[row]:g} is not allowed; give each row of a "
                f"list a position of its own, from 0 to {width - 1} for this policy{counted}"
            )
        at = of, place.astype(np.int64)
        shape = len(first), width
        batch, shown = self._impressions(chunk, first, of)
        actions, feedback, known = np.full(shape, -1), np.zeros(shape), np.ones(shape)
        actions[at] = shown
        feedback[at] = chunk.batch["reward"].fill_null(self._missing or 0.0).to_numpy()
        known[at] = numbers(chunk.batch, "propensity")
        return Lesson(batch, actions, feedback, known.prod(axis=1))

    def _impressions(self, chunk: Chunk, first: Ints, of: Ints) -> tuple[Batch, Ints]:
        """Return the impressions whose first rows are ``first``, and the arm index shown in each row.

        ``impression_of_row`` has for each row the number of its impression.
        """
        offer = self._offered(chunk, first, of)
        if self._learner.policy.arms is None:
            slots, shown = np.arange(len(offer.names)), offer.shown - offer.starts[of]
            if offer.starts.any():  # otherwise all impressions share one offer
                slots -= np.repeat(offer.starts, offer.stops - offer.starts)
        else:
            slots = self._slots(chunk, offer.names)
            shown = slots[offer.shown]
        whose = np.repeat(first, offer.stops - offer.starts) if self._features.by_offer else first
        batch = chunk.batch.take(pa.array(first))
        contexts = batch["context"] if "context" in batch.schema.names else None
        impressions = Batch(
            self._learner.lanes.admit(batch["key"].cast(pa.string()).to_pylist()),
            slots,
            offer.starts,
            offer.stops,
            self._contexts(chunk, first, contexts),
            *self._features.of(chunk, offer.names, whose),
        )
        return impressions, shown

    def _offered(self, chunk: Chunk, first: Ints, of: Ints) -> _Offered:
        if self._features.by_row:
            # Features of the other arms on offer are unknown; the arm shown suffices to learn.
            rows = np.arange(len(of))
            return _Offered(chunk.batch["arm"], first, np.append(first[1:], len(of)), rows)
        arms, shown = chunk.batch["arms"], chunk.batch["arm"].cast(pa.string())
        if list_codes(arms) is not None and not self._features.by_offer:
            names = pa.array(arms[0].as_py(), pa.string())
            places = pc.index_in(shown, value_set=names).to_numpy()
            count = np.full(len(first), len(names))
            return _Offered(names, np.zeros(len(first), np.int64), count, places)
        names = arms.take(pa.array(first)).flatten().cast(pa.string())
        sizes = lengths(arms)[first]
        stops = np.cumsum(sizes)
        whose = np.repeat(np.arange(len(first)), sizes)
        codes = names.dictionary_encode()
        wanted = pc.index_in(shown, value_set=codes.dictionary).to_numpy()
        # Each row's arm occurs once in its offer; sorted keys (impression, arm) find its index.
        keys = whose * len(codes.dictionary) + codes.indices.to_numpy()
        order = np.argsort(keys, kind="stable")
        at = np.searchsorted(keys, of * len(codes.dictionary) + wanted, sorter=order)
        return _Offered(names, stops - sizes, stops, order[at])

    def _slots(self, chunk: Chunk, names: Any) -> Ints:
        found = pc.index_in(names.cast(pa.string()), value_set=self._names)
        if found.null_count:
            unknown = names.filter(found.is_null())[0].as_py()
            raise UnknownName(
                f"{chunk.source}: arms: the policy has no arm {unknown!r}; make it with "
                "arms=tacit.evaluate.arms_of(log), or in a command without arms"
            )
        return np.asarray(found.to_numpy(), np.int64)

    def _contexts(self, chunk: Chunk, first: Ints, contexts: Any) -> Floats:
        dim = self._learner.policy.context_dim
        if not dim:
            return np.zeros((len(first), 0))
        given = lengths(contexts) if contexts is not None else np.zeros(len(first), np.int64)
        if (given != dim).any():
            at = int(np.argmax(given != dim))
            raise UnfitLog(
                f"{chunk.where(int(first[at]))}: context: it has {given[at]} numbers; the policy "
                f"needs {dim} in each row; say which with columns={{'context': [...]}}"
            )
        return np.asarray(contexts.flatten().to_numpy(), np.float64).reshape(-1, dim)
