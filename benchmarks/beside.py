"""Measure what decisions take beside many placements, and beside somebody who looks at a page of 500 arms.

    python benchmarks/beside.py --seconds 2 --rounds 7

One client over one connection, a decision and then its feedback, each durable before it is answered; servers
in turn, and ratios are medians of those of each round. Each placement has ten arms; the load is on one of
them. The page is fetched whole, over a connection of its own: once a second, as an open page does at most,
and again as soon as it came.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from serve import cpu_seconds, loaded, spread

PLACEMENTS = 1, 500, 2000
ARMS = 500
VISITS = {"nobody": None, "once a second": 1.0, "again and again": 0.0}
"""Seconds between two looks at the page."""
SERVICE = """
import sys
from tacit.service.config.file import load_config
from tacit.service.app.server import serve
serve(load_config(sys.argv[1]), ready=lambda address: print("at", address.rpartition(":")[2], flush=True))
"""


def started(folder, name, arms, count):
    """Start a server of many placements; return it and its port."""
    text = f'[store]\npath = "{folder}/{name}.db"\n[server]\nport = 0\n'
    for placement in ["default", *(f"other{i}" for i in range(count - 1))]:
        text += f'[placements.{placement}]\narms = {arms}\npolicy = "ucb1"\nseed = 1\n'
    path = Path(folder, f"{name}.toml")
    path.write_text(text)
    process = subprocess.Popen([sys.executable, "-c", SERVICE, path], stdout=subprocess.PIPE, text=True)
    return process, int(process.stdout.readline().split()[1])


class Visitor(threading.Thread):
    """Somebody who looks at the page of a placement, until told to stop."""

    def __init__(self, port, pause):
        super().__init__()
        self._port, self._pause, self._end = port, pause, threading.Event()
        self.looks = 0

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        while not self._end.is_set():
            connection.request("GET", "/placements/default")
            answer = connection.getresponse()
            size = len(answer.read())
            assert answer.status == 200, answer.status
            assert size > 10_000, size
            self.looks += 1
            self._end.wait(self._pause)
        connection.close()

    def stop(self):
        self._end.set()
        self.join()


def measured(process, port, seconds, pause=None):
    """Return what requests took, beside a visitor who pauses so long between two looks."""
    visitor = None if pause is None else Visitor(port, pause)
    if visitor is not None:
        visitor.start()
    before = cpu_seconds(process)
    result = loaded(port, seconds, 0, 1)
    spent = cpu_seconds(process) - before
    looks = 0.0
    if visitor is not None:
        visitor.stop()
        looks = visitor.looks / seconds
    return result | {"cpu_us": 1e6 * spent / (result["rate"] * seconds), "looks a second": looks}


def compared(names, rounds):
    """Return what rounds of all sides say, the first of which is what others are compared with."""
    report = {}
    for place, name in enumerate(names):
        sides = [one[place] for one in rounds]
        report[name] = {key: round(statistics.median(side[key] for side in sides), 3) for key in sides[0]}
        if place:
            pairs = [(one[0], one[place]) for one in rounds]
            report[name] |= {
                f"{key} to {names[0]}": spread([b[key] / a[key] for a, b in pairs])
                for key in ("p50", "p99", "cpu_us")
            }
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--placements", type=int, nargs="+", default=PLACEMENTS)
    given = parser.parse_args()
    print("load of the machine", *os.getloadavg())
    with tempfile.TemporaryDirectory() as folder:
        begun, servers = time.perf_counter(), []
        for count in given.placements:
            servers.append(started(folder, f"placements{count}", 10, count))
            print(f"{count} placements: started in {time.perf_counter() - begun:.1f} s", flush=True)
            begun = time.perf_counter()
        paged = started(folder, "page", ARMS, 1)
        try:
            rounds = [
                [measured(*server, given.seconds) for server in servers] for _ in range(given.rounds + 1)
            ]
            # The first one warms up.
            names = [f"{count} placements" for count in given.placements]
            print(json.dumps(compared(names, rounds[1:]), indent=1), flush=True)
            rounds = [
                [measured(*paged, given.seconds, pause) for pause in VISITS.values()]
                for _ in range(given.rounds + 1)
            ]
            print(json.dumps(compared([f"page: {name}" for name in VISITS], rounds[1:]), indent=1))
        finally:
            for process, _ in (*servers, paged):
                process.terminate()
                process.wait(60)


if __name__ == "__main__":
    main()
