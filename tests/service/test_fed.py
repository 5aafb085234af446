"""How far feeds have come is in the log, behind the feedback of what stands before it."""

import contextlib
import shutil

import harness
import msgspec
import placement_access as access
import pytest
from harness import START, Clock, everything, is_the_fold, served, with_home
from stores import store_at

from tacit.client import Client, Denied
from tacit.errors import InvalidValue
from tacit.service.app.server import run_in_thread
from tacit.service.config.keys import new_key
from tacit.service.maintenance.doctor import verify
from tacit.wire.site import FedOf
from tests.feed.test_feed import MAP, decided, events_of, served_home
from tests.feed.test_feed_kafka import cluster, fed, sent  # noqa: F401

DAY = 24 * 3_600_000_000


def goes_on(placement):
    return everything(placement), access.get_feed_offsets(placement).offsets


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("every", [1, 50_000])
async def test_offsets_are_a_fold_of_the_log(tmp_path, every):
    path, config = tmp_path / "s.db", with_home(tmp_path / "s.db", arms=2, snapshot_every=every)
    async with served(path, config) as engine:
        for offset in (5, 9, 9, 12):
            row = await engine.decide("home", "k")
            await engine.feedback("home", row.id, 1.0)
            await engine.ask("home", FedOf("clicks", {"0": offset}))
            await engine.ask("home", FedOf("views", {"3": 2 * offset}))
            await harness.quiet(engine)
        await engine.ask("home", FedOf("clicks", {"1": 1}))
        live = goes_on(engine.placements["home"])
        end = access.get_feed_offsets(engine.placements["home"]).offsets
    assert end == {"clicks": {"0": 12, "1": 1}, "views": {"3": 24}}
    is_the_fold(config, path, live, goes_on)
    with contextlib.closing(store_at(path)) as store:
        # What was so before is not said again.
        assert [row.value for row in store.events(0) if getattr(row, "kind", "") == "fed"] == [
            '{"feed":"clicks","offsets":{"0":5}}',
            '{"feed":"views","offsets":{"3":10}}',
            '{"feed":"clicks","offsets":{"0":9}}',
            '{"feed":"views","offsets":{"3":18}}',
            '{"feed":"clicks","offsets":{"0":12}}',
            '{"feed":"views","offsets":{"3":24}}',
            '{"feed":"clicks","offsets":{"1":1}}',
        ]
        assert store.changes(1) == []


@pytest.mark.usefixtures("kind")
async def test_offsets_outlive_the_rows_that_said_them(tmp_path, monkeypatch):
    monkeypatch.setattr(access.upkeep, "ROWS", 4)
    path = tmp_path / "s.db"
    config = with_home(path, arms=2, values={"store.retention": 1.0})
    async with served(path, config) as engine:
        await engine.ask("home", FedOf("clicks", {"0": 5}))
        for day in range(4):
            engine.clock.now = START + day * DAY
            await engine.decide("home", "k")
            await harness.quiet(engine)
    with contextlib.closing(store_at(path)) as store:
        assert not [row for row in store.events(0) if getattr(row, "kind", "") == "fed"]
        assert verify(config, store) == []
    async with served(path, config, Clock(START + 5 * DAY)) as engine:
        assert access.merge_offsets("clicks", [engine.placements["home"].feed_offsets]) == {"0": 5}


async def test_of_more_feeds_than_are_remembered_the_latest_are(tmp_path, monkeypatch):
    monkeypatch.setattr(access.feed_offsets, "MAX_FEEDS", 2)
    monkeypatch.setattr(access.feed_offsets, "MAX_PARTS", 2)
    path, config = tmp_path / "s.db", with_home(tmp_path / "s.db", arms=2)
    async with served(path, config) as engine:
        for feed, part in ("a", "0"), ("b", "0"), ("a", "1"), ("c", "0"), ("a", "2"):
            await engine.ask("home", FedOf(feed, {part: 1}))
        live = goes_on(engine.placements["home"])
    assert live[1] == {"c": {"0": 1}, "a": {"1": 1, "2": 1}}
    is_the_fold(config, path, live, goes_on)


async def test_of_shards_the_one_that_is_least_far_says_it(tmp_path):
    config, parts = with_home(tmp_path / "s.db", arms=2), []
    for number, said in enumerate(({"0": 7, "1": 4}, {"0": 5, "1": 6}, {"0": 9, "1": 9, "2": 9})):
        async with served(tmp_path / f"{number}.db", config) as engine:
            await engine.ask("home", FedOf("clicks", said))
            parts.append(access.export_statistics(home := engine.placements["home"]))
    assert access.get_feed_offsets(access.merge_parts(home, parts)).offsets == {"clicks": {"0": 5, "1": 4}}
    # A shard may not have taken over yet what the configuration says.
    del parts[1].aspects["feed_offsets"]
    assert (
        access.get_feed_offsets(access.merge_parts(home, parts)).offsets
        == access.get_feed_offsets(home).offsets
    )


def test_who_may_feed_may_log_how_far_and_reads_what_the_same_key_said(tmp_path):
    scopes = {"feeder": ["feedback"], "reader": ["read"], "other": ["feedback"]}
    made = {name: new_key() for name in scopes}
    keys = {name: {"sha256": made[name][1], "scopes": scopes[name]} for name in scopes}
    keys["other"]["placements"] = ["shelf"]
    values = {"keys": keys, "placements.shelf.arms": 2}
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(run_in_thread(with_home(tmp_path / "s.db", arms=2, values=values)))
        feeder, reader, other = (stack.enter_context(Client(url, made[name][0])) for name in scopes)
        assert feeder.read_feed_offsets("a topic: clicks").offsets == {}
        feeder.log_feed_offsets("home", "a topic: clicks", {"0": 7, "1": 1})
        feeder.log_feed_offsets("shelf", "a topic: clicks", {"0": 5, "2": 3})
        assert feeder.read_feed_offsets("a topic: clicks").offsets == {"0": 7, "1": 1, "2": 3}
        # What another key says moves nobody on: else it could make a feed skip events.
        assert other.read_feed_offsets("a topic: clicks").offsets == {}
        other.log_feed_offsets("shelf", "a topic: clicks", {"0": 10**9, "1": 10**9, "7": 1})
        assert feeder.read_feed_offsets("a topic: clicks").offsets == {"0": 7, "1": 1, "2": 3}
        assert other.read_feed_offsets("a topic: clicks").offsets == {"0": 10**9, "1": 10**9, "7": 1}
        for denied in (
            lambda: reader.log_feed_offsets("home", "c", {"0": 1}),
            lambda: other.log_feed_offsets("home", "c", {"0": 1}),
        ):
            with pytest.raises(Denied):
                denied()
        for wrong in ({"0": -1}, {}, {"0" * 65: 1}):
            with pytest.raises((InvalidValue, ValueError), match="offsets"):
                feeder.log_feed_offsets("home", "c", wrong)
        # Nor under a name that looks like that of another key and a feed.
        with pytest.raises(ValueError, match="printable"):
            other.log_feed_offsets("shelf", "feeder\na topic: clicks", {"0": 9})


async def test_a_feed_of_before_keys_had_offsets_of_their_own_goes_on_where_it_was(tmp_path):
    key, sha256 = new_key()
    values = {"keys": {"feeder": {"sha256": sha256, "scopes": ["feedback"]}}}
    config = with_home(tmp_path / "s.db", arms=2, values=values)

    async with served(tmp_path / "s.db", config) as engine:
        await engine.ask("home", FedOf("clicks", {"0": 7, "1": 1}), "feeder")
    with run_in_thread(config) as url, Client(url, key) as client:
        assert client.read_feed_offsets("clicks").offsets == {"0": 7, "1": 1}
        # It may go back, as where a topic was made again.
        client.log_feed_offsets("home", "clicks", {"0": 5})
        assert client.read_feed_offsets("clicks").offsets == {"0": 5, "1": 1}


# Of a topic ----------------------------------------------------------------------------------


def taken_in(counts):
    """Return how many rewards came in time; partitions are not in the order of the decisions."""
    assert set(counts["sent"]) <= {"learned", "pending"}
    return sum(counts["sent"].values())


def test_a_restored_backup_has_all_that_came_after_it_again(cluster, tmp_path):  # noqa: F811
    (tmp_path / "feed.toml").write_text(MAP)
    path, backup = tmp_path / "t.db", tmp_path / "backup.db"
    with served_home(tmp_path) as (url, client):
        events = events_of(decided(client, 60))
        sent(cluster, "restored", events[:30])
        came, counts = fed(url, cluster, "restored", "--once", folder=tmp_path)
        assert taken_in(counts) == 30, came.stderr
    shutil.copy(path, backup)
    sent(cluster, "restored", events[30:])
    with served_home(tmp_path) as (url, client):
        assert taken_in(fed(url, cluster, "restored", "--once", folder=tmp_path)[1]) == 30
    # The group has been at the end since, the log has not.
    for file in tmp_path.glob("t.db*"):
        file.unlink()
    shutil.copy(backup, path)
    with served_home(tmp_path) as (url, client):
        assert taken_in(fed(url, cluster, "restored", "--once", folder=tmp_path)[1]) == 30
        assert fed(url, cluster, "restored", "--once", folder=tmp_path)[1]["sent"] == {}


def test_a_group_that_is_lost_goes_on_where_the_log_is(cluster, tmp_path):  # noqa: F811
    from confluent_kafka import Consumer, TopicPartition

    (tmp_path / "feed.toml").write_text(MAP)
    with served_home(tmp_path) as (url, client):
        events = events_of(decided(client, 50))
        sent(cluster, "lost", events[:40])
        assert taken_in(fed(url, cluster, "lost", "--once", folder=tmp_path)[1]) == 40
        with contextlib.closing(Consumer({"bootstrap.servers": cluster, "group.id": "g"})) as group:
            group.commit(offsets=[TopicPartition("lost", i, 0) for i in range(4)], asynchronous=False)
        sent(cluster, "lost", events[40:])
        assert taken_in(fed(url, cluster, "lost", "--once", folder=tmp_path)[1]) == 10
        assert msgspec.json.encode(client.read_feed_offsets("none").offsets) == b"{}"
