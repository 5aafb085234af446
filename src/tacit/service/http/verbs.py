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
from functools import partial
from heapq import nsmallest
from itertools import repeat
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool

from tacit.errors import InvalidValue, TacitError
from tacit.interleaving.rules import CLICK
from tacit.service.config.file import check_item
from tacit.service.engine.engine import Engine
from tacit.service.engine.rebuilding import Replacement
from tacit.service.errors import InConflict
from tacit.service.http.arms import Form
from tacit.service.http.messages import convert_error, make_file_answer
from tacit.service.http.route import (
    Answer,
    Handler,
    Route,
    RouteCall,
    SplitHandler,
    make_route,
    make_split_route,
)
from tacit.service.kind import KINDS, check_path, get_kind
from tacit.service.log.blocks import Block, column_values
from tacit.service.log.ids import as_text
from tacit.service.log.requests import (
    Clicked,
    ClientDecision,
    Decide,
    DecisionRequest,
    FeedbackRequest,
    Impression,
    Record,
    check_feedback,
    check_id,
    encode_metrics,
    make_reward_requests,
)
from tacit.service.log.rows import ACTIVATE, CLICKS, EXAMINED, REWARD
from tacit.service.placements.changes import get_items_status
from tacit.service.placements.client_checks import check_client_decision, check_client_side
from tacit.service.placements.placement import Placement
from tacit.service.projections import attribution
from tacit.service.projections.feed_offsets import make_feed_name
from tacit.service.projections.lift_report import PLANNED_LIFT, PlanQuery, make_lift_report
from tacit.wire import control as wire_control
from tacit.wire import decisions as wire
from tacit.wire import lists as wire_lists
from tacit.wire import verbs
from tacit.wire.decisions import LocalDecision, ManyDecisions, TakenOver
from tacit.wire.lift import ForWhom, LiftOf, LiftReport
from tacit.wire.verbs import Verb

UNLEARNED = {attribution.INACTIVE, attribution.LATE, attribution.REPEATED}
"""Outcomes of feedback that the policy does not learn from, although the client may expect it."""

RETRY_PERIOD = 60_000_000
"""Microseconds after the end of a decision's window in which a repeated request is plausibly a retry."""


# ---- Decisions


def make_decision_handlers(path: str) -> tuple[SplitHandler, Handler]:
    """Return handlers for the decision requests at a path: of one request, and of many.

    Of many, all are decided or none. The form of the placement's kind reads requests and writes answers.
    Answers to requests that are probably mistakes have a warning.
    """

    def decide(engine: Engine, call: RouteCall) -> tuple[Decide, Callable[[Any], msgspec.Struct]]:
        """Validate a request.

        Return the engine's request, and a function that makes the answer of its rows.
        """
        name, placement = call.placement, engine.placement(call.placement)
        if placement.kind.path != path:
            check_path(placement, path)
        form: Form = placement.kind.form
        request_time = placement.windows.time

        def answer(rows: Sequence[Any]) -> Any:
            """Return the answer for the decision's row, with a warning if the request may be a mistake."""
            (row,) = rows
            single_answer = form.write(placement, row, placement.config.durability)
            if not placement.reader.can_warn and row.time >= request_time:
                return single_answer
            return _add_warning(placement, request_time, call.request, row.time, single_answer)

        impression = form.read(placement, call.request)
        # A block of one row: each column has one value.
        return Decide(name, Block(Impression, [[value] for value in impression])), answer

    async def decide_many(engine: Engine, call: RouteCall) -> Any:
        """Validate requests, decide them in one commit, and return the answers.

        Errors name the request's index.
        """
        placement = engine.placement(call.placement)
        check_path(placement, path)
        form: Form = placement.kind.form
        impressions = form.read_many(form, placement, call.request.decisions)
        request_time = placement.windows.time
        try:
            rows = await engine.decide_many(call.placement, impressions)
        except InConflict as error:
            # The message begins with the id in conflict; the first request that has it is named.
            prefixes = (f"decision_id: {request.decision_id!r} " for request in call.request.decisions)
            places = [f"decisions[{i}]." for i, id in enumerate(prefixes) if str(error).startswith(id)]
            raise InConflict("".join([*places[:1], str(error)])) from error
        answers = form.write_many(form, placement, rows, placement.config.durability)
        times = column_values(rows, "time")
        if placement.reader.can_warn or min(times, default=request_time) < request_time:
            parts = zip(call.request.decisions, times, answers, strict=True)
            answers = [_add_warning(placement, request_time, *fields) for fields in parts]
        return form.verb_many.answer(answers)

    return decide, decide_many


def _add_warning(
    placement: Placement, request_time: int, request: Any, decision_time: int, answer: Any
) -> Any:
    """Return the answer to a decision request, with a warning if the request is probably a mistake.

    It warns of the context, a missing user or session, or a reused decision id. A decision id was used before
    if its decision was made before the time of this request.
    """
    warning = placement.reader.find_warning(request) or (
        _explain_reuse(placement, answer.decision_id, decision_time) if decision_time < request_time else None
    )
    return answer if warning is None else msgspec.structs.replace(answer, warning=warning)


def _explain_reuse(placement: Placement, id: str, time: int) -> str | None:
    """Return a warning that a decision id was used before, at ``time``; None if this may be a retry.

    It is no retry if the decision has feedback, or if its window ended more than a minute ago.
    """
    windows = placement.windows
    entry = windows.open.find(id)
    if entry is not None and windows.open.windows.answers[entry]:
        state = "has its feedback"
    elif entry is None and windows.time - time > windows.rule.window + RETRY_PERIOD:
        state = "its window is over"
    else:
        return None
    return f"decision_id: {id!r} was decided before, and {state}; give each decision an id of its own"


def make_decision_routes() -> Iterator[Route]:
    """Yield the routes of decision requests to placements of all kinds."""
    forms = (get_kind(name).form for name in KINDS)
    for path, form in {form.verb.path: form for form in forms}.items():
        single, many = make_decision_handlers(path)
        yield make_split_route(form.verb, single)
        yield make_route(form.verb_many, many)


# ---- Feedback


def make_feedback_handlers(
    read: Callable[[Any], FeedbackRequest],
    read_many: Callable[[Sequence[Any]], Sequence[FeedbackRequest]] | None = None,
) -> tuple[SplitHandler, Handler]:
    """Return handlers for one piece of feedback and for many.

    ``read`` and ``read_many`` convert requests to the engine's. The first handler raises the error of refused
    feedback; the second returns it as that piece's outcome. Answers to feedback that is probably a mistake
    have a warning.
    """

    def record(engine: Engine, call: RouteCall) -> tuple[Record, Callable[[Any], wire.Recorded]]:
        """Return the engine's request for one piece of feedback, and a function that makes the answer."""
        name = call.placement
        checked = check_feedback([read(call.request)], engine.placement(name))

        def answer(outcomes: Sequence[str | TacitError]) -> wire.Recorded:
            """Return the answer, with a warning if the feedback is probably a mistake.

            Raise an error outcome.
            """
            if isinstance(outcomes[0], TacitError):
                raise outcomes[0]
            return _make_answer(engine.placement(name), call.request, outcomes[0])

        return Record(name, checked), answer

    async def record_many(engine: Engine, call: RouteCall) -> wire.ManyFeedback[wire.Recorded]:
        """Record many pieces of feedback and return the outcome of each; an invalid value refuses all."""
        requests = call.request.feedback
        if read_many is not None:
            feedback = read_many(requests)
        else:
            feedback = [check_item(f"feedback[{i}]", read, (piece,)) for i, piece in enumerate(requests)]
        try:
            outcomes = await engine.record_many(call.placement, feedback)
        except InvalidValue as error:
            raise _locate_error(error, requests) from error
        answers = map(_make_answer, repeat(engine.placement(call.placement)), requests, outcomes)
        return wire.ManyFeedback[wire.Recorded](list(answers))

    return record, record_many


def _locate_error(error: InvalidValue, requests: Sequence[Any]) -> InvalidValue:
    """Return an error with ``feedback[i]`` before its field; i is the first request with the invalid value.

    It is returned unchanged if there is only one request, or none has the value.
    """
    for place, request in enumerate(requests) if len(requests) > 1 else ():
        value: Any = msgspec.to_builtins(request)
        for name in error.field.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if value == error.value:
            return InvalidValue(f"feedback[{place}].{error.field}", error.value, error.allowed)
    return error


def _find_warning(placement: Placement, request: Any, outcome: str | TacitError) -> str | None:
    """Return a warning if feedback is probably a mistake; None otherwise.

    It warns of feedback that is not learned, clicks that look like flags, and unusual amounts of metrics.
    """
    if outcome in UNLEARNED and (explanation := _explain_unlearned(placement, request, str(outcome))):
        return explanation
    clicks, metrics = getattr(request, "clicks", None), getattr(request, "metrics", None)
    # Clicked positions differ. Of three or more, at least one is above 1, unless they are flags.
    if clicks and len(clicks) > 2:
        all_flags = len(clicks) == placement.config.policy.action_width and set(clicks) in ({0}, {1})
        if all_flags or set(clicks) == {0, 1}:
            places = [place for place, flag in enumerate(clicks) if flag]
            return f"clicks: {clicks} are positions, and count once; give {places} if 1 means clicked"
    if not metrics:
        return None
    configs = placement.config.metrics
    warnings = (
        configs[name].find_warning(name, amount) for name, amount in metrics.items() if name in configs
    )
    return next(filter(None, warnings), None)


def _explain_unlearned(placement: Placement, request: Any, outcome: str) -> str | None:
    """Return a message that says why feedback is not learned and what to change; None if that is usual.

    There is a message if the decision is deferred and not activated; if the feedback is late and not 0; or if
    only a decision's first feedback is learned, and later feedback has a higher reward or an amount of the
    learned metric.
    """
    reward, amounts = getattr(request, "reward", None), getattr(request, "metrics", None) or {}
    rule, learned = placement.config.rule, placement.config.learned
    if outcome == attribution.INACTIVE:
        return (
            "decision_id: it was deferred and not activated, so this teaches nothing; activate it when shown"
        )
    if outcome == attribution.LATE and (reward or any(amounts.values())):
        corrects = "; late = 'correct' replaces a default once, and nothing that was learned"
        remedy = "lengthen it" + (", or give late = 'correct'" if rule.late == "record" else corrects)
        return (
            f"attribution_window: this came after its {rule.window / 1e6:g} s, and is not learned; {remedy}"
        )
    entry, amount = placement.windows.open.find(request.decision_id), amounts.get(learned)
    if outcome == attribution.REPEATED and rule.aggregation == "first" and entry is not None:
        if amount:
            what = f"metrics.{learned}: {amount:g} is not learned, as an amount came before"
            return f"{what}; aggregation = 'sum' learns all that a decision earns"
        if reward is not None and reward > placement.windows.open.windows.reward[entry]:
            remedy = "send none until it is known, or give aggregation = 'max'"
            return f"reward: {reward:g} is not learned, as a lower one came first; {remedy}"
    return None


def _make_answer(placement: Placement, request: Any, outcome: str | TacitError) -> wire.Recorded:
    """Return the answer to one piece of feedback, with its outcome; the outcome of an error is its kind.

    It has a warning if the feedback is probably a mistake, and if the outcome is pending, the seconds until
    the window ends.
    """
    id, delay, windows = request.decision_id, None, placement.windows
    warning = _find_warning(placement, request, outcome)
    if isinstance(outcome, TacitError):
        outcome = convert_error(outcome).kind
    if outcome == attribution.PENDING and (entry := windows.open.find(id)) is not None:
        delay = max(0, int(windows.open.windows.deadline[entry]) - windows.time) / 1e6
    is_learned = outcome in (attribution.LEARNED, attribution.CORRECTED)
    return wire.Recorded(id, is_learned, outcome, placement.config.durability, warning, delay)


def _read_reward(request: wire.Feedback) -> FeedbackRequest:
    """Convert a reward with its metrics to a request to the engine."""
    metrics = encode_metrics(request.metrics) if request.metrics else None
    return FeedbackRequest(request.decision_id, REWARD, request.reward, request.feedback_id, metrics=metrics)


def _read_rewards(requests: Sequence[wire.Feedback]) -> Sequence[FeedbackRequest]:
    """Convert rewards to requests to the engine as columns, with a column of metrics if any has metrics."""
    fields = ((request.decision_id, request.reward, request.feedback_id) for request in requests)
    decisions, values, ids = zip(*fields, strict=True)
    block = make_reward_requests(decisions, values, ids)
    metrics = [request.metrics for request in requests]
    if not any(metrics):
        return block
    return block.with_column("metrics", list(map(encode_metrics, metrics)))


def _read_event(kind: str, request: wire.Event) -> FeedbackRequest:
    """Convert the report that a decision was looked at, or activated, to a request to the engine."""
    return FeedbackRequest(request.decision_id, kind, None, request.feedback_id)


_record_feedback, _record_feedback_batch = make_feedback_handlers(_read_reward, _read_rewards)
_record_examination, _record_examinations = make_feedback_handlers(partial(_read_event, EXAMINED))


# ---- Client-side decisions: send the learner's state, log decisions that clients made

LOGGED = "logged"


async def _send_learner(engine: Engine, call: RouteCall) -> Answer:
    """Return a placement's learner as a file for replicas in clients; the query may name a shard."""
    return make_file_answer(await engine.export_replica(call.placement, call.request.shard))


async def _list_replicas(engine: Engine, call: RouteCall) -> wire_control.LentParts:
    """Return for each shard the last row of the log in its learner for replicas; None if it does not answer.

    The answer also says whether any shard may decide for any key.
    """
    spread = engine.placement(call.placement).config.spread
    return wire_control.LentParts(await engine.list_replica_rows(call.placement), spread)


async def _log_local_decisions(engine: Engine, call: RouteCall) -> ManyDecisions[TakenOver]:
    """Validate and log decisions that a client made; return the outcome of each, also of refused ones."""
    placement = engine.placement(call.placement)
    check_client_side(placement)
    decisions: list[LocalDecision] = call.request.decisions
    impressions = [_read_local_decision(placement, decision) for decision in decisions]
    valid = [impression for impression in impressions if isinstance(impression, Impression)]
    outcomes = iter(await _log_decisions(engine, call.placement, valid))
    results = [
        next(outcomes) if isinstance(impression, Impression) else impression for impression in impressions
    ]
    return ManyDecisions(
        [
            TakenOver(local.decision_id, *_describe_outcome(result))
            for local, result in zip(decisions, results, strict=True)
        ]
    )


def _read_local_decision(placement: Placement, decision: LocalDecision) -> Impression | TacitError:
    """Validate a client's decision and convert it to an impression; return the error if it is invalid."""
    request = DecisionRequest(decision.key, decision.arms, decision.context, decision.decision_id)
    try:
        return check_client_decision(placement, request, ClientDecision(decision.arm, decision.propensity))
    except TacitError as error:
        return error


async def _log_decisions(
    engine: Engine, placement: str, impressions: Sequence[Impression]
) -> list[str | TacitError]:
    """Log clients' decisions in one batch; if the batch is refused, one by one. Return the outcome of each.

    An outcome is ``LOGGED``, ``DUPLICATE`` if the id was decided before, or an error.
    """
    start = engine.clock()
    try:
        rows = await engine.decide_many(placement, impressions) if impressions else ()
        # A decision that is older than this call has the same id, and was logged before.
        return [attribution.DUPLICATE if time < start else LOGGED for time in column_values(rows, "time")]
    except (InConflict, InvalidValue) as error:
        if len(impressions) == 1:
            return [error]
    results = [await _log_decisions(engine, placement, [impression]) for impression in impressions]
    return [outcome for (outcome,) in results]


def _describe_outcome(result: str | TacitError) -> tuple[str, str]:
    """Return the name of an outcome, and the detail of its error; "" if it is no error."""
    if isinstance(result, str):
        return result, ""
    problem = convert_error(result)
    return problem.kind, problem.detail


# ---- Placements that show lists: clicks, standings and verdicts of duels

MOST_KEYS = 1000


def _read_clicks(request: wire_lists.Clicks) -> FeedbackRequest:
    """Convert clicks to a request to the engine.

    Raises
    ------
    InvalidValue
        If neither positions nor items are given, or both.
    """
    if (request.clicks is None) == (request.items is None):
        raise InvalidValue("clicks", request.clicks, "give clicks, or items in place of them")
    action = CLICK if request.action is None else request.action
    clicks = Clicked(request.clicks, request.items, action, request.rewards)
    metrics = encode_metrics(request.metrics)
    return FeedbackRequest(request.decision_id, CLICKS, None, request.feedback_id, clicks, metrics)


async def _get_standings(engine: Engine, call: RouteCall) -> wire_lists.Standings:
    """Return the standings of one key's duels, and the keys with the most duels; computed in threads."""
    query: wire_lists.StandingsOf = call.request
    placement: Any = engine.merged.placement(call.placement)
    check_path(placement, "duel")
    key, report = placement.results.report(query.key, query.confidence)
    # Many keys, and intervals of many rankers, take long; a thread keeps decisions from waiting.
    keys = await run_in_threadpool(_list_busiest_keys, placement)
    return wire_lists.Standings(key, keys, await run_in_threadpool(report.as_dict))


def _list_busiest_keys(placement: Any) -> list[wire_lists.DuelsOfKey]:
    """Return up to ``MOST_KEYS`` keys with their numbers of duels, the most first.

    Among keys with the same number the leading key comes first.
    """
    tallies = list(placement.results.tallies.items())
    most = nsmallest(MOST_KEYS, tallies, lambda kt: (-kt[1].duels, kt[0] != placement.results.leading))
    return [wire_lists.DuelsOfKey(key, tally.duels) for key, tally in most]


async def _get_verdict(engine: Engine, call: RouteCall) -> wire_lists.Verdict:
    """Return the verdict on a placement's rankers, at the query's confidence, with times as text."""
    query: wire_lists.VerdictOf = call.request
    verdict = await engine.verdict(call.placement, query.confidence, query.false_share)
    since = None if verdict.since is None else as_text(verdict.since)
    until = as_text(verdict.until) if verdict.until else None
    return wire_lists.Verdict(**verdict._asdict() | {"since": since, "until": until})


_record_clicks, _record_clicks_batch = make_feedback_handlers(_read_clicks)


# ---- Reports: results by segment, and the lift over a control group


async def _get_segment_report(engine: Engine, call: RouteCall) -> ForWhom:
    """Return which arms a placement shows to which segments, over its latest decisions, at most ``limit``."""
    return await engine.report_segments(call.placement, call.request.limit)


PLAN_FIELDS = "share", "rate", "daily"


async def _get_lift(engine: Engine, call: RouteCall) -> LiftReport:
    """Return the lift over the control group, computed in a thread from a copy of the placement."""
    query: LiftOf = call.request
    placement = engine.merged.placement(call.placement)
    plan_fields = {name: value for name in PLAN_FIELDS if (value := getattr(query, name)) is not None}
    plan_query = PlanQuery(lift=PLANNED_LIFT if query.shown is None else query.shown, **plan_fields)
    return await asyncio.to_thread(
        make_lift_report,
        placement.read_copy(),
        engine.clock(),
        query.confidence,
        query.control,
        (query.begin, query.end),
        plan_query,
    )


# ---- Changes of a placement, and its history


def _make_change_handler(verb: Verb[Any]) -> Handler:
    """Return a handler that requests a verb's change from the engine, in the name of the caller's key.

    A request without a body has the verb's defaults.
    """

    async def change(engine: Engine, call: RouteCall) -> object:
        """Make the requested change, and return the engine's answer."""
        return await engine.ask(call.placement, call.request or verb.request(), call.key_name)

    return change


async def _log_feed_offsets(engine: Engine, call: RouteCall) -> object:
    """Log the offsets of a feed, under its name and the caller's key; return the engine's answer."""
    feed = make_feed_name(check_id("feed", call.request.feed), call.key_name)
    return await engine.ask(call.placement, msgspec.structs.replace(call.request, feed=feed), call.key_name)


async def _get_history(engine: Engine, call: RouteCall) -> wire_control.History:
    """Return the latest changes of a placement, newest first, at most ``limit`` of the query."""
    # The last ones, in reverse order.
    changes = (await engine.history(call.placement))[: -call.request.limit - 1 : -1]
    return wire_control.History([wire_control.Change(as_text(each.time), *each[1:]) for each in changes])


async def _get_items(engine: Engine, call: RouteCall) -> wire.ItemsNow:
    """Return size, version and segments of a placement's catalogue; raise ``InvalidValue`` if it has none."""
    return get_items_status(engine.placement(call.placement))


async def _get_states(engine: Engine, call: RouteCall) -> wire_control.States:
    """Return the stored states of a placement, newest first."""
    states = await engine.states(call.placement)
    rows = [wire_control.StateKept(state.name, as_text(state.time), state.policy) for state in states]
    return wire_control.States(rows[::-1])


async def _rebuild(engine: Engine, call: RouteCall) -> wire_control.Rebuilt:
    """Replace a placement's policy by one that learned its log; return the policy that decides now.

    The answer also has the numbers of rows and decisions, and the name of the previous policy's saved state.
    """
    return _describe_rebuild(await engine.rebuild(call.placement, call.request.policy, call.key_name))


async def _rollback(engine: Engine, call: RouteCall) -> wire_control.Rebuilt:
    """Restore a saved state of a placement, the last one by default; return the policy that decides now.

    The answer also has the numbers of rows and decisions, and the name of the previous policy's saved state.
    """
    return _describe_rebuild(await engine.rollback(call.placement, call.request.to, call.key_name))


def _describe_rebuild(replacement: Replacement) -> wire_control.Rebuilt:
    """Return the answer about a finished rebuild or rollback: policy, state, rows, decisions, seconds."""
    version = replacement.policy_version
    return wire_control.Rebuilt(version.policy, version.left, *replacement[1:], version.approximate)


# ---- The routes

MANY: dict[type, tuple[Handler, type]] = {
    wire.Feedback: (_record_feedback_batch, wire.ManyFeedback),
    wire_lists.Clicks: (_record_clicks_batch, wire.ManyFeedback),
    wire.Event: (_record_examinations, wire.ManyFeedback),
    LocalDecision: (_log_local_decisions, ManyDecisions),
}
"""Handler and batch structure of each type of message, for events of feeds."""

ROUTES = (
    *make_decision_routes(),
    make_split_route(verbs.FEEDBACK, _record_feedback),
    make_route(verbs.FEEDBACK_MANY, _record_feedback_batch),
    make_split_route(verbs.EXAMINED, _record_examination),
    make_route(verbs.EXAMINED_MANY, _record_examinations),
    make_split_route(verbs.ACTIVATE, make_feedback_handlers(partial(_read_event, ACTIVATE))[0]),
    make_split_route(verbs.CLICKS, _record_clicks),
    make_route(verbs.CLICKS_MANY, _record_clicks_batch),
    make_route(verbs.VERDICT, _get_verdict),
    make_route(verbs.STANDINGS, _get_standings),
    make_route(verbs.FOR_WHOM, _get_segment_report),
    make_route(verbs.LIFT, _get_lift),
    *(
        make_route(verb, _log_feed_offsets if verb is verbs.FED else _make_change_handler(verb))
        for verb in verbs.CHANGES
    ),
    make_route(verbs.REBUILD, _rebuild),
    make_route(verbs.ROLLBACK, _rollback),
    make_route(verbs.STATES, _get_states),
    make_route(verbs.HISTORY, _get_history),
    make_route(verbs.ITEMS, _get_items),
    make_route(verbs.LEARNER, _send_learner),
    make_route(verbs.REPLICAS, _list_replicas),
    make_route(verbs.LOCAL, _log_local_decisions),
)
