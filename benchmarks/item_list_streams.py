"""Streams of lists of items known by embeddings, for readers of many kinds: what `item_lists.py` plays.

A stream follows from its setting and a seed. Some of the items are offered for each list, in an order that
says something or nothing. An item that is seen is clicked by a logit that is linear in its numbers, or in
their products with a user's. Readers see positions with probabilities of their own, or go from the top, on
after a skip and after a click with one each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np


class ListStream(NamedTuple):
    """What comes, list by list.

    Attributes
    ----------
    items : array of float64, shape (items, d)
    offers : array of int64, shape (lists, offered)
        The caller's best first, where the order says something.
    users : array of float64, shape (lists, d_user)
    chances : array of float64, shape (lists, offered)
        The probability of a click on each item on offer that is seen.
    likes : array of float64, shape (lists, offered)
        An item that is seen is clicked if its chance is above.
    looks : array of float64, shape (lists, positions)
        A reader looks at a position if the chance to is above.
    seen : array of float64, shape (positions,)
        With what chance each position is looked at; of readers who go from the top, 1.
    after_skip, after_click : float
        With what chance they look at the next one; 1 where that depends on the position alone.
    """

    items: Any
    offers: Any
    users: Any
    chances: Any
    likes: Any
    looks: Any
    seen: Any
    after_skip: float
    after_click: float


class Setting(NamedTuple):
    """What a stream is like.

    Attributes
    ----------
    curve : callable
        From positions, from 1, to the chance that each is looked at.
    on : (float, float)
        The chances of looking at the next position after a skip and after a click.
    base : float
        The mean chance of a click on an item that is seen, about.
    spread, own : float
        The deviation of logits by items' numbers, and by what they are beyond them.
    ordered : float
        How much the order offered says: the deviation of the noise on logits by which it is sorted;
        infinite where it says nothing.
    """

    curve: Callable[[Any], Any] = lambda k: 1.0 / k
    on: tuple[float, float] = (1.0, 1.0)
    lists: int = 3_000
    items: int = 2_000
    offered: int = 20
    positions: int = 5
    dim: int = 64
    rank: int = 20
    users: int = 0
    base: float = 0.2
    spread: float = 1.5
    own: float = 0.0
    redrawn: bool = False
    ordered: float = np.inf


def everywhere(k: Any) -> Any:
    """Return that all positions are looked at, if a reader comes there."""
    return np.ones(len(k))


def root(k: Any) -> Any:
    """Return 1/√k."""
    return 1.0 / np.sqrt(k)


SETTINGS: dict[str, Setting] = {
    "1/k": Setting(),
    "1/√k, isotropic, d 32": Setting(root, dim=32, rank=0),
    "cascade": Setting(everywhere, (1.0, 0.0)),
    "dependent click": Setting(everywhere, (1.0, 0.6)),
    "on: .7 skip, .5 click": Setting(everywhere, (0.7, 0.5)),
    "rare, 2 %": Setting(base=0.02, lists=5_000),
    "often, 40 %, d 16": Setting(base=0.4, dim=16, rank=0),
    "taste redrawn": Setting(redrawn=True, lists=4_000),
    "items differ (sd .7)": Setting(own=0.7),
    "30 fixed items, 3 of 30": Setting(items=30, offered=30, positions=3, dim=16, rank=0),
    "user × item, 1/k": Setting(lists=4_000, users=4, dim=32, rank=0),
    "only the order tells": Setting(spread=0.0, own=1.5, items=200_000, ordered=1.5),
    "good start": Setting(ordered=1.5),
}


def embedded(rng: Any, count: int, dim: int, rank: int) -> Any:
    """Return embeddings about 20 clusters in so many dimensions, with noise in all; without, if 0."""
    if not rank:
        return rng.standard_normal((count, dim))
    centres = rng.standard_normal((20, rank))
    inner = 0.6 * rng.standard_normal((count, rank)) + 0.8 * centres[rng.integers(20, size=count)]
    found = inner @ rng.standard_normal((rank, dim)) / np.sqrt(rank)
    return found + 0.3 * rng.standard_normal((count, dim))


def standard(values: Any) -> Any:
    """Return values of mean 0 and deviation 1; as they are if all are alike."""
    deviation = values.std()
    return (values - values.mean()) / deviation if deviation > 0.0 else values * 0.0


def centred(logits: Any, base: float) -> Any:
    """Return logits moved so that the mean chance of a click is ``base``."""
    low, high = -20.0, 20.0
    sample = logits.ravel()[:50_000]
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (
            (middle, high) if (1.0 / (1.0 + np.exp(-sample - middle))).mean() < base else (low, middle)
        )
    return logits + low


def stream(name: str, seed: int) -> ListStream:
    """Return the stream of a setting and a seed."""
    setting = SETTINGS[name]
    rng = np.random.default_rng([seed, list(SETTINGS).index(name)])
    items = embedded(rng, setting.items, setting.dim, setting.rank)
    shape = setting.lists, setting.offered
    offers = np.array([rng.choice(setting.items, setting.offered, replace=False) for _ in range(shape[0])])
    users = rng.standard_normal((setting.lists, setting.users))
    own = setting.own * rng.standard_normal(setting.items)
    if setting.users:
        taste = rng.standard_normal((setting.users + 1, setting.dim))
        wanted = np.column_stack([np.ones(setting.lists), users]) @ taste
        logits = setting.spread * standard(np.einsum("td,tnd->tn", wanted, items[offers])) + own[offers]
    else:
        before, after = (
            setting.spread * standard(items @ rng.standard_normal(setting.dim)) for _ in range(2)
        )
        late = np.arange(setting.lists)[:, None] >= setting.lists // 2
        logits = own[offers] + np.where(late & setting.redrawn, after[offers], before[offers])
    logits = centred(logits, setting.base)
    if np.isfinite(setting.ordered):
        order = np.argsort(-(logits + setting.ordered * rng.standard_normal(shape)), axis=1)
        offers, logits = np.take_along_axis(offers, order, 1), np.take_along_axis(logits, order, 1)
    seen = setting.curve(np.arange(1, setting.positions + 1))
    drawn = rng.random(shape), rng.random((setting.lists, setting.positions))
    return ListStream(items, offers, users, 1.0 / (1.0 + np.exp(-logits)), *drawn, seen, *setting.on)


@numba.njit(cache=True)
def read_list(stream: Any, t: int, shown: Any, clicked: Any) -> None:
    """Fill in what is clicked of a list of places on offer."""
    chain, looked = stream.after_skip < 1.0 or stream.after_click < 1.0, True
    for k in range(len(shown)):
        chance = stream.seen[k]
        if chain and k > 0:
            chance = stream.after_click if clicked[k - 1] > 0.0 else stream.after_skip
            chance = chance if looked else 0.0
        looked, clicked[k] = stream.looks[t, k] < chance, 0.0
        if looked and stream.likes[t, shown[k]] < stream.chances[t, shown[k]]:
            clicked[k] = 1.0


def worth(stream: ListStream, places: Any) -> Any:
    """Return the clicks that are expected on lists of places, of shape (lists, positions)."""
    chances = np.take_along_axis(stream.chances, places, 1)
    if stream.after_skip == stream.after_click == 1.0:
        return chances @ stream.seen
    come, total = np.ones(len(places)), np.zeros(len(places))
    for k in range(places.shape[1]):
        total += come * chances[:, k]
        come *= chances[:, k] * stream.after_click + (1.0 - chances[:, k]) * stream.after_skip
    return total


def regret(stream: ListStream, places: Any) -> float:
    """Return what the best lists would have got more than those shown: those of the best items, in order."""
    best = np.argsort(-stream.chances, axis=1)[:, : places.shape[1]]
    return float((worth(stream, best) - worth(stream, places)).sum())
