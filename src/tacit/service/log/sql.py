"""SQL statements and methods that the stores in SQLite and PostgreSQL share.

The log is the source of truth. A store keeps its rows under one ascending sequence number, appends a group of
rows atomically, and returns rows in that order.

Statements have a question mark for each value. Where databases need different statements, or one has a faster
way, the store's class has its own method.

From top to bottom: the tables and their statements; :class:`SqlDatabase`, the methods that each database
implements; :class:`Store`: the owner's epoch; placements; reads while the log is served and at a start; the
ends of the log; records; and :class:`SnapshotTables`. What leaves a log is in ``removal.py``.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tacit import __version__
from tacit.errors import BEFORE_0_3
from tacit.service.errors import Damaged, Fenced, StoreError
from tacit.service.log import rows as log_rows
from tacit.service.log.store import (
    BASES,
    DAMAGE,
    SNAPSHOTS,
    STATES,
    SWEEP_PIECES,
    Checksum,
    Draft,
    End,
    Snapshot,
    StoredPlacement,
    assemble_snapshot,
)

Read = Callable[..., Iterable[Any]]
"""Runs a statement with its values and returns its rows, fetched ``at_once`` at a time."""

TABLES: tuple[tuple[str, Any], ...] = (
    ("decisions", log_rows.DecisionRow),
    ("feedback", log_rows.FeedbackRow),
    ("marks", log_rows.ChangeRow),
)


KINDS: dict[str, Any] = dict(TABLES) | {"records": log_rows.RecordRow}
NUMBERS = {table: "seq" for table, _ in TABLES} | {"records": "number"}


def columns(kind: Any) -> str:
    """Return the names of the fields of a kind of row, separated by commas."""
    return ", ".join(kind._fields)


def list_columns(table: str, prefix: str = "") -> str:
    """Return the columns to select for a table's rows, separated by commas: number, fields, checksum."""
    return ", ".join(prefix + name for name in (NUMBERS[table], *KINDS[table]._fields, "checksum"))


def _make_insert(table: str, kind: Any) -> str:
    """Return the statement that inserts a row with its checksum into a table."""
    marks = ", ".join("?" * (len(kind._fields) + 1))
    return f"INSERT INTO {table} ({columns(kind)}, checksum) VALUES ({marks})"


# The inserted names are constants.
# ruff: noqa: S608
INSERTS = [_make_insert(table, kind) for table, kind in TABLES]
READS = {
    table: f"SELECT {list_columns(table)} FROM {table} WHERE {number} > ? ORDER BY {number}"
    for table, number in NUMBERS.items()
}
"""Statements that select the rows of a table after a number."""
LASTS = " UNION ALL ".join(
    f"SELECT * FROM (SELECT seq, time FROM {t} ORDER BY seq DESC LIMIT 1) last_{t}" for t, _ in TABLES
)
IN_HISTORY = f"placement = ? AND kind IN {log_rows.HISTORY} ORDER BY seq"
CHANGES = f"SELECT {list_columns('marks')} FROM marks WHERE {IN_HISTORY}"
ADD_RECORD = f"{_make_insert('records', log_rows.RecordRow)} ON CONFLICT DO NOTHING RETURNING number"
FIND_RECORD = "SELECT content FROM records WHERE id = ? AND placement = ? AND kind = ?"
HEAD = "placement, seq, time, plan, checksum, pieces"
USED_PIECES = " UNION ALL ".join(f"SELECT pieces FROM {what}" for what in (SNAPSHOTS, BASES, STATES))
NEXT_PIECES = (
    "SELECT coalesce(max(n), 0) + 1 "
    f"FROM (SELECT max(snapshot) AS n FROM pieces UNION ALL {USED_PIECES}) known"
)
ADD_PIECE = "INSERT INTO pieces (snapshot, field, content) VALUES (?, ?, ?)"
PIECES = "SELECT field, content FROM pieces WHERE snapshot = ? ORDER BY number"
SWEEP = (
    "DELETE FROM pieces WHERE number IN "
    f"(SELECT number FROM pieces WHERE snapshot < ? AND snapshot NOT IN ({USED_PIECES}) "
    f"LIMIT {SWEEP_PIECES}) RETURNING number"
)
STATES_OF = "SELECT seq, time FROM states WHERE placement = ? ORDER BY seq"
EVERY_PIECE = 2**62
NEW_POLICY = (
    "INSERT INTO policies (hash, spec, version) SELECT ?, ?, ? WHERE NOT EXISTS "
    "(SELECT 1 FROM placements WHERE name = ?) ON CONFLICT DO NOTHING"
)
NEW_PLACEMENT = (
    "INSERT INTO placements (name, policy, seed) "
    "SELECT ?, id, ? FROM policies WHERE hash = ? ON CONFLICT DO NOTHING"
)
PLACEMENT = (
    "SELECT p.name, p.id, p.policy, spec, seed, hash "
    "FROM placements p JOIN policies ON policies.id = p.policy"
)
ADD_POLICY = "INSERT INTO policies (hash, spec, version) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
POLICY_OF = "SELECT id FROM policies WHERE hash = ?"
CONFIGURE = "UPDATE placements SET configuration = ? WHERE name = ?"
CONFIGURED = "SELECT name, configuration FROM placements"

UNREADABLE = UnicodeDecodeError, msgspec.DecodeError
NOT_WRITTEN, RESTORE = "is not what was written", "restore a backup"
UNREADABLE_ROW = f"a row is not what was written; {DAMAGE}"
REFUSED = "request: the store does not take what it says: {}"
UNIQUE = (
    ("decisions", ("seq",)),
    ("decisions", ("id", "placement")),
    ("feedback", ("seq",)),
    ("feedback", ("decision", "id")),
    ("marks", ("seq",)),
    ("records", ("id", "placement", "kind")),
)
"""Unique indexes, as pairs of a table and its columns."""


class SqlDatabase(ABC):
    """The operations that each database implements."""

    location: str
    """Start of messages: the configuration field of the store, and its value."""

    @abstractmethod
    def transaction(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context manager of the writing connection; it commits at the end, rolls back on an error.

        Raises Fenced if another process owns the store.
        """

    @abstractmethod
    def reading(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context manager of a reading connection."""

    @abstractmethod
    def streaming(self) -> contextlib.AbstractContextManager[Read]:
        """Return a context manager of a function that streams the rows of statements."""

    @abstractmethod
    def run(self, connection: Any, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement with values for its question marks, and return the cursor."""

    @abstractmethod
    def run_many(self, connection: Any, statement: str, rows: Iterable[Any]) -> None:
        """Run a statement once for each tuple of values."""

    @abstractmethod
    def insert_rows(self, writer: Any, rows: log_rows.Rows) -> None:
        """Insert rows in the open transaction; sequence numbers must be unique over all tables."""

    @abstractmethod
    def select_decisions(self, connection: Any, wanted: Sequence[tuple[int, str]]) -> Iterable[Any]:
        """Yield the rows of the decisions given by pairs of placement number and id.

        Missing ones are left out.
        """

    @abstractmethod
    def select_feedback(self, connection: Any, decisions: Sequence[int]) -> Iterable[Any]:
        """Yield the rows of all feedback on decisions, given by their numbers, in order for each decision."""

    @abstractmethod
    def scrub(self) -> None:
        """Overwrite the data of dropped and blanked rows, if the database can."""

    @abstractmethod
    def find_damage(self) -> list[str]:
        """Return a message for each damage of the database, including damaged indexes."""

    @abstractmethod
    def check_indexes(self) -> contextlib.AbstractContextManager[None]:
        """During a ``with`` block, check the indexes within a time limit; raise Damaged if one is damaged."""

    @abstractmethod
    def check(self) -> None:
        """Raise StoreError if new commits would be lost, or another process owns the store."""

    @abstractmethod
    def size(self) -> int:
        """Return the size of the store in bytes."""

    def parse_decision(self, row: Any) -> log_rows.DecisionRow:
        """Return a decision from a row of the database's values."""
        return log_rows.DecisionRow._make(row)

    def select_one(self, connection: Any, statement: str, *values: Any) -> Any:
        """Run a statement, and return the first value of its first row; None without a row."""
        row = self.run(connection, statement, values).fetchone()
        return None if row is None else row[0]


class Store(SqlDatabase):
    """A durable log in the tables of a database.

    Any thread may call a method, but only one writing method and one reading method may run at a time. All
    raise StoreError if the store fails, and Fenced if another process owns it. Sequence numbers are unique
    over all tables.

    Attributes
    ----------
    epoch : int
        Number of times that the store was opened. Only the process that opened it last can write.
    snapshots : SnapshotTables
        The learned states of placements.
    salt : str
        Secret key of the hashes of users.
    local : bool
        Whether the store is a file on this machine.
    """

    epoch = 0
    salt = ""
    local = False
    _cleanup: contextlib.ExitStack

    def __init__(self) -> None:
        self.snapshots = SnapshotTables(self)

    def _select_end(self, connection: Any) -> End:
        """Return the number and the time of the log's last row; zeros for an empty log."""
        rows = self.run(connection, LASTS)
        return max((End(*row) for row in rows), default=End(0, 0))

    def _check_epoch(self, epoch: int | None) -> None:
        """Raise Fenced if the stored epoch is not this process's: another one has opened the store since."""
        if epoch != self.epoch:
            raise Fenced(
                f"{self.location} was taken over in epoch {epoch}, this is the owner of epoch "
                f"{self.epoch}; leave it to the other one"
            )

    # Write -----------------------------------------------------------------------------------

    def append(self, rows: log_rows.Rows) -> None:
        """Append rows, with their sequence numbers, in one transaction; they are durable when it returns."""
        with self.transaction() as writer:
            self.insert_rows(writer, rows)

    def placement(self, name: str, spec: str, seed: int) -> StoredPlacement:
        """Return a placement by its name; create it in the store with ``spec`` and ``seed`` if it is new.

        ``spec`` is its policy as JSON. For an existing placement, both are ignored. Raises Damaged if the
        stored policy is damaged or missing.
        """
        with self.reading() as connection:
            row = self.run(connection, f"{PLACEMENT} WHERE p.name = ?", (name,)).fetchone()
        if row is None:
            row = add_placements(self, [(name, spec, seed)])
        if row is None:
            raise Damaged(f"{self.location}: the policy of placement {name!r} is not there; {RESTORE}")
        return _parse_placement(self, row)

    def probe(self, time: int) -> None:
        """Test whether commits work, by a small change that stores ``time``.

        Raise StoreError if they do not.
        """
        with self.transaction() as writer:
            self.run(writer, "UPDATE store SET probed = ?", (time,))

    def add_policy(self, spec: str) -> int:
        """Return the number of a policy, given as JSON; add the policy to the store if it is new."""
        digest = hashlib.sha256(spec.encode()).hexdigest()
        with self.transaction() as writer:
            self.run(writer, ADD_POLICY, (digest, spec, __version__))
            number: int = self.select_one(writer, POLICY_OF, digest)
        return number

    def store_configurations(self, configurations: Mapping[str, str]) -> None:
        """Store the configurations of placements, as JSON, in place of the ones before, all or none."""
        with self.transaction() as writer:
            self.run_many(writer, CONFIGURE, [(text, name) for name, text in configurations.items()])

    # Read ------------------------------------------------------------------------------------

    def configurations(self, *placement: str) -> dict[str, str | None]:
        """Return the last stored configurations, as JSON or None, by placement: of one, or of all.

        Raises Damaged if one is not a configuration.
        """
        with self.reading() as connection:
            # The condition is there once for one name, and not at all without a name.
            rows = self.run(connection, f"{CONFIGURED}{' WHERE name = ?' * len(placement)}", placement)
            settings: dict[str, str | None] = dict(rows.fetchall())
        for name, text in settings.items():
            if text is not None and not _is_configuration(text):
                raise Damaged(f"{self.location}: how {name} was configured {NOT_WRITTEN}; {RESTORE}")
        return settings

    def changes(self, placement: int) -> list[log_rows.ChangeRow]:
        """Return the change events of a placement's history, in order; raise Damaged at a damaged row."""
        with self.reading() as connection:
            return list(self.check_rows("marks", self.run(connection, CHANGES, (placement,))))

    def placements(self) -> dict[str, StoredPlacement]:
        """Return all placements by their names."""
        with self.reading() as connection:
            rows = self.run(connection, PLACEMENT)
            return {row[0]: _parse_placement(self, row) for row in rows}

    def find(self, wanted: Sequence[tuple[int, str]]) -> dict[tuple[int, str], log_rows.DecisionWithFeedback]:
        """Return decisions with their feedback, by pairs of placement number and id.

        Missing ones are left out.
        """
        with self.reading() as connection:
            decisions = self.check_rows("decisions", self.select_decisions(connection, wanted))
            by_seq = {row.seq: log_rows.DecisionWithFeedback(row, []) for row in decisions}
            if by_seq:
                for feedback in self.check_rows("feedback", self.select_feedback(connection, [*by_seq])):
                    by_seq[feedback.decision].feedback.append(feedback)
        return {(f.decision.placement, f.decision.id): f for f in by_seq.values()}

    def events(self, after: int) -> Iterator[log_rows.Event]:
        """Yield all rows of the log after row ``after``, in order; raise Damaged at a damaged row."""
        with self.streaming() as read:
            yield from log_rows.merge_rows(
                [self.check_rows(table, read(READS[table], (after,))) for table, _ in TABLES]
            )

    def check_rows(self, table: str, cursor: Iterable[Any]) -> Iterator[Any]:
        """Yield the rows of a cursor over :func:`list_columns`; raise Damaged at a wrong checksum."""
        for number, row, sound in self.verify_rows(table, cursor):
            if not sound:
                raise Damaged(f"{self.location}: row {number} of {table} is not what was written; {DAMAGE}")
            yield row

    def verify_rows(self, table: str, cursor: Iterable[Any]) -> Iterator[tuple[int, Any, bool]]:
        """Yield each row of a cursor as number, row, and whether its checksum is right or missing."""
        make = self.parse_decision if table == "decisions" else KINDS[table]._make
        for values in cursor:
            row, checksum = make(values[1:-1]), values[-1]
            yield values[0], row, checksum is None or checksum == log_rows.row_checksum(row)

    def end(self) -> End:
        """Return the number and the time of the log's last row; zeros for an empty log."""
        with self.reading() as connection:
            return self._select_end(connection)

    def close(self) -> None:
        """Release all connections and locks; the store cannot be used afterwards."""
        self._cleanup.close()


def _is_configuration(settings: str) -> bool:
    """True if a text can be a placement's configuration: a JSON object with a policy."""
    try:
        return "policy" in msgspec.json.decode(settings, type=dict[str, Any])
    except msgspec.MsgspecError:
        return False


def _parse_placement(store: Store, row: Any) -> StoredPlacement:
    """Return a placement from a row of PLACEMENT; raise Damaged if its policy does not match the hash."""
    name, id, policy, spec, seed, digest = row
    if hashlib.sha256(spec.encode()).hexdigest() != digest:
        raise Damaged(f"{store.location}: the policy of placement {name!r} {NOT_WRITTEN}; {RESTORE}")
    return StoredPlacement(id, policy, spec, seed, store.salt)


def adopt_salt(store: Store, salt: str) -> None:
    """Hash users and sessions from now on as another store does, whose log is imported or shared."""
    with store.transaction() as writer:
        store.run(writer, "UPDATE store SET salt = ?", (salt,))
    store.salt = salt


def ensure_salt(store: Store, writer: Any) -> str:
    """Return the salt of the store; create and store it if missing."""
    store.run(writer, "UPDATE store SET salt = ? WHERE salt IS NULL", (secrets.token_hex(16),))
    salt: str = store.select_one(writer, "SELECT salt FROM store")
    return salt


def check_version(location: str, version: int, newest: int) -> None:
    """Raise StoreError if the version of a store's tables is not ``newest``, the one of this tacit."""
    if version > newest:
        raise StoreError(f"{location} is of version {version}, this tacit reads up to {newest}; update tacit")
    if version < newest:
        raise StoreError(f"{location} is of version {version} and {BEFORE_0_3}")


def add_placements(store: Store, placements: Sequence[tuple[str, str, int]]) -> Any:
    """Create placements of given names, policies and seeds in one commit; return the last row, or None."""
    with store.transaction() as writer:
        for name, spec, seed in placements:
            digest = hashlib.sha256(spec.encode()).hexdigest()
            store.run(writer, NEW_POLICY, (digest, spec, __version__, name))
            store.run(writer, NEW_PLACEMENT, (name, seed, digest))
        return store.run(writer, f"{PLACEMENT} WHERE p.name = ?", (name,)).fetchone()


def add_records(store: Store, records: Sequence[log_rows.RecordRow]) -> list[str | None]:
    """Add records with new ids to the store; return for each None, or the content of the stored record."""
    before: list[str | None] = []
    with store.transaction() as writer:
        for row in records:
            new = store.select_one(writer, ADD_RECORD, *row, log_rows.row_checksum(row)) is not None
            key = row.id, row.placement, row.kind
            before.append(None if new else store.select_one(writer, FIND_RECORD, *key))
    return before


def read_records(store: Store) -> Iterator[log_rows.RecordRow]:
    """Yield all records of User Behavior Insights in order of their arrival."""
    with store.streaming() as read:
        yield from store.check_rows("records", read(READS["records"], (0,)))


class SnapshotTables:
    """The tables of snapshots, bases and states of a store.

    Parameters
    ----------
    database : SqlDatabase
    """

    def __init__(self, database: SqlDatabase) -> None:
        self._database = database
        # Numbers of the snapshots whose pieces are being written.
        self._unfinished: set[int] = set()

    def save_in_steps(self, draft: Draft, what: str = SNAPSHOTS) -> Iterator[None]:
        """Write a snapshot in steps: each item of the iterator, None, is one step.

        A snapshot or base replaces the previous one; a state is added. Each step is a transaction of its own,
        so that others may be committed in between. If not all steps run, the previous snapshot remains. The
        last steps delete pieces that no snapshot uses. Raises StoreError if :meth:`abandon_drafts` was
        called between two steps.
        """
        # Readers never see a part of a snapshot: its pieces have a new number, and the head with that
        # number is written last, in one statement.
        with self._database.transaction() as writer:
            number = self._database.select_one(writer, NEXT_PIECES)
        # The sweep of another snapshot must spare these pieces.
        (unfinished := self._unfinished).add(number)
        try:
            # The first four fields, up to the plan, are the head; pieces hold the others.
            checksum = Checksum(draft[:4])
            for batch in draft.split_into_batches():
                checksum.add(batch)
                with self._database.transaction() as writer:
                    self._database.run_many(writer, ADD_PIECE, [(number, *piece) for piece in batch])
                yield
                # ``abandon_drafts`` replaces the set.
                if unfinished is not self._unfinished:
                    raise StoreError("a user was forgotten, whose data it may hold")
            self._write_head(draft, what, checksum, number)
        finally:
            unfinished.discard(number)
        while self.sweep_pieces():
            yield

    def _write_head(self, draft: Draft, what: str, checksum: Checksum, number: int) -> None:
        """Write the head row of a snapshot, which makes it valid.

        It replaces the previous one, or adds a state.
        """
        key = "placement, seq" if what == STATES else "placement"
        statement = (
            f"INSERT INTO {what} ({HEAD}) VALUES (?, ?, ?, ?, ?, ?) "
            f"ON CONFLICT ({key}) DO UPDATE SET seq = EXCLUDED.seq, time = EXCLUDED.time, "
            "plan = EXCLUDED.plan, checksum = EXCLUDED.checksum, pieces = EXCLUDED.pieces"
        )
        with self._database.transaction() as writer:
            self._database.run(writer, statement, (*draft[:4], checksum.value(), number))

    def sweep_pieces(self) -> int:
        """Delete some pieces that no snapshot uses, and return their number; 0 if none are left."""
        with self._database.transaction() as writer:
            oldest = min(self._unfinished, default=EVERY_PIECE)
            return len(self._database.run(writer, SWEEP, (oldest,)).fetchall())

    def abandon_drafts(self) -> None:
        """Make the snapshots that are being written fail at their next step; their pieces may be swept."""
        self._unfinished = set()

    def drop_later_states(self, placement: int, end: int) -> None:
        """Delete the snapshot and the states of a placement that include rows after ``end``."""
        with self._database.transaction() as writer:
            for what in (SNAPSHOTS, STATES):
                self._database.run(
                    writer, f"DELETE FROM {what} WHERE placement = ? AND seq > ?", (placement, end)
                )

    def load(self, placement: int) -> Snapshot | None:
        """Return a placement's latest snapshot; None without one; raise Damaged if its checksum is wrong."""
        return self._load_from(SNAPSHOTS, placement)

    def load_base(self, placement: int) -> Snapshot | None:
        """Return a placement's base, the learned state at the beginning of its log; None without one.

        A placement has one if its older rows were dropped or it started from a learner.
        """
        return self._load_from(BASES, placement)

    def _load_from(self, what: str, placement: int, *seq: int) -> Snapshot | None:
        """Return a placement's snapshot from table ``what``, a state by its last row.

        None if it is missing.
        """
        with self._database.streaming() as read:
            query = f"SELECT {HEAD} FROM {what} WHERE placement = ?{' AND seq = ?' * len(seq)}"
            for *head, checksum, number in read(query, (placement, *seq)):
                return assemble_snapshot(head, checksum, read(PIECES, (number,), at_once=1))
        return None

    def list_states(self, placement: int) -> list[End]:
        """Return the last row's number and the time of each stored state of a placement, in order."""
        with self._database.reading() as connection:
            return [End(*row) for row in self._database.run(connection, STATES_OF, (placement,))]

    def load_state(self, placement: int, seq: int) -> Snapshot | None:
        """Return a placement's stored state by the last row that it includes; None if it is missing."""
        return self._load_from(STATES, placement, seq)

    def find_base_end(self, placement: int) -> End | None:
        """Return the last row and the time of a placement's base; None without one."""
        with self._database.reading() as connection:
            query = "SELECT seq, time FROM bases WHERE placement = ?"
            row = self._database.run(connection, query, (placement,)).fetchone()
        return None if row is None else End(*row)


def save_snapshot(snapshots: SnapshotTables, snapshot: Snapshot, what: str = SNAPSHOTS) -> None:
    """Write a snapshot at once, as a snapshot or a base (``what``), in place of the previous one."""
    for _ in snapshots.save_in_steps(snapshot.draft(), what):
        pass
