"""Measure tacit, side by side with plain C.

python benchmarks/bench.py            everything; writes results.json and RESULTS.md
python benchmarks/bench.py --quick    a smoke run; writes nothing
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import c_loops
import features
import numpy as np
import offline
import plain_duels

sys.path.insert(0, str(Path(__file__).parent.parent))
import tacit
from studies.run_sampling import sample_run
from tacit.core.arrays import byte_count
from tacit.core.text import align_columns

HERE = Path(__file__).parent
ARMS = len(c_loops.MEANS)
ENVIRONMENT = tacit.BernoulliArms(c_loops.MEANS)
POLICIES = {"UCB1": tacit.UCB1(ARMS), "Thompson": tacit.Thompson(ARMS), "EXP3": tacit.policies.EXP3(ARMS)}
REGRET_ROUNDS = 20_000
BATCH = 256
# Two means of equal expectation differ by more with probability 6e-5.
SAME_WITHIN_ERRORS = 4.0


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes
    ----------
    steps : dict
        Rounds of a timed run per algorithm.
    repetitions, imports : int
    regret_runs : int
        Runs behind each mean regret.
    calls : int
        Calls behind each time of a call.
    """

    steps: dict[str, int]
    repetitions: int
    imports: int
    regret_runs: int
    calls: int


FULL = Effort({"UCB1": 20_000_000, "Thompson": 4_000_000, "EXP3": 20_000_000}, 9, 10, 200, 8192)
QUICK = Effort({"UCB1": 2_000_000, "Thompson": 400_000, "EXP3": 2_000_000}, 3, 3, 20, 1024)


class Spread(NamedTuple):
    """The median of repeated measurements, the least and the most."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        """Summarize measurements."""
        return cls(median(values), min(values), max(values))

    def __str__(self) -> str:
        if self.low == self.high:
            return number(self.median)
        return f"{number(self.median)} ({number(self.low)}–{number(self.high)})"


class Mean(NamedTuple):
    """A mean and its standard error."""

    mean: float
    standard_error: float

    def __str__(self) -> str:
        return f"{self.mean:,.1f} ± {self.standard_error:,.1f}"


class Goal(NamedTuple):
    """A bound, from below (``≥``) or from above (``≤``)."""

    sense: str
    bound: float

    def __str__(self) -> str:
        return f"{self.sense} {self.bound:g}"

    def verdict(self, value: float) -> str:
        """Say whether ``value`` meets the goal, or how far it is off."""
        met = value >= self.bound if self.sense == "≥" else value <= self.bound
        return "yes" if met else f"no: {value / self.bound:.2f}× of the goal"


@dataclass(frozen=True)
class Row:
    """A line of the table; the goal is for the ratio or, where there is none, for tacit."""

    what: str
    tacit: Spread | Mean | None
    other: Spread | Mean | None = None
    ratio: Spread | None = None
    goal: Goal | None = None
    agreement: str | None = None

    @property
    def met(self) -> str:
        """Whether the goal is met."""
        if self.agreement is not None:
            return self.agreement
        if self.goal is None:
            return "–"
        measured = self.ratio or self.tacit
        return "–" if measured is None else self.goal.verdict(measured[0])

    def cells(self) -> tuple[str, ...]:
        """Return the line as text."""
        goal = "same" if self.agreement is not None else self.goal
        given = (self.tacit, self.other, self.ratio, goal)
        return self.what, *("–" if value is None else str(value) for value in given), self.met


def number(value: float) -> str:
    """Return ``value`` to three digits, in thousands or millions where that is shorter."""
    for scale, unit in ((1e6, " M"), (1e3, " k")):
        if value >= scale:
            return f"{value / scale:.3g}{unit}"
    return f"{value:.3g}"


def say(text: str) -> None:
    """Report progress."""
    print(text, file=sys.stderr, flush=True)


# Simulation ----------------------------------------------------------------------------------


def steps_per_second(algorithm: str, steps: int, seed: int) -> float:
    """Time one run of ``tacit.simulate``, compiled before."""
    simulated(algorithm, 1, 1, seed)
    start = time.process_time()
    simulated(algorithm, steps, 1, seed)
    return steps / (time.process_time() - start)


def simulated(algorithm: str, steps: int, runs: int, seed: int) -> Any:
    """Play runs one after the other; return their final regrets."""
    policy = POLICIES[algorithm]
    result = tacit.simulate(policy, ENVIRONMENT, steps, runs=runs, seed=seed, workers=1, checkpoints=1)
    return result.regret[0, :, -1]


def simulated_regret(algorithm: str, runs: int) -> Mean:
    """Return the mean regret of ``tacit.simulate``."""
    regrets = simulated(algorithm, REGRET_ROUNDS, runs, 1)
    return Mean(float(regrets.mean()), float(regrets.std(ddof=1) / np.sqrt(runs)))


def against_c(effort: Effort) -> Iterator[Row]:
    """Compare speed and regret with the C loops, in turn."""
    with tempfile.TemporaryDirectory() as folder:
        program = c_loops.build(Path(folder))
        for algorithm, steps in effort.steps.items():
            say(f"{algorithm} against C")
            ours, theirs = [], []
            for seed in range(effort.repetitions):
                ours.append(steps_per_second(algorithm, steps, seed))
                theirs.append(c_loops.play(program, algorithm, steps, 1, seed).steps_per_second)
            yield compared(f"{algorithm}, steps/s: C -O3", ours, theirs, Goal("≥", 0.8))
            runs = effort.regret_runs
            played = c_loops.play(program, algorithm, REGRET_ROUNDS, runs, 1)
            regret = simulated_regret(algorithm, runs)
            other = Mean(played.regret, played.regret_sd / runs**0.5)
            yield Row(
                f"{algorithm}, regret after {REGRET_ROUNDS:,} rounds: C",
                regret,
                other,
                agreement=agreement(regret, other),
            )


def compared(what: str, ours: list[float], theirs: list[float], goal: Goal | None) -> Row:
    """Return the line of two measurements taken in turn; the ratio is of each pair."""
    ratios = [our / their for our, their in zip(ours, theirs, strict=True)]
    return Row(what, Spread.of(ours), Spread.of(theirs), Spread.of(ratios), goal)


def agreement(ours: Mean, theirs: Mean) -> str:
    """Say whether two means differ by no more than chance explains."""
    errors = (ours.mean - theirs.mean) / np.hypot(ours.standard_error, theirs.standard_error)
    return "yes" if abs(errors) < SAME_WITHIN_ERRORS else f"no: {errors:+.1f} s.e. apart"


# Shifting intent -----------------------------------------------------------------------------

KEYS = tacit.ShiftingArms(ARMS, keys=100, events=[], clicks=[c_loops.MEANS], dim=10)
FOLLOWING = [
    tacit.UCB1(ARMS),
    tacit.BWC(ARMS, classifier=tacit.classifiers.Rectangle(dim=10, margin=0.1, anchored=True)),
    tacit.policies.baselines.DiscountedUCB(ARMS),
    tacit.policies.baselines.SlidingWindowUCB(ARMS),
    tacit.policies.baselines.CUSUMUCB(ARMS),
    tacit.policies.baselines.MUCB(ARMS),
    tacit.policies.baselines.GLRKLUCB(ARMS),
    tacit.policies.ProbationBandit(
        ARMS, classifier=tacit.classifiers.Rectangle(dim=10, margin=0.1, anchored=True)
    ),
]


def following_intent(effort: Effort) -> Iterator[Row]:
    """Time what follows shifting intent, on 100 keys with contexts, against UCB1 in C."""
    steps = effort.steps["Thompson"] // 2
    with tempfile.TemporaryDirectory() as folder:
        program = c_loops.build(Path(folder))
        for policy in FOLLOWING:
            say(f"{policy.label} on 100 keys")
            tacit.simulate(policy, KEYS, 1, workers=1)
            ours, theirs = [], []
            for seed in range(effort.repetitions):
                start = time.process_time()
                tacit.simulate(policy, KEYS, steps, seed=seed, workers=1, checkpoints=1)
                ours.append(1e9 * (time.process_time() - start) / steps)
                played = c_loops.play(program, "UCB1-keys", steps, 1, seed)
                theirs.append(1e9 / played.steps_per_second)
            what = f"{policy.label}, 100 keys, ns a round: UCB1 in C"
            yield compared(what, ours, theirs, None)
    for dim in (2, 10, 40):
        for labels in (10, 100, 1000):
            yield Row(f"Hyperplane(dim={dim}), {labels} labels, µs a prediction", hull(dim, labels))


def duels(effort: Effort) -> Iterator[Row]:
    """Compare Beat-the-Mean in plain Python, one comparison at a time, and drawn at once.

    500 arms, γ = 1.3, T = 10¹⁰: the largest job of figure 2 (top) of Yue and Joachims (2011).
    """
    arms, horizon = 500, 10**10
    environment = tacit.PreferenceMatrix(f"relaxed-chain({arms}, 1.3)")
    policy = tacit.policies.BeatTheMean(arms, horizon, gamma=1.3)
    matrix = [list(row) for row in environment.matrix]
    steps = effort.steps["UCB1"]
    preferences, gaps = np.array(environment.matrix), environment.gaps
    sample_run(policy, preferences, gaps, 1, np.random.default_rng(0))
    tacit.simulate(policy, environment, 10, workers=1, checkpoints=2)
    stepped, sampled, plain = [], [], []
    for seed in range(effort.repetitions):
        say(f"Beat-the-Mean over {arms} arms, repetition {seed + 1}")
        plain.append(plain_duels.comparisons_per_second(matrix, policy.kappa, 3000, seed))
        start = time.perf_counter()
        tacit.simulate(policy, environment, steps, seed=seed, workers=1, checkpoints=2)
        stepped.append(steps / (time.perf_counter() - start))
        rng = np.random.default_rng(seed)
        start = time.perf_counter()
        found = sample_run(policy, preferences, gaps, horizon, rng)
        sampled.append(found.comparisons / (time.perf_counter() - start))
    what = f"BeatTheMean, {arms} arms, million comparisons/s: "
    million = [[1e-6 * value for value in values] for values in (plain, stepped, sampled)]
    yield Row(what + "plain Python", Spread.of(million[0]))
    yield Row(what + "one at a time", Spread.of(million[1]), goal=Goal("≥", 30.0))
    yield Row(what + "drawn at once", Spread.of(million[2]), goal=Goal("≥", 1000.0))


def hull(dim: int, labels: int) -> Spread:
    """Time predictions, in batches, of contexts around the hull of random labels."""
    rng = np.random.default_rng(dim + labels)
    classifier = tacit.classifiers.SafeClassifier(tacit.classifiers.Hyperplane(dim, 0.01))
    for context in 0.5 * rng.random((labels, dim)):
        classifier.learn_false(context)
    contexts = 0.6 * rng.random((500, dim))
    classifier.predict_many(contexts[:1])
    times = []
    for _ in range(3):
        start = time.perf_counter()
        classifier.predict_many(contexts)
        times.append(1e6 * (time.perf_counter() - start) / len(contexts))
    return Spread.of(times)


# Duels ---------------------------------------------------------------------------------------

DUELS = [
    tacit.policies.RMED1(50),
    tacit.policies.baselines.DoubleThompsonSampling(50),
    tacit.policies.baselines.RUCB(50),
    tacit.policies.baselines.SelfSparring(50),
    tacit.policies.baselines.WinnerStays(50),
]
GAP = 0.1


def duels_per_second(policy: tacit.Policy, duels: int, seed: int) -> float:
    """Time one run, compiled before, in which each arm beats every later one by the gap."""
    environment = tacit.PreferenceMatrix(f"uniform-gap({policy.arm_count}, {GAP})")
    tacit.simulate(policy, environment, 1, workers=1)
    start = time.perf_counter()
    tacit.simulate(policy, environment, duels, seed=seed, workers=1, checkpoints=1)
    return duels / (time.perf_counter() - start)


def dueling(effort: Effort) -> Iterator[Row]:
    """Time long runs of 50 arms."""
    duels = effort.steps["EXP3"] // 10
    for policy in DUELS:
        say(f"{policy.label}, duels")
        times = [duels_per_second(policy, duels, seed) for seed in range(effort.repetitions)]
        yield Row(f"{policy.label}, 50 arms, duels/s over {duels:,}", Spread.of(times))


# Calls from Python ---------------------------------------------------------------------------


def calls(effort: Effort) -> Iterator[Row]:
    """Time decisions with their feedback, one by one and in batches."""
    rng = np.random.default_rng(7)
    keys = [f"query {i}" for i in rng.integers(1000, size=effort.calls)]
    rewards = rng.integers(2, size=effort.calls).astype(float).tolist()
    learners: dict[str, Callable[[], tacit.Learner]] = {
        "UCB1": lambda: tacit.Learner(tacit.UCB1(ARMS), seed=7),
        "Thompson": lambda: tacit.Learner(tacit.Thompson(ARMS), seed=7, propensities=False),
        "Thompson with propensities": lambda: tacit.Learner(tacit.Thompson(ARMS), seed=7),
        "RUCB": lambda: tacit.Learner(tacit.policies.baselines.RUCB(ARMS), seed=7),
        "WinnerStays": lambda: tacit.Learner(tacit.policies.baselines.WinnerStays(ARMS), seed=7),
    }
    for name, make in learners.items():
        say(f"calls of {name}")
        for what, drive, bound in (
            ("choose + learn, µs", one_by_one, 30),
            (f"a decision of {BATCH} in a batch, µs", in_batches, 1),
        ):
            learner = make()
            drive(learner, keys, rewards)
            times = [microseconds(drive, learner, keys, rewards) for _ in range(effort.repetitions)]
            yield Row(f"{name}, {what}", Spread.of(times), goal=Goal("≤", bound))


def microseconds(
    drive: Callable[[tacit.Learner, list[str], list[float]], None],
    learner: tacit.Learner,
    keys: list[str],
    rewards: list[float],
) -> float:
    """Return the time per decision."""
    start = time.perf_counter()
    drive(learner, keys, rewards)
    return (time.perf_counter() - start) / len(keys) * 1e6


def one_by_one(learner: tacit.Learner, keys: list[str], rewards: list[float]) -> None:
    """Decide and learn key by key."""
    for key, reward in zip(keys, rewards, strict=True):
        learner.learn(learner.choose(key), reward)


def in_batches(learner: tacit.Learner, keys: list[str], rewards: list[float]) -> None:
    """Decide and learn batch by batch."""
    for start in range(0, len(keys), BATCH):
        decisions = learner.choose_many(keys[start : start + BATCH])
        learner.learn_many(decisions, rewards[start : start + BATCH])


# Offline evaluation --------------------------------------------------------------------------


def off_policy_rates(effort: Effort) -> Iterator[Row]:
    """Give the rows that are weighted in a second of one core."""
    say("off-policy estimators")
    rows = 10_000_000 if effort is FULL else 500_000
    for what, (core, _) in offline.rates(rows).items():
        goal = Goal("≥", 5e6) if what.startswith("IPS and SNIPS") else None
        yield Row(f"{what}, rows/s of one core", Spread.of([core]), goal=goal)


# Decisions over features ---------------------------------------------------------------------


def over_features(effort: Effort) -> Iterator[Row]:
    """Time choose and learn in the compiled loop; the C loop does what LaplaceEC does."""
    for (dim, offered), rounds in features.SIZES.items():
        floor = Spread.of(features.floor(dim, offered, rounds, effort.repetitions))
        for policy in features.policies(dim):
            say(f"{type(policy).__name__} over {dim} features")
            times = features.microseconds(policy, offered, rounds, effort.repetitions)
            what = f"{type(policy).__name__}, d = {dim}, {offered} on offer, µs of one core"
            goal, mine = Goal("≤", features.GOALS[dim, offered]), Spread.of(times)
            if isinstance(policy, tacit.policies.LaplaceEC):
                yield Row(f"{what}: C -O3", mine, floor, goal=goal)
            else:
                yield Row(what, mine, goal=goal)


# Memory and import ---------------------------------------------------------------------------


def memory() -> Iterator[Row]:
    """Give the size of a lane per policy."""
    others = (tacit.UniformRandom(ARMS), tacit.EpsilonGreedy(ARMS), tacit.KLUCB(ARMS))
    for policy in (*others, *POLICIES.values(), tacit.policies.baselines.EXP3S(ARMS), *FOLLOWING[1:]):
        # What all lanes share is left out.
        size = (byte_count(policy.init(2000)) - byte_count(policy.init(1000))) / 1000
        goal = Goal("≤", 400) if isinstance(policy, tacit.BWC) else None
        yield Row(f"{policy.label}, bytes per lane", Spread.of([size]), goal=goal)


def import_time(effort: Effort) -> Iterator[Row]:
    """Time the import in fresh interpreters."""
    say("import")
    program = "import time; start = time.perf_counter(); import tacit; print(time.perf_counter() - start)"
    command = [sys.executable, "-c", program]
    times = [
        float(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(effort.imports)
    ]
    yield Row("import tacit, s", Spread.of(times), goal=Goal("≤", 0.3))


# The report ----------------------------------------------------------------------------------


def machine() -> dict[str, str]:
    """Describe where the numbers come from."""
    gcc = subprocess.run(["gcc", "--version"], check=True, capture_output=True, text=True).stdout
    return {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "CPU": f"{cpu_model()}, {os.cpu_count()} cores",
        "OS": f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {platform.release()}",
        "Python": platform.python_version(),
        "tacit": tacit.__version__,
        **{package: version(package) for package in ("numpy", "numba")},
        "C compiler": f"{gcc.splitlines()[0]}, {' '.join(c_loops.FLAGS)}",
    }


def cpu_model() -> str:
    """Return the processor's name."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def table(rows: list[Row]) -> str:
    """Return the lines as an aligned table."""
    header = ("what", "tacit", "other", "ratio", "goal", "met")
    return align_columns([header, *(row.cells() for row in rows)])


def write(rows: list[Row]) -> None:
    """Write the measurements, and the table with the machine's description."""
    described = machine()
    results = {
        "machine": described,
        "rows": [
            {name: fields(value) for name, value in vars(row).items()} | {"met": row.met} for row in rows
        ],
    }
    (HERE / "results.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    lines = [f"- {name}: {value}" for name, value in described.items()]
    (HERE / "RESULTS.md").write_text("# Measured\n\n" + "\n".join(lines) + f"\n\n```\n{table(rows)}\n```\n")


def fields(value: Any) -> Any:
    """Return a named tuple as a plain table."""
    return value._asdict() if hasattr(value, "_asdict") else value


def main() -> None:
    """Measure, print, and keep the results of a full run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smoke run that writes nothing")
    quick = parser.parse_args().quick
    effort = QUICK if quick else FULL
    rows = [
        *against_c(effort),
        *following_intent(effort),
        *duels(effort),
        *dueling(effort),
        *calls(effort),
        *off_policy_rates(effort),
        *over_features(effort),
        *memory(),
        *import_time(effort),
    ]
    print(table(rows))
    if not quick:
        write(rows)


if __name__ == "__main__":
    main()
