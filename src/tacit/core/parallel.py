"""Run independent tasks in threads or on a cluster, with a progress bar on a terminal."""

# 1. Progress: a bar on a terminal or in a notebook, nothing elsewhere.
# 2. ``run_tasks``: tasks in threads or in a cluster's runner; the first error stops the others.

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from tacit.core import checks

# ---- Progress on a terminal for work that takes longer than a second

PATIENCE = 1.0


_has_bar: ContextVar[bool] = ContextVar("shown", default=False)
"""Whether there is already a bar: nested work does not show another one."""


def is_watched() -> bool:
    """True if a bar would be visible: on a terminal, or in a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


@contextmanager
def progress(total: float | None, label: str) -> Iterator[Callable[[float], None]]:
    """Show a progress bar on a terminal (on standard error) or in a notebook, after one second.

    Nested blocks show none.

    Parameters
    ----------
    total : float or None
        Amount of work; None if unknown.
    label : str
        Label of the bar.

    Yields
    ------
    callable
        Call it with the amount of work just done.
    """
    if _has_bar.get() or not is_watched():
        yield lambda amount: None
        return
    bar: Any = None
    task: Any = None
    done, began = 0.0, time.monotonic()

    def advance(amount: float) -> None:
        """Add to the amount done; show it once a second has passed since the beginning."""
        nonlocal bar, task, done
        done += amount
        if bar is None and time.monotonic() - began > PATIENCE:
            bar = _bar(total is not None)
            bar.start()
            task = bar.add_task(label, total=total)
        if bar is not None:
            bar.update(task, completed=done)

    token = _has_bar.set(True)
    try:
        yield advance
    finally:
        _has_bar.reset(token)
        if bar is not None:
            bar.stop()


def _bar(is_known: bool) -> Any:
    """Return a new progress bar on standard error, not started; with the amount done if the total is not
    known.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    # Without a known total, show the amount that is done.
    how_far = TimeRemainingColumn() if is_known else TextColumn("{task.completed:,.0f}")
    columns = TextColumn("{task.description}"), BarColumn(), how_far, TimeElapsedColumn()
    return Progress(*columns, console=Console(stderr=True), transient=True)


@contextmanager
def report_progress(
    label: str, callback: Callable[[int], None] | None = None
) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the total amount done so far: ``callback``, or one that moves a progress
    bar.
    """
    if callback is not None:
        yield callback
        return
    with progress(None, label) as advance:
        before = 0

        def report(done: int) -> None:
            """Show the total amount done so far."""
            nonlocal before
            advance(done - before)
            before = done

        yield report


# ---- Independent tasks, spread over the threads of this process or over a cluster
#
# Compiled loops release the interpreter's lock, so threads are enough on one machine. Results
# do not depend on where or in which order the tasks ran.

Report = Callable[[float], None]


class Stopped(Exception):
    """Raised inside a task when the others have failed or were interrupted."""


class Runner(Protocol):
    """A function that runs tasks: :func:`run_in_threads`, or a cluster's."""

    def __call__(
        self,
        function: Callable[..., Any],
        tasks: Sequence[tuple[Any, ...]],
        amounts: Sequence[float],
        workers: int,
        advance: Report,
    ) -> list[Any]:
        """Return ``function(*task, report)`` for each task, in the order of the tasks."""


def run_tasks(
    function: Callable[..., Any],
    tasks: Sequence[tuple[Any, ...]],
    amounts: Sequence[float],
    *,
    label: str,
    workers: int | None = None,
) -> list[Any]:
    """Run a function for each task, with a progress bar, and return its results in the order of the tasks.

    It uses the current runner: threads, or a cluster's. The first error stops the other tasks and is raised.

    Parameters
    ----------
    function : function
        A module-level function, or a :func:`functools.partial` of one; called as
        ``function(*task, report)``. It should call ``report(amount)`` with the work just done
        often enough to be interrupted.
    tasks : sequence of tuple
        Arguments of each call; they must be serialisable for a cluster.
    amounts : sequence of float
        Amount of work of each task, for the progress bar.
    label : str
        Label of the progress bar.
    workers : int, optional
        Number of threads; by default one per core. A cluster ignores it.

    Raises
    ------
    InvalidValue
        If ``workers`` is below 1.

    Examples
    --------
    >>> def double(number, report):
    ...     report(1)
    ...     return 2 * number
    >>> run_tasks(double, [(1,), (2,)], [1, 1], label="doubling")
    [2, 4]
    """
    threads = checks.integer("workers", os.cpu_count() if workers is None else workers, 1)
    with progress(sum(amounts), label) as advance:
        return runner.get()(function, tasks, amounts, threads, advance)


def run_in_threads(
    function: Callable[..., Any],
    tasks: Sequence[tuple[Any, ...]],
    amounts: Sequence[float],
    workers: int,
    advance: Report,
) -> list[Any]:
    """Run ``function(*task, report)`` for each task in threads; return the results in the order of the tasks.

    An error or an interrupt stops the other tasks, then is raised.
    """
    stopped = threading.Event()
    done = [0.0] * len(tasks)
    reported = 0.0

    def run(i: int) -> Any:
        """Run task ``i`` and return its result; its reports are added to ``done[i]``."""

        def report(amount: float) -> None:
            """Add to the amount done by the task; raise Stopped, which ends it, if another task failed."""
            done[i] += amount
            if stopped.is_set():
                raise Stopped

        return function(*tasks[i], report)

    with ThreadPoolExecutor(max(1, min(workers, len(tasks)))) as pool:
        try:
            futures = [pool.submit(run, i) for i in range(len(tasks))]
            waiting = set(futures)
            while waiting:
                finished, waiting = wait(waiting, timeout=0.1, return_when=FIRST_COMPLETED)
                for future in finished:
                    future.result()
                total = sum(done)
                advance(total - reported)
                reported = total
        except BaseException:
            stopped.set()
            pool.shutdown(cancel_futures=True)
            raise
    return [future.result() for future in futures]


runner: ContextVar[Runner] = ContextVar("runner", default=run_in_threads)
"""The current runner of :func:`run_tasks`."""
