"""One placement as the page shows it, whatever its kind."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from tacit.core.arrays import Floats
from tacit.service.page.amounts import age, ages
from tacit.service.page.charts import Curve, area_chart, line_chart, percent
from tacit.service.page.key import BusyKey, busiest
from tacit.service.placements.base import Placement
from tacit.service.placements.series import ARMS, R, UniformEstimate, uniform_estimate

MOST_POINTS = 48
MOST_ARMS = 7
MOST_SHIFTS = 8


class Share(NamedTuple):
    """An arm, or all that are not shown one by one, and its share of the impressions."""

    name: str
    style: str
    share: float


class View:
    """One placement as the page shows it.

    Parameters
    ----------
    placement : Placement
    now : int
        Microseconds since 1970.
    """

    template = "arms.html"
    """What shows it."""
    figure = "shares.html"
    """What that shows beside the rewards."""
    deterministic = True
    """Whether a policy without propensities has none since it does not draw."""
    what = "arm"
    """What an impression shows."""

    def __init__(self, placement: Placement, now: int) -> None:
        self.name = placement.name
        self.config = placement.config
        self.path = placement.kind.path
        self.policy = type(placement.config.policy).__name__
        self.label = placement.config.policy.label
        self.settings = repr(placement.config.policy)
        self.randomized = placement.learner.batch.reports_propensities
        self.restarts = placement.restarts
        self.impressions = placement.decisions
        self.feedback = placement.feedback
        self.keys = placement.key_count
        self.open = placement.pending
        self.mode = placement.mode
        self.outcomes = sorted(placement.outcomes.items(), key=lambda one: -one[1])
        self._of = placement
        self._series = placement.series
        self._signals = () if placement.signals is None else placement.signals.names
        self._arms = [str(arm) for arm in placement.arms]
        self._now = now

    @cached_property
    def total(self) -> Floats:
        """Sums over all time."""
        total: Floats = self._series.table.sum(axis=0)
        return total

    @property
    def shown(self) -> bool:
        """Whether anything was shown yet; what waits to be activated was not."""
        return bool(self.total[ARMS:].any())

    @property
    def rewards(self) -> float:
        """The sum of all rewards."""
        return float(self.total[R])

    @property
    def ctr(self) -> float | None:
        """Rewards per impression."""
        return _ratio(self.total)

    @property
    def ctr_margin(self) -> float:
        """Half of the 95 % interval of the CTR, as of clicks; rewards between vary less."""
        rate, count = self.ctr or 0.0, max(float(self.total[ARMS:].sum()), 1.0)
        return 1.96 * math.sqrt(rate * (1.0 - rate) / count)

    @cached_property
    def busiest(self) -> list[BusyKey]:
        """The keys with the most impressions, where the policy counts them."""
        return busiest(self._of)

    @property
    def uniform(self) -> UniformEstimate | None:
        """What uniform exploration would have earned per impression."""
        return uniform_estimate(self.total)

    @property
    def shifts(self) -> list[tuple[str, str, int, str]]:
        """The latest intent shifts: how long ago, of which key, its new epoch, the context."""
        latest = list(self._series.shifts)[: -MOST_SHIFTS - 1 : -1]
        return [
            (age(self._now - time), key, epoch, self._described(context))
            for time, key, epoch, context in latest
        ]

    def _described(self, context: str | None) -> str:
        """Name the numbers of a context as far as they have names."""
        numbers = json.loads(context or "[]")
        names = [*self._signals, *["client"] * len(numbers)]
        return ", ".join(
            f"{name} {number:.2f}" for name, number in zip(names, numbers, strict=False)
        )

    @cached_property
    def _points(self) -> tuple[list[str], Floats]:
        ends, sums = self._series.points(MOST_POINTS)
        if len(ends) > 1 and ends[-1] > self._now:
            # The stretch that is still filling would look like a fall.
            ends, sums = ends[:-1], sums[:-1]
        # Stretches in which nobody came are left out, so that no line is torn by them.
        filled = np.flatnonzero(sums[:, ARMS:].sum(axis=1))
        return ages([self._now - ends[i] for i in filled]), sums[filled]

    @property
    def curves(self) -> list[Curve]:
        """Rewards per impression, and of uniform exploration where that is known."""
        _, sums = self._points
        estimates = [uniform_estimate(row) for row in sums]
        curves = [Curve(self.policy, "learned", [_ratio(row) for row in sums])]
        if self.randomized:
            values = [None if estimate is None else estimate.value for estimate in estimates]
            curves.insert(0, Curve("uniform exploration", "uniform", values))
        return curves

    @property
    def ctr_chart(self) -> Markup:
        """Rewards per impression over time."""
        title = f"{self.name}: clicks per impression over time"
        uniform = "not known" if self.uniform is None else percent(self.uniform.value)
        return line_chart(
            self.curves,
            self._points[0],
            title,
            f"Over all time {percent(self.ctr or 0.0)}; uniform exploration: {uniform}.",
        )

    @cached_property
    def shares(self) -> list[Share]:
        """The arms with the most impressions, and all others together."""
        return [
            Share(name, style, float(self.total[columns].sum() / max(self.total[ARMS:].sum(), 1)))
            for name, style, columns in self._stack
        ]

    @cached_property
    def _stack(self) -> list[tuple[str, str, list[int]]]:
        """Name, style and columns of each layer of the chart of shares."""
        by_impressions = np.argsort(-self.total[ARMS:], kind="stable")
        # In slot order, so that an arm keeps its colour while the leaders change places.
        shown = sorted(by_impressions[:MOST_ARMS].tolist())
        rest = by_impressions[MOST_ARMS:].tolist()
        stack = [(self._arms[s], f"arm-{i}", [ARMS + s]) for i, s in enumerate(shown)]
        if rest:
            name = f"{len(rest)} other {self.what}s"
            stack.append((name, "arm-rest", [ARMS + s for s in rest]))
        return stack

    @property
    def share_chart(self) -> Markup:
        """Each arm's share of the impressions over time."""
        times, sums = self._points
        impressions = sums[:, ARMS:].sum(axis=1)
        curves = [
            Curve(name, style, (sums[:, columns].sum(axis=1) / impressions).tolist())
            for name, style, columns in self._stack
        ]
        listed = ", ".join(f"{share.name} {percent(share.share)}" for share in self.shares)
        return area_chart(
            curves,
            times,
            f"{self.name}: share of impressions of each {self.what} over time",
            f"Over all time: {listed}.",
        )


def _ratio(sums: Sequence[float] | Floats) -> float | None:
    impressions = float(np.sum(sums[ARMS:]))
    return float(sums[R]) / impressions if impressions else None
