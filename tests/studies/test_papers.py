"""Inequalities that the appendices of Qi et al. (2018) number, on grids and draws."""

import numpy as np
import pytest

LOGITS = np.linspace(-8.0, 8.0, 81)


def rho(x):
    return 1.0 / (1.0 + np.exp(-x))


def g(x, xi):
    """Return the quadratic lower bound of log ρ(x) that is exact at |x| = ξ."""
    return x / 2 - xi / 2 + np.log(rho(xi)) - np.tanh(xi / 2) / (4 * xi) * (x**2 - xi**2)


def test_variational_bounds_are_below_the_likelihood():
    x_c, x_e = np.meshgrid(LOGITS, LOGITS)
    clicked = np.log(rho(x_c) * rho(x_e))
    skipped = np.log(1 - rho(x_c) * rho(x_e))
    for xi in (0.1, 1.0, 4.0):
        assert (np.log(rho(LOGITS)) >= g(LOGITS, xi) - 1e-12).all()
        assert np.log(rho(xi)) == pytest.approx(g(xi, xi))
        assert (clicked >= g(x_c, xi) + g(x_e, xi) - 1e-12).all()
        for q in (0.05, 0.5, 0.9):
            entropy = -q * np.log(q) - (1 - q) * np.log(1 - q)
            jensen = q * np.log((1 - rho(x_c)) * rho(x_e)) + (1 - q) * np.log(1 - rho(x_e))
            assert (skipped >= entropy + jensen - 1e-12).all()
            quadratic = q * g(-x_c, xi) + q * g(x_e, xi) + (1 - q) * g(-x_e, xi)
            assert (entropy + jensen >= entropy + quadratic - 1e-12).all()


def test_the_inequalities_of_appendix_a():
    p, q = np.meshgrid(np.linspace(0.01, 0.99, 99), np.linspace(0.01, 0.99, 99))
    assert ((p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))) >= 2 * (p - q) ** 2 - 1e-12).all()
    logs = np.abs(np.log(p) - np.log(q))
    assert (logs <= np.abs(p - q) / 0.01 + 1e-12).all()
    assert (logs >= np.abs(p - q) / 0.99 - 1e-12).all()
    x, y = np.meshgrid(LOGITS, LOGITS)
    assert (np.abs(rho(x) - rho(y)) <= np.abs(x - y) / 4 + 1e-12).all()
    scale, mean = np.meshgrid(np.linspace(-5, 5, 41), np.linspace(0.02, 0.98, 49))
    moment = mean * np.exp(scale * (1 - mean)) + (1 - mean) * np.exp(-scale * mean)
    assert (moment <= np.exp(scale**2 / 8) + 1e-12).all()  # lemmas 3 and 7, for C − f*
    assert (moment > scale**2 / 8).any()  # as lemma 3 is printed


def test_lemma_5_holds_as_often_as_it_says():
    """For one f at all times: L(f) − L(f*) ≥ ½·‖f − f*‖² − ln(1/δ)/λ₀ in a share 1 − δ of runs."""
    rng, delta = np.random.default_rng(1), 0.2
    least, most = 0.07, 0.54
    rate = 3 / (1 / least + 1 / (1 - most)) ** 2
    truth, estimate = rng.uniform(least, most, (2, 500, 300))
    clicks = rng.random(truth.shape) < truth

    def loss(f):
        return np.cumsum(-np.where(clicks, np.log(f), np.log(1 - f)), axis=1)

    gain = loss(estimate) - loss(truth) - 0.5 * np.cumsum((estimate - truth) ** 2, axis=1)
    assert (gain < -np.log(1 / delta) / rate).any(axis=1).mean() <= delta


def test_lemma_6_bounds_the_discretization():
    rng = np.random.default_rng(2)
    least, most, alpha = 0.07, 0.54, 0.01
    near = rng.uniform(least + alpha, most - alpha, 100_000)
    f, truth = near + rng.uniform(-alpha, alpha, near.size), rng.uniform(least, most, near.size)
    clicks = rng.random(near.size) < truth

    def loss(values):
        return -np.where(clicks, np.log(values), np.log(1 - values))

    change = 0.5 * (near - truth) ** 2 - 0.5 * (f - truth) ** 2 + loss(f) - loss(near)
    assert np.abs(change).max() <= alpha * (4 * most + 1 / min(least, 1 - most))
