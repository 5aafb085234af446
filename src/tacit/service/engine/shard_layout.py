"""A log in PostgreSQL: into how many shards it is dealt out, where each is, and who may own it."""

# 1. ``FencedStore``: the process that opens it next owns it; the one before notices at the next commit.
# 2. ``LayoutStore``: into how many shards a log is dealt out, and in which schema each of them is.
# 3. ``ReadStore``, ``stores_of``: the log as it is, in one place or in several.

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psycopg
from psycopg import sql

from tacit.errors import ConfigError
from tacit.service.config.schema import Config, PlacementConfig, StoreConfig
from tacit.service.engine.fold import as_stored, new_spec
from tacit.service.errors import Fenced, StoreError
from tacit.service.log.postgres import NEXT, VERSION, PostgresStore
from tacit.service.log.store import End

# ---- A store that is taken from the owner before, even one that believes to own it still
#
# The advisory lock of the connection, which the next owner takes away, makes the one before notice
# early; what nobody can write past is the epoch.

__all__ = ["Fenced", "FencedStore"]

EVICT = (
    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND classid::bigint << 32 | objid::bigint = %s AND pid <> pg_backend_pid()"
)


class FencedStore(PostgresStore):
    """A :class:`~tacit.service.log.postgres.PostgresStore` that is taken from the owner before.

    Parameters are the same.

    Raises
    ------
    StoreError
        As there, but not because it is in use.
    """

    def _lock(self, connection: psycopg.Connection[Any]) -> None:
        made = connection.execute("SELECT to_regclass('owner')").fetchone() != (None,)
        if made and not self.epoch:
            self._check_version(self._one(connection, "SELECT version FROM store"), VERSION)
            number = (self._lock_number,)
            # A transaction that hangs must end before the epoch can change, and the process that comes
            # back before it has changed has the lock again.
            for statement, values in (EVICT, number), (NEXT, ()), (EVICT, number):
                connection.execute(statement, values)
        super()._lock(connection)


# ---- Into how many shards a log in PostgreSQL is dealt out, and where each of them is
#
# The schema of the configuration holds the layout, the placements with their seeds, and no rows; each
# shard has a schema of its own beside it, a whole store: ``tacit_g1s0`` is shard 0 of generation 1.
# Dealing the log out anew makes the next generation and leaves the one before as it was.

LONGEST_SCHEMA = 44
"""So that the number of a generation and of a shard find room after it."""


class Layout(NamedTuple):
    """How a log is dealt out.

    Attributes
    ----------
    generation : int
        From 1.
    shards : int
    """

    generation: int
    shards: int


class LayoutStore(PostgresStore):
    """The schema that holds a layout. The process that has it open runs the shards, or deals them out.

    Parameters and errors are those of :class:`~tacit.service.log.postgres.PostgresStore`.
    """

    def layout(self) -> Layout | None:
        """Return the latest layout; None if the log is in one place."""
        with self._reading() as connection:
            if connection.execute("SELECT to_regclass('shards')").fetchone() == (None,):
                return None
            row = connection.execute(
                "SELECT generation, shards FROM shards ORDER BY generation DESC LIMIT 1"
            ).fetchone()
        return None if row is None else Layout(*row)

    def begin(self, layout: Layout) -> None:
        """Let a layout be the latest one.

        Raises
        ------
        StoreError
            If the name of the schema is too long.
        """
        if len(self.schema) > LONGEST_SCHEMA:
            raise StoreError(
                f"store.schema: {self.schema!r} is too long for shards; give at most "
                f"{LONGEST_SCHEMA} characters"
            )
        with self._transaction() as writer:
            writer.execute(
                "CREATE TABLE IF NOT EXISTS shards (generation integer PRIMARY KEY, shards integer NOT NULL)"
            )
            writer.execute("INSERT INTO shards VALUES (%s, %s)", layout)

    def clear(self, layout: Layout) -> None:
        """Remove the stores of a layout, if there are any."""
        for shard in range(layout.shards):
            with self._transaction() as writer:
                writer.execute(
                    sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(
                        sql.Identifier(schema_of(self.schema, layout, shard))
                    )
                )

    def begun(self, shards: int | None, default: int) -> Layout:
        """Return the layout to serve with; a new one if nothing was logged yet.

        Parameters
        ----------
        shards : int or None
            How many there must be; None for as many as there are.
        default : int
            How many a new log has then.

        Raises
        ------
        ConfigError
            If the log is dealt out to another number of shards, or is that of a single server.
        """
        found = self.layout()
        wanted = shards or (found.shards if found else default)
        if found is not None:
            if wanted != found.shards:
                raise ConfigError(
                    f"--shards: {wanted} is not what the log is dealt out to; give {found.shards}, "
                    f"or deal it out anew with: tacit log reshard --shards {wanted}"
                )
            return found
        if self.end().seq:
            raise ConfigError(
                f"store.schema: {self.schema} holds the log of a single server; deal it out with: "
                f"tacit log reshard --shards {wanted}, or give another schema"
            )
        self.begin(made := Layout(1, wanted))
        return made

    def seeded(self, config: Config, new_seed: Callable[[], int]) -> Config:
        """Return the configuration with the policies and seeds that all shards share.

        Raises
        ------
        ConfigError
            If a placement has learned with another policy, other arms or another seed.
        """
        placements = {name: self._shared(name, each, new_seed()) for name, each in config.placements.items()}
        return msgspec.structs.replace(config, placements=placements)

    def _shared(self, name: str, config: PlacementConfig, new_seed: int) -> PlacementConfig:
        stored = self.placement(
            name, new_spec(config.policy), new_seed if config.seed is None else config.seed
        )
        return as_stored(name, config, stored)


def check_starts(config: Config) -> None:
    """Check that all placements can be dealt out.

    Raises
    ------
    ConfigError
        If one starts from a learner.
    """
    for name, each in config.placements.items():
        if each.start is not None:
            raise ConfigError(
                f"placements.{name}.start: shards start from nothing; serve it without --ray, or leave it out"
            )


def schema_of(schema: str, layout: Layout, shard: int) -> str:
    """Return the schema of a shard.

    Examples
    --------
    >>> schema_of("tacit", Layout(generation=2, shards=3), shard=0)
    'tacit_g2s0'
    """
    return f"{schema}_g{layout.generation}s{shard}"


def shard_store(config: StoreConfig, layout: Layout, shard: int) -> StoreConfig:
    """Return where the log of a shard is, and a folder of its own for what is too old."""
    schema = schema_of(config.schema, layout, shard)
    archive = config.archive and str(Path(config.archive) / schema)
    return msgspec.structs.replace(config, schema=schema, archive=archive)


class ReadStore(LayoutStore):
    """The log as it is at one moment, served or not: it is neither taken over nor written.

    Parameters are those of :class:`~tacit.service.log.postgres.PostgresStore`.

    Raises
    ------
    StoreError
        If there is no log, or one of another version; by whatever would write.
    """

    def _open(self) -> None:
        with contextlib.ExitStack() as cleanup, self._named_errors():
            # All that is read is of one transaction, which begins with the first statement.
            self._reader = cleanup.enter_context(psycopg.connect(self._conninfo))
            self._reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            self._reader.read_only = True
            if self._one(self._reader, "SELECT to_regclass(?)", f"{self.schema}.store") is None:
                raise StoreError(f"{self._where}: there is no log; give the schema that was served")
            self._check_version(self._one(self._reader, "SELECT version FROM store"), VERSION)
            self.salt = self._one(self._reader, "SELECT salt FROM store")
            self._cleanup = cleanup.pop_all()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[psycopg.Connection[Any]]:
        with self._named_errors():
            yield self._reader

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection[Any]]:
        raise StoreError(f"{self._where} is open for reading only")
        yield

    def end(self) -> End:
        """Return where the log ends."""
        with self._reading() as connection:
            return self._last(connection)

    def renew(self) -> None:
        """Let it be as it is at the next look."""
        with self._named_errors():
            self._reader.rollback()


def stores_of(config: StoreConfig, *, reading: bool = False) -> list[StoreConfig]:
    """Return where the log is: in one place, or in that of each shard.

    Where it is only to be read, it may be served meanwhile.

    Raises
    ------
    StoreError
        If the store cannot be opened.
    """
    assert config.url is not None
    with contextlib.closing((ReadStore if reading else LayoutStore)(config.url, config.schema)) as store:
        layout = store.layout()
    if layout is None:
        return [config]
    return [shard_store(config, layout, shard) for shard in range(layout.shards)]
