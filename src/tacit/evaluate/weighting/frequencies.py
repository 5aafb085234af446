"""Propensities that a log does not have, estimated from how often it shows what."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.evaluate.rows import LoggedRows, RowReader, positions
from tacit.evaluate.targets.base import offered
from tacit.evaluate.weighting.arm_means import ArmCounts

FOLDS = 5
STRENGTH = 10.0
ASSUMES = (
    "propensities are estimated from what the log shows, not logged: right only if nothing else "
    "than was looked at (by default key and position) moved both what was shown and what was "
    "clicked, such as who asked, when, or what the policy had learned meanwhile; where the log "
    "always shows the same, it tells nothing"
)


class Frequencies:
    """How often a log shows each arm for a key at a position, cross-fitted.

    Rows are dealt out to folds in turn, and a row is weighed by the rows of other folds. A key of
    few rows is drawn towards all keys: (count + 10 × frequency at the position)/(rows + 10). Of the
    arms on offer, each then has its share.

    References
    ----------
    Hirano, Imbens, Ridder (2003), "Efficient estimation of average treatment effects using the
    estimated propensity score"; Chernozhukov et al. (2018), "Double/debiased machine learning for
    treatment and structural parameters" (cross-fitting).
    """

    columns = frozenset({"placement", "key", "position"})

    def __init__(self) -> None:
        self._shares: Floats | None = None
        self._cells: dict[str, int] = {}
        self._arms: list[str] = []

    @property
    def fitted(self) -> bool:
        """Whether it has seen a log."""
        return self._shares is not None

    @property
    def names(self) -> dict[str, list[str]]:
        """The names that it was fitted to, in the order of their numbers."""
        return {"arm": self._arms}

    def counted(self, log: Any, missing_reward: float | None = 0.0) -> ArmCounts:
        """Return all that it needs of a log, or of a part of one."""
        reader = RowReader(self.columns, missing_reward, need_propensity=False)
        cells: dict[str, int] = {}
        seen: list[tuple[Ints, Ints, Ints]] = []
        for rows in reader.read(log):
            codes = np.array([cells.setdefault(cell, len(cells)) for cell in _cells(rows)])
            fold = (rows.first + np.arange(len(codes))) % FOLDS
            triples = np.stack([fold, codes, rows.arm.codes])
            distinct, count = np.unique(triples, axis=1, return_counts=True)
            seen.append((*distinct[:2], np.stack([distinct[2], count])))  # type: ignore[arg-type]
        plays = np.zeros((FOLDS, len(cells), len(reader.arms)))
        for fold, codes, (arms, count) in seen:
            np.add.at(plays, (fold, codes, arms), count)
        return ArmCounts(reader.rows, list(cells), list(reader.arms), plays, np.zeros_like(plays))

    def of(self, counts: ArmCounts) -> Self:
        """Return the frequencies of what was counted."""
        fresh = copy.copy(self)
        others = counts.plays.sum(axis=0) - counts.plays
        place = np.array([cell.rpartition("\0")[2] for cell in counts.values])
        at_place = np.zeros_like(others)
        for one in np.unique(place):
            total = others[:, place == one].sum(axis=1, keepdims=True) + 1.0
            at_place[:, place == one] = total / total.sum(axis=2, keepdims=True)
        rows = others.sum(axis=2, keepdims=True)
        fresh._shares = (others + STRENGTH * at_place) / (rows + STRENGTH)
        fresh._cells = {cell: code for code, cell in enumerate(counts.values)}
        fresh._arms = counts.arms
        return fresh

    def shown(self, rows: LoggedRows) -> Floats:
        """Return the estimated propensity of each row's arm at its position."""
        assert self._shares is not None, "it is fitted before the first row"
        codes = np.array([self._cells[cell] for cell in _cells(rows)])
        fold = (rows.first + np.arange(len(codes))) % FOLDS
        shares = self._shares[fold, codes, : len(rows.arm.names)] * offered(rows)[rows.offer]
        own = shares[np.arange(len(codes)), rows.arm.codes]
        return np.asarray(own / shares.sum(axis=1))


def _cells(rows: LoggedRows) -> list[str]:
    """Return placement, key and position of each row as text."""
    known = "position" in rows.chunk.batch.schema.names
    there = known and not rows.chunk.batch["position"].null_count
    place = positions(rows) if there else np.zeros(len(rows.reward), np.int64)
    placement, key = rows.names["placement"], rows.names["key"]
    triples = np.stack([placement.codes, key.codes, place])
    distinct, which = np.unique(triples, axis=1, return_inverse=True)
    told = [f"{placement.names[one]}\0{key.names[other]}\0{at}" for one, other, at in distinct.T.tolist()]
    return [told[i] for i in which.ravel().tolist()]
