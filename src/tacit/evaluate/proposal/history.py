"""The log in memory, and what happened to each key in it."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.errors import LogError
from tacit.evaluate.proposal.segments import Change, changes
from tacit.logs.rows import lengths
from tacit.logs.sources import as_chunks

LEAST_PLAYS = 20
"""Plays of an arm, before a change and after it, below which nothing is said of it."""


class LogColumns(NamedTuple):
    """All rows of a log.

    Attributes
    ----------
    lanes, arms : array of int64, shape (rows,)
        Which key, and which arm.
    rewards : array of float64, shape (rows,)
    contexts : array of float64, shape (rows, dim)
    names : list of (str, str)
        Placement and key of each lane.
    offered : float
        How many arms are on offer, in the median.
    arm_count : int
        How many there are in all.
    """

    lanes: Ints
    arms: Ints
    rewards: Floats
    contexts: Floats
    names: list[tuple[str, str]]
    offered: float
    arm_count: int

    @classmethod
    def read(cls, log: Any) -> LogColumns:
        """Return all rows of a log."""
        lanes: dict[tuple[str, str], int] = {}
        arms: dict[str, int] = {}
        parts: list[tuple[Ints, Ints, Floats, Ints, Floats]] = []
        dim = None
        for chunk in as_chunks(log):
            batch = chunk.batch
            if not len(chunk.rows):
                continue
            given = lengths(batch["context"])
            dim = int(given[0]) if dim is None else dim
            for row in np.flatnonzero(given != dim)[:1].tolist():
                raise LogError(
                    f"{chunk.where(row)}: context: it has {given[row]} numbers, "
                    f"rows before have {dim}; read the placements one by one"
                )
            pairs = zip(batch["placement"].to_pylist(), batch["key"].to_pylist(), strict=True)
            parts.append(
                (
                    np.array([lanes.setdefault(pair, len(lanes)) for pair in pairs]),
                    np.array([arms.setdefault(a, len(arms)) for a in batch["arm"].to_pylist()]),
                    batch["reward"].fill_null(0.0).to_numpy(),
                    lengths(batch["arms"]),
                    batch["context"].flatten().to_numpy().reshape(-1, dim or 0)
                    if dim
                    else np.zeros((len(given), 0)),
                )
            )
        if not parts:
            raise LogError("the log has no rows; nothing can be proposed from it")
        lane, arm, reward, offered, context = (np.concatenate(p) for p in zip(*parts, strict=True))
        return cls(lane, arm, reward, context, list(lanes), float(np.median(offered)), len(arms))


class KeyHistory(NamedTuple):
    """What happened to one key.

    Attributes
    ----------
    lane : int
    rows : array of int64, shape (rounds,)
        Its rows, in the order of the log.
    changes : list of Change
    plays, means : array of float64, shape (changes + 1, arms)
        Per stretch between changes.
    """

    lane: int
    rows: Ints
    changes: list[Change]
    plays: Floats
    means: Floats

    @classmethod
    def of(cls, columns: LogColumns, rows: Ints, lane: int, delta: float) -> KeyHistory:
        """Return the changes found in the rows of one key."""
        arms, rewards = columns.arms[rows], columns.rewards[rows]
        found = changes(arms, rewards, columns.arm_count, delta)
        edges = [0, *(change.round for change in found), len(rows)]
        shape = (len(found) + 1, columns.arm_count)
        plays, clicks = np.zeros(shape), np.zeros(shape)
        for part, (start, stop) in enumerate(pairwise(edges)):
            np.add.at(plays[part], arms[start:stop], 1.0)
            np.add.at(clicks[part], arms[start:stop], rewards[start:stop])
        return cls(lane, rows, found, plays, clicks / np.maximum(plays, 1.0))

    def shift_sizes(self) -> list[float]:
        """Return, per change, by how much the old best arm fell behind; 0 if it stayed best.

        What is less than two standard errors counts as nothing.
        """
        sizes = []
        for part in range(len(self.changes)):
            known = (self.plays[part : part + 2] >= LEAST_PLAYS).all(axis=0)
            size = 0.0
            if known.any():
                old = int(np.where(known, self.means[part], -1.0).argmax())
                new = int(np.where(known, self.means[part + 1], -1.0).argmax())
                means, plays = self.means[part + 1, [old, new]], self.plays[part + 1, [old, new]]
                error = math.sqrt(float((means * (1.0 - means) / plays).sum()))
                gap = float(means[1] - means[0])
                size = gap if gap > 2.0 * error else 0.0
            sizes.append(size)
        return sizes

    def best_rates(self) -> list[float]:
        """Return the click rate of the best known arm in each stretch."""
        known = np.where(self.plays >= LEAST_PLAYS, self.means, -1.0)
        return [rate for rate in known.max(axis=1).tolist() if rate >= 0.0]

    def variances(self) -> list[float]:
        """Return the variance of a click, for every arm and stretch in which it is known."""
        means = self.means[self.plays >= LEAST_PLAYS]
        return list((means * (1.0 - means)).tolist())
