"""Sharing between shards, on an interval: each sends what it learned, and gets the rest."""

from __future__ import annotations

import asyncio
import logging
import time as clocks
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tacit.errors import TacitError
from tacit.service.placements.shared import Learned, Value

if TYPE_CHECKING:
    from tacit.cluster.link import Link

LARGEST_PART = 500
"""Keys sent at once."""

logger = logging.getLogger(__name__)


class Exchange:
    """Carries what shards learn to the others.

    What a shard tells stays here until each of the others has it in its log. A shard whose answer
    was lost is asked for everything, and repeating does no harm.

    Parameters
    ----------
    links : sequence of Link
    seconds : float
        Between two rounds.
    """

    def __init__(self, links: Sequence[Link], seconds: float) -> None:
        self._links = links
        self._seconds = seconds
        self._everything = dict.fromkeys(range(len(links)), True)
        # By receiver and sender: what the one has to be told of the other.
        self._owed: dict[tuple[int, int], dict[str, dict[str, Value]]] = {}
        self._fresh: dict[tuple[str, int, int], float] = {}
        self._losses = [link.losses for link in links]

    async def run(self) -> None:
        """Share, round after round."""
        while True:
            await asyncio.sleep(self._seconds)
            try:
                await self.round()
            except Exception:
                # What was owed stays so.
                logger.exception("what was learned could not be shared")

    async def round(self) -> None:
        """Let each shard tell, then tell each."""
        if len(self._links) < 2:
            return
        began = clocks.monotonic()
        times = dict(
            zip(
                range(len(self._links)),
                await asyncio.gather(*map(self._ask, range(len(self._links)))),
                strict=True,
            )
        )
        await asyncio.gather(*(self._tell(receiver, times, began) for receiver in range(len(self._links))))

    async def _ask(self, sender: int) -> dict[str, int]:
        """Take what a shard tells into what others are owed; return when it was true."""
        link = self._links[sender]
        everything = self._everything[sender] or self._losses[sender] != link.losses
        self._everything[sender], self._losses[sender] = True, link.losses
        try:
            learned: dict[str, Learned] = await link.call("learned", everything)
        except TacitError as error:
            logger.debug("%s told nothing: %s", link, error)
            return {}
        self._everything[sender] = False
        for receiver in range(len(self._links)):
            if receiver != sender:
                owed = self._owed.setdefault((receiver, sender), {})
                for name, news in learned.items():
                    owed.setdefault(name, {}).update(news.parts)
        return {name: news.time for name, news in learned.items()}

    async def _tell(self, receiver: int, times: dict[int, dict[str, int]], began: float) -> None:
        """Pay a shard what it is owed."""
        link = self._links[receiver]
        for sender, told_at in times.items():
            owed = self._owed.get((receiver, sender), {})
            for name, time in told_at.items():
                parts = owed.get(name, {})
                try:
                    while parts:
                        some = dict(list(parts.items())[:LARGEST_PART])
                        await link.call("take_in", name, [Learned(sender, time, some)])
                        for key in some:
                            del parts[key]
                except TacitError as error:
                    logger.debug("%s was not told: %s", link, error)
                    return
                if sender != receiver:
                    self._fresh[name, receiver, sender] = began

    def age(self, placement: str) -> float | None:
        """Return how many seconds old what some shard knows of another one is, at most.

        None where nothing is shared, or was not yet.
        """
        known = [at for (name, *_), at in self._fresh.items() if name == placement]
        pairs = len(self._links) * (len(self._links) - 1)
        return clocks.monotonic() - min(known) if known and len(known) == pairs else None
