"""What shards tell each other, and how it is written."""

from __future__ import annotations

import base64
from typing import Any, Protocol

import msgspec
import numpy as np

from tacit.core.state import leaves, rebuilt
from tacit.learning.learner import Learner

NOISE = 1e-9
"""Sums smaller than this share of the whole are what rounding leaves, and nothing learned."""
CLASSIFIER, SUMS = "", "sums"
"""Names of the parts that belong to all keys."""
SCRATCH = "scratch."

Value = dict[str, str]
"""Arrays by their names, as base64 of their bytes."""


class Learned(msgspec.Struct):
    """What a shard has learned, up to a moment of its log.

    Attributes
    ----------
    shard : int
    time : int
        Microseconds since 1970.
    parts : dict of str to dict of str to str
        The arrays of each key; or, of what belongs to all keys, of the classifier and of the sums.
    """

    shard: int
    time: int
    parts: dict[str, Value]


class Shared(Protocol):
    """What a placement's learner shares with those in other shards."""

    def told(self, learner: Learner, everything: bool) -> dict[str, Value]:
        """Return what was learned here since the last time, or altogether."""

    def news(self, learner: Learner, told: Learned) -> Learned:
        """Return what of it is not known here."""

    def take(self, learner: Learner, told: Learned) -> None:
        """Take in what another shard has told."""

    def saved(self) -> Any:
        """Return what was taken in, as JSON data."""

    def restore(self, saved: Any) -> None:
        """Take over what :meth:`saved` gave."""


# Arrays as text ------------------------------------------------------------------------------


def text_of(array: Any) -> str:
    """Return the bytes of an array as text."""
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def array_of(text: str, like: Any) -> Any:
    """Return the array of such a text, which is to be of the form of another one."""
    return np.frombuffer(base64.b64decode(text), like.dtype).reshape(like.shape)


def value_of(arrays: Any) -> Value:
    """Return a named tuple's arrays by their names, but for scratch."""
    return {name: text_of(array) for name, array in leaves(arrays) if not name.startswith(SCRATCH)}


def arrays_of(value: Value, like: Any) -> Any:
    """Return a named tuple like another one; what was not told is as it is there."""
    return rebuilt(
        like,
        (array_of(value[name], array) if name in value else array for name, array in leaves(like)),
    )


def put(target: Any, source: Any) -> None:
    """Copy arrays into their namesakes."""
    for (_, into), (_, array) in zip(leaves(target), leaves(source), strict=True):
        into[:] = array
