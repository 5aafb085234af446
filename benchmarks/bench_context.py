"""A user's context and named arms: `tacit.auto`, untuned, beside other packages, tuned on other streams.

python benchmarks/bench_context.py                 a few short streams
python benchmarks/bench_context.py --full          all of them; writes context.json and CONTEXT.md
python benchmarks/bench_context.py --tuned --first 86001   on those seeds, with what tuning found before
python benchmarks/bench_context.py --data FOLDER   and what policies are worth on logs of Open Bandit

Each package plays in an environment of its own, a candidate for each of its hyperparameters on seeds for
tuning; the best of these plays the seeds that count. A run that was cut off goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import asdict
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

import context_log
import context_streams
import numpy as np
import page
from bench import machine
from bench_peers import UNTUNED, Bench, Effort, paired, summary

HERE = Path(__file__).parent
TUNING = 50_001
"""The first seed of the streams for tuning."""
TESTING = 60_001
"""The first seed of those that count."""
LINES = "ten_lines"


class Rival(NamedTuple):
    """Who plays, and how much of it.

    Attributes
    ----------
    peer : str
        The package.
    role : str
        The function of the package's file in ``peers`` that returns its candidates.
    slow : bool
        Whether it plays half of the seeds, and no stream of ``LONG``.
    widest : int
        The most arms × numbers of a stream that it plays.
    """

    peer: str
    role: str
    slow: bool = False
    widest: int = 1_000


RIVALS = {
    "tacit": Rival(UNTUNED, "users"),
    "NumPy, ten lines": Rival(LINES, "users"),
    "VW squarecb": Rival("vowpalwabbit", "users_squarecb"),
    "VW cover": Rival("vowpalwabbit", "users_cover", slow=True),
    "VW bag": Rival("vowpalwabbit", "users_bag", slow=True),
    "VW regcb": Rival("vowpalwabbit", "users_regcb", slow=True),
    "river LinUCB": Rival("river", "users_linucb"),
    "river ε-greedy": Rival("river", "users_epsilon"),
    "mabwiser LinUCB": Rival("mabwiser", "users_linucb", slow=True),
    "mabwiser LinTS": Rival("mabwiser", "users_lints", slow=True),
    "bayesianbandits linear": Rival("bayesianbandits", "users_normal", slow=True),
    "bayesianbandits logistic": Rival("bayesianbandits", "users_glm", slow=True),
    "coba LinUCB": Rival("coba", "users_linucb", slow=True),
    # It factorises a matrix over arms × numbers in every round.
    "coba LinTS": Rival("coba", "users_lints", slow=True, widest=200),
}
OURS = "tacit"
HEAD = """# A user's context, beside other packages

Regret, mean ± standard error over 24 seeds (12 for other packages on the four longest streams; 6 for the slow
ones, which did not play these); a star where it is less than that of `tacit.auto` on the same seeds by twice
the error of the difference, ′ where the seeds are older. By `python benchmarks/bench_context.py --full`;
machine, candidates and every score are in `context.json`.
"""
SHORT = ("digits", "wine, unscaled", "iris")
"""What is played unless asked otherwise."""
TIMED = "digits"
"""What time and memory are measured on."""
FULL = tuple(name for name in context_streams.STREAMS | context_streams.LENT if name != "dense, 50 arms")
LONG = ("dense, 10 arms", "4 of 64 count", "large main effect", "clicks 2 %")

Row = dict[str, Any]


class ContextBench(Bench):
    """Streams of `context_streams.py`, as they are and scaled by means and deviations of the whole."""

    files = ("context_streams.py",)

    def write(self, path: Path, role: str, seed: int) -> None:
        """Write a stream; the scales are a gift to those who do not learn them."""
        contexts, chances, coins = context_streams.stream(role, seed)
        deviation = contexts.std(axis=0)
        scaled = (contexts - contexts.mean(axis=0)) / np.where(deviation > 0.0, deviation, 1.0)
        with path.open("wb") as file:
            np.savez(
                file,
                kind="users",
                seed=seed,
                contexts=contexts,
                scaled=scaled,
                chances=chances,
                uniforms=coins,
            )


# Measuring -----------------------------------------------------------------------------------


def plays(name: str, rival: Rival) -> bool:
    """Whether a rival plays a stream."""
    one = context_streams.stream(name, TUNING)
    wide = one.chances.shape[1] * one.contexts.shape[1] > rival.widest
    return not wide and not (rival.slow and name in LONG)


def tested(bench: Bench, name: str, label: str, first: int) -> Any:
    """Tune on some streams, unless that was done before, then play the others with the best."""
    rival = RIVALS[label]
    share = 2 if rival.slow else 1
    tuning = range(TUNING, TUNING + max(1, bench.effort.tuning // share))
    testing = range(first, first + max(2, bench.effort.testing // share))
    regrets = bench.tuned.get((name, label), {"": 0.0})
    if rival.peer != UNTUNED and (name, label) not in bench.tuned:
        tuned = bench.play(rival.peer, name, tuning, rival.role)["played"]
        regrets = {candidate: mean(run[2][0] for run in runs) for candidate, runs in tuned.items()}
    best = min(regrets, key=regrets.__getitem__)
    ((policy, runs),) = bench.play(rival.peer, name, testing, rival.role, best)["played"].items()
    return {"policy": policy, "tuning": regrets, "scores": [run[2][0] for run in runs]}


def learned(bench: Bench, names: tuple[str, ...], rivals: tuple[str, ...], first: int) -> list[Row]:
    """Return a row for each stream and who plays it, with its regrets seed by seed."""
    order = [
        (name, rival)
        for slow in (False, True)
        for name in names
        for rival in rivals
        if RIVALS[rival].slow == slow
    ]
    rows = []
    for name, rival in order:
        if RIVALS[rival].peer not in bench.pythons or not plays(name, RIVALS[rival]):
            continue
        job = f"{name}-{rival}".replace(" ", "-")
        found = bench.once(job, lambda: tested(bench, name, rival, first))  # noqa: B023
        if "error" in found:
            bench.notes[f"{rival}, {name}"] = found["error"]
        else:
            rows.append({"stream": name, "rival": rival, "first": first, **found["result"]})
    return rows


def timed(bench: Bench, rows: list[Row]) -> list[Row]:
    """Return microseconds a round and megabytes of a process; all play in turn, A B A B."""
    best = {row["rival"]: row["policy"] for row in rows if row["stream"] == TIMED}
    found: dict[str, list[Any]] = {}
    for turn in range(bench.effort.repetitions):
        for rival, policy in best.items():
            peer, role = RIVALS[rival].peer, RIVALS[rival].role
            seeds = range(TUNING + turn, TUNING + turn + 1)
            job = f"time-{turn}-{rival}".replace(" ", "-")
            measured = bench.once(job, lambda: bench.play(peer, TIMED, seeds, role, policy))  # noqa: B023
            if "result" in measured:
                found.setdefault(rival, []).append(measured["result"])
    paces = {
        rival: [1e6 * run[0] / run[1] for each in results for runs in each["played"].values() for run in runs]
        for rival, results in found.items()
    }
    return [
        {
            "rival": rival,
            "microseconds": median(paces[rival]),
            "ratio": median(theirs / own for theirs, own in zip(paces[rival], paces[OURS], strict=False)),
            "megabytes": max(each["megabytes"] for each in results),
        }
        for rival, results in found.items()
    ]


def best_fixed(name: str, seeds: range) -> Any:
    """Return the regrets of the arm that is best on the whole, which nobody knows beforehand."""
    found = []
    for seed in seeds:
        chances = context_streams.stream(name, seed).chances
        found.append(float(chances.max(axis=1).sum() - chances.sum(axis=0).max()))
    return found


# The table -----------------------------------------------------------------------------------


def cell(row: Row | None, rows: list[Row]) -> str:
    """Return a mean and its error.

    A star is where it is less than ours by twice the error of the difference, ′ where seeds are older.
    """
    if row is None:
        return "–"
    found, less = summary(row["scores"]), paired(row["scores"], page.ours_beside(row, rows))
    error = less["standard_error"] or 0.0
    marks = "′" * (row["first"] != rows[-1]["first"]) + " ★" * (less["score"] < -2.0 * error)
    return page.uncertain(found["score"], found["standard_error"]) + marks


def against(rows: list[Row], rival: str) -> str:
    """Return the geometric mean over streams of a rival's regret beside ours, on the same seeds."""
    ratio, streams = page.against(rows, rival)
    return f"{ratio:.2f} ({streams})" if streams else "–"


def table(results: Row, rivals: list[str] | None = None) -> str:
    """Return the table: a row for each stream, the last ones for all of them, time and memory."""
    rows, times = results["rows"], {row["rival"]: row for row in results["times"]}
    rivals = rivals or [rival for rival in RIVALS if any(row["rival"] == rival for row in rows)]
    found = {(row["stream"], row["rival"]): row for row in rows}
    names = [name for name in FULL if (name, OURS) in found]
    lines = [(name, *(cell(found.get((name, rival)), rows) for rival in rivals)) for name in names]
    lines.append(("beside tacit (streams)", *(against(rows, rival) for rival in rivals)))
    heads = (("µs, choose and learn", "microseconds"), ("the same beside tacit", "ratio"))
    for head, key in (*heads, ("process, MB", "megabytes")):
        lines.append((head, *(page.number(times.get(rival, {}).get(key)) for rival in rivals)))
    heads = ("regret", *rivals)
    rule = "|".join(["---", *["--:"] * len(rivals)])
    return "\n".join(
        [f"| {' | '.join(heads)} |", f"|{rule}|", *(f"| {' | '.join(line)} |" for line in lines)]
    )


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    shown = "; ".join(FULL).replace("%", "%%")
    parser.add_argument("--full", action="store_true", help="all streams, and write down what was found")
    parser.add_argument("--streams", nargs="+", choices=FULL, metavar="STREAM", help=shown)
    parser.add_argument("--rivals", nargs="+", choices=list(RIVALS), metavar="RIVAL", help="; ".join(RIVALS))
    parser.add_argument("--seeds", type=int, default=0, help="streams that count: 3, or 12 with --full")
    parser.add_argument("--first", type=int, default=TESTING, help="the first seed of those that count")
    parser.add_argument("--tuned", action="store_true", help="tune nobody anew")
    parser.add_argument("--so-far", action="store_true", help="show what was measured so far")
    parser.add_argument("--data", type=Path, help="folder of Open Bandit's logs, with random/men in it")
    asked = parser.parse_args()
    effort = Effort(
        repetitions=3 if asked.full else 1,
        runs={},
        tuning=2 if asked.full else 1,
        testing=asked.seeds or (12 if asked.full else 3),
        limit=3_600.0,
    )
    bench = ContextBench(f"context-{asked.first}", effort, asked.so_far)
    bench.pythons[LINES] = bench.pythons[UNTUNED]
    before = json.loads((HERE / "context.json").read_text())["rows"] if asked.tuned else []
    bench.tuned = {(row["stream"], row["rival"]): row["tuning"] for row in before}
    names = tuple(asked.streams or (FULL if asked.full else SHORT))
    rivals = tuple(dict.fromkeys([OURS, *(asked.rivals or RIVALS)]))
    lent = ["river"] if set(names) & set(context_streams.LENT) else []
    for peer in dict.fromkeys([*(RIVALS[rival].peer for rival in rivals), *lent]):
        if peer not in bench.pythons:
            bench.install(peer)
    rows = learned(bench, names, rivals, asked.first)
    results = {
        "machine": machine(),
        "effort": asdict(effort) | {"first": asked.first},
        "notes": bench.notes,
        "rows": rows,
        "times": timed(bench, rows),
        "fixed": {
            name: mean(best_fixed(name, range(asked.first, asked.first + effort.testing))) for name in names
        },
    }
    print(table(results))
    for name, note in bench.notes.items():
        print(f"{name}: {note}")
    results["logs"] = context_log.values(asked.data)
    print(context_log.table(results["logs"]))
    if asked.full:
        (HERE / "context.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        (HERE / "CONTEXT.md").write_text(f"{HEAD}\n{table(results)}\n")
    if not asked.so_far:
        shutil.rmtree(bench.folder)


if __name__ == "__main__":
    main()
