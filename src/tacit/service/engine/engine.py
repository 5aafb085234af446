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

import logging
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from time import monotonic
from typing import Any, TypeVar

import msgspec

from tacit.errors import InvalidValue, TacitError
from tacit.learning.offer import Offer
from tacit.service.config.schema import Config
from tacit.service.engine.commits import Commits
from tacit.service.engine.fold import fold, opened
from tacit.service.engine.group import apply
from tacit.service.engine.health import Health, ShardHealth
from tacit.service.engine.pending import PendingLog
from tacit.service.engine.service import NOT_IN_SHARDS
from tacit.service.engine.verbs import Verbs
from tacit.service.engine.writer import STOPPING, Writer
from tacit.service.errors import StoreError, Unavailable
from tacit.service.log.clock import LogClock, LogTime
from tacit.service.log.impressions import Impression
from tacit.service.log.requests import (
    ChangeArms,
    Decide,
    Export,
    Feedback,
    Record,
    Request,
    Switch,
    checked_feedback,
)
from tacit.service.log.rows import (
    HOLDOUT,
    MERGE,
    SETTINGS,
    DecisionRow,
    Event,
    RecordRow,
)
from tacit.service.log.slots import Names, Shard
from tacit.service.placements.base import Placement
from tacit.service.sharing.base import Learned
from tacit.service.stores.base import Store

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


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

    Raises
    ------
    ConfigError
        If a placement of the store has another policy, seed or set of arms.
    StoreError
        If the store cannot be read.

    Examples
    --------
    >>> import asyncio, tempfile
    >>> from tacit.service.config.file import load_config
    >>> from tacit.service.stores.sqlite import SqliteStore
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
        self.kept: Counter[tuple[str, str]] = Counter()
        begun = monotonic()
        self.placements = self._opened(list(config.placements))
        self._recovery_seconds = monotonic() - begun
        seq, end = store.end()
        # A snapshot's time may be later than the log's: nothing that happened until then was
        # logged. A row before it would have another deadline in the fold than in memory.
        last = max([end, *(placement.windows.time for placement in self.placements.values())])
        time = LogTime(self.clock, last)
        self._pending = PendingLog(self.placements, seq, time)
        self._writer = Writer(store, self._pending, self._opened, lambda: self.config.store.archive)

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
        self._writer.start()
        for name, placement in list(self.placements.items()):
            if not placement.decisions and placement.mode != placement.config.mode:
                await self.switch(name, placement.config.mode)
        await self._begin_lifts()

    async def _begin_lifts(self) -> None:
        """Begin the sums behind a lift anew where what they rest on was changed."""
        for name, placement in list(self.placements.items()):
            if placement.current_mark(HOLDOUT) != placement.lift_terms:
                await self._submit(Switch(name, placement.lift_terms, HOLDOUT))

    async def stop(self) -> None:
        """Finish what waits, write snapshots, and close the store."""
        await self._writer.stop()
        self.store.close()

    async def reload(self, config: Config) -> None:
        """Take over another configuration between two groups; placements may come, go and change.

        Raises
        ------
        ConfigError
            If a placement does not fit what the store holds; then nothing changes.
        Unavailable
            If the store fails.
        """
        await self._writer.between_groups(lambda: self._reconfigure(config))
        await self._begin_lifts()

    async def _reconfigure(self, config: Config) -> None:
        before, self.config = self.config, config
        changed = [
            name
            for name, placement in config.placements.items()
            if before.placements.get(name) != placement
        ]
        try:
            with self._pending.freeze():
                anew = await self._writer.worker.do(self._opened, changed)
        except BaseException:
            self.config = before
            raise
        kept = {name: anew.get(name) or self.placements[name] for name in config.placements}
        self.placements.clear()
        self.placements |= kept

    # Requests --------------------------------------------------------------------------------

    async def decide_many(
        self, placement: str, impressions: Sequence[Impression]
    ) -> Sequence[DecisionRow]:
        """Choose for many impressions, each as :meth:`Placement.checked` returns it; all or none.

        Many at once come back as a :class:`tacit.service.log.blocks.Block`.

        Raises
        ------
        UnknownName, Conflict, Unavailable
            As :meth:`decide`.
        """
        self.placement(placement)
        rows: Sequence[DecisionRow] = await self._submit(Decide(placement, impressions))
        return rows

    async def record_many(
        self, placement: str, feedback: Sequence[Feedback]
    ) -> list[str | TacitError]:
        """Record much feedback; for each what became of it, or why it could not be recorded.

        Raises
        ------
        UnknownName, InvalidValue
            As :meth:`feedback`; then nothing was recorded.
        Unavailable
            If it could not be made durable.
        """
        config = self.placement(placement).config
        checked = checked_feedback(feedback, config.rule.lowest, config.metrics)
        outcomes: list[str | TacitError] = await self._submit(Record(placement, checked))
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
        remembered = self._pending.remembered
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
        if self._writer.stopping:
            raise Unavailable(STOPPING)
        try:
            return await self._writer.worker.do(function, *arguments)
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

    async def change_arms(self, change: ChangeArms) -> Offer:
        """Let arms of a placement come, go and come back, from now on; return all.

        Raises
        ------
        UnknownName, InvalidValue
            If there is no such placement, an arm is there already or is not known, or none would
            be on offer; then nothing changes.
        Unavailable
            If the change could not be made durable.
        """
        known = self.placement(change.placement)
        if self.shard is not None:
            raise InvalidValue("placement", change.placement, NOT_IN_SHARDS)
        known.arms_after(change)
        offer: Offer = await self._submit(change)
        return offer

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
        time, parts = await self._submit(Export(placement, everything))
        return Learned(0 if self.shard is None else self.shard.number, time, parts)

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
        if self._writer.stopping:
            raise Unavailable(STOPPING)
        if not self._runs_ahead(request):
            return await self._writer.submit(request)
        if self._pending.buffered >= self.config.store.buffer:
            raise Unavailable("store: the buffer is full; try again later")
        (result,) = apply(self._pending, [request], {})
        self._writer.wake()
        if isinstance(result, Exception):
            raise result
        return result

    def _runs_ahead(self, request: Request) -> bool:
        """Whether a request can be answered from memory, now."""
        return (
            self._pending.buffers(request.placement)
            and not self._pending.frozen
            and isinstance(request, Decide | Record)
            and not self._pending.unknown([request])
        )

    # How it is -------------------------------------------------------------------------------

    @property
    def commits(self) -> Commits:
        """How long commits take."""
        return self._writer.commits

    @property
    def failure(self) -> Exception | None:
        """Why nothing can be made durable at present, if so."""
        return self._writer.failure

    @property
    def waiting(self) -> int:
        """How many requests wait for a group."""
        return self._writer.waiting

    @property
    def quiet(self) -> bool:
        """Whether no snapshot is under way and nothing old is left."""
        return self._writer.upkeep.quiet

    async def written(self) -> None:
        """Wait until no snapshot is being written."""
        await self._writer.upkeep.written()

    def health(self) -> Health:
        """Return how the engine and its store are."""
        commits = self.commits
        return Health(
            ready=self.failure is None and not self._writer.stopping,
            events=self._pending.seq,
            bytes=self.store.size(),
            rate=commits.rate(self.clock()),
            committed=commits.last,
            commit_seconds=commits.seconds,
            buffered=self._pending.buffered,
            recovery_seconds=self._recovery_seconds,
        )

    def shards(self) -> list[ShardHealth]:
        """Return nothing: all is in this process."""
        return []

    def shared_seconds(self, placement: str) -> float | None:
        """Return None: nothing is shared with another process."""
        return None
