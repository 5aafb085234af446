"""Input and output of a chain of deciders: a batch of impressions, and their decisions in columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

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
    by_client : bool
        Whether clients have decided.
    """

    impressions: Block[Impression]
    ids: list[str]
    seq: int
    time: int
    by_client: bool = False

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
    is_recalled: bool = False


class Decider(Protocol):
    """A stage of the chain."""

    def choose(self, batch: ImpressionBatch) -> Iterable[Choices]:
        """Yield the decisions for consecutive parts of a batch.

        Each part is recorded before the next one is decided.
        """
