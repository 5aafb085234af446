"""Numbers per arm from a function of the rows, or from a model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats
from tacit.errors import InvalidValue, UnfitLog
from tacit.evaluate.rows import LoggedRows
from tacit.evaluate.targets.base import impossible, offered


class ArmFunction:
    """Numbers per arm that a function gives for each batch of rows.

    Parameters
    ----------
    function : callable
        From a ``pyarrow.RecordBatch`` with the named columns to an array (rows, arms).
    arms : sequence of str
        The arms, in the order of the array's columns.
    columns : collection of str
        The columns of the log that the function looks at.

    Raises
    ------
    InvalidValue
        If the function gives something else.
    """

    def __init__(
        self, function: Callable[[Any], Any], arms: Sequence[str], columns: Sequence[str] = ("context",)
    ) -> None:
        if not callable(function):
            raise InvalidValue("function", function, "give a function of a batch")
        names = checks.arms("arms", arms)
        if isinstance(names, int):
            raise InvalidValue("arms", arms, "give the arms' names")
        self.function, self.arms = function, names
        self.columns = frozenset(checks.names("columns", columns))
        self._latest: tuple[LoggedRows | None, Floats] = None, np.zeros((0, 0))

    def begin(self, every: bool = False) -> Self:
        fresh = copy.copy(self)
        fresh._latest = None, np.zeros((0, 0))
        return fresh

    def shown(self, rows: LoggedRows) -> Floats:
        return self.every(rows)[np.arange(len(rows.reward)), rows.arm.codes]

    def every(self, rows: LoggedRows) -> Floats:
        if self._latest[0] is not rows:
            self._latest = rows, self._evaluated(rows)
        return self._latest[1]

    def _evaluated(self, rows: LoggedRows) -> Floats:
        """Return the function's numbers, with columns in the order of the log's arms."""
        shape = len(rows.reward), len(self.arms)
        given = self.function(rows.chunk.batch)
        array = np.asarray(given, np.float64)
        if array.shape != shape or not np.isfinite(array).all():
            raise InvalidValue("function", given, f"give finite numbers of shape {shape}")
        return self._placed(array, rows)

    def _placed(self, given: Floats, rows: LoggedRows) -> Floats:
        place = {arm: column for column, arm in enumerate(self.arms)}
        found = np.zeros((len(given), len(rows.arm.names)))
        for code, name in enumerate(rows.arm.names):
            if name in place:
                found[:, code] = given[:, place[name]]
        return found


class Probabilities(ArmFunction):
    """The probabilities that a function gives for each batch of rows.

    Parameters
    ----------
    function : callable
        From a ``pyarrow.RecordBatch`` with the named columns to an array (rows, arms) of
        probabilities that add to 1 in each row.
    arms : sequence of str
        The arms, in the order of the array's columns.
    columns : collection of str
        The columns of the log that the function looks at.
    label : str

    Raises
    ------
    InvalidValue
        If the function gives something else.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        arms: Sequence[str],
        columns: Sequence[str] = ("context",),
        label: str = "function",
    ) -> None:
        super().__init__(function, arms, columns)
        self.label = label
        self._reached: set[str] = set()

    def begin(self, every: bool = False) -> Self:
        fresh = super().begin(every)
        fresh._reached = set()
        return fresh

    def reached(self, arms: Sequence[str]) -> list[str]:
        return [arm for arm in arms if arm in self._reached]

    def _placed(self, given: Floats, rows: LoggedRows) -> Floats:
        if (given < 0).any() or (np.abs(given.sum(axis=1) - 1.0) > 1e-6).any():
            raise InvalidValue("function", given, "give probabilities that add to 1 in each row")
        found = super()._placed(given, rows)
        self._check_offers(given, found, rows)
        positive = np.flatnonzero((found > 0).any(axis=0)).tolist()
        self._reached.update(rows.arm.names[arm] for arm in positive)
        return found

    def _check_offers(self, given: Floats, found: Floats, rows: LoggedRows) -> None:
        """Refuse a probability of an arm that is not on offer."""
        outside = np.where(offered(rows)[rows.offer], 0.0, found)
        if (outside > 0).any():
            row, code = np.argwhere(outside > 0)[0].tolist()
            raise UnfitLog(impossible(rows, row, rows.arm.names[code], float(outside[row, code])))
        known = set(rows.arm.names)
        absent = [column for column, arm in enumerate(self.arms) if arm not in known]
        if absent and (given[:, absent] > 0).any():
            row, column = np.argwhere(given[:, absent] > 0)[0].tolist()
            arm = absent[column]
            raise UnfitLog(impossible(rows, row, self.arms[arm], float(given[row, arm])))


class ByClassifier(Probabilities):
    """What a classifier in scikit-learn's manner would show, given the contexts.

    Parameters
    ----------
    model : object
        With ``predict_proba(contexts)`` and ``classes_``, the arms' names.
    label : str, optional

    Raises
    ------
    InvalidValue
        If it is no such model.
    """

    def __init__(self, model: Any, label: str | None = None) -> None:
        if not (hasattr(model, "predict_proba") and hasattr(model, "classes_")):
            raise InvalidValue("model", model, "give a fitted model with predict_proba")
        names = [str(name) for name in model.classes_]
        super().__init__(
            lambda batch: model.predict_proba(contexts(batch)),
            names,
            ("context",),
            label or type(model).__name__,
        )


def contexts(batch: Any) -> Floats:
    """Return the contexts of a batch as an array (rows, dim).

    Raises
    ------
    UnfitLog
        If rows have none, or contexts of different lengths.
    """
    column = batch["context"]
    values = np.asarray(column.flatten().to_numpy(), np.float64)
    if column.null_count or not len(column) or len(values) % len(column):
        raise UnfitLog("context: the model needs as many numbers in each row")
    lengths = np.diff(column.offsets.to_numpy())
    if (lengths != lengths[0]).any():
        raise UnfitLog("context: the model needs as many numbers in each row")
    return values.reshape(len(column), -1)
