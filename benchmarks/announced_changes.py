"""The default with signals beside itself of before and ProbationBandit: regret over an oracle's.

    python benchmarks/announced_changes.py [--seed SEED] [--runs N]

The worlds are those of `python -m studies eventful-robustness`; the oracle is Thompson that is told of each
change. "Before" holds no changes for announced; ProbationBandit has the base Thompson, or KL-UCB. Ratios
of mean regrets, ± standard error over paired runs. Some minutes for 24 runs, with two free processors.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
import tacit
from studies.eventful.eventful_robustness import SCALES, environment
from studies.study import ratio_of

ARMS = DIM = 5
BOX = tacit.classifiers.Rectangle(dim=DIM, margin=0.1, anchored=True)
PLAYERS = {
    "oracle": tacit.policies.OracleRestart(tacit.Thompson(ARMS), signal=DIM),
    "auto": tacit.auto(ARMS, signals_dim=DIM),
    "before": tacit.DriftMixture(ARMS, context_dim=DIM),
    "probation": tacit.policies.ProbationBandit(ARMS, classifier=BOX),
    "probation, KL-UCB": tacit.policies.ProbationBandit(ARMS, classifier=BOX, base="kl-ucb"),
}
CELLS = (
    (0.0, "clean", "plain"),
    (0.0, "false alarms 1e-4", "plain"),
    (0.0, "false alarms 1e-3", "plain"),
    (0.125, "clean", "plain"),
    (0.25, "clean", "plain"),
    (0.25, "noise", "plain"),
    (0.25, "clean", "stealth"),
    (0.25, "false alarms 1e-4", "stealth"),
    (0.25, "noise", "stealth"),
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seed", type=int, default=53099)
    options.add_argument("--runs", type=int, default=24)
    options.add_argument("--scale", choices=list(SCALES), default="practical")
    given = options.parse_args()
    scale = SCALES[given.scale]
    pairs = [("auto", "oracle"), ("before", "oracle"), ("probation", "oracle")]
    pairs += [("auto", player) for player in ("before", "probation", "probation, KL-UCB")]
    print("shifting, signals, events; " + "; ".join(map(" / ".join, pairs)))
    for cell in CELLS:
        world = environment(*cell, scale.queries)
        play = {"horizon": scale.horizon, "runs": given.runs, "seed": given.seed, "checkpoints": 1}
        played = tacit.simulate(list(PLAYERS.values()), world, **play)
        regret = dict(zip(PLAYERS, played.regret[:, :, -1], strict=True))
        ratios = [ratio_of(regret[player], regret[beside]) for player, beside in pairs]
        named = f"{cell[0]:<6} {cell[1]}, {cell[2]}"
        print(f"{named:<40}" + "".join(f"{ratio:>8.2f} ± {error:.2f}" for ratio, error in ratios), flush=True)


if __name__ == "__main__":
    main()
