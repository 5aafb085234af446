"""Server-sent events that tell a page when there is something new to look at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import StreamingResponse

from tacit.service.config.keys import Caller
from tacit.service.engine.service import Overview
from tacit.service.http.endpoint import CALLER

PERIOD = 1.0
"""Seconds between two events at least."""
PATIENCE = 10.0
"""Seconds after which there is one even if nothing was logged: rates fall and times go by."""
MEDIA = "text/event-stream"


class Live:
    """Tell whoever looks when the log has grown, for as long as he looks.

    Parameters
    ----------
    engine : Overview
    headers : dict
        Of the answers.
    """

    def __init__(self, engine: Overview, headers: dict[str, str]) -> None:
        self._engine, self._headers = engine, headers
        self._closed = asyncio.Event()

    def close(self) -> None:
        """End every stream: the service could not stop before everybody has left, and whoever had a
        key must show it again."""
        self._closed.set()
        self._closed = asyncio.Event()

    async def stream(self, request: Request) -> StreamingResponse:
        """Answer with the stream."""
        events = self._events(request.scope[CALLER], self._closed)
        return StreamingResponse(events, headers=self._headers, media_type=MEDIA)

    async def _events(self, caller: Caller, closed: asyncio.Event) -> AsyncIterator[str]:
        seen, silent = -1, 0.0
        while not closed.is_set():
            rows = self._rows(caller)
            if rows != seen or silent >= PATIENCE:
                seen, silent = rows, 0.0
                yield f"event: changed\ndata: {rows}\n\n"
            silent += PERIOD
            try:
                await asyncio.wait_for(closed.wait(), PERIOD)
            except TimeoutError:
                continue

    def _rows(self, caller: Caller) -> int:
        """Return what grows with the log, as far as somebody may know of it."""
        if caller.placements is None:
            return self._engine.health().events
        reached = (p for name, p in self._engine.placements.items() if caller.reaches(name))
        return sum(placement.decisions + placement.feedback for placement in reached)
