"""What a service of many keys takes: constants measured here, and what follows from them.

OPENBLAS_NUM_THREADS=1 python benchmarks/capacity.py

Processor time is counted, not time by the clock, so that a busy machine falsifies less.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import http.client
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import numpy as np

import tacit
from tacit.classifiers import Rectangle
from tacit.core.arrays import byte_count
from tacit.learning.learner import Learner
from tacit.learning.merging import compute_delta, merge_states
from tacit.service.config.schema import Config, PlacementConfig
from tacit.service.engine.engine import Engine
from tacit.service.log.requests import DecisionRequest, FeedbackRequest
from tacit.service.log.sqlite import SqliteStore

JSON = {"content-type": "application/json"}
ARMS = 10
BATCH = 64
DECISIONS = 20_000
REQUESTS = 8_000
CLIENTS = 16
LANES = 1_000_000
KEYS = 10_000_000
RATE = 100_000
KNOWN = 100
"""How many lanes a shard the router knows by name, if it places any."""
UTILIZATION = 0.6
"""Share of a core that a shard is planned to use: the rest is for peaks and for recovery."""


class Constants(NamedTuple):
    """What one shard takes.

    Attributes
    ----------
    decide, learn : float
        Core seconds of the engine for a decision and for feedback, in batches.
    request : float
        Core seconds of an HTTP request with one decision or one feedback, all included.
    lane : float
        Bytes of memory for a key, its name included.
    decision, feedback : float
        Bytes of the log.
    snapshot, restore : float
        Core seconds for a million lanes.
    saved : float
        Bytes of a snapshot for each lane.
    fold : float
        Core seconds to take in an event of the log again.
    start : float
        Seconds by the clock until a server that has nothing to recover answers.
    """

    decide: float
    learn: float
    request: float
    lane: float
    decision: float
    feedback: float
    snapshot: float
    restore: float
    saved: float
    fold: float
    start: float


# Constants ------------------------------------------------------------------------------------


def core_seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return how much processor time a call takes, and what it returns."""
    gc.collect()
    began = time.process_time()
    found = function()
    return time.process_time() - began, found


async def engine_costs(path: Path, policy: Any) -> dict[str, float]:
    """Return what the engine takes per decision, per feedback and per event of recovery."""
    placement = PlacementConfig(policy=policy, seed=1, snapshot_every=10**9)
    config = Config(placements={"home": placement})
    engine = Engine(config, SqliteStore(path))
    await engine.start()
    rng = np.random.default_rng(1)
    home = engine.placement("home")

    async def decided(count: int) -> list[str]:
        ids = []
        for _ in range(0, count, BATCH):
            keys = rng.integers(KEYS, size=BATCH).tolist()
            asked = [home.reader.read(DecisionRequest(f"query {key}")) for key in keys]
            ids += [row.id for row in await engine.decide_many("home", asked)]
        return ids

    async def told(ids: list[str]) -> None:
        for start in range(0, len(ids), BATCH):
            batch = [FeedbackRequest(id, reward=1.0) for id in ids[start : start + BATCH]]
            await engine.record_many("home", batch)

    await told(await decided(BATCH))
    sizes, began = [on_disk(path)], time.process_time()
    ids = await decided(DECISIONS)
    sizes.append(on_disk(path))
    middle = time.process_time()
    await told(ids)
    sizes.append(on_disk(path))
    ended = time.process_time()
    copied = path.with_suffix(".copy")
    source, target = apsw.Connection(str(path)), apsw.Connection(str(copied))
    with target.backup("main", source, "main") as backup:
        backup.step()
    source.close()
    target.close()
    await engine.stop()
    fold, again = core_seconds(lambda: Engine(config, SqliteStore(copied)))
    again.store.close()
    return {
        "decide": (middle - began) / len(ids),
        "learn": (ended - middle) / len(ids),
        "decision": (sizes[1] - sizes[0]) / len(ids),
        "feedback": (sizes[2] - sizes[1]) / len(ids),
        "fold": fold / (2 * len(ids)),
    }


def on_disk(path: Path) -> int:
    """Return the bytes of a store's pages in use, those of its write-ahead log written back."""
    connection = apsw.Connection(str(path))
    try:
        pages = connection.pragma("page_count")
        size = connection.pragma("page_size")
    finally:
        connection.close()
    return int(pages) * int(size)


def server_costs(folder: Path) -> dict[str, float]:
    """Return what a request over HTTP takes of the server, and how long it takes to start.

    Several clients ask at a time, so that what arrives together is committed together.
    """
    text = f'[store]\npath = "http.db"\n[placements.home]\narms = {ARMS}\npolicy = "ucb1"\n'
    (folder / "tacit.toml").write_text(text)
    command = [sys.executable, "-m", "tacit", "serve", "--port", "0"]
    began = time.perf_counter()
    server = subprocess.Popen(
        [*command, "--config", str(folder / "tacit.toml")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        port = re.search(r":(\d+)", server.stdout.readline())
        assert port is not None
        start = time.perf_counter() - began

        def round_trips(count: int) -> None:
            client = http.client.HTTPConnection("127.0.0.1", int(port[1]))
            for i in range(count // 2):
                id = ask(client, "decide", {"key": f"query {i}"})["decision_id"]
                ask(client, "feedback", {"decision_id": id, "reward": 1})

        round_trips(200)
        before = used_by(server.pid)
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(round_trips, [REQUESTS // CLIENTS] * CLIENTS))
        return {"request": (used_by(server.pid) - before) / REQUESTS, "start": start}
    finally:
        server.terminate()
        server.wait()


def ask(client: http.client.HTTPConnection, path: str, body: Any) -> Any:
    """Return the answer to a request."""
    client.request("POST", f"/v1/placements/home/{path}", json.dumps(body), JSON)
    return json.loads(client.getresponse().read())


def used_by(pid: int) -> float:
    """Return the core seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory() -> float:
    """Return the bytes that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return float(pages * resource.getpagesize())


def lane_costs(folder: Path, lanes: int = LANES) -> dict[str, float]:
    """Return memory, and core seconds of snapshots, of a learner with so many keys."""
    learner = Learner(tacit.UCB1(arms=ARMS), seed=1)
    learner.choose("first")
    before = memory()
    for start in range(0, lanes, 10_000):
        decisions = learner.choose_many([f"query {key}" for key in range(start, start + 10_000)])
        learner.learn_many(decisions, np.ones(10_000))  # memory that is written, not only asked for
    held = memory() - before
    path = folder / "learner.tacit"
    snapshot, _ = core_seconds(lambda: learner.save(path))
    restore, _ = core_seconds(lambda: Learner.load(path))
    return {
        "lane": held / lanes,
        "snapshot": snapshot * 1e6 / lanes,
        "restore": restore * 1e6 / lanes,
        "saved": path.stat().st_size / lanes,
    }


def state_sizes() -> dict[str, float]:
    """Return the bytes of a lane's state per policy over ten arms."""
    rectangle = Rectangle(dim=10, margin=0.1)
    policies: dict[str, Any] = {
        "UCB1": tacit.UCB1(ARMS),
        "Thompson": tacit.Thompson(ARMS),
        "BWC(UCB1), 10 signals": tacit.BWC(ARMS, classifier=rectangle),
        "SlidingWindowUCB": tacit.policies.baselines.SlidingWindowUCB(ARMS),
    }
    return {
        name: (byte_count(one.init(1001)) - byte_count(one.init(1))) / 1000 for name, one in policies.items()
    }


def merge_costs(shards: int = 64) -> dict[str, tuple[float, float]]:
    """Return bytes of a shard's delta, and core seconds to merge those of all shards."""
    found = {}
    for dim in (10, 50, 100):
        policy = tacit.policies.LaplaceEC(dim // 2, dim - dim // 2)
        base = policy.init(1)
        later = [base._replace(root=0.9 * base.root) for _ in range(shards)]
        took, _ = core_seconds(lambda b=base, s=later: [merge_states(b, s) for _ in range(5)])
        found[f"posterior of {dim} features"] = byte_count(compute_delta(later[0], base)), took / 5
    found["box of 10 signals"] = byte_count(Rectangle(10, margin=0.1).init(1)), 0.0
    return found


def measured() -> Constants:
    """Return the constants of this machine, and tell of what varies with the policy."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for told, policy in (("thompson", tacit.Thompson(ARMS)), ("ucb1", tacit.UCB1(ARMS))):
            engine = asyncio.run(engine_costs(folder / f"{told}.db", policy))
            print(
                f"engine, {told}: {engine['decide'] * 1e6:.1f} µs a decision, "
                f"{engine['learn'] * 1e6:.1f} µs a feedback, {engine['fold'] * 1e6:.1f} µs an "
                f"event of recovery; log: {engine['decision']:.0f} and {engine['feedback']:.0f} B",
                flush=True,
            )
        server = server_costs(folder)
        print(
            f"HTTP: {server['request'] * 1e6:.0f} µs a request; the server starts in {server['start']:.1f} s",
            flush=True,
        )
        lanes = lane_costs(folder)
    for name, size in state_sizes().items():
        print(f"state of a lane, {name}: {size:,.0f} B")
    print(
        f"UCB1, {LANES:,} keys: {lanes['lane']:.0f} B a key in memory, {lanes['saved']:.0f} B in a "
        f"snapshot; {lanes['snapshot']:.2f} s to write and {lanes['restore']:.2f} s to read",
        flush=True,
    )
    for name, (size, took) in merge_costs().items():
        print(f"merge of 64 shards, {name}: {size:,.0f} B a delta, {took * 1e3:.2f} ms")
    return Constants(**engine, **server, **lanes)


# What follows ---------------------------------------------------------------------------------


class Plan(NamedTuple):
    """Shards, and what each and all of them take.

    Attributes
    ----------
    cores : float
        Busy at the mean rate, of all shards.
    shards : int
        One core each, at the planned utilization.
    memory, log, snapshots : float
        GB of all shards: in memory, of the log a day, and of one snapshot of everything.
    recovery : float
        Seconds, at worst, until a lost shard is back: a start, its snapshot, and the log of
        ``snapshot_seconds``.
    snapshot_seconds : float
        How often a shard writes a snapshot.
    """

    cores: float
    shards: int
    memory: float
    log: float
    snapshots: float
    recovery: float
    snapshot_seconds: float


def planned(
    given: Constants,
    keys: float = KEYS,
    rate: float = RATE,
    *,
    batched: bool,
    answered: float = 1.0,
    snapshot_share: float = 0.05,
) -> Plan:
    """Return what so many keys and decisions a second take.

    Parameters
    ----------
    given : Constants
    keys, rate : float
        Keys, and decisions a second.
    batched : bool
        Whether shards get decisions in batches; else each is an HTTP request.
    answered : float, default 1
        Feedback per decision.
    snapshot_share : float, default 0.05
        Share of a core that a shard spends on snapshots; says how often they are written.
    """
    alone = 0.0 if batched else given.request
    each = given.decide + answered * given.learn if batched else alone * (1.0 + answered)
    cores = rate * each
    shards = int(np.ceil(cores / (UTILIZATION - snapshot_share)))
    mine = keys / shards
    seconds = given.snapshot * mine / 1e6 / snapshot_share
    events = rate * (1.0 + answered) / shards
    recovery = given.start + given.restore * mine / 1e6 + given.fold * events * seconds
    return Plan(
        cores,
        shards,
        keys * given.lane / 1e9,
        rate * 86_400 * (given.decision + answered * given.feedback) / 1e9,
        keys * given.saved / 1e9,
        recovery,
        seconds,
    )


# Traffic --------------------------------------------------------------------------------------


def zipf(keys: int, exponent: float) -> Any:
    """Return the probability of each key, the most frequent first."""
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    return weights / weights.sum()


def loads(chances: Any, shards: int, salt: int) -> Any:
    """Return the share of the traffic that goes to each shard, keys being dealt out by a hash."""
    rng = np.random.default_rng(salt)
    which = rng.integers(shards, size=len(chances))
    return np.bincount(which, chances, shards)


def placed(chances: Any, shards: int, salt: int, known: int) -> Any:
    """Return the same where the ``known`` most frequent lanes go to the least loaded shards.

    The router has a table of these, and all others are dealt out by the hash.
    """
    heap = [(share, shard) for shard, share in enumerate(loads(chances[known:], shards, salt))]
    heapq.heapify(heap)
    for chance in chances[:known].tolist():
        share, shard = heap[0]
        heapq.heapreplace(heap, (share + chance, shard))
    return np.array([share for share, _ in heap])


def split(chances: Any, most: float) -> Any:
    """Return the chances with each key that has more than ``most`` cut into equal parts."""
    parts = np.maximum(1, np.ceil(chances / most)).astype(np.int64)
    return np.repeat(chances / parts, parts)


def traffic(capacity: float, shards: int, keys: int = KEYS, salts: int = 10) -> list[str]:
    """Return what Zipf traffic does to shards that can take ``capacity`` events a second each."""
    lines = []
    for exponent in (0.8, 1.0, 1.2):
        chances = zipf(keys, exponent)
        hot = int((chances * RATE > UTILIZATION * capacity).sum())
        parts = np.sort(split(chances, 0.1 / shards))[::-1]
        known = KNOWN * shards
        ways = {
            "as it is": [loads(chances, shards, salt) for salt in range(salts)],
            "hot keys split": [loads(parts, shards, salt) for salt in range(salts)],
            "split and placed": [placed(parts, shards, salt, known) for salt in range(salts)],
        }
        lines.append(
            f"Zipf({exponent}): the hottest key has {chances[0] * RATE:,.0f}/s; keys above "
            f"{UTILIZATION:.0%} of a shard: {hot}; splitting makes {len(parts) - keys:,} lanes more"
        )
        for name, found in ways.items():
            peaks = np.array([shares.max() for shares in found]) * shards
            busy = np.median(peaks) / shards * RATE / capacity
            lines.append(
                f"  {name}: the hottest shard has {np.median(peaks):.2f} (at worst "
                f"{peaks.max():.2f}) times the mean, and is {busy:.0%} busy"
            )
    return lines


def served(load: float, seconds: float, rng: Any, every: float = 1.0) -> float:
    """Return the 99th percentile of waiting, in service times, of Poisson traffic at a load."""
    count = int(seconds)
    arrivals = np.cumsum(rng.exponential(1.0 / load, size=count))
    # Lindley: what waits is how far the sum of service exceeds the time that has passed.
    drift = np.arange(count) * every - arrivals
    waits = drift - np.minimum.accumulate(drift)
    return float(np.quantile(waits, 0.99))


def main() -> None:
    given = measured()
    for batched in (True, False):
        plan = planned(given, batched=batched)
        print(f"\n{KEYS:,} keys, {RATE:,} decisions/s, {'batches' if batched else 'HTTP'}:")
        for name, value in plan._asdict().items():
            print(f"  {name}: {value:,.2f}")
        each = given.decide + given.learn if batched else 2 * given.request
        print("\n".join("  " + line for line in traffic(1.0 / each, plan.shards)), flush=True)
    rng = np.random.default_rng(1)
    for load in (0.6, 0.8, 0.95):
        print(f"load {load:.0%}: 99 % wait at most {served(load, 1e6, rng):.1f} service times")


if __name__ == "__main__":
    main()
