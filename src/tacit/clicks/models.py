"""The click models: cascade, dependent click, dynamic Bayesian network, position-based; simulated users."""

# One section per model, each with its chain and its fit: cascade, dependent click, dynamic Bayesian network,
# position-based; last, the simulated users of the literature on interleaving.

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from tacit.clicks.base import (
    EMPTY,
    UNKNOWN,
    Chain,
    ClickModel,
    Fit,
    compute_kind_rates,
    divide_counts,
    examination_posterior,
    lookup_values,
    prepare_log,
    run_em,
)
from tacit.clicks.conditional import fit_columns, has_sparse_kinds
from tacit.core import checks
from tacit.core.arrays import Ints
from tacit.core.part import Fraction, probabilities
from tacit.errors import InvalidValue

# ---- The cascade model: the user reads from the top, clicks once, and leaves


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
        """Return the chain of a user who clicks by attraction, leaves after a click, else continues."""
        click = lookup_values(self.attraction, shown, empty_value=0.0)
        return Chain(click, np.zeros(shown.shape), np.ones(shown.shape))

    @classmethod
    def fit(cls, shown: Any, clicks: Any, *, kinds: int | None = None) -> Fit:
        """Return the model fitted to a click log: clicks over examinations, for each kind.

        Kinds share no parameter: one that is seen a few times is uncertain, and biases no other.

        Parameters
        ----------
        shown : array of int, shape (sessions, positions)
            The kind of each result, −1 for none.
        clicks : array of bool, of the same shape
            At most one click per session.
        kinds : int, optional
            Number of kinds; by default as many as the log has.

        Returns
        -------
        Fit

        Raises
        ------
        InvalidValue
            If the log is not of that form.
        """
        table, clicked, count = prepare_log(shown, clicks, kinds)
        has_several = clicked.sum(axis=1) > 1
        if has_several.any():
            session = clicked[has_several][0].astype(int).tolist()
            remedy = "the model has one click a session; keep the first, or fit DependentClick"
            raise InvalidValue("clicks", session, f"{remedy} or DynamicBayesian")
        # Nothing below a click is examined.
        examined = (np.cumsum(clicked, axis=1) - clicked == 0) & (table != EMPTY)

        def step(model: Cascade) -> Cascade:
            """Return the model with clicks over examinations as attraction; unexamined kinds keep theirs."""
            return cls(compute_kind_rates(clicked, examined, table, model.attraction))

        # The first step reaches the maximum, the second gains nothing, which is convergence.
        return run_em(cls([UNKNOWN] * count), step, table, clicked, iterations=2, tolerance=0.0)


# ---- The dependent click model: after a click the user continues, with a probability by position


@dataclass(frozen=True)
class DependentClick(ClickModel):
    """The user examines results from the top, and continues after a click with some probability.

    Without a click the user always continues.

    Parameters
    ----------
    attraction : sequence of float
        Per kind, the probability in [0, 1] of a click on a result that is examined.
    continuation : sequence of float
        Per position, the probability in [0, 1] of continuing after a click; lists can have one more
        position.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Guo, Liu, Wang (2009), "Efficient multiple-click models in web search"; Chuklin, Markov,
    de Rijke (2015), section 3.6. They estimate as if every session ended with its last click,
    which is biased if users read on without clicks; here EM maximises the likelihood itself.

    Examples
    --------
    >>> DependentClick(attraction=[0.1, 0.8], continuation=[0.5]).click_probabilities([1, 1])
    array([0.8 , 0.48])
    """

    continuation: Annotated[Any, probabilities]

    def chain(self, shown: Ints) -> Chain:
        """Return the chain of a user who continues after a click by position, and always without one.

        Raises InvalidValue if a session has more positions than the model.
        """
        positions = shown.shape[1]
        if positions > len(self.continuation) + 1:
            allowed = f"continuation is known for {len(self.continuation)} positions"
            raise InvalidValue("shown", positions, allowed)
        onward = np.zeros(shown.shape)
        onward[:, : len(self.continuation)] = self.continuation[:positions]
        return Chain(lookup_values(self.attraction, shown, empty_value=0.0), onward, np.ones(shown.shape))

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
        """Return the model fitted to a click log by EM, with its log-likelihoods.

        If kinds are seen too seldom for an attraction each (`kinds² > results / 100`), continuation is fitted
        first, by the conditional likelihood, less its mean error where clicks are few: it compares how often
        a kind is clicked right below a click and with no click above it.

        Parameters
        ----------
        shown : array of int, shape (sessions, positions)
            The kind of each result, −1 for none; at least two positions.
        clicks : array of bool, of the same shape
        kinds : int, optional
            Number of kinds; by default as many as the log has.
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

        Warns
        -----
        AssumptionWarning
            If no kinds are seen where they could be compared; the parameter is then 0.5.
        """
        table, clicked, count = prepare_log(shown, clicks, kinds)
        if table.shape[1] < 2:
            raise InvalidValue("shown", shown, "give at least two positions")
        is_item = table != EMPTY
        followed = clicked[:, :-1] & is_item[:, 1:]  # a click, with a next result
        is_sparse = has_sparse_kinds(count, float(is_item.sum()))

        def step(model: DependentClick) -> DependentClick:
            """Return the model after one step of EM: rates given the examination that ``model`` expects.

            Continuation is kept if it was fitted before.
            """
            examined = examination_posterior(model.chain(table), clicked)
            attraction = compute_kind_rates(clicked, examined, table, model.attraction)
            if is_sparse:
                return cls(attraction, model.continuation)
            continued = (followed * examined[:, 1:]).sum(axis=0)
            return cls(attraction, divide_counts(continued, followed.sum(axis=0), model.continuation))

        continuation = np.full(table.shape[1] - 1, UNKNOWN)
        if is_sparse:
            # A kind is examined for sure with no click above, and with its continuation right below a click.
            columns = np.where(np.cumsum(clicked, axis=1) - clicked == 0, 0, EMPTY)
            columns[:, 1:] = np.where(clicked[:, :-1], np.arange(1, table.shape[1]), columns[:, 1:])
            continuation = fit_columns(table, clicked, columns, UNKNOWN, is_unbiased=True)
        return run_em(cls([UNKNOWN] * count, continuation), step, table, clicked, iterations, tolerance)


# ---- The dynamic Bayesian network model: a click may satisfy the user, who then leaves


@dataclass(frozen=True)
class DynamicBayesian(ClickModel):
    """The user examines results from the top; a click satisfies with the result's own probability.

    A satisfied user leaves; an unsatisfied one continues with the probability ``persistence``, after a
    click and without one. With a persistence of 1 this is the simplified model.

    Parameters
    ----------
    attraction : sequence of float
        Per kind, the probability in [0, 1] of a click on a result that is examined.
    satisfaction : sequence of float
        Per kind, the probability in [0, 1] that a click satisfies.
    persistence : float, default 1
        The probability in [0, 1] of continuing, if not satisfied.

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
        """Validate the parameters; raise InvalidValue unless each kind has a satisfaction."""
        super().__post_init__()
        if len(self.satisfaction) != self.kinds:
            raise InvalidValue("satisfaction", self.satisfaction, f"give {self.kinds} numbers")

    def chain(self, shown: Ints) -> Chain:
        """Return the chain of a user who leaves if satisfied by a click, or if not persistent."""
        click = lookup_values(self.attraction, shown, empty_value=0.0)
        unsatisfied = 1.0 - lookup_values(self.satisfaction, shown, empty_value=0.0)
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
        """Return the model fitted to a click log by EM, with its log-likelihoods.

        If kinds are seen too seldom for an attraction each (`kinds² > results / 100`), persistence is fitted
        first, by the conditional likelihood: it compares how often a kind is clicked at the first position
        and at the second below a first one without a click.

        Parameters
        ----------
        shown : array of int, shape (sessions, positions)
            The kind of each result, −1 for none.
        clicks : array of bool, of the same shape
        persistence : float, optional
            Its value if it is known, such as 1 for the simplified model; by default it is fitted
            too.
        kinds : int, optional
            Number of kinds; by default as many as the log has.
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

        Warns
        -----
        AssumptionWarning
            If no kinds are seen where they could be compared; the parameter is then 0.5.
        """
        table, clicked, count = prepare_log(shown, clicks, kinds)
        follows = np.zeros(table.shape, np.bool_)  # whether there is a next result
        follows[:, :-1] = table[:, 1:] != EMPTY
        followed = clicked & follows
        if persistence is None and has_sparse_kinds(count, float((table != EMPTY).sum())):
            # The first position is examined for sure, the second with persistence if the first has no click.
            second = np.where(clicked[:, 0], EMPTY, 1)
            columns = np.stack([np.zeros_like(second), second], axis=1)[:, : table.shape[1]]
            factors = fit_columns(table[:, :2], clicked[:, :2], columns, UNKNOWN, is_unbiased=False)
            persistence = float(factors[0]) if len(factors) else UNKNOWN

        def step(model: DynamicBayesian) -> DynamicBayesian:
            """Return the model after one step of EM; persistence is estimated, too, unless it is known."""
            examined = examination_posterior(model.chain(table), clicked)
            attraction = compute_kind_rates(clicked, examined, table, model.attraction)
            onward = np.zeros(table.shape)
            onward[:, :-1] = examined[:, 1:]
            # A user who left after a click was satisfied, or was not and did not persist.
            satisfies = lookup_values(model.satisfaction, table, empty_value=0.0)
            leaving = 1.0 - (1.0 - satisfies) * model.persistence
            satisfied = followed * (1.0 - onward) * divide_counts(satisfies, leaving, np.zeros(leaving.shape))
            satisfaction = compute_kind_rates(satisfied, followed, table, model.satisfaction)
            if persistence is not None:
                return cls(attraction, satisfaction, persistence)
            tempted = follows * examined - satisfied  # not satisfied, and there is a next result
            continued = follows * onward
            continuation = divide_counts(continued.sum(), tempted.sum(), model.persistence)
            return cls(attraction, satisfaction, float(continuation))

        start = cls([UNKNOWN] * count, [UNKNOWN] * count, UNKNOWN if persistence is None else persistence)
        return run_em(start, step, table, clicked, iterations, tolerance)


# ---- The position-based model: a click if the position is examined and the result attracts


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
        """Return the chain of a user who always continues, and clicks with attraction times examination.

        Raises InvalidValue if a session has more positions than the model.
        """
        positions = shown.shape[1]
        if positions > len(self.examination):
            remedy = f"examination is known for {len(self.examination)} positions"
            raise InvalidValue("shown", positions, remedy)
        click = lookup_values(self.attraction, shown, empty_value=0.0) * self.examination[:positions]
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
        """Return the model fitted to a click log by EM, with its log-likelihoods.

        If kinds are seen too seldom for an attraction each (`kinds² > results / 100`), examination is fitted
        first, by the conditional likelihood: it compares how often a kind is clicked at several positions.

        A log determines products of attraction and examination only: the first position is assumed to be
        always examined, and kinds must have been shown at several positions.

        Parameters
        ----------
        shown : array of int, shape (sessions, positions)
            The kind of each result, −1 for none.
        clicks : array of bool, of the same shape
        kinds : int, optional
            Number of kinds; by default as many as the log has.
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

        Warns
        -----
        AssumptionWarning
            If no kinds are seen where they could be compared; the parameter is then 0.5.
        """
        table, clicked, count = prepare_log(shown, clicks, kinds)
        is_item = table != EMPTY
        is_sparse = has_sparse_kinds(count, float(is_item.sum()))

        def step(model: PositionBased) -> PositionBased:
            """Return the model after one step of EM; examination is kept if it was fitted before.

            The first position is always examined.
            """
            attracts = lookup_values(model.attraction, table, empty_value=0.0)
            examines = np.broadcast_to(model.examination, table.shape)
            both = attracts * examines
            # The posterior probability of each cause: 1 with a click, else that of this cause alone.
            attracted, examined = (
                np.where(clicked, 1.0, divide_counts(cause - both, 1.0 - both, np.zeros(both.shape)))
                for cause in (attracts, examines)
            )
            attraction = compute_kind_rates(attracted, trials=1.0, shown=table, otherwise=model.attraction)
            if is_sparse:
                return cls(attraction, model.examination)
            examination = divide_counts(
                (examined * is_item).sum(axis=0), is_item.sum(axis=0), model.examination
            )
            return cls(attraction, [1.0, *examination[1:]])

        examination = np.full(table.shape[1] - 1, UNKNOWN)
        if is_sparse:
            columns = np.broadcast_to(np.arange(table.shape[1]), table.shape)
            examination = fit_columns(table, clicked, columns, UNKNOWN, is_unbiased=False)
        start = cls([UNKNOWN] * count, [1.0, *examination])
        return run_em(start, step, table, clicked, iterations, tolerance)


# ---- The simulated users of the literature on interleaving and online learning to rank

# By the number of grades: the probabilities of a click, and of leaving after a click, per grade.
PERFECT = {
    2: ((0.0, 1.0), (0.0, 0.0)),
    3: ((0.0, 0.5, 1.0), (0.0, 0.0, 0.0)),
    5: ((0.0, 0.2, 0.4, 0.8, 1.0), (0.0, 0.0, 0.0, 0.0, 0.0)),
}
NAVIGATIONAL = {
    2: ((0.05, 0.95), (0.2, 0.9)),
    3: ((0.05, 0.5, 0.95), (0.2, 0.5, 0.9)),
    5: ((0.05, 0.3, 0.5, 0.7, 0.95), (0.2, 0.3, 0.5, 0.7, 0.9)),
}
INFORMATIONAL = {
    2: ((0.4, 0.9), (0.1, 0.5)),
    3: ((0.4, 0.7, 0.9), (0.1, 0.3, 0.5)),
    5: ((0.4, 0.6, 0.7, 0.8, 0.9), (0.1, 0.2, 0.3, 0.4, 0.5)),
}

Table = dict[int, tuple[tuple[float, ...], tuple[float, ...]]]


def _build_user(table: Table, grades: int) -> DynamicBayesian:
    """Return the click model of a user for a number of grades; raise InvalidValue if the table has none."""
    if checks.integer("grades", grades, 2) not in table:
        raise InvalidValue("grades", grades, "there are users for 2, 3 and 5 grades")
    return DynamicBayesian(*table[grades])


def perfect(grades: int = 5) -> DynamicBayesian:
    """Return the click model of a user who examines all results, and clicks better results more often.

    Parameters
    ----------
    grades : {2, 3, 5}, default 5
        Number of grades of relevance, from 0.

    Raises
    ------
    InvalidValue
        If there is no such user for this number of grades.

    References
    ----------
    Hofmann, Whiteson, de Rijke (2011 and 2013) for 2 grades; Schuth et al. (2014) and others
    after them for 3 and 5. Some code lets this user stop after any click instead; here it never
    stops.

    Examples
    --------
    >>> perfect(3).click_probabilities([2, 0, 1])
    array([1. , 0. , 0.5])
    """
    return _build_user(PERFECT, grades)


def navigational(grades: int = 5) -> DynamicBayesian:
    """Return the click model of a user who looks for one good result, and then leaves.

    Parameters
    ----------
    grades : {2, 3, 5}, default 5
        Number of grades of relevance, from 0.

    Raises
    ------
    InvalidValue
        If there is no such user for this number of grades.

    References
    ----------
    As for :func:`perfect`.

    Examples
    --------
    >>> navigational(2).click_probabilities([1, 1]).round(4)
    array([0.95  , 0.1378])
    """
    return _build_user(NAVIGATIONAL, grades)


def informational(grades: int = 5) -> DynamicBayesian:
    """Return the click model of a user who reads many results.

    Such users click often, with little difference between good and bad results.

    Parameters
    ----------
    grades : {2, 3, 5}, default 5
        Number of grades of relevance, from 0.

    Raises
    ------
    InvalidValue
        If there is no such user for this number of grades.

    References
    ----------
    As for :func:`perfect`.

    Examples
    --------
    >>> informational(2).click_probabilities([1, 0]).round(3)
    array([0.9 , 0.22])
    """
    return _build_user(INFORMATIONAL, grades)
