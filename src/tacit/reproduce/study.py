"""What every study does: play contenders, sum up their runs, and write tables and figures."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tacit.core.arrays import Floats
from tacit.environments import Environment
from tacit.plots import figure, save
from tacit.policies import Policy
from tacit.reproduce.report import Setup
from tacit.simulation import SimulationResult, simulate

Cell = dict[str, Any]
Found = TypeVar("Found")
Tell = str | Callable[[Cell], str]
"""How a cell is shown: a format string over its keys, or a function of it."""


def play(
    policies: Policy | Sequence[Policy] | Mapping[str, Policy],
    environment: Environment,
    horizon: int,
    setup: Setup,
    checkpoints: int | Sequence[int] = 1,
) -> SimulationResult:
    """Return what came of policies in an environment, in the runs that were asked for."""
    return simulate(
        list(policies.values()) if isinstance(policies, Mapping) else policies,
        environment,
        horizon,
        runs=setup.runs,
        seed=setup.seed,
        workers=setup.workers,
        checkpoints=checkpoints,
    )


def each_run(one: Callable[[int], Found], runs: int, setup: Setup) -> list[Found]:
    """Return what a function gives for the number of each run; the first one compiles alone."""
    first = one(0)
    with ThreadPoolExecutor(setup.workers or os.cpu_count()) as pool:
        return [first, *pool.map(one, range(1, runs))]


# Numbers --------------------------------------------------------------------------------------


def std(values: Floats) -> float:
    """Return the standard deviation; NaN of fewer than two values."""
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan


def moments(values: Floats, name: str = "regret") -> Cell:
    """Return mean and standard deviation over runs, as parts of a cell."""
    return {f"{name}_mean": float(values.mean()), f"{name}_std": std(values)}


def select(cells: Sequence[Cell], **where: Any) -> list[Cell]:
    """Return the cells that have these values.

    Examples
    --------
    >>> select([{"arms": 2, "regret": 3.0}, {"arms": 5, "regret": 9.0}], arms=5)
    [{'arms': 5, 'regret': 9.0}]
    """
    return [cell for cell in cells if all(cell[name] == value for name, value in where.items())]


def only(cells: Sequence[Cell], **where: Any) -> Cell:
    """Return the one cell that has these values."""
    (cell,) = select(cells, **where)
    return cell


# Tables and figures ---------------------------------------------------------------------------


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a Markdown table, the first being its head."""
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


def table(cells: Sequence[Cell], columns: Mapping[str, Tell]) -> str:
    """Return cells as a Markdown table, a row for each.

    Examples
    --------
    >>> print(table([{"arms": 5, "regret": 9.0}], {"n": "{arms}", "regret": "{regret:.1f}"}))
    | n | regret |
    |---|---|
    | 5 | 9.0 |
    """
    return markdown_table([list(columns), *([told(c, t) for t in columns.values()] for c in cells)])


def told(cell: Cell, tell: Tell) -> str:
    """Return a cell as text."""
    return tell.format_map(cell) if isinstance(tell, str) else tell(cell)


def told_with_error(name: str, digits: int = 1) -> Callable[[Cell], str]:
    """Return what shows a cell's mean of this name ± its standard error."""
    prefix = f"{name}_" if name else ""

    def tell(cell: Cell) -> str:
        mean, deviation = cell[f"{prefix}mean"], cell[f"{prefix}std"]
        return f"{mean:,.{digits}f} ± {deviation / math.sqrt(cell['runs']):,.{digits}f}"

    return tell


@contextmanager
def drawing(
    path: Path, width: float = 7.0, height: float = 4.3, rows: int = 1, **options: Any
) -> Iterator[Any]:
    """Give the axes of a figure to draw in, which is then written to ``path``."""
    made, axes = figure(width, height, rows, **options)
    yield axes
    save(made, path)
