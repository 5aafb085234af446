"""Warnings about valid rows that look wrong together, although no single row proves an error.

- Several rows with the same decision and position count several times. Such duplicates are searched for
  in the first 131,072 rows of a log (of each part, if parts are read separately), which bounds memory.
- A name with blanks around it differs from the same name without them.
- A key that is a number with a fraction usually comes from a column of whole numbers with gaps.
- If no row has a reward, or none above 0, the rewards are usually in another column. If all rows have
  reward 1, or nearly all rows of lists, the log usually has clicked rows only, or marks shown arms.
- Positions of lists count from 0.
- Policies learn from the first row to the last, so rows should be in order of time; in a shuffled log,
  or one sorted by user, times often go back.
- Rows of several placements should usually be evaluated separately.
- Times with a zone beside times without one, which count as UTC, are usually of two clocks.
- If a log has times but no decision ids, rows that equal others of the same time are usually copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.core.arrays import Booleans, Ints

DUPLICATE_CHECK_ROWS = 131_072
"""Number of rows of a log in which duplicate decisions are searched for."""
NAMES = ("decision_id", "placement", "key", "arm")
DECISION, ROW = ("decision_id", "position"), ("timestamp", "key", "arm", "position", "reward")
"""Columns that identify a row, by decision id or by time; rows that agree in all of them are duplicates."""
MIN_ROWS = 100
"""Minimum number of rows for warnings about equal rows: fewer may be equal by chance."""
REPEATED, BLANKS, FRACTIONS, EMPTY = "repeated", "blanks", "fractions", "empty"
MIXED, COPIED, ONES, ZEROS = "mixed", "copied", "ones", "noughts"
CLICKED, FROM_ONE, BACKWARDS, SHUFFLED = "clicked", "from one", "backwards", "shuffled"
ZONELESS = "zoneless"
NONE = np.zeros(1, np.bool_)
"""Mask of a rule that no row breaks."""
NEARLY_ALL, OFTEN, MANY = 0.95, 0.05, 1000
"""Thresholds: share of rows with a click, share of rows that go back in time, rows without any click."""
ORDERS = {BACKWARDS, SHUFFLED}
"""Kinds of warnings about the order of rows."""
MESSAGES = {
    REPEATED: "repeat the decision and the position of an earlier row",
    BLANKS: "have blanks around the name, or none",
    FRACTIONS: "have a number with a fraction for a name",
    EMPTY: "have none, and no row has one",
    MIXED: "are of another one than the first",
    COPIED: "repeat time, key, arm and reward of an earlier row",
    ONES: "have the same, and no row has another",
    ZEROS: "have the same, and no row has more, but for those that are rejected",
    CLICKED: "of lists have a click, nearly all there are",
    FROM_ONE: "are of lists, and none is at position 0",
    BACKWARDS: "go from the latest to the earliest",
    SHUFFLED: "are earlier than the one before",
    ZONELESS: "name no time zone, others do",
}
REMEDY = {
    REPEATED: f"each counts anew ({DUPLICATE_CHECK_ROWS:,} rows are looked at); leave copies out; give each "
    "decision its own id, and each row of a list its position; if another column names decisions, "
    "take it with columns={'decision_id': ANOTHER} (--column decision_id=ANOTHER)",
    BLANKS: "with blanks a name counts as another one; strip the names, and leave out rows that lack one",
    FRACTIONS: "give text or whole numbers, such as by astype('Int64')",
    EMPTY: "each counts as if nothing came back; say what column has rewards with columns={'reward': ...} "
    "(--column reward=...)",
    MIXED: "they count together; tell them apart with by='placement' (--by placement), or give those of one",
    ONES: "are the rows without a click missing? give a row for each decision, clicked or not",
    ZEROS: "nothing can be said of rewards; say what column has them with columns={'reward': ...} "
    "(--column reward=...), and what rewards there can be with reward_range=(0, None) (--reward-range "
    "0 open)",
    CLICKED: "if the column says what was shown, name that of clicks with columns={'reward': ...} "
    "(--column reward=...)",
    FROM_ONE: "positions count from 0: say so with positions_from=1 (--positions-from 1)",
    **dict.fromkeys(ORDERS, "what learns takes them as they stand: sort them by time"),
    ZONELESS: "they are taken for UTC; give all times with their zone",
    COPIED: f"each counts anew ({DUPLICATE_CHECK_ROWS:,} rows are looked at); leave copies out, or say what "
    "column names decisions with columns={'decision_id': ...} (--column decision_id=...)",
}


class DataWarning(NamedTuple):
    """A warning about rows that look wrong.

    Attributes
    ----------
    kind, column : str
    rows : int
        Number of such rows.
    source : str
    row : int
        Number of the first such row in the source.
    value : object
        Value of that row in the column.
    """

    kind: str
    column: str
    rows: int
    source: str
    row: int
    value: Any

    def __str__(self) -> str:
        """Return the warning as a sentence: column, number of rows, problem, first row and remedy."""
        return (
            f"{self.column}: {self.rows:,} rows {MESSAGES[self.kind]}, first {self.source} row "
            f"{self.row}: {self.value!r}; {REMEDY[self.kind]}"
        )


class RowRule(NamedTuple):
    """A rule that rows break: a reason to reject them, or a kind of warning.

    Attributes
    ----------
    kind, column : str
    rows : array of bool
        The rows that break it; with one element, if it is the same for all rows.
    values : pyarrow.Array or list
        Values of the column.
    """

    kind: str
    column: str
    rows: Booleans
    values: Any

    def get_first(self, rows: Booleans) -> Any:
        """Return the value in the first of ``rows``, a mask."""
        value = self.values[int(np.argmax(rows))]
        return value.as_py() if isinstance(value, pa.Scalar) else value


def list_warnings(rules: Iterable[RowRule], source: str, rows: Ints) -> Iterator[DataWarning]:
    """Yield a warning for each rule that a row of a block breaks; ``rows`` are numbers in ``source``."""
    for rule in rules:
        if rule.rows.any():
            value, first = rule.get_first(rule.rows), int(rows[np.argmax(rule.rows)])
            plain = value.isoformat() if isinstance(value, datetime) else value
            yield DataWarning(rule.kind, rule.column, int(rule.rows.sum()), source, first, plain)


def list_name_rules(columns: Mapping[str, Any], texts: Mapping[str, Any]) -> Iterator[RowRule]:
    """Yield rules that names of a block of rows break: blanks, an empty arm, or numbers with a fraction.

    ``columns`` are as they were read (Arrow arrays, or lists of JSON values), ``texts`` the same as texts.
    """
    for column in NAMES:
        if column in texts:
            yield RowRule(FRACTIONS, column, _mask_floats(columns[column]), columns[column])
            is_blank = partial(_is_blank, empty="" if column == "arm" else " ")
            yield RowRule(BLANKS, column, mask_texts(is_blank, texts[column]), texts[column])


def list_row_rules(columns: Mapping[str, Any], size: int) -> Iterator[RowRule]:
    """Yield rules that a block of ``size`` valid rows breaks: suspicious rewards, and times that go back.

    Rewards are suspicious if all are missing, all are 0, all are 1, or rows of lists have reward 1. A block
    is only a part of a log: :func:`select_warnings` drops warnings that too few of the log's rows support.
    """
    reward, position, times = map(columns.get, ("reward", "position", "timestamp"))
    if reward is not None and size:
        kind, rows = EMPTY if reward.null_count == size else "", np.ones(size, np.bool_)
        if not reward.null_count:
            values = reward.to_numpy()
            least, most = values.min(), values.max()
            kind = {1.0: ONES, 0.0: ZEROS}.get(float(most), "") if least == most else ""
            if not kind and position is not None and not position.null_count:
                kind, rows = CLICKED, values == 1.0
        if kind:
            yield RowRule(kind, "reward", rows, reward)
    steps = np.zeros(0) if times is None else np.diff(times.cast(pa.int64()).to_numpy())
    if steps.any():
        is_backwards = (steps <= 0).all()
        rows = np.ones(size, np.bool_) if is_backwards else np.append(False, steps < 0)
        yield RowRule(BACKWARDS if is_backwards else SHUFFLED, "timestamp", rows, times)


def select_warnings(
    warnings: Iterable[DataWarning], row_count: int, has_large_rewards: bool
) -> list[DataWarning]:
    """Return the warnings that enough of the log's rows support; thresholds depend on the kind.

    Parameters
    ----------
    warnings : iterable of DataWarning
    row_count : int
        Number of valid rows.
    has_large_rewards : bool
        Whether rows were rejected because their reward is outside [0, 1].
    """
    # The least number of rows; ``row_count`` for what must hold of all rows.
    min_rows = {
        EMPTY: row_count,
        ZEROS: max(row_count, 0 if has_large_rewards else MANY),
        ONES: max(row_count, MIN_ROWS),
        BACKWARDS: max(row_count, MIN_ROWS),
        CLICKED: max(NEARLY_ALL * row_count, MIN_ROWS),
        SHUFFLED: max(OFTEN * row_count, MIN_ROWS),
    }
    most = {ZONELESS: row_count - 1}
    return [x for x in warnings if min_rows.get(x.kind, 0) <= x.rows <= most.get(x.kind, np.inf)]


def _mask_floats(values: Any) -> Booleans:
    """Return a mask of the floating-point values, not of nulls; one False if an Arrow column has no float."""
    if isinstance(values, list):
        return np.array([type(value) is float for value in values], np.bool_)
    if not pa.types.is_floating(values.type):
        return NONE
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False))


def _is_blank(texts: Any, empty: str) -> Any:
    """Return an Arrow mask of the texts that begin or end with a blank, or equal ``empty``.

    The mask has only one element, False, if no text is null or empty, and none begins or ends with a byte
    that is a blank or not ASCII: then no text needs a closer look.
    """
    _, offsets, content = texts.buffers()
    if content and not texts.null_count:
        starts = np.frombuffer(offsets, np.int32)[texts.offset :][: len(texts) + 1]
        ends = np.frombuffer(content, np.uint8).take([starts[:-1], starts[1:] - 1], mode="clip")
        if np.diff(starts).all() and ends.min(initial=127) > ord(" ") and ends.max(initial=0) < 128:
            return pa.array([False])
    return pc.or_(pc.not_equal(pc.utf8_trim_whitespace(texts), texts), pc.equal(texts, empty))


def mask_texts(is_wrong: Callable[[Any], Any], texts: Any) -> Booleans:
    """Return a mask of the texts for which ``is_wrong`` is true, False for null; one False if for none.

    ``is_wrong`` maps an Arrow array of texts to a mask; for a dictionary it is called with the distinct
    texts.
    """
    is_encoded = pa.types.is_dictionary(texts.type)
    mask = is_wrong(texts.dictionary if is_encoded else texts)
    if not pc.any(mask).as_py():
        return NONE
    mask = mask.take(texts.indices) if is_encoded else mask
    return np.asarray(mask.fill_null(False).to_numpy(zero_copy_only=False))


class RowHistory:
    """The first rows of a log, to find repeated decisions, several placements and wrong positions."""

    def __init__(self) -> None:
        """Start without any row."""
        self._mixed_placements: list[DataWarning] = []
        self._placement: Any = None
        self._has_times = False
        self._min_position = 1  # 0 as soon as a position is 0 or missing
        self._has_repeated_ids = False
        self.has_lists = False
        """Whether a decision has rows at several positions."""
        self._row_ids: list[Any] = []
        self._batches: list[tuple[int, str, Ints]] = []
        self._rows = 0

    @property
    def is_full(self) -> bool:
        """True once 131,072 rows are stored; no further rows are then searched for duplicates."""
        return self._rows >= DUPLICATE_CHECK_ROWS

    def add(self, columns: Mapping[str, Any], source: str, rows: Ints) -> None:
        """Store the columns that identify the next rows; note whether there are lists or several placements.

        ``rows`` are their numbers in ``source``. Once the history is full, only placements are checked.
        """
        if "placement" in columns and len(rows):
            self._check_placement(columns["placement"], source, rows)
        id_columns = next((names for names in (DECISION, ROW) if names[0] in columns), ())
        if self.is_full or not (id_columns and len(rows)):
            return
        self._has_times = self._has_times or id_columns is ROW
        if id_columns is DECISION and "position" in columns:
            ids, places = columns["decision_id"], columns["position"]
            is_same_id = pc.equal(ids[1:], ids[:-1])
            is_other_position = pc.and_(is_same_id, pc.not_equal(places[1:], places[:-1]))
            self._has_repeated_ids = self._has_repeated_ids or bool(pc.any(is_same_id).as_py())
            self.has_lists = self.has_lists or bool(pc.any(is_other_position).as_py())
            self._min_position = min(self._min_position, pc.min(places).as_py() or 0)
        rows_left = DUPLICATE_CHECK_ROWS - self._rows
        id_values = [columns[name].slice(0, rows_left) for name in id_columns if name in columns]
        rows = rows[:rows_left]
        texts = [values.cast(pa.string()).fill_null("") for values in id_values]
        self._row_ids.append(pc.binary_join_element_wise(*texts, "\0") if texts[1:] else texts[0])
        self._batches.append((self._rows, source, rows))
        self._rows += len(rows)

    def _check_placement(self, placements: Any, source: str, rows: Ints) -> None:
        """Store a warning about rows whose placement differs from the log's first one, if there are any."""
        is_constant = pa.types.is_dictionary(placements.type) and len(placements.dictionary) == 1
        is_constant = is_constant and not placements.null_count
        names = (placements.dictionary if is_constant else placements.unique()).to_pylist()
        self._placement = names[0] if self._placement is None else self._placement
        if names != [self._placement]:
            is_other = np.array([name != self._placement for name in placements.to_pylist()])
            rules = [RowRule(MIXED, "placement", is_other, placements)]
            self._mixed_placements += list_warnings(rules, source, rows)

    def filter_rewards_note(self, note: str) -> str:
        """Return the log's note on the unit of rewards, without sentences about other placements.

        Unchanged if the log has several placements, or too many rows to know.
        """
        if self._placement is None or self._mixed_placements or self.is_full:
            return note
        # A sentence about a placement begins with "at PLACEMENT ".
        prefix = f"at {self._placement} "
        return "; ".join(part for part in note.split("; ") if part.startswith(prefix) or part[:3] != "at ")

    def find_warnings(self) -> Iterator[DataWarning]:
        """Yield warnings about the stored rows: several placements, positions from 1, and repeated rows."""
        yield from self._mixed_placements
        if self._has_repeated_ids and self._min_position > 0:
            _, source, rows = self._batches[0]
            yield DataWarning(FROM_ONE, "position", self._rows, source, int(rows[0]), self._min_position)
        ids = pa.chunked_array(self._row_ids, pa.string()).combine_chunks()
        if _is_ascending(ids):
            return
        codes = ids.dictionary_encode().indices.to_numpy()
        # All but the first row of each id.
        is_repeat = np.ones(len(ids), np.bool_)
        is_repeat[np.unique(codes, return_index=True)[1]] = False
        count = int(is_repeat.sum())
        if self._has_times:
            # Equal rows are copies only if no two different rows have the same time.
            times = pc.list_element(pc.split_pattern(ids, "\0", max_splits=1), 0)
            count *= count >= MIN_ROWS and len(times.unique()) == len(ids) - count
        if count:
            row = int(np.argmax(is_repeat))
            start, source, rows = next(x for x in reversed(self._batches) if x[0] <= row)
            value = ids[row].as_py().partition("\0")[0]
            kind, column = (COPIED, ROW[0]) if self._has_times else (REPEATED, DECISION[0])
            yield DataWarning(kind, column, count, source, int(rows[row - start]), value)


def _is_ascending(ids: Any) -> bool:
    """True if each id is longer than the one before, or as long and later in the alphabet: none repeats."""
    # Ids of the service and counters are so; to count distinct ids takes twenty times as long.
    length_steps = np.diff(pc.binary_length(ids).to_numpy())
    is_later = pc.less(ids[:-1], ids[1:]).to_numpy(zero_copy_only=False)
    return bool(((length_steps > 0) | ((length_steps == 0) & is_later)).all())
