"""Figures say no more than the log does: no overlap, no variation, propensities that are wrong."""

import json
import math
import warnings

import numpy as np
import pytest
from click.testing import CliRunner

import tacit
from tacit.cli import cli
from tacit.errors import AssumptionWarning, UnfitLog
from tacit.evaluate import (
    IPS,
    SNIPS,
    CascadeIPS,
    DirectMethod,
    DoublyRobust,
    IndependentIPS,
    SlateIPS,
    SwitchDR,
    Table,
    Uniform,
    examine,
    intervals,
    off_policy,
)
from tacit.evaluate.intervals import sum_units
from tacit.evaluate.rewards import Rewards

ARMS = ["film", "holiday"]
EACH = [IPS(), SNIPS(), DirectMethod(), DoublyRobust(), SwitchDR()]
FILM = Table({"film": 1.0})
HOLIDAY = Table({"holiday": 1.0})
EMPTY = "empty: the propensities cannot be right"


def rows_of(shown, clicks, propensity=0.5, **more):
    """Return a log of one key; ``clicks`` may be one for all."""
    rows = len(shown)
    return {
        "decision_id": [str(row) for row in range(rows)],
        "key": ["tomato"] * rows,
        "arms": [ARMS] * rows,
        "arm": shown,
        "propensity": np.full(rows, propensity),
        "reward": np.broadcast_to(np.asarray(clicks, float), rows),
        **more,
    }


def lists_of(lists, clicks, shown="film"):
    """Return a log of lists of one place and then another."""
    return rows_of([shown, "holiday"] * lists, clicks, 0.5) | {
        "decision_id": [str(row // 2) for row in range(2 * lists)],
        "position": [0, 1] * lists,
    }


# No overlap -----------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", EACH, ids=lambda each: each.label)
def test_where_the_log_never_shows_the_target_there_is_no_figure(estimator):
    log = rows_of(["film"] * 230, [0, 1] * 115)
    with pytest.raises(UnfitLog, match=r"log: arm: no overlap.*never shows 'holiday'.*give"):
        off_policy(HOLIDAY, log, [estimator])


@pytest.mark.parametrize("estimator", [SlateIPS(2), CascadeIPS(2)])
def test_lists_that_the_log_never_shows_have_no_figure(estimator):
    target = Table({"0": {"holiday": 1.0}, "1": {"film": 1.0}}, per="position")
    with pytest.raises(UnfitLog, match="no overlap"):
        off_policy(target, lists_of(20, [1, 0] * 20), [estimator])


def test_a_policy_that_learns_has_no_figure_where_it_would_show_other_arms():
    log = rows_of(["film"] * 50, 0.0)
    never = tacit.EpsilonGreedy(ARMS, epsilon=0.0)

    class Never(tacit.evaluate.Learning):
        def evaluate_shown(self, rows):
            return 0.0 * super().evaluate_shown(rows)

    with pytest.raises(UnfitLog, match="no overlap"):
        off_policy(Never(never), log)


def test_a_model_of_ones_own_speaks_where_the_log_does_not_without_an_interval():
    log = rows_of(["film"] * 50, 0.0)
    result = off_policy(HOLIDAY, log, [IPS(), DirectMethod(Rewards({"holiday": 0.3}))])
    ips, own = result.estimates
    assert math.isnan(ips.value)
    assert (ips.intervals, own.value, own.intervals) == ({}, pytest.approx(0.3), {})
    assert ips.note.startswith("no overlap")
    assert " no overlap " in result.summary()


def test_a_segment_without_overlap_says_so_and_the_others_their_figures(tmp_path):
    log = rows_of(["film"] * 100 + ["holiday"] * 100, [0, 1] * 100, device=["phone"] * 100 + ["desk"] * 100)
    result = off_policy(HOLIDAY, log, EACH, by="device")
    for estimate in result.segments["phone"].estimates:
        assert math.isnan(estimate.value)
        assert (estimate.intervals, estimate.note[:10]) == ({}, "no overlap")
    assert all(each.value > 0 for each in result.segments["desk"].estimates)
    assert result.summary().count(" no overlap ") == len(EACH)
    result.plot(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000


# No variation ---------------------------------------------------------------------------------


@pytest.mark.parametrize("clicks", [0.0, 1.0, 0.25])
@pytest.mark.parametrize("target", [FILM, Uniform()], ids=["one arm", "the log's own"])
def test_rewards_that_are_all_alike_leave_an_interval(target, clicks):
    log = rows_of(ARMS * 115, clicks)
    for cluster in (None, "decision_id"):
        for estimate in off_policy(target, log, EACH, cluster=cluster).estimates:
            for low, high in estimate.intervals.values():
                assert high - low > 0.01
                assert low <= estimate.value <= high
            assert {"normal", "bootstrap"} <= set(estimate.intervals) or not estimate.intervals
            assert "score" not in estimate.intervals


def test_no_click_in_230_rows_is_the_interval_of_clopper_and_pearson():
    (ips,) = off_policy(Uniform(), rows_of(["film"] * 230, 0.0), [IPS()]).estimates
    low, high = ips.intervals["normal"]
    assert (low, high) == (0.0, pytest.approx(1 - 0.025 ** (1 / 230)))
    assert math.isnan(ips.standard_error)


def test_a_single_row_leaves_all_open():
    for estimate in off_policy(Uniform(), rows_of(["film"], 1.0), EACH).estimates:
        assert all(low < 0.03 and high == 1.0 for low, high in estimate.intervals.values())


@pytest.mark.parametrize("clicks", [0.0, 1.0])
def test_lists_without_variation_leave_an_interval(clicks):
    for estimate in off_policy(
        Uniform(), lists_of(50, clicks), [SlateIPS(2), IndependentIPS(2), CascadeIPS(2)]
    ).estimates:
        assert all(high - low > 0.05 for low, high in estimate.intervals.values())


def test_two_parts_with_the_same_rewards_are_one():
    early, late = (sum_units(np.ones(9), np.full(9, x), rewards=np.full(9, x)) for x in (0.0, 1.0))
    assert intervals.widen_interval((0.1, 0.2), early.merge(late)) == (0.1, 0.2)
    assert intervals.widen_interval((0.0, 0.0), early.merge(early))[1] == pytest.approx(1 - 0.025 ** (1 / 18))


@pytest.mark.parametrize("chance", [0.004, 0.996])
def test_the_interval_holds_the_truth_where_hardly_anything_varies(chance):
    rng, held = np.random.default_rng(1), 0
    for _ in range(400):
        weights = 2.0 * (rng.random(460) < 0.5)
        rewards = (rng.random(460) < chance).astype(float)
        sums = sum_units(weights, weights * rewards, rewards=rewards)
        if sums.least == sums.most:
            low, high = intervals.widen_interval(intervals.normal(sums, True), sums)
            held += low <= chance <= high
        else:
            held += 1
    assert held >= 0.95 * 400


def test_positions_without_a_click_have_no_interval_of_no_width():
    rng = np.random.default_rng(2)
    log = rows_of(list(rng.choice(ARMS, 400)), [1, 0, 0, 0] * 100, position=np.arange(400) % 2)
    effects = {method: examine(log, method) for method in ("randomization", "harvesting", "em")}
    by_chance = effects["randomization"]
    assert (by_chance.effects[1], by_chance.low[1]) == (0.0, 0.0)
    assert 0.01 < by_chance.high[1] < 0.1
    for method in ("harvesting", "em"):
        assert np.isnan([effects[method].effects[1], effects[method].high[1]]).all()
        assert "nan" not in effects[method].summary()
    every = examine(rows_of(ARMS * 200, 1.0, position=np.arange(400) // 2 % 2), "randomization")
    assert every.low[1] < 0.99 < 1.01 < every.high[1]


# Propensities that are wrong ------------------------------------------------------------------


def contradictory():
    """Return the log of a policy that always showed what it says it showed half of the time."""
    return rows_of(["film"] * 2000, (np.arange(2000) % 20 > 0).astype(float), 0.2)


def test_an_empty_interval_is_called_so_everywhere(tmp_path):
    result = off_policy(FILM, contradictory(), [IPS(), SNIPS()])
    for estimate in result.estimates:
        assert estimate.empty == ("anytime",)
        assert "anytime" not in estimate.intervals
        assert EMPTY in estimate.note
        assert EMPTY in estimate.warnings[0]
        row = estimate.row()
        assert (row["anytime_low"], row["anytime_high"]) == (None, None)
        assert EMPTY in row["note"]
    assert result.summary().count(EMPTY) == 4
    assert EMPTY in result.to_markdown()
    axes = result.plot(tmp_path / "figure.png")
    assert any(EMPTY in text.get_text() for text in axes.texts)
    with pytest.warns(AssumptionWarning, match=EMPTY):
        off_policy(FILM, contradictory(), [IPS()])


def test_no_interval_stands_upside_down_and_a_value_outside_of_one_says_why():
    rng = np.random.default_rng(3)
    outside = 0
    for _ in range(60):
        told, clicks = rng.uniform(0.1, 1.0), rng.random(200) < rng.random()
        log = rows_of(list(rng.choice(ARMS, 200)), clicks, told)
        target = Table({"film": 0.4, "holiday": 0.6})
        with warnings.catch_warnings(action="ignore"):
            found = off_policy(target, log, [IPS(), SNIPS(), DoublyRobust()])
        for estimate in found.estimates:
            for kind, (low, high) in estimate.intervals.items():
                assert low < high
                if not low <= estimate.value <= high:
                    outside += 1
                    assert f"{kind} " in estimate.note
                    assert "mean weight" in estimate.note
    assert outside > 0


# For machines ---------------------------------------------------------------------------------

HEAD = "key,arms,arm,propensity,reward\n"


def written(path, rows):
    path.write_text(HEAD + "".join(f'tomato,"[""a"",""b""]",{row}\n' for row in rows))
    return str(path)


def strict(text):
    """Return JSON, which knows neither NaN nor infinities."""

    def refuse(constant):
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)


def test_json_has_null_where_there_is_no_number(tmp_path):
    log = written(tmp_path / "clicks.csv", ["a,1.0,1"] * 20)
    words = ["evaluate", log, "--policy", "always:a", "--json", "--estimator", "ips,dm"]
    run = CliRunner().invoke(cli, words)
    assert run.exit_code == 0, run.output
    ips, model = strict(run.stdout)["estimates"]
    assert ips["standard_error"] is None
    assert ips["normal_low"] < 0.85
    assert model["normal_low"] is None
    log = written(tmp_path / "halves.csv", ["a,0.5,1"] * 20)
    run = CliRunner().invoke(cli, ["evaluate", log, "--policy", "always:b"])
    assert run.exit_code == 1
    assert "no overlap" in str(run.exception)
