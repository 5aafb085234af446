"""The interface between HTTP, the page and the metrics, and the engine or a shard."""

# 1. ``Service``: the protocol that an engine and a shard implement.
# 2. ``Verbs``: methods for one decision or one piece of feedback, by the methods for many.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from tacit.errors import TacitError, UnknownName
from tacit.learning.decisions import Arm
from tacit.service.config.schema import Config
from tacit.service.engine.rebuilding import Replacement, State
from tacit.service.engine.reports import Health, KeyFacts, KeyMatches, ReplicaFile, ShardHealth
from tacit.service.engine.verdicts import PATIENCE, ReadVerdict
from tacit.service.engine.writer import Commits, Waiter
from tacit.service.kind import check_path
from tacit.service.log.change_events import LoggedChange
from tacit.service.log.requests import Decide, DecisionRequest, FeedbackRequest, Impression, Record
from tacit.service.log.rows import ACTIVATE, EXAMINED, REWARD, DecisionRow
from tacit.service.log.search_records import Subject
from tacit.service.log.store import BlankedRows
from tacit.service.placements.placement import Placement
from tacit.wire.lift import LATEST, ForWhom

# ---- The protocol of an engine and of a shard

NO_REBUILD_IN_SHARDS = (
    "in shards a log is not folded anew; begin a placement of another name with that policy"
)


@runtime_checkable
class Service(Protocol):
    """Protocol of the service that answers requests, an engine or a shard.

    :class:`~tacit.service.engine.engine.Engine` documents the methods.

    Attributes
    ----------
    config : Config
    clock : function
        Returns the time in microseconds since 1970.
    """

    config: Config
    clock: Callable[[], int]

    # Reads from memory.

    @property
    def merged(self) -> Service:
        """Return the same service, where placements show the statistics of all shards."""

    @property
    def answer_headers(self) -> Sequence[tuple[bytes, bytes]]:
        """Return the headers of all answers."""

    @property
    def placements(self) -> Mapping[str, Placement]:
        """Return the placements by their names."""

    @property
    def waiting(self) -> int:
        """Return the number of requests that wait to be served."""

    def placement(self, name: str) -> Placement:
        """Return a placement by its name, or raise UnknownName."""

    def health(self) -> Health:
        """Return the health of the service and its store."""

    def shards(self) -> list[ShardHealth]:
        """Return the health of each shard; an empty list without shards."""

    def sharing_seconds(self, placement: str) -> float | None:
        """Return the age in seconds of the oldest sums that a placement's shards have of each other.

        None if the placement's learning is not shared.
        """

    # Reads and changes that may wait.

    @property
    def commits(self) -> Commits:
        """Return the counts and times of commits, for metrics and traces."""

    async def start(self) -> None:
        """Begin to serve requests."""

    async def stop(self) -> None:
        """Answer the waiting requests, and stop serving."""

    async def reload(self, config: Config) -> None:
        """Apply another configuration while requests are served."""

    def durability(self, placement: str) -> str:
        """Return the durability of a placement: ``committed`` or ``buffered``."""

    async def decide_many(self, placement: str, impressions: Sequence[Impression]) -> Sequence[DecisionRow]:
        """Decide for many impressions of a placement; return one decision for each, in order."""

    async def record_many(
        self, placement: str, feedback: Sequence[FeedbackRequest]
    ) -> list[str | TacitError]:
        """Record many pieces of feedback; return for each its outcome, or the error that refused it."""

    async def serve(self, request: Decide | Record) -> Any:
        """Serve a request by :meth:`decide_many` or :meth:`record_many`, and return its result."""

    def begin(self, request: Decide | Record, reply: Waiter) -> None:
        """Begin to serve a request without waiting; its result or error is set in ``reply``."""

    async def ask(self, placement: str, request: Any, who: str | None = None) -> Any:
        """Change a placement's mode, arms or other setting, and log the change; return its new setting."""

    async def export_replica(self, placement: str, shard: int | None = None) -> ReplicaFile:
        """Return a placement's learner as a file, for replicas in clients."""

    async def list_replica_rows(self, placement: str) -> list[int | None]:
        """Return, for each shard, the last row that its learner for replicas includes."""

    async def forget(self, subject: Subject, who: str | None = None) -> dict[str, BlankedRows]:
        """Blank the data of a user in all rows; return the numbers of blanked rows by placement."""

    async def key(self, placement: str, key: str) -> KeyFacts:
        """Return the learned state of a key of a placement."""

    async def busiest(self, placement: str) -> list[KeyFacts]:
        """Return the learned states of a placement's keys with the most impressions."""

    async def find_keys(self, placement: str, text: str) -> KeyMatches:
        """Return the keys of a placement that contain a text."""

    async def report_segments(self, placement: str, limit: int = LATEST) -> ForWhom:
        """Return which arms a placement shows to which segments of users."""

    async def verdict(
        self,
        placement: str,
        confidence: float = 0.95,
        false_share: float = 0.05,
        *,
        patience: float = PATIENCE,
    ) -> ReadVerdict:
        """Return the verdict on the rankers of a placement of duels, from its log."""

    async def states(self, placement: str) -> list[State]:
        """Return the stored learned states to which a placement can be rolled back."""

    async def rebuild(self, placement: str, spec: Any, who: str | None = None) -> Replacement:
        """Replace the policy of a placement by another one that has learned from its log."""

    async def rollback(self, placement: str, to: str | None = None, who: str | None = None) -> Replacement:
        """Restore a stored learned state of a placement, by default the one replaced last; log the change."""

    async def history(self, placement: str) -> list[LoggedChange]:
        """Return the changes of a placement, in order."""


# ---- Methods for one decision or one piece of feedback, by the methods for many


class Verbs:
    """Methods for one decision or one piece of feedback, by a service's methods for many."""

    def placement(self: Service, name: str) -> Placement:
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

    async def serve(self: Service, request: Decide | Record) -> Any:
        """Serve a request by :meth:`decide_many` or :meth:`record_many`; return decisions or outcomes."""
        if isinstance(request, Decide):
            return await self.decide_many(*request)
        return await self.record_many(*request)

    def durability(self: Service, placement: str) -> str:
        """Return the durability of a placement: ``committed`` or ``buffered``."""
        return self.config.placements[placement].durability

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

    async def feedback(
        self: Service, placement: str, decision: str, reward: float, id: str | None = None
    ) -> str:
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
        return await _record_one(self, placement, FeedbackRequest(decision, REWARD, reward, id))

    async def record_examination(self: Service, placement: str, decision: str, id: str | None = None) -> str:
        """Record that a user looked at the arms of a decision; return the outcome once it is durable.

        Parameters and errors are those of :meth:`feedback`, without a reward.
        """
        return await _record_one(self, placement, FeedbackRequest(decision, EXAMINED, None, id))

    async def activate(self: Service, placement: str, decision: str, id: str | None = None) -> str:
        """Activate a deferred decision, so that it counts; return the outcome once it is durable.

        Parameters and errors are those of :meth:`feedback`, without a reward.
        """
        return await _record_one(self, placement, FeedbackRequest(decision, ACTIVATE, None, id))


async def _record_one(service: Service, placement: str, feedback: FeedbackRequest) -> str:
    """Record one piece of feedback by ``record_many``; return its outcome, or raise its error."""
    (outcome,) = await service.record_many(placement, [feedback])
    if isinstance(outcome, TacitError):
        raise outcome
    return outcome
