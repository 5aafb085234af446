"""A store belongs to one writer, is noticed when it goes, and never gives damage for truth."""

import asyncio
import hashlib
import logging
import os
import shutil
import subprocess
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import placement_access as access
import psycopg
import pyarrow.parquet as pq
import pytest
import stores
from forked import Forked, ran
from harness import PATIENCE, SERVE, START, Client, eventually, reached, served, with_policy
from stores import sql, store_at

import tacit
from tacit.service.config.schema import Rule
from tacit.service.errors import NotDurable, StoreError
from tacit.service.log.archive import backup
from tacit.service.log.requests import DecisionRequest
from tacit.service.log.rows import ChangeRow, DecisionRow, FeedbackRow, Rows, merge_rows
from tacit.service.log.sql import save_snapshot
from tacit.service.log.sqlite import SqliteStore
from tacit.service.log.store import BASES, SNAPSHOTS, Snapshot
from tacit.service.maintenance.doctor import verify
from tacit.service.maintenance.log_export import export, import_log

ARMS = ("holiday", "film", "recipe")
SNAPSHOT = Snapshot(1, 5, START, "{}", b"learner", b"shadow", b"series", b"windows")
OPEN = "import sys; from tacit.service.log.sqlite import SqliteStore; SqliteStore(sys.argv[1])"


configured = partial(with_policy, tacit.Thompson(ARMS))


async def traffic(engine, count):
    rows = []
    for i in range(count):
        rows.append(await engine.decide("home", f"key {i % 5}", id=f"#{i}"))
        if i % 3:
            await engine.feedback("home", rows[-1].id, float(i % 2))
    return rows


def tick(seq):
    return Rows([], [], [ChangeRow(seq, None, START + seq, "tick", "")])


def decision(seq, id="x"):
    return Rows([DecisionRow(seq, id, 1, 1, START, "k", None, "film", 0.5, 0, None)], [], [])


def feedback(seq, of):
    return Rows([], [FeedbackRow(seq, 1, of, None, START, "reward", 1.0)], [])


def in_another_process(path):
    return ran(["-c", OPEN, path])


# One writer ----------------------------------------------------------------------------------


def other_names(path):
    """Give other names of a store, and what makes its lock file go."""
    link = path.with_name("link.db")
    link.symlink_to(path)
    yield link
    Path(f"{path}.lock").unlink()
    yield path
    yield link
    Path(f"{path}.lock").unlink(missing_ok=True)
    hard = path.with_name("hard.db")
    os.link(path, hard)
    yield hard
    hard.unlink()


def test_a_store_belongs_to_one_process_by_whatever_name(tmp_path):
    path = tmp_path / "s.db"
    with closing(SqliteStore(path)) as store:
        for name in other_names(path):
            found = in_another_process(name)
            assert found.returncode == 1
            assert "in use by another process" in found.stderr or "hard links" in found.stderr
            with pytest.raises(StoreError, match=r"in use by another process|hard links"):
                SqliteStore(name)
            store.append(tick(store.end().seq + 1))
            assert len(list(store.events(0))) == store.end().seq
            backup(path, tmp_path / "copy.db")
    assert in_another_process(path.with_name("link.db")).returncode == 0


def test_the_latest_owner_of_a_file_alone_can_write(tmp_path):
    path = tmp_path / "s.db"
    with closing(SqliteStore(path)) as store:
        store.append(tick(1))
        sql(path, "sqlite", "UPDATE store SET epoch = epoch + 1")
        for attempt in (lambda: store.append(tick(2)), lambda: store.probe(1), store.check):
            with pytest.raises(StoreError, match="was taken over in epoch 2"):
                attempt()
        assert store.end().seq == 1


def test_a_schema_has_one_owner_even_where_locks_do_not_hold(tmp_path, monkeypatch):
    """Between a server and its database, a pooler may give all clients the same session."""
    monkeypatch.setattr(stores, "chosen", "postgres")
    with closing(store_at(tmp_path)) as first:
        first.append(tick(1))
        monkeypatch.setattr("tacit.service.log.postgres.hashlib", SimpleNamespace(sha256=hashlib.sha512))
        second = store_at(tmp_path)
        with pytest.raises(StoreError, match="was taken over in epoch 2"):
            first.append(tick(2))
        with pytest.raises(StoreError, match="was taken over"):
            first.check()
        second.append(tick(2))
        assert [event.seq for event in second.events(0)] == [1, 2]
    second.close()


@pytest.mark.usefixtures("kind")
def test_a_number_is_taken_once_in_all_tables(tmp_path):
    with closing(store_at(tmp_path / "s.db")) as store:
        store.placement("home", "{}", 7)
        store.append(decision(1))
        store.append(tick(2))
        store.append(feedback(3, 1))
        many = Rows([], [], [ChangeRow(seq, None, START, "tick", "") for seq in range(90, 2, -1)])
        wrong = [tick(1), tick(3), feedback(1, 1), feedback(2, 1), decision(2, "y"), decision(3, "y")]
        for rows in (*wrong, Rows(decision(5, "y").decisions, [], tick(5).changes), many):
            with pytest.raises(StoreError, match=r"this seq|UNIQUE|[Uu]nique"):
                store.append(rows)
        assert [(event.seq, type(event)) for event in store.events(0)] == [
            (1, DecisionRow), (2, ChangeRow), (3, FeedbackRow),
        ]  # fmt: skip
        store.append(tick(4))


async def filled(path, count=20, config=None):
    """Serve a store for a number of decisions; return the placement as it was then."""
    async with served(store_at(path), config or configured()) as engine:
        await traffic(engine, count)
    return engine.placements["home"]


async def with_doubles(path, kind):
    """Make a log as two servers of version 0.1 could leave it."""
    await filled(path, 30)
    drop = [] if kind == "sqlite" else ["DROP TRIGGER marks_seq ON marks"]
    added = (
        f"INSERT INTO marks (seq, placement, time, kind, value) "
        f"SELECT seq, NULL, time, 'tick', '' FROM {table} WHERE seq BETWEEN 5 AND 9"
        for table in ("decisions", "feedback")
    )
    sql(path, kind, *drop, *added)


async def test_readers_of_a_log_with_doubles_say_so_and_end(tmp_path, kind, caplog):
    path = tmp_path / "s.db"
    await with_doubles(path, kind)
    with closing(store_at(path)) as store:
        config = configured()
        with caplog.at_level(logging.ERROR):
            seqs = [event.seq for event in store.events(0)]
        assert seqs == sorted(seqs)
        assert len(seqs) == len(set(seqs)) + 5
        assert caplog.text.count("row 5 is there twice") == 1
        assert any("row 5 is there twice" in one for one in verify(config, store))
        assert export(config, store, tmp_path / "out")["marks"] == 5
        assert access.Engine(config, store).placements["home"].decisions == 30
    with closing(store_at(tmp_path / "t.db")) as empty, pytest.raises(StoreError, match="this seq"):
        import_log(empty, tmp_path / "out")


def test_parts_with_equal_numbers_are_merged_to_the_end():
    parts = [tick(s).changes[0] for s in (1, 2, 4)], [tick(s).changes[0] for s in (1, 1, 3, 4)]
    assert [row.seq for row in merge_rows([iter(part) for part in parts])] == [1, 1, 1, 2, 3, 4, 4]


# A store that goes ---------------------------------------------------------------------------


def removed(path):
    for side in ("", "-wal", "-shm"):
        Path(f"{path}{side}").unlink()


def replaced(path):
    backup(path, path.with_name("copy.db"))
    os.replace(path.with_name("copy.db"), path)


def moved(path):
    path.rename(path.with_name("elsewhere.db"))


def cut(path):
    os.truncate(path, 0)


def without_its_log(path):
    Path(f"{path}-wal").unlink()


def led_elsewhere(path):
    other = path.with_name("other.db")
    SqliteStore(other).close()
    path.with_name("link.db").unlink()
    path.with_name("link.db").symlink_to(other)


@pytest.mark.parametrize(
    "harm", [removed, replaced, moved, cut, without_its_log, led_elsewhere], ids=lambda f: f.__name__
)
async def test_a_store_that_goes_is_noticed_and_nothing_is_acknowledged(tmp_path, harm, caplog):
    path = tmp_path / "s.db"
    (tmp_path / "link.db").symlink_to(path)

    with caplog.at_level(logging.ERROR):
        async with served(SqliteStore(tmp_path / "link.db"), configured()) as engine:
            row = await engine.decide("home", "a", id="before")
            harm(path)
            # What is asked again needs no commit, and is as lost as the rest.
            with pytest.raises(NotDurable):
                await engine.decide("home", "a", id="before")
            for attempt in (
                engine.decide("home", "b"),
                engine.feedback("home", row.id, 1.0),
                access.decide(engine, DecisionRequest("c")),
            ):
                with pytest.raises(NotDurable):
                    await attempt
            assert not engine.health().ready
    assert "while it was served" in caplog.text


async def test_a_store_that_goes_is_noticed_without_any_request(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("tacit.service.engine.writer.WATCH_SECONDS", 0.01)

    with caplog.at_level(logging.ERROR):
        async with served(SqliteStore(tmp_path / "s.db"), configured()) as engine:
            await engine.decide("home", "a")
            removed(tmp_path / "s.db")
            await reached(lambda: not engine.health().ready)
            with pytest.raises(NotDurable):
                await engine.decide("home", "a")
    assert "s.db cannot be found any more while it was served" in caplog.text


async def test_a_store_that_comes_back_is_served_again(tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.service.engine.writer.RETRY_SECONDS", 0.01)
    path = tmp_path / "s.db"

    async with served(SqliteStore(path), configured()) as engine:
        await engine.decide("home", "a", id="1")
        moved(path)
        with pytest.raises(NotDurable):
            await engine.decide("home", "a", id="2")
        path.with_name("elsewhere.db").rename(path)
        await reached(lambda: engine.health().ready)
        await engine.decide("home", "a", id="3")
    with closing(SqliteStore(path)) as store:
        assert {"1", "3"} <= {event.id for event in store.events(0)}
        assert verify(configured(), store) == []


async def test_a_schema_that_goes_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "chosen", "postgres")
    access.patch_internal(monkeypatch, RETRY_SECONDS=0.0)
    url, schema, dump = stores.cluster().url, stores.schema_of(tmp_path), tmp_path / "dump.sql"

    async with served(store_at(tmp_path), configured()) as engine:
        await traffic(engine, 10)
        command = [stores.binary("pg_dump"), "--schema", schema, "--file", dump, url]
        subprocess.run(list(map(str, command)), check=True)
        await traffic(engine, 20)
        sql(tmp_path, "postgres", f"DROP SCHEMA {schema} CASCADE")
        with pytest.raises(NotDurable):
            await engine.decide("home", "a")
        command = [stores.binary("psql"), "--quiet", "--file", dump, url]
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
        with pytest.raises(NotDurable):
            await engine.decide("home", "a")
        assert "was replaced while it was served" in str(engine.writer.failure)
    # The dump is a store.
    with closing(store_at(tmp_path)) as store:
        assert verify(configured(), store) == []
        store.append(tick(store.end().seq + 1))


def test_a_database_that_went_back_is_noticed(tmp_path, monkeypatch):
    """A standby that takes over may not have the last commits yet."""
    monkeypatch.setattr(stores, "chosen", "postgres")
    with closing(store_at(tmp_path)) as store:
        for seq in (1, 2):
            store.append(tick(seq))
        sql(
            tmp_path,
            "postgres",
            "DELETE FROM marks WHERE seq = 2",
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tacit'",
        )
        with pytest.raises(StoreError):
            store.append(tick(3))
        with pytest.raises(StoreError, match="ends at row 1, although row 2 was committed"):
            store.append(tick(3))


@pytest.mark.parametrize("left", [".lock", "-wal"])
def test_a_store_that_was_there_is_not_begun_anew_in_silence(tmp_path, left):
    path, copy = tmp_path / "s.db", tmp_path / "copy.db"
    with closing(SqliteStore(path)) as store:
        store.append(tick(1))
        backup(path, copy)
        wal = Path(f"{path}-wal").read_bytes()
    lock = Path(f"{path}.lock")
    path.unlink()
    if left == "-wal":
        lock.unlink()
        Path(f"{path}-wal").write_bytes(wal)
    for content in (None, b""):
        if content is not None:
            path.write_bytes(content)
        found = in_another_process(path)
        assert found.returncode == 1
        assert f"is missing or empty, but {path}{left} tells of a store" in found.stderr
    # Either remedy that the message names helps.
    shutil.copy(copy, path)
    if left == "-wal":
        Path(f"{path}-wal").unlink()
    with closing(SqliteStore(path)) as store:
        assert store.end().seq == 1
    path.unlink()
    lock.unlink()
    with closing(SqliteStore(path)) as store:
        assert store.end().seq == 0


def test_a_backup_replaces_a_backup_and_nothing_else(tmp_path):
    path = tmp_path / "s.db"
    with closing(SqliteStore(path)) as store:
        store.append(tick(1))
        (tmp_path / "link.db").symlink_to(path)
        for target in (path, tmp_path / "link.db"):
            with pytest.raises(StoreError, match="is the store itself"):
                backup(path, target)
        other = tmp_path / "tacit.toml"
        other.write_text("# what a store is served by\n" * 4)
        with pytest.raises(StoreError, match="is there, and no backup; give another path"):
            backup(path, other)
        assert other.read_text().startswith("# what")
        other.write_text("a key of some 50 characters, as `tacit key` makes")
        with pytest.raises(StoreError, match="no backup"):
            backup(path, other)
        other.write_text("")
        assert backup(path, other) > 0
        copied = tmp_path / "copied.db"
        assert backup(path, copied) == backup(path, copied) > 0
        store.append(tick(2))


def test_over_http_it_is_503_and_not_ready(tmp_path):
    config = tmp_path / "tacit.toml"
    config.write_text('[server]\nport = 0\n[store]\npath = "s.db"\n[placements.home]\narms = 3\n')
    with (tmp_path / "log").open("w") as log:
        process = Forked(["-c", SERVE, config], stdout=subprocess.PIPE, stderr=log, text=True)
    client = Client(process.stdout.readline().split()[3])
    try:
        asked = {"key": "a", "decision_id": "1"}
        assert client.post("home/decide", asked)[0] == 200
        assert client.ask("GET", "/readyz")[0] == 200
        removed(tmp_path / "s.db")
        eventually(lambda: client.ask("GET", "/readyz")[0] != 200)
        assert client.post("home/decide", asked)[0] == 503
    finally:
        process.terminate()
        process.wait(PATIENCE)
        process.stdout.close()
    assert "cannot be found any more while it was served" in (tmp_path / "log").read_text()
    again = ran(["-c", SERVE, config])
    assert again.returncode != 0
    assert "tells of a store" in again.stderr


# Checksums -----------------------------------------------------------------------------------


@pytest.mark.parametrize("what", [SNAPSHOTS, BASES])
@pytest.mark.parametrize("field", ["learner", "shadow", "series", "windows", "seq", "plan", "gone"])
def test_one_changed_byte_of_a_snapshot_is_noticed(tmp_path, kind, what, field):
    path = tmp_path / "s.db"
    with closing(store_at(path)) as store:
        store.placement("home", "{}", 7)
        save_snapshot(store.snapshots, SNAPSHOT, what)
        read = store.snapshots.load if what == SNAPSHOTS else store.snapshots.load_base
        assert read(1) == SNAPSHOT
        if field == "seq":
            harm = f"UPDATE {what} SET seq = seq - 1"
        elif field == "plan":
            harm = f"UPDATE {what} SET plan = '[]'"
        elif field == "gone":
            harm = "DELETE FROM pieces WHERE field = 'shadow'"
        else:
            literal = "x'{}'" if kind == "sqlite" else r"'\x{}'::bytea"
            harmed = getattr(SNAPSHOT, field)[:-1] + b"!"
            harm = f"UPDATE pieces SET content = {literal.format(harmed.hex())} WHERE field = '{field}'"
        sql(path, kind, harm)
        with pytest.raises(StoreError, match="its checksum does not fit"):
            read(1)


def flipped(path, kind, field):
    """Change one digit of what a snapshot holds, so that it can still be read."""
    with closing(store_at(path)) as store:
        content = getattr(store.snapshots.load(1), field)
    place = max(i for i, byte in enumerate(content) if byte in b"12345678")
    harmed = content[:place] + bytes([content[place] + 1]) + content[place + 1 :]
    literal = "x'{}'" if kind == "sqlite" else r"'\x{}'::bytea"
    joined = literal.format(harmed.hex())
    sql(
        path, kind,
        f"DELETE FROM pieces WHERE field = '{field}' AND number > "
        f"(SELECT min(number) FROM pieces WHERE field = '{field}')",
        f"UPDATE pieces SET content = {joined} WHERE field = '{field}'",
    )  # fmt: skip


@pytest.mark.parametrize("field", ["series", "windows"])
async def test_a_changed_digit_costs_a_replay_and_is_never_served(tmp_path, kind, field, caplog):
    path, config = tmp_path / "s.db", configured(rule=Rule(window=3_600_000_000))

    live = await filled(path, 40, config)
    flipped(path, kind, field)
    with closing(store_at(path)) as store:
        again = access.Engine(config, store).placements["home"]
        assert "replaying the whole log" in caplog.text
        assert again.series.to_bytes() == live.series.to_bytes()
        assert (again.decisions, again.feedback) == (live.decisions, live.feedback)
        assert access.export_open_windows(again) == access.export_open_windows(live)
        assert any("its snapshot is damaged" in one for one in verify(config, store))


async def test_a_changed_digit_of_a_base_is_refused(tmp_path, kind):
    path = tmp_path / "s.db"
    await filled(path)
    with closing(store_at(path)) as store:
        save_snapshot(store.snapshots, store.snapshots.load(1), BASES)
    flipped(path, kind, "series")
    with closing(store_at(path)) as store, pytest.raises(StoreError, match="restore a backup"):
        access.Engine(configured(), store)


@pytest.mark.parametrize("file", ["decisions", "feedback", "bases"])
async def test_a_changed_byte_of_an_exported_log_is_not_imported(tmp_path, file):
    folder = tmp_path / "out"
    await filled(tmp_path / "s.db")
    with closing(SqliteStore(tmp_path / "s.db")) as store:
        save_snapshot(store.snapshots, store.snapshots.load(1), BASES)
        export(configured(), store, folder)
    with closing(SqliteStore(tmp_path / "t.db")) as store:
        assert import_log(store, folder) > 20
    column = pq.read_metadata(folder / f"{file}.parquet").row_group(0).column(0)
    begins = column.dictionary_page_offset or column.data_page_offset
    content = bytearray((folder / f"{file}.parquet").read_bytes())
    content[begins + column.total_compressed_size - 1] ^= 1
    (folder / f"{file}.parquet").write_bytes(content)
    with closing(SqliteStore(tmp_path / "u.db")) as store, pytest.raises(StoreError, match="is damaged"):
        import_log(store, folder)


async def test_verify_looks_at_what_was_counted_over_time(tmp_path):
    path = tmp_path / "s.db"
    await filled(path)
    flipped(path, "sqlite", "series")
    # A checksum would tell it before.
    sql(path, "sqlite", "UPDATE snapshots SET checksum = NULL")
    with closing(SqliteStore(path)) as store:
        assert any("series" in one for one in verify(configured(), store))


# A table that is locked ----------------------------------------------------------------------


async def test_requests_do_not_wait_for_a_locked_table(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "chosen", "postgres")
    monkeypatch.setattr("tacit.service.log.postgres.LOCK_TIMEOUT", "200ms")
    access.patch_internal(monkeypatch, RETRY_SECONDS=0.05)
    options = f"-c search_path={stores.schema_of(tmp_path)}"

    async with served(store_at(tmp_path), configured()) as engine:
        before = await traffic(engine, 10)
        with psycopg.connect(stores.cluster().url, options=options) as holder:
            holder.execute("LOCK TABLE decisions")
            named = (engine.decide("home", "a", id=f"{i}") for i in range(10))
            nameless = (engine.decide("home", "a") for _ in range(10))
            answers = await asyncio.gather(*named, *nameless, return_exceptions=True)
            assert {type(answer) for answer in answers} == {NotDurable}
            assert "LockNotAvailable" in str(engine.writer.failure)
        await reached(lambda: engine.health().ready)
        rows = [*before, await engine.decide("home", "a", id="after")]
    with closing(store_at(tmp_path)) as store:
        assert [event for event in store.events(0) if isinstance(event, DecisionRow)] == rows
        assert verify(configured(), store) == []
