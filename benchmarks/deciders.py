"""What decisions next to the caller cost: deciders, two shards and a PostgreSQL on this machine.

    python benchmarks/deciders.py [--deciders 1 4] [--seconds 20] [--rounds 4]

Each decider makes 2,000 decisions a second, 20 at a time, gives a feedback to each, and delivers them every
second. The times are those of the processor for a decision with its feedback, ± the standard error over the
rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev

import shards
from serve import cpu_seconds

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import stores

PACE = 1 / 2000
DECIDER = """
import json, sys, tempfile, time
import numpy as np
from tacit.client import Local
url, seconds, pace, seed = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
keys = np.minimum(np.random.default_rng(seed).zipf(1.2, 100_000), 1000).tolist()
with tempfile.TemporaryDirectory() as folder, Local(url, "default", folder, every=1.0, seed=seed) as local:
    def play(seconds):
        taken, begun = [], time.perf_counter()
        while time.perf_counter() < begun + seconds:
            for _ in range(20):
                start = time.perf_counter()
                shown = local.decide(f"query {keys[len(taken) % len(keys)]}")
                taken.append(time.perf_counter() - start)
                local.feedback(shown.decision_id, int(len(taken) % 3 == 0))
            time.sleep(max(0.0, begun + len(taken) * pace - time.perf_counter()))
        return taken
    play(3.0)
    print("warm", flush=True)
    sys.stdin.readline()
    before = time.process_time()
    taken = play(seconds)
    local.flush()
    spent = time.process_time() - before
print(json.dumps({"spent": spent, "taken": taken}))
"""


def postgres_seconds():
    """Return the processor time of the PostgreSQL, with its processes that have ended."""
    postmaster = int((stores.cluster().data / "postmaster.pid").read_text().split()[0])
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            identifier, rest = int(stat.parent.name), stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if identifier == postmaster:
            ticks += sum(map(int, rest[11:15]))
        elif int(rest[1]) == postmaster:
            ticks += sum(map(int, rest[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(count, seconds):
    """Return processor microseconds of deciders, shards and PostgreSQL, and how long decisions took."""
    with shards.serving("known", 2) as (processes, ports):
        told = [seconds, PACE]
        deciders = [
            subprocess.Popen(
                [sys.executable, "-c", DECIDER, f"http://127.0.0.1:{ports[i % 2]}", *map(str, [*told, i])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for i in range(count)
        ]
        for decider in deciders:
            assert decider.stdout.readline() == "warm\n"
        before = sum(map(cpu_seconds, processes)), postgres_seconds()
        for decider in deciders:
            decider.stdin.write("begin\n")
            decider.stdin.flush()
        answers = [json.loads(decider.communicate()[0]) for decider in deciders]
        after = sum(map(cpu_seconds, processes)), postgres_seconds()
    taken = sorted(seconds for answer in answers for seconds in answer["taken"])
    spent = sum(answer["spent"] for answer in answers), *(a - b for a, b in zip(after, before, strict=True))
    waits = [taken[int(len(taken) * share)] for share in (0.5, 0.99, 0.999)]
    return [1e6 * value / len(taken) for value in spent] + [1e6 * value for value in waits]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--deciders", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=4)
    told = parser.parse_args()
    print(
        "| deciders | decider | shards | PostgreSQL | a decision: median | p99 | p99.9 |\n|---|" + "--:|" * 6
    )
    for count in told.deciders:
        rounds = [measure(count, told.seconds) for _ in range(told.rounds)]
        cells = [
            f"{mean(column):.0f} ± {stdev(column) / len(column) ** 0.5:.0f} µs"
            for column in zip(*rounds, strict=True)
        ]
        print(f"| {count} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
