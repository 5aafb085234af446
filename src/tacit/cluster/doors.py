"""Further ingresses at one address: the system deals connections out among them.

Each is a process on the machine of the first one, and listens at the same port (SO_REUSEPORT). It
knows the shards by the handles that the first one gave, and owns nothing: if it dies, what it was
about to answer is not answered, and the first one starts another.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tacit.cluster.ingress import Ingress
from tacit.cluster.link import Link
from tacit.cluster.sweeps import imported
from tacit.service.errors import Unavailable
from tacit.service.log.ids import Shard

if TYPE_CHECKING:
    from tacit.service.config.schema import Config

KEEP_SECONDS = 1.0

Shards = Sequence[tuple[Shard, Any]]
"""The shards, and Ray's handles of them."""

logger = logging.getLogger(__name__)


class Door:
    """An ingress in an actor; its server has a thread of its own."""

    def open(self, config: Config, host: str, port: int, shards: Shards) -> int:
        """Answer at an address; return the id of the process.

        Raises
        ------
        Unavailable
            If it does not come about; the log says why.
        """
        from tacit.service.app.logs import set_up
        from tacit.service.app.server import bound, settle_memory

        # The process that was started speaks with systemd.
        os.environ.pop("NOTIFY_SOCKET", None)
        set_up(config.server.log)
        self._links = [Link(shard, actor) for shard, actor in shards]
        answering = threading.Event()

        def ready(address: str) -> None:
            self._loop = asyncio.get_running_loop()
            answering.set()

        def run() -> None:
            try:
                self._server.run(sockets=[listener])
            finally:
                answering.set()

        self._server, listener = bound(
            config, host, port, ready, opening=lambda given: Ingress(given, self._links), joins=True
        )
        settle_memory()
        self._thread = threading.Thread(target=run, name="tacit-ingress", daemon=True)
        self._thread.start()
        answering.wait()
        if not self._server.started:
            raise Unavailable("ingress: it did not start; its log says why")
        return os.getpid()

    def pid(self) -> int:
        """Return the id of the process."""
        return os.getpid()

    def attach(self, number: int, actor: Any) -> None:
        """Go on with an actor that took the place of a shard."""
        self._loop.call_soon_threadsafe(self._links[number].attach, actor)

    def reload(self, config: Config) -> None:
        """Take over another configuration."""
        asyncio.run_coroutine_threadsafe(self._server.take_over(config), self._loop).result()

    def stop(self) -> None:
        """Answer what has arrived, and end."""
        self._server.should_exit = True
        self._thread.join()


class Doors:
    """The further ingresses, as the first one keeps them.

    Parameters
    ----------
    count : int
        How many there are.
    """

    def __init__(self, count: int) -> None:
        self._actors: list[Any] = [None] * count
        self._errors = imported().exceptions.RayError

    async def open(self, config: Config, host: str, port: int, shards: Shards) -> None:
        """Let all answer at an address that the first one has.

        Raises
        ------
        Unavailable
            If one does not.
        """
        self._config, self._place, self._shards = config, (host, port), list(shards)
        try:
            await asyncio.gather(*(self._open(place) for place in range(len(self._actors))))
        except self._errors as error:
            raise Unavailable(f"ingress: it did not start: {error}") from error

    async def _open(self, place: int) -> None:
        ray = imported()
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        options = {"num_cpus": 0, "max_concurrency": 8, "scheduling_strategy": here}
        self._actors[place] = actor = ray.remote(Door).options(**options).remote()
        pid = await _told(actor.open.remote(self._config, *self._place, self._shards))
        logger.info("ingress %d answers, too: process %d", place + 1, pid)

    async def keep(self) -> None:
        """Put another one in the place of each that dies."""
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            for place, actor in enumerate(self._actors):
                try:
                    try:
                        await _told(actor.pid.remote())
                    except imported().exceptions.ActorDiedError:
                        logger.error("ingress %d is lost; another one takes its place", place + 1)
                        await self._open(place)
                except self._errors as error:
                    logger.error("ingress %d does not answer: %s", place + 1, error)

    def attach(self, number: int, actor: Any) -> None:
        """Let all go on with an actor that took the place of a shard."""
        if self._actors and self._actors[0] is not None:
            self._shards[number] = self._shards[number][0], actor
        for door in filter(None, self._actors):
            door.attach.remote(number, actor)

    async def reload(self, config: Config) -> None:
        """Let all take over another configuration."""
        self._config = config
        calls = (_told(door.reload.remote(config)) for door in filter(None, self._actors))
        for result in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(result, BaseException):
                logger.error("an ingress has not taken over the configuration: %s", result)

    async def stop(self) -> None:
        """Let all answer what has arrived, and end them."""
        actors, self._actors = [*filter(None, self._actors)], []
        calls = (_told(door.stop.remote()) for door in actors)
        await asyncio.gather(*calls, return_exceptions=True)
        for door in actors:
            imported().kill(door)


async def _told(reference: Any) -> Any:
    return await asyncio.wrap_future(reference.future())
