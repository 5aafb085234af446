"""EmbeddingMixture: beside plain float64, propensities, what is read of items and users, what it learns."""

import math

import numpy as np
import pytest
from drawn import is_long
from scipy import stats

import tacit
from tacit.policies.features import embedding_items
from tacit.policies.features.context_models import FULL, HYPOTHESES, NO_EFFECT
from tacit.policies.features.context_weights import compute_base
from tests.policies.states import assert_propensities_are_frequencies, chances_of
from tests.policies.test_context_mixture import Plain, sigmoid

OFFERED = 8


def impression(items, user=()):
    """Return what a kernel is asked about items, for a user."""
    return tacit.Impression(np.arange(len(items)), np.asarray(user, float), np.asarray(items, float))


def chances(learner, asked):
    """Return the propensities of all items on offer."""
    return chances_of(learner.policy, learner.state, asked)


def played(policy, rounds, chance, seed, items=400):
    """Return a learner that chose among eight of so many items, its regret, and that of chance.

    ``chance(items, users)`` gives the probability of a click on each item, for each user.
    """
    rng = np.random.default_rng(seed)
    learner, lost = tacit.Learner(policy, seed=seed), np.zeros((rounds, 2))
    catalogue = rng.standard_normal((items, policy.relevance_dim))
    users = rng.standard_normal((rounds, policy.context_dim))
    clicks = chance(catalogue, users, rng)
    for t in range(rounds):
        offer = rng.choice(items, OFFERED, replace=False)
        user = {"context": users[t]} if policy.context_dim else {}
        decision = learner.choose("all", relevance=catalogue[offer], **user)
        found = clicks[t, offer]
        learner.learn(decision, float(rng.random() < found[decision.slot]))
        lost[t] = found.max() - found[decision.slot], found.max() - found.mean()
    return learner, lost


# Beside plain float64 ---------------------------------------------------------------------------


class PlainItems(Plain):
    """The same in float64, with dense matrices, for few numbers: an item's, then a user's."""

    def __init__(self, items, users):
        self.items, self.users = items, users
        super().__init__(1, items + users)

    def forget(self):
        super().forget()
        items, users = self.items, self.users
        self.prior = []
        for main, across in zip(embedding_items.SCALES, embedding_items.ACROSS, strict=True):
            each = np.full((1 + users, 1 + items), across**2 / (items * users))
            each[0], each[:, 0] = main**2 / items, float(main > 0) / users
            each[0, 0] = 1.0
            self.prior.append(np.diag(each.ravel()))
        self.theta = np.zeros((1, HYPOTHESES, (1 + users) * (1 + items)))
        self.cov = np.array([[p.copy() for p in self.prior]])

    def begin_recent(self):
        super().begin_recent()
        self.theta[:, NO_EFFECT, 1:] = self.cov[:, NO_EFFECT, 1:] = 0.0

    def features(self, context):
        item, user = ([1.0, *part] for part in np.split(super().features(context)[1:], [self.items]))
        return np.outer(user, item).ravel()


def test_it_is_what_plain_float64_makes_of_the_same_events():
    """Items of three numbers and users of two, who change their minds after 700 rounds."""
    rng = np.random.default_rng(3)
    learner, plain = tacit.Learner(tacit.EmbeddingMixture(3, 2), seed=1), PlainItems(3, 2)
    tastes, layout = rng.standard_normal((3, 2)) * 2, learner.policy.layout
    for t in range(1200):
        items, user = rng.standard_normal((OFFERED, 3)) * [1, 100, 0.1] + 7, rng.standard_normal(2)
        decision = learner.choose("all", context=user, relevance=items)
        if t % 10 == 0:
            expected = np.concatenate([plain.lines([*item, *user]) for item in items])
            lines = embedding_items.candidate_lines(learner.state, 0, impression(items, user), layout)
            np.testing.assert_allclose(lines, expected, rtol=5e-3, atol=5e-3)
        item = items[decision.slot]
        logit = (item - 7) / [1, 100, 0.1] @ tastes @ user * (1 if t < 700 else -1)
        reward = float(rng.random() < sigmoid(logit))
        learner.learn(decision, reward)
        plain.learn([*item, *user], 0, reward)
    np.testing.assert_allclose(learner.state.tally.weights[0], plain.weights, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize(("items", "users"), [(20, 40), (30, 4), (30, 30), (40, 0)])
def test_what_is_believed_of_candidates_is_what_is_learned_of_them(items, users):
    """Candidates share what is computed for the user; alone they have the features that events have."""

    def chance(catalogue, users, rng):
        return sigmoid(catalogue @ rng.standard_normal(items))[None].repeat(len(users), axis=0)

    learner, _ = played(tacit.EmbeddingMixture(items, users), 300, chance, seed=items + users)
    rng, state, layout = np.random.default_rng(1), learner.state, learner.policy.layout
    rows, user = rng.standard_normal((5, items)), rng.standard_normal(users)
    base = compute_base(state.tally, 0)
    beliefs = np.array(
        [
            embedding_items.compute_beliefs(state, 0, impression(rows, user), layout, h, base)
            for h in range(FULL)
        ]
    )
    known, packed = layout.dense, layout.dense * (layout.dense + 1) // 2
    for place, row in enumerate(rows):
        room = embedding_items.make_workspace(layout)
        embedding_items.read_event(state, 0, row, user, 0.0, layout, room)
        x = room.features[0].astype(float)
        for h in range(FULL):
            spread, cov, k = state.models.spread[0, 0, h].astype(float), np.zeros((known, known)), 0
            for j in range(known):
                cov[j, j:] = cov[j:, j] = spread[k : k + known - j]
                k += known - j
            assert beliefs[h, place, 0] == pytest.approx(x @ state.models.mean[0, 0, h], rel=1e-3, abs=1e-3)
            if layout.residual == 0:
                variance = x[:known] @ cov @ x[:known] + spread[packed:] @ x[known:] ** 2
                assert beliefs[h, place, 1] == pytest.approx(variance, rel=2e-3)


# Propensities -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("items", "users"), [(3, 0), (40, 3), (30, 30)])
def test_propensities_are_what_the_draw_says_and_add_up_to_one(items, users):
    def chance(catalogue, users, rng):
        return sigmoid(catalogue @ rng.standard_normal(items))[None].repeat(len(users), axis=0)

    learner, _ = played(tacit.EmbeddingMixture(items, users), 150, chance, seed=items)
    rng, z = np.random.default_rng(2), stats.norm.ppf(0.5 + 0.5 * (np.arange(20_000) + 0.5) / 20_000)
    for _ in range(20 if items == 3 or is_long() else 4):
        asked = impression(rng.standard_normal((12, items)), rng.standard_normal(users))
        found = chances(learner, asked)
        lines = embedding_items.candidate_lines(learner.state, 0, asked, learner.policy.layout)
        assert abs(found.sum() - 1) <= 1e-12
        best = np.argmax(lines[:, :1] + lines[:, 1:] * z, axis=0)
        np.testing.assert_allclose(found, np.bincount(best, minlength=12) / len(z), atol=2e-4)


def test_choices_are_as_frequent_as_their_propensities():
    """20,000 choices among eight; a fault at 5.1 standard deviations, 1e-6 for each item. Two are alike."""

    def chance(catalogue, users, rng):
        return sigmoid(catalogue[:, 0])[None].repeat(len(users), axis=0)

    learner, _ = played(tacit.EmbeddingMixture(4, 0), 60, chance, seed=5)
    items = np.random.default_rng(3).standard_normal((OFFERED, 4))
    items[1] = items[0]
    expected = chances(learner, impression(items))
    assert expected[0] == expected[1] > 0
    told = assert_propensities_are_frequencies(learner, 20_000, "all", relevance=items)
    np.testing.assert_array_equal(told, expected)


def test_at_first_all_items_are_as_good_as_any():
    learner = tacit.Learner(tacit.EmbeddingMixture(40), seed=1)
    items = np.random.default_rng(4).standard_normal((OFFERED, 40))
    for _ in range(8):
        np.testing.assert_allclose(chances(learner, impression(items)), 1 / OFFERED)
        learner.learn(learner.choose("all", relevance=items), 1.0)


# What is learned --------------------------------------------------------------------------------


def test_it_finds_what_is_liked_among_hundreds_of_numbers():
    """In 40 other runs the regret was 0.195 of that of chance, with a deviation of 0.018 and at most 0.23."""

    def chance(catalogue, users, rng):
        logits = catalogue @ rng.standard_normal(200)
        return sigmoid(3 * logits / logits.std())[None].repeat(len(users), axis=0)

    _, lost = played(tacit.EmbeddingMixture(200), 1500, chance, seed=1)
    assert lost[:, 0].sum() < 0.35 * lost[:, 1].sum()


def test_users_like_what_is_near_them():
    """Users have embeddings in the space of items, whose inner product tells all. In 40 other runs the regret
    was 0.012 of that of chance after 200 rounds, 0.025 at most."""

    def chance(catalogue, users, rng):
        return sigmoid(3 * users @ catalogue.T / math.sqrt(40))

    _, lost = played(tacit.EmbeddingMixture(40, 40), 600, chance, seed=2)
    assert lost[200:, 0].sum() < 0.1 * lost[200:, 1].sum()


def test_users_like_what_suits_their_numbers():
    """In 40 other runs the regret was 0.055 of that of chance after 500 rounds, 0.076 at most."""

    def chance(catalogue, users, rng):
        return sigmoid(3 * users @ rng.standard_normal((3, 12)) @ catalogue.T / 6)

    _, lost = played(tacit.EmbeddingMixture(12, 3), 1500, chance, seed=3)
    assert lost[500:, 0].sum() < 0.2 * lost[500:, 1].sum()


def test_users_like_what_suits_a_number_of_theirs_in_any_direction():
    """Items lie in all directions alike. In 20 other runs the regret was 0.24 ± 0.02 of that of chance after
    1,000 rounds, 0.29 at most; 0.46 ± 0.05 where users are multiplied with leading directions alone."""

    def chance(catalogue, users, rng):
        return sigmoid(3 * np.multiply.outer(users[:, 0], catalogue @ rng.standard_normal(64) / 8))

    _, lost = played(tacit.EmbeddingMixture(64, 2), 2000, chance, seed=4)
    assert lost[1000:, 0].sum() < 0.32 * lost[1000:, 1].sum()


def test_features_that_say_nothing_are_found_out():
    """So it was in each of 30 other runs."""

    def chance(catalogue, users, rng):
        return np.full((len(users), len(catalogue)), 0.3)

    learner, _ = played(tacit.EmbeddingMixture(40), 1500, chance, seed=4)
    assert learner.state.tally.weights[0].argmax() == NO_EFFECT


def test_users_who_change_are_followed():
    """In 30 other runs the regret was 0.006 of that of chance before, and 0.02 afterwards, 0.072 at most."""

    def chance(catalogue, users, rng):
        clicks = sigmoid(3 * catalogue @ [1.0, 0, 0, 0])[None].repeat(len(users), axis=0)
        clicks[1000:] = 1 - clicks[1000:]
        return clicks

    _, lost = played(tacit.EmbeddingMixture(4), 2000, chance, seed=5)
    assert lost[500:1000, 0].sum() < 0.1 * lost[500:1000, 1].sum()
    assert lost[1500:, 0].sum() < 0.2 * lost[1500:, 1].sum()


def test_draws_are_of_what_it_goes_by():
    def chance(catalogue, users, rng):
        return sigmoid(catalogue @ rng.standard_normal(5))[None].repeat(len(users), axis=0)

    learner, _ = played(tacit.EmbeddingMixture(5), 200, chance, seed=8)
    asked = impression(np.random.default_rng(9).standard_normal((4, 5)))
    draws = learner.policy.reward_draws(learner.state, 0, asked, np.random.default_rng(1), 20_000)
    lines = embedding_items.candidate_lines(learner.state, 0, asked, learner.policy.layout)
    logits = np.log(draws) - np.log1p(-draws)
    np.testing.assert_allclose(logits.mean(axis=0), lines[:, 0], atol=0.05)
    np.testing.assert_allclose(logits.std(axis=0), lines[:, 1] / 0.7, rtol=0.05)


def test_the_model_is_small():
    assert tacit.EmbeddingMixture(384).model_bytes <= 100_000
    assert tacit.EmbeddingMixture(384, 32).model_bytes <= 302_000
