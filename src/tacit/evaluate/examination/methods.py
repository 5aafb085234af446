"""Three ways to tell examination from relevance, on cells."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tacit.core.arrays import Floats
from tacit.evaluate.examination.cells import Cells

ITERATIONS = 5000


def randomization(cells: Cells, places: int) -> Floats:
    """Return ratios of (weighted) click rates."""
    shown = per_place(cells, cells.shown, places)
    clicks = per_place(cells, cells.clicks, places)
    return relative(np.divide(clicks, shown, out=np.full(places, np.nan), where=shown > 0))


def per_place(cells: Cells, values: Floats, places: int) -> Floats:
    return np.asarray(np.bincount(cells.position, values, places), np.float64)


def relative(effects: Floats) -> Floats:
    """Return effects relative to the first; NaN where that is nothing."""
    first = effects[0]
    return np.asarray(effects / (first if first > 0 else math.nan))


def _matrix(cells: Cells, places: int) -> tuple[Floats, Floats]:
    """Return how often each pair was shown and clicked at each position, (pairs, positions)."""
    size = len(cells.names) * places
    index = cells.pair * places + cells.position
    return (
        np.asarray(np.bincount(index, cells.shown, size).reshape(-1, places), np.float64),
        np.asarray(np.bincount(index, cells.clicks, size).reshape(-1, places), np.float64),
    )


def harvesting(cells: Cells, places: int) -> Floats:
    """Return the effects that maximise the AllPairs likelihood of Agarwal et al. (2019).

    Over pairs shown at both k and k′, ĉ is the sum of click rates at k and ĉ̄ that of the rates
    of no click. In the logarithms a of pₖ and b of r_{k,k′}, ĉ·(a + b) + ĉ̄·log(1 − exp(a + b))
    is concave, so Newton's method finds the one maximum.
    """
    shown, clicks = _matrix(cells, places)
    seen = (shown > 0).astype(np.float64)
    rates = np.divide(clicks, shown, out=np.zeros_like(clicks), where=shown > 0)
    hits, misses = rates.T @ seen, (seen - rates).T @ seen
    upper = [(k, m) for k in range(places) for m in range(k + 1, places) if hits[k, m] > 0 and hits[m, k] > 0]
    known = _connected(upper, places)
    upper = [pair for pair in upper if pair[0] in known]
    effects = np.full(places, np.nan)
    effects[0] = 1.0
    if not upper:
        return effects
    free = sorted(known - {0})
    column = {k: number for number, k in enumerate(free)}
    design = np.zeros((2 * len(upper), len(free) + len(upper)))
    good, bad = np.zeros(len(design)), np.zeros(len(design))
    start = np.zeros(design.shape[1])
    for number, (k, m) in enumerate(upper):
        for row, (here, there) in enumerate(((k, m), (m, k)), 2 * number):
            if here in column:
                design[row, column[here]] = 1.0
            design[row, len(free) + number] = 1.0
            good[row], bad[row] = hits[here, there], misses[here, there]
        both = slice(2 * number, 2 * number + 2)
        start[len(free) + number] = math.log(good[both].sum() / (good + bad)[both].sum() * 0.5)
    effects[free] = np.exp(_log_linear(design, good, bad, start)[: len(free)])
    return effects


def _connected(edges: list[tuple[int, int]], places: int) -> set[int]:
    """Return the positions that edges connect to the first."""
    known = {0}
    for _ in range(places):
        known |= {m for edge in edges if known & set(edge) for m in edge}
    return known


def _log_linear(design: Floats, good: Floats, bad: Floats, start: Floats) -> Floats:
    """Return the x that maximises Σ good·u + bad·log(1 − eᵘ), u = design · x < 0 (Newton)."""

    def value(x: Floats) -> float:
        u = design @ x
        if (u >= 0).any():
            return -math.inf
        return float(good @ u + bad @ np.log1p(-np.exp(u)))

    x, best = start, value(start)
    for _ in range(200):
        odds = 1.0 / np.expm1(-(design @ x))
        slope = design.T @ (good - bad * odds)
        curve = (design.T * (bad * odds * (1.0 + odds))) @ design
        step = np.linalg.lstsq(curve, slope, rcond=None)[0]
        size = 1.0
        while value(x + size * step) < best and size > 1e-12:
            size /= 2
        x = x + size * step if size > 1e-12 else x
        gain, best = value(x) - best, value(x)
        if gain <= 1e-13 * abs(best):
            break
    return x


def em(cells: Cells, places: int, start: Floats | None, regression: Regression) -> Floats:
    """Return what expectation maximisation (Wang et al. 2018, algorithm 1) finds.

    The E-step gives, for a row without a click, P(examined) = θ(1 − γ)/(1 − θγ) and
    P(relevant) = γ(1 − θ)/(1 − θγ); the M-step takes means of the first per position, and fits
    relevance to the second.
    """
    shown, clicks = _matrix(cells, places)
    missed = shown - clicks
    rows, at = np.maximum(shown.sum(axis=1), 1e-300), np.maximum(shown.sum(axis=0), 1e-300)
    if start is None:
        theta = np.full(places, 0.5)
        gamma = (clicks.sum(axis=1) + 1.0) / (rows + 2.0)
    else:
        theta = 0.9 * np.nan_to_num(start, nan=1.0) / np.nanmax(start)
        gamma = np.minimum(0.95, (clicks.sum(axis=1) + 0.1) / np.maximum(shown @ theta, 1e-9))
    for _ in range(ITERATIONS):
        both = theta * gamma[:, None]
        examined = clicks + missed * theta * (1 - gamma[:, None]) / (1 - both)
        relevant = clicks + missed * gamma[:, None] * (1 - theta) / (1 - both)
        new = np.clip(examined.sum(axis=0) / at, 1e-9, 1 - 1e-9)
        gamma = np.clip(regression(relevant.sum(axis=1) / rows, rows), 1e-9, 1 - 1e-9)
        change = np.abs(np.log(relative(new) / relative(theta))).max()
        theta = new
        if change < 1e-8:
            break
    return relative(theta)


class Regression:
    """What estimates relevance in the M-step: means per pair, or a regression on features."""

    def __init__(self, cells: Cells, features: Any, regression: Any) -> None:
        self._regression = regression
        if features is not None:
            told = [np.asarray(features(key, arm), np.float64) for key, arm in cells.names]
            self._features = np.stack(told)

    def __call__(self, targets: Floats, rows: Floats) -> Floats:
        if self._regression is None:
            return targets
        self._regression.fit(self._features, targets, sample_weight=rows)
        return np.asarray(self._regression.predict(self._features), np.float64)
