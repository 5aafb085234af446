"""What policies would be worth on logs of Open Bandit: users of a shop, shown items at random.

python benchmarks/context_log.py FOLDER    with random/men and bts/men in it

The log that judges is that of the uniform policy; what is fitted beforehand is fitted to the other one.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import page
from sklearn.linear_model import Ridge

import tacit
from tacit.errors import AssumptionWarning
from tacit.evaluate import IPS, DoublyRobust, Greedy, Predicted, Table, Uniform, arms_of, off_policy

CAMPAIGN = "men"
SCHEMA = {f"user_feature_{i}": "category" for i in range(4)}
"""What is known of a user: four categories of few values, hashed."""
PENALTY = 30.0
"""Of the ridge regressions: about a tenth of an item's rows."""


def opened(folder: Path, policy: str) -> Any:
    """Return the log of a policy, with users as contexts."""
    return tacit.read_log(folder / policy / CAMPAIGN, columns={"context": SCHEMA})


def by_ridge(log: Any) -> Greedy:
    """Return who shows the best item for each user by a ridge regression for each, and any in a tenth."""
    rows = list(log)
    arm = np.concatenate([batch["arm"].to_numpy(zero_copy_only=False) for batch in rows])
    context = np.concatenate([np.array(batch["context"].to_pylist()) for batch in rows])
    reward = np.concatenate([batch["reward"].to_numpy() for batch in rows])
    models = {
        str(name): Ridge(PENALTY).fit(context[arm == name], reward[arm == name]) for name in np.unique(arm)
    }
    return Greedy(Predicted(models), 0.1)


def by_position(log: Any) -> tuple[Table, float]:
    """Return how often each item is shown at each position, and what that earns."""
    shown: dict[str, Counter[str]] = {}
    clicks = rows = 0
    for batch in log:
        for place, arm in zip(batch["position"].to_pylist(), batch["arm"].to_pylist(), strict=True):
            shown.setdefault(str(place), Counter())[arm] += 1
        clicks, rows = clicks + sum(batch["reward"].to_pylist()), rows + len(batch)
    shares = {
        place: {arm: count / arms.total() for arm, count in arms.items()} for place, arms in shown.items()
    }
    return Table(shares, per="position"), clicks / rows


def values(folder: Path | None) -> list[dict[str, Any]]:
    """Return the value of each target with its intervals; nothing, and a line said, without the logs."""
    if folder is None or not (folder / "random" / CAMPAIGN).is_dir():
        print(f"left out: Open Bandit's logs; --data FOLDER with random/{CAMPAIGN} and bts/{CAMPAIGN} in it")
        return []
    log, other = opened(folder, "random"), opened(folder, "bts")
    arms = arms_of(log)
    fixed, earned = by_position(other)
    targets = {
        "uniform": Uniform(),
        f"Open Bandit's Thompson sampling, by position (earned {100 * earned:.2f})": fixed,
        "tacit, no context, learning": tacit.auto(arms=arms),
        "tacit, users as context, learning": tacit.auto(arms=arms, context=SCHEMA),
        "ridge for each item, of users": by_ridge(other),
    }
    return [{"target": name, **judged(target, log)} for name, target in targets.items()]


def judged(target: Any, log: Any) -> dict[str, Any]:
    """Return what the estimators say of a target."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssumptionWarning)
        found = off_policy(target, log, [IPS(), DoublyRobust()])
    ips, robust = found.estimates
    return {
        "rows": found.rows,
        "effective": ips.effective_sample_size,
        "ips": ips.value,
        "normal": ips.intervals["normal"],
        "anytime": ips.intervals["anytime"],
        "robust": robust.value,
        "robust_normal": robust.intervals["normal"],
    }


def table(found: list[dict[str, Any]]) -> str:
    """Return the table; rates in clicks of a hundred impressions."""

    def hundredth(value: float) -> str:
        return f"{100 * value:.2f}"

    def between(bounds: Any) -> str:
        return f"[{hundredth(bounds[0])}, {hundredth(bounds[1])}]"

    rows = [
        (
            row["target"],
            hundredth(row["ips"]),
            between(row["normal"]),
            between(row["anytime"]),
            f"{hundredth(row['robust'])} {between(row['robust_normal'])}",
            page.number(row["effective"]),
        )
        for row in found
    ]
    head = "target | IPS, % | normal 95 % | any time 95 % | doubly robust, normal 95 % | rows that count"
    return page.table(head, rows) if rows else ""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    print(table(values(parser.parse_args().folder)))


if __name__ == "__main__":
    main()
