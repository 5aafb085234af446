"""What the client sends and reads where lists are shown: slates, duels of rankers, clicks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec

from tacit import checks
from tacit.client.messages import (
    Arm,
    Call,
    Impression,
    Recorded,
    as_list,
    call_to,
    checked_arm,
    complete,
    id_or_new,
    impression_body,
    numbers,
)
from tacit.errors import InvalidValue

LONGEST_LIST = 100_000


class Search(msgspec.Struct, frozen=True):
    """One of many searches for which rankers duel; see :meth:`tacit.client.Client.duel`.

    Attributes
    ----------
    rankings : mapping from str to sequence of int or str, optional
    key : str, default "all"
    context : sequence of float, optional
    decision_id : str, optional
    deferred : bool, default False
    """

    rankings: Mapping[str, Sequence[Arm]] | None = None
    key: str = "all"
    context: Sequence[float] | None = None
    decision_id: str | None = None
    deferred: bool = False


class Clicks(msgspec.Struct, frozen=True):
    """One of many lists and what was clicked; see :meth:`tacit.client.Client.clicks`.

    Attributes
    ----------
    decision_id : str
    clicks : sequence of int, optional
        Positions from 0; empty for none.
    items : sequence of int or str, optional
        In place of positions.
    feedback_id : str, optional
    """

    decision_id: str
    clicks: Sequence[int] | None = None
    items: Sequence[Arm] | None = None
    feedback_id: str | None = None


class WouldSlate(msgspec.Struct, frozen=True):
    """What another policy would have listed.

    Attributes
    ----------
    slate : list of int, str or None
    propensity : float or None
    """

    slate: list[Arm | None]
    propensity: float | None


class Listed(msgspec.Struct, frozen=True):
    """What to list.

    Attributes
    ----------
    decision_id : str
    slate : list of int, str or None
        The arm at each position; None where it stays empty.
    propensity : float or None
        Of this very list; None if it is not known.
    epoch : int
    durability : str
    would : WouldSlate or None
    """

    decision_id: str
    slate: list[Arm | None]
    propensity: float | None
    epoch: int
    durability: str
    would: WouldSlate | None = None


class WouldDuel(msgspec.Struct, frozen=True):
    """The pair that another policy would have let duel.

    Attributes
    ----------
    left, right : str
    propensity : float or None
    """

    left: str
    right: str
    propensity: float | None


class Dueled(msgspec.Struct, frozen=True):
    """Which rankers duel, and the list to show.

    Attributes
    ----------
    decision_id : str
    left, right : str
    propensity : float or None
        Of this pair; None if it is not known.
    epoch : int
    durability : str
    items : list of int or str, or None
        From the top; None where no rankings were given.
    teams : list of int or None, or None
        Whose each item is: 0 the left one's, 1 the right one's.
    probability : float or None
        Of this very list, given the pair.
    would : WouldDuel or None
    """

    decision_id: str
    left: str
    right: str
    propensity: float | None
    epoch: int
    durability: str
    items: list[Arm] | None = None
    teams: list[int | None] | None = None
    probability: float | None = None
    would: WouldDuel | None = None


class DuelsOfKey(msgspec.Struct, frozen=True):
    """A key and how many duels it had.

    Attributes
    ----------
    key : str
    duels : int
    """

    key: str
    duels: int


class Standings(msgspec.Struct, frozen=True):
    """What the duels of a key say.

    Attributes
    ----------
    key : str
    keys : list of DuelsOfKey
        Those with the most duels first.
    report : dict
        ``winner``, ``leader``, ``out``, ``safe_to_stop``, ``verdict``, ``estimate`` …
    """

    key: str
    keys: list[DuelsOfKey]
    report: dict[str, Any]


class _ListedMany(msgspec.Struct):
    decisions: list[Listed]


class _DueledMany(msgspec.Struct):
    decisions: list[Dueled]


class _RecordedMany(msgspec.Struct):
    feedback: list[Recorded]


_listed = msgspec.json.Decoder(Listed).decode
_dueled = msgspec.json.Decoder(Dueled).decode
_recorded = msgspec.json.Decoder(Recorded).decode
_standings = msgspec.json.Decoder(Standings).decode
_listed_many = msgspec.json.Decoder(_ListedMany).decode
_dueled_many = msgspec.json.Decoder(_DueledMany).decode
_recorded_many = msgspec.json.Decoder(_RecordedMany).decode


def slate(placement: str, impression: Impression) -> Call[Listed]:
    """Return the call for one list, with an id if it has none."""
    return call_to(placement, "slate", impression_body("", impression), _listed)


def slate_many(placement: str, impressions: Iterable[Impression]) -> Call[list[Listed]]:
    """Return the call for many lists, each with an id."""
    asked = [impression_body(f"decisions[{i}]", one) for i, one in enumerate(impressions)]

    def read(body: bytes) -> list[Listed]:
        return complete(_listed_many(body).decisions, len(asked))

    return call_to(placement, "slate/batch", {"decisions": asked}, read)


def duel(placement: str, search: Search) -> Call[Dueled]:
    """Return the call for one duel, with an id if it has none."""
    return call_to(placement, "duel", _search("", search), _dueled)


def duel_many(placement: str, searches: Iterable[Search]) -> Call[list[Dueled]]:
    """Return the call for many duels, each with an id."""
    asked = [_search(f"decisions[{i}]", one) for i, one in enumerate(searches)]

    def read(body: bytes) -> list[Dueled]:
        return complete(_dueled_many(body).decisions, len(asked))

    return call_to(placement, "duel/batch", {"decisions": asked}, read)


def clicks(placement: str, told: Clicks) -> Call[Recorded]:
    """Return the call for what was clicked in one list, with an id if it has none."""
    return call_to(placement, "clicks", _clicks("", told), _recorded)


def clicks_many(placement: str, told: Iterable[Clicks]) -> Call[list[Recorded]]:
    """Return the call for what was clicked in many lists, each with an id."""
    bodies = [_clicks(f"feedback[{i}]", one) for i, one in enumerate(told)]

    def read(body: bytes) -> list[Recorded]:
        return complete(_recorded_many(body).feedback, len(bodies))

    return call_to(placement, "clicks/batch", {"feedback": bodies}, read)


def standings(placement: str, key: str | None, confidence: float) -> Call[Standings]:
    """Return the call for what the duels of a key say."""
    asked: dict[str, Any] = {"confidence": checks.number("confidence", confidence, 0.0, 1.0)}
    if key is not None:
        asked["key"] = checks.name("key", key)
    return call_to(placement, f"duels?{urlencode(asked)}", None, _standings)


def _search(place: str, given: Search) -> dict[str, Any]:
    if not isinstance(given, Search):
        raise InvalidValue(place, given, "give a tacit.client.Search")
    dot = f"{place}." if place else ""
    body: dict[str, Any] = {
        "key": checks.name(f"{dot}key", given.key),
        "decision_id": id_or_new(f"{dot}decision_id", given.decision_id),
        "deferred": checks.flag(f"{dot}deferred", given.deferred),
    }
    if given.rankings is not None:
        if not isinstance(given.rankings, Mapping):
            raise InvalidValue(f"{dot}rankings", given.rankings, "give each ranker's list")
        body["rankings"] = {
            checks.name(f"{dot}rankings", ranker): [
                checked_arm(f"{dot}rankings.{ranker}[{i}]", item)
                for i, item in enumerate(as_list(f"{dot}rankings.{ranker}", items))
            ]
            for ranker, items in given.rankings.items()
        }
    if given.context is not None:
        body["context"] = numbers(f"{dot}context", given.context)
    return body


def _clicks(place: str, told: Clicks) -> dict[str, Any]:
    if not isinstance(told, Clicks):
        raise InvalidValue(place, told, "give a tacit.client.Clicks")
    dot = f"{place}." if place else ""
    if (told.clicks is None) == (told.items is None):
        raise InvalidValue(f"{dot}clicks", told.clicks, "give clicks, or items in place of them")
    body: dict[str, Any] = {
        "decision_id": checks.name(f"{dot}decision_id", told.decision_id),
        "feedback_id": id_or_new(f"{dot}feedback_id", told.feedback_id),
    }
    if told.clicks is not None:
        body["clicks"] = [
            checks.integer(f"{dot}clicks[{i}]", position, 0, LONGEST_LIST)
            for i, position in enumerate(as_list(f"{dot}clicks", told.clicks))
        ]
    if told.items is not None:
        body["items"] = [
            checked_arm(f"{dot}items[{i}]", item)
            for i, item in enumerate(as_list(f"{dot}items", told.items))
        ]
    return body
