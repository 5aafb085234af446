"""From a log to cells: what was shown where, summed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.evaluate.rows import LoggedRows, RowReader, clusters, positions

GROUPS = 20
"""Groups of decisions that the jackknife leaves out in turn."""


class Cells(NamedTuple):
    """What was shown where, summed: one cell per group of decisions, key and arm, and position.

    Attributes
    ----------
    group, pair, position : array of int64, shape (cells,)
    shown, clicks : array of float64, shape (cells,)
        Rows and their rewards; for randomization weighted towards uniform placement.
    names : list of (str, str)
        Key and arm of each pair.
    """

    group: Ints
    pair: Ints
    position: Ints
    shown: Floats
    clicks: Floats
    names: list[tuple[str, str]]

    def without(self, group: int) -> Cells:
        """Return the cells of all other groups."""
        keep = self.group != group
        return Cells._make([*(column[keep] for column in self[:5]), self.names])


def cells_of(log: Any, missing_reward: float | None, *, randomized: bool) -> Cells:
    needed = ("placement", "key", "position", "decision_id")
    reader = RowReader(needed, missing_reward, need_propensity=randomized)
    pairs: dict[tuple[int, int, int], int] = {}
    names: list[tuple[str, str]] = []
    parts: list[Floats] = []
    for rows in reader.read(log):
        group = clusters(rows.chunk.batch["decision_id"], GROUPS)
        weights = _to_uniform(rows) if randomized else np.ones(len(group))
        pair = _pairs(rows, pairs, names)
        part = np.stack([group, pair, positions(rows), weights, weights * rows.reward])
        parts.append(_summed(part))
        if len(parts) > 32:
            parts = [_summed(np.concatenate(parts, axis=1))]
    columns = _summed(np.concatenate([np.zeros((5, 0)), *parts], axis=1))
    return Cells._make([*columns[:3].astype(np.int64), *columns[3:], names])


def _to_uniform(rows: LoggedRows) -> Floats:
    """Return weights that make the arms at each position as if chosen uniformly."""
    sizes = np.array([len(offer) for offer in rows.offers], np.float64)
    return 1.0 / (sizes[rows.offer] * rows.propensity)


def _pairs(rows: LoggedRows, pairs: dict[tuple[int, int, int], int], names: list[tuple[str, str]]) -> Ints:
    table = np.stack([rows.names["placement"].codes, rows.names["key"].codes, rows.arm.codes])
    distinct, which = np.unique(table, axis=1, return_inverse=True)
    found = []
    for pair in map(tuple, distinct.T.tolist()):
        if pair not in pairs:
            pairs[pair] = len(names)
            names.append((rows.names["key"].names[pair[1]], rows.arm.names[pair[2]]))
        found.append(pairs[pair])
    return np.array(found, np.int64)[which.ravel()]


def _summed(part: Floats) -> Floats:
    """Return the sums of columns of the same group, pair and position."""
    order = np.lexsort(part[2::-1])
    part = part[:, order]
    new = np.ones(part.shape[1], np.bool_)
    new[1:] = (np.diff(part[:3], axis=1) != 0).any(axis=0)
    first = np.flatnonzero(new)
    sums = np.add.reduceat(part[3:], first, axis=1)
    return np.concatenate([part[:3, first], sums])
