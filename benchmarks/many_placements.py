"""Measure a start with many placements, used or not, and what `/metrics` takes then.

    python benchmarks/many_placements.py --placements 1000

Each start is timed by the clock, until the server says its address. The first `/metrics` writes everything,
later ones what has changed, which is nothing here.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np


def start(config):
    """Start a server; return its process, its port and the seconds that it took."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "tacit", "serve", "--port", "0", "--config", str(config)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    port = int(re.search(r":(\d+)", process.stdout.readline())[1])
    return process, port, time.perf_counter() - began


def scrape(connection, times):
    """Return the milliseconds of each of some requests of the metrics."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        connection.request("GET", "/metrics")
        connection.getresponse().read()
        taken.append(1000 * (time.perf_counter() - began))
    return taken


def use(connection, placements):
    """Decide once in each placement, and click."""
    headers = {"content-type": "application/json"}
    for i in range(placements):
        answer = {"key": "k"}
        for action in ("decide", "feedback"):
            connection.request("POST", f"/v1/placements/p{i}/{action}", json.dumps(answer), headers)
            made = json.loads(connection.getresponse().read())
            answer = {"decision_id": made["decision_id"], "reward": 1}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--placements", type=int, default=1000)
    count = parser.parse_args().placements
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "tacit.toml"
        tables = "".join(f"[placements.p{i}]\narms = 5\n" for i in range(count))
        config.write_text(f'[store]\npath = "{folder}/s.db"\n{tables}')
        for state in ("new", "unused", "used", "used", "used"):
            process, port, seconds = start(config)
            connection = http.client.HTTPConnection("127.0.0.1", port)
            first, *later = scrape(connection, 12)
            print(
                f"{state:>6}: start {seconds:.2f} s, metrics first {first:.0f} ms, later {min(later):.1f}",
                end="",
            )
            print(f" ({np.median(later):.1f}) ms", flush=True)
            if state == "unused":
                use(connection, count)
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
