"""Preference matrices: winners, assumptions of dueling algorithms, and matrices of the literature.

A preference matrix holds P(i, j), the probability that arm i beats arm j in a duel. Assumptions
are measured on its margins ε(i, j) = P(i, j) − 1/2.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.core import checks
from tacit.core.arrays import Floats, Generator, Ints
from tacit.errors import InvalidValue

TOLERANCE = 1e-9
"""Differences up to this are taken for rounding."""

Triple = tuple[int, int, int]

# Checks ---------------------------------------------------------------------------------------


def validate(matrix: npt.ArrayLike, field: str = "preferences") -> Floats:
    """Validate a preference matrix and return it as an exactly complementary array.

    Parameters
    ----------
    matrix : array_like, shape (arms, arms)
        P(row beats column): square, within (0, 1), P(i, j) + P(j, i) = 1 up to 1e-9.
    field : str, default "preferences"
        Its name in errors.

    Returns
    -------
    array of float64
        A copy, exactly complementary.

    Raises
    ------
    InvalidValue
        If it is not a preference matrix; the message names the first invalid entry.

    Examples
    --------
    >>> validate([[0.5, 0.6], [0.4, 0.5]]).tolist()
    [[0.5, 0.6], [0.4, 0.5]]
    >>> validate([[0.5, 0.6], [0.6, 0.5]])
    Traceback (most recent call last):
    ...
    tacit.errors.InvalidValue: preferences[0][1]: 0.6 is not allowed; with preferences[1][0] = 0.6
    it must add up to 1
    """
    try:
        p = np.array(matrix, np.float64)
    except (TypeError, ValueError):
        raise InvalidValue(field, matrix, "give a square matrix of numbers") from None
    if p.ndim != 2 or p.shape[0] != p.shape[1] or p.shape[0] == 0:
        raise InvalidValue(field, f"shape {p.shape}", "give a square matrix, one row per arm")
    outside = np.argwhere(~((p > 0.0) & (p < 1.0)))
    if len(outside):
        i, j = map(int, outside[0])
        raise InvalidValue(f"{field}[{i}][{j}]", float(p[i, j]), "give a probability in (0, 1)")
    unequal = np.argwhere(np.triu(np.abs(p + p.T - 1.0)) > TOLERANCE)
    if len(unequal):
        i, j = map(int, unequal[0])
        remedy = (
            "an arm beats itself half the time: give 0.5"
            if i == j
            else f"with {field}[{j}][{i}] = {p[j, i]:g} it must add up to 1"
        )
        raise InvalidValue(f"{field}[{i}][{j}]", float(p[i, j]), remedy)
    upper = np.triu(p, 1)
    lower = np.tril(1.0 - p.T, -1)
    exact: Floats = upper + lower + 0.5 * np.eye(len(p))
    return exact


# Winners --------------------------------------------------------------------------------------


def condorcet_winner(matrix: npt.ArrayLike) -> int | None:
    """Return the arm that beats every other one with probability above one half, or None.

    Examples
    --------
    >>> condorcet_winner(arxiv())
    0
    >>> condorcet_winner([[0.5, 0.6, 0.4], [0.4, 0.5, 0.6], [0.6, 0.4, 0.5]]) is None
    True
    """
    beats = _mask_wins(validate(matrix))
    winners = np.flatnonzero(beats.sum(axis=1) == len(beats) - 1)
    return int(winners[0]) if len(winners) else None


def copeland_winners(matrix: npt.ArrayLike) -> tuple[int, ...]:
    """Return the arms that beat the most other arms, in order; a tie with an arm counts one half.

    Examples
    --------
    >>> copeland_winners(arxiv())
    (0,)
    """
    scores = _compute_copeland_scores(validate(matrix))
    return tuple(map(int, np.flatnonzero(scores == scores.max())))


def borda_winners(matrix: npt.ArrayLike) -> tuple[int, ...]:
    """Return the arms with the highest probability of beating an opponent drawn at random, in order.

    Examples
    --------
    >>> borda_winners(arxiv())
    (0,)
    """
    scores = validate(matrix).mean(axis=1)
    return tuple(map(int, np.flatnonzero(scores >= scores.max() - TOLERANCE)))


def _mask_wins(p: Floats) -> npt.NDArray[np.bool_]:
    """Return a mask of the pairs whose row's arm beats the column's arm with a probability above one half."""
    beats: npt.NDArray[np.bool_] = p > 0.5 + TOLERANCE
    return beats


def _compute_copeland_scores(p: Floats) -> Ints:
    """Return each arm's Copeland score times 2: 2 per arm that it beats and 1 per tie."""
    beats = _mask_wins(p)
    ties = ~beats & ~beats.T & ~np.eye(len(p), dtype=bool)
    scores: Ints = 2 * beats.sum(axis=1) + ties.sum(axis=1)
    return scores


# Assumptions ----------------------------------------------------------------------------------


class Violation(NamedTuple):
    """A triple (1, j, k) in which an assumption fails.

    Attributes
    ----------
    triple : (int, int, int)
        The best arm, j and k, with j preferred to k.
    excess : float
        Left side minus right side of the violated inequality.
    """

    triple: Triple
    excess: float


class Assumptions(NamedTuple):
    """The assumptions of dueling algorithms, measured on one preference matrix.

    Attributes
    ----------
    condorcet : int or None
        The Condorcet winner. Without one γ and λ are undefined: NaN.
    copeland, borda : tuple of int
        The Copeland and Borda winners.
    strict_order : bool
        Whether the arms have a strict order: no cycle and no tie.
    gamma : float
        The smallest γ ≥ 1 of relaxed stochastic transitivity, γ·ε(1, k) ≥ max(ε(1, j), ε(j, k)).
    gamma_witnesses : tuple of (int, int, int)
        The triples (1, j, k) that require this γ; empty if γ = 1.
    triangle_violations : tuple of Violation
        The triples that violate ε(1, k) ≤ ε(1, j) + ε(j, k), the largest excess first.
    lambda_ : float
        The smallest λ ≥ 1 such that ε(1, k) ≤ λ·(ε(1, j) + ε(j, k)) everywhere.
    """

    condorcet: int | None
    copeland: tuple[int, ...]
    borda: tuple[int, ...]
    strict_order: bool
    gamma: float
    gamma_witnesses: tuple[Triple, ...]
    triangle_violations: tuple[Violation, ...]
    lambda_: float


def measure(matrix: npt.ArrayLike, tolerance: float = TOLERANCE) -> Assumptions:
    """Return winners of a preference matrix, and how far it violates assumptions of dueling algorithms.

    The triples are as in the paper, relative to the best arm: (1, j, k) where j is preferred to k. Of two
    arms that tie, the one with the higher Copeland score is preferred, then the one with the lower index.

    Without a Condorcet winner γ and λ are NaN and no triples are returned.

    Parameters
    ----------
    matrix : array_like, shape (arms, arms)
        P(row beats column).
    tolerance : float, default 1e-9
        Differences up to this count as equality; at least 0.

    Returns
    -------
    Assumptions

    Raises
    ------
    InvalidValue
        If it is not a preference matrix.

    References
    ----------
    Yue, Joachims (2011), "Beat the mean bandit", section 3.1 and footnote 1.

    Examples
    --------
    >>> assumptions = measure(arxiv())
    >>> round(assumptions.gamma, 9), assumptions.gamma_witnesses
    (1.5, ((0, 1, 3),))
    >>> round(assumptions.lambda_, 9), [violation.triple for violation in assumptions.triangle_violations]
    (2.75, [(0, 3, 5), (0, 2, 4), (0, 3, 4)])
    """
    p = validate(matrix)
    tolerance = checks.number("tolerance", tolerance, 0.0, 0.5)
    margins = p - 0.5
    best = condorcet_winner(p)
    copeland, borda = copeland_winners(p), borda_winners(p)
    if best is None:
        return Assumptions(None, copeland, borda, False, math.nan, (), (), math.nan)
    rank = np.lexsort((np.arange(len(p)), -_compute_copeland_scores(p))).argsort()
    triples = [
        (best, j, k)
        for j in range(len(p))
        for k in range(len(p))
        if len({best, j, k}) == 3
        and (margins[j, k] > tolerance or (margins[j, k] >= -tolerance and rank[j] < rank[k]))
    ]
    gammas = {(i, j, k): max(margins[i, j], margins[j, k]) / margins[i, k] for i, j, k in triples}
    gamma = max(1.0, *gammas.values()) if gammas else 1.0
    violations, lambdas = [], [1.0]
    for triple in triples:
        i, j, k = triple
        bound = float(margins[i, j] + margins[j, k])
        if margins[i, k] > bound + tolerance:
            violations.append(Violation(triple, float(margins[i, k] - bound)))
            lambdas.append(float(margins[i, k] / bound))
    return Assumptions(
        best,
        copeland,
        borda,
        _is_strictly_ordered(margins, tolerance),
        float(gamma),
        tuple(t for t, value in gammas.items() if value >= gamma - tolerance and value > 1.0 + tolerance),
        tuple(sorted(violations, key=lambda violation: -violation.excess)),
        max(lambdas),
    )


def _is_strictly_ordered(margins: Floats, tolerance: float) -> bool:
    """True if the arms can be ordered so that each beats all later ones by more than ``tolerance``."""
    wins = (margins > tolerance).sum(axis=1)
    return sorted(wins.tolist()) == list(range(len(margins)))


# Estimates ------------------------------------------------------------------------------------


class PreferenceEstimate(NamedTuple):
    """A preference matrix estimated from counts, with simultaneous confidence bounds.

    Attributes
    ----------
    matrix : array of float64, shape (arms, arms)
        Shares of wins; one half for pairs without duels.
    lower, upper : array of float64, shape (arms, arms)
        Bounds that hold for all pairs simultaneously with probability ≥ ``confidence``.
    confidence : float
    condorcet : int or None
        The Condorcet winner, if the bounds imply it.
    possible : tuple of int
        The arms that may be the Condorcet winner: the bounds do not exclude it.
    transitive : bool or None
        Whether γ = 1 holds; None if the bounds do not decide it.
    triangle : bool or None
        Whether the stochastic triangle inequality holds; None if the bounds do not decide it.
    """

    matrix: Floats
    lower: Floats
    upper: Floats
    confidence: float
    condorcet: int | None
    possible: tuple[int, ...]
    transitive: bool | None
    triangle: bool | None


def estimate(wins: npt.ArrayLike, confidence: float = 0.95) -> PreferenceEstimate:
    """Return a preference matrix estimated from counts of wins, with simultaneous confidence bounds.

    The bounds are Hoeffding's with a Bonferroni correction over all pairs: with probability ``confidence``
    all hold simultaneously, so all conclusions from them hold, too. The numbers of duels must not depend on
    their outcomes (a fixed design); adaptive designs need wider bounds.

    Parameters
    ----------
    wins : array_like of int, shape (arms, arms)
        How often the row's arm beat the column's arm; the diagonal is ignored.
    confidence : float, default 0.95
        In (0, 1).

    Returns
    -------
    PreferenceEstimate

    Raises
    ------
    InvalidValue
        If a count is negative or not whole, or the matrix is not square.

    Examples
    --------
    >>> preferences = estimate([[0, 700, 800], [300, 0, 600], [200, 400, 0]])
    >>> preferences.condorcet, preferences.possible, preferences.transitive
    (0, (0,), True)
    """
    counts = _validate_counts(wins)
    confidence = checks.number("confidence", confidence, 0.0, 1.0, open_low=True)
    if confidence == 1.0:
        raise InvalidValue("confidence", confidence, "give a number below 1")
    arms = len(counts)
    duels = counts + counts.T
    pairs = max(1, arms * (arms - 1) // 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        matrix = np.where(duels > 0, counts / duels, 0.5)
        radius = np.sqrt(np.log(2.0 * pairs / (1.0 - confidence)) / (2.0 * duels))
    np.fill_diagonal(radius, 0.0)
    lower, upper = np.maximum(matrix - radius, 0.0), np.minimum(matrix + radius, 1.0)
    np.fill_diagonal(lower, 0.5)
    np.fill_diagonal(upper, 0.5)
    is_winner = (lower > 0.5).sum(axis=1) == arms - 1
    possible = tuple(int(arm) for arm in range(arms) if not (upper[arm] < 0.5).any())
    best = int(np.argmax(is_winner)) if is_winner.any() else None
    return PreferenceEstimate(
        matrix,
        lower,
        upper,
        confidence,
        best,
        possible,
        None if best is None else _check_triples(lower - 0.5, upper - 0.5, best, _check_transitivity),
        None if best is None else _check_triples(lower - 0.5, upper - 0.5, best, _check_triangle),
    )


def _validate_counts(wins: npt.ArrayLike) -> Ints:
    """Return counts of wins as an array of int64 with a diagonal of 0.

    Raises InvalidValue unless they are a square matrix of whole numbers of at least 0.
    """
    try:
        table = np.array(wins)
    except ValueError:
        raise InvalidValue("wins", wins, "give a square matrix of counts") from None
    if table.ndim != 2 or table.shape[0] != table.shape[1] or table.shape[0] == 0:
        raise InvalidValue("wins", f"shape {table.shape}", "give a square matrix, one row per arm")
    if table.dtype.kind not in "iuf" or not ((table >= 0) & (table == np.floor(table))).all():
        raise InvalidValue("wins", wins, "give whole numbers of at least 0")
    counts: Ints = table.astype(np.int64)
    np.fill_diagonal(counts, 0)
    return counts


def _check_transitivity(low: Floats, high: Floats, i: int, j: int, k: int) -> tuple[bool, bool]:
    """Return two flags: the bounds imply ε(i, k) ≥ max(ε(i, j), ε(j, k)), and the bounds exclude it.

    ``low`` and ``high`` are bounds of the margins ε.
    """
    larger = max(low[i, j], low[j, k]), max(high[i, j], high[j, k])
    return bool(low[i, k] >= larger[1]), bool(high[i, k] < larger[0])


def _check_triangle(low: Floats, high: Floats, i: int, j: int, k: int) -> tuple[bool, bool]:
    """Return two flags: the bounds imply ε(i, k) ≤ ε(i, j) + ε(j, k), and the bounds exclude it.

    ``low`` and ``high`` are bounds of the margins ε.
    """
    least, most = low[i, j] + low[j, k], high[i, j] + high[j, k]
    return bool(high[i, k] <= least), bool(low[i, k] > most)


def _check_triples(low: Floats, high: Floats, best: int, inequality: Any) -> bool | None:
    """Return whether an inequality holds in all triples (best, j, k) in which j is preferred to k.

    ``low`` and ``high`` are bounds of the margins; ``inequality`` is one of the two functions above. None if
    the bounds do not decide it.
    """
    other_arms = [arm for arm in range(len(low)) if arm != best]
    always_holds = True
    for j in other_arms:
        for k in other_arms:
            if j == k or high[j, k] <= 0.0:
                continue
            holds, fails = inequality(low, high, best, j, k)
            if fails and low[j, k] > 0.0:
                return False
            always_holds = always_holds and holds
    return True if always_holds else None


# Matrices of the literature -------------------------------------------------------------------


def from_margins(margins: npt.ArrayLike) -> Floats:
    """Return the preference matrix with the margins ε(i, j) above the diagonal, its entries 1/2 + ε(i, j).

    Parameters
    ----------
    margins : array_like, shape (arms, arms)
        Entries on and below the diagonal are ignored.

    Examples
    --------
    >>> from_margins([[0, 0.1], [0, 0]]).tolist()
    [[0.5, 0.6], [0.4, 0.5]]
    """
    upper = np.triu(np.array(margins, np.float64), 1)
    return validate(0.5 + upper - upper.T, "margins")


def uniform_gap(arms: int, epsilon: float) -> Floats:
    """Return the preference matrix in which each arm beats every later one by the same margin.

    Parameters
    ----------
    arms : int
        At least 1.
    epsilon : float
        P(i, j) − 1/2 for i < j; in (0, 1/2).

    References
    ----------
    Yue, Joachims (2011), section 5, case A (figure 1, top: epsilon = 0.1).

    Examples
    --------
    >>> uniform_gap(3, 0.1)[0].tolist()
    [0.5, 0.6, 0.6]
    """
    return relaxed_chain(arms, 1.0, epsilon)


def relaxed_chain(arms: int, gamma: float, epsilon: float = 0.1) -> Floats:
    """Return a preference matrix that violates strong stochastic transitivity by exactly γ.

    Each arm beats every later one by a margin of ε, but its immediate successor by γ·ε, except for the best
    arm.

    Parameters
    ----------
    arms : int
        At least 1.
    gamma : float
        At least 1; γ·ε must be below 1/2.
    epsilon : float, default 0.1
        In (0, 1/2).

    References
    ----------
    Yue, Joachims (2011), section 5, case B: ε(i, j) = 0.1·γ only if 1 < i = j − 1.

    Examples
    --------
    >>> (relaxed_chain(4, 1.5) - 0.5).round(2)[:3].tolist()
    [[0.0, 0.1, 0.1, 0.1], [-0.1, 0.0, 0.15, 0.1], [-0.1, -0.15, 0.0, 0.15]]
    """
    arms = checks.integer("arms", arms, 1)
    epsilon = _check_margin("epsilon", epsilon)
    gamma = checks.number("gamma", gamma, 1.0, math.inf)
    if gamma * epsilon >= 0.5:
        raise InvalidValue("gamma", gamma, f"gamma times {epsilon:g} must be below 0.5")
    margins = np.full((arms, arms), epsilon)
    successor = np.arange(1, arms - 1)
    margins[successor, successor + 1] = gamma * epsilon
    return from_margins(margins)


def _check_margin(field: str, value: Any) -> float:
    """Return a margin; raise InvalidValue unless it is in (0, 1/2)."""
    number = checks.number(field, value, 0.0, 0.5, open_low=True)
    if number == 0.5:
        raise InvalidValue(field, value, "give a number below 0.5")
    return number


def logistic_utilities(arms: int, rng: Generator) -> Floats:
    """Draw utilities μ ~ N(0, 1) and return the matrix P(i, j) = 1/(1 + exp(μ_j − μ_i)), the best arm first.

    Parameters
    ----------
    arms : int
        At least 1.
    rng : Generator

    References
    ----------
    Yue, Joachims (2011), section 5, case A (figure 1, bottom).

    Examples
    --------
    >>> import numpy as np
    >>> matrix = logistic_utilities(5, np.random.default_rng(1))
    >>> condorcet_winner(matrix), measure(matrix).gamma
    (0, 1.0)
    """
    arms = checks.integer("arms", arms, 1)
    utilities = np.sort(rng.standard_normal(arms))[::-1]
    return validate(1.0 / (1.0 + np.exp(utilities[None, :] - utilities[:, None])))


def arxiv() -> Floats:
    """Return the preference matrix, shape (6, 6), of six retrieval functions of ArXiv.org's search engine.

    The paper says that they satisfy a strict order and the stochastic triangle inequality; they do not: arms
    3 and 5 tie, and :func:`measure` finds three violated triples.

    The printed table is inconsistent in one cell: (B, D) is 0.06, but (D, B) is −0.04 instead of −0.06. The
    0.06 above the diagonal is used here.

    References
    ----------
    Yue, Joachims (2011), table 1; from interleaving experiments of Radlinski, Kurup, Joachims
    (2008).

    Examples
    --------
    >>> arxiv()[3].round(2).tolist()
    [0.46, 0.44, 0.46, 0.5, 0.54, 0.5]
    """
    return from_margins(
        [
            [0.0, 0.05, 0.05, 0.04, 0.11, 0.11],
            [0.0, 0.0, 0.05, 0.06, 0.08, 0.10],
            [0.0, 0.0, 0.0, 0.04, 0.01, 0.06],
            [0.0, 0.0, 0.0, 0.0, 0.04, 0.0],
            [0.0, 0.0, 0.0, 0.0, 0.0, 0.01],
            [0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        ]
    )
