"""The route that says what learning earned more than a control."""

from __future__ import annotations

import asyncio

from starlette.datastructures import QueryParams

from tacit.service.api.lists import number
from tacit.service.engine.service import Service
from tacit.service.http.route import GUARDED, Call, Route
from tacit.service.lift.report import MOST_DAILY, PLANNED_LIFT, LiftReport, Wish, lift_report

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


ROUTES = (
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
