"""From single duels to a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tacit.core import checks
from tacit.errors import InvalidValue
from tacit.evaluate.duels.report import DuelReport
from tacit.interleaving import Interleaved, credited
from tacit.interleaving.rules import CLICK

Duel = tuple[str, str, float, int | None]
"""Left, right, outcome and, where it is known, the number of clicks."""


def counted(duels: Iterable[Duel], confidence: float) -> DuelReport:
    """Return the report of duels; those of a ranker with itself tell nothing.

    Raises
    ------
    InvalidValue
        If there are fewer than two rankers.
    """
    outcomes: dict[tuple[str, str], list[float]] = {}
    ties = unclicked = 0
    for left, right, outcome, clicks in duels:
        count = outcomes.setdefault((left, right), [0.0, 0.0])
        count[0] += 1.0
        count[1] += outcome
        if left != right:
            ties += outcome == 0.5
            unclicked += clicks == 0
    names = sorted({name for pair in outcomes for name in pair})
    places = {name: i for i, name in enumerate(names)}
    plays, scores = np.zeros((2, len(names), len(names)))
    for (left, right), (count_of_pair, score) in outcomes.items():
        if left != right:
            first, second = places[left], places[right]
            plays[first, second] += count_of_pair
            plays[second, first] += count_of_pair
            scores[first, second] += score
            scores[second, first] += count_of_pair - score
    return DuelReport(names, plays, scores, confidence, ties, unclicked)


def duel_of(cells: Mapping[str, Any]) -> Duel:
    """Return a row's rankers, outcome and number of clicks.

    Raises
    ------
    InvalidValue
        If it is no duel; names the column.
    """
    left, right = checks.name("left", cells["left"]), checks.name("right", cells["right"])
    clicks = cells.get("clicks")
    clicks = checks.parsed("clicks", clicks) if clicks is not None else None
    if clicks is not None and not isinstance(clicks, list):
        raise InvalidValue("clicks", clicks, "give a list of positions")
    if clicks is not None:
        # What else was done is for who counts credit.
        clicks = [_position(one) for one in clicks if _is_click(one)]
    outcome = cells.get("outcome")
    if outcome is None:
        if clicks is None:
            raise InvalidValue("outcome", None, "give it, or interleaved and clicks")
        shown = Interleaved.from_dict(checks.parsed("interleaved", cells.get("interleaved")))
        found = credited(shown, clicks)
        if shown.rankers != 2:
            raise InvalidValue("interleaved.rankers", shown.rankers, "give a list of two rankers")
        return left, right, found.chance, found.clicks
    outcome = checks.parsed("outcome", outcome)
    known = None if clicks is None else len(clicks)
    return left, right, checks.number("outcome", outcome, 0.0, 1.0), known


def _is_click(told: Any) -> bool:
    return not isinstance(told, Mapping) or told.get("action", CLICK) == CLICK


def _position(told: Any) -> Any:
    return told.get("position") if isinstance(told, Mapping) else told


def preferences(log: Sequence[tuple[str, str, float]], confidence: float = 0.95) -> DuelReport:
    """Estimate preferences from duels in memory.

    Parameters
    ----------
    log : sequence of (left, right, outcome)
        Names of the rankers, and 1 for the left one, 0 for the right one, 0.5 for a tie.
    confidence : float, default 0.95

    Raises
    ------
    InvalidValue
        If a duel is not of that form, or there are fewer than two rankers.

    Examples
    --------
    >>> preferences([("a", "b", 1.0)] * 30 + [("b", "a", 0.5)] * 2).winner
    'a'
    """
    return counted(
        (duel_of({"left": left, "right": right, "outcome": won}) for left, right, won in log), confidence
    )
