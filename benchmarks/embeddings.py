"""Items known by embeddings: EmbeddingMixture, untuned, beside what is tuned in hindsight.

python benchmarks/embeddings.py [STREAM ...] [--seeds N] [--first SEED] [--tuning N] [--keep]  regret, on all
python benchmarks/embeddings.py --times             processor time and memory
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Collection

os.environ.setdefault("OMP_NUM_THREADS", "1")

from typing import Any

import embedding_rivals
import numpy as np
from embedding_streams import STREAMS, Stream, regret, stream
from items_kept import keep, over, spread

import tacit
from tacit.core.dispatch import choose, learn, propensity
from tacit.core.run_mode import compile_loop
from tacit.policies.base import NO_FEATURES, Impression, Outcome

TUNING = 85_001
"""The first seed for tuning."""


def play(
    params: Any, state: Any, arms: Any, stream: Stream, rng: Any, places: Any, chances: Any, none: Any
) -> None:
    """Choose, tell the propensity, and learn, for each offer of a stream."""
    for t in range(len(stream.coins)):
        impression = Impression(arms, stream.users[t], stream.items[stream.offers[t]], none)
        place = choose(params, state, 0, impression, rng)
        chances[t] = propensity(params, state, 0, impression, place)
        reward = 1.0 if stream.coins[t] < stream.chances[t, place] else 0.0
        learn(params, state, 0, Outcome(impression, place, reward, chances[t]))
        places[t] = place


def played(stream: Stream, state: Any, policy: Any, seed: int) -> Any:
    """Return the places that a policy shows, going on from a state."""
    places, chances = np.zeros(len(stream.coins), np.int64), np.zeros(len(stream.coins))
    rng, arms = np.random.default_rng([seed, 1]), np.arange(stream.offers.shape[1])
    compile_loop(play, policy.params)(policy.params, state, arms, stream, rng, places, chances, NO_FEATURES)
    return places


def policy_for(stream: Stream) -> tacit.EmbeddingMixture:
    """Return the policy that plays a stream."""
    return tacit.EmbeddingMixture(stream.items.shape[1], stream.users.shape[1])


Regrets = dict[str, list[float]]


def rivals(name: str, seeds: range, only: Collection[str] = ()) -> Regrets:
    """Return the regrets of all candidates, or of those that are named."""
    found: Regrets = {}
    for seed in seeds:
        here = stream(name, seed)
        for family in embedding_rivals.FAMILIES:
            for label, shown in embedding_rivals.played(here, family, seed, only):
                found.setdefault(label, []).append(regret(here, shown))
    return found


def compare(name: str, seeds: range, tuning: range) -> dict[str, Any]:
    """Print the mean regret on a stream, the default's and each family's best; return it beside the best.

    With seeds for tuning only the candidate is played that is the best on those.
    """
    found: Regrets = {"EmbeddingMixture": [], "uniform": []}
    for seed in seeds:
        here = stream(name, seed)
        policy = policy_for(here)
        found["EmbeddingMixture"].append(regret(here, played(here, policy.init(1), policy, seed)))
        places = np.random.default_rng([seed, 2]).integers(here.offers.shape[1], size=len(here.coins))
        found["uniform"].append(regret(here, places))
    tuned = rivals(name, tuning)
    theirs = rivals(name, seeds, [min(tuned, key=lambda label: np.mean(tuned[label]))] if tuned else ())
    print(f"\n{name}, {len(seeds)} seeds from {seeds.start}")
    best: dict[str, str] = {}
    for label, regrets in (found | theirs).items():
        family = label.split(" (")[0]
        if family not in best or np.mean(regrets) < np.mean((found | theirs)[best[family]]):
            best[family] = label
    for label in best.values():
        regret_of = spread((found | theirs)[label])
        print(f"  {label:32} {regret_of['score']:8.1f} ± {regret_of['standard_error']:.1f}")
    label = min(theirs, key=lambda one: float(np.mean(theirs[one])))
    own, ratio = found["EmbeddingMixture"], over(found["EmbeddingMixture"], theirs[label])
    beside = f"{ratio['score']:8.2f} ± {ratio['standard_error']:.2f}"
    print(f"  {'beside the best of these':32} {beside}", flush=True)
    result = {"first": seeds.start, "seeds": len(seeds), "tuning": len(tuning), "policy": label}
    return result | {
        "ours": spread(own),
        "theirs": spread(theirs[label]),
        "ratio": ratio,
        "any": spread(found["uniform"]),
    }


def cost(
    policy: tacit.EmbeddingMixture, offered: int, rounds: int, seconds: float = 0.5
) -> tuple[float, ...]:
    """Return the microseconds of a choice, of a propensity, and of learning, each the least of five."""
    rng, state = np.random.default_rng(1), policy.init(1)
    items = rng.standard_normal((8, offered, policy.relevance_dim))
    users, rewards = rng.standard_normal((rounds, policy.context_dim)), (rng.random(rounds) < 0.3) * 1.0
    run, arms = compile_loop(repeat, policy.params), np.arange(offered)
    run(policy.params, state, arms, items, users[:200], rng, rewards[:200], NO_FEATURES, 2)
    times = []
    for what in range(3):
        taken = []
        for _ in range(5):
            start = time.process_time()
            run(policy.params, state, arms, items, users, rng, rewards, NO_FEATURES, what)
            taken.append((time.process_time() - start) / rounds * 1e6)
        times.append(min(taken))
    return tuple(times)


def repeat(
    params: Any, state: Any, arms: Any, items: Any, users: Any, rng: Any, rewards: Any, none: Any, what: int
) -> float:
    """Choose (0), tell a propensity (1), or learn (2), again and again."""
    total = 0.0
    for t in range(len(rewards)):
        impression, place = Impression(arms, users[t], items[t % len(items)], none), t % len(arms)
        if what == 0:
            total += choose(params, state, 0, impression, rng)
        elif what == 1:
            total += propensity(params, state, 0, impression, place)
        else:
            learn(params, state, 0, Outcome(impression, place, rewards[t], 0.5))
    return total


COSTS = (
    (20, 384, 0),
    (200, 384, 0),
    (1_000, 384, 0),
    (10_000, 64, 0),
    (20, 384, 32),
    (20, 384, 384),
    (20, 768, 0),
)
"""Items on offer, their numbers, a user's."""


def print_costs() -> None:
    """Print what a decision costs."""
    print(
        f"{'offered':>8} {'numbers':>8} {'user':>5} {'choose':>9} {'propensity':>11} {'learn':>8}  µs   bytes"
    )
    for offered, items, users in COSTS:
        policy = tacit.EmbeddingMixture(items, users)
        times = cost(policy, offered, max(20, min(2_000, 200_000 // offered)))
        costs = f"{times[0]:9.1f} {times[1]:11.1f} {times[2]:8.1f}"
        print(f"{offered:8,} {items:8} {users:5} {costs}      {policy.model_bytes:,}")


def main() -> None:
    """Compare, or print costs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("streams", nargs="*", metavar="STREAM", help="by default all: " + ", ".join(STREAMS))
    parser.add_argument("--seeds", type=int, default=8, help="streams of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--tuning", type=int, default=0, help="tune on so many other seeds, not in hindsight")
    parser.add_argument("--keep", action="store_true", help="write it into items.json")
    parser.add_argument("--times", action="store_true", help="what a decision costs, in place of regret")
    options = parser.parse_args()
    if options.times:
        print_costs()
        return
    for name in options.streams or STREAMS:
        seeds = range(options.first, options.first + options.seeds)
        found = compare(name, seeds, range(TUNING, TUNING + options.tuning))
        if options.keep:
            keep("embeddings", name, found)


if __name__ == "__main__":
    main()
