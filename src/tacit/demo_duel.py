"""The main job for rankers: the service, searchers who see two rankers' lists made one, and who wins."""

from __future__ import annotations

from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import click
import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.demo import Row, Scenario, begin, each_sent, end, post, report, running_service, verdict
from tacit.errors import MissingExtra
from tacit.policies import policy_from_spec
from tacit.policies.auto import auto
from tacit.simulation import ENVIRONMENT_STREAM, run_stream

RANKERS = {"old": 0.5, "new": 0.4, "neural": 0.25}
"""How much each errs about the relevance of a document: the standard deviation of its noise."""
QUERIES, DOCUMENTS, LENGTH = 40, 30, 10


@dataclass(frozen=True)
class DrawnSearches:
    """Searches drawn ahead, so that every way to rank meets the same ones.

    Attributes
    ----------
    relevance : array of float64, shape (queries, documents)
        With what probability a document that is looked at is clicked.
    rankings : array of int64, shape (queries, rankers, LENGTH)
        What each ranker answers.
    queries : array of int64, shape (searches,)
    draws : array of float64, shape (searches, LENGTH, 2)
        The chances behind a look at a position, and behind a click there.
    """

    relevance: Floats
    rankings: Ints
    queries: Ints
    draws: Floats

    @classmethod
    def drawn(cls, searches: int, seed: int) -> DrawnSearches:
        """Draw searches from a seed."""
        rng = run_stream(seed, 0, ENVIRONMENT_STREAM)
        relevance = rng.beta(0.6, 2.4, (QUERIES, DOCUMENTS))
        errs = np.array(list(RANKERS.values()))[None, :, None]
        noise = errs * rng.standard_normal((QUERIES, len(RANKERS), DOCUMENTS))
        rankings = np.argsort(-(relevance[:, None] + noise), axis=2)[:, :, :LENGTH]
        queries = rng.integers(QUERIES, size=searches)
        return cls(relevance, rankings, queries, rng.random((searches, LENGTH, 2)))

    def clicked(self, i: int, shown: Ints) -> Ints:
        """Return the positions of a list at which a searcher clicks; the k-th is seen 1/√k of the time."""
        looks = self.draws[i, : len(shown), 0] < 1.0 / np.sqrt(np.arange(1, len(shown) + 1))
        likes = self.draws[i, : len(shown), 1] < self.relevance[self.queries[i], shown]
        return np.flatnonzero(looks & likes)

    def clicks_of(self, ranker: int) -> float:
        """Return the clicks for a thousand searches that show one ranker's list alone."""
        lists = self.rankings[self.queries, ranker]
        return 1000 * float(np.mean([len(self.clicked(i, shown)) for i, shown in enumerate(lists)]))


@dataclass(frozen=True)
class Shown:
    """Of each search: the two rankers that dueled, and how many clicks their list got."""

    pairs: Ints
    clicks: Ints


def play(
    policy: str | None, searches: int, folder: Path, port: int, seed: int, *, keep: bool, as_json: bool
) -> None:
    """Run the demonstration of rankers and print what came of it."""
    names = tuple(RANKERS)
    made = auto(arms=names, shows="duel") if policy is None else policy_from_spec(policy, names)
    title = f"{len(names)} rankers, {QUERIES} queries, two lists made one for each search"
    scene = Scenario(title, None, (), names, made, searches, seed, rankers=True)
    drawn = DrawnSearches.drawn(searches, seed)
    with running_service(scene, folder, port) as address:
        begin(scene, address, as_json)
        shown, seconds = send(drawn, searches, address)
        said = verdict(address, "verdict")
        figure = draw(title, shown, folder / "demo.png")
        got = {f"tacit: {made.label}": 1000 * float(shown.clicks.mean())}
        got |= {f"{name} alone": drawn.clicks_of(ranker) for ranker, name in enumerate(names)}
        rows: list[Row] = [{"shown by": name, "clicks_per_1000": clicks} for name, clicks in got.items()]
        table = [("shown by", "clicks/1000 searches"), *((n, f"{clicks:,.0f}") for n, clicks in got.items())]
        report("searches", (searches, seconds), rows, [table], figure, address, as_json, verdict=said)
        if not as_json:
            click.echo(f"\nverdict {said}")
        end(address, "?verdict=1", keep=keep, as_json=as_json)


def send(drawn: DrawnSearches, searches: int, address: str) -> tuple[Shown, float]:
    """Let the searchers search; return what they were shown and the seconds it took."""
    places = {name: place for place, name in enumerate(RANKERS)}
    shown = Shown(np.empty((searches, 2), np.int64), np.empty(searches, np.int64))

    def search(connection: HTTPConnection, i: int) -> None:
        lists = drawn.rankings[drawn.queries[i]].tolist()
        rankings = {name: list(map(str, items)) for name, items in zip(RANKERS, lists, strict=True)}
        answer = post(connection, "duel", {"rankings": rankings})
        clicked = drawn.clicked(i, np.array(answer["items"], np.int64)).tolist()
        post(connection, "clicks", {"decision_id": answer["decision_id"], "clicks": clicked})
        shown.pairs[i] = places[answer["left"]], places[answer["right"]]
        shown.clicks[i] = len(clicked)

    return shown, each_sent(address, searches, "searchers", search)


def draw(title: str, shown: Shown, path: Path) -> Path | None:
    """Draw how often each ranker was compared; None where matplotlib is not installed."""
    from tacit.plots import figure, save

    try:
        drawing, axis = figure(7.0, 3.5)
    except MissingExtra:
        return None
    width = max(len(shown.pairs) // 20, 1)
    ends = np.arange(width, len(shown.pairs) + 1, width)
    for ranker, name in enumerate(RANKERS):
        takes_part = (shown.pairs[: ends[-1]] == ranker).any(axis=1)
        axis.plot(ends - width / 2, takes_part.reshape(-1, width).mean(axis=1), label=name)
    axis.set_ylim(0, 1.02)
    axis.set_ylabel("share of searches that it takes part in")
    axis.set_xlabel("searches")
    axis.set_title(title, size=10)
    axis.legend(frameon=False, fontsize=8)
    return save(drawing, path)
