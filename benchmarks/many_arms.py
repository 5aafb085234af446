"""Measure a page of many arms, and decisions beside those who look at it.

    python benchmarks/many_arms.py --arms 10 500 10000

Ten keys have learned; one person looks at the placement's page once a second, each time at another
address, so that every page is made. Both are timed by the clock, over HTTP, one connection each.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

SERVE = """
import sys
from tacit.service.config.file import load_config
from tacit.service.app.server import serve
serve(load_config(sys.argv[1]))
"""


class Service:
    """A service with one placement, and a connection to it."""

    def __init__(self, folder, arms):
        config = folder / "tacit.toml"
        config.write_text(
            f'[server]\nport = 0\n[store]\npath = "{folder}/s.db"\n[placements.home]\narms = {arms}\n'
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(config)], stdout=subprocess.PIPE, text=True
        )
        self.host = self.process.stdout.readline().split()[3].rpartition("/")[2]
        self._connection = http.client.HTTPConnection(self.host)

    def post(self, what, body):
        headers = {"content-type": "application/json"}
        path = f"/v1/placements/home/{what}"
        self._connection.request("POST", path, json.dumps(body), headers)
        return json.loads(self._connection.getresponse().read())

    def teach(self, rounds):
        rng = random.Random(1)
        for i in range(rounds):
            made = self.post("decide", {"key": f"key {i % 10}"})
            told = {"decision_id": made["decision_id"], "reward": float(rng.random() < 0.1)}
            self.post("feedback", told)

    def decisions(self, count):
        """Return the milliseconds of decisions, one every 2 ms or so."""
        times = []
        for i in range(count):
            begun = time.perf_counter()
            self.post("decide", {"key": f"key {i % 10}"})
            times.append(1000 * (time.perf_counter() - begun))
            time.sleep(0.002)
        return times

    def look(self, over, times):
        """Look at the page until it is over; note the milliseconds."""
        connection, number = http.client.HTTPConnection(self.host), 0
        while not over.is_set():
            number += 1
            begun = time.perf_counter()
            connection.request("GET", f"/placements/home?look={number}")
            connection.getresponse().read()
            times.append(1000 * (time.perf_counter() - begun))
            over.wait(1.0)


def measure(arms, count):
    with tempfile.TemporaryDirectory() as folder:
        service = Service(Path(folder), arms)
        try:
            service.teach(600)
            over, pages = threading.Event(), []
            alone = service.decisions(count)
            looker = threading.Thread(target=service.look, args=(over, pages))
            looker.start()
            beside = service.decisions(count)
            over.set()
            looker.join()
        finally:
            service.process.terminate()
            service.process.wait()
    return alone, beside, pages


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arms", type=int, nargs="+", default=[10, 50, 500, 1000, 10_000])
    parser.add_argument("--decisions", type=int, default=1000)
    told = parser.parse_args()
    print(f"{'arms':>6} {'page, ms':>9} {'alone p50':>10} {'p99':>6} {'beside p50':>11} {'p99':>6}")
    for arms in told.arms:
        alone, beside, pages = measure(arms, told.decisions)
        ends = [np.quantile(times, q) for times in (alone, beside) for q in (0.5, 0.99)]
        a, b, c, d = ends
        print(f"{arms:>6} {np.median(pages):>9.0f} {a:>10.1f} {b:>6.1f} {c:>11.1f} {d:>6.1f}")


if __name__ == "__main__":
    main()
