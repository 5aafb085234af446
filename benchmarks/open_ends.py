"""What Beat-the-Mean guarantees, and what it costs: beside RMED1, Double Thompson and the default.

python benchmarks/open_ends.py            some minutes; writes OPEN_ENDS.md
python benchmarks/open_ends.py --quick    fewer runs and duels; prints only
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from tables import markdown

import tacit
from tacit.core.text import align_columns

HERE = Path(__file__).parent
SEED = 2011
LATE = 0.9
"""From this share of the horizon on a run is asked whether it has settled."""
SETTLED = 0.005
"""Regret per duel below which it has: a twentieth of the least gap."""
FIGURES = {
    "figure 1: equal gaps of 0.1, γ = 1": "uniform-gap({}, 0.1)",
    "figure 2: relaxed chain, γ = 1.3": "relaxed-chain({}, 1.3)",
}


def contenders(arms: int, horizon: int, gamma: float) -> dict[str, Any]:
    """Return the policies that are compared."""
    found = {"BeatTheMean, guaranteed": tacit.policies.BeatTheMean(arms, horizon=horizon, gamma=gamma)}
    if gamma > 1:
        narrow = tacit.policies.BeatTheMean(arms, horizon=horizon, scale=1)
        found["BeatTheMean, radius (9), not guaranteed"] = narrow
    default = tacit.auto(arms, shows="duel")
    found[f"{default.label}, the default"] = default
    for policy in (tacit.policies.RMED1(arms), tacit.policies.baselines.DoubleThompsonSampling(arms)):
        if policy != default:
            found[policy.label] = policy
    return found


def played(matrix: str, arms: int, horizon: int, runs: int) -> list[list[str]]:
    """Return a row for each policy: regret, worst run, and runs that have not settled."""
    environment = tacit.PreferenceMatrix(matrix.format(arms))
    gamma = 1.3 if "1.3" in matrix else 1.0
    rows = []
    for name, policy in contenders(arms, horizon, gamma).items():
        when = [int(LATE * horizon), horizon]
        result = tacit.simulate(
            policy, environment, horizon, runs=runs, seed=SEED, workers=1, checkpoints=when
        )
        late, regret = result.regret[0].T
        slope = (regret - late) / (horizon - when[0])
        error = regret.std(ddof=1) / np.sqrt(runs)
        rows.append(
            [
                f"{arms}",
                f"{horizon:,}",
                name,
                f"{regret.mean():,.0f} ± {error:,.0f}",
                f"{regret.max():,.0f}",
                f"{int((slope > SETTLED).sum())} of {runs}",
            ]
        )
        print(" | ".join(rows[-1]), flush=True)
    return rows


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer runs and duels; prints only")
    quick = parser.parse_args().quick
    settings = [(10, 10**6), (50, 10**6), (10, 10**7), (50, 10**7)]
    runs = 10
    if quick:
        settings, runs = [(10, 10**5), (50, 10**5)], 5
    parts = [
        "# Beat-the-Mean, and what it costs\n\nRegret (equation 1 of Yue and Joachims 2011) of "
        f"{runs} runs, seed {SEED}: mean ± standard error, the worst run, and how many runs still "
        f"had a regret above {SETTLED} a duel in the last tenth. Written by `python "
        "benchmarks/open_ends.py`."
    ]
    for title, matrix in FIGURES.items():
        print(f"\n{title}")
        rows = [row for arms, horizon in settings for row in played(matrix, arms, horizon, runs)]
        head = ["arms", "duels", "policy", "regret", "worst run", "not settled"]
        parts.append(f"## {title[0].upper()}{title[1:]}\n\n{markdown(head, rows)}")
        print(align_columns([head, *rows]))
    if not quick:
        (HERE / "OPEN_ENDS.md").write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
