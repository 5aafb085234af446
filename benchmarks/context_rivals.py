"""What `context.py` plays beside tacit's policy: a model for each arm, in float64, tuned in hindsight.

LinUCB, Thompson sampling on logistic regressions, ε-greedy on Adagrad; and ten lines of NumPy. Each is given
a constant, and scales taken from the whole stream, which the default never sees.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import product
from typing import Any

import numba
import numpy as np

njit = numba.njit(cache=True, error_model="numpy")


@njit
def project(covariance: Any, x: Any, y: Any) -> float:
    """Fill in covariance · x; return the variance along x."""
    total = 0.0
    for i in range(len(x)):
        y[i] = 0.0
    for j in range(len(x)):
        for i in range(len(x)):
            y[i] += covariance[j, i] * x[j]
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@njit
def shrink(covariance: Any, y: Any, factor: float) -> None:
    """Subtract a multiple of y's outer product."""
    for i in range(len(y)):
        for j in range(len(y)):
            covariance[i, j] -= factor * y[i] * y[j]


@njit
def inner(x: Any, y: Any) -> float:
    """Return the inner product."""
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@njit
def lin_ucb(x: Any, chances: Any, coins: Any, alpha: float, ridge: float, rng: Any) -> Any:
    """Play LinUCB, a model for each arm (Li et al. 2010, algorithm 1); return what is shown."""
    rounds, arms = chances.shape
    dim = x.shape[1]
    covariance = np.zeros((arms, dim, dim))
    for arm in range(arms):
        for i in range(dim):
            covariance[arm, i, i] = 1.0 / ridge
    mean, y, shown = np.zeros((arms, dim)), np.zeros(dim), np.zeros(rounds, np.int64)
    for t in range(rounds):
        best, first = -np.inf, int(rng.random() * arms)
        for k in range(arms):
            arm = (first + k) % arms
            score = inner(mean[arm], x[t]) + alpha * np.sqrt(max(project(covariance[arm], x[t], y), 0.0))
            if score > best:
                best, shown[t] = score, arm
        arm = shown[t]
        reward = 1.0 if coins[t] < chances[t, arm] else 0.0
        s = project(covariance[arm], x[t], y)
        off = (reward - inner(mean[arm], x[t])) / (1.0 + s)
        for i in range(dim):
            mean[arm, i] += off * y[i]
        shrink(covariance[arm], y, 1.0 / (1.0 + s))
    return shown


@njit
def logistic_thompson(x: Any, chances: Any, coins: Any, scale: float, spread: float, rng: Any) -> Any:
    """Play Thompson sampling on the scores of logistic regressions, one Laplace step per click."""
    rounds, arms = chances.shape
    dim = x.shape[1]
    covariance, mean = np.zeros((arms, dim, dim)), np.zeros((arms, dim))
    for arm in range(arms):
        for i in range(dim):
            covariance[arm, i, i] = spread * spread / dim
        covariance[arm, dim - 1, dim - 1] = spread * spread
    y, shown = np.zeros(dim), np.zeros(rounds, np.int64)
    for t in range(rounds):
        best, first = -np.inf, int(rng.random() * arms)
        for k in range(arms):
            arm = (first + k) % arms
            deviation = scale * np.sqrt(max(project(covariance[arm], x[t], y), 0.0))
            score = inner(mean[arm], x[t]) + deviation * rng.standard_normal()
            if score > best:
                best, shown[t] = score, arm
        arm = shown[t]
        reward = 1.0 if coins[t] < chances[t, arm] else 0.0
        s, logit = project(covariance[arm], x[t], y), inner(mean[arm], x[t])
        at = logit
        for _ in range(8):
            chance = 1.0 / (1.0 + np.exp(-at))
            at -= (at - logit - s * (reward - chance)) / (1.0 + s * chance * (1.0 - chance))
        chance = 1.0 / (1.0 + np.exp(-at))
        for i in range(dim):
            mean[arm, i] += (reward - chance) * y[i]
        precision = chance * (1.0 - chance)
        shrink(covariance[arm], y, precision / (1.0 + precision * s))
    return shown


@njit
def epsilon_sgd(x: Any, chances: Any, coins: Any, epsilon: float, step: float, rng: Any) -> Any:
    """Play the best by logistic regressions that Adagrad fits, but an arm at random every so often."""
    rounds, arms = chances.shape
    dim = x.shape[1]
    mean, squares = np.zeros((arms, dim)), np.full((arms, dim), 1e-8)
    shown = np.zeros(rounds, np.int64)
    for t in range(rounds):
        best, first = -np.inf, int(rng.random() * arms)
        for k in range(arms):
            arm = (first + k) % arms
            score = inner(mean[arm], x[t])
            if score > best:
                best, shown[t] = score, arm
        if rng.random() < epsilon:
            shown[t] = int(rng.random() * arms)
        arm = shown[t]
        reward = 1.0 if coins[t] < chances[t, arm] else 0.0
        off = reward - 1.0 / (1.0 + np.exp(-inner(mean[arm], x[t])))
        for i in range(dim):
            slope = off * x[t, i]
            squares[arm, i] += slope * slope
            mean[arm, i] += step * slope / np.sqrt(squares[arm, i])
    return shown


@njit
def beta_thompson(x: Any, chances: Any, coins: Any, a: float, b: float, rng: Any) -> Any:
    """Play Thompson sampling without looking at contexts, from Beta(a, b)."""
    rounds, arms = chances.shape
    successes, failures, shown = np.full(arms, a), np.full(arms, b), np.zeros(rounds, np.int64)
    for t in range(rounds):
        best = -1.0
        for arm in range(arms):
            score = rng.beta(successes[arm], failures[arm])
            if score > best:
                best, shown[t] = score, arm
        if coins[t] < chances[t, shown[t]]:
            successes[shown[t]] += 1.0
        else:
            failures[shown[t]] += 1.0
    return shown


FAMILIES: dict[str, tuple[Callable[..., Any], list[tuple[float, float]], tuple[str, ...]]] = {
    "LinUCB": (lin_ucb, list(product((0.05, 0.1, 0.3), (1.0, 10.0))), ("standard", "raw")),
    "logistic Thompson": (logistic_thompson, list(product((0.1, 0.2, 0.5), (1.0, 2.0, 4.0))), ("standard",)),
    "epsilon-SGD": (epsilon_sgd, list(product((0.02, 0.08), (0.05, 0.2, 0.5))), ("standard",)),
}
"""How each is played, with which hyperparameters, over which features."""


def with_constant(contexts: Any, how: str) -> Any:
    """Return contexts with a constant: as they are, or by means and deviations of the whole stream."""
    if how == "standard":
        deviation = contexts.std(axis=0)
        contexts = (contexts - contexts.mean(axis=0)) / np.where(deviation > 0.0, deviation, 1.0)
    return np.column_stack([contexts, np.ones(len(contexts))])


def played(stream: Any, family: str, seed: int, only: Collection[str] = ()) -> Iterator[tuple[str, Any]]:
    """Yield what each candidate of a family shows, or those that are named, with its name."""
    play, candidates, features = FAMILIES[family]
    for how in features:
        x = with_constant(stream.contexts, how)
        for first, second in candidates:
            name = f"{family} {first:g}, {second:g}, {how}"
            if not only or name in only:
                rng = np.random.default_rng([seed, 2])
                yield name, play(x, stream.chances, stream.coins, first, second, rng)
