"""The leading ingress: starts shards, exchanges their learned state, and starts further ingresses."""

# 1. ``FurtherIngresses``: further processes that accept connections at the same address.
# 2. ``Exchange``: at an interval, sends what each shard learned to the other shards.
# 3. ``LeadingIngress``: starts, replaces and stops shards and ingresses.

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
from tacit.cluster.tasks import import_ray
from tacit.errors import TacitError
from tacit.service.config.schema import Config
from tacit.service.engine.shard_layout import check_starts
from tacit.service.errors import NotDurable
from tacit.service.log.ids import Shard
from tacit.service.projections.shared_learning import SharedUpdate, Value

# ---- Further ingresses at one address: the operating system distributes connections
#
# Each is a process on the machine of the leading ingress, and listens at the same port (SO_REUSEPORT).
# It gets the shards' handles from the leading ingress and has no state: if it dies, its open requests
# are lost, and the leading ingress starts another one.

CHECK_SECONDS = 1.0

Shards = Sequence[tuple[Shard, Any]]
"""The shards, with Ray's handles of their actors."""

logger = logging.getLogger(__name__)


class IngressActor:
    """A Ray actor that runs an ingress; its server has a separate thread."""

    def open(self, config: Config, host: str, port: int, shards: Shards) -> int:
        """Start a server at an address, in a thread; return the process id once it accepts requests.

        Raises
        ------
        NotDurable
            If the server does not start; the log has the reason.
        """
        from tacit.service.app.logging_setup import set_up
        from tacit.service.app.server import open_server, settle_memory

        # Only the main process notifies systemd.
        os.environ.pop("NOTIFY_SOCKET", None)
        set_up(config.server.log)
        self._links = [Link(shard, actor) for shard, actor in shards]
        answering = threading.Event()

        def ready(address: str) -> None:
            self._loop = asyncio.get_running_loop()
            answering.set()

        def run() -> None:
            """Run the server until it stops; also after an error, end the wait for its start."""
            try:
                self._server.run(sockets=[listener])
            finally:
                answering.set()

        self._server, listener = open_server(
            config, host, port, ready, opening=lambda given: Ingress(given, self._links), reuse_port=True
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
        """Make a shard's link use a new actor, which replaced a lost one."""
        self._loop.call_soon_threadsafe(self._links[number].attach, actor)

    def reload(self, config: Config) -> None:
        """Adopt a new configuration in the server, and wait until it is adopted."""
        asyncio.run_coroutine_threadsafe(self._server.apply_configuration(config), self._loop).result()

    def stop(self) -> None:
        """Stop the server, and wait until pending requests are answered."""
        self._server.should_exit = True
        self._thread.join()


class FurtherIngresses:
    """The further ingresses, supervised by the leading one.

    Parameters
    ----------
    count : int
        Number of further ingresses.
    """

    def __init__(self, count: int) -> None:
        self._actors: list[Any] = [None] * count
        self._errors = import_ray().exceptions.RayError

    async def open(self, config: Config, host: str, port: int, shards: Shards) -> None:
        """Start all further ingresses at the leading ingress's address, and wait until they serve.

        Raises
        ------
        NotDurable
            If an ingress does not start.
        """
        self._config, self._address, self._shards = config, (host, port), list(shards)
        try:
            await asyncio.gather(*(self._open(index) for index in range(len(self._actors))))
        except self._errors as error:
            raise NotDurable(f"ingress: it did not start: {error}") from error

    async def _open(self, index: int) -> None:
        """Start an ingress in a new actor on this machine; kill the actor and raise if it does not serve."""
        ray = import_ray()
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        options = {"num_cpus": 0, "max_concurrency": 8, "scheduling_strategy": strategy}
        self._actors[index] = actor = ray.remote(IngressActor).options(**options).remote()
        try:
            pid = await _await_reference(actor.open.remote(self._config, *self._address, self._shards))
        except self._errors:
            # The actor is alive, and would be taken for a working ingress.
            ray.kill(actor)
            raise
        logger.info("ingress %d answers, too: process %d", index + 1, pid)

    async def keep_alive(self) -> None:
        """Check the ingresses every second, and replace any that died, forever; errors are logged."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            for index, actor in enumerate(self._actors):
                try:
                    try:
                        await _await_reference(actor.pid.remote())
                    except import_ray().exceptions.ActorDiedError:
                        logger.error("ingress %d is lost; another one takes its place", index + 1)
                        await self._open(index)
                except self._errors as error:
                    logger.error("ingress %d does not answer: %s", index + 1, error)

    def attach(self, number: int, actor: Any) -> None:
        """Make all ingresses, also later ones, use a new actor for a shard that was replaced; do not wait."""
        if self._actors and self._actors[0] is not None:
            self._shards[number] = self._shards[number][0], actor
        for ingress_actor in filter(None, self._actors):
            ingress_actor.attach.remote(number, actor)

    async def reload(self, config: Config) -> None:
        """Make all ingresses adopt a new configuration; failures are only logged."""
        self._config = config
        calls = (_await_reference(actor.reload.remote(config)) for actor in filter(None, self._actors))
        for result in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(result, BaseException):
                logger.error("an ingress has not taken over the configuration: %s", result)

    async def stop(self) -> None:
        """Make all ingresses answer pending requests, then kill their actors; errors are ignored."""
        actors, self._actors = [*filter(None, self._actors)], []
        calls = (_await_reference(actor.stop.remote()) for actor in actors)
        await asyncio.gather(*calls, return_exceptions=True)
        for actor in actors:
            import_ray().kill(actor)


async def _await_reference(reference: Any) -> Any:
    return await asyncio.wrap_future(reference.future())


# ---- Exchange between shards at an interval: each sends what it learned, and gets the others' updates

MAX_KEYS = 500
"""Most keys sent at once."""


class Exchange:
    """Exchange what shards learn among all shards.

    A shard's updates are held until each other shard has them in its log. If a shard's answer is
    lost, it is asked for everything; updates are idempotent.

    Parameters
    ----------
    links : sequence of Link
    seconds : float
        Seconds between two rounds.
    """

    def __init__(self, links: Sequence[Link], seconds: float) -> None:
        self._links = links
        self._seconds = seconds
        self._needs_everything = dict.fromkeys(range(len(links)), True)
        # By receiver and sender: updates that the receiver does not have yet.
        self._unsent: dict[tuple[int, int], dict[str, dict[str, Value]]] = {}
        self._shared_at: dict[tuple[str, int, int], float] = {}
        self._losses = [link.losses for link in links]

    async def run(self) -> None:
        """Exchange updates at the interval, forever; log an error, and retry in the next round."""
        while True:
            await asyncio.sleep(self._seconds)
            try:
                await self.round()
            except Exception:
                # Unsent updates are kept for the next round.
                logger.exception("what was learned could not be shared")

    async def round(self) -> None:
        """Collect updates from each shard, then deliver them to all others; nothing for a single shard."""
        if len(self._links) < 2:
            return
        began = clocks.monotonic()
        times = dict(enumerate(await asyncio.gather(*map(self._collect, range(len(self._links))))))
        await asyncio.gather(*(self._deliver(receiver, times, began) for receiver in range(len(self._links))))

    async def _collect(self, sender: int) -> dict[str, int]:
        """Add a shard's updates to the unsent ones of all others; return the updates' times by placement.

        It is asked for everything at first, after a loss, and after a lost answer. If it does not answer, the
        result is empty.
        """
        link = self._links[sender]
        everything = self._needs_everything[sender] or self._losses[sender] != link.losses
        self._needs_everything[sender], self._losses[sender] = True, link.losses
        try:
            learned: dict[str, SharedUpdate] = await link.call("learned", everything)
        except TacitError as error:
            logger.debug("%s has sent nothing: %s", link, error)
            return {}
        self._needs_everything[sender] = False
        for receiver in range(len(self._links)):
            if receiver != sender:
                unsent = self._unsent.setdefault((receiver, sender), {})
                for name, update in learned.items():
                    unsent.setdefault(name, {}).update(update.parts)
        return {name: update.time for name, update in learned.items()}

    async def _deliver(self, receiver: int, times: dict[int, dict[str, int]], began: float) -> None:
        """Send a shard its unsent updates in batches, remove those sent, and record the time of exchange.

        If it does not answer, the remaining ones stay unsent.
        """
        link = self._links[receiver]
        for sender, learned_at in times.items():
            unsent = self._unsent.get((receiver, sender), {})
            for name, time in learned_at.items():
                values = unsent.get(name, {})
                try:
                    while values:
                        batch = dict(list(values.items())[:MAX_KEYS])
                        await link.call("take_in", name, [SharedUpdate(sender, time, batch)])
                        for key in batch:
                            del values[key]
                except TacitError as error:
                    logger.debug("%s has heard nothing: %s", link, error)
                    return
                if sender != receiver:
                    self._shared_at[name, receiver, sender] = began

    def oldest_age(self, placement: str) -> float | None:
        """Return the seconds since the least recent exchange between any two shards.

        None if nothing is shared for this placement, or not yet between all shards.

        None if nothing is shared, or not yet between all shards.
        """
        times = [time for (name, *_), time in self._shared_at.items() if name == placement]
        pairs = len(self._links) * (len(self._links) - 1)
        return clocks.monotonic() - min(times) if times and len(times) == pairs else None


# ---- The leading ingress: starts the shards and the further ingresses


class LeadingIngress(Ingress):
    """An ingress that owns its shards: starts, replaces, configures and stops them.

    Parameters
    ----------
    config : Config
        Configuration, with a seed for each placement.
    links : sequence of OwnLink
    spares : Spares
    further_ingresses : FurtherIngresses
    merge_seconds : float
        Seconds between exchanges of what shards learned for all keys.
    add_seeds : function
        Returns a configuration with seeds added to its placements.
    on_close : function
        Called after the stop.
    """

    def __init__(
        self,
        config: Config,
        links: Sequence[OwnLink],
        spares: Spares,
        further_ingresses: FurtherIngresses,
        merge_seconds: float,
        add_seeds: Callable[[Config], Config],
        on_close: Callable[[], None],
    ) -> None:
        super().__init__(config, links)
        self._own_links = links
        self._spares, self._further_ingresses = spares, further_ingresses
        self._exchange = Exchange(links, merge_seconds)
        self._add_seeds, self._on_close = add_seeds, on_close

    async def start(self) -> None:
        """Start as an ingress does, then begin to exchange updates between shards and to warm up a spare."""
        await super().start()
        self._tasks += [asyncio.create_task(self._exchange.run()), asyncio.create_task(self._spares.refill())]

    async def open_further_ingresses(self, host: str, port: int) -> None:
        """Start the further ingresses at this one's address, and a task that replaces any that die."""
        shards = [(link.shard, link.actor) for link in self.links]
        await self._further_ingresses.open(self.config, host, port, shards)
        self._tasks.append(asyncio.create_task(self._further_ingresses.keep_alive()))

    async def stop(self) -> None:
        """Stop the further ingresses, then the shards, which first answer pending requests.

        The spare is killed, and ``on_close`` is called at the end.
        """
        await self._further_ingresses.stop()
        await super().stop()
        self._spares.close()
        self._on_close()

    async def reload(self, config: Config) -> None:
        """Adopt a new configuration in every shard, the first one first, then in all ingresses.

        Raises
        ------
        ConfigError, NotDurable
            If a shard cannot; other shards may have adopted it.
        """
        check_starts(config)
        config = await asyncio.to_thread(self._add_seeds, config)
        for link in self._own_links:
            link.config = msgspec.structs.replace(config, store=link.config.store)
        first, *followers = self._own_links
        arms = await first.call("reload", first.config, {})
        for link in followers:
            link.leading = arms
        await self._gather_all(link.call("reload", link.config, arms) for link in followers)
        await super().reload(config)
        await self._further_ingresses.reload(config)

    def sharing_seconds(self, placement: str) -> float | None:
        """Return the seconds since the least recent exchange of two shards; None if nothing is shared."""
        return self._exchange.oldest_age(placement)
