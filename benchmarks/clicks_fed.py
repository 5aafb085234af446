"""Measure what `tacit feed` of clicks alone teaches, where pages are decided and fed in batches.

    python benchmarks/clicks_fed.py [--seeds 3] [--batches 14] [--pages 1000] [--window 2]

Ten arms, the first of 0.5, the others of 0.3. The clicks of a batch are fed a second after it was decided, by
a clock that is set; its windows close, and the next one is decided. Below it the same with zeros fed, too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import tacit.service.engine.engine as engine
from tacit.client import Client, Impression
from tacit.service.app.server import run_in_thread
from tacit.service.config.file import load_config

RATES = np.array([0.5, *[0.3] * 9])
MAP = 'placement = { value = "home" }\ndecision_id = "decision"\n[reward]\nvalue = "reward"\n'


def play(folder: Path, seed: int, zeros: bool, options: argparse.Namespace) -> np.ndarray:
    """Return how often each arm was shown in each batch."""
    table = {"arms": len(RATES), "seed": seed, "attribution_window": options.window}
    values = {"server.port": 0, "store.path": str(folder / f"{seed}{zeros}.db"), "placements.home": table}
    (folder / "map.toml").write_text(MAP)
    rng, counts, passed = np.random.default_rng(seed), [], [0]
    engine.LogClock = lambda: lambda: 1_700_000_000_000_000 + passed[0]
    with run_in_thread(load_config(overrides=values)) as url, Client(url, timeout=60) as client:
        for batch in range(options.batches):
            pages = [Impression("front", decision_id=f"{batch} {i}") for i in range(options.pages)]
            shown = client.decide_many("home", pages)
            arms = np.array([int(each.arm) for each in shown])
            events = [
                {"decision": each.decision_id, "reward": int(clicked)}
                for each, clicked in zip(shown, rng.random(len(arms)) < RATES[arms], strict=True)
                if clicked or zeros
            ]
            passed[0] += 1_000_000
            (folder / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
            command = "feed", folder / "events.jsonl", "--map", folder / "map.toml", "--url", url
            fed = subprocess.run(
                [sys.executable, "-m", "tacit", *command, "--json"], capture_output=True, check=True
            )
            sent = json.loads(fed.stdout)["sent"]
            assert sum(sent.get(each, 0) for each in ("learned", "pending")) == len(events), sent
            counts.append(np.bincount(arms, minlength=len(RATES)))
            passed[0] += 1_000_000 * options.window
    return np.array(counts)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("seeds", 3), ("batches", 14), ("pages", 1000), ("window", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    print(
        "| seed | sent | reward, batches 3+ | best arm by batch | most shown other |\n|--:|---|--:|---|---|"
    )
    for seed in range(1, options.seeds + 1):
        for zeros in (False, True):
            with tempfile.TemporaryDirectory() as name:
                shares = play(Path(name), seed, zeros, options) / options.pages
            columns = shares[:, 0], shares[:, 1:].max(axis=1)
            best, other = (" ".join(f"{share:.2f}" for share in column) for column in columns)
            sent, reward = "clicks and zeros" if zeros else "clicks", (shares[2:] @ RATES).mean()
            print(f"| {seed} | {sent} | {reward:.3f} | {best} | {other} |", flush=True)


if __name__ == "__main__":
    main()
