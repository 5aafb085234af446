"""The reference of the metrics, from a service that runs."""

from __future__ import annotations

import tempfile
import urllib.request
from pathlib import Path

from generate.tables import code, table

DECISIONS = 300
"""As many as it takes until every metric has a value."""


def part() -> str:
    """Return every metric with its labels."""
    from tacit.service.http.metrics import COUNTER, OF_SHARD

    shards = [
        (
            name + ("_total" if kind is COUNTER else ""),
            "counter" if kind is COUNTER else "gauge",
            ["shard"],
            f"{help} In shards.",
        )
        for kind, name, help, *_ in OF_SHARD
    ]
    rows = [
        [code(name), kind, ", ".join(map(code, labels)), help]
        for name, kind, labels, help in [*metrics(), *shards]
    ]
    return table(["metric", "kind", "labels", "meaning"], rows)


def metrics() -> list[tuple[str, str, list[str], str]]:
    """Return name, kind, labels and meaning of every metric of a service that has been asked."""
    from prometheus_client.parser import text_string_to_metric_families

    found = []
    for family in text_string_to_metric_families(scraped()):
        if family.name.endswith("_created"):
            continue
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        suffix = "_total" if family.type == "counter" else ""
        found.append((family.name + suffix, family.type, sorted(labels), family.documentation))
    return found


def scraped() -> str:
    """Return the metrics of a service after some decisions with feedback."""
    from tacit.client import Client, Feedback, Impression
    from tacit.service.app.server import run_in_thread
    from tacit.service.config.file import load_config

    with tempfile.TemporaryDirectory() as folder:
        overrides = {
            "server.port": 0,
            "store.path": str(Path(folder) / "tacit.db"),
            "placements.home.arms": 2,
        }
        with run_in_thread(load_config(overrides=overrides)) as url, Client(url) as client:
            shown = client.decide_many("home", [Impression("key")] * DECISIONS)
            client.feedback_many("home", [Feedback(one.decision_id, 1.0) for one in shown])
            with urllib.request.urlopen(f"{url}/metrics") as answer:
                return str(answer.read().decode())
