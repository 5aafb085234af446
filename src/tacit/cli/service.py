"""``tacit serve``, the keys of its callers, and ``tacit log``, what it wrote.

How a store is named and opened by all commands; serving; keys; then the log: verified, exported, followed,
taken in, backed up, forgotten in, dealt out anew.
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
    """Where the decision service keeps its log.

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
        """Return the configuration of the service."""
        with needing("service"):
            from tacit.service.config.file import load_config
        place = "store.url" if self.store and "://" in self.store else "store.path"
        return load_config(self.config, {place: self.store, **more})

    @contextmanager
    def open(self) -> Iterator[Any]:
        """Open the store of a configuration."""
        with options.usage():
            configuration = self.configuration()
        from tacit.service.engine.stores import open_store

        with closing(open_store(configuration.store)) as opened:
            yield opened

    @contextmanager
    def open_to_read(self) -> Iterator[Any]:
        """Open the store of a configuration, as it is at the moment, without owning it."""
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
        """Open one after the other the stores of a configuration: of one server, or of each shard.

        Where they are only for reading, they may be in use. A file that is not there may be made.

        Yield what to call it (nothing for that of one server), the configuration and the store.
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
    """Open a store that is only read, as it is at the moment, be it in use or not."""
    from tacit.service.engine.stores import open_store, open_to_read
    from tacit.service.errors import InUse

    try:
        return open_to_read(part) if part.url is not None else open_store(part)
    except InUse:
        return open_to_read(part)


logger = logging.getLogger(__name__)

SERVICE = "tacit.toml"
"""What the file of a service is called in all examples."""


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
        Port; 0 takes a free one.
    cluster
        Needs --store postgresql://…
    shards
        With --ray: deal the keys out to so many; as many as the log has, or one per core.
    ingresses
        With --ray: so many processes of this machine answer at the address.
    merge_seconds
        With --ray: how often shards share what is learned for all keys.
    clock_is_right
        Start though the clock is far ahead of the last row and rows are dropped by age.
    skip_damaged
        Take rows that are not what was written out of the log for good, and go on without them.
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
        # A supervisor must not start it again for a wrong configuration: it would end the same.
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
    """End for an error: of the configuration, or another one."""
    if form == "json":
        # Readers of the log must be able to read its end.
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
    """Make an API key for the decision service; only its hash goes into the configuration.

    Parameters
    ----------
    scopes
        What it may be used for; can be given more than once.
    placements
        A placement that it reaches, or a pattern of names such as 'shop-*'; by default all; can be given
        more than once.
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
    """Check, export, import, back up or deal out the log of the decision service."""
    # What is written is nobody else's to read.
    os.umask(0o077)


@options.command(group=log)
def verify(kept: StoreOptions, *, as_json: options.Json = False) -> None:
    """Look at every row and index, fold the log anew and compare with the snapshots."""
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
    """Write the log to FOLDER; that of each shard to a folder of its own in it.

    The service may run meanwhile: what it had at the moment is written. What a click earns the
    configuration says: only its placements have click logs, in clicks.parquet.

    Parameters
    ----------
    format
        Parquet, which can be imported, or records of User Behavior Insights as JSON lines.
    """
    if folder.suffix in LIKE_FILES and not folder.is_dir():
        what = f"{folder} is called as a file; several files come into it: give a folder, such as exported"
        raise click.BadParameter(what, param_hint="'FOLDER'")
    counts: dict[str, int] = {}
    # Those of shards lie one folder below; what else is in there may be much.
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
    """Return what a result ends with where files were there before."""
    return f"\n{', '.join(files)}: replaced, as such files were there" if files else ""


@options.command(group=log, name="follow")
def follow_log(
    kept: StoreOptions, *, after: Annotated[int, click.IntRange(0)] = 0, once: bool = False
) -> None:
    """Print the rows of the log as JSON lines, and go on as the service appends, until Ctrl-C.

    Each row is printed once, in the order of its number, seq: who reads them can begin anew after the
    last one that arrived.

    Parameters
    ----------
    after
        Begin after the row of this number.
    once
        End where the log ends now.
    """
    from tacit.service.maintenance.log_export import follow

    with kept.open_to_read() as opened, options.interruptible() as stopping:
        follow(opened, _show_lines, after, stopping, once=once)


def _show_lines(lines: "Sequence[LogLine]") -> None:
    click.echo("\n".join(escape_controls(line.text) for line in lines))


@options.command(group=log, name="import")
def import_log(folder: options.Folder, kept: StoreOptions, *, as_json: options.Json = False) -> None:
    """Fill an empty store with the log that was exported to FOLDER."""
    if not (folder / "placements.json").is_file():
        # Before a store is made.
        raise click.UsageError(f"FOLDER: {folder} holds no log; give one that tacit log export wrote")
    with kept.open() as opened:
        from tacit.service.maintenance.log_export import take_in

        count = take_in(opened, folder)
    options.show({"rows": count}, f"{count:,} rows", as_json)


@options.command(group=log, name="backup")
def back_up(target: options.NewFile, kept: StoreOptions, *, as_json: options.Json = False) -> None:
    """Copy the store to TARGET while the service runs: an SQLite file."""
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
    """Blank what the log, its archive and its records tell of a person; what was learned stays.

    Done again it finds nothing. Backups that were made before are not changed.

    Parameters
    ----------
    user
        Forget a user: what requests called user, or UBI client_id.
    session
        Forget a session.
    client
        Forget a client_id of User Behavior Insights.
    url
        Where the service answers, if it runs.
    key
        Its API key; better in TACIT_PLACEMENT_KEY.
    backups
        Say which backups in this folder hold the person.
    """
    named = {"user": user, "session": session, "client": client}
    given = [(kind, name) for kind, name in named.items() if name is not None]
    if len(given) != 1:
        raise click.UsageError("give one of --user, --session and --client")
    (kind, name) = given[0]
    # Before anything is blanked, as a backup may be refused.
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
    """Let a service that runs forget somebody."""
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
    """Return the backups in a folder that hold somebody."""
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
    """Deal the log out to other shards, or that of a single server to shards.

    Stop the service before. Until all is done nothing has changed.

    Parameters
    ----------
    shards
        How many there shall be.
    drop
        Remove the shards there were, once all is done.
    """
    with options.usage():
        configuration = kept.configuration()
    from tacit.service.maintenance.resharding import reshard as deal

    rows = deal(configuration, shards, drop=drop)
    text = "\n".join(f"{n:>12,}  rows of shard {shard}" for shard, n in enumerate(rows))
    options.show({"shards": rows}, text, as_json)
