"""Measure the processor time of one decision in a batch, beside that of a plain placement.

OPENBLAS_NUM_THREADS=1 python benchmarks/decide_modes.py

It takes a few seconds. Ratios can be compared between machines, microseconds cannot.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from tacit.service.config.file import load_config
from tacit.service.config.schema import PlacementConfig
from tacit.service.log.rows import ChangeRow
from tacit.service.log.store import StoredPlacement
from tacit.service.placements.snapshots import open_placement

BATCH = 1000
ROUNDS = 12
WARM_UP = 3
REPETITIONS = 3
START = 1_700_000_000_000_000
PLAIN = 'arms = ["a", "b", "c", "d", "e"]\nattribution_window = 1.0\nseed = 5\nmost_keys = 100\n'
PLACEMENTS = {
    "plain": PLAIN,
    "holdout": PLAIN + "holdout = {share = 0.2}\n",
    "shadow": PLAIN + 'mode = "shadow"\nshadow = "thompson"\n',
    "pinned": PLAIN,
    "control_policy": PLAIN + 'holdout = {share = 0.2, control = {policy = "thompson"}}\n',
}
CHANGES = {"shadow": ("mode", "shadow"), "pinned": ("pin", json.dumps({"arms": ["b"], "until": 2 * START}))}


def load_placements() -> dict[str, PlacementConfig]:
    """Return the placements that are measured, read from a file as the service does."""
    text = '[store]\npath = "decisions.db"\n'
    text += "".join(f"[placements.{name}]\n{rows}" for name, rows in PLACEMENTS.items())
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "tacit.toml"
        path.write_text(text)
        return dict(load_config(path).placements)


def measure_decision(name: str, config: PlacementConfig) -> float:
    """Return the processor time of one decision of a placement, in microseconds."""
    placement = open_placement(name, config, StoredPlacement(1, 1, "", 7))
    now, sequence, spent = START, 10, 0.0
    placement.learning.advance(now)
    if name in CHANGES:
        placement.apply_change(ChangeRow(1, 1, now, *CHANGES[name], None))
    for number in range(ROUNDS):
        now += 2_000_000
        placement.learning.advance(now)
        impressions = placement.reader.read_keys([f"k{row % 5}" for row in range(BATCH)])
        start = time.process_time()
        placement.decide(impressions, sequence, now)
        if number >= WARM_UP:
            spent += time.process_time() - start
        sequence += BATCH
    return spent / (ROUNDS - WARM_UP) / BATCH * 1e6


def main() -> None:
    """Print the least time of several repetitions for each placement, and its ratio to the plain one."""
    configs = load_placements()
    times = {
        name: min(measure_decision(name, config) for _ in range(REPETITIONS))
        for name, config in configs.items()
    }
    print(f"{'placement':<16}{'µs a decision':>14}{'× plain':>9}")
    for name, microseconds in times.items():
        print(f"{name:<16}{microseconds:>14.2f}{microseconds / times['plain']:>9.2f}")


if __name__ == "__main__":
    main()
