"""Lift report of a placement, for HTTP, the page and the command line."""

# 1. ``PlanQuery``: a query to the planner.
# 2. ``make_lift_report``, by ``_Reporter``: the lift over comparable periods, their list, plan and winner.
# 3. Helpers: sums, ratios, percentages, times and bounds in the form of the report.

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tacit.core import checks
from tacit.errors import InvalidValue
from tacit.learning.lanes import Offer
from tacit.policies import Policy
from tacit.service.config.holdout import MAX_OPEN, HoldoutConfig, RewardScale
from tacit.service.config.lift_terms import describe_change, parse_holdout, parse_metrics, parse_rule
from tacit.service.config.propensity_floor import compute_floor
from tacit.service.config.schema import PlacementConfig
from tacit.service.log.ids import as_datetime, parse_time
from tacit.service.log.rows import ARMS
from tacit.service.projections.attribution import CORRECTED, NOTED
from tacit.service.projections.lift_periods import NO_TAIL, LiftPeriod, add_scores, extend_tail
from tacit.service.projections.reward_sums import LiftSums
from tacit.uplift import (
    ALARM,
    HoldoutSums,
    Lift,
    Scores,
    boundary,
    decisions_needed,
    difference_lift,
    dispersion,
    guardrail_status,
    holdout_lift,
    share_evidence,
    winner,
)
from tacit.uplift import sentences as phrases
from tacit.uplift.boundary import Interval
from tacit.uplift.holdout import has_enough_data
from tacit.uplift.traffic import independent_counts
from tacit.wire import lift as wire

DAY = 86_400e6
PLANNED_LIFT = 0.1
MAX_DAILY = 1e12
DEFAULT_SHARE = HoldoutConfig().share
WEIGHTS = "propensities"
FOREVER = 2**62
MIN_EQUAL = 100
"""Number of decisions from which equal ones are no coincidence."""
MINUS = "\N{MINUS SIGN}"
PLANNED_CONFIDENCE = 0.95
NO_PERIODS = "leave it out: stretches of time and chapters are known of holdouts"
NO_DATES = "give the number of a chapter: dates are known of holdouts whose units are decisions"
MIN_DATE = 8
"""Least number of digits of a date; fewer digits are the number of a period."""
CHANGES = {
    ARMS: "arms changed",
    "rebuild": "the policy was rebuilt",
    "rollback": "what was learned was rolled back",
}
EXPLICIT = 0.8
"""Share of decisions with feedback from which the groups' shares of feedback are compared. Below it, feedback
is mostly clicks, of which the policy should have more."""


class PlanQuery(msgspec.Struct):
    """A query to the planner; missing fields are observed or taken from the configuration."""

    lift: float = PLANNED_LIFT
    share: float | None = None
    rate: float | None = None
    daily: float | None = None


def make_lift_report(
    placement: Any,
    now: int,
    confidence: float = 0.95,
    control: str | None = None,
    time_range: tuple[str | None, str | None] = (None, None),
    query: PlanQuery | None = None,
) -> wire.LiftReport:
    """Return the lift report of a placement, for all periods or a time range; changes no sums.

    Parameters
    ----------
    placement : Placement
    now : int
        Microseconds since 1970.
    confidence : float, default 0.95
        0.9, 0.95 or 0.99.
    control : str, optional
        Control for a comparison by propensities instead of the holdout: ``uniform``, or ``arm NAME``.
    time_range : (str or None, str or None)
        Begin and end of the decisions in ISO 8601; or the numbers of the first and the last period.
    query : PlanQuery, optional
        Query to the planner.

    Raises
    ------
    InvalidValue
        If the confidence or the control is not allowed, the placement shows lists and has no holdout, or
        the time range has no sums.
    """
    boundary(confidence)  # raises if it is not allowed
    _check_query(query, placement.config.scale)
    reporter = _Reporter(placement, now, confidence, control, query or PlanQuery())
    if not placement.kind.showing.single:
        if control is not None:
            remedy = "leave it out: propensities of whole lists hardly tell a lift"
            raise InvalidValue("control", control, remedy)
        if placement.holdout is None and not any(time_range):
            # Without propensities there is only what the holdout that has ended says.
            time_range = None, reporter.find_last_holdout()
    if not any(time_range):
        return reporter.report()
    if any(text and text.isdigit() and len(text) < MIN_DATE for text in time_range):
        return reporter.report_periods(*time_range)
    return reporter.report_range(*time_range)


def compute_metric_lift(placement: Any, name: str) -> Lift:
    """Return the lift of a metric, policy minus the holdout's control, with 95 % confidence.

    It covers the periods that are comparable with the current one.

    Parameters
    ----------
    placement : Placement
        A placement with a holdout.
    name : str
        Name of the metric.
    """
    return _Reporter(placement, now=0, confidence=0.95, control=None, query=PlanQuery()).estimate_metric(name)


def _check_query(query: PlanQuery | None, scale: RewardScale) -> None:
    """Raise InvalidValue if a number of a planner's query is out of range; nothing for None."""
    if query is None:
        return
    checks.number("shown", query.lift, 0.0, 100.0, open_low=True)
    for field, value, most in (
        ("share", query.share, 0.5),
        ("rate", query.rate, MAX_OPEN if scale.is_open else scale.convert(1.0)),
        ("daily", query.daily, MAX_DAILY),
    ):
        if value is not None:
            checks.number(field, value, 0.0, most, open_low=True)


class Stratum(NamedTuple):
    """A period that counts in the lift, and the share of its control.

    Its ``sums``, if any, are of a part of the period and replace its own.
    """

    period: LiftPeriod
    share: float
    sums: HoldoutSums | None = None

    @property
    def reward(self) -> HoldoutSums:
        """The reward sums that count: ``sums``, or the whole period's sums."""
        return self.period.reward if self.sums is None else self.sums


class _Reporter:
    """Computes the lift report of a placement."""

    def __init__(
        self, placement: Any, now: int, confidence: float, control: str | None, query: PlanQuery
    ) -> None:
        """Read everything that the report needs from the placement, and select the comparable periods."""
        self._query = query
        self._name, self._offer, self._warnings = placement.name, placement.offer, _list_warnings(placement)
        self._sums: LiftSums = placement.lift
        self._config: PlacementConfig = placement.config
        self._current_holdout: HoldoutConfig | None = placement.holdout
        self._holdout = self._current_holdout if control is None else None
        self._control, self._is_by_holdout = control or "uniform", control is None
        self._now, self._confidence = now, confidence
        self._scale, self._has_client_decisions = placement.config.scale, placement.has_client_decisions
        self._shows_one = placement.kind.showing.single
        self._duel_verdict = placement.results.report()[1].verdict if placement.kind.showing.compared else ""
        self._deferred, self._closes = placement.deferred, placement.last_deadline
        self._pending = placement.pending + self._deferred
        self._open_sentence, late_count = _explain_open(placement, now), placement.outcomes[CORRECTED]
        self._late_sentence = phrases.late_rewards_sentence(late_count) if late_count else ""
        self._periods: list[LiftPeriod] = [*self._sums.past_periods, self._sums]
        self._selected_periods, self._terms = self._periods, self._sums.terms
        self._strata = self._find_comparable()

    def _find_comparable(self) -> list[Stratum]:
        """Return the selected periods that have a holdout and the last one's rule of rewards and metric.

        Periods without a decision are left out, except the current one.
        """
        metric = self._config.learned
        rule, metric_config = parse_rule(self._terms), parse_metrics(self._terms).get(metric or "")
        return [
            Stratum(period, share)
            for period in self._selected_periods
            if (share := self._get_control_share(period)) is not None
            and parse_rule(period.terms) == rule
            and parse_metrics(period.terms).get(metric or "") == metric_config
            and (period.reward.counts.any() or period is self._sums)
        ]

    def _get_holdout(self, period: LiftPeriod) -> HoldoutConfig | None:
        """Return the holdout of a period, or None."""
        return self._current_holdout if period is self._sums else parse_holdout(period.terms)

    def _get_control_share(self, period: LiftPeriod) -> float | None:
        """Return the share of a period's control; None if the period has no holdout."""
        holdout = self._get_holdout(period)
        return None if holdout is None else holdout.share

    def find_last_holdout(self) -> str:
        """Return the number, from 1, of the last period with a holdout; raise InvalidValue without one."""
        numbers = [number for number, period in enumerate(self._periods, 1) if self._get_holdout(period)]
        if numbers:
            return str(numbers[-1])
        remedy = "give it a holdout: propensities of whole lists hardly tell its lift"
        if self._duel_verdict:
            remedy += f"; which ranker is best, tacit placement duels {self._name} says"
        raise InvalidValue("placement", self._name, remedy)

    def report(self) -> wire.LiftReport:
        """Return the complete report over the comparable periods."""
        holdout = self._holdout
        lift = self._lift_by_propensities() if holdout is None else self._compute_lift()
        plan = self._make_plan()
        mismatches = [] if holdout is None else self._test_shares(self._sums)
        mismatches += _test_propensities(self._sums)
        best, winner_verdict = self._find_winner()
        since = self._find_begin()
        sentences = [*self._write_sentences(lift, plan, mismatches), self._late_sentence]
        if holdout is None:
            sentences.append(self._describe_largest(self._config.learned or ""))
        return wire.LiftReport(
            placement=self._name,
            method="propensities" if holdout is None else "holdout",
            control=self._control if holdout is None else holdout.named,
            share=holdout and holdout.share,
            unit=holdout and holdout.unit,
            since=_format_time(since),
            until=None,
            confidence=self._confidence,
            groups=self._count_groups(),
            claim=lift.claim,
            ratio=_make_bounds(lift.ratio),
            difference=_make_bounds(lift.difference),
            verdict=" ".join(filter(None, sentences)),
            srm=mismatches,
            planner=plan,
            winner=best,
            metrics=[] if holdout is None else self._list_metric_lifts(),
            winner_verdict=winner_verdict,
            as_of=as_datetime(self._now).isoformat(),
            pending=self._pending,
            pending_until=_format_time(self._closes if self._pending else None),
            counted=self._describe_counts(),
            rewards=self._scale.named,
            chapters=[] if holdout is None else self._list_periods(),
            look=None if holdout is None else self._report_look(holdout),
        )

    def report_periods(self, first: str | None, last: str | None) -> wire.LiftReport:
        """Return the report of the periods ``first`` to ``last``, counted from 1; None for no bound.

        The reporter keeps this selection. If the range ends before the current period, the report has the
        lift of the reward alone.

        Raises
        ------
        InvalidValue
            If a number is no period, or there is no holdout.
        """
        ends = []
        for field, text, default in (("from", first, 1), ("to", last, len(self._periods))):
            number = int(text) if text and text.isdigit() else 0
            if text and not 0 < number <= len(self._periods):
                allowed = f"1 to {len(self._periods)}"
                raise InvalidValue(field, text, f"give the numbers of chapters: {allowed}")
            ends.append(number or default)
        self._selected_periods = self._periods[ends[0] - 1 : ends[1]]
        if self._holdout is None and self._is_by_holdout:
            last_period = next(filter(self._get_holdout, reversed(self._selected_periods)), self._sums)
            self._holdout, self._terms = self._get_holdout(last_period), last_period.terms
        if self._holdout is None:
            raise InvalidValue("from" if first else "to", first or last, NO_PERIODS)
        self._strata = self._find_comparable()
        if ends[1] == len(self._periods) and self._current_holdout is not None:
            return self.report()
        end = self._periods[ends[1] - 1].end
        return self._report_part("chapters {} to {}".format(*ends), self._find_begin(), end)

    def report_range(self, begin: str | None, end: str | None) -> wire.LiftReport:
        """Return the report of the decisions in a time range, in ISO 8601: the lift of the reward alone.

        The reporter keeps this selection. None stands for no bound.

        Raises
        ------
        InvalidValue
            If the range is empty, there is no holdout, or users or sessions stay in their group.
        """
        field, value = ("from", begin) if begin else ("to", end)
        if self._holdout is None or any(stratum.period.clustered for stratum in self._strata):
            raise InvalidValue(field, value, NO_PERIODS if self._holdout is None else NO_DATES)
        ends = _parse_range(begin, end, self._now)
        ranges = [(stratum, stratum.period.time_bins.sum_range(*ends)) for stratum in self._strata]
        self._strata = [
            stratum._replace(sums=range_sums.sums) for stratum, range_sums in ranges if range_sums.begin
        ] or [self._strata[-1]._replace(sums=HoldoutSums.empty())]
        times = [time for _, range_sums in ranges if range_sums.begin for time in range_sums[1:]]
        first, last = (min(times), max(times)) if times else (0, 0)
        moments = map(as_datetime, (first, last) if times else (ends[0], min(ends[1], self._now)))
        days = [phrases.day(time, as_datetime(self._now)) + time.strftime(" %H:%M") for time in moments]
        return self._report_part("decisions from {} to {} (UTC)".format(*days), first, last)

    def _report_part(self, part: str, begin: int, end: int) -> wire.LiftReport:
        """Return the report with the lift of the reward alone, for a part of the time.

        Parameters
        ----------
        part : str
            Name of the part in the verdict, such as ``chapters 1 to 2``.
        begin, end : int
            Microseconds since 1970; 0 for none.
        """
        verdict = f"Of {part}: {self._describe_lift(self._compute_lift())}"
        return msgspec.structs.replace(
            self.report(),
            since=_format_time(begin),
            until=_format_time(end),
            verdict=verdict,
            srm=[],
            planner=None,
            winner=None,
            metrics=[],
            winner_verdict="",
        )

    # The lift --------------------------------------------------------------------------------

    def _compute_lift(self) -> Lift:
        """Return the lift over all comparable periods, in the unit of rewards."""
        sums = [stratum.reward for stratum in self._strata]
        return self._estimate_lift(sums, [stratum.share for stratum in self._strata])

    def _estimate_lift(self, sums: Sequence[HoldoutSums], shares: Sequence[float], **options: Any) -> Lift:
        """Return the lift over periods with these sums and shares of the control, in the unit of rewards."""
        lift = holdout_lift(sums, shares, confidence=self._confidence, largest=self._scale.largest, **options)
        return _convert_unit(lift, self._scale)

    def _lift_by_propensities(self) -> Lift:
        """Return the lift over a control, estimated by propensities without a holdout.

        The claim is "early" if the log does not support an estimate.
        """
        scores = _score_control(self._sums, self._control, self._offer)
        lift = scores.lift(self._confidence) if self._is_covered else Lift("early")
        return _convert_unit(lift, self._scale)

    @property
    def _is_covered(self) -> bool:
        """True if the log supports an estimate of the control's rewards by propensities."""
        return (
            self._control != "uniform"
            or self._current_holdout is not None
            or _score_uniform(self._sums).is_covered
        )

    def _find_begin(self) -> int:
        """Return the time, in microseconds, from which decisions count in the report."""
        if self._holdout is not None:
            return next((stratum.period.time for stratum in self._strata), self._sums.time)
        if self._control != "uniform":
            arms = [subperiod.time for subperiod in self._sums.subperiods if subperiod.change == ARMS]
            return arms[-1] if arms else self._sums.time
        rule = parse_rule(self._sums.terms)
        return next(period.time for period in self._periods if parse_rule(period.terms) == rule)

    def _count_groups(self) -> dict[str, wire.Group]:
        """Return number of decisions and rewards of control and policy; without a holdout of the policy."""
        if self._holdout is None:
            n, rewards = _score_control(self._sums, self._control, self._offer)[:2]
            return {"policy": wire.Group(int(n), self._scale.convert(rewards, n))}
        empty = HoldoutSums.empty()
        return _sum_groups([stratum.reward for stratum in self._strata] or [empty], self._scale)

    # Periods ---------------------------------------------------------------------------------

    def _list_periods(self) -> list[wire.ChapterLift]:
        """Return the lift of each period with a holdout, in order of time, comparable or not."""
        counted_periods = {
            id(part.period)
            for part in self._strata
            if has_enough_data(part.reward, part.share, self._scale.largest)
        }
        # Without past periods, this is one too long.
        next_periods = [*self._sums.past_periods[1:], self._sums, None][-len(self._periods) :]
        return [
            self._describe_period(i, period, after, id(period) in counted_periods)
            for i, (period, after) in enumerate(zip(self._periods, next_periods, strict=True))
            if self._get_control_share(period) is not None
        ]

    def _describe_period(
        self, index: int, period: LiftPeriod, after: LiftPeriod | None, counted: bool
    ) -> wire.ChapterLift:
        """Return one period with its own lift, groups and subperiods.

        Parameters
        ----------
        index : int
            Position of the period, from 0.
        period : LiftPeriod
            A period with a holdout.
        after : LiftPeriod or None
            The next period, which shows the change that ended this one.
        counted : bool
            Whether it counts in the total lift.
        """
        holdout = self._get_holdout(period)
        assert holdout is not None
        lift = self._estimate_lift([period.reward], [holdout.share])
        parts = []
        for part in period.subperiods:
            groups, ratio = _sum_groups([part.sums], self._scale), _compute_ratio([part.sums])
            parts.append(wire.PartLift(part.change, _format_time(part.time), groups, ratio))
        return wire.ChapterLift(
            number=index + 1,
            since=_format_time(period.time),
            until=_format_time(period.end),
            ended=None if after is None else describe_change(period.terms, after.terms),
            control=holdout.named,
            share=holdout.share,
            unit=holdout.unit,
            groups=_sum_groups([period.reward], self._scale),
            claim=lift.claim,
            ratio=_make_bounds(lift.ratio),
            difference=_make_bounds(lift.difference),
            counted=counted,
            alarm=any(wrong.alarm for wrong in self._test_shares(period)),
            parts=[] if self._scale.low else parts,
        )

    def _describe_change(self) -> str:
        """Describe the last change, its day, and the ratio of rewards before and since.

        Return "" if either side has too few decisions, or amounts do not begin at 0.
        """
        subperiods = [
            (stratum, i, subperiod)
            for stratum in self._strata
            for i, subperiod in enumerate(stratum.period.subperiods)
            if subperiod.sums.counts.all()
        ]
        if len(subperiods) < 2 or self._scale.low:
            return ""
        stratum, index, last = subperiods[-1]
        before = [subperiod.sums for _, _, subperiod in subperiods[:-1]]
        shares, largest = [stratum.share for stratum, _, _ in subperiods[:-1]], self._scale.largest
        if not any(map(has_enough_data, before, shares, repeat(largest))) or not has_enough_data(
            last.sums, stratum.share, largest
        ):
            return ""
        if index:
            what = CHANGES.get(last.change, f"the {last.change.replace(' ', ' became ')}")
            time = last.time
        else:
            what, time = describe_change(subperiods[-2][0].period.terms, stratum.period.terms), last.time
        percentages = [_format_percent(_compute_ratio(sums)) for sums in (before, [last.sums])]
        day = phrases.day(as_datetime(time), as_datetime(self._now))
        return f"{what} on {day} (before: {percentages[0]}, since: {percentages[1]})"

    def _report_look(self, holdout: HoldoutConfig) -> wire.PlannedLook | None:
        """Return the result of the planned look, over decisions before it; None if none is planned.

        Before its time the claim is "early" and bounds are missing.
        """
        if holdout.look_time is None:
            return None
        at = phrases.day(as_datetime(holdout.look_time), as_datetime(self._now))
        reached = self._now >= holdout.look_time + self._config.rule.window
        if not reached:
            verdict = f"One look is planned on {at}: it will be sharper by a fifth."
            return wire.PlannedLook(holdout.look or "", False, "early", None, None, verdict)
        sums = self._sums.reward if self._sums.look_sums is None else self._sums.look_sums
        lift = self._estimate_lift([sums], [holdout.share], planned=self._confidence == PLANNED_CONFIDENCE)
        verdict = f"At the look that was planned on {at}: {phrases.lift_sentence(lift)}"
        verdict = verdict.removesuffix(f" {phrases.ANY_TIME}")
        bounds = _make_bounds(lift.ratio), _make_bounds(lift.difference)
        return wire.PlannedLook(holdout.look or "", True, lift.claim, *bounds, verdict)

    # Verdict, planner, winner and metrics ----------------------------------------------------

    def _write_sentences(self, lift: Lift, plan: wire.Plan | None, tests: list[wire.Mismatch]) -> list[str]:
        """Return the verdict's sentences: warnings and mismatches, then lift, plan and last change.

        ``tests`` are the current period's tests of shares and propensities; of earlier periods they are
        added.
        """
        periods = [] if self._holdout is None else [stratum.period for stratum in self._strata]
        earlier = [period for period in periods if period is not self._sums]
        mismatches = [*tests, *chain.from_iterable(map(self._test_shares, earlier))]
        alarms = [_describe_mismatch(test, self._holdout) for test in mismatches if test.alarm]
        sentences = [*self._warnings, *alarms]
        if self._sums.excluded_shards:
            sentences.append(phrases.missing_shards_sentence(self._sums.excluded_shards))
        if self._holdout is None and not _score_uniform(self._sums).n:
            why = self._open_sentence or phrases.NO_PROPENSITIES
            return [*sentences, why, *([plan.verdict] if plan else [])]
        if not self._is_covered:
            return [*sentences, phrases.NOT_COVERED]
        if (
            self._holdout is None
            and self._control == "uniform"
            and _is_uniform(self._sums, self._config.policy)
        ):
            return [*sentences, phrases.EVEN]
        # The days of a query with another share, rate or traffic are not those of this holdout.
        target_lift, is_hypothetical = self._query.lift, self._query != PlanQuery(self._query.lift)
        days = None if plan is None or self._holdout is None or is_hypothetical else plan.days
        is_weighed = lift.claim == "early" and self._holdout is None
        sides = _name_sides(self._sums, self._holdout, self._control)
        early = phrases.EARLY_WEIGHED if is_weighed else phrases.EARLY
        sentences.append(self._describe_lift(lift, early, days, target_lift, *sides))
        if lift.claim == "early" and days:
            sentences.append(phrases.planner_sentence(days, target_lift))
        elif lift.claim in ("early", "undecided") and days is None and plan is not None:
            sentences.append(plan.verdict)
        changed = "" if self._holdout is None else self._describe_change()
        if lift.claim in ("better", "worse"):
            moments = as_datetime(self._find_begin()), as_datetime(self._now)
            sentences.append(phrases.since_sentence(*moments, changed))
        elif changed:
            sentences.append(f"{changed[0].upper()}{changed[1:]}.")
        return sentences

    def _describe_lift(self, lift: Lift, early: str = phrases.EARLY, *details: Any) -> str:
        """Return the sentence on a lift; ``early``, or that there was no reward, if it has no interval."""
        if lift.claim != "early":
            return phrases.lift_sentence(lift, *details)
        n, rewards, _ = self._observe_rewards()
        return early if rewards or n < MIN_EQUAL else phrases.no_reward_sentence(n)

    def _describe_counts(self) -> str:
        """Return a sentence with the time of the report, and its numbers of counted and open decisions."""
        n = sum(group.decisions for group in self._count_groups().values())
        closes = None if self._closes is None else as_datetime(self._closes)
        now = as_datetime(self._now)
        counted = phrases.count_sentence(now, n)
        waiting = phrases.pending_sentence(self._pending, now, closes, self._deferred)
        return f"{counted} {waiting}" if self._pending else counted

    def _test_shares(self, period: LiftPeriod) -> list[wire.Mismatch]:
        """Test whether the control's observed shares in a period agree with the configured share.

        Return a result for decisions, for activations and, if most decisions have it, for feedback; []
        without a holdout.
        """
        share, sums = self._get_control_share(period), period.reward
        if share is None:
            return []
        counts = independent_counts(sums)
        # Design effect: decisions per independent decision if users stay in their group.
        effect = float(sums.counts.sum()) / max(sum(counts), 1.0) or 1.0
        pairs = {"decisions": period.decided_counts, "activations": sums.counts}
        if period.answered_counts.sum() >= EXPLICIT * sums.counts.sum() > 0:
            pairs["feedback"] = period.answered_counts
        mismatches = []
        for what, pair in pairs.items():
            evidence = share_evidence((pair / max(effect, 1.0)).tolist(), share)
            observed_share = float(pair[0] / pair.sum()) if pair.sum() else None
            mismatches.append(wire.Mismatch(what, observed_share, evidence, evidence > ALARM))
        return mismatches

    def _make_plan(self) -> wire.Plan | None:
        """Return how many decisions and days a holdout needs to detect a lift.

        None if the mean reward is 0 or the largest, the lift is impossible, or too little is known.
        """
        query, holdout = self._query, self._current_holdout
        if self._scale.low or (self._has_client_decisions and holdout is None and query == PlanQuery()):
            return None
        share = query.share or (holdout.share if holdout is not None else DEFAULT_SHARE)
        n, rewards, scatter = self._observe_rewards()
        largest = self._scale.largest
        # The overall rate: the control's rate alone is too noisy at first.
        rate = query.rate / self._scale.span if query.rate else (rewards / n if n else 0.0)
        since = self._find_begin() if self._current_holdout is self._holdout else self._sums.time
        passed = (self._now - since) / DAY if since else 0.0
        daily = query.daily or (n / passed if n and passed > 0 else None)
        # Without a largest reward, nothing but the rewards of a holdout says how they vary.
        if not 0 < rate < largest or scatter is None:
            return None
        try:
            decision_count = decisions_needed(rate, query.lift, share, dispersion=scatter, largest=largest)
        except InvalidValue:
            # The lift would exceed the largest reward.
            return None
        past_count = n if holdout is not None and query.share in (None, holdout.share) else 0.0
        days = None if daily is None else max(decision_count - past_count, 0.0) / daily
        total_days = None if daily is None else decision_count / daily
        verdict = phrases.plan_sentence(decision_count, total_days, query.lift, share)
        return wire.Plan(query.lift, decision_count, days, share, self._scale.convert(rate), daily, verdict)

    def _observe_rewards(self) -> tuple[float, float, float | None]:
        """Return the planner's data: number of decisions, sum of rewards, and dispersion of rewards.

        With a holdout, decisions and rewards come from both groups over all comparable periods, and the
        dispersion from the last period. Without one they come from the comparison with uniformly drawn arms.
        The dispersion is the variance of rewards relative to clicks with the same mean; unknown, it
        is 1, or None if rewards have no largest value.
        """
        unknown, largest = (None if self._scale.is_open else 1.0), self._scale.largest
        if self._current_holdout is not None:
            period_sums = [stratum.reward for stratum in self._strata] or [self._sums.reward]
            n = float(sum(sums.counts.sum() for sums in period_sums))
            rewards = float(sum(sums.totals.sum() for sums in period_sums))
            last = period_sums[-1]
            has_variation = last.counts.all() and 0 < last.totals.sum() < largest * last.counts.sum()
            return n, rewards, float(dispersion(last, largest)) if has_variation else unknown
        n, rewards, square = map(float, _score_uniform(self._sums)[:3])
        # The variance of rare clicks is nearly their mean.
        if self._scale.is_open and rewards > 0:
            return n, rewards, max(square - rewards * rewards / n, 0.0) / rewards
        return n, rewards, unknown

    def _find_winner(self) -> tuple[wire.BestArm | None, str]:
        """Return the best arm, or None if there is no comparison, and a sentence about it.

        For lists and duels the arm is None; for duels the sentence is their verdict.
        """
        scores = self._sums.scores
        if len(self._offer.arm_indices) < 2 or not self._shows_one:
            return None, self._duel_verdict
        holdout = self._current_holdout
        if not scores.overall[0] and holdout is None:
            has_data = self._open_sentence or _score_uniform(self._sums).n
            return None, phrases.EARLY_WINNER if has_data else phrases.NO_PROPENSITIES
        if self._sums.partial:
            return None, phrases.SOME_ARMS
        # Units that stay with the policy never get the control's random arms.
        floor = compute_floor(self._config.policy, None if self._sums.clustered else holdout)
        allowed = floor > 0 or scores.compare_with_uniform().is_even
        result = winner(scores, self._confidence, self._offer.arm_indices.tolist())
        if result is None:
            return None, phrases.EARLY_WINNER if allowed else phrases.NO_WINNER
        behind = {
            str(arm): wire.Bounds(*(self._scale.span * end for end in interval))
            for arm, interval in zip(self._offer.arms, result.behind, strict=True)
        }
        best, declared = self._offer.names[result.leader], result.declared and allowed
        sentence = phrases.winner_sentence(str(best) if declared else None)
        if not allowed:
            sentence = phrases.NO_WINNER
        return wire.BestArm(best, declared, behind, sentence), sentence

    def _find_strata(self, name: str) -> list[Stratum]:
        """Return the comparable periods in which a metric had its current configuration."""
        metric_config = parse_metrics(self._sums.terms).get(name)
        return [
            stratum
            for stratum in self._strata
            if name in stratum.period.metrics
            and parse_metrics(stratum.period.terms).get(name) == metric_config
        ]

    def estimate_metric(self, name: str, comparisons: int = 1) -> Lift:
        """Return the lift of a metric over the holdout; confidence holds for all ``comparisons`` together.

        Only periods in which the metric had its current configuration count.
        """
        strata, config = self._find_strata(name), self._config.metrics[name]
        estimate = partial(holdout_lift, largest=config.largest) if config.has_low else difference_lift
        sums, shares = [part.period.metrics[name] for part in strata], [part.share for part in strata]
        return estimate(sums, shares, confidence=self._confidence, comparisons=comparisons)

    def _list_metric_lifts(self) -> list[wire.MetricLift]:
        """Return for each configured metric its lift over the holdout, safety status and verdict.

        Confidence holds for all metrics together.
        """
        lifts = []
        for name, config in self._config.metrics.items():
            lift = self.estimate_metric(name, len(self._config.metrics))
            if config.low:
                # A ratio is meaningless if amounts do not begin at 0.
                lift = lift._replace(ratio=None)
            # The margin of an open range is a share of the control's mean, or 0.
            span = config.largest if math.isfinite(config.largest) else 1.0
            safety = guardrail_status(lift, config.margin, better=config.better, span=span)
            sums = [part.period.metrics[name] for part in self._find_strata(name)]
            n = sum(float(part.counts.sum()) for part in sums)
            # Sums hold amounts minus ``low``, in which an amount of 0 is −low.
            zero = config.low**2
            silent = n >= MIN_EQUAL and all((part.squares == zero * part.counts).all() for part in sums)
            parts = phrases.guardrail_sentence(name, safety, config.margin), self._describe_largest(name)
            verdict = f"{parts[0]}{phrases.difference_sentence(lift)} {parts[1]}".rstrip()
            if silent:
                verdict = phrases.no_amount_sentence(name, n)
            bounds = _make_bounds(lift.ratio), _make_bounds(lift.difference)
            lifts.append(wire.MetricLift(name, lift.claim, *bounds, safety, verdict, silent))
        return lifts

    def _describe_largest(self, name: str) -> str:
        """Return a sentence on how much of a metric's sum the largest amount and the five largest bring.

        It covers the comparable periods; "" if the metric's range has two ends, or all amounts are 0.
        """
        tail, strata = NO_TAIL, self._find_strata(name)
        for period in [stratum.period for stratum in strata] or [self._sums]:
            if name in period.tails:
                tail = extend_tail(tail, period.tails[name][:1], period.tails[name][1:])
        total, *largest = tail.tolist()
        if not total:
            return ""
        return f"Of {name} {phrases.describe_shares((largest[0] / total, sum(largest) / total), 'amount')}."


def _convert_unit(lift: Lift, scale: RewardScale) -> Lift:
    """Return a lift with its difference in the unit of rewards.

    The ratio is None if amounts do not begin at 0.
    """
    if lift.difference is None:
        return lift
    difference = Interval(*(scale.span * end for end in lift.difference))
    return Lift(lift.claim, None if scale.low else lift.ratio, difference)


def _score_uniform(sums: LiftSums) -> Scores:
    """Return the comparison with uniformly drawn arms, over all periods with the current rule of rewards."""
    rule, scores = parse_rule(sums.terms), sums.total_uniform_scores
    for period in sums.past_periods:
        if parse_rule(period.terms) == rule:
            scores = add_scores(scores, period.uniform_scores)
    return scores


def _is_uniform(sums: LiftSums, policy: Policy) -> bool:
    """True if all arms are shown equally often, over at least 100 decisions or by the policy's definition."""
    scores = _score_uniform(sums)
    return scores.is_even and (scores.n >= MIN_EQUAL or compute_floor(policy) == 1.0)


def _list_warnings(placement: Any) -> list[str]:
    """Return warnings: no examination was ever reported, or all decisions are of one user or session.

    Neither is given below 100 decisions.
    """
    sums, holdout = placement.lift, placement.holdout
    n, rewards = _score_uniform(sums)[:2]
    if holdout is not None:
        n, rewards = sums.reward.counts.sum(), sums.reward.totals.sum()
    sentences, buckets = [], sums.reward.buckets
    if (
        rewards == n >= MIN_EQUAL
        and placement.config.rule.seen == "examined"
        and not placement.outcomes[NOTED]
    ):
        sentences.append(phrases.NEVER_EXAMINED)
    if holdout is not None and buckets is not None and np.count_nonzero(buckets[1]) == 1 and n >= MIN_EQUAL:
        sentences.append(phrases.one_unit_sentence(n, holdout.unit))
    return sentences


def _explain_open(placement: Any, now: int) -> str:
    """Return a sentence if no decision counts yet because windows are open; "" otherwise."""
    time, closes, config = placement.lift.time, placement.last_deadline, placement.config
    if not (config.propensities and config.policy.randomized):
        return ""
    has_counted = placement.pending + placement.deferred != placement.decisions
    if time and now >= time + config.rule.window and has_counted:
        return ""
    until = None if closes is None else as_datetime(closes)
    return phrases.no_decision_sentence(placement.pending, as_datetime(now), until)


def _score_control(sums: LiftSums, control: str, offer: Offer) -> Scores:
    """Return the comparison with a control by propensities: ``uniform`` or ``arm NAME``.

    Raises
    ------
    InvalidValue
        If the control is not ``uniform`` or an arm on offer, or some offers were partial.
    """
    if control == "uniform":
        return _score_uniform(sums)
    arm_indices = dict(zip((f"arm {arm}" for arm in offer.arms), offer.arm_indices.tolist(), strict=True))
    if control not in arm_indices:
        is_retired = control in {f"arm {arm}" for arm in offer.retired}
        allowed = ", ".join(["uniform", *arm_indices][:10])
        raise InvalidValue(
            "control", control, f"{'it is retired: ' if is_retired else ''}give one of {allowed}"
        )
    if sums.partial:
        remedy = "compare with uniform: some decisions did not have every arm on offer"
        raise InvalidValue("control", control, remedy)
    return sums.scores.compare_with_arm(arm_indices[control])


def _name_sides(sums: LiftSums, holdout: HoldoutConfig | None, control: str) -> tuple[str, str]:
    """Return the names of the two compared sides for the verdict: policy and control."""
    if holdout is not None:
        return "Learning", "the control"
    uniform = "arms drawn uniformly"
    other_side = uniform if control == "uniform" else f"{control.removeprefix('arm ')} alone"
    # Clients may have decided without learning.
    return (
        uniform.capitalize() if sums.scores.compare_with_uniform().is_even else "What was shown",
        other_side,
    )


def _sum_groups(sums: Sequence[HoldoutSums], scale: RewardScale) -> dict[str, wire.Group]:
    """Return the total decisions and rewards of control and policy, in the unit of rewards."""
    counts = np.sum([part.counts for part in sums], axis=0)
    totals = np.sum([part.totals for part in sums], axis=0)
    return {
        name: wire.Group(int(n), scale.convert(total, n))
        for name, n, total in zip(("control", "policy"), counts, totals, strict=True)
    }


def _test_propensities(sums: LiftSums) -> list[wire.Mismatch]:
    """Test whether arms were shown as often as their propensities say; return one result or [].

    The list is empty if no propensities are known.
    """
    frequencies = sums.frequencies
    if not frequencies.offered.any():
        return []
    evidence = frequencies.evidence()
    return [wire.Mismatch(WEIGHTS, share=None, evidence=evidence, alarm=evidence > ALARM)]


def _describe_mismatch(mismatch: wire.Mismatch, holdout: HoldoutConfig | None) -> str:
    """Return the sentence about a mismatch."""
    if mismatch.what == WEIGHTS or holdout is None:
        return phrases.PROPENSITIES
    return phrases.mismatch_sentence(mismatch.what, mismatch.share or 0.0, holdout.share)


def _compute_ratio(sums: Sequence[HoldoutSums]) -> float | None:
    """Return the policy's mean reward divided by the control's, over periods; None if undefined.

    Each period counts by its number of decisions.
    """
    n, r = (np.array(list(values)) for values in zip(*(sums_of[:2] for sums_of in sums), strict=True))
    if not n.all():
        return None
    control, policy = (r / n * n.sum(axis=1, keepdims=True)).sum(axis=0)
    return float(policy / control) if control else None


def _format_percent(ratio: float | None) -> str:
    """Format a ratio minus 1 as a percentage; "not known" for None."""
    if ratio is None:
        return "not known"
    return f"{'' if ratio >= 1 else MINUS}{phrases.percent(abs(ratio - 1))}"


def _format_time(time: int | None) -> str | None:
    """Format microseconds since 1970 in ISO 8601; None for 0 or None."""
    return as_datetime(time).isoformat() if time else None


def _make_bounds(interval: Interval | None) -> wire.Bounds | None:
    """Convert an interval to the report's bounds; infinite ends and a missing interval are None."""
    if interval is None:
        return None
    return wire.Bounds(*(end if math.isfinite(end) else None for end in map(float, interval)))


def _parse_range(begin: str | None, end: str | None, now: int) -> tuple[int, int]:
    """Parse begin and end in ISO 8601; return them in microseconds since 1970.

    Without a begin it is 0; without an end it lies far ahead.

    Raises
    ------
    InvalidValue
        If the begin is not before the end and before now.
    """
    first, last = parse_time("from", begin) if begin else 0, parse_time("to", end) if end else FOREVER
    if begin and first >= min(last, now):
        raise InvalidValue("from", begin, f"give a time before {as_datetime(min(last, now)).isoformat()}")
    return first, last
