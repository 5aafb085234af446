"""Methods that an engine and a shard share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tacit.errors import TacitError, UnknownName
from tacit.learning.decisions import Arm
from tacit.service.config.schema import Config
from tacit.service.kind import check_path
from tacit.service.log.requests import Decide, DecisionRequest, FeedbackRequest, Record
from tacit.service.log.rows import REWARD, DecisionRow
from tacit.service.placements.placement import Placement

NO_REBUILD_IN_SHARDS = (
    "in shards a log is not folded anew; begin a placement of another name with that policy"
)


class Verbs:
    """Methods for one request, by a service's methods for many."""

    config: Config
    placements: dict[str, Placement]
    decide_many: Any
    record_many: Any

    def placement(self, name: str) -> Placement:
        """Return a placement by its name.

        Raises
        ------
        UnknownName
            If no placement has this name.
        """
        try:
            return self.placements[name]
        except KeyError:
            # The message does not list the names: the caller may not be allowed to see them.
            raise UnknownName(
                f"placement: none is called {name!r}; GET /v1/placements lists those that there are"
            ) from None

    async def serve(self, request: Decide | Record) -> Any:
        """Serve a request by :meth:`decide_many` or :meth:`record_many`; return decisions or outcomes."""
        if isinstance(request, Decide):
            return await self.decide_many(*request)
        return await self.record_many(*request)

    async def decide(
        self,
        placement: str,
        key: str,
        arms: Sequence[Arm] | None = None,
        context: Sequence[float] | None = None,
        id: str | None = None,
        deferred: bool = False,
    ) -> DecisionRow:
        """Choose an arm for one impression; returns when the decision is durable.

        For a placement with ``durability = "buffered"`` it returns at once.

        Parameters
        ----------
        placement : str
        key : str
            Key of the impression; at most 512 bytes.
        arms : sequence of arms, optional
            The offered arms; by default all.
        context : sequence of float, optional
            Signals about the key.
        id : str, optional
            The decision's id, which seeds its random draws; a repeated request with the id gets the same
            answer. By default a new UUID.
        deferred : bool
            Whether the decision counts only once it is activated.

        Returns
        -------
        DecisionRow

        Raises
        ------
        UnknownName, InvalidValue
            If the placement or an arm is unknown, or a value is invalid.
        Conflict
            If another decision has the id.
        Unavailable
            If the decision could not be made durable.
        """
        target = self.placement(placement)
        check_path(target, "decide")
        impression = target.reader.read(DecisionRequest(key, arms, context, id, deferred))
        row: DecisionRow = (await self.decide_many(placement, [impression]))[0]
        return row

    async def feedback(self, placement: str, decision: str, reward: float, id: str | None = None) -> str:
        """Record a reward for a decision; returns when it is durable.

        Parameters
        ----------
        placement : str
        decision : str
            The decision's id.
        reward : float
            In [0, 1].
        id : str, optional
            The feedback's id; repeated feedback with the id changes nothing.

        Returns
        -------
        str
            The outcome, one of :data:`tacit.wire.decisions.OUTCOMES`.

        Raises
        ------
        UnknownName, InvalidValue
            If the placement is unknown or the reward outside [0, 1].
        UnknownDecision
            If the placement never made the decision.
        Conflict
            If other feedback has the id.
        RepeatedFeedback
            If the decision has 100 pieces of feedback already.
        Unavailable
            If the feedback could not be made durable.
        """
        (outcome,) = await self.record_many(placement, [FeedbackRequest(decision, REWARD, reward, id)])
        if isinstance(outcome, TacitError):
            raise outcome
        return str(outcome)
