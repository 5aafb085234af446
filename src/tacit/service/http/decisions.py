"""Decisions and feedback over HTTP, made here or next to the caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import repeat
from typing import Any

import msgspec

from tacit.errors import InvalidValue, TacitError
from tacit.service.attribution.attribution import CORRECTED, LEARNED
from tacit.service.config.file import checked_within
from tacit.service.config.keys import ADMIN, DECIDE, FEEDBACK
from tacit.service.engine.service import Service
from tacit.service.errors import Conflict
from tacit.service.http.form import Form
from tacit.service.http.messages import file, problem_of
from tacit.service.http.route import GUARDED, Answer, Call, Limit, Route
from tacit.service.kind import KINDS, check_path, kind_of
from tacit.service.log.requests import (
    ChangeArms,
    DecisionRequest,
    Feedback,
    Impression,
    Made,
    as_content,
    rewards,
)
from tacit.service.log.rows import ACTIVATE, EXAMINED, REWARD
from tacit.service.placements.placement import Placement
from tacit.wire import decisions as wire
from tacit.wire.decisions import LocalDecision, LocalDecisions, TakenOver, TakenOverMany

# ---- The routes of decisions and feedback: requests read, the engine's work, answers written

POSTED = (*GUARDED, 400, 404, 413, 415, 422)
"""What a body may be refused with, whatever it asks for."""

Handler = Callable[[Service, Call], Awaitable[Any]]


# Decisions -----------------------------------------------------------------------------------


def deciding(path: str) -> tuple[Handler, Handler]:
    """Return the handlers of one request at a path and of many, of which all are decided or none.

    Placements are asked and answer as the form of their kind says.
    """

    async def decide(engine: Service, call: Call) -> msgspec.Struct:
        placement = engine.placement(call.placement)
        check_path(placement, path)
        form: Form = placement.kind.form
        (row,) = await engine.decide_many(call.placement, [form.read(placement, call.request)])
        return form.write(placement, row, engine.durability(call.placement))

    async def decide_many(engine: Service, call: Call) -> msgspec.Struct:
        placement = engine.placement(call.placement)
        check_path(placement, path)
        form: Form = placement.kind.form
        impressions = form.read_many(form, placement, call.request.decisions)
        rows = await engine.decide_many(call.placement, impressions)
        answers = form.write_many(form, placement, rows, engine.durability(call.placement))
        return form.wires.answers(answers)  # type: ignore[call-arg]

    return decide, decide_many


def decision_routes() -> Iterator[Route]:
    """Yield the routes at which placements of any kind are asked for decisions."""
    forms = (kind_of(name).form for name in KINDS)
    for path, form in {form.path: form for form in forms if form is not None}.items():
        one, many = deciding(path)
        wires = form.wires
        yield post(path, path, form.summary, one, (wires.request, wires.answer), DECIDE, 409)
        yield post(
            f"{path}/batch", f"{path}Many", form.summary_many, many,
            (wires.requests, wires.answers), DECIDE, 409,
        )  # fmt: skip


# Feedback ------------------------------------------------------------------------------------


def recording(
    read: Callable[[Any], Feedback], read_many: Callable[[Sequence[Any]], Sequence[Feedback]] | None = None
) -> tuple[Handler, Handler]:
    """Return the handlers of one piece of feedback and of many, each recorded or refused."""

    async def record(engine: Service, call: Call) -> wire.Recorded:
        feedback = read(call.request)
        (outcome,) = await engine.record_many(call.placement, [feedback])
        if isinstance(outcome, TacitError):
            raise outcome
        return _recorded(feedback.decision, outcome, engine.durability(call.placement))

    async def record_many(engine: Service, call: Call) -> wire.RecordedMany:
        requests = call.request.feedback
        if read_many is not None:
            feedback = read_many(requests)
        else:
            feedback = [checked_within(f"feedback[{i}]", read, (one,)) for i, one in enumerate(requests)]
        outcomes = await engine.record_many(call.placement, feedback)
        ids = [one.decision_id for one in requests]
        durability = repeat(engine.durability(call.placement))
        return wire.RecordedMany(list(map(_recorded, ids, outcomes, durability)))

    return record, record_many


def _recorded(id: str, outcome: str | TacitError, durability: Any) -> wire.Recorded:
    if isinstance(outcome, TacitError):
        outcome = problem_of(outcome).type.rpartition(":")[2]
    return wire.Recorded(id, outcome in (LEARNED, CORRECTED), outcome, durability)


def _reward(request: wire.Feedback) -> Feedback:
    metrics = as_content(request.metrics)
    return Feedback(request.decision_id, REWARD, request.reward, request.feedback_id, metrics=metrics)


def _rewards(requests: Sequence[wire.Feedback]) -> Sequence[Feedback]:
    fields = ((one.decision_id, one.reward, one.feedback_id) for one in requests)
    decisions, values, ids = zip(*fields, strict=True)
    block = rewards(decisions, values, ids)
    metrics = [one.metrics for one in requests]
    if not any(metrics):
        return block
    return block.with_column("metrics", list(map(as_content, metrics)))


def _examined(request: wire.Event) -> Feedback:
    return Feedback(request.decision_id, EXAMINED, None, request.feedback_id)


def _activated(request: wire.Event) -> Feedback:
    return Feedback(request.decision_id, ACTIVATE, None, request.feedback_id)


async def _switch(engine: Service, call: Call) -> wire.ModeNow:
    await engine.switch(call.placement, call.request.mode, call.who)
    return wire.ModeNow(call.request.mode)


async def _change_arms(engine: Service, call: Call) -> wire.ArmsNow:
    asked = call.request
    change = ChangeArms(call.placement, asked.add, asked.retire, asked.restore, call.who)
    offer = await engine.change_arms(change)
    return wire.ArmsNow(offer.arms, offer.retired)


# The routes ----------------------------------------------------------------------------------


def post(
    path: str,
    operation: str,
    summary: str,
    handler: Handler,
    wires: tuple[Any, Any],
    scope: str,
    *problems: int,
) -> Route:
    """Return the route of a POST below a placement; of a batch by the end of its path."""
    limit: Limit = "batch_limit" if path.endswith("/batch") else "body_limit"
    return Route("POST", path, operation, summary, handler, *wires, scope, limit, (*POSTED, *problems))


_feedback, _feedback_many = recording(_reward, _rewards)
_event = wire.Event, wire.Recorded

ROUTES = (
    *decision_routes(),
    post("feedback", "feedback", "Say what came back for a decision", _feedback,
         (wire.Feedback, wire.Recorded), FEEDBACK, 409),
    post("feedback/batch", "feedbackMany", "Say what came back for many decisions", _feedback_many,
         (wire.FeedbackMany, wire.RecordedMany), FEEDBACK),
    post("examined", "examined", "Say that what was shown was looked at",
         recording(_examined)[0], _event, FEEDBACK, 409),
    post("activate", "activate", "Let a deferred decision count from now on",
         recording(_activated)[0], _event, FEEDBACK, 409),
    post("mode", "mode", "Change the mode of a placement", _switch,
         (wire.ModeOf, wire.ModeNow), ADMIN),
    post("arms", "changeArms", "Let arms come, go and come back", _change_arms,
         (wire.ArmsOf, wire.ArmsNow), ADMIN),
)  # fmt: skip


# ---- The routes of those who decide next to their caller: what was learned, and what was decided

LOGGED = "logged"


async def _learner(engine: Service, call: Call) -> Answer:
    return file(await engine.lend(call.placement))


async def _take_over(engine: Service, call: Call) -> TakenOverMany:
    placement = engine.placement(call.placement)
    placement.check_takes_over()
    asked: list[LocalDecision] = call.request.decisions
    read = [_read(placement, one) for one in asked]
    good = [told for told in read if isinstance(told, Impression)]
    outcomes = iter(await _logged(engine, call.placement, good))
    made = [next(outcomes) if isinstance(told, Impression) else told for told in read]
    return TakenOverMany(
        [TakenOver(one.decision_id, *_told(error)) for one, error in zip(asked, made, strict=True)]
    )


def _read(placement: Placement, one: LocalDecision) -> Impression | TacitError:
    request = DecisionRequest(one.key, one.arms, one.context, one.decision_id)
    try:
        return placement.checked_made(request, Made(one.arm, one.propensity))
    except TacitError as error:
        return error


async def _logged(engine: Service, placement: str, told: Sequence[Impression]) -> list[TacitError | None]:
    """Log decisions at once or, where one of them cannot be, each for itself."""
    try:
        if told:
            await engine.decide_many(placement, told)
        return [None] * len(told)
    except (Conflict, InvalidValue) as error:
        if len(told) == 1:
            return [error]
    return [outcome for one in told for outcome in await _logged(engine, placement, [one])]


def _told(error: TacitError | None) -> tuple[str, str]:
    if error is None:
        return LOGGED, ""
    problem = problem_of(error)
    return problem.type.rpartition(":")[2], problem.detail


LOCAL_ROUTES = (
    Route("GET", "learner", "learner",
          "Return what was learned, as a file that a learner is loaded from", _learner,
          answer=bytes, problems=(*GUARDED, 404, 422)),
    post("local/batch", "takeOver", "Log decisions that were made next to the caller", _take_over,
         (LocalDecisions, TakenOverMany), DECIDE),
)  # fmt: skip
