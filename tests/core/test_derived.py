"""Generators that follow from numbers: the same draws everywhere, and as random as others."""

import numba
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import tacit.core.compiled  # noqa: F401  teaches numba
from tacit.core.arrays import borrow_array, release_array
from tacit.core.seeds import borrow_generator, derive_generator, write_back_generator

NUMBERS = [(0, 0, 0), (0, 0, 1), (2**31 - 2, 10**6, 9_999), (2**62, 3, 2**40)]


def fill(first, second, third, drawn):
    rng = derive_generator(first, second, third)
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
            first[i] = derive_generator(*numbers.tolist()).random(2)
        assert stats.kstest(first[:, 0], "uniform").pvalue > 1e-6
        for other in (first[1:, 0], first[:-1, 1]):
            table, *_ = np.histogram2d(first[:-1, 0], other, bins=10, range=[[0, 1], [0, 1]])
            assert stats.chisquare(table.ravel()).pvalue > 1e-6


def take_turns(rng, wanted, drawn):
    own = borrow_generator(rng)
    for i in range(len(wanted)):
        if wanted[i] == 0:
            drawn[i] = own.random()
        elif wanted[i] == 1:
            drawn[i] = own.standard_normal()
        elif wanted[i] == 2:
            drawn[i] = own.beta(0.7, 2.5)
        else:
            drawn[i] = own.integers(0, 1000)  # takes half words
    write_back_generator(own, rng)


taken = numba.njit(take_turns)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**128 - 1), st.lists(st.integers(0, 3), max_size=30), st.booleans())
def test_what_is_taken_over_draws_as_numpy_does_and_hands_its_state_back(seed, wanted, half):
    plain, fast = (np.random.Generator(np.random.PCG64(seed)) for _ in range(2))
    for rng in (plain, fast):
        _ = half and rng.integers(0, 10, dtype=np.uint32)  # leaves half a word
    by_numpy, by_ours = np.zeros(len(wanted)), np.ones(len(wanted))
    take_turns(plain, np.array(wanted, np.int64), by_numpy)
    taken(fast, np.array(wanted, np.int64), by_ours)
    assert by_numpy.tobytes() == by_ours.tobytes()
    assert plain.bit_generator.state == fast.bit_generator.state


def summed(rows, columns):
    room = borrow_array(rows, columns)
    for i in range(rows):
        for j in range(columns):
            room[i, j] = 10 * i + j
    total = room[rows - 1].sum() + room[0, columns - 1]
    release_array(room)
    return total


def test_borrowed_room_is_the_same_compiled_and_plain_and_counts_no_references():
    compiled = numba.njit(_nrt=False)(summed)
    for shape in ((1, 1), (3, 5), (200, 31)):
        assert compiled(*shape) == summed(*shape)
