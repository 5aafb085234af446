"""What the page may ask: of a service, and of one placement. It changes nothing.

A live engine and what shards show together both answer it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tacit.service.config.schema import Config
from tacit.service.engine.reading import Health, KeyFacts, KeysFound, ShardHealth
from tacit.service.engine.rebuilding import State
from tacit.service.engine.verdicts import ReadVerdict
from tacit.service.log.marks import LoggedChange
from tacit.service.placements.placement import Placement
from tacit.wire.whom import ForWhom


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
    def placements(self) -> Mapping[str, Placement]:
        """Return the placements by their names."""

    def placement(self, name: str) -> Placement:
        """Return a placement, or raise UnknownName."""

    def health(self) -> Health:
        """Return how the service and its store are."""

    def shards(self) -> Sequence[ShardHealth]:
        """Return how each shard is; none where all is in this process."""

    def shared_seconds(self, placement: str) -> float | None:
        """Return how old what shards of a placement know of each other is, at most."""

    async def history(self, placement: str) -> list[LoggedChange]:
        """Return who changed what of a placement, in order."""

    async def for_whom(self, placement: str) -> ForWhom:
        """Return which users a placement shows what."""

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
