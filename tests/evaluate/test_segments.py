"""Results per segment of a log: those of the segment's rows alone, and the sum is the whole."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from drawn import is_long

import tacit
from tacit import cluster
from tacit.cli import cli
from tacit.evaluate import IPS, SNIPS, DoublyRobust, IndependentIPS, Rewards, Table, Uniform, off_policy
from tacit.evaluate.intervals import score
from tacit.logs import read_log

ARMS = ["film", "holiday"]
TARGET = Table({"film": 0.25, "holiday": 0.75})
DEVICES = ["phone", "desk", None]


def shop(rows=600, seed=1):
    rng = np.random.default_rng(seed)
    arm = rng.integers(2, size=rows)
    device = rng.choice(3, rows, p=[0.6, 0.3, 0.1])
    chance = np.array([[0.2, 0.6], [0.5, 0.3], [0.4, 0.4]])[device, arm]
    return pa.table(
        {
            "decision_id": [str(row) for row in range(rows)],
            "key": rng.choice(["a", "b"], rows).tolist(),
            "arms": [ARMS] * rows,
            "arm": [ARMS[one] for one in arm],
            "propensity": [0.5] * rows,
            "reward": (rng.random(rows) < chance).astype(float),
            "device": pa.array([DEVICES[one] for one in device]),
        }
    )


LOG = shop()


def alone(device):
    column = LOG["device"]
    mask = column.is_null() if device == "" else pa.compute.equal(column, device).fill_null(False)
    return LOG.filter(mask)


ESTIMATORS = [IPS(), SNIPS(), DoublyRobust(Rewards({"film": 0.3, "holiday": 0.5}))]


@pytest.mark.parametrize("batch_rows", [7, 65_536])
def test_a_segment_is_what_its_rows_alone_say(batch_rows):
    log = read_log(LOG, batch_rows=batch_rows)
    found = off_policy(TARGET, log, ESTIMATORS, by="device")
    assert list(found.segments) == ["phone", "desk", ""]  # the largest first
    for device, segment in found.segments.items():
        expected = off_policy(TARGET, alone(device), ESTIMATORS, confidence=1 - 0.05 / 3)
        assert (segment.rows, segment.logged) == (expected.rows, pytest.approx(expected.logged))
        for one, other in zip(segment.estimates, expected.estimates, strict=True):
            assert one.value == pytest.approx(other.value)
            corrected = {kind: bounds for kind, bounds in one.intervals.items() if kind != "score"}
            assert corrected.keys() == other.intervals.keys()
            for kind, bounds in corrected.items():
                assert bounds == pytest.approx(other.intervals[kind])
    plain = off_policy(TARGET, log, ESTIMATORS)
    assert [e.value for e in plain.estimates] == [e.value for e in found.estimates]
    assert plain.segments == {}


def test_a_segment_may_be_a_column_of_the_schema_by_either_name():
    renamed = LOG.rename_columns({"key": "query"})
    ours = off_policy(TARGET, renamed, [IPS()], by="key", columns={"key": "query"})
    theirs = off_policy(TARGET, renamed, [IPS()], by="query", columns={"key": "query"})
    assert set(ours.segments) == {"a", "b"}
    assert ours.table() == theirs.table()
    assert {row["segment"] for row in ours.table()} == {None, "a", "b"}


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_parts_of_a_log_tell_the_same_of_segments(tmp_path, format):
    for place, rows in enumerate((LOG.slice(0, 250), LOG.slice(250))):
        if format == "parquet":
            pq.write_table(rows, tmp_path / f"{place}.parquet", row_group_size=100)
        else:
            (tmp_path / f"{place}.jsonl").write_text("\n".join([json.dumps(row) for row in rows.to_pylist()]))
    log = read_log(tmp_path)
    one = off_policy(TARGET, log, [IPS(), SNIPS()], by="device")
    many = cluster.off_policy(TARGET, log, [IPS(), SNIPS()], by="device")
    memory = off_policy(TARGET, LOG, [IPS(), SNIPS()], by="device")
    for row, other, third in zip(one.table(), many.table(), memory.table(), strict=True):
        assert row == pytest.approx(other)
        assert row == pytest.approx(third)


def test_a_list_is_of_the_segment_of_its_first_row():
    rows = [
        {"decision_id": d, "key": "a", "arms": ARMS, "arm": arm, "position": k, "device": device}
        | {"propensity": 0.5, "reward": float(d == "1")}
        for d, device in (("1", "phone"), ("2", "desk"), ("3", "phone"))
        for k, arm in enumerate(ARMS)
    ]
    target = Table({"0": {"film": 1.0}, "1": {"holiday": 1.0}}, per="position")
    found = off_policy(target, pa.Table.from_pylist(rows), [IndependentIPS(2)], by="device")
    values = {name: part.estimates[0].value for name, part in found.segments.items()}
    assert values == {"phone": 2.0, "desk": 0.0}
    assert {name: part.logged for name, part in found.segments.items()} == {"phone": 1, "desk": 0}


def test_replay_by_segments_adds_up_to_replay():
    policy = tacit.UCB1(ARMS)
    whole = tacit.replay(policy, LOG, passes=3, seed=2)
    found = tacit.replay(policy, LOG, passes=3, seed=2, by="device")
    assert found.estimates == whole.estimates
    assert sum(part.matched for part in found.segments.values()) == pytest.approx(sum(whole.matched) / 3)
    assert cluster.replay(policy, read_log(LOG), passes=3, seed=2, by="device") == found
    assert "hold in all 3 segments at once with 95 % (Bonferroni)" in found.summary()
    for device in found.segments:
        shown = found.segments[device]
        assert 0 <= shown.low <= shown.estimate <= shown.high <= 1


def test_the_text_says_how_intervals_are_corrected():
    text = off_policy(TARGET, LOG, [IPS()], by="device").summary()
    assert "hold in all 3 segments at once with 95%: each is one of 0.98333 (Bonferroni)" in text
    assert "(none)" in text


def test_score_intervals_of_segments_are_wider_by_the_boundary_of_several():
    for part in off_policy(TARGET, LOG, [IPS()], by="device").segments.values():
        (estimate,) = part.estimates
        if (several := estimate.intervals.get("score")) is not None:
            alone = score(estimate.sums)
            # √(3.25² + 2 ln 3) over 3.25
            assert several[1] - several[0] == pytest.approx(1.0991 * (alone[1] - alone[0]), rel=1e-3)


def test_where_segments_are_many_the_bootstrap_is_none():
    many = LOG.append_column("city", pa.array([str(row % 20) for row in range(600)]))
    found = off_policy(TARGET, many, [IPS()], by="city")
    kinds = {kind for part in found.segments.values() for kind in part.estimates[0].intervals}
    assert "bootstrap" in found.estimates[0].intervals
    assert {"normal", "anytime"} <= kinds
    assert "bootstrap" not in kinds


def test_intervals_of_all_segments_at_once_hold_as_often_as_they_say():
    """Of all logs, all three intervals hold in 95 % or more, but for chance."""
    # At 95 %, fewer than these have a probability of less than 0.002.
    logs, least = (400, 366) if is_long() else (100, 88)
    truth = {"phone": 0.5, "desk": 0.35, "": 0.4}
    held = 0
    for seed in range(logs):
        found = off_policy(TARGET, shop(900, seed), [IPS()], by="device")
        bounds = {d: part.estimates[0].intervals["normal"] for d, part in found.segments.items()}
        held += all(low <= truth[d] <= high for d, (low, high) in bounds.items())
    assert held >= least


def test_the_command_line_tells_of_segments(tmp_path):
    pq.write_table(LOG, tmp_path / "a.parquet")
    command = ["evaluate", str(tmp_path / "a.parquet"), "--policy", "always:film", "--by", "device"]
    run = CliRunner().invoke(cli, [*command, "--plot", str(tmp_path / "a.png")])
    assert run.exit_code == 0, run.output
    assert "phone" in run.output
    told = json.loads(CliRunner().invoke(cli, [*command, "--json"]).output)
    assert [row["segment"] for row in told["estimates"][::2]] == [None, "phone", "desk", ""]
    both = ["--policy", "ucb1", "--estimator", "replay,ips", "--passes", "2", "--json"]
    told = json.loads(CliRunner().invoke(cli, [*command[:2], *both, "--by", "device"]).output)
    assert set(told["replay"]["segments"]) == {"phone", "desk", ""}


def test_a_mean_weight_that_is_not_1_is_explained():
    wrong = LOG.set_column(LOG.schema.get_field_index("propensity"), "propensity", [[0.9] * 600])
    text = off_policy(Table({"film": 1.0}), wrong, [IPS(), IPS(clip=1)]).summary()
    assert text.count("logs at most: they are wrong") == 1
    assert "mean w is" not in off_policy(TARGET, LOG, [IPS()]).summary()


def drawn_log(rng, chances, factor=1.0):
    """Return a log of arms drawn with some chances each, whose propensities are logged times a factor."""
    rows, arms = chances.shape
    shown = (chances.cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
    names = [str(arm) for arm in range(arms)]
    return {
        "key": ["k"] * rows,
        "arms": [names] * rows,
        "arm": [names[arm] for arm in shown],
        "propensity": chances[np.arange(rows), shown] * factor,
        "reward": rng.integers(2, size=rows),
    }


def test_large_weights_that_are_still_to_come_do_not_make_right_propensities_wrong():
    """One in a hundred logs at most: of 60, more than 4 would have an error probability of 3e-4."""
    rng = np.random.default_rng(5)
    wrong = missing = 0
    for _ in range(60):
        odds = np.exp(3 * rng.normal(size=(200, 5)))
        log = drawn_log(rng, odds / odds.sum(axis=1, keepdims=True))
        text = off_policy(Uniform(), log, [IPS()]).summary()
        wrong += "they are wrong" in text
        missing += "is hardly in the log yet" in text
    assert wrong <= 4
    # By standard errors of what was seen, a fifth of them had an alarm.
    assert missing > 6


@pytest.mark.parametrize("factor", [0.8, 0.9, 1.1, 1.2])
def test_propensities_that_are_logged_wrong_are_found_in_either_direction(factor):
    log = drawn_log(np.random.default_rng(6), np.full((20_000, 5), 0.2), factor)
    assert "they are wrong" in off_policy(Table({"0": 1.0}), log, [IPS()]).summary()


def test_what_no_arm_could_weigh_is_known_however_a_log_is_parted():
    log = drawn_log(np.random.default_rng(7), np.tile([0.96, 0.01, 0.01, 0.02], (70_000, 1)))
    whole = off_policy(Table({"1": 1.0}), log, [IPS()]).estimates[0].sums
    parts = [{name: column[i::2] for name, column in log.items()} for i in range(2)]
    first, second = (off_policy(Table({"1": 1.0}), part, [IPS()]).estimates[0].sums for part in parts)
    assert whole.possible == first.merge(second).possible == pytest.approx(100.0)
