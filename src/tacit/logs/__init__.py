"""Click logs: their schema, readers and writers."""

from typing import TYPE_CHECKING

from tacit.lazy_imports import load_lazily

if TYPE_CHECKING:
    from tacit.logs.other_formats import read_open_bandit as read_open_bandit
    from tacit.logs.reader import LogReader as LogReader
    from tacit.logs.rows import LogReport as LogReport
    from tacit.logs.schema import SCHEMA as SCHEMA
    from tacit.logs.sources import read_log as read_log
    from tacit.logs.ubi import read_ubi as read_ubi
    from tacit.logs.writer import click_log as click_log
    from tacit.logs.writer import write_log as write_log

# Loaded on demand: the service imports parts of this package that do not need pyarrow.
__getattr__, __dir__ = load_lazily(
    __name__,
    {
        "writer": "click_log write_log",
        "other_formats": "read_open_bandit",
        "reader": "LogReader",
        "rows": "LogReport",
        "schema": "SCHEMA",
        "sources": "read_log",
        "ubi": "read_ubi",
    },
)

# Set indirectly, so that type checkers and the reference use the imports above.
globals()["__all__"] = __dir__()
