"""The usual requests, one decision and one piece of feedback, without a framework's detours.

They pass the same guard, are done by the same endpoints, and are counted and logged alike. What
they do without is a task, a scope and messages. All other requests go through uvicorn.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from typing import Any

from tacit.service.app.guard import Guard, Visit
from tacit.service.app.routes import PLACEMENTS, find
from tacit.service.config.schema import ServerConfig
from tacit.service.http.endpoint import Endpoint
from tacit.service.http.messages import Headers, request_id
from tacit.service.http.protocol import AnswerUnderWay
from tacit.service.http.route import Addressed, Answer, Path

USUAL = "decide", "feedback"
"""Their paths; what answers them awaits nothing but futures."""
METHOD = "POST"
PECULIAR = frozenset((b"expect", b"transfer-encoding", b"origin", b"sec-fetch-site"))
"""Headers of requests that are not usual."""
BROKEN = 500


class UsualAnswers:
    """Answers the usual requests to the placements that there are.

    Parameters
    ----------
    guard : Guard
    endpoints : mapping of Path to Endpoint
    placements : mapping
        By their names.
    server : function
        Returns the configuration of now, for its limits.
    """

    def __init__(
        self,
        guard: Guard,
        endpoints: Mapping[Path, Endpoint],
        placements: Mapping[str, Any],
        server: Callable[[], ServerConfig],
    ) -> None:
        self._guard, self._endpoints = guard, endpoints
        self._placements, self._server = placements, server
        self._paths = [PLACEMENTS.paths[name] for name in USUAL]
        self._found: dict[bytes, Addressed] = {}

    def find(self, address: bytes) -> Addressed | None:
        """Return what an address names; None if that is not usual."""
        known = self._found.get(address)
        if known is not None:
            return known
        found = find(address.decode("latin-1"))
        # What strangers ask for must not fill the memory, and how they spell it is uvicorn's.
        if found.path in self._paths and found.name in self._placements and b"%" not in address:
            self._found[address] = found
            return found
        return None

    def size(self, headers: Headers) -> int | None:
        """Return the size of the body that comes with some headers; None if they are not usual."""
        if not PECULIAR.isdisjoint(headers):
            return None
        length = headers.get(b"content-length", b"")
        # Ten digits are too long for any limit.
        if not length.isdigit() or len(length) > 9:
            return None
        size = int(length)
        return size if size <= self._server().body_limit else None

    def begin(
        self,
        found: Addressed,
        address: bytes,
        headers: Headers,
        body: bytes,
        client: tuple[str, int] | None,
        reply: AnswerUnderWay,
    ) -> None:
        """Begin to answer a request."""
        visit = self._guard.enter(found, METHOD, address, headers)
        refusal = self._guard.refusal(visit, client)
        if refusal is not None:
            _finish(self._guard, visit, reply, refusal)
            return
        work = self._endpoints[found.path].answer(METHOD, found, b"", body, visit.caller)
        _Work(self._guard, visit, work, reply).begin()


class _Work:
    """An endpoint's work for one request, taken further whenever what it awaits has come."""

    __slots__ = ("_guard", "_reply", "_steps", "_visit")

    def __init__(self, guard: Guard, visit: Visit, work: Awaitable[Answer], reply: AnswerUnderWay) -> None:
        self._guard, self._visit, self._reply = guard, visit, reply
        self._steps = work.__await__()

    def begin(self) -> None:
        """Work, in a context that knows whose work it is."""
        context = copy_context()
        context.run(request_id.set, self._visit.id)
        context.run(self._go_on)

    def _go_on(self, came: Future[Any] | None = None) -> None:
        try:
            awaited = self._steps.send(None)
        except StopIteration as end:
            _finish(self._guard, self._visit, self._reply, end.value)
        except BaseException as error:
            self._reply.fail(error)
            self._guard.leave(self._visit, BROKEN)
        else:
            awaited._asyncio_future_blocking = False
            awaited.add_done_callback(self._go_on)


def _finish(guard: Guard, visit: Visit, reply: AnswerUnderWay, answer: Answer) -> None:
    reply.send(answer, visit.id)
    guard.leave(visit, answer.status)
