"""Lifts found, harms caught and nothing claimed, through the service: over HTTP, with its client.

python benchmarks/proof_service.py    writes PROOF_SERVICE.md

Each experiment is a placement of its own and looks at its lift after every thousand decisions.
Seeds are 1, 2, 3 …; whatever is claimed at any look counts.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

from tables import markdown

from tacit.client import Client, Feedback, Impression
from tacit.core.seeds import stream
from tacit.service.app.server import run_in_thread
from tacit.service.config.file import load_config

HERE = Path(__file__).parent
START, WINDOW = 1_700_000_000_000_000, 40_000_000
BATCH = 1000
LEARNS = "epsilon-greedy(epsilon=0.1)"
GOOD, SAME = [0.1, 0.05, 0.05, 0.05], [0.06] * 4


@dataclass(frozen=True)
class Case:
    """Experiments that differ in their seeds only.

    Attributes
    ----------
    text : str
    policy : str
    holdout : dict
    rates : list of float
        Click rate of each arm.
    claim : str
        What is to be claimed.
    """

    text: str
    policy: str
    holdout: dict[str, object]
    rates: list[float] = field(default_factory=lambda: GOOD)
    claim: str = "better"


CASES = {
    "lift": Case("one arm in four is clicked twice as often; against arms drawn uniformly",
                 LEARNS, {"share": 0.2}),
    "users": Case("the same, 200 users who stay in their group", LEARNS,
                  {"share": 0.2, "unit": "user"}),
    "policy": Case("the same, against a policy that draws uniformly", LEARNS,
                   {"share": 0.2, "control": {"policy": "uniform-random"}}),
    "harm": Case("arms drawn uniformly, against the best arm", "uniform-random",
                 {"share": 0.2, "control": {"arm": 0}}, claim="worse"),
    "same": Case("all arms alike; against arms drawn uniformly", LEARNS, {"share": 0.2},
                 SAME, "nothing"),
    "same-users": Case("the same, 200 users who stay in their group", LEARNS,
                       {"share": 0.2, "unit": "user"}, SAME, "nothing"),
}  # fmt: skip


class Clock:
    """Time that goes by when it is told."""

    now = START

    def __call__(self) -> int:
        return self.now


def claims(client: Client, name: str, case: Case, seed: int, clock: Clock, looks: int) -> set[str]:
    """Run one experiment; return what was claimed at any look, and the alarms that there were."""
    rng = stream("proof service", seed, len(name))
    found = set()
    for _ in range(looks):
        users = rng.integers(200, size=BATCH).tolist()
        asked = [Impression(f"k{u % 3}", user=f"u{u}") for u in users]
        made = client.decide_many(name, asked)
        drawn = rng.random(BATCH).tolist()
        clicked = [
            Feedback(one.decision_id, 1.0)
            for one, x in zip(made, drawn, strict=True)
            if x < case.rates[int(one.arm)]
        ]
        client.feedback_many(name, clicked)
        clock.now += WINDOW
        client.decide(name, "k0", user="u0")
        told = client.lift(name)
        found.add(told.claim)
        found |= {f"alarm: {one.what}" for one in told.srm if one.alarm}
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--looks", type=int, default=15)
    effort = parser.parse_args()
    seeds, clock, began = range(1, effort.seeds + 1), Clock(), time.perf_counter()
    placements = {
        f"{name}-{seed}": {
            "arms": 4, "policy": case.policy, "seed": seed, "holdout": case.holdout,
        }
        for name, case in CASES.items()
        for seed in seeds
    }  # fmt: skip
    told: dict[str, Counter[str]] = {name: Counter() for name in CASES}
    with TemporaryDirectory() as folder:
        overrides = {
            "placements": placements, "server.port": 0, "store.path": f"{folder}/s.db",
        }  # fmt: skip
        with (
            mock.patch("tacit.service.engine.engine.LogClock", return_value=clock),
            run_in_thread(load_config(overrides=overrides)) as address,
            Client(address, timeout=60.0) as client,
        ):
            for seed in seeds:
                for name, case in CASES.items():
                    found = claims(client, f"{name}-{seed}", case, seed, clock, effort.looks)
                    told[name].update(found)
                    print(name, seed, sorted(found), flush=True)
                # What is done by now stands, should it be cut off.
                write(told, seed, effort.looks, time.perf_counter() - began)


def write(told: dict[str, Counter[str]], runs: int, looks: int, seconds: float) -> None:
    """Write what was claimed as a page."""
    lines = [
        "# Lifts through the service, over HTTP\n",
        f"Written by `make bench-proof`: {runs} experiments of each kind, seeds 1 to {runs},",
        f"{looks * BATCH:,} decisions each, a look after every {BATCH:,}; what was claimed at any",
        f"look. {seconds / 60:.0f} minutes.\n",
    ]
    head = ("experiment", "is to be claimed", "better", "worse", "alarms of traffic")
    rows = []
    for name, case in CASES.items():
        found = told[name]
        alarms = sum(count for what, count in found.items() if what.startswith("alarm"))
        claimed = (f"{found[claim]} of {runs}" for claim in ("better", "worse"))
        rows.append((case.text, case.claim, *claimed, alarms))
    text = "\n".join([*lines, markdown(head, rows)])
    (HERE / "PROOF_SERVICE.md").write_text(text + "\n")


if __name__ == "__main__":
    main()
