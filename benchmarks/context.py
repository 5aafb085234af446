"""A user's context and named arms: ContextMixture, untuned, beside rivals, tuned in hindsight or elsewhere.

python benchmarks/context.py [STREAM ...] [--seeds N] [--first SEED] [--tuning N]  regret, by default on all
python benchmarks/context.py --times             processor time, beside ten lines of NumPy
python benchmarks/context.py --rounds N          what N rounds leave of its covariances
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection
from typing import Any

import context_rivals
import numpy as np
from context_streams import STREAMS, Stream, regret, stream
from peers.ten_lines import TenLines

import tacit
from tacit.core.dispatch import choose, learn, propensity
from tacit.core.run_mode import compile_loop
from tacit.policies.base import NO_FEATURES, Impression, Outcome

SIZES = {(10, 64): 2_000, (10, 20): 4_000, (5, 10): 8_000, (50, 20): 1_500, (50, 256): 600}
"""Rounds of a timed run by arms and numbers in a context."""
TUNING = 85_001
"""The first seed for tuning."""
WARM = 300
"""Rounds before it: all measurements are behind."""


def play(
    params: Any, state: Any, arms: Any, stream: Stream, rng: Any, shown: Any, chances: Any, none: Any
) -> None:
    """Choose, tell the propensity, and learn, for each context of a stream."""
    for t in range(len(stream.contexts)):
        impression = Impression(arms, stream.contexts[t], none, none)
        arm = choose(params, state, 0, impression, rng)
        chances[t] = propensity(params, state, 0, impression, arm)
        reward = 1.0 if stream.coins[t] < stream.chances[t, arm] else 0.0
        learn(params, state, 0, Outcome(impression, arm, reward, chances[t]))
        shown[t] = arm


def played(stream: Stream, state: Any, policy: Any, seed: int) -> Any:
    """Return what a policy shows, going on from a state."""
    shown, chances = np.zeros(len(stream.coins), np.int64), np.zeros(len(stream.coins))
    rng, arms = np.random.default_rng([seed, 1]), np.arange(policy.arm_count)
    compile_loop(play, policy.params)(policy.params, state, arms, stream, rng, shown, chances, NO_FEATURES)
    return shown


def policy_for(stream: Stream) -> tacit.ContextMixture:
    """Return the policy that plays a stream."""
    return tacit.ContextMixture(stream.chances.shape[1], context_dim=stream.contexts.shape[1])


# ---- Regret


def rivals(name: str, seeds: range, only: Collection[str] = ()) -> dict[str, Any]:
    """Return the regrets of all candidates of each family, or of those that are named."""
    found: dict[str, list[float]] = {}
    for seed in seeds:
        here = stream(name, seed)
        for family in context_rivals.FAMILIES:
            for candidate, shown in context_rivals.played(here, family, seed, only):
                found.setdefault(candidate, []).append(regret(here, shown))
    return {candidate: np.array(regrets) for candidate, regrets in found.items()}


def least(found: dict[str, Any]) -> str:
    """Return the candidate of the least regret."""
    return min(found, key=lambda one: float(found[one].mean()))


def untuned(name: str, seeds: range) -> dict[str, Any]:
    """Return the regrets of what has nothing to tune."""
    found: dict[str, list[float]] = {"ContextMixture": [], "Thompson": [], "one arm": []}
    for seed in seeds:
        here = stream(name, seed)
        policy = policy_for(here)
        alone = context_rivals.beta_thompson(*here, 1.0, 1.0, np.random.default_rng([seed, 2]))
        best = np.full(len(here.coins), here.chances.mean(axis=0).argmax())
        for label, shown in zip(
            found, (played(here, policy.init(1), policy, seed), alone, best), strict=True
        ):
            found[label].append(regret(here, shown))
    return {label: np.array(regrets) for label, regrets in found.items()}


def told(values: Any) -> str:
    """Return a mean and its standard error."""
    return f"{values.mean():,.0f} ± {values.std(ddof=1) / len(values) ** 0.5:.0f}"


def show_regrets(names: list[str], seeds: range, tuning: range) -> None:
    """Print a row for each stream, and how the default compares with the best of all that was tuned.

    With seeds for tuning only the candidate is played that is the best on those.
    """
    heads = ("ContextMixture", "Thompson, no context", "best fixed arm", "best tuned", "over the best tuned")
    print("| stream: rounds, arms, numbers |", " | ".join(heads), "|\n" + "|---" * (len(heads) + 1) + "|")
    ratios = []
    for name in names:
        found, one = untuned(name, seeds), stream(name, seeds[0])
        theirs = rivals(name, seeds, [least(rivals(name, tuning))] if tuning else ())
        best, own = least(theirs), found["ContextMixture"]
        ratio = own.mean() / theirs[best].mean()
        off = (own - ratio * theirs[best]).std(ddof=1) / len(own) ** 0.5 / theirs[best].mean()
        ratios.append(ratio)
        size = f"{len(one.coins):,}, {one.chances.shape[1]}, {one.contexts.shape[1]}"
        row = [f"{name}: {size}", *map(told, found.values()), told(theirs[best])]
        print("|", " | ".join(row), f"| {ratio:.2f} ± {off:.2f} ({best}) |", flush=True)
    print(f"\ngeometric mean of the ratios: {np.exp(np.mean(np.log(ratios))):.2f}; {len(seeds)} seeds")


# ---- Time


def microseconds(rounds: int, run: Any) -> float:
    """Return the least processor time of a round, of five runs that begin after the measurements."""
    times = []
    for seed in range(5):
        start = time.process_time()
        run(seed)
        times.append(time.process_time() - start)
    return 1e6 * min(times) / rounds


def show_times() -> None:
    """Print the time of choose, propensity and learn beside NumPy's choose and learn."""
    for (arms, dim), rounds in SIZES.items():
        rng = np.random.default_rng(1)
        told = Stream(
            rng.standard_normal((WARM + rounds, dim)),
            rng.uniform(0.1, 0.5, (WARM + rounds, arms)),
            rng.random(WARM + rounds),
        )
        warm, rest = Stream(*(part[:WARM] for part in told)), Stream(*(part[WARM:] for part in told))
        policy = policy_for(told)
        state = policy.init(1)
        played(warm, state, policy, 0)
        own = microseconds(rounds, lambda seed, r=rest, s=state, p=policy: played(r, s, p, seed))
        lines = TenLines(arms, dim + 1)
        contexts = context_rivals.with_constant(rest.contexts, "raw")

        def numpy(seed: int, r: Any = rest, x: Any = contexts, lines: Any = lines) -> None:
            for t in range(len(x)):
                arm = lines.choose(x[t])
                lines.learn(x[t], arm, float(r.coins[t] < r.chances[t, arm]))

        learner = tacit.Learner(policy, seed=1)
        for t in range(WARM):
            learner.learn(learner.choose("all", context=contexts[t, :-1]), 0.0)

        def called(seed: int, r: Any = rest, learner: Any = learner) -> None:
            for t in range(len(r.contexts)):
                decision = learner.choose("all", context=r.contexts[t])
                learner.learn(decision, float(r.coins[t] < r.chances[t, decision.slot]))

        print(
            f"{arms} arms, {dim} numbers: {own:.1f} µs compiled, {microseconds(rounds, called):.1f} µs from "
            f"Python, ten lines of NumPy {microseconds(rounds, numpy):.1f} µs; {policy.model_bytes:,} bytes",
            flush=True,
        )


# ---- What many rounds leave


def smallest_eigenvalue(state: Any, dim: int) -> float:
    """Return the smallest eigenvalue of all covariances, and variance of what these leave."""
    known = 1 + (dim if dim <= 22 else 22)
    rows, columns = np.triu_indices(known)
    packed = known * (known + 1) // 2
    least = min(state.models.narrow.min(), state.models.spread[..., packed:].min(initial=np.inf))
    for spread in state.models.spread.reshape(-1, state.models.spread.shape[-1]).astype(float):
        matrix = np.zeros((known, known))
        matrix[rows, columns] = matrix[columns, rows] = spread[:packed]
        least = min(least, np.linalg.eigvalsh(matrix)[0])
    return float(least)


def show_endurance(rounds: int, arms: int = 10, dim: int = 20) -> None:
    """Print regret and the smallest eigenvalue as rounds go by."""
    rng = np.random.default_rng(77)
    weights = rng.standard_normal((dim, arms)) / np.sqrt(dim)
    policy = tacit.ContextMixture(arms, context_dim=dim)
    state, total = policy.init(1), 0.0
    for part in range(10):
        contexts = rng.standard_normal((rounds // 10, dim))
        chances = 1.0 / (1.0 + np.exp(1.0 - contexts @ weights))
        told = Stream(contexts, chances, rng.random(len(contexts)))
        total += regret(told, played(told, state, policy, part))
        least = smallest_eigenvalue(state, dim)
        print(f"{(part + 1) * (rounds // 10):,} rounds: regret {total:,.0f}, least {least:.2e}", flush=True)


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("streams", nargs="*", metavar="STREAM", help="; ".join(STREAMS).replace("%", "%%"))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=7_001)
    parser.add_argument("--tuning", type=int, default=0, help="tune on so many other seeds, not in hindsight")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--rounds", type=int, default=0)
    options = parser.parse_args()
    if options.times:
        show_times()
    elif options.rounds:
        show_endurance(options.rounds)
    else:
        seeds = range(options.first, options.first + options.seeds)
        show_regrets(options.streams or list(STREAMS), seeds, range(TUNING, TUNING + options.tuning))


if __name__ == "__main__":
    main()
