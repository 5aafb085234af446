"""What travels over the Personalizer API, as its OpenAPI documents of v1.0 and v1.1 name it.

Names that are not known are passed over, as that service did.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tacit.service.api.wire import PRINTABLE

AGGREGATIONS: dict[str, Any] = {"earliest": "first", "sum": "sum", "latest": "last", "max": "max"}
"""From the names of the API to those of placements."""
MOST_ACTIONS = MOST_SLOTS = 50
LONGEST = 256

Id = Annotated[str, Meta(min_length=1, max_length=LONGEST, extra_json_schema=PRINTABLE)]
EventId = Annotated[
    str,
    Meta(
        max_length=LONGEST,
        description="Names the event, and seeds its draw; left out or empty, the service makes one.",
        extra_json_schema=PRINTABLE,
    ),
]
Blocks = list[dict[str, Any]]
Reward = Annotated[float, Meta(ge=-1.0, le=1.0)]
Moment = Annotated[datetime, Meta(extra_json_schema={"format": "date-time"})]
Never = Annotated[bool, Meta(extra_json_schema={"const": False})]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]


class Wire(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Base of what travels."""


class RankableAction(Wire):
    """An action and its features."""

    id: Id
    features: Blocks | None = None


class RankRequest(Wire):
    """Which of these actions, in this context?"""

    actions: Annotated[list[RankableAction], Meta(min_length=1, max_length=MOST_ACTIONS)]
    context_features: Blocks | None = None
    excluded_actions: list[str] | None = None
    event_id: EventId | None = None
    defer_activation: bool | None = False


class RankedAction(Wire, omit_defaults=False):
    """An action and the probability with which it was to be chosen."""

    id: str
    probability: float


class RankResponse(Wire):
    """The action to use, and how likely each was."""

    ranking: list[RankedAction]
    event_id: str
    reward_action_id: str


class RewardRequest(Wire):
    """What an event was worth."""

    value: Reward


class SlotRequest(Wire):
    """A place for an action, and the action that would stand there otherwise."""

    id: Id
    baseline_action: Id
    features: Blocks | None = None
    excluded_actions: list[str] | None = None


class MultiSlotRankRequest(Wire):
    """Which of these actions in which of these slots, in this context?"""

    actions: Annotated[list[RankableAction], Meta(min_length=1, max_length=MOST_ACTIONS)]
    slots: Annotated[list[SlotRequest], Meta(min_length=1, max_length=MOST_SLOTS)]
    context_features: Blocks | None = None
    event_id: EventId | None = None
    defer_activation: bool | None = False


class SlotResponse(Wire):
    """The action to use in a slot."""

    id: str
    reward_action_id: str


class MultiSlotRankResponse(Wire):
    """The action to use in each slot."""

    slots: list[SlotResponse]
    event_id: str


class SlotReward(Wire):
    """What a slot was worth."""

    slot_id: Id
    value: Reward


class MultiSlotRewardRequest(Wire):
    """What slots of an event were worth."""

    reward: Annotated[list[SlotReward], Meta(min_length=1, max_length=MOST_SLOTS)]


class ServiceConfiguration(Wire, omit_defaults=False):
    """How rewards are waited for and how much is explored."""

    reward_wait_time: Annotated[timedelta, Meta(description="PT0.001S to P30D.")]
    default_reward: Reward
    reward_aggregation: Annotated[
        str, Meta(max_length=LONGEST, extra_json_schema={"enum": list(AGGREGATIONS)})
    ]
    exploration_percentage: Share
    model_export_frequency: timedelta = timedelta(0)
    log_retention_days: Annotated[int, Meta(ge=-1, le=2**31 - 1)] = -1
    learning_mode: Literal["Online", "Apprentice", "LoggingOnly"] | UnsetType | None = UNSET
    last_configuration_edit_date: Moment | UnsetType | None = UNSET
    log_mirror_enabled: Never | None = False
    is_auto_optimization_enabled: Never | None = False


class PolicyContract(Wire):
    """Learning settings."""

    name: Annotated[str, Meta(max_length=LONGEST)]
    arguments: Annotated[str, Meta(max_length=1024)]


class DateRange(Wire, rename={"start": "from", "end": "to"}):
    """From when to when."""

    start: Moment
    end: Moment


class LogsProperties(Wire):
    """What the log holds."""

    date_range: DateRange


class ModelProperties(Wire):
    """When the model was made, and when it last learned."""

    creation_time: Moment
    last_modified_time: Moment


class EvaluationContract(Wire):
    """What is to be evaluated offline."""

    name: Annotated[str, Meta(max_length=LONGEST)]
    start_time: Moment
    end_time: Moment
    policies: Annotated[list[PolicyContract], Meta(max_length=20)] | None = None
    enable_offline_experimentation: bool | None = False


class PolicyResultSummary(Wire, omit_defaults=False):
    """What a policy would have earned; the interval's half width holds it with 95 %."""

    ips_estimator_numerator: float
    ips_estimator_denominator: float
    snips_estimator_denominator: float
    non_zero_probability: float
    sum_of_squares: float
    average_reward: float | None
    confidence_interval: float | None
    time_stamp: Moment
    aggregate_time_window: timedelta


class PolicyResult(Wire):
    """A policy and what it would have earned."""

    name: str
    arguments: str
    policy_source: Literal["Online", "Baseline", "Random", "Custom"]
    summary: list[PolicyResultSummary]
    total_summary: PolicyResultSummary


class Evaluation(Wire, omit_defaults=False):
    """An offline evaluation, under way or done."""

    id: str
    name: str
    start_time: Moment
    end_time: Moment
    creation_time: Moment
    status: Literal["pending", "completed", "failed"] = "pending"
    evaluation_type: str = "Manual"
    job_id: str = ""
    policy_results: list[PolicyResult] = []
    feature_importance: list[list[str]] = []


class Evaluations(Wire, omit_defaults=False):
    """Evaluations, for clients that read them by pages; there is one."""

    value: list[Evaluation]


class InnerError(Wire):
    """What exactly was wrong."""

    code: str


class PersonalizerError(Wire):
    """What was wrong with a request."""

    code: str
    message: str
    target: str | None = None
    inner_error: InnerError | None = None


class ErrorResponse(Wire):
    """How every error is told."""

    error: PersonalizerError
