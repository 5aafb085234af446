"""Personalizer's routes: its errors, its evaluations, and the table.

Errors come in the form of that API. Evaluations weigh rows of the log by what other settings would have
shown. Then the routes one after the other, and last the table of them.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
from msgspec.json import encode
from starlette.concurrency import run_in_threadpool

from tacit.core.dispatch import canonical
from tacit.core.part import parsed_call
from tacit.errors import InvalidValue, TacitError
from tacit.evaluate.intervals import Sums, estimate_of, normal, summed
from tacit.learning.learner import Learner
from tacit.policies import LinearEpsilonGreedy, policy_from_spec
from tacit.service.config.keys import ADMIN, DECIDE, FEEDBACK, READ
from tacit.service.config.schema import PlacementConfig
from tacit.service.doors import personalizer
from tacit.service.doors import personalizer_wire as wire
from tacit.service.engine.service import LoggedService
from tacit.service.errors import UnknownDecision
from tacit.service.http.messages import Problem, file, problem_of
from tacit.service.http.route import GUARDED, Answer, Api, Error, Header, Refusals, Route, RouteCall
from tacit.service.log.blocks import distinct
from tacit.service.log.ids import decision_id
from tacit.service.log.requests import FeedbackRequest
from tacit.service.log.rows import (
    ACTIVATE,
    APPRENTICE,
    ONLINE,
    REWARD,
    SETTINGS,
    SHADOW,
    DecisionRow,
    Event,
    FeedbackRow,
    stretches,
)
from tacit.service.placements.attribution import Attribution, Lessons
from tacit.service.placements.placement import NewSettings
from tacit.wire.control import ModeOf

# ---- Errors in the form of the Personalizer API

CODES = {
    "rank": "InvalidRankRequest",
    "events/{id}/reward": "InvalidRewardRequest",
    "events/{id}/activate": "InvalidEventIdToActivate",
    "configurations/service": "InvalidServiceConfiguration",
    "configurations/policy": "InvalidPolicyConfiguration",
    "evaluations": "InvalidEvaluationContract",
    "evaluations/{id}": "InvalidEvaluationContract",
}
"""How the API calls what is wrong with a request at a path; for many slots as for one."""
OF_PATHS = {
    "unknown-path": "ResourceNotFound",
    "method-not-allowed": "BadRequest",
    "body-too-large": "PayloadSizeExceeded",
}
"""How the API calls what is wrong with no field of a request."""
NAMES = {"decision_id": "eventId", "reward": "value"}
"""How the API calls what others call otherwise."""
BAD_REQUEST, NOT_FOUND, FAILED = "BadRequest", "ResourceNotFound", "InternalServerError"


class NotServed(TacitError):
    """What this service does not do; ``code`` is the API's name for it."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


def _failed(error: Error, route: Route) -> Answer:
    if isinstance(error, NotServed):
        return _answer(error.status, str(error), error.code)
    found = problem_of(error)
    # The API knows no 422: what it cannot take is a bad request.
    status = 400 if found.status == 422 else found.status
    path = route.path.removeprefix("multislot/")
    inner = "EventNotFound" if isinstance(error, UnknownDecision) else CODES.get(path)
    field = NAMES.get(found.field, found.field)
    return _answer(status, field + found.detail.removeprefix(found.field), inner, field)


def _refused(found: Problem, *headers: Header) -> Answer:
    kind = found.type.rpartition(":")[2]
    if kind in OF_PATHS:
        return _answer(found.status, found.detail, OF_PATHS[kind], None, *headers)
    inner = "".join(word.capitalize() for word in kind.split("-"))
    return _answer(found.status, found.detail, inner, found.field, *headers)


def _answer(
    status: int, message: str, inner: str | None, target: str | None = None, *headers: Header
) -> Answer:
    code = FAILED if status >= 500 else NOT_FOUND if status == 404 else BAD_REQUEST
    inner_error = None if inner is None else wire.InnerError(code=inner)
    error = wire.PersonalizerError(code=code, message=message, target=target, inner_error=inner_error)
    return Answer(status, "application/json", encode(wire.ErrorResponse(error=error)), headers)


REFUSALS = Refusals(
    _refused, _failed, wire.ErrorResponse, "application/json", lambda status: "It was refused"
)


# ---- Offline evaluations: what baseline, chance and other settings would have earned, from the log
#
# The value of a policy π is estimated by importance weighting: each reward counts π/p, the
# probability under π of the action that was shown over the logged one. The mean reward is
# self-normalised (SNIPS), and so is its interval. Settings that are evaluated learn from the log
# as they go, one decision after the other, and are weighed before they learn.
#
# What was shown in apprentice mode was never drawn, and is left out.

ONLINE_POLICY, BASELINE, RANDOM = "Online", "Baseline", "Random"


class _Shown(NamedTuple):
    """What was shown, and what it weighs under each policy."""

    row: DecisionRow
    weights: list[float]
    decisions: list[Any]


class EvaluationRun:
    """One evaluation, fed with the log in parts.

    Parameters
    ----------
    contract : EvaluationContract
    config : PlacementConfig
    placement : int
        The store's number for it.

    Raises
    ------
    NotServed
        If the contract cannot be kept.
    """

    def __init__(self, contract: wire.EvaluationContract, config: PlacementConfig, placement: int) -> None:
        self._contract, self._config, self._placement = contract, config, placement
        self._first, self._last = _micro(contract.start_time), _micro(contract.end_time)
        if self._last <= self._first:
            raise NotServed("InvalidEvaluationContract", "endTime: give a time after startTime")
        asked = contract.policies or []
        names = [policy.name for policy in asked]
        if len(set(names)) < len(names):
            raise NotServed("DuplicateCustomPolicyNames", "policies: give each a name of its own")
        self._learners = [Learner(policy_of(each), seed=0) for each in asked]
        self._windows = Attribution(config.rule)
        self._open: dict[int, _Shown] = {}
        self._weights: list[list[float]] = [[] for _ in range(3 + len(asked))]
        self._rewards: list[float] = []

    def take(self, events: Sequence[Event]) -> None:
        """Take in a part of the log."""
        for rows in stretches(events):
            self._learn(self._windows.advance(rows[0].time))
            if rows[0].placement != self._placement:
                continue
            if rows.kind is DecisionRow:
                self._windows.decided(rows)
                for row in rows:
                    if self._first <= row.time <= self._last and row.mode != APPRENTICE:
                        self._open[row.seq] = self._weighed(row)
            elif rows.kind is FeedbackRow:
                for part in distinct(rows, "decision"):
                    for rewards in self._windows.take_in(part)[1]:
                        self._learn(rewards)
            else:
                for mark in rows:
                    if mark.kind == SETTINGS:
                        rule = wire.Settings.read(mark.value).rule(self._config.rule)
                        self._windows.rule = rule

    def _weighed(self, row: DecisionRow) -> _Shown:
        shown, asked = personalizer.ShownRanking.of(row), personalizer.Asked.read(row.asked)
        candidates, chance = shown.candidates, row.propensity or 1.0
        baseline = asked.baseline or next(name for name, _ in asked.actions if name in candidates)
        weights = [1.0, float(row.arm == baseline) / chance, 1.0 / len(candidates) / chance]
        decisions = []
        for learner in self._learners:
            features = dict(asked.actions)
            rows = wire.vectors(
                wire.features_of("contextFeatures", asked.context),
                [wire.features_of("features", features[name]) for name in candidates],
                learner.policy.feature_dims[0],
            )
            place = candidates.index(str(row.arm))
            chances = learner.probabilities(personalizer.KEY, None, candidates, relevance=rows)
            assert chances is not None
            weights.append(float(chances[place]) / chance)
            decision = learner.choose(personalizer.KEY, None, [row.arm], relevance=rows[[place]])
            decisions.append(decision)
        return _Shown(row, weights, decisions)

    def _learn(self, rewards: Lessons) -> None:
        for seq, reward in self._windows.earned(rewards):
            made = self._open.pop(seq, None)
            if made is None:
                continue
            for weights, weight in zip(self._weights, made.weights, strict=True):
                weights.append(weight)
            self._rewards.append(reward)
            lowest = self._config.rule.lowest
            for learner, decision in zip(self._learners, made.decisions, strict=True):
                learner.learn(decision, (reward - lowest) / (1.0 - lowest))

    def results(self) -> list[wire.PolicyResult]:
        """Return what each policy would have earned."""
        policy = self._config.policy
        compared: list[tuple[str, str, Any]] = [
            (ONLINE_POLICY, repr(policy), "Online"), (BASELINE, "", "Baseline"), (RANDOM, "", "Random"),
            *((each.name, each.arguments, "Custom") for each in self._contract.policies or []),
        ]  # fmt: skip
        rewards = np.array(self._rewards)
        results = []
        for (name, arguments, source), weights in zip(compared, self._weights, strict=True):
            drawn = np.array(weights)
            total = self._summary(summed(drawn, drawn * rewards), float((drawn > 0).sum()))
            result = wire.PolicyResult(
                name=name, arguments=arguments, policy_source=source, summary=[total], total_summary=total
            )
            results.append(result)
        return results

    def _summary(self, sums: Sums, reached: float) -> wire.PolicyResultSummary:
        low, high = normal(sums, ratio=True)
        mean, radius = estimate_of(sums, ratio=True), (high - low) / 2
        return wire.PolicyResultSummary(
            ips_estimator_numerator=sums.y,
            ips_estimator_denominator=float(sums.n),
            snips_estimator_denominator=sums.w,
            non_zero_probability=reached / sums.n if sums.n else 0.0,
            sum_of_squares=sums.yy,
            average_reward=None if np.isnan(mean) else mean,
            confidence_interval=None if np.isnan(radius) else radius,
            time_stamp=self._contract.start_time,
            aggregate_time_window=timedelta(microseconds=self._last - self._first),
        )


def policy_of(contract: wire.PolicyContract) -> LinearEpsilonGreedy:
    """Return the policy whose text a contract holds.

    Raises
    ------
    NotServed
        If it holds another text.
    """
    try:
        name, *_ = parsed_call(contract.arguments)
        if canonical(name) == canonical(LinearEpsilonGreedy.__name__):
            # Any other name could have a module imported, and so run.
            policy = policy_from_spec(contract.arguments)
            assert isinstance(policy, LinearEpsilonGreedy)
            return policy
    except TacitError as error:
        raise NotServed("InvalidPolicyContract", f"policies.arguments: {error}") from error
    raise NotServed(
        "InvalidPolicyContract",
        f"policies.arguments: {contract.arguments!r}; give a LinearEpsilonGreedy(dim=…)",
    )


def _micro(moment: datetime) -> int:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round((aware - datetime.fromtimestamp(0, UTC)) / timedelta(microseconds=1))


# ---- The routes of the Personalizer API: its requests in, the engine's work, its answers out

ROWS = 4096
MOST_EVALUATIONS = 100

logger = logging.getLogger(__name__)


class Personalizer:
    """What the API does, over all placements of its kind.

    Parameters
    ----------
    engine : LoggedService
    """

    def __init__(self, engine: LoggedService) -> None:
        self._engine = engine
        self._evaluations: dict[tuple[str, str], wire.Evaluation] = {}
        self._running: set[asyncio.Task[None]] = set()

    def usual(self) -> str | None:
        """Return the name of the placement of the configuration, if there is one."""
        named = self._engine.config.personalizer
        return None if named is None else named.placement

    def placed(self, name: str | None, id: str) -> personalizer.PersonalizerPlacement:
        """Return the placement of a name, or that of the configuration.

        Raises
        ------
        NotServed
            If there is none, or no event can have the id.
        """
        name = name or self.usual()
        if name is None:
            remedy = "add [personalizer] with placement, the name of one of kind personalizer"
            raise NotServed("ResourceNotFound", f"personalizer.placement: none is configured; {remedy}", 404)
        placement = self._engine.placements.get(name)
        if not isinstance(placement, personalizer.PersonalizerPlacement):
            raise NotServed("ResourceNotFound", f"placement: none of this kind is {name!r}", 404)
        if len(id) > wire.LONGEST:
            raise NotServed("BadRequest", f"id: give at most {wire.LONGEST} characters")
        return placement

    # Events ----------------------------------------------------------------------------------

    async def _rank(self, call: RouteCall) -> wire.RankResponse:
        impression = personalizer.impression_of(call.request, call.placement.dim)
        (row,) = await self._engine.decide_many(call.placement.name, [impression])
        ranking = [
            wire.RankedAction(id=name, probability=chance or 0.0)
            for name, chance in personalizer.ShownRanking.of(row).ranking
        ]
        return wire.RankResponse(ranking=ranking, event_id=row.id, reward_action_id=str(row.arm))

    async def _reward(self, call: RouteCall) -> None:
        await self._tell(call, [FeedbackRequest(call.id, REWARD, call.request.value)])

    async def _activate(self, call: RouteCall) -> None:
        await self._tell(call, [FeedbackRequest(call.id, ACTIVATE)])

    async def _tell(self, call: RouteCall, feedback: list[FeedbackRequest]) -> None:
        for outcome in await self._engine.record_many(call.placement.name, feedback):
            if isinstance(outcome, TacitError):
                raise outcome

    async def _rank_slots(self, call: RouteCall) -> wire.MultiSlotRankResponse:
        request: wire.MultiSlotRankRequest = call.request
        if call.placement.control.coin is not None:
            # Its slots take actions from each other: no coin of their own tells what each earns.
            raise InvalidValue(
                "slots",
                len(request.slots),
                "the placement has a holdout, which compares events of one slot: ask rank, or "
                "leave the holdout out",
            )
        event = request.event_id or decision_id(self._engine.clock())
        impressions = personalizer.impressions_of(request, call.placement.dim, event)
        rows = await self._engine.decide_many(call.placement.name, impressions)
        slots = [
            wire.SlotResponse(id=slot.id, reward_action_id=str(row.arm))
            for slot, row in zip(request.slots, rows, strict=True)
        ]
        return wire.MultiSlotRankResponse(slots=slots, event_id=event)

    async def _reward_slots(self, call: RouteCall) -> None:
        names = (await self._slots(call)).slots
        feedback = []
        for i, each in enumerate(call.request.reward):
            if each.slot_id not in names:
                message = f"reward[{i}].slotId: {each.slot_id!r}; the event's slots are {names}"
                raise NotServed("InvalidRewardRequest", message)
            id = personalizer.slot_id(call.id, names.index(each.slot_id))
            feedback.append(FeedbackRequest(id, REWARD, each.value))
        await self._tell(call, feedback)

    async def _activate_slots(self, call: RouteCall) -> None:
        count = len((await self._slots(call)).slots)
        await self._tell(
            call, [FeedbackRequest(personalizer.slot_id(call.id, i), ACTIVATE) for i in range(count)]
        )

    async def _slots(self, call: RouteCall) -> personalizer.Asked:
        id = personalizer.slot_id(call.id, 0)
        first = (await self._engine.made(call.placement.name, [id])).get(id)
        if first is None or not (asked := personalizer.Asked.read(first.asked)).slots:
            raise UnknownDecision(f"eventId: no multi-slot event has the id {call.id!r}")
        return asked

    # Settings --------------------------------------------------------------------------------

    async def _configuration(self, call: RouteCall) -> wire.ServiceConfiguration:
        placement = call.placement
        return wire.configuration(placement.settings, placement.mode, placement.edited, _days(call))

    async def _configure(self, call: RouteCall) -> wire.ServiceConfiguration:
        wanted: wire.ServiceConfiguration = call.request
        placement, settings = call.placement, wire.settings_of(wanted, _days(call))
        mode = wire.MODES.get(str(wanted.learning_mode), placement.mode)
        # What the API cannot tell from the mode of now is no wish to leave it.
        if mode != placement.mode and (mode, placement.mode) != (ONLINE, SHADOW):
            await self._engine.ask(placement.name, ModeOf(mode), call.who)
        await self._engine.ask(placement.name, NewSettings(settings.text), call.who)
        return await self._configuration(call)

    async def _policy(self, call: RouteCall) -> wire.PolicyContract:
        policy = call.placement.learner.policy
        return wire.PolicyContract(name=type(policy).__name__, arguments=repr(policy))

    async def _set_policy(self, call: RouteCall) -> wire.PolicyContract:
        now = await self._policy(call)
        if call.request != now:
            raise NotServed(
                "InvalidPolicyConfiguration",
                f"arguments: the policy is {now.arguments}; another one is set in the "
                "configuration file, of a placement with a new name",
            )
        return now

    # Model and log ---------------------------------------------------------------------------

    async def _model(self, call: RouteCall) -> Answer:
        return file(await self._engine.learner(call.placement.name))

    async def _model_properties(self, call: RouteCall) -> wire.ModelProperties:
        made, taught = self._times(call)
        return wire.ModelProperties(
            creation_time=wire.moment(made), last_modified_time=wire.moment(taught or made)
        )

    async def _log_properties(self, call: RouteCall) -> wire.LogsProperties:
        made, _ = self._times(call)
        now = wire.moment(max(call.placement.windows.time, made))
        return wire.LogsProperties(date_range=wire.DateRange(start=wire.moment(made), end=now))

    def _times(self, call: RouteCall) -> tuple[int, int]:
        if not call.placement.made:
            raise NotServed("LogsPropertiesNotFound", "log: nothing was decided yet", 404)
        return call.placement.made, call.placement.taught

    # Evaluations -----------------------------------------------------------------------------

    async def _evaluate(self, call: RouteCall) -> wire.Evaluation:
        contract: wire.EvaluationContract = call.request
        placement, now = call.placement, self._engine.clock()
        id = call.id or decision_id(now)
        run = EvaluationRun(contract, placement.config, placement.id)
        evaluation = wire.Evaluation(
            id=id,
            name=contract.name,
            start_time=contract.start_time,
            end_time=contract.end_time,
            creation_time=wire.moment(now),
            job_id=id,
        )
        self._evaluations[placement.name, id] = evaluation
        while len(self._evaluations) > MOST_EVALUATIONS:
            del self._evaluations[next(iter(self._evaluations))]
        task = asyncio.create_task(self._carry_out(run, placement.name, evaluation))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return evaluation

    async def _carry_out(self, run: EvaluationRun, placement: str, evaluation: wire.Evaluation) -> None:
        try:
            after = 0
            while rows := await self._engine.logged(placement, after, ROWS):
                await run_in_threadpool(run.take, rows)
                after = rows[-1].seq
            evaluation.policy_results = await run_in_threadpool(run.results)
            evaluation.status = "completed"
        # Who asks for it must learn that nothing more will come.
        except Exception:
            logger.exception("evaluation %s failed", evaluation.id)
            evaluation.status = "failed"

    async def _list_evaluations(self, call: RouteCall) -> Any:
        name = call.placement.name
        found = [each for (of, _), each in self._evaluations.items() if of == name]
        return wire.Evaluations(value=found) if b"api-version=" in call.query else found

    async def _evaluation(self, call: RouteCall) -> wire.Evaluation:
        try:
            return self._evaluations[call.placement.name, call.id]
        except KeyError:
            message = f"evaluationId: there is none with the id {call.id!r}"
            raise NotServed("EvaluationNotFound", message, 404) from None

    async def _forget_evaluation(self, call: RouteCall) -> None:
        self._evaluations.pop((call.placement.name, call.id), None)


def _days(call: RouteCall) -> int:
    """Return how long the log is kept, in whole days."""
    retention = call.placement.config.retention
    return wire.KEPT if retention is None else math.ceil(retention)


def _refusing(why: str) -> Callable[[Any, RouteCall], Awaitable[None]]:
    async def refuse(opened: Any, call: RouteCall) -> None:
        raise NotServed("OperationNotAllowed", f"path: this cannot be done here: {why}", 403)

    return refuse


# The routes ----------------------------------------------------------------------------------

PROBLEMS = (*GUARDED, 400, 404, 409, 413, 415)


def _route(
    target: str,
    operation: str,
    summary: str,
    handler: Callable[[Personalizer, RouteCall], Awaitable[Any]],
    wires: tuple[Any, Any] = (None, None),
    scope: str = ADMIN,
    status: int = 200,
) -> Route:
    """Return the route of a method and a path."""
    method, path = target.split()
    scope = READ if method == "GET" else scope
    operation = f"personalizer_{operation}"
    return Route(method, path, operation, summary, handler, *wires, scope, "batch_limit", PROBLEMS, status)


_of = Personalizer
_kept = _refusing("the log is kept, and what was learned is worked out from it")
_set_in_file = _refusing("policies are set in the configuration file")
_worked_out = "Refuse: it is worked out from the log"
_activation = "Let a deferred event count"

ROUTES = (
    _route("POST rank", "rank", "Choose one of the actions", _of._rank,
           (wire.RankRequest, wire.RankResponse), DECIDE, 201),
    _route("POST events/{id}/reward", "reward", "Say what an event was worth", _of._reward,
           (wire.RewardRequest, None), FEEDBACK, 204),
    _route("POST events/{id}/activate", "activateEvent", _activation, _of._activate,
           scope=FEEDBACK, status=204),
    _route("POST multislot/rank", "rankSlots", "Choose an action for each slot", _of._rank_slots,
           (wire.MultiSlotRankRequest, wire.MultiSlotRankResponse), DECIDE, 201),
    _route("POST multislot/events/{id}/reward", "rewardSlots", "Say what its slots were worth",
           _of._reward_slots, (wire.MultiSlotRewardRequest, None), FEEDBACK, 204),
    _route("POST multislot/events/{id}/activate", "activateSlots", _activation,
           _of._activate_slots, scope=FEEDBACK, status=204),
    _route("GET configurations/service", "configuration", "Say how rewards are waited for",
           _of._configuration, (None, wire.ServiceConfiguration)),
    _route("PUT configurations/service", "configure", "Change that, from now on",
           _of._configure, (wire.ServiceConfiguration, wire.ServiceConfiguration)),
    _route("GET configurations/policy", "policy", "Name the policy",
           _of._policy, (None, wire.PolicyContract)),
    _route("PUT configurations/policy", "setPolicy", "Confirm the policy",
           _of._set_policy, (wire.PolicyContract, wire.PolicyContract)),
    _route("DELETE configurations/policy", "resetPolicy", "Return the policy, which stays",
           _of._policy, (None, wire.PolicyContract)),
    _route("POST configurations/applyFromEvaluation", "applyFromEvaluation",
           "Refuse: policies are set in the configuration file", _set_in_file, status=403),
    _route("GET model", "model", "Return what was learned", _of._model, (None, bytes)),
    _route("PUT model", "setModel", _worked_out, _kept, status=403),
    _route("DELETE model", "resetModel", _worked_out, _kept, status=403),
    _route("DELETE logs", "deleteLogs", "Refuse: the log is kept", _kept, status=403),
    _route("GET model/properties", "modelProperties", "Say when something was learned",
           _of._model_properties, (None, wire.ModelProperties)),
    _route("GET logs/properties", "logProperties", "Say what the log holds",
           _of._log_properties, (None, wire.LogsProperties)),
    _route("GET evaluations", "evaluations", "List offline evaluations",
           _of._list_evaluations, (None, list[wire.Evaluation])),
    _route("POST evaluations", "evaluate", "Begin an offline evaluation",
           _of._evaluate, (wire.EvaluationContract, wire.Evaluation), status=201),
    _route("GET evaluations/{id}", "evaluation", "Return an offline evaluation",
           _of._evaluation, (None, wire.Evaluation)),
    _route("PUT evaluations/{id}", "evaluateAs", "Begin an offline evaluation under an id",
           _of._evaluate, (wire.EvaluationContract, wire.Evaluation)),
    _route("DELETE evaluations/{id}", "forgetEvaluation", "Forget an offline evaluation",
           _of._forget_evaluation, status=204),
)  # fmt: skip
PERSONALIZER = Api(
    "/personalizer/v1.0/",
    r"(?:/v1/placements/(?P<name>[^/]+))?/personalizer(?:/v1\.[01](?:-preview\.\d)?)?/",
    ROUTES,
    REFUSALS,
    # Its kind has no shards, so the service has one log.
    lambda site: Personalizer(site.engine),
    label="personalizer/",
    placed=Personalizer.placed,
    usual=Personalizer.usual,
    whole=True,
    key_header=b"ocp-apim-subscription-key",
)
