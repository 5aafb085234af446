"""The routes of those who decide next to their caller: what was learned, and what was decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from tacit.errors import InvalidValue, TacitError
from tacit.service.api.decisions import post
from tacit.service.api.wire import Arm, DecisionId, Key, NewDecisionId
from tacit.service.config.keys import DECIDE
from tacit.service.engine.service import Service
from tacit.service.errors import Conflict
from tacit.service.http.messages import file
from tacit.service.http.problems import problem_of
from tacit.service.http.route import GUARDED, Answer, Call, Route
from tacit.service.log.impressions import DecisionRequest, Impression, Made
from tacit.service.placements.base import Placement

LOGGED = "logged"


class LocalDecision(msgspec.Struct, forbid_unknown_fields=True):
    """A decision that was made next to the caller, with what the service had learned."""

    decision_id: NewDecisionId
    key: Key
    arm: Arm
    propensity: Annotated[
        float | None,
        Meta(description="Probability in (0, 1] with which it was chosen; null if deterministic."),
    ] = None
    arms: Annotated[list[int | str], Meta(description="The arms on offer; all if left out.")] | None = None
    context: list[float] | None = None


class LocalDecisions(msgspec.Struct, forbid_unknown_fields=True):
    """Many decisions that were made next to the caller."""

    decisions: Annotated[list[LocalDecision], Meta(min_length=1, max_length=1000)]


class TakenOver(msgspec.Struct):
    """What became of one."""

    decision_id: DecisionId
    outcome: Annotated[
        str,
        Meta(
            description="``logged``, or the kind of its problem: ``invalid-value``; ``conflict`` "
            "where the id stands for another decision."
        ),
    ]
    detail: Annotated[str, Meta(description="What the problem is; empty if there is none.")] = ""


class TakenOverMany(msgspec.Struct):
    """What became of each, in the order of the request."""

    decisions: list[TakenOver]


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


ROUTES = (
    Route("GET", "learner", "learner",
          "Return what was learned, as a file that a learner is loaded from", _learner,
          answer=bytes, problems=(*GUARDED, 404, 422)),
    post("local/batch", "takeOver", "Log decisions that were made next to the caller", _take_over,
         (LocalDecisions, TakenOverMany), DECIDE),
)  # fmt: skip
