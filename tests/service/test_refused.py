"""What a store refuses of a group is answered alone; all else of the group is committed."""

import asyncio
import logging

import msgspec
import psycopg
import pytest
import stores
from harness import learned, recovered, served
from stores import sql, store_at

import tacit
from tacit.service.config.schema import BUFFERED, Config, PlacementConfig
from tacit.service.errors import Refused, StoreError
from tacit.service.http.messages import convert_error

PLACEMENT = PlacementConfig(tacit.Thompson(("holiday", "film", "recipe")), 7)
CONFIG = Config({"home": PLACEMENT, "side": PLACEMENT})
REFUSED = "日本"


class Picky:
    """A store that does not take some ids, wherever they are."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store, name)

    def append(self, rows):
        self._take([row.id for row in (*rows.decisions, *rows.feedback)])
        self._store.append(rows)

    def insert(self, rows):
        self._take([row.id for row in (*rows.decisions, *rows.feedback)])
        self._store.insert(rows)

    def find(self, wanted):
        self._take([id for _, id in wanted if id.startswith("find")])
        return self._store.find(wanted)

    def _take(self, ids):
        for id in ids:
            if id is not None and REFUSED in id:
                raise Refused(f"request: the store does not take what it says: {id}")


def only_told(path, kind, table, what):
    """Let a store refuse rows of a table by itself."""
    if kind == "postgres":
        return sql(path, kind, f"ALTER TABLE {table} ADD CONSTRAINT picky CHECK (NOT ({what}))")
    return sql(
        path, kind, f"CREATE TRIGGER picky_{table} BEFORE INSERT ON {table} WHEN NEW.{what} "
        "BEGIN SELECT RAISE(ABORT, 'picky'); END"
    )  # fmt: skip


def is_the_fold(path, state, config=CONFIG):
    """Whether what an engine knew at its end is what its log teaches."""
    with recovered(path, config):
        sql(path, stores.chosen, "DELETE FROM snapshots")
    with recovered(path, config) as engine:
        return [learned(engine, name) for name in config.placements] == state


async def together(*requests):
    return await asyncio.gather(*requests, return_exceptions=True)


async def decided(engine, ids):
    """Decide at once for both placements in turn; return the answers by their ids."""
    names = [("home", "side")[i % 2] for i in range(len(ids))]
    requests = (
        engine.decide(name, f"key {i % 3}", id=id)
        for i, (name, id) in enumerate(zip(names, ids, strict=True))
    )
    return dict(zip(ids, await together(*requests), strict=True))


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("where", ["append", "find"])
def test_a_row_that_is_refused_stops_nobody_else(tmp_path, where, caplog):
    path = tmp_path / "s.db"
    prefix = "find" if where == "find" else ""

    async def session():
        async with served(path, CONFIG, wrap=Picky) as engine:
            await decided(engine, ["first", "second"])
            bad = {f"{prefix}{REFUSED} {i}" for i in (7, 8, 29)}
            ids = [f"{prefix}{REFUSED} {i}" if i in (7, 8, 29) else f"#{i}" for i in range(40)]
            answers = await decided(engine, ids)
            assert {id for id, answer in answers.items() if isinstance(answer, Refused)} == bad
            good = [row for row in answers.values() if not isinstance(row, Exception)]
            assert len(good) == 37
            calls = []
            for i, row in enumerate(good):
                name = ("home", "side")[row.placement != good[0].placement]
                calls.append(engine.feedback(name, row.id, 1.0, id=REFUSED if i == 5 else None))
            told = await together(*calls)
            # All wait for the first decision, for which nothing came, and are learned in their turn.
            assert [i for i, one in enumerate(told) if one != "pending"] == [5]
            assert isinstance(told[5], Refused)
            assert engine.writer.failure is None
            logged = {row.id: row for row in engine.store.events(0) if hasattr(row, "arm")}
            assert {row.id for row in good} == set(logged) - {"first", "second"}
            assert all(logged[row.id].arm == row.arm for row in good)
            return [learned(engine, name) for name in CONFIG.placements]

    with caplog.at_level(logging.WARNING):
        state = asyncio.run(session())
    assert caplog.text.count("a request was refused") == 4
    assert is_the_fold(path, state)


def test_what_a_database_itself_refuses_is_answered_alone(tmp_path, kind):
    path = tmp_path / "s.db"
    store_at(path).close()
    only_told(path, kind, "decisions", "key = 'key 2'")
    only_told(path, kind, "feedback", "reward = 0.25")

    async def session():
        async with served(path, CONFIG) as engine:
            answers = await decided(engine, [f"#{i}" for i in range(12)])
            refused = [id for id, answer in answers.items() if isinstance(answer, Refused)]
            assert refused == ["#2", "#5", "#8", "#11"]
            assert "picky" in str(answers["#2"])
            told = await together(
                *(engine.feedback("home", f"#{i}", reward) for i, reward in ((0, 0.25), (4, 1.0)))
            )
            assert isinstance(told[0], Refused)
            # It waits for the decisions before it.
            assert told[1] == "pending"
            # Nothing of what was refused is known.
            assert await engine.feedback("home", "#0", 0.5) == "learned"
            return [learned(engine, name) for name in CONFIG.placements]

    assert is_the_fold(path, asyncio.run(session()))


@pytest.mark.usefixtures("kind")
def test_of_what_was_answered_before_it_was_durable_a_refused_row_alone_is_lost(tmp_path, caplog):
    path = tmp_path / "s.db"
    config = Config({"home": msgspec.structs.replace(PLACEMENT, durability=BUFFERED), "side": PLACEMENT})

    async def session():
        async with served(path, config, wrap=Picky) as engine:
            answers = await decided(engine, [REFUSED if i == 4 else f"#{i}" for i in range(12)])
            assert not [one for one in answers.values() if isinstance(one, Exception)]
            await engine.decide("side", "a", id="after")
            assert {row.id for row in engine.store.events(0)} == {*answers, "after"} - {REFUSED}
            return [learned(engine, name) for name in config.placements]

    with caplog.at_level(logging.ERROR):
        state = asyncio.run(session())
    assert caplog.text.count("answered before it was durable, is lost") == 1
    assert is_the_fold(path, state, config)


def test_a_refusal_is_a_problem_of_the_request():
    found = convert_error(Refused("request: the store does not take what it says: too long"))
    assert (found.status, found.field) == (422, "request")
    assert "too long" in found.detail


def test_a_database_that_cannot_keep_every_key_is_refused_at_the_start(monkeypatch):
    monkeypatch.setattr(stores, "chosen", "postgres")
    from tacit.service.log.postgres import PostgresStore

    url = stores.cluster().url
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS latin")
        connection.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    with pytest.raises(StoreError, match=r"is encoded in LATIN1.*createdb --encoding UTF8"):
        PostgresStore(url.replace("/postgres", "/latin"), "tacit")
