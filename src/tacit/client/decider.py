"""Decisions next to the caller for other languages: the service's own HTTP, answered from what it lends.

It answers this machine only, so it asks for no key. It keeps nothing but what :class:`~tacit.client.Local`
keeps: what was learned, and what is not yet delivered.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import uvicorn
from starlette.types import Receive, Scope, Send

from tacit.client.call import ServiceError
from tacit.client.clients import AsyncClient
from tacit.client.lent import encode
from tacit.client.local import SPOOLED, Local
from tacit.errors import InvalidValue, UnknownName
from tacit.service.app.guard import Guard
from tacit.service.app.server import (
    SWITCH_SECONDS,
    address_of,
    listener_at,
    print_address,
    settle_memory,
    stopped_by_signals,
)
from tacit.service.config.keys import is_loopback
from tacit.service.config.schema import Config
from tacit.service.http.endpoint import FOUND, JSON, Endpoint
from tacit.service.http.messages import AT_ONCE, PROBLEMS, REFUSALS, problem, refused
from tacit.service.http.route import Answer, Api, Handler, Route, RouteCall, route_of
from tacit.wire import verbs
from tacit.wire.decisions import Decided, Feedback, Impression, Recorded
from tacit.wire.site import Status

PORT = 8788


class Placed(NamedTuple):
    """A placement next to the caller, and a client for what only the service can decide."""

    name: str
    local: Local
    client: AsyncClient


# ---- What is answered


async def _decide(_: Any, call: RouteCall) -> Decided:
    asked: Impression = call.request
    here: Placed = call.placement
    # What says more of itself is the service's to decide.
    if asked == Impression(asked.key, asked.arms, asked.context, asked.decision_id):
        made = here.local.decide_here(
            asked.key, arms=asked.arms, context=asked.context, decision_id=asked.decision_id
        )
        if made is not None:
            return made
    return await here.client.decide(here.name, **msgspec.structs.asdict(asked))


async def _feedback(_: Any, call: RouteCall) -> Recorded:
    given: Feedback = call.request
    call.placement.local.feedback(
        given.decision_id, given.reward, metrics=given.metrics, feedback_id=given.feedback_id
    )
    return Recorded(given.decision_id, False, SPOOLED, SPOOLED)


async def _known(_: Any, call: RouteCall) -> Answer:
    return Answer(200, JSON, encode(call.placement.local.known()))


async def _alive(_: Any, call: RouteCall) -> Status:
    return Status("ok")


def _passed_on(handler: Handler) -> Handler:
    """Let what the service refuses be refused as it did; and what finds no room on the disk."""

    async def handled(opened: Any, call: RouteCall) -> Any:
        try:
            return await handler(opened, call)
        except OSError as error:
            return refused(
                problem("unavailable", "folder", f"folder: {error.strerror}; make room on the disk")
            )
        except ServiceError as error:
            kind = error.kind if error.kind in PROBLEMS else "unavailable"
            return refused(problem(kind, error.field, str(error)))

    return handled


def _placed(placements: Mapping[str, Placed], name: str | None, id: str) -> Placed:
    try:
        return placements[name or ""]
    except KeyError:
        raise UnknownName(
            f"placement: {name!r} is not decided for here; start the decide-server with --placement {name}"
        ) from None


APIS = (
    Api(
        "/v1/placements/{name}/",
        "/v1/placements/(?P<name>[^/]+)/",
        (
            route_of(verbs.DECIDE, _passed_on(_decide)),
            route_of(verbs.FEEDBACK, _passed_on(_feedback)),
            Route("GET", "known", "known", "Say what is known here of each shard, and how old it is", _known),
        ),
        REFUSALS,
        lambda placements: placements,
        placed=_placed,
        whole=True,
    ),
    Api(
        "",
        "",
        (
            Route(
                "GET", "/healthz", "alive", "Say whether the process runs", _alive, scope=None, of="none",
                answer=Status,
            ),
        ),
        REFUSALS,
        lambda placements: None,
        whole=True,
    ),
)  # fmt: skip


def application(placements: Mapping[str, Placed]) -> Guard:
    """Return the ASGI application that decides for some placements, behind the service's guard."""
    config, places = Config({}), asyncio.Semaphore(AT_ONCE)
    endpoints = {
        path: Endpoint(path, api.opened(placements), lambda: config.server, places)
        for api in APIS
        for path in (*api.paths.values(), api.unknown)
    }

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        found = next(found for api in APIS if (found := api.find(scope["path"])) is not None)
        scope[FOUND] = found
        await endpoints[found.path](scope, receive, send)

    uncounted: Any = Uncounted()
    return Guard(app, config, uncounted, uncounted, lambda: None)


class Uncounted:
    """In place of what counts the service's answers."""

    def answered(self, label: str, status: int, seconds: float) -> None:
        """Count nothing."""

    def count(self, name: str | None, status: int, seconds: float) -> None:
        """Count nothing."""


# ---- The process


def serve(
    url: str,
    placements: Sequence[str],
    folder: Path,
    key: str | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    every: float = 5.0,
    stale: float = 3600.0,
    ready: Callable[[str], None] = print_address,
) -> None:
    """Answer for some placements of a service until it is stopped (SIGTERM or SIGINT).

    Parameters
    ----------
    url, key, every, stale
        As for :class:`~tacit.client.Local`.
    placements : sequence of str
        Of kind ``arms``.
    folder : Path
        Where decisions wait that the service has not got yet; of one process.
    host : str, default "127.0.0.1"
        One of this machine's own.
    port : int, default 8788
        0 takes any free one.
    ready : function, optional
        Called with the address once requests are answered; by default it is printed.

    Raises
    ------
    InvalidValue
        If the host answers to other machines, or an argument is not allowed.
    AddressUnavailable
        If the address cannot be taken.
    TacitError
        If another process uses the folder.
    """
    if not is_loopback(host):
        raise InvalidValue("host", host, "it asks for no key, so give an address of this machine: 127.0.0.1")
    with listener_at(host, port) as listener, contextlib.ExitStack() as stack:
        client = AsyncClient(url, key, retries=0)
        placed = {
            name: Placed(
                name,
                stack.enter_context(Local(url, name, folder / name, key, every=every, stale=stale)),
                client,
            )
            for name in placements
        }
        server = _Server(application(placed), partial(ready, address_of(listener)))
        settle_memory()
        sys.setswitchinterval(SWITCH_SECONDS)
        with stopped_by_signals(server):
            server.run(sockets=[listener])


class _Server(uvicorn.Server):
    """Tells when it answers."""

    def __init__(self, app: Guard, ready: Callable[[], None]) -> None:
        self._ready = ready
        super().__init__(
            uvicorn.Config(
                app, loop="uvloop", http="httptools", ws="none", lifespan="off", access_log=False,
                log_config=None, log_level="warning", server_header=False, proxy_headers=False,
            )
        )  # fmt: skip

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()
