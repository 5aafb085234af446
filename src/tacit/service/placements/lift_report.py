"""Lift report of a placement, for HTTP, the page and the command line."""

# 1. ``PlanQuery``: a query to the planner.
# 2. ``make_lift_report``, by ``_Reporter``: the lift over comparable periods, their list, plan and winner.
# 3. Helpers: sums, ratios, percentages, times and bounds in the form of the report.

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tacit.core import checks
from tacit.errors import InvalidValue
from tacit.learning.lanes import Offer
from tacit.policies import Policy
from tacit.service.config.holdout import HoldoutConfig, RewardScale
from tacit.service.config.schema import PlacementConfig
from tacit.service.log.ids import as_time, moment
from tacit.service.log.rows import ARMS
from tacit.service.placements.aspects.control_group import floor_of
from tacit.service.placements.aspects.lift_periods import (
    Chapter,
    added,
    change_between,
    holdout_in,
    metrics_in,
    rule_in,
)
from tacit.service.placements.aspects.reward_sums import LiftSums
from tacit.service.placements.attribution import CORRECTED, NOTED
from tacit.uplift import (
    ALARM,
    HoldoutSums,
    Lift,
    Scores,
    boundary,
    decisions_needed,
    dispersion,
    guarded,
    holdout_lift,
    share_evidence,
    winner,
)
from tacit.uplift import sentences as said
from tacit.uplift.boundary import Interval
from tacit.uplift.holdout import enough
from tacit.uplift.traffic import independent_counts
from tacit.wire import lift as wire

DAY = 86_400e6
PLANNED_LIFT = 0.1
MOST_DAILY = 1e12
DEFAULT_SHARE = HoldoutConfig().share
WEIGHTS = "propensities"
FOREVER = 2**62
MANY = 100
"""Number of decisions from which equal ones are no coincidence."""
MINUS = "\N{MINUS SIGN}"
PLANNED_CONFIDENCE = 0.95
NO_CHAPTERS = "leave it out: stretches of time and chapters are known of holdouts"
NO_DATES = "give the number of a chapter: dates are known of holdouts whose units are decisions"
LEAST_DATE = 8
"""Least number of digits of a date; fewer digits are the number of a period."""
CHANGES = {
    ARMS: "arms changed",
    "rebuild": "the policy was rebuilt",
    "rollback": "what was learned was rolled back",
}
EXPLICIT = 0.8
"""Share of decisions with feedback from which the groups' shares of feedback are compared. Below it, feedback
is mostly clicks, of which the policy should have more."""


class Wish(msgspec.Struct):
    """A query to the planner; missing fields are observed or taken from the configuration."""

    lift: float = PLANNED_LIFT
    share: float | None = None
    rate: float | None = None
    daily: float | None = None


def lift_report(
    placement: Any,
    now: int,
    confidence: float = 0.95,
    control: str | None = None,
    stretch: tuple[str | None, str | None] = (None, None),
    wish: Wish | None = None,
) -> wire.LiftReport:
    """Return the lift report of a placement.

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
    boundary(confidence)
    _check_wish(wish, placement.config.scale)
    if not placement.kind.showing.single:
        if placement.holdout is None:
            remedy = "give it a holdout: propensities of whole lists hardly tell its lift"
            if placement.kind.showing.compared:
                remedy += f"; which ranker is best, tacit placement duels {placement.name} says"
            raise InvalidValue("placement", placement.name, remedy)
        if control is not None:
            remedy = "leave it out: propensities of whole lists hardly tell a lift"
            raise InvalidValue("control", control, remedy)
    reporter = _Reporter(placement, now, confidence, control, wish or Wish())
    if not any(stretch):
        return reporter.report()
    if any(text and text.isdigit() and len(text) < LEAST_DATE for text in stretch):
        return reporter.report_of_chapters(*stretch)
    return reporter.report_of(*stretch)


def lift_of_metric(placement: Any, name: str) -> Lift:
    """Return the lift of a metric: policy minus the holdout's control.

    Parameters
    ----------
    placement : Placement
        A placement with a holdout.
    name : str
        Name of the metric.
    """
    return _Reporter(placement, 0, 0.95, None, Wish()).of_metric(name)


def _check_wish(wish: Wish | None, scale: RewardScale) -> None:
    if wish is None:
        return
    checks.number("shown", wish.lift, 0.0, 100.0, open_low=True)
    for field, value, most in (
        ("share", wish.share, 0.5), ("rate", wish.rate, scale.amount(1.0)), ("daily", wish.daily, MOST_DAILY)
    ):  # fmt: skip
        if value is not None:
            checks.number(field, value, 0.0, most, open_low=True)


class Stratum(NamedTuple):
    """A period that counts, the share of its control, and sums that replace those of the whole period."""

    chapter: Chapter
    share: float
    sums: HoldoutSums | None = None

    @property
    def own(self) -> HoldoutSums:
        """The reward sums that count."""
        return self.chapter.reward if self.sums is None else self.sums


class _Reporter:
    """Computes the lift report of a placement."""

    def __init__(self, placement: Any, now: int, confidence: float, control: str | None, wish: Wish) -> None:
        self._wish = wish
        self._name, self._offer, self._never = placement.name, placement.offer, _never(placement)
        self._sums: LiftSums = placement.lift
        self._config: PlacementConfig = placement.config
        self._held: HoldoutConfig | None = placement.holdout
        self._holdout = self._held if control is None else None
        self._control = control or "uniform"
        self._now, self._confidence = now, confidence
        self._scale, self._elsewhere = placement.config.scale, placement.decided_elsewhere
        self._shows_one = placement.kind.showing.single
        self._duels = placement.report()[1].verdict if placement.kind.showing.compared else ""
        self._pending, self._closes = placement.pending, placement.closes
        self._unclosed, late = _unclosed(placement, now), placement.outcomes[CORRECTED]
        self._late = said.corrected_sentence(late) if late else ""
        self._all: list[Chapter] = [*self._sums.past, self._sums]
        self._chosen = self._all
        self._strata = self._comparable()

    def _comparable(self) -> list[Stratum]:
        """Return the selected periods whose rule of rewards equals the current one."""
        terms = self._sums.terms
        metric = self._config.learned
        rule, of = rule_in(terms), metrics_in(terms).get(metric or "")
        return [
            Stratum(chapter, share)
            for chapter in self._chosen
            if (share := self._share(chapter)) is not None
            and rule_in(chapter.terms) == rule
            and metrics_in(chapter.terms).get(metric or "") == of
            and (chapter.reward.counts.any() or chapter is self._sums)
        ]

    def _share(self, chapter: Chapter) -> float | None:
        """Return the share of a period's control; None without a holdout."""
        holdout = self._held if chapter is self._sums else holdout_in(chapter.terms)
        return None if holdout is None else holdout.share

    def report(self) -> wire.LiftReport:
        """Return the complete report."""
        holdout = self._holdout
        lift = self._by_propensities() if holdout is None else self._of_strata()
        plan = self._plan()
        wrong = [] if holdout is None else self._mismatches(self._sums)
        wrong += _misweighed(self._sums)
        best, winner_verdict = self._winner()
        since = self._since()
        return wire.LiftReport(
            placement=self._name,
            method="propensities" if holdout is None else "holdout",
            control=self._control if holdout is None else holdout.named,
            share=holdout and holdout.share,
            unit=holdout and holdout.unit,
            since=_text(since),
            until=None,
            confidence=self._confidence,
            groups=self._groups(),
            claim=lift.claim,
            ratio=_bounds(lift.ratio),
            difference=_bounds(lift.difference),
            verdict=" ".join(filter(None, [*self._sentences(lift, plan, wrong), self._late])),
            srm=wrong,
            planner=plan,
            winner=best,
            metrics=[] if holdout is None else self._metrics(),
            winner_verdict=winner_verdict,
            as_of=moment(self._now).isoformat(),
            pending=self._pending,
            pending_until=_text(self._closes if self._pending else None),
            counted=self._counted(),
            rewards=self._scale.named,
            chapters=[] if holdout is None else self._chapters(),
            look=None if holdout is None else self._look(holdout),
        )

    def report_of_chapters(self, first: str | None, last: str | None) -> wire.LiftReport:
        """Return the report of a range of periods, by the numbers of the first and the last."""
        ends = []
        for field, text, default in (("from", first, 1), ("to", last, len(self._all))):
            number = int(text) if text and text.isdigit() else 0
            if text and not 0 < number <= len(self._all):
                known = f"1 to {len(self._all)}"
                raise InvalidValue(field, text, f"give the numbers of chapters: {known}")
            ends.append(number or default)
        if self._holdout is None:
            raise InvalidValue("from" if first else "to", first or last, NO_CHAPTERS)
        self._chosen = self._all[ends[0] - 1 : ends[1]]
        self._strata = self._comparable()
        if ends[1] == len(self._all):
            return self.report()
        end = self._all[ends[1] - 1].end
        return self._only("chapters {} to {}".format(*ends), self._since(), end)

    def report_of(self, begin: str | None, end: str | None) -> wire.LiftReport:
        """Return the report of a time range: the lift of the reward over the holdout."""
        field, given = ("from", begin) if begin else ("to", end)
        if self._holdout is None or any(stratum.chapter.clustered for stratum in self._strata):
            raise InvalidValue(field, given, NO_CHAPTERS if self._holdout is None else NO_DATES)
        ends = _ends(begin, end, self._now)
        found = [(stratum, stratum.chapter.slices.between(*ends)) for stratum in self._strata]
        self._strata = [
            stratum._replace(sums=stretch.sums) for stratum, stretch in found if stretch.begin
        ] or [self._strata[-1]._replace(sums=HoldoutSums.empty())]
        times = [time for _, stretch in found if stretch.begin for time in stretch[1:]]
        first, last = (min(times), max(times)) if times else (0, 0)
        shown = map(moment, (first, last) if times else (ends[0], min(ends[1], self._now)))
        days = [said.day(time, moment(self._now)) + time.strftime(" %H:%M") for time in shown]
        return self._only("decisions from {} to {} (UTC)".format(*days), first, last)

    def _only(self, of: str, begin: int, end: int) -> wire.LiftReport:
        """Return the report with the lift of the reward alone, for a part of the time."""
        verdict = f"Of {of}: {said.lift_sentence(self._of_strata())}"
        return msgspec.structs.replace(
            self.report(),
            since=_text(begin),
            until=_text(end),
            verdict=verdict,
            srm=[],
            planner=None,
            winner=None,
            metrics=[],
            winner_verdict="",
        )

    # The lift --------------------------------------------------------------------------------

    def _of_strata(self) -> Lift:
        """Return the lift over all periods that count."""
        own = [stratum.own for stratum in self._strata]
        return self._of(own, [stratum.share for stratum in self._strata])

    def _of(self, sums: Sequence[HoldoutSums], shares: Sequence[float], **more: Any) -> Lift:
        lift = holdout_lift(sums, shares, confidence=self._confidence, **more)
        return _unscaled(lift, self._scale)

    def _by_propensities(self) -> Lift:
        lift = (
            _weighed(self._sums, self._control, self._offer).lift(self._confidence)
            if self._covered
            else Lift("early")
        )
        return _unscaled(lift, self._scale)

    @property
    def _covered(self) -> bool:
        """True if the log supports an estimate for the control."""
        return self._control != "uniform" or self._held is not None or _uniform(self._sums).covered

    def _since(self) -> int:
        """Return the time from which decisions count."""
        if self._holdout is not None:
            return next((stratum.chapter.time for stratum in self._strata), self._sums.time)
        if self._control != "uniform":
            arms = [part.time for part in self._sums.parts if part.what == ARMS]
            return arms[-1] if arms else self._sums.time
        rule = rule_in(self._sums.terms)
        return next(chapter.time for chapter in self._all if rule_in(chapter.terms) == rule)

    def _groups(self) -> dict[str, wire.Group]:
        if self._holdout is None:
            n, rewards = _weighed(self._sums, self._control, self._offer)[:2]
            return {"policy": wire.Group(int(n), self._scale.amount(rewards, n))}
        empty = HoldoutSums.empty()
        return _groups_of([stratum.own for stratum in self._strata] or [empty], self._scale)

    # Periods ---------------------------------------------------------------------------------

    def _chapters(self) -> list[wire.ChapterLift]:
        """Return all periods with a holdout, in order."""
        counted = {id(part.chapter) for part in self._strata if enough(part.own, part.share)}
        ends = [*self._sums.past[1:], self._sums, None]
        return [
            self._chapter(i, chapter, after, id(chapter) in counted)
            for i, (chapter, after) in enumerate(zip(self._all, ends[-len(self._all) :], strict=True))
            if self._share(chapter) is not None
        ]

    def _chapter(
        self, place: int, chapter: Chapter, after: Chapter | None, counted: bool
    ) -> wire.ChapterLift:
        holdout = self._held if chapter is self._sums else holdout_in(chapter.terms)
        assert holdout is not None
        lift = self._of([chapter.reward], [holdout.share])
        parts = [
            wire.PartLift(
                part.what, _text(part.time), _groups_of([part.sums], self._scale), _ratio([part.sums])
            )
            for part in chapter.parts
        ]
        return wire.ChapterLift(
            number=place + 1,
            since=_text(chapter.time),
            until=_text(chapter.end),
            ended=None if after is None else change_between(chapter.terms, after.terms),
            control=holdout.named,
            share=holdout.share,
            unit=holdout.unit,
            groups=_groups_of([chapter.reward], self._scale),
            claim=lift.claim,
            ratio=_bounds(lift.ratio),
            difference=_bounds(lift.difference),
            counted=counted,
            alarm=any(wrong.alarm for wrong in self._mismatches(chapter)),
            parts=[] if self._scale.low else parts,
        )

    def _changed(self) -> str:
        """Describe the last change and the lift before and since; empty if either is unknown."""
        before: list[HoldoutSums] = []
        pieces = [
            (stratum, i, part)
            for stratum in self._strata
            for i, part in enumerate(stratum.chapter.parts)
            if part.sums.counts.all()
        ]
        if len(pieces) < 2 or self._scale.low:
            return ""
        stratum, place, last = pieces[-1]
        before = [part.sums for _, _, part in pieces[:-1]]
        shares = [stratum.share for stratum, _, _ in pieces[:-1]]
        if not any(map(enough, before, shares)) or not enough(last.sums, stratum.share):
            return ""
        if place:
            what = CHANGES.get(last.what, f"the {last.what.replace(' ', ' became ')}")
            time = last.time
        else:
            what, time = change_between(pieces[-2][0].chapter.terms, stratum.chapter.terms), last.time
        shown = [_percent(_ratio(sums)) for sums in (before, [last.sums])]
        day = said.day(moment(time), moment(self._now))
        return f"{what} on {day} (before: {shown[0]}, since: {shown[1]})"

    def _look(self, holdout: HoldoutConfig) -> wire.PlannedLook | None:
        """Return the result of the planned look, over decisions before it; None without a look."""
        if holdout.looked is None:
            return None
        at = said.day(moment(holdout.looked), moment(self._now))
        reached = self._now >= holdout.looked + self._config.rule.window
        if not reached:
            verdict = f"One look is planned on {at}: it will be sharper by a fifth."
            return wire.PlannedLook(holdout.look or "", False, "early", None, None, verdict)
        sums = self._sums.reward if self._sums.planned is None else self._sums.planned
        lift = self._of([sums], [holdout.share], planned=self._confidence == PLANNED_CONFIDENCE)
        verdict = f"At the look that was planned on {at}: {said.lift_sentence(lift)}"
        verdict = verdict.removesuffix(f" {said.ANY_TIME}")
        bounds = _bounds(lift.ratio), _bounds(lift.difference)
        return wire.PlannedLook(holdout.look or "", True, lift.claim, *bounds, verdict)

    # Verdict, planner, winner and metrics ----------------------------------------------------

    def _sentences(self, lift: Lift, plan: wire.Plan | None, wrong: list[wire.Mismatch]) -> list[str]:
        chapters = [] if self._holdout is None else [stratum.chapter for stratum in self._strata]
        earlier = [each for past in chapters if past is not self._sums for each in self._mismatches(past)]
        found = [*self._never, *(_wrong(each, self._holdout) for each in [*wrong, *earlier] if each.alarm)]
        if self._sums.left_out:
            found.append(said.left_out_sentence(self._sums.left_out))
        if self._holdout is None and not _uniform(self._sums).n:
            why = self._unclosed or said.NO_PROPENSITIES
            return [*found, why, *([plan.verdict] if plan else [])]
        if not self._covered:
            return [*found, said.NOT_COVERED]
        if self._holdout is None and self._control == "uniform" and _even(self._sums, self._config.policy):
            return [*found, said.EVEN]
        shown, supposed = self._wish.lift, self._wish != Wish(self._wish.lift)
        days = None if plan is None or self._holdout is None or supposed else plan.days
        weighed = lift.claim == "early" and self._holdout is None
        sides = _sides(self._sums, self._holdout, self._control)
        found.append(said.EARLY_WEIGHED if weighed else said.lift_sentence(lift, days, shown, *sides))
        if lift.claim == "early" and days:
            found.append(said.planner_sentence(days, shown))
        elif lift.claim in ("early", "undecided") and days is None and plan is not None:
            found.append(plan.verdict)
        changed = "" if self._holdout is None else self._changed()
        if lift.claim in ("better", "worse"):
            moments = moment(self._since()), moment(self._now)
            found.append(said.since_sentence(*moments, changed))
        elif changed:
            found.append(f"{changed[0].upper()}{changed[1:]}.")
        return found

    def _counted(self) -> str:
        """Describe the time of the report and its number of decisions in words."""
        n = sum(group.decisions for group in self._groups().values())
        closes = None if self._closes is None else moment(self._closes)
        return said.counted_sentence(moment(self._now), n, self._pending, closes)

    def _mismatches(self, chapter: Chapter) -> list[wire.Mismatch]:
        share, sums = self._share(chapter), chapter.reward
        if share is None:
            return []
        counts = independent_counts(sums)
        # Design effect: decisions per independent decision if users stay in their group.
        effect = float(sums.counts.sum()) / max(sum(counts), 1.0) or 1.0
        pairs = {"decisions": chapter.decided, "activations": sums.counts}
        if chapter.answered.sum() >= EXPLICIT * sums.counts.sum() > 0:
            pairs["feedback"] = chapter.answered
        found = []
        for what, pair in pairs.items():
            evidence = share_evidence((pair / max(effect, 1.0)).tolist(), share)
            had = float(pair[0] / pair.sum()) if pair.sum() else None
            found.append(wire.Mismatch(what, had, evidence, evidence > ALARM))
        return found

    def _plan(self) -> wire.Plan | None:
        """Return the decisions and days until a lift is detected, with the current or a default holdout."""
        wish, holdout = self._wish, self._held
        if self._scale.low or (self._elsewhere and holdout is None and wish == Wish()):
            return None
        share = wish.share or (holdout.share if holdout is not None else DEFAULT_SHARE)
        n, rewards, scatter = self._observed()
        # The overall rate: that of the control alone is too noisy at first.
        rate = wish.rate / self._scale.span if wish.rate else (rewards / n if n else 0.0)
        since = self._since() if self._held is self._holdout else self._sums.time
        passed = (self._now - since) / DAY if since else 0.0
        daily = wish.daily or (n / passed if n and passed > 0 else None)
        if not 0 < rate < 1:
            return None
        try:
            needed = decisions_needed(rate, wish.lift, share, dispersion=scatter)
        except InvalidValue:
            # The lift would exceed the largest reward.
            return None
        begun = n if holdout is not None and wish.share in (None, holdout.share) else 0.0
        days = None if daily is None else max(needed - begun, 0.0) / daily
        whole = None if daily is None else needed / daily
        verdict = said.plan_sentence(needed, whole, wish.lift, share)
        return wire.Plan(wish.lift, needed, days, share, self._scale.amount(rate), daily, verdict)

    def _observed(self) -> tuple[float, float, float]:
        """Return the number of decisions, the sum of rewards, and the dispersion of rewards."""
        if self._held is not None:
            each = [stratum.own for stratum in self._strata] or [self._sums.reward]
            n = float(sum(sums.counts.sum() for sums in each))
            rewards = float(sum(sums.totals.sum() for sums in each))
            last = each[-1]
            known = last.counts.all() and 0 < last.totals.sum() < last.counts.sum()
            return n, rewards, float(dispersion(last)) if known else 1.0
        n, rewards = map(float, _uniform(self._sums)[:2])
        return n, rewards, 1.0

    def _winner(self) -> tuple[wire.BestArm | None, str]:
        """Return the best arm and a sentence about it; None for the arm if there is no comparison."""
        scores = self._sums.scores
        if len(self._offer.slots) < 2 or not self._shows_one:
            return None, self._duels
        holdout = self._held
        if not scores.overall[0] and holdout is None:
            known = self._unclosed or _uniform(self._sums).n
            return None, said.EARLY_WINNER if known else said.NO_PROPENSITIES
        if self._sums.partial:
            return None, said.SOME_ARMS
        # Units that stay with the policy never get the control's random arms.
        floor = floor_of(self._config.policy, None if self._sums.clustered else holdout)
        allowed = floor > 0 or scores.over_uniform().even
        found = winner(scores, self._confidence, self._offer.slots.tolist())
        if found is None:
            return None, said.EARLY_WINNER if allowed else said.NO_WINNER
        behind = {
            str(arm): wire.Bounds(*(self._scale.span * end for end in interval))
            for arm, interval in zip(self._offer.arms, found.behind, strict=True)
        }
        best, declared = self._offer.names[found.leader], found.declared and allowed
        sentence = said.winner_sentence(str(best) if declared else None)
        if not allowed:
            sentence = said.NO_WINNER
        return wire.BestArm(best, declared, behind, sentence), sentence

    def of_metric(self, name: str, comparisons: int = 1) -> Lift:
        """Return the lift of a metric over the holdout, simultaneous over a number of comparisons."""
        own = metrics_in(self._sums.terms).get(name)
        found_in = [
            stratum
            for stratum in self._strata
            if name in stratum.chapter.metrics and metrics_in(stratum.chapter.terms).get(name) == own
        ]
        return holdout_lift(
            [stratum.chapter.metrics[name] for stratum in found_in],
            [stratum.share for stratum in found_in],
            confidence=self._confidence,
            comparisons=comparisons,
            largest=self._config.metrics[name].largest,
        )

    def _metrics(self) -> list[wire.MetricLift]:
        found = []
        for name, config in self._config.metrics.items():
            lift = self.of_metric(name, len(self._config.metrics))
            if config.low:
                # A ratio is meaningless if amounts do not begin at 0.
                lift = lift._replace(ratio=None)
            safety = guarded(lift, config.margin, better=config.better, span=config.largest)
            verdict = said.guardrail_sentence(name, safety, config.margin) + said.difference_sentence(lift)
            found.append(
                wire.MetricLift(
                    name, lift.claim, _bounds(lift.ratio), _bounds(lift.difference), safety, verdict
                )
            )
        return found


def _unscaled(lift: Lift, scale: RewardScale) -> Lift:
    """Convert a lift to the unit of rewards; without a ratio if amounts do not begin at 0."""
    if lift.difference is None:
        return lift
    difference = Interval(*(scale.span * end for end in lift.difference))
    return Lift(lift.claim, None if scale.low else lift.ratio, difference)


def _uniform(sums: LiftSums) -> Scores:
    """Return the comparison with uniformly drawn arms, over all comparable periods."""
    rule, found = rule_in(sums.terms), sums.over_uniform
    for chapter in sums.past:
        if rule_in(chapter.terms) == rule:
            found = added(found, chapter.uniform)
    return found


def _even(sums: LiftSums, policy: Policy) -> bool:
    """True if arms are shown uniformly, like by the uniform control, and not only at the beginning."""
    found = _uniform(sums)
    return found.even and (found.n >= MANY or floor_of(policy) == 1.0)


def _never(placement: Any) -> list[str]:
    """Return warnings about a log without examinations, or with a single user or session."""
    sums, holdout = placement.lift, placement.holdout
    n, rewards = _uniform(sums)[:2]
    if holdout is not None:
        n, rewards = sums.reward.counts.sum(), sums.reward.totals.sum()
    found, buckets = [], sums.reward.buckets
    if rewards == n >= MANY and placement.config.rule.seen == "examined" and not placement.outcomes[NOTED]:
        found.append(said.NEVER_EXAMINED)
    if holdout is not None and buckets is not None and np.count_nonzero(buckets[1]) == 1 and n >= MANY:
        found.append(said.one_unit_sentence(n, holdout.unit))
    return found


def _unclosed(placement: Any, now: int) -> str:
    """Return a sentence if no decision counts yet because windows are open; empty otherwise."""
    time, closes, config = placement.lift.time, placement.closes, placement.config
    if not (config.propensities and config.policy.randomized):
        return ""
    if time and now >= time + config.rule.window and placement.pending != placement.decisions:
        return ""
    return said.unclosed_sentence(placement.pending, moment(now), None if closes is None else moment(closes))


def _weighed(sums: LiftSums, control: str, offer: Offer) -> Scores:
    """Return the comparison with a control by propensities.

    Raises
    ------
    InvalidValue
        If the control is not ``uniform`` or an arm on offer, or some offers were partial.
    """
    if control == "uniform":
        return _uniform(sums)
    slots = dict(zip((f"arm {arm}" for arm in offer.arms), offer.slots.tolist(), strict=True))
    if control not in slots:
        gone = control in {f"arm {arm}" for arm in offer.retired}
        allowed = ", ".join(["uniform", *slots][:10])
        raise InvalidValue("control", control, f"{'it is retired: ' if gone else ''}give one of {allowed}")
    if sums.partial:
        remedy = "compare with uniform: some decisions did not have every arm on offer"
        raise InvalidValue("control", control, remedy)
    return sums.scores.over(slots[control])


def _sides(sums: LiftSums, holdout: HoldoutConfig | None, control: str) -> tuple[str, str]:
    """Return the two compared sides in words."""
    if holdout is not None:
        return "Learning", "the control"
    uniform = "arms drawn uniformly"
    whom = uniform if control == "uniform" else f"{control.removeprefix('arm ')} alone"
    # Clients may have decided without learning.
    return uniform.capitalize() if sums.scores.over_uniform().even else "What was shown", whom


def _groups_of(sums: Sequence[HoldoutSums], scale: RewardScale) -> dict[str, wire.Group]:
    counts = np.sum([part.counts for part in sums], axis=0)
    totals = np.sum([part.totals for part in sums], axis=0)
    return {
        name: wire.Group(int(n), scale.amount(total, n))
        for name, n, total in zip(("control", "policy"), counts, totals, strict=True)
    }


def _misweighed(sums: LiftSums) -> list[wire.Mismatch]:
    """Return the mismatch between shown arms and their propensities; empty without propensities."""
    frequencies = sums.frequencies
    if not frequencies.offered.any():
        return []
    evidence = frequencies.evidence()
    return [wire.Mismatch(WEIGHTS, None, evidence, evidence > ALARM)]


def _wrong(mismatch: wire.Mismatch, holdout: HoldoutConfig | None) -> str:
    """Return the sentence about a mismatch."""
    if mismatch.what == WEIGHTS or holdout is None:
        return said.PROPENSITIES
    return said.mismatch_sentence(mismatch.what, mismatch.share or 0.0, holdout.share)


def _ratio(sums: Sequence[HoldoutSums]) -> float | None:
    """Return the ratio of mean rewards over periods; None if it is undefined."""
    n, r = (np.array(list(each)) for each in zip(*(sums_of[:2] for sums_of in sums), strict=True))
    if not n.all():
        return None
    control, policy = (r / n * n.sum(axis=1, keepdims=True)).sum(axis=0)
    return float(policy / control) if control else None


def _percent(ratio: float | None) -> str:
    """Format a ratio minus 1 as a percentage."""
    if ratio is None:
        return "not known"
    return f"{'' if ratio >= 1 else MINUS}{said.percent(abs(ratio - 1))}"


def _text(time: int | None) -> str | None:
    """Format a time in ISO 8601; None for no time."""
    return moment(time).isoformat() if time else None


def _bounds(interval: Interval | None) -> wire.Bounds | None:
    if interval is None:
        return None
    return wire.Bounds(*(end if math.isfinite(end) else None for end in map(float, interval)))


def _ends(begin: str | None, end: str | None, now: int) -> tuple[int, int]:
    """Parse a time range; return begin and end in microseconds since 1970.

    Raises
    ------
    InvalidValue
        If the begin is not before the end and before now.
    """
    first, last = as_time("from", begin) if begin else 0, as_time("to", end) if end else FOREVER
    if begin and first >= min(last, now):
        raise InvalidValue("from", begin, f"give a time before {moment(min(last, now)).isoformat()}")
    return first, last
