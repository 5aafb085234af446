"""Demonstrations for lists and for duels between rankers, as demo.py has for single arms."""

# Lists first, then duels. Both simulate users in advance, so that all rankings get the same ones, send
# them to the service, and compare the results with baselines.

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.demo import Played, Row, Scenario, Table, begin, each_sent, post, report, running_service, said
from tacit.errors import MissingExtra
from tacit.policies import policy_from_spec
from tacit.policies.auto import auto
from tacit.simulation import ENVIRONMENT_STREAM, run_stream


def send_clicks(connection: HTTPConnection, answers: list[Row], clicks: Iterable[list[int]]) -> None:
    """Send the clicks of each list."""
    pairs = zip(answers, clicks, strict=True)
    given = ({"decision_id": answer["decision_id"], "clicks": clicked} for answer, clicked in pairs)
    post(connection, "clicks", "feedback", given)


# ---- Lists: users who do not examine every position

ARTICLES = tuple(f"article {i}" for i in range(1, 21))
POSITIONS = 5
GOES_ON = 0.75
"""Probability that a user who did not click looks at the next position."""
CONTENT = 0.5
"""Probability that a user who clicked stops reading."""
AT_RANDOM = 0.1
"""Share of lists in random order in the baseline that ranks by click rate."""


@dataclass(frozen=True)
class DrawnUsers:
    """Users of lists, drawn in advance so that all rankings get the same ones.

    Attributes
    ----------
    relevance : array of float64, shape (articles,)
        With what probability an article that is looked at is clicked.
    draws : array of float64, shape (lists, positions, 2)
        The chances behind a click at a position, and behind going on below it.
    """

    relevance: Floats
    draws: Floats

    @classmethod
    def drawn(cls, lists: int, seed: int) -> DrawnUsers:
        """Draw users from a seed."""
        rng = run_stream(seed, 0, ENVIRONMENT_STREAM)
        relevance = np.sort(rng.beta(1.0, 4.0, len(ARTICLES)))
        # The initial order is that of a search engine, better than random.
        order = np.argsort(-relevance + rng.normal(0.0, 0.25, len(ARTICLES)))
        return cls(relevance[order], rng.random((lists, POSITIONS, 2)))

    def read(self, i: int, shown: Ints) -> tuple[Booleans, Booleans]:
        """Return masks of the positions that user ``i`` views and clicks in a list."""
        looks, clicks = np.zeros((2, POSITIONS), np.bool_)
        for k, article in enumerate(shown.tolist()):
            looks[k] = True
            clicks[k] = self.draws[i, k, 0] < self.relevance[article]
            if self.draws[i, k, 1] >= (1.0 - CONTENT if clicks[k] else GOES_ON):
                break
        return looks, clicks

    def outcome(self, shown: Ints) -> ListTotals:
        """Return the totals of lists of articles, of shape (lists, positions)."""
        pairs = [self.read(i, articles) for i, articles in enumerate(shown)]
        looks, clicks = (np.array(each) for each in zip(*pairs, strict=True))
        return ListTotals(looks, clicks, self.relevance[shown])

    def by_rate(self, seed: int) -> Ints:
        """Return the lists of a baseline that ranks by clicks per impression, ignoring examination."""
        rng = np.random.default_rng(seed)
        clicks, times = np.zeros(len(ARTICLES)), np.zeros(len(ARTICLES))
        lists = np.empty(self.draws.shape[:2], np.int64)
        for i in range(len(lists)):
            order = np.argsort(-(clicks + 0.2) / (times + 1.0), kind="stable")
            lists[i] = (rng.permutation(order) if rng.random() < AT_RANDOM else order)[:POSITIONS]
            times[lists[i]] += 1
            clicks[lists[i]] += self.read(i, lists[i])[1]
        return lists


@dataclass(frozen=True)
class ListTotals:
    """Views, clicks and relevance per list and position."""

    looks: Booleans
    clicks: Booleans
    relevance: Floats

    @property
    def clicks_per_1000(self) -> float:
        """Clicks per thousand lists, in the second half of the run."""
        return float(1000 * self.clicks[len(self.clicks) // 2 :].sum(axis=1).mean())

    def by_position(self) -> list[dict[str, float]]:
        """Return mean views, clicks and relevance of each position, in the second half of the run."""
        half = len(self.looks) // 2
        parts = {"looks": self.looks, "clicks": self.clicks, "relevance": self.relevance}
        means = {name: each[half:].mean(axis=0) for name, each in parts.items()}
        return [{name: float(mean[k]) for name, mean in means.items()} for k in range(POSITIONS)]


def play_lists(
    policy: str | None, lists: int, folder: Path, port: int, seed: int, holdout: float | None,
    *, keep: bool, as_json: bool,
) -> None:  # fmt: skip
    """Run the demonstration of lists and print its results."""
    made = auto(arms=ARTICLES, shows="slate", positions=POSITIONS)
    if policy is not None:
        made = policy_from_spec(policy, ARTICLES, setting={"positions": POSITIONS})
    title = f"{len(ARTICLES)} articles, lists of {POSITIONS}, readers who do not see everything"
    scene = Scenario(title, None, ("home",), ARTICLES, made, lists, seed, holdout, POSITIONS)
    users = DrawnUsers.drawn(lists, seed)
    with running_service(scene, folder, port) as address:
        begin(scene, address, as_json)
        shown, seconds = send_lists(users, lists, address)
        outcomes = compared_lists(scene, users, shown)
        figure = draw_lists(scene.title, outcomes, folder / "demo.png")
        rows: list[Row] = [
            {"shown by": name, "clicks_per_1000": each.clicks_per_1000, "positions": each.by_position()}
            for name, each in outcomes.items()
        ]
        table = [("shown by, in the last half", "clicks/1000 lists")]
        table += [(row["shown by"], f"{row['clicks_per_1000']:,.0f}") for row in rows]
        places: list[tuple[str, ...]] = [("tacit's lists, position", "looked at", "clicked", "relevance")]
        for k, each in enumerate(rows[0]["positions"], 1):
            places.append((str(k), *(f"{each[name]:.1%}" for name in ("looks", "clicks", "relevance"))))
        words = {"lift": said(address)} if holdout else {}
        found = Played("lists", lists, seconds, rows, [table, places], figure, words)
        report(found, address, folder, keep=keep, as_json=as_json)


def compared_lists(scene: Scenario, users: DrawnUsers, shown: Ints) -> dict[str, ListTotals]:
    """Return the totals of the shown lists and of three baselines."""
    best, size = np.argsort(-users.relevance)[:POSITIONS], (len(shown), 1)
    return {
        scene.shown_by: users.outcome(shown),
        "the order offered": users.outcome(np.tile(np.arange(POSITIONS), size)),
        "clicks for each time shown": users.outcome(users.by_rate(scene.seed)),
        "best order": users.outcome(np.tile(best, size)),
    }


def send_lists(users: DrawnUsers, lists: int, address: str) -> tuple[Ints, float]:
    """Request all lists and send clicks; return the shown articles, and the duration in seconds."""
    slots = {arm: slot for slot, arm in enumerate(ARTICLES)}
    shown = np.empty((lists, POSITIONS), np.int64)

    def read(connection: HTTPConnection, some: range) -> None:
        answers = post(connection, "slate", "decisions", [{"key": "home"}] * len(some))
        shown[some] = [[slots[arm] for arm in answer["slate"]] for answer in answers]
        clicks = (np.flatnonzero(users.read(i, shown[i])[1]).tolist() for i in some)
        send_clicks(connection, answers, clicks)

    return shown, each_sent(address, lists, "readers", read)


def draw_lists(title: str, outcomes: dict[str, ListTotals], path: Path) -> Path | None:
    """Draw views, clicks and relevance by position; return the file, or None without matplotlib."""
    from tacit.plots import figure, save

    try:
        drawing, axes = figure(6.5, 8.0, rows=3, sharex=True)
    except MissingExtra:
        return None
    heads = {"looks": "looks", "clicks": "clicks", "relevance": "relevance: clicks for each look"}
    places = np.arange(1, POSITIONS + 1)
    for axis, (name, head) in zip(axes, heads.items(), strict=True):
        for label, each in outcomes.items():
            style: dict[str, Any] = {"color": "black", "ls": ":"} if label == "best order" else {}
            values = [position[name] for position in each.by_position()]
            axis.plot(places, values, marker="o", ms=3, label=label, **style)
        axis.set_title(head, size=9)
        axis.set_xticks(places)
        axis.set_ylim(bottom=0)
    axes[2].set_xlabel("position")
    axes[0].legend(frameon=False, fontsize=7)
    drawing.suptitle(title, size=10)
    return save(drawing, path)


# ---- Duels between rankers: searchers see interleaved lists of two rankers

RANKERS = {"old": 0.5, "new": 0.4, "neural": 0.15}
"""Standard deviation of each ranker's error about the relevance of a document."""
QUERIES, DOCUMENTS, LENGTH = 40, 30, 10


@dataclass(frozen=True)
class DrawnSearches:
    """Searches, drawn in advance so that all rankers get the same ones.

    Attributes
    ----------
    relevance : array of float64, shape (queries, documents)
        With what probability a document that is looked at is clicked.
    rankings : array of int64, shape (queries, rankers, LENGTH)
        Ranking of each ranker.
    queries : array of int64, shape (searches,)
    draws : array of float64, shape (searches, LENGTH, 2)
        Uniform draws that decide whether a position is viewed, and clicked.
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
        """Return the clicked positions of a list; position k, from 1, is viewed with probability 1/√k."""
        looks = self.draws[i, : len(shown), 0] < 1.0 / np.sqrt(np.arange(1, len(shown) + 1))
        likes = self.draws[i, : len(shown), 1] < self.relevance[self.queries[i], shown]
        return np.flatnonzero(looks & likes)

    def clicks_of(self, ranker: int) -> float:
        """Return the clicks per thousand searches if one ranker's lists are shown alone."""
        lists = self.rankings[self.queries, ranker]
        return 1000 * float(np.mean([len(self.clicked(i, shown)) for i, shown in enumerate(lists)]))


@dataclass(frozen=True)
class Shown:
    """Per search, the two rankers that were compared, and the number of clicks."""

    pairs: Ints
    clicks: Ints


def play_duels(
    policy: str | None, searches: int, folder: Path, port: int, seed: int, *, keep: bool, as_json: bool
) -> None:
    """Run the demonstration of duels and print its results."""
    names = tuple(RANKERS)
    made = auto(arms=names, shows="duel") if policy is None else policy_from_spec(policy, names)
    title = f"{len(names)} rankers, {QUERIES} queries, two lists made one for each search"
    scene = Scenario(title, None, (), names, made, searches, seed, rankers=True)
    drawn = DrawnSearches.drawn(searches, seed)
    with running_service(scene, folder, port) as address:
        begin(scene, address, as_json)
        shown, seconds = send_duels(drawn, searches, address)
        words = {"verdict": said(address, "verdict")}
        figure = draw_duels(title, shown, folder / "demo.png")
        got = {f"tacit: {made.label}": 1000 * float(shown.clicks.mean())}
        got |= {f"{name} alone": drawn.clicks_of(ranker) for ranker, name in enumerate(names)}
        rows: list[Row] = [{"shown by": name, "clicks_per_1000": clicks} for name, clicks in got.items()]
        table: Table = [
            ("shown by", "clicks/1000 searches"), *((n, f"{clicks:,.0f}") for n, clicks in got.items())
        ]  # fmt: skip
        found = Played("searches", searches, seconds, rows, [table], figure, words)
        report(found, address, folder, "?verdict=1", keep=keep, as_json=as_json)


def send_duels(drawn: DrawnSearches, searches: int, address: str) -> tuple[Shown, float]:
    """Send all searches and clicks; return the totals, and the duration in seconds."""
    places = {name: place for place, name in enumerate(RANKERS)}
    shown = Shown(np.empty((searches, 2), np.int64), np.empty(searches, np.int64))

    def asked(i: int) -> Row:
        lists = drawn.rankings[drawn.queries[i]].tolist()
        return {"rankings": {n: list(map(str, items)) for n, items in zip(RANKERS, lists, strict=True)}}

    def search(connection: HTTPConnection, some: range) -> None:
        answers = post(connection, "duel", "decisions", map(asked, some))
        lists = [np.array(answer["items"], np.int64) for answer in answers]
        clicks = [drawn.clicked(i, items).tolist() for i, items in zip(some, lists, strict=True)]
        send_clicks(connection, answers, clicks)
        shown.pairs[some] = [(places[answer["left"]], places[answer["right"]]) for answer in answers]
        shown.clicks[some] = [len(clicked) for clicked in clicks]

    return shown, each_sent(address, searches, "searchers", search)


def draw_duels(title: str, shown: Shown, path: Path) -> Path | None:
    """Draw how often each ranker was compared; return the file, or None without matplotlib."""
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
