"""How fast decisions over features are, beside plain C.

python benchmarks/features.py                 beside C
python benchmarks/features.py --updates N     what N updates leave of a covariance (10⁷, say)
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import c_loops
import numpy as np

import tacit
from tacit.core.dispatch import choose, learn
from tacit.core.run_mode import compile_loop
from tacit.policies.base import Impression, Outcome
from tacit.policies.features.gaussian import Gaussian, apply_observation, belief, dot, project

SOURCE = Path(__file__).with_name("c") / "features.c"
SIZES = {(10, 10): 100_000, (100, 1000): 1_000}
"""Rounds of a timed run by dimensions and arms on offer."""
GOALS = {(10, 10): 2.0, (100, 1000): 60.0}


def loop(params: Any, state: Any, relevance: Any, examination: Any, arms: Any, rounds: int, rng: Any) -> None:
    """Choose and learn, each round from another stretch of the features."""
    offered, context = len(arms), relevance[0, :0]
    for t in range(rounds):
        start = t * 7 % (len(relevance) - offered + 1)
        stop = start + offered
        impression = Impression(arms, context, relevance[start:stop], examination[start:stop])
        arm = choose(params, state, 0, impression, rng)
        learn(params, state, 0, Outcome(impression, arm, 1.0 if rng.random() < 0.25 else 0.0, 1.0))


def policies(dim: int) -> list[tacit.policies.ClickModel]:
    """Return what is timed, over so many features in all."""
    half = dim // 2
    return [
        tacit.policies.ECBandit(half, half),
        tacit.policies.LaplaceEC(half, half),
        tacit.policies.LogisticTS(half, half, intercept=False),
        tacit.policies.LinTS(half, half, intercept=False),
    ]


def coupled(dim: int) -> list[tacit.policies.ClickModel]:
    """Return what draws one number for all arms, at O(d²) an arm."""
    half = dim // 2
    return [tacit.policies.LaplaceEC(half, half, draw="coupled"), tacit.ClickMixture(half, half)]


def microseconds(
    policy: tacit.policies.ClickModel, offered: int, rounds: int, repetitions: int
) -> list[float]:
    """Return processor time per choose + learn in the compiled loop."""
    rng = np.random.default_rng(1)
    half = policy.relevance_dim
    blocks = [rng.standard_normal((2 * offered, half)) / np.sqrt(2 * half) for _ in range(2)]
    driver = compile_loop(loop, policy.params)
    times = []
    for _ in range(repetitions + 1):
        state = policy.init(1)
        start = time.thread_time()
        driver(policy.params, state, *blocks, np.arange(offered), rounds, rng)
        times.append(1e6 * (time.thread_time() - start) / rounds)
    return times[1:]


def floor(dim: int, offered: int, rounds: int, repetitions: int) -> list[float]:
    """Return the same of the C loop, which does what LaplaceEC does."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "features"
        command = ["gcc", *c_loops.FLAGS, str(SOURCE), "-o", str(program), "-lm"]
        subprocess.run(command, check=True, capture_output=True)
        sizes = [str(dim), str(offered), str(rounds)]
        found = []
        for seed in range(repetitions):
            done = subprocess.run([program, *sizes, str(seed)], check=True, capture_output=True)
            found.append(float(json.loads(done.stdout)["microseconds"]))
    return found


def many_updates(mean: Any, root: Any, rows: Any, v: Any, count: int) -> None:
    """Take in rows again and again, at precision 1/4."""
    for n in range(count):
        x = rows[n % len(rows)]
        s = project(root, x, v)
        apply_observation(mean, root, v, s, 0.25, (0.5 - 0.25 * dot(mean, x)) / (1.0 + 0.25 * s))


def endurance(count: int) -> dict[str, float]:
    """Return what is left of a 10-dimensional covariance after so many rank-one updates.

    The rows are nearly collinear: one direction, and 1e-3 of noise.
    """
    import numba

    compile_loop(loop, tacit.policies.LaplaceEC(1, 1).params)
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((1, 10)) + 1e-3 * rng.standard_normal((64, 10))
    own = Gaussian.prior(1, 10, 1.0)
    numba.njit(error_model="numpy")(many_updates)(own.mean[0], own.root[0], rows, own.room[0, 0], count)
    shares = np.bincount(np.arange(64), weights=[(count - n + 63) // 64 for n in range(64)])
    exact = np.linalg.eigvalsh(np.linalg.inv(np.eye(10) + 0.25 * (rows.T * shares) @ rows))
    told = np.sort(np.linalg.svd(own.root[0], compute_uv=False)) ** 2
    return {
        "updates": count,
        "smallest eigenvalue": float(told[0]),
        "condition": belief(own.mean[0], own.root[0]).condition,
        "largest relative error of an eigenvalue": float(np.abs(told / exact - 1.0).max()),
    }


def main() -> None:
    """Measure and print."""
    # The paper's features have no constant, and its truth needs none.
    warnings.simplefilter("ignore", tacit.policies.IdentifiabilityWarning)
    if sys.argv[1:2] == ["--updates"]:
        print(json.dumps(endurance(int(sys.argv[2])), indent=1))
        return
    for (dim, offered), rounds in SIZES.items():
        for policy in policies(dim):
            times = microseconds(policy, offered, rounds, 9)
            name = type(policy).__name__
            print(f"{name}, d = {dim}, {offered} on offer: {spread(times)} µs", flush=True)
        for policy in coupled(dim) if dim == 10 else []:
            times = microseconds(policy, offered, rounds, 9)
            print(f"{policy.label}, {offered} on offer: {spread(times)} µs", flush=True)
        print(f"C -O3, d = {dim}, {offered} on offer: {spread(floor(dim, offered, rounds, 9))} µs")


def spread(times: Sequence[float]) -> str:
    """Return the median, the least and the most."""
    return f"{np.median(times):.3g} ({min(times):.3g}–{max(times):.3g})"


if __name__ == "__main__":
    main()
