"""What every policy costs: time of a round, memory of a key, whether decisions have propensities.

    python benchmarks/policies.py            # writes docs/generate/policies.json

A round is an impression, a decision, a response and an update in the compiled loop of a
simulation; the time is the processor's, the least of three.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from datetime import date
from pathlib import Path

import numpy as np

import tacit
from tacit.policies import Policy
from tacit.state import byte_count

OUT = Path(__file__).parents[1] / "docs" / "generate" / "policies.json"
SECONDS = 0.2
"""Least time of a run that is counted."""

FIVE = tacit.BernoulliArms([0.1, 0.2, 0.3, 0.4, 0.5])
SIGNALS = tacit.ShiftingArms(arms=5, dim=5, announced=True)
DUELS = tacit.PreferenceMatrix("arxiv")
LISTS = tacit.CascadeArms([0.4, 0.3, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05], positions=3)
FEATURES = tacit.ExaminationArms(5, 5, pool=100, offered=10)
KNOWN = tacit.ExaminationArms(5, 5, pool=100, offered=10, identified=True)
FEATURE_LISTS = tacit.ContextualCascade(5, 5, positions=3, pool=100, offered=10)
PLACES = tacit.BernoulliArms([0.4, 0.3, 0.2, 0.2, 0.15, 0.1])
SETTINGS = {
    "FIVE": "5 arms",
    "SIGNALS": "5 arms, 5 signals",
    "DUELS": "6 arms, duels",
    "LISTS": "3 of 8 arms",
    "FEATURES": "1 of 10 arms by 10 features",
    "KNOWN": "1 of 10 arms by 10 features, 100 in all",
    "FEATURE_LISTS": "3 of 10 arms by 10 features",
    "PLACES": "2 items at 3 places",
}
BOX = tacit.Rectangle(dim=5, margin=0.1)
PLAYED: dict[str, list[Policy]] = {
    "FIVE": [
        tacit.UniformRandom(5),
        tacit.EpsilonGreedy(5),
        tacit.UCB1(5),
        tacit.KLUCB(5),
        tacit.Thompson(5),
        tacit.EXP3(5),
        tacit.EXP3S(5),
        tacit.ExplorationFloor(tacit.UCB1(5)),
        tacit.TestableUCB1(5, horizon=100_000),
        tacit.DiscountedUCB(5),
        tacit.SlidingWindowUCB(5),
        tacit.CUSUMUCB(5),
        tacit.MUCB(5),
        tacit.GLRKLUCB(5),
    ],
    "SIGNALS": [
        tacit.BWC(5, classifier=BOX),
        tacit.ProbationBandit(5, classifier=BOX),
        tacit.OracleRestart(tacit.UCB1(5), signal=5),
    ],
    "DUELS": [
        tacit.RMED1(6),
        tacit.DoubleThompsonSampling(6),
        tacit.RUCB(6),
        tacit.SelfSparring(6),
        tacit.WinnerStays(6),
        tacit.BeatTheMean(6, horizon=1_000_000),
        tacit.BeatTheMeanPAC(6, epsilon=0.05, delta=0.05),
        tacit.InterleavedFilter1(6, horizon=1_000_000),
        tacit.InterleavedFilter2(6, horizon=1_000_000),
    ],
    "LISTS": [
        tacit.CascadeKLUCB(8, positions=3),
        tacit.CascadeUCB1(8, positions=3),
        tacit.RankedBandit(tacit.UCB1(8), positions=3),
        tacit.PBMUCB(8, positions=3),
        tacit.PBMThompson(8, positions=3),
    ],
    "FEATURES": [
        tacit.LaplaceEC(5, 5),
        tacit.LaplaceECMixture(5, 5),
        tacit.ECBandit(5, 5),
        tacit.LogisticTS(5, 5),
        tacit.LinTS(5, 5),
        tacit.LinUCB(5, 5),
        tacit.PolyaGammaTS(5, 5),
        tacit.CUSUMRestart(tacit.LaplaceEC(5, 5)),
    ],
    "KNOWN": [tacit.HLinUCB(100, 5, 5)],
    "FEATURE_LISTS": [tacit.CascadeEC(5, 5, positions=3)],
    "PLACES": [tacit.PlacedPBMUCB(6, positions=3)],
}
# No environment brings features of one kind only.
UNTIMED: tuple[Policy, ...] = (tacit.LinearEpsilonGreedy(10),)


def propensity(policy: Policy) -> str:
    """Say whether decisions carry their propensity."""
    kind = type(policy)
    if "randomized" in vars(policy):
        return "that of its policy"
    known = kind.propensity is not Policy.propensity
    return "exact" if policy.randomized and known else "null"


def bytes_a_key(policy: Policy) -> int:
    """Return the memory of a key's state."""
    return (byte_count(policy.init(1025)) - byte_count(policy.init(1))) // 1024


def nanoseconds(policy: Policy, environment: tacit.Environment) -> float:
    """Return the processor time of a round."""
    rounds = 200
    rounds_and_times: list[float] = []
    tacit.simulate(policy, environment, horizon=rounds, runs=1, seed=1, workers=1)
    while len(rounds_and_times) < 3:
        start = time.process_time()
        # More than one checkpoint: duels are played one by one.
        tacit.simulate(policy, environment, rounds, runs=1, seed=1, workers=1, checkpoints=2)
        taken = time.process_time() - start
        if taken >= SECONDS:
            rounds_and_times.append(1e9 * taken / rounds)
        else:
            rounds = max(2 * rounds, int(rounds * SECONDS / max(taken, 1e-3)))
    return float(np.min(rounds_and_times))


def facts(policy: Policy, setting: str | None, time_of_round: float | None) -> dict[str, object]:
    """Return what is kept of a policy."""
    return {
        "setting": setting,
        "nanoseconds": time_of_round,
        "bytes": bytes_a_key(policy),
        "propensity": propensity(policy),
    }


def main() -> None:
    """Measure every policy and write what was found."""
    found: dict[str, dict[str, object]] = {}
    for setting, policies in PLAYED.items():
        for policy in policies:
            time_of_round = float(f"{nanoseconds(policy, globals()[setting]):.2g}")
            found[type(policy).__name__] = facts(policy, SETTINGS[setting], time_of_round)
            print(type(policy).__name__, found[type(policy).__name__], file=sys.stderr)
    for policy in UNTIMED:
        found[type(policy).__name__] = facts(policy, None, None)
    machine = {
        "date": date.today().isoformat(),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "tacit": tacit.__version__,
    }
    OUT.write_text(json.dumps({"machine": machine, "policies": found}, indent=1) + "\n")


def processor() -> str:
    """Return the processor's name, as Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(": ")[2] for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


if __name__ == "__main__":
    main()
