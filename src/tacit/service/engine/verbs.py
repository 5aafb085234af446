"""One decision, one piece of feedback: what every service does with its many at once."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.errors import InvalidValue, TacitError, UnknownName
from tacit.learning.decisions import Arm
from tacit.service.engine.service import Service
from tacit.service.kind import check_path
from tacit.service.log.impressions import DecisionRequest
from tacit.service.log.requests import Feedback
from tacit.service.log.rows import ACTIVATE, EXAMINED, MODES, REWARD, DecisionRow
from tacit.service.placements.base import Placement


class Verbs:
    """Requests for one decision or with one piece of feedback."""

    def placement(self: Service, name: str) -> Placement:
        """Return a placement.

        Raises
        ------
        UnknownName
            If there is none of this name.
        """
        try:
            return self.placements[name]
        except KeyError:
            # Who asks may not know of all.
            raise UnknownName(
                f"placement: none is called {name!r}; GET /v1/placements lists those that there are"
            ) from None

    def durability(self: Service, placement: str) -> str:
        """Return what answers of a placement promise."""
        return self.config.placements[placement].durability

    def check_mode(self: Service, placement: str, mode: str) -> None:
        """Check that a placement can have a mode.

        Raises
        ------
        UnknownName, InvalidValue
            If there is no such placement or mode, or no second policy to shadow.
        """
        known = self.placement(placement)
        if mode not in MODES:
            raise InvalidValue("mode", mode, f"give one of {', '.join(MODES)}")
        known.check_mode(mode)

    async def decide(
        self: Service,
        placement: str,
        key: str,
        arms: Sequence[Arm] | None = None,
        context: Sequence[float] | None = None,
        id: str | None = None,
        deferred: bool = False,
    ) -> DecisionRow:
        """Choose an arm for one impression; returns when the decision is durable.

        In a placement of ``durability = "buffered"`` it returns at once.

        Parameters
        ----------
        placement : str
        key : str
            What the decision is for; at most 512 bytes.
        arms : sequence of arms, optional
            The arms on offer; by default all.
        context : sequence of float, optional
            Signals about the key.
        id : str, optional
            The decision's id, from which its draws come; the same request again gets the same
            answer. By default a new UUID.
        deferred : bool
            Whether the decision counts only once it is activated.

        Returns
        -------
        DecisionRow

        Raises
        ------
        UnknownName, InvalidValue
            If the placement or an arm is unknown, or a value does not fit.
        Conflict
            If the id stands for another decision.
        Unavailable
            If the decision could not be made durable.
        """
        known = self.placement(placement)
        check_path(known, "decide")
        impression = known.checked(DecisionRequest(key, arms, context, id, deferred))
        row: DecisionRow = (await self.decide_many(placement, [impression]))[0]
        return row

    async def feedback(
        self: Service, placement: str, decision: str, reward: float, id: str | None = None
    ) -> str:
        """Record what came back for a decision; returns when it is durable.

        Parameters
        ----------
        placement : str
        decision : str
            The decision's id.
        reward : float
            In [0, 1].
        id : str, optional
            The feedback's id; the same feedback again changes nothing.

        Returns
        -------
        str
            What became of it, one of :data:`tacit.service.attribution.attribution.OUTCOMES`.

        Raises
        ------
        UnknownName, InvalidValue
            If the placement is unknown or the reward outside [0, 1].
        UnknownDecision
            If the placement never made the decision.
        Conflict
            If the id stands for other feedback.
        RepeatedFeedback
            If the decision has had 100 already.
        Unavailable
            If the feedback could not be made durable.
        """
        return await _one(self, placement, Feedback(decision, REWARD, reward, id))

    async def examined(self: Service, placement: str, decision: str, id: str | None = None) -> str:
        """Record that what was shown was looked at; otherwise as :meth:`feedback`."""
        return await _one(self, placement, Feedback(decision, EXAMINED, None, id))

    async def activate(self: Service, placement: str, decision: str, id: str | None = None) -> str:
        """Let a deferred decision count from now on; otherwise as :meth:`feedback`."""
        return await _one(self, placement, Feedback(decision, ACTIVATE, None, id))


async def _one(service: Service, placement: str, feedback: Feedback) -> str:
    (outcome,) = await service.record_many(placement, [feedback])
    if isinstance(outcome, TacitError):
        raise outcome
    return outcome
