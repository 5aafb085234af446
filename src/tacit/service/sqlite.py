"""The store in one SQLite file.

One connection writes and does every checkpoint; the other only reads. ``apsw`` brings a SQLite
of its own, without the corruption of write-ahead logs that versions before 3.51.3 can suffer.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import filelock

from tacit.service.errors import StoreError
from tacit.service.store import (
    Answered,
    DecisionRow,
    FeedbackRow,
    Progress,
    Snapshot,
    StoredPlacement,
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
)
"""Each script brings a store from the version of its index to the next one."""

DECISION = ", ".join(f"d.{field}" for field in DecisionRow._fields)
FEEDBACK = ", ".join(f"f.{field}" for field in FeedbackRow._fields)


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
                "INSERT INTO policies (hash, spec) SELECT ?, ? WHERE NOT EXISTS "
                "(SELECT 1 FROM placements WHERE name = ?) ON CONFLICT DO NOTHING",
                (digest, spec, name),
            )
            self._writer.execute(
                "INSERT INTO placements (name, policy, seed) "
                "SELECT ?, id, ? FROM policies WHERE hash = ? ON CONFLICT DO NOTHING",
                (name, seed, digest),
            )
            row = self._writer.execute(
                "SELECT p.id, p.policy, spec, seed, generator, decisions, feedback, seq "
                "FROM placements p JOIN policies ON policies.id = p.policy WHERE name = ?",
                (name,),
            ).get
        return StoredPlacement(*row)

    def append(
        self,
        decisions: Sequence[DecisionRow],
        feedback: Sequence[FeedbackRow],
        progress: Sequence[Progress],
    ) -> None:
        """Make a group durable: all of it, or nothing."""
        with self._transaction():
            self._writer.executemany(
                "INSERT INTO decisions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", decisions
            )
            self._writer.executemany("INSERT INTO feedback VALUES (?, ?, ?, ?, ?)", feedback)
            self._writer.executemany(
                "UPDATE placements SET generator = ?, decisions = ?, feedback = ?, seq = ? "
                "WHERE id = ?",
                progress,
            )

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a snapshot in place of the one before."""
        with self._transaction():
            self._writer.execute("REPLACE INTO snapshots VALUES (?, ?, ?, ?, ?)", snapshot)

    def probe(self, time: int) -> None:
        """Commit something small, to show that commits work."""
        with self._transaction():
            self._writer.execute("UPDATE store SET probed = ?", (time,))

    # Read ------------------------------------------------------------------------------------

    def decision(self, id: str) -> tuple[DecisionRow, bool] | None:
        """Find a decision, and say whether it has its feedback."""
        row = self._one(
            f"SELECT {DECISION}, f.seq IS NOT NULL FROM decisions d "  # noqa: S608 (constant)
            "LEFT JOIN feedback f ON f.decision = d.seq WHERE d.id = ?",
            id,
        )
        return None if row is None else (DecisionRow(*row[:-1]), bool(row[-1]))

    def events(self, after: int) -> Iterator[DecisionRow | Answered]:
        """Give the log after a sequence number, in order."""
        decisions = f"SELECT {DECISION} FROM decisions d WHERE d.seq > ? ORDER BY d.seq"  # noqa: S608
        feedback = (
            f"SELECT {FEEDBACK}, {DECISION} FROM feedback f "  # noqa: S608
            "JOIN decisions d ON d.seq = f.decision WHERE f.seq > ? ORDER BY f.seq"
        )
        split = len(FeedbackRow._fields)
        with self._named_errors():
            for row in heapq.merge(
                self._reader.execute(decisions, (after,)),
                self._reader.execute(feedback, (after,)),
                key=lambda row: row[0],
            ):
                if len(row) == len(DecisionRow._fields):
                    yield DecisionRow(*row)
                else:
                    yield Answered(FeedbackRow(*row[:split]), DecisionRow(*row[split:]))

    def last_seq(self) -> int:
        """Return the log's last sequence number; 0 if it is empty."""
        row = self._one("SELECT coalesce(max(seq), 0) FROM placements")
        assert row is not None
        return int(row[0])

    def snapshot(self, placement: int) -> Snapshot | None:
        """Return a placement's latest snapshot."""
        row = self._one("SELECT * FROM snapshots WHERE placement = ?", placement)
        return None if row is None else Snapshot(*row)

    def _one(self, query: str, *values: Any) -> tuple[Any, ...] | None:
        with self._named_errors():
            return self._reader.execute(query, values).fetchone()

    def size(self) -> int:
        """Return the bytes that the store takes."""
        files = (self.path, Path(f"{self.path}-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def close(self) -> None:
        """Release everything; the store cannot be used afterwards."""
        self._cleanup.close()
