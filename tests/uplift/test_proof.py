"""Proof that learning helps: sums, intervals, evidence, plans; by hand and by properties."""

import importlib
import json
import math
from datetime import datetime

import numpy as np
import pytest
from drawn import examples
from hypothesis import assume, given
from hypothesis import strategies as st

from tacit import uplift
from tacit.errors import InvalidValue
from tacit.uplift import sentences as phrases
from tacit.uplift.boundary import BUCKETS
from tacit.uplift.holdout import difference_from_ratio, has_enough_data, is_refuted, ratio_ends
from tacit.uplift.traffic import independent_counts


def sums_of(n0, r0, n1, r1):
    """Return the sums of so many decisions and clicks of control and policy."""
    clicks = np.array([r0, r1], float)
    return uplift.HoldoutSums(np.array([n0, n1], float), clicks, clicks.copy())


clicked = st.integers(1, 5000).flatmap(
    lambda n: st.tuples(st.just(n), st.integers(0, n))
)  # decisions, clicks


# Sums ----------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 1), st.floats(0, 100), st.integers(0, 127))), st.data())
def test_sums_do_not_depend_on_how_decisions_are_parted(decisions, data):
    cut = data.draw(st.integers(0, len(decisions)))
    whole, parted, first, rest = (uplift.HoldoutSums.empty(clustered=True) for _ in range(4))
    columns = np.array(decisions, float).reshape(-1, 3)
    whole.add(*columns.T)
    for sums, part in ((parted, columns[:cut]), (parted, columns[cut:])):
        sums.add(*part.T)
    first.add(*columns[:cut].T)
    rest.add(*columns[cut:].T)
    merged = first.merge(rest)
    for name in uplift.HoldoutSums._fields:
        assert getattr(whole, name).tobytes() == getattr(parted, name).tobytes()
        np.testing.assert_allclose(getattr(merged, name), getattr(whole, name), rtol=1e-12)


def test_sums_are_json_data_and_back():
    sums = uplift.HoldoutSums.empty(clustered=True)
    sums.add([0, 1, 1], [0.1, 0.2, 1.0], [0, 5, 127])
    again = uplift.HoldoutSums.from_dict(json.loads(json.dumps(sums.as_dict())))
    assert [a.tobytes() for a in again] == [a.tobytes() for a in sums]
    assert sums.buckets.sum(axis=1).tolist() == [1.0, 3.0, pytest.approx(1.3)]
    with pytest.raises(InvalidValue, match="buckets"):
        sums.add([0], [1.0])


# The interval of a holdout -------------------------------------------------------------------


def test_clicks_have_the_dispersion_1_and_certain_rewards_0():
    assert uplift.dispersion(sums_of(100, 7, 900, 88)) == pytest.approx(1)
    assert (
        uplift.dispersion(
            uplift.HoldoutSums(np.array([10.0, 10.0]), np.array([5.0, 5.0]), np.array([2.5, 2.5]))
        )
        == 0
    )


def test_the_dispersion_of_users_is_that_between_buckets():
    sums = uplift.HoldoutSums.empty(clustered=True)
    # One user clicks always, the other never: of 8 decisions, 4 clicks.
    sums.add([0] * 4 + [1] * 4, [1.0] * 4 + [0.0] * 4, [0] * 4 + [1] * 4)
    between = (4 - 0.5 * 4) ** 2 + (0 - 0.5 * 4) ** 2
    assert uplift.dispersion(sums) == pytest.approx(BUCKETS / (BUCKETS - 1) * between / (4 * 0.5))


def test_the_dispersion_of_revenue_is_at_least_that_of_the_groups():
    # Control: 1 and 3 of 4 decisions; policy: 2 of 4.
    sums = uplift.HoldoutSums(np.array([4.0, 4.0]), np.array([4.0, 2.0]), np.array([10.0, 4.0]))
    pooled = 14 - 36 / 8
    own = (10 - 16 / 4) / 4 * 2 + (4 - 4 / 4) / 2 * 4
    assert own < pooled
    assert uplift.dispersion(sums, math.inf) == pytest.approx(pooled / 6)
    sums.squares[1] = 100.0
    own = (10 - 16 / 4) / 4 * 2 + (100 - 4 / 4) / 2 * 4
    assert uplift.dispersion(sums, math.inf) == pytest.approx(own / 6)


def test_an_end_of_the_interval_solves_its_equation():
    """Worked by hand: D(ρ) = c²·φ(ρ) at both ends."""
    n0, r0, n1, r1, c = 1000.0, 50.0, 9000.0, 540.0, 3.25
    low, high = ratio_ends(sums_of(n0, r0, n1, r1), c)
    r = r0 + r1
    for rho in (float(low), float(high)):
        q = rho * n1 / (rho * n1 + n0)
        deviance = 2 * (r1 * math.log(r1 / (r * q)) + r0 * math.log(r0 / (r * (1 - q))))
        mean0 = r / (rho * n1 + n0)
        phi = (1 - rho * mean0) * (1 - q) + (1 - mean0) * q
        assert deviance == pytest.approx(c * c * phi, rel=1e-9)
    assert low < r1 / n1 / (r0 / n0) < high


def test_too_little_traffic_claims_nothing():
    assert uplift.holdout_lift(sums_of(100, 0, 900, 9), share=0.1) == uplift.Lift("early")
    # 50 of 100 clicks of balanced groups are R·h(1 − h) = 25 ≥ 5; of 19 clicks it is less.
    assert has_enough_data(sums_of(500, 10, 500, 10), 0.5)
    assert not has_enough_data(sums_of(500, 10, 500, 9), 0.5)
    # Where nearly all click, those who do not are what counts.
    assert not has_enough_data(sums_of(500, 490, 500, 491), 0.5)
    assert has_enough_data(sums_of(500, 490, 500, 491), 0.5, math.inf)
    assert not has_enough_data(sums_of(0, 0, 500, 250), 0.5)
    same = uplift.HoldoutSums.empty()
    same.add([0, 1] * 500, [0.1] * 1000)
    assert not has_enough_data(same, 0.5, math.inf)
    assert uplift.holdout_lift(uplift.HoldoutSums.empty(), share=0.1).claim == "early"


def test_a_control_without_clicks_has_no_upper_end():
    lift = uplift.holdout_lift(sums_of(1000, 0, 9000, 900), share=0.1)
    assert lift.claim == "better"
    assert lift.ratio.estimate == lift.ratio.high == math.inf
    assert lift.ratio.low > 1
    assert lift.as_dict()["ratio"]["high"] is None
    worse = uplift.holdout_lift(sums_of(1000, 100, 9000, 0), share=0.1)
    assert (worse.claim, worse.ratio.estimate, worse.ratio.low) == ("worse", 0, 0)
    assert worse.ratio.high < 1


@given(clicked, clicked, st.sampled_from([0.9, 0.95, 0.99]), st.integers(1, 20))
def test_ratio_and_difference_never_contradict_each_other(control, policy, confidence, comparisons):
    sums = sums_of(*control, *policy)
    lift = uplift.holdout_lift(sums, 0.5, confidence=confidence, comparisons=comparisons)
    assume(lift.claim != "early")
    for ratio, difference in zip(lift.ratio, lift.difference, strict=True):
        assert np.sign(ratio - 1) == np.sign(difference)
    assert lift.ratio.low <= lift.ratio.estimate * (1 + 1e-9)
    assert lift.ratio.estimate <= lift.ratio.high * (1 + 1e-9)
    assert bool(is_refuted(sums, uplift.boundary(confidence, comparisons))) == (
        lift.claim in ("better", "worse")
    )


@given(clicked, clicked, st.floats(0.5, 5), st.floats(0.01, 2))
def test_a_larger_boundary_gives_a_wider_interval(control, policy, c, more):
    sums = sums_of(*control, *policy)
    assume(has_enough_data(sums, 0.5))
    low, high = ratio_ends(sums, c)
    wider_low, wider_high = ratio_ends(sums, c + more)
    assert wider_low <= low
    assert high <= wider_high


@given(
    st.lists(st.tuples(st.integers(0, 1), st.floats(0.01, 50)), min_size=100, max_size=200),
    st.sampled_from([0.001, 3.0, 1e6]),
    st.booleans(),
)
@examples(50)
def test_the_unit_of_rewards_does_not_matter(decisions, unit, bounded):
    groups, rewards = np.array(decisions).T
    once, scaled = uplift.HoldoutSums.empty(), uplift.HoldoutSums.empty()
    once.add(groups, rewards)
    scaled.add(groups, rewards * unit)
    largest = 50.0 if bounded else math.inf
    lift = uplift.holdout_lift(once, 0.5, largest=largest)
    same = uplift.holdout_lift(scaled, 0.5, largest=largest * unit)
    assert lift.claim == same.claim
    assume(lift.claim != "early")
    assert same.ratio == pytest.approx(lift.ratio, rel=1e-6)
    assert same.difference == pytest.approx([unit * x for x in lift.difference], rel=1e-5, abs=1e-9)


@given(clicked, clicked, st.integers(2, 50))
def test_more_of_the_same_narrows_the_interval(control, policy, times):
    sums = sums_of(*control, *policy)
    assume(has_enough_data(sums, 0.5) and sums.totals.all())
    more = uplift.HoldoutSums(*(times * each for each in sums[:3]))
    low, high = ratio_ends(sums, 3.25)
    narrow_low, narrow_high = ratio_ends(more, 3.25)
    assert low <= narrow_low * (1 + 1e-9)
    assert narrow_high <= high * (1 + 1e-9)


def test_experiments_side_by_side_are_what_each_is_alone():
    rng = np.random.default_rng(3)
    counts = rng.integers(1000, 2000, (2, 5)).astype(float)
    totals = np.floor(counts * rng.uniform(0.1, 0.3, (2, 5)))
    many = uplift.HoldoutSums(counts, totals, totals)
    low, high = ratio_ends(many, 3.25)
    for i in range(5):
        one = sums_of(*np.array([counts[:, i], totals[:, i]]).T.ravel())
        assert ratio_ends(one, 3.25) == (low[i], high[i])
        assert difference_from_ratio(one, low[i]) == difference_from_ratio(many, low)[i]


# Without a holdout ---------------------------------------------------------------------------


def test_scores_by_hand():
    sums = uplift.ScoreSums.empty(2)
    sums.add([0, 1, 1], [1.0, 0.0, 1.0], [0.5, 0.25, 0.75])
    # Means before: 0, 1, 1/2; so r − m is 1, −1, 1/2.
    coefs, apart = [1 - 0.5 / 0.5, 1 - 0.5 / 0.25, 1 - 0.5 / 0.75], [1, -1, 0.5]
    scores = [c * a for c, a in zip(coefs, apart, strict=True)]
    assert sums.compare_with_uniform().d == pytest.approx(sum(scores))
    assert sums.compare_with_uniform().dd == pytest.approx(sum(s * s for s in scores))
    assert sums.compare_with_uniform().gg == pytest.approx(sum(c * c for c in coefs))
    coefs = [1 - 1 / 0.5, 1, 1]
    scores = [c * a for c, a in zip(coefs, apart, strict=True)]
    assert sums.compare_with_arm(0).d == pytest.approx(sum(scores))
    assert sums.compare_with_arm(0).dd == pytest.approx(sum(s * s for s in scores))
    assert sums.compare_with_arm(0).gg == pytest.approx(sum(c * c for c in coefs))
    coefs = [-1 / 0.5, 1 / 0.25, 1 / 0.75]
    scores = [c * a for c, a in zip(coefs, apart, strict=True)]
    assert sums.compare_arms(1, 0).d == pytest.approx(sum(scores))
    assert sums.compare_arms(1, 0).dd == pytest.approx(sum(s * s for s in scores))
    assert (sums.overall == [3, 2, 2]).all()


def test_the_interval_of_scores_by_hand():
    sums = uplift.ScoreSums.empty(2)
    sums.add(np.tile([0, 1], 500), np.tile([0.0, 1.0, 0.0, 0.0], 250), np.full(1000, 0.5))
    scores = sums.compare_arms(1, 0)
    low, high = scores.interval(3.25)
    radius = 3.25 * math.sqrt(max(scores.dd - scores.d**2 / 1000, 0.25 * 0.75 * 4000)) / 1000
    assert (low, high) == pytest.approx((scores.d / 1000 - radius, scores.d / 1000 + radius))
    # 250 rewards over a mean coef² of 4.
    assert scores.has_enough_data
    assert not scores._replace(gg=scores.gg * 7).has_enough_data
    lift = scores.lift()
    assert (lift.claim, lift.ratio) == ("better", None)


@given(st.integers(0, 60), st.integers(0, 2**32 - 1))
def test_scores_do_not_depend_on_how_decisions_are_parted(cut, seed):
    rng = np.random.default_rng(seed)
    columns = rng.integers(3, size=60), rng.random(60), rng.uniform(0.1, 1, 60)
    whole, parted = uplift.ScoreSums.empty(3), uplift.ScoreSums.empty(3)
    whole.add(*columns)
    parted.add(*(column[:cut] for column in columns))
    parted.add(*(column[cut:] for column in columns))
    assert [a.tobytes() for a in whole] == [a.tobytes() for a in parted]
    again = uplift.ScoreSums.from_dict(json.loads(json.dumps(whole.as_dict())))
    assert [a.tobytes() for a in again] == [a.tobytes() for a in whole]


def test_a_policy_mixed_with_a_uniform_holdout_is_weighed_by_its_own_chances():
    """With the policy's chances in full, the mean of the scores is the difference exactly."""
    value, policy, share = np.array([0.2, 0.6]), np.array([0.1, 0.9]), 0.2
    logged = share / 2 + (1 - share) * policy
    expected = sum(q * (p - 0.5) / q * v for v, p, q in zip(value, policy, logged, strict=True))
    assert expected == pytest.approx(value @ policy - value.mean())
    sums = uplift.ScoreSums.empty(2)
    rng = np.random.default_rng(5)
    shown = rng.choice(2, size=40_000, p=logged)
    sums.add(shown, rng.random(40_000) < value[shown], logged[shown], policy[shown])
    found = sums.compare_with_uniform().lift().difference
    assert found.low < expected < found.high
    assert found.low > 0
    assert uplift.winner(sums).leader == 1
    assert uplift.winner(sums).declared


def test_a_winner_needs_traffic_and_two_arms():
    assert uplift.winner(uplift.ScoreSums.empty(1)) is None
    assert uplift.winner(uplift.ScoreSums.empty(3)) is None
    sums = uplift.ScoreSums.empty(2)
    sums.add(np.tile([0, 1], 2000), np.tile([0, 0, 1, 1], 1000), np.full(4000, 0.5))
    assert not uplift.winner(sums).declared


def test_a_winner_is_found_among_the_arms_that_are_asked_about():
    sums = uplift.ScoreSums.empty(3)
    sums.add(np.tile([0, 2], 2000), np.arange(4000) % 4 == 1, np.full(4000, 0.5))
    found = uplift.winner(sums, arms=[0, 2])
    assert (found.leader, found.declared) == (2, True)
    assert (found.behind[0].low < 0.5 < found.behind[0].high, found.behind[1].high) == (True, 0.0)
    assert uplift.winner(sums, arms=[2]) is None


# Traffic -------------------------------------------------------------------------------------


def test_the_evidence_of_shares_is_a_ratio_of_likelihoods():
    """One decision says nothing; two of the control: (κθ + 1)/(κ + 1)/θ."""
    assert uplift.share_evidence([1, 0], 0.1) == pytest.approx(0, abs=1e-9)
    expected = math.log((1e4 * 0.1 + 1) / (1e4 + 1) / 0.1)
    assert uplift.share_evidence([2, 0], 0.1) == pytest.approx(expected, rel=1e-3)


def test_users_who_come_often_are_no_mismatch():
    rng = np.random.default_rng(8)
    users = rng.random(200) < 0.5
    visits = rng.geometric(0.01, 200)
    sums = uplift.HoldoutSums.empty(clustered=True)
    groups = np.repeat(np.where(users, 0, 1), visits)
    sums.add(groups, np.zeros(len(groups)), np.repeat(rng.integers(128, size=200), visits))
    assert uplift.share_evidence(sums.counts, 0.5) > uplift.ALARM
    assert uplift.share_evidence(independent_counts(sums), 0.5) < uplift.ALARM
    assert independent_counts(sums_of(7, 0, 9, 0)) == (7, 9)


def test_propensities_that_are_wrong_either_way_alarm():
    for shown, alarms in ((0.5, False), (0.6, True), (0.4, True)):
        sums = uplift.PropensitySums.empty()
        sums.add(np.arange(2000) % 10 < 10 * shown, np.full(2000, 0.5))
        assert (sums.evidence() > uplift.ALARM) is alarms
    assert uplift.PropensitySums.empty().evidence() == 0
    assert sums.merge(sums).sums.tolist() == [2 * x for x in sums.sums]


def test_the_bets_on_propensities_are_fair():
    """The expected evidence of one decision is at most 1, whatever its propensity."""
    for q in (0.01, 0.3, 0.5, 0.9, 0.999):
        expected = 0.0
        for shown, chance in ((True, q), (False, 1 - q)):
            sums = uplift.PropensitySums.empty()
            sums.add([shown], [q])
            expected += chance * math.exp(sums.evidence())
        assert expected <= 1 + 1e-12


@given(st.lists(st.integers(1, 100), min_size=2, max_size=5), st.data())
def test_the_bets_on_each_arm_are_fair(weights, data):
    """The expected evidence of one decision is at most 1, also where arms cannot be shown."""
    q = np.array(weights) / sum(weights)
    # Arms that stand in none of the offers, and one that is on offer and never shown.
    more = data.draw(st.integers(0, 2))
    offer = np.arange(len(q) + (more > 0))
    expected = 0.0
    for arm, chance in enumerate(q):
        sums = uplift.FrequencySums.empty(len(q) + more)
        sums.add([arm], [chance], [offer])
        expected += chance * math.exp(sums.evidence())
    assert expected <= 1 + 1e-9


def test_an_arm_that_is_shown_too_often_alarms():
    rng = np.random.default_rng(8)
    offers = [np.arange(3)] * 6000
    logged = np.array([0.5, 0.3, 0.2])
    for true, alarms in (([0.5, 0.3, 0.2], False), ([0.5, 0.24, 0.26], True)):
        shown = rng.choice(3, size=6000, p=true)
        whole, first, rest = (uplift.FrequencySums.empty(3) for _ in range(3))
        whole.add(shown, logged[shown], offers)
        first.add(shown[:100], logged[shown[:100]], offers[:100])
        rest.add(shown[100:], logged[shown[100:]], offers[100:])
        assert (whole.evidence() > uplift.ALARM) is alarms
        assert first.merge(rest).evidence() == pytest.approx(whole.evidence(), rel=1e-12)


def test_whoever_leads_must_not_be_shown_less_often():
    """The leader changes, so that no arm is shown too often all the time."""
    rng = np.random.default_rng(9)
    sums, honest = uplift.FrequencySums.empty(3), uplift.FrequencySums.empty(3)
    leads = rng.integers(3, size=6000)
    for each, true in ((sums, 0.72), (honest, 0.8)):
        shown = np.where(rng.random(6000) < true, leads, (leads + rng.integers(1, 3, 6000)) % 3)
        each.add(shown, np.where(shown == leads, 0.8, 0.1), [np.arange(3)] * 6000)
    assert honest.evidence() < uplift.ALARM < sums.evidence()


# Plans, guardrails, words --------------------------------------------------------------------


def test_plans_are_those_of_the_page():
    assert uplift.decisions_needed(0.05, 0.1, 0.1) == pytest.approx(331_451, abs=1)
    assert uplift.decisions_needed(0.05, 0.1, 0.1, power=0.5) == pytest.approx(331_451 * 8.6 / 14.4, abs=1)
    revenue = uplift.decisions_needed(2.0, 0.1, dispersion=3.0, largest=math.inf)
    assert revenue == pytest.approx(14.4 * 3 * (1 / 0.2 + 1 / (2.2 * 0.9)) / math.log(1.1) ** 2)


@pytest.mark.parametrize(
    ("low", "high", "better", "safety"),
    [
        (0.9, 0.95, "more", "harm"),
        (0.97, 0.99, "more", "harm"),
        (0.985, 1.01, "more", "safe"),
        (0.95, 1.01, "more", "unknown"),
        (1.01, 1.1, "less", "harm"),
        (0.9, 1.015, "less", "safe"),
        (0.9, 1.1, "less", "unknown"),
    ],
)
def test_guardrails(low, high, better, safety):
    lift = uplift.Lift("undecided", uplift.Interval((low + high) / 2, low, high))
    assert uplift.guardrail_status(lift, 0.02, better=better) == safety


def test_guardrails_wait_for_traffic():
    assert uplift.guardrail_status(uplift.Lift("early"), 0.02) == "early"


def test_sentences():
    assert uplift.lift_sentence(
        uplift.Lift("better", uplift.Interval(1.2, 1.04, 1.4), uplift.Interval(0.01, 0.002, 0.02))
    ) == (
        "Learning earned 20 % more than the control (between 4 % and 40 %). You may look at this at any time."
    )
    worse = uplift.Lift("worse", uplift.Interval(0.9, 0.85, 0.98), uplift.Interval(-0.1, -0.2, -0.01))
    assert uplift.lift_sentence(worse).startswith(
        "Learning earned 10 % less than the control (between 2 % and 15 %)."
    )
    assert uplift.lift_sentence(worse._replace(ratio=None)).startswith(
        "Learning earned 0.1 per decision less than the control (between 0.01 and 0.2 per decision)"
    )
    endless = uplift.Lift("better", uplift.Interval(math.inf, 1.5, math.inf))
    assert uplift.lift_sentence(endless).startswith("Learning earned more than the control (at least 50 %).")
    assert uplift.lift_sentence(uplift.Lift("early")) == "Too early: the control has had too little traffic."
    assert uplift.lift_sentence(uplift.Lift("undecided")) == "No difference shown yet."
    assert "in less than a day (4 times" in uplift.lift_sentence(uplift.Lift("undecided"), days=0.5)
    assert "in about a day (4 times" in uplift.lift_sentence(uplift.Lift("undecided"), days=1.2)
    assert phrases.since_sentence(datetime(2025, 5, 3), datetime(2026, 1, 1)) == (
        "This is the average since 3 May 2025, not today's lift."
    )
    assert phrases.mismatch_sentence("decisions", 0.2, 0.1) == (
        "Do not trust this: the control has more decisions than its share."
    )
    assert phrases.mismatch_sentence("activations", 0.05, 0.1) == (
        "Do not trust this: the control has fewer activations than its share."
    )


# Error rates ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def traffic():
    return importlib.import_module("proof_traffic")


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_looking_often_misleads_seldom(traffic, share):
    """With an error of 5 %, 400 runs exceed 37 errors with a probability below 0.0003."""
    at, runs = traffic.looks(100), 400
    rates = traffic.drifting(0.1)(at)
    rng = np.random.default_rng(11)
    wrong = np.zeros(runs, bool)
    for sums in traffic.clicks(rng, runs, at, share, rates, rates):
        known = has_enough_data(sums, share)
        kept = uplift.HoldoutSums(*(each[:, known] for each in sums[:3]))
        wrong[known] |= is_refuted(kept, uplift.boundary())
    assert wrong.sum() <= 37


def test_a_true_lift_shows_when_the_planner_says(traffic):
    """Four times in five: of 400 runs, less than 280 with a probability below 10⁻⁶."""
    need = uplift.decisions_needed(0.1, 0.2, 0.1) * 1.15
    at, runs = np.geomspace(need / 50, need, 60).astype(np.int64), 400
    control = np.full(len(at), 0.1)
    shown = np.zeros(runs, bool)
    for sums in traffic.clicks(np.random.default_rng(12), runs, at, 0.1, control, 1.2 * control):
        if has_enough_data(sums, 0.1).all():
            shown |= is_refuted(sums, uplift.boundary())
    assert shown.sum() >= 280


def test_equal_arms_have_no_winner_though_their_rates_drift(traffic):
    """With an error of 5 %, 300 runs exceed 31 errors with a probability below 0.0001."""
    at, runs = traffic.looks(60, last=100_000), 300
    rates = traffic.drifting(0.3)(at)
    wrong = np.zeros(runs, bool)
    with np.errstate(invalid="ignore"):
        for pair, *_ in traffic.equal_arms(np.random.default_rng(13), runs, at, 2, rates, 0.5):
            low, _ = pair.interval(uplift.boundary())
            wrong |= np.all(np.isnan(pair.d) | (pair.has_enough_data & (low > 0)), axis=0)
    assert wrong.sum() <= 31


# Amounts of either sign ----------------------------------------------------------------------


def test_the_difference_of_amounts_of_either_sign_by_hand():
    sums = uplift.HoldoutSums.empty()
    sums.add([0, 1] * 100, [-3.0, 1.0, 1.0, 5.0] * 50)
    lift = uplift.difference_lift(sums, share=0.5)
    # Means −1 and 3, variances 4 and 4, each of 100.
    radius = 3.25 * (4 / 100 + 4 / 100) ** 0.5
    assert lift.difference == pytest.approx((4.0, 4.0 - radius, 4.0 + radius))
    assert (lift.claim, lift.ratio) == ("better", None)
    half = uplift.HoldoutSums.empty()
    half.add([0, 1] * 99, [-3.0, 1.0, 1.0] * 66)
    assert uplift.difference_lift(half, share=0.5).claim == "early"


def test_a_small_control_without_a_large_sale_proves_nothing():
    """A control of 100 beside 900, of whom 3 % buy: 6.5 % of the intervals by its own variance missed 0."""
    rng, missed = np.random.default_rng(3), 0
    for _ in range(300):
        sums = uplift.HoldoutSums.empty()
        sums.add(np.arange(1000) >= 100, rng.lognormal(3.0, 1.0, 1000) * (rng.random(1000) < 0.03))
        missed += uplift.difference_lift(sums, share=0.1).claim != "undecided"
    assert missed <= 3


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("shares", [(0.3,), (0.3, 0.1)])
def test_the_difference_of_amounts_of_either_sign_is_found(shares, clustered):
    """Its error has the deviation that is said, also over periods and where users have several decisions."""
    rng, deviations = np.random.default_rng(1), []
    for _ in range(400):
        taste, place, periods = rng.normal(0, 2, 400), rng.random(400), []
        for mean, share in enumerate(shares):
            users = rng.integers(400, size=3000)
            groups = ((place[users] if clustered else rng.random(3000)) >= share).astype(int)
            amounts = rng.normal(mean + 0.5 * groups, 3) + clustered * taste[users]
            sums = uplift.HoldoutSums.empty(clustered=clustered)
            sums.add(groups, amounts, users % BUCKETS if clustered else None)
            periods.append(sums)
        estimate, low, high = uplift.difference_lift(periods, shares).difference
        deviations.append((estimate - 0.5) / ((high - low) / 2 / uplift.boundary()))
    assert abs(np.mean(deviations)) < 5 / 20
    assert 0.85 < np.std(deviations) < 1.2
