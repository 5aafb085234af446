"""The short form of ``make chaos``, and of ``make fuzz``."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import stores
from chaos import FAULTS, KILL, SKEW, STOP, WORK, chaos
from drawn import is_long
from fuzz import fuzz
from harness import PATIENCE, configured

from tacit.service.app.server import run_in_thread
from tests.service.test_page import post


@pytest.mark.parametrize("kind", stores.KINDS)
def test_faults_lose_nothing_and_double_nothing(kind, tmp_path):
    # Each fault once.
    faults = 10 if is_long() else len(set(FAULTS[kind]))
    report = chaos(kind, tmp_path, faults=faults, seed=0)
    assert report["problems"] == []
    assert report["checks"] == 1 + sum(report["faults"][fault] for fault in (KILL, SKEW, STOP))
    assert report["faults"].keys() == set(FAULTS[kind])
    assert report["acknowledged"] >= WORK * faults


def test_no_request_makes_the_service_fail(tmp_path):
    assert fuzz(tmp_path, seconds=0, examples=3) == []


def test_while_the_database_is_slow_nothing_is_called_committed_and_buffers_answer(tmp_path):
    url, schema = stores.cluster().url, stores.schema_of(tmp_path)
    arms = {"arms": 2, "seed": 1}
    values = {
        "store.url": url,
        "store.schema": schema,
        "placements": {"buffered": arms | {"durability": "buffered"}, "committed": arms},
    }
    with run_in_thread(configured(**values)) as address, ThreadPoolExecutor(1) as threads:
        for placement in values["placements"]:
            post(address, f"{placement}/decide", {"key": "warm"})
        with psycopg.connect(url) as connection:
            connection.execute(f"LOCK TABLE {schema}.decisions")
            answer = threads.submit(post, address, "committed/decide", {"key": "slow", "decision_id": "slow"})
            for _ in range(5):
                assert post(address, "buffered/decide", {"key": "slow"})["durability"] == "buffered"
            assert not answer.done()
        assert answer.result(PATIENCE)["durability"] == "committed"
        with psycopg.connect(url) as connection:
            query = f"SELECT count(*) FROM {schema}.decisions WHERE id = 'slow'"
            assert connection.execute(query).fetchone() == (1,)
