"""Items of a catalogue by id: what a decision takes, from Python and over HTTP, and a start with all of them.

python benchmarks/catalogue.py [--items 100000] [--dim 384] [--service]
python benchmarks/catalogue.py --items 10000 --dim 64 --service   also one of all items, beside NumPy
"""

import argparse
import contextlib
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

import tacit
from tacit.client import Client
from tacit.service.app.server import run_in_thread
from tacit.service.config.file import load_config

SIZES = 20, 100, 200, 1000, 10_000


def least(work, runs):
    """Return the least time of a call, in microseconds of the processor: the machine may be busy."""
    best = np.inf
    for _ in range(runs):
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return 1e6 * best


def taught(count, dim, rng):
    """Return a learner with items, which has learned some decisions."""
    learner = tacit.Learner(tacit.auto(relevance_dim=dim), seed=1)
    ids = [f"doc-{i}" for i in range(count)]
    begin = time.perf_counter()
    for start in range(0, count, 1000):
        part = ids[start : start + 1000]
        learner.items.put(part, rng.standard_normal((len(part), dim), np.float32))
    print(f"{count:,} items put in {time.perf_counter() - begin:.1f} s, {learner.items.nbytes / 1e6:.0f} MB")
    for _ in range(300):
        decision = learner.choose(arms=rng.choice(ids, 20, replace=False))
        learner.learn(decision, float(rng.random() < 0.2))
    return learner, np.array(ids)


def decisions(learner, ids, rng):
    """Print how long a decision takes, by ids and by vectors."""
    print("candidates   by id, µs   by vectors, µs   learn, µs")
    for size in SIZES:
        offer = rng.choice(ids, size, replace=False).tolist()
        vectors, runs = learner.items.vectors(offer), max(10, 40_000 // size)
        by_id = least(lambda offer=offer: learner.choose(arms=offer), min(runs, 500))
        given = least(
            lambda offer=offer, vectors=vectors: learner.choose(arms=offer, relevance=vectors), min(runs, 500)
        )
        made = iter([learner.choose(arms=offer) for _ in range(10)])
        learning = least(lambda made=made: learner.learn(next(made), 1.0), 10)
        print(f"{size:10,}   {by_id:9,.0f}   {given:14,.0f}   {learning:9,.0f}")


def beside_numpy(learner, ids, rng):
    """Print how long one of many items takes to NumPy's time for scores of the same form, by size."""
    dim, leading, hypotheses = learner.policy.relevance_dim, 24, 3
    print("candidates   to NumPy, float64   float32   (by vectors, the same mean and variance)")
    for size in (200, min(len(ids), 10_000)):
        offer = rng.choice(ids, size, replace=False).tolist()
        vectors = learner.items.vectors(offer)
        ratios = []
        for form in (np.float64, np.float32):
            columns = rng.standard_normal((dim, leading + hypotheses)).astype(form)
            means = rng.standard_normal((leading + 1, hypotheses)).astype(form)
            spread = rng.standard_normal((leading + 1, leading + 1)).astype(form)
            scale, x = np.ones(dim, form), vectors.astype(form)

            def score(columns=columns, means=means, spread=spread, scale=scale, x=x):
                scaled = x * scale
                turned = scaled @ columns
                features = np.column_stack([np.ones(len(x), x.dtype), turned[:, :leading]])
                logits = features @ means + turned[:, leading:]
                variance = ((features @ spread) * features).sum(1)
                variance += (scaled * scaled).sum(1) - (turned[:, :leading] ** 2).sum(1)
                return logits, variance

            def decide(offer=offer, vectors=vectors):
                learner.choose(arms=offer, relevance=vectors)

            pairs = [(least(decide, 20), least(score, 20)) for _ in range(9)]
            ratios.append(np.median([ours / theirs for ours, theirs in pairs]))
        print(f"{size:10,}   {ratios[0]:17.2f}   {ratios[1]:7.2f}")


def kept(learner):
    """Print how long saving and loading takes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "learner.tacit"
        saving = least(lambda: learner.save(path), 1) / 1e6
        loading = least(lambda: tacit.Learner.load(path), 3) / 1e6
        print(f"saved in {saving:.1f} s, {path.stat().st_size / 1e6:.0f} MB; loaded in {loading:.1f} s")


def served(learner, ids, rng):
    """Print how long the service takes: to be filled, to decide, to start with all items."""
    with tempfile.TemporaryDirectory() as folder:
        home = {"kind": "features", "relevance_dim": learner.policy.relevance_dim}
        values = {"server.port": 0, "store.path": f"{folder}/s.db", "placements.home": home}
        config = load_config(overrides=values)
        with run_in_thread(config) as url, Client(url, timeout=60.0) as client:
            begin, slowest = time.perf_counter(), 0.0
            for start in range(0, len(ids), 250):
                part, before = ids[start : start + 250].tolist(), time.perf_counter()
                client.put_items("home", part, learner.items.vectors(part))
                slowest = max(slowest, time.perf_counter() - before)
            took = time.perf_counter() - begin
            print(f"service: {len(ids):,} items in {took:.1f} s, slowest request {1e3 * slowest:.0f} ms")
            for size in SIZES:
                offer = rng.choice(ids, size, replace=False).tolist()
                with contextlib.suppress(Exception):  # ids beyond the limit of a body
                    asked = least(lambda offer=offer: client.decide("home", "all", arms=offer), 30)
                    print(f"service: one of {size:,} by id {asked / 1e3:.1f} ms")
            if len(ids) <= 10_000:
                asked = least(lambda: client.decide("home", "all"), 100)
                print(f"service: one of all {len(ids):,} {asked / 1e3:.2f} ms")
        for what in ("as it was left", "again"):
            begin, worked = time.perf_counter(), time.process_time()
            with run_in_thread(config) as url, Client(url) as client:
                count = client.items("home").count
                took, worked = time.perf_counter() - begin, time.process_time() - worked
                print(
                    f"service: ready {what} in {took:.1f} s, {worked:.1f} s of the processor; {count:,} items"
                )


def listed(learner, ids, rng):
    """Print how long the service takes to list ten of 10,000 items, and to learn from a list."""
    with tempfile.TemporaryDirectory() as folder:
        dim = learner.policy.relevance_dim
        home = {"kind": "slates", "relevance_dim": dim, "positions": 10, "attribution_window": 0.01}
        values = {"server.port": 0, "store.path": f"{folder}/s.db", "placements.home": home}
        with run_in_thread(load_config(overrides=values)) as url, Client(url, timeout=60.0) as client:
            for start in range(0, 10_000, 250):
                part = ids[start : start + 250].tolist()
                client.put_items("home", part, learner.items.vectors(part))
            for size in SIZES[:-1]:
                offer = ids[rng.choice(10_000, size, replace=False)].tolist()
                for _ in range(70):  # first lists are learned several times
                    client.clicks("home", client.slate("home", "all", arms=offer).decision_id, [0])
                asked = least(lambda offer=offer: client.slate("home", "all", arms=offer), 30)
                print(f"service: ten of {size:,} by id {asked / 1e3:.1f} ms")


def main():
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--service", action="store_true")
    parser.add_argument("--dim", type=int, default=384)
    asked = parser.parse_args()
    rng = np.random.default_rng(1)
    learner, ids = taught(asked.items, asked.dim, rng)
    decisions(learner, ids, rng)
    beside_numpy(learner, ids, rng)
    kept(learner)
    if asked.service:
        listed(learner, ids, rng)
        served(learner, ids, rng)
    print(f"most memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB")


if __name__ == "__main__":
    main()
