"""SMPyBandits' policies for piecewise stationary arms, tuned like tacit's beside them."""

import contextlib
import io

import numpy as np
from SMPyBandits.Policies import (
    SWUCB,
    UCB,
    BernoulliGLR_IndexPolicy,
    CUSUM_IndexPolicy,
    DiscountedUCB,
    Monitored_IndexPolicy,
    klUCB_forGLR,
)


def players(arms, seed):
    """Return a chooser and a learner per algorithm."""
    np.random.seed(seed)  # noqa: NPY002 the package draws from NumPy's global generator
    with contextlib.redirect_stdout(io.StringIO()):  # it says what it computes
        policies = {
            # Its radius is sqrt(alpha·log n/(2·N)): alpha = 8·xi makes it 2·sqrt(xi·log n/N).
            "DiscountedUCB": DiscountedUCB(arms, alpha=4.8, gamma=0.998),
            "SlidingWindowUCB": SWUCB(arms, tau=1000, alpha=0.6),
            "CUSUMUCB": CUSUM_IndexPolicy(
                arms,
                policy=UCB,
                horizon=10_000,
                max_nb_random_events=1,
                epsilon=0.1,
                min_number_of_observation_between_change_point=100,
                use_localization=False,
                lazy_detect_change_only_x_steps=1,
            ),
            "MUCB": Monitored_IndexPolicy(arms, policy=UCB, w=800, b=100.0, gamma=0.05),
            # It tests every tenth reward, at every tenth split: its own defaults.
            "GLRKLUCB": BernoulliGLR_IndexPolicy(
                arms, policy=klUCB_forGLR, delta=1e-3, alpha0=0.02, per_arm_restart=False
            ),
        }
    return {name: player(policy) for name, policy in policies.items()}


def player(policy):
    """Return what a policy chooses and learns with."""
    policy.startGame()
    return policy.choice, policy.getReward
