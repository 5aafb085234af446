"""Gaussian posteriors stored as a square root, and the logistic function without overflow.

A covariance is stored as Σ = S·Sᵀ. An observation of precision c along x multiplies S by
I − β·v·vᵀ with v = Sᵀx (Potter's form), whose least eigenvalue is 1/sqrt(1 + c·vᵀv): no
subtraction of covariances can make Σ lose its positive definiteness, and no matrix is inverted.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import kernel

MOST_NOISE = 0.5
"""The largest deviation that a reward in [0, 1] can have."""


class Gaussian(NamedTuple):
    """A Gaussian posterior per lane.

    Attributes
    ----------
    mean : array of float64, shape (lanes, d)
    root : array of float64, shape (lanes, d, d)
        S, with the covariance S·Sᵀ.
    room : array of float64, shape (lanes, 3, d)
        Workspace of kernels; all zeros between their calls, so that choices do not change the state.
    """

    mean: Floats
    root: Floats
    room: Floats

    @classmethod
    def prior(cls, lanes: int, dim: int, variance: float) -> Gaussian:
        """Return the prior of each lane: mean 0, covariance variance·I."""
        root = np.zeros((lanes, dim, dim))
        root[:, range(dim), range(dim)] = math.sqrt(variance)
        return cls(np.zeros((lanes, dim)), root, np.zeros((lanes, 3, dim)))


class Belief(NamedTuple):
    """Mean and covariance of a Gaussian posterior.

    Attributes
    ----------
    mean : array of float64, shape (d,)
    covariance : array of float64, shape (d, d)
    condition : float
        Condition number of the covariance: its largest over its smallest eigenvalue.
    """

    mean: Floats
    covariance: Floats
    condition: float


def belief(mean: Floats, root: Floats) -> Belief:
    """Return the mean, covariance and condition number of a Gaussian, from its mean and a root of its
    covariance.
    """
    values = np.linalg.svd(root, compute_uv=False) if len(mean) else np.ones(1)
    ratio = values[0] / values[-1] if values[-1] > 0.0 else math.inf
    return Belief(mean.copy(), root @ root.T, float(ratio**2))


def draw_samples(mean: Floats, root: Floats, rng: Generator, draws: int) -> Floats:
    """Return ``draws`` samples of a Gaussian, of shape (draws, d), from its mean and a root of its
    covariance.
    """
    return mean + rng.standard_normal((draws, len(mean))) @ root.T


# The logistic function -----------------------------------------------------------------------


@kernel
def sigmoid(x: float) -> float:
    """Return 1/(1 + exp(−x)) without overflow; tiny results keep their relative precision."""
    if x >= 0.0:
        return 1.0 / (1.0 + np.exp(-x))  # type: ignore[no-any-return]
    grown = np.exp(x)
    return grown / (1.0 + grown)  # type: ignore[no-any-return]


@kernel
def log_sigmoid(x: float) -> float:
    """Return ln(1/(1 + exp(−x))), without overflow."""
    return min(x, 0.0) - np.log1p(np.exp(-abs(x)))  # type: ignore[no-any-return]


@kernel
def jaakkola(xi: float) -> float:
    """Return λ(ξ) = tanh(ξ/2)/(4ξ), the coefficient of the quadratic bound on ln σ (Jaakkola, Jordan
    2000).
    """
    if abs(xi) < 1e-3:
        return 0.125 - xi * xi / 96.0
    return np.tanh(0.5 * xi) / (4.0 * xi)  # type: ignore[no-any-return]


def logistic(scores: Floats) -> Floats:
    """Return 1/(1 + exp(−x)) of each number in an array, without overflow."""
    return np.exp(-np.logaddexp(0.0, -scores))


# Vectors -------------------------------------------------------------------------------------


@kernel
def dot(x: Floats, y: Floats) -> float:
    """Return the inner product of ``x`` and the first len(x) numbers of ``y``, by eight parallel sums.

    They become vector instructions, and the order of additions is the same on all machines.
    """
    a, b, c, d, e, f, g, h = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    whole = len(x) // 8 * 8
    for i in range(0, whole, 8):
        a += x[i] * y[i]
        b += x[i + 1] * y[i + 1]
        c += x[i + 2] * y[i + 2]
        d += x[i + 3] * y[i + 3]
        e += x[i + 4] * y[i + 4]
        f += x[i + 5] * y[i + 5]
        g += x[i + 6] * y[i + 6]
        h += x[i + 7] * y[i + 7]
    for i in range(whole, len(x)):
        a += x[i] * y[i]
    return float(((a + b) + (c + d)) + ((e + f) + (g + h)))


@kernel
def copy_row(row: Floats, x: Floats) -> None:
    """Fill ``x`` with ``row``, followed by ones, the constant feature, if ``x`` is longer."""
    for i in range(len(row)):
        x[i] = row[i]
    for i in range(len(row), len(x)):
        x[i] = 1.0


@kernel
def score_row(row: Floats, theta: Floats) -> float:
    """Return the inner product of features and parameters; a parameter more than features is a constant
    term.
    """
    total = dot(row, theta)
    if len(theta) > len(row):
        total += theta[len(row)]
    return total


def stack_features(*blocks: Any, width: int) -> Floats:
    """Return matrices of features side by side, filled up with columns of ones to ``width`` columns.

    Matrices without columns are left out.
    """
    rows = np.hstack([block for block in blocks if block.shape[1]])
    return np.hstack([rows, np.ones((len(rows), width - rows.shape[1]))])


@kernel
def clear(work: Floats) -> None:
    """Set all numbers of a workspace (a matrix) to zero."""
    for i in range(work.shape[0]):
        for j in range(work.shape[1]):
            work[i, j] = 0.0


# One Gaussian --------------------------------------------------------------------------------


@kernel
def draw_gaussian(mean: Floats, root: Floats, scale: float, rng: Generator, z: Floats, theta: Floats) -> None:
    """Fill ``theta`` with a draw mean + scale·S·z: S is ``root``, and z, standard normal, is written to
    ``z``.
    """
    for i in range(len(mean)):
        z[i] = rng.standard_normal()
    for i in range(len(mean)):
        theta[i] = mean[i] + scale * dot(root[i], z)


@kernel
def project(root: Floats, x: Floats, v: Floats) -> float:
    """Fill ``v`` with Sᵀx, where S is ``root``; return v·v, the variance of x·θ."""
    for j in range(len(v)):
        v[j] = 0.0
    for i in range(len(x)):
        for j in range(len(v)):
            v[j] += x[i] * root[i, j]
    return dot(v, v)


@kernel
# Potter's rank-one update: the root stays a root, so a covariance never gets a negative variance.
def apply_observation(mean: Floats, root: Floats, v: Floats, s: float, c: float, gain: float) -> None:
    """Update mean and root, in place, with an observation of precision c along x, given v = Sᵀx and s = v·v.

    S is ``root``. The mean moves by gain·S·v, with S from before; S becomes the root of the inverse of Σ⁻¹ +
    c·x·xᵀ.
    """
    r = np.sqrt(1.0 + c * s)
    beta = c / (r * (1.0 + r))
    for i in range(len(mean)):
        along = dot(root[i], v)
        mean[i] += gain * along
        shrunk = beta * along
        for j in range(len(v)):
            root[i, j] -= shrunk * v[j]


@kernel
def learn_logit(mean: Floats, root: Floats, work: Floats, logit: float, reward: float) -> float:
    """Update mean and root, in place, with a reward in [0, 1]; return the variance of the click's logit
    before.

    ``logit`` is the click's logit at the mean, and ``work[0]`` its gradient. The workspace ``work`` is
    cleared.
    """
    # s is the logit's variance, ``work[1]`` its gradient times the root.
    s = project(root, work[0], work[1])
    c, gain = logistic_step(logit, s, reward)
    apply_observation(mean, root, work[1], s, c, gain)
    clear(work)
    return s


@kernel
def fade(root: Floats, discount: float, variance: float) -> None:
    """Multiply the precision by ``discount``, in place, so that earlier observations count less.

    The covariance grows by 1/discount, but its trace never exceeds the prior's, of ``variance`` per
    parameter: in directions without observations it would grow without bound.
    """
    if discount >= 1.0:
        return
    trace = 0.0
    for i in range(len(root)):
        trace += dot(root[i], root[i])
    growth = np.sqrt(min(1.0 / discount, max(1.0, len(root) * variance / trace)))
    for i in range(len(root)):
        for j in range(len(root)):
            root[i, j] *= growth


@kernel
def reset(mean: Floats, root: Floats, variance: float) -> None:
    """Set mean and root, in place, to the prior: mean 0, and ``variance`` for each parameter."""
    deviation = np.sqrt(variance)
    for i in range(len(mean)):
        mean[i] = 0.0
        for j in range(len(mean)):
            root[i, j] = deviation if i == j else 0.0


@kernel
def logistic_step(logit: float, s: float, reward: float) -> Any:
    """Return precision and gain by which a reward updates a Gaussian (:func:`apply_observation`), for the
    click's logit.

    ``logit`` and ``s`` are its mean and variance before. The posterior's mode l along the logit's gradient
    solves l = logit + s·(reward − σ(l)), by safeguarded Newton steps; the precision is σ(l)(1 − σ(l)), the
    gain (l − logit)/s.

    Returns
    -------
    precision, gain : float
        σ(l)·(1 − σ(l)) and reward − σ(l), for :func:`apply_observation`.
    """
    low = min(logit, logit + s * (reward - sigmoid(logit)))
    high = max(logit, logit + s * (reward - sigmoid(logit)))
    at = logit
    for _ in range(60):
        chance = sigmoid(at)
        off = at - logit - s * (reward - chance)
        if off > 0.0:
            high = at
        else:
            low = at
        following = at - off / (1.0 + s * chance * (1.0 - chance))
        if not low < following < high:
            following = 0.5 * (low + high)
        step = abs(following - at)
        at = following
        if step < 1e-9:
            break
    chance = sigmoid(at)
    # Both are equal at the root; each is used where the other would magnify rounding errors.
    gain = (at - logit) / s if s > 1.0 else reward - chance
    return chance * (1.0 - chance), gain
