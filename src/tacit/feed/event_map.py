"""The event map: a TOML file that names the fields of events to use as decision id, reward and so on."""

# 1. Fixed values, and the reward of each kind of event.
# 2. Impression events, which record shown arms, and examination events.
# 3. ``EventMap``, the whole map, with its checks; then parsing of TOML.

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec

from tacit.core.text import no_toml
from tacit.errors import ConfigError
from tacit.wire.error_messages import explain_error

JOIN_FIELDS = "key", "user", "arm"

ANY = "*"
"""Value of a condition that any value fits, unless the field is missing."""
UNIFORM = "uniform"
"""Value in place of a propensity: 1 / number of arms on offer."""

Scalar = str | int | float | bool
Probability = Annotated[float, msgspec.Meta(gt=0, le=1)]
Reward = Annotated[float, msgspec.Meta(ge=0, le=1)]
Arms = Annotated[list[int | str], msgspec.Meta(min_length=1)]
Value = TypeVar("Value")


# ---- Fixed values and rewards


class Fixed(msgspec.Struct, Generic[Value], frozen=True, forbid_unknown_fields=True):
    """A constant in place of a field of events.

    Attributes
    ----------
    value : str, float or list
        The value for all events.
    """

    value: Value


class EventReward(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Reward or metric that an event of one kind contributes.

    Attributes
    ----------
    reward : float, optional
        In [0, 1].
    metric : str, optional
        A metric of the placement to which the event adds an amount.
    field : str, optional
        Field with that amount, which is 1 by default; without a metric, field with the reward.
    """

    reward: float | None = None
    metric: str | None = None
    field: str | None = None

    def check(self, field: str) -> None:
        """Raise ConfigError if the reward is outside [0, 1], or the fields contradict each other.

        Without a metric, exactly one of ``reward`` and ``field`` must be set. The argument ``field`` is the
        name of this entry in the map, for messages.

        Raises
        ------
        ConfigError
        """
        if self.reward is not None and not 0.0 <= self.reward <= 1.0:
            raise ConfigError(f"{field}.reward: {self.reward} is not allowed; give a number in [0, 1]")
        if self.metric is None and (self.reward is None) == (self.field is None):
            raise ConfigError(f"{field}: give reward, or field, or metric; with metric, any of the others")


# ---- Impression and examination events


class ShownMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Impression events, which record the arm or the list that was shown.

    Attributes
    ----------
    where : dict
        Conditions on fields: an event is an impression if each field has the given value, or one of them;
        ``"*"`` is any value.
    decision_id : str, optional
        Field of the decision's id; by default that of the other events, or else the event's own id.
    key : str or Fixed, optional
        Field of the key, such as a page; events are joined by it, if the map names a key, too.
    user : str, optional
        Field of the user; events are joined by it, if the map names a user, too.
    arm : str, optional
        Field of the shown arm.
    items : str, optional
        In place of ``arm``, field of the shown list, best first. Events are joined to any of its items.
    positions : str, optional
        Field of each item's position; by default items are in the order of the list.
    teams : str, optional
        Field of each item's ranker, if two rankers' lists were interleaved.
    elsewhere : bool
        Whether another system decided: then the impression is logged as a decision, of ``arm``, and of
        ``key`` or, without one, of the key ``default``.
    propensity : str, float or Fixed, optional
        Propensity of the shown arm, if another system decided: its field, the number itself, or
        ``"uniform"`` if all of ``arms`` were equally likely.
    arms : str, list or Fixed, optional
        The arms on offer: their field, or the arms themselves.
    context : str or dict, optional
        Field of the whole context, or the field of each of its names.
    """

    where: dict[str, Scalar | list[Scalar]]
    decision_id: str | None = None
    key: str | Fixed[str] | None = None
    user: str | None = None
    arm: str | None = None
    items: str | None = None
    positions: str | None = None
    teams: str | None = None
    elsewhere: bool = False
    propensity: str | Probability | Fixed[Probability] | None = None
    arms: str | Arms | Fixed[Arms] | None = None
    context: str | dict[str, str] | None = None

    def check(self) -> None:
        """Raise ConfigError if ``where`` is empty or the fields contradict each other; return nothing.

        Propensity, arms and context are allowed only with ``elsewhere``, which requires ``arm`` or ``items``.

        Raises
        ------
        ConfigError
        """
        if not self.where:
            raise ConfigError("shown.where: it is empty; say which events tell what was shown")
        if self.elsewhere and self.arm is None and self.items is None:
            raise ConfigError("shown.elsewhere: a decision has an arm, or a list items; name the field")
        if self.items is not None and (self.arm or self.propensity or self.context) is not None:
            raise ConfigError("shown.items: a list has no arm, propensity or context; leave them out")
        if self.items is None and (self.positions or self.teams) is not None:
            raise ConfigError("shown.positions: only a list has positions and teams; name its field, items")
        for field in ("propensity", "arms", "context"):
            if getattr(self, field) is not None and not self.elsewhere:
                raise ConfigError(f"shown.{field}: the service knows its own decisions; set elsewhere = true")
        if self.propensity == UNIFORM and self.arms is None:
            raise ConfigError(
                'shown.propensity: "uniform" is one over the arms on offer; name these, too: '
                'arms = ["a", "b"], or the field that has them'
            )


class SeenMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Examination events, which record that the user saw an impression.

    Attributes
    ----------
    where : dict
        Conditions on fields, as in ``shown``.
    decision_id : str, optional
        Field of the decision's id; by default that of the other events.
    """

    where: dict[str, Scalar | list[Scalar]]
    decision_id: str | None = None


# ---- The map as a whole


class EventMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Map of the fields of events to the parts of feedback.

    Fields are dotted paths, such as ``properties.total``. A step into a list is a number, the ``key`` or
    ``name`` of one of its objects, or ``*`` for all of them; a step into text parses the text as JSON.

    Attributes
    ----------
    placement : str or Fixed
        Field of the placement; ``{ value = "home" }`` is the same one for all events.
    decision_id : str, optional
        Field of the decision's id. Events without it are joined to the last earlier decision with the same
        key, user and arm, as far as the map names these.
    reward : str, float or dict, optional
        Field of the reward, in [0, 1]; or one reward for all events; or a table of rewards by kind of event.
    clicks : str, optional
        For lists: field of the clicked position or positions; each earns the reward, by default 1.
    items : str, optional
        For lists, in place of ``clicks``: field of the clicked items.
    positions_from : int, default 0
        The position at the top of a list.
    each : str, optional
        With ``--past``: field with a list, such as the items of an order, for each of which the event counts
        on its own, with it in place of the list. Impressions are not divided.
    id : str, optional
        Field of the event's id, by which it counts once; by default a hash of content and place in the file.
    event : str, optional
        Field of the event's kind, which selects its reward in the table ``reward``.
    where : dict, optional
        Conditions on fields, as in ``shown``: only events that fit are used.
    time : str, optional
        Field of the event's time: text of ISO 8601, or a number since 1970. It determines the lag.
    time_unit : {"s", "ms", "us", "ns"}, optional
        Unit of numeric times; by default the one in which a number is a time from 2000 to 2099.
    key, user, arm : str, optional
        Fields by which events without a decision's id are joined to earlier impressions.
    join_seconds : float
        Most seconds between a decision and an event that is joined to it.
    shown : ShownMap, optional
        The impression events.
    seen : SeenMap, optional
        The examination events.

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
    >>> event_map = parse_map(text)
    >>> event_map.placement.value, event_map.reward["Order Completed"].metric
    ('home', 'revenue')
    """

    placement: str | Fixed[str]
    decision_id: str | None = None
    reward: str | Reward | dict[str, float | EventReward] | None = None
    clicks: str | None = None
    items: str | None = None
    positions_from: Annotated[int, msgspec.Meta(ge=0)] = 0
    each: str | None = None
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
    def join_fields(self) -> list[str]:
        """Names among ``key``, ``user`` and ``arm`` that the map sets, by which events are joined."""
        return [name for name in JOIN_FIELDS if getattr(self, name) is not None]

    @property
    def rewards_by_kind(self) -> dict[str, EventReward]:
        """Rewards by kind of event, plain numbers as ``EventReward``; empty unless ``reward`` is a table."""
        if not isinstance(self.reward, dict):
            return {}
        return {
            kind: event_reward if isinstance(event_reward, EventReward) else EventReward(event_reward)
            for kind, event_reward in self.reward.items()
        }

    def check(self) -> None:
        """Raise ConfigError, which names the field, if the whole map is inconsistent; return nothing.

        It also checks the rewards by kind, the tables ``shown`` and ``seen``, and the fields for joining.

        Raises
        ------
        ConfigError
        """
        if self.clicks is not None and self.items is not None:
            raise ConfigError("reward: clicks and items given; give one of them")
        if self.reward is None and self.clicks is None and self.items is None:
            raise ConfigError("reward: none given; give one of reward, clicks and items")
        if isinstance(self.reward, dict) and self.event is None:
            raise ConfigError('event: missing; [reward] tells by it: give the kind\'s field, event = "type"')
        if not isinstance(self.reward, dict) and self.event is not None:
            raise ConfigError(f"event: {self.event!r} is read for a table [reward] alone; use [where]")
        if self.time_unit is not None and self.time is None:
            raise ConfigError(f"time_unit: {self.time_unit!r} is of no field; give time, too")
        if self.reward == {}:
            raise ConfigError('reward: the table is empty; say what an event is worth: "click" = 1')
        for kind, event_reward in self.rewards_by_kind.items():
            event_reward.check(f"reward.{kind}")
        tables = {"where": self.where}
        tables |= {f"{name}.where": part.where for name in ("shown", "seen") if (part := getattr(self, name))}
        if self.seen is not None and not self.seen.where:
            raise ConfigError("seen.where: it is empty; say which events tell that something was looked at")
        for table, fields in tables.items():
            for field, allowed in fields.items():
                if allowed == []:
                    raise ConfigError(f"{table}.{field}: no value is allowed; give one at least")
        self._check_join()

    def check_live(self) -> None:
        """Raise ConfigError for what only past events may be: lists of another system, and divided events.

        Raises
        ------
        ConfigError
        """
        if self.shown is not None and self.shown.elsewhere and self.shown.items is not None:
            raise ConfigError("shown.items: a service takes no lists of another system; give --past")
        if self.each is not None:
            raise ConfigError(f"each: {self.each!r} is read with --past alone; send an event for each item")

    def _check_join(self) -> None:
        """Raise ConfigError if impressions, or the fields for joining events to them, are incomplete."""
        shown_map, join_fields = self.shown, self.join_fields
        if shown_map is not None:
            shown_map.check()
            if not shown_map.elsewhere and not join_fields:
                raise ConfigError(
                    "shown: it serves nothing; give key, user or arm to join, or elsewhere = true"
                )
            if not shown_map.elsewhere and shown_map.decision_id is None and self.decision_id is None:
                raise ConfigError("shown.decision_id: missing; name the field with the id of the decision")
        if self.decision_id is None and not join_fields:
            raise ConfigError("decision_id: missing; give it, or key, user or arm to join by, and [shown]")
        if not join_fields:
            return
        if shown_map is None or self.time is None:
            raise ConfigError(f"{join_fields[0]}: joins to what was shown before; give [shown] and time, too")
        for name in join_fields:
            if getattr(shown_map, name) is None and (name != "arm" or shown_map.items is None):
                raise ConfigError(f"shown.{name}: missing; events are joined by it")


# ---- Parsing TOML


def example_map(name: str) -> str:
    """Return the TOML text of the example map for events of a system such as ``segment``, from its file."""
    return (Path(__file__).parent / "examples" / f"{name}.toml").read_text(encoding="utf-8")


def load_map(path: Path) -> EventMap:
    """Read a TOML file and return its event map, which is checked.

    Raises
    ------
    ConfigError
        If the file cannot be read or is invalid; the message names the file and the key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = (
            "there is no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
        )
        remedy = "begin with one that tacit feed --example segment prints"
        raise ConfigError(f"{str(path)[:200]}: {reason[:300]}; {remedy}".replace("\0", "\\0")) from error
    try:
        return parse_map(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse_map(text: str) -> EventMap:
    """Parse the TOML text of an event map, check the map, and return it.

    Raises
    ------
    ConfigError
        If the text is not TOML, or the map is invalid or inconsistent.
    """
    try:
        table: Any = tomllib.loads(text)
        # Accept the form of a constant placement, { value = ... }, for the reward, too.
        if isinstance(reward := table.get("reward"), dict) and reward.keys() == {"value"}:
            table |= {} if "event" in table else {"reward": reward["value"]}
        event_map = msgspec.convert(table, EventMap)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(no_toml(error)) from error
    except msgspec.ValidationError as error:
        raise ConfigError(str(explain_error(error, table, EventMap))) from error
    event_map.check()
    return event_map
