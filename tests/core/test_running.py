"""Loops run compiled and, with TACIT_COMPILE=0, as plain Python: the same is shown and learned."""

import gc
import os
import subprocess
import sys
import tracemalloc
from typing import Any, NamedTuple

import numpy as np
import pytest
from conftest import ROOT

import tacit
from tacit.checking.kernels import Trial
from tacit.core.arrays import leaves
from tacit.core.dispatch import list_parts
from tacit.core.run_mode import compile_loop
from tacit.policies.base import registry
from tests.policies.states import VARIANTS, assert_same_states

ROUNDS = range(50)
SHIPPED = list_parts(registry, "policies")
EXAMPLES = [kind.example(arms=3, dim=2) for kind in SHIPPED]
# Others run the same compiled code in another way.
OTHERS = [policy for policy in VARIANTS if "policy" not in policy.__dataclass_fields__]


def played(policy, monkeypatch, mode):
    """Return what is shown in some rounds, with what propensities, and the state."""
    monkeypatch.setenv("TACIT_COMPILE", mode)
    trial = Trial(policy, 1, len(ROUNDS), 0, 0.0)
    learner = trial.make_learner()
    decisions = trial.play(learner, "a", ROUNDS)
    told = [float("nan") if one.propensity is None else one.propensity for one in decisions]
    return [one.slots.tolist() for one in decisions], told, learner.lanes.view_all()


@pytest.mark.parametrize("policy", [*EXAMPLES, *OTHERS], ids=lambda policy: policy.label)
def test_each_policy_plays_the_same(policy, monkeypatch):
    (shown, told, state), (others, said, other) = (played(policy, monkeypatch, mode) for mode in "01")
    assert shown == others
    np.testing.assert_allclose(told, said, rtol=1e-6)
    assert_same_states(state, other, rtol=1e-6, atol=1e-8)


MEMORY_ROUNDS = 1000
GROWTH_LIMIT = 64_000
"""Bytes that 1,000 decisions may add: the smallest array that a decision is given takes 120 of them each."""


@pytest.mark.parametrize("kind", SHIPPED, ids=lambda kind: kind.__name__)
def test_choosing_and_learning_keeps_no_array(kind, monkeypatch):
    monkeypatch.setenv("TACIT_COMPILE", "1")
    trial = Trial(kind.example(arms=3, dim=2), 1, MEMORY_ROUNDS, 0, 0.0)
    learner = trial.make_learner()
    trial.play(learner, "a", ROUNDS)
    arrays = [array for _, array in leaves(learner.lanes.state)]
    references = list(map(sys.getrefcount, arrays))
    sizes = []
    tracemalloc.start()
    try:
        for round in range(10, 10 + MEMORY_ROUNDS):
            trial.play(learner, "a", range(round, round + 1))
            if round in (10 + MEMORY_ROUNDS // 10, 10 + MEMORY_ROUNDS // 2, 9 + MEMORY_ROUNDS):
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    # What is kept grows in both parts; other threads allocate, too, but not for ever.
    assert min(np.diff(sizes)) < GROWTH_LIMIT / 3
    assert list(map(sys.getrefcount, arrays)) == references


def simulated(monkeypatch, mode, environment):
    monkeypatch.setenv("TACIT_COMPILE", mode)
    return tacit.simulate(tacit.Thompson(3), environment, horizon=300, runs=2, seed=1).regret


def test_a_simulation_is_the_same(monkeypatch):
    environment = tacit.ShiftingArms.example(3)
    np.testing.assert_allclose(*(simulated(monkeypatch, mode, environment) for mode in "01"), rtol=1e-9)


class Held(NamedTuple):
    plays: Any
    rounds: int


class State(NamedTuple):
    rewards: Any
    held: Held


def take_apart(state):
    rewards, held = state
    made = np.zeros(1)
    made[0] = rewards[0] + state[-1].plays[1] * len(state)
    rewards[1] = made[0] + held.rounds + state[0][2]


def test_a_loop_that_makes_arrays_takes_a_state_apart_in_all_ways(monkeypatch):
    found = []
    for mode in "01":
        monkeypatch.setenv("TACIT_COMPILE", mode)
        state = State(np.arange(3.0), Held(np.arange(2.0) + 5.0, 7))
        compile_loop(take_apart)(state)
        found.append(state.rewards.tolist())
    assert found == [[0.0, 21.0, 2.0]] * 2


def cut(state):
    rewards, held = state[:2]
    rewards[1] = np.ones(3).sum() + held.rounds


def given_back(state):
    made = Held(np.ones(3), 9)
    chosen = state.held if state.rewards[0] > 0 else made
    state.rewards[1] = chosen.rounds
    return state.held


@pytest.mark.parametrize("loop", [cut, given_back])
def test_what_cannot_be_done_with_an_address_is_done_piece_by_piece(loop, monkeypatch):
    found = []
    for mode in "01":
        monkeypatch.setenv("TACIT_COMPILE", mode)
        state = State(np.arange(3.0), Held(np.arange(2.0) + 5.0, 7))
        given = compile_loop(loop)(state)
        found.append((state.rewards.tolist(), None if given is None else given.rounds))
    assert found[0] == found[1]


def test_a_process_that_compiles_nothing_does_not_load_the_compiler():
    code = """
import sys
import tacit
learner = tacit.Learner(tacit.UCB1(2), seed=1)
learner.learn(learner.choose("a"), 1.0)
assert "numba" not in sys.modules
"""
    plain = os.environ | {"TACIT_COMPILE": "0"}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, env=plain)
