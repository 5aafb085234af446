"""The verdict on live duels: by action, user and segment; from the log, as tacit duel does."""

import asyncio
import contextlib
import html
import json
from functools import partial

import harness
import numpy as np
import pyarrow.parquet as pq
import pytest
from drawn import examples
from harness import Clock, eventually, served, with_home
from hypothesis import given
from hypothesis import strategies as st
from placement_access import decide, report_duels, verdicts
from stores import store_at

from tacit.client import Client as ServiceClient
from tacit.client import InvalidRequest
from tacit.errors import InvalidValue
from tacit.evaluate.duels import read_duels
from tacit.evaluate.interleaved import read_interleaved
from tacit.interleaving import CreditRule
from tacit.service.app.server import run_in_thread
from tacit.service.config.file import load_config
from tacit.service.errors import InConflict, NotDurable
from tacit.service.log.ids import Shard
from tacit.service.log.requests import DecisionRequest, FeedbackRequest
from tacit.service.log.rows import ACTIVATE
from tacit.service.maintenance.log_export import export

SECOND = 1_000_000
WORTH = {"click": 1.0, "add_to_cart": 0.3, "purchase": 10.0, "seen": 0.0}
SEGMENTS = ["market", "key"]
RANKERS = ["old", "new", "odd"]
LISTS = {"old": list("abcd"), "new": list("badc"), "odd": list("abce")}


configured = partial(
    with_home,
    name="search",
    kind="duels",
    rankers=RANKERS,
    # Goes on comparing, so that there is something to tell.
    policy="rmed1",
    length=3,
    worth=WORTH,
    segments=SEGMENTS,
)


async def searched(engine, id=None, lists=LISTS, key="all", deferred=False, **said):
    told = DecisionRequest(key, id=id, deferred=deferred, rankings=lists, **said)
    (row,) = await decide(engine, told, name="search")
    return row


clicked = partial(harness.clicked, name="search")


def name_teams(row):
    """Return which ranker each position of a search's list is of."""
    shown = json.loads(row.shown)
    return [shown["pair"][team] for team in shown["interleaved"]["memory"]["teams"]]


async def whole(engine, *asked):
    while not (found := await engine.verdict("search", *asked)).whole:
        pass
    return found


async def traffic(engine, rounds, seed):
    """Send searches of users, with actions of all kinds, late and never; some are deferred."""
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        engine.clock.now += int(rng.integers(20)) * SECOND
        said = {
            "user": f"user {rng.integers(9)}" if rng.random() < 0.7 else None,
            "session": f"visit {rng.integers(99)}" if rng.random() < 0.5 else None,
            "segments": {"market": ["de", "se"][rng.integers(2)]} if rng.random() < 0.8 else {},
        }
        lists = {name: rng.permutation(list("abcd")).tolist() for name in RANKERS}
        lists = [lists, LISTS, None][rng.integers(3)]
        deferred = bool(rng.random() < 0.2)
        row = await searched(engine, None, lists, f"key {rng.integers(2)}", deferred, **said)
        if deferred and rng.random() < 0.5:
            await engine.record_many("search", [FeedbackRequest(row.id, ACTIVATE, None)])
        engine.clock.now += int(rng.integers(20)) * SECOND
        if lists is None:
            await engine.feedback("search", row.id, float(rng.integers(3)) / 2)
        for _ in range(rng.integers(4)) if lists else ():
            action = list(WORTH)[rng.integers(len(WORTH))]
            await clicked(engine, row, sorted({*rng.integers(0, 3, 2).tolist()}), action=action)


# The same as tacit duel ----------------------------------------------------------------------


@examples(6)
@given(seed=st.integers(0, 2**32), looks=st.integers(1, 4), seen=st.sampled_from(["decided", "examined"]))
def test_the_live_verdict_is_that_of_the_exported_log(tmp_path_factory, seed, looks, seen):
    folder = tmp_path_factory.mktemp("verdict")
    more = {"seen": seen, "activation_window": 60.0}

    async def session():
        async with served(folder / "s.db", configured(**more), Clock()) as engine:
            for look in range(looks):
                await traffic(engine, 60 // looks, (seed, look))
                await whole(engine)
            engine.clock.now += 200 * SECOND
            await searched(engine)
            return await whole(engine, 0.9, 0.2)

    live = asyncio.run(session())
    assert live.open == 1
    report = exported(folder, **more)
    assert live.report == report.as_dict()
    assert live.verdict.startswith(report.verdict)
    assert live.report["segments"]
    assert live.report["units"] > 5
    assert set(live.report["credited"]) == {*WORTH} - {"seen"}


def exported(folder, **more):
    """Return what tacit duel says of the exported log of a store."""
    config, store = configured(folder / "s.db", **more), store_at(folder / "s.db")
    with contextlib.closing(store):
        export(config, store, folder / "log")
    report, rows = read_interleaved(
        folder / "log" / "duels-search.parquet",
        rule=CreditRule(WORTH),
        by=SEGMENTS,
        confidence=0.9,
        false_share=0.2,
        strict=True,
    )
    assert rows.kept > 0
    return report


@pytest.mark.usefixtures("kind")
async def test_a_holdout_and_what_is_pinned_are_no_duels(tmp_path):
    more = {"holdout": {"share": 0.3, "unit": "user", "control": {"arm": "old"}}}
    async with served(tmp_path / "s.db", configured(**more), Clock()) as engine:
        held = 0
        for i in range(80):
            row = await searched(engine, user=f"user {i % 20}", segments={"market": "de"})
            held += row.control
            engine.clock.now += SECOND
            await clicked(engine, row, [i % 3], action="purchase" if i % 7 else "click")
        engine.clock.now += 60 * SECOND
        await searched(engine)
        live = await whole(engine, 0.9, 0.2)
    assert 0 < held < 80
    assert (live.report["searches"], live.open) == (80 - held, 1)
    assert live.report == exported(tmp_path, **more).as_dict()


async def test_a_purchase_weighs_what_it_is_worth_and_policies_learn_from_clicks(tmp_path):
    # Users click what the old ranker gives, and buy what the new one does.
    async with served(tmp_path / "s.db", configured(rankers=["old", "new"]), Clock()) as engine:
        lists = {"old": list("abcd"), "new": list("efgh")}
        for i in range(400):
            row = await searched(engine, user=f"user {i}", lists=lists)
            named = name_teams(row)
            if "old" in named and "new" in named:
                await clicked(engine, row, [named.index("old")])
                if i % 5 == 0:
                    await clicked(engine, row, [named.index("new")], action="purchase")
            engine.clock.now += 40 * SECOND
        await searched(engine, lists=lists)
        standings = report_duels(engine.placements["search"])[1]
        live = await whole(engine)
    assert standings.names[standings.leader] == "old"
    assert live.report["leader"] == "new"
    credited = live.report["credited"]
    assert credited["purchase"] * 4 < credited["click"]


def test_searches_of_a_user_are_alike_and_only_a_hash_of_the_user_is_kept(tmp_path):
    async def session(users):
        async with served(tmp_path / f"{users}.db", configured(rankers=["old", "new"]), Clock()) as engine:
            lists = {"old": list("abcd"), "new": list("efgh")}
            rows = []
            for i in range(300):
                taste = ["old", "new"][i % users % 3 == 0]
                row = await searched(engine, user=f"ann{i % users}", lists=lists)
                named = name_teams(row)
                if taste in named:
                    await clicked(engine, row, [named.index(taste)])
                engine.clock.now += 40 * SECOND
                rows.append(row)
            await searched(engine, lists=lists)
            assert not any("ann" in str(row) for row in rows)
            return await whole(engine)

    many, few = asyncio.run(session(300)), asyncio.run(session(9))
    assert (many.report["units"], few.report["units"]) == (300, 9)
    assert many.report["winner"] == "old"
    assert few.report["winner"] is None, "nine users prove nothing"


async def test_without_a_user_the_session_says_whose_a_search_is(tmp_path):
    async with served(tmp_path / "s.db", configured(), Clock()) as engine:
        said = {"session": "v"}, {"session": "v"}, {"user": "v"}, {"user": "v", "session": "w"}
        for each in (*said, {}, {}):
            await searched(engine, **each)
        engine.clock.now += 40 * SECOND
        await searched(engine)
        result = (await whole(engine)).report["units"]
    assert result == 4


async def test_the_same_search_of_another_user_is_another_search(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        first = await searched(engine, "d", user="ann", segments={"market": "de"})
        assert await searched(engine, "d", user="ann", segments={"market": "de"}) == first
        for other in ({"user": "ben"}, {"segments": {"market": "se"}}, {}):
            said = {"user": "ann", "segments": {"market": "de"}} | other
            with pytest.raises(InConflict):
                await searched(engine, "d", **(said if other else {}))


async def test_a_segment_with_many_values_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(verdicts, "MOST_VALUES", 3)
    async with served(tmp_path / "s.db", configured(), Clock()) as engine:
        for i in range(20):
            await searched(engine, segments={"market": f"m{i % 5}"})
        engine.clock.now += 40 * SECOND
        await searched(engine)
        live = await whole(engine)
    assert live.beyond == {"market": 8}
    assert {one["value"] for one in live.report["segments"] if one["name"] == "market"} == {"m0", "m1", "m2"}
    assert live.report["searches"] == 20


# Nobody waits for it -------------------------------------------------------------------------


async def test_a_log_is_read_once_whoever_asks_and_decisions_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(verdicts, "ROWS", 7)
    async with served(tmp_path / "s.db", configured(), Clock()) as engine:
        for _ in range(30):
            await searched(engine)
        engine.clock.now += 40 * SECOND
        await searched(engine)
        reads, logged = [], engine.read_log
        gate = asyncio.Event()

        async def counted(name, after, count):
            reads.append(after)
            await gate.wait()
            return await logged(name, after, count)

        monkeypatch.setattr(engine, "read_log", counted)
        asked = [asyncio.create_task(engine.verdict("search", patience=0.01)) for _ in range(50)]
        early = await asyncio.gather(*asked)
        assert {(one.whole, one.report, one.verdict) for one in early} == {(False, None, verdicts.NOT_READ)}
        assert reads == [0]
        await searched(engine)
        gate.set()
        late = await whole(engine)
        assert late.report["searches"] == 30
        assert len(reads) == len(set(reads)) > 4
        before = len(reads)
        assert await whole(engine) == late
        assert len(reads) == before + 1, "only what is new is read"


async def test_a_store_that_fails_is_said_and_the_next_one_who_asks_is_answered(tmp_path, monkeypatch):
    async with served(tmp_path / "s.db", configured(), Clock()) as engine:
        await searched(engine)
        logged = engine.read_log

        async def broken(*given):
            raise NotDurable("store: it fails at present; try again later")

        monkeypatch.setattr(engine, "read_log", broken)
        with pytest.raises(NotDurable):
            await engine.verdict("search")
        monkeypatch.setattr(engine, "read_log", logged)
        found = await whole(engine)
        assert (found.report, found.open) == (None, 1)
        assert found.verdict.startswith("Too early: 1 decision does not count yet, as windows")


async def test_another_worth_holds_for_the_whole_log(tmp_path):
    async with served(tmp_path / "s.db", configured(worth={"click": 1, "purchase": 0}), Clock()) as engine:
        for i in range(40):
            await clicked(engine, await searched(engine), [i % 3], action="purchase")
            engine.clock.now += 40 * SECOND
        before = await whole(engine)
        await engine.reload(configured(tmp_path / "s.db", worth={"click": 1, "purchase": 2}))
        after = await whole(engine)
    assert before.report["searches"] >= 39
    assert (before.report["clicked"], before.report["credited"]) == (0, {})
    assert before.report["others"] == {"purchase": before.report["searches"]}
    assert before.verdict.startswith("Too early: no action counts so far, as these are worth nothing: ")
    assert f"{before.report['searches']} purchase" in before.verdict
    assert "worth nothing" not in after.verdict
    assert after.report["credited"] == {"purchase": after.report["clicked"]}
    assert after.report["clicked"] == after.report["searches"]


async def test_one_of_several_shards_judges_nothing(tmp_path):
    config = configured(tmp_path / "s.db")
    async with served(tmp_path / "s.db", config, Clock(), Shard(0, 2)) as engine:
        with pytest.raises(InvalidValue, match="give all logs to tacit duel"):
            await engine.verdict("search")


# By request ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verdict")
    config = configured(folder / "s.db", attribution_window=1.0, aggregation="union")
    config.placements["shop"] = config.placements["market"] = config.placements["search"]
    config.placements["home"] = load_config().placements["default"]
    with run_in_thread(config) as address:
        yield address


def test_a_verdict_over_http(client, address):
    searches = [{"rankings": LISTS, "user": f"u{i}", "segments": {"market": "de"}} for i in range(60)]
    status, _, made = client.post("market/duel/batch", {"decisions": searches})
    assert status == 200
    told = [
        {"decision_id": one["decision_id"], "items": one["items"][:1], "action": "purchase"}
        for one in made["decisions"]
    ]
    status, _, answer = client.post("market/clicks/batch", {"feedback": told})
    assert {one["outcome"] for one in answer["feedback"]} == {"pending"}

    def counted():
        status, _, found = client.ask("GET", "/v1/placements/market/verdict?confidence=0.99")
        assert status == 200
        return found if found["whole"] and found["report"] and not found["open"] else None

    found = eventually(counted)
    assert found["report"]["searches"] == 60
    assert found["report"]["confidence"] == 0.99
    assert found["report"]["units"] == 60
    assert found["since"] < found["until"]
    with ServiceClient(address) as clients:
        same = clients.verdict("market", confidence=0.99)
        assert (same.verdict, same.report) == (found["verdict"], found["report"])
        shown = clients.duel("market", LISTS, user="u1", segments={"market": "se"})
        told = clients.clicks("market", shown.decision_id, [1], action="add_to_cart")
        assert told.outcome == "pending"
        with pytest.raises(InvalidRequest, match=r"segments.shop.*takes market"):
            clients.duel("market", LISTS, segments={"shop": "x"})


# The log -------------------------------------------------------------------------------------


async def test_the_exported_log_says_whose_and_where_and_is_read_by_wins_too(tmp_path):
    async with served(tmp_path / "s.db", configured(rankers=["old", "new"]), Clock()) as engine:
        lists = {"old": list("abcd"), "new": list("efgh")}
        row = await searched(engine, lists=lists, user="ann", segments={"market": "de"})
        await clicked(engine, row, [2], action="purchase")
        await clicked(engine, row, [0])
        await clicked(engine, row, [2], action="purchase")
        await searched(engine, lists=lists)
        engine.clock.now += 40 * SECOND
        await searched(engine, lists=lists)
    config, store = configured(tmp_path / "s.db", rankers=["old", "new"]), None
    store = store_at(tmp_path / "s.db")
    with contextlib.closing(store):
        export(config, store, tmp_path / "log")
    first, second = pq.read_table(tmp_path / "log" / "duels-search.parquet").to_pylist()
    assert json.loads(first["clicks"]) == [0, {"position": 2, "action": "purchase"}]
    assert (first["market"], second["market"], second["user"]) == ("de", None, None)
    assert len(first["user"]) == 16
    report, rows = read_duels(tmp_path / "log" / "duels-search.parquet")
    assert rows.kept == 2
    assert report.unclicked == 1
    file = tmp_path / "by hand.jsonl"
    file.write_text(json.dumps({k: first[k] for k in ("left", "right", "interleaved", "clicks")}))
    assert read_duels(file)[1].kept == 1


# The page ------------------------------------------------------------------------------------


def test_the_page_shows_the_verdict_to_whoever_asks_for_it(client, address):
    lists = {"old": list("abcd"), "new": list("efgh"), "odd": list("ijkl")}
    # All are decided before anything is learned, so that no ranker duels with itself alone.
    asked = {"rankings": lists, "segments": {"market": "se"}}
    made = client.post("shop/duel/batch", {"decisions": [asked] * 120})[2]["decisions"]
    told = [{"decision_id": one["decision_id"], "clicks": [0]} for one in made]
    client.post("shop/clicks/batch", {"feedback": told})

    def page(query):
        status, _, text = client.ask("GET", f"/placements/shop{query}")
        assert status == 200
        return text.decode()

    assert 'href="/placements/shop?verdict=1"' in page("")
    assert 'data-field="preferred"' not in page("")

    def judged():
        with ServiceClient(address) as asked:
            found = asked.verdict("shop")
        return found if found.whole and not found.open else None

    found = eventually(judged)
    text = page("?verdict=1")
    assert found.verdict in html.unescape(text)
    assert f"{found.report['searches']} searches" in text
    assert 'data-table="rivals"' in text
    assert 'data-table="segments"' in text
    assert "market se" in text
    assert client.ask("GET", "/placements/home?verdict=1")[0] == 200
