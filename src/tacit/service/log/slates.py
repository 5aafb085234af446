"""What a decision on a list showed, as the log keeps it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tacit.core.arrays import Floats
from tacit.learning.decisions import Arm


class Slate(NamedTuple):
    """A list that was shown.

    Attributes
    ----------
    arms : list
        From the top; None at an empty position.
    prefixes, places : list of float
        The propensities of its beginnings and of its arms at their positions; empty where they are
        not known.
    """

    arms: list[Arm | None]
    prefixes: list[float]
    places: list[float]


def slate_text(arms: Sequence[Arm | None], prefixes: Floats, places: Floats) -> str:
    """Return a list as JSON: its arms alone, or with their propensities.

    Examples
    --------
    >>> import numpy as np
    >>> slate_text(["b", "a"], np.array([]), np.array([]))
    '["b","a"]'
    >>> slate_text(["b", "a"], np.array([0.5, 0.25, 0.25]), np.array([0.5, 0.75, 1.0]))
    '{"slate":["b","a"],"prefixes":[0.5,0.25],"places":[0.5,0.75]}'
    """
    if not len(prefixes):
        return msgspec.json.encode(arms).decode()
    told = {"slate": arms, "prefixes": prefixes[: len(arms)].tolist()}
    told["places"] = places[: len(arms)].tolist()
    return msgspec.json.encode(told).decode()


def slate_of(shown: str | None) -> Slate:
    """Return the list of what :func:`slate_text` gave.

    Examples
    --------
    >>> slate_of('["b","a"]')
    Slate(arms=['b', 'a'], prefixes=[], places=[])
    """
    told = json.loads(shown or "")
    if isinstance(told, list):
        return Slate(told, [], [])
    return Slate(told["slate"], told["prefixes"], told["places"])
