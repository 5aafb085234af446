"""Duels: exact small cases, propensities against frequencies, plain against compiled, regret."""

import math

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

import tacit
from tacit.core.dispatch import list_parts
from tacit.environments import environment_from_spec
from tacit.errors import InvalidValue
from tacit.evaluate.duels import always
from tacit.policies import policy_to_spec
from tacit.policies.base import Outcome, registry
from tacit.policies.baselines.rucb import PairBounds, record_duel
from tacit.policies.duels import standings
from tacit.policies.duels.standings import PAIR_VARIANCE as PAIR
from tacit.policies.duels.working_set import EliminationPolicy
from tacit.policies.spec import policy_from_stored
from tacit.policies.stationary.beta_maximum import beta_tail, draw_above

# Those that eliminate arms are in test_dueling.py.
KINDS = [kind for kind in list_parts(registry, "policies.duels") if not issubclass(kind, EliminationPolicy)]
POLICIES = [
    *(kind.example(4, 0) for kind in KINDS),
    tacit.policies.RMED1(4, f=0.0),
    tacit.policies.baselines.WinnerStays(4, variant="weak"),
]
by_label = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.label)
EXACT = [policy for policy in POLICIES if policy.randomized]
CHANCES = np.array([[0.5, 0.6, 0.7, 0.8], [0.4, 0.5, 0.6, 0.7], [0.3, 0.4, 0.5, 0.6], [0.2, 0.3, 0.4, 0.5]])
CYCLE = [[0.5, 0.7, 0.2], [0.3, 0.5, 0.6], [0.8, 0.4, 0.5]]


def taught(policy, rounds, seed=1, ties=0.2):
    """Return a learner that has dueled for some rounds, some of them tied."""
    learner = tacit.Learner(policy, seed=seed)
    rng = np.random.default_rng(seed + 1000)
    for _ in range(rounds):
        decision = learner.choose("query")
        outcome = 0.5 if rng.random() < ties else float(rng.random() < CHANCES[decision.pair])
        learner.learn(decision, outcome)
    return learner


# What holds of every policy -------------------------------------------------------------------


@pytest.mark.parametrize("policy", EXACT, ids=lambda policy: policy.label)
@pytest.mark.parametrize("rounds", [0, 7, 300])
def test_propensity_is_the_frequency_of_the_pair(policy, rounds):
    """Error probability below 1e-4 a case: at most 16 binomial counts, each at 5.1 sigma."""
    learner = taught(policy, rounds)
    draws = 20_000
    decisions = learner.choose_many(["query"] * draws)
    told = np.zeros((4, 4))
    seen = np.zeros((4, 4))
    for decision in decisions:
        told[decision.pair] = decision.propensity
        seen[decision.pair] += 1
    assert told.sum() == pytest.approx(1.0, abs=1e-6) or (seen == 0).any()
    sigma = np.sqrt(told * (1 - told) / draws)
    assert (np.abs(seen / draws - told) <= 5.1 * sigma + 1e-6)[seen > 0].all()


@pytest.mark.parametrize("policy", EXACT, ids=lambda policy: policy.label)
@pytest.mark.parametrize("offered", [[0, 1, 2, 3], [1, 3], [2]])
def test_propensities_of_all_pairs_sum_to_one(policy, offered):
    learner = taught(policy, 60)
    impression = tacit.Impression(np.array(offered), np.zeros(0))
    total = sum(
        type(policy).propensity(policy.params, learner.state, 0, impression, (left, right))
        for left in offered
        for right in offered
    )
    assert total == pytest.approx(1.0, abs=1e-7)


@by_label
def test_only_arms_on_offer_are_shown_and_arms_may_come_and_go(policy):
    learner = taught(policy, 200)
    for offered in ([1, 3], [2], [3, 0, 1]):
        for decision in [learner.choose("query", arms=offered) for _ in range(30)]:
            assert set(decision.pair) <= set(offered)
            learner.learn(decision, 1.0)
    learner.add_arm()
    met = set()
    for _ in range(400):
        decision = learner.choose("query")
        met |= set(decision.pair)
        # The new arm wins whatever it is in.
        left, right = decision.pair
        learner.learn(decision, 0.5 if left == right else float(left == 4 or (right != 4)))
    assert 4 in met
    learner.retire_arm(0)
    pairs = [learner.choose("query").pair for _ in range(50)]
    assert all(0 not in pair for pair in pairs)


@by_label
def test_an_arm_that_always_wins_is_played_on_both_sides(policy):
    """Its rivals lose every duel, so no policy has a reason to try them in most rounds."""
    learner = tacit.Learner(policy, seed=5)
    for _ in range(3000):
        decision = learner.choose("query")
        left, right = decision.pair
        learner.learn(decision, 0.5 if left == right else float(left == 2 or right != 2))
    pairs = learner.choose_many(["query"] * 200)
    both = np.mean([decision.pair == (2, 2) for decision in pairs])
    one = np.mean([2 in decision.pair for decision in pairs])
    assert one >= 0.95 if policy.label == "WinnerStays(variant=weak)" else both >= 0.95


@by_label
def test_a_fresh_lane_shows_every_arm_alike(policy):
    """Chi-square on fresh keys, error probability 1e-6."""
    decisions = tacit.Learner(policy, seed=5).choose_many([f"key {i}" for i in range(4000)])
    counts = np.bincount([arm for decision in decisions for arm in decision.pair], minlength=4)
    assert stats.chisquare(counts).pvalue > 1e-6


# The loops of these take 3 s each to compile, and what is late comes to each as to the others.
SLOW = (
    tacit.policies.baselines.DoubleThompsonSampling,
    tacit.policies.baselines.FeelGoodThompson,
    tacit.policies.RMED1,
    tacit.policies.baselines.SelfSparring,
)


@pytest.mark.parametrize(
    "policy",
    [pytest.param(each, marks=[pytest.mark.long] * isinstance(each, SLOW)) for each in POLICIES],
    ids=lambda policy: policy.label,
)
def test_late_and_batched_feedback_is_learned(policy):
    environment = tacit.PreferenceMatrix("uniform-gap(4, 0.3)", delay=(0, 9), batch=5)
    regret = tacit.simulate(policy, environment, 4000, runs=4, seed=2).regret[0]
    # Uniform pairs would cost 0.225 a round. The weak variant keeps one other arm in play.
    assert (regret[:, -1] < 0.8 * 0.225 * 4000).all()
    assert np.isfinite(regret).all()


# Cases worked by hand -------------------------------------------------------------------------


def teach(policy, duels):
    """Return a state that has seen these (left, right, outcome)."""
    state = policy.init(1)
    impression = tacit.Impression(np.arange(policy.arm_count), np.zeros(0))
    for left, right, outcome in duels:
        type(policy).learn(policy.params, state, 0, Outcome(impression, (left, right), outcome, math.nan))
    return state, impression


def kl_half(p):
    return p * math.log(2 * p) + (1 - p) * math.log(2 - 2 * p) if 0 < p < 1 else math.log(2)


def test_rmed1_by_hand():
    # Every pair once: 0 beats 1, 1 beats 2, 2 beats 0. One lost duel is ln 2 of evidence each.
    policy = tacit.policies.RMED1(3, f=0.5)
    rng = np.random.default_rng(1)
    state, impression = teach(policy, [(0, 1, 1.0), (1, 2, 1.0), (2, 0, 1.0)])
    np.testing.assert_allclose(state.evidence[0], math.log(2))
    assert state.waiting[0].tolist() == [1, 1, 1]
    # First turn: arm 0. All have the least evidence, so the best one is drawn: if it is 2, which
    # beats 0, then 2; if it is 0 or 1, then the arm that beats 0 most, which is 2 as well.
    assert policy.choose(policy.params, state, 0, impression, rng) == (0, 2)
    state, _ = teach(policy, [(0, 1, 1.0), (1, 2, 1.0), (2, 0, 1.0), (0, 2, 1.0), (0, 2, 1.0)])
    # Now 0 has beaten 2 in two of three: nothing against 0, and 2 has 3·kl(1/3) against it.
    third = 3 * kl_half(1 / 3)
    np.testing.assert_allclose(state.evidence[0], [0.0, math.log(2), third + math.log(2)])
    assert state.waiting[0].tolist() == [0, 1, 1]
    # t = 5: all are within ln 5 + 0.5 = 2.11 of the best, but only 0 has had its turn.
    assert state.next[0].tolist() == [1, 0, 0]
    # Arm 1's turn: the best arm, 0, beats it.
    assert policy.choose(policy.params, state, 0, impression, rng) == (1, 0)


def test_rmed1_lets_the_best_duel_itself_until_the_evidence_runs_out():
    policy = tacit.policies.RMED1(2, f=0.0)
    state, impression = teach(policy, [(0, 1, 1.0)] * 9)
    # Nine lost duels are 9·ln 2 = ln 512 of evidence against arm 1, which waits for its turn.
    assert state.evidence[0, 1] == pytest.approx(9 * math.log(2))
    rng = np.random.default_rng(1)
    assert policy.choose(policy.params, state, 0, impression, rng) == (1, 0)
    policy.learn(policy.params, state, 0, Outcome(impression, (1, 0), 0.0, math.nan))
    # ln 1024 now: arm 1 stays out until round 1024.
    for t in range(11, 1030):
        pair = policy.choose(policy.params, state, 0, impression, rng)
        assert pair == (0, 0), t
        policy.learn(policy.params, state, 0, Outcome(impression, pair, 0.5, math.nan))
        if state.waiting[0, 1]:
            break
    assert t in (1024, 1025)
    # The next pass has both arms, in the order of their slots.
    for expected in [(0, 0), (1, 0)]:
        pair = policy.choose(policy.params, state, 0, impression, rng)
        assert pair == expected
        policy.learn(policy.params, state, 0, Outcome(impression, pair, 0.5, math.nan))


@pytest.mark.parametrize("offered", [[0, 1, 2, 3, 4], [3, 1, 4], [2, 0]])
def test_rmed1_knows_how_likely_it_finds_each_pair(offered):
    """Also while arms have not met, and while several are best; error probability below 1e-4.

    Some 300 binomial counts, each at 6 sigma and a draw.
    """
    policy, draws = tacit.policies.RMED1(5), 4000
    learner, outcomes = tacit.Learner(policy, seed=2), np.random.default_rng(4)
    impression = tacit.Impression(np.array(offered), np.zeros(0))
    drawn = 0
    for _ in range(40):
        decisions = learner.choose_many(["query"] * draws, arms=[offered] * draws)
        seen = np.zeros((5, 5))
        np.add.at(seen, tuple(decisions.actions.T), 1.0)
        told = np.zeros((5, 5))
        for pair in np.ndindex(5, 5):
            if set(pair) <= set(offered):
                told[pair] = policy.propensity(policy.params, learner.state, 0, impression, pair)
        assert told.sum() == pytest.approx(1.0)
        assert (np.abs(seen - draws * told) <= 6 * np.sqrt(draws * told * (1 - told)) + (told > 0)).all()
        np.testing.assert_array_equal(decisions.propensities, told[tuple(decisions.actions.T)])
        drawn += (told > 0).sum() > 1
        decision = learner.choose("query")
        left, right = decision.pair
        learner.learn(decision, 0.5 if left == right else float(outcomes.random() < 0.5))
    assert drawn > 3


def test_rmed1_takes_what_it_skips_exactly():
    """Played without its short cut, step by step, it shows the same pairs."""
    policy = tacit.policies.RMED1(3, f=0.0)
    fast, impression = teach(policy, [])
    slow, _ = teach(policy, [])
    draws = [np.random.default_rng(4) for _ in range(2)]
    outcomes = np.random.default_rng(5)
    alone = 0
    for _ in range(2000):
        slow.alone[:] = 0.0
        pairs = [
            tuple(policy.choose(policy.params, s, 0, impression, r))
            for s, r in zip((fast, slow), draws, strict=True)
        ]
        assert pairs[0][0] == pairs[1][0]
        assert pairs[0][1] == pairs[1][1]
        outcome = float(outcomes.random() < CHANCES[pairs[0]])
        alone += fast.alone[0] > fast.rounds[0]
        for state, pair in zip((fast, slow), pairs, strict=True):
            policy.learn(policy.params, state, 0, Outcome(impression, pair, outcome, math.nan))
    assert alone > 100  # the short cut was taken


def test_verdicts_are_those_of_the_definition():
    """After every round: i surely loses to j iff its upper bound is below one half."""
    rng = np.random.default_rng(2)
    bounds, alpha = PairBounds.zeros(1, 4), 0.3
    for t in range(1, 800):
        left, right = rng.integers(4, size=2)
        outcome = 0.5 if rng.random() < 0.1 else float(rng.random() < CHANCES[left, right])
        if t > 300:
            right = left  # nothing is learned any more, but time passes
        record_duel(bounds, 0, alpha, left, right, outcome)
        wins = bounds.wins[0]
        with np.errstate(invalid="ignore", divide="ignore"):
            n = wins + wins.T
            upper = np.where(n > 0, wins / n + np.sqrt(alpha * np.log(t + 1) / n), 2.0)
        np.fill_diagonal(upper, 0.5)
        np.testing.assert_array_equal(bounds.lost[0] > 0, upper < 0.5)
        np.testing.assert_array_equal(bounds.losses[0], (upper < 0.5).sum(axis=1))


def posterior(duels, arms):
    """Return means and variances of all margins by the joint Gaussian of utilities and what pairs have."""
    pairs = [(i, j) for i in range(arms) for j in range(i + 1, arms)]

    def contrast(i, j):
        row = np.zeros(arms + len(pairs))
        row[i], row[j] = 1.0, -1.0
        row[arms + pairs.index((min(i, j), max(i, j)))] = 1.0 if i < j else -1.0
        return row

    precision = np.diag([1 / standings.UTILITY_VARIANCE] * arms + [1 / PAIR] * len(pairs))
    linear = np.zeros(len(precision))
    for left, right, outcome in duels:
        # An outcome between is a decided one that counts less; a tie counts nothing.
        row, weight = contrast(left, right), abs(2 * outcome - 1)
        precision += 4 * weight * np.outer(row, row)
        linear += 4 * weight * (np.sign(outcome - 0.5) / 2) * row
    covariance = np.linalg.inv(precision)
    return {
        (i, j): (contrast(i, j) @ covariance @ linear, contrast(i, j) @ covariance @ contrast(i, j))
        for i in range(arms)
        for j in range(arms)
        if i != j
    }


def random_duels(count, arms, seed=3):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        left, right = rng.permutation(arms)[:2]
        yield int(left), int(right), float(rng.choice([0.0, 1.0, 0.5, 0.8]))


def test_margins_are_those_of_the_joint_gaussian():
    margins, duels = standings.Margins.blank(1, 4), list(random_duels(60, 4))
    for left, right, outcome in duels:
        standings.count_duel(margins, 0, left, right, outcome)
    for (i, j), expected in posterior(duels, 4).items():
        assert standings.pair_margin(margins, 0, i, j) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_what_fades_is_as_if_pairs_had_dueled_less():
    margins, again = standings.Margins.blank(1, 4), standings.Margins.blank(1, 4)
    for left, right, outcome in random_duels(200, 4):
        standings.count_duel(margins, 0, left, right, outcome)
    wins = margins.wins[0].copy()
    standings.fade_pairs(margins, 0, 5.0)
    kept = np.minimum(1.0, 5.0 / np.maximum(wins + wins.T, 1e-300))
    np.testing.assert_allclose(margins.wins[0], kept * wins)
    for i, j in np.argwhere(wins > 0):
        again.wins[0, i, j] = kept[i, j] * wins[i, j]
    standings.fade_pairs(again, 0, math.inf)
    np.testing.assert_allclose(margins.mean, again.mean, atol=1e-12)
    np.testing.assert_allclose(margins.covariance, again.covariance, atol=1e-12)


def test_gates_by_hand():
    margins = standings.Margins.blank(1, 3)
    # Nobody leads in duels that were not had, so any two may meet in the first round.
    assert standings.duel_gate(margins, 0, 0, 1) == 0.0
    for _ in range(40):
        standings.count_duel(margins, 0, 0, 1, 1.0)
    # Ahead by 40, it is the posterior that opens: ln(1/(8V)) + 3m²/(2V).
    mean, variance = standings.pair_margin(margins, 0, 0, 1)
    assert standings.duel_gate(margins, 0, 0, 1) == pytest.approx(
        math.log(1 / (8 * variance)) + 1.5 * mean**2 / variance
    )
    assert standings.duel_gate(margins, 0, 1, 0) == standings.duel_gate(margins, 0, 0, 1)
    # Arm 1 has lost to 0, so 2 should win against it; but they have never met.
    assert standings.duel_gate(margins, 0, 2, 1) == 0.0


@pytest.mark.parametrize("chances", [CHANCES, np.array(CYCLE)], ids=["order", "cycle"])
def test_horizon_draw_gives_every_two_arms_a_chance(chances):
    """In every round, of all arms and of some on offer; all pairs sum to 1."""
    policy, arms = tacit.HorizonDraw(len(chances)), len(chances)
    learner, rng, contested = tacit.Learner(policy, seed=3), np.random.default_rng(3), 0
    for t in range(1500):
        decision = learner.choose("query")
        left, right = decision.pair
        outcome = 0.5 if left == right else float(rng.random() < chances[left, right])
        learner.learn(decision, outcome)
        contested += learner.state.beaten[0] < arms - 1
        if t % 60 == 0:
            for offered in (range(arms), (0, 2)):
                impression = tacit.Impression(np.array(offered), np.zeros(0))
                said = {
                    (i, j): policy.propensity(policy.params, learner.state, 0, impression, (i, j))
                    for i in offered
                    for j in offered
                }
                assert math.fsum(said.values()) == pytest.approx(1.0, abs=1e-12)
                assert all(said[i, j] == said[j, i] >= 0.05 / 1500**0.5 / 12 for i, j in said if i != j)
    assert contested < 500 if chances is CHANCES else contested > 1000


def test_horizon_draw_goes_on_with_the_horizons_that_it_began_with():
    """A spec of before says no tail; its duels and log propensities were noted then."""
    policy = policy_from_stored({"name": "HorizonDraw", "arms": 4})
    assert (policy.tail, tacit.HorizonDraw(4).tail) == (2.0, 4.0)
    assert policy_from_stored(policy_to_spec(tacit.HorizonDraw(4))).tail == 4.0
    learner, rng, met, chance = tacit.Learner(policy, seed=3), np.random.default_rng(3), 0, 0.0
    for _ in range(3000):
        decision = learner.choose("query")
        left, right = decision.pair
        met, chance = met + (left != right), chance + math.log(decision.propensity)
        outcome = 0.5 if left == right else float(rng.random() < CHANCES[left, right])
        learner.learn(decision, outcome)
    assert (met, chance) == (291, pytest.approx(-451.28604478968464, rel=1e-12))


def test_horizon_draw_finds_the_new_best_arm_after_a_shift():
    """It lost less than RMED1 in a paired comparison; both see the same shift."""
    first = np.array(tacit.PreferenceMatrix("uniform-gap(5, 0.1)").matrix)
    environment = tacit.PreferenceMatrix(first, after=first[::-1, ::-1], shift=4000)
    policies = [tacit.HorizonDraw(5), tacit.policies.RMED1(5)]
    found = tacit.simulate(policies, environment, 12_000, runs=20, seed=8).compare(0, 1)
    assert found.difference + 3 * found.standard_error < 0


def test_horizon_draw_lets_rankers_come_and_go():
    learner, rng = tacit.Learner(tacit.HorizonDraw(["a", "b"]), seed=4), np.random.default_rng(4)
    order = "dcba"

    def play(rounds):
        shown = []
        for _ in range(rounds):
            decision = learner.choose("query")
            left, right = (order.index(arm) for arm in decision.pair)
            shown.append(decision.pair)
            wins = 0.8 if left < right else 0.2
            learner.learn(decision, 0.5 if left == right else float(rng.random() < wins))
        return shown

    assert play(400)[-200:].count(("b", "b")) > 150
    learner.add_arm("c")
    assert play(800)[-200:].count(("c", "c")) > 150
    learner.retire_arm("c")
    assert play(400)[-200:].count(("b", "b")) > 150


def test_rucb_by_hand():
    policy = tacit.policies.baselines.RUCB(3, alpha=1.0)
    # 0 beats 1 and 2 in 40 duels each; 1 and 2 have never met. t = 81: the radius of 40 duels is
    # sqrt(ln 81/40) = 0.331, so 1 and 2 surely lose to 0, which is the only possible winner.
    state, impression = teach(policy, [(0, 1, 1.0)] * 40 + [(2, 0, 0.0)] * 40)
    assert state.bounds.losses[0].tolist() == [0, 1, 1]
    assert state.best[0] == 0
    assert policy.choose(policy.params, state, 0, impression, np.random.default_rng(1)) == (0, 0)
    assert policy.propensity(policy.params, state, 0, impression, (0, 0)) == 1.0
    # With one duel each, nobody surely loses: the left arm is uniform. Against 0 the bounds of 1
    # and 2 are both 0 + sqrt(ln 3); against 1 that of 0 is 1 + sqrt(ln 3) = 2.05, above the 2 of
    # arm 2, which it has never met; and so against 2.
    state, _ = teach(policy, [(0, 1, 1.0), (2, 0, 0.0)])
    told = {
        pair: policy.propensity(policy.params, state, 0, impression, pair)
        for pair in [(0, 1), (0, 2), (1, 0), (2, 0), (1, 2), (2, 1), (0, 0)]
    }
    assert list(told.values()) == pytest.approx([1 / 6, 1 / 6, 1 / 3, 1 / 3, 0, 0, 0])


def test_rucb_prefers_the_best_arm_it_supposes():
    policy = tacit.policies.baselines.RUCB(3, alpha=1.0)
    # Arm 2 surely loses to 0, 0 and 1 have never met: two possible winners, none supposed.
    state, impression = teach(policy, [(0, 2, 1.0)] * 40)
    assert state.best[0] == -1
    state.best[0] = 1
    assert [
        sum(policy.propensity(policy.params, state, 0, impression, (left, j)) for j in range(3))
        for left in range(3)
    ] == pytest.approx([0.5, 0.5, 0.0])


def test_double_thompson_by_hand():
    policy = tacit.policies.baselines.DoubleThompsonSampling(3, alpha=1.0)
    # As for RUCB: only 0 loses to none, so it is the left arm; 1 and 2 are surely beaten by 0
    # from below one half only, so they are drawn: P(Beta(1, 41) > 1/2) = 2^-41.
    state, impression = teach(policy, [(0, 1, 1.0)] * 40 + [(2, 0, 0.0)] * 40)
    assert state.above[0, 1, 0] == pytest.approx(2.0**-41, rel=1e-9)
    rng = np.random.default_rng(1)
    assert {tuple(policy.choose(policy.params, state, 0, impression, rng)) for _ in range(500)} == {(0, 0)}


def test_double_thompson_draws_as_its_definition_does():
    """Pairs against a direct simulation of algorithm 1: chi-square, error probability 1e-6."""
    learner = taught(tacit.policies.baselines.DoubleThompsonSampling(4), 25)
    wins = learner.state.bounds.wins[0]
    n = wins + wins.T
    with np.errstate(invalid="ignore", divide="ignore"):
        radius = np.where(n > 0, np.sqrt(0.51 * np.log(26) / n), 1.0)
        upper = np.where(n > 0, wins / n, 1.0) + radius
        lower = np.where(n > 0, wins / n, 1.0) - radius
    np.fill_diagonal(upper, 0.5)
    np.fill_diagonal(lower, 0.5)
    scores = (upper > 0.5).sum(axis=1)
    candidates = np.flatnonzero(scores == scores.max())
    rng = np.random.default_rng(9)
    draws, expected = 40_000, np.zeros((4, 4))
    first = rng.beta(wins + 1, wins.T + 1, size=(draws, 4, 4))
    iu = np.triu_indices(4)
    first[:, iu[1], iu[0]] = 1.0 - first[:, iu[0], iu[1]]
    first[:, range(4), range(4)] = 0.5
    votes = (first > 0.5).sum(axis=2)[:, candidates] + rng.random((draws, len(candidates))) / 2
    left = candidates[votes.argmax(axis=1)]
    second = rng.beta(wins + 1, wins.T + 1, size=(draws, 4, 4))[np.arange(draws), :, left]
    second[np.arange(draws), left] = 0.5
    second[lower[:, left].T > 0.5] = -1.0
    np.add.at(expected, (left, second.argmax(axis=1)), 1)
    seen = np.zeros((4, 4))
    for decision in learner.choose_many(["query"] * draws):
        seen[decision.pair] += 1
    common = (expected + seen) >= 20
    assert stats.chi2_contingency(np.stack([expected[common], seen[common]])).pvalue > 1e-6
    assert seen[~common].sum() < 100


def test_self_sparring_by_hand():
    # A win, a tie and a self-duel with η = 1/2.
    policy = tacit.policies.baselines.SelfSparring(3, eta=0.5)
    state, impression = teach(policy, [(0, 1, 1.0), (1, 2, 0.5), (0, 0, 0.5)])
    assert state.wins[0].tolist() == [1.0, 0.25, 0.25]
    assert state.losses[0].tolist() == [0.5, 0.75, 0.25]
    # Two arms with Beta(2, 1) and Beta(1, 2): the first is larger with probability 5/6.
    state, impression = teach(tacit.policies.baselines.SelfSparring(2), [(0, 1, 1.0)])
    told = tacit.policies.baselines.SelfSparring.propensity(None, state, 0, impression, (0, 1))
    assert told == pytest.approx(5 / 36)


@pytest.mark.parametrize("rounds", [3, 50, 2000])
def test_self_sparring_draws_as_thompson_sampling_does(rounds):
    """The short cut over the level is exact: frequencies at 5.1 sigma of probability_largest."""
    learner = taught(tacit.policies.baselines.SelfSparring(4), rounds, seed=3)
    draws = 40_000
    decisions = learner.choose_many(["query"] * draws)
    left, right = np.array([decision.pair for decision in decisions]).T
    impression = tacit.Impression(np.arange(4), np.zeros(0))
    told = np.array(
        [
            math.sqrt(
                tacit.policies.baselines.SelfSparring.propensity(None, learner.state, 0, impression, (i, i))
            )
            for i in range(4)
        ]
    )
    for side in (left, right):
        observed = np.bincount(side, minlength=4) / draws
        assert (np.abs(observed - told) <= 5.1 * np.sqrt(told * (1 - told) / draws) + 1e-6).all()


def test_winner_stays_by_hand():
    policy = tacit.policies.baselines.WinnerStays(3, variant="weak")
    rng = np.random.default_rng(1)
    # 0 beats 1: it stays, and meets the only other arm of the second-highest score.
    state, impression = teach(policy, [(0, 1, 1.0)])
    assert state.score[0].tolist() == [1, -1, 0]
    assert policy.choose(policy.params, state, 0, impression, rng) == (0, 2)
    # 2 beats 0 twice and overtakes it: 2 at 2, 0 at −1. A tie changes nothing.
    state, _ = teach(policy, [(0, 1, 1.0), (0, 2, 0.0), (0, 2, 0.0), (2, 0, 0.5)])
    assert state.score[0].tolist() == [-1, -1, 2]
    # 0 and 1 tie for the second place; 0 was in the last duel, so it stays.
    assert policy.choose(policy.params, state, 0, impression, rng) == (2, 0)
    assert policy.propensity(policy.params, state, 0, impression, (2, 0)) == 1.0


def test_winner_stays_exploits_between_the_rounds_of_its_tournament():
    policy = tacit.policies.baselines.WinnerStays(3, beta=1.5)
    rng = np.random.default_rng(1)
    # 0 beats 1 and then 2: a score of 2 = (K − 1)·1 ends round 1; ⌊1.5⌋ = 1 self-duel follows.
    state, impression = teach(policy, [(0, 1, 1.0), (0, 2, 1.0)])
    assert (state.exploit[0], state.winner[0], state.passed[0]) == (1, 0, 1)
    assert policy.choose(policy.params, state, 0, impression, rng) == (0, 0)
    policy.learn(policy.params, state, 0, Outcome(impression, (0, 0), 1.0, 1.0))
    assert state.exploit[0] == 0
    assert state.score[0].tolist() == [2, -1, -1]
    # Round 2 ends at a score of 4, and ⌊1.5²⌋ = 2 self-duels follow.
    for left, right in [(0, 1), (0, 2)]:
        policy.learn(policy.params, state, 0, Outcome(impression, (left, right), 1.0, 1.0))
    assert (state.exploit[0], state.passed[0]) == (2, 2)


# Numerics -------------------------------------------------------------------------------------


@examples(200)
@given(a=st.floats(1.0, 1e5), b=st.floats(1.0, 1e5), x=st.floats(0.01, 0.99))
def test_beta_tail_is_the_survival_function(a, b, x):
    expected = special.betainc(b, a, 1.0 - x)
    assert beta_tail(a, b, x) == pytest.approx(expected, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(
    ("a", "b", "x"), [(3, 5, 0.2), (3, 5, 0.9), (1, 1, 0.7), (400, 600, 0.5), (1, 40, 0.5)]
)
def test_draws_from_the_tail_have_its_distribution(a, b, x):
    """Kolmogorov–Smirnov on 20 000 draws, error probability 1e-6."""
    rng = np.random.default_rng(1)
    draws = np.array([draw_above(a, b, x, rng) for _ in range(20_000)])
    assert (draws > x).all()
    below, above = special.betainc(a, b, x), special.betainc(b, a, 1.0 - x)
    assert below < 1.0
    assert stats.kstest(1.0 - special.betainc(b, a, 1.0 - draws) / above, "uniform").pvalue > 1e-6


# The environment ------------------------------------------------------------------------------


def kernels(environment, seed=0):
    world = environment.world(np.random.default_rng(seed), 10)
    return type(environment), environment.params, world


@pytest.mark.parametrize(("kind", "expected"), [("average", 0.15), ("weak", 0.1), ("strong", 0.2)])
def test_regret_by_hand(kind, expected):
    # Gaps to arm 0 are 0, 0.1, 0.2 and 0.3.
    cls, params, world = kernels(tacit.PreferenceMatrix(CHANCES, regret_kind=kind))
    assert cls.regret(params, world, 0, np.array([1, 2])) == pytest.approx(expected)
    assert cls.regret(params, world, 0, np.array([0, 0])) == 0.0


def test_regret_without_a_condorcet_winner():
    with pytest.raises(InvalidValue, match="Condorcet"):
        tacit.PreferenceMatrix(CYCLE)
    # Each beats one of two others: no Copeland regret at all.
    assert tacit.PreferenceMatrix(CYCLE, winner="copeland").gaps.tolist() == [0, 0, 0]
    # Borda: (0.7 + 0.2)/2 = 0.45, (0.3 + 0.6)/2 = 0.45, (0.8 + 0.4)/2 = 0.6.
    np.testing.assert_allclose(tacit.PreferenceMatrix(CYCLE, winner="borda").gaps, [0.15, 0.15, 0.0])
    # In a total order of four arms they beat 3, 2, 1 and 0 of three.
    np.testing.assert_allclose(tacit.PreferenceMatrix(CHANCES, winner="copeland").gaps, [0, 1 / 3, 2 / 3, 1])


def test_preferences_shift_once():
    """From round 2 on the last arm is the best: who wins, and what regret counts."""
    later = CHANCES[::-1, ::-1]
    cls, params, world = kernels(tacit.PreferenceMatrix(CHANCES, after=later, shift=2))
    rng = np.random.default_rng(1)
    for t in range(4):
        cls.arrive(params, world, t, rng)
        now = CHANCES if t < 2 else later
        np.testing.assert_allclose(world.chances, now)
        assert cls.regret(params, world, 0, np.array([0, 0])) == pytest.approx(0.0 if t < 2 else 0.3)


def test_duels_are_won_as_often_as_the_matrix_says():
    """Each of 16 pairs at 5.1 sigma; ties as often as told."""
    cls, params, world = kernels(tacit.PreferenceMatrix(CHANCES, ties=0.25))
    rng = np.random.default_rng(7)
    draws = 5000
    wins, ties = np.zeros((4, 4)), np.zeros((4, 4))
    for _ in range(draws):
        cls.arrive(params, world, 0, rng)
        for left in range(4):
            for right in range(4):
                outcome = cls.respond(params, world, 0, (left, right))
                wins[left, right] += outcome == 1.0
                ties[left, right] += outcome == 0.5
    expected = 0.75 * CHANCES
    sigma = np.sqrt(expected * (1 - expected) / draws)
    assert (np.abs(wins / draws - expected) <= 5.1 * sigma).all()
    assert (np.abs(ties / draws - 0.25) <= 5.1 * np.sqrt(0.25 * 0.75 / draws)).all()


def test_what_arrives_does_not_depend_on_what_is_shown():
    """Two policies that always show the same pair would see the same outcomes: paired streams."""
    environment = tacit.PreferenceMatrix(CHANCES, ties=0.1)
    one = tacit.simulate(
        [tacit.policies.baselines.RUCB(4), tacit.policies.baselines.RUCB(4)], environment, 500, runs=3, seed=3
    )
    np.testing.assert_array_equal(one.regret[0], one.regret[1])
    np.testing.assert_array_equal(one.reward[0], one.reward[1])
    again = tacit.simulate(tacit.policies.baselines.RUCB(4), environment, 500, runs=3, seed=3, workers=1)
    np.testing.assert_array_equal(one.regret[0], again.regret[0])


def test_matrices_of_the_literature_have_names():
    assert environment_from_spec("arxiv()") == tacit.PreferenceMatrix("arxiv")
    assert environment_from_spec("preference-matrix([[0.5, 0.6], [0.4, 0.5]])").arm_count == 2
    named = environment_from_spec("preference-matrix(uniform-gap(5, 0.1), ties=0.2, delay=3)")
    assert (named.arm_count, named.ties, named.delay) == (5, 0.2, 3)
    assert environment_from_spec("logistic-utilities(7, seed=2)").arm_count == 7
    assert environment_from_spec("relaxed-chain(5, 1.3)").matrix[1][2] == pytest.approx(0.63)


# Learning -------------------------------------------------------------------------------------


@by_label
def test_regret_stays_far_below_uniform_choice(policy):
    if policy.label == "WinnerStays(variant=weak)":
        environment = tacit.PreferenceMatrix(CHANCES, regret_kind="weak")
        uniform = np.minimum.outer(environment.gaps, environment.gaps).mean()
    else:
        environment = tacit.PreferenceMatrix(CHANCES)
        uniform = environment.gaps.mean()
    result = tacit.simulate(policy, environment, 5000, runs=8, seed=4)
    assert result.regret[0, :, -1].mean() < 0.25 * 5000 * uniform


def test_no_condorcet_winner_is_needed_by_double_thompson_sampling():
    """It plays the arms that beat most others, though none beats all."""
    matrix = [[0.5, 0.8, 0.2, 0.8], [0.2, 0.5, 0.8, 0.8], [0.8, 0.2, 0.5, 0.8], [0.2, 0.2, 0.2, 0.5]]
    environment = tacit.PreferenceMatrix(matrix, winner="copeland")
    policy = tacit.policies.baselines.DoubleThompsonSampling(4)
    result = tacit.simulate(policy, environment, 5000, runs=4, seed=1)
    # Arm 3, which beats none, has a gap of 2/3: playing it on one side for ever would cost 1/3.
    assert result.regret[0, :, -1].mean() < 0.02 * 5000


# What a log says of two arms --------------------------------------------------------------------


def test_duels_of_two_arms_are_weighed_by_hand():
    """Either side counts half a row over its probability: (1/0.2 + 0.25/0.1 + 1/0.8)/2 over four rows."""
    log = [("a", "b", 1.0, 0.2), ("b", "c", 0.0, None), ("b", "a", 0.75, 0.1), ("b", "a", 0.0, 0.8)]
    found = always(log, "a", "b")
    assert found.value == pytest.approx((1 / 0.2 + 0.25 / 0.1 + 1 / 0.8) / 2 / 4)
    assert (found.met, found.duels) == (3, 4)
    assert always(log, "b", "a").high == pytest.approx(1 - found.low)


def test_intervals_of_two_arms_that_always_met_hold_on_a_live_log():
    """120 intervals of 95 %: were they exact, 16 would fail with a chance below 1e-3."""
    missed, width = 0, []
    for seed in range(40):
        learner, rng, log = tacit.Learner(tacit.HorizonDraw(4), seed=seed), np.random.default_rng(seed), []
        for _ in range(400):
            decision = learner.choose("query")
            outcome = float(rng.random() < CHANCES[decision.pair])
            learner.learn(decision, outcome)
            log.append((*decision.pair, outcome, decision.propensity))
        for pair in ((0, 1), (0, 3), (1, 2)):
            found = always(log, *pair)
            missed += not found.low <= CHANCES[pair] <= found.high
            width.append(found.high - found.low)
    assert missed <= 15
    assert min(width) < 0.9
