"""Logs in memory as files, as another program writes them."""

import json

import pyarrow as pa
import pyarrow.parquet as pq


def as_file(log, path):
    """Write a log in memory in the format of the path's suffix, and return the path."""
    table = pa.table(log)
    rows = table.to_pylist()
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        lines = [log, *(map(str, row.values()) for row in rows)]
        path.write_text("".join(",".join(line) + "\n" for line in lines))
    return path


def in_form(form, log, folder):
    """Return a log as it is for the form "memory", else the file that it is written to in that format."""
    return log if form == "memory" else as_file(log, folder / f"log.{form}")
