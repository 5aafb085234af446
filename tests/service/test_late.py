"""Rewards that come late and correct the default: exactly, once, a function of the log."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import placement_access as access
import pytest
from harness import SECOND, Clock, served, with_home, with_policy
from msgspec.structs import replace

import tacit
from tacit.core.arrays import leaves
from tacit.errors import ConfigError, InvalidValue
from tacit.learning.learner import Learner
from tacit.logs import read_log
from tacit.policies.base import Counts, is_correctable
from tacit.policies.index import CountingPolicy
from tacit.service.config.file import load_config
from tacit.service.config.schema import PlacementConfig, Rule, SignalConfig
from tacit.service.log.requests import DecisionRequest, FeedbackRequest
from tacit.service.log.rows import REWARD
from tacit.service.maintenance.log_export import export
from tacit.wire.control import ModeOf
from tests.service.test_attribution import ARMS, configured, folding

RULE = Rule(window=30 * SECOND, late="correct", correction=100 * SECOND)

PLAIN = tacit.UCB1, tacit.KLUCB, tacit.EpsilonGreedy, tacit.Thompson, tacit.UniformRandom
COUNTING = [*(make(ARMS) for make in PLAIN), tacit.ExplorationFloor(tacit.UCB1(ARMS))]
OTHERS = [
    tacit.Thompson(ARMS, discount=0.99),
    tacit.policies.EXP3(ARMS),
    tacit.policies.baselines.DiscountedUCB(ARMS),
    tacit.policies.baselines.GLRKLUCB(ARMS),
    tacit.ExplorationFloor(tacit.Thompson(ARMS, discount=0.99)),
    tacit.BWC(ARMS, classifier=tacit.classifiers.Rectangle(dim=1, margin=0.1)),
]


class Doubled(CountingPolicy):
    """Learns otherwise than it unlearns."""

    class Params(NamedTuple):
        pass

    @staticmethod
    def learn(params, state: Counts, lane, outcome):
        state.rewards[lane, outcome.shown] += 2.0 * outcome.reward


def test_a_policy_says_whether_it_can_be_corrected():
    assert [is_correctable(policy) for policy in COUNTING] == [True] * len(COUNTING)
    assert [is_correctable(policy) for policy in OTHERS] == [False] * len(OTHERS)
    assert not is_correctable(Doubled(2))


@pytest.mark.parametrize("policy", COUNTING, ids=lambda policy: policy.label)
def test_what_was_corrected_is_as_if_it_had_been_learned_so(policy):
    rng = np.random.default_rng(1)
    late, straight = Learner(policy, seed=3), Learner(policy, seed=3)
    decisions, same = (one.choose_many(["a", "b"] * 20) for one in (late, straight))
    rewards = rng.integers(2, size=40).astype(float)
    first = np.where(rng.random(40) < 0.5, rewards, 0.0)
    late.learn_many(decisions, first)
    wrong = np.flatnonzero(first != rewards)
    assert late.correct_many([decisions[i] for i in wrong], first[wrong], rewards[wrong]) == len(wrong) > 5
    straight.learn_many(same, rewards)
    for (name, one), (_, other) in zip(leaves(late.state), leaves(straight.state), strict=True):
        assert one.tobytes() == other.tobytes(), name


def test_what_cannot_be_corrected_is_refused():
    learner = Learner(tacit.policies.EXP3(2), seed=1)
    decision = learner.choose("a")
    with pytest.raises(InvalidValue, match="policy"):
        learner.correct_many([decision], [0.0], [1.0])
    learner = Learner(tacit.UCB1(2), seed=1)
    decisions = learner.choose_many(["a"])
    for before, after in (([0.0], [2.0]), ([0.0, 1.0], [1.0])):
        with pytest.raises(InvalidValue):
            learner.correct_many(decisions, before, after)
    assert learner.state.plays.sum() == 0


def sums(engine):
    """Return plays and rewards of the key k, all arms together."""
    learner = access.get_learner(engine.placements["home"])
    lane = learner.lane("k")
    return learner.state.plays[lane].sum(), learner.state.rewards[lane].sum()


@pytest.mark.parametrize("aggregation", ["first", "last", "sum", "max"])
async def test_a_late_reward_corrects_the_default_exactly_once(tmp_path, kind, aggregation):
    async with folding(tmp_path / "s.db", configured(rule=replace(RULE, aggregation=aggregation))) as engine:
        row = await engine.decide("home", "k")
        other = await engine.decide("home", "k")
        engine.clock.now += 31 * SECOND
        assert (await engine.decide("home", "k")).seq
        assert sums(engine) == (2, 0)
        assert await engine.feedback("home", row.id, 1.0, id="click") == "corrected"
        assert sums(engine) == (2, 1)
        assert await engine.feedback("home", row.id, 1.0, id="click") == "duplicate"
        assert await engine.feedback("home", row.id, 1.0) == "late"
        engine.clock.now += 100 * SECOND
        assert await engine.feedback("home", other.id, 1.0) == "late"
        assert sums(engine) == (3, 1)
        placement = engine.placements["home"]
        assert access.get_series(placement).rewards == 1.0
        assert access.get_outcomes(placement)["corrected"] == 1


@pytest.mark.parametrize("reward", [0.0, 1.0])
async def test_a_default_from_before_a_restart_is_corrected_as_one_from_after_it(tmp_path, reward):
    config, clock = with_policy(tacit.auto(arms=2), rule=replace(RULE, aggregation="sum")), Clock()
    async with served(tmp_path / "s.db", config, clock) as engine:
        row = await engine.decide("home", "k")
        clock.now += 31 * SECOND
        await engine.decide("home", "k")
    async with folding(tmp_path / "s.db", config, clock, crash=False) as engine:
        assert await engine.feedback("home", row.id, reward) == "corrected"


async def test_what_was_not_learned_is_not_corrected(tmp_path):
    async with served(tmp_path / "s.db", configured(rule=RULE)) as engine:
        row = await engine.decide("home", "k")
        again = await engine.decide("home", "k")
        engine.clock.now += 31 * SECOND
        await engine.decide("home", "k")
        await engine.ask("home", ModeOf("frozen"))
        assert await engine.feedback("home", row.id, 1.0) == "frozen"
        frozen = await engine.decide("home", "k")
        engine.clock.now += 31 * SECOND
        await engine.decide("home", "k")
        await engine.ask("home", ModeOf("online"))
        assert await engine.feedback("home", frozen.id, 1.0) == "late"
        assert sums(engine) == (2, 0)
        assert await engine.feedback("home", again.id, 1.0) == "corrected"
        assert sums(engine) == (2, 1)


async def test_the_second_policy_is_corrected_too(tmp_path):
    config = configured(rule=RULE, mode="shadow", shadow=tacit.UCB1(ARMS, alpha=1.0))
    async with served(tmp_path / "s.db", config) as engine:
        row = await engine.decide("home", "k")
        engine.clock.now += 31 * SECOND
        await engine.feedback("home", row.id, 1.0)
        state = access.get_secondary_learner(engine.placements["home"]).state
        assert (state.plays.sum(), state.rewards.sum()) == (1, 1)


async def test_an_exported_log_has_the_corrected_reward(tmp_path):
    async with served(tmp_path / "s.db", configured(rule=RULE)) as engine:
        row = await engine.decide("home", "k")
        engine.clock.now += 31 * SECOND
        await engine.feedback("home", row.id, 1.0)
        export(engine.config, engine.store, tmp_path / "log")
    rewards = [r for part in read_log(tmp_path / "log" / "clicks.parquet") for r in part["reward"]]
    assert [reward.as_py() for reward in rewards] == [1.0]


@pytest.mark.parametrize("policy", ["exp3", "thompson(discount=0.9)", "glr-kl-ucb"])
@pytest.mark.parametrize("field", ["policy", "shadow"])
def test_a_policy_that_cannot_be_corrected_is_accepted_too(policy, field):
    table = {"arms": 3, "policy": "ucb1", "late": "correct", field: policy}
    assert load_config(overrides={"placements": {"home": table}}).placements["home"].rule.late == "correct"


async def test_auto_stays_what_it_is_where_late_rewards_correct(tmp_path):
    path, late = tmp_path / "s.db", with_home(arms=list(ARMS), late="correct")
    async with served(path, with_home(arms=list(ARMS))) as engine:
        await engine.decide("home", "key")
        await engine.reload(late)
        assert access.get_config(engine.placements["home"]).rule.late == "correct"
        assert type(access.get_learner(engine.placements["home"]).policy) is type(tacit.auto(ARMS))


def successes_and_failures(engine):
    learner = access.get_learner(engine.placements["home"])
    lane = learner.lane("k")
    return learner.state.successes[lane].sum(), learner.state.failures[lane].sum()


async def test_a_policy_that_cannot_unlearn_learns_a_late_reward_as_one_more_success(tmp_path):
    config = with_policy(tacit.Thompson(ARMS, discount=0.5), rule=RULE)
    async with folding(tmp_path / "s.db", config) as engine:
        row = await engine.decide("home", "k")
        engine.clock.now += 31 * SECOND
        await engine.decide("home", "k")
        silent = successes_and_failures(engine)
        assert await engine.feedback("home", row.id, 1.0) == "corrected"
        learned = successes_and_failures(engine)
        assert await engine.feedback("home", row.id, 1.0) == "late"
        assert successes_and_failures(engine) == learned
        assert access.get_series(engine.placements["home"]).rewards == 1.0
    assert (silent, learned) == ((0, 1), (1, 0.5))


def test_corrections_are_read_from_toml(tmp_path):
    path = tmp_path / "tacit.toml"
    path.write_text('[placements.home]\narms = 2\nlate = "correct"\ncorrection_window = 60')
    rule = load_config(path).placements["home"].rule
    assert (rule.late, rule.correction) == ("correct", 60 * SECOND)


def test_a_placement_made_in_python_is_checked_too():
    with pytest.raises(ConfigError, match="mode: 'shadow' needs a second policy"):
        PlacementConfig(tacit.UCB1(ARMS), mode="shadow")
    with pytest.raises(InvalidValue, match="a context has 1 numbers, and UCB1 reads no context; leave"):
        PlacementConfig(tacit.UCB1(ARMS), signals=SignalConfig(("volume",)))


async def test_what_came_after_the_window_is_in_no_lift_which_says_so(tmp_path):
    table = {"late": "correct", "attribution_window": 30, "correction_window": 100, "policy": "thompson"}
    config = with_home(arms=ARMS, holdout={"share": 0.5}, **table)
    async with served(tmp_path / "s.db", config, Clock()) as engine:
        home = engine.placements["home"]
        rows = await engine.decide_many("home", [access.check_request(home, DecisionRequest("k"))] * 40)
        engine.clock.now += 31 * SECOND
        came = await engine.record_many("home", [FeedbackRequest(row.id, REWARD, 1.0) for row in rows[:7]])
        assert came == ["corrected"] * 7
        found = access.make_lift_report(home, engine.clock())
    assert sum(group.rewards for group in found.groups.values()) == 0
    left_out = "This leaves out rewards that came after the window: 7 so far; a longer attribution_window"
    assert left_out in found.verdict
