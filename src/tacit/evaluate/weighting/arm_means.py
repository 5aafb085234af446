"""Mean rewards per arm of the log itself, as a model of the expected reward."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple, Self

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Ints
from tacit.errors import InvalidValue
from tacit.evaluate.rows import NAMES, LoggedRows, RowReader
from tacit.evaluate.targets.tables import PER


class ArmCounts(NamedTuple):
    """Rows and rewards of a log, or of a part of one.

    Attributes
    ----------
    rows : int
    values, arms : list of str
        What the tables are kept per, and the arms.
    plays, total : array of float64, shape (folds, values, arms)
        Rows, and the sum of their rewards. Rows are dealt out to folds in turn.
    """

    rows: int
    values: list[str]
    arms: list[str]
    plays: Floats
    total: Floats

    def merge(self, later: ArmCounts) -> ArmCounts:
        """Return the counts of these rows and of those that come after them."""
        folds = len(self.plays)
        values = list(dict.fromkeys([*self.values, *later.values]))
        arms = list(dict.fromkeys([*self.arms, *later.arms]))
        plays, total = np.zeros((2, folds, len(values), len(arms)))
        place = {name: i for i, name in enumerate(values)}
        column = {name: i for i, name in enumerate(arms)}
        for part, turn in ((self, 0), (later, self.rows % folds)):
            where = np.ix_(
                (np.arange(folds) + turn) % folds,
                np.array([place[name] for name in part.values], np.int64),
                np.array([column[name] for name in part.arms], np.int64),
            )
            plays[where] += part.plays
            total[where] += part.total
        return ArmCounts(self.rows + later.rows, values, arms, plays, total)


class ArmMeans:
    """Mean rewards per arm, cross-fitted: a row is judged by means to which it did not add.

    Rows are dealt out to folds in turn; the model of a fold is made of the other folds. A mean
    of few rows is drawn towards the mean of all: (sum + strength × mean)/(rows + strength).

    Parameters
    ----------
    per : {None, "key", "placement", "position", "policy"}
        What has means of its own.
    folds : int, default 5
    strength : float, default 10
        How many rows the mean of all counts for.

    References
    ----------
    Chernozhukov et al. (2018), "Double/debiased machine learning for treatment and structural
    parameters" (cross-fitting).
    """

    def __init__(self, per: str | None = None, *, folds: int = 5, strength: float = 10.0) -> None:
        if per not in PER:
            raise InvalidValue("per", per, f"give one of {', '.join(map(str, PER))}")
        self.per = per
        self.folds = checks.integer("folds", folds, 2, 1000)
        self.strength = checks.positive("strength", strength)
        self.columns = frozenset({per} if per else ())
        self._means: Floats | None = None
        self._names: tuple[list[str], list[str]] = ([], [])

    @property
    def fitted(self) -> bool:
        """Whether it has seen a log."""
        return self._means is not None

    def fit(self, log: Any, missing_reward: float | None = 0.0) -> ArmMeans:
        """Return the model of a log, read in one pass: counts and sums per fold, value and arm."""
        return self.of(self.counted(log, missing_reward))

    def counted(self, log: Any, missing_reward: float | None = 0.0) -> ArmCounts:
        """Return all that the model needs of a log, or of a part of one."""
        reader = RowReader(self.columns, missing_reward, need_propensity=False)
        shape = (self.folds, 0, 0)
        count, total = np.zeros(shape), np.zeros(shape)
        names: tuple[list[str], list[str]] = ([], [])
        for rows in reader.read(log):
            per, arm = rows.coded(self.per), rows.arm
            names = per.names if len(per.names) > len(names[0]) else names[0], arm.names
            shape = (self.folds, len(names[0]), len(names[1]))
            count, total = _grown(count, shape), _grown(total, shape)
            places = np.ravel_multi_index((self._fold(rows), per.codes, arm.codes), shape)
            size = count.size
            count += np.bincount(places, minlength=size).reshape(shape)
            total += np.bincount(places, rows.reward, size).reshape(shape)
        return ArmCounts(reader.rows, list(names[0]), list(names[1]), count, total)

    def of(self, counts: ArmCounts) -> ArmMeans:
        """Return the model of what was counted."""
        fresh = copy.copy(self)
        count, total = counts.plays, counts.total
        others, sums = count.sum(axis=0) - count, total.sum(axis=0) - total
        overall = (sums.sum(axis=(1, 2)) / np.maximum(others.sum(axis=(1, 2)), 1.0))[:, None, None]
        fresh._means = (sums + self.strength * overall) / (others + self.strength)
        fresh._names = (counts.values, counts.arms)
        return fresh

    @property
    def names(self) -> dict[str, list[str]]:
        """The names that it was fitted to, in the order of their numbers, by column."""
        values = {self.per: self._names[0]} if self.per in NAMES else {}
        return {**values, "arm": self._names[1]}

    def _fold(self, rows: LoggedRows) -> Ints:
        return (rows.first + np.arange(len(rows.reward))) % self.folds

    def begin(self, every: bool = False) -> Self:
        return self

    def shown(self, rows: LoggedRows) -> Floats:
        means, places = self._places(rows)
        return means[self._fold(rows), places, rows.arm.codes]

    def every(self, rows: LoggedRows) -> Floats:
        means, places = self._places(rows)
        return means[self._fold(rows), places, : len(rows.arm.names)]

    def _places(self, rows: LoggedRows) -> tuple[Floats, Ints]:
        """Return the means and which row of them each row has; names are numbered as in fit."""
        if self._means is None:
            raise InvalidValue("model", "ArmMeans()", "fit it to a log first")
        per = rows.coded(self.per)
        if self._names[1][: len(rows.arm.names)] != rows.arm.names:
            raise InvalidValue("model", "ArmMeans()", "fit it to the log that is evaluated")
        return self._means, per.codes


def _grown(array: Floats, shape: tuple[int, ...]) -> Floats:
    if array.shape == shape:
        return array
    found = np.zeros(shape)
    found[tuple(map(slice, array.shape))] = array
    return found
