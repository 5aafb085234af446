"""What click mixtures share: six models and their weights, what they read of an arm, offsets of each."""

# 1. Six models: their priors, the gradient of a click's logit, how weights become ones of sum 1.
# 2. ``Inputs``: features at a common size, measured over the first decisions; which of few arms stands
#    where.
# 3. ``Component``: a model, with offsets of arms where these are few: ``aim_at``, then ``take_in``.

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import kernel
from tacit.core.part import param, whole
from tacit.core.state_ranges import IntCount
from tacit.policies.base import Impression
from tacit.policies.features import gaussian
from tacit.policies.features.click_model import MAX_DIM, SKIPPED, UNSEEN, Coupled
from tacit.policies.features.laplace import click_at

# ---- What click mixtures have in common: six models, their weights, and what they read

COMPONENTS = 6
"""Results may go unseen in the first half of them; in each half the prior is wider and wider."""
DROPPED = -30.0
"""Log weight, beside the largest, below which a component is dropped."""
CLICK, WANTED, SEEN = range(3)
"""What is observed: a click or none; or, as far as that is known, its two parts."""


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
    x: Floats, mean: Floats, split: int, hides: bool, offset: float, h: Floats, of: int
) -> tuple[float, float]:
    """Fill ``h`` with the gradient of an arm's logit by θ; return it, and its derivative by offset.

    The first ``split`` features ``x`` are those of relevance. The logit is that ``of`` a click, of what
    is wanted where it is seen, or of what is seen.
    """
    relevance = gaussian.dot(x[:split], mean[:split]) + offset
    examination = gaussian.dot(x[split:], mean[split:])
    logit, by_relevance, by_examination = relevance + examination, 1.0, 1.0
    if of == WANTED:
        logit, by_examination = relevance, 0.0
    elif of == SEEN:
        logit, by_relevance = examination, 0.0
    elif hides:
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
    return gaussian.log_sigmoid(logit) - (1.0 - reward) * logit


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
        return gaussian.logistic(relevance) * gaussian.logistic(examination)
    return gaussian.logistic(relevance + examination)


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

    relevance: gaussian.Belief
    examination: gaussian.Belief
    joint: gaussian.Belief | None
    weights: Floats


@dataclass(frozen=True)
class Mixture(Coupled, abstract=True):
    """Base of the click mixtures, which draw one number for all arms.

    Parameters
    ----------
    relevance_dim, examination_dim, context_dim : int
        As of :class:`ClickMixture`.
    """

    needs_examination: ClassVar[bool] = False
    randomized: ClassVar[bool] = True
    draw: ClassVar[str] = "coupled"
    hides: ClassVar[bool] = True

    context_dim: Annotated[int, whole(0, MAX_DIM)] = 0

    @param
    def split(self) -> int:
        """How many parameters relevance has."""
        return self.relevance_dim * (1 + self.context_dim) + 1

    @property
    def width(self) -> int:
        """How many parameters there are."""
        return self.split + self.examination_dim


# ---- What models read of an arm: its features at a common size, and which of a few arms it is
#
# Columns are divided by their largest value, and each block by the root mean square of its rows'
# lengths, both over the arms on offer in the first decisions that were learned from. Then the
# measure stands still, so that what is learned is a fold of the log.

LENGTH = 0.8
"""Of a block's rows in the root mean square, once they are at the common size."""
MEASURED = 100
"""Decisions over which features are measured."""
FEW = 16
"""Arms of so many different rows of relevance, at most, are known one by one."""
NEW, MANY = -1, -2
"""Places of an arm that was not met before, and of any where arms are many."""


class Inputs(NamedTuple):
    """What is known of a lane's features.

    Attributes
    ----------
    largest, squares, factor : array of float64, shape (lanes, d)
        Of each column, the constant included: the largest value and the sum of squares so far,
        and what the column is multiplied by.
    arms : array of float64, shape (lanes, 16, relevance_dim)
        Different rows of relevance, as they were met.
    counts : array of int64, shape (lanes, 3)
        Decisions that were measured, arms on offer in them, and different arms that were met; 17
        of these are many.
    """

    largest: Floats
    squares: Floats
    factor: Floats
    arms: Floats
    counts: IntCount

    @classmethod
    def unmet(cls, lanes: int, width: int, relevance_dim: int) -> Inputs:
        """Return what lanes know that have met nothing."""
        largest, squares = np.zeros((2, lanes, width))
        arms, counts = np.zeros((lanes, FEW, relevance_dim)), np.zeros((lanes, 3), np.int64)
        return cls(largest, squares, np.ones((lanes, width)), arms, counts)


@kernel
def forget_inputs(inputs: Inputs, lane: int) -> None:
    """Know nothing of features again."""
    inputs.largest[lane] = 0.0
    inputs.squares[lane] = 0.0
    inputs.factor[lane] = 1.0
    inputs.arms[lane] = 0.0
    inputs.counts[lane] = 0


@kernel
def read_raw(impression: Impression, place: int, split: int, x: Floats) -> None:
    """Fill ``x`` with an arm's features: relevance, that times each signal, 1, examination."""
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
def read(inputs: Inputs, lane: int, impression: Impression, place: int, split: int, x: Floats) -> None:
    """Fill ``x`` with an arm's features at their common size."""
    read_raw(impression, place, split, x)
    for j in range(len(x)):
        x[j] *= inputs.factor[lane, j]


def rows_read(inputs: Inputs, lane: int, impression: Impression, split: int, width: int) -> Floats:
    """Return the features of all arms on offer at their common size."""
    rows = np.empty((len(impression.arms), width))
    for place, row in enumerate(rows):
        read(inputs, lane, impression, place, split, row)
    return rows


@kernel
def known_arm(inputs: Inputs, lane: int, impression: Impression, place: int) -> int:
    """Return which of few arms stands at a place on offer; NEW or MANY if it is none of them."""
    met = inputs.counts[lane, 2]
    if met > FEW:
        return MANY
    for i in range(met):
        j = 0
        while j < inputs.arms.shape[2] and inputs.arms[lane, i, j] == impression.relevance[place, j]:
            j += 1
        if j == inputs.arms.shape[2]:
            return i
    return NEW


@kernel
def measure_offer(inputs: Inputs, lane: int, impression: Impression, split: int, x: Floats) -> None:
    """Measure the arms on offer in a decision that is learned from; uses ``x``."""
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
    measure(inputs, lane, 0, split - 1)
    measure(inputs, lane, split, len(x))


@kernel
def meet(inputs: Inputs, lane: int, impression: Impression) -> None:
    """Come to know the arms on offer in a decision that is learned from, if they are few."""
    counts = inputs.counts[lane]
    for place in range(len(impression.arms)):
        if known_arm(inputs, lane, impression, place) == NEW:
            if counts[2] < FEW:
                for j in range(inputs.arms.shape[2]):
                    inputs.arms[lane, counts[2], j] = impression.relevance[place, j]
            counts[2] += 1


@kernel
def measure(inputs: Inputs, lane: int, start: int, stop: int) -> None:
    """Set the factors of a block's columns; a column that was always 0 is taken for indicators."""
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
        # What was learned is at the old size, so a factor stays until it is off by more than two.
        if not 0.5 * factor < inputs.factor[lane, j] < 2.0 * factor:
            inputs.factor[lane, j] = factor


# ---- A model that a click mixture weighs: a Gaussian, and an offset of each arm where arms are few
#
# Where the same few arms are on offer every time, features can explain the clicks on the arm that
# is shown and be wrong of all others, for ever. An offset of each arm's relevance leaves the others
# open. It is normal given the parameters θ, with a mean that is linear in θ: so it is known jointly
# with them at O(d), and without the offsets θ's own posterior remains.

OFFSET_VARIANCE = 1.0
"""Of an offset, before the first click."""


class Offsets(NamedTuple):
    """Offsets of few arms: of mean ``mean`` − ``slope``·θ, and this variance, given θ.

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
        """Return the offsets before the first click."""
        mean, variance = np.zeros((2, lanes, components, FEW))
        return cls(mean, variance + OFFSET_VARIANCE, np.zeros((*mean.shape, width)))

    def drawn(self, lane: int, k: int, known: Ints, theta: Floats, rng: Generator) -> Floats:
        """Return draws of the offsets of arms, given draws of the parameters.

        Which of few each arm is, ``known`` says, as
        :func:`tacit.policies.features.mixture.known_arm` does.
        """
        found: Floats = np.sqrt(OFFSET_VARIANCE) * rng.standard_normal((len(theta), len(known)))
        found[:, known == MANY] = 0.0
        own = known[known >= 0]
        spread = np.sqrt(self.variance[lane, k, own] / OFFSET_VARIANCE)
        mean = self.mean[lane, k, own] - theta @ self.slope[lane, k, own].T
        found[:, known >= 0] = mean + spread * found[:, known >= 0]
        return found


@kernel
def forget_offsets(offsets: Offsets, lane: int) -> None:
    """Return to the prior."""
    offsets.mean[lane] = 0.0
    offsets.variance[lane] = OFFSET_VARIANCE
    offsets.slope[lane] = 0.0


class Component(NamedTuple):
    """A model of clicks, and what it believes.

    Attributes
    ----------
    mean : array of float64, shape (d,)
    root : array of float64, shape (d, d)
    offset, variance : array of float64, shape (16,)
        As ``mean`` and ``variance`` of :class:`Offsets`.
    slope : array of float64, shape (16, d)
    split : int
        How many of the parameters are of relevance.
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


class Aim(NamedTuple):
    """The logit of an arm's click, its derivative by the arm's offset, the offset's variance."""

    logit: float
    by_offset: float
    variance: float


@kernel
def aim_at(component: Component, known: int, x: Floats, h: Floats, of: int) -> Aim:
    """Fill ``h`` with the gradient of an arm's logit by θ, the offset following; return the aim.

    The arm has the features ``x`` and is one of few, ``known``, if
    :func:`tacit.policies.features.mixture.known_arm` says so.
    """
    mean, split, hides = component.mean, component.split, component.hides
    offset, variance = 0.0, OFFSET_VARIANCE if known == NEW else 0.0
    if known >= 0:
        variance = component.variance[known]
        offset = component.offset[known] - gaussian.dot(component.slope[known], mean)
    logit, by_offset = tangent(x, mean, split, hides, offset, h, of)
    if known >= 0:
        for j in range(len(x)):
            # The offset's mean is linear in θ: by the chain rule its slope is part of the gradient.
            h[j] -= by_offset * component.slope[known, j]
    return Aim(logit, by_offset, variance)


@kernel
def take_in(component: Component, known: int, reward: float, room: Floats) -> float:
    """Take in what came back; return the logarithm of the probability that a click or none was given.

    So it can be compared with what models say that know nothing of what is seen.
    """
    if reward >= 0.0 or not component.hides:
        return observe(component, known, max(reward, 0.0), room, CLICK)
    aim = aim_at(component, known, room[2], room[0], CLICK)
    s = gaussian.project(component.root, room[0], room[1]) + aim.by_offset**2 * aim.variance
    observe(component, known, reward - UNSEEN, room, SEEN)
    if reward == SKIPPED:
        observe(component, known, 0.0, room, WANTED)
    return foretold(aim.logit, s, 0.0)


@kernel
def observe(component: Component, known: int, reward: float, room: Floats, of: int) -> float:
    """Take in an observation; return the logarithm of the probability that it was given.

    ``room[2]`` has the features. An observation of precision c along the gradient has, for θ, the
    offset's variance for noise besides, and is of precision c/(1 + c·variance).
    """
    logit, by_offset, variance = aim_at(component, known, room[2], room[0], of)
    own = by_offset * by_offset * variance
    s = gaussian.project(component.root, room[0], room[1])
    c, gain = gaussian.logistic_step(logit, s + own, reward)
    if known >= 0:
        share = by_offset * variance / (1.0 + c * own)
        # Times c, what was observed less its mean where θ = 0.
        off = gain * (1.0 + c * (s + own)) + c * gaussian.dot(room[0], component.mean)
        component.offset[known] += share * off
        component.variance[known] = variance / (1.0 + c * own)
        for j in range(len(component.mean)):
            component.slope[known, j] += share * c * room[0, j]
    gaussian.commit(component.mean, component.root, room[1], s, c / (1.0 + c * own), gain)
    return foretold(logit, s + own, reward)
