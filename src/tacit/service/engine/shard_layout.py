"""The shard layout of a log in PostgreSQL: the number of shards, their schemas, and ownership."""

# 1. ``FencedStore``: the process that opens it takes ownership; the previous owner's next commit fails.
# 2. ``read_layout`` to ``shard_store``: the number of shards of a log, and the schema of each.
# 3. ``ReadStore``, ``list_stores``: read-only views, and the stores of a log.

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
from tacit.service.engine.fold import to_spec, with_stored_policy
from tacit.service.errors import Fenced, NoStore, StoreError
from tacit.service.log.postgres import NEXT_EPOCH, VERSION, PostgresStore, lock_number
from tacit.service.log.sql import check_version
from tacit.service.log.store import End

# ---- A store that takes ownership from another process, even from a running one
#
# Ending the other connection, which holds the advisory lock, lets its process notice early; the epoch fences
# off its writes.

__all__ = ["Fenced", "FencedStore"]

EVICT = (
    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND classid::bigint << 32 | objid::bigint = %s AND pid <> pg_backend_pid()"
)


class FencedStore(PostgresStore):
    """A :class:`~tacit.service.log.postgres.PostgresStore` that takes ownership from another process.

    It has the same parameters.

    Raises
    ------
    StoreError
        As there, but not because the store is in use.
    """

    def _lock(self, connection: psycopg.Connection[Any]) -> None:
        """Take ownership: end the connections of the previous owner, increment the epoch, then lock."""
        has_owner = connection.execute("SELECT to_regclass('owner')").fetchone() != (None,)
        # With an epoch, this process has owned the log: when it reconnects, it takes it from nobody.
        if has_owner and not self.epoch:
            check_version(self.location, self.select_one(connection, "SELECT version FROM store"), VERSION)
            number = (lock_number(self.schema),)
            # A hanging transaction must end before the epoch can change; and a process that reconnects
            # before the change has the lock again, and is ended a second time.
            for statement, values in (EVICT, number), (NEXT_EPOCH, ()), (EVICT, number):
                connection.execute(statement, values)
        super()._lock(connection)


# ---- The number of shards of a log in PostgreSQL, and their schemas
#
# The configured schema contains the layout, and the placements with their seeds, but no rows. Each shard has
# its own schema with a complete store: ``tacit_g1s0`` is shard 0 of generation 1. Resharding creates the next
# generation and leaves the previous one unchanged.

LONGEST_SCHEMA = 44
"""Longest schema name that leaves room for the numbers of a generation and a shard."""


class Layout(NamedTuple):
    """The generation and the number of shards of a log.

    Attributes
    ----------
    generation : int
        From 1.
    shards : int
    """

    generation: int
    shards: int


def read_layout(store: PostgresStore) -> Layout | None:
    """Return the latest layout; None if the log belongs to a single server."""
    with store.reading() as connection:
        if connection.execute("SELECT to_regclass('shards')").fetchone() == (None,):
            return None
        row = connection.execute(
            "SELECT generation, shards FROM shards ORDER BY generation DESC LIMIT 1"
        ).fetchone()
    return None if row is None else Layout(*row)


def begin_layout(store: PostgresStore, layout: Layout) -> None:
    """Store a layout as the latest one; create the table of layouts if it is missing.

    Raises
    ------
    StoreError
        If the name of the schema is too long.
    """
    if len(store.schema) > LONGEST_SCHEMA:
        raise StoreError(
            f"store.schema: {store.schema!r} is too long for shards; give at most {LONGEST_SCHEMA} characters"
        )
    with store.transaction() as writer:
        writer.execute(
            "CREATE TABLE IF NOT EXISTS shards (generation integer PRIMARY KEY, shards integer NOT NULL)"
        )
        writer.execute("INSERT INTO shards VALUES (%s, %s)", layout)


def clear_layout(store: PostgresStore, layout: Layout) -> None:
    """Delete the schemas of all shards of a layout with their rows, if they exist."""
    for shard in range(layout.shards):
        with store.transaction() as writer:
            writer.execute(
                sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(
                    sql.Identifier(name_schema(store.schema, layout, shard))
                )
            )


def ensure_layout(store: PostgresStore, shards: int | None, default: int) -> Layout:
    """Return the layout to serve with; store a new one of generation 1 if the log is empty.

    Parameters
    ----------
    shards : int or None
        Required number of shards; None for any.
    default : int
        Number of shards of a new log if ``shards`` is None.

    Raises
    ------
    ConfigError
        If the log has another number of shards, or belongs to a single server.
    """
    stored_layout = read_layout(store)
    shard_count = shards or (stored_layout.shards if stored_layout else default)
    if stored_layout is not None:
        if shard_count != stored_layout.shards:
            raise ConfigError(
                f"--shards: {shard_count} is not what the log is dealt out to; "
                f"give {stored_layout.shards}, "
                f"or deal it out anew with: tacit log reshard --shards {shard_count}"
            )
        return stored_layout
    if store.end().seq:
        raise ConfigError(
            f"store.schema: {store.schema} holds the log of a single server; deal it out with: "
            f"tacit log reshard --shards {shard_count}, or give another schema"
        )
    begin_layout(store, layout := Layout(1, shard_count))
    return layout


def add_stored_seeds(store: PostgresStore, config: Config, new_seed: Callable[[], int]) -> Config:
    """Return the configuration with the stored policy and seed of each placement, which all shards share.

    New placements are created in the store, with their configured seed or one from ``new_seed``.

    Raises
    ------
    ConfigError
        If a placement has learned with another policy, other arms or another seed.
    """
    placements = {
        name: _with_stored_policy(store, name, placement_config, new_seed())
        for name, placement_config in config.placements.items()
    }
    return msgspec.structs.replace(config, placements=placements)


def _with_stored_policy(
    store: PostgresStore, name: str, config: PlacementConfig, new_seed: int
) -> PlacementConfig:
    """Return a placement's configuration with its stored policy and seed; create it in the store if new."""
    stored = store.placement(name, to_spec(config.policy), new_seed if config.seed is None else config.seed)
    return with_stored_policy(name, config, stored)


def check_starts(config: Config) -> None:
    """Check that no placement of a configuration has a setting that shards cannot serve.

    Raises
    ------
    ConfigError
        If a placement starts from a learner, or keeps what users were shown.
    """
    for name, placement_config in config.placements.items():
        if placement_config.start is not None:
            raise ConfigError(
                f"placements.{name}.start: shards start from nothing; serve it without --ray, or leave it out"
            )
        if placement_config.sticky is not None:
            raise ConfigError(
                f"placements.{name}.sticky: shards do not know each other's users; serve it without --ray, "
                "or leave it out"
            )


def name_schema(schema: str, layout: Layout, shard: int) -> str:
    """Return the name of a shard's schema.

    Examples
    --------
    >>> name_schema("tacit", Layout(generation=2, shards=3), shard=0)
    'tacit_g2s0'
    """
    return f"{schema}_g{layout.generation}s{shard}"


def shard_store(config: StoreConfig, layout: Layout, shard: int) -> StoreConfig:
    """Return the configuration of a shard's store, with its own schema and archive folder."""
    schema = name_schema(config.schema, layout, shard)
    archive = config.archive and str(Path(config.archive) / schema)
    return msgspec.structs.replace(config, schema=schema, archive=archive)


class ReadStore(PostgresStore):
    """A read-only view of the log at one moment, also while a service writes it.

    Parameters as for :class:`~tacit.service.log.postgres.PostgresStore`.

    Raises
    ------
    StoreError
        If there is no log, or one of another version; by all writing methods.
    """

    def _open(self) -> None:
        """Connect to PostgreSQL for read-only transactions, check the log's version and read its salt.

        Raises
        ------
        StoreError
            If there is no log, or one of another version.
        """
        with contextlib.ExitStack() as cleanup, self._translate_errors():
            # All reads are in one transaction, which begins with the first statement.
            self._reader = cleanup.enter_context(psycopg.connect(self._conninfo))
            self._reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            self._reader.read_only = True
            if self.select_one(self._reader, "SELECT to_regclass(?)", f"{self.schema}.store") is None:
                raise NoStore(f"{self.location}: there is no log; give the schema that was served")
            check_version(self.location, self.select_one(self._reader, "SELECT version FROM store"), VERSION)
            self.salt = self.select_one(self._reader, "SELECT salt FROM store")
            self._cleanup = cleanup.pop_all()

    @contextlib.contextmanager
    def reading(self) -> Iterator[psycopg.Connection[Any]]:
        """In a ``with`` block: yield the connection.

        All reads see the log at one moment, until :meth:`renew`.
        """
        with self._translate_errors():
            yield self._reader

    @contextlib.contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """Raise StoreError, because the store is read-only."""
        raise StoreError(f"{self.location} is open for reading only")
        yield

    def end(self) -> End:
        """Return the number and the time of the last row that this view sees."""
        with self.reading() as connection:
            return self._select_end(connection)

    def renew(self) -> None:
        """End the read transaction, so that the next read sees the current log."""
        with self._translate_errors():
            self._reader.rollback()


def list_stores(config: StoreConfig, *, reading: bool = False) -> list[StoreConfig]:
    """Return the configurations of the stores of a log: one for a single server, or one for each shard.

    Opens the store for a moment to read its layout.

    Parameters
    ----------
    config : StoreConfig
        A store in PostgreSQL.
    reading : bool
        Whether to use a read-only view, which is possible while the log is served. By default the store is
        opened to write, which needs its ownership.

    Raises
    ------
    StoreError
        If the store cannot be opened.
    """
    assert config.url is not None
    with contextlib.closing((ReadStore if reading else PostgresStore)(config.url, config.schema)) as store:
        layout = read_layout(store)
    if layout is None:
        return [config]
    return [shard_store(config, layout, shard) for shard in range(layout.shards)]
