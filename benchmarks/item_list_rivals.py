"""What `item_lists.py` plays beside tacit's policy: one model of all numbers, in float64, tuned in hindsight.

Logistic Thompson sampling, and LinUCB, with all covariances of a constant, the order offered, an item's
numbers and their products with the user's, at the size that the whole catalogue says. What no click
tells: that an item is not liked (`all`), that it is not liked if a click is below it (`above`), or as
far as its position was seen, by its clicks over those expected (`divided`).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import numba
import numpy as np
from item_list_streams import read_list

ALL, ABOVE, DIVIDED = range(3)
RULES = "all", "above", "divided"


class Rival(NamedTuple):
    """A model with its knobs."""

    linear: bool
    rule: int
    width: float
    prior: float

    @property
    def family(self) -> str:
        """Whose knobs are tuned together."""
        return f"{'LinUCB' if self.linear else 'logistic'}, {RULES[self.rule]}"

    @property
    def label(self) -> str:
        """What it is called."""
        return f"{self.family} × {self.width:g}, prior {self.prior:g}"


RIVALS = [
    *itertools.starmap(Rival, itertools.product([False], [ALL, ABOVE], [0.1, 0.3, 1.0], [0.3, 3.0])),
    *itertools.starmap(Rival, itertools.product([False], [DIVIDED], [0.0, 0.3], [0.3, 3.0])),
    *itertools.starmap(Rival, itertools.product([True], [ALL, ABOVE], [0.03, 0.1, 0.3], [1.0])),
]


@numba.njit(cache=True)
def sigmoid(x: float) -> float:
    """Return 1/(1 + exp(−x))."""
    return 1.0 / (1.0 + np.exp(-x))


@numba.njit(cache=True)
def read(items: Any, offer: Any, user: Any, place: int, x: Any) -> None:
    """Fill in the features of an item on offer."""
    item, count, dim = items[offer[place]], len(offer), items.shape[1]
    x[0], x[1] = 1.0, np.log((count - place - 0.5) / (place + 0.5)) / 1.7
    for row in range(len(user) + 1):
        factor = 1.0 if row == 0 else user[row - 1]
        for j in range(dim):
            x[2 + row * dim + j] = factor * item[j]


@numba.njit(cache=True)
def take(mean: Any, cov: Any, x: Any, along: Any, reward: float, seen: float, linear: bool) -> None:
    """Take in what came of an item that was seen with so much chance."""
    size, s, logit = len(x), 0.0, 0.0
    for i in range(size):
        total = 0.0
        for j in range(size):
            total += cov[i, j] * x[j]
        along[i] = total
        s += total * x[i]
        logit += mean[i] * x[i]
    gain, precision, at = reward - logit, 1.0, logit
    if linear:
        gain /= 1.0 + s
    else:
        for _ in range(8):
            chance = sigmoid(at)
            part = reward + (1.0 - reward) * seen * (1.0 - chance) / (1.0 - seen * chance)
            gain = reward - chance if reward > 0.0 else -part * chance
            precision = chance * (1.0 - chance) * part
            at -= (at - logit - s * gain) / (1.0 + s * precision)
    factor = precision / (1.0 + precision * s)
    for i in range(size):
        mean[i] += gain * along[i]
        for j in range(size):
            cov[i, j] -= factor * along[i] * along[j]


@numba.njit(cache=True)
def play(
    stream: Any, items: Any, users: Any, linear: bool, rule: int, width: float, prior: float, seed: int
) -> Any:
    """Return the places that a rival shows."""
    np.random.seed(seed)  # noqa: NPY002  numba has no other one inside
    lists, offered = stream.offers.shape
    positions, size = len(stream.seen), 2 + items.shape[1] * (users.shape[1] + 1)
    shown = np.zeros((lists, positions), np.int64)
    mean, cov, along = np.zeros(size), np.zeros((size, size)), np.zeros(size)
    rows, scores, cells = np.zeros((offered, size)), np.zeros(offered), np.ones((2, positions))
    clicked = np.zeros(positions)
    for i in range(size):
        cov[i, i] = (1.0 if linear else 4.0) if i < 2 else prior / items.shape[1] / (users.shape[1] + 1)
    for t in range(lists):
        for i in range(offered):
            x = rows[i]
            read(items, stream.offers[t], users[t], i, x)
            deviation = np.sqrt(max(np.dot(x, np.dot(cov, x)), 0.0)) if width > 0.0 else 0.0
            scores[i] = np.dot(mean, x) + width * deviation * (1.0 if linear else np.random.standard_normal())  # noqa: NPY002
        order = np.argsort(-scores, kind="mergesort")
        shown[t] = order[:positions]
        read_list(stream, t, shown[t], clicked)
        last = -1
        for k in range(positions):
            last = k if clicked[k] > 0.0 else last
        for k in range(positions):
            if rule == ABOVE and k > last:
                break
            x = rows[shown[t, k]]
            seen = 1.0
            if rule == DIVIDED:
                first = cells[0, 0] / cells[1, 0]
                seen = min(1.0, max(0.005, cells[0, k] / cells[1, k] / first))
                cells[0, k] += clicked[k]
                cells[1, k] += sigmoid(np.dot(mean, x))
            take(mean, cov, x, along, clicked[k], seen, linear)
    return shown


def played(stream: Any, seed: int, only: Collection[str] = ()) -> Iterator[tuple[Rival, Any]]:
    """Yield each rival, or those that are named, and the places that it shows."""
    scale = stream.items.std(axis=0)
    items = (stream.items - stream.items.mean(axis=0)) / scale
    for index, rival in enumerate(RIVALS):
        if not only or rival.label in only:
            yield rival, play(stream, items, stream.users, *rival, seed * 1_000 + index)
