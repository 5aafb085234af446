"""Gaussian posteriors kept by square roots: against linear algebra, integrals, and time."""

import math

import numba
import numpy as np
import pytest
from drawn import examples
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import special, stats

import tacit
from tacit.core.run_mode import compile_loop
from tacit.policies.features import gaussian
from tacit.policies.features.polya_gamma import draw_by_precision, draw_polya_gamma

LOGITS = st.floats(-700.0, 700.0)


@given(x=LOGITS)
@example(x=0.0)
@example(x=700.0)
@example(x=-700.0)
@example(x=1e-12)
def test_the_logistic_function_keeps_its_relative_precision(x):
    assert gaussian.sigmoid(x) == pytest.approx(special.expit(x), rel=1e-14)
    assert gaussian.log_sigmoid(x) == pytest.approx(special.log_expit(x), rel=1e-13, abs=1e-300)


@given(xi=LOGITS)
@example(xi=0.0)
@example(xi=1e-3)
@example(xi=-9.99e-4)
@example(xi=700.0)
def test_the_quadratic_bound_is_smooth_at_zero(xi):
    exact = 0.125 if xi == 0.0 else -math.tanh(-xi / 2) / (4 * xi)
    # Below 1e-150 the quotient itself is what loses digits.
    assert gaussian.jaakkola(xi) == pytest.approx(exact if abs(xi) > 1e-150 else 0.125, rel=2e-14)


@given(n=st.integers(0, 40), seed=st.integers(0, 1000))
def test_inner_products_of_any_length(n, seed):
    x, y = np.random.default_rng(seed).standard_normal((2, n + 3))
    assert gaussian.dot(x[:n], y) == pytest.approx(x[:n] @ y[:n], abs=1e-12)


@examples(40)
@given(dim=st.integers(1, 6), seed=st.integers(0, 10_000), scale=st.sampled_from([1e-3, 1.0, 1e3]))
def test_commits_are_those_of_the_information_form(dim, seed, scale):
    rng = np.random.default_rng(seed)
    own = gaussian.Gaussian.prior(1, dim, 2.0)
    mean, root, v = own.mean[0], own.root[0], own.room[0, 1]
    precision, linear = np.eye(dim) / 2.0, np.zeros(dim)
    for _ in range(20):
        x, c, b = scale * rng.standard_normal(dim), rng.random(), rng.standard_normal()
        s = gaussian.project(root, x, v)
        gaussian.apply_observation(mean, root, v, s, c, (b - c * (mean @ x)) / (1.0 + c * s))
        precision += c * np.outer(x, x)
        linear += b * x
    exact = np.linalg.inv(precision)
    np.testing.assert_allclose(root @ root.T, exact, atol=1e-9 * np.abs(exact).max() + 1e-13)
    np.testing.assert_allclose(mean, exact @ linear, atol=1e-7 * (np.abs(exact @ linear).max() + 1e-9))


def many_updates(mean, root, rows, precision, count):
    """Take in rows again and again."""
    v = np.zeros(len(mean))
    for n in range(count):
        x = rows[n % len(rows)]
        s = gaussian.project(root, x, v)
        gaussian.apply_observation(
            mean, root, v, s, precision, (0.5 - precision * gaussian.dot(mean, x)) / (1.0 + precision * s)
        )


@pytest.mark.parametrize("noise", [1.0, 1e-7], ids=["spread", "nearly collinear"])
def test_covariances_stay_positive_definite(noise):
    compile_loop(many_updates, tacit.policies.LaplaceEC(1, 1).params)
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((1, 8)) + noise * rng.standard_normal((64, 8))
    own = gaussian.Gaussian.prior(1, 8, 1.0)
    mean, root = own.mean[0], own.root[0]
    numba.njit(many_updates)(mean, root, rows, 0.25, 100_000)
    precision = np.eye(8) + 0.25 * sum(
        math.ceil((100_000 - n) / 64) * np.outer(row, row) for n, row in enumerate(rows)
    )
    told = gaussian.belief(mean, root)
    values = np.linalg.svd(root, compute_uv=False) ** 2
    assert (values > 0.0).all()
    exact = 1.0 / np.linalg.eigvalsh(precision)[::-1]
    np.testing.assert_allclose(np.sort(values), np.sort(exact), rtol=1e-6)
    assert told.condition == pytest.approx(exact.max() / exact.min(), rel=1e-5)
    np.linalg.cholesky(told.covariance)


def test_forgetting_never_exceeds_the_prior():
    own = gaussian.Gaussian.prior(1, 3, 2.0)
    root, v = own.root[0], own.room[0, 0]
    gaussian.fade(root, 0.5, 2.0)
    np.testing.assert_allclose(root @ root.T, 2.0 * np.eye(3))
    x = np.array([1.0, 0.0, 0.0])
    gaussian.apply_observation(own.mean[0], root, v, gaussian.project(root, x, v), 4.0, 0.0)
    before = root @ root.T
    gaussian.fade(root, 0.99, 2.0)
    np.testing.assert_allclose(root @ root.T, before / 0.99)
    for _ in range(1000):
        gaussian.fade(root, 0.9, 2.0)
    assert np.trace(root @ root.T) == pytest.approx(6.0)


@given(logit=st.floats(-50.0, 50.0), s=st.floats(0.0, 1e6), reward=st.floats(0.0, 1.0))
@example(logit=-40.0, s=1e6, reward=1.0)
@example(logit=0.0, s=0.0, reward=0.5)
def test_the_logistic_step_solves_its_equation(logit, s, reward):
    c, gain = gaussian.logistic_step(logit, s, reward)
    mode = logit + s * gain
    # The equation in terms of the mode; its slope is 1 + s·c.
    assert abs(mode - logit - s * (reward - gaussian.sigmoid(mode))) <= 1e-6 * (1.0 + s * c)
    assert 0.0 <= c <= 0.25


def test_polya_gamma_draws_have_the_known_moments():
    """Error probability 1e-6 per moment and tilt: 4.9 standard errors."""
    draws = 4000
    compile_loop(many_updates, tacit.policies.PolyaGammaTS(1, 1).params)

    def sample(tilt, rng, out):
        for i in range(len(out)):
            out[i] = draw_polya_gamma(tilt, rng)

    fast = numba.njit(sample)
    for tilt in (0.0, 0.5, 2.5, 8.0, 40.0):
        out = np.empty(draws)
        fast(tilt, np.random.default_rng(3), out)
        mean = 0.25 if tilt == 0.0 else math.tanh(tilt / 2) / (2 * tilt)
        assert abs(out.mean() - mean) < 4.9 * out.std() / math.sqrt(draws)
        # E exp(−a·ω) = cosh(tilt/2)/cosh(sqrt(tilt² + 2a)/2), for a = 1.
        exact = math.cosh(tilt / 2) / math.cosh(math.sqrt(tilt**2 + 2.0) / 2)
        told = np.exp(-out)
        assert abs(told.mean() - exact) < 4.9 * told.std() / math.sqrt(draws)


def test_draws_by_precision_are_gaussian():
    rng = np.random.default_rng(8)
    half = rng.standard_normal((3, 3))
    precision, linear = half @ half.T + np.eye(3), rng.standard_normal(3)
    exact = np.linalg.inv(precision)
    draws = np.empty((3000, 3))
    for theta in draws:
        draw_by_precision(precision.copy(), linear, rng, theta)
    # The squared distances have χ² with three degrees of freedom; error probability 1e-6.
    off = draws - exact @ linear
    assert stats.kstest(np.einsum("ni,ij,nj->n", off, precision, off), stats.chi2(3).cdf).pvalue > 1e-6
