"""contextualbandits, one linear model per arm and a constant context: no features of arms."""

import numpy as np
from contextualbandits.evaluation import evaluateDoublyRobust
from contextualbandits.online import LinTS, LinUCB


def player(stream, make):
    """Return a function of a seed that gives what a policy chooses and learns with."""

    def seeded(seed):
        model = make(len(stream["features"]), seed)
        context, started = np.ones((1, 1)), []

        def choose(offer):
            if not started:
                return offer[0]
            values = model.decision_function(context)[0]
            return max(offer, key=values.__getitem__)

        def learn(arm, reward):
            model.partial_fit(context, np.array([arm]), np.array([reward]))
            started.append(arm)

        return choose, learn

    return seeded


def contextual(stream):
    """Linear Thompson sampling."""
    return {
        "LinTS, a model per arm": player(
            stream, lambda arms, seed: LinTS(arms, v_sq=0.0625, random_state=seed)
        )
    }


def examination(stream):
    """What may learn arms."""
    found = {
        f"LinTS({v_sq})": player(
            stream, lambda arms, seed, v_sq=v_sq: LinTS(arms, v_sq=v_sq, random_state=seed)
        )
        for v_sq in (0.0001, 0.001, 0.01, 0.0625)
    }
    return found | {
        f"LinUCB({alpha})": player(
            stream, lambda arms, seed, alpha=alpha: LinUCB(arms, alpha=alpha, random_state=seed)
        )
        for alpha in (0.1, 0.25, 0.5, 1.0)
    }


def weighing(stream):
    """Its doubly robust estimate, of a policy that always plays the last arm."""
    logged, rewards = stream["logged"], stream["rewards"]
    last = np.full(len(logged), len(stream["target"]) - 1)
    contexts, known = np.ones((len(logged), 1)), stream["model"]

    def seeded(seed):
        def play():
            model = np.column_stack([known[last], known[logged]])
            arguments = (last, contexts, logged, rewards, stream["propensities"], model)
            return len(logged), [evaluateDoublyRobust(*arguments)]

        return play

    return {"DR of the last arm": seeded}
