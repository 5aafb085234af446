"""Vowpal Wabbit's logs of decisions are click logs."""

import json
import re

import pytest
from conftest import ROOT
from generate.run import execute

import tacit
from tacit.errors import InvalidValue, LogError
from tacit.evaluate import IPS, SNIPS, arms_of, fixed_target, off_policy

# As its documentation has it, https://github.com/VowpalWabbit/vowpal_wabbit/wiki/DSJson-Format
PUBLISHED = (
    '{"_label_cost":-1.0,"_label_probability":0.8166667,"_label_Action":2,"_labelIndex":1,'
    '"Version":"1","EventId":"0074434d3a3a46529f65de8a59631939",'
    '"Timestamp":"2019-06-06T21:25:40.1286888Z","a":[2,1,3],'
    '"c":{"shared_ns":{"shared_feature":0},"_multi":[{"_tag":"tag","ns1":{"f1":1,"f2":"strng"},'
    '"ns2":[{"f3":"value1"},{"ns3":{"f4":0.994963765}}]},{"_tag":"tag 2",'
    '"ns1":{"f1":1,"f2":"strng"}},{"_tag":"tag3","ns1":{"f1":1,"f2":"strng"}}]},'
    '"p":[0.816666663,0.183333333,0.183333333],"VWState":{"m":"096200c6c41e42bbb879c12830247637"}}'
)


def written(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def line(action=1, cost=0.0, probability=0.5, **more):
    told = {
        "_label_cost": cost,
        "_label_probability": probability,
        "_label_Action": action,
        "EventId": f"{action} {cost} {probability}",
        "Timestamp": "2026-01-01T00:00:00Z",
        "a": [1, 2],
        "c": {"User": {"country": "DE"}, "_multi": [{"id": "film"}, {"i": {"x": 1}}]},
        "p": [0.5, 0.5],
    }
    return json.dumps(told | more)


def rows(log):
    return [row for batch in log for row in batch.to_pylist()]


def test_the_published_example_is_a_row(tmp_path):
    (row,) = rows(tacit.read_log(written(tmp_path / "a.dsjson", PUBLISHED)))
    assert row["decision_id"] == "0074434d3a3a46529f65de8a59631939"
    assert (row["arms"], row["arm"]) == (["tag", "tag 2", "tag3"], "tag 2")
    assert (row["propensity"], row["reward"]) == (0.8166667, 1.0)
    assert row["timestamp"].isoformat() == "2019-06-06T21:25:40.128688+00:00"
    assert (row["key"], row["placement"]) == ("default", "vowpal-wabbit")


def test_names_keys_and_folders(tmp_path):
    written(tmp_path / "a.dsjson", line(1, -0.5), "", line(2))
    written(tmp_path / "b.dsjson", line(2, -1.0))
    log = tacit.read_log(tmp_path, columns={"key": "c.User.country"}, constants={"policy": "vw"})
    read = rows(log)
    assert [row["arm"] for row in read] == ["film", "2", "2"]
    assert [row["reward"] for row in read] == [0.5, 0.0, 1.0]
    assert {row["key"] for row in read} == {"DE"}
    assert {row["policy"] for row in read} == {"vw"}
    assert rows(log) == read  # it is read anew
    assert len(rows(tacit.read_log(written(tmp_path / "log.txt", line()), format="dsjson"))) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        "{",
        "[]",
        '{"EventId": "1"}',
        line(3),
        line(0),
        line(cost=-2.0),
        line(cost=0.5),
        line(probability=0.0),
        line(c={"_multi": []}),
        line(_label_Action="one"),
    ],
)
def test_a_wrong_line_is_rejected_and_stops_no_other(tmp_path, wrong):
    path = written(tmp_path / "a.dsjson", line(), wrong, line(2))
    log = tacit.read_log(path)
    assert len(rows(log)) == 2
    assert sum(log.report.rejected.values()) == 1
    with pytest.raises(LogError):
        rows(tacit.read_log(path, strict=True))


def test_only_the_key_can_be_told(tmp_path):
    path = written(tmp_path / "a.dsjson", line())
    with pytest.raises(InvalidValue, match="columns"):
        tacit.read_log(path, columns={"arm": "c.x"})
    with pytest.raises(LogError, match="missing-key"):
        rows(tacit.read_log(path, columns={"key": "c.nowhere"}))


def test_the_page_runs_and_prints_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "elsewhere" / "vowpal-wabbit.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(python|text)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    ours = "".join(code for kind, code in blocks if kind == "python" and "vowpalwabbit" not in code)
    shown = "".join(code for kind, code in blocks if kind == "text")
    assert execute(ours, {}, "page") == shown


def test_actions_without_a_name_have_the_numbers_by_which_they_are_labelled(tmp_path):
    probabilities, actions = [0.25] * 4, {"_multi": [{}, {}, {}, {}]}
    lines = [
        line(label, -0.9 if label == 3 else 0.0, 0.25, c=actions, p=probabilities)
        for label in [3, 3, 1, 2, 4] * 40
    ]
    path = written(tmp_path / "log.dsjson", *lines)
    assert arms_of(tacit.read_log(path)) == ("1", "2", "3", "4")
    with pytest.warns(tacit.errors.AssumptionWarning, match="n_eff"):
        result = off_policy(fixed_target("always:3"), path, [IPS(), SNIPS()])
    assert [estimate.value for estimate in result.estimates] == pytest.approx([1.44, 0.9])
    for options in {"positions_from": 1}, {"arms": "shown"}:
        with pytest.raises(InvalidValue, match="leave it out"):
            tacit.read_log(path, **options)
