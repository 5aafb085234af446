"""Learning a click log, and looking at what was learned."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import tacit
from tacit.cli import cli
from tacit.core.arrays import leaves
from tacit.errors import LogError, UnknownName
from tacit.logs import click_log, read_log, write_log
from tacit.policies.stationary.beta_maximum import probability_largest

pytestmark = pytest.mark.interpreted

ARMS = ["film", "holiday", "speech"]


def taught(policy, rounds=300, lists=False):
    """Return a learner, and the log of what it decided and learned."""
    learner, rng = tacit.Learner(policy, seed=3), np.random.default_rng(4)
    decisions, rewards = [], []
    for number in range(rounds):
        context = rng.random(policy.context_dim) if policy.context_dim else None
        decision = learner.choose("ab"[number % 2], context)
        reward = (rng.random(2) < 0.3).astype(float).tolist() if lists else float(rng.random() < 0.3)
        learner.learn(decision, reward)
        decisions.append(decision)
        rewards.append(reward)
    return learner, click_log(learner.policy, decisions, rewards)


def same(one, other):
    assert one.keys == other.keys
    assert one.decisions == other.decisions
    pairs = zip(*map(leaves, (learner.lanes.view_all() for learner in (one, other))), strict=True)
    assert all(np.array_equal(mine, others) for (_, mine), (_, others) in pairs)


@pytest.mark.parametrize(
    ("policy", "lists"),
    [
        (tacit.Thompson(ARMS), False),
        (tacit.UCB1(ARMS), False),
        (tacit.DriftMixture(ARMS), False),
        (tacit.ListMix(ARMS, positions=2, epsilon=0.1), True),
    ],
)
def test_a_learner_is_what_its_log_teaches_another(policy, lists):
    learner, log = taught(policy, lists=lists)
    other = tacit.Learner(policy, seed=9)
    assert other.fit_log(read_log(log, batch_rows=7)) is other
    assert other.decisions == learner.decisions
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


def test_rows_without_feedback_are_zeros_or_left_out():
    log = {"key": ["a"] * 2, "arm": ["film"] * 2, "reward": [1.0, None]}
    learner = tacit.Learner(tacit.UCB1(ARMS))
    assert learner.fit_log(log, arms=ARMS).decisions == 2
    assert learner.estimates("a")[0].mean == 0.5
    learner = tacit.Learner(tacit.UCB1(ARMS))
    assert learner.fit_log(log, arms=ARMS, missing_reward=None).decisions == 1


# Features -----------------------------------------------------------------------------------

TABLE = {"film": [0.1, 0.9], "holiday": [0.8, 0.3], "speech": [0.4, 0.4]}
SEEN = {"film": [1.0], "holiday": [0.2], "speech": [0.5]}


def taught_by_features(policy, rounds=150, offered=2):
    """Return a learner, and a table of what it showed, with features of the arm that was shown."""
    learner, rng, rows = tacit.Learner(policy, seed=3), np.random.default_rng(4), []
    tables = (TABLE, SEEN)
    for number in range(rounds):
        names = [str(name) for name in rng.permutation(ARMS)[:offered]]
        blocks = [
            [table[name] for name in names] if dim else None
            for table, dim in zip(tables, policy.feature_dims, strict=True)
        ]
        context = rng.random(policy.context_dim) if policy.context_dim else None
        key, given = "ab"[number % 2], {"relevance": blocks[0], "examination": blocks[1]}
        decision = learner.choose(key, context, names, **given)
        shown = [names[slot] for slot in decision.slots] if policy.arms is None else decision.shown
        reward = (rng.random(len(shown)) < 0.4).astype(float).tolist()
        learner.learn(decision, reward if policy.shows == "slate" else reward[0])
        rows += [
            {
                "decision_id": str(number),
                "key": key,
                "arms": names,
                "arm": arm,
                "position": place,
                "reward": won,
                "context": None if context is None else context.tolist(),
                "price": TABLE[arm][0],
                "age": TABLE[arm][1],
                "seen": SEEN[arm][0],
            }
            for place, (arm, won) in enumerate(zip(shown, reward, strict=True))
        ]
    return learner, pa.Table.from_pylist(rows)


@pytest.mark.parametrize("offered", [2, 3])
@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(tacit.ClickMixture(2, 1, context_dim=1), marks=pytest.mark.long),
        tacit.policies.baselines.HLinUCB(ARMS, 2, 1),
        tacit.policies.CascadeEC(2, 1, positions=2),
    ],
    ids=lambda policy: policy.label,
)
def test_a_log_and_a_table_of_features_are_what_was_learned(policy, offered):
    learner, log = taught_by_features(policy, offered=offered)
    other = tacit.Learner(policy, seed=9)
    seen = pa.table({"arm": list(SEEN), "seen": [row[0] for row in SEEN.values()]})
    other.fit_log(read_log(log, batch_rows=40), relevance=TABLE, examination=seen)
    assert other.decisions == learner.decisions
    same(learner, other)


@pytest.mark.parametrize("parquet", [False, True])
def test_columns_of_features_teach_what_needs_the_shown_arm_only(parquet, tmp_path):
    policy = tacit.policies.LinUCB(2, 1)
    learner, log = taught_by_features(policy)
    if parquet:
        pq.write_table(log, tmp_path / "log.parquet")
        log = tmp_path / "log.parquet"
    other = tacit.Learner(policy, seed=9)
    assert other.fit_log(log, relevance=["price", "age"], examination=["seen"]).decisions == 150
    same(learner, other)


# Estimates ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy",
    [
        tacit.Thompson(ARMS),
        tacit.UCB1(ARMS),
        tacit.KLUCB(ARMS),
        tacit.EpsilonGreedy(ARMS),
        tacit.policies.baselines.SlidingWindowUCB(ARMS, window=50),
        tacit.DriftMixture(ARMS),
        tacit.ExplorationFloor(tacit.UCB1(ARMS), epsilon=0.1),
    ],
    ids=lambda policy: type(policy).__name__,
)
def test_estimates_tell_of_every_arm(policy):
    learner, _ = taught(policy, 200)
    found = learner.estimates("a")
    assert [each.arm for each in found] == ARMS
    assert sum(each.chance_best for each in found) == pytest.approx(1)
    assert all(0 <= each.low < each.high <= 1 for each in found)
    assert str(found).splitlines()[0].split() == ["arm", "plays", "count", "now", "mean", "95", "%", "best"]


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
    assert found[2].mean is None


def test_a_policy_that_believes_nothing_of_arms_says_so():
    learner, _ = taught(tacit.policies.EXP3(ARMS), 2)
    with pytest.raises(
        UnknownName, match=r"estimates: EXP3 believes nothing of single arms; .* method beliefs"
    ):
        learner.estimates("a")


# The command line ---------------------------------------------------------------------------


def test_a_log_is_learned_from_the_command_line(tmp_path):
    learner, log = taught(tacit.DriftMixture(ARMS))
    write_log(log, tmp_path / "a.parquet")
    command = ["fit", str(tmp_path / "a.parquet"), "-o", str(tmp_path / "learner.tacit")]
    command += ["--policy", "drift-mixture"]
    run = CliRunner().invoke(cli, command)
    assert run.exit_code == 0, run.output
    assert "learned 300 decisions of 2 keys" in run.output
    same(tacit.Learner.load(tmp_path / "learner.tacit"), learner)
    told = json.loads(CliRunner().invoke(cli, [*command, "--json"]).output)
    assert (told["decisions"], told["keys"], told["rejected"]) == (300, 2, {})


def test_a_policy_over_features_learns_a_log_from_the_command_line(tmp_path):
    learner, log = taught_by_features(tacit.policies.LinUCB(2, 1))
    pq.write_table(log, tmp_path / "log.parquet")
    (tmp_path / "arms.csv").write_text("arm,price,age\nfilm,0.1,0.9\nholiday,0.8,0.3\nspeech,0.4,0.4\n")
    output = tmp_path / "learner.tacit"

    def run(*options):
        command = ["fit", str(tmp_path / "log.parquet"), "-o", str(output), *options]
        return CliRunner().invoke(cli, command)

    for relevance in ("price,age", f"table:{tmp_path / 'arms.csv'}"):
        found = run("--policy", "lin-ucb", "--relevance", relevance, "--examination", "seen")
        assert found.exit_code == 0, found.output
        same(tacit.Learner.load(output), learner)
    for options, told in [
        (("--policy", "lin-ucb"), "LinUCB knows arms by their features: give --relevance price,age"),
        (("--policy", "lin-ucb", "--relevance", "prise,age"), "did you mean 'price'?"),
        (("--policy", "lin-ucb", "--relevance", "table:none.csv"), "none.csv"),
        (("--policy", "lin-ucb(3)", "--relevance", "price,age"), "another relevance_dim"),
    ]:
        found = run(*options)
        assert found.exit_code != 0
        assert told in " ".join(f"{found.output} {found.exception}".split())
