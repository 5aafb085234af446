"""``tacit examine``: how much is each position examined?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tacit.cli.options import (
    concluding,
    config_option,
    json_option,
    names,
    plot_option,
    reads_log,
    show,
    usage,
)


@click.command()
@config_option
@click.argument("log", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--method",
    default="randomization,harvesting,em",
    show_default=True,
    help="How to tell examination from relevance; with commas between several.",
)
@reads_log
@plot_option("Draw the effects into this file.")
@json_option
def examine(config: Path | None, log: Path, method: str, read: Any, plot: Path | None, as_json: bool) -> None:
    """Estimate how much each position is examined, from a click log with positions.

    LOG is a file or a folder: Parquet, CSV, JSON lines, or the Open Bandit Dataset's layout.
    """
    from tacit.evaluate import examination
    from tacit.plots import figure

    methods = names(method)
    with usage():
        reader = read(log)
        if plot:
            figure()  # the lack of what draws must not show only when the work is done
    if not methods or not set(methods) <= set(examination.METHODS):
        raise click.UsageError(f"--method: give any of {', '.join(examination.METHODS)}")
    with concluding(reader):
        results = [examination.examine(reader, name) for name in methods]
    if plot:
        examination.plot(results, plot)
    text = "\n\n".join(result.summary() for result in results)
    table = [row for result in results for row in result.table()]
    show({"effects": table}, text, as_json, reader.report)
