"""The commands ``tacit serve``, ``tacit key`` and ``tacit log``.

1. ``StoreOptions``: options of the store, and opening it, for all commands.
2. ``serve`` and ``key``.
3. Commands for the log: verify, export, follow, import, backup, forget, reshard.
"""

import json
import logging
import os
import re
import shutil
import sys
import tomllib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import click

from tacit.cli import options
from tacit.core.text import escape_controls, no_toml
from tacit.errors import AssumptionWarning, ConfigError, InvalidValue, TacitError, require_extra
from tacit.lazy_imports import pause_collector

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

    def configuration(self, **overrides: Any) -> "Config":
        """Load the configuration file and return it, with the options' store and other values by dotted name.

        Raises ConfigError if it is invalid.
        """
        with require_extra("service"):
            from tacit.service.config.file import load_config
        setting = "store.url" if self.store and "://" in self.store else "store.path"
        return load_config(self.config, {setting: self.store, **overrides})

    @contextmanager
    def open(self) -> Iterator[Any]:
        """Open the configured store for writing in the ``with`` block, and close it at the end.

        Raises a usage error for an invalid configuration.
        """
        with options.usage_errors():
            configuration = self.configuration()
        from tacit.service.engine.stores import open_store

        with closing(open_store(configuration.store)) as opened:
            yield opened

    @contextmanager
    def open_to_read(self) -> Iterator[Any]:
        """Open the configured store read-only in its current state, without owning it, in the ``with`` block.

        Raises click.UsageError for a store of several shards.
        """
        with options.usage_errors():
            store = self.configuration().store
        from tacit.service.engine.stores import open_to_read

        if store.url is not None:
            from tacit.service.engine.shard_layout import list_stores

            if len(list_stores(store, reading=True)) > 1:
                raise click.UsageError("--store: it is dealt out to shards; give the schema of one of them")
        with closing(open_to_read(store)) as opened:
            yield opened

    def open_each(
        self, *, read_only: bool = False, may_create: bool = False
    ) -> Iterator[tuple[str, Any, Any]]:
        """Open the configured stores one after the other; yield name, configuration and store of each.

        There is one store per shard, or one with an empty name for a single server. It is closed when the
        next one is requested. Stores that are opened read-only may be in use. With ``may_create``, a missing
        file is created; otherwise it is a click.UsageError.
        """
        with options.usage_errors():
            configuration = self.configuration()
        path = Path(configuration.store.path)
        if configuration.store.url is None and not (may_create or path.exists()):
            message = f"--store: there is no log at {path}; give another, or the service's --config"
            raise click.UsageError(message)
        from tacit.service.engine.stores import open_store

        parts = [configuration.store]
        if configuration.store.url is not None:
            from tacit.service.engine.shard_layout import list_stores

            parts = list_stores(configuration.store, reading=read_only)
        for number, part in enumerate(parts):
            with closing(_open_unowned(part) if read_only else open_store(part)) as opened:
                yield "" if part == configuration.store else f"shard-{number}", configuration, opened


def _open_unowned(part: Any) -> Any:
    """Open a store in its current state, even if a service uses it, and return it.

    It is read-only if it is in use or in PostgreSQL.
    """
    from tacit.service.engine.stores import open_store, open_to_read
    from tacit.service.errors import InUse

    try:
        return open_to_read(part) if part.url is not None else open_store(part)
    except InUse:
        return open_to_read(part)


logger = logging.getLogger(__name__)

DEFAULT_CONFIG = "tacit.toml"
"""Name of the service's configuration file in all examples."""


@options.command()
def serve(
    log: StoreOptions,
    *,
    host: str | None = None,
    port: Annotated[int, click.IntRange(0, 65535)] | None = None,
    cluster: options.Ray | None = None,
    shards: Annotated[int, click.IntRange(1, 1024)] | None = None,
    shard: str | None = None,
    peers: Path | None = None,
    ingresses: int | None = None,
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
    shard
        Serve one of several shards, such as 2/8: number 2 of 0 to 7. Requires --store postgresql://…
    peers
        With --shard: file with the addresses of all shards, a line each, by number.
    ingresses
        No longer used: every shard answers.
    merge_seconds
        With shards: seconds between exchanges of what shards learned for all keys.
    clock_is_right
        Start even if the clock is far ahead of the last row and rows are dropped by age.
    skip_damaged
        Permanently remove damaged rows from the log, and continue without them.
    """
    # Collections would take a fifth of the time of the imports.
    with pause_collector(), require_extra("service"):
        from tacit.service.app.logging_setup import log_the_uncaught, set_up
        from tacit.service.app.server import serve as run
        from tacit.service.errors import AddressUnavailable

    if shards is not None and cluster is None:
        raise click.UsageError("--shards: only with --ray")
    if ingresses is not None:
        raise click.UsageError(
            "--ingresses: there are none any more; leave it out, and send requests to any shard"
        )
    if (shard is None) != (peers is None) or (shard is not None and cluster is not None):
        raise click.UsageError("--shard: give it together with --peers, and without --ray")
    overrides: dict[str, Any] = {"server.host": host, "server.port": port}
    if clock_is_right:
        overrides["store.clock_is_right"] = True

    load_again = partial(log.configuration, **overrides)
    if log.config is None and os.path.isfile(DEFAULT_CONFIG):
        message = f"--config: {DEFAULT_CONFIG} lies here and was not read; give --config {DEFAULT_CONFIG}"
        warnings.warn(message, AssumptionWarning, stacklevel=2)
    with options.usage_errors():
        configuration = load_again()
    log_format = configuration.server.log
    set_up(log_format)
    log_the_uncaught()
    try:
        if skip_damaged:
            _drop_damaged_rows(log)
        if shard is not None and peers is not None:
            from tacit.cluster.serving import serve_shard

            serve_shard(
                configuration, _parse_shard(shard), peers, reread=load_again, merge_seconds=merge_seconds
            )
        elif cluster is None:
            run(configuration, reread=load_again)
        else:
            from tacit.cluster.serving import serve as run_on_ray

            run_on_ray(configuration, cluster, shards, reread=load_again, merge_seconds=merge_seconds)
    except TacitError as error:
        # A supervisor must not restart the service for an invalid configuration, which would fail again.
        is_config_error = isinstance(error, ConfigError) and not isinstance(error, AddressUnavailable)
        exit_for_error(error, is_config_error, log_format)


def _parse_shard(text: str) -> Any:
    """Return the shard that ``--shard`` names, as in 2/8; raise click.UsageError for another text."""
    from tacit.service.log.ids import MOST_SHARDS, Shard

    match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
    number, shards = map(int, match.groups()) if match else (0, 0)
    if not number < shards <= MOST_SHARDS:
        raise click.UsageError(f"--shard: {text!r} is none; give a number from 0 and how many there are: 0/8")
    return Shard(number, shards)


def _drop_damaged_rows(log: StoreOptions) -> None:
    """Permanently remove damaged rows from the configured stores, and log which were removed."""
    from tacit.service.log.removal import find_damaged_rows, remove_damaged_rows
    from tacit.service.log.store import describe_rows

    for name, _, store in log.open_each(may_create=True):
        if damaged_rows := find_damaged_rows(store):
            remove_damaged_rows(store, damaged_rows)
            shard, lost_rows = f" {name}:" * bool(name), describe_rows(damaged_rows)
            logger.warning("store:%s left out for good, as they were damaged: %s", shard, lost_rows)


def exit_for_error(error: TacitError, is_config_error: bool, log_format: str) -> NoReturn:
    """Raise an error, as a FileError if the configuration is invalid; never return.

    For a JSON log, instead log the error and exit: with code 2 for an invalid configuration, else 1.
    """
    if log_format == "json":
        # The last line of a JSON log must be JSON, too.
        logging.getLogger("tacit").critical("%s", error)
        sys.exit(2 if is_config_error else 1)
    if is_config_error:
        raise options.FileError(str(error)) from error
    raise error


@options.command()
def key(
    name: str,
    *,
    scopes: Annotated[
        tuple[Literal["decide", "feedback", "read", "admin"], ...], options.OptionFormat(("--scope",))
    ] = ("decide", "feedback"),
    placements: Annotated[tuple[str, ...], options.OptionFormat(("--placement",))] = (),
    append: options.Configuration | None = None,
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
    append
        Add the key's table to the end of this configuration file.
    """
    with require_extra("service"):
        from tacit.service.config.keys import KeyConfig, new_key
    api_key, sha256 = new_key()
    with options.usage_errors():
        if not name.strip():
            raise InvalidValue("name", name, "say who has the key, such as shop")
        KeyConfig(sha256, [], [*placements] or None).check()
    table = name if re.fullmatch("[A-Za-z0-9_-]+", name) else json.dumps(name)
    table_text = f'[keys.{table}]\nsha256 = "{sha256}"\nscopes = {json.dumps(scopes)}'
    content = {"name": name, "key": api_key, "sha256": sha256, "scopes": scopes}
    if placements:
        table_text += f"\nplacements = {json.dumps(placements)}"
        content["placements"] = placements
    text = f"{api_key}\n\nThis is the key; it is shown once. "
    if append is None:
        text += f"Add to the configuration:\n\n{table_text}"
    else:
        append_table(append, table_text, name)
        text += f"Its hash is in {append}, as keys.{table}."
    options.print_result(content, text, as_json)


def append_table(path: Path, table: str, name: str) -> None:
    """Add the table of a key to the end of a configuration file, which is replaced only when complete.

    Raises click.UsageError if the file is no TOML, or has a key of that name.
    """
    try:
        before = path.read_text(encoding="utf-8")
        if name in tomllib.loads(before).get("keys", {}):
            raise click.UsageError(f"--append: {path} has a key {name!r} already; give another name")
        after = before.rstrip("\n") + f"\n\n{table}\n"
        tomllib.loads(after)  # raises if the table does not fit there
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--append: {path}: {no_toml(error)}") from error
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(after.lstrip("\n"), encoding="utf-8")
        shutil.copymode(path, temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@click.group(cls=options.ExplainedGroup)
def log() -> None:
    """Check, export, import, back up or reshard the log of the decision service."""
    # Other users must not read the files.
    os.umask(0o077)


@options.command(group=log)
def verify(store_options: StoreOptions, *, as_json: options.Json = False) -> None:
    """Check every row and index, replay the log and compare the result with the snapshots."""
    all_differences, rows = [], 0
    for name, configuration, store in store_options.open_each():
        from tacit.service.maintenance.doctor import verify as check

        differences = check(configuration, store)
        all_differences += [f"{name}: {difference}" if name else difference for difference in differences]
        rows += store.end().seq
    text = "\n".join(all_differences) or f"the log and what was learned agree, up to row {rows:,}"
    options.print_result({"rows": rows, "differences": all_differences}, text, as_json)
    if all_differences:
        raise SystemExit(1)


FILE_SUFFIXES = (".parquet", ".csv", ".json", ".jsonl", ".ndjson", ".xlsx", ".db")


@options.command(group=log)
def export(
    folder: options.NewFolder,
    store_options: StoreOptions,
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
    if folder.suffix in FILE_SUFFIXES and not folder.is_dir():
        message = f"{folder} is called as a file; several files come into it: give a folder, such as exported"
        raise click.BadParameter(message, param_hint="'FOLDER'")
    counts: dict[str, int] = {}
    # Files of shards are one level below; deeper levels may have many other files.
    files = [*folder.glob("*.*"), *folder.glob("*/*.*")]
    existing = {path.relative_to(folder).as_posix() for path in files}
    for name, configuration, store in store_options.open_each(read_only=True):
        if format == "ubi":
            from tacit.service.maintenance.ubi_export import export_ubi

            written = export_ubi(store, folder / name)
        else:
            from tacit.service.maintenance.log_export import export as write

            written = write(configuration, store, folder / name)
        counts |= {f"{name}/{file}" if name else file: n for file, n in written.items()}
        unconfigured = sorted(store.placements().keys() - configuration.placements.keys())
        if unconfigured and format == "parquet":
            message = "not in the configuration, so no click log has them"
            missing = "" if "clicks" in written else ", and there is no clicks.parquet"
            click.echo(f"placements: {', '.join(unconfigured)}: {message}{missing}; give --config", err=True)
    suffix = "ndjson" if format == "ubi" else "parquet"
    lines = (f"{n:>12,}  {name}.{suffix}" for name, n in counts.items())
    replaced = [file for name in counts if (file := f"{name}.{suffix}") in existing]
    options.print_result(counts, "\n".join(lines) + _format_replaced(replaced), as_json)


def _format_replaced(files: list[str]) -> str:
    """Return a note, after a line break, that files were replaced; an empty text for no files."""
    return f"\n{', '.join(files)}: replaced, as such files were there" if files else ""


@options.command(group=log, name="follow")
def follow_log(
    store_options: StoreOptions, *, after: Annotated[int, click.IntRange(0)] = 0, once: bool = False
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

    with store_options.open_to_read() as store, options.interruptible() as stopping:
        follow(store, _show_lines, after, stopping, once=once)


def _show_lines(lines: "Sequence[LogLine]") -> None:
    """Print rows of the log, one per line."""
    click.echo("\n".join(escape_controls(line.text) for line in lines))


@options.command(group=log, name="import")
def import_log(folder: options.Folder, store_options: StoreOptions, *, as_json: options.Json = False) -> None:
    """Import a log that was exported to FOLDER into an empty store."""
    if not (folder / "placements.json").is_file():
        # Check before a store is created.
        raise click.UsageError(f"FOLDER: {folder} holds no log; give one that tacit log export wrote")
    with store_options.open() as store:
        from tacit.service.maintenance.log_export import import_log

        count = import_log(store, folder)
    options.print_result({"rows": count}, f"{count:,} rows", as_json)


@options.command(group=log, name="backup")
def back_up(target: options.NewFile, store_options: StoreOptions, *, as_json: options.Json = False) -> None:
    """Copy an SQLite store to TARGET, even while the service is running."""
    with options.usage_errors():
        configuration = store_options.configuration()
    if configuration.store.url is not None:
        schema = configuration.store.schema
        raise click.UsageError(f"--store: back up PostgreSQL with: pg_dump --schema {schema} …")
    from tacit.service.log.archive import backup

    replaced = [target.name] * target.exists()
    size = backup(configuration.store.path, target)
    options.print_result({"bytes": size}, f"{size:,} bytes: {target}{_format_replaced(replaced)}", as_json)


@options.command(group=log)
def forget(
    store_options: StoreOptions,
    *,
    user: str | None = None,
    session: str | None = None,
    client: str | None = None,
    url: str | None = None,
    key: options.PlacementKey | None = None,
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
        Its API key; better set as TACIT_KEY.
    backups
        List the backups in this folder that contain the person's data.
    """
    names = {"user": user, "session": session, "client": client}
    subjects = [(kind, name) for kind, name in names.items() if name is not None]
    if len(subjects) != 1:
        raise click.UsageError("give one of --user, --session and --client")
    (kind, name) = subjects[0]
    # Before anything is erased, because a backup may be unreadable.
    backup_paths = _find_backups(backups, kind, name)
    if url is not None:
        blanked = _forget_remotely(url, key, kind, name)
    else:
        from tacit.service.errors import InUse
        from tacit.service.log.store import sum_blanked_rows
        from tacit.service.maintenance.doctor import forget as blank

        parts = (blank(config, store, kind, name) for _, config, store in store_options.open_each())
        try:
            blanked = {placement: counts._asdict() for placement, counts in sum_blanked_rows(*parts).items()}
        except InUse as error:
            raise InUse(f"{error}; or let the service do it: --url http://127.0.0.1:8787") from error
    lines = [
        f"{placement}: {counts['decisions']:,} decisions, {counts['records']:,} records blanked"
        for placement, counts in blanked.items()
    ] or [f"nothing tells of this {kind}"]
    lines += [f"holds the person, as before: {path}" for path in backup_paths]
    options.print_result({"placements": blanked, "backups": backup_paths}, "\n".join(lines), as_json)


def _forget_remotely(url: str, key: str | None, kind: str, name: str) -> dict[str, dict[str, int]]:
    """Make a running service erase a person's data; return the numbers of blanked rows by placement.

    Raises click.ClickException if the service refuses or does not answer.
    """
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


def _find_backups(folder: Path | None, kind: str, name: str) -> list[str]:
    """Return the paths of the backups in a folder that contain a person's data; empty without a folder."""
    if folder is None:
        return []
    from tacit.service.maintenance.doctor import has_user_data

    files = sorted(path for path in folder.iterdir() if path.is_file())
    return [str(path) for path in files if has_user_data(path, kind, name)]


@options.command(group=log)
def reshard(
    store_options: StoreOptions,
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
    with options.usage_errors():
        configuration = store_options.configuration()
    from tacit.service.maintenance.resharding import reshard as reshard_log

    rows = reshard_log(configuration, shards, drop=drop)
    text = "\n".join(f"{n:>12,}  rows of shard {shard}" for shard, n in enumerate(rows))
    options.print_result({"shards": rows}, text, as_json)
