"""Play a peer's algorithms on Bernoulli arms; print steps per second and regret as JSON.

    play.py PEER STEPS SEED MEAN... [/ MEAN...]

After a slash come the means of the second half of the steps. The file ``PEER.py`` beside this one
gives ``players(arms, seed)``: per algorithm a function that chooses an arm, and one that takes the
arm and its reward.
"""

from __future__ import annotations

import json
import random
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def play(
    choose: Callable[[], int],
    learn: Callable[[int, float], Any],
    steps: int,
    seed: int,
    segments: list[list[float]],
) -> tuple[float, float]:
    """Return steps per second and the regret."""
    # A text, so that the clicks do not repeat the draws of a policy seeded with the number.
    uniform = random.Random(f"clicks {seed}").random
    regret = elapsed = 0.0
    for means in segments:
        pulls = [0] * len(means)
        start = time.perf_counter()
        for _ in range(steps // len(segments)):
            arm = choose()
            learn(arm, 1.0 if uniform() < means[arm] else 0.0)
            pulls[arm] += 1
        elapsed += time.perf_counter() - start
        regret += sum(n * (max(means) - mean) for n, mean in zip(pulls, means, strict=True))
    return steps / elapsed, regret


if __name__ == "__main__":
    peer, steps, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    parts = " ".join(sys.argv[4:]).split("/")
    segments = [[float(mean) for mean in part.split()] for part in parts]
    players = runpy.run_path(str(Path(__file__).with_name(f"{peer}.py")))["players"]
    played = {
        algorithm: play(choose, learn, steps, seed, segments)
        for algorithm, (choose, learn) in players(len(segments[0]), seed).items()
    }
    print(json.dumps(played))
