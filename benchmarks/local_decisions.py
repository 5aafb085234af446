"""What a decision next to the caller takes, while what is decided is delivered in the background.

python benchmarks/local_decisions.py

The service runs in a process of its own. How quiet the machine was is told by the load before and
by how long an empty loop's slowest turns took.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tacit.client import Local

DECISIONS = 200_000
PACE = 100e-6
"""Seconds between two decisions: 10,000 a second."""
SERVE = """
import sys
from tacit.service.config.file import load_config
from tacit.service.app.server import serve
serve(load_config(overrides={"server.port": 0, "store.path": sys.argv[1]}))
"""


def timed(call: object) -> np.ndarray:
    """Return how long each call took, in µs, one every :data:`PACE` seconds."""
    taken = np.empty(DECISIONS)
    for i in range(DECISIONS):
        start = time.perf_counter()
        call()  # type: ignore[operator]
        taken[i] = time.perf_counter() - start
        while time.perf_counter() - start < PACE:
            pass
    return 1e6 * taken


def told(name: str, taken: np.ndarray) -> str:
    """Return a line of quantiles."""
    quantiles = np.quantile(taken, [0.5, 0.99, 0.999])
    return f"{name:<22}" + "".join(f"{q:>10.1f}" for q in quantiles)


def main() -> None:
    """Measure, and print."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        service = subprocess.Popen(
            [sys.executable, "-c", SERVE, folder / "tacit.db"], stdout=subprocess.PIPE, text=True
        )
        try:
            assert service.stdout is not None
            url = service.stdout.readline().split()[3].rstrip("/")
            with Local(url, "default", folder / "spool", every=1.0, seed=1) as local:
                local.decide("key")
                keys = iter([f"key {i % 100}" for i in range(DECISIONS)])
                begun = time.process_time()
                taken = timed(lambda: local.decide(next(keys)))
                spent = time.process_time() - begun
        finally:
            service.terminate()
            service.wait()
    nothing = timed(lambda: None)
    print(f"{DECISIONS:,} decisions, every second an exchange; load before {load:.1f}")
    print(f"{'µs by the clock':<22}{'median':>10}{'99 %':>10}{'99.9 %':>10}")
    print(told("Local.decide", taken))
    print(told("nothing", nothing))
    print(f"processor time of the process, waiting included: {1e6 * spent / DECISIONS:.0f} µs each")


if __name__ == "__main__":
    main()
