"""Click logs: their schema, readers and writers."""

from tacit.logs.decided import click_log
from tacit.logs.open_bandit import read_open_bandit
from tacit.logs.reader import LogReader
from tacit.logs.rows import LogReport
from tacit.logs.schema import SCHEMA
from tacit.logs.sources import read_log
from tacit.logs.ubi.reading import read_ubi
from tacit.logs.writer import write_log

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
