"""SMPyBandits, as its documentation says: choice, then getReward."""

import numpy as np
from SMPyBandits.Policies import UCB, Exp3, Thompson


def players(arms, seed):
    """Return a chooser and a learner per algorithm."""
    np.random.seed(seed)  # noqa: NPY002 the package draws from NumPy's global generator
    policies = {"UCB1": UCB(arms), "Thompson": Thompson(arms), "EXP3": Exp3(arms, gamma=0.1)}
    return {name: player(policy) for name, policy in policies.items()}


def player(policy):
    """Return what a policy chooses and learns with."""
    policy.startGame()
    return policy.choice, policy.getReward
