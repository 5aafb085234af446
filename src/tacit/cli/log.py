"""``tacit log``: check, export and import the log of the decision service."""

from __future__ import annotations

from pathlib import Path

import click

from tacit.cli.options import json_option, show
from tacit.cli.store import placements_option, service_log, store_option


@click.group()
def log() -> None:
    """Check, export or import the log of the decision service."""


@log.command()
@placements_option
@store_option
@json_option
def verify(config: Path | None, store: str | None, as_json: bool) -> None:
    """Fold the log anew and compare with what the snapshots lead to."""
    with service_log(config, store) as (configuration, opened):
        from tacit.service.log import verify as check

        wrong = check(configuration, opened)
        rows = opened.end().seq
    text = "\n".join(wrong) or f"the log and what was learned agree, up to row {rows:,}"
    show({"rows": rows, "differences": wrong}, text, as_json)
    if wrong:
        raise SystemExit(1)


@log.command()
@placements_option
@store_option
@json_option
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def export(config: Path | None, store: str | None, as_json: bool, folder: Path) -> None:
    """Write the log to FOLDER, as Parquet."""
    with service_log(config, store) as (configuration, opened):
        from tacit.service.log import export as write

        counts = write(configuration, opened, folder)
    show(counts, "\n".join(f"{n:>12,}  {name}.parquet" for name, n in counts.items()), as_json)


@log.command(name="import")
@placements_option
@store_option
@json_option
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def import_log(config: Path | None, store: str | None, as_json: bool, folder: Path) -> None:
    """Fill an empty store with the log that was exported to FOLDER."""
    with service_log(config, store) as (_, opened):
        from tacit.service.log import take_in

        count = take_in(opened, folder)
    show({"rows": count}, f"{count:,} rows", as_json)
