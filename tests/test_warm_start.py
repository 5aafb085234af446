"""Learning a click log, and looking at what was learned."""

import json

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import tacit
from tacit.cli import cli
from tacit.core.state import leaves
from tacit.errors import InvalidValue, LogError, UnfitLog, UnknownName
from tacit.logs import click_log, read_log, write_log
from tacit.policies.stationary.beta_maximum import probability_largest

ARMS = ["film", "holiday", "speech"]


def taught(policy, rounds=300, lists=False):
    """Return a learner, and the log of what it decided and learned."""
    learner, rng = tacit.Learner(policy, seed=3), np.random.default_rng(4)
    decisions, rewards = [], []
    for number in range(rounds):
        context = rng.random(policy.context_dim) if policy.context_dim else None
        decision = learner.choose("ab"[number % 2], context)
        reward = (
            (rng.random(2) < 0.3).astype(float).tolist() if lists else float(rng.random() < 0.3)
        )
        learner.learn(decision, reward)
        decisions.append(decision)
        rewards.append(reward)
    return learner, click_log(learner.policy, decisions, rewards)


def same(one, other):
    assert one.keys == other.keys
    assert one.decisions == other.decisions
    used = (learner._batch.lanes.used() for learner in (one, other))
    pairs = zip(*map(leaves, used), strict=True)
    assert all(np.array_equal(mine, others) for (_, mine), (_, others) in pairs)


@pytest.mark.parametrize(
    ("policy", "lists"),
    [
        (tacit.Thompson(ARMS), False),
        (tacit.UCB1(ARMS), False),
        (tacit.ShiftMixture(ARMS), False),
        (tacit.ListMix(ARMS, positions=2, epsilon=0.1), True),
    ],
)
def test_a_learner_is_what_its_log_teaches_another(policy, lists):
    learner, log = taught(policy, lists=lists)
    other = tacit.Learner(policy, seed=9)
    assert other.fit_log(read_log(log, batch_rows=7)) == learner.decisions
    same(learner, other)


def test_it_goes_on_where_it_was():
    policy = tacit.Thompson(ARMS)
    learner, log = taught(policy)
    other = tacit.Learner(policy, seed=9)
    other.fit_log(log.slice(0, 100))
    other.fit_log(log.slice(100))
    same(learner, other)


def test_a_wrong_log_teaches_nothing():
    policy = tacit.UCB1(ARMS)
    _, log = taught(policy)
    fresh = tacit.Learner(policy, seed=1)
    fresh.choose("a")
    before = [array.copy() for _, array in leaves(fresh.state)]
    wrong = log.set_column(log.schema.get_field_index("reward"), "reward", pa.array([7.0] * 300))
    late = pa.concat_tables([log.slice(0, 200), wrong.slice(200)])
    with pytest.raises(LogError, match="row 201: reward"):
        fresh.fit_log(read_log(late, strict=True, batch_rows=50))
    assert (fresh.keys, fresh.decisions) == (["a"], 1)
    pairs = zip(before, leaves(fresh.state), strict=True)
    assert all(np.array_equal(old, new) for old, (_, new) in pairs)


def test_what_does_not_fit_is_refused():
    _, log = taught(tacit.UCB1(ARMS), 10)
    with pytest.raises(UnknownName, match=r"no arm 'speech'; make it with arms=.*arms_of"):
        tacit.Learner(tacit.UCB1(ARMS[:2])).fit_log(log)
    with pytest.raises(InvalidValue, match="features of arms, of which a click log holds none"):
        tacit.Learner(tacit.LinUCB(2)).fit_log(log)
    with pytest.raises(UnfitLog, match="context: it has 0 numbers; the policy needs 2"):
        tacit.Learner(tacit.ShiftMixture(ARMS, context_dim=2)).fit_log(log)
    index = log.schema.get_field_index("placement")
    two = pa.concat_tables(
        [log, log.set_column(index, "placement", pa.array(["other"] * 10))],
        promote_options="permissive",
    )
    with pytest.raises(UnfitLog, match=r"row 11: placement: it is 'other'.*placement=\.\.\."):
        tacit.Learner(tacit.UCB1(ARMS)).fit_log(two)
    assert tacit.Learner(tacit.UCB1(ARMS)).fit_log(two, placement="other") == 10


def test_rows_without_feedback_are_zeros_or_left_out():
    log = {"key": ["a"] * 2, "arm": ["film"] * 2, "reward": [1.0, None]}
    learner = tacit.Learner(tacit.UCB1(ARMS))
    assert learner.fit_log(log, arms=ARMS) == 2
    assert learner.estimates("a")[0].mean == 0.5
    learner = tacit.Learner(tacit.UCB1(ARMS))
    assert learner.fit_log(log, arms=ARMS, missing_reward=None) == 1


# Estimates ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy",
    [
        tacit.Thompson(ARMS),
        tacit.UCB1(ARMS),
        tacit.KLUCB(ARMS),
        tacit.EpsilonGreedy(ARMS),
        tacit.SlidingWindowUCB(ARMS, window=50),
        tacit.ShiftMixture(ARMS),
        tacit.ExplorationFloor(tacit.UCB1(ARMS), epsilon=0.1),
    ],
    ids=lambda policy: type(policy).__name__,
)
def test_estimates_tell_of_every_arm(policy):
    learner, _ = taught(policy, 200)
    found = learner.estimates("a")
    assert [each.arm for each in found] == ARMS
    assert sum(each.chance_best for each in found) == pytest.approx(1)
    assert all(0 < each.low < each.high < 1 for each in found)
    assert str(found).splitlines()[0].split() == ["arm", "plays", "mean", "95", "%", "best"]


def test_estimates_by_hand():
    learner = tacit.Learner(tacit.Thompson(["film", "holiday"]))
    log = {"key": ["a"] * 3, "arm": ["film", "film", "holiday"], "reward": [1, 0, 1]}
    learner.fit_log(log, arms=["film", "holiday"])
    film, holiday = learner.estimates("a")
    assert (film.plays, film.mean) == (2, 0.5)
    assert (holiday.plays, holiday.mean) == (1, pytest.approx(2 / 3))
    # Beta(2, 1): F(x) = x².
    assert (holiday.low, holiday.high) == pytest.approx((0.025**0.5, 0.975**0.5), abs=1e-4)
    exact = probability_largest(np.array([2.0, 2.0]), np.array([2.0, 1.0]), 1)
    assert holiday.chance_best == pytest.approx(exact, abs=1e-4)
    learner.retire_arms(["film"])
    assert [each.chance_best for each in learner.estimates("a")] == [0, 1]


def test_estimates_of_many_plays_and_of_none_stand_side_by_side():
    learner = tacit.Learner(tacit.UCB1(ARMS))
    plays = 1_000_000
    learner.choose("a")
    learner.state.plays[0] = [plays, 10, 0]
    learner.state.rewards[0] = [0.5 * plays, 9, 0]
    found = learner.estimates("a")
    width = 2 * 1.96 * np.sqrt(0.25 / plays)
    assert found[0].high - found[0].low == pytest.approx(width, rel=0.01)
    a, b = np.array([plays / 2 + 1, 10, 1]), np.array([plays / 2 + 1, 2.0, 1])
    for arm in range(3):
        exact = probability_largest(a, b, arm)
        assert found[arm].chance_best == pytest.approx(exact, abs=2e-4)
    assert np.isnan(found[2].mean)


def test_a_policy_that_believes_nothing_of_arms_says_so():
    learner, _ = taught(tacit.EXP3(ARMS), 2)
    with pytest.raises(UnknownName, match="beliefs: EXP3 believes nothing of single arms"):
        learner.estimates("a")
    with pytest.raises(UnknownName, match="nothing was ever chosen for 'c'"):
        tacit.Learner(tacit.UCB1(ARMS)).estimates("c")


# The command line ---------------------------------------------------------------------------


def test_a_log_is_learned_from_the_command_line(tmp_path):
    learner, log = taught(tacit.ShiftMixture(ARMS))
    write_log(log, tmp_path / "a.parquet")
    command = ["fit", str(tmp_path / "a.parquet"), "-o", str(tmp_path / "learner.tacit")]
    command += ["--policy", "shift-mixture"]
    run = CliRunner().invoke(cli, command)
    assert run.exit_code == 0, run.output
    assert "learned 300 decisions of 2 keys" in run.output
    same(tacit.Learner.load(tmp_path / "learner.tacit"), learner)
    told = json.loads(CliRunner().invoke(cli, [*command, "--json"]).output)
    assert (told["decisions"], told["keys"], told["rejected"]) == (300, 2, {})
