"""ContextMixture: beside plain float64, propensities, measures of contexts, shifts, arms that come."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

import tacit
from tacit.core.arrays import leaves
from tacit.policies.features.context_inputs import BUFFER_SIZE, LEADING
from tacit.policies.features.context_mixture import fill_lines
from tacit.policies.features.context_models import FULL, HYPOTHESES, NO_EFFECT, RECENT, SCALES
from tacit.policies.features.context_weights import BEHIND, DROPPED, WIDTH
from tacit.policies.index import envelope_share
from tests.policies.states import chances_of

ARMS = 3


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def clicks(contexts, rng, arms=ARMS, slope=2.0):
    """Return for each context what each arm would get, by logits that are linear in it."""
    weights = rng.standard_normal((contexts.shape[1], arms)) * slope / math.sqrt(contexts.shape[1])
    return (rng.random((len(contexts), arms)) < sigmoid(contexts @ weights - 0.5)).astype(float)


def played(policy, contexts, rewards, seed=1, key="all"):
    """Return a learner that has played a stream, and its decisions."""
    learner = tacit.Learner(policy, seed=seed)
    return learner, go_on(learner, contexts, rewards, key)


def go_on(learner, contexts, rewards, key="all"):
    made = []
    for context, row in zip(contexts, rewards, strict=True):
        decision = learner.choose(key, context=context)
        learner.learn(decision, row[decision.slot])
        made.append(decision)
    return made


def state_bytes(learner):
    return [array.tobytes() for _, array in leaves(learner.state)]


def lines_of(learner, context):
    """Return what the kernel says of each arm: mean and deviation of its score."""
    impression = tacit.Impression(np.arange(learner.policy.arm_count), np.asarray(context, float))
    fill_lines(learner.policy.params, learner.state, 0, impression)
    found = learner.state.room.lines[0].copy()
    type(learner.policy).propensity(learner.policy.params, learner.state, 0, impression, 0)
    return found


def chances(learner, context):
    """Return the propensities of all arms."""
    impression = tacit.Impression(np.arange(learner.policy.arm_count), np.asarray(context, float))
    return chances_of(learner.policy, learner.state, impression)


# Beside plain float64 ---------------------------------------------------------------------------


def test_the_first_reward_by_hand():
    """Before the first measurement nothing but the constant counts: N(0, 1 + 2 + 2), as ½ clicks and
    ½ misses say, under each hypothesis."""
    learner = tacit.Learner(tacit.ContextMixture(2, context_dim=2), seed=1)
    decision = learner.choose("all", context=[3.0, 4.0])
    learner.learn(decision, 1.0)
    mode = brentq(lambda x: x - 5 * (1 - sigmoid(x)), 0, 5)
    precision = sigmoid(mode) * (1 - sigmoid(mode))
    models = learner.state.models
    shown, other = decision.slot, 1 - decision.slot
    np.testing.assert_allclose(models.mean[0, shown, :, 0], mode, rtol=1e-6)
    np.testing.assert_allclose(models.spread[0, shown, :, 0], 1 / (1 / 5 + precision), rtol=1e-6)
    np.testing.assert_allclose(models.narrow[0, shown, 0], 1 / (1 / 5 + precision), rtol=1e-6)
    np.testing.assert_array_equal(models.met[0, :, 0], [arm == shown for arm in range(2)])
    np.testing.assert_allclose(learner.state.tally.weights[0], 0.25)
    # Of the other arm 1½ clicks and ½ a miss are expected.
    known, unknown = lines_of(learner, [0.0, 0.0])[[shown, other]]
    np.testing.assert_allclose(unknown, [math.log(3), WIDTH * math.sqrt(1 + 2 / 3 + 2)], rtol=1e-6)
    np.testing.assert_allclose(known, [mode, WIDTH / math.sqrt(1 / 5 + precision)], rtol=1e-6)


class Plain:
    """The same in float64, with dense matrices, for contexts of at most 22 numbers."""

    def __init__(self, arms, dim):
        self.arms, self.dim = arms, dim
        self.mean, self.scale = np.zeros(dim), np.full(dim, np.inf)
        self.kept = []
        self.forget()

    def forget(self):
        width = 1 + self.dim
        prior = [np.diag([1.0] + [scale**2 / self.dim] * self.dim) for scale in SCALES]
        self.prior = prior
        self.theta = np.zeros((self.arms, HYPOTHESES, width))
        self.cov = np.array([[p.copy() for p in prior] for _ in range(self.arms)])
        self.met = np.zeros((self.arms, HYPOTHESES), bool)
        self.weights = np.full(HYPOTHESES, 1 / HYPOTHESES)
        self.rounds = self.clicks = self.age = 0

    def features(self, context):
        return np.concatenate([[1.0], np.clip((np.asarray(context) - self.mean) / self.scale, -5, 5)])

    def base(self):
        clicks, misses = self.clicks + 0.5, self.rounds - self.clicks + 0.5
        return math.log(clicks / misses), 1 + 1 / clicks + 1 / misses

    def learn(self, context, arm, reward):
        if len(self.kept) < BUFFER_SIZE:
            self.kept.append((context, arm, reward))
            if len(self.kept) in (8, 16, 32, 64, 128):
                rows = np.array([row for row, *_ in self.kept])
                self.mean = rows.mean(axis=0)
                far = np.abs(rows - self.mean).max(axis=0)
                scale = np.maximum(rows.std(axis=0), far / 3)
                self.scale = np.where(scale > 0, scale, np.inf)
                self.forget()
                for event in self.kept:
                    self.take_in(*event)
                return
        self.take_in(context, arm, reward)

    def take_in(self, context, arm, reward):
        x, base = self.features(context), self.base()
        for h in range(HYPOTHESES):
            cov, theta = self.cov[arm, h], self.theta[arm, h]
            if not self.met[arm, h]:
                theta[0], cov[0, 0] = base
                self.met[arm, h] = True
            along = cov @ x
            logit, s = theta @ x, x @ along
            mode = brentq(lambda a, b=logit, v=s: a - b - v * (reward - sigmoid(a)), logit - s, logit + s)
            precision = sigmoid(mode) * (1 - sigmoid(mode))
            theta += (reward - sigmoid(mode)) * along
            cov -= precision / (1 + precision * s) * np.outer(along, along)
            if h == NO_EFFECT:
                cov[:] = np.diag(np.diag(cov))
            chance = sigmoid(logit / math.sqrt(1 + math.pi * s / 8))
            self.weights[h] *= chance**reward * (1 - chance) ** (1 - reward)
        self.rounds, self.clicks, self.age = self.rounds + 1, self.clicks + reward, self.age + 1
        share = 1 / (self.rounds + 1)
        self.weights = (1 - share) * self.weights / self.weights.sum() + share / HYPOTHESES
        self.begin_recent()

    def begin_recent(self):
        others = max(np.delete(self.weights, RECENT))
        ahead = self.age >= 50 and others <= BEHIND * self.weights[RECENT]
        if not ahead and self.age < max(200, self.rounds / 5):
            return
        if ahead:
            self.theta[:] = self.theta[:, RECENT : RECENT + 1]
            self.cov[:] = self.cov[:, RECENT : RECENT + 1]
            self.met[:] = self.met[:, RECENT : RECENT + 1]
            for cov in self.cov[:, NO_EFFECT]:
                cov[:] = np.diag(np.diag(cov))
            self.weights[:] = 1.0
        self.weights[RECENT] = BEHIND * max(self.weights)
        self.weights /= self.weights.sum()
        self.theta[:, RECENT], self.met[:, RECENT], self.age = 0.0, False, 0
        self.cov[:, RECENT] = self.prior[RECENT]

    def lines(self, context):
        x, (base, doubt) = self.features(context), self.base()
        logits = self.theta @ x + base * ~self.met
        variances = np.einsum("i,ahij,j->ah", x, self.cov, x) + (doubt - 1) * ~self.met
        weights = np.where(self.weights >= DROPPED * self.weights.max(), self.weights, 0.0)
        weights /= weights.sum()
        means = logits @ weights
        return np.column_stack([means, WIDTH * np.sqrt((variances + logits**2) @ weights - means**2)])


def test_it_is_what_plain_float64_makes_of_the_same_events():
    rng = np.random.default_rng(3)
    contexts = rng.standard_normal((1500, 4)) * [1, 100, 0.01, 1] + [0, 1e4, 0, 5]
    contexts[:, 3] = 5.0
    rewards = clicks((contexts - [0, 1e4, 0, 5]) / [1, 100, 0.01, 1], rng)
    rewards[900:] = 1 - rewards[900:]
    learner = tacit.Learner(tacit.ContextMixture(ARMS, context_dim=4), seed=1)
    plain, adopted = Plain(ARMS, 4), 0
    for round, (context, row) in enumerate(zip(contexts, rewards, strict=True)):
        decision = learner.choose("all", context=context)
        if round % 10 == 0:
            expected = plain.lines(context)
            np.testing.assert_allclose(lines_of(learner, context), expected, rtol=2e-3, atol=2e-3)
        learner.learn(decision, row[decision.slot])
        before = plain.age
        plain.learn(context, decision.slot, row[decision.slot])
        adopted += round > 900 and plain.age < before and before < round / 5
    assert adopted
    np.testing.assert_allclose(learner.state.tally.weights[0], plain.weights, rtol=1e-2, atol=1e-4)


# Propensities -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [3, 30])
def test_propensities_are_what_the_draw_says_and_add_up_to_one(dim):
    rng = np.random.default_rng(dim)
    contexts = rng.standard_normal((150, dim))
    learner, _ = played(tacit.ContextMixture(6, context_dim=dim), contexts, clicks(contexts, rng, 6))
    z = stats.norm.ppf(0.5 + 0.5 * (np.arange(20_000) + 0.5) / 20_000)
    for context in contexts[:40]:
        told, lines = chances(learner, context), lines_of(learner, context)
        assert abs(told.sum() - 1) <= 1e-12
        best = np.argmax(lines[:, :1] + lines[:, 1:] * z, axis=0)
        np.testing.assert_allclose(told, np.bincount(best, minlength=6) / len(z), atol=2e-4)


def test_shares_of_any_lines_add_up_to_one():
    """Lines through one point, lines alike, and lines that differ by rounding only."""
    rng = np.random.default_rng(5)
    for count in (1, 2, 7, 50):
        for _ in range(50):
            slopes = np.abs(rng.standard_normal(count))
            lines = np.column_stack([1.0 - slopes, slopes])
            lines[rng.integers(count)] = lines[0]
            lines[rng.integers(count)] *= 1 + 2e-16
            shares = [envelope_share(lines, count, place) for place in range(count)]
            assert abs(sum(shares) - 1) <= 1e-12
            assert min(shares) >= 0
    assert envelope_share(np.array([[0.0, 1.0], [0.0, 1.0], [-1.0, 1.0]]), 3, 1) == 0.5


# How contexts are measured ----------------------------------------------------------------------


@pytest.mark.parametrize("dim", [3, 25])
def test_units_and_offsets_say_nothing(dim):
    rng = np.random.default_rng(4)
    contexts = np.round(rng.standard_normal((400, dim)) * 64) / 64
    rewards = clicks(contexts, rng)
    policy = tacit.ContextMixture(ARMS, context_dim=dim)
    _, plain = played(policy, contexts, rewards)
    sizes = 2.0 ** rng.integers(-20, 20, dim)
    _, other = played(policy, (contexts + 1024) * sizes, rewards)
    assert [decision.slot for decision in plain] == [decision.slot for decision in other]
    np.testing.assert_allclose(*([d.propensity for d in made] for made in (plain, other)), atol=1e-6)


def test_the_directions_are_those_in_which_contexts_differ_most():
    rng = np.random.default_rng(6)
    dim = 40
    contexts = rng.standard_normal((BUFFER_SIZE, 5)) @ rng.standard_normal((5, dim))
    contexts += 0.05 * rng.standard_normal(contexts.shape)
    learner, _ = played(tacit.ContextMixture(2, context_dim=dim), contexts, clicks(contexts, rng, 2))
    measure = learner.state.measure
    directions = measure.directions[0].astype(float)
    np.testing.assert_allclose(directions @ directions.T, np.eye(LEADING), atol=1e-5)
    leading = np.linalg.svd(np.clip((contexts - measure.mean[0]) * measure.factor[0], -5, 5))[2][:5]
    assert np.linalg.svd(leading @ directions.T, compute_uv=False).min() > 0.999


@pytest.mark.parametrize("dim", [3, 30])
def test_a_number_that_begins_to_change_late_is_read(dim):
    """A category that nobody was in at first."""
    rng = np.random.default_rng(9)
    contexts = rng.standard_normal((1500, dim))
    contexts[:, 1] = np.arange(1500) > 500 + 500 * rng.random(1500)
    best = contexts[:, 1].astype(int)
    _, made = played(tacit.ContextMixture(2, context_dim=dim), contexts, np.eye(2)[best])
    right = np.array([decision.slot == arm for decision, arm in zip(made, best, strict=True)])
    assert right[800:1000].mean() > 0.8


# What is learned --------------------------------------------------------------------------------


def test_it_learns_who_likes_what():
    contexts = np.random.default_rng(11).standard_normal((1200, 3)) * [1, 30, 1] + [0, 40, 0]
    best = (contexts @ [[1, 0, -1], [0.05, -0.05, 0], [0, 1, 1]] - [2, -2, 0]).argmax(axis=1)
    _, made = played(tacit.ContextMixture(ARMS, context_dim=3), contexts, np.eye(ARMS)[best])
    assert np.mean([decision.slot == arm for decision, arm in zip(made, best, strict=True)][600:]) > 0.85


def test_a_context_that_says_nothing_is_found_out():
    rng = np.random.default_rng(12)
    contexts = rng.standard_normal((2000, 20))
    rewards = (rng.random((2000, ARMS)) < [0.2, 0.4, 0.3]).astype(float)
    learner, made = played(tacit.ContextMixture(ARMS, context_dim=20), contexts, rewards)
    assert learner.state.tally.weights[0].argmax() == NO_EFFECT
    assert np.mean([decision.slot == 1 for decision in made[1000:]]) > 0.8


def test_users_who_change_are_followed():
    contexts = np.random.default_rng(13).standard_normal((4000, 4))
    best = (contexts[:, 0] > 0).astype(int)
    best[2000:] = 1 - best[2000:]
    _, made = played(tacit.ContextMixture(2, context_dim=4), contexts, np.eye(2)[best])
    right = np.array([decision.slot == arm for decision, arm in zip(made, best, strict=True)])
    assert right[1500:2000].mean() > 0.95
    assert right[3000:].mean() > 0.9


def test_amounts_that_vary_little_are_learned_from_faster_than_clicks():
    rng = np.random.default_rng(19)
    contexts = rng.standard_normal((600, 4))
    means = sigmoid(contexts @ rng.standard_normal((4, ARMS)) / 4)
    policy = tacit.ContextMixture(ARMS, context_dim=4)
    lost = []
    for rewards in (means, rng.random(means.shape) < means):
        _, made = played(policy, contexts, rewards.astype(float))
        slots = [decision.slot for decision in made]
        lost.append((means.max(axis=1) - means[np.arange(600), slots]).sum())
    assert lost[0] < 0.6 * lost[1]


def test_covariances_stay_positive_definite():
    """Users of one kind, again and again: what is subtracted must never be too much."""
    rng = np.random.default_rng(15)
    dim, rounds = 6, 20_000
    kinds = rng.standard_normal((8, 1)) @ np.ones((1, dim)) + 1e-3 * rng.standard_normal((8, dim))
    learner = tacit.Learner(tacit.ContextMixture(2, context_dim=dim), seed=1)
    for _ in range(rounds // 1000):
        contexts = kinds[rng.integers(8, size=1000)]
        made = learner.choose_many(["all"] * 1000, contexts=contexts)
        learner.learn_many(made, (rng.random(1000) < 0.5).astype(float))
    rows, columns = np.triu_indices(1 + dim)
    for spread in learner.state.models.spread.reshape(2 * FULL, -1):
        matrix = np.zeros((1 + dim, 1 + dim))
        matrix[rows, columns] = matrix[columns, rows] = spread
        assert np.linalg.eigvalsh(matrix)[0] > 0
    assert learner.state.models.narrow.min() > 0


# What it believes -------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [3, 30])
def test_beliefs_and_draws_are_what_it_goes_by(dim):
    rng = np.random.default_rng(20)
    contexts = rng.standard_normal((300, dim))
    policy = tacit.ContextMixture(ARMS, context_dim=dim)
    learner, _ = played(policy, contexts, clicks(contexts, rng))
    state, before = learner.state, state_bytes(learner)
    context = contexts[0]
    lines = lines_of(learner, context)
    believed = policy.beliefs_in(state, 0, contexts[:5])
    for each, logits, variances in zip(contexts, believed.logits, believed.variances, strict=False):
        means = logits @ believed.weights
        deviations = np.sqrt((variances + logits**2) @ believed.weights - means**2)
        # A hypothesis that hardly counts takes no part in a choice.
        np.testing.assert_allclose(
            np.column_stack([means, WIDTH * deviations]), lines_of(learner, each), atol=1e-3
        )
    added = believed.contributions()[0]
    constants = believed.logits[0] @ believed.weights - added.sum(axis=1)
    again = believed.logits[1] @ believed.weights - believed.contributions()[1].sum(axis=1)
    np.testing.assert_allclose(constants, again, atol=1e-4)
    assert believed.no_effect_weight == believed.weights[NO_EFFECT]
    impression = tacit.Impression(np.arange(ARMS), context)
    draws = policy.reward_draws(state, 0, impression, np.random.default_rng(1), 20_000)
    assert draws.shape == (20_000, ARMS)
    logits = np.log(draws) - np.log1p(-draws)
    np.testing.assert_allclose(logits.mean(axis=0), lines[:, 0], atol=0.05)
    np.testing.assert_allclose(logits.std(axis=0), lines[:, 1] / WIDTH, rtol=0.05)
    assert state_bytes(learner) == before


# Arms, keys, what is told -----------------------------------------------------------------------


def test_an_arm_that_comes_is_a_blank_slot():
    rng = np.random.default_rng(16)
    contexts = rng.standard_normal((600, 3))
    rewards = (rng.random((600, 3)) < [0.1, 0.2, 0.9]).astype(float)
    learner = tacit.Learner(tacit.ContextMixture(["a", "b"], context_dim=3), seed=1)
    go_on(learner, contexts[:300], rewards[:300])
    before = learner.state.models.mean[:, :2].copy()
    learner.add_arms(["c"])
    np.testing.assert_array_equal(learner.state.models.mean[:, :2], before)
    fresh = learner.policy.init(1).models
    for new, blank in zip(learner.state.models, fresh, strict=True):
        np.testing.assert_array_equal(new[:, 2], blank[:, 2])
    made = go_on(learner, contexts[300:], rewards[300:])
    assert sum(decision.arm == "c" for decision in made) > 250


def test_keys_share_models_or_have_their_own():
    rng = np.random.default_rng(17)
    contexts = rng.standard_normal((200, 3))
    rewards = clicks(contexts, rng)
    alone, _ = played(tacit.ContextMixture(ARMS, context_dim=3), contexts, rewards)
    own = tacit.Learner(tacit.ContextMixture(ARMS, context_dim=3, per_key=True), seed=1)
    go_on(own, contexts, rewards, key="a")
    kept = [array.copy() for array in own.state.models]
    go_on(own, contexts, 1 - rewards, key="b")
    lane = own.lane("a")
    for array, before, one in zip(own.state.models, kept, alone.state.models, strict=True):
        np.testing.assert_array_equal(array[lane], before[lane])
        np.testing.assert_array_equal(array[lane], one[0])
    assert alone.state.models.mean.shape[0] == 1


def test_what_is_told_of_arms_is_where_they_begin():
    policy = tacit.ContextMixture(["film", "holiday"], context_dim=2, priors={"film": (40, 60)})
    learner = tacit.Learner(policy, seed=1)
    film, holiday = lines_of(learner, [0.0, 0.0])
    rate = 40.5 / 101
    variance = 1 / (1 / 5 + 100 * rate * (1 - rate))
    logit = variance * 100 * rate * (1 - rate) * math.log(rate / (1 - rate))
    np.testing.assert_allclose(film, [logit, WIDTH * math.sqrt(variance)], rtol=1e-6)
    np.testing.assert_allclose(holiday, [0.0, WIDTH * math.sqrt(5)], rtol=1e-6)
    go_on(learner, np.random.default_rng(18).standard_normal((10, 2)), np.zeros((10, 2)))
    assert learner.state.models.spread[0, 0, :, 0].max() < 0.05
    assert repr(policy).endswith("priors=(('film', 40.0, 60.0),))")


def test_models_of_ten_arms_and_64_numbers_are_small():
    assert tacit.ContextMixture(10, context_dim=64).model_bytes <= 65_536
