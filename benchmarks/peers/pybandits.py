"""pybandits, as its documentation says: predict, then update."""

import sys

import numpy as np

# It logs every model that it makes.
with open("/dev/null", "w") as sys.stderr:
    from pybandits.offline_policy_estimator import (
        DoublyRobust,
        InverseProbabilityWeighting,
        SelfNormalizedInverseProbabilityWeighting,
    )
    from pybandits.smab import SmabBernoulli
sys.stderr = sys.__stderr__


COUNTING = ("",)


def classical(stream):
    """Thompson sampling; its arms have names."""
    names = [str(arm) for arm in range(stream["chances"].shape[1])]

    def seeded(seed):
        np.random.seed(seed)  # noqa: NPY002 the package draws from NumPy's global generator
        bandit = SmabBernoulli.cold_start(action_ids=set(names))
        return (
            lambda: int(bandit.predict(n_samples=1)[0][0]),
            lambda arm, reward: bandit.update(actions=[names[arm]], rewards=[int(reward)]),
        )

    return {"Thompson": seeded}


def shifting(stream):
    """What it has: it does not forget."""
    return classical(stream)


def weighing(stream):
    """Its estimators, without their bootstrap."""
    logged, rewards = stream["logged"], stream["rewards"].astype(int)
    rows = len(logged)
    given = {
        "action": logged,
        "reward": rewards,
        "propensity_score": stream["propensities"],
        "estimated_policy": np.tile(stream["target"], (rows, 1)),
        "expected_reward": np.tile(stream["model"], (rows, 1)),
    }

    def player(kind):
        def seeded(seed):
            estimator = kind()
            return lambda: (rows, [float(np.mean(estimator.estimate_sample_rewards(**given)))])

        return seeded

    return {
        "IPS": player(InverseProbabilityWeighting),
        "SNIPS": player(SelfNormalizedInverseProbabilityWeighting),
        "DR": player(DoublyRobust),
    }
