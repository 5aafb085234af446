"""Duel placements: rankings in, one list out, clicks in; over HTTP, after crashes, by hand."""

import asyncio
from functools import partial

import harness
import numpy as np
import placement_access as access
import pytest
from harness import SECOND, START, as_after_a_crash, eventually, folding, served, with_home
from stores import store_at

from tacit.core.arrays import leaves
from tacit.evaluate.duels import preferences, read_duels
from tacit.interleaving import TeamDraft, credit_clicks
from tacit.learning.learner import Learner
from tacit.service.app.server import run_in_thread
from tacit.service.config.file import load_config
from tacit.service.errors import InConflict
from tacit.service.log.ids import Draws
from tacit.service.log.requests import DecisionRequest, FeedbackRequest
from tacit.service.log.rows import EXAMINED
from tacit.service.log.sqlite import SqliteStore
from tacit.service.maintenance.doctor import verify
from tacit.service.maintenance.log_export import export, import_log
from tacit.wire.control import ArmsOf

RANKINGS = {"old": ["a", "b", "c", "d"], "new": ["b", "a", "e", "c"], "odd": ["f", "d", "e", "b"]}
RANKERS = list(RANKINGS)
WINDOW = 30 * SECOND


configured = partial(with_home, name="search", kind="duels", rankers=RANKERS, length=4)


learned = partial(harness.learned, name="search")


async def dueled(engine, key="all", rankings=RANKINGS, id=None):
    (row,) = await access.decide(engine, DecisionRequest(key, id=id, rankings=rankings), name="search")
    return row


clicked = partial(harness.clicked, name="search")


async def traffic(engine, rounds, seed=0, start=0):
    """Send searches and clicks, some of them late, some never."""
    rows = []
    for i in range(start, start + rounds):
        rng = np.random.default_rng((seed, i))
        engine.clock.now = START + i * 7 * SECOND
        keys = [f"key {rng.integers(2)}" for _ in range(3)]
        lists = [{name: rng.permutation(list("abcdef")).tolist() for name in RANKERS} for _ in keys]
        lists[2] = None
        searches = [
            dueled(engine, key, rankings, f"{i} {j}")
            for j, (key, rankings) in enumerate(zip(keys, lists, strict=True))
        ]
        new = await asyncio.gather(*searches)
        rows.extend(new)
        for row in new[:2]:
            if rng.random() < 0.7:
                await clicked(engine, row, sorted(rng.permutation(4)[: rng.integers(3)].tolist()))
        if rng.random() < 0.7:
            await engine.feedback("search", new[2].id, float(rng.integers(3)) / 2)
    return rows


# By hand -------------------------------------------------------------------------------------


async def test_the_list_is_interleaved_from_the_two_rankings_of_the_pair(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        rng = np.random.Generator(np.random.PCG64(0))
        for i in range(20):
            row = await dueled(engine, id=f"d{i}")
            pair = access.get_shown_arms(engine.placements["search"], row)
            assert row.arm == pair[0]
            Draws(7, "interleaving").begin(rng, f"d{i}")
            expected = TeamDraft(length=4).interleave([RANKINGS[name] for name in pair], rng)
            assert access.decode_shown(row.shown).interleaved == expected


@pytest.mark.parametrize(("ties", "worth"), [("keep", 0.5), ("again", None)])
async def test_clicks_become_an_outcome_when_the_window_closes(tmp_path, ties, worth):
    async with served(tmp_path / "s.db", configured(policy="rmed1", ties=ties)) as engine:
        placement = engine.placements["search"]
        expected = Learner(access.get_config(placement).policy, seed=7)
        duels = []
        for i in range(30):
            row = await dueled(engine)
            interleaved = access.decode_shown(row.shown).interleaved
            clicks = [[], [0], [1, 3], [0, 1]][i % 4]
            if clicks:
                assert await clicked(engine, row, clicks) == "pending"
            assert access.get_tallies(placement).get("all", access.DuelTally(3)).duels == len(
                [duel for duel in duels if duel[0] != duel[1]]
            )
            engine.clock.now += WINDOW
            left, right = access.get_shown_arms(placement, row)
            chance = credit_clicks(interleaved, clicks).chance
            duels.append((left, right, chance))
            decision = access.restore_decision(placement, row, row.epoch)
            expected.observe_decisions([decision])
            told = worth if chance == 0.5 else chance
            if told is not None:
                expected.learn(decision, told)
            await dueled(engine, key="another")
            state = learned(engine)[1]
            lane = access.get_learner(placement).lane("all")
            for field, array in leaves(expected.state):
                of_all = np.frombuffer(state[field]).reshape(-1, *array.shape[1:])[lane]
                np.testing.assert_array_equal(of_all, array[0])
        report, wanted = access.report_duels(placement, "all")[1], preferences(duels)
        places = [report.names.index(name) for name in wanted.names]
        np.testing.assert_array_equal(report.plays[np.ix_(places, places)], wanted.plays)
        np.testing.assert_allclose(report.scores[np.ix_(places, places)], wanted.scores)
        assert report.ties == wanted.ties


def test_a_fair_coin_decides_ties_and_is_thrown_once(tmp_path):
    async def session(path, length):
        async with served(path, configured(attribution_window=1.0)) as engine:
            for i in range(length):
                await dueled(engine, id=f"{i}")
                engine.clock.now += SECOND
            await dueled(engine, key="another")
            wins = access.get_learner(engine.placements["search"]).state.margins.wins[0]
            return wins.copy(), learned(engine)

    wins, first = asyncio.run(session(tmp_path / "a.db", 200))
    again, second = asyncio.run(session(tmp_path / "b.db", 200))
    np.testing.assert_array_equal(wins, again)
    assert set(np.unique(wins % 1.0)) == {0.0}, "outcomes are binary"
    assert 0.3 < wins[np.triu_indices(3, 1)].sum() / wins.sum() < 0.7
    assert first[1] == second[1]


async def test_unclicked_lists_can_be_nothing(tmp_path):
    async with served(tmp_path / "s.db", configured(unclicked="nothing")) as engine:
        first, second = await dueled(engine), await dueled(engine)
        await clicked(engine, first, [])
        engine.clock.now += WINDOW
        third = await dueled(engine)
        placement = engine.placements["search"]
        assert access.get_tallies(placement) == {}
        assert not access.get_learner(placement).state.margins.wins.any()
        await clicked(engine, third, [0])
        engine.clock.now += WINDOW
        await dueled(engine)
        assert access.get_tallies(placement)["all"].duels == 1
        assert await clicked(engine, second, [0]) == "late"


@pytest.mark.parametrize(
    ("aggregation", "outcomes", "clicks"),
    [
        ("union", ["pending", "pending"], [0, 2]),
        ("last", ["pending", "pending"], [0]),
        ("first", ["learned", "repeated"], [2]),
    ],
)
async def test_clicks_may_come_one_by_one(tmp_path, aggregation, outcomes, clicks):
    async with served(tmp_path / "s.db", configured(aggregation=aggregation, ties="keep")) as engine:
        row = await dueled(engine)
        shown = access.decode_shown(row.shown).interleaved
        assert await clicked(engine, row, items=[shown.items[2]]) == outcomes[0]
        assert await clicked(engine, row, [0]) == outcomes[1]
        engine.clock.now += WINDOW
        await dueled(engine)
        pair = tuple(map(RANKERS.index, access.get_shown_arms(engine.placements["search"], row)))
        _, report = access.report_duels(engine.placements["search"])
        assert report.scores[pair] == credit_clicks(shown, clicks).chance


async def test_a_pair_without_lists_takes_an_outcome(tmp_path):
    async with served(tmp_path / "s.db", configured(ties="again")) as engine:
        row = await dueled(engine, rankings=None)
        assert access.decode_shown(row.shown).interleaved is None
        assert await engine.feedback("search", row.id, 1.0) == "learned"
        assert await engine.feedback("search", row.id, 0.0) == "repeated"
        left, right = access.get_shown_arms(engine.placements["search"], row)
        _, report = access.report_duels(engine.placements["search"])
        assert report.estimates[RANKERS.index(left), RANKERS.index(right)] == 1.0
        assert await engine.feedback("search", (await dueled(engine, rankings=None)).id, 0.5) == "tied"


async def test_examined_lists_only(tmp_path):
    async with served(tmp_path / "s.db", configured(seen="examined")) as engine:
        seen, _ = await dueled(engine), await dueled(engine)
        await engine.record_many("search", [FeedbackRequest(seen.id, EXAMINED)])
        engine.clock.now += WINDOW
        await dueled(engine)
        assert access.get_tallies(engine.placements["search"])["all"].unclicked == 1


# The fold ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy",
    ["rmed1", "double-thompson-sampling", "beat-the-mean(horizon=1000)", "interleaved-filter2(1000)"],
)
async def test_what_was_learned_is_a_fold_over_the_log(tmp_path, policy):
    async with folding(
        tmp_path / "s.db", configured(policy=policy, snapshot_every=40), partly=True, name="search"
    ) as engine:
        await traffic(engine, 20)
        await engine.ask("search", ArmsOf(["newest"]))
        # Whatever is read on the way.
        access.report_duels(engine.placements["search"], "key 0")
    assert access.export_counts(engine.placements["search"]), "there were duels"


@pytest.mark.usefixtures("kind")
async def test_the_log_goes_on_in_another_store_and_into_a_report(tmp_path):
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    async with served(tmp_path / "s.db", configured()) as engine:
        await traffic(engine, 12)
        engine.clock.now += WINDOW
        await dueled(engine)
        first = await dueled(engine, id="open")
        live, (key, report) = learned(engine), access.report_duels(engine.placements["search"])
    store = store_at(tmp_path / "s.db")
    counts = export(configured(), store, tmp_path / "out")
    store.close()
    assert counts["clicks"] == 0, "duels are no clicks on one arm"
    there = store_at(tmp_path / "there.db")
    import_log(there, tmp_path / "out")
    assert verify(configured(), there) == []
    there.close()
    async with served(tmp_path / "there.db", configured()) as engine:
        engine.clock.now = first.time
        assert learned(engine) == live
        assert await dueled(engine, id="open") == first
    duels = pq.read_table(tmp_path / "out" / "duels-search.parquet")
    pq.write_table(duels.filter(pc.field("key") == key), tmp_path / "one.parquet")
    read, rows = read_duels(tmp_path / "one.parquet")
    assert rows.kept == rows.read > 0
    places = [report.names.index(name) for name in read.names]
    np.testing.assert_array_equal(read.plays, report.plays[np.ix_(places, places)])
    np.testing.assert_allclose(read.scores, report.scores[np.ix_(places, places)])
    assert (read.ties, read.unclicked) == (report.ties, report.unclicked)


async def test_the_same_request_gets_the_same_answer_after_a_crash(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        row = await dueled(engine, id="one")
        assert await dueled(engine, id="one") == row
        assert await clicked(engine, row, [1], id="click") == "pending"
        assert await clicked(engine, row, [1], id="click") == "duplicate"
        crashed = as_after_a_crash(tmp_path / "s.db")
    async with served(crashed, configured()) as engine:
        assert await dueled(engine, id="one") == row
        assert await clicked(engine, row, [1], id="click") == "duplicate"
        with pytest.raises(InConflict, match="feedback_id"):
            await clicked(engine, row, [2], id="click")
        with pytest.raises(InConflict, match="decision_id"):
            await dueled(engine, id="one", rankings=RANKINGS | {"odd": ["a"]})
        with pytest.raises(InConflict, match="decision_id"):
            await dueled(engine, id="one", rankings=None)


async def test_changed_ties_fold_the_log_anew(tmp_path):
    path = tmp_path / "s.db"
    async with served(path, configured(ties="keep")) as engine:
        await traffic(engine, 12)
    async with served(path, configured(ties="coin")) as engine:
        await traffic(engine, 1, start=30)
        changed = learned(engine)
    async with served(tmp_path / "t.db", configured(ties="coin")) as engine:
        await traffic(engine, 12)
    assert changed[3][0] == 39  # decisions
    rows = [tuple(SqliteStore(p).events(0)) for p in (path, tmp_path / "t.db")]
    assert len(rows[0]) > len(rows[1])


# HTTP ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("duels")
    # Where an answer says that a window is open, it must stay open for as long as a request takes.
    config = configured(folder / "s.db", attribution_window=600.0, ties="keep")
    config.placements.update(configured(name="race", attribution_window=1.0, ties="keep").placements)
    config.placements["home"] = load_config().placements["default"]
    with run_in_thread(config) as address:
        yield address


def test_a_search_over_http(client):
    status, _, answer = client.post("search/duel", {"rankings": RANKINGS})
    assert status == 200
    assert {"decision_id", "left", "right", "propensity", "epoch", "durability"} <= answer.keys()
    left, right = (RANKINGS[answer[side]] for side in ("left", "right"))
    assert set(answer["items"]) <= {*left, *right}
    assert len(answer["items"]) == len(answer["teams"]) == 4
    assert 0 < answer["probability"] <= 1
    told = {"decision_id": answer["decision_id"], "items": answer["items"][:1]}
    status, _, recorded = client.post("search/clicks", told)
    assert (status, recorded["learned"], recorded["outcome"]) == (200, False, "pending")


def test_many_at_once(client):
    searches = [{"rankings": RANKINGS, "key": "batch"}, {"key": "batch"}]
    status, _, answer = client.post("search/duel/batch", {"decisions": searches})
    assert status == 200
    with_list, alone = answer["decisions"]
    assert "items" not in alone
    feedback = [
        {"decision_id": with_list["decision_id"], "clicks": [1]},
        {"decision_id": alone["decision_id"], "clicks": [1]},
        {"decision_id": "nobody's", "clicks": [1]},
    ]
    status, _, answer = client.post("search/clicks/batch", {"feedback": feedback})
    assert status == 200
    assert [one["outcome"] for one in answer["feedback"]] == ["pending", "invalid-value", "unknown-decision"]


def test_clicks_need_a_list(client):
    _, _, answer = client.post("home/decide", {"key": "a"})
    status, _, answer = client.post("home/clicks", {"decision_id": answer["decision_id"], "clicks": [0]})
    assert (status, answer["field"]) == (422, "placement")


def test_the_better_ranker_is_found_and_it_is_said_when_to_stop(client):
    # Users click on a wherever it stands; only the old ranker shows it at the top.
    path = "/v1/placements/race/duels?key=found"
    assert client.ask("GET", path)[0] == 422
    rankings = {"old": list("abcd"), "new": list("bacd"), "odd": list("bcda")}

    def learned_all():
        placements = client.ask("GET", "/v1/placements")[2]["placements"]
        return not any(one["pending"] for one in placements if one["name"] == "race")

    def safe_to_stop():
        searches = {"decisions": [{"rankings": rankings, "key": "found"}] * 800}
        _, _, answer = client.post("race/duel/batch", searches)
        clicks = [
            {"decision_id": one["decision_id"], "items": one["items"][:1]}
            for one in answer["decisions"]
            if one["items"][0] == "a" or one["left"] == one["right"]
        ]
        if clicks:
            client.post("race/clicks/batch", {"feedback": clicks})
        eventually(learned_all)
        status, _, standings = client.ask("GET", path)
        return standings if status == 200 and standings["report"]["safe_to_stop"] else None

    standings = eventually(safe_to_stop)
    report = standings["report"]
    assert report["winner"] == "old"
    assert set(report["out"]) == {"new", "odd"}
    assert report["safe_low"][0][1] > 0.5
    assert standings["keys"][0]["duels"] > 0
    assert "Safe to stop" in report["verdict"]


# Configuration -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "method"),
    [("probabilistic", "Probabilistic"), ("balanced", "Balanced"), ("optimized", "Optimized")],
)
async def test_every_method_can_be_configured(tmp_path, name, method):
    async with served(tmp_path / "s.db", configured(interleaving=name)) as engine:
        row = await dueled(engine)
        assert access.decode_shown(row.shown).interleaved.method == method
        await clicked(engine, row, [0, 1])
        engine.clock.now += WINDOW
        await dueled(engine)
        assert access.get_tallies(engine.placements["search"])["all"].duels == 1
