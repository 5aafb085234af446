"""The service in shards on Ray: one is killed and comes back, all learn together."""

from __future__ import annotations

import atexit
import collections
import concurrent.futures
import contextlib
import functools
import http.client
import json
import os
import random
import re
import signal
import subprocess
import threading
import time
import types
from urllib.parse import quote

import psycopg
import pytest
import stores
from forked import Forked, ran
from harness import PATIENCE, Client, eventually
from placement_access import list_stores

from tacit.cluster.shard_link import Link
from tacit.service.config.file import load_config
from tacit.service.log.ids import Shard, find_shard, hash_partition, parse_partition
from tacit.service.log.postgres import PostgresStore
from tacit.service.log.rows import DecisionRow, FeedbackRow

pytest.importorskip("ray", reason="the extra 'ray' is not installed")

SHARDS = 2
# Another test may have left a decision of the same key that waits.
LEARNED_OR_WAITS = "learned", "pending"
CONFIG = """
[server]
port = 0
[store]
url = "{url}"
schema = "ray_serve"
[placements.home]
arms = ["a", "b", "c"]
policy = "thompson"
snapshot_every = 200
attribution_window = 600
[placements.news]
arms = ["a", "b", "c"]
policy = {{ name = "BWC", classifier = "rectangle(dim=1, margin=0.1)", test_rounds = 4 }}
attribution_window = 600
[placements.video]
kind = "features"
policy = "laplace-ec(relevance_dim=1, examination_dim=1, relevance_intercept=True)"
attribution_window = 600
spread = true
[placements.lists]
kind = "slates"
relevance_dim = 2
positions = 2
attribution_window = 600
[placements.held]
arms = ["a", "b", "c"]
policy = "uniform-random"
attribution_window = 1
aggregation = "last"
holdout = {{ share = 0.5, unit = "user" }}
reward = "revenue"
[placements.held.metrics]
revenue = {{ range = [0, 20] }}
"""


class Service:
    """``tacit serve --ray`` in a process of its own."""

    def __init__(self, config, shards, *more, errors=None, address="local"):
        command = ["-m", "tacit", "serve", "--config", config, *more]
        self.process = Forked(
            [*command, "--shards", shards, "--merge-seconds", "0.2", "--ray", address],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={name: value for name, value in os.environ.items() if name != "RAY_worker_niceness"},
        )
        line = self.process.stdout.readline()
        assert line.startswith("tacit serves at"), line
        self.client = Client(line.split()[3])

    def post(self, placement, what, body):
        status, _, answer = self.client.post(f"{placement}/{what}", body)
        return status, answer

    def done(self, placement, what, body):
        status, answer = self.post(placement, what, body)
        assert status == 200, answer
        return answer

    def placements(self):
        return self.client.ask("GET", "/v1/placements")[2]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=PATIENCE)
        self.process.stdout.close()
        return code


@functools.cache
def shared_cluster():
    """Start a cluster for all services that need none of their own; return its address."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 100_000_000})
    atexit.register(made.shutdown)
    return made.address


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("ray") / "tacit.toml"
    path.write_text(CONFIG.format(url=stores.cluster().url))
    return path


def drop_schemas(schema):
    """Drop what an earlier run left of a service's schemas, also of another number of shards."""
    parts = [f"{schema}_g{generation}s{i}" for generation in (1, 2) for i in range(3)]
    with psycopg.connect(stores.cluster().url, autocommit=True) as connection:
        for name in (schema, *parts):
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def read_ingresses(errors):
    """Return the process ids of the further ingresses, as a service says them on its standard error."""
    return [int(pid) for pid in re.findall(r"answers, too: process (\d+)", errors.read_text())]


def read_shards_up(service):
    """Return what a service says of its shards if all are up, else None."""
    shards = service.placements()["shards"]
    return shards if all(shard["up"] for shard in shards) else None


@pytest.fixture(scope="module")
def service(config):
    drop_schemas("ray_serve")
    made = Service(config, SHARDS)
    yield made
    if made.process.poll() is None:
        made.stop()


def key_in(placement, shard, number=0, shards=SHARDS):
    """Return a key of a shard."""
    keys = (f"key {i}" for i in range(10_000))
    found = [key for key in keys if find_shard(hash_partition(placement, key), shards) == shard]
    return found[number]


class Busy:
    """A shard's handle: of what it is asked it answers at once only whether it lives, if it does."""

    def __init__(self, lives):
        self.lives, self.asked, self.pulses = lives, concurrent.futures.Future(), 0
        self.look = self.pid = self.pulse = self

    def options(self, concurrency_group):
        return types.SimpleNamespace(remote=self.beat)

    def beat(self):
        answer = concurrent.futures.Future()
        if self.lives:
            self.pulses += 1
            answer.set_result(None)
        if self.pulses == 3:
            self.asked.set_result(("fine", 0, {}, {}))
        return types.SimpleNamespace(future=lambda: answer)

    def remote(self):
        return types.SimpleNamespace(future=lambda: self.asked)


@pytest.mark.parametrize("lives", [True, False])
async def test_a_shard_that_is_busy_is_not_taken_for_lost(lives, monkeypatch):
    monkeypatch.setattr("tacit.cluster.shard_link.PATIENCE_SECONDS", 0.01)
    link = Link(Shard(0, 2), Busy(lives))
    link.up = True
    await link.refresh()
    assert (link.up, link.losses, link.health) == ((True, 0, "fine") if lives else (False, 1, None))
    await link.stop()


def test_a_key_and_all_its_feedback_are_in_one_shard(service):
    for shard in range(SHARDS):
        key = key_in("home", shard)
        made = service.done("home", "decide", {"key": key})
        assert find_shard(parse_partition(made["decision_id"]), SHARDS) == shard
        told = {"decision_id": made["decision_id"], "reward": 1.0, "feedback_id": "f"}
        assert service.done("home", "feedback", told)["outcome"] in LEARNED_OR_WAITS
        assert service.done("home", "feedback", told)["outcome"] == "duplicate"


def test_limits_of_connections_hold_at_the_ingress(service):
    status, _, problem = service.client.ask("GET", "/healthz", headers={"A": "x" * 40_000})
    assert (status, problem["type"]) == (431, "urn:tacit:problem:headers-too-large")
    ended = b'tacit_connections_ended_total{reason="header_limit"} 1.0'
    assert ended in service.client.ask("GET", "/metrics")[2].splitlines()


def test_ids_of_clients_lead_to_their_shard_too(service):
    key = key_in("home", 1)
    asked = {"key": key, "decision_id": "order 66"}
    first = service.done("home", "decide", asked)
    assert service.done("home", "decide", asked) == first
    status, problem = service.post("home", "decide", asked | {"key": key_in("home", 0)})
    assert (status, problem["field"]) == (409, "decision_id")
    told = {"decision_id": "order 66", "reward": 1.0}
    assert service.done("home", "feedback", told)["outcome"] in LEARNED_OR_WAITS
    status, problem = service.post("home", "feedback", told | {"decision_id": "order 67"})
    assert (status, problem["field"]) == (404, "decision_id")


def test_a_batch_is_dealt_out_and_put_together_again(service):
    keys = [key_in("home", i % SHARDS, i) for i in range(6)]
    made = service.done("home", "decide/batch", {"decisions": [{"key": key} for key in keys]})
    ids = [one["decision_id"] for one in made["decisions"]]
    assert [find_shard(parse_partition(id), SHARDS) for id in ids] == [0, 1, 0, 1, 0, 1]
    told = [{"decision_id": id, "reward": 0.5} for id in [*ids, "nobody's"]]
    outcomes = service.done("home", "feedback/batch", {"feedback": told})["feedback"]
    assert {one["outcome"] for one in outcomes[:6]} <= set(LEARNED_OR_WAITS)
    assert outcomes[6]["outcome"] == "unknown-decision"


def test_the_lift_is_that_of_all_shards(service):
    users = [{"key": f"query {i}", "user": f"u{i % 40}"} for i in range(200)]
    made = service.done("held", "decide/batch", {"decisions": users})["decisions"]
    told = [{"decision_id": one["decision_id"], "metrics": {"revenue": 5.0}} for one in made[::2]]
    outcomes = service.done("held", "feedback/batch", {"feedback": told})["feedback"]
    assert {one["outcome"] for one in outcomes} <= {"pending", "late"}
    in_time = sum(one["outcome"] == "pending" for one in outcomes)

    def lift():
        status, _, found = service.client.ask("GET", "/v1/placements/held/lift")
        assert status == 200, found
        counts = [group["decisions"] for group in found["groups"].values()]
        return found if sum(counts) == len(made) else None

    found = eventually(lift)
    assert min(group["decisions"] for group in found["groups"].values()) > 20
    earned = sum(group["rewards"] for group in found["groups"].values())
    assert earned == pytest.approx(in_time * 5.0)
    assert [one["name"] for one in found["metrics"]] == ["revenue"]
    # Both of them decided.
    assert {len({find_shard(parse_partition(one["decision_id"]), SHARDS) for one in made})} == {2}


def test_lists_of_items_by_id_are_made_in_every_shard(service):
    items = [{"id": f"doc-{i}", "vector": [i / 4, 1.0], "segment": "news"} for i in range(5)]
    status, _, now = service.client.ask("PUT", "/v1/placements/lists/items", {"items": items})
    assert (status, now["count"]) == (200, 5), now
    assert service.done("lists", "items/remove", {"ids": ["doc-4"]})["count"] == 4
    for shard in range(SHARDS):
        asked = {"key": key_in("lists", shard), "arms": ["doc-3", "doc-9", "doc-1"], "unknown": "skip"}
        made = service.done("lists", "slate", asked)
        assert set(made["slate"]) == {"doc-1", "doc-3"}
        told = {"decision_id": made["decision_id"], "items": ["doc-3"]}
        assert service.done("lists", "clicks", told)["outcome"] == "pending"
        status, problem = service.post("lists", "slate", {"key": asked["key"], "arms": ["doc-4"]})
        assert (status, "'doc-4'" in problem["detail"]) == (422, True), problem
    assert service.client.ask("GET", "/v1/placements/lists/items")[2]["segments"] == {"news": 4}


def test_what_is_learned_for_all_keys_is_shared(service):
    def search(key):
        made = service.done("news", "decide", {"key": key, "context": [0.5]})
        told = {"decision_id": made["decision_id"], "reward": float(made["arm"] == "b")}
        service.done("news", "feedback", told)
        return made["epoch"]

    # Tests that show no change teach shard 0 that 0.5 announces nothing.
    here, there = key_in("news", 0), key_in("news", 1)
    assert max(search(here) for _ in range(16)) > 0

    def summary(name):
        return next(one for one in service.placements()["placements"] if one["name"] == name)

    def shared_after(moment):
        asked, seconds = time.monotonic(), summary("news")["shared_seconds"]
        return seconds is not None and asked - seconds > moment

    # The age is that of a round's beginning: of one that began after this and has ended.
    taught = time.monotonic()
    eventually(lambda: shared_after(taught))
    assert max(search(there) for _ in range(16)) == 0
    eventually(lambda: summary("news")["shared_seconds"] < 5.0)
    assert summary("home")["shared_seconds"] is None


def test_impressions_of_a_spread_key_go_to_all_shards_and_count_once(service):
    features = {"relevance": [[0.9], [0.1]], "examination": [[0.5], [0.7]]}
    shards = collections.Counter()
    for i in range(10):
        made = service.done("video", "decide", {"key": "all", **features})
        shards[find_shard(parse_partition(made["decision_id"]), SHARDS)] += 1
        told = {"decision_id": made["decision_id"], "reward": float(i % 3 == 0)}
        assert service.done("video", "feedback", told)["outcome"] in LEARNED_OR_WAITS
    assert sorted(shards.values()) == [5, 5]

    def known():
        (one,) = (one for one in service.placements()["placements"] if one["name"] == "video")
        return (one["decisions"], one["feedback"], one["keys"]) == (10, 10, 1)

    eventually(known)


def test_keys_of_all_shards_have_their_pages(service):
    made = [key_in("home", shard) for shard in range(SHARDS)]
    for key in made:
        page = service.client.ask("GET", f"/key?placement=home&key={quote(key)}")
        assert page[0] == 200
        assert 'data-table="arms"' in page[2].decode()
    status, _, problem = service.client.ask("GET", "/key?placement=home&key=nobody")
    assert (status, problem["field"]) == (422, "key")
    page = service.client.ask("GET", "/placements/home?find=key")[2].decode()
    for key in made:
        assert f'data-key="{key}"' in page
        assert f">{key}</a></li>" in page


class Traffic:
    """Clients of one shard's keys, which remember what was acknowledged and when."""

    def __init__(self, service, shard, shards=SHARDS):
        self.service, self.shard, self.shards = service, shard, shards
        self.decided, self.learned, self.sent = {}, {}, {}
        self.answers = []
        self.stopped = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._client, args=(i,)) for i in range(3)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        for thread in self._threads:
            thread.join()

    def _client(self, number):
        rng = random.Random(number)
        keys = [key_in("home", self.shard, i, self.shards) for i in range(10)]
        count = 0
        # With pauses: what comes back meanwhile needs the processor, too.
        while not self.stopped.wait(0.01):
            count += 1
            key = rng.choice(keys)
            status, made = self._post("decide", {"key": key})
            if status != 200:
                assert status is None or (status, made["field"]) == (503, "shard"), made
                time.sleep(0.05)
                continue
            id, feedback = made["decision_id"], f"{self.shard} {number} {count}"
            self.decided[id] = key, made["arm"]
            if rng.random() < 0.1:
                continue
            told = {"decision_id": id, "reward": 1.0, "feedback_id": feedback}
            self.sent[id] = feedback
            # What was refused is sent again, as a client should.
            while not self.stopped.is_set():
                status, answer = self._post("feedback", told)
                if status == 200:
                    self.learned[id] = answer["outcome"]
                    break
                time.sleep(0.05)

    def _post(self, what, body):
        began = time.monotonic()
        try:
            status, answer = self.service.post("home", what, body)
        except (OSError, http.client.HTTPException):
            # Who was about to answer is gone.
            status, answer = None, None
        with self._lock:
            self.answers.append((began, time.monotonic(), status))
        return status, answer


def shown(service, placement="news", shard=0):
    """Return the arms that a shard shows."""
    asked = {"key": key_in(placement, shard)} | ({"context": [0.9]} if placement == "news" else {})
    made = [service.done(placement, "decide", asked) for _ in range(40)]
    for one in made:
        told = {"decision_id": one["decision_id"], "reward": 0.0}
        service.done(placement, "feedback", told)
    return {one["arm"] for one in made}


def test_arms_change_in_all_shards(service, config):
    changed = service.done("news", "arms", {"add": ["d"], "retire": ["a"]})
    assert (changed["arms"], changed["retired"]) == (["b", "c", "d"], ["a"])
    for shard in range(SHARDS):
        assert shown(service, shard=shard) <= {"b", "c", "d"}
    status, problem = service.post("news", "arms", {"add": ["d"]})
    assert (status, problem["field"]) == (422, "add")
    status, problem = service.post("news", "decide", {"key": "q", "arms": ["a"], "context": [0.9]})
    assert (status, problem["field"]) == (422, "arms")
    # The file is followed, too; what was changed by hand stays.
    text = config.read_text()
    head, news, tail = text.partition("[placements.news]")
    config.write_text(head + news + tail.replace('"c"]', '"c", "e"]', 1))
    service.process.send_signal(signal.SIGHUP)
    eventually(lambda: "e" in shown(service, shard=1))
    assert service.done("news", "arms", {})["arms"] == ["b", "c", "d", "e"]
    for shard in range(SHARDS):
        assert shown(service, shard=shard) <= {"b", "c", "d", "e"}


def test_a_killed_shard_comes_back_with_all_it_has_acknowledged(service, config):
    before = service.done("home", "decide", {"key": key_in("home", 0)})
    eventually(lambda: read_shards_up(service))
    with Traffic(service, 0) as lost, Traffic(service, 1) as other:
        eventually(lambda: min(len(lost.learned), len(other.learned)) > 20)
        pid = service.placements()["shards"][0]["pid"]
        # It need not yield to whatever else runs on the machine.
        assert os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, os.getpid())
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)

        def back():
            return any(began > killed and status == 200 for began, _, status in lost.answers)

        eventually(back)
        enough = len(lost.learned) + 20
        eventually(lambda: len(lost.learned) > enough)
    returned = min(end for began, end, status in lost.answers if began > killed and status == 200)
    print(f"back after {returned - killed:.2f} s")
    # The other shard's clients noticed nothing.
    assert {status for _, _, status in other.answers} == {200}
    during = [end for began, end, _ in other.answers if killed < began < returned]
    assert during or returned - killed < 0.5
    # What was decided before takes its feedback now.
    told = {"decision_id": before["decision_id"], "reward": 1.0}
    assert service.done("home", "feedback", told)["outcome"] in LEARNED_OR_WAITS
    shards = eventually(lambda: read_shards_up(service))
    assert [shard["losses"] for shard in shards] == [1, 0]
    assert shards[0]["pid"] != pid
    # Arms that change while a shard is gone have changed when it is back.
    os.kill(shards[1]["pid"], signal.SIGKILL)
    changed = service.done("home", "arms", {"add": ["late"], "retire": ["a"]})
    assert changed["retired"] == ["a"]
    asked = {"key": key_in("home", 1)}
    eventually(lambda: service.post("home", "decide", asked)[0] == 200)
    assert shown(service, "home", shard=1) <= {"b", "c", "late"}
    eventually(lambda: read_shards_up(service))

    page = service.client.ask("GET", "/")[2].decode()
    assert "all 2 answer" in page
    assert page.count("data-shard=") == SHARDS
    metrics = service.client.ask("GET", "/metrics")[2].decode()
    assert 'tacit_shard_losses_total{shard="0"} 1.0' in metrics
    assert 'tacit_shard_up{shard="1"} 1.0' in metrics
    assert "tacit_shared_seconds{" in metrics
    assert service.stop() == 0
    assert_nothing_lost_or_doubled(config, lost, other)


def assert_nothing_lost_or_doubled(config, *traffics):
    """Check that the log has what clients were answered, and of what they sent nothing twice."""
    decided, told = logged(config)
    for traffic in traffics:
        assert len(traffic.learned) > 20
        for id, (key, arm) in traffic.decided.items():
            assert decided[id] == (key, arm)
        for id in traffic.learned:
            assert told[id] == [traffic.sent[id]]
        for id, feedback in traffic.sent.items():
            assert told.get(id, [feedback]) == [feedback]


def logged(config, placement=None):
    """Return all decisions, and the ids of all feedback for each, of all shards.

    Of one placement, or of all.
    """
    decided, told = {}, {}
    for part in list_stores(load_config(config).store):
        with contextlib.closing(PostgresStore(part.url, part.schema)) as store:
            places = {}
            number = placement and store.placements()[placement].id
            for event in store.events(0):
                if placement and event.placement != number:
                    continue
                if isinstance(event, DecisionRow):
                    assert event.id not in decided
                    decided[event.id] = event.key, event.arm
                    places[event.seq] = event.id
                elif isinstance(event, FeedbackRow):
                    told.setdefault(places[event.decision], []).append(event.id)
    return decided, told


def run(*arguments):
    finished = ran(["-m", "tacit", *arguments])
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_the_log_is_right_and_can_be_dealt_out_to_more_shards(service, config, tmp_path):
    if service.process.poll() is None:
        service.stop()
    path, errors = tmp_path / "tacit.toml", tmp_path / "errors"
    text = config.read_text().replace("[placements.held]", "[placements.held]\nsnapshot_every = 777")
    path.write_text(text)
    with errors.open("w") as file:
        assert Service(path, SHARDS, errors=file, address=shared_cluster()).stop() == 0
    (said,) = (line for line in errors.read_text().splitlines() if "configuration:" in line)
    assert said.endswith("configuration: placements.held.snapshot_every: 777, before: 50000")
    assert "agree" in run("log", "verify", "--config", config)
    before = logged(config)
    assert json.loads(run("log", "reshard", "--shards", 3, "--config", config, "--json"))
    assert logged(config) == before
    decided, told = logged(config, "home")
    more = Service(config, 3, address=shared_cluster())
    try:
        ids = [id for id in decided if id not in told]
        partitions = {parse_partition(id) for id in ids} - {None}
        assert {find_shard(partition, 3) for partition in partitions} == {0, 1, 2}
        for id in ids:
            status, answer = more.post("home", "feedback", {"decision_id": id, "reward": 1.0})
            assert status == 200, answer
    finally:
        assert more.stop() == 0


def test_an_ingress_that_is_killed_takes_nothing_acknowledged_with_it(config, tmp_path):
    path, errors = tmp_path / "tacit.toml", tmp_path / "errors"
    path.write_text(config.read_text().replace('"ray_serve"', '"ray_doors"'))
    drop_schemas("ray_doors")
    with errors.open("w") as file:
        service = Service(path, SHARDS, "--ingresses", "2", errors=file, address=shared_cluster())
    try:
        assert len(read_ingresses(errors)) == 1
        with Traffic(service, 0) as here, Traffic(service, 1) as there:
            eventually(lambda: min(len(here.learned), len(there.learned)) > 20)
            os.kill(read_ingresses(errors)[0], signal.SIGKILL)
            eventually(lambda: len(read_ingresses(errors)) == 2)
            # A shard is lost for all of them, and comes back for all.
            os.kill(service.placements()["shards"][0]["pid"], signal.SIGKILL)
            enough = len(here.learned) + 60
            eventually(lambda: len(here.learned) > enough)
        assert all(eventually(lambda: read_shards_up(service)) for _ in range(10))
        # Arms that one of them lets come are there for all, and so is another configuration.
        service.done("home", "arms", {"add": ["late"]})
        eventually(lambda: all("late" in shown(service, "home", shard) for shard in range(SHARDS)))
        path.write_text(path.read_text() + "[placements.more]\narms = 2\n")
        service.process.send_signal(signal.SIGHUP)
        eventually(lambda: service.post("more", "decide", {"key": "q"})[0] == 200)
        asked = [{"key": f"q {i}"} for i in range(40)]
        eventually(lambda: all(service.post("more", "decide", one)[0] == 200 for one in asked))
        assert service.stop() == 0
    finally:
        if service.process.poll() is None:
            service.stop()
    assert_nothing_lost_or_doubled(path, here, there)
    assert "agree" in run("log", "verify", "--config", path)


def test_files_and_missing_shards_are_refused():
    for arguments, told in (
        (["--ray"], "shards keep their log in PostgreSQL"),
        (["--shards", "2"], "only with --ray"),
    ):
        finished = ran(["-m", "tacit", "serve", *arguments])
        assert finished.returncode in (1, 2)
        assert told in finished.stderr
