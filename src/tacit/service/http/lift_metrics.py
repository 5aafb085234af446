"""What learning earned, as metrics for Prometheus: worked out at most each minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tacit.service.lift.report import Bounds, LiftReport, lift_report

if TYPE_CHECKING:
    from tacit.service.engine.service import Service
    from tacit.service.placements.base import Placement

FRESH = 60.0
"""Seconds for which a lift is told again as it is."""
AT_ONCE = 4
"""So many are worked out for a request; the others are told as they were."""
MOST = 100
"""Of more placements with a holdout, the first ones by name are told of."""


class _Known(NamedTuple):
    time: float
    report: LiftReport


class LiftMetrics(Collector):
    """The lifts of placements with a holdout; those that are too old are looked at before.

    Parameters
    ----------
    engine : Service
    now : function
        Seconds, never going back.
    """

    def __init__(self, engine: Service, now: Callable[[], float] = time.monotonic) -> None:
        self._engine, self._now = engine, now
        self._known: dict[str, _Known] = {}
        self._stale: dict[str, Placement] = {}

    def look(self) -> None:
        """Take what reports that are too old need, while nothing is decided."""
        placements = self._engine.placements
        names = sorted(name for name, one in placements.items() if one.holdout is not None)[:MOST]
        now = self._now()
        self._known = {name: known for name, known in self._known.items() if name in names}
        stale = sorted((n for n in names if now - self._asked(n) >= FRESH), key=self._asked)
        self._stale = {name: placements[name].still() for name in stale[:AT_ONCE]}

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        reports = self._reports()
        ends = ("placement", "bound")
        ratio = GaugeMetricFamily(
            "tacit_lift_ratio",
            "Mean reward of the policy over that of the holdout's control, and its interval.",
            labels=ends,
        )
        difference = GaugeMetricFamily(
            "tacit_lift_difference",
            "Mean reward of the policy minus that of the holdout's control, and its interval.",
            labels=ends,
        )
        alarm = GaugeMetricFamily(
            "tacit_srm_alarm",
            "1 where traffic is not what holdout and propensities say.",
            labels=("placement", "what"),
        )
        evidence = GaugeMetricFamily(
            "tacit_srm_evidence",
            "Logarithm of the evidence for that; above 4.6 there is an alarm.",
            labels=("placement", "what"),
        )
        harm = GaugeMetricFamily(
            "tacit_metric_harm",
            "1 where learning harms a metric that is watched.",
            labels=("placement", "metric"),
        )
        for name, report in reports.items():
            for family, bounds in ((ratio, report.ratio), (difference, report.difference)):
                for bound, value in _ends(bounds):
                    family.add_metric([name, bound], value)
            for one in report.srm:
                alarm.add_metric([name, one.what], float(one.alarm))
                evidence.add_metric([name, one.what], one.evidence)
            for metric in report.metrics:
                harm.add_metric([name, metric.name], float(metric.safety == "harm"))
        yield from (ratio, difference, alarm, evidence, harm)

    def _reports(self) -> dict[str, LiftReport]:
        now = self._now()
        for name, placement in self._stale.items():
            self._known[name] = _Known(now, lift_report(placement, self._engine.clock()))
        self._stale = {}
        return {name: self._known[name].report for name in sorted(self._known)}

    def _asked(self, name: str) -> float:
        known = self._known.get(name)
        return float("-inf") if known is None else known.time


def _ends(bounds: Bounds | None) -> Iterator[tuple[str, float]]:
    """Yield what is known of an interval."""
    if bounds is not None:
        for bound in ("estimate", "low", "high"):
            value = getattr(bounds, bound)
            if value is not None:
                yield bound, value
