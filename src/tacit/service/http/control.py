"""The routes by which a placement is turned, and by which is seen who turned it."""

from __future__ import annotations

import msgspec
from starlette.datastructures import QueryParams

from tacit.core import checks
from tacit.service.config.holdout import ControlTable, HoldoutConfig
from tacit.service.config.keys import ADMIN
from tacit.service.engine.rebuilding import Rebuilt
from tacit.service.engine.service import Service
from tacit.service.http.decisions import post
from tacit.service.http.route import GUARDED, Call, Route
from tacit.service.log.ids import as_text, as_time
from tacit.service.log.marks import Pin
from tacit.service.log.requests import ChangeHoldout, PinArms
from tacit.wire import control as wire

MOST_CHANGES = 1000


async def _history(engine: Service, call: Call) -> wire.History:
    asked = QueryParams(call.query).get("limit", "100")
    limit = checks.integer("limit", int(asked) if asked.isdecimal() else asked, 1, MOST_CHANGES)
    changes = await engine.history(call.placement)
    return wire.History(
        [
            wire.Change(as_text(change.time), change.who, change.what, change.detail)
            for change in changes[: -limit - 1 : -1]
        ]
    )


async def _pin(engine: Service, call: Call) -> wire.PinNow:
    asked: wire.PinOf = call.request
    until = as_time("until", asked.until)
    return _pinned(await engine.pin(PinArms(call.placement, asked.arms, until, call.who)))


async def _unpin(engine: Service, call: Call) -> wire.PinNow:
    return _pinned(await engine.pin(PinArms(call.placement, who=call.who)))


def _pinned(pin: Pin | None) -> wire.PinNow:
    return wire.PinNow(None if pin is None else wire.Pinned(pin.arms, as_text(pin.until)))


async def _hold(engine: Service, call: Call) -> wire.HoldoutNow:
    asked: wire.HoldoutOf = call.request
    shown = asked.control
    control = shown if isinstance(shown, str) else ControlTable(arm=shown.arm)
    holdout = HoldoutConfig(asked.share, control, asked.unit, asked.look)
    return _held(await engine.hold(ChangeHoldout(call.placement, holdout, call.who)))


async def _hold_none(engine: Service, call: Call) -> wire.HoldoutNow:
    return _held(await engine.hold(ChangeHoldout(call.placement, None, call.who)))


def _held(holdout: HoldoutConfig | None) -> wire.HoldoutNow:
    if holdout is None:
        return wire.HoldoutNow(None)
    return wire.HoldoutNow(wire.Holdout(**msgspec.to_builtins(holdout)))


async def _states(engine: Service, call: Call) -> wire.States:
    states = await engine.states(call.placement)
    kept = [wire.StateKept(one.name, as_text(one.time), one.policy) for one in states]
    return wire.States(kept[::-1])


async def _rebuild(engine: Service, call: Call) -> wire.Rebuilt:
    return _rebuilt(await engine.rebuild(call.placement, call.request.policy, call.who))


async def _rollback(engine: Service, call: Call) -> wire.Rebuilt:
    return _rebuilt(await engine.rollback(call.placement, call.request.to, call.who))


def _rebuilt(made: Rebuilt) -> wire.Rebuilt:
    regime = made.regime
    return wire.Rebuilt(
        regime.policy, regime.left, made.rows, made.decisions, made.seconds, regime.approximate
    )


ROUTES = (
    post("rebuild", "rebuild", "Fold the log into another policy, and go on with that", _rebuild,
         (wire.RebuildOf, wire.Rebuilt), ADMIN, 409),
    post("rollback", "rollback", "Go back to what was learned before", _rollback,
         (wire.RollbackOf, wire.Rebuilt), ADMIN, 409),
    Route("GET", "states", "states", "List what a placement can go back to", _states,
          answer=wire.States, problems=(*GUARDED, 404)),
    post("pin", "pin", "Let every decision show an arm or a list until a time", _pin,
         (wire.PinOf, wire.PinNow), ADMIN),
    Route("DELETE", "pin", "unpin", "Let the policy decide again", _unpin,
          answer=wire.PinNow, scope=ADMIN, problems=(*GUARDED, 404)),
    post("holdout", "holdOut", "Give a placement another holdout", _hold,
         (wire.HoldoutOf, wire.HoldoutNow), ADMIN),
    Route("DELETE", "holdout", "endHoldout", "Show nobody a control any more", _hold_none,
          answer=wire.HoldoutNow, scope=ADMIN, problems=(*GUARDED, 404, 422)),
    Route("GET", "history", "history", "Say who changed what of a placement, and when", _history,
          answer=wire.History, problems=(*GUARDED, 404, 422),
          query=(
              {"name": "limit", "in": "query",
               "schema": {"type": "integer", "minimum": 1, "maximum": MOST_CHANGES,
                          "default": 100}},
          )),
)  # fmt: skip
