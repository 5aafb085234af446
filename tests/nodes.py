"""Three nodes of a Ray cluster on this machine, one of which is killed at each kind of work.

python tests/nodes.py

A sweep and an evaluation must give what one process gives, and a service in shards must lose
nothing that it has acknowledged.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
from harness import eventually
from ray.cluster_utils import Cluster
from sharded import Caller, OnRay, Shards, calling, check_said, configured, play_kills
from sharded import served as serve

import tacit
from tacit import cluster as clusters
from tacit.evaluate import IPS, DoublyRobust, Uniform, off_policy

SHARDS = 3
STORE_BYTES = 100_000_000
POLICIES = [tacit.UCB1(5), tacit.Thompson(5), tacit.policies.baselines.SlidingWindowUCB(5)]
ARMS = list("abcde")
ENVIRONMENT = tacit.ShiftingArms()
PARTS, PART_ROWS = 3, 4_000_000


@contextlib.contextmanager
def three_nodes():
    """Yield a cluster of three nodes with a core each, and the last of them."""
    node = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
    made = Cluster(initialize_head=True, head_node_args=node)
    try:
        made.add_node(**node)
        yield made, made.add_node(**node)
    finally:
        made.shutdown()


def children(node, title):
    """Return the processes of a node whose title begins so."""
    (raylet,) = node.all_processes["raylet"]
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == raylet.process.pid and (folder / "cmdline").read_text().startswith(title):
                found.append(int(folder.name))
    return found


def killed_at_work(made, node, title):
    """Kill a node as soon as it works; return the thread, and when that was, in a list."""
    killed = []

    def kill():
        eventually(lambda: children(node, title))
        made.remove_node(node, allow_graceful=False)
        killed.append(time.monotonic())

    thread = threading.Thread(target=kill)
    thread.start()
    return thread, killed


def done_on(made, node, work, title="ray::_run_task"):
    """Return what work gives on a cluster of which a node is killed, and how long it took after."""
    thread, killed = killed_at_work(made, node, title)
    with clusters.on_ray(made.address):
        result = work()
    ended = time.monotonic()
    thread.join()
    assert killed[0] < ended, "it was done before the node was killed"
    return result, ended - killed[0]


def sweep():
    result = tacit.simulate(POLICIES, ENVIRONMENT, 1_000_000, runs=24, seed=1)
    return [one.tobytes() for one in (result.regret, result.reward)]


def evaluation(path, spread):
    function = clusters.off_policy if spread else off_policy
    return function(Uniform(), tacit.read_log(path, arms=ARMS), [IPS(), DoublyRobust()])


def a_log(folder):
    """Write a log of uniform decisions over five arms, of as many parts as there are nodes."""
    rng, path, names = np.random.default_rng(1), folder / "log.parquet", np.array(ARMS)
    writer = None
    for _ in range(PARTS):
        shown = rng.integers(5, size=PART_ROWS)
        columns = {
            "key": names[rng.integers(5, size=PART_ROWS)],
            "arm": names[shown],
            "propensity": np.full(PART_ROWS, 0.2),
            "reward": (rng.random(PART_ROWS) < 0.1 * (1 + shown)).astype(float),
        }
        table = pyarrow.table(columns)
        writer = writer or pyarrow.parquet.ParquetWriter(path, table.schema)
        writer.write_table(table, row_group_size=500_000)
    writer.close()
    return path


def served(folder):
    """Kill a node that has a shard, under traffic; return what was seen."""
    path = configured(folder)
    with (
        three_nodes() as (made, node),
        serve(OnRay, path, SHARDS, address=made.address) as service,
        calling(*(Caller(service.urls[0]) for _ in range(3))) as callers,
    ):
        for caller in callers:
            caller.says_more(20)
        assert children(node, "ray::ShardActor"), "the node had no shard"
        made.remove_node(node, allow_graceful=False)
        for caller in callers:
            caller.says_more(400)
    said = [line for caller in callers for line in caller.said]
    return {"right": True, "acknowledged": check_said(path, said)}


def killed(folder, kills):
    """Kill clients, and shards without Ray, which come back elsewhere; return what was seen."""
    path = configured(folder)
    with serve(Shards, path) as shards:
        said = play_kills(shards, kills)
    return {"right": True, "kills": kills, "acknowledged": check_said(path, said)}


def swept(folder):
    """Kill a node in the middle of a sweep; return what was seen."""
    local = sweep()
    with three_nodes() as (made, node):
        found, seconds = done_on(made, node, sweep)
    return {"right": found == local, "seconds after the kill": round(seconds, 1)}


def evaluated(folder):
    """Kill a node in the middle of an evaluation; return what was seen."""
    path = a_log(folder)
    local = evaluation(path, spread=False)
    with three_nodes() as (made, node):
        found, seconds = done_on(made, node, lambda: evaluation(path, spread=True))
    ours, its = ([one.value for one in each.estimates] for each in (local, found))
    return {"right": bool(np.allclose(ours, its, rtol=1e-12)), "seconds after the kill": round(seconds, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["sweep", "evaluation", "service", "kills"])
    parser.add_argument("--kills", type=int, default=40)
    told = parser.parse_args()
    only = told.only
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kinds = {"sweep": swept, "evaluation": evaluated, "service": served}
        for what, work in (kinds | {"kills": partial(killed, kills=told.kills)}).items():
            if only in (None, what):
                (folder / what).mkdir()
                seen = work(folder / what)
                print(f"{what}: {json.dumps(seen)}", flush=True)
                wrong += [] if seen["right"] else [what]
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
