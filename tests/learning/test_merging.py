"""Merging states: by hand, as algebra, and against one learner that has seen everything."""

from functools import reduce

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from policies_of_ones_own import Pooled

import tacit
from tacit.classifiers import FiniteConcepts, Rectangle
from tacit.learning.merging import (
    NaturalParameters,
    add_deltas,
    add_shared,
    compute_delta,
    join_states,
    merge_states,
    read_shared_sums,
    to_gaussian,
    to_natural,
)
from tacit.policies.base import Counts, Impression, Outcome
from tacit.policies.features.gaussian import Gaussian, apply_observation, dot, project

seeds = st.integers(0, 2**32)


def posterior(rng, steps, base=None, dim=3, lanes=2):
    """Return a posterior of linear observations with noise of variance 1, from a base on."""
    base = base or Gaussian.prior(lanes, dim, 2.0)
    mean, root = base.mean.copy(), base.root.copy()
    for lane in range(lanes):
        for _ in range(steps):
            x, y, v = rng.normal(size=dim), rng.normal(), np.zeros(dim)
            s = project(root[lane], x, v)
            apply_observation(mean[lane], root[lane], v, s, 1.0, (y - dot(mean[lane], x)) / (1.0 + s))
    return Gaussian(mean, root, np.zeros_like(base.room))


def the_same(first, second, tolerance=1e-9):
    for a, b in zip(to_natural(first), to_natural(second), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@examples(25)
@given(seeds, st.lists(st.integers(0, 12), min_size=1, max_size=4))
def test_natural_parameters_and_roots_say_the_same(seed, steps):
    state = posterior(np.random.default_rng(seed), sum(steps))
    again = to_gaussian(to_natural(state))
    np.testing.assert_allclose(again.mean, state.mean, rtol=1e-9, atol=1e-9)
    for ours, theirs in zip(again.root, state.root, strict=True):
        np.testing.assert_allclose(ours @ ours.T, theirs @ theirs.T, rtol=1e-9, atol=1e-9)


@examples(25)
@given(seeds, st.integers(0, 8), st.lists(st.integers(0, 8), min_size=3, max_size=3))
def test_adding_posteriors_is_associative_and_commutative_and_has_the_base_as_nothing(seed, before, steps):
    rng = np.random.default_rng(seed)
    base = posterior(rng, before)
    a, b, c = (posterior(rng, count, base) for count in steps)
    together = merge_states(base, [a, b, c])
    the_same(merge_states(base, [merge_states(base, [a, b]), c]), together)
    the_same(merge_states(base, [a, merge_states(base, [b, c])]), together)
    the_same(merge_states(base, [c, a, b]), together)
    the_same(merge_states(base, [a, base, b, c, base]), together)
    the_same(add_deltas(base, [compute_delta(a, base)]), a)


def test_linear_learners_merge_into_the_one_that_has_seen_everything():
    # The posterior of linear observations is a sum over them, whoever has seen which.
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(60, 3)), rng.normal(size=60)

    def learned(base, rows):
        mean, root = base.mean.copy(), base.root.copy()
        for i in rows:
            v = np.zeros(3)
            s = project(root[0], x[i], v)
            apply_observation(mean[0], root[0], v, s, 1.0, (y[i] - dot(mean[0], x[i])) / (1.0 + s))
        return Gaussian(mean, root, np.zeros_like(base.room))

    prior = Gaussian.prior(1, 3, 2.0)
    base = learned(prior, range(20))
    merged = merge_states(base, [learned(base, range(20 + i, 60, 4)) for i in range(4)])
    the_same(merged, learned(prior, range(60)))
    # And it is what the formula says.
    precision = np.eye(3) / 2.0 + x.T @ x
    np.testing.assert_allclose(to_natural(merged).precision[0], precision, rtol=1e-9)
    np.testing.assert_allclose(merged.mean[0], np.linalg.solve(precision, x.T @ y), rtol=1e-9)


def test_posteriors_by_hand():
    # Prior 1, two shards with precisions 3 and 2 around 1 and −1: 3 + 2 − 1 around (3 − 2)/4.
    prior = Gaussian.prior(1, 1, 1.0)
    shards = [
        to_gaussian(NaturalParameters(np.array([[[p]]]), np.array([[h]]))) for p, h in ((3, 3), (2, -2))
    ]
    merged = merge_states(prior, shards)
    assert to_natural(merged).precision.item() == pytest.approx(4.0)
    assert merged.mean.item() == pytest.approx(0.25)


@examples(25)
@given(seeds)
def test_counts_add(seed):
    rng = np.random.default_rng(seed)

    def counted(base):
        plays = base.plays + rng.integers(5, size=base.plays.shape)
        return Counts(plays, base.rewards + 0.5 * plays, plays.sum(axis=1))

    base = counted(Counts.zeros(2, 3))
    a, b, c = (counted(base) for _ in range(3))
    together = merge_states(base, [a, b, c])
    np.testing.assert_array_equal(together.plays, a.plays + b.plays + c.plays - 2 * base.plays)
    for order in ([b, c, a], [merge_states(base, [a, c]), b]):
        for ours, theirs in zip(merge_states(base, order), together, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_policies_learn_apart_what_one_would_learn():
    # UCB1 counts; what three shards count apart is what one counts of all.
    policy = tacit.UCB1(arms=2)
    rng, impression = np.random.default_rng(1), Impression(np.arange(2), np.zeros(0))
    rows = [(int(arm), float(reward)) for arm, reward in rng.integers(2, size=(30, 2))]

    def learned(state, rows):
        for arm, reward in rows:
            policy.learn(policy.params, state, 0, Outcome(impression, arm, reward, np.nan))
        return state

    apart = [learned(policy.init(1), rows[shard::3]) for shard in range(3)]
    for ours, theirs in zip(merge_states(policy.init(1), apart), learned(policy.init(1), rows), strict=True):
        np.testing.assert_array_equal(ours, theirs)


CLASSIFIERS = [Rectangle(2, margin=0.1), FiniteConcepts(((1, -1, -1, 0), (-1, 1, -1, 1), (-1, -1, 1, 1)))]


@pytest.mark.parametrize("classifier", CLASSIFIERS, ids=lambda one: type(one).__name__)
def test_joins_are_associative_commutative_and_idempotent(classifier):
    rng = np.random.default_rng(5)
    finite = isinstance(classifier, FiniteConcepts)
    tests = np.arange(4.0)[:, None] if finite else rng.random((200, 2))
    asked = tacit.classifiers.SafeClassifier(classifier)

    def learned():
        one = tacit.classifiers.SafeClassifier(classifier)
        for context in [[float(rng.integers(3))]] if finite else rng.random((6, 2)):
            one.learn_false(context)
        return one.state

    def says(state):
        asked.state = state
        return asked.predict_many(tests).tolist()

    for _ in range(5):
        a, b, c = (learned() for _ in range(3))
        together = says(join_states(classifier, [a, b, c]))
        for order in ([c, a, b], [a, a, b, c, b], [join_states(classifier, [b, c]), a, b]):
            assert says(join_states(classifier, order)) == together
        assert says(join_states(classifier, [a])) == says(join_states(classifier, [a, a])) == says(a)
        labels = reduce(np.logical_and, [says(a), says(b), says(c)])
        # What any of them takes for no event, the join does too.
        assert not (np.array(together) & ~labels).any()


# What all keys share -------------------------------------------------------------------------


def test_sums_of_all_keys_that_went_apart_are_those_of_one_fold(tmp_path):
    rng = np.random.default_rng(2)
    base, whole = (tacit.Learner(Pooled(3), seed=1) for _ in range(2))

    def learn(learner, name, count):
        for i in range(count):
            decision, reward = learner.choose(f"{name} {i % 7}"), rng.integers(5) / 4
            learner.learn(decision, reward)
            whole.learn(whole.choose(decision.key, arms=[decision.arm]), reward)

    learn(base, "before", 20)
    base.save(tmp_path / "base")
    begun = {name: sums.copy() for name, sums in read_shared_sums(base.policy, base.state).items()}
    assert list(begun) == ["shared.plays", "shared.rewards"]
    for number in range(3):
        apart = tacit.Learner.load(tmp_path / "base")
        learn(apart, f"part {number}", 30)
        sums = read_shared_sums(apart.policy, apart.state)
        add_shared(base, {name: array - begun[name] for name, array in sums.items()})
    for mine, its in zip(base.state.shared, whole.state.shared, strict=True):
        assert mine.tolist() == its.tolist()
    assert base.probabilities("new").tolist() == whole.probabilities("new").tolist()


@pytest.mark.parametrize("names", [("plays",), ("shared.play",), ("shared", "nothing"), ("lists",)])
def test_only_arrays_that_all_keys_share_are_named_as_sums(names, monkeypatch):
    monkeypatch.setattr(Pooled, "sums", names)
    with pytest.raises(TypeError, match=r"Pooled\.sums: '.*' is no array of float64 with one row"):
        read_shared_sums(Pooled(2), Pooled(2).init(1))
