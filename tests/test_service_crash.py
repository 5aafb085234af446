"""The service killed in the middle of traffic: nothing acknowledged is lost or doubled."""

from __future__ import annotations

import http.client
import random
import signal
import threading

import harness
import pytest
from harness import PATIENCE, Client, arrays, eventually, snapshots, started, stopped

from tacit.learning.learner import restored
from tacit.learning.snapshot import from_bytes
from tacit.service.config.file import load_config
from tacit.service.engine.engine import Engine
from tacit.service.log.rows import DecisionRow, FeedbackRow
from tacit.service.log.sqlite import SqliteStore

ROUNDS = 3
CLIENTS = 6
REQUESTS_BEFORE_KILL = 250
CONFIG = """
[server]
port = 0
[store]
path = "s.db"
[placements.home]
arms = ["a", "b", "c", "d", "e"]
policy = "thompson(discount=0.99)"
seed = 11
snapshot_every = 150
attribution_window = 0.1
"""
WINDOW = 100_000
JSON = {"content-type": "application/json"}


class Traffic:
    """Clients that remember what was acknowledged to them, and what was sent at all."""

    def __init__(self):
        self.decided = {}
        self.learned = {}
        self.sent = {}
        self.enough = threading.Event()
        self._lock = threading.Lock()
        self._count = 0

    def play(self, port):
        """Send traffic until the server is gone."""
        self.enough.clear()
        self._count = 0
        threads = [threading.Thread(target=self._client, args=(port, i)) for i in range(CLIENTS)]
        for thread in threads:
            thread.start()
        return threads

    def _client(self, port, number):
        rng = random.Random(number)
        client = Client(f":{port}")

        def post(what, body):
            status, _, answer = client.post(f"home/{what}", body)
            assert status == 200, answer
            return answer

        try:
            while True:
                key = f"key {rng.randrange(20)}"
                decision = post("decide", {"key": key})
                id, reward = decision["decision_id"], float(rng.random() < 0.3)
                with self._lock:
                    self.decided[id] = (key, decision["arm"], decision["propensity"])
                    self.sent[id] = reward
                if rng.random() < 0.2:
                    continue
                post("feedback", {"decision_id": id, "reward": reward})
                with self._lock:
                    self.learned[id] = reward
                    self._count += 1
                    if self._count >= REQUESTS_BEFORE_KILL // 2:
                        self.enough.set()
        except (OSError, http.client.HTTPException):
            return


def count_defaults(events):
    """Return how many windows closed without feedback."""
    told = {event.decision for event in events if isinstance(event, FeedbackRow)}
    decisions = [event for event in events if isinstance(event, DecisionRow)]
    return sum(row.seq not in told and row.time + WINDOW <= events[-1].time for row in decisions)


def check_log(events, traffic):
    """Compare the log with what the clients were told."""
    decisions = [event for event in events if isinstance(event, DecisionRow)]
    told = [event for event in events if isinstance(event, FeedbackRow)]
    logged = {row.id: (row.key, row.arm, row.propensity) for row in decisions}
    ids = {row.seq: row.id for row in decisions}
    rewards = {ids[row.decision]: row.reward for row in told}
    assert len(logged) == len(decisions), "a decision is in the log twice"
    assert len(rewards) == len(told), "feedback is in the log twice"
    assert {id: logged.get(id) for id in traffic.decided} == traffic.decided
    assert {id: rewards.get(id) for id in traffic.learned} == traffic.learned
    assert rewards.items() <= traffic.sent.items()


@pytest.mark.parametrize("seed", [0])
def test_what_was_acknowledged_survives_kill_9_exactly_once(tmp_path, seed):
    config = tmp_path / "tacit.toml"
    config.write_text(CONFIG)
    traffic = Traffic()
    for _ in range(ROUNDS):
        process, port = started(config)
        threads = traffic.play(port)
        assert traffic.enough.wait(PATIENCE)
        eventually(lambda: snapshots(tmp_path / "s.db"))
        assert stopped(process, signal.SIGKILL) == -signal.SIGKILL
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        store = SqliteStore(tmp_path / "s.db")
        events = list(store.events(0))
        check_log(events, traffic)
        assert store.snapshot(1).seq > 0, "no snapshot took part"
        recovered = Engine(load_config(config), store).placements["home"].learner
        store.close()
        plain = harness.folded(tmp_path / "s.db", load_config(config)).learner
        assert arrays(recovered) == arrays(plain)
        assert count_defaults(events) > 0, "no window closed without feedback"
    assert len(traffic.learned) >= ROUNDS * REQUESTS_BEFORE_KILL // 2

    # The state of a server that lived, as it wrote it down when it was asked to stop.
    process, port = started(config)
    threads = traffic.play(port)
    assert traffic.enough.wait(PATIENCE)
    assert stopped(process, signal.SIGTERM) == 0
    for thread in threads:
        thread.join(PATIENCE)
    store = SqliteStore(tmp_path / "s.db")
    events = list(store.events(0))
    snapshot = store.snapshot(1)
    store.close()
    check_log(events, traffic)
    assert snapshot.seq == events[-1].seq
    plain = harness.folded(tmp_path / "s.db", load_config(config)).learner
    assert arrays(from_bytes(snapshot.learner, "the last snapshot", restored)) == arrays(plain)
