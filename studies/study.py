"""What every study does: play contenders, judge claims, and leave JSON, CSV, figures and Markdown."""

# 1. Claims and verdicts: numbers choose the words.
# 2. What a reproduction leaves behind.
# 3. Contenders are played and summed up; tables, reports and figures.

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tacit.core.arrays import Floats
from tacit.core.parallel import progress
from tacit.environments import Environment
from tacit.errors import undo_on_error
from tacit.plots import figure, save
from tacit.policies import Policy
from tacit.simulation import SimulationResult, simulate, standard_error

# ---- What a paper claims and whether it holds: verdicts that the numbers choose


def beyond(value: float, limit: float, error: float) -> bool | None:
    """Whether a value exceeds a limit; None within two standard errors of it.

    Examples
    --------
    >>> beyond(1.0, 0.8, 0.05), beyond(0.6, 0.8, 0.05), beyond(0.75, 0.8, 0.05)
    (True, False, None)
    """
    return value > limit if abs(value - limit) >= 2.0 * error else None


def both(first: bool | None, second: bool | None) -> bool | None:
    """Whether two things hold; None if that is open.

    Examples
    --------
    >>> both(True, True), both(None, False), both(True, None)
    (True, False, None)
    """
    if first is False or second is False:
        return False
    return True if first and second else None


def rate(count: int, trials: int) -> str:
    """Return the interval of a probability in words.

    Examples
    --------
    >>> rate(0, 1000)
    'at most 0.37 %, with 95 % confidence'
    """
    low, high = (100.0 * bound for bound in exact_interval(count, trials))
    least = f"{low:.2g} to " if count else "at most "
    return f"{least}{high:.2g} %, with 95 % confidence"


def verdict(claim: str, holds: bool | None, evidence: str) -> str:
    """Return one claim of the paper with what was found; None is neither."""
    found = "Not decided" if holds is None else "Holds" if holds else "Does not hold"
    return f"- **{found}**: {claim} {evidence}"


def log_slope(x: Sequence[float], means: Sequence[float], errors: Sequence[float]) -> tuple[float, float]:
    """Return the least-squares slope of ln mean over ln x, and its standard error.

    The error is that of the means, propagated to first order; it does not cover curvature.

    Parameters
    ----------
    x, means : sequence of float
        Above 0.
    errors : sequence of float
        Standard errors of the means, relative to them.

    Examples
    --------
    >>> slope, error = log_slope([10, 100, 1000], [3.0, 30.0, 300.0], [0.0, 0.0, 0.0])
    >>> round(slope, 12), error
    (1.0, 0.0)
    """
    logs = np.log(x)
    weights = (logs - logs.mean()) / ((logs - logs.mean()) ** 2).sum()
    return float(weights @ np.log(means)), float(np.sqrt(((weights * errors) ** 2).sum()))


def exact_interval(count: int, trials: int) -> tuple[float, float]:
    """Return the 95 % interval of Clopper and Pearson for a probability.

    Examples
    --------
    >>> [round(bound, 5) for bound in exact_interval(0, 1000)]
    [0.0, 0.00368]
    >>> [round(bound, 4) for bound in exact_interval(5, 10)]
    [0.1871, 0.8129]
    """
    tail = (1.0 - 0.95) / 2.0

    def at_most(k: int, p: float) -> float:
        return sum(math.exp(ways(i) + i * math.log(p) + (trials - i) * math.log1p(-p)) for i in range(k + 1))

    def ways(i: int) -> float:
        return math.lgamma(trials + 1) - math.lgamma(i + 1) - math.lgamma(trials - i + 1)

    def root(above: Callable[[float], bool]) -> float:
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2.0
            low, high = (middle, high) if above(middle) else (low, middle)
        return low

    lower = root(lambda p: 1.0 - at_most(count - 1, p) < tail) if count > 0 else 0.0
    upper = root(lambda p: at_most(count, p) > tail) if count < trials else 1.0
    return lower, upper


# ---- What a reproduction leaves behind: JSON, CSV, a figure and a Markdown report


class Setup(NamedTuple):
    """What a user may choose of a reproduction.

    Attributes
    ----------
    runs, seed : int
    workers : int or None
    reading : str
        One of the item's readings.
    data : path or None
        A file that the item needs and the package does not hold.
    """

    runs: int
    seed: int = 1
    workers: int | None = None
    reading: str = "practical"
    data: Path | None = None

    def settings(self, **more: Any) -> dict[str, Any]:
        """Return what the numbers depend on: seed, runs, and what else is given."""
        return {"seed": self.seed, "runs": self.runs} | more


class Item(NamedTuple):
    """Something that can be reproduced.

    Attributes
    ----------
    title : str
    runs : int
        How many runs it takes unless asked otherwise.
    reproduce : callable
        From a setup to what came of it.
    readings : tuple of str
        Ways to read the paper; the first is the default.
    needs_data : str or None
        What the file must be that has to be given.
    """

    title: str
    runs: int
    reproduce: Callable[[Setup], Reproduction]
    readings: tuple[str, ...] = ("practical",)
    needs_data: str | None = None


@dataclass(frozen=True)
class Reproduction:
    """The outcome of one item.

    Attributes
    ----------
    cells : list of dict
        The numbers, one table row each, all with the same keys.
    report : str
        Markdown that says what was done, what a paper says and what was found.
    draw : callable
        Draws the figure into a path.
    settings : dict
        Seed, runs and whatever else the numbers depend on.
    """

    cells: list[dict[str, Any]]
    report: str
    draw: Callable[[Path], Any]
    settings: dict[str, Any]


def write(name: str, result: Reproduction, folder: Path) -> list[Path]:
    """Write ``folder/name.{json,csv,png,md}``, each only when complete; return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{suffix}" for suffix in ("json", "csv", "png", "md")]
    content = {"name": name, "settings": result.settings, "cells": result.cells}
    _replace(paths[0], lambda path: path.write_text(json.dumps(content, indent=1) + "\n"))
    _replace(paths[1], lambda path: _write_csv(path, result.cells))
    _replace(paths[2], result.draw)
    report = f"{result.report.strip()}\n\n![{name}]({name}.png)\n"
    _replace(paths[3], lambda path: path.write_text(report))
    return paths


def _replace(path: Path, write: Callable[[Path], Any]) -> None:
    temporary = path.with_name(f".{path.stem}.tmp{path.suffix}")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _write_csv(path: Path, cells: list[dict[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(cells[0]))
        writer.writeheader()
        writer.writerows(cells)


# ---- What every study does: play contenders, sum up their runs, and write tables and figures

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
    feedback: Mapping[str, Any] | None = None,
) -> SimulationResult:
    """Return what came of policies in an environment, in the runs that were asked for.

    ``feedback`` is when it comes, as :func:`tacit.simulate` takes it.
    """
    return simulate(
        list(policies.values()) if isinstance(policies, Mapping) else policies,
        environment,
        horizon,
        runs=setup.runs,
        seed=setup.seed,
        workers=setup.workers,
        checkpoints=checkpoints,
        **(feedback or {}),
    )


def each_run(run: Callable[[int], Found], runs: int, setup: Setup, label: str | None = None) -> list[Found]:
    """Return what a function gives for the number of each run; the first one compiles alone.

    A label shows how far it is.
    """
    shown = progress(runs, label) if label else nullcontext(lambda done: None)
    with shown as advance, ThreadPoolExecutor(setup.workers or os.cpu_count()) as pool:
        found = [run(0)]
        advance(1)
        with undo_on_error(pool.shutdown, cancel_futures=True):
            for result in pool.map(run, range(1, runs)):
                found.append(result)
                advance(1)
    return found


# Numbers --------------------------------------------------------------------------------------


def std(values: Floats) -> float:
    """Return the standard deviation; NaN of fewer than two values."""
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan


def ratio_of(own: Floats, other: Floats) -> tuple[float, float]:
    """Return the ratio of two means over the same runs, and its standard error by the delta method."""
    ratio = float(own.mean() / other.mean())
    return ratio, standard_error(own - ratio * other) / float(other.mean())


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
    return markdown_table([list(columns), *([text_of(c, t) for t in columns.values()] for c in cells)])


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
        rows.setdefault(key, {})[cell[column]] = text_of(cell, tell)
    body = [[*key, *(texts[value] for value in columns)] for key, texts in rows.items()]
    return markdown_table([[*names, *map(head.format, columns)], *body])


def text_of(cell: Cell, tell: Tell) -> str:
    """Return a cell as text, in which a dash stands for what there is not.

    Examples
    --------
    >>> text_of({"policy": "UCB1", "paper": None}, "{policy} {paper}")
    'UCB1 –'
    """
    shown = {name: "–" if value is None else value for name, value in cell.items()}
    return tell.format_map(shown) if isinstance(tell, str) else tell(cell)


def text_with_error(name: str, digits: int = 1) -> Callable[[Cell], str]:
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
    """Yield the axes of a figure to draw in, which is then written to ``path``.

    Raises
    ------
    ValueError
        If an axis names two things alike, or one "None".
    """
    made, axes = figure(width, height, rows, **options)
    yield axes
    for ax in made.axes:
        ticks = [[tick.get_text() for tick in axis.get_ticklabels()] for axis in (ax.xaxis, ax.yaxis)]
        for names in (*ticks, ax.get_legend_handles_labels()[1]):
            texts = [name for name in names if name]
            if len(set(texts)) < len(texts) or "None" in texts:
                raise ValueError(f"{path.name}: names must differ and none be None: {texts}")
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
