"""The engine: one writer that decides, learns and logs requests in groups, and answers after the commit.

All waiting requests form a group. The engine closes the windows that are due, decides, learns from feedback,
appends the rows of all this to the log in the same order, commits them, and answers the requests. Requests
that arrive during a commit form the next group, so groups grow with the load, without a timer.

The order of the log is thus the order in which requests were applied: the learned state is a fold over the
log, and recovery loads a snapshot and folds the later rows. Memory is ahead of the log by the rows in flight.
If their commit fails, placements with the durability ``committed`` are loaded from the store again, without
those rows; placements with the durability ``buffered`` continue from memory, and their rows wait until the
store works again.
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
from tacit.service.engine.background_tasks import (
    ConfigurationLogger,
    LogQueries,
    ShardExchange,
    SubjectEraser,
)
from tacit.service.engine.batches import Batches
from tacit.service.engine.fold import load_placements
from tacit.service.engine.pending_rows import PendingLog
from tacit.service.engine.rebuilding import Rebuilder, Replacement, State, parse_requested_policy
from tacit.service.engine.segments import SegmentReports
from tacit.service.engine.service import NO_REBUILD_IN_SHARDS, Verbs
from tacit.service.engine.upkeep import DAY, check_clock
from tacit.service.engine.verdicts import NOT_IN_SHARDS, PATIENCE, ReadVerdict, Verdicts
from tacit.service.engine.writer import Commits, Writer
from tacit.service.kind import check_path
from tacit.service.log.change_events import LoggedChange
from tacit.service.log.ids import LogClock, LogTime, Shard, as_text, wall_time
from tacit.service.log.requests import (
    AppendChange,
    ChangePlacement,
    FeedbackRequest,
    Impression,
    Record,
    check_feedback,
)
from tacit.service.log.rows import CONFIGURATION, MODE, DecisionRow, Event
from tacit.service.log.search_records import Subject
from tacit.service.log.sql import Store
from tacit.service.log.store import BlankedRows
from tacit.service.placements.client_checks import check_client_side
from tacit.service.placements.placement import Placement
from tacit.wire.control import HoldoutOf
from tacit.wire.lift import LATEST, ForWhom

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


# The engine owns the writer, through which all changes go, and answers reads itself.
class Engine(Verbs):
    """Decides and learns for every placement of a configuration, durably.

    The constructor recovers the state from the store. All coroutines must run in one event loop.

    Parameters
    ----------
    config : Config
    store : Store
        Closed by :meth:`stop`.
    clock : function, optional
        Returns the time in microseconds since 1970. The log's time never decreases, even if the clock
        does.
    shard : Shard, optional
        Number of this shard, and of all shards; by default there are no shards.
    wall : function, optional
        Returns the current wall time in microseconds since 1970, to notice changes of the machine's clock;
        by default the machine's clock, or none with another ``clock``.

    Raises
    ------
    ConfigError
        If a placement of the store has another policy, seed or set of arms, or the wall clock is so far
        ahead of the log that rows could be dropped too early.
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

    answer_headers: Sequence[tuple[bytes, bytes]] = ()
    configuration_logger: ConfigurationLogger

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
        # Time of the last row before the start, and wall time of the start; equal ones check nothing.
        self._start_times = (store.end().time, wall()) if wall is not None else (0, 0)
        jumped = check_clock(config, *self._start_times)
        self.config = config
        # In a cluster it has the statistics of all shards.
        self.merged: Engine = self
        self.shard = shard
        self.store = store
        self.clock = clock or LogClock()
        begun = monotonic()
        with store.check_indexes():
            self.placements = self._load_placements(list(config.placements))
        self._recovery_seconds = monotonic() - begun
        seq, end = store.end()
        # A snapshot's time may be later than the last row. New rows must not be earlier than it: their
        # windows would get other deadlines in the fold than in memory.
        last = max([end, *(placement.windows.time for placement in self.placements.values())])
        time = LogTime(self.clock, last, wall)
        if time.wall_ahead < -DAY:
            logger.warning(
                "the log is ahead of this machine's clock: its last row is of %s, the clock says "
                "%s; the log goes on from its last row",
                *map(as_text, (last, last + time.wall_ahead)),
            )
        self._pending = PendingLog(self.placements, seq, time)
        self._apply_limits(config)
        self.writer = Writer(
            store,
            self._pending,
            self._load_placements,
            lambda: self.configuration_logger.log_changes(),
            lambda: self.config.store.archive,
        )
        # Usual requests are checked already: they wait in the writer's queue at once.
        self.begin = self.writer.begin
        self._batches = Batches(self.writer, lambda: self.config.server.batch_candidates)
        self._rebuilder = Rebuilder(self, self.writer)
        self.writer.upkeep.spared = self._rebuilder.running
        self.configuration_logger = ConfigurationLogger(self, self._pending, self._rebuilder, self.writer)
        self.configuration_logger.check(self.placements)
        if jumped:
            self.writer.upkeep.hold_drops()
        self.exchange = ShardExchange(self, self.configuration_logger, self.writer)
        self._log_queries = LogQueries(store, self.writer)
        self._verdicts = Verdicts(self)
        self._segment_reports = SegmentReports(self, lambda: self._pending.seq)
        self._eraser = SubjectEraser(self, store, self.writer, self._verdicts)
        self.replica_files = reports.ReplicaFiles(self, self.writer)

    def _load_placements(self, names: Sequence[str]) -> dict[str, Placement]:
        """Load placements from the store and return them by name; they have learned from the whole log."""
        return load_placements(names, self.config.placements, self.store, self.shard)

    def _apply_limits(self, config: Config) -> None:
        """Take over a configuration's limits of open decisions and of buffered rows."""
        pending = self._pending
        pending.most_open, pending.most_buffered = config.server.open_decisions, config.store.buffer

    async def start(self) -> None:
        """Start the writer, log changed settings durably, and start configured rebuilds in the background.

        A configured mode is applied only to a placement without decisions.
        """
        self.writer.start()
        for name, placement in list(self.placements.items()):
            if not placement.decisions and placement.mode != placement.config.mode:
                await self.writer.ask(AppendChange(name, placement.config.mode, MODE, CONFIGURATION))
        await self.configuration_logger.finish(self.configuration_logger.log_changes())

    async def wait_until_durable(self, names: Sequence[str]) -> None:
        """Wait until all changes so far of the named placements are committed to the log."""
        for name in names:
            # Setting the current mode logs nothing, but is answered after the commit.
            await self.writer.ask(AppendChange(name, self.placements[name].mode))

    async def stop(self) -> None:
        """Answer the waiting requests, write snapshots, cancel rebuilds, and close the store."""
        await self.writer.stop()
        await self.configuration_logger.stop()
        self.store.close()

    async def reload(self, config: Config, leading: Mapping[str, str] | None = None) -> None:
        """Apply another configuration between two groups, and log the changed settings.

        Placements may be added, removed and changed; changed ones are loaded from the store again.

        Parameters
        ----------
        config : Config
        leading : mapping of str to str, optional
            In a shard other than the first: the arms of the first one, as values of change events.

        Raises
        ------
        ConfigError
            If a placement does not fit its state in the store; then nothing changes.
        NotDurable
            If the store fails.
        """
        concerned: list[str] = []
        self.configuration_logger.leading_arms = leading or self.configuration_logger.leading_arms
        await self.writer.run_between_groups(lambda: self._reconfigure(config, concerned))
        await self.configuration_logger.finish(concerned)

    async def _reconfigure(self, config: Config, concerned: list[str]) -> None:
        """Load the changed placements, and replace the configuration and the placements by the new ones.

        Adds the names of placements with new change events to ``concerned``. If a placement cannot be loaded,
        the previous configuration is restored and the error raised.
        """
        if check_clock(config, *self._start_times):
            self.writer.upkeep.hold_drops()
        before, self.config = self.config, config
        changed = [
            name for name, placement in config.placements.items() if before.placements.get(name) != placement
        ]
        try:
            with self._pending.freeze():
                new_placements = await self.writer.worker.do(self._load_placements, changed)
            self.configuration_logger.check(new_placements)
        except BaseException:
            self.config = before
            raise
        placements = {name: new_placements.get(name) or self.placements[name] for name in config.placements}
        self.placements.clear()
        self.placements |= placements
        self._apply_limits(config)
        self._pending.touch_all()
        # Without awaiting, so that nothing is decided in between.
        concerned += self.configuration_logger.log_changes()

    # Requests --------------------------------------------------------------------------------

    async def decide_many(self, placement: str, impressions: Sequence[Impression]) -> Sequence[DecisionRow]:
        """Decide for all impressions of a placement, or for none; return the decisions once they are durable.

        ``impressions`` come from :meth:`RequestReader.read`. Many decisions are returned as a
        :class:`tacit.service.log.blocks.Block`, or as a list if they are decided in steps
        (:mod:`tacit.service.engine.batches`); if a later step fails, the decisions of earlier steps stand.

        Raises
        ------
        UnknownName, Conflict, NotDurable
            As :meth:`decide`.
        InvalidValue
            If together they have more candidates than ``server.batch_candidates``.
        """
        return await self._batches.decide(self.placement(placement), impressions)

    async def record_many(
        self, placement: str, feedback: Sequence[FeedbackRequest]
    ) -> list[str | TacitError]:
        """Record many pieces of feedback; return for each its outcome, or the error that refused it.

        Raises
        ------
        UnknownName, InvalidValue
            As :meth:`feedback`; then nothing was recorded.
        NotDurable
            If the feedback could not be made durable.
        """
        checked = check_feedback(feedback, self.placement(placement))
        outcomes: list[str | TacitError] = await self.writer.ask(Record(placement, checked))
        return outcomes

    async def find_decisions(self, placement: str, ids: Sequence[str]) -> dict[str, DecisionRow]:
        """Return the decisions of a placement that have these ids, by id; unknown ids are left out.

        Errors as for :meth:`history`.
        """
        return await self._log_queries.find_decisions(self.placement(placement), ids)

    async def forget(self, subject: Subject, who: str | None = None) -> dict[str, BlankedRows]:
        """Blank a user's data: see :meth:`~tacit.service.engine.background_tasks.SubjectEraser.forget`."""
        return await self._eraser.forget(subject, who)

    async def ask(self, placement: str, request: Any, who: str | None = None) -> Any:
        """Change a placement's mode, arms or other setting, and log the change; return its new setting.

        Parameters
        ----------
        placement : str
        request : structure
            The change, of a type in :data:`~tacit.service.placements.placement.CHANGES`.
        who : str, optional
            Name of the API key that requested it, for the log.

        Raises
        ------
        UnknownName, InvalidValue
            If there is no such placement, or the change is invalid; then nothing changes.
        NotDurable
            If the change could not be made durable.
        """
        learner = self.placement(placement).learner
        if type(request) is HoldoutOf:
            # Read, and thereby compiled, in a thread, so that no request waits for the compiler.
            await asyncio.to_thread(getattr, learner.loops, "force")
        return await self.writer.ask(ChangePlacement(placement, request, who))

    async def export_replica(self, placement: str, shard: int | None = None) -> reports.ReplicaFile:
        """Return a placement's learner as a file for replicas in clients.

        A recent file may be returned again.

        Raises
        ------
        UnknownName, NotDurable
            As :meth:`history`.
        InvalidValue
            If clients cannot decide for the placement, or the shard is not 0.
        """
        check_client_side(self.placement(placement), self._pending.time.get_time())
        if shard:
            raise InvalidValue("shard", shard, "leave it out: one server has learned all")
        return await self.replica_files.get_file(placement, self._pending.seq)

    async def list_replica_rows(self, placement: str) -> list[int | None]:
        """Return, in a list of one, the last row of the log that a replica file requested now would include.

        Errors as for :meth:`export_replica`.
        """
        check_client_side(self.placement(placement), self._pending.time.get_time())
        return [self.replica_files.find_last_row(placement, self._pending.seq)]

    async def key(self, placement: str, key: str) -> reports.KeyFacts:
        """Return the learned state of a key; raise UnknownName if it has no decisions."""
        return reports.key_facts(self.placement(placement), key)

    async def busiest(self, placement: str) -> list[reports.KeyFacts]:
        """Return the learned states of a placement's keys with the most impressions, or raise UnknownName."""
        return await reports.busiest(self.placement(placement))

    async def find_keys(self, placement: str, text: str) -> reports.KeyMatches:
        """Return the keys of a placement that contain a text, or raise UnknownName."""
        return await reports.find_keys(self.placement(placement), text)

    async def verdict(
        self,
        placement: str,
        confidence: float = 0.95,
        false_share: float = 0.05,
        *,
        patience: float = PATIENCE,
    ) -> ReadVerdict:
        """Return the verdict on the rankers of a placement of duels; errors as for ``Verdicts.read``."""
        check_path(self.placement(placement), "duel")
        if self.shard is not None:
            raise InvalidValue("placement", placement, NOT_IN_SHARDS)
        return await self._verdicts.read(placement, confidence, false_share, patience)

    async def report_segments(self, placement: str, limit: int = LATEST) -> ForWhom:
        """Return which arms a placement shows to which segments, from its ``limit`` latest decisions.

        Errors as for ``SegmentReports.report``.
        """
        return await self._segment_reports.report(placement, limit)

    async def states(self, placement: str) -> list[State]:
        """Return the stored states to which a placement can be rolled back, oldest first.

        Errors as for :meth:`history`.
        """
        return await self._rebuilder.states(placement)

    async def rebuild(self, placement: str, spec: Any, who: str | None = None) -> Replacement:
        """Fold the log of a placement into another policy, while requests are served; then switch to it.

        The replaced state is stored for a rollback.

        Raises
        ------
        UnknownName, InvalidValue, Conflict, NotDurable
            As ``Rebuilder.rebuild``.
        """
        target = self.placement(placement)
        self._check_alone(placement)
        policy = parse_requested_policy(target, self.config.placements[placement], spec)
        return await self._rebuilder.rebuild(placement, policy, who)

    async def rollback(self, placement: str, to: str | None = None, who: str | None = None) -> Replacement:
        """Restore a stored state of a placement, by default the one replaced last, and log the change.

        The replaced state is stored, too. Errors as for :meth:`rebuild`.
        """
        self.placement(placement)
        self._check_alone(placement)
        return await self._rebuilder.rollback(placement, to, who)

    def _check_alone(self, placement: str) -> None:
        """Raise InvalidValue if this engine is a shard, which can neither rebuild nor roll back."""
        if self.shard is not None:
            raise InvalidValue("placement", placement, NO_REBUILD_IN_SHARDS)

    async def history(self, placement: str) -> list[LoggedChange]:
        """Return the changes of a placement, in order.

        Raises
        ------
        UnknownName, NotDurable
            If there is no such placement, or the store fails.
        """
        return await self._log_queries.history(self.placement(placement))

    async def read_log(self, placement: str, after: int, count: int) -> list[Event]:
        """Return up to ``count`` rows of the log after row ``after``; errors as for :meth:`history`."""
        self.placement(placement)
        return await self._log_queries.read(after, count)

    # Health ----------------------------------------------------------------------------------

    @property
    def commits(self) -> Commits:
        """Counts and times of the commits to the log, for metrics and traces."""
        return self.writer.commits

    @property
    def waiting(self) -> int:
        """Number of requests that wait for the next group."""
        return self.writer.waiting

    def health(self) -> reports.Health:
        """Return the health of the engine and its store: rows, commits, memory, recovery and clock."""
        commits, pending = self.commits, self._pending
        return reports.Health(
            ready=self.writer.failure is None and not self.writer.stopping,
            events=pending.seq,
            bytes=self.store.size(),
            rate=commits.compute_rate(self.clock()),
            committed=commits.last,
            commit_seconds=commits.seconds,
            buffered=pending.memory_rows,
            recovery_seconds=self._recovery_seconds,
            wall_ahead=pending.time.wall_ahead / 1e6,
        )

    def shards(self) -> list[reports.ShardHealth]:
        """Return an empty list: an engine has no shards."""
        return []

    def sharing_seconds(self, placement: str) -> float | None:
        """Return None: an engine does not share its learning with other processes."""
        return None
