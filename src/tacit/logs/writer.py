"""Writing click logs: whole files or none."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import LogError
from tacit.logs.formats import FORMATS, format_of
from tacit.logs.sources import as_chunks

if TYPE_CHECKING:
    pass


def write_log(log: Any, path: str | Path, format: str | None = None) -> None:
    """Write a click log to one file, which replaces an older one only when complete.

    What is read back equals what was written, in every format.

    Parameters
    ----------
    log : LogReader, path, pyarrow.Table, or iterable of pyarrow.RecordBatch
        Columns that may be null can be left out.
    path : path
        The file.
    format : str, optional
        ``"parquet"``, ``"csv"`` or ``"json"`` (one object a line); by default the suffix of
        ``path`` says it.

    Raises
    ------
    LogError
        If a row is wrong or the file cannot be written; then nothing remains of it.
    InvalidValue
        If there is no such format.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import pyarrow as pa
    >>> from tacit.logs import read_log
    >>> row = {
    ...     "timestamp": "2017-07-04T12:00:00Z",
    ...     "decision_id": "1",
    ...     "placement": "home",
    ...     "key": "independence day",
    ...     "arms": ["film", "holiday"],
    ...     "arm": "holiday",
    ...     "propensity": 0.5,
    ...     "reward": 1.0,
    ... }
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "clicks.jsonl"
    ...     write_log(pa.Table.from_pylist([row]), path)
    ...     [batch["arm"].to_pylist() for batch in read_log(path)]
    [['holiday']]
    """
    path = Path(path)
    chosen = FORMATS[format_of(path, format)]
    batches = (chunk.batch for chunk in as_chunks(log, empty=True))
    try:
        _replace(path, chosen.write, batches)
    except OSError as error:
        raise LogError(f"{path}: cannot be written: {error}") from error


def _replace(path: Path, write: Any, batches: Iterable[Any]) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file, batches)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
