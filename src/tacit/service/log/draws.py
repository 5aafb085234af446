"""Where a decision's draws come from: its id and the placement's seed, and nothing else.

So the same request with the same id draws the same, on any machine and after any crash, and a
decision in the log can be made again from the state before it.
"""

from __future__ import annotations

import hashlib

import numpy as np

KEY_BYTES = 16


class Draws:
    """Sets a generator for each decision.

    Parameters
    ----------
    seed : int
        The placement's.
    purpose : str, default ""
        Draws for another purpose are independent.

    Examples
    --------
    >>> rng = np.random.Generator(np.random.PCG64(0))
    >>> draws = Draws(7)
    >>> draws.begin(rng, "decision 1")
    >>> first = rng.random()
    >>> draws.begin(rng, "decision 2")
    >>> second = rng.random()
    >>> draws.begin(rng, "decision 1")
    >>> rng.random() == first != second
    True
    """

    def __init__(self, seed: int, purpose: str = "") -> None:
        self._hash = hashlib.blake2b(
            key=seed.to_bytes(KEY_BYTES, "little"), person=purpose.encode(), digest_size=32
        )

    def begin(self, rng: np.random.Generator, id: str) -> None:
        """Set the state of ``rng``, a generator over PCG64, for the decision ``id``."""
        hashed = self._hash.copy()
        hashed.update(id.encode())
        digest = hashed.digest()
        rng.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {
                "state": int.from_bytes(digest[:16], "little"),
                # PCG64 wants an odd increment.
                "inc": int.from_bytes(digest[16:], "little") | 1,
            },
            "has_uint32": 0,
            "uinteger": 0,
        }
