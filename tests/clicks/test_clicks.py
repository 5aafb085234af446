"""Click models: exact probabilities, simulation, and fits to logs."""

import itertools
import math
import warnings

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from tacit.clicks import (
    Cascade,
    DependentClick,
    DynamicBayesian,
    PositionBased,
    informational,
    navigational,
    perfect,
    perplexity,
)
from tacit.errors import AssumptionWarning

chances = st.floats(0.0, 1.0)
KINDS, POSITIONS = 3, 4


@st.composite
def models(draw):
    """Any model of three kinds and four positions."""
    attraction = draw(st.lists(chances, min_size=KINDS, max_size=KINDS))
    by_kind = draw(st.lists(chances, min_size=KINDS, max_size=KINDS))
    by_position = draw(st.lists(chances, min_size=POSITIONS, max_size=POSITIONS))
    return draw(
        st.sampled_from(
            [
                PositionBased(attraction, by_position),
                Cascade(attraction),
                DependentClick(attraction, by_position),
                DynamicBayesian(attraction, by_kind, by_position[0]),
            ]
        )
    )


def users(model, shown):
    """Every user of a list: what is clicked and where reading ends, with the probability."""
    if isinstance(model, PositionBased):
        for examined, attracted in itertools.product(itertools.product([0, 1], repeat=len(shown)), repeat=2):
            chance = 1.0
            for i, kind in enumerate(shown):
                for value, p in ((examined[i], model.examination[i]), (attracted[i], model.attraction[kind])):
                    chance *= p if value else 1.0 - p
            yield tuple(e & a for e, a in zip(examined, attracted, strict=True)), chance
        return
    for length in range(1, len(shown) + 1):
        for clicks in itertools.product([0, 1], repeat=length):
            chance = 1.0
            for i, clicked in enumerate(clicks):
                kind = shown[i]
                attraction = model.attraction[kind]
                chance *= attraction if clicked else 1.0 - attraction
                if isinstance(model, Cascade):
                    onward = 0.0 if clicked else 1.0
                elif isinstance(model, DependentClick):
                    onward = model.continuation[i] if clicked else 1.0
                else:
                    onward = model.persistence
                    onward *= 1.0 - model.satisfaction[kind] if clicked else 1.0
                if i < length - 1:
                    chance *= onward
                elif length < len(shown):
                    chance *= 1.0 - onward
            yield clicks + (0,) * (len(shown) - length), chance


@examples(60)
@given(models(), st.lists(st.integers(0, KINDS - 1), min_size=POSITIONS, max_size=POSITIONS))
def test_probabilities_are_those_of_all_users(model, shown):
    law = dict.fromkeys(itertools.product([0, 1], repeat=POSITIONS), 0.0)
    for clicks, chance in users(model, shown):
        law[clicks] += chance
    assert math.isclose(sum(law.values()), 1.0)
    marginal = sum(chance * np.array(clicks) for clicks, chance in law.items())
    assert np.allclose(model.click_probabilities(shown), marginal)
    for clicks, chance in law.items():
        found = math.exp(model.log_likelihood(shown, clicks))
        assert math.isclose(found, chance, rel_tol=1e-6, abs_tol=1e-12)
        above = {c: p for c, p in law.items() if c[:2] == clicks[:2]}
        if sum(above.values()) > 1e-9:
            expected = sum(p for c, p in above.items() if c[2]) / sum(above.values())
            conditional = model.conditional_probabilities(shown, clicks)[2]
            assert math.isclose(conditional, expected, rel_tol=1e-5, abs_tol=1e-9)


MODELS = [
    PositionBased([0.2, 0.5, 0.9], [1.0, 0.7, 0.5, 0.3]),
    Cascade([0.1, 0.2, 0.5]),
    DependentClick([0.2, 0.4, 0.7], [0.8, 0.6, 0.4]),
    DynamicBayesian([0.3, 0.5, 0.8], [0.2, 0.5, 0.7], 0.85),
]


def simulated(model, count, seed=11):
    """A log of random lists of one to four results."""
    rng = np.random.default_rng(seed)
    shown = rng.integers(0, KINDS, (count, POSITIONS))
    shown[np.arange(POSITIONS) >= rng.integers(2, POSITIONS + 1, count)[:, None]] = -1
    return shown, model.simulate(shown, rng)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_simulated_clicks_follow_the_probabilities(model):
    shown = np.array([2, 0, 1, 2])
    clicks = model.simulate(np.tile(shown, (40_000, 1)), np.random.default_rng(3))
    expected = model.click_probabilities(shown)
    # Five standard deviations, 4 positions, 4 models: 1e-5 in all.
    assert (abs(clicks.mean(axis=0) - expected) < 5 * np.sqrt(expected / 40_000)).all()
    patterns, counts = np.unique(clicks, axis=0, return_counts=True)
    for pattern, count in zip(patterns, counts, strict=True):
        chance = math.exp(model.log_likelihood(shown, pattern))
        assert abs(count - 40_000 * chance) < 5 * math.sqrt(40_000 * chance) + 1


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_a_fit_finds_the_parameters_again_and_never_loses_likelihood(model):
    shown, clicks = simulated(model, 40_000)
    fit = type(model).fit(shown, clicks)
    assert fit.converged
    assert (np.diff(fit.log_likelihoods) >= -1e-7 * abs(fit.log_likelihoods[-1])).all()
    # No parameters are likelier than the fitted ones, the true ones included.
    truth = model.log_likelihood(shown, clicks).sum()
    assert fit.log_likelihoods[-1] >= truth - 1e-3
    # Twice the gain is chi-square with at most 7 degrees of freedom: above 40 with chance 1.3e-6.
    assert 2 * (fit.log_likelihoods[-1] - truth) < 40
    for field in model.__dataclass_fields__:
        found, true = np.array(getattr(fit.model, field)), np.array(getattr(model, field))
        assert np.abs(found - true).max() < 0.03, field


@pytest.mark.parametrize(
    ("family", "shared", "truth"),
    [
        (PositionBased, {"examination": [1.0, 0.6, 0.4, 0.3]}, [1.0, 0.6, 0.4, 0.3]),
        (DependentClick, {"continuation": [0.8, 0.6, 0.5]}, [0.8, 0.6, 0.5]),
        (DynamicBayesian, {"persistence": 0.8}, 0.8),
    ],
)
def test_kinds_that_are_seen_once_do_not_bias_what_all_share(family, shared, truth):
    """80 % of sessions show kinds that no other shows, which with an attraction each fit any examination."""
    rng = np.random.default_rng(5)
    shown = np.arange(20, 20 + 8000 * POSITIONS).reshape(8000, POSITIONS)
    repeated = rng.random(8000) < 0.2
    shown[repeated] = rng.permuted(np.tile(np.arange(20), (repeated.sum(), 1)), axis=1)[:, :POSITIONS]
    attraction = rng.beta(1.5, 1.5, shown.max() + 1)
    if family is DynamicBayesian:
        shared = shared | {"satisfaction": np.full(len(attraction), 0.4)}
    model = family(attraction, **shared)
    with warnings.catch_warnings(action="error"):
        fit = family.fit(shown, model.simulate(shown, rng))
    assert np.array(getattr(fit.model, next(iter(shared)))) == pytest.approx(truth, abs=0.12)
    assert (np.diff(fit.log_likelihoods) >= -1e-7 * abs(fit.log_likelihoods[-1])).all()
    assert np.abs(np.array(fit.model.attraction) - attraction)[:20].mean() < 0.08


def test_kinds_that_never_change_places_are_told():
    with pytest.warns(AssumptionWarning, match=r"seen at position 1 and elsewhere, .* and 0\.5 is taken"):
        fit = PositionBased.fit([[0, 1], [0, 1]], [[1, 0], [0, 1]])
    assert fit.model.examination[1] == 0.5


def test_a_cascade_fit_by_hand():
    # Kind 0: examined in sessions 1, 2 and 3, clicked in 2. Kind 1: examined in 1 only, clicked.
    fit = Cascade.fit([[0, 1], [0, 1], [0, -1]], [[0, 1], [1, 0], [0, 0]])
    assert np.allclose(fit.model.attraction, [1 / 3, 1.0])
    assert math.isclose(fit.log_likelihoods[-1], math.log(2 / 3 * 1 / 3 * 2 / 3))


def test_a_dependent_click_fit_counts_reading_on_in_vain():
    """Two results that always attract: what happens below a click tells the continuation."""
    fit = DependentClick.fit(np.zeros((10, 2), int), np.array([[1, 1]] * 3 + [[1, 0]] * 7))
    # Below a click 3 of 10 are clicked, at the top 10 of 10: 3/10, and without its mean error 3/11.
    assert math.isclose(fit.model.attraction[0] * fit.model.continuation[0], 3 / 11, abs_tol=1e-3)
    assert math.isclose(fit.model.attraction[0], 1.0, abs_tol=1e-3)


def test_what_the_log_does_not_tell_stays_at_one_half():
    fit = DynamicBayesian.fit([[0, 0], [0, 0]], [[0, 0], [0, 1]], kinds=2)
    assert fit.model.attraction[1] == fit.model.satisfaction[1] == 0.5
    assert fit.model.satisfaction[0] == 0.5  # no click that anything follows


def test_persistence_can_be_given():
    model = DynamicBayesian([0.3, 0.5, 0.8], [0.2, 0.5, 0.7])
    shown, clicks = simulated(model, 20_000)
    fit = DynamicBayesian.fit(shown, clicks, persistence=1.0)
    assert fit.model.persistence == 1.0
    assert np.abs(np.array(fit.model.satisfaction) - model.satisfaction).max() < 0.04


def test_perplexity_by_hand():
    model = PositionBased(attraction=[0.5], examination=[1.0, 0.5])
    # Position 2 has 1/4: one click in four sessions is 2^-(log2(1/4) + 3·log2(3/4))/4.
    found = perplexity(model, [[0, 0]] * 4, [[1, 1], [1, 0], [0, 0], [0, 0]])
    assert np.allclose(found, [2.0, (1 / 4 * (3 / 4) ** 3) ** (-1 / 4)])
    cascade = Cascade([0.5])
    log = [[0, 0], [0, 0]], [[1, 0], [0, 1]]
    assert np.allclose(perplexity(cascade, *log), [2.0, (3 / 4 * 1 / 4) ** (-1 / 2)])
    # Below a click nothing can surprise; without one there is 1/2.
    assert np.allclose(perplexity(cascade, *log, conditional=True), [2.0, math.sqrt(2.0)])
    assert perplexity(cascade, [[0, 0]], [[1, 1]], conditional=True)[1] == math.inf
    assert np.isnan(perplexity(cascade, [[0, -1]], [[1, 0]])[1])


def test_the_right_model_is_least_surprised():
    shown, clicks = simulated(MODELS[3], 20_000)
    test_shown, test_clicks = simulated(MODELS[3], 20_000, seed=12)
    surprise = {
        kind.__name__: perplexity(
            kind.fit(shown, clicks).model, test_shown, test_clicks, conditional=True
        ).mean()
        for kind in (PositionBased, DependentClick, DynamicBayesian)
    }
    assert min(surprise, key=surprise.get) == "DynamicBayesian"


def test_users_of_the_literature():
    for user in (perfect, navigational, informational):
        for grades in (2, 3, 5):
            assert user(grades).kinds == grades
            assert list(user(grades).attraction) == sorted(user(grades).attraction)
    assert perfect().attraction == (0.0, 0.2, 0.4, 0.8, 1.0)
    for user, attraction, satisfaction in [
        (navigational, (0.05, 0.3, 0.5, 0.7, 0.95), (0.2, 0.3, 0.5, 0.7, 0.9)),
        (informational, (0.4, 0.6, 0.7, 0.8, 0.9), (0.1, 0.2, 0.3, 0.4, 0.5)),
    ]:
        assert (user().attraction, user().satisfaction) == (attraction, satisfaction)


def test_one_row_is_one_session():
    model, rng = MODELS[3], np.random.default_rng(1)
    assert model.simulate([0, 1, -1], rng).shape == (3,)
    assert model.click_probabilities([0, 1, -1])[2] == 0.0
    assert model.log_likelihood([0, 1], [1, 0]).shape == ()
