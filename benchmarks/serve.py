"""Measure the decision service over HTTP: against handlers that do nothing, and in batches.

    python benchmarks/serve.py --seconds 1 --rounds 15 --connections 64 16 1
    python benchmarks/serve.py --before ../0.2    the same, and the service of another checkout in turn

The load comes from a process of its own over connections that are kept alive, keys after a
Zipf law, 10 arms, a decision and then its feedback. Rounds of all sides alternate; a ratio is the
median of those of each round, by the processor's time and by the clock. The other sides read the
same requests, check them, and answer as much:

- ``framework``: an empty handler of uvicorn, uvloop, httptools, Starlette and msgspec. The service answers
  requests whose head it knows without httptools, Starlette and a coroutine, which this one has not;
- ``own``: the service itself, on that same short way, but its engine decides, learns and logs nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

CONNECTIONS = 64, 16, 1
BATCH_CONNECTIONS = 8
ARMS = 10
KEYS = 1000
BATCH = 100

NOTHING = """
import asyncio, socket, uvicorn
from starlette.applications import Starlette
from starlette.routing import Route
from tacit.service.config.schema import ServerConfig
from tacit.wire import decisions as wire
from tacit.service.config.keys import ANYBODY
from tacit.service.http.endpoint import CALLER, ROUTE_MATCH, Endpoint
from tacit.service.http.route import RouteMatch
from tacit.service.app.routes import PLACEMENTS

class Page(Endpoint):
    async def __call__(self, scope, receive, send):
        scope[ROUTE_MATCH] = RouteMatch(self._path, scope["path_params"]["name"])
        scope[CALLER] = ANYBODY
        await super().__call__(scope, receive, send)

async def decide(engine, call):
    return wire.Decided("018bcfe5-687b-774b-9e0c-5a1f3f9f2c11", 3, 0.1, 0, "committed")

async def feedback(engine, call):
    return wire.Recorded(call.request.decision_id, True, "learned", "committed")

def page(name, handler):
    path = PLACEMENTS.paths[name]
    path.routes["POST"] = path.routes["POST"]._replace(handler=handler)
    return Route(path.template, Page(path, None, ServerConfig, asyncio.Semaphore()))

app = Starlette(routes=[page("decide", decide), page("feedback", feedback)])
listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
print("at", listener.getsockname()[1], flush=True)
settings = uvicorn.Config(app, loop="uvloop", http="httptools", ws="none", lifespan="off",
                          access_log=False, log_level="warning", server_header=False)
uvicorn.Server(settings).run(sockets=[listener])
"""
SERVICE = """
import sys
from importlib import import_module
def found(*places):
    for place in places:
        try:
            return import_module(f"tacit.service.{place}")
        except ModuleNotFoundError:
            pass
# Where this version, 0.2 and 0.1 have them.
load_config = found("config.file", "config_file").load_config
serve = found("app.server", "running.server", "server").serve
if sys.argv[4:]:
    from tacit.service.engine.writer import Writer
    from tacit.service.log.requests import Decide
    from tacit.service.log.rows import DecisionRow
    row = DecisionRow(1, "018bcfe5-687b-774b-9e0c-5a1f3f9f2c11", 1, 1, 0, "", None, 3, 0.1, 0, None)
    answers = {True: [row], False: ["learned"]}
    Writer.begin = lambda self, request, reply: reply.set_result(answers[type(request) is Decide])
config = load_config(overrides={
    "store.path": sys.argv[1], "server.port": 0,
    "placements.default.arms": 10, "placements.default.policy": sys.argv[2],
    "placements.default.seed": 1, "placements.default.propensities": sys.argv[3] == "yes",
})
serve(config, ready=lambda address: print("at", address.rpartition(":")[2], flush=True))
"""


class Connection(asyncio.Protocol):
    """One client: a request at a time over one connection."""

    def connection_made(self, transport):
        self.transport, self.buffer, self.waiter = transport, b"", None

    def data_received(self, data):
        self.buffer += data
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        start = head.lower().index(b"content-length: ") + 16
        size = int(head[start:].partition(b"\r\n")[0])
        if len(rest) >= size:
            self.buffer = b""
            self.waiter.set_result((head[9:12], rest))

    def post(self, path, body):
        self.waiter = asyncio.get_running_loop().create_future()
        self.transport.write(
            b"POST /v1/placements/default/%s HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (path, len(body), body)
        )
        return self.waiter


async def load(port, seconds, batch, connections):
    """Send for a while; return requests, decisions, and the time of each request."""
    loop = asyncio.get_running_loop()
    keys = np.minimum(np.random.default_rng(1).zipf(1.2, 100_000), KEYS).tolist()
    times, decisions, end = [], 0, 0.0

    async def client(number):
        nonlocal decisions
        _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
        place = number * 997
        while time.perf_counter() < end:
            started = time.perf_counter()
            if batch:
                asked = [{"key": f"query {keys[(place + i) % len(keys)]}"} for i in range(batch)]
                status, answer = await connection.post(
                    b"decide/batch", json.dumps({"decisions": asked}).encode()
                )
                decisions += batch
            else:
                body = b'{"key": "query %d"}' % keys[place % len(keys)]
                status, answer = await connection.post(b"decide", body)
                decisions += 1
            times.append(time.perf_counter() - started)
            assert status == b"200", answer
            place += max(batch, 1)
            if batch:
                continue
            started = time.perf_counter()
            id = answer[16:52]
            body = b'{"decision_id": "%s", "reward": %d}' % (id, place % 3 == 0)
            status, answer = await connection.post(b"feedback", body)
            times.append(time.perf_counter() - started)
            assert status == b"200", answer
        connection.transport.close()

    end = time.perf_counter() + seconds
    await asyncio.gather(*map(client, range(connections)))
    return len(times) / seconds, decisions / seconds, times


def loaded(port, seconds, batch, connections):
    """Run the load in a process of its own."""
    told = port, seconds, batch, connections
    command = [sys.executable, __file__, "--load", *map(str, told)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def cpu_seconds(process):
    """Return the processor time of a process, all of its threads."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(process, port, seconds, connections):
    before = cpu_seconds(process)
    result = loaded(port, seconds, 0, connections)
    spent = cpu_seconds(process) - before
    # On a machine that others use too, the processor's time says more than the clock's.
    return result | {"cpu_us": 1e6 * spent / (result["rate"] * seconds)}


def measured_batches(process, port, seconds):
    """Return what a decision takes where 100 are asked for together."""
    before = cpu_seconds(process)
    result = loaded(port, seconds, BATCH, BATCH_CONNECTIONS)
    spent = cpu_seconds(process) - before
    return result | {"rate": result["decisions"], "cpu_us": 1e6 * spent / (result["decisions"] * seconds)}


def started(*command, source=None):
    """Start a server, of another checkout's source if it is given; return it and its port."""
    environment = os.environ if source is None else os.environ | {"PYTHONPATH": str(Path(source, "src"))}
    command = [sys.executable, "-c", *command]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    return process, int(process.stdout.readline().split()[1])


def spread(values):
    """Return the median of paired values and its standard error, by the quartiles."""
    low, middle, high = statistics.quantiles(values, n=4)
    error = 1.2533 * (high - low) / 1.349 / len(values) ** 0.5
    return round(middle, 3), round(error, 3)


def compared(names, rounds):
    """Return what rounds of all sides say, the last of which is compared with the others."""
    report = {}
    for place, name in enumerate(names[:-1]):
        pairs = [(one[place], one[-1]) for one in rounds]
        report[f"beside {name}"] = {
            "share by processor time": spread([b["cpu_us"] / a["cpu_us"] for b, a in pairs]),
            "share by clock": spread([a["rate"] / b["rate"] for b, a in pairs]),
            "over it, cpu_us": spread([a["cpu_us"] - b["cpu_us"] for b, a in pairs]),
            "p50 to p50": spread([a["p50"] / b["p50"] for b, a in pairs]),
            "p99 to p99": spread([a["p99"] / b["p99"] for b, a in pairs]),
        }
    for side, some in zip(names, zip(*rounds, strict=True), strict=True):
        report[side] = {
            name: round(statistics.median(one[name] for one in some), 3)
            for name in ("rate", "cpu_us", "p50", "p99")
        }
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--connections", type=int, nargs="+", default=CONNECTIONS)
    parser.add_argument("--policies", nargs="+", default=("thompson", "thompson+", "ucb1+"),
                        help="a plus asks for propensities")  # fmt: skip
    parser.add_argument("--before", help="another checkout, whose service is measured in turn with this one")
    parser.add_argument("--load", nargs=4)
    told = parser.parse_args()
    if told.load:
        import uvloop

        port, seconds, batch, connections = told.load
        work = load(int(port), float(seconds), int(batch), int(connections))
        rate, decided, times = uvloop.run(work)
        p50, p99 = np.quantile(times, [0.5, 0.99]) * 1000
        print(json.dumps({"rate": rate, "decisions": decided, "p50": p50, "p99": p99}))
        return
    for policy in told.policies:
        with tempfile.TemporaryDirectory() as folder:
            propensities = "yes" if policy.endswith("+") else "no"
            settings = policy.rstrip("+"), propensities
            sides = {
                "framework": started(NOTHING),
                "own": started(SERVICE, str(Path(folder) / "o.db"), *settings, "nothing"),
            }
            servers = {"service": started(SERVICE, str(Path(folder) / "s.db"), *settings)}
            if told.before is not None:
                path = str(Path(folder) / "b.db")
                servers = {"before": started(SERVICE, path, *settings, source=told.before)} | servers
            sides |= servers
            try:
                report = {"load of the machine": os.getloadavg()}
                for connections in told.connections:
                    # The first round warms up.
                    rounds = [
                        [measured(*side, told.seconds, connections) for side in sides.values()]
                        for _ in range(told.rounds + 1)
                    ]
                    report[f"{connections} connections"] = compared(list(sides), rounds[1:])
                rounds = [
                    [measured_batches(*server, told.seconds) for server in servers.values()]
                    for _ in range(told.rounds + 1)
                ]
                report["decisions in batches of 100"] = compared(list(servers), rounds[1:])
            finally:
                for process, _ in sides.values():
                    process.terminate()
                    process.wait(30)
        name = f"{policy.rstrip('+')}, propensities: {propensities}"
        print(name, json.dumps(report, indent=1), flush=True)


if __name__ == "__main__":
    main()
