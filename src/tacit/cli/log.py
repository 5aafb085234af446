"""``tacit log``: check, export, import, back up and deal out the log of the decision service."""

from __future__ import annotations

from pathlib import Path

import click

from tacit.cli.options import json_option, show, usage
from tacit.cli.store import (
    placements_option,
    service_config,
    service_log,
    service_logs,
    store_option,
)


@click.group()
def log() -> None:
    """Check, export, import, back up or deal out the log of the decision service."""


@log.command()
@placements_option
@store_option
@json_option
def verify(config: Path | None, store: str | None, as_json: bool) -> None:
    """Look at every row and index, fold the log anew and compare with the snapshots."""
    wrong, rows = [], 0
    for name, configuration, opened in service_logs(config, store):
        from tacit.service.maintenance.verify import verify as check

        found = check(configuration, opened)
        wrong += [f"{name}: {one}" if name else one for one in found]
        rows += opened.end().seq
    text = "\n".join(wrong) or f"the log and what was learned agree, up to row {rows:,}"
    show({"rows": rows, "differences": wrong}, text, as_json)
    if wrong:
        raise SystemExit(1)


@log.command()
@placements_option
@store_option
@json_option
@click.option(
    "--format",
    default="parquet",
    show_default=True,
    type=click.Choice(["parquet", "ubi"]),
    help="Parquet, which can be imported, or records of User Behavior Insights as JSON lines.",
)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def export(
    config: Path | None, store: str | None, as_json: bool, format: str, folder: Path
) -> None:
    """Write the log to FOLDER; that of each shard to a folder of its own in it."""
    counts: dict[str, int] = {}
    for name, configuration, opened in service_logs(config, store):
        if format == "ubi":
            from tacit.service.ubi.export import export_ubi

            written = export_ubi(opened, folder / name)
        else:
            from tacit.service.maintenance.export import export as write

            written = write(configuration, opened, folder / name)
        counts |= {f"{name}/{file}" if name else file: n for file, n in written.items()}
    suffix = "ndjson" if format == "ubi" else "parquet"
    show(counts, "\n".join(f"{n:>12,}  {name}.{suffix}" for name, n in counts.items()), as_json)


@log.command(name="import")
@placements_option
@store_option
@json_option
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def import_log(config: Path | None, store: str | None, as_json: bool, folder: Path) -> None:
    """Fill an empty store with the log that was exported to FOLDER."""
    with service_log(config, store) as (_, opened):
        from tacit.service.maintenance.take_in import take_in

        count = take_in(opened, folder)
    show({"rows": count}, f"{count:,} rows", as_json)


@log.command(name="backup")
@placements_option
@store_option
@json_option
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
def back_up(config: Path | None, store: str | None, as_json: bool, target: Path) -> None:
    """Copy the store to TARGET while the service runs: an SQLite file."""
    with usage():
        configuration = service_config(config, store)
    if configuration.store.url is not None:
        schema = configuration.store.schema
        raise click.UsageError(f"--store: back up PostgreSQL with: pg_dump --schema {schema} …")
    from tacit.service.stores.backup import backup

    size = backup(configuration.store.path, target)
    show({"bytes": size}, f"{size:,} bytes: {target}", as_json)


@log.command()
@placements_option
@store_option
@click.option(
    "--shards", required=True, type=click.IntRange(1, 1024), help="How many there shall be."
)
@click.option("--drop", is_flag=True, help="Remove the shards there were, once all is done.")
@json_option
def reshard(config: Path | None, store: str | None, shards: int, drop: bool, as_json: bool) -> None:
    """Deal the log out to other shards, or that of a single server to shards.

    Stop the service before. Until all is done nothing has changed.
    """
    with usage():
        configuration = service_config(config, store)
    from tacit.service.maintenance.resharding import reshard as deal

    rows = deal(configuration, shards, drop=drop)
    text = "\n".join(f"{n:>12,}  rows of shard {shard}" for shard, n in enumerate(rows))
    show({"shards": rows}, text, as_json)
