"""The writer: a loop that serves requests in groups, and makes each group durable.

Whatever changes a placement goes through here, one group after the other. A turn of the loop:

1. it sleeps until requests come, a window closes, or a failed store is due to be tried again (``_woken``);
2. what waits is a group, at most 1024 requests or 2²⁰ numbers of candidates (``_next_group``);
3. the group is applied in memory, and its rows wait (:mod:`tacit.service.engine.group`);
4. the rows are appended in one commit, by the store's thread or, as far as that takes less time, here
   (``_appended``);
5. the answers are released: before the commit where a placement is ``buffered``, else after it;
6. upkeep and other steps that need a log at rest have their turn (``_run_steps``).

When the store fails, nothing of the group is acknowledged, and learners have learned what the log does not
hold. Then ``_mend`` appends what was answered already and makes the placements anew from the store. Where the
store refuses single rows, the group is halved until they are alone (``_serve``).
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

from tacit.errors import UnknownName, undoing
from tacit.service.config.schema import Config
from tacit.service.engine.group import apply
from tacit.service.engine.pending_rows import PendingLog
from tacit.service.engine.upkeep import Upkeep, Worker
from tacit.service.errors import Damaged, NotDurable, Refused, StoreError
from tacit.service.log.ids import Shard
from tacit.service.log.requests import Request
from tacit.service.log.rows import Event, Rows
from tacit.service.log.sql import Store
from tacit.service.placements.placement import Placement

# ---- How many rows commits write, and how long they take

RATE_SECONDS = 10


class Commits:
    """Counts commits, and how long they take.

    Attributes
    ----------
    span : function
        Returns, for a number of rows, the context in which their commit runs.
    observed : function
        Called with the rows of each commit and its seconds.
    last : int or None
        Time of the last commit, in microseconds since 1970.
    seconds : float
        How long it took.
    """

    def __init__(self) -> None:
        self.span: Callable[[int], AbstractContextManager[Any]] = contextlib.nullcontext
        self.observed: Callable[[int, float], None] = lambda rows, seconds: None
        self.last: int | None = None
        self.seconds = 0.0
        self._recent: deque[list[int]] = deque()

    def count(self, rows: int, seconds: float, now: int) -> None:
        """Count a commit of so many rows that has worked.

        Parameters
        ----------
        rows : int
        seconds : float
            How long it took.
        now : int
            Microseconds since 1970.
        """
        self.last, self.seconds = now, seconds
        self.observed(rows, seconds)
        second = now // 1_000_000
        if self._recent and self._recent[-1][0] == second:
            self._recent[-1][1] += rows
            return
        self._recent.append([second, rows])
        while self._recent[0][0] <= second - RATE_SECONDS:
            self._recent.popleft()

    def rate(self, now: int) -> float:
        """Return how many rows were committed per second, over the last 10 seconds."""
        since = now // 1_000_000 - RATE_SECONDS
        return sum(rows for second, rows in self._recent if second > since) / RATE_SECONDS


# ---- The writer: a loop that serves requests in groups, and makes each group durable

LARGEST_GROUP = 1024
MOST_NUMBERS = 2**20
"""Numbers of candidates that a group reads, if it has more than one request: 10 to 20 ms of processor."""
SMALL_GROUP = 16
"""Rows that may be committed in the loop's own thread."""
QUICK_SECONDS = 0.001
"""How long the last commit may have taken for that."""
LONE, LONE_SECONDS = 2, 0.01
"""The same of so few rows: requests that come meanwhile would wait for that commit anyway."""
SPLIT_ROWS = 1024
"""Rows that are inserted in the loop's own thread, while only their commit is the store's thread's."""
RETRY_SECONDS = 1.0
TICK_SECONDS = 1.0
WATCH_SECONDS = 1.0

STOPPING = "service: it is stopping; try again when it is back"

logger = logging.getLogger(__name__)


class Serving(Protocol):
    """An engine, as those who work beside its writer know it.

    Attributes
    ----------
    config : Config
    store : Store
    shard : Shard or None
        Which of several it is.
    placements : dict of str to Placement
    """

    config: Config
    store: Store
    shard: Shard | None
    placements: dict[str, Placement]

    def placement(self, name: str) -> Placement:
        """Return a placement, or raise UnknownName."""

    async def logged(self, placement: str, after: int, count: int) -> list[Event]:
        """Return the next rows of the log that concern a placement."""

    async def logged_by_now(self, names: Sequence[str]) -> None:
        """Wait until all that happened to placements is durable."""


class Waiter(Protocol):
    """What is given the result of a request, or the error that it met: a future, or what acts at once."""

    def done(self) -> bool:
        """Whether something was given, or nobody waits for it any more."""

    def set_result(self, result: Any) -> None:
        """Take the result."""

    def set_exception(self, error: BaseException) -> None:
        """Take the error."""


Result = TypeVar("Result")
_Waiting = tuple[Request, Waiter]
_Step = Callable[[], Awaitable[None]]


class Writer:
    """Serves requests, one group after the other.

    Parameters
    ----------
    store : Store
    pending : PendingLog
    opened : function
        Returns placements of some names, made anew from the store.
    mended : function
        Called when some were made anew.
    archive : function
        Returns the folder to which old rows are written before they are dropped, if any.

    Attributes
    ----------
    failure : Exception or None
        Why nothing can be made durable at present.
    stopping : bool
    """

    def __init__(
        self,
        store: Store,
        pending: PendingLog,
        opened: Callable[[Sequence[str]], dict[str, Placement]],
        mended: Callable[[], Any],
        archive: Callable[[], str | None],
    ) -> None:
        self.failure: Exception | None = None
        self.stopping = False
        self.commits = Commits()
        self.worker = Worker("tacit-store")
        self._store, self.pending = store, pending
        # A file's appends in two steps, of which only the second waits.
        self._local: Any = store if store.local else None
        self._opened, self._made_anew, self._archive = opened, mended, archive
        self._arrived = asyncio.Event()
        self._waiting: deque[_Waiting] = deque()
        self._steps: deque[tuple[_Step, Waiter]] = deque()
        self._heal_after = self._append_seconds = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        self.upkeep = Upkeep(store, self.worker, pending, self.wake, self.between_groups)

    def start(self) -> None:
        """Begin to serve."""
        self._serving = asyncio.create_task(self._serve_groups())
        self._watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Serve what waits, write snapshots, and end."""
        self.stopping = True
        self.wake()
        await self._serving
        self._watching.cancel()
        if self._alarm is not None:
            self._alarm.cancel()
        for _, reply in self._steps:
            give(reply, NotDurable(STOPPING))
        if self.failure is None:
            await self.upkeep.save_all()
        elif self.pending.waiting:
            lost = self.pending.waiting
            logger.error("%d rows could not be made durable before the end", lost)
        await self.upkeep.written()
        self.worker.stop()

    def wake(self) -> None:
        """See what there is to do."""
        self._arrived.set()

    @property
    def waiting(self) -> int:
        """How many requests wait for a group."""
        return len(self._waiting)

    async def ask(self, request: Request) -> Any:
        """Return the result of a request, once it is durable."""
        reply = asyncio.get_running_loop().create_future()
        self.begin(request, reply)
        return await reply

    def begin(self, request: Request, reply: Waiter) -> None:
        """Give the reply the result of a request: at once where a placement may be ahead of the log.

        Raises
        ------
        NotDurable
            If the service is stopping, or has as many rows in memory as it may.
        """
        if self.stopping:
            raise NotDurable(STOPPING)
        # Nearly always it waits for the next group. Only what is buffered is applied here, and answered at
        # once.
        if self.pending.frozen or not (self.pending.buffering and self.pending.runs_ahead(request)):
            self._waiting.append((request, reply))
            self._arrived.set()
            return
        if self.pending.buffered >= self.pending.most_buffered:
            raise NotDurable("store: the buffer is full; try again later")
        (result,) = apply(self.pending, [request], {})
        self.wake()
        give(reply, result)

    # Between groups, and beside them ---------------------------------------------------------

    async def between_groups(self, step: _Step) -> None:
        """Run a step when all rows are in the log, and raise what it raises.

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

    async def frozen(self, read: Callable[[int, int], Result]) -> Result:
        """Call what takes the end of the log and its time, while nothing changes; for a step."""
        with self.pending.freeze():
            return await self.of_store(read, self.pending.seq, self.pending.time.now())

    async def of_store(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call the store outside of any group."""
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
        pending = self.pending
        while not self.stopping or self._waiting or (pending.waiting and self.failure is None):
            await self._woken()
            # Whatever else has arrived by now belongs to the group; who is alone does not wait for it.
            if len(self._waiting) != 1:
                await asyncio.sleep(0)
            group, began = self._next_group(), clocks.monotonic()
            try:
                group = self._ready(group)
                if self.failure is not None:
                    await self._heal()
                # An empty group would close windows at a moment of the step's own.
                if group or pending.waiting or not self._steps:
                    await self._serve(group)
                    await self.upkeep.step(self._archive())
                if self._steps:
                    await self._run_steps()
            # Whatever broke, nothing of the group may be acknowledged and the writer must go on.
            except Exception as error:
                if clocks.monotonic() - began > RETRY_SECONDS:
                    # Requests that came meanwhile have waited as long, and none shall wait twice.
                    group += self._waiting
                    self._waiting.clear()
                self._refuse([reply for _, reply in group], error)
            idle = not self._waiting and not pending.waiting and not self._steps
            if idle and not self.stopping:
                self._arrived.clear()

    def _next_group(self) -> list[_Waiting]:
        """Return the requests of the next group, which is applied without giving others the loop."""
        group: list[_Waiting] = []
        numbers, waiting = 0, self._waiting
        while waiting and len(group) < LARGEST_GROUP:
            numbers += self.pending.count_numbers(waiting[0][0])
            if group and numbers > MOST_NUMBERS:
                break
            group.append(waiting.popleft())
        return group

    async def _woken(self) -> None:
        """Wait for requests, for windows to close, or for the time to try the store again."""
        timeout: float | None = RETRY_SECONDS
        if self.failure is not None:
            # Rows that wait for the store must not keep the writer busy.
            if not self._waiting and not self.stopping:
                self._arrived.clear()
        elif self._arrived.is_set():
            return
        elif self.upkeep.due:
            timeout = 0.0
        else:
            due, now = self.pending.due, self.pending.time.now()
            timeout = None if due is None else max((due - now) / 1e6, TICK_SECONDS)
        if timeout is not None:
            self._wake_within(timeout)
        await self._arrived.wait()

    def _wake_within(self, seconds: float) -> None:
        """Set the alarm, if it does not ring in time."""
        loop = asyncio.get_running_loop()
        if self._alarm is not None:
            if self._alarm.when() <= loop.time() + seconds:
                return
            self._alarm.cancel()
        self._alarm = loop.call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self.wake()

    def _ready(self, group: Sequence[_Waiting]) -> list[_Waiting]:
        """Return what needs the store; answer what does not, and refuse what is asked of what has gone."""
        pending, ready = self.pending, []
        for request, reply in group:
            if request.placement not in pending.placements:
                give(reply, UnknownName(f"placement: {request.placement!r} was taken away"))
            elif pending.buffering and pending.runs_ahead(request):
                # It came while placements were copied.
                with undoing(pending.forget):
                    (result,) = apply(pending, [request], {})
                give(reply, result)
            else:
                ready.append((request, reply))
        return ready

    async def _serve(self, group: Sequence[_Waiting]) -> None:
        """Serve a group; if the store refuses some of it, in halves until that is alone."""
        # Rows of earlier groups may wait, too: then it may be one of those that is refused.
        alone = len(group) == 1 and not self.pending.waiting
        try:
            await self._serve_together(group)
        except (Refused, Damaged) as error:
            await self._mend()
            if self.pending.waiting:
                await self._commit()
            # Who was answered before the commit keeps what was answered.
            left = [(request, reply) for request, reply in group if not reply.done()]
            if alone:
                logger.warning("a request was refused: %s", error)
                lost = NotDurable("store: what it has of the decision is damaged")
                give(group[0][1], error if isinstance(error, Refused) else lost)
                return
            # One refused row fails the whole commit; halves find it in log₂ steps, and all others are served.
            half = (len(left) + 1) // 2
            for part in filter(None, (left[:half], left[half:])):
                await self._serve(part)

    async def _serve_together(self, group: Sequence[_Waiting]) -> None:
        pending = self.pending
        requests = [request for request, _ in group]
        unknown = pending.unknown(requests)
        found = await self.worker.do(self._store.find, unknown) if unknown else {}
        # How far a group came that fails is not known: no placement is trusted, but made anew from the log.
        with undoing(pending.forget):
            results = apply(pending, requests, found)
        answers = list(zip(group, results, strict=True))
        # Before the commit, on purpose: that is what ``buffered`` means.
        for (request, reply), result in answers if pending.buffering else ():
            if request.placement in pending.buffering:
                give(reply, result)
        if pending.waiting:
            await self._commit()
        elif group:
            # Of what was committed before, too, nothing may be confirmed that is lost by now.
            await self.worker.do(self._store.check)
        for (_, reply), result in answers:
            give(reply, result)

    async def _commit(self) -> None:
        pending = self.pending
        rows = pending.begin_commit()
        with undoing(pending.end_commit, failed=True):
            began = clocks.perf_counter()
            with self.commits.span(rows):
                self._append_seconds = await self._appended(pending.in_flight, rows)
            self.commits.count(rows, clocks.perf_counter() - began, pending.time.clock())
        pending.end_commit(failed=False)

    async def _appended(self, rows: Rows, size: int) -> float:
        """Append rows; return how many seconds that took, without the way to the store's thread."""
        local, began = self._local, clocks.perf_counter()
        if local is not None and not self.worker.calls:
            # As long as a commit takes less time here than the other thread takes to wake up.
            most = LONE_SECONDS if size <= LONE else QUICK_SECONDS
            if size <= SMALL_GROUP and 0.0 < self._append_seconds < most:
                local.append(rows)
                return clocks.perf_counter() - began
            if size <= SPLIT_ROWS:
                # In the other thread, each row would wait for the interpreter.
                local.insert(rows)
                return clocks.perf_counter() - began + await self.worker.do(_timed, local.commit)
        return await self.worker.do(_timed, self._store.append, rows)

    async def _run_steps(self) -> None:
        while self._steps and not self.pending.waiting:
            step, reply = self._steps.popleft()
            try:
                await step()
            except Exception as error:
                give(reply, error)
            else:
                give(reply, None)

    # When the store fails --------------------------------------------------------------------

    def _refuse(self, replies: Sequence[Waiter], error: Exception) -> None:
        if not isinstance(error, NotDurable):
            if str(error) != str(self.failure):
                logger.error("a group was not committed: %s", error, exc_info=error)
            self.failure = error
        for reply in replies:
            if not reply.done():
                reply.set_exception(
                    NotDurable("store: nothing can be made durable at present; try again later")
                )

    async def _heal(self) -> None:
        """See whether commits work again."""
        if clocks.monotonic() < self._heal_after:
            raise NotDurable("store: it failed a moment ago")
        self._heal_after = clocks.monotonic() + RETRY_SECONDS
        await self._mend()
        self.failure = None

    async def _mend(self) -> None:
        """Undo what the failed group did to the learners, and write what may not be undone."""
        pending = self.pending
        pending.begin_commit()
        with undoing(pending.end_commit, failed=True):
            # The log is the truth: what a failed group taught is undone by folding the log again.
            anew = await self.worker.do(self._mended, pending.in_flight, sorted(pending.broken))
        pending.end_commit(failed=False)
        pending.placements |= anew
        pending.touch(anew)
        pending.broken.clear()
        self._made_anew()

    def _mended(self, rows: Rows, broken: Sequence[str]) -> dict[str, Placement]:
        # A commit that seemed to fail may have worked: its rows are not to be written twice.
        last = self._store.end().seq
        rows = rows.where(lambda row: row.seq > last)
        lost: list[Any] = []
        if rows.size:
            lost = list(self._refused(rows))
        else:
            self._store.probe(self.pending.time.clock())
        # Placements that learned from rows that are lost are ahead of the log, too.
        behind = {row.placement for row in lost}
        ahead = [name for name, p in self.pending.placements.items() if p.id in behind]
        return self._opened([*broken, *ahead])

    def _refused(self, rows: Rows) -> Iterator[Any]:
        """Append rows; yield those that the store refuses, which are lost."""
        try:
            self._store.append(rows)
        except Refused as error:
            seqs = sorted(row.seq for row in rows.all())
            if len(seqs) == 1:
                logger.error("row %d, answered before it was durable, is lost: %s", seqs[0], error)
                yield from rows.all()
                return
            middle = seqs[len(seqs) // 2]
            yield from self._refused(rows.where(lambda row: row.seq < middle))
            yield from self._refused(rows.where(lambda row: row.seq >= middle))

    async def _watch(self) -> None:
        """See every second whether commits would last; without requests nothing else would."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            self.upkeep.watch_clock()
            # What is under way shows it, too, and might hang: nothing shall wait behind that.
            if self.failure is None and not self.worker.calls:
                try:
                    await self.worker.do(self._store.check)
                except StoreError as error:
                    logger.error("the store fails: %s", error)
                    self.failure = error
                    self.wake()


def _timed(step: Callable[..., None], *arguments: Any) -> float:
    """Do a step; return how many seconds it took."""
    began = clocks.perf_counter()
    step(*arguments)
    return clocks.perf_counter() - began


def give(reply: Waiter, result: Any) -> None:
    """Give a reply its result; where that fails, the others of the group get theirs all the same."""
    if reply.done():
        return
    try:
        if isinstance(result, Exception):
            reply.set_exception(result)
        else:
            reply.set_result(result)
    except Exception:
        logger.exception("an answer could not be given")
