"""Common code of click mixtures: six models and their weights, scaled features, offsets of arms."""

# 1. Six models: their priors, the gradient of a click's logit, normalised weights.
# 2. ``Inputs``: the scaling of features, fitted to the first decisions; a table of distinct arms if few.
# 3. ``Component``: a model, with offsets of arms if these are few: ``compute_logit``, ``learn_reward``.

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import kernel
from tacit.core.part import int_range, param
from tacit.core.state_ranges import IntCount
from tacit.policies.base import Impression
from tacit.policies.features import gaussian
from tacit.policies.features.click_model import MAX_DIM, SKIPPED, UNSEEN, Coupled
from tacit.policies.features.laplace import compute_click

# ---- Six models and their weights

COMPONENTS = 6
"""In the first half of the models results may go unseen; in each half the prior variance increases."""
DROPPED = -30.0
"""Log weight, relative to the largest, below which a component is dropped."""
CLICK, RELEVANCE, EXAMINATION = range(3)
"""Kinds of observations: a click or none; or its two parts, relevance and examination, if these are known."""


@kernel
def prior_variance(component: int) -> float:
    """Return the prior variance of a component's parameters: ¼, 1 or 4."""
    return 0.25 * 4.0 ** (component % 3)


@kernel
def hides(component: int) -> bool:
    """True for the components, the first three of six, in which a click requires examination."""
    return component < 3


@kernel
def tangent(
    x: Floats, mean: Floats, split: int, hides: bool, offset: float, h: Floats, kind: int
) -> tuple[float, float]:
    """Return a logit and its derivative by the offset; fill ``h`` with its gradient by the parameters at
    ``mean``.

    ``kind`` selects the logit: of a click, of relevance or of examination. The first ``split`` features ``x``
    belong to relevance, to whose logit ``offset`` is added.
    """
    relevance = gaussian.dot(x[:split], mean[:split]) + offset
    examination = gaussian.dot(x[split:], mean[split:])
    logit, by_relevance, by_examination = relevance + examination, 1.0, 1.0
    if kind == RELEVANCE:
        logit, by_examination = relevance, 0.0
    elif kind == EXAMINATION:
        logit, by_relevance = examination, 0.0
    elif hides:
        logit, by_relevance, by_examination = compute_click(relevance, examination)
    for j in range(split):
        h[j] = by_relevance * x[j]
    for j in range(split, len(x)):
        h[j] = by_examination * x[j]
    return logit, by_relevance


@kernel
def log_predictive(logit: float, variance: float, reward: float) -> float:
    """Return the log-probability of a reward whose logit is normal, of mean ``logit`` and ``variance``.

    It is approximated by the mean of a logistic over a normal logit (MacKay 1992).
    """
    logit /= np.sqrt(1.0 + 0.125 * np.pi * variance)
    return gaussian.log_sigmoid(logit) - (1.0 - reward) * logit


@kernel
def first_component(width: int, split: int) -> int:
    """Return the first component in use: 3 without examination features, where all results count as seen;
    else 0.
    """
    return 0 if width > split else COMPONENTS // 2


@kernel
def normalize(weights: Floats) -> None:
    """Replace log weights, in place, by weights of sum 1; those below e⁻³⁰ of the largest become 0."""
    largest, total = -np.inf, 0.0
    for k in range(len(weights)):
        largest = max(largest, weights[k])
    for k in range(len(weights)):
        relative = weights[k] - largest
        weights[k] = np.exp(relative) if relative > DROPPED else 0.0
        total += weights[k]
    for k in range(len(weights)):
        weights[k] /= total


def predict_clicks(
    theta: Floats, rows: Floats, split: int, hides: bool, offsets: Floats | float = 0.0
) -> Floats:
    """Return click probabilities, of shape (draws, arms), for draws ``theta`` of parameters and ``rows`` of
    features.

    With ``hides``, a click requires examination; ``offsets`` are added to the logits of relevance.
    """
    relevance = theta[:, :split] @ rows[:, :split].T + offsets
    examination = theta[:, split:] @ rows[:, split:].T
    if hides:
        return gaussian.logistic(relevance) * gaussian.logistic(examination)
    return gaussian.logistic(relevance + examination)


class MixtureBelief(NamedTuple):
    """The beliefs of a mixture.

    Attributes
    ----------
    relevance, examination, joint : Belief
        Belief about each block of parameters, and about both, in the component with the largest
        weight. The constant comes last in relevance.
    weights : array of float64, shape (6,)
        Probability of each component: three in which results may go unseen, with prior variances of
        ¼, 1 and 4, and three logistic regressions with the same.
    """

    relevance: gaussian.Belief
    examination: gaussian.Belief
    joint: gaussian.Belief | None
    weights: Floats


@dataclass(frozen=True)
class Mixture(Coupled, abstract=True):
    """Base of the click mixtures, which draw one number for all arms.

    Parameters
    ----------
    relevance_dim, examination_dim : int
        Number of relevance and of examination features per arm.
    context_dim : int
        Length of the context, by whose numbers the relevance features are also multiplied.
    """

    needs_examination: ClassVar[bool] = False
    randomized: ClassVar[bool] = True
    draw: ClassVar[str] = "coupled"
    hides: ClassVar[bool] = True

    context_dim: Annotated[int, int_range(0, MAX_DIM)] = 0

    @param
    def split(self) -> int:
        """Number of parameters of relevance, the constant included."""
        return self.relevance_dim * (1 + self.context_dim) + 1

    @property
    def width(self) -> int:
        """Number of parameters of relevance and examination."""
        return self.split + self.examination_dim


# ---- Scaled features of an arm, and a table of distinct arms if these are few
#
# Columns are divided by their largest value, and each block by the root mean square of its rows'
# lengths, both over the arms on offer in the first decisions that were learned. Then the scaling is
# fixed, so that the state is a fold of the log.

LENGTH = 0.8
"""Root mean square of the length of a block's scaled rows."""
MEASURED = 100
"""Decisions to which the scaling is fitted."""
FEW = 16
"""Largest number of distinct rows of relevance for which each arm has its own offset."""
NEW, MANY = -1, -2
"""Row numbers of an arm that is not in the table, and of any arm if there are too many."""


class Inputs(NamedTuple):
    """The scaling of a lane's features, and its table of distinct arms.

    Attributes
    ----------
    largest, squares, factor : array of float64, shape (lanes, d)
        For each column, including the constant: the largest value and the sum of squares so far,
        and the factor.
    arms : array of float64, shape (lanes, 16, relevance_dim)
        Distinct rows of relevance, in the order of their first decision.
    counts : array of int64, shape (lanes, 3)
        Decisions in the fit of the scaling, arms on offer in them, and distinct arms so far; 17
        stands for too many.
    """

    largest: Floats
    squares: Floats
    factor: Floats
    arms: Floats
    counts: IntCount

    @classmethod
    def empty(cls, lanes: int, width: int, relevance_dim: int) -> Inputs:
        """Return initial scalings with factors of 1, and empty tables of arms."""
        largest, squares = np.zeros((2, lanes, width))
        arms, counts = np.zeros((lanes, FEW, relevance_dim)), np.zeros((lanes, 3), np.int64)
        return cls(largest, squares, np.ones((lanes, width)), arms, counts)


@kernel
def forget_inputs(inputs: Inputs, lane: int) -> None:
    """Reset the scaling and the table of arms of a lane."""
    inputs.largest[lane] = 0.0
    inputs.squares[lane] = 0.0
    inputs.factor[lane] = 1.0
    inputs.arms[lane] = 0.0
    inputs.counts[lane] = 0


@kernel
def read_raw(impression: Impression, place: int, split: int, x: Floats) -> None:
    """Fill ``x`` with the unscaled features of the arm that is number ``place`` on offer.

    They are relevance, its products with the context, 1, and examination; ``split`` is the number of the
    first three.
    """
    dim, signals = impression.relevance.shape[1], len(impression.context)
    for j in range(dim):
        x[j] = impression.relevance[place, j]
    for i in range(signals if split > dim + 1 else 0):
        for j in range(dim):
            x[(i + 1) * dim + j] = impression.context[i] * impression.relevance[place, j]
    x[split - 1] = 1.0
    for j in range(split, len(x)):
        x[j] = impression.examination[place, j - split]


@kernel
def read_features(
    inputs: Inputs, lane: int, impression: Impression, place: int, split: int, x: Floats
) -> None:
    """Fill ``x`` with the scaled features of the arm that is number ``place`` on offer; see
    :func:`read_raw`.
    """
    read_raw(impression, place, split, x)
    for j in range(len(x)):
        x[j] *= inputs.factor[lane, j]


def read_offer(inputs: Inputs, lane: int, impression: Impression, split: int, width: int) -> Floats:
    """Return the scaled features of all arms on offer, of shape (arms, width)."""
    rows = np.empty((len(impression.arms), width))
    for place, row in enumerate(rows):
        read_features(inputs, lane, impression, place, split, row)
    return rows


@kernel
def find_arm_row(inputs: Inputs, lane: int, impression: Impression, place: int) -> int:
    """Return the row of the arm that is number ``place`` on offer in the table of distinct arms.

    It is NEW (−1) if the arm is not in the table, and MANY (−2) if there are too many distinct arms.
    """
    arm_count = inputs.counts[lane, 2]
    if arm_count > FEW:
        return MANY
    for i in range(arm_count):
        j = 0
        while j < inputs.arms.shape[2] and inputs.arms[lane, i, j] == impression.relevance[place, j]:
            j += 1
        if j == inputs.arms.shape[2]:
            return i
    return NEW


@kernel
def measure_offer(inputs: Inputs, lane: int, impression: Impression, split: int, x: Floats) -> None:
    """Add the arms on offer in a decision to the statistics of features, and fit the scaling to them.

    After 100 decisions, do nothing. ``x`` is a workspace.
    """
    counts = inputs.counts[lane]
    if counts[0] >= MEASURED:
        return
    counts[0] += 1
    counts[1] += len(impression.arms)
    for place in range(len(impression.arms)):
        read_raw(impression, place, split, x)
        for j in range(len(x)):
            inputs.largest[lane, j] = max(inputs.largest[lane, j], abs(x[j]))
            inputs.squares[lane, j] += x[j] * x[j]
    fit_factors(inputs, lane, 0, split - 1)
    fit_factors(inputs, lane, split, len(x))


@kernel
def register_arms(inputs: Inputs, lane: int, impression: Impression) -> None:
    """Add the arms on offer in a decision to the table of distinct arms.

    Arms beyond the 16th are only counted, until the count says that there are too many.
    """
    counts = inputs.counts[lane]
    for place in range(len(impression.arms)):
        if find_arm_row(inputs, lane, impression, place) == NEW:
            if counts[2] < FEW:
                for j in range(inputs.arms.shape[2]):
                    inputs.arms[lane, counts[2], j] = impression.relevance[place, j]
            counts[2] += 1


@kernel
def fit_factors(inputs: Inputs, lane: int, start: int, stop: int) -> None:
    """Set the scaling factors of a block of features, the columns from ``start`` to ``stop`` − 1.

    A column of zeros is scaled as an indicator. A factor changes only if it is off by more than two.
    """
    length = 0.0
    for j in range(start, stop):
        peak = inputs.largest[lane, j]
        if peak > 0.0:
            length += inputs.squares[lane, j] / (peak * peak)
    rows = inputs.counts[lane, 1]
    shrink = LENGTH * np.sqrt(rows / length) if length > 0.0 else 1.0
    for j in range(start, stop):
        peak = inputs.largest[lane, j]
        factor = shrink / peak if peak > 0.0 else shrink
        # The parameters belong to the old scaling, so a factor stays until it is off by more than two.
        if not 0.5 * factor < inputs.factor[lane, j] < 2.0 * factor:
            inputs.factor[lane, j] = factor


# ---- A component of a click mixture: a Gaussian, and an offset of each arm if arms are few
#
# If the same few arms are on offer every time, features can explain the clicks on the arm that is
# shown and be wrong about all others, for ever. An offset of each arm's relevance avoids this. It is
# normal given the parameters θ, with a mean that is linear in θ: so the joint posterior costs O(d) per
# arm, and its marginal is the posterior of θ.

OFFSET_VARIANCE = 1.0
"""Prior variance of an offset."""


class Offsets(NamedTuple):
    """Offsets of few arms: given θ, normal with mean ``mean`` − ``slope``·θ and variance ``variance``.

    Attributes
    ----------
    mean, variance : array of float64, shape (lanes, components, 16)
    slope : array of float64, shape (lanes, components, 16, d)
    """

    mean: Floats
    variance: Floats
    slope: Floats

    @classmethod
    def prior(cls, lanes: int, components: int, width: int) -> Offsets:
        """Return the offsets before the first click: mean 0, slope 0 and the prior variance."""
        mean, variance = np.zeros((2, lanes, components, FEW))
        return cls(mean, variance + OFFSET_VARIANCE, np.zeros((*mean.shape, width)))

    def draw_offsets(self, lane: int, k: int, arm_rows: Ints, theta: Floats, rng: Generator) -> Floats:
        """Return draws of arms' offsets in component ``k``, of shape (draws, arms), given draws ``theta`` of
        parameters.

        ``arm_rows`` has each arm's row of the table (:func:`find_arm_row`). Offsets are 0 if there are too
        many arms.
        """
        draws: Floats = np.sqrt(OFFSET_VARIANCE) * rng.standard_normal((len(theta), len(arm_rows)))
        draws[:, arm_rows == MANY] = 0.0
        table_rows = arm_rows[arm_rows >= 0]
        spread = np.sqrt(self.variance[lane, k, table_rows] / OFFSET_VARIANCE)
        mean = self.mean[lane, k, table_rows] - theta @ self.slope[lane, k, table_rows].T
        draws[:, arm_rows >= 0] = mean + spread * draws[:, arm_rows >= 0]
        return draws


@kernel
def forget_offsets(offsets: Offsets, lane: int) -> None:
    """Reset the offsets of a lane to the prior."""
    offsets.mean[lane] = 0.0
    offsets.variance[lane] = OFFSET_VARIANCE
    offsets.slope[lane] = 0.0


class Component(NamedTuple):
    """One of the six models: its posterior in a lane, as views into the state.

    Attributes
    ----------
    mean : array of float64, shape (d,)
    root : array of float64, shape (d, d)
    offset, variance : array of float64, shape (16,)
        As ``mean`` and ``variance`` of :class:`Offsets`.
    slope : array of float64, shape (16, d)
    split : int
        Number of parameters of relevance.
    hides : bool
        Whether the click probability is σ(x_C·θ_C)·σ(x_E·θ_E), and not σ(x_C·θ_C + x_E·θ_E).
    """

    mean: Floats
    root: Floats
    offset: Floats
    variance: Floats
    slope: Floats
    split: int
    hides: bool


class ArmLogit(NamedTuple):
    """The logit of an arm's click, its derivative by the arm's offset, and the offset's variance."""

    logit: float
    by_offset: float
    variance: float


@kernel
def compute_logit(component: Component, arm_row: int, x: Floats, h: Floats, kind: int) -> ArmLogit:
    """Return an arm's logit of a ``kind`` at the posterior mean; fill ``h`` with its gradient by the
    parameters θ.

    The arm has features ``x`` and row ``arm_row`` of the table (:func:`find_arm_row`). The gradient includes
    the offset, whose mean is linear in θ.
    """
    mean, split, hides = component.mean, component.split, component.hides
    offset, variance = 0.0, OFFSET_VARIANCE if arm_row == NEW else 0.0
    if arm_row >= 0:
        variance = component.variance[arm_row]
        offset = component.offset[arm_row] - gaussian.dot(component.slope[arm_row], mean)
    logit, by_offset = tangent(x, mean, split, hides, offset, h, kind)
    if arm_row >= 0:
        for j in range(len(x)):
            # The offset's mean is linear in θ: by the chain rule its slope is part of the gradient.
            h[j] -= by_offset * component.slope[arm_row, j]
    return ArmLogit(logit, by_offset, variance)


@kernel
def learn_reward(component: Component, arm_row: int, reward: float, work: Floats) -> float:
    """Update a component, in place, with a reward of the arm whose features are in ``work[2]``.

    Returns the log-probability that it gave before to the click or its absence. That ignores whether the
    result was seen, so it is comparable between all components.
    """
    if reward >= 0.0 or not component.hides:
        return observe(component, arm_row, max(reward, 0.0), work, CLICK)
    arm_logit = compute_logit(component, arm_row, work[2], work[0], CLICK)
    s = gaussian.project(component.root, work[0], work[1]) + arm_logit.by_offset**2 * arm_logit.variance
    observe(component, arm_row, reward - UNSEEN, work, EXAMINATION)
    if reward == SKIPPED:
        observe(component, arm_row, 0.0, work, RELEVANCE)
    return log_predictive(arm_logit.logit, s, 0.0)


@kernel
def observe(component: Component, arm_row: int, reward: float, work: Floats, kind: int) -> float:
    """Update the arm's offset, if it has a row, and then θ, in place, with an observation of the features
    ``work[2]``.

    ``kind`` says of what: CLICK, RELEVANCE or EXAMINATION. Returns the log-probability of the observation
    before. For θ, the offset's variance is additional noise: an observation of precision c along the gradient
    counts with c/(1 + c·variance).
    """
    logit, by_offset, variance = compute_logit(component, arm_row, work[2], work[0], kind)
    offset_spread = by_offset * by_offset * variance
    s = gaussian.project(component.root, work[0], work[1])
    c, gain = gaussian.logistic_step(logit, s + offset_spread, reward)
    if arm_row >= 0:
        share = by_offset * variance / (1.0 + c * offset_spread)
        # The observation minus its mean for θ = 0, times c.
        off = gain * (1.0 + c * (s + offset_spread)) + c * gaussian.dot(work[0], component.mean)
        component.offset[arm_row] += share * off
        component.variance[arm_row] = variance / (1.0 + c * offset_spread)
        for j in range(len(component.mean)):
            component.slope[arm_row, j] += share * c * work[0, j]
    gaussian.apply_observation(
        component.mean, component.root, work[1], s, c / (1.0 + c * offset_spread), gain
    )
    return log_predictive(logit, s + offset_spread, reward)
