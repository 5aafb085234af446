"""What travels about what learning earned: lift, guardrails, and for whom.

What may be asked of a lift, the parts of its report, and the report; what a guardrail watches and found;
which users are shown what.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tacit.wire.control import Time


class LiftOf(msgspec.Struct, frozen=True, rename={"begin": "from", "end": "to"}):
    """Which lift is asked for; ``shown``, ``share``, ``rate`` and ``daily`` are the planner's."""

    confidence: Annotated[float, Meta(extra_json_schema={"enum": [0.9, 0.95, 0.99]})] = 0.95
    control: (
        Annotated[
            str,
            Meta(
                description="In place of the holdout, what logged propensities compare with: "
                "``uniform``, or ``arm NAME``."
            ),
        ]
        | None
    ) = None
    begin: (
        Annotated[
            str,
            Meta(
                description="Only decisions from then on, in ISO 8601; about, as sums are kept over 128 "
                "slices of time. Of holdouts whose units are decisions."
            ),
        ]
        | None
    ) = None
    end: Annotated[str, Meta(description="Only decisions before then.")] | None = None
    shown: (
        Annotated[
            float,
            Meta(
                description="The lift that the planner asks about: 0.1 for 10 % more, which is the default.",
                extra_json_schema={"exclusiveMinimum": 0, "maximum": 100},
            ),
        ]
        | None
    ) = None
    share: (
        Annotated[
            float,
            Meta(
                description="The control's share that it reckons with; by default the holdout's, or 0.1.",
                extra_json_schema={"exclusiveMinimum": 0, "maximum": 0.5},
            ),
        ]
        | None
    ) = None
    rate: (
        Annotated[
            float,
            Meta(
                description="The mean reward that it reckons with; by default the observed one. Give it "
                "before there is traffic.",
                extra_json_schema={"exclusiveMinimum": 0, "maximum": 1},
            ),
        ]
        | None
    ) = None
    daily: (
        Annotated[
            float,
            Meta(
                description="The decisions a day that it reckons with; by default those so far.",
                extra_json_schema={"exclusiveMinimum": 0, "maximum": 1e12},
            ),
        ]
        | None
    ) = None


class Keyed(msgspec.Struct, frozen=True):
    """A part of the report; a field is also read by its name in brackets, as 0.2 had dicts here."""

    def __getitem__(self, name: str) -> Any:
        if name not in self.__struct_fields__:
            raise KeyError(name)
        return getattr(self, name)


Claim = Literal["early", "undecided", "better", "worse"]


class Bounds(Keyed, frozen=True):
    """An estimate and its interval; null for an end that is infinite, or not known."""

    estimate: float | None
    low: float | None
    high: float | None


class Group(Keyed, frozen=True):
    """What one group had."""

    decisions: int
    rewards: float


class Mismatch(Keyed, frozen=True):
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


class Plan(Keyed, frozen=True):
    """When a lift would show, 4 times in 5."""

    lift: float
    decisions: Annotated[float, Meta(description="Of both groups, from the beginning.")]
    days: Annotated[float | None, Meta(description="From now on, at the traffic so far; 0 if it is past.")]
    share: Annotated[float, Meta(description="Of the control.")]
    rate: Annotated[float, Meta(description="Mean reward that it reckons with.")]
    daily: Annotated[float | None, Meta(description="Decisions a day that it reckons with.")]
    verdict: Annotated[str, Meta(description="The same in words.")]


class BestArm(Keyed, frozen=True):
    """The arm with the best estimate, and by how much others earn less."""

    arm: int | str
    declared: Annotated[bool, Meta(description="Whether it beats all others, without doubt.")]
    behind: dict[str, Bounds]
    verdict: str


class MetricLift(Keyed, frozen=True):
    """The lift of a metric that is watched."""

    name: str
    claim: Claim
    ratio: Bounds | None
    difference: Bounds | None
    safety: Annotated[str, Meta(description="``harm``, ``safe``, ``unknown`` or ``early``.")]
    verdict: str


class PartLift(Keyed, frozen=True):
    """What was earned within a chapter from one change on, until the next one."""

    what: Annotated[
        str,
        Meta(
            description="What changed: ``arms``, ``rebuild``, ``rollback`` or ``mode NAME``; empty "
            "for the first part."
        ),
    ]
    since: str | None
    groups: dict[str, Group]
    ratio: Annotated[float | None, Meta(description="Of mean rewards, without an interval.")]


class ChapterLift(Keyed, frozen=True):
    """What learning earned while share, unit, control and the rule of rewards stayed."""

    number: Annotated[int, Meta(description="From 1; what ``from`` and ``to`` take.")]
    since: str | None
    until: Annotated[str | None, Meta(description="Null of the one that goes on.")]
    ended: Annotated[str | None, Meta(description="What ended it, in words.")]
    control: str | None
    share: float | None
    unit: str | None
    groups: dict[str, Group]
    claim: Claim
    ratio: Bounds | None
    difference: Bounds | None
    counted: Annotated[bool, Meta(description="Whether the lift above counts it.")]
    alarm: Annotated[bool, Meta(description="Whether its control had not its share of traffic.")]
    parts: list[PartLift]


class PlannedLook(Keyed, frozen=True):
    """The one look that was planned before the first decision of the chapter."""

    at: str
    reached: Annotated[bool, Meta(description="Whether all windows have closed that count for it.")]
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
        Of the control.
    unit : str or None
        Who stays in one group: ``decision``, ``session`` or ``user``.
    since, until : str or None
        The time whose decisions count, in ISO 8601; ``until`` of a stretch of time alone.
    confidence : float
    groups : dict of str to Group
        ``decisions`` and ``rewards`` of ``control`` and ``policy``.
    claim : str
        ``early``, ``undecided``, ``better`` or ``worse``.
    ratio, difference : Bounds or None
        Each with ``estimate``, ``low`` and ``high``.
    verdict : str
        What all this says, in words.
    srm : list of Mismatch
        Whether the control has its share of the traffic, and arms that of their propensities:
        ``what``, ``share``, ``evidence``, ``alarm``.
    planner : Plan or None
        When a ``lift`` would show: after how many ``decisions``, in how many ``days``; ``verdict``
        says it in words.
    winner : BestArm or None
        The best ``arm``, whether it is ``declared``, how far others are ``behind``.
    metrics : list of MetricLift
        The same of what is watched beside the reward, and whether it is harmed.
    winner_verdict : str
        What can be said of the best arm.
    as_of : str
        When this was worked out, by the log's clock, in ISO 8601.
    pending : int
        Decisions that do not count yet.
    pending_until : str or None
        When the last of their windows closes, as they are now.
    counted : str
        The time and the count of all this, in words.
    chapters : list of ChapterLift
        Of the holdout, in order: ``number``, ``since``, ``until``, ``ended`` (what ended it, in
        words), ``control``, ``share``, ``unit``, ``groups``, ``claim``, ``ratio``, ``difference``,
        ``counted`` (whether the lift counts it), ``alarm``, and its ``parts``, since each change of
        arms, policy or mode: ``what``, ``since``, ``groups``, ``ratio``.
    look : PlannedLook or None
        The look that was planned: ``at``, ``reached``, ``claim``, ``ratio``, ``difference``,
        ``verdict``.
    """

    placement: str
    method: Annotated[
        Literal["holdout", "propensities"],
        Meta(description="Whether the control was shown, or is worked out from propensities."),
    ]
    control: Annotated[str, Meta(description="``uniform``, ``baseline``, ``arm NAME`` or ``policy NAME``.")]
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
    as_of: Annotated[str, Meta(description="When this was worked out, by the log's clock.")] = ""
    pending: Annotated[int, Meta(description="Decisions that do not count yet.")] = 0
    pending_until: Annotated[
        str | None, Meta(description="When the last of their windows closes, as they are now.")
    ] = None
    counted: Annotated[str, Meta(description="The time and the count of all this, in words.")] = ""
    chapters: Annotated[
        list[ChapterLift], Meta(description="Of the holdout; empty where there never was one.")
    ] = []
    look: PlannedLook | None = None


# ---- The guardrail of a placement: what it watches, and which harm it has proved


class Harm(msgspec.Struct, frozen=True):
    """Harm that is proved: by how much a metric exceeds that of what it is held against, per decision.

    Attributes
    ----------
    arm : int, str or None
        None for the policy, held against the control of the holdout.
    metric : str
    estimate, low, high : float
        Negative where there is less of the metric; the ends hold at any time.
    then : str
        What was done: ``retire`` or ``tell``.
    at : str or None
        When, in ISO 8601; a mark of the log has a time of its own.
    """

    arm: Annotated[
        int | str | None, Meta(description="Null for the policy, held against the holdout's control.")
    ]
    metric: str
    estimate: Annotated[float, Meta(description="How much more of the metric there is per decision.")]
    low: float
    high: float
    then: Annotated[str, Meta(description="What was done: ``retire`` or ``tell``.")]
    at: Annotated[str | None, Meta(description="When, in ISO 8601.")] = None

    @property
    def interval(self) -> tuple[float, float, float]:
        """The estimate, and what it lies between."""
        return self.estimate, self.low, self.high


class GuardrailNow(msgspec.Struct, frozen=True):
    """The guardrail of a placement."""

    metric: str
    margin: Annotated[float, Meta(description="How much worse it may be, per decision.")]
    then: Annotated[str, Meta(description="``retire`` or ``tell``.")]
    against: Annotated[
        int | str | None,
        Meta(
            description="The arm that others are held against; null where the policy is, against the control."
        ),
    ]
    harms: Annotated[list[Harm], Meta(description="That were proved, each once.")]


# ---- Whom a placement shows what

LATEST = 2_000
"""Decisions that are looked at unless asked otherwise."""

LogOdds = Annotated[
    float | None, Meta(description="In log-odds of a reward; null where arms are known by features alone.")
]


class ForWhomOf(msgspec.Struct, frozen=True):
    """How far back is looked."""

    limit: Annotated[int, Meta(ge=1, le=10_000, description="How many of the latest decisions.")] = LATEST


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
        By how much it moves arms apart.
    segments : list of UserSegment
        Empty beyond the 12 fields that matter most.
    """

    field: str
    matters: Annotated[
        float | None,
        Meta(
            description="By how much it moves arms apart, over the users of these decisions: the standard "
            "deviation of what it adds to an arm's log-odds beside the other arms."
        ),
    ]
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
        By how much each field moves it up and down.
    """

    arm: int | str
    shown: int
    mean: float | None
    low: float | None
    high: float | None
    moved: Annotated[
        dict[str, float],
        Meta(
            description="By field: the standard deviation, over users, of what it adds to the log-odds; the "
            "12 fields that matter most."
        ),
    ]


class ForWhom(msgspec.Struct, frozen=True):
    """Which users get which arm, by what is known of them, and why.

    Attributes
    ----------
    verdict : str
        All this in words.
    decisions : int
        Those that were looked at: the latest that the policy made.
    since, until : str or None
        When the first and the last of them were made.
    key : str or None
        Whose they are, where each key has models of its own: the key with most of them.
    says_nothing : float or None
        The weight that the policy gives to the hypothesis that the context says hardly anything.
    bytes : int
        What the policy's state takes in memory, all keys together.
    arms : list of ArmForAll
    fields : list of FieldForWhom
        Those that matter most first.
    shard : int or None
        Whose all this is, where the service is in shards: the one that decides most.
    """

    verdict: str
    decisions: int
    since: Time | None
    until: Time | None
    key: str | None
    says_nothing: Annotated[
        float | None,
        Meta(
            description="The weight, of 1, that the policy gives to the hypothesis that the context says "
            "hardly anything; null where it has none."
        ),
    ]
    bytes: Annotated[int, Meta(description="What the policy's state takes in memory, all keys together.")]
    arms: Annotated[list[ArmForAll], Meta(description="Those shown most first; at most 50.")]
    fields: Annotated[list[FieldForWhom], Meta(description="Those that matter most first.")]
    shard: Annotated[
        int | None,
        Meta(description="Whose all this is, where the service is in shards: the one that decides most."),
    ] = None
