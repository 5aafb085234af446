"""Searches with interleaved lists, from tacit's own log of duels or from responses of search engines."""

# 1. ``Search`` and ``SearchAssembler``: assemble searches from rows, results and events.
# 2. Parse a row of tacit's own log of duels, which is a whole search.
# 3. Parse results of OpenSearch, Elasticsearch and Solr, and UBI events, with the ranker (team) of each item.
# 4. ``Columns``: names of the columns to read.

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tacit.core import checks
from tacit.errors import InvalidValue
from tacit.evaluate.duels.report import parse_outcome
from tacit.interleaving import Action, Interleaved, credit_clicks
from tacit.interleaving.base import check_ranking
from tacit.logs.ubi_records import CLICK

# ---- Searches with interleaved lists, assembled from records of a log

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
    """A search with the list that it showed and the actions on it.

    Attributes
    ----------
    id : str
    unit : str
        The user or session of the search, or else the search itself.
    segments : dict
        Values of its segments, such as its market.
    rankers : tuple of str
        The competing rankers, in the order of their numbers in the list.
    shown : Interleaved
    actions : list of Action
    rankings : tuple of lists, or None
        The rankers' original lists, if known.
    """

    id: str
    unit: str
    segments: Mapping[str, str]
    rankers: tuple[str, ...]
    shown: Interleaved
    actions: list[Action]
    rankings: tuple[Sequence[Any], ...] | None = None

    @property
    def has_equal_rankings(self) -> bool | None:
        """True if the rankers' lists are equal down to the length shown; None if they are unknown."""
        if self.rankings is None:
            return None
        first, *others = (list(full_ranking)[: len(self.shown.items)] for full_ranking in self.rankings)
        return all(ranking == first for ranking in others)


def count_clicked_results(search: Search) -> int:
    """Return the number of results in a search that have an action with an amount above 0.5.

    A tie of a duel, stored as 0.5 on either side, thus counts as no click.
    """
    return len({action.position for action in search.actions if action.amount > 0.5})


@dataclass
class _Draft:
    """The records of a search so far: items by position, actions, unit, segments, or a complete search.

    An item comes with its ranker; an action is kind, amount, position, item and ranker.
    """

    items: dict[Any, tuple[Any, str | None]] = field(default_factory=dict)
    actions: list[tuple[str, float, Any, Any, str | None]] = field(default_factory=list)
    unit: str | None = None
    segments: dict[str, str] = field(default_factory=dict)
    search: Search | None = None


class SearchAssembler:
    """Assembles searches from rows, results and events, which may come in any order.

    Examples
    --------
    >>> assembler = SearchAssembler()
    >>> assembler.add_result("1", 0, "a", "old"), assembler.add_result("1", 1, "b", "new")
    (False, False)
    >>> assembler.add_action("1", item="b")
    >>> assembler.add_action("1", item="z")
    >>> [search] = assembler.searches()
    >>> search.rankers, search.actions[0].position, assembler.uncredited
    (('new', 'old'), 1, Counter({'not-shown': 1}))
    """

    def __init__(self) -> None:
        """Start with no records and zero counts."""
        self._drafts: dict[str, _Draft] = {}
        self.uncredited: Counter[str] = Counter()
        """Actions that cannot be credited, by reason."""
        self.varying: dict[str, str] = {}
        """Attributes that must be constant within a search, such as ``unit``, with an example that varies."""
        self.unclicked: Counter[bool] = Counter()
        """Number of rows of results without a click: new results (False) and repeated ones (True)."""

        self.unit_candidates: dict[str, dict[str, Any]] = {}
        """Columns that may hold the unit, with their value for each search without a known unit."""

    def add_result(self, search: str, position: Any, item: Any = None, team: str | None = None) -> bool:
        """Add an item and its ranker at a position of a search; return True if they were there already.

        Raises
        ------
        InvalidValue
            If the position has another item or ranker.
        """
        items = self._drafts.setdefault(search, _Draft()).items
        before = items.get(position)
        if before is not None and before != (item, team):
            remedy = (
                f"the search {search!r} has another item or team at position {position:g}; give each search"
            )
            remedy += " an id that no other has, and each result its position"
            raise InvalidValue("team" if before[0] == item else "item", (item, team), remedy)
        items[position] = (item, team)
        return before is not None

    def add_action(
        self,
        search: str,
        kind: str = "click",
        amount: float = 1.0,
        position: Any = None,
        item: Any = None,
        team: str | None = None,
    ) -> None:
        """Add an action to a search, new or not, on a position or an item.

        ``team`` is the item's ranker, if known. An item or position that is not shown is counted later, by
        :meth:`searches`.
        """
        self._drafts.setdefault(search, _Draft()).actions.append((kind, amount, position, item, team))

    def add_attributes(self, search: str, unit: str | None, segments: Mapping[str, Any]) -> None:
        """Set the unit and the segments of a search, unless earlier records have set them.

        The first contradiction of each attribute is recorded in ``varying``.
        """
        draft = self._drafts.setdefault(search, _Draft())
        draft.unit = draft.unit or unit
        new_segments = {name: str(value) for name, value in segments.items() if value is not None}
        draft.segments = new_segments | draft.segments
        for name, before, value in [
            ("unit", draft.unit, unit),
            *((name, draft.segments[name], new_segments[name]) for name in new_segments),
        ]:
            if value not in (None, before) and name not in self.varying:
                self.varying[name] = f"{search!r} is of {before!r} and of {value!r}"

    def add_search(self, search: Search) -> None:
        """Add a complete search, such as a row of tacit's own log of duels.

        Raises
        ------
        InvalidValue
            If there is already a search with this id.
        """
        draft = self._drafts.setdefault(search.id, _Draft())
        if draft.search is not None or draft.items:
            raise InvalidValue("search", search.id, "give each search once")
        draft.search = search

    @property
    def rankers(self) -> list[str]:
        """The names of all rankers in results, actions and searches, sorted."""
        names = {team for draft in self._drafts.values() for _, team in draft.items.values()}
        names |= {done[4] for draft in self._drafts.values() for done in draft.actions}
        for draft in self._drafts.values():
            names |= set(draft.search.rankers) if draft.search else set()
        return sorted(name for name in names if name is not None)

    def searches(self) -> Iterator[Search]:
        """Yield the searches in the order of their first records; searches without items are left out.

        Each call counts the actions that cannot be credited in ``uncredited``, so call it once.
        """
        names = self.rankers
        for id, draft in self._drafts.items():
            search = self._assemble(id, draft, names)
            if search is not None:
                yield search

    def _assemble(self, id: str, draft: _Draft, names: list[str]) -> Search | None:
        """Return the search of a draft, or None if it shows no items.

        ``names`` are all rankers. Actions on unknown items, or on items without a ranker, are counted in
        ``uncredited``; an action that names the ranker of an item that was not shown adds the item.
        """
        if draft.search is not None:
            search = draft.search
            segments = {**search.segments, **draft.segments}
            return search._replace(unit=draft.unit or search.unit, segments=segments)
        items = [draft.items[place] for place in sorted(draft.items)]
        index_of_position = {place: index for index, place in enumerate(sorted(draft.items))}
        index_of_item = {item: index for index, (item, _) in enumerate(items) if item is not None}
        actions = []
        for kind, amount, position, item, team in draft.actions:
            index = index_of_item.get(item) if item is not None else index_of_position.get(position)
            if index is None and team is not None:
                # The event itself names the item's ranker.
                index = index_of_item[item] = len(items)
                items.append((item, team))
            if index is None:
                self.uncredited[NOT_SHOWN if items else UNKNOWN_SEARCH] += 1
            elif items[index][1] is None:
                self.uncredited[NO_TEAM] += 1
            else:
                actions.append(Action(index, kind, amount))
        if not items:
            return None
        teams_shown = {team for _, team in items if team is not None}
        rankers = tuple(names) if len(names) == 2 else tuple(sorted(teams_shown))
        teams = [None if team is None else rankers.index(team) for _, team in items]
        shown_items = tuple(index if item is None else item for index, (item, _) in enumerate(items))
        interleaved = Interleaved(shown_items, len(rankers), "TeamDraft", {"teams": teams})
        return Search(id, draft.unit or id, draft.segments, rankers, interleaved, actions)


def parse_text(field: str, value: Any) -> str:
    """Return a name, which may be text or a number, as text.

    Raises
    ------
    InvalidValue
        If it is neither, or empty.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = f"{value:g}" if isinstance(value, float) else str(value)
    return checks.name(field, value)


# ---- Searches from rows of tacit's own log of duels


def parse_duel_row(record: Mapping[str, Any], where: str) -> Search:
    """Return the complete search of a row of tacit's own log of duels.

    Without an interleaved list, the outcome becomes an action on each of two items. ``where`` is the id of
    a row without one; it must not depend on the path of the file, so that results do not.

    Raises
    ------
    InvalidValue
        If the row is not a valid search.
    """
    left_name, right_name = (
        checks.ranker(side, parse_text(side, record[side])) for side in ("left", "right")
    )
    rankers = left_name, right_name
    search_id = record.get("search") or record.get("decision_id")
    search = where if search_id is None else parse_text("search", search_id)
    rankings = None
    if record.get("interleaved") is None:
        outcome = parse_outcome(record.get("outcome"))
        interleaved = Interleaved((0, 1), 2, "TeamDraft", {"teams": [0, 1]})
        actions = [Action(0, CLICK, outcome), Action(1, CLICK, 1.0 - outcome)]
    else:
        interleaved = Interleaved.from_dict(checks.parse_json("interleaved", record["interleaved"]))
        if interleaved.rankers != 2:
            raise InvalidValue("interleaved.rankers", interleaved.rankers, "give a list of two rankers")
        clicks = checks.parse_json("clicks", record.get("clicks"))
        if not isinstance(clicks, list):
            raise InvalidValue("clicks", clicks, "give a list of positions")
        actions = [_parse_click(click, len(interleaved.items)) for click in clicks]
        # Raises if the interleaving method could not have made this list.
        credit_clicks(interleaved, sorted({action.position for action in actions}))
        if record.get("rankings") is not None:
            rankings = _parse_rankings(checks.parse_json("rankings", record["rankings"]), rankers)
    return Search(search, search, {}, rankers, interleaved, actions, rankings)


def _parse_click(click: Any, positions: int) -> Action:
    """Return the action of a click in the log: a position, or an object with position, kind and amount.

    Raises InvalidValue if the position is not among ``positions`` or another field is wrong.
    """
    if isinstance(click, Mapping):
        place = checks.integer("clicks", click.get("position"), 0, positions - 1)
        kind = parse_text("clicks.action", click.get("action", CLICK))
        return Action(place, kind, checks.number("clicks.amount", click.get("amount", 1.0), 0, 1e300))
    return Action(checks.integer("clicks", click, 0, positions - 1))


def _parse_rankings(rankings: Any, rankers: Sequence[str]) -> tuple[Sequence[Any], ...]:
    """Return the left and the right ranker's list, from a list of two or an object by ranker.

    Raises InvalidValue for other values.
    """
    if isinstance(rankings, Mapping):
        rankings = [rankings.get(name) for name in rankers]
    is_list = isinstance(rankings, list)
    if not is_list or len(rankings) != 2 or not all(isinstance(items, list) for items in rankings):
        raise InvalidValue("rankings", rankings, "give the left and the right ranker's list")
    return tuple(check_ranking("rankings", items) for items in rankings)


# ---- Responses of search engines: result lists of OpenSearch, Elasticsearch and Solr, and UBI events
#
# - OpenSearch, ``POST _plugins/_search_relevance/ab_tests/{id}/_search`` (Search Relevance
#   Workbench, merged in July 2026): ``hits``, each with ``_search_configuration_id``.
# - OpenSearch and Elasticsearch, ``_search``: ``hits.hits``, each with ``_id``; the ranker of a hit is
#   in ``_search_configuration_id``, ``search_config`` or ``team``, of the hit or its ``fields``.
# - Solr 8.8 and later with ``fl=id,[interleaving]``: ``response.docs``, each with
#   ``[interleaving]``, the model that picked it.
# - UBI 1.3 events; the ranker of the object is in ``search_config`` of the object or of the
#   attributes (as Chorus for OpenSearch sends it), or in ``tacit.team``.

TEAM_FIELDS = ("_search_configuration_id", "search_config", "_search_configuration", "team")
SOLR_TEAM = "[interleaving]"
ID_FIELDS = ("query_id", "search", "search_id")
UNIT_FIELDS = ("user", "client_id", "session", "session_id")
UNIT_NAME = re.compile(
    r"(\w+_)?(user|customer|client|visitor|member|account|session|cookie|shopper|anonymous)"
    r"(_?(id|uid|no|nr|key|hash|number|name))?",
    re.IGNORECASE,
)
"""Names of columns that may hold the unit of a search."""


class Hit(NamedTuple):
    """A result, and its ranker, if the response has it."""

    id: str
    team: str | None


def is_result(record: Mapping[str, Any]) -> bool:
    """True if a record is a search engine's response with results."""
    return "hits" in record or isinstance(record.get("response"), dict)


def hits_of(answer: Mapping[str, Any], key: str | None = None) -> list[Hit]:
    """Return ids and rankers of the results in a response of OpenSearch, Elasticsearch or Solr, in order.

    Parameters
    ----------
    answer : dict
    key : str, optional
        The field of a Solr document's id; by default ``id``.

    Raises
    ------
    InvalidValue
        If the answer has no list of results with ids.

    Examples
    --------
    >>> hits_of({"hits": {"hits": [{"_id": "7", "_search_configuration_id": "9c85"}]}})
    [Hit(id='7', team='9c85')]
    >>> hits_of({"response": {"docs": [{"id": "7", "[interleaving]": "modelB"}]}})
    [Hit(id='7', team='modelB')]
    """
    if not isinstance(answer, Mapping):
        raise InvalidValue("answer", answer, "give the answer as a dict: of its text json.loads(text)")
    if isinstance(answer.get("response"), Mapping):
        docs = answer["response"].get("docs")
        results = _check_results("response.docs", docs)
        return [_parse_hit("response.docs", doc, key or "id") for doc in results]
    inner = answer.get("hits")
    if isinstance(inner, Mapping):
        inner = inner.get("hits")
    return [_parse_hit("hits", hit, key or "_id") for hit in _check_results("hits", inner)]


def _check_results(field: str, value: Any) -> Sequence[Mapping[str, Any]]:
    """Return ``value`` if it is a list of objects; else raise InvalidValue, which names ``field``."""
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        raise InvalidValue(field, value, "give the list of results of a search engine's answer")
    return value


def _parse_hit(field: str, hit: Mapping[str, Any], key: str) -> Hit:
    """Return a result's id, from its field ``key``, and its ranker or None; raise InvalidValue without id."""
    if hit.get(key) is None:
        remedy = f"every result needs its id; say its field, hits_of(answer, key={next(iter(hit), None)!r})"
        raise InvalidValue(f"{field}.{key}", None, remedy)
    team = hit.get(SOLR_TEAM) or get_team(hit) or get_team(_get_object(hit, "fields"))
    return Hit(parse_text(f"{field}.{key}", hit[key]), team)


def get_team(attributes: Mapping[str, Any]) -> str | None:
    """Return the ranker of an item from the first of its attributes that names one, or None."""
    for name in TEAM_FIELDS:
        value = attributes.get(name)
        value = value[0] if isinstance(value, list) and len(value) == 1 else value
        if isinstance(value, str) and value:
            return checks.ranker(name, value)
    return None


def get_event_team(record: Mapping[str, Any]) -> str | None:
    """Return the ranker of a UBI event's object from the event's attributes, or None."""
    attributes = _get_object(record, "event_attributes")
    tacit_attributes, clicked_object = (_get_object(attributes, name) for name in ("tacit", "object"))
    return get_team(tacit_attributes) or get_team(clicked_object) or get_team(attributes)


def get_search_id(record: Mapping[str, Any]) -> str:
    """Return a response's search id as text, from its top level, ``ubi``, ``ext.ubi`` or header parameters.

    Raises
    ------
    InvalidValue
        If the response has none.
    """
    ubi = _get_object(record, "ubi") or _get_object(_get_object(record, "ext"), "ubi")
    for place in (record, ubi, _get_object(_get_object(record, "responseHeader"), "params")):
        for name in ID_FIELDS:
            if place.get(name) is not None:
                return parse_text(name, place[name])
    remedy = f"give each result list its search in one of {', '.join(ID_FIELDS)}"
    raise InvalidValue("query_id", None, remedy)


def _get_object(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the field ``name`` of a record if it is an object, else an empty dict."""
    value = record.get(name)
    return value if isinstance(value, Mapping) else {}


def get_field(record: Mapping[str, Any], name: str) -> Any:
    """Return a field of a record, or of its query or event attributes; None if all lack it."""
    for place in (record, _get_object(record, "query_attributes"), _get_object(record, "event_attributes")):
        if place.get(name) is not None:
            return place[name]
    return None


# ---- Names of the columns of interleaved searches

ROW_COLUMNS = ("search", "team", "position", "click")
"""The columns of a log with a row for each item shown, or for each item clicked."""
OPTIONAL_COLUMNS = ("item", "action", "amount")
PAIR_COLUMNS = ("left", "right")
DUEL_COLUMNS = (*PAIR_COLUMNS, "outcome", "interleaved", "clicks", "rankings", "decision_id")
"""The columns of tacit's own log of duels."""


class Columns(NamedTuple):
    """Columns to read in addition to the fixed ones, and renamed columns.

    Attributes
    ----------
    unit : str or None
        Column of the searches' units; None: the first of ``user``, ``client_id``, ``session``,
        ``session_id`` that has a value.
    by : tuple of str
        Columns of segments.
    renamed : dict
        From tacit's names of columns to the file's.
    """

    unit: str | None = None
    by: tuple[str, ...] = ()
    renamed: Mapping[str, str] = {}

    @property
    def unit_names(self) -> tuple[str, ...]:
        """The columns that may hold the unit, the likeliest first; only one if it was named."""
        return UNIT_FIELDS if self.unit is None else (self.unit,)

    def find_unit_candidates(self, names: Iterable[str]) -> list[str]:
        """Return the ``names`` that look like ids of users or sessions, if no unit was named."""
        used_names = {*UNIT_FIELDS, *self.by, *self.renamed.values()}
        return [
            name
            for name in names
            if self.unit is None and name not in used_names and UNIT_NAME.fullmatch(name)
        ]
