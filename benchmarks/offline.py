"""How fast logs are weighted: rows a second on one core, from Parquet to estimates.

python benchmarks/offline.py [ROWS]
python benchmarks/offline.py ROWS --scans

With ``--scans`` beside what polars and pyarrow take to read the same three columns, on one core, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

import tacit
from tacit.evaluate import IPS, SNIPS, DoublyRobust, Estimator, Rewards, Table, off_policy

ARMS = [f"arm{arm}" for arm in range(10)]
TARGET = Table({arm: (number + 1) / 55 for number, arm in enumerate(ARMS)})
MODEL = Rewards(dict.fromkeys(ARMS, 0.1))
PART = 500_000


def write(path: Path, rows: int, *, offers: bool) -> None:
    """Write a log of uniform choices among ten arms, with or without the arms on offer."""
    writer: Any = None
    for start in range(0, rows, PART):
        part = _part(start, min(PART, rows - start), offers)
        writer = writer or pyarrow.parquet.ParquetWriter(path, part.schema, compression="zstd")
        writer.write_table(part)
    writer.close()


def _part(start: int, rows: int, offers: bool) -> pa.Table:
    rng = np.random.default_rng(start)

    def names(codes: Any, dictionary: list[str]) -> Any:
        return pa.DictionaryArray.from_arrays(codes.astype(np.int32), dictionary).cast(pa.string())

    columns = {
        "timestamp": pa.array(np.arange(start, start + rows), pa.timestamp("us", "UTC")),
        "decision_id": pa.array(np.arange(start, start + rows)).cast(pa.string()),
        "placement": names(np.zeros(rows), ["home"]),
        "key": names(rng.integers(1000, size=rows), [f"query {key}" for key in range(1000)]),
        "arm": names(rng.integers(len(ARMS), size=rows), ARMS),
        "propensity": pa.array(np.full(rows, 0.1)),
        "reward": pa.array((rng.random(rows) < 0.1).astype(float)),
    }
    if offers:
        places = np.arange(rows + 1, dtype=np.int32) * len(ARMS)
        lists = names(np.tile(np.arange(len(ARMS)), rows), ARMS)
        columns["arms"] = pa.ListArray.from_arrays(places, lists)
    return pa.table(columns)


SCANS = {
    "polars, the three columns read": """
import polars
sums = polars.col("propensity").sum(), polars.col("reward").sum()
lazy = polars.scan_parquet(path).select(polars.col("arm").n_unique(), *sums)
run = lambda: lazy.collect(engine="streaming")
""",
    "polars, its own IPS": """
import polars
target = polars.col("arm").replace_strict({arm: (i + 1) / 55 for i, arm in enumerate(offline.ARMS)})
weighed = (target / polars.col("propensity") * polars.col("reward")).mean()
run = lambda: polars.scan_parquet(path).select(weighed).collect(engine="streaming")
""",
    "pyarrow, the three columns read": """
import pyarrow.parquet
columns = ["arm", "propensity", "reward"]
run = lambda: sum(map(len, pyarrow.parquet.ParquetFile(path).iter_batches(columns=columns)))
""",
    "off_policy, IPS": """
log = tacit.read_log(path, arms=offline.ARMS)
run = lambda: off_policy(offline.TARGET, log, [IPS()])
""",
    "replay, UCB1": """
log, policy = tacit.read_log(path, arms=offline.ARMS), tacit.UCB1(arms=offline.ARMS)
run = lambda: replay(policy, log)
""",
}
MEASURED = """
began = time.process_time()
run()
took = time.process_time() - began
# Not what getrusage says, which is at least what the parent had.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(took, int(peak.split()[1]) / 1024)
"""
READY = """
import sys, time
import pyarrow, offline, tacit
from tacit.evaluate import IPS, off_policy, replay
pyarrow.set_cpu_count(1), pyarrow.set_io_thread_count(1)
path = sys.argv[1]
"""


def scans(rows: int) -> None:
    """Print rows per second of processor time and the highest memory of the process, one after the other."""
    apart = {**os.environ, "POLARS_MAX_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        write(path, rows, offers=False)
        for what, code in SCANS.items():
            child = [sys.executable, "-c", READY + code + MEASURED, str(path)]
            done = subprocess.run(child, env=apart, check=True, capture_output=True, text=True)
            took, peak = map(float, done.stdout.split())
            print(f"{what:<34} {rows / took / 1e6:>6.2f} million rows/s {peak:>6.0f} MB", flush=True)


def rates(rows: int) -> dict[str, tuple[float, float]]:
    """Return rows per second of processor time and of the clock."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for offers in (False, True):
            path = Path(folder) / f"{offers}.parquet"
            write(path, rows, offers=offers)
            log = tacit.read_log(path, arms=None if offers else ARMS)
            told = "ten arms listed in each row" if offers else "arms given once"
            estimators: dict[str, list[Estimator]] = {"IPS and SNIPS": [IPS(), SNIPS()]}
            if not offers:
                estimators["IPS, SNIPS and DR"] = [IPS(), SNIPS(), DoublyRobust(MODEL)]
            for name, chosen in estimators.items():
                began = time.process_time(), time.perf_counter()
                off_policy(TARGET, log, chosen)
                took = time.process_time() - began[0], time.perf_counter() - began[1]
                found[f"{name} from Parquet, {told}"] = rows / took[0], rows / took[1]
    return found


def main() -> None:
    rows = int(sys.argv[1]) if sys.argv[1:] else 10_000_000
    if "--scans" in sys.argv:
        scans(rows)
        return
    for what, (core, clock) in rates(rows).items():
        print(f"{what}: {core / 1e6:.1f} M rows per core second, {clock / 1e6:.1f} M by the clock")


if __name__ == "__main__":
    main()
