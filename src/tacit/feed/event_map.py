"""What serves as what in an event: the map, from TOML."""

# 1. What fields of an event are worth: fixed values, and the reward of each kind of event.
# 2. Events of impressions, which say what was shown.
# 3. The map as a whole, checked when it is read; then its way from TOML.

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec

from tacit.core.text import no_toml
from tacit.errors import ConfigError
from tacit.wire.error_messages import refusal

JOINING = "key", "user", "arm"

UNIFORM = "uniform"
"""In place of a propensity: one over the number of arms on offer."""

Scalar = str | int | float | bool
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
Reward = Annotated[float, msgspec.Meta(ge=0, le=1)]
Arms = Annotated[list[int | str], msgspec.Meta(min_length=1)]
Value = TypeVar("Value")


# ---- What a field of an event is worth


class Fixed(msgspec.Struct, Generic[Value], frozen=True, forbid_unknown_fields=True):
    """A value that stands in no event.

    Attributes
    ----------
    value : str, float or list
        For all events.
    """

    value: Value


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


# ---- What events of impressions say


class ShownMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Events of a second kind, which say what was shown.

    Attributes
    ----------
    where : dict
        Which events these are: those in which these fields have this value, or one of these.
    decision_id : str, optional
        By default where the other events have it; or else the event's own id names the decision.
    key : str or Fixed, optional
        For which key it was shown, such as a page; events are joined by it, if the map names one, too.
    user : str, optional
        To whom it was shown; events are joined by it, if the map names one, too.
    arm : str, optional
        What was shown.
    elsewhere : bool
        Whether the service did not decide it: then it is logged as a decision, of ``arm``, and of ``key`` or,
        without one, of the key ``default``.
    propensity : str, float or Fixed, optional
        With what probability it was shown, where it was decided elsewhere: the field, the number itself, or
        ``"uniform"``, where each of ``arms`` was as likely as any other.
    arms : str, list or Fixed, optional
        What was on offer: the field, or the arms themselves.
    context : str or dict, optional
        Where the context is as a whole; or where each of its fields is, by name.
    """

    where: dict[str, Scalar | list[Scalar]]
    decision_id: str | None = None
    key: str | Fixed[str] | None = None
    user: str | None = None
    arm: str | None = None
    elsewhere: bool = False
    propensity: str | Share | Fixed[Share] | None = None
    arms: str | Arms | Fixed[Arms] | None = None
    context: str | dict[str, str] | None = None

    def check(self) -> None:
        """Check what goes together.

        Raises
        ------
        ConfigError
        """
        if not self.where:
            raise ConfigError("shown.where: it is empty; say which events tell what was shown")
        if self.elsewhere and self.arm is None:
            raise ConfigError("shown.elsewhere: a decision has an arm; name the field, arm")
        for field in ("propensity", "arms", "context"):
            if getattr(self, field) is not None and not self.elsewhere:
                raise ConfigError(f"shown.{field}: the service knows its own decisions; set elsewhere = true")
        if self.propensity == UNIFORM and self.arms is None:
            raise ConfigError(
                'shown.propensity: "uniform" is one over the arms on offer; name these, too: '
                'arms = ["a", "b"], or the field that has them'
            )


class SeenMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Events of a third kind, which say that what was shown was looked at.

    Attributes
    ----------
    where : dict
        Which events these are, as in ``shown``.
    decision_id : str, optional
        By default where the other events have it.
    """

    where: dict[str, Scalar | list[Scalar]]
    decision_id: str | None = None


# ---- The map as a whole


class EventMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What serves as what in an event.

    Where it names a field of an event it is a dotted path: ``properties.total``. A step into a list is a
    number, or the ``key`` of one of its objects; a step into text reads that as JSON.

    Attributes
    ----------
    placement : str or Fixed
        Which placement decided; ``{ value = "home" }`` is the same one for all.
    decision_id : str, optional
        Events without it are joined to what was shown: to the last decision before, with the same key,
        user and arm, as far as they are given here.
    reward : str, float or dict, optional
        Where the reward is, in [0, 1]; what all events are worth; or what they are worth by their kind.
    clicks : str, optional
        In place of a reward, of lists: the clicked position or positions, from 0.
    items : str, optional
        In place of a reward, of lists: the clicked items.
    id : str, optional
        Names the event, so that it counts once; by default its content and its place in the file do.
    event : str, optional
        Where its kind is, by which ``reward`` is sent.
    where : dict, optional
        Only events in which these fields have this value, or one of these.
    time : str, optional
        When it happened: text of ISO 8601, or a number since 1970. From it comes the lag.
    time_unit : {"s", "ms", "us", "ns"}, optional
        Of times that are numbers; by default the one in which a number is a time from 2000 to 2099.
    key, user, arm : str, optional
        What joins events without a decision's id to what was shown before, which must have the same.
    join_seconds : float
        So long after a decision at most.
    shown : ShownMap, optional
        Which events say what was shown.
    seen : SeenMap, optional
        Which events say that it was looked at.

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

    placement: str | Fixed[str]
    decision_id: str | None = None
    reward: str | Reward | dict[str, float | Worth] | None = None
    clicks: str | None = None
    items: str | None = None
    id: str | None = None
    event: str | None = None
    where: dict[str, Scalar | list[Scalar]] = {}
    time: str | None = None
    time_unit: Literal["s", "ms", "us", "ns"] | None = None
    key: str | None = None
    user: str | None = None
    arm: str | None = None
    join_seconds: Annotated[float, msgspec.Meta(gt=0, extra={"unit": "seconds"})] = 1800.0
    shown: ShownMap | None = None
    seen: SeenMap | None = None

    @property
    def joined_by(self) -> list[str]:
        """What joins events without a decision's id, of key, user and arm."""
        return [name for name in JOINING if getattr(self, name) is not None]

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
        sent = [name for name in ("reward", "clicks", "items") if getattr(self, name) is not None]
        if len(sent) != 1:
            given = " and ".join(sent) or "none"
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
        tables = {"where": self.where}
        tables |= {f"{name}.where": each.where for name in ("shown", "seen") if (each := getattr(self, name))}
        if self.seen is not None and not self.seen.where:
            raise ConfigError("seen.where: it is empty; say which events tell that something was looked at")
        for table, fields in tables.items():
            for field, allowed in fields.items():
                if allowed == []:
                    raise ConfigError(f"{table}.{field}: no value is allowed; give one at least")
        self._check_join()

    def _check_join(self) -> None:
        shown, joined = self.shown, self.joined_by
        if shown is not None:
            shown.check()
            if not shown.elsewhere and not joined:
                raise ConfigError(
                    "shown: it serves nothing; give key, user or arm to join, or elsewhere = true"
                )
            if not shown.elsewhere and shown.decision_id is None and self.decision_id is None:
                raise ConfigError("shown.decision_id: missing; name the field with the id of the decision")
        if self.decision_id is None and not joined:
            raise ConfigError("decision_id: missing; give it, or key, user or arm to join by, and [shown]")
        if not joined:
            return
        if shown is None or self.time is None:
            raise ConfigError(f"{joined[0]}: joins to what was shown before; give [shown] and time, too")
        for name in joined:
            if getattr(shown, name) is None:
                raise ConfigError(f"shown.{name}: missing; events are joined by it")


# ---- From TOML


def example_map(name: str) -> str:
    """Return a map to begin with, for events of an origin such as ``segment``."""
    return (Path(__file__).parent / "examples" / f"{name}.toml").read_text(encoding="utf-8")


def map_at(path: Path) -> EventMap:
    """Return the map in a file.

    Raises
    ------
    ConfigError
        If it cannot be read, or is wrong; the message names the file and the key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
        made = "begin with one that tacit feed --example segment prints"
        raise ConfigError(f"{str(path)[:200]}: {why[:300]}; {made}".replace("\0", "\\0")) from error
    try:
        return map_of(text)
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
        # As a placement that is the same for all events is written.
        if isinstance(reward := table.get("reward"), dict) and reward.keys() == {"value"}:
            table |= {} if "event" in table else {"reward": reward["value"]}
        made = msgspec.convert(table, EventMap)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(no_toml(error)) from error
    except msgspec.ValidationError as error:
        raise ConfigError(str(refusal(error, table, EventMap))) from error
    made.check()
    return made
