"""What learning earned, as it is told over HTTP, on the page and on the command line."""

from __future__ import annotations

import math
from copy import copy
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tacit.core import checks
from tacit.errors import InvalidValue
from tacit.proof import (
    ALARM,
    HoldoutSums,
    Lift,
    boundary,
    decisions_needed,
    dispersion,
    guarded,
    holdout_lift,
    share_evidence,
    winner,
)
from tacit.proof import sentences as said
from tacit.proof.result import Interval
from tacit.proof.traffic import independent_counts
from tacit.service.config.holdout import HoldoutConfig
from tacit.service.config.schema import PlacementConfig
from tacit.service.lift.floors import floor_of
from tacit.service.lift.sums import LiftSums
from tacit.service.log.clock import as_time

DAY = 86_400e6
PLANNED_LIFT = 0.1
MOST_DAILY = 1e12
DEFAULT_SHARE = HoldoutConfig().share
WEIGHTS = "propensities"
FOREVER = 2**62
EXPLICIT = 0.8
"""From this share of explicit feedback on, the control must have its own share of it: where only
clicks are told, more of them is what learning is for."""

Claim = Literal["early", "undecided", "better", "worse"]


class Bounds(msgspec.Struct):
    """An estimate and its interval; null for an end that is infinite, or not known."""

    estimate: float | None
    low: float | None
    high: float | None


class Group(msgspec.Struct):
    """What one group had."""

    decisions: int
    rewards: float


class Mismatch(msgspec.Struct):
    """Whether the control has its share of something."""

    what: Annotated[
        str,
        Meta(
            description="``decisions``, ``activations`` or ``feedback``; ``propensities``: whether "
            "each arm was shown as often as these say."
        ),
    ]
    share: float | None
    evidence: Annotated[float, Meta(description="Logarithm; above ln 100 = 4.6 there is an alarm.")]
    alarm: bool


class Wish(msgspec.Struct):
    """What the planner is asked; what is left out is as it is observed, or configured."""

    lift: float = PLANNED_LIFT
    share: float | None = None
    rate: float | None = None
    daily: float | None = None


class Plan(msgspec.Struct):
    """When a lift would show, 4 times in 5."""

    lift: float
    decisions: Annotated[float, Meta(description="Of both groups, from the beginning.")]
    days: Annotated[
        float | None, Meta(description="From now on, at the traffic so far; 0 if it is past.")
    ]
    share: Annotated[float, Meta(description="Of the control.")]
    rate: Annotated[float, Meta(description="Mean reward that it reckons with.")]
    daily: Annotated[float | None, Meta(description="Decisions a day that it reckons with.")]
    verdict: Annotated[str, Meta(description="The same in words.")]


class BestArm(msgspec.Struct):
    """The arm with the best estimate, and by how much others earn less."""

    arm: int | str
    declared: Annotated[bool, Meta(description="Whether it beats all others, without doubt.")]
    behind: dict[str, Bounds]
    verdict: str


class MetricLift(msgspec.Struct):
    """The lift of a metric that is watched."""

    name: str
    claim: Claim
    ratio: Bounds | None
    difference: Bounds | None
    safety: Annotated[str, Meta(description="``harm``, ``safe``, ``unknown`` or ``early``.")]
    verdict: str


class LiftReport(msgspec.Struct):
    """What learning earned more than a control, on average since a moment."""

    placement: str
    method: Annotated[
        Literal["holdout", "propensities"],
        Meta(description="Whether the control was shown, or is worked out from propensities."),
    ]
    control: Annotated[
        str, Meta(description="``uniform``, ``baseline``, ``arm NAME`` or ``policy NAME``.")
    ]
    share: Annotated[float | None, Meta(description="Of the control; null without a holdout.")]
    unit: str | None
    since: Annotated[str | None, Meta(description="ISO 8601; null before the first decision.")]
    until: Annotated[str | None, Meta(description="The same, of a stretch of time; else null.")]
    confidence: float
    groups: dict[str, Group]
    claim: Claim
    ratio: Bounds | None
    difference: Annotated[Bounds | None, Meta(description="Of rewards, per decision.")]
    verdict: Annotated[str, Meta(description="What all this says, in words.")]
    srm: list[Mismatch]
    planner: Plan | None
    winner: BestArm | None
    metrics: list[MetricLift]
    winner_verdict: Annotated[
        str, Meta(description="What can be said of the best arm; empty where there are none.")
    ] = ""


def lift_report(
    placement: Any,
    now: int,
    confidence: float = 0.95,
    control: str | None = None,
    stretch: tuple[str | None, str | None] = (None, None),
    wish: Wish | None = None,
) -> LiftReport:
    """Return what learning earned at a placement.

    Parameters
    ----------
    placement : Placement
    now : int
        Microseconds since 1970.
    confidence : float, default 0.95
        0.9, 0.95 or 0.99.
    control : str, optional
        In place of the holdout, what propensities compare with: ``uniform``, or ``arm NAME``.
    stretch : (str or None, str or None)
        Only decisions of that time, in ISO 8601: from when, and until when.
    wish : Wish, optional
        What the planner is asked.

    Raises
    ------
    InvalidValue
        If the confidence or the control is another one, the placement shows more than one arm, or
        no sums of that time are kept.
    """
    boundary(confidence)
    _check_wish(wish)
    if not placement.shows_one:
        if placement.holdout is None:
            remedy = "give it a holdout: propensities of whole lists hardly tell its lift"
            raise InvalidValue("placement", placement.name, remedy)
        if control is not None:
            remedy = "leave it out: propensities of whole lists hardly tell a lift"
            raise InvalidValue("control", control, remedy)
    reporter = _Reporter(placement, now, confidence, control, wish or Wish())
    return reporter.report_of(*stretch) if any(stretch) else reporter.report()


def _check_wish(wish: Wish | None) -> None:
    if wish is None:
        return
    checks.number("shown", wish.lift, 0.0, 100.0, open_low=True)
    for field, value, most in (
        ("share", wish.share, 0.5), ("rate", wish.rate, 1.0), ("daily", wish.daily, MOST_DAILY)
    ):  # fmt: skip
        if value is not None:
            checks.number(field, value, 0.0, most, open_low=True)


class _Reporter:
    """Works out a report."""

    def __init__(
        self, placement: Any, now: int, confidence: float, control: str | None, wish: Wish
    ) -> None:
        self._wish = wish
        self._name, self._arms = placement.name, placement.arms
        self._sums: LiftSums = placement.lift
        self._config: PlacementConfig = placement.config
        self._held: HoldoutConfig | None = placement.holdout
        self._holdout = self._held if control is None else None
        self._control = control or "uniform"
        self._now, self._confidence = now, confidence
        self._lowest = placement.config.rule.lowest
        self._shows_one = placement.shows_one

    def report(self) -> LiftReport:
        """Return all of it."""
        holdout = self._holdout
        lift = self._by_propensities() if holdout is None else self._of(holdout)
        plan = self._plan()
        mismatches = [] if holdout is None else self._mismatches(holdout)
        mismatches += self._misweighed()
        best, winner_verdict = self._winner()
        return LiftReport(
            placement=self._name,
            method="propensities" if holdout is None else "holdout",
            control=self._control if holdout is None else holdout.named,
            share=holdout and holdout.share,
            unit=holdout and holdout.unit,
            since=self._moment(self._sums.time).isoformat() if self._sums.time else None,
            until=None,
            confidence=self._confidence,
            groups=self._groups(),
            claim=lift.claim,
            ratio=_bounds(lift.ratio),
            difference=_bounds(lift.difference),
            verdict=" ".join(self._sentences(lift, plan, mismatches)),
            srm=mismatches,
            planner=plan,
            winner=best,
            metrics=[] if holdout is None else self._metrics(holdout),
            winner_verdict=winner_verdict,
        )

    def report_of(self, begin: str | None, end: str | None) -> LiftReport:
        """Return the lift of a stretch of time: of the reward, over the holdout."""
        field, given = ("from", begin) if begin else ("to", end)
        if self._holdout is None or self._sums.clustered:
            remedy = "leave it out: it is known of holdouts whose units are decisions"
            raise InvalidValue(field, given, remedy)
        ends = _time("from", begin, 0), _time("to", end, FOREVER)
        found = self._sums.slices.between(*ends)
        self._sums = copy(self._sums)
        self._sums.reward, self._sums.time = found.sums, found.begin
        lift = self._of(self._holdout)
        whole = self.report()
        days = [self._moment(time).strftime("%-d %B %H:%M") for time in found[1:]]
        words = f"Of decisions from {days[0]} to {days[1]} (UTC): {said.lift_sentence(lift)}"
        return msgspec.structs.replace(
            whole,
            until=self._moment(found.end).isoformat() if found.begin else None,
            verdict=words,
            srm=[],
            planner=None,
            winner=None,
            metrics=[],
            winner_verdict="",
        )

    # The lift --------------------------------------------------------------------------------

    def _of(self, holdout: HoldoutConfig) -> Lift:
        lift = holdout_lift(self._sums.reward, holdout.share, confidence=self._confidence)
        return self._unscaled(lift)

    def _unscaled(self, lift: Lift) -> Lift:
        """Return a lift of rewards as they came: a ratio of such below 0 has no meaning."""
        if not self._lowest or lift.difference is None:
            return lift
        span = 1.0 - self._lowest
        return Lift(lift.claim, None, Interval(*(span * end for end in lift.difference)))

    def _by_propensities(self) -> Lift:
        if self._control == "uniform":
            return self._unscaled(self._sums.scores.over_uniform().lift(self._confidence))
        names = {f"arm {arm}": slot for slot, arm in enumerate(self._arms)}
        if self._control not in names:
            allowed = ", ".join(["uniform", *names][:10])
            raise InvalidValue("control", self._control, f"give one of {allowed}")
        if self._sums.partial:
            remedy = "compare with uniform: some decisions did not have every arm on offer"
            raise InvalidValue("control", self._control, remedy)
        scores = self._sums.scores.over(names[self._control])
        return self._unscaled(scores.lift(self._confidence))

    def _groups(self) -> dict[str, Group]:
        if self._holdout is None:
            n, rewards, _ = self._sums.scores.overall
            return {"policy": Group(int(n), self._amount(n, rewards))}
        counts, totals = self._sums.reward.counts, self._sums.reward.totals
        return {
            name: Group(int(n), self._amount(n, total))
            for name, n, total in zip(("control", "policy"), counts, totals, strict=True)
        }

    def _amount(self, n: float, total: float) -> float:
        """Return the sum of rewards as they came."""
        lowest: float = self._lowest
        return float(total) * (1.0 - lowest) + float(n) * lowest

    # What is said with it --------------------------------------------------------------------

    def _sentences(self, lift: Lift, plan: Plan | None, wrong: list[Mismatch]) -> list[str]:
        found = [self._wrong(one) for one in wrong if one.alarm]
        if self._sums.left_out:
            found.append(said.left_out_sentence(self._sums.left_out))
        if self._holdout is None and not self._sums.scores.overall[0]:
            return [*found, said.NO_PROPENSITIES, *([plan.verdict] if plan else [])]
        shown, supposed = self._wish.lift, self._wish != Wish(self._wish.lift)
        days = None if plan is None or self._holdout is None or supposed else plan.days
        found.append(said.lift_sentence(lift, days, shown))
        if lift.claim == "early" and days:
            found.append(said.planner_sentence(days, shown))
        elif lift.claim in ("early", "undecided") and days is None and plan is not None:
            found.append(plan.verdict)
        if lift.claim in ("better", "worse"):
            found.append(
                said.since_sentence(self._moment(self._sums.time), self._moment(self._now))
            )
        return found

    @staticmethod
    def _moment(time: int) -> datetime:
        return datetime.fromtimestamp(time / 1e6, UTC)

    def _mismatches(self, holdout: HoldoutConfig) -> list[Mismatch]:
        sums = self._sums.reward
        counts = independent_counts(sums)
        # So many decisions are worth one, where users stay in their group.
        effect = float(sums.counts.sum()) / max(sum(counts), 1.0) or 1.0
        pairs = {"decisions": self._sums.decided, "activations": sums.counts}
        if self._sums.answered.sum() >= EXPLICIT * sums.counts.sum() > 0:
            pairs["feedback"] = self._sums.answered
        found = []
        for what, pair in pairs.items():
            evidence = share_evidence((pair / max(effect, 1.0)).tolist(), holdout.share)
            share = float(pair[0] / pair.sum()) if pair.sum() else None
            found.append(Mismatch(what, share, evidence, evidence > ALARM))
        return found

    def _misweighed(self) -> list[Mismatch]:
        """Return whether arms were shown as often as their propensities say."""
        frequencies = self._sums.frequencies
        if not frequencies.offered.any():
            return []
        evidence = frequencies.evidence()
        return [Mismatch(WEIGHTS, None, evidence, evidence > ALARM)]

    def _wrong(self, one: Mismatch) -> str:
        """Return what to say of an alarm."""
        if one.what == WEIGHTS or self._holdout is None:
            return said.PROPENSITIES
        return said.mismatch_sentence(one.what, one.share or 0.0, self._holdout.share)

    def _plan(self) -> Plan | None:
        """Return when a lift would show, of the holdout that there is or might be."""
        wish, holdout = self._wish, self._held
        if self._lowest:
            return None
        share = wish.share or (holdout.share if holdout is not None else DEFAULT_SHARE)
        n, rewards, scatter = self._observed()
        # The control's own rate is known too badly at first.
        rate = wish.rate or (rewards / n if n else 0.0)
        passed = (self._now - self._sums.time) / DAY if self._sums.time else 0.0
        daily = wish.daily or (n / passed if n and passed > 0 else None)
        if not 0 < rate < 1:
            return None
        try:
            needed = decisions_needed(rate, wish.lift, share, dispersion=scatter)
        except InvalidValue:
            # A lift beyond the largest reward.
            return None
        begun = n if holdout is not None and wish.share in (None, holdout.share) else 0.0
        days = None if daily is None else max(needed - begun, 0.0) / daily
        whole = None if daily is None else needed / daily
        verdict = said.plan_sentence(needed, whole, wish.lift, share)
        return Plan(wish.lift, needed, days, share, rate, daily, verdict)

    def _observed(self) -> tuple[float, float, float]:
        """Return how many decisions there were, their rewards, and how these scatter."""
        sums = self._sums.reward
        if self._held is not None:
            n, rewards = float(sums.counts.sum()), float(sums.totals.sum())
            known = sums.counts.all() and 0 < rewards < n
            return n, rewards, float(dispersion(sums)) if known else 1.0
        n, rewards, _ = map(float, self._sums.scores.overall)
        return n, rewards, 1.0

    def _winner(self) -> tuple[BestArm | None, str]:
        """Return the best arm, and what can be said of it."""
        scores = self._sums.scores
        if len(self._arms) < 2 or not self._shows_one:
            return None, ""
        holdout = self._held
        if not scores.overall[0] and holdout is None:
            return None, said.NO_PROPENSITIES
        if self._sums.partial:
            return None, said.SOME_ARMS
        # A unit that stays with the policy is never shown what the control draws.
        allowed = floor_of(self._config.policy, None if self._sums.clustered else holdout) > 0
        found = winner(scores, self._confidence)
        if found is None:
            return None, said.EARLY_WINNER if allowed else said.NO_WINNER
        names = [str(arm) for arm in self._arms]
        span = 1.0 - self._lowest
        behind = {
            name: Bounds(*(span * end for end in interval))
            for name, interval in zip(names, found.behind, strict=True)
        }
        best, declared = self._arms[found.leader], found.declared and allowed
        sentence = said.winner_sentence(str(best) if declared else None)
        if not allowed:
            sentence = said.NO_WINNER
        return BestArm(best, declared, behind, sentence), sentence

    def _metrics(self, holdout: HoldoutConfig) -> list[MetricLift]:
        found = []
        for name, config in self._config.metrics.items():
            sums: HoldoutSums = self._sums.metrics[name]
            lift = holdout_lift(
                sums,
                holdout.share,
                confidence=self._confidence,
                comparisons=len(self._config.metrics),
                largest=config.largest,
            )
            if config.low:
                # A ratio of amounts that do not begin at 0 has no meaning.
                lift = lift._replace(ratio=None)
            safety = guarded(lift, config.margin, better=config.better, span=config.largest)
            verdict = said.guardrail_sentence(name, safety, config.margin)
            found.append(
                MetricLift(
                    name, lift.claim, _bounds(lift.ratio), _bounds(lift.difference), safety, verdict
                )
            )
        return found


def _bounds(interval: Interval | None) -> Bounds | None:
    if interval is None:
        return None
    return Bounds(*(end if math.isfinite(end) else None for end in map(float, interval)))


def _time(field: str, text: str | None, default: int) -> int:
    """Return a time in microseconds since 1970."""
    return as_time(field, text) if text else default
