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
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tacit.decisions import Arm
from tacit.errors import InvalidValue, TacitError, UnknownName
from tacit.service.clock import LogClock
from tacit.service.config import BUFFERED, Config
from tacit.service.errors import StoreError, Unavailable
from tacit.service.folding import fold, opened
from tacit.service.health import Health, ShardHealth
from tacit.service.impressions import Impression
from tacit.service.memory import Memory
from tacit.service.placement import Placement
from tacit.service.requests import Ask, Request, Share, Switch, Tell, Told, checked_told
from tacit.service.retention import Retention
from tacit.service.rows import (
    ACTIVATE,
    EXAMINED,
    MERGE,
    MODES,
    REWARD,
    SETTINGS,
    DecisionRow,
    Event,
    RecordRow,
    Rows,
)
from tacit.service.sharing import Told as Learned
from tacit.service.slots import Names, Shard
from tacit.service.store import BASES, SNAPSHOTS, Draft, Store
from tacit.service.worker import Worker

LARGEST_GROUP = 1024
RETRY_SECONDS = 1.0
TICK_SECONDS = 1.0
RATE_SECONDS = 10

if TYPE_CHECKING:
    from prometheus_client import Histogram

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


_Waiting = tuple[Request, "asyncio.Future[Any]"]


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
    >>> from tacit.service.config_file import load_config
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
        self._stopping = False
        self._saving = False
        self._writing: asyncio.Task[None] | None = None
        self._committed: int | None = None
        self._commit_seconds = 0.0
        self._recent: deque[tuple[int, int]] = deque()
        self._retention = Retention(store)
        self.placements = placements = self._opened(list(config.placements))
        seq, end = store.end()
        self._memory = Memory(placements, seq, self._buffers, shard)
        # A snapshot's time may be later than the log's: nothing that happened until then was
        # logged. A row before it would have another deadline in the fold than in memory.
        self._time = max([end, *(placement.windows.time for placement in placements.values())])
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
        self._worker = Worker("tacit-store")
        self._task = asyncio.create_task(self._work())
        for name, placement in list(self.placements.items()):
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
        elif self._memory.tail.size:
            logger.error("%d rows could not be made durable before the end", self._memory.tail.size)
        self._worker.stop()
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
        if self._reload is None or self._memory.tail.size:
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
        kept = {name: anew.get(name) or self.placements[name] for name in config.placements}
        self.placements.clear()
        self.placements |= kept
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
    ) -> Sequence[DecisionRow]:
        """Choose for many impressions, each as :meth:`Placement.checked` returns it; all or none.

        Many at once come back as a :class:`tacit.service.blocks.Block`.

        Raises
        ------
        UnknownName, Conflict, Unavailable
            As :meth:`decide`.
        """
        self.placement(placement)
        rows: Sequence[DecisionRow] = await self._submit(Ask(placement, impressions))
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
        checked = checked_told(told, lowest)
        outcomes: list[str | TacitError] = await self._submit(Tell(placement, checked))
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
        remembered = self._memory.remembered
        rows = {id: row for id in ids if (row := remembered(known, id)) is not None}
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
        await self._submit(Switch(placement, mode))

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
        learned: Learned = await self._submit(Share(placement, everything))
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
                await self._submit(Switch(placement, value, MERGE))

    async def note_settings(self, placement: str, settings: str) -> None:
        """Give a placement other settings, as its kind encodes them, from now on.

        Raises
        ------
        UnknownName, Unavailable
            As :meth:`switch`.
        """
        self.placement(placement)
        await self._submit(Switch(placement, settings, SETTINGS))

    async def logged(self, placement: str, after: int, count: int) -> list[Event]:
        """Return the next rows of the log that concern a placement, out of ``count`` rows.

        Raises
        ------
        UnknownName, Unavailable
            As :meth:`made`.
        """
        self.placement(placement)
        return await self._of_store(lambda: list(islice(self.store.events(after), count)))

    async def _submit(self, request: Request) -> Any:
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

    def _runs_ahead(self, request: Request) -> bool:
        """Say whether a request can be answered from memory, now."""
        return (
            self._buffers(request.placement)
            and not self._saving
            and isinstance(request, Ask | Tell)
            and not self._memory.unknown([request])
        )

    def _at_once(self, request: Request) -> Any:
        if self._buffered >= self.config.store.buffer:
            raise Unavailable("store: the buffer is full; try again later")
        (result,) = self._memory.apply([request], {}, self._begun())
        self._arrived.set()
        if isinstance(result, Exception):
            raise result
        return result

    # The writer ------------------------------------------------------------------------------

    async def _work(self) -> None:
        while (
            not self._stopping or self._waiting or (self._memory.tail.size and self.failure is None)
        ):
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
            idle = not self._waiting and not self._memory.tail.size and self._reload is None
            if idle and not self._stopping:
                self._arrived.clear()

    async def _woken(self) -> None:
        """Wait for requests, for windows to close, or for the time to try the store again."""
        if self.failure is not None:
            # Rows that wait for the store must not keep the writer busy.
            if not self._waiting and not self._stopping:
                self._arrived.clear()
            timeout: float | None = RETRY_SECONDS
        elif self._arrived.is_set():
            return
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

    def _begun(self) -> int:
        """Return the time of a group that begins now."""
        self._time = self._now()
        return self._time

    @property
    def _buffered(self) -> int:
        """How many rows are in memory only."""
        return self._memory.tail.size + self._memory.flight.size

    async def _heal(self) -> None:
        """Undo what the failed group did to the learners, and see whether commits work again."""
        if clocks.monotonic() < self._heal_after:
            raise Unavailable("store: it failed a moment ago")
        self._heal_after = clocks.monotonic() + RETRY_SECONDS
        memory = self._memory
        memory.take_off()
        try:
            anew = await self._in_thread(self._mended, memory.flight, sorted(memory.broken))
        except BaseException:
            memory.land(keep=True)
            raise
        memory.land(keep=False)
        memory.placements |= anew
        memory.broken.clear()
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
        unknown = self._memory.unknown(requests)
        found = await self._in_thread(self.store.find, unknown) if unknown else {}
        try:
            results = self._memory.apply(requests, found, self._begun())
        except BaseException:
            self._memory.forget()
            raise
        answers = list(zip(waiting, results, strict=True))
        for (request, reply), result in answers:
            if self._buffers(request.placement):
                _answer(reply, result)
        await self._commit()
        for (_, reply), result in answers:
            _answer(reply, result)
        # One at a time: memory holds one copy of what was learned at most.
        if not self._memory.tail.size and self._writing is None:
            await self._save_due()
        if not self._memory.tail.size and self._writing is None:
            await self._drop_old()

    async def _commit(self) -> None:
        memory = self._memory
        if not memory.tail.size:
            return
        memory.take_off()
        started = clocks.perf_counter()
        try:
            with self.span(memory.flight.size):
                await self._in_thread(self.store.append, memory.flight)
        except BaseException:
            memory.land(keep=True)
            raise
        self._commit_seconds = clocks.perf_counter() - started
        if self.commit_seconds is not None and self.commit_rows is not None:
            self.commit_seconds.observe(self._commit_seconds)
            self.commit_rows.observe(memory.flight.size)
        self._note_commit(memory.flight.size)
        memory.land(keep=False)

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
        oldest, seq = placement.windows.oldest, self._memory.seq
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
            draft = await self._in_thread(placement.draft, self._memory.seq, time)
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
            needy = await self._in_thread(step, placements, self._memory.seq, now, archive)
        except TacitError as error:
            logger.warning("old rows could not be dropped: %s", error)
            return
        finally:
            self._saving = False
        if needy is not None:
            await self._save_base(needy)

    async def _in_thread(self, function: Callable[..., Result], *arguments: Any) -> Result:
        result: Result = await self._worker.do(function, *arguments)
        return result

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
            events=self._memory.seq,
            bytes=self.store.size(),
            rate=recent / RATE_SECONDS,
            committed=self._committed,
            commit_seconds=self._commit_seconds,
            buffered=self._buffered,
        )

    def shards(self) -> list[ShardHealth]:
        """Return how each shard is; none where all is in this process."""
        return []

    def shared_seconds(self, placement: str) -> float | None:
        """Return how old what shards of a placement know of each other is, at most.

        None where nothing is shared, or was not yet.
        """
        return None


def _answer(reply: asyncio.Future[Any], result: Any) -> None:
    if reply.done():
        return
    if isinstance(result, Exception):
        reply.set_exception(result)
    else:
        reply.set_result(result)
