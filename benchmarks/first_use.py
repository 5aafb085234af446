"""What a first use costs: processor time of processes that find nothing compiled, and of those that find all.

python benchmarks/first_use.py [TURNS]

Each figure is the least of the turns, from the start of the process on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

POLICIES = {
    "Thompson(arms=5)": "{}",
    "auto(arms=5)": "{}",
    "auto(arms=5, context_dim=3)": "dict(context=[0.1, 0.2, 0.3])",
    "auto(relevance_dim=64)": "dict(arms=range(3), relevance=np.eye(3, 64))",
    "auto(shows='slate', relevance_dim=64, positions=3)": "dict(arms=range(3), relevance=np.eye(3, 64))",
}
CHILD = """
import json, time
import numpy as np
import tacit
imported = time.process_time()
learner = tacit.Learner(tacit.{policy}, seed=1)
decision = learner.choose("key", **{given})
decided = time.process_time()
learner.learn(decision, [1.0, 0.0, 0.0] if len(decision.shown) > 1 else 1.0)
print(json.dumps([imported, decided, time.process_time()]))
"""


def seconds(policy: str, folder: str) -> list[float]:
    """Return after how much processor time a process has imported, has decided once, and has learned once."""
    child = CHILD.format(policy=policy, given=POLICIES[policy])
    environment = {**os.environ, "TACIT_CACHE_DIR": folder, "TACIT_QUIET": "1"}
    done = subprocess.run([sys.executable, "-c", child], env=environment, check=True, capture_output=True)
    found: list[float] = json.loads(done.stdout)
    return found


def main() -> None:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    best: dict[tuple[str, str], list[float]] = {}
    for _ in range(turns):
        for policy in POLICIES:
            with tempfile.TemporaryDirectory() as folder:
                for compiled in ("nothing", "all"):
                    told = seconds(policy, folder)
                    known = best.setdefault((policy, compiled), told)
                    best[policy, compiled] = [min(pair) for pair in zip(known, told, strict=True)]
    print(f"{'policy':<52} compiled before  imported  first decision  first learning")
    for (policy, compiled), (imported, decided, learned) in best.items():
        print(f"{policy:<52} {compiled:<15} {imported:>7.2f} s {decided:>13.2f} s {learned:>13.2f} s")


if __name__ == "__main__":
    main()
