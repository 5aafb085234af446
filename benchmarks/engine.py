"""Measure the engine without HTTP: alone, and over a log that grows.

    python benchmarks/engine.py --events 10000000

Groups of 256 decisions and their feedback, ten arms whose clicks are rare (2 to 20 %), 10,000
keys after a Zipf law. Processor time of all threads is counted. On a machine that others use it
grows with their work, so each row comes with the time of a plain Python loop, taken beside it.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import uvloop

import tacit
from tacit.service.app.server import GC_THRESHOLDS
from tacit.service.config.schema import Config, PlacementConfig, Rule
from tacit.service.engine.engine import Engine
from tacit.service.log.requests import DecisionRequest, make_reward_requests
from tacit.service.log.sqlite import SqliteStore

ARMS = 10
GROUP = 256
KEYS = 10_000
ALONE_GROUPS = 300


class Nowhere(SqliteStore):
    """A store that keeps no rows."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory()
        super().__init__(Path(self._folder.name) / "s.db")

    def insert_rows(self, writer, rows):
        """Insert nothing."""


def yardstick():
    """Return the processor time of a plain loop, in µs a thousand steps."""
    began, total = time.process_time(), 0
    for i in range(1_000_000):
        total += i
    return 1e3 * (time.process_time() - began)


async def groups(engine, count, rng):
    """Decide and tell so many groups; return the processor time for each decision, in µs."""
    read = engine.placement("home").reader.read
    rates = np.linspace(0.02, 0.2, ARMS)
    names = [f"query {i}" for i in range(KEYS)]
    keys = np.minimum(rng.zipf(1.2, (count, GROUP)), KEYS) - 1
    began = time.process_time()
    for group in keys.tolist():
        rows = await engine.decide_many("home", [read(DecisionRequest(names[key])) for key in group])
        clicks = rng.random(GROUP) < rates[rows.column("arm")]
        told = make_reward_requests(rows.column("id"), clicks.astype(float).tolist())
        await engine.record_many("home", told)
    return 1e6 * (time.process_time() - began) / (count * GROUP)


async def alone(propensities):
    placement = PlacementConfig(tacit.Thompson(ARMS), 1, 10**9, propensities=propensities)
    engine = Engine(Config({"home": placement}), Nowhere())
    await engine.start()
    rng = np.random.default_rng(1)
    await groups(engine, 20, rng)
    each, loop = await groups(engine, ALONE_GROUPS, rng), yardstick()
    print(
        f"alone, propensities {propensities}: {1e6 / each:,.0f} decide+learn/s of processor "
        f"time, {each:.1f} us each (loop: {loop:.0f} us)",
        flush=True,
    )
    await engine.stop()


async def growing(path, events):
    rule = Rule(window=5_000_000)
    placement = PlacementConfig(tacit.Thompson(ARMS), 1, 50_000, rule=rule)
    engine = Engine(Config({"home": placement}), SqliteStore(path))
    await engine.start()
    rng = np.random.default_rng(1)
    await groups(engine, 20, rng)
    part = max(events // (20 * GROUP), 1)
    for tenth in range(1, 11):
        each, loop = await groups(engine, part, rng), yardstick()
        print(
            f"after {2 * tenth * part * GROUP:,} events: {each:.1f} us (loop: {loop:.0f} us), "
            f"{path.stat().st_size / 1e6:,.0f} MB",
            flush=True,
        )
    await engine.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=2_000_000)
    told = parser.parse_args()
    gc.set_threshold(*GC_THRESHOLDS)
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}", flush=True)
    for propensities in (False, True):
        uvloop.run(alone(propensities))
    if told.events:
        with tempfile.TemporaryDirectory() as folder:
            uvloop.run(growing(Path(folder) / "s.db", told.events))


if __name__ == "__main__":
    main()
