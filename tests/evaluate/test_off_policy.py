"""Offline evaluation with propensities: by hand, against another package, against the truth."""

import json
import math
import warnings
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from conftest import DATA, ROOT
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from reference import inputs

import tacit
from tacit.cli import cli
from tacit.errors import AssumptionWarning, TacitError, TooManyRejected, UnfitLog
from tacit.evaluate import (
    IPS,
    SNIPS,
    ArmMeans,
    ArmRidges,
    ByClassifier,
    CascadeIPS,
    DirectMethod,
    DoublyRobust,
    IndependentIPS,
    PositionBasedIPS,
    Probabilities,
    RewardFunction,
    Rewards,
    SlateIPS,
    SwitchDR,
    Table,
    Uniform,
    conclude,
    off_policy,
    replay,
)
from tacit.evaluate.intervals import anytime, anytime_in_range, bootstrap, normal, standard_error, sum_units

REFERENCE = ROOT / "tests" / "reference"


def log_of(arms, shown, propensity, reward, **columns):
    """Return a click log; ``arms`` are on offer in every row unless they are one list a row."""
    rows = len(shown)
    offers = arms if isinstance(arms[0], list) else [arms] * rows
    return pa.table(
        {
            "timestamp": ["2017-07-04T12:00:00Z"] * rows,
            "decision_id": [str(row) for row in range(rows)],
            "placement": ["home"] * rows,
            "key": ["query"] * rows,
            "arms": offers,
            "arm": list(shown),
            "propensity": pa.array(propensity, pa.float64()),
            "reward": pa.array(reward, pa.float64()),
        }
        | columns
    )


def simulated(rows, seed, *, logged=(0.7, 0.2, 0.1), truth=(0.1, 0.3, 0.5)):
    """Return a log of three arms with the given propensities and chances of a click."""
    rng = np.random.default_rng(seed)
    arm = rng.choice(3, size=rows, p=logged)
    reward = (rng.random(rows) < np.array(truth)[arm]).astype(float)
    return log_of(["a", "b", "c"], np.array(["a", "b", "c"])[arm].tolist(), np.array(logged)[arm], reward)


# By hand ------------------------------------------------------------------------------------

FOUR = log_of(["a", "b"], ["a", "b", "a", "b"], [0.5, 0.25, 0.8, 0.5], [1.0, 1.0, 0.0, None])
# π = (0.4, 0.6): weights 0.8, 2.4, 0.5, 1.2; weight × reward 0.8, 2.4, 0, 0.
TARGET = Table({"a": 0.4, "b": 0.6})
MODEL = Rewards({"a": 0.5, "b": 0.25})


@pytest.mark.parametrize(
    ("estimator", "value"),
    [
        (IPS(), 3.2 / 4),
        (SNIPS(), 3.2 / 4.9),
        (IPS(clip=1.0), 1.8 / 4),
        (SNIPS(clip=1.0), 1.8 / 3.3),
        (DirectMethod(MODEL), 0.35),
        # Corrections: 0.8·0.5, 2.4·0.75, 0.5·(−0.5), 1.2·(−0.25).
        (DoublyRobust(MODEL), 0.35 + (0.4 + 1.8 - 0.25 - 0.3) / 4),
        (DoublyRobust(MODEL, clip=1.0), 0.35 + (0.4 + 0.75 - 0.25 - 0.25) / 4),
        (SwitchDR(MODEL, threshold=1.0), 0.35 + (0.4 - 0.25) / 4),
    ],
)
def test_estimates_worked_by_hand(estimator, value):
    result = off_policy(TARGET, FOUR, [estimator])
    assert result.estimates[0].value == pytest.approx(value, abs=1e-15)
    assert (result.rows, result.unanswered, result.logged) == (4, 1, 0.5)


def test_diagnostics_worked_by_hand():
    (estimate,) = off_policy(TARGET, FOUR, [IPS()]).estimates
    assert estimate.mean_weight == pytest.approx(4.9 / 4)
    squares = 0.64 + 5.76 + 0.25 + 1.44
    assert estimate.effective_sample_size == pytest.approx(4.9**2 / squares)
    assert estimate.largest_weights == pytest.approx((2.4, 1.2, 0.8, 0.5))
    # Values 0.8, 2.4, 0, 0 with mean 0.8: deviations 0, 1.6, −0.8, −0.8.
    assert estimate.standard_error == pytest.approx(math.sqrt((2.56 + 0.64 + 0.64) / 3 / 4))


def test_rows_without_feedback_can_be_left_out():
    result = off_policy(TARGET, FOUR, [IPS()], missing_reward=None)
    assert result.estimates[0].value == pytest.approx(3.2 / 3)
    assert (result.rows, result.unanswered) == (3, 1)


def test_the_command_line_leaves_out_rows_without_feedback(tmp_path):
    path = tmp_path / "log.csv"
    pd.DataFrame(FOUR.to_pydict()).drop(columns="arms").to_csv(path, index=False)
    command = ["evaluate", str(path), "--policy", "always:a", "--arms", "a,b", "--estimator", "ips"]
    said = {extra: CliRunner().invoke(cli, [*command, *extra]).output for extra in [(), ("--answered",)]}
    assert "mean reward: 0.50000; rows without feedback: 1 (0 each)" in said[()]
    assert "from 3 logged rows" in said["--answered",]
    assert "rows without feedback: 1 (left out)" in said["--answered",]


@pytest.mark.parametrize(("unclicked", "said"), [(None, 1), (0.0, 0)])
def test_rows_without_feedback_that_nobody_clicked_are_not_left_out_in_silence(unclicked, said):
    rewards = [1.0, None, unclicked] * 20
    log = log_of(["a", "b"], ["a", "b", "b"] * 20, [0.5] * 60, rewards)
    for judge in (
        partial(off_policy, Uniform(), log, [IPS()]),
        partial(replay, tacit.Thompson(["a", "b"]), log),
    ):
        with warnings.catch_warnings(record=True, action="always") as caught:
            judge(missing_reward=None)
        doubts = [str(each.message) for each in caught if "missing_reward" in str(each.message)]
        assert len(doubts) == said
        assert all("--answered" in doubt for doubt in doubts)
        with warnings.catch_warnings(record=True, action="always") as caught:
            judge()
        assert not any("--answered" in str(each.message) for each in caught)


def test_tables_per_key_and_per_position():
    log = log_of(["a", "b"], ["a", "b"], [0.5, 0.5], [1.0, 1.0], key=["x", "y"], position=[0, 3])
    per_key = Table({"x": {"a": 1.0}, "y": {"a": 0.75, "b": 0.25}}, per="key")
    assert off_policy(per_key, log).estimates[0].value == pytest.approx((2 + 0.5) / 2)
    per_position = Table({"0": {"a": 0.1, "b": 0.9}, "3": {"b": 1.0}}, per="position")
    assert off_policy(per_position, log).estimates[0].value == pytest.approx((0.2 + 2) / 2)


def test_models_and_functions_are_targets_too():
    class Classifier:
        classes_ = ("b", "a")

        def predict_proba(self, contexts):
            return np.column_stack([contexts[:, 0], 1 - contexts[:, 0]])

    log = log_of(["a", "b"], ["a", "b"], [0.5, 0.5], [1.0, 1.0], context=[[0.2], [0.3]])
    for target in (
        ByClassifier(Classifier()),
        Probabilities(lambda batch: np.array([[0.8, 0.2], [0.7, 0.3]]), ["a", "b"]),
    ):
        assert off_policy(target, log).estimates[0].value == pytest.approx((1.6 + 0.6) / 2)
    model = RewardFunction(lambda batch: np.full((2, 2), 0.5), ["a", "b"], ())
    assert off_policy(Uniform(), log, [DoublyRobust(model)]).estimates[0].value == pytest.approx(0.5 + 0.5)


def test_cross_fitted_means_judge_no_row_by_itself():
    # Two folds: rows 0 and 2 are judged by rows 1 and 3, and the other way round.
    log = log_of(["a"], ["a"] * 4, [1.0] * 4, [1.0, 0.0, 1.0, 0.0])
    model = ArmMeans(folds=2, strength=1e-9).fit(log)
    estimate = off_policy(Table({"a": 1.0}), log, [DirectMethod(model)]).estimates[0]
    assert estimate.value == pytest.approx(0.5)
    assert estimate.sums.groups[2, :4] == pytest.approx([0.0, 1.0, 0.0, 1.0])


# Support ------------------------------------------------------------------------------------


def test_a_known_logging_policy_is_held_against_the_target():
    log = log_of(["a", "b"], ["a", "a"], [0.9, 0.9], [1.0, 0.0])
    with pytest.raises(UnfitLog, match="'b'"):
        off_policy(TARGET, log, logging=Table({"a": 1.0}))
    assert off_policy(TARGET, log).never_shown == ("b",)
    assert off_policy(Table({"a": 1.0}), log).never_shown == ()


# Sums and intervals -------------------------------------------------------------------------


@examples(40)
@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0, 1)), min_size=1, max_size=60), st.integers(0, 60))
def test_merged_sums_are_the_sums_of_all(rows, cut):
    weights, rewards = np.array(rows).T
    whole = sum_units(weights, weights * rewards, 8)
    early = sum_units(weights[:cut], (weights * rewards)[:cut], 8)
    merged = early.merge(sum_units(weights[cut:], (weights * rewards)[cut:], 8, first=early.n))
    for one, other in zip(merged, whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(merged.groups[0].sum(), len(rows))


def test_clusters_stay_whole_and_widen_the_interval():
    # Each row ten times: a tenth of the information.
    weights = np.repeat(np.random.default_rng(2).exponential(size=300), 10)
    cluster = np.repeat(np.arange(300), 10)
    alone = sum_units(weights, weights)
    together = sum_units(weights, weights, cluster=cluster)
    ratio = standard_error(together, False, clustered=True) / standard_error(alone, False)
    assert ratio == pytest.approx(math.sqrt(10), rel=0.01)


def test_the_bootstrap_agrees_with_the_central_limit_and_repeats():
    values = np.random.default_rng(3).random(20_000)
    sums = sum_units(np.ones(20_000), values)
    low, high = bootstrap(sums, seed=5, replicates=4000)
    assert (low, high) == bootstrap(sums, seed=5, replicates=4000)
    # Of 4000 replicates and 1024 groups, the width is uncertain by some 3 %.
    expected = np.subtract(*normal(sums)[::-1])
    assert high - low == pytest.approx(expected, rel=0.12)


def test_the_confidence_sequence_covers_at_every_time():
    # Miss rate at most 5 % over all times together; 150 runs would have more than 19 misses
    # with probability below 2e-4 even if it were exactly 5 %.
    missed = 0
    rng = np.random.default_rng(4)
    for _ in range(150):
        weights = np.where(rng.random(2000) < 0.05, 10.5, 0.5)
        values = weights * (rng.random(2000) < 0.3)
        sums, misses = sum_units(weights[:0], values[:0], 4), False
        for start, stop in pairwise([0, 20, 50, 100, 200, 400, 700, 1200, 2000]):
            sums = sums.merge(sum_units(weights[start:stop], values[start:stop], 4))
            for low, high in (
                anytime(sums),
                anytime(sums, weight_bound=10.5),
                anytime_in_range(sums, 0.0, 10.5),
            ):
                misses |= not low <= 0.3 <= high
        missed += misses
    assert missed <= 19


def test_the_confidence_sequence_narrows_to_the_value():
    low, high = anytime(sum_units(np.ones(1_000_000), (np.arange(1_000_000) % 4 == 0).astype(float)))
    assert 0.25 - 0.0025 < low < 0.25 < high < 0.25 + 0.0025


# Against another package --------------------------------------------------------------------


def numbers_of_obp():
    """Return the reference numbers."""
    return json.loads((REFERENCE / "obp.json").read_text())


def per_position(matrix):
    """Return a matrix (items, positions) as tables; the data set counts positions from 1."""
    return {
        str(place + 1): {str(item): float(row[place]) for item, row in enumerate(matrix)}
        for place in range(matrix.shape[1])
    }


@pytest.mark.parametrize("policy", ["random", "bts"])
def test_estimates_equal_those_of_obp_on_the_open_bandit_dataset(policy):
    numbers = numbers_of_obp()
    model = Rewards(per_position(inputs.rewards()), per="position")
    estimators = {
        "ips": IPS(),
        "ips-clipped": IPS(clip=1.5),
        "snips": SNIPS(),
        "dm": DirectMethod(model),
        "dr": DoublyRobust(model),
        "dr-clipped": DoublyRobust(model, clip=1.5),
        "switch-dr": SwitchDR(model, threshold=1.5),
    }
    target = Table(per_position(inputs.target()), per="position")
    result = off_policy(target, DATA / "open_bandit" / policy / "men", list(estimators.values()))
    assert result.rows == numbers[policy]["rounds"]
    for name, estimate in zip(estimators, result.estimates, strict=True):
        assert estimate.value == pytest.approx(numbers[policy][name], abs=1e-9), name


def slate_rows():
    """Return the reference log of slates, and its target."""
    numbers = numbers_of_obp()
    log = inputs.slate_log()
    rows = log_of(
        [str(arm) for arm in range(5)],
        [str(arm) for arm in log["arm"]],
        log["logged"],
        log["reward"],
        decision_id=[str(slate) for slate in log["slate_id"]],
        position=pa.array(log["position"], pa.int32()),
    )
    weights = np.array([0.35, 0.25, 0.2, 0.15, 0.05])
    target = Table(
        {str(k): {str(a): float(weights[(a + k) % 5]) for a in range(5)} for k in range(3)}, per="position"
    )
    return rows, target, numbers["slates"]


@pytest.mark.parametrize("batch", [1, 2, 7, 1200])
def test_slate_estimates_equal_those_of_obp_wherever_batches_end(batch):
    rows, target, numbers = slate_rows()
    log = rows.to_batches(max_chunksize=batch)
    result = off_policy(target, log, [SlateIPS(3), IndependentIPS(3), CascadeIPS(3)])
    for name, estimate in zip(("sips", "iips", "rips"), result.estimates, strict=True):
        assert estimate.value == pytest.approx(numbers[name], abs=1e-9), name
        assert estimate.sums.n == 400


# Against the truth --------------------------------------------------------------------------


def test_position_based_ips_finds_the_clicks_of_its_model():
    # Clicks are relevance × examination. The log is uniform; the target shows a, then b.
    rng = np.random.default_rng(6)
    slates, theta = 20_000, np.array([0.9, 0.5])
    relevance = np.array([0.6, 0.3, 0.1])
    order = rng.permuted(np.tile(np.arange(3), (slates, 1)), axis=1)[:, :2]
    clicks = rng.random((slates, 2)) < relevance[order] * theta
    log = log_of(
        ["a", "b", "c"],
        np.array(["a", "b", "c"])[order.ravel()].tolist(),
        np.full(2 * slates, 1 / 3),
        clicks.ravel().astype(float),
        decision_id=np.repeat(np.arange(slates), 2).astype(str).tolist(),
        position=pa.array(np.tile([0, 1], slates), pa.int32()),
    )
    target = Table({"0": {"a": 1.0}, "1": {"b": 1.0}}, per="position")
    estimators = [PositionBasedIPS(2, examination=(0.9, 0.5), logging=Uniform()), IndependentIPS(2)]
    based, independent = off_policy(target, log, estimators).estimates
    truth = 0.6 * 0.9 + 0.3 * 0.5
    # Within four standard errors each: wrong by chance with probability below 1e-4.
    assert abs(based.value - truth) < 4 * based.standard_error
    assert abs(independent.value - truth) < 4 * independent.standard_error
    assert based.standard_error < 0.8 * independent.standard_error
    assert "anytime" not in based.intervals
    assert independent.intervals["anytime"][0] < truth < independent.intervals["anytime"][1]


def test_estimates_meet_the_truth_and_doubly_robust_is_the_sharper():
    log = simulated(20_000, 7)
    target = Table({"a": 0.1, "b": 0.2, "c": 0.7})
    truth = 0.01 + 0.06 + 0.35
    result = off_policy(target, log, [IPS(), SNIPS(), DoublyRobust(), SwitchDR(threshold=100)])
    for estimate in result.estimates:
        assert abs(estimate.value - truth) < 4 * estimate.standard_error
        assert abs(estimate.mean_weight - 1) < 0.1
    assert result.estimates[2].standard_error < result.estimates[0].standard_error


def test_a_learning_policy_is_weighted_by_what_it_would_do_at_each_row():
    # An epsilon-greedy learner by plain Python, row by row.
    log = simulated(500, 8)
    policy = tacit.EpsilonGreedy(arms=["a", "b", "c"], epsilon=0.3)
    learner_plays, learner_sums = np.zeros(3), np.zeros(3)
    values = []
    for arm, propensity, reward in zip(
        log["arm"].to_pylist(), log["propensity"].to_pylist(), log["reward"].to_pylist(), strict=True
    ):
        slot = "abc".index(arm)
        means = np.where(learner_plays > 0, learner_sums / np.maximum(learner_plays, 1), np.nan)
        values.append((0.3 / 3 + 0.7 * expected_greedy(means)[slot]) / propensity * reward)
        learner_plays[slot] += 1
        learner_sums[slot] += reward
    result = off_policy(policy, log, [IPS(), DoublyRobust()])
    # The first plays of each arm depend on the policy's rule for unplayed arms.
    start = 60
    tail = off_policy(policy, log, [IPS()]).estimates[0].sums.groups[2, start:500]
    np.testing.assert_allclose(tail, values[start:], atol=1e-12)
    assert result.target == "EpsilonGreedy(epsilon=0.3), learning"
    assert math.isfinite(result.estimates[1].value)


def expected_greedy(means):
    """Return the probability of each arm under a greedy choice, ties shared."""
    best = np.nanmax(means) if np.isfinite(means).any() else np.nan
    ties = means == best
    return ties / max(ties.sum(), 1)


def test_a_policy_that_does_not_learn_is_the_same_either_way():
    log = simulated(300, 9)
    learning = off_policy(tacit.UniformRandom(arms=["a", "b", "c"]), log, [IPS(), DoublyRobust()])
    fixed = off_policy(Uniform(), log, [IPS(), DoublyRobust()])
    for one, other in zip(learning.estimates, fixed.estimates, strict=True):
        assert one.value == pytest.approx(other.value, abs=1e-12)


def test_a_file_gives_what_memory_gives(tmp_path):
    log = simulated(5000, 10)
    for name in ("log.parquet", "log.csv"):
        tacit.write_log(log, tmp_path / name)
        for estimator in (IPS(), DoublyRobust()):
            here, there = (
                off_policy(Table({"a": 0.5, "c": 0.5}), source, [estimator]).estimates[0]
                for source in (log, tmp_path / name)
            )
            assert (here.value, here.intervals) == (there.value, there.intervals)


@pytest.mark.parametrize("model", [ArmMeans(), ArmRidges()])
def test_a_row_is_in_one_fold_whichever_columns_reject_others(tmp_path, model):
    log = simulated(700, 10).to_pandas()
    log.loc[::7, "key"] = None
    log.to_parquet(tmp_path / "log.parquet")
    reading = {"strict": False, "most_rejected": 0.2, "cluster": "key"}
    logs = log, tmp_path / "log.parquet"
    here, there = (off_policy(Table({"a": 1.0}), log, [DoublyRobust(model)], **reading) for log in logs)
    assert here.rows == there.rows == 600
    assert here.estimates[0].value == there.estimates[0].value


def test_parts_of_a_log_merge_to_the_whole():
    log, target = simulated(3000, 16), Table({"a": 0.5, "b": 0.5})
    (whole,) = off_policy(target, log, [SNIPS()], cluster="decision_id", seed=3).estimates
    parts = [
        off_policy(target, part, [SNIPS()], cluster="decision_id").estimates[0].sums
        for part in (log.slice(2000), log.slice(0, 700), log.slice(700, 1300))
    ]
    merged = parts[0].merge(parts[1]).merge(parts[2])
    found = conclude(SNIPS(), merged, clustered=True, seed=3)
    assert found.value == pytest.approx(whole.value, rel=1e-12)
    for kind, bounds in whole.intervals.items():
        assert found.intervals[kind] == pytest.approx(bounds, rel=1e-12), kind


def test_arms_given_once_are_on_offer_in_every_row_of_a_file(tmp_path):
    log = simulated(500, 15)
    pa.parquet.write_table(log.drop_columns("arms"), tmp_path / "log.parquet")
    reader = tacit.read_log(tmp_path / "log.parquet", arms=["a", "b", "c"])
    here, there = (off_policy(Uniform(), source, [IPS(), DoublyRobust()]) for source in (log, reader))
    assert [one.value for one in here.estimates] == [one.value for one in there.estimates]
    fewer = tacit.read_log(tmp_path / "log.parquet", arms=["a", "b"])
    result = off_policy(Uniform(), fewer)
    assert fewer.report.rejected == {"arm-not-offered": 500 - result.rows}


def test_offers_that_differ_from_row_to_row(tmp_path):
    log = log_of([["a", "b"], ["a"], ["b", "c", "a"]] * 20, ["a"] * 60, [0.5, 1.0, 0.25] * 20, [1.0] * 60)
    tacit.write_log(log, tmp_path / "log.parquet")
    for source in (log, tmp_path / "log.parquet"):
        value = off_policy(Uniform(), source).estimates[0].value
        assert value == pytest.approx((0.5 / 0.5 + 1 + (1 / 3) / 0.25) / 3)


def test_wrong_rows_of_a_file_are_counted_not_used(tmp_path):
    log = simulated(100, 11)
    wrong = log.set_column(log.schema.get_field_index("reward"), "reward", pa.array([7.0] + [0.5] * 99))
    pa.parquet.write_table(wrong, tmp_path / "log.parquet")
    reader = tacit.read_log(tmp_path / "log.parquet")
    assert off_policy(Uniform(), reader).rows == 99
    assert reader.report.rejected == {"reward-outside-range": 1}
    with pytest.raises(TacitError, match="row 1"):
        off_policy(Uniform(), tacit.read_log(tmp_path / "log.parquet", strict=True))


# When not to trust ----------------------------------------------------------------------------


def heavy(rows=5000, certain=1e-4):
    """Return a log in which two rows carry all the weight."""
    shown = ["b"] * 2 + ["a"] * (rows - 2)
    return log_of(["a", "b"], shown, [certain] * 2 + [1 - certain] * (rows - 2), [1.0] + [0.0] * (rows - 1))


@pytest.mark.parametrize(
    ("unknown", "reason"), [("", "missing-propensity"), ("0", "propensity-outside-range")]
)
def test_rows_of_an_empty_propensity_are_left_out_as_those_of_0_are(tmp_path, unknown, reason):
    table = (
        simulated(2000, 3, logged=(1 / 3,) * 3).to_pandas().drop(columns=["arms"]).astype({"propensity": str})
    )
    table.loc[7::50, "propensity"] = unknown
    table.to_csv(tmp_path / "log.csv", index=False)
    log = tacit.read_log(tmp_path / "log.csv", arms=["a", "b", "c"])
    rest = table.drop(index=range(7, 2000, 50)).astype({"propensity": float})
    evaluate = partial(off_policy, Table({"a": 0.3, "b": 0.7}), estimators=[IPS(), DoublyRobust(ArmMeans())])
    for judge in evaluate, partial(replay, tacit.UCB1(arms=["a", "b", "c"])):
        result = judge(log=log)
        assert log.report.rejected == {reason: 40}
        assert result.notes[0].startswith(
            "40 of 2,000 rows are left out, 40 with rewards from 0 to 1 (mean 0."
        )
        assert result.records() == judge(log=rest, arms=["a", "b", "c"]).records()
    assert evaluate(log=log, propensities=Uniform()).rows == 2000 - 40 * (unknown == "0")
    table.loc[7::10, "propensity"] = unknown
    table.to_csv(tmp_path / "log.csv", index=False)
    with pytest.raises(TooManyRejected, match=rf"more than 5 %(.|\n)*{reason}: 200"):
        evaluate(log=tmp_path / "log.csv", arms=["a", "b", "c"])


def test_few_rows_with_all_the_weight_are_told():
    with pytest.warns(AssumptionWarning, match=r"^IPS: .*n_eff.*largest weight is 10,000"):
        found = off_policy(Table({"b": 1.0}), heavy(), [IPS(), DoublyRobust()])
    ips, robust = found.estimates
    assert ips.effective_sample_size == pytest.approx(2)
    assert ips.intervals["normal"][0] < 0.0  # not clipped: it would look better than it is
    note, told = ips.warnings
    assert note == f"IPS: {ips.note}"
    assert ips.note == (
        "the value is outside of its anytime interval, which counts on a mean weight of 1: here it is 4.000"
    )
    low, high = ips.intervals["anytime"]
    assert f"trust the anytime interval, [{low:.5f}, {high:.5f}], alone" in told
    assert "the normal interval, [-" in told
    assert "not clipped" in told
    assert "trust none of its intervals (the anytime interval of IPS" in robust.warnings[0]


def test_many_rows_of_like_weight_are_told_of_nothing():
    with warnings.catch_warnings(action="error", category=AssumptionWarning):
        found = off_policy(Table({"a": 0.2, "b": 0.3, "c": 0.5}), simulated(5000, 1), [IPS(), SNIPS()])
    assert [estimate.warnings for estimate in found.estimates] == [(), ()]
