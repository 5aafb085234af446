"""river, as its documentation of ``river.bandit`` says: pull, then update."""

from river import bandit, proba, stats


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
