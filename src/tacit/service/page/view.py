"""One placement as the page shows it, whatever its kind, and what may be turned at it.

What may be turned and how it stands (:class:`Controls`); then everything else that a template asks of a
placement, worked out when it asks (:class:`View`), from what one look at the placement found
(:class:`Look`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property, reduce
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from tacit.core.arrays import Floats
from tacit.errors import InvalidValue
from tacit.policies.spec import name_in
from tacit.service.config.schema import Config
from tacit.service.engine.rebuilding import State
from tacit.service.engine.reports import KeyFacts
from tacit.service.engine.verdicts import ReadVerdict
from tacit.service.log.change_events import LoggedChange
from tacit.service.page import timeline
from tacit.service.page.charts import ChartLine, Remark, age, clock_time, line_chart, percent, written
from tacit.service.page.key import BusyKey, rows_of
from tacit.service.page.lift import lift_of
from tacit.service.page.overview import MODES, name_of
from tacit.service.placements.arm_results import R
from tacit.service.placements.aspects.arm_lifecycle import check_living
from tacit.service.placements.placement import Placement
from tacit.service.placements.series import UniformEstimate
from tacit.wire.lift import LiftReport

# ---- What may be turned at a placement, and how it stands


class Controls:
    """What may be turned at a placement.

    Parameters
    ----------
    placement : Placement
    config : Config
        Of the service.
    now : int
        Microseconds since 1970.
    states : sequence of State
        What can be gone back to, in order.
    sharded : bool, default False
        Whether it is in shards, where no log is folded anew.

    Attributes
    ----------
    keyed : bool
        Whether a key is asked for.
    modes : list of (str, str)
        Those that the placement can have, and what each does.
    holdout : HoldoutConfig or None
    holding : list of (str or dict, str), or str
        The controls that there can be, and what each is in words; or why it cannot be set here.
    fixed : str or None
        Why arms cannot change; None where they can.
    numbered : bool
        Whether arms are numbers.
    offered, retired : list of arms
    several : bool
        Whether several arms can be, as where lists are shown.
    pin : Pin or None
        What is pinned.
    until : str
        Until when.
    states : list of (str, str)
        What can be gone back to, the latest first: names, and what they are in words.
    """

    def __init__(
        self,
        placement: Placement,
        config: Config,
        now: int,
        states: Sequence[State] = (),
        *,
        sharded: bool = False,
    ) -> None:
        self.keyed, self.sharded = bool(config.keys), sharded
        self.modes = [
            (mode, MODES.get(mode, ""))
            for mode in MODES
            if _refused(placement.modes.check, placement, mode) is None
        ]
        self.holdout = placement.holdout
        self.holding = _holding(placement)
        refused = _refused(check_living, placement)
        self.fixed = refused and refused.removeprefix("its arms cannot change: ")
        offer = placement.offer
        self.numbered, self.offered, self.retired = isinstance(offer.all, int), offer.arms, offer.retired
        self.several = placement.kind.showing.listed or not offer.arms
        self.pin = placement.pins.at(now)
        self.until = "" if self.pin is None else clock_time(self.pin.until)
        self.states = [
            (state.name, f"{clock_time(state.time)}, {name_in(state.policy)}") for state in states[::-1]
        ]


def _refused(check: Callable[..., Any], *given: Any) -> str | None:
    """Return what is allowed in place of what a check refuses; None if it refuses nothing."""
    try:
        check(*given)
    except InvalidValue as error:
        return error.allowed
    return None


def _holding(placement: Placement) -> list[tuple[Any, str]] | str:
    """Return the controls that a holdout can have, or why none can be set here."""
    kinds = placement.kind.controls
    if not kinds:
        return f"Placements of kind {placement.kind.name!r} have none."
    if placement.config.holdout is not None and placement.config.holdout.policy is not None:
        return "A control’s own policy is set in the configuration, and taken over at SIGHUP."
    if placement.decided_elsewhere and placement.holdout is None:
        return "Decisions were made elsewhere, and a control of this service would decide none of them."
    named: list[tuple[Any, str]] = [(name, name) for name in ("uniform", "baseline") if name in kinds]
    arms = placement.offer.arms if "arm" in kinds else ()
    return named + [({"arm": arm}, f"arm {arm}") for arm in arms]


# ---- One placement as the page shows it, whatever its kind

MOST_ARMS = 7
MOST_SHIFTS = 8
MOST_REMARKS = 12


def _promised(placement: Placement) -> str:
    """Return what arms on offer are promised, in words; empty where nothing is."""
    shares = dict(getattr(placement.config.policy, "at_least", ()))
    shown = [f"{arm} {percent(shares[arm])}" for arm in placement.offer.arms if arm in shares]
    return ", ".join(shown)


class Share(NamedTuple):
    """An arm, or all that are not shown one by one, and its share of the impressions."""

    name: str
    style: str
    share: float


class ArmResult(NamedTuple):
    """What an arm had in a range, over all keys.

    Attributes
    ----------
    name : str
    retired : bool
    shown : int
        Its impressions.
    share : float
        Of all impressions.
    rate : Rate
        Its rewards per impression.
    """

    name: str
    retired: bool
    shown: int
    share: float
    rate: timeline.Rate


class Metric(NamedTuple):
    """What came of a metric that is watched.

    Attributes
    ----------
    name : str
    mean : float or None
        Per decision; None where nothing is counted.
    decisions : int
        Those that it is of.
    """

    name: str
    mean: float | None
    decisions: int


class Look(NamedTuple):
    """What somebody looks at.

    Attributes
    ----------
    now : int
        Microseconds since 1970.
    asked : Range
        The time that it is about.
    changes : sequence of LoggedChange
        What was changed, in order.
    busiest : sequence of KeyFacts
        The busiest keys.
    verdict : ReadVerdict or None
        On duels, where somebody asked for it.
    """

    now: int
    asked: timeline.Range
    changes: Sequence[LoggedChange] = ()
    busiest: Sequence[KeyFacts] = ()
    verdict: ReadVerdict | None = None


class View:
    """One placement as the page shows it.

    Parameters
    ----------
    placement : Placement
    look : Look
    """

    template = "arms.html"
    """What shows what only this kind has."""
    deterministic = True
    """Whether a policy without propensities has none since it does not draw."""
    what = "arm"
    """What an impression shows."""
    counted = "impression"
    """What a reward is for."""
    each = 1
    """How many of these make one that may be rewarded."""
    judged = False
    """Whether the log can be asked which arm users prefer."""

    def __init__(self, placement: Placement, look: Look) -> None:
        self.name = placement.name
        self.kind = placement.kind
        self.config = placement.config
        self.path = placement.kind.path
        self.policy = type(placement.config.policy).__name__
        self.label = name_of(placement.config.policy)
        self.promised = _promised(placement)
        self.settings = repr(placement.config.policy)
        self.randomized = placement.learner.reports_propensities
        self.restarts = placement.restarts
        self.impressions = placement.decisions
        self.feedback = placement.feedback
        self.keys = placement.key_count
        self.open = placement.pending
        self.mode = placement.mode
        self.outcomes = sorted(placement.outcomes.items(), key=lambda counted: -counted[1])
        self.asked = look.asked
        self.retired = {str(arm) for arm in placement.offer.retired}
        self.history = timeline.latest(look.changes)
        self._changes, self._busiest = look.changes, look.busiest
        found = None if placement.items is None else placement.items.now(placement)
        self.items = found if found is not None and found.version else None
        self._of = placement
        self._series = placement.series
        self.unit = placement.config.scale
        self._signals = () if placement.signals is None else placement.signals.names
        self._arms = [str(arm) for arm in placement.arms]
        self._now = look.now

    @classmethod
    def verdict_of(cls, placement: Placement) -> str:
        """Return what is said in the place of a lift where there is none."""
        return "Not known: propensities of whole lists hardly tell a lift. Set up a holdout."

    @cached_property
    def _total(self) -> timeline.Stretch | None:
        """Sums over all time; None if nothing was shown."""
        whole = timeline.stretches(
            self._series, timeline.Range("all", self.asked.span._replace(end=self._now))
        )
        return reduce(timeline.Stretch.joined, whole) if whole else None

    @property
    def shown(self) -> bool:
        """Whether anything was shown yet; what waits to be activated was not."""
        return self._total is not None

    @property
    def ctr(self) -> timeline.Rate:
        """Rewards per impression, over all time."""
        if self._total is None:
            return timeline.rate_of(0.0, 0.0)
        total = self._total
        return timeline.rate_of(float(total.sums[R]), total.trials / self.each, self.unit)

    def written(self, amount: float) -> str:
        """Write a mean reward in its unit."""
        return written(amount, self.unit)

    @property
    def metrics(self) -> list[Metric]:
        """What came of the metrics that are watched, of the holdout and of the policy together.

        The one that is learned is the reward, which has a tile of its own.
        """
        found = []
        for name, config in self.config.metrics.items():
            if name == self.config.learned:
                continue
            sums = self._of.lift.metrics.get(name)
            count = 0.0 if sums is None else float(sums.counts.sum())
            mean = config.low + float(sums.totals.sum()) / count if sums and count else None
            found.append(Metric(name, mean, int(count)))
        return found

    @property
    def uniform(self) -> UniformEstimate | None:
        """What uniform exploration would have earned per impression, where the log tells."""
        if self._total is None or not self.covered:
            return None
        return timeline.in_unit(self._total.uniform, self.unit)

    @cached_property
    def covered(self) -> bool:
        """Whether the log shows what uniform exploration would."""
        return self._of.lift.covers_uniform

    @cached_property
    def lift(self) -> LiftReport | None:
        """What learning earned; None where lists are shown."""
        return lift_of(self._of, self._now, self.asked)

    @cached_property
    def busiest(self) -> list[BusyKey]:
        """The keys with the most impressions, where the policy counts them."""
        return rows_of(self._busiest, self._arms, self.retired)

    # Over time -------------------------------------------------------------------------------

    @cached_property
    def _stretches(self) -> list[timeline.Stretch]:
        return timeline.stretches(self._series, self.asked)

    @property
    def any(self) -> bool:
        """Whether anything was shown in the range."""
        return bool(self._stretches)

    @cached_property
    def remarks(self) -> list[Remark]:
        """What was changed, and which keys restarted, within the range; the latest."""
        begin, end = self.asked.span
        found = timeline.remarks(self._changes)
        found += [
            Remark(shift.time, f"key {shift.key} restarted, epoch {shift.epoch}")
            for shift in self._series.shifts
        ]
        within = sorted(remark for remark in found if begin <= remark.time <= end)
        return within[-MOST_REMARKS:]

    @property
    def remark_texts(self) -> list[tuple[str, str]]:
        """When each was, and what."""
        return [(clock_time(time), text) for time, text in self.remarks]

    @property
    def curves(self) -> list[ChartLine]:
        """Rewards per impression, and of uniform exploration where that is known."""
        found = timeline.together(self._stretches)
        learned = timeline.rate_points(found, self.each, self.unit)
        curves = [ChartLine(self.policy, "learned", learned)]
        uniform = (
            timeline.uniform_points(found, self.unit)
            if self.randomized and self.each == 1 and self.covered
            else []
        )
        if uniform:
            curves.insert(0, ChartLine("uniform exploration", "uniform", uniform))
        return curves

    @property
    def ctr_chart(self) -> Markup:
        """Rewards per impression over time."""
        uniform = "not known" if self.uniform is None else self.written(self.uniform.value)
        return line_chart(
            self.curves,
            self.asked.span,
            f"{self.name}: rewards per {self.counted} over time",
            f"Over all time {self.written(self.ctr.value)}; uniform exploration: {uniform}.",
            self.remarks,
            self._now - self.config.rule.window if self.open else None,
            self.unit,
        )

    # Arms ------------------------------------------------------------------------------------

    @cached_property
    def results(self) -> list[ArmResult]:
        """What every arm had in the range, those most shown first."""
        shown, earned, _ = timeline.arm_sums(self._series, self.asked)
        total = max(float(shown.sum()), 1.0)
        order = np.argsort(-shown[: len(self._arms)], kind="stable").tolist()
        return [
            ArmResult(
                self._arms[i],
                self._arms[i] in self.retired,
                int(shown[i]),
                float(shown[i]) / total,
                timeline.rate_of(float(earned[i]), float(shown[i]), self.unit),
            )
            for i in order
        ]

    @property
    def scale(self) -> float:
        """Where the bars of arms end: above every interval of an arm that was shown often."""
        rates = [result.rate for result in self.results if result.shown]
        most = self.unit.amount(1.0)
        highs = [min(rate.high, 2 * rate.value + 0.01 * self.unit.span) for rate in rates]
        return min(max(highs, default=most), most)

    @property
    def results_since(self) -> str | None:
        """Since when rewards are counted by arm, where that is not from the beginning."""
        since = self._series.results.time
        return clock_time(since) if since and since > self.asked.span.begin else None

    @cached_property
    def shares(self) -> list[Share]:
        """The arms with the most impressions in the range, and all others together."""
        total = max(float(self._shown.sum()), 1.0)
        return [
            Share(name, style, float(self._shown[slots].sum()) / total) for name, style, slots in self._stack
        ]

    @cached_property
    def _shown(self) -> Floats:
        """Impressions of each arm in the range."""
        if not self._stretches:
            return np.zeros(max(len(self._arms), 1))
        shown: Floats = np.sum([stretch.shown for stretch in self._stretches], axis=0)
        return shown

    @cached_property
    def _stack(self) -> list[tuple[str, str, list[int]]]:
        """Name, style and slots of each curve of the chart of shares."""
        most = np.argsort(-self._shown[: len(self._arms)], kind="stable")
        # In slot order, so that an arm keeps its colour while the leaders change places.
        shown = sorted(most[:MOST_ARMS].tolist())
        rest = most[MOST_ARMS:].tolist()
        stack = [(self._arms[s], f"arm-{i}", [s]) for i, s in enumerate(shown)]
        if rest:
            others = f"{len(rest)} other {self.what}{'s' if len(rest) > 1 else ''}"
            stack.append((others, "arm-rest", rest))
        return stack

    @property
    def styles(self) -> dict[str, str]:
        """The style of each arm that is shown one by one."""
        return {name: style for name, style, _ in self._stack}

    @property
    def share_chart(self) -> Markup:
        """Each arm's share of the impressions over time."""
        found = timeline.together(self._stretches, timeline.FEWEST_OF_ARMS)
        curves = [
            ChartLine(name, style, timeline.share_points(found, slots)) for name, style, slots in self._stack
        ]
        listed = ", ".join(f"{share.name} {percent(share.share)}" for share in self.shares)
        return line_chart(
            curves,
            self.asked.span,
            f"{self.name}: share of impressions of each {self.what} over time",
            f"In {self.asked.label}: {listed}.",
            self.remarks,
        )

    # Keys ------------------------------------------------------------------------------------

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
        return ", ".join(f"{name} {number:.2f}" for name, number in zip(names, numbers, strict=False))
