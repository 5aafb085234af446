"""The settings of a placement that its callers may change: noted in the log, in force from there.

A mark in the log holds all of them. Decisions that were made before keep their windows; what a
decision earns is worked out by the rule that is in force when its window closes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from tacit.errors import InvalidValue
from tacit.service.config.rule import Rule
from tacit.service.log.rows import APPRENTICE, FROZEN, ONLINE, SHADOW
from tacit.service.personalizer.wire import AGGREGATIONS, ServiceConfiguration

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
    >>> told = configuration(Settings(600_000_000, 0.0, "first", 0.2), "online", 0)
    >>> told.reward_aggregation, told.learning_mode, told.reward_wait_time
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


def settings_of(told: ServiceConfiguration, days: int = KEPT) -> Settings:
    """Return what a client wants; ``days`` is how long the log is kept.

    Raises
    ------
    InvalidValue
        If this service does not do it.
    """
    window = round(told.reward_wait_time / timedelta(microseconds=1))
    if not 1000 <= window <= LONGEST_WAIT:
        raise InvalidValue("rewardWaitTime", told.reward_wait_time, "give PT0.001S to P30D")
    if told.reward_aggregation not in AGGREGATIONS:
        remedy = f"give one of {', '.join(AGGREGATIONS)}"
        raise InvalidValue("rewardAggregation", told.reward_aggregation, remedy)
    if told.log_retention_days != days:
        remedy = f"give {days}: how long the log is kept is set in the configuration file"
        raise InvalidValue("logRetentionDays", told.log_retention_days, remedy)
    if told.log_mirror_enabled:
        raise InvalidValue("logMirrorEnabled", True, "give false: the log is in your own store")
    if told.is_auto_optimization_enabled:
        raise InvalidValue("isAutoOptimizationEnabled", True, "give false: settings stay")
    return Settings(
        window, told.default_reward, AGGREGATIONS[told.reward_aggregation], told.exploration_percentage
    )


def moment(microseconds: int) -> datetime:
    """Return a time of the log as a date."""
    return datetime.fromtimestamp(microseconds / SECOND, UTC)
