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
from tacit.service.engine.rebuilding import State
from tacit.service.engine.service import Service
from tacit.service.page import lift as lifts
from tacit.service.page.charts import SHARES, age, chance, interval, percent, reward, seconds, size
from tacit.service.page.key import KeyView
from tacit.service.page.kind_views import missing
from tacit.service.page.overview import MODES, OverviewRows, complaints, guarded_words, mode_of, seconds_kept
from tacit.service.page.timeline import NAMES, Answered, Answers, asked_range
from tacit.service.page.view import Controls, Look
from tacit.service.placements.placement import Placement
from tacit.wire.site import FeedNow

PATIENCE = 0.2
"""Seconds for which a page waits for the log to be read; open pages refresh themselves."""
LONG = 0.5
"""Processor time in seconds from which on a rendered page is cached."""
REST = 4.0
"""A page is cached for its processor time multiplied by this, which bounds the load by visitors."""


class Looks:
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
        self._under_way: dict[Hashable, asyncio.Task[str]] = {}
        self._kept: dict[Hashable, tuple[float, str]] = {}
        self._one = asyncio.Lock()

    async def at(self, address: Hashable, make: Callable[[], Awaitable[str]]) -> str:
        """Return the page at an address from the cache, from a task that renders it, or newly rendered."""
        now = self._clock()
        self._kept = {known: kept for known, kept in self._kept.items() if now < kept[0]}
        if address in self._kept:
            return self._kept[address][1]
        task = self._under_way.get(address)
        if task is None:
            task = self._under_way[address] = asyncio.create_task(self._made(address, make))
        # A visitor who leaves must not cancel the task, which others may await.
        return await asyncio.shield(task)

    async def _made(self, address: Hashable, make: Callable[[], Awaitable[str]]) -> str:
        try:
            async with self._one:
                begun = self._effort()
                page = await make()
                took = self._effort() - begun
        finally:
            del self._under_way[address]
        if took > LONG:
            self._kept[address] = self._clock() + REST * took, page
        return page


class Pages:
    """Renders the pages of an engine.

    Parameters
    ----------
    engine : Service
        Only read, never changed.
    answers : AnswerCounts, optional
        Counts of answers to requests, if they are counted.
    feeds : function, optional
        Returns the latest reports of feeds of events.
    """

    def __init__(
        self,
        engine: Service,
        answers: Answers | None = None,
        feeds: Callable[[], Sequence[FeedNow]] = lambda: (),
    ) -> None:
        self._engine = engine
        self._feeds = feeds
        self._answers = answers or Answers(lambda: ())
        self._rows = OverviewRows(engine.clock, self._answers)
        self._looks, self._compiled = Looks(), False
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("tacit.service.page"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        written = missing, percent, reward, interval, size, seconds, chance
        self._templates.filters |= {each.__name__: each for each in written} | {"grouped": "{:,}".format}
        self._templates.globals |= {"version": tacit.__version__, "shares": SHARES}

    async def _template(self, name: str) -> jinja2.Template:
        """Return a template; the first call compiles all templates in a thread."""
        if not self._compiled:
            await run_in_threadpool(self._compile)
        return self._templates.get_template(name)

    def _compile(self) -> None:
        for name in self._templates.list_templates():
            self._templates.get_template(name)
        self._compiled = True

    async def overview(self, reaches: Callable[[str], bool] = lambda name: True) -> str:
        """Return the overview of the placements that the caller's key reaches."""
        names = frozenset(filter(reaches, self._engine.placements))
        return await self._looks.at(names, lambda: self._overview(names))

    async def _overview(self, names: frozenset[str]) -> str:
        template = await self._template("overview.html")
        rows = [row for row in await self._rows.of(self._engine.placements) if row.name in names]
        placements = self._engine.placements.values()
        snapshots = [p.snapshot_time for p in placements if p.snapshot_time is not None]
        health = self._engine.health()
        now = self._engine.clock()
        return await run_in_threadpool(
            template.render,
            rows=rows,
            whole=names.issuperset(self._engine.placements),
            every=seconds_kept(len(rows)),
            troubled=sum(bool(row.wrong) for row in rows),
            acted=any(row.acted for row in rows),
            health=health,
            committed=None if health.committed is None else age(now - health.committed),
            snapshot=age(now - min(snapshots)) if snapshots else None,
            feeds=self._feeds(),
            shards=self._engine.shards(),
            shared=[
                (name, seconds)
                for name in self._engine.placements
                for seconds in [self._engine.shared_seconds(name)]
                if seconds is not None
            ],
        )

    async def placement(self, name: str, asked: dict[str, str]) -> str:
        """Return the page of a placement.

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
        return await self._looks.at((name, *sorted(asked.items())), lambda: self._placement(name, asked))

    async def _placement(self, name: str, asked: dict[str, str]) -> str:
        template = await self._template("placement.html")
        placement = self._engine.placement(name)
        changes = await self._engine.history(name)
        busiest = await self._engine.busiest(name)
        states = await self._engine.states(name)
        kind, whole = placement.kind.view, not self._engine.shards()
        verdict = None
        if "verdict" in asked and kind.judged and whole:
            verdict = await self._engine.verdict(name, patience=PATIENCE)
        whom = None
        # Policies that do not read the context have no results by segment.
        with suppress(InvalidValue):
            whom = await self._engine.for_whom(name)
        wanted = asked.get("find")
        found = await self._engine.find_keys(name, wanted) if wanted else None
        now = self._engine.clock()
        times = asked.get("range"), asked.get("from"), asked.get("to")
        span = asked_range(*times, placement.series, now)
        return await run_in_threadpool(
            rendered,
            template,
            placement.still(),
            Look(now, span, changes, busiest, verdict),
            answered=self._answers.of(name),
            chosen=asked,
            found=found,
            whom=whom,
            config=self._engine.config,
            states=states,
            whole=whole,
        )

    async def key(self, placement: str, key: str) -> str:
        """Return the page of one key of a placement.

        Raises
        ------
        UnknownName
            If there is no such placement, or the key has no decisions.
        Unavailable
            If the shard of the key is down.
        """
        self._engine.placement(placement)
        return await self._looks.at((placement, "key", key), lambda: self._key(placement, key))

    async def _key(self, placement: str, key: str) -> str:
        template = await self._template("key.html")
        facts = await self._engine.key(placement, key)
        view = KeyView(facts, self._engine.placement(placement).still(), self._engine.clock())
        return await run_in_threadpool(template.render, key=view)


def rendered(
    template: jinja2.Template,
    placement: Placement,
    look: Look,
    *,
    answered: Answered | None,
    config: Config,
    states: list[State],
    whole: bool,
    **more: Any,
) -> str:
    """Render the page of a copy of a placement, in any thread."""
    view, now = placement.kind.view(placement, look), look.now
    return template.render(
        placement=view,
        answered=answered,
        wrong=complaints(placement, now, answered),
        no_lift=view.verdict_of(placement),
        guarded=guarded_words(placement),
        lift=view.lift,
        lifted=None if view.lift is None else lifts.shown(view.lift),
        chapters=None if view.lift is None else lifts.chapters(view.lift),
        without=None if view.lift is None else lifts.compared(view.lift),
        ranges=NAMES,
        mode=mode_of(placement, now),
        mode_hint=MODES.get(placement.mode, ""),
        example=placement.kind.example(placement),
        controls=Controls(placement, config, now, states, sharded=not whole),
        retention=placement.config.retention,
        may_judge=whole,
        **more,
    )
