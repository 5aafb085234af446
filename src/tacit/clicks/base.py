"""The base class of click models: a user reads from the top, clicks, and continues or leaves.

A model is a Markov chain over positions. Then follow sessions of a log, perplexity, and common code for
fitting by expectation maximisation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Booleans, Floats, Generator, Ints
from tacit.core.part import Checked, probabilities
from tacit.errors import InvalidValue, LogError

EMPTY = -1
"""Kind of an empty position, below the end of a shorter list."""


class Chain(NamedTuple):
    """The transition probabilities of a user, per session and position.

    Attributes
    ----------
    click : array, shape (sessions, positions)
        Probability of a click, if the result is examined.
    after_click, after_skip : array, shape (sessions, positions)
        Probability of examining the next result, after a click on this one and without one.
    """

    click: Floats
    after_click: Floats
    after_skip: Floats


@dataclass(frozen=True)
class ClickModel(Checked):
    """Base of all click models.

    A result has a *kind*, a number from 0, which determines its parameters: its grade of relevance,
    or for example a pair of query and document. Sessions are arrays of kinds, one row per session, −1
    below the end of a shorter list; or a single row.

    A user examines the first result, clicks or skips it, and then continues to the next result or
    leaves. A subclass defines the probabilities of these steps (:meth:`chain`); all other methods
    follow exactly from them.

    Parameters
    ----------
    attraction : sequence of float
        Per kind, the probability in [0, 1] of a click on a result that is examined.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.
    """

    attraction: Annotated[Any, probabilities]

    @property
    def kinds(self) -> int:
        """Number of kinds of results."""
        return len(self.attraction)

    def chain(self, shown: Ints) -> Chain:
        """Return the probabilities of a click and of continuing, per session and position.

        Parameters
        ----------
        shown : array of int64, shape (sessions, positions)
        """
        raise NotImplementedError

    def simulate(self, shown: Any, rng: Generator) -> Booleans:
        """Draw the clicks of simulated users on sessions, and return them; draws from ``rng``.

        Parameters
        ----------
        shown : array of int, shape (sessions, positions) or (positions,)
            The kind of each result, −1 for none.
        rng : Generator

        Returns
        -------
        array of bool
            Of the same shape.

        Raises
        ------
        InvalidValue
            If a kind does not exist.
        """
        table, single = check_sessions(shown, self.kinds)
        chain = self.chain(table)
        clicks = np.zeros(table.shape, np.bool_)
        examining = np.ones(len(table), np.bool_)
        for position in range(table.shape[1]):
            clicked = examining & (rng.random(len(table)) < chain.click[:, position])
            onward = np.where(clicked, chain.after_click[:, position], chain.after_skip[:, position])
            examining &= rng.random(len(table)) < onward
            clicks[:, position] = clicked
        return clicks[0] if single else clicks

    def click_probabilities(self, shown: Any) -> Floats:
        """Return the probability of a click at each position, without knowledge of other clicks.

        Parameters
        ----------
        shown : array of int, shape (sessions, positions) or (positions,)

        Returns
        -------
        array of float64
            Of the same shape; 0 at empty positions.

        Raises
        ------
        InvalidValue
            If a kind does not exist.
        """
        table, single = check_sessions(shown, self.kinds)
        chain = self.chain(table)
        chances = np.zeros(table.shape)
        examined = np.ones(len(table))
        for position in range(table.shape[1]):
            click = chain.click[:, position]
            chances[:, position] = examined * click
            examined = examined * (
                click * chain.after_click[:, position] + (1.0 - click) * chain.after_skip[:, position]
            )
        return chances[0] if single else chances

    def conditional_probabilities(self, shown: Any, clicks: Any) -> Floats:
        """Return the probability of a click at each position, conditional on the clicks above it.

        Parameters
        ----------
        shown : array of int, shape (sessions, positions) or (positions,)
        clicks : array of bool, of the same shape

        Returns
        -------
        array of float64
            Of the same shape; 0 at empty positions, and below clicks that have probability 0.

        Raises
        ------
        InvalidValue
            If a kind does not exist, or an empty position has a click.
        """
        table, clicked, single = check_log(shown, clicks, self.kinds)
        chances = conditional_clicks(self.chain(table), clicked)
        return chances[0] if single else chances

    def log_likelihood(self, shown: Any, clicks: Any) -> Floats:
        """Return the log-probability of each session's clicks; −inf if they are impossible.

        Parameters
        ----------
        shown : array of int, shape (sessions, positions) or (positions,)
        clicks : array of bool, of the same shape

        Returns
        -------
        array of float64, shape (sessions,) or ()

        Raises
        ------
        InvalidValue
            If a kind does not exist, or an empty position has a click.
        """
        table, clicked, single = check_log(shown, clicks, self.kinds)
        likelihoods = log_probabilities(conditional_clicks(self.chain(table), clicked), clicked).sum(axis=1)
        return np.asarray(likelihoods[0] if single else likelihoods)


def conditional_clicks(chain: Chain, clicks: Booleans) -> Floats:
    """Return the probability of a click at each position, conditional on the session's clicks above it.

    ``clicks`` and the result have the shape (sessions, positions). It is 0 at empty positions, and below
    clicks that have probability 0.
    """
    chances = np.zeros(clicks.shape)
    examined = np.ones(len(clicks))
    for position in range(clicks.shape[1]):
        clicked, click = clicks[:, position], chain.click[:, position]
        chances[:, position] = examined * click
        # P(examined | no click) = P(examined, no click)/P(no click).
        unclicked = 1.0 - chances[:, position]
        skipped = np.divide(
            examined * (1.0 - click), unclicked, out=np.zeros(len(clicks)), where=unclicked > 0
        )
        examined = np.where(clicked, chain.after_click[:, position], skipped * chain.after_skip[:, position])
    return chances


def log_probabilities(chances: Floats, clicks: Booleans) -> Floats:
    """Return at each position the log of ``chances`` where there is a click, of 1 − ``chances`` elsewhere.

    −inf if that probability is 0.
    """
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.where(clicks, chances, 1.0 - chances)))


def check_sessions(shown: Any, kinds: int | None = None) -> tuple[Ints, bool]:
    """Validate ``shown``; return it as a table of kinds, a row per session, and whether it was a single row.

    Raises
    ------
    InvalidValue
        If it is no table of kinds, or a kind does not exist.
    """
    table = np.asarray(shown)
    if table.ndim not in (1, 2) or table.size == 0 or table.dtype.kind not in "iu":
        raise InvalidValue("shown", shown, "give whole numbers: a row of kinds for each session")
    most = np.iinfo(np.int64).max if kinds is None else kinds - 1
    wrong = table[(table < EMPTY) | (table > most)]
    if wrong.size:
        raise InvalidValue("shown", int(wrong[0]), f"kinds go from 0 to {most}, -1 is for none")
    return np.atleast_2d(table).astype(np.int64), table.ndim == 1


def check_log(shown: Any, clicks: Any, kinds: int | None = None) -> tuple[Ints, Booleans, bool]:
    """Validate results and clicks; return both as tables, a row per session, and whether each was one row.

    Raises
    ------
    InvalidValue
        If they are no tables of kinds and clicks, a kind does not exist, or an empty position has a click.
    """
    table, single = check_sessions(shown, kinds)
    clicked = np.atleast_2d(np.asarray(clicks))
    if clicked.shape != table.shape or clicked.dtype.kind not in "biu":
        raise InvalidValue("clicks", clicks, f"give true or false in the shape {table.shape}")
    if not np.isin(clicked, (0, 1)).all():
        raise InvalidValue("clicks", clicks, "give true or false")
    clicked = clicked.astype(np.bool_)
    if (clicked & (table == EMPTY)).any():
        raise InvalidValue("clicks", clicks, "there can be no click where nothing was shown")
    return table, clicked, single


def lookup_values(values: Sequence[float], shown: Ints, empty_value: float) -> Floats:
    """Return the entry of ``values`` for each result's kind, and ``empty_value`` at empty positions."""
    return np.asarray([*values, empty_value])[shown]


# ---- Sessions of a click log, the data for fitting


class Sessions(NamedTuple):
    """Sessions of a click log, and the meaning of their kinds.

    Attributes
    ----------
    shown : array of int64, shape (sessions, positions)
        The kind of each result, −1 for none.
    clicks : array of bool, of the same shape
    names : list of str, or of (str, str)
        The arm, or the key and the arm, of each kind.
    """

    shown: Ints
    clicks: Booleans
    names: list[Any]


def read_sessions(log: Any, kind: str = "key-arm", **reading: Any) -> Sessions:
    """Read sessions from a click log and return them: a row for each decision, in the order of the log.

    Parameters
    ----------
    log : LogReader, path, or table in memory
        A log as for :func:`tacit.read_log`, with the ``position`` of every arm. A reward above 0 is
        a click.
    kind : {"key-arm", "arm"}
        The unit with its own attraction: each pair of key and arm, or each arm.
    **reading
        Options of :func:`tacit.read_log`, for a log that is not yet open.

    Raises
    ------
    InvalidValue
        If ``kind`` is none of these.
    LogError
        If the log cannot be read or is empty, a row has no position, or two rows of a decision have
        the same position.

    Warns
    -----
    AssumptionWarning
        If rows look wrong, such as positions that count from 1.

    Examples
    --------
    >>> import pyarrow as pa
    >>> row = {"timestamp": "2025-02-26T12:00:00Z", "decision_id": "1", "placement": "home"}
    >>> row |= {"key": "toner", "arms": ["a", "b"]}
    >>> sessions = read_sessions(
    ...     pa.Table.from_pylist(
    ...         [
    ...             row | {"arm": "b", "position": 0, "reward": 0.0},
    ...             row | {"arm": "a", "position": 1, "reward": 1.0},
    ...         ]
    ...     )
    ... )
    >>> sessions.shown.tolist(), sessions.clicks.tolist(), sessions.names
    ([[0, 1]], [[False, True]], [('toner', 'b'), ('toner', 'a')])
    """
    from tacit.logs.selection import select_columns
    from tacit.logs.sources import open_log, warn_rejected

    if kind not in ("key-arm", "arm"):
        raise InvalidValue("kind", kind, "give 'key-arm' or 'arm'")
    columns = ["placement", "decision_id", "position", "key", "arm", "reward"]
    rows: dict[tuple[str, str], int] = {}
    kinds: dict[Any, int] = {}
    cells: dict[tuple[int, int], tuple[int, bool]] = {}
    reader = open_log(log, **reading)
    for batch, source, numbers in select_columns(reader, columns):
        values = zip(numbers, *(batch[name].to_pylist() for name in columns), strict=True)
        for number, placement, decision, position, key, arm, reward in values:
            row = rows.setdefault((placement, decision), len(rows))
            name = arm if kind == "arm" else (key, arm)
            cell = kinds.setdefault(name, len(kinds)), (reward or 0.0) > 0.0
            # Another cell comes back if an earlier row of the decision has the position.
            if position is None or cells.setdefault((row, position), cell) is not cell:
                raise LogError(
                    f"{source}: row {number}: position: {position!r} is not allowed; give each "
                    "arm of a decision a place of its own"
                )
    warn_rejected(reader, log)
    shape = len(rows), 1 + max(position for _, position in cells)
    kind_table, clicks = np.full(shape, EMPTY, np.int64), np.zeros(shape, np.bool_)
    for at, (kind_number, clicked) in cells.items():
        kind_table[at], clicks[at] = kind_number, clicked
    return Sessions(kind_table, clicks, list(kinds))


# ---- Perplexity: how well a click model predicts each position of a click log


def perplexity(model: ClickModel, shown: Any, clicks: Any, *, conditional: bool = False) -> Floats:
    """Return the perplexity of a click log under a model, per position: how badly it predicts clicks.

    It is 2 to the power of the mean of −log₂ p, where p is the probability of the click, or of no click, at
    the position: 1 for a perfect prediction, 2 for p = ½, infinite if the model excludes the log.

    Parameters
    ----------
    model : ClickModel
    shown : array of int, shape (sessions, positions)
        The kind of each result, −1 for none.
    clicks : array of bool, of the same shape
    conditional : bool, default False
        Whether each position is predicted given the clicks above it.

    Returns
    -------
    array of float64, shape (positions,)
        NaN if the position was always empty.

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
    table, clicked, _ = check_log(shown, clicks, model.kinds)
    if conditional:
        chances = model.conditional_probabilities(table, clicked)
    else:
        chances = model.click_probabilities(table)
    is_result = table != EMPTY
    log_loss = -np.where(is_result, log_probabilities(chances, clicked), 0.0).sum(axis=0)
    count = is_result.sum(axis=0)
    mean = np.divide(log_loss, count, out=np.full(len(count), np.nan), where=count > 0)
    return np.asarray(np.exp(mean))  # as 2 to the power of binary logarithms


# ---- Fitting click models: expectation maximisation, and the posterior of examination given clicks

Model = TypeVar("Model", bound=ClickModel)

UNKNOWN = 0.5
"""Start of each parameter in EM; a parameter that the log does not determine keeps it."""


class Fit(NamedTuple):
    """A click model fitted to a log.

    Attributes
    ----------
    model : ClickModel
    log_likelihoods : tuple of float
        Log-likelihood of the whole log (natural logarithm), at the start and after each step; never
        decreasing.
    converged : bool
        Whether the last step gained less than the tolerance.
    """

    model: Any
    log_likelihoods: tuple[float, ...]
    converged: bool


def prepare_log(shown: Any, clicks: Any, kinds: int | None) -> tuple[Ints, Booleans, int]:
    """Validate a log for fitting; return tables of kinds and of clicks, and the number of kinds.

    Raises
    ------
    InvalidValue
        If the log is not of that form.
    """
    table, clicked, _ = check_log(shown, clicks, kinds)
    count = int(table.max()) + 1 if kinds is None else checks.integer("kinds", kinds, 1)
    if count == 0:
        raise InvalidValue("shown", shown, "there must be a result")
    return table, clicked, count


def run_em(
    start: Model,
    step: Callable[[Model], Model],
    shown: Ints,
    clicks: Booleans,
    iterations: int,
    tolerance: float,
) -> Fit:
    """Repeat a step of EM, at most ``iterations`` times, until it gains at most ``tolerance`` per session.

    ``start`` is the first model, and a step gains log-likelihood of ``clicks``. Returns the last model with
    the log-likelihood after each step; a run that is stopped by ``iterations`` is not converged.

    Raises
    ------
    InvalidValue
        If an option is out of its range.
    """
    checks.integer("iterations", iterations, 1)
    checks.number("tolerance", tolerance, 0.0, math.inf)
    model = start
    log_likelihoods = [math.fsum(model.log_likelihood(shown, clicks))]
    for _ in range(iterations):
        model = step(model)
        log_likelihoods.append(math.fsum(model.log_likelihood(shown, clicks)))
        if log_likelihoods[-1] - log_likelihoods[-2] <= tolerance * len(shown):
            return Fit(model, tuple(log_likelihoods), converged=True)
    return Fit(model, tuple(log_likelihoods), converged=False)


def examination_posterior(chain: Chain, clicks: Booleans) -> Floats:
    """Return the probability that each position was examined, conditional on all clicks of its session.

    The shape is (sessions, positions). It is 1 for all positions down to the last click; below it, the user
    may have read on without clicks.
    """
    count, positions = clicks.shape
    onward = np.empty((count, positions))  # the probability to continue, given no further click
    no_click = np.ones(count)  # the probability of no further click, if the next position is examined
    for position in reversed(range(positions)):
        step = np.where(clicks[:, position], chain.after_click[:, position], chain.after_skip[:, position])
        reach = step * no_click
        total = 1.0 - step + reach
        onward[:, position] = np.divide(reach, total, out=np.zeros(count), where=total > 0)
        no_click = (1.0 - chain.click[:, position]) * total
    examined = np.ones((count, positions))
    for position in range(positions - 1):
        later = clicks[:, position + 1 :].any(axis=1)
        examined[:, position + 1] = np.where(later, 1.0, examined[:, position] * onward[:, position])
    return examined


def divide_counts(hits: Floats, trials: Floats, otherwise: Any) -> Any:
    """Return hits / trials, clipped to [0, 1], and ``otherwise`` where trials are 0; arrays of one shape."""
    ratio = np.divide(hits, trials, out=np.array(otherwise, np.float64), where=trials > 0)
    # Sums in different orders may leave a ratio one rounding error above 1.
    return np.clip(ratio, 0.0, 1.0)


def sum_by_kind(values: Any, shown: Ints, kinds: int) -> Floats:
    """Return the sum of ``values`` over the results of each kind, shape (kinds,), without empty positions.

    ``values`` is one number, or an array with one per result of ``shown``.
    """
    is_result = shown != EMPTY
    weights = np.broadcast_to(values, shown.shape)[is_result].astype(np.float64)
    return np.asarray(np.bincount(shown[is_result], weights, minlength=kinds), np.float64)


def compute_kind_rates(hits: Any, trials: Any, shown: Ints, otherwise: Any) -> Any:
    """Return, for each kind, the sum of its results' hits divided by the sum of their trials, shape (kinds,).

    ``shown`` has the kind of each result, ``otherwise`` a rate per kind for kinds without trials.
    """
    kinds = len(otherwise)
    return divide_counts(sum_by_kind(hits, shown, kinds), sum_by_kind(trials, shown, kinds), otherwise)
