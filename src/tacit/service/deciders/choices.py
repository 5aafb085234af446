"""Input and output of a chain of deciders: a batch of impressions, and their decisions in columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from tacit.core.arrays import Booleans
from tacit.learning.decisions import Arm, Decision
from tacit.service.deciders.assignment import Assignment
from tacit.service.log.blocks import Block
from tacit.service.log.requests import Impression


class ImpressionBatch(NamedTuple):
    """Impressions that are decided together.

    All draws follow from the first id, so that a client's replica, which has the id, draws the same.

    Attributes
    ----------
    impressions : Block
    ids : list of str
        Ids of the decisions.
    seq : int
        Sequence number of the first decision in the log.
    time : int
        Microseconds since 1970.
    """

    impressions: Block[Impression]
    ids: list[str]
    seq: int
    time: int

    def select(self, rows: slice) -> ImpressionBatch:
        """Return the impressions of consecutive rows as a batch, with their ids and sequence numbers."""
        return ImpressionBatch(self.impressions[rows], self.ids[rows], self.seq + rows.start, self.time)


@dataclass(slots=True)
class Choices:
    """The decisions for a batch of impressions, in columns.

    Attributes
    ----------
    batch : ImpressionBatch
    decisions : Decisions or sequence of ClientDecision
        The decisions from which the placement's policy learns.
    mode : str
        Mode that the log gives to the decisions.
    propensities : list of float or None, optional
        As in the log; by default those of ``decisions``.
    assignment : Assignment or None
        Groups of a holdout.
    counterfactuals : list of arms, optional
        Arms that another policy would have shown, as in the log.
    counterfactual_propensities : list of float or None, optional
        Their propensities; without counterfactuals those of the policy that decided.
    secondary : Decisions or None
        The decisions from which the secondary policy learns.
    by_control : array of bool, optional
        Which rows the control's policy decided. ``secondary`` has these rows; without ``by_control``, all.
    by_client : bool
        Whether clients made the decisions.
    is_recalled : bool
        Whether the decisions are recorded as if they were read from the log, as decisions of clients are.
    """

    batch: ImpressionBatch
    decisions: Sequence[Decision]
    mode: str
    propensities: list[float | None] | None = None
    assignment: Assignment | None = None
    counterfactuals: Sequence[Arm] | None = None
    counterfactual_propensities: list[float | None] | None = None
    secondary: Sequence[Decision] | None = None
    by_control: Booleans | None = None
    by_client: bool = False
    is_recalled: bool = False


class Decider(Protocol):
    """A stage of the chain."""

    def choose(self, batch: ImpressionBatch) -> Iterable[Choices]:
        """Yield the decisions for consecutive parts of a batch.

        Each part is recorded before the next one is decided.
        """


class EntryFlags:
    """A flag for each entry of the open decisions; entries are reused.

    Examples
    --------
    >>> flags = EntryFlags()
    >>> flags.set(np.array([3, 5]), np.array([True, False]))
    >>> flags.get(np.array([5, 3, 9]))
    array([False,  True, False])
    """

    def __init__(self) -> None:
        """Begin without a flag."""
        self._flags = np.zeros(0, np.bool_)

    def __bool__(self) -> bool:
        """True if any entry ever had a flag."""
        return len(self._flags) > 0

    def set(self, entries: Any, flags: Any) -> None:
        """Set the flags of entries to one value, or to one value each."""
        if not self and not np.any(flags):
            return
        self._reserve_entries(entries)
        self._flags[entries] = flags

    def get(self, entries: Any) -> Booleans:
        """Return the flags of entries; False if never set."""
        self._reserve_entries(entries)
        flags: Booleans = self._flags[entries]
        return flags

    def _reserve_entries(self, entries: Any) -> None:
        """Enlarge the flags, if necessary, to hold these entries; new flags are False."""
        size = int(entries.max(initial=-1)) + 1
        if size > len(self._flags):
            larger = np.zeros(max(size, 2 * len(self._flags)), np.bool_)
            larger[: len(self._flags)] = self._flags
            self._flags = larger
