"""LaplaceEC: one joint Gaussian, by a Laplace step for each click."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import kernel
from tacit.core.ranges import Flag, Positive, PositiveFraction
from tacit.policies.base import About, Impression, Outcome
from tacit.policies.features.click_model import place_of
from tacit.policies.features.coupled import Coupled, coupled_choice, draw_field
from tacit.policies.features.examination.model import Beliefs, ExaminationModel, blocks_of, most_clicked
from tacit.policies.features.gaussian import (
    Gaussian,
    clear,
    commit,
    copy_row,
    dot,
    draw_gaussian,
    fade,
    log_sigmoid,
    logistic_step,
    project,
    reset,
    scored,
    sigmoid,
)


class Click(NamedTuple):
    """The logit of a click probability, and how it moves with either logit of its factors."""

    logit: float
    by_relevance: float
    by_examination: float


@kernel
def click_at(relevance: float, examination: float) -> Click:
    """Return the click for logits of relevance and examination.

    The factors are (1 − p)/(1 − pe) and (1 − e)/(1 − pe), with 1 − pe taken as
    (1 − p) + p(1 − e), which does not cancel.
    """
    skipped, unseen = sigmoid(-relevance), sigmoid(-examination)
    none = max(skipped + sigmoid(relevance) * unseen, 1e-300)
    log_click = log_sigmoid(relevance) + log_sigmoid(examination)
    return Click(log_click - np.log(none), skipped / none, unseen / none)


@kernel
def gradient(impression: Impression, place: int, mean: Floats, split: int, h: Floats) -> float:
    """Fill ``h`` with the gradient of the click's logit at the mean; return that logit."""
    copy_row(impression.relevance[place], h[:split])
    copy_row(impression.examination[place], h[split:])
    click = click_at(dot(h[:split], mean[:split]), dot(h[split:], mean[split:]))
    for i in range(split):
        h[i] *= click.by_relevance
    for i in range(split, len(h)):
        h[i] *= click.by_examination
    return click.logit


@kernel
def laplace_update(
    impression: Impression, place: int, reward: float, mean: Floats, root: Floats, room: Floats, split: int
) -> float:
    """Take in an observation; return the logit of the click probability that was believed in."""
    logit = gradient(impression, place, mean, split, room[0])
    s = project(root, room[0], room[1])
    c, gain = logistic_step(logit, s, reward)
    commit(mean, root, room[1], s, c, gain)
    clear(room)
    # The mean of a logistic over a Gaussian logit (MacKay 1992).
    return float(logit / np.sqrt(1.0 + 0.125 * np.pi * s))


@dataclass(frozen=True)
class LaplaceEC(Coupled, ExaminationModel):
    """Thompson sampling, or one coupled draw, on one joint Gaussian of relevance and examination.

    Clicks have probability f = σ(x_C·θ_C)·σ(x_E·θ_E), as for :class:`ECBandit`. An observation
    is taken in by a Laplace step on that product itself: its logit is linearized at the mean,
    with gradient h = [(1 − p)·x_C; (1 − e)·x_E]/(1 − f); along it the posterior's mode is
    solved exactly, and Σ⁻¹ grows by f(1 − f)·h·hᵀ there. What clicks cannot tell apart stays
    correlated, so its intervals are honest where the variational ones are too narrow. It costs
    what ECBandit costs.

    Parameters
    ----------
    relevance_dim, examination_dim : int
        Numbers of relevance and of examination features per arm; at least 1.
    prior_variance : float, default 1
        Variance of each parameter before the first click; above 0.
    relevance_intercept, examination_intercept : bool, default False
        Whether a constant is put at the end of the block's features; one is enough.
    discount : float, default 1
        Factor on the precision of what was learned before, at each reward, in (0, 1]. Below 1
        the policy forgets and so can follow shifting intent.
    draw : str, default "parameters"
        ``parameters`` are drawn for a decision, as Thompson sampling does, or one ``coupled``
        number for all arms (:mod:`tacit.policies.features.coupled`), which explores less where
        arms are many and tells the propensity exactly.

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
    >>> policies = [tacit.LaplaceEC(5, 5), tacit.ECBandit(5, 5)]
    >>> environment = tacit.ExaminationArms(scale=4)
    >>> result = tacit.simulate(policies, environment, horizon=10_000, runs=10, seed=1)
    >>> result.compare(0, 1).difference < 0
    True
    """

    class Params(NamedTuple):
        prior_variance: float
        split: int
        discount: float
        coupled: bool

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
        return Gaussian.prior(lanes, self.width, self.prior_variance)

    def posterior(self, state: Gaussian, lane: int) -> Beliefs:
        """Return what is believed of each block, and jointly."""
        mean, root = state.mean[lane], state.root[lane]
        return blocks_of(mean, root, self.split)

    @staticmethod
    def choose(params: Params, state: Gaussian, lane: int, impression: Impression, rng: Generator) -> int:
        if params.coupled:
            return coupled_choice(params, state, lane, impression, rng)
        room = state.room[lane]
        draw_gaussian(state.mean[lane], state.root[lane], 1.0, rng, room[0], room[1])
        arm = most_clicked(impression, room[1, : params.split], room[1, params.split :])
        clear(room)
        return arm

    @staticmethod
    def line(params: Params, state: Gaussian, lane: int, impression: Impression, place: int) -> Any:
        room = state.room[lane]
        logit = gradient(impression, place, state.mean[lane], params.split, room[0])
        s = project(state.root[lane], room[0], room[1])
        clear(room)
        return logit, np.sqrt(s)

    @staticmethod
    def learn(params: Params, state: Gaussian, lane: int, outcome: Outcome) -> None:
        mean, root, room = state.mean[lane], state.root[lane], state.room[lane]
        fade(root, params.discount, params.prior_variance)
        impression, reward = outcome.impression, outcome.reward
        place = place_of(impression.arms, outcome.shown)
        laplace_update(impression, place, reward, mean, root, room, params.split)

    @staticmethod
    def restart(params: Params, state: Gaussian, lane: int) -> None:
        reset(state.mean[lane], state.root[lane], params.prior_variance)

    @staticmethod
    def believed(params: Params, state: Gaussian, lane: int, impression: Impression, arm: int) -> float:
        place, mean = place_of(impression.arms, arm), state.mean[lane]
        relevance = scored(impression.relevance[place], mean[: params.split])
        examination = scored(impression.examination[place], mean[params.split :])
        return sigmoid(relevance) * sigmoid(examination)
