"""Measure what many keys take: memory, snapshots and how long they halt decisions, recovery.

    python benchmarks/recovery.py --keys 1000000 --tail 1000000

Each step is a process of its own, so that its memory is its own. The first decides once for each
key, goes on with groups of 16 for known keys while the snapshot is written that is due then, and
stops, which writes another one; the second starts from that, makes the tail, half decisions
and half feedback, and dies without a snapshot; the third recovers. Processor time is that of all
threads; memory is the resident set, at the end and at its highest.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ARMS = 10
BATCH = 500
SMALL = 16
"""Decisions of a group whose wait is measured: of 1,000 groups, the second longest is told."""


def memory():
    """Return the resident set in MB: now, and at its highest."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6), round(peak * 1024 / 1e6)


def told(name, **values):
    print(json.dumps({"step": name, **values}), flush=True)


class Timed:
    """Processor time and time by the clock of a block."""

    def __enter__(self):
        gc.collect()
        self.cpu, self.clock = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *error):
        self.cpu = round(time.process_time() - self.cpu, 2)
        self.clock = round(time.perf_counter() - self.clock, 2)


def opened(path, snapshot_every=10**9):
    """Return the engine over a store, as the server makes it."""
    import tacit
    from tacit.service.app.server import GC_THRESHOLDS
    from tacit.service.config.schema import Config, PlacementConfig, Rule
    from tacit.service.engine.engine import Engine
    from tacit.service.log.sqlite import SqliteStore

    gc.set_threshold(*GC_THRESHOLDS)
    # Compiled or loaded before anything is measured.
    tacit.Learner(tacit.Thompson(ARMS), seed=1).choose_many(["a"])
    # Windows of a second, so that memory is that of the keys.
    placement = PlacementConfig(tacit.Thompson(ARMS), 1, snapshot_every, rule=Rule(window=1_000_000))
    before = memory()
    with Timed() as timed:
        engine = Engine(Config({"home": placement}), SqliteStore(path))
    told("open", cpu=timed.cpu, clock=timed.clock, before=before, after=memory(),
         keys=len(engine.placement("home").learner.keys), rows=engine.health().events)  # fmt: skip
    return engine


async def decided(engine, first, count):
    from tacit.service.log.requests import DecisionRequest

    check = engine.placement("home").reader.read
    asked = [check(DecisionRequest(f"query {key:07d}")) for key in range(first, first + count)]
    return await engine.decide_many("home", asked)


async def waited(engine):
    """Return the seconds until a group of known keys is answered."""
    began = time.perf_counter()
    await decided(engine, 0, SMALL)
    return time.perf_counter() - began


def of_a_thousand(waits):
    """Return the median, the p99.9 and the longest, in milliseconds."""
    waits = sorted(waits)
    tail = waits[-1 - len(waits) // 1000]
    return [round(1000 * wait, 2) for wait in (waits[len(waits) // 2], tail, waits[-1])]


async def fill(path, keys):
    engine = opened(path)
    await engine.start()
    with Timed() as timed:
        for first in range(0, keys, BATCH):
            await decided(engine, first, BATCH)
            filled = memory()
    told("fill", cpu=timed.cpu, clock=timed.clock, memory=filled)
    before = [await waited(engine) for _ in range(1000)]
    placement = engine.placement("home")
    placement.counts.since_snapshot = 10**9
    with Timed() as timed:
        waits = []
        while placement.snapshot_time is None:
            waits.append(await waited(engine))
    usual = before + [await waited(engine) for _ in range(1000)]
    told("while it is written", cpu=timed.cpu, clock=timed.clock, groups=len(waits),
         median_tail_longest_ms=of_a_thousand(waits), usual_ms=of_a_thousand(usual),
         memory=memory(), store=round(os.path.getsize(path) / 1e6))  # fmt: skip
    with Timed() as timed:
        longest, stopped = 0.0, asyncio.create_task(engine.stop())
        while not stopped.done():
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - began)
    told("snapshot", cpu=timed.cpu, clock=timed.clock, longest_halt=longest, memory=memory(),
         store=round(os.path.getsize(path) / 1e6))  # fmt: skip


async def tail(path, keys, events):
    from tacit.service.log.requests import FeedbackRequest

    engine = opened(path)
    await engine.start()
    with Timed() as timed:
        for first in range(0, events // 2, BATCH):
            rows = await decided(engine, first * 7919 % keys, BATCH)
            await engine.record_many(
                "home", [FeedbackRequest(r.id, reward=float(r.seq % 11 == 0)) for r in rows]
            )
    told("tail", cpu=timed.cpu, clock=timed.clock, memory=memory())
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--tail", type=int, default=1_000_000)
    parser.add_argument("--step", nargs=2)
    given = parser.parse_args()
    if given.step:
        step, path = given.step
        if step == "fill":
            asyncio.run(fill(path, given.keys))
        elif step == "tail":
            asyncio.run(tail(path, given.keys, given.tail))
        else:
            opened(path).store.close()
        return
    told("machine", load=os.getloadavg()[0])
    with tempfile.TemporaryDirectory() as folder:
        for step in ("fill", "tail", "recover"):
            sizes = ["--keys", str(given.keys), "--tail", str(given.tail)]
            path = str(Path(folder) / "s.db")
            subprocess.run([sys.executable, __file__, "--step", step, path, *sizes], check=True)


if __name__ == "__main__":
    main()
