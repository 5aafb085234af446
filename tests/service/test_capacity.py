"""The capacity model, by hand; and the traffic that it is tried with."""

import importlib

import numpy as np
import pytest


@pytest.fixture(scope="module")
def capacity():
    return importlib.import_module("capacity")


@pytest.fixture
def constants(capacity):
    return capacity.Constants(
        decide=50e-6,
        learn=25e-6,
        request=200e-6,
        lane=300.0,
        decision=100.0,
        feedback=50.0,
        snapshot=1.0,
        restore=2.0,
        saved=200.0,
        fold=10e-6,
        start=3.0,
    )


def test_a_plan_by_hand(capacity, constants):
    plan = capacity.planned(constants, keys=1e7, rate=1e5, batched=True, answered=1.0)
    # 100,000 · 75 µs = 7.5 cores; 7.5/0.55 shards; 10/14 million lanes each.
    assert (plan.cores, plan.shards) == (pytest.approx(7.5), 14)
    assert plan.memory == pytest.approx(3.0)
    assert plan.snapshots == pytest.approx(2.0)
    assert plan.log == pytest.approx(1e5 * 86_400 * 150 / 1e9)
    # A snapshot of 10/14 s at 5 % of a core: one every 100/7 s, in which 14,286/s · 10 µs come.
    assert plan.snapshot_seconds == pytest.approx(100 / 7)
    events = 2e5 / 14
    assert plan.recovery == pytest.approx(3.0 + 2.0 * 10 / 14 + 1e-5 * events * 100 / 7)


def test_requests_of_their_own_cost_what_a_request_costs(capacity, constants):
    assert capacity.planned(constants, batched=False, answered=0.5).cores == pytest.approx(1e5 * 1.5 * 200e-6)


def test_traffic_is_shared_out_as_a_whole(capacity):
    chances = capacity.zipf(1000, 1.0)
    assert chances[0] / chances[9] == pytest.approx(10.0)
    parts = np.sort(capacity.split(chances, 0.01))[::-1]
    assert parts.max() <= 0.01
    assert len(parts) == np.maximum(1, np.ceil(chances / 0.01)).sum()
    for found in (
        capacity.loads(chances, 8, 1),
        capacity.loads(parts, 8, 1),
        capacity.placed(parts, 8, 1, known=100),
    ):
        assert found.shape == (8,)
        assert found.sum() == pytest.approx(1.0)
    # 100 known lanes even out what the hash has left.
    assert capacity.placed(parts, 8, 1, 100).max() < capacity.loads(parts, 8, 1).max()


def test_waiting_is_that_of_a_queue_with_constant_service(capacity):
    # M/D/1 at load 1/2 (Erlang 1909): nobody waits with probability 1/2, and the wait is at most
    # one service time with probability (1 − ρ)·e^ρ = 0.824; the 99 % point lies between 2 and 4.
    assert 2.0 < capacity.served(0.5, 200_000, np.random.default_rng(1)) < 4.0
