"""From searches to sums: credit by a rule, per pair of rankers and per segment."""

# Searches come one after the other: ``Fold.add`` credits one by the rule, per pair and segment; ``_settle``
# adds what has gathered in one go; ``found`` is what all of them said so far, as sums.

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from tacit.core.arrays import Floats
from tacit.errors import InvalidValue
from tacit.evaluate.interleaved.searches import Search
from tacit.interleaving import CreditRule
from tacit.proof import PairSums

Pair = tuple[str, str]
AT_ONCE = 10_000


@dataclass
class PairTallies:
    """What searches said of each pair of rankers.

    Attributes
    ----------
    sums : dict
        Per pair, its names in ascending order: differences of credit.
    wins : dict
        Per pair the searches that the first one won, the second one won, and all others.
    """

    sums: dict[Pair, PairSums] = field(default_factory=dict)
    wins: dict[Pair, Floats] = field(default_factory=dict)

    def add(self, pair: Pair, differences: Sequence[float], units: Sequence[str]) -> None:
        """Add searches of a pair."""
        d = np.asarray(differences, np.float64)
        self.sums.setdefault(pair, PairSums.empty()).add(d, units)
        count = self.wins.setdefault(pair, np.zeros(3))
        count += np.array([(d > 0).sum(), (d < 0).sum(), (d == 0).sum()], np.float64)


@dataclass
class Folded:
    """All that a report of interleaved searches is computed from.

    Attributes
    ----------
    rankers : tuple of str
    tally : PairTallies
        Over all searches.
    segments : dict
        Per name of a segment and its value, the tally of its searches.
    places, leads : PairTallies
        For how many places each ranker had more than the other, and whose item stood first: both
        should be even.
    searches, clicked, alike : int
        How many there were, had an action that counts, and had equal lists.
    units : int
        Users or sessions.
    credited : Counter
        Actions that counted, by kind.
    uncredited : Counter
        Those that could not be, by reason.
    others : Counter
        Those of kinds that are worth nothing.
    methods : Counter
        By which methods lists were made.
    """

    rankers: tuple[str, ...] = ()
    tally: PairTallies = field(default_factory=PairTallies)
    segments: dict[str, dict[str, PairTallies]] = field(default_factory=dict)
    places: PairTallies = field(default_factory=PairTallies)
    leads: PairTallies = field(default_factory=PairTallies)
    searches: int = 0
    clicked: int = 0
    alike: int = 0
    units: int = 0
    credited: Counter[str] = field(default_factory=Counter)
    uncredited: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    methods: Counter[str] = field(default_factory=Counter)


class Fold:
    """Takes in searches one after the other, and says at any time what they said so far.

    Parameters
    ----------
    rule : CreditRule
    by : sequence of str
        The segments to tell apart.
    wins : bool, default False
        Whether a search counts 1 for its winner, in place of its difference of credit.
    depth : int, optional
        So many places from the top earn credit; by default all.
    most_units : float, default infinity
        So many units are counted, which are kept by name.
    """

    def __init__(
        self,
        rule: CreditRule,
        by: Sequence[str] = (),
        *,
        wins: bool = False,
        depth: int | None = None,
        most_units: float = math.inf,
    ) -> None:
        self._most_units = most_units
        self._rule, self._by, self._wins, self._depth = rule, by, wins, depth
        self._found = Folded()
        self._units: set[str] = set()
        self._waiting: dict[Any, tuple[list[float], list[str]]] = {}

    def add(self, search: Search) -> None:
        """Take in a search."""
        _count(self._found, search, self._rule, self._depth)
        if len(self._units) < self._most_units:
            self._units.add(search.unit)
        for key, difference in _differences(search, self._rule, self._by, self._wins, self._depth):
            amounts, whose = self._waiting.setdefault(key, ([], []))
            amounts.append(difference)
            whose.append(search.unit)
        if self._found.searches % AT_ONCE == 0:
            self._settle()

    def found(self, rankers: Sequence[str]) -> Folded:
        """Return the sums over all searches so far, of these rankers in this order."""
        self._settle()
        self._found.rankers = tuple(rankers)
        self._found.units = len(self._units)
        return self._found

    def _settle(self) -> None:
        for (where, *key), (amounts, units) in self._waiting.items():
            if where == "segments":
                name, value, pair = key
                tally = self._found.segments.setdefault(name, {}).setdefault(value, PairTallies())
            else:
                tally, (pair,) = getattr(self._found, where), key
            tally.add(pair, amounts, units)
        self._waiting = {}


def _count(found: Folded, search: Search, rule: CreditRule, depth: int | None) -> None:
    found.searches += 1
    found.methods[search.shown.method] += 1
    alike = search.alike
    found.alike += alike is True
    counts = False
    for action in search.actions:
        if rule.own is None and not rule.worth.get(action.kind):
            found.others[action.kind] += 1
        elif depth is None or action.position < depth:
            found.credited[action.kind] += 1
            counts = True
    found.clicked += counts


def _differences(
    search: Search, rule: CreditRule, by: Sequence[str], wins: bool, depth: int | None
) -> Iterable[tuple[Any, float]]:
    """Yield what a search adds, each with where it belongs."""
    actions = [a for a in search.actions if depth is None or a.position < depth]
    credits = rule.credits(search.shown, actions, search.rankings)
    teams = search.shown.memory.get("teams")
    teams = teams[:depth] if teams else None
    for first, second in combinations(range(len(search.rankers)), 2):
        if search.rankers[first] > search.rankers[second]:
            first, second = second, first
        pair = search.rankers[first], search.rankers[second]
        if pair[0] == pair[1]:
            continue
        # Rankers that agree on all that was shown cannot differ.
        difference = 0.0 if search.alike else credits[first] - credits[second]
        if wins:
            difference = float(np.sign(difference))
        yield ("tally", pair), difference
        for name in by:
            if name in search.segments:
                yield ("segments", name, search.segments[name], pair), difference
        if teams is not None and len(search.rankers) == 2:
            yield ("places", pair), float(teams.count(first) - teams.count(second))
            lead = next((team for team in teams if team is not None), None)
            yield ("leads", pair), float(lead == first) - float(lead == second)


def checked_rule(rule: CreditRule | None, searches: Iterable[Search]) -> CreditRule:
    """Return the rule to use.

    Raises
    ------
    InvalidValue
        If it asks for what no search has.
    """
    rule = CreditRule() if rule is None else rule
    if rule.distinct and any(search.rankings is None for search in searches):
        remedy = "give every search the rankings of both, for credit by distinctness"
        raise InvalidValue("rankings", None, remedy)
    return rule
