"""ItemListMix: beside plain float64, propensities of lists, what it learns from readers of many kinds."""

import itertools
import math

import numpy as np
import pytest
from drawn import is_long
from scipy import stats

import tacit
from tacit.policies.features.context_models import NO_EFFECT
from tacit.policies.features.embedding_items import hash_item, hash_weights
from tests.policies.test_context_mixture import sigmoid

OFFERED = 7


def impression(items, user=()):
    """Return what a kernel is asked about items, for a user."""
    return tacit.Impression(np.arange(len(items)), np.asarray(user, float), np.asarray(items, float))


def lines(learner, asked):
    """Return mean and deviation of the score of each item on offer."""
    policy = learner.policy
    found = policy.arrange(policy.params, learner.state, 0, asked)
    return found.mean, found.spread


def read(rng, chances, seen=None, on=(1.0, 1.0)):
    """Return the clicks on a list: by the chance that each position is seen, or that readers go on."""
    clicks, looked = np.zeros(len(chances)), True
    for k, chance in enumerate(chances):
        look = 1.0 if seen is None else seen[k]
        if k and seen is None:
            look = on[int(clicks[k - 1])] if looked else 0.0
        looked = rng.random() < look
        clicks[k] = looked and rng.random() < chance
    return clicks


def played(policy, lists, chance, seed, items=400, order=False, **reading):
    """Return a learner that listed some of seven out of so many items, and the mean chance of an item
    shown, that of the best, and that of all on offer, list by list; ``order`` offers the best first."""
    rng = np.random.default_rng(seed)
    learner, found = tacit.Learner(policy, seed=seed), np.zeros((lists, 3))
    catalogue = rng.standard_normal((items, policy.relevance_dim))
    users = rng.standard_normal((lists, policy.context_dim))
    clicks = chance(catalogue, users, rng)
    for t in range(lists):
        offer = rng.choice(items, OFFERED, replace=False)
        if order:
            offer = offer[np.argsort(-clicks[t, offer])]
        user = {"context": users[t]} if policy.context_dim else {}
        decision = learner.choose("all", relevance=catalogue[offer], **user)
        chances = clicks[t, offer]
        learner.learn(decision, read(rng, chances[decision.slots], **reading))
        best = np.sort(chances)[-policy.positions :]
        found[t] = chances[decision.slots].mean(), best.mean(), chances.mean()
    return learner, found


def lost(found):
    """Return the share of what chance loses that was lost."""
    return (found[:, 1] - found[:, 0]).sum() / (found[:, 1] - found[:, 2]).sum()


def linear(scale, shift=-1.0):
    """Return chances by a taste that all users share."""

    def chance(catalogue, users, rng):
        logits = catalogue @ rng.standard_normal(catalogue.shape[1])
        return sigmoid(scale * logits / logits.std() + shift)[None].repeat(len(users), axis=0)

    return chance


# Beside plain float64 ---------------------------------------------------------------------------

AFTER = [(skip, click) for skip in (1.0, 0.85) for click in (0.0, 0.3, 0.6, 0.9)]


class PlainLists:
    """The same in float64, with dense matrices, for items of few numbers."""

    def __init__(self, dim, positions):
        self.dim, self.positions, self.kept, self.totals = dim, positions, [], np.zeros(2)
        self.forget()

    def forget(self):
        size, self.lists, self.age = 2 + self.dim, 0, 0
        self.weights, self.readers, self.own = np.full(4, 0.25), np.full(14, 1 / 14), {}
        self.cells = np.zeros((2, self.positions, self.positions))
        self.prior = [np.diag([1.0, 0.25, *[s**2 / self.dim] * self.dim]) for s in (1.0, 2.0, 1.2, 0.0)]
        self.theta, self.cov = np.zeros((4, size)), np.array(self.prior)
        self.theta[:, 1], self.met = 0.2, [False] * 4

    def base(self):
        rate = min(0.9, (self.totals[0] + 0.5) / (self.totals[1] + 1)) if self.totals[1] else 0.25
        return math.log(rate / (1 - rate))

    def features(self, item, place, offered):
        scaled = np.clip((item - self.mean) * self.factor, -5, 5) if self.lists or self.kept else 0 * item
        return np.array([1.0, math.log((offered - place - 0.5) / (place + 0.5)) / 1.7, *scaled])

    def measure(self):
        rows = np.array([item for shown in self.kept for item, *_ in shown])
        self.mean = rows.mean(axis=0)
        self.factor = 1 / np.maximum(rows.std(axis=0), np.abs(rows - self.mean).max(axis=0) / 3)

    def lines(self, items):
        found = []
        for place, item in enumerate(items):
            x, (o, k) = self.features(item, place, len(items)), self.own.get(item[0], (0.0, 0.35**2))
            theta = self.theta.copy()
            theta[[not met for met in self.met], 0] = self.base()
            logits, variances = theta @ x, np.einsum("i,hij,j->h", x, self.cov, x)
            mean = self.weights @ logits
            found.append((mean + o, 0.7 * math.sqrt(self.weights @ (variances + logits**2) - mean**2 + k)))
        return np.array(found).T

    def learn(self, shown):
        """Learn what was shown: for each position the item, its place, how many were offered, the reward."""
        if len(self.kept) >= 32:
            self.learn_list(shown, True)
            return
        self.kept.append(shown)
        if len(self.kept) & (len(self.kept) - 1):
            self.learn_list(shown, True)
            return
        self.measure()
        self.forget()
        for each in self.kept:
            self.learn_list(each, each is shown)

    def learn_list(self, shown, first):
        seen, last = np.ones(14), 0
        for k, (item, place, offered, reward) in enumerate(shown):
            expected = self.readers[:13] @ seen[:13] / self.readers[:13].sum()
            clicks, foreseen = self.cells[:, last, k]
            seen[13] = min(1, max(0.005, expected * (clicks + 5) / (foreseen + 5))) if k else 1.0
            looked = self.readers @ seen
            chance = self.learn_item(self.features(item, place, offered), item[0], reward, looked)
            self.readers = self.readers * given(seen * chance, reward)
            self.readers /= self.readers.sum()
            self.cells[:, last, k] += reward, expected * chance
            self.totals += np.array([reward, looked]) * first
            seen[:5] = (k + 2.0) ** -np.array([0, 0.5, 1, 1.5, 2.5])
            for i, (skip, click) in enumerate(AFTER):
                e = seen[5 + i]
                seen[5 + i] = click if reward else skip * e * (1 - chance) / (1 - e * chance)
            last = k + 1 if reward else last
        self.lists, self.age = self.lists + 1, self.age + 1
        share = 1 / (self.lists + 1)
        self.weights = (1 - share) * self.weights + share / 4
        self.readers = (1 - share) * self.readers + share / 14
        if self.age >= max(200, 0.2 * self.lists):
            self.theta[2], self.cov[2], self.met[2], self.age = 0.0, self.prior[2], False, 0
            self.theta[2, 1] = 0.2
            self.weights[2] = 0.0025 * self.weights.max()
            self.weights /= self.weights.sum()

    def learn_item(self, x, name, reward, looked):
        o, k = self.own.get(name, (0.0, 0.35**2))
        chances, gains, precisions = np.zeros((3, 4))
        for h in range(4):
            if not self.met[h]:
                self.theta[h, 0], self.met[h] = self.base(), True
            along = self.cov[h] @ x
            logit, s = self.theta[h] @ x, along @ x
            chances[h] = sigmoid((logit + o) / math.sqrt(1 + math.pi * (s + k) / 8))
            at = logit + o
            for _ in range(60 if looked >= 1 else 6):
                c = sigmoid(at)
                q = 1.0 if reward else looked * (1 - c) / (1 - looked * c)
                gains[h], precisions[h] = 1 - c if reward else -q * c, c * (1 - c) * q
                at -= (at - logit - o - s * gains[h]) / (1 + s * precisions[h])
            self.theta[h] += gains[h] * along
            self.cov[h] -= precisions[h] / (1 + precisions[h] * s) * np.outer(along, along)
        mean, weights = self.weights @ chances, self.weights[:3]
        gain, precision = weights @ gains[:3], weights @ precisions[:3]
        self.weights = self.weights * given(looked * chances, reward)
        self.weights /= self.weights.sum()
        self.own[name] = o + k * gain / (1 + k * precision), k / (1 + k * precision)
        return min(mean, 1 - 1e-4)


def given(chances, reward):
    chances = np.clip(chances, 1e-4, 1 - 1e-4)
    return chances if reward else 1 - chances


def test_it_is_what_plain_float64_makes_of_the_same_lists():
    """Items of two numbers, out of 60, for readers who go on after a click now and then."""
    rng, policy = np.random.default_rng(3), tacit.ItemListMix(2, positions=3)
    learner, plain = tacit.Learner(policy, seed=1), PlainLists(2, 3)
    catalogue = rng.standard_normal((60, 2)) * [1, 100] + 7
    weights = hash_weights(2)
    assert len({hash_item(item, weights) for item in catalogue}) == 60
    for t in range(500):
        items = catalogue[rng.choice(60, OFFERED, replace=False)]
        decision = learner.choose("all", relevance=items)
        if t % 10 == 1 or 1 <= t < 8:
            np.testing.assert_allclose(
                lines(learner, impression(items)), plain.lines(items), rtol=5e-3, atol=5e-3
            )
        clicks = read(rng, sigmoid((items - 7) / [1, 100] @ [1.5, -1.0] - 1)[decision.slots], on=(0.9, 0.4))
        learner.learn(decision, clicks)
        plain.learn([(items[i], i, OFFERED, r) for i, r in zip(decision.slots, clicks, strict=True)])
    np.testing.assert_allclose(learner.state.readers[0], plain.readers, rtol=2e-2, atol=1e-4)
    np.testing.assert_allclose(learner.state.relevance.tally.weights[0], plain.weights, rtol=2e-2, atol=1e-4)


# Propensities -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("dim", "users", "epsilon"), [(3, 0, 0.0), (40, 3, 0.2), (36, 36, 0.0)])
def test_propensities_are_those_of_enumeration(dim, users, epsilon):
    """Of all lists of three out of six: by the order at one z in each interval between crossings."""
    policy = tacit.ItemListMix(dim, users, positions=3, epsilon=epsilon)
    learner, _ = played(policy, 45, linear(2.0), seed=dim, seen=[1.0, 0.6, 0.3])
    rng = np.random.default_rng(2)
    # In plain Python: 240 lists are asked for, each of items with many numbers.
    for _ in range(4 if dim == 3 or is_long() else 1):
        asked = impression(rng.standard_normal((6, dim)), rng.standard_normal(users))
        mean, spread = lines(learner, asked)
        cuts = {0.0, math.inf}
        for i, j in itertools.combinations(range(6), 2):
            if spread[i] != spread[j] and (z := (mean[i] - mean[j]) / (spread[j] - spread[i])) > 0:
                cuts.add(float(z))
        expected = dict.fromkeys(itertools.permutations(range(6), 3), 0.0)
        for low, high in itertools.pairwise(sorted(cuts)):
            z = (low + high) / 2 if high < math.inf else low + 1
            mass = 2 * (stats.norm.sf(low) - stats.norm.sf(high))
            order = np.argsort(-(mean + z * spread), kind="stable").tolist()
            expected[tuple(order[:3])] += (1 - epsilon) * mass
            for arm, place in itertools.product(range(6), range(3)):
                others = [other for other in order if other != arm]
                expected[(*others[:place], arm, *others[place:])[:3]] += epsilon * mass / 18
        cells, weights, prefixes, places = np.zeros((6, 3)), [], *np.empty((2, 3))
        for shown, probability in expected.items():
            action = np.array(shown)
            weights.append(policy.propensity(policy.params, learner.state, 0, asked, action))
            assert weights[-1] == pytest.approx(probability, abs=1e-12)
            policy.placed(policy.params, learner.state, 0, asked, action, prefixes, places)
            assert prefixes[2] == pytest.approx(probability, abs=1e-12)
            cells[shown, range(3)] += probability
        assert abs(sum(weights) - 1) <= 1e-12
        found = policy.position_chances(learner.state, 0, asked)
        np.testing.assert_allclose(found, cells, rtol=0, atol=1e-12)
        assert found.min() >= epsilon / 18 - 1e-15


def test_lists_are_as_frequent_as_their_propensities():
    """20,000 lists; a fault at 5.1 standard deviations, 1e-6 for each list. Two items are alike."""
    learner, _ = played(tacit.ItemListMix(4, positions=2, epsilon=0.1), 20, linear(1.0), seed=5)
    items = np.random.default_rng(3).standard_normal((4, 4))
    items[2] = items[0]
    made = learner.choose_many(["all"] * 20_000, relevance=np.broadcast_to(items, (20_000, *items.shape)))
    shown, counts = np.unique(made.actions, axis=0, return_counts=True)
    for action, count in zip(shown, counts, strict=True):
        row = int(np.argmax((made.actions == action).all(axis=1)))
        p = made.propensities[row]
        assert abs(count / 20_000 - p) <= 5.1 * math.sqrt(p * (1 - p) / 20_000) + 1e-12
        assert made.prefixes[row, 1] == pytest.approx(p, abs=1e-12)


def test_the_first_list_is_the_order_offered():
    learner = tacit.Learner(tacit.ItemListMix(40, positions=3), seed=1)
    decision = learner.choose("all", relevance=np.random.default_rng(4).standard_normal((20, 40)))
    assert (decision.slots.tolist(), decision.propensity) == ([0, 1, 2], 1.0)


def test_fewer_items_than_positions_leave_some_empty():
    learner = tacit.Learner(tacit.ItemListMix(3, positions=4, epsilon=0.2), seed=1)
    items = np.random.default_rng(4).standard_normal((2, 3))
    for _ in range(40):
        decision = learner.choose("all", relevance=items)
        assert decision.slots.tolist() in ([0, 1, -1, -1], [1, 0, -1, -1])
        assert decision.position_propensities[2:].tolist() == [1.0, 1.0]
        learner.learn(decision, [float(decision.slots[0] == 1), 0.0, 0.0, 0.0])
    assert learner.choose("all", relevance=items).slots[0] == 1


# What is learned --------------------------------------------------------------------------------

READING = [{"seen": 1 / np.arange(1, 4)}, {"on": (1.0, 0.0)}, {"on": (0.7, 0.5)}]


@pytest.mark.parametrize("reading", READING)
def test_it_finds_what_is_liked_whoever_reads(reading):
    """In 20 other runs each the share that was lost was 0.10, 0.10 and 0.12 on average, 0.16 at most."""
    _, found = played(tacit.ItemListMix(40, positions=3), 600, linear(2.0), seed=1, **reading)
    assert lost(found[200:]) < 0.35


def test_users_like_what_suits_their_numbers():
    def chance(catalogue, users, rng):
        return sigmoid(3 * users @ rng.standard_normal((3, 12)) @ catalogue.T / 6 - 1)

    _, found = played(tacit.ItemListMix(12, 3, positions=3), 1000, chance, seed=3, seen=[1.0, 0.7, 0.5])
    assert lost(found[500:]) < 0.35


def test_where_only_the_order_tells_it_is_kept():
    def chance(catalogue, users, rng):
        return sigmoid(rng.standard_normal((len(users), len(catalogue))) - 1)

    learner, found = played(tacit.ItemListMix(20, positions=3), 800, chance, seed=4, order=True)
    assert learner.state.relevance.tally.weights[0].argmax() == NO_EFFECT
    assert lost(found[200:]) < 0.1


def test_users_who_change_are_followed():
    def chance(catalogue, users, rng):
        clicks = sigmoid(3 * catalogue @ [1.0, 0, 0, 0])[None].repeat(len(users), axis=0)
        clicks[700:] = 1 - clicks[700:]
        return clicks

    _, found = played(tacit.ItemListMix(4, positions=2), 1400, chance, seed=5, seen=[1.0, 0.5])
    assert lost(found[400:700]) < 0.1
    assert lost(found[1100:]) < 0.2


def test_items_that_differ_beyond_their_numbers_are_known_again():
    """Numbers say nothing of 12 items; what is shown again is known."""

    def chance(catalogue, users, rng):
        return np.linspace(0.05, 0.8, len(catalogue))[rng.permutation(len(catalogue))][None].repeat(
            len(users), 0
        )

    _, found = played(tacit.ItemListMix(12, positions=3), 800, chance, seed=6, items=12, seen=[1.0, 0.7, 0.5])
    assert lost(found[400:]) < 0.2


def test_what_is_seen_for_long_stays_positive():
    """Three items again and again: no variance that single precision rounds falls below 0."""
    learner = tacit.Learner(tacit.ItemListMix(3, positions=3), seed=1)
    items, rng = np.random.default_rng(4).standard_normal((3, 3)), np.random.default_rng(5)
    made = learner.choose_many(["all"] * 20_000, relevance=np.broadcast_to(items, (20_000, 3, 3)))
    learner.learn_many(made, (rng.random((20_000, 3)) < [0.9, 0.5, 0.1]).astype(float))
    packed = learner.state.relevance.models.spread[0, 0]
    for h in range(3):
        covariance = np.zeros((5, 5))
        covariance[np.triu_indices(5)] = packed[h, :15]
        covariance = np.triu(covariance) + np.triu(covariance, 1).T
        assert np.linalg.eigvalsh(covariance).min() > 1e-6


def test_draws_are_of_what_it_goes_by():
    learner, _ = played(tacit.ItemListMix(5, positions=2), 200, linear(1.0), seed=8, seen=[1.0, 0.5])
    asked = impression(np.random.default_rng(9).standard_normal((4, 5)))
    draws = learner.policy.reward_draws(learner.state, 0, asked, np.random.default_rng(1), 20_000)
    mean, spread = lines(learner, asked)
    logits = np.log(draws) - np.log1p(-draws)
    np.testing.assert_allclose(logits.mean(axis=0), mean, atol=0.05)
    np.testing.assert_allclose(logits.std(axis=0), spread / 0.7, rtol=0.05)


def test_the_same_lists_come_without_propensities():
    items = np.random.default_rng(5).standard_normal((6, 4))
    asked, plain = (
        tacit.Learner(tacit.ItemListMix(4, positions=2), seed=3, propensities=wanted)
        for wanted in (True, False)
    )
    for clicks in ([1.0, 0.0], [0.0, 1.0]):
        decision, same = (learner.choose(relevance=items) for learner in (asked, plain))
        assert decision.slate == same.slate
        for learner, made in ((asked, decision), (plain, same)):
            learner.learn(made, clicks)
