"""``tacit simulate``: regret curves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from tacit.cli.options import (
    config_option,
    json_option,
    plot_option,
    ray_option,
    seed_option,
    show,
    usage,
    where,
    workers_option,
)


@click.command()
@config_option
@click.option(
    "--policy",
    multiple=True,
    default=("auto", "thompson"),
    show_default=True,
    help='Name, call or module:Class; may be repeated. E.g. "epsilon-greedy(epsilon=0.05)".',
)
@click.option(
    "--environment",
    default="bernoulli-arms([0.1, 0.2, 0.3, 0.4, 0.5])",
    show_default=True,
    help='E.g. "shifting-arms(arms=5, keys=10, delay=(5, 20))" or "search-interest(\'FILE\')".',
)
@click.option("--horizon", default=100_000, show_default=True, type=click.IntRange(1), help="Rounds per run.")
@click.option("--runs", default=20, show_default=True, type=click.IntRange(1), help="Repetitions.")
@seed_option
@workers_option
@ray_option
@plot_option("Draw the regret curves into this file.")
@click.option("--table", type=click.Path(path_type=Path), help="Write all checkpoints (.csv or .parquet).")
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
        players = [policy_from_spec(spec, arms=world.arm_count, setting=world.setting) for spec in policy]
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
