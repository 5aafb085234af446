"""Shards without Ray: any of them answers, clients learn where they are, kills lose nothing."""

import collections
import json
import os
import time
from urllib.parse import quote

import httpx
import pytest
import sharded
import stores
from drawn import is_long
from forked import ran
from harness import eventually, with_home
from harness import served as engine_served
from placement_access import NearLink, ShardCalls

from tacit import client as clients
from tacit.service.config.keys import new_key
from tacit.service.errors import NotDurable
from tacit.service.log.ids import Shard, find_shard, hash_partition, parse_partition

KILLS = int(os.environ.get("TACIT_TEST_KILLS", "12" if is_long() else "4"))
"""Of shards and clients, in turn; each shard is started again at another address."""
# Another test may have left a decision of the same key that waits.
LEARNED_OR_WAITS = "learned", "pending"


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    with sharded.served(sharded.Shards, sharded.configured(tmp_path_factory.mktemp("shards"))) as made:
        made.await_each_other()
        yield made


def count_decisions(shards, number):
    return sum(placement["decisions"] for placement in shards.read(number=number)["placements"])


def test_any_shard_answers_for_all_keys_of_each_kind(shards):
    features = {"relevance": [[0.9], [0.1]], "examination": [[0.5], [0.7]]}
    items = [{"id": f"doc-{i}", "vector": [i / 4, 1.0], "segment": "news"} for i in range(5)]
    assert shards.client(1).ask("PUT", "/v1/placements/lists/items", {"items": items})[2]["count"] == 5
    asked = {
        "home": ("decide", {}, "feedback", {"reward": 1.0}),
        "scores": ("decide", features, "feedback", {"reward": 1.0}),
        "lists": ("slate", {"arms": ["doc-1", "doc-9"], "unknown": "skip"}, "clicks", {"clicks": [0]}),
        "rankers": ("duel", {"rankings": {"old": ["x", "y"], "new": ["y", "z"]}}, "clicks", {"clicks": [1]}),
    }
    before = count_decisions(shards, 0)
    for name, (decide, request, tell, sent) in asked.items():
        for shard in range(sharded.SHARDS):
            key = sharded.key_in(name, shard)
            for number in range(sharded.SHARDS):
                made = shards.done(name, decide, {"key": key} | request, number=number)
                assert sharded.shard_of(made) == shard
                told = {"decision_id": made["decision_id"], "feedback_id": "f"} | sent
                assert shards.done(name, tell, told, number=1 - number)["outcome"] != "duplicate"
                assert shards.done(name, tell, told, number=number)["outcome"] == "duplicate"
    wrong = {"key": sharded.key_in("home", 0), "arms": ["d"]}
    answers = [shards.post("home", "decide", wrong, number) for number in range(sharded.SHARDS)]
    assert answers[0][0] == 422
    assert answers[0] == answers[1]
    eventually(
        lambda: (
            [count_decisions(shards, number) for number in range(sharded.SHARDS)]
            == [before + 16] * sharded.SHARDS
        )
    )


def test_a_flag_is_evaluated_at_any_shard(shards):
    for shard in range(sharded.SHARDS):
        context = {"context": {"key": sharded.key_in("home", shard), "targetingKey": "ann"}}
        _, _, answer = shards.client().ask("POST", "/ofrep/v1/evaluate/flags/home", context)
        assert sharded.shard_of(answer["metadata"]) == shard


def test_clients_ask_the_shard_of_a_key_and_of_a_decision_and_split_batches(shards, monkeypatch):
    asked = []
    with clients.Client(shards.urls[0]) as client:
        send = httpx.Client.request

        def request(http, method, url, **options):
            asked.append(url)
            return send(http, method, url, **options)

        monkeypatch.setattr(httpx.Client, "request", request)
        client.decide("home", "the table is not known yet")
        for shard in range(sharded.SHARDS):
            made = client.decide("home", sharded.key_in("home", shard))
            client.feedback("home", made.decision_id, 1.0)
            assert hash_partition("home", sharded.key_in("home", shard)) == parse_partition(made.decision_id)
        keys = [sharded.key_in("home", i % sharded.SHARDS, i) for i in range(6)]
        many = client.decide_many("home", [clients.Impression(key) for key in keys])
        outcomes = client.feedback_many("home", [clients.Feedback(one.decision_id, 1.0) for one in many])
        assert {one.outcome for one in outcomes} <= {"learned", "pending"}
        for wrong in (3, 4):
            impressions = [
                clients.Impression(key, ["d"] if i == wrong else None) for i, key in enumerate(keys)
            ]
            with pytest.raises(clients.InvalidRequest, match=rf"decisions\[{wrong}\].arms"):
                client.decide_many("home", impressions)
        spread = client.decide_many("all", [clients.Impression("k")] * 40)
        assert {find_shard(parse_partition(one.decision_id), sharded.SHARDS) for one in spread} == {0, 1}
    places = [(shards.urls.index(url[: url.index("/v1")]), url.rpartition("/")[2]) for url in asked]
    single = [(0, "decide"), (0, "shards"), (0, "decide"), (0, "feedback"), (1, "decide"), (1, "feedback")]
    assert places[:6] == single
    assert sorted(places[6:10]) == [(0, "batch")] * 2 + [(1, "batch")] * 2


def test_ids_of_clients_lead_to_their_shard_too(shards):
    asked = {"key": sharded.key_in("home", 1), "decision_id": "order 66"}
    first = shards.done("home", "decide", asked)
    assert shards.done("home", "decide", asked) == first
    status, problem = shards.post("home", "decide", asked | {"key": sharded.key_in("home", 0)})
    assert (status, problem["field"]) == (409, "decision_id")
    told = {"decision_id": "order 66", "reward": 1.0}
    assert shards.done("home", "feedback", told)["outcome"] in LEARNED_OR_WAITS
    status, problem = shards.post("home", "feedback", told | {"decision_id": "order 67"})
    assert (status, problem["field"]) == (404, "decision_id")


def test_a_user_is_forgotten_whichever_shard_was_asked(shards):
    rankings = {"old": ["x", "y"], "new": ["y", "z"]}
    for i in range(4):
        asked = {"key": sharded.key_in("rankers", i % 2), "user": "ann", "rankings": rankings}
        shards.done("rankers", "duel", asked, number=i // 2)
    _, _, forgotten = shards.client().ask("DELETE", "/v1/subjects/user/ann")
    assert forgotten["placements"]["rankers"]["decisions"] == 4


def test_a_batch_is_dealt_out_and_put_together_again(shards):
    keys = [sharded.key_in("home", i % sharded.SHARDS, i) for i in range(6)]
    made = shards.done("home", "decide/batch", {"decisions": [{"key": key} for key in keys]})["decisions"]
    assert list(map(sharded.shard_of, made)) == [0, 1, 0, 1, 0, 1]
    told = [{"decision_id": id, "reward": 0.5} for id in [*(one["decision_id"] for one in made), "nobody's"]]
    outcomes = shards.done("home", "feedback/batch", {"feedback": told})["feedback"]
    assert {one["outcome"] for one in outcomes[:6]} <= set(LEARNED_OR_WAITS)
    assert outcomes[6]["outcome"] == "unknown-decision"


def test_the_lift_is_that_of_all_shards(shards):
    users = [{"key": f"query {i}", "user": f"u{i % 40}"} for i in range(200)]
    made = shards.done("held", "decide/batch", {"decisions": users})["decisions"]
    told = [{"decision_id": one["decision_id"], "metrics": {"revenue": 5.0}} for one in made[::2]]
    outcomes = shards.done("held", "feedback/batch", {"feedback": told})["feedback"]
    assert {one["outcome"] for one in outcomes} <= {"pending", "late"}
    in_time = sum(one["outcome"] == "pending" for one in outcomes)

    def lift():
        found = shards.read("/v1/placements/held/lift")
        return found if sum([group["decisions"] for group in found["groups"].values()]) == len(made) else None

    found = eventually(lift)
    assert min(group["decisions"] for group in found["groups"].values()) > 20
    assert sum(group["rewards"] for group in found["groups"].values()) == pytest.approx(in_time * 5.0)
    assert [one["name"] for one in found["metrics"]] == ["revenue"]
    assert set(map(sharded.shard_of, made)) == set(range(sharded.SHARDS))


def test_what_is_learned_for_all_keys_is_shared(shards):
    def search(key):
        made = shards.done("news", "decide", {"key": key, "context": [0.5]})
        told = {"decision_id": made["decision_id"], "reward": float(made["arm"] == "b")}
        shards.done("news", "feedback", told)
        return made["epoch"]

    # Tests that show no change teach shard 0 that 0.5 announces nothing.
    here, there = sharded.key_in("news", 0), sharded.key_in("news", 1)
    assert max(search(here) for _ in range(16)) > 0

    def shared_seconds(name):
        return next(one for one in shards.read()["placements"] if one["name"] == name)["shared_seconds"]

    def shared_after(moment):
        asked, seconds = time.monotonic(), shared_seconds("news")
        return seconds is not None and asked - seconds > moment

    # The age is that of a round's beginning: of one that began after this and has ended.
    taught = time.monotonic()
    eventually(lambda: shared_after(taught))
    assert max(search(there) for _ in range(16)) == 0
    eventually(lambda: shared_seconds("news") < 5.0)
    assert shared_seconds("home") is None


def test_impressions_of_a_spread_key_go_to_all_shards_and_count_once(shards):
    features = {"relevance": [[0.9], [0.1]], "examination": [[0.5], [0.7]]}
    counts = collections.Counter()
    for i in range(10):
        made = shards.done("video", "decide", {"key": "all", **features})
        counts[sharded.shard_of(made)] += 1
        told = {"decision_id": made["decision_id"], "reward": float(i % 3 == 0)}
        assert shards.done("video", "feedback", told)["outcome"] in LEARNED_OR_WAITS
    assert sorted(counts.values()) == [5, 5]

    def known():
        (one,) = (one for one in shards.read()["placements"] if one["name"] == "video")
        return (one["decisions"], one["feedback"], one["keys"]) == (10, 10, 1)

    eventually(known)


def test_keys_of_all_shards_have_their_pages(shards):
    keys = [sharded.key_in("home", shard) for shard in range(sharded.SHARDS)]
    for key in keys:
        # Enough to be among the busiest, whatever other tests ask for.
        shards.done("home", "decide/batch", {"decisions": [{"key": key}] * 500})
        assert 'data-table="arms"' in shards.read(f"/key?placement=home&key={quote(key)}")
    status, _, problem = shards.client().ask("GET", "/key?placement=home&key=nobody")
    assert (status, problem["field"]) == (422, "key")
    for key in keys:
        page = shards.read(f"/placements/home?find={quote(key)}")
        assert f'data-key="{key}"' in page
        assert f">{key}</a></li>" in page


def test_arms_change_in_all_shards(shards):
    sharded.check_changes_of_arms(shards)


def test_only_shards_of_the_log_call_each_other_and_nothing_is_forwarded_twice(shards):
    """Whoever has no secret of the log is refused before the body is read."""
    for headers in ({}, {"authorization": "Bearer guess"}):
        assert shards.client().ask("POST", "/v1/shards/calls", {}, headers)[0] == 403
    table = shards.read("/v1/shards")
    assert (table["shards"], table["spread"]) == (shards.urls, ["all", "video"])


async def test_a_shard_that_is_asked_for_another_one_refuses(tmp_path):
    """Addresses may be of other shards while they change."""
    async with engine_served(tmp_path / "s.db", with_home(arms=2), shard=Shard(0, 2)) as engine:
        link = NearLink(ShardCalls(engine), Shard(1, 2))
        with pytest.raises(NotDurable, match="this is 0 of 2"):
            await link.call("arms")


def test_keys_count_at_the_shard_that_is_asked(tmp_path):
    (key, sha256), (_, other) = new_key(), new_key()
    more = f'\n[keys.shop]\nsha256 = "{sha256}"\nscopes = ["decide"]\nplacements = ["home"]\n'
    more += f'[keys.operator]\nsha256 = "{other}"\nscopes = ["admin"]\n'
    with sharded.served(sharded.Shards, sharded.configured(tmp_path, more)) as shards:
        bearer, client = {"authorization": f"Bearer {key}"}, shards.client()
        for shard in range(sharded.SHARDS):
            asked = {"key": sharded.key_in("home", shard)}
            # The first shard has found the second one lost, which began after it, until it asks it again.
            eventually(lambda asked=asked: client.post("home/decide", asked, **bearer)[0] == 200)
            assert client.post("home/decide", asked)[0] == 401
            assert client.post("lists/slate", asked, **bearer)[0] == 403
            assert client.post("home/feedback", {"decision_id": "x", "reward": 1.0}, **bearer)[0] == 403


def test_kills_lose_and_double_nothing_and_the_log_can_be_dealt_out_to_more_shards(tmp_path):
    config = sharded.configured(tmp_path)
    with sharded.served(sharded.Shards, config) as shards:
        said = sharded.play_kills(shards, KILLS)
    assert min(sharded.check_said(config, said)) > 0
    before = decided, told = sharded.logged(config, "home")
    assert json.loads(sharded.run("log", "reshard", "--shards", 3, "--config", config, "--json"))
    assert sharded.logged(config, "home") == before
    ids = [id for id in decided if id not in told]
    partitions = {parse_partition(id) for id in ids} - {None}
    assert {find_shard(partition, 3) for partition in partitions} == {0, 1, 2}
    with sharded.served(sharded.Shards, config, 3) as more:
        more.await_each_other()
        for id in ids:
            more.done("home", "feedback", {"decision_id": id, "reward": 1.0})


@pytest.mark.parametrize(
    ("arguments", "peers", "wrong"),
    [
        (["--ray"], "", "shards keep their log in PostgreSQL"),
        (["--shards", "2"], "", "only with --ray"),
        (["--ray", "--ingresses", "2"], "", "leave it out, and send requests to any shard"),
        (["--shard", "0/2"], "", "give it together with --peers"),
        (["--shard", "0/2"], "http://a:1\n", "has 1 addresses for 2 shards"),
        (["--shard", "0/2"], "http://a:1\nhttp://a:1\n", "has 1 addresses for 2 shards"),
        (["--shard", "0/2"], "a:1\nhttp://a:1\n", "'a:1' is no address; give http://HOST:PORT"),
        (["--shard", "2/2"], "http://a:1\nhttp://a:2\n", "give a number from 0 and how many there are"),
        (["--shard", "first"], "http://a:1\nhttp://a:2\n", "'first' is none; give a number"),
    ],
)
def test_what_is_wrong_with_shards_and_peers_is_said(tmp_path, arguments, peers, wrong):
    if peers:
        path = tmp_path / "peers"
        path.write_text(peers)
        arguments = [*arguments, "--store", stores.cluster().url, "--peers", path]
    finished = ran(["-m", "tacit", "serve", *arguments])
    assert finished.returncode in (1, 2), finished.stderr
    assert wrong in finished.stderr
