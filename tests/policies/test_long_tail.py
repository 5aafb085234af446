"""Many keys of little traffic: what they have in common is as it is said."""

import numpy as np
import pytest
from scipy import special

import tacit
from tacit.environments import environment_from_spec


def log_odds(alike, seed=1, **options):
    environment = tacit.environments.LongTail(arms=40, keys=500, alike=alike, **options)
    return special.logit(environment.world(np.random.default_rng(seed), 1000).clicks)


def test_keys_are_alike_in_their_arms():
    odds = log_odds("arms", level=-2.0)
    assert odds.mean() == pytest.approx(-2.0, abs=0.5)  # 40 arms of deviation 1: 3 standard errors
    assert odds.mean(axis=0).std() == pytest.approx(1.0, abs=0.35)
    assert (odds - odds.mean(axis=0)).std() == pytest.approx(0.5, abs=0.02)
    assert odds.mean(axis=1).std() < 0.2


def test_keys_that_share_nothing_vary_as_much():
    odds = log_odds("nothing")
    assert odds.std() == pytest.approx(1.25**0.5, abs=0.03)
    assert odds.mean(axis=0).std() < 0.1


def test_offsets_differ_between_keys():
    odds = log_odds("offsets")
    assert odds.mean(axis=1).std() == pytest.approx(1.0, abs=0.15)
    assert odds.mean(axis=0).std() == pytest.approx(1.0, abs=0.35)


def test_keys_of_a_cluster_are_alike():
    """Keys of one of four groups correlate by 1/1.25, of different ones hardly."""
    likeness = np.corrcoef(log_odds("clusters"))
    same = likeness > 0.5
    assert same.mean() == pytest.approx(0.25, abs=0.05)
    assert np.median(likeness[same]) == pytest.approx(0.8, abs=0.1)
    assert abs(np.median(likeness[~same])) < 0.3


def test_rounds_are_as_they_are_told():
    environment, rng = tacit.environments.LongTail(arms=3, keys=5), np.random.default_rng(2)
    world, cls, params = environment.world(rng, 100), tacit.environments.LongTail, environment.params
    lanes = np.zeros(5)
    for round in range(20_000):
        lane = cls.arrive(params, world, round, rng)
        lanes[lane] += 1
        clicks = world.clicks[lane]
        assert cls.optimum(params, world, lane) == clicks.max()
        for arm in range(3):
            assert cls.expected(params, world, lane, arm) == clicks[arm]
            assert cls.respond(params, world, lane, arm) == float(world.uniform[0] < clicks[arm])
    zipf = 1 / np.arange(1, 6)
    # Five standard errors of a share are at most 0.018.
    np.testing.assert_allclose(lanes / 20_000, zipf / zipf.sum(), atol=0.018)


def test_it_survives_its_spec():
    spec = "long-tail(3, keys=7, alike=offsets)"
    assert environment_from_spec(spec) == tacit.environments.LongTail(3, 7, alike="offsets")
