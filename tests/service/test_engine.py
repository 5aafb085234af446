"""The service's engine: order, recovery, restarts, failing stores."""

import asyncio
import contextlib
import itertools
import json
import threading
from functools import partial

import apsw
import harness
import numpy as np
import placement_access as access
import pytest
from drawn import examples
from harness import START, Clock, folded, folding, learned, reached, served, with_policy
from hypothesis import given
from hypothesis import strategies as st
from placement_access import everything
from placement_access import series as series_module
from policies_of_ones_own import Forgetful, Pooled
from stores import WrappedStore, sql, store_at

import tacit
from tacit.errors import ConfigError, InvalidValue, UnknownName
from tacit.learning.learner import Learner
from tacit.service.config.file import load_config
from tacit.service.config.schema import PlacementConfig
from tacit.service.errors import NotDurable, RepeatedFeedback, StoreError, UnknownDecision
from tacit.service.log.ids import Draws, create_decision_id
from tacit.service.log.requests import DecisionRequest
from tacit.service.log.rows import REWARD, DecisionRow, FeedbackRow, Rows
from tacit.service.log.sqlite import VERSION, SqliteStore
from tests.service import test_living as living

ARM_NAMES = ("holiday", "film", "recipe")
# So long that windows of 30 s close in the course of a test.
ROUND_TIME = 7_000_000
WINDOW = 30_000_000


class FailingStore(WrappedStore):
    """A store whose commits fail on demand, before or after they took effect."""

    def __init__(self, store):
        super().__init__(store)
        self.fails, self.after, self.groups = False, False, []

    def append(self, rows):
        self.insert(rows)
        self.commit()

    def insert(self, rows):
        self.groups.append((list(rows.decisions), list(rows.feedback)))
        if self.fails and not self.after:
            raise StoreError("store: the disk is full")
        self._store.insert(rows)

    def commit(self):
        self._store.commit()
        if self.fails:
            raise StoreError("store: the disk went away after the commit")

    def probe(self, time):
        if self.fails:
            raise StoreError("store: the disk is full")
        self._store.probe(time)


configured = partial(with_policy, policy=tacit.Thompson(ARM_NAMES))


def with_two():
    """Return the configuration with a second placement."""
    config = configured()
    config.placements["other"] = PlacementConfig(tacit.UCB1(2), 7)
    return config


async def traffic(engine, rounds, seed, start=0):
    """Send decisions and feedback in groups; return what was decided."""
    shown = []
    dim = access.get_learner(engine.placements["home"]).policy.context_dim
    for i in range(start, start + rounds):
        rng = np.random.default_rng((seed, i))
        engine.clock.now = START + i * ROUND_TIME
        keys = [f"key {rng.integers(4)}" for _ in range(3)]
        arms = [None, list(rng.permutation(ARM_NAMES)[:2]), None]
        contexts = [rng.random(dim).tolist() if dim else None for _ in range(3)]
        impressions = zip(keys, arms, contexts, (f"{i} {j}" for j in range(3)), strict=True)
        rows = await asyncio.gather(*(engine.decide("home", *told) for told in impressions))
        rewards = rng.integers(2, size=3).astype(float)
        told = [engine.feedback("home", row.id, r) for row, r in zip(rows, rewards, strict=True)]
        answers = await asyncio.gather(*told[: 1 + i % 3])
        for rest in told[1 + i % 3 :]:
            rest.close()
        shown.extend((row.arm, row.propensity, row.epoch) for row in rows)
        shown.extend(answers)
    return shown


async def test_a_decision_is_in_the_log_before_it_is_answered(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        row = await engine.decide("home", "tomato", ["film", "recipe"])
        assert await engine.feedback("home", row.id, 1.0) == "learned"
        first, second = engine.store.events(0)
        assert first == row
        assert (row.seq, row.key, row.epoch) == (1, "tomato", 0)
        assert (row.offered, row.context) == ('["film","recipe"]', None)
        assert row.arm in ("film", "recipe")
        assert row.propensity == pytest.approx(0.5)
        assert (second.seq, second.decision) == (2, row.seq)
        assert (second.kind, second.reward) == (REWARD, 1.0)


async def test_what_was_learned_is_the_fold_of_the_log_with_a_plain_learner(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        await traffic(engine, 30, seed=1)
        window = tacit.FeedbackWindow(Learner(tacit.Thompson(ARM_NAMES), seed=0), seconds=WINDOW / 1e6)
        draws, decided = Draws(7), {}
        for event in engine.store.events(0):
            time = event.time / 1e6
            if isinstance(event, DecisionRow):
                offer = None if event.offered is None else json.loads(event.offered)
                draws.begin(window.learner.rng, event.id)
                decided[event.seq] = window.choose(event.key, arms=offer, time=time)
                assert decided[event.seq].arm == event.arm
                assert decided[event.seq].propensity == event.propensity
            else:
                window.feedback(decided[event.decision], event.reward, time=time)
        assert len(decided) == 90


EVENTFUL = tacit.BWC(
    classifier=tacit.classifiers.Rectangle(dim=2, margin=0.2), policy=tacit.Thompson(ARM_NAMES), test_rounds=6
)


@pytest.mark.parametrize(
    "policy",
    [
        tacit.Thompson(ARM_NAMES, discount=0.9),
        Forgetful(ARM_NAMES),
        EVENTFUL,
        tacit.ExplorationFloor(tacit.policies.baselines.GLRKLUCB(ARM_NAMES)),
        Pooled(ARM_NAMES),
    ],
    ids=lambda policy: policy.label,
)
@examples(8)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=2, max_size=4),
    snapshot_every=st.sampled_from([1, 7, 50_000]),
    crash=st.booleans(),
)
def test_going_on_after_stops_equals_never_having_stopped(
    tmp_path_factory, policy, lengths, snapshot_every, crash
):
    rounds, steps = itertools.count(), []
    for length in lengths:
        steps += [("play", next(rounds)) for _ in range(length)] + [("stop", 0)]
    config = with_policy(policy, snapshot_every=snapshot_every)
    living.check_stops(tmp_path_factory.mktemp("stops"), config, steps, crash, play_round, lambda _: None)


async def play_round(engine, i, what, number, waiting):
    """Play one round of traffic, if the engine is not to be stopped."""
    return None if what == "stop" else await traffic(engine, 1, seed=3, start=number)


async def test_a_group_is_chosen_then_matched_and_logged_in_this_order(tmp_path):
    async with served(tmp_path / "s.db", configured(), wrap=FailingStore) as engine:
        old = await engine.decide("home", "a")
        await asyncio.gather(
            engine.feedback("home", old.id, 1.0), engine.decide("home", "b"), engine.decide("home", "a")
        )
        decisions, feedback = engine.store.groups[-1]
        assert [row.key for row in decisions] == ["b", "a"]
        assert [row.seq for row in [*decisions, *feedback]] == [2, 3, 4]
        # The decision on "a" was chosen before the feedback was learned: all that it knows is that the
        # first one waits.
        assert decisions[1].propensity == pytest.approx(0.385714286)
        # A Beta(2, 1) beside a Beta(1, 1), that of an arm which was never shown.
        (new,) = {*ARM_NAMES} - {old.arm, decisions[1].arm}
        later = await engine.decide("home", "a", [old.arm, new])
        assert later.propensity == pytest.approx(2 / 3 if later.arm == old.arm else 1 / 3)


async def test_nobody_waits_for_a_store_that_hangs_in_turn(tmp_path, monkeypatch):
    access.patch_internal(monkeypatch, RETRY_SECONDS=0.0)
    goes_on = threading.Event()

    class Hanging(FailingStore):
        def insert(self, rows):
            self.groups.append(rows)

        def commit(self):
            goes_on.wait(harness.PATIENCE)
            raise StoreError("store: it took too long")

    async with served(tmp_path / "s.db", configured(), wrap=Hanging) as engine:
        first = asyncio.create_task(engine.decide("home", "a"))
        await harness.reached(lambda: engine.store.groups)
        second = asyncio.create_task(engine.decide("home", "b"))
        await harness.reached(lambda: engine.waiting)
        goes_on.set()
        answers = await asyncio.gather(first, second, return_exceptions=True)
        assert {type(answer) for answer in answers} == {NotDurable}
        assert len(engine.store.groups) == 1


async def test_what_a_buffer_answers_does_not_wait_for_what_only_a_failing_store_knows(tmp_path):
    begun, copied = threading.Event(), threading.Event()

    def copy(*_):
        begun.set()
        copied.wait(harness.PATIENCE)

    class Blind(FailingStore):
        def find(self, wanted):
            raise StoreError("store: its table is locked")

    config = with_two()
    config.placements["other"] = PlacementConfig(tacit.UCB1(2), 7, durability="buffered")
    async with served(tmp_path / "s.db", config, wrap=Blind) as engine:
        # Nothing is answered while placements are copied, so that both are of one group.
        frozen = partial(engine.writer.read_frozen, copy)
        copying = asyncio.create_task(engine.writer.run_between_groups(frozen))
        await harness.reached(begun.is_set)
        named = access.check_request(engine.placements["home"], DecisionRequest("a", id="client-1"))
        asked = asyncio.create_task(engine.decide_many("home", [named]))
        buffered = asyncio.create_task(engine.decide("other", "b"))
        await harness.reached(lambda: engine.waiting == 2)
        copied.set()
        answers = await asyncio.gather(asked, buffered, return_exceptions=True)
        assert [type(answer) for answer in answers] == [NotDurable, DecisionRow]
        await copying
    with contextlib.closing(SqliteStore(tmp_path / "s.db")) as store:
        assert [row.id for row in store.events(0) if isinstance(row, DecisionRow)] == [answers[1].id]


async def test_requests_that_arrive_during_a_commit_share_the_next_one(tmp_path):
    async with served(tmp_path / "s.db", configured(), wrap=FailingStore) as engine:
        first = asyncio.create_task(engine.decide("home", "first"))
        while not engine.store.groups:
            await asyncio.sleep(0)
        await asyncio.gather(first, *(engine.decide("home", f"{i}") for i in range(50)))
        assert [len(decisions) for decisions, _ in engine.store.groups] == [1, 50]


async def test_feedback_that_cannot_be_matched_is_told_apart(tmp_path):
    async with served(tmp_path / "s.db", with_two()) as engine:
        row = await engine.decide("home", "a")
        with pytest.raises(UnknownDecision, match="no-such-id"):
            await engine.feedback("home", "no-such-id", 1.0)
        with pytest.raises(UnknownDecision, match="'other' made no decision"):
            await engine.feedback("other", row.id, 1.0)
        for reward in (-0.1, 1.1, float("nan")):
            with pytest.raises(InvalidValue, match="reward"):
                await engine.feedback("home", row.id, reward)
        told = (engine.feedback("home", row.id, 1.0), engine.feedback("home", row.id, 0.0))
        assert await asyncio.gather(*told) == ["learned", "repeated"]
        assert await engine.feedback("home", row.id, 1.0) == "repeated"
        assert access.count_feedback(engine.placements["home"]) == 3
        for _ in range(97):
            await engine.feedback("home", row.id, 1.0)
        with pytest.raises(RepeatedFeedback, match="100 times"):
            await engine.feedback("home", row.id, 1.0)
    async with served(tmp_path / "s.db", with_two()) as engine:
        with pytest.raises(RepeatedFeedback):
            await engine.feedback("home", row.id, 1.0)


async def test_feedback_of_an_earlier_epoch_is_recorded_and_not_learned(tmp_path):
    async with served(tmp_path / "s.db", with_policy(Forgetful(2, patience=2))) as engine:
        rows = [await engine.decide("home", "a") for _ in range(4)]
        # All at once: the second one restarts the key, so the rest comes too late.
        told = [engine.feedback("home", row.id, 1.0) for row in rows]
        assert await asyncio.gather(*told) == ["learned", "learned", "late-epoch", "late-epoch"]
        assert (await engine.decide("home", "a")).epoch == 1
        (shift,) = access.get_series(engine.placements["home"]).shifts
        assert (shift.key, shift.epoch) == ("a", 1)


async def test_one_wrong_request_leaves_its_group_alone(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        right, unknown_arm, twice, long_key, nowhere = await asyncio.gather(
            engine.decide("home", "a"),
            engine.decide("home", "a", ["film", "opera"]),
            engine.decide("home", "a", ["film", "film"]),
            engine.decide("home", "ä" * 257),
            engine.decide("attic", "a"),
            return_exceptions=True,
        )
        assert right.arm in ARM_NAMES
        assert isinstance(unknown_arm, UnknownName)
        assert "opera" in str(unknown_arm)
        assert isinstance(twice, InvalidValue)
        assert isinstance(long_key, InvalidValue)
        assert isinstance(nowhere, UnknownName)
        assert engine.store.end().seq == 1


@pytest.mark.parametrize("after", [False, True])
async def test_a_failed_commit_acknowledges_nothing_and_is_undone(tmp_path, after):
    # Whatever happened, the state is what the log says.
    async with folding(tmp_path / "s.db", configured(), crash=False, wrap=FailingStore) as engine:
        row = await engine.decide("home", "a")
        before = learned(engine)
        engine.store.fails, engine.store.after = True, after
        answers = await asyncio.gather(
            engine.decide("home", "b"),
            engine.feedback("home", row.id, 1.0),
            engine.feedback("home", row.id, 1.0),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [NotDurable] * 3
        assert not engine.health().ready
        engine.store.fails = False
        await reached(lambda: engine.health().ready)
        logged = 4 if after else 1
        assert engine.store.end().seq == logged
        assert (learned(engine) == before) is not after
        assert access.get_learner(engine.placements["home"]).keys == (["a", "b"] if after else ["a"])
        await engine.decide("home", "c")


async def test_while_the_store_fails_it_is_not_rebuilt_for_every_request(tmp_path):
    async with served(tmp_path / "s.db", configured(), wrap=FailingStore) as engine:
        engine.store.fails = True
        for _ in range(50):
            with pytest.raises(NotDurable):
                await engine.decide("home", "a")
        assert len(engine.store.groups) == 1
        engine.store.fails = False


async def test_a_stopped_engine_takes_nothing_and_has_answered_everything(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        waiting = [asyncio.create_task(engine.decide("home", str(i))) for i in range(20)]
        await asyncio.sleep(0)
    assert len({(await task).id for task in waiting}) == 20
    with pytest.raises(NotDurable, match="stopping"):
        await engine.decide("home", "late")


async def test_a_damaged_snapshot_costs_time_only(tmp_path, caplog):
    async with served(tmp_path / "s.db", configured(snapshot_every=10)) as engine:
        await traffic(engine, 10, seed=2)
    sql(tmp_path / "s.db", "sqlite", "UPDATE pieces SET content = x'504b030400' WHERE field = 'learner'")
    assert everything(folded(tmp_path / "s.db", configured(), snapshot=True)) == learned(engine)
    assert "replaying the whole log" in caplog.text


async def test_a_placement_keeps_its_policy_its_arms_and_its_seed(tmp_path):
    path = tmp_path / "s.db"
    async with served(path, configured()) as engine:
        await engine.decide("home", "a")
    for config, named in (
        (with_policy(tacit.UCB1(ARM_NAMES)), "placements.home.policy"),
        (with_policy(tacit.Thompson(4)), "placements.home.arms"),
        (configured(seed=8), "placements.home.seed"),
    ):
        with contextlib.closing(SqliteStore(path)) as store, pytest.raises(ConfigError, match=named):
            access.Engine(config, store)
    assert access.count_decisions(folded(path, configured(seed=None))) == 1


@pytest.mark.parametrize("around", [lambda policy: policy, tacit.ExplorationFloor])
async def test_a_placement_keeps_the_defaults_with_which_it_began(tmp_path, around):
    """Version 0.1 explored more by default, and its stores say how much."""
    path = tmp_path / "s.db"
    began, now, other = (
        around(tacit.policies.baselines.GLRKLUCB(ARM_NAMES, **told))
        for told in ({"alpha": 0.02}, {}, {"alpha": 0.03})
    )
    for policy in (began, now):
        async with folding(path, with_policy(policy), crash=False) as engine:
            for i in range(300):
                await engine.feedback("home", (await engine.decide("home", "a")).id, float(i % 3 == 0))
            assert access.get_learner(engine.placements["home"]).policy == began != now
    with pytest.raises(ConfigError, match=r"placements\.home\.policy"):
        folded(path, with_policy(other))


# The store -----------------------------------------------------------------------------------


def test_a_store_belongs_to_one_process(tmp_path, kind, monkeypatch):
    monkeypatch.setattr("tacit.service.log.postgres.START_SECONDS", 0.1)
    with (
        contextlib.closing(store_at(tmp_path / "s.db")),
        pytest.raises(StoreError, match="in use by another process"),
    ):
        store_at(tmp_path / "s.db")
    store_at(tmp_path / "s.db").close()


def test_a_foreign_file_is_refused_and_left_as_it_was(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("not a database at all, but long enough to look like one" * 20)
    with pytest.raises(StoreError, match="no SQLite file"):
        SqliteStore(text)
    connection = apsw.Connection(str(tmp_path / "other.db"))
    connection.execute("CREATE TABLE songs (title)")
    connection.close()
    content = (tmp_path / "other.db").read_bytes()
    with pytest.raises(StoreError, match="no tacit store"):
        SqliteStore(tmp_path / "other.db")
    assert (tmp_path / "other.db").read_bytes() == content
    with pytest.raises(StoreError, match=r"notes\.txt"):
        SqliteStore(text / "s.db")


def test_a_newer_store_is_refused(tmp_path):
    path = tmp_path / "s.db"
    SqliteStore(path).close()
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE store SET version = ?", (VERSION + 1,))
    connection.close()
    with pytest.raises(StoreError, match="update tacit"):
        SqliteStore(path)


async def test_the_log_refuses_what_it_has_even_from_a_faulty_engine(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        row = await engine.decide("home", "a")
        await engine.feedback("home", row.id, 1.0, id="a click")
        (told,) = (e for e in engine.store.events(0) if isinstance(e, FeedbackRow))
        with pytest.raises(StoreError, match="UNIQUE"):
            engine.store.append(Rows([], [told._replace(seq=99)], []))
        with pytest.raises(StoreError, match="UNIQUE"):
            engine.store.append(Rows([row._replace(seq=99)], [], []))


# Series and ids ------------------------------------------------------------------------------


def test_series_keep_every_sum_when_buckets_merge():
    series = access.Series(arms=2)
    for second, chance in enumerate([0.25, 0.75] * 500):
        series.count_decisions(second * 1_000_000, [second % 2], [chance], [2])
        series.count_rewards([second * 1_000_000], [chance], [2], [float(second % 2)], [0.0], [None])
    assert series.width == 8_000_000
    assert series.impressions == 1000
    # Weights 2 and 2/3; half of the impressions had the reward 1.
    assert series.rewards == 500
    estimate = access.estimate_uniform_reward(series.table.sum(axis=0))
    assert estimate.value == pytest.approx((2 / 3) / (2 + 2 / 3))
    ends, sums = series.resample(50)
    assert len(ends) <= 50
    assert sums[:, series_module.ARMS :].sum() == 1000
    again = access.Series.from_bytes(series.to_bytes())
    assert again.to_bytes() == series.to_bytes()
    assert again.table.shape == (series_module.BUCKETS, series_module.ARMS + 2)


def test_uniform_exploration_is_estimated_without_bias():
    rng = np.random.default_rng(5)
    series = access.Series(arms=2)
    clicks = np.array([0.1, 0.6])
    for i in range(20_000):
        slot = int(rng.random() < 0.8)
        propensity = (0.2, 0.8)[slot]
        series.count_decisions(i, [slot], [propensity], [2])
        if rng.random() < clicks[slot]:
            series.count_rewards([i], [propensity], [2], [1.0], [0.0], [None])
    estimate = access.estimate_uniform_reward(series.table.sum(axis=0))
    assert abs(estimate.value - 0.35) < 2 * estimate.margin
    assert estimate.margin < 0.01


def test_uniform_exploration_is_not_estimated_from_nothing():
    series = access.Series(arms=2)
    for i in range(100):
        series.count_decisions(i, [0], [None], [2])
    assert access.estimate_uniform_reward(series.table.sum(axis=0)) is None


def test_ids_are_unique_and_sort_by_time():
    ids = [create_decision_id(1_700_000_000_000_000 + i) for i in range(0, 10_000, 2)]
    assert ids == sorted(ids)
    assert len({create_decision_id(0) for _ in range(1000)}) == 1000
    assert all(id[14] == "7" and id[19] in "89ab" for id in ids)


# Configuration -------------------------------------------------------------------------------


def test_a_configuration_is_read_from_toml(tmp_path):
    path = tmp_path / "tacit.toml"
    path.write_text("""
        [server]
        port = 9000
        [store]
        path = "clicks.db"
        [placements.home]
        arms = ["holiday", "film"]
        policy = { name = "thompson", discount = 0.99 }
        seed = 7
        [placements.search]
        arms = 3
        policy = "exploration-floor(ucb1, epsilon=0.1)"
    """)
    config = load_config(path, {"server.port": 9001, "placements.search.seed": 3, "store": None})
    assert config.server.port == 9001
    assert config.store.path == str(tmp_path / "clicks.db")
    assert config.placements["home"].policy == tacit.Thompson(("holiday", "film"), discount=0.99)
    assert config.placements["home"].seed == 7
    assert config.placements["search"].seed == 3
    assert config.placements["search"].policy.arm_count == 3


# Many placements -----------------------------------------------------------------------------


def many_placements(count):
    placements = {
        f"p{i}": {"arms": 2, "seed": i, "policy": "ucb1", "attribution_window": 10 * (1 + i % 3)}
        for i in range(count)
    }
    return load_config(overrides={"placements": placements})


async def test_a_decision_touches_its_placement_and_those_with_something_due(tmp_path, monkeypatch):
    clock = Clock()
    async with served(tmp_path / "s.db", many_placements(30), clock) as engine:
        for name in ("p0", "p1", "p2"):
            await engine.decide(name, "key")
        touched = access.note_advances(monkeypatch)
        await engine.decide("p9", "key")
        assert set(touched) == {"p9"}
        touched.clear()
        # The windows of p0 end after 10 seconds, those of p1 after 20.
        clock.now += 15_000_000
        await engine.decide("p9", "key")
        assert set(touched) == {"p0", "p9"}
