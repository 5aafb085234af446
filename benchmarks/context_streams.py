"""Streams of contexts, and what each named arm would get: what `context.py` plays, by seed.

Classes to be named after a few numbers (scikit-learn's), users drawn from logistic truths, and what is hard
about them: contexts that say nothing, truths that are redrawn, few numbers that count, rare clicks.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import venvs


class Stream(NamedTuple):
    """What comes, round by round.

    Attributes
    ----------
    contexts : array of float64, shape (rounds, d)
    chances : array of float64, shape (rounds, arms)
        The probability of a click on each arm.
    coins : array of float64, shape (rounds,)
        An arm is clicked if its chance is above.
    """

    contexts: Any
    chances: Any
    coins: Any


@cache
def _bundled(name: str) -> tuple[Any, Any]:
    import sklearn.datasets

    found = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    return found[0].astype(float), found[1]


@cache
def _segments() -> tuple[Any, Any]:
    (path,) = (venvs.VENVS / "river").glob("lib/*/*/river/datasets/segment.csv.zip")
    with zipfile.ZipFile(path) as archive:
        head, *lines = archive.read(archive.namelist()[0]).decode().split()
    table = np.array([line.split(",") for line in lines])
    place = head.split(",").index("category")
    return np.delete(table, place, axis=1).astype(float), np.unique(table[:, place], return_inverse=True)[1]


def classes(name: str, rounds: int) -> Callable[[Any], Stream]:
    """Return a stream of rows drawn from a data set; the arm of a row's class is clicked, no other."""

    def stream(rng: Any) -> Stream:
        features, labels = _segments() if name == "segments" else _bundled(name)
        rows = rng.integers(len(features), size=rounds)
        chances = np.eye(labels.max() + 1)[labels[rows]]
        return Stream(features[rows], chances, rng.random(rounds))

    return stream


def _logistic(logits: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-logits))


def _weights(rng: Any, arms: int, dim: int, spread: float, count: int) -> Any:
    """Return weights of which so many count, each arm's logits of deviation ``spread``."""
    weights = rng.standard_normal((dim, arms)) * spread / np.sqrt(count)
    weights[rng.permutation(dim)[count:]] = 0.0
    return weights


def truths(
    rounds: int,
    arms: int,
    dim: int,
    *,
    base: float = -1.0,
    spread: float = 1.0,
    count: int | None = None,
    redrawn: bool = False,
) -> Callable[[Any], Stream]:
    """Return a stream of normal contexts and logits that are linear in them, for each arm."""

    def stream(rng: Any) -> Stream:
        contexts = rng.standard_normal((rounds, dim))
        halves = np.array_split(contexts, 2 if redrawn else 1)
        logits = [
            half @ _weights(rng, arms, dim, spread, count or dim) + base + 0.3 * rng.standard_normal(arms)
            for half in halves
        ]
        return Stream(contexts, _logistic(np.concatenate(logits)), rng.random(rounds))

    return stream


def noise(rounds: int, arms: int, dim: int) -> Callable[[Any], Stream]:
    """Return a stream in which contexts say nothing."""

    def stream(rng: Any) -> Stream:
        chances = np.broadcast_to(rng.uniform(0.05, 0.45, arms), (rounds, arms)).copy()
        return Stream(rng.standard_normal((rounds, dim)), chances, rng.random(rounds))

    return stream


def large_effect(rounds: int, arms: int, dim: int) -> Callable[[Any], Stream]:
    """Return a stream of users of whom some click on anything; numbers are correlated, and of any size."""

    def stream(rng: Any) -> Stream:
        own = rng.standard_normal((rounds, dim))
        common = own @ rng.standard_normal(dim) * 2.0 / np.sqrt(dim)
        logits = common[:, None] + own @ _weights(rng, arms, dim, 0.5, dim) - 1.0
        mixed = own @ (np.eye(dim) + rng.standard_normal((dim, dim)) / np.sqrt(dim))
        sizes, offsets = np.exp(2.0 * rng.standard_normal(dim)), 10.0 * rng.standard_normal(dim)
        return Stream((mixed + offsets) * sizes, _logistic(logits), rng.random(rounds))

    return stream


STREAMS: dict[str, Callable[[Any], Stream]] = {
    "digits": classes("digits", 3_000),
    "wine, unscaled": classes("wine", 2_000),
    "breast cancer, unscaled": classes("breast_cancer", 2_000),
    "iris": classes("iris", 2_000),
    "noise": noise(5_000, 10, 64),
    "redrawn halfway": truths(10_000, 5, 10, spread=1.5, redrawn=True),
    "dense, 2 arms": truths(4_000, 2, 20),
    "dense, 10 arms": truths(8_000, 10, 20),
    "dense, 50 arms": truths(10_000, 50, 20),
    "4 of 64 count": truths(8_000, 10, 64, count=4),
    "large main effect": large_effect(6_000, 10, 20),
    "clicks 2 %": truths(30_000, 10, 10, base=-4.0),
}
"""By name; sizes as (rounds, arms, numbers) in each."""
LENT = {"image segments": classes("segments", 3_000)}
"""Those whose data another package brings along, river: 7 surfaces seen outdoors, 18 numbers each."""


def stream(name: str, seed: int) -> Stream:
    """Return a stream of a seed."""
    known = STREAMS | LENT
    return known[name](np.random.default_rng([seed, list(known).index(name)]))


def regret(stream: Stream, shown: Any) -> float:
    """Return what was lost against the best arm of each round."""
    chances = stream.chances
    return float((chances.max(axis=1) - chances[np.arange(len(shown)), shown]).sum())
