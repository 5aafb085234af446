"""The page: what every placement has learned and how the store is, rendered on the server."""

from __future__ import annotations

import jinja2

import tacit
from tacit.service.engine.service import Overview
from tacit.service.page.amounts import age, chance, size
from tacit.service.page.charts import percent
from tacit.service.page.duels import missing
from tacit.service.page.key import KeyView


class Page:
    """Renders the page of an engine.

    Parameters
    ----------
    engine : Overview
    """

    def __init__(self, engine: Overview) -> None:
        self._engine = engine
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
            "whole_percent": lambda share: f"{100 * share:.0f} %",
            "chance": chance,
            "grouped": lambda number: f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}"),
        }

    def whole(self) -> str:
        """Return the page."""
        return self._rendered("page.html")

    def fragment(self) -> str:
        """Return the part of the page that changes."""
        return self._rendered("placements.html")

    def key(self, placement: str, key: str) -> str:
        """Return the page of one key of a placement.

        Raises
        ------
        UnknownName
            If there is no such placement, or nothing was decided for the key.
        """
        view = KeyView(self._engine.placement(placement), key, self._engine.clock())
        return self._templates.get_template("key.html").render(version=tacit.__version__, key=view)

    def _rendered(self, template: str) -> str:
        now = self._engine.clock()
        placements = list(self._engine.placements.values())
        snapshots = [p.snapshot_time for p in placements if p.snapshot_time is not None]
        health = self._engine.health()
        return self._templates.get_template(template).render(
            version=tacit.__version__,
            placements=[each.kind.view(each, now) for each in placements],
            trials=[(each.name, each.kind.path, each.kind.example(each)) for each in placements],
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
