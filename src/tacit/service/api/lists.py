"""The routes of placements that show lists: clicks in them told, and what duels say."""

from __future__ import annotations

from heapq import nsmallest
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams

from tacit.errors import InvalidValue
from tacit.service.api import wire, wire_lists
from tacit.service.api.decisions import post, recording
from tacit.service.config.keys import FEEDBACK
from tacit.service.engine.service import Service
from tacit.service.http.route import GUARDED, Call, Route
from tacit.service.kind import check_path
from tacit.service.log.clock import as_text
from tacit.service.log.impressions import Clicks
from tacit.service.log.requests import Feedback, as_content
from tacit.service.log.rows import CLICKS

MOST_KEYS = 1000


def _clicks(request: wire_lists.ClicksRequest) -> Feedback:
    """Return clicks as the engine takes them.

    Raises
    ------
    InvalidValue
        If neither positions nor items are given, or both.
    """
    if (request.clicks is None) == (request.items is None):
        raise InvalidValue("clicks", request.clicks, "give clicks, or items in place of them")
    clicks = Clicks(request.clicks, request.items, request.action)
    metrics = as_content(request.metrics)
    return Feedback(request.decision_id, CLICKS, None, request.feedback_id, clicks, metrics)


async def _standings(engine: Service, call: Call) -> wire_lists.DuelStandings:
    query = QueryParams(call.query)
    confidence = number("confidence", query.get("confidence", "0.95"))
    placement: Any = engine.placement(call.placement)
    check_path(placement, "duel")
    key, report = placement.report(query.get("key"), confidence)
    # Many keys, and intervals of many rankers, take long, and decisions must not wait for them.
    keys = await run_in_threadpool(_busiest, placement)
    content = await run_in_threadpool(report.as_dict)
    return wire_lists.DuelStandings(key, keys, content)


def _busiest(placement: Any) -> list[wire_lists.DuelsOfKey]:
    tallies = list(placement.tallies.items())
    most = nsmallest(MOST_KEYS, tallies, lambda kt: (-kt[1].duels, kt[0] != placement.leading))
    return [wire_lists.DuelsOfKey(key, tally.duels) for key, tally in most]


async def _verdict(engine: Service, call: Call) -> wire_lists.DuelVerdict:
    query = QueryParams(call.query)
    confidence, false_share = (
        number(name, query.get(name, default))
        for name, default in (("confidence", "0.95"), ("false_share", "0.05"))
    )
    found = await engine.verdict(call.placement, confidence, false_share)
    since = None if found.since is None else as_text(found.since)
    until = as_text(found.until) if found.until else None
    return wire_lists.DuelVerdict(**found._asdict() | {"since": since, "until": until})


def number(field: str, text: str) -> float:
    """Return a parameter of an address as a number.

    Raises
    ------
    InvalidValue
        If it is none.
    """
    try:
        return float(text)
    except ValueError:
        raise InvalidValue(field, text, "give a number") from None


_click, _click_many = recording(_clicks)

ROUTES = (
    post("clicks", "clicks", "Say what was clicked in a list", _click,
         (wire_lists.ClicksRequest, wire.FeedbackAnswer), FEEDBACK, 409),
    post("clicks/batch", "clicksMany", "Say what was clicked in many lists", _click_many,
         (wire_lists.ClicksManyRequest, wire.FeedbackManyAnswer), FEEDBACK),
    Route("GET", "verdict", "verdict",
          "Say which ranker users prefer, by what their actions are worth, and where", _verdict,
          answer=wire_lists.DuelVerdict, problems=(*GUARDED, 404, 422),
          query=(
              {"name": "confidence", "in": "query",
               "schema": {"type": "number", "enum": [0.9, 0.95, 0.99], "default": 0.95}},
              {"name": "false_share", "in": "query",
               "description": "Of the segments that are found to differ, so much is wrong at "
               "most, on average.",
               "schema": {"type": "number", "exclusiveMinimum": 0, "maximum": 1,
                          "default": 0.05}},
          )),
    Route("GET", "duels", "duels",
          "Say which ranker is best, which are out, and when it is safe to stop", _standings,
          answer=wire_lists.DuelStandings, problems=(*GUARDED, 404, 422),
          query=(
              {"name": "key", "in": "query", "description": "By default that with the most duels.",
               "schema": {"type": "string"}},
              {"name": "confidence", "in": "query",
               "schema": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1,
                          "default": 0.95}},
          )),
)  # fmt: skip
