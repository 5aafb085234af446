"""What serving in shards costs: the ways from a request to an engine, against one server.

    python benchmarks/ray_serving.py [--seconds 5] [--rounds 3] [--only WORDS] [--out results.json]
    python benchmarks/ray_serving.py --deciders 1 2 4 [--pace 1000] [--seconds 20] [--rounds 3]

All keep their log in a PostgreSQL of their own on this machine and are sent the same: 64
connections that are kept alive, keys after a Zipf law, a decision and then its feedback. The load
takes a process of its own. Rounds go through all ways in turn, so that what else the machine does
meets each of them. The ways through Ray Serve need ``pip install 'ray[serve]'``, and the one
through HAProxy a program of that name besides; they are left out where these are missing.

With ``--deciders``, so many processes decide next to themselves (``client.Local``) with what two shards
lend them, each at a pace, and tell them every second; what was decided is told before the time is taken.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import stores
from serve import loaded

CONNECTIONS = 64

PLAIN = """
import json, sys
from tacit.service.config.file import load_config
from tacit.service.app.server import serve
config = load_config(overrides=json.loads(sys.argv[1]))
serve(config, ready=lambda address: print("at", address.rpartition(":")[2], flush=True))
"""
SHARDED = """
import json, sys
from tacit.service.config.file import load_config
from tacit.cluster.serving import serve
config = load_config(overrides=json.loads(sys.argv[1]))
ready = lambda address: print("at", address.rpartition(":")[2], flush=True)
serve(config, shards=int(sys.argv[2]), ingresses=int(sys.argv[4]), ready=ready)
"""
# The same ingress as a deployment: Serve's proxy stands before it.
SERVE = """
import asyncio, json, signal, sys, threading
import ray
from ray import serve
from tacit.cluster.serving import open_ingress
from tacit.service.config.file import load_config
from tacit.service.app.app import create_application

overrides, shards = json.loads(sys.argv[1]), int(sys.argv[2])
port = int(sys.argv[3])

class Late:
    # The application is made where the deployment runs.
    async def __call__(self, scope, receive, send):
        import tacit
        await tacit.application_here(scope, receive, send)

@serve.deployment(num_replicas=1, max_ongoing_requests=1000, ray_actor_options={"num_cpus": 0})
@serve.ingress(Late())
class Ingress:
    async def __init__(self):
        ingress = open_ingress(load_config(overrides=overrides), shards, 1.0)
        await ingress.start()
        import tacit
        tacit.application_here = create_application(ingress)

ray.init(include_dashboard=False, log_to_driver=False, logging_level="error")
serve.start(http_options={"host": "127.0.0.1", "port": port})
serve.run(Ingress.bind())
print("at", port, flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
try:
    threading.Event().wait()
finally:
    serve.shutdown()
    ray.shutdown()
"""


LOCAL = """
import json, resource, sys, time
import numpy as np
from tacit.client import Local
url, folder, (pace, seconds), seed = sys.argv[1], sys.argv[2], map(float, sys.argv[3:5]), int(sys.argv[5])
rng = np.random.default_rng(seed)
keys = [f"key {i}" for i in rng.zipf(1.2, int(pace * seconds)) % 1000]
clicks = rng.random(len(keys)) < 0.1
taken, ages = np.empty(len(keys)), []

def spent():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

with Local(url, "default", folder, every=1.0, seed=seed) as local:
    for key in keys[:100]:
        local.decide(key)
    print("ready", flush=True)
    sys.stdin.readline()
    begun, before = time.perf_counter(), spent()
    for i, key in enumerate(keys):
        if i % 20 == 0:
            time.sleep(max(0.0, begun + i / pace - time.perf_counter()))
            ages += [one.age for one in local.known()] if i % 200 == 0 else []
        start = time.perf_counter()
        shown = local.decide(key)
        taken[i] = time.perf_counter() - start
        local.feedback(shown.decision_id, float(clicks[i]))
    rate = len(keys) / (time.perf_counter() - begun)
    local.flush()
    p50, p99, p999 = 1e6 * np.quantile(taken, [0.5, 0.99, 0.999])
    print(json.dumps({"rate": rate, "cpu": spent() - before, "p50": p50, "p99": p99, "p99.9": p999,
                      "age p50": np.median(ages), "age p99": np.quantile(ages, 0.99)}), flush=True)
"""


HAPROXY = {"RAY_SERVE_ENABLE_HA_PROXY": "1", "RAY_SERVE_HAPROXY_BINARY_PATH": shutil.which("haproxy") or ""}


class Way:
    """A way to be measured.

    Parameters
    ----------
    name : str
    program : str
    shards : int
        0 for one server.
    environment : dict, optional
    ingresses : int
    """

    def __init__(self, name, program, shards=0, environment=None, ingresses=1):
        self.name, self.program, self.shards = name, program, shards
        self.ingresses = ingresses
        self.environment = environment or {}

    @contextlib.contextmanager
    def started(self):
        """Run it, and give its process and its port."""
        schema = "bench" + "".join(c for c in self.name.lower() if c.isalnum())[:30]
        overrides = {
            "store.url": stores.cluster().url,
            "store.schema": schema,
            "server.port": 0,
            "placements.default.arms": 10,
            "placements.default.policy": "ucb1",
            "placements.default.seed": 1,
        }
        arguments = [json.dumps(overrides), *map(str, (self.shards, free_port(), self.ingresses))]
        process = subprocess.Popen(
            [sys.executable, "-c", self.program, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | self.environment,
        )
        try:
            while not (line := process.stdout.readline()).startswith("at "):
                if not line:
                    raise RuntimeError(f"{self.name} did not start")
            yield process, int(line.split()[1])
        finally:
            process.terminate()
            process.wait(60)


def decided(count, pace, seconds):
    """Let so many deciders decide over two shards; return what it took, told and learned included."""
    way = Way(f"{count} deciders, 2 shards", SHARDED, 2)
    database = int((stores.cluster().data / "postmaster.pid").read_text().split()[0])
    with way.started() as (process, port), tempfile.TemporaryDirectory() as folder:
        url = f"http://127.0.0.1:{port}"
        deciders = [
            subprocess.Popen(
                [sys.executable, "-c", LOCAL, url, f"{folder}/{i}", str(pace), str(seconds), str(i)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for i in range(count)
        ]  # fmt: skip
        for each in deciders:
            assert each.stdout.readline() == "ready\n"
        before = *core_seconds(process.pid), core_seconds(database)[1]
        size = database_bytes()
        for each in deciders:
            each.stdin.write("\n")
            each.stdin.flush()
        found = [json.loads(each.stdout.readline()) for each in deciders]
        after = *core_seconds(process.pid), core_seconds(database)[1]
        size = database_bytes() - size
        for each in deciders:
            each.wait()
    made = count * int(pace * seconds)
    first, service, log = (then - now for now, then in zip(before, after, strict=True))
    parts = sum(one["cpu"] for one in found), first, service - first, log
    worst = {what: max(one[what] for one in found) for what in found[0] if what not in ("rate", "cpu")}
    names = "deciders", "ingress", "shards", "database"
    us = dict(zip(names, (1e6 * part / made for part in parts), strict=True))
    return worst | {
        "rate": sum(one["rate"] for one in found),
        **{f"core us, {name}": value for name, value in us.items()},
        "bytes of the database": size / made,
        "decisions a core second": made / sum(parts),
        "load": os.getloadavg()[0],
    }


def database_bytes():
    """Return the size of all logs, with their indices."""
    import psycopg

    with psycopg.connect(stores.cluster().url) as connection:
        return connection.execute("SELECT pg_database_size(current_database())").fetchone()[0]


def free_port():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def ways():
    """Return what can be measured here."""
    yield Way("one server", PLAIN)
    yield Way("own ingress, 1 shard", SHARDED, 1)
    yield Way("own ingress, 2 shards", SHARDED, 2)
    yield Way("two own ingresses, 2 shards", SHARDED, 2, ingresses=2)
    if importlib.util.find_spec("grpc") is None or importlib.util.find_spec("fastapi") is None:
        print("left out: Ray Serve, for want of ray[serve]", flush=True)
        return
    yield Way("Ray Serve's proxy, 2 shards", SERVE, 2)
    if shutil.which("haproxy") is None:
        print("left out: HAProxy, for want of the program", flush=True)
        return
    yield Way("Ray Serve with HAProxy, 2 shards", SERVE, 2, HAPROXY)


def core_seconds(root):
    """Return the processor time of a process, and that of all its descendants together."""
    parents, times = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
            times[int(folder.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def descends(pid):
        while pid in parents and pid != root:
            pid = parents[pid]
        return pid == root

    return times[root], sum(time for pid, time in times.items() if descends(pid))


def measured(way, seconds):
    """Start a way, warm it up, and return what one load says."""
    with way.started() as (process, port):
        address = f"http://127.0.0.1:{port}/healthz"
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(address).read()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        loaded(port, 2, 0, CONNECTIONS)
        before = core_seconds(process.pid)
        single = loaded(port, seconds, 0, CONNECTIONS)
        first, whole = (b - a for a, b in zip(before, core_seconds(process.pid), strict=True))
        batch = loaded(port, seconds, 100, CONNECTIONS)
    requests = single["rate"] * seconds
    return single | {
        "core us of the first process": 1e6 * first / requests,
        "core us of all": 1e6 * whole / requests,
        "decisions in batches": batch["decisions"],
        "load": os.getloadavg()[0],
    }


def of_deciders(told):
    """Measure deciders in turn, and print medians and standard errors."""
    found = {}
    for _ in range(told.rounds):
        for count in told.deciders:
            found.setdefault(count, []).append(decided(count, told.pace, told.seconds))
            print(count, json.dumps(found[count][-1]), flush=True)
    for count, results in found.items():
        values = {what: [one[what] for one in results] for what in results[0]}
        spread = {
            what: statistics.stdev(each) / len(each) ** 0.5 if len(each) > 1 else 0.0
            for what, each in values.items()
        }
        text = ", ".join(
            f"{what} {statistics.mean(each):,.4g} ± {spread[what]:.2g}" for what, each in values.items()
        )
        print(f"{count} deciders at {told.pace:,.0f}/s each: {text}", flush=True)
    if told.out:
        told.out.write_text(json.dumps(found, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="ways whose name contains this")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--deciders", type=int, nargs="+", help="measure so many processes with Local")
    parser.add_argument("--pace", type=float, default=1000, help="decisions a second of each")
    told = parser.parse_args()
    if told.deciders:
        of_deciders(told)
        return
    found = {}
    for _ in range(told.rounds):
        for way in (each for each in ways() if told.only in each.name):
            try:
                result = measured(way, told.seconds)
            except (RuntimeError, subprocess.SubprocessError, OSError) as error:
                print(f"{way.name}: failed: {error}", flush=True)
                continue
            found.setdefault(way.name, []).append(result)
            print(f"{way.name}: {json.dumps(result)}", flush=True)
    for name, results in found.items():
        middle = {what: statistics.median(one[what] for one in results) for what in results[0]}
        text = (
            "{rate:,.0f} requests/s, half within {p50:.1f} ms, 99 % within {p99:.1f} ms; "
            "core time of a request {core us of all:,.0f} µs, of which "
            "{core us of the first process:,.0f} µs in the first process; "
            "{decisions in batches:,.0f} decisions/s in batches of 100"
        )
        print(f"{name}: {text.format_map(middle)}", flush=True)
    if told.out:
        told.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
