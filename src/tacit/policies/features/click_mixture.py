"""Several models of the same clicks, weighed by how well each foretold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import kernel
from tacit.policies.base import About, Impression, Outcome
from tacit.policies.features.click_model import place_of
from tacit.policies.features.coupled import coupled_choice
from tacit.policies.features.examination.model import blocks_of
from tacit.policies.features.gaussian import clear, drawn, project, reset, sigmoid
from tacit.policies.features.inputs import (
    Inputs,
    forget_inputs,
    known_arm,
    measure_offer,
    meet,
    read,
    rows_read,
)
from tacit.policies.features.mixture import (
    COMPONENTS,
    Mixture,
    Weighed,
    clicks_at,
    first_component,
    hides,
    normalize,
    prior_variance,
)
from tacit.policies.features.offsets import Component, Offsets, aim_at, forget_offsets, take_in


@kernel
def component_of(state: Any, lane: int, k: int, split: int) -> Component:
    """Return a component of a lane."""
    mean, root, offsets = state.mean[lane, k], state.root[lane, k], state.offsets
    own = offsets.mean[lane, k], offsets.variance[lane, k], offsets.slope[lane, k]
    return Component(mean, root, own[0], own[1], own[2], split, hides(k))


@dataclass(frozen=True)
class ClickMixture(Mixture):
    """Weigh six models of the same clicks, and draw one number for all arms.

    A click may need examination, σ(x_C·θ_C)·σ(x_E·θ_E), or not, σ(x_C·θ_C + x_E·θ_E), and
    parameters may be small or large: prior variances of ¼, 1 and 4. Each of the six is learned by
    the step of :class:`LaplaceEC`, and its weight is multiplied by the probability that it gave
    to what came back; below e^−30 of the largest it is dropped for good. An arm's logit has mean
    and variance of the mixture, each component's being linearized at its own mean, and the arm of
    the largest mean + z·deviation is played for one z = |N(0, 1)|
    (:mod:`tacit.policies.features.coupled`): the propensity is exact, and nothing is to be tuned.

    Relevance has a constant, of prior variance ¼ where results may go unseen. While no more than
    16 different rows of relevance were met, each such arm has an offset of its own besides,
    (:mod:`tacit.policies.features.offsets`). Features may be of any size: columns are brought
    to a common one over the first 100 decisions (:mod:`tacit.policies.features.inputs`).

    Parameters
    ----------
    relevance_dim : int
        Number of relevance features per arm; at least 1.
    examination_dim : int, default 0
        Number of examination features per arm; without any, nothing hides results.
    context_dim : int, default 0
        Length of the context: features of the user, say. Every feature of relevance is taken
        alone, and times each number of the context, as features of the user by themselves
        change no arm's place.

    Raises
    ------
    InvalidValue
        If a dimension is out of its range.

    References
    ----------
    The weights: Sorenson, Alspach (1971), "Recursive Bayesian estimation using Gaussian sums",
    with the predictive probability of MacKay (1992), "The evidence framework applied to
    classification networks". The models: see :class:`LaplaceEC` and :class:`LogisticTS`.

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.ClickMixture(relevance_dim=2, examination_dim=1), seed=1)
    >>> offer = {"relevance": [[0.2, 0.9], [0.8, 0.1]], "examination": [[1.0], [0.5]]}
    >>> decision = learner.choose("video 7", **offer)
    >>> learner.learn(decision, reward=1.0)
    True
    >>> round(float(learner.probabilities("video 7", **offer).sum()), 12)
    1.0
    """

    class Params(NamedTuple):
        split: int
        coupled: bool

    class State(NamedTuple):
        mean: Floats  # (lanes, components, d)
        root: Floats  # (lanes, components, d, d)
        weight: Floats  # (lanes, components), of sum 1
        offsets: Offsets
        inputs: Inputs
        room: Floats  # (lanes, 3, d)

    about: ClassVar[About] = About(
        source="tacit; the click model of Qi et al. (2018) and logistic regression, mixed",
        regret="no bound is known",
        assumes="that a click is logistic in the features, or needs relevance and examination that are",
        fails="can settle on a wrong arm, where features speak against the best of many",
        otherwise="LaplaceEC(draw='coupled') where time is short; CUSUMRestart around it where users change",
        suits="arms known by features, whether results may go unseen or not: no knobs, exact propensities",
    )

    def init(self, lanes: int) -> State:
        width, shape = self.width, (lanes, COMPONENTS, self.width)
        state = self.State(
            np.zeros(shape),
            np.zeros((*shape, width)),
            np.zeros(shape[:2]),
            Offsets.prior(*shape),
            Inputs.unmet(lanes, width, self.relevance_dim),
            np.zeros((lanes, 3, width)),
        )
        for lane in range(lanes):
            self.restart(self.params, state, lane)
        return state

    def posterior(self, state: State, lane: int) -> Weighed:
        """Return what the heaviest component believes, and all weights."""
        weights, factor = state.weight[lane].copy(), state.inputs.factor[lane]
        heaviest = int(np.argmax(weights))
        mean, root = state.mean[lane, heaviest], state.root[lane, heaviest]
        return Weighed(*blocks_of(factor * mean, factor[:, None] * root, self.split), weights)

    def reward_draws(
        self, state: State, lane: int, impression: Impression, rng: Generator, draws: int
    ) -> Floats:
        """Return draws of the arms' mean rewards."""
        rows = rows_read(state.inputs, lane, impression, self.split, self.width)
        every = range(len(rows))
        known = np.array([known_arm(state.inputs, lane, impression, place) for place in every])
        found = []
        for k, share in enumerate(rng.multinomial(draws, state.weight[lane])):
            theta = drawn(state.mean[lane, k], state.root[lane, k], rng, share)
            offsets = state.offsets.drawn(lane, k, known, theta, rng)
            found.append(clicks_at(theta, rows, self.split, hides(k), offsets))
        return np.concatenate(found)

    @staticmethod
    def choose(params: Params, state: State, lane: int, impression: Impression, rng: Generator) -> int:
        return coupled_choice(params, state, lane, impression, rng)

    @staticmethod
    def line(params: Params, state: State, lane: int, impression: Impression, place: int) -> Any:
        h, v, x = state.room[lane, 0], state.room[lane, 1], state.room[lane, 2]
        total, mean, variance = 0.0, 0.0, 0.0
        read(state.inputs, lane, impression, place, params.split, x)
        known = known_arm(state.inputs, lane, impression, place)
        for k in range(COMPONENTS):
            weight = state.weight[lane, k]
            if weight > 0.0:
                aim = aim_at(component_of(state, lane, k, params.split), known, x, h)
                s = project(state.root[lane, k], h, v) + aim.by_offset**2 * aim.variance
                # One logit after the other (West 1979), as differences of squares would cancel.
                total += weight
                off = aim.logit - mean
                mean += weight / total * off
                variance += weight * (s + off * (aim.logit - mean))
        clear(state.room[lane])
        return mean, np.sqrt(variance / total)

    @staticmethod
    def learn(params: Params, state: State, lane: int, outcome: Outcome) -> None:
        impression, weights, x = outcome.impression, state.weight[lane], state.room[lane, 2]
        place = place_of(impression.arms, outcome.shown)
        measure_offer(state.inputs, lane, impression, params.split, x)
        meet(state.inputs, lane, impression)
        read(state.inputs, lane, impression, place, params.split, x)
        known = known_arm(state.inputs, lane, impression, place)
        for k in range(COMPONENTS):
            if weights[k] > 0.0:
                component = component_of(state, lane, k, params.split)
                told = take_in(component, known, outcome.reward, state.room[lane])
                weights[k] = np.log(weights[k]) + told
            else:
                weights[k] = -np.inf
        normalize(weights)
        clear(state.room[lane])

    @staticmethod
    def restart(params: Params, state: State, lane: int) -> None:
        first = first_component(state.mean.shape[2], params.split)
        for k in range(COMPONENTS):
            reset(state.mean[lane, k], state.root[lane, k], prior_variance(k))
            if hides(k):
                state.root[lane, k, params.split - 1, params.split - 1] = 0.5
            state.weight[lane, k] = 1.0 / (COMPONENTS - first) if k >= first else 0.0
        forget_offsets(state.offsets, lane)
        forget_inputs(state.inputs, lane)

    @staticmethod
    def believed(params: Params, state: State, lane: int, impression: Impression, arm: int) -> float:
        place, chance = place_of(impression.arms, arm), 0.0
        h, x = state.room[lane, 0], state.room[lane, 2]
        read(state.inputs, lane, impression, place, params.split, x)
        known = known_arm(state.inputs, lane, impression, place)
        for k in range(COMPONENTS):
            if state.weight[lane, k] > 0.0:
                aim = aim_at(component_of(state, lane, k, params.split), known, x, h)
                chance += state.weight[lane, k] * sigmoid(aim.logit)
        clear(state.room[lane])
        return float(chance)
