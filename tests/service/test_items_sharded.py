"""Catalogues and tallies in shards: each has all items, and a part of what is counted."""

import asyncio
import contextlib

import numpy as np
import pytest
import stores
from harness import SECOND, START, Clock, in_shards, served, with_home
from placement_access import (
    count_decisions,
    decide,
    export_counts,
    get_items_status,
    get_learner,
    read_merged,
)

import tacit
from tacit.errors import InvalidValue, UnknownName
from tacit.service.config.schema import Config, PlacementConfig, StoreConfig
from tacit.service.errors import NotDurable
from tacit.service.log.ids import Shard
from tacit.service.log.requests import Clicked, DecisionRequest, FeedbackRequest
from tacit.service.log.rows import CLICKS, decode_list
from tacit.service.maintenance.doctor import verify
from tacit.service.maintenance.resharding import reshard
from tacit.wire.decisions import ItemsGone, ItemsOf, NewItem
from tests.service.test_shards import shard_stores

DIM = 4
LISTS = {"kind": "slates", "policy": "item-list-mix", "relevance_dim": DIM, "attribution_window": 1.0}
PLAIN = {"kind": "slates", "arms": list("abcd"), "attribution_window": 1.0}
ITEMS = {"kind": "features", "policy": f"embedding-mixture(relevance_dim={DIM})"}


def some(count):
    vectors = np.random.default_rng(1).standard_normal((count, DIM)).round(2)
    return ItemsOf([NewItem(f"doc-{i}", vector.tolist(), "news") for i, vector in enumerate(vectors)])


@pytest.mark.parametrize("table", [LISTS, ITEMS], ids=["lists", "arms"])
async def test_every_shard_has_the_items_and_decides_among_them(tmp_path, table):
    async with in_shards(tmp_path, with_home(**table), Clock()) as (service, engines):
        assert (await service.ask("home", some(9))).count == 9
        assert (await service.ask("home", ItemsGone(["doc-8"]))).segments == {"news": 8}
        assert get_items_status(service.placements["home"]) == get_items_status(engines[1].placements["home"])
        asked = [DecisionRequest(f"key {i}", ["doc-1", "doc-2", "doc-5"]) for i in range(8)]
        asked += [DecisionRequest(f"key {i}", segment="news", id=f"own {i}") for i in range(8)]
        rows = await decide(service, *asked)
        assert all(count_decisions(engine.placements["home"]) for engine in engines)
        # Those with an id of their own are answered again, whatever became of the items.
        await service.ask("home", ItemsGone([f"doc-{i}" for i in range(8)]))
        assert await decide(service, *asked[8:]) == rows[8:]
        with pytest.raises(UnknownName, match="doc-1"):
            await decide(service, DecisionRequest("key 1", ["doc-1"]))
        with pytest.raises(UnknownName, match="doc-1"):
            await service.ask("home", ItemsGone(["doc-1"]))
        with pytest.raises(InvalidValue, match="vector"):
            await service.ask("home", ItemsOf([NewItem("a", [1.0])]))


async def test_no_item_changes_while_a_shard_is_down(tmp_path):
    async with in_shards(tmp_path, with_home(**ITEMS), Clock()) as (service, engines):
        await service.ask("home", some(3))
        service.links[1].is_down = True
        with pytest.raises(NotDurable):
            await service.links[1].call("arms")
        with pytest.raises(NotDurable, match="nothing was changed"):
            await service.ask("home", some(5))
        assert [get_items_status(engine.placements["home"]).count for engine in engines] == [3, 3]


@pytest.mark.parametrize(
    "table",
    [LISTS, {"kind": "slates", "arms": list("abcd"), "attribution_window": 1.0}],
    ids=["items", "arms"],
)
async def test_clicks_by_position_are_those_of_all_shards(tmp_path, table):
    async with in_shards(tmp_path, with_home(**table), Clock()) as (service, engines):
        if "relevance_dim" in table:
            await service.ask("home", some(6))
        rows = await decide(service, *(DecisionRequest(f"key {i}") for i in range(30)))
        sent = [FeedbackRequest(row.id, CLICKS, clicks=Clicked([i % 3])) for i, row in enumerate(rows)]
        await service.record_many("home", sent)
        for engine in engines:
            engine.clock.now += 60 * SECOND
        await decide(service, *(DecisionRequest(f"key {i}") for i in range(30)))
        parts = [export_counts(engine.placements["home"]) for engine in engines]
        assert export_counts((await read_merged(service))["home"]) == [[30] * 3, [10] * 3, [10] * 3]
        assert all(np.sum(part) for part in parts)


def test_a_catalogue_is_dealt_out_once(schema):
    """Also where items were put and taken out in two shards at times of their own."""
    policy = tacit.ItemListMix(DIM, positions=2)
    config = Config(
        {"home": PlacementConfig(policy, 7, kind="slates")},
        store=StoreConfig(url=stores.cluster().url, schema=schema),
    )
    reshard(config, 2)

    async def work(number, *, changing):
        async with contextlib.AsyncExitStack() as stack:
            opened = shard_stores(config)
            for store in opened:
                stack.callback(store.close)
            assert len(opened) == number
            engines = [
                await stack.enter_async_context(served(store, config, Clock(), Shard(i, number)))
                for i, store in enumerate(opened)
            ]
            for turn in range(2 if changing else 0):
                # The first shard is a step ahead.
                for step in range(3):
                    for i, engine in enumerate(engines):
                        engine.clock.now = START + (10 * turn + 2 * step + 3 * i) * SECOND
                        await engine.ask("home", [some(6), ItemsGone(["doc-1"]), ItemsGone(["doc-2"])][step])
            for engine in engines:
                engine.clock.now += 60 * SECOND
                (row,) = await decide(engine, DecisionRequest("k"))
                assert set(decode_list(row.shown).arms) < {f"doc-{i}" for i in (0, 3, 4, 5)}
            for store in opened:
                assert verify(config, store) == []
            return [get_learner(engine.placements["home"]).items.ids() for engine in engines]

    before = asyncio.run(work(2, changing=True))
    reshard(config, 3)
    assert asyncio.run(work(3, changing=False)) == [before[0]] * 3
