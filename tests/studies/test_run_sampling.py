"""Runs of Beat-the-Mean and Interleaved Filter, drawn at once: their law is that of single comparisons."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy import stats

import tacit
from studies.run_sampling import sample_run
from studies.run_sampling.binomial import binomial, log_probability
from studies.run_sampling.result import charge
from tacit.core.dispatch import choose, learn
from tacit.core.run_mode import compile_loop
from tacit.environments import preferences
from tacit.policies.base import Outcome
from tests.policies.test_dueling import of_radius


def duel(params, state, impression, matrix, gaps, horizon, rng, totals):
    """Play a policy one comparison at a time."""
    for _ in range(horizon):
        left, right = choose(params, state, 0, impression, rng)
        won = 1.0 if rng.random() < matrix[left, right] else 0.0
        charge(totals, gaps[left], gaps[right], 1.0, won)
        learn(params, state, 0, Outcome(impression, (left, right), won, np.nan))


def stepped(policy, matrix, horizon, rng):
    """Return the outcome of one run, played one comparison at a time."""
    state, totals = policy.init(1), np.zeros(4)
    impression = tacit.Impression(np.arange(policy.arm_count), np.zeros(0))
    play = compile_loop(duel, policy.params)
    play(policy.params, state, impression, matrix, matrix[0] - 0.5, horizon, rng, totals)
    found = policy.result(state, 0)
    return found.winner, found.comparisons, found.eliminated, *totals


def sampled(policy, matrix, horizon, rng):
    return sample_run(policy, matrix, matrix[0] - 0.5, horizon, rng)


CYCLE = np.array([[0.5, 0.7, 0.6, 0.45], [0.3, 0.5, 0.8, 0.6], [0.4, 0.2, 0.5, 0.9], [0.55, 0.4, 0.1, 0.5]])
# Preferences, κ, the horizon that the policy knows, and that of the run.
SETTINGS = {
    "table 1": (preferences.arxiv(), 1.2, 3000, 3000),
    "table 1, cut short": (preferences.arxiv(), 1.2, 333, 500),
    "case B": (preferences.relaxed_chain(8, 1.5, 0.2), 1.0, 8000, 8000),
    "case B, long": (preferences.relaxed_chain(5, 1.3, 0.1), 2.0, 40_000, 40_000),
    "a cycle": (CYCLE, 1.5, 1000, 1000),
    "two arms": (preferences.uniform_gap(2, 0.1), 0.8, 500, 500),
    "a handful": (preferences.relaxed_chain(5, 1.2, 0.3), 0.4, 50, 50),
}
KINDS = [tacit.policies.BeatTheMean, tacit.policies.InterleavedFilter1, tacit.policies.InterleavedFilter2]
RUNS = 600
LEVEL = 1e-6
"""Of each of the 22·7 two-sample tests: that any fails by chance has p < 2·10⁻⁴."""


def samples(play, policy, matrix, horizon, seed):
    runs = [play(policy, matrix, horizon, np.random.default_rng([seed, i])) for i in range(RUNS)]
    winners, comparisons, orders, *totals = zip(*runs, strict=True)
    return winners, comparisons, orders, *(np.round(total, 6) for total in totals)


def p_values(ours, theirs):
    """Compare winners, comparisons, orders, the regrets and the wins of two samples."""
    yield same_frequencies(ours[0], theirs[0])
    yield stats.ks_2samp(ours[1], theirs[1], method="asymp").pvalue
    yield same_frequencies(ours[2], theirs[2])
    for a, b in zip(ours[3:], theirs[3:], strict=True):
        yield stats.ks_2samp(a, b, method="asymp").pvalue


def same_frequencies(a, b):
    """Chi-square test of two samples of labels; rare ones are put together."""
    counts = {}
    for column, labels in enumerate((a, b)):
        for label in labels:
            counts.setdefault(label, [0, 0])[column] += 1
    often = [pair for pair in counts.values() if sum(pair) >= 20]
    rare = [pair for pair in counts.values() if sum(pair) < 20]
    table = np.array(often + ([np.sum(rare, axis=0).tolist()] if rare else []))
    return 1.0 if len(table) < 2 else stats.chi2_contingency(table, correction=False).pvalue


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", SETTINGS)
def test_samples_have_the_law_of_single_steps(name, kind):
    matrix, kappa, known, horizon = SETTINGS[name]
    policy = of_radius(kind, len(matrix), kappa, known)
    ours = samples(sampled, policy, matrix, horizon, 1)
    assert min(p_values(ours, samples(stepped, policy, matrix, horizon, 2))) > LEVEL


def test_samples_have_the_law_of_single_steps_in_pac_mode():
    policy, matrix = tacit.policies.BeatTheMeanPAC(4, 0.49, 0.9), preferences.relaxed_chain(4, 1.4, 0.3)
    horizon = 4**2 * policy.enough
    ours = samples(sampled, policy, matrix, horizon, 1)
    assert min(p_values(ours, samples(stepped, policy, matrix, horizon, 2))) > LEVEL


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_tests_tell_a_radius_that_is_a_tenth_wider(kind):
    matrix, kappa, known, horizon = SETTINGS["case B"]
    ours = samples(sampled, of_radius(kind, len(matrix), 1.1 * kappa, known), matrix, horizon, 1)
    theirs = samples(stepped, of_radius(kind, len(matrix), kappa, known), matrix, horizon, 2)
    assert min(p_values(ours, theirs)) < LEVEL


def test_samples_reach_the_paper_s_horizon():
    """Ten runs; each errs with a probability of at most 10⁻¹⁰ (theorem 1)."""
    matrix, horizon = preferences.relaxed_chain(20, 1.3), 10**10
    for seed in range(10):
        policy = tacit.policies.BeatTheMean(20, horizon, gamma=1.3)
        found = sample_run(policy, matrix, matrix[0] - 0.5, horizon, np.random.default_rng(seed))
        assert found.winner == 0
        assert len(found.eliminated) == 19
        assert found.weak <= found.regret <= found.strong
        # The winner against itself wins half the time; so do two random arms, by symmetry.
        assert found.wins == pytest.approx(horizon / 2, abs=6 * math.sqrt(horizon) + 1e7)


def test_samples_depend_on_the_seed_alone():
    matrix = preferences.arxiv()
    for kind in KINDS:
        policy = kind(6, 10**9)
        one, two = (sampled(policy, matrix, 10**9, np.random.default_rng(5)) for _ in range(2))
        assert one == two


# Binomial draws --------------------------------------------------------------------------------------------


def draws(n, p, out, rng):
    for i in range(len(out)):
        out[i] = binomial(n, p, rng)


@pytest.mark.parametrize(
    ("n", "p"),
    [
        (1, 0.3),
        (7, 0.5),
        (24, 0.45),
        (100, 0.01),
        (6000, 0.002),
        (10**4, 0.6),
        (10**10, 0.5),
        (10**10, 0.37),
        (10**10, 1 - 2e-8),
        (10**10, 3e-10),
    ],
)
def test_binomial_draws_are_exact_up_to_the_largest_counts(n, p):
    """Against the distribution function of scipy; each of 10 tests has level 10⁻⁶."""
    out = np.zeros(20_000)
    compile_loop(draws)(n, p, out, np.random.default_rng(11))
    edges = np.unique(stats.binom.ppf(np.linspace(0.02, 0.98, 49), n, p))
    cells = np.diff([0.0, *stats.binom.cdf(edges, n, p), 1.0]) * len(out)
    observed = np.bincount(np.searchsorted(edges, out), minlength=len(cells))
    often = cells > 5
    counts = [*observed[often], observed[~often].sum()]
    expected = [*cells[often], cells[~often].sum()]
    kept = np.array(expected) > 0
    assert stats.chisquare(np.array(counts)[kept], np.array(expected)[kept]).pvalue > 1e-6


def test_certain_draws():
    rng, out = np.random.default_rng(1), np.zeros(3)
    for n, p, expected in [(5, 0.0, 0), (5, 1.0, 5), (0, 0.5, 0), (10**10, 1.0, 10**10)]:
        compile_loop(draws)(n, p, out, rng)
        assert (out == expected).all()


def log_factorial(n):
    """Return log n! to 50 digits, by Stirling's series after a shift."""
    x, shift = Decimal(n + 1), Decimal(0)
    while x < 60:
        shift += x.ln()
        x += 1
    two_pi = Decimal("6.28318530717958647692528676655900576839433879875021")
    value = (x - Decimal("0.5")) * x.ln() - x + two_pi.ln() / 2
    bernoulli = [(1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510)]
    for m, (above, below) in enumerate(bernoulli, 1):
        value += Decimal(above) / below / (2 * m * (2 * m - 1)) / x ** (2 * m - 1)
    return value - shift


@pytest.mark.parametrize(
    ("k", "n", "p"),
    [
        (0, 50, 0.3),
        (1, 50, 0.3),
        (50, 50, 0.3),
        (17, 40, 0.45),
        (4_000_123_456, 10**10, 0.4),
        (5_000_300_000, 10**10, 0.5),
        (3, 10**10, 3e-10),
        (2_499_000_000, 10**10, 0.25),
    ],
)
def test_probabilities_of_draws_do_not_cancel(k, n, p):
    with localcontext() as context:
        context.prec = 50
        exact = log_factorial(n) - log_factorial(k) - log_factorial(n - k)
        exact += k * Decimal(p).ln() + (n - k) * (1 - Decimal(p)).ln()
    # Where the deviance is large its rounding, 2⁻⁵³ of it, counts too.
    assert log_probability(float(k), float(n), p) == pytest.approx(float(exact), rel=1e-14, abs=1e-9)
