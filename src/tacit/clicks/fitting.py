"""Fitting click models: sessions of a log, how surprised a model is by them, expectation maximisation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tacit.clicks.base import NOTHING, Chain, ClickModel, log, log_probabilities
from tacit.core import checks
from tacit.core.arrays import Booleans, Floats, Ints
from tacit.errors import InvalidValue, LogError

# ---- Sessions of a click log, as click models are fitted to


class Sessions(NamedTuple):
    """Sessions, and what their kinds stand for.

    Attributes
    ----------
    shown : array of int64, shape (sessions, positions)
        The kind of each result, −1 for none.
    clicks : array of bool, of the same shape
    names : list of str, or of (str, str)
        What the kinds stand for: arms, or keys and arms.
    """

    shown: Ints
    clicks: Booleans
    names: list[Any]


def sessions_of(log: Any, kind: str = "key-arm", **reading: Any) -> Sessions:
    """Return the sessions of a click log: a row for each decision, in the order of the log.

    Parameters
    ----------
    log : LogReader, path, or table in memory
        What :func:`tacit.read_log` takes, with the ``position`` of every arm. A reward above 0 is a
        click.
    kind : {"key-arm", "arm"}
        What has an attraction of its own: each pair of key and arm, or each arm.
    **reading
        How a log that is not open yet is read: options of :func:`tacit.read_log`.

    Raises
    ------
    InvalidValue
        If there is no such kind.
    LogError
        If the log cannot be read or is empty, a row has no position, or two of a decision have the
        same.

    Examples
    --------
    >>> import pyarrow as pa
    >>> row = {"timestamp": "2025-02-26T12:00:00Z", "decision_id": "1", "placement": "home"}
    >>> row |= {"key": "toner", "arms": ["a", "b"]}
    >>> found = sessions_of(
    ...     pa.Table.from_pylist(
    ...         [
    ...             row | {"arm": "b", "position": 0, "reward": 0.0},
    ...             row | {"arm": "a", "position": 1, "reward": 1.0},
    ...         ]
    ...     )
    ... )
    >>> found.shown.tolist(), found.clicks.tolist(), found.names
    ([[0, 1]], [[False, True]], [('toner', 'b'), ('toner', 'a')])
    """
    from tacit.logs.selection import selected
    from tacit.logs.sources import opened

    if kind not in ("key-arm", "arm"):
        raise InvalidValue("kind", kind, "give 'key-arm' or 'arm'")
    columns = ["placement", "decision_id", "position", "key", "arm", "reward"]
    rows: dict[tuple[str, str], int] = {}
    kinds: dict[Any, int] = {}
    cells: dict[tuple[int, int], tuple[int, bool]] = {}
    for batch, source, numbers in selected(opened(log, **reading), columns):
        values = zip(numbers, *(batch[name].to_pylist() for name in columns), strict=True)
        for number, placement, decision, position, key, arm, reward in values:
            row = rows.setdefault((placement, decision), len(rows))
            name = arm if kind == "arm" else (key, arm)
            cell = kinds.setdefault(name, len(kinds)), (reward or 0.0) > 0.0
            if position is None or cells.setdefault((row, position), cell) is not cell:
                raise LogError(
                    f"{source}: row {number}: position: {position!r} is not allowed; give each "
                    "arm of a decision a place of its own"
                )
    shape = len(rows), 1 + max(position for _, position in cells)
    shown, clicks = np.full(shape, NOTHING, np.int64), np.zeros(shape, np.bool_)
    for at, (number, clicked) in cells.items():
        shown[at], clicks[at] = number, clicked
    return Sessions(shown, clicks, list(kinds))


# ---- Perplexity: how surprised a click model is by each position of a click log


def perplexity(model: ClickModel, shown: Any, clicks: Any, *, conditional: bool = False) -> Floats:
    """Return the perplexity of a click log under a model, per position.

    It is 2 to the mean of −log₂ of the probability of what happened at the position: 1 for a
    prophet, 2 for a coin, infinite for a model that excludes what happened.

    Parameters
    ----------
    model : ClickModel
    shown : array of int, shape (sessions, positions)
        The kind of each result, −1 for none.
    clicks : array of bool, of the same shape
    conditional : bool, default False
        Whether each position is predicted from the clicks above it, and not blindly.

    Returns
    -------
    array of float64, shape (positions,)
        NaN where nothing was ever shown.

    Raises
    ------
    InvalidValue
        If the log is not of that form.

    References
    ----------
    Chuklin, Markov, de Rijke (2015), "Click Models for Web Search", section 5.2;
    Dupret, Piwowarski (2008).

    Examples
    --------
    >>> from tacit.clicks import PositionBased
    >>> model = PositionBased(attraction=[0.5], examination=[1.0, 0.5])
    >>> perplexity(model, [[0, 0], [0, 0]], [[1, 0], [0, 0]]).round(4)
    array([2.    , 1.3333])
    """
    table, clicked, _ = log(shown, clicks, model.kinds)
    if conditional:
        chances = model.conditional_probabilities(table, clicked)
    else:
        chances = model.click_probabilities(table)
    real = table != NOTHING
    surprise = -np.where(real, log_probabilities(chances, clicked), 0.0).sum(axis=0)
    count = real.sum(axis=0)
    mean = np.divide(surprise, count, out=np.full(len(count), np.nan), where=count > 0)
    return np.asarray(np.exp(mean))


# ---- Fitting click models: expectation maximisation, and what users examined given their clicks

Model = TypeVar("Model", bound=ClickModel)

UNKNOWN = 0.5
"""Where EM starts; what nothing in the log tells stays there."""


class Fit(NamedTuple):
    """A click model fitted to a log.

    Attributes
    ----------
    model : ClickModel
    log_likelihoods : tuple of float
        Of the whole log (natural logarithm), at the start and after each step; never falling.
    converged : bool
        Whether the last step gained less than the tolerance.
    """

    model: Any
    log_likelihoods: tuple[float, ...]
    converged: bool


def prepared(shown: Any, clicks: Any, kinds: int | None) -> tuple[Ints, Booleans, int]:
    """Return the tables of a log to be fitted, and the number of kinds.

    Raises
    ------
    InvalidValue
        If the log is not of that form.
    """
    table, clicked, _ = log(shown, clicks, kinds)
    count = int(table.max()) + 1 if kinds is None else checks.integer("kinds", kinds, 1)
    if count == 0:
        raise InvalidValue("shown", shown, "there must be a result")
    return table, clicked, count


def maximised(
    start: Model,
    step: Callable[[Model], Model],
    shown: Ints,
    clicks: Booleans,
    iterations: int,
    tolerance: float,
) -> Fit:
    """Repeat a step of EM until it gains less than ``tolerance`` per session.

    Raises
    ------
    InvalidValue
        If an option is out of its range.
    """
    checks.integer("iterations", iterations, 1)
    checks.number("tolerance", tolerance, 0.0, math.inf)
    model = start
    found = [math.fsum(model.log_likelihood(shown, clicks))]
    for _ in range(iterations):
        model = step(model)
        found.append(math.fsum(model.log_likelihood(shown, clicks)))
        if found[-1] - found[-2] <= tolerance * len(shown):
            return Fit(model, tuple(found), True)
    return Fit(model, tuple(found), False)


def examined_given(chain: Chain, clicks: Booleans) -> Floats:
    """Return the probability that each position was examined, given all clicks of its session.

    Everything down to the last click was; below it, the user may have read on in vain.
    """
    count, positions = clicks.shape
    onward = np.empty((count, positions))  # the chance to go on, given no further click
    quiet = np.ones(count)  # the chance of no click from here on, if examined
    for position in reversed(range(positions)):
        go = np.where(clicks[:, position], chain.after_click[:, position], chain.after_skip[:, position])
        reach = go * quiet
        total = 1.0 - go + reach
        onward[:, position] = np.divide(reach, total, out=np.zeros(count), where=total > 0)
        quiet = (1.0 - chain.click[:, position]) * total
    examined = np.ones((count, positions))
    for position in range(positions - 1):
        later = clicks[:, position + 1 :].any(axis=1)
        examined[:, position + 1] = np.where(later, 1.0, examined[:, position] * onward[:, position])
    return examined


def rates(hits: Floats, trials: Floats, otherwise: Any) -> Any:
    """Return hits / trials, and ``otherwise`` where there was no trial."""
    ratio = np.divide(hits, trials, out=np.array(otherwise, np.float64), where=trials > 0)
    # Sums in different orders may leave a ratio one rounding error above 1.
    return np.clip(ratio, 0.0, 1.0)


def totals(values: Any, shown: Ints, kinds: int) -> Floats:
    """Return the sum of values over the results of each kind."""
    real = shown != NOTHING
    weights = np.broadcast_to(values, shown.shape)[real].astype(np.float64)
    return np.asarray(np.bincount(shown[real], weights, minlength=kinds), np.float64)
