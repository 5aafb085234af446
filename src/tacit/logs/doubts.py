"""What rows that pass every check may still have wrong: reported, as no single row proves it.

- A decision recorded by several rows of the same position counts several times. It is looked for among
  the first 131,072 rows of a log (of each part, where parts are read apart), so that memory stays
  bounded.
- A name with blanks around it is another name than without.
- A key that is a number with a fraction is mostly a whole number from a column with gaps.
- Where no row of all has a reward, it mostly stands in another column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.core.arrays import Booleans, Ints

LOOKED_AT = 131_072
"""Rows of a log among which decisions that are recorded twice are looked for."""
NAMES = ("decision_id", "placement", "key", "arm")
REPEATED, BLANKS, FRACTIONS, EMPTY = "repeated", "blanks", "fractions", "empty"
SAID = {
    REPEATED: "repeat the decision and the position of an earlier row",
    BLANKS: "have blanks around the name",
    FRACTIONS: "have a number with a fraction for a name",
    EMPTY: "have none, and no row has one",
}
REMEDY = {
    REPEATED: f"each counts anew ({LOOKED_AT:,} rows are looked at); give a row for each decision "
    "and position, or say what column names decisions with columns={'decision_id': ...} (--column "
    "decision_id=...)",
    BLANKS: "it is another name than without, and counts apart; strip the names",
    FRACTIONS: "give text or whole numbers, such as by astype('Int64')",
    EMPTY: "each counts as if nothing came back; say what column has rewards with columns={'reward': ...} "
    "(--column reward=...)",
}


class Doubt(NamedTuple):
    """Rows of which something is doubted.

    Attributes
    ----------
    kind, column : str
    rows : int
        How many there are.
    source : str
    row : int
        Where the first one stands.
    value : object
        What it has in the column.
    """

    kind: str
    column: str
    rows: int
    source: str
    row: int
    value: Any

    def __str__(self) -> str:
        return (
            f"{self.column}: {self.rows:,} rows {SAID[self.kind]}, first {self.source} row "
            f"{self.row}: {self.value!r}; {REMEDY[self.kind]}"
        )


def of_names(given: Mapping[str, Any], texts: Mapping[str, Any], source: str, rows: Ints) -> Iterator[Doubt]:
    """Yield what is doubted of names.

    Parameters
    ----------
    given, texts : mapping
        Some columns as they were given (Arrow arrays, or lists of JSON values), and as texts.
    source : str
    rows : array of int64
        The numbers of the rows there.
    """
    for column in NAMES:
        if column in texts:
            for kind, values, doubted in (
                (FRACTIONS, given[column], _fractions(given[column])),
                (BLANKS, texts[column], _blanks(texts[column])),
            ):
                if doubted is not None and doubted.any():
                    row = int(np.argmax(doubted))
                    value = values[row]
                    plain = value.as_py() if isinstance(value, pa.Scalar) else value
                    yield Doubt(kind, column, int(doubted.sum()), source, int(rows[row]), plain)
    if "reward" in texts and texts["reward"].null_count == len(rows) > 0:
        yield Doubt(EMPTY, "reward", len(rows), source, int(rows[0]), None)


def _fractions(values: Any) -> Booleans | None:
    if isinstance(values, list):
        return np.array([type(value) is float for value in values], np.bool_)
    if not pa.types.is_floating(values.type):
        return None
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False))


def _blanks(array: Any) -> Booleans | None:
    encoded = pa.types.is_dictionary(array.type)
    texts = array.dictionary if encoded else array
    odd = pc.not_equal(pc.utf8_trim_whitespace(texts), texts)
    if not pc.any(odd).as_py():
        return None
    odd = odd.take(array.indices) if encoded else odd
    return np.asarray(odd.fill_null(False).to_numpy(zero_copy_only=False))


class SeenDecisions:
    """The decisions of the first rows of a log."""

    def __init__(self) -> None:
        self._ids: list[Any] = []
        self._where: list[tuple[int, str, Ints]] = []
        self._rows = 0

    @property
    def full(self) -> bool:
        """Whether it looks at no more rows."""
        return self._rows >= LOOKED_AT

    def add(self, columns: Mapping[str, Any], source: str, rows: Ints) -> None:
        """Take the decisions of some rows, given as Arrow arrays by name."""
        if self.full or not len(rows):
            return
        left = LOOKED_AT - self._rows
        columns = {name: values.slice(0, left) for name, values in columns.items()}
        rows = rows[:left]
        ids = columns["decision_id"].cast(pa.string()).fill_null("")
        if "position" in columns:
            places = columns["position"].cast(pa.string()).fill_null("")
            ids = pc.binary_join_element_wise(ids, places, "\0")
        self._ids.append(ids)
        self._where.append((self._rows, source, rows))
        self._rows += len(rows)

    def repeated(self) -> Iterator[Doubt]:
        """Yield what is doubted of them."""
        ids = pa.chunked_array(self._ids, pa.string()).combine_chunks()
        if _ascend(ids):
            return
        codes = ids.dictionary_encode().indices.to_numpy()
        again = np.ones(len(ids), np.bool_)
        again[np.unique(codes, return_index=True)[1]] = False
        if again.any():
            row = int(np.argmax(again))
            start, source, rows = next(x for x in reversed(self._where) if x[0] <= row)
            value = ids[row].as_py().partition("\0")[0]
            yield Doubt(REPEATED, "decision_id", int(again.sum()), source, int(rows[row - start]), value)


def _ascend(ids: Any) -> bool:
    """Whether each is longer than the one before, or as long and later by the alphabet: none is repeated."""
    # As the service's are, and numbers that count up; to count others takes twenty times as long.
    grown = np.diff(pc.binary_length(ids).to_numpy())
    later = pc.less(ids[:-1], ids[1:]).to_numpy(zero_copy_only=False)
    return bool(((grown > 0) | ((grown == 0) & later)).all())
