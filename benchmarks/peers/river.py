"""river, as its documentation of ``river.bandit`` says: pull, then update."""

import random

import numpy as np
from river import bandit, linear_model, optim, proba, stats

COUNTING = ("ThompsonSampling",)


def player(make):
    """Return a function of a seed that gives what a policy chooses and learns with."""

    def seeded(stream_arms):
        def players(seed):
            policy = make(seed)
            return lambda: policy.pull(stream_arms), policy.update

        return players

    return seeded


def players(stream, policies):
    """Return the players of policies, each a function of a seed."""
    arms = range(stream["chances"].shape[1])
    return {name: player(make)(arms) for name, make in policies.items()}


def classical(stream):
    """The classical policies."""
    return players(
        stream,
        {
            "UCB1": lambda seed: bandit.UCB(delta=1, seed=seed),
            "Thompson": lambda seed: bandit.ThompsonSampling(reward_obj=proba.Beta(), seed=seed),
            "EXP3": lambda seed: bandit.Exp3(gamma=0.1, seed=seed),
        },
    )


def shifting(stream):
    """What may follow a change: moving means. The clone that a policy makes of a rolling window,
    one per arm, has no window, so Thompson sampling cannot forget.
    """
    policies = {
        f"EpsilonGreedy({epsilon}), moving mean, {fading}": (
            lambda seed, epsilon=epsilon, fading=fading: bandit.EpsilonGreedy(
                epsilon=epsilon, reward_obj=stats.EWMean(fading), seed=seed
            )
        )
        for epsilon, fading in ((0.01, 0.02), (0.01, 0.05), (0.05, 0.02), (0.05, 0.05), (0.1, 0.05))
    }
    policies["ThompsonSampling"] = lambda seed: bandit.ThompsonSampling(reward_obj=proba.Beta(), seed=seed)
    policies["UCB(0.1)"] = lambda seed: bandit.UCB(delta=0.1, seed=seed)
    policies["UCB(0.25)"] = lambda seed: bandit.UCB(delta=0.25, seed=seed)
    return players(stream, policies)


def replay(stream):
    """Its replay of a log of uniform choices."""
    arms = list(range(len(stream["means"])))
    log = list(zip(stream["logged"].tolist(), stream["rewards"].tolist(), strict=True))

    def seeded(seed):
        def play():
            policy = bandit.UCB(delta=1, seed=seed)
            history = ((arms, None, arm, reward) for arm, reward in log)
            total, matched = bandit.evaluate_offline(policy, history)
            return len(log), [total.get() / matched]

        return play

    return {"UCB1": seeded}


def with_constant(stream):
    """Return a dict for each user: scaled contexts and a constant."""
    rows = np.column_stack([stream["scaled"], np.ones(len(stream["scaled"]))])
    return [dict(enumerate(row)) for row in rows.tolist()]


def users_linucb(stream):
    """LinUCB; the precision of a weight, and that of the noise."""
    arms, rows = list(range(stream["chances"].shape[1])), with_constant(stream)

    def player(alpha, beta):
        def seeded(seed):
            policy, last = bandit.LinUCBDisjoint(alpha=alpha, beta=beta, seed=seed), {}

            def choose(t):
                last.update(row=rows[t])
                return policy.pull(arms, context=rows[t])

            return choose, lambda arm, reward: policy.update(arm, last["row"], reward)

        return seeded

    found = ((25.0, 25.0), (100.0, 100.0), (400.0, 400.0), (1000.0, 100.0))
    return {f"{alpha:g}, {beta:g}": player(alpha, beta) for alpha, beta in found}


def users_epsilon(stream):
    """An arm at random every so often, else the best by a logistic regression for each arm."""
    arms, rows = list(range(stream["chances"].shape[1])), with_constant(stream)

    def player(epsilon, optimizer):
        def seeded(seed):
            models = [linear_model.LogisticRegression(optimizer.clone()) for _ in arms]
            rng, last = random.Random(seed), {}

            def choose(t):
                last.update(row=rows[t])
                if rng.random() < epsilon:
                    return rng.choice(arms)
                scores = [model.predict_proba_one(rows[t])[True] for model in models]
                best = max(scores)
                return rng.choice([arm for arm in arms if scores[arm] == best])

            return choose, lambda arm, reward: models[arm].learn_one(last["row"], reward > 0.0)

        return seeded

    optimizers = optim.SGD(0.01), optim.SGD(0.05), optim.AdaGrad(0.1), optim.AdaGrad(0.3)
    return {
        f"{epsilon}, {type(optimizer).__name__}({optimizer.learning_rate:g})": player(epsilon, optimizer)
        for epsilon in (0.005, 0.02)
        for optimizer in optimizers
    }
