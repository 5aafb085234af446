"""What shards cost, against independent servers whose clients pick one by the key.

    python benchmarks/shards.py [--seconds 5] [--rounds 5] [--shards 2] [--connections 64]

All keep their log in a PostgreSQL of their own on this machine and are sent the same from a process of its
own: keys after a Zipf law, a decision and then its feedback, and decisions in batches of 100. Sides:

- ``independent``: servers that do not know each other; the client hashes the key;
- ``known``: shards, by a client that knows the table;
- ``forwarded``: shards, each request at another one than that of its key; each batch as a whole at one shard.

The times are those of the processor, of all servers together, without PostgreSQL and the load. Rounds of all
sides alternate; of each side the least is taken.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from serve import Connection, cpu_seconds

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import stores

from tacit.service.log.ids import find_shard, hash_partition

KEYS, BATCH = 1000, 100
SIDES = "independent", "known", "forwarded"


@contextlib.contextmanager
def serving(side, shards):
    """Run the servers of a side; give their processes and ports."""
    ports = [stores.free_port() for _ in range(shards)]
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        (folder / "peers").write_text("".join(f"http://127.0.0.1:{port}\n" for port in ports))
        processes = []
        for number, port in enumerate(ports):
            schema = f"bench_{number}" if side == "independent" else "bench"
            config = folder / f"{number}.toml"
            config.write_text(
                f'[store]\nurl = "{stores.cluster().url}"\nschema = "{schema}"\n'
                '[placements.default]\narms = 10\npolicy = "ucb1"\nseed = 1\n'
            )
            command = [sys.executable, "-m", "tacit", "serve", "--config", config, "--port", port]
            if side != "independent":
                command += ["--shard", f"{number}/{shards}", "--peers", folder / "peers"]
            process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            processes.append(process)
        for process in processes:
            assert process.stdout.readline().startswith("tacit serves at")
        yield processes, ports


async def load(side, ports, seconds, batch, connections):
    """Send for a while; return requests and decisions."""
    keys = np.minimum(np.random.default_rng(1).zipf(1.2, 100_000), KEYS).tolist()
    requests, decisions, end = 0, 0, time.perf_counter() + seconds
    away = side == "forwarded"

    def place_of(key):
        return (find_shard(hash_partition("default", key), len(ports)) + away) % len(ports)

    async def post(link, path, body):
        nonlocal requests
        requests += 1
        status, answer = await link.post(path, body)
        assert status == b"200", answer
        return answer

    async def client(number):
        nonlocal decisions
        loop = asyncio.get_running_loop()
        links = [(await loop.create_connection(Connection, "127.0.0.1", port))[1] for port in ports]
        place = number * 997
        while time.perf_counter() < end:
            names = [f"query {keys[(place + i) % len(keys)]}" for i in range(batch or 1)]
            place += len(names)
            decisions += len(names)
            if not batch:
                link = links[place_of(names[0])]
                answer = await post(link, b"decide", b'{"key": "%s"}' % names[0].encode())
                body = b'{"decision_id": "%s", "reward": %d}' % (answer[16:52], place % 3 == 0)
                await post(link, b"feedback", body)
                continue
            groups = {}
            for name in names:
                groups.setdefault(place % len(ports) if away else place_of(name), []).append({"key": name})
            await asyncio.gather(
                *(
                    post(links[shard], b"decide/batch", json.dumps({"decisions": group}).encode())
                    for shard, group in groups.items()
                )
            )
        for link in links:
            link.transport.close()

    await asyncio.gather(*map(client, range(connections)))
    return requests, decisions


def measure(side, shards, seconds, connections):
    """Return microseconds of the processor for a request, and for a decision in batches."""
    found = {}
    with serving(side, shards) as (processes, ports):
        for batch, count in ((0, connections), (BATCH, 8)):
            for warm in (True, False):
                before = sum(map(cpu_seconds, processes))
                told = side, ports, 1.0 if warm else seconds, batch, count
                command = [sys.executable, __file__, "--load", json.dumps(told)]
                run = subprocess.run(command, check=True, capture_output=True)
                requests, decisions = json.loads(run.stdout)
            spent = sum(map(cpu_seconds, processes)) - before
            found["batches" if batch else "single"] = 1e6 * spent / (decisions if batch else requests)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--load", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.load:
        print(json.dumps(asyncio.run(load(*json.loads(told.load)))))
        return
    least = {}
    for _ in range(told.rounds):
        for side in SIDES:
            found = measure(side, told.shards, told.seconds, told.connections)
            print(side, json.dumps(found), flush=True)
            for what, value in found.items():
                least[side, what] = min(value, least.get((side, what), np.inf))
    for what in ("single", "batches"):
        whole = least["independent", what]
        text = ", ".join(
            f"{side} {least[side, what]:.1f} µs ({least[side, what] / whole:.2f})" for side in SIDES
        )
        print(f"{what}: {text}")


if __name__ == "__main__":
    main()
