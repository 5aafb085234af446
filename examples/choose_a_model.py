"""Which language model shall answer? Quality minus cost is the reward, and each task has its own.

The outcomes are recorded in ``model_outcomes.csv``: 1,500 requests of three tasks, and what each of
four variants (a model with a prompt) did with them: a grade in [0, 1] and the cost in cents. They
were made up for this example by ``--make``; take your own. The service decides which variant
answers, one request after the other; only the outcome of that one is looked up, graded and told.

    python examples/choose_a_model.py
    python examples/choose_a_model.py --price 0.3    # a cent costs more quality
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from pathlib import Path

import numpy as np

from tacit.client import Client
from tacit.core.text import align_columns
from tacit.service.app.server import run_in_thread
from tacit.service.config.file import load_config

RECORDED = Path(__file__).with_name("model_outcomes.csv")
VARIANTS = ("small", "small-with-examples", "large", "large-step-by-step")
# How often each variant does each task well, and what a request costs on average, in cents.
GOOD = {
    "summarize": (0.82, 0.86, 0.88, 0.88),
    "extract": (0.55, 0.85, 0.90, 0.91),
    "reason": (0.20, 0.25, 0.55, 0.80),
}
CENTS = (0.05, 0.12, 0.60, 1.50)


def make(path: Path, requests: int = 1500, seed: int = 1) -> None:
    """Write outcomes as they are made up here."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["request", "task", "variant", "grade", "cents"])
        for request, task in enumerate(rng.choice(list(GOOD), requests)):
            hard = rng.random()  # the same for all: what is hard for one is hard for the next
            for variant, good, cents in zip(VARIANTS, GOOD[task], CENTS, strict=True):
                grade = round(float(np.clip((good - hard) * 4 + 0.5, 0.0, 1.0)), 2)
                rows.writerow([request, task, variant, grade, f"{cents * rng.gamma(8) / 8:.3f}"])


def read(path: Path) -> list[tuple[str, dict[str, tuple[float, float]]]]:
    """Return of each request its task, and the grade and the cents of each variant."""
    found: dict[str, tuple[str, dict[str, tuple[float, float]]]] = {}
    with path.open() as file:
        for row in csv.DictReader(file):
            _, outcomes = found.setdefault(row["request"], (row["task"], {}))
            outcomes[row["variant"]] = float(row["grade"]), float(row["cents"])
    return list(found.values())


def reward_of(grade: float, cents: float, price: float) -> float:
    """Return quality minus cost, in [0, 1]: what a cent costs is a matter of taste."""
    return min(1.0, max(0.0, grade - price * cents))


def served(requests: list[tuple[str, dict[str, tuple[float, float]]]], price: float) -> list[str]:
    """Let the service choose for each request and learn from it; return what it chose."""
    placement = {"arms": list(VARIANTS), "seed": 7}
    with tempfile.TemporaryDirectory() as folder:
        overrides = {
            "placements": {"answer": placement},
            "server.port": 0,
            "store.path": str(Path(folder) / "tacit.db"),
        }
        with run_in_thread(load_config(overrides=overrides)) as address, Client(address) as client:
            chosen = []
            for number, (task, outcomes) in enumerate(requests):
                decision = client.decide("answer", key=task, decision_id=f"request {number}")
                variant = str(decision.arm)  # here you call the model
                reward = reward_of(*outcomes[variant], price)  # here you grade what it said
                client.feedback("answer", decision.decision_id, reward)
                chosen.append(variant)
            return chosen


def main() -> None:
    """Compare what the service chose with each variant alone."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--price", type=float, default=0.15, help="quality that a cent is worth")
    options.add_argument("--make", action="store_true", help="write the outcomes anew, and stop")
    given = options.parse_args()
    if given.make:
        make(RECORDED)
        return
    requests = read(RECORDED)
    chosen = served(requests, given.price)
    ways = {"tacit": chosen} | {variant: [variant] * len(requests) for variant in VARIANTS}
    table = [("answered by", "grade", "cents", "reward")]
    for name, variants in ways.items():
        outcomes = [one[variant] for (_, one), variant in zip(requests, variants, strict=True)]
        grades, cents = zip(*outcomes, strict=True)
        rewards = [reward_of(grade, cost, given.price) for grade, cost in outcomes]
        row = (np.mean(grades), np.mean(cents), np.mean(rewards))
        table.append((name, *(f"{value:.3f}" for value in row)))
    print(align_columns(table))
    last = list(zip(requests, chosen, strict=True))[-200:]
    print("\nof the last 200 requests")
    for task in GOOD:
        of_task = [variant for (each, _), variant in last if each == task]
        often = max(VARIANTS, key=of_task.count)
        print(f"  {task:<10} {often} ({of_task.count(often)} of {len(of_task)})")


if __name__ == "__main__":
    main()
