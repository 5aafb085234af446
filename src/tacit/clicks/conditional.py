"""Conditional likelihood: factors of the click rate, such as examination, without a relevance per kind.

Maximum likelihood with a relevance for each kind of result is inconsistent if most kinds are seen a few
times: a kind that is seen once explains its observation by its own relevance, whatever the examination
(Neyman and Scott, 1948).
"""

from __future__ import annotations

import warnings

import numpy as np

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.errors import AssumptionWarning

ITERATIONS = 200


def has_sparse_kinds(kinds: int, rows: float) -> bool:
    """True if estimates of a relevance per kind would bias the parameters that all kinds share.

    That bias is of the order kinds/rows, the standard error of the order 1/√rows; True if the bias may
    exceed a tenth of the error.
    """
    return kinds**2 > rows / 100


def fit_factors(shown_counts: Floats, clicks: Floats, *, is_unbiased: bool = False) -> Floats:
    """Return each column's factor of the click rate relative to the first, by conditional likelihood.

    The click rate of a kind (a row) in a column, such as a position, is the kind's relevance times the
    column's factor. A kind's clicks then fall on its columns in proportion to shown_counts times factors,
    in which relevance cancels. The maximum is consistent whatever the distribution of relevance and its
    correlation with the columns: the score has expectation 0 wherever rates are these products.

    With ``is_unbiased``, the mean error of ratios of few clicks is taken off: a factor is in effect x/y,
    clicks in its column over clicks in the first, which is (1 + 1/y) times too large on average; the
    variance of its logarithm is 1/x + 1/y.

    A column has NaN unless kinds with clicks connect it with the first in both directions, which is the
    condition for a finite maximum.

    References
    ----------
    Hausman, Hall, Griliches (1984), "Econometric models for count data with an application to the
    patents-R&D relationship"; Wooldridge (1999), "Distribution-free estimation of some nonlinear panel data
    models"; Ford (1957), for the condition.
    """
    factors = np.full(shown_counts.shape[1], np.nan)
    connected = _find_connected(shown_counts > 0, clicks > 0)
    shown_counts, clicks = shown_counts[:, connected], clicks[:, connected]
    totals = clicks.sum(axis=1, keepdims=True)
    # Only kinds with clicks that are shown in several columns compare columns.
    informative = (totals[:, 0] > 0) & ((shown_counts > 0).sum(axis=1) > 1)
    shown_counts, clicks, totals = shown_counts[informative], clicks[informative], totals[informative]
    log_factors = np.zeros(connected.sum())
    for _ in range(ITERATIONS if len(totals) else 0):
        expected, curve = _expect_clicks(shown_counts, totals, log_factors)
        step = np.linalg.solve(curve, (clicks - expected).sum(axis=0)[1:])
        largest = np.abs(step).max(initial=0.0)
        log_factors[1:] += step / max(1.0, largest)  # no factor changes by more than e times in a step
        if largest < 1e-10:
            break
    if is_unbiased:
        expected, curve = _expect_clicks(shown_counts, totals, log_factors)
        # 1/y is the variance less 1/x.
        excess = np.diag(np.linalg.inv(curve)) - 1.0 / expected.sum(axis=0)[1:]
        log_factors[1:] -= np.log1p(np.maximum(excess, 0.0))
    factors[connected] = np.exp(log_factors)
    return factors


def _expect_clicks(shown_counts: Floats, totals: Floats, log_factors: Floats) -> tuple[Floats, Floats]:
    """Return the expected clicks of each kind in each column, and the information on the other log factors.

    The first log factor is 0. ``totals`` are the clicks of each kind, shape (kinds, 1).
    """
    shares = shown_counts * np.exp(log_factors)
    shares /= shares.sum(axis=1, keepdims=True)
    expected = totals * shares
    return expected, (np.diag(expected.sum(axis=0)) - shares.T @ expected)[1:, 1:]


def fit_columns(shown: Ints, clicks: Booleans, columns: Ints, otherwise: float, is_unbiased: bool) -> Floats:
    """Return the factor, from 0 to 1, of each column of results but the first, for sessions of a click log.

    ``shown`` has the kind of each result of a session, ``columns`` its column, such as its position; −1 for
    none. A column whose factor the log does not determine gets ``otherwise``, with a warning. For
    ``is_unbiased`` see :func:`fit_factors`.
    """
    is_counted = (shown >= 0) & (columns >= 0)
    kinds, width = np.unique(shown[is_counted], return_inverse=True)[1], shown.shape[1]
    index = kinds * width + columns[is_counted]
    size = (kinds.max(initial=-1) + 1) * width
    shown_counts = np.bincount(index, minlength=size).reshape(-1, width).astype(np.float64)
    click_counts = np.bincount(index, clicks[is_counted], size).reshape(-1, width).astype(np.float64)
    factors = fit_factors(shown_counts, click_counts, is_unbiased=is_unbiased)[1:]
    is_unknown = np.isnan(factors)
    if is_unknown.any():
        positions = ", ".join(map(str, np.flatnonzero(is_unknown) + 1))
        warnings.warn(
            f"shown: no kinds with clicks are seen at position {positions} and elsewhere, so its examination "
            f"cannot be separated from their relevance, and {otherwise} is taken; swap some at random, "
            "or fit kinds that are seen more often, as read_sessions(log, 'arm') has",
            AssumptionWarning,
            stacklevel=3,
        )
    return np.where(is_unknown, otherwise, np.minimum(factors, 1.0))


def _find_connected(is_shown: Booleans, has_clicks: Booleans) -> Booleans:
    """Return a mask of the columns that reach the first column, directly or over others, and vice versa.

    Column j reaches m if a kind that is shown in m has clicks in j.
    """
    reaches = has_clicks.T.astype(np.float64) @ is_shown > 0
    np.fill_diagonal(reaches, True)
    for middle in range(len(reaches)):  # Warshall's algorithm: paths over ``middle``
        reaches |= reaches[:, middle, None] & reaches[middle]
    return np.asarray(reaches[0] & reaches[:, 0])
