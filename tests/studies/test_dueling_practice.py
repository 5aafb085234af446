"""The comparison of dueling policies."""

import math

import numpy as np

from studies import dueling_practice
from studies.dueling_practice import median_interval
from studies.study import Setup


def test_the_comparison_has_every_policy_in_every_setting(monkeypatch, written):
    monkeypatch.setattr(dueling_practice, "HORIZONS", (100, 1000))
    monkeypatch.setattr(dueling_practice, "TIMED", 100)
    result = dueling_practice.reproduce(Setup(runs=3, seed=1))
    assert len(result.cells) == 3 * 11 * 2
    for cell in result.cells:
        low, high = cell["median_low"], cell["median_high"]
        assert 0 < low <= cell["regret_median"] <= high <= cell["regret_max"] < cell["horizon"]
    _, report = written("dueling-practice", result)
    assert all(cell["policy"] in report for cell in result.cells)


def test_the_interval_of_the_median_covers_it():
    """20 values miss the median with probability 0.041: 2000 samples, within 5.1 sigma."""
    samples = np.random.default_rng(1).standard_normal((2000, 20))
    missed = np.mean([low > 0 or high < 0 for low, high in map(median_interval, samples)])
    assert abs(missed - 0.0414) < 5.1 * math.sqrt(0.0414 * 0.9586 / 2000)
