"""A damaged row or index is found, named and refused; the log goes on without it when told to."""

import asyncio
import contextlib
import logging
import sqlite3

import apsw
import numpy as np
import pytest
import stores
from click.testing import CliRunner
from harness import START, Clock, as_after_a_crash, learned, served
from placement_access import Engine
from stores import sql, store_at

import tacit
from tacit.cli import cli
from tacit.errors import TacitError
from tacit.service.config.schema import Config, PlacementConfig
from tacit.service.errors import Damaged, NotDurable
from tacit.service.log.removal import find_damaged_rows, find_old_rows, remove_damaged_rows
from tacit.service.log.rows import ChangeRow, DecisionRow, FeedbackRow, RecordRow, Rows, row_checksum
from tacit.service.log.sql import add_records, read_records
from tacit.service.maintenance.doctor import verify
from tacit.service.maintenance.log_export import export, import_log

CONFIG = Config({"home": PlacementConfig(tacit.Thompson(("holiday", "film")), 7)})


async def filled(path):
    """Let a store hold ten decisions, feedback for six of them, and no snapshot."""
    async with served(path, CONFIG) as engine:
        for i in range(10):
            row = await engine.decide("home", f"key {i % 3}", id=f"#{i}")
            if i % 3:
                await engine.feedback("home", row.id, float(i % 2))
        state = learned(engine)
    sql(path, stores.chosen, "DELETE FROM snapshots")
    return state


def wrong_with(path):
    with contextlib.closing(store_at(path)) as store:
        return verify(CONFIG, store)


def opened(path):
    with contextlib.closing(store_at(path)) as store:
        return learned(Engine(CONFIG, store))


# Rows ----------------------------------------------------------------------------------------

ROWS = Rows(
    [
        DecisionRow(1, "日本 \x7f\"", 1, 1, 10**15, "k\n", "[1, 2]", 3, 1 / 3, 2**40, "[0.1]"),
        DecisionRow(2, "b", 1, 1, 10**15, "", None, "3", None, 0, None, "shadow", 2, 5e-324, 1,
                    "{}", "[]", 0, 127),
    ],
    [
        FeedbackRow(3, 1, 1, None, 10**15, "reward", 0.1 + 0.2, None, '{"a": 1e300}'),
        FeedbackRow(4, 1, 2, "é", 10**15, "clicks", None, "[0, 1]"),
    ],
    [ChangeRow(5, None, 10**15, "tick", ""), ChangeRow(6, 1, 10**15, "configuration", "{}", "me")],
)  # fmt: skip
RECORD = RecordRow(1, "query", "q", 10**15, '{"a": 1.0}')


@pytest.mark.usefixtures("kind")
def test_a_checksum_is_that_of_what_comes_back(tmp_path):
    with contextlib.closing(store_at(tmp_path / "s.db")) as store:
        store.placement("home", "{}", 7)
        store.append(ROWS)
        many = [row._replace(seq=10 + i, id=f"{i}") for i, row in enumerate(ROWS.decisions * 10)]
        store.append(Rows(many, [], []))
        add_records(store, [RECORD])
        assert list(store.events(0)) == [*ROWS.all(), *many]
        assert (list(read_records(store)), find_damaged_rows(store)) == ([RECORD], {})


def test_arms_differ_by_their_type():
    first = ROWS.decisions[0]
    assert row_checksum(first) != row_checksum(first._replace(arm="3"))
    assert row_checksum(first) == row_checksum(tuple(first))
    assert row_checksum(first) == row_checksum(first._replace(propensity=np.float64(1 / 3)))


CHANGES = {
    "key": "UPDATE decisions SET key = 'key 7' WHERE seq = 4",
    "arm": "UPDATE decisions SET arm = '7' WHERE seq = 4",
    "propensity": "UPDATE decisions SET propensity = propensity * 0.5 WHERE seq = 4",
    "nothing": "UPDATE decisions SET offered = '[]' WHERE seq = 4",
    "checksum": "UPDATE decisions SET checksum = checksum + 1 WHERE seq = 4",
    "unreadable": {
        "sqlite": "UPDATE decisions SET key = CAST(x'61ff' AS TEXT) WHERE seq = 4",
        "postgres": "UPDATE decisions SET arm = '\"fi' WHERE seq = 4",
    },
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_damaged_row_is_named_and_refused(tmp_path, kind, change):
    path = tmp_path / "s.db"
    await filled(path)
    statement = CHANGES[change]
    sql(path, kind, statement if isinstance(statement, str) else statement[kind])
    (found,) = wrong_with(path)
    assert found.startswith("rows 4 of decisions are not what was written; restore a backup")
    with pytest.raises(Damaged, match=r"row .*is not what was written.*--skip-damaged"):
        opened(path)


def test_feedback_marks_and_records_have_checksums_too(tmp_path, kind):
    path = tmp_path / "s.db"
    with contextlib.closing(store_at(path)) as store:
        store.placement("home", "{}", 7)
        store.append(ROWS)
        add_records(store, [RECORD])
        sql(
            path,
            kind,
            "UPDATE feedback SET reward = 0.3 WHERE seq = 3",
            "UPDATE marks SET value = '[]' WHERE seq = 6",
            "UPDATE records SET content = '{}'",
        )
        assert find_damaged_rows(store) == {"feedback": [3], "marks": [6], "records": [1]}
        for read in (lambda: list(store.events(0)), lambda: list(read_records(store)),
                     lambda: store.changes(1)):  # fmt: skip
            with pytest.raises(Damaged):
                read()
        with pytest.raises(Damaged, match=r"rows 6 of marks.*restore a backup"):
            remove_damaged_rows(store, find_damaged_rows(store))


async def test_the_log_goes_on_without_what_is_damaged(tmp_path, kind):
    path = tmp_path / "s.db"
    before = await filled(path)
    sql(path, kind, "UPDATE decisions SET key = 'another' WHERE seq = 4",
        "UPDATE feedback SET reward = 0.5 WHERE seq = 3")  # fmt: skip
    with contextlib.closing(store_at(path)) as store:
        remove_damaged_rows(store, find_damaged_rows(store))
        rows = list(store.events(0))
        assert {1, 2} <= {row.seq for row in rows}
        assert not {3, 4, 5} & {row.seq for row in rows}
        assert rows[-1] == ChangeRow(
            17, None, rows[-1].time, "tick", '{"left_out":{"decisions":[4],"feedback":[3]}}'
        )
    after = opened(path)
    assert after != before
    assert opened(path) == after
    assert wrong_with(path) == []

    async with served(path, CONFIG) as engine:
        await engine.decide("home", "key 1", id="next")
    assert wrong_with(path) == []


async def test_serve_takes_out_what_is_damaged_when_told(tmp_path, monkeypatch, caplog):
    path, served_with = tmp_path / "s.db", []
    await filled(path)
    sql(path, "sqlite", "UPDATE decisions SET arm = 'film ' WHERE seq = 4")
    for setting in ("set_up", "log_the_uncaught"):
        monkeypatch.setattr(f"tacit.service.app.logging_setup.{setting}", lambda *_: None)
    monkeypatch.setattr("tacit.service.app.server.serve", lambda config, **_: served_with.append(config))
    with caplog.at_level(logging.WARNING):
        found = CliRunner().invoke(cli, ["serve", "--store", str(path), "--skip-damaged"])
    assert found.exit_code == 0, found.output
    assert served_with
    assert "left out for good, as they were damaged: rows 4 of decisions" in caplog.text
    assert wrong_with(path) == []


def test_verify_says_what_it_can_of_a_file_that_is_cut_up(tmp_path):
    path = tmp_path / "s.db"
    with contextlib.closing(store_at(path)) as store:
        store.placement("home", "{}", 7)
        row = ROWS.decisions[0]
        store.append(Rows([row._replace(seq=i, id=f"{i}") for i in range(1, 2000)], [], []))
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(bytes(3 * 4096))
    assert wrong_with(path)


async def test_rows_without_a_checksum_are_read(tmp_path, kind):
    """As those of versions before 0.3, in stores that 0.3 has opened since."""
    path = tmp_path / "s.db"
    state = await filled(path)
    sql(path, kind, *(f"UPDATE {table} SET checksum = NULL" for table in ("decisions", "feedback", "marks")))
    assert wrong_with(path) == []
    assert opened(path) == state


@pytest.mark.usefixtures("kind")
async def test_an_imported_log_has_checksums_of_its_own(tmp_path):
    path, other = tmp_path / "s.db", tmp_path / "t.db"
    await filled(path)
    store, empty = store_at(path), store_at(other)
    export(CONFIG, store, tmp_path / "out")
    import_log(empty, tmp_path / "out")
    assert find_damaged_rows(empty) == {}
    assert list(empty.events(0)) == list(store.events(0))
    store.close()
    empty.close()
    sql(other, stores.chosen, "UPDATE decisions SET key = 'x' WHERE seq = 1")
    assert "rows 1 of decisions" in wrong_with(other)[0]


@pytest.mark.usefixtures("kind")
async def test_a_damaged_row_is_not_answered_and_keeps_nobody_else_waiting(tmp_path):
    path = tmp_path / "s.db"
    await filled(path)

    async with served(path, CONFIG, Clock(START + 10**12)) as engine:
        # All windows close, so that decisions are read from the store.
        await engine.decide("home", "on")
        sql(path, stores.chosen, "UPDATE decisions SET key = 'other' WHERE seq = 4")
        answers = await asyncio.gather(
            *(engine.feedback("home", f"#{i}", 1.0) for i in range(5)), return_exceptions=True
        )
        assert [i for i, one in enumerate(answers) if isinstance(one, NotDurable)] == [2]
        assert sum(isinstance(one, Exception) for one in answers) == 1
        # Nor does it go to an archive as if it were whole.
        with pytest.raises(Damaged):
            find_old_rows(engine.store, 1, 10**9, 10**18, 10)
        assert engine.writer.failure is None


# Indexes -------------------------------------------------------------------------------------


def lose_entry(path, kind):
    """Take the first decision out of the index of ids, and leave it in its table."""
    if kind == "postgres":
        ready = "UPDATE pg_index SET indisready = {} WHERE indexrelid = 'decision_ids'::regclass"
        sql(path, kind, "CREATE TEMP TABLE held AS SELECT * FROM decisions WHERE seq = 1",
            "DELETE FROM decisions WHERE seq = 1", ready.format("false"),
            "INSERT INTO decisions SELECT * FROM held", ready.format("true"))  # fmt: skip
        return
    connection = apsw.Connection(str(path))
    index = connection.execute("SELECT * FROM sqlite_schema WHERE name = 'decision_ids'").get
    row = connection.execute("DELETE FROM decisions WHERE seq = 1 RETURNING *").get
    for statement, values in (
        ("PRAGMA writable_schema = ON", ()),
        ("DELETE FROM sqlite_schema WHERE name = 'decision_ids'", ()),
        ("PRAGMA writable_schema = RESET", ()),
        (f"INSERT INTO decisions VALUES ({', '.join('?' * len(row))})", row),
        ("PRAGMA writable_schema = ON", ()),
        ("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", index),
        ("PRAGMA writable_schema = RESET", ()),
    ):
        connection.execute(statement, values)
    connection.close()


async def test_verify_finds_a_damaged_index(tmp_path, kind):
    path = tmp_path / "s.db"
    await filled(path)
    assert wrong_with(path) == []
    lose_entry(path, kind)
    told = "index decision_ids" if kind == "sqlite" else "1 rows of decisions are not found by id, "
    assert told in wrong_with(path)[0]


@pytest.mark.parametrize("clean", [True, False])
async def test_a_start_refuses_a_damaged_index(tmp_path, clean):
    path = tmp_path / "s.db"

    async with served(path, CONFIG) as engine:
        for i in range(5):
            await engine.decide("home", "a", id=f"#{i}")
        copy = as_after_a_crash(path)
    opened(copy)
    lose_entry(copy, "sqlite")
    if not clean:
        sql(copy, "sqlite", "UPDATE store SET clean = 0")
    for _ in range(2):
        with pytest.raises(Damaged, match=r"decision_ids; restore a backup.*REINDEX"):
            opened(copy)
    # One that is closed later takes the log of the next one away.
    with contextlib.closing(sqlite3.connect(copy)) as connection:
        connection.execute("REINDEX")
    opened(copy)
    assert wrong_with(copy) == []


async def test_a_start_looks_at_indexes_for_some_seconds_alone(tmp_path, caplog, monkeypatch):
    path = tmp_path / "s.db"
    await filled(path)
    sql(path, "sqlite", "UPDATE store SET clean = 0")
    times = iter(range(0, 10_000, 100))
    monkeypatch.setattr("tacit.service.log.sqlite.time.monotonic", lambda: next(times))
    monkeypatch.setattr("tacit.service.log.sqlite.STEPS", 1)
    with caplog.at_level(logging.WARNING):
        opened(path)
    assert "its indexes were looked at for 5 s alone" in caplog.text


# Placements, policies and what was configured -------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE policies SET spec = replace(spec, 'Thompson', 'Thonpson')", "policy of placement 'home'"),
        ("UPDATE policies SET spec = '{'", "policy of placement 'home'"),
        ("UPDATE placements SET configuration = '{'", "configured"),
        ("UPDATE placements SET configuration = '[]'", "configured"),
        ("UPDATE placements SET configuration = '{\"polhcy\": 1}'", "configured"),
    ],
)
async def test_a_placement_that_is_not_what_was_written_is_refused(tmp_path, kind, change, said):
    path = tmp_path / "s.db"
    await filled(path)
    sql(path, kind, change)
    with pytest.raises(Damaged, match=f"{said}.*is not what was written; restore a backup"):
        opened(path)
    assert said in wrong_with(path)[0]


async def test_a_flip_in_the_pages_of_placements_is_refused_or_none(tmp_path):
    """Nothing but an error that names the damage comes of any, and no placement begins anew."""
    path = tmp_path / "s.db"
    state = await filled(path)
    whole = path.read_bytes()
    size = sql(path, "sqlite", "PRAGMA page_size")[0][0]
    tables = "'placements', 'policies'"
    roots = sql(path, "sqlite", f"SELECT rootpage FROM sqlite_schema WHERE tbl_name IN ({tables})")
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(60):
        content = bytearray(whole)
        (page,) = roots[rng.integers(len(roots))]
        used = [i for i in range((page - 1) * size, page * size) if content[i]]
        content[used[rng.integers(len(used))]] ^= 1 << int(rng.integers(8))
        path.write_bytes(content)
        try:
            assert opened(path)[0] == state[0]
        except TacitError:
            refused += 1
    assert refused > 30
