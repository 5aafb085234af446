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

        return choose, learn, last

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


def asked(stream, options, worst):
    """Return a function of a seed; a line for the user and one for each arm, crossed.

    What is not clicked costs ``worst``, what is clicked 1 less.
    """
    contexts, arms = stream["scaled"].tolist(), stream["chances"].shape[1]

    def seeded(seed):
        workspace = vowpalwabbit.Workspace(f"--cb_explore_adf {options} -q ua --quiet --random_seed {seed}")
        rng, names = np.random.default_rng(seed), [f"|a {arm}" for arm in range(arms)]
        last = {}

        def choose(t):
            user = "shared |u " + " ".join(f"{i}:{x:.6g}" for i, x in enumerate(contexts[t]))
            chances = np.array(workspace.predict([user, *names]))
            arm = int(rng.choice(arms, p=chances / chances.sum()))
            last.update(user=user, chance=chances[arm])
            return arm

        def learn(arm, reward):
            lines = list(names)
            lines[arm] = f"0:{worst - reward}:{last['chance']} {lines[arm]}"
            workspace.learn([last["user"], *lines])

        return choose, learn

    return seeded


def with_costs(stream, head, options):
    """Return a candidate for each of some options, with each cost of what is not clicked."""
    return {
        f"{text}, {worst - 1} or {worst}": asked(stream, f"{head} {text}", worst)
        for text in options
        for worst in (0, 1)
    }


def users_squarecb(stream):
    """SquareCB."""
    return with_costs(stream, "--squarecb", [f"--gamma_scale {scale}" for scale in (100, 1000, 10000)])


def users_cover(stream):
    """Online cover."""
    options = ("--cb_type dr", "--cb_type mtr", "--cb_type dr -l 0.1")
    return with_costs(stream, "--cover 3 --epsilon 0 --nounif", options)


def users_bag(stream):
    """Bags of models."""
    return with_costs(stream, "--bag", ("5", "5 -l 2", "10 --cb_type dr -l 0.1"))


def users_regcb(stream):
    """RegCB, given the range of costs."""
    found = {}
    for worst in (0, 1):
        range_of_costs = f"--cb_min_cost {worst - 1} --cb_max_cost {worst}"
        for text in (
            "--regcb --mellowness 0.001",
            "--regcb --mellowness 0.01",
            "--regcbopt --mellowness 0.001",
        ):
            found[f"{text}, {worst - 1} or {worst}"] = asked(stream, f"{text} {range_of_costs}", worst)
    return found


def read(stream):
    """Return a line for each item and for each user; that of a user is empty where nothing is known."""
    items = [
        "|i " + " ".join(f"{i}:{x:.4g}" for i, x in enumerate(row)) for row in stream["scaled_items"].tolist()
    ]
    users = [" ".join(f"{i}:{x:.4g}" for i, x in enumerate(row)) for row in stream["scaled"].tolist()]
    return items, [f"|u {user}" if user else "|" for user in users]


def of_items(stream, options):
    """Return a function of a seed: one item out of those on offer, each by its numbers and the user's."""
    (items, users), offers = read(stream), stream["offers"].tolist()

    def seeded(seed):
        workspace = vowpalwabbit.Workspace(f"--cb_explore_adf {options} -q ui --quiet --random_seed {seed}")
        rng, last = np.random.default_rng(seed), {}

        def choose(t):
            lines = [f"shared {users[t]}", *(items[item] for item in offers[t])]
            chances = np.array(workspace.predict(lines))
            place = int(rng.choice(len(chances), p=chances / chances.sum()))
            last.update(lines=lines, chance=chances[place])
            return place

        def learn(place, reward):
            lines = last["lines"]
            lines[1 + place] = f"0:{-reward}:{last['chance']} {lines[1 + place]}"
            workspace.learn(lines)

        return choose, learn

    return seeded


def items_by(stream):
    """SquareCB, a bag, and ε-greedy."""
    options = (
        *(f"--squarecb --gamma_scale {scale}" for scale in (10, 100, 1000)),
        *("--bag 5", "--bag 5 -l 0.1", "--epsilon 0.02", "--epsilon 0.02 --cb_type mtr"),
    )
    return {text: of_items(stream, text) for text in options}


def lists_by(stream):
    """Conditional contextual bandits: one position after the other, each learned by its own click."""
    (items, users), offers = read(stream), stream["offers"].tolist()
    positions = len(stream["seen"])

    def made(options):
        def seeded(seed):
            workspace = vowpalwabbit.Workspace(
                f"--ccb_explore_adf {options} -q ui --quiet --random_seed {seed}"
            )
            last = {}

            def choose(t):
                head = [f"ccb shared {users[t]}", *(f"ccb action {items[item]}" for item in offers[t])]
                found = workspace.predict([*head, *(f"ccb slot |s {k}" for k in range(positions))])
                # Of each position what was drawn stands first.
                last.update(head=head, drawn=[slot[0] for slot in found])
                return [place for place, _ in last["drawn"]]

            def learn(places, clicks):
                slots = [
                    f"ccb slot {place}:{-click}:{chance} |s {k}"
                    for k, ((place, chance), click) in enumerate(zip(last["drawn"], clicks))  # noqa: B905
                ]
                workspace.learn([*last["head"], *slots])

            return choose, learn

        return seeded

    options = (
        *(f"--squarecb --gamma_scale {scale}" for scale in (10, 100, 1000)),
        *("--epsilon 0.02", "--epsilon 0.02 -l 0.1", "--bag 5"),
    )
    return {text: made(text) for text in options}
