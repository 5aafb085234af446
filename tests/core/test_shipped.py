"""Compiled code that a wheel brings along: taken where it fits, and the same to the last bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tacit.core.compilation.loops import SHIPPED_FOR, can_run_shipped

PLAYED = """
import json, os, sys
from pathlib import Path
from tacit.core.compilation import loops
if len(sys.argv) > 1:
    loops.SHIPPED = Path(sys.argv[1])
import tacit
from tacit.core.compiled import cache_statistics
learner, played = tacit.Learner(tacit.UCB1(arms=3), seed=1), []
for number in range(50):
    decision = learner.choose("film")
    played.append(decision.arm)
    learner.learn(decision, (number % 7) / 6)
played.append([array.tobytes().hex() for array in learner.state])
print(json.dumps([played, *cache_statistics()]))
"""


def played(folder: Path, *shipped: Path, **environment: str) -> tuple[list, int, int]:
    """Play in a process of its own; return what came of it, loops found and loops compiled."""
    command = [sys.executable, "-c", PLAYED, *map(str, shipped)]
    apart = {**os.environ, "TACIT_CACHE_DIR": str(folder), **environment}
    told = subprocess.run(command, env=apart, check=True, capture_output=True, text=True).stdout
    return tuple(json.loads(told))


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """What a wheel brings: made for any processor of this kind."""
    folder = tmp_path_factory.mktemp("shipped")
    return folder, *played(folder, NUMBA_CPU_NAME=SHIPPED_FOR, NUMBA_CPU_FEATURES="")


@pytest.mark.skipif(not can_run_shipped(), reason="a processor from before 2013")
def test_what_a_wheel_brings_is_run_as_it_is_and_plays_the_same(shipped, tmp_path):
    folder, made, _, compiled = shipped
    assert compiled == 2
    before = sorted(folder.rglob("*"))
    assert played(tmp_path / "cache", folder) == (made, 2, 0)
    assert not (tmp_path / "cache").exists()
    assert sorted(folder.rglob("*")) == before


def test_what_fits_no_processor_of_this_kind_is_left_aside(shipped, tmp_path):
    """Made for this very one, it may not run on another: it is compiled anew."""
    _, made, *_ = shipped
    here = tmp_path / "here"
    assert played(here)[0] == made  # compiled for this processor
    assert played(tmp_path / "cache", here) == (made, 0, 2)
