"""Shards without a cluster: partitions, what they share, who may write, and dealing a log out anew."""

import asyncio
import contextlib
import threading
from collections import Counter

import harness
import msgspec
import numpy as np
import placement_access as access
import psycopg
import pytest
import stores
from drawn import examples
from harness import PATIENCE, START, reached, recovered, served
from hypothesis import given
from hypothesis import strategies as st
from policies_of_ones_own import Pooled

import tacit
from tacit.classifiers import Rectangle
from tacit.core.arrays import leaves
from tacit.errors import ConfigError
from tacit.learning.merging import to_natural
from tacit.service.config.schema import Config, PlacementConfig, StoreConfig
from tacit.service.errors import Fenced, NotDurable, StoreError
from tacit.service.log.ids import (
    PARTITIONS,
    Shard,
    create_partition_id,
    find_shard,
    hash_partition,
    list_partitions,
    parse_partition,
)
from tacit.service.log.requests import DecisionRequest, FeedbackRequest
from tacit.service.log.rows import ChangeRow, DecisionRow, FeedbackRow
from tacit.service.maintenance.doctor import verify
from tacit.service.maintenance.resharding import reshard
from tacit.wire.control import ArmsOf, ModeOf
from tests.service.test_stores import tick

ARMS = ("holiday", "film", "recipe")


class Clock(harness.Clock):
    def __call__(self):
        self.now += 1000
        return self.now


def one_key(engine, key, name="home"):
    """Return what was learned of a key alone, bit for bit."""
    learner = learner_of(engine, name)
    lane = learner.lane(key)
    return {
        field: array[lane].tobytes()
        for field, array in leaves(learner.state)
        # A place in a diary that all keys share is none of the key's own.
        if not field.startswith(("classifier.", "diary.")) and field != "phases.entry"
    }


# Slots ---------------------------------------------------------------------------------------


@given(st.integers(0, PARTITIONS - 1), st.integers(1, 1024))
def test_every_partition_is_in_one_shard(partition, shards):
    assert partition in list_partitions(find_shard(partition, shards), shards)
    lengths = [len(list_partitions(number, shards)) for number in range(shards)]
    assert sum(lengths) == PARTITIONS
    assert max(lengths) - min(lengths) <= 1


@given(st.integers(0, PARTITIONS - 1), st.integers(0, 2**40), st.integers(0, 2**53))
def test_an_id_tells_its_partition(partition, place, time):
    assert parse_partition(create_partition_id(time, partition, place)) == partition


def test_ids_of_one_moment_and_slot_differ_and_sort_by_time():
    ids = [create_partition_id(START, 7, place) for place in range(4096)]
    assert len(set(ids)) == 4096
    assert max(ids) < create_partition_id(START + 1, 0, 0)


@pytest.mark.parametrize("id", ["", "mine", "018bcfe5-687b-774b-9e0c-5a1f3f9f2c11", "z" * 36])
def test_other_ids_tell_no_slot(id):
    assert parse_partition(id) is None


def test_keys_are_dealt_out_evenly():
    counts = np.bincount([find_shard(hash_partition("home", f"key {i}"), 8) for i in range(8000)])
    # By a normal approximation, each of 8 counts is within 5 deviations but once in 200,000 times.
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(8000 / 8 * 7 / 8)


# Sharing -------------------------------------------------------------------------------------


async def exchange(*engines):
    """Let each tell all others, twice: what is told again changes nothing."""
    for everything in (False, True):
        told = [await engine.exchange.export_learning("home", everything) for engine in engines]
        for engine in engines:
            for one in told:
                if one.shard != engine.shard.number and one.parts:
                    await engine.exchange.import_learning("home", one)


async def tell(source, target, everything=False):
    """Let one tell another what it has learned."""
    await target.exchange.import_learning("home", await source.exchange.export_learning("home", everything))


async def exchange_no_news(*engines):
    """Check that nothing is logged of what all know."""
    rows = [engine.health().events for engine in engines]
    await exchange(*engines)
    assert [engine.health().events for engine in engines] == rows


@contextlib.asynccontextmanager
async def two_shards(folder, policy, merges=True, **options):
    """Yield two shards; in the end each must be what its log says, in which there is what others told."""
    kind = "features" if policy.arms is None else "arms"
    config = Config({"home": PlacementConfig(policy, 7, kind=kind, **options)})
    async with contextlib.AsyncExitStack() as stack:
        places = [(folder / f"{number}.db", Shard(number, 2)) for number in range(2)]
        served_at = [served(place, config, Clock(), shard) for place, shard in places]
        yield config, [await stack.enter_async_context(each) for each in served_at]
    for place, _ in places if merges else ():
        with recovered(place, config) as again:
            kinds = {event.kind for event in again.store.events(0) if isinstance(event, ChangeRow)}
        assert "merge" in kinds


def learner_of(engine, name="home"):
    return access.get_learner(engine.placements[name])


async def test_counts_of_spread_keys_are_the_sum_of_what_every_shard_saw(tmp_path):
    async with two_shards(tmp_path, tacit.UCB1(ARMS), spread=True) as (_config, engines):
        plays = np.zeros(3)
        for turn in range(3):
            for number, engine in enumerate(engines):
                for i in range(5 + 3 * number + turn):
                    row = await engine.decide("home", "hot", id=f"{turn} {number} {i}")
                    await engine.feedback("home", row.id, 1.0)
                    plays[ARMS.index(row.arm)] += 1
            await exchange(*engines)
            for engine in engines:
                assert learner_of(engine).state.plays[0].tolist() == plays.tolist()
        await exchange_no_news(*engines)


async def test_arms_that_come_in_the_first_shard_come_in_all_and_sums_go_on(tmp_path):
    async def play(engines, turn, plays):
        for number, engine in enumerate(engines):
            for i in range(12):
                row = await engine.decide("home", "hot", id=f"{turn} {number} {i}")
                await engine.feedback("home", row.id, 1.0)
                plays[row.arm] += 1

    async with two_shards(tmp_path, tacit.UCB1(ARMS), spread=True) as (_config, engines):
        here, there = engines
        plays = Counter()
        await play(engines, 0, plays)
        await exchange(*engines)
        late = await there.exchange.export_learning("home", True)
        await here.ask("home", ArmsOf(["spring"], ["film"]))
        await play([here], 1, plays)
        # Who has not heard of an arm waits; who has knows what was told before it came.
        with pytest.raises(NotDurable, match="has not the arms yet"):
            await tell(here, there)
        await here.exchange.import_learning("home", late)
        for _ in range(2):
            await there.exchange.apply_arms(here.exchange.arms())
        # What the first shard had before is no news.
        await there.exchange.apply_arms({"home": '{"arms":["holiday"],"retired":[]}'})
        await play(engines, 2, plays)
        await exchange(*engines)
        await exchange(*engines)
        for engine in engines:
            offer = access.get_offer(engine.placements["home"])
            assert offer.arms == ["holiday", "recipe", "spring"]
            assert dict(zip(offer.names, learner_of(engine).state.plays[0].tolist(), strict=True)) == plays
            assert [e.kind for e in engine.store.events(0) if isinstance(e, ChangeRow)].count("arms") == 1


async def test_a_shard_that_is_not_the_first_follows_that_and_no_configuration(tmp_path):
    async with two_shards(tmp_path, tacit.UCB1(ARMS), merges=False) as (config, (here, there)):
        home = config.placements["home"]
        named = tacit.UCB1((*ARMS[:2], "spring"))
        later = Config({"home": msgspec.structs.replace(home, policy=named)})
        await here.reload(later)
        await there.reload(later)
        assert access.get_offer(there.placements["home"]).arms == list(ARMS)
        await there.reload(later, here.exchange.arms())
        assert access.get_offer(there.placements["home"]).arms == list(named.arms)
        assert there.exchange.arms() == here.exchange.arms()


async def test_posteriors_of_spread_keys_add_up_however_often_and_late_they_are_told(tmp_path):
    policy = tacit.policies.LaplaceEC(2, 2, relevance_intercept=True)
    rng = np.random.default_rng(5)

    async def learn(engine, count):
        for _ in range(count):
            relevance, examination = rng.random((2, 3, 2)).tolist()
            impression = DecisionRequest("hot", None, None, None, False, relevance, examination)
            (row,) = await access.decide(engine, impression)
            await engine.feedback("home", row.id, float(rng.random() < 0.4))

    async with two_shards(tmp_path, policy, spread=True) as (_config, (here, there)):
        await learn(here, 20)
        early = await here.exchange.export_learning("home")
        await learn(here, 15)
        await learn(there, 30)
        late = await here.exchange.export_learning("home")
        await there.exchange.import_learning("home", early)
        await there.exchange.import_learning("home", late)
        await there.exchange.import_learning("home", late)
        await tell(there, here, everything=True)
        for mine, its in zip(*[to_natural(learner_of(e).state) for e in (here, there)], strict=True):
            np.testing.assert_allclose(mine[0], its[0], rtol=1e-9, atol=1e-9)
        for _ in range(3):
            await exchange_no_news(here, there)


async def test_what_one_shard_knows_to_be_no_event_the_other_takes_for_none(tmp_path):
    policy = tacit.BWC(ARMS, classifier=Rectangle(1, margin=0.1), test_rounds=10)

    async def impressions(engine, key, contexts):
        for context in contexts:
            row = await engine.decide("home", key, context=[context])
            await engine.feedback("home", row.id, 1.0 if row.arm == "film" else 0.0)
        return learner_of(engine).epoch(key)

    async with two_shards(tmp_path, policy, merges=False) as (config, (here, there)):
        # Tests end with nothing changed: then 0.5 is labelled false, and is no event any more.
        assert await impressions(here, "a", [0.5] * 40) > 0
        await exchange(here, there)
        knows = [learner_of(e).state.classifier for e in (here, there)]
        assert knows[1].low.tolist() == knows[0].low.tolist() == [[0.5]]
        assert await impressions(there, "b", [0.5] * 40) == 0
        await exchange_no_news(here, there)
    with recovered(tmp_path / "1.db", config):
        pass


def pool_of(engine):
    """Return what all keys of a shard share, wherever wrappers have it."""
    state = learner_of(engine).state
    return {
        name.rpartition(".")[2]: array.tolist() for name, array in leaves(state) if ".shared." in f".{name}"
    }


EVENTS = tacit.classifiers.Rectangle(1, margin=0.1)


@pytest.mark.parametrize(
    "policy",
    [Pooled(ARMS), tacit.ExplorationFloor(tacit.BWC(policy=Pooled(ARMS), classifier=EVENTS))],
    ids=["alone", "beside a classifier"],
)
async def test_sums_of_all_keys_are_those_of_one_fold_of_the_same_events(policy, tmp_path):
    context = [0.9] if policy.context_dim else None
    events = []

    async def learn(engine, key):
        number = len(events)
        key = f"{engine.shard.number} {key}"
        row = await engine.decide("home", key, None, context, id=f"{number}")
        reward = number % 4 / 4
        events.append((row, reward))
        await engine.feedback("home", row.id, reward)

    async with two_shards(tmp_path, policy) as (_config, (here, there)):
        for turn in range(3):
            for i in range(6):
                await learn(here, i % 4)
            early = await here.exchange.export_learning("home")
            for i in range(5 + turn):
                await learn(there, i)
                await learn(here, i)
            late = await here.exchange.export_learning("home")
            # What was lost comes later, what comes twice counts once.
            for told in (early, late, late)[turn:]:
                await there.exchange.import_learning("home", told)
            await exchange(here, there)
        plays, rewards = np.zeros((2, 1, 3))
        for row, reward in events:
            plays[0, ARMS.index(row.arm)] += 1
            rewards[0, ARMS.index(row.arm)] += reward
        prior = ((rewards + 1) / (plays + 2)).tolist()
        whole = {"plays": plays.tolist(), "rewards": rewards.tolist(), "prior": prior}
        assert pool_of(here) == pool_of(there) == whole
        await exchange_no_news(here, there)
        # A new key begins with what both know.
        new = [await e.decide("home", "new", None, context, "new") for e in (here, there)]
        assert len({(row.arm, row.propensity) for row in new}) == 1


async def test_mixtures_add_up_what_they_know_of_arms_over_all_keys(tmp_path):
    async def learn(engine, clicked):
        for i in range(60):
            row = await engine.decide("home", f"{engine.shard.number} {i % 12}", ["film"])
            await engine.feedback("home", row.id, float(i % 10 < clicked))

    async with two_shards(tmp_path, tacit.DriftMixture(ARMS)) as (_config, (here, there)):
        await learn(here, 9)
        await learn(there, 5)
        await exchange(here, there)
        # An arm more changes nothing of what is known of the others.
        await here.ask("home", ArmsOf(["spring"]))
        await there.exchange.apply_arms(here.exchange.arms())
        await exchange(here, there)
        mine, its = (learner_of(e).state.shared.priors for e in (here, there))
        assert mine.tails.tolist() == its.tails.tolist()
        assert mine.rounds.tolist() == its.rounds.tolist() == [120]
        for priors in (mine, its):
            a, b = priors.beta[0, 1 + ARMS.index("film")]
            assert a / (a + b) == pytest.approx(0.7, abs=0.05)


async def test_sums_of_all_keys_are_told_again_once_they_have_changed_by_a_fiftieth(tmp_path):
    async def learn(engine, count):
        for _ in range(count):
            await engine.feedback("home", (await engine.decide("home", "key", ["film"])).id, 1.0)

    async with two_shards(tmp_path, Pooled(ARMS), merges=False) as (_, (here, there)):
        await learn(here, 100)
        assert (await here.exchange.export_learning("home")).parts
        await learn(here, 2)
        assert not (await here.exchange.export_learning("home")).parts
        await learn(here, 1)
        told = await here.exchange.export_learning("home")
        assert told.parts
        # What others told is not this shard's to tell.
        await there.exchange.import_learning("home", told)
        assert not (await there.exchange.export_learning("home")).parts
        assert not (await there.exchange.export_learning("home", everything=True)).parts
        # What is rare counts as well.
        await here.feedback("home", (await here.decide("home", "key", ["holiday"])).id, 0.0)
        assert (await here.exchange.export_learning("home")).parts


async def test_sums_that_do_not_fit_change_nothing(tmp_path, caplog):
    async with two_shards(tmp_path, Pooled(ARMS), merges=False) as (_, (here, there)):
        await here.feedback("home", (await here.decide("home", "key")).id, 1.0)
        told = await here.exchange.export_learning("home")
        told.parts["sums"]["shared.plays"] = told.parts["sums"]["shared.plays"][:8]
        before = pool_of(there)
        await there.exchange.import_learning("home", told)
        assert pool_of(there) == before
        assert "the sums of shard 0 do not fit" in caplog.text


async def test_a_frozen_placement_takes_nothing_in(tmp_path):
    async with two_shards(tmp_path, tacit.UCB1(ARMS), spread=True, merges=False) as (_, (here, there)):
        await there.ask("home", ModeOf("frozen"))
        await here.feedback("home", (await here.decide("home", "hot")).id, 1.0)
        await tell(here, there)
        assert learner_of(there).keys == []
        await there.ask("home", ModeOf("online"))
        await tell(here, there, everything=True)
        assert learner_of(there).keys == ["hot"]


# Who may write -------------------------------------------------------------------------------


def test_the_latest_owner_alone_can_write(schema):
    url = stores.cluster().url
    first = access.FencedStore(url, schema)
    first.append(tick(1))
    second = access.FencedStore(url, schema)
    assert second.epoch > first.epoch
    assert second.end().seq == 1
    for attempt in (lambda: first.append(tick(2)), lambda: first.probe(1), lambda: first.end()):
        with pytest.raises(StoreError):
            attempt()
    with pytest.raises(Fenced, match="was taken over in epoch"):
        first.append(tick(2))
    second.append(tick(2))
    assert [event.seq for event in second.events(0)] == [1, 2]
    first.close()
    second.close()


def test_an_owner_without_its_lock_is_refused_by_the_epoch_alone(schema):
    url = stores.cluster().url
    store = access.FencedStore(url, schema)
    store.append(tick(1))
    with psycopg.connect(url, autocommit=True) as other:
        other.execute(f"UPDATE {schema}.owner SET epoch = epoch + 1")
        with pytest.raises(Fenced):
            store.append(tick(2))
        assert other.execute(f"SELECT count(*) FROM {schema}.marks").fetchone() == (1,)
    store.close()


def test_the_next_owner_waits_for_a_commit_under_way(schema):
    url = stores.cluster().url
    store = access.FencedStore(url, schema)
    with psycopg.connect(url) as other:
        # As a writer that has looked at the epoch and not yet committed.
        other.execute(f"SELECT epoch FROM {schema}.owner FOR SHARE")
        taken = threading.Event()

        def take():
            with psycopg.connect(url, autocommit=True) as third:
                third.execute(f"UPDATE {schema}.owner SET epoch = epoch + 1")
            taken.set()

        thread = threading.Thread(target=take)
        thread.start()
        assert not taken.wait(0.3)
        other.commit()
        assert taken.wait(PATIENCE)
        thread.join()
    store.close()


async def test_an_engine_whose_log_was_taken_over_acknowledges_nothing(schema):
    url = stores.cluster().url
    config = Config({"home": PlacementConfig(tacit.UCB1(ARMS), 7)})
    async with served(access.FencedStore(url, schema), config, Clock(), Shard(0, 2)) as before:
        await before.decide("home", "a")
        async with served(access.FencedStore(url, schema), config, Clock(), Shard(0, 2)) as after:
            for _ in range(2):
                with pytest.raises(NotDurable):
                    await before.decide("home", "a")
            assert (await after.decide("home", "a")).seq == 2
            assert isinstance(before.writer.failure, StoreError)


# Dealing out anew ----------------------------------------------------------------------------


def of_four_policies(schema):
    placements = {
        "home": PlacementConfig(tacit.Thompson(ARMS), 7),
        "news": PlacementConfig(tacit.BWC(ARMS, classifier=Rectangle(1, margin=0.1), test_rounds=4), 8),
        "hot": PlacementConfig(tacit.UCB1(ARMS), 9, spread=True),
        "pool": PlacementConfig(Pooled(ARMS), 10),
    }
    return Config(placements, store=StoreConfig(url=stores.cluster().url, schema=schema))


async def traffic(engines, clock, rng, rounds, told_later):
    """Decide and learn, each key in the engine of its shard; halfway through arms change."""
    for i in range(rounds):
        for name in engines[0].placements if i == rounds // 2 else ():
            await engines[0].ask(name, ArmsOf([f"new {clock.now}"], ["recipe"]))
        for engine in engines[1:] if i == rounds // 2 else ():
            await engine.exchange.apply_arms(engines[0].exchange.arms())
        for name in ("home", "news", "hot", "pool"):
            key = f"key {rng.integers(6)}"
            own = f"own {name} {clock.now}" if i % 5 == 0 else None
            partition = hash_partition(name, own or f"{i}") if name == "hot" else hash_partition(name, key)
            engine = engines[find_shard(partition, len(engines))]
            context = [0.5 + 0.02 * float(rng.random())] if name == "news" else None
            row = await engine.decide(name, key, context=context, id=own)
            if i % 7 == 3:
                told_later.append((name, key, row.id, row.arm))
            else:
                await engine.feedback(name, row.id, float(rng.random() < 0.5))


def shard_stores(config):
    return [access.FencedStore(part.url, part.schema) for part in access.list_stores(config.store)]


def by_key(engines, name):
    return {
        key: one_key(engine, key, name)
        for engine in engines
        for key in access.get_learner(engine.placements[name]).keys
    }


async def let_windows_close(engines, clock):
    """Let nothing wait for its turn to be learned: a shard has turns of its own."""
    clock.now += 3600 * harness.SECOND
    for engine in engines:
        await reached(
            lambda engine=engine: not any(access.count_open(each) for each in engine.placements.values())
        )


def plays_of(engines):
    """Return the plays of all keys that the shards of a pool have together."""
    return sum(access.get_learner(engine.placements["pool"]).state.shared.plays[0] for engine in engines)


def all_rows(stores_):
    """Return what was decided and told, whatever the numbers that rows have."""
    ids, decisions, feedback = {}, [], []
    for number, store in enumerate(stores_):
        names = {stored.id: name for name, stored in store.placements().items()}
        for event in store.events(0):
            if isinstance(event, DecisionRow):
                ids[number, event.seq] = event.id
                decisions.append((names[event.placement], *event._replace(seq=0, placement=0, policy=0)))
            elif isinstance(event, FeedbackRow):
                told = (event.time, event.kind, event.reward)
                feedback.append((ids[number, event.decision], *told))
    return sorted(decisions, key=str), sorted(feedback)


def test_a_log_is_dealt_out_and_nothing_learned_of_a_key_changes(schema):
    config = of_four_policies(schema)
    clock, rng, later = Clock(), np.random.default_rng(3), []

    async def alone():
        store = access.open_store(config.store)
        async with served(store, config, clock=clock) as engine:
            await traffic([engine], clock, rng, 70, later)
            await let_windows_close([engine], clock)
            learned = {name: by_key([engine], name) for name in ("home", "news")}
            return learned, plays_of([engine]), all_rows([store])

    before, plays, rows = asyncio.run(alone())
    assert plays.sum() > 50

    async def in_shards(number, *, more):
        nonlocal plays
        opened = shard_stores(config)
        assert len(opened) == number
        assert all_rows(opened) == rows
        async with contextlib.AsyncExitStack() as stack:
            engines = [
                await stack.enter_async_context(served(store, config, clock, Shard(i, number)))
                for i, store in enumerate(opened)
            ]
            learned = {name: by_key(engines, name) for name in ("home", "news")}
            for i, store in enumerate(opened):
                assert verify(config, store) == [], i
            if not more:
                # Each shard has the sums of its own keys, until they tell each other.
                assert plays_of(engines).tolist() == plays.tolist()
            # What was decided before takes its feedback now, in the shard of its key.
            for name, key, id, _ in later if more else ():
                engine = engines[find_shard(hash_partition(name, id if name == "hot" else key), number)]
                (outcome,) = await engine.record_many(name, [FeedbackRequest(id, "reward", 1.0)])
                assert outcome in ("learned", "late", "late-epoch")
            if more:
                await traffic(engines, clock, rng, 15, [])
                await let_windows_close(engines, clock)
                learned = {name: by_key(engines, name) for name in ("home", "news")}
            plays = plays_of(engines)
            return learned, all_rows(opened)

    assert sum(reshard(config, 3)) > 350
    learned, _ = asyncio.run(in_shards(3, more=False))
    # A shard has turns of its own, so that a policy which restarts may learn a decision before or after that.
    assert learned["home"] == before["home"]
    assert set(learned["news"]) == set(before["news"])
    learned, rows = asyncio.run(in_shards(3, more=True))
    reshard(config, 2, drop=True)
    after, _ = asyncio.run(in_shards(2, more=False))
    assert after["home"] == learned["home"]
    assert set(after["news"]) == set(learned["news"])
    with psycopg.connect(config.store.url) as connection:
        found = connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname LIKE %s", (f"{schema}_g%",)
        ).fetchall()
    assert {name for (name,) in found} == {f"{schema}_g2s0", f"{schema}_g2s1"}


def test_a_server_alone_refuses_a_log_that_is_dealt_out_and_shards_one_that_is_not(schema):
    config = of_four_policies(schema)
    store = access.PostgresStore(config.store.url, schema)
    assert access.ensure_layout(store, None, default=2) == access.Layout(1, 2)
    with pytest.raises(ConfigError, match=r"reshard --shards 3"):
        access.ensure_layout(store, 3, default=2)
    store.close()
    with pytest.raises(StoreError, match="is dealt out to 2 shards"):
        access.open_store(config.store)
    assert [part.schema for part in access.list_stores(config.store)] == [
        access.name_schema(schema, access.Layout(1, 2), shard) for shard in range(2)
    ]


def test_a_log_that_one_server_has_written_must_be_dealt_out_first(schema):
    store = access.PostgresStore(of_four_policies(schema).store.url, schema)
    store.append(tick(1))
    with pytest.raises(ConfigError, match="holds the log of a single server"):
        access.ensure_layout(store, 2, default=2)
    store.close()


def test_a_log_that_is_served_is_not_dealt_out(schema, monkeypatch):
    monkeypatch.setattr("tacit.service.log.postgres.START_SECONDS", 0.1)
    config = of_four_policies(schema)
    store = access.PostgresStore(config.store.url, schema)
    with pytest.raises(StoreError, match="is in use"):
        reshard(config, 2)
    store.close()


@examples(20)
@given(st.integers(1, 40), st.integers(1, 40))
def test_ids_lead_to_the_shard_of_their_key_whatever_the_number_of_shards(before, after):
    partition = hash_partition("home", "independence day")
    shard = Shard(find_shard(partition, before), before)
    id = create_partition_id(START, partition, 1)
    assert parse_partition(id) in shard.partitions
    assert find_shard(parse_partition(id), after) == find_shard(
        hash_partition("home", "independence day"), after
    )
