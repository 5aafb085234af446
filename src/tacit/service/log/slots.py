"""Slots: which shard decides for a key, and how a decision's id tells it.

Every key of a placement has one of 65,536 slots, a hash of both. Shards hold stretches of slots of
the same length, so a slot leads to its shard whatever their number: an id that holds the slot of
its decision leads feedback to the shard that knows it, also after the log was dealt out anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from os import urandom
from typing import NamedTuple

SLOTS = 65_536
PLACES = 4096
SUB_MILLISECONDS = 4096
MOST_SHARDS = 1024

_VERSION, _VARIANT = 8, 0b10


def slot_of(placement: str, key: str) -> int:
    """Return the slot of a key.

    Parameters
    ----------
    placement, key : str

    Examples
    --------
    >>> slot_of("home", "independence day")
    16836
    """
    hashed = hashlib.blake2b(key.encode(), digest_size=2, person=_person(placement))
    return int.from_bytes(hashed.digest())


def _person(placement: str) -> bytes:
    name = placement.encode()
    return name if len(name) <= 16 else hashlib.blake2b(name, digest_size=16).digest()


def shard_of(slot: int, shards: int) -> int:
    """Return the shard that holds a slot.

    Examples
    --------
    >>> [shard_of(slot, 3) for slot in (0, 21_845, 21_846, 65_535)]
    [0, 0, 1, 2]
    """
    return slot * shards // SLOTS


def slots_of(shard: int, shards: int) -> range:
    """Return the slots that a shard holds.

    Examples
    --------
    >>> slots_of(1, 3)
    range(21846, 43691)
    """
    return range(-(-shard * SLOTS // shards), -(-(shard + 1) * SLOTS // shards))


def slot_id(time: int, slot: int, place: int) -> str:
    """Return a new id for a decision of a slot, made at ``time``.

    Parameters
    ----------
    time : int
        Microseconds since 1970.
    slot : int
    place : int
        In the log; 4096 ids of one moment differ by it, and all others by 34 random bits.

    Returns
    -------
    str
        A UUID of version 8 (RFC 9562), which sorts by time as those of version 7 do.

    Examples
    --------
    >>> id = slot_id(1_700_000_000_123_456, slot=12345, place=7)
    >>> id[:18], slot_in(id)
    ('018bcfe5-687b-874b', 12345)
    """
    milliseconds, microseconds = divmod(time, 1000)
    fraction = microseconds * SUB_MILLISECONDS // 1000
    random = int.from_bytes(urandom(5)) >> 6
    own = (slot << 12 | place % PLACES) << 34 | random
    value = milliseconds << 80 | _VERSION << 76 | fraction << 64 | _VARIANT << 62 | own
    digits = f"{value:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def slot_in(id: str) -> int | None:
    """Return the slot that an id tells; None of an id of another form, as clients may give.

    Examples
    --------
    >>> slot_in("order 66") is None
    True
    """
    if len(id) != 36 or id[14] != "8" or id[19] not in "89ab":
        return None
    digits = id.replace("-", "")
    if len(digits) != 32 or not set(digits) <= set("0123456789abcdef"):
        return None
    return int(digits, 16) >> 46 & 0xFFFF


class Shard(NamedTuple):
    """One of several shards: which, and of how many."""

    number: int
    shards: int

    @property
    def slots(self) -> range:
        """The slots that it holds."""
        return slots_of(self.number, self.shards)


class Names:
    """Names the decisions of a placement in a shard.

    Parameters
    ----------
    placement : str
    shard : Shard
    spread : bool
        Whether the keys of the placement are in all shards: then a decision has a slot of its
        own, any one of the shard's.

    Examples
    --------
    >>> names = Names("home", Shard(0, 1), spread=False)
    >>> slot_in(names(1_700_000_000_123_456, ["independence day"], 7)[0])
    16836
    """

    def __init__(self, placement: str, shard: Shard, spread: bool) -> None:
        self._placement = placement
        self._spread = shard.slots if spread else None

    def __call__(self, time: int, keys: Sequence[str], place: int) -> list[str]:
        """Return new ids for decisions for these keys, from a place in the log on."""
        return [slot_id(time, self._slot(key, at), at) for at, key in enumerate(keys, place)]

    def _slot(self, key: str, place: int) -> int:
        if self._spread is None:
            return slot_of(self._placement, key)
        return self._spread[place % len(self._spread)]


def slot_asked(placement: str, key: str, id: str | None, spread: bool) -> int | None:
    """Return the slot of a decision that is asked for; None where any will do."""
    if not spread:
        return slot_of(placement, key)
    if id is None:
        return None
    slot = slot_in(id)
    return slot_of(placement, id) if slot is None else slot
