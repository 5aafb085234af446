"""What a mixture over contexts weighs: logistic regressions of each arm, by how much contexts may say.

First room to work in; then the models of all arms, with their priors; what they say of an arm; what
they learn. A Gaussian of an arm has a packed covariance of the constant and the leading directions, and
variances of what these leave. All sums are of single precision, in a fixed order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.core.dispatch import kernel
from tacit.policies.features.context_inputs import LEADING, Singles, add_times, dot_single
from tacit.policies.features.gaussian import logistic_step, sigmoid

SCALES = (1.0, 4.0, 2.0, 0.1)
"""Deviations of logits, under each hypothesis, before anything is known but the arm's base rate."""
HYPOTHESES = len(SCALES)
RECENT, NOTHING = 2, 3
"""The hypothesis that is ever begun anew, and the one that contexts say hardly anything."""
FULL = 3
"""So many hypotheses have covariances; the last has variances only."""
LONG = 1 + LEADING
"""Features with covariances, above which sums are of single precision side by side."""
ORDER, ORDER_SCALE, ORDER_ACROSS = 0.2, 0.5, 0.3
"""Mean and deviation of what a place in the order offered says, and the deviation of what it is to users."""
STEPS = 6
"""Newton's steps to the mode of what may be unseen: they overestimate curvature, so none is too far."""
SUREST = 500.0
"""Clicks and misses that what is known of an arm beforehand is worth, at most."""


# ---- What models read


class Design(NamedTuple):
    """The features that a model reads, in their order.

    First those whose covariances are known: what there is of an item (a constant, perhaps its place in the
    order offered, its leading directions, perhaps its inner product with the user), once alone and once
    times each leading direction of the user. Then those of which variances are known: the numbers of the
    item less its leading directions, if these are not all, alone and times leading directions of the user,
    and what there is of the item times further directions of the user. A model of one arm has the context
    in the item's place, and no user.

    Attributes
    ----------
    dim, leading : int
        Numbers of an item, and its leading directions.
    wide : int
        Features of an item with covariances.
    known, lean : int
        All features with covariances, and all with variances only.
    rest, crossed : int
        Those of an item alone among the latter, and times how many directions of the user they are there.
    user : int
        Numbers of a user.
    scales, across : tuple of float
        Under each hypothesis, before anything is known: the deviation of logits by what an item is, and
        by what it is to a user.
    order : int
        1 where an item's place in the order offered is a feature, else 0. Then the last hypothesis is that
        nothing else says anything, and has a covariance of the constant and the place.
    flags : array of int64, shape (user,), or None
        Which number of a user says that another one is missing.
    """

    dim: int
    leading: int
    wide: int
    known: int
    lean: int
    rest: int
    crossed: int
    user: int
    scales: tuple[float, float, float, float]
    across: tuple[float, float, float, float]
    order: int
    flags: Ints | None


@kernel
def context_layout(dim: int) -> Design:
    """Return how a context of so many numbers is laid out, for arms that have models of their own."""
    leading = min(dim, LEADING)
    known, rest = 1 + leading, dim if dim > LEADING else 0
    return Design(dim, leading, known, known, rest, rest, 0, 0, SCALES, SCALES, 0, None)


@kernel
def prior_variance(layout: Design, h: int, i: int) -> np.float32:
    """Return the variance of a parameter under a hypothesis before anything is known."""
    row, at = i // layout.wide, i % layout.wide
    if i >= layout.known:
        further = i - layout.known - layout.rest * (1 + layout.crossed)
        row, at = 1, further % layout.wide
        if further < 0:
            row, at = (i - layout.known) // layout.rest, 1 + layout.order
    scale, spread_over = layout.scales[h], 1
    if row > 0:
        scale, spread_over = layout.across[h], layout.user
    if row > 0 and at == 0:
        # What users are by themselves: it moves all items alike.
        scale = 1.0 if layout.scales[h] > 0.0 else 0.0
    elif 0 < at <= layout.order:
        scale = ORDER_SCALE if row == 0 else ORDER_ACROSS
    elif at <= layout.order + layout.leading:
        spread_over *= layout.dim
    return np.float32(scale * scale / spread_over)


# ---- Room


class Room(NamedTuple):
    """Where kernels work; all zeros between their calls. Every array has a leading axis of 1.

    Attributes
    ----------
    raw : array of float64, shape (1, d)
    scaled : array of float32, shape (1, d)
        A context, as it was given and at a common size.
    features, squares, along : array of float32, shape (1, width)
        Its features, their squares, and covariances times features.
    products : array of float32, shape (1, packed + rest)
        What covariances are multiplied by for a variance.
    turned : array of float32, shape (1, 22, d)
        Directions that come to be.
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
    def empty(cls, arms: int, layout: Design) -> Room:
        """Return room for so many arms and what is read."""
        dim, known, lean = layout.dim, layout.known, layout.lean
        features, squares, along = np.zeros((3, 1, known + lean), np.float32)
        return cls(
            raw=np.zeros((1, dim)),
            scaled=np.zeros((1, dim), np.float32),
            features=features,
            squares=squares,
            along=along,
            products=np.zeros((1, known * (known + 1) // 2 + lean), np.float32),
            turned=np.zeros((1, layout.leading if layout.rest else 0, dim), np.float32),
            lines=np.zeros((1, arms, 2)),
        )


@kernel
def clear_row(row: Singles) -> None:
    """Fill in zeros."""
    for i in range(len(row)):
        row[i] = 0.0


@kernel
def clear_room(room: Room) -> None:
    """Leave the room as it was."""
    clear_row(room.raw[0])
    clear_row(room.scaled[0])
    clear_row(room.features[0])
    clear_row(room.squares[0])
    clear_row(room.along[0])
    clear_row(room.products[0])
    for i in range(room.lines.shape[1]):
        room.lines[0, i, 0] = 0.0
        room.lines[0, i, 1] = 0.0


@kernel
def fill_products(x: Singles, known: int, squares: Singles, products: Singles) -> None:
    """Fill in what follows from features: a variance is a covariance's inner product with that."""
    for i in range(len(x)):
        squares[i] = x[i] * x[i]
    k = 0
    for j in range(known):
        column, others, twice = products[k : k + known - j], x[j:known], x[j] + x[j]
        column[0] = squares[j]
        for i in range(1, len(column)):
            column[i] = twice * others[i]
        k += known - j
    for i in range(known, len(x)):
        products[k + i - known] = squares[i]


# ---- The models of all arms, and their priors


class Models(NamedTuple):
    """What is believed of each arm under each hypothesis.

    Attributes
    ----------
    mean : array of float32, shape (models, arms, 4, width)
        Of the parameters: constant, leading directions, what these leave.
    spread : array of float32, shape (models, arms, 3, packed + rest)
        The covariances of constant and leading directions, the lower triangle column by column;
        then variances of the rest.
    narrow : array of float32, shape (models, arms, width)
        The variances under the hypothesis that contexts say hardly anything; of the constant alone, where
        that is nothing at all; the covariance of constant and place, where that says something.
    met : array of bool, shape (models, arms, 4)
        Whether an arm has had an event since the prior. Before, what is known of the constant
        stands in its place: a precision, and that times the mean.
    """

    mean: Singles
    spread: Singles
    narrow: Singles
    met: Booleans

    @classmethod
    def prior(cls, models: int, arms: int, layout: Design, prior: Floats | None) -> Models:
        """Return the models before the first event."""
        known, lean = layout.known, layout.lean
        mean = np.zeros((models, arms, HYPOTHESES, known + lean), np.float32)
        spread = np.zeros((models, arms, FULL, known * (known + 1) // 2 + lean), np.float32)
        last = 3 if layout.order else known + lean if layout.scales[NOTHING] else 1
        narrow = np.zeros((models, arms, last), np.float32)
        found = cls(mean, spread, narrow, np.zeros((models, arms, HYPOTHESES), np.bool_))
        if models and arms:
            for h in range(HYPOTHESES):
                forget_arm(found, 0, 0, h, layout, None)
            spread[:], narrow[:] = spread[0, 0], narrow[0, 0]
        if prior is not None:
            precisions, pulls = prior.T
            mean[..., 0], spread[..., 0], narrow[..., 0] = pulls[:, None], precisions[:, None], precisions
        return found


def surmised(known: Floats) -> Floats:
    """Return what is known of arms before their first event as a normal observation of their constants.

    Parameters
    ----------
    known : array of float64, shape (arms, 2)
        Successes and failures.

    Returns
    -------
    array of float64, shape (arms, 2)
        Its precision, 0 where nothing is known, and that times its mean.
    """
    plays = known.sum(axis=1)
    rates = (known[:, 0] + 0.5) / (plays + 1.0)
    precisions = np.minimum(plays, SUREST) * rates * (1.0 - rates)
    return np.column_stack([precisions, precisions * (np.log(rates) - np.log1p(-rates))])


@kernel
def fill_prior(spread: Singles, layout: Design, h: int, known: int, precision: float) -> None:
    """Return a covariance, of so many features, and variances to the prior."""
    clear_row(spread)
    k = 0
    for j in range(known + len(spread) - known * (known + 1) // 2):
        spread[k] = prior_variance(layout, h, j)
        k += max(known - j, 1)
    spread[0] = np.float32(precision)


@kernel
def forget_arm(models: Models, model: int, arm: int, h: int, layout: Design, prior: Floats | None) -> None:
    """Return an arm to its prior under a hypothesis."""
    precision, pull = 0.0, 0.0
    if prior is not None:
        precision, pull = prior[arm, 0], prior[arm, 1]
    mean = models.mean[model, arm, h]
    clear_row(mean)
    mean[0] = np.float32(pull)
    if layout.order > 0:
        mean[1] = np.float32(ORDER)
    models.met[model, arm, h] = False
    spread, known = models.narrow[model, arm], 2 * layout.order
    if h != NOTHING:
        spread, known = models.spread[model, arm, h], layout.known
    fill_prior(spread, layout, h, known, precision)


@kernel
def adopt(models: Models, model: int, arm: int, layout: Design) -> None:
    """Let all hypotheses believe of an arm what the recent one does, as far as they may."""
    source, spread = models.mean[model, arm, RECENT], models.spread[model, arm, RECENT]
    narrow, k, known = models.narrow[model, arm], 0, layout.known
    if layout.order > 0:
        narrow = narrow[:0]  # That only the order says something stays what it is.
    for h in range(HYPOTHESES):
        for i in range(len(narrow) if h == NOTHING else len(source)):
            models.mean[model, arm, h, i] = source[i]
        models.met[model, arm, h] = models.met[model, arm, RECENT]
    for h in range(FULL):
        for i in range(len(spread)):
            models.spread[model, arm, h, i] = spread[i]
    for j in range(min(known, len(narrow))):
        narrow[j] = spread[k]
        k += known - j
    for i in range(known, len(narrow)):
        narrow[i] = spread[k + i - known]


# ---- What models say of an arm


class Base(NamedTuple):
    """What is expected of an arm before its first event: the mean of its constant, and the variance."""

    logit: float
    variance: float


@kernel
def begins(models: Models, model: int, arm: int, h: int, base: Base) -> Base:
    """Return what is expected of the constant of an arm, with what is known of it beforehand."""
    precision = first_variance(models, model, arm, h)
    variance = 1.0 / (1.0 / base.variance + precision)
    pull = np.float64(models.mean[model, arm, h, 0])
    return Base(variance * (base.logit / base.variance + pull), variance)


@kernel
def first_variance(models: Models, model: int, arm: int, h: int) -> float:
    """Return the variance of an arm's constant; before its first event, what stands in its place."""
    if h == NOTHING:
        return np.float64(models.narrow[model, arm, 0])  # type: ignore[return-value]
    return np.float64(models.spread[model, arm, h, 0])  # type: ignore[return-value]


@kernel
def belief_in(models: Models, room: Room, model: int, arm: int, h: int, base: Base) -> tuple[float, float]:
    """Return mean and variance of the logit of an arm's click."""
    logit = np.float64(dot_single(models.mean[model, arm, h], room.features[0]))
    if h == NOTHING:
        variance = np.float64(dot_single(models.narrow[model, arm], room.squares[0]))
    else:
        variance = np.float64(dot_single(models.spread[model, arm, h], room.products[0]))
    # An arm that was not met begins at what is expected of any arm by now: mean and variance of its constant
    # are exchanged.
    if not models.met[model, arm, h]:
        first = begins(models, model, arm, h, base)
        logit += first.logit - np.float64(models.mean[model, arm, h, 0])
        variance += first.variance - first_variance(models, model, arm, h)
    return logit, max(variance, 0.0)


# ---- What models learn


@kernel
def project_packed(spread: Singles, known: int, x: Singles, y: Singles) -> None:
    """Fill in what a covariance makes of features; columns that are long are added up side by side."""
    for i in range(known):
        y[i] = np.float32(0.0)
    k = 0
    for j in range(known):
        # Of a symmetric matrix only what is on and below the diagonal is kept, column by column.
        column, others = spread[k : k + known - j], x[j:known]
        add_times(column, x[j], y[j:])
        if known > LONG:
            y[j] += dot_single(others[1:], column[1:])
        else:
            across = np.float32(0.0)
            for i in range(1, len(column)):
                across += column[i] * others[i]
            y[j] += across
        k += known - j
    for i in range(known, len(x)):
        y[i] = spread[k + i - known] * x[i]


@kernel
def shrink_packed(spread: Singles, known: int, y: Singles, factor: np.float32) -> None:
    """Subtract a multiple of the outer product of ``y`` from a covariance."""
    k = 0
    for j in range(known):
        times, column, others = factor * y[j], spread[k : k + known - j], y[j:known]
        for i in range(len(column)):
            column[i] -= times * others[i]
        k += known - j
    shrink_each(spread[k:], y[known:], factor)


@kernel
def shrink_each(variances: Singles, y: Singles, factor: np.float32) -> None:
    """Subtract a multiple of the squares of ``y`` from variances."""
    for i in range(len(variances)):
        variances[i] -= factor * (y[i] * y[i])


@kernel
def meet(models: Models, model: int, arm: int, h: int, base: Base) -> None:
    """Let an arm have its first event: its constant is what is expected of it."""
    first = begins(models, model, arm, h, base)
    models.met[model, arm, h] = True
    models.mean[model, arm, h, 0] = np.float32(first.logit)
    if h == NOTHING:
        models.narrow[model, arm, 0] = np.float32(first.variance)
    else:
        models.spread[model, arm, h, 0] = np.float32(first.variance)


class Sighting(NamedTuple):
    """What came of an arm that may have been seen.

    Attributes
    ----------
    reward : float
    times : float
        So many clicks it tells as much as.
    seen : float
        With what probability it was seen.
    offset : float
        What is known to add to its logit.
    """

    reward: float
    times: float
    seen: float
    offset: float


@kernel
def hidden_step(logit: float, s: float, reward: float, seen: float) -> Any:
    """Solve the posterior's mode along the direction of an observation that may not have been seen.

    As :func:`~tacit.policies.features.gaussian.logistic_step`; no click tells the less, the less it was seen.
    """
    # Newton's method for the mode: the posterior changes along the observation only, so one number is sought.
    at, precision, gain = logit, 0.0, 0.0
    for _ in range(STEPS):
        chance = sigmoid(at)
        missed = (1.0 - reward) * seen * (1.0 - chance) / (1.0 - seen * chance)
        gain = reward * (1.0 - chance) - missed * chance
        precision = chance * (1.0 - chance) * (reward + missed)
        at -= (at - logit - s * gain) / (1.0 + s * precision)
    return precision, gain


@kernel
def learn_arm(
    models: Models, room: Room, model: int, arm: int, h: int, layout: Design, given: Sighting
) -> tuple[float, float, float, float]:
    """Take in what came of an arm that was met.

    Returns
    -------
    logit, variance : float
        What was believed before, without the offset.
    precision, gain : float
        Of what it taught along the features.
    """
    x, y, known, spread = room.features[0], room.along[0], layout.known, models.narrow[model, arm]
    if h == NOTHING:
        known = 2 * layout.order
        width = known if known > 0 else len(spread)
        x, y = x[:width], y[:width]
    else:
        spread = models.spread[model, arm, h]
    project_packed(spread, known, x, y)
    logit = np.float64(dot_single(x, models.mean[model, arm, h]))
    # Single precision may leave a variance a little below 0.
    s = max(np.float64(dot_single(x, y)), 0.0)
    aim, times = logit + given.offset, given.times
    if given.seen < 1.0:
        c, gain = hidden_step(aim, s, given.reward, given.seen)
    else:
        c, gain = logistic_step(aim, times * s, given.reward)
    # What tells as much as several clicks has so many times their precision.
    c *= times
    add_times(y, np.float32(times * gain), models.mean[model, arm, h])
    shrink_packed(spread, known, y, np.float32(c / (1.0 + c * s)))
    return logit, s, c, gain
