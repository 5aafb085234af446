"""Connect to a Ray cluster, and run many tasks on it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tacit.core.parallel import Report, runner
from tacit.errors import MissingExtra, TacitError

LOCAL = "local"
RETRIES = 5
"""Retries of a task whose worker has died."""


class NoCluster(TacitError, ConnectionError):
    """Raised if no Ray cluster answers at the given address."""


def import_ray() -> Any:
    """Return the module ``ray``.

    Raises
    ------
    MissingExtra
        If it is not installed.
    """
    try:
        import ray
    except ImportError:
        raise MissingExtra("Ray", "ray") from None
    return ray


@contextmanager
def on_ray(address: str = LOCAL) -> Iterator[None]:
    """Run all parallel work within the ``with`` block on Ray.

    Results equal those of a local run, bit for bit, for any number of workers, because every task
    has its own random streams. A task whose worker dies is run again, up to five times. An error or
    an interrupt cancels the remaining tasks.

    Parameters
    ----------
    address : str, default "local"
        ``local`` starts a cluster on this machine and stops it afterwards; ``auto`` or
        ``HOST:PORT`` connects to a running one. If this process is connected to a cluster already,
        that one is used.

    Raises
    ------
    MissingExtra
        If Ray is not installed.
    NoCluster
        If no cluster answers at the address.

    Examples
    --------
    >>> import tacit
    >>> from tacit.cluster import on_ray
    >>> with on_ray():  # doctest: +SKIP
    ...     result = tacit.simulate(tacit.UCB1(arms=2), tacit.BernoulliArms([0.1, 0.2]), 1000)
    """
    with connect(address):
        token = runner.set(_run_on_ray)
        try:
            yield
        finally:
            runner.reset(token)


@contextmanager
def connect(address: str) -> Iterator[None]:
    """Connect to a Ray cluster within the ``with`` block; unlike :func:`on_ray`, run no work on it.

    A connection that this process has already is used, and stays open afterwards; otherwise it is closed.
    Raises MissingExtra without Ray, NoCluster if no cluster answers.
    """
    ray = import_ray()
    is_owner = not ray.is_initialized()
    # The first error of a task is raised; do not also print the errors of other tasks.
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    if is_owner:
        _check_reachable(address)
        try:
            ray.init(address, include_dashboard=False, log_to_driver=False, logging_level="error")
        except ConnectionError as error:
            raise NoCluster(f"ray: no cluster answers at {address!r}: {error}") from error
    try:
        yield
    finally:
        if is_owner:
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raise NoCluster if nothing listens at an address HOST:PORT, because Ray would retry for minutes.

    Other addresses, such as "local", are not checked.
    """
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and "/" not in host):
        return
    try:
        socket.create_connection((host, int(port)), timeout=5.0).close()
    except OSError as error:
        raise NoCluster(f"ray: no cluster answers at {address!r}: {error.strerror}") from error


def _run_task(function: Callable[..., Any], *task: Any) -> Any:
    """Return ``function(*task, report)`` on a worker, where ``report`` ignores the progress."""
    return function(*task, lambda amount: None)


def _run_on_ray(
    function: Callable[..., Any],
    tasks: Sequence[tuple[Any, ...]],
    amounts: Sequence[float],
    workers: int,
    advance: Report,
) -> list[Any]:
    """Run a function on Ray with the arguments of each task; return the results in the tasks' order.

    ``advance`` is called with the ``amounts`` of finished tasks; ``workers`` is ignored, as Ray knows its
    own. At the first error the remaining tasks are cancelled, and the task's own error is raised.
    """
    ray = import_ray()
    remote = ray.remote(max_retries=RETRIES, num_cpus=1)(_run_task)
    # Sent once for all tasks, because it may contain a large model.
    function_ref = ray.put(function)
    futures = [remote.remote(function_ref, *task) for task in tasks]
    amount = dict(zip(futures, amounts, strict=True))
    waiting = futures
    try:
        while waiting:
            finished, waiting = ray.wait(waiting, timeout=0.5)
            # Raises an error immediately, without waiting for other tasks.
            ray.get(finished)
            advance(sum(amount[task] for task in finished))
        return list(ray.get(futures))
    except BaseException as error:
        for task in waiting:
            ray.cancel(task, force=True)
        if isinstance(error, ray.exceptions.RayTaskError):
            raise error.cause from error
        raise
