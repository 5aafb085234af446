"""The store in one SQLite file.

One connection writes and does every checkpoint; the other only reads. ``apsw`` contains its own SQLite,
without the bug by which versions before 3.51.3 can corrupt write-ahead logs.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw

from tacit.service.errors import Damaged, NoStore, Refused, StoreError
from tacit.service.log import sql
from tacit.service.log.owned_file import OwnedFile
from tacit.service.log.rows import Rows, with_checksums
from tacit.service.log.store import BASES, SNAPSHOTS, STATES
from tacit.service.log.tables import create_tables

APPLICATION_ID = 0x7AC17
"""Identifies a tacit store in the header of the file."""

WORDS = {
    "id": "INTEGER", "number": "INTEGER", "small": "INTEGER", "int": "INTEGER", "big": "INTEGER",
    "real": "REAL", "bytes": "BLOB", "any": "ANY", "strict": " STRICT",
}  # fmt: skip
VERSION = 12
"""Version of the tables, stored in the table ``store``."""
CREATE_TABLES = (
    create_tables(WORDS)
    + """
    ALTER TABLE store ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE store ADD COLUMN clean INTEGER NOT NULL DEFAULT 0;
"""
)

DATA_ERRORS = (
    apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError, UnicodeEncodeError, OverflowError,
)  # fmt: skip
"""Errors about invalid data, not about the state of the store."""
CHECK_SECONDS, CLEAN_SECONDS = 5.0, 0.5
"""Time limits of the index check at a start, after an unclean and after a clean end."""
BUSY_MILLISECONDS = 10_000
"""How long a connection waits while another one recovers from a crash."""
SMALL_TABLES = "store", "policies", "placements", SNAPSHOTS, BASES, STATES
"""Tables with few rows."""
STEPS = 10_000
"""Steps of SQLite's virtual machine between two checks of the time limit."""
REBUILD = "restore a backup, or rebuild the indexes: python -m apsw {} REINDEX"

logger = logging.getLogger(__name__)

# The inserted names are constants.
# ruff: noqa: S608
FIND_DECISIONS = f"SELECT {sql.list_columns('decisions')} FROM decisions WHERE id = ? AND placement = ?"
_LATEST = ", ".join(f"(SELECT coalesce(max(seq), 0) FROM {table})" for table, _ in sql.TABLES)
EPOCH_AND_LAST = f"SELECT epoch, max({_LATEST}) FROM store"
SEQ_EXISTS = (
    f"SELECT {' OR '.join(f'EXISTS (SELECT 1 FROM {table} WHERE seq = ?1)' for table, _ in sql.TABLES)}"
)
FEEDBACK = f"SELECT {sql.list_columns('feedback')} FROM feedback WHERE decision = ? ORDER BY seq"


class SqliteStore(sql.Store):
    """The log in an SQLite file in write-ahead mode, durable at each commit.

    Parameters
    ----------
    path : path
        Created if missing, with its folder; see :class:`~tacit.service.log.owned_file.OwnedFile`.

    Raises
    ------
    StoreError
        If the file is in use, not a tacit store, damaged, of another version, or cannot be written; or if
        the file of an earlier store is missing.
    """

    local = True

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.path = Path(path)
        self.location = f"store.path: {self.path}"
        with contextlib.ExitStack() as cleanup:
            self._file = OwnedFile(self.path)
            cleanup.callback(self._file.close)
            with self._translate_errors():
                self._writer = apsw.Connection(str(self.path))
                cleanup.callback(self._writer.close)
                self._prepare()
                self._file.protect_side_files()
                self._reader = self._open_reader()
                cleanup.callback(self._reader.close)
            self._cleanup = cleanup.pop_all()

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """In a ``with`` block: raise errors of SQLite again as StoreError, Refused or Damaged."""
        try:
            yield
        except (apsw.Error, *DATA_ERRORS, *sql.UNREADABLE) as error:
            raise self._translate_error(error) from error

    def _translate_error(self, error: Exception) -> StoreError:
        """Return the StoreError for an error of SQLite: Refused for bad data, Damaged for a damaged row."""
        if isinstance(error, DATA_ERRORS):
            # A duplicate sequence number means another writer, not invalid data.
            if str(error).endswith("seq"):
                return StoreError(f"{self.location}: {error}")
            return Refused(sql.REFUSED.format(error))
        if isinstance(error, apsw.NotADBError):
            return StoreError(f"{self.location} is no SQLite file; give another path")
        if isinstance(error, apsw.Error):
            return StoreError(f"{self.location}: {type(error).__name__}: {error}")
        return Damaged(f"{self.location}: {sql.UNREADABLE_ROW}: {error}")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[apsw.Connection]:
        """In a ``with`` block: yield the writing connection in a transaction, after a check of the owner.

        It commits at the end, or rolls back after an error.
        """
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            self._check_owner()
            yield self._writer
        except BaseException as error:
            self._roll_back(error)
            raise
        self.commit()

    def _roll_back(self, error: BaseException) -> None:
        """Roll back a failed transaction, then raise ``error``, as a StoreError if it is SQLite's.

        Never returns.
        """
        with self._translate_errors():
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise error

    # Every group of requests calls these three methods: for speed, they use no context managers.

    def append(self, rows: Rows) -> None:
        """Append rows in one transaction, durable when it returns; roll back after an error, and raise it."""
        self.insert(rows)
        self.commit()

    def insert(self, rows: Rows) -> None:
        """Begin a transaction and insert rows, which are durable only once :meth:`commit` returns.

        After an error, the transaction is rolled back and the error raised.
        """
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            self.insert_rows(self._writer, rows)
        except BaseException as error:
            self._roll_back(error)
            raise

    def commit(self) -> None:
        """Commit the inserted rows durably; roll back and raise StoreError if that fails.

        Also raises StoreError if the file was removed or replaced.
        """
        try:
            self._writer.execute("COMMIT")
        except BaseException as error:
            self._roll_back(error)
            raise
        # A commit to a removed file is lost.
        self._file.check()

    def _check_owner(self) -> None:
        """Raise Fenced if another process has opened the store since this one did."""
        if self.epoch:
            self._check_epoch(self._writer.execute("SELECT epoch FROM store").get)

    def _prepare(self) -> None:
        """Create the tables if the file is empty, or check their version; set the file's modes.

        Increments the epoch of owners, and marks the store as not cleanly closed. Sets ``epoch`` and
        ``salt``. Raises StoreError if the file is no tacit store or of another version.
        """
        writer = self._writer
        tables = writer.execute("SELECT count(*) FROM sqlite_schema").get
        if tables and writer.pragma("application_id") != APPLICATION_ID:
            raise StoreError(f"{self.location} is no tacit store; give another path")
        if tables:
            # The version is checked before the file is changed.
            sql.check_version(self.location, writer.execute("SELECT version FROM store").get, VERSION)
        writer.pragma("journal_mode", "wal")
        writer.pragma("synchronous", "full")
        writer.pragma("foreign_keys", True)
        # Dropped and blanked data must not remain in the file.
        writer.pragma("secure_delete", True)
        with self.transaction():
            if not tables:
                writer.execute(CREATE_TABLES)
                writer.execute("UPDATE store SET version = ?", (VERSION,))
                writer.pragma("application_id", APPLICATION_ID)
            self._clean = not tables or bool(writer.execute("SELECT clean FROM store").get)
            epoch = writer.execute("UPDATE store SET epoch = epoch + 1, clean = 0 RETURNING epoch").get
            self.salt = sql.ensure_salt(self, writer)
        self.epoch = epoch

    @contextlib.contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """In a ``with`` block: yield the reading connection."""
        with self._translate_errors():
            yield self._reader

    @contextlib.contextmanager
    def streaming(self) -> Iterator[sql.Read]:
        """In a ``with`` block: yield a function that streams the rows of statements."""
        with self.reading() as connection:
            # SQLite reads row by row, whatever ``at_once`` is.
            yield lambda statement, values=(), at_once=1: connection.execute(statement, values)

    def run(self, connection: apsw.Connection, statement: str, values: Sequence[Any] = ()) -> apsw.Cursor:
        """Run a statement with values for its question marks, and return the cursor."""
        return connection.execute(statement, values)

    def run_many(self, connection: apsw.Connection, statement: str, rows: Iterable[Any]) -> None:
        """Run a statement once for each tuple of values."""
        connection.executemany(statement, rows)

    def select_decisions(
        self, connection: apsw.Connection, wanted: Sequence[tuple[int, str]]
    ) -> Iterator[Any]:
        """Yield the rows of the decisions given by pairs of placement number and id.

        Missing ones are left out.
        """
        for placement, id in wanted:
            yield from connection.execute(FIND_DECISIONS, (id, placement))

    def select_feedback(self, connection: apsw.Connection, decisions: Sequence[int]) -> Iterator[Any]:
        """Yield the rows of all feedback on decisions, given by their numbers, decision by decision."""
        for seq in decisions:
            yield from connection.execute(FEEDBACK, (seq,))

    def insert_rows(self, writer: apsw.Connection, rows: Rows) -> None:
        """Insert rows with checksums in the open transaction.

        Raises Fenced if another process owns the store, and StoreError if a sequence number is taken.
        """
        epoch, last = next(writer.execute(EPOCH_AND_LAST))
        if epoch != self.epoch:
            self._check_epoch(epoch)
        parts = list(map(with_checksums, rows))
        seqs = [row[0] for part in parts for row in part]
        # A table's key prevents duplicates within the table; numbers above the last row are new in all.
        old = [seq for seq in seqs if seq <= last]
        if len(set(seqs)) < len(seqs) or any(writer.execute(SEQ_EXISTS, (seq,)).get for seq in old):
            raise StoreError(f"{self.location}: another row has this seq")
        for insert, part in zip(sql.INSERTS, parts, strict=True):
            if part:
                writer.executemany(insert, part)

    def scrub(self) -> None:
        """Empty the write-ahead log, because it contains old versions of pages."""
        with self._translate_errors():
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def check(self) -> None:
        """Raise StoreError if new commits would be lost, or another process owns the store."""
        with self._translate_errors():
            self._check_owner()
        self._file.check()

    def find_damage(self) -> list[str]:
        """Return a message for each damage of the file, including indexes that differ from their tables."""
        with self.reading() as connection:
            return _check_integrity(connection, "")

    @contextlib.contextmanager
    def check_indexes(self) -> Iterator[None]:
        """Check small tables, and during the ``with`` block in a thread the others; raise Damaged at its end.

        If none is damaged, :meth:`close` may mark the store clean. Small tables are checked completely, the
        others up to a time limit: :data:`CHECK_SECONDS`, or :data:`CLEAN_SECONDS` after a clean end. An
        incomplete check after an unclean end is logged as a warning.
        """
        with self.reading() as connection:
            self._refuse_damage(connection, SMALL_TABLES)
        with ThreadPoolExecutor(1) as threads:
            checking = threads.submit(self._check_large_tables)
            try:
                yield
            finally:
                checking.result()
        self._clean = True

    def _check_large_tables(self) -> None:
        """Check the tables of the log, by a connection of its own; raise Damaged if one is damaged."""
        until = time.monotonic() + (CLEAN_SECONDS if self._clean else CHECK_SECONDS)
        with self._translate_errors(), contextlib.closing(self._open_reader()) as connection:
            # True interrupts the check.
            connection.set_progress_handler(lambda: time.monotonic() > until, STEPS)
            try:
                self._refuse_damage(connection, sql.NUMBERS)
            except apsw.InterruptError:
                if not self._clean:
                    logger.warning(
                        "%s: its last end was not a clean one, and its indexes were looked at for "
                        "%g s alone; see them all with: tacit log verify", self.location, CHECK_SECONDS,
                    )  # fmt: skip

    def _refuse_damage(self, connection: apsw.Connection, tables: Iterable[str]) -> None:
        """Check tables; raise Damaged with the first message about damage, if there is one."""
        for table in tables:
            for text in _check_integrity(connection, f"({table})"):
                raise Damaged(f"{self.location}: {text}; {REBUILD.format(self.path)}")

    def _open_reader(self) -> apsw.Connection:
        """Return a new connection that cannot write."""
        return apsw.Connection(str(self.path), apsw.SQLITE_OPEN_READONLY)

    def close(self) -> None:
        """Mark the store as cleanly closed if its indexes were checked, and release everything."""
        if self._clean:
            # If this fails, the next start checks the indexes for longer.
            with contextlib.suppress(StoreError), self.transaction() as writer:
                writer.execute("UPDATE store SET clean = 1")
        super().close()

    def size(self) -> int:
        """Return the size of the file and its write-ahead log in bytes."""
        files = (self._file.path, Path(f"{self._file.path}-wal"))
        return sum(file.stat().st_size for file in files if file.exists())


def _check_integrity(connection: apsw.Connection, table: str) -> list[str]:
    """Return a message for each damage that SQLite finds in a table; none if the table is intact.

    ``table`` is the name in parentheses, or "" for all tables.
    """
    messages = []
    try:
        for (text,) in connection.execute(f"PRAGMA integrity_check{table}"):
            if text != "ok":
                messages.append(text)
    except apsw.CorruptError as error:
        # Some damage ends the check.
        messages.append(str(error))
    return messages


class ReadSqlite(SqliteStore):
    """A read-only view of the log in an SQLite file at one moment, also while a service writes it.

    The service's write-ahead log grows until :meth:`renew` moves the view on.

    Parameters
    ----------
    path : path

    Raises
    ------
    StoreError
        If there is no store, or one of another version; by all writing methods.
    """

    def __init__(self, path: str | Path) -> None:
        sql.Store.__init__(self)
        self.path = Path(path)
        self.location = f"store.path: {self.path}"
        if not self.path.is_file():
            raise NoStore(f"{self.location}: there is no store; give the path of one that was served")
        with contextlib.ExitStack() as cleanup, self._translate_errors():
            self._reader = self._open_reader()
            cleanup.callback(self._reader.close)
            self._reader.set_busy_timeout(BUSY_MILLISECONDS)
            if self._reader.pragma("application_id") != APPLICATION_ID:
                raise StoreError(f"{self.location} is no tacit store; give another path")
            sql.check_version(self.location, self._reader.execute("SELECT version FROM store").get, VERSION)
            self.salt = self._reader.execute("SELECT salt FROM store").get
            # All reads are in one transaction, which begins with the first statement.
            self._reader.execute("BEGIN")
            self._cleanup = cleanup.pop_all()

    def renew(self) -> None:
        """End the read transaction, so that the next read sees the current log."""
        with self._translate_errors():
            self._reader.execute("COMMIT; BEGIN")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[apsw.Connection]:
        """Raise StoreError, because the store is read-only."""
        self.commit()
        yield self._reader

    def insert(self, rows: Rows) -> None:
        """Raise StoreError, because the store is read-only."""
        self.commit()

    def commit(self) -> None:
        """Raise StoreError, because the store is read-only."""
        raise StoreError(f"{self.location} is open for reading only")

    def close(self) -> None:
        """Close the reading connection; the view cannot be used afterwards."""
        sql.Store.close(self)
