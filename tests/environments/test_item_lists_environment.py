"""Simulated users of lists of items: the truth by hand, and clicks as frequent as it says."""

import itertools
import math

import numpy as np
import pytest

import tacit

READERS = [
    tacit.environments.ItemLists(3, 2, positions=2, pool=9, offered=4, after_skip=0.8, after_click=0.5),
    tacit.environments.ItemLists(3, positions=3, pool=4, offered=4, seen=[1.0, 0.6, 0.3]),
]


def arrived(environment, rng, rounds=1):
    """Return a world in which so many impressions have arrived."""
    world = environment.world(rng, rounds)
    for t in range(rounds):
        environment.arrive(environment.params, world, t, rng)
    return world


def worth(environment, world, shown):
    """Return the expected clicks on a list, by what the environment says of itself."""
    user = np.array([1.0, *world.impression.context])
    logits = environment.base + environment.scale * (world.impression.relevance @ world.taste.T @ user)
    total, come = 0.0, 1.0
    for k, place in enumerate(shown):
        chance = 1 / (1 + math.exp(-logits[place]))
        total += come * chance * (environment.seen[k] if environment.seen else 1.0)
        if not environment.seen:
            come *= chance * environment.after_click + (1 - chance) * environment.after_skip
    return total


@pytest.mark.parametrize("environment", READERS)
def test_the_regret_is_what_the_best_list_would_get_more(environment):
    rng = np.random.default_rng(1)
    for _ in range(5):
        world = arrived(environment, rng, 2)
        lists = list(itertools.permutations(range(4), environment.positions))
        found = [worth(environment, world, shown) for shown in lists]
        for shown, own in zip(lists, found, strict=True):
            regret = environment.regret(environment.params, world, 0, np.array(shown))
            assert regret == pytest.approx(max(found) - own, abs=1e-12)


@pytest.mark.parametrize("environment", READERS)
def test_clicks_are_as_frequent_as_they_are_worth(environment):
    """4,000 lists; a fault at 5 standard deviations, 6e-7."""
    rng, lists = np.random.default_rng(2), 4_000
    world, shown = arrived(environment, rng), np.arange(environment.positions)
    clicks, expected = np.zeros((lists, environment.positions)), np.zeros(lists)
    for t in range(lists):
        environment.arrive(environment.params, world, t, rng)
        environment.react(environment.params, world, 0, shown, clicks[t])
        expected[t] = worth(environment, world, shown)
    found = clicks.sum(axis=1)
    assert abs(found.mean() - expected.mean()) <= 5 * found.std() / math.sqrt(lists)
