"""Measure what an open decision takes in memory, by the size of the groups in which they are made.

    python benchmarks/open_decisions.py

Each size is a process of its own; ten arms, Thompson with its propensities, a thousand keys, nothing
is written. ``said`` is what ``/metrics`` says of it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from engine import Nowhere

import tacit
from tacit.service.config.schema import Config, PlacementConfig, Rule
from tacit.service.engine.engine import Engine
from tacit.service.log.ids import LogClock

GROUPS = (1, 30_000), (100, 200_000), (100, 1_000_000)
"""Decisions of a group, and of all."""
FIRST = 2000
KEYS = 1000


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def measured(group, decisions):
    """Return what each of so many open decisions takes."""
    placement = PlacementConfig(tacit.Thompson(10), 1, 10**9, rule=Rule(window=10**15))
    engine = Engine(Config({"home": placement}), Nowhere(), LogClock())
    await engine.start()
    home = engine.placement("home")

    async def decided(count):
        for first in range(0, count, group):
            keys = [f"query {i % KEYS}" for i in range(first, first + group)]
            await engine.decide_many("home", home.check_keys(keys))

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
    told = parser.parse_args()
    if told.step:
        print(json.dumps(asyncio.run(measured(*told.step))), flush=True)
        # There is nothing to be kept.
        os._exit(0)
    for step in GROUPS:
        subprocess.run([sys.executable, __file__, "--step", *map(str, step)], check=True)


if __name__ == "__main__":
    main()
