"""LaplaceEC: one joint Gaussian by a Laplace step for each click; and a mixture of several."""

# 1. ``Click``: the logit of a click, and its derivatives by the logits of relevance and examination.
# 2. ``laplace_update``: one step toward the mode along the gradient, with its curvature.
# 3. ``LaplaceEC``: one joint Gaussian; ``LaplaceECMixture``: several, for posteriors with several modes.

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import kernel
from tacit.core.part import Flag, Positive, PositiveFraction, float_range, int_range
from tacit.policies.base import About, Impression, Outcome
from tacit.policies.features import gaussian
from tacit.policies.features.click_model import UNSEEN, Coupled, choose_coupled, draw_field, find_place
from tacit.policies.features.ec_bandit import Beliefs, ExaminationModel, most_clicked, split_beliefs
from tacit.policies.features.gaussian import Gaussian

# ---- LaplaceEC: one joint Gaussian, by a Laplace step for each click


# A click needs both examination and relevance, so a skip moves both logits.
class Click(NamedTuple):
    """The logit of a click probability, and its derivatives by the logits of its two factors."""

    logit: float
    by_relevance: float
    by_examination: float


@kernel
def compute_click(relevance: float, examination: float) -> Click:
    """Return the logit of a click, and its derivatives by the logits of relevance and examination.

    With p and e the probabilities of these, the derivatives are (1 − p)/(1 − pe) and (1 − e)/(1 − pe), where
    1 − pe is computed as (1 − p) + p(1 − e) to avoid cancellation.
    """
    skipped, unseen = gaussian.sigmoid(-relevance), gaussian.sigmoid(-examination)
    none = max(skipped + gaussian.sigmoid(relevance) * unseen, 1e-300)
    log_click = gaussian.log_sigmoid(relevance) + gaussian.log_sigmoid(examination)
    return Click(log_click - np.log(none), skipped / none, unseen / none)


@kernel
def gradient(impression: Impression, place: int, mean: Floats, split: int, h: Floats) -> float:
    """Fill ``h`` with the gradient of a click's logit by all parameters, at their mean; return that logit.

    The arm is number ``place`` on offer; the first ``split`` parameters belong to relevance.
    """
    gaussian.copy_row(impression.relevance[place], h[:split])
    gaussian.copy_row(impression.examination[place], h[split:])
    click = compute_click(gaussian.dot(h[:split], mean[:split]), gaussian.dot(h[split:], mean[split:]))
    for i in range(split):
        h[i] *= click.by_relevance
    for i in range(split, len(h)):
        h[i] *= click.by_examination
    return click.logit


@kernel
def laplace_update(
    impression: Impression, place: int, reward: float, mean: Floats, root: Floats, work: Floats, split: int
) -> float:
    """Update mean and root, in place, with a reward of the arm that is number ``place`` on offer.

    Returns the probability that the model gave to the reward before. If it is known whether the result was
    seen (codes UNSEEN, SKIPPED), examination and relevance are learned as separate observations. The
    workspace ``work`` is cleared.
    """
    if reward >= 0.0:
        logit = gradient(impression, place, mean, split, work[0])
        return update_logit(logit, reward, mean, root, work)
    was_seen, h = reward - UNSEEN, work[0]
    gaussian.copy_row(impression.examination[place], h[split:])
    chance = update_logit(gaussian.dot(h[split:], mean[split:]), was_seen, mean, root, work)
    if was_seen == 1.0:
        gaussian.copy_row(impression.relevance[place], h[:split])
        chance *= update_logit(gaussian.dot(h[:split], mean[:split]), 0.0, mean, root, work)
    return chance


@kernel
def update_logit(logit: float, reward: float, mean: Floats, root: Floats, work: Floats) -> float:
    """Update mean and root, in place, with an observation whose logit has the gradient ``work[0]``.

    Returns the probability that the model gave to it before. The workspace is cleared.
    """
    s = gaussian.learn_logit(mean, root, work, logit, reward)
    # The mean of a logistic over a Gaussian logit (MacKay 1992).
    chance = gaussian.sigmoid(float(logit / np.sqrt(1.0 + 0.125 * np.pi * s)))
    return reward * chance + (1.0 - reward) * (1.0 - chance)


@dataclass(frozen=True)
class LaplaceEC(Coupled, ExaminationModel):
    """Thompson sampling, or one coupled draw, on one joint Gaussian of relevance and examination.

    Clicks have probability f = σ(x_C·θ_C)·σ(x_E·θ_E), as for :class:`ECBandit`. Each observation is a
    Laplace step on that product itself: its logit is linearized at the mean, with gradient
    h = [(1 − p)·x_C; (1 − e)·x_E]/(1 − f); along it the posterior's mode is solved exactly, and Σ⁻¹
    grows by f(1 − f)·h·hᵀ there. Parameters that clicks cannot tell apart stay correlated, so its
    intervals are calibrated where the variational ones are too narrow. It costs as much as ECBandit.

    Parameters
    ----------
    relevance_dim, examination_dim : int
        Numbers of relevance and of examination features per arm; at least 1.
    prior_variance : float, default 1
        Variance of each parameter before the first click; above 0.
    relevance_intercept, examination_intercept : bool, default False
        Whether a constant is appended to the block's features; one is enough.
    discount : float, default 1
        Factor on the precision of earlier rewards, at each reward, in (0, 1]. Below 1 the policy
        forgets and so can follow shifting intent.
    draw : str, default "parameters"
        ``parameters``: all are drawn for a decision, as Thompson sampling does. ``coupled``: one number
        is drawn for all arms (:mod:`tacit.policies.features.click_model`), which explores less if there
        are many arms and has exact propensities.

    Raises
    ------
    InvalidValue
        If a hyperparameter is out of its range.

    References
    ----------
    The model: Qi, Wu, Wang, Tang, Sun (2018), "Bandit learning with implicit feedback". The
    update: an extended Kalman step, as for dynamic logistic models (West, Harrison, Migon 1985).

    Examples
    --------
    >>> import tacit
    >>> policies = [tacit.policies.LaplaceEC(5, 5), tacit.policies.ECBandit(5, 5)]
    >>> environment = tacit.ExaminationArms(scale=4)
    >>> result = tacit.simulate(policies, environment, horizon=10_000, runs=10, seed=1)
    >>> result.compare(0, 1).difference < 0
    True
    """

    about: ClassVar[About] = About(
        source="tacit; the click model of Qi et al. (2018)",
        regret="no bound is known",
        assumes="that a click needs relevance and examination, each logistic in its features",
        fails="can settle on a wrong arm; where arms are few, also while the model holds",
        otherwise="LaplaceECMixture where arms are few; CUSUMRestart around it where users change",
    )

    prior_variance: Positive = 1.0
    relevance_intercept: Flag = False
    examination_intercept: Flag = False
    discount: PositiveFraction = 1.0
    draw: str = draw_field()

    def init(self, lanes: int) -> Gaussian:
        """Return the prior of all parameters in each lane."""
        return Gaussian.prior(lanes, self.width, self.prior_variance)

    def posterior(self, state: Gaussian, lane: int) -> Beliefs:
        """Return the belief about each block of a lane's parameters, and the joint one."""
        mean, root = state.mean[lane], state.root[lane]
        return split_beliefs(mean, root, self.split)

    @staticmethod
    def choose(params: LaplaceEC, state: Gaussian, lane: int, impression: Impression, rng: Generator) -> int:
        """Draw the parameters from the posterior, and return the arm with the largest click probability.

        With ``draw="coupled"``, return the arm with the largest mean + z·deviation, with one random z for
        all.
        """
        if params.coupled:
            return choose_coupled(params, state, lane, impression, rng)
        work = state.room[lane]
        gaussian.draw_gaussian(state.mean[lane], state.root[lane], 1.0, rng, work[0], work[1])
        arm = most_clicked(impression, work[1, : params.split], work[1, params.split :])
        gaussian.clear(work)
        return arm

    @staticmethod
    def line(params: LaplaceEC, state: Gaussian, lane: int, impression: Impression, place: int) -> Any:
        """Return a click's logit at the posterior mean, and its deviation, the logit being linearized there.

        ``place`` is the arm's number on offer.
        """
        work = state.room[lane]
        logit = gradient(impression, place, state.mean[lane], params.split, work[0])
        s = gaussian.project(state.root[lane], work[0], work[1])
        gaussian.clear(work)
        return logit, np.sqrt(s)

    @staticmethod
    def learn(params: LaplaceEC, state: Gaussian, lane: int, outcome: Outcome) -> None:
        """Discount earlier rewards, then update the Gaussian with the shown arm's reward by a Laplace
        step.
        """
        mean, root, work = state.mean[lane], state.root[lane], state.room[lane]
        gaussian.fade(root, params.discount, params.prior_variance)
        impression, reward = outcome.impression, outcome.reward
        place = find_place(impression.arms, outcome.shown)
        laplace_update(impression, place, reward, mean, root, work, params.split)

    @staticmethod
    def restart(params: LaplaceEC, state: Gaussian, lane: int) -> None:
        """Reset a lane to the prior."""
        gaussian.reset(state.mean[lane], state.root[lane], params.prior_variance)

    @staticmethod
    def believed(params: LaplaceEC, state: Gaussian, lane: int, impression: Impression, arm: int) -> float:
        """Return the click probability of an arm on offer, with parameters at the posterior mean."""
        place, mean = find_place(impression.arms, arm), state.mean[lane]
        relevance = gaussian.score_row(impression.relevance[place], mean[: params.split])
        examination = gaussian.score_row(impression.examination[place], mean[params.split :])
        return gaussian.sigmoid(relevance) * gaussian.sigmoid(examination)


# ---- Several joint Gaussians, for posteriors with several modes


@dataclass(frozen=True)
class LaplaceECMixture(ExaminationModel):
    """Thompson sampling on a mixture of joint Gaussians, for posteriors with several modes.

    If there are few arms, very different parameters explain the same clicks, and one Gaussian may
    settle on the wrong ones for good. The components start at different, fixed points; each is
    updated as :class:`LaplaceEC`, and its weight is multiplied by the probability that it gave to the
    reward. A round costs as much as one of LaplaceEC for each component.

    Parameters
    ----------
    relevance_dim, examination_dim : int
        Numbers of relevance and of examination features per arm; at least 1.
    components : int, default 8
        Number of Gaussians; at least 1.
    prior_variance : float, default 1
        Variance of each parameter before the first click; above 0.
    spread : float, default 0.5
        Share of that variance that lies between the components' starting points, in [0, 1).
    relevance_intercept, examination_intercept : bool, default False
        Whether a constant is appended to the block's features; one is enough.
    discount : float, default 1
        Factor on the precision of earlier rewards, and on the weights' logarithms, at each reward,
        in (0, 1].

    Raises
    ------
    InvalidValue
        If a hyperparameter is out of its range.

    References
    ----------
    Sorenson, Alspach (1971), "Recursive Bayesian estimation using Gaussian sums".

    Examples
    --------
    >>> import tacit
    >>> policy = tacit.policies.LaplaceECMixture(1, 1)
    >>> environment = tacit.ExaminationArms.make_crossed()
    >>> result = tacit.simulate(policy, environment, horizon=5000, runs=5, seed=1)
    >>> bool(result.regret[0, :, -1].max() < 0.2 * 0.39 * 5000)
    True
    """

    class State(NamedTuple):
        mean: Floats  # (lanes, components, d)
        root: Floats  # (lanes, components, d, d)
        start: Floats  # (lanes, components, d)
        log_weight: Floats  # (lanes, components), the largest being 0
        room: Floats  # (lanes, 3, d)

    about: ClassVar[About] = About(
        source="tacit; a Gaussian sum over the click model of Qi et al. (2018)",
        regret="no bound is known",
        assumes="that a click needs relevance and examination, each logistic in its features",
        fails="can settle on a wrong arm",
        otherwise="LaplaceEC where arms are many: it is as good, and cheaper",
    )

    components: Annotated[int, int_range(1, 1000)] = 8
    prior_variance: Positive = 1.0
    spread: Annotated[float, float_range(0.0, 0.99)] = 0.5
    relevance_intercept: Flag = False
    examination_intercept: Flag = False
    discount: PositiveFraction = 1.0

    def init(self, lanes: int) -> State:
        """Return the initial state: components around fixed starting points, with equal weights."""
        shape = lanes, self.components, self.width
        starts = np.random.Generator(np.random.PCG64(0)).standard_normal(shape[1:])
        start = np.broadcast_to(math.sqrt(self.spread * self.prior_variance) * starts, shape).copy()
        root = np.zeros((*shape, self.width))
        every = range(self.width)
        root[..., every, every] = math.sqrt((1.0 - self.spread) * self.prior_variance)
        weights, work = np.zeros(shape[:2]), np.zeros((lanes, 3, self.width))
        return self.State(start.copy(), root, start, weights, work)

    def posterior(self, state: State, lane: int) -> Beliefs:
        """Return mean and covariance of the mixture in a lane: of each block, and jointly."""
        weights = np.exp(state.log_weight[lane])
        weights /= weights.sum()
        mean = weights @ state.mean[lane]
        covariance = sum(
            weight * (root @ root.T + np.outer(component_mean - mean, component_mean - mean))
            for weight, component_mean, root in zip(weights, state.mean[lane], state.root[lane], strict=True)
        )
        return split_beliefs(mean, np.linalg.cholesky(covariance), self.split)

    def parameter_draws(self, state: State, lane: int, rng: Generator, draws: int) -> Floats:
        """Return posterior draws of all parameters, relevance first, of shape (draws, width), ordered by
        component.
        """
        weights = np.exp(state.log_weight[lane])
        shares = rng.multinomial(draws, weights / weights.sum())
        parts = zip(state.mean[lane], state.root[lane], shares, strict=True)
        return np.concatenate([gaussian.draw_samples(mean, root, rng, share) for mean, root, share in parts])

    @staticmethod
    def choose(
        params: LaplaceECMixture, state: State, lane: int, impression: Impression, rng: Generator
    ) -> int:
        """Draw a component by weight and parameters from it; return the arm with the largest click
        probability.
        """
        total = 0.0
        for k in range(state.log_weight.shape[1]):
            total += np.exp(state.log_weight[lane, k])
        remainder, component = rng.random() * total, 0
        for k in range(state.log_weight.shape[1]):
            remainder -= np.exp(state.log_weight[lane, k])
            component = k
            if remainder < 0.0:
                break
        work = state.room[lane]
        mean, root = state.mean[lane, component], state.root[lane, component]
        gaussian.draw_gaussian(mean, root, 1.0, rng, work[0], work[1])
        arm = most_clicked(impression, work[1, : params.split], work[1, params.split :])
        gaussian.clear(work)
        return arm

    @staticmethod
    def learn(params: LaplaceECMixture, state: State, lane: int, outcome: Outcome) -> None:
        """Discount earlier rewards, then update each component with the reward by a Laplace step.

        A component's weight is multiplied by the probability that it gave to the reward.
        """
        impression, reward = outcome.impression, outcome.reward
        place, work = find_place(impression.arms, outcome.shown), state.room[lane]
        largest = -np.inf
        for k in range(state.log_weight.shape[1]):
            mean, root = state.mean[lane, k], state.root[lane, k]
            gaussian.fade(root, params.discount, (1.0 - params.spread) * params.prior_variance)
            chance = laplace_update(impression, place, reward, mean, root, work, params.split)
            weight = params.discount * state.log_weight[lane, k] + np.log(max(chance, 1e-300))
            state.log_weight[lane, k] = weight
            largest = max(largest, weight)
        for k in range(state.log_weight.shape[1]):
            state.log_weight[lane, k] -= largest

    @staticmethod
    def restart(params: LaplaceECMixture, state: State, lane: int) -> None:
        """Reset all components of a lane to their starting points, with equal weights."""
        for k in range(state.log_weight.shape[1]):
            variance = (1.0 - params.spread) * params.prior_variance
            gaussian.reset(state.mean[lane, k], state.root[lane, k], variance)
            for i in range(state.mean.shape[2]):
                state.mean[lane, k, i] = state.start[lane, k, i]
            state.log_weight[lane, k] = 0.0

    @staticmethod
    def believed(
        params: LaplaceECMixture, state: State, lane: int, impression: Impression, arm: int
    ) -> float:
        """Return the click probability of an arm on offer, averaged over components by weight."""
        place, total, chance = find_place(impression.arms, arm), 0.0, 0.0
        for k in range(state.log_weight.shape[1]):
            mean, weight = state.mean[lane, k], np.exp(state.log_weight[lane, k])
            relevance = gaussian.score_row(impression.relevance[place], mean[: params.split])
            examination = gaussian.score_row(impression.examination[place], mean[params.split :])
            chance += weight * gaussian.sigmoid(relevance) * gaussian.sigmoid(examination)
            total += weight
        return float(chance / total)
