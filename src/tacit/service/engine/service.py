"""What HTTP, the page and the metrics need from whatever decides: an engine, or many behind one."""

# 1. ``Service``: what HTTP, pages and metrics ask for; an engine and an ingress have it.
# 2. ``Verbs``: one decision, one piece of feedback, by the calls for many.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from tacit.errors import TacitError, UnknownName
from tacit.learning.decisions import Arm
from tacit.service.config.schema import Config
from tacit.service.engine.rebuilding import Replacement, State
from tacit.service.engine.reports import Health, KeyFacts, KeysFound, Lent, ShardHealth
from tacit.service.engine.verdicts import PATIENCE, ReadVerdict
from tacit.service.engine.writer import Commits
from tacit.service.kind import check_path
from tacit.service.log.change_events import LoggedChange
from tacit.service.log.requests import Decide, DecisionRequest, FeedbackRequest, Impression, Record
from tacit.service.log.rows import ACTIVATE, EXAMINED, REWARD, DecisionRow
from tacit.service.log.search_records import Subject
from tacit.service.log.store import BlankedRows
from tacit.service.placements.placement import Placement
from tacit.wire.lift import LATEST, ForWhom

# ---- What HTTP, the page and the metrics need from whatever decides: an engine, or many behind one

NO_REBUILD_IN_SHARDS = (
    "in shards a log is not folded anew; begin a placement of another name with that policy"
)


@runtime_checkable
class Service(Protocol):
    """What answers requests: :class:`~tacit.service.engine.engine.Engine` says what each does.

    Attributes
    ----------
    config : Config
    clock : function
        Returns the time in microseconds since 1970.
    """

    config: Config
    clock: Callable[[], int]

    # What there is to see, answered from memory.

    @property
    def placements(self) -> Mapping[str, Placement]:
        """Return the placements by their names."""

    @property
    def waiting(self) -> int:
        """Return how many requests wait for a group."""

    def placement(self, name: str) -> Placement:
        """Return a placement, or raise UnknownName."""

    def health(self) -> Health:
        """Return how the service and its store are."""

    def shards(self) -> list[ShardHealth]:
        """Return how each shard is; none where all is in this process."""

    def shared_seconds(self, placement: str) -> float | None:
        """Return how old what shards of a placement know of each other is, at most."""

    # What it does.

    @property
    def commits(self) -> Commits:
        """Return how long commits take, for metrics and traces."""

    async def start(self) -> None:
        """Begin to serve."""

    async def stop(self) -> None:
        """Finish what waits, and end."""

    async def reload(self, config: Config) -> None:
        """Take over another configuration."""

    def durability(self, placement: str) -> str:
        """Return what answers of a placement promise."""

    async def decide_many(self, placement: str, impressions: Sequence[Impression]) -> Sequence[DecisionRow]:
        """Choose for many impressions."""

    async def record_many(
        self, placement: str, feedback: Sequence[FeedbackRequest]
    ) -> list[str | TacitError]:
        """Record much feedback."""

    async def serve(self, request: Decide | Record) -> Any:
        """Return what :meth:`decide_many` or :meth:`record_many` does."""

    async def ask(self, placement: str, request: Any, who: str | None = None) -> Any:
        """Change a placement; return what is so then."""

    async def lend(self, placement: str, shard: int | None = None) -> Lent:
        """Return what a placement has learned, for those who decide elsewhere with it."""

    async def lends(self, placement: str) -> list[int | None]:
        """Return how far what each shard lends is: the last row that it knows."""

    async def forget(self, subject: Subject, who: str | None = None) -> dict[str, BlankedRows]:
        """Forget somebody: blank what rows tell of them."""

    async def key(self, placement: str, key: str) -> KeyFacts:
        """Return what was learned of a key."""

    async def busiest(self, placement: str) -> list[KeyFacts]:
        """Return the busiest keys of a placement."""

    async def find_keys(self, placement: str, text: str) -> KeysFound:
        """Return keys in which a text occurs."""

    async def for_whom(self, placement: str, limit: int = LATEST) -> ForWhom:
        """Return which users a placement shows what."""

    async def verdict(
        self,
        placement: str,
        confidence: float = 0.95,
        false_share: float = 0.05,
        *,
        patience: float = PATIENCE,
    ) -> ReadVerdict:
        """Return what the searches of a placement of duels say by now."""

    async def states(self, placement: str) -> list[State]:
        """Return what a placement can go back to."""

    async def rebuild(self, placement: str, spec: Any, who: str | None = None) -> Replacement:
        """Fold the log of a placement into another policy, and go on with that."""

    async def rollback(self, placement: str, to: str | None = None, who: str | None = None) -> Replacement:
        """Go back to what was learned before."""

    async def history(self, placement: str) -> list[LoggedChange]:
        """Return who changed what of a placement, in order."""


# ---- One decision, one piece of feedback: what every service does with its many at once


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

    async def serve(self: Service, request: Decide | Record) -> Any:
        """Return what :meth:`decide_many` or :meth:`record_many` does."""
        if isinstance(request, Decide):
            return await self.decide_many(*request)
        return await self.record_many(*request)

    def durability(self: Service, placement: str) -> str:
        """Return what answers of a placement promise."""
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
            What became of it, one of :data:`tacit.wire.decisions.OUTCOMES`.

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
        return await _one(self, placement, FeedbackRequest(decision, REWARD, reward, id))

    async def examined(self: Service, placement: str, decision: str, id: str | None = None) -> str:
        """Record that what was shown was looked at; otherwise as :meth:`feedback`."""
        return await _one(self, placement, FeedbackRequest(decision, EXAMINED, None, id))

    async def activate(self: Service, placement: str, decision: str, id: str | None = None) -> str:
        """Let a deferred decision count from now on; otherwise as :meth:`feedback`."""
        return await _one(self, placement, FeedbackRequest(decision, ACTIVATE, None, id))


async def _one(service: Service, placement: str, feedback: FeedbackRequest) -> str:
    (outcome,) = await service.record_many(placement, [feedback])
    if isinstance(outcome, TacitError):
        raise outcome
    return outcome
