"""What readers who do not read cost: memory of the service, and the wait of a decision beside them.

python benchmarks/unread.py [--keys 300000] [--readers 40] [--seconds 20]
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

SERVE = """
import sys
from tacit.service.config.file import load_config
from tacit.service.app.server import serve
serve(load_config(sys.argv[1]))
"""
CONFIG = """
[server]
port = 0
[placements.home]
arms = 5
"""
ASK = b"GET /v1/placements/home/learner HTTP/1.1\r\nHost: localhost\r\n\r\n"
BATCH = 1000


def main() -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=300_000)
    parser.add_argument("--readers", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=20.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "tacit.toml"
        config.write_text(CONFIG)
        command = [sys.executable, "-c", SERVE, str(config)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder)
        try:
            port = int(process.stdout.readline().split()[3].rpartition(":")[2])
            measure(process.pid, http.client.HTTPConnection("127.0.0.1", port), port, asked)
        finally:
            process.terminate()
            process.wait()


def measure(pid: int, client: http.client.HTTPConnection, port: int, asked: object) -> None:
    """Fill the placement, look, let readers come, and look again."""
    for first in range(0, asked.keys, BATCH):
        decisions = [{"key": f"key {i}"} for i in range(first, first + BATCH)]
        post(client, "decide/batch", {"decisions": decisions})
    quiet = waits(client, 3.0)
    before = most = resident(pid)
    print(f"before: {before:.0f} MB, decisions p50 {told(quiet, 0.5)}, p99 {told(quiet, 0.99)}")
    readers = [reader(port) for _ in range(asked.readers)]
    found: list[float] = []
    end = time.monotonic() + asked.seconds
    while time.monotonic() < end:
        found += waits(client, 0.2)
        most = max(most, resident(pid))
    print(f"with {asked.readers} readers: {most:.0f} MB at most, + {most - before:.0f} MB")
    print(f"  decisions p50 {told(found, 0.5)}, p99 {told(found, 0.99)}, worst {told(found, 1)}")
    print(f"  answers: {dict(Counter(map(status, readers)))}")


def reader(port: int) -> socket.socket:
    """Return a connection that has asked, and reads nothing."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", port))
    connection.sendall(ASK)
    return connection


def status(connection: socket.socket) -> str:
    """Return the status that came."""
    connection.settimeout(1.0)
    try:
        return connection.recv(12).decode()[9:] or "closed"
    except OSError as error:
        return type(error).__name__


def waits(client: http.client.HTTPConnection, seconds: float) -> list[float]:
    """Return how long decisions took, for as long."""
    found, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        post(client, "decide", {"key": "key 7"})
        found.append(time.perf_counter() - began)
        time.sleep(0.005)
    return found


def post(client: http.client.HTTPConnection, path: str, body: object) -> None:
    """Post to the placement."""
    said = {"content-type": "application/json"}
    client.request("POST", f"/v1/placements/home/{path}", json.dumps(body), said)
    response = client.getresponse()
    response.read()
    assert response.status == 200, response.status


def resident(pid: int) -> float:
    """Return the memory of a process, in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def told(found: list[float], share: float) -> str:
    """Return a quantile of waits, in ms."""
    place = min(int(share * len(found)), len(found) - 1)
    return f"{1000 * sorted(found)[place]:.1f} ms"


if __name__ == "__main__":
    main()
