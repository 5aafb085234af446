"""What the engine asks of a store.

The log is the truth. A store keeps its rows under one ascending sequence number, appends a group of
them whole or not at all, and gives them back in that order.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeGuard

import msgspec

from tacit.service.errors import Damaged
from tacit.service.log.rows import Event, FoundDecision, MarkRow, RecordRow, Rows
from tacit.service.log.searches import Subject

BATCH = 2**17
"""Bytes of a snapshot that are written at once, so that no commit waits long."""
SWEPT = 4
"""Pieces of a snapshot that are removed at once, for the same reason."""
SNAPSHOTS, BASES, STATES = "snapshots", "bases", "states"

DAMAGE = (
    "restore a backup, or keep a copy and take out of the log what is damaged: tacit serve --skip-damaged"
)
NAMED_ROWS = 20


class StoredPlacement(NamedTuple):
    """A placement as the store has it."""

    id: int
    policy: int
    spec: str
    seed: int
    salt: str = ""


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
        None for one that was written by version 0.1, which has none.
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


class Store(Protocol):
    """A log that survives.

    Writing methods run one at a time, in whatever thread; the others may run beside them, also one
    at a time. Each raises StoreError if the store fails, and Fenced if it has another owner by now.
    No sequence number is taken twice, in whatever table.

    Attributes
    ----------
    local : bool
        Whether it never waits for another machine.
    """

    local: bool

    def placement(self, name: str, spec: str, seed: int) -> StoredPlacement:
        """Return a placement, which gets ``spec`` and ``seed`` if it is new."""

    def placements(self) -> dict[str, StoredPlacement]:
        """Return all placements by their names."""

    def configure(self, placement: int, configuration: str) -> None:
        """Keep how a placement is configured."""

    def configuration(self, placement: int) -> str | None:
        """Return how a placement was configured when this was kept last."""

    def changes(self, placement: int) -> list[MarkRow]:
        """Return the marks that say who changed what of a placement, in order."""

    def policy(self, spec: str) -> int:
        """Return the number of a policy, which is kept if it is new."""

    def states(self, placement: int) -> list[End]:
        """Return the rows and the times of the states of a placement that are kept, in order."""

    def state(self, placement: int, seq: int) -> Snapshot | None:
        """Return a state that is kept; raises Damaged if it is not what was written."""

    def set_aside(self, placement: int, end: int) -> None:
        """Remove the snapshot and the states of a placement that go beyond a row."""

    def append(self, rows: Rows) -> None:
        """Make a group durable: all of it, or nothing."""

    def keep(self, records: Sequence[RecordRow]) -> list[str | None]:
        """Make records durable that are not there yet; return the content of those that are."""

    def records(self) -> Iterator[RecordRow]:
        """Yield all records that were kept, in the order in which they came."""

    def forget(self, subject: Subject, end: End, who: str | None = None) -> dict[str, BlankedRows]:
        """Blank what rows tell of somebody, and mark it after the end: all of it, or nothing.

        Returns how many rows it was, of each placement where there were any; each has a mark.
        """

    def scrub(self) -> None:
        """Overwrite what was dropped or blanked, as far as the store can."""

    def damaged(self) -> dict[str, list[int]]:
        """Return the numbers of the rows that are not what was written, by their tables."""

    def leave_out(self, damaged: Mapping[str, Sequence[int]]) -> None:
        """Take damaged rows out of the log for good; raises Damaged if that cannot be."""

    def unsound(self) -> list[str]:
        """Return where the store itself is damaged, its indexes against its tables too."""

    def check_end(self) -> None:
        """Raise Damaged if the owner before came to no clean end and left a damaged index."""

    def find(self, wanted: Sequence[tuple[int, str]]) -> dict[tuple[int, str], FoundDecision]:
        """Return those decisions that exist, from their placements and ids."""

    def events(self, after: int) -> Iterator[Event]:
        """Yield the log after a sequence number, in order.

        Raises Damaged at a row that is not what was written.
        """

    def end(self) -> End:
        """Return where the log ends."""

    def snapshot(self, placement: int) -> Snapshot | None:
        """Return a placement's latest snapshot; raises Damaged if it is not what was written."""

    def saving(self, draft: Draft, what: str = SNAPSHOTS) -> Iterator[None]:
        """Write a snapshot, or a base, step by step; then it is in place of the one before.

        A state stands beside those before.

        Each step is a transaction of its own, so that others may be committed in between. If the
        steps come to no end, the one before stands.
        """

    def base(self, placement: int) -> Snapshot | None:
        """Return where a placement's log begins, if what was before has been dropped.

        Raises Damaged if it is not what was written.
        """

    def begins(self, placement: int) -> End | None:
        """Return the row and the time of a placement's base."""

    def old(self, placement: int | None, before: int, time: int, limit: int) -> Old:
        """Return the first rows of a placement, or of none, that are older than ``time``.

        Of decisions, those whose feedback came before the sequence number ``before``, too; each
        with all its feedback.
        """

    def drop(self, old: Old) -> None:
        """Remove rows for good: all of them, or none."""

    def probe(self, time: int) -> None:
        """Commit something small, to show that commits work."""

    def check(self) -> None:
        """Raise StoreError if what is committed from now on would be lost, or is another's."""

    def size(self) -> int:
        """Return the bytes that the store takes."""

    def close(self) -> None:
        """Release everything; the store cannot be used afterwards."""


def save(store: Store, snapshot: Snapshot, what: str = SNAPSHOTS) -> None:
    """Keep a snapshot, or a base, in place of the one before."""
    for _ in store.saving(snapshot.draft(), what):
        pass


class LocalStore(Store, Protocol):
    """A store that never waits for another machine, and may append in two steps."""

    def insert(self, rows: Rows) -> None:
        """Write a group that is durable once :meth:`commit` returns, before which nothing else is written."""

    def commit(self) -> None:
        """Make what was inserted durable: all of it, or nothing."""


def is_local(store: Store) -> TypeGuard[LocalStore]:
    """Whether a store never waits for another machine."""
    return store.local
