"""What serves as what in an event: the map, from TOML."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from tacit.errors import ConfigError
from tacit.service.config.file import complaint, meant

Scalar = str | int | float | bool


class Fixed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value that stands in no event.

    Attributes
    ----------
    value : str
    """

    value: str


class Worth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an event of one kind tells of its decision.

    Attributes
    ----------
    reward : float, optional
        In [0, 1].
    metric : str, optional
        A metric of the placement, of which the event brings an amount.
    field : str, optional
        Where the event has that amount, by default 1; without a metric, where it has its reward.
    """

    reward: float | None = None
    metric: str | None = None
    field: str | None = None

    def check(self, field: str) -> None:
        """Check that it tells something, and only once.

        Raises
        ------
        ConfigError
        """
        if self.reward is not None and not 0.0 <= self.reward <= 1.0:
            raise ConfigError(f"{field}.reward: {self.reward} is not allowed; give a number in [0, 1]")
        if self.metric is None and (self.reward is None) == (self.field is None):
            raise ConfigError(f"{field}: give reward, or field, or metric; with metric, any of the others")


class EventMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What serves as what in an event.

    Where it names a field of an event it is a dotted path: ``properties.total``. A step into a list is a
    number, or the ``key`` of one of its objects; a step into text reads that as JSON.

    Attributes
    ----------
    placement : str or Fixed
        Which placement decided; ``{ value = "home" }`` is the same one for all.
    decision_id : str
    reward : str or dict, optional
        Where the reward is, in [0, 1]; or what events are worth, by their kind.
    clicks, items : str, optional
        In place of a reward, of lists: the clicked position or positions, from 0; or the clicked items.
    id : str, optional
        Names the event, so that it counts once; by default its content and its place in the file do.
    event : str, optional
        Where its kind is, by which ``reward`` is told.
    where : dict, optional
        Only events in which these fields have this value, or one of these.
    time : str, optional
        When it happened: text of ISO 8601, or a number since 1970. From it comes the lag.
    time_unit : {"s", "ms", "us", "ns"}, optional
        Of times that are numbers; by default the one in which a number is a time from 2000 to 2099.

    Examples
    --------
    >>> text = '''
    ... placement = { value = "home" }
    ... decision_id = "properties.decision"
    ... id = "messageId"
    ... event = "event"
    ... [reward]
    ... "Product Clicked" = 1
    ... "Order Completed" = { metric = "revenue", field = "properties.total" }
    ... '''
    >>> made = map_of(text)
    >>> made.placement.value, made.reward["Product Clicked"], made.reward["Order Completed"].metric
    ('home', 1.0, 'revenue')
    """

    placement: str | Fixed
    decision_id: str
    reward: str | dict[str, float | Worth] | None = None
    clicks: str | None = None
    items: str | None = None
    id: str | None = None
    event: str | None = None
    where: dict[str, Scalar | list[Scalar]] = {}
    time: str | None = None
    time_unit: Literal["s", "ms", "us", "ns"] | None = None

    @property
    def worths(self) -> dict[str, Worth]:
        """What events are worth, by their kind; empty where all have their reward in one field."""
        if not isinstance(self.reward, dict):
            return {}
        return {
            kind: worth if isinstance(worth, Worth) else Worth(worth) for kind, worth in self.reward.items()
        }

    def check(self) -> None:
        """Check what goes together.

        Raises
        ------
        ConfigError
        """
        told = [name for name in ("reward", "clicks", "items") if getattr(self, name) is not None]
        if len(told) != 1:
            given = " and ".join(told) or "none"
            raise ConfigError(f"reward: {given} given; give one of reward, clicks and items")
        if isinstance(self.reward, dict) and self.event is None:
            raise ConfigError('event: missing; [reward] tells by it: give the kind\'s field, event = "type"')
        if not isinstance(self.reward, dict) and self.event is not None:
            raise ConfigError(f"event: {self.event!r} is read for a table [reward] alone; use [where]")
        if self.time_unit is not None and self.time is None:
            raise ConfigError(f"time_unit: {self.time_unit!r} is of no field; give time, too")
        if self.reward == {}:
            raise ConfigError('reward: the table is empty; say what an event is worth: "click" = 1')
        for kind, worth in self.worths.items():
            worth.check(f"reward.{kind}")
        for field, allowed in self.where.items():
            if allowed == []:
                raise ConfigError(f"where.{field}: no value is allowed; give one at least")


def map_at(path: Path) -> EventMap:
    """Return the map in a file.

    Raises
    ------
    ConfigError
        If it cannot be read, or is wrong; the message names the file and the key.
    """
    try:
        return map_of(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def map_of(text: str) -> EventMap:
    """Return the map that a text of TOML says.

    Raises
    ------
    ConfigError
    """
    try:
        table: Any = tomllib.loads(text)
        made = msgspec.convert(table, EventMap)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"is no TOML: {error}") from error
    except msgspec.ValidationError as error:
        field, what = complaint(error)
        raise ConfigError(f"{field}: {what}{meant(error, EventMap)}") from error
    made.check()
    return made
