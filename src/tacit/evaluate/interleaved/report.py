"""Sums of credit over interleaved searches, and the report on rankers: preferences, segments, a figure."""

# 1. ``SearchAccumulator``: credits searches one by one, per pair of rankers and segment;
#    ``_settle`` adds pending differences in one batch; ``compute_sums`` returns the sums so far.
# 2. ``Comparison`` and ``Segment``: the comparison of two rankers over all searches and by segment.
# 3. ``InterleavedReport``: preferences valid at any time, segments with a bounded false discovery rate,
#    warnings, the verdict.
# 4. Formatting of tables and the figure.

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats
from tacit.core.text import Column, Tabulated, format_table
from tacit.errors import InvalidValue, suggest_name
from tacit.evaluate.interleaved.searches import REASONS, Search
from tacit.interleaving import CreditRule
from tacit.plots import COLOURS, EstimateRow, Plot, draw_estimates
from tacit.uplift import Interval, Lift, PairSums, chance_of_score, discoveries, preference
from tacit.uplift.boundary import ANY_TIME, searches_needed
from tacit.uplift.sentences import ANY_TIME as WHENEVER

Pair = tuple[str, str]
BATCH_SIZE = 10_000


@dataclass
class PairTallies:
    """Sums over searches for each pair of rankers.

    Attributes
    ----------
    sums : dict
        From each pair, with its names sorted, to the sums of its differences of credit.
    wins : dict
        From each pair to the number of searches that the first ranker won, the second one won, and ties.
    """

    sums: dict[Pair, PairSums] = field(default_factory=dict)
    wins: dict[Pair, Floats] = field(default_factory=dict)

    def add(self, pair: Pair, differences: Sequence[float], units: Sequence[str]) -> None:
        """Add differences of credit of a pair of rankers to its sums and counts of wins.

        ``units`` has the user or session of each difference.
        """
        d = np.asarray(differences, np.float64)
        self.sums.setdefault(pair, PairSums.empty()).add(d, units)
        count = self.wins.setdefault(pair, np.zeros(3))
        count += np.array([(d > 0).sum(), (d < 0).sum(), (d == 0).sum()], np.float64)


@dataclass
class SearchSums:
    """Sums over interleaved searches, from which a report is computed.

    Attributes
    ----------
    rankers : tuple of str
    tally : PairTallies
        Over all searches.
    segments : dict
        From names of segments to their values to the tallies of their searches.
    places, leads : PairTallies
        Differences of the number of positions that each ranker had, and of having the first one: both
        have mean 0 under a fair draft.
    searches, clicked, equal_lists : int
        Number of searches, of searches with a credited action, and of searches with equal rankings.
    units : int
        Number of users or sessions.
    credited : Counter
        Number of credited actions, by kind.
    uncredited : Counter
        Number of actions that could not be credited, by reason.
    worthless : Counter
        Number of actions without credit under the rule, by kind.
    methods : Counter
        Number of lists, by interleaving method.
    """

    rankers: tuple[str, ...] = ()
    tally: PairTallies = field(default_factory=PairTallies)
    segments: dict[str, dict[str, PairTallies]] = field(default_factory=dict)
    places: PairTallies = field(default_factory=PairTallies)
    leads: PairTallies = field(default_factory=PairTallies)
    searches: int = 0
    clicked: int = 0
    equal_lists: int = 0
    units: int = 0
    credited: Counter[str] = field(default_factory=Counter)
    uncredited: Counter[str] = field(default_factory=Counter)
    worthless: Counter[str] = field(default_factory=Counter)
    methods: Counter[str] = field(default_factory=Counter)


class SearchAccumulator:
    """Accumulates searches one by one; the sums so far are available at any time.

    Parameters
    ----------
    rule : CreditRule
    by : sequence of str
        Names of the segments.
    wins : bool, default False
        Whether a search counts 1 for its winner, in place of its difference of credit.
    depth : int, optional
        Number of positions from the top that earn credit; by default all.
    most_units : float, default infinity
        Most units that are counted; their names are held in memory.
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
        """Store the options and start with no searches."""
        self._most_units = most_units
        self._rule, self._by, self._wins, self._depth = rule, by, wins, depth
        self._sums = SearchSums()
        self._units: set[str] = set()
        self._pending: dict[Any, tuple[list[float], list[str]]] = {}

    def add(self, search: Search) -> None:
        """Add one search: count it, its actions and unit, and its differences of credit between rankers.

        Differences are collected, and added to the tallies after every 10,000 searches.
        """
        _count_search(self._sums, search, self._rule, self._depth)
        if len(self._units) < self._most_units:
            self._units.add(search.unit)
        for key, difference in _list_differences(search, self._rule, self._by, self._wins, self._depth):
            amounts, units = self._pending.setdefault(key, ([], []))
            amounts.append(difference)
            units.append(search.unit)
        if self._sums.searches % BATCH_SIZE == 0:
            self._settle()

    def compute_sums(self, rankers: Sequence[str]) -> SearchSums:
        """Return the sums over all searches so far; ``rankers`` become their names, in this order.

        It is the accumulator's own object, which later searches change.
        """
        self._settle()
        self._sums.rankers = tuple(rankers)
        self._sums.units = len(self._units)
        return self._sums

    def _settle(self) -> None:
        """Add all pending differences to the tallies, and empty the list of them."""
        for (where, *key), (amounts, units) in self._pending.items():
            if where == "segments":
                name, value, pair = key
                tally = self._sums.segments.setdefault(name, {}).setdefault(value, PairTallies())
            else:
                tally, (pair,) = getattr(self._sums, where), key
            tally.add(pair, amounts, units)
        self._pending = {}


def _count_search(sums: SearchSums, search: Search, rule: CreditRule, depth: int | None) -> None:
    """Add a search to the counts of searches, interleaving methods, equal lists, and actions by kind.

    An action of a kind to which the rule gives no credit is counted in ``worthless``; any other one is
    counted in ``credited``, unless its position is beyond ``depth``.
    """
    sums.searches += 1
    sums.methods[search.shown.method] += 1
    sums.equal_lists += search.has_equal_rankings is True
    is_credited = False
    for action in search.actions:
        if rule.own is None and not rule.worth.get(action.kind):
            sums.worthless[action.kind] += 1
        elif depth is None or action.position < depth:
            sums.credited[action.kind] += 1
            is_credited = True
    sums.clicked += is_credited


def _list_differences(
    search: Search, rule: CreditRule, by: Sequence[str], wins: bool, depth: int | None
) -> Iterable[tuple[Any, float]]:
    """Yield, for each tally that a search adds to, the key of the tally and a difference between two rankers.

    The differences are of credit (its sign with ``wins``), in total and in each segment, and, for two
    rankers, of the number of positions and of having the first position. Only the first ``depth`` positions
    count.
    """
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
        # Equal rankings cannot earn different credit.
        difference = 0.0 if search.has_equal_rankings else credits[first] - credits[second]
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


def check_rule(rule: CreditRule | None, searches: Iterable[Search]) -> CreditRule:
    """Return the rule if it fits the searches; None becomes the default: 1 for a click.

    Raises
    ------
    InvalidValue
        If it credits actions that no search has, or needs rankings and a search has none.
    """
    if rule is None:
        rule = CreditRule()
    elif rule.own is None:
        _refuse_missing_actions(rule, {action.kind for search in searches for action in search.actions})
    if rule.distinct and any(search.rankings is None for search in searches):
        remedy = "give every search the rankings of both, for credit by distinctness"
        raise InvalidValue("rankings", None, remedy)
    return rule


def _refuse_missing_actions(rule: CreditRule, kinds: set[str]) -> None:
    """Raise InvalidValue if the rule credits an action that no search has, probably by mistake.

    That is so if its name is close to an existing one, or none of the rule's actions exists. ``kinds`` are
    the actions that exist in the searches.
    """
    missing = [kind for kind in rule.worth if kind not in kinds]
    uncredited = kinds - set(rule.worth)
    for kind in missing:
        near = suggest_name(kind, uncredited)
        if near or (uncredited and len(missing) == len(rule.worth)):
            remedy = f"no search has such an action{near}; there are {', '.join(sorted(kinds))}"
            raise InvalidValue(f"worth.{kind}", rule.worth[kind], remedy)


# ---- The report: preferences, segments, warnings, and the verdict

UNEVEN = 0.01
"""Difference in positions per search above which a draft is reported as uneven."""
UNTRUSTED = "Do not trust this"

COLUMNS = (
    Column("searches", "{searches:,}"),
    Column("won", "{won:,}"),
    Column("lost", "{lost:,}"),
    Column("credit per search", "{said}"),
    Column("between", "{low:+.4f} and {high:+.4f}", ""),
    Column("p", "{p}", ""),
)


class Comparison(NamedTuple):
    """The comparison of two rankers.

    Attributes
    ----------
    first, second : str
    searches : int
    won, lost : int
        Number of searches on which the first one earned more, and less.
    lift : Lift
        The first one's credit per search minus the second's, valid at any time.
    chance : float
        The p-value, valid at any time.
    dispersion : float
        Variance of the mean, relative to independent searches.
    needed : int or None
        Number of additional searches until the difference is shown with a power of 0.8, at the present
        estimate; 0 if it is shown, None if unknown.
    """

    first: str
    second: str
    searches: int
    won: int
    lost: int
    lift: Lift
    chance: float
    dispersion: float
    needed: int | None

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON data."""
        return {**self._asdict(), "lift": self.lift.as_dict()}

    def row(self) -> dict[str, Any]:
        """Return the comparison as a flat dict, with claim, difference, low and high of the lift.

        The latter three are None if there is too little data.
        """
        record = self._asdict() | {"lift": self.lift.claim}
        ends = self.lift.difference or (None, None, None)
        return record | dict(zip(("difference", "low", "high"), ends, strict=True))

    def texts(self) -> dict[str, Any]:
        """Return the dict of :meth:`row` with ``said`` and ``p``: difference and p-value as text."""
        if self.lift.difference is None:
            return self.row() | {"said": "too early" if self.won + self.lost else "none so far", "p": None}
        p = "<0.0001" if self.chance < 1e-4 else f"{self.chance:.4f}"
        return self.row() | {"said": f"{self.lift.difference.estimate:+.4f}", "p": p}


class Segment(NamedTuple):
    """The comparison of two rankers in one segment, where ``name`` has ``value``.

    ``found`` is True if the rankers differ significantly in it.
    """

    name: str
    value: str
    comparison: Comparison
    found: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the segment and its comparison as JSON data."""
        return {**self._asdict(), "comparison": self.comparison.as_dict()}

    def texts(self) -> dict[str, Any]:
        """Return :meth:`Comparison.texts` with the segment, and "yes" if the rankers differ there."""
        differs = "yes" if self.found else ""
        return {"name": self.name, "value": self.value, **self.comparison.texts(), "differs": differs}


@dataclass(frozen=True, repr=False)
class InterleavedReport(Tabulated, Plot):
    """Preferences between rankers, from searches that showed interleaved lists.

    You may look at it at any time and stop when it has a verdict: with probability ``confidence``
    no verdict is ever wrong, even if searches of a user are correlated. This holds
    asymptotically, for many users; with few users there is no verdict.

    Parameters
    ----------
    sums : SearchSums
    confidence : float, default 0.95
        0.9, 0.95 or 0.99.
    false_share : float, default 0.05
        False discovery rate among the segments reported as different.

    Raises
    ------
    InvalidValue
        If a value is out of its range, or there are fewer than two rankers.
    """

    sums: SearchSums
    confidence: float = 0.95
    false_share: float = 0.05

    def __post_init__(self) -> None:
        """Validate the options; raise InvalidValue for one out of its range or fewer than two rankers."""
        if self.confidence not in ANY_TIME:
            raise InvalidValue("confidence", self.confidence, f"give one of {list(ANY_TIME)}")
        checks.number("false_share", self.false_share, 0.0, 1.0, open_low=True)
        if len(self.rankers) < 2 or not self.sums.tally.sums:
            raise InvalidValue("rankers", self.rankers, "give searches of two or more")

    @property
    def rankers(self) -> tuple[str, ...]:
        """The rankers' names."""
        return self.sums.rankers

    def compare(self, first: str, second: str, tally: PairTallies | None = None) -> Comparison:
        """Return the comparison of two rankers from a tally, by default that over all searches.

        Over all searches, the intervals of a ranker against all others hold simultaneously.
        """
        tallies = self.sums.tally if tally is None else tally
        is_swapped = (first, second) not in tallies.sums
        pair: Pair = (second, first) if is_swapped else (first, second)
        sums = tallies.sums.get(pair, PairSums.empty())
        won, lost, _ = tallies.wins.get(pair, [0, 0, 0])
        if is_swapped:
            sums, won, lost = sums.swap_sides(), lost, won
        # The winner must beat every other ranker, so these comparisons hold simultaneously.
        comparisons = 1 if tally is not None else len(self.rankers) - 1
        lift = preference(sums, self.confidence, comparisons)
        return Comparison(
            first,
            second,
            int(sums.searches),
            int(won),
            int(lost),
            lift,
            chance_of_score(float(sums.score)),
            float(sums.dispersion),
            _count_missing_searches(sums, lift, comparisons),
        )

    @cached_property
    def leader(self) -> str:
        """The ranker that beats most others by estimate; among equals, the one of the largest total lead."""
        return max(self.rankers, key=lambda name: self._compute_standing(name))

    def _compute_standing(self, name: str) -> tuple[float, float]:
        """Return how many rankers ``name`` beats by estimate, and its total difference of credit to all."""
        estimates = [self._estimate_difference(name, ranker) for ranker in self.rankers if ranker != name]
        return sum(estimate > 0 for estimate in estimates), sum(estimates)

    def _estimate_difference(self, first: str, second: str) -> float:
        """Return the first ranker's mean credit per search minus the second's; 0 without common searches."""
        sums = self.sums.tally.sums
        if (first, second) in sums:
            return float(sums[first, second].mean)
        return -float(sums[second, first].mean) if (second, first) in sums else 0.0

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """The comparisons of the leader with each other ranker, the closest one first."""
        rivals = [name for name in self.rankers if name != self.leader]
        return [
            self.compare(self.leader, rival)
            for rival in sorted(rivals, key=lambda name: self._estimate_difference(self.leader, name))
        ]

    @property
    def winner(self) -> str | None:
        """The ranker that is significantly better than every other one, or None."""
        beats_all = all(comparison.lift.claim == "better" for comparison in self.comparisons)
        return self.leader if beats_all else None

    @cached_property
    def segments(self) -> list[Segment]:
        """The comparison of the leader with its closest rival in each segment, and whether they differ there.

        The false discovery rate of differences is at most ``false_share``.
        """
        rival = self.comparisons[0].second
        segments = []
        for name, values in self.sums.segments.items():
            tallies = sorted(values.items())
            compared = [(value, self.compare(self.leader, rival, tally)) for value, tally in tallies]
            is_different = discoveries([comparison.chance for _, comparison in compared], self.false_share)
            segments += [
                Segment(name, *result, differs)
                for result, differs in zip(compared, is_different, strict=True)
            ]
        return segments

    @cached_property
    def warnings(self) -> list[str]:
        """Sentences on why not to trust the verdict: an uneven draft, or Balanced interleaving."""
        messages = []
        for share, tally in (("places", self.sums.places), ("first places", self.sums.leads)):
            for pair, sums in tally.sums.items():
                lift = preference(sums, 0.99, 2 * len(tally.sums))
                if lift.difference is None or lift.claim == "undecided":
                    continue
                if abs(lift.difference.estimate) < UNEVEN:
                    continue
                more, less = pair if lift.claim == "better" else pair[::-1]
                messages.append(
                    f"{UNTRUSTED}: {more} has more {share} than {less}, by "
                    f"{abs(lift.difference.estimate):.2g} a search. A fair draft gives both the same; where "
                    "one list is shorter, give a depth that both reach."
                )
        if self.sums.methods.keys() & {"Balanced"}:
            messages.append(
                "Balanced interleaving can favour a ranker under random clicks; see DebiasedBalanced."
            )
        return messages

    @property
    def early(self) -> bool:
        """True if there are too few searches or users for any claim about the leader."""
        claims = {comparison.lift.claim for comparison in self.comparisons} - {"better"}
        return self.winner is None and claims == {"early"}

    @property
    def verdict(self) -> str:
        """A sentence for the user: the winner with its interval, or why there is none yet."""
        if any(message.startswith(UNTRUSTED) for message in self.warnings):
            return f"No verdict: {self.leader} leads, but the draft was uneven. Mend it, and begin anew."
        if self.winner is not None:
            closest = self.comparisons[0]
            assert closest.lift.difference is not None
            return (
                f"{self.winner} is preferred to {_join_rankers(self.comparisons)}: "
                f"{_interval_text(closest.lift.difference)} more credit per search"
                f"{'' if len(self.rankers) == 2 else f' than {closest.second}, its closest rival'}."
                f" {WHENEVER}"
            )
        if any(pair.lift.claim == "worse" for pair in self.comparisons):
            return "No ranker is better than all others: they beat one another in a circle."
        undecided = [pair for pair in self.comparisons if pair.lift.claim != "better"]
        if self.early:
            worthless = self.sums.worthless
            if worthless and not self.sums.credited:
                counts_text = _join_counts(worthless)
                return f"Too early: no action counts so far, as these are worth nothing: {counts_text}."
            return "Too early: too few clicks, or too few users, tell the rankers apart."
        hardest = max((pair.needed or math.inf for pair in undecided), default=math.inf)
        go_on = f"No difference shown yet between {self.leader} and {_join_rankers(undecided)}."
        if math.isinf(hardest):
            return go_on
        return (
            f"{go_on} Some {_round_count(int(hardest))} more searches would show it (4 times in 5), if "
            "the estimate is right."
        )

    def as_dict(self) -> dict[str, Any]:
        """Return counts, comparisons, segments, warnings and the verdict as JSON data."""
        sums = self.sums
        return {
            "rankers": list(self.rankers),
            "confidence": self.confidence,
            "searches": sums.searches,
            "units": sums.units,
            "clicked": sums.clicked,
            "alike": sums.equal_lists,
            "credited": dict(sums.credited),
            "uncredited": dict(sums.uncredited),
            "others": dict(sums.worthless),
            "leader": self.leader,
            "winner": self.winner,
            "comparisons": [entry.as_dict() for entry in self.comparisons],
            "segments": [entry.as_dict() for entry in self.segments],
            "warnings": list(self.warnings),
            "verdict": self.verdict,
        }

    def records(self) -> list[dict[str, Any]]:
        """Return one flat dict per comparison, of all searches and then of each segment."""
        all_searches = [{"segment": None, "value": None, **entry.row()} for entry in self.comparisons]
        rows = ({"segment": x.name, "value": x.value, **x.comparison.row()} for x in self.segments)
        return [*all_searches, *rows]

    def summary(self) -> str:
        """Return counts, comparisons, segments, warnings and the verdict as text."""
        rows = [entry.texts() for entry in self.comparisons]
        against = Column(f"{self.leader} against", "{second}")
        parts = [
            self._format_counts(),
            format_table(rows, [against, *COLUMNS, Column("missing", "{needed:,}", "?")]),
        ]
        if self.segments:
            head = f"{self.leader} against {self.comparisons[0].second}"
            rows = [entry.texts() for entry in self.segments]
            columns = [Column(head, "{name} {value}"), *COLUMNS, Column("differs", "{differs}")]
            parts.append(format_table(rows, columns))
            parts.append(
                f"Segments marked differ surely; at most {self.false_share:.0%} of such marks are "
                "wrong, on average."
            )
        return "\n\n".join([*parts, *self.warnings, self.verdict])

    def _format_counts(self) -> str:
        """Return text lines with the numbers of searches, users, credited and other actions."""
        sums = self.sums
        lines = [
            f"{sums.searches:,} searches of {sums.units:,} units, {sums.clicked:,} with an action "
            f"that counts, {sums.equal_lists:,} on which the lists are known to be equal"
        ]
        if sums.credited:
            lines.append("credited: " + _join_counts(sums.credited))
        if sums.worthless:
            lines.append("worth nothing: " + _join_counts(sums.worthless))
        for reason, count in sorted(sums.uncredited.items()):
            lines.append(f"cannot be credited: {count:,} {REASONS[reason]}")
        return "\n".join(lines)

    @property
    def height(self) -> float:
        """Height of the figure in inches, by the number of comparisons."""
        return 1.7 + 0.3 * (len(self.comparisons) + len(self.segments))

    def draw(self, ax: Any) -> None:
        """Draw the leader's comparisons with the other rankers on axes, and the segments below."""
        rows = [(entry.second, entry.lift, True) for entry in self.comparisons]
        rows += [(f"{part.name} {part.value}", part.comparison.lift, part.found) for part in self.segments]
        if self.segments:
            ax.axhline(len(self.segments) - 0.5, color="0.8", lw=0.8)
        draw_estimates(ax, [_make_row(*row) for row in reversed(rows)], 0.0)
        ax.set_xlabel(f"credit per search of {self.leader} minus the other's")
        ax.set_title(
            f"{self.confidence:.0%} intervals that hold at any time; grey: no difference shown", size=9
        )


def _make_row(name: str, lift: Lift, is_reported: bool) -> EstimateRow:
    """Return a row of the figure: the estimate and interval of one comparison, or no estimate if too early.

    It is coloured if the lift is significant, else grey; always grey without ``is_reported``, which is False
    for a segment that is not reported as different at the false discovery rate.
    """
    if lift.difference is None:
        return EstimateRow(name, None)
    estimate, low, high = lift.difference
    colour = COLOURS[0] if is_reported and lift.claim in ("better", "worse") else COLOURS[7]
    bar = {"color": colour, "lw": 2.5, "solid_capstyle": "butt"}
    return EstimateRow(name, estimate, [((low, high), bar)], {"color": colour, "ms": 5})


def _count_missing_searches(sums: PairSums, lift: Lift, comparisons: int) -> int | None:
    """Return how many more searches would show a difference; 0 if it is shown, None if it cannot be known.

    It assumes the present estimate and a power of 0.8. None with too little data, or an estimate of 0. The
    difference, with its ``lift``, is one of ``comparisons`` that are shown simultaneously.
    """
    if lift.claim in ("better", "worse"):
        return 0
    mean, n = float(sums.mean), float(sums.searches)
    if lift.difference is None or mean == 0:
        return None
    deviation = float(sums.error) * math.sqrt(n)
    return max(1, math.ceil(searches_needed(mean, deviation, comparisons=comparisons) - n))


def _interval_text(interval: Interval) -> str:
    """Return an estimate with its bounds as text."""
    estimate, low, high = interval
    return f"{estimate:.3g} (between {low:.3g} and {high:.3g})"


def _join_rankers(comparisons: Sequence[Comparison]) -> str:
    """Return the second rankers of comparisons as text, "a, b and c"."""
    names = [comparison.second for comparison in comparisons]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _round_count(count: int) -> str:
    """Return a count as text, rounded to two significant digits."""
    digits = max(0, len(str(count)) - 2)
    return f"{round(count, -digits):,}"


def _join_counts(counts: Any) -> str:
    """Return counts by kind as text, "3 cart, 12 click"."""
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
