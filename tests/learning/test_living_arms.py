"""Arms that come, retire and are restored while a learner learns."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from policies_of_ones_own import Pooled

import tacit
from tacit.core.arrays import leaves
from tacit.errors import InvalidValue, UnknownName
from tacit.policies.base import Impression

pytestmark = pytest.mark.interpreted

THREE = ("a", "b", "c")
MOST = 5

COUNTING = [
    tacit.EpsilonGreedy(THREE),
    tacit.UCB1(THREE),
    tacit.Thompson(THREE, discount=0.9),
    tacit.policies.baselines.SlidingWindowUCB(THREE, window=5),
    tacit.ExplorationFloor(Pooled(THREE), 0.1),
    tacit.policies.CascadeUCB1(THREE, positions=2),
    tacit.policies.CascadeKLUCB(THREE, positions=2),
]
"""Those to which an arm that is not on offer is as none."""
OTHERS = [
    tacit.policies.EXP3(THREE),
    tacit.policies.baselines.EXP3S(THREE),
    tacit.policies.baselines.GLRKLUCB(THREE),
    tacit.policies.TestableUCB1(THREE, horizon=20),
    tacit.DriftMixture(THREE),
    tacit.policies.baselines.RUCB(THREE),
    tacit.policies.RMED1(THREE),
    tacit.HorizonDraw(THREE),
    tacit.policies.baselines.DoubleThompsonSampling(THREE),
    tacit.policies.baselines.SelfSparring(THREE),
    tacit.policies.baselines.WinnerStays(THREE),
    tacit.policies.BeatTheMean(THREE, horizon=50),
    tacit.policies.InterleavedFilter1(THREE, horizon=50),
    tacit.ListMix(THREE, positions=2),
    tacit.policies.baselines.PBMUCB(THREE, positions=2),
]
# Which of its lists are under way is in no log.
RANKED = tacit.policies.baselines.RankedBandit(tacit.policies.EXP3(THREE), positions=2)


def over(policies):
    return pytest.mark.parametrize("policy", policies, ids=lambda policy: policy.label)


def bits(learner):
    """Return all that a learner is, bit for bit."""
    used = {name: array.tobytes() for name, array in leaves(learner.lanes.view_all())}
    return learner.keys, learner.arms, learner.retired, used, learner.rng.bit_generator.state


def reward_for(learner, number):
    """Return what comes back: a number, or one for each position."""
    rewards = np.random.default_rng(number).integers(3, size=learner.policy.feedback_width) / 2
    return rewards.tolist() if len(rewards) > 1 else float(rewards[0])


# By hand -------------------------------------------------------------------------------------


@pytest.mark.parametrize("arms", [["film", "holiday"], 2])
def test_arms_come_retire_and_are_restored(arms):
    learner = tacit.Learner(tacit.UCB1(arms), seed=1)
    first, second = learner.arms
    for arm in (first, second, second):
        learner.learn(learner.choose("q", arms=[arm]), 1.0)
    third, fourth = learner.add_arms(["x", "y"] if isinstance(arms, list) else 2)
    assert learner.arms == [first, second, third, fourth]
    assert learner.state.plays[0].tolist() == [1, 2, 0, 0]
    waiting = learner.choose("q", arms=[third])
    learner.retire_arms([third, first])
    assert (learner.arms, learner.retired) == ([second, fourth], [first, third])
    assert set(learner.choose_many(["q"] * 20).arms) <= {second, fourth}
    assert len(learner.probabilities("q")) == 2
    # A decision that showed it still teaches; its slot stays.
    assert learner.learn(waiting, 1.0)
    learner.retire_arms([third])
    learner.restore_arms([first, third, second])
    assert (learner.arms, learner.retired) == ([first, second, third, fourth], [])
    assert learner.state.plays[0].tolist() == [1, 2, 1, 0]


NUMBERED, BY_FEATURES = tacit.UCB1(2), tacit.policies.LinUCB(1, 1)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.add_arms(["b"]), InvalidValue, "it is on offer already"),
        (lambda x: x.add_arms(["a"]), InvalidValue, "it is retired; restore it"),
        (lambda x: x.add_arms(["d", "d"]), InvalidValue, "a name of its own"),
        (lambda x: x.add_arms(["d", "b"]), InvalidValue, "it is on offer already"),
        (lambda x: x.add_arms([]), InvalidValue, "list of arm names"),
        (lambda x: x.add_arms("d"), InvalidValue, "list of arm names"),
        (lambda x: x.add_arms(2), InvalidValue, "arms have names here"),
        (lambda x: x.add_arms(["d", 7]), InvalidValue, "give a string"),
        (lambda x: x.retire_arms(["b", "z"]), UnknownName, "there is no arm 'z'"),
        (lambda x: x.retire_arms(["c", "b"]), InvalidValue, "no arm would be on offer"),
        (lambda x: x.retire_arms("b"), InvalidValue, r"\['b'\]"),
        (lambda x: x.restore_arms(["a", "z"]), UnknownName, "there is no arm 'z'"),
    ],
)
def test_what_is_wrong_changes_nothing(call, error, message):
    learner = tacit.Learner(tacit.UCB1(THREE), seed=1)
    learner.retire_arms(["a"])
    learner.learn(learner.choose("q"), 1.0)
    before = bits(learner)
    with pytest.raises(error, match=message):
        call(learner)
    assert bits(learner) == before


@pytest.mark.parametrize(
    ("policy", "call", "error", "message"),
    [
        (NUMBERED, lambda x: x.add_arms(["d"]), InvalidValue, "arms are numbered here"),
        (NUMBERED, lambda x: x.add_arms(0), InvalidValue, "whole number"),
        (NUMBERED, lambda x: x.add_arms(True), InvalidValue, "whole number"),
        (NUMBERED, lambda x: x.retire_arms([0, 1]), InvalidValue, "no arm would be on offer"),
        (BY_FEATURES, lambda x: x.add_arms(["new"]), InvalidValue, "say at each decision what is on"),
        (BY_FEATURES, lambda x: x.retire_arms(["old"]), UnknownName, "there is no arm 'old'"),
    ],
)
def test_numbered_arms_are_told_by_their_numbers_and_others_by_features(policy, call, error, message):
    learner = tacit.Learner(policy, seed=1)
    before = learner.arms
    with pytest.raises(error, match=message):
        call(learner)
    assert learner.arms == before


def test_a_new_arm_begins_with_what_all_keys_know_of_arms():
    learner = tacit.Learner(tacit.DriftMixture(["a", "b"]), seed=1)
    for _ in range(10):
        learner.learn_many(learner.choose_many([f"key {i}" for i in range(10)]), np.arange(10) % 10 > 0)
    learner.add_arms(["c"])
    # Of 100 rewards nine in ten were clicks.
    common, *_, new = learner.state.shared.priors.beta[0]
    assert new[0] / new.sum() == pytest.approx(common[0] / common.sum(), abs=0.02)
    assert new[0] / new.sum() > 0.75


@pytest.mark.parametrize("policy", [tacit.policies.EXP3(2), tacit.policies.baselines.EXP3S(2)], ids=repr)
@pytest.mark.parametrize("rounds", [10, 5000])
def test_a_new_arm_of_exponential_weights_begins_with_their_mean(policy, rounds):
    """However far they are from where they began; and its first reward moves it no further."""
    learner = tacit.Learner(policy, seed=1)
    for _ in range(rounds):
        decision = learner.choose("q")
        learner.learn(decision, float(decision.arm))
    before = learner.probabilities("q")
    learner.add_arms(1)
    after = learner.probabilities("q")
    assert after[2] == pytest.approx(1 / 3)
    np.testing.assert_allclose(after[:2], before * 2 / 3, atol=policy.gamma)
    decision = learner.choose("q", arms=[2])
    learner.learn(decision, 0.0)
    np.testing.assert_allclose(learner.probabilities("q"), after, atol=0.01)
    # A key that comes later knows no difference.
    assert learner.probabilities("new").tolist() == pytest.approx([1 / 3] * 3)


def test_a_key_that_comes_later_begins_with_all_arms(tmp_path):
    """Live, and after a snapshot, which keeps no lanes that are spare."""
    duels = tacit.Learner(tacit.policies.BeatTheMean(2, horizon=50), seed=1)
    duels.choose("old")
    duels.add_arms(2)
    duels.save(tmp_path / "learner.tacit")
    again = tacit.Learner.load(tmp_path / "learner.tacit")
    for each in (duels, again):
        each.choose("new")
    assert bits(again) == bits(duels)
    assert duels.state.working.size[:2].tolist() == [2, 4]


# Any order -----------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["choose"] * 4 + ["learn"] * 4 + ["add", "retire", "restore", "file"]),
        st.integers(0, 2**16),
    ),
    max_size=30,
)
sequences = examples(8)


def take_step(learner, what, number, waiting):
    """Take one step; return what was decided."""
    arms, count = learner.policy.arms, learner.policy.arm_count
    if what == "choose":
        waiting.append(learner.choose(f"key {number % 3}"))
        return waiting[-1]
    if what == "learn" and waiting:
        learner.learn(waiting.pop(number % len(waiting)), reward_for(learner, number))
    elif what == "add" and count < MOST:
        learner.add_arms([f"new {count}"])
    elif what == "retire" and learner.arms != [arms[number % count]]:
        learner.retire_arms([arms[number % count]])
    elif what == "restore":
        learner.restore_arms([arms[number % count]])
    return None


def chances(learner, key):
    """Return the probability of each action that can be shown now, by the kernels in Python."""
    policy, state = learner.policy, learner.state
    slots = learner.offer.arm_indices
    given = policy.params, state, learner.lane(key), Impression(slots, np.zeros(0))
    actions: Any = slots
    if policy.shows == "duel":
        actions = itertools.product(slots, repeat=2)
    elif policy.shows == "slate":
        empty = [-1] * max(policy.action_width - len(slots), 0)
        orders = itertools.permutations(slots, policy.action_width - len(empty))
        actions = (np.array([*order, *empty]) for order in orders)
    return [policy.propensity(*given, shown) for shown in actions]


@over([*COUNTING, *OTHERS, RANKED])
@sequences
@given(steps=STEPS, seed=st.integers(0, 2**32))
def test_only_arms_on_offer_are_shown_with_propensities_that_sum_to_one(policy, steps, seed):
    learner, waiting = tacit.Learner(policy, seed=seed), []
    for what, number in steps:
        shown = take_step(learner, what, number, waiting)
        assert shown is None or set(shown.shown) <= set(learner.arms)
    if policy.knows_propensity and learner.keys:
        assert sum(chances(learner, learner.keys[0])) == pytest.approx(1.0, abs=1e-7)


@over(COUNTING + OTHERS)
@sequences
@given(steps=STEPS)
def test_what_was_learned_is_a_fold_of_what_happened(policy, steps, tmp_path):
    """Of a learner that lives, one that is read from files, and one that decides nothing itself."""
    path = tmp_path / "learner.tacit"
    live, stopped, fold = (tacit.Learner(policy, seed=5) for _ in range(3))
    waiting, after_stops, logged = [], [], []
    for what, number in steps:
        if what == "file":
            stopped.save(path)
            stopped = tacit.Learner.load(path)
        decision = take_step(live, what, number, waiting)
        take_step(stopped, what, number, after_stops)
        if decision is not None:
            fold.observe_decisions([decision])
            logged.append(decision)
        else:
            take_step(fold, what, number, logged)
    assert bits(stopped) == bits(live)
    # It drew nothing.
    assert bits(fold)[:-1] == bits(live)[:-1]


@over(COUNTING)
@sequences
@given(steps=STEPS)
def test_an_arm_that_came_later_is_one_that_was_never_on_offer_before(policy, steps):
    live, waiting = tacit.Learner(policy, seed=5), []
    whole, logged = tacit.Learner(policy.with_arms((*THREE, "new 3", "new 4")), seed=5), []
    for what, number in steps:
        decision = take_step(live, what, number, waiting)
        if decision is not None:
            whole.observe_decisions([decision])
            logged.append(decision)
        elif what == "learn" and logged:
            whole.learn(logged.pop(number % len(logged)), reward_for(live, number))
    mine, its = (learner.lanes.view_all() for learner in (live, whole))
    for (name, array), (_, larger) in zip(leaves(mine), leaves(its), strict=True):
        np.testing.assert_array_equal(array, larger[tuple(map(slice, array.shape))], err_msg=name)
