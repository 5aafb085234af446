"""Ids, times and draws of decisions.

An id contains the time and the partition of its decision, and seeds every random draw of the decision. So the
order of decisions, the shard of a key and the draws follow from the id alone.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from os import urandom
from typing import NamedTuple

import numpy as np

from tacit.errors import InvalidValue

# ---- Decision ids: UUIDs of version 7, so that ids sort by time and database indexes grow at one end

SUB_MILLISECONDS = 4096
VARIANT = bytes(byte & 0x3F | 0x80 for byte in range(256))


def create_decision_id(time: int) -> str:
    """Return a new id for a decision made at ``time``; its 62 random bits come from the operating system.

    Parameters
    ----------
    time : int
        Microseconds since 1970.

    Returns
    -------
    str
        UUID of version 7 (RFC 9562), with the fraction of the millisecond (its method 3).

    Examples
    --------
    >>> create_decision_id(1_700_000_000_123_456)[:18]
    '018bcfe5-687b-774b'
    """
    return create_decision_ids(time, 1)[0]


def create_decision_ids(time: int, count: int) -> list[str]:
    """Return ``count`` new, different ids for decisions made at ``time``; see :func:`create_decision_id`."""
    milliseconds, microseconds = divmod(time, 1000)
    fraction = microseconds * SUB_MILLISECONDS // 1000
    digits = f"{milliseconds << 16 | 0x7 << 12 | fraction:016x}"
    head = f"{digits[:8]}-{digits[8:12]}-{digits[12:]}-"
    # Each id takes 8 of 12 random bytes: so bytearray.hex, which runs in C, sets the dashes.
    random = bytearray(urandom(12 * count))
    random[4::12] = random[4::12].translate(VARIANT)
    tail = random.hex("-", 6)
    return [head + tail[i : i + 17] for i in range(8, 26 * count, 26)]


# ---- The log's clock: set by the wall clock at the start, it never jumps


def as_text(time: int) -> str:
    """Return a time in microseconds since 1970 as text in ISO 8601.

    Examples
    --------
    >>> as_text(1_700_000_000_123_456)
    '2023-11-14T22:13:20.123456+00:00'
    """
    return datetime.fromtimestamp(time // 1_000_000, UTC).replace(microsecond=time % 1_000_000).isoformat()


def as_datetime(time: int) -> datetime:
    """Return a time in microseconds since 1970 as a datetime in UTC."""
    return datetime.fromtimestamp(time / 1e6, UTC)


def parse_time(field: str, text: str) -> int:
    """Return a time in ISO 8601 as microseconds since 1970; a time without zone is in UTC.

    Raises
    ------
    InvalidValue
        If the text is not a time.

    Examples
    --------
    >>> parse_time("until", "2023-11-14T22:13:20.123456Z")
    1700000000123456
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidValue(field, text, "give a time in ISO 8601, such as 2026-05-03") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1e6)


class LogClock:
    """Clock in microseconds since 1970 that ignores changes of the wall clock after the start.

    A wall clock that is set forward would close every window at once, and one that is set back would
    keep them open for as long; this clock adds the elapsed time to the wall time of the start.

    Parameters
    ----------
    wall : function, optional
        Returns nanoseconds since 1970; called once.
    passed : function, optional
        Returns nanoseconds since any fixed moment, never decreasing.

    Examples
    --------
    >>> passed = iter([500_000, 2_500_000])
    >>> LogClock(wall=lambda: 7_000_000, passed=lambda: next(passed))()
    9000
    """

    def __init__(
        self, wall: Callable[[], int] = time.time_ns, passed: Callable[[], int] | None = None
    ) -> None:
        self._passed = passed or _boot_time()
        self._offset = wall() - self._passed()

    def __call__(self) -> int:
        """Return the time in microseconds since 1970."""
        return (self._offset + self._passed()) // 1000


def wall_time() -> int:
    """Return the time of this machine's clock in microseconds since 1970."""
    return time.time_ns() // 1000


def _boot_time() -> Callable[[], int]:
    """Return a clock: a function that returns nanoseconds since a fixed moment, such as the machine's start.

    It also counts while the machine sleeps, if the system has such a clock.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
    return time.monotonic_ns


class LogTime:
    """The time of the log, which never decreases.

    Parameters
    ----------
    clock : function
        Returns microseconds since 1970.
    last : int
        Time of the last row.
    wall : function, optional
        Returns the current wall time in microseconds since 1970; by default ``clock``.

    Attributes
    ----------
    last : int
        Time of the last group of requests, or of the last row at the start.

    Examples
    --------
    >>> clock = iter([90, 91, 89])
    >>> time = LogTime(lambda: next(clock), last=100)
    >>> time.advance(), time.get_time()
    (101, 101)
    """

    def __init__(self, clock: Callable[[], int], last: int, wall: Callable[[], int] | None = None) -> None:
        self.clock = clock
        self._wall = wall or clock
        self.last = last
        # A wall clock behind the log must not stop the log's time.
        self._ahead = max(last - clock(), 0)

    def get_time(self) -> int:
        """Return the log's current time in microseconds, at least ``last``; ``last`` stays as it is."""
        return max(self.clock() + self._ahead, self.last)

    @property
    def wall_ahead(self) -> int:
        """Microseconds by which the wall clock is ahead of the log's time; negative if behind."""
        return self._wall() - self.get_time()

    def get_earlier_time(self) -> int:
        """Return the earlier of the log's time and the wall time, in microseconds since 1970."""
        return min(self.get_time(), self._wall())

    def advance(self) -> int:
        """Set ``last`` to the log's current time, and return it."""
        self.last = self.get_time()
        return self.last


# ---- Random draws of a decision: seeded by its id and the placement's seed, and nothing else
#
# So the same request with the same id draws the same numbers, on any machine and after any crash, and a
# decision in the log can be reproduced from the state before it.

KEY_BYTES = 16


class Draws:
    """Seeds a random generator for each decision.

    Parameters
    ----------
    seed : int
        The placement's seed.
    purpose : str, default ""
        Draws for different purposes are independent.

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
        """Seed ``rng``, a generator over PCG64, for the decision ``id``: the same id gives the same draws."""
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


# ---- Partitions: a hash of the key assigns each decision to a shard, and the decision's id contains it
#
# Every key of a placement has one of 65,536 partitions, a hash of both. Each shard has a range of partitions,
# so a partition determines its shard for any number of shards. An id contains the partition of its decision,
# so feedback reaches the right shard even after the log was distributed over another number of shards.

PARTITIONS = 65_536
PLACES = 4096

MOST_SHARDS = 1024

_VERSION, _VARIANT = 8, 0b10


@lru_cache(2**14)
def hash_partition(placement: str, key: str) -> int:
    """Return the partition of a key of a placement: a number from 0 to 65,535; the latest ones are cached.

    Parameters
    ----------
    placement, key : str

    Examples
    --------
    >>> hash_partition("home", "independence day")
    16836
    """
    hashed = hashlib.blake2b(key.encode(), digest_size=2, person=_personalize(placement))
    return int.from_bytes(hashed.digest())


def _personalize(placement: str) -> bytes:
    """Return a placement's name as at most 16 bytes that personalize a hash; a digest of a longer name."""
    name = placement.encode()
    return name if len(name) <= 16 else hashlib.blake2b(name, digest_size=16).digest()


def find_shard(partition: int, shards: int) -> int:
    """Return the number of the shard that has a partition, of ``shards`` shards.

    Examples
    --------
    >>> [find_shard(partition, 3) for partition in (0, 21_845, 21_846, 65_535)]
    [0, 0, 1, 2]
    """
    return partition * shards // PARTITIONS


def list_partitions(shard: int, shards: int) -> range:
    """Return the range of partitions of shard number ``shard``, of ``shards`` shards.

    Examples
    --------
    >>> list_partitions(1, 3)
    range(21846, 43691)
    """
    # Rounded up, so that :func:`find_shard` rounds down to this shard.
    return range(-(-shard * PARTITIONS // shards), -(-(shard + 1) * PARTITIONS // shards))


def create_partition_id(time: int, partition: int, place: int) -> str:
    """Return a new id for a decision made at ``time``, which contains the number of the decision's partition.

    Parameters
    ----------
    time : int
        Microseconds since 1970.
    partition : int
    place : int
        Sequence number of the decision; it distinguishes up to 4096 ids of one moment, and 34 random bits
        distinguish all others.

    Returns
    -------
    str
        UUID of version 8 (RFC 9562), which sorts by time like version 7.

    Examples
    --------
    >>> id = create_partition_id(1_700_000_000_123_456, partition=12345, place=7)
    >>> id[:18], parse_partition(id)
    ('018bcfe5-687b-874b', 12345)
    """
    milliseconds, microseconds = divmod(time, 1000)
    fraction = microseconds * SUB_MILLISECONDS // 1000
    # The lowest 62 bits: 16 of the partition, 12 of the place, and 34 random ones, of 40.
    random = int.from_bytes(urandom(5)) >> 6
    low_bits = (partition << 12 | place % PLACES) << 34 | random
    value = milliseconds << 80 | _VERSION << 76 | fraction << 64 | _VARIANT << 62 | low_bits
    digits = f"{value:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def parse_partition(id: str) -> int | None:
    """Return the partition in an id; None for ids of another form, which clients may choose.

    Examples
    --------
    >>> parse_partition("order 66") is None
    True
    """
    if len(id) != 36 or id[14] != "8" or id[19] not in "89ab":
        return None
    digits = id.replace("-", "")
    if len(digits) != 32 or not set(digits) <= set("0123456789abcdef"):
        return None
    # Below the partition are 12 bits of the place and 34 random ones.
    return int(digits, 16) >> 46 & 0xFFFF


class Shard(NamedTuple):
    """A shard's number, and the number of all shards."""

    number: int
    shards: int

    @property
    def partitions(self) -> range:
        """The range of numbers of the partitions that this shard has."""
        return list_partitions(self.number, self.shards)


class DecisionIdGenerator:
    """Creates the ids of a placement's decisions in a shard.

    Parameters
    ----------
    placement : str
    shard : Shard
    spread : bool
        Whether all shards decide for every key: then the partition of a decision is any one of the
        shard's.

    Examples
    --------
    >>> create_ids = DecisionIdGenerator("home", Shard(0, 1), spread=False)
    >>> parse_partition(create_ids(1_700_000_000_123_456, ["independence day"], 7)[0])
    16836
    """

    def __init__(self, placement: str, shard: Shard, spread: bool) -> None:
        self._placement = placement
        self._spread = shard.partitions if spread else None

    def __call__(self, time: int, keys: Sequence[str], place: int) -> list[str]:
        """Return new ids for decisions on keys.

        ``place`` is the sequence number of the first, the others follow.
        """
        return [
            create_partition_id(time, self._get_partition(key, seq), seq)
            for seq, key in enumerate(keys, place)
        ]

    def _get_partition(self, key: str, place: int) -> int:
        """Return a decision's partition: its key's, or any one of the shard if decisions are spread."""
        if self._spread is None:
            return hash_partition(self._placement, key)
        return self._spread[place % len(self._spread)]


def find_request_partition(placement: str, key: str, id: str | None, spread: bool) -> int | None:
    """Return the partition of a requested decision: its key's; of a spread placement its id's.

    None without an id in a spread placement, because any shard may decide.
    """
    if not spread:
        return hash_partition(placement, key)
    return None if id is None else find_id_partition(placement, id)


def find_id_partition(placement: str, id: str) -> int:
    """Return the partition of a decision by its id: the one that the id contains, or a hash of the id."""
    partition = parse_partition(id)
    return hash_partition(placement, id) if partition is None else partition
