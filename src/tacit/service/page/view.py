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
from tacit.policies.spec import format_policy_name
from tacit.service.config.schema import Config
from tacit.service.engine.rebuilding import State
from tacit.service.engine.reports import KeyFacts
from tacit.service.engine.verdicts import ReadVerdict
from tacit.service.log.change_events import LoggedChange
from tacit.service.page import timeline
from tacit.service.page.charts import (
    ChartLine,
    Remark,
    draw_chart,
    format_age,
    format_reward,
    format_time,
    percent,
)
from tacit.service.page.key import BusyKey, make_busy_rows
from tacit.service.page.lift import compute_lift
from tacit.service.page.overview import MODES, label_policy
from tacit.service.placements.changes import check_mode
from tacit.service.placements.placement import Placement, check_changeable
from tacit.service.projections.arm_results import R
from tacit.service.projections.series import UniformEstimate
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
            if _read_refusal(check_mode, placement, mode) is None
        ]
        self.holdout = placement.holdout
        self.holding = _list_controls(placement)
        refusal = _read_refusal(check_changeable, placement)
        self.fixed = refusal and refusal.removeprefix("its arms cannot change: ")
        offer = placement.offer
        self.numbered, self.offered, self.retired = isinstance(offer.all, int), offer.arms, offer.retired
        self.several = placement.kind.showing.listed or not offer.arms
        self.pin = placement.pins.get_pin(now)
        self.until = "" if self.pin is None else format_time(self.pin.until)
        self.states = [
            (state.name, f"{format_time(state.time)}, {format_policy_name(state.policy)}")
            for state in states[::-1]
        ]


def _read_refusal(check: Callable[..., Any], *arguments: Any) -> str | None:
    """Call a check with arguments; return the remedy in its error, or None if it passes."""
    try:
        check(*arguments)
    except InvalidValue as error:
        return error.allowed
    return None


def _list_controls(placement: Placement) -> list[tuple[Any, str]] | str:
    """Return the possible controls of a holdout with labels, or a sentence that says why none can be set."""
    kinds = placement.kind.controls
    if not kinds:
        return f"Placements of kind {placement.kind.name!r} have none."
    if placement.config.holdout is not None and placement.config.holdout.policy is not None:
        return "A control’s own policy is set in the configuration, and taken over at SIGHUP."
    if placement.has_client_decisions and placement.holdout is None:
        return "Decisions were made elsewhere, and a control of this service would decide none of them."
    labelled: list[tuple[Any, str]] = [(name, name) for name in ("uniform", "baseline") if name in kinds]
    arms = placement.offer.arms if "arm" in kinds else ()
    return labelled + [({"arm": arm}, f"arm {arm}") for arm in arms]


# ---- The view of a placement of any kind

MOST_ARMS = 7
MOST_SHIFTS = 8
MOST_REMARKS = 12


def _describe_min_shares(placement: Placement) -> str:
    """Return the minimum shares of arms on offer as text; empty if no shares are promised."""
    shares = dict(getattr(placement.config.policy, "at_least", ()))
    texts = [f"{arm} {percent(shares[arm])}" for arm in placement.offer.arms if arm in shares]
    return ", ".join(texts)


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


class PageData(NamedTuple):
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
    time_range: timeline.Range
    changes: Sequence[LoggedChange] = ()
    busiest: Sequence[KeyFacts] = ()
    verdict: ReadVerdict | None = None


class View:
    """The data of one placement that its page shows; each property is computed when a template reads it.

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
    arms_per_reward = 1
    """Number of arms shown per unit that earns a reward."""
    judged = False
    """Whether the log can give a verdict on which arm users prefer."""

    def __init__(self, placement: Placement, page_data: PageData) -> None:
        self.name = placement.name
        self.kind = placement.kind
        self.config = placement.config
        self.path = placement.kind.path
        self.policy = type(placement.config.policy).__name__
        self.label = label_policy(placement.config.policy)
        self.promised = _describe_min_shares(placement)
        self.settings = repr(placement.config.policy)
        self.randomized = placement.learner.reports_propensities
        self.restarts = placement.restarts
        self.impressions = placement.decisions
        self.feedback = placement.feedback
        self.keys = placement.key_count
        self.open, self.deferred = placement.pending, placement.deferred
        self.mode = placement.mode
        self.outcomes = sorted(placement.outcomes.items(), key=lambda outcome_count: -outcome_count[1])
        self.asked = page_data.time_range
        self.retired = {str(arm) for arm in placement.offer.retired}
        self.history = timeline.make_history(page_data.changes)
        self._changes, self._busiest = page_data.changes, page_data.busiest
        items = None if placement.items is None else placement.items.get_status()
        self.items = items if items is not None and items.version else None
        self._placement = placement
        self._series = placement.series
        self.unit = placement.config.scale
        self._signals = () if placement.signals is None else placement.signals.names
        self._arms = [str(arm) for arm in placement.arms]
        self._now = page_data.now

    @classmethod
    def get_verdict(cls, placement: Placement) -> str:
        """Return the sentence that the page shows if the placement has no lift."""
        return "Not known: propensities of whole lists hardly tell a lift. Set up a holdout."

    @cached_property
    def _total_bin(self) -> timeline.TimeBin | None:
        """Rewards and impressions over all time in one bin; None without impressions."""
        time_bins = timeline.read_time_bins(
            self._series, timeline.Range("all", self.asked.span._replace(end=self._now))
        )
        return reduce(timeline.TimeBin.merge, time_bins) if time_bins else None

    @property
    def shown(self) -> bool:
        """True if there is any impression; deferred decisions count once they are activated."""
        return self._total_bin is not None

    @property
    def ctr(self) -> timeline.Rate:
        """Mean reward per impression over all time, with its interval; 0 without impressions."""
        if self._total_bin is None:
            return timeline.compute_rate(0.0, 0.0)
        total = self._total_bin
        return timeline.compute_rate(float(total.sums[R]), total.trials / self.arms_per_reward, self.unit)

    def written(self, amount: float) -> str:
        """Format a mean reward in its unit."""
        return format_reward(amount, self.unit)

    @property
    def metrics(self) -> list[Metric]:
        """Mean per decision of each metric except the learned one, over control and policy together.

        The learned metric is the reward, which has a tile of its own.
        """
        rows = []
        for name, config in self.config.metrics.items():
            if name == self.config.learned:
                continue
            sums = self._placement.lift.metrics.get(name)
            count = 0.0 if sums is None else float(sums.counts.sum())
            mean = config.low + float(sums.totals.sum()) / count if sums and count else None
            rows.append(Metric(name, mean, int(count)))
        return rows

    @property
    def uniform(self) -> UniformEstimate | None:
        """Estimated reward per impression of uniform exploration; None if it cannot be estimated."""
        if self._total_bin is None or not self.covered:
            return None
        return timeline.convert_estimate(self._total_bin.uniform, self.unit)

    @cached_property
    def covered(self) -> bool:
        """True if logged propensities cover all arms, so that uniform exploration can be estimated."""
        return self._placement.lift.covers_uniform

    @cached_property
    def lift(self) -> LiftReport | None:
        """The lift report for the page's range of time; None for lists and duels without a holdout."""
        return compute_lift(self._placement, self._now, self.asked)

    @cached_property
    def busiest(self) -> list[BusyKey]:
        """The keys with the most impressions and their leading arms.

        Empty if the policy has no estimates of arms.
        """
        return make_busy_rows(self._busiest, self._arms, self.retired)

    # Over time -------------------------------------------------------------------------------

    @cached_property
    def _time_bins(self) -> list[timeline.TimeBin]:
        """Rewards and impressions by interval of the page's range of time."""
        return timeline.read_time_bins(self._series, self.asked)

    @property
    def any(self) -> bool:
        """True if there were impressions in the page's range of time."""
        return bool(self._time_bins)

    @cached_property
    def remarks(self) -> list[Remark]:
        """Latest changes of the placement and restarts of keys in the page's range of time.

        At most ``MOST_REMARKS``.
        """
        begin, end = self.asked.span
        all_remarks = timeline.make_remarks(self._changes)
        all_remarks += [
            Remark(shift.time, f"key {shift.key} restarted, epoch {shift.epoch}")
            for shift in self._series.shifts
        ]
        within = sorted(remark for remark in all_remarks if begin <= remark.time <= end)
        return within[-MOST_REMARKS:]

    @property
    def remark_texts(self) -> list[tuple[str, str]]:
        """Formatted time and text of each of the :attr:`remarks`."""
        return [(format_time(time), text) for time, text in self.remarks]

    @property
    def curves(self) -> list[ChartLine]:
        """Curves of rewards per impression over time: of the policy and, if known, uniform exploration."""
        time_bins = timeline.merge_time_bins(self._time_bins)
        learned = timeline.make_rate_points(time_bins, self.arms_per_reward, self.unit)
        curves = [ChartLine(self.policy, "learned", learned)]
        uniform = (
            timeline.make_uniform_points(time_bins, self.unit)
            if self.randomized and self.arms_per_reward == 1 and self.covered
            else []
        )
        if uniform:
            curves.insert(0, ChartLine("uniform exploration", "uniform", uniform))
        return curves

    @property
    def ctr_chart(self) -> Markup:
        """SVG chart of rewards per impression over time, with remarks and open windows."""
        uniform = "not known" if self.uniform is None else self.written(self.uniform.value)
        return draw_chart(
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
        """Impressions and rewards of every arm in the range, most often shown first."""
        impressions, earned, _ = timeline.sum_arms(self._series, self.asked)
        total = max(float(impressions.sum()), 1.0)
        # Sums of several shards may have arms that this process does not know yet.
        order = np.argsort(-impressions[: len(self._arms)], kind="stable").tolist()
        results = []
        for i in order:
            name, count = self._arms[i], float(impressions[i])
            rate = timeline.compute_rate(float(earned[i]), count, self.unit)
            results.append(ArmResult(name, name in self.retired, int(count), count / total, rate))
        return results

    @property
    def scale(self) -> float:
        """Upper end of the scale of the arms' bars, in the unit of rewards.

        It is above the intervals of arms with many impressions, and at most the greatest reward.
        """
        rates = [result.rate for result in self.results if result.shown]
        largest = max((rate.high for rate in rates), default=1.0)
        most = largest if self.unit.is_open else self.unit.convert(1.0)
        highs = [min(rate.high, 2 * rate.value + 0.01 * self.unit.span) for rate in rates]
        return min(max(highs, default=most), most) or 1.0

    @property
    def results_since(self) -> str | None:
        """Time from which rewards are counted by arm; None if they are over the whole range."""
        since = self._series.results.time
        return format_time(since) if since and since > self.asked.span.begin else None

    @cached_property
    def shares(self) -> list[Share]:
        """Share of impressions in the range of each of the most shown arms, and of all others together."""
        total = max(float(self._arm_impressions.sum()), 1.0)
        return [
            Share(name, style, float(self._arm_impressions[arm_indices].sum()) / total)
            for name, style, arm_indices in self._stack
        ]

    @cached_property
    def _arm_impressions(self) -> Floats:
        """Impressions of each arm in the range."""
        if not self._time_bins:
            return np.zeros(max(len(self._arms), 1))
        impressions: Floats = np.sum([time_bin.impressions for time_bin in self._time_bins], axis=0)
        return impressions

    @cached_property
    def _stack(self) -> list[tuple[str, str, list[int]]]:
        """Name, style and arm indices of each curve in the chart of shares.

        Each of the ``MOST_ARMS`` most shown arms has a curve; all other arms have one together.
        """
        by_impressions = np.argsort(-self._arm_impressions[: len(self._arms)], kind="stable")
        # In order of arm indices, so that an arm keeps its colour when the ranks of arms change.
        arm_indices = sorted(by_impressions[:MOST_ARMS].tolist())
        merged_indices = by_impressions[MOST_ARMS:].tolist()
        stack = [(self._arms[index], f"arm-{number}", [index]) for number, index in enumerate(arm_indices)]
        if merged_indices:
            label = f"{len(merged_indices)} other {self.what}{'s' if len(merged_indices) > 1 else ''}"
            stack.append((label, "arm-rest", merged_indices))
        return stack

    @property
    def styles(self) -> dict[str, str]:
        """CSS class of each curve of the chart of shares, by name."""
        return {name: style for name, style, _ in self._stack}

    @property
    def share_chart(self) -> Markup:
        """SVG chart of each arm's share of the impressions over time, with remarks."""
        time_bins = timeline.merge_time_bins(self._time_bins, timeline.FEWEST_OF_ARMS)
        curves = [
            ChartLine(name, style, timeline.make_share_points(time_bins, arm_indices))
            for name, style, arm_indices in self._stack
        ]
        listed = ", ".join(f"{share.name} {percent(share.share)}" for share in self.shares)
        return draw_chart(
            curves,
            self.asked.span,
            f"{self.name}: share of impressions of each {self.what} over time",
            f"In {self.asked.label}: {listed}.",
            self.remarks,
        )

    # Keys ------------------------------------------------------------------------------------

    @property
    def shifts(self) -> list[tuple[str, str, int, str]]:
        """Age, key, new epoch and context of the latest restarts of keys, formatted; the last one first."""
        latest = list(self._series.shifts)[: -MOST_SHIFTS - 1 : -1]
        return [
            (format_age(self._now - time), key, epoch, self._format_context(context))
            for time, key, epoch, context in latest
        ]

    def _format_context(self, context: str | None) -> str:
        """Format a context, a JSON list of numbers or None, with the names of its numbers."""
        # Signals come first, and the numbers that the client sent after them.
        numbers = json.loads(context or "[]")
        names = [*self._signals, *["client"] * len(numbers)]
        return ", ".join(f"{name} {number:.2f}" for name, number in zip(names, numbers, strict=False))
