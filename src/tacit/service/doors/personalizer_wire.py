"""What Personalizer's clients send and get, features hashed to numbers, and its settings.

Structures first, by the names of that API. Then features: one-hot, crossed with the context, hashed to a
vector. Then settings that callers may change, which the log keeps.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import UNSET, Meta, UnsetType

from tacit.core.arrays import Floats
from tacit.errors import InvalidValue
from tacit.service.config.schema import Rule
from tacit.service.log.rows import APPRENTICE, FROZEN, ONLINE, SHADOW
from tacit.wire.decisions import PRINTABLE

# ---- What travels over the Personalizer API, as its OpenAPI documents of v1.0 and v1.1 name it
#
# Names that are not known are passed over, as that service did.

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
    """How every error is written."""

    error: PersonalizerError


# ---- JSON features as vectors: one-hot encoding, crossed with the context, hashed
#
# A feature is a path of names through nested objects. A string is the feature of its path and
# itself, worth 1, and so is a boolean; a number is worth sign(x)·log2(1 + |x|); null is nothing. A
# list of numbers has a feature for each place; other lists add up their entries. So
# ``{"taste": ["sweet"], "rating": 3}`` has the features ``["taste", "sweet"]``, worth 1, and
# ``["rating"]``, worth 2.
#
# The vector of an action has three blocks: the features of the context, those of the action, and
# every pair of the two. Each feature is added, with a sign, at a place of the vector; place and
# sign come from its hash (Weinberger et al. 2009, "Feature hashing for large scale multitask
# learning"). A block of n features is divided by sqrt(n), so that one with many does not drown the
# others. A pair's hash mixes those of its two features; each block has a salt of its own.

MOST_FEATURES = 250
DEEPEST = 16
LARGEST = 2**63
"""What is no larger is a number wherever the log may go."""

Hashes = npt.NDArray[np.uint64]
Features = tuple[Hashes, Floats]
"""Hash and worth of each feature."""

CONTEXT, ACTION, PAIR = (np.uint64(salt) for salt in (0x243F6A8885A308D3, 0x13198A2E03707344,
                                                      0xA4093822299F31D0))  # fmt: skip


def features_of(field: str, objects: Sequence[Mapping[str, Any]]) -> Features:
    """Return the features of a list of JSON objects.

    Raises
    ------
    InvalidValue
        If there are more than 250, they are nested more than 16 deep, or a number is too large.

    Examples
    --------
    >>> hashes, worths = features_of("features", [{"taste": ["sweet"]}, {"rating": 3, "new": None}])
    >>> len(hashes), worths.tolist()
    (2, [1.0, 2.0])
    """
    found = list(_walk(field, (), objects))
    if len(found) > MOST_FEATURES:
        raise InvalidValue(field, len(found), f"give at most {MOST_FEATURES} features")
    hashes, worths = zip(*found, strict=True) if found else ((), ())
    return np.array(hashes, np.uint64), np.array(worths, np.float64)


def _walk(field: str, path: tuple[Any, ...], value: Any) -> Iterator[tuple[int, float]]:
    if len(path) > DEEPEST:
        raise InvalidValue(field, list(path), f"nest features at most {DEEPEST} deep")
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _walk(field, (*path, name), inner)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        dense = bool(value) and all(_is_number(each) for each in value)
        for place, inner in enumerate(value):
            if isinstance(inner, Sequence) and not isinstance(inner, str):
                yield from _walk(field, (*path, place), inner)
            else:
                yield from _walk(field, (*path, place) if dense else path, inner)
    elif _is_number(value):
        if not abs(value) < LARGEST:
            raise InvalidValue(field, str(value)[:40], "give numbers below 2^63 in size")
        worth = math.copysign(math.log2(1.0 + abs(value)), value)
        if worth:
            yield _hash(path), worth
    elif value is not None:
        yield _hash((*path, value)), 1.0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@lru_cache(maxsize=65536)
def _hash_of(text: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def _hash(path: tuple[Any, ...]) -> int:
    """Return 64 bits of BLAKE2b of the path as a JSON list."""
    return _hash_of(msgspec.json.encode(path))


def vectors(context: Features, actions: Sequence[Features], dim: int) -> Floats:
    """Return the vector of each action in a context.

    Parameters
    ----------
    context : Features
    actions : sequence of Features
    dim : int
        Length of a vector.

    Returns
    -------
    array of float64, shape (actions, dim)

    Examples
    --------
    >>> context = features_of("contextFeatures", [{"time": "morning"}])
    >>> tea = features_of("features", [{"hot": True}])
    >>> np.abs(vectors(context, [tea], 64)).sum()
    np.float64(3.0)
    """
    found = np.zeros((len(actions), dim))
    shared = np.zeros(dim)
    _add(shared, context[0] ^ CONTEXT, context[1])
    for row, (hashes, worths) in zip(found, actions, strict=True):
        row += shared
        _add(row, hashes ^ ACTION, worths)
        pairs = _mixed(context[0][:, None] ^ PAIR) + hashes
        _add(row, _mixed(pairs).ravel(), np.outer(context[1], worths).ravel())
    return found


def _add(row: Floats, hashes: Hashes, worths: Floats) -> None:
    if len(hashes):
        signs = np.where(hashes >> np.uint64(63), -1.0, 1.0)
        places = (hashes % np.uint64(len(row))).astype(np.intp)
        values = signs * worths / np.sqrt(len(hashes))
        row += np.bincount(places, values, minlength=len(row))


def _mixed(hashes: Hashes) -> Hashes:
    """Return the finalizer of SplitMix64 (Steele, Lea, Flood 2014): every bit moves every other."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))


# ---- The settings of a placement that its callers may change: noted in the log, in force from there
#
# A mark in the log holds all of them. Decisions that were made before keep their windows; what a
# decision earns is worked out by the rule that is in force when its window closes.

SECOND = 1_000_000
KEPT = -1
"""Days of a log that is never dropped."""
LONGEST_WAIT = 30 * 86_400 * SECOND
LEARNING_MODES: dict[str, Any] = {
    ONLINE: "Online",
    SHADOW: "Online",
    APPRENTICE: "Apprentice",
    FROZEN: "LoggingOnly",
}
MODES = {"Online": ONLINE, "Apprentice": APPRENTICE, "LoggingOnly": FROZEN}


class Settings(msgspec.Struct, frozen=True):
    """What a mark of the kind ``settings`` holds.

    Attributes
    ----------
    window : int
        Microseconds.
    default : float
    aggregation : str
    epsilon : float
    """

    window: int
    default: float
    aggregation: str
    epsilon: float

    @classmethod
    def of(cls, rule: Rule, policy: Any) -> Settings:
        """Return the settings of a rule and a policy."""
        return cls(rule.window, rule.default, rule.aggregation, policy.epsilon)

    @classmethod
    def read(cls, text: str) -> Settings:
        """Return the settings of a mark."""
        return msgspec.json.decode(text, type=cls)

    @property
    def text(self) -> str:
        """The settings as a mark holds them."""
        return msgspec.json.encode(self).decode()

    def rule(self, rule: Rule) -> Rule:
        """Return a rule with these settings."""
        changes: dict[str, Any] = {
            "window": self.window, "default": self.default, "aggregation": self.aggregation
        }  # fmt: skip
        return msgspec.structs.replace(rule, **changes)


def configuration(settings: Settings, mode: str, edited: int, days: int = KEPT) -> ServiceConfiguration:
    """Return settings as the API tells them; ``days`` for how long the log is kept.

    Examples
    --------
    >>> shown = configuration(Settings(600_000_000, 0.0, "first", 0.2), "online", 0)
    >>> shown.reward_aggregation, shown.learning_mode, shown.reward_wait_time
    ('earliest', 'Online', datetime.timedelta(seconds=600))
    """
    names = {ours: theirs for theirs, ours in AGGREGATIONS.items()}
    return ServiceConfiguration(
        reward_wait_time=timedelta(microseconds=settings.window),
        default_reward=settings.default,
        reward_aggregation=names[settings.aggregation],
        exploration_percentage=settings.epsilon,
        log_retention_days=days,
        learning_mode=LEARNING_MODES[mode],
        last_configuration_edit_date=moment(edited),
    )


def settings_of(wanted: ServiceConfiguration, days: int = KEPT) -> Settings:
    """Return what a client wants; ``days`` is how long the log is kept.

    Raises
    ------
    InvalidValue
        If this service does not do it.
    """
    window = round(wanted.reward_wait_time / timedelta(microseconds=1))
    if not 1000 <= window <= LONGEST_WAIT:
        raise InvalidValue("rewardWaitTime", wanted.reward_wait_time, "give PT0.001S to P30D")
    if wanted.reward_aggregation not in AGGREGATIONS:
        remedy = f"give one of {', '.join(AGGREGATIONS)}"
        raise InvalidValue("rewardAggregation", wanted.reward_aggregation, remedy)
    if wanted.log_retention_days != days:
        remedy = f"give {days}: how long the log is kept is set in the configuration file"
        raise InvalidValue("logRetentionDays", wanted.log_retention_days, remedy)
    if wanted.log_mirror_enabled:
        raise InvalidValue("logMirrorEnabled", True, "give false: the log is in your own store")
    if wanted.is_auto_optimization_enabled:
        raise InvalidValue("isAutoOptimizationEnabled", True, "give false: settings stay")
    return Settings(
        window, wanted.default_reward, AGGREGATIONS[wanted.reward_aggregation], wanted.exploration_percentage
    )


def moment(microseconds: int) -> datetime:
    """Return a time of the log as a date."""
    return datetime.fromtimestamp(microseconds / SECOND, UTC)
