"""Retention and backups: old rows go, what they taught stays, and the rest can be verified."""

import contextlib
import json
import subprocess
import threading

import harness
import numpy as np
import psycopg
import pyarrow.parquet as pq
import pytest
import stores
from harness import START, Client, Clock, learned, quiet, reached, recovered, served
from placement_access import Engine
from placement_access import upkeep as retention
from stores import store_at

from tacit.errors import ConfigError
from tacit.service.app.server import run_in_thread
from tacit.service.config.file import load_config
from tacit.service.errors import StoreError, UnknownDecision
from tacit.service.log.archive import backup
from tacit.service.log.ids import as_text
from tacit.service.log.rows import DecisionRow, RecordRow
from tacit.service.log.sql import add_records, read_records, save_snapshot
from tacit.service.log.sqlite import SqliteStore
from tacit.service.log.store import BASES
from tacit.service.maintenance.doctor import verify
from tacit.service.maintenance.log_export import export, import_log
from tacit.wire.control import ModeOf
from tests.cli.test_cli import tacit as tacit_command

HOUR = 3_600_000_000
DAY = 24 * HOUR
HOME = {"arms": 3, "seed": 7, "policy": "thompson", "aggregation": "sum"}


def keeping(days=1.0, archive=None, home=None, **values):
    """Return the configuration of a service that keeps its log for some days."""
    placements = {"home": HOME | (home or {}), "other": {"arms": 2, "seed": 7}}
    values |= {"store.retention": days, "store.archive": archive and str(archive)}
    return harness.configured(placements=placements, **values)


async def traffic(engine, rounds, first=0):
    """Decide every two hours in both placements, with feedback in time, late, and none."""
    for i in range(first, first + rounds):
        rng = np.random.default_rng(i)
        engine.clock.now = START + i * 2 * HOUR
        # The ids are given, so that every run draws the same.
        row = await engine.decide("home", f"key {rng.integers(3)}", id=f"home {i}")
        await engine.decide("other", "k", id=f"other {i}")
        if i % 3:
            await engine.feedback("home", row.id, float(rng.integers(2)), f"first {i}")
        if i % 4 == 0:
            engine.clock.now += HOUR
            await engine.feedback("home", row.id, 1.0, f"second {i}")
        if i % 5 == 0:
            record = RecordRow(engine.placements["home"].id, "query", f"record {i}", engine.clock.now, "{}")
            await engine.writer.call_store(add_records, engine.store, [record])


def rows(store):
    return [(type(row).__name__, *row) for row in store.events(0)]


def everything(path, config):
    """Return what is learned from a store, bit for bit."""
    with contextlib.closing(store_at(path)) as store:
        placements = Engine(config, store, Clock()).placements
        return {name: harness.everything(placement) for name, placement in placements.items()}


async def run(path, config, rounds=30):
    async with served(path, config) as engine:
        await traffic(engine, rounds)
        await quiet(engine)
        return {name: learned(engine, name) for name in engine.placements}


@pytest.mark.usefixtures("kind")
async def test_old_rows_go_and_what_was_learned_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(retention, "ROWS", 4)
    plain, kept = tmp_path / "plain.db", tmp_path / "kept.db"
    config = keeping(archive=tmp_path / "old")
    live = await run(kept, config)
    assert live == await run(plain, keeping(None))
    assert everything(kept, config) == everything(plain, config) == live
    store, whole = store_at(tmp_path / "kept.db"), store_at(tmp_path / "plain.db")
    left, all_rows = rows(store), rows(whole)
    end = max(row[1] for row in all_rows)
    # Two decisions every two hours: of 60 some 24 are of the last day, and some more of the hour
    # before it was looked again.
    assert 24 <= len([row for row in left if row[0] == "DecisionRow"]) <= 30
    assert left[-1][1] == end
    assert set(left) <= set(all_rows)
    assert verify(keeping(), store) == []
    archived = archived_rows(tmp_path / "old")
    gone = {(row[0], row[1]) for row in all_rows} - {(row[0], row[1]) for row in left}
    ticks = {("ChangeRow", row[1]) for row in all_rows if row[0] == "ChangeRow" and row[2] is None}
    assert archived == gone - ticks
    assert 2 <= len([json.loads(r.content) for r in read_records(store)]) < 6
    assert len(list(read_records(whole))) == 6
    store.close()
    whole.close()


def archived_rows(folder):
    """Return kind and sequence number of all rows of an archive, each there once."""
    names = {"decisions": "DecisionRow", "feedback": "FeedbackRow", "marks": "ChangeRow"}
    found = [
        (names[path.name.partition("-")[0]], seq)
        for path in folder.rglob("*.parquet")
        if not path.name.startswith("records")
        for seq in pq.read_table(path)["seq"].to_pylist()
    ]
    assert len(found) == len(set(found))
    return set(found)


@pytest.mark.usefixtures("kind")
async def test_the_rest_of_the_log_is_verified_from_where_it_begins(tmp_path):
    path, config = tmp_path / "s.db", keeping()
    live = await run(path, config)
    with contextlib.closing(store_at(path)) as store:
        snapshot, base = store.snapshots.load(1), store.snapshots.load_base(1)
        assert 1 < base.seq <= snapshot.seq
        # A damaged snapshot costs time, a damaged base the past.
        save_snapshot(store.snapshots, snapshot._replace(learner=b"?"))
    assert everything(path, config) == live
    with contextlib.closing(store_at(path)) as store:
        save_snapshot(store.snapshots, snapshot._replace(seq=1, learner=b"older than the base"))
    assert everything(path, config) == live
    with contextlib.closing(store_at(path)) as store:
        save_snapshot(store.snapshots, snapshot)
        windows = base.windows.replace(b'"feedback":', b'"feedback":1')
        save_snapshot(store.snapshots, base._replace(windows=windows), BASES)
        assert "home" in verify(config, store)[0]
        save_snapshot(store.snapshots, base._replace(learner=b"?"), BASES)
        save_snapshot(store.snapshots, snapshot._replace(learner=b"?"))
        with pytest.raises(StoreError, match=r"home: what it had .* restore a backup"):
            Engine(config, store, Clock())


async def test_what_is_dropped_is_forgotten_and_what_is_open_is_not(tmp_path):
    config = keeping(days=0.5, home={"attribution_window": 2_592_000})
    async with served(tmp_path / "s.db", config) as engine:
        await engine.decide("other", "k", id="old")
        await engine.decide("home", "k", id="open")
        await engine.decide("home", "k", id="closed", deferred=True)
        for hours in (13, 15):
            engine.clock.now = START + hours * HOUR
            await engine.decide("other", "k")
            await quiet(engine)
        with pytest.raises(UnknownDecision):
            await engine.feedback("other", "old", 1.0)
        assert await engine.feedback("home", "open", 1.0) == "learned"
    with recovered(tmp_path / "s.db", config) as again:
        ids = [row.id for row in again.store.events(0) if isinstance(row, DecisionRow)]
    assert "old" not in ids
    assert "open" in ids


async def test_with_another_rule_or_shadow_it_goes_on_from_what_was_learned(tmp_path):
    path = tmp_path / "s.db"
    live = await run(path, keeping())
    for change in ({"attribution_window": 5.0}, {"shadow": "ucb1"}, {"propensities": False}):
        config = keeping(home=change)
        found = everything(path, config)
        keys, *_ = found["home"]
        assert keys == live["home"][0]
        assert found["other"] == live["other"]
    config = keeping(home={"shadow": "ucb1"})
    async with served(path, config, Clock(START + 100 * HOUR)) as engine:
        await engine.ask("home", ModeOf("shadow"))
        row = await engine.decide("home", "key 0")
        await engine.feedback("home", row.id, 1.0)
        assert row.would is not None
    with recovered(path, config):
        pass


async def test_what_is_open_where_the_log_begins_is_not_learned_by_another_shadow(tmp_path):
    path, home = tmp_path / "s.db", {"attribution_window": 30_000.0, "mode": "shadow", "shadow": "thompson"}
    live = await run(path, keeping(home=home))
    assert everything(path, keeping(home=home | {"shadow": "ucb1"}))["home"][:2] == live["home"][:2]


@pytest.mark.usefixtures("kind")
async def test_it_moves_to_another_store_and_goes_on(tmp_path):
    # So long that windows are open where the log begins.
    path, config = tmp_path / "s.db", keeping(home={"attribution_window": 30_000.0})
    live = await run(path, config)
    store, new = store_at(path), store_at(tmp_path / "new.db")
    export(config, store, tmp_path / "out")
    store.close()
    # Here the placements have other numbers.
    new.placement("first", json.dumps({"name": "UCB1", "arms": 2}), 1)
    with pytest.raises(StoreError, match="not empty"):
        import_log(new, tmp_path / "out")
    new.close()
    with contextlib.closing(store_at(tmp_path / "third.db")) as new:
        import_log(new, tmp_path / "out")
        assert new.snapshots.load_base(1) is not None
        assert verify(config, new) == []
    found = everything(tmp_path / "third.db", config)
    assert {name: each[:2] for name, each in found.items()} == {name: each[:2] for name, each in live.items()}


async def test_what_cannot_be_archived_is_not_dropped(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    await run(tmp_path / "s.db", keeping(archive=tmp_path / "file" / "folder"))
    assert counted(tmp_path / "s.db") == 60
    assert "store.archive" in caplog.text


async def test_each_placement_may_keep_its_own_time(tmp_path):
    config = keeping(1.0, home={"retention": float("inf")})
    assert config.placements["home"].retention == float("inf")
    await run(tmp_path / "s.db", config)
    with contextlib.closing(store_at(tmp_path / "s.db")) as store:
        ids = [row.id for row in store.events(0) if isinstance(row, DecisionRow)]
        assert sum(id.startswith("home") for id in ids) == 30
        assert sum(id.startswith("other") for id in ids) < 16
    with pytest.raises(ConfigError, match=r"store\.retention"):
        keeping(0.0)
    file = tmp_path / "tacit.toml"
    file.write_text('[store]\narchive = "old"\nretention = 2\n[placements.a]\narms = 2\n')
    read = load_config(file)
    assert read.store.archive == str(tmp_path / "old")
    assert read.placements["a"].retention == 2


# Backups -------------------------------------------------------------------------------------


def test_a_backup_of_a_store_in_use_is_a_store(tmp_path):
    path, copy = tmp_path / "s.db", tmp_path / "copy.db"
    overrides = {"store.path": str(path)}
    told = 0
    with run_in_thread(keeping(None, **overrides)) as address:
        stop = threading.Event()
        acknowledged = []

        def load():
            client = Client(address)
            while not stop.is_set():
                acknowledged.append(client.post("home/decide", {"key": "k"})[2]["decision_id"])

        thread = threading.Thread(target=load)
        thread.start()
        try:
            while len(acknowledged) < 20:
                stop.wait(0.01)
            told = len(acknowledged)
            result = tacit_command("log", "backup", "--store", path, copy, "--json")
        finally:
            stop.set()
            thread.join()
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["bytes"] == copy.stat().st_size
    store, copied = SqliteStore(path), SqliteStore(copy)
    whole, part = rows(store), rows(copied)
    assert told <= len(part) <= len(whole)
    assert part == whole[: len(part)]
    assert verify(keeping(None), copied) == []
    store.close()
    copied.close()
    # Another one replaces it.
    assert backup(path, copy) > 0


def test_a_backup_that_cannot_be_made_says_why(tmp_path):
    with pytest.raises(StoreError, match="there is no store"):
        backup(tmp_path / "nothing.db", tmp_path / "copy.db")
    SqliteStore(tmp_path / "s.db").close()
    with pytest.raises(StoreError, match="cannot be written"):
        backup(tmp_path / "s.db", tmp_path / "nowhere" / "copy.db")
    (tmp_path / "text.db").write_text("text" * 1000)
    with pytest.raises(StoreError):
        backup(tmp_path / "text.db", tmp_path / "copy.db")
    assert not list(tmp_path.glob("*copy*"))
    refused = tacit_command("log", "backup", "--store", "postgresql://u@h/d", tmp_path / "c")
    assert refused.returncode == 2
    assert "pg_dump" in refused.stderr


async def test_postgresql_is_backed_up_by_its_own_tools_while_in_use(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "chosen", "postgres")
    path = tmp_path / "s.db"
    url, schema = stores.cluster().url, stores.schema_of(path)
    dump = tmp_path / "dump.sql"

    async with served(path, keeping()) as engine:
        await traffic(engine, 20)
        command = [stores.binary("pg_dump"), "--schema", schema, "--file", dump, url]
        subprocess.run(list(map(str, command)), check=True)
        dumped = rows(engine.store)
        await traffic(engine, 3, first=20)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA {schema} CASCADE")
    subprocess.run([str(stores.binary("psql")), "-q", "-f", str(dump), url], check=True)
    with contextlib.closing(store_at(path)) as store:
        assert rows(store) == dumped
        assert verify(keeping(), store) == []


# A clock that is wrong ------------------------------------------------------------------------

YEARS = 3653 * DAY


async def with_old_rows(path, config):
    """Leave a log of two days' decisions."""
    async with served(path, config) as engine:
        await traffic(engine, 24)


def counted(path):
    with contextlib.closing(store_at(path)) as store:
        return sum(isinstance(row, DecisionRow) for row in store.events(0))


@contextlib.asynccontextmanager
async def by_wall(path, config, clock, wall):
    """Yield an engine that sees the clock of its machine."""
    engine = Engine(config, store_at(path), clock, wall=wall)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


async def test_a_start_with_a_clock_that_is_ahead_is_refused_and_drops_nothing(kind, tmp_path):
    path, config = tmp_path / "s.db", keeping(days=90.0)
    await with_old_rows(path, config)
    before, store = counted(path), store_at(path)
    last = store.end().time
    ahead = Clock(last + YEARS)
    with pytest.raises(ConfigError, match="--clock-is-right") as refused:
        Engine(config, store, ahead, wall=ahead)
    assert as_text(last) in str(refused.value)
    assert as_text(last + YEARS) in str(refused.value)
    # Half of what rows are kept for, and a day, are no jump; and nothing goes where all is kept.
    for days, keep in ((44, 90.0), (0.9, 1.0), (3653, None)):
        late = Clock(int(last + days * DAY))
        Engine(keeping(keep), store, late, wall=late)
    store.close()
    assert counted(path) == before


async def test_a_clock_that_was_confirmed_drops_nothing_for_an_hour(tmp_path):
    path = tmp_path / "s.db"
    await with_old_rows(path, keeping(days=90.0))
    confirmed = keeping(days=90.0, **{"store.clock_is_right": True})
    before, clock = counted(path), Clock(START + YEARS)
    async with by_wall(path, confirmed, clock, clock) as engine:
        for minutes, left in ((1, before + 1), (30, before + 2), (59, before + 3), (60, 4)):
            clock.now = START + YEARS + minutes * HOUR // 60
            await engine.decide("home", "k")
            await quiet(engine)
            assert sum(isinstance(row, DecisionRow) for row in engine.store.events(0)) == left


async def test_a_clock_that_is_set_while_it_runs_is_told_and_drops_nothing(tmp_path, caplog):
    path, config = tmp_path / "s.db", keeping(days=1.0)
    clock, wall = Clock(), Clock()
    async with by_wall(path, config, clock, wall) as engine:
        await engine.decide("home", "k")
        wall.now += YEARS
        await engine.decide("home", "k")
        await reached(lambda: "clock of this machine was set by +315619200 s" in caplog.text)
        assert engine.health().wall_ahead == YEARS / 1e6
        # The log's time goes on, and rows are of the time that has passed.
        clock.now, wall.now = clock.now + DAY // 2, wall.now + DAY // 2
        row = await engine.decide("home", "k")
        assert row.time == START + DAY // 2
        assert sum(isinstance(row, DecisionRow) for row in engine.store.events(0)) == 3


async def test_rows_age_by_the_wall_where_the_log_is_ahead_of_it(tmp_path, caplog):
    """As after a start with a clock that was years ahead, where nothing was dropped."""
    path, config = tmp_path / "s.db", keeping(days=1.0)
    async with served(path, config) as engine:
        await engine.decide("home", "k")
    async with served(path, config, Clock(START + YEARS)) as engine:
        await engine.decide("home", "k", id="carried away")
        await quiet(engine)
    clock = Clock(START + DAY)
    async with by_wall(path, config, clock, clock) as engine:
        assert "the log is ahead of this machine's clock" in caplog.text
        for days in (2, 3, 4):
            clock.now = START + days * DAY
            await engine.decide("home", "k", id=f"day {days}")
            await quiet(engine)
        assert engine.health().wall_ahead < -YEARS / 2e6
        ids = [row.id for row in engine.store.events(0) if isinstance(row, DecisionRow)]
        assert ids == ["carried away", "day 2", "day 3", "day 4"]
