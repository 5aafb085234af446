"""Perplexity: how surprised a click model is by each position of a click log."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.clicks.base import NOTHING, ClickModel, log, log_probabilities
from tacit.core.arrays import Floats


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
