"""A policy is tested as ours are: right ones pass, and each way to be wrong is caught."""

import json

import pytest
import wrong_policies as wrong
from conftest import ROOT
from forked import ran
from policies_of_ones_own import Pooled

import tacit
from tacit.checking.tests import TESTS
from tacit.errors import InvalidValue

BROKEN = {
    wrong.SamePropensity: ("propensity", "its propensity says 0.3333"),
    wrong.TooMuchPropensity: ("propensity", "add up to 1.5"),
    wrong.OneLaneForAll: ("lanes", "changes the row of another"),
    wrong.ReadsAnother: ("lanes", "depends on what others learned"),
    wrong.FirstOfTies: ("ties", "break ties at random"),
    wrong.NotOnOffer: ("offers", "of which not all are in"),
    wrong.OfAnObject: ("in Python", "make it a @staticmethod, without self"),
    wrong.Unwritten: ("in Python", "define choose, a @staticmethod"),
    wrong.Fraction: ("in Python", "return the slot of an arm"),
    wrong.OutOfBounds: ("in Python", "wrong_policies.py:"),
    wrong.WritesWhenItChooses: ("propensity", "choose writes it"),
    wrong.OtherChance: ("seed", "take all chance from rng"),
    wrong.TakesBackTooLittle: ("unlearn", "does not take out"),
    wrong.NoNameForNumba: ("compiles", "rng.integers needs both"),
    wrong.NotInJSON: ("snapshot", "TypeError"),
    wrong.NoLaneAxis: ("in Python", "rows for 0, 1 and 2 lanes"),
    wrong.KeepsWhatWasOpen: ("clicks only", "below 0.97 in 30"),
}

# Of each shape one whose dozen loops compile fast; the long form has the larger ones.
OURS = [
    pytest.param(tacit.Thompson(3), marks=pytest.mark.long),
    pytest.param(tacit.ListMix(3, positions=2), marks=pytest.mark.long),
    tacit.policies.CascadeUCB1(3, positions=2),
    tacit.policies.RMED1(3),
    tacit.EpsilonGreedy(["a", "b", "c"]),
    tacit.policies.LinTS(2, 2),
]


@pytest.mark.parametrize("policy", OURS, ids=lambda policy: policy.label)
def test_ours_pass(policy):
    found = tacit.check(policy, draws=5000)
    assert found.passed, found.summary()


def test_a_policy_that_remembers_what_no_log_holds_is_refused_where_logs_are_folded():
    policy = tacit.policies.baselines.RankedBandit(tacit.UCB1(3), positions=2)
    found = tacit.check(policy, draws=100, only=["propensity", "service"])
    assert found.passed, found.summary()
    told = "the service refuses it: it remembers which arms were replaced"
    assert found.verdicts[-1].detail.startswith(told)
    log = {"decision_id": ["1", "1"], "key": ["a", "a"], "arm": ["0", "1"], "position": [0, 1]}
    with pytest.raises(InvalidValue, match=r"policy: RankedBandit.*give one that learns from what"):
        tacit.Learner(policy).fit_log(log, arms=["0", "1", "2"])


def test_what_keys_share_may_depend_on_others():
    found = tacit.check(Pooled(3), only=["lanes", "snapshot", "simulation", "replay", "service"])
    assert found.passed, found.summary()
    assert "share" in found.verdicts[2].detail


def test_a_right_one_passes_every_test():
    # In a process of its own, in whose registry of policies nobody else has put a name.
    came = ran(["-m", "tacit", "check", "wrong_policies:Right", "--json"], cwd=ROOT / "tests")
    assert came.returncode == 0, came.stdout + came.stderr
    assert json.loads(came.stdout)["passed"], came.stdout


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_each_way_to_be_wrong_is_caught_with_its_reason(kind):
    name, reason = BROKEN[kind]
    found = tacit.check(kind(3), only=[name] if name in TESTS else [])
    told = {verdict.name: verdict.detail for verdict in found.failures}
    assert reason in told.get(name, ""), found.summary()
    assert not found.passed


def test_nothing_is_run_compiled_that_is_wrong_in_python():
    found = tacit.check(wrong.OutOfBounds(3))
    assert [verdict.name for verdict in found.failures] == ["in Python"]
    assert {verdict.passed for verdict in found.verdicts[1:]} == {None}


def test_the_command_says_it_in_a_table_and_in_its_exit_code(tmp_path):
    def run(*arguments):
        return ran(["-m", "tacit", "check", *arguments], cwd=ROOT / "tests")

    fine = run("wrong_policies:Right", "--json", "--only", "offers")
    assert fine.returncode == 0, fine.stderr
    assert json.loads(fine.stdout)["passed"]
    wrong = run("wrong_policies:FirstOfTies", "--only", "ties,offers")
    assert wrong.returncode == 1
    heading, *table, end = wrong.stdout.splitlines()
    assert heading == "FirstOfTies"
    assert end == f"1 of {len(table)} tests failed"
    assert len({line.index(line.split(maxsplit=2)[1]) for line in table if "in P" not in line}) <= 2
    assert run("no-such-policy").returncode == 2
