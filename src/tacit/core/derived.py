"""Generators that follow from numbers alone, so that who knows the numbers can draw again."""

from __future__ import annotations

import numpy as np

from tacit.core.arrays import Generator

STEPS = 18
"""How many steps mix the numbers before the first draw, as the generator's author has it."""


def derived(first: int, second: int, third: int) -> Generator:
    """Return the generator that follows from three numbers of at least 0; kernels may call it.

    The same numbers give the same draws, in plain Python and compiled; any other three give draws
    that are independent for all purposes. It keeps nothing, and makes no array. In a kernel it
    must not be returned: it is gone when the kernel ends.

    References
    ----------
    Doty-Humphrey, "PractRand": SFC64.

    Examples
    --------
    >>> derived(1, 2, 3).random() == derived(1, 2, 3).random()
    True
    >>> derived(1, 2, 3).random() == derived(1, 2, 4).random()
    False
    """
    words = np.array([first, second, third, 1], np.uint64)
    bits = np.random.SFC64(0)
    bits.state = {"bit_generator": "SFC64", "state": {"state": words}, "has_uint32": 0, "uinteger": 0}
    bits.random_raw(STEPS, output=False)
    return np.random.Generator(bits)
