"""Segments of users by the fields of their contexts, and the rewards of arms that are believed in them."""

# 1. Segments of users by a field of the context.
# 2. ``FieldEffect``: what each field adds to the log-odds of each arm, and how much it matters.
# 3. Believed rewards of arms: means and 95 % intervals.

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.policies.context import BOOLEAN, NUMBER, Schema, list_columns
from tacit.policies.features.context_mixture import ContextBeliefs
from tacit.policies.features.gaussian import logistic

# ---- Segments of users: with the same category, or with numbers in the same interval

MOST_VALUES, BANDS = 8, 4
BETWEEN = "\N{EN DASH}"

HashedValues = Mapping[tuple[int, float], Sequence[str]]
"""Values of categories without a declared list, by the column and the sign to which they were hashed."""
Segment = tuple[str, Booleans]
"""The common value of a segment, and a mask of its users."""


class ContextField(NamedTuple):
    """A field of the context: its name, its type or categories, and its columns."""

    name: str
    holds: str | tuple[str, ...]
    columns: slice


def list_fields(schema: Schema, dim: int) -> list[ContextField]:
    """Return the fields of a context of ``dim`` numbers; without a schema, each number is a field."""
    if not schema:
        return [ContextField(f"context[{j}]", NUMBER, slice(j, j + 1)) for j in range(dim)]
    fields, first = [], 0
    for name, holds in schema:
        stop = first + len(list_columns(((name, holds),)))
        fields.append(ContextField(name, holds, slice(first, stop)))
        first = stop
    return fields


def split_users(field: ContextField, contexts: Floats, value_names: HashedValues) -> list[Segment]:
    """Return segments of users by the value of a context field: names and masks, without empty segments.

    Numbers are split at quartiles; values beyond the eighth are joined as others. Users without a value are
    the last segment. ``value_names`` has the names of hashed values.
    """
    # The last column of a field with several marks users without a value; a single one has no mark.
    values, first = contexts[:, field.columns], field.columns.start
    missing = values[:, -1] != 0.0 if values.shape[1] > 1 else np.zeros(len(values), np.bool_)
    if field.holds == NUMBER:
        segments = list(_bands(values[:, 0], ~missing))
    elif field.holds == BOOLEAN:
        segments = [("yes", ~missing & (values[:, 0] != 0.0)), ("no", ~missing & (values[:, 0] == 0.0))]
    elif isinstance(field.holds, tuple):
        segments = [(value, values[:, j] != 0.0) for j, value in enumerate((*field.holds, "other"))]
    else:
        segments = [
            (
                " or ".join(value_names.get((first + j, sign), [f"values hashed to {sign * (j + 1):+.0f}"])),
                mask,
            )
            for j in range(values.shape[1] - 1)
            for sign in (1.0, -1.0)
            if (mask := values[:, j] == sign).any()
        ]
    # Hashed values have no order of their own: the most frequent come first.
    if not isinstance(field.holds, tuple) and field.holds not in (NUMBER, BOOLEAN):
        segments.sort(key=lambda segment: -int(segment[1].sum()))
    if len(segments) > MOST_VALUES:
        remaining = np.any([mask for _, mask in segments[MOST_VALUES:]], axis=0)
        segments = [*segments[:MOST_VALUES], (f"{len(segments) - MOST_VALUES} others", remaining)]
    return [(value, mask) for value, mask in (*segments, ("missing", missing)) if mask.any()]


def _bands(numbers: Floats, known: Booleans) -> Iterator[Segment]:
    """Yield segments by a number's value: its quartiles, or each value if there are at most four.

    ``known`` masks the users who have a value.
    """
    distinct = np.unique(numbers[known])
    if len(distinct) <= BANDS:
        yield from ((f"{value:.4g}", known & (numbers == value)) for value in distinct.tolist())
        return
    # Rounded for readers; rounding may make edges equal.
    quartiles = np.quantile(numbers[known], np.arange(1, BANDS) / BANDS)
    edges = sorted({float(f"{edge:.3g}") for edge in quartiles})
    for low, high in zip([-np.inf, *edges], [*edges, np.inf], strict=True):
        name = f"up to {high:.4g}" if low == -np.inf else f"{low:.4g}{BETWEEN}{high:.4g}"
        if high == np.inf:
            name = f"above {low:.4g}"
        yield name, known & (low < numbers) & (numbers <= high)


# ---- Effects of fields on the log-odds of arms


class FieldEffect(NamedTuple):
    """The effect of a context field on the choice of an arm.

    Attributes
    ----------
    field : ContextField
    added : array of float64, shape (users, arms), or None
        Its contribution to the log-odds of each arm for each user; None if the policy has no beliefs.
    matters : float or None
        Its standard deviation over users, relative to the mean of the arms on offer; None without beliefs.
    """

    field: ContextField
    added: Floats | None = None
    matters: float | None = None


def compute_field_effects(
    fields: Sequence[ContextField], beliefs: ContextBeliefs, offered: Ints
) -> list[FieldEffect]:
    """Return the effect of each field on the choice for the users of ``beliefs``, in the order of the fields.

    Fields of signals, which do not describe users, are left out. ``offered`` has the indices of the arms on
    offer, between which ``matters`` compares.
    """
    effects = []
    for field in fields:
        # The later columns are signals.
        if field.columns.stop <= beliefs.scaled.shape[1]:
            added = beliefs.scaled[:, field.columns] @ beliefs.slopes[:, field.columns].T
            # A contribution that is equal for all arms does not change the choice.
            apart = added[:, offered] - added[:, offered].mean(axis=1, keepdims=True)
            effects.append(FieldEffect(field, added, float(np.sqrt(apart.var(axis=0).mean()))))
    return effects


# ---- Believed rewards of arms: means and 95 % intervals

POINTS = 101
"""Number of quantiles that approximate each normal distribution."""
TAIL = 0.025
NORMAL = np.array([NormalDist().inv_cdf((i + 0.5) / POINTS) for i in range(POINTS)])


class Bands(NamedTuple):
    """Believed mean rewards with their 95 % credible intervals."""

    means: Floats
    lows: Floats
    highs: Floats


def compute_bands(beliefs: ContextBeliefs) -> Bands:
    """Return means and 95 % intervals of believed rewards; arrays of shape (contexts, arms)."""
    # The log-odds of each model are Gaussian; ``POINTS`` quantiles, of equal shares, stand for them.
    spread = np.sqrt(beliefs.variances)[..., None] * NORMAL
    values = logistic(beliefs.logits[..., None] + spread).reshape(*beliefs.logits.shape[:2], -1)
    shares = np.repeat(beliefs.weights / POINTS, POINTS)
    means = values @ shares
    order = np.argsort(values, axis=-1)
    ranked, below = np.take_along_axis(values, order, -1), np.cumsum(shares[order], axis=-1)

    def quantile(share: float) -> Floats:
        """Return a quantile of the believed reward of each arm in each context."""
        place = np.argmax(below >= share * below[..., -1:], axis=-1)
        ends: Floats = np.take_along_axis(ranked, place[..., None], -1)[..., 0]
        return ends

    return Bands(means, np.minimum(quantile(TAIL), means), np.maximum(quantile(1.0 - TAIL), means))
