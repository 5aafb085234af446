"""EXP3.S: exponential weights that follow a changing best arm (Auer et al. 2002)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from tacit.core import checks
from tacit.core.part import PositiveFraction
from tacit.policies.base import About, Outcome
from tacit.policies.stationary.exp3 import ExponentialWeights, ExponentialWeightsPolicy, gain, total_weight

LEAST_WEIGHT = 1e-300
"""Beside 1."""


@dataclass(frozen=True)
class EXP3S(ExponentialWeightsPolicy):
    """EXP3 that also shares weight among the arms, so that it can follow a changing best arm.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    gamma : float, default 0.1
        Share of uniform exploration, in (0, 1].
    alpha : float, default 1e-4
        Share of the total weight given to every arm each round, in (0, 1].

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Auer, Cesa-Bianchi, Freund, Schapire (2002), "The nonstochastic multiarmed bandit problem",
    figure 4 and corollary 8.3.

    Examples
    --------
    >>> import tacit
    >>> policy = tacit.EXP3S.tuned(arms=5, horizon=30_000, shifts=10)
    >>> round(policy.gamma, 4), policy.alpha == 1 / 30_000
    (0.1087, True)
    """

    about: ClassVar[About] = About(
        source="Auer, Cesa-Bianchi, Freund, Schapire (2002), figure 4",
        regret="O(sqrt(S·K·T·ln(K·T))) against any S arms in sequence (corollary 8.3)",
        assumes="nothing of the rewards but [0, 1]; tuning wants T and S",
        fails="nothing; but with wrong T and S it explores too much or follows late",
        otherwise="Thompson with a discount; both adapt without knowing when intent shifts",
    )
    gamma: float = 0.1
    alpha: PositiveFraction = 1e-4

    @classmethod
    def tuned(cls, arms: int | tuple[str, ...], horizon: int, shifts: int) -> Self:
        """Return the policy with α and γ of corollary 8.3 for ``shifts`` changes in ``horizon``."""
        k = cls(arms).arm_count
        t = checks.integer("horizon", horizon, 1)
        s = checks.integer("shifts", shifts, 1)
        gamma = math.sqrt(k * (s * math.log(k * t) + math.e) / ((math.e - 1) * t))
        return cls(arms, min(1.0, gamma), 1.0 / t)

    @staticmethod
    def learn(params: EXP3S, state: ExponentialWeights, lane: int, outcome: Outcome) -> None:
        arms, arm = outcome.impression.arms, outcome.shown
        # The shared weight keeps every weight within e·α/K of the total, and a gain is bounded: no
        # logarithms needed.
        shared = math.e * params.alpha / len(arms) * total_weight(state, lane, outcome.impression)
        state.weights[lane, arm] *= np.exp(gain(params.gamma, outcome))
        for i in range(len(arms)):
            state.weights[lane, arms[i]] += shared
        if state.weights[lane, arm] > 1e200:
            scale = 1.0 / state.weights[lane, arm]
            for other in range(state.weights.shape[1]):
                # An arm that was long off offer stays above 0, so that it can come back.
                state.weights[lane, other] = max(scale * state.weights[lane, other], LEAST_WEIGHT)
