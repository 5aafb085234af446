"""``tacit examine``: how much is each position examined?"""

from __future__ import annotations

from pathlib import Path

import click

from tacit.cli.options import (
    column_option,
    concluding,
    config_option,
    constant_option,
    format_option,
    json_option,
    pairs,
    show,
    strict_option,
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
@format_option
@column_option
@constant_option
@strict_option
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
    with concluding(reader):
        results = [examination.examine(reader, name) for name in methods]
    if plot:
        examination.plot(results, plot)
    texts = [result.summary() for result in results]
    if reader.report.rejected:
        texts.append(reader.report.summary())
    table = [row for result in results for row in result.table()]
    content = {"effects": table, "rejected": dict(reader.report.rejected)}
    show(content, "\n\n".join(texts), as_json)
