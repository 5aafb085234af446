"""The log in memory, and where each key's clicks changed in it."""

# 1. ``changes``: one key's clicks are cut where a likelihood ratio is largest, and each half again (binary
#    segmentation).
# 2. ``LogColumns``, ``KeyHistory``: a whole log in memory, and what happened to each key in it.

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.errors import LogError
from tacit.logs.rows import lengths
from tacit.logs.sources import as_chunks

# ---- Where a key's clicks changed, found afterwards: binary segmentation by likelihood ratios

LIKELY = math.log(1000.0)
"""A split that is a thousand times less likely than the best one is ruled out."""


class ChangePoint(NamedTuple):
    """A place where click probabilities changed.

    Attributes
    ----------
    round : int
        The most likely first round after the change, from 0.
    first, last : int
        The range of rounds that are not ruled out.
    """

    round: int
    first: int
    last: int


def changes(arms: Ints, rewards: Floats, arm_count: int, delta: float) -> list[ChangePoint]:
    """Return the changes in one key's clicks, in the order of their rounds.

    The rounds are split where, for some arm, two rates explain its rewards better than one by
    a log-likelihood ratio of ln(3·n·sqrt(n)·arms/δ), n being its plays; the place is the one
    at which the ratios of all arms add up to most. Both parts are searched in turn.

    Parameters
    ----------
    arms : array of int64, shape (rounds,)
        Slot of the arm that was shown in each round.
    rewards : array of float64, shape (rounds,)
        In [0, 1].
    arm_count : int
    delta : float
        About the probability of finding a change where there is none.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> arms = rng.integers(2, size=4000)
    >>> rates = np.where(np.arange(4000) < 1500, [[0.5], [0.2]], [[0.1], [0.2]])
    >>> rewards = (rng.random(4000) < rates[arms, np.arange(4000)]).astype(float)
    >>> [abs(change.round - 1500) < 30 for change in changes(arms, rewards, 2, 0.01)]
    [True]
    """
    found: list[ChangePoint] = []
    parts = [(0, len(arms))]
    while parts:
        start, stop = parts.pop()
        change = best_split(arms[start:stop], rewards[start:stop], arm_count, delta)
        if change is not None:
            found.append(ChangePoint(*(start + round for round in change)))
            parts += [(start, start + change.round), (start + change.round, stop)]
    return sorted(found)


def best_split(arms: Ints, rewards: Floats, arm_count: int, delta: float) -> ChangePoint | None:
    """Return the most likely change, if the evidence for any suffices."""
    total = np.zeros(max(len(arms) - 1, 0))
    evident = False
    for arm in range(arm_count):
        mine = arms == arm
        plays = int(mine.sum())
        if plays < 2:
            continue
        ratios = likelihood_ratios(mine, rewards)
        total += ratios
        threshold = math.log(3.0 * plays * math.sqrt(plays) * arm_count / delta)
        evident = evident or ratios.max() >= threshold
    if not evident:
        return None
    likely = np.flatnonzero(total >= total.max() - LIKELY)
    # The split after round i makes round i + 1 the first of the new rates.
    return ChangePoint(1 + int(total.argmax()), 1 + int(likely[0]), 1 + int(likely[-1]))


def likelihood_ratios(mine: np.ndarray, rewards: Floats) -> Floats:
    """Return, for a split after each round but the last, the log-likelihood ratio of one arm.

    Parameters
    ----------
    mine : array of bool, shape (rounds,)
        In which rounds the arm was shown.
    rewards : array of float64, shape (rounds,)

    Examples
    --------
    >>> ratios = likelihood_ratios(np.array([True, True, False, True]), np.array([1, 1, 0, 0.0]))
    >>> [round(float(ratio), 4) for ratio in ratios]  # 3·entropy(2/3) − 2·entropy(1/2), then all
    [0.5232, 1.9095, 1.9095]
    """
    before, clicks = np.cumsum(mine)[:-1], np.cumsum(np.where(mine, rewards, 0.0))
    plays, total = before[-1] + mine[-1], clicks[-1]
    first = clicks[:-1]
    apart = likelihood(first, before) + likelihood(total - first, plays - before)
    return np.asarray(apart - likelihood(total, plays))


def likelihood(clicks: Floats, plays: Ints) -> Floats:
    """Return the largest Bernoulli log-likelihood of clicks in plays, 0 where there are none."""
    missed = np.maximum(plays - clicks, 0.0)
    hit = np.maximum(clicks, 0.0)
    shown = np.log(np.maximum(plays, 1))
    return np.asarray(
        hit * (np.log(np.where(hit > 0.0, hit, 1.0)) - shown)
        + missed * (np.log(np.where(missed > 0.0, missed, 1.0)) - shown)
    )


# ---- The log in memory, and what happened to each key in it

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
    changes : list of ChangePoint
    plays, means : array of float64, shape (changes + 1, arms)
        Per stretch between changes.
    """

    lane: int
    rows: Ints
    changes: list[ChangePoint]
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
