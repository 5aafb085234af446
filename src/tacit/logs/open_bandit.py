"""The Open Bandit Dataset (Saito, Aihara, Matsutani, Narita 2021), in its folder layout.

A folder ``POLICY/CAMPAIGN`` holds ``CAMPAIGN.csv``, one impression a row, and perhaps
``item_context.csv``, one item a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tacit.errors import InvalidValue, LogError
from tacit.logs.formats import FORMATS, FolderLayout
from tacit.logs.reader import BATCH_ROWS, LogReader, reading
from tacit.logs.rows import converted

COLUMNS = {"decision_id": "", "arm": "item_id", "propensity": "propensity_score", "reward": "click"}
ITEMS = "item_context.csv"


def _impressions(folder: Path) -> Path:
    return folder / f"{folder.resolve().name}.csv"


def is_open_bandit(folder: Path) -> bool:
    """Whether ``folder`` has the layout of the Open Bandit Dataset."""
    file = _impressions(folder)
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
    """Open a folder of the Open Bandit Dataset as a click log.

    An item is an arm, by its id; on offer in each row are all items of ``item_context.csv``,
    or, without that file, all that the log shows. The decision's id is the number in the first
    column, the placement is the campaign (the folder's name), and the policy is the name of
    the folder above.

    Parameters
    ----------
    folder : path
        Such as ``open_bandit/random/men``.
    key : {"campaign", "position"}
        What learns on its own: the whole campaign, or each position on the page.
    columns, constants, strict, batch_rows
        As for :func:`read_log`; they come before what is said above.

    Returns
    -------
    LogReader

    Raises
    ------
    LogError
        If the folder has not that layout.
    InvalidValue
        If an option is wrong.
    """
    folder = Path(folder)
    file = _impressions(folder)
    if key not in ("campaign", "position"):
        raise InvalidValue("key", key, "give 'campaign' or 'position'")
    if not is_open_bandit(folder):
        raise LogError(
            f"{folder}: this is no folder of the Open Bandit Dataset; it should hold {file.name} "
            "with the columns timestamp, item_id, position, click, propensity_score, and a first "
            "one without a name"
        )
    campaign = folder.resolve().name
    fixed: dict[str, Any] = {"placement": campaign, "key": campaign, "policy": folder.resolve().parent.name}
    fixed |= constants or {}
    if "arms" not in fixed:
        fixed["arms"] = _items(folder / ITEMS if (folder / ITEMS).is_file() else file)
    renamed = COLUMNS | ({"key": "position"} if key == "position" else {})
    return LogReader(
        [file], columns=renamed | dict(columns or {}), constants=fixed, strict=strict, batch_rows=batch_rows
    )


def _items(file: Path) -> list[str]:
    """Return the distinct items of a file in the order of their appearance."""
    items: dict[str, None] = {}
    with reading(file, "csv"):
        for raw in FORMATS["csv"].read(file, ["item_id"], BATCH_ROWS):
            texts = converted(raw.columns["item_id"], pa.string()).unique().to_pylist()
            items |= dict.fromkeys(text for text in texts if text is not None)
    return list(items)


def _opened(places: Sequence[str | Path], columns: Mapping[str, str] | None, **options: Any) -> LogReader:
    if len(places) > 1:
        raise InvalidValue("path", places, "give one folder of the Open Bandit Dataset at a time")
    return read_open_bandit(places[0], columns=columns, **options)


OPEN_BANDIT = FolderLayout("open-bandit", is_open_bandit, _opened)
