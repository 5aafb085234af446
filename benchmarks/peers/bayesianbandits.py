"""bayesianbandits: its agents over arms, and its regressions over arms' features."""

import numpy as np
from bayesianbandits import (
    Agent,
    Arm,
    BayesianGLM,
    ContextualAgent,
    DirichletClassifier,
    NormalRegressor,
    ThompsonSampling,
)

COUNTING = ("",)


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


def played_for_users(stream, make):
    """Return a function of a seed: Thompson sampling, over scaled contexts and a constant.

    The regression that ``make`` returns, given how many numbers there are, is one for each arm.
    """
    rows = np.column_stack([stream["scaled"], np.ones(len(stream["scaled"]))])

    def seeded(seed):
        arms = [Arm(arm, learner=make(rows.shape[1])) for arm in range(stream["chances"].shape[1])]
        agent, last = ContextualAgent(arms, ThompsonSampling(), seed), {}

        def choose(t):
            last.update(row=rows[t : t + 1])
            return agent.pull(last["row"])[0]

        def learn(arm, reward):
            agent.select_for_update(arm).update(last["row"], np.array([reward]))

        return choose, learn

    return seeded


def users_normal(stream):
    """Linear regressions; the precision of a weight, and that of the noise."""
    return {
        f"{alpha:g}, {beta:g}": played_for_users(
            stream, lambda dim, alpha=alpha, beta=beta: NormalRegressor(alpha, beta)
        )
        for alpha, beta in ((100.0, 100.0), (400.0, 400.0), (1600.0, 1600.0), (1000.0, 100.0))
    }


def users_glm(stream):
    """Logistic regressions; the precision of a weight, for each number of a context."""
    return {
        f"{scale:g}": played_for_users(stream, lambda dim, scale=scale: BayesianGLM(scale * dim))
        for scale in (0.1, 0.5, 2.0, 8.0)
    }
