"""The position-based model: a click if the position is examined and the result attracts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from tacit.clicks.base import NOTHING, Chain, ClickModel, by_kind, probabilities
from tacit.clicks.fitting import UNKNOWN, Fit, maximised, prepared, rates, totals
from tacit.core.arrays import Ints
from tacit.errors import InvalidValue


@dataclass(frozen=True)
class PositionBased(ClickModel):
    """A result is clicked if its position is examined and it attracts, independently of others.

    Parameters
    ----------
    attraction : sequence of float
        Per kind, the probability in [0, 1] of a click on a result that is examined.
    examination : sequence of float
        Per position, the probability in [0, 1] that it is examined.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Chuklin, Markov, de Rijke (2015), "Click Models for Web Search", section 3.3 and
    chapter 4; Craswell, Zoeter, Taylor, Ramsey (2008).

    Examples
    --------
    >>> model = PositionBased(attraction=[0.1, 0.8], examination=[1.0, 0.5])
    >>> model.click_probabilities([1, 1])
    array([0.8, 0.4])
    """

    examination: Annotated[Any, probabilities]

    def chain(self, shown: Ints) -> Chain:
        positions = shown.shape[1]
        if positions > len(self.examination):
            raise InvalidValue(
                "shown", positions, f"examination is known for {len(self.examination)} positions"
            )
        click = by_kind(self.attraction, shown, 0.0) * self.examination[:positions]
        return Chain(click, np.ones(shown.shape), np.ones(shown.shape))

    @classmethod
    def fit(
        cls,
        shown: Any,
        clicks: Any,
        *,
        kinds: int | None = None,
        iterations: int = 1000,
        tolerance: float = 1e-8,
    ) -> Fit:
        """Fit the model to a click log by EM.

        A log tells products of attraction and examination only: the first position is taken to be
        always examined, and kinds must have been seen at several positions.

        Parameters
        ----------
        shown : array of int, shape (sessions, positions)
            The kind of each result, −1 for none.
        clicks : array of bool, of the same shape
        kinds : int, optional
            How many kinds there are; by default as many as the log shows.
        iterations : int, default 1000
            The most steps.
        tolerance : float, default 1e-8
            Stop when a step gains less log-likelihood per session.

        Returns
        -------
        Fit

        Raises
        ------
        InvalidValue
            If the log or an option is not of that form.
        """
        table, clicked, count = prepared(shown, clicks, kinds)
        real = table != NOTHING

        def step(model: PositionBased) -> PositionBased:
            attracts = by_kind(model.attraction, table, 0.0)
            examines = np.broadcast_to(model.examination, table.shape)
            unclicked = 1.0 - attracts * examines
            attracted = np.where(
                clicked, 1.0, rates(attracts - attracts * examines, unclicked, 0.0 * unclicked)
            )
            examined = np.where(
                clicked, 1.0, rates(examines - attracts * examines, unclicked, 0.0 * unclicked)
            )
            attraction = rates(totals(attracted, table, count), totals(1.0, table, count), model.attraction)
            examination = rates((examined * real).sum(axis=0), real.sum(axis=0), model.examination)
            return cls(attraction, [1.0, *examination[1:]])

        start = cls([UNKNOWN] * count, [1.0, *[UNKNOWN] * (table.shape[1] - 1)])
        return maximised(start, step, table, clicked, iterations, tolerance)
