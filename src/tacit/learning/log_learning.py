"""Learn click logs: each row is learned as if the learner had made the decision."""

# 1. Features of arms: from a table of arms, from the log's columns, or from a table of items.
# 2. ``learn_log``: learns a log in training batches.
# 3. ``_BatchReader``: converts chunks of a log to training batches: of single arms, of lists, with features.

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.core import checks
from tacit.core.arrays import Floats, Ints
from tacit.core.parallel import report_progress
from tacit.core.reward_range import UNIT_RANGE
from tacit.errors import AssumptionWarning, InvalidValue, UnfitLog, UnknownName
from tacit.frames import frame_batches, frame_names, is_frame, to_matrix
from tacit.learning.batch import Batch
from tacit.learning.columns import ColumnLearner, check_propensities, find_catalogue, replay_rows
from tacit.learning.decisions import SECOND_CHECK, describe_small_rewards
from tacit.logs.data_warnings import FROM_ONE, REMEDY
from tacit.logs.items import ItemTable, get_items
from tacit.logs.parts import cut_between_lists, find_list_starts, has_times_in_order, sort_by_time
from tacit.logs.reader import LogReader
from tacit.logs.rows import Chunk, common_list_codes, lengths, numbers
from tacit.logs.schema import FEATURE
from tacit.logs.selection import select_columns
from tacit.policies.base import NO_FEATURES, Policy, check_folds

# ---- Features of arms, from columns of the click log or from a separate table

FIELDS = "relevance", "examination"
MAX_NUMBERS = 2**22
"""Most feature values of items that are looked up at once."""
NO_TIME = -(2**62)
SAME_LOG_SIZE = 100
"""From this many decisions on, two logs with equal rewards are the same log, not equal by chance."""
FEATURE_REMEDY = (
    '{field}=["price", "age"], columns of the log, where rows have the features of the arm shown; '
    'or {field}={{"film": [0.2, 0.9], …}} or a table with a column "arm", where arms have theirs '
    "for good; or items=, a table with the columns id and vector"
)


class ArmTable(NamedTuple):
    """Features of arms by their names."""

    field: str
    names: Any  # pyarrow.Array of string
    rows: Floats  # (arms, d)

    def read_features(self, chunk: Chunk, arms: Any, rows: Ints) -> Floats:
        """Return the features of ``arms``, shape (arms, d); raise UnknownName if the table lacks an arm.

        ``chunk`` only names the log in the error; ``rows`` is unused, as the features never change.
        """
        indices = pc.index_in(arms.cast(pa.string()), value_set=self.names)
        if indices.null_count:
            lacking = arms.filter(indices.is_null())[0].as_py()
            raise UnknownName(
                f"{chunk.source}: arms: {self.field} has no features of {lacking!r}; give them, "
                "or leave out what offers it"
            )
        features: Floats = self.rows[indices.to_numpy()]
        return features


class RowColumns(NamedTuple):
    """Features of the arm shown in each row, in columns of the log."""

    field: str
    names: list[str]

    def read_features(self, chunk: Chunk, arms: Any, rows: Ints) -> Floats:
        """Return the features in the chunk's columns, shape (rows of the chunk, d).

        ``arms`` and ``rows`` are unused, as each row has the features of its arm. Raises UnfitLog for a
        number that is not finite.
        """
        features = np.empty((len(chunk.rows), len(self.names)))
        for column, name in enumerate(self.names):
            values = chunk.batch[FEATURE + name]
            try:
                column_values = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
            except pa.ArrowException:
                column_values = np.full(len(values), np.nan)
            wrong = ~np.isfinite(column_values)
            if wrong.any():
                row = int(np.argmax(wrong))
                raise UnfitLog(
                    f"{chunk.row_location(row)}: {name}: it is no finite number; make numbers of what "
                    "is none, such as by a transformer of scikit-learn, and give each row one"
                )
            features[:, column] = column_values
        return features


class ItemVectors(NamedTuple):
    """Vectors of arms in a table of items, separate from the log."""

    table: ItemTable

    def read_features(self, chunk: Chunk, arms: Any, rows: Ints) -> Floats:
        """Return the vectors of ``arms``, shape (arms, d), as they were at the time of each arm's row in the
        log.

        ``rows`` has the row of each arm in the chunk.
        """
        times = chunk.batch["timestamp"].take(pa.array(rows)) if self.table.has_times else None
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

    def __init__(self, policy: Policy, sources: tuple[Any, Any], items: ItemTable | None = None) -> None:
        """Create the source of each kind of features that the policy reads; raise InvalidValue if a source
        does not fit.
        """
        if sources[0] is None and policy.feature_dims[0] and items is not None:
            sources = items, sources[1]
        self._blocks = [
            _make_source(policy, field, dim, block)
            for field, dim, block in zip(FIELDS, policy.feature_dims, sources, strict=True)
        ]
        columns = [block for block in self._blocks if isinstance(block, RowColumns)]
        by_item = [block for block in self._blocks if isinstance(block, ItemVectors)]
        self.by_offer = bool(by_item) and policy.showing.listed
        self.by_row = bool(columns or by_item) and not self.by_offer
        self._schema = policy.schema
        self.names = list(dict.fromkeys(name for block in columns for name in block.names))
        self.columns = [FEATURE + name for name in self.names]
        self.columns += ["timestamp"] if any(block.table.has_times for block in by_item) else []
        self.max_rows = max(1, MAX_NUMBERS // sum(policy.feature_dims)) if by_item else None

    def open_log(self, log: Any) -> Any:
        """Return the log reader, extended to read contexts by the policy's schema and the columns of
        features.

        Raises InvalidValue if columns of features are needed and the log is only a part of one.
        """
        if isinstance(log, LogReader):
            log = log.with_context(self._schema)
        if not self.names:
            return log
        if not isinstance(log, LogReader):
            raise InvalidValue("log", log, "give the whole log, not a part of one")
        return log.with_features(self.names)

    def read_features(self, chunk: Chunk, arms: Any, rows: Ints) -> tuple[Floats, Floats]:
        """Return the relevance and the examination features of arms, a row for each; without rows if the
        policy does not read them.

        ``rows`` has the row of each arm in the chunk.
        """
        relevance, examination = (
            NO_FEATURES if block is None else block.read_features(chunk, arms, rows) for block in self._blocks
        )
        return relevance, examination


def _make_source(
    policy: Policy, field: str, dim: int, source: Any
) -> ArmTable | RowColumns | ItemVectors | None:
    """Return the source of one kind of features, ``field``, of which the policy reads ``dim``; None if it
    reads none.

    ``source`` is the user's argument. Raises InvalidValue if it is missing, not needed, or has another number
    of features.
    """
    if source is None:
        if not dim:
            return None
        remedy = f"the policy reads {dim} features of arms here; give {FEATURE_REMEDY.format(field=field)}"
        raise InvalidValue(field, None, remedy)
    if not dim:
        raise InvalidValue(field, source, f"leave it out: {type(policy).__name__} reads none")
    if isinstance(source, ItemTable):
        if source.dim != dim:
            raise InvalidValue("items", f"{source.dim} numbers", f"the policy reads {dim} of each item")
        return ItemVectors(source)
    block = (
        RowColumns(field, list(checks.names(field, checks.as_list(source))))
        if _is_names(source)
        else make_arm_table(field, source)
    )
    count = len(block.names) if isinstance(block, RowColumns) else block.rows.shape[1]
    if count != dim:
        remedy = f"the policy reads {dim} features of arms here, and this has {count}"
        raise InvalidValue(field, source, f"{remedy}; give as many, or another {field}_dim")
    return block


def count_features(source: Any) -> int:
    """Return the number of features in a source: columns of a log, or of a table of arms; 0 for None."""
    if source is None:
        return 0
    return len(source) if _is_names(source) else make_arm_table(FIELDS[0], source).rows.shape[1]


def _is_names(source: Any) -> bool:
    """True if a source of features is a list of column names, not a table."""
    return not isinstance(source, Mapping) and not is_frame(source) and isinstance(source, Sequence)


def make_arm_table(field: str, source: Any) -> ArmTable:
    """Return a table of arms from a dict of arms to features, or from a table with a column ``arm``.

    Raises InvalidValue if an arm occurs twice or its features are not equally many finite numbers.
    """
    if isinstance(source, Mapping) and "arm" not in source:
        arms, rows = list(map(str, source)), list(source.values())
    elif is_frame(source) and "arm" in frame_names(source):
        feature_names = [name for name in frame_names(source) if name != "arm"]
        batches = list(frame_batches(source, ["arm", *feature_names]))
        arms = [str(arm) for batch in batches for arm in batch["arm"].to_pylist()]
        rows = [row for batch in batches for row in to_matrix(field, batch.select(feature_names))]
    else:
        raise InvalidValue(field, source, f"give {FEATURE_REMEDY.format(field=field)}")
    try:
        table = np.array(rows, np.float64)
    except (TypeError, ValueError):
        table = np.full(0, np.nan)
    if table.ndim != 2 or not np.isfinite(table).all() or len(set(arms)) < len(arms):
        remedy = "give each arm once, and as many finite numbers as any other one"
        raise InvalidValue(field, source, remedy)
    return ArmTable(field, pa.array(arms, pa.string()), table)


# ---- Learning a click log in training batches


class LogBatch(NamedTuple):
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


class _OfferedArms(NamedTuple):
    """The arms on offer: names, all in one array, with the start and stop of each impression's arms.

    ``row_arms`` has for each row the index of its arm among these names.
    """

    names: Any
    starts: Ints
    stops: Ints
    row_arms: Ints


def learn_log(
    learner: ColumnLearner,
    log: Any,
    placement: str | None,
    missing_reward: float | None,
    features: tuple[Any, Any] = (None, None),
) -> int:
    """Learn all rows of a log's placement into the learner's state; return the number of learned decisions.

    A log that is not sorted by time is read into memory and sorted. Warns if all rewards are suspiciously
    small, or if the same log was learned before.

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
        If the log cannot be read or does not fit the policy; then nothing is learned.
    """
    check_folds(learner.policy)
    if learner.policy.showing.compared:
        remedy = "it shows duels, of which a click log holds none; teach it by learn_many"
        raise InvalidValue("policy", learner.policy, remedy)
    if missing_reward is not None:
        checks.number("missing_reward", missing_reward, -math.inf, math.inf)
    learner.policy.reward_range.check_missing(missing_reward)
    logged_features = LoggedFeatures(learner.policy, features, _find_items(learner, log))
    reader = _BatchReader(learner, placement, missing_reward, logged_features)
    count_before = learner.decisions
    try:
        reward_hash, largest = _learn_rows(learner, reader.read(logged_features.open_log(log)))
    except _TimesGoBack:
        # All rows are read into memory only if the log is not sorted by time.
        reader = _BatchReader(learner, placement, missing_reward, logged_features)
        reward_hash, largest = _learn_rows(learner, reader.read(logged_features.open_log(log), by_time=True))
        getattr(log, "log", log).report.drop_order_warnings()
    count = learner.decisions - count_before
    is_unit = learner.policy.reward_range == UNIT_RANGE
    if count >= SECOND_CHECK and is_unit and describe_small_rewards(largest):
        warnings.warn(f"log: {describe_small_rewards(largest)}", AssumptionWarning, stacklevel=3)
    if (count, reward_hash) in learner.logs_learned and count >= SAME_LOG_SIZE:
        what = (
            f"log: the same {count:,} decisions in a row were learned from a log before, and count twice now"
        )
        warnings.warn(f"{what}; let each learner learn a log once", AssumptionWarning, stacklevel=3)
    learner.logs_learned.add((count, reward_hash))
    learner.lanes.logged = True
    return count


def _learn_rows(learner: ColumnLearner, batches: Iterator[LogBatch]) -> tuple[int, float]:
    """Learn training batches in order; return a hash of their rewards, and the largest reward.

    If an error occurs, state, keys and number of decisions of the learner are restored before it is raised.
    """
    reward_hash, largest = 0, 0.0
    backup, count_before = learner.lanes.copy_all(), learner.decisions
    try:
        with report_progress("learning") as report:
            for batch in batches:
                reward_hash = crc32(batch.feedback.tobytes(), reward_hash)
                largest = max(largest, batch.feedback.max(initial=0.0))
                replay_rows(learner, batch.batch, batch.actions, batch.feedback, batch.propensities)
                report(learner.decisions - count_before)
    except BaseException:
        learner.lanes.roll_back(backup)
        learner.decisions = count_before
        raise
    return reward_hash, largest


def _find_items(learner: ColumnLearner, log: Any) -> ItemTable | None:
    """Return the items that a log was opened with, or else the learner's items; None if there are neither."""
    catalogue = find_catalogue(learner)
    return get_items(log) or (ItemTable(catalogue) if catalogue is not None and len(catalogue) else None)


class _TimesGoBack(Exception):
    """Raised if a row of a log is earlier than a row before it."""


class _BatchReader:
    """Reads the rows of one placement of a log as training batches that fit a learner's policy."""

    def __init__(
        self,
        learner: ColumnLearner,
        placement: str | None,
        missing_reward: float | None,
        features: LoggedFeatures,
    ) -> None:
        """Create a reader of the rows of a placement; None stands for the only placement of the log."""
        self._learner, self._placement, self._missing = learner, placement, missing_reward
        self._features = features
        self._lists = learner.policy.showing.listed
        self._is_only_placement = placement is None
        self._names = pa.array(list(map(str, learner.offer.names)))
        self._placements: set[str] = set()

    def read(self, log: Any, by_time: bool = False) -> Iterator[LogBatch]:
        """Yield the log's rows of the placement as training batches, sorted by time first if ``by_time``.

        Raises _TimesGoBack if they are not sorted and ``by_time`` is False, UnfitLog if rows do not fit the
        policy, and at the end InvalidValue if the placement had no rows.
        """
        columns = ["placement", "key", "propensity", "reward", "timestamp"]
        columns += ["context"] if self._learner.policy.context_dim else []
        columns += ["decision_id", "position"] if self._lists else []
        chunks = select_columns(log, columns + self._features.columns)
        latest = NO_TIME
        chunks = cut_between_lists(chunks) if self._lists else chunks
        for chunk in sort_by_time(chunks, self._lists) if by_time else chunks:
            in_order, latest = has_times_in_order(chunk, latest)
            if not (in_order or by_time):
                raise _TimesGoBack
            placement_chunk = self._select_placement(chunk)
            if not self._lists and self._missing is None:
                placement_chunk = placement_chunk.filter_rows(placement_chunk.batch["reward"].is_valid())
            count = len(placement_chunk.rows)
            if self._lists:
                yield from map(self._read_lists, self._split_lists(placement_chunk) if count else ())
                continue
            size = self._features.max_rows or max(count, 1)
            for start in range(0, count, size):
                yield self._read_arms(placement_chunk.slice_rows(start, start + size))
        if self._placement not in self._placements:
            placements = ", ".join(map(repr, sorted(self._placements)[:10]))
            remedy = f"no row of the log is of it; give one of {placements}"
            raise InvalidValue("placement", self._placement, remedy)

    def _select_placement(self, chunk: Chunk) -> Chunk:
        """Return the chunk's rows of the placement to learn, and record the names of all placements.

        If no placement was named, it is that of the first row, and another one raises UnfitLog.
        """
        names = chunk.batch["placement"]
        if self._placement is None and len(names):
            self._placement = names[0].as_py()
        self._placements.update(names.unique().to_pylist())
        is_other = pc.not_equal(names.cast(pa.string()), self._placement)
        if self._is_only_placement and pc.any(is_other).as_py():
            row = int(np.argmax(is_other.to_numpy(zero_copy_only=False)))
            raise UnfitLog(
                f"{chunk.row_location(row)}: placement: it is {names[row].as_py()!r}, rows before are of "
                f"{self._placement!r}; say which one to learn with placement=..."
            )
        return chunk.filter_rows(pc.invert(is_other))

    def _split_lists(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield a chunk in parts of whole lists, with a bounded number of candidates each, to bound memory.

        If no features of candidates are looked up, the chunk is yielded whole.
        """
        if not self._features.by_offer:
            yield chunk
            return
        first = np.flatnonzero(find_list_starts(chunk.batch["decision_id"]))
        max_candidates = int(lengths(chunk.batch["arms"])[first].max())
        list_count = max(1, (self._features.max_rows or max_candidates) // max_candidates)
        ends = np.append(first, len(chunk.rows))[::list_count]
        # The end of the chunk may be among ``ends`` already.
        for start, stop in itertools.pairwise([*ends.tolist(), len(chunk.rows)]):
            if stop > start:
                yield chunk.slice_rows(start, stop)

    def _read_arms(self, chunk: Chunk) -> LogBatch:
        """Return a chunk, with one arm in each row, as a training batch; raise UnfitLog if a propensity is
        too small.
        """
        first = np.arange(len(chunk.rows))
        batch, arm_indices = self._read_impressions(chunk, first, first)
        rewards = self._read_rewards(chunk)
        propensities = numbers(chunk.batch, "propensity")
        check_propensities(
            self._learner,
            propensities,
            batch.stops - batch.starts,
            lambda row, wrong: UnfitLog(f"{chunk.row_location(row)}: {wrong}"),
        )
        return LogBatch(batch, arm_indices[:, None], rewards[:, None].copy(), propensities)

    def _read_rewards(self, chunk: Chunk) -> Floats:
        """Return the rewards of a chunk's rows, scaled to [0, 1] as the policy's state has them."""
        rewards = chunk.batch["reward"].fill_null(self._missing or 0.0).to_numpy()
        return np.asarray(self._learner.policy.reward_range.to_unit(rewards), np.float64)

    def _read_lists(self, chunk: Chunk) -> LogBatch:
        """Return a chunk of whole lists, with a row per position, as a training batch with a row per list.

        Raises UnfitLog if a position is out of range or occurs twice. A list's propensity is the product of
        its rows'.
        """
        starts = find_list_starts(chunk.batch["decision_id"])
        first, impression_of_row = np.flatnonzero(starts), np.cumsum(starts) - 1
        position = numbers(chunk.batch, "position", np.nan)
        width = self._learner.policy.action_width
        wrong = ~((position >= 0) & (position < width))
        cells = impression_of_row * width + np.where(wrong, 0, position).astype(np.int64)
        twice = np.ones(len(cells), np.bool_)
        twice[np.unique(cells, return_index=True)[1]] = False
        if (wrong | twice).any():
            row = int(np.argmax(wrong | twice))
            counted = f"; {REMEDY[FROM_ONE]}" * bool(position.min() > 0)
            raise UnfitLog(
                f"{chunk.row_location(row)}: position: {position[row]:g} is not allowed; give each row of a "
                f"list a position of its own, from 0 to {width - 1} for this policy{counted}"
            )
        index = impression_of_row, position.astype(np.int64)
        shape = len(first), width
        batch, arm_indices = self._read_impressions(chunk, first, impression_of_row)
        actions, feedback, propensities = np.full(shape, -1), np.zeros(shape), np.ones(shape)
        actions[index] = arm_indices
        feedback[index] = self._read_rewards(chunk)
        propensities[index] = numbers(chunk.batch, "propensity")
        return LogBatch(batch, actions, feedback, propensities.prod(axis=1))

    def _read_impressions(self, chunk: Chunk, first: Ints, impression_of_row: Ints) -> tuple[Batch, Ints]:
        """Return a chunk's impressions as a batch, and the arm index shown in each row.

        ``first`` has the first row of each impression, ``impression_of_row`` the impression's number of each
        row. New keys get lanes in the learner.
        """
        offer = self._read_offers(chunk, first, impression_of_row)
        if self._learner.policy.arms is None:
            offered_indices = np.arange(len(offer.names))
            arm_indices = offer.row_arms - offer.starts[impression_of_row]
            if offer.starts.any():  # otherwise all impressions share one offer
                offered_indices -= np.repeat(offer.starts, offer.stops - offer.starts)
        else:
            offered_indices = self._find_arm_indices(chunk, offer.names)
            arm_indices = offered_indices[offer.row_arms]
        offer_rows = np.repeat(first, offer.stops - offer.starts) if self._features.by_offer else first
        batch = chunk.batch.take(pa.array(first))
        contexts = batch["context"] if "context" in batch.schema.names else None
        impressions = Batch(
            self._learner.lanes.admit(batch["key"].cast(pa.string()).to_pylist()),
            offered_indices,
            offer.starts,
            offer.stops,
            self._read_contexts(chunk, first, contexts),
            *self._features.read_features(chunk, offer.names, offer_rows),
        )
        return impressions, arm_indices

    def _read_offers(self, chunk: Chunk, first: Ints, impression_of_row: Ints) -> _OfferedArms:
        """Return the arms on offer in each impression, and for each row the place of its arm among them.

        If features are known by row, only the arm shown is on offer.
        """
        if self._features.by_row:
            # Features of the other arms on offer are unknown; the arm shown suffices to learn.
            rows = np.arange(len(impression_of_row))
            return _OfferedArms(chunk.batch["arm"], first, np.append(first[1:], len(impression_of_row)), rows)
        arms, arm_names = chunk.batch["arms"], chunk.batch["arm"].cast(pa.string())
        if common_list_codes(arms) is not None and not self._features.by_offer:
            names = pa.array(arms[0].as_py(), pa.string())
            places = pc.index_in(arm_names, value_set=names).to_numpy()
            count = np.full(len(first), len(names))
            return _OfferedArms(names, np.zeros(len(first), np.int64), count, places)
        names = arms.take(pa.array(first)).flatten().cast(pa.string())
        sizes = lengths(arms)[first]
        stops = np.cumsum(sizes)
        offer_impressions = np.repeat(np.arange(len(first)), sizes)
        codes = names.dictionary_encode()
        arm_codes = pc.index_in(arm_names, value_set=codes.dictionary).to_numpy()
        # Each row's arm occurs once in its offer; sorted keys (impression, arm) find its index.
        keys = offer_impressions * len(codes.dictionary) + codes.indices.to_numpy()
        order = np.argsort(keys, kind="stable")
        ranks = np.searchsorted(keys, impression_of_row * len(codes.dictionary) + arm_codes, sorter=order)
        return _OfferedArms(names, stops - sizes, stops, order[ranks])

    def _find_arm_indices(self, chunk: Chunk, names: Any) -> Ints:
        """Return the policy's arm index of each name; raise UnknownName if the policy lacks one."""
        indices = pc.index_in(names.cast(pa.string()), value_set=self._names)
        if indices.null_count:
            unknown = names.filter(indices.is_null())[0].as_py()
            raise UnknownName(
                f"{chunk.source}: arms: the policy has no arm {unknown!r}; make it with "
                "arms=tacit.evaluate.arms_of(log), or in a command without arms"
            )
        return np.asarray(indices.to_numpy(), np.int64)

    def _read_contexts(self, chunk: Chunk, first: Ints, contexts: Any) -> Floats:
        """Return the contexts of impressions, shape (impressions, context_dim); raise UnfitLog for one of
        another length.

        ``first`` has the first row of each impression, to name it in the error.
        """
        dim = self._learner.policy.context_dim
        if not dim:
            return np.zeros((len(first), 0))
        sizes = lengths(contexts) if contexts is not None else np.zeros(len(first), np.int64)
        if (sizes != dim).any():
            wrong_row = int(np.argmax(sizes != dim))
            raise UnfitLog(
                f"{chunk.row_location(int(first[wrong_row]))}: context: it has {sizes[wrong_row]} numbers; "
                f"the policy needs {dim} in each row; say which with columns={{'context': [...]}}"
            )
        return np.asarray(contexts.flatten().to_numpy(), np.float64).reshape(-1, dim)
