"""Rewards that are not clicks: revenue, stars and signed rewards in logs, estimates, replay and commands."""

import math

import numpy as np
import pytest
from conftest import DATA

import tacit
from tacit import cluster
from tacit.errors import AssumptionWarning, InvalidValue
from tacit.evaluate import (
    IPS,
    SNIPS,
    DoublyRobust,
    IndependentIPS,
    SlateIPS,
    examine,
    fixed_target,
    intervals,
)
from tests.cli.test_cli import tacit as command

REVENUE = DATA / "rewards" / "revenue_in_cents.csv"
SIGNED = DATA / "rewards" / "signed.csv"
IN_CENTS = {"arm": "variant", "reward": "revenue_cents", "propensity": "p"}
ARMS = ["film", "song"]
FILM = fixed_target("always:film")
ESTIMATORS = [IPS(), SNIPS(), IPS(clip=1.5), DoublyRobust()]


def graded_log(low=0.0, width=1.0, rows=600, **columns):
    """Return a log of two arms whose rewards are ``low`` + ``width`` times numbers in [0, 1]."""
    rng = np.random.default_rng(3)
    arm = (rng.random(rows) < 0.4).astype(int)
    grades = rng.integers(5, size=rows) / 4 * (0.5 + 0.5 * arm)
    columns = {"arm": np.array(ARMS)[arm], "propensity": np.array([0.6, 0.4])[arm]} | columns
    return {"key": np.array(["a", "b", "c"])[np.arange(rows) % 3], "reward": low + width * grades, **columns}


def lists_log(low=0.0, width=1.0, lists=300):
    """Return a log of lists of two arms at two positions, shown at random."""
    rng = np.random.default_rng(4)
    order = np.stack([shown := rng.integers(2, size=lists), 1 - shown], axis=1).ravel()
    return {
        "decision_id": np.repeat(np.arange(lists), 2),
        "position": np.tile([0, 1], lists),
        "arm": np.array(ARMS)[order],
        "propensity": np.tile([0.5, 1.0], lists),
        "position_propensity": np.full(2 * lists, 0.5),
        "reward": low + width * (rng.random(2 * lists) < 0.3),
    }


# Cases with known values ---------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::tacit.errors.AssumptionWarning")
def test_revenue_is_estimated_in_cents():
    result = tacit.off_policy(
        fixed_target("always:plain"), REVENUE, columns=IN_CENTS, arms="shown", reward_range=(0, None)
    )
    ips = result.estimates["IPS"]
    assert ips.value == pytest.approx(264.36)
    low, high = ips.intervals["anytime"]
    assert low >= 0
    assert high == math.inf
    assert ips.row()["anytime_high"] is None
    assert "anytime has no upper end" in result.summary()
    assert "the largest reward brings 26.1 % of the sum, the five largest 55.3 %" in result.summary()
    assert "score" not in ips.intervals or ips.intervals["score"][0] < ips.value


def test_signed_rewards_are_estimated_with_all_intervals():
    result = tacit.off_policy(fixed_target("always:calm"), SIGNED, arms="shown", reward_range=(-1, 1))
    ips = result.estimates["IPS"]
    assert ips.value == pytest.approx(0.11667, abs=1e-5)
    assert ips.intervals.keys() == {"normal", "bootstrap", "score", "anytime"}
    assert all(low < 0.11667 < high for low, high in ips.intervals.values())


@pytest.mark.parametrize(
    ("log", "words", "value"),
    [
        (REVENUE, "--policy always:plain --column arm=variant --column reward=revenue_cents --column "
         "propensity=p --reward-range 0 open", "264.36000"),
        (SIGNED, "--policy always:calm --reward-range -1 1", "0.11667"),
        (SIGNED, "--policy always:calm --reward-range open open", "0.11667"),
    ],
)  # fmt: skip
def test_the_command_takes_a_range(log, words, value, tmp_path):
    answer = command("evaluate", log, "--estimator", "ips", "--arms", "shown", *words.split(), cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert f"IPS  {value}" in " ".join(answer.stdout.split()).replace(f"IPS {value}", f"IPS  {value}")


# Off-policy evaluation -----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::tacit.errors.AssumptionWarning")
@pytest.mark.parametrize("bound", [None, 2.0])
def test_with_both_ends_the_guarantees_are_those_of_the_unit(bound):
    plain = tacit.off_policy(FILM, graded_log(), ESTIMATORS, arms=ARMS, weight_bound=bound)
    options = {"arms": ARMS, "weight_bound": bound, "reward_range": (-3, 7)}
    wide = tacit.off_policy(FILM, graded_log(-3.0, 10.0), ESTIMATORS, **options)
    for one, other in zip(plain.estimates, wide.estimates, strict=True):
        for kind in {"score", "anytime"} & one.intervals.keys():
            expected = [-3 + 10 * end for end in one.intervals[kind]]
            np.testing.assert_allclose(other.intervals[kind], expected, rtol=1e-9)
        assert one.intervals.keys() == other.intervals.keys()
    assert wide.estimates["SNIPS"].value == pytest.approx(-3 + 10 * plain.estimates["SNIPS"].value)
    assert wide.estimates["DoublyRobust"].value == pytest.approx(
        -3 + 10 * plain.estimates["DoublyRobust"].value
    )


@pytest.mark.filterwarnings("ignore::tacit.errors.AssumptionWarning")
def test_the_estimate_is_of_the_raw_rewards():
    log = graded_log(1.0, 4.0)
    result = tacit.off_policy(FILM, log, arms=ARMS, reward_range=(1, 5), missing_reward=None)
    weights = (log["arm"] == "film") / log["propensity"]
    assert result.estimates["IPS"].value == pytest.approx((weights * log["reward"]).mean(), rel=1e-12)
    assert result.logged == pytest.approx(log["reward"].mean())


@pytest.mark.filterwarnings("ignore::tacit.errors.AssumptionWarning")
def test_lists_map_their_sums():
    estimators = [IndependentIPS(2), SlateIPS(2)]
    target = fixed_target("list:film,song")
    plain = tacit.off_policy(target, lists_log(), estimators, arms=ARMS)
    wide = tacit.off_policy(target, lists_log(-1.0, 2.0), estimators, arms=ARMS, reward_range=(-1, 1))
    for one, other in zip(plain.estimates, wide.estimates, strict=True):
        for kind in "score", "anytime":
            expected = [-2 + 2 * end for end in one.intervals[kind]]
            np.testing.assert_allclose(other.intervals[kind], expected, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::tacit.errors.AssumptionWarning")
def test_rewards_that_are_all_alike_have_an_exact_interval_only_with_both_ends():
    log = graded_log() | {"reward": np.full(600, 2.0)}
    known = tacit.off_policy(FILM, log, arms=ARMS, reward_range=(0, 10)).estimates["SNIPS"]
    plain = tacit.off_policy(FILM, log | {"reward": np.full(600, 0.2)}, arms=ARMS).estimates["SNIPS"]
    expected = [10 * end for end in plain.intervals["normal"]]
    np.testing.assert_allclose(known.intervals["normal"], expected, rtol=1e-9)
    unknown = tacit.off_policy(FILM, log, arms=ARMS, reward_range=(0, None)).estimates["SNIPS"]
    assert "normal" not in unknown.intervals


@pytest.mark.filterwarnings("ignore::tacit.errors.AssumptionWarning")
def test_an_open_range_has_no_interval_that_needs_the_end():
    for estimate in tacit.off_policy(
        FILM, graded_log(5.0, 90.0), arms=ARMS, reward_range=(5, None), missing_reward=None
    ).estimates:
        low, high = estimate.intervals["anytime"]
        assert 5 < low < estimate.value < high == math.inf
        assert "score" in estimate.intervals
    neither = tacit.off_policy(FILM, graded_log(-40.0, 90.0), arms=ARMS, reward_range=None)
    assert all("anytime" not in estimate.intervals for estimate in neither.estimates)
    assert "there is no anytime interval" in neither.summary()
    bounded = tacit.off_policy(
        FILM, graded_log(0.0, 90.0), arms=ARMS, reward_range=(0, None), weight_bound=2.0
    )
    assert bounded.estimates["IPS"].intervals["anytime"][1] == math.inf


@pytest.mark.filterwarnings("ignore::tacit.errors.AssumptionWarning")
def test_parts_of_a_log_with_an_open_range_are_merged(tmp_path):
    for name, rows in ("a", 600), ("b", 300):
        tacit.write_log(
            tacit.read_log(graded_log(0.0, 40.0, rows), arms=ARMS, reward_range=(0, 40)),
            tmp_path / f"{name}.parquet",
        )
    log = tacit.read_log(tmp_path, reward_range=(0, None))
    whole = tacit.off_policy(FILM, log, ESTIMATORS)
    parts = cluster.off_policy(FILM, log, ESTIMATORS)
    assert whole.notes == parts.notes
    for one, other in zip(whole.estimates, parts.estimates, strict=True):
        assert one.value == pytest.approx(other.value)
        np.testing.assert_allclose(one.intervals["normal"], other.intervals["normal"])


@pytest.mark.filterwarnings("ignore::tacit.errors.AssumptionWarning")
def test_open_ranges_have_segments_and_clusters():
    log = graded_log(0.0, 40.0, user=np.arange(600) // 3)
    by = tacit.off_policy(FILM, log, arms=ARMS, reward_range=(0, None), by="key")
    assert len(by.segments) == 3
    clustered = tacit.off_policy(FILM, log, arms=ARMS, reward_range=(0, None), cluster="user")
    for estimate in (*clustered.estimates, *by.segments["a"].estimates):
        low, high = estimate.intervals["normal"]
        assert low < estimate.value < high


def test_a_few_large_rewards_are_warned_of():
    log = graded_log() | {"reward": np.where(np.arange(600) == 7, 5000.0, graded_log()["reward"])}
    with pytest.warns(AssumptionWarning, match=r"the largest reward brings 9\d.\d % of the sum"):
        tacit.off_policy(fixed_target("uniform"), log, [IPS()], arms=ARMS, reward_range=(0, None))


@pytest.mark.parametrize("judge", [tacit.off_policy, examine])
def test_a_missing_reward_outside_the_range_is_refused(judge):
    log = graded_log(1.0, 4.0, position=np.zeros(600, int))
    subject = () if judge is examine else (FILM,)
    with pytest.raises(InvalidValue, match=r"missing_reward.*\[1, 5\].*missing_reward=None"):
        judge(*subject, log, arms=ARMS, reward_range=(1, 5))


def test_clipped_rewards_are_counted_beside_the_figure():
    log = {"arm": ["film"] * 4, "propensity": [0.5] * 4, "reward": [3.0, 80.0, -2.0, 4.0]}
    result = tacit.off_policy(FILM, log, [IPS()], arms=ARMS, reward_range=(0, 10), outside="clip")
    assert result.estimates["IPS"].value == pytest.approx(2 * (3 + 10 + 0 + 4) / 4)
    assert "2 of 4 rewards are clipped to (0, 10), by 72 in sum" in result.notes
    with pytest.raises(InvalidValue, match="outside"):
        tacit.read_log(log, arms=ARMS, outside="widen")


# Policies that learn from a log --------------------------------------------------------------


def test_a_log_is_learned_in_the_unit_of_the_policy():
    plain = tacit.Learner(tacit.UCB1(arms=ARMS), seed=1).fit_log(graded_log(), arms=ARMS)
    stars = tacit.Learner(tacit.UCB1(arms=ARMS, reward_range=(1, 5)), seed=1)
    stars.fit_log(graded_log(1.0, 4.0), arms=ARMS, missing_reward=None)
    for one, other in zip(plain.estimates("a"), stars.estimates("a"), strict=True):
        assert other.mean == pytest.approx(1 + 4 * one.mean)


@pytest.mark.parametrize("use", ["fit", "replay", "off_policy"])
def test_a_log_of_another_range_than_the_policys_is_refused(use):
    policy = tacit.UCB1(arms=ARMS, reward_range=(0, 500))
    log = tacit.read_log(graded_log(), arms=ARMS, reward_range=(0, None))
    calls = {"fit": tacit.Learner(policy).fit_log, "replay": lambda log: tacit.replay(policy, log)}
    judged = tacit.auto(arms=ARMS, reward_range=(0, 500))
    call = calls.get(use, lambda log: tacit.off_policy(judged, log))
    with pytest.raises(InvalidValue, match=r"learns rewards in \(0, 500\), the log is read with \(0, None\)"):
        call(log)


@pytest.mark.filterwarnings("ignore::tacit.errors.AssumptionWarning")
def test_a_learner_is_judged_by_a_log_in_its_range():
    learner = tacit.Learner(tacit.auto(arms=ARMS, reward_range=(0, None)), seed=1)
    log = graded_log(0.0, 40.0)
    assert tacit.off_policy(learner, log, [IPS()], arms=ARMS).reward_range == (0, None)
    assert tacit.off_policy(learner, log, [IPS()], arms=ARMS, reward_range=(0, 40)).reward_range == (0, 40)


@pytest.mark.filterwarnings("ignore::tacit.errors.AssumptionWarning")
def test_a_target_that_learns_has_its_own_unit():
    policy = tacit.policies.EXP3(arms=ARMS)
    plain = tacit.off_policy(policy, graded_log(), [SNIPS()], arms=ARMS)
    wide = tacit.off_policy(policy.with_range((-3, 7)), graded_log(-3.0, 10.0), [SNIPS()], arms=ARMS)
    assert wide.estimates[0].value == pytest.approx(-3 + 10 * plain.estimates[0].value, rel=1e-9)


# Replay --------------------------------------------------------------------------------------


def uniform(low=0.0, width=1.0):
    return graded_log(low, width, propensity=np.full(600, 0.5))


def test_star_ratings_are_replayed():
    options = {"arms": ARMS, "missing_reward": None, "passes": 3}
    plain = tacit.replay(tacit.UCB1(arms=ARMS), uniform(), **options)
    stars = tacit.replay(tacit.UCB1(arms=ARMS, reward_range=(1, 5)), uniform(1.0, 4.0), **options)
    assert stars.matched == plain.matched
    for name in "estimate", "low", "high", "logged":
        assert getattr(stars, name) == pytest.approx(1 + 4 * getattr(plain, name))


def test_a_single_arm_is_replayed_with_the_mean_of_its_stars():
    log = uniform(1.0, 4.0)
    log |= {"arm": np.full(600, "film")}
    policy = tacit.UniformRandom(arms=["film"], reward_range=(1, 5))
    result = tacit.replay(policy, log | {"propensity": np.ones(600)}, arms=["film"], missing_reward=None)
    assert result.estimate == pytest.approx(log["reward"].mean())
    assert result.matched == (600,) * 10


def test_replay_without_a_bound_corrects_for_skewness():
    rewards = np.where(np.arange(600) % 30 == 0, np.arange(600.0), 0.0)
    log = uniform() | {"reward": rewards, "arm": np.full(600, "film"), "propensity": np.ones(600)}
    policy = tacit.auto(arms=["film"], reward_range=(0, None))
    with pytest.warns(AssumptionWarning, match="the largest reward brings 10"):
        result = tacit.replay(policy, log, arms=["film"], passes=2)
    sums = intervals.sum_units(np.ones(600), rewards, tails=True)
    np.testing.assert_allclose((result.low, result.high), intervals.normal(sums, skewed=True))
    assert "the five largest 44.7 %" in result.summary()


# Intervals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("skewness", "n"), [(2.0, 100), (-2.0, 100), (0.0, 50), (8.0, 3000), (0.5, 20)])
def test_the_corrected_interval_solves_johnsons_equation(skewness, n):
    low, high = intervals.correct_skewness(3.0, 0.5, 4.0, skewness * 8.0, n)
    bend = skewness / (6 * math.sqrt(n))
    statistic = [t + bend * (1 + 2 * t * t) for t in ((3.0 - low) / 0.5, (3.0 - high) / 0.5)]
    assert statistic == pytest.approx([intervals.normal_quantile(0.95), -intervals.normal_quantile(0.95)])


def test_a_statistic_that_is_never_low_is_solved_on_the_other_side():
    quantile, bend = intervals.normal_quantile(0.95), 0.1
    low, high = intervals.correct_skewness(0.0, 1.0, 1.0, bend * 6 * 10, 100)
    assert [-end + bend * (1 + 2 * end * end) for end in (low, high)] == pytest.approx([quantile, quantile])
    assert -low < high


def test_revenue_is_covered_where_the_normal_interval_misses():
    """Fails with probability below 1e-4: 5 % of misses are expected, and 16 % of the normal interval."""
    rng, misses = np.random.default_rng(1), np.zeros(2)
    truth = 0.03 * math.exp(0.5)
    for _ in range(600):
        rewards = np.where(rng.random(300) < 0.03, np.exp(rng.normal(size=300)), 0.0)
        sums = intervals.sum_units(np.ones(300), rewards, tails=True)
        for place, (low, high) in enumerate((intervals.normal(sums), intervals.normal(sums, skewed=True))):
            misses[place] += not low <= truth <= high
    assert misses[0] > 0.11 * 600
    assert misses[1] < 0.085 * 600


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_the_lower_bound_depends_on_no_unit(unit):
    rng = np.random.default_rng(2)
    weights, rewards = rng.integers(3, size=2000) * 1.0, (rng.random(2000) < 0.3) * 1.0
    bound, _ = intervals.anytime_below(intervals.sum_units(weights, unit * weights * rewards))
    known, _ = intervals.anytime(intervals.sum_units(weights, weights * rewards))
    assert bound == pytest.approx(unit * known, rel=0.05)
    assert intervals.anytime_below(intervals.sum_units(weights, 0.0 * weights)) == (0.0, math.inf)


def test_the_lower_bound_holds_at_any_time():
    """Fails with probability below 1e-4 if the bound is right: at most 2.5 % of runs may ever be above."""
    rng, missed = np.random.default_rng(7), 0
    for _ in range(100):
        rewards = np.exp(rng.normal(size=2000))
        for n in (10, 30, 100, 300, 1000, 2000):
            if intervals.anytime_below(intervals.sum_units(np.ones(n), rewards[:n]))[0] > math.exp(0.5):
                missed += 1
                break
    assert missed <= 9


# Examination, writing and commands ------------------------------------------------------------


def test_examination_takes_shares_of_the_highest():
    rows = np.arange(2000)
    log = {"position": rows // 2 % 2, "arm": np.array(ARMS)[rows % 2], "propensity": np.full(2000, 0.5)}
    grades = np.random.default_rng(5).random(2000) / (1 + log["position"])
    plain = examine(log | {"reward": grades, "decision_id": rows}, arms=ARMS)
    scaled = examine(log | {"reward": 5 * grades, "decision_id": rows}, arms=ARMS, reward_range=(0, 5))
    np.testing.assert_allclose(plain.effects, scaled.effects)
    for reward_range in (-1, 5), (0, None), None:
        with pytest.raises(InvalidValue, match="share of the highest"):
            examine(log | {"reward": grades}, arms=ARMS, reward_range=reward_range)


def test_a_learner_of_stars_is_fitted_by_a_command(tmp_path):
    lines = ["arm,reward,propensity", *(f"{ARMS[i % 2]},{1 + i % 5},0.5" for i in range(300))]
    path = tmp_path / "stars.csv"
    path.write_text("\n".join(lines))
    words = (
        "fit",
        path,
        "--arms",
        "film,song",
        "--policy",
        "ucb1",
        "-o",
        "x.tacit",
        "--reward-range",
        "1",
        "5",
    )
    refusal = command(*words, cwd=tmp_path)
    assert refusal.returncode != 0
    assert "--answered" in refusal.stderr
    assert command(*words, "--answered", cwd=tmp_path).returncode == 0
    assert tacit.Learner.load(tmp_path / "x.tacit").policy.reward_range == (1, 5)


@pytest.mark.parametrize("ends", [("1", "0"), ("open", "5"), ("0", "many"), ("nan", "open")])
def test_a_wrong_range_is_refused_by_commands(ends, tmp_path):
    refusal = command("evaluate", SIGNED, "--policy", "uniform", "--reward-range", *ends, cwd=tmp_path)
    assert refusal.returncode == 2
    assert f"--reward-range: '{' '.join(ends)}' is no range" in refusal.stderr


def test_simulated_policies_have_the_environments_range(tmp_path):
    environment = 'graded-arms([["sale", 0.05, 40, 1], ["click", 0.5]], reward_range=[0, 900])'
    words = "simulate", "--environment", environment, "--policy", "ucb1", "--horizon", "50", "--runs", "1"
    answer = command(*words, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert "reward_range=(0, 900)" in answer.stdout
    refusal = command(*words, "--reward-range", "0", "5", cwd=tmp_path)
    assert "the environment's rewards are in (0, 900)" in refusal.stderr
