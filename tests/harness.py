"""What tests of the service share: waits, a configuration, an engine, a process, a client over HTTP."""

import asyncio
import contextlib
import http.client
import json
import subprocess
import threading
import time
from pathlib import Path

import apsw
import pytest
import stores
from forked import Forked
from placement_access import Engine, arrays, everything, fold, join_shards, load_placement, patch_internal
from stores import store_at

from tacit.service.app.server import run_in_thread
from tacit.service.config.file import load_config
from tacit.service.config.schema import Config, PlacementConfig
from tacit.service.log.ids import Shard
from tacit.service.log.requests import Clicked, FeedbackRequest
from tacit.service.log.rows import CLICKS, DecisionRow
from tacit.service.maintenance.doctor import verify

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
    """Return a configuration as a file gives it: of a store at a path, and values by dotted names.

    The store is of the kind that is chosen.
    """
    place = {"store.path": path and str(path)}
    if path is not None and stores.chosen == "postgres":
        place = {"store.url": stores.cluster().url, "store.schema": stores.schema_of(path)}
    return load_config(overrides={"server.port": 0} | place | values)


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


@contextlib.asynccontextmanager
async def in_shards(folder, config, clock=None):
    """Yield the service of the first of two shards, and the engines of both."""
    async with contextlib.AsyncExitStack() as stack:
        places = [(folder / f"{number}.db", Shard(number, 2)) for number in range(2)]
        opened = [served(place, config, clock, shard) for place, shard in places]
        engines = [await stack.enter_async_context(each) for each in opened]
        yield join_shards(engines), engines


@contextlib.contextmanager
def recovered(place, config, clock=None):
    """Yield an engine on a store that was left, whose log says the same as its snapshots."""
    with contextlib.closing(store_at(place) if isinstance(place, Path) else place) as store:
        engine = Engine(config, store, clock or Clock())
        assert verify(config, store) == []
        yield engine


async def clicked(engine, row, positions=None, id=None, name="home", metrics=None, **more):
    """Record clicks on a list, by positions or items, or another action; return the outcome."""
    clicks = FeedbackRequest(row.id, CLICKS, id=id, clicks=Clicked(positions, **more), metrics=metrics)
    (outcome,) = await engine.record_many(name, [clicks])
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def learned_arrays(learner):
    """Return what a learner has learned, bit for bit, without decisions that are yet to be learned."""
    keys, held = arrays(learner)
    return keys, {field: content for field, content in held.items() if field.rpartition(".")[2] != "open"}


def learned(engine, name="home"):
    """Return everything that a placement of an engine is, bit for bit."""
    return everything(engine.placements[name])


def folded(path, config, snapshot=False, name="home"):
    """Return a placement as the log makes it, from a snapshot on if that is wanted."""
    with contextlib.closing(store_at(path)) as store:
        placement = load_placement(name, config.placements[name], store, 0, snapshot=snapshot)
        fold({placement.id: placement}, store)
        return placement


def is_the_fold(config, path, live, seen=everything, name="home"):
    """Check that what is seen of a placement is what its log says, whole or from a snapshot on."""
    with contextlib.closing(store_at(path)) as store:
        assert verify(config, store) == []
    for snapshot in (True, False):
        assert seen(folded(path, config, snapshot, name)) == live


@contextlib.asynccontextmanager
async def folding(path, config, clock=None, seen=everything, name="home", crash=True, partly=False, **more):
    """Yield an engine on a store, whose log must say in the end what the placement is.

    The log is that which a crash would leave, of which a snapshot may be to cover a part; or that of an
    engine which was stopped, with a snapshot of all.
    """
    async with served(path, config, clock, **more) as engine:
        yield engine
        live, config = seen(engine.placements[name]), engine.config
        place = as_after_a_crash(path) if crash else path
    if partly:
        with contextlib.closing(store_at(place)) as store:
            assert 0 < store.snapshots.load(1).seq < store.end().seq
    is_the_fold(config, place, live, seen, name)


async def quiet(engine):
    """Wait until no snapshot is under way and nothing old is left."""
    await reached(lambda: engine.writer.upkeep.quiet)


def as_after_a_crash(path):
    """Return a copy of a store that is open, as it would be found if its process died now."""
    copy = path.with_name(f"{path.stem}+.db")
    source, target = (apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY), apsw.Connection(str(copy)))
    with target.backup("main", source, "main") as backup:
        backup.step()
    source.close()
    target.close()
    return copy


def logged_decisions(engine):
    """Return the decisions of an engine's log, of all placements."""
    return [row for row in engine.store.events(0) if isinstance(row, DecisionRow)]


def snapshots(path):
    """Return how many snapshots are in a store that is open."""
    with contextlib.closing(apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)) as connection:
        connection.set_busy_timeout(int(1000 * PATIENCE))
        return connection.execute("SELECT count(*) FROM snapshots").get


@contextlib.contextmanager
def meanwhile(work):
    """Work over and over in a thread until the block ends; yield its errors, of which there must be none."""
    over, errors = threading.Event(), []

    def go_on():
        try:
            while not over.is_set():
                work()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield errors
    finally:
        over.set()
        thread.join()
    assert errors == []


# A process and its clients -------------------------------------------------------------------


@contextlib.contextmanager
def by_clock(config, clock):
    """Serve a configuration in a thread, by a clock that the test sets; yield its address."""
    with pytest.MonkeyPatch.context() as patched:
        patch_internal(patched, LogClock=lambda: clock)
        with run_in_thread(config) as address:
            yield address


def started(config, script=SERVE):
    """Start a service on a configuration file; return its process and its port."""
    process = Forked(["-c", script, config], stdout=subprocess.PIPE, text=True)
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
