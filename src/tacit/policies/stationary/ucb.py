"""UCB1 and KL-UCB: optimism in the face of uncertainty, by Hoeffding's bound and by Bernoulli's own."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np

from tacit.core.dispatch import kernel
from tacit.core.part import Positive, within
from tacit.policies.base import About, Counts
from tacit.policies.index import LATER, CountingPolicy, RadiusPolicy


@dataclass(frozen=True, repr=False)
class UCB1(CountingPolicy, RadiusPolicy):
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


# ---- KL-UCB: optimism with the exact shape of Bernoulli deviations (Garivier, Cappé 2011)


@kernel
def bernoulli_kl(p: float, q: float) -> float:
    """Return the Kullback–Leibler divergence of Bernoulli(p) from Bernoulli(q)."""
    divergence = 0.0
    if p > 0.0:
        divergence += p * np.log(p / q) if q > 0.0 else math.inf
    if p < 1.0:
        divergence += (1.0 - p) * np.log((1.0 - p) / (1.0 - q)) if q < 1.0 else math.inf
    return float(divergence)


@kernel
def kl_upper_bound(mean: float, budget: float) -> float:
    """Return the largest q ≥ mean with kl(mean, q) ≤ budget, to 1e-9.

    Newton's method from above on a convex function never crosses the root, so it needs no
    safeguard: the start is Pinsker's bound, or 1 where that is nearer.
    """
    if mean >= 1.0:
        return 1.0
    if mean < 1e-15:
        return float(max(-np.expm1(-budget), mean))
    # 1 − (1 − mean)·exp(−(budget + H)/(1 − mean)) bounds q too and, unlike 1, is below 1.
    entropy = -mean * np.log(mean) - (1.0 - mean) * np.log(1.0 - mean)
    tail = np.exp(-(budget + entropy) / (1.0 - mean))
    if tail < 1e-12:
        return float(1.0 - tail)
    q = min(mean + np.sqrt(0.5 * budget), 1.0 - tail)
    for _ in range(50):
        slope = (q - mean) / (q * (1.0 - q))
        if not slope > 0.0:
            break
        step = (bernoulli_kl(mean, q) - budget) / slope
        # Only rounding, next to the root, makes a step that is not downwards.
        if not step > 0.0:
            break
        q -= step
        if step < 1e-10:
            break
    return float(max(q, mean))


@kernel
def kl_index(counts: Any, lane: int, arm: int, budget: float) -> float:
    """Return the largest q with plays·kl(mean, q) ≤ budget; infinity before an arm's first play."""
    plays = counts.plays[lane, arm]
    if plays == 0.0:
        return math.inf
    return kl_upper_bound(counts.rewards[lane, arm] / plays, budget / plays)


@kernel
def kl_budget(counts: Counts, lane: int, c: float) -> float:
    """Return ln t + c·ln ln t in round t of a key."""
    log_t = np.log(counts.rounds[lane] + 1.0)
    return float(log_t + c * np.log(log_t)) if log_t > 1.0 else float(log_t)


@dataclass(frozen=True, repr=False)
class KLUCB(CountingPolicy):
    """Play the arm with the highest Kullback–Leibler upper confidence bound.

    The index of an arm with mean μ after n plays, in round t of its key, is the largest q with
    n·kl(μ, q) ≤ ln t + c·ln ln t. An arm that was never played comes before all that were.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    c : float, default 0
        Weight of ln ln t; at least 0. The proof wants 3, the authors recommend 0.
    priors : dict of arm to (float, float), optional
        Successes and failures known of arms before: each key begins as if it had been shown the arm
        so often. ``{"film": (4, 96)}`` is 4 clicks in 100 impressions.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Garivier, Cappé (2011), "The KL-UCB algorithm for bounded stochastic bandits and beyond",
    algorithm 1.

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.KLUCB(arms=3), seed=1)
    >>> sorted(learner.choose(key).arm in (0, 1, 2) for key in ["a", "b"])
    [True, True]
    """

    about: ClassVar[About] = About(
        source="Garivier, Cappé (2011), algorithm 1",
        regret="Σ Δ/kl(μ, μ*)·ln T, asymptotically optimal (theorem 2)",
        assumes="click probabilities that never change",
        fails="goes on showing what was best for long after a shift",
        otherwise="EXP3S, or Thompson with a discount, where intent shifts",
    )

    c: Annotated[float, within(0.0, 1000000.0)] = 0.0
    priors: Any = field(default=(), kw_only=True, metadata=LATER)

    @staticmethod
    def confidence(params: KLUCB, state: Counts, lane: int) -> float:
        return kl_budget(state, lane, params.c)

    @staticmethod
    def index(params: KLUCB, state: Counts, lane: int, arm: int, confidence: float) -> float:
        return kl_index(state, lane, arm, confidence)
