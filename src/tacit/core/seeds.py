"""Random streams, one for each purpose, from a seed; and generators derived from three numbers."""

from __future__ import annotations

import zlib

import numpy as np

from tacit.core.arrays import Generator
from tacit.errors import InvalidValue

# ---- Random streams: an independent one for each purpose, all from the user's seed

Seed = int | np.random.SeedSequence | Generator | None


def stream(purpose: str, seed: int | None, *place: int) -> Generator:
    """Return a new generator for a purpose, a seed and optionally numbers of a stream within the purpose.

    Equal arguments give equal draws, unless the seed is None. The generator is independent of
    ``numpy.random.default_rng(seed)``, of the children of that seed by ``spawn``, and of the streams of other
    purposes: clicks that are simulated with the same seed as the decisions must be independent of them.

    Parameters
    ----------
    purpose : str
    seed : int or None
        At least 0; None draws one from the system.
    *place : int
        Numbers of the stream, at least 0, such as that of a run.

    Examples
    --------
    >>> stream("learner", 7).random() == stream("learner", 7).random()
    True
    >>> stream("learner", 7).random() == np.random.default_rng(7).random()
    False
    """
    # spawn() numbers children from 0; a hash does not collide with small numbers.
    key = zlib.crc32(purpose.encode()), *place
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


def generator(purpose: str, seed: Seed) -> Generator:
    """Return a generator for a purpose and a seed; a Generator over PCG64 is returned as it is.

    Raises
    ------
    InvalidValue
        If the seed is invalid, or a generator whose state a snapshot could not hold.
    """
    if isinstance(seed, np.random.Generator) and isinstance(seed.bit_generator, np.random.PCG64):
        return seed
    if isinstance(seed, np.random.SeedSequence):
        return np.random.Generator(np.random.PCG64(seed))
    if seed is None or (isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0):
        return stream(purpose, seed)
    remedy = "give a whole number of at least 0, a SeedSequence, or a Generator over PCG64"
    raise InvalidValue("seed", seed, remedy)


# ---- Generators derived from numbers, so that draws can be repeated from the numbers

STEPS = 18
"""Number of mixing steps before the first draw, as in the author's implementation."""


def derive_generator(first: int, second: int, third: int) -> Generator:
    """Return the generator derived from three numbers of at least 0; kernels may call it.

    The same numbers give the same draws, in plain Python and compiled; any other three give practically
    independent draws. Compiled, its state is on the stack, without an array. A kernel
    must not return it, as it is gone when the kernel ends.

    References
    ----------
    Doty-Humphrey, "PractRand": SFC64.

    Examples
    --------
    >>> derive_generator(1, 2, 3).random() == derive_generator(1, 2, 3).random()
    True
    >>> derive_generator(1, 2, 3).random() == derive_generator(1, 2, 4).random()
    False
    """
    words = np.array([first, second, third, 1], np.uint64)
    bits = np.random.SFC64(0)
    bits.state = {"bit_generator": "SFC64", "state": {"state": words}, "has_uint32": 0, "uinteger": 0}
    bits.random_raw(STEPS, output=False)
    return np.random.Generator(bits)


# ---- A local copy of a generator for the time of a compiled loop, with its state in registers


def borrow_generator(rng: Generator) -> Generator:
    """Return a local copy of a generator over PCG64, which compiled loops keep in registers, for speed.

    Its state must be written back by :func:`write_back_generator`. In plain Python it is the generator
    itself.
    """
    return rng


def write_back_generator(local: Generator, rng: Generator) -> None:
    """Write the state of a local copy back to its generator; in plain Python do nothing."""
