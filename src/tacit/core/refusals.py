"""Rules of refusal as data, and the one runner that evaluates them.

A table of rules is a function that yields them in order, so that a condition may rely on the rules before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from tacit.errors import InvalidValue, LogError, UnfitLog


class Refusal(NamedTuple):
    """A rule by which an option, or a row of a log, is refused.

    Attributes
    ----------
    field : str
        The option or the column that is wrong.
    is_wrong : bool or array of bool
        Of a column a mask of the rows that are refused.
    text : str or callable
        For an option, the value to give instead; for a column, the fault and its remedy. A function makes
        the text when it is needed; for a column, from the index of the first refused row.
    value : object
        Value of the option.
    """

    field: str
    is_wrong: Any
    text: str | Callable[..., str]
    value: Any = None


def refuse_options(refusals: Iterable[Refusal]) -> None:
    """Raise InvalidValue for the first rule that applies to an option.

    Examples
    --------
    >>> refuse_options([Refusal("by", False, "give a name"), Refusal("seed", True, "give 0 or more", -1)])
    Traceback (most recent call last):
    tacit.errors.InvalidValue: seed: -1 is not allowed; give 0 or more
    """
    for field, is_wrong, text, value in refusals:
        if is_wrong:
            raise InvalidValue(field, value, text() if callable(text) else text)


def refuse_rows(
    locate_row: Callable[[int], str], refusals: Iterable[Refusal], error: type[LogError] = UnfitLog
) -> None:
    """Raise an error about the first row that is refused, by the first rule that refuses any row.

    Parameters
    ----------
    locate_row : callable
        From the index of a row to its file and number as text.
    refusals : iterable of Refusal
    error : type, default UnfitLog

    Raises
    ------
    LogError
        With file and number of the row, the column and the text of the rule.

    Examples
    --------
    >>> refuse_rows("log: row {}".format, [Refusal("position", np.array([False, True]), "there is none")])
    Traceback (most recent call last):
    tacit.errors.UnfitLog: log: row 1: position: there is none
    """
    for field, is_wrong, text, _ in refusals:
        if is_wrong.any():
            row = int(np.argmax(is_wrong))
            raise error(f"{locate_row(row)}: {field}: {text(row) if callable(text) else text}")
