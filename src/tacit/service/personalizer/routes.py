"""The routes of the Personalizer API: its requests in, the engine's work, its answers out."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from tacit.errors import TacitError
from tacit.service.engine import Engine
from tacit.service.errors import UnknownDecision
from tacit.service.ids import decision_id
from tacit.service.messages import received, sent
from tacit.service.personalizer import wire
from tacit.service.personalizer.errors import Refused, answer_of
from tacit.service.personalizer.evaluations import Run
from tacit.service.personalizer.paths import Place
from tacit.service.personalizer.placement import PersonalizerPlacement, Shown
from tacit.service.personalizer.requests import Asked, impression_of, impressions_of, slot_id
from tacit.service.personalizer.settings import (
    KEPT,
    MODES,
    configuration,
    moment,
    settings_of,
)
from tacit.service.requests import Told
from tacit.service.rows import ACTIVATE, ONLINE, REWARD, SHADOW

JSON, BYTES = "application/json", "application/octet-stream"
ROWS = 4096
MOST_EVALUATIONS = 100

logger = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode


class Call(NamedTuple):
    """A request, its address understood and its body decoded."""

    placement: PersonalizerPlacement
    id: str
    body: Any
    paged: bool
    """Whether lists are wanted as pages, as the later versions of the API have them."""


class Route(NamedTuple):
    """What answers a method at an address."""

    answer: Callable[[Call], Awaitable[Any]]
    body: Any = None
    status: int = 200


class PersonalizerRoutes:
    """All routes of the API, over all placements of its kind.

    Parameters
    ----------
    engine : Engine
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._evaluations: dict[tuple[str, str], wire.Evaluation] = {}
        self._running: set[asyncio.Task[None]] = set()
        kept = self._refusing("the log is kept, and what was learned is worked out from it")
        self._routes: dict[str, dict[str, Route]] = {
            "rank": {"POST": Route(self._rank, wire.RankRequest, 201)},
            "events/*/reward": {"POST": Route(self._reward, wire.RewardRequest, 204)},
            "events/*/activate": {"POST": Route(self._activate, None, 204)},
            "multislot/rank": {"POST": Route(self._rank_slots, wire.MultiSlotRankRequest, 201)},
            "multislot/events/*/reward": {
                "POST": Route(self._reward_slots, wire.MultiSlotRewardRequest, 204)
            },
            "multislot/events/*/activate": {"POST": Route(self._activate_slots, None, 204)},
            "configurations/service": {
                "GET": Route(self._configuration),
                "PUT": Route(self._configure, wire.ServiceConfiguration),
            },
            "configurations/policy": {
                "GET": Route(self._policy),
                "PUT": Route(self._set_policy, wire.PolicyContract),
                "DELETE": Route(self._policy),
            },
            "configurations/applyFromEvaluation": {
                "POST": Route(self._refusing("policies are set in the configuration file"))
            },
            "model": {"GET": Route(self._model), "PUT": Route(kept), "DELETE": Route(kept)},
            "model/properties": {"GET": Route(self._model_properties)},
            "logs": {"DELETE": Route(kept)},
            "logs/properties": {"GET": Route(self._log_properties)},
            "evaluations": {
                "GET": Route(self._list_evaluations),
                "POST": Route(self._evaluate, wire.EvaluationContract, 201),
            },
            "evaluations/*": {
                "GET": Route(self._evaluation),
                "PUT": Route(self._evaluate, wire.EvaluationContract),
                "DELETE": Route(self._forget_evaluation, None, 204),
            },
        }
        self._limit = engine.config.server.batch_limit

    async def __call__(self, place: Place, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            status, answer = await self._answered(place, scope, receive)
        except (TacitError, msgspec.MsgspecError) as error:
            status, answer = answer_of(error, place.action)
        if isinstance(answer, bytes):
            await sent(send, status, BYTES, answer)
        else:
            await sent(send, status, JSON, b"" if answer is None else _encode(answer))

    async def _answered(self, place: Place, scope: Scope, receive: Receive) -> tuple[int, Any]:
        methods = self._routes.get(place.action)
        if methods is None:
            raise Refused("ResourceNotFound", f"path: there is nothing at {scope['path']!r}", 404)
        route = methods.get(scope["method"])
        if route is None:
            raise Refused("BadRequest", f"method: this path takes {', '.join(methods)}", 405)
        raw = await received(receive, self._limit)
        if raw is None:
            message = f"body: send at most {self._limit} bytes in one request"
            raise Refused("PayloadSizeExceeded", message, 413)
        placement = self._placement(place.placement)
        if len(place.id) > wire.LONGEST:
            raise Refused("BadRequest", f"id: give at most {wire.LONGEST} characters")
        body = None if route.body is None else msgspec.json.decode(raw, type=route.body)
        paged = b"api-version=" in scope["query_string"]
        return route.status, await route.answer(Call(placement, place.id, body, paged))

    def _placement(self, name: str | None) -> PersonalizerPlacement:
        if name is None:
            named = self._engine.config.personalizer
            if named is None:
                raise Refused("ResourceNotFound", "personalizer.placement: none is configured", 404)
            name = named.placement
        placement = self._engine.placements.get(name)
        if not isinstance(placement, PersonalizerPlacement):
            raise Refused("ResourceNotFound", f"placement: none of this kind is {name!r}", 404)
        return placement

    # Events ----------------------------------------------------------------------------------

    async def _rank(self, call: Call) -> wire.RankResponse:
        told = impression_of(call.body, call.placement.dim)
        (row,) = await self._engine.decide_many(call.placement.name, [told])
        ranking = [
            wire.RankedAction(id=name, probability=chance or 0.0)
            for name, chance in Shown.of(row).ranking
        ]
        return wire.RankResponse(ranking=ranking, event_id=row.id, reward_action_id=str(row.arm))

    async def _reward(self, call: Call) -> None:
        await self._tell(call, [Told(call.id, REWARD, call.body.value)])

    async def _activate(self, call: Call) -> None:
        await self._tell(call, [Told(call.id, ACTIVATE)])

    async def _tell(self, call: Call, told: list[Told]) -> None:
        for outcome in await self._engine.tell_many(call.placement.name, told):
            if isinstance(outcome, TacitError):
                raise outcome

    async def _rank_slots(self, call: Call) -> wire.MultiSlotRankResponse:
        request: wire.MultiSlotRankRequest = call.body
        event = request.event_id or decision_id(self._engine.clock())
        told = impressions_of(request, call.placement.dim, event)
        rows = await self._engine.decide_many(call.placement.name, told)
        slots = [
            wire.SlotResponse(id=slot.id, reward_action_id=str(row.arm))
            for slot, row in zip(request.slots, rows, strict=True)
        ]
        return wire.MultiSlotRankResponse(slots=slots, event_id=event)

    async def _reward_slots(self, call: Call) -> None:
        names = (await self._slots(call)).slots
        told = []
        for i, each in enumerate(call.body.reward):
            if each.slot_id not in names:
                message = f"reward[{i}].slotId: {each.slot_id!r}; the event's slots are {names}"
                raise Refused("InvalidRewardRequest", message)
            id = slot_id(call.id, names.index(each.slot_id))
            told.append(Told(id, REWARD, each.value))
        await self._tell(call, told)

    async def _activate_slots(self, call: Call) -> None:
        count = len((await self._slots(call)).slots)
        await self._tell(call, [Told(slot_id(call.id, i), ACTIVATE) for i in range(count)])

    async def _slots(self, call: Call) -> Asked:
        id = slot_id(call.id, 0)
        first = (await self._engine.made(call.placement.name, [id])).get(id)
        if first is None or not (asked := Asked.read(first.asked)).slots:
            raise UnknownDecision(f"eventId: no multi-slot event has the id {call.id!r}")
        return asked

    # Settings --------------------------------------------------------------------------------

    async def _configuration(self, call: Call) -> wire.ServiceConfiguration:
        placement = call.placement
        return configuration(placement.settings, placement.mode, placement.edited, _days(call))

    async def _configure(self, call: Call) -> wire.ServiceConfiguration:
        told: wire.ServiceConfiguration = call.body
        placement, settings = call.placement, settings_of(told, _days(call))
        mode = MODES.get(str(told.learning_mode), placement.mode)
        # What the API cannot tell from the mode of now is no wish to leave it.
        if mode != placement.mode and (mode, placement.mode) != (ONLINE, SHADOW):
            await self._engine.switch(placement.name, mode)
        await self._engine.note_settings(placement.name, settings.text)
        return await self._configuration(call)

    async def _policy(self, call: Call) -> wire.PolicyContract:
        policy = call.placement.learner.policy
        return wire.PolicyContract(name=type(policy).__name__, arguments=repr(policy))

    async def _set_policy(self, call: Call) -> wire.PolicyContract:
        now = await self._policy(call)
        if call.body != now:
            raise Refused(
                "InvalidPolicyConfiguration",
                f"arguments: the policy is {now.arguments}; another one is set in the "
                "configuration file, of a placement with a new name",
            )
        return now

    # Model and log ---------------------------------------------------------------------------

    async def _model(self, call: Call) -> bytes:
        return call.placement.model()

    async def _model_properties(self, call: Call) -> wire.ModelProperties:
        made, taught = self._times(call)
        return wire.ModelProperties(
            creation_time=moment(made), last_modified_time=moment(taught or made)
        )

    async def _log_properties(self, call: Call) -> wire.LogsProperties:
        made, _ = self._times(call)
        now = moment(max(call.placement.windows.time, made))
        return wire.LogsProperties(date_range=wire.DateRange(start=moment(made), end=now))

    def _times(self, call: Call) -> tuple[int, int]:
        if not call.placement.made:
            raise Refused("LogsPropertiesNotFound", "log: nothing was decided yet", 404)
        return call.placement.made, call.placement.taught

    def _refusing(self, why: str) -> Callable[[Call], Awaitable[None]]:
        async def refuse(call: Call) -> None:
            raise Refused("OperationNotAllowed", f"path: this cannot be done here: {why}", 403)

        return refuse

    # Evaluations -----------------------------------------------------------------------------

    async def _evaluate(self, call: Call) -> wire.Evaluation:
        contract: wire.EvaluationContract = call.body
        placement, now = call.placement, self._engine.clock()
        id = call.id or decision_id(now)
        run = Run(contract, placement.config, placement.id)
        evaluation = wire.Evaluation(
            id=id,
            name=contract.name,
            start_time=contract.start_time,
            end_time=contract.end_time,
            creation_time=moment(now),
            job_id=id,
        )
        self._evaluations[placement.name, id] = evaluation
        while len(self._evaluations) > MOST_EVALUATIONS:
            del self._evaluations[next(iter(self._evaluations))]
        task = asyncio.create_task(self._carry_out(run, placement.name, evaluation))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return evaluation

    async def _carry_out(self, run: Run, placement: str, evaluation: wire.Evaluation) -> None:
        try:
            after = 0
            while rows := await self._engine.logged(placement, after, ROWS):
                await run_in_threadpool(run.take, rows)
                after = rows[-1].seq
            evaluation.policy_results = await run_in_threadpool(run.results)
            evaluation.status = "completed"
        # Whoever asks for it must learn that nothing more will come.
        except Exception:
            logger.exception("evaluation %s failed", evaluation.id)
            evaluation.status = "failed"

    async def _list_evaluations(self, call: Call) -> Any:
        name = call.placement.name
        found = [each for (of, _), each in self._evaluations.items() if of == name]
        return wire.Evaluations(value=found) if call.paged else found

    async def _evaluation(self, call: Call) -> wire.Evaluation:
        try:
            return self._evaluations[call.placement.name, call.id]
        except KeyError:
            message = f"evaluationId: there is none with the id {call.id!r}"
            raise Refused("EvaluationNotFound", message, 404) from None

    async def _forget_evaluation(self, call: Call) -> None:
        self._evaluations.pop((call.placement.name, call.id), None)


def _days(call: Call) -> int:
    """Return how long the log is kept, in whole days."""
    retention = call.placement.config.retention
    return KEPT if retention is None else math.ceil(retention)
