"""The store in one SQLite file.

One connection writes and does every checkpoint; the other only reads. ``apsw`` brings a SQLite
of its own, without the corruption of write-ahead logs that versions before 3.51.3 can suffer.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import filelock

from tacit import __version__
from tacit.service.blocks import tuples
from tacit.service.errors import StoreError
from tacit.service.rows import (
    DecisionRow,
    Event,
    FeedbackRow,
    Found,
    MarkRow,
    RecordRow,
    Rows,
    in_order,
)
from tacit.service.store import (
    BASES,
    SNAPSHOTS,
    SWEPT,
    Draft,
    End,
    Old,
    Snapshot,
    StoredPlacement,
    assembled,
)

APPLICATION_ID = 0x7AC17
"""Marks the file as ours in its header."""

MIGRATIONS = (
    """
    CREATE TABLE store (version INTEGER NOT NULL, probed INTEGER NOT NULL) STRICT;
    INSERT INTO store VALUES (0, 0);
    CREATE TABLE policies (
        id INTEGER PRIMARY KEY,
        hash TEXT NOT NULL UNIQUE,
        spec TEXT NOT NULL
    ) STRICT;
    CREATE TABLE placements (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        policy INTEGER NOT NULL REFERENCES policies,
        seed INTEGER NOT NULL,
        generator TEXT,
        decisions INTEGER NOT NULL DEFAULT 0,
        feedback INTEGER NOT NULL DEFAULT 0,
        seq INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    CREATE TABLE decisions (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        placement INTEGER NOT NULL REFERENCES placements,
        policy INTEGER NOT NULL REFERENCES policies,
        time INTEGER NOT NULL,
        key TEXT NOT NULL,
        offered TEXT,
        arm ANY NOT NULL,
        propensity REAL,
        epoch INTEGER NOT NULL,
        context TEXT
    ) STRICT;
    CREATE UNIQUE INDEX decision_ids ON decisions (id);
    CREATE TABLE feedback (
        seq INTEGER PRIMARY KEY,
        decision INTEGER NOT NULL REFERENCES decisions,
        time INTEGER NOT NULL,
        reward REAL NOT NULL CHECK (reward BETWEEN 0 AND 1),
        outcome TEXT NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX feedback_once ON feedback (decision);
    CREATE TABLE snapshots (
        placement INTEGER PRIMARY KEY REFERENCES placements,
        seq INTEGER NOT NULL,
        time INTEGER NOT NULL,
        learner BLOB NOT NULL,
        series BLOB NOT NULL
    ) STRICT;
    """,
    """
    ALTER TABLE policies ADD COLUMN version TEXT;
    ALTER TABLE placements DROP COLUMN generator;
    ALTER TABLE placements DROP COLUMN decisions;
    ALTER TABLE placements DROP COLUMN feedback;
    ALTER TABLE placements DROP COLUMN seq;
    ALTER TABLE decisions ADD COLUMN mode TEXT NOT NULL DEFAULT 'online';
    ALTER TABLE decisions ADD COLUMN would ANY;
    ALTER TABLE decisions ADD COLUMN would_propensity REAL;
    ALTER TABLE decisions ADD COLUMN deferred INTEGER NOT NULL DEFAULT 0;
    DROP INDEX decision_ids;
    CREATE UNIQUE INDEX decision_ids ON decisions (id, placement);
    ALTER TABLE feedback RENAME TO old_feedback;
    DROP INDEX feedback_once;
    CREATE TABLE feedback (
        seq INTEGER PRIMARY KEY,
        placement INTEGER NOT NULL REFERENCES placements,
        decision INTEGER NOT NULL REFERENCES decisions,
        id TEXT,
        time INTEGER NOT NULL,
        kind TEXT NOT NULL,
        reward REAL CHECK (reward BETWEEN 0 AND 1)
    ) STRICT;
    INSERT INTO feedback
        SELECT f.seq, d.placement, f.decision, NULL, f.time, 'reward', f.reward
        FROM old_feedback f JOIN decisions d ON d.seq = f.decision ORDER BY f.seq;
    DROP TABLE old_feedback;
    CREATE INDEX feedback_of ON feedback (decision);
    CREATE UNIQUE INDEX feedback_once ON feedback (decision, id) WHERE id IS NOT NULL;
    CREATE TABLE marks (
        seq INTEGER PRIMARY KEY,
        placement INTEGER REFERENCES placements,
        time INTEGER NOT NULL,
        kind TEXT NOT NULL,
        value TEXT NOT NULL
    ) STRICT;
    DROP TABLE snapshots;
    CREATE TABLE snapshots (
        placement INTEGER PRIMARY KEY REFERENCES placements,
        seq INTEGER NOT NULL,
        time INTEGER NOT NULL,
        plan TEXT NOT NULL,
        learner BLOB NOT NULL,
        shadow BLOB,
        series BLOB NOT NULL,
        windows BLOB NOT NULL
    ) STRICT;
    """,
    """
    ALTER TABLE decisions ADD COLUMN asked TEXT;
    ALTER TABLE decisions ADD COLUMN shown TEXT;
    ALTER TABLE feedback ADD COLUMN clicks TEXT;
    """,
    # A check cannot be changed in place.
    """
    ALTER TABLE feedback RENAME TO old_feedback;
    DROP INDEX feedback_of;
    DROP INDEX feedback_once;
    CREATE TABLE feedback (
        seq INTEGER PRIMARY KEY,
        placement INTEGER NOT NULL REFERENCES placements,
        decision INTEGER NOT NULL REFERENCES decisions,
        id TEXT,
        time INTEGER NOT NULL,
        kind TEXT NOT NULL,
        reward REAL CHECK (reward BETWEEN -1 AND 1),
        clicks TEXT
    ) STRICT;
    INSERT INTO feedback
        SELECT seq, placement, decision, id, time, kind, reward, clicks
        FROM old_feedback ORDER BY seq;
    DROP TABLE old_feedback;
    CREATE INDEX feedback_of ON feedback (decision);
    CREATE UNIQUE INDEX feedback_once ON feedback (decision, id) WHERE id IS NOT NULL;
    """,
    """
    CREATE TABLE records (
        number INTEGER PRIMARY KEY,
        placement INTEGER NOT NULL REFERENCES placements,
        kind TEXT NOT NULL,
        id TEXT NOT NULL,
        time INTEGER NOT NULL,
        content TEXT NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX record_ids ON records (id, placement, kind);
    CREATE TABLE bases (
        placement INTEGER PRIMARY KEY REFERENCES placements,
        seq INTEGER NOT NULL,
        time INTEGER NOT NULL,
        plan TEXT NOT NULL,
        learner BLOB NOT NULL,
        shadow BLOB,
        series BLOB NOT NULL,
        windows BLOB NOT NULL
    ) STRICT;
    """,
    # In one row, a snapshot would be written in one transaction, and be a gigabyte at most.
    """
    CREATE TABLE pieces (
        number INTEGER PRIMARY KEY,
        snapshot INTEGER NOT NULL,
        field TEXT NOT NULL,
        content BLOB NOT NULL
    ) STRICT;
    CREATE INDEX pieces_of ON pieces (snapshot);
    INSERT INTO pieces (snapshot, field, content)
        SELECT placement, 'learner', learner FROM bases UNION ALL
        SELECT placement, 'shadow', shadow FROM bases WHERE shadow IS NOT NULL UNION ALL
        SELECT placement, 'series', series FROM bases UNION ALL
        SELECT placement, 'windows', windows FROM bases;
    ALTER TABLE bases DROP COLUMN learner;
    ALTER TABLE bases DROP COLUMN shadow;
    ALTER TABLE bases DROP COLUMN series;
    ALTER TABLE bases DROP COLUMN windows;
    ALTER TABLE bases ADD COLUMN pieces INTEGER NOT NULL DEFAULT 0;
    UPDATE bases SET pieces = placement;
    DROP TABLE snapshots;
    CREATE TABLE snapshots (
        placement INTEGER PRIMARY KEY REFERENCES placements,
        seq INTEGER NOT NULL,
        time INTEGER NOT NULL,
        plan TEXT NOT NULL,
        pieces INTEGER NOT NULL
    ) STRICT;
    """,
)
"""Each script brings a store from the version of its index to the next one."""

TABLES: tuple[tuple[str, Any], ...] = (
    ("decisions", DecisionRow),
    ("feedback", FeedbackRow),
    ("marks", MarkRow),
)


def _columns(kind: Any) -> str:
    return ", ".join(kind._fields)


def _marks(kind: Any) -> str:
    return ", ".join("?" * len(kind._fields))


# Every name in these is a constant.
# ruff: noqa: S608
INSERTS = [f"INSERT INTO {t} ({_columns(k)}) VALUES ({_marks(k)})" for t, k in TABLES]
EVENTS = [(k, f"SELECT {_columns(k)} FROM {t} WHERE seq > ? ORDER BY seq") for t, k in TABLES]
LASTS = [f"SELECT seq, time FROM {t} ORDER BY seq DESC LIMIT 1" for t, _ in TABLES]
DECISION_BY_ID = f"SELECT {_columns(DecisionRow)} FROM decisions WHERE id = ? AND placement = ?"
FEEDBACK_OF = f"SELECT {_columns(FeedbackRow)} FROM feedback WHERE decision = ? ORDER BY seq"
KEEP = (
    f"INSERT INTO records ({_columns(RecordRow)}) VALUES ({_marks(RecordRow)}) "
    "ON CONFLICT DO NOTHING"
)
KEPT = "SELECT content FROM records WHERE id = ? AND placement = ? AND kind = ?"
RECORDS = f"SELECT {_columns(RecordRow)} FROM records ORDER BY number"
OLD_DECISIONS = (
    f"SELECT {_columns(DecisionRow)} FROM decisions d WHERE placement = ? AND seq < ? "
    "AND time < ? AND NOT EXISTS (SELECT 1 FROM feedback f WHERE f.decision = d.seq "
    "AND f.seq >= ?) ORDER BY seq LIMIT ?"
)
OLD_MARKS = (
    f"SELECT {_columns(MarkRow)} FROM marks WHERE placement IS ? AND seq < ? AND time < ? "
    "ORDER BY seq LIMIT ?"
)
OLD_RECORDS = (
    f"SELECT {_columns(RecordRow)} FROM records WHERE placement = ? AND time < ? "
    "ORDER BY number LIMIT ?"
)
HEAD = "placement, seq, time, plan, pieces"
STANDING = "SELECT pieces FROM snapshots UNION ALL SELECT pieces FROM bases"
NEXT_PIECES = (
    f"SELECT coalesce(max(n), 0) + 1 FROM (SELECT max(snapshot) n FROM pieces UNION ALL {STANDING})"
)
ADD_PIECE = "INSERT INTO pieces (snapshot, field, content) VALUES (?, ?, ?)"
PIECES = "SELECT field, content FROM pieces WHERE snapshot = ? ORDER BY number"
SWEEP = (
    "DELETE FROM pieces WHERE number IN "
    f"(SELECT number FROM pieces WHERE snapshot NOT IN ({STANDING}) LIMIT {SWEPT})"
)
DROP_RECORD = "DELETE FROM records WHERE placement = ? AND kind = ? AND id = ?"
PLACEMENT = (
    "SELECT p.name, p.id, p.policy, spec, seed "
    "FROM placements p JOIN policies ON policies.id = p.policy"
)


class SqliteStore:
    """The log in an SQLite file in write-ahead mode, durable at each commit.

    Parameters
    ----------
    path : path
        Made if missing, with its folder. A file ``path + ".lock"`` keeps other processes away.

    Raises
    ------
    StoreError
        If the file is in use, foreign, damaged, or of a newer version, or cannot be written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with contextlib.ExitStack() as cleanup:
            # Not bound to a thread: the store may be closed in another one than opened it.
            lock = filelock.FileLock(f"{self.path}.lock", thread_local=False)
            try:
                cleanup.enter_context(lock.acquire(blocking=False))
            except filelock.Timeout:
                raise StoreError(
                    f"store.path: {self.path} is in use by another process; stop it, "
                    "or give another path"
                ) from None
            except OSError as error:
                raise StoreError(
                    f"store.path: {self.path} cannot be written: {error.strerror}"
                ) from error
            with self._named_errors():
                self._writer = apsw.Connection(str(self.path))
                cleanup.callback(self._writer.close)
                self._prepare()
                self._reader = apsw.Connection(str(self.path), apsw.SQLITE_OPEN_READONLY)
                cleanup.callback(self._reader.close)
            self._cleanup = cleanup.pop_all()

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except apsw.NotADBError as error:
            raise StoreError(
                f"store.path: {self.path} is no SQLite file; give another path"
            ) from error
        except apsw.Error as error:
            raise StoreError(f"store.path: {self.path}: {type(error).__name__}: {error}") from error

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._named_errors():
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    def _prepare(self) -> None:
        writer = self._writer
        tables = writer.execute("SELECT count(*) FROM sqlite_schema").get
        if tables and writer.pragma("application_id") != APPLICATION_ID:
            raise StoreError(f"store.path: {self.path} is no tacit store; give another path")
        writer.pragma("journal_mode", "wal")
        writer.pragma("synchronous", "full")
        writer.pragma("foreign_keys", True)
        version = writer.execute("SELECT version FROM store").get if tables else 0
        if version > len(MIGRATIONS):
            raise StoreError(
                f"store.path: {self.path} is of version {version}, this tacit reads up to "
                f"{len(MIGRATIONS)}; update tacit"
            )
        if version < len(MIGRATIONS):
            with self._transaction():
                for script in MIGRATIONS[version:]:
                    writer.execute(script)
                writer.execute("UPDATE store SET version = ?", (len(MIGRATIONS),))
                writer.pragma("application_id", APPLICATION_ID)

    # Write -----------------------------------------------------------------------------------

    def placement(self, name: str, spec: str, seed: int) -> StoredPlacement:
        """Return a placement, which gets ``spec`` and ``seed`` if it is new."""
        digest = hashlib.sha256(spec.encode()).hexdigest()
        with self._transaction():
            self._writer.execute(
                "INSERT INTO policies (hash, spec, version) SELECT ?, ?, ? WHERE NOT EXISTS "
                "(SELECT 1 FROM placements WHERE name = ?) ON CONFLICT DO NOTHING",
                (digest, spec, __version__, name),
            )
            self._writer.execute(
                "INSERT INTO placements (name, policy, seed) "
                "SELECT ?, id, ? FROM policies WHERE hash = ? ON CONFLICT DO NOTHING",
                (name, seed, digest),
            )
            row = self._writer.execute(f"{PLACEMENT} WHERE p.name = ?", (name,)).get
        return StoredPlacement(*row[1:])

    def append(self, rows: Rows) -> None:
        """Make a group durable: all of it, or nothing."""
        with self._transaction():
            for insert, part in zip(INSERTS, rows, strict=True):
                self._writer.executemany(insert, tuples(part))  # type: ignore[arg-type]

    def keep(self, records: Sequence[RecordRow]) -> list[str | None]:
        """Make records durable that are not there yet; return the content of those that are."""
        before: list[str | None] = []
        with self._transaction():
            for row in records:
                self._writer.execute(KEEP, row)
                new = self._writer.changes() > 0
                key = row.id, row.placement, row.kind
                before.append(None if new else self._writer.execute(KEPT, key).get)
        return before

    def saving(self, draft: Draft, what: str = SNAPSHOTS) -> Iterator[None]:
        """Write a snapshot, or a base, step by step; then it is in place of the one before."""
        with self._named_errors():
            number = self._writer.execute(NEXT_PIECES).get
        for batch in draft.batches():
            with self._transaction():
                self._writer.executemany(ADD_PIECE, [(number, *piece) for piece in batch])
            yield
        with self._transaction():
            stands = f"REPLACE INTO {what} ({HEAD}) VALUES (?, ?, ?, ?, ?)"
            self._writer.execute(stands, (*draft[:4], number))
        while self._swept():
            yield

    def _swept(self) -> int:
        """Remove some pieces that belong to no snapshot any more; return how many."""
        with self._transaction():
            self._writer.execute(SWEEP)
            return self._writer.changes()

    def drop(self, old: Old) -> None:
        """Remove rows for good: all of them, or none."""
        with self._transaction():
            # Feedback refers to decisions, so it goes first.
            for table, rows in (
                ("feedback", old.rows.feedback),
                ("decisions", old.rows.decisions),
                ("marks", old.rows.marks),
            ):
                seqs: list[Any] = [(row.seq,) for row in rows]
                self._writer.executemany(f"DELETE FROM {table} WHERE seq = ?", seqs)
            keys = [(row.placement, row.kind, row.id) for row in old.records]
            self._writer.executemany(DROP_RECORD, keys)

    def probe(self, time: int) -> None:
        """Commit something small, to show that commits work."""
        with self._transaction():
            self._writer.execute("UPDATE store SET probed = ?", (time,))

    # Read ------------------------------------------------------------------------------------

    def placements(self) -> dict[str, StoredPlacement]:
        """Return all placements by their names."""
        with self._named_errors():
            return {name: StoredPlacement(*row) for name, *row in self._reader.execute(PLACEMENT)}

    def find(self, wanted: Sequence[tuple[int, str]]) -> dict[tuple[int, str], Found]:
        """Return those decisions that exist, from their placements and ids."""
        found = {}
        with self._named_errors():
            for placement, id in wanted:
                row = self._reader.execute(DECISION_BY_ID, (id, placement)).fetchone()
                if row is not None:
                    told = self._reader.execute(FEEDBACK_OF, (row[0],))
                    found[placement, id] = Found(DecisionRow(*row), [FeedbackRow(*f) for f in told])
        return found

    def events(self, after: int) -> Iterator[Event]:
        """Give the log after a sequence number, in order."""
        with self._named_errors():
            rows = [map(kind._make, self._reader.execute(q, (after,))) for kind, q in EVENTS]
            yield from in_order(rows)

    def records(self) -> Iterator[RecordRow]:
        """Give all records that were kept, in the order in which they came."""
        with self._named_errors():
            yield from map(RecordRow._make, self._reader.execute(RECORDS))

    def end(self) -> End:
        """Return where the log ends."""
        with self._named_errors():
            lasts = [self._reader.execute(query).fetchone() for query in LASTS]
        return max((End(*row) for row in lasts if row is not None), default=End(0, 0))

    def snapshot(self, placement: int) -> Snapshot | None:
        """Return a placement's latest snapshot."""
        return self._assembled(SNAPSHOTS, placement)

    def base(self, placement: int) -> Snapshot | None:
        """Return where a placement's log begins, if what was before has been dropped."""
        return self._assembled(BASES, placement)

    def _assembled(self, what: str, placement: int) -> Snapshot | None:
        with self._named_errors():
            query = f"SELECT {HEAD} FROM {what} WHERE placement = ?"
            row = self._reader.execute(query, (placement,)).fetchone()
            if row is None:
                return None
            *head, number = row
            return assembled(head, self._reader.execute(PIECES, (number,)))

    def begins(self, placement: int) -> End | None:
        """Return the row and the time of a placement's base."""
        with self._named_errors():
            query = "SELECT seq, time FROM bases WHERE placement = ?"
            row = self._reader.execute(query, (placement,)).fetchone()
        return None if row is None else End(*row)

    def old(self, placement: int | None, before: int, time: int, limit: int) -> Old:
        """Return the first rows of a placement, or of none, that are older than ``time``."""
        with self._named_errors():
            read = self._reader.execute
            found = read(OLD_DECISIONS, (placement, before, time, before, limit))
            decisions = [DecisionRow(*row) for row in found]
            feedback = [FeedbackRow(*row) for d in decisions for row in read(FEEDBACK_OF, (d.seq,))]
            marks = [MarkRow(*row) for row in read(OLD_MARKS, (placement, before, time, limit))]
            records = [RecordRow(*row) for row in read(OLD_RECORDS, (placement, time, limit))]
        return Old(Rows(decisions, feedback, marks), records)

    def size(self) -> int:
        """Return the bytes that the store takes."""
        files = (self.path, Path(f"{self.path}-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def close(self) -> None:
        """Release everything; the store cannot be used afterwards."""
        self._cleanup.close()
