"""duelpy, as its documentation says: step by step, on a preference matrix."""

import numpy as np
from duelpy.algorithms import (
    BeatTheMeanBandit,
    DoubleThompsonSampling,
    DoubleThompsonSamplingPlus,
    RelativeConfidenceSampling,
    RelativeUCB,
    Rmed1,
    WinnerStaysStrongRegret,
)
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


def players(stream, algorithms):
    """Return functions of a seed that give a run."""

    def player(algorithm, parameters):
        def seeded(seed):
            def play():
                rng = np.random.RandomState(seed)
                matrix = Counted(stream["preferences"], random_state=rng)
                duels = int(stream["horizon"])
                # A step may be several duels, and one beyond the horizon is an error.
                learner = algorithm(matrix, time_horizon=2 * duels, random_state=rng, **parameters)
                while matrix.duels < duels:
                    learner.step()
                return matrix.duels, [matrix.regret]

            return play

        return seeded

    return {name: player(kind, parameters) for name, (kind, parameters) in algorithms.items()}


def duels(stream):
    """The algorithms that tacit has, too."""
    return players(
        stream,
        {
            "RMED1": (Rmed1, {}),
            "DoubleThompsonSampling": (DoubleThompsonSampling, {}),
            "RUCB": (RelativeUCB, {}),
            "WinnerStays": (WinnerStaysStrongRegret, {}),
        },
    )


def dueling(stream):
    """What may find the best of several."""
    return players(
        stream,
        {
            "DoubleThompsonSampling": (DoubleThompsonSampling, {}),
            "DoubleThompsonSamplingPlus": (DoubleThompsonSamplingPlus, {}),
            "Rmed1": (Rmed1, {}),
            "RelativeUCB": (RelativeUCB, {}),
            "RelativeConfidenceSampling": (RelativeConfidenceSampling, {}),
            "WinnerStaysStrongRegret(1.5)": (WinnerStaysStrongRegret, {"exploitation_factor": 1.5}),
            "WinnerStaysStrongRegret(2)": (WinnerStaysStrongRegret, {}),
            "BeatTheMeanBandit": (BeatTheMeanBandit, {}),
        },
    )
