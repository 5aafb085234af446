"""OpenTelemetry traces: a span for each request and each commit, where they are asked for."""

import subprocess
import sys

import httpx
import pytest
from harness import Client, configured
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from placement_access import Engine

from tacit.errors import ConfigError, MissingExtra
from tacit.service.app.app import create_application
from tacit.service.app.server import run_in_thread
from tacit.service.app.traces import TracedApplication
from tacit.service.log.sqlite import SqliteStore
from tests.service.test_edge import listening

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


async def test_requests_and_commits_are_spans(tmp_path):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    engine = Engine(configured(tmp_path / "s.db"), SqliteStore(tmp_path / "s.db"))
    app = TracedApplication(create_application(engine), engine, provider)
    await engine.start()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "mine"}
        path = "/v1/placements/default/decide"
        assert (await client.post(path, json={"key": "k"}, headers=headers)).status_code == 200
        assert (await client.post(path, json={"key": 1})).status_code == 422
        assert (await client.get("/some/where")).status_code == 404
    await engine.stop()
    commit, decide, wrong, other = exporter.get_finished_spans()
    assert (commit.name, dict(commit.attributes)) == ("commit", {"tacit.rows": 1})
    assert commit.parent is None
    assert decide.name == "POST /v1/placements/{name}/decide"
    known = {
        "http.request.method": "POST",
        "http.route": "/v1/placements/{name}/decide",
        "http.response.status_code": 200,
        "tacit.placement": "default",
        "tacit.request_id": "mine",
    }
    assert dict(decide.attributes).items() >= known.items()
    assert f"{decide.context.trace_id:032x}" == TRACE
    assert f"{decide.parent.span_id:016x}" == PARENT
    assert decide.start_time <= commit.start_time <= commit.end_time <= decide.end_time
    assert wrong.attributes["http.response.status_code"] == 422
    assert wrong.parent is None
    assert (other.name, other.attributes["http.route"]) == ("GET other", "other")


@pytest.fixture
def collector():
    """A collector that keeps what it is sent."""
    sent = []

    def keep(handler):
        sent.append(handler.rfile.read(int(handler.headers["content-length"])))
        handler.send_response(200)
        handler.end_headers()

    with listening("POST", keep) as port:
        yield f"http://127.0.0.1:{port}/v1/traces", sent


def names(sent):
    found = []
    for body in sent:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            attributes = {a.key: a.value.string_value for a in resource.resource.attributes}
            assert attributes["service.name"] == "shop"
            found += [span.name for scope in resource.scope_spans for span in scope.spans]
    return sorted(found)


@pytest.mark.parametrize(("share", "expected"), [(1.0, True), (0.0, False)])
def test_they_are_sent_to_a_collector_before_the_service_ends(tmp_path, collector, share, expected):
    endpoint, sent = collector
    traces = {"endpoint": endpoint, "service": "shop", "sample": share}
    with run_in_thread(configured(tmp_path / "s.db", traces=traces)) as address:
        assert Client(address).post("default/decide", {"key": "k"})[0] == 200
    assert names(sent) == (["POST /v1/placements/{name}/decide", "commit"] if expected else [])


def test_nothing_of_it_is_loaded_unless_asked_for(tmp_path, monkeypatch):
    code = f"""
import sys
from tacit.service.config.file import load_config
from tacit.service.app.server import run_in_thread
with run_in_thread(load_config(overrides={{"store.path": {str(tmp_path / "s.db")!r}, "server.port": 0}})):
    print(any(name.startswith("opentelemetry") for name in sys.modules))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "False\n", result.stderr
    monkeypatch.setitem(sys.modules, "tacit.service.app.traces", None)
    with (
        pytest.raises(MissingExtra, match=r"tacit-learn\[otel\]"),
        run_in_thread(configured(tmp_path / "t.db", traces={"endpoint": "http://127.0.0.1:4318/v1/traces"})),
    ):
        pass
    with pytest.raises(ConfigError, match=r"traces\.endpoint"):
        configured(tmp_path / "t.db", traces={"endpoint": "localhost"})
