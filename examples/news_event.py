"""A news event, seen by a decision service that computes its signals itself.

Everything is simulated but the service: searches for 8 queries over four days of simulated time.
Twice each query is in the news: from one minute to the next users want another result, and
for some hours they search for it more often. Nobody tells the service. Its placement computes the
volume of a query against its own past, and the share of searches without a click, from the stream
of decisions and clicks; BWC restarts a query when these leave what it knows as normal. The same
searches go to the bandit within alone, to a change detector, and to the bandit restarted at the
very minute by an oracle.

    python examples/news_event.py            # some minutes of one core
    python examples/news_event.py --help
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tacit
from tacit.core.text import align_columns
from tacit.service.config.schema import Config, PlacementConfig, Rule, SignalConfig
from tacit.service.engine.engine import Engine
from tacit.service.log.requests import DecisionRequest, FeedbackRequest
from tacit.service.log.sqlite import SqliteStore

ARMS = ("a", "b", "c", "d", "e")
MINUTE = 60_000_000
DAY = 24 * 60
START = 1_700_000_000_000_000
BEST, OTHER = 0.5, 0.1


class Event(NamedTuple):
    """From a minute on, another arm of a query is the best, and for a while volume is up."""

    query: int
    minute: int
    best: int


@dataclass(frozen=True)
class News:
    """What users want, and how many of them search.

    Parameters
    ----------
    days, queries, events : int
        Events are per query, one in each of as many stretches of the time after the first day.
    rate : float
        Searches a minute for a query.
    burst, hours : float
        How many times as many there are at an event, and the time in which this fades to 1/e.
    seed : int
    """

    days: int = 4
    queries: int = 8
    events: int = 2
    rate: float = 1.0
    burst: float = 6.0
    hours: float = 3.0
    seed: int = 1

    def happened(self) -> list[Event]:
        """Return the events, in the order of their minutes."""
        rng = np.random.default_rng((self.seed, 0))
        stretch = (self.days - 1) * DAY // self.events
        found = []
        for query in range(self.queries):
            best = query % len(ARMS)
            for i in range(self.events):
                minute = DAY + i * stretch + int(rng.integers(stretch // 2))
                best = int((best + rng.integers(1, len(ARMS))) % len(ARMS))
                found.append(Event(query, minute, best))
        return sorted(found, key=lambda event: event.minute)

    def searches(self) -> tuple[Any, Any, Any]:
        """Return how many searches each query has in each minute, and its best arm then."""
        rng = np.random.default_rng((self.seed, 1))
        minutes = np.arange(self.days * DAY)
        rate = np.full((self.queries, len(minutes)), self.rate)
        best = np.repeat(np.arange(self.queries)[:, None] % len(ARMS), len(minutes), axis=1)
        for query, minute, arm in self.happened():
            since = minutes[minute:] - minute
            rate[query, minute:] += self.rate * (self.burst - 1.0) * np.exp(-since / (60.0 * self.hours))
            best[query, minute:] = arm
        return rng.poisson(rate), best, rng


class Clock:
    """Simulated time."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        """Return the time in microseconds."""
        return self.now


class Outcome(NamedTuple):
    """What became of a placement: regret, and the restarts by query and minute."""

    searches: int
    regret: float
    restarts: list[tuple[int, int]]


async def served(news: News, placement: PlacementConfig, folder: Path) -> Outcome:
    """Send all searches, minute by minute, to a service; return what it did."""
    clock = Clock()
    engine = Engine(Config({"news": placement}), SqliteStore(folder / "s.db"), clock)
    await engine.start()
    known = engine.placements["news"]
    counts, best, _ = news.searches()
    shifted = {(event.query, event.minute) for event in news.happened()}
    luck = np.random.default_rng((news.seed, 2))
    oracle = placement.signals is None and known.config.policy.context_dim == 1
    regret, restarts, epochs = 0.0, [], dict.fromkeys(range(news.queries), 0)
    for minute in range(news.days * DAY):
        clock.now = START + minute * MINUTE
        asked, queries = [], []
        for query in range(news.queries):
            for i in range(counts[query, minute]):
                context = [float(i == 0 and (query, minute) in shifted)] if oracle else None
                asked.append(known.reader.read(DecisionRequest(f"query {query}", context=context)))
                queries.append(query)
        if not asked:
            continue
        rows = await engine.decide_many("news", asked)
        clicks = []
        for row, query, chance in zip(rows, queries, luck.random(len(rows)), strict=True):
            wanted = row.arm == ARMS[best[query, minute]]
            regret += 0.0 if wanted else BEST - OTHER
            if chance < (BEST if wanted else OTHER):
                clicks.append(FeedbackRequest(row.id, reward=1.0))
            if row.epoch != epochs[query]:
                epochs[query] = row.epoch
                restarts.append((query, minute))
        clock.now += MINUTE // 6
        await engine.record_many("news", clicks)
    await engine.stop()
    return Outcome(int(counts.sum()), regret, restarts)


def delays(news: News, restarts: list[tuple[int, int]]) -> tuple[list[int], int]:
    """Return how late each event was seen, in minutes, and how many restarts were for none.

    An event is seen by the first restart of its query within the 12 hours after it.
    """
    left = sorted(restarts, key=lambda one: one[1])
    late = []
    for query, minute, _ in news.happened():
        seen = [r for r in left if r[0] == query and 0 <= r[1] - minute <= 12 * 60]
        if seen:
            late.append(seen[0][1] - minute)
            left.remove(seen[0])
    return late, len(left)


def placements(news: News, arguments: argparse.Namespace) -> dict[str, PlacementConfig]:
    """Return the placements that are compared."""
    base = tacit.Thompson(ARMS)
    signals = SignalConfig(tuple(arguments.signals), arguments.fast, arguments.slow)
    dim = len(signals.names)
    classifier = tacit.classifiers.Rectangle(dim=dim, margin=arguments.margin)
    if arguments.classifier == "hyperplane":
        classifier = tacit.classifiers.Hyperplane(dim=dim, margin=arguments.margin)
    bwc = tacit.BWC(classifier=classifier, policy=base, test_rounds=arguments.rounds, min_shift=0.3)
    probation = tacit.policies.ProbationBandit(ARMS, classifier=classifier)
    rule = Rule(window=30_000_000)
    told = {"seed": 7, "rule": rule, "propensities": False}
    return {
        "BWC, signals of the service": PlacementConfig(bwc, signals=signals, **told),
        "ProbationBandit, the same": PlacementConfig(probation, signals=signals, **told),
        "Thompson alone": PlacementConfig(base, **told),
        "GLRKLUCB": PlacementConfig(tacit.policies.baselines.GLRKLUCB(ARMS), **told),
        "oracle": PlacementConfig(tacit.policies.OracleRestart(base, signal=0), **told),
    }


def main() -> None:
    """Play and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=int, default=4)
    parser.add_argument("--queries", type=int, default=8)
    parser.add_argument("--events", type=int, default=2, help="of each query")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--signals", nargs="+", default=["volume", "abandonment"])
    parser.add_argument("--classifier", choices=("rectangle", "hyperplane"), default="rectangle")
    parser.add_argument("--fast", type=float, default=1800.0, help="seconds")
    parser.add_argument("--slow", type=float, default=86_400.0, help="seconds")
    parser.add_argument("--margin", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=150, help="of a test")
    parser.add_argument("--only", nargs="*", default=None)
    arguments = parser.parse_args()
    news = News(arguments.days, arguments.queries, arguments.events, seed=arguments.seed)
    rows = [("placement", "regret", "events seen", "median delay", "restarts for none")]
    for name, placement in placements(news, arguments).items():
        if arguments.only and name not in arguments.only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            outcome = asyncio.run(served(news, placement, Path(folder)))
        late, false = delays(news, outcome.restarts)
        happened = len(news.happened())
        median = f"{np.median(late):.0f} min" if late else ""
        seen = f"{len(late)} of {happened}"
        rows.append((name, f"{outcome.regret:.0f}", seen, median, str(false)))
    print(f"{outcome.searches:,} searches")
    print(align_columns(rows))


if __name__ == "__main__":
    main()
