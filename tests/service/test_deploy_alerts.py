"""The alerts and the dashboard in deploy/: what they ask for is what the service says."""

import json
import re
import subprocess
import time

import pytest
import yaml
from conftest import ROOT
from harness import PATIENCE, Client, Clock, by_clock, configured

from tacit.service.app.server import run_in_thread
from tacit.service.http.metrics import COUNTER, OF_SHARD

HOUR = 3_600_000_000
DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus-rules.yml"
ALERTS = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
PANELS = json.loads((DEPLOY / "grafana-dashboard.json").read_text())["panels"]
# What Prometheus says itself, `up`, is left out.
EXPRESSIONS = [alert["expr"] for alert in ALERTS if alert["alert"] != "TacitDown"] + [
    target["expr"] for panel in PANELS for target in panel["targets"]
]


def decide(client):
    _, _, decision = client.post("default/decide", {"key": "k"})
    client.post("default/feedback", {"decision_id": decision["decision_id"], "reward": 1})


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Return the metrics of a service that has decided and learned, by name, with their labels."""
    store = tmp_path_factory.mktemp("alerts") / "s.db"
    # With equal propensities, few decisions tell what uniform exploration would earn.
    placements = {
        "default": {"arms": 2, "policy": "uniform-random"},
        "held": {
            "arms": 2,
            "policy": "uniform-random",
            "holdout": {"share": 0.5},
            "metrics": {"revenue": {}},
            "guardrail": {"metric": "revenue"},
        },
    }
    config = configured(store, placements=placements)
    with run_in_thread(config) as address:
        decide(Client(address))
    # What was learned is in a snapshot now, and is read from it.
    clock = Clock(time.time_ns() // 1000 + HOUR)
    with by_clock(config, clock) as address:
        client = Client(address)
        for _ in range(40):
            decide(client)
        made = client.post("held/decide/batch", {"decisions": [{"key": "k"}] * 400})[2]["decisions"]
        sent = [{"decision_id": one["decision_id"], "reward": 1.0} for one in made[::2]]
        client.post("held/feedback/batch", {"feedback": sent})
        clock.now += HOUR
        client.post("held/decide", {"key": "k"})
        _, _, content = client.ask("GET", "/metrics")
    names = {}
    for line in content.decode().splitlines():
        if not line.startswith("#"):
            name, labels = re.match(r"(\w+)(?:\{(.*)\})? ", line).groups()
            names.setdefault(name, set()).update(re.findall(r'(\w+)="', labels or ""))
    return names


def of_shards():
    """Return metrics that only a service with shards has."""
    return {name + ("_total" if kind == COUNTER else "") for kind, name, *_ in OF_SHARD}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_metric_that_is_asked_for_exists(told, expression):
    asked = re.findall(r"\b((?:tacit|process)_\w+)(?:\{([^}]*)\})?", expression)
    assert asked
    for name, labels in asked:
        if name in of_shards():
            continue
        assert name in told
        known = told[name] | {"instance", "job"}
        assert set(re.findall(r"(\w+)[!=]~?", labels)) <= known


def test_metrics_of_the_process_and_of_what_was_read_at_the_start(told):
    assert {"version", "python"} <= told["tacit_build"]
    assert {
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_open_fds",
        "tacit_recovery_seconds",
        "tacit_snapshot_age_seconds",
    } <= told.keys()


def test_every_alert_says_what_is_wrong_and_what_to_do():
    assert len({alert["alert"] for alert in ALERTS}) == len(ALERTS)
    for alert in ALERTS:
        assert alert["labels"]["severity"] in ("page", "ticket")
        assert alert["annotations"].keys() >= {"summary", "remedy"}
        assert "for" in alert


def test_windows_that_close_are_no_feedback_to_an_alert():
    selectors = re.findall(r"tacit_feedback_total(\S+)\[", str(ALERTS))
    assert set(selectors) == {'{outcome="late"}', '{outcome!="window-closed"}'}


def test_panels_stand_side_by_side():
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in PANELS}) == len(PANELS)
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in PANELS)


@pytest.mark.needs("promtool")
def test_prometheus_understands_the_rules():
    command = ["promtool", "check", "rules", str(RULES)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert ran.returncode == 0, ran.stdout + ran.stderr
