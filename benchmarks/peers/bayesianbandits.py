"""bayesianbandits: its agents over arms, and its regressions over arms' features."""

import numpy as np
from bayesianbandits import Agent, Arm, BayesianGLM, DirichletClassifier, NormalRegressor, ThompsonSampling


def agent(stream, forgetting=None):
    """Return a function of a seed: Thompson sampling on Beta beliefs, decayed every round."""
    arms = stream["chances"].shape[1]

    def seeded(seed):
        belief = {"0": 1.0, "1": 1.0}
        player = Agent(
            [Arm(arm, learner=DirichletClassifier(belief), **REWARD) for arm in range(arms)],
            ThompsonSampling(),
            random_seed=seed,
        )
        names = {0.0: np.array(["0"]), 1.0: np.array(["1"])}

        def learn(arm, reward):
            player.select_for_update(arm).update(names[reward])
            if forgetting is not None:
                player.decay(forgetting)

        return lambda: player.pull()[0], learn

    return seeded


REWARD = {"reward_function": lambda draws: draws[..., 1]}


def classical(stream):
    """Thompson sampling."""
    return {"Thompson": agent(stream)}


def shifting(stream):
    """What may follow a change: beliefs that decay, every arm's in every round."""
    from bayesianbandits import StabilizedForgetting

    found = {
        f"Thompson, stabilized forgetting, {rate}": agent(stream, StabilizedForgetting(rate))
        for rate in (0.98, 0.99, 0.995)
    }
    return found | {"Thompson": agent(stream)}


def regression(stream, make):
    """Return a function of a seed: Thompson sampling over the arms' features and a constant."""
    features = stream["features"]
    rows = np.hstack([features, np.ones((len(features), 1))])

    def seeded(seed):
        model = make(seed)
        started = []

        def choose(offer):
            # A draw before the first fit needs to know the width.
            return offer[int(np.argmax(model.sample(rows[offer])[0]))] if started else offer[0]

        def learn(arm, reward):
            model.partial_fit(rows[arm : arm + 1], np.array([reward]))
            started.append(arm)

        return choose, learn

    return seeded


def normal(stream, alpha, beta):
    """Return a linear regression's player."""
    return regression(stream, lambda seed: NormalRegressor(alpha, beta, random_state=seed))


def logistic(stream, alpha):
    """Return a logistic regression's player."""
    return regression(stream, lambda seed: BayesianGLM(alpha, random_state=seed))


def contextual(stream):
    """Thompson sampling on its regressions."""
    return {"BayesianGLM": logistic(stream, 1.0), "NormalRegressor": normal(stream, 1.0, 16.0)}


def examination(stream):
    """What may learn arms by their features."""
    found = {
        f"NormalRegressor({alpha:g}, {beta:g})": normal(stream, alpha, beta)
        for alpha, beta in ((1.0, 4.0), (1.0, 16.0), (1.0, 64.0), (1.0, 256.0))
    }
    return found | {f"BayesianGLM({alpha:g})": logistic(stream, alpha) for alpha in (0.5, 1.0, 5.0, 20.0)}
