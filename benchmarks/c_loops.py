"""The plain C loops of ``c/loops.c``: compiling and running them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("c") / "loops.c"
FLAGS = ("-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-O3")
MEANS = (0.1, 0.2, 0.3, 0.4, 0.5)
"""The arms that the program plays."""


class Played(NamedTuple):
    """What the C program measured.

    Attributes
    ----------
    steps_per_second : float
    regret, regret_sd : float
        Mean and standard deviation over the runs; the latter 0 of a single run.
    """

    steps_per_second: float
    regret: float
    regret_sd: float


def build(folder: Path) -> Path:
    """Compile the program into ``folder`` and return its path."""
    program = folder / "loops"
    subprocess.run(["gcc", *FLAGS, str(SOURCE), "-o", str(program), "-lm"], check=True)
    return program


def play(program: Path, algorithm: str, steps: int, runs: int, seed: int) -> Played:
    """Play ``runs`` runs of ``steps`` rounds with UCB1, Thompson or EXP3."""
    command = [str(program), algorithm, str(steps), str(runs), str(seed)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Played(**json.loads(done.stdout))
