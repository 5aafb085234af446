"""pymab, as its documentation says: select_action, then update; its policies run in Rust."""

import numpy as np
from pymab import policies as its

COUNTING = ("BernoulliThompson", "DiscountedThompson", "SlidingWindowThompson", "KLUCB")


def players(stream, policies):
    """Return functions of a seed that give what a policy chooses and learns with."""
    arms = stream["chances"].shape[1]

    def player(kind, parameters):
        def seeded(seed):
            policy, rng = kind(n_arms=arms, **parameters), np.random.default_rng(seed)
            return (
                lambda: policy.select_action(rng=rng),
                lambda arm, reward: policy.update(action=arm, reward=reward),
            )

        return seeded

    return {name: player(kind, parameters) for name, (kind, parameters) in policies.items()}


def classical(stream):
    """The classical policies."""
    return players(
        stream,
        {
            "UCB1": (its.UCBPolicy, {"c": 2.0}),
            "Thompson": (its.BernoulliThompsonSamplingPolicy, {}),
            "EXP3": (its.EXP3Policy, {"gamma": 0.1}),
        },
    )


def changes(stream):
    """What forgets, tuned like tacit's beside it; its detector is another than CUSUM-UCB's."""
    return players(
        stream,
        {
            # Its radius is sqrt(c·log n/N): c = 4·xi makes it 2·sqrt(xi·log n/N).
            "DiscountedUCB": (its.DiscountedUCBPolicy, {"c": 2.4, "discount_factor": 0.998}),
            "SlidingWindowUCB": (its.SlidingWindowUCBPolicy, {"c": 0.6, "window_size": 1000}),
        },
    )


def shifting(stream):
    """What may follow a change, and what expects none."""
    return players(
        stream,
        {
            "UCB(0.1)": (its.UCBPolicy, {"c": 0.1}),
            "KLUCB(0.1)": (its.KLUCBPolicy, {"c": 0.1}),
            "BernoulliThompsonSampling": (its.BernoulliThompsonSamplingPolicy, {}),
            "DiscountedThompson(0.99)": (
                its.DiscountedBernoulliThompsonSamplingPolicy,
                {"discount_factor": 0.99},
            ),
            "DiscountedThompson(0.995)": (
                its.DiscountedBernoulliThompsonSamplingPolicy,
                {"discount_factor": 0.995},
            ),
            "SlidingWindowThompson(300)": (
                its.SlidingWindowBernoulliThompsonSamplingPolicy,
                {"window_size": 300},
            ),
            "CUSUMUCB(0.2)": (its.CUSUMUCBPolicy, {"c": 0.2}),
            "PageHinkleyUCB(0.2)": (its.PageHinkleyUCBPolicy, {"c": 0.2}),
        },
    )
