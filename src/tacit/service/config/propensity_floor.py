"""A lower bound of the propensities, which a declared winner requires."""

from __future__ import annotations

from tacit import policies
from tacit.service.config.holdout import HoldoutConfig


def compute_floor(policy: policies.Policy, holdout: HoldoutConfig | None = None) -> float:
    """Return a lower bound of each arm's propensity multiplied by the number of arms.

    It holds whatever the policy learns; 0 if no bound is known.

    Parameters
    ----------
    policy : Policy
    holdout : HoldoutConfig, optional

    Examples
    --------
    >>> from tacit.policies import UCB1, EpsilonGreedy
    >>> compute_floor(EpsilonGreedy(arms=3, epsilon=0.2)), compute_floor(UCB1(arms=3))
    (0.2, 0.0)
    >>> compute_floor(UCB1(arms=3), HoldoutConfig(share=0.1))
    0.1
    """
    floor = _compute_policy_floor(policy)
    if holdout is None:
        return floor
    uniform = 1.0 if holdout.control == "uniform" else 0.0
    return (1 - holdout.share) * floor + holdout.share * uniform


def _compute_policy_floor(policy: policies.Policy) -> float:
    """Return the bound of :func:`compute_floor` for a policy without a holdout."""
    if isinstance(policy, policies.UniformRandom):
        return 1.0
    if isinstance(policy, policies.EXP3 | policies.baselines.EXP3S):
        return float(policy.gamma)
    if isinstance(policy, policies.ExplorationFloor):
        floor = policy.epsilon + (1 - policy.epsilon) * _compute_policy_floor(policy.policy)
        if not isinstance(policy, policies.MinimumShares):
            return floor
        # Promised shares come first; if all arms have one, the least of them bounds every arm.
        promised: list[float] = [share for _, share in policy.at_least]
        all_have = len(promised) == policy.arm_count and policy.showing.single
        equal_floor = policy.arm_count * min(promised) if all_have else 0.0
        return equal_floor + (1 - sum(promised)) * floor
    if isinstance(policy, policies.EpsilonGreedy | policies.LinearEpsilonGreedy):
        return policy.epsilon
    return float(policy.params.exploration) if isinstance(policy, policies.ShiftMixture) else 0.0
