"""Linear models of clicks with a Gaussian belief: LogisticTS, LinTS, LinUCB, and ε-greedy over the latter.

They take a result without a click for an irrelevant one. If examination enters the click probability
as a factor that differs between arms, no such score ranks them correctly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import kernel
from tacit.core.part import Flag, Fraction, Positive, PositiveFraction, int_range, param
from tacit.policies.actions import FeaturePolicy
from tacit.policies.base import About, Impression, Outcome
from tacit.policies.features import click_model, gaussian
from tacit.policies.features.gaussian import Belief, Gaussian


@kernel
def fill_features(impression: Impression, place: int, x: Floats) -> None:
    """Fill ``x`` with the features of the arm that is number ``place`` on offer: relevance, examination,
    constant 1.

    There is a constant only if ``x`` is longer than the features.
    """
    split = impression.relevance.shape[1]
    gaussian.copy_row(impression.relevance[place], x[:split])
    if impression.examination.shape[1] > 0:
        gaussian.copy_row(impression.examination[place], x[split:])
    elif len(x) > split:
        x[split] = 1.0


@kernel
def linear_score(impression: Impression, place: int, theta: Floats) -> float:
    """Return the inner product of an arm's features and parameters; ``place`` is the arm's number on
    offer.
    """
    split = impression.relevance.shape[1]
    if impression.examination.shape[1] == 0:
        return gaussian.score_row(impression.relevance[place], theta)
    relevance = gaussian.dot(impression.relevance[place], theta)
    return relevance + gaussian.score_row(impression.examination[place], theta[split:])


@kernel
def draw_and_choose(state: Gaussian, lane: int, impression: Impression, scale: float, rng: Generator) -> int:
    """Draw parameters from the Gaussian, with deviations times ``scale``; return the arm with the highest
    score.
    """
    work = state.room[lane]
    gaussian.draw_gaussian(state.mean[lane], state.root[lane], scale, rng, work[0], work[1])
    best, leader = -np.inf, 0
    for i in range(len(impression.arms)):
        score = linear_score(impression, i, work[1])
        if score > best:
            best, leader = score, i
    gaussian.clear(work)
    return int(impression.arms[leader])


@kernel
def linear_line(
    state: Gaussian, lane: int, impression: Impression, place: int, scale: float
) -> tuple[float, float]:
    """Return the mean of an arm's score, and its deviation times ``scale``; the workspace stays filled.

    ``place`` is the arm's number on offer.
    """
    work = state.room[lane]
    fill_features(impression, place, work[0])
    mean = gaussian.dot(state.mean[lane], work[0])
    return mean, scale * np.sqrt(gaussian.project(state.root[lane], work[0], work[1]))


class LinearModel(FeaturePolicy, abstract=True):
    """Base of the policies below: one Gaussian over all features and, by default, a constant."""

    needs_examination: ClassVar[bool] = False
    noise: ClassVar[float] = 1.0
    """Factor on deviations: the deviation of a reward, which least squares take for 1."""

    @property
    def width(self) -> int:
        """Number of parameters, the constant included."""
        return sum(self.feature_dims) + int(self.intercept)  # type: ignore[attr-defined]

    def init(self, lanes: int) -> Gaussian:
        """Return the prior of all parameters in each lane."""
        return Gaussian.prior(lanes, self.width, self.prior_variance)  # type: ignore[attr-defined]

    def posterior(self, state: Gaussian, lane: int) -> Belief:
        """Return the belief about a lane's parameters: relevance, examination, constant."""
        return gaussian.belief(state.mean[lane], state.root[lane])

    def reward_draws(
        self, state: Any, lane: int, impression: Impression, rng: Generator, draws: int
    ) -> Floats:
        """Return posterior draws of each arm's mean reward, of shape (draws, arms on offer)."""
        theta = gaussian.draw_samples(state.mean[lane], self.noise * state.root[lane], rng, draws)
        rows = gaussian.stack_features(impression.relevance, impression.examination, width=self.width)
        return self.mean_reward(theta @ rows.T)

    @staticmethod
    def mean_reward(scores: Floats) -> Floats:
        """Return the mean reward for each linear score: here its logistic function."""
        return gaussian.logistic(scores)

    @staticmethod
    def restart(params: Any, state: Gaussian, lane: int) -> None:
        """Reset a lane to the prior."""
        gaussian.reset(state.mean[lane], state.root[lane], params.prior_variance)

    @staticmethod
    def believed(params: Any, state: Gaussian, lane: int, impression: Impression, arm: int) -> float:
        """Return the predicted mean reward of an arm on offer: its score, clipped to [0, 1]."""
        score = linear_score(impression, click_model.find_place(impression.arms, arm), state.mean[lane])
        return min(max(score, 0.0), 1.0)


class SampledLinear(LinearModel, click_model.Coupled, abstract=True):
    """Base of the linear models that draw their parameters, or one number for all arms.

    A subclass has the param ``scale``, the factor on the deviation of draws.
    """

    @staticmethod
    def choose(params: Any, state: Gaussian, lane: int, impression: Impression, rng: Generator) -> int:
        """Draw the parameters from the posterior, and return the arm with the highest score.

        With ``draw="coupled"``, return the arm with the largest mean + z·deviation, with one random z for
        all.
        """
        if params.coupled:
            return click_model.choose_coupled(params, state, lane, impression, rng)
        return draw_and_choose(state, lane, impression, params.scale, rng)

    @staticmethod
    def line(params: Any, state: Gaussian, lane: int, impression: Impression, place: int) -> Any:
        """Return the mean of an arm's score, and its deviation times ``scale``; ``place`` is its number on
        offer.
        """
        moments = linear_line(state, lane, impression, place, params.scale)
        gaussian.clear(state.room[lane])
        return moments


@dataclass(frozen=True)
class LogisticTS(SampledLinear):
    """Thompson sampling on a logistic regression, one Laplace step per click.

    Parameters
    ----------
    relevance_dim : int
        Number of relevance features per arm; at least 1.
    examination_dim : int, default 0
        Number of examination features per arm.
    prior_variance : float, default 1
        Variance of each parameter before the first click; above 0.
    intercept : bool, default True
        Whether there is a constant. Without one the predicted click probability of a result whose
        features are all 0 is always one half.
    discount : float, default 1
        Factor on the precision of earlier rewards, at each reward, in (0, 1].
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
    Chapelle, Li (2011), "An empirical evaluation of Thompson sampling", algorithm 3; here with
    all covariances, where that has their diagonal only.

    Examples
    --------
    >>> import tacit
    >>> policies = [tacit.policies.LogisticTS(5, 5), tacit.policies.LogisticTS(5, 5, intercept=False)]
    >>> result = tacit.simulate(policies, tacit.ExaminationArms(), 5000, runs=10, seed=1)
    >>> result.compare(0, 1).difference < 0
    True
    """

    about: ClassVar[About] = About(
        source="Chapelle, Li (2011), algorithm 3",
        regret="no bound for the Laplace posterior is known",
        assumes="that the logit of a click is linear in the features",
        fails="settles on a wrong arm where no such score orders them rightly; takes what "
        "was not seen for unwanted",
        otherwise="LaplaceEC where results go unseen",
    )

    prior_variance: Positive = 1.0
    intercept: Flag = True
    discount: PositiveFraction = 1.0
    draw: str = click_model.draw_field()

    @param
    def scale(self) -> float:
        """Factor on the deviation of draws: 1, as Thompson sampling draws from the posterior itself."""
        return 1.0

    @staticmethod
    def learn(params: LogisticTS, state: Gaussian, lane: int, outcome: Outcome) -> None:
        """Discount earlier rewards, then update the Gaussian with the reward by a Laplace step."""
        mean, root, work = state.mean[lane], state.root[lane], state.room[lane]
        gaussian.fade(root, params.discount, params.prior_variance)
        fill_features(
            outcome.impression, click_model.find_place(outcome.impression.arms, outcome.shown), work[0]
        )
        gaussian.learn_logit(mean, root, work, gaussian.dot(mean, work[0]), outcome.reward)

    @staticmethod
    def believed(params: LogisticTS, state: Gaussian, lane: int, impression: Impression, arm: int) -> float:
        """Return the click probability of an arm on offer, with parameters at the posterior mean."""
        return gaussian.sigmoid(
            linear_score(impression, click_model.find_place(impression.arms, arm), state.mean[lane])
        )


class LeastSquares(LinearModel, abstract=True):
    """Base of the ridge regressions."""

    noise: ClassVar[float] = gaussian.MOST_NOISE

    @staticmethod
    def mean_reward(scores: Floats) -> Floats:
        """Return the mean reward for each linear score: the score, clipped to [0, 1]."""
        return np.clip(scores, 0.0, 1.0)

    @staticmethod
    def learn(params: Any, state: Gaussian, lane: int, outcome: Outcome) -> None:
        """Discount earlier rewards, then update the Gaussian with the reward by recursive least squares."""
        mean, root, work = state.mean[lane], state.root[lane], state.room[lane]
        gaussian.fade(root, params.discount, params.prior_variance)
        place = click_model.find_place(outcome.impression.arms, outcome.shown)
        fill_features(outcome.impression, place, work[0])
        s = gaussian.project(root, work[0], work[1])
        gain = (outcome.reward - gaussian.dot(mean, work[0])) / (1.0 + s)
        gaussian.apply_observation(mean, root, work[1], s, 1.0, gain)
        gaussian.clear(work)


@dataclass(frozen=True)
class LinTS(LeastSquares, SampledLinear):
    """Thompson sampling on a linear regression.

    Parameters
    ----------
    relevance_dim : int
        Number of relevance features per arm; at least 1.
    examination_dim : int, default 0
        Number of examination features per arm.
    prior_variance : float, default 1
        Inverse of the ridge penalty; above 0.
    scale : float, default 0.25
        Factor v on the deviation of draws; above 0. The analysis requires more than works best.
    intercept : bool, default True
        Whether there is a constant.
    discount : float, default 1
        Factor on the precision of earlier rewards, at each reward, in (0, 1].
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
    Agrawal, Goyal (2013), "Thompson sampling for contextual bandits with linear payoffs",
    algorithm 1.

    Examples
    --------
    >>> import tacit
    >>> tacit.policies.LinTS(relevance_dim=72, examination_dim=18).label
    'LinTS(relevance_dim=72, examination_dim=18)'
    """

    about: ClassVar[About] = About(
        source="Agrawal, Goyal (2013), algorithm 1",
        regret="O(d^(3/2)·sqrt(T)·ln T) with v = sqrt(9·d·ln(T/δ)) times the noise",
        assumes="that the click probability is linear in the features",
        fails="settles on a wrong arm where no such score orders them rightly; takes what "
        "was not seen for unwanted",
        otherwise="LogisticTS; LaplaceEC where results go unseen",
    )

    prior_variance: Positive = 1.0
    scale: Positive = 0.25
    intercept: Flag = True
    discount: PositiveFraction = 1.0
    draw: str = click_model.draw_field()


@kernel
def highest_bound(state: Gaussian, lane: int, impression: Impression, alpha: float) -> int:
    """Return the first arm with the highest upper confidence bound, mean + ``alpha``·deviation."""
    best, leader = -np.inf, 0
    for i in range(len(impression.arms)):
        mean, width = linear_line(state, lane, impression, i, alpha)
        if mean + width > best:
            best, leader = mean + width, i
    gaussian.clear(state.room[lane])
    return int(impression.arms[leader])


@dataclass(frozen=True)
class LinUCB(LeastSquares, click_model.ClickModel):
    """Play the arm with the highest upper confidence bound of a linear regression.

    The bound is x·m + α·sqrt(xᵀΣx), which costs O(d²) per arm.

    Parameters
    ----------
    relevance_dim : int
        Number of relevance features per arm; at least 1.
    examination_dim : int, default 0
        Number of examination features per arm.
    alpha : float, default 0.5
        Factor on the deviation; above 0.
    prior_variance : float, default 1
        Inverse of the ridge penalty; above 0.
    intercept : bool, default True
        Whether there is a constant.
    discount : float, default 1
        Factor on the precision of earlier rewards, at each reward, in (0, 1].

    Raises
    ------
    InvalidValue
        If a hyperparameter is out of its range.

    References
    ----------
    Li, Chu, Langford, Schapire (2010), "A contextual-bandit approach to personalized news
    article recommendation", algorithm 1, with parameters that all arms share.

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.policies.LinUCB(1, 1), seed=1)
    >>> learner.choose("query", relevance=[[1.0], [2.0]], examination=[[0.0], [1.0]]).arm
    1
    """

    about: ClassVar[About] = LinTS.about._replace(
        source="Li, Chu, Langford, Schapire (2010), algorithm 1; shared parameters",
        regret="O(d·sqrt(T)·ln T) with α as in Abbasi-Yadkori, Pál, Szepesvári (2011), theorem 3",
    )

    alpha: Positive = 0.5
    prior_variance: Positive = 1.0
    intercept: Flag = True
    discount: PositiveFraction = 1.0

    @staticmethod
    def choose(params: LinUCB, state: Gaussian, lane: int, impression: Impression, rng: Generator) -> int:
        """Return the first arm with the highest upper confidence bound."""
        return highest_bound(state, lane, impression, params.alpha)

    @staticmethod
    def propensity(params: LinUCB, state: Gaussian, lane: int, impression: Impression, arm: int) -> float:
        """Return 1 for the first arm with the highest upper confidence bound, 0 for all others."""
        return 1.0 if arm == highest_bound(state, lane, impression, params.alpha) else 0.0


# ---- ε-greedy over a linear regression, for arms that are known by their features


@kernel
def choose_leader(impression: Impression, mean: Floats, rng: Generator) -> int:
    """Return the place on offer of the arm with the highest score under parameters ``mean``; ties at
    random.
    """
    best, leader, ties = -np.inf, 0, 0.0
    for i in range(len(impression.arms)):
        score = gaussian.score_row(impression.relevance[i], mean)
        if score > best:
            best, leader, ties = score, i, 1.0
        elif score == best:
            ties += 1.0
            if rng.random() * ties < 1.0:
                leader = i
    return leader


@kernel
def leader_share(impression: Impression, mean: Floats, place: int) -> float:
    """Return the probability that :func:`choose_leader` returns ``place``: 1/(arms tied for the highest
    score), or 0.
    """
    best, ties = -np.inf, 0.0
    for i in range(len(impression.arms)):
        score = gaussian.score_row(impression.relevance[i], mean)
        if score > best:
            best, ties = score, 1.0
        elif score == best:
            ties += 1.0
    return 1.0 / ties if gaussian.score_row(impression.relevance[place], mean) == best else 0.0


@dataclass(frozen=True)
class LinearEpsilonGreedy(LeastSquares):
    """Play a uniformly chosen arm with probability ε, else the best by a linear regression.

    Each arm on offer has at least the probability ε/K, and all probabilities are exact: the log is
    fit for offline evaluation.

    Parameters
    ----------
    dim : int
        Number of features per arm, given as ``relevance``; at least 1. A reward costs O(dim²).
    epsilon : float, default 0.2
        Probability of a uniform choice, in [0, 1].
    prior_variance : float, default 1
        Inverse of the ridge penalty; above 0.
    intercept : bool, default True
        Whether there is a constant.
    discount : float, default 1
        Factor on the precision of earlier rewards, at each reward, in (0, 1].

    Raises
    ------
    InvalidValue
        If a hyperparameter is out of its range.

    References
    ----------
    Langford, Zhang (2008), "The epoch-greedy algorithm for contextual multi-armed bandits";
    Bietti, Agarwal, Langford (2021), "A contextual bandit bake-off", algorithm 1 (ε-greedy), here
    with ridge regression as its oracle.

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.policies.LinearEpsilonGreedy(dim=2, epsilon=0.2), seed=1)
    >>> offer = [[1.0, 0.0], [0.0, 1.0]]
    >>> decision = learner.choose("home", arms=["film", "holiday"], relevance=offer)
    >>> learner.learn(decision, reward=1.0)
    True
    >>> sorted(learner.probabilities("home", relevance=offer).round(3).tolist())
    [0.1, 0.9]
    """

    kernels: ClassVar[tuple[Any, ...]] = click_model.ClickModel.kernels
    about: ClassVar[About] = About(
        source="Bietti, Agarwal, Langford (2021), algorithm 1",
        regret="linear, ε·(mean gap) a round; O(T^(2/3)) where ε falls as T^(−1/3)",
        assumes="that the expected reward is linear in the features",
        fails="settles on a wrong arm where no such score orders them rightly; takes what was not "
        "seen for unwanted; explores for ever",
        otherwise="LinTS or LogisticTS where no propensities are needed",
    )

    dim: Annotated[int, int_range(1, click_model.MAX_DIM)]
    epsilon: Fraction = 0.2
    prior_variance: Positive = 1.0
    intercept: Flag = True
    discount: PositiveFraction = 1.0

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance for arms with ``dim`` features; ``arms`` is ignored."""
        return cls(dim)

    @property
    def feature_dims(self) -> tuple[int, int]:
        """Number of relevance features, ``dim``, and of examination features, 0."""
        return self.dim, 0

    @staticmethod
    def choose(
        params: LinearEpsilonGreedy, state: Gaussian, lane: int, impression: Impression, rng: Generator
    ) -> int:
        """Return a uniformly drawn arm with probability ε, else the arm of the highest predicted reward."""
        if rng.random() < params.epsilon:
            place = int(rng.random() * len(impression.arms))
        else:
            place = choose_leader(impression, state.mean[lane], rng)
        return int(impression.arms[place])

    @staticmethod
    def propensity(
        params: LinearEpsilonGreedy, state: Gaussian, lane: int, impression: Impression, arm: int
    ) -> float:
        """Return the probability that ``choose`` returns ``arm``.

        It is ε/(arms on offer), plus (1 − ε)/(arms tied for the highest score) if it is one of these.
        """
        lead = leader_share(impression, state.mean[lane], click_model.find_place(impression.arms, arm))
        return params.epsilon / len(impression.arms) + (1.0 - params.epsilon) * lead
