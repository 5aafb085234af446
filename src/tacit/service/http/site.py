"""Routes of the service as a whole: placements, feeds, health, metrics, OpenAPI document and pages."""

# 1. Handlers for the state of placements, shards and feeds.
# 2. Handlers for reports of feeds and pushed events.
# 3. Handlers for health checks, the document, metrics, pages and deletion of a subject's data.
# 4. ``ROUTES``, ``PEER_ROUTES``: the tables of these routes.

from __future__ import annotations

from functools import partial, reduce
from operator import or_
from typing import Any, NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams

from tacit.policies import policy_to_spec
from tacit.service.config.keys import ADMIN, DECIDE, FEEDBACK
from tacit.service.engine.engine import Engine
from tacit.service.engine.reports import ShardHealth
from tacit.service.errors import Forbidden, NotDurable
from tacit.service.http.endpoint import JSON
from tacit.service.http.feeds import Feeds, Hooks
from tacit.service.http.messages import PAGE_HEADERS, Headers
from tacit.service.http.metrics import Metrics
from tacit.service.http.route import GUARDED, OPEN, POSTED, Answer, Route, RouteCall
from tacit.service.log.requests import check_id
from tacit.service.log.search_records import SUBJECTS, Subject
from tacit.service.page.pages import Pages
from tacit.service.placements.placement import Placement
from tacit.service.projections.feed_offsets import make_feed_name, merge_offsets
from tacit.wire import site as wire

HTML = "text/html; charset=utf-8"

_page_headers = tuple((name.encode(), value.encode()) for name, value in PAGE_HEADERS.items())


class Site(NamedTuple):
    """The parts of one running service that its routes use.

    Attributes
    ----------
    engine : Engine
    pages : Pages
    metrics : Metrics
    document : bytes
        The OpenAPI document.
    feeds : Feeds
    hooks : Hooks
    """

    engine: Engine
    pages: Pages
    metrics: Metrics
    document: bytes
    feeds: Feeds
    hooks: Hooks


async def _list_placements(site: Site, call: RouteCall) -> wire.Placements:
    """Return summaries of the placements that the caller reaches, computed in a thread, and of the shards.

    A key of only some placements gets no shards.
    """
    engine = site.engine.merged
    reached = {name: p for name, p in engine.placements.items() if call.caller.reaches(name)}
    shards = [] if call.caller.placements is not None else engine.shards()

    def collect_summaries() -> wire.Placements:
        """Return the summaries of placements and shards."""
        summaries = [
            _summarize_placement(placement, engine.sharing_seconds(name), engine.clock())
            for name, placement in reached.items()
        ]
        return wire.Placements(summaries, list(map(_summarize_shard, shards)))

    # Summaries of many placements take long; a thread keeps decisions from waiting.
    return await run_in_threadpool(collect_summaries)


def _summarize_shard(shard: ShardHealth) -> wire.ShardSummary:
    """Return a shard's summary; its number of rows is None if its health is unknown."""
    return wire.ShardSummary(*shard[:-1], None if shard.health is None else shard.health.events)


def _summarize_placement(
    placement: Placement, shared_seconds: float | None, now: int
) -> wire.PlacementSummary:
    """Return a placement's configuration, counts, and the summaries of its aspects at the time ``now``.

    ``shared_seconds`` is the age of the sums that shards have of each other, or None; it is copied.
    """
    aspects = (aspect.summary(now) for aspect in placement.aspects.values())
    return wire.PlacementSummary(
        name=placement.name,
        kind=placement.config.kind,
        durability=placement.config.durability,
        policy=policy_to_spec(placement.config.policy),
        keys=placement.key_count,
        decisions=placement.decisions,
        feedback=placement.feedback,
        rewards=placement.series.rewards,
        pending=placement.pending,
        outcomes=dict(placement.outcomes),
        seed=placement.seed,
        shared_seconds=shared_seconds,
        **reduce(or_, aspects),
    )


async def _list_shards(site: Site, call: RouteCall) -> wire.ShardTable:
    """Return the table of shards, which is empty for a single server."""
    return getattr(site.engine, "table", wire.ShardTable([]))


def _check_peer(site: Site, headers: Headers) -> None:
    """Raise an error unless a request comes from another shard of this service."""
    if not hasattr(site.engine, "check_peer"):
        raise Forbidden("path: this is no shard, and answers no other one")
    site.engine.check_peer(headers)


async def _answer_calls(site: Site, call: RouteCall) -> bytes:
    """Answer the calls of another shard."""
    answer: bytes = await site.engine.answer_calls(call.request)  # type: ignore[attr-defined]
    return answer


async def _list_feeds(site: Site, call: RouteCall) -> wire.FeedsNow:
    """Return the latest progress reports of the feeds that the caller may see."""
    return wire.FeedsNow(site.feeds.list_feeds(call.caller))


async def _report_feed(site: Site, call: RouteCall) -> wire.Status:
    """Store a feed's progress report in memory, under the caller's key."""
    site.feeds.report(check_id("feed", call.id), call.request, call.caller)
    return wire.Status("ok")


async def _record_events(site: Site, call: RouteCall) -> wire.EventsTaken | Answer:
    """Record the events that a sender pushes for a feed; return their counts by outcome, or a refusal."""
    return await site.hooks.record_body(call.id, call.request, call.headers, call.caller)


async def _read_feed_offsets(site: Site, call: RouteCall) -> wire.FedNow:
    """Return the offsets at which a feed resumes, merged over all placements that the caller reaches."""
    feed = check_id("feed", call.id)
    placements = site.engine.merged.placements.items()
    aspects = [placement.feed_offsets for name, placement in placements if call.caller.reaches(name)]
    # Stores written by version 0.3 log offsets under the feed's name alone, without the key.
    name = make_feed_name(feed, call.key_name)
    return wire.FedNow(merge_offsets(feed, aspects) | merge_offsets(name, aspects))


async def _check_alive(site: Site, call: RouteCall) -> wire.Status:
    """Return the status "ok" without any check: the process runs."""
    return wire.Status("ok")


async def _check_ready(site: Site, call: RouteCall) -> wire.Status:
    """Return the status "ok"; raise ``NotDurable`` if commits fail or the service is stopping."""
    if not site.engine.health().ready:
        raise NotDurable("store: commits fail, or it is stopping")
    return wire.Status("ok")


async def _send_document(site: Site, call: RouteCall) -> Answer:
    """Return the OpenAPI document."""
    return Answer(200, JSON, site.document)


async def _send_metrics(site: Site, call: RouteCall) -> Answer:
    """Return the metrics that the caller may see, in Prometheus' text format."""
    return Answer(200, CONTENT_TYPE_LATEST, await site.metrics.text(call.caller))


async def _send_overview(site: Site, call: RouteCall) -> Answer:
    """Return the HTML page that lists the placements that the caller reaches."""
    return _make_page(await site.pages.overview(call.caller.reaches))


async def _send_placement(site: Site, call: RouteCall) -> Answer:
    """Return the HTML page of one placement, with the options of the query."""
    return _make_page(await site.pages.placement(call.id, dict(QueryParams(call.query))))


async def _send_key(site: Site, call: RouteCall) -> Answer:
    """Return the HTML page of one key of a placement, both given in the query."""
    query = QueryParams(call.query)
    return _make_page(await site.pages.key(query.get("placement", ""), query.get("key", "")))


def _make_page(text: str) -> Answer:
    """Return HTML text as an answer of status 200, with the security headers of pages."""
    return Answer(200, HTML, text.encode(), _page_headers)


async def _forget_subject(kind: str, site: Site, call: RouteCall) -> wire.Forgotten:
    """Blank the data of a user, session or client in the log.

    Return the numbers of blanked rows by placement.

    ``kind`` is the kind of the id in the address. Learned states do not change.
    """
    counts_by_name = await site.engine.forget(Subject(kind, check_id(kind, call.id)), call.key_name)
    return wire.Forgotten({name: wire.Blanked(*counts) for name, counts in counts_by_name.items()})


def _make_get_route(path: str, handler: Any, operation: str = "", summary: str = "", **more: Any) -> Route:
    """Return the route of a GET request; ``more`` are further fields of the route."""
    return Route("GET", path, operation, summary, handler, **more)


ROUTES = (
    _make_get_route("/v1/placements", _list_placements, "placements", "List the placements",
         answer=wire.Placements, placement_source="each"),
    *(
        Route("DELETE", f"/v1/subjects/{kind}/{{id}}", f"forget{kind.capitalize()}",
              f"Blank what rows tell of a {kind}; what was learned stays", partial(_forget_subject, kind),
              answer=wire.Forgotten, scope=ADMIN, problems=(*GUARDED, 422))
        for kind in SUBJECTS
    ),
    _make_get_route("/v1/shards", _list_shards, "shards", "Say where the shards are", answer=wire.ShardTable,
         scope=DECIDE, placement_source="none"),
    _make_get_route("/v1/feeds", _list_feeds, "feeds", "Say how far those are who feed events",
         answer=wire.FeedsNow, placement_source="none"),
    Route("PUT", "/v1/feeds/{id}", "reportFeed", "Say how far a feed of events is", _report_feed,
          wire.FeedReport, wire.Status, FEEDBACK, "body_limit", POSTED, placement_source="none"),
    Route("POST", "/v1/feed/{id}", "pushEvents", "Take events of others, as the map of a feed says",
          _record_events, wire.Events, wire.EventsTaken, FEEDBACK, "batch_limit", POSTED,
          placement_source="none", accepts_signature=True),
    _make_get_route("/v1/feeds/{id}", _read_feed_offsets, "fedNow", "Say where a feed of events goes on",
         answer=wire.FedNow, scope=FEEDBACK, problems=(*GUARDED, 422), placement_source="each"),
    _make_get_route("/healthz", _check_alive, "alive", "Say whether the process runs",
         answer=wire.Status, scope=None, problems=OPEN, placement_source="none"),
    _make_get_route("/readyz", _check_ready, "ready", "Say whether decisions can be made durable",
         answer=wire.Status, scope=None, problems=OPEN, placement_source="none"),
    _make_get_route("/metrics", _send_metrics, placement_source="each"),
    _make_get_route("/openapi.json", _send_document, placement_source="none"),
    _make_get_route("/", _send_overview, placement_source="each"),
    _make_get_route("/placements/{id}", _send_placement, placement_source="id"),
    _make_get_route("/key", _send_key, placement_source="query"),
    _make_get_route("/live", None, placement_source="each"),
    _make_get_route("/static/{id}", None, scope=None, placement_source="none"),
)  # fmt: skip

PEER_ROUTES = (
    Route("POST", "calls", "", "", _answer_calls, scope=None, limit="peer_limit", placement_source="none",
          check_head=_check_peer),
)  # fmt: skip
"""Routes for other shards, which know each other by a secret of their log."""
