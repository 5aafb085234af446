"""The routes of placements that show lists."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.concurrency import run_in_threadpool

from tacit.errors import InvalidValue, TacitError
from tacit.service import wire_lists
from tacit.service.duels import DuelPlacement
from tacit.service.engine import Engine
from tacit.service.impressions import Clicks
from tacit.service.placement import Placement
from tacit.service.requests import Told
from tacit.service.rows import CLICKS, DecisionRow
from tacit.service.slates import SlatePlacement
from tacit.service.validation import checked_within

MOST_KEYS = 1000

Tell = Callable[[str, Sequence[Told]], Awaitable[list[str | TacitError]]]


class ListRoutes:
    """Decisions that show lists, and clicks in them.

    Parameters
    ----------
    engine : Engine
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def duel(self, name: str, request: wire_lists.DuelRequest) -> wire_lists.DuelAnswer:
        """Interleave the lists of two rankers."""
        told = self._duels(name).checked_duel(*_search(request))
        (row,) = await self._engine.decide_many(name, [told])
        return _decided(row, self._engine.durability(name))

    async def duel_many(
        self, name: str, request: wire_lists.DuelManyRequest
    ) -> wire_lists.DuelManyAnswer:
        """Do so for many searches."""
        check = self._duels(name).checked_duel
        told = [
            checked_within(f"decisions[{i}]", check, _search(one))
            for i, one in enumerate(request.decisions)
        ]
        rows = await self._engine.decide_many(name, told)
        durability = self._engine.durability(name)
        return wire_lists.DuelManyAnswer([_decided(row, durability) for row in rows])

    async def slate(self, name: str, request: wire_lists.SlateRequest) -> wire_lists.SlateAnswer:
        """Choose which arms to list."""
        told = self._slates(name).checked_slate(*_impression(request))
        (row,) = await self._engine.decide_many(name, [told])
        return _listed(row, self._engine.durability(name))

    async def slate_many(
        self, name: str, request: wire_lists.SlateManyRequest
    ) -> wire_lists.SlateManyAnswer:
        """Do so for many impressions."""
        check = self._slates(name).checked_slate
        told = [
            checked_within(f"decisions[{i}]", check, _impression(one))
            for i, one in enumerate(request.decisions)
        ]
        rows = await self._engine.decide_many(name, told)
        durability = self._engine.durability(name)
        return wire_lists.SlateManyAnswer([_listed(row, durability) for row in rows])

    def _slates(self, name: str) -> SlatePlacement:
        placement = self._engine.placement(name)
        if not isinstance(placement, SlatePlacement):
            raise wrong_kind(placement)
        return placement

    async def standings(
        self, name: str, key: str | None, confidence: float
    ) -> wire_lists.DuelStandings:
        """Say what the duels of a key say."""
        placement = self._duels(name)
        key, report = placement.report(key, confidence)
        keys = [wire_lists.DuelsOfKey(k, tally.duels) for k, tally in placement.tallies.items()]
        keys.sort(key=lambda one: -one.duels)
        # Intervals of many rankers take long, and decisions must not wait for them.
        content = await run_in_threadpool(report.as_dict)
        return wire_lists.DuelStandings(key, keys[:MOST_KEYS], content)

    def _duels(self, name: str) -> DuelPlacement:
        placement = self._engine.placement(name)
        if not isinstance(placement, DuelPlacement):
            raise wrong_kind(placement)
        return placement


def wrong_kind(placement: Placement) -> InvalidValue:
    """Return the error of asking a placement for what it does not decide."""
    return InvalidValue("placement", placement.name, f"ask it at its path {placement.asks_at!r}")


def clicks_told(request: wire_lists.ClicksRequest) -> Told:
    """Return clicks as the engine takes them.

    Raises
    ------
    InvalidValue
        If neither positions nor items are given, or both.
    """
    if (request.clicks is None) == (request.items is None):
        raise InvalidValue("clicks", request.clicks, "give clicks, or items in place of them")
    clicks = Clicks(request.clicks, request.items)
    return Told(request.decision_id, CLICKS, None, request.feedback_id, clicks)


def _impression(request: wire_lists.SlateRequest) -> tuple[Any, ...]:
    return request.key, request.arms, request.context, request.decision_id, request.deferred


def _listed(row: DecisionRow, durability: Any) -> wire_lists.SlateAnswer:
    slate = json.loads(row.shown or "")
    answer = wire_lists.SlateAnswer(row.id, slate, row.propensity, row.epoch, durability)
    if row.would is not None:
        would = json.loads(str(row.would))
        answer.would = wire_lists.WouldSlate(would, row.would_propensity)
    return answer


def _search(request: wire_lists.DuelRequest) -> tuple[Any, ...]:
    return request.key, request.rankings, request.context, request.decision_id, request.deferred


def _decided(row: DecisionRow, durability: Any) -> wire_lists.DuelAnswer:
    shown = json.loads(row.shown or "")
    left, right = shown["pair"]
    answer = wire_lists.DuelAnswer(row.id, left, right, row.propensity, row.epoch, durability)
    if "interleaved" in shown:
        interleaved = shown["interleaved"]
        answer.items = interleaved["items"]
        answer.teams = interleaved["memory"].get("teams")
        answer.probability = interleaved["probability"]
    if row.would is not None:
        left, right = json.loads(str(row.would))
        answer.would = wire_lists.WouldDuel(left, right, row.would_propensity)
    return answer


def number_asked(field: str, text: str) -> float:
    """Return a number of an address.

    Raises
    ------
    InvalidValue
        If it is none.
    """
    try:
        return float(text)
    except ValueError:
        raise InvalidValue(field, text, "give a number") from None
