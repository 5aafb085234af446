"""The page's view of one placement of any kind, and its controls.

Templates read :class:`Controls`, the settings that can be changed, and :class:`View`, which computes
everything else when a template reads it, from the data of a :class:`PageData`.
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

# ---- Controls: the settings of a placement that can be changed


class Controls:
    """Controls of a placement and their current settings.

    Parameters
    ----------
    placement : Placement
    config : Config
        Configuration of the service.
    now : int
        Microseconds since 1970.
    states : sequence of State
        Saved states that can be restored, in order.
    sharded : bool, default False
        Whether the service has shards, which cannot rebuild.

    Attributes
    ----------
    keyed : bool
        Whether changes need a key.
    modes : list of (str, str)
        Possible modes of the placement, with descriptions.
    holdout : HoldoutConfig or None
    holding : list of (str or dict, str), or str
        Possible controls of a holdout, with labels; or the reason why none can be set here.
    fixed : str or None
        The reason why arms cannot change; None if they can.
    numbered : bool
        Whether arms are numbers.
    offered, retired : list of arms
    several : bool
        Whether a pin can have several arms, as for lists.
    pin : Pin or None
    until : str
        Time at which the pin ends.
    states : list of (str, str)
        Names and labels of saved states that can be restored, the latest first.
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
    """Return the allowed values if a check raises ``InvalidValue``; None if it passes."""
    try:
        check(*given)
    except InvalidValue as error:
        return error.allowed
    return None


def _holding(placement: Placement) -> list[tuple[Any, str]] | str:
    """Return the possible controls of a holdout with labels, or the reason why none can be set here."""
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


# ---- The view of a placement of any kind

MOST_ARMS = 7
MOST_SHIFTS = 8
MOST_REMARKS = 12


def _promised(placement: Placement) -> str:
    """Return the minimum shares of arms on offer, in words; empty if there are none."""
    shares = dict(getattr(placement.config.policy, "at_least", ()))
    shown = [f"{arm} {percent(shares[arm])}" for arm in placement.offer.arms if arm in shares]
    return ", ".join(shown)


class Share(NamedTuple):
    """Share of the impressions of an arm, or of all arms without a curve of their own."""

    name: str
    style: str
    share: float


class ArmResult(NamedTuple):
    """Results of an arm in a range of time, over all keys.

    Attributes
    ----------
    name : str
    retired : bool
    shown : int
        Number of impressions.
    share : float
        Share of all impressions.
    rate : Rate
        Rewards per impression.
    """

    name: str
    retired: bool
    shown: int
    share: float
    rate: timeline.Rate


class Metric(NamedTuple):
    """Mean of a metric that is watched.

    Attributes
    ----------
    name : str
    mean : float or None
        Mean per decision; None without decisions.
    decisions : int
        Number of decisions.
    """

    name: str
    mean: float | None
    decisions: int


class Look(NamedTuple):
    """The request for a page of a placement, and the data read for it.

    Attributes
    ----------
    now : int
        Microseconds since 1970.
    time_range : Range
        Range of time of the page.
    changes : sequence of LoggedChange
        Changes of the placement, in order.
    busiest : sequence of KeyFacts
        The busiest keys.
    verdict : ReadVerdict or None
        The verdict on duels, if the request asks for it.
    """

    now: int
    asked: timeline.Range
    changes: Sequence[LoggedChange] = ()
    busiest: Sequence[KeyFacts] = ()
    verdict: ReadVerdict | None = None


class View:
    """The page's view of one placement.

    Parameters
    ----------
    placement : Placement
    page_data : PageData
    """

    template = "arms.html"
    """Template of the part of the page that depends on the kind."""
    deterministic = True
    """Whether a policy without propensities is deterministic."""
    what = "arm"
    """Word for an option of a decision."""
    counted = "impression"
    """Word for the unit that earns a reward."""
    each = 1
    """Number of arms shown per unit that earns a reward."""
    judged = False
    """Whether the log can give a verdict on which arm users prefer."""

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
        """Return the sentence that stands in place of a lift if there is none."""
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
        """True if any decision was shown; deferred decisions count once they are activated."""
        return self._total is not None

    @property
    def ctr(self) -> timeline.Rate:
        """Rewards per impression, over all time."""
        if self._total is None:
            return timeline.rate_of(0.0, 0.0)
        total = self._total
        return timeline.rate_of(float(total.sums[R]), total.trials / self.each, self.unit)

    def written(self, amount: float) -> str:
        """Format a mean reward in its unit."""
        return written(amount, self.unit)

    @property
    def metrics(self) -> list[Metric]:
        """Means of the metrics that are watched, over the holdout and the policy together.

        The metric that is learned is left out, since it is the reward, which has a tile of its own.
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
        """Estimated reward per impression of uniform exploration; None if the log does not cover it."""
        if self._total is None or not self.covered:
            return None
        return timeline.in_unit(self._total.uniform, self.unit)

    @cached_property
    def covered(self) -> bool:
        """True if logged propensities cover all arms, so that uniform exploration can be estimated."""
        return self._of.lift.covers_uniform

    @cached_property
    def lift(self) -> LiftReport | None:
        """The lift in the range of time; None for lists and duels without a holdout."""
        return lift_of(self._of, self._now, self.asked)

    @cached_property
    def busiest(self) -> list[BusyKey]:
        """The keys with the most impressions, if the policy counts plays per arm."""
        return rows_of(self._busiest, self._arms, self.retired)

    # Over time -------------------------------------------------------------------------------

    @cached_property
    def _stretches(self) -> list[timeline.Stretch]:
        return timeline.stretches(self._series, self.asked)

    @property
    def any(self) -> bool:
        """True if there were impressions in the range."""
        return bool(self._stretches)

    @cached_property
    def remarks(self) -> list[Remark]:
        """The latest changes of the placement and restarts of keys within the range."""
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
        """Time and text of each remark."""
        return [(clock_time(time), text) for time, text in self.remarks]

    @property
    def curves(self) -> list[ChartLine]:
        """Curves of rewards per impression, and of those of uniform exploration if they can be estimated."""
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
        """Chart of rewards per impression over time."""
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
        """Results of every arm in the range, most often shown first."""
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
        """Upper end of the scale of the arms' bars, above the intervals of arms that were shown often."""
        rates = [result.rate for result in self.results if result.shown]
        most = self.unit.amount(1.0)
        highs = [min(rate.high, 2 * rate.value + 0.01 * self.unit.span) for rate in rates]
        return min(max(highs, default=most), most)

    @property
    def results_since(self) -> str | None:
        """Time from which rewards are counted by arm; None if they are over the whole range."""
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
        """Name, style and arm indices of each curve of the chart of shares."""
        most = np.argsort(-self._shown[: len(self._arms)], kind="stable")
        # In order of arm indices, so that an arm keeps its colour when the ranks of arms change.
        shown = sorted(most[:MOST_ARMS].tolist())
        rest = most[MOST_ARMS:].tolist()
        stack = [(self._arms[s], f"arm-{i}", [s]) for i, s in enumerate(shown)]
        if rest:
            others = f"{len(rest)} other {self.what}{'s' if len(rest) > 1 else ''}"
            stack.append((others, "arm-rest", rest))
        return stack

    @property
    def styles(self) -> dict[str, str]:
        """The style of each arm with a curve of its own."""
        return {name: style for name, style, _ in self._stack}

    @property
    def share_chart(self) -> Markup:
        """Chart of each arm's share of the impressions over time."""
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
        """The latest intent shifts: age, key, new epoch and context of each."""
        latest = list(self._series.shifts)[: -MOST_SHIFTS - 1 : -1]
        return [
            (age(self._now - time), key, epoch, self._described(context))
            for time, key, epoch, context in latest
        ]

    def _described(self, context: str | None) -> str:
        """Format a context, with the names of its numbers."""
        numbers = json.loads(context or "[]")
        names = [*self._signals, *["client"] * len(numbers)]
        return ", ".join(f"{name} {number:.2f}" for name, number in zip(names, numbers, strict=False))
