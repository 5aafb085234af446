"""What click mixtures have in common: six models, their weights, and what they read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from tacit.core.arrays import Floats
from tacit.core.dispatch import kernel
from tacit.core.ranges import whole
from tacit.policies.features.click_model import MAX_DIM
from tacit.policies.features.coupled import Coupled
from tacit.policies.features.examination.laplace import click_at
from tacit.policies.features.gaussian import Belief, dot, log_sigmoid, logistic

COMPONENTS = 6
"""Results may go unseen in the first half of them; in each half the prior is wider and wider."""
DROPPED = -30.0
"""Log weight, beside the largest, below which a component is dropped."""


@kernel
def prior_variance(component: int) -> float:
    """Return ¼, 1 or 4: the prior variance of a component's parameters."""
    return 0.25 * 4.0 ** (component % 3)


@kernel
def hides(component: int) -> bool:
    """Return whether a click needs examination in a component, too."""
    return component < 3


@kernel
def tangent(
    x: Floats, mean: Floats, split: int, hides: bool, offset: float, h: Floats
) -> tuple[float, float]:
    """Fill ``h`` with the gradient of an arm's logit by θ; return it, and its derivative by offset.

    The first ``split`` features ``x`` are those of relevance.
    """
    relevance = dot(x[:split], mean[:split]) + offset
    examination = dot(x[split:], mean[split:])
    logit, by_relevance, by_examination = relevance + examination, 1.0, 1.0
    if hides:
        logit, by_relevance, by_examination = click_at(relevance, examination)
    for j in range(split):
        h[j] = by_relevance * x[j]
    for j in range(split, len(x)):
        h[j] = by_examination * x[j]
    return logit, by_relevance


@kernel
def foretold(logit: float, variance: float, reward: float) -> float:
    """Return the logarithm of the probability that a logit of that variance gave to a reward.

    By the mean of a logistic over a normal logit (MacKay 1992).
    """
    logit /= np.sqrt(1.0 + 0.125 * np.pi * variance)
    return log_sigmoid(logit) - (1.0 - reward) * logit


@kernel
def first_component(width: int, split: int) -> int:
    """Return the first component in use: without features of examination nothing hides results."""
    return 0 if width > split else COMPONENTS // 2


@kernel
def normalize(weights: Floats) -> None:
    """Replace logarithms of weights by weights of sum 1; drop what is next to nothing."""
    largest, total = -np.inf, 0.0
    for k in range(len(weights)):
        largest = max(largest, weights[k])
    for k in range(len(weights)):
        beside = weights[k] - largest
        weights[k] = np.exp(beside) if beside > DROPPED else 0.0
        total += weights[k]
    for k in range(len(weights)):
        weights[k] /= total


def clicks_at(theta: Floats, rows: Floats, split: int, hides: bool, offsets: Floats | float = 0.0) -> Floats:
    """Return the click probability of each row of features, for each row of parameters."""
    relevance = theta[:, :split] @ rows[:, :split].T + offsets
    examination = theta[:, split:] @ rows[:, split:].T
    if hides:
        return logistic(relevance) * logistic(examination)
    return logistic(relevance + examination)


class Weighed(NamedTuple):
    """What a mixture believes.

    Attributes
    ----------
    relevance, examination, joint : Belief
        Of each block of parameters, and of both, in the heaviest component. The constant comes
        last in relevance.
    weights : array of float64, shape (6,)
        How probable each component is: three in which results may go unseen, with prior
        variances of ¼, 1 and 4, and three logistic regressions with the same.
    """

    relevance: Belief
    examination: Belief
    joint: Belief | None
    weights: Floats


@dataclass(frozen=True)
class Mixture(Coupled):
    """Base of the click mixtures, which draw one number for all arms.

    Parameters
    ----------
    relevance_dim, examination_dim, context_dim : int
        As of :class:`ClickMixture`.
    """

    needs_examination: ClassVar[bool] = False
    randomized: ClassVar[bool] = True
    draw: ClassVar[str] = "coupled"

    context_dim: Annotated[int, whole(0, MAX_DIM)] = 0

    @property
    def split(self) -> int:
        """How many parameters relevance has."""
        return self.relevance_dim * (1 + self.context_dim) + 1

    @property
    def width(self) -> int:
        """How many parameters there are."""
        return self.split + self.examination_dim
