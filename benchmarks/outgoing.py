"""Measure what a decision's time is beside the log going out: `tacit log follow`, and [export] to a topic.

    python benchmarks/outgoing.py rounds.jsonl --seconds 240

Three services decide by turns of a second, in a random order each round, for one connection that asks as
fast as it is answered: one whose log stays, one whose log is followed, one whose log goes to a topic of
Tansu. Services and the one who asks have the first core, who reads the log and the broker the second. Each
round is a line added to the file, so that several calls go on with one study; at the end the ratios of all
rounds so far are said. --folder is where the stores are: in memory (/dev/shm) the disk's moods are out of it.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from feed import broker_started, pinned, started

SERVICE = """
import sys
from tacit.service.config.file import load_config
from tacit.service.app.server import serve
more = {"export.kafka": sys.argv[2]} if len(sys.argv) > 2 else {}
config = load_config(overrides={
    "store.path": sys.argv[1], "server.port": 0,
    "placements.home.arms": 10, "placements.home.seed": 1, **more,
})
serve(config, ready=lambda address: print(address, flush=True))
"""
TURN = 1.0
WAYS = "alone", "followed", "topic"
BODY = b'{"key": "a"}'


def topic_made(address):
    """Make a topic of four partitions; return where it is."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    (made,) = admin.create_topics([NewTopic("rows", 4, 1)]).values()
    made.result(60)
    return f"kafka://{address}/rows"


def children_pinned(pid, core):
    """Keep the processes that a process has started on a core."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pinned(int(child), core)


def turn(connection):
    """Return the seconds that decisions took, one after the other."""
    taken, end = [], time.perf_counter() + TURN
    while (begun := time.perf_counter()) < end:
        connection.request("POST", "/v1/placements/home/decide", BODY, {"content-type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
        taken.append(time.perf_counter() - begun)
    return taken


def measured(file, seconds, where):
    """Add rounds to a file for so many seconds."""
    with tempfile.TemporaryDirectory(dir=where) as name:
        folder, processes, connections = Path(name), [], {}
        broker, address = broker_started()
        processes.append(broker)
        try:
            for way in WAYS:
                more = [topic_made(address)] if way == "topic" else []
                service, url = started("-c", SERVICE, str(folder / f"{way}.db"), *more)
                processes.append(service)
                connections[way] = http.client.HTTPConnection("127.0.0.1", int(url.rpartition(":")[2]))
            follow = "-m", "tacit", "log", "follow", "--store", str(folder / "followed.db")
            processes.append(subprocess.Popen([sys.executable, *follow], stdout=subprocess.DEVNULL))
            for way in WAYS:
                turn(connections[way])  # The first ones compile, and make what is needed.
            time.sleep(3.0)  # By then what the first turns have left has gone out.
            pinned(os.getpid(), 0)
            for process in processes:
                pinned(process.pid, 0 if process in processes[1:4] else 1)
            children_pinned(processes[3].pid, 1)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                found = {}
                for way in random.sample(WAYS, 3):
                    taken = sorted(turn(connections[way]))
                    found[way] = [len(taken), taken[len(taken) // 2], taken[int(0.99 * len(taken))]]
                print(json.dumps(found), file=file, flush=True)
        finally:
            for process in processes:
                process.kill()
                process.wait()


def said(rounds):
    """Say medians and ratios, with two standard errors."""
    for place, what in ((1, "median"), (2, "p99")):
        alone = statistics.median(each["alone"][place] for each in rounds)
        print(f"{what} alone: {1e6 * alone:.0f} µs; times that, geometric mean ± two standard errors:")
        for way in WAYS[1:]:
            ratios = [each[way][place] / each["alone"][place] for each in rounds]
            mean = statistics.geometric_mean(ratios)
            spread = statistics.stdev([ratio / mean for ratio in ratios]) / len(ratios) ** 0.5
            print(f"  {way}: {mean:.3f} ± {2 * mean * spread:.3f}, {len(ratios)} rounds")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--folder", default="/dev/shm" if Path("/dev/shm").is_dir() else None)
    asked = parser.parse_args()
    with asked.file.open("a") as file:
        measured(file, asked.seconds, asked.folder)
    said([json.loads(line) for line in asked.file.read_text().splitlines()])


if __name__ == "__main__":
    main()
