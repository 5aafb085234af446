"""What it costs to learn in shards that share what they have learned only now and then.

A service in shards decides each impression in one of them. What is learned for a key alone
suffers nothing, but what is learned for all keys together (BWC's classifier, the posterior of an
examination model) each shard learns from its own impressions, and from those of the others only
when states are merged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from studies import study
from tacit.classifiers import Rectangle
from tacit.core.arrays import Floats, Ints, copy_state, leaves, rebuild_state
from tacit.core.dispatch import arrive, decide, kernel, learn, observe, react, regret, shown_in
from tacit.core.parallel import run_tasks
from tacit.core.run_mode import compile_loop
from tacit.environments import Environment, ExaminationArms, ShiftingArms
from tacit.learning.merging import join_states, merge_states
from tacit.plots import COLOURS
from tacit.policies import BWC, ECBandit, LaplaceEC, Policy
from tacit.policies.base import make_outcome
from tacit.simulation import ENVIRONMENT_STREAM, POLICY_STREAM, run_stream, standard_error

SHARDS = (2, 4, 16, 64)
INTERVALS = (1, 100, 10_000, None)
SHARD_STREAM = 3


class Benchmark(NamedTuple):
    """A policy that learns something for all keys, and where."""

    policy: Policy
    environment: Environment
    horizon: int


BENCHMARKS = {
    "intent shift, BWC": Benchmark(
        BWC(5, classifier=Rectangle(10, margin=0.1, anchored=True)),
        ShiftingArms(5, keys=100, shifting=0.1, dim=10),
        1_000_000,
    ),
    "examination, E-C Bandit": Benchmark(ECBandit(5, 5), ExaminationArms(scale=3), 30_000),
    "examination, LaplaceEC": Benchmark(LaplaceEC(5, 5), ExaminationArms(scale=3), 30_000),
}


class ShardRounds(NamedTuple):
    """Which rounds are played, room for one of them, and what came of them.

    Attributes
    ----------
    span : array of int64, shape (3,)
        The first round, the one after the last, and the rounds between merges.
    action, feedback : array
        What is shown in a round, and what comes back.
    learned : array of bool, shape (shards,)
    total : array, shape (1,)
        The regret so far.
    """

    span: Ints
    action: Ints
    feedback: Floats
    learned: Any
    total: Floats


@kernel
def play_round(
    params: Any, state: Any, env: Any, world: Any, lane: int, key: int, rng: Any, rounds: ShardRounds
) -> None:
    """Decide in a lane for what a key brought, and learn from what comes back."""
    impression, action, feedback = world.impression, rounds.action, rounds.feedback
    observe(params, state, lane, impression)
    decide(params, state, lane, impression, rng, action)
    shown = shown_in(params, action)
    react(env, world, key, shown, feedback)
    rounds.total[0] += regret(env, world, key, shown)
    learn(params, state, lane, make_outcome(params, impression, action, feedback, np.nan))


# Shards that each hold keys of their own, and a classifier ------------------------------------


def play_classified(
    params: Any, state: Any, env: Any, world: Any, rng: Any, env_rng: Any, boxes: Any, rounds: ShardRounds
) -> int:
    """Play the rounds of a span, or up to a merge at which there is something to merge.

    ``boxes`` is the state of a box for each shard. Each key's row of the policy's own is that of its
    shard while it plays. Returns the next round.
    """
    box, span = state.classifier, rounds.span
    count, dirty = len(boxes.low), False
    for round in range(span[0], span[1]):
        if dirty and round % span[2] == 0:
            return int(round)
        lane = arrive(env, world, round, env_rng)
        shard = lane % count
        for i in range(box.low.shape[1]):
            box.low[lane, i], box.high[lane, i] = boxes.low[shard, i], boxes.high[shard, i]
        play_round(params, state, env, world, lane, lane, rng, rounds)
        for i in range(box.low.shape[1]):
            if box.low[lane, i] != boxes.low[shard, i] or box.high[lane, i] != boxes.high[shard, i]:
                dirty = True
                rounds.learned[shard] = True
            boxes.low[shard, i], boxes.high[shard, i] = box.low[lane, i], box.high[lane, i]
    return int(span[1])


# Shards that each hold a posterior ------------------------------------------------------------


def play_posteriors(
    params: Any, state: Any, env: Any, world: Any, rng: Any, env_rng: Any, shards: Ints, rounds: ShardRounds
) -> int:
    """Play the rounds of a span up to the next merge; a shard is a lane, drawn each round.

    ``shards`` holds the shard of each round. Returns the next round.
    """
    span = rounds.span
    for round in range(span[0], span[1]):
        if round > span[0] and round % span[2] == 0:
            return int(round)
        arrive(env, world, round, env_rng)
        play_round(params, state, env, world, shards[round], 0, rng, rounds)
        rounds.learned[shards[round]] = True
    return int(span[1])


# A run ----------------------------------------------------------------------------------------


def sharded_regret(benchmark: Benchmark, shards: int, interval: int | None, seed: int, number: int) -> float:
    """Return the regret of all shards together in one run.

    Parameters
    ----------
    benchmark : Benchmark
    shards : int
        Keys are dealt out to them in turn; where there is but one key, impressions are, at
        random.
    interval : int or None
        Rounds, of all shards together, between two merges; None for never.
    seed, number : int
        Runs of one number see the same impressions and chances whatever the shards.
    """
    environment, horizon = benchmark.environment, benchmark.horizon
    env_rng = run_stream(seed, number, ENVIRONMENT_STREAM)
    rng = run_stream(seed, number, POLICY_STREAM)
    world = environment.world(env_rng, horizon)
    params, play, state, parts, merge = _made(benchmark, shards, run_stream(seed, number, SHARD_STREAM))
    span = np.array([0, horizon, interval or horizon + 1])
    learned = np.zeros(shards, np.bool_)
    rounds = ShardRounds(span, np.zeros(1, np.int64), np.zeros(1), learned, np.zeros(1))
    given = params, state, environment.params, world, rng, env_rng, parts, rounds
    driver = compile_loop(play, params, environment.params).entry(given)
    while span[0] < horizon:
        span[0] = driver(*given)
        merge(learned)
        learned[:] = False
    return float(rounds.total[0])


def _made(benchmark: Benchmark, shards: int, rng: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Return parameters, loop, state, what the loop needs of shards, and how to merge them."""
    policy, environment, horizon = benchmark
    if isinstance(policy, BWC):
        apart = policy.params._replace(per_key=True)
        state = policy.init(environment.lanes)
        rows = policy.classifier.init(environment.lanes)
        boxes = policy.classifier.init(shards)
        state = state._replace(classifier=rows)
        return apart, play_classified, state, boxes, _joining(policy, boxes)
    state = policy.init(shards)
    which = rng.integers(shards, size=horizon)
    return policy.params, play_posteriors, state, which, _adding(policy, state)


def _joining(policy: BWC, boxes: Any) -> Callable[[Any], None]:
    """Return what gives every shard the join of all."""

    def merge(learned: Any) -> None:
        join = join_states(policy.classifier, [_lane(boxes, shard) for shard in range(len(learned))])
        _give(boxes, join)

    return merge


def _adding(policy: Policy, state: Any) -> Callable[[Any], None]:
    """Return what gives every shard the last merged state and all that was learned since."""
    base = copy_state(_lane(state, 0))

    def merge(learned: Any) -> None:
        nonlocal base
        base = copy_state(
            merge_states(base, [_lane(state, shard) for shard in np.flatnonzero(learned).tolist()])
        )
        _give(state, base)

    return merge


def _lane(state: Any, lane: int) -> Any:
    """Return the view of one lane, with a lane axis of 1."""
    return rebuild_state(state, (array[lane : lane + 1] for _, array in leaves(state)))


def _give(state: Any, source_state: Any) -> None:
    """Put one lane's state into all lanes."""
    for (_, array), (_, source) in zip(leaves(state), leaves(source_state), strict=True):
        array[:] = source


def play_number(name: str, shards: int, interval: int | None, seed: int, number: int,
                report: Any) -> float:  # fmt: skip
    """Return the regret of one run of a benchmark, for :func:`tacit.core.parallel.spread`."""
    found = sharded_regret(BENCHMARKS[name], shards, interval, seed, number)
    report(1.0)
    return found


# The item -------------------------------------------------------------------------------------


def reproduce(setup: study.Setup) -> study.Reproduction:
    """Regret of shards by their number and by how often they merge, against one shard."""
    settings = [(1, None), *((n, interval) for n in SHARDS for interval in INTERVALS)]
    tasks = [
        (name, shards, interval, setup.seed, number)
        for name in BENCHMARKS
        for shards, interval in settings
        for number in range(setup.runs)
    ]
    for name in BENCHMARKS:
        # Compiled here, once, before workers would ask for it side by side.
        sharded_regret(BENCHMARKS[name]._replace(horizon=1), 1, None, 0, 0)
    found = run_tasks(play_number, tasks, [1.0] * len(tasks), label="shards", workers=setup.workers)
    regrets = np.array(found).reshape(len(BENCHMARKS), len(settings), setup.runs)
    cells = [
        _cell(name, setting, values, of_one)
        for name, rows in zip(BENCHMARKS, regrets, strict=True)
        for of_one in [rows[0]]
        for setting, values in zip(settings, rows, strict=True)
    ]
    depends = setup.settings(horizons={name: each.horizon for name, each in BENCHMARKS.items()})
    return study.Reproduction(cells, _report(cells, setup), lambda path: _draw(cells, setup, path), depends)


def _cell(name: str, setting: tuple[int, int | None], values: Floats, of_one: Floats) -> study.Cell:
    shards, interval = setting
    more = values - of_one
    return {
        "benchmark": name,
        "shards": shards,
        "interval": interval,
        "regret": float(values.mean()),
        "regret_se": standard_error(values),
        "more_than_one_shard": float(more.mean()),
        "more_se": standard_error(more),
        "ratio": float(values.mean() / of_one.mean()),
        "runs": len(values),
    }


def _merging(interval: int | None) -> str:
    if interval is None:
        return "never merged"
    return "merged every round" if interval == 1 else f"merged every {interval:,} rounds"


def _tables(cells: list[study.Cell]) -> str:
    texts = []
    for name, benchmark in BENCHMARKS.items():
        mine = study.select(cells, benchmark=name)
        shown = [cell | {"merging": _merging(cell["interval"])} for cell in mine[1:]]
        text = study.pivot(shown, "shards", "merging", "{more_than_one_shard:+,.1f} ± {more_se:,.1f}")
        alone = mine[0]
        texts.append(
            f"**{name}**, {benchmark.horizon:,} rounds; one shard: regret {alone['regret']:,.1f} "
            f"± {alone['regret_se']:,.1f}. More than that, paired by run:\n\n{text}"
        )
    return "\n\n".join(texts)


def _report(cells: list[study.Cell], setup: study.Setup) -> str:
    return study.report("sharded_learning", setup, tables=_tables(cells))


def _draw(cells: list[study.Cell], setup: study.Setup, path: Path) -> None:
    with study.drawing(path, 7.0, 8.2, rows=len(BENCHMARKS)) as axes:
        for ax, name in zip(axes, BENCHMARKS, strict=True):
            alone, *sharded = study.select(cells, benchmark=name)
            for colour, interval in zip(COLOURS, INTERVALS, strict=False):
                mine = [alone, *study.select(sharded, interval=interval)]
                x = [cell["shards"] for cell in mine]
                y = [cell["regret"] for cell in mine]
                bars = [0.0 if math.isnan(c["more_se"]) else 2 * c["more_se"] for c in mine]
                ax.errorbar(x, y, bars, color=colour, label=_merging(interval), **study.MARKED)
            ax.set_xscale("log", base=2)
            ax.set_xticks([1, *SHARDS], map(str, [1, *SHARDS]))
            title = f"{name}: {BENCHMARKS[name].horizon:,} rounds"
            study.inscribe(ax, title, ylim=(0, None), ylabel="regret")
        axes[0].legend(frameon=False, fontsize=8)
        axes[-1].set_xlabel(f"shards ({setup.runs} runs; bars ±2 s.e. of the difference from one)")


SHARDED_LEARNING = study.Item("What sharing between shards costs", 10, reproduce)
