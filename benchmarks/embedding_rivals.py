"""What `embeddings.py` plays beside tacit's policy: one model of all numbers, in float64, tuned in hindsight.

LinUCB, and logistic regressions with upper bounds or Thompson sampling, with all covariances; ε-greedy on
Adagrad, of items, or of the products of items' and users' numbers. Each is given a constant, and means and
scales of the whole catalogue, which the default never sees.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np


def standardised(rows: Any, known: Any) -> Any:
    """Return rows at the size that known rows have, with a constant."""
    scaled = (rows - known.mean(axis=0)) / known.std(axis=0)
    return np.column_stack([np.ones(len(rows)), scaled / np.sqrt(rows.shape[1])])


def sigmoid(x: Any) -> Any:
    """Return 1/(1 + exp(−x))."""
    return 1.0 / (1.0 + np.exp(-x))


class LinUCB:
    """LinUCB with parameters that all items share (Li et al. 2010)."""

    def __init__(self, dim: int, rng: Any, width: float, spread: float) -> None:
        self.mean, self.cov, self.rng, self.width = np.zeros(dim), np.eye(dim) * spread**2, rng, width
        self.cov[0, 0] = 1.0

    def scores(self, means: Any, deviations: Any) -> Any:
        """Return upper bounds."""
        return means + self.width * deviations

    def choose(self, x: Any) -> int:
        """Return the place of the highest score."""
        deviations = np.sqrt(np.maximum(np.einsum("ij,ij->i", x @ self.cov, x), 0.0))
        found = self.scores(x @ self.mean, deviations)
        return int(self.rng.choice(np.flatnonzero(found == found.max())))

    def learn(self, x: Any, reward: float) -> None:
        """Take in a reward by recursive least squares."""
        along = self.cov @ x
        whole = 1.0 + along @ x
        self.mean += (reward - self.mean @ x) / whole * along
        self.cov -= np.multiply.outer(along / whole, along)


class LogisticUCB(LinUCB):
    """Upper bounds of a logistic regression's scores."""

    def learn(self, x: Any, reward: float) -> None:
        """Take in a reward by one Laplace step."""
        along = self.cov @ x
        s, logit = along @ x, self.mean @ x
        at = logit
        for _ in range(8):
            chance = sigmoid(at)
            at -= (at - logit - s * (reward - chance)) / (1.0 + s * chance * (1.0 - chance))
        chance = sigmoid(at)
        self.mean += (reward - chance) * along
        precision = chance * (1.0 - chance)
        self.cov -= np.multiply.outer(precision / (1.0 + precision * s) * along, along)


class LogisticTS(LogisticUCB):
    """Thompson sampling on a logistic regression's scores."""

    def scores(self, means: Any, deviations: Any) -> Any:
        """Return draws."""
        return means + self.width * deviations * self.rng.standard_normal(len(means))


class EpsilonSGD:
    """The best by a logistic regression that Adagrad fits, but any item every so often."""

    def __init__(self, dim: int, rng: Any, epsilon: float, step: float) -> None:
        self.mean, self.squares, self.rng = np.zeros(dim), np.full(dim, 1e-8), rng
        self.epsilon, self.step = epsilon, step

    def choose(self, x: Any) -> int:
        """Return the place of the highest score, or any."""
        if self.rng.random() < self.epsilon:
            return int(self.rng.integers(len(x)))
        found = x @ self.mean
        return int(self.rng.choice(np.flatnonzero(found == found.max())))

    def learn(self, x: Any, reward: float) -> None:
        """Take a step."""
        slope = (reward - sigmoid(self.mean @ x)) * x
        self.squares += slope * slope
        self.mean += self.step * slope / np.sqrt(self.squares)


class Bilinear(EpsilonSGD):
    """The same on the products of an item's and a user's numbers."""

    def __init__(self, dims: tuple[int, int], rng: Any, epsilon: float, step: float) -> None:
        super().__init__(dims[0], rng, epsilon, step)
        self.weights, self.all_squares = np.zeros(dims), np.full(dims, 1e-8)

    def arrive(self, user: Any) -> None:
        """Take in who is asking."""
        self.user, self.mean = user, self.weights @ user

    def learn(self, x: Any, reward: float) -> None:
        """Take a step."""
        slope = np.multiply.outer((reward - sigmoid(self.mean @ x)) * x, self.user)
        self.all_squares += slope * slope
        self.weights += self.step * slope / np.sqrt(self.all_squares)


FAMILIES: dict[str, tuple[Any, list[tuple[float, float]]]] = {
    "LinUCB": (LinUCB, [(0.05, 1.0), (0.1, 1.0), (0.2, 1.0), (0.1, 3.0)]),
    "logistic UCB": (LogisticUCB, [(0.2, 4.0), (0.4, 4.0), (0.2, 2.0)]),
    "logistic TS": (LogisticTS, [(0.2, 4.0), (0.5, 4.0), (0.2, 2.0)]),
    "ε-SGD": (EpsilonSGD, [(e, s) for e in (0.02, 0.08) for s in (0.03, 0.1, 0.3, 1.0)]),
}
BILINEAR = [(0.02, step) for step in (0.001, 0.003, 0.01, 0.03, 0.1)]


def played(stream: Any, family: str, seed: int, only: Collection[str] = ()) -> Iterator[tuple[str, Any]]:
    """Yield each candidate of a family, or those that are named, and the places that it shows."""
    items = standardised(stream.items, stream.items)
    users = standardised(stream.users, stream.users) if stream.users.shape[1] else None
    kind, candidates = FAMILIES[family]
    dims: Any = items.shape[1]
    if users is not None:
        if kind is not EpsilonSGD:
            return
        kind, candidates, dims = Bilinear, BILINEAR, (items.shape[1], users.shape[1])
    for index, knobs in enumerate(candidates):
        if only and f"{family} {knobs}" not in only:
            continue
        model = kind(dims, np.random.default_rng([seed, 3, index]), *knobs)
        places = np.zeros(len(stream.coins), np.int64)
        for t, offer in enumerate(stream.offers):
            x = items[offer]
            if users is not None:
                model.arrive(users[t])
            place = places[t] = model.choose(x)
            model.learn(x[place], float(stream.coins[t] < stream.chances[t, place]))
        yield f"{family} {knobs}", places
