"""Whoever waits for a compilation is told so, on standard error, and nobody else."""

import os
import subprocess
import sys
import time

import pytest
from harness import PATIENCE, eventually

from tacit.core.compilation import notice


@pytest.fixture
def said(monkeypatch):
    """Return what is said, with no patience."""
    pieces = []
    monkeypatch.setattr(notice, "say", pieces.append)
    monkeypatch.setattr(notice, "PATIENCE", 0.0)
    monkeypatch.delenv("TACIT_QUIET", raising=False)
    return pieces


def test_the_line_begins_while_it_compiles_and_ends_with_the_seconds(said):
    with notice.announce("choose for Thompson"):
        notice.start_notice()
        eventually(lambda: said)
        assert said == ["tacit: compiling choose for Thompson, once; it is kept …"]
    assert len(said) == 2
    assert said[1].endswith(" s\n")
    assert float(said[1].removesuffix(" s\n")) >= 0.0


def test_what_is_found_in_the_cache_is_not_told(said):
    with notice.announce("choose for Thompson"):
        time.sleep(0.01)
    assert said == []


def test_what_takes_no_second_is_not_told(said, monkeypatch):
    monkeypatch.setattr(notice, "PATIENCE", PATIENCE)
    with notice.announce("choose for Thompson"):
        notice.start_notice()
    assert said == []


def test_it_can_be_silenced(said, monkeypatch):
    monkeypatch.setenv("TACIT_QUIET", "1")
    with notice.announce("choose for Thompson"):
        notice.start_notice()
    assert said == []


def test_lines_of_two_threads_do_not_mix(said):
    with notice.announce("one"):
        notice.start_notice()
        eventually(lambda: said)
        with notice.announce("two"):
            notice.start_notice()
        assert said[1].startswith("tacit: compiled two in ")
    assert len(said) == 3


def test_an_error_ends_the_line_too(said):
    def failing():
        with notice.announce("one"):
            notice.start_notice()
            eventually(lambda: said)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert said[1].endswith(" s\n")
    with notice.announce("two"):
        notice.start_notice()
        eventually(lambda: len(said) == 3)


def test_nothing_of_it_is_on_standard_output(tmp_path):
    """Without a second's patience, so that it is told however fast the machine is."""
    code = (
        "import tacit; from tacit.core.compilation import notice; notice.PATIENCE = 0.0\n"
        "learner = tacit.Learner(tacit.UniformRandom(2), seed=1)\n"
        "print(learner.choose().key)"
    )
    environment = os.environ | {"TACIT_CACHE_DIR": str(tmp_path), "TACIT_QUIET": "0"}
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=PATIENCE
        )
        for _ in range(2)
    ]
    assert [run.stdout for run in runs] == ["default\n"] * 2
    assert runs[0].stderr.startswith("tacit: compiling choose for UniformRandom, once; ")
    assert runs[1].stderr == ""


def test_where_nothing_can_be_kept_a_policy_runs_all_the_same_and_that_is_told_once():
    """A file system that is read-only, as that of a container, or full."""
    script = """
import tacit
for policy in (tacit.UCB1(2), tacit.EpsilonGreedy(2)):
    learner = tacit.Learner(policy, seed=1)
    learner.learn(learner.choose("a"), 1.0)
"""
    env = os.environ | {"TACIT_CACHE_DIR": "/proc/nowhere", "TACIT_QUIET": ""}
    ran = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    told = [line for line in ran.stderr.splitlines() if "cannot be kept" in line]
    assert len(told) == 1
    assert "/proc/nowhere" in told[0]
    assert "TACIT_CACHE_DIR" in told[0]
