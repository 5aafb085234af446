"""The service killed in the middle of traffic: nothing acknowledged is lost or doubled."""

import contextlib
import itertools
import random
import re
import signal
from collections import Counter

import stores
from click_lessons import check_lessons
from click_traffic import CLICK_PLACEMENTS, CLICK_WINDOWS, ClickTraffic
from harness import Client, eventually, started, stopped
from placement_access import Engine, list_waiting

from tacit.service.config.file import load_config
from tacit.service.log.rows import DecisionRow, FeedbackRow
from tacit.service.maintenance.doctor import verify

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
        snapshots = {name: store.snapshots.load(store.placements()[name].id) for name in CLICK_WINDOWS}
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
