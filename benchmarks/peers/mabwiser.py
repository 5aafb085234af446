"""mabwiser, as its documentation says: predict, then partial_fit."""

import itertools

import numpy as np
from mabwiser.mab import MAB, LearningPolicy

COUNTING = ("ThompsonSampling",)


def classical(stream):
    """The classical policies."""
    arms = range(stream["chances"].shape[1])
    return {
        "UCB1": player(LearningPolicy.UCB1(alpha=1.0), arms),
        "Thompson": player(LearningPolicy.ThompsonSampling(), arms),
    }


def player(policy, arms):
    """Return a function of a seed; its player predicts once it knows a reward of every arm."""

    def seeded(seed):
        mab = MAB(list(arms), policy, seed=seed)
        learned, order = set(), itertools.cycle(arms)

        def learn(arm, reward):
            mab.partial_fit([arm], [reward])
            learned.add(arm)

        return lambda: mab.predict() if len(learned) == len(arms) else next(order), learn

    return seeded


def candidates():
    """Its policies without contexts; none of them forgets."""
    return {
        "UCB1(0.1)": LearningPolicy.UCB1(alpha=0.1),
        "UCB1(0.25)": LearningPolicy.UCB1(alpha=0.25),
        "UCB1(0.5)": LearningPolicy.UCB1(alpha=0.5),
        "ThompsonSampling": LearningPolicy.ThompsonSampling(),
        "EpsilonGreedy(0.02)": LearningPolicy.EpsilonGreedy(epsilon=0.02),
        "EpsilonGreedy(0.05)": LearningPolicy.EpsilonGreedy(epsilon=0.05),
        "EpsilonGreedy(0.1)": LearningPolicy.EpsilonGreedy(epsilon=0.1),
        "Softmax(0.1)": LearningPolicy.Softmax(tau=0.1),
    }


def shifting(stream):
    """What may follow a change."""
    arms = range(stream["chances"].shape[1])
    return {name: player(policy, arms) for name, policy in candidates().items()}


def contextual(stream):
    """One linear model per arm, the context being a constant: it has no features of arms."""
    arms = list(range(len(stream["features"])))

    def seeded(seed):
        mab = MAB(arms, LearningPolicy.LinTS(alpha=0.25), seed=seed)
        context = [[1.0]]
        started = []

        def choose(offer):
            if not started:
                return offer[0]
            values = mab.predict_expectations(context)
            return max(offer, key=values.__getitem__)

        def learn(arm, reward):
            (mab.partial_fit if started else mab.fit)([arm], [reward], context)
            started.append(arm)

        return choose, learn

    return {"LinTS, a model per arm": seeded}


def examination(stream):
    """Its policies without contexts, an arm each: it has no features of arms."""
    arms = list(range(len(stream["features"])))

    def player_of_offers(policy):
        def seeded(seed):
            mab = MAB(arms, policy, seed=seed)
            tried = set()

            def choose(offer):
                for arm in offer:
                    if arm not in tried:
                        return arm
                values = mab.predict_expectations()
                return max(offer, key=values.__getitem__)

            def learn(arm, reward):
                tried.add(arm)
                mab.partial_fit([arm], [reward])

            return choose, learn

        return seeded

    return {name: player_of_offers(policy) for name, policy in candidates().items()}


def played_for_users(stream, policy):
    """Return a function of a seed: a model for each arm, over scaled contexts and a constant."""
    arms = list(range(stream["chances"].shape[1]))
    rows = np.column_stack([stream["scaled"], np.ones(len(stream["scaled"]))])

    def seeded(seed):
        mab = MAB(arms, policy, seed=seed)
        last, untried = {}, list(reversed(arms))

        def choose(t):
            last.update(row=rows[t : t + 1])
            return untried[-1] if untried else mab.predict(last["row"])

        def learn(arm, reward):
            (mab.fit if len(untried) == len(arms) else mab.partial_fit)([arm], [reward], last["row"])
            if untried:
                untried.pop()

        return choose, learn

    return seeded


def users_linucb(stream):
    """LinUCB."""
    return {
        f"alpha {alpha}": played_for_users(stream, LearningPolicy.LinUCB(alpha=alpha))
        for alpha in (0.05, 0.1, 0.3, 1.0)
    }


def users_lints(stream):
    """Linear Thompson sampling."""
    return {
        f"alpha {alpha}": played_for_users(stream, LearningPolicy.LinTS(alpha=alpha))
        for alpha in (0.02, 0.05, 0.1, 0.3)
    }
