"""What a learner believes of arms that it knows by their features, and of the features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats
from tacit.core.text import Tabulated, aligned
from tacit.learning.estimates.arms import ArmEstimate, Estimates
from tacit.policies.base import Policy

DRAWS = 10_000
"""From the posterior; the same ones each time."""
BLOCKS = "relevance", "examination"


class Coefficient(NamedTuple):
    """What is believed of a parameter.

    Attributes
    ----------
    feature : str
        Of which it is: ``relevance[0]``, ``relevance[0]*context[1]``, ``examination[0]``,
        ``constant``.
    mean, low, high : float
        The parameter, and an interval for it: in log-odds for each unit of the feature; of a
        linear regression in reward for each unit.
    chance_positive : float
        The probability that more of the feature is better.
    """

    feature: str
    mean: float
    low: float
    high: float
    chance_positive: float


class Coefficients(tuple[Coefficient, ...], Tabulated):
    """A :class:`Coefficient` for each parameter, in the order of the features."""

    confidence: float

    def records(self) -> list[dict[str, Any]]:
        """Return one flat dict per parameter."""
        return [each._asdict() for each in self]

    def __str__(self) -> str:
        body = [
            [
                each.feature,
                f"{each.mean:.3f}",
                f"[{each.low:.3f}, {each.high:.3f}]",
                f"{100 * each.chance_positive:.1f} %",
            ]
            for each in self
        ]
        sure = f"{self.confidence:.0%}".replace("%", " %")
        return aligned([["feature", "mean", sure, "above 0"], *body])


def estimates_by_draws(arms: Sequence[Any], rewards: Floats, confidence: float) -> Estimates:
    """Return what draws of the arms' mean rewards come to.

    Parameters
    ----------
    arms : sequence
    rewards : array of float64, shape (draws, arms)
    confidence : float

    Examples
    --------
    >>> rewards = np.array([[0.1, 0.2], [0.3, 0.2], [0.1, 0.4], [0.5, 0.5]])
    >>> [each.chance_best for each in estimates_by_draws(["film", "holiday"], rewards, 0.9)]
    [0.375, 0.625]
    """
    tail = _tail(confidence)
    best = rewards == rewards.max(axis=1, keepdims=True)
    chances = (best / best.sum(axis=1, keepdims=True)).mean(axis=0)
    means = rewards.mean(axis=0)
    # As of Beta posteriors: a mean outside of the central interval is the end of another one.
    under = (rewards < means).mean(axis=0)
    start = np.maximum(np.minimum(tail, under), under - confidence)
    ends = [
        np.quantile(drawn, [first, min(first + confidence, 1.0)])
        for drawn, first in zip(rewards.T, start, strict=True)
    ]
    low, high = np.transpose(ends)
    around = np.fmin(low, means), np.fmax(high, means)
    columns = (column.tolist() for column in (means, *around, chances))
    found = Estimates(
        ArmEstimate(arm, None, None, *numbers) for arm, *numbers in zip(arms, *columns, strict=True)
    )
    found.confidence = confidence
    return found


def coefficients_of(policy: Policy, posterior: Any, confidence: float) -> Coefficients:
    """Return what a posterior says of each parameter.

    Parameters
    ----------
    policy : Policy
        One that reads features.
    posterior : Belief, Beliefs or Weighed
        What its ``posterior`` returns.
    confidence : float
    """
    from statistics import NormalDist  # brings decimal and fractions along

    normal = NormalDist()
    reach = normal.inv_cdf(1 - _tail(confidence))
    inner: Any = policy
    while hasattr(inner, "policy"):
        inner = inner.policy
    noise = getattr(inner, "noise", 1.0)
    if hasattr(posterior, "mean"):
        blocks = [(posterior, _given(inner, 0) + _given(inner, 1))]
    else:
        blocks = [(getattr(posterior, name), _given(inner, i)) for i, name in enumerate(BLOCKS)]
    found = Coefficients(
        _coefficient(name, float(mean), noise * float(spread), reach, normal.cdf)
        for belief, names in blocks
        for name, mean, spread in zip(
            _named(names, len(belief.mean), inner),
            belief.mean,
            np.sqrt(np.diag(belief.covariance)),
            strict=True,
        )
    )
    found.confidence = confidence
    return found


def _tail(confidence: float) -> float:
    return (1 - checks.number("confidence", confidence, 0.0, 1.0, open_low=True)) / 2


def _coefficient(
    name: str, mean: float, spread: float, reach: float, cdf: Callable[[float], float]
) -> Coefficient:
    above = cdf(mean / spread) if spread else float(mean > 0.0)
    return Coefficient(name, mean, mean - reach * spread, mean + reach * spread, above)


def _given(policy: Policy, block: int) -> list[str]:
    own = [f"{BLOCKS[block]}[{i}]" for i in range(policy.feature_dims[block])]
    if block == 0:
        own += [f"{name}*context[{j}]" for j in range(policy.context_dim) for name in own]
    return own


def _named(given: list[str], width: int, policy: Any) -> list[str]:
    """Return names for as many parameters: what is not of a given feature comes after."""
    rest = width - len(given)
    hidden = [f"hidden[{i}]" for i in range(getattr(policy, "hidden_dim", 0))]
    constants = ["constant"] if rest - len(hidden) == 1 else []
    others = [f"position[{i}]" for i in range(rest - len(hidden) - len(constants))]
    return [*given, *constants, *others, *hidden]
