"""Hyperplane classifier: events lie beyond some plane (Syed et al. 2009, section 5.2)."""

# 1. ``Workspace``, ``HullPoints``: work arrays for distances, and the points of the hull.
# 2. ``hull_distance``: the nearest point of a convex hull, by Wolfe's method: a corral of points, the plane
#    through them, and a step toward its nearest point until the weight of a point is 0.
# 3. ``trim``: drops points inside the hull, so that few are stored.
# 4. ``Hyperplane``: an event is farther from the hull than twice the margin.

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Self

import numpy as np

from tacit.classifiers.base import TIE, Classifier, learn_all_false
from tacit.core.arrays import Floats, Ints
from tacit.core.dispatch import kernel
from tacit.core.part import PositiveFraction, int_range
from tacit.core.run_mode import compile_loop
from tacit.core.state_ranges import IntCount, ValueRange

GAP = 1e-13
"""Accuracy of distances: the search stops when its two bounds are this close."""
PATIENCE = 10
"""Steps without progress after which the search stops; rounding hides the progress of fewer."""
DEPENDENT = 1e-14
"""A vector counts as dependent on others if less than this share of its length is orthogonal to them."""


class SolverWorkspace(NamedTuple):
    """Work arrays of :func:`hull_distance`; their content is not used between calls.

    Attributes
    ----------
    corral : array of int64, shape (rows, dim + 1)
        The points whose convex combination is the nearest point so far, Wolfe's *corral*.
    weights, target : array of float64, shape (rows, dim + 1)
        Their weights, and the weights of the nearest point of the plane through them.
    basis, triangle : array of float64, shape (rows, dim, dim)
        QR factors of the corral's differences from its first point, as rows and columns.
    offset, normal : array of float64, shape (rows, dim)
        From the context to the nearest point so far; and the same, made orthogonal to the basis.
    """

    corral: IntCount
    weights: Floats
    target: Floats
    basis: Floats
    triangle: Floats
    offset: Floats
    normal: Floats

    @classmethod
    def zeros(cls, rows: int, dim: int) -> SolverWorkspace:
        """Return work arrays of zeros for ``rows`` rows and contexts of length ``dim``."""
        return cls(
            np.zeros((rows, dim + 1), np.int64),
            np.zeros((rows, dim + 1)),
            np.zeros((rows, dim + 1)),
            np.zeros((rows, dim, dim)),
            np.zeros((rows, dim, dim)),
            np.zeros((rows, dim)),
            np.zeros((rows, dim)),
        )


class HullPoints(NamedTuple):
    """Points of a convex hull, and work arrays for distances to it.

    Attributes
    ----------
    points : array of float64, shape (rows, capacity + 1, dim)
        The points; one place is spare, for a new point when the others are full.
    held : array of int64, shape (rows,)
        Number of points.
    dropped : array of int64, shape (rows,)
        Number of points that were dropped although the hull shrank.
    scratch : Workspace
    """

    points: Floats
    held: Annotated[Ints, ValueRange(0, -1, "points", 1)]
    dropped: IntCount
    scratch: SolverWorkspace


@kernel
def get_row(scratch: SolverWorkspace, row: int) -> SolverWorkspace:
    """Return row ``row`` of all work arrays, as views."""
    return SolverWorkspace(
        scratch.corral[row],
        scratch.weights[row],
        scratch.target[row],
        scratch.basis[row],
        scratch.triangle[row],
        scratch.offset[row],
        scratch.normal[row],
    )


@kernel
def closest_point(points: Floats, context: Floats, skip: int) -> int:
    """Return the index of the point nearest to the context, other than ``skip``; −1 if there is none."""
    closest, least = -1, math.inf
    for i in range(len(points)):
        square = 0.0
        for j in range(len(context)):
            square += (points[i, j] - context[j]) ** 2
        if square < least and i != skip:
            closest, least = i, square
    return closest


@kernel
def lowest_point(points: Floats, normal: Floats, skip: int) -> int:
    """Return the index of the point with the smallest inner product with ``normal``, other than ``skip``; −1
    for none.
    """
    lowest, least = -1, math.inf
    for i in range(len(points)):
        height = 0.0
        for j in range(len(normal)):
            height += normal[j] * points[i, j]
        if height < least and i != skip:
            lowest, least = i, height
    return lowest


@kernel
def norm(vector: Floats) -> float:
    """Return the Euclidean length of a vector."""
    square = 0.0
    for j in range(len(vector)):
        square += vector[j] ** 2
    return float(np.sqrt(square))


@kernel
def remove_basis(basis: Floats, size: int, vector: Floats) -> None:
    """Make ``vector`` orthogonal, in place, to the first ``size`` rows of an orthonormal basis."""
    for i in range(size):
        along = 0.0
        for j in range(len(vector)):
            along += basis[i, j] * vector[j]
        for j in range(len(vector)):
            vector[j] -= along * basis[i, j]


@kernel
def set_offset(scratch: SolverWorkspace, points: Floats, context: Floats, size: int) -> None:
    """Set ``offset`` and ``normal`` in ``scratch`` from the weights of the corral's ``size`` points.

    The offset leads from the context to the nearest point so far, the weighted mean of these points. The
    normal is the offset without its rounding errors along the plane through them.
    """
    for j in range(len(context)):
        offset = 0.0
        for i in range(size):
            offset += scratch.weights[i] * (points[scratch.corral[i], j] - context[j])
        scratch.offset[j] = scratch.normal[j] = offset
    # Rounding errors make the offset slightly non-orthogonal, the more so the shorter it is.
    remove_basis(scratch.basis, size - 1, scratch.normal)


@kernel
def factorise(scratch: SolverWorkspace, points: Floats, first: int, size: int) -> None:
    """Recompute the QR factors in ``scratch`` of a corral of ``size`` points, from difference number
    ``first`` on.

    By Gram–Schmidt, twice for orthogonality to rounding. Differences are taken between the points themselves,
    so they are exact for near-duplicates.
    """
    basis, triangle = scratch.basis, scratch.triangle
    start = scratch.corral[0]
    for k in range(first, size - 1):
        end, vector = scratch.corral[k + 1], basis[k]
        for j in range(len(vector)):
            vector[j] = points[end, j] - points[start, j]
        for i in range(k):
            triangle[i, k] = 0.0
            for j in range(len(vector)):
                triangle[i, k] += basis[i, j] * vector[j]
        whole = norm(vector)
        remove_basis(basis, k, vector)
        remove_basis(basis, k, vector)
        residual = norm(vector)
        # A basis vector of zero and a 1 in the triangle give a dependent point no weight.
        independent = residual > DEPENDENT * whole
        triangle[k, k] = residual if independent else 1.0
        for j in range(len(vector)):
            vector[j] = vector[j] / residual if independent else 0.0


@kernel
def set_target(scratch: SolverWorkspace, points: Floats, context: Floats, size: int) -> None:
    """Set ``target`` in ``scratch`` to the weights of the point nearest to the context on the plane through
    the corral.
    """
    basis, triangle, target = scratch.basis, scratch.triangle, scratch.target
    start = scratch.corral[0]
    target[0] = 1.0
    # Back substitution in the triangle; the weight of the first point makes the sum 1.
    for k in range(size - 2, -1, -1):
        weight = 0.0
        for j in range(len(context)):
            weight -= basis[k, j] * (points[start, j] - context[j])
        for i in range(k + 1, size - 1):
            weight -= triangle[k, i] * target[i + 1]
        target[k + 1] = weight / triangle[k, k]
        target[0] -= target[k + 1]


@kernel
def step_to_target(weights: Floats, target: Floats, size: int) -> int:
    """Move ``weights`` toward ``target``, in place, until one of them is 0; return its index, −1 if none
    became 0.
    """
    step, leaving = 1.0, -1
    for i in range(size):
        if target[i] < 0.0 and weights[i] <= step * (weights[i] - target[i]):
            step, leaving = weights[i] / (weights[i] - target[i]), i
    for i in range(size):
        weights[i] = max(weights[i] + step * (target[i] - weights[i]), 0.0)
    return leaving


@kernel
def add_to_corral(scratch: SolverWorkspace, points: Floats, context: Floats, size: int, point: int) -> int:
    """Add a point to the corral in ``scratch``, then remove points until the nearest point has no negative
    weight.

    Updates weights and QR factors. Returns the corral's new size.
    """
    corral, weights = scratch.corral, scratch.weights
    corral[size], weights[size] = point, 0.0
    first, size = size - 1, size + 1
    while True:
        factorise(scratch, points, first, size)
        set_target(scratch, points, context, size)
        leaving = step_to_target(weights, scratch.target, size)
        if leaving < 0:
            return size
        size -= 1
        for i in range(leaving, size):
            corral[i], weights[i] = corral[i + 1], weights[i + 1]
        first = max(leaving - 1, 0)


@kernel
def hull_distance(
    scratch: SolverWorkspace, points: Floats, context: Floats, near: float, far: float, skip: int
) -> float:
    """Return the distance of a context from the hull, exact to 1e-13; inf if it is empty.

    Wolfe (1976), "Finding the nearest point in a polytope": the nearest point of the hull of a
    few points, the corral, gives an upper bound; the plane through it, moved to the lowest of
    all points, gives a lower one. The lowest point enters the corral until the bounds meet.
    Both bounds are computed from the points in each step, so rounding errors do not accumulate, and
    the search stops early: an upper bound of at most ``near``, or a lower bound above ``far``, is
    returned at once.

    Parameters
    ----------
    scratch : Workspace
        One row.
    points : array of float64, shape (points, dim)
    context : array of float64, shape (dim,)
    near, far : float
        Bounds that suffice; 0 and inf for the exact distance.
    skip : int
        Index of a point to leave out; −1 for none.
    """
    entering = closest_point(points, context, skip)
    if entering < 0:
        return math.inf
    corral, normal = scratch.corral, scratch.normal
    corral[0], scratch.weights[0] = entering, 1.0
    size, upper, stalls = 1, math.inf, 0
    while True:
        set_offset(scratch, points, context, size)
        length = norm(scratch.offset)
        # In exact arithmetic the length always decreases, and the entering point is new.
        stalls = 0 if length < upper else stalls + 1
        upper = min(upper, length)
        if upper <= max(near, GAP) or stalls == PATIENCE:
            return upper
        entering = lowest_point(points, normal, skip)
        height = 0.0
        for j in range(len(context)):
            height += normal[j] * (points[entering, j] - context[j])
        lower = height / norm(normal)
        if lower > far:
            return lower
        # Only rounding errors can select a point that is in the corral already, or make this too large.
        entered = size > len(context)
        for i in range(size):
            entered = entered or corral[i] == entering
        if entered or upper - lower <= GAP:
            return upper
        size = add_to_corral(scratch, points, context, size, entering)


@kernel
def row_distance(state: HullPoints, row: int, context: Floats, near: float, far: float, skip: int) -> float:
    """Return the distance of a context from the hull of a row's points, leaving out point ``skip`` unless −1.

    It is exact to 1e-13, unless ``near`` or ``far`` let :func:`hull_distance` stop early.
    """
    points = state.points[row, : state.held[row]]
    return hull_distance(get_row(state.scratch, row), points, context, near, far, skip)


@kernel
def trim(state: HullPoints, row: int) -> None:
    """Drop a point of a row that is inside the hull of the others; or, if there is one point too many, the
    one nearest to it.

    ``state.dropped`` counts the times that the hull shrank.
    """
    excess = state.held[row] == state.points.shape[1]
    dropped, loss = -1, math.inf
    for i in range(state.held[row] - 1, -1, -1):
        distance = row_distance(state, row, state.points[row, i], GAP, loss, i)
        if distance < loss:
            dropped, loss = i, distance
        if loss <= GAP or not excess:
            break
    if loss <= GAP or excess:
        state.held[row] -= 1
        state.points[row, dropped] = state.points[row, state.held[row]]
        state.dropped[row] += loss > GAP


@dataclass(frozen=True)
class Hyperplane(Classifier):
    """Call a context an event if it is farther than twice the margin from all false-labelled contexts.

    The truth is a plane: events are at least the margin beyond it, other contexts more than the
    margin before it. The classifier stores the convex hull of the false-labelled contexts; a
    context is negative iff its Euclidean distance from the hull is at most 2·margin. Distances
    are exact to 1e-13, ties are inclusive up to 1e-12. Before the first label all are positive.

    A context inside the hull is not stored. If there are more than ``capacity`` points, the one nearest
    to the hull of the others is dropped. A smaller hull is still safe, but may cause more false
    positives; the state's ``dropped`` counts how often the hull shrank.

    Parameters
    ----------
    dim : int
        Length of a context; contexts are in [0, 1]^dim.
    margin : float
        Least distance of any context from the true plane; in (0, 1].
    capacity : int, default 1024
        Largest number of points; at least 1. They take 8·capacity·dim bytes a row.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Syed, Slivkins, Mishra (2009), section 5.2 and claim 4 (full version).

    Examples
    --------
    >>> from tacit.classifiers import SafeClassifier
    >>> classifier = SafeClassifier(Hyperplane(dim=2, margin=0.1))
    >>> classifier.learn_false([0.0, 0.0])
    >>> classifier.learn_false([0.8, 0.0])
    >>> classifier.predict([0.4, 0.19]), classifier.predict([0.4, 0.21])
    (False, True)
    """

    State = HullPoints

    margin: PositiveFraction
    capacity: Annotated[int, int_range(1, 2**24)] = 1024

    @classmethod
    def example(cls, dim: int = 1) -> Self:
        """Return an example with a margin of 0.1 for contexts of length ``dim``."""
        return cls(dim, margin=0.1)

    @property
    def diameter(self) -> float:
        """Largest number of false positives while no point is dropped: (1 + √dim/(2·margin))^dim.

        This is claim 3 for contexts in [0, 1]^dim. False positives are more than 2·margin
        apart, so balls of radius margin around them do not meet; all are inside a ball of
        radius √dim/2 + margin. (In the paper contexts are in a ball of radius 1, not √dim/2.)
        """
        with np.errstate(over="ignore"):
            return float(np.float64(1.0 + math.sqrt(self.dim) / (2.0 * self.margin)) ** self.dim)

    def init(self, rows: int) -> HullPoints:
        """Return ``rows`` rows without points, and work arrays."""
        return HullPoints(
            np.zeros((rows, self.capacity + 1, self.dim)),
            np.zeros(rows, np.int64),
            np.zeros(rows, np.int64),
            SolverWorkspace.zeros(rows, self.dim),
        )

    def merge_states(self, first: HullPoints, second: HullPoints) -> HullPoints:
        """Return, row by row, the hull of the points of both states, at most ``capacity`` of them."""
        learn = compile_loop(learn_all_false, self.params)
        joined = self.init(len(first.held))
        for row in range(len(joined.held)):
            point_sets = [state.points[row, : state.held[row]] for state in (first, second)]
            # Sorted, so that the result does not depend on the order of the states.
            learn(self.params, joined, row, np.unique(np.concatenate(point_sets), axis=0))
            joined.dropped[row] += max(first.dropped[row], second.dropped[row])
        return joined

    @staticmethod
    def predict(params: Hyperplane, state: HullPoints, row: int, context: Floats) -> bool:
        """Return True if the context is farther than twice the margin from the row's hull."""
        reach = 2.0 * params.margin + TIE
        return row_distance(state, row, context, reach, reach, -1) > reach

    @staticmethod
    def learn_false(params: Hyperplane, state: HullPoints, row: int, context: Floats) -> None:
        """Add the context to the row's points; then drop a point if one is inside the hull, or there are too
        many.
        """
        state.points[row, state.held[row]] = context
        state.held[row] += 1
        trim(state, row)
