"""A spare actor, warmed up: it takes the place of a shard that is lost.

Starting a process and loading the compiled loops takes seconds, opening a log does not. The spare
has done the first; the epoch in the database sees to it that the lost one, should it live on
somewhere, writes no more.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from tacit.cluster.shard import ShardActor
from tacit.cluster.sweeps import imported

if TYPE_CHECKING:
    from tacit.service.config.schema import Config

logger = logging.getLogger(__name__)


def new_actor() -> Any:
    """Return an actor for any shard."""
    options = {"max_restarts": 0, "max_concurrency": 10_000, "scheduling_strategy": "SPREAD"}
    return imported().remote(ShardActor).options(**options).remote()


class Spares:
    """Holds one spare.

    Parameters
    ----------
    config : Config
        Whose placements it is warmed up for.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._spare: Any = None

    def take(self) -> Any:
        """Return the spare; a cold actor if there is none."""
        spare, self._spare = self._spare, None
        return new_actor() if spare is None else spare

    async def refill(self) -> None:
        """Make a spare if there is none, and warm it up."""
        if self._spare is not None:
            return
        self._spare = spare = new_actor()
        try:
            await asyncio.wrap_future(spare.warm.remote(self._config).future())
        except imported().exceptions.RayError as error:
            logger.warning("the spare could not be warmed up: %s", error)
            if self._spare is spare:
                self._spare = None

    def close(self) -> None:
        """End the spare."""
        if self._spare is not None:
            imported().kill(self._spare)
