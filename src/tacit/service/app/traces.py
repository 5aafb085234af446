"""OpenTelemetry traces, if configured: a span for each request and each commit."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from opentelemetry.propagate import extract
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode

import tacit
from tacit.service.app.routes import find

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from tacit.service.config.schema import TracesConfig
    from tacit.service.engine.engine import Engine


COMMIT = "commit"


def create_provider(config: TracesConfig) -> TracerProvider:
    """Return a provider that sends spans to a collector, by OTLP over HTTP.

    Headers and certificates come from the environment, as OpenTelemetry names them
    (``OTEL_EXPORTER_OTLP_HEADERS``).
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    provider = TracerProvider(
        resource=Resource.create({SERVICE_NAME: config.service, SERVICE_VERSION: tacit.__version__}),
        sampler=ParentBased(TraceIdRatioBased(config.sample)),
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(config.endpoint)))
    return provider


class TracedApplication:
    """An application with a span for each request and commit.

    A request continues the trace of its ``traceparent`` header. A commit is for many requests, so it has a
    trace of its own.

    Parameters
    ----------
    app : ASGI application
    engine : Engine
        Its commits are traced.
    provider : TracerProvider
        Shut down with the application.
    """

    def __init__(self, app: ASGIApp, engine: Engine, provider: TracerProvider) -> None:
        self._app, self._provider = app, provider
        self._tracer = provider.get_tracer("tacit", tacit.__version__)
        engine.commits.span = self._trace_commit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request in a span; at the end of the lifespan, send the remaining spans."""

        async def send_last(message: Message) -> None:
            """End the provider, which sends the remaining spans, before the server is told of the end."""
            # After it, the server waits for nothing.
            if message["type"] != "lifespan.startup.complete":
                await asyncio.to_thread(self._provider.shutdown)
            await send(message)

        if scope["type"] == "http":
            await self._trace_request(scope, receive, send)
        else:
            await self._app(scope, receive, send_last)

    async def _trace_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request in a span with its method, route, placement, status and request id.

        The span continues the trace of the request's headers; from status 500 on it is marked as an error.
        """
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        addressed = find(scope["path"])
        route = addressed.path.template
        attributes = {"http.request.method": scope["method"], "http.route": route}
        if addressed.name is not None:
            attributes["tacit.placement"] = addressed.name
        with self._tracer.start_as_current_span(
            f"{scope['method']} {route}", extract(headers), SpanKind.SERVER, attributes
        ) as span:

            async def send_answer(message: Message) -> None:
                """Send a message of the answer; record its status and request id in the span."""
                if message["type"] == "http.response.start":
                    status = message["status"]
                    span.set_attribute("http.response.status_code", status)
                    span.set_attribute("tacit.request_id", _read_request_id(message))
                    if status >= 500:
                        span.set_status(StatusCode.ERROR)
                await send(message)

            await self._app(scope, receive, send_answer)

    def _trace_commit(self, rows: int) -> AbstractContextManager[Any]:
        """Return a span for a commit of ``rows`` rows, as a context manager."""
        # Of empty headers no trace is continued: a new one begins.
        attributes = {"tacit.rows": rows}
        return self._tracer.start_as_current_span(COMMIT, extract({}), SpanKind.INTERNAL, attributes)


def _read_request_id(message: Message) -> str:
    """Return an answer's ``x-request-id`` header; "" without one."""
    return next((v.decode() for name, v in message["headers"] if name == b"x-request-id"), "")
