"""Searches with interleaved lists, put together from what any log tells of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tacit.core import checks
from tacit.errors import InvalidValue
from tacit.interleaving import Action, Interleaved

UNKNOWN_SEARCH = "unknown-search"
NOT_SHOWN = "not-shown"
NO_TEAM = "no-team"
REASONS = {
    UNKNOWN_SEARCH: "of a search that is not in the log",
    NOT_SHOWN: "on an item that its search did not show",
    NO_TEAM: "on an item that no ranker gave",
}
"""Why an action cannot be credited."""


class Search(NamedTuple):
    """A search, the list that it showed, and what was done to it.

    Attributes
    ----------
    id : str
    unit : str
        Whose it is: a user, a session, or the search itself.
    segments : dict
        What else is known of it, such as its market.
    rankers : tuple of str
        Who took part, in the order of the list's parts.
    shown : Interleaved
    actions : list of Action
    rankings : tuple of lists, or None
        What the rankers had given, where it is known.
    """

    id: str
    unit: str
    segments: Mapping[str, str]
    rankers: tuple[str, ...]
    shown: Interleaved
    actions: list[Action]
    rankings: tuple[Sequence[Any], ...] | None = None

    @property
    def alike(self) -> bool | None:
        """Whether the rankers agree on all that was shown; None where it is not known."""
        if self.rankings is None:
            return None
        first, *others = (list(given)[: len(self.shown.items)] for given in self.rankings)
        return all(other == first for other in others)


@dataclass
class _Draft:
    """What has been told of a search so far."""

    items: dict[Any, tuple[Any, str | None]] = field(default_factory=dict)
    done: list[tuple[str, float, Any, Any, str | None]] = field(default_factory=list)
    unit: str | None = None
    segments: dict[str, str] = field(default_factory=dict)
    whole: Search | None = None


class Assembly:
    """Puts searches together from rows, results and events, which may come in any order.

    Examples
    --------
    >>> assembly = Assembly()
    >>> assembly.show("1", 0, "a", "old")
    >>> assembly.show("1", 1, "b", "new")
    >>> assembly.act("1", item="b")
    >>> assembly.act("1", item="z")
    >>> [search] = assembly.searches()
    >>> search.rankers, search.actions[0].position, assembly.uncredited
    (('new', 'old'), 1, Counter({'not-shown': 1}))
    """

    def __init__(self) -> None:
        self._drafts: dict[str, _Draft] = {}
        self.uncredited: Counter[str] = Counter()
        """Actions that cannot be credited, by reason."""

    def show(self, search: str, position: Any, item: Any = None, team: str | None = None) -> None:
        """Note what a search showed at a position, and which ranker gave it.

        Raises
        ------
        InvalidValue
            If something else was shown there, or another ranker gave it.
        """
        items = self._drafts.setdefault(search, _Draft()).items
        before = items.get(position)
        if before is not None and before != (item, team):
            remedy = f"the search {search!r} has another item or team at position {position}"
            raise InvalidValue("team" if before[0] == item else "item", (item, team), remedy)
        items[position] = (item, team)

    def act(
        self,
        search: str,
        kind: str = "click",
        amount: float = 1.0,
        position: Any = None,
        item: Any = None,
        team: str | None = None,
    ) -> None:
        """Note what was done in a search; by position or item, or with the ranker who gave it."""
        draft = self._drafts.setdefault(search, _Draft())
        draft.done.append((kind, amount, position, item, team))

    def tell(self, search: str, unit: str | None, segments: Mapping[str, Any]) -> None:
        """Note whose a search is, and what else is known of it."""
        draft = self._drafts.setdefault(search, _Draft())
        draft.unit = draft.unit or unit
        draft.segments |= {name: str(value) for name, value in segments.items() if value is not None}

    def take(self, search: Search) -> None:
        """Note a search that is whole already.

        Raises
        ------
        InvalidValue
            If there is one of that id.
        """
        draft = self._drafts.setdefault(search.id, _Draft())
        if draft.whole is not None or draft.items:
            raise InvalidValue("search", search.id, "give each search once")
        draft.whole = search

    @property
    def rankers(self) -> list[str]:
        """All rankers that are named, in order."""
        names = {team for draft in self._drafts.values() for _, team in draft.items.values()}
        names |= {done[4] for draft in self._drafts.values() for done in draft.done}
        for draft in self._drafts.values():
            names |= set(draft.whole.rankers) if draft.whole else set()
        return sorted(name for name in names if name is not None)

    def searches(self) -> Iterator[Search]:
        """Yield the searches in the order in which they were first told of."""
        names = self.rankers
        for id, draft in self._drafts.items():
            search = self._assembled(id, draft, names)
            if search is not None:
                yield search

    def _assembled(self, id: str, draft: _Draft, names: list[str]) -> Search | None:
        if draft.whole is not None:
            whole = draft.whole
            segments = {**whole.segments, **draft.segments}
            return whole._replace(unit=draft.unit or whole.unit, segments=segments)
        items = [draft.items[place] for place in sorted(draft.items)]
        places = {place: at for at, place in enumerate(sorted(draft.items))}
        of_item = {item: at for at, (item, _) in enumerate(items) if item is not None}
        actions = []
        for kind, amount, position, item, team in draft.done:
            at = of_item.get(item) if item is not None else places.get(position)
            if at is None and team is not None:
                # The event itself says who gave the item.
                at = of_item[item] = len(items)
                items.append((item, team))
            if at is None:
                self.uncredited[NOT_SHOWN if items else UNKNOWN_SEARCH] += 1
            elif items[at][1] is None:
                self.uncredited[NO_TEAM] += 1
            else:
                actions.append(Action(at, kind, amount))
        if not items:
            return None
        seen = {team for _, team in items if team is not None}
        rankers = tuple(names) if len(names) == 2 else tuple(sorted(seen))
        teams = [None if team is None else rankers.index(team) for _, team in items]
        listed = tuple(at if item is None else item for at, (item, _) in enumerate(items))
        shown = Interleaved(listed, len(rankers), "TeamDraft", {"teams": teams})
        return Search(id, draft.unit or id, draft.segments, rankers, shown, actions)


def text(field: str, value: Any) -> str:
    """Return a name that a log gives as text or as a number.

    Raises
    ------
    InvalidValue
        If it is neither, or empty.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = f"{value:g}" if isinstance(value, float) else str(value)
    return checks.name(field, value)


def number(column: str, value: Any, default: float | None = None) -> float:
    """Return a number from 0 on, which a table may give as text or as true and false."""
    if value in (None, "") and default is not None:
        return default
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        low = value.strip().lower()
        if low in ("true", "false"):
            return float(low == "true")
        try:
            value = float(low)
        except ValueError:
            raise InvalidValue(column, value, "give a number") from None
    return checks.number(column, value, 0.0, 1e300)
