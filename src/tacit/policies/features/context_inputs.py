"""Features of a context: its numbers, scaled to a common size and rotated to leading directions.

First the buffer of the first 128 events; then the scaling that is fitted to them: means, scales, and the
directions of largest variance; then the features of a context.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.core.arrays import Floats, Ints
from tacit.core.dispatch import kernel
from tacit.core.state_ranges import ValueRange

Singles = npt.NDArray[np.float32]

LEADING = 22
"""Largest number of directions with full covariances."""
BUFFER_SIZE = 128
"""Number of first events in the buffer; they are learned again after each fit of the scaling."""
FIRST_FIT = 8
"""Events before the first fit of the scaling; it is fitted again whenever their number has doubled."""
FURTHEST = 5.0
"""Scaled numbers are clipped at this distance from the mean."""
SUBSPACE_STEPS = 11
"""Steps of the subspace iteration that finds the leading directions."""
RIDGE = np.float32(1e-3)
"""Added to all eigenvalues, relative to their mean: no direction is lost if contexts are few."""
LARGEST = 1e30


# ---- Sums in single precision, in a fixed order


@kernel
def dot_single(x: Singles, y: Singles) -> np.float32:
    """Return the inner product of ``x`` and the first len(x) numbers of ``y``, in single precision.

    Eight parallel sums become vector instructions, and the order of additions is the same on all machines.
    """
    zero = np.float32(0.0)
    a, b, c, d, e, f, g, h = zero, zero, zero, zero, zero, zero, zero, zero
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
    return ((a + b) + (c + d)) + ((e + f) + (g + h))


@kernel
def add_times(x: Singles, factor: np.float32, y: Singles) -> None:
    """Add ``factor`` times ``x`` to the first len(x) numbers of ``y``, in place."""
    for i in range(len(x)):
        y[i] += factor * x[i]


@kernel
def multiply_columns(columns: Singles, x: Singles, y: Singles) -> None:
    """Fill ``y`` with the product of a matrix and ``x``; ``columns`` has a row for each column of the matrix.

    Eight columns are added at a time: so the loop over ``y`` becomes vector instructions, and the order of
    additions is the same on all machines.
    """
    for k in range(len(y)):
        y[k] = np.float32(0.0)
    whole = len(x) // 8 * 8
    for j in range(0, whole, 8):
        a, b, c, d = x[j], x[j + 1], x[j + 2], x[j + 3]
        e, f, g, h = x[j + 4], x[j + 5], x[j + 6], x[j + 7]
        for k in range(len(y)):
            low = (columns[j, k] * a + columns[j + 1, k] * b) + (
                columns[j + 2, k] * c + columns[j + 3, k] * d
            )
            high = columns[j + 4, k] * e + columns[j + 5, k] * f
            y[k] += low + (high + (columns[j + 6, k] * g + columns[j + 7, k] * h))
    for j in range(whole, len(x)):
        add_times(columns[j], x[j], y)


# ---- The buffer of first events: contexts, arms and rewards


class EventBuffer(NamedTuple):
    """The first events of each model, which are learned again whenever the scaling of contexts changes.

    Attributes
    ----------
    origin : array of float64, shape (models, d)
        The first context of all.
    contexts : array of float32, shape (models, 128, d)
        Contexts, minus the first one.
    arms : array of int32, shape (models, 128)
        −1 at an empty position of a list.
    rewards : array of float64, shape (models, 128)
    """

    origin: Floats
    contexts: Singles
    arms: Annotated[npt.NDArray[np.int32], ValueRange(-1, -1, "arms")]
    rewards: Floats

    @classmethod
    def empty(cls, models: int, dim: int, events: int = BUFFER_SIZE) -> EventBuffer:
        """Return an empty buffer of ``events`` events for each model, with contexts of ``dim`` numbers."""
        contexts = np.zeros((models, events, dim), np.float32)
        arms = np.zeros((models, events), np.int32)
        return cls(np.zeros((models, dim)), contexts, arms, np.zeros((models, events)))


@kernel
def store_event(
    buffer: EventBuffer, model: int, event: int, context: Floats, arm: int, reward: float
) -> None:
    """Store an event at index ``event`` of a model's buffer: its context, minus the first context, arm and
    reward.

    Only as many numbers of the context are stored as the model reads. Event 0 sets the context that is
    subtracted.
    """
    for j in range(buffer.origin.shape[1]):
        if event == 0:
            buffer.origin[model, j] = context[j]
        off = context[j] - buffer.origin[model, j]
        buffer.contexts[model, event, j] = np.float32(min(max(off, -LARGEST), LARGEST))
    buffer.arms[model, event] = arm
    buffer.rewards[model, event] = reward


@kernel
def load_context(buffer: EventBuffer, model: int, event: int, context: Floats) -> None:
    """Fill ``context`` with the context of event number ``event`` of a model's buffer."""
    for j in range(len(context)):
        context[j] = buffer.origin[model, j] + buffer.contexts[model, event, j]


@kernel
def is_due(events: int) -> bool:
    """True if the scaling is to be fitted after this number of events: 8, 16, 32, 64 and so on."""
    due = FIRST_FIT
    while due < events:
        due *= 2
    return due == events


# ---- The scaling of contexts


class Scaling(NamedTuple):
    """Scaling and rotation of the numbers of a context.

    Attributes
    ----------
    mean, factor : array of float64, shape (models, d)
        Subtracted from each number, and then multiplied by. The factor is 0 before the first fit, and as
        long as the number is constant.
    directions : array of float32, shape (models, leading, d)
        Orthonormal rows; none if there are no more numbers than leading directions.
    """

    mean: Floats
    factor: Floats
    directions: Singles

    @classmethod
    def empty(cls, models: int, dim: int, turned: int) -> Scaling:
        """Return the scaling before the first fit, with ``turned`` leading directions: all numbers are 0."""
        mean, factor = np.zeros((2, models, dim))
        return cls(mean, factor, np.zeros((models, turned, dim), np.float32))


@kernel
def is_change(off: float, number: float) -> bool:
    """True if a difference ``off`` from ``number`` is more than a rounding error."""
    return off > 1e-12 * abs(number) + 1.0 / LARGEST


@kernel
def fit_scales(scaling: Scaling, buffer: EventBuffer, model: int, events: int) -> None:
    """Fit a model's means and factors, in place, to the first ``events`` contexts in the buffer.

    A number's scale is its standard deviation or, if larger, a third of the largest distance from the
    mean: so numbers that rarely change are not magnified. A number that is constant gets the factor 0.
    """
    for j in range(scaling.mean.shape[1]):
        mean, squares, far = 0.0, 0.0, 0.0
        for event in range(events):
            mean += np.float64(buffer.contexts[model, event, j])
        mean /= events
        for event in range(events):
            off = np.float64(buffer.contexts[model, event, j]) - mean
            squares += off * off
            far = max(far, abs(off))
        scale = max(np.sqrt(squares / events), far / 3.0)
        scaling.mean[model, j] = buffer.origin[model, j] + mean
        scaling.factor[model, j] = 1.0 / scale if is_change(scale, scaling.mean[model, j]) else 0.0


@kernel
def notice_changes(scaling: Scaling, model: int, context: Floats) -> None:
    """Set the factor of each number that was constant so far and differs in this context, so that it is read
    from now on.

    The difference is scaled to 3.
    """
    for j in range(scaling.mean.shape[1]):
        off = abs(context[j] - scaling.mean[model, j])
        if scaling.factor[model, j] == 0.0 and is_change(off, scaling.mean[model, j]):
            scaling.factor[model, j] = 3.0 / off


@kernel
def scale_context(scaling: Scaling, model: int, context: Floats, scaled: Singles) -> None:
    """Fill ``scaled`` with the first numbers of a context, scaled to a common size and clipped to [−5, 5]."""
    for j in range(len(scaled)):
        off = (context[j] - scaling.mean[model, j]) * scaling.factor[model, j]
        scaled[j] = np.float32(min(max(off, -FURTHEST), FURTHEST))


@kernel
def zero_missing(flags: Ints, context: Floats, scaled: Singles) -> None:
    """Set scaled numbers to 0, the average, where the context says that they are missing.

    ``flags`` has for each number the index, in the context, of the flag that is 1 if it is missing; −1 for
    none.
    """
    for j in range(len(scaled)):
        if flags[j] >= 0 and context[flags[j]] != 0.0:
            scaled[j] = np.float32(0.0)


# ---- The directions of largest variance of contexts, by subspace iteration


@kernel
def begin_directions(directions: Singles) -> None:
    """Fill directions with fixed pseudo-random numbers in [−1, 1), where the subspace iteration starts."""
    number = 1
    for k in range(len(directions)):
        for j in range(directions.shape[1]):
            number = (number * 1103515245 + 12345) % 2147483648
            directions[k, j] = np.float32(number / 1073741824.0 - 1.0)


@kernel
def orthonormalise(directions: Singles) -> None:
    """Make the rows of ``directions`` orthonormal, in place, by Gram–Schmidt, twice because of rounding."""
    for k in range(len(directions)):
        for _ in range(2):
            for before in range(k):
                along = dot_single(directions[before], directions[k])
                add_times(directions[before], -along, directions[k])
            length = np.sqrt(dot_single(directions[k], directions[k]))
            for j in range(directions.shape[1]):
                directions[k, j] /= length


@kernel
def accumulate_products(directions: Singles, turned: Singles, scaled: Singles) -> np.float32:
    """Add a scaled context's contribution to (covariance × directions), in place; return its squared length.

    Row k of ``turned`` grows by the context times its inner product with direction k.
    """
    for k in range(len(directions)):
        add_times(scaled, dot_single(directions[k], scaled), turned[k])
    return dot_single(scaled, scaled)


@kernel
def find_directions(
    scaling: Scaling,
    buffer: EventBuffer,
    model: int,
    events: int,
    raw: Floats,
    scaled: Singles,
    turned: Singles,
) -> None:
    """Find the directions of largest variance of the first ``events`` contexts, approximately, by subspace
    iteration.

    They are written to ``scaling.directions`` of the model; ``raw``, ``scaled`` and ``turned`` are
    workspaces.
    """
    directions = scaling.directions[model]
    begin_directions(directions)
    for step in range(SUBSPACE_STEPS + 1 if len(directions) > 0 else 0):
        orthonormalise(directions)
        if step == SUBSPACE_STEPS:
            return
        total = np.float32(0.0)
        for k in range(len(turned)):
            for j in range(turned.shape[1]):
                turned[k, j] = np.float32(0.0)
        for event in range(events):
            load_context(buffer, model, event, raw)
            scale_context(scaling, model, raw, scaled)
            total += accumulate_products(directions, turned, scaled)
        ridge = max(RIDGE * total / np.float32(len(raw)), RIDGE)
        for k in range(len(directions)):
            add_times(directions[k], ridge, turned[k])
            for j in range(len(raw)):
                directions[k, j] = turned[k, j]


# ---- The features of a context: 1, its leading directions, and the residual


@kernel
def fill_features(scaling: Scaling, model: int, scaled: Singles, features: Singles) -> None:
    """Fill ``features`` with 1, a scaled context's coordinates along the leading directions, and its
    residual.

    Without leading directions, they are 1 and the scaled numbers.
    """
    directions = scaling.directions[model]
    features[0] = np.float32(1.0)
    if len(directions) == 0:
        for j in range(len(scaled)):
            features[1 + j] = scaled[j]
        return
    residual = features[1 + len(directions) :]
    for j in range(len(scaled)):
        residual[j] = scaled[j]
    for k in range(len(directions)):
        features[1 + k] = dot_single(directions[k], scaled)
    for k in range(len(directions)):
        add_times(directions[k], -features[1 + k], residual)
