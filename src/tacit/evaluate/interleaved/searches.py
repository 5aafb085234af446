"""Searches with interleaved lists, from any log: tacit's own, or what search engines answer."""

# 1. ``Search`` and ``Assembly``: a search is put together from whatever tells of it.
# 2. A row of tacit's own log of duels is a whole search.
# 3. Results of OpenSearch, Elasticsearch and Solr; events of UBI; attributes that say which ranker gave an
#    item.
# 4. ``Columns``: which columns serve as what.

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tacit.core import checks
from tacit.errors import InvalidValue
from tacit.evaluate.duels.report import outcome_of
from tacit.interleaving import Action, Interleaved, credited
from tacit.interleaving.base import ranking
from tacit.logs.ubi_records import CLICK

# ---- Searches with interleaved lists, put together from what any log tells of them

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


def clicked(search: Search) -> int:
    """Return to how many results of a search something was done; a tie is none."""
    return len({done.position for done in search.actions if done.amount > 0.5})


@dataclass
class _Draft:
    """What is known of a search so far."""

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
    >>> assembly.show("1", 0, "a", "old"), assembly.show("1", 1, "b", "new")
    (False, False)
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
        self.torn: dict[str, str] = {}
        """Of what is so of whole searches, such as ``unit``, a search in which it varies."""
        self.unclicked: Counter[bool] = Counter()
        """Rows of results without a click: those that are new, and those that another row tells of."""

        self.owners: dict[str, dict[str, Any]] = {}
        """What columns say that may tell whose a search is, of each search, where no unit is known."""

    def show(self, search: str, position: Any, item: Any = None, team: str | None = None) -> bool:
        """Note what a search showed at a position, and which ranker gave it; return whether it was known.

        Raises
        ------
        InvalidValue
            If something else was shown there, or another ranker gave it.
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
        """Note whose a search is, and what else is known of it; what came first counts."""
        draft = self._drafts.setdefault(search, _Draft())
        draft.unit = draft.unit or unit
        given = {name: str(value) for name, value in segments.items() if value is not None}
        draft.segments = given | draft.segments
        for name, before, value in [
            ("unit", draft.unit, unit),
            *((name, draft.segments[name], given[name]) for name in given),
        ]:
            if value not in (None, before) and name not in self.torn:
                self.torn[name] = f"{search!r} is of {before!r} and of {value!r}"

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
        """Yield the searches in the order in which they were first met."""
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


# ---- Searches as tacit's own log of duels tells them


def own_search(record: Mapping[str, Any], where: str) -> Search:
    """Return the search that a row of tacit's own log tells; ``where`` names one without an id.

    It is no path: what a log says must not depend on where it lies.

    Raises
    ------
    InvalidValue
        If it tells none.
    """
    left, right = (checks.ranker(side, text(side, record[side])) for side in ("left", "right"))
    rankers = left, right
    given = record.get("search") or record.get("decision_id")
    search = where if given is None else text("search", given)
    rankings = None
    if record.get("interleaved") is None:
        outcome = outcome_of(record.get("outcome"))
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
        credited(shown, sorted({action.position for action in actions}))
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


# ---- What search engines answer: result lists of OpenSearch, Elasticsearch and Solr, and UBI
#
# - OpenSearch, ``POST _plugins/_search_relevance/ab_tests/{id}/_search`` (Search Relevance
#   Workbench, merged in July 2026): ``hits``, each with ``_search_configuration_id``.
# - OpenSearch and Elasticsearch, ``_search``: ``hits.hits``, each with ``_id``; who gave a hit stands
#   in ``_search_configuration_id``, ``search_config`` or ``team``, of the hit or its ``fields``.
# - Solr 8.8 and later with ``fl=id,[interleaving]``: ``response.docs``, each with
#   ``[interleaving]``, the model that picked it.
# - UBI 1.3 events; who gave the object stands in ``search_config`` of the object or of the
#   attributes (as Chorus for OpenSearch sends it), or in ``tacit.team``.

TEAMS = ("_search_configuration_id", "search_config", "_search_configuration", "team")
SOLR_TEAM = "[interleaving]"
IDS = ("query_id", "search", "search_id")
UNITS = ("user", "client_id", "session", "session_id")
OWNER = re.compile(
    r"(\w+_)?(user|customer|client|visitor|member|account|session|cookie|shopper|anonymous)"
    r"(_?(id|uid|no|nr|key|hash|number|name))?",
    re.IGNORECASE,
)
"""What a column is called that may say whose a search is."""


class Hit(NamedTuple):
    """A result, and who gave it, if the answer says it."""

    id: str
    team: str | None


def is_result(record: Mapping[str, Any]) -> bool:
    """Whether a record is what a search engine answered."""
    return "hits" in record or isinstance(record.get("response"), dict)


def hits_of(answer: Mapping[str, Any], key: str | None = None) -> list[Hit]:
    """Return the results of an answer of OpenSearch, Elasticsearch or Solr, in their order.

    Parameters
    ----------
    answer : dict
    key : str, optional
        In which field of a Solr document its id stands; by default ``id``.

    Raises
    ------
    InvalidValue
        If it is no such answer.

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
        return [_hit("response.docs", doc, key or "id") for doc in _listed("response.docs", docs)]
    inner = answer.get("hits")
    if isinstance(inner, Mapping):
        inner = inner.get("hits")
    return [_hit("hits", hit, key or "_id") for hit in _listed("hits", inner)]


def _listed(field: str, value: Any) -> Sequence[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise InvalidValue(field, value, "give the list of results of a search engine's answer")
    return value


def _hit(field: str, hit: Mapping[str, Any], key: str) -> Hit:
    if hit.get(key) is None:
        remedy = f"every result needs its id; say its field, hits_of(answer, key={next(iter(hit), None)!r})"
        raise InvalidValue(f"{field}.{key}", None, remedy)
    team = hit.get(SOLR_TEAM) or team_of(hit) or team_of(_inner(hit, "fields"))
    return Hit(text(f"{field}.{key}", hit[key]), team)


def team_of(attributes: Mapping[str, Any]) -> str | None:
    """Return who gave an item, as its attributes say it; None if they do not."""
    for name in TEAMS:
        value = attributes.get(name)
        value = value[0] if isinstance(value, list) and len(value) == 1 else value
        if isinstance(value, str) and value:
            return checks.ranker(name, value)
    return None


def team_of_event(record: Mapping[str, Any]) -> str | None:
    """Return who gave the object of a UBI event."""
    attributes = _inner(record, "event_attributes")
    ours = _inner(attributes, "tacit")
    of_object = _inner(attributes, "object")
    return team_of(ours) or team_of(of_object) or team_of(attributes)


def id_of(record: Mapping[str, Any]) -> str:
    """Return the search that an answer belongs to.

    Raises
    ------
    InvalidValue
        If it does not say it.
    """
    ubi = _inner(record, "ubi") or _inner(_inner(record, "ext"), "ubi")
    for place in (record, ubi, _inner(_inner(record, "responseHeader"), "params")):
        for name in IDS:
            if place.get(name) is not None:
                return text(name, place[name])
    remedy = f"give each result list its search in one of {', '.join(IDS)}"
    raise InvalidValue("query_id", None, remedy)


def _inner(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = record.get(name)
    return value if isinstance(value, Mapping) else {}


def found(record: Mapping[str, Any], name: str) -> Any:
    """Return a field of a record, or of its attributes."""
    for place in (record, _inner(record, "query_attributes"), _inner(record, "event_attributes")):
        if place.get(name) is not None:
            return place[name]
    return None


# ---- What the columns of interleaved searches are called

ROW = ("search", "team", "position", "click")
"""The columns of a row for each item shown, or for each one clicked."""
MORE = ("item", "action", "amount")
PAIR = ("left", "right")
OWN = (*PAIR, "outcome", "interleaved", "clicks", "rankings", "decision_id")
"""Those of tacit's own log of duels."""


class Columns(NamedTuple):
    """What to read beside the fixed columns.

    Attributes
    ----------
    unit : str or None
        Whose searches are; None: the first of ``user``, ``client_id``, ``session``,
        ``session_id`` that there is.
    by : tuple of str
        Segments.
    renamed : dict
        From our names of columns to the file's.
    """

    unit: str | None = None
    by: tuple[str, ...] = ()
    renamed: Mapping[str, str] = {}

    @property
    def units(self) -> tuple[str, ...]:
        """Where the unit may stand, the likeliest first."""
        return UNITS if self.unit is None else (self.unit,)

    def owners(self, names: Iterable[str]) -> list[str]:
        """Return the columns that may say who searched, where no unit was named."""
        known = {*UNITS, *self.by, *self.renamed.values()}
        return [name for name in names if self.unit is None and name not in known and OWNER.fullmatch(name)]
