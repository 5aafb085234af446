"""A virtual environment for each other package, and commands in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
VENVS = HERE / ".venvs"
REQUIREMENTS = HERE / "peers" / "requirements"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

AS_PINNED = {"obp": ["--no-deps", "--ignore-requires-python"]}
"""How pip is asked for a package whose requirements cannot be met."""


class PeerFailed(Exception):
    """A package that could not be installed or run; the message is its error's last line."""


def pinned(peer: str) -> list[str]:
    """Return what is installed for a package; the first is the package itself."""
    lines = (REQUIREMENTS / f"{peer}.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def install(peer: str) -> Path:
    """Create a package's environment unless it is there as wanted; return its interpreter.

    Raises
    ------
    PeerFailed
        If it cannot be installed.
    """
    wanted = "\n".join(pinned(peer))
    venv = VENVS / peer
    stamp, python = venv / "installed.txt", venv / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(venv, ignore_errors=True)
        output([sys.executable, "-m", "venv", str(venv)])
        file = REQUIREMENTS / f"{peer}.txt"
        output(
            [str(python), "-m", "pip", "install", "-qq", *AS_PINNED.get(peer, []), "--requirement", str(file)]
        )
        stamp.write_text(wanted)
    return python


def output(command: list[str], timeout: float | None = None) -> str:
    """Run a command with one thread per library; return what it prints.

    Raises
    ------
    PeerFailed
        If it fails, or takes longer than ``timeout`` seconds.
    """
    environment = os.environ | ONE_THREAD
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)
    except subprocess.TimeoutExpired:
        raise PeerFailed(f"took longer than {timeout:,.0f} s") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise PeerFailed(lines[-1] if lines else f"exit code {done.returncode}")
    return done.stdout
