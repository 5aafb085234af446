"""UCB1: optimism in the face of uncertainty (Auer, Cesa-Bianchi, Fischer 2002)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np

from tacit.core.part import Positive, within
from tacit.policies.base import About, Counts
from tacit.policies.index import LATER, CountingPolicy


@dataclass(frozen=True, repr=False)
class UCB1(CountingPolicy):
    """Play the arm with the highest upper confidence bound.

    The index of an arm with mean μ after n plays, in round t of its key, is
    μ + α·sqrt(8·ln(t0 + t)/n). The default, α = 1/2 and t0 = 0, is the classical UCB1, whose
    radius is sqrt(2·ln t/n) = ½·sqrt(8·ln t/n); α = 1 is the radius as Syed et al. quote it.
    An arm that was never played comes before all that were.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    alpha : float, default 0.5
        Scale of the confidence radius; above 0.
    t0 : float, default 0
        Rounds added to the clock inside the logarithm; at least 0.
    priors : dict of arm to (float, float), optional
        Successes and failures known of arms before: each key begins as if it had been shown the arm
        so often. ``{"film": (4, 96)}`` is 4 clicks in 100 impressions.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Auer, Cesa-Bianchi, Fischer (2002), "Finite-time analysis of the multiarmed bandit problem",
    figure 1. The parameters α and t0: Syed, Slivkins, Mishra (2009), section 6.

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.UCB1(arms=["holiday", "film"]), seed=1)
    >>> for _ in range(100):
    ...     decision = learner.choose("independence day")
    ...     _ = learner.learn(decision, reward=1.0 if decision.arm == "film" else 0.0)
    >>> learner.choose("independence day").arm
    'film'
    """

    about: ClassVar[About] = About(
        source="Auer, Cesa-Bianchi, Fischer (2002), figure 1",
        regret="Σ 8·ln T/Δ + (1 + π²/3)·Δ over the suboptimal arms (theorem 1)",
        assumes="click probabilities that never change",
        fails="goes on showing what was best for long after a shift",
        otherwise="EXP3S, or Thompson with a discount, where intent shifts",
    )

    alpha: Positive = 0.5
    t0: Annotated[float, within(0.0, 2.0**53)] = 0.0
    priors: Any = field(default=(), kw_only=True, metadata=LATER)

    @staticmethod
    def confidence(params: UCB1, state: Counts, lane: int) -> float:
        return float(params.alpha * np.sqrt(8.0 * np.log(params.t0 + state.rounds[lane] + 1.0)))

    @staticmethod
    def index(params: UCB1, state: Counts, lane: int, arm: int, confidence: float) -> float:
        plays = state.plays[lane, arm]
        if plays == 0.0:
            return math.inf
        return float(state.rewards[lane, arm] / plays + confidence / np.sqrt(plays))
