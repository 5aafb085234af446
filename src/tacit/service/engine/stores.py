"""Open the store that a configuration names, to write it, or to read it while another process writes."""

from __future__ import annotations

from tacit.errors import MissingExtra
from tacit.service.config.schema import StoreConfig
from tacit.service.errors import StoreError
from tacit.service.log.sql import Store


def open_store(config: StoreConfig) -> Store:
    """Open the store that a configuration names, in PostgreSQL or SQLite, and take its ownership.

    Raises
    ------
    MissingExtra
        If a package for the store is not installed.
    StoreError
        If the store cannot be opened, or its log is distributed over shards.
    """
    if config.url is not None:
        from tacit.service.engine.shard_layout import read_layout
        from tacit.service.log.postgres import PostgresStore

        store = PostgresStore(config.url, config.schema)
        layout = read_layout(store)
        if layout is not None:
            store.close()
            raise StoreError(
                f"store.schema: {config.schema} is dealt out to {layout.shards} shards; serve it "
                "with --ray, or each with --shard NUMBER/SHARDS, or give another schema"
            )
        return store
    try:
        from tacit.service.log.sqlite import SqliteStore
    except ModuleNotFoundError as error:
        raise MissingExtra(error.name or "apsw", "service") from error
    return SqliteStore(config.path)


def open_to_read(config: StoreConfig) -> Store:
    """Open a read-only view of the store that a configuration names, without owning the store.

    Raises
    ------
    StoreError
        If there is no store, or one of another version.
    """
    if config.url is not None:
        from tacit.service.engine.shard_layout import ReadStore

        return ReadStore(config.url, config.schema)
    from tacit.service.log.sqlite import ReadSqlite

    return ReadSqlite(config.path)
