"""E-C Bandit, and the base class of policies with relevance and examination.

First the identifiability check of features; then the base class; then the bandit with two independent
Gaussians and a variational bound on the likelihood.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import kernel
from tacit.core.part import Flag, Positive, PositiveFraction, int_range, param
from tacit.errors import AssumptionWarning
from tacit.policies.base import About, Impression, Outcome
from tacit.policies.features import gaussian
from tacit.policies.features.click_model import UNSEEN, ClickModel, find_place

# ---- Identifiability of relevance and examination, checked on the features alone

SAME_DIRECTION = 1e-6


class IdentifiabilityWarning(AssumptionWarning):
    """Warning that features are such that clicks cannot determine the parameters of the policy."""


def identifiability(
    relevance: Floats,
    examination: Floats,
    *,
    relevance_intercept: bool = False,
    examination_intercept: bool = False,
) -> list[str]:
    """Return reasons why rows of features cannot determine the parameters of σ(x_C·θ_C)·σ(x_E·θ_E).

    Parameters
    ----------
    relevance, examination : array of float, shape (rows, d)
        Features of arms that were or may be on offer; more rows than features in all.
    relevance_intercept, examination_intercept : bool, default False
        Whether the policy adds a constant to the block.

    Returns
    -------
    list of str
        A sentence for each reason; empty if there is none.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> items, positions = rng.standard_normal((50, 3)), np.eye(4)[rng.integers(4, size=50)]
    >>> identifiability(items, positions)
    []
    >>> for finding in identifiability(items, items):
    ...     print(finding.partition(":")[0])
    neither block has a constant
    the blocks share 3 directions
    """
    rows = len(relevance)
    ones = np.ones((rows, 1))
    first = np.hstack([relevance, ones]) if relevance_intercept else np.asarray(relevance)
    second = np.hstack([examination, ones]) if examination_intercept else np.asarray(examination)
    constants = [_spans(block, ones[:, 0]) for block in (first, second)]
    findings = []
    if not any(constants):
        findings.append(
            "neither block has a constant: results whose features are all 0 are believed to be "
            "clicked a quarter of the time, for ever; set relevance_intercept=True if they are not"
        )
    if all(constants):
        findings.append(
            "both blocks have a constant: while clicks are rare only the sum of the two is "
            "determined, the rest is the prior's; keep it in one block"
        )
    shared = _rank(first) + _rank(second) - _rank(np.hstack([first, second])) - int(all(constants))
    if shared > 0:
        findings.append(
            f"the blocks share {shared} directions: along them clicks cannot tell relevance from "
            "examination (with the same features in both, the two may be swapped); give each "
            "feature to one block"
        )
    return findings


def _rank(block: Floats) -> int:
    """Return the numerical rank of a matrix whose columns are scaled to length 1 before."""
    return int(np.linalg.matrix_rank(_scale_columns(block), tol=SAME_DIRECTION * max(block.shape)))


def _scale_columns(block: Floats) -> Floats:
    """Return a block with its columns scaled to length 1; columns of zeros stay."""
    lengths = np.linalg.norm(block, axis=0)
    return block / np.where(lengths > 0.0, lengths, 1.0)


def _spans(block: Floats, column: Floats) -> bool:
    """True if a column is a linear combination of a block's columns, but for rounding errors."""
    columns = _scale_columns(block)
    residual = column - columns @ np.linalg.lstsq(columns, column, rcond=None)[0]
    return bool(np.linalg.norm(residual) <= SAME_DIRECTION * np.linalg.norm(column))


# ---- The base class of policies with relevance and examination


class Beliefs(NamedTuple):
    """The beliefs of an examination model.

    Attributes
    ----------
    relevance, examination : Belief
        Belief about each block of parameters; the constant, if there is one, comes last.
    joint : Belief or None
        Belief about both blocks, relevance first; None if they are modelled as independent.
    """

    relevance: gaussian.Belief
    examination: gaussian.Belief
    joint: gaussian.Belief | None = None


def split_beliefs(mean: Floats, root: Floats, split: int) -> Beliefs:
    """Return the beliefs of a joint Gaussian and of its two blocks, from its mean and the root of its
    covariance.

    The first ``split`` parameters belong to relevance, the others to examination.
    """
    relevance = gaussian.belief(mean[:split], root[:split])
    examination = gaussian.belief(mean[split:], root[split:])
    return Beliefs(relevance, examination, gaussian.belief(mean, root))


@kernel
def most_clicked(impression: Impression, theta_c: Floats, theta_e: Floats) -> int:
    """Return the arm on offer with the largest click probability σ(a)·σ(b), a = x_C·θ_C, b = x_E·θ_E; the
    first of equal ones.

    It compares the odds against a click, e^−a + e^−b + e^−(a+b). They exceed each of the first two terms, so
    an arm with a or b below the best arm's logit cannot win: most arms cost no exponential, and only a new
    best one costs a logarithm. Probabilities below e^−350 count as equal.
    """
    best, bar, leader = np.inf, -np.inf, 0
    for i in range(len(impression.arms)):
        relevance = gaussian.score_row(impression.relevance[i], theta_c)
        if relevance > bar:
            examination = gaussian.score_row(impression.examination[i], theta_e)
            if examination > bar:
                skipped = np.exp(min(-relevance, 350.0))
                unseen = np.exp(min(-examination, 350.0))
                odds = skipped + unseen + skipped * unseen
                if odds < best:
                    best, leader = odds, i
                    bar = -np.log(odds) if odds > 0.0 else np.inf
    return int(impression.arms[leader])


@dataclass(frozen=True)
class ExaminationModel(ClickModel, abstract=True):
    """Base of the policies below: two blocks of features, each with or without a constant."""

    hides: ClassVar[bool] = True

    def advise(self, relevance: Floats, examination: Floats) -> None:
        """Warn (IdentifiabilityWarning) of each reason why these features cannot determine the parameters."""
        constants = {
            "relevance_intercept": bool(self.relevance_intercept),  # type: ignore[attr-defined]
            "examination_intercept": bool(self.examination_intercept),  # type: ignore[attr-defined]
        }
        for finding in identifiability(relevance, examination, **constants):
            warnings.warn(finding, IdentifiabilityWarning, stacklevel=5)

    @param
    def split(self) -> int:
        """Number of parameters of relevance, the constant included."""
        return self.relevance_dim + int(self.relevance_intercept)  # type: ignore[attr-defined]

    @property
    def width(self) -> int:
        """Number of parameters of both blocks, constants included."""
        return self.split + self.examination_dim + int(self.examination_intercept)  # type: ignore[attr-defined]

    def reward_draws(
        self, state: Any, lane: int, impression: Impression, rng: Generator, draws: int
    ) -> Floats:
        """Return posterior draws of each arm's click probability, of shape (draws, arms on offer)."""
        theta = self.parameter_draws(state, lane, rng, draws)
        split = self.split
        examination = (
            theta[:, split:] @ gaussian.stack_features(impression.examination, width=self.width - split).T
        )
        relevance = theta[:, :split] @ gaussian.stack_features(impression.relevance, width=split).T
        return gaussian.logistic(relevance) * gaussian.logistic(examination)

    def parameter_draws(self, state: Any, lane: int, rng: Generator, draws: int) -> Floats:
        """Return posterior draws of all parameters, relevance first, of shape (draws, width)."""
        return gaussian.draw_samples(state.mean[lane], state.root[lane], rng, draws)


# ---- E-C Bandit: two Gaussians, and a variational bound on the likelihood


@kernel
def variational(s_c: float, at_c: float, s_e: float, at_e: float, reward: float, iterations: int) -> Any:
    """Return precision c and linear term b of quadratic bounds on one observation's likelihood: c_C, b_C,
    c_E, b_E.

    The input is variance s and mean of x_C·θ_C and of x_E·θ_E before the observation. The bounds (1) and (2)
    of the paper are fitted in ``iterations`` steps, each at the moments that the previous step gave. A
    fractional reward weighs the bounds of a click and of none. If it is known whether the result was seen,
    examination is not estimated.

    Returns
    -------
    c_c, b_c, c_e, b_e : float
        Precision and linear term along x_C and along x_E.
    """
    c_c, b_c, c_e, b_e = 0.0, 0.0, 0.0, 0.0
    var_c, mean_c, var_e, mean_e = s_c, at_c, s_e, at_e
    is_reported, reported_seen = reward < 0.0, reward - UNSEEN
    reward = max(reward, 0.0)
    for _ in range(iterations):
        # The bounds touch the likelihood at ξ, the root of the second moment.
        xi_c = np.sqrt(var_c + mean_c * mean_c)
        xi_e = np.sqrt(var_e + mean_e * mean_e)
        examination = (
            reported_seen
            if is_reported
            else gaussian.sigmoid(mean_e - 0.5 * mean_c - 0.5 * xi_c + gaussian.log_sigmoid(xi_c))
        )
        # Probability of "examined, but not clicked".
        missed = (1.0 - reward) * examination
        c_c = 2.0 * (reward + missed) * gaussian.jaakkola(xi_c)
        b_c = 0.5 * (reward - missed)
        c_e = 2.0 * gaussian.jaakkola(xi_e)
        b_e = 0.5 * (reward + 2.0 * missed - (1.0 - reward))
        was_c, was_e = mean_c, mean_e
        # Posterior moments under the bounds; the next step starts from them.
        var_c = s_c / (1.0 + c_c * s_c)
        mean_c = at_c + var_c * (b_c - c_c * at_c)
        var_e = s_e / (1.0 + c_e * s_e)
        mean_e = at_e + var_e * (b_e - c_e * at_e)
        if abs(mean_c - was_c) + abs(mean_e - was_e) < 1e-10:
            break
    return c_c, b_c, c_e, b_e


@dataclass(frozen=True)
class ECBandit(ExaminationModel):
    """Thompson sampling on a variational posterior of relevance and examination.

    Clicks have probability σ(x_C·θ_C)·σ(x_E·θ_E). The posterior of each block is Gaussian, and
    both are independent; each observation replaces the likelihood by quadratic bounds, fitted in
    a few iterations over scalars. One pass: a round costs O(d²), however long the history. The
    printed update has typing errors; this one follows the derivation, with σ(−x_C·θ_C) for the
    probability that a result that was seen is not relevant.

    It is over-confident: variances near θ = 0 are too small by a factor of about 3/2 for relevance and
    3 for examination. :class:`LaplaceEC` costs the same and is not.

    Parameters
    ----------
    relevance_dim, examination_dim : int
        Numbers of relevance and of examination features per arm; at least 1.
    prior_variance : float, default 1
        Variance of each parameter before the first click; above 0. 1 works well; 10 has more
        regret.
    inner_iterations : int, default 5
        Most fits of the bounds per observation; at least 1.
    relevance_intercept, examination_intercept : bool, default False
        Whether a constant is appended to the block's features. In one block it is useful if the
        features have none; in both, only the sum of the two is determined while clicks are rare.
    discount : float, default 1
        Factor on the precision of earlier rewards, at each reward, in (0, 1]. Below 1 the policy
        forgets and so can follow shifting intent.

    Raises
    ------
    InvalidValue
        If a hyperparameter is out of its range.

    References
    ----------
    Qi, Wu, Wang, Tang, Sun (2018), "Bandit learning with implicit feedback", algorithm 1 and
    equations (3) to (6); Jaakkola, Jordan (2000) for the bound.

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.policies.ECBandit(relevance_dim=2, examination_dim=1), seed=1)
    >>> decision = learner.choose(
    ...     "video 7", relevance=[[0.2, 0.9], [0.8, 0.1]], examination=[[1.0], [0.5]]
    ... )
    >>> learner.learn(decision, reward=1.0)
    True
    >>> learner.posterior("video 7").relevance.mean.shape
    (2,)
    """

    class State(NamedTuple):
        relevance: gaussian.Gaussian
        examination: gaussian.Gaussian

    about: ClassVar[About] = About(
        source="Qi et al. (2018), E-C Bandit, algorithm 1",
        regret="O(|A| + sqrt(d·|A|·T·ln T)) for the exact posterior (equation 10)",
        assumes="that a click needs relevance and examination, each logistic in its features",
        fails="can settle on a wrong arm; too sure of itself even where the model holds",
        otherwise="LaplaceEC, which is calibrated; LogisticTS where nothing hides results",
    )

    prior_variance: Positive = 1.0
    inner_iterations: Annotated[int, int_range(1, 10_000)] = 5
    relevance_intercept: Flag = False
    examination_intercept: Flag = False
    discount: PositiveFraction = 1.0

    def init(self, lanes: int) -> State:
        """Return the prior of both blocks in each lane."""
        return self.State(
            gaussian.Gaussian.prior(lanes, self.split, self.prior_variance),
            gaussian.Gaussian.prior(lanes, self.width - self.split, self.prior_variance),
        )

    def posterior(self, state: State, lane: int) -> Beliefs:
        """Return the belief about each block of a lane's parameters; there is no joint belief."""
        return Beliefs(*(gaussian.belief(block.mean[lane], block.root[lane]) for block in state))

    def parameter_draws(self, state: State, lane: int, rng: Generator, draws: int) -> Floats:
        """Return posterior draws of all parameters, relevance first, of shape (draws, width)."""
        blocks = [gaussian.draw_samples(block.mean[lane], block.root[lane], rng, draws) for block in state]
        return np.hstack(blocks)

    @staticmethod
    def choose(params: ECBandit, state: State, lane: int, impression: Impression, rng: Generator) -> int:
        """Return the arm with the largest click probability under parameters drawn from the posterior."""
        for block in (state.relevance, state.examination):
            mean, root, work = block.mean[lane], block.root[lane], block.room[lane]
            gaussian.draw_gaussian(mean, root, 1.0, rng, work[0], work[1])
        arm = most_clicked(impression, state.relevance.room[lane, 1], state.examination.room[lane, 1])
        gaussian.clear(state.relevance.room[lane])
        gaussian.clear(state.examination.room[lane])
        return arm

    @staticmethod
    def learn(params: ECBandit, state: State, lane: int, outcome: Outcome) -> None:
        """Discount earlier rewards, then update relevance and examination by the variational bounds of the
        reward.
        """
        impression, reward = outcome.impression, outcome.reward
        place = find_place(impression.arms, outcome.shown)
        mean_c, root_c = state.relevance.mean[lane], state.relevance.root[lane]
        mean_e, root_e = state.examination.mean[lane], state.examination.root[lane]
        room_c, room_e = state.relevance.room[lane], state.examination.room[lane]
        gaussian.fade(root_c, params.discount, params.prior_variance)
        gaussian.fade(root_e, params.discount, params.prior_variance)
        gaussian.copy_row(impression.relevance[place], room_c[0])
        gaussian.copy_row(impression.examination[place], room_e[0])
        # Variance and mean of the logits of attraction (c) and examination (e) before the reward.
        s_c = gaussian.project(root_c, room_c[0], room_c[1])
        s_e = gaussian.project(root_e, room_e[0], room_e[1])
        at_c, at_e = gaussian.dot(mean_c, room_c[0]), gaussian.dot(mean_e, room_e[0])
        c_c, b_c, c_e, b_e = variational(s_c, at_c, s_e, at_e, reward, params.inner_iterations)
        gaussian.apply_observation(
            mean_c, root_c, room_c[1], s_c, c_c, (b_c - c_c * at_c) / (1.0 + c_c * s_c)
        )
        gaussian.apply_observation(
            mean_e, root_e, room_e[1], s_e, c_e, (b_e - c_e * at_e) / (1.0 + c_e * s_e)
        )
        gaussian.clear(room_c)
        gaussian.clear(room_e)

    @staticmethod
    def restart(params: ECBandit, state: State, lane: int) -> None:
        """Reset both blocks of a lane to the prior."""
        gaussian.reset(state.relevance.mean[lane], state.relevance.root[lane], params.prior_variance)
        gaussian.reset(state.examination.mean[lane], state.examination.root[lane], params.prior_variance)

    @staticmethod
    def believed(params: ECBandit, state: State, lane: int, impression: Impression, arm: int) -> float:
        """Return the click probability of an arm on offer, with parameters at their posterior means."""
        place = find_place(impression.arms, arm)
        relevance = gaussian.score_row(impression.relevance[place], state.relevance.mean[lane])
        examination = gaussian.score_row(impression.examination[place], state.examination.mean[lane])
        return gaussian.sigmoid(relevance) * gaussian.sigmoid(examination)
