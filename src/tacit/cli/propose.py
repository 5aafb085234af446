"""``tacit propose``: parameters for intent that shifts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tacit.cli.options import concluding, config_option, json_option, reads_log, show, usage


@click.command()
@config_option
@click.argument("log", type=click.Path(exists=True, path_type=Path))
@reads_log
@click.option(
    "--keys",
    default=200,
    show_default=True,
    type=click.IntRange(1),
    help="Search shifts in so many of the busiest keys.",
)
@json_option
def propose(
    config: Path | None,
    log: Path,
    read: Any,
    keys: int,
    as_json: bool,
) -> None:
    """Propose parameters for policies that follow shifting intent, from a click log.

    Says where the log contradicts what such policies assume. LOG is as for evaluate.
    """
    from tacit.core.progress import progress
    from tacit.evaluate import propose as proposed

    with usage():
        reader = read(log)
    with progress(None, "searching shifts") as advance, concluding(reader):
        result = proposed(reader, keys=keys, progress=lambda done: advance(1))
    content = asdict(result) | {"shifts": [shift._asdict() for shift in result.shifts]}
    show(content, result.summary(), as_json, reader.report)
