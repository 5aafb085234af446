"""Play a peer on a stream of arms with features; print µs a round and regret as JSON.

    stream.py PEER STREAM.npz

The file holds ``features`` (pool, d), ``chances`` (pool,), ``offers`` (rounds, offered) and
``uniforms`` (rounds,): an arm is clicked where the uniform number is below its chance.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np


def vowpalwabbit(features, seed):
    """One model over the arms' features, as its documentation has contextual bandits by arm."""
    import vowpalwabbit

    rows = ["| " + " ".join(f"f{i}:{x:.6g}" for i, x in enumerate(row)) for row in features]
    workspaces = {
        "squarecb": vowpalwabbit.Workspace(
            f"--cb_explore_adf --squarecb --quiet --random_seed {seed}"
        ),
        "epsilon 0.05": vowpalwabbit.Workspace(
            f"--cb_explore_adf --epsilon 0.05 --quiet --random_seed {seed}"
        ),
    }
    rng = np.random.default_rng(seed)

    def player(workspace):
        last = {}

        def choose(offer):
            chances = np.array(workspace.predict([rows[arm] for arm in offer]))
            place = int(rng.choice(len(offer), p=chances / chances.sum()))
            last.update(offer=offer, place=place, chance=chances[place])
            return offer[place]

        def learn(arm, reward):
            lines = [rows[a] for a in last["offer"]]
            lines[last["place"]] = f"0:{-reward}:{last['chance']} " + lines[last["place"]]
            workspace.learn(lines)

        return choose, learn

    return {f"vowpalwabbit, {name}": player(w) for name, w in workspaces.items()}


def mabwiser(features, seed):
    """One linear model per arm, the context being a constant: it has no features of arms."""
    from mabwiser.mab import MAB, LearningPolicy

    arms = list(range(len(features)))
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

    return {"mabwiser, LinTS per arm": (choose, learn)}


def bayesianbandits(features, seed):
    """Thompson sampling on its Bayesian regressions over the arms' features and a constant."""
    from bayesianbandits import BayesianGLM, NormalRegressor

    rows = np.hstack([features, np.ones((len(features), 1))])

    def player(model):
        started = []

        def choose(offer):
            # A draw before the first fit needs to know the width.
            return offer[int(np.argmax(model.sample(rows[offer])[0]))] if started else offer[0]

        def learn(arm, reward):
            model.partial_fit(rows[arm : arm + 1], np.array([reward]))
            started.append(arm)

        return choose, learn

    return {
        "bayesianbandits, BayesianGLM": player(BayesianGLM(alpha=1.0, random_state=seed)),
        "bayesianbandits, NormalRegressor": player(
            NormalRegressor(alpha=1.0, beta=16.0, random_state=seed)
        ),
    }


def coba(features, seed):
    """Its linear learners over the actions' features and a constant."""
    from coba.learners import LinTSLearner, LinUCBLearner

    rows = [tuple(row) for row in features.tolist()]

    def player(learner):
        def choose(offer):
            chosen = learner.predict(None, [rows[arm] for arm in offer])[0]
            return next(arm for arm in offer if rows[arm] == tuple(chosen))

        return choose, lambda arm, reward: learner.learn(None, rows[arm], reward, 1.0)

    return {
        "coba, LinTSLearner": player(LinTSLearner(v=0.25, features=[1, "a"], seed=seed)),
        "coba, LinUCBLearner": player(LinUCBLearner(alpha=0.5, features=[1, "a"], seed=seed)),
    }


def contextualbandits(features, seed):
    """One linear model per arm, the context being a constant: it has no features of arms."""
    from contextualbandits.online import LinTS

    model = LinTS(nchoices=len(features), v_sq=0.0625, random_state=seed)
    context, started = np.ones((1, 1)), []

    def choose(offer):
        if not started:
            return offer[0]
        values = model.decision_function(context)[0]
        return max(offer, key=values.__getitem__)

    def learn(arm, reward):
        model.partial_fit(context, np.array([arm]), np.array([reward]))
        started.append(arm)

    return {"contextualbandits, LinTS per arm": (choose, learn)}


def main(peer, path):
    """Play every algorithm of a peer."""
    with np.load(path, allow_pickle=False) as file:
        features, chances = file["features"], file["chances"]
        offers, uniforms = file["offers"].tolist(), file["uniforms"].tolist()
    found = {}
    for name, (choose, learn) in globals()[peer](features, 1).items():
        regret, start = 0.0, time.process_time()
        for offer, uniform in zip(offers, uniforms, strict=True):
            arm = choose(offer)
            learn(arm, 1.0 if uniform < chances[arm] else 0.0)
            regret += chances[offer].max() - chances[arm]
        found[name] = 1e6 * (time.process_time() - start) / len(offers), float(regret)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
