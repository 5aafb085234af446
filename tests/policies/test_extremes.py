"""What policies are told at the worst: states stay numbers, propensities stay probabilities."""

import itertools
import math

import numpy as np
import pytest

import tacit
from tacit.core import dispatch
from tacit.core.arrays import leaves
from tacit.errors import InvalidValue, UnfitLog
from tacit.learning.estimates import compute_estimates, estimate_from_draws
from tacit.learning.lanes import Offer
from tacit.policies.base import make_outcome, registry

POLICIES = [
    *(kind.example(arms=3, dim=2) for kind in dispatch.list_parts(registry, "policies")),
    tacit.ExplorationFloor(tacit.policies.EXP3(3), epsilon=0.1),
    tacit.policies.baselines.RankedBandit(tacit.policies.EXP3(3), positions=3),
]
every_policy = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.label)
MAY_BE_INFINITE = {"until", "soonest", "weights", "low", "high"}
"""What is never due, log weights of hypotheses that are dropped, sides of a box without points."""
REWARDS = {
    "zeros": lambda i: 0.0,
    "ones": lambda i: 1.0,
    "halves": lambda i: 0.5,
    "in turn": lambda i: float(i % 2),
}


class Told:
    """A policy of one lane whose kernels run as they are, told of decisions made elsewhere."""

    def __init__(self, policy):
        self.policy, self.kind, self.params = policy, type(policy), policy.params
        self.state, self.rng = policy.init(1), np.random.default_rng(1)
        of_arms, context = np.arange(1, 4)[:, None] / 3, np.full(policy.context_dim, 0.5)
        blocks = [np.repeat(of_arms, dim, axis=1) for dim in policy.feature_dims]
        blocks = [block if block.size else np.zeros((0, 0)) for block in blocks]
        self.impression = tacit.Impression(np.arange(3), context, *blocks)
        self.least = (policy.least_share or 1e-6) / 3.0**policy.action_width

    def learn(self, action, reward, propensity=None):
        dispatch.observe(self.params, self.state, 0, self.impression)
        rewards = np.full(self.policy.feedback_width, reward)
        known = self.least if propensity is None else propensity
        told = make_outcome(self.params, self.impression, np.asarray(action), rewards, known)
        self.kind.learn(self.params, self.state, 0, told)

    def decide(self):
        action = np.full(self.policy.action_width, -1)
        dispatch.observe(self.params, self.state, 0, self.impression)
        dispatch.decide(self.params, self.state, 0, self.impression, self.rng, action)
        return action

    def chance(self, action):
        shown = dispatch.shown_in(self.params, action)
        return self.kind.propensity(self.params, self.state, 0, self.impression, shown)

    def check(self):
        """Check that the state is one of numbers, and that propensities are probabilities."""
        for name, array in leaves(self.state):
            assert not np.isnan(array).any(), name
            assert np.isfinite(array).all() or name.rpartition(".")[2] in MAY_BE_INFINITE, name
        chance = self.chance(self.decide())
        if not self.policy.knows_propensity:
            assert math.isnan(chance)
            return
        assert 0.0 < chance <= 1.0
        if self.policy.shows != "slate":
            arms = itertools.product(range(3), repeat=self.policy.action_width)
            chances = list(map(self.chance, map(np.array, arms)))
            # What is never chosen, such as what an index policy ranks below, has 0.
            assert min(chances) >= 0.0
            assert sum(chances) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("rewards", REWARDS)
@every_policy
def test_what_is_decided_elsewhere_and_answered_at_the_extremes_is_learned(policy, rewards):
    told = Told(policy)
    for i in range(30):
        # Each arm in turn, on every place.
        told.learn((i // 3 + np.arange(policy.action_width)) % 3, REWARDS[rewards](i))
    told.check()
    for i in range(5):
        action = told.decide()
        told.learn(action, REWARDS[rewards](i), told.chance(action))
    told.check()


@pytest.mark.parametrize("rewards", ["zeros", "ones", "in turn"])
@every_policy
def test_ten_to_the_nine_rounds_of_one_arm_leave_a_state_of_numbers(policy, rewards):
    """What grows by as much every twenty rounds is set to what it would be after so many."""
    told, course = Told(policy), []
    for i in range(60):
        told.learn(np.arange(policy.action_width), REWARDS[rewards](i))
        if i % 20 == 19:
            course.append([array.astype(np.float64) for _, array in leaves(told.state)])
    for (name, array), *then in zip(leaves(told.state), *course, strict=True):
        if array.dtype.kind != "b" and name.rpartition(".")[2] not in MAY_BE_INFINITE:
            before, step = np.diff(then, axis=0)
            steady = np.abs(step - before) <= 1e-9 * np.abs(step)
            array[steady] = (then[-1] + (1e9 - 60) / 20 * step)[steady]
    for _ in range(3):
        told.check()
        told.learn(told.decide(), REWARDS[rewards](0))
    told.check()


# One that is too small -----------------------------------------------------------------------

WEIGHING = [
    tacit.policies.EXP3(2),
    tacit.policies.baselines.EXP3S(2),
    tacit.ExplorationFloor(tacit.policies.baselines.EXP3S(2), 0.1),
]
weighing = pytest.mark.parametrize("policy", WEIGHING, ids=lambda policy: policy.label)


def recalled(learner, propensities):
    """Learn rows as a fold of the log does, which refuses none."""
    rows = len(propensities)
    made = learner.loops.make_plain_batch(learner.lanes.admit(["a"] * rows), np.zeros((rows, 0)))
    actions, rewards = np.zeros((rows, 1), np.int64), np.ones((rows, 1))
    learner.learn_rows(made, actions, rewards, np.array(propensities), np.zeros(rows, np.int64))


@weighing
def test_an_old_log_with_propensities_that_cannot_be_is_folded_and_learning_goes_on(policy):
    learner = tacit.Learner(policy, seed=1)
    recalled(learner, [1e-6, 5e-324, 0.0, math.nan])
    assert all(np.isfinite(array).all() for _, array in leaves(learner.state))
    for _ in range(300):
        decision = learner.choose("a")
        learner.learn(decision, float(decision.arm == 1))
    assert learner.probabilities("a")[1] > 0.8


@weighing
def test_a_propensity_that_the_policy_cannot_have_given_is_refused_with_the_bound(policy):
    learner = tacit.Learner(policy, seed=1)
    decision = learner.choose("a", arms=[0, 1])
    before = [array.copy() for _, array in leaves(learner.state)]
    least = policy.least_share / 2
    for propensity in (0.0, 1e-6, least * (1 - 1e-6), None):
        wrong = decision._replace(propensity=propensity)
        for given in (wrong, tacit.Decision.from_json(wrong.to_json())):
            with pytest.raises(InvalidValue, match=rf"^propensity: .* at least {least:.6g}"):
                learner.learn(given, 1.0)
            with pytest.raises(InvalidValue, match=r"^propensity: "):
                learner.learn_many([given], [1.0])
    log = {"key": ["a", "b"], "arm": [0, 1], "propensity": [0.5, 1e-6], "reward": [1.0, 1.0]}
    with pytest.raises(UnfitLog, match=r"row 2: propensity: 1e-06 is not allowed; .* at least"):
        learner.fit_log(log, arms=[0, 1])
    for array, then in zip((array for _, array in leaves(learner.state)), before, strict=True):
        np.testing.assert_array_equal(array, then)
    assert learner.learn(decision._replace(propensity=least), 1.0)


def test_policies_that_do_not_weigh_learn_whatever_the_propensity():
    learner = tacit.Learner(tacit.ExplorationFloor(tacit.UCB1(2), 0.5), seed=1)
    assert learner.learn(learner.choose("a")._replace(propensity=1e-6), 1.0)


def test_counts_of_many_millions_keep_their_rates():
    """Single precision adds nothing above 2²⁴: the rarer outcome alone would go on."""
    told = Told(tacit.DriftMixture(3))
    counts = told.state.own.counts[0, 0, 0]
    counts[:] = 1_864_135, 16_777_216
    rates = []
    for _ in range(4):
        rates.append(counts[0] / counts.sum(dtype=np.float64))
        told.learn([0], 0.0)
    assert rates == pytest.approx([0.1] * 4, rel=1e-6)
    assert rates[1] > rates[2] > rates[3]


# What is said of arms ------------------------------------------------------------------------


def estimated(told, confidence):
    """Return what a policy says of its arms; nothing where it believes nothing of them."""
    if hasattr(told.policy, "reward_draws") and any(told.policy.feature_dims):
        drawn = told.policy.reward_draws(told.state, 0, told.impression, told.rng, 200)
        return estimate_from_draws(range(3), drawn, confidence)
    if not hasattr(told.policy, "beliefs"):
        return []
    return compute_estimates(told.policy.beliefs(told.state, 0), np.full(3, math.nan), Offer(3), confidence)


@pytest.mark.parametrize("confidence", [0.1, 0.95, 0.999])
@every_policy
def test_an_interval_holds_the_mean_and_nothing_said_is_nan(policy, confidence):
    rng = np.random.default_rng(int(1000 * confidence))
    told = Told(policy)
    for part in (rng.random(8), rng.integers(0, 2, 12), np.zeros(5), np.ones(20)):
        for reward in part:
            # The last arm is never shown alone.
            told.learn((rng.integers(2) + np.arange(policy.action_width)) % 3, float(reward))
        found = estimated(told, confidence)
        for each in found:
            assert each.mean is None or 0.0 <= each.low <= each.mean <= each.high
            assert each.high <= 1.0 or any(policy.feature_dims)  # a linear model has no bounds
        assert "nan" not in str(found)
        assert not any(value != value for row in found for value in row)


@pytest.mark.parametrize(
    "policy",
    [
        tacit.policies.baselines.SlidingWindowUCB(2, window=10),
        tacit.Thompson(2, discount=0.5),
        tacit.DriftMixture(2),
    ],
    ids=lambda policy: policy.label,
)
def test_plays_are_told_ever_and_as_they_count_now(policy, tmp_path):
    learner, shown = tacit.Learner(policy, seed=1), np.zeros(2, int)
    for i in range(300):
        decision = learner.choose("a")
        learner.learn(decision, float(decision.arm == i // 150))
        shown[decision.arm] += 1
    for each in (learner, tacit.Learner.load(saved(learner, tmp_path))):
        found = each.estimates("a")
        assert [arm.plays for arm in found] == shown.tolist()
        assert 0 < sum(arm.plays_now for arm in found) < 200
        assert str(found).splitlines()[0].split() == (
            ["arm", "plays", "count", "now", "mean", "95", "%", "best"]
        )
    learner.add_arms(1)
    decision = learner.choose("a", arms=[2])
    learner.learn_many([decision], [1.0])
    new, log = (tacit.Learner(policy, seed=1), {"key": ["a"] * 3, "arm": [0, 1, 1], "reward": [0, 1, 1]})
    new.fit_log(log, arms=[0, 1])
    assert [arm.plays for arm in learner.estimates("a")] == [*shown, 1]
    assert [arm.plays for arm in new.estimates("a")] == [1, 2]


def test_what_was_never_shown_has_no_mean_and_what_was_not_counted_no_plays():
    learner = tacit.Learner(tacit.UCB1(["film", "holiday"]), seed=1)
    learner.learn(learner.choose("a", arms=["film"]), 1.0)
    film, holiday = found = learner.estimates("a")
    assert (film.plays, film.mean, film.high) == (1, 1.0, 1.0)
    assert (holiday.plays, holiday.plays_now, holiday.mean) == (0, 0.0, None)
    assert str(found).splitlines()[2].split()[:4] == ["holiday", "0", "0", "–"]


def test_plays_of_which_the_first_were_not_counted_are_not_known(tmp_path):
    """As files that 0.3 saved may have them, after it read a learner of an earlier version."""
    learner = tacit.Learner(tacit.Thompson(2, discount=0.5), seed=1)
    learner.learn(learner.choose("a"), 1.0)
    learner.lanes.plays -= 2**62
    for each in (learner, tacit.Learner.load(saved(learner, tmp_path))):
        assert {arm.plays for arm in each.estimates("a")} == {None}
        assert "  –" in str(each.estimates("a"))


def saved(learner, folder):
    learner.save(folder / "learner.tacit")
    return folder / "learner.tacit"
