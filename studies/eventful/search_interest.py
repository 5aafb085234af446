"""One query over a year of real search interest: what each policy made of the shifts.

Policies may read the clicks on what they showed and the service's own signals, nothing else.
The first quarter of the days served to choose parameters; regret is counted on the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any, NamedTuple

import numpy as np

from studies import study
from tacit import policies
from tacit.classifiers import Rectangle
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import arrive, epoch, expected, kernel, optimum, respond
from tacit.core.part import float_range
from tacit.environments import Environment, SearchInterest
from tacit.errors import InvalidValue
from tacit.plots import COLOURS, assign_line_styles
from tacit.simulation import Run, standard_error

TITLE = "A query over a year of real search interest: every policy on real shifts of intent"
TRAFFIC = {"practical": (1_000, 10_000), "full": (10_000, 100_000)}
"""Impressions a day, on average, by reading."""


# What the service can see ----------------------------------------------------------------------


@kernel
def elapse(averages: Floats, spans: Floats, days: float) -> None:
    """Let time pass: older time, impressions and clicks fade."""
    for i in range(len(spans)):
        kept = math.exp(-days / spans[i])
        averages[i, :] *= kept
        averages[i, 0] += spans[i] * (1.0 - kept)


@kernel
def volume(averages: Floats, prior: float) -> float:
    """Return the recent impressions' share of themselves and of what the past leads to expect."""
    usual = averages[0, 0] * averages[1, 1] / averages[1, 0]
    return float((averages[0, 1] + prior) / (averages[0, 1] + usual + 2.0 * prior))


@kernel
def abandonment(averages: Floats, prior: float) -> float:
    """Return (1 + recent − usual)/2 of the share of impressions that got no click."""
    if averages[1, 1] <= 0.0:
        return 0.5
    usual = 1.0 - averages[1, 2] / averages[1, 1]
    without = averages[0, 1] - averages[0, 2]
    recent = (without + prior * usual) / (averages[0, 1] + prior)
    return float(0.5 + 0.5 * (recent - usual))


Span = Annotated[float, float_range(0.0, 1e9, open_low=True)]


@dataclass(frozen=True)
class WatchedInterest(Environment):
    """A query that follows search interest, with the signals that a service has of it.

    A context has two numbers, each 1/2 where all is as usual, in O(1) per impression. Let N, A
    and S be the impressions, those without a click, and the time in days, each weighted by
    exp(−age/span); f stands for the ``fast`` span, s for the ``slow`` one, k for ``prior``.

    - volume: (N_f + k)/(N_f + E + 2k), where E = S_f·N_s/S_s impressions were to be expected;
    - abandonment: (1 + q − u)/2, with the usual share u = A_s/N_s and the recent share
      q = (A_f + k·u)/(N_f + k).

    The k imagined impressions keep the signals quiet where traffic is thin. The second signal
    depends on what was shown, as it does in a service; impressions and the chance behind each
    click do not.

    Parameters
    ----------
    interest : SearchInterest
    fast, slow : float, default 0.25 and 2
        Spans of the averages in days; above 0.
    prior : float, default 100
        k, above 0.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "interest.csv"
    >>> _ = path.write_text("date,holiday,film\\n1996-07-02,80,0\\n1996-07-05,10,90\\n")
    >>> WatchedInterest(SearchInterest(path)).context_dim
    2
    """

    class World(NamedTuple):
        impression: policies.Impression
        interest: SearchInterest.World
        spans: Floats  # (2,) fast and slow
        averages: Floats  # (2, 3) fast and slow sums of time, impressions and clicks
        moment: Floats  # (1,) of the latest impression, in days
        shown: Ints  # (days − 1, arms)

    interest: SearchInterest
    fast: Span = 0.25
    slow: Span = 2.0
    prior: Span = 100.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.interest, SearchInterest):
            raise InvalidValue("interest", self.interest, "give a SearchInterest")

    @property
    def arm_count(self) -> int:
        return self.interest.arm_count

    context_dim = 2

    def world(self, rng: Generator, horizon: int) -> World:
        interest = self.interest.world(rng, horizon)
        return self.World(
            impression=policies.Impression(interest.impression.arms, np.full(2, 0.5)),
            interest=interest,
            spans=np.array([self.fast, self.slow]),
            averages=np.zeros((2, 3)),
            moment=np.zeros(1),
            shown=np.zeros((len(interest.ends), self.arm_count), np.int64),
        )

    @staticmethod
    def arrive(params: WatchedInterest, world: World, round: int, rng: Generator) -> Any:
        lane = arrive(params.interest, world.interest, round, rng)
        now = world.interest.day[0] + world.interest.part[0]
        elapse(world.averages, world.spans, now - world.moment[0])
        world.moment[0] = now
        world.impression.context[1] = abandonment(world.averages, params.prior)
        world.averages[:, 1] += 1.0
        world.impression.context[0] = volume(world.averages, params.prior)
        return lane

    @staticmethod
    def respond(params: WatchedInterest, world: World, lane: int, arm: int) -> Any:
        click = respond(params.interest, world.interest, lane, arm)
        world.averages[:, 2] += click
        world.shown[world.interest.day[0], arm] += 1
        return click

    @staticmethod
    def expected(params: WatchedInterest, world: World, lane: int, arm: int) -> Any:
        return expected(params.interest, world.interest, lane, arm)

    @staticmethod
    def optimum(params: WatchedInterest, world: World, lane: int) -> Any:
        return optimum(params.interest, world.interest, lane)


# A run, day by day -----------------------------------------------------------------------------


class Season(NamedTuple):
    """What a run left behind, day by day.

    Attributes
    ----------
    regret, clicks : array of float64, shape (days,)
        Totals up to the end of the day.
    epochs : array of int64, shape (days,)
        Restarts up to the end of the day.
    shown : array of int64, shape (days, arms)
        How often each arm was shown that day.
    """

    regret: Floats
    clicks: Floats
    epochs: Ints
    shown: Ints


def day_ends(environment: WatchedInterest, horizon: int) -> Ints:
    """Return the rounds by which each day has passed, shape (days,).

    The last day of a table only ends the one before, so there is one less than in the table.
    """
    ends = environment.interest.world(np.random.default_rng(0), horizon).ends
    return np.ceil(ends - 0.5).astype(np.int64)


def season(
    policy: policies.Policy, environment: WatchedInterest, horizon: int, seed: int, number: int
) -> Season:
    """Play a run day by day; its rounds are exactly those of :func:`tacit.simulate`.

    Parameters
    ----------
    policy : Policy
    environment : WatchedInterest
    horizon : int
        Rounds of the whole period.
    seed, number : int
        Which run of which seed.
    """
    run = Run(policy, environment, horizon, seed, number, np.zeros(0, np.int64))
    totals, epochs = [], []
    for end in day_ends(environment, horizon):
        run.advance(int(end) - run.round)
        totals.append(run.curve.total.copy())
        epochs.append(epoch(policy.params, run.state, 0))
    regret, clicks = np.array(totals).T
    return Season(regret, clicks, np.array(epochs), run.world.shown)


def contenders(arms: int | tuple[str, ...]) -> list[policies.Policy]:
    """Return the policies that are compared.

    What differs from the defaults had the least product of the regrets at one and at ten
    thousand impressions a day among a handful of settings, over the first quarter of the
    days of the table of 2017, with another seed. ProbationBandit was not tuned: its own defaults.
    """
    signals = Rectangle(dim=2, margin=0.06)
    return [
        policies.baselines.GLRKLUCB(arms, alpha=0.002),
        policies.baselines.GLRKLUCB(arms, alpha=0.002, local=True),
        policies.baselines.CUSUMUCB(arms, xi=0.5, alpha=0.002),
        policies.baselines.MUCB(arms, window=400, threshold=80.0, gamma=0.005),
        policies.baselines.DiscountedUCB(arms, discount=0.9999, xi=0.01),
        policies.baselines.SlidingWindowUCB(arms, window=10_000, xi=0.02),
        policies.UCB1(arms),
        policies.KLUCB(arms),
        policies.Thompson(arms),
        policies.Thompson(arms, discount=0.99997),
        policies.baselines.EXP3S(arms, gamma=0.05, alpha=1e-6),
        policies.UniformRandom(arms),
        policies.BWC(policy=policies.KLUCB(arms), classifier=signals, test_rounds=4000),
        policies.BWC(policy=policies.UCB1(arms), classifier=signals, test_rounds=4000),
        policies.ProbationBandit(arms, classifier=signals, base="kl-ucb"),
        policies.ProbationBandit(arms, classifier=signals),
    ]


def played(environment: WatchedInterest, horizon: int, setup: study.Setup) -> list[list[Season]]:
    """Return the seasons of every policy and run."""
    chosen = contenders(environment.arm_count)
    for policy in chosen:
        # Compiled here, once, before threads would ask for it side by side.
        Run(policy, environment, horizon, setup.seed, 0, np.zeros(0, np.int64)).advance(0)

    def one(task: int) -> Season:
        place, number = divmod(task, setup.runs)
        return season(chosen[place], environment, horizon, setup.seed, number)

    found = study.each_run(one, len(chosen) * setup.runs, setup, f"{horizon:,} rounds")
    return [found[i : i + setup.runs] for i in range(0, len(found), setup.runs)]


# What came of it -------------------------------------------------------------------------------


class Year(NamedTuple):
    """All seasons at one amount of traffic.

    Attributes
    ----------
    traffic : int
        Impressions a day, on average.
    names : list of str
        The policies.
    ends : array of int64, shape (days,)
        The rounds by which the days have passed.
    optimum : array of float64, shape (days,)
        Clicks that can be expected of the best choices, up to the end of the day.
    seasons : list of list of Season
        By policy and run.
    """

    traffic: int
    names: list[str]
    ends: Ints
    optimum: Floats
    seasons: list[list[Season]]

    def totals(self, of: str) -> dict[str, Any]:
        """Return running totals of each policy, shape (runs, days)."""
        each = zip(self.names, self.seasons, strict=True)
        return {name: np.array([getattr(season, of) for season in seasons]) for name, seasons in each}


def played_year(environment: WatchedInterest, traffic: int, setup: study.Setup) -> Year:
    """Play the whole table at ``traffic`` impressions a day."""
    horizon = traffic * (len(environment.interest.dates) - 1)
    ends = day_ends(environment, horizon)
    seasons = played(environment, horizon, setup)
    names = [policy.label for policy in contenders(environment.arm_count)]
    return Year(traffic, names, ends, best_clicks(environment.interest, ends), seasons)


def best_clicks(interest: SearchInterest, ends: Ints) -> Floats:
    """Return what clicks the best choices get up to the end of each day, in expectation.

    Within a day the best click probability is averaged over 1000 moments.
    """
    part = ((np.arange(1000) + 0.5) / 1000)[:, None]
    table = interest.interest
    shares = []
    for today, tomorrow in pairwise(table):
        wanted = (1.0 - part) * today + part * tomorrow
        shares.append((wanted.max(axis=1) / wanted.sum(axis=1)).mean())
    best = interest.floor + (interest.ceiling - interest.floor) * np.array(shares)
    return np.asarray(np.cumsum(best * np.diff(ends, prepend=0)))


def tuning_days(days: int) -> int:
    """Return how many days at the start served to choose parameters."""
    return days // 4


def later(totals: Any) -> Any:
    """Return what the days after the tuning add to running totals (last axis)."""
    return totals[..., -1] - totals[..., tuning_days(totals.shape[-1]) - 1]


def _cells(year: Year) -> list[study.Cell]:
    rounds, optimum = later(year.ends), later(year.optimum)
    regret, clicks, epochs = map(year.totals, ("regret", "clicks", "epochs"))
    return [
        {
            "policy": name,
            "impressions_a_day": year.traffic,
            **study.moments(later(own)),
            "runs": len(own),
            "clicks_per_1000": float(1000 * later(clicks[name]).mean() / rounds),
            "optimum_per_1000": float(1000 * optimum / rounds),
            "restarts_mean": float(later(epochs[name]).mean()),
        }
        for name, own in regret.items()
    ]


def reproduce(setup: study.Setup) -> study.Reproduction:
    """Play the table at every amount of traffic of the reading."""
    if setup.data is None:
        raise InvalidValue("data", None, "give a date × topic table of search interest (CSV)")
    environment = WatchedInterest(SearchInterest(setup.data))
    if len(environment.interest.dates) < 5:
        raise InvalidValue("data", str(setup.data), "give five days or more: a quarter is set aside")
    years = [played_year(environment, traffic, setup) for traffic in TRAFFIC[setup.reading]]
    cells = [cell for year in years for cell in _cells(year)]
    return study.Reproduction(
        cells=cells,
        report=_report(environment, years, cells, setup),
        draw=lambda path: _draw(environment, years[-1], path),
        settings=setup.settings(reading=setup.reading),
    )


def _report(
    environment: WatchedInterest, years: list[Year], cells: list[study.Cell], setup: study.Setup
) -> str:
    interest = environment.interest
    days = len(interest.dates) - 1
    sections = "\n\n".join(
        _section(year, study.select(cells, impressions_a_day=year.traffic), setup) for year in years
    )
    return study.report(
        "search_interest",
        setup,
        title=TITLE,
        interest=interest,
        last=interest.dates[-1],
        reported=interest.dates[tuning_days(days)],
        tuning=tuning_days(days),
        environment=environment,
        sections=sections,
    )


def _with_error(value: str, error: float) -> str:
    """Return a number with its standard error, if a single run leaves one."""
    return value if math.isnan(error) else f"{value} ± {error:,.0f}"


COLUMNS: dict[str, study.Tell] = {
    "policy": "{policy}",
    "regret ± s.e.": lambda cell: _with_error(
        f"{cell['regret_mean']:,.0f}", cell["regret_std"] / math.sqrt(cell["runs"])
    ),
    "clicks/1000": "{clicks_per_1000:.1f}",
    "restarts": "{restarts_mean:.1f}",
}


def _section(year: Year, cells: list[study.Cell], setup: study.Setup) -> str:
    ranked = sorted(cells, key=lambda cell: float(cell["regret_mean"]))
    return study.report(
        "search_interest_year",
        setup,
        year=year,
        optimum=cells[0]["optimum_per_1000"],
        table=study.table(ranked, COLUMNS),
        finding=_finding(year),
    ).strip()


ANNOUNCED = ("BWC", "ProbationBandit")
"""Labels of the policies that read the signals start so."""


def _base(name: str) -> str:
    """Return the name of the policy that one on signals is compared with: its base alone."""
    if name.startswith("BWC"):
        return "UCB1" if "UCB1" in name else "KLUCB"
    return "KLUCB" if "kl-ucb" in name else "Thompson"


def _finding(year: Year) -> str:
    """Return, in words, who won, and what the service's own signals were worth."""
    finals = {name: later(regret) for name, regret in year.totals("regret").items()}
    ranking = sorted(finals, key=lambda name: float(finals[name].mean()))
    lines = [f"Least regret: {ranking[0]}; next: {_against(finals, ranking[1], ranking[0])}."]
    announced_ones = [name for name in ranking if name.startswith(ANNOUNCED)]
    lines += [f"{_against(finals, name, _base(name))}." for name in announced_ones]
    detector = next(name for name in ranking if name.startswith(("GLR", "CUSUM", "MUCB")))
    lines.append(
        f"The best on signals against the best change detector, which reads clicks only: "
        f"{_against(finals, announced_ones[0], detector)}."
    )
    return study.listed(lines)


def _against(finals: dict[str, Floats], first: str, second: str) -> str:
    """Return the ratio and the paired difference of two policies' regrets."""
    difference = finals[first] - finals[second]
    text = _with_error(f"{difference.mean():+,.0f}", standard_error(difference))
    return (
        f"{first} has {finals[first].mean() / finals[second].mean():.2f} times the regret of "
        f"{second} (difference {text})"
    )


# The picture of the year -----------------------------------------------------------------------

LABELLED = 6
OTHERS = "#dddddd"
# Names stand on the right, outside of the axes, in room that is kept for them.
MARGINS = {"left": 0.1, "right": 0.64, "top": 0.96, "bottom": 0.03, "hspace": 0.35}


def _draw(environment: WatchedInterest, year: Year, path: Path) -> None:
    interest = environment.interest
    dates = np.array(interest.dates[:-1], "datetime64[D]")
    wanted = interest.interest[:-1] / interest.interest[:-1].sum(axis=1, keepdims=True)
    topics = np.argsort(-wanted.sum(axis=0), kind="stable")[:LABELLED]
    strips = _strips(year)
    heights = [0.8, 1.5, *[1.5] * len(strips), 3.6]
    grid = {"height_ratios": heights} | MARGINS
    size = 11.0, 1.35 * sum(heights), len(heights)
    with study.drawing(path, *size, sharex=True, gridspec_kw=grid) as axes:
        axes[0].fill_between(dates, np.diff(year.ends, prepend=0), step="post", color="#777777")
        axes[0].set_yscale("log")
        axes[0].set_ylabel("impressions\na day")
        axes[0].set_title(
            f"One query over {len(dates)} days at {year.traffic:,} impressions a day on average",
            size=11,
            loc="left",
        )
        names = [shorten(interest.topics[topic], 44, placeholder=" …") for topic in topics]
        _stack(axes[1], dates, wanted, topics, "What users wanted (share of the interest)", names)
        for ax, i in zip(axes[2:-1], strips, strict=True):
            season = year.seasons[i][0]
            shown = season.shown / np.maximum(season.shown.sum(axis=1, keepdims=True), 1)
            restarts = np.diff(season.epochs, prepend=0)
            text = f"{restarts.sum()} restarts (▼)" if restarts.any() else "never restarts"
            _stack(ax, dates, shown, topics, f"What {year.names[i]} showed: {text}")
            days = dates[restarts > 0]
            ax.plot(days, np.full(len(days), 1.06), "v", color="black", ms=4, clip_on=False)
        _regrets(axes[-1], dates, year)
        axes[-1].axvspan(dates[0], dates[tuning_days(len(dates))], color="#f0f0f0", lw=0)
        axes[-1].set_xlim(dates[0], dates[-1])
        axes[0].figure.set_layout_engine("none")


def _strips(year: Year) -> list[int]:
    """Return whose choices to draw: the best, the best that restarts, and the plain KLUCB."""
    ranking = sorted(
        range(len(year.names)),
        key=lambda i: float(np.mean([later(season.regret) for season in year.seasons[i]])),
    )
    restarting = [i for i in ranking if year.seasons[i][0].epochs[-1] > 0]
    return list(dict.fromkeys([ranking[0], *restarting[:1], year.names.index("KLUCB")]))


def _stack(
    ax: Any, dates: Any, shares: Floats, topics: Ints, title: str, names: list[str] | None = None
) -> None:
    """Draw the shares of the labelled topics, the same colours everywhere, and of all others."""
    rest = 1.0 - shares[:, topics].sum(axis=1)
    parts = [*shares[:, topics].T, rest]
    colours = [*COLOURS[: len(topics)], OTHERS]
    labels = [*names, "all others"] if names else ()
    ax.stackplot(dates, parts, colors=colours, labels=labels, step="post", lw=0)
    ax.set_ylim(0, 1)
    ax.yaxis.set_major_formatter("{x:.0%}")
    ax.set_yticks([0, 0.5, 1])
    ax.set_title(title, size=10, loc="left", pad=12)
    if names:
        place = {"loc": "center left", "bbox_to_anchor": (1.01, 0.4)}
        ax.legend(**place, frameon=False, fontsize=8, reverse=True)


def _regrets(ax: Any, dates: Any, year: Year) -> None:
    """Draw the regret since the tuning of every policy, named at the end of its line."""
    first = tuning_days(len(dates))
    means = {name: regret.mean(axis=0) for name, regret in year.totals("regret").items()}
    curves = {name: curve[first:] - curve[first - 1] for name, curve in means.items()}
    ranking = sorted(curves, key=lambda name: float(curves[name][-1]))
    top = max(curve[-1] for curve in curves.values())
    low = min(curve[-1] for curve in curves.values())
    heights = np.geomspace(low / 8, top, len(ranking))
    shown = assign_line_styles(ranking)
    for i, name in enumerate(ranking):
        own = shown[name]["color"]
        ax.plot(dates[first:], curves[name], lw=1.4, **shown[name])
        ax.annotate(
            f"{name}  {curves[name][-1]:,.0f}",
            (dates[-1], curves[name][-1]),
            xytext=(1.03, heights[i]),
            textcoords=("axes fraction", "data"),
            color=own,
            size=8,
            va="center",
            arrowprops={"arrowstyle": "-", "color": own, "lw": 0.6, "relpos": (0.0, 0.5)},
            annotation_clip=False,
        )
    study.inscribe(ax, yscale="log", ylim=(low / 30, None), ylabel="clicks missed")
    ax.yaxis.set_major_formatter("{x:,.0f}")
    runs = len(year.seasons[0])
    ax.set_title(f"Cumulative regret after the tuning (grey); runs: {runs}", size=10, loc="left")


SEARCH_INTEREST = study.Item(
    TITLE, 4, reproduce, readings=tuple(TRAFFIC), needs_data="a date × topic table of search interest (CSV)"
)
