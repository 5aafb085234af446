"""vowpalwabbit, one model over the arms' features: contextual bandits by arm (ADF)."""

import numpy as np
import vowpalwabbit


def player(rows, options):
    """Return a function of a seed; predict, draw, learn with the cost and the probability."""

    def seeded(seed):
        workspace = vowpalwabbit.Workspace(f"--cb_explore_adf {options} --quiet --random_seed {seed}")
        rng = np.random.default_rng(seed)
        last, every = {}, range(len(rows))

        def choose(offer=every):
            chances = np.array(workspace.predict([rows[arm] for arm in offer]))
            place = int(rng.choice(len(offer), p=chances / chances.sum()))
            last.update(offer=offer, place=place, chance=chances[place])
            return offer[place]

        def learn(arm, reward):
            lines = [rows[a] for a in last["offer"]]
            lines[last["place"]] = f"0:{-reward}:{last['chance']} " + lines[last["place"]]
            workspace.learn(lines)

        return choose, learn

    return seeded


def featured(stream):
    """Return an example per arm."""
    return ["| " + " ".join(f"f{i}:{x:.6g}" for i, x in enumerate(row)) for row in stream["features"]]


def contextual(stream):
    """It has no Thompson sampling; this is what its documentation has beside it."""
    rows = featured(stream)
    return {"squarecb": player(rows, "--squarecb"), "bag of 5": player(rows, "--bag 5")}


def examination(stream):
    """What may learn arms by their features."""
    rows = featured(stream)
    options = (
        "--squarecb",
        "--squarecb --gamma_scale 100",
        "--squarecb --gamma_scale 1000",
        "--squarecb --gamma_scale 1000 -l 0.1",
        "--epsilon 0.01",
        "--epsilon 0.02 --cb_type mtr",
        "--bag 5",
        "--regcb",
    )
    return {text: player(rows, text) for text in options}


def shifting(stream):
    """What may follow a change: constant learning rates."""
    rows = [f"| arm{arm}" for arm in range(stream["chances"].shape[1])]
    kept = "--power_t 0 --noconstant"
    options = (
        f"--epsilon 0.01 {kept} -l 0.1",
        f"--epsilon 0.05 {kept} -l 0.1",
        f"--epsilon 0.1 {kept} -l 0.1",
        f"--squarecb --gamma_scale 10 {kept} -l 0.1",
        f"--squarecb --gamma_scale 100 {kept} -l 0.02",
        f"--squarecb --gamma_scale 100 {kept} -l 0.1",
        f"--squarecb --gamma_scale 1000 {kept} -l 0.1",
        "--squarecb",
    )
    return {text: player(rows, text) for text in options}


def weighing(stream):
    """The estimators of vw-estimators, row by row as they take them."""
    from estimators.bandits import ips, snips

    columns = stream["propensities"], stream["rewards"], stream["target"][stream["logged"]]
    rows = list(zip(*(column.tolist() for column in columns), strict=True))

    def seeded(kind):
        def player(seed):
            def play():
                estimator = kind.Estimator()
                for propensity, reward, target in rows:
                    estimator.add_example(propensity, reward, target)
                return len(rows), [estimator.get()]

            return play

        return player

    return {"IPS": seeded(ips), "SNIPS": seeded(snips)}
