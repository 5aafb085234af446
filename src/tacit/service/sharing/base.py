"""What shards tell each other, and how it is written."""

from __future__ import annotations

import base64
from typing import Any, Protocol

import msgspec
import numpy as np

from tacit.core.state import leaves, rebuilt
from tacit.learning.learner import Learner
from tacit.policies import Policy
from tacit.service.errors import Unavailable

NOISE = 1e-9
"""Sums smaller than this share of the whole are what rounding leaves, and nothing learned."""
CLASSIFIER, SUMS = "", "sums"
"""Names of the parts that belong to all keys."""
SCRATCH = "scratch."

Value = dict[str, str]
"""Arrays by their names, as base64 of their bytes."""


class NotYet(Unavailable):
    """What is told is of arms that are not known here yet."""


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

    def reach(self, policy: Policy) -> None:
        """Go on with a policy of more arms."""

    def saved(self) -> Any:
        """Return what was taken in, as JSON data."""

    def restore(self, saved: Any) -> None:
        """Take over what :meth:`saved` gave."""


# Arrays as text ------------------------------------------------------------------------------


def text_of(array: Any) -> str:
    """Return the shape and the bytes of an array as text."""
    shape = "x".join(map(str, array.shape))
    return f"{shape}:{base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()}"


def array_of(text: str, like: Any) -> Any:
    """Return the array of such a text, which is to be of the form of another one.

    One from before some arms came has nothing for these.

    Raises
    ------
    NotYet
        If it knows of arms which the other one does not.

    Examples
    --------
    >>> array_of(text_of(np.array([[1.0, 2.0]])), like=np.zeros((1, 3))).tolist()
    [[1.0, 2.0, 0.0]]
    """
    shape, _, content = text.rpartition(":")
    # Without its shape, it is from a version before arms could come.
    sizes = tuple(map(int, shape.split("x"))) if shape else like.shape
    array = np.frombuffer(base64.b64decode(content), like.dtype).reshape(sizes)
    if sizes == like.shape:
        return array
    if len(sizes) != like.ndim or any(n > m for n, m in zip(sizes, like.shape, strict=True)):
        raise NotYet("shard: it has not the arms yet of which another one tells; tell it later")
    return padded(array, np.zeros_like(like))


def padded(small: Any, large: Any) -> Any:
    """Return ``large`` with ``small`` in its leading corner."""
    large[tuple(map(slice, small.shape))] = small
    return large


def value_of(arrays: Any) -> Value:
    """Return a named tuple's arrays by their names, but for scratch."""
    return {name: text_of(array) for name, array in leaves(arrays) if not name.startswith(SCRATCH)}


def arrays_of(value: Value, like: Any) -> Any:
    """Return a named tuple like another one; what was not told is as it is there."""
    return rebuilt(
        like, (array_of(value[name], array) if name in value else array for name, array in leaves(like))
    )


def put(target: Any, source: Any) -> None:
    """Copy arrays into their namesakes."""
    for (_, into), (_, array) in zip(leaves(target), leaves(source), strict=True):
        into[:] = array
