"""The dynamic Bayesian network model: a click may satisfy, and then the user is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from tacit.clicks.base import NOTHING, Chain, ClickModel, by_kind, probabilities
from tacit.clicks.fitting import UNKNOWN, Fit, examined_given, maximised, prepared, rates, totals
from tacit.core.arrays import Ints
from tacit.core.ranges import Fraction
from tacit.errors import InvalidValue


@dataclass(frozen=True)
class DynamicBayesian(ClickModel):
    """The user examines results from the top; a click satisfies with the result's own probability.

    Who is satisfied leaves; who is not goes on with the probability ``persistence``, after a click
    and without one. With a persistence of 1 this is the simplified model.

    Parameters
    ----------
    attraction : sequence of float
        Per kind, the probability in [0, 1] of a click on a result that is examined.
    satisfaction : sequence of float
        Per kind, the probability in [0, 1] that a click satisfies.
    persistence : float, default 1
        The probability in [0, 1] of going on, if not satisfied.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Chapelle, Zhang (2009), "A dynamic Bayesian network click model for web search ranking";
    Chuklin, Markov, de Rijke (2015), section 3.8.

    Examples
    --------
    >>> model = DynamicBayesian(attraction=[0.5], satisfaction=[0.8], persistence=0.9)
    >>> model.click_probabilities([0, 0])  # 0.5 · 0.9 · (0.5 + 0.5 · 0.2)
    array([0.5 , 0.27])
    """

    satisfaction: Annotated[Any, probabilities]
    persistence: Fraction = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.satisfaction) != self.kinds:
            raise InvalidValue("satisfaction", self.satisfaction, f"give {self.kinds} numbers")

    def chain(self, shown: Ints) -> Chain:
        click = by_kind(self.attraction, shown, 0.0)
        unsatisfied = 1.0 - by_kind(self.satisfaction, shown, 0.0)
        onward = np.full(shown.shape, self.persistence)
        return Chain(click, onward * unsatisfied, onward)

    @classmethod
    def fit(
        cls,
        shown: Any,
        clicks: Any,
        *,
        persistence: float | None = None,
        kinds: int | None = None,
        iterations: int = 1000,
        tolerance: float = 1e-8,
    ) -> Fit:
        """Fit the model to a click log by EM.

        Parameters
        ----------
        shown : array of int, shape (sessions, positions)
            The kind of each result, −1 for none.
        clicks : array of bool, of the same shape
        persistence : float, optional
            Its value where it is known, such as 1 for the simplified model; by default it is
            fitted too.
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
        follows = np.zeros(table.shape, np.bool_)  # whether there is something to go on to
        follows[:, :-1] = table[:, 1:] != NOTHING
        told = clicked & follows

        def step(model: DynamicBayesian) -> DynamicBayesian:
            examined = examined_given(model.chain(table), clicked)
            attraction = rates(
                totals(clicked, table, count), totals(examined, table, count), model.attraction
            )
            onward = np.zeros(table.shape)
            onward[:, :-1] = examined[:, 1:]
            # Who left after a click was satisfied, or was not and did not persist.
            likes = by_kind(model.satisfaction, table, 0.0)
            left = 1.0 - (1.0 - likes) * model.persistence
            satisfied = told * (1.0 - onward) * rates(likes, left, np.zeros(left.shape))
            satisfaction = rates(
                totals(satisfied, table, count), totals(told, table, count), model.satisfaction
            )
            if persistence is not None:
                return cls(attraction, satisfaction, persistence)
            tempted = follows * examined - satisfied
            went_on = follows * onward
            goes_on = rates(went_on.sum(), tempted.sum(), model.persistence)
            return cls(attraction, satisfaction, float(goes_on))

        start = cls([UNKNOWN] * count, [UNKNOWN] * count, UNKNOWN if persistence is None else persistence)
        return maximised(start, step, table, clicked, iterations, tolerance)
