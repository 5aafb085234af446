"""Upkeep between groups, on a thread that may block: snapshots are written and old rows dropped.

From top to bottom: ``Worker``, a thread for blocking calls; ``Retention``, which drops old rows in steps; and
``Upkeep``. After each group (:meth:`Upkeep.step`) it does at most one thing:

- it copies a placement that has learned much since its last snapshot, while no group is served, and writes
  the copy in pieces while groups are served;
- or, once an hour, it looks for old rows. Before the first rows of a placement are dropped, it writes a
  *base*, the learned state from which later folds begin. Then rows are dropped a thousand at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from tacit.errors import ConfigError, TacitError
from tacit.learning.snapshot import CopyBuffer
from tacit.service.config.schema import Config
from tacit.service.engine.pending_rows import PendingLog
from tacit.service.errors import NotDurable, StoreError
from tacit.service.log.ids import as_text
from tacit.service.log.removal import drop_rows, find_old_rows
from tacit.service.log.sql import Store
from tacit.service.log.store import BASES, SNAPSHOTS, Draft, OldRows
from tacit.service.placements.placement import Placement
from tacit.service.placements.snapshots import draft, make_workspaces

# ---- A thread for blocking calls, one after the other
#
# An executor of the standard library has more overhead per call: its locks cost as much as a small commit.

Result = TypeVar("Result")
_Call = tuple["asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]


class Worker:
    """A thread that runs blocking calls for the event loop of the first call.

    Parameters
    ----------
    name : str

    Attributes
    ----------
    calls : int
        Number of unfinished calls.

    Examples
    --------
    >>> async def session():
    ...     worker = Worker("example")
    ...     result = await worker.do(max, 1, 2)
    ...     worker.stop()
    ...     return result
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
        """Queue a function call for the thread; return a future that gets its result or error.

        The first call starts the thread. Calls run one after the other.

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
        """Refuse further calls, wait until all queued calls have ended, and end the thread."""
        self._stopped = True
        if self._loop is not None:
            self._calls.put(None)
            self._thread.join()

    def _run(self) -> None:
        """Run queued calls until :meth:`stop`, and pass each result or error to the event loop."""
        assert self._loop is not None
        while (call := self._calls.get()) is not None:
            done, function, arguments = call
            try:
                outcome = done.set_result, function(*arguments)
            except BaseException as error:
                outcome = done.set_exception, error
            self._loop.call_soon_threadsafe(self._settle, done, *outcome)
            # Release the call's objects before waiting for the next call.
            del call, done, function, arguments, outcome

    def _settle(self, done: asyncio.Future[Any], settle: Callable[[Any], None], outcome: Any) -> None:
        """Count a call as finished.

        Set its future's result or error, unless the future is done (cancelled).
        """
        self.calls -= 1
        if not done.done():
            settle(outcome)


# ---- Retention: old rows are dropped once a base holds the state learned from them
#
# A placement's log then begins at its *base*: a snapshot of the learned state up to some row. The learned
# state is a fold over the later rows, so the log can still be verified. A decision is dropped together with
# its feedback, and not while its window is open; the last row of the log stays.

DAY = 86_400_000_000
SEARCH_INTERVAL = HOLD_TIME = 3_600_000_000
"""Microseconds between two searches for old rows, and without one after a jump of the clock."""
JUMP = 60_000_000
"""Microseconds of difference between the wall clock and the log's time that mean that the clock was set."""
ROWS = 1000
"""Decisions that are dropped per step, so that no commit waits long."""


def check_clock(config: Config, last: int, wall: int) -> int:
    """Check that the wall clock is plausible, before old rows are dropped by it; return how far it is ahead.

    In microseconds ahead of the log's last row; 0 if a pause of the service can explain the difference.

    Parameters
    ----------
    config : Config
    last : int
        Time of the last row; 0 for an empty log.
    wall : int
        Wall time in microseconds since 1970.

    Raises
    ------
    ConfigError
        If rows would be dropped by an unconfirmed clock: it is ahead of the last row by more than a day,
        and by more than half of the shortest retention.
    """
    ahead = wall - last if last else 0
    configured = [placement.retention for placement in config.placements.values()]
    retentions = [days for days in configured if days is not None]
    if not retentions or ahead <= max(DAY, min(retentions) * DAY / 2):
        return 0
    if not config.store.clock_is_right:
        raise ConfigError(
            f"store.retention: this machine's clock says {as_text(wall)}, and the last row of the "
            f"log is of {as_text(last)}: by that clock rows would be dropped that may not be old. "
            "Set the clock; or, if it is right, confirm it for this start with --clock-is-right"
        )
    return ahead


class Retention:
    """Drops old rows, some at a time.

    Parameters
    ----------
    store : Store

    Attributes
    ----------
    busy : bool
        Whether there may be more to drop now.
    next : int
        Time of the next search for old rows.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.busy = False
        self.next = self._held = 0
        self._dropped_before: dict[int, int] = {}

    def due(self, now: int) -> bool:
        """True if the next search for old rows is due, and drops are not on hold."""
        return now >= max(self.next, self._held)

    def hold(self, now: int) -> None:
        """Drop nothing for an hour from ``now`` on, because the clock has jumped and may be set back."""
        self._held = now + HOLD_TIME

    def step(
        self, placements: Sequence[Placement], seq: int, now: int, archive: str | None
    ) -> Placement | None:
        """Drop up to 1000 old decisions with their feedback, or return a placement that needs a base first.

        The rows are written to the archive before, if there is one. If no decisions are left to drop, old
        ticks are dropped. Sets ``busy`` and ``next``. After the last drop of a placement, the store
        overwrites the dropped data.

        Parameters
        ----------
        placements : sequence of Placement
            All placements of the service.
        seq : int
            The end of the log, up to which the placements have learned.
        now : int
            Microseconds since 1970.
        archive : str or None
            Folder to which the rows are written before they are dropped.

        Returns
        -------
        Placement or None
            Call :meth:`allow_drops` with it once its base is written.

        Raises
        ------
        StoreError
            If the store fails, or the rows cannot be written; then they are not dropped.
        """
        # A failed step is repeated at the next search.
        self.next, self.busy = now + SEARCH_INTERVAL, False
        for placement in placements:
            if placement.config.retention is None:
                continue
            time = int(max(now - placement.config.retention * DAY, 0))
            # Rows are dropped only up to a base that was written since this search began.
            before = self._dropped_before.get(placement.id)
            if before is None:
                if find_old_rows(self._store, placement.id, seq, time, 1).size:
                    return placement
                continue
            old = find_old_rows(self._store, placement.id, before, time, ROWS)
            if old.size:
                self._drop(old, archive, placement.name)
                self.next, self.busy = now, True
                return None
            # All rows up to the base are dropped: their data are overwritten once, not by every step.
            del self._dropped_before[placement.id]
            self._store.scrub()
        self._drop_ticks()
        return None

    def allow_drops(self, placement: Placement, before: int) -> None:
        """Allow rows of a placement before row ``before`` to be dropped, because its base includes them now.

        The next step is due at once.
        """
        self._dropped_before[placement.id] = before
        self.next, self.busy = 0, True

    def _drop(self, old: OldRows, archive: str | None, name: str) -> None:
        """Write old rows to the archive, if there is one, and delete them from the store.

        Raises StoreError, and deletes nothing, if the archive cannot be written.
        """
        if archive is not None:
            from tacit.service.log.archive import write_old_rows

            try:
                write_old_rows(old, Path(archive) / name)
            except OSError as error:
                raise StoreError(f"store.archive: {archive} cannot be written: {error}") from error
        drop_rows(self._store, old)

    def _drop_ticks(self) -> None:
        """Drop old ticks, which belong to all placements, up to the earliest base.

        Nothing if a base is missing.
        """
        store = self._store
        bases = [store.snapshots.find_base_end(stored.id) for stored in store.placements().values()]
        existing = [base for base in bases if base is not None]
        if existing and len(existing) == len(bases):
            before, time = min(base.seq for base in existing), min(base.time for base in existing)
            drop_rows(self._store, find_old_rows(self._store, None, before, time, ROWS))


# ---- Upkeep between groups: snapshots are written, and old rows are dropped

Workspaces = Mapping[str, CopyBuffer] | None

logger = logging.getLogger(__name__)


class Upkeep:
    """Writes snapshots and drops old rows between groups of requests.

    No group is served while a placement is copied or old rows are searched. Groups are served while the
    memory for a large copy is touched, and while a copy is written: both run in short steps on the store's
    thread, with commits in between.

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
        Names of placements whose rows are not dropped, since a rebuild is reading them.
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

    def hold_drops(self) -> None:
        """Drop nothing for an hour: the clock has jumped, or was confirmed at the start."""
        self._retention.hold(self._pending.time.get_earlier_time())

    def watch_clock(self) -> None:
        """Log a warning if the wall clock was set since the last call, and drop nothing for an hour.

        The log's time continues as before.
        """
        ahead = self._pending.time.wall_ahead
        if abs(ahead - self._ahead) > JUMP:
            logger.warning(
                "the clock of this machine was set by %+.0f s: the log's time goes on as before, "
                "until the next start, and no row is dropped for an hour",
                (ahead - self._ahead) / 1e6,
            )
            self._ahead = ahead
            self.hold_drops()

    @property
    def due(self) -> bool:
        """True if :meth:`step` can drop more old rows now: no snapshot is being written."""
        return self._retention.busy and self._writing is None

    @property
    def quiet(self) -> bool:
        """True if placements are not frozen, no snapshot is being written, and no old rows are left."""
        return not (self._pending.frozen or self._writing or self._retention.busy)

    @property
    def _idle(self) -> bool:
        """True if no rows are pending and no snapshot is being written."""
        # One at a time: memory holds at most one copy of a learned state.
        return not self._pending.waiting and self._writing is None

    async def step(self, archive: Callable[[], str | None]) -> None:
        """Begin to write the most overdue snapshot, or drop some old rows; nothing while rows are pending.

        Placements whose snapshot is not due leave ``touched``.

        Parameters
        ----------
        archive : function
            Returns the folder to which rows are written before they are dropped, if any.
        """
        pending = self._pending
        touched = map(pending.placements.get, pending.touched)
        due = [p for p in touched if p is not None and p.counts.since_snapshot >= p.snapshot_after]
        pending.touched = {p.name for p in due} if due else set()
        if due and self._idle:
            most_overdue = max(due, key=lambda p: p.counts.since_snapshot / p.snapshot_after)
            await self._begin(most_overdue, self._save_snapshot)
        # The time of the last group, which is not later than the current time, is precise enough here.
        if pending.time.last >= self._retention.next and self._idle:
            await self._drop_old(archive())

    async def save_all(self) -> None:
        """Write a snapshot of every placement that has learned since its last one, and wait for each."""
        await self.wait_for_snapshot()
        for placement in self._pending.placements.values():
            if placement.counts.since_snapshot:
                await self._save_snapshot(placement)
                await self.wait_for_snapshot()

    async def wait_for_snapshot(self) -> None:
        """Wait until no snapshot is being written."""
        while self._writing is not None:
            await asyncio.wait([self._writing])

    async def _begin(
        self, placement: Placement, save: Callable[[Placement, Workspaces], Awaitable[None]]
    ) -> None:
        """Call ``save`` for a placement; if its copy is large, in a task, after its memory was touched."""
        workspaces = make_workspaces(placement)
        if workspaces is None:
            await save(placement, None)
        else:
            self._writing = asyncio.create_task(self._touch_and_save(workspaces, placement, save))

    async def _touch_and_save(
        self,
        workspaces: Mapping[str, CopyBuffer],
        placement: Placement,
        save: Callable[[Placement, Workspaces], Awaitable[None]],
    ) -> None:
        """Touch the memory for a copy in steps, then save the placement between two groups.

        Nothing is saved if the placement was replaced meanwhile or the service is stopping. Other errors are
        logged as warnings.
        """

        async def begin() -> None:
            """Save the placement, unless it was replaced meanwhile."""
            if self._pending.placements.get(placement.name) is placement:
                await save(placement, workspaces)

        try:
            for workspace in workspaces.values():
                await self._run_steps(workspace.touch_pages())
            await self._between_groups(begin)
        except NotDurable:
            # The service is stopping, and saves all placements at the end.
            pass
        except Exception as error:
            logger.warning("no snapshot of placement %s: %s", placement.name, error)
        finally:
            # Otherwise ``save`` has begun the task that writes the copy, which clears it at its end.
            if self._writing is asyncio.current_task():
                self._writing = None

    async def _run_steps(self, steps: Iterator[Any]) -> None:
        """Run an iterator to its end on the store's thread, one step per call."""
        while await self._worker.do(next, steps, steps) is not steps:
            pass

    async def _save_snapshot(self, placement: Placement, workspaces: Workspaces = None) -> None:
        """Copy a placement's learned state and begin to write it as a snapshot; reset ``since_snapshot``."""
        time, placement.counts.since_snapshot = self._pending.time.clock(), 0

        def finish() -> None:
            """Note the time of the snapshot, which is complete now."""
            placement.snapshot_time = time

        copy = partial(draft, placement, self._pending.seq, time, workspaces)
        await self._save(placement.name, copy, SNAPSHOTS, finish)

    async def _save_base(self, placement: Placement, workspaces: Workspaces = None) -> None:
        """Copy a placement's learned state and begin to write it as a base; then old rows may be dropped."""
        oldest, seq = placement.windows.open.first_learnable_seq, self._pending.seq
        # Rows of decisions that can still be learned from are not dropped.
        before = seq if oldest is None else min(seq, oldest)

        def finish() -> None:
            """Allow that rows before the base, which is complete now, are dropped."""
            self._retention.allow_drops(placement, before)
            self._wake()

        copy = partial(draft, placement, seq, self._pending.time.get_time(), workspaces)
        await self._save(placement.name, copy, BASES, finish)

    async def _save(
        self, name: str, copy: Callable[[], Draft], what: str, finish: Callable[[], None]
    ) -> None:
        """Copy the learned state of a placement while it is frozen, and start a task that writes the copy.

        Parameters
        ----------
        name : str
        copy : function
            Returns the copy; called on the store's thread.
        what : str
            Table to which it is written: ``SNAPSHOTS`` or ``BASES``.
        finish : function
            Called once it is written.
        """
        with self._pending.freeze():
            snapshot_draft = await self._worker.do(copy)
        self._writing = asyncio.create_task(self._write(name, snapshot_draft, what, finish))

    async def _write(self, name: str, draft: Draft, what: str, finish: Callable[[], None]) -> None:
        """Write a copy to the store in steps, then call ``finish``; log a warning if it fails."""
        try:
            await self._run_steps(self._store.snapshots.save_in_steps(draft, what))
            finish()
        # The log has all rows, so a missing snapshot only costs time at the next start.
        except Exception as error:
            logger.warning("no snapshot of placement %s: %s", name, error)
        finally:
            # The writer is not woken: an empty group would close windows at an additional time.
            self._writing = None

    async def _drop_old(self, archive: str | None) -> None:
        """Drop some rows past their placement's retention, or begin to write a base that is needed before.

        Nothing if no search is due. If the store fails, a warning is logged. Placements in ``spared`` are
        left out.
        """
        now = self._pending.time.get_earlier_time()
        if not self._retention.due(now):
            return
        by_name = self._pending.placements
        placements = [by_name[name] for name in by_name if name not in self.spared]
        try:
            with self._pending.freeze():
                placement = await self._worker.do(
                    self._retention.step, placements, self._pending.seq, now, archive
                )
        except TacitError as error:
            logger.warning("old rows could not be dropped: %s", error)
            return
        if placement is not None:
            await self._begin(placement, self._save_base)
