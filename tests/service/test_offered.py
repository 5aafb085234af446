"""An engine and a shard offer HTTP the same."""

from __future__ import annotations

import asyncio

from harness import PATIENCE, in_shards, served
from placement_access import Service

from tacit.service.app.app import create_application
from tests.service.test_groups import configured


async def test_an_engine_is_a_service(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        assert isinstance(engine, Service)


async def test_a_shard_answers_by_the_names_of_an_engine(tmp_path):
    async with in_shards(tmp_path, configured()) as (service, _):
        for each in (service, service.merged):
            assert isinstance(each, Service)
        assert create_application(service) is not None


async def test_every_configuration_is_taken_over_of_many_at_once(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        reloads = [engine.reload(configured(snapshot_every=every)) for every in (10, 20, 30)]
        await asyncio.wait_for(asyncio.gather(*reloads), PATIENCE)
        assert engine.config.placements["home"].snapshot_every == 30
