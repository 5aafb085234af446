"""A store that is taken from the owner before, whoever else believes to own it.

The advisory lock of the connection, which the next owner takes away, makes the one before notice
early; what nobody can write past is the epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tacit.service.errors import Fenced
from tacit.service.stores.postgres import NEXT, PostgresStore

if TYPE_CHECKING:
    import psycopg

__all__ = ["Fenced", "FencedStore"]

EVICT = (
    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND classid::bigint << 32 | objid::bigint = %s AND pid <> pg_backend_pid()"
)


class FencedStore(PostgresStore):
    """A :class:`~tacit.service.stores.postgres.PostgresStore` that is taken from the owner before.

    Parameters are the same.

    Raises
    ------
    StoreError
        As there, but not because it is in use.
    """

    def _lock(self, connection: psycopg.Connection[Any]) -> None:
        made = connection.execute("SELECT to_regclass('owner')").fetchone() != (None,)
        if made and not self.epoch:
            number = (self._lock_number,)
            # A transaction that hangs must end before the epoch can change, and whoever comes
            # back before it has changed has the lock again.
            for statement, values in (EVICT, number), (NEXT, ()), (EVICT, number):
                connection.execute(statement, values)
        super()._lock(connection)
