"""Metrics for Prometheus: what is counted while requests run, and what the engine knows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tacit.service.rows import EVENT, QUERY

if TYPE_CHECKING:
    from tacit.service.engine import Engine

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


class Metrics:
    """The metrics of one service.

    Parameters
    ----------
    engine : Engine
        Asked when metrics are collected.
    """

    def __init__(self, engine: Engine) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_OfEngine(engine))
        self._requests = Histogram(
            "tacit_request_seconds",
            "Time from a request to its answer.",
            ("path", "status"),
            buckets=SECONDS,
            registry=self._registry,
        )
        self._children: dict[tuple[str, int], Histogram] = {}
        engine.commit_seconds = Histogram(
            "tacit_commit_seconds", "Time of a commit.", buckets=SECONDS, registry=self._registry
        )
        engine.commit_rows = Histogram(
            "tacit_commit_rows", "Rows of a commit.", buckets=ROWS, registry=self._registry
        )

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        child = self._children.get((path, status))
        if child is None:
            child = self._children[path, status] = self._requests.labels(path, str(status))
        child.observe(seconds)

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self._registry)


class _OfEngine(Collector):
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterable[Metric]:
        health = self._engine.health()
        for name, help, value in (
            ("tacit_ready", "Whether commits work and it is not stopping.", health.ready),
            ("tacit_log_rows", "Rows of the log.", health.events),
            ("tacit_store_bytes", "What the store takes.", health.bytes),
            ("tacit_buffered_rows", "Rows that are in memory only.", health.buffered),
            ("tacit_waiting_requests", "Requests that wait for a group.", self._engine.waiting),
        ):
            yield GaugeMetricFamily(name, help, float(value))
        labels = ("placement",)
        decisions = CounterMetricFamily("tacit_decisions", "Decisions.", labels=labels)
        rewards = CounterMetricFamily("tacit_rewards", "Sum of all rewards.", labels=labels)
        pending = GaugeMetricFamily(
            "tacit_open_windows", "Decisions whose windows are open.", labels=labels
        )
        keys = GaugeMetricFamily("tacit_keys", "Keys.", labels=labels)
        shifts = CounterMetricFamily(
            "tacit_restarts", "Restarts of keys that were seen.", labels=labels
        )
        uniform = GaugeMetricFamily(
            "tacit_uniform_reward",
            "What uniform exploration would earn for each impression, estimated.",
            labels=labels,
        )
        feedback = CounterMetricFamily(
            "tacit_feedback", "Feedback by what became of it.", labels=("placement", "outcome")
        )
        records = CounterMetricFamily(
            "tacit_records",
            "Records kept since the start of what was not decided here.",
            labels=("placement", "kind"),
        )
        mode = GaugeMetricFamily("tacit_mode", "1 for the mode.", labels=("placement", "mode"))
        from tacit.service.series import uniform_estimate

        for name, placement in self._engine.placements.items():
            series = placement.series
            decisions.add_metric([name], placement.decisions)
            for kind in (QUERY, EVENT):
                records.add_metric([name, kind], self._engine.kept[name, kind])
            rewards.add_metric([name], series.rewards)
            pending.add_metric([name], placement.pending)
            keys.add_metric([name], placement.key_count)
            shifts.add_metric([name], series.restarts)
            mode.add_metric([name, placement.mode], 1.0)
            for outcome, count in placement.outcomes.items():
                feedback.add_metric([name, outcome], count)
            estimate = uniform_estimate(series.table.sum(axis=0))
            if estimate is not None:
                uniform.add_metric([name], estimate.value)
        yield from (decisions, rewards, pending, keys, shifts, uniform, feedback, mode, records)
        yield from self._shards()

    def _shards(self) -> Iterable[Metric]:
        shards = self._engine.shards()
        if not shards:
            return
        labels = ("shard",)
        up = GaugeMetricFamily("tacit_shard_up", "Whether the shard answers.", labels=labels)
        losses = CounterMetricFamily("tacit_shard_losses", "Losses of the shard.", labels=labels)
        rows = GaugeMetricFamily("tacit_shard_log_rows", "Rows of its log.", labels=labels)
        waiting = GaugeMetricFamily(
            "tacit_shard_waiting_requests", "Requests on their way to it.", labels=labels
        )
        for shard in shards:
            name = [str(shard.number)]
            up.add_metric(name, float(shard.up))
            losses.add_metric(name, shard.losses)
            waiting.add_metric(name, shard.waiting)
            if shard.health is not None:
                rows.add_metric(name, shard.health.events)
        shared = GaugeMetricFamily(
            "tacit_shared_seconds",
            "How old what shards know of each other is, at most.",
            labels=("placement",),
        )
        for placement in self._engine.placements:
            seconds = self._engine.shared_seconds(placement)
            if seconds is not None:
                shared.add_metric([placement], seconds)
        yield from (up, losses, rows, waiting, shared)
