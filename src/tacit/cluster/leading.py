"""The leading ingress: it starts the shards, and whoever else answers for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from tacit.cluster.doors import Doors
from tacit.cluster.exchange import Exchange
from tacit.cluster.ingress import Ingress
from tacit.cluster.link import OwnLink
from tacit.cluster.spares import Spares
from tacit.service.config.schema import Config
from tacit.service.engine.opening import check_kinds


class LeadingIngress(Ingress):
    """An ingress that owns its shards: it starts, replaces, configures and ends them.

    Parameters
    ----------
    config : Config
        Its placements have seeds.
    links : sequence of OwnLink
    spares : Spares
    doors : Doors
        Further ingresses.
    merge_seconds : float
        How often what is learned for all keys is shared.
    seeded : function
        Returns a configuration with the seeds of its placements.
    closed : function
        Called at the end.
    """

    def __init__(
        self,
        config: Config,
        links: Sequence[OwnLink],
        spares: Spares,
        doors: Doors,
        merge_seconds: float,
        seeded: Callable[[Config], Config],
        closed: Callable[[], None],
    ) -> None:
        super().__init__(config, links)
        self._own = links
        self._spares, self._doors = spares, doors
        self._exchange = Exchange(links, merge_seconds)
        self._seeded, self._closed = seeded, closed

    async def start(self) -> None:
        """Begin to serve, once every shard has opened its log."""
        await super().start()
        self._tasks += [asyncio.create_task(self._exchange.run()), asyncio.create_task(self._spares.refill())]

    async def open_doors(self, host: str, port: int) -> None:
        """Let others answer, too, at the address where this one does."""
        shards = [(link.shard, link.actor) for link in self.links]
        await self._doors.open(self.config, host, port, shards)
        self._tasks.append(asyncio.create_task(self._doors.keep()))

    async def stop(self) -> None:
        """Let every shard finish what waits."""
        await self._doors.stop()
        await super().stop()
        self._spares.close()
        self._closed()

    async def reload(self, config: Config) -> None:
        """Take over another configuration in every shard.

        Raises
        ------
        ConfigError, Unavailable
            If a shard cannot; another one may have by then.
        """
        check_kinds(config)
        config = await asyncio.to_thread(self._seeded, config)
        for link in self._own:
            link.config = msgspec.structs.replace(config, store=link.config.store)
        first, *others = self._own
        arms = await first.call("reload", first.config, {})
        for link in others:
            link.leading = arms
        await self._of_all(link.call("reload", link.config, arms) for link in others)
        await super().reload(config)
        await self._doors.reload(config)

    def shared_seconds(self, placement: str) -> float | None:
        """Return how old what its shards know of each other is; None if they share nothing."""
        return self._exchange.age(placement)
