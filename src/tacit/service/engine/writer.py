"""The writer: a loop that serves requests in groups, and makes each group durable.

All changes of placements go through the writer, one group after the other. One iteration of the loop:

1. wait until requests arrive, a window closes, or a failed store is to be tried again (``_wait_for_work``);
2. the waiting requests form a group, of at most 1024 requests or 2²⁰ numbers of candidates (``_take_group``);
3. the group is applied in memory, and its rows become pending (:mod:`tacit.service.engine.group`);
4. the rows are appended in one commit, by the store's thread or, if that is faster, in the event loop's
   (``_commit``);
5. requests are answered: before the commit if their placement is ``buffered``, else after it;
6. upkeep and other steps that need all rows in the log run (``_run_steps``).

If the store fails, no request of the group is confirmed, but learners have learned from rows that are not in
the log. Then ``_mend`` appends the rows of answered requests, and loads placements from the store again. If
the store refuses single rows, the group is halved until these are alone (``_serve``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time as clocks
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from tacit.errors import UnknownName, undo_on_error
from tacit.service.config.schema import Config
from tacit.service.engine.group import apply
from tacit.service.engine.pending_rows import PendingLog
from tacit.service.engine.upkeep import Upkeep, Worker
from tacit.service.errors import Damaged, NotDurable, Refused, StoreError
from tacit.service.log.ids import Shard
from tacit.service.log.requests import Decide, Request
from tacit.service.log.rows import Event, Rows
from tacit.service.log.sql import Store
from tacit.service.placements.placement import Placement

# ---- Counts and times of commits

RATE_SECONDS = 10


class Commits:
    """Counts and times of commits.

    Attributes
    ----------
    span : function
        Returns, for a number of rows, the context in which their commit runs.
    on_commit : function
        Called with the number of rows and the seconds of each commit.
    last : int or None
        Time of the last commit, in microseconds since 1970.
    seconds : float
        Duration of the last commit.
    """

    def __init__(self) -> None:
        self.span: Callable[[int], AbstractContextManager[Any]] = contextlib.nullcontext
        self.on_commit: Callable[[int, float], None] = lambda rows, seconds: None
        self.last: int | None = None
        self.seconds = 0.0
        # Pairs of a second and the number of rows committed in it.
        self._recent: deque[list[int]] = deque()

    def record_commit(self, rows: int, seconds: float, now: int) -> None:
        """Record a commit as the last one, add its rows to the rate, and call ``on_commit``.

        Parameters
        ----------
        rows : int
            Number of committed rows.
        seconds : float
            Duration of the commit.
        now : int
            Its time, in microseconds since 1970.
        """
        self.last, self.seconds = now, seconds
        self.on_commit(rows, seconds)
        second = now // 1_000_000
        if self._recent and self._recent[-1][0] == second:
            self._recent[-1][1] += rows
            return
        self._recent.append([second, rows])
        while self._recent[0][0] <= second - RATE_SECONDS:
            self._recent.popleft()

    def compute_rate(self, now: int) -> float:
        """Return the number of committed rows per second, over the last 10 seconds.

        ``now`` is in microseconds.
        """
        since = now // 1_000_000 - RATE_SECONDS
        return sum(rows for second, rows in self._recent if second > since) / RATE_SECONDS


# ---- The writer: a loop that serves requests in groups, and makes each group durable

LARGEST_GROUP = 1024
MOST_NUMBERS = 2**20
"""Limit of the numbers of candidates that a group of several requests reads: 10 to 20 ms of computing."""
SMALL_GROUP = 16
"""Greatest number of rows that are committed in the event loop's thread."""
QUICK_SECONDS = 0.001
"""Greatest duration of the last commit for a commit there."""
LONE, LONE_SECONDS = 2, 0.01
"""Most rows of a commit that may take longer there, and its greatest duration: requests that arrive meanwhile
would wait for the commit anyway."""
SPLIT_ROWS = 1024
"""Greatest number of rows that are inserted in the event loop's thread and committed in the store's."""
RETRY_SECONDS = 1.0
TICK_SECONDS = 1.0
WATCH_SECONDS = 1.0

STOPPING = "service: it is stopping; try again when it is back"

logger = logging.getLogger(__name__)


class Serving(Protocol):
    """Protocol of an engine for its background tasks and reports.

    Attributes
    ----------
    config : Config
    store : Store
    shard : Shard or None
        None without shards.
    placements : dict of str to Placement
    """

    config: Config
    store: Store
    shard: Shard | None
    placements: dict[str, Placement]

    def placement(self, name: str) -> Placement:
        """Return a placement by its name, or raise UnknownName."""

    async def read_log(self, placement: str, after: int, count: int) -> list[Event]:
        """Return up to ``count`` rows of the log after row ``after``; raise UnknownName for a placement."""

    async def wait_until_durable(self, names: Sequence[str]) -> None:
        """Wait until all changes so far of the named placements are committed to the log."""


class Waiter(Protocol):
    """Receiver of a request's result or error, such as a future."""

    def done(self) -> bool:
        """True if a result or error was set, or the request was cancelled."""

    def set_result(self, result: Any) -> None:
        """Receive the result of the request."""

    def set_exception(self, error: BaseException) -> None:
        """Receive the error of the request."""


Result = TypeVar("Result")
_Waiting = tuple[Request, Waiter]
_Step = Callable[[], Awaitable[None]]


class Writer:
    """Serves requests, one group after the other.

    Parameters
    ----------
    store : Store
    pending : PendingLog
    load_placements : function
        Loads placements from the store by their names.
    on_reload : function
        Called after placements were loaded again.
    archive : function
        Returns the folder to which old rows are written before they are dropped, if any.

    Attributes
    ----------
    failure : Exception or None
        Error because of which nothing can be made durable at present.
    stopping : bool
    """

    def __init__(
        self,
        store: Store,
        pending: PendingLog,
        load_placements: Callable[[Sequence[str]], dict[str, Placement]],
        on_reload: Callable[[], Any],
        archive: Callable[[], str | None],
    ) -> None:
        self.failure: Exception | None = None
        self.stopping = False
        self.commits = Commits()
        self.worker = Worker("tacit-store")
        self._store, self.pending = store, pending
        # A store in a file appends in two steps, of which only the second waits for the disk.
        self._local: Any = store if store.local else None
        self._load_placements, self._on_reload, self._archive = load_placements, on_reload, archive
        self._arrived = asyncio.Event()
        self._waiting: deque[_Waiting] = deque()
        self._steps: deque[tuple[_Step, Waiter]] = deque()
        self._heal_after = self._append_seconds = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        self.upkeep = Upkeep(store, self.worker, pending, self.wake, self.run_between_groups)

    def start(self) -> None:
        """Start the tasks that serve groups of requests, and check the store and the clock every second."""
        self._serving = asyncio.create_task(self._serve_groups())
        self._watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Refuse new requests, serve the waiting ones, write snapshots, and end the tasks and the thread.

        Waiting steps get NotDurable as their error. If the store fails, rows that could not be written are
        logged as lost.
        """
        self.stopping = True
        self.wake()
        await self._serving
        self._watching.cancel()
        if self._alarm is not None:
            self._alarm.cancel()
        for _, reply in self._steps:
            set_reply(reply, NotDurable(STOPPING))
        if self.failure is None:
            await self.upkeep.save_all()
        elif self.pending.waiting:
            logger.error("%d rows could not be made durable before the end", self.pending.waiting)
        await self.upkeep.wait_for_snapshot()
        self.worker.stop()

    def wake(self) -> None:
        """Wake the loop, so that it looks for requests, steps and other work now."""
        self._arrived.set()

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a group."""
        return len(self._waiting)

    async def ask(self, request: Request) -> Any:
        """Queue a request, and return its result once it is durable, or raise its error.

        For a buffered placement, the result is returned before it is durable.
        """
        reply = asyncio.get_running_loop().create_future()
        self.begin(request, reply)
        return await reply

    def begin(self, request: Request, reply: Waiter) -> None:
        """Queue a request for the next group, without waiting; its result or error is set in ``reply``.

        A request to a buffered placement is applied at once if all decisions that it names are in memory.

        Raises
        ------
        NotDurable
            If the service is stopping, or the limit of rows in memory is reached.
        """
        if self.stopping:
            raise NotDurable(STOPPING)
        # Most requests wait for the next group. Only those to buffered placements are served at once.
        if self.pending.frozen or not (self.pending.buffering and self.pending.can_answer_early(request)):
            self._waiting.append((request, reply))
            self._arrived.set()
            return
        if self.pending.memory_rows >= self.pending.most_buffered:
            raise NotDurable("store: the buffer is full; try again later")
        (result,) = apply(self.pending, [request], stored_decisions={})
        self.wake()
        set_reply(reply, result)

    # Steps between groups, and calls of the store --------------------------------------------

    async def run_between_groups(self, step: _Step) -> None:
        """Queue a step, and wait until it has run between two groups, without pending rows; raise its error.

        Raises
        ------
        NotDurable
            If the service is stopping.
        """
        if self.stopping:
            raise NotDurable(STOPPING)
        reply = asyncio.get_running_loop().create_future()
        self._steps.append((step, reply))
        self.wake()
        await reply

    async def read_frozen(self, read: Callable[[int, int], Result]) -> Result:
        """Call ``read`` with the last row's number and the time, on the store's thread; return its result.

        No placement changes meanwhile. Only steps between groups may call it.
        """
        with self.pending.freeze():
            return await self.call_store(read, self.pending.seq, self.pending.time.get_time())

    async def call_store(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function on the store's thread, next to the groups of requests, and return its result.

        Raises
        ------
        NotDurable
            If the service is stopping, or the store fails, which is also logged.
        Refused
            If the store refuses the values.
        """
        if self.stopping:
            raise NotDurable(STOPPING)
        try:
            return await self.worker.do(function, *arguments)
        except Refused:
            raise
        except StoreError as error:
            logger.error("the store failed", exc_info=error)
            raise NotDurable("store: it fails at present; try again later") from error

    # The loop --------------------------------------------------------------------------------

    async def _serve_groups(self) -> None:
        """Serve groups of requests until :meth:`stop`: apply and commit each, then run upkeep and steps.

        After any error, the unanswered requests of the group are refused, and the loop goes on.
        """
        pending = self.pending
        while not self.stopping or self._waiting or (pending.waiting and self.failure is None):
            await self._wait_for_work()
            # Let requests that arrive at the same time join the group; a single request does not wait.
            if len(self._waiting) != 1:
                await asyncio.sleep(0)
            began = clocks.monotonic()
            group: list[_Waiting] = []
            try:
                self._take_group(group)
                if self.failure is not None:
                    await self._heal()
                # Without this condition, a step would serve an empty group, and close windows at its time.
                if group or pending.waiting or not self._steps:
                    await self._serve(group)
                    await self.upkeep.step(self._archive)
                if self._steps:
                    await self._run_steps()
            # After any error, no request of the group may be confirmed, and the writer must go on.
            except Exception as error:
                if clocks.monotonic() - began > RETRY_SECONDS:
                    # Requests that arrived meanwhile have waited as long; they must not wait again.
                    group += self._waiting
                    self._waiting.clear()
                self._refuse([reply for _, reply in group], error)
            idle = not self._waiting and not pending.waiting and not self._steps
            if idle and not self.stopping:
                self._arrived.clear()

    def _take_group(self, group: list[_Waiting]) -> None:
        """Move the next requests from the queue to ``group``, and answer requests that need no store.

        The group ends at 1024 requests, or before the request that exceeds :data:`MOST_NUMBERS`. Requests to
        unknown placements get UnknownName as their error; requests to buffered placements are applied at once
        if memory has the decisions that they name.
        """
        pending, waiting, numbers = self.pending, self._waiting, 0
        while waiting and len(group) < LARGEST_GROUP:
            request, reply = waiting[0]
            placement = pending.placements.get(request.placement)
            # A request that is alone may have any number.
            if placement is not None and isinstance(request, Decide) and (group or len(waiting) > 1):
                reader = placement.reader
                numbers += reader.candidate_size * sum(reader.count_candidates(request.impressions))
                if group and numbers > MOST_NUMBERS:
                    return
            # In the group until it is answered: if its answer fails, the group is refused with it.
            group.append(waiting.popleft())
            if placement is None:
                set_reply(reply, UnknownName(f"placement: {request.placement!r} was taken away"))
            elif pending.buffering and pending.can_answer_early(request):
                # It arrived while the placements were frozen.
                with undo_on_error(pending.mark_all_broken):
                    (result,) = apply(pending, [request], stored_decisions={})
                set_reply(reply, result)
            else:
                continue
            group.pop()

    async def _wait_for_work(self) -> None:
        """Wait until requests or steps arrive, a window closes, upkeep is due, or a store is tried again."""
        timeout: float | None = RETRY_SECONDS
        if self.failure is not None:
            # Pending rows must not make the loop spin while the store fails.
            if not self._waiting and not self.stopping:
                self._arrived.clear()
        elif self._arrived.is_set():
            return
        elif self.upkeep.due:
            timeout = 0.0
        else:
            due, now = self.pending.due, self.pending.time.get_time()
            # At most once a second, so that windows that close one after the other close together.
            timeout = None if due is None else max((due - now) / 1e6, TICK_SECONDS)
        loop = asyncio.get_running_loop()
        # An alarm that is set to an earlier time serves as well.
        if timeout is not None and (self._alarm is None or self._alarm.when() > loop.time() + timeout):
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = loop.call_later(timeout, self._wake_by_alarm)
        await self._arrived.wait()

    def _wake_by_alarm(self) -> None:
        """Clear the alarm, which has gone off, and wake the loop."""
        self._alarm = None
        self.wake()

    async def _serve(self, group: Sequence[_Waiting]) -> None:
        """Look up unknown decisions, apply a group, commit its rows, and answer its requests.

        Requests to buffered placements are answered before the commit. If the store refuses a row, each half
        of the group is served again: in the end the refused request is alone, and only it gets an error. If
        applying fails, all placements are marked as broken, and are loaded from the store again.
        """
        pending = self.pending
        requests = [request for request, _ in group]
        # Rows of earlier groups may be pending, too: then the refused row may be one of those.
        alone = len(group) == 1 and not pending.waiting
        try:
            unknown = pending.list_unknown(requests)
            stored_decisions = await self.worker.do(self._store.find, unknown) if unknown else {}
            try:
                results = apply(pending, requests, stored_decisions)
            except BaseException:
                # A failed group may be half applied: then all placements are loaded from the log again.
                pending.mark_all_broken()
                raise
            answers = list(zip(group, results, strict=True))
            # Before the commit, as the durability ``buffered`` means.
            for (request, reply), result in answers if pending.buffering else ():
                if request.placement in pending.buffering:
                    set_reply(reply, result)
            if pending.waiting:
                await self._commit()
            elif group:
                # An answer may confirm earlier rows, which must still be there.
                await self.worker.do(self._store.check)
            for (_, reply), result in answers:
                set_reply(reply, result)
        except (Refused, Damaged) as error:
            await self._mend()
            # Loaded placements may need change events, which ``on_reload`` has logged.
            if pending.waiting:
                await self._commit()
            # Requests that were answered before the commit keep their answers.
            unanswered = [(request, reply) for request, reply in group if not reply.done()]
            if alone:
                logger.warning("a request was refused: %s", error)
                lost = NotDurable("store: what it has of the decision is damaged")
                set_reply(group[0][1], error if isinstance(error, Refused) else lost)
                return
            # One refused row fails the whole commit; halving finds it in log₂ steps, and serves all others.
            half = (len(unanswered) + 1) // 2
            for part in filter(None, (unanswered[:half], unanswered[half:])):
                await self._serve(part)

    async def _commit(self) -> None:
        """Commit the pending rows and record the commit.

        Small appends to a store in a file run in the event loop's thread, larger ones in the store's thread.
        If the commit fails, its rows are kept or dropped, and it raises.
        """
        pending, local, worker, clock = self.pending, self._local, self.worker, clocks.perf_counter
        count, failed, began = pending.begin_commit(), True, clock()
        try:
            with self.commits.span(count):
                # A quick commit takes less time than to wake the other thread. The last one tells how long it
                # will take; 0.0 stands for none yet.
                most = LONE_SECONDS if count <= LONE else QUICK_SECONDS
                # A call in the other thread may be using the store.
                if local is None or worker.calls or count > SPLIT_ROWS:
                    seconds = await worker.do(_time_call, self._store.append, pending.in_flight)
                else:
                    # In the other thread, each row would wait for the interpreter's lock.
                    local.insert(pending.in_flight)
                    seconds = clock() - began
                    if count > SMALL_GROUP or not 0.0 < self._append_seconds < most:
                        seconds += await worker.do(_time_call, local.commit)
                    else:
                        local.commit()
                        seconds = clock() - began
                # The time without switches of threads.
                self._append_seconds = seconds
            self.commits.record_commit(count, clock() - began, pending.time.clock())
            failed = False
        finally:
            pending.end_commit(failed=failed)

    async def _run_steps(self) -> None:
        """Run queued steps until one leaves pending rows; answer each with None or its error."""
        while self._steps and not self.pending.waiting:
            step, reply = self._steps.popleft()
            try:
                await step()
            except Exception as error:
                set_reply(reply, error)
            else:
                set_reply(reply, None)

    # When the store fails --------------------------------------------------------------------

    def _refuse(self, replies: Sequence[Waiter], error: Exception) -> None:
        """Answer all open requests with NotDurable, after an error of their group.

        The error is logged and stored in ``failure``, unless it is NotDurable itself.
        """
        if not isinstance(error, NotDurable):
            # A failure that persists is logged once, not at each attempt.
            if str(error) != str(self.failure):
                logger.error("a group was not committed: %s", error, exc_info=error)
            self.failure = error
        for reply in replies:
            if not reply.done():
                reply.set_exception(
                    NotDurable("store: nothing can be made durable at present; try again later")
                )

    async def _heal(self) -> None:
        """Repair the state after a failure and clear ``failure``; raise NotDurable if the store fails again.

        At most one attempt per second is made; in between NotDurable is raised, too.
        """
        if clocks.monotonic() < self._heal_after:
            raise NotDurable("store: it failed a moment ago")
        self._heal_after = clocks.monotonic() + RETRY_SECONDS
        await self._mend()
        self.failure = None

    async def _mend(self) -> None:
        """Append the rows of answered requests, and load placements again that learned from lost rows.

        These placements are replaced, ``broken`` is cleared, and ``on_reload`` is called.
        """
        pending = self.pending
        pending.begin_commit()
        with undo_on_error(pending.end_commit, failed=True):
            # Folding the log again undoes the learning of a failed group.
            placements = await self.worker.do(
                self._reload_placements, pending.in_flight, sorted(pending.broken)
            )
        pending.end_commit(failed=False)
        pending.placements |= placements
        pending.touch(placements)
        pending.broken.clear()
        self._on_reload()

    def _reload_placements(self, rows: Rows, broken: Sequence[str]) -> dict[str, Placement]:
        """Append the rows that the log lacks; return the broken placements, loaded from the store again.

        Without rows, a small commit tests the store. Placements whose rows the store refuses are loaded, too.
        """
        # A commit that seemed to fail may have worked: its rows must not be written twice.
        last = self._store.end().seq
        rows = rows.select(lambda row: row.seq > last)
        lost: list[Any] = []
        if rows.size:
            lost = list(self._append_or_split(rows))
        else:
            self._store.probe(self.pending.time.clock())
        # Placements that learned from refused rows are ahead of the log, too.
        lost_ids = {row.placement for row in lost}
        ahead = [name for name, p in self.pending.placements.items() if p.id in lost_ids]
        return self._load_placements([*broken, *ahead])

    def _append_or_split(self, rows: Rows) -> Iterator[Any]:
        """Append rows; if the store refuses them, append their halves, until single refused rows are alone.

        Yields the refused rows, which are lost; each is logged as an error.
        """
        try:
            self._store.append(rows)
        except Refused as error:
            seqs = sorted(row.seq for row in rows.all())
            if len(seqs) == 1:
                logger.error("row %d, answered before it was durable, is lost: %s", seqs[0], error)
                yield from rows.all()
                return
            middle = seqs[len(seqs) // 2]
            yield from self._append_or_split(rows.select(lambda row: row.seq < middle))
            yield from self._append_or_split(rows.select(lambda row: row.seq >= middle))

    async def _watch(self) -> None:
        """Check the store and the clock every second; after a failure, log it and set ``failure``."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            self.upkeep.watch_clock()
            # A running call shows the same, and may hang: no check may queue behind it.
            if self.failure is None and not self.worker.calls:
                try:
                    await self.worker.do(self._store.check)
                except StoreError as error:
                    logger.error("the store fails: %s", error)
                    self.failure = error
                    self.wake()


def _time_call(step: Callable[..., None], *arguments: Any) -> float:
    """Call a function, and return the seconds that it took in place of its result."""
    began = clocks.perf_counter()
    step(*arguments)
    return clocks.perf_counter() - began


def set_reply(reply: Waiter, result: Any) -> None:
    """Answer a request with a result, or with an error if ``result`` is an exception; nothing if it is done.

    An exception that the reply raises is logged, so that other requests are still answered.
    """
    if reply.done():
        return
    try:
        if isinstance(result, Exception):
            reply.set_exception(result)
        else:
            reply.set_result(result)
    except Exception:
        logger.exception("an answer could not be given")
