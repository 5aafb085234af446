"""mabwiser, as its documentation says: predict, then partial_fit."""

from mabwiser.mab import MAB, LearningPolicy


def players(arms, seed):
    """Return a chooser and a learner per algorithm."""
    policies = {
        "UCB1": LearningPolicy.UCB1(alpha=1.0),
        "Thompson": LearningPolicy.ThompsonSampling(),
    }
    return {name: player(policy, range(arms), seed) for name, policy in policies.items()}


def player(policy, arms, seed):
    """Return what a policy chooses and learns with; it predicts once every arm was tried."""
    mab = MAB(list(arms), policy, seed=seed)
    untried = iter(arms)

    def choose():
        arm = next(untried, None)
        return mab.predict() if arm is None else arm

    return choose, lambda arm, reward: mab.partial_fit([arm], [reward])
