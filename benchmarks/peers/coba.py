"""coba: its learners, asked and taught as its evaluators do."""

import numpy as np
from coba.learners import BanditEpsilonLearner, BanditUCBLearner, LinTSLearner, LinUCBLearner


def bandit(arms, make):
    """Return a function of a seed that gives what a learner chooses and learns with."""
    actions = list(range(arms))

    def seeded(seed):
        learner = make(seed)
        last = {}

        def choose():
            arm, last["probability"] = learner.predict(None, actions)[:2]
            return arm

        return choose, lambda arm, reward: learner.learn(None, arm, reward, last["probability"]), last

    return seeded


def linear(stream, make):
    """Return a function of a seed, over the arms' features and a constant."""
    rows = [tuple(row) for row in stream["features"].tolist()]

    def seeded(seed):
        learner = make(seed)

        def choose(offer):
            chosen = tuple(learner.predict(None, [rows[arm] for arm in offer])[0])
            return next(arm for arm in offer if rows[arm] == chosen)

        return choose, lambda arm, reward: learner.learn(None, rows[arm], reward, 1.0)

    return seeded


def classical(stream):
    """UCB1-tuned, which is what it has of them."""
    return {"UCB1-tuned": bandit(stream["chances"].shape[1], lambda s: BanditUCBLearner(seed=s))}


def shifting(stream):
    """Its learners without contexts; none of them forgets."""
    arms = stream["chances"].shape[1]
    found = {
        f"BanditEpsilonLearner({epsilon})": bandit(
            arms, lambda seed, epsilon=epsilon: BanditEpsilonLearner(epsilon, seed)
        )
        for epsilon in (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
    }
    return found | {"BanditUCBLearner": bandit(arms, lambda seed: BanditUCBLearner(seed))}


def contextual(stream):
    """Linear Thompson sampling."""
    features = [1, "a"]
    return {"LinTS": linear(stream, lambda seed: LinTSLearner(v=0.25, features=features, seed=seed))}


def examination(stream):
    """What may learn arms by their features."""
    features = [1, "a"]
    found = {
        f"LinTSLearner({v})": linear(
            stream, lambda seed, v=v: LinTSLearner(v=v, features=features, seed=seed)
        )
        for v in (0.01, 0.05, 0.25, 1.0)
    }
    return found | {
        f"LinUCBLearner({alpha})": linear(
            stream, lambda seed, alpha=alpha: LinUCBLearner(alpha=alpha, features=features, seed=seed)
        )
        for alpha in (0.1, 0.25, 0.5, 1.0)
    }


def played_for_users(stream, make):
    """Return a function of a seed: scaled contexts and a constant, crossed with the arms."""
    actions = [tuple(row) for row in np.eye(stream["chances"].shape[1], dtype=int).tolist()]
    rows = [tuple(row) for row in stream["scaled"].tolist()]

    def seeded(seed):
        learner, last = make(["a", "ax"], seed), {}

        def choose(t):
            action, chance = learner.predict(rows[t], actions)[:2]
            last.update(row=rows[t], chance=chance)
            return tuple(action).index(1)

        def learn(arm, reward):
            learner.learn(last["row"], actions[arm], reward, last["chance"])

        return choose, learn

    return seeded


def users_linucb(stream):
    """LinUCB."""
    return {
        f"alpha {alpha}": played_for_users(
            stream, lambda features, seed, alpha=alpha: LinUCBLearner(alpha, features, seed)
        )
        for alpha in (0.05, 0.1, 0.3, 1.0)
    }


def users_lints(stream):
    """Linear Thompson sampling."""
    return {
        f"v {v}": played_for_users(stream, lambda features, seed, v=v: LinTSLearner(v, features, seed))
        for v in (0.001, 0.01, 0.1)
    }
