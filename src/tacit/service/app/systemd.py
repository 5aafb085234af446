"""Telling systemd how the service is, where systemd has started it (``Type=notify``)."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.service.engine.service import Overview


READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"
PINGS = 3
"""Pings in the time after which systemd would take the service for dead."""

logger = logging.getLogger(__name__)


def notify(state: str) -> None:
    """Send a state to the socket that ``NOTIFY_SOCKET`` names, if it names one.

    Source: the manual page sd_notify(3).
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(state.encode(), address)
    except OSError as error:
        logger.warning("systemd could not be notified of %s: %s", state, error.strerror)


class Progress:
    """Whether an engine gets on with what waits.

    Parameters
    ----------
    engine : Overview
    """

    def __init__(self, engine: Overview) -> None:
        self._engine = engine
        self._events = -1

    def made(self) -> bool:
        """Whether nothing waits, or something was logged since the last call.

        A store that fails is none of this: the engine knows, tries again, and may hold rows that
        are nowhere else. To start anew would mend nothing and lose them.
        """
        health, waiting = self._engine.health(), self._engine.waiting
        before, self._events = self._events, health.events
        return not (waiting and health.ready and health.events == before)


async def watch(engine: Overview) -> None:
    """Ping systemd's watchdog while the event loop runs and the engine makes progress."""
    seconds = _watchdog_seconds()
    progress = Progress(engine)
    while seconds:
        if progress.made():
            notify(ALIVE)
        await asyncio.sleep(seconds / PINGS)


def _watchdog_seconds() -> float:
    """Return after how long a silent service is taken for dead; 0 for never."""
    time, pid = (os.environ.get(name, "") for name in ("WATCHDOG_USEC", "WATCHDOG_PID"))
    if not time.isdecimal() or pid not in ("", str(os.getpid())):
        return 0.0
    return int(time) / 1e6
