"""Click logs: their schema, readers and writers."""

from typing import TYPE_CHECKING

from tacit.later import later

if TYPE_CHECKING:
    from tacit.logs.decided import click_log, write_log
    from tacit.logs.foreign import read_open_bandit
    from tacit.logs.reader import LogReader
    from tacit.logs.rows import LogReport
    from tacit.logs.schema import SCHEMA
    from tacit.logs.sources import read_log
    from tacit.logs.ubi import read_ubi

# The service reads parts of this package, and no log: pyarrow is brought along by who does.
__getattr__, __dir__ = later(
    __name__,
    {
        "click_log": "tacit.logs.decided",
        "read_open_bandit": "tacit.logs.foreign",
        "LogReader": "tacit.logs.reader",
        "LogReport": "tacit.logs.rows",
        "SCHEMA": "tacit.logs.schema",
        "read_log": "tacit.logs.sources",
        "read_ubi": "tacit.logs.ubi",
        "write_log": "tacit.logs.decided",
    },
)

__all__ = [
    "SCHEMA",
    "LogReader",
    "LogReport",
    "click_log",
    "read_log",
    "read_open_bandit",
    "read_ubi",
    "write_log",
]
