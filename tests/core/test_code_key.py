"""What names compiled code in the cache: everything that it runs, and nothing else."""

import os
import subprocess
import sys
from types import FunctionType

import pytest
from conftest import ROOT

from tacit.core.code_key import code_key

LOOP = """
import numpy as np
from typing import NamedTuple

LIMIT = 3
TABLE = np.array([1.0, 2.0])

class Params(NamedTuple):
    rate: float

def generic(params, x):
    return 0

def helper(x):
    "Return more."
    return x + LIMIT + TABLE[0]

class Part:
    class Params(NamedTuple):
        rate: float

    @staticmethod
    def generic(params, x):
        return helper(x) * params.rate

    @staticmethod
    def unused(params, x):
        return x

def loop(params, x):
    # It calls the kernel.
    return generic(params, x) + sum(n in {4, 5, 6} for n in (1, 2))
"""


def key(source, versions=("1",), module="mine"):
    names = {"__name__": module}
    exec(compile(source, "mine.py", "exec"), names)
    assert isinstance(names["loop"], FunctionType)
    return code_key(names["loop"], (names["Part"],), (names["generic"],), versions)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# It calls the kernel.", "# Something else.\n\n"),
        ('"Return more."', '"Return a little more than before."'),
        ("def unused(params, x):\n        return x", "def unused(params, x):\n        return 2 * x"),
        ("import numpy as np", "\n\n\nimport numpy as np"),
    ],
)
def test_words_and_code_that_is_never_run_change_no_key(old, new):
    assert old in LOOP
    assert key(LOOP.replace(old, new)) == key(LOOP)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("1.0, 2.0", "1.0, 2.5"),
        ("TABLE[0]", "TABLE[1]"),
        ("helper(x) *", "helper(x) +"),
        ("x + LIMIT", "x - LIMIT"),
        ("{4, 5, 6}", "{4, 5, 7}"),
        (
            "class Part:\n    class Params(NamedTuple):\n        rate",
            "class Part:\n    class Params(NamedTuple):\n        more: float\n        rate",
        ),
        ("+ sum(", "- sum("),
    ],
)
def test_whatever_is_run_changes_the_key(old, new):
    assert old in LOOP
    assert key(LOOP.replace(old, new)) != key(LOOP)


def test_another_compiler_changes_the_key():
    assert key(LOOP, ("2",)) != key(LOOP)


def test_the_same_part_of_two_modules_has_two_keys():
    """What is kept brings the module of its types along, and with it a part of the same name."""
    assert key(LOOP, module="yours") != key(LOOP)


def run(code, **environment):
    """Return the words that code prints in a process of its own."""
    env = os.environ | environment
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split()


def test_a_key_is_the_same_in_every_process():
    path = os.pathsep.join(map(str, (ROOT, ROOT / "src", ROOT / "tests")))
    code = "from tests.core import test_code_key as tests; print(tests.key(tests.LOOP))"
    for seed in ("1", "2"):
        assert run(code, PYTHONHASHSEED=seed, PYTHONPATH=path) == [key(LOOP)]


OWN = """
from tacit.core.compiled import cache_statistics
learner = tacit.Learner(ExploreThenCommit(arms=2, tries=1), seed=1)
for _ in range(3):
    decision = learner.choose("a")
    learner.learn(decision, float(decision.arm == 1))
print(learner.choose("a").arm, *cache_statistics())
"""


@pytest.fixture(scope="module")
def source():
    """The policy of the page, and what plays it."""
    return (ROOT / "docs" / "write-a-policy.md").read_text().split("```python\n")[1].split("```")[0] + OWN


def test_a_policy_may_be_defined_where_there_is_no_file(source, tmp_path):
    """At a prompt, on standard input, in a notebook; it is compiled once for all of them."""
    assert run(source, TACIT_CACHE_DIR=str(tmp_path)) == ["1", "0", "2"]
    env = os.environ | {"TACIT_CACHE_DIR": str(tmp_path)}
    assert subprocess.run(
        [sys.executable, "-"], input=source, env=env, capture_output=True, text=True, check=True
    ).stdout.split() == ["1", "2", "0"]


def test_processes_that_want_the_same_at_once_compile_it_once(source, tmp_path):
    """One does, and the other one waits for it; in whichever order they come."""
    env = os.environ | {"TACIT_CACHE_DIR": str(tmp_path)}
    both = [
        subprocess.Popen([sys.executable, "-c", source], env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate()[0].split() for process in both]
    assert [arm for arm, *_ in said] == ["1", "1"]
    assert sum(int(misses) for *_, misses in said) == 2
    assert sum(int(hits) for _, hits, _ in said) == 2


TWO = """
from dataclasses import dataclass
from typing import NamedTuple
import numpy as np
import tacit
from tacit.core.compiled import cache_statistics

@dataclass(frozen=True)
class Even(tacit.Policy):
    class State(NamedTuple):
        rewards: np.ndarray
    def init(self, lanes):
        return self.State(np.zeros((lanes, self.arm_count)))
    @staticmethod
    def choose(params, state, lane, impression, rng):
        return impression.arms[int(rng.random() * len(impression.arms))]
    @staticmethod
    def propensity(params, state, lane, impression, arm):
        return np.full(1, 1.0 / len(impression.arms))[0]
    @staticmethod
    def learn(params, state, lane, outcome):
        state.rewards[lane, outcome.shown] += outcome.reward

learner = tacit.Learner(Even(3), seed=1, propensities={propensities})
learner.learn(learner.choose("a"), 1.0)
print(*cache_statistics())
"""


@pytest.mark.parametrize("propensities", [True, False])
def test_a_loop_that_makes_arrays_is_compiled_once(tmp_path, propensities):
    """It is told before that it has to count references to them."""
    assert run(TWO.format(propensities=propensities), TACIT_CACHE_DIR=str(tmp_path)) == ["0", "2"]
    variants = [folder.name for folder in tmp_path.glob("*/*") if folder.is_dir()]
    assert sorted(variants) == ["counting" if propensities else "lean", "lean"]
