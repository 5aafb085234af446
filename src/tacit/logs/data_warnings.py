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
- If a log has times but no decision ids, rows that equal others of the same time are usually copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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
CHECKED_COLUMNS = {"placement", *DECISION, *ROW}
MIN_ROWS = 100
"""Minimum number of rows for warnings about equal rows: fewer may be equal by chance."""
REPEATED, BLANKS, FRACTIONS, EMPTY = "repeated", "blanks", "fractions", "empty"
MIXED, COPIED, ONES, ZEROS = "mixed", "copied", "ones", "noughts"
CLICKED, FROM_ONE, BACKWARDS, SHUFFLED = "clicked", "from one", "backwards", "shuffled"
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
}
REMEDY = {
    REPEATED: f"each counts anew ({DUPLICATE_CHECK_ROWS:,} rows are looked at); give a row for each decision "
    "and position, or say what column names decisions with columns={'decision_id': ...} (--column "
    "decision_id=...)",
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


def find_name_warnings(
    columns: Mapping[str, Any], texts: Mapping[str, Any], source: str, rows: Ints
) -> Iterator[DataWarning]:
    """Yield warnings about names in a block of rows: blanks, an empty arm, or numbers with a fraction.

    Parameters
    ----------
    columns, texts : mapping
        Columns as they were read (Arrow arrays, or lists of JSON values), and the same as texts.
    source : str
    rows : array of int64
        Number of each row in the source.
    """
    for column in NAMES:
        if column in texts:
            is_blank = partial(_is_blank, empty="" if column == "arm" else " ")
            for kind, values, is_wrong in (
                (FRACTIONS, columns[column], _mask_floats(columns[column])),
                (BLANKS, texts[column], mask_texts(is_blank, texts[column])),
            ):
                if is_wrong is not None and is_wrong.any():
                    row = int(np.argmax(is_wrong))
                    value = values[row]
                    plain = value.as_py() if isinstance(value, pa.Scalar) else value
                    yield DataWarning(kind, column, int(is_wrong.sum()), source, int(rows[row]), plain)


def find_row_warnings(columns: Mapping[str, Any], source: str, rows: Ints) -> Iterator[DataWarning]:
    """Yield warnings about a block of rows: suspicious rewards, and times that go back.

    Rewards are suspicious if all are missing, all are 0, all are 1, or rows of lists have reward 1. A block
    is only a part of a log: :func:`select_warnings` drops warnings that too few of the log's rows support.

    Parameters
    ----------
    columns : mapping
        Columns of valid rows, as Arrow arrays.
    source : str
    rows : array of int64
        Number of each row in the source.
    """
    reward, times, size = columns.get("reward"), columns.get("timestamp"), len(rows)
    if reward is not None and size:
        yield from _find_reward_warnings(reward, columns.get("position"), source, rows)
    steps = np.zeros(0) if times is None else np.diff(times.cast(pa.int64()).to_numpy())
    if times is not None and steps.any() and (steps <= 0).all():
        yield DataWarning(BACKWARDS, "timestamp", size, source, int(rows[0]), times[0].as_py().isoformat())
    elif times is not None and (back := steps < 0).any():
        row = int(np.argmax(back)) + 1
        location = source, int(rows[row]), times[row].as_py().isoformat()
        yield DataWarning(SHUFFLED, "timestamp", int(back.sum()), *location)


def _find_reward_warnings(reward: Any, position: Any, source: str, rows: Ints) -> Iterator[DataWarning]:
    """Yield at most one warning: rewards are all missing, all 0 or all 1, or rows of lists have reward 1.

    ``reward`` and ``position`` are Arrow columns; ``position`` is None if the log has none.
    """
    kind, value, bad_rows = EMPTY, None, rows
    if reward.null_count < len(rows):
        if reward.null_count:
            return
        values = reward.to_numpy()
        value, is_same = float(values.max()), values.min() == values.max()
        has_positions = position is not None and not position.null_count
        common_kind = {1.0: ONES, 0.0: ZEROS}.get(value, "") if is_same else ""
        kind = common_kind or (CLICKED if has_positions else "")
        bad_rows = rows[values == 1.0] if kind == CLICKED else rows
    if kind and len(bad_rows):
        yield DataWarning(kind, "reward", len(bad_rows), source, int(bad_rows[0]), value)


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
    min_rows = {
        EMPTY: row_count,
        ZEROS: max(row_count, 0 if has_large_rewards else MANY),
        ONES: max(row_count, MIN_ROWS),
        BACKWARDS: max(row_count, MIN_ROWS),
        CLICKED: max(NEARLY_ALL * row_count, MIN_ROWS),
        SHUFFLED: max(OFTEN * row_count, MIN_ROWS),
    }
    return [warning for warning in warnings if warning.rows >= min_rows.get(warning.kind, 0)]


def _mask_floats(values: Any) -> Booleans | None:
    """Return a mask of the floating-point values, not of nulls; None if an Arrow column has another type."""
    if isinstance(values, list):
        return np.array([type(value) is float for value in values], np.bool_)
    if not pa.types.is_floating(values.type):
        return None
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False))


def _is_blank(texts: Any, empty: str) -> Any:
    """Return an Arrow mask of the texts that have blanks around them or equal ``empty``."""
    return pc.or_(pc.not_equal(pc.utf8_trim_whitespace(texts), texts), pc.equal(texts, empty))


def mask_texts(is_wrong: Callable[[Any], Any], texts: Any) -> Booleans | None:
    """Return a mask of the texts for which ``is_wrong`` is true, False for null; None if it is true for none.

    ``is_wrong`` maps an Arrow array of texts to a mask; for a dictionary it is called with the distinct
    texts.
    """
    is_encoded = pa.types.is_dictionary(texts.type)
    mask = is_wrong(texts.dictionary if is_encoded else texts)
    if not pc.any(mask).as_py():
        return None
    mask = mask.take(texts.indices) if is_encoded else mask
    return np.asarray(mask.fill_null(False).to_numpy(zero_copy_only=False))


class RowHistory:
    """The first rows of a log, to find repeated decisions, several placements and wrong positions."""

    def __init__(self) -> None:
        """Start without any row."""
        self._mixed_placements: list[DataWarning] = []
        self._placement: Any = None
        self._has_times = False
        self._min_position = 1
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
        self._row_ids.append(pc.binary_join_element_wise(*texts, "\0"))
        self._batches.append((self._rows, source, rows))
        self._rows += len(rows)

    def _check_placement(self, placements: Any, source: str, rows: Ints) -> None:
        """Store a warning about rows whose placement differs from the log's first one, if there are any."""
        names = placements.unique().to_pylist()
        self._placement = names[0] if self._placement is None else self._placement
        if names != [self._placement]:
            is_other = np.array([name != self._placement for name in placements.to_pylist()])
            row = int(np.argmax(is_other))
            warning = int(is_other.sum()), source, int(rows[row]), placements[row].as_py()
            self._mixed_placements.append(DataWarning(MIXED, "placement", *warning))

    def filter_rewards_note(self, note: str) -> str:
        """Return the log's note on the unit of rewards, without sentences about other placements.

        Unchanged if the log has several placements, or too many rows to know.
        """
        if self._placement is None or self._mixed_placements or self.is_full:
            return note
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
