"""The store in PostgreSQL.

One connection writes. It holds an advisory lock while it is open, so that there is one writer at any
time. After a lost connection the next one gets the lock only when the server has ended the previous
transaction: then it is known whether its commit took effect.

The epoch fences off earlier owners. Each process that opens a store increments the epoch in the database.
Every writing transaction first checks that the epoch is still its own, and locks it until the transaction
ends: so the commit of an earlier owner is either seen by the next owner or refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any

import msgspec

from tacit.errors import MissingExtra, undo_on_error
from tacit.service.errors import Damaged, Fenced, InUse, Refused, StoreError
from tacit.service.log.rows import DecisionRow, Rows, row_checksum, with_checksums
from tacit.service.log.sql import (
    INSERTS,
    REFUSED,
    TABLES,
    UNIQUE,
    UNREADABLE,
    UNREADABLE_ROW,
    Read,
    Store,
    check_version,
    columns,
    ensure_salt,
    list_columns,
)
from tacit.service.log.store import End
from tacit.service.log.tables import create_tables

try:
    import psycopg
    from psycopg import sql
    from psycopg_pool import ConnectionPool, PoolTimeout
except ModuleNotFoundError as error:
    raise MissingExtra(error.name or "psycopg", "postgres") from error

WORDS = {
    "id": "integer GENERATED ALWAYS AS IDENTITY", "number": "bigint GENERATED ALWAYS AS IDENTITY",
    "small": "smallint", "int": "integer", "big": "bigint", "real": "double precision", "bytes": "bytea",
    "any": "text", "strict": "",
}  # fmt: skip
VERSION = 10
"""Version of the tables, stored in the table ``store``."""
# The trigger refuses a number that another table has. OFFSET 0 makes the planner look up single rows.
CREATE_TABLES = (
    create_tables(WORDS)
    + """
    CREATE TABLE owner (epoch bigint NOT NULL);
    INSERT INTO owner VALUES (0);
    CREATE FUNCTION check_seq() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (
            SELECT 1 FROM fresh WHERE
                EXISTS (SELECT 1 FROM decisions d WHERE d.seq = fresh.seq OFFSET 0)::integer
                + EXISTS (SELECT 1 FROM feedback f WHERE f.seq = fresh.seq OFFSET 0)::integer
                + EXISTS (SELECT 1 FROM marks m WHERE m.seq = fresh.seq OFFSET 0)::integer > 1
        ) THEN
            RAISE unique_violation USING MESSAGE = 'another row has this seq';
        END IF;
        RETURN NULL;
    END $$;
"""
    + "".join(
        f"CREATE TRIGGER {table}_seq AFTER INSERT ON {table} REFERENCING NEW TABLE AS fresh "
        "FOR EACH STATEMENT EXECUTE FUNCTION check_seq();"
        for table, _ in TABLES
    )
)

SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
COPY_THRESHOLD = 8
"""Number of rows from which on COPY is faster than INSERT."""
START_SECONDS, LOCK_SECONDS = 3.0, 10.0
SIZE_SECONDS = 10.0
ROWS_AT_ONCE = 5000
SETTINGS: dict[str, Any] = {
    "connect_timeout": 5,
    "tcp_user_timeout": 10_000,
    "application_name": "tacit",
    "client_encoding": "UTF8",
}
STATEMENT_TIMEOUT, LOCK_TIMEOUT = "30s", "5s"
"""Time limits of a statement, and of its waiting for a lock."""

_encode = msgspec.json.encode
_decode = msgspec.json.decode

# The inserted names are constants.
# ruff: noqa: S608
COPIES = [f"COPY {t} ({columns(k)}, checksum) FROM STDIN" for t, k in TABLES]
FIND_DECISIONS = (
    f"SELECT {list_columns('decisions', prefix='d.')} FROM decisions d "
    "JOIN unnest(%s::integer[], %s::text[]) AS w(placement, id) "
    "ON d.id = w.id AND d.placement = w.placement"
)
FEEDBACK = f"SELECT {list_columns('feedback')} FROM feedback WHERE decision = ANY(%s::bigint[]) ORDER BY seq"
# With these settings, the planner can look rows up only by the index.
INDEX_SETTINGS = [
    "SET LOCAL statement_timeout = 0",
    "SET LOCAL jit = off",
    *(f"SET LOCAL enable_{way} = off" for way in ("seqscan", "bitmapscan", "tidscan")),
]
COUNT_MISSING = (
    "SELECT count(*) FROM {} t WHERE num_nulls({}) = 0 AND NOT EXISTS (SELECT 1 FROM {} i WHERE {} OFFSET 0)"
)
# A table that was dropped and created again has another tableoid.
OWNER = "SELECT epoch, tableoid FROM owner FOR SHARE"
NEXT_EPOCH = "UPDATE owner SET epoch = epoch + 1 RETURNING epoch, tableoid"
SIZE = (
    "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c "
    "WHERE relkind = 'r' AND relnamespace = ?::regnamespace"
)


class PostgresStore(Store):
    """The log in a schema of a PostgreSQL database, durable at each commit.

    Parameters
    ----------
    url : str
        Address for libpq, such as ``postgresql://user@host/database``.
    schema : str, default "tacit"
        Created if missing.

    Raises
    ------
    MissingExtra
        If psycopg is not installed.
    StoreError
        If the database cannot be reached, is in use by another process, or has another version.
    Fenced
        By writing methods, once another process has opened the store.
    """

    def __init__(self, url: str, schema: str = "tacit") -> None:
        super().__init__()
        if not SCHEMA_NAME.fullmatch(schema):
            raise StoreError(
                f"store.schema: {schema!r} is not allowed; give lower-case letters, digits and underscores"
            )
        self.schema = schema
        self.location = f"store.url: schema {schema} of {_strip_password(url)}"
        self._size, self._size_after = 0, 0.0
        self._owner: tuple[int, int] | None = None
        self._committed = 0
        with self._translate_errors():
            self._conninfo = psycopg.conninfo.make_conninfo(
                url,
                options=f"-c search_path={schema} -c statement_timeout={STATEMENT_TIMEOUT} "
                f"-c lock_timeout={LOCK_TIMEOUT}",
                **SETTINGS,
            )
        self._connection: psycopg.Connection[Any] | None = None
        self._open()

    def _open(self) -> None:
        """Take ownership of the store, create its tables if missing, and open connections that read."""
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(self._disconnect)
            with self.transaction() as writer:
                self._prepare(writer)
            self._pool: ConnectionPool[Any] = ConnectionPool(
                self._conninfo,
                min_size=1,
                max_size=2,
                timeout=SETTINGS["connect_timeout"],
                check=ConnectionPool.check_connection,
                open=True,
            )
            cleanup.callback(self._pool.close)
            self._cleanup = cleanup.pop_all()

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """In a ``with`` block: raise errors of the database again as StoreError, Refused or Damaged.

        Refused is for invalid data, Damaged for unreadable rows.
        """
        try:
            yield
        except (psycopg.Error, PoolTimeout) as error:
            what = str(error).strip().partition("\n")[0]
            if _is_about_data(error):
                raise Refused(REFUSED.format(what)) from error
            raise StoreError(f"{self.location}: {type(error).__name__}: {what}") from error
        except (UnicodeEncodeError, OverflowError) as error:
            raise Refused(REFUSED.format(error)) from error
        except UNREADABLE as error:
            raise Damaged(f"{self.location}: {UNREADABLE_ROW}: {error}") from error

    def _disconnect(self) -> None:
        """Close the writing connection, if there is one."""
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def _get_connection(self) -> psycopg.Connection[Any]:
        """Return the writing connection; connect and take the lock if there is none."""
        if self._connection is None or self._connection.closed:
            connection = psycopg.connect(self._conninfo, autocommit=True)
            with undo_on_error(connection.close):
                self._lock(connection)
            self._connection = connection
        return self._connection

    def _lock(self, connection: psycopg.Connection[Any]) -> None:
        """Take the advisory lock; wait up to some seconds until the previous writer has released it.

        Raises StoreError if another process keeps it, or if committed rows are missing after a reconnection.
        """
        self._check_owner(connection)
        # The server takes a moment to notice the end of a connection of this or a dead process.
        deadline = time.monotonic() + (LOCK_SECONDS if self.epoch else START_SECONDS)
        while not self.select_one(connection, "SELECT pg_try_advisory_lock(?)", lock_number(self.schema)):
            if time.monotonic() >= deadline:
                raise InUse(f"{self.location} is in use by another process; stop it, or give another schema")
            time.sleep(0.05)
        # This process reconnects: it has owned the store before.
        if self.epoch:
            last = self._select_end(connection).seq
            if last < self._committed:
                raise StoreError(
                    f"{self.location} ends at row {last}, although row {self._committed} "
                    "was committed: the database went back to an earlier state; start again to go "
                    "on from there"
                )

    def _check_owner(self, connection: psycopg.Connection[Any]) -> None:
        """Raise Fenced if another process has opened the store since, or its tables were replaced.

        Nothing is checked before this process owns the store.
        """
        if self._owner is None:
            return
        owner = connection.execute(OWNER).fetchone()
        self._check_epoch(owner and owner[0])
        if owner != self._owner:
            raise Fenced(
                f"{self.location} was replaced while it was served; start again to go on from what it "
                "holds now"
            )

    @contextlib.contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """In a ``with`` block: yield the writing connection in a transaction, after a check of the owner.

        If the connection fails, it is closed, and the next transaction connects again.
        """
        with self._translate_errors():
            try:
                connection = self._get_connection()
                with connection.transaction():
                    self._check_owner(connection)
                    yield connection
            except (psycopg.OperationalError, psycopg.InterfaceError):
                # The connection's state is unknown; a new connection sees what was committed.
                self._disconnect()
                raise

    def _prepare(self, writer: psycopg.Connection[Any]) -> None:
        """Create schema and tables if missing, check their version, and increment the epoch of owners.

        Sets ``salt`` and ``epoch``. Raises StoreError for another version or encoding.
        """
        encoding = writer.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StoreError(
                f"{self.location} is encoded in {encoding}, which cannot keep every key; move it: "
                "createdb --encoding UTF8 --template template0 NEW, and then "
                f"pg_dump --schema {self.schema} OLD | psql NEW"
            )
        writer.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self.schema)))
        if self.select_one(writer, "SELECT to_regclass(?)", f"{self.schema}.store") is None:
            writer.execute(CREATE_TABLES)
            writer.execute("UPDATE store SET version = %s", (VERSION,))
        else:
            check_version(self.location, self.select_one(writer, "SELECT version FROM store"), VERSION)
        self.salt = ensure_salt(self, writer)
        self._committed = self._select_end(writer).seq
        self._owner = writer.execute(NEXT_EPOCH).fetchone()
        assert self._owner is not None
        self.epoch = self._owner[0]

    @contextlib.contextmanager
    def reading(self) -> Iterator[psycopg.Connection[Any]]:
        """In a ``with`` block: yield a reading connection from the pool."""
        with self._translate_errors(), self._pool.connection() as connection:
            yield connection

    @contextlib.contextmanager
    def streaming(self) -> Iterator[Read]:
        """In a ``with`` block: yield a function that streams the rows of statements, in one transaction."""
        with self.reading() as connection, connection.transaction(), contextlib.ExitStack() as stack:
            numbers = count()

            def read(
                statement: str, values: Sequence[Any] = (), at_once: int = ROWS_AT_ONCE
            ) -> Iterable[Any]:
                """Run a statement in a server-side cursor; return its rows, fetched ``at_once`` at a time."""
                name = f"stream_{next(numbers)}"
                cursor = stack.enter_context(connection.cursor(name=name, binary=True))
                cursor.itersize = at_once
                return cursor.execute(_with_placeholders(statement), values)

            yield read

    def run(
        self, connection: psycopg.Connection[Any], statement: str, values: Sequence[Any] = ()
    ) -> psycopg.Cursor[Any]:
        """Run a statement with values for its question marks, and return the cursor."""
        return connection.execute(_with_placeholders(statement), values)

    def run_many(self, connection: psycopg.Connection[Any], statement: str, rows: Iterable[Any]) -> None:
        """Run a statement once for each tuple of values for its question marks."""
        with connection.cursor() as cursor:
            cursor.executemany(_with_placeholders(statement), rows)

    def select_decisions(
        self, connection: psycopg.Connection[Any], wanted: Sequence[tuple[int, str]]
    ) -> Iterable[Any]:
        """Return the rows of the decisions given by pairs of placement number and id.

        Missing ones are left out.
        """
        return connection.execute(FIND_DECISIONS, ([p for p, _ in wanted], [id for _, id in wanted]))

    def select_feedback(self, connection: psycopg.Connection[Any], decisions: Sequence[int]) -> Iterable[Any]:
        """Return the rows of all feedback on decisions, given by their numbers, in the log's order."""
        return connection.execute(FEEDBACK, (list(decisions),))

    def parse_decision(self, row: Any) -> DecisionRow:
        """Return a decision from a row of the database's values; its arms are decoded from JSON."""
        decision = DecisionRow._make(row)
        would = None if decision.would is None else _decode(str(decision.would))
        return decision._replace(arm=_decode(str(decision.arm)), would=would)

    def append(self, rows: Rows) -> None:
        """Append rows in one durable transaction, and note the last committed row."""
        super().append(rows)
        self._committed = max([self._committed, *(row.seq for row in rows.all())])

    def insert_rows(self, writer: psycopg.Connection[Any], rows: Rows) -> None:
        """Insert rows with checksums, by COPY if there are many.

        Update the cached size if it is 10 seconds old.
        """
        decisions: list[tuple[Any, ...]] = []
        # Arms are stored as JSON, in which a number differs from its digits; checksums are of the arms.
        for decision in rows.decisions:
            would = None if decision.would is None else _encode(decision.would).decode()
            encoded = decision._replace(arm=_encode(decision.arm).decode(), would=would)
            decisions.append((*encoded, row_checksum(decision)))
        parts = decisions, with_checksums(rows.feedback), with_checksums(rows.changes)
        with writer.cursor() as cursor:
            for part, copy, insert in zip(parts, COPIES, INSERTS, strict=True):
                if len(part) >= COPY_THRESHOLD:
                    with cursor.copy(copy) as stream:
                        for row in part:
                            stream.write_row(row)
                elif part:
                    self.run_many(writer, insert, part)
        if time.monotonic() > self._size_after:
            self._size_after = time.monotonic() + SIZE_SECONDS
            self._size = self.select_one(writer, SIZE, self.schema)

    def end(self) -> End:
        """Return the number and the time of the log's last row, read by the writing connection."""
        # Read by the writer: with its lock, all earlier transactions have ended.
        with self.transaction() as writer:
            return self._select_end(writer)

    def check(self) -> None:
        """Raise StoreError if new commits would be lost, or another process owns the store."""
        with self.transaction():
            pass

    def scrub(self) -> None:
        """Do nothing: the database overwrites old versions of rows when it vacuums its tables."""

    def find_damage(self) -> list[str]:
        """Return a message for each unique index that does not find all rows of its table; reads all rows."""
        wrong = []
        with self.reading() as connection, connection.transaction():
            for setting in INDEX_SETTINGS:
                connection.execute(setting)
            for table, fields in UNIQUE:
                key_columns = ", ".join(f"t.{field}" for field in fields)
                same = " AND ".join(f"i.{field} = t.{field}" for field in (*fields, "ctid"))
                missing = self.select_one(connection, COUNT_MISSING.format(table, key_columns, table, same))
                if missing:
                    wrong.append(
                        f"{missing} rows of {table} are not found by {', '.join(fields)}: an index "
                        f"is damaged; restore a backup, or: REINDEX SCHEMA {self.schema}"
                    )
        return wrong

    def check_indexes(self) -> contextlib.AbstractContextManager[None]:
        """Do nothing: the server itself repairs indexes after a crash."""
        return contextlib.nullcontext()

    def size(self) -> int:
        """Return the size of the store in bytes, up to 10 seconds old."""
        return self._size


def lock_number(schema: str) -> int:
    """Return the number of a schema's advisory lock, a hash of the schema's name."""
    return int.from_bytes(hashlib.sha256(schema.encode()).digest()[:8], signed=True)


def _is_about_data(error: Exception) -> bool:
    """True if an error is about invalid data, not about the state of the store."""
    if not isinstance(error, psycopg.Error):
        return False
    if isinstance(error, psycopg.IntegrityError):
        # A duplicate sequence number means another writer, not invalid data.
        name = error.diag.constraint_name
        return name is not None and not name.endswith("_pkey")
    return isinstance(error, psycopg.DataError | psycopg.errors.ProgramLimitExceeded)


def _with_placeholders(statement: str) -> Any:
    """Return a statement with psycopg's placeholder ``%s`` in place of each question mark."""
    return statement.replace("?", "%s")


def _strip_password(url: str) -> str:
    """Return ``host:port/name`` of a database's address for messages.

    Raise StoreError if it is no address.
    """
    try:
        parts = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error as error:
        raise StoreError(
            "store.url: is no address of a database; give postgresql://user@host/database"
        ) from error
    return f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"
