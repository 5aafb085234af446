"""The connection from an ingress to one shard, which sends pending requests in batches.

While a call is open, new requests are queued for the next one, so batches grow with the load without
a timer. When the shard dies, open requests are refused and not sent again, because the shard may have
executed them; a client that gave its decision an id may repeat the request. Until the shard is back,
requests are refused at once.
"""

# 1. ``Link``: queues requests, sends them as one call, and returns the answers.
# 2. ``OwnLink``: the same for a shard that this process started, and replaces if it is lost.

from __future__ import annotations

import asyncio
import contextlib
import logging
import time as clocks
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tacit.cluster.shard import PULSE, Request, ShardLost, ShardSnapshot, Spares, create_actor
from tacit.cluster.tasks import import_ray
from tacit.errors import TacitError, undo_on_error
from tacit.service.engine.reports import Health
from tacit.service.errors import NotDurable
from tacit.service.log.ids import Shard

if TYPE_CHECKING:
    from tacit.service.config.schema import Config

MAX_REQUESTS = 1024
MAX_CALLS = 2
"""Most open calls: while the shard commits one batch, it receives the next."""
RETRY_SECONDS = 0.2
PATIENCE_SECONDS = 20.0
"""Seconds without an answer until a shard's liveness is checked, and as many more until it counts as lost.

A shard that compiles a loop on a busy machine may be slow to answer.
"""

PendingRequest = tuple[Request, "asyncio.Future[Any]"]

logger = logging.getLogger(__name__)


class Link:
    """The connection to a shard that another process started.

    Parameters
    ----------
    shard : Shard
    actor : object
        Ray's handle of the shard's actor.

    Attributes
    ----------
    arms : dict of str to str
        All arms of each placement at the last refresh, in the format of change events.
    leading : dict of str to str
        Arms that the shard must adopt, the first shard's arms; empty for the first shard itself.
    """

    def __init__(self, shard: Shard, actor: Any) -> None:
        self.shard = shard
        self.up = False
        self.pid: int | None = None
        self.losses = 0
        self.recovery_seconds: float | None = None
        self.health: Health | None = None
        self.snapshots: dict[str, ShardSnapshot] = {}
        self.arms: dict[str, str] = {}
        self.leading: dict[str, str] = {}
        self._waiting_in_shard = 0
        self.actor = actor
        self._errors = import_ray().exceptions.RayError, asyncio.TimeoutError
        self._tasks: set[asyncio.Task[None]] = set()
        self._queue: deque[PendingRequest] = deque()
        self._open_calls = 0
        self._reviving: asyncio.Task[None] | None = None
        self._stopping = False

    def __str__(self) -> str:
        return f"shard {self.shard.number} of {self.shard.shards}"

    async def open(self) -> None:
        """Wait until the shard has opened its log; then the link is up.

        Raises
        ------
        TacitError
            If the shard cannot open it.
        """
        try:
            await self._connect()
        except self._errors as error:
            raise _to_tacit_error(error, str(self)) from error
        self.up = True

    async def _connect(self) -> None:
        """Set the shard's process id, which it returns once its log is open."""
        self.pid = await self._call_actor("pid")

    def attach(self, actor: Any) -> None:
        """Send further calls to a new actor, which replaced the shard's lost one."""
        self.actor = actor

    async def _call_actor(self, method: str, *arguments: Any, watched: bool = True) -> Any:
        """Call a method of the actor, and return its result.

        If ``watched``, check its liveness every 20 seconds while waiting; raise TimeoutError if that fails.
        """
        actor = self.actor
        answer = asyncio.wrap_future(getattr(actor, method).remote(*arguments).future())
        with undo_on_error(answer.cancel):
            while watched and not (await asyncio.wait([answer], timeout=PATIENCE_SECONDS))[0]:
                pulse = actor.pulse.options(concurrency_group=PULSE).remote()
                await asyncio.wait_for(asyncio.wrap_future(pulse.future()), PATIENCE_SECONDS)
        return await answer

    # Requests --------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Number of pending requests, in this link's queue and in the shard."""
        return len(self._queue) + self._waiting_in_shard

    async def serve(self, request: Request) -> Any:
        """Queue a request for the next batch, wait, and return its answer.

        Raises
        ------
        TacitError
            The shard's error, or NotDurable if the shard is down.
        """
        if not self.up:
            raise self._unavailable_error()
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append((request, reply))
        if self._open_calls < MAX_CALLS:
            self._open_calls += 1
            task = asyncio.create_task(self._send_pending())
            # The event loop holds only a weak reference to the task.
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await reply

    def _unavailable_error(self) -> NotDurable:
        """Return the error for requests to a shard that is down."""
        return NotDurable(f"shard: {self} is being started again; try again later")

    async def _send_pending(self) -> None:
        """Send the queued requests in batches until the queue is empty."""
        try:
            # Let requests of the same moment join the batch.
            await asyncio.sleep(0)
            while self._queue:
                size = min(len(self._queue), MAX_REQUESTS)
                await self._send([self._queue.popleft() for _ in range(size)])
        finally:
            self._open_calls -= 1

    async def _send(self, group: list[PendingRequest]) -> None:
        """Send a batch to the shard, and set the result or error of each request's future.

        If the call fails, the shard is marked as lost, and all get NotDurable.
        """
        try:
            results = await self._call_actor("serve", [request for request, _ in group], watched=False)
        except self._errors as error:
            # Includes a restarted actor that has not opened its log.
            self._mark_lost(error)
            results = [self._unavailable_error()] * len(group)
        for (_, reply), result in zip(group, results, strict=True):
            if reply.done():
                continue
            if isinstance(result, TacitError):
                reply.set_exception(result)
            elif isinstance(result, BaseException):
                logger.error("%s failed", self, exc_info=result)
                reply.set_exception(NotDurable(f"shard: {self} failed; try again later"))
            else:
                reply.set_result(result)

    # Loss and recovery -----------------------------------------------------------------------

    def _mark_lost(self, error: BaseException) -> None:
        """Mark the shard as down, fail all queued requests, and start its recovery; once per loss."""
        if not self.up or self._stopping:
            return
        self.up = False
        self.losses += 1
        logger.error("%s is lost: %s", self, str(error).partition("\n")[0])
        queue, self._queue = self._queue, deque()
        for _, reply in queue:
            if not reply.done():
                reply.set_exception(self._unavailable_error())
        self._reviving = asyncio.create_task(self._revive())

    async def _revive(self) -> None:
        """Retry until the shard, or the actor that replaced it, answers; then the link is up again."""
        while not self._stopping:
            try:
                await self._connect()
            except self._errors as error:
                logger.debug("%s is not back: %s", self, _to_tacit_error(error, str(self)))
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self.up = True
                return

    # Other calls -----------------------------------------------------------------------------

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call another method of the shard, and return its result; mark a shard that does not answer as lost.

        Raises
        ------
        TacitError
            The shard's error, or NotDurable if the shard is down.
        """
        if not self.up:
            raise self._unavailable_error()
        try:
            return await self._call_actor(method, *arguments)
        except self._errors as error:
            cause = _to_tacit_error(error, str(self))
            if isinstance(cause, ShardLost):
                self._mark_lost(error)
            raise cause from error

    async def engine(self, verb: str, *arguments: Any) -> Any:
        """Call a coroutine of the shard's engine, and return its result; raise as :meth:`call`."""
        return await self.call("engine", verb, *arguments)

    async def refresh(self) -> None:
        """Update health, pending requests, snapshots and arms from the shard; on an error, keep the last."""
        with contextlib.suppress(TacitError):
            self.health, self._waiting_in_shard, self.snapshots, self.arms = await self.call("look")

    async def stop(self) -> None:
        """Stop reviving the shard and marking it as lost; the shard keeps running."""
        self._stopping = True
        if self._reviving is not None:
            self._reviving.cancel()


class OwnLink(Link):
    """The connection to a shard that this process starts, and replaces if it is lost.

    Parameters
    ----------
    shard : Shard
    config : Config
        Configuration with the shard's store.
    spares : Spares
    on_replaced : function
        Called with the shard's number and its new actor.
    """

    def __init__(
        self,
        shard: Shard,
        config: Config,
        spares: Spares,
        on_replaced: Callable[[int, Any], None] = lambda number, actor: None,
    ) -> None:
        super().__init__(shard, create_actor())
        self.config = config
        self._spares, self._on_replaced = spares, on_replaced

    async def _connect(self) -> None:
        """Make the actor open the shard's log; set its process id."""
        self.pid = await self._call_actor("ready", self.shard, self.config, watched=False)

    async def _revive(self) -> None:
        """Replace the shard's actor by the spare until one opens the log; then the link is up again.

        The old actor is killed, ``on_replaced`` is called, and a new spare is warmed up.
        """
        start = clocks.monotonic()
        while not self._stopping:
            # The old actor may be alive; it loses its log to the new one.
            import_ray().kill(self.actor)
            self.actor = self._spares.take()
            if await self._reopen():
                self.recovery_seconds = clocks.monotonic() - start
                logger.warning("%s is back after %.1f s", self, self.recovery_seconds)
                self.up = True
                self._on_replaced(self.shard.number, self.actor)
                await self._spares.refill()
                return

    async def _reopen(self) -> bool:
        """Make the new actor open the log and adopt the first shard's arms, with retries; True on success.

        False if the actor died, or the link stops.
        """
        while not self._stopping:
            try:
                self.pid = await self._call_actor("ready", self.shard, self.config)
                # Arms may have changed during the outage.
                await self._call_actor("follow", self.leading, None)
                return True
            except self._errors as error:
                logger.info("%s is not back: %s", self, _to_tacit_error(error, str(self)))
                if isinstance(error, import_ray().exceptions.RayActorError):
                    break
            await asyncio.sleep(RETRY_SECONDS)
        return False

    async def stop(self) -> None:
        """Let the shard finish pending work and close its log, then kill its actor; errors are logged."""
        await super().stop()
        try:
            if self.up:
                await self._call_actor("stop", watched=False)
        except self._errors as error:
            logger.error("%s did not end well: %s", self, error)
        import_ray().kill(self.actor)


def _to_tacit_error(error: BaseException, shard: str) -> TacitError:
    """Return the TacitError that caused an error of Ray, or else ShardLost."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, TacitError):
        return cause
    first = str(error).strip().partition("\n")[0] or type(error).__name__
    return ShardLost(f"shard: {shard} does not answer: {first}")
