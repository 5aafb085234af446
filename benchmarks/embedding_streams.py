"""Streams of items known by embeddings, and what each would get: what `embeddings.py` plays, by seed.

Twenty of 5,000 items are offered at a time. Embeddings lie about a few clusters in some dimensions out of
all, or fill all of them; users have numbers of their own, or an embedding in the same space.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ITEMS, OFFERED, DIM = 5_000, 20, 384


class Stream(NamedTuple):
    """What comes, round by round.

    Attributes
    ----------
    items : array of float64, shape (items, d)
    offers : array of int64, shape (rounds, offered)
    users : array of float64, shape (rounds, d_user)
        Without columns where nothing is said of users.
    chances : array of float64, shape (rounds, offered)
        The probability of a click on each item on offer.
    coins : array of float64, shape (rounds,)
        An item is clicked if its chance is above.
    """

    items: Any
    offers: Any
    users: Any
    chances: Any
    coins: Any


def directions(rng: Any, rank: int) -> Any:
    """Return so many orthonormal rows; as many as numbers for 0."""
    return np.linalg.qr(rng.standard_normal((DIM, rank or DIM)))[0].T


def embeddings(rng: Any, basis: Any, count: int = ITEMS) -> Any:
    """Return embeddings about 50 clusters along the rows of a basis, with noise in all directions.

    Where the basis is of all directions, they have no clusters.
    """
    rank = len(basis)
    inner = rng.standard_normal((count, rank))
    if rank < DIM:
        centres = rng.standard_normal((50, rank))
        inner = 0.6 * inner + 0.8 * centres[rng.integers(50, size=count)]
    found = inner @ basis * np.sqrt(DIM / rank) + 0.3 * rng.standard_normal((count, DIM))
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def scores(rng: Any, items: Any, basis: Any, spread: float) -> Any:
    """Return the logit of each item by a direction that the basis spans, of that deviation."""
    found = items @ (rng.standard_normal(len(basis)) @ basis)
    return spread * (found - found.mean()) / found.std()


def drawn(rng: Any, items: Any, logits: Any, users: Any = None) -> Stream:
    """Return a stream of offers; logits are of (rounds, offered), made for the offers by a function."""
    rounds = logits.rounds
    offers = np.argsort(rng.random((rounds, 60)), axis=1)[:, :OFFERED]
    offers = (offers * (len(items) // 60) + rng.integers(len(items) // 60, size=offers.shape)) % len(items)
    chances = 1.0 / (1.0 + np.exp(-logits.of(offers)))
    users = np.zeros((rounds, 0)) if users is None else users
    return Stream(items, offers, users, chances, rng.random(rounds))


class Logits(NamedTuple):
    """How many rounds there are, and the logits of offers."""

    rounds: int
    of: Callable[[Any], Any]


def of_items(
    rank: int, base: float, spread: float, rounds: int = 3_000, own: float = 0.0
) -> Callable[[Any], Stream]:
    """Return a stream whose clicks go by items alone; ``own`` is what they differ by beyond embeddings."""

    def stream(rng: Any) -> Stream:
        basis = directions(rng, rank)
        items = embeddings(rng, basis)
        logits = base + scores(rng, items, basis, spread) + own * rng.standard_normal(len(items))
        return drawn(rng, items, Logits(rounds, lambda offers: logits[offers]))

    return stream


def redrawn(rng: Any) -> Stream:
    """Return a stream whose users change their minds halfway."""
    basis, rounds = directions(rng, 20), 3_000
    items = embeddings(rng, basis)
    before, after = (scores(rng, items, basis, 2.5) - 0.5 for _ in range(2))
    late = np.arange(rounds)[:, None] >= rounds // 2
    return drawn(rng, items, Logits(rounds, lambda offers: np.where(late, after[offers], before[offers])))


def bilinear(rng: Any) -> Stream:
    """Return a stream of users of 32 numbers, who like items by a matrix of rank 6."""
    basis, rounds = directions(rng, 20), 4_000
    items = embeddings(rng, basis)
    users = rng.standard_normal((rounds, 32))
    tastes = users @ rng.standard_normal((32, 6))
    kinds = np.column_stack([scores(rng, items, basis, 1.0) for _ in range(6)])
    whole = np.einsum("tk,nk->tn", tastes[:500], kinds).std()

    def of(offers: Any) -> Any:
        return 2.5 * np.einsum("tk,tnk->tn", tastes, kinds[offers]) / whole - 0.5

    return drawn(rng, items, Logits(rounds, of), users)


def towers(rng: Any) -> Stream:
    """Return a stream of users who have embeddings in the space of items, and like what is near."""
    basis, rounds = directions(rng, 20), 4_000
    items = embeddings(rng, basis)
    near = items[rng.integers(len(items), size=rounds)] + 0.5 * embeddings(rng, basis, rounds)
    users = near / np.linalg.norm(near, axis=1, keepdims=True)

    def of(offers: Any) -> Any:
        found = np.einsum("td,tnd->tn", users, items[offers])
        return 2.5 * (found - found.mean()) / found.std() - 0.5

    return drawn(rng, items, Logits(rounds, of), users)


def of_topics(rng: Any) -> Stream:
    """Return a stream of paragraphs of a manual, by TF-IDF and SVD; readers like some of its topics."""
    from pydoc_data.topics import topics

    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    parts = [(topic, part) for topic in topics for part in topics[topic].split("\n\n") if len(part) > 120]
    matrix = TfidfVectorizer(stop_words="english", sublinear_tf=True).fit_transform(
        [part for _, part in parts]
    )
    items = TruncatedSVD(64, random_state=1).fit_transform(matrix)
    liked = rng.random(len(topics)) < 0.2
    number = {topic: i for i, topic in enumerate(topics)}
    chances = np.array([0.4 if liked[number[topic]] else 0.05 for topic, _ in parts])
    return beside(rng, items, chances, OFFERED)


def of_shop(rng: Any) -> Stream:
    """Return a stream of the men's items of the Open Bandit Dataset, liked by what is said of them."""
    path = Path(__file__).parents[1] / "tests/data/open_bandit/random/men/item_context.csv"
    rows = np.genfromtxt(path, delimiter=",", skip_header=1, dtype=str)
    said = [np.unique(rows[:, column], return_inverse=True)[1] for column in (3, 4, 5)]
    kinds = np.concatenate([np.eye(column.max() + 1)[column] for column in said], axis=1)
    items = np.column_stack([rows[:, 2].astype(float), kinds])
    logits = items @ rng.standard_normal(items.shape[1])
    return beside(rng, items, 1.0 / (1.0 + np.exp(1.5 - logits)), 10)


def beside(rng: Any, items: Any, chances: Any, offered: int, rounds: int = 3_000) -> Stream:
    """Return a stream of items that have a chance of a click each."""
    offers = np.array([rng.choice(len(items), offered, replace=False) for _ in range(rounds)])
    return Stream(items, offers, np.zeros((rounds, 0)), chances[offers], rng.random(rounds))


STREAMS: dict[str, Callable[[Any], Stream]] = {
    "clusters, rank 20": of_items(20, -0.5, 2.5),
    "clusters, rank 50": of_items(50, -0.5, 2.5),
    "isotropic": of_items(0, -0.5, 2.5),
    "redrawn halfway": redrawn,
    "rare clicks": of_items(20, -4.2, 1.2),
    "items differ beyond": of_items(20, -0.5, 2.0, own=0.7),
    "paragraphs of a manual": of_topics,
    "items of a shop": of_shop,
    "user by item": bilinear,
    "two towers": towers,
}


def stream(name: str, seed: int) -> Stream:
    """Return the stream of that name and seed."""
    return STREAMS[name](np.random.default_rng([seed, list(STREAMS).index(name)]))


def regret(stream: Stream, places: Any) -> float:
    """Return what the best items on offer would have got more than those shown."""
    rounds = np.arange(len(places))
    return float((stream.chances.max(axis=1) - stream.chances[rounds, places]).sum())
