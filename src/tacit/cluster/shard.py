"""A shard: the very engine of a single server in an actor.

Then the spare that takes a lost one's place, and what there is to see of all shards together.
"""

# 1. ``ShardActor``: an engine on an event loop of its own; what it is asked comes as batches.
# 2. ``Spares``: an actor that has loaded and compiled all, to take a lost one's place.
# 3. ``ShardSnapshot``, ``ShardedView``: what there is to see of a placement, a picture of each part and the
#    whole, which is a placement that decides nothing.

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple

from tacit.cluster.tasks import imported
from tacit.core.arrays import Floats, leaves
from tacit.errors import undoing
from tacit.service.engine.engine import Engine
from tacit.service.engine.reports import Health
from tacit.service.errors import NotDurable
from tacit.service.log.ids import Shard
from tacit.service.log.store import StoredPlacement
from tacit.service.placements.arm_results import Results
from tacit.service.placements.aspects.shared_learning import Learned
from tacit.service.placements.placement import Placement
from tacit.service.placements.series import ARMS, SHIFTS_KEPT, SeenRestart, Series

if TYPE_CHECKING:
    from tacit.service.config.schema import Config, PlacementConfig


# ---- A shard: the very engine of a single server, in an actor, with a log of its own

DECIDE, RECORD, MADE = "decide_many", "record_many", "made"


class Lost(NotDurable):
    """The shard does not answer, or has no log open."""


Request = tuple[str, str, Any]
"""A method of the engine, a placement, and the rest."""


PULSE = "pulse"
"""The event loop on which a shard says that it lives."""


class ShardActor:
    """One shard, on an event loop of its own.

    It gets to know which shard it is, and then opens its log: the snapshots and the log since bring back
    what the one before knew. An owner whose log has another one ends.
    """

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._opening = asyncio.Lock()

    def warm(self, config: Config) -> None:
        """Load all that takes time and does not depend on the shard."""
        for name, each in config.placements.items():
            sharded_view(name, each)

    async def ready(self, shard: Shard, config: Config) -> int:
        """Open the log if it is not open; return the id of the process.

        Parameters
        ----------
        shard : Shard
        config : Config
            Its store is that of the shard, its placements have seeds.

        Raises
        ------
        ConfigError, StoreError
            As :class:`~tacit.service.engine.engine.Engine`.
        """
        async with self._opening:
            if self._engine is None:
                engine = await asyncio.to_thread(self._open, shard, config)
                await engine.start()
                self._engine = engine
        return os.getpid()

    @staticmethod
    def _open(shard: Shard, config: Config) -> Engine:
        from tacit.service.app.logging_setup import set_up
        from tacit.service.app.server import settle_memory
        from tacit.service.engine.shard_layout import FencedStore

        set_up(config.server.log)
        store = config.store
        assert store.url is not None
        fenced = FencedStore(store.url, store.schema)
        with undoing(fenced.close):
            engine = Engine(config, fenced, shard=shard)
        settle_memory()
        return engine

    def _ready(self) -> Engine:
        if self._engine is None:
            raise Lost("shard: it has no log open; try again later")
        from tacit.service.errors import Fenced

        if isinstance(self._engine.writer.failure, Fenced):
            self._end()
        return self._engine

    def _end(self) -> None:
        """End for good: somebody else owns the log."""
        imported().actor.exit_actor()

    async def pulse(self) -> None:
        """Answer, on an event loop of its own: the other one is busy while a loop is compiled."""

    async def pid(self) -> int:
        """Return the id of the process, once the log is open."""
        self._ready()
        return os.getpid()

    async def serve(self, requests: Sequence[Request]) -> list[Any]:
        """Answer many requests, each with its result or with the error that it met."""
        engine = self._ready()
        answers = (getattr(engine, what)(placement, given) for what, placement, given in requests)
        return await asyncio.gather(*answers, return_exceptions=True)

    async def engine(self, verb: str, *given: Any) -> Any:
        """Call the engine's coroutine of this name."""
        return await getattr(self._ready(), verb)(*given)

    async def arms(self) -> dict[str, str]:
        """Return all arms of each placement, as marks hold them."""
        return self._ready().exchange.arms()

    async def follow(self, arms: Mapping[str, str], who: str | None) -> None:
        """Have the arms of the first shard."""
        await self._ready().exchange.follow(arms, who)

    async def reload(self, config: Config, leading: Mapping[str, str]) -> dict[str, str]:
        """Take over another configuration, and the arms of the first shard; return the arms."""
        engine = self._ready()
        await engine.reload(config, leading)
        return engine.exchange.arms()

    async def lend(self, placement: str) -> tuple[int, bytes]:
        """Return what a placement has learned here, and the last row of the log that it knows."""
        lent = await self._ready().lend(placement)
        return lent.seq, b"".join(lent)

    async def learned(self, everything: bool) -> dict[str, Learned]:
        """Return what each placement has learned here that others share."""
        engine = self._ready()
        shared = [name for name, each in engine.placements.items() if each.shared is not None]
        return {name: await engine.exchange.learned(name, everything) for name in shared}

    async def take_in(self, placement: str, parts: Sequence[Learned]) -> None:
        """Learn what other shards have learned."""
        engine = self._ready()
        for part in parts:
            await engine.exchange.take_in(placement, part)

    async def look(self) -> tuple[Health, int, dict[str, ShardSnapshot], dict[str, str]]:
        """Return how the engine is, how many requests wait, what there is to see, and all arms."""
        engine = self._ready()
        snapshots = {name: snapshot_of(each) for name, each in engine.placements.items()}
        return engine.health(), engine.waiting, snapshots, engine.exchange.arms()

    async def stop(self) -> None:
        """Finish what waits, write snapshots, and close the log."""
        if self._engine is not None:
            await self._engine.stop()


# ---- A spare actor, warmed up: it takes the place of a shard that is lost
#
# Starting a process and loading the compiled loops takes seconds, opening a log does not. The spare
# has done the first; the epoch in the database sees to it that the lost one, should it live on
# somewhere, writes no more.

logger = logging.getLogger(__name__)


def new_actor() -> Any:
    """Return an actor for any shard."""
    options = {"max_restarts": 0, "max_concurrency": 10_000, "scheduling_strategy": "SPREAD"}
    return imported().remote(concurrency_groups={PULSE: 1})(ShardActor).options(**options).remote()


class Spares:
    """Holds one spare.

    Parameters
    ----------
    config : Config
        Whose placements it is warmed up for.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._spare: Any = None

    def take(self) -> Any:
        """Return the spare; a cold actor if there is none."""
        spare, self._spare = self._spare, None
        return new_actor() if spare is None else spare

    async def refill(self) -> None:
        """Make a spare if there is none, and warm it up."""
        if self._spare is not None:
            return
        self._spare = spare = new_actor()
        try:
            await asyncio.wrap_future(spare.warm.remote(self._config).future())
        except imported().exceptions.RayError as error:
            logger.warning("the spare could not be warmed up: %s", error)
            if self._spare is spare:
                self._spare = None

    def close(self) -> None:
        """End the spare."""
        if self._spare is not None:
            imported().kill(self._spare)


# ---- What there is to see of a placement in shards: a picture of each part, and the whole


class ShardSnapshot(NamedTuple):
    """What is seen of a placement in one shard."""

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
    shifts: list[SeenRestart]
    snapshot_time: int | None
    counts: Any
    results: Results
    first: tuple[str, list[Any]] | None
    aspects: dict[str, Any]


def snapshot_of(placement: Placement) -> ShardSnapshot:
    """Return what is seen of a placement."""
    series = placement.series
    return ShardSnapshot(
        placement.decisions,
        placement.feedback,
        dict(placement.outcomes),
        placement.key_count,
        placement.pending,
        placement.closes,
        series.table.copy(),
        series.start,
        series.width,
        series.restarts,
        list(series.shifts),
        placement.snapshot_time,
        placement.counts(),
        deepcopy(series.results),
        _first(placement),
        {name: aspect.part(placement) for name, aspect in placement.aspects.items()},
    )


def _first(placement: Placement) -> tuple[str, list[Any]] | None:
    """Return the first key and what was learned for it, where this is shown."""
    keys = placement.learner.keys
    if not keys or not placement.kind.by_features:
        return None
    # The first key has the first lane.
    return keys[0], [array[0].copy() for _, array in leaves(placement.learner.state)]


class ShardedView:
    """Mixed into the class of a placement: it decides nothing, and shows what its shards do."""

    key_count = 0
    pending = 0
    closes: int | None = None

    def show(self, snapshots: Sequence[ShardSnapshot]) -> None:
        """Put the snapshots of all shards together."""
        assert isinstance(self, Placement)
        if not snapshots:
            return
        spread = self.config.spread
        self.decisions = sum(snapshot.decisions for snapshot in snapshots)
        self.feedback = sum(snapshot.feedback for snapshot in snapshots)
        self.outcomes = sum((Counter(snapshot.outcomes) for snapshot in snapshots), Counter())
        self.key_count = (max if spread else sum)(snapshot.keys for snapshot in snapshots)  # type: ignore
        self.pending = sum(snapshot.pending for snapshot in snapshots)  # type: ignore[misc]
        ends = (snapshot.closes for snapshot in snapshots)
        self.closes = max((end for end in ends if end is not None), default=None)  # type: ignore[misc]
        self.series = _together(self.series, snapshots)
        for name, aspect in self.aspects.items():
            # A shard may not have the configuration yet that this process has.
            if all(name in snapshot.aspects for snapshot in snapshots):
                aspect.show(self, [snapshot.aspects[name] for snapshot in snapshots])
        times = [snapshot.snapshot_time for snapshot in snapshots if snapshot.snapshot_time is not None]
        self.snapshot_time = min(times) if len(times) == len(snapshots) else None
        self.show_counts([snapshot.counts for snapshot in snapshots])
        for snapshot in snapshots:
            if snapshot.first is not None:
                _show_first(self, *snapshot.first)
                break


def _together(like: Series, snapshots: Sequence[ShardSnapshot]) -> Series:
    # A shard may be about to have the arms that another one has.
    columns = max(like.table.shape[1], *(snapshot.table.shape[1] for snapshot in snapshots))
    made = Series(columns - ARMS)
    begun = [snapshot for snapshot in snapshots if snapshot.start >= 0]
    for snapshot in sorted(begun, key=lambda snapshot: snapshot.start):
        made.add(snapshot.table, snapshot.start, snapshot.width)
    for snapshot in snapshots:
        made.results.take(snapshot.results)
    made.restarts = sum(snapshot.restarts for snapshot in snapshots)
    shifts = sorted(shift for snapshot in snapshots for shift in snapshot.shifts)
    made.shifts.extend(shifts[-SHIFTS_KEPT:])
    return made


def _show_first(placement: Placement, key: str, values: list[Any]) -> None:
    learner = placement.learner
    if not learner.keys:
        learner.lanes.admit([key])
    if learner.keys == [key]:
        for (_, array), value in zip(leaves(learner.state), values, strict=True):
            array[0] = value


def sharded_view(name: str, config: PlacementConfig) -> Placement:
    """Return a placement that shows what its shards do, and checks what they are asked."""
    kind = config.served_as.placement
    made: Placement = type(f"Sharded{kind.__name__}", (ShardedView, kind), {})(
        name, config, StoredPlacement(0, 0, "", config.seed or 0)
    )
    return made
