"""Measure what an open decision takes in memory, by the size of the groups in which they are made.

    python benchmarks/open_decisions.py

Each size is a process of its own; ten arms, Thompson with its propensities, a thousand keys, nothing
is written. ``said`` is what ``/metrics`` says of it. With ``--starts N ...`` it measures instead how long an
engine takes to open a log with so many open decisions, after a stop; the files are in the page cache.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from engine import Nowhere

import tacit
from tacit.service.config.schema import Config, PlacementConfig, Rule
from tacit.service.engine.engine import Engine
from tacit.service.log.ids import LogClock
from tacit.service.log.requests import DecisionRequest
from tacit.service.log.sqlite import SqliteStore

GROUPS = (1, 30_000), (100, 200_000), (100, 1_000_000)
"""Decisions of a group, and of all."""
FIRST = 2000
KEYS = 1000


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def opened(store):
    """Return an engine of one placement, whose windows stay open."""
    placement = PlacementConfig(tacit.Thompson(10), 1, 10**9, rule=Rule(window=10**15))
    return Engine(Config({"home": placement}), store, LogClock())


async def decide(engine, count, group):
    """Decide so often, in groups."""
    read = engine.placement("home").reader.read
    for first in range(0, count, group):
        asked = [read(DecisionRequest(f"query {i % KEYS}")) for i in range(first, first + group)]
        await engine.decide_many("home", asked)


async def fill(path, decisions):
    """Write a log with so many open decisions, and a snapshot."""
    engine = opened(SqliteStore(path))
    await engine.start()
    await decide(engine, decisions, 100)
    await engine.stop()


def start(path):
    """Return how long it takes to open a log."""
    tacit.Learner(tacit.Thompson(10), seed=1).choose_many(["a"])  # loads what is compiled
    store = SqliteStore(path)
    clock, cpu = time.perf_counter(), time.process_time()
    engine = opened(store)
    seconds = {"clock": time.perf_counter() - clock, "cpu": time.process_time() - cpu}
    return {"open": engine.placement("home").pending} | {name: round(s, 2) for name, s in seconds.items()}


async def measured(group, decisions):
    """Return what each of so many open decisions takes."""
    engine = opened(Nowhere())
    await engine.start()
    home = engine.placement("home")

    async def decided(count):
        await decide(engine, count, group)

    await decided(FIRST)
    gc.collect()
    before, already, began = resident(), home.pending, time.process_time()
    await decided(decisions)
    spent = time.process_time() - began
    gc.collect()
    return {
        "group": group,
        "bytes": round((resident() - before) / (home.pending - already)),
        "said": round(home.open_bytes / home.pending),
        "cpu_us": round(1e6 * spent / decisions, 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step", nargs=2, type=int)
    parser.add_argument("--starts", nargs="+", type=int, default=[])
    parser.add_argument("--start", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.start:
        print(json.dumps(start(told.start)), flush=True)
        os._exit(0)
    for decisions in told.starts:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "s.db")
            asyncio.run(fill(path, decisions))
            for _ in range(3):
                subprocess.run([sys.executable, __file__, "--start", path], check=True)
    if told.starts:
        return
    if told.step:
        print(json.dumps(asyncio.run(measured(*told.step))), flush=True)
        # There is nothing to be kept.
        os._exit(0)
    for step in GROUPS:
        subprocess.run([sys.executable, __file__, "--step", *map(str, step)], check=True)


if __name__ == "__main__":
    main()
