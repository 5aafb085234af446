"""The values that a store reads and writes besides rows: placements, snapshots in pieces, old rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from tacit.service.errors import Damaged
from tacit.service.log.rows import RecordRow, Rows

BATCH = 2**17
"""Bytes of a snapshot per transaction, so that no commit waits long."""
SWEEP_PIECES = 4
"""Pieces of a snapshot that one transaction removes, for the same reason."""
SNAPSHOTS, BASES, STATES = "snapshots", "bases", "states"

DAMAGE = (
    "restore a backup, or keep a copy and take out of the log what is damaged: tacit serve --skip-damaged"
)
NAMED_ROWS = 20


FEEDBACK_RULE = "feedback_rule"
"""Field of a stored policy: the version of the rule by which the placement's feedback is learned."""


class StoredPlacement(NamedTuple):
    """A placement as it is stored: its numbers, its first policy as JSON, its seed and the store's salt."""

    id: int
    policy: int
    spec: str
    seed: int
    salt: str = ""

    @property
    def feedback_rule(self) -> int:
        """Version of the rule by which feedback is learned from the placement's beginning."""
        return int(json.loads(self.spec).get(FEEDBACK_RULE, 1)) if self.spec else 1


class End(NamedTuple):
    """The sequence number and the time of the last row; zeros for an empty log."""

    seq: int
    time: int


class Snapshot(NamedTuple):
    """The learned state of a placement after the row ``seq`` of the log.

    Attributes
    ----------
    placement, seq, time : int
    plan : str
        JSON of the settings with which the log was folded; with other settings the whole log is folded again.
    learner : bytes
    shadow : bytes or None
        Learner of the secondary policy.
    series : bytes
    windows : bytes
        Decisions with open windows, the mode, the counts.
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
        """Return the snapshot as a draft to be written, with one piece for each field that is not None."""
        whole = zip(self._fields[4:], self[4:], strict=True)
        return Draft(*self[:4], ((field, content) for field, content in whole if content is not None))


class Draft(NamedTuple):
    """A snapshot whose state is encoded piece by piece while it is written.

    Attributes
    ----------
    placement, seq, time, plan
        As in :class:`Snapshot`.
    pieces : iterator
        Pairs of a field of the snapshot, from ``learner`` on, and its next bytes.
    """

    placement: int
    seq: int
    time: int
    plan: str
    pieces: Iterator[tuple[str, bytes]]

    def split_into_batches(self) -> Iterator[list[tuple[str, bytes]]]:
        """Yield the pieces in lists of at least :data:`BATCH` bytes each; the last list may be smaller.

        Pieces are encoded now, and can be iterated once.
        """
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
        """Add the next pieces to the checksum."""
        for field, content in pieces:
            self._hash.update(msgspec.json.encode([field, len(content)]))
            self._hash.update(content)

    def value(self) -> bytes:
        """Return the checksum of the head and all pieces so far, as 32 bytes."""
        return self._hash.digest()


def assemble_snapshot(
    head: Sequence[Any], checksum: bytes | None, pieces: Iterable[tuple[str, bytes]]
) -> Snapshot:
    """Return a snapshot from its first four fields and its pieces, in order.

    Parameters
    ----------
    head : sequence
    checksum : bytes or None
        None for a snapshot of version 0.1, in a store that 0.3 has opened since.
    pieces : iterable

    Raises
    ------
    Damaged
        If the checksum does not fit the pieces.
    """
    contents: dict[str, list[bytes]] = {}
    actual = Checksum(head)
    for piece in pieces:
        actual.add([piece])
        contents.setdefault(piece[0], []).append(piece[1])
    if checksum not in (None, actual.value()):
        raise Damaged("damaged: its checksum does not fit what is there")
    # Fields of no bytes have no piece, and neither has a shadow that there is not.
    fields = {field: b"".join(content) for field, content in contents.items()}
    learner, series, windows = (fields.get(field, b"") for field in ("learner", "series", "windows"))
    return Snapshot._make([*head, learner, fields.get("shadow"), series, windows])


class OldRows(NamedTuple):
    """Rows past a placement's retention: decisions with all their feedback, change events, records."""

    rows: Rows
    records: list[RecordRow]

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.rows.size + len(self.records)


def describe_rows(damaged: Mapping[str, Sequence[int]]) -> str:
    """Return numbers of rows by table as text for a message; of each table the first ``NAMED_ROWS``.

    Examples
    --------
    >>> describe_rows({"decisions": [17, 18], "feedback": [19]})
    'rows 17, 18 of decisions, rows 19 of feedback'
    """
    return ", ".join(
        f"rows {', '.join(map(str, numbers[:NAMED_ROWS]))}"
        f"{f' and {len(numbers) - NAMED_ROWS} more' * (len(numbers) > NAMED_ROWS)} of {table}"
        for table, numbers in damaged.items()
    )


class BlankedRows(NamedTuple):
    """Numbers of rows from which the data of a forgotten user were blanked.

    Attributes
    ----------
    decisions, records : int
    """

    decisions: int
    records: int


def sum_blanked_rows(*parts: Mapping[str, BlankedRows]) -> dict[str, BlankedRows]:
    """Return the sums of several numbers of blanked rows, by placement.

    Examples
    --------
    >>> sum_blanked_rows({"home": BlankedRows(1, 0)}, {"home": BlankedRows(2, 3)})
    {'home': BlankedRows(decisions=3, records=3)}
    """
    names = sorted({name for part in parts for name in part})
    blanked_rows = {name: [part[name] for part in parts if name in part] for name in names}
    return {
        name: BlankedRows(sum(shard.decisions for shard in shards), sum(shard.records for shard in shards))
        for name, shards in blanked_rows.items()
    }
