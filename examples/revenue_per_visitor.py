"""Which banner earns the most for each visitor, how much more is that, and is more of it sent back?

Few visitors buy, and for any amount: the metric that is learned, ``revenue``, has no largest amount. Three of
ten visitors are the control and see banners drawn uniformly, by which the lift is measured. The guardrail
watches returns and tells if learning leads to more of them. Sales are made up here.

    python examples/revenue_per_visitor.py
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

import numpy as np

from tacit.client import Client, Feedback, Impression
from tacit.core.text import align_columns
from tacit.service.app.server import run_in_thread
from tacit.service.config.file import load_config

BANNERS = {"plain": (0.05, 40.0, 0.05), "bundle": (0.04, 110.0, 0.06), "sale": (0.09, 25.0, 0.30)}
"""Of each banner: the share of visitors who buy, the mean amount, and the share of sales that come back."""
ROUNDS, VISITORS = 60, 500
PLACEMENT = {
    "arms": list(BANNERS),
    "seed": 1,
    "reward": "revenue",
    "aggregation": "sum",
    "attribution_window": 5.0,  # seconds; of a real shop: days
    "metrics": {"revenue": {"range": [0]}, "returns": {"range": [0, 1], "better": "less"}},
    "holdout": {"share": 0.3},
    "guardrail": {"metric": "returns", "margin": 0.01, "then": "tell"},
}


def visit(banner: str, rng: np.random.Generator) -> dict[str, float] | None:
    """Return what a visitor who sees a banner buys and sends back, as metrics; None for nothing."""
    buys, mean, returned = BANNERS[banner]
    if rng.random() >= buys:
        return None
    amount = round(mean * float(rng.lognormal(-0.5, 1.0)), 2)
    return {"revenue": amount, "returns": float(rng.random() < returned)}


def sell(client: Client, rng: np.random.Generator) -> dict[str, list[float]]:
    """Decide for all visitors and send what they buy; return the amounts by banner, 0 for nothing bought."""
    earned: dict[str, list[float]] = {banner: [] for banner in BANNERS}
    for _ in range(ROUNDS):
        decisions = client.decide_many("home", [Impression("home page")] * VISITORS)
        visits = [(decision, visit(decision.arm, rng)) for decision in decisions]
        client.feedback_many(
            "home", [Feedback(decision.decision_id, metrics=bought) for decision, bought in visits if bought]
        )
        for decision, bought in visits:
            earned[decision.arm].append(bought["revenue"] if bought else 0.0)
    while client.lift("home").pending:  # until the last windows are closed
        time.sleep(0.1)
    return earned


def main() -> None:
    """Print what each banner earned, the lift and the verdicts on the metrics."""
    with tempfile.TemporaryDirectory() as folder:
        overrides: dict[str, Any] = {"server.port": 0, "store.path": f"{folder}/tacit.db"}
        overrides["placements"] = {"home": PLACEMENT}
        with run_in_thread(load_config(overrides=overrides)) as address, Client(address) as client:
            earned = sell(client, np.random.default_rng(1))
            lift = client.lift("home")
    rows = [["banner", "shown", "revenue per visitor", "in truth"]]
    for banner, amounts in earned.items():
        buys, mean, _ = BANNERS[banner]
        rows.append([banner, str(len(amounts)), f"{np.mean(amounts):.2f}", f"{buys * mean:.2f}"])
    print(align_columns(rows))
    print(lift.verdict, *(metric.verdict for metric in lift.metrics), sep="\n")


if __name__ == "__main__":
    main()
