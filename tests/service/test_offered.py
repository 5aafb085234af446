"""An engine and an ingress over shards offer HTTP the same."""

from __future__ import annotations

import asyncio

import pytest
from harness import PATIENCE, served
from placement_access import Service

from tacit.cluster.ingress import Ingress
from tacit.service.app.app import create_application
from tests.service.test_groups import configured


def ingress(config):
    """Return an ingress whose shards are not there."""
    return Ingress(config, [])


async def test_an_engine_is_a_service(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        assert isinstance(engine, Service)


def test_an_ingress_is_a_service_and_no_engine():
    made = ingress(configured())
    assert isinstance(made, Service)
    assert "Engine" not in {kind.__name__ for kind in type(made).__mro__}


@pytest.mark.parametrize("name", [name for name in vars(Service) if name[0] != "_"])
def test_an_ingress_answers_by_the_names_of_an_engine(name):
    assert hasattr(ingress(configured()), name)


def test_an_application_serves_an_ingress():
    assert create_application(ingress(configured())) is not None


async def test_every_configuration_is_taken_over_of_many_at_once(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        reloads = [engine.reload(configured(snapshot_every=every)) for every in (10, 20, 30)]
        await asyncio.wait_for(asyncio.gather(*reloads), PATIENCE)
        assert engine.config.placements["home"].snapshot_every == 30
