"""Estimators of a policy's value from rows of one decision each.

An estimator turns rows into units, a weight and a value each; :mod:`tacit.evaluate.sums` adds
them up, and the estimate is Σvalue/n, or Σvalue/Σweight for those that normalise themselves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats
from tacit.errors import InvalidValue
from tacit.evaluate.rows import LoggedRows
from tacit.evaluate.targets.base import Target
from tacit.evaluate.weighting.rewards import RewardModel


class WeightedRows(NamedTuple):
    """Rows with what the target policy would do in them.

    Attributes
    ----------
    rows : LoggedRows
    weights : array of float64, shape (rows,)
        π/p: the target's over the logged probability of the arm that was shown; in a list, at its
        position, whatever stands elsewhere.
    given_above : array of float64, shape (rows,)
        In a list, the same of the arm at its position, given those above it.
    target : Target
    """

    rows: LoggedRows
    weights: Floats
    given_above: Floats
    target: Target


class Units(NamedTuple):
    """What is averaged.

    Attributes
    ----------
    weights, values : array of float64, shape (units,)
    rewards : array of float64, shape (units,)
        What was earned in the log; none where they are not looked at.
    """

    weights: Floats
    values: Floats
    rewards: Floats | None = None


@dataclass(frozen=True)
class Estimator:
    """Base of the estimators that see each row on its own."""

    ratio: ClassVar[bool] = False
    """Whether the estimate is Σvalue/Σweight."""
    weighted: ClassVar[bool] = True
    """Whether values are weight times reward, as the confidence sequence needs."""
    every: ClassVar[bool] = False
    """Whether the probabilities of all arms are needed, not of the shown one alone."""
    judged: ClassVar[bool] = True
    """Whether the rows tell how far off the estimate is: else it has no intervals."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the log that are looked at, besides those that all look at."""
        return frozenset()

    @property
    def label(self) -> str:
        """The name with what differs from the defaults."""
        told = [
            f"{field.name}={value:g}"
            for field in fields(self)
            for value in [getattr(self, field.name)]
            if isinstance(value, (int, float)) and value != field.default
        ]
        return type(self).__name__ + (f"({', '.join(told)})" if told else "")

    def units(self, terms: WeightedRows) -> Units:
        """Return the units of some rows."""
        raise NotImplementedError

    def _positive(self, field: str) -> None:
        value = getattr(self, field)
        if value != math.inf:
            object.__setattr__(self, field, checks.positive(field, value))


@dataclass(frozen=True)
class IPS(Estimator):
    """Inverse propensity score: the mean of weight times reward; unbiased.

    Parameters
    ----------
    clip : float, default infinity
        The largest weight; larger ones are cut to it, which trades variance for a bias downward.

    Raises
    ------
    InvalidValue
        If ``clip`` is not above 0.

    References
    ----------
    Horvitz, Thompson (1952), "A generalization of sampling without replacement from a finite
    universe"; Strehl, Langford, Li, Kakade (2010), "Learning from logged implicit exploration
    data"; Bottou et al. (2013), "Counterfactual reasoning and learning systems", on clipping.

    Examples
    --------
    >>> IPS(clip=10).label
    'IPS(clip=10)'
    """

    clip: float = math.inf

    def __post_init__(self) -> None:
        self._positive("clip")

    def units(self, terms: WeightedRows) -> Units:
        weights = clipped(terms.weights, self.clip)
        return Units(weights, weights * terms.rows.reward, terms.rows.reward)


@dataclass(frozen=True)
class SNIPS(IPS):
    """Self-normalised inverse propensity score: Σ(weight × reward)/Σweight.

    Biased by O(1/n), within the range of the rewards, and of much less variance than IPS where
    weights vary or rewards are far from 0.

    Parameters
    ----------
    clip : float, default infinity
        As for :class:`IPS`.

    References
    ----------
    Swaminathan, Joachims (2015), "The self-normalized estimator for counterfactual learning".
    """

    ratio: ClassVar[bool] = True


@dataclass(frozen=True)
class DirectMethod(Estimator):
    """The mean of what a model of the rewards expects under the target policy.

    No weights, little variance, and all the bias of the model: no row says how far off that is, so
    there is no interval; :class:`DoublyRobust` has some.

    Parameters
    ----------
    model : RewardModel, optional
        The expected reward of each arm; by default means per arm from other rows of the log,
        see :class:`~tacit.evaluate.ArmMeans`.

    References
    ----------
    Dudík, Langford, Li (2011), "Doubly robust policy evaluation and learning", section 2.
    """

    weighted: ClassVar[bool] = False
    every: ClassVar[bool] = True
    judged: ClassVar[bool] = False

    model: RewardModel | None = None

    def __post_init__(self) -> None:
        if self.model is not None and not hasattr(self.model, "shown"):
            remedy = "give a RewardModel, such as ArmMeans(), or Predicted(model, arms=[...])"
            raise InvalidValue("model", self.model, remedy)

    @property
    def columns(self) -> frozenset[str]:
        return self.model.columns if self.model else frozenset()

    def units(self, terms: WeightedRows) -> Units:
        return Units(terms.weights, self._expected(terms))

    def _expected(self, terms: WeightedRows) -> Floats:
        """Return Σ π(a)·q(a) over the arms, per row."""
        probabilities = terms.target.every(terms.rows)
        rewards = self._model.every(terms.rows)
        return np.asarray(np.einsum("ra,ra->r", probabilities, rewards))

    @property
    def _model(self) -> Any:
        assert self.model is not None, "a model is fitted before the first row"
        return self.model


@dataclass(frozen=True)
class DoublyRobust(DirectMethod):
    """The direct method, corrected by the weighted errors of its model on what was shown.

    Unbiased whatever the model, and of less variance than IPS the better the model.

    Parameters
    ----------
    model : RewardModel, optional
        As for :class:`DirectMethod`.
    clip : float, default infinity
        The largest weight; larger ones are cut to it.

    References
    ----------
    Dudík, Langford, Li (2011), "Doubly robust policy evaluation and learning", equation 2;
    Su, Dimakopoulou, Krishnamurthy, Dudík (2020), "Doubly robust off-policy evaluation with
    shrinkage", section 3 (clipping as pessimistic shrinkage).
    """

    judged: ClassVar[bool] = True

    clip: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        self._positive("clip")

    def units(self, terms: WeightedRows) -> Units:
        weights = self._used(terms.weights)
        errors = terms.rows.reward - self._model.shown(terms.rows)
        return Units(weights, self._expected(terms) + weights * errors, terms.rows.reward)

    def _used(self, weights: Floats) -> Floats:
        return clipped(weights, self.clip)


@dataclass(frozen=True)
class SwitchDR(DoublyRobust):
    """Doubly robust where the weight is at most a threshold, the direct method elsewhere.

    Parameters
    ----------
    model : RewardModel, optional
        As for :class:`DirectMethod`.
    threshold : float, default 10
        The largest weight that is used.

    References
    ----------
    Wang, Agarwal, Dudík (2017), "Optimal and adaptive off-policy evaluation in contextual
    bandits", section 4.
    """

    clip: float = math.inf
    threshold: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._positive("threshold")

    def _used(self, weights: Floats) -> Floats:
        used = super()._used(weights)
        return np.where(weights <= self.threshold, used, 0.0)


def clipped(weights: Floats, clip: float) -> Floats:
    """Return weights cut to at most ``clip``."""
    return weights if math.isinf(clip) else np.minimum(weights, clip)
