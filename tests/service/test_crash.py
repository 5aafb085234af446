"""The service killed in the middle of traffic: nothing acknowledged is lost or doubled."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import random
import re
import signal
import threading
from collections import Counter

import harness
import pytest
import stores
from click_lessons import check_lessons
from click_traffic import CLICK_PLACEMENTS, CLICK_WINDOWS, ClickTraffic
from harness import PATIENCE, Client, arrays, eventually, snapshots, started, stopped
from placement_access import Engine, list_waiting

from tacit.learning.learner import restore_learner
from tacit.learning.snapshot import from_bytes
from tacit.service.config.file import load_config
from tacit.service.log.rows import DecisionRow, FeedbackRow
from tacit.service.log.sqlite import SqliteStore
from tacit.service.maintenance.doctor import verify

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
    assert arrays(from_bytes(snapshot.learner, "the last snapshot", restore_learner)) == arrays(plain)


# Clicks alone: silence is learned when windows close ------------------------------------------

LEAST_KILLS = 3
CLICKS_BEFORE_KILL = 25
UNLEARNED = re.compile(r'^tacit_unlearned_decisions\{placement="slow"\} (\d+)', re.MULTILINE)
SLOW_WINDOW = """
[placements.slow]
arms = ["a", "b", "c"]
seed = 20
attribution_window = 3600
"""


def write_config(folder, kind, placements):
    """Write a configuration of a store of a kind; return its path and its port, which stays."""
    store = 'path = "s.db"'
    if kind == "postgres":
        store = f'url = "{stores.cluster().url}"\nschema = "{stores.schema_of(folder / "s.db")}"'
    port, path = stores.free_port(), folder / "tacit.toml"
    path.write_text(f"[server]\nport = {port}\n[store]\n{store}\n{placements}")
    return path, port


def check_clicks(folder, traffic):
    """Compare a store with what was acknowledged; return report, snapshot and last row of each placement."""
    decided, told = dict(traffic.decided), dict(traffic.told)
    config = load_config(folder / "tacit.toml")
    with contextlib.closing(stores.store_at(folder / "s.db")) as store:
        assert verify(config, store) == []
        names = {placement.id: name for name, placement in store.placements().items()}
        events = list(store.events(0))
        decisions = [event for event in events if isinstance(event, DecisionRow)]
        ids = {row.seq: (names[row.placement], row.id) for row in decisions}
        shown = {ids[row.seq]: (row.key, row.arm, row.propensity) for row in decisions}
        rewards = [(ids[row.decision], row.reward) for row in events if isinstance(row, FeedbackRow)]
        assert len(shown) == len(decisions), "a decision is in the log twice"
        assert len(dict(rewards)) == len(rewards), "a click is in the log twice"
        assert {name: shown.get(name) for name in decided} == decided
        assert {name: dict(rewards).get(name) for name in told} == told
        reports = {name: check_lessons(name, config, store) for name in CLICK_WINDOWS}
        assert [problem for report in reports.values() for problem in report.problems] == []
        last_rows = dict.fromkeys(CLICK_WINDOWS, 0)
        last_rows.update((names[row.placement], row.seq) for row in decisions)
        for row in events:
            if isinstance(row, FeedbackRow):
                last_rows[ids[row.decision][0]] = row.seq
        snapshots = {name: store.snapshot(store.placements()[name].id) for name in CLICK_WINDOWS}
        return reports, {name: each and each.seq for name, each in snapshots.items()}, last_rows


def test_clicks_alone_are_learned_once_at_whatever_moment_of_their_windows_a_kill_comes(kind, tmp_path):
    path, port = write_config(tmp_path, kind, CLICK_PLACEMENTS)
    rng, moments = random.Random(kind), Counter()
    with contextlib.closing(ClickTraffic(port, 0)) as traffic:
        for kill in itertools.count():
            process, _ = started(path)
            enough = len(traffic.told) + CLICKS_BEFORE_KILL
            eventually(lambda: len(traffic.told) >= enough)  # noqa: B023
            if kill >= LEAST_KILLS and len(moments) == 2:
                break
            if kill % 2:
                traffic.await_close(rng)
            assert stopped(process, signal.SIGKILL) == -signal.SIGKILL
            reports, _, _ = check_clicks(tmp_path, traffic)
            moments += Counter(
                between=sum(report.waiting_clicked > 0 for report in reports.values()),
                closing=sum(report.closing > 0 for report in reports.values()),
            )
        # The state of a server that lived, as it wrote it down when it was asked to stop.
        assert stopped(process, signal.SIGTERM) == 0
    reports, snapshots, last_rows = check_clicks(tmp_path, traffic)
    assert traffic.wrong == []
    # A placement without rows since its last snapshot needs no other one.
    assert {name: seq for name, seq in snapshots.items() if seq < last_rows[name]} == {}
    # All of the log: nothing of it is dropped.
    for name in CLICK_WINDOWS:
        decisions = sum(placement == name for placement, _ in traffic.decided)
        assert reports[name].lessons + reports[name].waiting >= decisions
        assert reports[name].lessons > 0


def test_what_waited_at_a_kill_waits_again_in_the_same_order(kind, tmp_path):
    path, port = write_config(tmp_path, kind, SLOW_WINDOW)
    client, ids = Client(f":{port}"), [f"d{i}" for i in range(12)]
    asked = {"decisions": [{"key": "k", "decision_id": id} for id in ids]}

    def click(number):
        body = {"decision_id": f"d{number}", "reward": 1.0, "feedback_id": "click"}
        status, _, answer = client.post("slow/feedback", body)
        assert status == 200, answer
        return answer["outcome"]

    def decide():
        status, _, answer = client.post("slow/decide/batch", asked)
        assert status == 200, answer
        return [(each["decision_id"], each["arm"], each["propensity"]) for each in answer["decisions"]]

    def unlearned():
        return int(float(UNLEARNED.search(client.ask("GET", "/metrics")[2].decode()).group(1)))

    process, _ = started(path)
    decided = decide()
    assert [click(number) for number in (5, 3, 0, 11)] == ["pending", "pending", "learned", "pending"]
    assert unlearned() == 11
    assert stopped(process, signal.SIGKILL) == -signal.SIGKILL
    config = load_config(path)
    with contextlib.closing(stores.store_at(tmp_path / "s.db")) as store:
        placement = Engine(config, store).placements["slow"]
        assert [row.id for row in list_waiting(placement)] == ids[1:]
        assert verify(config, store) == []
    process, _ = started(path)
    assert unlearned() == 11
    assert decide() == decided
    assert [click(5), click(0)] == ["duplicate", "duplicate"]
    # The third one was clicked before the kill, and is learned after the second one, not before.
    assert [click(2), click(1)] == ["pending", "learned"]
    assert unlearned() == 8
    assert stopped(process, signal.SIGTERM) == 0
    with contextlib.closing(stores.store_at(tmp_path / "s.db")) as store:
        report = check_lessons("slow", config, store)
    assert (report.problems, report.lessons, report.waiting, report.waiting_clicked) == ([], 4, 8, 2)
