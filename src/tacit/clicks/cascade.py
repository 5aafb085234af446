"""The cascade model: the user reads from the top, clicks once, and is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.clicks.base import NOTHING, Chain, ClickModel, by_kind
from tacit.clicks.fitting import UNKNOWN, Fit, maximised, prepared, rates, totals
from tacit.core.arrays import Ints
from tacit.errors import InvalidValue


@dataclass(frozen=True)
class Cascade(ClickModel):
    """The user examines results from the top until the first click, which ends the session.

    Parameters
    ----------
    attraction : sequence of float
        Per kind, the probability in [0, 1] of a click on a result that is examined.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Craswell, Zoeter, Taylor, Ramsey (2008), "An experimental comparison of click position-bias
    models"; Chuklin, Markov, de Rijke (2015), section 3.4.

    Examples
    --------
    >>> Cascade(attraction=[0.1, 0.8]).click_probabilities([1, 1])
    array([0.8 , 0.16])
    """

    def chain(self, shown: Ints) -> Chain:
        click = by_kind(self.attraction, shown, 0.0)
        return Chain(click, np.zeros(shown.shape), np.ones(shown.shape))

    @classmethod
    def fit(cls, shown: Any, clicks: Any, *, kinds: int | None = None) -> Fit:
        """Fit the model to a click log: clicks over examinations, for each kind.

        Parameters
        ----------
        shown : array of int, shape (sessions, positions)
            The kind of each result, −1 for none.
        clicks : array of bool, of the same shape
            At most one click a session.
        kinds : int, optional
            How many kinds there are; by default as many as the log shows.

        Returns
        -------
        Fit

        Raises
        ------
        InvalidValue
            If the log is not of that form.
        """
        table, clicked, count = prepared(shown, clicks, kinds)
        several = clicked.sum(axis=1) > 1
        if several.any():
            raise InvalidValue(
                "clicks",
                clicked[several][0].astype(int).tolist(),
                "the cascade model knows one click a session; keep the first one, or fit "
                "DependentClick or DynamicBayesian",
            )
        # Nothing below a click is examined.
        examined = (np.cumsum(clicked, axis=1) - clicked == 0) & (table != NOTHING)

        def step(model: Cascade) -> Cascade:
            trials = totals(examined, table, count)
            return cls(rates(totals(clicked, table, count), trials, model.attraction))

        return maximised(cls([UNKNOWN] * count), step, table, clicked, 2, 0.0)
