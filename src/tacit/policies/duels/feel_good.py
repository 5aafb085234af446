"""Feel-good Thompson sampling for contextual duels (Li, Zhao, Gu 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import kernel
from tacit.core.part import Positive, whole, within
from tacit.policies.actions import Duel, DuelPolicy
from tacit.policies.base import About, Impression, Outcome
from tacit.policies.features.gaussian import dot, learn_logit, project

MAX_DIM = 256


@dataclass(frozen=True)
class FeelGoodThompson(DuelPolicy):
    """Which arm for which context: duels by two draws from one posterior over all keys.

    An arm's utility is linear in the context and a constant, and of two arms one wins with the
    logistic function of the difference of utilities. The parameters of the left and of the right
    arm are drawn apart, and each is the arm of the highest utility that was drawn. A new key
    begins with what the others have taught; what the context does not tell of a key is not
    learned.

    The paper draws from its posterior by Langevin steps over all rounds; here it is a Gaussian
    that takes one Laplace step per duel. The *feel-good* term, which makes parameters likelier
    under which the arms that were drawn are good, is taken at the draw, where it is linear.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    context_dim : int, default 0
        Signals of a context; at most 256.
    feel_good : float, default 0
        μ, what the feel-good term weighs against an observation; in [0, 1]. With 0 it is
        Thompson sampling.
    prior_variance : float, default 1
        Variance of each parameter before the first duel; above 0.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Li, Zhao, Gu (2024), "Feel-good Thompson sampling for contextual dueling bandits",
    algorithm 1 (FGTS.CDB).

    Examples
    --------
    >>> import tacit
    >>> environment = tacit.ContextualDuels(arms=5, context_dim=3, keys=100)
    >>> policies = [tacit.FeelGoodThompson(5, 3), tacit.RMED1(5)]
    >>> result = tacit.simulate(policies, environment, 20_000, runs=5, seed=1)
    >>> result.compare(0, 1).difference < 0
    True
    """

    class SharedSums(NamedTuple):
        mean: Floats  # (1, arms·(context_dim + 1))
        root: Floats  # (1, the same, the same)
        tilt: Floats  # (1, the same) of the left arm's parameters; the right one's is its opposite
        room: Floats  # (1, 3, the same) all zero between calls

    class State(NamedTuple):
        shared: FeelGoodThompson.SharedSums

    about: ClassVar[About] = About(
        source="Li, Zhao, Gu (2024), algorithm 1 (FGTS.CDB), with a Gaussian posterior",
        regret="O(d·√T) up to logarithms, for exact draws",
        assumes="utilities that are linear in the context, the same for all keys, and never change",
        fails="what contexts do not tell of a key is not learned, however many duels it has",
        otherwise="RMED1, by key",
    )
    randomized: ClassVar[bool] = False

    context_dim: Annotated[int, whole(0, MAX_DIM)] = 0
    feel_good: Annotated[float, within(0.0, 1.0)] = 0.0
    prior_variance: Positive = 1.0

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        return cls(arms, dim)

    def init(self, lanes: int) -> State:
        width = self.arm_count * (self.context_dim + 1)
        root = np.eye(width)[None] * np.sqrt(self.prior_variance)
        rows = np.zeros((1, width))
        return self.State(self.SharedSums(rows, root, rows.copy(), np.zeros((1, 3, width))))

    @staticmethod
    def choose(
        params: FeelGoodThompson, state: State, lane: int, impression: Impression, rng: Generator
    ) -> Duel:
        left = best_drawn(state.shared, impression, 1.0, rng)
        return left, best_drawn(state.shared, impression, -1.0, rng)

    @staticmethod
    def learn(params: FeelGoodThompson, state: State, lane: int, outcome: Outcome) -> None:
        left, right = outcome.shown
        if left == right:
            return
        shared = state.shared
        mean, root, room = shared.mean[0], shared.root[0], shared.room[0]
        x = room[0]
        fill_contrast(outcome.impression.context, left, right, x)
        if params.feel_good > 0.0:
            for i in range(len(x)):
                shared.tilt[0, i] += params.feel_good * x[i]
        learn_logit(mean, root, room, dot(mean, x), outcome.reward)


@kernel
def fill_contrast(context: Floats, left: int, right: int, x: Floats) -> None:
    """Fill ``x`` with the features of the left arm minus those of the right one."""
    width = len(context) + 1
    for i in range(len(context)):
        x[left * width + i] = context[i]
        x[right * width + i] = -context[i]
    x[left * width + width - 1] = 1.0
    x[right * width + width - 1] = -1.0


@kernel
def best_drawn(
    shared: FeelGoodThompson.SharedSums, impression: Impression, side: float, rng: Generator
) -> int:
    """Return the arm of the highest utility, by parameters drawn for one side of the duel."""
    mean, root, room = shared.mean[0], shared.root[0], shared.room[0]
    z, theta = room[0], room[1]
    project(root, shared.tilt[0], z)
    for i in range(len(z)):
        z[i] = side * z[i] + rng.standard_normal()
    context = impression.context
    width = len(context) + 1
    best, leader = -np.inf, impression.arms[0]
    for arm in impression.arms:
        score = 0.0
        for i in range(width):
            at = arm * width + i
            theta[at] = mean[at] + dot(root[at], z)
            score += theta[at] * (context[i] if i < len(context) else 1.0)
        if score > best:
            best, leader = score, arm
    room[:] = 0.0
    return int(leader)
