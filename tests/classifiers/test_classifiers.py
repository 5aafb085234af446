"""Safe classifiers: small cases by hand, safety, mistake bounds, exact distances, joins."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from tacit import classifiers
from tacit.classifiers.hyperplane import get_row, hull_distance
from tacit.core.dispatch import learn_false, predict
from tacit.errors import InvalidValue

pytestmark = pytest.mark.interpreted

unit = st.floats(0.0, 1.0)
seeds = st.integers(0, 2**32)


def points(dim, least=0, most=8):
    """Give lists of contexts in the unit box."""
    return st.lists(st.lists(unit, min_size=dim, max_size=dim), min_size=least, max_size=most)


def taught(classifier, contexts):
    """Return the safe classifier that has learned that the contexts were no events."""
    safe = classifiers.SafeClassifier(classifier)
    for context in contexts:
        safe.learn_false(context)
    return safe


def false_positives(classifier, contexts):
    """Play the prediction game in which no context is an event; return the mistakes."""
    safe = classifiers.SafeClassifier(classifier)
    for context in contexts:
        if safe.predict(context):
            safe.learn_false(context)
    return safe.false_labels


# Small cases by hand ------------------------------------------------------------------------

KINDS = [
    classifiers.Rectangle(dim=2, margin=0.1),
    classifiers.Rectangle(dim=2, margin=0.1, anchored=True),
    classifiers.Hyperplane(dim=2, margin=0.1),
]
each_kind = pytest.mark.parametrize("classifier", KINDS, ids=str)


@each_kind
def test_everything_may_be_an_event_before_the_first_label(classifier):
    safe = classifiers.SafeClassifier(classifier)
    assert safe.predict_many([[0, 0], [0.5, 0.5], [1, 1]]).tolist() == [True, True, True]
    assert safe.positives == 3
    assert safe.false_labels == 0


@each_kind
def test_a_labelled_context_and_its_neighbourhood_are_negative_ties_included(classifier):
    reach = 0.1 if isinstance(classifier, classifiers.Rectangle) else 0.2
    safe = taught(classifier, [[0.3, 0.3]])
    above = [[0.3, 0.3], [0.3 + reach, 0.3], [0.3 + reach + 1e-9, 0.3]]
    assert safe.predict_many(above).tolist() == [False, False, True]


def test_rectangle_is_the_smallest_box_grown_by_the_margin():
    safe = taught(classifiers.Rectangle(dim=2, margin=0.1), [[0.2, 0.6], [0.4, 0.3]])
    # The box is [0.2, 0.4] × [0.3, 0.6]; its corners count, and so do the grown box's.
    assert not safe.predict_many([[0.2, 0.3], [0.1, 0.2], [0.5, 0.7], [0.3, 0.45]]).any()
    assert safe.predict_many([[0.09, 0.4], [0.3, 0.19], [0.51, 0.5], [0.3, 0.71]]).all()
    np.testing.assert_array_equal(safe.state.low, [[0.2, 0.3]])
    np.testing.assert_array_equal(safe.state.high, [[0.4, 0.6]])


def test_an_anchored_rectangle_reaches_down_to_zero():
    contexts = [[0.0, 0.0], [0.0, 0.55], [0.52, 0.0], [0.1, 0.8]]
    assert taught(classifiers.Rectangle(2, 0.1, anchored=True), [[0.5, 0.6]]).predict_many(
        contexts
    ).tolist() == [False, False, False, True]
    assert taught(classifiers.Rectangle(2, 0.1), [[0.5, 0.6]]).predict_many(contexts).all()


def test_hyperplane_measures_the_distance_from_the_hull_not_from_its_points():
    safe = taught(classifiers.Hyperplane(dim=2, margin=0.05), [[0.2, 0.2], [0.8, 0.2], [0.2, 0.8]])
    # Inside the triangle, over a leg, over the hypotenuse (x + y = 1), and beyond a corner.
    assert not safe.predict([0.4, 0.4])
    assert not safe.predict([0.5, 0.1])
    assert safe.predict([0.5, 0.09])
    along = 0.5 + 0.1 / math.sqrt(2)
    assert not safe.predict([along, along])
    assert safe.predict([along + 1e-9, along])
    assert safe.predict([0.88, 0.139])
    assert not safe.predict([0.88, 0.141])


def test_finite_concepts_rule_out_those_that_a_label_contradicts():
    safe = classifiers.SafeClassifier(
        classifiers.FiniteConcepts([[+1, -1, +1, -1], [-1, +1, 0, -1], [-1, -1, 0, +1]])
    )
    assert [safe.predict([x]) for x in range(4)] == [True, True, True, True]
    safe.learn_false([1])
    assert [safe.predict([x]) for x in range(4)] == [True, False, True, True]
    # A concept under which a context cannot occur is contradicted by seeing it.
    safe.learn_false([2])
    assert [safe.predict([x]) for x in range(4)] == [False, False, False, False]


def test_a_context_that_no_concept_calls_an_event_is_negative_from_the_start():
    assert not classifiers.SafeClassifier(classifiers.FiniteConcepts([[1, -1], [1, 0]])).predict([1])


def test_finite_concepts_from_predicates():
    assert classifiers.FiniteConcepts.from_predicates(
        [lambda x: x > 2, lambda x: None if x == 2 else x < 2], contexts=[1, 2, 3]
    ).table == ((-1, -1, 1), (1, 0, -1))


def test_a_kernel_takes_an_unknown_number_for_a_possible_event():
    classifier = classifiers.FiniteConcepts([[-1, -1]])
    state = classifier.init(1)
    for number in (-1.0, 2.0, 1e300):
        learn_false(classifier.params, state, 0, np.array([number]))
        assert predict(classifier.params, state, 0, np.array([number]))
    assert state.consistent.all()


@each_kind
def test_rows_learn_on_their_own(classifier):
    state = classifier.init(3)
    learn_false(classifier.params, state, 1, np.array([0.5, 0.5]))
    answers = [predict(classifier.params, state, row, np.array([0.5, 0.5])) for row in range(3)]
    assert answers == [True, False, True]


# A finite class is the definition itself: the others must agree with it ----------------------


@pytest.mark.parametrize("anchored", [False, True])
@given(labels=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=4))
@examples(20)
def test_a_rectangle_does_what_its_concept_class_on_a_grid_says(anchored, labels):
    grid = list(itertools.product(range(5), repeat=2))
    sides = [(a, b) for a in range(5) for b in range(a, 5) if a == 0 or not anchored]

    def box(first, second):
        def says(x):
            outside = max(max(a - c, c - b) for c, (a, b) in zip(x, (first, second), strict=True))
            return False if outside <= 0 else True if outside > 1 else None

        return says

    boxes = [box(*pair) for pair in itertools.product(sides, repeat=2)]
    by_definition = taught(
        classifiers.FiniteConcepts.from_predicates(boxes, grid), [[grid.index(label)] for label in labels]
    )
    # Steps of 1/4 and a margin of 0.3: farther than the margin is farther than one step.
    rectangle = taught(classifiers.Rectangle(2, 0.3, anchored=anchored), np.array(labels) / 4)
    np.testing.assert_array_equal(
        rectangle.predict_many(np.array(grid) / 4), by_definition.predict_many(np.arange(25)[:, None])
    )


# Safety: with correct labels, never a false negative -----------------------------------------


@given(seed=seeds, dim=st.integers(1, 6), margin=st.floats(0.01, 0.4), anchored=st.booleans())
@examples(60)
def test_rectangle_never_misses_an_event(seed, dim, margin, anchored):
    rng = np.random.default_rng(seed)
    low, high = np.sort(rng.random((2, dim)) * (1.0 - margin), axis=0)
    if anchored:
        low[:] = 0.0
    safe = taught(classifiers.Rectangle(dim, margin, anchored), rng.uniform(low, high, (20, dim)))
    contexts = rng.random((200, dim))
    outside = np.maximum(low - contexts, contexts - high).max(axis=1)
    assert safe.predict_many(contexts)[outside > margin + 1e-9].all()


@given(seed=seeds, dim=st.integers(1, 6), margin=st.floats(0.01, 0.2))
@examples(60)
def test_hyperplane_never_misses_an_event(seed, dim, margin):
    rng = np.random.default_rng(seed)
    normal = rng.normal(size=dim)
    normal /= np.linalg.norm(normal)
    contexts = rng.random((300, dim))
    height = (contexts - 0.5) @ normal
    events = contexts[height >= margin]
    safe = taught(classifiers.Hyperplane(dim, margin, capacity=8), contexts[height < -margin][:30])
    assert safe.predict_many(events).all()


tables = st.integers(1, 5).flatmap(
    lambda width: st.lists(
        st.lists(st.sampled_from([-1, 0, 1]), min_size=width, max_size=width), min_size=1, max_size=6
    )
)


@given(table=tables, data=st.data())
@examples(60)
def test_finite_concepts_never_miss_an_event(table, data):
    truth = data.draw(st.sampled_from(table))
    labels = [[x] for x, says in enumerate(truth) if says == -1 and data.draw(st.booleans())]
    safe = taught(classifiers.FiniteConcepts(table), labels)
    assert all(safe.predict([x]) for x, says in enumerate(truth) if says == 1)


# The diameter bounds the false positives -----------------------------------------------------


@pytest.mark.parametrize("anchored", [False, True])
@pytest.mark.parametrize(
    ("dim", "margin", "diameter"), [(1, 0.1, 10), (3, 0.1, 28), (2, 0.3, 7), (4, 1.0, 1)]
)
def test_rectangle_diameter_is_reached(dim, margin, diameter, anchored):
    """From the origin, steps just above the margin along one axis after another."""
    classifier = classifiers.Rectangle(dim, margin, anchored)
    assert classifier.diameter == diameter
    steps = (diameter - 1) // dim
    path = [np.zeros(dim)]
    path += [axis * i / steps for axis in np.eye(dim) for i in range(1, steps + 1)]
    assert false_positives(classifier, path) == diameter


@given(seed=seeds, dim=st.integers(1, 3), margin=st.floats(0.03, 0.5), anchored=st.booleans())
@examples(80)
def test_diameters_are_never_exceeded(seed, dim, margin, anchored):
    rng = np.random.default_rng(seed)
    # Growing from the middle meets the most sides.
    contexts = 0.5 + (rng.random((300, dim)) - 0.5) * np.linspace(0, 1, 300)[:, None]
    for classifier in (classifiers.Rectangle(dim, margin, anchored), classifiers.Hyperplane(dim, margin)):
        assert false_positives(classifier, contexts) <= classifier.diameter


def test_hyperplane_diameter_by_hand():
    assert classifiers.Hyperplane(dim=1, margin=0.25).diameter == pytest.approx(3.0)
    assert classifiers.Hyperplane(dim=4, margin=0.5).diameter == pytest.approx(81.0)
    assert classifiers.Hyperplane(dim=2000, margin=0.01).diameter == math.inf
    # On a line the bound is 1 + 1/0.48 = 3.08, and three points farther than 0.48 apart fit.
    assert false_positives(classifiers.Hyperplane(1, 0.24), [[0.0], [0.5], [1.0]]) == 3


def longest_game(table):
    """Return the length of the longest sequence of definition 3, by trying all sequences."""
    best = 0
    for sequence in itertools.permutations(range(len(table[0]))):
        for length in range(best + 1, len(sequence) + 1):
            if not all(
                any(f[x] == 1 and all(f[y] == -1 for y in sequence[:t]) for f in table)
                for t, x in enumerate(sequence[:length])
            ):
                break
            best = length
    return best


@given(table=tables)
@examples(80)
def test_finite_diameter_is_that_of_definition_3(table):
    assert classifiers.FiniteConcepts(table).diameter == longest_game(table)


@given(table=tables, seed=seeds)
@examples(40)
def test_finite_diameter_is_never_exceeded(table, seed):
    classifier = classifiers.FiniteConcepts(table)
    order = np.random.default_rng(seed).permutation(len(table[0]))
    assert false_positives(classifier, order[:, None]) <= classifier.diameter


def test_the_diameter_of_a_large_class_is_a_bound():
    thresholds = [lambda x, at=at: x > at for at in range(40)]
    assert classifiers.FiniteConcepts.from_predicates(thresholds, range(50)).diameter == 40
    assert classifiers.FiniteConcepts.from_predicates(thresholds[:10], range(50)).diameter == 10
    assert classifiers.FiniteConcepts([[-1, 0]]).diameter == 0


# Distances from the hull ----------------------------------------------------------------------


def distance(hull, context, near=0.0, far=math.inf):
    """Return the distance of a context from the hull of the points."""
    hull, context = np.asarray(hull, float), np.asarray(context, float)
    scratch = get_row(classifiers.Hyperplane(len(context), 0.1, capacity=1).init(1).scratch, 0)
    return hull_distance(scratch, hull, context, near, far, -1)


def reference_distance(hull, context):
    """Return the same by non-negative least squares.

    min ‖A·λ‖² + (1 − Σλ)² over λ ≥ 0, with the differences as columns of A, is attained at a
    multiple of the weights of the nearest point.
    """
    differences = (np.asarray(hull) - context).T
    system = np.vstack([differences, np.ones(differences.shape[1])])
    weights, _ = nnls(system, np.append(np.zeros(len(differences)), 1.0), maxiter=10_000)
    return float(np.linalg.norm(differences @ (weights / weights.sum())))


def test_hull_distances_by_hand():
    triangle = [[0, 0], [1, 0], [0, 1]]
    assert distance(triangle, [0.25, 0.25]) <= 1e-13
    assert distance(triangle, [1, 1]) == pytest.approx(math.sqrt(0.5), abs=1e-15)
    assert distance(triangle, [0.5, -0.25]) == pytest.approx(0.25, abs=1e-15)
    assert distance(triangle, [4, -4]) == pytest.approx(5.0, abs=1e-14)
    cross = [[0, 0.5, 0.5], [1, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 1, 0.5]]
    assert distance(cross, [0.5, 0.5, 0.8]) == pytest.approx(0.3, abs=1e-15)
    assert distance([[0.3, 0.4]], [0, 0]) == pytest.approx(0.5, abs=1e-15)
    assert distance(np.empty((0, 2)), [0, 0]) == math.inf


def uniform(rng, count, dim):
    return rng.random((count, dim))


def collinear(rng, count, dim):
    return 0.1 + rng.random((count, 1)) * np.linspace(0.1, 0.9, dim)


def coplanar(rng, count, dim):
    return rng.random((count, 2)) @ rng.random((2, dim)) / 2


def duplicates(rng, count, dim):
    return rng.random((count, dim))[rng.integers(0, max(1, count // 3), count)]


def near_duplicates(rng, count, dim):
    noise = rng.normal(size=(count, dim)) * 10.0 ** rng.integers(-16, -5, (count, 1))
    return duplicates(rng, count, dim) + noise


def lattice(rng, count, dim):
    return rng.integers(0, 3, (count, dim)) / 2


@pytest.mark.parametrize("shape", [uniform, collinear, coplanar, duplicates, near_duplicates, lattice])
@pytest.mark.parametrize("dim", [1, 2, 5, 12])
def test_hull_distance_is_that_of_a_reference(shape, dim):
    rng = np.random.default_rng(dim)
    for count in (1, 2, dim + 1, 25):
        hull = shape(rng, count, dim)
        near_the_hull = hull.mean(axis=0) + 1e-3 * rng.normal(size=dim)
        for context in (rng.random(dim), shape(rng, 1, dim)[0], near_the_hull, hull[-1]):
            expected = reference_distance(hull, context)
            assert distance(hull, context) == pytest.approx(expected, rel=0, abs=1e-12)


@given(hull=points(3, least=1), context=st.lists(unit, min_size=3, max_size=3), reach=unit)
@examples(60)
def test_a_hull_distance_that_ends_early_is_on_the_right_side(hull, context, reach):
    exact, early = distance(hull, context), distance(hull, context, near=reach, far=reach)
    if abs(exact - reach) > 1e-12:
        assert (early > reach) == (exact > reach)
    assert early >= exact - 1e-13 if early <= reach else early <= exact + 1e-13


@given(hull=points(2, least=1), contexts=points(2, least=1), margin=st.floats(0.01, 0.4))
@examples(40)
def test_hyperplane_predicts_by_the_distance_from_all_labels(hull, contexts, margin):
    positive = taught(classifiers.Hyperplane(2, margin), hull).predict_many(contexts)
    distances = np.array([distance(hull, context) for context in contexts])
    clear = np.abs(distances - 2 * margin) > 2e-12
    np.testing.assert_array_equal(positive[clear], (distances > 2 * margin)[clear])


# Capacity -----------------------------------------------------------------------------------

CORNERS = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]


def test_what_is_inside_the_hull_takes_no_room():
    inner = [[0.5, 0.2], [0.3, 0.5]]
    for labels in (CORNERS + inner + CORNERS, inner + CORNERS + inner):
        safe = taught(classifiers.Hyperplane(dim=2, margin=0.01, capacity=4), labels)
        assert sorted(safe.state.points[0, :4].tolist()) == sorted(CORNERS)
        assert safe.state.dropped[0] == 0
    assert taught(classifiers.Hyperplane(dim=2, margin=0.01), CORNERS + inner).state.held[0] == 4


def test_beyond_capacity_the_hull_loses_the_least_it_can():
    # Without (0.5, 1) the hull of the others comes as near as 0.1 to it; others are far.
    labels = [[0.0, 0.9], [0.0, 0.0], [1.0, 0.0], [1.0, 0.9], [0.5, 1.0]]
    for order in itertools.islice(itertools.permutations(labels), 0, 120, 13):
        safe = taught(classifiers.Hyperplane(dim=2, margin=0.02, capacity=4), order)
        assert safe.state.dropped[0] == 1
        assert safe.state.held[0] == 4
        assert safe.predict([0.5, 1.0])
        assert not safe.predict_many(labels[:4]).any()


def test_a_full_hull_is_still_safe():
    rng = np.random.default_rng(3)
    labels = rng.random((60, 3))
    small, whole = (taught(classifiers.Hyperplane(3, 0.02, capacity=c), labels) for c in (5, 100))
    contexts = rng.random((500, 3))
    assert small.state.dropped[0] > 0
    assert small.predict_many(contexts)[whole.predict_many(contexts)].all()


# Joins ----------------------------------------------------------------------------------------


def same_predictions(first, second, contexts):
    return (first.predict_many(contexts) == second.predict_many(contexts)).all()


def join(*parts):
    """Merge into a fresh copy, from the left."""
    joined = classifiers.SafeClassifier(parts[0].classifier)
    for part in parts:
        joined.merge(part)
    return joined


@each_kind
@given(first=points(2), second=points(2), third=points(2), seed=seeds)
@examples(25)
def test_merging_is_a_join(classifier, first, second, third, seed):
    a, b, c = (taught(classifier, labels) for labels in (first, second, third))
    contexts = np.random.default_rng(seed).random((100, 2))
    assert same_predictions(join(a, b), join(b, a), contexts)
    assert same_predictions(join(join(a, b), c), join(a, join(b, c)), contexts)
    assert same_predictions(join(a, a), a, contexts)
    assert same_predictions(join(a, b), taught(classifier, first + second), contexts)


@given(table=tables, data=st.data())
@examples(40)
def test_merging_finite_concepts_is_a_join(table, data):
    contexts = [[x] for x in range(len(table[0]))]
    labels = st.lists(st.sampled_from(contexts), max_size=3)
    first, second = data.draw(labels), data.draw(labels)
    a, b = taught(classifiers.FiniteConcepts(table), first), taught(classifiers.FiniteConcepts(table), second)
    assert same_predictions(join(a, b), taught(classifiers.FiniteConcepts(table), first + second), contexts)
    assert same_predictions(join(a, b), join(b, a), contexts)
    assert same_predictions(join(a, a), a, contexts)


@each_kind
def test_states_merge_row_by_row(classifier):
    first, second = classifier.init(2), classifier.init(2)
    learn_false(classifier.params, first, 0, np.array([0.1, 0.1]))
    learn_false(classifier.params, second, 1, np.array([0.9, 0.9]))
    joined = classifier.merge_states(first, second)
    ends = [np.array([0.1, 0.1]), np.array([0.9, 0.9])]
    answers = [[predict(classifier.params, joined, row, x) for x in ends] for row in range(2)]
    assert answers[0] == [False, True]
    assert not answers[1][1]


def test_merging_leaves_the_counts_and_the_other_one_alone():
    here, there = (taught(KINDS[2], [[x, x]]) for x in (0.2, 0.8))
    here.merge(there)
    assert (here.false_labels, here.positives) == (1, 0)
    assert not here.predict([0.5, 0.5])
    assert there.predict([0.5, 0.5])


def test_a_merge_beyond_capacity_is_counted():
    here = taught(classifiers.Hyperplane(dim=2, margin=0.01, capacity=3), CORNERS[:3])
    here.merge(taught(here.classifier, CORNERS[1:]))
    assert here.state.held[0] == 3
    assert here.state.dropped[0] == 1


def test_merging_refuses_other_hyperparameters():
    here = classifiers.SafeClassifier(classifiers.Rectangle(2, 0.1))
    for other in (
        classifiers.SafeClassifier(classifiers.Rectangle(2, 0.2)),
        classifiers.SafeClassifier(KINDS[2]),
        classifiers.Rectangle(2, 0.1),
    ):
        with pytest.raises(InvalidValue, match=r"merge only with one of Rectangle\(dim=2"):
            here.merge(other)


# The boundary ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "context", [[0.1], [0.1, 0.2, 0.3], [0.1, 1.1], [-0.1, 0.1], [0.1, math.nan], "ab", 0.1, None]
)
@each_kind
def test_contexts_that_do_not_fit_are_refused_and_change_nothing(classifier, context):
    safe = classifiers.SafeClassifier(classifier)
    with pytest.raises(InvalidValue, match=r"^context: "):
        safe.learn_false(context)
    with pytest.raises(InvalidValue, match=r"^context: "):
        safe.predict_many([[0.5, 0.5], context])
    assert (safe.positives, safe.false_labels) == (0, 0)
    assert safe.predict([0.5, 0.5])


def test_many_predictions_are_many_single_ones():
    rng = np.random.default_rng(5)
    safe = taught(KINDS[2], rng.random((5, 2)) / 2)
    contexts = rng.random((50, 2))
    assert safe.predict_many(contexts).tolist() == [safe.predict(x) for x in contexts]
    assert safe.predict_many(np.empty((0, 2))).shape == (0,)


@pytest.mark.parametrize("classifier", [*KINDS, classifiers.FiniteConcepts([[1, -1], [0, 1]])], ids=str)
def test_specs_round_trip(classifier):
    table = json.loads(json.dumps(classifiers.classifier_to_spec(classifier)))
    assert classifiers.classifier_from_spec(table) == classifier
    assert classifiers.classifier_from_spec(repr(classifier)) == classifier
    assert classifiers.classifier_from_spec(classifier) is classifier
    assert hash(classifiers.classifier_from_spec(table)) == hash(classifier)


def test_a_classifier_of_ones_own():
    from dataclasses import dataclass
    from typing import NamedTuple

    @dataclass(frozen=True)
    class Wary(classifiers.Classifier):
        """Take every context for an event."""

        class Params(NamedTuple):
            pass

        class State(NamedTuple):
            labels: np.ndarray

        def init(self, rows):
            return self.State(np.zeros(rows))

        @staticmethod
        def predict(params, state, row, context):
            return True

        @staticmethod
        def learn_false(params, state, row, context):
            state.labels[row] += 1

    safe = taught(Wary(dim=1), [[0.1], [0.1]])
    assert safe.predict([0.1])
    assert safe.state.labels.tolist() == [2]
