"""Features of arms, which a click log has in columns of its own, or a table beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.core import checks
from tacit.core.arrays import Floats
from tacit.errors import InvalidValue, UnfitLog, UnknownName
from tacit.frames import frame_batches, frame_names, is_frame, matrix
from tacit.logs.reader import LogReader
from tacit.logs.rows import Chunk
from tacit.logs.schema import FEATURE
from tacit.policies.base import NO_FEATURES, Policy

FIELDS = "relevance", "examination"
WAYS = (
    '{field}=["price", "age"], columns of the log, where rows have the features of the arm shown; '
    'or {field}={{"film": [0.2, 0.9], …}} or a table with a column "arm", where arms have theirs '
    "for good"
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
    """Features of the arm that a row shows, in columns of the log."""

    field: str
    names: list[str]

    def of(self, chunk: Chunk, arms: Any) -> Floats:
        """Return the features of the rows' arms."""
        found = np.empty((len(chunk.rows), len(self.names)))
        for column, name in enumerate(self.names):
            values = chunk.batch[FEATURE + name]
            try:
                numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
            except pa.ArrowException:
                numbers = np.full(len(values), np.nan)
            wrong = ~np.isfinite(numbers)
            if wrong.any():
                row = int(np.argmax(wrong))
                raise UnfitLog(
                    f"{chunk.where(row)}: {name}: it is no finite number; make numbers of what "
                    "is none, such as by a transformer of scikit-learn, and give each row one"
                )
            found[:, column] = numbers
        return found


class LoggedFeatures:
    """Where the features of a log's arms are, for a policy that reads them.

    Parameters
    ----------
    policy : Policy
    given : tuple
        What is said of relevance and of examination: names of columns, a table of arms, or None.

    Attributes
    ----------
    by_row : bool
        Whether rows have the features of the arm that they show, and of no other one.

    Raises
    ------
    InvalidValue
        If there are none, or not as many as the policy reads.
    """

    def __init__(self, policy: Policy, given: tuple[Any, Any]) -> None:
        self._blocks = [
            _block(policy, field, dim, told)
            for field, dim, told in zip(FIELDS, policy.feature_dims, given, strict=True)
        ]
        columns = [block for block in self._blocks if isinstance(block, RowColumns)]
        self.by_row = bool(columns)
        self.names = list(dict.fromkeys(name for block in columns for name in block.names))

    def opened(self, log: Any) -> Any:
        """Return the log with its columns of features besides those of the schema."""
        if not self.names:
            return log
        if not isinstance(log, LogReader):
            raise InvalidValue("log", log, "give the whole log, not a part of one")
        return log.with_features(self.names)

    def of(self, chunk: Chunk, arms: Any) -> tuple[Floats, Floats]:
        """Return relevance and examination of the arms on offer, all rows in one array."""
        relevance, examination = (
            NO_FEATURES if block is None else block.of(chunk, arms) for block in self._blocks
        )
        return relevance, examination


def _block(policy: Policy, field: str, dim: int, told: Any) -> ArmTable | RowColumns | None:
    if told is None:
        if not dim:
            return None
        remedy = f"the policy reads {dim} features of arms here; give {WAYS.format(field=field)}"
        raise InvalidValue(field, None, remedy)
    if not dim:
        raise InvalidValue(field, told, f"leave it out: {type(policy).__name__} reads none")
    block = (
        RowColumns(field, list(checks.names(field, checks.listed(told))))
        if _is_names(told)
        else arm_table(field, told)
    )
    count = len(block.names) if isinstance(block, RowColumns) else block.rows.shape[1]
    if count != dim:
        remedy = f"the policy reads {dim} features of arms here, and this has {count}"
        raise InvalidValue(field, told, f"{remedy}; give as many, or another {field}_dim")
    return block


def features_told(told: Any) -> int:
    """Return how many features are told: columns of a log, or of a table of arms."""
    if told is None:
        return 0
    return len(told) if _is_names(told) else arm_table(FIELDS[0], told).rows.shape[1]


def _is_names(told: Any) -> bool:
    return not isinstance(told, Mapping) and not is_frame(told) and isinstance(told, Sequence)


def arm_table(field: str, told: Any) -> ArmTable:
    """Return a table of arms, from a dict of their features, or from one with a column ``arm``."""
    if isinstance(told, Mapping) and "arm" not in told:
        arms, rows = list(map(str, told)), list(told.values())
    elif is_frame(told) and "arm" in frame_names(told):
        others = [name for name in frame_names(told) if name != "arm"]
        batches = list(frame_batches(told, ["arm", *others]))
        arms = [str(arm) for batch in batches for arm in batch["arm"].to_pylist()]
        rows = [row for batch in batches for row in matrix(field, batch.select(others))]
    else:
        raise InvalidValue(field, told, f"give {WAYS.format(field=field)}")
    try:
        table = np.array(rows, np.float64)
    except (TypeError, ValueError):
        table = np.full(0, np.nan)
    if table.ndim != 2 or not np.isfinite(table).all() or len(set(arms)) < len(arms):
        each = "give each arm once, and as many finite numbers as any other one"
        raise InvalidValue(field, told, each)
    return ArmTable(field, pa.array(arms, pa.string()), table)
