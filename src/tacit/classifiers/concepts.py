"""Classes of concepts for safe classifiers: rectangles, and any finite table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tacit.classifiers.base import TIE, Classifier
from tacit.core.arrays import Booleans, Floats
from tacit.core.dispatch import kernel
from tacit.core.part import PositiveFraction, param, set_field
from tacit.core.state_ranges import IntCount
from tacit.errors import InvalidValue


@dataclass(frozen=True)
class Rectangle(Classifier):
    """Call a context an event if it is outside the box of all false-labelled contexts, by the margin.

    The truth is a box: contexts inside it are no events, events are farther than the margin
    from it in some coordinate, and no context lies between. The classifier stores the smallest
    box of the false-labelled contexts; a context is negative iff each coordinate is within the
    margin of the box's side, inclusive up to 1e-12. Before the first label all are positive.

    Parameters
    ----------
    dim : int
        Length of a context; contexts are in [0, 1]^dim.
    margin : float
        Least distance of an event from the true box in the largest coordinate; in (0, 1].
    anchored : bool, default False
        Whether the true box is known to reach down to 0 in every coordinate, as in the
        experiments of the paper: only unusually high values are events.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Syed, Slivkins, Mishra (2009), section 5.1. At a distance of exactly the margin the paper's
    concepts call a context an event and its classifier calls it none; here it is none.

    Examples
    --------
    >>> from tacit.classifiers import SafeClassifier
    >>> classifier = SafeClassifier(Rectangle(dim=2, margin=0.1))
    >>> classifier.predict([0.3, 0.4])
    True
    >>> classifier.learn_false([0.3, 0.4])
    >>> classifier.predict([0.4, 0.3]), classifier.predict([0.4, 0.6])
    (False, True)
    """

    class State(NamedTuple):
        low: Floats
        high: Floats

    margin: PositiveFraction
    anchored: bool = False

    def __post_init__(self) -> None:
        """Validate the parameters; raise InvalidValue if one is out of its range."""
        super().__post_init__()
        if not isinstance(self.anchored, bool | np.bool_):
            raise InvalidValue("anchored", self.anchored, "give True or False")
        set_field(self, "anchored", bool(self.anchored))

    @classmethod
    def example(cls, dim: int = 1) -> Self:
        """Return an example with a margin of 0.1 for contexts of length ``dim``."""
        return cls(dim, margin=0.1)

    @property
    def diameter(self) -> float:
        """Largest number of false positives: 1 + dim·(⌈1/margin⌉ − 1), a tight bound.

        This is claim 2 for contexts in [0, 1]^dim. The first false positive makes the box a
        point; each later one moves a side outward by more than the margin. The moves in one
        coordinate add up to at most 1, so there are fewer than 1/margin of them. The bound is
        reached from the origin by equal steps along one axis after another.
        """
        moves = math.ceil(1.0 / (self.margin + TIE)) - 1
        return 1.0 + self.dim * moves

    def init(self, rows: int) -> State:
        """Return ``rows`` empty boxes: their lower sides are inf, their upper sides −inf."""
        shape = (rows, self.dim)
        return self.State(np.full(shape, np.inf), np.full(shape, -np.inf))

    def merge_states(self, first: State, second: State) -> State:
        """Return, row by row, the smallest box that contains both boxes."""
        return self.State(np.minimum(first.low, second.low), np.maximum(first.high, second.high))

    @staticmethod
    def predict(params: Rectangle, state: State, row: int, context: Floats) -> bool:
        """Return True if the context is outside of the row's box by more than the margin."""
        reach = params.margin + TIE
        for i in range(len(context)):
            if context[i] < state.low[row, i] - reach or context[i] > state.high[row, i] + reach:
                return True
        return False

    @staticmethod
    def learn_false(params: Rectangle, state: State, row: int, context: Floats) -> None:
        """Enlarge the row's box to contain the context; down to 0 if anchored."""
        for i in range(len(context)):
            lowest = 0.0 if params.anchored else context[i]
            state.low[row, i] = min(state.low[row, i], lowest)
            state.high[row, i] = max(state.high[row, i], context[i])


# ---- Unusual contexts, by the usual range of contexts so far, without labels

BLOCK, BLOCKS = 231, 15
# Contexts that determine the usual range before any context is called unusual.
LEAST = 20


class UsualRange(NamedTuple):
    """The usual range of contexts, a rectangle; every array has a leading axis of 1.

    A side of the rectangle is the median of the extremes of the latest 15 blocks of 231 contexts: about
    0.3 % of the contexts are beyond it (½ = 0.997^231). So rarer contexts do not widen the rectangle,
    however far outside they are.

    Attributes
    ----------
    seen : array of int64, shape (1,)
        Number of contexts so far.
    sides, present : array of float64, shape (1, dim, 2)
        The highest usual value and minus the lowest; the extremes of the present block.
    peaks : array of float64, shape (1, 15, dim, 2)
        The extremes of the latest blocks, a ring.
    """

    seen: IntCount
    sides: Floats
    present: Floats
    peaks: Floats

    @classmethod
    def empty(cls, dim: int) -> UsualRange:
        """Return the state before the first context, for contexts of length ``dim``."""
        return cls(
            seen=np.zeros(1, np.int64),
            sides=np.zeros((1, dim, 2)),
            present=np.zeros((1, dim, 2)),
            peaks=np.zeros((1, BLOCKS, dim, 2)),
        )


@kernel
def median_peak(usual: UsualRange, blocks: int, i: int, side: int) -> float:
    """Return the median, over the first ``blocks`` blocks, of the highest value of coordinate ``i`` in a
    block.

    ``side`` 1 takes the lowest values instead, negated. Of an even number of blocks it is the lower median.
    """
    for k in range(blocks):
        value, lower, tied = usual.peaks[0, k, i, side], 0, 0
        for j in range(blocks):
            lower += usual.peaks[0, j, i, side] < value
            tied += usual.peaks[0, j, i, side] == value
        if lower <= (blocks - 1) // 2 < lower + tied:
            return float(value)
    return np.nan


@kernel
def is_unusual(usual: UsualRange, margin: float, context: Floats) -> bool:
    """Return True if a context is outside of the usual range so far, and update the range with the context.

    It must be outside by more than ``margin`` times the range's width, in some coordinate. The first 20
    contexts are never unusual.
    """
    enough, first = usual.seen[0] >= LEAST, usual.seen[0] % BLOCK == 0
    usual.seen[0] += 1
    blocks, ends = usual.seen[0] // BLOCK, usual.seen[0] % BLOCK == 0
    unusual = False
    for i in range(usual.present.shape[1]):
        slack = margin * (usual.sides[0, i, 0] + usual.sides[0, i, 1])
        for side in range(2):
            # Side 1 has negated values, so that the extremes of both sides are maxima.
            value = context[i] if side == 0 else -context[i]
            unusual = unusual or value > usual.sides[0, i, side] + slack
            if first or value > usual.present[0, i, side]:
                usual.present[0, i, side] = value
            if ends:
                usual.peaks[0, (blocks - 1) % BLOCKS, i, side] = usual.present[0, i, side]
                usual.sides[0, i, side] = median_peak(usual, min(blocks, BLOCKS), i, side)
            # Before the first block is complete, its extremes so far stand for the range.
            elif blocks == 0:
                usual.sides[0, i, side] = usual.present[0, i, side]
    return enough and unusual


# ---- A finite table of concepts


Table = npt.NDArray[np.int8]

LARGEST_SEARCH = 2**20
"""The largest search, in steps, for the exact diameter: about a second."""


@kernel
def find_column(table: Table, context: Floats) -> int:
    """Return the column of a context, whose only number is the column's index; −1 if there is no such
    column.
    """
    return int(context[0]) if 0.0 <= context[0] < table.shape[1] else -1


def longest_sequence(columns: set[tuple[int, int]], concepts: int) -> int:
    """Return the largest possible number of false positives (definition 3), by exhaustive search.

    ``columns`` has a pair of bit sets for each distinct context: the concepts that say +1 (an event), and
    the concepts that say −1. ``concepts`` is the number of concepts.
    """

    @cache
    def longest(consistent: int) -> int:
        """Return the length of the longest sequence if only the concepts in this bit set are left."""
        lengths = (1 + longest(consistent & no) for yes, no in columns if consistent & yes)
        return max(lengths, default=0)

    return longest((1 << concepts) - 1)


@dataclass(frozen=True)
class FiniteConcepts(Classifier):
    """Call a context an event if some concept says so that fits all false-labelled contexts.

    Contexts are numbered: a context is the vector of length 1 that holds its number. A concept
    fits a false-labelled context if it says −1 there; one that says 0 (the context cannot occur
    if this concept is the truth) does not fit. A context that no concept calls an event is
    negative from the start.

    Parameters
    ----------
    table : sequence of sequences of int, shape (concepts, contexts)
        What each concept says of each context: +1 an event, −1 none, 0 it cannot occur.

    Raises
    ------
    InvalidValue
        If the table is empty or ragged, or has other values.

    References
    ----------
    Syed, Slivkins, Mishra (2009), section 5, SafeCl and claim 1.

    Examples
    --------
    >>> from tacit.classifiers import SafeClassifier
    >>> classifier = SafeClassifier(FiniteConcepts([[1, 1, -1], [-1, 1, 1]]))
    >>> classifier.learn_false([0])
    >>> [classifier.predict([number]) for number in range(3)]
    [False, True, True]
    """

    class State(NamedTuple):
        consistent: Booleans

    universe: ClassVar[str] = "the number of a column of the table"

    dim: int = field(default=1, init=False, repr=False)
    table: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        """Validate the table; raise InvalidValue unless it is a rectangle of −1, 0 and +1."""
        super().__post_init__()
        try:
            table = np.array(self.table)
        except ValueError:
            table = np.empty(0)
        if table.ndim != 2 or table.size == 0 or table.dtype.kind not in "iu":
            raise InvalidValue("table", self.table, "give equally long rows of whole numbers")
        if not np.isin(table, (-1, 0, 1)).all():
            raise InvalidValue("table", self.table, "give only −1, 0 and +1")
        set_field(self, "table", tuple(map(tuple, table.tolist())))

    @classmethod
    def example(cls, dim: int = 1) -> Self:
        """Return an example of three concepts over four contexts; ``dim`` is ignored."""
        return cls(((1, -1, -1, 0), (-1, 1, -1, 1), (-1, -1, 1, 1)))

    @classmethod
    def from_predicates(
        cls, predicates: Sequence[Callable[[Any], bool | None]], contexts: Sequence[Any]
    ) -> Self:
        """Return the classifier whose table has the value of each predicate for each context.

        Parameters
        ----------
        predicates : sequence of function
            Each takes a context and returns True (an event), False (none) or None (it cannot
            occur).
        contexts : sequence
            All contexts there are, in the order of their numbers.

        Raises
        ------
        InvalidValue
            If there is no predicate or no context, or a predicate returns another value.

        Examples
        --------
        >>> thresholds = [lambda x, at=at: x > at for at in (10, 20, 30)]
        >>> FiniteConcepts.from_predicates(thresholds, contexts=[5, 15, 25]).table
        ((-1, 1, 1), (-1, -1, 1), (-1, -1, -1))
        """

        def encode_verdict(verdict: Any) -> int:
            """Return 1 for True, −1 for False and 0 for None."""
            if verdict is None:
                return 0
            if isinstance(verdict, bool | np.bool_):
                return 1 if verdict else -1
            raise InvalidValue("predicate", verdict, "return True, False or None")

        return cls(tuple(tuple(encode_verdict(says(x)) for x in contexts) for says in predicates))

    @param
    def verdicts(self) -> Table:
        """The table as an array of int8, shape (concepts, contexts), for kernels."""
        return np.array(self.table, np.int8)

    @cached_property
    def diameter(self) -> float:
        """Largest number of false positives.

        For small classes it is found by search for the longest sequence of definition 3. For others it
        is a bound: each false positive has a new context, and a new concept that calls it an event, so
        there are no more than distinct concepts, or distinct contexts, with a +1.
        """
        bits = [1 << i for i in range(len(self.table))]
        columns = {
            (
                sum(b for b, verdict in zip(bits, saying, strict=True) if verdict == 1),
                sum(b for b, verdict in zip(bits, saying, strict=True) if verdict == -1),
            )
            for saying in set(zip(*self.table, strict=True))
            if 1 in saying
        }
        bound = min(len(columns), sum(1 in concept for concept in set(self.table)))
        small = len(columns) << bound <= LARGEST_SEARCH
        return float(longest_sequence(columns, len(bits)) if small else bound)

    def feasible(self, contexts: Floats) -> Booleans:
        """Return for each context whether it is the number of a column of the table."""
        numbers = contexts[:, 0]
        whole = numbers == np.floor(numbers)
        return np.asarray((numbers >= 0) & (numbers < len(self.table[0])) & whole)

    def init(self, rows: int) -> State:
        """Return ``rows`` rows in which all concepts are consistent."""
        return self.State(np.ones((rows, len(self.table)), np.bool_))

    def merge_states(self, first: State, second: State) -> State:
        """Return, row by row, the concepts that are consistent in both states."""
        return self.State(first.consistent & second.consistent)

    @staticmethod
    def predict(params: FiniteConcepts, state: State, row: int, context: Floats) -> bool:
        """Return True if a consistent concept calls the context an event; also if the context is not in the
        table.
        """
        at = find_column(params.verdicts, context)
        if at < 0:
            return True
        for concept in range(len(params.verdicts)):
            if state.consistent[row, concept] and params.verdicts[concept, at] == 1:
                return True
        return False

    @staticmethod
    def learn_false(params: FiniteConcepts, state: State, row: int, context: Floats) -> None:
        """Mark the concepts that do not say −1 for the context as inconsistent; do nothing if it is not in
        the table.
        """
        at = find_column(params.verdicts, context)
        if at < 0:
            return
        for concept in range(len(params.verdicts)):
            state.consistent[row, concept] &= params.verdicts[concept, at] == -1
