"""The pages: an overview of all placements, a page for each, and one for each key."""

from __future__ import annotations

import asyncio

import jinja2
from starlette.concurrency import run_in_threadpool

import tacit
from tacit.service.page import lift as lifts
from tacit.service.page.amounts import age, chance, seconds, size
from tacit.service.page.answers import Answers
from tacit.service.page.charts import percent
from tacit.service.page.controls import controls_of
from tacit.service.page.health import complaints
from tacit.service.page.key import KeyView
from tacit.service.page.kinds.duels import missing
from tacit.service.page.overview import MODES, Rows, mode_of, seconds_kept
from tacit.service.page.reader import Reader
from tacit.service.page.timeline import NAMES, asked_range
from tacit.service.page.view import Look

PATIENCE = 0.2
"""Seconds for which a page waits for a log to be read; it comes again."""


class Pages:
    """Renders the pages of an engine.

    Parameters
    ----------
    engine : Reader
    answers : Answers, optional
        How requests were answered, where that is counted.
    """

    def __init__(self, engine: Reader, answers: Answers | None = None) -> None:
        self._engine = engine
        self._answers = answers or Answers(lambda: ())
        self._rows = Rows(engine.clock, self._answers)
        self._looking, self._compiled = asyncio.Lock(), False
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("tacit.service.page"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "missing": missing,
            "percent": percent,
            "size": size,
            "seconds": seconds,
            "chance": chance,
            "grouped": lambda number: f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}"),
        }
        self._templates.globals |= {"version": tacit.__version__}

    async def _template(self, name: str) -> jinja2.Template:
        """Return a template; before the first one all are compiled, and decisions do not wait."""
        if not self._compiled:
            await run_in_threadpool(self._compile)
        return self._templates.get_template(name)

    def _compile(self) -> None:
        for name in self._templates.list_templates():
            self._templates.get_template(name)
        self._compiled = True

    async def overview(self) -> str:
        """Return the overview."""
        template = await self._template("overview.html")
        # Of many, decisions must not wait for all rows, nor several who look work them out twice.
        async with self._looking:
            rows = await self._rows.of(self._engine.placements)
        placements = self._engine.placements.values()
        snapshots = [p.snapshot_time for p in placements if p.snapshot_time is not None]
        health = self._engine.health()
        now = self._engine.clock()
        return await run_in_threadpool(
            template.render,
            rows=rows,
            every=seconds_kept(len(rows)),
            troubled=sum(bool(row.wrong) for row in rows),
            health=health,
            committed=None if health.committed is None else age(now - health.committed),
            snapshot=age(now - min(snapshots)) if snapshots else None,
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
        asked : dict of str to str
            What the address asks for: a ``range``, or ``from`` and ``to``; keys to ``find``; the
            ``verdict`` on duels.

        Raises
        ------
        UnknownName
            If there is no such placement.
        InvalidValue
            If there is no such time.
        Unavailable
            If the store fails.
        """
        placement = self._engine.placement(name)
        template = await self._template("placement.html")
        changes = await self._engine.history(name)
        busiest = await self._engine.busiest(name)
        states = await self._engine.states(name)
        kind, whole = placement.kind.view, not self._engine.shards()
        verdict = None
        if "verdict" in asked and kind.judged and whole:
            verdict = await self._engine.verdict(name, patience=PATIENCE)
        wanted = asked.get("find")
        found = await self._engine.find_keys(name, wanted) if wanted else None
        now = self._engine.clock()
        start = placement.series.start
        times = asked.get("range"), asked.get("from"), asked.get("to")
        span = asked_range(*times, start if start >= 0 else now, now)
        answered = self._answers.of(name)
        view = kind(placement, Look(now, span, changes, busiest, verdict))
        return template.render(
            placement=view,
            answered=answered,
            wrong=complaints(placement, now, answered),
            no_lift=view.verdict_of(placement),
            lift=view.lift,
            lifted=None if view.lift is None else lifts.shown(view.lift),
            without=None if view.lift is None else lifts.compared(view.lift),
            ranges=NAMES,
            chosen=asked,
            mode=mode_of(placement, now),
            mode_told=MODES.get(placement.mode, ""),
            found=found,
            example=placement.kind.example(placement),
            controls=controls_of(
                placement, self._engine.config, now, states, sharded=bool(self._engine.shards())
            ),
            retention=placement.config.retention,
            may_judge=whole,
        )

    async def key(self, placement: str, key: str) -> str:
        """Return the page of one key of a placement.

        Raises
        ------
        UnknownName
            If there is no such placement, or nothing was decided for the key.
        Unavailable
            If the shard of the key is down.
        """
        of = self._engine.placement(placement)
        facts = await self._engine.key(placement, key)
        view = KeyView(facts, of, self._engine.clock())
        return (await self._template("key.html")).render(key=view)
