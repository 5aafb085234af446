"""Series of anything, turned into clicks on named arms by one rule."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from tacit.core.arrays import Floats
from tacit.environments import ShiftingArms

FOLDER = Path(__file__).parent / "series"
LOWEST, HIGHEST = 0.02, 0.5
"""The click rates of a column where it is lowest and highest, as of ``SearchInterest``."""


def series_names() -> list[str]:
    """Return the names of the tables that are carried along."""
    return sorted(path.stem for path in FOLDER.glob("*.csv"))


def clicks_of(values: Floats) -> Floats:
    """Return click rates: each column's rank among its own rows, ties in the middle, from 0.02 to 0.5.

    Parameters
    ----------
    values : array of float64, shape (rows, columns)

    Examples
    --------
    >>> clicks_of(np.array([[7.0, 1.0], [9.0, 1.0]])).tolist()
    [[0.02, 0.26], [0.5, 0.26]]
    """
    below = (values[:, None] > values[None]).sum(axis=1)
    level = (values[:, None] == values[None]).sum(axis=1)
    rank: Floats = (below + 0.5 * (level - 1)) / (len(values) - 1)
    return LOWEST + (HIGHEST - LOWEST) * rank


def stream_of(name: str, horizon: int) -> ShiftingArms:
    """Return a table as one key's clicks: a column is an arm, and rows share the rounds in their order."""
    with (FOLDER / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        _, *rows = csv.reader(file)
    clicks = clicks_of(np.array([row[1:] for row in rows], np.float64))
    events = [1 + row * horizon // len(clicks) for row in range(1, len(clicks))]
    return ShiftingArms(arms=clicks.shape[1], events=events, clicks=clicks.tolist())
