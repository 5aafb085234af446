"""Generators that follow from numbers: the same draws everywhere, and as random as others."""

from __future__ import annotations

import numba
import numpy as np
from scipy import stats

import tacit.core.compiled  # noqa: F401  teaches numba
from tacit.core.seeds import derived

NUMBERS = [(0, 0, 0), (0, 0, 1), (2**31 - 2, 10**6, 9_999), (2**62, 3, 2**40)]


def fill(first, second, third, drawn):
    rng = derived(first, second, third)
    for i in range(len(drawn)):
        drawn[i, 0] = rng.random()
        drawn[i, 1] = rng.standard_normal()
        drawn[i, 2] = rng.beta(0.7, 2.5)
        drawn[i, 3] = rng.integers(0, 1000)  # takes half words


def test_compiled_and_plain_draws_are_the_same_to_the_bit():
    compiled = numba.njit(fill)
    for numbers in NUMBERS:
        plain, fast, again = np.zeros((40, 4)), np.ones((40, 4)), np.ones((40, 4))
        fill(*numbers, plain)
        compiled(*numbers, fast)
        compiled(*numbers, again)
        assert plain.tobytes() == fast.tobytes() == again.tobytes()


def test_first_draws_of_neighbours_are_uniform_and_know_nothing_of_each_other():
    """Level 1e-6 of each of four tests, on 4,000 generators whose numbers differ by one."""
    for place in range(3):
        numbers = np.zeros(3, np.int64)
        first = np.empty((4_000, 2))
        for i in range(len(first)):
            numbers[place] = i
            first[i] = derived(*numbers.tolist()).random(2)
        assert stats.kstest(first[:, 0], "uniform").pvalue > 1e-6
        for other in (first[1:, 0], first[:-1, 1]):
            table, *_ = np.histogram2d(first[:-1, 0], other, bins=10, range=[[0, 1], [0, 1]])
            assert stats.chisquare(table.ravel()).pvalue > 1e-6
