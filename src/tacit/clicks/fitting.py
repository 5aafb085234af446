"""Fitting click models: expectation maximisation, and what users examined given their clicks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tacit.clicks.base import NOTHING, Chain, ClickModel, log
from tacit.core import checks
from tacit.core.arrays import Booleans, Floats, Ints
from tacit.errors import InvalidValue

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
