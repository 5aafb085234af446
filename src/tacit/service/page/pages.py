"""Render the HTML pages of a service: the overview, and a page for each placement and each key."""

# 1. ``PageCache``: a cache of pages, which renders each page once for concurrent visitors.
# 2. ``Pages``: overview, placement, key.

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import suppress
from time import monotonic, process_time
from typing import Any

import jinja2
from starlette.concurrency import run_in_threadpool

import tacit
from tacit.errors import InvalidValue
from tacit.service.config.schema import Config
from tacit.service.engine.engine import Engine
from tacit.service.engine.rebuilding import State
from tacit.service.page import lift as lifts
from tacit.service.page.charts import SHARES, chance, format_age, interval, percent, reward, seconds, size
from tacit.service.page.key import KeyView
from tacit.service.page.kind_views import missing
from tacit.service.page.overview import (
    MODES,
    OverviewRows,
    choose_reuse_seconds,
    describe_guardrail,
    describe_mode,
    list_problems,
)
from tacit.service.page.timeline import NAMES, AnswerCounts, AnswerStatistics, parse_range
from tacit.service.page.view import Controls, PageData
from tacit.service.placements.placement import Placement
from tacit.wire.site import FeedNow

PATIENCE = 0.2
"""Seconds for which a page waits for the log to be read; open pages refresh themselves."""
LONG_RENDERING = 0.5
"""Processor time in seconds from which on a rendered page is cached."""
REUSE_FACTOR = 4.0
"""A page is cached for its processor time multiplied by this, which bounds the load by visitors."""


class PageCache:
    """A cache of pages: each page is rendered once for concurrent visitors, and expensive ones are reused.

    Parameters
    ----------
    clock : function, optional
        Returns seconds of a monotonic clock.
    effort : function, optional
        Returns the processor time of this process in seconds.
    """

    def __init__(
        self, clock: Callable[[], float] = monotonic, effort: Callable[[], float] = process_time
    ) -> None:
        self._clock, self._effort = clock, effort
        self._tasks: dict[Hashable, asyncio.Task[str]] = {}
        self._cached: dict[Hashable, tuple[float, str]] = {}
        self._lock = asyncio.Lock()

    async def get_page(self, address: Hashable, make: Callable[[], Awaitable[str]]) -> str:
        """Return the page at an address from the cache, or rendered by ``make``.

        If a task renders this page already, its result is awaited. Expired pages leave the cache.
        """
        now = self._clock()
        self._cached = {
            cached_address: entry for cached_address, entry in self._cached.items() if now < entry[0]
        }
        if address in self._cached:
            return self._cached[address][1]
        task = self._tasks.get(address)
        if task is None:
            task = self._tasks[address] = asyncio.create_task(self._render_page(address, make))
        # A visitor who leaves must not cancel the task, which others may await.
        return await asyncio.shield(task)

    async def _render_page(self, address: Hashable, make: Callable[[], Awaitable[str]]) -> str:
        """Render a page and cache it if that took long; one page is rendered at a time."""
        try:
            async with self._lock:
                start = self._effort()
                page = await make()
                duration = self._effort() - start
        finally:
            del self._tasks[address]
        if duration > LONG_RENDERING:
            self._cached[address] = self._clock() + REUSE_FACTOR * duration, page
        return page


class Pages:
    """Renders the pages of an engine.

    Parameters
    ----------
    engine : Engine
        Only read, never changed.
    answers : AnswerCounts, optional
        Counts of answers to requests, if they are counted.
    feeds : function, optional
        Returns the latest reports of feeds of events.
    """

    def __init__(
        self,
        engine: Engine,
        answers: AnswerCounts | None = None,
        feeds: Callable[[], Sequence[FeedNow]] = lambda: (),
    ) -> None:
        self._engine, self._feeds = engine, feeds
        self._answers = answers or AnswerCounts(lambda: ())
        self._rows = OverviewRows(engine.clock, self._answers)
        self._cache, self._is_compiled = PageCache(), False
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("tacit.service.page"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        filters = missing, percent, reward, interval, size, seconds, chance
        self._templates.filters |= {function.__name__: function for function in filters} | {
            "grouped": "{:,}".format
        }
        self._templates.globals |= {"version": tacit.__version__, "shares": SHARES}

    async def _load_template(self, name: str) -> jinja2.Template:
        """Return a template by its name; the first call compiles all templates in a thread."""
        if not self._is_compiled:
            await run_in_threadpool(self._compile_templates)
        return self._templates.get_template(name)

    def _compile_templates(self) -> None:
        """Compile all templates into the environment's cache."""
        for name in self._templates.list_templates():
            self._templates.get_template(name)
        self._is_compiled = True

    async def overview(self, reaches: Callable[[str], bool] = lambda name: True) -> str:
        """Return the overview page in HTML, with the placements whose names pass ``reaches``.

        It may be cached.
        """
        names = frozenset(filter(reaches, self._engine.placements))
        return await self._cache.get_page(names, lambda: self._render_overview(names))

    async def _render_overview(self, names: frozenset[str]) -> str:
        """Render the overview page of the named placements in a thread."""
        template = await self._load_template("overview.html")
        rows = [row for row in await self._rows.make_rows(self._engine.placements) if row.name in names]
        placements = self._engine.placements.values()
        snapshots = [p.snapshot_time for p in placements if p.snapshot_time is not None]
        health = self._engine.health()
        now = self._engine.clock()
        return await run_in_threadpool(
            template.render,
            rows=rows,
            whole=names.issuperset(self._engine.placements),
            every=choose_reuse_seconds(len(rows)),
            troubled=sum(bool(row.wrong) for row in rows),
            acted=any(row.acted for row in rows),
            health=health,
            committed=None if health.committed is None else format_age(now - health.committed),
            snapshot=format_age(now - min(snapshots)) if snapshots else None,
            feeds=self._feeds(),
            shards=self._engine.shards(),
            shared=[
                (name, seconds)
                for name in self._engine.placements
                for seconds in [self._engine.sharing_seconds(name)]
                if seconds is not None
            ],
        )

    async def placement(self, name: str, query: dict[str, str]) -> str:
        """Return the HTML page of a placement, which may be cached.

        Parameters
        ----------
        name : str
        query : dict of str to str
            Query of the address: a ``range``, or ``from`` and ``to``; keys to ``find``; the
            ``verdict`` on duels.

        Raises
        ------
        UnknownName
            If there is no such placement.
        InvalidValue
            If the range of time is not valid.
        Unavailable
            If the store fails.
        """
        self._engine.placement(name)
        return await self._cache.get_page(
            (name, *sorted(query.items())), lambda: self._render_placement(name, query)
        )

    async def _render_placement(self, name: str, query: dict[str, str]) -> str:
        """Read a placement's data from the engine, and render its page in a thread."""
        template = await self._load_template("placement.html")
        placement = self._engine.placement(name)
        changes = await self._engine.history(name)
        busiest = await self._engine.busiest(name)
        states = await self._engine.states(name)
        kind, whole = placement.kind.view, not self._engine.shards()
        verdict = None
        if "verdict" in query and kind.judged and whole:
            verdict = await self._engine.verdict(name, patience=PATIENCE)
        segment_report = None
        # Policies that do not read the context have no results by segment.
        with suppress(InvalidValue):
            segment_report = await self._engine.report_segments(name)
        search_text = query.get("find")
        matches = await self._engine.find_keys(name, search_text) if search_text else None
        now = self._engine.clock()
        times = query.get("range"), query.get("from"), query.get("to")
        span = parse_range(*times, placement.series, now)
        return await run_in_threadpool(
            render_placement,
            template,
            placement.read_copy(),
            PageData(now, span, changes, busiest, verdict),
            answered=self._answers.read_statistics(name),
            chosen=query,
            found=matches,
            whom=segment_report,
            config=self._engine.config,
            states=states,
            whole=whole,
        )

    async def key(self, placement: str, key: str) -> str:
        """Return the HTML page of one key of a placement, which may be cached.

        Raises
        ------
        UnknownName
            If there is no such placement, or the key has no decisions.
        Unavailable
            If the shard of the key is down.
        """
        self._engine.placement(placement)
        return await self._cache.get_page((placement, "key", key), lambda: self._render_key(placement, key))

    async def _render_key(self, placement: str, key: str) -> str:
        """Read a key's data from the engine, and render its page in a thread."""
        template = await self._load_template("key.html")
        facts = await self._engine.key(placement, key)
        view = KeyView(facts, self._engine.placement(placement).read_copy(), self._engine.clock())
        return await run_in_threadpool(template.render, key=view)


def render_placement(
    template: jinja2.Template,
    placement: Placement,
    page_data: PageData,
    *,
    answered: AnswerStatistics | None,
    config: Config,
    states: list[State],
    whole: bool,
    **more: Any,
) -> str:
    """Render the HTML page of a copy of a placement, in any thread.

    ``more`` are further template variables.
    """
    view, now = placement.kind.view(placement, page_data), page_data.now
    return template.render(
        placement=view,
        answered=answered,
        wrong=list_problems(placement, now, answered),
        no_lift=view.get_verdict(placement),
        guarded=describe_guardrail(placement),
        lift=view.lift,
        lifted=None if view.lift is None else lifts.scale_lift(view.lift),
        chapters=None if view.lift is None else lifts.list_periods(view.lift),
        without=None if view.lift is None else lifts.describe_control(view.lift),
        ranges=NAMES,
        mode=describe_mode(placement, now),
        mode_hint=MODES.get(placement.mode, ""),
        example=placement.kind.example(placement),
        controls=Controls(placement, config, now, states, sharded=not whole),
        retention=placement.config.retention,
        may_judge=whole,
        **more,
    )
