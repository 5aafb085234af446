"""The commands ``tacit serve``, ``tacit key`` and ``tacit log``.

1. ``StoreOptions``: options of the store, and opening it, for all commands.
2. ``serve`` and ``key``.
3. Commands for the log: verify, export, follow, import, backup, forget, reshard.
"""

import json
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import click

from tacit.cli import options
from tacit.core.text import escape_controls
from tacit.errors import AssumptionWarning, ConfigError, TacitError, needing

if TYPE_CHECKING:
    from tacit.service.config.schema import Config
    from tacit.service.maintenance.log_export import LogLine


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """Options of the decision service's configuration and log.

    Parameters
    ----------
    config
        TOML file of the service; by default one placement named default.
        store
        The log: an SQLite file, or postgresql://user@host/database.
    """

    config: options.Configuration | None = None
    store: str | None = None

    def configuration(self, **more: Any) -> "Config":
        """Return the configuration of the service, with the given overrides."""
        with needing("service"):
            from tacit.service.config.file import load_config
        place = "store.url" if self.store and "://" in self.store else "store.path"
        return load_config(self.config, {place: self.store, **more})

    @contextmanager
    def open(self) -> Iterator[Any]:
        """Open the configured store."""
        with options.usage():
            configuration = self.configuration()
        from tacit.service.engine.stores import open_store

        with closing(open_store(configuration.store)) as opened:
            yield opened

    @contextmanager
    def open_to_read(self) -> Iterator[Any]:
        """Open the configured store read-only in its current state, without owning it."""
        with options.usage():
            store = self.configuration().store
        from tacit.service.engine.stores import open_to_read

        if store.url is not None:
            from tacit.service.engine.shard_layout import stores_of

            if len(stores_of(store, reading=True)) > 1:
                raise click.UsageError("--store: it is dealt out to shards; give the schema of one of them")
        with closing(open_to_read(store)) as opened:
            yield opened

    def open_each(self, *, reading: bool = False, made: bool = False) -> Iterator[tuple[str, Any, Any]]:
        """Open the configured stores one after the other: that of a single server, or of each shard.

        Stores that are opened read-only may be in use. With ``may_create``, a missing file is created.

        Yield each store's name (empty for that of a single server), the configuration and the store.
        """
        with options.usage():
            configuration = self.configuration()
        path = Path(configuration.store.path)
        if configuration.store.url is None and not (made or path.exists()):
            raise click.UsageError(
                f"--store: there is no log at {path}; give another, or the service's --config"
            )
        from tacit.service.engine.stores import open_store

        parts = [configuration.store]
        if configuration.store.url is not None:
            from tacit.service.engine.shard_layout import stores_of

            parts = stores_of(configuration.store, reading=reading)
        for number, part in enumerate(parts):
            with closing(_as_it_is(part) if reading else open_store(part)) as opened:
                yield "" if part == configuration.store else f"shard-{number}", configuration, opened


def _as_it_is(part: Any) -> Any:
    """Open a store read-only in its current state, even if it is in use."""
    from tacit.service.engine.stores import open_store, open_to_read
    from tacit.service.errors import InUse

    try:
        return open_to_read(part) if part.url is not None else open_store(part)
    except InUse:
        return open_to_read(part)


logger = logging.getLogger(__name__)

SERVICE = "tacit.toml"
"""Name of the service's configuration file in all examples."""


@options.command()
def serve(
    log: StoreOptions,
    *,
    host: str | None = None,
    port: Annotated[int, click.IntRange(0, 65535)] | None = None,
    cluster: options.Ray | None = None,
    shards: Annotated[int, click.IntRange(1, 1024)] | None = None,
    ingresses: Annotated[int, click.IntRange(1, 64)] = 1,
    merge_seconds: Annotated[float, click.FloatRange(0.0, 86_400.0, min_open=True)] = 1.0,
    clock_is_right: bool = False,
    skip_damaged: bool = False,
) -> None:
    """Run the decision service, until Ctrl-C or SIGTERM.

    Parameters
    ----------
    host
        Address to listen on.  [default: 127.0.0.1]
    port
        Port; 0 selects a free one.
    cluster
        Requires --store postgresql://…
    shards
        With --ray: number of shards of the keys.  [default: that of the log, or one per core]
    ingresses
        With --ray: number of processes on this machine that serve at the address.
    merge_seconds
        With --ray: seconds between exchanges of what shards learned for all keys.
    clock_is_right
        Start even if the clock is far ahead of the last row and rows are dropped by age.
    skip_damaged
        Permanently remove damaged rows from the log, and continue without them.
    """
    with needing("service"):
        from tacit.service.app.logging_setup import log_the_uncaught, set_up
        from tacit.service.app.server import serve as run
        from tacit.service.errors import AddressUnavailable

    if shards is not None and cluster is None:
        raise click.UsageError("--shards: only with --ray")
    if ingresses > 1 and cluster is None:
        raise click.UsageError("--ingresses: only with --ray")
    overrides: dict[str, Any] = {"server.host": host, "server.port": port}
    if clock_is_right:
        overrides["store.clock_is_right"] = True

    def reread() -> "Config":
        return log.configuration(**overrides)

    if log.config is None and os.path.isfile(SERVICE):
        doubt = f"--config: {SERVICE} lies here and was not read; give --config {SERVICE}"
        warnings.warn(doubt, AssumptionWarning, stacklevel=2)
    with options.usage():
        configuration = reread()
    form = configuration.server.log
    set_up(form)
    log_the_uncaught()
    try:
        if skip_damaged:
            _leave_out_damaged(log)
        if cluster is None:
            run(configuration, reread=reread)
        else:
            from tacit.cluster.serving import serve as run_on_ray

            run_on_ray(
                configuration,
                cluster,
                shards,
                merge_seconds=merge_seconds,
                ingresses=ingresses,
                reread=reread,
            )
    except TacitError as error:
        # A supervisor must not restart the service for an invalid configuration, which would fail again.
        wrong = isinstance(error, ConfigError) and not isinstance(error, AddressUnavailable)
        end(error, wrong, form)


def _leave_out_damaged(log: StoreOptions) -> None:
    from tacit.service.log.store import rows_text

    for name, _, opened in log.open_each(made=True):
        if damaged := opened.damaged():
            opened.leave_out(damaged)
            shard, lost = f" {name}:" * bool(name), rows_text(damaged)
            logger.warning("store:%s left out for good, as they were damaged: %s", shard, lost)


def end(error: TacitError, wrong: bool, form: str) -> NoReturn:
    """Exit with an error, as a usage error if the configuration is invalid."""
    if form == "json":
        # The last line of a JSON log must be JSON, too.
        logging.getLogger("tacit").critical("%s", error)
        sys.exit(2 if wrong else 1)
    if wrong:
        raise options.WrongFile(str(error)) from error
    raise error


@options.command()
def key(
    name: str,
    *,
    scopes: Annotated[
        tuple[Literal["decide", "feedback", "read", "admin"], ...], options.Typed(("--scope",))
    ] = ("decide", "feedback"),
    placements: Annotated[tuple[str, ...], options.Typed(("--placement",))] = (),
    as_json: options.Json = False,
) -> None:
    """Create an API key for the decision service; only its hash goes into the configuration.

    Parameters
    ----------
    scopes
        Scope of the key; can be given more than once.
    placements
        A placement that the key may access, or a pattern of names such as 'shop-*'; by default all; can be
        given more than once.
    """
    with needing("service"):
        from tacit.service.config.keys import KeyConfig, new_key
    made, sha256 = new_key()
    with options.usage():
        KeyConfig(sha256, [], [*placements] or None).check()
    table = name if re.fullmatch("[A-Za-z0-9_-]+", name) else json.dumps(name)
    text = (
        f"{made}\n\nThis is the key; it is shown once. Add to the configuration:\n\n"
        f'[keys.{table}]\nsha256 = "{sha256}"\nscopes = {json.dumps(scopes)}'
    )
    content = {"name": name, "key": made, "sha256": sha256, "scopes": scopes}
    if placements:
        text += f"\nplacements = {json.dumps(placements)}"
        content["placements"] = placements
    options.show(content, text, as_json)


@click.group(cls=options.ExplainedGroup)
def log() -> None:
    """Check, export, import, back up or reshard the log of the decision service."""
    # Other users must not read the files.
    os.umask(0o077)


@options.command(group=log)
def verify(kept: StoreOptions, *, as_json: options.Json = False) -> None:
    """Check every row and index, replay the log and compare the result with the snapshots."""
    wrong, rows = [], 0
    for name, configuration, opened in kept.open_each():
        from tacit.service.maintenance.doctor import verify as check

        found = check(configuration, opened)
        wrong += [f"{name}: {each}" if name else each for each in found]
        rows += opened.end().seq
    text = "\n".join(wrong) or f"the log and what was learned agree, up to row {rows:,}"
    options.show({"rows": rows, "differences": wrong}, text, as_json)
    if wrong:
        raise SystemExit(1)


LIKE_FILES = (".parquet", ".csv", ".json", ".jsonl", ".ndjson", ".xlsx", ".db")


@options.command(group=log)
def export(
    folder: options.NewFolder,
    kept: StoreOptions,
    *,
    format: Literal["parquet", "ubi"] = "parquet",
    as_json: options.Json = False,
) -> None:
    """Write the log to FOLDER; each shard's log to a separate folder in it.

    The service may be running: the current state of the log is written. The configuration defines the
    rewards: only its placements have click logs, in clicks.parquet.

    Parameters
    ----------
    format
        Parquet, which can be imported, or records of User Behavior Insights as JSON lines.
    """
    if folder.suffix in LIKE_FILES and not folder.is_dir():
        what = f"{folder} is called as a file; several files come into it: give a folder, such as exported"
        raise click.BadParameter(what, param_hint="'FOLDER'")
    counts: dict[str, int] = {}
    # Files of shards are one level below; deeper levels may have many other files.
    files = [*folder.glob("*.*"), *folder.glob("*/*.*")]
    before = {path.relative_to(folder).as_posix() for path in files}
    for name, configuration, opened in kept.open_each(reading=True):
        if format == "ubi":
            from tacit.service.maintenance.ubi_export import export_ubi

            written = export_ubi(opened, folder / name)
        else:
            from tacit.service.maintenance.log_export import export as write

            written = write(configuration, opened, folder / name)
        counts |= {f"{name}/{file}" if name else file: n for file, n in written.items()}
        unknown = sorted(opened.placements().keys() - configuration.placements.keys())
        if unknown and format == "parquet":
            what = f"placements: {', '.join(unknown)}: not in the configuration, so no click log has them"
            lacking = "" if "clicks" in written else ", and there is no clicks.parquet"
            click.echo(f"{what}{lacking}; give --config", err=True)
    suffix = "ndjson" if format == "ubi" else "parquet"
    lines = (f"{n:>12,}  {name}.{suffix}" for name, n in counts.items())
    replaced = [file for name in counts if (file := f"{name}.{suffix}") in before]
    options.show(counts, "\n".join(lines) + _in_place_of(replaced), as_json)


def _in_place_of(files: list[str]) -> str:
    """Return a note that existing files were replaced, or an empty text."""
    return f"\n{', '.join(files)}: replaced, as such files were there" if files else ""


@options.command(group=log, name="follow")
def follow_log(
    kept: StoreOptions, *, after: Annotated[int, click.IntRange(0)] = 0, once: bool = False
) -> None:
    """Print the rows of the log as JSON lines, and follow the running service until Ctrl-C.

    Each row is printed once, in order of its number, seq, so a reader can resume after the last row it
    received.

    Parameters
    ----------
    after
        Start after the row with this number.
    once
        Stop at the current end of the log.
    """
    from tacit.service.maintenance.log_export import follow

    with kept.open_to_read() as opened, options.interruptible() as stopping:
        follow(opened, _show_lines, after, stopping, once=once)


def _show_lines(lines: "Sequence[LogLine]") -> None:
    click.echo("\n".join(escape_controls(line.text) for line in lines))


@options.command(group=log, name="import")
def import_log(folder: options.Folder, kept: StoreOptions, *, as_json: options.Json = False) -> None:
    """Import a log that was exported to FOLDER into an empty store."""
    if not (folder / "placements.json").is_file():
        # Check before a store is created.
        raise click.UsageError(f"FOLDER: {folder} holds no log; give one that tacit log export wrote")
    with kept.open() as opened:
        from tacit.service.maintenance.log_export import take_in

        count = take_in(opened, folder)
    options.show({"rows": count}, f"{count:,} rows", as_json)


@options.command(group=log, name="backup")
def back_up(target: options.NewFile, kept: StoreOptions, *, as_json: options.Json = False) -> None:
    """Copy an SQLite store to TARGET, even while the service is running."""
    with options.usage():
        configuration = kept.configuration()
    if configuration.store.url is not None:
        schema = configuration.store.schema
        raise click.UsageError(f"--store: back up PostgreSQL with: pg_dump --schema {schema} …")
    from tacit.service.log.archive import backup

    replaced = [target.name] * target.exists()
    size = backup(configuration.store.path, target)
    options.show({"bytes": size}, f"{size:,} bytes: {target}{_in_place_of(replaced)}", as_json)


@options.command(group=log)
def forget(
    kept: StoreOptions,
    *,
    user: str | None = None,
    session: str | None = None,
    client: str | None = None,
    url: str | None = None,
    key: Annotated[str, options.Typed(envvar="TACIT_PLACEMENT_KEY")] | None = None,
    backups: options.Folder | None = None,
    as_json: options.Json = False,
) -> None:
    """Erase a person's data from the log, its archive and its records; the learned state stays.

    A second run finds nothing. Existing backups are not changed.

    Parameters
    ----------
    user
        Forget a user: the user of requests, or client_id of UBI.
    session
        Forget a session.
    client
        Forget a client_id of User Behavior Insights.
    url
        Address of the service, if it is running.
    key
        Its API key; better set as TACIT_PLACEMENT_KEY.
    backups
        List the backups in this folder that contain the person's data.
    """
    named = {"user": user, "session": session, "client": client}
    given = [(kind, name) for kind, name in named.items() if name is not None]
    if len(given) != 1:
        raise click.UsageError("give one of --user, --session and --client")
    (kind, name) = given[0]
    # Before anything is erased, because a backup may be unreadable.
    holding = _holding(backups, kind, name)
    if url is not None:
        blanked = _forget_at(url, key, kind, name)
    else:
        from tacit.service.errors import InUse
        from tacit.service.log.store import added
        from tacit.service.maintenance.doctor import forget as blank

        parts = (blank(each, opened, kind, name) for _, each, opened in kept.open_each())
        try:
            blanked = {place: found._asdict() for place, found in added(*parts).items()}
        except InUse as error:
            raise InUse(f"{error}; or let the service do it: --url http://127.0.0.1:8787") from error
    lines = [
        f"{place}: {found['decisions']:,} decisions, {found['records']:,} records blanked"
        for place, found in blanked.items()
    ] or [f"nothing tells of this {kind}"]
    lines += [f"holds the person, as before: {path}" for path in holding]
    options.show({"placements": blanked, "backups": holding}, "\n".join(lines), as_json)


def _forget_at(url: str, key: str | None, kind: str, name: str) -> dict[str, dict[str, int]]:
    """Make a running service erase a person's data."""
    from urllib.error import HTTPError
    from urllib.parse import quote
    from urllib.request import Request, urlopen

    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    address = f"{url.rstrip('/')}/v1/subjects/{kind}/{quote(name, safe='')}"
    try:
        with urlopen(Request(address, headers=headers, method="DELETE")) as answer:  # noqa: S310
            blanked: dict[str, dict[str, int]] = json.load(answer)["placements"]
    except HTTPError as error:
        raise click.ClickException(json.load(error).get("detail", str(error))) from error
    except OSError as error:
        raise click.ClickException(f"--url: nothing answers at {url}: {error}") from error
    return blanked


def _holding(folder: Path | None, kind: str, name: str) -> list[str]:
    """Return the backups in a folder that contain a person's data."""
    if folder is None:
        return []
    from tacit.service.maintenance.doctor import holds

    files = sorted(path for path in folder.iterdir() if path.is_file())
    return [str(path) for path in files if holds(path, kind, name)]


@options.command(group=log)
def reshard(
    kept: StoreOptions,
    *,
    shards: Annotated[int, click.IntRange(1, 1024)],
    drop: bool = False,
    as_json: options.Json = False,
) -> None:
    """Distribute the log to another number of shards, or that of a single server to shards.

    Stop the service first. The existing shards are unchanged until all rows are copied.

    Parameters
    ----------
    shards
        New number of shards.
    drop
        Remove the old shards at the end.
    """
    with options.usage():
        configuration = kept.configuration()
    from tacit.service.maintenance.resharding import reshard as deal

    rows = deal(configuration, shards, drop=drop)
    text = "\n".join(f"{n:>12,}  rows of shard {shard}" for shard, n in enumerate(rows))
    options.show({"shards": rows}, text, as_json)
