"""Messages about results: the lift over a control, guardrails, and results by segment of users."""

# 1. The lift: its query, the parts of its report, and the report.
# 2. Guardrails: the metric that is watched, and the degradations found.
# 3. Segments: which arms which users are shown.

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tacit.core.text import Column, Tabulated, format_table
from tacit.wire.control import TIME_NOTE, Time


class LiftOf(msgspec.Struct, frozen=True, rename={"begin": "from", "end": "to"}):
    """The query for a lift; ``shown``, ``share``, ``rate`` and ``daily`` are inputs of the planner.

    Attributes
    ----------
    confidence : float, default 0.95
    control : str, optional
        Control to compare with by logged propensities, in place of the holdout: ``uniform``, or
        ``arm NAME``.
    begin, end : str, optional
    shown : float, optional
        The lift to plan for: 0.1 for 10 % more, which is the default.
    share : float, optional
        The control's share to plan with; by default the holdout's, or 0.1.
    rate : float, optional
        The mean reward to plan with, in the unit of ``rewards``; by default the observed one. Give it
        before there is traffic.
    daily : float, optional
        The decisions a day to plan with; by default those observed so far.
    """

    confidence: Annotated[float, Meta(extra_json_schema={"enum": [0.9, 0.95, 0.99]})] = 0.95
    control: str | None = None
    begin: (
        Annotated[
            str,
            Meta(
                description="Only decisions from then on, in ISO 8601; about, as sums are kept over 128 "
                "slices of time. Of holdouts whose units are decisions.",
                extra=TIME_NOTE,
            ),
        ]
        | None
    ) = None
    end: Annotated[str, Meta(description="Only decisions before then.", extra=TIME_NOTE)] | None = None
    shown: Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0, "maximum": 100})] | None = None
    share: Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0, "maximum": 0.5})] | None = None
    rate: Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0})] | None = None
    daily: Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0, "maximum": 1e12})] | None = None


Claim = Literal["early", "undecided", "better", "worse"]


class Bounds(msgspec.Struct, frozen=True):
    """An estimate and its interval; null for an end that is infinite, or not known."""

    estimate: float | None
    low: float | None
    high: float | None


class Group(msgspec.Struct, frozen=True):
    """Number of decisions and sum of rewards of one group."""

    decisions: int
    rewards: float


class Mismatch(msgspec.Struct, frozen=True):
    """A test for sample ratio mismatch: whether the control has its share of the traffic.

    Attributes
    ----------
    what : str
        ``decisions``, ``activations`` or ``feedback``; or ``propensities``: whether each arm was shown as
        often as its propensities imply.
    share : float or None
    evidence : float
        Logarithm of the evidence; above ln 100 = 4.6 there is an alarm.
    alarm : bool
    """

    what: str
    share: float | None
    evidence: float
    alarm: bool


class Plan(msgspec.Struct, frozen=True):
    """The sample size with which a lift is detected with probability 0.8.

    Attributes
    ----------
    lift : float
    decisions : float
        Decisions of both groups, counted from the beginning.
    days : float or None
        Days from now on, at the traffic so far; 0 if the sample size is reached.
    share : float
        Share of the control.
    rate : float
        Mean reward that the plan assumes, in the unit of ``rewards``.
    daily : float or None
        Decisions a day that the plan assumes.
    verdict : str
        The plan in words.
    """

    lift: float
    decisions: float
    days: float | None
    share: float
    rate: float
    daily: float | None
    verdict: str


class BestArm(msgspec.Struct, frozen=True):
    """The arm with the best estimate, and its differences to the others.

    Attributes
    ----------
    arm : int or str
    declared : bool
        Whether it beats all others with the confidence of the report.
    behind : dict of str to Bounds
        By how much less each other arm earns.
    verdict : str
    """

    arm: int | str
    declared: bool
    behind: dict[str, Bounds]
    verdict: str


class MetricLift(msgspec.Struct, frozen=True, omit_defaults=True):
    """The lift of a metric that is watched.

    Attributes
    ----------
    name, claim : str
    ratio, difference : Bounds or None
    safety : str
        ``harm``, ``safe``, ``unknown`` or ``early``.
    verdict : str
    silent : bool
        Whether no amount but 0 has come for at least 100 decisions.
    """

    name: str
    claim: Claim
    ratio: Bounds | None
    difference: Bounds | None
    safety: str
    verdict: str
    silent: bool = False


class PartLift(msgspec.Struct, frozen=True):
    """The results of one part of a period, from one change of the placement to the next.

    Attributes
    ----------
    what : str
        The change: ``arms``, ``rebuild``, ``rollback`` or ``mode NAME``; empty for the first part.
    since : str or None
    groups : dict of str to Group
    ratio : float or None
        Ratio of mean rewards, without an interval.
    """

    what: str
    since: str | None
    groups: dict[str, Group]
    ratio: float | None


class ChapterLift(msgspec.Struct, frozen=True):
    """The lift of one period of a holdout: share, unit, control and the rule of rewards do not change in it.

    Attributes
    ----------
    number : int
        Number of the period from 1, which ``from`` and ``to`` accept.
    since : str or None
    until : str or None
        End of the period; None for the current one.
    ended : str or None
        The change that ended it, in words.
    control : str or None
    share : float or None
    unit : str or None
    groups : dict of str to Group
    claim : str
    ratio, difference : Bounds or None
    counted : bool
        Whether the report's lift includes this period.
    alarm : bool
        Whether the control did not have its share of the traffic (sample ratio mismatch).
    parts : list of PartLift
    """

    number: int
    since: str | None
    until: str | None
    ended: str | None
    control: str | None
    share: float | None
    unit: str | None
    groups: dict[str, Group]
    claim: Claim
    ratio: Bounds | None
    difference: Bounds | None
    counted: bool
    alarm: bool
    parts: list[PartLift]


class PlannedLook(msgspec.Struct, frozen=True):
    """The analysis at the time that was planned before the first decision of the period.

    Attributes
    ----------
    at : str
    reached : bool
        Whether all windows of its decisions have closed.
    claim : str
    ratio, difference : Bounds or None
    verdict : str
    """

    at: str
    reached: bool
    claim: Claim
    ratio: Bounds | None
    difference: Bounds | None
    verdict: str


class LiftReport(msgspec.Struct, frozen=True):
    """The lift of a placement: the mean reward of learning, compared with a control.

    Attributes
    ----------
    placement : str
    method : str
        ``holdout``, or ``propensities`` if the control's mean is estimated from logged propensities.
    control : str
        ``uniform``, ``baseline``, ``arm NAME`` or ``policy NAME``.
    share : float or None
        Share of the control; None without a holdout.
    unit : str or None
        Unit of assignment to a group: ``decision``, ``session`` or ``user``.
    since : str or None
        Time from which decisions count, by their arrival, in ISO 8601; None before the first one.
    until : str or None
        Time before which decisions count, if the query limits it; else None.
    confidence : float
    groups : dict of str to Group
        ``decisions`` and ``rewards`` of ``control`` and ``policy``.
    claim : str
        ``early``, ``undecided``, ``better`` or ``worse``.
    ratio : Bounds or None
        Ratio of mean rewards: ``estimate``, ``low`` and ``high``.
    difference : Bounds or None
        Difference of mean rewards per decision, likewise.
    verdict : str
        The result in words.
    srm : list of Mismatch
        Tests for sample ratio mismatch, and of arms against their propensities: ``what``, ``share``,
        ``evidence``, ``alarm``.
    planner : Plan or None
        The ``decisions`` and the ``days`` after which a ``lift`` would be detected; ``verdict`` says it
        in words.
    winner : BestArm or None
        The best ``arm``, whether it is ``declared``, how far others are ``behind``.
    metrics : list of MetricLift
        The lift of each metric that is watched besides the reward, and whether it has degraded.
    winner_verdict : str
        The result about the best arm, or about duels, in words; empty if there are none.
    as_of : str
        Time of the report by the log's clock, in ISO 8601.
    pending : int
        Decisions that do not count yet: their windows are open, or they are deferred and not activated.
    pending_until : str or None
        Time when the last of their windows closes, as windows are now.
    counted : str
        The range of time and the count of decisions, in words.
    chapters : list of ChapterLift
        Periods of the holdout, in order; empty if there never was one: ``number``, ``since``, ``until``,
        ``ended`` (the change that ended it, in words), ``control``, ``share``, ``unit``, ``groups``,
        ``claim``, ``ratio``, ``difference``, ``counted`` (whether the lift includes it), ``alarm``, and
        its ``parts``, one from each change of arms, policy or mode on: ``what``, ``since``, ``groups``,
        ``ratio``.
    look : PlannedLook or None
        The planned analysis: ``at``, ``reached``, ``claim``, ``ratio``, ``difference``, ``verdict``.
    rewards : str
        Unit of rewards and differences: ``reward``, or the metric that is learned, in its own unit.
    """

    placement: str
    method: Literal["holdout", "propensities"]
    control: str
    share: float | None
    unit: str | None
    since: str | None
    until: str | None
    confidence: float
    groups: dict[str, Group]
    claim: Claim
    ratio: Bounds | None
    difference: Bounds | None
    verdict: str
    srm: list[Mismatch]
    planner: Plan | None
    winner: BestArm | None
    metrics: list[MetricLift]
    winner_verdict: str = ""
    as_of: str = ""
    pending: int = 0
    pending_until: str | None = None
    counted: str = ""
    chapters: list[ChapterLift] = []
    look: PlannedLook | None = None
    rewards: str = "reward"


# ---- The guardrail of a placement: the metric that it watches, and the degradations found


class Harm(msgspec.Struct, frozen=True):
    """A significant degradation of a metric: an arm's difference per decision to the arm compared with.

    Attributes
    ----------
    arm : int, str or None
        None for the policy, which is compared with the holdout's control.
    metric : str
    estimate : float
        Difference of the metric per decision; negative if the arm has less of it.
    low, high : float
        Interval of the difference, valid at all times.
    then : str
        The action taken: ``retire`` or ``tell``.
    at : str or None
        Time in ISO 8601; None in a change event, which has a time of its own.
    """

    arm: int | str | None
    metric: str
    estimate: float
    low: float
    high: float
    then: str
    at: str | None = None

    @property
    def interval(self) -> tuple[float, float, float]:
        """The estimate and the ends of its interval."""
        return self.estimate, self.low, self.high


class GuardrailNow(msgspec.Struct, frozen=True):
    """The guardrail of a placement.

    Attributes
    ----------
    metric : str
    margin : float
        By how much it may be worse, per decision.
    then : str
        ``retire`` or ``tell``.
    against : int or str or None
        The arm that others are compared with; None if the policy is compared with the control.
    harms : list of Harm
        Degradations found, each once.
    """

    metric: str
    margin: float
    then: str
    against: int | str | None
    harms: list[Harm]


# ---- Results by segment of users

LATEST = 2_000
"""Default number of decisions in the report."""

LogOdds = Annotated[
    float | None, Meta(description="In log-odds of a reward; null where arms are known by features alone.")
]


class ForWhomOf(msgspec.Struct, frozen=True):
    """The number of decisions that the report by segments covers.

    Attributes
    ----------
    limit : int, default LATEST
        Number of the latest decisions.
    """

    limit: Annotated[int, Meta(ge=1, le=10_000)] = LATEST


class ArmForThem(msgspec.Struct, frozen=True):
    """An arm that a segment of users is shown, and its estimated reward for them.

    Attributes
    ----------
    arm : int or str
    shown : int
        How many of their latest decisions showed it.
    mean, low, high : float or None
        The estimated mean reward for an average user of the segment, and its 95 % band.
    adds : float or None
        Effect of the field, for this segment against an average user, on the arm's log-odds of a reward.
    """

    arm: int | str
    shown: int
    mean: float | None
    low: float | None
    high: float | None
    adds: LogOdds


class UserSegment(msgspec.Struct, frozen=True):
    """A segment of users: those with the same value of a field.

    Attributes
    ----------
    value : str
        Their common value: a category, a band of numbers, or ``missing``.
    decisions : int
    arms : list of ArmForThem
        Arms that they were shown, most often shown first; at most 10.
    """

    value: str
    decisions: int
    arms: list[ArmForThem]


class FieldForWhom(msgspec.Struct, frozen=True):
    """The effect of a field of the context on the arms that users are shown.

    Attributes
    ----------
    field : str
    matters : float or None
        Size of the effect over the users of these decisions: the standard deviation of its effect on an
        arm's log-odds, relative to the other arms.
    segments : list of UserSegment
        Empty beyond the 12 fields with the largest effects.
    """

    field: str
    matters: float | None
    segments: list[UserSegment]


class ArmForAll(msgspec.Struct, frozen=True):
    """An arm over all users.

    Attributes
    ----------
    arm : int or str
    shown : int
    mean, low, high : float or None
        The estimated mean reward for an average user, and its 95 % band.
    moved : dict of str to float
        By field: the standard deviation over users of its effect on the log-odds; the 12 fields with
        the largest effects.
    """

    arm: int | str
    shown: int
    mean: float | None
    low: float | None
    high: float | None
    moved: dict[str, float]


class ForWhom(Tabulated, msgspec.Struct, frozen=True):
    """Which arms which users are shown, by the fields of the context, and why; printed as a table.

    Attributes
    ----------
    verdict : str
        The result in words.
    decisions : int
        Number of decisions in the report: the latest that the policy made.
    since, until : str or None
        Times of the first and the last of them, in ISO 8601.
    key : str or None
        The key with the most decisions, which the report is about, if each key has models of its own.
    says_nothing : float or None
        The weight, out of 1, that the policy gives to the hypothesis that the context hardly matters;
        None for policies without it.
    bytes : int
        Memory that the policy's state takes, for all keys together.
    arms : list of ArmForAll
        Most often shown first; at most 50.
    fields : list of FieldForWhom
        Largest effect first.
    shard : int or None
        The shard that the report is about, which is the one with the most decisions; None without shards.
    rewards : str
        Unit of mean rewards: ``reward``, or the metric that is learned, in its own unit.
    """

    verdict: str
    decisions: int
    since: Time | None
    until: Time | None
    key: str | None
    says_nothing: float | None
    bytes: int
    arms: list[ArmForAll]
    fields: list[FieldForWhom]
    shard: int | None = None
    rewards: str = "reward"

    def records(self) -> list[dict[str, Any]]:
        """Return the report as rows, one for each arm of each segment of each field."""
        return [
            {
                "field": field.field,
                "who": segment.value,
                "decisions": segment.decisions,
                "share": arm.shown / segment.decisions,
                **msgspec.structs.asdict(arm),
            }
            for field in self.fields
            for segment in field.segments
            for arm in segment.arms
        ]

    def summary(self) -> str:
        """Return the verdict and, if there are results, a table of each segment's most shown arm, as text."""
        rows, segments = [], set()
        for row in self.records():
            if (who := (row["field"], row["who"])) not in segments:
                rows.append(row)
                segments.add(who)
        if not rows:
            return self.verdict
        columns = [Column("who is asking", "{field}: {who}"), Column("decisions", "{decisions:,}"),
                   Column("is shown most", "{arm}"), Column("how often", "{share:.0%}"),
                   Column(f"{self.rewards} of an average one", "{mean:.4g}"),
                   Column("95 %", "[{low:.4g}, {high:.4g}]"), Column("this adds", "{adds:+.2f}")]  # fmt: skip
        adds = "this adds: to the log-odds of a reward, beside an average user; +0.7 doubles the odds"
        return f"{self.verdict}\n{format_table(rows, columns)}\n{adds}"
