"""Read logs in formats of other systems: Vowpal Wabbit's dsjson and the Open Bandit Dataset."""

# Vowpal Wabbit's dsjson first, line by line; then the Open Bandit Dataset, a folder of files. Each has a test
# that recognises it and a conversion of its rows to columns of the schema.

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from tacit.errors import InvalidValue, LogError
from tacit.logs.formats import FORMATS, FolderLayout, collect_files, get_field
from tacit.logs.reader import BATCH_ROWS, Frame, LogReader, reading
from tacit.logs.rows import convert_values
from tacit.logs.schema import SCHEMA

# ---- Vowpal Wabbit's log of decisions (dsjson): one decision per line, as a JSON object
#
# ==================== ===========================================================
# column               taken from
# ==================== ===========================================================
# timestamp            ``Timestamp``, to the microsecond
# decision_id          ``EventId``
# arms                 the actions of ``c._multi``: ``_tag``, else ``id``, else
#                      their number from 1, as ``_label_Action`` and ``a`` count
# arm                  the action ``_label_Action``, which counts from 1
# propensity           ``_label_probability``
# reward               minus ``_label_cost``, which must be in [−1, 0]
# key                  ``default``, or the path in ``columns``, such as
#                      ``{"key": "c.User.country"}``
# ==================== ===========================================================

FORMAT, SUFFIX = "dsjson", ".dsjson"
DSJSON_COLUMNS = ("timestamp", "decision_id", "key", "arms", "arm", "propensity", "reward")
NAMES = ("_tag", "id")
KEY, PLACEMENT = "default", "vowpal-wabbit"


class DsjsonLines:
    """Decisions of dsjson files as record batches; each iteration reads the files again.

    Parameters
    ----------
    files : sequence of path
    key : str or None
        Path of the key in the JSON object, with dots between names; None for the constant key.
    rows : int
        Most rows of a batch.
    """

    def __init__(self, files: Sequence[Path], key: str | None, rows: int) -> None:
        self._files, self._key, self._rows = files, key, rows

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Read the files and yield their decisions as record batches; a malformed line is a row of nulls."""
        schema = pa.schema([SCHEMA.field(name).with_nullable(True) for name in DSJSON_COLUMNS[1:]])
        schema = schema.insert(0, pa.field("timestamp", pa.string()))
        for file in self._files:
            with reading(file, FORMAT), file.open(encoding="utf-8") as lines:
                while block := list(islice(lines, self._rows)):
                    rows = [self._parse_line(line) for line in block if line.strip()]
                    yield pa.RecordBatch.from_pylist(rows, schema=schema)

    def _parse_line(self, line: str) -> dict[str, Any]:
        """Return the columns of a line's decision; all None, so that it is rejected, if it is malformed."""
        try:
            record = json.loads(line)
            arm_index, cost = int(record["_label_Action"]) - 1, record["_label_cost"]
            arms = [_name_action(number, action) for number, action in enumerate(record["c"]["_multi"], 1)]
            return {
                "timestamp": str(record.get("Timestamp")),
                "decision_id": str(record["EventId"]),
                "key": KEY if self._key is None else _as_text(get_field(record, self._key)),
                "arms": arms,
                "arm": arms[arm_index] if 0 <= arm_index < len(arms) else str(arm_index + 1),
                "propensity": float(record["_label_probability"]),
                "reward": None if cost is None else 0.0 - float(cost),  # of cost 0 it is 0, not −0
            }
        except (ValueError, KeyError, TypeError):
            return dict.fromkeys(DSJSON_COLUMNS)


def _name_action(number: int, action: Any) -> str:
    """Return the name of an action: its tag, else its id, else its number, which counts from 1."""
    for name in NAMES:
        if isinstance(action, dict) and isinstance(action.get(name), str | int):
            return str(action[name])
    return str(number)


def _as_text(value: Any) -> str | None:
    """Return a value of JSON as text, or None for null."""
    return None if value is None else str(value)


def is_dsjson(place: Path) -> bool:
    """True if a file, or every file of a folder, has the suffix ".dsjson"."""
    if place.is_dir():
        files = [file for file in place.iterdir() if file.is_file()]
        return bool(files) and all(file.suffix == SUFFIX for file in files)
    return place.suffix == SUFFIX


def _open_dsjson(
    places: Sequence[str | Path],
    columns: Mapping[str, str] | None,
    *,
    batch_rows: int = BATCH_ROWS,
    constants: Mapping[str, Any] | None = None,
    **options: Any,
) -> LogReader:
    """Return a reader of dsjson files; of ``columns`` only ``key`` is allowed, the path of the key.

    Raises InvalidValue for other columns.
    """
    renamed = dict(columns or {})
    key = renamed.pop("key", None)
    if renamed:
        raise InvalidValue("columns", columns, 'say at most where the key is: {"key": "c.query"}')
    files = [Path(str(file)) for file in collect_files(places, [SUFFIX])]
    lines = DsjsonLines(files, key, batch_rows)
    fixed = {"placement": PLACEMENT} | dict(constants or {})
    return LogReader([Frame(lines)], constants=fixed, batch_rows=batch_rows, **options)


DSJSON = FolderLayout(FORMAT, is_dsjson, _open_dsjson)

# ---- The Open Bandit Dataset (Saito, Aihara, Matsutani, Narita 2021), in its folder layout
#
# A folder ``POLICY/CAMPAIGN`` holds ``CAMPAIGN.csv``, one impression per row, and optionally
# ``item_context.csv``, one item per row.


COLUMNS = {"decision_id": "", "arm": "item_id", "propensity": "propensity_score", "reward": "click"}
"""From columns of the schema to those of the file, whose first one, of row numbers, has no name."""
ITEMS = "item_context.csv"


def _find_impressions(folder: Path) -> Path:
    """Return the path of the file of impressions in a folder: CAMPAIGN/CAMPAIGN.csv."""
    return folder / f"{folder.resolve().name}.csv"


def is_open_bandit(folder: Path) -> bool:
    """True if a folder has the layout of the Open Bandit Dataset: a CSV file with its columns."""
    file = _find_impressions(folder)
    if not file.is_file():
        return False
    with reading(file, "csv"):
        return set(COLUMNS.values()) <= set(FORMATS["csv"].names(file))


def read_open_bandit(
    folder: str | Path,
    *,
    key: str = "campaign",
    columns: Mapping[str, str] | None = None,
    constants: Mapping[str, Any] | None = None,
    strict: bool = False,
    batch_rows: int = BATCH_ROWS,
) -> LogReader:
    """Return a reader of a folder of the Open Bandit Dataset as a click log.

    The placement is the campaign, the policy the name of the folder above; the arms on offer are the items
    of ``item_context.csv``, or all items that the log shows.

    Parameters
    ----------
    folder : path
        Such as ``open_bandit/random/men``.
    key : {"campaign", "position"}
        The key, for which a policy learns separately: the campaign, or the position on the page.
    columns, constants, strict, batch_rows
        As for :func:`read_log`; they replace columns and constants of the layout.

    Returns
    -------
    LogReader

    Raises
    ------
    LogError
        If the folder does not have that layout.
    InvalidValue
        If an option is wrong.
    """
    folder = Path(folder)
    file = _find_impressions(folder)
    if key not in ("campaign", "position"):
        raise InvalidValue("key", key, "give 'campaign' or 'position'")
    if not is_open_bandit(folder):
        raise LogError(
            f"{folder}: this is no folder of the Open Bandit Dataset; it should hold {file.name} with the "
            "columns timestamp, item_id, position, click, propensity_score, and a first one without a name"
        )
    campaign = folder.resolve().name
    values: dict[str, Any] = {"placement": campaign, "key": campaign, "policy": folder.resolve().parent.name}
    values |= constants or {}
    if "arms" not in values:
        values["arms"] = _read_items(folder / ITEMS if (folder / ITEMS).is_file() else file)
    renamed = COLUMNS | ({"key": "position"} if key == "position" else {})
    names = renamed | dict(columns or {})
    return LogReader([file], columns=names, constants=values, strict=strict, batch_rows=batch_rows)


def _read_items(file: Path) -> list[str]:
    """Read a CSV file and return its distinct items, in order of first appearance."""
    items: dict[str, None] = {}
    with reading(file, "csv"):
        for raw in FORMATS["csv"].read(file, ["item_id"], BATCH_ROWS):
            texts = convert_values(raw.columns["item_id"], pa.string()).unique().to_pylist()
            items |= dict.fromkeys(text for text in texts if text is not None)
    return list(items)


def _open_bandit_folder(
    places: Sequence[str | Path], columns: Mapping[str, str] | None, **options: Any
) -> LogReader:
    """Return a reader of one folder of the Open Bandit Dataset; raise InvalidValue for several folders."""
    if len(places) > 1:
        raise InvalidValue("path", places, "give one folder of the Open Bandit Dataset at a time")
    return read_open_bandit(places[0], columns=columns, **options)


OPEN_BANDIT = FolderLayout("open-bandit", is_open_bandit, _open_bandit_folder)
