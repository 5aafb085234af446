"""The engine: one writer that decides, learns, logs in groups, and only then answers.

All requests that wait form a group. Its windows are closed, its decisions chosen and its feedback
taken in, and the rows of all this are appended to the log in the same order and committed; then
everybody is answered. While a commit runs, new requests pile up and become the next group, so
groups grow with the load and nobody waits for a timer.

The order of the log is thus the order in which things were applied: what was learned is a fold
over the log, and recovery is a snapshot and the fold of the rest. Memory runs ahead of the log by
the rows in flight. When their commit fails, the placements that promise ``committed`` are made
anew from the store, as if those rows had never been; placements that promise ``buffered`` go on
from memory, and their rows wait until the store is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time as clocks
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import count, islice, repeat
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from tacit import checks
from tacit.decisions import Arm
from tacit.errors import InvalidValue, TacitError, UnknownName
from tacit.service.attribution import DUPLICATE
from tacit.service.clock import LogClock
from tacit.service.config import BUFFERED, Config
from tacit.service.errors import (
    Conflict,
    RepeatedFeedback,
    StoreError,
    Unavailable,
    UnknownDecision,
)
from tacit.service.placement import Clicks, Impression, Placement, checked_id, fold, opened
from tacit.service.retention import Retention
from tacit.service.sharing import Told as Learned
from tacit.service.slots import Names, Shard
from tacit.service.store import (
    ACTIVATE,
    BASES,
    EXAMINED,
    MERGE,
    MODE,
    MODES,
    REWARD,
    SETTINGS,
    SNAPSHOTS,
    TICK,
    DecisionRow,
    Draft,
    Event,
    FeedbackRow,
    Found,
    MarkRow,
    RecordRow,
    Rows,
    Store,
)

LARGEST_GROUP = 1024
MOST_FEEDBACK = 100
RETRY_SECONDS = 1.0
TICK_SECONDS = 1.0
RATE_SECONDS = 10

if TYPE_CHECKING:
    from prometheus_client import Histogram

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


class Told(NamedTuple):
    """Feedback as a client sends it.

    Attributes
    ----------
    decision : str
        The decision's id.
    kind : str
        ``reward``, ``clicks``, ``examined`` or ``activate``.
    reward : float or None
        In [0, 1] where the kind is ``reward``.
    id : str or None
        Sent again, it is the same feedback.
    clicks : Clicks or None
        Where the kind is ``clicks``.
    """

    decision: str
    kind: str = REWARD
    reward: float | None = None
    id: str | None = None
    clicks: Clicks | None = None


class _Ask(NamedTuple):
    placement: str
    impressions: Sequence[Impression]


class _Tell(NamedTuple):
    placement: str
    told: Sequence[Told]


class _Switch(NamedTuple):
    placement: str
    value: str
    kind: str = MODE


class _Share(NamedTuple):
    placement: str
    everything: bool


_Request = _Ask | _Tell | _Switch | _Share
_Waiting = tuple[_Request, "asyncio.Future[Any]"]
_Key = tuple[int, str]


class Health(NamedTuple):
    """How the engine and its store are.

    Attributes
    ----------
    ready : bool
        Whether the last commit worked.
    events : int
        Rows of the log.
    bytes : int
        What the store takes.
    rate : float
        Events per second over the last 10 seconds.
    committed : int or None
        Time of the last commit since the start, in microseconds since 1970.
    commit_seconds : float
        How long it took.
    buffered : int
        Rows that are in memory only.
    """

    ready: bool
    events: int
    bytes: int
    rate: float
    committed: int | None
    commit_seconds: float
    buffered: int


class ShardHealth(NamedTuple):
    """How one of several shards is.

    Attributes
    ----------
    number : int
    pid : int or None
        Of its process, on the machine where it is.
    up : bool
        Whether it answers.
    losses : int
        How often it was lost since the start.
    recovery_seconds : float or None
        How long it took to come back the last time.
    waiting : int
        Requests on their way to it.
    health : Health or None
        As it told last.
    """

    number: int
    pid: int | None
    up: bool
    losses: int
    recovery_seconds: float | None
    waiting: int
    health: Health | None


class Engine:
    """Decide and learn for every placement of a configuration, durably.

    Opening recovers what the store holds. All coroutines belong to one event loop.

    Parameters
    ----------
    config : Config
    store : Store
        Closed by :meth:`stop`.
    clock : function, optional
        Gives the time in microseconds since 1970. The log's own time never goes back, whatever
        the clock does.
    shard : Shard, optional
        Which one of several this is; by default the only one.

    Raises
    ------
    ConfigError
        If a placement of the store has another policy, seed or set of arms.
    StoreError
        If the store cannot be read.

    Examples
    --------
    >>> import asyncio, tempfile
    >>> from tacit.service.config import load_config
    >>> from tacit.service.sqlite import SqliteStore
    >>> async def session(path):
    ...     engine = Engine(load_config(), SqliteStore(path))
    ...     await engine.start()
    ...     decision = await engine.decide("default", "independence day")
    ...     outcome = await engine.feedback("default", decision.id, 1.0)
    ...     await engine.stop()
    ...     return decision.propensity, outcome
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     propensity, outcome = asyncio.run(session(f"{folder}/tacit.db"))
    >>> round(propensity, 6), outcome
    (0.2, 'learned')
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        clock: Callable[[], int] | None = None,
        shard: Shard | None = None,
    ) -> None:
        self.config = config
        self.shard = shard
        self.store = store
        self.clock = clock or LogClock()
        self.failure: Exception | None = None
        self.kept: Counter[tuple[str, str]] = Counter()
        self.span: Callable[[int], AbstractContextManager[Any]] = contextlib.nullcontext
        self.commit_seconds: Histogram | None = None
        self.commit_rows: Histogram | None = None
        self._reload: tuple[Config, asyncio.Future[None]] | None = None
        self._heal_after = 0.0
        self._waiting: deque[_Waiting] = deque()
        self._tail = Rows.none()
        self._flight = Rows.none()
        self._aloft: dict[_Key, Found] = {}
        self._broken: set[str] = set()
        self._stopping = False
        self._saving = False
        self._writing: asyncio.Task[None] | None = None
        self._committed: int | None = None
        self._commit_seconds = 0.0
        self._recent: deque[tuple[int, int]] = deque()
        self._retention = Retention(store)
        self.placements = self._opened(list(config.placements))
        self._seq, end = store.end()
        # A snapshot's time may be later than the log's: nothing that happened until then was
        # logged. A row before it would have another deadline in the fold than in memory.
        self._time = max([end, *(placement.windows.time for placement in self.placements.values())])
        # A wall that lags behind the log must not make the log's time stand still.
        self._ahead = max(self._time - self.clock(), 0)

    def _opened(self, names: Sequence[str]) -> dict[str, Placement]:
        """Make placements anew from the store."""
        made = {
            name: opened(name, self.config.placements[name], self.store, secrets.randbits(63))
            for name in names
        }
        fold({placement.id: placement for placement in made.values()}, self.store)
        if self.shard is not None:
            for name, placement in made.items():
                placement.new_ids = Names(name, self.shard, placement.config.spread)
        return made

    async def start(self) -> None:
        """Begin to serve."""
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "tacit-store")
        self._task = asyncio.create_task(self._work())
        for name, placement in self.placements.items():
            if not placement.decisions and placement.mode != placement.config.mode:
                await self.switch(name, placement.config.mode)

    async def stop(self) -> None:
        """Finish what waits, write snapshots, and close the store."""
        self._stopping = True
        self._arrived.set()
        await self._task
        await self.written()
        if self.failure is None:
            for placement in self.placements.values():
                if placement.since_snapshot:
                    await self._save_snapshot(placement)
                    await self.written()
        elif self._tail.size:
            logger.error("%d rows could not be made durable before the end", self._tail.size)
        self._thread.shutdown()
        self.store.close()

    @property
    def waiting(self) -> int:
        """How many requests wait for a group."""
        return len(self._waiting)

    async def reload(self, config: Config) -> None:
        """Take over another configuration between two groups; placements may come, go and change.

        Raises
        ------
        ConfigError
            If a placement does not fit what the store holds; then nothing changes.
        Unavailable
            If the store fails.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reload = config, done
        self._arrived.set()
        await done

    async def _reconfigure(self) -> None:
        if self._reload is None or self._tail.size:
            return
        (config, done), self._reload = self._reload, None
        before = self.config
        changed = [
            name
            for name, placement in config.placements.items()
            if before.placements.get(name) != placement
        ]
        self._saving = True
        try:
            self.config = config
            anew = await self._in_thread(self._opened, changed)
        except TacitError as error:
            self.config = before
            done.set_exception(error)
            return
        finally:
            self._saving = False
        self.placements = {
            name: anew.get(name) or self.placements[name] for name in config.placements
        }
        done.set_result(None)

    # Requests --------------------------------------------------------------------------------

    def placement(self, name: str) -> Placement:
        """Return a placement.

        Raises
        ------
        UnknownName
            If there is none of this name.
        """
        try:
            return self.placements[name]
        except KeyError:
            names = ", ".join(self.placements)
            raise UnknownName(f"placement: none is called {name!r}; there are {names}") from None

    async def decide(
        self,
        placement: str,
        key: str,
        arms: Sequence[Arm] | None = None,
        context: Sequence[float] | None = None,
        id: str | None = None,
        deferred: bool = False,
    ) -> DecisionRow:
        """Choose an arm for one impression; returns when the decision is durable.

        In a placement of ``durability = "buffered"`` it returns at once.

        Parameters
        ----------
        placement : str
        key : str
            What the decision is for; at most 512 bytes.
        arms : sequence of arms, optional
            The arms on offer; by default all.
        context : sequence of float, optional
            Signals about the key.
        id : str, optional
            The decision's id, from which its draws come; the same request again gets the same
            answer. By default a new UUID.
        deferred : bool
            Whether the decision counts only once it is activated.

        Returns
        -------
        DecisionRow

        Raises
        ------
        UnknownName, InvalidValue
            If the placement or an arm is unknown, or a value does not fit.
        Conflict
            If the id stands for another decision.
        Unavailable
            If the decision could not be made durable.
        """
        impression = self.placement(placement).checked(key, arms, context, id, deferred)
        row: DecisionRow = (await self.decide_many(placement, [impression]))[0]
        return row

    async def decide_many(
        self, placement: str, impressions: Sequence[Impression]
    ) -> list[DecisionRow]:
        """Choose for many impressions, each as :meth:`Placement.checked` returns it; all or none.

        Raises
        ------
        UnknownName, Conflict, Unavailable
            As :meth:`decide`.
        """
        self.placement(placement)
        rows: list[DecisionRow] = await self._submit(_Ask(placement, impressions))
        return rows

    async def feedback(
        self, placement: str, decision: str, reward: float, id: str | None = None
    ) -> str:
        """Record what came back for a decision; returns when it is durable.

        Parameters
        ----------
        placement : str
        decision : str
            The decision's id.
        reward : float
            In [0, 1].
        id : str, optional
            The feedback's id; the same feedback again changes nothing.

        Returns
        -------
        str
            What became of it, one of :data:`tacit.service.attribution.OUTCOMES`.

        Raises
        ------
        UnknownName, InvalidValue
            If the placement is unknown or the reward outside [0, 1].
        UnknownDecision
            If the placement never made the decision.
        Conflict
            If the id stands for other feedback.
        RepeatedFeedback
            If the decision has had 100 already.
        Unavailable
            If the feedback could not be made durable.
        """
        return await self._one(placement, Told(decision, REWARD, reward, id))

    async def examined(self, placement: str, decision: str, id: str | None = None) -> str:
        """Record that what was shown was looked at; otherwise as :meth:`feedback`."""
        return await self._one(placement, Told(decision, EXAMINED, None, id))

    async def activate(self, placement: str, decision: str, id: str | None = None) -> str:
        """Let a deferred decision count from now on; otherwise as :meth:`feedback`."""
        return await self._one(placement, Told(decision, ACTIVATE, None, id))

    async def _one(self, placement: str, told: Told) -> str:
        (outcome,) = await self.tell_many(placement, [told])
        if isinstance(outcome, TacitError):
            raise outcome
        return outcome

    async def tell_many(self, placement: str, told: Sequence[Told]) -> list[str | TacitError]:
        """Record much feedback; for each what became of it, or why it could not be recorded.

        Raises
        ------
        UnknownName, InvalidValue
            As :meth:`feedback`; then nothing was recorded.
        Unavailable
            If it could not be made durable.
        """
        lowest = self.placement(placement).config.rule.lowest
        told = [checked_told(one, lowest) for one in told]
        outcomes: list[str | TacitError] = await self._submit(_Tell(placement, told))
        return outcomes

    async def made(self, placement: str, ids: Sequence[str]) -> dict[str, DecisionRow]:
        """Return those decisions that a placement made, by their ids.

        Raises
        ------
        UnknownName
            If there is no such placement.
        Unavailable
            If the store fails.
        """
        known = self.placement(placement)
        rows = {id: row for id in ids if (row := self._remembered(known, id)) is not None}
        wanted = [(known.id, id) for id in ids if id not in rows]
        found = await self._of_store(self.store.find, wanted) if wanted else {}
        return rows | {id: one.decision for (_, id), one in found.items()}

    async def keep(self, placement: str, records: Sequence[RecordRow]) -> list[str | None]:
        """Keep records of what was not decided here; for each the content it had before, or None.

        Raises
        ------
        UnknownName
            If there is no such placement.
        Unavailable
            If they could not be made durable.
        """
        self.placement(placement)
        now = self.clock()
        rows = [row._replace(time=now) for row in records]
        before = await self._of_store(self.store.keep, rows)
        new = (row.kind for row, content in zip(rows, before, strict=True) if content is None)
        self.kept.update((placement, kind) for kind in new)
        return before

    async def _of_store(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call the store outside of any group."""
        if self._stopping:
            raise Unavailable("service: it is stopping; try again when it is back")
        try:
            return await self._in_thread(function, *arguments)
        except StoreError as error:
            logger.error("the store failed", exc_info=error)
            raise Unavailable("store: it fails at present; try again later") from error

    async def switch(self, placement: str, mode: str) -> None:
        """Change a placement's mode.

        Raises
        ------
        UnknownName, InvalidValue
            If there is no such placement or mode, or no second policy to shadow.
        Unavailable
            If the change could not be made durable.
        """
        self.check_mode(placement, mode)
        await self._submit(_Switch(placement, mode))

    def check_mode(self, placement: str, mode: str) -> None:
        """Check that a placement can have a mode; raises what :meth:`switch` does."""
        known = self.placement(placement)
        if mode not in MODES:
            raise InvalidValue("mode", mode, f"give one of {', '.join(MODES)}")
        known.check_mode(mode)

    async def learned(self, placement: str, everything: bool = False) -> Learned:
        """Return what was learned here, as far as it is durable, for other shards.

        Parameters
        ----------
        placement : str
            One that shares what it learns.
        everything : bool
            By default only what was learned since the last call.

        Raises
        ------
        UnknownName, Unavailable
            As :meth:`decide`.
        """
        self.placement(placement)
        learned: Learned = await self._submit(_Share(placement, everything))
        return learned

    async def take_in(self, placement: str, learned: Learned) -> None:
        """Learn what another shard has learned; returns when it is durable.

        Raises
        ------
        UnknownName, Unavailable
            As :meth:`decide`.
        """
        known = self.placement(placement)
        if known.shared is not None:
            news = known.shared.news(known.learner, learned)
            if news.parts:
                value = msgspec.json.encode(news).decode()
                await self._submit(_Switch(placement, value, MERGE))

    async def note_settings(self, placement: str, settings: str) -> None:
        """Give a placement other settings, as its kind encodes them, from now on.

        Raises
        ------
        UnknownName, Unavailable
            As :meth:`switch`.
        """
        self.placement(placement)
        await self._submit(_Switch(placement, settings, SETTINGS))

    async def logged(self, placement: str, after: int, count: int) -> list[Event]:
        """Return the next rows of the log that concern a placement, out of ``count`` rows.

        Raises
        ------
        UnknownName, Unavailable
            As :meth:`made`.
        """
        self.placement(placement)
        return await self._of_store(lambda: list(islice(self.store.events(after), count)))

    async def _submit(self, request: _Request) -> Any:
        if self._stopping:
            raise Unavailable("service: it is stopping; try again when it is back")
        if self._runs_ahead(request):
            return self._at_once(request)
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, reply))
        self._arrived.set()
        return await reply

    # Buffered placements ---------------------------------------------------------------------

    def durability(self, placement: str) -> str:
        """Return what answers of a placement promise."""
        return self.config.placements[placement].durability

    def _buffers(self, name: str) -> bool:
        return self.durability(name) == BUFFERED

    def _runs_ahead(self, request: _Request) -> bool:
        """Say whether a request can be answered from memory, now."""
        return (
            self._buffers(request.placement)
            and not self._saving
            and isinstance(request, _Ask | _Tell)
            and not self._unknown([request])
        )

    def _at_once(self, request: _Request) -> Any:
        if self._tail.size + self._flight.size >= self.config.store.buffer:
            raise Unavailable("store: the buffer is full; try again later")
        (result,) = self._apply([request], {})
        self._arrived.set()
        if isinstance(result, Exception):
            raise result
        return result

    # The writer ------------------------------------------------------------------------------

    async def _work(self) -> None:
        while not self._stopping or self._waiting or (self._tail.size and self.failure is None):
            await self._woken()
            waiting = [
                self._waiting.popleft() for _ in range(min(len(self._waiting), LARGEST_GROUP))
            ]
            try:
                if self.failure is not None:
                    await self._heal()
                await self._serve(waiting)
                await self._reconfigure()
            # Whatever broke, nothing of the group may be acknowledged and the writer must go on.
            except Exception as error:
                self._refuse([reply for _, reply in waiting], error)
            idle = not self._waiting and not self._tail.size and self._reload is None
            if idle and not self._stopping:
                self._arrived.clear()

    async def _woken(self) -> None:
        """Wait for requests, for windows to close, or for the time to try the store again."""
        if self.failure is not None:
            # Rows that wait for the store must not keep the writer busy.
            if not self._waiting and not self._stopping:
                self._arrived.clear()
            timeout: float | None = RETRY_SECONDS
        else:
            due = min(
                (p.windows.due for p in self.placements.values() if p.windows.due is not None),
                default=None,
            )
            timeout = None if due is None else max((due - self._now()) / 1e6, TICK_SECONDS)
            timeout = 0.0 if self._retention.busy and self._writing is None else timeout
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._arrived.wait()

    def _now(self) -> int:
        return max(self.clock() + self._ahead, self._time)

    async def _heal(self) -> None:
        """Undo what the failed group did to the learners, and see whether commits work again."""
        if clocks.monotonic() < self._heal_after:
            raise Unavailable("store: it failed a moment ago")
        self._heal_after = clocks.monotonic() + RETRY_SECONDS
        self._take_off()
        try:
            anew = await self._in_thread(self._mended, self._flight, sorted(self._broken))
        except BaseException:
            self._land(keep=True)
            raise
        self._land(keep=False)
        self.placements |= anew
        self._broken.clear()
        self.failure = None

    def _mended(self, rows: Rows, broken: Sequence[str]) -> dict[str, Placement]:
        # A commit that seemed to fail may have worked.
        last = self.store.end().seq
        rows = rows.those(lambda row: row.seq > last)
        if rows.size:
            self.store.append(rows)
        else:
            self.store.probe(self.clock())
        return self._opened(broken)

    def _take_off(self) -> None:
        self._flight, self._tail = self._tail, Rows.none()

    def _land(self, *, keep: bool) -> None:
        """End a commit; if it failed, keep the rows that memory may run ahead with."""
        flight, self._flight = self._flight, Rows.none()
        if keep:
            kept = self._undone(flight)
            self._tail = kept.and_then(self._tail)
            landed = [row for row in flight.decisions if row.placement in self._committing]
        else:
            landed = flight.decisions
        for row in landed if self._aloft else ():
            self._aloft.pop((row.placement, row.id), None)

    @property
    def _committing(self) -> dict[int, str]:
        """The placements whose rows may not be ahead of the log."""
        return {p.id: name for name, p in self.placements.items() if not self._buffers(name)}

    def _undone(self, rows: Rows) -> Rows:
        """Mark the placements whose rows may not be ahead of the log; return the others' rows."""
        behind = self._committing
        for row in rows.all():
            if row.placement in behind:
                self._broken.add(behind[row.placement])
        return rows.those(lambda row: row.placement not in behind)

    def _refuse(self, replies: Sequence[asyncio.Future[Any]], error: Exception) -> None:
        if not isinstance(error, Unavailable):
            if str(error) != str(self.failure):
                logger.error("a group was not committed", exc_info=error)
            self.failure = error
        for reply in replies:
            if not reply.done():
                reply.set_exception(
                    Unavailable("store: nothing can be made durable at present; try again later")
                )

    async def _serve(self, waiting: Sequence[_Waiting]) -> None:
        requests = [request for request, _ in waiting]
        unknown = self._unknown(requests)
        found = await self._in_thread(self.store.find, unknown) if unknown else {}
        try:
            results = self._apply(requests, found)
        except BaseException:
            # Nobody knows how far it came, so memory is worth nothing.
            self._broken |= set(self.placements)
            self._tail = Rows.none()
            raise
        answers = list(zip(waiting, results, strict=True))
        for (request, reply), result in answers:
            if self._buffers(request.placement):
                _answer(reply, result)
        await self._commit()
        for (_, reply), result in answers:
            _answer(reply, result)
        # One at a time: memory holds one copy of what was learned at most.
        if not self._tail.size and self._writing is None:
            await self._save_due()
        if not self._tail.size and self._writing is None:
            await self._drop_old()

    async def _commit(self) -> None:
        if not self._tail.size:
            return
        self._take_off()
        started = clocks.perf_counter()
        try:
            with self.span(self._flight.size):
                await self._in_thread(self.store.append, self._flight)
        except BaseException:
            self._land(keep=True)
            raise
        self._commit_seconds = clocks.perf_counter() - started
        if self.commit_seconds is not None and self.commit_rows is not None:
            self.commit_seconds.observe(self._commit_seconds)
            self.commit_rows.observe(self._flight.size)
        self._note_commit(self._flight.size)
        self._land(keep=False)

    # One group -------------------------------------------------------------------------------

    def _unknown(self, requests: Sequence[_Request]) -> list[_Key]:
        """Return what only the store can tell of."""
        unknown: dict[_Key, None] = {}
        for placement, ids in self._named(requests):
            find = placement.windows.find
            keys = [(placement.id, id) for id in ids if find(id) is None]
            unknown.update((key, None) for key in keys if key not in self._aloft)
        return list(unknown)

    def _remembered(self, placement: Placement, id: str) -> DecisionRow | None:
        open = placement.windows.find(id)
        if open is not None:
            return open.row
        # A short window may have closed before its decision was committed.
        made = self._aloft.get((placement.id, id))
        return None if made is None else made.decision

    def _apply(
        self, requests: Sequence[_Request], found: dict[_Key, Found]
    ) -> list[Any | Exception]:
        """Let time go by, switch modes, decide, take feedback in: in this order."""
        now = self._time = self._now()
        self._keep_closing(requests, found, now)
        due = False
        for placement in self.placements.values():
            due = due or (placement.windows.due or now + 1) <= now
            placement.advance(now)
        before = self._seq
        results: dict[int, Any] = {}
        for i, request in enumerate(requests):
            if isinstance(request, _Switch):
                self._switch(request, now)
                results[i] = None
        asks = {i: request for i, request in enumerate(requests) if isinstance(request, _Ask)}
        results |= self._choose(asks, found, now)
        tells = {i: request for i, request in enumerate(requests) if isinstance(request, _Tell)}
        results |= self._take_in(tells, found, now)
        for placement in self.placements.values():
            placement.settle()
        for i, request in enumerate(requests):
            if isinstance(request, _Share):
                results[i] = self._share(request, now)
        if due and self._seq == before:
            # Nothing else in the log says that these windows have closed.
            self._tail.marks.append(MarkRow(self._next(), None, now, TICK, ""))
        return [results[i] for i in range(len(requests))]

    def _keep_closing(
        self, requests: Sequence[_Request], found: dict[_Key, Found], now: int
    ) -> None:
        """Remember the decisions that are asked for while their windows close."""
        for placement, named in self._named(requests):
            if (placement.windows.due or now + 1) > now:
                continue
            for id in named:
                open = placement.windows.find(id)
                if open is not None and open.deadline <= now:
                    row, ids = open.row, open.ids or {}
                    nameless = [(None, (REWARD, None, None))] * open.told
                    told = [
                        FeedbackRow(0, placement.id, row.seq, id, 0, *content)
                        for id, content in [*ids.items(), *nameless]
                    ]
                    found[placement.id, id] = Found(row, told[: open.told])

    def _named(self, requests: Sequence[_Request]) -> Iterator[tuple[Placement, list[str]]]:
        """Give the decisions that each request names."""
        for request in requests:
            placement = self.placements[request.placement]
            if isinstance(request, _Ask):
                ids = [told.id for told in request.impressions if told.id is not None]
            elif isinstance(request, _Tell):
                ids = [one.decision for one in request.told]
            else:
                continue
            if ids:
                yield placement, ids

    def _next(self) -> int:
        self._seq += 1
        return self._seq

    def _switch(self, request: _Switch, now: int) -> None:
        placement = self.placements[request.placement]
        if placement.stands(request.kind) != request.value:
            mark = MarkRow(self._next(), placement.id, now, request.kind, request.value)
            placement.marked(mark)
            self._tail.marks.append(mark)

    def _share(self, request: _Share, now: int) -> Learned:
        placement = self.placements[request.placement]
        shared, parts = placement.shared, {}
        if shared is not None:
            parts = shared.told(placement.learner, request.everything)
        return Learned(0 if self.shard is None else self.shard.number, now, parts)

    def _choose(self, asks: dict[int, _Ask], found: dict[_Key, Found], now: int) -> dict[int, Any]:
        """Decide what was not decided before; those of a placement at once."""
        results: dict[int, Any] = {}
        fresh: dict[str, list[Impression]] = {name: [] for name in self.placements}
        made: dict[_Key, int] = {}
        for i, ask in asks.items():
            placement, new = self.placements[ask.placement], fresh[ask.placement]
            begun = len(new)
            answers: list[Any] = []
            try:
                for told in ask.impressions:
                    answer: Any = None
                    if told.id is not None:
                        answer = self._made_before(placement, told, found, new, made)
                    if answer is None:
                        answer = len(new)
                        new.append(told)
                        if told.id is not None:
                            made[placement.id, told.id] = answer
                    answers.append(answer)
            except Conflict as error:
                # Of a batch all or nothing is decided.
                for undecided in new[begun:]:
                    made.pop((placement.id, undecided.id or ""), None)
                del new[begun:]
                results[i] = error
                continue
            results[i] = answers
        chosen = {name: self._chosen(name, new, now) for name, new in fresh.items() if new}
        for i, result in results.items():
            if not isinstance(result, Exception):
                rows = chosen.get(asks[i].placement, [])
                results[i] = [rows[row] if isinstance(row, int) else row for row in result]
        return results

    def _chosen(self, name: str, impressions: Sequence[Impression], now: int) -> list[DecisionRow]:
        rows = self.placements[name].choose(impressions, self._seq + 1, now)
        self._seq += len(rows)
        self._tail.decisions.extend(rows)
        if self._buffers(name):
            self._aloft.update(((row.placement, row.id), Found(row, [])) for row in rows)
        return rows

    def _made_before(
        self,
        placement: Placement,
        told: Impression,
        found: dict[_Key, Found],
        new: Sequence[Impression],
        made: dict[_Key, int],
    ) -> DecisionRow | int | None:
        """Return the decision of this id, or its place in this group, or None if it is new."""
        assert told.id is not None
        key = placement.id, told.id
        row = self._remembered(placement, told.id)
        if row is None and key in found:
            row = found[key].decision
        answer: DecisionRow | int
        if row is not None:
            same, answer = placement.asked_before(told, row), row
        elif key in made:
            answer = made[key]
            same = new[answer] == told
        else:
            return None
        if not same:
            raise Conflict(
                f"decision_id: {told.id!r} stands for a decision on other terms; "
                "send the same request, or another id"
            )
        return answer

    def _take_in(
        self, tells: dict[int, _Tell], found: dict[_Key, Found], now: int
    ) -> dict[int, list[str | TacitError]]:
        """Take feedback in; that of a placement at once."""
        told: dict[str, list[Told]] = {}
        for tell in tells.values():
            told.setdefault(tell.placement, []).extend(tell.told)
        outcomes = {name: iter(self._tell(name, all, found, now)) for name, all in told.items()}
        return {
            i: list(islice(outcomes[tell.placement], len(tell.told))) for i, tell in tells.items()
        }

    def _tell(
        self, name: str, told: Sequence[Told], found: dict[_Key, Found], now: int
    ) -> list[str | TacitError]:
        placement = self.placements[name]
        outcomes: list[str | TacitError] = []
        for distinct in _stretches(told):
            judged = [self._judged(placement, one, found) for one in distinct]
            accepted = [
                (one, row, clicks)
                for one, (row, clicks) in zip(distinct, judged, strict=True)
                if row is not None
            ]
            rows = self._feedback(placement, accepted, now)
            for row in rows if found or self._aloft else ():
                key = placement.id, accepted[row.seq - rows[0].seq][0].decision
                before = found.get(key) or self._aloft.get(key)
                if before is not None:
                    before.feedback.append(row)
            became = iter(placement.told(rows))
            outcomes += [next(became) if row is not None else why for row, why in judged]
        return outcomes

    def _feedback(
        self, placement: Placement, accepted: Sequence[tuple[Told, DecisionRow, Any]], now: int
    ) -> list[FeedbackRow]:
        """Log feedback that is accepted."""
        columns = (
            count(self._seq + 1),
            repeat(placement.id),
            [row.seq for _, row, _ in accepted],
            [told.id for told, _, _ in accepted],
            repeat(now),
            [told.kind for told, _, _ in accepted],
            [told.reward for told, _, _ in accepted],
            [clicks for _, _, clicks in accepted],
        )
        rows = list(map(FeedbackRow._make, zip(*columns, strict=False)))
        self._seq += len(rows)
        self._tail.feedback.extend(rows)
        return rows

    def _judged(
        self, placement: Placement, told: Told, found: dict[_Key, Found]
    ) -> tuple[DecisionRow | None, Any]:
        """Return the decision and the clicked positions as the log keeps them; or why not."""
        open = placement.windows.find(told.decision)
        if open is not None:
            decision, known, times = open.row, open.ids, open.told
        else:
            key = placement.id, told.decision
            before = found.get(key) or self._aloft.get(key)
            if before is None:
                return None, UnknownDecision(
                    f"decision_id: placement {placement.name!r} made no decision "
                    f"{told.decision!r}; send the id that its answer gave"
                )
            rows = before.feedback
            decision, known, times = before.decision, _contents(rows), len(rows)
        try:
            clicks = placement.positions(decision, told.kind, told.clicks)
        except InvalidValue as error:
            return None, error
        if known and told.id in known:
            if known[told.id] == (told.kind, told.reward, clicks):
                return None, DUPLICATE
            return None, Conflict(
                f"feedback_id: {told.id!r} stands for other feedback; send the same, or another id"
            )
        if times >= MOST_FEEDBACK:
            return None, RepeatedFeedback(
                f"decision_id: {told.decision!r} has had feedback {times} times; send no more"
            )
        return decision, clicks

    # Snapshots -------------------------------------------------------------------------------

    async def written(self) -> None:
        """Wait until no snapshot is being written."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _save_due(self) -> None:
        """Begin the snapshot of the placement that needs one most, if any does."""
        due = [p for p in self.placements.values() if p.since_snapshot >= p.snapshot_after]
        if due:
            await self._save_snapshot(max(due, key=lambda p: p.since_snapshot / p.snapshot_after))

    async def _save_snapshot(self, placement: Placement) -> None:
        time, placement.since_snapshot = self.clock(), 0

        def stands() -> None:
            placement.snapshot_time = time

        await self._save(placement, time, SNAPSHOTS, stands)

    async def _save_base(self, placement: Placement) -> None:
        oldest, seq = placement.windows.oldest, self._seq
        before = seq if oldest is None else min(seq, oldest)

        def stands() -> None:
            self._retention.rest(placement, before)
            self._arrived.set()

        await self._save(placement, self._now(), BASES, stands)

    async def _save(
        self, placement: Placement, time: int, what: str, stands: Callable[[], None]
    ) -> None:
        """Copy what a placement has learned by now, and begin to write the copy.

        No group is served while the copy is made. While it is written groups are: every step is
        one of the store's thread, which commits them in between.
        """
        self._saving = True
        try:
            draft = await self._in_thread(placement.draft, self._seq, time)
        finally:
            self._saving = False
        self._writing = asyncio.create_task(self._write(placement.name, draft, what, stands))

    async def _write(self, name: str, draft: Draft, what: str, stands: Callable[[], None]) -> None:
        try:
            steps = self.store.saving(draft, what)
            while await self._in_thread(next, steps, steps) is not steps:
                pass
            stands()
        # The log is the truth, so this costs time at the next start and nothing else.
        except Exception as error:
            logger.warning("no snapshot of placement %s: %s", name, error)
        finally:
            # Nobody is woken: an empty group would close windows at a moment of its own.
            self._writing = None

    async def _drop_old(self) -> None:
        """Drop some of the rows that are older than their placements keep them."""
        now = self._now()
        if not self._retention.due(now):
            return
        self._saving = True
        try:
            archive = self.config.store.archive
            placements = list(self.placements.values())
            step = self._retention.step
            needy = await self._in_thread(step, placements, self._seq, now, archive)
        except TacitError as error:
            logger.warning("old rows could not be dropped: %s", error)
            return
        finally:
            self._saving = False
        if needy is not None:
            await self._save_base(needy)

    async def _in_thread(self, function: Callable[..., Result], *arguments: Any) -> Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, function, *arguments)

    # Health ----------------------------------------------------------------------------------

    def _note_commit(self, events: int) -> None:
        self._committed = now = self.clock()
        second = now // 1_000_000
        if self._recent and self._recent[-1][0] == second:
            events += self._recent.pop()[1]
        self._recent.append((second, events))
        while self._recent[0][0] <= second - RATE_SECONDS:
            self._recent.popleft()

    def health(self) -> Health:
        """Return how the engine and its store are."""
        since = self.clock() // 1_000_000 - RATE_SECONDS
        recent = sum(events for second, events in self._recent if second > since)
        return Health(
            ready=self.failure is None and not self._stopping,
            events=self._seq,
            bytes=self.store.size(),
            rate=recent / RATE_SECONDS,
            committed=self._committed,
            commit_seconds=self._commit_seconds,
            buffered=self._tail.size + self._flight.size,
        )

    def shards(self) -> list[ShardHealth]:
        """Return how each shard is; none where all is in this process."""
        return []

    def shared_seconds(self, placement: str) -> float | None:
        """Return how old what shards of a placement know of each other is, at most.

        None where nothing is shared, or was not yet.
        """
        return None


def _stretches(told: Sequence[Told]) -> Iterator[Sequence[Told]]:
    """Cut feedback where a decision comes again: what came before bears on it."""
    start, seen = 0, set[str]()
    if len({one.decision for one in told}) < len(told):
        for i, one in enumerate(told):
            if one.decision in seen:
                yield told[start:i]
                start, seen = i, set()
            seen.add(one.decision)
    yield told[start:]


def checked_told(told: Told, lowest: float) -> Told:
    """Return feedback, its reward and its id checked.

    Raises
    ------
    InvalidValue
        If one does not fit.
    """
    if told.id is not None:
        checked_id("feedback_id", told.id)
    if told.kind != REWARD:
        return told
    reward = told.reward
    if type(reward) is not float or not lowest <= reward <= 1.0:
        reward = checks.number("reward", reward, lowest, 1.0)
    return told if reward is told.reward else told._replace(reward=reward)


def _contents(rows: Sequence[FeedbackRow]) -> dict[str, tuple[str, float | None, str | None]]:
    return {row.id: row.content for row in rows if row.id}


def _answer(reply: asyncio.Future[Any], result: Any) -> None:
    if reply.done():
        return
    if isinstance(result, Exception):
        reply.set_exception(result)
    else:
        reply.set_result(result)
