"""Other packages, each in a virtual environment of its own."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from c_loops import MEANS

HERE = Path(__file__).parent
VENVS = HERE / ".venvs"
REQUIREMENTS = {
    # The package needs a function that SciPy 1.14 dropped.
    "SMPyBandits": ("SMPyBandits==0.9.7", "numpy==1.26.4", "pandas==2.2.3", "scipy==1.13.1"),
    "mabwiser": ("mabwiser==2.7.4", "numpy==2.4.6", "pandas==3.1.1", "scipy==1.17.1"),
    "river": ("river==0.26.1", "numpy==2.4.6", "scipy==1.17.1"),
}

DUELS = {
    # The package needs a name that NumPy 1.24 dropped, and imports more than it declares.
    "duelpy": (
        "duelpy==1.0.0",
        "numpy==1.23.5",
        "pandas==1.5.3",
        "scipy==1.10.1",
        "seaborn==0.12.2",
        "joblib==1.4.2",
        "matplotlib==3.7.5",
    ),
}
"""Packages that duel."""

SCIENCE = ("numpy==2.4.6", "scipy==1.17.1", "scikit-learn==1.9.1")
FEATURED = {
    "mabwiser": ("mabwiser==2.7.4", "pandas==3.1.1", *SCIENCE),
    "vowpalwabbit": ("vowpalwabbit==9.11.9", "numpy==2.4.6"),
    "coba": ("coba==8.1.0", "numpy==2.4.6", "scipy==1.17.1"),
    "bayesianbandits": ("bayesianbandits==1.5.0", *SCIENCE),
    "contextualbandits": ("contextualbandits==0.3.30", "pandas==3.1.1", "Cython==3.3.1", *SCIENCE),
}
"""Packages whose decisions look at the features of arms."""


class PeerFailed(Exception):
    """A peer that could not be installed or run; the message is its error's last line."""


class Played(NamedTuple):
    """What a peer measured: steps per second, and the regret of one run."""

    steps_per_second: float
    regret: float


def install(peer: str, requirements: dict[str, tuple[str, ...]] = REQUIREMENTS | DUELS) -> Path:
    """Create a peer's environment unless it is there; return its interpreter.

    Raises
    ------
    PeerFailed
        If its packages cannot be installed.
    """
    wanted = "\n".join(requirements[peer])
    # A peer may be wanted with other packages beside it for another job.
    venv = VENVS / f"{peer.lower()}-{hashlib.sha256(wanted.encode()).hexdigest()[:8]}"
    stamp = venv / "requirements.txt"
    python = venv / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(venv, ignore_errors=True)
        _output([sys.executable, "-m", "venv", str(venv)])
        _output([str(python), "-m", "pip", "install", "-qq", *wanted.splitlines()])
        stamp.write_text(wanted)
    return python


def play(
    python: Path, script: str, steps: int, seed: int, segments: Sequence[Sequence[float]] = (MEANS,)
) -> dict[str, Played]:
    """Play one run of ``steps`` rounds with each algorithm that a peer's script has.

    ``segments`` holds the arms' means, of the whole run or of each of its halves.

    Raises
    ------
    PeerFailed
        If its script fails.
    """
    # -P keeps the scripts' folder, where files are named after packages, off the import path.
    command = [str(python), "-P", "-W", "ignore", str(HERE / "peers" / "play.py")]
    means = " / ".join(" ".join(map(str, segment)) for segment in segments).split()
    arguments = [script.lower(), str(steps), str(seed), *means]
    # Importing a package may print, too.
    played = json.loads(_output([*command, *arguments]).splitlines()[-1])
    return {algorithm: Played(*measured) for algorithm, measured in played.items()}


def play_duels(python: Path, duels: int, seed: int, arms: int, epsilon: float) -> dict[str, Played]:
    """Play one run of ``duels`` duels with each algorithm of duelpy that tacit has too.

    Raises
    ------
    PeerFailed
        If its script fails.
    """
    command = [str(python), "-P", "-W", "ignore", str(HERE / "peers" / "duels.py")]
    arguments = map(str, (duels, seed, arms, epsilon))
    played = json.loads(_output([*command, *arguments]).splitlines()[-1])
    return {algorithm: Played(*measured) for algorithm, measured in played.items()}


def play_stream(python: Path, peer: str, stream: Path) -> dict[str, tuple[float, float]]:
    """Play each algorithm of a peer on a stream of arms with features: µs a round, and regret.

    Raises
    ------
    PeerFailed
        If its script fails.
    """
    command = [str(python), "-P", "-W", "ignore", str(HERE / "peers" / "stream.py")]
    played = json.loads(_output([*command, peer, str(stream)]).splitlines()[-1])
    return {name: (float(time), float(regret)) for name, (time, regret) in played.items()}


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise PeerFailed(lines[-1] if lines else f"exit code {done.returncode}")
    return done.stdout
