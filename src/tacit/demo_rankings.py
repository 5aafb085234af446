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
from tacit.demo import (
    DemoResult,
    Row,
    Scenario,
    Table,
    await_verdict,
    post_batch,
    print_header,
    print_report,
    running_service,
    send_concurrently,
)
from tacit.errors import MissingExtra
from tacit.policies import policy_from_spec
from tacit.policies.auto import auto
from tacit.simulation import ENVIRONMENT_STREAM, run_stream


def send_clicks(connection: HTTPConnection, answers: list[Row], clicks: Iterable[list[int]]) -> None:
    """Send the clicked positions of each list, in the order of the answers that gave the lists."""
    pairs = zip(answers, clicks, strict=True)
    feedback = ({"decision_id": answer["decision_id"], "clicks": clicked} for answer, clicked in pairs)
    post_batch(connection, "clicks", "feedback", feedback)


# ---- Lists: users who do not examine every position

ARTICLES = tuple(f"article {i}" for i in range(1, 21))
POSITIONS = 5
CONTINUE_PROBABILITY = 0.75
"""Probability that a user who did not click looks at the next position."""
SATISFACTION_PROBABILITY = 0.5
"""Probability that a user who clicked stops reading."""
EXPLORATION_SHARE = 0.1
"""Share of lists in random order in the baseline that ranks by click rate."""


@dataclass(frozen=True)
class SimulatedUsers:
    """Users of lists, drawn in advance so that all rankings get the same ones.

    Attributes
    ----------
    relevance : array of float64, shape (articles,)
        Probability of a click on an article that is viewed.
    draws : array of float64, shape (lists, positions, 2)
        Uniform draws that decide whether a position is clicked, and whether the user continues below it.
    """

    relevance: Floats
    draws: Floats

    @classmethod
    def draw(cls, lists: int, seed: int) -> SimulatedUsers:
        """Return users of so many lists, and the articles' relevance, drawn from a seed."""
        rng = run_stream(seed, 0, ENVIRONMENT_STREAM)
        relevance = np.sort(rng.beta(1.0, 4.0, len(ARTICLES)))
        # The initial order is that of a search engine, better than random.
        order = np.argsort(-relevance + rng.normal(0.0, 0.25, len(ARTICLES)))
        return cls(relevance[order], rng.random((lists, POSITIONS, 2)))

    def simulate_reading(self, i: int, shown_articles: Ints) -> tuple[Booleans, Booleans]:
        """Return two masks of the positions of a list: positions that user ``i`` views, and clicked ones."""
        looks, clicks = np.zeros((2, POSITIONS), np.bool_)
        for position, article in enumerate(shown_articles.tolist()):
            looks[position] = True
            clicks[position] = self.draws[i, position, 0] < self.relevance[article]
            if self.draws[i, position, 1] >= (
                1.0 - SATISFACTION_PROBABILITY if clicks[position] else CONTINUE_PROBABILITY
            ):
                break
        return looks, clicks

    def outcome(self, shown_articles: Ints) -> ListTotals:
        """Return views, clicks and relevance of the lists ``shown_articles``: article indices, shape (lists,
        positions).
        """
        pairs = [self.simulate_reading(i, articles) for i, articles in enumerate(shown_articles)]
        looks, clicks = (np.array(column) for column in zip(*pairs, strict=True))
        return ListTotals(looks, clicks, self.relevance[shown_articles])

    def rank_by_click_rate(self, seed: int) -> Ints:
        """Return the lists of a baseline that ranks by clicks per impression, as article indices (lists,
        positions).

        It ignores that positions may not be viewed, learns after each list, and shows a tenth of the lists in
        random order.
        """
        rng = np.random.default_rng(seed)
        clicks, times = np.zeros(len(ARTICLES)), np.zeros(len(ARTICLES))
        lists = np.empty(self.draws.shape[:2], np.int64)
        for i in range(len(lists)):
            order = np.argsort(-(clicks + 0.2) / (times + 1.0), kind="stable")
            lists[i] = (rng.permutation(order) if rng.random() < EXPLORATION_SHARE else order)[:POSITIONS]
            times[lists[i]] += 1
            clicks[lists[i]] += self.simulate_reading(i, lists[i])[1]
        return lists


@dataclass(frozen=True)
class ListTotals:
    """Views, clicks and relevance per list and position."""

    views: Booleans
    clicks: Booleans
    relevance: Floats

    @property
    def clicks_per_1000(self) -> float:
        """Clicks per thousand lists in the second half of the run."""
        return float(1000 * self.clicks[len(self.clicks) // 2 :].sum(axis=1).mean())

    def position_means(self) -> list[dict[str, float]]:
        """Return the mean views (``looks``), clicks and relevance of each position, in the second half."""
        half = len(self.views) // 2
        parts = {"looks": self.views, "clicks": self.clicks, "relevance": self.relevance}
        means = {name: values[half:].mean(axis=0) for name, values in parts.items()}
        return [{name: float(mean[k]) for name, mean in means.items()} for k in range(POSITIONS)]


def play_lists(
    policy: str | None, lists: int, folder: Path, port: int, seed: int, holdout: float | None,
    *, keep: bool, as_json: bool,
) -> None:  # fmt: skip
    """Run the demonstration of lists: start the service, send the users, draw a figure, print results.

    Files are written to ``folder``. With ``keep``, it waits at the end until it is interrupted.
    """
    chosen_policy = auto(arms=ARTICLES, shows="slate", positions=POSITIONS)
    if policy is not None:
        chosen_policy = policy_from_spec(policy, ARTICLES, setting={"positions": POSITIONS})
    title = f"{len(ARTICLES)} articles, lists of {POSITIONS}, readers who do not see everything"
    scene = Scenario(title, None, ("home",), ARTICLES, chosen_policy, lists, seed, holdout, POSITIONS)
    users = SimulatedUsers.draw(lists, seed)
    with running_service(scene, folder, port) as address:
        print_header(scene, address, as_json)
        shown_articles, seconds = send_lists(users, lists, address)
        outcomes = compare_lists(scene, users, shown_articles)
        figure = draw_lists(scene.title, outcomes, folder / "demo.png")
        rows: list[Row] = [
            {
                "shown by": name,
                "clicks_per_1000": totals.clicks_per_1000,
                "positions": totals.position_means(),
            }
            for name, totals in outcomes.items()
        ]
        table = [("shown by, in the last half", "clicks/1000 lists")]
        table += [(row["shown by"], f"{row['clicks_per_1000']:,.0f}") for row in rows]
        position_table: list[tuple[str, ...]] = [
            ("tacit's lists, position", "looked at", "clicked", "relevance")
        ]
        for k, totals in enumerate(rows[0]["positions"], 1):
            counts = ("looks", "clicks", "relevance")
            position_table.append((str(k), *(f"{totals[name]:.1%}" for name in counts)))
        notes = {"lift": await_verdict(address)} if holdout else {}
        result = DemoResult("lists", lists, seconds, rows, [table, position_table], figure, notes)
        print_report(result, address, folder, keep=keep, as_json=as_json)


def compare_lists(scene: Scenario, users: SimulatedUsers, shown_articles: Ints) -> dict[str, ListTotals]:
    """Return by label the totals of the shown lists, of two baselines and of the best order."""
    best, size = np.argsort(-users.relevance)[:POSITIONS], (len(shown_articles), 1)
    return {
        scene.control_label: users.outcome(shown_articles),
        "the order offered": users.outcome(np.tile(np.arange(POSITIONS), size)),
        "clicks for each time shown": users.outcome(users.rank_by_click_rate(scene.seed)),
        "best order": users.outcome(np.tile(best, size)),
    }


def send_lists(users: SimulatedUsers, lists: int, address: str) -> tuple[Ints, float]:
    """Request all lists, and send the users' clicks; return the shown articles, and the duration in seconds.

    The articles are indices, of shape (lists, positions).
    """
    index_by_article = {arm: article_index for article_index, arm in enumerate(ARTICLES)}
    shown_articles = np.empty((lists, POSITIONS), np.int64)

    def send_batch(connection: HTTPConnection, indices: range) -> None:
        """Request a batch of lists, store the articles shown, and send the simulated clicks."""
        answers = post_batch(connection, "slate", "decisions", [{"key": "home"}] * len(indices))
        shown_articles[indices] = [[index_by_article[arm] for arm in answer["slate"]] for answer in answers]
        clicks = (np.flatnonzero(users.simulate_reading(i, shown_articles[i])[1]).tolist() for i in indices)
        send_clicks(connection, answers, clicks)

    return shown_articles, send_concurrently(address, lists, "readers", send_batch)


def draw_lists(title: str, outcomes: dict[str, ListTotals], path: Path) -> Path | None:
    """Draw views, clicks and relevance by position, write the figure to ``path``, and return ``path``.

    Without matplotlib, nothing is written, and None is returned.
    """
    from tacit.plots import figure, save

    try:
        drawing, axes = figure(6.5, 8.0, rows=3, sharex=True)
    except MissingExtra:
        return None
    axis_titles = {"looks": "looks", "clicks": "clicks", "relevance": "relevance: clicks for each look"}
    positions = np.arange(1, POSITIONS + 1)
    for axis, (name, axis_title) in zip(axes, axis_titles.items(), strict=True):
        for label, totals in outcomes.items():
            style: dict[str, Any] = {"color": "black", "ls": ":"} if label == "best order" else {}
            values = [position[name] for position in totals.position_means()]
            axis.plot(positions, values, marker="o", ms=3, label=label, **style)
        axis.set_title(axis_title, size=9)
        axis.set_xticks(positions)
        axis.set_ylim(bottom=0)
    axes[2].set_xlabel("position")
    axes[0].legend(frameon=False, fontsize=7)
    drawing.suptitle(title, size=10)
    return save(drawing, path)


# ---- Duels between rankers: searchers see interleaved lists of two rankers

RANKERS = {"old": 0.5, "new": 0.4, "neural": 0.15}
"""Standard deviation of each ranker's error about the relevance of a document."""
QUERIES, DOCUMENTS, LIST_LENGTH = 40, 30, 10


@dataclass(frozen=True)
class SimulatedSearches:
    """Searches, drawn in advance so that all rankers get the same ones.

    Attributes
    ----------
    relevance : array of float64, shape (queries, documents)
        Probability of a click on a document that is viewed.
    rankings : array of int64, shape (queries, rankers, LENGTH)
        Indices of each ranker's documents, best first.
    queries : array of int64, shape (searches,)
        Index of each search's query.
    draws : array of float64, shape (searches, LENGTH, 2)
        Uniform draws that decide whether a position is viewed, and clicked.
    """

    relevance: Floats
    rankings: Ints
    queries: Ints
    draws: Floats

    @classmethod
    def draw(cls, searches: int, seed: int) -> SimulatedSearches:
        """Return so many searches, the documents' relevance and the rankings, drawn from a seed."""
        rng = run_stream(seed, 0, ENVIRONMENT_STREAM)
        relevance = rng.beta(0.6, 2.4, (QUERIES, DOCUMENTS))
        noise_scale = np.array(list(RANKERS.values()))[None, :, None]
        noise = noise_scale * rng.standard_normal((QUERIES, len(RANKERS), DOCUMENTS))
        rankings = np.argsort(-(relevance[:, None] + noise), axis=2)[:, :, :LIST_LENGTH]
        queries = rng.integers(QUERIES, size=searches)
        return cls(relevance, rankings, queries, rng.random((searches, LIST_LENGTH, 2)))

    def find_clicks(self, i: int, documents: Ints) -> Ints:
        """Return the clicked positions, from 0, of a list of documents in search ``i``.

        Position k, from 1, is viewed with probability 1/√k.
        """
        is_viewed = self.draws[i, : len(documents), 0] < 1.0 / np.sqrt(np.arange(1, len(documents) + 1))
        is_relevant = self.draws[i, : len(documents), 1] < self.relevance[self.queries[i], documents]
        return np.flatnonzero(is_viewed & is_relevant)

    def clicks_per_1000(self, ranker: int) -> float:
        """Return the mean clicks per thousand searches if only the lists of the ranker with this index were
        shown.
        """
        lists = self.rankings[self.queries, ranker]
        return 1000 * float(np.mean([len(self.find_clicks(i, items)) for i, items in enumerate(lists)]))


@dataclass(frozen=True)
class DuelTotals:
    """Indices of the two rankers that were compared in each search, and its number of clicks."""

    pairs: Ints
    clicks: Ints


def play_duels(
    policy: str | None, searches: int, folder: Path, port: int, seed: int, *, keep: bool, as_json: bool
) -> None:
    """Run the demonstration of duels: start the service, send searches, draw a figure, print results.

    Files are written to ``folder``. With ``keep``, it waits at the end until it is interrupted.
    """
    names = tuple(RANKERS)
    chosen_policy = auto(arms=names, shows="duel") if policy is None else policy_from_spec(policy, names)
    title = f"{len(names)} rankers, {QUERIES} queries, two lists made one for each search"
    scene = Scenario(title, None, (), names, chosen_policy, searches, seed, rankers=True)
    simulated = SimulatedSearches.draw(searches, seed)
    with running_service(scene, folder, port) as address:
        print_header(scene, address, as_json)
        totals, seconds = send_duels(simulated, searches, address)
        notes = {"verdict": await_verdict(address, "verdict")}
        figure = draw_duels(title, totals, folder / "demo.png")
        click_rates = {f"tacit: {chosen_policy.label}": 1000 * float(totals.clicks.mean())}
        click_rates |= {
            f"{name} alone": simulated.clicks_per_1000(ranker) for ranker, name in enumerate(names)
        }
        rows: list[Row] = [
            {"shown by": name, "clicks_per_1000": clicks} for name, clicks in click_rates.items()
        ]
        table: Table = [
            ("shown by", "clicks/1000 searches"),
            *((n, f"{clicks:,.0f}") for n, clicks in click_rates.items()),
        ]
        result = DemoResult("searches", searches, seconds, rows, [table], figure, notes)
        print_report(result, address, folder, "?verdict=1", keep=keep, as_json=as_json)


def send_duels(simulated: SimulatedSearches, searches: int, address: str) -> tuple[DuelTotals, float]:
    """Request an interleaved list for each search, and send its clicks; return the totals, and the duration
    in seconds.
    """
    index_by_ranker = {name: ranker_index for ranker_index, name in enumerate(RANKERS)}
    totals = DuelTotals(np.empty((searches, 2), np.int64), np.empty(searches, np.int64))

    def make_request(i: int) -> Row:
        """Return the JSON data of search ``i``: the ranking of its query by each ranker."""
        lists = simulated.rankings[simulated.queries[i]].tolist()
        return {"rankings": {n: list(map(str, items)) for n, items in zip(RANKERS, lists, strict=True)}}

    def send_batch(connection: HTTPConnection, indices: range) -> None:
        """Request the duels of a batch of searches, send the clicks, and store pairs and click counts."""
        answers = post_batch(connection, "duel", "decisions", map(make_request, indices))
        lists = [np.array(answer["items"], np.int64) for answer in answers]
        clicks = [simulated.find_clicks(i, items).tolist() for i, items in zip(indices, lists, strict=True)]
        send_clicks(connection, answers, clicks)
        totals.pairs[indices] = [
            (index_by_ranker[answer["left"]], index_by_ranker[answer["right"]]) for answer in answers
        ]
        totals.clicks[indices] = [len(clicked) for clicked in clicks]

    return totals, send_concurrently(address, searches, "searchers", send_batch)


def draw_duels(title: str, totals: DuelTotals, path: Path) -> Path | None:
    """Draw each ranker's share of comparisons over time, write the figure to ``path``, and return ``path``.

    Without matplotlib, nothing is written, and None is returned.
    """
    from tacit.plots import figure, save

    try:
        drawing, axis = figure(7.0, 3.5)
    except MissingExtra:
        return None
    width = max(len(totals.pairs) // 20, 1)
    ends = np.arange(width, len(totals.pairs) + 1, width)
    for ranker, name in enumerate(RANKERS):
        is_compared = (totals.pairs[: ends[-1]] == ranker).any(axis=1)
        axis.plot(ends - width / 2, is_compared.reshape(-1, width).mean(axis=1), label=name)
    axis.set_ylim(0, 1.02)
    axis.set_ylabel("share of searches that it takes part in")
    axis.set_xlabel("searches")
    axis.set_title(title, size=10)
    axis.legend(frameon=False, fontsize=8)
    return save(drawing, path)
