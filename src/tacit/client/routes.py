"""Which server a call goes to, where the keys of a service are dealt out to shards.

Every server answers for all keys; the shard that has the key answers without forwarding the request. A client
reads the table of shards once an answer says that there is one, and again when answers name another version.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tacit.client.bodies import NewId
from tacit.client.call import Call, Reply
from tacit.service.log.ids import (
    PARTITIONS,
    create_partition_id,
    find_request_partition,
    find_shard,
    parse_partition,
)
from tacit.wire.site import ShardTable

TABLE = "/v1/shards"
VERSION = "x-tacit-shards"
"""Header of answers with the version of the table."""
REREAD_SECONDS = 1.0
UNREACHABLE_SECONDS = 10.0
"""Seconds for which a server that accepts no connection is not asked again; another one forwards to it."""
BATCHES = "decisions", "feedback"


class CallPart(NamedTuple):
    """The part of a call for one shard (None for any server), and the places of its items in the call."""

    shard: int | None
    places: Sequence[int]
    call: Call[Any]


class Routes:
    """The table of shards, as far as it is known.

    Parameters
    ----------
    url : str
        Address of the service.
    rng : numpy.random.Generator
        Draws the shards of decisions whose keys are in all.

    Attributes
    ----------
    table_url : str
        Where the table is read: at the server that answered last.
    """

    def __init__(self, url: str, rng: np.random.Generator) -> None:
        self._url, self._rng = url, rng
        self._table = ShardTable([])
        self._version = ""
        self.table_url = url + TABLE
        self._read_at = float("-inf")
        self._unreachable: dict[str, float] = {}

    @property
    def is_outdated(self) -> bool:
        """True if the table should be read: answers name another version, and the last try was long ago."""
        return self._version != self._table.version and time.monotonic() > self._read_at + REREAD_SECONDS

    def read_table(self, reply: Reply) -> None:
        """Use the table in a reply, unless the service refused it, or it would lead away from TLS."""
        self._read_at = time.monotonic()
        if reply.status != 200:
            return
        table = msgspec.json.decode(reply.body, type=ShardTable)
        # True is above False: with TLS now, each address must have it.
        secure = self._url.startswith("https://")
        if all(address.startswith("https://") >= secure for address in table.shards):
            self._table = table

    def note_reply(self, address: str, reply: Reply) -> None:
        """Note the version of the table in a reply, or that a server accepts no connections."""
        if reply.status is None and reply.failure.startswith("Connect"):
            self._unreachable[address] = time.monotonic() + UNREACHABLE_SECONDS
        if reply.shards:
            self._version, self.table_url = reply.shards, address + TABLE

    def choose_address(self, shard: int | None, tries: int) -> str:
        """Return the address for the next try of a call: first that of its shard, then any other in turn."""
        # Shard i has the address i + 1.
        addresses = [self._url, *self._table.shards]
        if shard is None or shard + 1 >= len(addresses):
            return addresses[tries % len(addresses)]
        if tries == 0 and self._unreachable.get(addresses[shard + 1], 0.0) <= time.monotonic():
            return addresses[shard + 1]
        # Servers that answered last time come first.
        addresses.sort(key=lambda address: self._unreachable.get(address, 0.0) > time.monotonic())
        return addresses[max(tries - 1, 0) % len(addresses)]

    def split_call(self, call: Call[Any]) -> list[CallPart]:
        """Return the parts of a call by shard; new ids of decisions get the partitions of their keys."""
        content = call.content
        if not self._table.shards or not isinstance(content, dict):
            return [CallPart(shard=None, places=(), call=call)]
        field = next((field for field in BATCHES if isinstance(content.get(field), list)), None)
        if field is None:
            return [CallPart(self._assign_shard(call.placement, content), (), call)]
        items = [
            msgspec.json.decode(item) if isinstance(item, msgspec.Raw) else item for item in content[field]
        ]
        groups: dict[int | None, list[int]] = {}
        for place, item in enumerate(items):
            groups.setdefault(self._assign_shard(call.placement, item), []).append(place)
        return [
            CallPart(shard, places, call._replace(content={field: [items[i] for i in places]}))
            for shard, places in groups.items()
        ]

    def _assign_shard(self, placement: str, item: dict[str, Any]) -> int | None:
        """Return the shard of a decision or its feedback; None if its id does not say it.

        A new id of a decision is replaced by one with the decision's partition.
        """
        key, id, spread = item.get("key"), item.get("decision_id"), placement in self._table.spread
        if key is None:
            partition = None if id is None else parse_partition(id)
        elif spread and isinstance(id, NewId):
            partition = int(self._rng.integers(PARTITIONS))
        else:
            partition = find_request_partition(placement, key, id, spread)
        if partition is None:
            return None
        if key is not None and isinstance(id, NewId):
            # Ids of the same microsecond and partition differ by it.
            place = int(self._rng.integers(2**12))
            item["decision_id"] = create_partition_id(time.time_ns() // 1000, partition, place)
        return find_shard(partition, len(self._table.shards))


def join_replies(call: Call[Any], parts: Sequence[CallPart], replies: Sequence[list[Reply]]) -> list[Reply]:
    """Return the replies to a call: those to its only part, to one that failed, or the joined answers."""
    failed = [tries for tries in replies if tries[-1].status != 200]
    if len(parts) == 1 or failed:
        return (failed or replies)[0]
    items: dict[int, msgspec.Raw] = {}
    field = ""
    for part, tries in zip(parts, replies, strict=True):
        ((field, answers),) = msgspec.json.decode(tries[-1].body, type=dict[str, list[msgspec.Raw]]).items()
        items |= zip(part.places, answers, strict=True)
    body = msgspec.json.encode({field: [items[place] for place in sorted(items)]})
    # The call reports the tries of its first part.
    return [*replies[0][:-1], replies[0][-1]._replace(body=body)]


def is_refused(parts: Sequence[CallPart], replies: Sequence[list[Reply]]) -> bool:
    """True if a part of a split call is refused: the whole call gets the error with the right places."""
    statuses = [tries[-1].status or 500 for tries in replies]
    return len(parts) > 1 and any(400 <= status < 500 for status in statuses)
