"""The command line: one tool, ``tacit``."""

from __future__ import annotations

import json
import os
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click

from tacit import __version__
from tacit.errors import AssumptionWarning, MissingExtra, TacitError

Command = TypeVar("Command", bound=Callable[..., Any])

EPILOG = """\b
Every option can also come from the environment (TACIT_SIMULATE_HORIZON=1000) or from a TOML
file (--config FILE, a table per command: [simulate] horizon = 1000).
Exit codes: 0 fine, 1 the work failed, 2 wrong usage, 130 interrupted."""


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
        context.default_map = {
            options[name.replace("-", "_")]: value for name, value in table.items()
        }
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
    "--seed",
    default=1,
    show_default=True,
    type=click.IntRange(0),
    help="Where every draw comes from.",
)
workers_option = click.option(
    "--workers",
    type=click.IntRange(1),
    help="Threads; by default one per core. Never changes results.",
)


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


def show(value: Any, text: str, as_json: bool) -> None:
    """Print a result for machines or for people."""
    click.echo(json.dumps(value, indent=1) if as_json else text)


@click.group(
    epilog=EPILOG, context_settings={"auto_envvar_prefix": "TACIT", "max_content_width": 100}
)
@click.version_option(__version__, prog_name="tacit")
def cli() -> None:
    """Learn what to show from clicks, although clicks lie.

    \b
    Start with:
      tacit demo                             the whole thing on simulated searchers
      tacit simulate --policy thompson       regret curves
      tacit evaluate LOG --policy thompson   what would a policy have got?
      tacit propose LOG                      parameters for intent that shifts
      tacit serve                            decisions over HTTP
    """


@cli.command()
@config_option
@click.option(
    "--policy", default=None, help='The learning policy, e.g. "ucb1" or "exp3s(gamma=0.05)".'
)
@click.option(
    "--interest",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Play this date × topic table of search interest instead of simulated shifts.",
)
@click.option("--impressions", type=click.IntRange(100), help="How much traffic.  [default: 15000]")
@click.option(
    "--out", default="demo", show_default=True, type=click.Path(path_type=Path), help="Folder."
)
@click.option(
    "--port", default=0, type=click.IntRange(0, 65535), help="Port of the page; 0 takes a free one."
)
@click.option("--keep", is_flag=True, help="Keep the page open afterwards, until Ctrl-C.")
@seed_option
@json_option
def demo(
    config: Path | None,
    policy: str | None,
    interest: Path | None,
    impressions: int | None,
    out: Path,
    port: int,
    keep: bool,
    seed: int,
    as_json: bool,
) -> None:
    """Start the service, send it searchers whose intent shifts, show what it learned."""
    import tacit.demo as show_case

    with usage():
        scenario = show_case.scenario(interest, policy, impressions, seed)
    show_case.play(scenario, out, port, keep=keep, as_json=as_json)


@cli.command()
@config_option
@click.option(
    "--policy",
    multiple=True,
    default=("ucb1", "thompson"),
    show_default=True,
    help='Name, call or module:Class; may be repeated. E.g. "epsilon-greedy(epsilon=0.05)".',
)
@click.option(
    "--environment",
    default="bernoulli-arms([0.1, 0.2, 0.3, 0.4, 0.5])",
    show_default=True,
    help='E.g. "shifting-arms(arms=5, keys=10, delay=(5, 20))" or "search-interest(\'FILE\')".',
)
@click.option(
    "--horizon", default=100_000, show_default=True, type=click.IntRange(1), help="Rounds per run."
)
@click.option("--runs", default=20, show_default=True, type=click.IntRange(1), help="Repetitions.")
@seed_option
@workers_option
@ray_option
@click.option(
    "--plot", type=click.Path(path_type=Path), help="Draw the regret curves into this file."
)
@click.option(
    "--table", type=click.Path(path_type=Path), help="Write all checkpoints (.csv or .parquet)."
)
@json_option
def simulate(
    config: Path | None,
    policy: tuple[str, ...],
    environment: str,
    horizon: int,
    runs: int,
    seed: int,
    workers: int | None,
    cluster: str | None,
    plot: Path | None,
    table: Path | None,
    as_json: bool,
) -> None:
    """Play policies against each other in an environment that knows the truth."""
    from tacit.environments import environment_from_spec
    from tacit.plots import figure
    from tacit.policies import policy_from_spec
    from tacit.simulation import simulate as run

    with usage():
        world = environment_from_spec(environment)
        players = [policy_from_spec(spec, arms=world.arm_count) for spec in policy]
        if plot:
            figure()  # the lack of what draws must not show only when the work is done
        if table and table.suffix not in (".csv", ".parquet"):
            raise click.UsageError(f"--table: {table} must end in .csv or .parquet")
    with where(cluster):
        result = run(players, world, horizon, runs=runs, seed=seed, workers=workers)
    if plot:
        result.plot(plot)
    if table:
        write_table(result.table, table)
    show(result.rows(), result.summary(), as_json)


def write_table(table: Any, path: Path) -> None:
    """Write an Arrow table as CSV or Parquet, by its suffix."""
    import pyarrow.csv
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        if path.suffix == ".csv":
            pyarrow.csv.write_csv(table, temporary)
        else:
            pyarrow.parquet.write_table(table, temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@cli.command()
@config_option
@click.argument("logs", nargs=-1, required=True)
@click.option(
    "--policy",
    required=True,
    help='Name, call or module:Class of a policy that learns, e.g. "thompson" or '
    '"ucb1(alpha=0.3)"; or a fixed one: uniform, always:ARM, or table:FILE with probabilities.',
)
@click.option(
    "--estimator",
    default="replay",
    show_default=True,
    help="Any of replay, ips, snips, dm, dr, switch-dr, slate-ips, independent-ips, cascade-ips; "
    "with commas between them.",
)
@click.option("--clip", type=float, help="Cut larger weights to this.")
@click.option("--threshold", default=10.0, show_default=True, help="Largest weight of switch-dr.")
@click.option("--slots", default=3, show_default=True, help="Most places of a slate.")
@click.option("--cluster", help="What makes rows depend on one another: decision_id, key, …")
@click.option("--weight-bound", type=float, help="What no weight can exceed; for rare clicks.")
@click.option(
    "--plot", type=click.Path(path_type=Path), help="Draw the estimates with their intervals."
)
@click.option("--passes", default=10, show_default=True, type=click.IntRange(1), help="Replays.")
@click.option("--format", help="parquet, csv, jsonl or open-bandit.  [default: from the suffix]")
@click.option("--column", multiple=True, metavar="OURS=THEIRS", help="Map a foreign column's name.")
@click.option("--constant", multiple=True, metavar="OURS=VALUE", help="Fill a column it has not.")
@click.option(
    "--window",
    default=1_000_000,
    show_default=True,
    type=click.IntRange(1),
    help="Rows shuffled at once.",
)
@click.option(
    "--assume-uniform", is_flag=True, help="Take rows without propensity for uniform choice."
)
@click.option("--strict", is_flag=True, help="Stop at the first bad row instead of counting it.")
@ray_option_as("ray", "Give LOGS first.")
@click.option(
    "--shards",
    default=1,
    show_default=True,
    type=click.IntRange(1),
    help="With --ray: deal the keys of a policy that learns to so many separate learners.",
)
@seed_option
@json_option
def evaluate(
    config: Path | None,
    logs: tuple[str, ...],
    policy: str,
    estimator: str,
    clip: float | None,
    threshold: float,
    slots: int,
    cluster: str | None,
    weight_bound: float | None,
    plot: Path | None,
    passes: int,
    format: str | None,
    column: tuple[str, ...],
    constant: tuple[str, ...],
    window: int,
    assume_uniform: bool,
    strict: bool,
    ray: str | None,
    shards: int,
    seed: int,
    as_json: bool,
) -> None:
    """Estimate what a policy would have earned, from the click log of another one.

    LOGS are files, folders or patterns: Parquet (also by URL, such as s3://bucket/clicks), CSV,
    JSON lines, or the Open Bandit Dataset's layout.
    Replay needs a log of uniform choices; the other estimators weight by logged propensities.
    """
    from tacit.calls import parsed_call
    from tacit.evaluate import fixed_target, named_estimators
    from tacit.logs import read_log
    from tacit.plots import figure
    from tacit.policies import policy_from_spec
    from tacit.policies.spec import policy_class

    wanted = [name.strip() for name in estimator.split(",") if name.strip()]
    weighted = [name for name in wanted if name != "replay"]
    with usage():
        target = fixed_target(policy)
        if target is None:
            shows = policy_class(parsed_call(policy)[0]).shows
            if shows != "arm":
                raise click.UsageError(
                    f"--policy: {policy} shows a {shows}, but a click log tells of single arms; "
                    "try it with tacit simulate"
                )
        estimators = named_estimators(weighted, clip=clip, threshold=threshold, slots=slots)
        reader = read_log(
            logs,
            format=format,
            columns=pairs("column", column),
            constants=pairs("constant", constant),
            strict=strict,
        )
        if plot:
            figure()  # the lack of what draws must not show only when the work is done
    if not wanted:
        raise click.UsageError("--estimator: name one at least")
    if target is not None and "replay" in wanted:
        raise click.UsageError(f"--estimator: replay needs a policy that learns, not {policy!r}")
    if plot and not weighted:
        raise click.UsageError("--plot: shows estimators other than replay; name one")
    if shards > 1 and ray is None:
        raise click.UsageError("--shards: only with --ray")
    content: dict[str, Any] = {}
    texts = []
    result: Any = None
    with where(ray):
        evaluation = Evaluation(reader, None if ray is None else shards)
        player: Any = target
        if target is None:
            arms = evaluation.arms()
            with usage():
                player = policy_from_spec(policy, arms)
        if "replay" in wanted:
            replayed = evaluation.replay(
                player, passes=passes, seed=seed, window=window, assume_uniform=assume_uniform
            )
            content |= asdict(replayed)
            texts.append(replayed.summary())
        if weighted:
            result = evaluation.off_policy(
                player, estimators, cluster=cluster, weight_bound=weight_bound, seed=seed
            )
    if result is not None:
        if plot:
            result.plot(plot)
        content = {"replay": content} if content else {}
        content |= {
            "estimates": result.table(),
            "logged": result.logged,
            "rows": result.rows,
            "unanswered": result.unanswered,
            "never_shown": list(result.never_shown),
        }
        texts.append(result.summary())
    rows = reader.report
    if rows.rejected:
        texts.append(rows.summary())
    show({**content, "rejected": dict(rows.rejected)}, "\n".join(texts), as_json)


class Evaluation:
    """The functions that read a log, under a progress bar: in one process, or in parts.

    Parameters
    ----------
    reader : LogReader
    shards : int or None
        None for one process.
    """

    def __init__(self, reader: Any, shards: int | None) -> None:
        self._reader, self._shards = reader, shards

    def arms(self) -> tuple[str, ...]:
        """Return the arms on offer."""
        from tacit import cluster
        from tacit.evaluate import arms_of
        from tacit.progress import progress

        if self._shards is not None:
            return cluster.arms_of(self._reader)
        with progress(None, "reading the arms"):
            return arms_of(self._reader)

    def replay(self, policy: Any, **options: Any) -> Any:
        """Replay the log."""
        from tacit import cluster
        from tacit.evaluate import replay

        if self._shards is not None:
            return cluster.replay(policy, self._reader, shards=self._shards, **options)
        return self._watched(replay, "replaying", policy, self._reader, **options)

    def off_policy(self, target: Any, estimators: Any, **options: Any) -> Any:
        """Weight the log."""
        from tacit import cluster
        from tacit.evaluate import off_policy

        if self._shards is not None:
            return cluster.off_policy(
                target, self._reader, estimators, shards=self._shards, **options
            )
        return self._watched(off_policy, "weighting", target, self._reader, estimators, **options)

    @staticmethod
    def _watched(function: Callable[..., Any], label: str, *given: Any, **options: Any) -> Any:
        from tacit.progress import progress

        with progress(None, label) as advance:
            return function(*given, progress=increments(advance), **options)


def increments(advance: Callable[[float], None]) -> Callable[[int], None]:
    """Return a function of all rows so far that passes on how many are new."""
    done = 0

    def report(rows: int) -> None:
        nonlocal done
        advance(rows - done)
        done = rows

    return report


@cli.command()
@config_option
@click.argument("log", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--method",
    default="randomization,harvesting,em",
    show_default=True,
    help="How to tell examination from relevance; with commas between several.",
)
@click.option("--format", help="parquet, csv, jsonl or open-bandit.  [default: from the suffix]")
@click.option("--column", multiple=True, metavar="OURS=THEIRS", help="Map a foreign column's name.")
@click.option("--constant", multiple=True, metavar="OURS=VALUE", help="Fill a column it has not.")
@click.option("--strict", is_flag=True, help="Stop at the first bad row instead of counting it.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the effects into this file.")
@json_option
def examine(
    config: Path | None,
    log: Path,
    method: str,
    format: str | None,
    column: tuple[str, ...],
    constant: tuple[str, ...],
    strict: bool,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Estimate how much each position is examined, from a click log with positions.

    LOG is a file or a folder: Parquet, CSV, JSON lines, or the Open Bandit Dataset's layout.
    """
    from tacit.evaluate import examination
    from tacit.logs import read_log
    from tacit.plots import figure

    methods = [name.strip() for name in method.split(",") if name.strip()]
    with usage():
        reader = read_log(
            log,
            format=format,
            columns=pairs("column", column),
            constants=pairs("constant", constant),
            strict=strict,
        )
        if plot:
            figure()  # the lack of what draws must not show only when the work is done
    if not methods or not set(methods) <= set(examination.METHODS):
        raise click.UsageError(f"--method: give any of {', '.join(examination.METHODS)}")
    results = [examination.examine(reader, name) for name in methods]
    if plot:
        examination.plot(results, plot)
    texts = [result.summary() for result in results]
    if reader.report.rejected:
        texts.append(reader.report.summary())
    table = [row for result in results for row in result.table()]
    content = {"effects": table, "rejected": dict(reader.report.rejected)}
    show(content, "\n\n".join(texts), as_json)


@cli.command()
@config_option
@click.argument("log", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--format", help="parquet, csv or json.  [default: from the suffix]")
@click.option("--column", multiple=True, metavar="OURS=THEIRS", help="Map a foreign column's name.")
@click.option(
    "--confidence",
    default=0.95,
    show_default=True,
    type=click.FloatRange(0.0, 1.0, min_open=True, max_open=True),
    help="Of all that is decided, together.",
)
@click.option("--strict", is_flag=True, help="Stop at the first bad row instead of counting it.")
@click.option(
    "--plot", type=click.Path(path_type=Path), help="Draw the leader's duels into this file."
)
@json_option
def duel(
    config: Path | None,
    log: Path,
    format: str | None,
    column: tuple[str, ...],
    confidence: float,
    strict: bool,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Say which ranker wins, from a log of interleaved impressions, and when to stop.

    LOG is a file of Parquet, CSV or JSON lines with the columns left and right (rankers) and
    outcome (1 left won, 0 right won, 0.5 tie), or interleaved and clicks in place of outcome.
    """
    from tacit.evaluate.duels import COLUMNS, read_duels
    from tacit.plots import figure
    from tacit.progress import progress

    if plot:
        figure()  # the lack of what draws must not show only when the work is done
    columns = pairs("column", column)
    if not set(columns) <= set(COLUMNS):
        raise click.UsageError(f"--column: a log of duels has {', '.join(COLUMNS)}")
    with progress(None, "reading duels"):
        report, rows = read_duels(
            log, format=format, columns=columns, strict=strict, confidence=confidence
        )
    if plot:
        report.plot(plot)
    text = report.summary()
    if rows.rejected:
        text += "\n" + rows.summary()
    show({**report.as_dict(), "rejected": dict(rows.rejected)}, text, as_json)


@cli.command()
@config_option
@click.argument("log", type=click.Path(exists=True, path_type=Path))
@click.option("--format", help="parquet, csv, jsonl or open-bandit.  [default: from the suffix]")
@click.option("--column", multiple=True, metavar="OURS=THEIRS", help="Map a foreign column's name.")
@click.option("--constant", multiple=True, metavar="OURS=VALUE", help="Fill a column it has not.")
@click.option(
    "--keys",
    default=200,
    show_default=True,
    type=click.IntRange(1),
    help="Search shifts in so many of the busiest keys.",
)
@click.option("--strict", is_flag=True, help="Stop at the first bad row instead of counting it.")
@json_option
def propose(
    config: Path | None,
    log: Path,
    format: str | None,
    column: tuple[str, ...],
    constant: tuple[str, ...],
    keys: int,
    strict: bool,
    as_json: bool,
) -> None:
    """Propose parameters for policies that follow shifting intent, from a click log.

    Says where the log contradicts what such policies assume. LOG is as for evaluate.
    """
    from tacit.evaluate import propose as proposed
    from tacit.logs import read_log
    from tacit.progress import progress

    with usage():
        reader = read_log(
            log,
            format=format,
            columns=pairs("column", column),
            constants=pairs("constant", constant),
            strict=strict,
        )
    with progress(None, "searching shifts") as advance:
        result = proposed(reader, keys=keys, progress=lambda done: advance(1))
    rows = reader.report
    text = result.summary()
    if rows.rejected:
        text += "\n" + rows.summary()
    shifts = [shift._asdict() for shift in result.shifts]
    content = asdict(result) | {"shifts": shifts, "rejected": dict(rows.rejected)}
    show(content, text, as_json)


def pairs(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    """Split ``NAME=VALUE`` texts."""
    split = [text.partition("=") for text in texts]
    for name, equals, _ in split:
        if not (name and equals):
            raise click.UsageError(f"--{option}: {name!r} is not of the form NAME=VALUE")
    return {name: value for name, _, value in split}


@cli.command()
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file with placements; by default one placement named default.",
)
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 takes a free one.")
@click.option("--store", help="The log: an SQLite file, or postgresql://user@host/database.")
def serve(config: Path | None, host: str | None, port: int | None, store: str | None) -> None:
    """Run the decision service, until Ctrl-C or SIGTERM."""
    try:
        from tacit.service.config import load_config
        from tacit.service.server import serve as run
    except ImportError as error:
        raise MissingExtra(error.name or "the service", "service") from error

    overrides = {"server.host": host, "server.port": port, **store_place(store)}
    with usage():
        configuration = load_config(config, overrides)
    run(configuration, reread=lambda: load_config(config, overrides))


@cli.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    default=("decide", "feedback"),
    show_default=True,
    type=click.Choice(["decide", "feedback", "read", "admin"]),
    help="What it may be used for; can be given more than once.",
)
@json_option
def key(name: str, scopes: tuple[str, ...], as_json: bool) -> None:
    """Make an API key for the decision service; only its hash goes into the configuration."""
    try:
        from tacit.service.keys import new_key
    except ImportError as error:
        raise MissingExtra(error.name or "the service", "service") from error
    made, sha256 = new_key()
    quoted = ", ".join(f'"{scope}"' for scope in scopes)
    text = (
        f"{made}\n\nThis is the key; it is shown once. Add to the configuration:\n\n"
        f'[keys.{name}]\nsha256 = "{sha256}"\nscopes = [{quoted}]'
    )
    show({"name": name, "key": made, "sha256": sha256, "scopes": scopes}, text, as_json)


@cli.group()
def log() -> None:
    """Check, export or import the log of the decision service."""


placements_option = click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file of the service; by default one placement named default.",
)
store_option = click.option(
    "--store", help="The log: an SQLite file, or postgresql://user@host/database."
)


def store_place(store: str | None) -> dict[str, str | None]:
    """Return the setting that says where the log is."""
    return {"store.url" if store and "://" in store else "store.path": store}


@contextmanager
def service_log(config: Path | None, store: str | None) -> Iterator[tuple[Any, Any]]:
    """Open the store of a configuration."""
    try:
        from tacit.service.config import load_config
        from tacit.service.store import open_store
    except ImportError as error:
        raise MissingExtra(error.name or "the service", "service") from error
    with usage():
        configuration = load_config(config, store_place(store))
    opened = open_store(configuration.store)
    try:
        yield configuration, opened
    finally:
        opened.close()


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


@cli.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check the installation, and say how to mend what is wrong."""
    from tacit.service.doctor import checks

    found = checks()
    marks = {True: "ok", False: "WRONG", None: "note"}
    lines = [(marks[check.ok], f"{check.name}: {check.detail}", check.remedy) for check in found]
    text = "\n".join(
        f"{mark:<5}  {line}" + (f"\n       → {remedy}" if remedy and mark != "ok" else "")
        for mark, line, remedy in lines
    )
    show([check._asdict() for check in found], text, as_json)
    if any(check.ok is False for check in found):
        raise SystemExit(1)


@cli.command()
@config_option
@click.option("--list", "listing", is_flag=True, help="List what can be reproduced.")
@click.argument("name", required=False)
@click.option(
    "--out", default="out", show_default=True, type=click.Path(path_type=Path), help="Folder."
)
@click.option("--runs", type=click.IntRange(1), help="Repetitions; each item has its own default.")
@click.option("--reading", help="Which reading of the paper, where an item offers several.")
@click.option(
    "--data",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The file that an item needs and the package does not hold.",
)
@seed_option
@workers_option
@ray_option
@json_option
def reproduce(
    config: Path | None,
    listing: bool,
    name: str | None,
    out: Path,
    runs: int | None,
    reading: str | None,
    data: Path | None,
    seed: int,
    workers: int | None,
    cluster: str | None,
    as_json: bool,
) -> None:
    """Compute a table or figure anew: JSON, CSV, a figure and a Markdown report."""
    from tacit.papers import ITEMS, item
    from tacit.papers.report import Setup, write
    from tacit.plots import figure
    from tacit.text import aligned

    if listing:
        items = {known: item(known) for known in ITEMS}
        rows = [(known, found.title + needs(found.needs_data)) for known, found in items.items()]
        content = {
            known: {"title": found.title, "runs": found.runs, "needs_data": found.needs_data}
            for known, found in items.items()
        }
        show(content, aligned_left(rows), as_json)
        return
    if name is None:
        raise click.UsageError("say what to reproduce; tacit reproduce --list names it all")
    with usage():
        found = item(name)
    chosen = reading or found.readings[0]
    if chosen not in found.readings:
        raise click.UsageError(f"--reading: {name} knows {', '.join(found.readings)}")
    if found.needs_data and data is None:
        raise click.UsageError(f"--data: {name} needs {found.needs_data}")
    figure()  # the lack of what draws must not show only when the work is done
    with where(cluster):
        result = found.reproduce(Setup(runs or found.runs, seed, workers, chosen, data))
    paths = write(name, result, out)
    table = [list(result.cells[0]), *(list(map(cell_text, c.values())) for c in result.cells)]
    text = aligned(table) + "\n\n" + "\n".join(f"wrote {path}" for path in paths)
    show({"cells": result.cells, "files": [str(path) for path in paths]}, text, as_json)


def needs(data: str | None) -> str:
    """Return what a listing says of data that must be given."""
    return f" (--data: {data})" if data else ""


def cell_text(value: Any) -> str:
    """Return a cell's value as short text."""
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def aligned_left(rows: list[tuple[str, str]]) -> str:
    """Return pairs as two columns, both flush left."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {text}" for name, text in rows)


@cli.command()
@json_option
@click.argument("names", nargs=-1)
def policies(names: tuple[str, ...], as_json: bool) -> None:
    """List the policies: where each comes from, what it assumes, what to use when that fails."""
    from tacit.policies.base import registry
    from tacit.policies.spec import policy_class

    with usage():
        chosen = [policy_class(name) for name in names] or list(registry.values())
    table = {policy.__name__: policy.about._asdict() for policy in chosen}
    text = "\n\n".join(
        f"{name}\n" + "\n".join(f"  {label:<10} {about[label]}" for label in about)
        for name, about in table.items()
    )
    show(table, text, as_json)


@cli.command()
@json_option
def warmup(as_json: bool) -> None:
    """Compile everything ahead, into the cache that later runs use."""
    from tacit.warmup import compile_all

    hits, misses, folder = compile_all()
    text = f"compiled {misses} loops, found {hits} in the cache: {folder}"
    show({"compiled": misses, "cached": hits, "folder": str(folder)}, text, as_json)


@cli.command()
@json_option
def version(as_json: bool) -> None:
    """Print the version."""
    show({"version": __version__}, f"tacit {__version__}", as_json)


def say_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    """Print a warning of ours for people; any other as Python does."""
    if issubclass(category, AssumptionWarning):
        click.echo(f"warning: {message}", err=True)
    else:
        text = warnings.formatwarning(message, category, filename, lineno, line)
        click.echo(text, err=True, nl=False)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    warnings.showwarning = say_warning
    # module:Class is looked for here too, after everything that is installed.
    sys.path.append(os.getcwd())
    try:
        code = cli.main(arguments, prog_name="tacit", standalone_mode=False)
    except click.UsageError as error:
        error.show()
        code = 2
    except click.ClickException as error:
        error.show()
        code = 1
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        code = 130
    except TacitError as error:
        click.echo(f"error: {error}", err=True)
        code = 1
    except BrokenPipeError:
        # The reader of a pipe has left (as head does); nothing more can be said.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code if isinstance(code, int) else 0)
