"""What every study does: play contenders, sum up their runs, and write tables and figures."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from tacit.core.arrays import Floats
from tacit.core.progress import progress
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


def each_run(one: Callable[[int], Found], runs: int, setup: Setup, label: str | None = None) -> list[Found]:
    """Return what a function gives for the number of each run; the first one compiles alone.

    A label shows how far it is.
    """
    shown = progress(runs, label) if label else nullcontext(lambda done: None)
    with shown as advance, ThreadPoolExecutor(setup.workers or os.cpu_count()) as pool:
        found = [one(0)]
        advance(1)
        try:
            for result in pool.map(one, range(1, runs)):
                found.append(result)
                advance(1)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return found


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


def regret_cells(names: Iterable[str], regret: Floats, **settings: Any) -> list[Cell]:
    """Return a cell for each policy: its name, the settings, its regret, and how many runs.

    Parameters
    ----------
    names : iterable of str
    regret : array of float64, shape (policies, runs)
    """
    return [
        {"policy": name, **settings, **moments(own), "runs": len(own)}
        for name, own in zip(names, regret, strict=True)
    ]


# Tables and reports ---------------------------------------------------------------------------

REPORTS = Path(__file__).parent / "reports"


def report(name: str, setup: Setup, **fields: Any) -> str:
    """Return the report ``reports/name.md`` with its fields filled in; ``setup`` is one."""
    text = (REPORTS / f"{name}.md").read_text(encoding="utf-8")
    return text.format(setup=setup, **fields)


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


def pivot(cells: Sequence[Cell], row: str | Sequence[str], column: str, tell: Tell, head: str = "{}") -> str:
    """Return cells as a Markdown table: a row for each value of some names, columns of another.

    Parameters
    ----------
    cells : sequence of dict
    row : str or sequence of str
        Names of the values that head a row.
    column : str
        Name of the values that head the columns.
    tell : str or callable
        How a cell is shown.
    head : str
        The format of a column's head.

    Examples
    --------
    >>> cells = [{"arms": n, "policy": name, "regret": 9.0} for n in (2, 5) for name in "AB"]
    >>> print(pivot(cells, "policy", "arms", "{regret:.1f}", "{} arms"))
    | policy | 2 arms | 5 arms |
    |---|---|---|
    | A | 9.0 | 9.0 |
    | B | 9.0 | 9.0 |
    """
    names = [row] if isinstance(row, str) else list(row)
    columns = list(dict.fromkeys(cell[column] for cell in cells))
    rows: dict[tuple[str, ...], dict[Any, str]] = {}
    for cell in cells:
        key = tuple(str(cell[name]) for name in names)
        rows.setdefault(key, {})[cell[column]] = told(cell, tell)
    body = [[*key, *(texts[value] for value in columns)] for key, texts in rows.items()]
    return markdown_table([[*names, *map(head.format, columns)], *body])


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


def listed(lines: Iterable[str]) -> str:
    """Return lines as a Markdown list."""
    return "\n".join(f"- {line}" for line in lines)


# Figures --------------------------------------------------------------------------------------

MARKED: dict[str, Any] = {"marker": "o", "ms": 4, "capsize": 3}
"""How points with error bars look."""


@contextmanager
def drawing(
    path: Path, width: float = 7.0, height: float = 4.3, rows: int = 1, **options: Any
) -> Iterator[Any]:
    """Give the axes of a figure to draw in, which is then written to ``path``."""
    made, axes = figure(width, height, rows, **options)
    yield axes
    save(made, path)


def inscribe(
    ax: Any, title: str = "", size: float = 10, legend: float | str | None = None, **labels: Any
) -> None:
    """Set what an axis says: labels, scales and limits, its title, and the size of its legend."""
    ax.set(**labels)
    if title:
        ax.set_title(title, size=size)
    if legend is not None:
        ax.legend(frameon=False, fontsize=legend)


def legend_below(axes: Any, fontsize: float, ncols: int) -> None:
    """Put one legend for all panels below the last one."""
    place: dict[str, Any] = {"loc": "outside lower center", "frameon": False}
    handles, labels = axes[0].get_legend_handles_labels()
    axes[0].figure.legend(handles, labels, **place, fontsize=fontsize, ncols=ncols)
