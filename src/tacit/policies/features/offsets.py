"""A model that a click mixture weighs: a Gaussian, and an offset of each arm where arms are few.

Where the same few arms are on offer every time, features can explain the clicks on the arm that
is shown and be wrong of all others, for ever. An offset of each arm's relevance leaves the others
open. It is normal given the parameters θ, with a mean that is linear in θ: so it is known jointly
with them at O(d), and without the offsets θ's own posterior remains.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import kernel
from tacit.policies.features.gaussian import commit, dot, logistic_step, project
from tacit.policies.features.inputs import FEW, MANY, NEW
from tacit.policies.features.mixture import foretold, tangent

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
        :func:`tacit.policies.features.inputs.known_arm` does.
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
    for k in range(offsets.mean.shape[1]):
        for i in range(FEW):
            offsets.mean[lane, k, i] = 0.0
            offsets.variance[lane, k, i] = OFFSET_VARIANCE
            for j in range(offsets.slope.shape[3]):
                offsets.slope[lane, k, i, j] = 0.0


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
def aim_at(component: Component, known: int, x: Floats, h: Floats) -> Aim:
    """Fill ``h`` with the gradient of an arm's logit by θ, the offset following; return the aim.

    The arm has the features ``x`` and is one of few, ``known``, if
    :func:`tacit.policies.features.inputs.known_arm` says so.
    """
    mean, split, hides = component.mean, component.split, component.hides
    offset, variance = 0.0, OFFSET_VARIANCE if known == NEW else 0.0
    if known >= 0:
        variance = component.variance[known]
        offset = component.offset[known] - dot(component.slope[known], mean)
    logit, by_offset = tangent(x, mean, split, hides, offset, h)
    if known >= 0:
        for j in range(len(x)):
            h[j] -= by_offset * component.slope[known, j]
    return Aim(logit, by_offset, variance)


@kernel
def take_in(component: Component, known: int, reward: float, room: Floats) -> float:
    """Take in an observation; return the logarithm of the probability that it was given.

    ``room[2]`` has the features. An observation of precision c along the gradient has, for θ, the
    offset's variance for noise besides, and is of precision c/(1 + c·variance).
    """
    logit, by_offset, variance = aim_at(component, known, room[2], room[0])
    own = by_offset * by_offset * variance
    s = project(component.root, room[0], room[1])
    c, gain = logistic_step(logit, s + own, reward)
    if known >= 0:
        share = by_offset * variance / (1.0 + c * own)
        # Times c, what was observed less its mean where θ = 0.
        off = gain * (1.0 + c * (s + own)) + c * dot(room[0], component.mean)
        component.offset[known] += share * off
        component.variance[known] = variance / (1.0 + c * own)
        for j in range(len(component.mean)):
            component.slope[known, j] += share * c * room[0, j]
    commit(component.mean, component.root, room[1], s, c / (1.0 + c * own), gain)
    return foretold(logit, s + own, reward)
