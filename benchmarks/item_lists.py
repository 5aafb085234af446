"""Lists of items known by embeddings: ItemListMix, untuned, beside what is tuned in hindsight.

python benchmarks/item_lists.py [SETTING ...] [--seeds N] [--first SEED] [--tuning N] [--keep]  regret, in all
python benchmarks/item_lists.py --times             processor time and memory
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

from typing import Any

import item_list_rivals
import numpy as np
from item_list_streams import SETTINGS, ListStream, read_list, regret, stream
from items_kept import keep, over, spread

import tacit
from tacit.core.dispatch import decide_and_weigh, learn, placed
from tacit.core.run_mode import compile_loop
from tacit.policies.base import NO_FEATURES, Impression, Outcome

TUNING = 85_001
"""The first seed for tuning."""


def play(
    params: Any, state: Any, arms: Any, stream: ListStream, rng: Any, shown: Any, clicked: Any, none: Any
) -> None:
    """Decide and learn, for each list of a stream."""
    for t in range(len(stream.users)):
        impression = Impression(arms, stream.users[t], stream.items[stream.offers[t]], none)
        propensity = decide_and_weigh(params, state, 0, impression, rng, shown[t])
        read_list(stream, t, shown[t], clicked)
        learn(params, state, 0, Outcome(impression, shown[t], clicked, propensity))


def played(stream: ListStream, state: Any, policy: tacit.ItemListMix, seed: int) -> Any:
    """Return the places that a policy shows, going on from a state."""
    shown, clicked = np.zeros((len(stream.users), policy.positions), np.int64), np.zeros(policy.positions)
    rng, arms = np.random.default_rng([seed, 1]), np.arange(stream.offers.shape[1])
    compile_loop(play, policy.params)(policy.params, state, arms, stream, rng, shown, clicked, NO_FEATURES)
    return shown


def policy_for(stream: ListStream) -> tacit.ItemListMix:
    """Return the policy that plays a stream."""
    return tacit.ItemListMix(stream.items.shape[1], stream.users.shape[1], positions=len(stream.seen))


def tuned(name: str, seeds: range) -> list[str]:
    """Return the name of the rival with the least regret on some seeds; none, if there are none."""
    found: dict[str, float] = {}
    for seed in seeds:
        here = stream(name, seed)
        for rival, shown in item_list_rivals.played(here, seed):
            found[rival.label] = found.get(rival.label, 0.0) + regret(here, shown)
    return [min(found, key=found.__getitem__)] if found else []


def compare(name: str, seeds: range, alone: bool, tuning: range) -> dict[str, Any]:
    """Print the mean regret in a setting, ours and each family's best; return ours beside the best.

    With seeds for tuning only the rival is played that is the best on those.
    """
    found: dict[str, list[float]] = {}
    only = tuned(name, tuning)
    families: dict[str, str] = {}
    for seed in seeds:
        here = stream(name, seed)
        policy = policy_for(here)
        found.setdefault("ItemListMix", []).append(regret(here, played(here, policy.init(1), policy, seed)))
        offered = np.tile(np.arange(policy.positions), (len(here.users), 1))
        found.setdefault("as offered", []).append(regret(here, offered))
        for rival, shown in () if alone else item_list_rivals.played(here, seed, only):
            found.setdefault(rival.label, []).append(regret(here, shown))
            families[rival.label] = rival.family
    print(f"\n{name}, {len(seeds)} seeds from {seeds.start}")
    own, best = np.array(found["ItemListMix"]), {}
    for label, regrets in found.items():
        family = families.get(label, label)
        if family not in best or np.mean(regrets) < np.mean(found[best[family]]):
            best[family] = label
    for label in best.values():
        print(f"  {label:36} {shown_as(np.array(found[label]))}", flush=True)
    rivals = [label for family, label in best.items() if family in set(families.values())]
    result = {"first": seeds.start, "seeds": len(seeds), "tuning": len(tuning), "ours": spread(own)}
    if not rivals:
        return result
    label = min(rivals, key=lambda one: float(np.mean(found[one])))
    ratio = over(own, found[label])
    beside = f"{ratio['score']:8.2f} ± {ratio['standard_error']:.2f}"
    print(f"  {'beside the best of all':36} {beside}", flush=True)
    result |= {"policy": label, "theirs": spread(found[label]), "ratio": ratio}
    return result | {"any": spread(found["as offered"])}


def shown_as(regrets: Any) -> str:
    """Return a mean with its standard error."""
    return f"{regrets.mean():8.1f} ± {regrets.std(ddof=1) / np.sqrt(len(regrets)):.1f}"


def repeat(
    params: Any, state: Any, arms: Any, items: Any, users: Any, rng: Any, action: Any, given: Any, what: int
) -> None:
    """Decide with the propensity (0), weigh positions (1), or learn (2), again and again."""
    clicks, none, prefixes, places = given
    for t in range(len(clicks)):
        impression = Impression(arms, users[t], items[t % len(items)], none)
        if what == 0:
            decide_and_weigh(params, state, 0, impression, rng, action)
        elif what == 1:
            placed(params, state, 0, impression, action, prefixes, places)
        else:
            learn(params, state, 0, Outcome(impression, action, clicks[t], 0.5))


def cost(policy: tacit.ItemListMix, offered: int, rounds: int) -> tuple[float, ...]:
    """Return the microseconds to decide, to weigh positions, and to learn; each the least of five."""
    rng, state, positions = np.random.default_rng(1), policy.init(1), policy.positions
    items = rng.standard_normal((4, offered, policy.relevance_dim))
    users, clicks = (
        rng.standard_normal((rounds, policy.context_dim)),
        (rng.random((rounds, positions)) < 0.2) * 1.0,
    )
    run, arms = compile_loop(repeat, policy.params), np.arange(offered)
    action, given = np.arange(positions), (clicks, NO_FEATURES, np.zeros(positions), np.zeros(positions))
    common = policy.params, state, arms, items, users, rng, action, given
    for _ in range(1 + 80 // rounds):
        run(*common, 2)
    times = []
    for what in range(3):
        taken = []
        for _ in range(5):
            start = time.process_time()
            run(*common, what)
            taken.append((time.process_time() - start) / rounds * 1e6)
        times.append(min(taken))
    return tuple(times)


COSTS = (
    (20, 64, 0, 5),
    (20, 384, 0, 5),
    (20, 64, 16, 5),
    (200, 384, 0, 10),
    (200, 384, 32, 10),
    (1_000, 64, 0, 10),
    (10_000, 64, 0, 10),
)
"""Items on offer, their numbers, a user's, and positions."""


def print_costs() -> None:
    """Print what a list costs."""
    heads = f"{'offered':>8} {'numbers':>8} {'user':>5} {'positions':>10}"
    print(f"{heads} {'decide':>9} {'weigh':>9} {'learn':>8}  µs   bytes")
    for offered, items, users, positions in COSTS:
        policy = tacit.ItemListMix(items, users, positions=positions)
        times = cost(policy, offered, max(20, min(500, 100_000 // offered)))
        costs = f"{times[0]:9.1f} {times[1]:9.1f} {times[2]:8.1f}"
        print(f"{offered:8,} {items:8} {users:5} {positions:10} {costs}      {policy.model_bytes:,}")


def main() -> None:
    """Compare, or print costs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "settings", nargs="*", metavar="SETTING", help="by default all: " + ", ".join(SETTINGS)
    )
    parser.add_argument("--seeds", type=int, default=8, help="streams of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--tuning", type=int, default=0, help="tune on so many other seeds, not in hindsight")
    parser.add_argument("--keep", action="store_true", help="write it into items.json")
    parser.add_argument("--alone", action="store_true", help="without the rivals")
    parser.add_argument("--times", action="store_true", help="what a list costs, in place of regret")
    options = parser.parse_args()
    if options.times:
        print_costs()
        return
    seeds = range(options.first, options.first + options.seeds)
    tuning = range(TUNING, TUNING + options.tuning)
    ratios = []
    for name in options.settings or SETTINGS:
        found = compare(name, seeds, options.alone, tuning)
        ratios.append(found["ratio"]["score"] if "ratio" in found else 1.0)
        if options.keep:
            keep("lists", name, found)
    print(f"\ngeometric mean of {len(ratios)} ratios: {np.exp(np.log(ratios).mean()):.3f}")


if __name__ == "__main__":
    main()
