"""Any form that a click log can have: found out by its format or its layout, and opened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tacit.errors import InvalidValue
from tacit.logs.formats import FORMATS, format_of
from tacit.logs.open_bandit import OPEN_BANDIT
from tacit.logs.places import files_at, is_url
from tacit.logs.reader import BATCH_ROWS, FolderLayout, LogReader, completed, mapped
from tacit.logs.rows import Chunk, LogReport, Raw, checked
from tacit.logs.ubi.reading import UBI

LAYOUTS = {layout.name: layout for layout in (OPEN_BANDIT, UBI)}


def read_log(
    path: str | Path | Sequence[str | Path],
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    constants: Mapping[str, Any] | None = None,
    arms: Sequence[str] | None = None,
    strict: bool = False,
    batch_rows: int = BATCH_ROWS,
) -> LogReader:
    """Open a click log.

    Parameters
    ----------
    path : path, or sequence of them
        A file; a folder whose files, those of its folders among them, are read in the order of
        their names; or a pattern with ``*`` for these. Parquet may be given by a URL that
        pyarrow's file systems know (``s3://``, ``gs://``, ``hdfs://``, ``file://``). A folder of
        the Open Bandit Dataset is recognised, and one with files ``ubi_queries*``.
    format : str, optional
        ``"parquet"``, ``"csv"``, ``"json"`` (one object a line), ``"open-bandit"`` or
        ``"ubi"``; by default the suffix says it.
    columns : dict, optional
        From columns of the schema to the names that the file has for them.
    constants : dict, optional
        Values for columns that the file has not.
    arms : sequence of str, optional
        The arms on offer in every row, where the file does not say them.
    strict : bool, default False
        Whether to stop at the first row that is wrong, instead of counting it in
        ``reader.report``.
    batch_rows : int, default 65,536
        The most rows in a batch.

    Returns
    -------
    LogReader

    Raises
    ------
    LogError
        If there is nothing to read, or a column that is never null is missing.
    InvalidValue
        If an option is wrong.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name) / "clicks.csv"
    >>> _ = path.write_text(
    ...     "timestamp,decision_id,query,shown,clicked\\n"
    ...     "2017-07-04T12:00:00Z,1,independence day,film,1\\n"
    ...     "2017-07-04T12:00:01Z,2,independence day,flim,0\\n"
    ... )
    >>> log = read_log(
    ...     path,
    ...     columns={"key": "query", "arm": "shown", "reward": "clicked"},
    ...     constants={"placement": "home"},
    ...     arms=["film", "holiday"],
    ... )
    >>> [batch.num_rows for batch in log]
    [1]
    >>> log.report.rejected
    {'arm-not-offered': 1}
    """
    places = [path] if isinstance(path, str | Path) else path
    if not places:
        raise InvalidValue("path", path, "give a file at least")
    fixed = dict(constants or {}) | ({} if arms is None else {"arms": arms})
    layout = _layout_of(places[0], format)
    if layout is not None:
        return layout.open(places, columns, constants=fixed, strict=strict, batch_rows=batch_rows)
    return LogReader(
        [file for place in places for file in files_at(place, _suffixes(format))],
        format=format,
        columns=columns,
        constants=fixed,
        strict=strict,
        batch_rows=batch_rows,
    )


def _layout_of(place: str | Path, name: str | None) -> FolderLayout | None:
    """Return the layout of this name, or the one that a folder has; None for mere files."""
    if name is not None:
        return LAYOUTS.get(name)
    if is_url(place):
        return None
    return next((form for form in LAYOUTS.values() if form.recognises(Path(place))), None)


def _suffixes(format: str | None) -> list[str]:
    """Return the endings of the files that a folder is looked through for."""
    known = FORMATS if format is None else {format: FORMATS[format_of(Path(), format)]}
    return [suffix for form in known.values() for suffix in form.suffixes]


def as_chunks(log: Any) -> Iterator[Chunk]:
    """Yield the valid rows of any form that a click log can have.

    Parameters
    ----------
    log : LogReader, path, pyarrow.Table, pyarrow.RecordBatch or iterable of pyarrow.RecordBatch
        What is in memory already is checked strictly.

    Raises
    ------
    InvalidValue
        If it is none of these.
    LogError
        If it cannot be read or a row is wrong.
    """
    if isinstance(log, (str, Path)):
        log = read_log(log)
    if isinstance(log, LogReader):
        return log.chunks()
    if isinstance(log, pa.RecordBatch):
        log = [log]
    elif isinstance(log, pa.Table):
        log = log.to_batches(max_chunksize=BATCH_ROWS)
    if not isinstance(log, Iterable):
        raise InvalidValue("log", log, "give a path, a LogReader, or a pyarrow Table")
    return _checked_batches(log)


def _checked_batches(batches: Iterable[Any]) -> Iterator[Chunk]:
    source, first = "log", 1
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch):
            raise InvalidValue("log", batch, "give record batches")
        rows = np.arange(first, first + len(batch))
        raw = Raw(dict(zip(batch.schema.names, batch.columns, strict=True)), rows, [])
        columns = mapped(batch.schema.names, {}, {}, source)
        yield checked(completed(raw, columns, {}), source, LogReport(), strict=True)
        first += len(batch)
