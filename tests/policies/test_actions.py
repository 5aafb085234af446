"""What may be shown: an arm, a duel, a slate; and arms that are known by their features."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

import tacit
from tacit.errors import InvalidValue, UnknownName
from tests.policies.states import assert_same_states

pytestmark = pytest.mark.interpreted


@dataclass(frozen=True)
class RandomDuel(tacit.policies.DuelPolicy):
    """Any two arms, counting the wins of the left and the right one."""

    class Params(NamedTuple):
        pass

    class State(NamedTuple):
        wins: np.ndarray

    def init(self, lanes):
        return self.State(np.zeros((lanes, self.arm_count)))

    @staticmethod
    def choose(params, state, lane, impression, rng):
        arms = impression.arms
        return arms[int(rng.random() * len(arms))], arms[int(rng.random() * len(arms))]

    @staticmethod
    def propensity(params, state, lane, impression, pair):
        return 1.0 / len(impression.arms) ** 2 if pair[0] >= pair[1] else 1.0 / 3.0

    @staticmethod
    def learn(params, state, lane, outcome):
        state.wins[lane, outcome.shown[0]] += outcome.reward
        state.wins[lane, outcome.shown[1]] += 1.0 - outcome.reward


@dataclass(frozen=True)
class InOrder(tacit.policies.SlatePolicy):
    """The first arms on offer, counting the clicks of each arm."""

    class Params(NamedTuple):
        pass

    class State(NamedTuple):
        clicks: np.ndarray

    positions: int = 2

    def init(self, lanes):
        return self.State(np.zeros((lanes, self.arm_count)))

    @staticmethod
    def decide(params, state, lane, impression, rng, action):
        action[:] = -1
        for i in range(min(len(action), len(impression.arms))):
            action[i] = impression.arms[i]

    @staticmethod
    def learn(params, state, lane, outcome):
        action = outcome.shown
        for i in range(len(action)):
            if action[i] >= 0:
                state.clicks[lane, action[i]] += outcome.reward[i]


@dataclass(frozen=True)
class LargestFeature(tacit.policies.FeaturePolicy):
    """The arm with the largest sum of features, adding up what it has learned from."""

    class Params(NamedTuple):
        pass

    class State(NamedTuple):
        seen: np.ndarray

    @property
    def feature_dims(self):
        return 2, 1

    def init(self, lanes):
        return self.State(np.zeros((lanes, 2)))

    @staticmethod
    def choose(params, state, lane, impression, rng):
        best, leader = -np.inf, -1
        for i in range(len(impression.arms)):
            score = impression.relevance[i].sum() + impression.examination[i].sum()
            if score > best:
                best, leader = score, impression.arms[i]
        return leader

    @staticmethod
    def propensity(params, state, lane, impression, arm):
        return 1.0

    @staticmethod
    def learn(params, state, lane, outcome):
        for d in range(state.seen.shape[1]):
            state.seen[lane, d] += outcome.reward * outcome.impression.relevance[outcome.shown, d]

    def posterior(self, state, lane):
        return state.seen[lane].copy()


@dataclass(frozen=True)
class FairDuels(tacit.environments.DuelEnvironment):
    """Arm 0 beats all others with probability 0.75."""

    class Params(NamedTuple):
        pass

    class World(NamedTuple):
        impression: tacit.Impression
        uniform: np.ndarray

    @property
    def arm_count(self):
        return 3

    def world(self, rng, horizon):
        return self.World(tacit.Impression(np.arange(3), np.zeros(0)), np.zeros(1))

    @staticmethod
    def arrive(params, world, round, rng):
        world.uniform[0] = rng.random()
        return 0

    @staticmethod
    def respond(params, world, lane, pair):
        left = 0.25 * (pair[0] == 0) - 0.25 * (pair[1] == 0) + 0.5
        return 1.0 if world.uniform[0] < left else 0.0

    @staticmethod
    def expected(params, world, lane, pair):
        return 0.125 * ((pair[0] == 0) + (pair[1] == 0))

    @staticmethod
    def optimum(params, world, lane):
        return 0.25


def test_a_duel_names_both_arms_and_learns_who_won():
    learner = tacit.Learner(RandomDuel(arms=["a", "b", "c"]), seed=1)
    decisions = [learner.choose("query") for _ in range(40)]
    for decision in decisions:
        left, right = decision.pair
        assert {left, right} <= {"a", "b", "c"}
        expected = 1 / 9 if decision.slots[0] >= decision.slots[1] else 1 / 3
        assert decision.propensity == pytest.approx(expected)
    assert any(left != right for left, right in (d.pair for d in decisions))
    decision = next(d for d in decisions if d.pair == ("a", "b"))
    assert learner.learn(decision, 1.0)
    assert learner.learn(decision, 0.5)
    assert learner.learn(decision, 0.0)
    assert learner.state.wins[0].tolist() == [1.5, 1.5, 0.0]


@pytest.mark.compiled
def test_duels_are_simulated_with_their_regret():
    result = tacit.simulate(RandomDuel(arms=3), FairDuels(), 30_000, runs=4, seed=1)
    # Each side misses arm 0 two times in three: 2/3 of 0.25. Five standard errors are 0.004.
    np.testing.assert_allclose(result.regret[0, :, -1] / 30_000, 2 / 3 * 0.25, atol=0.004)


def test_a_late_duel_learns_the_same_in_another_order():
    now, late = (
        tacit.simulate(RandomDuel(arms=3), FairDuels(delay=delay), 500, runs=1, seed=1) for delay in (0, 7)
    )
    assert now.reward[0, 0, -1] == late.reward[0, 0, -1]


def test_a_slate_shows_several_arms_and_learns_each_position():
    learner = tacit.Learner(InOrder(arms=["a", "b", "c"], positions=2), seed=1)
    decision = learner.choose("query")
    assert decision.slate == ("a", "b")
    assert decision.propensity is None
    learner.learn(decision, [0.0, 1.0])
    short = learner.choose("query", arms=["c"])
    assert short.slate == ("c",)
    assert short.slots.tolist() == [2, -1]
    learner.learn(short, [1.0, 0.0])
    assert learner.state.clicks[0].tolist() == [0.0, 1.0, 1.0]
    learner.learn_many(learner.choose_many(["query", "other"]), [[1.0, 0.0], [0.0, 0.5]])
    assert learner.state.clicks[:2].tolist() == [[1.0, 1.0, 1.0], [0.0, 0.5, 0.0]]


@pytest.mark.parametrize("reward", [1.0, [1.0], [1.0, 2.0], [1.0, None], [1.0, float("nan")]])
def test_a_slate_refuses_feedback_that_does_not_fit(reward):
    learner = tacit.Learner(InOrder(arms=3), seed=1)
    decision = learner.choose("query")
    with pytest.raises(InvalidValue, match="reward"):
        learner.learn(decision, reward)
    assert learner.state.clicks.sum() == 0.0


def test_arms_may_be_known_by_their_features():
    learner = tacit.Learner(LargestFeature(), seed=1)
    relevance = [[0.1, 0.2], [0.9, 0.1], [0.3, 0.3]]
    examination = [[0.0], [0.1], [0.9]]
    decision = learner.choose("user", relevance=relevance, examination=examination)
    assert (decision.arm, decision.propensity) == (2, 1.0)
    named = learner.choose("user", arms=list("pqr"), relevance=relevance, examination=examination)
    assert named.arm == "r"
    learner.learn(decision, 1.0)
    learner.learn(named, 0.5)
    np.testing.assert_allclose(learner.posterior("user"), [0.45, 0.45])


def test_features_of_many_impressions_may_differ_in_number():
    learner = tacit.Learner(LargestFeature(), seed=1)
    decisions = learner.choose_many(
        ["u", "v"], relevance=[[[1.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]], examination=[[[0.0]], [[0.0], [0.0]]]
    )
    assert decisions.arms == [0, 1]
    learner.learn_many(decisions, [1.0, 1.0])
    assert learner.state.seen[:2].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    again = tacit.Learner(LargestFeature(), seed=1)
    again.observe_decisions(list(decisions))
    again.learn_many(list(decisions), [1.0, 1.0])
    assert_same_states(learner.state, again.state)


GOOD = {"relevance": [[1.0, 2.0]], "examination": [[1.0]]}


@pytest.mark.parametrize(
    "wrong",
    [
        {"relevance": None},
        {"relevance": [1.0, 2.0]},
        {"relevance": [[1.0]]},
        {"relevance": [[1.0, float("inf")]]},
        {"relevance": []},
        {"relevance": "features"},
        {"examination": [[1.0], [1.0]]},
        {"arms": ["a", "b"]},
    ],
)
def test_features_that_do_not_fit_are_refused(wrong):
    learner = tacit.Learner(LargestFeature(), seed=1)
    with pytest.raises(InvalidValue, match=next(iter(wrong))):
        learner.choose("user", **(GOOD | wrong))
    assert (learner.keys, learner.decisions) == ([], 0)


def test_what_a_policy_lacks_is_said():
    learner = tacit.Learner(tacit.UCB1(arms=2), seed=1)
    learner.choose("query")
    with pytest.raises(UnknownName, match="UCB1 has none"):
        learner.posterior("query")
    with pytest.raises(InvalidValue, match="features"):
        tacit.Learner(LargestFeature(), seed=1).add_arm("new")
