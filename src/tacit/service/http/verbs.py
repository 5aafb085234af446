"""HTTP handlers of the verbs of a placement, and the table of their routes."""

# 1. Decisions.
# 2. Feedback, with warnings for requests that are probably mistakes.
# 3. Client-side decisions: send the learner's state, log decisions that clients made.
# 4. Lists and duels; segments and lift.
# 5. Changes, history, items, states and rebuilds.
# 6. ``ROUTES``: the table of routes.

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from heapq import nsmallest
from itertools import repeat
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool

from tacit.errors import InvalidValue, TacitError
from tacit.interleaving.rules import CLICK
from tacit.service.config.file import checked_within
from tacit.service.engine.rebuilding import Replacement
from tacit.service.engine.service import Service
from tacit.service.errors import InConflict
from tacit.service.http.arms import Form
from tacit.service.http.messages import file, problem_of
from tacit.service.http.route import Answer, Asking, Handler, Route, RouteCall, asking_route, route_of
from tacit.service.kind import KINDS, check_path, kind_of
from tacit.service.log.blocks import values
from tacit.service.log.ids import as_text
from tacit.service.log.requests import (
    Clicked,
    Decide,
    DecisionRequest,
    FeedbackRequest,
    Impression,
    Made,
    Record,
    as_content,
    checked_id,
    rewards,
)
from tacit.service.log.rows import ACTIVATE, CLICKS, EXAMINED, REWARD
from tacit.service.placements.aspects.client_decisions import check_elsewhere, checked_made, name_for
from tacit.service.placements.aspects.items import items_now
from tacit.service.placements.attribution import (
    CORRECTED,
    DUPLICATE,
    INACTIVE,
    LATE,
    LEARNED,
    PENDING,
    REPEATED,
)
from tacit.service.placements.lift_report import PLANNED_LIFT, Wish, lift_report
from tacit.service.placements.placement import Placement
from tacit.wire import control as wire_control
from tacit.wire import decisions as wire
from tacit.wire import lists as wire_lists
from tacit.wire import verbs
from tacit.wire.decisions import LocalDecision, ManyDecisions, TakenOver
from tacit.wire.lift import ForWhom, LiftOf, LiftReport
from tacit.wire.verbs import Verb

UNLEARNED = {INACTIVE, LATE, REPEATED}
"""Outcomes of feedback that the policy does not learn from, although the client may expect it."""

RETRIED = 60_000_000
"""Microseconds after the end of a decision's window in which a repeated request is plausibly a retry."""


# ---- Decisions


def deciding(path: str) -> tuple[Asking, Handler]:
    """Return handlers for one decision request at a path and for many, which are all decided or none.

    The form of the placement's kind reads requests and writes answers.
    """

    def decide(engine: Service, call: RouteCall) -> tuple[Decide, Callable[[Any], msgspec.Struct]]:
        name, placement = call.placement, engine.placement(call.placement)
        if placement.kind.path != path:
            check_path(placement, path)
        form: Form = placement.kind.form
        began = placement.windows.time

        def answer(rows: Sequence[Any]) -> Any:
            written = form.write(placement, rows[0], engine.config.placements[name].durability)
            return _doubted(placement, began, call.request, rows[0].time, written)

        return Decide(name, [form.read(placement, call.request)]), answer

    async def decide_many(engine: Service, call: RouteCall) -> Any:
        placement = engine.placement(call.placement)
        check_path(placement, path)
        form: Form = placement.kind.form
        impressions = form.read_many(form, placement, call.request.decisions)
        began = placement.windows.time
        try:
            rows = await engine.decide_many(call.placement, impressions)
        except InConflict as error:
            named = (f"decision_id: {asked.decision_id!r} " for asked in call.request.decisions)
            places = [f"decisions[{i}]." for i, id in enumerate(named) if str(error).startswith(id)]
            raise InConflict("".join([*places[:1], str(error)])) from error
        answers = form.write_many(form, placement, rows, engine.durability(call.placement))
        times = values(rows, "time")
        if placement.encoder or placement.holdout or min(times, default=began) < began:
            parts = zip(call.request.decisions, times, answers, strict=True)
            answers = [_doubted(placement, began, *each) for each in parts]
        return form.verb_many.answer(answers)

    return decide, decide_many


def _doubted(placement: Placement, began: int, request: Any, time: int, answer: Any) -> Any:
    """Return the answer with a warning if its request is probably a mistake.

    A decision whose ``time`` is before ``start``, the start of the request, was made for an earlier request.
    """
    doubt = placement.doubt(request) or (
        _used_up(placement, answer.decision_id, time) if time < began else None
    )
    return answer if doubt is None else msgspec.structs.replace(answer, warning=doubt)


def _used_up(placement: Placement, id: str, time: int) -> str | None:
    """Explain why a reused decision id is suspicious; None if the request may be a retry."""
    windows = placement.windows
    entry = windows.find(id)
    if entry is not None and windows.times_answered(entry):
        had = "has its feedback"
    elif entry is None and windows.time - time > windows.rule.window + RETRIED:
        had = "its window is over"
    else:
        return None
    return f"decision_id: {id!r} was decided before, and {had}; give each decision an id of its own"


def decision_routes() -> Iterator[Route]:
    """Yield the routes of decision requests to placements of all kinds."""
    forms = (kind_of(name).form for name in KINDS)
    for path, form in {form.verb.path: form for form in forms}.items():
        single, many = deciding(path)
        yield asking_route(form.verb, single)
        yield route_of(form.verb_many, many)


# ---- FeedbackRequest


def recording(
    read: Callable[[Any], FeedbackRequest],
    read_many: Callable[[Sequence[Any]], Sequence[FeedbackRequest]] | None = None,
) -> tuple[Asking, Handler]:
    """Return handlers for one piece of feedback and for many, each of which is recorded or refused."""

    def record(engine: Service, call: RouteCall) -> tuple[Record, Callable[[Any], wire.Recorded]]:
        name, feedback = call.placement, read(call.request)

        def answer(outcomes: Sequence[str | TacitError]) -> wire.Recorded:
            if isinstance(outcomes[0], TacitError):
                raise outcomes[0]
            doubt = _doubt(engine.placement(name), call.request, outcomes[0])
            placement = engine.placement(name)
            return _recorded(placement, feedback.decision, outcomes[0], engine.durability(name), doubt)

        return Record(name, [feedback]), answer

    async def record_many(engine: Service, call: RouteCall) -> wire.ManyFeedback[wire.Recorded]:
        requests = call.request.feedback
        if read_many is not None:
            feedback = read_many(requests)
        else:
            feedback = [checked_within(f"feedback[{i}]", read, (piece,)) for i, piece in enumerate(requests)]
        try:
            outcomes = await engine.record_many(call.placement, feedback)
        except InvalidValue as error:
            raise _at_its_place(error, requests) from error
        ids = [request.decision_id for request in requests]
        durability = repeat(engine.durability(call.placement))
        placement = engine.placement(call.placement)
        doubts = map(_doubt, repeat(placement), requests, outcomes)
        answers = map(_recorded, repeat(placement), ids, outcomes, durability, doubts)
        return wire.ManyFeedback[wire.Recorded](list(answers))

    return record, record_many


def _at_its_place(error: InvalidValue, requests: Sequence[Any]) -> InvalidValue:
    """Return the error with its field prefixed by the place of the first request with the invalid value."""
    for place, request in enumerate(requests) if len(requests) > 1 else ():
        value: Any = msgspec.to_builtins(request)
        for name in error.field.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if value == error.value:
            return InvalidValue(f"feedback[{place}].{error.field}", error.value, error.allowed)
    return error


def _doubt(placement: Placement, request: Any, outcome: str | TacitError) -> str | None:
    """Return a warning if feedback is probably a mistake; None otherwise."""
    if outcome in UNLEARNED and (lost := _unlearned(placement, request, str(outcome))):
        return lost
    clicks, metrics = getattr(request, "clicks", None), getattr(request, "metrics", None)
    all_flags = len(clicks or ()) == placement.config.policy.action_width and set(clicks or ()) in ({0}, {1})
    if clicks and len(clicks) > 2 and (set(clicks) == {0, 1} or all_flags):
        places = [place for place, flag in enumerate(clicks) if flag]
        return f"clicks: {clicks} are positions, and count once; give {places} if 1 means clicked"
    known = placement.config.metrics
    doubts = (known[name].doubt(name, amount) for name, amount in (metrics or {}).items() if name in known)
    return next(filter(None, doubts), None)


def _unlearned(placement: Placement, request: Any, outcome: str) -> str | None:
    """Explain why the policy does not learn from a reward, and how it could; None if nothing is lost."""
    reward, amounts = getattr(request, "reward", None), getattr(request, "metrics", None) or {}
    rule, learned = placement.config.rule, placement.config.learned
    if outcome == INACTIVE:
        return (
            "decision_id: it was deferred and not activated, so this teaches nothing; activate it when shown"
        )
    if outcome == LATE and (reward or any(amounts.values())):
        corrects = "; late = 'correct' replaces a default once, and nothing that was learned"
        remedy = "lengthen it" + (", or give late = 'correct'" if rule.late == "record" else corrects)
        return (
            f"attribution_window: this came after its {rule.window / 1e6:g} s, and is not learned; {remedy}"
        )
    entry, amount = placement.windows.find(request.decision_id), amounts.get(learned)
    if outcome == REPEATED and rule.aggregation == "first" and entry is not None:
        if amount:
            what = f"metrics.{learned}: {amount:g} is not learned, as an amount came before"
            return f"{what}; aggregation = 'sum' learns all that a decision earns"
        if reward is not None and reward > placement.windows.reward(entry):
            remedy = "send none until it is known, or give aggregation = 'max'"
            return f"reward: {reward:g} is not learned, as a lower one came first; {remedy}"
    return None


def _recorded(
    placement: Placement, id: str, outcome: str | TacitError, durability: Any, doubt: str | None
) -> wire.Recorded:
    if isinstance(outcome, TacitError):
        outcome = problem_of(outcome).type.rpartition(":")[2]
    within = _seconds_until_learned(placement, id) if outcome == PENDING else None
    return wire.Recorded(id, outcome in (LEARNED, CORRECTED), outcome, durability, doubt, within)


def _seconds_until_learned(placement: Placement, id: str) -> float | None:
    """Return the most seconds until an open decision is learned; None if the decision is not open."""
    windows = placement.windows
    entry = windows.find(id)
    return None if entry is None else max(0, windows.deadline(entry) - windows.time) / 1e6


def _reward(request: wire.Feedback) -> FeedbackRequest:
    metrics = as_content(request.metrics)
    return FeedbackRequest(request.decision_id, REWARD, request.reward, request.feedback_id, metrics=metrics)


def _rewards(requests: Sequence[wire.Feedback]) -> Sequence[FeedbackRequest]:
    fields = ((request.decision_id, request.reward, request.feedback_id) for request in requests)
    decisions, values, ids = zip(*fields, strict=True)
    block = rewards(decisions, values, ids)
    metrics = [request.metrics for request in requests]
    if not any(metrics):
        return block
    return block.with_column("metrics", list(map(as_content, metrics)))


def _examined(request: wire.Event) -> FeedbackRequest:
    return FeedbackRequest(request.decision_id, EXAMINED, None, request.feedback_id)


def _activated(request: wire.Event) -> FeedbackRequest:
    return FeedbackRequest(request.decision_id, ACTIVATE, None, request.feedback_id)


_feedback, _feedback_many = recording(_reward, _rewards)
_look, _look_many = recording(_examined)


# ---- Client-side decisions: send the learner's state, log decisions that clients made

LOGGED = "logged"


async def _learner(engine: Service, call: RouteCall) -> Answer:
    return file(await engine.lend(call.placement, call.request.shard))


async def _lent(engine: Service, call: RouteCall) -> wire_control.LentParts:
    spread = engine.placement(call.placement).config.spread
    return wire_control.LentParts(await engine.lends(call.placement), spread)


async def _take_over(engine: Service, call: RouteCall) -> ManyDecisions[TakenOver]:
    placement = engine.placement(call.placement)
    check_elsewhere(placement)
    asked: list[LocalDecision] = call.request.decisions
    read = [_read(placement, decision) for decision in asked]
    good = [impression for impression in read if isinstance(impression, Impression)]
    outcomes = iter(await _logged(engine, call.placement, good))
    made = [next(outcomes) if isinstance(impression, Impression) else impression for impression in read]
    return ManyDecisions(
        [TakenOver(local.decision_id, *_outcome(became)) for local, became in zip(asked, made, strict=True)]
    )


def _read(placement: Placement, decision: LocalDecision) -> Impression | TacitError:
    request = DecisionRequest(decision.key, decision.arms, decision.context, decision.decision_id)
    try:
        return checked_made(placement, request, Made(decision.arm, decision.propensity))
    except TacitError as error:
        return error


async def _logged(
    engine: Service, placement: str, impressions: Sequence[Impression]
) -> list[str | TacitError]:
    """Log decisions in one batch or, if that is refused, one by one; return the outcome of each."""
    began = engine.clock()
    try:
        rows = await engine.decide_many(placement, impressions) if impressions else ()
        return [DUPLICATE if time < began else LOGGED for time in values(rows, "time")]
    except (InConflict, InvalidValue) as error:
        if len(impressions) == 1:
            return [error]
    each = [await _logged(engine, placement, [impression]) for impression in impressions]
    return [outcome for (outcome,) in each]


def _outcome(became: str | TacitError) -> tuple[str, str]:
    if isinstance(became, str):
        return became, ""
    problem = problem_of(became)
    return problem.type.rpartition(":")[2], problem.detail


# ---- Placements that show lists: clicks, standings and verdicts of duels

MOST_KEYS = 1000


def _clicks(request: wire_lists.Clicks) -> FeedbackRequest:
    """Convert clicks to a request to the engine.

    Raises
    ------
    InvalidValue
        If neither positions nor items are given, or both.
    """
    if (request.clicks is None) == (request.items is None):
        raise InvalidValue("clicks", request.clicks, "give clicks, or items in place of them")
    action = CLICK if request.action is None else request.action
    clicks = Clicked(request.clicks, request.items, action)
    metrics = as_content(request.metrics)
    return FeedbackRequest(request.decision_id, CLICKS, None, request.feedback_id, clicks, metrics)


async def _standings(engine: Service, call: RouteCall) -> wire_lists.Standings:
    asked: wire_lists.StandingsOf = call.request
    placement: Any = engine.placement(call.placement)
    check_path(placement, "duel")
    key, report = placement.report(asked.key, asked.confidence)
    # Many keys, and intervals of many rankers, take long; a thread keeps decisions from waiting.
    keys = await run_in_threadpool(_busiest, placement)
    content = await run_in_threadpool(report.as_dict)
    return wire_lists.Standings(key, keys, content)


def _busiest(placement: Any) -> list[wire_lists.DuelsOfKey]:
    tallies = list(placement.tallies.items())
    most = nsmallest(MOST_KEYS, tallies, lambda kt: (-kt[1].duels, kt[0] != placement.leading))
    return [wire_lists.DuelsOfKey(key, tally.duels) for key, tally in most]


async def _verdict(engine: Service, call: RouteCall) -> wire_lists.Verdict:
    asked: wire_lists.VerdictOf = call.request
    found = await engine.verdict(call.placement, asked.confidence, asked.false_share)
    since = None if found.since is None else as_text(found.since)
    until = as_text(found.until) if found.until else None
    return wire_lists.Verdict(**found._asdict() | {"since": since, "until": until})


_click, _click_many = recording(_clicks)


# ---- Reports: results by segment, and the lift over a control group


async def _for_whom(engine: Service, call: RouteCall) -> ForWhom:
    return await engine.for_whom(call.placement, call.request.limit)


PLANNED = "share", "rate", "daily"


async def _lift(engine: Service, call: RouteCall) -> LiftReport:
    asked: LiftOf = call.request
    placement = engine.placement(call.placement)
    planned = {name: given for name in PLANNED if (given := getattr(asked, name)) is not None}
    wish = Wish(lift=PLANNED_LIFT if asked.shown is None else asked.shown, **planned)
    return await asyncio.to_thread(
        lift_report,
        placement.still(),
        engine.clock(),
        asked.confidence,
        asked.control,
        (asked.begin, asked.end),
        wish,
    )


# ---- Changes of a placement, and its history


def _changing(verb: Verb[Any]) -> Handler:
    """Return the handler of a change; a request without a body means the verb's defaults."""

    async def change(engine: Service, call: RouteCall) -> object:
        return await engine.ask(call.placement, call.request or verb.request(), call.who)

    return change


async def _fed(engine: Service, call: RouteCall) -> object:
    feed = name_for(checked_id("feed", call.request.feed), call.who)
    return await engine.ask(call.placement, msgspec.structs.replace(call.request, feed=feed), call.who)


async def _history(engine: Service, call: RouteCall) -> wire_control.History:
    changes = await engine.history(call.placement)
    return wire_control.History(
        [
            wire_control.Change(as_text(change.time), change.who, change.what, change.detail)
            for change in changes[: -call.request.limit - 1 : -1]
        ]
    )


async def _items(engine: Service, call: RouteCall) -> wire.ItemsNow:
    return items_now(engine.placement(call.placement))


async def _states(engine: Service, call: RouteCall) -> wire_control.States:
    states = await engine.states(call.placement)
    kept = [wire_control.StateKept(state.name, as_text(state.time), state.policy) for state in states]
    return wire_control.States(kept[::-1])


async def _rebuild(engine: Service, call: RouteCall) -> wire_control.Rebuilt:
    return _rebuilt(await engine.rebuild(call.placement, call.request.policy, call.who))


async def _rollback(engine: Service, call: RouteCall) -> wire_control.Rebuilt:
    return _rebuilt(await engine.rollback(call.placement, call.request.to, call.who))


def _rebuilt(made: Replacement) -> wire_control.Rebuilt:
    regime = made.regime
    return wire_control.Rebuilt(
        regime.policy, regime.left, made.rows, made.decisions, made.seconds, regime.approximate
    )


# ---- The routes

MANY: dict[type, tuple[Handler, type]] = {
    wire.Feedback: (_feedback_many, wire.ManyFeedback),
    wire_lists.Clicks: (_click_many, wire.ManyFeedback),
    wire.Event: (_look_many, wire.ManyFeedback),
    LocalDecision: (_take_over, ManyDecisions),
}
"""Handler and batch structure of each type of message, for events of feeds."""

ROUTES = (
    *decision_routes(),
    asking_route(verbs.FEEDBACK, _feedback),
    route_of(verbs.FEEDBACK_MANY, _feedback_many),
    asking_route(verbs.EXAMINED, _look),
    route_of(verbs.EXAMINED_MANY, _look_many),
    asking_route(verbs.ACTIVATE, recording(_activated)[0]),
    asking_route(verbs.CLICKS, _click),
    route_of(verbs.CLICKS_MANY, _click_many),
    route_of(verbs.VERDICT, _verdict),
    route_of(verbs.STANDINGS, _standings),
    route_of(verbs.FOR_WHOM, _for_whom),
    route_of(verbs.LIFT, _lift),
    *(route_of(verb, _fed if verb is verbs.FED else _changing(verb)) for verb in verbs.CHANGES),
    route_of(verbs.REBUILD, _rebuild),
    route_of(verbs.ROLLBACK, _rollback),
    route_of(verbs.STATES, _states),
    route_of(verbs.HISTORY, _history),
    route_of(verbs.ITEMS, _items),
    route_of(verbs.LEARNER, _learner),
    route_of(verbs.LENT, _lent),
    route_of(verbs.LOCAL, _take_over),
)
