"""The route that says what learning earned more than a control."""

from __future__ import annotations

from starlette.datastructures import QueryParams

from tacit.service.api.lists import number
from tacit.service.engine.service import Service
from tacit.service.http.route import GUARDED, Call, Route
from tacit.service.lift.report import LiftReport, lift_report


async def _lift(engine: Service, call: Call) -> LiftReport:
    query = QueryParams(call.query)
    confidence = number("confidence", query.get("confidence", "0.95"))
    placement = engine.placement(call.placement)
    stretch = query.get("from"), query.get("to")
    return lift_report(placement, engine.clock(), confidence, query.get("control"), stretch)


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
          )),
)  # fmt: skip
