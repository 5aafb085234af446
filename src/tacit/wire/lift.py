"""What travels about what learning earned: lift, guardrails, and for whom.

What may be asked of a lift, the parts of its report, and the report; what a guardrail watches and found;
which users are shown what.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tacit.core.text import Column, Tabulated, laid_out
from tacit.wire.control import SUCH, Time


class LiftOf(msgspec.Struct, frozen=True, rename={"begin": "from", "end": "to"}):
    """Which lift is asked for; ``shown``, ``share``, ``rate`` and ``daily`` are the planner's.

    Attributes
    ----------
    confidence : float, default 0.95
    control : str, optional
        In place of the holdout, what logged propensities compare with: ``uniform``, or ``arm NAME``.
    begin, end : str, optional
    shown : float, optional
        The lift that the planner asks about: 0.1 for 10 % more, which is the default.
    share : float, optional
        The control's share that it reckons with; by default the holdout's, or 0.1.
    rate : float, optional
        The mean reward that it reckons with, in the unit of ``rewards``; by default the observed one. Give
        it before there is traffic.
    daily : float, optional
        The decisions a day that it reckons with; by default those so far.
    """

    confidence: Annotated[float, Meta(extra_json_schema={"enum": [0.9, 0.95, 0.99]})] = 0.95
    control: str | None = None
    begin: (
        Annotated[
            str,
            Meta(
                description="Only decisions from then on, in ISO 8601; about, as sums are kept over 128 "
                "slices of time. Of holdouts whose units are decisions.",
                extra=SUCH,
            ),
        ]
        | None
    ) = None
    end: Annotated[str, Meta(description="Only decisions before then.", extra=SUCH)] | None = None
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
    """What one group had."""

    decisions: int
    rewards: float


class Mismatch(msgspec.Struct, frozen=True):
    """Whether the control has its share of something.

    Attributes
    ----------
    what : str
        ``decisions``, ``activations`` or ``feedback``; ``propensities``: whether each arm was shown as
        often as these say.
    share : float or None
    evidence : float
        Logarithm; above ln 100 = 4.6 there is an alarm.
    alarm : bool
    """

    what: str
    share: float | None
    evidence: float
    alarm: bool


class Plan(msgspec.Struct, frozen=True):
    """When a lift would show, 4 times in 5.

    Attributes
    ----------
    lift : float
    decisions : float
        Of both groups, from the beginning.
    days : float or None
        From now on, at the traffic so far; 0 if it is past.
    share : float
        Of the control.
    rate : float
        Mean reward that it reckons with, in the unit of ``rewards``.
    daily : float or None
        Decisions a day that it reckons with.
    verdict : str
        The same in words.
    """

    lift: float
    decisions: float
    days: float | None
    share: float
    rate: float
    daily: float | None
    verdict: str


class BestArm(msgspec.Struct, frozen=True):
    """The arm with the best estimate, and by how much others earn less.

    Attributes
    ----------
    arm : int or str
    declared : bool
        Whether it beats all others, without doubt.
    behind : dict of str to Bounds
    verdict : str
    """

    arm: int | str
    declared: bool
    behind: dict[str, Bounds]
    verdict: str


class MetricLift(msgspec.Struct, frozen=True):
    """The lift of a metric that is watched.

    Attributes
    ----------
    name, claim : str
    ratio, difference : Bounds or None
    safety : str
        ``harm``, ``safe``, ``unknown`` or ``early``.
    verdict : str
    """

    name: str
    claim: Claim
    ratio: Bounds | None
    difference: Bounds | None
    safety: str
    verdict: str


class PartLift(msgspec.Struct, frozen=True):
    """What was earned within a chapter from one change on, until the next one.

    Attributes
    ----------
    what : str
        What changed: ``arms``, ``rebuild``, ``rollback`` or ``mode NAME``; empty for the first part.
    since : str or None
    groups : dict of str to Group
    ratio : float or None
        Of mean rewards, without an interval.
    """

    what: str
    since: str | None
    groups: dict[str, Group]
    ratio: float | None


class ChapterLift(msgspec.Struct, frozen=True):
    """What learning earned while share, unit, control and the rule of rewards stayed.

    Attributes
    ----------
    number : int
        From 1; what ``from`` and ``to`` take.
    since : str or None
    until : str or None
        None of the one that goes on.
    ended : str or None
        What ended it, in words.
    control : str or None
    share : float or None
    unit : str or None
    groups : dict of str to Group
    claim : str
    ratio, difference : Bounds or None
    counted : bool
        Whether the lift above counts it.
    alarm : bool
        Whether its control had not its share of traffic.
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
    """The one look that was planned before the first decision of the chapter.

    Attributes
    ----------
    at : str
    reached : bool
        Whether all windows have closed that count for it.
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
    """What learning earned more than a control, on average since a moment.

    Attributes
    ----------
    placement : str
    method : str
        ``holdout``, or ``propensities`` where the control is worked out from logged propensities.
    control : str
        ``uniform``, ``baseline``, ``arm NAME`` or ``policy NAME``.
    share : float or None
        Of the control; None without a holdout.
    unit : str or None
        Who stays in one group: ``decision``, ``session`` or ``user``.
    since : str or None
        From when on decisions count, by when they arrived, in ISO 8601; None before the first one.
    until : str or None
        Before when they count, of a stretch of time; else None.
    confidence : float
    groups : dict of str to Group
        ``decisions`` and ``rewards`` of ``control`` and ``policy``.
    claim : str
        ``early``, ``undecided``, ``better`` or ``worse``.
    ratio : Bounds or None
        With ``estimate``, ``low`` and ``high``.
    difference : Bounds or None
        The same of rewards, per decision.
    verdict : str
        What all this says, in words.
    srm : list of Mismatch
        Whether the control has its share of the traffic, and arms that of their propensities: ``what``,
        ``share``, ``evidence``, ``alarm``.
    planner : Plan or None
        When a ``lift`` would show: after how many ``decisions``, in how many ``days``; ``verdict`` says
        it in words.
    winner : BestArm or None
        The best ``arm``, whether it is ``declared``, how far others are ``behind``.
    metrics : list of MetricLift
        The same of what is watched beside the reward, and whether it is harmed.
    winner_verdict : str
        What can be said of the best arm, or of duels; empty where there are none.
    as_of : str
        When this was worked out, by the log's clock, in ISO 8601.
    pending : int
        Decisions that do not count yet.
    pending_until : str or None
        When the last of their windows closes, as they are now.
    counted : str
        The time and the count of all this, in words.
    chapters : list of ChapterLift
        Of the holdout, in order; empty where there never was one: ``number``, ``since``, ``until``,
        ``ended`` (what ended it, in words), ``control``, ``share``, ``unit``, ``groups``, ``claim``,
        ``ratio``, ``difference``, ``counted`` (whether the lift counts it), ``alarm``, and its
        ``parts``, since each change of arms, policy or mode: ``what``, ``since``, ``groups``,
        ``ratio``.
    look : PlannedLook or None
        The look that was planned: ``at``, ``reached``, ``claim``, ``ratio``, ``difference``,
        ``verdict``.
    rewards : str
        What rewards and differences are of: ``reward``, or the metric that is learned, in its own unit.
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


# ---- The guardrail of a placement: what it watches, and which harm it has proved


class Harm(msgspec.Struct, frozen=True):
    """Harm that is proved: by how much a metric exceeds that of what it is held against, per decision.

    Attributes
    ----------
    arm : int, str or None
        None for the policy, held against the holdout's control.
    metric : str
    estimate : float
        How much more of the metric there is per decision; negative where there is less.
    low, high : float
        What it lies between, at any time.
    then : str
        What was done: ``retire`` or ``tell``.
    at : str or None
        When, in ISO 8601; a mark of the log has a time of its own.
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
        """The estimate, and what it lies between."""
        return self.estimate, self.low, self.high


class GuardrailNow(msgspec.Struct, frozen=True):
    """The guardrail of a placement.

    Attributes
    ----------
    metric : str
    margin : float
        How much worse it may be, per decision.
    then : str
        ``retire`` or ``tell``.
    against : int or str or None
        The arm that others are held against; None where the policy is, against the control.
    harms : list of Harm
        That were proved, each once.
    """

    metric: str
    margin: float
    then: str
    against: int | str | None
    harms: list[Harm]


# ---- Whom a placement shows what

LATEST = 2_000
"""Decisions that are looked at unless asked otherwise."""

LogOdds = Annotated[
    float | None, Meta(description="In log-odds of a reward; null where arms are known by features alone.")
]


class ForWhomOf(msgspec.Struct, frozen=True):
    """How far back is looked.

    Attributes
    ----------
    limit : int, default LATEST
        How many of the latest decisions.
    """

    limit: Annotated[int, Meta(ge=1, le=10_000)] = LATEST


class ArmForThem(msgspec.Struct, frozen=True):
    """What some users are shown, and what is believed that it earns with them.

    Attributes
    ----------
    arm : int or str
    shown : int
        How many of their latest decisions showed it.
    mean, low, high : float or None
        The mean reward that is believed, of somebody average among them, and its 95 % band.
    adds : float or None
        What this field adds for them to the arm's log-odds of a reward, beside an average user.
    """

    arm: int | str
    shown: int
    mean: float | None
    low: float | None
    high: float | None
    adds: LogOdds


class UserSegment(msgspec.Struct, frozen=True):
    """Users who are alike in a field.

    Attributes
    ----------
    value : str
        What they have in common: a category, a band of numbers, ``missing``.
    decisions : int
    arms : list of ArmForThem
        Those that they were shown most first; at most 10.
    """

    value: str
    decisions: int
    arms: list[ArmForThem]


class FieldForWhom(msgspec.Struct, frozen=True):
    """What a field of the context decides.

    Attributes
    ----------
    field : str
    matters : float or None
        By how much it moves arms apart, over the users of these decisions: the standard deviation of
        what it adds to an arm's log-odds beside the other arms.
    segments : list of UserSegment
        Empty beyond the 12 fields that matter most.
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
        The mean reward that is believed, of an average user, and its 95 % band.
    moved : dict of str to float
        By field: the standard deviation, over users, of what it adds to the log-odds; the 12 fields
        that matter most.
    """

    arm: int | str
    shown: int
    mean: float | None
    low: float | None
    high: float | None
    moved: dict[str, float]


class ForWhom(Tabulated, msgspec.Struct, frozen=True):
    """Which users get which arm, by what is known of them, and why; printed, it is a table.

    Attributes
    ----------
    verdict : str
        All this in words.
    decisions : int
        Those that were looked at: the latest that the policy made.
    since, until : str or None
        When the first and the last of them were made, in ISO 8601.
    key : str or None
        Whose they are, where each key has models of its own: the key with most of them.
    says_nothing : float or None
        The weight, of 1, that the policy gives to the hypothesis that the context says hardly anything;
        None where it has none.
    bytes : int
        What the policy's state takes in memory, all keys together.
    arms : list of ArmForAll
        Those shown most first; at most 50.
    fields : list of FieldForWhom
        Those that matter most first.
    shard : int or None
        Whose all this is, where the service is in shards: the one that decides most.
    rewards : str
        What mean rewards are of: ``reward``, or the metric that is learned, in its own unit.
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
        """Return what users are shown, by segment of each field and by arm: a row each."""
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
        """Return in words whether who is asking matters, and for each segment what it is shown most."""
        rows, seen = [], set()
        for row in self.records():
            if (who := (row["field"], row["who"])) not in seen:
                rows.append(row)
                seen.add(who)
        if not rows:
            return self.verdict
        columns = [Column("who is asking", "{field}: {who}"), Column("decisions", "{decisions:,}"),
                   Column("is shown most", "{arm}"), Column("how often", "{share:.0%}"),
                   Column(f"{self.rewards} of an average one", "{mean:.4g}"),
                   Column("95 %", "[{low:.4g}, {high:.4g}]"), Column("this adds", "{adds:+.2f}")]  # fmt: skip
        adds = "this adds: to the log-odds of a reward, beside an average user; +0.7 doubles the odds"
        return f"{self.verdict}\n{laid_out(rows, columns)}\n{adds}"
