"""The recommended policy, untuned, beside others that were tuned for each setting.

Candidates are played on streams of their own first; the one of least regret there is the *tuned
best* of the setting, and meets the recommended policy on other streams, paired run by run.

A reading is a family of settings, or ``all`` of them; ``quick`` plays one setting of each family, for a
tenth of its rounds. Search interest is played where a table of it is given.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from studies import study
from studies.cells import KINDS, SHAPES, STARTS, UsersOfLists, duel_settings
from tacit import policies
from tacit.core.arrays import Floats
from tacit.environments import (
    BernoulliArms,
    CascadeArms,
    Environment,
    ExaminationArms,
    GradedArms,
    LongTail,
    SearchInterest,
    ShiftingArms,
)
from tacit.errors import InvalidValue
from tacit.plots import COLOURS

# ---- Series of anything, turned into clicks on named arms by one rule

FOLDER = Path(__file__).parent / "series"
LOWEST, HIGHEST = 0.02, 0.5
"""The click rates of a column where it is lowest and highest, as of ``SearchInterest``."""


def series_names() -> list[str]:
    """Return the names of the tables that are carried along."""
    return sorted(path.stem for path in FOLDER.glob("*.csv"))


def clicks_of(values: Floats) -> Floats:
    """Return click rates: each column's rank among its own rows, ties in the middle, from 0.02 to 0.5.

    Parameters
    ----------
    values : array of float64, shape (rows, columns)

    Examples
    --------
    >>> clicks_of(np.array([[7.0, 1.0], [9.0, 1.0]])).tolist()
    [[0.02, 0.26], [0.5, 0.26]]
    """
    below = (values[:, None] > values[None]).sum(axis=1)
    level = (values[:, None] == values[None]).sum(axis=1)
    rank: Floats = (below + 0.5 * (level - 1)) / (len(values) - 1)
    return LOWEST + (HIGHEST - LOWEST) * rank


def stream_of(name: str, horizon: int) -> ShiftingArms:
    """Return a table as one key's clicks: a column is an arm, and rows share the rounds in their order."""
    clicks = clicks_of(np.genfromtxt(FOLDER / f"{name}.csv", delimiter=",", skip_header=1)[:, 1:])
    events = [1 + row * horizon // len(clicks) for row in range(1, len(clicks))]
    return ShiftingArms(arms=clicks.shape[1], events=events, clicks=clicks.tolist())


# ---- What is played, for how long, and from which seeds

TITLE = "One default, untuned, beside everything else, tuned"
TUNING_SHARE, LEAST_TUNING = 4, 5
TUNING_SEED = 1_000_000
"""Added to the seed for the streams on which candidates are tuned."""
MANY, LEAST_ROOM = 30, 16
"""From so many cells on a figure has them by family, each of which has room for so many."""
TICKS = (0.01, 0.05, 0.25, 0.5, 1.0, 2.0, 4.0)
INTENTS = ((0.55, 0.25, 0.15, 0.10, 0.05), (0.10, 0.50, 0.15, 0.25, 0.05), (0.05, 0.15, 0.60, 0.10, 0.35))


# ---- The rivals, and what of them is tuned


def _grid(make: Callable[..., policies.Policy], **values: tuple[Any, ...]) -> list[policies.Policy]:
    """Return a policy for each combination of hyperparameters."""
    return [make(**dict(zip(values, each, strict=True))) for each in product(*values.values())]


def _named_arms(world: Environment, horizon: int) -> list[policies.Policy]:
    arms, windows = world.arm_count, (horizon // 50, horizon // 10)
    return [
        policies.KLUCB(arms),
        policies.Thompson(arms),
        *_grid(partial(policies.UCB1, arms), alpha=(0.1, 0.2, 0.35, 0.5)),
        *_grid(partial(policies.EpsilonGreedy, arms), epsilon=(0.01, 0.05, 0.1)),
        *_grid(partial(policies.Thompson, arms), discount=(0.9, 0.99, 0.999, 0.9999)),
        *_grid(partial(policies.baselines.GLRKLUCB, arms), alpha=(0.0, 0.005, 0.02)),
        *_grid(partial(policies.baselines.SlidingWindowUCB, arms), window=windows, xi=(0.1, 0.3, 0.6)),
        *_grid(
            partial(policies.baselines.DiscountedUCB, arms), discount=(0.99, 0.999, 0.9999), xi=(0.1, 0.3)
        ),
        policies.baselines.EXP3S.from_horizon(arms, horizon, 4),
    ]


def _features(world: Environment, horizon: int) -> list[policies.Policy]:
    dims = world.feature_dims
    return [
        *_grid(partial(policies.LinUCB, *dims), alpha=(0.25, 0.5, 1.0, 2.0)),
        *_grid(partial(policies.LaplaceEC, *dims), draw=("parameters", "coupled")),
        *_grid(partial(policies.LogisticTS, *dims), draw=("parameters", "coupled")),
        *_grid(partial(policies.LinTS, *dims), draw=("parameters", "coupled")),
    ]


def _lists(world: Environment, horizon: int) -> list[policies.Policy]:
    arms, positions = world.arm_count, world.action_width
    return [
        policies.CascadeKLUCB(arms, positions=positions),
        policies.CascadeUCB1(arms, positions=positions),
        policies.baselines.PBMUCB(arms, positions=positions),
        policies.baselines.PBMThompson(arms, positions=positions),
        policies.baselines.RankedBandit(policies.KLUCB(arms), positions=positions),
    ]


def _duels(world: Environment, horizon: int) -> list[policies.Policy]:
    arms = world.arm_count
    return [
        policies.RMED1(arms),
        *_grid(partial(policies.baselines.RUCB, arms), alpha=(0.51, 1.0)),
        *_grid(partial(policies.baselines.DoubleThompsonSampling, arms), alpha=(0.51, 1.0)),
        policies.baselines.SelfSparring(arms),
        policies.baselines.WinnerStays(arms),
    ]


class RegretSetting(NamedTuple):
    """Where everybody is played, for how long, and against whom.

    Attributes
    ----------
    environment : Environment
    horizon : int
    candidates : function
        Of the environment and the horizon.
    stealthy : bool
        Whether shifts leave the clicks on what is shown as they are; such settings count apart.
    others : sequence of Environment
        More worlds of the kind; runs are dealt out among all.
    looks : sequence of int
        After how many rounds regret is looked at besides the horizon; each look is a cell.
    feedback : mapping, optional
        When feedback comes, as :func:`tacit.simulate` takes it; else at once.
    reward_range : pair or None
        What the recommended policy is told of rewards.
    """

    environment: Environment
    horizon: int
    candidates: Callable[[Environment, int], list[policies.Policy]] = _named_arms
    stealthy: bool = False
    others: Sequence[Environment] = ()
    looks: Sequence[int] = ()
    feedback: Mapping[str, Any] | None = None
    reward_range: Any = (0, 1)


def _recurring(count: int, horizon: int) -> ShiftingArms:
    events = [1 + i * horizon // (count + 1) for i in range(1, count + 1)]
    clicks = [INTENTS[i % len(INTENTS)] for i in range(count + 1)]
    return ShiftingArms(arms=len(INTENTS[0]), events=events, clicks=clicks)


SETTINGS: dict[str, RegretSetting] = {
    "steady, 1,000 rounds": RegretSetting(ShiftingArms(events=0), 1_000),
    "steady, 10,000 rounds": RegretSetting(ShiftingArms(events=0), 10_000),
    "steady, 40 arms": RegretSetting(ShiftingArms(arms=40, events=0, gap=0.02), 10_000),
    "clicks of 1 to 5 %": RegretSetting(BernoulliArms([0.01, 0.02, 0.03, 0.04, 0.05]), 10_000),
    "1 shift": RegretSetting(ShiftingArms(events=1), 10_000),
    "3 shifts": RegretSetting(ShiftingArms(events=3), 10_000),
    "10 shifts": RegretSetting(ShiftingArms(events=10), 10_000),
    "3 shifts, feedback in batches of 50": RegretSetting(ShiftingArms(events=3, batch=50), 10_000),
    "3 shifts, late feedback": RegretSetting(ShiftingArms(events=3, delay=(10, 200)), 10_000),
    "3 intents, again and again": RegretSetting(_recurring(20, 20_000), 20_000),
    "3 stealthy shifts": RegretSetting(ShiftingArms(events=3, stealthy=True), 10_000, stealthy=True),
    **{
        f"200 keys, 50 rounds each: {text}": RegretSetting(LongTail(keys=200, alike=alike), 10_000)
        for alike, text in {
            "arms": "alike by arm", "clusters": "four clusters", "offsets": "alike but for a level",
            "nothing": "nothing in common",
        }.items()
    },
    "features, θ × 1": RegretSetting(ExaminationArms(), 2_000, _features),
    "features, θ × 4": RegretSetting(ExaminationArms(scale=4.0), 2_000, _features),
    "features, ten arms": RegretSetting(ExaminationArms(pool=10), 2_000, _features),
    "features, one shift": RegretSetting(ExaminationArms(redraws=(1_001,)), 2_000, _features),
    "lists read from the top": RegretSetting(
        CascadeArms([0.3, 0.25, 0.2, 0.2, 0.15, 0.15, *[0.1] * 14], positions=5), 10_000, _lists
    ),
}  # fmt: skip


# ---- Families of settings: the first one is what the recommendation was tuned on first

STEPS = (0.05, 0.1, 0.15, 0.2)
INTEREST = (20_000, 100_000)
LIST = "5 of 20"
QUICK, FEW = 10, 2
"""The quick reading plays so many times fewer rounds, and so many candidates."""


def _stealth() -> dict[str, RegretSetting]:
    return {
        f"3 stealthy shifts by {step:g} to {1.5 * step:g}": RegretSetting(
            ShiftingArms(events=3, stealthy=True, gap=step), 10_000, stealthy=True
        )
        for step in STEPS
    }


def _of_duels() -> dict[str, RegretSetting]:
    found = {}
    for name, (worlds, horizons) in duel_settings().items():
        first, *others = worlds
        *looks, horizon = horizons
        found[f"duels: {name}"] = RegretSetting(first, horizon, _duels, others=others, looks=looks)
    return found


def _of_lists() -> dict[str, RegretSetting]:
    arms, positions = SHAPES[LIST]
    return {
        f"lists, {start} start: {kind}": RegretSetting(
            UsersOfLists(kind, arms, positions, noise, scale), 20_000, _lists, looks=[3_000]
        )
        for start, (noise, scale) in STARTS.items()
        for kind in KINDS
    }


RATES = (0.3, 0.5, 0.1)
LATE_WINDOW, BUSIEST = 1_000, 3_000
"""The window, in rounds, under which delays of all kinds are played; the longest that is played."""


def delays_within(window: int) -> dict[str, Any]:
    """Return distributions of delays, as :func:`tacit.simulate` takes them."""

    def lognormal(share: Floats) -> Floats:
        normal = np.array([NormalDist().inv_cdf(each) for each in share])
        return 0.1 * window * np.exp(1.5 * normal - 1.125)

    def uniform(share: Floats) -> Floats:
        return window * share

    return {
        "1 % of it": 0.01 * window,
        "log-normal": lognormal,
        "four of five at once": lambda share: np.where(share < 0.8, 0.0, window * (5.0 * share - 4.0)),
        "uniform": uniform,
        "from 60 % of it on": lambda share: window * (0.6 + 0.4 * share),
        "uniform of one arm, 1 % of others": [0.01 * window, uniform, 0.01 * window],
    }


def _clicks_only() -> dict[str, RegretSetting]:
    """Return settings in which only clicks are sent, and silence is known when a window ends."""
    late: list[tuple[str, tuple[float, ...], int, Any]] = [
        (f"window {window:,}", RATES, window, None) for window in (30, 100, 300, LATE_WINDOW, BUSIEST)
    ]
    late += [
        (f"delays {text}", RATES, LATE_WINDOW, each) for text, each in delays_within(LATE_WINDOW).items()
    ]
    late += [
        (f"clicks of {text}", tuple(share * rate for rate in RATES), LATE_WINDOW, None)
        for text, share in (("1 to 5 %", 0.1), ("2 to 10 %", 0.2))
    ]
    found = {}
    for text, rates, window, delay in late:
        feedback = {"feedback": "clicks only", "window": window, "delay": delay}
        for shifts, horizon in ((0, 12_000), (3, 20_000)):
            events = [1 + i * horizon // (shifts + 1) for i in range(1, shifts + 1)]
            clicks = [rates[i:] + rates[:i] for i in (0, 1, 2, 0)[: shifts + 1]]
            world = ShiftingArms(arms=len(rates), events=events, clicks=clicks)
            name = f"{text}, {'3 shifts' if shifts else 'steady'}"
            found[name] = RegretSetting(world, horizon, feedback=feedback)
    return found


def _of_rewards() -> dict[str, RegretSetting]:
    """Return settings of grades, stars, signed rewards, and amounts of which only rivals know a limit."""
    found, text = {}, Path(__file__).with_name("reward_streams.toml").read_text()
    for name, stream in tomllib.loads(text).items():
        for shifts, events in (("steady", []), ("3 shifts", [2_501, 5_001, 7_501])):
            world = GradedArms(stream["arms"], events, stream["price"], stream["limits"])
            setting = RegretSetting(world, 10_000, _told_limits, reward_range=stream["told"])
            found[f"{name}, {shifts}"] = setting
    return found


def _told_limits(world: Environment, horizon: int) -> list[policies.Policy]:
    small = _grid(partial(policies.UCB1, world.arm_count), alpha=(0.001, 0.003, 0.01, 0.03))
    return [rival.with_range(world.reward_range) for rival in (*small, *_named_arms(world, horizon))]


def _interest(data: Path | None) -> dict[str, RegretSetting]:
    """Return settings of search interest: of a table, or of each one in a folder."""
    if data is None:
        return {}
    paths = sorted(data.glob("*.csv")) if data.is_dir() else [data]
    return {
        f"interest, {path.stem}, {rounds:,}": RegretSetting(SearchInterest(path), rounds, looks=[rounds // 2])
        for path in paths
        for rounds in INTEREST
    }


FAMILIES: dict[str, Callable[[study.Setup], dict[str, RegretSetting]]] = {
    "nineteen": lambda setup: SETTINGS,
    "stealth": lambda setup: _stealth(),
    "duels": lambda setup: _of_duels(),
    "lists": lambda setup: _of_lists(),
    "series": lambda setup: {
        f"series, {name}": RegretSetting(stream_of(name, 10_000), 10_000) for name in series_names()
    },
    "interest": lambda setup: _interest(setup.data),
    "clicks-only": lambda setup: _clicks_only(),
    "rewards": lambda setup: _of_rewards(),
}


def families(setup: study.Setup) -> dict[str, dict[str, RegretSetting]]:
    """Return what a reading plays, by family.

    Raises
    ------
    InvalidValue
        If it plays search interest alone, and no table is given.
    """
    names = list(FAMILIES) if setup.reading in ("all", "quick") else [setup.reading]
    found = {name: made for name in names if (made := FAMILIES[name](setup))}
    if {"nineteen", "stealth"} <= found.keys():
        # Among the first is a stealthy one, which the others have, too.
        found["nineteen"] = {name: setting for name, setting in SETTINGS.items() if not setting.stealthy}
    if not found:
        raise InvalidValue("data", setup.data, "give a table of search interest for this reading")
    return {name: _shortened(made) for name, made in found.items()} if setup.reading == "quick" else found


def _shortened(made: dict[str, RegretSetting]) -> dict[str, RegretSetting]:
    """Return the shortest setting of a family, for a part of its rounds, with its first candidates."""
    name, setting = min(made.items(), key=lambda pair: pair[1].horizon)

    def few(world: Environment, horizon: int) -> list[policies.Policy]:
        return setting.candidates(world, horizon)[:FEW]

    return {name: setting._replace(horizon=setting.horizon // QUICK, looks=(), candidates=few)}


# ---- What is found


def _regrets(players: Sequence[policies.Policy], setting: RegretSetting, setup: study.Setup) -> Floats:
    """Return the regrets of players, of shape (players, runs, looks and the horizon)."""
    worlds = [setting.environment, *setting.others]
    dealt = setup._replace(runs=max(setup.runs // len(worlds), 1))
    looks = [*setting.looks, setting.horizon]
    found = [
        study.play(
            players, world, setting.horizon, dealt._replace(seed=setup.seed + i), looks, setting.feedback
        ).regret
        for i, world in enumerate(worlds)
    ]
    return np.concatenate(found, axis=1)


def cells_of(name: str, setting: RegretSetting, setup: study.Setup) -> list[study.Cell]:
    """Tune the candidates, and play the best of them beside the recommended policy: a cell for each look."""
    world, horizon = setting.environment, setting.horizon
    candidates = setting.candidates(world, horizon)
    runs = max(setup.runs // TUNING_SHARE, LEAST_TUNING)
    tuning = setup._replace(runs=runs, seed=setup.seed + TUNING_SEED)
    chosen = _regrets(candidates, setting, tuning).mean(axis=1).argmin(axis=0)
    bests = [candidates[place] for place in dict.fromkeys(chosen.tolist())]
    own = policies.policy_from_spec("auto", world.arm_count, setting=world.setting)
    own = own.with_range(setting.reward_range)
    regret = _regrets([own, *bests], setting, setup)
    cells = []
    for k, rounds in enumerate([*setting.looks, horizon]):
        best = candidates[int(chosen[k])]
        mine, its = regret[0, :, k], regret[1 + bests.index(best), :, k]
        ratio, error = study.ratio_of(mine, its)
        cells.append(
            {
                "setting": f"{name}, {rounds:,}" if setting.looks else name,
                "stream": name,
                "stealthy": setting.stealthy,
                "policy": own.label,
                "regret_mean": float(mine.mean()),
                "best": best.label,
                "best_mean": float(its.mean()),
                "ratio": ratio,
                "ratio_se": error,
                "runs": len(mine),
                "tuning_runs": runs,
                "candidates": len(candidates),
            }
        )
    return cells


def geometric_mean(cells: list[study.Cell]) -> tuple[float, float]:
    """Return the geometric mean of ratios and its standard error; looks at one stream err together."""
    mean = math.exp(sum(math.log(cell["ratio"]) for cell in cells) / len(cells))
    errors: dict[str, float] = {}
    for cell in cells:
        errors[cell["stream"]] = errors.get(cell["stream"], 0.0) + cell["ratio_se"] / cell["ratio"]
    return mean, mean * math.hypot(*errors.values()) / len(cells)


def _summary(cells: list[study.Cell], what: str) -> str:
    worst = max(cells, key=lambda cell: cell["ratio"])
    mean, error = geometric_mean(cells)
    return (
        f"{what}: geometric mean of the ratios {mean:.2f} ± {error:.2f}; the worst, {worst['ratio']:.2f} ± "
        f"{worst['ratio_se']:.2f}, in \N{LEFT DOUBLE QUOTATION MARK}{worst['setting']}"
        f"\N{RIGHT DOUBLE QUOTATION MARK}"
    )


def _written(cells: list[study.Cell], setup: study.Setup) -> str:
    columns = {
        "setting": "{setting}",
        "untuned": "{policy}",
        "regret": "{regret_mean:,.1f}",
        "tuned best": "{best}",
        "its regret": "{best_mean:,.1f}",
        "ratio ± s.e.": "{ratio:.2f} ± {ratio_se:.2f}",
    }
    open_ = [cell for cell in cells if not cell["stealthy"]]
    names = list(dict.fromkeys(cell["family"] for cell in cells))
    of_each = [_summary(study.select(cells, family=name), f"Family {name!r}") for name in names]
    without = [_summary(open_, "Without stealthy shifts")] if 0 < len(open_) < len(cells) else []
    whole = [_summary(cells, "All settings"), *without]
    summary = study.listed([*whole, *(of_each if len(names) > 1 else ())])
    tuning = cells[0]["tuning_runs"]
    return study.report(
        "defaults", setup, title=TITLE, tuning=tuning, table=study.table(cells, columns), summary=summary
    )


def _colour(cell: study.Cell) -> str:
    """Return whether a ratio is below 1, above, or neither, by two standard errors, as a colour."""
    apart = math.log(cell["ratio"]) * cell["ratio"]
    return "0.5" if abs(apart) < 2.0 * cell["ratio_se"] else COLOURS[0] if apart < 0.0 else COLOURS[1]


def _bar(cell: study.Cell) -> list[list[float]]:
    """Return how far two standard errors, taken of the ratio's logarithm, reach below and above."""
    ratio, error = cell["ratio"], 2.0 * cell["ratio_se"] / cell["ratio"]
    return [[ratio * (1.0 - math.exp(-error))], [ratio * (math.exp(error) - 1.0)]]


def draw(cells: list[study.Cell], path: Path) -> None:
    """Draw the ratios: a row each, or, if there are many, by family."""
    if len(cells) >= MANY:
        _draw_families(cells, path)
        return
    with study.drawing(path, 7.5, 0.3 * len(cells) + 1.2) as ax:
        for y, cell in enumerate(reversed(cells)):
            ax.errorbar(cell["ratio"], y, xerr=_bar(cell), fmt="o", ms=5, color=_colour(cell))
        ax.axvline(1.0, color="0.6", lw=1.0)
        ax.set_yticks(range(len(cells)), [cell["setting"] for cell in reversed(cells)], size=8)
        ratios = [cell["ratio"] for cell in cells]
        least = min(0.2, min(ratios) / 1.2)
        study.inscribe(ax, xscale="log", xlim=(least, max(5.0, 1.2 * max(ratios))))
        ticks = [tick for tick in TICKS if tick >= least]
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
        ax.set_xticks([], minor=True)
        ax.set_xlabel("regret, the untuned default's over the tuned best's (±2 s.e.)")


def _draw_families(cells: list[study.Cell], path: Path) -> None:
    """Draw all cells from the best to the worst, side by side by family, with a band of each one's mean."""
    names, start = list(dict.fromkeys(cell["family"] for cell in cells)), 0.0
    top = max(cells, key=lambda cell: cell["ratio"])
    least = 0.4 * min(cell["ratio"] - _bar(cell)[0][0] for cell in cells)
    with study.drawing(path, 8.0, 4.6) as ax:
        for name in names:
            mine = sorted(study.select(cells, family=name), key=lambda cell: cell["ratio"])
            for x, cell in enumerate(mine):
                style = {"fmt": "o", "ms": 3, "lw": 1.0, "color": _colour(cell)}
                ax.errorbar(start + x, cell["ratio"], yerr=_bar(cell), **style)
            mean, error = geometric_mean(mine)
            ends = [start - 0.5, start + max(len(mine), LEAST_ROOM) - 0.5]
            ax.fill_between(ends, mean - 2.0 * error, mean + 2.0 * error, color="0.3", alpha=0.3, lw=0.0)
            ax.plot(ends, [mean, mean], color="0.3", lw=1.2)
            if mine[-1] is top:
                at = start + len(mine) - 1, top["ratio"] + _bar(top)[1][0]
                # Away from the nearer edge, where there is room for it.
                way = 4 if names.index(name) < len(names) / 2 else -4
                beside = {"ha": "left" if way > 0 else "right", "textcoords": "offset points", "size": 8}
                ax.annotate(f"the worst: {top['setting']}", at, (way, 4), **beside)
            ax.text(ends[0], 1.05 * least, f"{name}\n{mean:.2f}\n± {error:.2f}", size=8, va="bottom")
            start = ends[1] + 2.5
        ax.axhline(1.0, color="0.6", lw=1.0)
        study.inscribe(ax, yscale="log", ylim=(least, 6.0), xlim=(-3.0, start))
        ticks = [tick for tick in TICKS if tick >= least]
        ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
        ax.set_yticks([], minor=True)
        ax.set_xticks([])
        ax.set_ylabel("regret, the untuned default's over\nthe tuned best's (±2 s.e.)")


def reproduce(setup: study.Setup) -> study.Reproduction:
    """Play every setting of a reading."""
    cells = [
        {"family": family, **cell}
        for family, made in families(setup).items()
        for name, setting in made.items()
        for cell in cells_of(name, setting, setup)
    ]
    settings = setup.settings() | ({} if setup.reading == READINGS[0] else {"reading": setup.reading})
    return study.Reproduction(cells, _written(cells, setup), partial(draw, cells), settings)


READINGS = ("nineteen", "all", "quick", *(name for name in FAMILIES if name != "nineteen"))
DEFAULTS = study.Item(TITLE, 100, reproduce, READINGS)
