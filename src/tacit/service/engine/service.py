"""What HTTP, the page and the metrics need from whatever decides: an engine, or many behind one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from tacit.errors import TacitError
from tacit.learning.offer import Offer
from tacit.service.config.holdout import HoldoutConfig
from tacit.service.config.schema import Config
from tacit.service.engine.commits import Commits
from tacit.service.engine.rebuilding import Rebuilt, State
from tacit.service.log.changes import Change
from tacit.service.log.impressions import Impression
from tacit.service.log.pins import Pin
from tacit.service.log.requests import ChangeArms, ChangeHoldout, Feedback, PinArms
from tacit.service.log.rows import DecisionRow, Event, RecordRow
from tacit.service.log.searches import Subject
from tacit.service.placements.base import Placement
from tacit.service.reading.health import Health, ShardHealth
from tacit.service.reading.keys import Found, KeyFacts
from tacit.service.reading.lending import Lent
from tacit.service.reading.verdicts import PATIENCE, Verdict
from tacit.service.stores.base import Forgotten

NOT_LENT = "ask the service for decisions: each shard has learned a part of it"


NO_REBUILD_IN_SHARDS = (
    "in shards a log is not folded anew; begin a placement of another name with that policy"
)


@runtime_checkable
class Overview(Protocol):
    """What there is to see of a service; everything is answered from memory.

    Attributes
    ----------
    clock : function
        Returns the time in microseconds since 1970.
    """

    clock: Callable[[], int]

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


@runtime_checkable
class Service(Overview, Protocol):
    """What answers requests: :class:`~tacit.service.engine.engine.Engine` says what each does.

    Attributes
    ----------
    config : Config
    kept : Counter
        How many records of each placement and kind were kept since the start.
    """

    config: Config
    kept: Counter[tuple[str, str]]

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

    async def record_many(self, placement: str, feedback: Sequence[Feedback]) -> list[str | TacitError]:
        """Record much feedback."""

    async def made(self, placement: str, ids: Sequence[str]) -> dict[str, DecisionRow]:
        """Return those decisions that a placement made, by their ids."""

    async def keep(self, placement: str, records: Sequence[RecordRow]) -> list[str | None]:
        """Keep records of what was not decided here."""

    async def switch(self, placement: str, mode: str, who: str | None = None) -> None:
        """Change a placement's mode."""

    async def note_settings(self, placement: str, settings: str, who: str | None = None) -> None:
        """Give a placement other settings."""

    async def lend(self, placement: str) -> Lent:
        """Return what a placement has learned, for those who decide elsewhere with it."""

    async def change_arms(self, change: ChangeArms) -> Offer:
        """Let arms of a placement come and go."""

    async def pin(self, asked: PinArms) -> Pin | None:
        """Let every decision of a placement show some arms until a time."""

    async def hold(self, asked: ChangeHoldout) -> HoldoutConfig | None:
        """Give a placement another holdout, or none."""

    async def forget(self, subject: Subject, who: str | None = None) -> dict[str, Forgotten]:
        """Forget somebody: blank what rows tell of them."""

    async def key(self, placement: str, key: str) -> KeyFacts:
        """Return what was learned of a key."""

    async def busiest(self, placement: str) -> list[KeyFacts]:
        """Return the busiest keys of a placement."""

    async def find_keys(self, placement: str, text: str) -> Found:
        """Return keys in which a text occurs."""

    async def verdict(
        self,
        placement: str,
        confidence: float = 0.95,
        false_share: float = 0.05,
        *,
        patience: float = PATIENCE,
    ) -> Verdict:
        """Return what the searches of a placement of duels say by now."""

    async def states(self, placement: str) -> list[State]:
        """Return what a placement can go back to."""

    async def rebuild(self, placement: str, spec: Any, who: str | None = None) -> Rebuilt:
        """Fold the log of a placement into another policy, and go on with that."""

    async def rollback(self, placement: str, to: str | None = None, who: str | None = None) -> Rebuilt:
        """Go back to what was learned before."""

    async def history(self, placement: str) -> list[Change]:
        """Return who changed what of a placement, in order."""


class LoggedService(Service, Protocol):
    """A service with one log, which can be read as a whole."""

    async def learner(self, placement: str) -> Lent:
        """Return what a placement has learned, as a learner's file."""

    async def logged(self, placement: str, after: int, count: int) -> list[Event]:
        """Return the next rows of the log that concern a placement."""
