"""Shards without Ray: any of them answers, clients learn where they are, kills lose nothing."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess

import httpx
import pytest
import stores
from drawn import is_long
from forked import Forked, ran
from harness import PATIENCE, Client, with_home
from harness import served as engine_served
from placement_access import NearLink, ShardCalls

from tacit import client as clients
from tacit.service.config.keys import new_key
from tacit.service.errors import NotDurable
from tacit.service.log.ids import Shard, find_shard, hash_partition, parse_partition
from tests.cluster.test_ray_serve import Caller, check_said, drop_schemas, key_in, run

SHARDS = 2
CONFIG = """
[store]
url = "{url}"
schema = "{schema}"
[placements.home]
arms = ["a", "b", "c"]
policy = "thompson"
snapshot_every = 200
attribution_window = 600
[placements.video]
arms = ["a", "b"]
policy = "ucb1"
spread = true
[placements.lists]
kind = "slates"
relevance_dim = 2
positions = 2
[placements.scores]
kind = "features"
policy = "laplace-ec(relevance_dim=1, examination_dim=1, relevance_intercept=True)"
[placements.rankers]
kind = "duels"
rankers = ["old", "new"]
"""
KILLS = int(os.environ.get("TACIT_TEST_KILLS", "12" if is_long() else "4"))
"""Of shards and clients, in turn; each shard is started again at another address."""


class Shards:
    """Processes that serve a log's shards, which are started again when they are killed."""

    def __init__(self, folder, schema, more=""):
        self.config, self.peers = folder / "tacit.toml", folder / "peers"
        self.config.write_text(CONFIG.format(url=stores.cluster().url, schema=schema) + more)
        drop_schemas(schema)
        self.ports = [stores.free_port() for _ in range(SHARDS)]
        self._write()
        self.processes = [self.start(number) for number in range(SHARDS)]
        for process in self.processes:
            self.wait(process)

    def _write(self):
        fresh = self.peers.with_suffix(".new")
        fresh.write_text("".join(f"{url}\n" for url in self.urls))
        fresh.rename(self.peers)

    @property
    def urls(self):
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    def start(self, number):
        command = ["-m", "tacit", "serve", "--config", self.config, "--merge-seconds", "0.2"]
        command += ["--shard", f"{number}/{SHARDS}", "--peers", self.peers, "--port", self.ports[number]]
        return Forked(list(map(str, command)), stdout=subprocess.PIPE, text=True)

    def wait(self, process):
        line = process.stdout.readline()
        assert line.startswith("tacit serves at"), line

    def move(self, number):
        """Kill a shard, and start it again at another address; return once it answers."""
        self.processes[number].kill()
        self.processes[number].wait()
        self.ports[number] = stores.free_port()
        self._write()
        self.processes[number] = self.start(number)
        self.wait(self.processes[number])

    def client(self, number):
        return Client(self.urls[number])

    def stop(self):
        for process in self.processes:
            process.terminate()
        return [process.wait(timeout=PATIENCE) for process in self.processes]


@contextlib.contextmanager
def served(folder, schema, more=""):
    shards = Shards(folder, schema, more)
    try:
        yield shards
    finally:
        ended = shards.stop()
    assert ended == [0] * SHARDS
    assert "agree" in run("log", "verify", "--config", shards.config)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    with served(tmp_path_factory.mktemp("shards"), "shards_serve") as made:
        yield made


def done(answer):
    status, _, content = answer
    assert status == 200, content
    return content


def test_any_shard_answers_for_all_keys_of_each_kind(shards):
    features = {"relevance": [[0.9], [0.1]], "examination": [[0.5], [0.7]]}
    items = [{"id": f"doc-{i}", "vector": [i / 4, 1.0], "segment": "news"} for i in range(5)]
    put = shards.client(1).ask("PUT", "/v1/placements/lists/items", {"items": items})
    assert done(put)["count"] == 5
    rankings = {"old": ["x", "y"], "new": ["y", "z"]}
    asked = {
        "home": ("decide", {}, "feedback", {"reward": 1.0}),
        "scores": ("decide", features, "feedback", {"reward": 1.0}),
        "lists": ("slate", {"arms": ["doc-1", "doc-9"], "unknown": "skip"}, "clicks", {"clicks": [0]}),
        "rankers": ("duel", {"rankings": rankings}, "clicks", {"clicks": [1]}),
    }
    for name, (decide, request, tell, sent) in asked.items():
        for shard in range(SHARDS):
            key = key_in(name, shard)
            for number in range(SHARDS):
                client = shards.client(number)
                made = done(client.post(f"{name}/{decide}", {"key": key} | request))
                assert find_shard(parse_partition(made["decision_id"]), SHARDS) == shard
                told = {"decision_id": made["decision_id"], "feedback_id": "f"} | sent
                assert done(shards.client(1 - number).post(f"{name}/{tell}", told))["outcome"] != "duplicate"
                assert done(client.post(f"{name}/{tell}", told))["outcome"] == "duplicate"
    wrong = {"key": key_in("home", 0), "arms": ["d"]}
    answers = [shards.client(number).post("home/decide", wrong) for number in range(SHARDS)]
    assert answers[0][0] == answers[1][0] == 422
    assert answers[0][2] == answers[1][2]
    total = sum(placement["decisions"] for placement in read_placements(shards, 0))
    assert total == sum(placement["decisions"] for placement in read_placements(shards, 1)) == 16


def read_placements(shards, number):
    return done(shards.client(number).ask("GET", "/v1/placements"))["placements"]


def test_a_flag_is_evaluated_at_any_shard(shards):
    for shard in range(SHARDS):
        context = {"context": {"key": key_in("home", shard), "targetingKey": "ann"}}
        answer = shards.client(0).ask("POST", "/ofrep/v1/evaluate/flags/home", context)
        assert find_shard(parse_partition(done(answer)["metadata"]["decision_id"]), SHARDS) == shard


def test_clients_ask_the_shard_of_a_key_and_of_a_decision_and_split_batches(shards, monkeypatch):
    asked = []
    with clients.Client(shards.urls[0]) as client:
        send = httpx.Client.request

        def request(http, method, url, **options):
            asked.append(url)
            return send(http, method, url, **options)

        monkeypatch.setattr(httpx.Client, "request", request)
        client.decide("home", "the table is not known yet")
        for shard in range(SHARDS):
            made = client.decide("home", key_in("home", shard))
            client.feedback("home", made.decision_id, 1.0)
            assert hash_partition("home", key_in("home", shard)) == parse_partition(made.decision_id)
        keys = [key_in("home", i % SHARDS, i) for i in range(6)]
        many = client.decide_many("home", [clients.Impression(key) for key in keys])
        outcomes = client.feedback_many("home", [clients.Feedback(one.decision_id, 1.0) for one in many])
        assert {one.outcome for one in outcomes} <= {"learned", "pending"}
        for wrong in (3, 4):
            impressions = [
                clients.Impression(key, ["d"] if i == wrong else None) for i, key in enumerate(keys)
            ]
            with pytest.raises(clients.InvalidRequest, match=rf"decisions\[{wrong}\].arms"):
                client.decide_many("home", impressions)
        spread = client.decide_many("video", [clients.Impression("all")] * 40)
        assert {find_shard(parse_partition(one.decision_id), SHARDS) for one in spread} == {0, 1}
    places = [(shards.urls.index(url[: url.index("/v1")]), url.rpartition("/")[2]) for url in asked]
    single = [(0, "decide"), (0, "shards"), (0, "decide"), (0, "feedback"), (1, "decide"), (1, "feedback")]
    assert places[:6] == single
    assert sorted(places[6:10]) == [(0, "batch")] * 2 + [(1, "batch")] * 2


def test_only_shards_of_the_log_call_each_other_and_nothing_is_forwarded_twice(shards):
    """Whoever has no secret of the log is refused before the body is read."""
    for headers in ({}, {"authorization": "Bearer guess"}):
        assert shards.client(0).ask("POST", "/v1/shards/calls", {}, headers)[0] == 403
    status, _, table = shards.client(0).ask("GET", "/v1/shards")
    assert (status, table["shards"], table["spread"]) == (200, shards.urls, ["video"])


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
    with served(tmp_path, "shards_keys", more) as shards:
        bearer = {"authorization": f"Bearer {key}"}
        for shard in range(SHARDS):
            asked = {"key": key_in("home", shard)}
            assert shards.client(0).post("home/decide", asked, **bearer)[0] == 200
            assert shards.client(0).post("home/decide", asked)[0] == 401
            assert shards.client(0).post("lists/slate", asked, **bearer)[0] == 403
            told = {"decision_id": "x", "reward": 1.0}
            assert shards.client(0).post("home/feedback", told, **bearer)[0] == 403


# Kills ---------------------------------------------------------------------------------------


def play_kills(shards, kills):
    """Kill shards, which come back elsewhere, and clients, in turn, under load; return what clients said."""
    said, rng = [], random.Random(1)
    callers = [Caller(shards.urls[i % SHARDS]) for i in range(2)]
    for turn in range(kills):
        for caller in callers:
            caller.says_more(20)
        if turn % 2 == 0:
            shards.move(rng.randrange(SHARDS))
        else:
            number = rng.randrange(len(callers))
            said += callers[number].kill()
            callers[number] = Caller(shards.urls[rng.randrange(SHARDS)])
    for caller in callers:
        caller.says_more(20)
        said += caller.kill()
    return said


def test_kills_of_shards_that_move_and_of_clients_lose_and_double_nothing(tmp_path):
    with served(tmp_path, "shards_kills") as shards:
        said = play_kills(shards, KILLS)
    assert min(check_said(shards.config, said)) > 0


@pytest.mark.parametrize(
    ("peers", "shard", "wrong"),
    [
        ("http://127.0.0.1:1\n", "0/2", "has 1 addresses for 2 shards"),
        ("http://127.0.0.1:1\nhttp://127.0.0.1:1\n", "0/2", "has 1 addresses for 2 shards"),
        ("127.0.0.1:1\nhttp://127.0.0.1:1\n", "0/2", "'127.0.0.1:1' is no address; give http://HOST:PORT"),
        ("http://127.0.0.1:1\nhttp://127.0.0.1:2\n", "2/2", "give a number from 0 and how many there are"),
        ("http://127.0.0.1:1\nhttp://127.0.0.1:2\n", "first", "'first' is none; give a number"),
    ],
)
def test_what_is_wrong_with_shards_and_peers_is_said(tmp_path, peers, shard, wrong):
    path = tmp_path / "peers"
    path.write_text(peers)
    command = [
        "-m",
        "tacit",
        "serve",
        "--store",
        stores.cluster().url,
        "--shard",
        shard,
        "--peers",
        str(path),
    ]
    finished = ran(command)
    assert finished.returncode == 2, finished.stderr
    assert wrong in finished.stderr
