"""Somebody is forgotten: in the log, its archive and its records; what was learned stays."""

import contextlib
import json
import os
import stat
from functools import partial

import apsw
import harness
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from harness import START, Client, as_after_a_crash, learned, quiet, reached, recovered, with_home
from placement_access import decide
from stores import SlowStore

from tacit.cli import cli
from tacit.cli.service import StoreOptions
from tacit.service.app.server import run_in_thread
from tacit.service.errors import InUse
from tacit.service.log.archive import backup
from tacit.service.log.requests import DecisionRequest
from tacit.service.log.rows import DecisionRow
from tacit.service.log.search_records import SearchFields, Subject
from tacit.service.log.sqlite import SqliteStore
from tacit.service.maintenance.doctor import verify
from tests.cli.test_cli import tacit as tacit_command
from tests.logs.test_ubi import event, query
from tests.service.test_ubi import keep_records
from tests.service.test_verdict import LISTS

NAME = "ann-of-4711"
DAY = 86_400_000_000
SEARCH = {"kind": "duels", "rankers": ["old", "new", "odd"], "seed": 7, "length": 3}


configured = partial(harness.configured, placements={"search": SEARCH, "home": {"arms": 2, "seed": 3}})


async def searched(engine, user, count=1, first=0):
    for i in range(first, first + count):
        request = DecisionRequest("all", id=f"{user} {i}", rankings=LISTS, user=user)
        await decide(engine, request, name="search")


async def searched_for_days(engine):
    """Let two searches of a user be older than a day, and three younger."""
    await searched(engine, "id", 2)
    engine.clock.now = START + 2 * DAY
    for i in range(3):
        engine.clock.now += 7_200_000_000
        await searched(engine, "id", 1, first=2 + i)
        await quiet(engine)


def units(store):
    return [SearchFields.read(row.asked).unit for row in store.events(0) if isinstance(row, DecisionRow)]


async def test_a_user_is_forgotten_and_what_was_learned_stays(kind, tmp_path):
    path, config = tmp_path / "s.db", configured()

    async with harness.served(path, config) as engine:
        await searched(engine, "id", 3)
        await searched(engine, "other", 2)
        # When their windows have closed; one more is open.
        engine.clock.now += 60_000_000
        await searched(engine, "open")
        before = harness.arrays(engine.placements["search"].learner)
        known = units(engine.store)
        assert len({unit for unit in known if unit}) == 3
        done = await engine.forget(Subject("user", "id"), "ann")
        assert {name: tuple(found) for name, found in done.items()} == {"search": (3, 0)}
        assert units(engine.store) == [None] * 3 + known[3:]
        assert harness.arrays(engine.placements["search"].learner) == before
        # Sent once more, it is the same.
        await searched(engine, "id", 1)
        await searched(engine, "open")
        # Once more there is nothing left, and nothing is noted.
        assert await engine.forget(Subject("user", "id")) == {}
        assert await engine.forget(Subject("session", "id")) == {}
        (change,) = [one for one in await engine.history("search") if one.what == "forget"]
        assert (change.who, change.detail) == ("ann", {"decisions": 3, "records": 0})
        await searched(engine, "id", 1, first=3)
        live = learned(engine, "search")
    with recovered(path, config) as again:
        assert learned(again, "search") == live


def test_the_salt_is_told_to_nobody_and_is_the_stores_own(tmp_path):
    path = tmp_path / "s.db"
    with run_in_thread(configured(path)) as address:
        client = Client(address)
        for _ in range(2):
            asked = {"key": "all", "rankings": LISTS, "user": NAME}
            assert client.post("search/duel", asked)[0] == 200
        client.post("home/decide", {"key": "all"})
        store = apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)
        salt = store.execute("SELECT salt FROM store").get
        assert len(salt) == 32
        ((asked,),) = store.execute("SELECT DISTINCT asked FROM decisions WHERE asked NOT NULL")
        store.close()
        assert SearchFields.read(asked).unit is not None
        told = [
            client.ask("GET", where)[2]
            for where in ("/v1/placements", "/v1/placements/search/history", "/openapi.json")
        ]
        assert salt not in json.dumps(told)
        assert NAME.encode() not in path.read_bytes()


def test_records_of_a_client_are_blanked_and_the_name_is_in_no_file(tmp_path):
    path = tmp_path / "s.db"
    with run_in_thread(configured(path)):
        pass
    named = {"client_id": NAME, "user_query": f"letters of {NAME}", "session_id": "s 1"}
    queries = [query("q 1", **named), query("q 2", client_id="bob")]
    events = [event("click", "q 1", client_id=NAME), event("click", "q 2", client_id="bob")]
    with contextlib.closing(SqliteStore(path)) as store:
        keep_records(store, "home", queries, events)
    assert NAME.encode() in path.read_bytes()
    with run_in_thread(configured(path)) as address:
        client = Client(address)
        status, _, answer = client.ask("DELETE", f"/v1/subjects/client/{NAME}")
        assert (status, answer) == (200, {"placements": {"home": {"decisions": 0, "records": 2}}})
        for name in os.listdir(tmp_path):
            assert NAME.encode() not in (tmp_path / name).read_bytes(), name
        store = apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)
        kept = [json.loads(text) for (text,) in store.execute("SELECT content FROM records")]
        store.close()
        assert [record.get("client_id") for record in kept] == [None, "bob", None, "bob"]
        assert kept[0]["query_id"] == "q 1"
        status, _, answer = client.ask("DELETE", f"/v1/subjects/client/{NAME}")
        assert (status, answer) == (200, {"placements": {}})


async def test_the_command_forgets_in_log_and_archive_and_names_the_backups(tmp_path):
    path, archive = tmp_path / "s.db", tmp_path / "archive"
    config = configured(path, **{"store.retention": 1.0, "store.archive": str(archive)})

    async with harness.served(path, config) as engine:
        await searched_for_days(engine)
    folder = tmp_path / "backups"
    folder.mkdir()
    backup(path, folder / "before.db")
    (folder / "note.txt").write_text("no store")
    assert len(list((archive / "search").glob("decisions-*.parquet"))) == 1
    settings = tmp_path / "t.toml"
    settings.write_text(
        f'[store]\npath = "{path}"\nretention = 1\narchive = "{archive}"\n[placements.search]\n'
        'kind = "duels"\nrankers = ["old", "new", "odd"]\nlength = 3\n'
        "[placements.home]\narms = 2\n"
    )
    given = ["log", "forget", "--config", str(settings), "--user", "id", "--json"]
    found = json.loads(tacit_command(*given, "--backups", str(folder)).stdout)
    (name, counted), *others = found["placements"].items()
    assert (name, counted["decisions"], counted["records"], others) == ("search", 5, 0, [])
    assert found["backups"] == [str(folder / "before.db")]
    (file,) = (archive / "search").glob("decisions-*.parquet")
    assert all('"unit"' not in (text or "") for text in pq.read_table(file)["asked"].to_pylist())
    backup(path, folder / "after.db")
    again = json.loads(tacit_command(*given, "--backups", str(folder)).stdout)
    assert (again["placements"], again["backups"]) == ({}, [str(folder / "before.db")])


async def test_what_each_shard_blanks_is_added_up(tmp_path, monkeypatch):
    config = configured(tmp_path / "0.db")
    paths = [tmp_path / f"{shard}.db" for shard in range(2)]
    for shard, path in enumerate(paths):
        async with harness.served(path, config) as engine:
            await searched(engine, "id", shard + 1)
    opened = [SqliteStore(str(path)) for path in paths]
    shards = [(f"shard-{shard}", config, store) for shard, store in enumerate(opened)]
    monkeypatch.setattr(StoreOptions, "open_each", lambda self: iter(shards))
    result = CliRunner().invoke(cli, ["log", "forget", "--user", "id", "--json"])
    for store in opened:
        store.close()
    assert json.loads(result.output)["placements"] == {"search": {"decisions": 3, "records": 0}}


async def test_nobody_else_can_read_what_the_log_holds(tmp_path):
    path, archive = tmp_path / "s.db", tmp_path / "archive"
    # One that was made for all to read.
    path.touch(mode=0o644)
    os.chmod(path, 0o644)
    config = configured(path, **{"store.retention": 1.0, "store.archive": str(archive)})

    async with harness.served(path, config) as engine:
        await searched_for_days(engine)
        backup(path, tmp_path / "copy.db")
        files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert {"s.db", "s.db-wal", "s.db-shm", "s.db.lock", "copy.db"} <= {f.name for f in files}
    assert any(file.suffix == ".parquet" for file in files)
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


async def test_what_retention_drops_stands_in_no_file(tmp_path):
    path = tmp_path / "s.db"
    async with harness.served(path, with_home(values={"store.retention": 1.0}, arms=2, seed=3)) as engine:
        await engine.decide("home", "all", id=NAME)
        engine.clock.now = START + 3 * DAY
        for _ in range(3):
            engine.clock.now += 7_200_000_000
            await engine.decide("home", "all")
            await quiet(engine)
        assert NAME not in [row.id for row in engine.store.events(0) if isinstance(row, DecisionRow)]
        assert not any(NAME.encode() in file.read_bytes() for file in tmp_path.iterdir())


async def test_a_crash_leaves_all_of_it_or_nothing(tmp_path):
    path, config = tmp_path / "s.db", configured()
    async with harness.served(path, config) as engine:
        await searched(engine, "id", 3)
    async with harness.served(path, config) as engine:
        known, before = units(engine.store), as_after_a_crash(path)
        # In the log, and in the snapshot of the first end.
        assert min(before.read_bytes().count(unit.encode()) for unit in known) > 1
        before.unlink()
        await engine.forget(Subject("user", "id"))
        after = as_after_a_crash(path)
        with recovered(after, config) as again:
            assert units(again.store) == [None] * 3
        assert not any(unit.encode() in after.read_bytes() for unit in known)


@pytest.mark.parametrize("table", [{"arms": 2, "sticky": "user"}, SEARCH])
async def test_no_snapshot_holds_a_forgotten_user_whose_decision_is_open(table, tmp_path):
    path, table = tmp_path / "s.db", table | {"snapshot_every": 2}
    config, slow = harness.configured(placements={"home": table}), SlowStore(SqliteStore(path))
    async with harness.served(slow, config) as engine:
        for user in "ann", "bob":
            rankings = LISTS if "kind" in table else None
            await decide(engine, DecisionRequest("all", id=user, user=user, rankings=rankings))
        (unit, other) = units(engine.store)
        # Nor one that is being written meanwhile.
        await reached(lambda: slow.begun)
        await engine.forget(Subject("user", "ann"))
        slow.goes_on.set()
        await quiet(engine)
        assert unit.encode() not in as_after_a_crash(path).read_bytes()
    assert unit.encode() not in path.read_bytes()
    assert other.encode() in path.read_bytes()
    with contextlib.closing(SqliteStore(path)) as store:
        assert verify(config, store) == []


@pytest.mark.parametrize("named", [[], ["--user", "a", "--client", "b"]])
def test_one_at_a_time(named, tmp_path):
    done = tacit_command("log", "forget", *named)
    assert done.returncode == 2
    assert "give one of --user, --session and --client" in done.stderr


def test_a_log_in_use_is_blanked_by_the_service_that_has_it(tmp_path):
    with contextlib.closing(SqliteStore(tmp_path / "s.db")):
        found = CliRunner().invoke(cli, ["log", "forget", "--user", "u", "--store", str(tmp_path / "s.db")])
    assert (type(found.exception), "let the service do it: --url" in str(found.exception)) == (InUse, True)
