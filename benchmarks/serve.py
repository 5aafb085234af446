"""Measure the decision service over HTTP: against a handler that does nothing, and in batches.

    python benchmarks/serve.py --seconds 3 --rounds 3

The load comes from a process of its own over 64 connections that are kept alive, keys after a
Zipf law, 10 arms, a decision and then its feedback. The other side of the comparison is the same
HTTP stack (uvicorn, uvloop, httptools, Starlette, msgspec), which reads the same request, checks
it, and answers as much.
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

CONNECTIONS = 64
ARMS = 10
KEYS = 1000
BATCH = 100

NOTHING = """
import socket, uvicorn
from starlette.applications import Starlette
from starlette.routing import Route
from tacit.service.config.schema import ServerConfig
from tacit.service.api import wire
from tacit.service.http.endpoint import FOUND, Endpoint
from tacit.service.http.route import Found
from tacit.service.app.routes import PLACEMENTS

class Page(Endpoint):
    async def __call__(self, scope, receive, send):
        scope[FOUND] = Found(self._path, scope["path_params"]["name"])
        await super().__call__(scope, receive, send)

async def decide(engine, call):
    return wire.DecideAnswer("018bcfe5-687b-774b-9e0c-5a1f3f9f2c11", 3, 0.1, 0, "committed")

async def feedback(engine, call):
    return wire.FeedbackAnswer(call.request.decision_id, True, "learned", "committed")

def page(name, handler):
    path = PLACEMENTS.paths[name]
    path.routes["POST"] = path.routes["POST"]._replace(handler=handler)
    return Route(path.template, Page(path, None, ServerConfig))

app = Starlette(routes=[page("decide", decide), page("feedback", feedback)])
listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
print("at", listener.getsockname()[1], flush=True)
settings = uvicorn.Config(app, loop="uvloop", http="httptools", ws="none", lifespan="off",
                          access_log=False, log_level="warning", server_header=False)
uvicorn.Server(settings).run(sockets=[listener])
"""
SERVICE = """
import sys
from tacit.service.config.file import load_config
from tacit.service.running.server import serve
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
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
            % (path, len(body), body)
        )
        return self.waiter


async def load(port, seconds, batch):
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
    await asyncio.gather(*(client(number) for number in range(CONNECTIONS if not batch else 8)))
    return len(times) / seconds, decisions / seconds, times


def loaded(port, seconds, batch):
    """Run the load in a process of its own."""
    command = [sys.executable, __file__, "--load", str(port), str(seconds), str(batch)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def cpu_seconds(process):
    """Return the processor time of a process, all of its threads."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(process, port, seconds):
    before = cpu_seconds(process)
    result = loaded(port, seconds, 0)
    spent = cpu_seconds(process) - before
    # On a machine that others use too, the processor's time says more than the clock's.
    return result | {"cpu_us": 1e6 * spent / (result["rate"] * seconds)}


def started(*command):
    process = subprocess.Popen([sys.executable, "-c", *command], stdout=subprocess.PIPE, text=True)
    return process, int(process.stdout.readline().split()[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--load", nargs=3)
    told = parser.parse_args()
    if told.load:
        import uvloop

        port, seconds, batch = told.load
        rate, decided, times = uvloop.run(load(int(port), float(seconds), int(batch)))
        p50, p99 = np.quantile(times, [0.5, 0.99]) * 1000
        print(json.dumps({"rate": rate, "decisions": decided, "p50": p50, "p99": p99}))
        return
    report = {}
    for policy, propensities in (("thompson", "no"), ("thompson", "yes"), ("ucb1", "yes")):
        with tempfile.TemporaryDirectory() as folder:
            nothing, bare = started(NOTHING)
            service, port = started(SERVICE, str(Path(folder) / "s.db"), policy, propensities)
            try:
                rounds = []
                for i in range(told.rounds + 1):
                    sides = (nothing, bare), (service, port)
                    pair = [measured(each, p, told.seconds) for each, p in sides]
                    if i:  # the first one warms up
                        rounds.append(pair)
                batch = loaded(port, told.seconds, BATCH)
            finally:
                for process in (nothing, service):
                    process.terminate()
                    process.wait(30)
        ratio = [a["rate"] / b["rate"] for b, a in rounds]
        cpu = [b["cpu_us"] / a["cpu_us"] for b, a in rounds]
        name = f"{policy}, propensities: {propensities}"
        report[name] = {
            "ratio": statistics.median(ratio),
            "ratios": ratio,
            "ratio by processor time": statistics.median(cpu),
            "nothing": [r[0] for r in rounds],
            "service": [r[1] for r in rounds],
            "decisions/s in batches of 100": batch["decisions"],
        }
        print(name, json.dumps(report[name], indent=1), flush=True)


if __name__ == "__main__":
    main()
