"""While the service starts: health checks are answered, and other requests wait for the server."""

import contextlib
import http.client
import json
import socket
import threading

import pytest
import yaml
from conftest import ROOT
from harness import PATIENCE, Client, configured, eventually
from stores import free_port

from tacit.service.app import server as app
from tacit.service.config.file import load_config
from tacit.service.engine.engine import Engine
from tacit.service.engine.stores import open_store
from tacit.service.errors import StoreError

DEPLOY = ROOT / "deploy"
MANIFEST = {part["kind"]: part for part in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())}
POD = MANIFEST["StatefulSet"]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def open_engine(config):
    return Engine(config, open_store(config.store))


class SlowStart:
    """A service whose engine opens when the test says so, served in a thread."""

    def __init__(self, path, opening=open_engine):
        self.port, self._may_open, self._opening = free_port(), threading.Event(), opening
        self._config = configured(path, **{"server.port": self.port})
        self.client, self.server, self.failure = Client(f":{self.port}"), None, None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        eventually(self._is_listening)

    def _is_listening(self):
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", self.port)) == 0

    def _run(self):
        try:
            self.server, listener = app.open_server(
                self._config, None, None, lambda address: None, opening=self._open
            )
        except StoreError as error:
            self.failure = error
            return
        with listener:
            self.server.run(sockets=[listener])

    def _open(self, config):
        assert self._may_open.wait(PATIENCE)
        return self._opening(config)

    def go_on(self):
        self._may_open.set()

    def stop(self):
        self.go_on()
        eventually(lambda: self.server is not None or self.failure is not None)
        if self.server is not None:
            self.server.should_exit = True
        self._thread.join(PATIENCE)


@pytest.fixture
def starting(tmp_path):
    service = SlowStart(tmp_path / "s.db")
    yield service
    service.stop()


def test_a_service_that_starts_is_alive_and_not_ready(starting):
    client = starting.client
    for _ in range(3):
        status, headers, body = client.ask("GET", "/healthz")
        assert (status, body, headers["content-type"]) == (200, {"status": "ok"}, "application/json")
        status, headers, body = client.ask("GET", "/readyz?verbose")
        assert (status, body["type"]) == (503, "urn:tacit:problem:unavailable")
        assert "starting" in body["detail"]
        assert headers["retry-after"] == "1"
    starting.go_on()
    eventually(lambda: client.ask("GET", "/readyz")[0] == 200)
    assert client.ask("GET", "/healthz")[0] == 200


def test_other_requests_wait_for_the_server(starting):
    waiting = [http.client.HTTPConnection("127.0.0.1", starting.port, timeout=PATIENCE) for _ in range(3)]
    for connection in waiting[:2]:
        body, headers = json.dumps({"key": "a"}), {"content-type": "application/json"}
        connection.request("POST", "/v1/placements/default/decide", body, headers)
    # One that has sent nothing yet is the server's, too.
    waiting[2].connect()
    assert starting.client.ask("GET", "/healthz")[0] == 200
    starting.go_on()
    for connection in waiting[:2]:
        for _ in range(2):
            response = connection.getresponse()
            assert (response.status, "arm" in json.loads(response.read())) == (200, True)
            connection.request("POST", "/v1/placements/default/decide", body, headers)
        connection.getresponse().read()
    waiting[2].request("GET", "/healthz")
    assert waiting[2].getresponse().read() == b'{"status":"ok"}'
    for connection in waiting:
        connection.close()


def test_a_start_that_fails_lets_go_of_those_who_wait(tmp_path):
    def fail(config):
        raise StoreError("store: it is gone")

    service = SlowStart(tmp_path / "s.db", fail)
    with socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE) as waiting:
        waiting.sendall(b"POST /v1/placements/default/decide HTTP/1.1\r\n")
        assert service.client.ask("GET", "/healthz")[0] == 200
        service.stop()
        assert service.failure is not None
        with contextlib.suppress(ConnectionResetError):
            assert waiting.recv(100) == b""
    with socket.socket() as connection:
        assert connection.connect_ex(("127.0.0.1", service.port)) != 0


def read_probe(name):
    """Return the path of a probe, and for how many seconds it may fail."""
    probe = CONTAINER[name]
    assert probe["httpGet"]["port"] == CONTAINER["ports"][0]["name"]
    return probe["httpGet"]["path"], probe["periodSeconds"] * probe["failureThreshold"]


def test_the_probes_of_the_manifest_while_the_service_starts_and_runs(starting):
    """A pod that compiles is started and alive, but gets no requests; one that is ready gets them."""
    probes = {name: read_probe(f"{name}Probe")[0] for name in ("startup", "liveness", "readiness")}

    def ask():
        return {name: starting.client.ask("GET", path)[0] for name, path in probes.items()}

    assert ask() == {"startup": 200, "liveness": 200, "readiness": 503}
    starting.go_on()
    eventually(lambda: ask() == {"startup": 200, "liveness": 200, "readiness": 200})


def test_the_manifest_runs_the_image(tmp_path):
    image = (DEPLOY / "Containerfile").read_text()
    assert f"EXPOSE {CONTAINER['ports'][0]['containerPort']}\n" in image
    assert MANIFEST["Service"]["spec"]["ports"][0]["targetPort"] == CONTAINER["ports"][0]["name"]
    user = POD["securityContext"]
    assert f"--uid {user['runAsUser']} " in image
    assert f"--gid {user['runAsGroup']} " in image
    assert f"USER {user['runAsUser']}\n" in image
    config, log = (mount["mountPath"] for mount in CONTAINER["volumeMounts"])
    assert f'"--config", "{config}"' in image
    assert f"VOLUME {log}\n" in image
    # What was compiled into the image is not hidden.
    assert "TACIT_CACHE_DIR=/var/cache/tacit" in image
    path = tmp_path / "tacit.toml"
    path.write_text(MANIFEST["ConfigMap"]["data"]["tacit.toml"])
    assert load_config(path).store.path.startswith(log)
    # A log has one writer.
    assert MANIFEST["StatefulSet"]["spec"]["replicas"] == 1
    assert POD["terminationGracePeriodSeconds"] > app.DRAIN_SECONDS
