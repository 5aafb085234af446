"""The command ``python -m studies ITEM``: compute a table or figure of a paper."""

from pathlib import Path
from typing import Annotated, Any

import click

from studies import ITEMS, item
from studies.study import Setup, write
from tacit.cli import main
from tacit.cli.options import (
    Count,
    File,
    Json,
    OptionFormat,
    Seed,
    Workers,
    command,
    print_result,
    usage_errors,
)
from tacit.core.text import align_columns, align_left
from tacit.plots import figure

NAME = "python -m studies"


@command(name=NAME, configured=True)
def reproduce(
    name: str | None = None,
    *,
    listing: Annotated[bool, OptionFormat(("--list",))] = False,
    out: Path = Path("out"),
    runs: Count | None = None,
    reading: str | None = None,
    data: File | None = None,
    seed: Seed = 1,
    workers: Workers | None = None,
    as_json: Json = False,
) -> None:
    """Compute a table or figure of a paper: JSON, CSV, a figure and a Markdown report.

    Parameters
    ----------
    listing
        List what can be reproduced.
    out
        Folder.
    runs
        Repetitions; each item has its own default.
    reading
        Which reading of the paper, where an item offers several.
    data
        The file that an item needs and the repository does not hold.
    """
    if listing:
        items = {name: item(name) for name in ITEMS}
        rows = [(name, each.title + describe_data(each.needs_data)) for name, each in items.items()]
        content = {
            name: {"title": each.title, "runs": each.runs, "needs_data": each.needs_data}
            for name, each in items.items()
        }
        print_result(content, align_left(rows), as_json)
        return
    if name is None:
        raise click.UsageError(f"say what to reproduce; {NAME} --list names it all")
    with usage_errors():
        chosen = item(name)
    reading = reading or chosen.readings[0]
    if reading not in chosen.readings:
        raise click.UsageError(f"--reading: {name} knows {', '.join(chosen.readings)}")
    if chosen.needs_data and data is None:
        raise click.UsageError(f"--data: {name} needs {chosen.needs_data}")
    figure()  # a missing matplotlib must be reported before the work, not after it
    result = chosen.reproduce(Setup(runs or chosen.runs, seed, workers, reading, data))
    paths = write(name, result, out)
    table = [list(result.cells[0]), *(list(map(format_cell, c.values())) for c in result.cells)]
    text = align_columns(table) + "\n\n" + "\n".join(f"wrote {path}" for path in paths)
    print_result({"cells": result.cells, "files": [str(path) for path in paths]}, text, as_json)


def describe_data(data: str | None) -> str:
    """Return the note of the listing on a file that the user must supply."""
    return f" (--data: {data})" if data else ""


def format_cell(value: Any) -> str:
    """Return a cell's value as short text."""
    return f"{value:,.2f}" if isinstance(value, float) else "–" if value is None else str(value)


if __name__ == "__main__":
    main(command=reproduce, name=NAME, auto_envvar_prefix="TACIT_STUDIES")
