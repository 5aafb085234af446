"""What the stores in databases share: statements, and what is written and read with them.

Statements mark each value by a question mark. Where two databases need different words, or one has
a faster way, the method is the store's own.
"""

from __future__ import annotations

import contextlib
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import add
from typing import Any

from tacit import __version__
from tacit.service.errors import Fenced, StoreError
from tacit.service.log.blocks import tuples
from tacit.service.log.rows import (
    HISTORY,
    DecisionRow,
    Event,
    FeedbackRow,
    Found,
    MarkRow,
    RecordRow,
    Rows,
    checksums,
    in_order,
    row_checksum,
)
from tacit.service.stores.base import (
    BASES,
    SNAPSHOTS,
    STATES,
    SWEPT,
    Checksum,
    Draft,
    End,
    Old,
    Snapshot,
    StoredPlacement,
    assembled,
)

Read = Callable[..., Iterable[Any]]
"""Reads a statement with its values, ``at_once`` rows at a time."""

TABLES: tuple[tuple[str, Any], ...] = (
    ("decisions", DecisionRow),
    ("feedback", FeedbackRow),
    ("marks", MarkRow),
)


def columns(kind: Any, of: str = "") -> str:
    """Return the columns of a kind of row, as a statement lists them."""
    return ", ".join(of + field for field in kind._fields)


def _insert(table: str, kind: Any) -> str:
    marks = ", ".join("?" * (len(kind._fields) + 1))
    return f"INSERT INTO {table} ({columns(kind)}, checksum) VALUES ({marks})"


def with_checksums(
    rows: Iterable[tuple[Any, ...]], as_made: Iterable[tuple[Any, ...]]
) -> Iterator[tuple[Any, ...]]:
    """Return rows as a table takes them, each with the checksum of what was made."""
    return map(add, tuples(rows), zip(checksums(as_made), strict=False))


# Every name in these is a constant.
# ruff: noqa: S608
INSERTS = [_insert(table, kind) for table, kind in TABLES]
EVENTS = [f"SELECT {columns(k)} FROM {t} WHERE seq > ? ORDER BY seq" for t, k in TABLES]
LASTS = " UNION ALL ".join(
    f"SELECT * FROM (SELECT seq, time FROM {t} ORDER BY seq DESC LIMIT 1) last_{t}"
    for t, _ in TABLES
)
KEEP = f"{_insert('records', RecordRow)} ON CONFLICT DO NOTHING RETURNING number"
KEPT = "SELECT content FROM records WHERE id = ? AND placement = ? AND kind = ?"
RECORDS = f"SELECT {columns(RecordRow)} FROM records ORDER BY number"
OLD_DECISIONS = (
    f"SELECT {columns(DecisionRow)} FROM decisions d WHERE placement = ? AND seq < ? "
    "AND time < ? AND NOT EXISTS (SELECT 1 FROM feedback f WHERE f.decision = d.seq "
    "AND f.seq >= ?) ORDER BY seq LIMIT ?"
)
OLD_MARKS = (
    f"SELECT {columns(MarkRow)} FROM marks WHERE placement IS NOT DISTINCT FROM ? "
    f"AND seq < ? AND time < ? AND kind NOT IN {HISTORY} ORDER BY seq LIMIT ?"
)
CHANGES = (
    f"SELECT {columns(MarkRow)} FROM marks WHERE placement = ? AND kind IN {HISTORY} ORDER BY seq"
)
OLD_RECORDS = (
    f"SELECT {columns(RecordRow)} FROM records WHERE placement = ? AND time < ? "
    "ORDER BY number LIMIT ?"
)
HEAD = "placement, seq, time, plan, checksum, pieces"
STANDING = " UNION ALL ".join(f"SELECT pieces FROM {what}" for what in (SNAPSHOTS, BASES, STATES))
NEXT_PIECES = (
    "SELECT coalesce(max(n), 0) + 1 FROM "
    f"(SELECT max(snapshot) AS n FROM pieces UNION ALL {STANDING}) known"
)
ADD_PIECE = "INSERT INTO pieces (snapshot, field, content) VALUES (?, ?, ?)"
PIECES = "SELECT field, content FROM pieces WHERE snapshot = ? ORDER BY number"
SWEEP = (
    "DELETE FROM pieces WHERE number IN "
    f"(SELECT number FROM pieces WHERE snapshot NOT IN ({STANDING}) LIMIT {SWEPT}) RETURNING number"
)
DROP_RECORD = "DELETE FROM records WHERE placement = ? AND kind = ? AND id = ?"
NEW_POLICY = (
    "INSERT INTO policies (hash, spec, version) SELECT ?, ?, ? WHERE NOT EXISTS "
    "(SELECT 1 FROM placements WHERE name = ?) ON CONFLICT DO NOTHING"
)
NEW_PLACEMENT = (
    "INSERT INTO placements (name, policy, seed) "
    "SELECT ?, id, ? FROM policies WHERE hash = ? ON CONFLICT DO NOTHING"
)
PLACEMENT = (
    "SELECT p.name, p.id, p.policy, spec, seed "
    "FROM placements p JOIN policies ON policies.id = p.policy"
)
ADD_POLICY = "INSERT INTO policies (hash, spec, version) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
POLICY_OF = "SELECT id FROM policies WHERE hash = ?"
STATES_OF = "SELECT seq, time FROM states WHERE placement = ? ORDER BY seq"
CONFIGURE = "UPDATE placements SET configuration = ? WHERE id = ?"
CONFIGURED = "SELECT configuration FROM placements WHERE id = ?"
MOVE_PIECES = """
    INSERT INTO pieces (snapshot, field, content)
        SELECT placement, 'learner', learner FROM bases UNION ALL
        SELECT placement, 'shadow', shadow FROM bases WHERE shadow IS NOT NULL UNION ALL
        SELECT placement, 'series', series FROM bases UNION ALL
        SELECT placement, 'windows', windows FROM bases;
"""
"""Part of a script that brings a store to the next version: pieces out of the rows of bases."""


class SqlStore(ABC):
    """A log in the tables of a database.

    Attributes
    ----------
    epoch : int
        How often it was opened. Whoever opened it last can write; nobody else.
    local : bool
        Whether it is a file of this machine, and never waits for another one.
    """

    epoch = 0
    local = False
    _where: str
    """The field of the configuration and what it names, to begin a message with."""
    _cleanup: contextlib.ExitStack

    # Each database's own ---------------------------------------------------------------------

    @abstractmethod
    def _transaction(self) -> contextlib.AbstractContextManager[Any]:
        """Enter with the connection that writes, for one transaction of the owner."""

    @abstractmethod
    def _reading(self) -> contextlib.AbstractContextManager[Any]:
        """Enter with a connection that reads."""

    @abstractmethod
    def _streaming(self) -> contextlib.AbstractContextManager[Read]:
        """Enter with what reads any number of rows, of several statements in turn."""

    @abstractmethod
    def _run(self, connection: Any, statement: str, values: Sequence[Any] = ()) -> Any:
        """Return the cursor of a statement."""

    @abstractmethod
    def _run_many(self, connection: Any, statement: str, rows: Iterable[Any]) -> None:
        """Run a statement with the values of each row."""

    @abstractmethod
    def _named(self, reader: Any, wanted: Sequence[tuple[int, str]]) -> Iterable[Any]:
        """Yield the rows of those decisions that exist, from their placements and ids."""

    @abstractmethod
    def _feedback(self, reader: Any, decisions: Sequence[int]) -> Iterable[Any]:
        """Yield the rows of the feedback for decisions, for each in order."""

    def _decision(self, row: Any) -> DecisionRow:
        """Return a decision as it was appended."""
        return DecisionRow._make(row)

    def _one(self, connection: Any, statement: str, *values: Any) -> Any:
        """Return the first value of the first row; None if there is no row."""
        row = self._run(connection, statement, values).fetchone()
        return None if row is None else row[0]

    def _last(self, connection: Any) -> End:
        rows = self._run(connection, LASTS)
        return max((End(*row) for row in rows), default=End(0, 0))

    def _check_version(self, found: int, newest: int) -> None:
        if found > newest:
            raise StoreError(
                f"{self._where} is of version {found}, this tacit reads up to {newest}; "
                "update tacit"
            )

    def _check_epoch(self, found: int | None) -> None:
        if found != self.epoch:
            raise Fenced(
                f"{self._where} was taken over in epoch {found}, this is the owner of epoch "
                f"{self.epoch}; leave it to the other one"
            )

    # Write -----------------------------------------------------------------------------------

    def placement(self, name: str, spec: str, seed: int) -> StoredPlacement:
        """Return a placement, which gets ``spec`` and ``seed`` if it is new."""
        digest = hashlib.sha256(spec.encode()).hexdigest()
        with self._transaction() as writer:
            self._run(writer, NEW_POLICY, (digest, spec, __version__, name))
            self._run(writer, NEW_PLACEMENT, (name, seed, digest))
            row = self._run(writer, f"{PLACEMENT} WHERE p.name = ?", (name,)).fetchone()
        return StoredPlacement(*row[1:])

    def keep(self, records: Sequence[RecordRow]) -> list[str | None]:
        """Make records durable that are not there yet; return the content of those that are."""
        before: list[str | None] = []
        with self._transaction() as writer:
            for row in records:
                new = self._one(writer, KEEP, *row, row_checksum(row)) is not None
                key = row.id, row.placement, row.kind
                before.append(None if new else self._one(writer, KEPT, *key))
        return before

    def saving(self, draft: Draft, what: str = SNAPSHOTS) -> Iterator[None]:
        """Write a snapshot, or a base, step by step; then it is in place of the one before."""
        with self._transaction() as writer:
            number = self._one(writer, NEXT_PIECES)
        checksum = Checksum(draft[:4])
        for batch in draft.batches():
            checksum.add(batch)
            with self._transaction() as writer:
                self._run_many(writer, ADD_PIECE, [(number, *piece) for piece in batch])
            yield
        key = "placement, seq" if what == STATES else "placement"
        stands = (
            f"INSERT INTO {what} ({HEAD}) VALUES (?, ?, ?, ?, ?, ?) "
            f"ON CONFLICT ({key}) DO UPDATE SET seq = EXCLUDED.seq, time = EXCLUDED.time, "
            "plan = EXCLUDED.plan, checksum = EXCLUDED.checksum, pieces = EXCLUDED.pieces"
        )
        with self._transaction() as writer:
            self._run(writer, stands, (*draft[:4], checksum.value(), number))
        while self._swept():
            yield

    def _swept(self) -> int:
        """Remove some pieces that belong to no snapshot any more; return how many."""
        with self._transaction() as writer:
            return len(self._run(writer, SWEEP).fetchall())

    def drop(self, old: Old) -> None:
        """Remove rows for good: all of them, or none."""
        with self._transaction() as writer:
            # Feedback refers to decisions, so it goes first.
            for table, rows in (
                ("feedback", old.rows.feedback),
                ("decisions", old.rows.decisions),
                ("marks", old.rows.marks),
            ):
                delete = f"DELETE FROM {table} WHERE seq = ?"
                self._run_many(writer, delete, [(row.seq,) for row in rows])
            keys = [(row.placement, row.kind, row.id) for row in old.records]
            self._run_many(writer, DROP_RECORD, keys)

    def set_aside(self, placement: int, end: int) -> None:
        """Remove the snapshot and the states of a placement that go beyond a row."""
        with self._transaction() as writer:
            for what in (SNAPSHOTS, STATES):
                self._run(
                    writer, f"DELETE FROM {what} WHERE placement = ? AND seq > ?", (placement, end)
                )

    def probe(self, time: int) -> None:
        """Commit something small, to show that commits work."""
        with self._transaction() as writer:
            self._run(writer, "UPDATE store SET probed = ?", (time,))

    def policy(self, spec: str) -> int:
        """Return the number of a policy, which is kept if it is new."""
        digest = hashlib.sha256(spec.encode()).hexdigest()
        with self._transaction() as writer:
            self._run(writer, ADD_POLICY, (digest, spec, __version__))
            number: int = self._one(writer, POLICY_OF, digest)
        return number

    def configure(self, placement: int, configuration: str) -> None:
        """Keep how a placement is configured."""
        with self._transaction() as writer:
            self._run(writer, CONFIGURE, (configuration, placement))

    # Read ------------------------------------------------------------------------------------

    def configuration(self, placement: int) -> str | None:
        """Return how a placement was configured when this was kept last."""
        with self._reading() as reader:
            found: str | None = self._one(reader, CONFIGURED, placement)
            return found

    def changes(self, placement: int) -> list[MarkRow]:
        """Return the marks that say who changed what of a placement, in order."""
        with self._reading() as reader:
            return list(map(MarkRow._make, self._run(reader, CHANGES, (placement,))))

    def placements(self) -> dict[str, StoredPlacement]:
        """Return all placements by their names."""
        with self._reading() as reader:
            rows = self._run(reader, PLACEMENT)
            return {name: StoredPlacement(*row) for name, *row in rows}

    def find(self, wanted: Sequence[tuple[int, str]]) -> dict[tuple[int, str], Found]:
        """Return those decisions that exist, from their placements and ids."""
        with self._reading() as reader:
            decisions = map(self._decision, self._named(reader, wanted))
            found = {row.seq: Found(row, []) for row in decisions}
            if found:
                for told in map(FeedbackRow._make, self._feedback(reader, [*found])):
                    found[told.decision].feedback.append(told)
        return {(f.decision.placement, f.decision.id): f for f in found.values()}

    def events(self, after: int) -> Iterator[Event]:
        """Yield the log after a sequence number, in order."""
        makes = self._decision, FeedbackRow._make, MarkRow._make
        with self._streaming() as read:
            parts = [map(make, read(q, (after,))) for make, q in zip(makes, EVENTS, strict=True)]
            yield from in_order(parts)  # type: ignore[arg-type]

    def records(self) -> Iterator[RecordRow]:
        """Yield all records that were kept, in the order in which they came."""
        with self._streaming() as read:
            yield from map(RecordRow._make, read(RECORDS))

    def end(self) -> End:
        """Return where the log ends."""
        with self._reading() as reader:
            return self._last(reader)

    def snapshot(self, placement: int) -> Snapshot | None:
        """Return a placement's latest snapshot."""
        return self._assembled(SNAPSHOTS, placement)

    def base(self, placement: int) -> Snapshot | None:
        """Return where a placement's log begins, if what was before has been dropped."""
        return self._assembled(BASES, placement)

    def _assembled(self, what: str, placement: int, *seq: int) -> Snapshot | None:
        with self._streaming() as read:
            query = f"SELECT {HEAD} FROM {what} WHERE placement = ?{' AND seq = ?' * len(seq)}"
            for *head, checksum, number in read(query, (placement, *seq)):
                return assembled(head, checksum, read(PIECES, (number,), at_once=1))
        return None

    def states(self, placement: int) -> list[End]:
        """Return the rows and the times of the states of a placement that are kept, in order."""
        with self._reading() as reader:
            return [End(*row) for row in self._run(reader, STATES_OF, (placement,))]

    def state(self, placement: int, seq: int) -> Snapshot | None:
        """Return a state that is kept."""
        return self._assembled(STATES, placement, seq)

    def begins(self, placement: int) -> End | None:
        """Return the row and the time of a placement's base."""
        with self._reading() as reader:
            query = "SELECT seq, time FROM bases WHERE placement = ?"
            row = self._run(reader, query, (placement,)).fetchone()
        return None if row is None else End(*row)

    def old(self, placement: int | None, before: int, time: int, limit: int) -> Old:
        """Return the first rows of a placement, or of none, that are older than ``time``."""
        with self._reading() as reader:
            found = self._run(reader, OLD_DECISIONS, (placement, before, time, before, limit))
            decisions = list(map(self._decision, found))
            told = self._feedback(reader, [row.seq for row in decisions])
            feedback = list(map(FeedbackRow._make, told))
            found = self._run(reader, OLD_MARKS, (placement, before, time, limit))
            marks = list(map(MarkRow._make, found))
            found = self._run(reader, OLD_RECORDS, (placement, time, limit))
            return Old(Rows(decisions, feedback, marks), list(map(RecordRow._make, found)))

    def close(self) -> None:
        """Release everything; the store cannot be used afterwards."""
        self._cleanup.close()
