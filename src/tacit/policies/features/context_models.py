"""Models of a mixture over contexts: logistic regressions of each arm, with priors by the effect of contexts.

First the layout of features and the workspace; then the models of all arms, with their priors; their beliefs
about an arm; learning. An arm has a Gaussian with a packed covariance of the constant and the leading
directions, and variances for the residual. All sums are in single precision, in a fixed order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.core.dispatch import kernel
from tacit.policies.features.context_inputs import LEADING, Singles, add_times, dot_single
from tacit.policies.features.gaussian import logistic_step, sigmoid

SCALES = (1.0, 4.0, 2.0, 0.1)
"""Prior deviation of an arm's logit from its base rate, under each hypothesis."""
HYPOTHESES = len(SCALES)
RECENT, NO_EFFECT = 2, 3
"""The hypothesis that restarts regularly, and the one that contexts have hardly any effect."""
FULL = 3
"""Number of hypotheses with full covariances; the last one has variances only."""
LONG = 1 + LEADING
"""Number of dense features above which inner products use parallel sums."""
ORDER, ORDER_SCALE, ORDER_ACROSS = 0.2, 0.5, 0.3
"""Prior mean and deviation of the effect of a place in the order offered; deviation of its user products."""
STEPS = 6
"""Newton steps to the mode if results may be unseen: they overestimate curvature, so none overshoots."""
SUREST = 500.0
"""Largest number of prior clicks and misses of an arm that count."""


# ---- The layout of features


class Design(NamedTuple):
    """The layout of the features of a model.

    First come the dense features, with full covariances: the item block (a constant, optionally the place in
    the order offered, the leading directions, optionally the inner product with the user), once alone and
    once times each leading direction of the user. Then come the diagonal features, with variances only: the
    residual of the item outside its leading directions, alone and times leading directions of the user,
    and the item block times further directions of the user. In a model of one arm the context takes the
    item's place, and there is no user.

    Attributes
    ----------
    dim, leading : int
        Length of an item, and number of its leading directions.
    wide : int
        Number of features in the item block.
    dense, lean : int
        Number of dense features, and of diagonal ones.
    residual, crossed : int
        Length of an item's residual, and number of directions of the user that it is multiplied by.
    user : int
        Length of a user.
    scales, across : tuple of float
        Prior deviations of logits under each hypothesis: by features of the item, and by their products
        with features of the user.
    order : int
        1 if an item's place in the order offered is a feature, else 0. Then the last hypothesis is that
        no other feature has an effect, and it has a covariance of the constant and the place.
    flags : array of int64, shape (user,), or None
        For each number of a user the index of its missing flag, or -1.
    """

    dim: int
    leading: int
    wide: int
    dense: int
    lean: int
    residual: int
    crossed: int
    user: int
    scales: tuple[float, float, float, float]
    across: tuple[float, float, float, float]
    order: int
    flags: Ints | None


@kernel
def context_layout(dim: int) -> Design:
    """Return the layout of features for contexts of ``dim`` numbers, where each arm has a model of its
    own.
    """
    leading = min(dim, LEADING)
    dense, residual = 1 + leading, dim if dim > LEADING else 0
    return Design(dim, leading, dense, dense, residual, residual, 0, 0, SCALES, SCALES, 0, None)


@kernel
def prior_variance(layout: Design, h: int, i: int) -> np.float32:
    """Return the prior variance of parameter ``i`` under hypothesis ``h``.

    It depends on the block of the layout that the parameter is in: item or context features alone, the user
    alone, the place on offer, or products with features of the user. A block's total variance is spread over
    its features.
    """
    # ``row`` is the user feature that the parameter's feature is multiplied by (0: none), ``at`` its place in
    # the item block.
    row, at = i // layout.wide, i % layout.wide
    # Diagonal features: first the residual's, then the item block times further directions of the user.
    if i >= layout.dense:
        further = i - layout.dense - layout.residual * (1 + layout.crossed)
        row, at = 1, further % layout.wide
        if further < 0:
            row, at = (i - layout.dense) // layout.residual, 1 + layout.order
    # The deviation of a logit due to the block, and the number of features that share it.
    scale, spread_over = layout.scales[h], 1
    if row > 0:
        scale, spread_over = layout.across[h], layout.user
    if row > 0 and at == 0:
        # The effect of the user alone: it moves all items by the same amount.
        scale = 1.0 if layout.scales[h] > 0.0 else 0.0
    elif 0 < at <= layout.order:
        scale = ORDER_SCALE if row == 0 else ORDER_ACROSS
    elif at <= layout.order + layout.leading:
        spread_over *= layout.dim
    return np.float32(scale * scale / spread_over)


# ---- The workspace


class Workspace(NamedTuple):
    """Workspace of kernels; all zeros between their calls. Every array has a leading axis of 1.

    Attributes
    ----------
    raw : array of float64, shape (1, d)
    scaled : array of float32, shape (1, d)
        A context, raw and scaled.
    features, squares, along : array of float32, shape (1, width)
        The features of the context, their squares, and covariances times features.
    products : array of float32, shape (1, packed + rest)
        Products of features: the variance of the logit is their inner product with a packed covariance.
    turned : array of float32, shape (1, 22, d)
        Work space for finding directions.
    lines : array of float64, shape (1, arms, 2)
        Mean and deviation of the score of each arm on offer.
    """

    raw: Floats
    scaled: Singles
    features: Singles
    squares: Singles
    along: Singles
    products: Singles
    turned: Singles
    lines: Floats

    @classmethod
    def empty(cls, arms: int, layout: Design) -> Workspace:
        """Return a workspace of zeros, large enough for ``arms`` arms on offer and the features of a
        layout.
        """
        dim, dense, lean = layout.dim, layout.dense, layout.lean
        features, squares, along = np.zeros((3, 1, dense + lean), np.float32)
        return cls(
            raw=np.zeros((1, dim)),
            scaled=np.zeros((1, dim), np.float32),
            features=features,
            squares=squares,
            along=along,
            products=np.zeros((1, dense * (dense + 1) // 2 + lean), np.float32),
            turned=np.zeros((1, layout.leading if layout.residual else 0, dim), np.float32),
            lines=np.zeros((1, arms, 2)),
        )


@kernel
def clear_row(row: Singles) -> None:
    """Set all numbers of a row to zero."""
    for i in range(len(row)):
        row[i] = 0.0


@kernel
def clear_workspace(work: Workspace) -> None:
    """Set all arrays of the workspace to zeros, except ``turned``, which is overwritten before use."""
    clear_row(work.raw[0])
    clear_row(work.scaled[0])
    clear_row(work.features[0])
    clear_row(work.squares[0])
    clear_row(work.along[0])
    clear_row(work.products[0])
    for i in range(work.lines.shape[1]):
        work.lines[0, i, 0] = 0.0
        work.lines[0, i, 1] = 0.0


@kernel
def fill_products(x: Singles, dense: int, squares: Singles, products: Singles) -> None:
    """Fill ``squares`` and ``products`` from the features ``x``, of which the first ``dense`` have full
    covariances.

    The inner product of ``products`` with a packed covariance is the variance of the logit.
    """
    for i in range(len(x)):
        squares[i] = x[i] * x[i]
    k = 0
    for j in range(dense):
        # Column j of the lower triangle: x_j·x_j, then 2·x_j·x_i, as each entry stands for two of the matrix.
        column, tail, twice = products[k : k + dense - j], x[j:dense], x[j] + x[j]
        column[0] = squares[j]
        for i in range(1, len(column)):
            column[i] = twice * tail[i]
        k += dense - j
    for i in range(dense, len(x)):
        products[k + i - dense] = squares[i]


# ---- The models of all arms, and their priors


class Models(NamedTuple):
    """Posterior of each arm under each hypothesis.

    Attributes
    ----------
    mean : array of float32, shape (models, arms, 4, width)
        Means of the parameters: constant, leading directions, residual.
    spread : array of float32, shape (models, arms, 3, packed + rest)
        The covariances of constant and leading directions, the lower triangle column by column;
        then the variances of the diagonal features.
    narrow : array of float32, shape (models, arms, width)
        The variances under the hypothesis that contexts have hardly any effect; only the constant's if
        they have none; the covariance of constant and place if the place is a feature.
    met : array of bool, shape (models, arms, 4)
        Whether an arm has had an event since the last reset. Before, mean and variance of the constant
        hold its prior observation: precision times mean, and precision.
    """

    mean: Singles
    spread: Singles
    narrow: Singles
    met: Booleans

    @classmethod
    def prior(cls, models: int, arms: int, layout: Design, prior: Floats | None) -> Models:
        """Return the prior of ``arms`` arms in ``models`` models.

        ``prior`` has prior observations of the arms' constants (:func:`prior_observations`), or is None.
        """
        dense, lean = layout.dense, layout.lean
        mean = np.zeros((models, arms, HYPOTHESES, dense + lean), np.float32)
        spread = np.zeros((models, arms, FULL, dense * (dense + 1) // 2 + lean), np.float32)
        last = 3 if layout.order else dense + lean if layout.scales[NO_EFFECT] else 1
        narrow = np.zeros((models, arms, last), np.float32)
        initial = cls(mean, spread, narrow, np.zeros((models, arms, HYPOTHESES), np.bool_))
        if models and arms:
            for h in range(HYPOTHESES):
                forget_arm(initial, 0, 0, h, layout, None)
            spread[:], narrow[:] = spread[0, 0], narrow[0, 0]
        if prior is not None:
            precisions, pulls = prior.T
            mean[..., 0], spread[..., 0], narrow[..., 0] = pulls[:, None], precisions[:, None], precisions
        return initial


def prior_observations(counts: Floats) -> Floats:
    """Return prior successes and failures of arms as normal observations of their constants (log-odds).

    Parameters
    ----------
    counts : array of float64, shape (arms, 2)
        Prior successes and failures.

    Returns
    -------
    array of float64, shape (arms, 2)
        The precision, 0 without a prior, and the precision times the mean.
    """
    plays = counts.sum(axis=1)
    rates = (counts[:, 0] + 0.5) / (plays + 1.0)
    precisions = np.minimum(plays, SUREST) * rates * (1.0 - rates)
    return np.column_stack([precisions, precisions * (np.log(rates) - np.log1p(-rates))])


@kernel
def fill_prior(spread: Singles, layout: Design, h: int, dense: int, precision: float) -> None:
    """Set ``spread``, a packed covariance of ``dense`` features and then variances, to the prior of
    hypothesis ``h``.

    Its first number becomes ``precision``, of the prior observation of the arm's constant.
    """
    clear_row(spread)
    k = 0
    # Only variances are not 0: the diagonal of the packed triangle, then the numbers after it.
    for j in range(dense + len(spread) - dense * (dense + 1) // 2):
        spread[k] = prior_variance(layout, h, j)
        k += max(dense - j, 1)
    spread[0] = np.float32(precision)


@kernel
def forget_arm(models: Models, model: int, arm: int, h: int, layout: Design, prior: Floats | None) -> None:
    """Reset an arm to its prior under hypothesis ``h``; its next event counts as its first.

    ``prior`` has the prior observations of arms' constants, or is None.
    """
    precision, pull = 0.0, 0.0
    if prior is not None:
        precision, pull = prior[arm, 0], prior[arm, 1]
    mean = models.mean[model, arm, h]
    clear_row(mean)
    mean[0] = np.float32(pull)
    if layout.order > 0:
        mean[1] = np.float32(ORDER)
    models.met[model, arm, h] = False
    spread, dense = models.narrow[model, arm], 2 * layout.order
    if h != NO_EFFECT:
        spread, dense = models.spread[model, arm, h], layout.dense
    fill_prior(spread, layout, h, dense, precision)


@kernel
def adopt_recent(models: Models, model: int, arm: int, layout: Design) -> None:
    """Replace the other hypotheses' beliefs about an arm by the recent hypothesis's.

    The last hypothesis takes only the numbers that it has; it keeps its own if the place on offer is a
    feature.
    """
    source, spread = models.mean[model, arm, RECENT], models.spread[model, arm, RECENT]
    narrow, k, dense = models.narrow[model, arm], 0, layout.dense
    if layout.order > 0:
        narrow = narrow[:0]  # The beliefs of the hypothesis about the order alone stay.
    for h in range(HYPOTHESES):
        for i in range(len(narrow) if h == NO_EFFECT else len(source)):
            models.mean[model, arm, h, i] = source[i]
        models.met[model, arm, h] = models.met[model, arm, RECENT]
    for h in range(FULL):
        for i in range(len(spread)):
            models.spread[model, arm, h, i] = spread[i]
    # The last hypothesis stores variances only: the diagonal of the packed covariance, then the others.
    for j in range(min(dense, len(narrow))):
        narrow[j] = spread[k]
        k += dense - j
    for i in range(dense, len(narrow)):
        narrow[i] = spread[k + i - dense]


# ---- Beliefs about an arm


class Base(NamedTuple):
    """Prior mean and variance of an arm's constant (log-odds), before the arm's first event."""

    logit: float
    variance: float


@kernel
def initial_constant(models: Models, model: int, arm: int, h: int, base: Base) -> Base:
    """Return mean and variance of the constant of an arm before its first event: ``base``, combined with its
    prior.
    """
    precision = first_variance(models, model, arm, h)
    variance = 1.0 / (1.0 / base.variance + precision)
    pull = np.float64(models.mean[model, arm, h, 0])
    return Base(variance * (base.logit / base.variance + pull), variance)


@kernel
def first_variance(models: Models, model: int, arm: int, h: int) -> float:
    """Return the stored variance of an arm's constant under hypothesis ``h``.

    Before the arm's first event, the precision of its prior is stored in its place.
    """
    if h == NO_EFFECT:
        return np.float64(models.narrow[model, arm, 0])  # type: ignore[return-value]
    return np.float64(models.spread[model, arm, h, 0])  # type: ignore[return-value]


@kernel
def compute_belief(
    models: Models, work: Workspace, model: int, arm: int, h: int, base: Base
) -> tuple[float, float]:
    """Return mean and variance of the logit of an arm's click under hypothesis ``h``, for the workspace's
    features.

    The constant of an arm before its first event is ``base``, combined with the arm's prior.
    """
    logit = np.float64(dot_single(models.mean[model, arm, h], work.features[0]))
    if h == NO_EFFECT:
        variance = np.float64(dot_single(models.narrow[model, arm], work.squares[0]))
    else:
        variance = np.float64(dot_single(models.spread[model, arm, h], work.products[0]))
    # An arm without events starts at the current base rate: mean and variance of its constant are replaced.
    if not models.met[model, arm, h]:
        first = initial_constant(models, model, arm, h, base)
        logit += first.logit - np.float64(models.mean[model, arm, h, 0])
        variance += first.variance - first_variance(models, model, arm, h)
    return logit, max(variance, 0.0)


# ---- Learning


@kernel
def project_packed(spread: Singles, dense: int, x: Singles, y: Singles) -> None:
    """Fill ``y`` with a packed covariance times the features ``x``.

    ``dense`` features have full covariances, the others variances only. Long columns use parallel sums.
    """
    for i in range(dense):
        y[i] = np.float32(0.0)
    k = 0
    for j in range(dense):
        # Only the lower triangle of the symmetric matrix is stored, column by column.
        column, tail = spread[k : k + dense - j], x[j:dense]
        add_times(column, x[j], y[j:])
        if dense > LONG:
            y[j] += dot_single(tail[1:], column[1:])
        else:
            across = np.float32(0.0)
            for i in range(1, len(column)):
                across += column[i] * tail[i]
            y[j] += across
        k += dense - j
    for i in range(dense, len(x)):
        y[i] = spread[k + i - dense] * x[i]


@kernel
def shrink_packed(spread: Singles, dense: int, y: Singles, factor: np.float32) -> None:
    """Subtract ``factor``·y·yᵀ from a packed covariance of ``dense`` features and variances, in place."""
    k = 0
    for j in range(dense):
        times, column, tail = factor * y[j], spread[k : k + dense - j], y[j:dense]
        for i in range(len(column)):
            column[i] -= times * tail[i]
        k += dense - j
    shrink_each(spread[k:], y[dense:], factor)


@kernel
def shrink_each(variances: Singles, y: Singles, factor: np.float32) -> None:
    """Subtract ``factor`` times the squares of ``y`` from variances, in place."""
    for i in range(len(variances)):
        variances[i] -= factor * (y[i] * y[i])


@kernel
def start_arm(models: Models, model: int, arm: int, h: int, base: Base) -> None:
    """Set mean and variance of an arm's constant under hypothesis ``h`` before the arm's first event is
    learned.

    Until then, the prior observation is stored in their place. From now on the arm counts as met.
    """
    first = initial_constant(models, model, arm, h, base)
    models.met[model, arm, h] = True
    models.mean[model, arm, h, 0] = np.float32(first.logit)
    if h == NO_EFFECT:
        models.narrow[model, arm, 0] = np.float32(first.variance)
    else:
        models.spread[model, arm, h, 0] = np.float32(first.variance)


class Observation(NamedTuple):
    """A reward of an arm that may have been seen.

    Attributes
    ----------
    reward : float
    times : float
        Number of clicks that it counts as.
    examination : float
        Probability that the arm was seen.
    offset : float
        Known term of its logit.
    """

    reward: float
    times: float
    examination: float
    offset: float


@kernel
def hidden_step(logit: float, s: float, reward: float, examination: float) -> Any:
    """Return precision c and gain of an observation of an arm that may not have been seen, at the posterior's
    mode.

    They update a Gaussian as those of :func:`~tacit.policies.features.gaussian.logistic_step` do, but a
    reward of 0 counts less, the less likely the arm was seen (``examination``). ``logit`` and ``s`` are mean
    and variance of the logit before.
    """
    # Newton's method in one dimension, because the posterior changes along the observation only.
    at, precision, gain = logit, 0.0, 0.0
    for _ in range(STEPS):
        chance = sigmoid(at)
        missed = (1.0 - reward) * examination * (1.0 - chance) / (1.0 - examination * chance)
        gain = reward * (1.0 - chance) - missed * chance
        precision = chance * (1.0 - chance) * (reward + missed)
        at -= (at - logit - s * gain) / (1.0 + s * precision)
    return precision, gain


@kernel
def learn_arm(
    models: Models, work: Workspace, model: int, arm: int, h: int, layout: Design, observation: Observation
) -> tuple[float, float, float, float]:
    """Update an arm under hypothesis ``h`` with a reward, in place, for the features in the workspace.

    Returns mean and variance of the logit before, and precision and gain of the observation. The caller has
    called :func:`start_arm` before the arm's first event. Overwrites ``along`` of the workspace.

    Returns
    -------
    logit, variance : float
        Belief before the update, without the offset.
    precision, gain : float
        Precision and gain of the update along the features.
    """
    x, y, dense, spread = work.features[0], work.along[0], layout.dense, models.narrow[model, arm]
    if h == NO_EFFECT:
        dense = 2 * layout.order
        width = dense if dense > 0 else len(spread)
        x, y = x[:width], y[:width]
    else:
        spread = models.spread[model, arm, h]
    # y is Σx, and s the variance x·Σx of the logit.
    project_packed(spread, dense, x, y)
    logit = np.float64(dot_single(x, models.mean[model, arm, h]))
    # Single precision may leave a variance a little below 0.
    s = max(np.float64(dot_single(x, y)), 0.0)
    aim, times = logit + observation.offset, observation.times
    if observation.examination < 1.0:
        c, gain = hidden_step(aim, s, observation.reward, observation.examination)
    else:
        c, gain = logistic_step(aim, times * s, observation.reward)
    # A reward that counts as several clicks has as many times the precision of one.
    c *= times
    add_times(y, np.float32(times * gain), models.mean[model, arm, h])
    shrink_packed(spread, dense, y, np.float32(c / (1.0 + c * s)))
    return logit, s, c, gain
