"""Levels of arms by key: how much better or worse an arm is for a key than for the average of all keys.

Keys that share a model of contexts may like other arms. Each key and arm has a level, which is added to the
logit of a click: 0 under the hypothesis that keys are alike, else normal around 0, narrow or wide. Hypotheses
are weighed, over all keys, by their predictions. With a single key nothing is computed.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.core.arrays import Floats
from tacit.core.dispatch import kernel
from tacit.core.state_ranges import Count, ValueRange
from tacit.policies.features.gaussian import sigmoid
from tacit.policies.features.mixture import log_predictive

# Prior variances of levels under the two hypotheses that keys differ.
VARIANCES = (0.25, 2.5)
# Prior weights of the hypotheses.
WEIGHTS = (0.9, 0.05, 0.05)
ALIKE = 0
HYPOTHESES = 1 + len(VARIANCES)
LOGIT_SHRINK = 0.125 * np.pi
# No reward is less likely than this, as a logarithm.
UNLIKELIEST = -40.0


class KeyLevels(NamedTuple):
    """State of the levels of arms by key.

    Attributes
    ----------
    means : array of float32, shape (lanes, arms, 2)
        Mean of the level under each hypothesis that keys differ.
    learned : array of float32, shape (lanes, arms, 2)
        Precision that was learned; that of the prior is added.
    met : array of int8, shape (lanes,)
        1 if the key was learned from.
    keys : array of float64, shape (1,)
        Number of keys that were learned from.
    weights : array of float64, shape (1, 3)
        Weights of the hypotheses: keys are alike, or differ little, or differ much.
    rounds : array of float64, shape (1,)
        Rewards by which hypotheses were weighed.
    """

    means: npt.NDArray[np.float32]
    learned: Annotated[npt.NDArray[np.float32], ValueRange(0)]
    met: Annotated[npt.NDArray[np.int8], ValueRange(0, 1)]
    keys: Count
    weights: Floats
    rounds: Count

    @classmethod
    def initial(cls, lanes: int, arms: int) -> KeyLevels:
        """Return the state before the first reward, with the prior weights of the hypotheses."""
        shape = (lanes, arms, len(VARIANCES))
        means, learned = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        met, weights = np.zeros(lanes, np.int8), np.array([WEIGHTS])
        return cls(means, learned, met, np.zeros(1), weights, np.zeros(1))


@kernel
def read_level(levels: KeyLevels, lane: int, arm: int, j: int) -> tuple[float, float]:
    """Return the mean and variance of an arm's level for a key, under hypothesis ``j`` of the two by which
    keys differ.
    """
    precision = 1.0 / VARIANCES[j] + float(levels.learned[lane, arm, j])
    return float(levels.means[lane, arm, j]), 1.0 / precision


@kernel
def mix_level(levels: KeyLevels, lane: int, arm: int) -> tuple[float, float]:
    """Return the mean and variance of an arm's level for a key, averaged over hypotheses; 0 while there is
    one key.
    """
    if levels.keys[0] < 2.0:
        return 0.0, 0.0
    mean, square = 0.0, 0.0
    for j in range(len(VARIANCES)):
        level, variance = read_level(levels, lane, arm, j)
        weight = levels.weights[0, 1 + j]
        mean += weight * level
        square += weight * (variance + level * level)
    return mean, square - mean * mean


@kernel
def learn_level(
    levels: KeyLevels, lane: int, arm: int, logit: float, variance: float, reward: float, times: float
) -> None:
    """Weigh the hypotheses by a reward, counted as ``times`` clicks, and update the arm's levels for the key.

    ``logit`` and ``variance`` are mean and variance of the arm's logit without its level. While there is one
    key, only count the key.
    """
    levels.keys[0] += 1.0 - levels.met[lane]
    levels.met[lane] = 1
    if levels.keys[0] < 2.0:
        return
    weights, total = levels.weights[0], 0.0
    weights[ALIKE] *= np.exp(max(times * log_predictive(logit, variance, reward), UNLIKELIEST))
    for j in range(len(VARIANCES)):
        level, spread = read_level(levels, lane, arm, j)
        likelihood = times * log_predictive(logit + level, variance + spread, reward)
        weights[1 + j] *= np.exp(max(likelihood, UNLIKELIEST))
        # The reward becomes an observation of the level, with Gaussian ``noise``: the click's curve is
        # replaced by its tangent.
        mean = sigmoid((logit + level) / np.sqrt(1.0 + LOGIT_SHRINK * (variance + spread)))
        slope = mean * (1.0 - mean)
        noise = 1.0 / (times * slope) + variance
        levels.means[lane, arm, j] = level + spread / (spread + noise) * (reward - mean) / slope
        levels.learned[lane, arm, j] = float(levels.learned[lane, arm, j]) + 1.0 / noise
    for h in range(HYPOTHESES):
        total += weights[h]
    levels.rounds[0] += 1.0
    # Mixing in the prior weights keeps every hypothesis possible.
    share = 1.0 / (levels.rounds[0] + 1.0)
    for h in range(HYPOTHESES):
        weights[h] = (1.0 - share) * weights[h] / total + share * WEIGHTS[h]
