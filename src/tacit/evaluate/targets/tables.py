"""Numbers per arm in tables: fixed probabilities."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Ints
from tacit.errors import InvalidValue, UnfitLog
from tacit.evaluate.rows import LoggedRows
from tacit.evaluate.targets.base import impossible

TOLERANCE = 1e-9
PER = (None, "key", "placement", "position", "policy")


class PerArm:
    """Numbers per arm, perhaps different ones for each key, placement or position.

    Parameters
    ----------
    numbers : dict
        From arms to numbers; with ``per``, from the values of that column to such dicts.
    per : {None, "key", "placement", "position", "policy"}
        What has numbers of its own.
    default : float or None
        The number of arms that are not told; None makes an untold value of ``per`` an error.

    Raises
    ------
    InvalidValue
        If a number is none.
    """

    def __init__(self, numbers: Mapping[Any, Any], per: str | None = None, default: float = 0.0) -> None:
        if per not in PER:
            raise InvalidValue("per", per, f"give one of {', '.join(map(str, PER))}")
        if not isinstance(numbers, Mapping) or not numbers:
            raise InvalidValue("numbers", numbers, "give a dict from arms to numbers")
        tables = numbers if per else {"": numbers}
        self.per = per
        self.columns = frozenset({per} if per else ())
        self._default = default
        self.tables = {str(value): _table(str(value), table) for value, table in tables.items()}
        self._matrix = np.zeros((0, 0))

    def begin(self, every: bool = False) -> Self:
        fresh = copy.copy(self)
        fresh._matrix = np.zeros((0, 0))
        return fresh

    def rows(self, rows: LoggedRows) -> tuple[Floats, Ints]:
        """Return one row of numbers per value of ``per``, and which of them each row has."""
        per = rows.coded(self.per)
        arms = rows.arm.names
        if self._matrix.shape[1] < len(arms):
            self._matrix = np.zeros((0, len(arms)))
        known = len(self._matrix)
        if known < len(per.names):
            new = [self._numbers(value, arms) for value in per.names[known:]]
            self._matrix = np.concatenate([self._matrix, np.array(new).reshape(-1, len(arms))])
        self._check(rows, per.codes, per.names)
        return self._matrix, per.codes

    def _numbers(self, value: str, arms: Sequence[str]) -> list[float]:
        table = self.tables.get(value, {})
        return [table.get(arm, self._default) for arm in arms]

    def _check(self, rows: LoggedRows, codes: Ints, names: list[str]) -> None:
        """Refuse rows that the numbers do not fit; here, none."""

    def shown(self, rows: LoggedRows) -> Floats:
        matrix, codes = self.rows(rows)
        return matrix[codes, rows.arm.codes]

    def every(self, rows: LoggedRows) -> Floats:
        matrix, codes = self.rows(rows)
        return matrix[codes]


def _table(value: str, table: Any) -> dict[str, float]:
    if not isinstance(table, Mapping):
        raise InvalidValue(f"numbers[{value}]", table, "give a dict from arms to numbers")
    return {
        str(arm): checks.number(f"numbers[{arm}]", number, -1e300, 1e300) for arm, number in table.items()
    }


class Table(PerArm):
    """Fixed probabilities of arms.

    Parameters
    ----------
    probabilities : dict
        From arms to probabilities that add to 1; with ``per``, from the values of that column
        to such dicts. Arms that are not named have probability 0.
    per : {None, "key", "placement", "position", "policy"}
        What has probabilities of its own.

    Raises
    ------
    InvalidValue
        If they are no probabilities.

    Examples
    --------
    >>> Table({"film": 0.7, "holiday": 0.3}).label
    'table'
    >>> Table({"independence day": {"holiday": 1.0}}, per="key").per
    'key'
    """

    label = "table"

    def __init__(self, probabilities: Mapping[Any, Any], per: str | None = None) -> None:
        super().__init__(probabilities, per)
        for value, table in self.tables.items():
            field = f"probabilities[{value}]" if per else "probabilities"
            for arm, probability in table.items():
                checks.number(f"{field}[{arm}]", probability, 0.0, 1.0)
            if abs(sum(table.values()) - 1.0) > TOLERANCE:
                raise InvalidValue(field, table, "give probabilities that add to 1")
        self._fitting: set[tuple[str, int]] = set()

    def begin(self, every: bool = False) -> Self:
        fresh = super().begin(every)
        fresh._fitting = set()
        return fresh

    def _check(self, rows: LoggedRows, codes: Ints, names: list[str]) -> None:
        """Refuse a row that does not offer an arm which the target would show there."""
        pairs = codes * len(rows.offers) + rows.offer
        if len(names) * len(rows.offers) > len(pairs):
            distinct = np.unique(pairs)
        else:
            distinct = np.flatnonzero(np.bincount(pairs))
        for pair in distinct.tolist():
            value, offer = names[pair // len(rows.offers)], pair % len(rows.offers)
            if (value, offer) not in self._fitting:
                self._check_offer(rows, value, offer, int(np.argmax(pairs == pair)))
                self._fitting.add((value, offer))

    def _check_offer(self, rows: LoggedRows, value: str, offer: int, row: int) -> None:
        if value not in self.tables:
            raise UnfitLog(
                f"{rows.where(row)}: {self.per}: the target policy has no probabilities for "
                f"{value!r}; it has them for {', '.join(map(repr, list(self.tables)[:10]))}"
            )
        on_offer = {rows.arm.names[arm] for arm in rows.offers[offer]}
        for arm, probability in self.tables[value].items():
            if probability > 0 and arm not in on_offer:
                raise UnfitLog(impossible(rows, row, arm, probability))

    def reached(self, arms: Sequence[str]) -> list[str]:
        met = [self.tables[value] for value in {value for value, _ in self._fitting}]
        return [arm for arm in arms if any(table.get(arm, 0.0) > 0 for table in met)]
