"""Random streams: one for each purpose, from one seed; and generators that follow from numbers alone."""

from __future__ import annotations

import zlib

import numpy as np

from tacit.core.arrays import Generator
from tacit.errors import InvalidValue

# ---- Random streams: one of its own for each purpose, all from the seed that a user gave

Seed = int | np.random.SeedSequence | Generator | None


def stream(purpose: str, seed: int | None, *place: int) -> Generator:
    """Return the generator of one purpose, and of one place within it.

    It is independent of ``numpy.random.default_rng(seed)``, of the children that ``spawn`` gives
    of that seed, and of the streams of other purposes: a simulation of clicks with the very
    seed that the decisions were drawn with must not get clicks that know the decisions.

    Parameters
    ----------
    purpose : str
    seed : int or None
        At least 0; None draws one from the system.
    *place : int
        Numbers of at least 0, such as that of a run.

    Examples
    --------
    >>> stream("learner", 7).random() == stream("learner", 7).random()
    True
    >>> stream("learner", 7).random() == np.random.default_rng(7).random()
    False
    """
    # Children that are spawned one after the other are numbered from 0; a hash is far from them.
    key = zlib.crc32(purpose.encode()), *place
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


def generator(purpose: str, seed: Seed) -> Generator:
    """Return the generator of one purpose for a seed; of one that is no number, itself.

    Raises
    ------
    InvalidValue
        If the seed is none, or a generator whose state a snapshot could not hold.
    """
    if isinstance(seed, np.random.Generator) and isinstance(seed.bit_generator, np.random.PCG64):
        return seed
    if isinstance(seed, np.random.SeedSequence):
        return np.random.Generator(np.random.PCG64(seed))
    if seed is None or (isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0):
        return stream(purpose, seed)
    raise InvalidValue(
        "seed", seed, "give a whole number of at least 0, a SeedSequence, or a Generator over PCG64"
    )


# ---- Generators that follow from numbers alone, so that who knows the numbers can draw again

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


# ---- A generator for the time of a loop: compiled, with its state where the processor is fastest


def taken_over(rng: Generator) -> Generator:
    """Return what draws as a generator over PCG64 would until it is handed back; of no other kind."""
    return rng


def handed_back(own: Generator, rng: Generator) -> None:
    """Let a generator go on after what was drawn from the one that was taken over from it."""
