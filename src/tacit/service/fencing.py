"""A store of which the latest owner alone can write, whoever else believes to own it.

Whoever opens it takes the next epoch, kept in the database. Every transaction that writes looks,
before anything else, whether the epoch is still its own, and keeps it from changing until the
transaction ends: so a commit of the owner before is either seen by the next one or refused. The
advisory lock of the connection, which the next owner takes away, makes the one before notice early;
what nobody can write past is the epoch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tacit.service.errors import StoreError
from tacit.service.postgres import PostgresStore

if TYPE_CHECKING:
    import psycopg

OWNER = "SELECT epoch FROM owner FOR SHARE"
MAKE_OWNER = (
    "CREATE TABLE IF NOT EXISTS owner (epoch bigint NOT NULL)",
    "INSERT INTO owner SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM owner)",
)
NEXT = "UPDATE owner SET epoch = epoch + 1 RETURNING epoch"
EVICT = (
    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND classid::bigint << 32 | objid::bigint = %s AND pid <> pg_backend_pid()"
)


class Fenced(StoreError):
    """The store has another owner by now."""


class FencedStore(PostgresStore):
    """A :class:`~tacit.service.postgres.PostgresStore` that is taken from the owner before.

    Parameters are the same.

    Raises
    ------
    StoreError
        As there, but not because it is in use.
    Fenced
        By whatever writes, as soon as somebody else has opened the store.
    """

    epoch = 0

    def _lock(self, connection: psycopg.Connection[Any]) -> None:
        if self.epoch:
            self._check(connection)
            super()._lock(connection)
            return
        number = (self._lock_number,)
        if connection.execute("SELECT to_regclass('owner')").fetchone() != (None,):
            # A transaction that hangs must end before the epoch can change, and whoever comes
            # back before it has changed has the lock again.
            for statement, values in (EVICT, number), (NEXT, ()), (EVICT, number):
                connection.execute(statement, values)
        super()._lock(connection)

    def _prepare(self, writer: psycopg.Connection[Any]) -> None:
        super()._prepare(writer)
        for statement in MAKE_OWNER:
            writer.execute(statement)
        row = writer.execute(NEXT).fetchone()
        assert row is not None
        self.epoch = row[0]

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection[Any]]:
        with super()._transaction() as connection:
            if self.epoch:
                self._check(connection)
            yield connection

    def _check(self, connection: psycopg.Connection[Any]) -> None:
        row = connection.execute(OWNER).fetchone()
        if row != (self.epoch,):
            found = row and row[0]
            raise Fenced(
                f"store.url: {self._name} was taken over in epoch {found}, this is the owner of "
                f"epoch {self.epoch}; leave it to the other one"
            )
