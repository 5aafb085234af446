"""What all keys share: one row of the state, through all that a learner goes through."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import harness
import numpy as np
import pyarrow as pa
import pytest
from drawn import examples
from harness import START, Clock, learned, quiet, with_policy
from hypothesis import given
from hypothesis import strategies as st
from placement_access import get_learner
from policies_of_ones_own import Pooled
from stores import WrappedStore, store_at

import tacit
from tacit.core.arrays import lane_rows, lanes_view, leaves
from tacit.core.dispatch import list_parts
from tacit.evaluate import IPS, off_policy
from tacit.policies.base import registry
from tacit.service.errors import StoreError
from tacit.service.log.rows import DecisionRow
from tacit.simulation import POLICY_STREAM, Run

ARMS = ("film", "holiday", "recipe")
HOUR = 3_600_000_000


def pool_of(learner):
    return {name: array.tolist() for name, array in learner.state.shared._asdict().items()}


# The rows of lanes ---------------------------------------------------------------------------


def test_init_says_what_lanes_share():
    assert lane_rows(Pooled(2).init) == [1, 1, 1, 0, 0, 0]
    assert lane_rows(tacit.policies.OracleRestart(Pooled(2)).init) == [1, 1, 1, 0, 0, 0, 1]
    # A list has a lane for each position inside each key.
    assert lane_rows(tacit.policies.baselines.RankedBandit(tacit.UCB1(2), positions=3).init)[:3] == [3, 3, 3]


@pytest.mark.parametrize("kind", list_parts(registry, "policies"))
def test_arrays_of_every_policy_have_rows_for_lanes_or_one_for_all(kind):
    assert len(lane_rows(kind.example().init)) > 0 or not list(leaves(kind.example().init(1)))


class Odd(NamedTuple):
    sums: np.ndarray


@pytest.mark.parametrize("rows", [lambda n: 2, lambda n: max(n, 1), lambda n: n + 1])
def test_an_array_of_other_rows_is_named(rows):
    with pytest.raises(TypeError, match=r"^sums has \d, \d and \d rows for 0, 1 and 2 lanes: give"):
        lane_rows(lambda lanes: Odd(np.zeros(rows(lanes))))


def test_a_lane_is_seen_with_what_it_shares():
    policy = tacit.policies.baselines.RankedBandit(tacit.policies.OracleRestart(Pooled(2)), positions=3)
    state = policy.init(4)
    view = lanes_view(state, lane_rows(policy.init), 2, 3)
    view.policy.policy.plays[1, 0] = 5.0
    view.policy.policy.shared.plays[0, 1] = 7.0
    assert state.policy.policy.plays[2 * 3 + 1].tolist() == [5.0, 0.0]
    assert state.policy.policy.shared.plays.tolist() == [[0.0, 7.0]]
    assert len(view.policy.policy.plays) == 3


# The learner ---------------------------------------------------------------------------------


def test_a_new_key_begins_with_what_the_others_learned():
    learner = tacit.Learner(Pooled(ARMS, epsilon=0.3), seed=1)
    for arm, reward in zip(ARMS, (0.0, 1.0, 0.0), strict=True):
        learner.learn(learner.choose("tomato", arms=[arm]), reward)
    third = pytest.approx(1 / 3)
    assert pool_of(learner) == {
        "plays": [[1.0, 1.0, 1.0]],
        "rewards": [[0.0, 1.0, 0.0]],
        "prior": [[third, pytest.approx(2 / 3), third]],
    }
    np.testing.assert_allclose(learner.probabilities("onion"), [0.1, 0.8, 0.1])
    assert learner.state.plays[learner.lane("onion")].sum() == 0


def test_a_lane_that_starts_over_forgets_for_itself_alone():
    learner = tacit.Learner(tacit.policies.OracleRestart(Pooled(ARMS)), seed=1)
    for _ in range(3):
        learner.learn(learner.choose("tomato", [0.0]), 1.0)
    before = learner.state.policy.shared.plays.copy()
    learner.choose("tomato", [1.0])
    assert learner.epoch("tomato") == 1
    assert learner.state.policy.plays[0].sum() == 0
    assert learner.state.policy.shared.plays.tolist() == before.tolist()


class Reference:
    """The same in plain Python, key by key."""

    def __init__(self, arms, weight):
        self.arms, self.weight = list(arms), weight
        self.keys, self.pool = {}, {}

    def prior(self, arm):
        plays, rewards = self.pool.get(arm, (0.0, 0.0))
        return (rewards + 1.0) / (plays + 2.0)

    def leader(self, key, arms):
        def mean(arm):
            plays, rewards = self.keys.get(key, {}).get(arm, (0.0, 0.0))
            return (rewards + self.weight * self.prior(arm)) / (plays + self.weight)

        return max(arms, key=mean)

    def learn(self, key, arm, reward):
        for sums in (self.keys.setdefault(key, {}), self.pool):
            plays, rewards = sums.get(arm, (0.0, 0.0))
            sums[arm] = plays + 1.0, rewards + reward


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("learn"), st.integers(0, 140), st.sampled_from([0.0, 0.25, 1.0])),
        st.tuples(st.just("many"), st.integers(60, 140), st.sampled_from([0.0, 1.0])),
        st.tuples(st.just("arm"), st.integers(0, 3), st.just(0.0)),
        st.tuples(st.just("file"), st.just(0), st.just(0.0)),
    ),
    max_size=12,
)


@examples(40)
@given(steps=STEPS, seed=st.integers(0, 2**32))
def test_lanes_arms_and_snapshots_come_as_they_like(tmp_path, steps, seed):
    learner = tacit.Learner(Pooled(ARMS, epsilon=0.1), seed=seed)
    reference = Reference(ARMS, 4.0)
    for what, number, reward in steps:
        if what == "arm" and f"arm {number}" not in learner.arms:
            reference.arms.append(learner.add_arm(f"arm {number}"))
        elif what == "file":
            learner.save(tmp_path / "learner.tacit")
            learner = tacit.Learner.load(tmp_path / "learner.tacit")
        elif what in ("learn", "many"):
            keys = [f"key {i}" for i in range(number)] if what == "many" else [f"key {number}"]
            decisions = learner.choose_many(keys)
            few = 0.1 / len(reference.arms)
            for decision in decisions:
                leads = decision.arm == reference.leader(decision.key, reference.arms)
                assert decision.propensity == pytest.approx(few + 0.9 * leads)
            learner.learn_many(decisions, [reward] * len(keys))
            for decision in decisions:
                reference.learn(decision.key, decision.arm, reward)
    for slot, arm in enumerate(reference.arms):
        plays, rewards = reference.pool.get(arm, (0.0, 0.0))
        shared = learner.state.shared
        assert (shared.plays[0, slot], shared.rewards[0, slot]) == (plays, rewards)
        assert shared.prior[0, slot] == pytest.approx(reference.prior(arm))
    assert [len(array) for array in learner.state.shared] == [1, 1, 1]


def test_what_was_learned_wrongly_is_taken_out_of_what_is_shared():
    learner, right = (tacit.Learner(Pooled(ARMS), seed=1) for _ in range(2))
    decisions = learner.choose_many(["tomato", "onion", "tomato"])
    learner.learn_many(decisions, [0.0, 0.0, 1.0])
    learner.correct_many(decisions[:1], [0.0], [1.0])
    right.learn_many(right.choose_many(["tomato", "onion", "tomato"]), [1.0, 0.0, 1.0])
    assert pool_of(learner) == pool_of(right)


# The other drivers ---------------------------------------------------------------------------


def test_a_simulation_of_many_keys_is_the_learner_bit_for_bit():
    policy, environment = Pooled(3), tacit.ShiftingArms(arms=3, keys=8, events=2)
    run, replica = (Run(p, environment, 500, 7, 0, np.array([500])) for p in (policy, tacit.UniformRandom(3)))
    run.advance(500)
    seed = np.random.SeedSequence(7, spawn_key=(0, POLICY_STREAM))
    learner = tacit.Learner(policy, seed, propensities=False)
    world = environment.params, replica.world
    for round in range(500):
        lane = environment.arrive(*world, round, replica.env_rng)
        decision = learner.choose(str(lane))
        learner.learn(decision, environment.respond(*world, lane, decision.slot))
    lanes = [int(key) for key in learner.keys]
    assert len(lanes) > 3
    for (name, mine), (_, its) in zip(leaves(run.state), leaves(learner.lanes.view_all()), strict=True):
        own = mine if name.startswith("shared.") else mine[lanes]
        assert own.tobytes() == its.tobytes(), name


def test_a_target_that_learns_shares_as_a_learner_does():
    rng = np.random.default_rng(4)
    rows = 60
    log = pa.table(
        {
            "timestamp": ["2017-07-04T12:00:00Z"] * rows,
            "decision_id": [str(row) for row in range(rows)],
            "placement": ["home"] * rows,
            "arms": [list(ARMS)] * rows,
            "arm": rng.choice(ARMS, rows).tolist(),
            "key": [f"key {i}" for i in rng.integers(12, size=rows)],
            "reward": rng.integers(2, size=rows).astype(float),
            "propensity": np.full(rows, 1 / 3),
        }
    )
    learner, earned = tacit.Learner(Pooled(ARMS), seed=1), []
    for row in log.to_pylist():
        slot = ARMS.index(row["arm"])
        earned.append(learner.probabilities(row["key"])[slot] * 3 * row["reward"])
        learner.learn(learner.choose(row["key"], arms=[row["arm"]]), row["reward"])
    result = off_policy(Pooled(ARMS), log, [IPS()])
    assert result.estimates[0].value == pytest.approx(np.mean(earned), rel=1e-12)


# The service ---------------------------------------------------------------------------------

POLICIES = [Pooled(ARMS), tacit.ExplorationFloor(tacit.policies.OracleRestart(Pooled(ARMS), signal=0))]


async def traffic(engine, rounds, start=0):
    """Send decisions and feedback for keys that come new all the time; return what was decided."""
    shown, dim = [], get_learner(engine.placements["home"]).policy.context_dim
    for i in range(start, start + rounds):
        rng = np.random.default_rng(i)
        # Windows of 30 s close in the course of it.
        engine.clock.now = START + i * 7_000_000
        asked = [(f"{i} {j}", f"key {rng.integers(2 + i)}", rng.integers(4) == 0) for j in range(4)]
        rows = await asyncio.gather(
            *(engine.decide("home", key, None, [float(flag)] * dim or None, id) for id, key, flag in asked)
        )
        told = [engine.feedback("home", row.id, float(rng.integers(2))) for row in rows[: i % 4]]
        shown += [(row.arm, row.propensity, row.epoch) for row in rows]
        shown += await asyncio.gather(*told)
    return shown


class Dying(WrappedStore):
    """A store that keeps nothing of what an engine says when it ends, as if it were killed."""

    dead = False

    def save_in_steps(self, *given):
        if self.dead:
            raise StoreError("store: it is gone")
        return self._store.snapshots.save_in_steps(*given)


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("policy", POLICIES, ids=["plain", "wrapped"])
def test_the_service_goes_on_from_wherever_it_died(tmp_path, policy):
    """After some rows a snapshot was written, after others not; each is gone on from.

    What changes in the configuration is a row of the log, so nothing does.
    """
    config = with_policy(policy, snapshot_every=20)

    async def straight():
        async with harness.served(tmp_path / "a.db", config) as engine:
            return await traffic(engine, 12), learned(engine)

    async def piecewise():
        shown, start, clock = [], 0, Clock()
        for length in (3, 1, 6, 2):
            store = Dying(store_at(tmp_path / "b.db"))
            async with harness.served(store, config, clock) as engine:
                shown += await traffic(engine, length, start)
                await quiet(engine)
                store.dead = True
            start += length
        with harness.recovered(tmp_path / "b.db", config, clock) as again:
            return shown, learned(again)

    assert asyncio.run(piecewise()) == asyncio.run(straight())


@pytest.mark.usefixtures("kind")
def test_rows_that_are_dropped_leave_what_they_taught_all_keys(tmp_path):
    async def session(name, retention):
        config = with_policy(Pooled(ARMS), retention=retention)
        async with harness.served(tmp_path / name, config) as engine:
            for i in range(24):
                engine.clock.now = START + i * 4 * HOUR
                row = await engine.decide("home", f"key {i}", id=f"{i}")
                await engine.feedback("home", row.id, float(i % 3 == 0))
            await quiet(engine)
            state = learned(engine)
        with harness.recovered(tmp_path / name, config) as again:
            assert learned(again) == state
            return state, sum(isinstance(event, DecisionRow) for event in again.store.events(0))

    (kept, some), (whole, every) = (asyncio.run(session(f"{days}.db", days)) for days in (1.0, None))
    assert kept == whole
    assert some < 12 < every == 24
