"""Arms: their slots, and which of them are on offer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Ints
from tacit.errors import InvalidValue, UnknownName
from tacit.learning.decisions import Arm


class Offer:
    """The arms of a policy, some of them retired; never changed, only replaced.

    Parameters
    ----------
    arms : int, tuple of str, or None
        As a policy's ``arms``; None where arms are known by their features.
    retired : sequence of arms

    Attributes
    ----------
    all : int, tuple of str, or None
        ``arms``.
    names : tuple
        The arm of each slot.
    slots : array of int64
        The slots on offer.
    """

    def __init__(self, arms: int | tuple[str, ...] | None, retired: Sequence[Arm] = ()) -> None:
        self.names: tuple[Arm, ...] = tuple(range(arms)) if isinstance(arms, int) else arms or ()
        self._slot_of = {name: slot for slot, name in enumerate(self.names)}
        self.all = arms
        out = {self._slot_of[name] for name in retired}
        self.slots = np.array([s for s in range(len(self.names)) if s not in out], np.int64)

    @property
    def arms(self) -> list[Any]:
        """The arms on offer."""
        return [self.names[slot] for slot in self.slots.tolist()]

    @property
    def retired(self) -> list[Any]:
        """The other ones."""
        offered = set(self.slots.tolist())
        return [name for slot, name in enumerate(self.names) if slot not in offered]

    def slots_of(self, arms: Sequence[Arm]) -> Ints:
        """Return the slots of arms that may be offered.

        Raises
        ------
        InvalidValue
            If there is none, or one twice, or one string in place of a list of arms.
        UnknownName
            If an arm is unknown or retired.
        """
        offered = set(self.slots.tolist())
        slots = []
        for arm in checks.names("arms", arms):
            slot = self._slot_of.get(arm)
            if slot is None or slot not in offered:
                raise UnknownName(f"arms: {arm!r} is not on offer; on offer are {self.arms}")
            slots.append(slot)
        if not slots or len(set(slots)) < len(slots):
            raise InvalidValue("arms", arms, "offer at least one arm, and each only once")
        return np.array(slots, np.int64)

    def with_new(self, arms: int | Sequence[str]) -> tuple[list[Arm], Offer]:
        """Return the arms that come, and the offer with them.

        Parameters
        ----------
        arms : int or sequence of str
            How many, where arms are numbered; or their names.

        Raises
        ------
        InvalidValue
            If there is such an arm already, or arms are numbered and are given names, or the
            reverse.
        """
        if self.all is None:
            raise InvalidValue(
                "arms", arms, "this policy knows arms by features; say at each decision what is on"
            )
        if isinstance(self.all, int):
            if not isinstance(arms, int):
                raise InvalidValue("arms", arms, "arms are numbered here; say how many come")
            count = self.all + checks.integer("arms", arms, 1)
            return list(range(self.all, count)), Offer(count, self.retired)
        names = checks.arms("arms", arms)
        if isinstance(names, int):
            raise InvalidValue("arms", arms, "arms have names here; give those of the new ones")
        for name in names:
            if name in self._slot_of:
                known = "retired; restore it" if name in self.retired else "on offer already"
                raise InvalidValue("arms", name, f"it is {known}")
        return list(names), Offer((*self.all, *names), self.retired)

    def without(self, arms: Sequence[Arm]) -> Offer:
        """Return the offer without some arms.

        Raises
        ------
        UnknownName
            If there is no such arm.
        InvalidValue
            If none would be left on offer.
        """
        slots = self._known(arms)
        if slots and set(self.slots.tolist()) <= slots:
            raise InvalidValue("arms", arms, "no arm would be on offer; add another one first")
        return Offer(self.all, [*self.retired, *(self.names[slot] for slot in slots)])

    def restored(self, arms: Sequence[Arm]) -> Offer:
        """Return the offer with some arms back on it.

        Raises
        ------
        UnknownName
            If there is no such arm.
        """
        back = {self.names[slot] for slot in self._known(arms)}
        return Offer(self.all, [arm for arm in self.retired if arm not in back])

    def _known(self, arms: Sequence[Arm]) -> set[int]:
        """Return the slots of arms, be they on offer or retired."""
        slots = set()
        for arm in checks.names("arms", arms):
            if arm not in self._slot_of:
                raise UnknownName(f"arms: there is no arm {arm!r}; the arms are {list(self.names)}")
            slots.add(self._slot_of[arm])
        return slots
