"""Lists and duels over HTTP, and what learning earned."""

from __future__ import annotations

import asyncio
from heapq import nsmallest
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams

from tacit.errors import InvalidValue
from tacit.interleaving.rules import CLICK
from tacit.service.config.keys import FEEDBACK
from tacit.service.engine.service import Service
from tacit.service.http.decisions import post, recording
from tacit.service.http.route import GUARDED, Call, Route
from tacit.service.kind import check_path
from tacit.service.log.ids import as_text
from tacit.service.log.requests import Clicks, Feedback, as_content
from tacit.service.log.rows import CLICKS
from tacit.service.placements.lift_report import MOST_DAILY, PLANNED_LIFT, LiftReport, Wish, lift_report
from tacit.wire import decisions as wire
from tacit.wire import lists as wire_lists

# ---- The routes of placements that show lists: clicks in them told, and what duels say

MOST_KEYS = 1000


def _clicks(request: wire_lists.Clicks) -> Feedback:
    """Return clicks as the engine takes them.

    Raises
    ------
    InvalidValue
        If neither positions nor items are given, or both.
    """
    if (request.clicks is None) == (request.items is None):
        raise InvalidValue("clicks", request.clicks, "give clicks, or items in place of them")
    action = CLICK if request.action is None else request.action
    clicks = Clicks(request.clicks, request.items, action)
    metrics = as_content(request.metrics)
    return Feedback(request.decision_id, CLICKS, None, request.feedback_id, clicks, metrics)


async def _standings(engine: Service, call: Call) -> wire_lists.Standings:
    query = QueryParams(call.query)
    confidence = number("confidence", query.get("confidence", "0.95"))
    placement: Any = engine.placement(call.placement)
    check_path(placement, "duel")
    key, report = placement.report(query.get("key"), confidence)
    # Many keys, and intervals of many rankers, take long, and decisions must not wait for them.
    keys = await run_in_threadpool(_busiest, placement)
    content = await run_in_threadpool(report.as_dict)
    return wire_lists.Standings(key, keys, content)


def _busiest(placement: Any) -> list[wire_lists.DuelsOfKey]:
    tallies = list(placement.tallies.items())
    most = nsmallest(MOST_KEYS, tallies, lambda kt: (-kt[1].duels, kt[0] != placement.leading))
    return [wire_lists.DuelsOfKey(key, tally.duels) for key, tally in most]


async def _verdict(engine: Service, call: Call) -> wire_lists.Verdict:
    query = QueryParams(call.query)
    confidence, false_share = (
        number(name, query.get(name, default))
        for name, default in (("confidence", "0.95"), ("false_share", "0.05"))
    )
    found = await engine.verdict(call.placement, confidence, false_share)
    since = None if found.since is None else as_text(found.since)
    until = as_text(found.until) if found.until else None
    return wire_lists.Verdict(**found._asdict() | {"since": since, "until": until})


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
         (wire_lists.Clicks, wire.Recorded), FEEDBACK, 409),
    post("clicks/batch", "clicksMany", "Say what was clicked in many lists", _click_many,
         (wire_lists.ClicksMany, wire.RecordedMany), FEEDBACK),
    Route("GET", "verdict", "verdict",
          "Say which ranker users prefer, by what their actions are worth, and where", _verdict,
          answer=wire_lists.Verdict, problems=(*GUARDED, 404, 422),
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
          answer=wire_lists.Standings, problems=(*GUARDED, 404, 422),
          query=(
              {"name": "key", "in": "query", "description": "By default that with the most duels.",
               "schema": {"type": "string"}},
              {"name": "confidence", "in": "query",
               "schema": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1,
                          "default": 0.95}},
          )),
)  # fmt: skip


# ---- The route that says what learning earned more than a control

WISHES = {
    "shown": "The lift that the planner asks about: 0.1 for 10 % more, which is the default.",
    "share": "The share of the control that it reckons with; by default the holdout's, or 0.1.",
    "rate": "The mean reward that it reckons with; by default the observed one. Give it before "
    "there is traffic.",
    "daily": "The decisions a day that it reckons with; by default those so far.",
}

BOUNDS = {
    name: {"maximum": most}
    for name, most in (("shown", 100.0), ("share", 0.5), ("rate", 1.0), ("daily", MOST_DAILY))
}


async def _lift(engine: Service, call: Call) -> LiftReport:
    query = QueryParams(call.query)
    confidence = number("confidence", query.get("confidence", "0.95"))
    placement = engine.placement(call.placement)
    stretch = query.get("from"), query.get("to")
    asked = {name: number(name, text) for name in WISHES if (text := query.get(name)) is not None}
    wish = Wish(lift=asked.pop("shown", PLANNED_LIFT), **asked)
    return await asyncio.to_thread(
        lift_report, placement.still(), engine.clock(), confidence, query.get("control"), stretch, wish
    )


LIFT_ROUTES = (
    Route("GET", "lift", "lift",
          "Say what learning earned more than a control, and how sure that is", _lift,
          answer=LiftReport, problems=(*GUARDED, 404, 422),
          query=(
              {"name": "confidence", "in": "query",
               "schema": {"type": "number", "enum": [0.9, 0.95, 0.99], "default": 0.95}},
              {"name": "control", "in": "query",
               "description": "In place of the holdout, what logged propensities compare with: "
               "``uniform``, or ``arm NAME``.",
               "schema": {"type": "string"}},
              {"name": "from", "in": "query",
               "description": "Only decisions from then on, in ISO 8601; about, as sums are kept "
               "over 128 slices of time. Of holdouts whose units are decisions.",
               "schema": {"type": "string"}},
              {"name": "to", "in": "query", "description": "Only decisions before then.",
               "schema": {"type": "string"}},
              *({"name": name, "in": "query", "description": meaning,
                 "schema": {"type": "number", "exclusiveMinimum": 0, **BOUNDS[name]}}
                for name, meaning in WISHES.items()),
          )),
)  # fmt: skip
