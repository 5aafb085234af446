"""river, as its documentation of ``river.bandit`` says: pull, then update."""

from river import bandit, proba


def players(arms, seed):
    """Return a chooser and a learner per algorithm."""
    policies = {
        "UCB1": bandit.UCB(delta=1, seed=seed),
        "Thompson": bandit.ThompsonSampling(reward_obj=proba.Beta(), seed=seed),
        "EXP3": bandit.Exp3(gamma=0.1, seed=seed),
    }
    return {name: player(policy, range(arms)) for name, policy in policies.items()}


def player(policy, arms):
    """Return what a policy chooses and learns with."""
    return lambda: policy.pull(arms), policy.update
