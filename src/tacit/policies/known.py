"""What is known of arms before any of them was shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats
from tacit.errors import InvalidValue
from tacit.policies.base import Policy

Known = tuple[tuple[int | str, float, float], ...]
"""An arm, its successes and its failures; in the order of slots."""

MOST = 1e6
LATER = MappingProxyType({"later": True})
"""Metadata of the field ``priors``: a spec has it where something is told."""
REMEDY = 'give successes and failures of arms, such as {"film": (4, 96)}'


class TellsArms(Policy):
    """Base of the policies that can be told what is known of arms before they are shown.

    A subclass has the field ``priors``.
    """

    priors: Any = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.priors != ():
            self._set("priors", checked(self.priors, self.arms))

    def __repr__(self) -> str:
        told = (
            f"{one.name}={getattr(self, one.name)!r}"
            for one in fields(self)
            if one.name != "priors" or self.priors
        )
        return f"{type(self).__name__}({', '.join(told)})"

    @property
    def known(self) -> Floats:
        """Successes and failures that each arm is told to have had, of shape (arms, 2)."""
        names = range(self.arms) if isinstance(self.arms, int) else self.arms
        told = {arm: (successes, failures) for arm, successes, failures in self.priors}
        return np.array([told.get(arm, (0.0, 0.0)) for arm in names])


def checked(priors: Any, arms: int | tuple[str, ...]) -> Known:
    """Return what is told of arms, in the order of their slots.

    Raises
    ------
    InvalidValue
        If it is told of an arm that there is not, or is no pair of numbers within [0, 1e6].
    """
    told = {}
    for arm, pair in _pairs(priors):
        slot = _slot(arm, arms)
        if slot in told:
            raise InvalidValue("priors", arm, "tell each arm once")
        name = slot if isinstance(arms, int) else arms[slot]
        place = f"priors.{arm}"
        told[slot] = (name, *(checks.number(place, value, 0.0, MOST) for value in pair))
    return tuple(told[slot] for slot in sorted(told))  # type: ignore[misc]


def _pairs(priors: Any) -> list[tuple[Any, tuple[Any, ...]]]:
    pairs: list[tuple[Any, tuple[Any, ...]]]
    try:
        if isinstance(priors, Mapping):
            pairs = [(arm, tuple(told)) for arm, told in priors.items()]
        else:
            pairs = [(arm, tuple(told)) for arm, *told in priors]
    except (TypeError, ValueError):
        raise InvalidValue("priors", priors, REMEDY) from None
    for arm, told in pairs:
        if len(told) != 2 or isinstance(arm, float):
            raise InvalidValue(f"priors.{arm}", told, REMEDY)
    return pairs


def _slot(arm: Any, arms: int | tuple[str, ...]) -> int:
    # A file has names only.
    names = list(map(str, range(arms))) if isinstance(arms, int) else list(arms)
    name = str(arm) if isinstance(arms, int) else arm
    if name not in names:
        raise InvalidValue("priors", arm, f"tell of arms that there are: {', '.join(names)}")
    return names.index(name)
