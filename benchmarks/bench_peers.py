"""Play tacit and other packages on the same streams: time, memory, and what was learned.

python benchmarks/bench_peers.py            everything; writes peers.json and docs/benchmarks.md
python benchmarks/bench_peers.py --only learned   one part; the page keeps the others as they are
python benchmarks/bench_peers.py --short    the same with few runs
python benchmarks/bench_peers.py --so-far   writes what a run that was cut off has measured
python benchmarks/bench_peers.py --tuned    takes over which candidates tuning found best before: their
                                            versions and streams must be the same ones
python benchmarks/bench_peers.py --only timed --roles weighing --first 93001   one role alone, on those seeds
python benchmarks/bench_peers.py --only learned --tuned --first 61000 --testing 40   on seeds from there on,
                                            into ``fresh``; rows of other packages and ``--roles`` stay

The parts are ``timed``, ``learned`` and ``wrong``. A run that was cut off goes on where it was;
what it measured lies in ``.measured``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import c_loops
import features
import page
import streams
import venvs
import wrong
from bench import machine
from venvs import HERE, PeerFailed

import tacit

MEASURED = HERE / ".measured"
PEERS = (
    "bayesianbandits",
    "coba",
    "contextualbandits",
    "duelpy",
    "gittins",
    "mabwiser",
    "obp",
    "pybandits",
    "pymab",
    "river",
    "smpybandits",
    "vowpalwabbit",
)
SPEED = {
    "classical": ("bayesianbandits", "coba", "mabwiser", "pybandits", "pymab", "river", "smpybandits"),
    "changes": ("pymab", "smpybandits"),
    "duels": ("duelpy",),
    "contextual": ("bayesianbandits", "coba", "contextualbandits", "gittins", "mabwiser", "vowpalwabbit"),
    "replay": ("river",),
    "weighing": ("contextualbandits", "obp", "pybandits", "vowpalwabbit"),
}
"""Who plays what for time. tacit plays all."""
COMPILED = ("classical", "changes", "duels", "contextual")
"""What tacit plays in its compiled loops, too."""
BASE = {"classical": "UCB1", "contextual": "LaplaceEC"}
"""What an algorithm is compared with that tacit does not have."""
BY_NAME = ("gittins", "river", "pymab", "coba", "vowpalwabbit", "mabwiser", "pybandits", "smpybandits")
BY_FEATURES = ("gittins", "vowpalwabbit", "mabwiser", "coba", "bayesianbandits")
QUALITY = {
    "shifting": (*BY_NAME, "bayesianbandits"),
    "drift": BY_NAME,
    "stealth": BY_NAME,
    "late": (*BY_NAME, "bayesianbandits"),
    "graded": (*BY_NAME, "bayesianbandits"),
    "names": BY_NAME,
    "interest": BY_NAME,
    "dueling": ("duelpy",),
    "examination": BY_FEATURES,
    "contextual": BY_FEATURES,
}
"""Who plays what for regret; tacit plays all.

Left out is who takes more than 2 ms a round: contextualbandits over features, and bayesianbandits
where it lets more than five arms forget in every round.
"""
UNTUNED = "untuned"
"""tacit's recommended policy, which has nothing to tune."""
OURS = (UNTUNED, "tacit")
"""What every package is compared with, stream by stream."""
SLOW = ("mabwiser", "vowpalwabbit", "pybandits", "smpybandits", "bayesianbandits")
"""Who takes long to learn, the longest last."""
PLAYED_AS = {
    "contextual": "examination",
    **dict.fromkeys(("drift", "interest", "names", "stealth", "late", "graded"), "shifting"),
}
"""Whose candidates play a role that has none of its own."""
TUNED_ON = {"drift": "shifting", "stealth": "shifting"}
"""On which streams candidates for a role are compared, where not on its own."""


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes
    ----------
    repetitions : int
        How often all that is timed is run, in turn.
    runs : dict
        Streams of a timed role per repetition.
    tuning, testing : int
        Streams that candidates are compared on, and that the best is tested on.
    first : int
        The seed of the first of the latter.
    limit : float
        Seconds by the clock that one job of a package may take.
    """

    repetitions: int
    runs: dict[str, int]
    tuning: int
    testing: int
    limit: float
    first: int = streams.TEST


FULL = Effort(
    repetitions=3,
    runs={"classical": 3, "changes": 2, "duels": 4, "contextual": 1, "replay": 10, "weighing": 4},
    tuning=8,
    testing=24,
    limit=14_400.0,
)
SHORT = Effort(
    repetitions=1,
    runs={"classical": 2, "changes": 1, "duels": 4, "contextual": 1, "replay": 10, "weighing": 4},
    tuning=1,
    testing=5,
    limit=300.0,
)

Job = Callable[[], Any]


def say(text: str) -> None:
    """Report progress."""
    print(text, file=sys.stderr, flush=True)


# Jobs ----------------------------------------------------------------------------------------


class Bench:
    """Runs jobs, each once: what was measured before a run was cut off is read again.

    Parameters
    ----------
    part : str
        What is measured, of ``PARTS``.
    effort : Effort
    so_far : bool, default False
        Whether to take what is not measured for failed, instead of measuring it.
    data : path, optional
        A table of real search interest.
    """

    files: tuple[str, ...] = ("streams.py", "features.py", "c/loops.c", "c/features.c")
    """What the results depend on, besides the packages."""

    def __init__(self, part: str, effort: Effort, so_far: bool = False, data: Path | None = None) -> None:
        self.effort, self.so_far, self.data = effort, so_far, data
        self.pythons = {"tacit": Path(sys.executable), UNTUNED: Path(sys.executable)}
        self.notes: dict[str, str] = {}
        self.tuned: dict[tuple[str, str], dict[str, Any]] = {}
        self.peers: tuple[str, ...] = PEERS
        self.roles: dict[str, tuple[str, ...]] = SPEED if part == "timed" else QUALITY
        self.folder = MEASURED / f"{part}-{self._digest()}"
        (self.folder / "streams").mkdir(parents=True, exist_ok=True)

    def _digest(self) -> str:
        """Return what the results depend on, as a name."""
        files = [HERE / name for name in self.files]
        files += sorted([*HERE.glob("peers/*.py"), *HERE.glob("peers/requirements/*.txt")])
        files += [self.data] if self.data else []
        text = repr(self.effort).encode() + b"".join(file.read_bytes() for file in files)
        return hashlib.sha256(text).hexdigest()[:12]

    def once(self, name: str, job: Job) -> Any:
        """Return what a job gives, or gave; an error is a result, too."""
        path = self.folder / f"{name}.json"
        if not path.exists():
            if self.so_far:
                return {"error": "not measured yet"}
            say(name)
            try:
                found = {"result": job()}
            except PeerFailed as error:
                found = {"error": str(error)}
            part = path.with_suffix(".part")
            part.write_text(json.dumps(found))
            part.replace(path)
        return json.loads(path.read_text())

    def install(self, peer: str) -> None:
        """Install a package, or note why it does not install."""
        found = self.once(f"install-{peer}", lambda: str(venvs.install(peer)))
        if "error" in found:
            self.notes[peer] = f"does not install: {found['error']}"
        else:
            self.pythons[peer] = Path(found["result"])

    def write(self, path: Path, role: str, seed: int) -> None:
        """Write a stream of a role."""
        streams.write(path.parent, role, seed, self.data)

    def play(self, peer: str, role: str, seeds: range, played_as: str, only: str = "") -> Any:
        """Let a package play streams of a role; return what it measured."""
        folder = self.folder / "streams"
        paths = [folder / f"{role}-{seed}.npz" for seed in seeds]
        for path, seed in zip(paths, seeds, strict=True):
            if not path.exists():
                self.write(path, role, seed)
        # -P keeps the scripts' folder, where files are named after packages, off the import path.
        command = [str(self.pythons[peer]), "-P", "-W", "ignore", str(HERE / "peers" / "play.py")]
        arguments = [peer, played_as, *map(str, paths), *([f"--only={only}"] if only else [])]
        # Importing a package may print, too.
        printed = venvs.output([*command, *arguments], self.effort.limit)
        return json.loads(printed.splitlines()[-1])


# Time ----------------------------------------------------------------------------------------


def timed(bench: Bench) -> Iterator[dict[str, Any]]:
    """Give the rows of time, memory and scores; entrants play in turn, A B A B."""
    with tempfile.TemporaryDirectory() as folder:
        program = c_loops.build(Path(folder))
        for role, peers in bench.roles.items():
            found: dict[str, list[Any]] = {}
            for repetition in range(bench.effort.repetitions):
                for entrant, job in entrants(bench, role, peers, program, repetition):
                    name = f"{role}-{repetition}-{entrant}".replace(" ", "-").replace(",", "")
                    measured = bench.once(name, job)
                    if "error" in measured:
                        bench.notes[f"{entrant}, {role}"] = measured["error"]
                    else:
                        found.setdefault(entrant, []).append(measured["result"])
            yield from rows(role, found)


def entrants(
    bench: Bench, role: str, peers: tuple[str, ...], program: Path, repetition: int
) -> Iterator[tuple[str, Job]]:
    """Give who plays a role, by name, with the job of playing it."""
    runs = bench.effort.runs[role]
    start = (0 if bench.effort.first == streams.TEST else bench.effort.first) + repetition * runs
    seeds = range(start, start + runs)
    if role == "classical":
        yield "C", lambda: c_classical(program, repetition)
    if role == "contextual":
        yield "C", c_contextual
    if role in COMPILED:
        one = range(repetition, repetition + 1)
        yield "tacit, compiled", lambda: bench.play("tacit", role, one, f"{role}_compiled")
    yield "tacit, called", lambda: bench.play("tacit", role, seeds, role)
    for peer in peers:
        if peer in bench.pythons:
            yield peer, lambda peer=peer: bench.play(peer, role, seeds, role)  # type: ignore[misc]


def c_classical(program: Path, repetition: int) -> Any:
    """Play the C loops; of their regrets only mean and deviation are known."""
    played = {}
    for algorithm in ("UCB1", "Thompson", "EXP3"):
        steps, runs = 10_000, 200
        found = c_loops.play(program, algorithm, steps, runs, repetition + 1)
        seconds = steps * runs / found.steps_per_second
        played[algorithm] = [[seconds, steps * runs, [found.regret, found.regret_sd, runs]]]
    return {"played": played, "megabytes": None}


def c_contextual() -> Any:
    """Time the C loop that does what LaplaceEC does, on arms that never change."""
    (microseconds,) = features.floor(10, 10, 100_000, 1)
    return {"played": {"LaplaceEC": [[0.1 * microseconds, 100_000, []]]}, "megabytes": None}


def rows(role: str, found: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Give a row per algorithm and entrant; the ratio is to tacit in the same repetition."""
    first = "tacit, compiled" if role in COMPILED else "tacit, called"
    base = [pace(result["played"]) for result in found.get(first, [])]
    for entrant, results in found.items():
        for algorithm in results[0]["played"]:
            paces = [pace(result["played"])[algorithm] for result in results]
            beside = algorithm if base and algorithm in base[0] else BASE.get(role)
            ratios = [
                own / theirs[beside] for own, theirs in zip(paces, base, strict=False) if beside in theirs
            ]
            yield {
                "role": role,
                "algorithm": algorithm,
                "entrant": entrant,
                "microseconds": median(paces),
                "ratio": median(ratios) if ratios else None,
                "ratios": ratios,
                "beside": beside,
                "megabytes": max((r["megabytes"] for r in results if r["megabytes"]), default=None),
                **scored(entrant, [r["played"][algorithm] for r in results]),
            }


def pace(played: dict[str, Any]) -> dict[str, float]:
    """Return µs a round, by algorithm."""
    return {
        algorithm: 1e6 * sum(run[0] for run in runs) / sum(run[1] for run in runs)
        for algorithm, runs in played.items()
    }


def scored(entrant: str, results: list[Any]) -> dict[str, Any]:
    """Return the mean of the scores, its standard error and their number."""
    if entrant == "C":
        # Every repetition has runs of its own; of each the mean and the deviation are known.
        told = [run[2] for runs in results for run in runs if run[2]]
        if not told:
            return {"score": None, "standard_error": None, "runs": 0}
        errors = [deviation**2 / runs for _, deviation, runs in told]
        count = int(sum(runs for *_, runs in told))
        return {
            "score": mean(regret for regret, *_ in told),
            "standard_error": sum(errors) ** 0.5 / len(told),
            "runs": count,
        }
    return summary([score for runs in results for run in runs for score in run[2]])


def summary(scores: list[float]) -> dict[str, Any]:
    """Return the mean of scores, its standard error and their number."""
    count = len(scores)
    error = stdev(scores) / count**0.5 if count > 1 else None
    return {"score": mean(scores), "standard_error": error, "runs": count}


# What is learned -----------------------------------------------------------------------------


def learned(bench: Bench) -> Iterator[dict[str, Any]]:
    """Give the rows of regret: of each package the candidate that tuning found best."""
    if bench.data is None:
        bench.notes["interest"] = "left out, for want of --data"
    plays = [
        (role, peer)
        for role, peers in bench.roles.items()
        for peer in (*OURS, *(peer for peer in peers if peer in bench.pythons))
        if role != "interest" or bench.data
    ]
    # Who is slow comes last, so that a run that is cut off lacks few rows.
    order = {peer: place for place, peer in enumerate(SLOW, 1)}
    for role, peer in sorted(plays, key=lambda play: order.get(play[1], 0)):
        bench.once(f"{role}-{peer}", lambda: tested(bench, peer, role))  # noqa: B023
    ours: dict[tuple[str, str], list[float]] = {}
    for role, peer in plays:
        found = bench.once(f"{role}-{peer}", lambda: None)
        if "error" in found:
            bench.notes[f"{peer}, {role}"] = found["error"]
            continue
        result = found["result"]
        if peer in OURS:
            ours[role, peer] = result["scores"]
        beside = {our: ours[role, our] for our in OURS if our != peer and (role, our) in ours}
        yield {
            "role": role,
            "entrant": peer,
            "policy": result["policy"],
            "candidates": result["candidates"],
            "microseconds": result["microseconds"],
            "megabytes": result["megabytes"],
            "more": {our: paired(result["scores"], scores) for our, scores in beside.items()},
            **summary(result["scores"]),
        }


def paired(scores: list[float], ours: list[float]) -> dict[str, Any]:
    """Return the mean of the differences by stream, its standard error and their number."""
    return summary([own - our for own, our in zip(scores, ours, strict=True)])


def tested(bench: Bench, peer: str, role: str) -> Any:
    """Tune on some streams, then test the best candidate on others."""
    own = TUNED_ON.get(role, role)
    # Only tacit joins clicks with decisions by itself.
    played_as = role if role == "late" and peer in OURS else PLAYED_AS.get(role, role)
    if before := bench.tuned.get((own, peer)):
        best, candidates = before["policy"], before["candidates"]
    else:
        tuned = bench.play(peer, own, range(bench.effort.tuning), played_as)["played"]
        regrets = {name: mean(run[2][0] for run in runs) for name, runs in tuned.items()}
        best, candidates = min(regrets, key=regrets.__getitem__), len(tuned)
    seeds = range(bench.effort.first, bench.effort.first + bench.effort.testing)
    found = bench.play(peer, role, seeds, played_as, best)
    runs = found["played"][best]
    return {
        "policy": best,
        "candidates": candidates,
        "scores": [run[2][0] for run in runs],
        "microseconds": pace(found["played"])[best],
        "megabytes": found["megabytes"],
    }


# The truth -----------------------------------------------------------------------------------


def truths() -> dict[str, dict[str, float]]:
    """Return what the estimates should be; of a policy that learns, from many runs of it."""
    matched, runs = 1_000, 4_000
    result = tacit.simulate(
        tacit.UCB1(5), tacit.BernoulliArms(streams.MEANS), matched, runs=runs, checkpoints=1
    )
    learning = float(streams.MEANS.max() - result.regret[0, :, -1].mean() / matched)
    value = float(streams.TARGET @ streams.MEANS)
    return {
        "replay": {"UCB1 over 1,000 rounds": learning},
        "weighing": {"the policy": value, "the last arm": float(streams.MEANS[-1])},
    }


# The report ----------------------------------------------------------------------------------


def measured(part: str, bench: Bench) -> Any:
    """Return a part of the results, with all that they come from."""
    if part == "wrong":
        return [bench.once(case, lambda: wrong.run(case)) for case in wrong.CASES]  # noqa: B023
    wanted = {*chain(*bench.roles.values())} & {*bench.peers} | (
        {streams.NAMES} if "names" in bench.roles else set()
    )
    for peer in sorted(wanted):
        bench.install(peer)
    rows = list(ROWS[part](bench))
    return {"machine": machine(), "effort": asdict(bench.effort), "notes": bench.notes, "rows": rows}


def joined(before: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Return what was found, with the rows of before that it has none in place of; rows say how many runs."""
    rows = {(row["role"], row["entrant"]): row for row in [*before["rows"], *found["rows"]]}
    order = [(role, peer) for role, peers in QUALITY.items() for peer in (*OURS, *peers)]
    return found | {"effort": before["effort"], "rows": [rows[play] for play in order if play in rows]}


def replaced(before: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Return times as they were, with what was found of a package in a role in place of what was known."""
    anew = {(row["role"], row["entrant"]) for row in found["rows"]}
    kept = [row for row in before["rows"] if (row["role"], row["entrant"]) not in anew]
    order = [*SPEED]
    return before | {"rows": sorted([*found["rows"], *kept], key=lambda row: order.index(row["role"]))}


ROWS = {"timed": timed, "learned": learned}
PARTS = (*ROWS, "wrong")
"""What the results consist of."""


def main() -> None:
    """Measure, keep the results, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PARTS, help="measure this part")
    parser.add_argument("--short", action="store_true", help="few runs")
    parser.add_argument("--so-far", action="store_true", help="write what was measured so far")
    parser.add_argument("--tuned", action="store_true", help="tune nobody anew")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS, help="these packages alone")
    parser.add_argument("--roles", nargs="+", choices={**SPEED, **QUALITY}, help="these alone")
    parser.add_argument("--data", type=Path, help="a table of search interest: dates and topics")
    parser.add_argument("--first", type=int, default=streams.TEST, help="the first seed of a test stream")
    parser.add_argument("--testing", type=int, help="how many streams to test on")
    asked = parser.parse_args()
    path = HERE / "peers.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    before = results["learned"]["rows"] if asked.tuned else []
    results |= {"packages": {peer: venvs.pinned(peer)[0] for peer in PEERS}, "truth": truths()}
    effort = SHORT if asked.short else FULL
    effort = replace(effort, first=asked.first, testing=asked.testing or effort.testing)
    for part in [asked.only] if asked.only else PARTS:
        bench = Bench(part, effort, asked.so_far, asked.data)
        bench.tuned = {(row["role"], row["entrant"]): row for row in before}
        bench.peers = tuple(asked.peers)
        if asked.roles:
            bench.roles = {role: peers for role, peers in bench.roles.items() if role in asked.roles}
        found = measured(part, bench)
        name = "fresh" if part == "learned" and asked.first != streams.TEST else part
        if part == "timed" and asked.roles:
            found = replaced(results.get(part, found), found)
        results[name] = joined(results.get("fresh", found), found) if name == "fresh" else found
        path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        page.write(results)
        if not asked.so_far:
            shutil.rmtree(bench.folder)
        say(f"wrote {part} into {path} and {page.PAGES[0]}")


if __name__ == "__main__":
    main()
