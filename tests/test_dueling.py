"""Beat-the-Mean and Interleaved Filter: by hand, in law, and by leaps."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy import stats

import tacit
from tacit.core.arrays import leaves
from tacit.core.dispatch import choose, learn
from tacit.core.running import compiled
from tacit.environments import preferences
from tacit.errors import InvalidValue
from tacit.policies import sample_size
from tacit.policies.base import Outcome
from tacit.policies.duels.working_set import binomial, charge, log_probability

# By hand ------------------------------------------------------------------------------------------


def told(policy, results):
    """Return the state of a lane that has learned from (left, right, outcome) triples."""
    state = policy.init(1)
    for left, right, outcome in results:
        policy.learn(policy.params, state, 0, Outcome(None, (left, right), outcome, math.nan))
    return state


def of_radius(policy_class, arms, kappa, horizon=1000):
    """Return a policy whose confidence radius after n comparisons is kappa/√n."""
    unit = policy_class(arms, horizon, scale=1.0).kappa
    return policy_class(arms, horizon, scale=kappa / unit)


def test_beat_the_mean_by_hand():
    policy = of_radius(tacit.BeatTheMean, 3, 0.4)
    first = [(0, 1, 1.0), (1, 2, 0.0)]
    state = told(policy, first)
    assert state.working.due[0] == 1
    assert policy.result(state, 0)[:3] == (None, (), 2)
    # The third comparison lifts n* to 1: shares 1, 0 and 1 are two radii of 0.4 apart.
    state = told(policy, [*first, (2, 0, 1.0)])
    assert policy.result(state, 0)[:3] == (None, (1,), 3)
    # The only comparison of arm 0 was with arm 1: it is deleted, and arm 0 is due alone.
    assert state.plays[0].tolist() == [0, 1, 1]
    assert state.means[0, [0, 2]].tolist() == [0.5, 1.0]
    assert (state.radius[0], state.working.due[0], state.working.members[0, 0]) == (1.0, 1, 0)
    state = told(policy, [*first, (2, 0, 1.0), (0, 2, 0.0)])
    assert policy.result(state, 0)[:3] == (2, (1, 0), 4)
    rng = np.random.default_rng(1)
    impression = tacit.Impression(np.arange(3), np.zeros(0))
    assert policy.choose(policy.params, state, 0, impression, rng) == (2, 2)


def test_the_test_comes_after_every_comparison_with_the_fewest_of_any_arm():
    policy = of_radius(tacit.BeatTheMean, 2, 0.45)
    # After one sweep shares 1 and 0: one apart, two radii are 0.9.
    state = told(policy, [(0, 1, 1.0), (1, 0, 0.0)])
    assert policy.result(state, 0)[:3] == (0, (1,), 2)
    policy = of_radius(tacit.BeatTheMean, 2, 0.6)
    # Radius 0.6 after one, 0.424 after two; during the second sweep the fewest is still one.
    results = [(0, 1, 1.0), (1, 0, 0.0), (0, 0, 1.0)]
    assert policy.result(told(policy, results), 0).winner is None
    assert policy.result(told(policy, [*results, (1, 1, 0.0)]), 0)[:3] == (0, (1,), 4)


def test_a_horizon_ends_the_exploration_with_the_best_share_of_wins():
    policy = tacit.BeatTheMean(3, horizon=4, scale=50.0)
    state = told(policy, [(0, 1, 0.0), (1, 2, 1.0), (2, 2, 0.5), (1, 0, 0.5), (0, 1, 1.0)])
    assert policy.result(state, 0)[:3] == (1, (), 4)


def test_pac_mode_ends_when_every_arm_has_enough():
    policy = tacit.BeatTheMeanPAC(2, epsilon=0.49, delta=0.9)
    sweeps = [(0, 1, 1.0), (1, 0, 0.0)] * policy.enough
    state = told(policy, sweeps)
    found = policy.result(state, 0)
    assert found.winner == 0
    assert found.comparisons <= 2 * policy.enough
    assert "0.99" in found.guarantee
    ties = told(policy, [(0, 0, 0.5), (1, 1, 0.5)] * (policy.enough - 1))
    assert policy.result(ties, 0).winner is None
    ties = told(policy, [(0, 0, 0.5), (1, 1, 0.5)] * policy.enough)
    assert policy.result(ties, 0)[:3] == (0, (), 2 * policy.enough)


@pytest.mark.parametrize(("arms", "gamma", "epsilon", "delta"), [(2, 1.0, 0.25, 0.1), (6, 1.5, 0.4, 0.05)])
def test_the_sample_size_is_the_smallest_solution(arms, gamma, epsilon, delta):
    def image(n):
        return np.ceil(36 * gamma**6 / epsilon**2 * np.log(arms**3 * n / delta))

    n = sample_size(arms, epsilon, delta, gamma)
    assert image(float(n)) == n
    below = np.arange(1.0, n)
    assert not (image(below) == below).any()


def test_interleaved_filter_by_hand():
    policy = of_radius(tacit.InterleavedFilter2, 3, 0.3)
    state = told(policy, [(0, 1, 1.0)])
    assert (state.candidate[0], policy.result(state, 0).winner) == (0, None)
    # The sweep ends: 0 surely beats 1, and 2 surely beats 0; both leave at the same moment.
    state = told(policy, [(0, 1, 1.0), (0, 2, 0.0)])
    assert policy.result(state, 0)[:3] == (2, (0, 1), 2)


@pytest.mark.parametrize(
    ("policy_class", "left", "kept"),
    [(tacit.InterleavedFilter1, (0, 2), {1}), (tacit.InterleavedFilter2, (0, 1, 2), set())],
)
def test_only_the_second_filter_prunes(policy_class, left, kept):
    # The radius is 0.46 after three: 3 of 3 decides, 2 of 3 does not.
    policy = of_radius(policy_class, 4, 0.8)
    sweeps = [(0, 1, 1.0), (0, 2, 1.0), (0, 3, 0.0)] * 2 + [(0, 1, 0.0), (0, 2, 1.0), (0, 3, 0.0)]
    state = told(policy, sweeps)
    found = policy.result(state, 0)
    assert state.candidate[0] == 3
    assert (found.eliminated, found.comparisons) == (left, 9)
    assert set(state.working.members[0, : state.working.size[0]].tolist()) == kept
    assert found.winner == (None if kept else 3)
    assert not state.plays[0, list(kept)].any()


def test_results_of_arms_that_left_teach_nothing():
    policy = of_radius(tacit.BeatTheMean, 3, 0.4)
    results = [(0, 1, 1.0), (1, 2, 0.0), (2, 0, 1.0)]
    late = told(policy, [*results, (1, 2, 1.0), (0, 1, 1.0)])
    for (_, once), (_, again) in zip(leaves(told(policy, results)), leaves(late), strict=True):
        np.testing.assert_array_equal(once, again)


POLICIES = [
    tacit.BeatTheMean(4, 10_000),
    tacit.BeatTheMean(4, 300, scale=0.4),
    tacit.BeatTheMeanPAC(4, 0.3, 0.1),
    tacit.InterleavedFilter1(4, 10_000),
    tacit.InterleavedFilter2(4, 10_000, scale=0.3),
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.label)
@pytest.mark.parametrize("rounds", [0, 7, 101])
@pytest.mark.parametrize("offered", [None, [1, 3], [2]])
def test_propensities_are_the_frequencies_of_pairs(policy, rounds, offered):
    """Each of 45 chi-square tests has level 10⁻⁶, one and all."""
    learner, rng = tacit.Learner(policy, seed=3), np.random.default_rng(4)
    for _ in range(rounds):
        decision = learner.choose("key")
        learner.learn(decision, float(rng.random() < 0.5 + 0.3 * np.diff(decision.slots)[0] / 3))
    draws = 4000
    offers = None if offered is None else [offered] * draws
    decisions = learner.choose_many(["key"] * draws, arms=offers)
    impression = tacit.Impression(np.array(offered or range(4)), np.zeros(0))
    lane, expected = learner.lane("key"), np.zeros((4, 4))
    for pair in np.ndindex(4, 4):
        if set(pair) <= set(offered or range(4)):
            expected[pair] = policy.propensity(policy.params, learner.state, lane, impression, pair)
    assert expected.sum() == pytest.approx(1.0)
    observed = np.zeros((4, 4))
    for decision in decisions:
        observed[tuple(decision.slots)] += 1
        assert decision.propensity == pytest.approx(expected[tuple(decision.slots)])
    possible = expected > 0
    if possible.sum() > 1:
        assert stats.chisquare(observed[possible], draws * expected[possible]).pvalue > 1e-6


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: tacit.BeatTheMean(3, 0), "horizon"),
        (lambda: tacit.BeatTheMean(3, 10, gamma=0.9), "gamma"),
        (lambda: tacit.BeatTheMean(3, 10, scale=0.0), "scale"),
        (lambda: tacit.BeatTheMeanPAC(3, 0.5, 0.1), "epsilon"),
        (lambda: tacit.BeatTheMeanPAC(3, 0.1, 1.0), "delta"),
        (lambda: tacit.InterleavedFilter1(3, 10, scale=-1.0), "scale"),
        (lambda: tacit.InterleavedFilter2(3, 0), "horizon"),
    ],
)
def test_hyperparameters_out_of_range_are_named(call, field):
    with pytest.raises(InvalidValue) as caught:
        call()
    assert caught.value.field == field


def test_the_radii_are_those_of_the_paper():
    log = math.log(2 * 10**6 * 5)
    assert tacit.BeatTheMean(5, 10**6).kappa == pytest.approx(math.sqrt(log))
    relaxed = tacit.BeatTheMean(5, 10**6, gamma=1.5)
    assert relaxed.kappa == pytest.approx(3 * 1.5**2 * math.sqrt(log))
    wide = tacit.InterleavedFilter2(5, 10**6)
    assert wide.kappa == pytest.approx(math.sqrt(4 * math.log(25 * 10**6)))
    pac = tacit.BeatTheMeanPAC(5, 0.2, 0.1, gamma=1.2)
    assert pac.kappa == pytest.approx(3 * 1.2**2 * math.sqrt(math.log(125 * pac.enough / 0.1)))


# By leaps -----------------------------------------------------------------------------------------


def duel(params, state, impression, matrix, gaps, horizon, rng, totals):
    """Play a policy one comparison at a time."""
    for _ in range(horizon):
        left, right = choose(params, state, 0, impression, rng)
        won = 1.0 if rng.random() < matrix[left, right] else 0.0
        charge(totals, gaps[left], gaps[right], 1.0, won)
        learn(params, state, 0, Outcome(impression, (left, right), won, np.nan))


def stepped(policy, matrix, horizon, rng):
    """Return what a leap returns, from one comparison at a time."""
    state, totals = policy.init(1), np.zeros(4)
    impression = tacit.Impression(np.arange(policy.arm_count), np.zeros(0))
    play = compiled(duel, policy.params)
    play(policy.params, state, impression, matrix, matrix[0] - 0.5, horizon, rng, totals)
    found = policy.result(state, 0)
    return found.winner, found.comparisons, found.eliminated, *totals


def leapt(policy, matrix, horizon, rng):
    return policy.sample_run(matrix, matrix[0] - 0.5, horizon, rng)


CYCLE = np.array([[0.5, 0.7, 0.6, 0.45], [0.3, 0.5, 0.8, 0.6], [0.4, 0.2, 0.5, 0.9], [0.55, 0.4, 0.1, 0.5]])
CHAIN = preferences.relaxed_chain(8, 1.5, 0.2)
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
KINDS = [tacit.BeatTheMean, tacit.InterleavedFilter1, tacit.InterleavedFilter2]
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
    if len(table) < 2:
        return 1.0
    return stats.chi2_contingency(table, correction=False).pvalue


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", SETTINGS)
def test_leaps_have_the_law_of_single_steps(name, kind):
    matrix, kappa, known, horizon = SETTINGS[name]
    policy = of_radius(kind, len(matrix), kappa, known)
    ours = samples(leapt, policy, matrix, horizon, 1)
    theirs = samples(stepped, policy, matrix, horizon, 2)
    assert min(p_values(ours, theirs)) > LEVEL


def test_leaps_have_the_law_of_single_steps_in_pac_mode():
    policy, matrix = tacit.BeatTheMeanPAC(4, 0.49, 0.9), preferences.relaxed_chain(4, 1.4, 0.3)
    horizon = 4**2 * policy.enough
    ours = samples(leapt, policy, matrix, horizon, 1)
    theirs = samples(stepped, policy, matrix, horizon, 2)
    assert min(p_values(ours, theirs)) > LEVEL


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_tests_tell_a_radius_that_is_a_tenth_wider(kind):
    matrix, kappa, known, horizon = SETTINGS["case B"]
    ours = samples(leapt, of_radius(kind, len(matrix), 1.1 * kappa, known), matrix, horizon, 1)
    theirs = samples(stepped, of_radius(kind, len(matrix), kappa, known), matrix, horizon, 2)
    assert min(p_values(ours, theirs)) < LEVEL


def test_leaps_reach_the_paper_s_horizon():
    """Ten runs; each errs with a probability of at most 10⁻¹⁰ (theorem 1)."""
    matrix, horizon = preferences.relaxed_chain(20, 1.3), 10**10
    for seed in range(10):
        policy = tacit.BeatTheMean(20, horizon, gamma=1.3)
        found = policy.sample_run(matrix, matrix[0] - 0.5, horizon, np.random.default_rng(seed))
        assert found.winner == 0
        assert len(found.eliminated) == 19
        assert found.weak <= found.regret <= found.strong
        # The winner against itself wins half the time; so do two random arms, by symmetry.
        assert found.wins == pytest.approx(horizon / 2, abs=6 * math.sqrt(horizon) + 1e7)


def test_leaps_depend_on_the_seed_alone():
    matrix = preferences.arxiv()
    for kind in KINDS:
        policy = kind(6, 10**9)
        one, two = (leapt(policy, matrix, 10**9, np.random.default_rng(5)) for _ in range(2))
        assert one == two


@pytest.mark.parametrize("kind", ["average", "weak", "strong"])
def test_simulate_leaps_where_only_the_end_is_asked_for(kind):
    """The means of 200 runs agree within five standard errors: p < 10⁻⁶ each."""
    environment = tacit.PreferenceMatrix("arxiv", regret_kind=kind)
    policy = of_radius(tacit.BeatTheMean, 6, 1.2, 2000)
    leapt, stepped = (
        tacit.simulate(policy, environment, 2000, runs=200, seed=1, checkpoints=rounds) for rounds in (1, 2)
    )
    assert leapt.rounds.tolist() == [2000]
    for name in ("regret", "reward"):
        a, b = getattr(leapt, name)[0, :, -1], getattr(stepped, name)[0, :, -1]
        error = math.sqrt((a.var() + b.var()) / 200)
        assert abs(a.mean() - b.mean()) < 5 * error
    long = tacit.simulate(policy, environment, 10**12, runs=1, checkpoints=1)
    assert long.rounds.tolist() == [10**12]


def test_leaps_depend_neither_on_workers_nor_on_other_runs():
    environment, policy = tacit.PreferenceMatrix("arxiv"), tacit.BeatTheMean(6, 10**8)
    one, two = (
        tacit.simulate(policy, environment, 10**8, runs=runs, seed=3, workers=w, checkpoints=1)
        for runs, w in ((3, 1), (5, 2))
    )
    assert one.regret.tolist() == two.regret[:, :3].tolist()


@pytest.mark.parametrize("given", [{"ties": 0.2}, {"delay": 3}, {"batch": 2}])
def test_leaps_are_for_plain_duels_only(given):
    assert tacit.PreferenceMatrix("arxiv", **given).plain_duels is None


def test_outcomes_are_exact_although_their_first_bits_decide():
    environment, rng = tacit.PreferenceMatrix(CHAIN), np.random.default_rng(1)
    world = environment.world(rng, 1)
    for pair, chance in np.ndenumerate(np.array(environment.matrix)):
        edges = np.floor(256.0 * chance) / 256.0
        near = [np.nextafter(chance, 0.0), chance, np.nextafter(chance, 1.0), edges]
        for uniform in (*near, np.nextafter(edges, 0.0), *rng.random(20)):
            world.uniform[0] = uniform
            won = environment.respond(environment.params, world, 0, pair)
            assert won == float(uniform < chance)


def test_counts_by_opponent_survive_their_first_byte():
    policy = tacit.BeatTheMean(3, 10**12, scale=100.0)
    results = [(0, 1, 1.0)] * 300 + [(0, 1, 0.5)] * 101 + [(0, 2, 0.0)]
    state = told(policy, results)
    counts = state.met[0] + state.recent[0]
    assert counts[0].tolist() == [[0, 0], [701, 401], [0, 1]]
    assert counts[1:].sum() == 0


# Draws --------------------------------------------------------------------------------------------


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
    compiled(draws)(n, p, out, np.random.default_rng(11))
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
        compiled(draws)(n, p, out, rng)
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
    ours = log_probability(float(k), float(n), p)
    assert ours == pytest.approx(float(exact), rel=1e-14, abs=1e-9)
