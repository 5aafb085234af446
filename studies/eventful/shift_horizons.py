"""How what it costs to follow shifting intent grows with the horizon.

One query, its events spread evenly: as many at every horizon, or ever more of them. Rewards are
clicks; signals are right or mean nothing, and only what reads contexts is played with both.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from studies import study
from tacit.classifiers import Rectangle
from tacit.core.arrays import Floats
from tacit.environments import ShiftingArms
from tacit.plots import assign_line_styles
from tacit.policies import KLUCB, OracleRestart, Policy, ProbationBandit, Thompson
from tacit.policies.baselines import GLRKLUCB, SlidingWindowUCB
from tacit.simulation import standard_error

TITLE = "Long horizons: what it costs to follow shifting intent"
ARMS, FEATURES, MARGIN = 5, 5, 0.1
HORIZONS = (5_000, 50_000, 500_000)
EVENTS = ("plain", "stealth")
TOGETHER, SPACING, CLOSE = 5, 5_000, 1_000


def shifts(horizon: int) -> dict[str, int]:
    """Return the numbers of events in a horizon, by what the report calls them."""
    return {
        f"{TOGETHER} in all": TOGETHER,
        f"1 in {SPACING:,}": horizon // SPACING,
        f"1 in {CLOSE:,}": horizon // CLOSE,
    }


class PlayedPolicy(NamedTuple):
    """A policy and the signals that it is played with."""

    policy: Policy
    signals: str


def rows(horizon: int, events: int) -> list[PlayedPolicy]:
    """Return who is played; what needs the number of events has its own ``tuned``."""
    rectangle = Rectangle(dim=FEATURES, margin=MARGIN, anchored=True)
    weighing = partial(ProbationBandit, ARMS, classifier=rectangle)
    sizes = (ARMS, horizon, events)
    return [
        PlayedPolicy(OracleRestart(KLUCB(ARMS), signal=FEATURES), "right"),
        PlayedPolicy(weighing(base="kl-ucb"), "right"),
        PlayedPolicy(weighing(base="kl-ucb"), "noise"),
        PlayedPolicy(weighing(base="thompson"), "noise"),
        PlayedPolicy(GLRKLUCB(ARMS), "none"),
        PlayedPolicy(GLRKLUCB(ARMS, alpha=0.0), "none"),
        PlayedPolicy(GLRKLUCB(ARMS, alpha=0.02), "none"),
        PlayedPolicy(GLRKLUCB.from_horizon(*sizes), "tuned"),
        PlayedPolicy(SlidingWindowUCB.from_horizon(*sizes), "tuned"),
        PlayedPolicy(Thompson(ARMS, discount=0.999), "none"),
        PlayedPolicy(Thompson(ARMS, discount=0.9999), "none"),
        PlayedPolicy(KLUCB(ARMS), "none"),
        PlayedPolicy(Thompson(ARMS), "none"),
    ]


def named(row: PlayedPolicy) -> str:
    """Return what a row is called: the same at every horizon."""
    if row.signals == "tuned":
        return f"{type(row.policy).__name__}.from_horizon"
    signals = f", {row.signals} signals" if isinstance(row.policy, ProbationBandit) else ""
    return row.policy.label + signals


def environment(horizon: int, count: int, events: str, signals: str) -> ShiftingArms:
    """Return a query with evenly spread events."""
    rounds = (1 + np.arange(1, count + 1) * horizon // (count + 1)).tolist()
    contexts: dict[str, Any] = {"dim": FEATURES, "margin": MARGIN}
    contexts |= {"signals": "noise" if signals == "noise" else "box"}
    return ShiftingArms(ARMS, events=rounds, stealthy=events == "stealth", announced=True, **contexts)


def played(horizon: int, count: int, events: str, setup: study.Setup) -> dict[str, Floats]:
    """Return the final regrets of all runs by row, in the order of :func:`rows`."""
    everyone = rows(horizon, count)
    found: dict[str, Floats] = {}
    for noise in (False, True):
        mine = [row for row in everyone if (row.signals == "noise") == noise]
        world = environment(horizon, count, events, mine[0].signals)
        result = study.play([row.policy for row in mine], world, horizon, setup)
        found |= dict(zip(map(named, mine), result.regret[:, :, -1], strict=True))
    return {named(row): found[named(row)] for row in everyone}


def cells_of(setup: study.Setup) -> list[study.Cell]:
    """Play everything: one cell for each policy and setting."""
    return [
        {
            "events": events,
            "shifts": text,
            "count": count,
            "horizon": horizon,
            "policy": name,
            "regret_mean": float(regret.mean()),
            "regret_se": standard_error(regret),
            "runs": len(regret),
        }
        for events in EVENTS
        for horizon in HORIZONS
        for text, count in distinct(shifts(horizon)).items()
        for name, regret in played(horizon, count, events, setup).items()
    ]


def distinct(counts: dict[str, int]) -> dict[str, int]:
    """Leave out fewer than two events, and a number that stands there already.

    Examples
    --------
    >>> distinct({"5 in all": 5, "1 in 5,000": 1, "1 in 1,000": 5})
    {'5 in all': 5}
    """
    kept: dict[str, int] = {}
    for text, count in counts.items():
        if count > 1 and count not in kept.values():
            kept[text] = count
    return kept


def table(cells: list[study.Cell], events: str) -> str:
    """Return the regrets of a kind of event: a row for each policy."""
    mine = [
        cell | {"setting": f"{cell['horizon']:,}: {cell['shifts']}"}
        for cell in study.select(cells, events=events)
    ]
    return study.pivot(mine, "policy", "setting", "{regret_mean:,.0f} ± {regret_se:,.0f}")


def written(cells: list[study.Cell], setup: study.Setup) -> str:
    """Return the report."""
    tables = "\n\n".join(f"## {kind.capitalize()} events\n\n{table(cells, kind)}" for kind in EVENTS)
    spread = {"together": TOGETHER, "spacing": SPACING, "close": CLOSE}
    return study.report("shift_horizons", setup, title=TITLE, arms=ARMS, tables=tables, **spread)


def draw(cells: list[study.Cell], path: Path) -> None:
    """Draw regret by horizon, with as many events at each: one panel for each kind of event."""
    fixed = study.select(cells, count=TOGETHER)
    shown = assign_line_styles(cell["policy"] for cell in fixed)
    with study.drawing(path, 8.0, 8.4, rows=len(EVENTS), sharex=True) as axes:
        for ax, events in zip(axes, EVENTS, strict=True):
            for name in shown:
                mine = study.select(fixed, events=events, policy=name)
                x, y = [c["horizon"] for c in mine], [c["regret_mean"] for c in mine]
                style = study.MARKED | {"capsize": 2} | shown[name]
                ax.errorbar(x, y, [2.0 * c["regret_se"] for c in mine], label=name, **style)
            study.inscribe(ax, xscale="log", yscale="log", ylabel="regret (bars: ±2 s.e.)")
            ax.set_title(f"{events} events, {TOGETHER} in all", size=10, loc="left")
        axes[-1].set_xlabel("rounds")
        study.legend_below(axes, ncols=2, fontsize=8)


def reproduce(setup: study.Setup) -> study.Reproduction:
    """Play every setting."""
    cells = cells_of(setup)
    given = {"horizons": list(HORIZONS), "arms": ARMS, "features": FEATURES, "margin": MARGIN}
    return study.Reproduction(cells, written(cells, setup), partial(draw, cells), setup.settings(**given))


SHIFT_HORIZONS = study.Item(TITLE, 8, reproduce)
