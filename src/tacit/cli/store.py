"""Where the decision service keeps its log, as commands are told it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from tacit.cli.options import usage
from tacit.errors import MissingExtra

placements_option = click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file of the service; by default one placement named default.",
)
store_option = click.option("--store", help="The log: an SQLite file, or postgresql://user@host/database.")


def store_place(store: str | None) -> dict[str, str | None]:
    """Return the setting that says where the log is."""
    return {"store.url" if store and "://" in store else "store.path": store}


def service_config(config: Path | None, store: str | None) -> Any:
    """Return the configuration of the service."""
    try:
        from tacit.service.config.file import load_config
    except ImportError as error:
        raise MissingExtra(error.name or "the service", "service") from error
    return load_config(config, store_place(store))


@contextmanager
def service_log(config: Path | None, store: str | None) -> Iterator[tuple[Any, Any]]:
    """Open the store of a configuration."""
    with usage():
        configuration = service_config(config, store)
    from tacit.service.engine.opening import open_store

    opened = open_store(configuration.store)
    try:
        yield configuration, opened
    finally:
        opened.close()


def service_logs(config: Path | None, store: str | None) -> Iterator[tuple[str, Any, Any]]:
    """Open one after the other the stores of a configuration: of one server, or of each shard.

    Gives what to call it (nothing for that of one server), the configuration and the store.
    """
    with usage():
        configuration = service_config(config, store)
    from tacit.service.engine.opening import open_store

    parts = [configuration.store]
    if configuration.store.url is not None:
        from tacit.service.engine.opening import partitions

        parts = partitions(configuration.store)
    for number, part in enumerate(parts):
        opened = open_store(part)
        try:
            yield "" if part == configuration.store else f"shard-{number}", configuration, opened
        finally:
            opened.close()
