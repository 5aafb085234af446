"""tacit: its learner called from Python like the others, and its compiled loops."""

import tempfile
from pathlib import Path

import numpy as np

import tacit


def called(policy):
    """Return a function of a seed: a call of the learner per decision, and one per reward."""
    compiled = tacit.Learner(policy)
    compiled.learn(compiled.choose("one"), 1.0)

    def seeded(seed):
        learner = tacit.Learner(policy, seed=seed, propensities=False)
        last = []

        def choose():
            last[:] = (learner.choose("one"),)
            return last[0].slot

        return choose, lambda arm, reward: learner.learn(last[0], reward)

    return seeded


def simulated(policy, environment, stream, runs):
    """Return a function of a seed: many runs of the compiled loop."""
    horizon = int(stream["horizon"])

    def seeded(seed):
        tacit.simulate(policy, environment, 1, workers=1, checkpoints=1)

        def play():
            result = tacit.simulate(
                policy, environment, horizon, runs=runs, seed=seed, workers=1, checkpoints=1
            )
            return runs * horizon, result.regret[0, :, -1].tolist()

        return play

    return seeded


def classics(arms):
    """Return the classical policies."""
    return {"UCB1": tacit.UCB1(arms), "Thompson": tacit.Thompson(arms), "EXP3": tacit.policies.EXP3(arms)}


def classical(stream):
    """The classical policies, called from Python."""
    arms = stream["chances"].shape[1]
    return {name: called(policy) for name, policy in classics(arms).items()}


def classical_compiled(stream):
    """The classical policies in the compiled loop."""
    environment = tacit.BernoulliArms(stream["chances"][0])
    return {
        name: simulated(policy, environment, stream, 200)
        for name, policy in classics(stream["chances"].shape[1]).items()
    }


def detectors(arms, horizon):
    """Return what detects or forgets."""
    ratio = float(np.log(horizon))
    return {
        "DiscountedUCB": tacit.policies.baselines.DiscountedUCB(arms),
        "SlidingWindowUCB": tacit.policies.baselines.SlidingWindowUCB(arms),
        # The parameters that SMPyBandits computes.
        "CUSUMUCB": tacit.policies.baselines.CUSUMUCB(
            arms, threshold=ratio, alpha=(ratio / horizon) ** 0.5, xi=2.0
        ),
        "MUCB": tacit.policies.baselines.MUCB(arms),
        "GLRKLUCB": tacit.policies.baselines.GLRKLUCB(arms, alpha=0.02),
    }


def changes(stream):
    """What detects or forgets, called from Python."""
    arms, horizon = stream["chances"].shape[1], len(stream["keys"])
    return {name: called(policy) for name, policy in detectors(arms, horizon).items()}


def changes_compiled(stream):
    """What detects or forgets, in the compiled loop."""
    arms, horizon = stream["chances"].shape[1], int(stream["horizon"])
    environment = tacit.ShiftingArms(arms, events=[horizon // 2 + 1], clicks=stream["chances"].tolist())
    return {
        name: simulated(policy, environment, stream, 40) for name, policy in detectors(arms, horizon).items()
    }


def followers(stream):
    """Return what may follow a change without signals that announce it, and what expects none."""
    arms = stream["chances"].shape[1]
    return {
        "KLUCB": tacit.KLUCB(arms),
        "UCB1(0.1)": tacit.UCB1(arms, alpha=0.1),
        "Thompson": tacit.Thompson(arms),
        "Thompson(discount=0.99)": tacit.Thompson(arms, discount=0.99),
        "GLRKLUCB(0.001)": tacit.policies.baselines.GLRKLUCB(arms, alpha=0.02),
        "GLRKLUCB(0.05)": tacit.policies.baselines.GLRKLUCB(arms, alpha=0.02, delta=0.05),
        "CUSUMUCB(50)": tacit.policies.baselines.CUSUMUCB(arms, samples=50, xi=0.5),
        "DiscountedUCB(0.99)": tacit.policies.baselines.DiscountedUCB(arms, discount=0.99, xi=0.2),
    }


def shifting(stream):
    """The same, called from Python."""
    return {name: called(policy) for name, policy in followers(stream).items()}


def windowed(policy, stream):
    """Return a function of a seed: a feedback window gets clicks when they come, and nothing else."""
    chances, delays, rounds = stream["chances"][stream["which"]], stream["delays"], int(stream["horizon"])
    clicks = stream["uniforms"][:, None] < chances

    def seeded(seed):
        def play():
            learner = tacit.Learner(policy, seed=seed, propensities=False)
            window = tacit.FeedbackWindow(learner, seconds=float(stream["window"]))
            known, pulled = [[] for _ in range(rounds + int(stream["window"]) + 1)], []
            for t in range(rounds):
                for decision in known[t]:
                    window.feedback(decision, time=float(t))
                decision = window.choose("one", time=float(t))
                pulled.append(decision.slot)
                if clicks[t, decision.slot]:
                    known[t + 1 + int(delays[t])].append(decision)
            return rounds, [(chances.max(axis=1) - chances[np.arange(rounds), pulled]).sum()]

        return play

    return seeded


def late(stream):
    """What may follow a change, by a feedback window."""
    return {name: windowed(policy, stream) for name, policy in followers(stream).items()}


def dueled(stream, policies, runs):
    """Return the players of a preference matrix."""
    environment = tacit.PreferenceMatrix(stream["preferences"])
    return {name: simulated(policy, environment, stream, runs) for name, policy in policies.items()}


def duels_compiled(stream):
    """What duels, in the compiled loop."""
    arms = len(stream["preferences"])
    policies = {
        "RMED1": tacit.policies.RMED1(arms),
        "DoubleThompsonSampling": tacit.policies.baselines.DoubleThompsonSampling(arms),
        "RUCB": tacit.policies.baselines.RUCB(arms),
        "WinnerStays": tacit.policies.baselines.WinnerStays(arms),
    }
    return dueled(stream, policies, 50)


def duels(stream):
    """What duels, called from Python."""
    arms = len(stream["preferences"])

    def player(policy):
        def seeded(seed):
            preferences = stream["preferences"]
            gaps, duels = preferences[0] - 0.5, int(stream["horizon"])
            uniforms = np.random.default_rng(seed).random(duels).tolist()
            compiled = tacit.Learner(policy)
            compiled.learn(compiled.choose("one"), 1.0)

            def play():
                learner, regret = tacit.Learner(policy, seed=seed, propensities=False), 0.0
                for uniform in uniforms:
                    decision = learner.choose("one")
                    left, right = decision.slots
                    regret += 0.5 * (gaps[left] + gaps[right])
                    learner.learn(decision, 1.0 if uniform < preferences[left, right] else 0.0)
                return duels, [regret]

            return play

        return seeded

    return {
        "RMED1": player(tacit.policies.RMED1(arms)),
        "DoubleThompsonSampling": player(tacit.policies.baselines.DoubleThompsonSampling(arms)),
        "RUCB": player(tacit.policies.baselines.RUCB(arms)),
        "WinnerStays": player(tacit.policies.baselines.WinnerStays(arms)),
    }


def dueling(stream):
    """What may find the best of several; a run per stream, as for all."""
    arms = len(stream["preferences"])
    policies = {
        "RMED1": tacit.policies.RMED1(arms),
        "DoubleThompsonSampling(0.51)": tacit.policies.baselines.DoubleThompsonSampling(arms),
        "DoubleThompsonSampling(0.7)": tacit.policies.baselines.DoubleThompsonSampling(arms, alpha=0.7),
        "RUCB(0.51)": tacit.policies.baselines.RUCB(arms),
        "SelfSparring(1)": tacit.policies.baselines.SelfSparring(arms),
        "SelfSparring(0.5)": tacit.policies.baselines.SelfSparring(arms, eta=0.5),
        "WinnerStays(1.1)": tacit.policies.baselines.WinnerStays(arms),
        "WinnerStays(1.5)": tacit.policies.baselines.WinnerStays(arms, beta=1.5),
    }
    return dueled(stream, policies, 1)


def called_with_features(policy):
    """Return a function of a seed, over blocks of features."""

    def players(stream):
        features, split = stream["features"], policy.relevance_dim

        compiled = tacit.Learner(policy)
        compiled.learn(
            compiled.choose("one", relevance=features[:2, :split], examination=features[:2, split:]), 1.0
        )

        def seeded(seed):
            learner = tacit.Learner(policy, seed=seed, propensities=False)
            last = []

            def choose(offer):
                rows = features[offer]
                last[:] = (learner.choose("one", relevance=rows[:, :split], examination=rows[:, split:]),)
                return offer[last[0].slot]

            return choose, lambda arm, reward: learner.learn(last[0], reward)

        return seeded

    return players


def contextual(stream):
    """Thompson sampling over features, called from Python."""
    half = stream["features"].shape[1] // 2
    policies = {
        "LaplaceEC": tacit.policies.LaplaceEC(half, half),
        "LogisticTS": tacit.policies.LogisticTS(half, half),
        "LinTS": tacit.policies.LinTS(half, half),
    }
    return {name: called_with_features(policy)(stream) for name, policy in policies.items()}


def contextual_compiled(stream):
    """Thompson sampling over features, in the compiled loop."""
    half = stream["features"].shape[1] // 2
    environment = tacit.ExaminationArms(half, half, scale=float(stream["scale"]))
    policies = {
        "LaplaceEC": tacit.policies.LaplaceEC(half, half),
        "LogisticTS": tacit.policies.LogisticTS(half, half),
        "LinTS": tacit.policies.LinTS(half, half),
    }
    return {name: simulated(policy, environment, stream, 20) for name, policy in policies.items()}


def examination(stream):
    """What may learn arms by their features."""
    half = stream["features"].shape[1] // 2
    policies = {
        "LaplaceEC(1)": tacit.policies.LaplaceEC(half, half),
        "ECBandit(1)": tacit.policies.ECBandit(half, half),
        "LogisticTS(1)": tacit.policies.LogisticTS(half, half),
        "LogisticTS(0.25)": tacit.policies.LogisticTS(half, half, prior_variance=0.25),
        "LinTS(0.25)": tacit.policies.LinTS(half, half),
        "LinTS(0.1)": tacit.policies.LinTS(half, half, scale=0.1),
        "LinTS(0.03)": tacit.policies.LinTS(half, half, scale=0.03),
        "LinUCB(0.1)": tacit.policies.LinUCB(half, half, alpha=0.1),
    }
    return {name: called_with_features(policy)(stream) for name, policy in policies.items()}


def logged(stream, folder, arms):
    """Write the log as Parquet, as it would lie on a disk, and open it."""
    import pyarrow as pa
    import pyarrow.parquet

    rows = len(stream["logged"])
    names = pa.array([str(arm) for arm in range(len(stream["means"]))])
    table = pa.table(
        {
            "timestamp": pa.array(np.arange(rows), pa.timestamp("us", "UTC")),
            "decision_id": pa.array(np.arange(rows)).cast(pa.string()),
            "placement": pa.array(np.full(rows, "home")),
            "key": pa.array(np.full(rows, "one")),
            "arm": names.take(pa.array(stream["logged"])),
            "propensity": pa.array(stream["propensities"]),
            "reward": pa.array(stream["rewards"]),
        }
    )
    path = Path(folder) / "log.parquet"
    pa.parquet.write_table(table, path)
    return tacit.read_log(path, arms=arms)


def replay(stream):
    """The replay of a log of uniform choices, once through, from a file."""
    from tacit.evaluate import replay

    arms = [str(arm) for arm in range(len(stream["means"]))]

    folder = tempfile.TemporaryDirectory()
    log = logged(stream, folder.name, arms)

    def seeded(seed):
        def play(kept=folder):
            found = replay(tacit.UCB1(arms), log, passes=1, seed=seed)
            return len(stream["logged"]), [found.estimate]

        play()  # compiles
        return play

    return {"UCB1": seeded}


def weighing(stream):
    """The estimators, from a file to an estimate with its intervals."""
    from tacit.evaluate import IPS, SNIPS, DoublyRobust, Rewards, Table, off_policy

    arms = [str(arm) for arm in range(len(stream["means"]))]
    model = Rewards(dict(zip(arms, stream["model"].tolist(), strict=True)))
    spread = dict(zip(arms, stream["target"].tolist(), strict=True))
    last = {arm: float(arm == arms[-1]) for arm in arms}

    folder = tempfile.TemporaryDirectory()
    log = logged(stream, folder.name, arms)

    def player(target, estimator):
        def seeded(seed):
            def play(kept=folder):
                found = off_policy(Table(target), log, [estimator])
                return len(stream["logged"]), [found.estimates[0].value]

            play()  # compiles
            return play

        return seeded

    return {
        "IPS": player(spread, IPS()),
        "SNIPS": player(spread, SNIPS()),
        "DR": player(spread, DoublyRobust(model)),
        "DR of the last arm": player(last, DoublyRobust(model)),
    }
