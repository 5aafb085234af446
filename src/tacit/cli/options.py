"""What commands share: options, where work runs, how errors and results are said, where the log is kept."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tacit.errors import LogError, MissingExtra, TacitError

if TYPE_CHECKING:
    from tacit.logs.reader import LogReader
    from tacit.logs.rows import LogReport


# ---- What commands share: options, where work runs, how errors and results are said

Command = TypeVar("Command", bound=Callable[..., Any])


@contextmanager
def usage() -> Iterator[None]:
    """Turn errors of what the user typed into usage errors."""
    try:
        yield
    except TacitError as error:
        raise click.UsageError(str(error)) from error


def from_config(context: click.Context, _: click.Parameter, path: Path | None) -> Path | None:
    """Take defaults from the command's table of a TOML file."""
    if path is not None:
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise click.UsageError(f"{path}: {error}") from error
        table = tables.get(str(context.info_name), {})
        options = {
            flag.lstrip("-").replace("-", "_"): str(parameter.name)
            for parameter in context.command.params
            for flag in parameter.opts
        }
        for name in table:
            if name.replace("-", "_") not in options:
                raise click.UsageError(f"{path}: [{context.info_name}] has no option {name!r}")
        context.default_map = {options[name.replace("-", "_")]: value for name, value in table.items()}
    return path


def config_option(command: Command) -> Command:
    """Add ``--config``, read before all other options."""
    return click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        callback=from_config,
        is_eager=True,
        help="TOML file with defaults for these options.",
    )(command)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")
seed_option = click.option(
    "--seed", default=1, show_default=True, type=click.IntRange(0), help="Where every draw comes from."
)
workers_option = click.option(
    "--workers", type=click.IntRange(1), help="Threads; by default one per core. Never changes results."
)
column_option = click.option(
    "--column", multiple=True, metavar="OURS=THEIRS", help="Map a foreign column's name."
)
constant_option = click.option(
    "--constant", multiple=True, metavar="OURS=VALUE", help="Fill a column it has not."
)
arms_option = click.option(
    "--arms",
    metavar="ARM,ARM,…",
    help='Those that every row offers, if no column says so; "shown": all that the log shows.',
)
time_unit_option = click.option(
    "--time-unit",
    type=click.Choice(["s", "ms", "us", "ns"]),
    help="Of times that are numbers.  [default: found out, and stated]",
)
strict_option = click.option(
    "--strict", is_flag=True, help="Stop at the first bad row instead of counting it."
)


def reads_log(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how a click log is read; the command gets ``read``, which does."""

    @wraps(command)
    def reading(
        *,
        format: str | None,
        column: Any,
        constant: Any,
        arms: str | None,
        time_unit: str | None,
        strict: bool,
        **others: Any,
    ) -> Any:
        def read(log: Any) -> LogReader:
            from tacit.logs import read_log

            return read_log(
                log,
                format=format,
                columns=pairs("column", column),
                constants=pairs("constant", constant),
                arms=names(arms) if arms and arms != "shown" else arms,
                time_unit=time_unit,
                strict=strict,
            )

        return command(read=read, **others)

    suffixes = "parquet, csv, jsonl, open-bandit, ubi or dsjson.  [default: from the suffix]"
    for option in (strict_option, time_unit_option, arms_option, constant_option, column_option):
        reading = option(reading)
    return click.option("--format", help=suffixes)(reading)


def plot_option(what: str) -> Callable[[Command], Command]:
    """Return the option ``--plot``."""
    return click.option("--plot", type=click.Path(path_type=Path), help=what)


def ray_option_as(name: str, note: str) -> Callable[[Command], Command]:
    """Return the option ``--ray``, under a name that no other option of the command has."""
    return click.option(
        "--ray",
        name,
        is_flag=False,
        flag_value="local",
        metavar="[ADDRESS]",
        help=f"Run on Ray: the cluster at ADDRESS, or one of its own on this machine. {note}",
    )


ray_option = ray_option_as("cluster", "Never changes results.")


def where(cluster: str | None) -> AbstractContextManager[None]:
    """Return the context in which work is spread over threads or over a cluster."""
    if cluster is None:
        return nullcontext()
    from tacit.cluster import on_ray

    return on_ray(cluster)


@contextmanager
def concluding(reader: LogReader) -> Iterator[None]:
    """Refuse, once the log has been read, to conclude anything if no row of it could be used."""
    try:
        yield
    except LogError:
        if not reader.strict:
            reader.report.check_kept()
        raise
    reader.report.check_kept()


def show(value: Any, text: str, as_json: bool, rows: LogReport | None = None) -> None:
    """Print a result for machines or for people, with the rows of a log that were rejected."""
    if rows is not None:
        doubts = list(map(str, rows.doubts.values()))
        value = {**value, "rejected": dict(rows.rejected), "notes": [*rows.notes(), *doubts]}
        text = "\n".join([text, *rows.notes(), *([rows.summary()] if rows.rejected else [])])
    click.echo(json.dumps(plain(value), indent=1, allow_nan=False) if as_json else text)


def plain(value: Any) -> Any:
    """Return a result as JSON knows it: null for what is no finite number.

    Examples
    --------
    >>> plain({"value": float("nan"), "ends": (0.5, float("inf"))})
    {'value': None, 'ends': [0.5, None]}
    """
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return list(map(plain, value))
    return None if isinstance(value, float) and not math.isfinite(value) else value


def names(text: str) -> list[str]:
    """Split a list with commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def pairs(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    """Split ``NAME=VALUE`` texts."""
    split = [text.partition("=") for text in texts]
    for name, equals, _ in split:
        if not (name and equals):
            raise click.UsageError(f"--{option}: {name!r} is not of the form NAME=VALUE")
    return {name: value for name, _, value in split}


# ---- Where the decision service keeps its log, as commands are told it

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
        from tacit.service.engine.layout import partitions

        parts = partitions(configuration.store)
    for number, part in enumerate(parts):
        opened = open_store(part)
        try:
            yield "" if part == configuration.store else f"shard-{number}", configuration, opened
        finally:
            opened.close()
