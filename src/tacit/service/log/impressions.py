"""What callers ask for and report, checked: impressions to decide for, clicks in a list."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from tacit.core import checks
from tacit.errors import InvalidValue
from tacit.interleaving.rules import CLICK
from tacit.learning.decisions import Arm
from tacit.service.log.rows import DecisionRow
from tacit.service.log.searches import without_unit

LONGEST_ID = 256

FeatureRows = Sequence[Sequence[float]]


class DecisionRequest(NamedTuple):
    """What a caller wants decided, as it came.

    Attributes
    ----------
    key : str
    arms : sequence of arms, optional
        Those on offer; by default all, or numbers from 0 where they are known by their features.
    context : sequence of float, optional
    id : str, optional
        The decision's.
    deferred : bool
        Whether it counts only once it is activated.
    relevance, examination : sequence of sequence of float, optional
        A row of features for each arm on offer, as the policy reads them.
    session : str, optional
        Whose visit it is, where signals are computed.
    user : str, optional
        Who it is, where that decides what belongs to the holdout.
    rankings : mapping, optional
        From every ranker's name to its list of items, best first; None for a pair alone.
    segments : mapping, optional
        What else is known of a search, by the names that its placement tells apart.
    """

    key: str
    arms: Sequence[Arm] | None = None
    context: Sequence[float] | None = None
    id: str | None = None
    deferred: bool = False
    relevance: FeatureRows | None = None
    examination: FeatureRows | None = None
    session: str | None = None
    user: str | None = None
    rankings: Mapping[str, Sequence[Arm]] | None = None
    segments: Mapping[str, str] | None = None


class Impression(NamedTuple):
    """What a caller wants decided; checked.

    Attributes
    ----------
    key, arms, context, id, deferred
        As in a :class:`DecisionRequest`.
    asked : str or None
        What else was said, as the log keeps it.
    given : object
        The same, as the placement uses it.
    unit : str or None
        The user or the session that stays in its group of a holdout.
    """

    key: str
    arms: Sequence[Arm] | None
    context: Sequence[float] | None
    id: str | None = None
    deferred: bool = False
    asked: str | None = None
    given: Any = None
    unit: str | None = None

    def asks_for(self, row: DecisionRow, context: str | None) -> bool:
        """Whether a decision answers this very impression; its context is as it was asked."""
        asked = self.key, as_json(self.arms), as_json(self.context), int(self.deferred), self.asked
        kept = row.key, row.offered, context, row.deferred, row.asked
        # Of somebody who was forgotten the log does not know any more whose it was.
        return kept in (asked, (*asked[:-1], without_unit(self.asked)))


class Made(NamedTuple):
    """How an impression was decided elsewhere.

    Attributes
    ----------
    arm : int or str
    propensity : float or None
        In (0, 1]; None where the policy is deterministic.
    epoch : int
        How often the key has restarted here.
    """

    arm: Arm
    propensity: float | None
    epoch: int = 0


class Clicks(NamedTuple):
    """What was clicked in a list, as a client reports it: positions from 0, or items.

    Another action than a click, such as a purchase, is named.
    """

    positions: Sequence[int] | None = None
    items: Sequence[Arm] | None = None
    action: str = CLICK


def checked_id(field: str, id: str) -> str:
    """Return an id that a client gave.

    Raises
    ------
    InvalidValue
        If it is empty, too long, or holds what cannot be stored or printed.
    """
    if not 0 < len(id) <= LONGEST_ID or not id.isprintable():
        raise InvalidValue(field, id, f"give 1 to {LONGEST_ID} printable characters")
    return id


def clicked_positions(clicks: Clicks, items: Sequence[Arm], actions: Collection[str] = ()) -> str:
    """Return clicked positions in a list of items as the log keeps them.

    Parameters
    ----------
    clicks : Clicks
    items : sequence of arms
    actions : collection of str
        Those that are known besides clicks.

    Raises
    ------
    InvalidValue
        If a position or an item is not in the list, or the action is not known.

    Examples
    --------
    >>> clicked_positions(Clicks(items=["c", "a"]), ["a", "b", "c"])
    '[0,2]'
    >>> clicked_positions(Clicks([1], action="purchase"), ["a", "b"], ["purchase"])
    '[{"position":1,"action":"purchase"}]'
    """
    if clicks.action != CLICK and clicks.action not in actions:
        known = ", ".join(dict.fromkeys([CLICK, *actions]))
        remedy = f"here there are {known}; a placement of duels names others by their worth"
        raise InvalidValue("action", clicks.action, remedy)
    positions = {
        checks.integer(f"clicks[{i}]", position, 0, len(items) - 1)
        for i, position in enumerate(clicks.positions or ())
    }
    places = {item: place for place, item in enumerate(items)}
    for i, item in enumerate(clicks.items or ()):
        if item not in places:
            raise InvalidValue(f"items[{i}]", item, f"the list that was shown is {list(items)}")
        positions.add(places[item])
    told: list[Any] = sorted(positions)
    if clicks.action != CLICK:
        told = [{"position": position, "action": clicks.action} for position in told]
    return msgspec.json.encode(told).decode()


def action_of(told: int | Mapping[str, Any]) -> tuple[int, str]:
    """Return the position and the action that one of :func:`clicked_positions` tells.

    Examples
    --------
    >>> action_of(3), action_of({"position": 1, "action": "purchase"})
    ((3, 'click'), (1, 'purchase'))
    """
    return (told, CLICK) if isinstance(told, int) else (told["position"], told["action"])


def clicks_in(told: Sequence[int | Mapping[str, Any]]) -> list[int]:
    """Return the positions that were clicked, without those of other actions."""
    return [one for one in told if isinstance(one, int)]


def as_json(values: Sequence[Arm] | Sequence[float] | None) -> str | None:
    """Return a list as the log keeps it."""
    return None if values is None else msgspec.json.encode(values).decode()
