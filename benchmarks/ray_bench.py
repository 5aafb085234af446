"""What Ray costs and gains: sweeps and offline evaluation, against threads of this process.

python benchmarks/ray_bench.py [ROWS [sweeps | evaluation]]

Ratios are taken between runs that follow one another, and the median of them is told: on a
busy machine single times say little.
"""

from __future__ import annotations

import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import ray
from offline import ARMS, TARGET, write

import tacit
from tacit import cluster
from tacit.core.parallel import run_in_threads, run_tasks, runner
from tacit.evaluate import IPS, SNIPS, DoublyRobust, off_policy
from tacit.simulation import play_runs

PAIRS = 3
FILE_ROWS = 2_500_000
UNITS = 4
WORLD = tacit.BernoulliArms([0.1, 0.2, 0.3, 0.4, 0.5])


def seconds(function: Callable[[], Any]) -> float:
    """Return how long a call takes."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def unit(horizon: int, number: int, report: Any) -> float:
    """Play one run; return how long it took where it was played."""
    policy, points = tacit.Thompson(arms=5), np.array([horizon])
    return seconds(lambda: play_runs(policy, WORLD, horizon, 1, number, number + 1, points, None, report))


def sweep(horizon: int, workers: int | None = None) -> tuple[float, float]:
    """Play units of one run each; return seconds by the clock, and the mean of the units' own."""
    units = [(horizon, number) for number in range(UNITS)]
    began = time.perf_counter()
    own = run_tasks(unit, units, [1.0] * UNITS, label="sweep", workers=workers)
    return time.perf_counter() - began, sum(own) / UNITS


def sweeps(workers: int) -> dict[str, float]:
    """Return what is lost between units, in threads and on Ray, and how the two compare.

    What is lost is the time by the clock that no unit accounts for. It hardly depends on who
    else uses the machine; the ratio of two times by the clock does.
    """
    sweep(1000, workers)
    horizon = int(4_000_000 / sweep(1_000_000, workers)[1])
    with started(workers):
        sweep(1000)  # workers have begun and found the compiled loop
        pairs = [(locally(lambda: sweep(horizon, workers)), sweep(horizon)) for _ in range(PAIRS)]

    def lost(which: int) -> float:
        return statistics.median(pair[which][0] * workers / UNITS / pair[which][1] - 1.0 for pair in pairs)

    return {
        "seconds of a unit, threads": statistics.median(a[1] for a, _ in pairs),
        "seconds of a unit, Ray": statistics.median(b[1] for _, b in pairs),
        "lost between units, threads": lost(0),
        "lost between units, Ray": lost(1),
        "Ray / threads by the clock": statistics.median(b[0] / a[0] for a, b in pairs),
    }


def locally(function: Callable[[], Any]) -> Any:
    """Return what a call gives without Ray, although Ray is there."""
    token = runner.set(run_in_threads)
    try:
        return function()
    finally:
        runner.reset(token)


class started:
    """A cluster of its own with so many workers, on which work is spread."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._on_ray = cluster.on_ray()

    def __enter__(self) -> None:
        ray.init(num_cpus=self._workers, include_dashboard=False, log_to_driver=False, logging_level="error")
        self._on_ray.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._on_ray.__exit__(*error)
        ray.shutdown()


def peak(_: int) -> float:
    """Return the most memory that this process ever held, in MiB."""
    time.sleep(0.2)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def evaluation(folder: Path, rows: int) -> Iterator[tuple[str, float]]:
    """Return rows a second of offline evaluation, and the memory that a worker took."""
    write(folder / "part-0000.parquet", FILE_ROWS, offers=False)
    # Links to one file: it is read as often as it is named.
    for file in range(1, rows // FILE_ROWS):
        os.link(folder / "part-0000.parquet", folder / f"part-{file:04}.parquet")
    rows = rows // FILE_ROWS * FILE_ROWS
    log = tacit.read_log(folder, arms=ARMS)
    yield "GB of Parquet", sum(file.stat().st_size for file in folder.iterdir()) / 1e9
    for name, estimators in (("IPS, SNIPS", [IPS(), SNIPS()]), ("DR", [DoublyRobust()])):
        single = seconds(lambda e=estimators: off_policy(TARGET, log, e))
        yield f"{name}: M rows/s, one process", rows / single / 1e6
        for workers in (1, 2):
            with started(workers):
                cluster.off_policy(TARGET, log, estimators)
                took = seconds(lambda e=estimators: cluster.off_policy(TARGET, log, e))
                yield f"{name}: M rows/s, Ray, workers: {workers}", rows / took / 1e6
                tasks = ray.remote(num_cpus=1)(peak)
                peaks = ray.get([tasks.remote(i) for i in range(4 * workers)])
                yield f"{name}: MiB of a worker at most, workers: {workers}", max(peaks)
    with started(1):
        peaks = ray.get([ray.remote(num_cpus=1)(_idle).remote(0)])
        yield "MiB of a worker that has only imported tacit.cluster", max(peaks)


def _idle(_: int) -> float:
    import tacit.cluster  # noqa: F401  what every worker loads

    return peak(0)


def main() -> None:
    rows, *chosen = sys.argv[1:] or ["20000000"]
    if "evaluation" not in chosen:
        for workers in (1, 2):
            for what, value in sweeps(workers).items():
                print(f"sweep, workers: {workers}: {what}: {value:.3f}", flush=True)
    if "sweeps" not in chosen:
        with tempfile.TemporaryDirectory() as folder:
            for what, value in evaluation(Path(folder), int(rows)):
                print(f"evaluation of {int(rows):,} rows: {what}: {value:,.2f}", flush=True)


if __name__ == "__main__":
    main()
