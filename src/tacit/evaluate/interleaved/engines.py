"""What search engines answer: result lists of OpenSearch, Elasticsearch and Solr, and UBI.

- OpenSearch, ``POST _plugins/_search_relevance/ab_tests/{id}/_search`` (Search Relevance
  Workbench, merged in July 2026): ``hits``, each with ``_search_configuration_id``.
- OpenSearch and Elasticsearch, ``_search``: ``hits.hits``, each with ``_id``; who gave a hit stands
  in ``_search_configuration_id``, ``search_config`` or ``team``, of the hit or its ``fields``.
- Solr 8.8 and later with ``fl=id,[interleaving]``: ``response.docs``, each with
  ``[interleaving]``, the model that picked it.
- UBI 1.3 events; who gave the object stands in ``search_config`` of the object or of the
  attributes (as Chorus for OpenSearch sends it), or in ``tacit.team``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tacit.errors import InvalidValue
from tacit.evaluate.interleaved.searches import text

TEAMS = ("_search_configuration_id", "search_config", "_search_configuration", "team")
SOLR_TEAM = "[interleaving]"
IDS = ("query_id", "search", "search_id")
UNITS = ("user", "client_id", "session", "session_id")


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
        raise InvalidValue(f"{field}.{key}", None, "every result needs its id")
    team = hit.get(SOLR_TEAM) or team_of(hit) or team_of(_inner(hit, "fields"))
    return Hit(text(f"{field}.{key}", hit[key]), team)


def team_of(attributes: Mapping[str, Any]) -> str | None:
    """Return who gave an item, as its attributes say it; None if they do not."""
    for name in TEAMS:
        value = attributes.get(name)
        value = value[0] if isinstance(value, list) and len(value) == 1 else value
        if isinstance(value, str) and value:
            return value
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
