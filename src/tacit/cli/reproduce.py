"""``tacit reproduce``: tables and figures, computed anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tacit.cli.options import (
    config_option,
    json_option,
    ray_option,
    seed_option,
    show,
    usage,
    where,
    workers_option,
)


@click.command()
@config_option
@click.option("--list", "listing", is_flag=True, help="List what can be reproduced.")
@click.argument("name", required=False)
@click.option("--out", default="out", show_default=True, type=click.Path(path_type=Path), help="Folder.")
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
    from tacit.core.text import aligned, left_aligned
    from tacit.plots import figure
    from tacit.reproduce import ITEMS, item
    from tacit.reproduce.study import Setup, write

    if listing:
        items = {known: item(known) for known in ITEMS}
        rows = [(known, found.title + needs(found.needs_data)) for known, found in items.items()]
        content = {
            known: {"title": found.title, "runs": found.runs, "needs_data": found.needs_data}
            for known, found in items.items()
        }
        show(content, left_aligned(rows), as_json)
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
