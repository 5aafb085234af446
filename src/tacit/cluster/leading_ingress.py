"""The leading ingress: it starts the shards, shares what they learned, and opens further ingresses."""

# 1. ``Doors``: further processes that take connections at the same address.
# 2. ``Exchange``: on an interval each shard says what it learned, and is given what the others did.
# 3. ``LeadingIngress``: starts all of it, replaces what is lost, and ends it.

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time as clocks
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tacit.cluster.ingress import Ingress
from tacit.cluster.shard import Spares
from tacit.cluster.shard_link import Link, OwnLink
from tacit.cluster.tasks import imported
from tacit.errors import TacitError
from tacit.service.config.schema import Config
from tacit.service.engine.shard_layout import check_starts
from tacit.service.errors import NotDurable
from tacit.service.log.ids import Shard
from tacit.service.placements.aspects.shared_learning import Learned, Value

# ---- Further ingresses at one address: the system deals connections out among them
#
# Each is a process on the machine of the first one, and listens at the same port (SO_REUSEPORT). It
# knows the shards by the handles that the first one gave, and owns nothing: if it dies, what it was
# about to answer is not answered, and the first one starts another.

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
        NotDurable
            If it does not come about; the log says why.
        """
        from tacit.service.app.logging_setup import set_up
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
            raise NotDurable("ingress: it did not start; its log says why")
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
        NotDurable
            If one does not.
        """
        self._config, self._place, self._shards = config, (host, port), list(shards)
        try:
            await asyncio.gather(*(self._open(place) for place in range(len(self._actors))))
        except self._errors as error:
            raise NotDurable(f"ingress: it did not start: {error}") from error

    async def _open(self, place: int) -> None:
        ray = imported()
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        options = {"num_cpus": 0, "max_concurrency": 8, "scheduling_strategy": here}
        self._actors[place] = actor = ray.remote(Door).options(**options).remote()
        try:
            pid = await _awaited(actor.open.remote(self._config, *self._place, self._shards))
        except self._errors:
            # It lives, and would be taken for one that answers.
            ray.kill(actor)
            raise
        logger.info("ingress %d answers, too: process %d", place + 1, pid)

    async def keep(self) -> None:
        """Put another one in the place of each that dies."""
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            for place, actor in enumerate(self._actors):
                try:
                    try:
                        await _awaited(actor.pid.remote())
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
        calls = (_awaited(door.reload.remote(config)) for door in filter(None, self._actors))
        for result in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(result, BaseException):
                logger.error("an ingress has not taken over the configuration: %s", result)

    async def stop(self) -> None:
        """Let all answer what has arrived, and end them."""
        actors, self._actors = [*filter(None, self._actors)], []
        calls = (_awaited(door.stop.remote()) for door in actors)
        await asyncio.gather(*calls, return_exceptions=True)
        for door in actors:
            imported().kill(door)


async def _awaited(reference: Any) -> Any:
    return await asyncio.wrap_future(reference.future())


# ---- Sharing between shards, on an interval: each sends what it learned, and gets the rest

LARGEST_PART = 500
"""Keys sent at once."""


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
        # By receiver and sender: what the one has yet to hear of the other.
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
        times = dict(enumerate(await asyncio.gather(*map(self._ask, range(len(self._links))))))
        await asyncio.gather(*(self._tell(receiver, times, began) for receiver in range(len(self._links))))

    async def _ask(self, sender: int) -> dict[str, int]:
        """Take what a shard tells into what others are owed; return when it was true."""
        link = self._links[sender]
        everything = self._everything[sender] or self._losses[sender] != link.losses
        self._everything[sender], self._losses[sender] = True, link.losses
        try:
            learned: dict[str, Learned] = await link.call("learned", everything)
        except TacitError as error:
            logger.debug("%s has sent nothing: %s", link, error)
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
        for sender, learned_at in times.items():
            owed = self._owed.get((receiver, sender), {})
            for name, time in learned_at.items():
                parts = owed.get(name, {})
                try:
                    while parts:
                        part = dict(list(parts.items())[:LARGEST_PART])
                        await link.call("take_in", name, [Learned(sender, time, part)])
                        for key in part:
                            del parts[key]
                except TacitError as error:
                    logger.debug("%s has heard nothing: %s", link, error)
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


# ---- The leading ingress: it starts the shards, and the processes that answer for them


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
        ConfigError, NotDurable
            If a shard cannot; another one may have by then.
        """
        check_starts(config)
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
