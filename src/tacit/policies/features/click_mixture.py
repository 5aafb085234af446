"""Mixtures of click models, weighed by their predictions; one of them shares data between similar keys."""

# 1. ``ClickMixture``: six models of the same clicks, each weighed by how well it predicted them.
# 2. ``HybridClickMixture``: the same for similar keys: shared parameters, and a deviation for each key.

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import kernel
from tacit.policies.base import About, Impression, Outcome
from tacit.policies.features import mixture
from tacit.policies.features.click_model import (
    SKIPPED,
    UNSEEN,
    choose_coupled,
    compute_coupled_propensity,
    find_place,
)
from tacit.policies.features.ec_bandit import split_beliefs
from tacit.policies.features.gaussian import (
    apply_observation,
    clear,
    dot,
    draw_samples,
    logistic_step,
    project,
    reset,
    sigmoid,
)

# ---- Several models of the same clicks, weighed by how well each predicted them


@kernel
def get_component(state: Any, lane: int, k: int, split: int) -> mixture.Component:
    """Return component ``k`` of a lane, whose arrays are views into the state: an update of them changes the
    state.
    """
    mean, root, offsets = state.mean[lane, k], state.root[lane, k], state.offsets
    offset_terms = offsets.mean[lane, k], offsets.variance[lane, k], offsets.slope[lane, k]
    return mixture.Component(
        mean, root, offset_terms[0], offset_terms[1], offset_terms[2], split, mixture.hides(k)
    )


@dataclass(frozen=True)
class ClickMixture(mixture.Mixture):
    """Weigh six models of the same clicks, and draw one number for all arms.

    A click may need examination, σ(x_C·θ_C)·σ(x_E·θ_E), or not, σ(x_C·θ_C + x_E·θ_E), and
    parameters may be small or large: prior variances of ¼, 1 and 4. Each of the six is learned by
    the step of :class:`LaplaceEC`, and its weight is multiplied by the probability that it gave to the
    reward; below e^−30 of the largest it is dropped for good. An arm's logit has mean and variance of
    the mixture, each component being linearized at its own mean, and the arm with the largest
    mean + z·deviation is played, with one z = |N(0, 1)| for all arms
    (:mod:`tacit.policies.features.click_model`): the propensity is exact, and no tuning is needed.

    Relevance has a constant, of prior variance ¼ in the models where results may go unseen. As long as
    there were at most 16 different rows of relevance, each such arm also has an offset of its own
    (:mod:`tacit.policies.features.mixture`). Features may be of any scale: columns are scaled to a
    common size over the first 100 decisions (:mod:`tacit.policies.features.mixture`).

    Parameters
    ----------
    relevance_dim : int
        Number of relevance features per arm; at least 1.
    examination_dim : int, default 0
        Number of examination features per arm; without any, all results count as seen.
    context_dim : int, default 0
        Length of the context, such as features of the user. Every feature of relevance is used
        alone, and times each number of the context, because features of the user by themselves do
        not change the ranking.

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

    class State(NamedTuple):
        mean: Floats  # (lanes, components, d)
        root: Floats  # (lanes, components, d, d)
        weight: Floats  # (lanes, components), of sum 1
        offsets: mixture.Offsets
        inputs: mixture.Inputs
        room: Floats  # (lanes, 3, d)

    about: ClassVar[About] = About(
        source="tacit; the click model of Qi et al. (2018) and logistic regression, mixed",
        regret="no bound is known",
        assumes="that a click is logistic in the features, or needs relevance and examination that are",
        fails="can settle on a wrong arm, where features speak against the best of many",
        otherwise="LaplaceEC(draw='coupled') where time is short; CUSUMRestart around it where users change",
        suits="arms known by features, whether results may go unseen or not: no knobs, exact propensities",
        weak="ten arms that stay the same, 1.2 ± 0.1 times the regret of the best that was tuned",
    )

    def init(self, lanes: int) -> State:
        """Return the initial state: each component's prior, equal weights, and no scaling of features."""
        width, shape = self.width, (lanes, mixture.COMPONENTS, self.width)
        state = self.State(
            np.zeros(shape),
            np.zeros((*shape, width)),
            np.zeros(shape[:2]),
            mixture.Offsets.prior(*shape),
            mixture.Inputs.empty(lanes, width, self.relevance_dim),
            np.zeros((lanes, 3, width)),
        )
        for lane in range(lanes):
            self.restart(self.params, state, lane)
        return state

    def posterior(self, state: State, lane: int) -> mixture.MixtureBelief:
        """Return a lane's beliefs by its component of the largest weight, and the weights of all components.

        Parameters are in units of unscaled features.
        """
        weights, factor = state.weight[lane].copy(), state.inputs.factor[lane]
        heaviest = int(np.argmax(weights))
        mean, root = state.mean[lane, heaviest], state.root[lane, heaviest]
        return mixture.MixtureBelief(
            *split_beliefs(factor * mean, factor[:, None] * root, self.split), weights
        )

    def reward_draws(
        self, state: State, lane: int, impression: Impression, rng: Generator, draws: int
    ) -> Floats:
        """Return posterior draws of each arm's click probability, of shape (draws, arms on offer)."""
        rows = mixture.read_offer(state.inputs, lane, impression, self.split, self.width)
        every = range(len(rows))
        arm_rows = np.array([mixture.find_arm_row(state.inputs, lane, impression, place) for place in every])
        samples = []
        for k, share in enumerate(rng.multinomial(draws, state.weight[lane])):
            theta = draw_samples(state.mean[lane, k], state.root[lane, k], rng, share)
            offsets = state.offsets.draw_offsets(lane, k, arm_rows, theta, rng)
            samples.append(mixture.predict_clicks(theta, rows, self.split, mixture.hides(k), offsets))
        return np.concatenate(samples)

    @staticmethod
    def choose(params: ClickMixture, state: State, lane: int, impression: Impression, rng: Generator) -> int:
        """Return the arm with the largest mean + z·deviation of its logit, with one random z for all arms;
        see ``line``.
        """
        return choose_coupled(params, state, lane, impression, rng)

    @staticmethod
    def line(params: ClickMixture, state: State, lane: int, impression: Impression, place: int) -> Any:
        """Return the mean and standard deviation of the logit of an arm, over all components.

        ``place`` is the arm's number on offer. Each component counts by its weight.
        """
        h, v, x = state.room[lane, 0], state.room[lane, 1], state.room[lane, 2]
        total, mean, variance = 0.0, 0.0, 0.0
        mixture.read_features(state.inputs, lane, impression, place, params.split, x)
        arm_row = mixture.find_arm_row(state.inputs, lane, impression, place)
        for k in range(mixture.COMPONENTS):
            weight = state.weight[lane, k]
            if weight > 0.0:
                arm_logit = mixture.compute_logit(
                    get_component(state, lane, k, params.split), arm_row, x, h, mixture.CLICK
                )
                # Variance of the component's logit, by its parameters and the arm's offset.
                s = project(state.root[lane, k], h, v) + arm_logit.by_offset**2 * arm_logit.variance
                # Updated component by component (West 1979): differences of squares would cancel.
                total += weight
                off = arm_logit.logit - mean
                mean += weight / total * off
                variance += weight * (s + off * (arm_logit.logit - mean))
        clear(state.room[lane])
        return mean, np.sqrt(variance / total)

    @staticmethod
    def learn(params: ClickMixture, state: State, lane: int, outcome: Outcome) -> None:
        """Update every component, its weight and its offset of the shown arm with the reward.

        Before that, the scaling of features is fitted to the arms on offer (in the first 100 decisions), and
        arms that were not seen before are added to the table of arms.
        """
        impression, weights, x = outcome.impression, state.weight[lane], state.room[lane, 2]
        place = find_place(impression.arms, outcome.shown)
        mixture.measure_offer(state.inputs, lane, impression, params.split, x)
        mixture.register_arms(state.inputs, lane, impression)
        mixture.read_features(state.inputs, lane, impression, place, params.split, x)
        arm_row = mixture.find_arm_row(state.inputs, lane, impression, place)
        for k in range(mixture.COMPONENTS):
            if weights[k] > 0.0:
                component = get_component(state, lane, k, params.split)
                evidence = mixture.learn_reward(component, arm_row, outcome.reward, state.room[lane])
                weights[k] = np.log(weights[k]) + evidence
            else:
                weights[k] = -np.inf
        mixture.normalize(weights)
        clear(state.room[lane])

    @staticmethod
    def restart(params: ClickMixture, state: State, lane: int) -> None:
        """Reset a lane to the prior: components, their weights, offsets of arms and the scaling of
        features.
        """
        first = mixture.first_component(state.mean.shape[2], params.split)
        for k in range(mixture.COMPONENTS):
            reset(state.mean[lane, k], state.root[lane, k], mixture.prior_variance(k))
            if mixture.hides(k):
                state.root[lane, k, params.split - 1, params.split - 1] = 0.5
            state.weight[lane, k] = 1.0 / (mixture.COMPONENTS - first) if k >= first else 0.0
        mixture.forget_offsets(state.offsets, lane)
        mixture.forget_inputs(state.inputs, lane)

    @staticmethod
    def believed(params: ClickMixture, state: State, lane: int, impression: Impression, arm: int) -> float:
        """Return the click probability of an arm on offer, averaged over components by weight."""
        place, chance = find_place(impression.arms, arm), 0.0
        h, x = state.room[lane, 0], state.room[lane, 2]
        mixture.read_features(state.inputs, lane, impression, place, params.split, x)
        arm_row = mixture.find_arm_row(state.inputs, lane, impression, place)
        for k in range(mixture.COMPONENTS):
            if state.weight[lane, k] > 0.0:
                arm_logit = mixture.compute_logit(
                    get_component(state, lane, k, params.split), arm_row, x, h, mixture.CLICK
                )
                chance += state.weight[lane, k] * sigmoid(arm_logit.logit)
        clear(state.room[lane])
        return float(chance)


# ---- A click mixture that shares parameters between keys

DEVIATION_SHARE = 0.25
"""Prior variance of a key's deviation in a parameter, relative to that of the shared parameter."""


class SharedModels(NamedTuple):
    """State that all keys share: the parameters θ₀, the weights of components, the scaling of features.

    Attributes
    ----------
    mean : array of float64, shape (1, components, d)
    root : array of float64, shape (1, components, d, d)
    weight : array of float64, shape (1, components)
    inputs : Inputs
    """

    mean: Floats
    root: Floats
    weight: Floats
    inputs: mixture.Inputs


@kernel
def key_variance(k: int, j: int, split: int) -> float:
    """Return the prior variance of a key's deviation from the shared parameter ``j`` of component ``k``.

    It is a quarter of the shared parameter's prior variance.
    """
    shared_variance = 0.25 if mixture.hides(k) and j == split - 1 else mixture.prior_variance(k)
    return DEVIATION_SHARE * shared_variance


@kernel
def fill_centre(state: Any, lane: int, split: int) -> None:
    """Fill ``state.centre`` with the posterior mean of a key's parameters in each component of weight above
    0.

    It is the key's own mean, given the shared parameters at their mean. Overwrites the workspace.
    """
    for k in range(mixture.COMPONENTS):
        if state.shared.weight[0, k] > 0.0:
            root, v, work = state.root[lane, k], state.room[lane, 1], state.room[lane, 0]
            # The shared mean shifts the key's mean by covariance · prior precision · shared mean.
            for j in range(len(v)):
                work[j] = state.shared.mean[0, k, j] / key_variance(k, j, split)
            project(root, work, v)
            for j in range(len(v)):
                state.centre[lane, k, j] = state.mean[lane, k, j] + dot(root[j], v)


@kernel
def logit_variances(state: Any, lane: int, k: int, split: int) -> tuple[float, float]:
    """Return two parts of a logit's variance: from the key's own deviation, and from the shared parameters
    θ₀.

    ``work[0]`` must hold the logit's gradient h. Fills ``work[1]`` with Sᵀh for the root S of the key's
    covariance, ``work[3]`` with the gradient by θ₀, and ``work[4]`` with that times the root of θ₀'s
    covariance.
    """
    work, root = state.room[lane], state.root[lane, k]
    key_part = project(root, work[0], work[1])
    for j in range(len(root)):
        work[3, j] = dot(root[j], work[1]) / key_variance(k, j, split)
    return key_part, project(state.shared.root[0, k], work[3], work[4])


@kernel
def learn_component(state: Any, lane: int, k: int, split: int, reward: float) -> float:
    """Update component ``k`` with a reward of the arm whose features are in ``work[2]``.

    Returns the log-probability that the component gave to the click or its absence. If it is known whether
    the result was seen (codes UNSEEN, SKIPPED), examination and relevance are learned separately.
    """
    if reward >= 0.0 or not mixture.hides(k):
        return observe_component(state, lane, k, split, max(reward, 0.0), mixture.CLICK)
    work = state.room[lane]
    logit, _ = mixture.tangent(work[2], state.centre[lane, k], split, True, 0.0, work[0], mixture.CLICK)
    key_part, shared_part = logit_variances(state, lane, k, split)
    observe_component(state, lane, k, split, reward - UNSEEN, mixture.EXAMINATION)
    if reward == SKIPPED:
        fill_centre(state, lane, split)
        observe_component(state, lane, k, split, 0.0, mixture.RELEVANCE)
    return mixture.log_predictive(logit, key_part + shared_part, 0.0)


@kernel
def observe_component(state: Any, lane: int, k: int, split: int, reward: float, kind: int) -> float:
    """Update shared and key parameters of component ``k`` with one observation, 0 to 1, of the features in
    ``work[2]``.

    ``kind`` says of what: CLICK, RELEVANCE or EXAMINATION. Returns the log-probability of the observation
    before the update.
    """
    shared, work = state.shared, state.room[lane]
    logit, _ = mixture.tangent(work[2], state.centre[lane, k], split, mixture.hides(k), 0.0, work[0], kind)
    key_part, shared_part = logit_variances(state, lane, k, split)
    c, gain = logistic_step(logit, key_part + shared_part, reward)
    # The observation minus its mean for θ₀ = 0, times c.
    off = gain * (1.0 + c * (key_part + shared_part)) + c * dot(work[3], shared.mean[0, k])
    apply_observation(
        shared.mean[0, k], shared.root[0, k], work[4], shared_part, c / (1.0 + c * key_part), gain
    )
    apply_observation(
        state.mean[lane, k], state.root[lane, k], work[1], key_part, c, off / (1.0 + c * key_part)
    )
    return mixture.log_predictive(logit, key_part + shared_part, reward)


@dataclass(frozen=True)
class HybridClickMixture(mixture.Mixture):
    """Weigh six models of clicks, whose parameters for each key deviate from shared ones.

    A key's parameters are θ₀ + δ. θ₀ is learned from the clicks of all keys, δ from the key's own;
    before the first click δ has a quarter of θ₀'s variance. A new key begins with θ₀ as learned from the
    other keys, and deviates from it as its own clicks require. Apart from this it is
    :class:`ClickMixture` without offsets of arms. The scaling of features and the weights of the models
    are shared by all keys.

    Given θ₀, a key's parameters are normal, of mean e + C·θ₀/δ² and covariance C, where e and C
    follow from the key's clicks alone. So θ₀ and δ have their joint posterior at O(d²), as if all keys
    were fitted at once, and a round costs three times as much as one of ClickMixture.

    Parameters
    ----------
    relevance_dim : int
        Number of relevance features per arm; at least 1.
    examination_dim : int, default 0
        Number of examination features per arm; without any, all results count as seen.
    context_dim : int, default 0
        Length of the context, by whose numbers the relevance features are also multiplied.

    Raises
    ------
    InvalidValue
        If a dimension is out of its range.

    References
    ----------
    The hybrid model: Li, Chu, Langford, Schapire (2010), "A contextual-bandit approach to
    personalized news article recommendation", section 3.2; here both parts have the same features.

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.policies.HybridClickMixture(relevance_dim=2), seed=1)
    >>> films = [[0.2, 0.9], [0.8, 0.1]]
    >>> for user in ["ann", "bob", "cem"] * 30:
    ...     decision = learner.choose(user, relevance=films)
    ...     _ = learner.learn(decision, reward=float(decision.arm == 1))
    >>> learner.choose("dua", relevance=films).arm
    1
    """

    class State(NamedTuple):
        shared: SharedModels
        mean: Floats  # (lanes, components, d), where θ₀ = 0
        root: Floats  # (lanes, components, d, d), given θ₀
        centre: Floats  # (lanes, components, d), zeros between calls
        room: Floats  # (lanes, 5, d)

    about: ClassVar[About] = About(
        source="tacit; the hybrid model of Li, Chu, Langford, Schapire (2010), section 3.2",
        regret="no bound is known",
        assumes="that keys' parameters lie about common ones",
        fails="what one key alone would learn, it learns a little later where keys have nothing in common",
        otherwise="ClickMixture, for a single key or keys that have nothing in common",
    )

    def init(self, lanes: int) -> Any:
        """Return the initial state: priors of the shared parameters and of keys' deviations, and equal
        weights.
        """
        width, shape = self.width, (mixture.COMPONENTS, self.width)
        common = SharedModels(
            np.zeros((1, *shape)),
            np.zeros((1, *shape, width)),
            np.zeros((1, mixture.COMPONENTS)),
            mixture.Inputs.empty(1, width, self.relevance_dim),
        )
        first = mixture.first_component(width, self.split)
        common.weight[0, first:] = 1.0 / (mixture.COMPONENTS - first)
        for k in range(mixture.COMPONENTS):
            variances = [key_variance(k, j, self.split) / DEVIATION_SHARE for j in range(width)]
            common.root[0, k] = np.diag(np.sqrt(variances))
        deviations = np.zeros((lanes, *shape)), np.zeros((lanes, *shape, width))
        state = self.State(common, *deviations, np.zeros((lanes, *shape)), np.zeros((lanes, 5, width)))
        for lane in range(lanes):
            self.restart(self.params, state, lane)
        return state

    def posterior(self, state: Any, lane: int) -> mixture.MixtureBelief:
        """Return the beliefs about a key by the component of the largest weight, and the weights of all
        components.

        Parameters are in units of unscaled features.
        """
        weights, factor = state.shared.weight[0].copy(), state.shared.inputs.factor[0]
        k = int(np.argmax(weights))
        root, common = state.root[lane, k], state.shared.root[0, k]
        key_variances = [key_variance(k, j, self.split) for j in range(len(root))]
        # The key's parameters given θ₀ are normal; ``follows`` is the derivative of their mean by θ₀.
        follows = root @ root.T / np.array(key_variances)
        mean = state.mean[lane, k] + follows @ state.shared.mean[0, k]
        covariance = root @ root.T + follows @ common @ common.T @ follows.T
        whole = factor[:, None] * np.linalg.cholesky(covariance)
        return mixture.MixtureBelief(*split_beliefs(factor * mean, whole, self.split), weights)

    def reward_draws(
        self, state: Any, lane: int, impression: Impression, rng: Generator, draws: int
    ) -> Floats:
        """Return posterior draws of each arm's click probability for a key, of shape (draws, arms on
        offer).
        """
        shared, width, split = state.shared, self.width, self.split
        rows = mixture.read_offer(shared.inputs, 0, impression, split, width)
        samples = []
        for k, share in enumerate(rng.multinomial(draws, shared.weight[0])):
            root = state.root[lane, k]
            key_variances = np.array([key_variance(k, j, split) for j in range(width)])
            common = draw_samples(shared.mean[0, k], shared.root[0, k], rng, share)
            theta = draw_samples(state.mean[lane, k], root, rng, share) + common / key_variances @ (
                root @ root.T
            )
            samples.append(mixture.predict_clicks(theta, rows, split, mixture.hides(k)))
        return np.concatenate(samples)

    @staticmethod
    def choose(
        params: HybridClickMixture, state: State, lane: int, impression: Impression, rng: Generator
    ) -> int:
        """Return the arm with the largest mean + z·deviation of its logit, with one random z for all arms."""
        fill_centre(state, lane, params.split)
        arm = choose_coupled(params, state, lane, impression, rng)
        clear(state.centre[lane])
        clear(state.room[lane])
        return arm

    @staticmethod
    def propensity(
        params: HybridClickMixture, state: State, lane: int, impression: Impression, arm: int
    ) -> float:
        """Return the probability that ``choose`` returns an arm."""
        fill_centre(state, lane, params.split)
        chance = compute_coupled_propensity(params, state, lane, impression, arm)
        clear(state.centre[lane])
        clear(state.room[lane])
        return chance

    @staticmethod
    def line(params: HybridClickMixture, state: State, lane: int, impression: Impression, place: int) -> Any:
        """Return the mean and standard deviation of the logit of an arm, over all components.

        ``place`` is the arm's number on offer. ``state.centre`` must be filled; the workspace is overwritten.
        """
        h, x = state.room[lane, 0], state.room[lane, 2]
        total, mean, variance = 0.0, 0.0, 0.0
        mixture.read_features(state.shared.inputs, 0, impression, place, params.split, x)
        for k in range(mixture.COMPONENTS):
            weight = state.shared.weight[0, k]
            if weight > 0.0:
                logit, _ = mixture.tangent(
                    x, state.centre[lane, k], params.split, mixture.hides(k), 0.0, h, mixture.CLICK
                )
                key_part, shared_part = logit_variances(state, lane, k, params.split)
                total += weight
                off = logit - mean
                mean += weight / total * off
                variance += weight * (key_part + shared_part + off * (logit - mean))
        return mean, np.sqrt(variance / total)

    @staticmethod
    def learn(params: HybridClickMixture, state: State, lane: int, outcome: Outcome) -> None:
        """Update the shared and the key's parameters of every component, and the weights, with the reward.

        Before that, in the first 100 decisions, the scaling of features is fitted to the arms on offer.
        """
        impression, shared = outcome.impression, state.shared
        weights, work = shared.weight[0], state.room[lane]
        place = find_place(impression.arms, outcome.shown)
        mixture.measure_offer(shared.inputs, 0, impression, params.split, work[2])
        mixture.read_features(shared.inputs, 0, impression, place, params.split, work[2])
        fill_centre(state, lane, params.split)
        for k in range(mixture.COMPONENTS):
            if weights[k] > 0.0:
                evidence = learn_component(state, lane, k, params.split, outcome.reward)
                weights[k] = np.log(weights[k]) + evidence
            else:
                weights[k] = -np.inf
        mixture.normalize(weights)
        clear(state.centre[lane])
        clear(work)

    @staticmethod
    def restart(params: HybridClickMixture, state: State, lane: int) -> None:
        """Reset a key's deviations to the prior; shared parameters, weights and scaling stay."""
        for k in range(mixture.COMPONENTS):
            reset(state.mean[lane, k], state.root[lane, k], 1.0)
            for j in range(state.mean.shape[2]):
                state.root[lane, k, j, j] = np.sqrt(key_variance(k, j, params.split))

    @staticmethod
    def believed(
        params: HybridClickMixture, state: State, lane: int, impression: Impression, arm: int
    ) -> float:
        """Return the click probability of an arm on offer, averaged over components by weight."""
        place, chance = find_place(impression.arms, arm), 0.0
        h, x = state.room[lane, 0], state.room[lane, 2]
        fill_centre(state, lane, params.split)
        mixture.read_features(state.shared.inputs, 0, impression, place, params.split, x)
        for k in range(mixture.COMPONENTS):
            weight = state.shared.weight[0, k]
            if weight > 0.0:
                logit, _ = mixture.tangent(
                    x, state.centre[lane, k], params.split, mixture.hides(k), 0.0, h, mixture.CLICK
                )
                chance += weight * sigmoid(logit)
        clear(state.centre[lane])
        clear(state.room[lane])
        return float(chance)
