"""gittins, as its documentation says: decide, then learn; a linear model of hashed features."""

import gittins

NEVER = 1e9
"""Seconds that a reward may take: all come in time."""


def player(candidates, bits=12, **settings):
    """Return a function of a seed; the candidates are all, or the offered of them.

    4096 hashed places keep names and features of a hundred arms apart.
    """

    def seeded(seed):
        # The draws follow from the salt, an agent's name.
        state, salt = gittins.create(bits=bits, horizon=NEVER, **settings), str(seed)
        last = {}

        def choose(offer=None):
            shown = candidates if offer is None else [candidates[arm] for arm in offer]
            record = gittins.decide(state, {}, shown, 0.0, salt)
            last["id"] = record.decision_id
            return record.chosen if offer is None else offer[record.chosen]

        return choose, lambda arm, reward: gittins.learn(state, last["id"], reward, 0.0), last

    return seeded


def named(stream):
    """Return arms that have a name alone."""
    return [(str(arm), {}) for arm in range(stream["chances"].shape[1])]


def featured(stream):
    """Return arms with their names and features."""
    return [
        (str(arm), {f"f{place}": value for place, value in enumerate(row)})
        for arm, row in enumerate(stream["features"].tolist())
    ]


def shifting(stream):
    """What may follow a change: exploring and forgetting more or less."""
    return {
        f"epsilon={epsilon}, forgetfulness={kept}": player(named(stream), epsilon=epsilon, forgetfulness=kept)
        for epsilon in (0.01, 0.05, 0.1, 0.2)
        for kept in (1.0, 0.995)
    }


def contextual(stream):
    """Epsilon-greedy, which is what it has."""
    return {"default": player(featured(stream))}


def examination(stream):
    """What may learn arms by their features."""
    return {
        f"epsilon={epsilon}, forgetfulness={kept}": player(
            featured(stream), epsilon=epsilon, forgetfulness=kept
        )
        for epsilon in (0.0, 0.01, 0.02, 0.05)
        for kept in (1.0, 0.999)
    }
