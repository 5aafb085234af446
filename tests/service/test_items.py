"""The catalogue of a placement: items put and removed over HTTP, decisions among them, and the log's fold."""

import asyncio
import contextlib
import json
from functools import partial

import numpy as np
import placement_access as access
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from drawn import is_long
from harness import START, folding, served, with_home
from placement_access import everything
from stores import store_at

from tacit.cli import cli
from tacit.client import Client, InvalidRequest
from tacit.errors import AssumptionWarning, InvalidValue, UnknownName
from tacit.learning.learner import Learner
from tacit.logs.items import ItemTable
from tacit.service.app.server import run_in_thread
from tacit.service.errors import InConflict
from tacit.service.log.ids import Draws
from tacit.service.log.requests import Decide, DecisionRequest
from tacit.service.maintenance.log_export import export
from tacit.service.maintenance.ubi_export import export_ubi
from tacit.wire.control import ModeOf
from tacit.wire.decisions import ItemsGone, ItemsOf, NewItem

DIM = 4
POLICY = f"embedding-mixture(relevance_dim={DIM})"
# To learn from what a control shows takes it 13 s of compilation.
FAST = {} if is_long() else {"policy": "items_of_ones_own:LikedItems"}
MODES = {
    "plain": {},
    "holdout": {"holdout": {"share": 0.3}} | FAST,
    "control policy": {"holdout": {"share": 0.3, "control": {"policy": POLICY}}} | FAST,
    "shadow": {"shadow": POLICY},
}
configured = partial(with_home, kind="features", policy=POLICY, relevance_dim=DIM)


def vectors(count, seed=1):
    return np.random.default_rng(seed).integers(-8, 9, (count, DIM)) / 4.0


async def put(engine, count=12, seed=1, first=0):
    items = [
        NewItem(f"doc-{first + i}", vector.tolist(), ["news", "sport", None][i % 3])
        for i, vector in enumerate(vectors(count, seed))
    ]
    return await engine.ask("home", ItemsOf(items))


async def traffic(engine, rounds, seed=0):
    """Ask for candidates by id, of a segment, of all, by their vectors; change the catalogue in between."""
    for i in range(rounds):
        rng = np.random.default_rng((seed, i))
        engine.clock.now = START + (seed * 1000 + i) * 7_000_000
        if i % 7 == 3:
            await put(engine, 3, i, int(rng.integers(9)))
        if i % 11 == 5:
            await engine.ask("home", ItemsGone([f"doc-{11 - i % 3}"]))
            await put(engine, 1, i, 11 - i % 3)
        ids = [f"doc-{j}" for j in rng.permutation(12)[:5]]
        asked = [
            DecisionRequest("k", ids),
            DecisionRequest("k", segment="news", id=f"d{seed}-{i}" if i % 2 else None),
            DecisionRequest("k"),
            DecisionRequest("k", ["a", "b"], relevance=vectors(2, i).tolist()),
        ]
        for row in await access.decide(engine, *[asked[(i + j) % 4] for j in range(1 + i % 3)]):
            if rng.random() < 0.6:
                await engine.feedback("home", row.id, float(rng.random() < 0.5))


def catalogue(placement):
    items = access.get_learner(placement).items
    ids, segments, halves = items.columns()
    return list(ids), list(segments), halves.tobytes(), items.version


def known(placement):
    """Return everything that a placement is, with its catalogue."""
    return everything(placement), catalogue(placement)


@pytest.mark.parametrize("options", MODES.values(), ids=MODES)
async def test_state_and_catalogue_are_a_fold_over_the_log(tmp_path, options):
    config = configured(snapshot_every=20, **options)
    async with folding(tmp_path / "s.db", config, seen=known, partly=True) as engine:
        await put(engine)
        if "shadow" in options:
            await engine.ask("home", ModeOf("shadow"))
        await traffic(engine, 24)


async def test_the_vectors_of_the_catalogue_are_not_doubted_in_the_service(tmp_path, recwarn):
    async with served(tmp_path / "s.db", configured()) as engine:
        await put(engine)
        for id in (None, "d"):
            await access.decide(engine, DecisionRequest("k", ["doc-1", "doc-2"], id=id))
        assert not [said for said in recwarn if issubclass(said.category, AssumptionWarning)]
        given = DecisionRequest("k", ["doc-1", "doc-2"], id="e", relevance=vectors(2).tolist())
        with pytest.warns(AssumptionWarning, match="relevance: 'doc-1' has a vector in items"):
            await access.decide(engine, given)


@contextlib.asynccontextmanager
async def stepped(tmp_path, monkeypatch, numbers=2 * 12 * DIM, **values):
    """Serve 12 items in steps of so many numbers, with what the groups were asked."""
    groups = []

    def observed(pending, requests, stored_decisions):
        groups.append([len(each.impressions) for each in requests if isinstance(each, Decide)])
        return access.group.apply(pending, requests, stored_decisions)

    monkeypatch.setattr(access.writer, "apply", observed)
    monkeypatch.setattr(access.writer, "MOST_NUMBERS", numbers)
    monkeypatch.setattr(access.batches, "MOST_NUMBERS", numbers)
    async with folding(tmp_path / "s.db", configured(**values), crash=False) as engine:
        await put(engine)
        groups.clear()
        yield engine, engine.placements["home"], groups


@pytest.mark.parametrize("durability", ["committed", "buffered"])
async def test_many_decisions_among_many_items_let_others_in(tmp_path, monkeypatch, durability):
    async with stepped(tmp_path, monkeypatch, durability=durability) as (engine, _home, groups):
        asked = [DecisionRequest(f"k{i}", id="d" if i == 30 else None) for i in range(40)]
        batch = asyncio.create_task(access.decide(engine, *asked))
        await asyncio.sleep(0)
        (row,) = await access.decide(engine, DecisionRequest("other"))
        assert row.key == "other"
        assert not batch.done()
        rows = await batch
        assert [row.key for row in rows] == [f"k{i}" for i in range(40)]
        assert rows[30].id == "d"
        assert len({row.id for row in rows}) == 40
        # Two decisions among all twelve fit in.
        assert max(map(sum, groups)) <= 2
        assert await access.decide(engine, asked[30]) == rows[30:31]


async def test_single_decisions_among_many_items_share_no_large_group(tmp_path, monkeypatch):
    async with stepped(tmp_path, monkeypatch) as (engine, _home, groups):
        await asyncio.gather(*(access.decide(engine, DecisionRequest(f"k{i}")) for i in range(9)))
        assert sum(map(sum, groups)) == 9
        assert max(map(sum, groups)) <= 2


@pytest.mark.parametrize(
    ("last", "error"),
    [(DecisionRequest("other", id="d"), InConflict), (DecisionRequest("k", ["nothing"]), UnknownName)],
)
async def test_what_is_decided_in_steps_is_checked_before_the_first(tmp_path, monkeypatch, last, error):
    async with stepped(tmp_path, monkeypatch) as (engine, home, _):
        await access.decide(engine, DecisionRequest("k", id="d"))
        asked = [DecisionRequest("k") for _ in range(20)]
        with pytest.raises(error):
            await access.decide(engine, *asked, last)
        assert access.count_decisions(home) == 1


async def test_more_candidates_than_a_request_may_have_are_refused(tmp_path):
    async with served(tmp_path / "s.db", configured(values={"server.batch_candidates": 100})) as engine:
        await put(engine)
        whole = DecisionRequest("k")
        said = r"decisions: .*108 candidates.* server.batch_candidates .*100"
        with pytest.raises(InvalidValue, match=said):
            await access.decide(engine, *[whole] * 9)
        assert access.count_decisions(engine.placements["home"]) == 0
        assert len(await access.decide(engine, *[whole] * 8)) == 8
        # By id and of a segment there are fewer.
        few = DecisionRequest("k", ["doc-1"]), DecisionRequest("k", segment="news")
        assert len(await access.decide(engine, *[whole] * 7, *few)) == 9


async def test_it_learns_what_the_learner_learns_from_the_same_vectors(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        await put(engine)
        home = engine.placements["home"]
        expected, known = Learner(access.get_config(home).policy, seed=0), vectors(12)
        rng = np.random.default_rng(3)
        for i in range(20):
            offer = rng.permutation(12)[:4]
            request = DecisionRequest("k", [f"doc-{j}" for j in offer], id=f"d{i}")
            (row,) = await access.decide(engine, request)
            assert (await access.decide(engine, request)) == [row]
            Draws(7).begin(expected.rng, f"d{i}")
            decision = expected.choose("k", arms=request.arms, relevance=known[offer])
            assert (row.arm, row.propensity) == (decision.arm, decision.propensity)
            # What it saw is what it teaches, whatever becomes of the item.
            await engine.ask("home", ItemsOf([NewItem(row.arm, [9.0] * DIM)]))
            await engine.feedback("home", row.id, float(i % 2))
            await put(engine)
            expected.learn(decision, float(i % 2))
        assert all(
            np.array_equal(a, b)
            for a, b in zip(access.get_learner(home).state.kept, expected.state.kept, strict=True)
        )


async def test_what_cannot_be_asked_is_refused_by_name(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        home = engine.placements["home"]
        with pytest.raises(InvalidValue, match=r"relevance: .* put items into the catalogue"):
            await access.decide(engine, DecisionRequest("k"))
        await put(engine)
        for request, says in (
            (DecisionRequest("k", ["doc-1", "doc-99"]), "'doc-99'"),
            (DecisionRequest("k", segment="weather"), "0 candidates of segment 'weather'"),
            (DecisionRequest("k", ["doc-1"], segment="news"), "segment"),
            (DecisionRequest("k", ["doc-1", "doc-1"]), "item once"),
            (
                DecisionRequest("k", ["x"], unknown="skip"),
                r"arms: \['x'\] .* none of them is in the catalogue; put them there",
            ),
            (DecisionRequest("k", ["x"], relevance=[[0.0] * DIM], unknown="skip"), "unknown"),
        ):
            with pytest.raises((InvalidValue, UnknownName), match=says):
                await access.decide(engine, request)
        (row,) = await access.decide(engine, DecisionRequest("k", ["doc-99", "doc-1"], unknown="skip"))
        assert (row.arm, row.offered) == ("doc-1", '["doc-1"]')
        end = engine.store.end()
        for change, says in (
            (ItemsOf([NewItem("a", [0.0])]), r"items\[0\].vector"),
            (ItemsOf([NewItem("a", [0.0] * DIM), NewItem("a", [0.0] * DIM)]), "item once"),
            (ItemsOf([NewItem("a\0", [0.0] * DIM)]), r"items\[0\].id"),
            (ItemsGone(["doc-1", "doc-99"]), "'doc-99'"),
        ):
            with pytest.raises((InvalidValue, UnknownName), match=says):
                await engine.ask("home", change)
        assert (len(access.get_learner(home).items), engine.store.end()) == (12, end)
    async with served(tmp_path / "t.db", with_home(arms=2)) as engine:
        with pytest.raises(InvalidValue, match="no catalogue"):
            await put(engine)


@pytest.mark.parametrize("kind", ["features", "slates"])
async def test_a_decision_that_is_asked_for_again_stays_whatever_became_of_its_candidates(tmp_path, kind):
    policy = POLICY if kind == "features" else "item-list-mix"
    async with served(tmp_path / "s.db", configured(kind=kind, policy=policy)) as engine:
        await put(engine)
        asked = [
            DecisionRequest("k", ["doc-1", "doc-4", "doc-7"], id="named"),
            DecisionRequest("k", ["doc-99", "doc-4", "doc-1"], id="skipping", unknown="skip"),
            DecisionRequest("k", segment="news", id="segment"),
            DecisionRequest("k", id="whole"),
        ]
        # The same question twice at once is one decision.
        made = await access.decide(engine, *[*asked, *asked])
        assert made[:4] == made[4:]
        await engine.ask("home", ItemsGone([f"doc-{i}" for i in range(12)]))
        for request, row in zip(asked, made, strict=False):
            assert await access.decide(engine, request) == [row]
        for other in (asked[0]._replace(arms=["doc-1", "doc-4"]), asked[2]._replace(segment="sport")):
            with pytest.raises(InConflict):
                await access.decide(engine, other)
        with pytest.raises(InvalidValue, match="0 candidates"):
            await access.decide(engine, asked[3]._replace(id="new"))


async def test_the_catalogue_outlives_another_policy_and_the_rows_that_filled_it(tmp_path):
    config = configured(snapshot_every=10, retention=1.0)
    async with folding(tmp_path / "s.db", config, seen=known) as engine:
        await put(engine)
        await traffic(engine, 10)
        await engine.rebuild("home", f"embedding-mixture(relevance_dim={DIM}, per_key=True)")
        assert len(catalogue(engine.placements["home"])[0]) == 12
        engine.clock.now = START + 3 * 86_400_000_000
        await traffic(engine, 3, seed=40_000)
        (name, *_) = await engine.states("home")
        before = catalogue(engine.placements["home"])
        await engine.rollback("home", name.name)
        assert catalogue(engine.placements["home"])[:3] == before[:3]


async def test_decisions_by_id_are_exported_with_the_vectors_that_their_candidates_had(tmp_path):
    config = configured()
    async with served(tmp_path / "s.db", config) as engine:
        await put(engine)
        await traffic(engine, 30)
        engine.clock.now += 60_000_000
        await access.decide(engine, DecisionRequest("k"))
    with contextlib.closing(store_at(tmp_path / "s.db")) as store:
        counts = export(config, store, tmp_path / "log")
        export_ubi(store, tmp_path / "ubi")
        made = [row for row in store.events(0) if hasattr(row, "shown")]
    log, items = tmp_path / "log" / "clicks-home.parquet", tmp_path / "log" / "items-home.parquet"
    table = pq.read_table(log).to_pylist()
    assert counts["clicks-home"] == len(table) == len(made)
    sizes = {row["decision_id"]: len(row["arms"]) for row in table}
    assert {sizes[row.id] for row in made if row.asked == '{"segment":"news"}'} <= {3, 4, 5, 6}
    assert {sizes[row.id] for row in made if row.asked == "{}" and row.offered is None} == {12}
    lines = (tmp_path / "ubi" / "ubi_queries.ndjson").read_text().splitlines()
    told = [json.loads(line) for line in lines]
    assert {one["query_id"]: len(one["query_attributes"]["tacit"]["arms"]) for one in told} == sizes
    held = ItemTable(str(items))
    for row, kept in zip(table, made, strict=True):
        at = held.rows(held.codes(pa.array([row["arm"]]), "log"), pa.array([row["timestamp"]]), "log")
        if kept.shown is not None:
            assert held.vectors(at).tolist() == access.parse_shown_item(kept.shown).relevance.tolist()
    assert Learner(config.placements["home"].policy, seed=0).fit_log(log, items=items, missing_reward=0.0)


def test_the_catalogue_is_filled_over_http_and_from_a_file(tmp_path):
    table = {"id": [f"doc-{i}" for i in range(900)], "vector": list(vectors(900))}
    pq.write_table(pa.table(table | {"segment": ["news"] * 900}), tmp_path / "items.parquet")
    with run_in_thread(configured(tmp_path / "s.db")) as url, Client(url) as client:
        assert CliRunner().invoke(
            cli, ["items", "load", "home", str(tmp_path / "items.parquet"), "--url", url]
        ).output.splitlines()[-2:] == ["900 items, version 1", "  news: 900"]
        now = client.put_items("home", ["film"], [[0.25] * DIM], "fun")
        assert (now.count, now.segments) == (901, {"news": 900, "fun": 1})
        made = client.decide("home", "k", segment="fun")
        assert made.arm == "film"
        assert client.feedback("home", made.decision_id, 1.0).learned
        assert client.decide("home", "k").arm in {*table["id"], "film"}
        assert client.decide("home", "k", arms=["gone", "doc-3"], unknown="skip").arm == "doc-3"
        with pytest.raises(InvalidRequest, match="'gone'"):
            client.decide("home", "k", arms=["gone", "doc-3"])
        assert client.remove_items("home", ["film"]).count == 900
    with run_in_thread(configured(tmp_path / "s.db")) as url, Client(url) as client:
        assert client.items("home").count == 900
