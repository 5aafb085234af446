"""The store in PostgreSQL.

One connection writes. It holds an advisory lock for as long as it lives, so that there is one
writer at any time, and after a cut the next connection gets the lock only when the server is done
with whatever the one before had begun: then it is known whether a commit took effect.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tacit import __version__
from tacit.errors import MissingExtra
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

try:
    import psycopg
    from psycopg import sql
    from psycopg_pool import ConnectionPool, PoolTimeout
except ModuleNotFoundError as error:
    raise MissingExtra(error.name or "psycopg", "postgres") from error

MIGRATIONS = (
    """
    CREATE TABLE store (version integer NOT NULL, probed bigint NOT NULL);
    INSERT INTO store VALUES (0, 0);
    CREATE TABLE policies (
        id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        hash text NOT NULL UNIQUE,
        spec text NOT NULL,
        version text
    );
    CREATE TABLE placements (
        id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text NOT NULL UNIQUE,
        policy integer NOT NULL REFERENCES policies,
        seed bigint NOT NULL
    );
    CREATE TABLE decisions (
        seq bigint PRIMARY KEY,
        id text NOT NULL,
        placement integer NOT NULL REFERENCES placements,
        policy integer NOT NULL REFERENCES policies,
        time bigint NOT NULL,
        key text NOT NULL,
        offered text,
        arm text NOT NULL,
        propensity double precision,
        epoch bigint NOT NULL,
        context text,
        mode text NOT NULL,
        would text,
        would_propensity double precision,
        deferred smallint NOT NULL
    );
    CREATE UNIQUE INDEX decision_ids ON decisions (id, placement);
    CREATE TABLE feedback (
        seq bigint PRIMARY KEY,
        placement integer NOT NULL REFERENCES placements,
        decision bigint NOT NULL REFERENCES decisions,
        id text,
        time bigint NOT NULL,
        kind text NOT NULL,
        reward double precision CHECK (reward BETWEEN 0 AND 1)
    );
    CREATE INDEX feedback_of ON feedback (decision);
    CREATE UNIQUE INDEX feedback_once ON feedback (decision, id) WHERE id IS NOT NULL;
    CREATE TABLE marks (
        seq bigint PRIMARY KEY,
        placement integer REFERENCES placements,
        time bigint NOT NULL,
        kind text NOT NULL,
        value text NOT NULL
    );
    CREATE TABLE snapshots (
        placement integer PRIMARY KEY REFERENCES placements,
        seq bigint NOT NULL,
        time bigint NOT NULL,
        plan text NOT NULL,
        learner bytea NOT NULL,
        shadow bytea,
        series bytea NOT NULL,
        windows bytea NOT NULL
    );
    """,
    """
    ALTER TABLE decisions ADD COLUMN asked text;
    ALTER TABLE decisions ADD COLUMN shown text;
    ALTER TABLE feedback ADD COLUMN clicks text;
    """,
    """
    ALTER TABLE feedback DROP CONSTRAINT feedback_reward_check;
    ALTER TABLE feedback ADD CONSTRAINT feedback_reward_check CHECK (reward BETWEEN -1 AND 1);
    """,
    """
    CREATE TABLE records (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        placement integer NOT NULL REFERENCES placements,
        kind text NOT NULL,
        id text NOT NULL,
        time bigint NOT NULL,
        content text NOT NULL
    );
    CREATE UNIQUE INDEX record_ids ON records (id, placement, kind);
    CREATE TABLE bases (LIKE snapshots INCLUDING ALL);
    ALTER TABLE bases ADD FOREIGN KEY (placement) REFERENCES placements;
    """,
    # In one row, a snapshot would be written in one transaction, and be a gigabyte at most.
    """
    CREATE TABLE pieces (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        snapshot bigint NOT NULL,
        field text NOT NULL,
        content bytea NOT NULL
    );
    CREATE INDEX pieces_of ON pieces (snapshot);
    INSERT INTO pieces (snapshot, field, content)
        SELECT placement, 'learner', learner FROM bases UNION ALL
        SELECT placement, 'shadow', shadow FROM bases WHERE shadow IS NOT NULL UNION ALL
        SELECT placement, 'series', series FROM bases UNION ALL
        SELECT placement, 'windows', windows FROM bases;
    ALTER TABLE bases DROP COLUMN learner, DROP COLUMN shadow, DROP COLUMN series,
        DROP COLUMN windows, ADD COLUMN pieces bigint NOT NULL DEFAULT 0;
    UPDATE bases SET pieces = placement;
    DROP TABLE snapshots;
    CREATE TABLE snapshots (LIKE bases INCLUDING ALL);
    ALTER TABLE snapshots ADD FOREIGN KEY (placement) REFERENCES placements;
    """,
)
"""Each script brings a store from the version of its index to the next one."""

SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
COPIED_FROM = 8
"""Rows from which on COPY costs less than an INSERT for each."""
START_SECONDS, LOCK_SECONDS = 3.0, 10.0
SIZE_SECONDS = 10.0
SETTINGS: dict[str, Any] = {
    "connect_timeout": 5,
    "tcp_user_timeout": 10_000,
    "application_name": "tacit",
    "client_encoding": "UTF8",
}
STATEMENT_TIMEOUT = "30s"

TABLES: tuple[tuple[str, Any], ...] = (
    ("decisions", DecisionRow),
    ("feedback", FeedbackRow),
    ("marks", MarkRow),
)
_encoded = msgspec.json.encode
_decoded = msgspec.json.decode


def _columns(kind: Any) -> str:
    return ", ".join(kind._fields)


# Every name in these is a constant.
# ruff: noqa: S608
COPIES = [f"COPY {t} ({_columns(k)}) FROM STDIN" for t, k in TABLES]
INSERTS = [
    f"INSERT INTO {t} ({_columns(k)}) VALUES ({', '.join(['%s'] * len(k._fields))})"
    for t, k in TABLES
]
EVENTS = [f"SELECT {_columns(k)} FROM {t} WHERE seq > %s ORDER BY seq" for t, k in TABLES]
END = " UNION ALL ".join(
    f"(SELECT seq, time FROM {t} ORDER BY seq DESC LIMIT 1)" for t, _ in TABLES
)
FIND = (
    f"SELECT {', '.join('d.' + c for c in DecisionRow._fields)} FROM decisions d "
    "JOIN unnest(%s::integer[], %s::text[]) AS w(placement, id) "
    "ON d.id = w.id AND d.placement = w.placement"
)
FEEDBACK_OF = (
    f"SELECT {_columns(FeedbackRow)} FROM feedback WHERE decision = ANY(%s::bigint[]) ORDER BY seq"
)
KEEP = (
    f"INSERT INTO records ({_columns(RecordRow)}) VALUES (%s, %s, %s, %s, %s) "
    "ON CONFLICT DO NOTHING RETURNING number"
)
KEPT = "SELECT content FROM records WHERE id = %s AND placement = %s AND kind = %s"
RECORDS = f"SELECT {_columns(RecordRow)} FROM records ORDER BY number"
OLD_DECISIONS = (
    f"SELECT {_columns(DecisionRow)} FROM decisions d WHERE placement = %s AND seq < %s "
    "AND time < %s AND NOT EXISTS (SELECT 1 FROM feedback f WHERE f.decision = d.seq "
    "AND f.seq >= %s) ORDER BY seq LIMIT %s"
)
OLD_MARKS = (
    f"SELECT {_columns(MarkRow)} FROM marks WHERE placement IS NOT DISTINCT FROM %s "
    "AND seq < %s AND time < %s ORDER BY seq LIMIT %s"
)
OLD_RECORDS = (
    f"SELECT {_columns(RecordRow)} FROM records WHERE placement = %s AND time < %s "
    "ORDER BY number LIMIT %s"
)
HEAD = "placement, seq, time, plan, pieces"
STANDING = "SELECT pieces FROM snapshots UNION ALL SELECT pieces FROM bases"
NEXT_PIECES = (
    "SELECT coalesce(max(n), 0) + 1 FROM "
    f"(SELECT max(snapshot) AS n FROM pieces UNION ALL {STANDING}) known"
)
ADD_PIECE = "INSERT INTO pieces (snapshot, field, content) VALUES (%s, %s, %b)"
PIECES = "SELECT field, content FROM pieces WHERE snapshot = %s ORDER BY number"
SWEEP = (
    "DELETE FROM pieces WHERE number IN "
    f"(SELECT number FROM pieces WHERE snapshot NOT IN ({STANDING}) LIMIT {SWEPT})"
)
DROP_RECORD = "DELETE FROM records WHERE placement = %s AND kind = %s AND id = %s"
PLACEMENT = (
    "SELECT p.name, p.id, p.policy, spec, seed "
    "FROM placements p JOIN policies ON policies.id = p.policy"
)


class PostgresStore:
    """The log in a schema of a PostgreSQL database, durable at each commit.

    Parameters
    ----------
    url : str
        As libpq takes it, such as ``postgresql://user@host/database``.
    schema : str, default "tacit"
        Made if missing.

    Raises
    ------
    MissingExtra
        If psycopg is not installed.
    StoreError
        If the database cannot be reached, is in use by another process, or of a newer version.
    """

    def __init__(self, url: str, schema: str = "tacit") -> None:
        if not SCHEMA_NAME.fullmatch(schema):
            raise StoreError(
                f"store.schema: {schema!r} is not allowed; give lower-case letters, digits and "
                "underscores"
            )
        self.schema = schema
        self._name = f"schema {schema} of {_without_password(url)}"
        self._size, self._size_after = 0, 0.0
        self._last: int | None = None
        with self._named_errors():
            self._conninfo = psycopg.conninfo.make_conninfo(
                url, options=f"-c search_path={schema} -c statement_timeout={STATEMENT_TIMEOUT}",
                **SETTINGS,
            )  # fmt: skip
        self._connection: psycopg.Connection[Any] | None = None
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(self._disconnect)
            with self._transaction() as writer:
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
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.Error, PoolTimeout) as error:
            what = str(error).strip().partition("\n")[0]
            raise StoreError(f"store.url: {self._name}: {type(error).__name__}: {what}") from error

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            connection = psycopg.connect(self._conninfo, autocommit=True)
            try:
                self._lock(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    @property
    def _lock_number(self) -> int:
        return int.from_bytes(hashlib.sha256(self.schema.encode()).digest()[:8], signed=True)

    def _lock(self, connection: psycopg.Connection[Any]) -> None:
        """Become the writer, once the one before has ended."""
        # The server takes a moment to notice the end of a connection, our own or a dead process's.
        deadline = time.monotonic() + (START_SECONDS if self._last is None else LOCK_SECONDS)
        while not _one(connection, "SELECT pg_try_advisory_lock(%s)", self._lock_number):
            if time.monotonic() >= deadline:
                raise StoreError(
                    f"store.url: {self._name} is in use by another process; stop it, or give "
                    "another schema"
                )
            time.sleep(0.05)
        if self._last is not None:
            last = max((row[0] for row in connection.execute(END)), default=0)
            if last > self._last:
                raise StoreError(
                    f"store.url: {self._name} was written to by another process; stop one of "
                    "them and start again"
                )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection[Any]]:
        with self._named_errors():
            try:
                connection = self._connected()
                with connection.transaction():
                    yield connection
            except (psycopg.OperationalError, psycopg.InterfaceError):
                # Whatever state it is in, a new one finds out what was committed.
                self._disconnect()
                raise

    def _prepare(self, writer: psycopg.Connection[Any]) -> None:
        writer.execute(
            sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self.schema))
        )
        version = 0
        if _one(writer, "SELECT to_regclass(%s)", f"{self.schema}.store") is not None:
            version = _one(writer, "SELECT version FROM store")
        if version > len(MIGRATIONS):
            raise StoreError(
                f"store.url: {self._name} is of version {version}, this tacit reads up to "
                f"{len(MIGRATIONS)}; update tacit"
            )
        for script in MIGRATIONS[version:]:
            writer.execute(script)
        writer.execute("UPDATE store SET version = %s", (len(MIGRATIONS),))
        self._last = max((row[0] for row in writer.execute(END)), default=0)

    # Write -----------------------------------------------------------------------------------

    def placement(self, name: str, spec: str, seed: int) -> StoredPlacement:
        """Return a placement, which gets ``spec`` and ``seed`` if it is new."""
        digest = hashlib.sha256(spec.encode()).hexdigest()
        with self._transaction() as writer:
            writer.execute(
                "INSERT INTO policies (hash, spec, version) SELECT %s, %s, %s WHERE NOT EXISTS "
                "(SELECT 1 FROM placements WHERE name = %s) ON CONFLICT DO NOTHING",
                (digest, spec, __version__, name),
            )
            writer.execute(
                "INSERT INTO placements (name, policy, seed) "
                "SELECT %s, id, %s FROM policies WHERE hash = %s ON CONFLICT DO NOTHING",
                (name, seed, digest),
            )
            row = writer.execute(f"{PLACEMENT} WHERE p.name = %s", (name,)).fetchone()
        assert row is not None
        return StoredPlacement(*row[1:])

    def append(self, rows: Rows) -> None:
        """Make a group durable: all of it, or nothing."""
        decisions = [
            row._replace(
                arm=_encoded(row.arm).decode(),
                would=None if row.would is None else _encoded(row.would).decode(),
            )
            for row in rows.decisions
        ]
        self._last = max((row.seq for row in rows.all()), default=self._last)
        with self._transaction() as writer, writer.cursor() as cursor:
            parts: tuple[Sequence[Any], ...] = decisions, rows.feedback, rows.marks
            for part, copy, insert in zip(parts, COPIES, INSERTS, strict=True):
                if len(part) >= COPIED_FROM:
                    with cursor.copy(copy) as stream:
                        for row in tuples(part):
                            stream.write_row(row)
                elif part:
                    cursor.executemany(insert, tuples(part))
            if time.monotonic() > self._size_after:
                self._size_after = time.monotonic() + SIZE_SECONDS
                self._size = _one(
                    writer,
                    "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c"
                    " WHERE relkind = 'r' AND relnamespace = %s::regnamespace",
                    self.schema,
                )

    def keep(self, records: Sequence[RecordRow]) -> list[str | None]:
        """Make records durable that are not there yet; return the content of those that are."""
        before: list[str | None] = []
        with self._transaction() as writer:
            for row in records:
                new = _one(writer, KEEP, *row) is not None
                before.append(None if new else _one(writer, KEPT, row.id, row.placement, row.kind))
        return before

    def saving(self, draft: Draft, what: str = SNAPSHOTS) -> Iterator[None]:
        """Write a snapshot, or a base, step by step; then it is in place of the one before."""
        with self._transaction() as writer:
            number = _one(writer, NEXT_PIECES)
        for batch in draft.batches():
            with self._transaction() as writer, writer.cursor() as cursor:
                cursor.executemany(ADD_PIECE, [(number, *piece) for piece in batch])
            yield
        with self._transaction() as writer:
            writer.execute(
                f"INSERT INTO {what} ({HEAD}) VALUES (%s, %s, %s, %s, %s) "
                "ON CONFLICT (placement) DO UPDATE SET seq = EXCLUDED.seq, time = EXCLUDED.time, "
                "plan = EXCLUDED.plan, pieces = EXCLUDED.pieces",
                (*draft[:4], number),
            )
        while self._swept():
            yield

    def _swept(self) -> int:
        """Remove some pieces that belong to no snapshot any more; return how many."""
        with self._transaction() as writer:
            return writer.execute(SWEEP).rowcount

    def drop(self, old: Old) -> None:
        """Remove rows for good: all of them, or none."""
        with self._transaction() as writer, writer.cursor() as cursor:
            # Feedback refers to decisions, so it goes first.
            for table, rows in (
                ("feedback", old.rows.feedback),
                ("decisions", old.rows.decisions),
                ("marks", old.rows.marks),
            ):
                seqs = [row.seq for row in rows]
                cursor.execute(f"DELETE FROM {table} WHERE seq = ANY(%s::bigint[])", (seqs,))
            keys = [(row.placement, row.kind, row.id) for row in old.records]
            cursor.executemany(DROP_RECORD, keys)

    def probe(self, time: int) -> None:
        """Commit something small, to show that commits work."""
        with self._transaction() as writer:
            writer.execute("UPDATE store SET probed = %s", (time,))

    # Read ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _reading(self) -> Iterator[psycopg.Connection[Any]]:
        with self._named_errors(), self._pool.connection() as reader:
            yield reader

    def placements(self) -> dict[str, StoredPlacement]:
        """Return all placements by their names."""
        with self._reading() as reader:
            return {name: StoredPlacement(*row) for name, *row in reader.execute(PLACEMENT)}

    def find(self, wanted: Sequence[tuple[int, str]]) -> dict[tuple[int, str], Found]:
        """Return those decisions that exist, from their placements and ids."""
        with self._reading() as reader:
            columns = [p for p, _ in wanted], [id for _, id in wanted]
            decisions = [_decision(row) for row in reader.execute(FIND, columns)]
            found = {row.seq: Found(row, []) for row in decisions}
            if found:
                for row in reader.execute(FEEDBACK_OF, ([*found],)):
                    told = FeedbackRow(*row)
                    found[told.decision].feedback.append(told)
        return {(f.decision.placement, f.decision.id): f for f in found.values()}

    def events(self, after: int) -> Iterator[Event]:
        """Give the log after a sequence number, in order."""
        with self._reading() as reader, reader.transaction(), contextlib.ExitStack() as stack:
            parts: list[Iterator[Any]] = []
            for (table, _), query, make in zip(
                TABLES, EVENTS, (_decision, FeedbackRow._make, MarkRow._make), strict=True
            ):
                cursor = stack.enter_context(reader.cursor(name=f"fold_{table}"))
                cursor.itersize = 5000
                cursor.execute(query, (after,))
                parts.append(map(make, cursor))
            yield from in_order(parts)

    def records(self) -> Iterator[RecordRow]:
        """Give all records that were kept, in the order in which they came."""
        with self._reading() as reader, reader.transaction(), reader.cursor(name="kept") as cursor:
            cursor.execute(RECORDS)
            yield from map(RecordRow._make, cursor)

    def end(self) -> End:
        """Return where the log ends."""
        # Asked of the writer: having its lock means that all before it has ended.
        with self._transaction() as writer:
            return max((End(*row) for row in writer.execute(END)), default=End(0, 0))

    def snapshot(self, placement: int) -> Snapshot | None:
        """Return a placement's latest snapshot."""
        return self._assembled(SNAPSHOTS, placement)

    def base(self, placement: int) -> Snapshot | None:
        """Return where a placement's log begins, if what was before has been dropped."""
        return self._assembled(BASES, placement)

    def _assembled(self, what: str, placement: int) -> Snapshot | None:
        query = f"SELECT {HEAD} FROM {what} WHERE placement = %s"
        with self._reading() as reader, reader.transaction():
            row = reader.execute(query, (placement,)).fetchone()
            if row is None:
                return None
            *head, number = row
            with reader.cursor(name="assembled", binary=True) as cursor:
                cursor.itersize = 1
                cursor.execute(PIECES, (number,))
                return assembled(head, cursor)

    def begins(self, placement: int) -> End | None:
        """Return the row and the time of a placement's base."""
        query = "SELECT seq, time FROM bases WHERE placement = %s"
        with self._reading() as reader:
            row = reader.execute(query, (placement,)).fetchone()
        return None if row is None else End(*row)

    def old(self, placement: int | None, before: int, time: int, limit: int) -> Old:
        """Return the first rows of a placement, or of none, that are older than ``time``."""
        with self._reading() as reader:
            found = reader.execute(OLD_DECISIONS, (placement, before, time, before, limit))
            decisions = [_decision(row) for row in found]
            seqs = ([row.seq for row in decisions],)
            feedback = [FeedbackRow(*row) for row in reader.execute(FEEDBACK_OF, seqs)]
            marks = reader.execute(OLD_MARKS, (placement, before, time, limit)).fetchall()
            records = reader.execute(OLD_RECORDS, (placement, time, limit)).fetchall()
        rows = Rows(decisions, feedback, [MarkRow(*row) for row in marks])
        return Old(rows, [RecordRow(*row) for row in records])

    def size(self) -> int:
        """Return the bytes that the store takes, as of some seconds ago."""
        return self._size

    def close(self) -> None:
        """Release everything; the store cannot be used afterwards."""
        self._cleanup.close()


def _decision(row: Any) -> DecisionRow:
    made = DecisionRow(*row)
    would = None if made.would is None else _decoded(str(made.would))
    return made._replace(arm=_decoded(str(made.arm)), would=would)


def _one(connection: psycopg.Connection[Any], query: str, *values: Any) -> Any:
    row = connection.execute(query, values).fetchone()  # type: ignore[arg-type]
    return None if row is None else row[0]


def _without_password(url: str) -> str:
    """Return what of a database's address may stand in a message."""
    try:
        parts = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error as error:
        raise StoreError(
            "store.url: is no address of a database; give postgresql://user@host/database"
        ) from error
    return f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"
