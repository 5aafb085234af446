"""What policies for seen and relevant results have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import kernel
from tacit.policies.base import Impression
from tacit.policies.features.click_model import ClickModel
from tacit.policies.features.gaussian import Belief, belief, drawn, logistic, rows_of, scored
from tacit.policies.features.identifiability import identifiability, warn_of


class Beliefs(NamedTuple):
    """What an examination model believes.

    Attributes
    ----------
    relevance, examination : Belief
        Of each block of parameters; that of its constant, if there is one, comes last.
    joint : Belief or None
        Of both blocks, relevance first; None where they are taken for independent.
    """

    relevance: Belief
    examination: Belief
    joint: Belief | None = None


def blocks_of(mean: Floats, root: Floats, split: int) -> Beliefs:
    """Return a joint Gaussian and its two blocks."""
    relevance, examination = belief(mean[:split], root[:split]), belief(mean[split:], root[split:])
    return Beliefs(relevance, examination, belief(mean, root))


@kernel
def most_clicked(impression: Impression, theta_c: Floats, theta_e: Floats) -> int:
    """Return the arm on offer with the largest σ(x_C·θ_C)·σ(x_E·θ_E).

    Compared are the odds against a click, e^−a + e^−b + e^−(a+b) for logits a and b. They exceed
    either of the first two terms, so an arm one of whose logits is below the logit of the best
    so far cannot win: most arms cost no exponential, and none but a new best costs a logarithm.
    Chances below e^−350 are level.
    """
    best, bar, leader = np.inf, -np.inf, 0
    for i in range(len(impression.arms)):
        relevance = scored(impression.relevance[i], theta_c)
        if relevance > bar:
            examination = scored(impression.examination[i], theta_e)
            if examination > bar:
                skipped = np.exp(min(-relevance, 350.0))
                unseen = np.exp(min(-examination, 350.0))
                odds = skipped + unseen + skipped * unseen
                if odds < best:
                    best, leader = odds, i
                    bar = -np.log(odds) if odds > 0.0 else np.inf
    return int(impression.arms[leader])


@dataclass(frozen=True)
class ExaminationModel(ClickModel):
    """Base of the policies below: two blocks of features, each with or without a constant."""

    def advise(self, relevance: Floats, examination: Floats) -> None:
        constants = {
            "relevance_intercept": bool(self.relevance_intercept),  # type: ignore[attr-defined]
            "examination_intercept": bool(self.examination_intercept),  # type: ignore[attr-defined]
        }
        warn_of(identifiability(relevance, examination, **constants))

    @property
    def split(self) -> int:
        """How many parameters relevance has."""
        return self.relevance_dim + int(self.relevance_intercept)  # type: ignore[attr-defined]

    @property
    def width(self) -> int:
        """How many parameters there are."""
        return self.split + self.examination_dim + int(self.examination_intercept)  # type: ignore[attr-defined]

    def reward_draws(
        self, state: Any, lane: int, impression: Impression, rng: Generator, draws: int
    ) -> Floats:
        """Return draws of the arms' mean rewards."""
        theta = self.parameter_draws(state, lane, rng, draws)
        split = self.split
        seen = theta[:, split:] @ rows_of(impression.examination, width=self.width - split).T
        wanted = theta[:, :split] @ rows_of(impression.relevance, width=split).T
        return logistic(wanted) * logistic(seen)

    def parameter_draws(self, state: Any, lane: int, rng: Generator, draws: int) -> Floats:
        """Return draws of all parameters, those of relevance first."""
        return drawn(state.mean[lane], state.root[lane], rng, draws)
