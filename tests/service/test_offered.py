"""An engine takes over one configuration after another."""

import asyncio

from harness import PATIENCE, served

from tests.service.test_groups import configured


async def test_every_configuration_is_taken_over_of_many_at_once(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        reloads = [engine.reload(configured(snapshot_every=every)) for every in (10, 20, 30)]
        await asyncio.wait_for(asyncio.gather(*reloads), PATIENCE)
        assert engine.config.placements["home"].snapshot_every == 30
