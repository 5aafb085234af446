"""A kernel that cannot be compiled is told in one line: where, what, and the remedy."""

import importlib
import inspect
import pickle
import re

import pytest
from conftest import ROOT
from forked import ran
from numba.core.errors import NumbaError
from numba.np.random import generator_methods

import tacit
from tacit.errors import KernelError

MODULE = """
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tacit


def unmarked(x):
    return x + 1


@tacit.kernel
def marked(x):
    return x.nothing


@dataclass(frozen=True)
class Broken(tacit.Policy):
    class Params(NamedTuple):
        tries: int

    class State(NamedTuple):
        plays: np.ndarray

    tries: int = 10

    def init(self, lanes):
        return self.State(np.zeros((lanes, self.arm_count)))

    @staticmethod
    def choose(params, state, lane, impression, rng):
        {choose}

    @staticmethod
    def learn(params, state, lane, outcome):
        {learn}
"""
FIRST, COUNT = "return impression.arms[0]", "state.plays[lane, outcome.shown] += 1"
CASES = {
    "one argument": (
        "return impression.arms[rng.integers(3)]",
        COUNT,
        "rng.integers needs both its arguments in a kernel: rng.integers(0, n)",
    ),
    "no such method": ("return rng.choice(impression.arms)", COUNT, "kernels have no choice of a"),
    "no such name": ("return impression.arms[nowhere]", COUNT, "name 'nowhere' is not defined"),
    "no such parameter": (
        "return impression.arms[params.trials]",
        COUNT,
        "Params has no trials; it has tries",
    ),
    "not marked": ("return impression.arms[unmarked(0)]", COUNT, "unmarked with @tacit.kernel"),
    "a wrong helper": ("return impression.arms[marked(0)]", COUNT, "nothing"),
    "nothing returned": ("impression.arms[0]", COUNT, "it returns no slot"),
    "an import": ("import random; " + FIRST, COUNT, "unsupported opcode (IMPORT_NAME)"),
    "a format": ("print(f'{lane:.2f}'); " + FIRST, COUNT, "format spec in f-strings"),
    "no such array": (FIRST, "state.pleys[lane] += 1", "State has no pleys; it has plays"),
    "too many axes": (FIRST, "state.plays[lane, 0, 1] += 1", "with 3 indices"),
    "a parameter written": (FIRST, "params.tries = 3", "No definition for lowering Params"),
}


def written(folder, name, choose=FIRST, learn=COUNT):
    """Write a module with a policy of these kernels."""
    path = folder / f"{name}.py"
    path.write_text(MODULE.format(choose=choose, learn=learn))
    return path


@pytest.mark.parametrize("case", CASES)
def test_the_line_says_where_what_and_how_to_mend_it(case, tmp_path, monkeypatch):
    choose, learn, cause = CASES[case]
    path = written(tmp_path, f"broken_{case.replace(' ', '_')}", choose, learn)
    monkeypatch.syspath_prepend(tmp_path)
    policy = importlib.import_module(path.stem).Broken(arms=3)
    with pytest.raises(KernelError) as raised:
        tacit.Learner(policy, seed=1).compile()
    message = str(raised.value)
    assert "\n" not in message
    assert cause in message
    lines = path.read_text().splitlines()
    assert message.startswith(f"{path}:{raised.value.line}: ")
    at_fault = "return x.nothing" if case == "a wrong helper" else learn if learn != COUNT else choose
    whole = "@staticmethod" if case == "nothing returned" else at_fault
    assert lines[raised.value.line - 1].strip() in whole
    kernel = "learn" if learn != COUNT else "choose"
    assert raised.value.kernel == ("marked" if case == "a wrong helper" else f"Broken.{kernel}")


def test_numbas_own_error_is_the_cause_in_full(tmp_path, monkeypatch):
    written(tmp_path, "broken_cause", "return impression.arms[nowhere]")
    monkeypatch.syspath_prepend(tmp_path)
    policy = importlib.import_module("broken_cause").Broken(arms=3)
    with pytest.raises(KernelError) as raised:
        tacit.Learner(policy, seed=1).compile()
    assert isinstance(raised.value.__cause__, NumbaError)
    assert "nowhere" in raised.value.__cause__.msg
    assert len(str(raised.value.__cause__).splitlines()) == 1
    again = pickle.loads(pickle.dumps(raised.value))
    assert str(again) == str(raised.value)
    assert again.line == raised.value.line


def test_the_command_line_prints_the_one_line(tmp_path):
    path = written(tmp_path, "broken_command", "return impression.arms[rng.integers(3)]")
    command = "-m", "tacit", "simulate", "--policy", "broken_command:Broken"
    result = ran([*command, "--horizon", "10", "--runs", "1"], cwd=tmp_path)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {path}:")


@pytest.mark.parametrize("name", ["<stdin>", "<ipython-input-3-0123456789ab>"])
def test_what_has_no_file_is_told_by_its_line(name):
    scope = {"__name__": "__main__"}
    code = MODULE.format(choose="return impression.arms[rng.integers(3)]", learn=COUNT)
    exec(compile(code, name, "exec"), scope)
    with pytest.raises(KernelError, match=r"rng\.integers needs both") as raised:
        tacit.Learner(scope["Broken"](arms=3), seed=1).compile()
    assert raised.value.file == name
    assert code.splitlines()[raised.value.line - 1].strip().startswith("return impression.arms[rng")


def test_the_page_says_truly_which_methods_of_a_generator_work():
    known = set(re.findall(r"types\.NumPyRandomGeneratorType, '(\w+)'", inspect.getsource(generator_methods)))
    page = (ROOT / "docs" / "write-a-policy.md").read_text()
    (listed,) = re.findall(r"Of `rng` works (.+?)\n\n", page, re.DOTALL)
    assert {name.partition("(")[0] for name in re.findall(r"`([^`]+)`", listed)} - known == {"choice"}
