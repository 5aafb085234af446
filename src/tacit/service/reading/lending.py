"""What placements have learned, as learners' files: made once for all who ask at about a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol
from weakref import WeakValueDictionary

from tacit.learning.snapshot import LearnerSnapshot, views

LARGE = 2**20
"""Bytes of a file from which on it is given to whoever asks soon after, too."""
KEPT_SECONDS = 5.0
"""For so long."""


class Lent(list[bytes | memoryview]):
    """A learner's file in parts, which many may send at once.

    Attributes
    ----------
    of : object
        The placement as it was.
    seq : int
        The last row of the log that it knows.
    """

    def __init__(self, of: Any, seq: int, copy: LearnerSnapshot) -> None:
        super().__init__(views(copy))
        self.of, self.seq = of, seq


class Copying(Protocol):
    """What is asked of an engine."""

    def placement(self, name: str) -> Any:
        """Return a placement, or raise UnknownName."""

    async def between_groups(self, step: Callable[[], Awaitable[None]]) -> None:
        """Run a step when all rows are in the log."""

    async def frozen(self, read: Callable[[int, int], Any]) -> Any:
        """Call what takes the end of the log and its time, while nothing changes."""


class Lending:
    """Makes the files, one at a time for a placement.

    Memory holds a copy of what was learned for each state that somebody is still being sent, and
    nothing else.

    Parameters
    ----------
    engine : Copying
    """

    def __init__(self, engine: Copying) -> None:
        self._engine = engine
        self._making: dict[str, asyncio.Task[Lent]] = {}
        self._sent: WeakValueDictionary[str, Lent] = WeakValueDictionary()
        self._fresh: dict[str, Lent] = {}

    async def of(self, name: str, seq: int) -> Lent:
        """Return the file of a placement.

        Parameters
        ----------
        name : str
        seq : int
            The end of the log: what is the same up to there is the same.

        Raises
        ------
        UnknownName, Unavailable
            If there is no such placement, or the store fails.
        """
        placement, sent = self._engine.placement(name), self._sent.get(name)
        same = sent is not None and (sent.seq == seq or self._fresh.get(name) is sent)
        if sent is not None and same and sent.of is placement:
            return sent
        making = self._making.get(name)
        if making is None:
            making = self._making[name] = asyncio.create_task(self._make(name))
            making.add_done_callback(partial(self._ended, name))
        # Who asked first may leave first.
        return await asyncio.shield(making)

    async def _make(self, name: str) -> Lent:
        copies: list[tuple[Any, int, LearnerSnapshot]] = []
        room = self._engine.placement(name).room()
        await asyncio.to_thread(deque, room.touched(), 0)

        async def copy() -> None:
            # Another one may have taken its place meanwhile.
            of = self._engine.placement(name)
            copies.append(await self._engine.frozen(lambda seq, _: (of, seq, of.copied(room))))

        await self._engine.between_groups(copy)
        made = self._sent[name] = await asyncio.to_thread(Lent, *copies.pop())
        if sum(map(len, made)) >= LARGE:
            self._fresh[name] = made
            asyncio.get_running_loop().call_later(KEPT_SECONDS, self._age, name, made)
        return made

    def _ended(self, name: str, task: asyncio.Task[Lent]) -> None:
        del self._making[name]
        # What went wrong is for whoever asked; nobody may be there any more.
        _ = task.cancelled() or task.exception()

    def _age(self, name: str, made: Lent) -> None:
        if self._fresh.get(name) is made:
            del self._fresh[name]
