"""Tables of a learner's estimates: posterior means and intervals of arms, and coefficients of features."""

# 1. Beta posteriors: intervals, and each arm's probability of being the best, by numerical integration.
# 2. ``ArmEstimate``, ``Estimates``: estimates of arms.
# 3. ``Coefficient``, ``Coefficients``: estimates of features' coefficients; estimates of arms from draws.

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats
from tacit.core.reward_range import RewardRange
from tacit.core.text import ByName, Column, Tabulated, format_table
from tacit.learning.lanes import Offer
from tacit.policies.base import ArmBeliefs, Policy
from tacit.policies.stationary.beta_maximum import BENT, CORE_WIDTH, NODES, POINTS, STEEPEST, WEIGHTS, WIDEST

# ---- Beta posteriors of several arms: intervals of their means, and probabilities of being the best

REACH = 9.0
"""Standard deviations on either side of the mode, in log-odds; tails are added to them."""
TAIL, LONG_TAIL = 10.0, 20.0
"""E-foldings of the added tails, for quantiles and for integrals."""
GRID_POINTS = 1025
"""Grid points of a density for its quantiles."""
MIN_PROBABILITY = 1e-12
"""Lower bound of a distribution function, as it is divided by."""
ARMS_AT_ONCE = 4096
"""Number of arms whose densities are computed together, to bound memory."""

_powers = np.arange(1, POINTS + 1)
RUNNING = (((1.0 - NODES[:, None] ** _powers) / _powers) @ np.linalg.inv(np.vander(NODES, increasing=True))).T
"""Values at the nodes of [−1, 1] times column i: the integral from node i up to 1."""


def compute_intervals(successes: Floats, failures: Floats, means: Floats, confidence: float = 0.95) -> Floats:
    """Return the ends of each arm's credible interval of the mean reward, shape (arms, 2).

    It is the central interval, unless the reported mean lies outside, as for an arm without clicks: then it
    is shifted until it ends at the mean, with the same probability. Quantiles are computed on a grid of
    log-odds.

    Parameters
    ----------
    successes, failures : array of float64, shape (arms,)
        Parameters of the posteriors; above 0.
    means : array of float64, shape (arms,)
        In [0, 1]; NaN if no mean is reported.
    confidence : float, default 0.95

    Returns
    -------
    array of float64, shape (arms, 2)

    Examples
    --------
    >>> compute_intervals(np.ones(2), np.ones(2), np.array([0.5, 1.0])).round(3).tolist()
    [[0.025, 0.975], [0.05, 1.0]]
    """
    tail = (1.0 - confidence) / 2.0
    ends = np.empty((len(means), 2))
    for i, (low, high) in enumerate(zip(*_find_range(successes, failures, TAIL), strict=True)):
        logits = np.linspace(low, high, GRID_POINTS)
        exponent = successes[i] * logits - (successes[i] + failures[i]) * np.logaddexp(0.0, logits)
        density = np.exp(exponent - exponent.max())
        mass = density / density.sum()
        below = np.cumsum(mass) - 0.5 * mass
        with np.errstate(divide="ignore"):
            mean_logit = np.log(means[i]) - np.log1p(-means[i])
        share_below_mean = float(np.interp(mean_logit, logits, below, 0.0, 1.0))
        # A mean that is NaN fails any comparison, which leaves the central interval.
        start = max(min(tail, share_below_mean), share_below_mean - confidence)
        interval = 1.0 / (1.0 + np.exp(-np.interp([start, start + confidence], below, logits)))
        # The ends of the grid and rounding may leave the mean slightly outside.
        ends[i] = np.fmin(interval[0], means[i]), np.fmax(interval[1], means[i])
    return ends


def compute_best_probabilities(successes: Floats, failures: Floats) -> Floats:
    """Return the probability that each arm is the best, ∫ fᵢ ∏ Fⱼ, for all arms in one pass.

    The integral is cut into panels over the log-odds as in :mod:`tacit.policies.stationary.beta_maximum`;
    every arm's density and distribution at their nodes are used for all arms. The work is arms × nodes. Arms
    with equal posteriors are computed once.

    Parameters
    ----------
    successes, failures : array of float64, shape (arms,)
        Parameters of the posteriors; above 0.

    Returns
    -------
    array of float64, shape (arms,)
        They sum to 1.

    Examples
    --------
    >>> compute_best_probabilities(np.array([1.0, 2.0]), np.ones(2)).round(6).tolist()
    [0.333333, 0.666667]
    """
    # Sorting pairs as complex numbers is ten times as fast as sorting rows.
    pairs = successes + 1j * failures
    kinds, which, counts = np.unique(pairs, return_inverse=True, return_counts=True)
    low, high = _find_range(kinds.real, kinds.imag, LONG_TAIL)
    # An arm that is certainly below another one is never the best.
    rivals = high > low.max()
    chances = np.zeros(len(kinds))
    chances[rivals] = _integrate_best(kinds.real[rivals], kinds.imag[rivals], counts[rivals])
    probabilities: Floats = (chances / (chances @ counts))[which]
    return probabilities


def _find_range(s: Floats, f: Floats, tail: float) -> tuple[Floats, Floats]:
    """Return the lowest and the highest log-odds with a density that is not negligible, for Beta(s, f)
    variables.

    ``tail`` is the length of the added tails in e-foldings.
    """
    mode, spread = np.log(s) - np.log(f), REACH * np.sqrt(1.0 / s + 1.0 / f)
    # The tails fall like exp(s·y) and exp(−f·y).
    return mode - spread - tail / s, mode + spread + tail / f


# The integral is over log-odds, where all densities are smooth, by Gauss-Legendre quadrature in panels.
def _integrate_best(s: Floats, f: Floats, counts: Floats) -> Floats:
    """Return the probability of being the best for one arm of each kind; a kind is Beta(s, f), and has
    ``counts`` arms.
    """
    low, high = _find_range(s, f, LONG_TAIL)
    bottom, y = float(low.max()), float(high.max())
    norm = np.array([math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
                     for a, b in zip(s.tolist(), f.tolist(), strict=True)])  # fmt: skip
    # The more arms, the steeper is the product of their distributions: as in ``beta_maximum``.
    widest = min(WIDEST, float(counts.sum()) ** -0.3)
    above, chances = np.zeros(len(s)), np.zeros(len(s))
    while y > bottom:
        width = min(_compute_panel_width(y, s, f, high, widest), y - bottom)
        nodes = y - width / 2 + width / 2 * NODES
        bends = np.logaddexp(0.0, nodes)
        y -= width
        reached = np.flatnonzero(high > y)
        # Arms are taken in parts, to bound memory.
        parts = [reached[i : i + ARMS_AT_ONCE] for i in range(0, len(reached), ARMS_AT_ONCE)]
        product = np.zeros(POINTS)
        pieces = []
        for part in parts:
            a, b = s[part, None], f[part, None]
            # Density of the log-odds at the nodes, times the panel's half-width.
            density = width / 2 * np.exp(a * nodes - (a + b) * bends - norm[part, None])
            # Logarithm of the probability that the arm is below each node, from the mass above the panel.
            below = np.log(np.maximum(1.0 - above[part, None] - density @ RUNNING, MIN_PROBABILITY))
            above[part] += density @ WEIGHTS
            product += counts[part] @ below
            pieces.append((part, density, below))
        for part, density, below in pieces:
            # The product over the other arms; rounding must not make it exceed 1.
            other_product = np.exp(np.minimum(product - below, 0.0))
            chances[part] += (density * other_product) @ WEIGHTS
    return chances


def _compute_panel_width(y: float, s: Floats, f: Floats, high: Floats, widest: float) -> float:
    """Return the width of the next interval of the quadrature, which ends at the log-odds ``y``.

    It is narrow enough that the log-odds of all Beta(s, f) variables have smooth densities in it. Above
    ``high`` a density is negligible. ``widest`` is the largest width, in units of the half-width of a
    density's middle part.
    """
    core = CORE_WIDTH * np.minimum(np.sqrt(1.0 / s + 1.0 / f), 1.5)
    widths = widest * core
    beyond = y - np.log(s) + np.log(f)
    widths = np.where(beyond > core, np.maximum(widths, np.minimum(beyond - core, STEEPEST / f)), widths)
    widths = np.where(beyond < -core, np.maximum(widths, STEEPEST / s), widths)
    width = float(np.maximum(widths, y - high).min())
    # For small counts the curvature of softplus, not the deviation, limits the width; beyond ``reach`` it
    # bends all densities together by at most exp(−8).
    fewest, most = min(s.min(), f.min()), max(s.max(), f.max())
    reach = 0.0
    if fewest < 1.5:
        reach = max(np.log(most), -np.log(fewest)) + np.log(2.0 * len(s)) + 8.0
    return min(width, max(y - reach, BENT)) if y > -reach else width


# ---- Estimates of arms: means, intervals, probabilities of being the best


class ArmEstimate(NamedTuple):
    """The estimate of an arm.

    Attributes
    ----------
    arm : str or int
    plays : int or None
        How often it was ever shown and learned from; None if unknown, as for keys that learned in
        version 0.2 or before, and if arms are identified by their features.
    plays_now : float or None
        Number of plays that the policy has not forgotten, by a detected shift, a window or a
        discount; including plays from ``priors``. A reward that varies less than clicks do counts for
        several, so that it may exceed ``plays``. None if arms are identified by their features.
    mean : float or None
        Its mean reward; None if nothing is known.
    low, high : float
        An interval that contains the mean.
    chance_best : float
        The probability that it is the best arm on offer; 0 if it is not on offer.
    """

    arm: Any
    plays: int | None
    plays_now: float | None
    mean: float | None
    low: float
    high: float
    chance_best: float


class Estimates(ByName[ArmEstimate], Tabulated):
    """An :class:`ArmEstimate` for each arm, in the order of the arms; may be indexed by name, too."""

    by = "arm"
    confidence: float

    def in_range(self, unit: RewardRange) -> Estimates:
        """Return the estimates, of rewards in [0, 1], scaled to a range of rewards; in an open range, nothing
        is known.
        """
        if unit.is_open:
            low = -math.inf if unit.low is None else unit.low
            return self._map(lambda estimate: estimate._replace(mean=None, low=low, high=math.inf))

        def rescale(value: float | None) -> Any:
            """Return a reward in [0, 1] scaled to the range; None stays."""
            return None if value is None else float(unit.from_unit(value))

        ends = ("mean", "low", "high")
        return self._map(
            lambda estimate: estimate._replace(**{name: rescale(getattr(estimate, name)) for name in ends})
        )

    def _map(self, change: Callable[[ArmEstimate], ArmEstimate]) -> Estimates:
        """Return new estimates with ``change`` applied to each, at the same confidence."""
        estimates = Estimates(map(change, self))
        estimates.confidence = self.confidence
        return estimates

    def records(self) -> list[dict[str, Any]]:
        """Return one flat dict per arm with the fields of :class:`ArmEstimate`."""
        return [estimate._asdict() for estimate in self]

    def __str__(self) -> str:
        """Return an aligned table of the estimates; plays are left out if they are unknown."""
        counted = any(estimate.plays_now is not None for estimate in self)
        counts = [Column("plays", "{plays:,.0f}"), Column("count now", "{plays_now:,.0f}")] if counted else []
        columns = [
            Column("arm", "{name}"),
            *counts,
            Column("mean", "{mean:.3f}"),
            _make_interval_column(self.confidence),
            Column("best", "{best:.1f} %"),
        ]
        rows = [
            estimate._asdict() | {"name": str(estimate.arm), "best": 100 * estimate.chance_best}
            for estimate in self
        ]
        return format_table(rows, columns)


def _make_interval_column(confidence: float) -> Column:
    """Return the table column that prints intervals; its head is the confidence, such as "95 %"."""
    return Column(f"{confidence:.0%}".replace("%", " %"), "[{low:.3f}, {high:.3f}]")


def compute_estimates(
    beliefs: ArmBeliefs, plays: Floats, offer: Offer, confidence: float, arms: Sequence[Any] | None = None
) -> Estimates:
    """Return the estimate of each arm from Beta posteriors, with its probability of being the best on offer.

    Parameters
    ----------
    beliefs : ArmBeliefs
    plays : array of float64, shape (arms,)
        How often each was ever shown; NaN if unknown.
    offer : Offer
    confidence : float
    arms : sequence of arms, optional
        The only arms to compare and return; by default all arms are returned, and all on offer
        compared.

    Raises
    ------
    InvalidValue, UnknownName
        If the confidence is not in (0, 1], or an arm is not on offer.
    """
    checks.number("confidence", confidence, 0.0, 1.0, open_low=True)
    a, b = beliefs.successes, beliefs.failures
    ends = compute_intervals(a, b, beliefs.means, confidence)
    best = np.zeros(len(a))
    rivals = offer.arm_indices if arms is None else offer.find_arm_indices(arms)
    best[rivals] = compute_best_probabilities(a[rivals], b[rivals])
    estimates = Estimates(
        ArmEstimate(
            offer.names[slot],
            None if np.isnan(plays[slot]) else round(plays[slot]),
            float(beliefs.plays[slot]),
            None if np.isnan(beliefs.means[slot]) else float(beliefs.means[slot]),
            float(ends[slot, 0]),
            float(ends[slot, 1]),
            float(best[slot]),
        )
        for slot in (range(len(offer.names)) if arms is None else rivals.tolist())
    )
    estimates.confidence = confidence
    return estimates


# ---- Estimates of arms that are identified by their features, and of the features

DRAW_COUNT = 10_000
"""Number of draws from the posterior, always with the same seed."""
BLOCKS = "relevance", "examination"


class Coefficient(NamedTuple):
    """The estimate of a parameter.

    Attributes
    ----------
    feature : str
        Name of its feature: ``relevance[0]``, ``relevance[0]*context[1]``, ``examination[0]``,
        ``constant``.
    mean, low, high : float
        Estimate and interval, in log-odds per unit of the feature; for a linear regression in
        reward per unit.
    chance_positive : float
        The probability that the parameter is above 0.
    """

    feature: str
    mean: float
    low: float
    high: float
    chance_positive: float


class Coefficients(tuple[Coefficient, ...], Tabulated):
    """A :class:`Coefficient` for each parameter, in the order of the features."""

    confidence: float

    def records(self) -> list[dict[str, Any]]:
        """Return one flat dict per parameter with the fields of :class:`Coefficient`."""
        return [coefficient._asdict() for coefficient in self]

    def __str__(self) -> str:
        """Return an aligned table of the coefficients, with the probability of being above 0."""
        columns = [
            Column("feature", "{feature}"),
            Column("mean", "{mean:.3f}"),
            _make_interval_column(self.confidence),
            Column("above 0", "{above:.1f} %"),
        ]
        return format_table(
            [coefficient._asdict() | {"above": 100 * coefficient.chance_positive} for coefficient in self],
            columns,
        )


def estimate_from_draws(arms: Sequence[Any], rewards: Floats, confidence: float) -> Estimates:
    """Return estimates of arms from posterior draws of their mean rewards.

    They are means, quantiles, and the shares of draws in which an arm is the best; ties count in equal parts.

    Parameters
    ----------
    arms : sequence
    rewards : array of float64, shape (draws, arms)
    confidence : float

    Examples
    --------
    >>> rewards = np.array([[0.1, 0.2], [0.3, 0.2], [0.1, 0.4], [0.5, 0.5]])
    >>> [each.chance_best for each in estimate_from_draws(["film", "holiday"], rewards, 0.9)]
    [0.375, 0.625]
    """
    tail = _compute_tail(confidence)
    best = rewards == rewards.max(axis=1, keepdims=True)
    chances = (best / best.sum(axis=1, keepdims=True)).mean(axis=0)
    means = rewards.mean(axis=0)
    # As for Beta posteriors: if the mean is outside of the central interval, the interval is shifted to it.
    under = (rewards < means).mean(axis=0)
    start = np.maximum(np.minimum(tail, under), under - confidence)
    ends = [
        np.quantile(arm_rewards, [first, min(first + confidence, 1.0)])
        for arm_rewards, first in zip(rewards.T, start, strict=True)
    ]
    low, high = np.transpose(ends)
    around = np.fmin(low, means), np.fmax(high, means)
    columns = (column.tolist() for column in (means, *around, chances))
    rows = zip(arms, *columns, strict=True)
    # How often the arms were shown is unknown.
    estimates = Estimates(ArmEstimate(arm, None, None, *numbers) for arm, *numbers in rows)
    estimates.confidence = confidence
    return estimates


def compute_coefficients(policy: Policy, posterior: Any, confidence: float) -> Coefficients:
    """Return the estimate of each parameter of a Gaussian posterior, with the name of its feature.

    Parameters
    ----------
    policy : Policy
        A policy that reads features.
    posterior : Belief, Beliefs or Weighed
        The result of the policy's ``posterior``.
    confidence : float
    """
    from statistics import NormalDist  # imported here, as it also imports decimal and fractions

    normal = NormalDist()
    reach = normal.inv_cdf(1 - _compute_tail(confidence))
    # The noise is that of the innermost policy, which others, such as an exploration floor, contain.
    inner: Any = policy
    while hasattr(inner, "policy"):
        inner = inner.policy
    noise = getattr(inner, "noise", 1.0)
    if hasattr(posterior, "mean"):
        blocks = [(posterior, _name_features(inner, block=0) + _name_features(inner, block=1))]
    else:
        blocks = [(getattr(posterior, name), _name_features(inner, i)) for i, name in enumerate(BLOCKS)]
    coefficients = Coefficients(
        _make_coefficient(name, float(mean), noise * float(spread), reach, normal.cdf)
        for belief, names in blocks
        for name, mean, spread in zip(
            _name_parameters(names, len(belief.mean), inner),
            belief.mean,
            np.sqrt(np.diag(belief.covariance)),
            strict=True,
        )
    )
    coefficients.confidence = confidence
    return coefficients


def _compute_tail(confidence: float) -> float:
    """Return (1 − confidence)/2, the probability below an interval; raise InvalidValue outside of (0, 1]."""
    return (1 - checks.number("confidence", confidence, 0.0, 1.0, open_low=True)) / 2


def _make_coefficient(
    name: str, mean: float, spread: float, reach: float, cdf: Callable[[float], float]
) -> Coefficient:
    """Return the estimate of a parameter with a normal posterior; its interval reaches ``reach`` deviations
    to each side.

    ``cdf`` is the distribution function of the standard normal.
    """
    above = cdf(mean / spread) if spread else float(mean > 0.0)
    return Coefficient(name, mean, mean - reach * spread, mean + reach * spread, above)


def _name_features(policy: Policy, block: int) -> list[str]:
    """Return the names of the features of a block: 0 for relevance, with products with the context, 1 for
    examination.
    """
    names = [f"{BLOCKS[block]}[{i}]" for i in range(policy.feature_dims[block])]
    if block == 0:
        names += [f"{name}*context[{j}]" for j in range(policy.context_dim) for name in names]
    return names


def _name_parameters(feature_names: list[str], width: int, policy: Any) -> list[str]:
    """Return ``width`` names of parameters: of the features, then positions or a constant, then hidden
    features.
    """
    # A single further parameter is the constant; several are positions.
    extra_count = width - len(feature_names)
    hidden = [f"hidden[{i}]" for i in range(getattr(policy, "hidden_dim", 0))]
    constants = ["constant"] if extra_count - len(hidden) == 1 else []
    positions = [f"position[{i}]" for i in range(extra_count - len(hidden) - len(constants))]
    return [*feature_names, *constants, *positions, *hidden]
