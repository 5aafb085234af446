"""An edited policy is the edited one, however it comes to be known again."""

import importlib
import sys
import types

import pytest

import tacit

POLICY = """
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tacit
from tacit.policies import Counts, Policy

FIRST = {first}

@tacit.kernel
def favourite(arms):
    return arms[{place}]


@dataclass(frozen=True)
class Favours(Policy):
    State = Counts

    def init(self, lanes):
        return Counts.zeros(lanes, self.arm_count)

    @staticmethod
    def choose(params: Any, state: Any, lane: int, impression: Any, rng: Any) -> int:
        return favourite(impression.arms) + FIRST + {more}

    @staticmethod
    def learn(params: Any, state: Any, lane: int, outcome: Any) -> None:
        pass
"""


def written(path, **edit):
    path.write_text(POLICY.format(**{"first": 0, "place": 0, "more": 0} | edit))
    importlib.invalidate_caches()


def shown(kind):
    return tacit.Learner(kind(4), seed=1).choose("a").arm


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    written(tmp_path / "of_ones_own.py")
    yield importlib.import_module("of_ones_own")
    del sys.modules["of_ones_own"]


def reloaded(module):
    """Load a module anew, and let its former functions and classes be the new ones, as autoreload does."""
    before = dict(vars(module))
    importlib.reload(module)
    for name, old in before.items():
        new = vars(module).get(name)
        if getattr(old, "__module__", None) == module.__name__ and new is not old:
            in_place(old, new)


def in_place(old, new):
    if isinstance(old, types.FunctionType):
        old.__code__ = new.__code__
    elif isinstance(old, type):
        for name in list(vars(old)):
            theirs, ours = getattr(old, name, None), getattr(new, name, None)
            if isinstance(theirs, types.FunctionType | type) and theirs is not ours and ours is not None:
                in_place(theirs, ours)


EDITS = [{"more": 1}, {"place": 2}, {"first": 3}]


@pytest.mark.parametrize("edit", EDITS, ids=["kernel", "helper", "constant"])
def test_a_class_that_autoreload_edited_in_place_is_the_edited_one(module, tmp_path, edit):
    kind = module.Favours
    assert shown(kind) == 0
    written(tmp_path / "of_ones_own.py", **edit)
    reloaded(module)
    assert shown(kind) == shown(module.Favours) == sum(edit.values())


@pytest.mark.parametrize("edit", EDITS, ids=["kernel", "helper", "constant"])
def test_a_module_that_was_loaded_anew_or_run_has_the_edited_one(module, tmp_path, edit):
    assert shown(module.Favours) == 0
    written(tmp_path / "of_ones_own.py", **edit)
    assert shown(importlib.reload(module).Favours) == sum(edit.values())
    names = {"__name__": "__main__"}
    exec((tmp_path / "of_ones_own.py").read_text(), names)
    assert shown(names["Favours"]) == sum(edit.values())
