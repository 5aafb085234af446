"""What placements have learned, as learners' files: made once for all who ask at about a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol
from weakref import ReferenceType, ref

from tacit.learning.snapshot import LearnerSnapshot, views
from tacit.service.errors import Busy

LARGE = 2**20
"""Bytes of a file from which on it is given to whoever asks soon after, too."""
KEPT_SECONDS = 5.0
"""For so long."""
MOST_BYTES = 2**26
"""Beyond them, files of two states are sent at once, and no third one is made."""


class Lent(list[bytes | memoryview]):
    """A learner's file in parts, which many may send at once.

    Attributes
    ----------
    of : object
        The placement as it was.
    seq : int
        The last row of the log that it knows.
    size : int
        Bytes.
    """

    def __init__(self, of: Any, seq: int, copy: LearnerSnapshot) -> None:
        super().__init__(views(copy))
        self.of, self.seq, self.size = of, seq, sum(map(len, self))


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

    Memory holds a copy of what was learned for each state that somebody is still being sent: of
    what is huge, two of a placement.

    Parameters
    ----------
    engine : Copying
    """

    def __init__(self, engine: Copying) -> None:
        self._engine = engine
        self._making: dict[str, asyncio.Task[Lent]] = {}
        self._sent: dict[str, list[ReferenceType[Lent]]] = {}
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
        Busy
            If those who are still being sent earlier states take too much memory.
        """
        placement = self._engine.placement(name)
        sent = [one for known in self._sent.get(name, ()) if (one := known()) is not None]
        for one in sent:
            if one.of is placement and (one.seq == seq or self._fresh.get(name) is one):
                return one
        making = self._making.get(name)
        if making is None:
            if len(sent) > 1 and sum(one.size for one in sent) > MOST_BYTES:
                raise Busy(
                    "service: two earlier states of what was learned are still being sent; ask again later"
                )
            self._sent[name] = list(map(ref, sent))
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
        made = await asyncio.to_thread(Lent, *copies.pop())
        self._sent[name].append(ref(made))
        if made.size >= LARGE:
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
