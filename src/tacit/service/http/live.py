"""Server-sent events that tell a page when there is something new to look at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import StreamingResponse

from tacit.service.engine.service import Overview

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
        """End every stream, or the service could not stop before everybody has left."""
        self._closed.set()

    async def stream(self, request: Request) -> StreamingResponse:
        """Answer with the stream."""
        return StreamingResponse(self._events(), headers=self._headers, media_type=MEDIA)

    async def _events(self) -> AsyncIterator[str]:
        seen, silent = -1, 0.0
        while not self._closed.is_set():
            rows = self._engine.health().events
            if rows != seen or silent >= PATIENCE:
                seen, silent = rows, 0.0
                yield f"event: changed\ndata: {rows}\n\n"
            silent += PERIOD
            try:
                await asyncio.wait_for(self._closed.wait(), PERIOD)
            except TimeoutError:
                continue
