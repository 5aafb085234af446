"""How fast logs are weighted: rows a second on one core, from Parquet to estimates.

python benchmarks/offline.py [ROWS]
"""

from __future__ import annotations

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


if __name__ == "__main__":
    for what, (core, clock) in rates(int(sys.argv[1]) if sys.argv[1:] else 10_000_000).items():
        print(f"{what}: {core / 1e6:.1f} M rows per core second, {clock / 1e6:.1f} M by the clock")
