"""``tacit log``: check, export, import, back up and deal out the log of the decision service."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import click

from tacit.cli.options import (
    json_option,
    placements_option,
    service_config,
    service_log,
    service_logs,
    show,
    store_option,
    usage,
)


@click.group()
def log() -> None:
    """Check, export, import, back up or deal out the log of the decision service."""
    # What is written is nobody else's to read.
    os.umask(0o077)


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
def export(config: Path | None, store: str | None, as_json: bool, format: str, folder: Path) -> None:
    """Write the log to FOLDER; that of each shard to a folder of its own in it."""
    counts: dict[str, int] = {}
    for name, configuration, opened in service_logs(config, store):
        if format == "ubi":
            from tacit.service.doors.ubi_export import export_ubi

            written = export_ubi(opened, folder / name)
        else:
            from tacit.service.maintenance.copies import export as write

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
        from tacit.service.maintenance.copies import take_in

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
    from tacit.service.log.archive import backup

    size = backup(configuration.store.path, target)
    show({"bytes": size}, f"{size:,} bytes: {target}", as_json)


@log.command()
@placements_option
@store_option
@click.option("--user", help="Forget a user: what requests called user, or UBI client_id.")
@click.option("--session", help="Forget a session.")
@click.option("--client", help="Forget a client_id of User Behavior Insights.")
@click.option("--url", help="Where the service answers, if it runs.")
@click.option("--key", envvar="TACIT_PLACEMENT_KEY", help="Its API key; better in TACIT_PLACEMENT_KEY.")
@click.option(
    "--backups",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Say which backups in this folder hold the person.",
)
@json_option
def forget(
    config: Path | None,
    store: str | None,
    url: str | None,
    key: str | None,
    backups: Path | None,
    as_json: bool,
    **named: str | None,
) -> None:
    """Blank what the log, its archive and its records tell of a person; what was learned stays.

    Done again it finds nothing. Backups that were made before are not changed.
    """
    given = [(kind, name) for kind, name in named.items() if name is not None]
    if len(given) != 1:
        raise click.UsageError("give one of --user, --session and --client")
    (kind, name) = given[0]
    if url is not None:
        done = _forget_at(url, key, kind, name)
    else:
        from tacit.service.maintenance.verify import forget as blank

        parts = [blank(each, opened, kind, name) for _, each, opened in service_logs(config, store)]
        done = {place: tuple(found) for part in parts for place, found in part.items()}
    holding = _holding(backups, kind, name)
    lines = [
        f"{place}: {decisions:,} decisions, {records:,} records blanked"
        for place, (decisions, records) in done.items()
    ] or [f"nothing tells of this {kind}"]
    lines += [f"holds the person, as before: {path}" for path in holding]
    found = {
        place: {"decisions": decisions, "records": records} for place, (decisions, records) in done.items()
    }
    show({"placements": found, "backups": holding}, "\n".join(lines), as_json)


def _forget_at(url: str, key: str | None, kind: str, name: str) -> dict[str, tuple[int, ...]]:
    """Let a service that runs forget somebody."""
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    address = f"{url.rstrip('/')}/v1/subjects/{kind}/{quote(name, safe='')}"
    try:
        with urlopen(Request(address, headers=headers, method="DELETE")) as answer:  # noqa: S310
            told = json.load(answer)["placements"]
    except HTTPError as error:
        raise click.ClickException(json.load(error).get("detail", str(error))) from error
    except OSError as error:
        raise click.ClickException(f"--url: nothing answers at {url}: {error}") from error
    return {place: (found["decisions"], found["records"]) for place, found in told.items()}


def _holding(folder: Path | None, kind: str, name: str) -> list[str]:
    """Return the backups in a folder that hold somebody."""
    if folder is None:
        return []
    from tacit.service.maintenance.verify import holds

    files = sorted(path for path in folder.iterdir() if path.is_file())
    return [str(path) for path in files if holds(path, kind, name)]


@log.command()
@placements_option
@store_option
@click.option("--shards", required=True, type=click.IntRange(1, 1024), help="How many there shall be.")
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
