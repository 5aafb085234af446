"""Base of the interleaving methods: combine rankings into one list, and turn its clicks into credit."""

# 1. ``Credit``: the credit that clicks give to rankers.
# 2. ``Interleaved``: the list to show, with the memory that its method needs for credit.
# 3. ``InterleavingMethod``: a subclass defines how lists are built, which lists are possible, and how clicks
#    are credited.
# 4. Rankings: check them, complete a list from them, look up the rank of each item.

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from numbers import Integral
from types import NoneType
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Generator
from tacit.core.part import Checked, int_range
from tacit.errors import AssumptionWarning, InvalidValue, with_suggestions

Item = str | int
"""The id of a ranked item."""
Rankings = Sequence[Sequence[Item]]
Ranked = tuple[tuple[Item, ...], ...]
"""Validated rankings."""

LONGEST = 100
MANY = 10_000
MAX_REPEATS = 20
"""After this many lists from the same generator state, warn."""


class Credit(NamedTuple):
    """Credit of each ranker for the clicks on one list.

    Attributes
    ----------
    credits : tuple of float
        Credit per ranker, in the order of the rankings; its unit depends on the method.
    clicks : int
        Number of different positions that were clicked; 0 distinguishes a tie without clicks from other ties.
    chance : float
        In a duel, the probability in [0, 1] that the left ranker won: 1, 0, or 0.5 for a tie, and
        between where the method weighs several explanations of the clicks. NaN if there are more
        than two rankers; see :meth:`duel`.

    Examples
    --------
    >>> credit = Credit((2.0, 1.0, 1.0), clicks=4)
    >>> credit.duel(0, 1), credit.duel(1, 2), credit.duel(2, 0)
    (1.0, 0.5, 0.0)
    """

    credits: tuple[float, ...]
    clicks: int
    chance: float = float("nan")

    @property
    def outcome(self) -> float:
        """Outcome of a duel: 1 if the left ranker is likelier to have won, 0 if the right one is, else 0.5.

        This rounds ``chance``. If ``chance`` is neither 0, 0.5 nor 1, the rounded outcome can favour a ranker
        even under random clicks: policies should learn from :meth:`draw_outcome`.
        """
        return 0.5 if abs(self.chance - 0.5) < TIE else float(self.chance > 0.5)

    @with_suggestions
    def draw_outcome(self, rng: Generator, ties: str = "coin") -> float | None:
        """Draw the outcome of a duel from ``chance``: 1.0 if the left ranker wins, 0.0 if the right one does.

        A tie can give 0.5 or None.

        Parameters
        ----------
        rng : Generator
        ties : {"coin", "keep", "again"}
            How to treat a tie. ``coin``: a fair coin decides, which keeps outcomes binary and
            shrinks every preference by the share of ties. ``keep``: return 0.5. ``again``: return None,
            for no duel, so that the pair is shown again; this costs impressions, distorts preferences
            where pairs tie unequally often, and never ends for identical rankings.

        Raises
        ------
        InvalidValue
            If ``ties`` is something else.
        """
        check_rng(rng)
        if ties not in TIES:
            raise InvalidValue("ties", ties, f"give one of {', '.join(TIES)}")
        if ties != "coin" and self.outcome == 0.5:
            return 0.5 if ties == "keep" else None
        return float(rng.random() < self.chance)

    def duel(self, left: int, right: int) -> float:
        """Compare the credits of two rankers, by index: 1 if ``left`` has more, 0 if less, 0.5 if equal."""
        return duel_outcome(self.credits[left] - self.credits[right])


def check_rng(rng: Any) -> Generator:
    """Return ``rng`` if it is a NumPy generator, else raise InvalidValue.

    Raises
    ------
    InvalidValue
        If it is not.
    """
    if not isinstance(rng, np.random.Generator):
        raise InvalidValue("rng", rng, "give a generator, such as np.random.default_rng(1)")
    return rng


TIE = 1e-9
TIES = ("coin", "keep", "again")


def duel_outcome(difference: float) -> float:
    """Return 1, 0 or 0.5 for a difference of credits above, below or equal to zero."""
    return 0.5 if abs(difference) < TIE else float(difference > 0)


def _check_clicks(items: Sequence[Item], clicks: Any) -> list[int]:
    """Return the clicked positions of a list of items in ascending order, each once.

    Raise InvalidValue unless ``clicks`` are positions of the list. Warn if they seem to be a 0 or 1 for each
    position.
    """
    last = len(items) - 1
    # isinstance() with an abstract class would take most of the time.
    if type(clicks) is not list or not set(map(type, clicks)) <= {int}:
        item_names = list(clicks) if isinstance(clicks, Sequence) and not isinstance(clicks, str) else []
        item_names = [entry for entry in item_names if isinstance(entry, str)]
        if isinstance(clicks, Sequence) and set(map(type, clicks)) == {bool}:
            clicked = [place for place, flag in enumerate(clicks) if flag]
            raise InvalidValue("clicks", clicks, f"give the positions of those clicked: {clicked}")
        if not isinstance(clicks, Iterable) or isinstance(clicks, str) or item_names:
            is_item = item_names and item_names[0] in items
            suggestion = f" (did you mean [{items.index(item_names[0])}]?)" if is_item else ""
            raise InvalidValue("clicks", clicks, f"give a list of positions, from 0{suggestion}")
    places = list(clicks)
    if len(places) == last + 1 and {0} <= set(places) <= {0, 1} and last > 1:
        reading = "the positions 0 and 1" if any(places) else "position 0"
        remedy = "if it says 1 where there was a click, give the positions of these"
        warnings.warn(f"clicks: {clicks} reads as {reading}; {remedy}", AssumptionWarning, stacklevel=4)
    return sorted({checks.integer("clicks", click, 0, last) for click in places})


def make_duel_credit(credits: Iterable[float], clicks: int) -> Credit:
    """Return the credit of a duel from both rankers' credits; the ranker with more of it has won.

    ``clicks`` is the number of clicked positions.
    """
    left_credit, right_credit = credits
    return Credit((left_credit, right_credit), clicks, duel_outcome(left_credit - right_credit))


@dataclass(frozen=True)
class Interleaved:
    """A list to show, with the data that its method needs to credit the clicks.

    Attributes
    ----------
    items : tuple of str or int
        The list to show, from the top.
    rankers : int
        Number of rankings that were combined.
    method : str
        The method's name.
    memory : dict
        Data for credit, as plain JSON; each method documents its own.
    probability : float or None
        Probability that the method shows exactly these items in this order, given the rankings; None
        where it is too costly to compute.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.interleaving import TeamDraft
    >>> shown = TeamDraft(length=2).interleave([["a", "b"], ["c", "a"]], np.random.default_rng(1))
    >>> Interleaved.from_dict(shown.as_dict()) == shown
    True
    """

    items: tuple[Item, ...]
    rankers: int
    method: str
    memory: Mapping[str, Any]
    probability: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the list, its method, memory and probability as plain JSON data."""
        return vars(self) | {"items": list(self.items), "memory": dict(self.memory)}

    @classmethod
    def from_dict(cls, data: Any) -> Interleaved:
        """Validate the data that :meth:`as_dict` wrote and return the list.

        Raises
        ------
        InvalidValue
            If ``data`` is not of that form.
        """
        names = ("items", "rankers", "method", "memory")
        if not isinstance(data, Mapping) or not set(names) <= set(data):
            raise InvalidValue("interleaved", data, f"give an object with {', '.join(names)}")
        items = check_ranking("interleaved.items", data["items"])
        rankers = checks.integer("interleaved.rankers", data["rankers"], 1, MANY)
        method = checks.name("interleaved.method", data["method"])
        if not isinstance(data["memory"], Mapping):
            raise InvalidValue("interleaved.memory", data["memory"], "give an object")
        entries = data["memory"].items()
        memory = {name: _check_memory(name, rows, len(items), rankers) for name, rows in entries}
        probability = data.get("probability")
        if probability is not None:
            probability = checks.number("interleaved.probability", probability, 0.0, 1.0)
        return cls(items, rankers, method, memory, probability)


def _check_memory(name: str, value: Any, positions: int, rankers: int) -> list[Any]:
    """Return the entry ``name`` of a list's memory as a list if it is valid; otherwise raise InvalidValue.

    ``teams`` must have one cell per position, other entries a row of such cells per ranker.
    """
    field = f"interleaved.memory.{name}"
    if name not in CELLS:
        raise InvalidValue("interleaved.memory", name, f"there can be {', '.join(CELLS)}")
    rows = [value] if name == "teams" else value
    count = 1 if name == "teams" else rankers
    is_valid = isinstance(rows, list) and len(rows) == count
    types, most = CELLS[name]
    most = rankers - 1 if name == "teams" else most
    for row in rows if is_valid else ():
        is_valid = is_valid and isinstance(row, list) and len(row) == positions
        is_valid = is_valid and set(map(type, row)) <= types
        is_valid = is_valid and all(0 <= cell <= most for cell in row if cell is not None)
    if not is_valid:
        raise InvalidValue(field, value, f"give {positions} cells a row, as they were remembered")
    return list(value)


CELLS: dict[str, tuple[set[type], float]] = {
    "teams": ({int, NoneType}, MANY),
    "ranks": ({int, NoneType}, math.inf),
    "shares": ({int, float, NoneType}, 1.0),
    "credits": ({int, float}, sys.float_info.max),
}
"""Types and the largest number of the cells of a memory; the least number is 0."""


@dataclass(frozen=True)
class InterleavingMethod(Checked):
    """Base of all interleaving methods.

    A subclass is a frozen dataclass with ``draw_list``, ``_list_outcomes`` and ``_credit_clicks``.

    Parameters
    ----------
    length : int, default 10
        Most items in the list that is shown, 1 to 100. Rankings may be longer or shorter.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.
    """

    duels: ClassVar[bool] = True
    """Whether the method takes exactly two rankings."""

    length: Annotated[int, int_range(1, LONGEST)] = 10

    @with_suggestions
    def interleave(self, rankings: Rankings, rng: Generator) -> Interleaved:
        """Draw one list to show from the rankings, with the data that :meth:`credit` needs.

        Warns if many lists are drawn from generators in the same state.

        Parameters
        ----------
        rankings : sequence of sequences of str or int
            One per ranker, best item first, each item once; in a duel, the left ranker's first.
        rng : Generator
            Random number generator.

        Raises
        ------
        InvalidValue
            If the rankings are not of this form.
        """
        ranked, rng = self._check_rankings(rankings), check_rng(rng)
        _warn_same_state(rng)
        return self.draw_list(ranked, rng)

    def lists(self, rankings: Rankings) -> Iterator[tuple[float, Interleaved]]:
        """Yield the probability and the list of every outcome of :meth:`interleave`; probabilities sum to 1.

        The same items may come more than once, with different memories. The number of lists can be very
        large: this is for small cases, tests and exact preferences.

        Parameters
        ----------
        rankings : sequence of sequences of str or int

        Raises
        ------
        InvalidValue
            If the rankings are not of this form.
        """
        return self._list_outcomes(self._check_rankings(rankings))

    def credit(self, interleaved: Interleaved, clicks: Sequence[int]) -> Credit:
        """Return the credit of each ranker for the clicks on a list that this method built.

        Warns if ``clicks`` seems to have a 0 or 1 for each position.

        Parameters
        ----------
        interleaved : Interleaved
            The list that was shown.
        clicks : sequence of int
            The clicked positions, from 0, in any order; a position counts once.

        Raises
        ------
        InvalidValue
            If the list was built by another method or a position is not in it.
        """
        name = type(self).__name__
        if interleaved.method != name:
            raise InvalidValue("interleaved.method", interleaved.method, f"only {name} fits")
        if set(interleaved.memory) != {self._remembers}:
            raise InvalidValue("interleaved.memory", interleaved.memory, f"it must hold {self._remembers!r}")
        return self._credit_clicks(interleaved, _check_clicks(interleaved.items, clicks))

    @property
    def _remembers(self) -> str:
        """Name of the single entry in the memory of this method's lists."""
        raise NotImplementedError

    def _check_rankings(self, rankings: Rankings) -> Ranked:
        """Return the validated rankings as tuples; raise InvalidValue for a wrong form or number.

        Warn if text and number ids that look the same are mixed.
        """
        if isinstance(rankings, str) or not isinstance(rankings, Sequence):
            remedy = "give a list of rankings"
            if isinstance(rankings, Mapping):
                remedy += (
                    ", in the order of decision.pair where a learner decided: [rankings[name] for name in …]"
                )
            raise InvalidValue("rankings", rankings, remedy)
        if self.duels and len(rankings) != 2:
            raise InvalidValue("rankings", rankings, "give two rankings")
        checks.integer("the number of rankings", len(rankings), 2, MANY)
        ranked = tuple(check_ranking(f"rankings[{i}]", items) for i, items in enumerate(rankings))
        warn_of_mixed_ids(ranked, stacklevel=4)
        return ranked

    def draw_list(self, rankings: Ranked, rng: Generator) -> Interleaved:
        """Draw a list to show from validated rankings, and return it with its memory."""
        raise NotImplementedError

    def _list_outcomes(self, rankings: Ranked) -> Iterator[tuple[float, Interleaved]]:
        """Yield the probability and the list of every possible outcome, for validated rankings."""
        raise NotImplementedError

    def _credit_clicks(self, interleaved: Interleaved, clicks: list[int]) -> Credit:
        """Return each ranker's credit for the clicked positions, which are validated and ascending."""
        raise NotImplementedError

    def _build_interleaved(
        self, items: Sequence[Item], rankers: int, memory: Any, probability: float | None
    ) -> Interleaved:
        """Return a list with this method's name and its memory under this method's entry."""
        return Interleaved(tuple(items), rankers, type(self).__name__, {self._remembers: memory}, probability)


def warn_of_mixed_ids(rankings: Rankings, stacklevel: int) -> None:
    """Warn if text and number ids in rankings look the same."""
    if len(set(map(type, chain.from_iterable(rankings)))) > 1:
        items = set(chain.from_iterable(rankings))
        if len(set(map(str, items))) < len(items):
            warning = "rankings: '1' is another item than 1; give all ids as text, or all as numbers"
            warnings.warn(warning, AssumptionWarning, stacklevel=stacklevel)


def check_ranking(field: str, items: Any) -> tuple[Item, ...]:
    """Return a ranking as a tuple of ids, if it has at least one id and each only once.

    ``field`` names the ranking in errors.

    Raises
    ------
    InvalidValue
        If ``items`` is not a ranking.
    """
    items = checks.as_list(items)
    # isinstance() with an abstract class would take most of the time.
    is_list = type(items) in (list, tuple) or (isinstance(items, Sequence) and not isinstance(items, str))
    if not is_list or len(items) == 0:
        raise InvalidValue(field, items, "give a list of at least one id")
    # Nearly all items are of one of these types; numbers need no check of their own.
    types = set(map(type, items))
    if not types <= {int, str}:
        for item in items:
            if isinstance(item, bool) or not isinstance(item, str | Integral):
                raise InvalidValue(field, item, "give ids: text, or whole numbers")
    ids = tuple(items)
    if types != {int}:
        ids = tuple(checks.name(field, item) if isinstance(item, str) else int(item) for item in items)
    if len(set(ids)) < len(ids):
        duplicate = next(item for item in ids if ids.count(item) > 1)
        remedy = f"{duplicate!r} is in it {ids.count(duplicate)} times; give each item once"
        raise InvalidValue(field, items, remedy)
    return ids


def fair_depth(rankings: Rankings, length: int) -> int:
    """Return the number of positions that every ranker can fill, whichever items the others pick.

    It is the length of the shortest ranking, at most ``length``. Below these positions a ranker may have no
    items left, depending on earlier draws: credit there would favour a ranker.
    """
    return min(length, *map(len, rankings))


def complete_list(rankings: Rankings, items: Collection[Item], length: int) -> list[Item]:
    """Return ``items`` and then the remaining items of the rankers' rankings, best ranks first.

    The list is cut at ``length``.
    """
    # Most drafts are as long as the list.
    depth = max(map(len, rankings)) if len(items) < length else 0
    by_rank = [row[rank] for rank in range(depth) for row in rankings if rank < len(row)]
    return list(dict.fromkeys([*items, *by_rank]))[:length]


def find_ranks(rankings: Rankings, items: Sequence[Item]) -> list[list[int | None]]:
    """Return, per ranker, the rank (from 0) of each item in its ranking; None if the item is not in it."""
    tables = [{item: rank for rank, item in enumerate(row)} for row in rankings]
    return [[table.get(item) for item in items] for table in tables]


def draw_index(weights: Sequence[float], rng: Generator) -> int:
    """Draw an index with a probability proportional to its weight, and return it."""
    cumulative = np.cumsum(weights)
    index = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], "right"))
    return min(index, len(cumulative) - 1)


_last_draw: list[Any] = [None, 0]
"""The generator state of the latest list, and the number of earlier lists drawn from the same state."""


def _warn_same_state(rng: Generator) -> None:
    """Warn once if many lists in a row are drawn from the same generator state.

    This happens if the caller creates a new generator with the same seed for each list. Records the state of
    ``rng`` for the next call. Only NumPy's default generator is checked.
    """
    # Only for NumPy's default generator: comparing the states of others takes longer than drawing the list.
    state = rng.bit_generator.state["state"] if isinstance(rng.bit_generator, np.random.PCG64) else None
    _last_draw[:] = state, (_last_draw[1] + 1 if state and state == _last_draw[0] else 0)
    if _last_draw[1] == MAX_REPEATS:
        problem = f"rng: {MAX_REPEATS:,} lists were drawn from the same state, and so all by the same chance"
        remedy = "make a generator at the start, and keep it"
        warnings.warn(f"{problem}; {remedy}", AssumptionWarning, stacklevel=4)
