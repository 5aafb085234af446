"""``tacit duel``: which ranker wins?"""

from __future__ import annotations

from pathlib import Path

import click

from tacit.cli.options import (
    column_option,
    config_option,
    json_option,
    pairs,
    plot_option,
    show,
    strict_option,
)


@click.command()
@config_option
@click.argument("log", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--format", help="parquet, csv or json.  [default: from the suffix]")
@column_option
@click.option(
    "--confidence",
    default=0.95,
    show_default=True,
    type=click.FloatRange(0.0, 1.0, min_open=True, max_open=True),
    help="Of all that is decided, together.",
)
@strict_option
@plot_option("Draw the leader's duels into this file.")
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
    from tacit.core.progress import progress
    from tacit.evaluate.duels import COLUMNS, read_duels
    from tacit.plots import figure

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
    show(report.as_dict(), report.summary(), as_json, rows)
