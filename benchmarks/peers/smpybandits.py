"""SMPyBandits, as its documentation says: choice, then getReward."""

import contextlib
import io

import numpy as np
from SMPyBandits.Policies import (
    SWUCB,
    UCB,
    BernoulliGLR_IndexPolicy,
    CUSUM_IndexPolicy,
    DiscountedThompson,
    DiscountedUCB,
    Exp3,
    Monitored_IndexPolicy,
    Thompson,
    UCBalpha,
    klUCB,
    klUCB_forGLR,
)


def players(policies):
    """Return functions of a seed that give what a policy chooses and learns with."""

    def player(make):
        def seeded(seed):
            np.random.seed(seed)  # noqa: NPY002 the package draws from NumPy's global generator
            with contextlib.redirect_stdout(io.StringIO()):  # it says what it computes
                policy = make()
            policy.startGame()
            return policy.choice, policy.getReward

        return seeded

    return {name: player(make) for name, make in policies.items()}


def classical(stream):
    """The classical policies."""
    arms = stream["chances"].shape[1]
    return players(
        {"UCB1": lambda: UCB(arms), "Thompson": lambda: Thompson(arms), "EXP3": lambda: Exp3(arms, gamma=0.1)}
    )


def changes(stream):
    """What detects or forgets, tuned like tacit's beside it."""
    arms, horizon = stream["chances"].shape[1], len(stream["keys"])
    return players(
        {
            # Its radius is sqrt(alpha·log n/(2·N)): alpha = 8·xi makes it 2·sqrt(xi·log n/N).
            "DiscountedUCB": lambda: DiscountedUCB(arms, alpha=4.8, gamma=0.998),
            "SlidingWindowUCB": lambda: SWUCB(arms, tau=1000, alpha=0.6),
            "CUSUMUCB": lambda: cusum(arms, horizon, 1, 100),
            "MUCB": lambda: Monitored_IndexPolicy(arms, policy=UCB, w=800, b=100.0, gamma=0.05),
            # It tests every tenth reward, at every tenth split: its own defaults.
            "GLRKLUCB": lambda: glr(arms, 1e-3),
        }
    )


def shifting(stream):
    """What may follow a change, and what expects none."""
    arms, horizon = stream["chances"].shape[1], len(stream["keys"])
    policies = {
        f"DiscountedThompson({gamma})": lambda gamma=gamma: DiscountedThompson(arms, gamma=gamma)
        for gamma in (0.99, 0.995)
    }
    return players(
        {
            **policies,
            "BernoulliGLR(0.001)": lambda: glr(arms, 0.001),
            "BernoulliGLR(0.05)": lambda: glr(arms, 0.05),
            "CUSUM(50)": lambda: cusum(arms, horizon, 10, 50),
            "SWUCB(300)": lambda: SWUCB(arms, tau=300, alpha=0.2),
            "UCBalpha(0.25)": lambda: UCBalpha(arms, alpha=0.25),
            "klUCB": lambda: klUCB(arms),
        }
    )


def cusum(arms, horizon, shifts, least):
    """Return its CUSUM-UCB, which tests after every reward."""
    return CUSUM_IndexPolicy(
        arms,
        policy=UCB,
        horizon=horizon,
        max_nb_random_events=shifts,
        epsilon=0.1,
        min_number_of_observation_between_change_point=least,
        use_localization=False,
        lazy_detect_change_only_x_steps=1,
    )


def glr(arms, delta):
    """Return its GLR-klUCB, which restarts every arm."""
    return BernoulliGLR_IndexPolicy(
        arms, policy=klUCB_forGLR, delta=delta, alpha0=0.02, per_arm_restart=False
    )
