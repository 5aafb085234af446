"""Model of clicks on items by embeddings of items and users; beliefs about candidates.

From top to bottom: the layout of features and the state; hashes of items; features of an event to learn from;
beliefs about candidates, with terms that are computed once for the user; the scaling.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints, byte_count
from tacit.core.dispatch import kernel
from tacit.policies.base import Impression
from tacit.policies.features import context_inputs
from tacit.policies.features.context_inputs import EventBuffer, Scaling, Singles
from tacit.policies.features.context_models import (
    FULL,
    HYPOTHESES,
    NO_EFFECT,
    Base,
    Design,
    Models,
    Workspace,
    first_variance,
    initial_constant,
    project_packed,
)
from tacit.policies.features.context_weights import (
    WIDTH,
    MixtureTally,
    click_probability,
    compute_base,
    weight_in_use,
)
from tacit.policies.features.gaussian import dot

ITEM_LEADING, USER_LEADING = 32, 6
"""Largest number of directions of items, and of users, with full covariances."""
ALONE, MOST_KNOWN = 24, 182
"""Largest number of directions of items without user features; of features with full covariances."""
ABREAST = 8
"""Columns for the means of hypotheses, the width of a vector instruction."""
MOST_CROSSED = 1_024
"""Largest number of products of a user's directions and the residual of an item."""
ALL_READ, MOST_READ = 32, 16
"""Largest number of user features that are all read; number of directions that are read otherwise."""
SCALES = (1.0, 4.0, 2.0, 0.0)
"""Deviations of logits by item features, under each hypothesis; under the last they have no effect."""
ACROSS = (0.3, 2.0, 1.5, 0.0)
"""Deviations of logits by products of item and user features."""
LIST_SCALES, LIST_ACROSS = (1.0, 2.0, 1.2, 0.0), (0.3, 2.0, 1.0, 0.0)
"""The same for items in lists."""
Scales = tuple[float, float, float, float]
ITEM_HASHES, GOLDEN = 4_096, 0.6180339887498949
"""Number of different hashes of items; the golden ratio less 1."""
SPREADS = 256
"""Number of spreads of rewards; items that share a hash share one."""


def count_read_directions(users: int) -> int:
    """Return the number of directions of a user that features are made of: all of up to 32 numbers, else
    16.
    """
    return users if users <= ALL_READ else MOST_READ


def user_directions(users: int) -> int:
    """Return the number of leading directions of users to find; 0 if users have so few numbers that all are
    used.
    """
    return count_read_directions(users) if users > USER_LEADING else 0


def embedding_layout(items: int, users: int, flags: Ints | None) -> Design:
    """Return the layout of features for items and users of so many numbers, with one model for all items.

    ``flags`` are the missing flags of users, or None.
    """
    return _build_layout(items, users, ITEM_LEADING if users else ALONE, SCALES, ACROSS, 0)._replace(
        flags=flags
    )


def list_layout(items: int, users: int, flags: Ints | None) -> Design:
    """Return the layout of features for items of lists, where an item's place in the order offered is a
    feature.
    """
    return _build_layout(items, users, ITEM_LEADING, LIST_SCALES, LIST_ACROSS, 1)._replace(flags=flags)


def _build_layout(items: int, users: int, most: int, scales: Scales, across: Scales, order: int) -> Design:
    """Return a layout with ``most`` directions of items, or fewer if there would be too many features.

    ``scales`` and ``across`` are prior deviations by hypothesis: of item features, and of products with the
    user's. ``order`` is 1 if the place on offer is a feature, else 0.
    """
    along = min(users, USER_LEADING)
    # Tastes are learned from products only: if users have few numbers, more directions of items fit.
    most = min(most, MOST_KNOWN // (1 + along) - 2)
    leading, residual = min(items, most), items if items > most else 0
    wide = 1 + order + leading + int(items == users)
    crossed = min(along, MOST_CROSSED // residual) if residual else 0
    lean = residual * (1 + crossed) + wide * (count_read_directions(users) - along)
    dense = wide * (1 + along)
    return Design(items, leading, wide, dense, lean, residual, crossed, users, scales, across, order, None)


@kernel
def order_score(place: int, offered: int) -> float:
    """Return the feature of place ``place``, from 0, among ``offered`` items.

    It approximates the normal score of the place: highest for the first, symmetric about 0.
    """
    return np.log((offered - place - 0.5) / (place + 0.5)) / 1.7  # type: ignore[no-any-return]


class EmbeddingState(NamedTuple):
    """A model of clicks on items; the leading axis has length 1 if all keys share it.

    Attributes
    ----------
    models : Models
        Models of a single arm.
    tally : MixtureTally
    items, users : Scaling
        Scaling and rotation of the numbers of each.
    products : array of float64, shape (models, 2)
        Subtracted from the inner product of user and item, and then multiplied by; without columns if
        lengths differ.
    kept, kept_users : EventBuffer
        The buffers of first events: items with rewards, and users.
    """

    models: Models
    tally: MixtureTally
    items: Scaling
    users: Scaling
    products: Floats
    kept: EventBuffer
    kept_users: EventBuffer

    @classmethod
    def empty(cls, models: int, layout: Design, events: int, users: int, spreads: int = 0) -> EmbeddingState:
        """Return the initial state of ``models`` models, with buffers for so many first events and users.

        Each model has ``spreads`` spreads of rewards; 0 for one of all items.
        """
        turned = layout.leading if layout.residual else 0
        return cls(
            Models.prior(models, 1, layout, None),
            MixtureTally.empty(models, arms=spreads),
            Scaling.empty(models, layout.dim, turned),
            Scaling.empty(models, layout.user, user_directions(layout.user)),
            np.zeros((models, 2 * (layout.wide - 1 - layout.order - layout.leading))),
            EventBuffer.empty(models, layout.dim, events),
            EventBuffer.empty(models, layout.user, users),
        )

    @property
    def model_bytes(self) -> int:
        """Bytes of the model, without the buffers of first events."""
        return byte_count(self) - byte_count(self.kept) - byte_count(self.kept_users)


# ---- Hashes of items


@kernel
def hash_weights(dim: int) -> Floats:
    """Return ``dim`` different weights in [½, 1½), by which the numbers of an item are hashed."""
    weights = np.empty(dim)
    for j in range(dim):
        # A low-discrepancy sequence.
        weights[j] = (j + 1) * GOLDEN
        weights[j] -= np.floor(weights[j]) - 0.5
    return weights


@kernel
def hash_item(item: Floats, weights: Floats) -> int:
    """Return a hash, 0 to 4,095, of all numbers of an item in single precision.

    Different items may share one. It is 0 if the weighted sum of the numbers is 0 or not finite.
    """
    # Four parallel sums are faster than one.
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    whole = len(item) // 4 * 4
    for j in range(0, whole, 4):
        a += np.float64(np.float32(item[j])) * weights[j]
        b += np.float64(np.float32(item[j + 1])) * weights[j + 1]
        c += np.float64(np.float32(item[j + 2])) * weights[j + 2]
        d += np.float64(np.float32(item[j + 3])) * weights[j + 3]
    for j in range(whole, len(item)):
        a += np.float64(np.float32(item[j])) * weights[j]
    total = abs((a + b) + (c + d))
    if not 0.0 < total < np.inf:
        return 0
    # Hash the digits only, so that the scale of the numbers does not matter.
    digits = total * 2.0 ** -np.floor(np.log2(total)) * 2.0**22 * GOLDEN
    return int((digits - np.floor(digits)) * ITEM_HASHES)


@kernel
def find_spread(item: Floats) -> int:
    """Return which of the 256 spreads of rewards is an item's, by a hash of its numbers."""
    return hash_item(item, hash_weights(len(item))) % SPREADS


# ---- Features of an item for a user, to learn from


@kernel
def make_workspace(layout: Design) -> Workspace:
    """Return a workspace of zeros for learning; arrays that only choices need are empty."""
    width, single = layout.dense + layout.lean, np.float32
    features, along = np.zeros((1, width), single), np.zeros((1, width), single)
    raw, scaled, none = np.zeros((1, layout.dim)), np.zeros((1, layout.dim), single), np.zeros((1, 0), single)
    return Workspace(
        raw, scaled, features, none, along, none, np.zeros((1, 0, 0), single), np.zeros((1, 0, 2))
    )


@kernel
def user_features(state: EmbeddingState, model: int, user: Floats, flags: Ints | None) -> Singles:
    """Return the features of a user: 1, the coordinates along the leading directions, and the residual.

    Missing numbers, by ``flags``, count as average.
    """
    scaled = np.zeros(state.users.mean.shape[1], np.float32)
    context_inputs.scale_context(state.users, model, user, scaled)
    if flags is not None:
        context_inputs.zero_missing(flags, user, scaled)
    features = np.zeros(1 + state.users.directions.shape[1] + len(scaled), np.float32)
    context_inputs.fill_features(state.users, model, scaled, features)
    return features


@kernel
def scaled_product(state: EmbeddingState, model: int, user: Floats, item: Floats) -> np.float32:
    """Return the inner product of a user and an item, scaled like other features and clipped to [−5, 5]."""
    off = (dot(user, item) - state.products[model, 0]) * state.products[model, 1]
    return np.float32(min(max(off, -context_inputs.FURTHEST), context_inputs.FURTHEST))


@kernel
def read_event(
    state: EmbeddingState,
    model: int,
    item: Floats,
    user: Floats,
    order: float,
    layout: Design,
    work: Workspace,
) -> None:
    """Fill ``work.features`` with the features of an item for a user, from their raw numbers.

    ``order`` is the feature of the item's place on offer; unused if the layout has none.
    """
    leading, wide, features = layout.leading, layout.wide, work.features[0]
    first = 1 + layout.order
    item_features = np.zeros(1 + leading + layout.residual, np.float32)
    context_inputs.scale_context(state.items, model, item, work.scaled[0])
    context_inputs.fill_features(state.items, model, work.scaled[0], item_features)
    # The product of the user's and the item's embeddings is a feature only if the layout is wide enough.
    product = np.float32(0.0)
    if wide > first + leading:
        product = scaled_product(state, model, user, item)
    # The user's features: 1, then coordinates. Blocks of features: the item block times each of them, then
    # the item's residual times the first of them.
    asking = user_features(state, model, user, layout.flags)
    rows, residual_count = layout.dense // wide, layout.residual * (1 + layout.crossed)
    for row in range(rows + (layout.lean - residual_count) // wide):
        start = row * wide + (residual_count if row >= rows else 0)
        features[start] = asking[row]
        if first > 1:
            features[start + 1] = asking[row] * np.float32(order)
        for at in range(leading):
            features[start + first + at] = asking[row] * item_features[1 + at]
        if wide > first + leading:
            features[start + first + leading] = asking[row] * product
    for row in range(1 + layout.crossed if layout.residual > 0 else 0):
        for i in range(layout.residual):
            features[layout.dense + row * layout.residual + i] = asking[row] * item_features[1 + leading + i]


# ---- Beliefs about candidates


class UserView(NamedTuple):
    """Beliefs about the parameters of an item's features for one user, so that candidates are scored quickly.

    Attributes
    ----------
    means : array of float32, shape (3, wide)
    spread : array of float32, shape (wide, wide)
        The covariance, averaged over hypotheses by weight.
    columns : array of float32, shape (d, leading + 8)
        The directions of items and the means for their residuals, column by column; without rows if
        there is no residual.
    residual_variance : float
        The mean variance for a number of the residual.
    no_effect : Base
        Belief under the hypothesis that features have no effect.
    slope, covariance, variance : float
        Belief about the place in the order offered, under this hypothesis; 0 if that is no feature.
    """

    means: Singles
    spread: Singles
    columns: Singles
    residual_variance: float
    no_effect: Base
    slope: float
    covariance: float
    variance: float


@kernel
def contract(spread: Singles, asking: Singles, layout: Design, total: Singles) -> None:
    """Add to ``total`` the covariance of the item's parameters for a user whose features are ``asking``.

    Products of user and item features have parameters of their own; for one user, they become parameters of
    the item's features. ``spread`` and ``total`` are packed: the lower triangle column by column.
    """
    wide, dense, k = layout.wide, layout.dense, 0
    # A block of the covariance belongs to a pair of user features: row and column of equal features are added
    # to ``total``, of different features to ``across``, whose transpose is added, too.
    across = np.zeros((wide, wide), np.float32)
    for column in range(dense):
        row, at = column // wide, column % wide
        start = at * wide - at * (at - 1) // 2
        context_inputs.add_times(spread[k : k + wide - at], asking[row] * asking[row], total[start:])
        k += wide - at
        for below in range(row + 1, dense // wide):
            context_inputs.add_times(spread[k : k + wide], asking[row] * asking[below], across[at])
            k += wide
    k = 0
    for at in range(wide if dense > wide else 0):
        for i in range(at, wide):
            total[k] += across[at, i] + across[i, at]
            k += 1


@kernel
def fill_mean(mean: Singles, asking: Singles, layout: Design, total: Singles) -> None:
    """Add to ``total`` the means of the item's parameters for a user whose features are ``asking``."""
    rows, residual_count = layout.dense // layout.wide, layout.residual * (1 + layout.crossed)
    for row in range(rows + (layout.lean - residual_count) // layout.wide):
        # Each user feature has a block of item parameters; the blocks of further directions come after the
        # residual.
        start = row * layout.wide + (residual_count if row >= rows else 0)
        context_inputs.add_times(mean[start : start + layout.wide], asking[row], total)


@kernel
def fill_spread(spread: Singles, asking: Singles, layout: Design, covariance: Singles) -> float:
    """Fill ``covariance`` with that of the item's parameters for a user whose features are ``asking``.

    Returns the mean variance of the parameters of the item's residual.
    """
    wide, dense, residual_variance, k = layout.wide, layout.dense, 0.0, 0
    packed, rows, half = dense * (dense + 1) // 2, dense // wide, np.zeros(wide * (wide + 1) // 2, np.float32)
    # The dense block, unpacked to a symmetric matrix.
    contract(spread[:packed], asking, layout, half)
    for at in range(wide):
        for i in range(at, wide):
            covariance[at, i] = half[k]
            covariance[i, at] = half[k]
            k += 1
    # Then the variances of the residual's parameters, alone and times directions of the user.
    count = layout.residual * (1 + layout.crossed)
    residual, further = spread[packed : packed + count], spread[packed + count :]
    for row in range(len(further) // wide):
        # Further directions of the user have variances only.
        factor = asking[rows + row] * asking[rows + row]
        for at in range(wide):
            covariance[at, at] += factor * further[row * wide + at]
    for i in range(count):
        row = i // layout.residual
        residual_variance += np.float64(asking[row] * asking[row] * residual[i]) / layout.residual
    return residual_variance


@kernel
def build_view(
    state: EmbeddingState, model: int, user: Floats, layout: Design, weights: Floats, base: Base
) -> UserView:
    """Return the beliefs about an item's parameters for one user, averaged over hypotheses by ``weights``.

    Computed once for a decision, so that each candidate costs little. ``base`` is the prior of the constant
    before the first event.
    """
    models, wide, leading, dense = state.models, layout.wide, layout.leading, layout.dense
    asking, directions = user_features(state, model, user, layout.flags), state.items.directions[model]
    means, unmet = np.zeros((FULL, wide), np.float32), 0.0
    spread, whole = np.zeros((wide, wide), np.float32), np.zeros(models.spread.shape[3], np.float32)
    columns, along = np.zeros((layout.residual, leading + ABREAST), np.float32), np.zeros(leading, np.float32)
    outside = np.zeros(layout.residual, np.float32)
    for h in range(FULL):
        # The user's item parameters: means by hypothesis, and the covariance averaged over hypotheses.
        mean = models.mean[model, 0, h]
        fill_mean(mean, asking, layout, means[h])
        context_inputs.add_times(models.spread[model, 0, h], np.float32(weights[h]), whole)
        if layout.residual > 0:
            # The residual of an item has no part along its directions: that part is removed from the mean.
            for j in range(layout.residual):
                outside[j] = np.float32(0.0)
            for row in range(1 + layout.crossed):
                context_inputs.add_times(
                    mean[dense + row * layout.residual :][: layout.residual], asking[row], outside
                )
            for at in range(leading):
                along[at] = context_inputs.dot_single(directions[at], outside)
            context_inputs.add_times(along, np.float32(-1.0), means[h, 1 + layout.order :])
        for j in range(layout.residual):
            columns[j, leading + h] = outside[j]
        # Before the first event, the constant is the prior one.
        if not models.met[model, 0, h]:
            first = initial_constant(models, model, 0, h, base)
            means[h, 0] += np.float32(first.logit) - mean[0]
            unmet += weights[h] * (first.variance - first_variance(models, model, 0, h))
    for at in range(leading if layout.residual > 0 else 0):
        for j in range(layout.residual):
            columns[j, at] = directions[at, j]
    residual_variance = fill_spread(whole, asking, layout, spread)
    spread[0, 0] += np.float32(unmet)
    # The hypothesis that only the constant, and the place on offer, matter.
    no_effect = initial_constant(models, model, 0, NO_EFFECT, base)
    if models.met[model, 0, NO_EFFECT]:
        logit, variance = models.mean[model, 0, NO_EFFECT, 0], models.narrow[model, 0, 0]
        no_effect = Base(np.float64(logit), np.float64(variance))
    slope, covariance, alone = 0.0, 0.0, 0.0
    if layout.order > 0:
        slope, narrow = np.float64(models.mean[model, 0, NO_EFFECT, 1]), models.narrow[model, 0]
        covariance, alone = np.float64(narrow[1]), np.float64(narrow[2])
    return UserView(means, spread, columns, residual_variance, no_effect, slope, covariance, alone)


@kernel
def compute_feature_moments(
    state: EmbeddingState, model: int, impression: Impression, layout: Design, view: UserView
) -> Floats:
    """Return each candidate's mean logit under each hypothesis that reads features, and one variance; shape
    (arms, 4).

    It is one loop without further kernels: a call for each candidate would count references to a dozen
    arrays.

    Returns
    -------
    array of float64, shape (candidates, FULL + 1)
        A column for each of the ``FULL`` hypotheses; last the variance, averaged by the weights of ``view``.
    """
    wide, leading, first, single = layout.wide, layout.leading, 1 + layout.order, np.float32
    scaled, turned = np.zeros(layout.dim, single), np.zeros(leading + ABREAST, single)
    features, along = np.zeros(wide, single), np.zeros(wide, single)
    moments = np.zeros((len(impression.arms), FULL + 1))
    features[0] = np.float32(1.0)
    for i in range(len(impression.arms)):
        remains = 0.0
        context_inputs.scale_context(state.items, model, impression.relevance[i], scaled)
        # Coordinates along the item's directions and, in the same product, the residual's part of the means;
        # then the squared length of the residual outside of these directions.
        if layout.residual > 0:
            context_inputs.multiply_columns(view.columns, scaled, turned)
            apart = context_inputs.dot_single(scaled, scaled) - context_inputs.dot_single(
                turned[:leading], turned
            )
            remains = max(np.float64(apart), 0.0)
        if first > 1:
            features[1] = np.float32(order_score(i, len(impression.arms)))
        for j in range(leading):
            features[first + j] = turned[j] if layout.residual > 0 else scaled[j]
        if wide > first + leading:
            features[first + leading] = scaled_product(
                state, model, impression.context, impression.relevance[i]
            )
        # The mean under each hypothesis, and one variance, of features and residual.
        for h in range(FULL):
            moments[i, h] = np.float64(
                context_inputs.dot_single(features, view.means[h]) + turned[leading + h]
            )
        context_inputs.multiply_columns(view.spread, features, along)
        moments[i, FULL] = max(
            np.float64(context_inputs.dot_single(features, along)) + view.residual_variance * remains, 0.0
        )
    return moments


@kernel
def order_belief(view: UserView, place: int, offered: int, layout: Design) -> Base:
    """Return mean and variance of a candidate's logit under the hypothesis that features have no effect.

    Only its place on offer counts, if that is a feature.
    """
    if layout.order == 0:
        return view.no_effect
    at = np.float64(np.float32(order_score(place, offered)))
    variance = view.no_effect.variance + at * (2.0 * view.covariance + at * view.variance)
    return Base(view.no_effect.logit + at * view.slope, max(variance, 0.0))


@kernel
def candidate_moments(
    state: EmbeddingState, model: int, impression: Impression, layout: Design, base: Base
) -> Floats:
    """Return the mean and variance of each candidate's logit, averaged over hypotheses; shape (candidates,
    2).
    """
    count, weights, moments = len(impression.arms), np.zeros(HYPOTHESES), np.zeros((len(impression.arms), 2))
    least, total = weight_in_use(state.tally.weights[model])
    for h in range(HYPOTHESES):
        if state.tally.weights[model, h] >= least:
            weights[h] = state.tally.weights[model, h] / total
    # Mean and variance of a mixture of normals: the mean of squares minus the square of the mean.
    view = build_view(state, model, impression.context, layout, weights, base)
    read, share = compute_feature_moments(state, model, impression, layout, view), weights[NO_EFFECT]
    for i in range(count):
        no_effect = order_belief(view, i, count, layout)
        mean = share * no_effect.logit
        square = read[i, FULL] + share * (no_effect.variance + no_effect.logit * no_effect.logit)
        for h in range(FULL):
            mean += weights[h] * read[i, h]
            square += weights[h] * read[i, h] * read[i, h]
        moments[i, 0] = mean
        moments[i, 1] = max(square - mean * mean, 0.0)
    return moments


@kernel
def candidate_lines(state: EmbeddingState, model: int, impression: Impression, layout: Design) -> Floats:
    """Return the mean and deviation of each candidate's logit, the deviation times 0.7; shape (candidates,
    2).
    """
    lines = candidate_moments(state, model, impression, layout, compute_base(state.tally, model))
    for i in range(len(lines)):
        lines[i, 1] = WIDTH * np.sqrt(lines[i, 1])
    return lines


@kernel
def compute_beliefs(
    state: EmbeddingState, model: int, impression: Impression, layout: Design, h: int, base: Base
) -> Floats:
    """Return the mean and variance of each candidate's logit under hypothesis ``h``; shape (candidates,
    2).
    """
    count, weights, moments = len(impression.arms), np.zeros(HYPOTHESES), np.zeros((len(impression.arms), 2))
    weights[h] = 1.0
    view = build_view(state, model, impression.context, layout, weights, base)
    read = compute_feature_moments(state, model, impression, layout, view)
    for i in range(count):
        moments[i, 0], moments[i, 1] = read[i, min(h, FULL - 1)], read[i, FULL]
        if h == NO_EFFECT:
            no_effect = order_belief(view, i, count, layout)
            moments[i, 0], moments[i, 1] = no_effect.logit, no_effect.variance
    return moments


# ---- Learning


@kernel
def expected_click(state: EmbeddingState, model: int, layout: Design, work: Workspace) -> float:
    """Return the probability of a click on the item in the workspace, averaged over hypotheses by weight.

    Overwrites the workspace's ``along``.
    """
    models, x, y, mean = state.models, work.features[0], work.along[0], 0.0
    base = compute_base(state.tally, model)
    for h in range(HYPOTHESES):
        logit, variance = np.float64(context_inputs.dot_single(models.mean[model, 0, h], x)), 0.0
        if h == NO_EFFECT:
            variance = np.float64(models.narrow[model, 0, 0])
        else:
            project_packed(models.spread[model, 0, h], layout.dense, x, y)
            variance = np.float64(context_inputs.dot_single(x, y))
        # Before the first event, the constant is the prior one.
        if not models.met[model, 0, h]:
            first = initial_constant(models, model, 0, h, base)
            logit += first.logit - np.float64(models.mean[model, 0, h, 0])
            variance += first.variance - first_variance(models, model, 0, h)
        mean += state.tally.weights[model, h] * click_probability(logit, max(variance, 0.0))
    return mean


@kernel
def measure_products(state: EmbeddingState, model: int, users: int, each: int) -> None:
    """Fit the scaling of user–item inner products, in place, to the first ``users`` users in the buffer.

    Each user has ``each`` items.
    """
    item, user = np.zeros(state.items.mean.shape[1]), np.zeros(state.users.mean.shape[1])
    total, squares, events = 0.0, 0.0, users * each
    for event in range(events):
        context_inputs.load_context(state.kept, model, event, item)
        context_inputs.load_context(state.kept_users, model, event // each, user)
        product = dot(user, item)
        total += product
        squares += product * product
    mean = total / events
    deviation = np.sqrt(max(squares / events - mean * mean, 0.0))
    state.products[model, 0] = mean
    state.products[model, 1] = 1.0 / deviation if deviation > 1e-6 * abs(mean) else 0.0


@kernel
def refit_scaling(state: EmbeddingState, model: int, users: int, each: int) -> None:
    """Fit scales and directions of items and users, in place, to the first ``users`` users in the buffer.

    Each user has ``each`` items. The caller must reset the model next and learn the events again.
    """
    sides, buffers = (state.items, state.users), (state.kept, state.kept_users)
    for side in range(2):
        events = users if side else users * each
        context_inputs.fit_scales(sides[side], buffers[side], model, events)
        turned, dim = sides[side].directions.shape[1:]
        if turned > 0:
            scaled, work = np.zeros(dim, np.float32), np.zeros((turned, dim), np.float32)
            context_inputs.find_directions(
                sides[side], buffers[side], model, events, np.zeros(dim), scaled, work
            )
    if state.products.shape[1] > 0:
        measure_products(state, model, users, each)
