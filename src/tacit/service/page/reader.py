"""What the page may ask: of a service, and of one placement. It changes nothing.

A live engine and what shards show together both answer it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self

from tacit.learning.decisions import Arm
from tacit.learning.lanes import Offer
from tacit.service.config.holdout import HoldoutConfig
from tacit.service.config.schema import Config, PlacementConfig
from tacit.service.engine.reading import Health, KeyFacts, KeysFound, ShardHealth
from tacit.service.engine.rebuilding import State
from tacit.service.engine.verdicts import ReadVerdict
from tacit.service.kind import Kind
from tacit.service.log.marks import LoggedChange, Pin
from tacit.service.placements.lift_sums import LiftSums
from tacit.service.placements.series import Series


class PlacementReader(Protocol):
    """What may be read of a placement: what it is, counts, sums over time, arms, the lift.

    Attributes
    ----------
    name : str
    kind : Kind
    config : PlacementConfig
    mode : str
    modes : tuple of str
        Those that its kind knows.
    decisions, feedback : int
    outcomes : Counter
        What became of feedback.
    series : Series
        Sums over time, of all keys.
    holdout : HoldoutConfig or None
        The one that holds now.
    arms : list of arms
        Of all slots.
    restarts : bool
        Whether its policy starts keys over.
    shows_one : bool
    snapshot_time : int or None
    since_snapshot : int
        Events since the latest one.
    """

    name: str
    kind: Kind
    config: PlacementConfig
    mode: str
    decisions: int
    feedback: int
    outcomes: Counter[str]
    series: Series
    holdout: HoldoutConfig | None
    arms: list[Arm]
    restarts: bool
    snapshot_time: int | None
    since_snapshot: int
    signals: Any

    @property
    def lift(self) -> LiftSums:
        """Return the sums behind the lift."""

    @property
    def modes(self) -> tuple[str, ...]:
        """Return the modes that its kind knows."""

    @property
    def shows_one(self) -> bool:
        """Whether a decision shows one arm."""

    @property
    def snapshot_after(self) -> int:
        """Return after how many events the next snapshot is worth its while."""

    @property
    def key_count(self) -> int:
        """Return how many keys there are."""

    @property
    def pending(self) -> int:
        """Return how many decisions have an open window."""

    @property
    def closes(self) -> int | None:
        """Return when the last window closes that is open."""

    @property
    def randomized(self) -> bool:
        """Whether decisions carry propensities."""

    @property
    def offer(self) -> Offer:
        """Return the arms, and which of them are on offer."""

    def still(self) -> Self:
        """Return what there is to see of it by now, for another thread."""

    def pin_at(self, time: int) -> Pin | None:
        """Return what is pinned at a time."""

    def check_mode(self, mode: str) -> None:
        """Raise InvalidValue if it cannot be in a mode."""

    def check_living(self) -> None:
        """Raise InvalidValue if its arms cannot come and go."""


class Reader(Protocol):
    """What may be read of a service.

    Attributes
    ----------
    clock : function
        Returns the time in microseconds since 1970.
    config : Config
    """

    clock: Callable[[], int]
    config: Config

    @property
    def placements(self) -> Mapping[str, PlacementReader]:
        """Return the placements by their names."""

    def placement(self, name: str) -> PlacementReader:
        """Return a placement, or raise UnknownName."""

    def health(self) -> Health:
        """Return how the service and its store are."""

    def shards(self) -> Sequence[ShardHealth]:
        """Return how each shard is; none where all is in this process."""

    def shared_seconds(self, placement: str) -> float | None:
        """Return how old what shards of a placement know of each other is, at most."""

    async def history(self, placement: str) -> list[LoggedChange]:
        """Return who changed what of a placement, in order."""

    async def verdict(self, placement: str, *, patience: float = ...) -> ReadVerdict:
        """Return what the searches of a placement of duels say by now."""

    async def states(self, placement: str) -> list[State]:
        """Return what a placement can go back to, in order."""

    async def key(self, placement: str, key: str) -> KeyFacts:
        """Return what was learned of a key, or raise UnknownName."""

    async def busiest(self, placement: str) -> list[KeyFacts]:
        """Return the busiest keys of a placement."""

    async def find_keys(self, placement: str, text: str) -> KeysFound:
        """Return keys in which a text occurs."""
