"""Snapshots are written while groups are served, and are what the log says, wherever they end."""

import asyncio
import logging
from functools import partial

import harness
import numpy as np
import placement_access as access
import pytest
from harness import PATIENCE, START, Clock, arrays, everything, learned, quiet, reached, recovered, served
from stores import SlowStore, sql, store_at

import tacit
from tacit.learning.learner import Learner, make_snapshot, restore_learner
from tacit.learning.snapshot import PIECE, CopyBuffer, from_bytes, iter_pieces
from tacit.service.errors import StoreError
from tacit.service.log.removal import drop_rows
from tacit.service.log.requests import FeedbackRequest, encode_metrics
from tacit.service.log.rows import DecisionRow, Rows
from tacit.service.log.sql import save_snapshot
from tacit.service.log.store import BASES, BATCH, Draft, OldRows, Snapshot
from tacit.wire.site import FedOf

SNAPSHOT = Snapshot(1, 5, START, "{}", b"learner", None, b"series", b"windows")


PIECES = "SELECT count(DISTINCT snapshot) FROM pieces"
"""Of how many snapshots there are pieces."""
configured = partial(harness.with_policy, tacit.Thompson(("film", "recipe")), snapshot_every=20)


async def decided(engine, count):
    for _ in range(count):
        row = await engine.decide("home", f"key {engine.health().events % 7}")
        if engine.health().events % 3:
            await engine.feedback("home", row.id, float(row.seq % 2))


async def begun(store, times):
    await reached(lambda: store.begun >= times)


@pytest.fixture(params=[access.MIN_WORKSPACE, 0], ids=["copied at once", "memory touched first"])
def least_room(request, monkeypatch):
    access.patch_internal(monkeypatch, MIN_WORKSPACE=request.param)


@pytest.mark.usefixtures("kind", "least_room")
async def test_decisions_go_on_while_a_snapshot_is_written(tmp_path):
    path, config = tmp_path / "s.db", configured()
    store = SlowStore(store_at(path))
    async with served(store, config) as engine:
        await decided(engine, 25)
        await begun(store, 1)
        at_copy = engine.health().events
        async with asyncio.timeout(PATIENCE):
            await decided(engine, 60)
        # Only one is under way, however much would be due.
        assert store.begun == 1
        assert store.snapshots.load(1) is None
        assert access.get_snapshot_time(engine.placements["home"]) is None
        store.goes_on.set()
        await engine.writer.upkeep.wait_for_snapshot()
        snapshot = store.snapshots.load(1)
        assert 20 <= snapshot.seq <= at_copy < engine.health().events
        assert access.get_snapshot_time(engine.placements["home"]) == snapshot.time
    live = engine.placements["home"]
    store = store_at(path)
    kept = access.load_placement("home", config.placements["home"], store, 0, snapshot=False)
    rows = list(store.events(0))
    access.apply_rows({kept.id: kept}, [row for row in rows if row.seq <= snapshot.seq])
    assert arrays(from_bytes(snapshot.learner, "snapshot", restore_learner)) == arrays(
        access.get_learner(kept)
    )
    # The snapshot of the middle and the rest of the log lead to what was live.
    save_snapshot(store.snapshots, snapshot)
    with recovered(store, config) as again:
        assert everything(again.placements["home"]) == everything(live)


@pytest.mark.usefixtures("least_room")
async def test_whoever_stops_at_once_has_it_all_saved(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        await decided(engine, 25)
    events = engine.health().events
    with recovered(tmp_path / "s.db", configured()) as again:
        assert again.store.snapshots.load(1).seq == events


@pytest.mark.usefixtures("kind", "least_room")
async def test_stopping_waits_for_the_snapshot_under_way(tmp_path):
    path = tmp_path / "s.db"
    store = SlowStore(store_at(path))
    engine = access.Engine(configured(), store)
    await engine.start()
    await decided(engine, 25)
    await begun(store, 1)
    stopping = asyncio.create_task(engine.stop())
    await asyncio.sleep(0.05)
    assert not stopping.done()
    store.goes_on.set()
    await stopping
    events = engine.health().events
    store = store_at(path)
    assert store.snapshots.load(1).seq == events
    store.close()


@pytest.mark.usefixtures("kind")
def test_a_snapshot_that_fails_costs_time_only(tmp_path, caplog):
    path, config = tmp_path / "s.db", configured()

    async def session():
        store = SlowStore(store_at(path))
        store.fails = True
        store.goes_on.set()
        async with served(store, config) as engine:
            await decided(engine, 40)
        assert engine.writer.failure is None
        return engine.placements["home"]

    with caplog.at_level(logging.WARNING):
        live = asyncio.run(session())
    assert "no snapshot of placement home: store: the disk is full" in caplog.text
    store = store_at(path)
    assert store.snapshots.load(1) is None
    assert everything(access.Engine(config, store).placements["home"]) == everything(live)
    store.close()


def test_a_crash_while_a_snapshot_is_written_leaves_the_one_before(tmp_path, kind):
    path = tmp_path / "s.db"
    store = store_at(path)
    store.placement("home", '{"name": "UCB1", "arms": 3}', 7)
    save_snapshot(store.snapshots, SNAPSHOT)
    large = [("learner", bytes([i]) * PIECE) for i in range(6)]
    steps = store.snapshots.save_in_steps(Draft(1, 9, START, "{}", iter(large)))
    for _ in range(4):
        next(steps)
    # Nothing more comes: the process is gone.
    store.close()
    store = store_at(path)
    assert store.snapshots.load(1) == SNAPSHOT
    assert sql(path, kind, PIECES) == [(2,)]
    rest = [("series", b""), ("shadow", b"second"), ("windows", b"w")]
    draft = Draft(1, 9, START, "{}", iter(large + rest))
    stood = [store.snapshots.load(1).seq for _ in store.snapshots.save_in_steps(draft)]
    assert stood == sorted(stood)
    assert set(stood) == {5, 9}
    found = store.snapshots.load(1)
    assert found.learner == b"".join(content for _, content in large)
    assert (found.seq, found.shadow, found.series, found.windows) == (9, b"second", b"", b"w")
    # What no snapshot needs any more is gone, whoever began it.
    assert sql(path, kind, PIECES) == [(1,)]
    assert store.snapshots.load_base(1) is None
    assert store.snapshots.find_base_end(1) is None
    store.close()


def test_pieces_are_those_of_the_moment_and_no_larger_than_needed():
    learner = Learner(tacit.Thompson(10), seed=3)
    keys = [f"clé “{i}”" for i in range(50_000)]
    learner.learn_many(learner.choose_many(keys), np.ones(len(keys)))
    few = Learner(tacit.Thompson(10), seed=3)
    few.choose_many(keys[:7])
    small, large = (CopyBuffer(make_snapshot(one).arrays) for one in (few, learner))
    assert len(list(large.touch_pages())) > 3
    then = b"".join(iter_pieces(make_snapshot(learner)))
    parts, *others = (make_snapshot(learner).copy(room) for room in (None, small, large))
    learner.learn_many(learner.choose_many([*keys, "new"]), np.zeros(len(keys) + 1))
    written = list(iter_pieces(parts))
    for one in (written, *map(iter_pieces, others)):
        assert b"".join(one) == then
    assert len(written) > 3
    assert max(map(len, written)) <= 2.1 * PIECE
    assert arrays(from_bytes(then, "then", restore_learner))[0] == keys
    assert arrays(from_bytes(then, "then", restore_learner)) != arrays(learner)


async def test_a_snapshot_is_of_the_moment_of_its_copy_however_late_it_is_written(tmp_path):
    table = {"arms": 2, "metrics": {"seconds": {}}, "holdout": {"share": 0.5}}
    async with served(tmp_path / "s.db", harness.with_home(**table)) as engine:
        home, row = engine.placements["home"], await engine.decide("home", "a")
        told = FeedbackRequest(row.id, reward=1.0, metrics=encode_metrics({"seconds": 1}))
        for offset in 1, 2:
            written, later = list(access.draft_pieces(home)), access.draft_pieces(home)
            await engine.record_many("home", [told])
            await engine.ask("home", FedOf("clicks", {"0": offset}))
            assert list(later) == written != list(access.draft_pieces(home))


# Beyond the end of the log -------------------------------------------------------------------


def cut(path, config, keep):
    """Drop the last rows, as of a store that was restored in part; return where it ends now."""
    store = store_at(path)
    try:
        rows = list(store.events(0))
        lost = Rows([], [], [])
        for row in rows[int(keep * len(rows)) :]:
            (lost.decisions if isinstance(row, DecisionRow) else lost.feedback).append(row)
        drop_rows(store, OldRows(lost, []))
        return store.end().seq
    finally:
        store.close()


def test_what_was_learned_beyond_the_end_of_the_log_is_set_aside(kind, tmp_path, caplog):
    """Or rows to come, which have the numbers of those that are missing, would teach nothing."""
    path = tmp_path / "s.db"
    home = {"arms": 3, "seed": 7, "policy": "ucb1"}
    config = harness.configured(placements={"home": home, "other": home})

    async def decided(first, count):
        async with harness.served(path, config) as engine:
            for i in range(first, first + count):
                await engine.feedback("home", (await engine.decide("home", "key", id=f"d {i}")).id, 1.0)
            return learned(engine)

    asyncio.run(decided(0, 20))
    assert cut(path, config, 0.5) == 20
    asyncio.run(decided(100, 3))
    assert "the log ends with row 20, before what was learned up to row 40" in caplog.text
    # Once more, as it went: as many rows as there had been, and learned from no snapshot.
    live = asyncio.run(decided(200, 15))
    with recovered(path, config) as folded:
        assert learned(folded) == live
        assert access.get_learner(folded.placements["home"]).state.plays.sum() == 10 + 3 + 15


async def test_a_log_that_ends_before_its_base_is_refused(tmp_path):
    path = tmp_path / "s.db"
    config = harness.with_home(arms=3, policy="ucb1", retention=1.0)
    clock = Clock()
    async with harness.served(path, config, clock) as engine:
        for i in range(30):
            clock.now += 3_600_000_000 * 2
            await engine.decide("home", "key", id=f"d {i}")
        await quiet(engine)
    cut(path, config, 0.1)
    store = store_at(path)
    try:
        with pytest.raises(StoreError, match="rows are missing; restore a backup"):
            access.Engine(config, store, Clock())
    finally:
        store.close()


def test_two_that_are_written_at_once_are_both_whole(kind, tmp_path):
    """The first one that is done sweeps what belongs to none, and the other one's is no such."""
    store = store_at(tmp_path / "s.db")
    try:
        placement = store.placement("home", "{}", 7).id
        half = SNAPSHOT._replace(placement=placement, learner=b"x" * 3 * BATCH)

        def pieces():
            yield from (("learner", b"x" * BATCH) for _ in range(3))
            yield "series", half.series
            yield "windows", half.windows

        base = store.snapshots.save_in_steps(Draft(*half[:4], pieces()), BASES)
        next(base)
        save_snapshot(store.snapshots, SNAPSHOT._replace(placement=placement))
        for _ in base:
            pass
        assert store.snapshots.load_base(placement) == half
        assert store.snapshots.load(placement) == SNAPSHOT._replace(placement=placement)
    finally:
        store.close()
