"""What takes longer than a second says how far it is, where somebody sees it: once, and not in a pipe."""

import io
import sys

import numpy as np
import pytest

import tacit
from tacit.core import parallel
from tacit.evaluate import off_policy, replay

ROWS = 200


@pytest.fixture
def log():
    rng = np.random.default_rng(1)
    return {
        "key": ["home"] * ROWS,
        "arm": rng.choice(["film", "song"], ROWS),
        "propensity": np.full(ROWS, 0.5),
        "reward": rng.integers(2, size=ROWS).astype(float),
    }


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def said(monkeypatch):
    """Return what some work says on a terminal; everything takes longer than the patience that there is."""
    monkeypatch.setattr(parallel, "PATIENCE", -1.0)
    monkeypatch.setenv("TERM", "xterm")

    def on_terminal(work):
        with monkeypatch.context() as patched:
            # Here, as pytest has another one for each phase of a test.
            patched.setattr(sys, "stderr", Terminal())
            work()
            return sys.stderr.getvalue()

    return on_terminal


WORK = {
    "replaying": lambda log: replay(tacit.Thompson(["film", "song"]), log, arms=["film", "song"], passes=1),
    "weighting": lambda log: off_policy(tacit.evaluate.Table({"film": 1.0}), log, arms=["film", "song"]),
    "learning": lambda log: tacit.Learner(tacit.Thompson(["film", "song"]), seed=1).fit_log(
        log, arms=["film", "song"]
    ),
}


@pytest.mark.parametrize("label", WORK)
def test_what_reads_a_log_says_how_far_it_is_on_a_terminal(said, log, label):
    found = said(lambda: WORK[label](log))
    assert label in found
    assert str(ROWS) in found


@pytest.mark.parametrize("label", WORK)
def test_in_a_pipe_nothing_is_said(monkeypatch, capsys, log, label):
    monkeypatch.setattr(parallel, "PATIENCE", -1.0)
    WORK[label](log)
    assert capsys.readouterr().err == ""


def test_a_simulation_says_how_far_it_is(said):
    arms = tacit.BernoulliArms([0.2, 0.4])
    assert said(lambda: tacit.simulate(tacit.UCB1(2), arms, horizon=50, runs=2, seed=1))


def test_what_works_for_something_larger_shows_no_bar_of_its_own(said):
    def work():
        with parallel.progress(1, "larger") as outer:
            outer(0)
            with parallel.report_progress("smaller") as report:
                report(5)

    found = said(work)
    assert "larger" in found
    assert "smaller" not in found


def test_a_function_of_ones_own_is_called_in_its_place(said, log):
    seen = []
    target = tacit.evaluate.Table({"film": 1.0})
    assert said(lambda: off_policy(target, log, arms=["film", "song"], progress=seen.append)) == ""
    assert seen[-1] == ROWS


def test_a_notebook_is_watched(monkeypatch):
    assert not parallel.is_watched()
    monkeypatch.setitem(sys.modules, "ipykernel", object())
    assert parallel.is_watched()
