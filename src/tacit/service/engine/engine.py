"""The engine: one writer that decides, learns, logs in groups, and only then answers.

All requests that wait form a group. Its windows are closed, its decisions chosen and its feedback
taken in, and the rows of all this are appended to the log in the same order and committed; then
everybody is answered. While a commit runs, new requests pile up and become the next group, so
groups grow with the load and nobody waits for a timer.

The order of the log is thus the order in which things were applied: what was learned is a fold
over the log, and recovery is a snapshot and the fold of the rest. Memory is ahead of the log by
the rows in flight. When their commit fails, the placements that promise ``committed`` are made
anew from the store, as if those rows had never been; placements that promise ``buffered`` go on
from memory, and their rows wait until the store is back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, TypeVar

from tacit.errors import InvalidValue, TacitError
from tacit.service.config.schema import Config
from tacit.service.engine import reports
from tacit.service.engine.background_tasks import Following, Forgetting, Logbook, ShardExchange
from tacit.service.engine.batches import Batches
from tacit.service.engine.fold import all_opened
from tacit.service.engine.pending_rows import PendingLog
from tacit.service.engine.rebuilding import Rebuilder, Replacement, State, asked_policy
from tacit.service.engine.segments import Pictures
from tacit.service.engine.service import NO_REBUILD_IN_SHARDS, Verbs
from tacit.service.engine.upkeep import DAY, check_clock
from tacit.service.engine.verdicts import NOT_IN_SHARDS, PATIENCE, ReadVerdict, Verdicts
from tacit.service.engine.writer import Commits, Waiter, Writer
from tacit.service.kind import check_path
from tacit.service.log.change_events import LoggedChange
from tacit.service.log.ids import LogClock, LogTime, Shard, as_text, wall_time
from tacit.service.log.requests import (
    Ask,
    Decide,
    FeedbackRequest,
    Impression,
    Mark,
    Record,
    checked_feedback,
)
from tacit.service.log.rows import CONFIGURATION, MODE, DecisionRow, Event
from tacit.service.log.search_records import Subject
from tacit.service.log.sql import Store
from tacit.service.log.store import BlankedRows
from tacit.service.placements.aspects.client_decisions import check_elsewhere
from tacit.service.placements.placement import Placement
from tacit.wire.control import HoldoutOf
from tacit.wire.lift import LATEST, ForWhom

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


# One object for all of it: opened over a store, it owns the writer, and answers what is only read.
class Engine(Verbs):
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
    wall : function, optional
        Gives the time that this machine's clock says at the moment, to notice that it was set; by
        default that of the machine, or nothing where there is another ``clock``.

    Raises
    ------
    ConfigError
        If a placement of the store has another policy, seed or set of arms, or the wall is so far
        ahead of the log that rows would go which may not be old.
    StoreError
        If the store cannot be read.

    Examples
    --------
    >>> import asyncio, tempfile
    >>> from tacit.service.config.file import load_config
    >>> from tacit.service.log.sqlite import SqliteStore
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
        wall: Callable[[], int] | None = None,
    ) -> None:
        if clock is None and wall is None:
            wall = wall_time
        # The last row before the start, and what the clock said at it.
        self._began = (store.end().time, wall()) if wall is not None else (0, 0)
        jumped = check_clock(config, *self._began)
        self.config = config
        self.shard = shard
        self.store = store
        self.clock = clock or LogClock()
        store.check_end()
        begun = monotonic()
        self.placements = self._opened(list(config.placements))
        self._recovery_seconds = monotonic() - begun
        seq, end = store.end()
        # A snapshot's time may be later than the log's: nothing that happened until then was
        # logged. A row before it would have another deadline in the fold than in memory.
        last = max([end, *(placement.windows.time for placement in self.placements.values())])
        time = LogTime(self.clock, last, wall)
        if time.wall_ahead < -DAY:
            logger.warning(
                "the log is ahead of this machine's clock: its last row is of %s, the clock says "
                "%s; the log goes on from its last row",
                *map(as_text, (last, last + time.wall_ahead)),
            )
        self._pending = PendingLog(self.placements, seq, time)
        self._allow(config)
        self.writer = Writer(
            store,
            self._pending,
            self._opened,
            lambda: self.following.log(),
            lambda: self.config.store.archive,
        )
        self._batches = Batches(self.writer, lambda: self.config.server.batch_candidates)
        self._rebuilder = Rebuilder(self, self.writer)
        self.writer.upkeep.spared = self._rebuilder.under_way
        self.following = Following(self, self._pending, self._rebuilder, self.writer)
        self.following.check(self.placements)
        if jumped:
            self.writer.upkeep.confirmed()
        self.exchange = ShardExchange(self, self.following, self.writer)
        self._logbook = Logbook(store, self.writer)
        self._verdicts = Verdicts(self)
        self._pictures = Pictures(self, lambda: self._pending.seq)
        self._forgetting = Forgetting(self, store, self.writer, self._verdicts)
        self.lending = reports.Lending(self, self.writer)

    def _opened(self, names: Sequence[str]) -> dict[str, Placement]:
        """Make placements anew from the store."""
        return all_opened(names, self.config.placements, self.store, self.shard)

    def _allow(self, config: Config) -> None:
        """Let there be as many open decisions, and rows in memory only, as a configuration allows."""
        pending = self._pending
        pending.most_open, pending.most_buffered = config.server.open_decisions, config.store.buffer

    async def start(self) -> None:
        """Begin to serve."""
        self.writer.start()
        for name, placement in list(self.placements.items()):
            if not placement.decisions and placement.mode != placement.config.mode:
                await self.writer.ask(Mark(name, placement.config.mode, MODE, CONFIGURATION))
        await self.following.follow(self.following.log())

    async def logged_by_now(self, names: Sequence[str]) -> None:
        """Wait until all that happened to placements is durable."""
        for name in names:
            # To the mode that it has: no event, but answered as any other request.
            await self.writer.ask(Mark(name, self.placements[name].mode))

    async def stop(self) -> None:
        """Finish what waits, write snapshots, and close the store."""
        await self.writer.stop()
        await self.following.stop()
        self.store.close()

    async def reload(self, config: Config, leading: Mapping[str, str] | None = None) -> None:
        """Take over another configuration between two groups; placements may come, go and change.

        Parameters
        ----------
        config : Config
        leading : mapping of str to str, optional
            In a shard that is not the first: the arms of the first one, as its marks hold them.

        Raises
        ------
        ConfigError
            If a placement does not fit what the store holds; then nothing changes.
        NotDurable
            If the store fails.
        """
        concerned: list[str] = []
        self.following.leading = leading or self.following.leading
        await self.writer.between_groups(lambda: self._reconfigure(config, concerned))
        await self.following.follow(concerned)

    async def _reconfigure(self, config: Config, concerned: list[str]) -> None:
        if check_clock(config, *self._began):
            self.writer.upkeep.confirmed()
        before, self.config = self.config, config
        changed = [
            name for name, placement in config.placements.items() if before.placements.get(name) != placement
        ]
        try:
            with self._pending.freeze():
                anew = await self.writer.worker.do(self._opened, changed)
            self.following.check(anew)
        except BaseException:
            self.config = before
            raise
        kept = {name: anew.get(name) or self.placements[name] for name in config.placements}
        self.placements.clear()
        self.placements |= kept
        self._allow(config)
        self._pending.touch_all()
        # At once, so that nothing is decided in between.
        concerned += self.following.log()

    # Requests --------------------------------------------------------------------------------

    async def decide_many(self, placement: str, impressions: Sequence[Impression]) -> Sequence[DecisionRow]:
        """Choose for many impressions, each as :meth:`Placement.checked` returns it; all or none.

        Many at once come back as a :class:`tacit.service.log.blocks.Block`, or as a list if they are
        decided in steps, as :mod:`tacit.service.engine.batches` says.

        Raises
        ------
        UnknownName, Conflict, NotDurable
            As :meth:`decide`.
        InvalidValue
            If they have more candidates together than ``server.batch_candidates``.
        """
        return await self._batches.decide(self.placement(placement), impressions)

    async def record_many(
        self, placement: str, feedback: Sequence[FeedbackRequest]
    ) -> list[str | TacitError]:
        """Record much feedback; for each what became of it, or why it could not be recorded.

        Raises
        ------
        UnknownName, InvalidValue
            As :meth:`feedback`; then nothing was recorded.
        NotDurable
            If it could not be made durable.
        """
        outcomes: list[str | TacitError] = await self.writer.ask(self._checked(Record(placement, feedback)))
        return outcomes

    def begin(self, request: Decide | Record, reply: Waiter) -> None:
        """Serve a request as :meth:`decide_many` or :meth:`record_many` does, but give the reply the result.

        Raises
        ------
        UnknownName, InvalidValue, NotDurable
            If it cannot even wait for its turn; a decision's placement is known to be there.
        """
        self.writer.begin(self._checked(request) if isinstance(request, Record) else request, reply)

    def _checked(self, request: Record) -> Record:
        placement = self.placement(request.placement)
        return Record(request.placement, checked_feedback(request.feedback, placement))

    async def made(self, placement: str, ids: Sequence[str]) -> dict[str, DecisionRow]:
        """Return those decisions that a placement made, by their ids; errors as for :meth:`history`."""
        return await self._logbook.made(self.placement(placement), ids)

    async def forget(self, subject: Subject, who: str | None = None) -> dict[str, BlankedRows]:
        """Forget somebody, as :meth:`~tacit.service.engine.background_tasks.Forgetting.forget` says."""
        return await self._forgetting.forget(subject, who)

    async def ask(self, placement: str, request: Any, who: str | None = None) -> Any:
        """Change a placement from now on; return what is so then.

        Parameters
        ----------
        placement : str
        request : structure
            Of a type that :data:`~tacit.service.placements.placement.CHANGES` knows.
        who : str, optional
            Who wants it so, as the log keeps it.

        Raises
        ------
        UnknownName, InvalidValue
            If there is no such placement, or it cannot be so; then nothing changes.
        NotDurable
            If the change could not be made durable.
        """
        learner = self.placement(placement).learner
        if type(request) is HoldoutOf:
            # Nobody's request shall wait for the compiler.
            await asyncio.to_thread(getattr, learner.loops, "impose")
        return await self.writer.ask(Ask(placement, request, who))

    async def lend(self, placement: str, shard: int | None = None) -> reports.Lent:
        """Return what a placement has learned, for those who decide elsewhere with it.

        Raises
        ------
        UnknownName, NotDurable
            As :meth:`history`.
        InvalidValue
            If its decisions can be made nowhere else, or there is no such shard: this one is 0.
        """
        check_elsewhere(self.placement(placement), self._pending.time.now())
        if shard:
            raise InvalidValue("shard", shard, "leave it out: one server has learned all")
        return await self.lending.of(placement, self._pending.seq)

    async def lends(self, placement: str) -> list[int | None]:
        """Return the last row of the log that what is lent knows; errors as for :meth:`lend`."""
        check_elsewhere(self.placement(placement), self._pending.time.now())
        return [self.lending.row(placement, self._pending.seq)]

    async def key(self, placement: str, key: str) -> reports.KeyFacts:
        """Return what was learned of a key; raise UnknownName if nothing was decided for it."""
        return reports.key_facts(self.placement(placement), key)

    async def busiest(self, placement: str) -> list[reports.KeyFacts]:
        """Return the busiest keys of a placement, or raise UnknownName."""
        return await reports.busiest(self.placement(placement))

    async def find_keys(self, placement: str, text: str) -> reports.KeysFound:
        """Return keys in which a text occurs, or raise UnknownName."""
        return await reports.find_keys(self.placement(placement), text)

    async def verdict(
        self,
        placement: str,
        confidence: float = 0.95,
        false_share: float = 0.05,
        *,
        patience: float = PATIENCE,
    ) -> ReadVerdict:
        """Return what the searches of a placement of duels say by now; errors as for ``Verdicts.of``."""
        check_path(self.placement(placement), "duel")
        if self.shard is not None:
            raise InvalidValue("placement", placement, NOT_IN_SHARDS)
        return await self._verdicts.of(placement, confidence, false_share, patience)

    async def for_whom(self, placement: str, limit: int = LATEST) -> ForWhom:
        """Return which users a placement shows what; errors as for ``Pictures.of``."""
        return await self._pictures.of(placement, limit)

    async def states(self, placement: str) -> list[State]:
        """Return what a placement can go back to, in order; errors as for :meth:`history`."""
        return await self._rebuilder.states(placement)

    async def rebuild(self, placement: str, spec: Any, who: str | None = None) -> Replacement:
        """Fold the log of a placement into another policy, while requests go on; then use that.

        Raises
        ------
        UnknownName, InvalidValue, Conflict, NotDurable
            As ``Rebuilder.rebuild``.
        """
        known = self.placement(placement)
        self._check_alone(placement)
        policy = asked_policy(known, self.config.placements[placement], spec)
        return await self._rebuilder.rebuild(placement, policy, who)

    async def rollback(self, placement: str, to: str | None = None, who: str | None = None) -> Replacement:
        """Go back to a state, or to the one that was left last; errors as for :meth:`rebuild`."""
        self.placement(placement)
        self._check_alone(placement)
        return await self._rebuilder.rollback(placement, to, who)

    def _check_alone(self, placement: str) -> None:
        if self.shard is not None:
            raise InvalidValue("placement", placement, NO_REBUILD_IN_SHARDS)

    async def history(self, placement: str) -> list[LoggedChange]:
        """Return who changed what of a placement, in order.

        Raises
        ------
        UnknownName, NotDurable
            If there is no such placement, or the store fails.
        """
        return await self._logbook.history(self.placement(placement))

    async def logged(self, placement: str, after: int, count: int) -> list[Event]:
        """Return the next rows of the log, out of ``count`` rows; errors as for :meth:`history`."""
        self.placement(placement)
        return await self._logbook.read(after, count)

    # How it is -------------------------------------------------------------------------------

    @property
    def commits(self) -> Commits:
        """How long commits take."""
        return self.writer.commits

    @property
    def waiting(self) -> int:
        """How many requests wait for a group."""
        return self.writer.waiting

    def health(self) -> reports.Health:
        """Return how the engine and its store are."""
        commits, pending = self.commits, self._pending
        return reports.Health(
            ready=self.writer.failure is None and not self.writer.stopping,
            events=pending.seq,
            bytes=self.store.size(),
            rate=commits.rate(self.clock()),
            committed=commits.last,
            commit_seconds=commits.seconds,
            buffered=pending.buffered,
            recovery_seconds=self._recovery_seconds,
            wall_ahead=pending.time.wall_ahead / 1e6,
        )

    def shards(self) -> list[reports.ShardHealth]:
        """Return nothing: all is in this process."""
        return []

    def shared_seconds(self, placement: str) -> float | None:
        """Return None: nothing is shared with another process."""
        return None
