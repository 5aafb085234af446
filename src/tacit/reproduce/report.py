"""What a reproduction leaves behind: JSON, CSV, a figure and a Markdown report."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple


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

    def told(self, **more: Any) -> dict[str, Any]:
        """Return what the numbers depend on: seed, runs, and what else is given."""
        return {"seed": self.seed, "runs": self.runs} | more


class Item(NamedTuple):
    """Something that can be reproduced.

    Attributes
    ----------
    title : str
    runs : int
        How many runs it takes unless told otherwise.
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
