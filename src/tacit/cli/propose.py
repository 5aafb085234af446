"""``tacit propose``: parameters for intent that shifts."""

from __future__ import annotations

from dataclasses import asdict
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
@format_option
@column_option
@constant_option
@click.option(
    "--keys",
    default=200,
    show_default=True,
    type=click.IntRange(1),
    help="Search shifts in so many of the busiest keys.",
)
@strict_option
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
    from tacit.core.progress import progress
    from tacit.evaluate import propose as proposed
    from tacit.logs import read_log

    with usage():
        reader = read_log(
            log,
            format=format,
            columns=pairs("column", column),
            constants=pairs("constant", constant),
            strict=strict,
        )
    with progress(None, "searching shifts") as advance, concluding(reader):
        result = proposed(reader, keys=keys, progress=lambda done: advance(1))
    rows = reader.report
    text = result.summary()
    if rows.rejected:
        text += "\n" + rows.summary()
    shifts = [shift._asdict() for shift in result.shifts]
    content = asdict(result) | {"shifts": shifts, "rejected": dict(rows.rejected)}
    show(content, text, as_json)
