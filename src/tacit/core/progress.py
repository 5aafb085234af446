"""Progress on a terminal for anything that takes longer than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE = 1.0


@contextmanager
def progress(total: float | None, label: str) -> Iterator[Callable[[float], None]]:
    """Show a progress bar on standard error, if that is a terminal and a second has passed.

    Parameters
    ----------
    total : float or None
        Amount of work; None if unknown.
    label : str
        What is being done.

    Yields
    ------
    callable
        Call it with the amount of work just done.
    """
    if not sys.stderr.isatty():
        yield lambda amount: None
        return
    bar: Any = None
    task: Any = None
    done, began = 0.0, time.monotonic()

    def advance(amount: float) -> None:
        nonlocal bar, task, done
        done += amount
        if bar is None and time.monotonic() - began > PATIENCE:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
            bar = Progress(*columns, console=Console(stderr=True), transient=True)
            bar.start()
            task = bar.add_task(label, total=total)
        if bar is not None:
            bar.update(task, completed=done)

    try:
        yield advance
    finally:
        if bar is not None:
            bar.stop()
