"""Searches as tacit's own log of duels tells them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tacit.core import checks
from tacit.errors import InvalidValue
from tacit.evaluate.interleaved.searches import Search, number, text
from tacit.interleaving import Action, Interleaved, credited
from tacit.interleaving.base import ranking
from tacit.logs.ubi.records import CLICK


def own_search(record: Mapping[str, Any], where: str) -> Search:
    """Return the search that a row of tacit's own log tells; ``where`` names one without an id.

    Raises
    ------
    InvalidValue
        If it tells none.
    """
    rankers = text("left", record["left"]), text("right", record["right"])
    given = record.get("search") or record.get("decision_id")
    search = where if given is None else text("search", given)
    rankings = None
    if record.get("interleaved") is None:
        outcome = checks.number("outcome", number("outcome", record.get("outcome")), 0.0, 1.0)
        shown = Interleaved((0, 1), 2, "TeamDraft", {"teams": [0, 1]})
        actions = [Action(0, CLICK, outcome), Action(1, CLICK, 1.0 - outcome)]
    else:
        shown = Interleaved.from_dict(checks.parsed("interleaved", record["interleaved"]))
        if shown.rankers != 2:
            remedy = "give a list of two rankers"
            raise InvalidValue("interleaved.rankers", shown.rankers, remedy)
        clicks = checks.parsed("clicks", record.get("clicks"))
        if not isinstance(clicks, list):
            raise InvalidValue("clicks", clicks, "give a list of positions")
        actions = [_action(click, len(shown.items)) for click in clicks]
        # The method must know its list again.
        credited(shown, [action.position for action in actions])
        if record.get("rankings") is not None:
            rankings = _rankings(checks.parsed("rankings", record["rankings"]), rankers)
    return Search(search, search, {}, rankers, shown, actions, rankings)


def _action(click: Any, positions: int) -> Action:
    """Return a click as the log gives it: a position, or an object with its kind."""
    if isinstance(click, Mapping):
        place = checks.integer("clicks", click.get("position"), 0, positions - 1)
        kind = text("clicks.action", click.get("action", CLICK))
        return Action(place, kind, checks.number("clicks.amount", click.get("amount", 1.0), 0, 1e300))
    return Action(checks.integer("clicks", click, 0, positions - 1))


def _rankings(given: Any, rankers: Sequence[str]) -> tuple[Sequence[Any], ...]:
    if isinstance(given, Mapping):
        given = [given.get(name) for name in rankers]
    if not isinstance(given, list) or len(given) != 2 or not all(isinstance(g, list) for g in given):
        raise InvalidValue("rankings", given, "give the left and the right ranker's list")
    return tuple(ranking("rankings", each) for each in given)
