"""Upkeep between groups: snapshots are written, and rows that are old enough are dropped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

from tacit.errors import TacitError
from tacit.learning.snapshot import Room
from tacit.service.engine.pending import PendingLog
from tacit.service.engine.retention import JUMP, Retention
from tacit.service.engine.worker import Worker
from tacit.service.errors import Unavailable
from tacit.service.placements.base import Placement
from tacit.service.stores.base import BASES, SNAPSHOTS, Draft, Store

Rooms = Mapping[str, Room] | None

logger = logging.getLogger(__name__)


class Upkeep:
    """Keeps a log short.

    No group is served while a placement is copied or old rows are looked for. While memory for a
    large copy is touched and while a copy is written groups are: every step is one of the store's
    thread, which commits them in between.

    Parameters
    ----------
    store : Store
    worker : Worker
        The store's thread.
    pending : PendingLog
    wake : function
        Called when there is more to do.
    between_groups : function
        Runs a step when all rows are in the log.

    Attributes
    ----------
    spared : collection of str
        Names of placements whose log stays as it is for now, as it is being folded anew.
    """

    def __init__(
        self,
        store: Store,
        worker: Worker,
        pending: PendingLog,
        wake: Callable[[], None],
        between_groups: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]],
    ) -> None:
        self._store, self._worker, self._pending, self._wake = store, worker, pending, wake
        self._between_groups = between_groups
        self._retention = Retention(store)
        self._ahead = pending.time.wall_ahead
        self.spared: Collection[str] = ()
        self._writing: asyncio.Task[None] | None = None

    def confirmed(self) -> None:
        """Drop nothing for an hour, as at a start whose clock was confirmed."""
        self._retention.hold(self._pending.time.surely())

    def watch_clock(self) -> None:
        """Notice that the wall's clock was set: the log's time goes on as before, and nothing is
        dropped for a while."""
        ahead = self._pending.time.wall_ahead
        if abs(ahead - self._ahead) > JUMP:
            logger.warning(
                "the clock of this machine was set by %+.0f s: the log's time goes on as before, "
                "until the next start, and no row is dropped for an hour",
                (ahead - self._ahead) / 1e6,
            )
            self._ahead = ahead
            self.confirmed()

    @property
    def due(self) -> bool:
        """Whether :meth:`step` has something to do at once."""
        return self._retention.busy and self._writing is None

    @property
    def quiet(self) -> bool:
        """Whether nothing is under way and nothing old is left."""
        return not (self._pending.frozen or self._writing or self._retention.busy)

    @property
    def _idle(self) -> bool:
        # One at a time: memory holds one copy of what was learned at most.
        return not self._pending.tail.size and self._writing is None

    async def step(self, archive: str | None) -> None:
        """Begin the snapshot that is needed most, or drop some old rows, if nothing else waits.

        Parameters
        ----------
        archive : str or None
            Folder to which rows are written before they are dropped.
        """
        known, touched = self._pending.placements, self._pending.touched
        some = [known[name] for name in touched if name in known]
        due = [p for p in some if p.since_snapshot >= p.snapshot_after]
        self._pending.touched = {p.name for p in due}
        if due and self._idle:
            neediest = max(due, key=lambda p: p.since_snapshot / p.snapshot_after)
            await self._begin(neediest, self._save_snapshot)
        if self._idle:
            await self._drop_old(archive)

    async def save_all(self) -> None:
        """Write a snapshot of every placement that has learned since its last one."""
        await self.written()
        for placement in self._pending.placements.values():
            if placement.since_snapshot:
                await self._save_snapshot(placement)
                await self.written()

    async def written(self) -> None:
        """Wait until no snapshot is being written."""
        while self._writing is not None:
            await asyncio.wait([self._writing])

    async def _begin(self, placement: Placement, save: Callable[[Placement, Rooms], Awaitable[None]]) -> None:
        """Save a placement: at once, or when the memory for a large copy was touched."""
        rooms = placement.rooms()
        if rooms is None:
            await save(placement, None)
        else:
            self._writing = asyncio.create_task(self._begin_in(rooms, placement, save))

    async def _begin_in(
        self,
        rooms: Mapping[str, Room],
        placement: Placement,
        save: Callable[[Placement, Rooms], Awaitable[None]],
    ) -> None:
        async def begin() -> None:
            # Another one may have taken its place meanwhile.
            if self._pending.placements.get(placement.name) is placement:
                await save(placement, rooms)

        try:
            for room in rooms.values():
                await self._in_steps(room.touched())
            await self._between_groups(begin)
        except Unavailable:
            # All is saved at the end.
            pass
        except Exception as error:
            logger.warning("no snapshot of placement %s: %s", placement.name, error)
        finally:
            if self._writing is asyncio.current_task():
                self._writing = None

    async def _in_steps(self, steps: Iterator[Any]) -> None:
        while await self._worker.do(next, steps, steps) is not steps:
            pass

    async def _save_snapshot(self, placement: Placement, rooms: Rooms = None) -> None:
        time, placement.since_snapshot = self._pending.time.clock(), 0

        def saved() -> None:
            placement.snapshot_time = time

        copy = partial(placement.draft, self._pending.seq, time, rooms)
        await self._save(placement.name, copy, SNAPSHOTS, saved)

    async def _save_base(self, placement: Placement, rooms: Rooms = None) -> None:
        oldest, seq = placement.windows.oldest, self._pending.seq
        before = seq if oldest is None else min(seq, oldest)

        def saved() -> None:
            self._retention.rest(placement, before)
            self._wake()

        copy = partial(placement.draft, seq, self._pending.time.now(), rooms)
        await self._save(placement.name, copy, BASES, saved)

    async def _save(self, name: str, copy: Callable[[], Draft], what: str, saved: Callable[[], None]) -> None:
        """Copy what a placement has learned by now, and begin to write the copy."""
        with self._pending.freeze():
            draft = await self._worker.do(copy)
        self._writing = asyncio.create_task(self._write(name, draft, what, saved))

    async def _write(self, name: str, draft: Draft, what: str, saved: Callable[[], None]) -> None:
        try:
            await self._in_steps(self._store.saving(draft, what))
            saved()
        # The log is the truth, so this costs time at the next start and nothing else.
        except Exception as error:
            logger.warning("no snapshot of placement %s: %s", name, error)
        finally:
            # Nobody is woken: an empty group would close windows at a moment of its own.
            self._writing = None

    async def _drop_old(self, archive: str | None) -> None:
        """Drop some of the rows that are older than their placements keep them."""
        now = self._pending.time.surely()
        if not self._retention.due(now):
            return
        known = self._pending.placements
        placements = [known[name] for name in known if name not in self.spared]
        try:
            with self._pending.freeze():
                needy = await self._worker.do(
                    self._retention.step, placements, self._pending.seq, now, archive
                )
        except TacitError as error:
            logger.warning("old rows could not be dropped: %s", error)
            return
        if needy is not None:
            await self._begin(needy, self._save_base)
