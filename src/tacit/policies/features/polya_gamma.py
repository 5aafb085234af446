"""Thompson sampling on the exact posterior of a logistic regression, by Gibbs sampling."""

# 1. A Pólya–Gamma draw: its two proposals, the series that bounds the density, the rejection (Polson et al.
#    2013).
# 2. A Gaussian draw from its precision, by Cholesky.
# 3. ``PolyaGammaTS``: Gibbs sweeps alternate the two over the latest events; the last draw decides.

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import kernel
from tacit.core.part import Flag, Positive, PositiveFraction, int_range
from tacit.core.state_ranges import IntCount, ValueRange
from tacit.policies.base import About, Impression, Outcome
from tacit.policies.features import gaussian
from tacit.policies.features.click_model import ClickModel, find_place
from tacit.policies.features.linear import LinearModel, LogisticTS, fill_features, linear_score

TRUNCATION = 0.64
"""The point where the two proposals of the Pólya–Gamma sampler meet."""
HUGE_TILT = 1e9


@kernel
def normal_cdf(x: float) -> float:
    """Return the probability that a standard normal variable is at most x."""
    return 0.5 * math.erfc(-x * 0.7071067811865476)


@kernel
def draw_inverse_gaussian(z: float, rng: Generator) -> float:
    """Return a draw from the inverse Gaussian of mean 1/z and shape 1, under the condition that it is at most
    0.64.
    """
    t = TRUNCATION
    if z * t < 1.0:
        while True:
            first, second = rng.standard_exponential(), rng.standard_exponential()
            while first * first > 2.0 * second / t:
                first, second = rng.standard_exponential(), rng.standard_exponential()
            x = t / (1.0 + first * t) ** 2
            # Accepting corrects the draw, which is for an infinite mean, to mean 1/z.
            if rng.random() <= np.exp(-0.5 * z * z * x):
                return float(x)
    # The mean is at most ``t``: most draws without the condition fulfil it (Michael, Schucany, Haas 1976).
    mean = 1.0 / z
    while True:
        y = rng.standard_normal() ** 2
        x = mean + 0.5 * mean * mean * y
        x -= 0.5 * mean * np.sqrt(4.0 * mean * y + (mean * y) ** 2)
        if rng.random() > mean / (mean + x):
            x = mean * mean / x
        if x <= t:
            return float(x)


@kernel
def series_term(n: int, x: float) -> float:
    """Return the n-th term at x of the alternating series whose partial sums bound the density of J*(1, 0).

    J*(1, 0) is four times a Pólya–Gamma variable PG(1, 0).
    """
    k = n + 0.5
    if x > TRUNCATION:
        return float(np.pi * k * np.exp(-0.5 * k * k * np.pi**2 * x))
    return float(np.pi * k * (2.0 / (np.pi * x)) ** 1.5 * np.exp(-2.0 * k * k / x))


@kernel
def draw_polya_gamma(tilt: float, rng: Generator) -> float:
    """Return a draw from the Pólya–Gamma distribution PG(1, tilt), by rejection against an alternating
    series.

    Returns the mean if ``tilt`` is beyond ±1e9, and NaN if it is NaN.
    """
    if not abs(tilt) < HUGE_TILT:
        return 0.5 / abs(tilt)  # its mean, or NaN: no draw would ever be accepted
    z, t = 0.5 * abs(tilt), TRUNCATION
    rate = 0.125 * np.pi**2 + 0.5 * z * z
    low = np.sqrt(1.0 / t) * (t * z - 1.0)
    high = -np.sqrt(1.0 / t) * (t * z + 1.0)
    start = np.log(rate) + rate * t
    mass = 0.0
    for side in range(2):
        cut, sign = (low, -z) if side == 0 else (high, z)
        cdf = normal_cdf(cut)
        if cdf > 0.0:
            mass += np.exp(start + sign + np.log(cdf))
    # Beyond ``t`` the proposal is an exponential, with probability ``tail``; below, an inverse Gaussian.
    tail = 1.0 / (1.0 + 4.0 / np.pi * mass)
    while True:
        if rng.random() < tail:
            x = t + rng.standard_exponential() / rate
        else:
            x = draw_inverse_gaussian(z, rng)
        total = series_term(0, x)
        # Partial sums are above and below the density in turn: accept at or below a lower one, reject above
        # an upper one.
        level, n = rng.random() * total, 0
        while True:
            n += 1
            if n % 2 == 1:
                total -= series_term(n, x)
                if level <= total:
                    return float(0.25 * x)
            else:
                total += series_term(n, x)
                if level > total:
                    break


@kernel
def cholesky(matrix: Floats) -> None:
    """Replace the lower triangle of a positive definite matrix, in place, by its Cholesky factor."""
    for j in range(len(matrix)):
        for k in range(j):
            for i in range(j, len(matrix)):
                matrix[i, j] -= matrix[i, k] * matrix[j, k]
        pivot = np.sqrt(matrix[j, j])
        for i in range(j, len(matrix)):
            matrix[i, j] /= pivot


@kernel
def draw_by_precision(matrix: Floats, linear: Floats, rng: Generator, theta: Floats) -> None:
    """Fill ``theta`` with a draw from a Gaussian, given its precision ``matrix``, which is overwritten.

    Its mean is the inverse of ``matrix`` times ``linear``. With matrix = L·Lᵀ, the draw is L⁻ᵀ(L⁻¹·linear +
    z), z being standard normal.
    """
    cholesky(matrix)
    for i in range(len(linear)):
        total = linear[i]
        for j in range(i):
            total -= matrix[i, j] * theta[j]
        theta[i] = total / matrix[i, i]
    for i in range(len(linear)):
        theta[i] += rng.standard_normal()
    for i in range(len(linear) - 1, -1, -1):
        total = theta[i]
        for j in range(i + 1, len(linear)):
            total -= matrix[j, i] * theta[j]
        theta[i] = total / matrix[i, i]


@dataclass(frozen=True)
class PolyaGammaTS(LinearModel, ClickModel):
    """Thompson sampling on a logistic regression's exact posterior: slow, the reference.

    Every choice draws parameters by Gibbs sampling over all stored observations: the Pólya–Gamma
    variable of each observation given the parameters, then the parameters given these variables. The
    chain starts at a draw from the Laplace posterior of :class:`LogisticTS`, which is close. A choice
    costs O(sweeps·rewards·d²).

    Parameters
    ----------
    relevance_dim : int
        Number of relevance features per arm; at least 1.
    examination_dim : int, default 0
        Number of examination features per arm.
    sweeps : int, default 10
        Gibbs sweeps per choice; at least 1.
    memory : int, default 1000
        Number of latest observations that are stored.
    prior_variance : float, default 1
        Variance of each parameter before the first click; above 0.
    intercept : bool, default True
        Whether there is a constant.

    Raises
    ------
    InvalidValue
        If a hyperparameter is out of its range.

    References
    ----------
    Polson, Scott, Windle (2013), "Bayesian inference for logistic models using Pólya–Gamma latent
    variables"; Dumitrascu, Feng, Engelhardt (2018), "PG-TS", algorithm 1.

    Examples
    --------
    >>> import tacit
    >>> tacit.policies.PolyaGammaTS(5, 5, sweeps=20).label
    'PolyaGammaTS(relevance_dim=5, examination_dim=5, sweeps=20)'
    """

    class State(NamedTuple):
        laplace: gaussian.Gaussian
        rows: Floats  # (lanes, memory, d)
        rewards: Annotated[Floats, ValueRange(0, 1)]  # (lanes, memory)
        seen: IntCount  # (lanes,)
        precision: Floats  # (lanes, d, d), zeros between calls

    about: ClassVar[About] = LogisticTS.about._replace(
        source="Dumitrascu, Feng, Engelhardt (2018), PG-TS",
        regret="no bound is known",
        otherwise="LogisticTS, which costs O(d²)",
    )

    sweeps: Annotated[int, int_range(1, 1_000_000)] = 10
    memory: Annotated[int, int_range(1, 10_000_000)] = 1000
    prior_variance: Positive = 1.0
    intercept: Flag = True
    discount: PositiveFraction = 1.0

    def init(self, lanes: int) -> State:  # type: ignore[override]
        """Return the initial state: the prior of the Laplace approximation, and no stored observations."""
        rows = np.zeros((lanes, self.memory, self.width))
        precision = np.zeros((lanes, self.width, self.width))
        laplace = gaussian.Gaussian.prior(lanes, self.width, self.prior_variance)
        counts = np.zeros(lanes, np.int64)
        return self.State(laplace, rows, np.zeros((lanes, self.memory)), counts, precision)

    def posterior(self, state: State, lane: int) -> gaussian.Belief:  # type: ignore[override]
        """Return the Laplace approximation of a lane's posterior, where the Gibbs chains start."""
        return gaussian.belief(state.laplace.mean[lane], state.laplace.root[lane])

    def reward_draws(
        self, state: State, lane: int, impression: Impression, rng: Generator, draws: int
    ) -> Floats:
        """Return draws of each arm's click probability by the Laplace approximation; shape (draws, arms on
        offer).
        """
        return super().reward_draws(state.laplace, lane, impression, rng, draws)

    @staticmethod
    def choose(params: PolyaGammaTS, state: State, lane: int, impression: Impression, rng: Generator) -> int:
        """Draw parameters by Gibbs sampling, and return the arm with the highest score."""
        work, precision = state.laplace.room[lane], state.precision[lane]
        theta, linear = work[1], work[2]
        gaussian.draw_gaussian(state.laplace.mean[lane], state.laplace.root[lane], 1.0, rng, work[0], theta)
        stored_count = min(state.seen[lane], state.rows.shape[1])
        for _ in range(params.sweeps):
            for i in range(len(theta)):
                linear[i] = 0.0
                for j in range(len(theta)):
                    precision[i, j] = 1.0 / params.prior_variance if i == j else 0.0
            # Given theta, a Pólya–Gamma draw for each stored reward; given these, theta is Gaussian.
            for n in range(stored_count):
                row = state.rows[lane, n]
                omega = draw_polya_gamma(gaussian.dot(row, theta), rng)
                for i in range(len(theta)):
                    linear[i] += (state.rewards[lane, n] - 0.5) * row[i]
                    for j in range(i + 1):
                        precision[i, j] += omega * row[i] * row[j]
            draw_by_precision(precision, linear, rng, theta)
        best, leader = -np.inf, 0
        for i in range(len(impression.arms)):
            score = linear_score(impression, i, theta)
            if score > best:
                best, leader = score, i
        gaussian.clear(work)
        gaussian.clear(precision)
        return int(impression.arms[leader])

    @staticmethod
    def learn(params: PolyaGammaTS, state: State, lane: int, outcome: Outcome) -> None:
        """Store the observation, in place of the oldest one if the memory is full; update the Laplace
        approximation.
        """
        mean, root, work = (state.laplace.mean[lane], state.laplace.root[lane], state.laplace.room[lane])
        at = state.seen[lane] % state.rows.shape[1]
        row = state.rows[lane, at]
        fill_features(outcome.impression, find_place(outcome.impression.arms, outcome.shown), row)
        state.rewards[lane, at] = outcome.reward
        state.seen[lane] += 1
        s = gaussian.project(root, row, work[1])
        c, gain = gaussian.logistic_step(gaussian.dot(mean, row), s, outcome.reward)
        gaussian.apply_observation(mean, root, work[1], s, c, gain)
        gaussian.clear(work)

    @staticmethod
    def restart(params: PolyaGammaTS, state: State, lane: int) -> None:  # type: ignore[override]
        """Reset a lane: the Laplace approximation to the prior, and no stored observations."""
        gaussian.reset(state.laplace.mean[lane], state.laplace.root[lane], params.prior_variance)
        state.seen[lane] = 0
        state.rewards[lane] = 0.0
        state.rows[lane] = 0.0

    @staticmethod
    def believed(  # type: ignore[override]
        params: PolyaGammaTS, state: State, lane: int, impression: Impression, arm: int
    ) -> float:
        """Return the click probability of an arm on offer, at the mean of the Laplace approximation."""
        place = find_place(impression.arms, arm)
        return gaussian.sigmoid(linear_score(impression, place, state.laplace.mean[lane]))
