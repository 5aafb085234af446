"""Any finite class of concepts, as a table (Syed et al. 2009, section 5: SafeCl as it stands)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tacit.classifiers.base import Classifier
from tacit.core.arrays import Booleans, Floats
from tacit.core.dispatch import kernel
from tacit.core.part import param
from tacit.errors import InvalidValue

Table = npt.NDArray[np.int8]

SEARCHED = 2**20
"""The largest search, in steps, for the exact diameter: about a second."""


@kernel
def column(table: Table, context: Floats) -> int:
    """Return the column of the context that ``context[0]`` numbers; −1 if there is none."""
    return int(context[0]) if 0.0 <= context[0] < table.shape[1] else -1


def longest_sequence(columns: set[tuple[int, int]], concepts: int) -> int:
    """Return the diameter of definition 3 by search over the sets of concepts that remain.

    ``columns`` holds, per context, the concepts that say +1 and those that say −1, as bit sets.
    """

    @cache
    def longest(consistent: int) -> int:
        lengths = (1 + longest(consistent & no) for yes, no in columns if consistent & yes)
        return max(lengths, default=0)

    return longest((1 << concepts) - 1)


@dataclass(frozen=True)
class FiniteConcepts(Classifier):
    """Call a context an event if some concept says so that fits all contexts that were none.

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
        If the table is empty or ragged, or holds anything else.

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
        super().__post_init__()
        try:
            table = np.array(self.table)
        except ValueError:
            table = np.empty(0)
        if table.ndim != 2 or table.size == 0 or table.dtype.kind not in "iu":
            raise InvalidValue("table", self.table, "give equally long rows of whole numbers")
        if not np.isin(table, (-1, 0, 1)).all():
            raise InvalidValue("table", self.table, "give only −1, 0 and +1")
        self._set("table", tuple(map(tuple, table.tolist())))

    @classmethod
    def example(cls, dim: int = 1) -> Self:
        return cls(((1, -1, -1, 0), (-1, 1, -1, 1), (-1, -1, 1, 1)))

    @classmethod
    def of(cls, predicates: Sequence[Callable[[Any], bool | None]], contexts: Sequence[Any]) -> Self:
        """Return the classifier of concepts that are given as functions.

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
            If there is no predicate or no context, or a predicate returns anything else.

        Examples
        --------
        >>> thresholds = [lambda x, at=at: x > at for at in (10, 20, 30)]
        >>> FiniteConcepts.of(thresholds, contexts=[5, 15, 25]).table
        ((-1, 1, 1), (-1, -1, 1), (-1, -1, -1))
        """

        def said(verdict: Any) -> int:
            if verdict is None:
                return 0
            if isinstance(verdict, bool | np.bool_):
                return 1 if verdict else -1
            raise InvalidValue("predicate", verdict, "return True, False or None")

        return cls(tuple(tuple(said(says(x)) for x in contexts) for says in predicates))

    @param
    def says(self) -> Table:
        """The table as an array."""
        return np.array(self.table, np.int8)

    @cached_property
    def diameter(self) -> float:
        """The most false positives there can be.

        Small classes are searched for the longest sequence of definition 3. For others it is a
        bound: the context of each false positive and the concept that called it an event differ
        from all before, so there are no more of them than distinct concepts, or distinct
        contexts, with a +1.
        """
        bits = [1 << i for i in range(len(self.table))]
        columns = {
            (
                sum(b for b, said in zip(bits, saying, strict=True) if said == 1),
                sum(b for b, said in zip(bits, saying, strict=True) if said == -1),
            )
            for saying in set(zip(*self.table, strict=True))
            if 1 in saying
        }
        bound = min(len(columns), sum(1 in concept for concept in set(self.table)))
        small = len(columns) << bound <= SEARCHED
        return float(longest_sequence(columns, len(bits)) if small else bound)

    def feasible(self, contexts: Floats) -> Booleans:
        numbers = contexts[:, 0]
        whole = numbers == np.floor(numbers)
        return np.asarray((numbers >= 0) & (numbers < len(self.table[0])) & whole)

    def init(self, rows: int) -> State:
        return self.State(np.ones((rows, len(self.table)), np.bool_))

    def merged(self, first: State, second: State) -> State:
        return self.State(first.consistent & second.consistent)

    @staticmethod
    def predict(params: FiniteConcepts, state: State, row: int, context: Floats) -> bool:
        at = column(params.says, context)
        if at < 0:
            return True
        for concept in range(len(params.says)):
            if state.consistent[row, concept] and params.says[concept, at] == 1:
                return True
        return False

    @staticmethod
    def learn_false(params: FiniteConcepts, state: State, row: int, context: Floats) -> None:
        at = column(params.says, context)
        if at < 0:
            return
        for concept in range(len(params.says)):
            state.consistent[row, concept] &= params.says[concept, at] == -1
