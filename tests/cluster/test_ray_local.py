"""Decisions next to the caller, with what shards on Ray have learned: nothing lost, whoever is killed."""

import collections
import contextlib
import os
import signal

import pytest
import sharded
from drawn import is_long
from harness import PATIENCE, eventually

import tacit
from tacit.client import Client, InvalidRequest, Local
from tacit.learning.learner import restore_learner
from tacit.learning.snapshot import from_bytes
from tacit.service.log.ids import find_shard, hash_partition, parse_partition

pytest.importorskip("ray", reason="the extra 'ray' is not installed")


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with served(sharded.configured(tmp_path_factory.mktemp("served"))) as made:
        yield made


def served(config, shards=sharded.SHARDS):
    return sharded.served(sharded.OnRay, config, shards, address=sharded.shared_cluster())


def local(service, folder, placement="home", **options):
    return Local(service.urls[0], placement, folder, **{"timeout": PATIENCE} | options, every=1000.0, seed=1)


def lent(client, shard, placement="home"):
    return from_bytes(client.learner(placement, shard), "lent", restore_learner)


def test_each_shard_lends_what_it_learned_and_learns_of_what_was_decided(service, tmp_path):
    keys = [sharded.key_in("home", shard) for shard in range(sharded.SHARDS)]
    with Client(service.urls[0]) as client:
        with pytest.raises(InvalidRequest, match=r"shard: .*give one of 0 to 1"):
            client.learner("home")
        with local(service, tmp_path / "spool") as here:
            shown = [(key, here.decide(key)) for key in keys * 30]
            assert {one.durability for _, one in shown} == {"spooled"}
            for key, one in shown:
                assert parse_partition(one.decision_id) == hash_partition("home", key)
                here.feedback(one.decision_id, float(one.arm == "b"))
            assert all(known.waiting for known in here.read_replicas())
            here.flush()
            here.flush()
            known = here.read_replicas()
            assert [one.waiting for one in known] == [0, 0]
            assert [one.row for one in known] == client.list_replicas("home").rows
            for shard, key in enumerate(keys):
                learner = lent(client, shard)
                # What other shards learned is not in there.
                assert learner.keys == [key]
                chances = dict(zip("abc", learner.probabilities(key), strict=True))
                made = here.decide(key)
                assert made.propensity == chances[made.arm]
        for _, one in shown:
            assert client.feedback("home", one.decision_id, 1).outcome == "repeated"
        # A key that is in all shards is decided for with what any of them has learned.
        with local(service, tmp_path / "all", "all") as here:
            places = [
                find_shard(parse_partition(here.decide("k").decision_id), sharded.SHARDS) for _ in range(10)
            ]
            assert sorted(places) == [0] * 5 + [1] * 5


def test_while_a_shard_is_gone_decisions_go_on(service, tmp_path):
    with Client(service.urls[0]) as client, local(service, tmp_path / "spool", timeout=5.0) as here:
        before = here.read_replicas()
        pid = service.read()["shards"][1]["pid"]
        os.kill(pid, signal.SIGSTOP)
        shown = [here.decide(sharded.key_in("home", 1)) for _ in range(3)]
        assert {one.durability for one in shown} == {"spooled"}
        with pytest.raises(tacit.client.Unavailable):
            here.flush()
        after = here.read_replicas()
        assert after[1].waiting
        assert after[1].age > before[1].age
        os.kill(pid, signal.SIGCONT)
        eventually(lambda: flushed(here))
        outcomes = [client.feedback("home", one.decision_id, 1).outcome for one in shown]
        # Of others nothing came yet, and shards have turns of their own.
        assert set(outcomes) <= {"learned", "pending"}
        assert len(outcomes) == 3


def test_what_waits_is_delivered_after_the_log_was_dealt_out_anew(tmp_path):
    config = sharded.configured(tmp_path)
    keys = [sharded.key_in("home", shard, shards=3) for shard in range(3)]
    with served(config) as service, local(service, tmp_path / "spool") as here:
        shown = [here.decide(key) for key in keys]
        assert service.stop()
        shown += [here.decide(key) for key in keys]
    sharded.run("log", "reshard", "--shards", 3, "--config", config)
    with served(config, 3) as service, local(service, tmp_path / "spool") as here:
        assert len(here.read_replicas()) == 3
        shown += [here.decide(key) for key in keys]
        for one in shown:
            here.feedback(one.decision_id, 1.0)
        here.flush()
        assert service.stop()
    decided, told = sharded.logged(config, "home")
    assert set(decided) == {one.decision_id for one in shown}
    assert {id: len(feedback) for id, feedback in told.items()} == dict.fromkeys(decided, 1)
    assert not list((tmp_path / "spool").rglob("refused.jsonl"))


# Kills ---------------------------------------------------------------------------------------

CALLER = """
import itertools, sys, time
from tacit.client import Local
local = Local(sys.argv[1], "home", sys.argv[2], every=0.02)
for i in itertools.count():
    shown = local.decide(f"key {i % 20}")
    local.feedback(shown.decision_id, float(shown.arm == "b"), feedback_id=f"of {shown.decision_id}")
    print(shown.decision_id, flush=True)
    time.sleep(0.002)
"""
KILLS = int(os.environ.get("TACIT_TEST_KILLS", "6" if is_long() else "3"))
"""Of shards and callers, in turn."""


def folded(config):
    """Return what each arm of each key of ``home`` earned and lost, by the logs of all shards."""
    events = sharded.iterate_events(config, "home")
    return collections.Counter(
        (made.key, made.arm, event.reward) for event, made in events if event is not made
    )


def test_kills_of_shards_and_callers_lose_and_double_nothing(tmp_path):
    config = sharded.configured(tmp_path)
    with served(config) as service, sharded.calling() as callers:
        for turn in range(KILLS + 1):
            if turn % 2 == 0:
                callers.append(sharded.Caller(service.urls[0], tmp_path / "spool", code=CALLER))
            callers[-1].says_more(150)
            if turn % 2 == 0 and turn < KILLS:
                os.kill(eventually(service.read_shards_up)[turn // 2 % sharded.SHARDS]["pid"], signal.SIGKILL)
            else:
                callers[-1].kill()
        said = [line for caller in callers for line in caller.kill()]
        eventually(service.read_shards_up)
        with local(service, tmp_path / "spool") as here, Client(service.urls[0]) as client:
            eventually(lambda: flushed(here))
            learners = [lent(client, shard) for shard in range(sharded.SHARDS)]
    decided, told = sharded.logged(config, "home")
    assert len(set(said)) == len(said) >= 150 * KILLS
    assert set(said) <= set(decided)
    # At most what a caller was about to say is not known of.
    assert len(decided) <= len(said) + 2 * (KILLS // 2 + 1)
    assert {id: told[id] for id in said} == {id: [f"of {id}"] for id in said}
    assert not list((tmp_path / "spool").rglob("refused.jsonl"))
    assert learned(learners) == folded(config)


def flushed(here):
    with contextlib.suppress(tacit.client.Unavailable):
        here.flush()
        return not any(replica.waiting for replica in here.read_replicas())


def learned(learners):
    """Return what learners of Thompson sampling have counted, as :func:`folded` does."""
    found = collections.Counter()
    for learner in learners:
        for lane, key in enumerate(learner.keys):
            for slot, arm in enumerate("abc"):
                found[key, arm, 1.0] += int(learner.state.successes[lane, slot])
                found[key, arm, 0.0] += int(learner.state.failures[lane, slot])
    return +found
