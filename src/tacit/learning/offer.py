"""Arms: their slots, and which of them are on offer."""

from __future__ import annotations

from collections.abc import Sequence

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
    names : tuple
        The arm of each slot.
    slots : array of int64
        The slots on offer.
    """

    def __init__(self, arms: int | tuple[str, ...] | None, retired: Sequence[Arm] = ()) -> None:
        self.names: tuple[Arm, ...] = tuple(range(arms)) if isinstance(arms, int) else arms or ()
        self._slot_of = {name: slot for slot, name in enumerate(self.names)}
        self._all = arms
        out = {self._slot_of[name] for name in retired}
        self.slots = np.array([s for s in range(len(self.names)) if s not in out], np.int64)

    @property
    def arms(self) -> list[Arm]:
        """The arms on offer."""
        return [self.names[slot] for slot in self.slots.tolist()]

    @property
    def retired(self) -> list[Arm]:
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

    def with_arm(self, name: str | None) -> tuple[Arm, int | tuple[str, ...], Offer]:
        """Return the arm that comes on offer, all arms as a policy takes them, and the offer.

        Raises
        ------
        InvalidValue
            If the arm is on offer already, or named where arms are numbered, or the reverse.
        """
        arms, retired = self._all, self.retired
        if arms is None:
            raise InvalidValue(
                "arm", name, "this policy knows arms by features; say at each decision what is on"
            )
        if isinstance(arms, int):
            if name is not None and name not in retired:
                raise InvalidValue(
                    "arm", name, "arms are numbered here; call add_arm() without a name"
                )
            added: Arm = arms if name is None else name
        else:
            added = checks.name("arm", name)
            if added in self._slot_of and added not in retired:
                raise InvalidValue("arm", name, "it is on offer already")
        if added in retired:
            retired.remove(added)
        else:
            arms = arms + 1 if isinstance(arms, int) else (*arms, str(added))
        return added, arms, Offer(arms, retired)

    def without(self, arm: Arm) -> Offer:
        """Return the offer without an arm.

        Raises
        ------
        UnknownName
            If there is no such arm.
        InvalidValue
            If it is the last one on offer.
        """
        if arm not in self._slot_of:
            raise UnknownName(f"arm: there is no arm {arm!r}; the arms are {list(self.names)}")
        retired = self.retired
        if arm in retired:
            return self
        if len(self.slots) == 1:
            raise InvalidValue("arm", arm, "it is the last arm on offer; add another one first")
        return Offer(self._all, [*retired, arm])
