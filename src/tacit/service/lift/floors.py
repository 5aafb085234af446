"""Whether every arm on offer is shown now and then, so that a winner may be declared."""

from __future__ import annotations

from tacit.policies import (
    EXP3,
    EXP3S,
    EpsilonGreedy,
    ExplorationFloor,
    LinearEpsilonGreedy,
    Policy,
    ShiftMixture,
    UniformRandom,
)
from tacit.service.config.holdout import HoldoutConfig


def floor_of(policy: Policy, holdout: HoldoutConfig | None = None) -> float:
    """Return in which share of decisions an arm is drawn uniformly, whatever was learned.

    Parameters
    ----------
    policy : Policy
    holdout : HoldoutConfig, optional

    Examples
    --------
    >>> from tacit.policies import UCB1
    >>> floor_of(EpsilonGreedy(arms=3, epsilon=0.2)), floor_of(UCB1(arms=3))
    (0.2, 0.0)
    >>> floor_of(UCB1(arms=3), HoldoutConfig(share=0.1))
    0.1
    """
    own = 0.0
    if isinstance(policy, UniformRandom):
        own = 1.0
    elif isinstance(policy, EXP3 | EXP3S):
        own = policy.gamma
    elif isinstance(policy, EpsilonGreedy | ExplorationFloor | LinearEpsilonGreedy):
        own = policy.epsilon
    elif isinstance(policy, ShiftMixture):
        own = policy.params.exploration
    if holdout is None:
        return own
    uniform = 1.0 if holdout.control == "uniform" else 0.0
    return (1 - holdout.share) * own + holdout.share * uniform
