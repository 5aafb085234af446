"""A thread that does what blocks, one call after the other.

It does less for each call than an executor of the standard library, whose locks cost as much as a
small commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

Result = TypeVar("Result")
_Call = tuple["asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]


class Worker:
    """A thread that belongs to the event loop of its first call.

    Parameters
    ----------
    name : str

    Attributes
    ----------
    calls : int
        How many have not been done yet.

    Examples
    --------
    >>> async def session():
    ...     worker = Worker("example")
    ...     found = await worker.do(max, 1, 2)
    ...     worker.stop()
    ...     return found
    >>> asyncio.run(session())
    2
    """

    def __init__(self, name: str) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._stopped = False
        self.calls = 0
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def do(self, function: Callable[..., Result], *arguments: Any) -> asyncio.Future[Result]:
        """Call a function there; await what it returns or raises.

        Raises
        ------
        RuntimeError
            If the worker was stopped.
        """
        if self._stopped:
            raise RuntimeError("the worker was stopped")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._thread.start()
        done = self._loop.create_future()
        self.calls += 1
        self._calls.put((done, function, arguments))
        return done

    def stop(self) -> None:
        """Wait for all calls, and end."""
        self._stopped = True
        if self._loop is not None:
            self._calls.put(None)
            self._thread.join()

    def _run(self) -> None:
        assert self._loop is not None
        while (call := self._calls.get()) is not None:
            done, function, arguments = call
            try:
                outcome = done.set_result, function(*arguments)
            except BaseException as error:
                outcome = done.set_exception, error
            self._loop.call_soon_threadsafe(self._settle, done, *outcome)
            # Nothing of a call may live until the next one.
            del call, done, function, arguments, outcome

    def _settle(self, done: asyncio.Future[Any], settle: Callable[[Any], None], outcome: Any) -> None:
        self.calls -= 1
        if not done.done():
            settle(outcome)
