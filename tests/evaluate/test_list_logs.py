"""Logs of lists, by learners, simulations and the service, weighed for other policies."""

import asyncio
import contextlib
import io
import json
import math
import re
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from harness import SECOND, START, served, with_home
from placement_access import decide

import tacit
from tacit import cluster
from tacit.cli import cli, main
from tacit.environments import simulate_log
from tacit.errors import AssumptionWarning, InvalidValue, UnfitLog
from tacit.evaluate import (
    IPS,
    SNIPS,
    CascadeIPS,
    IndependentIPS,
    PositionBasedIPS,
    Ranking,
    SlateIPS,
    Table,
    Uniform,
    off_policy,
)
from tacit.evaluate.intervals import score, sum_units
from tacit.evaluate.targets import fixed_target
from tacit.logs import SCHEMA, click_log, read_log, write_log
from tacit.service.log.requests import Clicked, DecisionRequest, FeedbackRequest
from tacit.service.log.rows import CLICKS, decode_list
from tacit.service.maintenance.log_export import export
from tacit.service.maintenance.ubi_export import export_ubi

pytestmark = pytest.mark.interpreted

ARMS = "a", "b", "c", "d", "e"
ATTRACTION = np.array([0.2, 0.6, 0.3, 0.5, 0.1])
EFFECTS = np.array([1.0, 0.6, 0.4])
WANTED = ("d", "b", "c")


def list_mix(**more):
    return tacit.ListMix(ARMS, **({"epsilon": 0.3, "positions": 3} | more))


def clicks_on(slate, rng):
    """Return the clicks of readers who look at positions."""
    looked = EFFECTS[: len(slate)] * ATTRACTION[[ARMS.index(arm) for arm in slate]]
    return (rng.random(len(slate)) < looked).astype(float).tolist()


def logged(policy, rounds, seed, keys=1, offers=(None,)):
    """Return the log of a learner, its decisions and the clicks."""
    learner, rng = tacit.Learner(policy, seed=seed), np.random.default_rng(seed)
    decisions, clicks = [], []
    for i in range(rounds):
        decision = learner.choose(f"key {i % keys}", arms=offers[i % len(offers)])
        told = (clicks_on(decision.slate, rng) + [0.0] * 3)[:3]
        learner.learn(decision, told)
        decisions.append(decision)
        clicks.append(told)
    return click_log(policy, decisions, clicks, placement="home"), decisions, clicks


def command(*arguments):
    """Run the command; return its exit status, its output and its errors."""
    output, error = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(error),
        pytest.raises(SystemExit) as left,
    ):
        main(list(arguments))
    return left.value.code or 0, output.getvalue(), error.getvalue()


def always(*arms):
    return Table({str(k): {arm: 1.0} for k, arm in enumerate(arms)}, per="position")


# What is written --------------------------------------------------------------------------------


def test_a_log_has_a_row_for_each_arm_with_what_multiplies_to_the_list(tmp_path):
    log, decisions, clicks = logged(list_mix(), 20, 1, offers=(None, ["c", "a"]))
    rows = log.to_pylist()
    assert log.schema.equals(SCHEMA)
    start = 0
    for decision, told in zip(decisions, clicks, strict=True):
        mine = rows[start : start + len(decision.slate)]
        start += len(mine)
        assert tuple(row["arm"] for row in mine) == decision.slate
        assert [row["position"] for row in mine] == list(range(len(mine)))
        assert {row["decision_id"] for row in mine} == {str(decision.id)}
        assert [row["reward"] for row in mine] == told[: len(mine)]
        assert mine[0]["arms"] == [ARMS[slot] for slot in decision.offered]
        assert math.prod(row["propensity"] for row in mine) == pytest.approx(decision.propensity, abs=1e-12)
        places = [row["position_propensity"] for row in mine]
        assert places == decision.position_propensities[: len(mine)].tolist()
    assert start == len(rows)
    for name in ("log.parquet", "log.csv", "log.jsonl"):
        write_log(log, tmp_path / name)
        assert pa.Table.from_batches(list(read_log(tmp_path / name)), SCHEMA).equals(log)


def test_logs_of_single_arms_are_written_too():
    policy = tacit.Thompson(["a", "b"])
    learner = tacit.Learner(policy, seed=1)
    decisions = [learner.choose("query") for _ in range(3)]
    rows = click_log(policy, decisions, [0.0, None, 1.0]).to_pylist()
    assert [row["reward"] for row in rows] == [0.0, None, 1.0]
    assert [row["propensity"] for row in rows] == [each.propensity for each in decisions]
    assert all(row["position"] is row["position_propensity"] is None for row in rows)
    with pytest.raises(InvalidValue, match="rewards"):
        click_log(policy, decisions, [0.0])


# What is weighed --------------------------------------------------------------------------------


def by_hand(policy, decisions, clicks):
    """Return the estimates of a ranking policy that learns from a log, list by list."""
    learner = tacit.Learner(policy, seed=0)
    units = []
    for decision, told in zip(decisions, clicks, strict=True):
        offered = [ARMS[slot] for slot in decision.offered]
        cells = learner.probabilities(decision.key, arms=offered)
        learner.learn(decision, told)
        impression = tacit.Impression(decision.offered, np.zeros(0))
        length = len(decision.slate)
        independent = cascade = 0.0
        for k in range(length):
            place = offered.index(decision.slate[k])
            independent += cells[place, k] / decision.position_propensities[k] * told[k]
        units.append((independent, cascade, impression))
    return np.array([unit[0] for unit in units])


@pytest.mark.parametrize("rows", [1, 4, 7, 10_000])
def test_a_ranking_policy_is_weighed_list_by_list_wherever_batches_end(rows):
    log, decisions, clicks = logged(list_mix(), 60, 2, keys=2, offers=(None, ["c", "a"], None))
    target = tacit.policies.SafeListMix(ARMS, positions=3, epsilon=0.1)
    result = off_policy(target, log.to_batches(max_chunksize=rows))
    independent, cascade, slate = result.estimates
    assert independent.value == pytest.approx(by_hand(target, decisions, clicks).mean(), abs=1e-12)
    assert result.lists == independent.sums.n == 60
    assert result.rows == len(log)
    assert result.logged == pytest.approx(np.sum(log["reward"].to_numpy()) / 60)
    alone = off_policy(target, log, [CascadeIPS(3)]).estimates[0].value
    assert cascade.value == pytest.approx(alone, abs=1e-12)
    assert slate.estimator == "SlateIPS(slots=3)"


def test_a_policy_that_is_the_log_s_own_has_weights_of_one():
    log, _, clicks = logged(list_mix(), 80, 3, keys=3)
    for estimate in off_policy(list_mix(), log).estimates:
        assert estimate.value == pytest.approx(np.sum(clicks) / 80, abs=1e-9)
        assert estimate.mean_weight == pytest.approx(1.0, abs=1e-9)
        assert estimate.effective_sample_size == pytest.approx(80, abs=1e-6)


def truth_of(decisions, clicks, policy):
    """Return the mean value of what a ranking policy was, learning from a log."""
    learner, total = tacit.Learner(policy, seed=0), 0.0
    for decision, told in zip(decisions, clicks, strict=True):
        total += float(ATTRACTION @ learner.probabilities(decision.key) @ EFFECTS)
        learner.learn(decision, told)
    return total / len(decisions)


@pytest.mark.compiled
def test_estimates_of_ranking_policies_are_unbiased():
    """50 logs of 60 lists: the mean error within 4 standard errors, of each estimator and target.

    Wrong by chance with probability 6e-5 for each of nine comparisons.
    """
    safe = tacit.policies.SafeListMix(ARMS, positions=3, epsilon=0.2)
    fixed = float(EFFECTS @ ATTRACTION[[ARMS.index(arm) for arm in WANTED]])
    errors = {}
    for seed in range(50):
        log, decisions, clicks = logged(list_mix(), 60, seed)
        estimators = [IndependentIPS(3), CascadeIPS(3), SlateIPS(3)]
        for target, truth in (
            (always(*WANTED), fixed),
            (safe, truth_of(decisions, clicks, safe)),
            (list_mix(epsilon=0.6), truth_of(decisions, clicks, list_mix(epsilon=0.6))),
        ):
            label = getattr(target, "label", "fixed")
            for found in off_policy(target, log, estimators).estimates:
                value = np.nan_to_num(found.value)  # 0 where nothing overlaps: so it is unbiased
                errors.setdefault((label, found.estimator), []).append(value - truth)
    assert len(errors) == 9
    for case, values in errors.items():
        error = np.std(values, ddof=1) / math.sqrt(len(values))
        assert abs(np.mean(values)) < 4 * error, case


@pytest.mark.compiled
def test_lists_are_drawn_from_policies_that_do_not_know_their_propensities():
    """Each key is heard of once, so that a list is drawn uniformly: within 4 standard errors."""
    log, _, _ = logged(list_mix(), 3000, 4)
    keys = pa.array(map(str, np.arange(9000) // 3))
    unheard = log.set_column(log.schema.get_field_index("key"), "key", keys)
    drawn = tacit.policies.baselines.RankedBandit(tacit.UniformRandom(ARMS), positions=3)
    estimate = off_policy(Ranking(drawn, seed=3), unheard, [IndependentIPS(3)]).estimates[0]
    assert abs(estimate.value - ATTRACTION.mean() * EFFECTS.sum()) < 4 * estimate.standard_error
    assert off_policy(drawn, unheard, [IndependentIPS(3)], seed=3).estimates[0].value == estimate.value


def test_a_simulated_log_answers_for_another_list():
    """Cascade readers: what stands above matters, so beginnings are weighed. 4 standard errors."""
    readers = tacit.environments.CascadeArms(ATTRACTION.tolist(), positions=3)
    policy = tacit.ListMix(5, positions=3, epsilon=0.3)
    log = simulate_log(policy, readers, 1500, seed=5)
    assert log.equals(simulate_log(policy, readers, 1500, seed=5))
    for estimate in off_policy(always("3", "1", "2"), log, [CascadeIPS(3), SlateIPS(3)]).estimates:
        assert abs(estimate.value - (1 - 0.5 * 0.4 * 0.7)) < 4 * estimate.standard_error
        low, high = estimate.intervals["anytime"]
        assert low < 1 - 0.5 * 0.4 * 0.7 < high


def test_rows_of_lists_are_weighed_by_their_positions():
    log, decisions, clicks = logged(list_mix(), 40, 6)
    total = 0.0
    for decision, told in zip(decisions, clicks, strict=True):
        for k, arm in enumerate(decision.slate):
            total += (arm == WANTED[k]) / decision.position_propensities[k] * told[k]
    result = off_policy(always(*WANTED), log, [IPS()])
    assert result.estimates[0].value == pytest.approx(total / 120, abs=1e-12)


# From the service -------------------------------------------------------------------------------


def test_the_service_exports_lists_that_answer_for_other_policies(tmp_path):
    """1,200 lists of readers by position, weighed for one list: within 4 standard errors."""
    config = with_home(kind="slates", arms=list(ARMS), policy="list-mix(epsilon=0.3)")
    rng = np.random.default_rng(7)

    async def session():
        async with served(tmp_path / "s.db", config) as engine:
            for i in range(60):
                engine.clock.now = START + i * 20 * SECOND
                # Each draws from its id, so that every run of this test draws the same.
                asked = [DecisionRequest(f"key {i % 3}", id=f"{i}-{j}") for j in range(20)]
                rows = await decide(engine, *asked)
                sent = []
                for row in rows:
                    places = np.flatnonzero(clicks_on(decode_list(row.shown).arms, rng)).tolist()
                    sent.append(FeedbackRequest(row.id, CLICKS, clicks=Clicked(places)))
                await engine.record_many("home", sent)
            engine.clock.now += 60 * SECOND
            # Those that the service names are decided at once.
            await decide(engine, *[DecisionRequest("another key")] * 10)
            counts = export(config, engine.store, tmp_path / "out")
            export_ubi(engine.store, tmp_path / "ubi")
        return counts

    assert asyncio.run(session())["lists-home"] == 3600
    log = read_log(tmp_path / "out" / "lists-home.parquet")
    rows = [row for batch in log for row in batch.to_pylist()]
    assert log.report.kept == 3600
    assert {row["placement"] for row in rows} == {"home"}
    # The records of User Behavior Insights say the same, of the last decision, too.
    theirs = [row for batch in read_log(tmp_path / "ubi") for row in batch.to_pylist()]
    told = "arms", "arm", "position", "propensity", "position_propensity", "reward"
    mine = {(row["decision_id"], row["position"]): [row[name] for name in told] for row in rows}
    others = {(row["decision_id"], row["position"]): [row[name] for name in told] for row in theirs}
    assert len(others) == 3630
    assert all(0.0 < cells[3] <= 1.0 and 0.0 < cells[4] <= 1.0 for cells in others.values())
    assert all(others[place] == cells for place, cells in mine.items())
    (estimate, *_) = off_policy(always(*WANTED), log, [IndependentIPS(3)]).estimates
    truth = float(EFFECTS @ ATTRACTION[[ARMS.index(arm) for arm in WANTED]])
    assert abs(estimate.value - truth) < 4 * estimate.standard_error
    arguments = ["evaluate", str(tmp_path / "out" / "lists-home.parquet"), "--json"]
    status, output, error = command(*arguments, "--policy", "safe-list-mix(epsilon=0.1)")
    assert status == 0, error
    told = json.loads(output)
    assert [each["estimator"] for each in told["estimates"]] == [
        f"{name}(slots=3)" for name in ("IndependentIPS", "CascadeIPS", "SlateIPS")
    ]
    output = command(*arguments, "--policy", "list:d,b,c")[1]
    assert json.loads(output)["estimates"][0]["value"] == pytest.approx(estimate.value)


# What does not fit ------------------------------------------------------------------------------


def test_a_log_without_propensities_says_what_to_do():
    log, _, _ = logged(tacit.policies.CascadeKLUCB(ARMS, positions=3), 5, 8)
    with pytest.raises(UnfitLog, match=r"row 1: propensity: .* ListMix\(epsilon=0.1\) for lists"):
        off_policy(list_mix(), log)
    with_places, _, _ = logged(list_mix(), 5, 8)
    places = with_places.set_column(
        with_places.schema.get_field_index("propensity"), "propensity", pa.nulls(15, pa.float64())
    )
    assert off_policy(list_mix(), places, [IndependentIPS(3)]).lists == 5
    with pytest.raises(UnfitLog, match="propensity"):
        off_policy(list_mix(), places, [CascadeIPS(3)])


def moved(log, positions):
    """Return the log with other positions."""
    column = pa.array(positions, pa.int32())
    return log.set_column(log.schema.get_field_index("position"), "position", column)


def test_positions_count_from_where_it_is_said(tmp_path):
    from_0 = logged(list_mix(), 5, 9)[0]
    wanted = off_policy(always(*WANTED), from_0, [IndependentIPS(3)]).estimates[0].value
    for name in "log.csv", "log.parquet":
        write_log(moved(from_0, [1, 2, 3] * 5), tmp_path / name)
        reader = read_log(tmp_path / name, positions_from=1)
        assert off_policy(always(*WANTED), reader, [IndependentIPS(3)]).estimates[0].value == wanted
        assert not reader.report.warning_lines()
        (batch,) = reader
        assert batch["position"].to_pylist() == [0, 1, 2] * 5
        options = "--policy", "list:d,b,c", "--estimator", "independent-ips", "--json"
        found = command("evaluate", str(tmp_path / name), "--positions-from", "1", *options)
        assert json.loads(found[1])["estimates"][0]["value"] == pytest.approx(wanted)


@pytest.mark.parametrize("target", [list_mix(), list_mix(positions=4), tacit.ListMix(ARMS), always(*WANTED)])
def test_positions_that_count_from_1_are_told_to_count_from_0(target, tmp_path):
    log = moved(logged(list_mix(), 5, 9)[0], [1, 2, 3] * 5)
    said = r"row 1: position: .* at position 0, this row is at 1; positions count from 0: say so with pos"
    with pytest.raises(UnfitLog, match=said):
        off_policy(target, log, [IndependentIPS(3)])
    write_log(log, tmp_path / "log.csv")
    _, _, error = command("evaluate", str(tmp_path / "log.csv"), "--policy", "list:d,b,c")
    assert re.search(said, " ".join(error.split()))
    with pytest.raises(
        UnfitLog, match=r"row 3: position: 3 is not allowed; .*; positions count from 0: say so"
    ):
        tacit.Learner(list_mix(), seed=1).fit_log(log)


@pytest.mark.parametrize("policy", [list_mix(), tacit.policies.CascadeKLUCB(ARMS, positions=3)])
def test_rows_of_a_list_that_stand_apart_are_refused(policy):
    log, _, _ = logged(list_mix(), 200, 9)
    apart = log.sort_by("position")
    said = (
        r"row 201: decision_id: '.*' comes again, after row 1 and others; .* sort by decision_id and position"
    )
    for judged in (
        lambda: off_policy(policy, apart),
        lambda: off_policy(always(*WANTED), apart, [IndependentIPS(3)]),
        lambda: tacit.Learner(policy, seed=1).fit_log(apart),
    ):
        with pytest.raises(UnfitLog, match=said):
            judged()
    # Ids that count anew are of other lists, which are warned of elsewhere.
    with warnings.catch_warnings(action="ignore"):
        assert off_policy(policy, pa.concat_tables([log, log])).lists == 400


BY_EXAMINATION = PositionBasedIPS(3, examination=tuple(EFFECTS), logging=Uniform())


@pytest.mark.parametrize("kind", [tacit.ListMix, tacit.policies.SafeListMix])
def test_policies_that_rank_are_weighed_by_examination(kind):
    log, decisions, clicks = logged(list_mix(), 60, 2, offers=(None, ["c", "a"]))
    target = kind(ARMS, positions=3, epsilon=0.1)
    learner, values = tacit.Learner(target, seed=0), []
    for decision, told in zip(decisions, clicks, strict=True):
        offered = [ARMS[slot] for slot in decision.offered]
        chances = learner.probabilities(decision.key, arms=offered)
        learner.learn(decision, told)
        seen = chances @ EFFECTS[: chances.shape[1]] / (EFFECTS.sum() / len(offered))
        places = [offered.index(arm) for arm in decision.slate]
        values.append(float(seen[places] @ told[: len(places)]))
    for estimators in ([BY_EXAMINATION], [IndependentIPS(3), BY_EXAMINATION]):
        found = off_policy(target, log, estimators).estimates[-1]
        assert found.value == pytest.approx(np.mean(values), abs=1e-9)


@pytest.mark.compiled
def test_policies_that_draw_their_lists_are_weighed_by_examination():
    drawn = tacit.policies.baselines.RankedBandit(tacit.UniformRandom(ARMS), positions=3)
    log, _, _ = logged(drawn, 3000, 4)
    (estimate,) = off_policy(drawn, log, [BY_EXAMINATION], propensities=Uniform()).estimates
    assert abs(estimate.value - ATTRACTION.mean() * EFFECTS.sum()) < 4 * estimate.standard_error


def test_a_policy_of_single_arms_learns_each_row_once_however_lists_are_weighed():
    log, _, _ = logged(list_mix(), 60, 2)
    estimates = [
        off_policy(tacit.Thompson(ARMS), log, [*others, IndependentIPS(3)]).estimates[-1]
        for others in ([], [BY_EXAMINATION])
    ]
    assert estimates[0].value == estimates[1].value


def test_a_log_of_lists_judged_by_what_shows_one_arm_is_doubted(tmp_path):
    log, _, _ = logged(list_mix(), 200, 9)
    said = r"position: rows of one decision are a list, .* one arm .*; give fixed_target\('list:a,b,c'\)"
    for target, estimators in ((Table({"a": 1.0}), None), (tacit.Thompson(ARMS), [IndependentIPS(3)])):
        with pytest.warns(AssumptionWarning, match=said):
            off_policy(target, log, estimators)
    for form in ("csv", "parquet"):
        write_log(log, tmp_path / f"log.{form}")
        with pytest.warns(AssumptionWarning, match=said):
            CliRunner().invoke(cli, ["evaluate", str(tmp_path / f"log.{form}"), "--policy", "always:a"])
    for target, given in ((Uniform(), log), (always(*WANTED), log), (Table({"a": 1.0}), log.slice(0, 1))):
        with warnings.catch_warnings(record=True, action="always") as found:
            off_policy(target, given, [IPS()])
        assert not any("are a list" in str(each.message) for each in found)


def test_a_fixed_list_is_weighed_as_a_list_as_by_the_command(tmp_path):
    log, _, _ = logged(list_mix(), 200, 9)
    result = off_policy(fixed_target("list:d,b,c"), log)
    write_log(log, tmp_path / "log.csv")
    _, output, _ = command("evaluate", str(tmp_path / "log.csv"), "--policy", "list:d,b,c", "--json")
    found = {each["estimator"]: each["value"] for each in json.loads(output)["estimates"]}
    assert {each.estimator: each.value for each in result.estimates} == pytest.approx(found)


def test_propensities_given_those_above_are_named_where_each_position_is_weighed_alone():
    rng = np.random.default_rng(1)
    slates = np.array([rng.permutation(5)[:3] for _ in range(3000)])
    arms = [ARMS[slot] for slot in slates.ravel()]
    log = pa.table(
        {
            "decision_id": [f"{i // 3}" for i in range(9000)],
            "arms": [ARMS] * 9000,
            "arm": arms,
            "position": [0, 1, 2] * 3000,
            "propensity": [1 / 5, 1 / 4, 1 / 3] * 3000,
            "reward": (rng.random(9000) < ATTRACTION[slates.ravel()] * np.tile(EFFECTS, 3000)).astype(float),
        }
    )
    said = (
        r"mean weight of 1: here it is .*; the log has no position_propensity, .*propensity is taken for it"
    )
    with pytest.warns(AssumptionWarning, match=said):
        off_policy(always(*WANTED), log, [IndependentIPS(3), CascadeIPS(3)])
    with warnings.catch_warnings(action="error"):
        off_policy(
            always(*WANTED),
            log.append_column("position_propensity", pa.array([0.2] * 9000)),
            [IndependentIPS(3)],
        )


def test_the_command_refuses_what_does_not_fit(tmp_path):
    write_log(logged(list_mix(), 5, 10)[0], tmp_path / "log.parquet")
    for policy, estimator, message in (
        ("list-mix", "replay", "hardly ever"),
        ("rucb", "ips", "shows a duel"),
        ("list:a,a", "independent-ips", "once"),
    ):
        arguments = ["evaluate", str(tmp_path / "log.parquet"), "--policy", policy]
        status, _, error = command(*arguments, "--estimator", estimator)
        assert status == 2
        assert message in " ".join(error.split())


# Without propensities, and the score interval ---------------------------------------------------


def placed_by_key(lists, seed):
    """Return a log whose lists depend on the key alone, with its propensities by position."""
    rng = np.random.default_rng(seed)
    orders = [("d", "b", "c"), ("b", "d", "a"), ("c", "a", "d"), ("e", "c", "b")]
    chances = {"one": [0.4, 0.3, 0.2, 0.1], "other": [0.1, 0.2, 0.3, 0.4]}
    rows = []
    for i in range(lists):
        key = ("one", "other")[i % 2]
        slate = orders[rng.choice(4, p=chances[key])]
        for k, (arm, click) in enumerate(zip(slate, clicks_on(slate, rng), strict=True)):
            alike = [p for order, p in zip(orders, chances[key], strict=True) if order[k] == arm]
            rows.append(
                {
                    "timestamp": "2026-01-01T00:00:00Z",
                    "decision_id": str(i),
                    "placement": "home",
                    "key": key,
                    "arms": list(ARMS),
                    "arm": arm,
                    "position": k,
                    "position_propensity": sum(alike),
                    "reward": click,
                }
            )
    table = pa.Table.from_pylist(rows)
    return table.set_column(6, "position", table["position"].cast(pa.int32()))


def test_estimated_propensities_do_what_logged_ones_do():
    """4,000 lists of two keys: within 4 standard errors of the truth, as with the logged ones."""
    log = placed_by_key(4000, 11)
    truth = float(EFFECTS @ ATTRACTION[[ARMS.index(arm) for arm in WANTED]])
    (known,) = off_policy(always(*WANTED), log, [IndependentIPS(3)]).estimates
    bare = without_places(log)
    with pytest.warns(AssumptionWarning, match="not logged"):
        result = off_policy(always(*WANTED), bare, [IndependentIPS(3)], propensities="estimated")
    (found,) = result.estimates
    assert abs(known.value - truth) < 4 * known.standard_error
    assert abs(found.value - truth) < 4 * found.standard_error
    assert abs(found.value - known.value) < known.standard_error
    assert result.assumes in result.summary()
    ranked = off_policy(list_mix(), bare, propensities="estimated")
    assert [each.estimator for each in ranked.estimates] == ["IndependentIPS(slots=3)"]


def without_places(log):
    return log.drop_columns(["position_propensity"])


def test_estimated_propensities_by_hand():
    """Six rows of one key, dealt to five folds: counts of the others, drawn towards all keys."""
    arms = ["a", "b", "a", "a", "b", "a"]
    log = pa.table(
        {
            "timestamp": ["2026-01-01T00:00:00Z"] * 6,
            "decision_id": list("123456"),
            "placement": ["home"] * 6,
            "key": ["query"] * 6,
            "arms": [["a", "b"]] * 6,
            "arm": arms,
            "reward": [1.0] * 6,
        }
    )
    weights = []
    for row, arm in enumerate(arms):
        others = [one for i, one in enumerate(arms) if i % 5 != row % 5]
        count = {one: others.count(one) for one in "ab"}
        total = len(others)
        weights.append(0.5 / ((count[arm] + 10 * (count[arm] + 1) / (total + 2)) / (total + 10)))
    for batch in (1, 4, 6):
        batches = log.to_batches(max_chunksize=batch)
        result = off_policy(Uniform(), batches, [IPS()], propensities="estimated")
        assert result.estimates[0].value == pytest.approx(np.mean(weights), abs=1e-12)


def test_the_policy_that_wrote_a_log_can_be_told():
    log = placed_by_key(300, 12)
    tables = {
        str(k): dict.fromkeys(ARMS, 0.0) | {row["arm"]: 0.5 for row in log.to_pylist()[k::3]}
        for k in range(3)
    }
    tables = {k: {a: p / sum(t.values()) for a, p in t.items()} for k, t in tables.items()}
    wrote = Table(tables, per="position")
    told = off_policy(always(*WANTED), without_places(log), [IndependentIPS(3)], propensities=wrote)
    total = sum(
        row["reward"] / tables[str(row["position"])][row["arm"]]
        for row in log.to_pylist()
        if row["arm"] == WANTED[row["position"]]
    )
    assert told.estimates[0].value == pytest.approx(total / 300, abs=1e-12)


def test_parts_of_a_log_make_the_estimates_of_the_whole(tmp_path):
    log = placed_by_key(60, 14)
    write_log(log.slice(0, 75), tmp_path / "a.csv")
    write_log(log.slice(75), tmp_path / "b.csv")
    for target, more in (
        (always(*WANTED), {"propensities": "estimated"}),
        (list_mix(), {"propensities": "estimated"}),
        (tacit.policies.CascadeKLUCB(ARMS, positions=3), {"estimators": [IndependentIPS(3)]}),
    ):
        given = {"estimators": [IndependentIPS(3)]} | more
        whole = off_policy(target, tmp_path, **given).estimates[0]
        parts = cluster.off_policy(target, tmp_path, **given, workers=2).estimates[0]
        assert parts.value == pytest.approx(whole.value, abs=1e-12)
        assert parts.standard_error == pytest.approx(whole.standard_error, abs=1e-12)


def test_a_list_is_joined_over_row_groups_of_one_and_of_several_offers(tmp_path):
    """Once arms of the first kind were read as dictionaries and of the second as texts, which do not join."""
    lists = [["a", "b"]] * 6, [["a", "b"], ["a", "b"], ["a", "b", "c"], ["a", "b", "c"]]
    parts = [
        pa.table(
            {
                "decision_id": [f"{part} {row // 2}" for row in range(len(offers))],
                "position": pa.array([0, 1] * (len(offers) // 2), pa.int32()),
                "arms": offers,
                "arm": ["a", "b"] * (len(offers) // 2),
                "propensity": [0.5] * len(offers),
                "reward": [0.0, 1.0] * (len(offers) // 2),
            }
        )
        for part, offers in enumerate(lists)
    ]
    path = tmp_path / "log.parquet"
    with pyarrow.parquet.ParquetWriter(path, parts[0].schema) as file:
        for part in parts:
            file.write_table(part)
    for log in (path, pa.concat_tables(parts)):
        with warnings.catch_warnings(action="ignore"):
            result = off_policy(Uniform(), log, [IndependentIPS(2)])
        assert result.estimates[0].value == pytest.approx((4 * 1.0 + 2 / 3) / 5, abs=1e-15)


def test_rows_of_a_parquet_file_without_rewards_beside_one_with_them_count_as_unanswered(tmp_path):
    rows = {"arms": [["a", "b"]] * 4, "arm": ["a", "b"] * 2, "propensity": [0.5] * 4, "reward": [1.0] * 4}
    for name, columns in (("a", rows), ("b", {name: rows[name] for name in ("arms", "arm", "propensity")})):
        pyarrow.parquet.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    with warnings.catch_warnings(action="ignore"):
        result = off_policy(Uniform(), tmp_path)
    assert (result.rows, result.unanswered, result.logged) == (8, 4, 0.5)


def test_a_score_interval_by_hand():
    """Weights 2 and 0, rewards 1 and 0: mean reward 0.4, so scores of 1.2, −0.8 and 0."""
    weights, rewards = (np.tile([2.0, 2.0, 0.0, 0.0, 2.0], 40), np.tile([1.0, 0.0, 0.0, 1.0, 0.0], 40))
    sums = sum_units(weights, weights * rewards, rewards=rewards)
    low, high = score(sums)
    scores = weights * (rewards - 0.4)
    centre = 0.4 + scores.mean()
    squares = max(np.sum((scores - scores.mean()) ** 2), 0.24 * np.sum(weights**2))
    assert (low + high) / 2 == pytest.approx(centre, abs=1e-12)
    assert (high - low) / 2 == pytest.approx(3.25 * math.sqrt(squares) / 200, abs=1e-12)
    half = sum_units(weights[:70], (weights * rewards)[:70], rewards=rewards[:70])
    rest = sum_units(weights[70:], (weights * rewards)[70:], rewards=rewards[70:], first=70)
    assert score(half.merge(rest)) == pytest.approx((low, high), abs=1e-12)
    # Each unit three slots, all of them alike: three times the interval.
    slots = sum_units(3 * weights, 3 * weights * rewards, rewards=3 * rewards)
    assert score(slots, length=3.0) == pytest.approx((3 * low, 3 * high), abs=1e-12)
    assert score(sums, 0.8) is None
    assert score(sum_units(weights[:10], (weights * rewards)[:10], rewards=rewards[:10])) is None


def test_estimates_have_a_score_interval_unless_they_are_clipped():
    log = placed_by_key(2000, 13)
    estimators = [IndependentIPS(3), IndependentIPS(3, clip=5.0), IPS(), SNIPS()]
    plain, clipped, ips, snips = off_policy(always(*WANTED), log, estimators).estimates
    truth = float(EFFECTS @ ATTRACTION[[ARMS.index(arm) for arm in WANTED]])
    low, high = plain.intervals["score"]
    assert low < truth < high
    sure = plain.intervals["anytime"]
    assert high - low < sure[1] - sure[0]
    assert "score" not in clipped.intervals
    assert ips.intervals["score"] == snips.intervals["score"]
    assert "score_low" in plain.row()
    other = off_policy(always(*WANTED), log, [IndependentIPS(3)], confidence=0.8).estimates[0]
    assert "score" not in other.intervals
