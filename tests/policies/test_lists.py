"""Lists: cascading bandits, ranked bandits, and the cascade model of clicks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import pytest

import tacit
from tacit.core.arrays import leaves
from tacit.core.dispatch import list_parts
from tacit.environments import environment_from_spec
from tacit.policies import Counts, policy_from_spec
from tacit.policies.base import registry
from tests.policies.states import assert_frequencies, learn

# Lists of what is known by features are in test_contextual_cascade.py.
KINDS = [
    kind
    for kind in list_parts(registry, "policies.lists")
    if issubclass(kind, tacit.policies.SlatePolicy) and not issubclass(kind, tacit.policies.FeaturePolicy)
]
POLICIES = [kind.example(5) for kind in KINDS]
by_label = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.label)
ATTRACTION = [0.5, 0.1, 0.3, 0.4, 0.05]


def everyone(arms):
    return tacit.Impression(np.arange(arms), np.zeros(0))


def read(slate, rng):
    """Return the feedback of a reader under the cascade model."""
    feedback = [0.0] * len(slate)
    for k, arm in enumerate(slate):
        if rng.random() < ATTRACTION[arm]:
            feedback[k] = 1.0
            break
    return feedback


@by_label
def test_a_list_shows_distinct_arms_on_offer(policy):
    learner = tacit.Learner(policy, seed=2)
    rng = np.random.default_rng(1)
    for offered in ([0, 1, 2, 3, 4], [4, 2, 0], [3, 1], [2]):
        for _ in range(60):
            decision = learner.choose("query", arms=offered)
            assert len(set(decision.slate)) == min(3, len(offered)) == len(decision.slate)
            assert set(decision.slate) <= set(offered)
            assert (decision.propensity is None) == (not policy.knows_propensity)
            learner.learn(decision, read(decision.slate, rng) + [0.0] * (3 - len(decision.slate)))
    learner.add_arm()
    assert any(5 in learner.choose("query").slate for _ in range(200))


@by_label
def test_keys_learn_apart_and_many_keys_fit(policy):
    """Positions have lanes of their own inside a key, also after the table of keys has grown."""
    alone, among = tacit.Learner(policy, seed=1), tacit.Learner(policy, seed=1)
    first = [learner.choose("a") for learner in (alone, among)]
    for learner, decision in zip((alone, among), first, strict=True):
        learner.learn(decision, [0.0, 1.0, 0.0])
    for i in range(50):
        among.learn(among.choose(f"key {i}"), [1.0, 0.0, 0.0])
    lane = among.lane("a")
    for (name, one), (_, other) in zip(leaves(alone.state), leaves(among.state), strict=True):
        rows = 3 if name.startswith("policy.") else 1
        here = slice(lane * rows, (lane + 1) * rows)
        np.testing.assert_array_equal(one[:rows], other[here], err_msg=name)


def test_late_feedback_is_learned():
    policy = tacit.policies.CascadeUCB1(5, positions=3)
    environment = tacit.environments.CascadeArms(ATTRACTION, positions=3, delay=(0, 5), batch=3)
    result = tacit.simulate(policy, environment, 3000, runs=3, seed=2)
    assert np.isfinite(result.regret).all()
    assert (np.diff(result.regret[0], axis=1) >= -1e-9).all()


@by_label
def test_regret_stays_below_random_lists(policy):
    """At most half the regret of random lists, over 20 000 rounds of 4 runs."""
    environment = tacit.environments.CascadeArms(ATTRACTION, positions=3)
    result = tacit.simulate(policy, environment, 20_000, runs=4, seed=4)
    lists = np.array([[a, b, c] for a in range(5) for b in range(5) for c in range(5) if len({a, b, c}) == 3])
    clicks = 1 - np.prod(1 - np.array(ATTRACTION)[lists], axis=1)
    random = clicks.max() - clicks.mean()
    assert result.regret[0, :, -1].mean() < 0.5 * random * 20_000


# Cases worked by hand -------------------------------------------------------------------------


def test_the_cascade_teaches_what_was_read():
    policy = tacit.policies.CascadeUCB1(4, positions=3)
    state = policy.init(1)

    def update(action, feedback):
        slots = np.array(action)
        learn(policy, state, 0, everyone(4), slots, feedback)

    update([2, 0, 1], [0.0, 1.0, 0.0])
    assert state.counts.plays[0].tolist() == [1, 0, 1, 0]
    assert state.counts.rewards[0].tolist() == [1, 0, 0, 0]
    update([3, 1, 0], [0.0, 0.0, 0.0])
    assert state.counts.plays[0].tolist() == [2, 1, 1, 1]
    update([1, -1, -1], [1.0, 0.0, 0.0])
    assert state.counts.plays[0].tolist() == [2, 2, 1, 1]
    assert state.counts.rewards[0].tolist() == [1, 1, 0, 0]
    assert state.counts.rounds[0] == 3


def test_cascade_indices_by_hand():
    # List t = 5; arm 0 was read 3 times with 2 clicks.
    counts = Counts(np.array([[3.0, 0.0]]), np.array([[2.0, 0.0]]), np.array([4.0]))
    ucb, kl = tacit.policies.CascadeUCB1(2, positions=1), tacit.policies.CascadeKLUCB(2, positions=1)
    state = ucb.init(1)._replace(counts=counts)
    shared = ucb.confidence(ucb.params, state, 0)
    assert ucb.index(ucb.params, state, 0, 0, shared) == pytest.approx(
        2 / 3 + math.sqrt(1.5 * math.log(5) / 3)
    )
    assert ucb.index(ucb.params, state, 0, 1, shared) == math.inf
    budget = kl.confidence(kl.params, state, 0)
    assert budget == pytest.approx(math.log(5) + 3 * math.log(math.log(5)))
    q = kl.index(kl.params, state, 0, 0, budget)
    divergence = 2 / 3 * math.log(2 / 3 / q) + 1 / 3 * math.log(1 / 3 / (1 - q))
    assert 3 * divergence == pytest.approx(budget, rel=1e-6)


def settled(policy):
    """Return a ranked bandit's state in which both positions' bandits choose arm 0."""
    state = policy.init(1)
    state.policy.plays[:] = 1000.0
    state.policy.rewards[:, 0] = 900.0
    state.policy.rounds[:] = 3000.0
    return state


def test_a_bandit_whose_choice_is_shown_above_gets_nothing_for_it():
    policy = tacit.policies.baselines.RankedBandit(tacit.UCB1(3), positions=2)
    state, rng, action = settled(policy), np.random.default_rng(1), np.zeros(2, np.int64)
    policy.decide(policy.params, state, 0, everyone(3), rng, action)
    assert action[0] == 0
    assert action[1] in (1, 2)
    learn(policy, state, 0, everyone(3), action, [0.0, 1.0])
    # The click on the second position was on the arm drawn in its place: both bandits have a
    # play of arm 0 without reward, and nobody has learned of the other arm.
    assert state.policy.plays.tolist() == [[1001, 1000, 1000]] * 2
    assert state.policy.rewards.tolist() == [[900, 0, 0]] * 2
    # The replacement is forgotten: the same list again is taken for the bandits' own choice.
    learn(policy, state, 0, everyone(3), action, [0.0, 1.0])
    assert state.policy.plays[1, action[1]] == 1001
    assert state.policy.rewards[1, action[1]] == 1


def test_replacements_are_remembered_until_their_feedback_comes():
    policy = tacit.policies.baselines.RankedBandit(tacit.UCB1(9), positions=3)
    state, rng = settled(policy), np.random.default_rng(1)
    actions = []
    for _ in range(16):
        action = np.zeros(3, np.int64)
        policy.decide(policy.params, state, 0, everyone(9), rng, action)
        actions.append(action)
    clicked = np.array([0.0, 1.0, 1.0])
    for action in reversed(actions):
        learn(policy, state, 0, everyone(9), action, clicked)
    assert state.policy.plays[:, 0].tolist() == [1016] * 3
    assert state.policy.rewards.sum() == 3 * 900
    assert (state.shown == -1).all()


def test_a_bandit_that_learns_from_propensities_gets_those_of_its_own_choice():
    # EXP3 with γ = 1/2 over two arms: a first reward adds γ·1/(1/2)/2 = 1/2 to the log weight, of
    # the bandit of the position that was clicked.
    policy = tacit.policies.baselines.RankedBandit(tacit.policies.EXP3(2, gamma=0.5), positions=2)
    state = policy.init(1)
    action, feedback = np.array([1, 0]), np.array([0.0, 1.0])
    learn(policy, state, 0, everyone(2), action, feedback)
    np.testing.assert_allclose(state.policy.logs, [[0.0, 0.0], [0.5, 0.0]])


@dataclass(frozen=True)
class TwoKindsOfReaders(tacit.environments.Environment):
    """Six in ten readers click arm 0 or 2, whichever is first; the others click arm 1."""

    takes: ClassVar[str] = "slate"

    class Params(NamedTuple):
        pass

    class World(NamedTuple):
        impression: tacit.Impression
        uniform: np.ndarray

    @property
    def arm_count(self):
        return 4

    @property
    def action_width(self):
        return 2

    def world(self, rng, horizon):
        return self.World(everyone(4), np.zeros(1))

    @staticmethod
    def arrive(params, world, round, rng):
        world.uniform[0] = rng.random()
        return 0

    @staticmethod
    def react(params, world, lane, action, feedback):
        feedback[:] = 0.0
        for k in range(len(action)):
            likes = action[k] in (0, 2) if world.uniform[0] < 0.6 else action[k] == 1
            if likes:
                feedback[k] = 1.0
                break

    @staticmethod
    def regret(params, world, lane, action):
        served = 0.0
        if action[0] in (0, 2) or action[1] in (0, 2):
            served += 0.6
        if action[0] == 1 or action[1] == 1:
            served += 0.4
        return 1.0 - served


def test_ranked_bandits_serve_both_kinds_of_readers():
    """Ranking by popularity alone shows arms 0 and 2 and loses 0.4 a round."""
    policy = tacit.policies.baselines.RankedBandit(tacit.UCB1(4), positions=2)
    result = tacit.simulate(policy, TwoKindsOfReaders(), 20_000, runs=4, seed=1)
    assert (result.regret[0, :, -1] < 0.05 * 20_000).all()


# The environment ------------------------------------------------------------------------------


def test_readers_stop_at_the_first_arm_that_attracts():
    environment = tacit.environments.CascadeArms(ATTRACTION, positions=3)
    world = environment.world(np.random.default_rng(0), 1)
    cls, params, feedback = type(environment), environment.params, np.zeros(3)
    world.uniforms[:] = [0.6, 0.05, 0.2, 0.2, 0.9]  # arms 1, 2 and 3 attract
    for action, clicks in [([0, 3, 2], [0, 1, 0]), ([1, 2, 3], [1, 0, 0]), ([4, 0, -1], [0, 0, 0])]:
        cls.react(params, world, 0, np.array(action), feedback)
        assert feedback.tolist() == clicks
    # The best list, 0, 3 and 2 in any order: 1 − 0.5·0.6·0.7 = 0.79.
    assert cls.regret(params, world, 0, np.array([2, 0, 3])) == pytest.approx(0.0, abs=1e-12)
    # 1 − 0.9·0.95·0.5 = 0.5725.
    assert cls.regret(params, world, 0, np.array([1, 4, 0])) == pytest.approx(0.79 - 0.5725)
    assert cls.regret(params, world, 0, np.array([0, -1, -1])) == pytest.approx(0.29)


def test_arms_attract_as_often_as_told():
    """Five counts of 20 000 at 5.1 sigma."""
    environment = tacit.environments.CascadeArms(ATTRACTION, positions=1)
    world = environment.world(np.random.default_rng(0), 1)
    rng, seen = np.random.default_rng(5), np.zeros(5)
    for _ in range(20_000):
        environment.arrive(environment.params, world, 0, rng)
        seen += world.uniforms < world.attraction
    assert_frequencies(seen, 20_000, ATTRACTION)


def test_lists_can_be_told_as_text():
    policy = policy_from_spec("ranked-bandit(thompson(discount=0.99), positions=4)", arms=6)
    assert policy == tacit.policies.baselines.RankedBandit(tacit.Thompson(6, discount=0.99), positions=4)
    assert environment_from_spec("cascade-arms([0.1, 0.2, 0.3], positions=2)").action_width == 2
