"""What off_policy costs, beside others that compute the same numbers of the same table.

python benchmarks/log_costs.py [ROWS]
python benchmarks/log_costs.py --list

The functions of the package that IPS passes for a log of 400 rows; IPS with its intervals, from memory beside
polars' join and sum, and from Parquet beside polars' scan of the same columns and its sum; doubly robust with
a context of ten numbers beside NumPy's ridge of the same folds and arms. Least processor time of five turns,
on one core.
With ``--list`` the functions that are passed.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "POLARS_MAX_THREADS"), "1")

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from offline import ARMS, TARGET, write

try:
    import polars
except ImportError:
    polars = None  # type: ignore[assignment]

import tacit
from tacit.evaluate import IPS, ArmRidges, DoublyRobust, off_policy

PACKAGE = str(Path(tacit.__file__).parent)
DIM, FOLDS, PENALTY, STRENGTH = 10, 5, 10.0, 10.0
CHANCES = np.arange(1, len(ARMS) + 1) / 55
TURNS = 5


def least_time(call: Callable[[], object]) -> float:
    """Return the least processor time of a call, in seconds, after one that warms up."""
    call()
    turns = []
    for _ in range(TURNS):
        began = time.process_time()
        call()
        turns.append(time.process_time() - began)
    return min(turns)


def draw_table(rows: int, dim: int = 0) -> dict[str, Any]:
    """Return a log of uniform choices among ten arms, with a context of ``dim`` numbers."""
    rng = np.random.default_rng(0)
    table: dict[str, Any] = {
        "key": np.array([f"query {key}" for key in range(1000)])[rng.integers(1000, size=rows)],
        "arm": np.array(ARMS)[rng.integers(len(ARMS), size=rows)],
        "propensity": np.full(rows, 1 / len(ARMS)),
        "reward": (rng.random(rows) < 0.1).astype(float),
    }
    if dim:
        numbers = pa.array(rng.normal(size=rows * dim))
        table["context"] = pa.ListArray.from_arrays(np.arange(rows + 1, dtype=np.int32) * dim, numbers)
    return table


def list_functions(call: Callable[[], object]) -> list[str]:
    """Return the functions of the package that a call passes, comprehensions left out."""
    passed = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            passed.add(f"{code.co_filename[len(PACKAGE) + 1 :]} {code.co_firstlineno} {code.co_qualname}")

    call()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return sorted(name for name in passed if not name.endswith(("comp>", "genexpr>")))


def robust_by_numpy(context: Any, arm: Any, propensity: Any, reward: Any) -> float:
    """Return the doubly robust estimate by cross-fitted ridges of each arm, in NumPy with sums of products.

    All is in memory, nothing is checked, and there is no interval.
    """
    rows, dim = context.shape
    fold = np.arange(rows) % FOLDS
    cell = (fold * len(ARMS) + arm).astype(np.int16)
    columns = np.empty((rows, dim + 2))
    columns[:, 0], columns[:, 1:-1], columns[:, -1] = 1.0, context, reward
    order = np.argsort(cell, kind="stable")
    parts = np.split(columns[order], np.cumsum(np.bincount(cell, minlength=FOLDS * len(ARMS)))[:-1])
    products = np.array([part.T @ part for part in parts]).reshape(FOLDS, len(ARMS), dim + 2, dim + 2)
    penalties, total = np.diag([STRENGTH, *[PENALTY] * dim]), products.sum(axis=0)
    expected = np.empty((rows, len(ARMS)))
    for number in range(FOLDS):
        sums = total - products[number]
        pooled = sums.sum(axis=0) / sums[:, 0, 0].sum()
        mean, overall = pooled[0, 1:-1], pooled[0, -1]
        spread = np.sqrt(np.diag(pooled)[1:-1] - mean**2)
        shift = np.eye(dim + 2)
        shift[1:-1, 0], shift[-1, 0] = -mean, -overall
        shift[1:-1] /= spread[:, None]
        moved = shift @ sums @ shift.T
        weights = np.linalg.solve(moved[:, :-1, :-1] + penalties, moved[:, :-1, -1:])[..., 0]
        features = (context[number::FOLDS] - mean) / spread
        expected[number::FOLDS] = np.clip(features @ weights[:, 1:].T + weights[:, 0] + overall, 0.0, 1.0)
    errors = reward - expected[np.arange(rows), arm]
    return float((expected @ CHANCES + CHANCES[arm] / propensity * errors).mean())


def compare_robust(rows: int) -> None:
    """Print the time of doubly robust with a context, beside NumPy's of the same folds and penalty."""
    table = draw_table(rows, DIM)
    log = pa.table(table)
    context = table["context"].flatten().to_numpy().reshape(rows, DIM)
    columns = context, np.searchsorted(ARMS, table["arm"]), table["propensity"], table["reward"]
    theirs = least_time(lambda: robust_by_numpy(*columns))
    one, several = [DoublyRobust(ArmRidges(penalty=PENALTY))], [DoublyRobust(ArmRidges())]
    value = off_policy(TARGET, log, one, arms=ARMS).estimates[0].value
    assert abs(value - robust_by_numpy(*columns)) < 1e-9
    for name, estimators in ("one penalty", one), ("penalty of six", several):
        ours = least_time(lambda estimators=estimators: off_policy(TARGET, log, estimators, arms=ARMS))  # type: ignore[misc]
        print_row(f"DR, context of {DIM}, {name}", ours, rows, "NumPy's ridge", theirs)


def compare_memory(rows: int) -> None:
    """Print the time of IPS of a table in memory, beside polars' join with the target's table and its sum."""
    table = pa.table(draw_table(rows))
    ours = least_time(lambda: off_policy(TARGET, table, [IPS()], arms=ARMS))
    theirs = float("nan")
    if polars is not None:
        frame: Any = polars.from_arrow(table)
        target = polars.DataFrame({"arm": ARMS, "chance": CHANCES})
        weighted = (polars.col("chance") / polars.col("propensity") * polars.col("reward")).sum()
        theirs = least_time(lambda: frame.join(target, on="arm").select(weighted))
    print_row("IPS in memory", ours, rows, "polars' join and sum", theirs)


def compare_parquet(rows: int) -> None:
    """Print the time of IPS from Parquet, beside polars' scan of the same columns and its sum."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        write(path, rows, offers=False)
        log = tacit.read_log(path, arms=ARMS)
        ours = least_time(lambda: off_policy(TARGET, log, [IPS()]))
        theirs = float("nan")
        if polars is not None:
            target = polars.col("arm").replace_strict({arm: (i + 1) / 55 for i, arm in enumerate(ARMS)})
            weighted = (target / polars.col("propensity") * polars.col("reward")).sum()
            scan = polars.scan_parquet(path).select(weighted)
            theirs = least_time(lambda: scan.collect(engine="streaming"))
        print_row("IPS from Parquet", ours, rows, "polars' scan and sum", theirs)


def print_row(name: str, ours: float, rows: int, other: str = "", theirs: float = float("nan")) -> None:
    """Print a time in microseconds a row, with another's and their ratio."""
    text = f"{name:<38} {ours / rows * 1e6:>7.4f} µs a row"
    beside = f"  {other}: {theirs / rows * 1e6:.4f}, ratio {ours / theirs:.2f}" if other else ""
    print(text + beside, flush=True)


def main() -> None:
    """Print all measures, or with ``--list`` the functions that IPS passes."""
    small = draw_table(400)
    functions = list_functions(lambda: off_policy(TARGET, small, [IPS()], arms=ARMS))
    if "--list" in sys.argv:
        print(*functions, sep="\n")
        return
    print(f"functions that IPS passes for 400 rows {len(functions)}")
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    rows = int(sys.argv[1]) if sys.argv[1:] else 10**6
    compare_memory(rows)
    compare_parquet(rows)
    compare_robust(rows)


if __name__ == "__main__":
    main()
