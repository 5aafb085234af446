"""A service in shards: its configuration, its processes with and without Ray, its callers and its log."""

import atexit
import contextlib
import functools
import os
import random
import signal
import subprocess
import threading

import stores
from forked import Forked, ran
from harness import PATIENCE, Client, eventually
from placement_access import list_stores

from tacit.service.config.file import load_config
from tacit.service.log.ids import find_shard, hash_partition, parse_partition
from tacit.service.log.postgres import PostgresStore
from tacit.service.log.rows import DecisionRow, FeedbackRow

SHARDS = 2
CONFIG = """
[server]
port = {port}
[store]
url = "{url}"
schema = "{schema}"
[placements.home]
arms = ["a", "b", "c"]
policy = "thompson"
snapshot_every = 200
attribution_window = 86400
[placements.news]
arms = ["a", "b", "c"]
policy = {{ name = "BWC", classifier = "rectangle(dim=1, margin=0.1)", test_rounds = 4 }}
attribution_window = 600
[placements.all]
arms = ["a", "b", "c"]
policy = "epsilon-greedy(epsilon=0.5)"
attribution_window = 86400
spread = true
[placements.video]
kind = "features"
policy = "laplace-ec(relevance_dim=1, examination_dim=1, relevance_intercept=True)"
attribution_window = 600
spread = true
[placements.scores]
kind = "features"
policy = "laplace-ec(relevance_dim=1, examination_dim=1, relevance_intercept=True)"
[placements.lists]
kind = "slates"
relevance_dim = 2
positions = 2
attribution_window = 600
[placements.rankers]
kind = "duels"
rankers = ["old", "new"]
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


def configured(folder, more=""):
    """Write a configuration, whose log is the folder's; return its path."""
    path = folder / "tacit.toml"
    # Each shard on Ray listens at a port of its own.
    port, *_ = (stores.free_port() for _ in range(3))
    schema = stores.schema_of(folder)
    path.write_text(CONFIG.format(url=stores.cluster().url, schema=schema, port=port) + more)
    return path


def key_in(placement, shard, number=0, shards=SHARDS):
    """Return a key of a shard."""
    keys = (f"key {i}" for i in range(10_000))
    return [key for key in keys if find_shard(hash_partition(placement, key), shards) == shard][number]


def shard_of(made, shards=SHARDS):
    """Return the shard of a decision."""
    return find_shard(parse_partition(made["decision_id"]), shards)


# Processes -----------------------------------------------------------------------------------


def started(*arguments, **options):
    """Start ``tacit serve``; return its process, and its address once it answers."""
    process = Forked(["-m", "tacit", "serve", *arguments], stdout=subprocess.PIPE, text=True, **options)
    hangs = threading.Timer(PATIENCE, process.kill)
    hangs.start()
    line = process.stdout.readline()
    hangs.cancel()
    assert line.startswith("tacit serves at"), line
    return process, line.split()[3]


class Service:
    """Processes that serve shards at some addresses."""

    def client(self, number=0):
        return Client(self.urls[number])

    def post(self, placement, what, body, number=0):
        status, _, answer = self.client(number).post(f"{placement}/{what}", body)
        return status, answer

    def done(self, *asked, **options):
        status, answer = self.post(*asked, **options)
        assert status == 200, answer
        return answer

    def read(self, path="/v1/placements", number=0):
        status, _, content = self.client(number).ask("GET", path)
        assert status == 200, content
        return content if isinstance(content, dict) else content.decode()

    def read_shards_up(self, number=0):
        """Return what a shard says of all if all are up, else None."""
        with contextlib.suppress(OSError):
            shards = self.read(number=number)["shards"]
            return shards if all(shard["up"] for shard in shards) else None

    def stop(self):
        """Stop all processes; return whether they ended well."""
        for process in self.processes:
            process.terminate()
        try:
            return [process.wait(PATIENCE) for process in self.processes] == [0] * len(self.processes)
        finally:
            for process in self.processes:
                process.kill()
                process.stdout.close()


class OnRay(Service):
    """``tacit serve --ray`` in a process of its own."""

    def __init__(self, config, shards=SHARDS, *, address="local", **options):
        environment = {name: value for name, value in os.environ.items() if name != "RAY_worker_niceness"}
        arguments = ["--config", config, "--shards", shards, "--merge-seconds", "0.2", "--ray", address]
        process, url = started(*arguments, env=environment, **options)
        self.config, self.processes, self.urls = config, [process], [url]


class Shards(Service):
    """Processes that serve a log's shards, which are started again when they are killed."""

    def __init__(self, config, shards=SHARDS):
        self.config, self._peers = config, config.with_name("peers")
        self.urls = [f"http://127.0.0.1:{stores.free_port()}" for _ in range(shards)]
        self._write()
        self.processes = [self._start(number) for number in range(shards)]

    def await_each_other(self):
        """Wait until each shard knows that all are up.

        It has found those lost that began after it, and refuses their requests until it asks them again.
        """
        eventually(lambda: all(map(self.read_shards_up, range(len(self.urls)))))

    def _write(self):
        fresh = self._peers.with_suffix(".new")
        fresh.write_text("".join(f"{url}\n" for url in self.urls))
        fresh.rename(self._peers)

    def _start(self, number):
        shard, port = f"{number}/{len(self.urls)}", self.urls[number].rpartition(":")[2]
        arguments = ["--shard", shard, "--peers", self._peers, "--port", port, "--merge-seconds", "0.2"]
        return started("--config", self.config, *arguments)[0]

    def move(self, number):
        """Kill a shard, and start it again at another address; return once it answers."""
        self.processes[number].kill()
        self.processes[number].wait(PATIENCE)
        self.urls[number] = f"http://127.0.0.1:{stores.free_port()}"
        self._write()
        self.processes[number] = self._start(number)


@contextlib.contextmanager
def served(kind, config, *shards, **options):
    """Yield a service of a kind; it ends well, and its log is right."""
    service = kind(config, *shards, **options)
    try:
        yield service
    finally:
        if any(process.poll() is None for process in service.processes):
            assert service.stop()
    assert "agree" in run("log", "verify", "--config", config)


@functools.cache
def shared_cluster():
    """Start a cluster for all services that need none of their own; return its address."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 100_000_000})
    atexit.register(made.shutdown)
    return made.address


# Callers, and what the log has of them -------------------------------------------------------

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
    """A process that decides and clicks, by a client that knows the shards unless another code is given."""

    def __init__(self, *arguments, code=CALLER):
        self.said = []
        self.process = Forked(["-c", code, *arguments], stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        # The last line may be torn.
        self.said += (line.strip() for line in self.process.stdout if line.endswith("\n"))

    def says_more(self, count):
        enough = len(self.said) + count
        eventually(lambda: len(self.said) >= enough)

    def kill(self):
        """Kill the process, if that was not done before; return what it said."""
        self.process.kill()
        self.process.wait(PATIENCE)
        self._thread.join(PATIENCE)
        return self.said


@contextlib.contextmanager
def calling(*callers):
    """Yield a list of callers; at the end all that were in there are killed."""
    present = list(callers)
    try:
        yield present
    finally:
        for caller in present:
            caller.kill()


def play_kills(shards, kills):
    """Kill shards, which come back elsewhere, and clients, in turn, under load; return what clients said."""
    said, rng = [], random.Random(1)
    with calling(*(Caller(shards.urls[i % SHARDS]) for i in range(2))) as callers:
        for turn in range(kills + 1):
            for caller in callers:
                caller.says_more(20)
            if turn % 2 == 0 and turn < kills:
                shards.move(rng.randrange(SHARDS))
            else:
                number = rng.randrange(len(callers))
                said += callers[number].kill()
                callers[number] = Caller(shards.urls[rng.randrange(SHARDS)])
    return said + [line for caller in callers for line in caller.said]


def check_said(config, said):
    """Return how many decisions and clicks were acknowledged; nothing of them is lost or doubled."""
    decided, told = logged(config, "home")
    clicks = {line.removeprefix("told ") for line in said if line.startswith("told ")}
    acknowledged = [line for line in said if not line.startswith("told ")]
    assert len(set(acknowledged)) == len(acknowledged)
    assert set(acknowledged) <= set(decided)
    assert {id: told.get(id) for id in clicks} == {id: [f"of {id}"] for id in clicks}
    assert max(map(len, told.values())) == 1
    return len(acknowledged), len(clicks)


def iterate_events(config, placement):
    """Yield the events of a placement with the decision that each is of, from the logs of all shards."""
    for part in list_stores(load_config(config).store):
        with contextlib.closing(PostgresStore(part.url, part.schema)) as store:
            number, decisions = store.placements()[placement].id, {}
            for event in store.events(0):
                if event.placement == number and isinstance(event, DecisionRow):
                    decisions[event.seq] = event
                    yield event, event
                elif event.placement == number and isinstance(event, FeedbackRow):
                    yield event, decisions[event.decision]


def logged(config, placement):
    """Return the decisions of a placement, and the ids of all feedback for each, of all shards."""
    decided, told = {}, {}
    for event, decision in iterate_events(config, placement):
        if event is decision:
            assert event.id not in decided
            decided[event.id] = event.key, event.arm
        else:
            told.setdefault(decision.id, []).append(event.id)
    return decided, told


def run(*arguments):
    finished = ran(["-m", "tacit", *arguments])
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


# What holds with and without Ray -------------------------------------------------------------


def shown(service, placement="news", shard=0):
    """Return the arms that a shard shows."""
    asked = {"key": key_in(placement, shard)} | ({"context": [0.9]} if placement == "news" else {})
    made = [service.done(placement, "decide", asked) for _ in range(40)]
    for one in made:
        service.done(placement, "feedback", {"decision_id": one["decision_id"], "reward": 0.0})
    return {one["arm"] for one in made}


def check_changes_of_arms(service):
    """Arms that are changed by hand, or in the file, change in all shards."""
    changed = service.done("news", "arms", {"add": ["d"], "retire": ["a"]})
    assert (changed["arms"], changed["retired"]) == (["b", "c", "d"], ["a"])
    for shard in range(SHARDS):
        assert shown(service, shard=shard) <= {"b", "c", "d"}
    status, problem = service.post("news", "arms", {"add": ["d"]})
    assert (status, problem["field"]) == (422, "add")
    status, problem = service.post("news", "decide", {"key": "q", "arms": ["a"], "context": [0.9]})
    assert (status, problem["field"]) == (422, "arms")
    # The file is followed, too; what was changed by hand stays.
    head, news, tail = service.config.read_text().partition("[placements.news]")
    service.config.write_text(head + news + tail.replace('"c"]', '"c", "e"]', 1))
    for process in service.processes:
        process.send_signal(signal.SIGHUP)
    eventually(lambda: "e" in shown(service, shard=1))
    assert service.done("news", "arms", {})["arms"] == ["b", "c", "d", "e"]
    for shard in range(SHARDS):
        assert shown(service, shard=shard) <= {"b", "c", "d", "e"}
