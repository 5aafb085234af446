"""The dependent click model: after a click the user goes on with a chance of the position's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from tacit.clicks.base import NOTHING, Chain, ClickModel, by_kind, probabilities
from tacit.clicks.fitting import UNKNOWN, Fit, examined_given, maximised, prepared, rates, totals
from tacit.core.arrays import Ints
from tacit.errors import InvalidValue


@dataclass(frozen=True)
class DependentClick(ClickModel):
    """The user examines results from the top, and goes on after a click with some probability.

    Without a click the user always goes on.

    Parameters
    ----------
    attraction : sequence of float
        Per kind, the probability in [0, 1] of a click on a result that is examined.
    continuation : sequence of float
        Per position, the probability in [0, 1] of going on after a click there; lists can be one
        longer.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Guo, Liu, Wang (2009), "Efficient multiple-click models in web search"; Chuklin, Markov,
    de Rijke (2015), section 3.6. They estimate as if every session ended with its last click,
    which is biased where users read on in vain; here EM maximises the likelihood itself.

    Examples
    --------
    >>> DependentClick(attraction=[0.1, 0.8], continuation=[0.5]).click_probabilities([1, 1])
    array([0.8 , 0.48])
    """

    continuation: Annotated[Any, probabilities]

    def chain(self, shown: Ints) -> Chain:
        positions = shown.shape[1]
        if positions > len(self.continuation) + 1:
            raise InvalidValue(
                "shown", positions, f"continuation is known for {len(self.continuation)} positions"
            )
        onward = np.zeros(shown.shape)
        onward[:, : len(self.continuation)] = self.continuation[:positions]
        return Chain(by_kind(self.attraction, shown, 0.0), onward, np.ones(shown.shape))

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

        Parameters
        ----------
        shown : array of int, shape (sessions, positions)
            The kind of each result, −1 for none; at least two positions.
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
        if table.shape[1] < 2:
            raise InvalidValue("shown", shown, "give at least two positions")
        real = table != NOTHING
        told = clicked[:, :-1] & real[:, 1:]  # a click, and something to go on to

        def step(model: DependentClick) -> DependentClick:
            examined = examined_given(model.chain(table), clicked)
            attraction = rates(
                totals(clicked, table, count), totals(examined, table, count), model.attraction
            )
            went_on = (told * examined[:, 1:]).sum(axis=0)
            return cls(attraction, rates(went_on, told.sum(axis=0), model.continuation))

        start = cls([UNKNOWN] * count, [UNKNOWN] * (table.shape[1] - 1))
        return maximised(start, step, table, clicked, iterations, tolerance)
