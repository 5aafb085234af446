"""Placements of slates whose items are known by vectors: sent with requests, or kept in a catalogue."""

import contextlib
import json
from functools import partial

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest
from drawn import is_long
from harness import SECOND, START, Clock, by_clock, clicked, folding, quiet, served, with_home
from items_of_ones_own import LikedLists
from placement_access import check_request, decide, export_counts, get_config, get_holdout, get_learner
from stores import store_at

import tacit
from tacit.client import Clicks, Client, InvalidRequest
from tacit.core.arrays import leaves
from tacit.errors import AssumptionWarning, TacitError
from tacit.evaluate import IndependentIPS, Ranking
from tacit.learning import decisions
from tacit.learning.learner import Learner
from tacit.service.log.ids import Draws
from tacit.service.log.requests import DecisionRequest
from tacit.service.log.rows import decode_list
from tacit.service.maintenance.log_export import export
from tacit.service.maintenance.ubi_export import export_ubi
from tacit.wire.control import ModeOf, PinOf
from tacit.wire.decisions import Impression, ItemsGone, ItemsOf, NewItem
from tests.service.test_items import DIM, put, vectors

CONTEXT = {"device": ["ios", "web"]}
FAST = {} if is_long() else {"policy": "items_of_ones_own:LikedLists(epsilon=0.1)"}
"""For what takes the default 17 s of compilation: to learn from a log."""
MODES = {
    "plain": {},
    "holdout": {"holdout": {"share": 0.3}},
    "baseline": {"holdout": {"share": 0.3, "control": "baseline", "unit": "user"}},
    "shadow": {"shadow": "item-list-mix(per_key=True)"},
    "frozen": {},
}
configured = partial(
    with_home, kind="slates", policy="item-list-mix(epsilon=0.1)", relevance_dim=DIM, context=CONTEXT
)


async def traffic(engine, rounds, seed=0, kinds=6):
    """List items by id, of a segment, of all, by their vectors; change the catalogue, click in between."""
    for i in range(rounds):
        rng = np.random.default_rng((seed, i))
        engine.clock.now = START + (seed * 1000 + i) * 7 * SECOND
        if i % 7 == 3:
            await put(engine, 3, i, int(rng.integers(9)))
        if i % 11 == 5:
            await engine.ask("home", ItemsGone([f"doc-{11 - i % 3}"]))
            await put(engine, 1, i, 11 - i % 3)
        home = engine.placements["home"]
        ids = [f"doc-{j}" for j in rng.permutation(12)[:5]]
        said = {"device": ["ios", "web"][i % 2]}
        more = {"user": f"u{i % 5}"} if get_holdout(home) else {}
        asked = [
            DecisionRequest("k", ids, said, **more),
            DecisionRequest("k", None, said, segment="news", id=f"d{seed}-{i}" if i % 2 else None, **more),
            DecisionRequest("k", None, {}, **more),
            DecisionRequest("k", ids[:2], said, **more),
            DecisionRequest("k", ["a", "b", "c", "d"], said, relevance=vectors(4, i).tolist(), **more),
            DecisionRequest("k", None, said, relevance=vectors(4, i).tolist(), **more),
        ]
        for row in await decide(engine, *[asked[(i + j) % kinds] for j in range(1 + i % 4)]):
            if rng.random() < 0.7:
                places = rng.permutation(len(decode_list(row.shown).arms))[: rng.integers(3)]
                await clicked(engine, row, sorted(places.tolist()))


@pytest.mark.parametrize("mode", MODES)
async def test_what_was_learned_is_a_fold_over_the_log(tmp_path, mode):
    config = configured(snapshot_every=20, **MODES[mode])
    async with folding(tmp_path / "s.db", config, partly=True) as engine:
        await put(engine)
        if mode in ("shadow", "frozen"):
            await engine.ask("home", ModeOf(mode))
        await traffic(engine, 24)
        assert export_counts(engine.placements["home"])[0][0] > 10 or mode == "frozen"


@pytest.mark.parametrize("kind", ["slates", "features"])
async def test_many_decisions_among_many_items_are_made_in_pieces(tmp_path, monkeypatch, kind):
    """Their vectors at once, a thousand times ten thousand, would take the memory of the machine."""
    monkeypatch.setattr(decisions, "MAX_NUMBERS", 40 * DIM)
    policy = "item-list-mix(epsilon=0.1)" if kind == "slates" else "embedding-mixture"
    config = configured(kind=kind, policy=policy)
    async with folding(tmp_path / "s.db", config) as engine:
        await put(engine)
        told = [DecisionRequest(f"key {i}", None, {}) for i in range(50)]
        rows = await decide(engine, *told)
        assert [row.key for row in rows] == [f"key {i}" for i in range(50)]
        assert len({row.id for row in rows}) == 50
        assert [row.seq for row in rows] == list(range(rows[0].seq, rows[0].seq + 50))
        engine.clock.now += 60 * SECOND
        await decide(engine, *told)


async def test_a_policy_that_reads_two_blocks_of_features_is_served_too(tmp_path):
    config = with_home(kind="slates", policy="cascade-ec(relevance_dim=2, examination_dim=1)", positions=2)
    async with folding(tmp_path / "s.db", config) as engine:
        for i in range(12):
            engine.clock.now = START + i * 40 * SECOND
            given = {
                "relevance": vectors(4, i)[:, :2].tolist(),
                "examination": vectors(4, i)[:, 2:3].tolist(),
            }
            (row,) = await decide(engine, DecisionRequest("k", list("abcd"), **given))
            await clicked(engine, row, [i % 2])


@pytest.mark.parametrize("laid_out", [decisions.MAX_NUMBERS, 10 * DIM])
async def test_it_learns_what_the_learner_learns_from_the_same_vectors(tmp_path, laid_out, monkeypatch):
    """Also where many windows close at once, and are learned from in pieces."""
    monkeypatch.setattr(decisions, "MAX_NUMBERS", laid_out)
    async with served(tmp_path / "s.db", configured()) as engine:
        await put(engine)
        home = engine.placements["home"]
        expected, known = Learner(get_config(home).policy, seed=0), vectors(12)
        rng, made = np.random.default_rng(3), []
        for i in range(20):
            offer, said = rng.permutation(12)[: 2 + i % 9], {"device": "ios"} if i % 2 else {}
            request = DecisionRequest("k", [f"doc-{j}" for j in offer], said, id=f"d{i}")
            (row,) = await decide(engine, request)
            assert (await decide(engine, request)) == [row]
            Draws(7).begin(expected.rng, f"d{i}")
            decision = expected.choose("k", said, request.arms, relevance=known[offer])
            shown = decode_list(row.shown)
            assert (tuple(shown.arms), row.propensity) == (decision.slate, decision.propensity)
            assert (
                shown.position_propensities == decision.position_propensities[: len(decision.slate)].tolist()
            )
            clicks = [k for k in range(len(decision.slate)) if (i + k) % 3 == 0]
            # What it saw is what it teaches, whatever becomes of the item.
            await engine.ask("home", ItemsOf([NewItem(shown.arms[0], [9.0] * DIM)]))
            await clicked(engine, row, clicks)
            await put(engine)
            made.append((decision, clicks))
        engine.clock.now += 60 * SECOND
        await decide(engine, DecisionRequest("k", None, {}))
        for decision, clicks in made:
            expected.learn(decision, [float(k in clicks) for k in range(3)])
        pairs = zip(leaves(get_learner(home).state), leaves(expected.state), strict=True)
        assert all(np.array_equal(a, b) for (_, a), (_, b) in pairs)
        assert len(get_learner(home).items) == 12


def test_it_learns_over_http_what_users_like(tmp_path):
    """What learned nothing would pass with probability 3e-7: the first of a random order is any item."""
    clock, rng = Clock(), np.random.default_rng(5)
    known, taste = rng.standard_normal((60, DIM)), np.array([1.0, -1.0, 0.5, 0.0])
    likes = {"ios": 1 / (1 + np.exp(1 - 2 * known @ taste)), "web": 1 / (1 + np.exp(1 + 2 * known @ taste))}
    config = configured(tmp_path / "s.db", policy="auto", holdout={"share": 0.3})
    with by_clock(config, clock) as url, Client(url) as client:
        client.put_items("home", [f"doc-{i}" for i in range(60)], known)
        gained = []
        for i in range(40):
            offers = [rng.permutation(60)[:10] for _ in range(20)]
            devices = [str(rng.choice(["ios", "web"])) for _ in offers]
            asked = [
                Impression("k", [f"doc-{j}" for j in offer], {"device": device}, decision_id=f"{i}-{n}")
                if n % 2
                else Impression(
                    "k", context={"device": device}, decision_id=f"{i}-{n}", relevance=known[offer].tolist()
                )
                for n, (offer, device) in enumerate(zip(offers, devices, strict=True))
            ]
            answers, sent = client.slate_many("home", asked), []
            for n, answer in enumerate(answers):
                places = [int(str(arm).removeprefix("doc-")) for arm in answer.slate]
                items = places if n % 2 else offers[n][places]
                chances = likes[devices[n]][items] * [1.0, 0.6, 0.4]
                sent.append(Clicks(answer.decision_id, np.flatnonzero(rng.random(3) < chances).tolist()))
                if i >= 25:
                    gained.append(likes[devices[n]][items[0]] - likes[devices[n]][offers[n]].mean())
            client.clicks_many("home", sent)
            clock.now += 40 * SECOND
        client.slate("home", "k", context={})
        assert np.mean(gained) > 5 * np.std(gained) / np.sqrt(len(gained))
        found = client.lift("home")
        assert found.claim == "better"
        assert found.groups["control"].decisions > 100


def test_it_is_asked_over_http(tmp_path):
    clock = Clock()
    with by_clock(configured(tmp_path / "s.db"), clock) as url, Client(url) as client:
        said = {"device": "ios"}
        with pytest.raises(InvalidRequest, match="relevance"):
            client.slate("home", "k", context=said)
        assert set(client.slate("home", "k", context=said, relevance=vectors(5).tolist()).slate) < set(
            range(5)
        )
        client.put_items("home", ["film", "song", "news"], vectors(3), ["fun", "fun", "serious"])
        made = client.slate("home", "k", context=said, segment="fun")
        assert set(made.slate) == {"film", "song"}
        assert client.clicks("home", made.decision_id, items=[made.slate[1]]).outcome == "pending"
        with pytest.raises(InvalidRequest, match="clicks"):
            client.clicks("home", made.decision_id, [2])
        assert len(client.slate("home", "k", context={}).slate) == 3
        assert client.slate("home", "k", context={}, arms=["gone", "news"], unknown="skip").slate == ["news"]
        clock.now += 60 * SECOND
        assert client.clicks("home", made.decision_id, [0]).outcome == "late"
        page = httpx.get(f"{url}/placements/home").text
        assert "3 items in the catalogue, version 1, in 2 segments." in page
        assert 'data-field="clicked" data-value="0.25"' in page
        for given, says in (
            ({"arms": ["gone", "news"]}, "'gone'"),
            ({"segment": "weather"}, "0 candidates of segment 'weather'"),
            ({"relevance": [[1.0, 2.0]]}, r"relevance\[0\]"),
            ({"relevance": vectors(2).tolist(), "arms": ["film"]}, "arms"),
            ({"relevance": vectors(2).tolist(), "unknown": "skip"}, "unknown"),
            ({"context": {"browser": "x"}}, "browser"),
            ({"context": [1.0]}, "context"),
        ):
            with pytest.raises(InvalidRequest, match=says):
                client.slate("home", "k", **{"context": said} | given)
        many = [Impression("k", arms, said) for arms in (["film"], ["gone"])]
        with pytest.raises(InvalidRequest, match=r"decisions\[1\]\.arms: 'gone'"):
            client.slate_many("home", many)


async def test_what_is_pinned_is_listed_where_it_is_on_offer(tmp_path):
    async with folding(tmp_path / "s.db", configured()) as engine:
        await put(engine)
        await engine.ask("home", PinOf(["doc-3", "doc-1"], "2100-01-01"))
        home = engine.placements["home"]
        offers = [f"doc-{i}" for i in (1, 2, 3)], ["doc-3", "doc-5"], None
        told = [check_request(home, DecisionRequest("k", offer, {})) for offer in offers]
        rows = await engine.decide_many("home", told)
        assert [row.mode for row in rows] == ["pinned", "online", "pinned"]
        assert decode_list(rows[2].shown).arms == ["doc-3", "doc-1"]
        await clicked(engine, rows[2], [1])
        engine.clock.now += 60 * SECOND
        await engine.decide_many("home", told[:1])


async def test_another_policy_takes_over_what_was_listed(tmp_path):
    config = configured(snapshot_every=20)
    other = {"name": "item-list-mix", "relevance_dim": DIM, "context": CONTEXT, "per_key": True}
    async with folding(tmp_path / "s.db", config) as engine:
        await put(engine)
        await traffic(engine, 16)
        await quiet(engine)
        for spec in ("embedding-mixture(4)", "list-mix", "cascade-ec(4, 1)", "item-list-mix(5)"):
            with pytest.raises(TacitError):
                await engine.rebuild("home", spec)
        await engine.rebuild("home", other)
        await traffic(engine, 8, seed=1)


# Exported ------------------------------------------------------------------------------------


async def served_lists(path, config, kinds):
    """List items while the catalogue changes, and let all windows close; return what was learned."""
    async with served(path, config) as engine:
        await put(engine)
        await traffic(engine, 24, kinds=kinds)
        home = engine.placements["home"]
        engine.clock.now += 60 * SECOND
        await decide(engine, DecisionRequest("k", None, {}))
        return [array.copy() for _, array in leaves(get_learner(home).state)]


async def test_the_exported_lists_say_what_was_learned_and_judge_another_policy(tmp_path):
    config = configured(**FAST)
    state = await served_lists(tmp_path / "s.db", config, kinds=5)
    with contextlib.closing(store_at(tmp_path / "s.db")) as store:
        counts = export(config, store, tmp_path / "log")
        made = [row for row in store.events(0) if hasattr(row, "shown")]
    log, items = tmp_path / "log" / "lists-home.parquet", tmp_path / "log" / "items-home.parquet"
    table = pq.read_table(log).to_pylist()
    # All but the last one, whose window is open.
    assert {row["decision_id"] for row in table} == {row.id for row in made[:-1]}
    assert counts["lists-home"] == len(table) > 100
    (whole, *_) = (row for row in made if row.offered is None and row.asked == "{}")
    assert {len(row["arms"]) for row in table if row["decision_id"] == whole.id} == {12}
    again = Learner(config.placements["home"].policy, seed=1).fit_log(log, items=items)
    assert again.decisions == len(made) - 1
    pairs = zip(leaves(again.state), state, strict=True)
    assert all(np.array_equal(a, b) for (_, a), b in pairs)
    target = LikedLists(DIM, context=CONTEXT)
    with pytest.warns(AssumptionWarning, match="as much as"):
        found = tacit.off_policy(Ranking(target), log, [IndependentIPS(3)], items=items)
    assert found.estimates[0].intervals["normal"]


async def test_lists_as_records_of_ubi_name_what_was_on_offer(tmp_path):
    await served_lists(tmp_path / "s.db", configured(), kinds=6)
    with contextlib.closing(store_at(tmp_path / "s.db")) as store:
        export_ubi(store, tmp_path / "ubi")
        made = sum(hasattr(row, "shown") for row in store.events(0))
    lines = (tmp_path / "ubi" / "ubi_queries.ndjson").read_text().splitlines()
    told = [json.loads(line)["query_attributes"]["tacit"] for line in lines]
    assert len(told) == made
    assert {len(one["arms"]) for one in told} >= {2, 4, 5, 12}
    assert all(len(one["propensities"]) == len(one["position_propensities"]) for one in told)
    rows = list(tacit.logs.read_ubi(tmp_path / "ubi"))
    assert sum(len(batch["arm"]) for batch in rows) > 100


async def test_the_log_that_begins_with_a_base_is_exported_with_its_items(tmp_path, caplog):
    """The rows that filled the catalogue were dropped."""
    config = configured(snapshot_every=10, retention=1.0)
    async with served(tmp_path / "s.db", config) as engine:
        await put(engine)
        await traffic(engine, 10)
        engine.clock.now = START + 3 * 86_400 * SECOND
        await traffic(engine, 10, seed=40_000)
        await quiet(engine)
    with contextlib.closing(store_at(tmp_path / "s.db")) as store:
        assert store.snapshots.load_base(1) is not None
        counts = export(config, store, tmp_path / "log")
        export_ubi(store, tmp_path / "ubi")
    assert counts["lists-home"] > 10
    assert "decisions are in no click log: their requests named no items" in caplog.text
