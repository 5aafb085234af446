"""What stores take and give back besides rows: placements, snapshots in pieces, old rows."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tacit.service.errors import Damaged
from tacit.service.log.rows import RecordRow, Rows

if TYPE_CHECKING:
    from tacit.service.log.sql import Store

BATCH = 2**17
"""Bytes of a snapshot that are written at once, so that no commit waits long."""
SWEPT = 4
"""Pieces of a snapshot that are removed at once, for the same reason."""
SNAPSHOTS, BASES, STATES = "snapshots", "bases", "states"

DAMAGE = (
    "restore a backup, or keep a copy and take out of the log what is damaged: tacit serve --skip-damaged"
)
NAMED_ROWS = 20


FEEDBACK_RULE = "feedback_rule"
"""Beside the policy of a new placement: the version of the rule by which its feedback is learned."""


class StoredPlacement(NamedTuple):
    """A placement as the store has it."""

    id: int
    policy: int
    spec: str
    seed: int
    salt: str = ""

    @property
    def feedback_rule(self) -> int:
        """The version of the rule by which its first decisions were learned."""
        # Who stands before shards has no spec.
        return int(json.loads(self.spec).get(FEEDBACK_RULE, 1)) if self.spec else 1


class End(NamedTuple):
    """The last row's sequence number and time; zeros where there is none."""

    seq: int
    time: int


class Snapshot(NamedTuple):
    """What a placement had learned from the log up to ``seq``.

    Attributes
    ----------
    placement, seq, time : int
    plan : str
        How the log was folded; another plan needs the whole fold anew.
    learner : bytes
    shadow : bytes or None
        The second policy's learner.
    series : bytes
    windows : bytes
        Decisions whose windows are open, the mode, the counts.
    """

    placement: int
    seq: int
    time: int
    plan: str
    learner: bytes
    shadow: bytes | None
    series: bytes
    windows: bytes

    def draft(self) -> Draft:
        """Return it as it is written."""
        whole = zip(self._fields[4:], self[4:], strict=True)
        pieces = ((field, content) for field, content in whole if content is not None)
        return Draft(*self[:4], pieces)


class Draft(NamedTuple):
    """A snapshot that is still to be encoded, of what stood when it was made.

    Attributes
    ----------
    placement, seq, time, plan
        As those of the :class:`Snapshot`.
    pieces : iterator
        Pairs of a field of the snapshot, from ``learner`` on, and the next bytes of it.
    """

    placement: int
    seq: int
    time: int
    plan: str
    pieces: Iterator[tuple[str, bytes]]

    def batches(self) -> Iterator[list[tuple[str, bytes]]]:
        """Yield the pieces, small ones together."""
        batch: list[tuple[str, bytes]] = []
        size = 0
        for field, content in self.pieces:
            batch.append((field, content))
            size += len(content)
            if size >= BATCH:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch


class Checksum:
    """SHA-256 of a snapshot: its first four fields, then its pieces in order.

    Parameters
    ----------
    head : sequence
        The first four fields.
    """

    def __init__(self, head: Sequence[Any]) -> None:
        self._hash = hashlib.sha256(msgspec.json.encode(list(head)))

    def add(self, pieces: Iterable[tuple[str, bytes]]) -> None:
        """Take in the next pieces."""
        for field, content in pieces:
            self._hash.update(msgspec.json.encode([field, len(content)]))
            self._hash.update(content)

    def value(self) -> bytes:
        """Return the checksum of all so far."""
        return self._hash.digest()


def assembled(head: Sequence[Any], checksum: bytes | None, pieces: Iterable[tuple[str, bytes]]) -> Snapshot:
    """Return a snapshot from its first four fields and its pieces, in order.

    Parameters
    ----------
    head : sequence
    checksum : bytes or None
        None for one that 0.1 wrote, in a store that 0.3 has opened since.
    pieces : iterable

    Raises
    ------
    Damaged
        If it is not what was written.
    """
    written: dict[str, io.BytesIO] = {}
    found = Checksum(head)
    for piece in pieces:
        found.add([piece])
        written.setdefault(piece[0], io.BytesIO()).write(piece[1])
    if checksum not in (None, found.value()):
        raise Damaged("damaged: its checksum does not fit what is there")
    whole = {field: buffer.getvalue() for field, buffer in written.items()}
    fields = (whole.get("learner", b""), whole.get("shadow"))
    return Snapshot._make([*head, *fields, whole.get("series", b""), whole.get("windows", b"")])


class Old(NamedTuple):
    """What is older than a placement keeps: decisions with all that came back for them, marks,
    records."""

    rows: Rows
    records: list[RecordRow]

    @property
    def size(self) -> int:
        """How many rows there are."""
        return self.rows.size + len(self.records)


def rows_text(damaged: Mapping[str, Sequence[int]]) -> str:
    """Return which rows of which tables are damaged.

    Examples
    --------
    >>> rows_text({"decisions": [17, 18], "feedback": [19]})
    'rows 17, 18 of decisions, rows 19 of feedback'
    """
    return ", ".join(
        f"rows {', '.join(map(str, numbers[:NAMED_ROWS]))}"
        f"{f' and {len(numbers) - NAMED_ROWS} more' * (len(numbers) > NAMED_ROWS)} of {table}"
        for table, numbers in damaged.items()
    )


class BlankedRows(NamedTuple):
    """How many rows named somebody who is forgotten now.

    Attributes
    ----------
    decisions, records : int
    """

    decisions: int
    records: int


def added(*parts: Mapping[str, BlankedRows]) -> dict[str, BlankedRows]:
    """Return how many rows it was in all parts together.

    Examples
    --------
    >>> added({"home": BlankedRows(1, 0)}, {"home": BlankedRows(2, 3)})
    {'home': BlankedRows(decisions=3, records=3)}
    """
    names = sorted({name for part in parts for name in part})
    every = {name: [part[name] for part in parts if name in part] for name in names}
    return {
        name: BlankedRows(sum(shard.decisions for shard in shards), sum(shard.records for shard in shards))
        for name, shards in every.items()
    }


def save(store: Store, snapshot: Snapshot, what: str = SNAPSHOTS) -> None:
    """Keep a snapshot, or a base, in place of the one before."""
    for _ in store.saving(snapshot.draft(), what):
        pass
