"""The default for named arms: every update by hand, propensities, and what it is good for."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, optimize, special, stats

import tacit
from tacit.classifiers.concepts import UsualRange, is_unusual
from tacit.core.arrays import byte_count, leaves
from tacit.learning.merging import add_shared, read_shared_sums
from tacit.policies.base import Outcome
from tacit.policies.shifting.hypotheses import accept_change, add_hypothesis, posterior, weigh_warning
from tacit.policies.shifting.shared_priors import count_play, fill_imaginary_tails, fit, fit_all
from tests.policies.states import assert_propensities_are_frequencies, assert_same_states, chances_of

NO_CONTEXT = np.zeros(0)


def impression(arms, context=NO_CONTEXT):
    return tacit.Impression(np.asarray(arms), context)


def learn(policy, state, lane, arm, reward):
    arms = impression(np.arange(policy.arm_count))
    type(policy).learn(policy.params, state, lane, Outcome(arms, arm, reward, math.nan))


def chances(policy, state, arms):
    """Return the propensity of each arm on offer."""
    return chances_of(policy, state, impression(arms))


def played(policy, rounds, seed, shifts=()):
    """Return a state that has learned what it chose, rates drawn anew at each shift."""
    rng, state = np.random.default_rng(seed), policy.init(1)
    arms = impression(np.arange(policy.arm_count))
    for t in range(rounds):
        if t == 0 or t in shifts:
            rates = rng.random(policy.arm_count)
        arm = type(policy).choose(policy.params, state, 0, arms, rng)
        learn(policy, state, 0, arm, float(rng.random() < rates[arm]))
    return state


# The algorithm in plain Python ---------------------------------------------------------------


@dataclass
class Guess:
    """One hypothesis: its weight, its counts [successes, failures] of each arm, and its kind."""

    weight: float
    counts: list
    kind: str
    born: int
    revised: bool = False


@dataclass
class Key:
    guesses: list
    believed: Guess
    rounds: int = 0
    hazard: float = 0.0
    found: int = 0
    epochs: list = field(default_factory=list)


class Plain:
    """The mixture without contexts and fractions, with lists in place of arrays."""

    def __init__(self, arms, keys):
        self.arms = arms
        self.common, self.own = (1.0, 1.0), [(1.0, 1.0)] * arms
        self.firsts = {}  # (key, arm): [successes, failures] before the key's first shift
        self.fresh = self.recalled = self.rounds = 0
        self.due = 20
        first = [Guess(1.0, self.nothing(), "initial", 0) for _ in range(keys)]
        self.keys = [Key([guess], guess) for guess in first]

    def nothing(self):
        return [[0.0, 0.0] for _ in range(self.arms)]

    def beta(self, guess, arm):
        a, b = self.own[arm] if guess.kind == "initial" else self.common
        return a + guess.counts[arm][0], b + guess.counts[arm][1]

    def learn(self, key, arm, reward):
        k = self.keys[key]
        if k.found == 0:
            first = self.firsts.setdefault((key, arm), [0, 0])
            if sum(first) < 256:
                first[1 - int(reward)] += 1
        for guess in k.guesses:
            a, b = self.beta(guess, arm)
            guess.weight *= (a if reward else b) / (a + b)
            guess.counts[arm][1 - int(reward)] = float(np.float32(guess.counts[arm][1 - int(reward)] + 1.0))
        total = sum(guess.weight for guess in k.guesses)
        for guess in k.guesses:
            guess.weight /= total
            if guess.weight < 1e-12 and guess is k.believed:
                guess.weight = 1e-12
        k.guesses = [guess for guess in k.guesses if guess.weight >= 1e-12]
        heaviest = max(k.guesses, key=lambda guess: guess.weight)
        if heaviest.weight > 0.5 and heaviest.born > k.believed.born:
            self.believe(k, heaviest)
        k.hazard += min((0.3 + k.found) / (300 + k.rounds), 0.05)
        k.rounds += 1
        if k.rounds % 20 == 0:
            self.spawn(k, min(k.hazard, 0.5))
            k.hazard = 0.0
        self.rounds += 1
        if self.rounds >= self.due:
            self.refit()
            self.due = max(self.rounds + 10, 1.15 * self.rounds)

    def best(self, counts):
        a, b = self.common
        means = [(a + s) / (a + b + s + f) for s, f in counts]
        return means.index(max(means))

    def believe(self, k, guess):
        old, k.believed = k.believed, guess
        if guess.revised:
            self.fresh -= 1
            self.recalled += 1
            return
        k.found += 1
        for other in k.guesses:
            other.revised = False
        scales = [min(1.0, 60.0 / max(s + f, 1.0)) for s, f in old.counts]
        scaled = [
            [int(1000 * scale * s + 0.5) / 1000, int(1000 * scale * f + 0.5) / 1000]
            for scale, (s, f) in zip(scales, old.counts, strict=True)
        ]
        leaders = [self.best(epoch) for epoch in k.epochs]
        if self.best(old.counts) in leaders:
            del k.epochs[leaders.index(self.best(old.counts))]
        k.epochs = [scaled, *k.epochs][:4]
        if guess.kind == "recalled":
            self.recalled += 1
            return
        self.fresh += 1
        if len(k.epochs) > 1:
            again = (0.5 + self.recalled) / (1.5 + self.recalled + self.fresh)
            for other in k.guesses:
                other.weight *= 1 - again
            for epoch in k.epochs[1:]:
                self.recall(k, epoch, again / (len(k.epochs) - 1), revised=True)

    def spawn(self, k, change):
        for guess in k.guesses:
            guess.weight *= 1 - change
        again = 0.0
        if k.epochs:
            again = (0.5 + self.recalled) / (1.5 + self.recalled + self.fresh)
        self.add(k, Guess(change * (1 - again), self.nothing(), "fresh", k.rounds + 1))
        for epoch in k.epochs:
            self.recall(k, epoch, change * again / len(k.epochs))

    def recall(self, k, epoch, weight, revised=False):
        counts = [[float(np.float32(count)) for count in pair] for pair in epoch]
        self.add(k, Guess(weight, counts, "recalled", k.rounds + 1, revised))

    def add(self, k, new):
        if len(k.guesses) == 8:
            heaviest = max(k.guesses, key=lambda guess: guess.weight)
            free = [g for g in k.guesses if g is not heaviest and g is not k.believed]
            lightest = min(free, key=lambda guess: guess.weight)
            if lightest.weight >= new.weight:
                return
            k.guesses.remove(lightest)
        k.guesses.append(new)

    def refit(self):
        """Twenty steps each: all arms' counts with 2 keys of Beta(1, 1), then each arm's with 5."""
        self.common = self.fitted(self.common, list(self.firsts.values()), (1.0, 1.0), 2)
        for arm in range(self.arms):
            counts = [c for (_, other), c in self.firsts.items() if other == arm]
            self.own[arm] = self.fitted(self.own[arm], counts, self.common, 5)

    @staticmethod
    def fitted(start, counts, beside, keys):
        a, b = start
        j = np.arange(256)
        imagined = stats.betabinom(32, *beside)
        s, f, n = (
            np.array([sum(x > level for x in column) for level in j], float)
            for column in ([c[0] for c in counts], [c[1] for c in counts], [sum(c) for c in counts])
        )
        s[:32] += keys * imagined.sf(np.arange(32))
        f[:32] += keys * imagined.cdf(31 - np.arange(32))
        n[:32] += keys
        for _ in range(20):
            plays = (n / (a + b + j)).sum()
            a, b = a * (s / (a + j)).sum() / plays, b * (f / (b + j)).sum() / plays
            a, b = max(a, 0.02), max(b, 0.02)
            shrink = min(1.0, 500 / (a + b))
            a, b = a * shrink, b * shrink
        return a, b


@pytest.mark.parametrize("seed", range(3))
def test_a_run_is_that_of_the_algorithm_in_plain_python(seed):
    """Two keys, three arms, two intents by turns: hypotheses, memory, recurrence and priors."""
    learner, rng = tacit.Learner(tacit.policies.ShiftMixture(3), seed=seed), np.random.default_rng(seed)
    plain = Plain(3, keys=2)
    intents = [[0.9, 0.3, 0.1], [0.1, 0.2, 0.8]]
    for t in range(4000):
        lane = int(rng.integers(2)) if t else 0
        decision = learner.choose("xy"[lane])
        reward = float(rng.random() < intents[t // 500 % 2][decision.arm])
        learner.learn(decision, reward)
        plain.learn(lane, decision.arm, reward)
        if t % 50 == 49:
            own, shared = learner.state
            np.testing.assert_allclose(shared.priors.beta[0], [plain.common, *plain.own], rtol=1e-5)
            for lane, key in enumerate(plain.keys):
                assert_same_lane(own, lane, key)
    assert (shared.found.fresh[0], shared.found.recalled[0]) == (plain.fresh, plain.recalled)
    assert plain.recalled > 0
    assert plain.fresh > 0


KINDS = {"initial": 0, "fresh": 1, "recalled": 2}


def assert_same_lane(own, lane, key):
    """Compare a lane with the key of the plain algorithm."""
    there = own.weight[lane] > 0.0
    mine = [own.weight[lane, there], own.kind[lane, there] & 3, own.born[lane, there]]
    its = [(g.weight, KINDS[g.kind], g.born) for g in key.guesses]
    np.testing.assert_allclose(sorted(zip(*mine, strict=True)), sorted(its), rtol=1e-4)
    expected = sum(g.weight * np.array(g.counts) for g in key.guesses)
    counted = np.tensordot(own.weight[lane], own.counts[lane], 1)
    np.testing.assert_allclose(counted, expected, rtol=1e-4, atol=1e-9)
    assert (own.found[lane], own.rounds[lane]) == (key.found, key.rounds)
    assert own.hazard[lane] == pytest.approx(key.hazard)
    assert own.kind[lane, own.leading[lane]] & 3 == KINDS[key.believed.kind]
    assert own.epochs[lane] == len(key.epochs)
    kept = own.remembered[lane, : len(key.epochs)] / 1000
    np.testing.assert_allclose(kept, np.reshape(key.epochs, kept.shape), atol=1e-9)


# Small cases by hand -------------------------------------------------------------------------


def test_one_hypothesis_is_the_beta_posterior():
    """5 of 7 and 0 of 2 under uniform priors: Beta(6, 3) and Beta(1, 3); what they foretell."""
    policy, state = tacit.policies.ShiftMixture(2), tacit.policies.ShiftMixture(2).init(1)
    for reward in (1, 1, 0, 1, 0, 1, 1):
        learn(policy, state, 0, 0, float(reward))
    for _ in range(2):
        learn(policy, state, 0, 1, 0.0)
    assert state.own.weight[0].tolist() == [1.0] + [0.0] * 7
    betas = [stats.beta(*posterior(state.own, state.shared.priors, 0, 0, arm, 1.0)) for arm in (0, 1)]
    assert [beta.mean() for beta in betas] == pytest.approx([6 / 9, 1 / 4])
    assert [beta.var() for beta in betas] == pytest.approx([6 * 3 / 81 / 10, 3 / 16 / 5])
    assert type(policy).estimate(policy.params, state, 0, 0) == pytest.approx(5 / 7)
    assert type(policy).estimate(policy.params, state, 0, 1) == 0.0


def test_a_cold_lane_adds_its_first_hypothesis_after_20_rounds():
    policy, state = tacit.policies.ShiftMixture(2), tacit.policies.ShiftMixture(2).init(1)
    for n in range(20):
        assert np.count_nonzero(state.own.weight) == 1
        learn(policy, state, 0, n % 2, 1.0)
    change = sum(0.3 / (300 + n) for n in range(20))
    np.testing.assert_allclose(state.own.weight[0, :3], [1 - change, change, 0.0])
    assert state.own.born[0, :2].tolist() == [0, 21]
    assert state.own.hazard[0] == 0.0


def test_hypotheses_are_weighed_by_beta_binomials():
    """20 rounds of 1, then 3 of 0: B(11, 4)/B(11, 1) with the counts, B(1, 4)/B(1, 1) without."""
    policy, state = tacit.policies.ShiftMixture(2), tacit.policies.ShiftMixture(2).init(1)
    state.shared.priors.due[0] = np.inf
    for n in range(20):
        learn(policy, state, 0, n % 2, 1.0)
    before = state.own.weight[0, :2].copy()
    for _ in range(3):
        learn(policy, state, 0, 0, 0.0)
    log = before * np.exp(
        [special.betaln(11, 4) - special.betaln(11, 1), special.betaln(1, 4) - special.betaln(1, 1)]
    )
    np.testing.assert_allclose(state.own.weight[0, :2], log / log.sum())


def test_what_is_remembered_is_60_plays_at_most():
    """150 and 50 of 200 plays are 45 and 15 of 60; 3 and 1 of 4 are as they were."""
    policy = tacit.policies.ShiftMixture(2)
    state = policy.init(1)
    own = state.own
    own.counts[0, 0] = [[150.0, 50.0], [3.0, 1.0]]
    own.weight[0, :2], own.born[0, 1], own.kind[0, 1] = (0.4, 0.6), 20, 1
    accept_change(policy.params, state, 0)
    assert own.remembered[0, 0].tolist() == [[45_000, 15_000], [3000, 1000]]
    assert (own.leading[0], own.found[0], own.epochs[0]) == (1, 1, 1)
    assert state.shared.found.fresh[0] == 1.0


def test_an_epoch_takes_the_place_of_that_of_the_same_best_arm_or_of_the_oldest():
    policy = tacit.policies.ShiftMixture(6)
    state = policy.init(1)
    own, best = state.own, []
    for born, arm in enumerate([0, 1, 2, 0, 3, 4, 5], start=1):
        h = own.leading[0]
        own.counts[0, h] = [[float(other == arm), 0.0] for other in range(6)]
        new = int(h == 1) + 1 if h else 1
        own.weight[0], own.kind[0, new], own.born[0, new] = 0.0, 1, born
        own.weight[0, [h, new]] = 0.1, 0.9
        accept_change(policy.params, state, 0)
        best.append([int(e[:, 0].argmax()) for e in own.remembered[0, : own.epochs[0]]])
    assert best == [[0], [1, 0], [2, 1, 0], [0, 2, 1], [3, 0, 2, 1], [4, 3, 0, 2], [5, 4, 3, 0]]


def test_a_change_just_found_may_be_one_to_an_earlier_epoch():
    """One of two remembered epochs is not the last one's: it gets a third of the weight, and is
    believed in the place of the change, not as another one."""
    policy = tacit.policies.ShiftMixture(2)
    state = policy.init(1)
    own, found = state.own, state.shared.found
    own.epochs[0], own.remembered[0, 0] = 1, [[1000, 0], [9000, 1000]]
    own.counts[0, 0] = [[9.0, 1.0], [0.0, 3.0]]
    own.weight[0, :2], own.born[0, 1], own.kind[0, 1], own.rounds[0] = (0.4, 0.6), 20, 1, 25
    accept_change(policy.params, state, 0)
    again = 0.5 / 2.5
    np.testing.assert_allclose(own.weight[0, :3], [0.4 * (1 - again), 0.6 * (1 - again), again])
    assert own.counts[0, 2].tolist() == [[1.0, 0.0], [9.0, 1.0]]
    own.weight[0, :3] = 0.0, 0.2, 0.8
    accept_change(policy.params, state, 0)
    assert (own.leading[0], own.found[0], own.epochs[0]) == (2, 1, 2)
    assert (found.fresh[0], found.recalled[0]) == (0.0, 1.0)


def test_the_believed_and_the_heaviest_are_never_given_up():
    own = tacit.policies.ShiftMixture(2).init(1).own
    own.weight[0] = [1e-12, 0.3, 0.2, 0.15, 0.15, 0.1, 0.05, 0.05]
    add_hypothesis(own, 0, 0.04, 1, -1)
    assert own.weight[0, 6:].tolist() == [0.05, 0.05]
    add_hypothesis(own, 0, 0.06, 1, -1)
    assert own.weight[0].tolist() == [1e-12, 0.3, 0.2, 0.15, 0.15, 0.1, 0.06, 0.05]


# Priors of all keys --------------------------------------------------------------------------


def test_one_step_of_the_fit_by_hand():
    """One key had 1 of 2: S = (1), F = (1), N = (1, 1). From a = 1, b = 3: Σ S/(a+j) = 1,
    Σ F/(b+j) = 1/3, Σ N/(a+b+j) = 1/4 + 1/5."""
    priors = tacit.policies.ShiftMixture(1).init(1).shared.priors
    count_play(priors, 0, 0.0, 0.0, 1.0, 0.0)
    count_play(priors, 0, 1.0, 0.0, 0.0, 1.0)
    assert priors.tails[0, 1, :3].tolist() == [[1, 1, 1], [0, 0, 1], [0, 0, 0]]
    priors.beta[0, 1] = 1.0, 3.0
    fit(priors, 1, 0.0, 1, 0.0)
    assert priors.beta[0, 1].tolist() == pytest.approx([1 / 0.45, 1 / 0.45])


def test_fractions_are_apportioned_to_adjacent_bins():
    priors = tacit.policies.ShiftMixture(1).init(1).shared.priors
    count_play(priors, 0, 0.75, 0.25, 0.5, 0.5)
    np.testing.assert_allclose(priors.tails[0, 1, :3], [[0.25, 0.5, 0], [0.25, 0, 1], [0, 0, 0]])


def test_the_imaginary_key_is_a_beta_binomial():
    priors = tacit.policies.ShiftMixture(1).init(1).shared.priors
    for a, b in [(1.0, 1.0), (0.02, 3.0), (40.0, 400.0)]:
        fill_imaginary_tails(priors, a, b)
        keys, j = stats.betabinom(32, a, b), np.arange(32)
        np.testing.assert_allclose(priors.imagined[0, :, 0], keys.sf(j), atol=1e-12)
        np.testing.assert_allclose(priors.imagined[0, :, 1], keys.cdf(31 - j), atol=1e-12)


def test_priors_come_to_the_maximum_of_the_likelihood():
    """60 keys of Beta(2, 8), of up to 300 plays each, of which the first 256 count."""
    rng, priors = np.random.default_rng(5), tacit.policies.ShiftMixture(1).init(1).shared.priors
    first = []
    for plays in rng.integers(1, 300, size=60):
        clicks = rng.random(plays) < rng.beta(2.0, 8.0)
        for n, click in enumerate(clicks):
            hits = float(clicks[:n].sum())
            count_play(priors, 0, hits, n - hits, float(click), float(not click))
        first.append((clicks[:256].sum(), min(plays, 256)))
    hits, plays = np.array(first).T
    x = np.arange(33)

    def loss(log, beside, keys):
        a, b = np.exp(log)
        real = special.betaln(a + hits, b + plays - hits) - special.betaln(a, b)
        imagined = special.betaln(a + x, b + 32 - x) - special.betaln(a, b)
        return -real.sum() - keys * (stats.betabinom(32, *beside).pmf(x) * imagined).sum()

    for _ in range(40):
        fit_all(priors, None, 0.0)
    common = np.exp(optimize.minimize(loss, [0, 0], args=((1, 1), 2), tol=1e-10).x)
    np.testing.assert_allclose(priors.beta[0, 0], common, rtol=1e-3)
    own = np.exp(optimize.minimize(loss, [0, 0], args=(common, 5), tol=1e-10).x)
    np.testing.assert_allclose(priors.beta[0, 1], own, rtol=1e-3)


def test_a_new_key_begins_with_what_the_others_know():
    learner, rng = tacit.Learner(tacit.policies.ShiftMixture(2), seed=1), np.random.default_rng(1)
    for number in range(100):
        decisions = [learner.choose(f"key {number}", arms=[arm]) for arm in (0, 1) * 10]
        learner.learn_many(decisions, [float(rng.random() < (0.1, 0.4)[d.arm]) for d in decisions])
    assert learner.probabilities("new")[1] > 0.95
    means = [np.divide(a, a + b) for a, b in learner.state.shared.priors.beta[0]]
    np.testing.assert_allclose(means, [0.25, 0.1, 0.4], atol=0.03)


# Rewards between 0 and 1 ---------------------------------------------------------------------


def test_steady_rewards_count_for_several_clicks():
    """0.5 where 0.5 is expected, three times: doubt 5, squares 0, expected ¼ each. Nothing is
    scaled before the first fraction; then by 5/5, 5.25/5, 5.5/5."""
    policy, state = tacit.policies.ShiftMixture(1), tacit.policies.ShiftMixture(1).init(1)
    for _ in range(3):
        learn(policy, state, 0, 0, 0.5)
    half = 0.5 * (5 + 5.25 + 5.5) / 5
    np.testing.assert_allclose(state.own.counts[0, 0, 0], [half, half], rtol=1e-6)
    assert state.shared.spread.fractions[0] == 3.0
    assert state.shared.spread.squares[0] == pytest.approx(0.0)
    assert state.shared.spread.expected[0] == pytest.approx(0.75)


def test_clicks_count_as_they_are():
    policy, state = tacit.policies.ShiftMixture(1), tacit.policies.ShiftMixture(1).init(1)
    for reward in (1.0, 0.0, 1.0):
        learn(policy, state, 0, 0, reward)
    assert state.own.counts[0, 0, 0].tolist() == [2.0, 1.0]
    assert state.shared.spread.fractions[0] == 0.0


def test_a_fraction_weighs_by_its_share_of_the_likelihood():
    """0.25 is ¼ of a click: q^¼ (1 − q)^¾, to the power 1.2 of earlier steadiness."""
    policy, state = tacit.policies.ShiftMixture(1), tacit.policies.ShiftMixture(1).init(1)
    own, spread = state.own, state.shared.spread
    spread.fractions[0], spread.expected[0] = 1.0, 1.0
    own.weight[0, :2], own.kind[0, 1], own.born[0, 1] = (0.5, 0.5), 1, 1
    own.counts[0, 0, 0] = 7.0, 1.0
    learn(policy, state, 0, 0, 0.25)
    likelihood = [(q**0.25 * (1 - q) ** 0.75) ** 1.2 for q in (0.8, 0.5)]
    np.testing.assert_allclose(own.weight[0, :2], np.divide(likelihood, sum(likelihood)))
    np.testing.assert_allclose(own.counts[0, 1, 0], [0.3, 0.9], rtol=1e-6)


# Warnings ------------------------------------------------------------------------------------


def test_a_warning_counts_as_far_as_earlier_ones_were_right():
    """The first gets ½; after one that was false, (½/2)/2; after one that was found, for another
    key, (½ + 1)/3."""
    policy = tacit.policies.ShiftMixture(2, context_dim=1)
    state = policy.init(2)
    own, found = state.own, state.shared.found
    weigh_warning(policy.params, state, 0)
    assert own.weight[0, :2].tolist() == [0.5, 0.5]
    assert own.kind[0, 1] == 1 | 4
    own.weight[0, :2] = 1.0, 0.0
    weigh_warning(policy.params, state, 0)
    assert own.weight[0, :2].tolist() == [1.0, 0.0]  # so soon it counts for nothing
    own.rounds[0] = 21
    weigh_warning(policy.params, state, 0)
    np.testing.assert_allclose(own.weight[0, :2], [7 / 8, 1 / 8])
    own.weight[0, :2] = 0.4, 0.6
    accept_change(policy.params, state, 0)
    assert (own.announced[0], found.announced[0], own.warnings[0]) == (1, 1.0, 2)
    weigh_warning(policy.params, state, 1)
    np.testing.assert_allclose(own.weight[1, :2], [0.5, 0.5])


def test_what_is_unusual_is_outside_by_a_margin():
    usual = UsualRange.empty(2)
    rng = np.random.default_rng(1)
    assert not any(is_unusual(usual, 0.1, rng.random(2)) for _ in range(20))
    high, low = usual.sides[0, :, 0].copy(), -usual.sides[0, :, 1]
    assert is_unusual(usual, 0.1, np.array([0.5, high[1] + 0.11]))
    assert not is_unusual(usual, 0.1, np.array([0.5, high[1] + 0.2]))
    assert is_unusual(usual, 0.1, np.array([low[0] - 0.11, 0.5]))
    assert not is_unusual(usual, 0.1, np.array([0.5, 0.5]))


def test_rare_contexts_do_not_become_usual():
    """Of 20,000 contexts below ½ and one in 500 at 1, all but the first few are told."""
    usual, rng = UsualRange.empty(1), np.random.default_rng(2)
    told = {False: [], True: []}
    for t in range(20_000):
        event = t % 500 == 499
        context = np.array([1.0 if event else 0.5 * rng.random()])
        told[event].append(is_unusual(usual, 0.1, context))
    assert not any(told[False])
    assert all(told[True][2:])
    assert usual.sides[0, 0, 0] == pytest.approx(0.5, abs=0.01)


@pytest.mark.long
def test_a_warning_is_believed_in_a_few_rounds():
    environment = tacit.ShiftingArms(arms=5, events=[1001, 2001, 3001], dim=2)
    told, deaf = tacit.policies.ShiftMixture(5, context_dim=2), tacit.policies.ShiftMixture(5)
    gap = tacit.simulate([told, deaf], environment, 4000, runs=40, seed=3).compare(0, 1)
    assert gap.difference + 2 * gap.standard_error < 0


# Propensities --------------------------------------------------------------------------------


def enumerated(policy, state, lane, arms):
    """Return the chance of each arm: over hypotheses, leaders, which others are kept, and z."""
    own, told = state.own, np.zeros(len(arms))
    deciding = [h for h in range(8) if own.weight[lane, h] >= 1e-3]
    for h in deciding:
        a, b = np.array([posterior(own, state.shared.priors, lane, h, arm, 1.0) for arm in arms]).T
        mean, deviation = np.log(a / b), np.sqrt(1 / a + 1 / b)
        order = list(zip(mean, deviation, strict=True))
        leaders = [i for i, each in enumerate(order) if each == max(order)]
        weight = own.weight[lane, h] / own.weight[lane, deciding].sum() / len(leaders)
        weight /= 2 ** (len(arms) - 1)
        for leader, *kept in itertools.product(leaders, *[[False, True]] * (len(arms) - 1)):
            left = [leader, *itertools.compress([i for i in range(len(arms)) if i != leader], kept)]
            cuts = [0.0, 40.0]
            for i, j in itertools.combinations(left, 2):
                if deviation[i] != deviation[j]:
                    cuts.append((mean[i] - mean[j]) / (deviation[j] - deviation[i]))
            cuts = sorted(z for z in cuts if 0.0 <= z <= 40.0)
            for low, high in itertools.pairwise(cuts):
                score = (mean + 0.5 * (low + high) * deviation)[left]
                best = np.flatnonzero(score >= score.max() - 1e-13)
                part = integrate.quad(stats.halfnorm.pdf, low, min(high, 9.0), epsabs=1e-14)[0]
                for i in best:
                    told[left[i]] += weight * part / len(best) if low < 9.0 else 0.0
    return told


@pytest.mark.parametrize(
    ("arms", "rounds", "shifts"), [(2, 30, ()), (4, 200, (100,)), (5, 90, (60,)), (4, 0, ())]
)
def test_propensities_are_those_of_enumeration(arms, rounds, shifts):
    policy = tacit.policies.ShiftMixture(arms)
    state = played(policy, rounds, seed=arms + rounds, shifts=shifts)
    for offered in (np.arange(arms), np.arange(arms)[::-1][: arms - 1]):
        told = chances(policy, state, offered)
        np.testing.assert_allclose(told, enumerated(policy, state, 0, offered), atol=1e-9)


def test_arms_alike_share_their_chances():
    """Of 5 arms, 3 of 1 click in 4 and 2 of 3 in 4 under one hypothesis: the two lead, and the
    three, whose lines are equally steep, are never played; two untried ones may be."""
    policy, state = tacit.policies.ShiftMixture(7), tacit.policies.ShiftMixture(7).init(1)
    state.own.counts[0, 0] = [[1, 3]] * 3 + [[3, 1]] * 2 + [[0, 0]] * 2
    told = chances(policy, state, np.arange(7))
    np.testing.assert_allclose(told, enumerated(policy, state, 0, np.arange(7)), atol=1e-12)
    assert told[:3].tolist() == [0.0] * 3
    assert told[3] == told[4]
    assert told[5] == told[6] > 0.0
    assert told.sum() == pytest.approx(1.0, abs=1e-12)


@examples(40)
@given(
    counts=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=12),
    scale=st.sampled_from([0.3, 1.0, 1000.0]),
    spread=st.sampled_from([0.02, 1.0, 200.0]),
)
def test_chances_sum_to_one(counts, scale, spread):
    policy = tacit.policies.ShiftMixture(len(counts))
    state = policy.init(1)
    state.own.counts[0, 0] = scale * np.array(counts)
    state.shared.priors.beta[:] = spread
    told = chances(policy, state, np.arange(len(counts)))
    assert told.min() >= 0.0
    assert told.sum() == pytest.approx(1.0, abs=1e-12)
    assert not state.shared.crossings.any()


def test_propensities_are_the_frequencies_of_choices():
    """40,000 choices of each of six states; a fault at 5.1 standard deviations, 1e-6 each."""
    policy = tacit.policies.ShiftMixture(6)
    for seed, rounds in enumerate([0, 7, 60, 150, 400, 900]):
        learner, rng = tacit.Learner(policy, seed=seed), np.random.default_rng(seed)
        for t in range(rounds):
            if t % 300 == 0:
                rates = rng.random(6)
            decision = learner.choose("query")
            learner.learn(decision, float(rng.random() < rates[decision.arm]))
        assert_propensities_are_frequencies(learner, 40_000)


def test_many_arms_are_left_out_with_probability_one_half():
    """70 untried arms: one draw's bits do not suffice. Chi-square, error probability 1e-6."""
    decisions = tacit.Learner(tacit.policies.ShiftMixture(70), seed=3).choose_many(["query"] * 14_000)
    assert stats.chisquare(np.bincount(decisions.slots, minlength=70)).pvalue > 1e-6
    np.testing.assert_allclose(decisions.propensities, 1 / 70)


# Keys, drivers, boundaries -------------------------------------------------------------------


def test_keys_have_nothing_in_common_but_what_they_share():
    """A key's own arrays do not depend on the others as long as no priors were fitted."""
    one, two = (tacit.policies.ShiftMixture(3).init(2) for _ in range(2))
    policy = tacit.policies.ShiftMixture(3)
    for state, other in ((one, 0.0), (two, 1.0)):
        state.shared.priors.due[0] = np.inf
        for t in range(100):
            learn(policy, state, 0, t % 3, float(t % 3 == 1))
            learn(policy, state, 1, t % 3, other)
    assert_same_states(one.own, two.own, rows=1)
    assert (one.own.counts[1] != two.own.counts[1]).any()


def test_a_key_takes_less_than_a_kilobyte():
    policy = tacit.policies.ShiftMixture(10, context_dim=3)
    assert byte_count(policy.init(11).own) - byte_count(policy.init(10).own) <= 1000
    assert {len(array) for _, array in leaves(policy.init(11).shared)} == {1}


def test_arms_may_come_and_go():
    learner = tacit.Learner(tacit.policies.ShiftMixture(["a", "b"]), seed=1)
    rng = np.random.default_rng(1)
    for _ in range(100):
        decision = learner.choose("query")
        learner.learn(decision, float(rng.random() < 0.2))
    before = learner.state.own.counts[0, :, :2].copy()
    learner.add_arm("c")
    np.testing.assert_array_equal(learner.state.own.counts[0, :, :2], before)
    for _ in range(200):
        decision = learner.choose("query")
        learner.learn(decision, float(rng.random() < (0.9 if decision.arm == "c" else 0.2)))
    assert learner.choose("query").arm == "c"
    learner.retire_arm("c")
    assert learner.choose("query").arm in ("a", "b")


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.5, 1e-300])
@pytest.mark.parametrize("arms", [1, 2, 40])
def test_the_same_reward_for_ever_is_no_trouble(reward, arms):
    learner = tacit.Learner(tacit.policies.ShiftMixture(arms), seed=1)
    for _ in range(60):
        learner.learn_many(learner.choose_many(["query"] * 10), [reward] * 10)
    for name, array in leaves(learner.state):
        assert np.isfinite(array).all(), name
    assert learner.probabilities("query").sum() == pytest.approx(1.0, abs=1e-12)


def test_a_reward_that_no_hypothesis_foretold_is_learned():
    """After 4,000 rewards of 1 at twenty clicks' worth each, fifty zeros."""
    policy, state = tacit.policies.ShiftMixture(1), tacit.policies.ShiftMixture(1).init(1)
    state.shared.spread.fractions[0], state.shared.spread.expected[0] = 1.0, 1e6
    state.own.counts[0, 0, 0] = 1e7, 0.0
    for _ in range(50):
        learn(policy, state, 0, 0, 0.0)
    assert np.isfinite(state.own.weight).all()
    assert state.own.weight.sum() == pytest.approx(1.0)


# Changes in what is not shown ------------------------------------------------------------------


def test_to_notice_what_is_not_shown_takes_exploration():
    """With 3 arms 3·(15 + 2·3) = 63 impressions explore: 63/630 of those in which to notice."""
    policy = tacit.policies.ShiftMixture(3, notice_within=630)
    assert policy.exploration == pytest.approx(0.1)
    assert tacit.policies.ShiftMixture(3).exploration == 0.0
    state = played(policy, 300, seed=2)
    told = chances(policy, state, np.arange(3))
    assert told.sum() == pytest.approx(1.0, abs=1e-12)
    assert told.min() >= 0.1 / 3
    without = chances(tacit.policies.ShiftMixture(3), state, np.arange(3))
    np.testing.assert_allclose(told, 0.9 * without + 0.1 / 3)


def test_exploration_is_as_frequent_as_its_propensity():
    """40,000 choices; a fault at 5.1 standard deviations, 1e-6 for each arm."""
    learner = tacit.Learner(tacit.policies.ShiftMixture(3, notice_within=200), seed=1)
    for _ in range(60):
        decision = learner.choose("query")
        learner.learn(decision, float(decision.arm == 1))
    assert_propensities_are_frequencies(learner, 40_000)


def test_a_change_in_what_is_not_shown_is_noticed_in_time():
    """An arm rises from 0.2 to 0.8, beside one of 0.5, after 10,000 rounds. Noticed within 600
    rounds in nine of ten runs, it is shown in most of the 300 after them; fewer than 12 of 20
    such runs would have a probability below 1e-3."""
    clicks = [[0.5, 0.2, 0.1, 0.1], [0.5, 0.8, 0.1, 0.1]]
    environment = tacit.ShiftingArms(arms=4, events=[10_001], clicks=clicks)
    result = tacit.simulate(
        tacit.policies.ShiftMixture(4, notice_within=600),
        environment,
        10_900,
        runs=20,
        seed=6,
        checkpoints=[10_600, 10_900],
    )
    assert np.count_nonzero((np.diff(result.regret[0], axis=1)[:, 0] / 300) < 0.15) >= 12


# What it is good for -------------------------------------------------------------------------


def test_shifts_cost_it_little():
    """Three shifts in 3,000 rounds: against Thompson sampling by two standard errors."""
    environment = tacit.ShiftingArms(arms=5, events=3)
    gap = tacit.simulate(
        [tacit.policies.ShiftMixture(5), tacit.Thompson(5)], environment, 3000, runs=12, seed=2
    ).compare(0, 1)
    assert gap.difference + 2 * gap.standard_error < 0


def test_learners_of_other_keys_add_up_what_they_share():
    """Two learners that add up what they share fit the priors that one of all keys does."""
    policy, rng = tacit.policies.ShiftMixture(3), np.random.default_rng(4)
    together, *apart = [tacit.Learner(policy, seed=seed) for seed in range(3)]
    for number in range(60):
        for _ in range(15):
            arm = int(rng.integers(3))
            reward = float(rng.random() < (0.1, 0.3, 0.5)[arm])
            for learner in (together, apart[number % 2]):
                learner.learn(learner.choose(f"key {number}", arms=[arm]), reward)
    sums = [{k: a.copy() for k, a in read_shared_sums(policy, each.state).items()} for each in apart]
    add_shared(apart[0], sums[1])
    assert together.state.shared.priors.rounds[0] == apart[0].state.shared.priors.rounds[0] == 900
    np.testing.assert_array_equal(*[each.state.shared.priors.tails for each in (together, apart[0])])
    for learner in (together, apart[0]):
        for _ in range(40):
            learner.loops.refit(learner.loops.params, learner.state)
    np.testing.assert_allclose(*[each.state.shared.priors.beta for each in (together, apart[0])], rtol=1e-3)
