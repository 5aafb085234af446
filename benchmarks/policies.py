"""What every policy costs: time of a round, memory of a key, whether decisions have propensities.

    python benchmarks/policies.py            # writes docs/generate/policies.json
    python benchmarks/policies.py NAME ...   # adds some policies, by their ratio to one that it has

A round is an impression, a decision, a response and an update in the compiled loop of a
simulation; the time is the processor's, the least of three.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

import tacit
from tacit.core.arrays import byte_count
from tacit.core.dispatch import list_parts
from tacit.policies import Policy
from tacit.policies.base import registry

OUT = Path(__file__).parents[1] / "docs" / "generate" / "policies.json"
SECONDS = 0.2
"""Least time of a run that is counted."""

DIM = 5
SETTINGS: dict[str, tacit.environments.Environment] = {
    "5 arms": tacit.BernoulliArms([0.1, 0.2, 0.3, 0.4, 0.5]),
    "5 arms, 5 signals": tacit.ShiftingArms(arms=5, dim=DIM, announced=True),
    "6 arms, duels": tacit.PreferenceMatrix("arxiv"),
    "6 arms, duels, 5 signals": tacit.environments.ContextualDuels(6, DIM),
    "3 of 8 arms": tacit.environments.CascadeArms([0.4, 0.3, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05], positions=3),
    "1 of 10 arms by 10 features": tacit.ExaminationArms(DIM, DIM, pool=100, offered=10),
    "1 of 10 arms by 10 features, 100 in all": tacit.ExaminationArms(
        DIM, DIM, pool=100, offered=10, identified=True
    ),
    "3 of 10 arms by 10 features": tacit.environments.ContextualCascade(
        DIM, DIM, positions=3, pool=100, offered=10
    ),
}


def suits(policy: tacit.Policy, environment: tacit.environments.Environment) -> bool:
    """Return whether a policy reads all that an environment tells, and can be played there."""
    features = environment.feature_dims
    by_name = features == (0, 0) or environment.arm_count == 100
    return (
        policy.shows == environment.takes
        and policy.feature_dims == features
        and (policy.arms is not None) == by_name
        and (policy.context_dim > 0) == (environment.context_dim > 0)
    )


def played(kind: type[tacit.Policy]) -> tuple[tacit.Policy, str | None]:
    """Return an example of a policy and its setting; None where no environment suits it."""
    for setting, environment in SETTINGS.items():
        policy = kind.example(environment.arm_count, DIM)
        if suits(policy, environment):
            return policy, setting
    return kind.example(dim=DIM), None


def bytes_a_key(policy: Policy) -> int:
    """Return the memory of a key's state."""
    return (byte_count(policy.init(1025)) - byte_count(policy.init(1))) // 1024


def nanoseconds(policy: Policy, environment: tacit.environments.Environment) -> float:
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
    return {"setting": setting, "nanoseconds": time_of_round, "bytes": bytes_a_key(policy)}


def main() -> None:
    """Measure every policy, or those that are named, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    names = parser.parse_args().names
    content = json.loads(OUT.read_text()) if names else {"machine": machine(), "policies": {}}
    for kind in list_parts(registry, "policies"):
        if names and kind.__name__ not in names:
            continue
        policy, setting = played(kind)
        taken, other = None, None
        if setting and names:
            other = compared(setting, content["policies"])
            taken = beside(policy, setting, other) * content["policies"][other]["nanoseconds"]
        elif setting:
            taken = nanoseconds(policy, SETTINGS[setting])
        found = facts(policy, setting, float(f"{taken:.2g}") if taken else None)
        found |= {"beside": other} if other else {}
        content["policies"][kind.__name__] = found
        print(kind.__name__, found, file=sys.stderr)
    OUT.write_text(json.dumps(content, indent=1) + "\n")


def compared(setting: str, known: dict[str, dict[str, Any]]) -> str:
    """Return the middle one of the policies that play a setting, or else UCB1."""
    same = [name for name, facts in known.items() if facts["setting"] == setting]
    same.sort(key=lambda name: float(known[name]["nanoseconds"]))
    return same[len(same) // 2] if same else "UCB1"


def beside(policy: Policy, setting: str, other: str) -> float:
    """Return how many times another policy's time a round takes, measured in turn.

    Machines differ, and so does what else they do: ratios hold.
    """
    reference, where = played(
        next(kind for kind in list_parts(registry, "policies") if kind.__name__ == other)
    )
    assert where is not None
    pairs = [
        (nanoseconds(policy, SETTINGS[setting]), nanoseconds(reference, SETTINGS[where])) for _ in range(3)
    ]
    return float(np.median([mine / theirs for mine, theirs in pairs]))


def machine() -> dict[str, object]:
    """Return what the times are of."""
    return {
        "date": date.today().isoformat(),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "tacit": tacit.__version__,
    }


def processor() -> str:
    """Return the processor's name, as Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(": ")[2] for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


if __name__ == "__main__":
    main()
