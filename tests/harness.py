"""What tests of the service share: waits, a clock, an engine, a process, a client over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import subprocess
import sys
import time
from pathlib import Path

import apsw
from stores import store_at

from tacit.core.arrays import leaves
from tacit.learning.learner import snapshot_of
from tacit.service.config.file import load_config
from tacit.service.config.schema import Config, PlacementConfig
from tacit.service.engine.engine import Engine

PATIENCE = 600.0
"""Seconds after which what a test waits for is taken to hang. Nothing is measured by it."""
SECOND = 1_000_000
START = 1_700_000_000 * SECOND
"""Where the clocks of tests stand, in µs since 1970."""
SERVE = """
import sys
from tacit.service.config.file import load_config
from tacit.service.app.server import serve
serve(load_config(sys.argv[1]), reread=lambda: load_config(sys.argv[1]))
"""


# Waiting -------------------------------------------------------------------------------------


def eventually(condition):
    """Return what a condition gives as soon as it is true."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.02)
    return found


async def reached(condition):
    """Return what a condition gives as soon as it is true, while the loop goes on."""
    async with asyncio.timeout(PATIENCE):
        while not (found := condition()):
            await asyncio.sleep(0.002)
    return found


# A configuration ----------------------------------------------------------------------------


def configured(path=None, **values):
    """Return a configuration as a file gives it: of a store at a path, and values by dotted names."""
    return load_config(overrides={"server.port": 0, "store.path": path and str(path)} | values)


def with_home(path=None, name="home", values=None, **table):
    """Return a configuration as a file gives it, of one placement, whose table leaves out what is None."""
    table = {"seed": 7} | {option: value for option, value in table.items() if value is not None}
    return configured(path, **{"placements": {name: table}} | (values or {}))


def with_policy(policy, **options):
    """Return a configuration of one placement, ``home``, whose policy and options are made already."""
    return Config({"home": PlacementConfig(policy, **{"seed": 7} | options)})


# An engine -----------------------------------------------------------------------------------


class Clock:
    """Time that stands still until it is told."""

    def __init__(self, now=START):
        self.now = now

    def __call__(self):
        return self.now


@contextlib.asynccontextmanager
async def served(place, config, clock=None, shard=None, wrap=lambda store: store):
    """Yield an engine on a store, or on the store of a path, and stop it in the end."""
    store = store_at(place) if isinstance(place, Path) else place
    engine = Engine(config, wrap(store), clock or Clock(), shard)
    await engine.start()
    try:
        async with asyncio.timeout(PATIENCE):
            yield engine
    finally:
        await asyncio.wait_for(engine.stop(), PATIENCE)


def arrays(learner):
    """Return what a learner has learned of the keys that it knows, bit for bit."""
    used = leaves(learner.lanes.used())
    return learner.keys, {field: array.tobytes() for field, array in used}


def everything(placement):
    """Return everything that a placement is, bit for bit."""
    counted = placement.decisions, placement.feedback, placement.series.to_bytes()
    counted += (json.dumps(placement.lift.saved()), json.dumps(placement.series.results.saved()))
    counted += (snapshot_of(placement.learner).plays.tobytes(),)
    return *arrays(placement.learner), placement.open_windows(), counted


def learned(engine, name="home"):
    """Return everything that a placement of an engine is, bit for bit."""
    return everything(engine.placements[name])


async def quiet(engine):
    """Wait until no snapshot is under way and nothing old is left."""
    await reached(lambda: engine.quiet)


def as_after_a_crash(path):
    """Return a copy of a store that is open, as it would be found if its process died now."""
    copy = path.with_name(f"{path.stem}+.db")
    source, target = (apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY), apsw.Connection(str(copy)))
    with target.backup("main", source, "main") as backup:
        backup.step()
    source.close()
    target.close()
    return copy


def snapshots(path):
    """Return how many snapshots are in a store that is open."""
    with contextlib.closing(apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)) as connection:
        connection.set_busy_timeout(int(1000 * PATIENCE))
        return connection.execute("SELECT count(*) FROM snapshots").get


# A process and its clients -------------------------------------------------------------------


def started(config, script=SERVE):
    """Start a service on a configuration file; return its process and its port."""
    process = subprocess.Popen([sys.executable, "-c", script, str(config)], stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    assert line.startswith("tacit serves at"), line
    return process, int(line.split()[3].rpartition(":")[2])


def stopped(process, number):
    """Send a signal to a process; return how it ended."""
    process.send_signal(number)
    code = process.wait(timeout=PATIENCE)
    process.stdout.close()
    return code


class Client:
    """Requests to a service, each on a connection of its own: none is closed while it is idle."""

    def __init__(self, address):
        self.port = int(address.rpartition(":")[2])

    def connected(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def released(self, connection):
        connection.close()

    @contextlib.contextmanager
    def opened(self, method, path, body=None, headers=None):
        """Send a request; yield what comes back, to be read by the caller."""
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = self.connected()
        try:
            told = {} if raw is None else {"content-type": "application/json"}
            told |= {name.lower(): value for name, value in (headers or {}).items()}
            connection.request(method, path, raw, told)
            yield connection.getresponse()
        finally:
            self.released(connection)

    def ask(self, method, path, body=None, headers=None):
        """Return status, headers and decoded body."""
        with self.opened(method, path, body, headers) as response:
            content = response.read()
        if content and "json" in response.headers["content-type"]:
            content = json.loads(content)
        return response.status, response.headers, content

    def post(self, path, body, **headers):
        """Post to a placement; return status, headers and decoded body."""
        return self.ask("POST", f"/v1/placements/{path}", body, headers)
