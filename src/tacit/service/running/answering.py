"""What answers: uvicorn over the application of an engine, with its own connections."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Any

import uvicorn

from tacit.errors import ConfigError, TacitError
from tacit.service.app.app import application
from tacit.service.app.guard import Guard
from tacit.service.config.keys import Keys, is_loopback
from tacit.service.config.schema import Config
from tacit.service.engine.service import Service
from tacit.service.http.protocol import Connections, Protocol
from tacit.service.running import systemd

DRAIN_SECONDS = 30

logger = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """Answers for an engine, and tells when it does.

    Parameters
    ----------
    config : Config
    engine : Service
        What decides.
    ready : function
        Called once requests are answered.
    reread : function, optional
        Gives the configuration anew on SIGHUP.
    missed : sequence of int
        Signals to read it anew that came before it could be.
    traced : function, optional
        Gives the application with its requests traced.
    """

    def __init__(
        self,
        config: Config,
        engine: Service,
        ready: Callable[[], None],
        *,
        reread: Callable[[], Config] | None = None,
        missed: Sequence[int] = (),
        traced: Callable[[Guard, Service], Any] | None = None,
    ) -> None:
        self._engine, self._ready, self._reread, self._missed = engine, ready, reread, missed
        self._connections = Connections(config.server)
        self._app = application(engine, self._connections)
        self._watching: list[asyncio.Task[None]] = []
        if traced is not None:
            # A span is for what passes through the application.
            self._connections.usual = None
        super().__init__(
            uvicorn.Config(
                self._app if traced is None else traced(self._app, engine),
                loop="uvloop",
                http=_protocol(self._connections),
                ws="none",
                lifespan="on",
                access_log=False,
                log_config=None,
                log_level="warning",
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=DRAIN_SECONDS,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._hosts = [listener.getsockname()[0] for listener in sockets or ()]
        if self.started:
            self._watching = [
                asyncio.create_task(self._connections.watch(self.server_state.connections)),
                asyncio.create_task(systemd.watch(self._engine)),
            ]
            if self._reread is not None and hasattr(signal, "SIGHUP"):
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._renew)
                if self._missed:
                    self._renew()
            self._ready()
            systemd.notify(systemd.READY)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        systemd.notify(systemd.STOPPING)
        self._app.close()
        await super().shutdown(sockets)
        for task in self._watching:
            task.cancel()

    async def take_over(self, config: Config) -> None:
        """Go on with another configuration.

        Raises
        ------
        TacitError
            If it cannot be; then nothing changes.
        """
        before = self._engine.config.keys
        if not config.keys and not all(map(is_loopback, self._hosts)):
            raise ConfigError(
                f"keys: there is none, and {', '.join(self._hosts)} answers to other machines, "
                "which needs keys; keep one, or start the service anew on another server.host"
            )
        await self._engine.reload(config)
        self._app.configure(config.server, Keys(config.keys))
        self._connections.configure(config.server)
        if config.keys != before:
            self._app.close()
        opened = bool(before) and not config.keys
        logger.log(
            logging.WARNING if opened else logging.INFO,
            "the configuration was read anew: %d placements%s",
            len(config.placements),
            "; it has no keys any more: everybody on this machine may do everything" * opened,
        )

    def _renew(self) -> None:
        self._renewing = asyncio.ensure_future(self._take_over_anew())

    async def _take_over_anew(self) -> None:
        """Read the configuration anew; one that is wrong changes nothing."""
        assert self._reread is not None
        try:
            await self.take_over(await asyncio.to_thread(self._reread))
        except TacitError as error:
            logger.error("the configuration stays as it was: %s", error)


def _protocol(connections: Connections) -> type[Protocol]:
    """Return what uvicorn makes for each connection; all of a server share their limits."""

    class Connection(Protocol):
        shared = connections

    return Connection
