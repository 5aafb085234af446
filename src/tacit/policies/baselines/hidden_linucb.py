"""hLinUCB: LinUCB with hidden features of each arm (Wang et al. 2016)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import kernel
from tacit.core.part import Flag, Positive, int_range
from tacit.policies.base import About, Impression, Outcome, Policy
from tacit.policies.features import gaussian
from tacit.policies.features.click_model import MAX_DIM, find_place


@kernel
def fill_hidden(state: Any, lane: int, impression: Impression, place: int, arm: int, x: Floats) -> int:
    """Fill ``x`` with an arm's observed features, the constant if there is one, and its hidden features.

    Returns
    -------
    int
        Index of the first hidden feature.
    """
    split, width = impression.relevance.shape[1], len(x) - state.hidden.shape[2]
    gaussian.copy_row(impression.relevance[place], x[:split])
    gaussian.copy_row(impression.examination[place], x[split:width])
    gaussian.copy_row(state.hidden[lane, arm], x[width:])
    return int(width)


@kernel
def highest_bound(params: Any, state: Any, lane: int, impression: Impression) -> int:
    """Return the first arm on offer of the highest upper confidence bound.

    The bound is the mean plus the deviations due to the shared parameters and to the arm's hidden features.
    The workspace is cleared afterwards.
    """
    mean, root, work = state.shared.mean[lane], state.shared.root[lane], state.shared.room[lane]
    best, leader = -np.inf, impression.arms[0]
    for i in range(len(impression.arms)):
        arm = impression.arms[i]
        width = fill_hidden(state, lane, impression, i, arm, work[0])
        s = gaussian.project(root, work[0], work[1])
        hidden_variance = gaussian.project(state.root[lane, arm], mean[width:], state.room[lane, 0])
        score = gaussian.dot(mean, work[0]) + params.alpha * np.sqrt(s)
        score += params.hidden_alpha * np.sqrt(hidden_variance)
        if score > best:
            best, leader = score, arm
    gaussian.clear(work)
    gaussian.clear(state.room[lane])
    return int(leader)


@dataclass(frozen=True)
class HLinUCB(Policy):
    """LinUCB that learns hidden features of each arm in addition to the observed ones.

    The click probability of arm a is (x, v_a)·(θ_x, θ_v), with v_a unknown. Parameters and hidden features
    are least-squares estimates given each other, and the bound adds the deviations of both. The
    hidden features start at fixed random points, else they would stay at 0.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names: hidden features belong to an arm.
    relevance_dim, examination_dim : int
        Numbers of relevance and of examination features per arm; at least 1.
    hidden_dim : int, default 5
        Number of hidden features; at least 1.
    alpha : float, default 0.5
        Factor on the deviation that comes from the parameters; above 0.
    hidden_alpha : float, default 0.1
        Factor on the deviation that comes from the hidden features; above 0.
    prior_variance : float, default 1
        Inverse of both ridge penalties; above 0.
    intercept : bool, default True
        Whether there is a constant.

    Raises
    ------
    InvalidValue
        If a hyperparameter is out of its range.

    References
    ----------
    Wang, Wu, Wang (2016), "Learning hidden features for contextual bandits", algorithm 1.

    Examples
    --------
    >>> import tacit
    >>> tacit.policies.baselines.HLinUCB(["a", "b"], relevance_dim=1, examination_dim=1).feature_dims
    (1, 1)
    """

    class State(NamedTuple):
        shared: gaussian.Gaussian
        start: Floats  # (lanes, arms, hidden)
        hidden: Floats  # (lanes, arms, hidden)
        root: Floats  # (lanes, arms, hidden, hidden)
        room: Floats  # (lanes, 1, hidden)

    about: ClassVar[About] = About(
        source="Wang, Wu, Wang (2016), algorithm 1",
        regret="O(sqrt(T)·ln T) if it starts close enough to the true hidden features",
        assumes="that the click probability is linear in given and hidden features",
        fails="takes what was not seen for unwanted",
        otherwise="LaplaceEC where results go unseen",
    )
    randomized: ClassVar[bool] = False
    noise: ClassVar[float] = gaussian.MOST_NOISE

    relevance_dim: Annotated[int, int_range(1, MAX_DIM)]
    examination_dim: Annotated[int, int_range(1, MAX_DIM)]
    hidden_dim: Annotated[int, int_range(1, MAX_DIM)] = 5
    alpha: Positive = 0.5
    hidden_alpha: Positive = 0.1
    prior_variance: Positive = 1.0
    intercept: Flag = True

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance with ``arms`` arms and ``dim`` features of each kind."""
        return cls(arms, dim, dim)

    def init(self, lanes: int) -> State:
        """Return the initial state of ``lanes`` lanes; hidden features start at fixed random points."""
        shape = lanes, self.arm_count, self.hidden_dim
        width = self.relevance_dim + self.examination_dim + int(self.intercept) + self.hidden_dim
        # Drawn arm by arm with a fixed seed, so that an arm starts at the same point when arms are added.
        rng = np.random.Generator(np.random.PCG64(0))
        points = rng.standard_normal(shape[1:]) / math.sqrt(self.hidden_dim)
        start = np.broadcast_to(points, shape).copy()
        root = np.zeros((*shape, self.hidden_dim))
        root[..., range(self.hidden_dim), range(self.hidden_dim)] = math.sqrt(self.prior_variance)
        shared = gaussian.Gaussian.prior(lanes, width, self.prior_variance)
        return self.State(shared, start, start.copy(), root, np.zeros((lanes, 1, self.hidden_dim)))

    def posterior(self, state: State, lane: int) -> gaussian.Belief:
        """Return a key's posterior of the shared parameters; the weights of hidden features come last."""
        return gaussian.belief(state.shared.mean[lane], state.shared.root[lane])

    def reward_draws(
        self, state: State, lane: int, impression: Impression, rng: Generator, draws: int
    ) -> Floats:
        """Return posterior draws of each arm's mean reward, clipped to [0, 1]; shape (draws, arms on
        offer).
        """
        shared = state.shared
        theta = gaussian.draw_samples(shared.mean[lane], self.noise * shared.root[lane], rng, draws)
        width = theta.shape[1] - self.hidden_dim
        rows = gaussian.stack_features(impression.relevance, impression.examination, width=width)
        scores = theta[:, :width] @ rows.T
        for place, arm in enumerate(impression.arms):
            mean, root = state.hidden[lane, arm], self.noise * state.root[lane, arm]
            scores[:, place] += (gaussian.draw_samples(mean, root, rng, draws) * theta[:, width:]).sum(axis=1)
        return np.clip(scores, 0.0, 1.0)

    @staticmethod
    def choose(params: HLinUCB, state: State, lane: int, impression: Impression, rng: Generator) -> int:
        """Return the first arm of the highest upper confidence bound."""
        return highest_bound(params, state, lane, impression)

    @staticmethod
    def propensity(params: HLinUCB, state: State, lane: int, impression: Impression, arm: int) -> float:
        """Return 1 for the first arm of the highest upper confidence bound, else 0."""
        return 1.0 if arm == highest_bound(params, state, lane, impression) else 0.0

    @staticmethod
    def learn(params: HLinUCB, state: State, lane: int, outcome: Outcome) -> None:
        """Update the shared parameters with the reward, given the arm's hidden features; then these, given
        the parameters.

        Both updates are recursive least squares.
        """
        arm = outcome.shown
        mean, root, work = state.shared.mean[lane], state.shared.root[lane], state.shared.room[lane]
        place = find_place(outcome.impression.arms, arm)
        width = fill_hidden(state, lane, outcome.impression, place, arm, work[0])
        s = gaussian.project(root, work[0], work[1])
        gaussian.apply_observation(
            mean, root, work[1], s, 1.0, (outcome.reward - gaussian.dot(mean, work[0])) / (1.0 + s)
        )
        hidden, hidden_root = state.hidden[lane, arm], state.root[lane, arm]
        residual = outcome.reward - gaussian.dot(mean[:width], work[0]) - gaussian.dot(hidden, mean[width:])
        s = gaussian.project(hidden_root, mean[width:], state.room[lane, 0])
        gaussian.apply_observation(hidden, hidden_root, state.room[lane, 0], s, 1.0, residual / (1.0 + s))
        gaussian.clear(work)
        gaussian.clear(state.room[lane])

    @staticmethod
    def restart(params: HLinUCB, state: State, lane: int) -> None:
        """Reset a lane's parameters to the prior and its hidden features to their start points."""
        gaussian.reset(state.shared.mean[lane], state.shared.root[lane], params.prior_variance)
        for arm in range(state.hidden.shape[1]):
            gaussian.reset(state.hidden[lane, arm], state.root[lane, arm], params.prior_variance)
            for i in range(state.hidden.shape[2]):
                state.hidden[lane, arm, i] = state.start[lane, arm, i]
