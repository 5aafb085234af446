"""JSON features as vectors: one-hot encoding, crossed with the context, hashed.

A feature is a path of names through nested objects. A string is the feature of its path and
itself, worth 1, and so is a boolean; a number is worth sign(x)·log2(1 + |x|); null is nothing. A
list of numbers has a feature for each place; other lists add up their entries. So
``{"taste": ["sweet"], "rating": 3}`` has the features ``["taste", "sweet"]``, worth 1, and
``["rating"]``, worth 2.

The vector of an action has three blocks: the features of the context, those of the action, and
every pair of the two. Each feature is added, with a sign, at a place of the vector; place and
sign come from its hash (Weinberger et al. 2009, "Feature hashing for large scale multitask
learning"). A block of n features is divided by sqrt(n), so that one with many does not drown the
others. A pair's hash mixes those of its two features; each block has a salt of its own.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tacit.core.arrays import Floats
from tacit.errors import InvalidValue

MOST_FEATURES = 250
DEEPEST = 16
LARGEST = 2**63
"""What is no larger is a number wherever the log may go."""

Hashes = npt.NDArray[np.uint64]
Features = tuple[Hashes, Floats]
"""Hash and worth of each feature."""

CONTEXT, ACTION, PAIR = (np.uint64(salt) for salt in (0x243F6A8885A308D3, 0x13198A2E03707344,
                                                      0xA4093822299F31D0))  # fmt: skip


def features_of(field: str, objects: Sequence[Mapping[str, Any]]) -> Features:
    """Return the features of a list of JSON objects.

    Raises
    ------
    InvalidValue
        If there are more than 250, they are nested more than 16 deep, or a number is too large.

    Examples
    --------
    >>> hashes, worths = features_of("features", [{"taste": ["sweet"]}, {"rating": 3, "new": None}])
    >>> len(hashes), worths.tolist()
    (2, [1.0, 2.0])
    """
    found = list(_walk(field, (), objects))
    if len(found) > MOST_FEATURES:
        raise InvalidValue(field, len(found), f"give at most {MOST_FEATURES} features")
    hashes, worths = zip(*found, strict=True) if found else ((), ())
    return np.array(hashes, np.uint64), np.array(worths, np.float64)


def _walk(field: str, path: tuple[Any, ...], value: Any) -> Iterator[tuple[int, float]]:
    if len(path) > DEEPEST:
        raise InvalidValue(field, list(path), f"nest features at most {DEEPEST} deep")
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _walk(field, (*path, name), inner)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        dense = bool(value) and all(_is_number(each) for each in value)
        for place, inner in enumerate(value):
            if isinstance(inner, Sequence) and not isinstance(inner, str):
                yield from _walk(field, (*path, place), inner)
            else:
                yield from _walk(field, (*path, place) if dense else path, inner)
    elif _is_number(value):
        if not abs(value) < LARGEST:
            raise InvalidValue(field, str(value)[:40], "give numbers below 2^63 in size")
        worth = math.copysign(math.log2(1.0 + abs(value)), value)
        if worth:
            yield _hash(path), worth
    elif value is not None:
        yield _hash((*path, value)), 1.0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@lru_cache(maxsize=65536)
def _hash_of(text: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def _hash(path: tuple[Any, ...]) -> int:
    """Return 64 bits of BLAKE2b of the path as a JSON list."""
    return _hash_of(msgspec.json.encode(path))


def vectors(context: Features, actions: Sequence[Features], dim: int) -> Floats:
    """Return the vector of each action in a context.

    Parameters
    ----------
    context : Features
    actions : sequence of Features
    dim : int
        Length of a vector.

    Returns
    -------
    array of float64, shape (actions, dim)

    Examples
    --------
    >>> context = features_of("contextFeatures", [{"time": "morning"}])
    >>> tea = features_of("features", [{"hot": True}])
    >>> np.abs(vectors(context, [tea], 64)).sum()
    np.float64(3.0)
    """
    found = np.zeros((len(actions), dim))
    shared = np.zeros(dim)
    _add(shared, context[0] ^ CONTEXT, context[1])
    for row, (hashes, worths) in zip(found, actions, strict=True):
        row += shared
        _add(row, hashes ^ ACTION, worths)
        pairs = _mixed(context[0][:, None] ^ PAIR) + hashes
        _add(row, _mixed(pairs).ravel(), np.outer(context[1], worths).ravel())
    return found


def _add(row: Floats, hashes: Hashes, worths: Floats) -> None:
    if len(hashes):
        signs = np.where(hashes >> np.uint64(63), -1.0, 1.0)
        places = (hashes % np.uint64(len(row))).astype(np.intp)
        values = signs * worths / np.sqrt(len(hashes))
        row += np.bincount(places, values, minlength=len(row))


def _mixed(hashes: Hashes) -> Hashes:
    """Return the finalizer of SplitMix64 (Steele, Lea, Flood 2014): every bit moves every other."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))
