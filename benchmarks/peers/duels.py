"""Play duelpy's algorithms on a preference matrix; print duels per second and regret as JSON.

duels.py DUELS SEED ARMS EPSILON
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from duelpy.algorithms import DoubleThompsonSampling, RelativeUCB, Rmed1, WinnerStaysStrongRegret
from duelpy.feedback import MatrixFeedback


class Counted(MatrixFeedback):
    """A matrix that sums up the average regret to arm 0."""

    regret = 0.0
    duels = 0

    def duel(self, left, right):
        """Play a duel."""
        gaps = self.preference_matrix.preferences[0] - 0.5
        self.regret += 0.5 * (gaps[left] + gaps[right])
        self.duels += 1
        return super().duel(left, right)


ALGORITHMS = {
    "RMED1": Rmed1,
    "DoubleThompsonSampling": DoubleThompsonSampling,
    "RUCB": RelativeUCB,
    "WinnerStays": WinnerStaysStrongRegret,
}


def play(algorithm, duels, seed, preferences):
    """Return duels per second and the regret."""
    rng = np.random.RandomState(seed)
    matrix = Counted(preferences, random_state=rng)
    # A step may be several duels, and one beyond the horizon is an error.
    player = algorithm(matrix, time_horizon=2 * duels, random_state=rng)
    start = time.perf_counter()
    while matrix.duels < duels:
        player.step()
    return matrix.duels / (time.perf_counter() - start), matrix.regret


if __name__ == "__main__":
    duels, seed, arms, epsilon = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    upper = np.triu(np.full((arms, arms), float(epsilon)), 1)
    played = {
        name: play(algorithm, duels, seed, 0.5 + upper - upper.T)
        for name, algorithm in ALGORITHMS.items()
    }
    print(json.dumps(played))
