"""A shard: the engine of a single server in a Ray actor.

Also spare actors, which replace lost shards, and the combined view of all shards for page and metrics.
"""

# 1. ``ShardActor``: an engine with its own event loop; requests arrive in batches.
# 2. ``Spares``: holds a warm actor, with everything loaded and compiled, to replace a lost one.
# 3. ``ShardSnapshot``, ``ShardedView``: the statistics of a placement in each shard, and the combined
#    view, a placement that makes no decisions.

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple

from tacit.cluster.tasks import import_ray
from tacit.core.arrays import Floats, leaves
from tacit.errors import undo_on_error
from tacit.service.engine.engine import Engine
from tacit.service.engine.reports import Health
from tacit.service.errors import NotDurable
from tacit.service.log.ids import Shard
from tacit.service.log.store import StoredPlacement
from tacit.service.placements.learning import DecisionCounts
from tacit.service.placements.placement import Placement
from tacit.service.projections.arm_results import ArmResults
from tacit.service.projections.series import ARMS, MAX_SHIFTS, KeyRestart, Series
from tacit.service.projections.shared_learning import SharedUpdate

if TYPE_CHECKING:
    from tacit.service.config.schema import Config, PlacementConfig


# ---- A shard: the engine of a single server in an actor, with its own log

DECIDE, RECORD, KNOWN_IDS = "decide_many", "record_many", "find_decisions"


class ShardLost(NotDurable):
    """Raised when a shard does not answer, or has no open log."""


Request = tuple[str, str, Any]
"""A method of the engine, a placement, and the method's argument."""


PULSE = "pulse"
"""Concurrency group, with its own event loop, in which a shard answers liveness checks."""


class ShardActor:
    """One shard, with its own event loop.

    The actor starts without a shard. ``ready`` assigns one and opens its log; the state is restored from
    snapshots and later rows. An actor whose log has been taken over by another actor exits.
    """

    def __init__(self) -> None:
        self.shard_engine: Engine | None = None
        self._opening = asyncio.Lock()

    def warm(self, config: Config) -> None:
        """Create a view of each placement, to load and compile code that does not depend on the shard."""
        for name, placement in config.placements.items():
            make_sharded_view(name, placement)

    async def ready(self, shard: Shard, config: Config) -> int:
        """Open the shard's log and start its engine, if that is not done; return the process id.

        Parameters
        ----------
        shard : Shard
        config : Config
            Configuration with the shard's store, and a seed for each placement.

        Raises
        ------
        ConfigError, StoreError
            As :class:`~tacit.service.engine.engine.Engine`.
        """
        async with self._opening:
            if self.shard_engine is None:
                engine = await asyncio.to_thread(self._open, shard, config)
                await engine.start()
                self.shard_engine = engine
        return os.getpid()

    @staticmethod
    def _open(shard: Shard, config: Config) -> Engine:
        """Return a new engine for the shard, whose store refuses writes if another actor takes it over."""
        from tacit.service.app.logging_setup import set_up
        from tacit.service.app.server import settle_memory
        from tacit.service.engine.shard_layout import FencedStore

        set_up(config.server.log)
        store = config.store
        assert store.url is not None
        fenced = FencedStore(store.url, store.schema)
        with undo_on_error(fenced.close):
            engine = Engine(config, fenced, shard=shard)
        settle_memory()
        return engine

    def _get_engine(self) -> Engine:
        """Return the engine; raise ShardLost without one; exit the process if another actor owns the log."""
        if self.shard_engine is None:
            raise ShardLost("shard: it has no log open; try again later")
        from tacit.service.errors import Fenced

        if isinstance(self.shard_engine.writer.failure, Fenced):
            self._exit()
        return self.shard_engine

    def _exit(self) -> None:
        """Exit the actor: another one owns the log."""
        import_ray().actor.exit_actor()

    async def pulse(self) -> None:
        """Answer a liveness check, on a separate event loop: compilation may block the main one."""

    async def pid(self) -> int:
        """Return the process id; raise ShardLost if the log is not open."""
        self._get_engine()
        return os.getpid()

    async def serve(self, requests: Sequence[Request]) -> list[Any]:
        """Answer a batch of requests concurrently; return the result or the exception of each, in order."""
        engine = self._get_engine()
        answers = (getattr(engine, method)(placement, request) for method, placement, request in requests)
        return await asyncio.gather(*answers, return_exceptions=True)

    async def engine(self, verb: str, *arguments: Any) -> Any:
        """Call a coroutine of the engine by name; return its result."""
        return await getattr(self._get_engine(), verb)(*arguments)

    async def arms(self) -> dict[str, str]:
        """Return all arms of each placement, in the format of change events."""
        return self._get_engine().exchange.arms()

    async def follow(self, arms: Mapping[str, str], who: str | None) -> None:
        """Adopt the arms of the first shard in all placements; ``who`` asked for the change."""
        await self._get_engine().exchange.apply_arms(arms, who)

    async def reload(self, config: Config, leading: Mapping[str, str]) -> dict[str, str]:
        """Adopt a new configuration and the arms of the first shard; return all arms of each placement."""
        engine = self._get_engine()
        await engine.reload(config, leading)
        return engine.exchange.arms()

    async def lend(self, placement: str) -> tuple[int, bytes]:
        """Return the number of the last log row that a placement has learned, and its state as bytes."""
        replica = await self._get_engine().export_replica(placement)
        return replica.seq, b"".join(replica)

    async def learned(self, everything: bool) -> dict[str, SharedUpdate]:
        """Return this shard's updates, by placement, of all placements that share parameters between shards.

        Updates are those since the last call, or everything.
        """
        engine = self._get_engine()
        shared = [name for name, placement in engine.placements.items() if placement.shared is not None]
        return {name: await engine.exchange.export_learning(name, everything) for name in shared}

    async def take_in(self, placement: str, parts: Sequence[SharedUpdate]) -> None:
        """Learn updates of other shards for a placement."""
        engine = self._get_engine()
        for part in parts:
            await engine.exchange.import_learning(placement, part)

    async def look(self) -> tuple[Health, int, dict[str, ShardSnapshot], dict[str, str]]:
        """Return the engine's health, the number of pending requests, snapshots of placements, and arms."""
        engine = self._get_engine()
        snapshots = {name: take_snapshot(placement) for name, placement in engine.placements.items()}
        return engine.health(), engine.waiting, snapshots, engine.exchange.arms()

    async def stop(self) -> None:
        """Finish pending work, write snapshots, and close the log."""
        if self.shard_engine is not None:
            await self.shard_engine.stop()


# ---- A warm spare actor, which replaces a lost shard
#
# Starting a process and loading compiled loops takes seconds, opening a log does not. The spare has
# done the former. The epoch in the database prevents writes of a lost actor that is still alive.

logger = logging.getLogger(__name__)


def create_actor() -> Any:
    """Return Ray's handle of a new actor without a shard."""
    options = {"max_restarts": 0, "max_concurrency": 10_000, "scheduling_strategy": "SPREAD"}
    return import_ray().remote(concurrency_groups={PULSE: 1})(ShardActor).options(**options).remote()


class Spares:
    """Hold one spare actor.

    Parameters
    ----------
    config : Config
        Configuration whose placements the spare is warmed up for.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._spare: Any = None

    def take(self) -> Any:
        """Return the spare and hold none; without one, return a new actor that is not warmed up."""
        spare, self._spare = self._spare, None
        return create_actor() if spare is None else spare

    async def refill(self) -> None:
        """Create a spare if there is none, and wait until it is warmed up; drop it if that fails."""
        if self._spare is not None:
            return
        self._spare = spare = create_actor()
        try:
            await asyncio.wrap_future(spare.warm.remote(self._config).future())
        except import_ray().exceptions.RayError as error:
            logger.warning("the spare could not be warmed up: %s", error)
            if self._spare is spare:
                self._spare = None

    def close(self) -> None:
        """Kill the spare, if there is one."""
        if self._spare is not None:
            import_ray().kill(self._spare)


# ---- Statistics of a placement: a snapshot of each shard, and the combined view


class ShardSnapshot(NamedTuple):
    """Statistics of a placement in one shard."""

    decisions: int
    feedback: int
    outcomes: dict[str, int]
    keys: int
    pending: int
    closes: int | None
    table: Floats
    start: int
    width: int
    restarts: int
    shifts: list[KeyRestart]
    snapshot_time: int | None
    counts: Any
    results: ArmResults
    first: tuple[str, list[Any]] | None
    aspects: dict[str, Any]


def take_snapshot(placement: Placement) -> ShardSnapshot:
    """Return a snapshot of a placement's statistics; its arrays are copies."""
    series = placement.series
    return ShardSnapshot(
        placement.decisions,
        placement.feedback,
        dict(placement.outcomes),
        placement.key_count,
        placement.pending,
        placement.last_deadline,
        series.table.copy(),
        series.start,
        series.width,
        series.restarts,
        list(series.shifts),
        placement.snapshot_time,
        placement.results.export_counts(),
        deepcopy(series.results),
        _first_key(placement),
        {name: aspect.export_part() for name, aspect in placement.aspects.items()},
    )


def _first_key(placement: Placement) -> tuple[str, list[Any]] | None:
    """Return the first key and its state if the page shows them, else None."""
    keys = placement.learner.keys
    if not keys or not placement.kind.by_features:
        return None
    # The first key has lane 0.
    return keys[0], [array[0].copy() for _, array in leaves(placement.learner.state)]


class ShardedView(Placement):
    """A placement that shows the combined statistics of its shards and decides nothing."""

    key_count = 0  # type: ignore[assignment]
    pending = 0  # type: ignore[assignment]
    last_deadline: int | None = None  # type: ignore[assignment]

    def show(self, snapshots: Sequence[ShardSnapshot]) -> None:
        """Set this placement's statistics to the combined ones of all shards; nothing without snapshots.

        Counts are added; keys are not if every shard has all keys.
        """
        if not snapshots:
            return
        spread = self.config.spread
        self.counts = DecisionCounts(
            sum(snapshot.decisions for snapshot in snapshots),
            sum(snapshot.feedback for snapshot in snapshots),
            sum((Counter(snapshot.outcomes) for snapshot in snapshots), Counter()),
        )
        self.key_count = (max if spread else sum)(snapshot.keys for snapshot in snapshots)  # type: ignore
        self.pending = sum(snapshot.pending for snapshot in snapshots)  # type: ignore[misc]
        ends = (snapshot.closes for snapshot in snapshots)
        self.last_deadline = max((end for end in ends if end is not None), default=None)  # type: ignore[misc]
        self.results.series = _merge_series(self.series, snapshots)
        for name, aspect in self.aspects.items():
            # A shard may not have adopted the new configuration yet.
            if all(name in snapshot.aspects for snapshot in snapshots):
                aspect.merge_parts([snapshot.aspects[name] for snapshot in snapshots])
        times = [snapshot.snapshot_time for snapshot in snapshots if snapshot.snapshot_time is not None]
        self.snapshot_time = min(times) if len(times) == len(snapshots) else None
        self.results.merge_counts([snapshot.counts for snapshot in snapshots])
        for snapshot in snapshots:
            if snapshot.first is not None:
                _show_first(self, *snapshot.first)
                break


def _merge_series(current: Series, snapshots: Sequence[ShardSnapshot]) -> Series:
    """Return a new series that combines the series of all snapshots, with the latest shifts."""
    # Shards may differ in their arms while a change propagates.
    columns = max(current.table.shape[1], *(snapshot.table.shape[1] for snapshot in snapshots))
    merged = Series(columns - ARMS)
    started = [snapshot for snapshot in snapshots if snapshot.start >= 0]
    for snapshot in sorted(started, key=lambda snapshot: snapshot.start):
        merged.add_table(snapshot.table, snapshot.start, snapshot.width)
    for snapshot in snapshots:
        merged.results.merge(snapshot.results)
    merged.restarts = sum(snapshot.restarts for snapshot in snapshots)
    shifts = sorted(shift for snapshot in snapshots for shift in snapshot.shifts)
    merged.shifts.extend(shifts[-MAX_SHIFTS:])
    return merged


def _show_first(placement: Placement, key: str, values: list[Any]) -> None:
    """Set a placement's only key and its state to those of a shard's first key; other keys change nothing."""
    learner = placement.learner
    if not learner.keys:
        learner.lanes.admit([key])
    if learner.keys == [key]:
        for (_, array), value in zip(leaves(learner.state), values, strict=True):
            array[0] = value


def make_sharded_view(name: str, config: PlacementConfig) -> ShardedView:
    """Return a placement that shows the combined statistics of its shards, and validates requests."""
    return ShardedView(name, config, StoredPlacement(0, 0, "", config.seed or 0))
