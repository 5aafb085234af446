"""The engine: one writer that decides, logs in groups, and only then learns and answers.

All requests that wait form a group. Its decisions are chosen, its feedback is matched to
decisions of earlier groups, both are appended in this order and committed; then the feedback is
learned and everybody is answered. While a commit runs, new requests pile up and become the next
group, so groups grow with the load and nobody waits for a timer.

The order of the log is thus the order in which things were applied: what was learned is a fold
over the log, and recovery is a snapshot and the fold of the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time as clocks
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from tacit import checks
from tacit.decisions import Arm
from tacit.errors import TacitError, UnknownName
from tacit.service.config import Config
from tacit.service.errors import RepeatedFeedback, Unavailable, UnknownDecision
from tacit.service.placement import Impression, Placement, fold, opened
from tacit.service.store import LEARNED, Answered, DecisionRow, FeedbackRow, Progress, Store

LARGEST_GROUP = 1024
MOST_OUTSTANDING = 200_000
RETRY_SECONDS = 1.0
RATE_SECONDS = 10

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


class _Ask(NamedTuple):
    placement: str
    impression: Impression
    reply: asyncio.Future[DecisionRow]


class _Tell(NamedTuple):
    placement: str
    decision: str
    reward: float
    reply: asyncio.Future[bool]


class _Group:
    """What one commit makes durable, and what is answered after it."""

    def __init__(self) -> None:
        self.chosen: list[tuple[Placement, list[DecisionRow]]] = []
        self.answered: dict[Placement, list[Answered]] = {}
        self.matched: set[str] = set()
        self.learning: set[tuple[Placement, str]] = set()
        self.replies: list[tuple[asyncio.Future[Any], Any]] = []

    @property
    def decisions(self) -> list[DecisionRow]:
        return [row for _, rows in self.chosen for row in rows]

    @property
    def feedback(self) -> list[FeedbackRow]:
        return [feedback for rows in self.answered.values() for feedback, _ in rows]

    def progress(self, seq: int) -> list[Progress]:
        decided = {placement: len(rows) for placement, rows in self.chosen}
        learned = {placement: len(rows) for placement, rows in self.answered.items()}
        return [p.progress(decided.get(p, 0), learned.get(p, 0), seq) for p in decided | learned]


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
    """

    ready: bool
    events: int
    bytes: int
    rate: float
    committed: int | None
    commit_seconds: float


class Engine:
    """Decide and learn for every placement of a configuration, durably.

    Opening recovers what the store holds. All coroutines belong to one event loop.

    Parameters
    ----------
    config : Config
    store : Store
        Closed by :meth:`stop`.
    clock : function, optional
        Gives the time in microseconds since 1970.

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
    ...     learned = await engine.feedback("default", decision.id, 1.0)
    ...     await engine.stop()
    ...     return decision.propensity, learned
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     propensity, learned = asyncio.run(session(f"{folder}/tacit.db"))
    >>> round(propensity, 6), learned
    (0.2, True)
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        clock: Callable[[], int] = lambda: clocks.time_ns() // 1000,
    ) -> None:
        self.config = config
        self.store = store
        self.clock = clock
        self.failure: Exception | None = None
        self._heal_after = 0.0
        self._waiting: deque[_Ask | _Tell] = deque()
        self._stopping = False
        self._committed: int | None = None
        self._commit_seconds = 0.0
        self._recent: deque[tuple[int, int]] = deque()
        self._recover()

    def _recover(self) -> None:
        """Make every placement anew from the store."""
        placements = {
            name: opened(name, placement, self.store, secrets.randbits(63))
            for name, placement in self.config.placements.items()
        }
        fold({placement.id: placement for placement in placements.values()}, self.store)
        self.placements = placements
        self._seq = self.store.last_seq()
        self._outstanding: dict[str, DecisionRow] = {}

    async def start(self) -> None:
        """Begin to serve."""
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "tacit-store")
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Finish what waits, write snapshots, and close the store."""
        self._stopping = True
        self._arrived.set()
        await self._task
        if self.failure is None:
            await self._save_snapshots(1)
        self._thread.shutdown()
        self.store.close()

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
    ) -> DecisionRow:
        """Choose an arm for one impression; returns when the decision is durable.

        Parameters
        ----------
        placement : str
        key : str
            What the decision is for; at most 512 bytes.
        arms : sequence of arms, optional
            The arms on offer; by default all.
        context : sequence of float, optional
            Signals about the key.

        Returns
        -------
        DecisionRow

        Raises
        ------
        UnknownName, InvalidValue
            If the placement or an arm is unknown, or a value does not fit.
        Unavailable
            If the decision could not be made durable.
        """
        impression = self.placement(placement).checked(key, arms, context)
        reply: asyncio.Future[DecisionRow] = asyncio.get_running_loop().create_future()
        self._put(_Ask(placement, impression, reply))
        return await reply

    async def feedback(self, placement: str, decision: str, reward: float) -> bool:
        """Record what came back for a decision; returns when it is durable and learned.

        Parameters
        ----------
        placement : str
        decision : str
            The decision's id.
        reward : float
            In [0, 1].

        Returns
        -------
        bool
            False if the key has restarted since: then it was recorded, but taught nothing.

        Raises
        ------
        UnknownName, InvalidValue
            If the placement is unknown or the reward outside [0, 1].
        UnknownDecision
            If the placement never made the decision.
        RepeatedFeedback
            If the decision has its feedback already.
        Unavailable
            If the feedback could not be made durable.
        """
        self.placement(placement)
        value = checks.number("reward", reward, 0.0, 1.0)
        reply: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._put(_Tell(placement, decision, value, reply))
        return await reply

    def _put(self, request: _Ask | _Tell) -> None:
        if self._stopping:
            raise Unavailable("service: it is stopping; try again when it is back")
        self._waiting.append(request)
        self._arrived.set()

    # The writer ------------------------------------------------------------------------------

    async def _work(self) -> None:
        while not (self._stopping and not self._waiting):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_SECONDS if self.failure else None):
                    await self._arrived.wait()
            count = min(len(self._waiting), LARGEST_GROUP)
            requests = [self._waiting.popleft() for _ in range(count)]
            try:
                if self.failure is not None:
                    await self._heal()
                await self._serve(requests)
            # Whatever broke, nothing of the group may be acknowledged and the writer must go on.
            except Exception as error:
                self._refuse(requests, error)
            if not self._waiting and not self._stopping:
                self._arrived.clear()

    async def _heal(self) -> None:
        """Undo what the failed group did to the learners, and see whether commits work again."""
        if clocks.monotonic() < self._heal_after:
            raise Unavailable("store: it failed a moment ago")
        self._heal_after = clocks.monotonic() + RETRY_SECONDS
        await self._in_thread(self._recover)
        await self._in_thread(self.store.probe, self.clock())
        self.failure = None

    def _refuse(self, requests: Sequence[_Ask | _Tell], error: Exception) -> None:
        if self.failure is None:
            logger.error("a group was not committed", exc_info=error)
        self.failure = error
        for request in requests:
            if not request.reply.done():
                request.reply.set_exception(
                    Unavailable("store: nothing can be made durable at present; try again later")
                )

    async def _serve(self, requests: Sequence[_Ask | _Tell]) -> None:
        now = self.clock()
        group = _Group()
        self._choose([r for r in requests if isinstance(r, _Ask)], group, now)
        self._match([r for r in requests if isinstance(r, _Tell)], group, now)
        decisions, feedback = group.decisions, group.feedback
        if decisions or feedback:
            started = clocks.perf_counter()
            progress = group.progress(self._seq)
            await self._in_thread(self.store.append, decisions, feedback, progress)
            self._commit_seconds = clocks.perf_counter() - started
            self._apply(group)
            self._note_commit(len(decisions) + len(feedback))
        for reply, result in group.replies:
            if reply.done():
                continue
            if isinstance(result, Exception):
                reply.set_exception(result)
            else:
                reply.set_result(result)
        if decisions or feedback:
            await self._save_snapshots(None)

    def _choose(self, asks: Sequence[_Ask], group: _Group, now: int) -> None:
        waiting: dict[str, list[_Ask]] = {}
        for ask in asks:
            waiting.setdefault(ask.placement, []).append(ask)
        for name, same in waiting.items():
            placement = self.placements[name]
            rows = placement.choose([ask.impression for ask in same], self._seq + 1, now)
            self._seq += len(rows)
            group.chosen.append((placement, rows))
            group.replies.extend((ask.reply, row) for ask, row in zip(same, rows, strict=True))

    def _match(self, tells: Sequence[_Tell], group: _Group, now: int) -> None:
        deferred = []
        for tell in tells:
            placement = self.placements[tell.placement]
            try:
                row = self._decision(tell.decision, placement, group)
            except TacitError as error:
                group.replies.append((tell.reply, error))
                continue
            lane = (placement, row.key)
            if placement.restarts and lane in group.learning:
                # What the group learns may restart the key, and only then is it known whether
                # this feedback comes too late.
                deferred.append(tell)
                continue
            outcome = placement.outcome(row)
            self._seq += 1
            feedback = FeedbackRow(self._seq, row.seq, now, tell.reward, outcome)
            group.learning.add(lane)
            group.matched.add(row.id)
            group.answered.setdefault(placement, []).append(Answered(feedback, row))
            group.replies.append((tell.reply, outcome == LEARNED))
        self._waiting.extendleft(reversed(deferred))

    def _decision(self, id: str, placement: Placement, group: _Group) -> DecisionRow:
        row, repeated = self._outstanding.get(id), id in group.matched
        if row is None and not repeated:
            row, repeated = self.store.decision(id) or (None, False)
        if repeated:
            raise RepeatedFeedback(f"decision_id: {id!r} has its feedback already; send it once")
        if row is None or row.placement != placement.id:
            raise UnknownDecision(
                f"decision_id: placement {placement.name!r} made no decision {id!r}; "
                "send the id that its answer gave"
            )
        return row

    def _apply(self, group: _Group) -> None:
        for placement, rows in group.chosen:
            placement.count_decisions(rows)
            placement.decisions += len(rows)
            self._outstanding.update((row.id, row) for row in rows)
        for placement, answered in group.answered.items():
            placement.learn(answered)
            placement.feedback += len(answered)
        for id in group.matched:
            self._outstanding.pop(id, None)
        while len(self._outstanding) > MOST_OUTSTANDING:
            del self._outstanding[next(iter(self._outstanding))]

    async def _save_snapshots(self, due: int | None) -> None:
        """Write the snapshots of placements with enough events since the one before."""
        for placement in self.placements.values():
            if placement.since_snapshot >= (due or placement.config.snapshot_every):
                placement.since_snapshot = 0
                try:
                    await self._in_thread(self._save_snapshot, placement)
                except TacitError as error:
                    # The log is the truth, so this costs time at the next start and nothing else.
                    logger.warning("no snapshot of placement %s: %s", placement.name, error)

    def _save_snapshot(self, placement: Placement) -> None:
        time = self.clock()
        self.store.save_snapshot(placement.snapshot(self._seq, time))
        placement.snapshot_time = time

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
        )
