"""A Ray cluster, and work of many tasks on it."""

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
"""How often a task is tried again whose worker has died."""


class NoCluster(TacitError, ConnectionError):
    """There is no Ray cluster where one was said to be."""


def imported() -> Any:
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
    """Run everything that is spread, within the ``with`` block, on Ray.

    Results equal the local run's, bit for bit, whatever the number of workers: every task
    has random streams of its own. A task whose worker dies is run again, up to five
    times. An error or an interrupt cancels what is left.

    Parameters
    ----------
    address : str, default "local"
        ``local`` starts a cluster on this machine and stops it afterwards; ``auto`` or
        ``HOST:PORT`` connects to one that runs. A cluster that this process is connected to
        already is used as it is.

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
    with connected(address):
        token = runner.set(_run)
        try:
            yield
        finally:
            runner.reset(token)


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Be connected to a cluster, as :func:`on_ray` is."""
    ray = imported()
    ours = not ray.is_initialized()
    # The first error of a task is raised; other tasks' errors would be printed on top of it.
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    if ours:
        _check_answering(address)
        try:
            ray.init(address, include_dashboard=False, log_to_driver=False, logging_level="error")
        except ConnectionError as error:
            raise NoCluster(f"ray: no cluster answers at {address!r}: {error}") from error
    try:
        yield
    finally:
        if ours:
            ray.shutdown()


def _check_answering(address: str) -> None:
    """Refuse an address where nothing listens: Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and "/" not in host):
        return
    try:
        socket.create_connection((host, int(port)), timeout=5.0).close()
    except OSError as error:
        raise NoCluster(f"ray: no cluster answers at {address!r}: {error.strerror}") from error


def _task(function: Callable[..., Any], *task: Any) -> Any:
    return function(*task, lambda amount: None)


def _run(
    function: Callable[..., Any],
    tasks: Sequence[tuple[Any, ...]],
    amounts: Sequence[float],
    workers: int,
    advance: Report,
) -> list[Any]:
    ray = imported()
    remote = ray.remote(max_retries=RETRIES, num_cpus=1)(_task)
    # Sent once, however many tasks there are: it may hold a model.
    sent = ray.put(function)
    futures = [remote.remote(sent, *task) for task in tasks]
    amount = dict(zip(futures, amounts, strict=True))
    waiting = futures
    try:
        while waiting:
            finished, waiting = ray.wait(waiting, timeout=0.5)
            # Fetched at once: an error must not wait for the other tasks.
            ray.get(finished)
            advance(sum(amount[task] for task in finished))
        return list(ray.get(futures))
    except BaseException as error:
        for task in waiting:
            ray.cancel(task, force=True)
        if isinstance(error, ray.exceptions.RayTaskError):
            raise error.cause from error
        raise
