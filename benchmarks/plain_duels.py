"""Beat-the-Mean in plain Python, as one would write it from the paper."""

from __future__ import annotations

import math
import random
import time


def comparisons_per_second(matrix: list[list[float]], kappa: float, steps: int, seed: int) -> float:
    """Play ``steps`` comparisons; a round that removes an arm starts with all that is kept."""
    uniform = random.Random(seed).random
    arms = len(matrix)
    working = list(range(arms))
    wins, plays = [0] * arms, [0] * arms
    won = [[0] * arms for _ in range(arms)]
    met = [[0] * arms for _ in range(arms)]
    least, due = 0, list(working)
    start = time.perf_counter()
    for _ in range(steps):
        pick = int(uniform() * len(due))
        arm = due[pick]
        due[pick] = due[-1]
        due.pop()
        other = working[int(uniform() * len(working))]
        outcome = uniform() < matrix[arm][other]
        wins[arm] += outcome
        won[arm][other] += outcome
        plays[arm] += 1
        met[arm][other] += 1
        if not due:
            least = min(plays[b] for b in working)
            due = [b for b in working if plays[b] == least]
        if least == 0:
            continue
        shares = [wins[b] / plays[b] for b in working]
        worst = min(shares)
        radius = kappa / math.sqrt(least)
        if worst + radius <= max(shares) - radius and len(working) > 2:
            leaving = working.pop(shares.index(worst))
            for b in working:
                wins[b] -= won[b][leaving]
                plays[b] -= met[b][leaving]
            least = min(plays[b] for b in working)
            due = [b for b in working if plays[b] == least]
    return steps / (time.perf_counter() - start)
