"""What a mixture over contexts reads of one: numbers at a common size, turned to leading directions.

First the contexts that are kept until 128 of them have been learned from; then how they are measured:
means, scales, and the directions in which they differ most; then the features that follow.
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
"""Directions of which all covariances are known, at most."""
KEPT = 128
"""Events that are kept, and learned anew after each of the measurements."""
FIRST = 8
"""Events before the first measurement; there is another one whenever they have doubled."""
FURTHEST = 5.0
"""Beyond so many scales from the mean a number is cut."""
TURNS = 11
"""Steps of the subspace iteration that finds the leading directions."""
STAYS = np.float32(1e-3)
"""What is added to all eigenvalues, beside their mean: no direction is lost where contexts are few."""
LARGEST = 1e30


# ---- Sums of single precision, in a fixed order


@kernel
def dot_single(x: Singles, y: Singles) -> np.float32:
    """Return the inner product of the first len(x) numbers, in eight sums side by side.

    They become vector instructions, and the order of additions is the same everywhere.
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
    """Add a multiple of ``x`` to the first len(x) numbers of ``y``."""
    for i in range(len(x)):
        y[i] += factor * x[i]


@kernel
def turn_all(columns: Singles, x: Singles, y: Singles) -> None:
    """Fill in the inner products of ``x`` with many rows that are given column by column.

    Eight columns at a time: rows lie side by side in vector instructions, and the order of additions
    is the same everywhere.
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


# ---- The first contexts, with what came of them


class Kept(NamedTuple):
    """The first events that were learned from.

    Attributes
    ----------
    origin : array of float64, shape (models, d)
        The first context of all.
    contexts : array of float32, shape (models, 128, d)
        Less that one.
    arms : array of int32, shape (models, 128)
        −1 at an empty position of a list.
    rewards : array of float64, shape (models, 128)
    """

    origin: Floats
    contexts: Singles
    arms: Annotated[npt.NDArray[np.int32], ValueRange(-1, -1, "arms")]
    rewards: Floats

    @classmethod
    def nothing(cls, models: int, dim: int, events: int = KEPT) -> Kept:
        """Return room for the events of models that have learned nothing."""
        contexts = np.zeros((models, events, dim), np.float32)
        arms = np.zeros((models, events), np.int32)
        return cls(np.zeros((models, dim)), contexts, arms, np.zeros((models, events)))


@kernel
def keep(kept: Kept, model: int, event: int, context: Floats, arm: int, reward: float) -> None:
    """Keep an event of that number; of the context as many numbers as are read."""
    for j in range(kept.origin.shape[1]):
        if event == 0:
            kept.origin[model, j] = context[j]
        off = context[j] - kept.origin[model, j]
        kept.contexts[model, event, j] = np.float32(min(max(off, -LARGEST), LARGEST))
    kept.arms[model, event] = arm
    kept.rewards[model, event] = reward


@kernel
def recall(kept: Kept, model: int, event: int, context: Floats) -> None:
    """Fill in the context of an event that was kept."""
    for j in range(len(context)):
        context[j] = kept.origin[model, j] + kept.contexts[model, event, j]


@kernel
def is_due(events: int) -> bool:
    """Return whether contexts are measured after so many events."""
    due = FIRST
    while due < events:
        due *= 2
    return due == events


# ---- How contexts are measured


class Measure(NamedTuple):
    """How the numbers of a context are brought to a common size and turned.

    Attributes
    ----------
    mean, factor : array of float64, shape (models, d)
        What is subtracted, and then multiplied by: 0 before the first measurement, and as long as
        a number is always the same.
    directions : array of float32, shape (models, leading, d)
        Orthonormal rows; none where there is no more than leading numbers.
    """

    mean: Floats
    factor: Floats
    directions: Singles

    @classmethod
    def nothing(cls, models: int, dim: int, turned: int) -> Measure:
        """Return what models that have seen nothing go by."""
        mean, factor = np.zeros((2, models, dim))
        return cls(mean, factor, np.zeros((models, turned, dim), np.float32))


@kernel
def is_change(off: float, number: float) -> bool:
    """Return whether a difference from a number is more than rounding."""
    return off > 1e-12 * abs(number) + 1.0 / LARGEST


@kernel
def measure_kept(measure: Measure, kept: Kept, model: int, events: int) -> None:
    """Set means and factors by the contexts that were kept.

    A number's scale is its deviation, or a third of the largest distance from the mean, if that is
    more: numbers that hardly ever change are not blown up.
    """
    for j in range(measure.mean.shape[1]):
        mean, squares, far = 0.0, 0.0, 0.0
        for event in range(events):
            mean += np.float64(kept.contexts[model, event, j])
        mean /= events
        for event in range(events):
            off = np.float64(kept.contexts[model, event, j]) - mean
            squares += off * off
            far = max(far, abs(off))
        scale = max(np.sqrt(squares / events), far / 3.0)
        measure.mean[model, j] = kept.origin[model, j] + mean
        measure.factor[model, j] = 1.0 / scale if is_change(scale, measure.mean[model, j]) else 0.0


@kernel
def notice_changes(measure: Measure, model: int, context: Floats) -> None:
    """Let numbers count that were always the same and now are not: the first change is the largest."""
    for j in range(measure.mean.shape[1]):
        off = abs(context[j] - measure.mean[model, j])
        if measure.factor[model, j] == 0.0 and is_change(off, measure.mean[model, j]):
            measure.factor[model, j] = 3.0 / off


@kernel
def scale_context(measure: Measure, model: int, context: Floats, scaled: Singles) -> None:
    """Fill in as many numbers of a context as are read, at their common size."""
    for j in range(len(scaled)):
        off = (context[j] - measure.mean[model, j]) * measure.factor[model, j]
        scaled[j] = np.float32(min(max(off, -FURTHEST), FURTHEST))


@kernel
def leave_out(flags: Ints, context: Floats, scaled: Singles) -> None:
    """Take what is missing for the average: where no number is given, a column holds 0, which is none."""
    for j in range(len(scaled)):
        if flags[j] >= 0 and context[flags[j]] != 0.0:
            scaled[j] = np.float32(0.0)


# ---- The directions in which contexts differ most, by subspace iteration


@kernel
def begin_directions(directions: Singles) -> None:
    """Fill in rows that follow from their places alone, by a linear congruential generator."""
    drawn = 1
    for k in range(len(directions)):
        for j in range(directions.shape[1]):
            drawn = (drawn * 1103515245 + 12345) % 2147483648
            directions[k, j] = np.float32(drawn / 1073741824.0 - 1.0)


@kernel
def orthonormalise(directions: Singles) -> None:
    """Make rows orthogonal to those before, twice, as rounding asks, and of length 1."""
    for k in range(len(directions)):
        for _ in range(2):
            for before in range(k):
                along = dot_single(directions[before], directions[k])
                add_times(directions[before], -along, directions[k])
            length = np.sqrt(dot_single(directions[k], directions[k]))
            for j in range(directions.shape[1]):
                directions[k, j] /= length


@kernel
def turn(directions: Singles, turned: Singles, scaled: Singles) -> np.float32:
    """Add to ``turned`` what a context makes of the directions; return its squared length."""
    for k in range(len(directions)):
        add_times(scaled, dot_single(directions[k], scaled), turned[k])
    return dot_single(scaled, scaled)


@kernel
def find_directions(
    measure: Measure, kept: Kept, model: int, events: int, raw: Floats, scaled: Singles, turned: Singles
) -> None:
    """Find the directions in which the contexts that were kept differ most."""
    directions = measure.directions[model]
    begin_directions(directions)
    for step in range(TURNS + 1 if len(directions) > 0 else 0):
        orthonormalise(directions)
        if step == TURNS:
            return
        total = np.float32(0.0)
        for k in range(len(turned)):
            for j in range(turned.shape[1]):
                turned[k, j] = np.float32(0.0)
        for event in range(events):
            recall(kept, model, event, raw)
            scale_context(measure, model, raw, scaled)
            total += turn(directions, turned, scaled)
        stays = max(STAYS * total / np.float32(len(raw)), STAYS)
        for k in range(len(directions)):
            add_times(directions[k], stays, turned[k])
            for j in range(len(raw)):
                directions[k, j] = turned[k, j]


# ---- The features of a context: 1, its leading directions, and what they leave


@kernel
def fill_features(measure: Measure, model: int, scaled: Singles, features: Singles) -> None:
    """Fill in the features of a context that was scaled."""
    directions = measure.directions[model]
    features[0] = np.float32(1.0)
    if len(directions) == 0:
        for j in range(len(scaled)):
            features[1 + j] = scaled[j]
        return
    rest = features[1 + len(directions) :]
    for j in range(len(scaled)):
        rest[j] = scaled[j]
    for k in range(len(directions)):
        features[1 + k] = dot_single(directions[k], scaled)
    for k in range(len(directions)):
        add_times(directions[k], -features[1 + k], rest)
