"""tacit's recommended policy, left as it is, played on streams."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np

import tacit

_tacit = runpy.run_path(str(Path(__file__).with_name("tacit.py")))


def shifting(stream):
    """Arms by name."""
    return {"auto": _tacit["called"](tacit.auto(stream["chances"].shape[1]))}


def late(stream):
    """Arms by name, with a feedback window."""
    return {"auto": _tacit["windowed"](tacit.auto(stream["chances"].shape[1]), stream)}


def dueling(stream):
    """Duels of arms."""
    return _tacit["dueled"](stream, {"auto": tacit.auto(len(stream["preferences"]), shows="duel")}, 1)


def examination(stream):
    """Arms by their features."""
    half = stream["features"].shape[1] // 2
    policy = tacit.auto(relevance_dim=half, examination_dim=half)
    return {"auto": _tacit["called_with_features"](policy)(stream)}


def users(stream):
    """Named arms, by numbers about the user as they come."""
    contexts = np.ascontiguousarray(stream["contexts"])
    policy = tacit.auto(stream["chances"].shape[1], context_dim=contexts.shape[1])
    compiled = tacit.Learner(policy)
    compiled.learn(compiled.choose(context=contexts[0]), 1.0)

    def seeded(seed):
        learner, last = tacit.Learner(policy, seed=seed), []

        def choose(t):
            last[:] = (learner.choose(context=contexts[t]),)
            return last[0].slot

        return choose, lambda arm, reward: learner.learn(last[0], reward)

    return {"auto": seeded}
