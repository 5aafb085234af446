"""The service in shards on Ray: one is killed and comes back, all learn together."""

from __future__ import annotations

import atexit
import collections
import contextlib
import functools
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
import stores
from forked import Forked, ran
from harness import PATIENCE, Client, eventually
from placement_access import list_stores

from tacit.service.config.file import load_config
from tacit.service.log.ids import find_shard, hash_partition, parse_partition
from tacit.service.log.postgres import PostgresStore
from tacit.service.log.rows import DecisionRow, FeedbackRow

pytest.importorskip("ray", reason="the extra 'ray' is not installed")

SHARDS = 2
# Another test may have left a decision of the same key that waits.
LEARNED_OR_WAITS = "learned", "pending"
CONFIG = """
[server]
port = {port}
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


def free_ports():
    """Return a port of which the next two are free, too: each shard listens at one of its own."""
    first, *_ = (stores.free_port() for _ in range(3))
    return first


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("ray") / "tacit.toml"
    path.write_text(CONFIG.format(url=stores.cluster().url, port=free_ports()))
    return path


def drop_schemas(schema):
    """Drop what an earlier run left of a service's schemas, also of another number of shards."""
    parts = [f"{schema}_g{generation}s{i}" for generation in (1, 2) for i in range(3)]
    with psycopg.connect(stores.cluster().url, autocommit=True) as connection:
        for name in (schema, *parts):
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


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


def seconds_used(pid):
    """Return the processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def test_without_requests_hardly_anything_is_computed(service):
    pids = [service.process.pid, *(shard["pid"] for shard in eventually(lambda: read_shards_up(service)))]
    began, used = time.monotonic(), [seconds_used(pid) for pid in pids]
    eventually(lambda: time.monotonic() > began + 3.0)
    seconds = time.monotonic() - began
    assert max(seconds_used(pid) - before for pid, before in zip(pids, used, strict=True)) < 0.15 * seconds


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


CALLER = """
import itertools, sys
from tacit.client import Client
with Client(sys.argv[1], retries=1000, timeout=5) as client:
    for i in itertools.count():
        shown = client.decide("home", f"key {i % 20}")
        print(shown.decision_id, flush=True)
        if shown.arm == "b":
            client.feedback("home", shown.decision_id, 1.0, feedback_id=f"of {shown.decision_id}")
            print("told", shown.decision_id, flush=True)
"""


class Caller:
    """A process that decides and clicks by a client that knows the shards; what it has said is known of."""

    def __init__(self, url):
        self.said = []
        self.process = Forked(["-c", CALLER, url], stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self):
        self.said += (line.strip() for line in self.process.stdout if line.endswith("\n"))

    def says_more(self, count):
        enough = len(self.said) + count
        eventually(lambda: len(self.said) >= enough)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self._thread.join()
        self.process.stdout.close()
        return self.said


def check_said(config, said):
    """Return how many decisions and clicks were acknowledged; nothing of them is lost or doubled."""
    decided, told = logged(config, "home")
    clicks = {line.removeprefix("told ") for line in said if line.startswith("told ")}
    acknowledged = [line for line in said if not line.startswith("told ")]
    assert len(set(acknowledged)) == len(acknowledged)
    assert set(acknowledged) <= set(decided)
    for id in clicks:
        assert told[id] == [f"of {id}"]
    assert max(map(len, told.values())) == 1
    return len(acknowledged), len(clicks)


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
    before = service.done("home", "decide", {"key": key_in("home", 1)})
    pid = eventually(lambda: read_shards_up(service))[1]["pid"]
    # It need not yield to whatever else runs on the machine.
    assert os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, os.getpid())
    caller = Caller(f"http://127.0.0.1:{service.client.port}")
    caller.says_more(40)
    os.kill(pid, signal.SIGKILL)
    # Keys of the other shard go on, and arms that change while a shard is gone have changed when it is back.
    assert service.done("home", "arms", {"add": ["late"], "retire": ["a"]})["retired"] == ["a"]
    assert service.done("home", "decide", {"key": key_in("home", 0)})["arm"] != "a"
    eventually(lambda: service.post("home", "decide", {"key": key_in("home", 1)})[0] == 200)
    assert shown(service, "home", shard=1) <= {"b", "c", "late"}
    caller.says_more(40)
    said = caller.kill()
    # What was decided before takes its feedback now.
    told = {"decision_id": before["decision_id"], "reward": 1.0}
    assert service.done("home", "feedback", told)["outcome"] in LEARNED_OR_WAITS
    shards = eventually(lambda: read_shards_up(service))
    assert [shard["losses"] for shard in shards] == [0, 1]
    assert shards[1]["pid"] != pid
    page = service.client.ask("GET", "/")[2].decode()
    assert "all 2 answer" in page
    assert page.count("data-shard=") == SHARDS
    metrics = service.client.ask("GET", "/metrics")[2].decode()
    assert 'tacit_shard_losses_total{shard="1"} 1.0' in metrics
    assert 'tacit_shard_up{shard="1"} 1.0' in metrics
    assert "tacit_shared_seconds{" in metrics
    assert service.stop() == 0
    assert min(check_said(config, said)) > 0


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


def test_the_log_is_right_and_can_be_dealt_out_to_more_shards(service, config):
    if service.process.poll() is None:
        service.stop()
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


def test_files_and_missing_shards_are_refused():
    for arguments, told in (
        (["--ray"], "shards keep their log in PostgreSQL"),
        (["--shards", "2"], "only with --ray"),
        (["--ray", "--ingresses", "2"], "leave it out, and send requests to any shard"),
        (["--shard", "0/2"], "give it together with --peers"),
    ):
        finished = ran(["-m", "tacit", "serve", *arguments])
        assert finished.returncode in (1, 2)
        assert told in finished.stderr
