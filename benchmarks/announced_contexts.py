"""Signals beside a context: what announces a shift of tastes, beside either alone.

    python benchmarks/announced_contexts.py [--seeds N] [--first SEED] [SETTING ...]

Regret of `tacit.auto(arms=…, context_dim=d, signals_dim=2)` ("both"), of the context alone, of the signals
alone, and of a learner of contexts that begins anew at each shift (which nobody can know): mean ± standard
error, and the mean of both over the context alone, seed by seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from context import NO_FEATURES, Impression, Outcome, choose, compile_loop, learn
from context_streams import Stream, regret, truths

import tacit
from tacit.core.dispatch import observe

SIGNALS, DIM, ARMS, ROUNDS = 2, 10, 5, 10_000


def play(params: Any, state: Any, arms: Any, stream: Stream, rng: Any, shown: Any, none: Any) -> None:
    """Observe, choose and learn, for each context of a stream."""
    for t in range(len(stream.contexts)):
        impression = Impression(arms, stream.contexts[t], none, none)
        observe(params, state, 0, impression)
        arm = choose(params, state, 0, impression, rng)
        reward = 1.0 if stream.coins[t] < stream.chances[t, arm] else 0.0
        learn(params, state, 0, Outcome(impression, arm, reward, 1.0))
        shown[t] = arm


def played(stream: Stream, policy: Any, seed: int) -> Any:
    """Return what a policy shows that has learned nothing before."""
    shown, rng = np.zeros(len(stream.coins), np.int64), np.random.default_rng([seed, 1])
    arms, state = np.arange(policy.arm_count), policy.init(1)
    compile_loop(play, policy.params)(policy.params, state, arms, stream, rng, shown, NO_FEATURES)
    return shown


# ---- Tastes that change, and what announces them


def pieces(rng: Any, shifts: int, *, base: float, dim: int, arms: int) -> tuple[list[Stream], Any]:
    """Return a stream for each stretch between drawn shifts, and where each but the first begins."""
    starts = np.sort(rng.choice(np.arange(1, 20), shifts, replace=False)) * (ROUNDS // 20)
    starts = starts + rng.integers(-100, 100, shifts)
    sizes = np.diff([0, *starts, ROUNDS])
    return [truths(int(size), arms, dim, base=base)(rng) for size in sizes], starts


def normal(rng: Any) -> Any:
    return rng.standard_normal((ROUNDS, SIGNALS))


def heavy(rng: Any) -> Any:
    """Return signals of which a hundredth is far outside of what is usual."""
    return rng.standard_t(3, (ROUNDS, SIGNALS))


def spikes(share: float) -> Callable[[Any], Any]:
    """Return what draws quiet signals that jump at such a share of the rounds, for nothing."""

    def signals(rng: Any) -> Any:
        found = rng.uniform(-1.0, 1.0, (ROUNDS, SIGNALS))
        found[rng.random(ROUNDS) < share, 0] = 8.0
        return found

    return signals


SETTINGS: dict[str, tuple[int, Any, bool, dict[str, Any]]] = {
    "one shift, announced": (1, spikes(0.0), True, {}),
    "four shifts, announced": (4, spikes(0.0), True, {}),
    "four shifts, announced among as many false alarms": (4, spikes(0.0004), True, {}),
    "four shifts, announced among ten times as many": (4, spikes(0.004), True, {}),
    "four shifts, not announced, false alarms": (4, spikes(0.001), False, {}),
    "four shifts, signals normal noise": (4, normal, False, {}),
    "no shift, quiet signals": (0, spikes(0.0), False, {}),
    "no shift, false alarms 1 in 1,000": (0, spikes(0.001), False, {}),
    "no shift, false alarms 1 in 100": (0, spikes(0.01), False, {}),
    "no shift, signals normal noise": (0, normal, False, {}),
    "no shift, signals of heavy tails": (0, heavy, False, {}),
    "clicks of 3 %: four shifts, announced": (4, spikes(0.0), True, {"base": -3.8}),
    "clicks of 3 %: no shift, false alarms 1 in 1,000": (0, spikes(0.001), False, {"base": -3.8}),
    "20 numbers, 10 arms: two shifts, announced": (2, spikes(0.0), True, {"dim": 20, "arms": 10}),
    "20 numbers, 10 arms: no shift, signals normal noise": (0, normal, False, {"dim": 20, "arms": 10}),
}


def regrets(name: str, seed: int) -> list[float]:
    """Return the regrets of both, of the context alone, of the signals alone, and of the oracle."""
    shifts, signals_of, announced, more = SETTINGS[name]
    rng = np.random.default_rng([seed, list(SETTINGS).index(name)])
    shape = {"base": -1.0, "dim": DIM, "arms": ARMS} | more
    parts, starts = pieces(rng, shifts, **shape)
    signals = signals_of(rng)
    if announced:
        signals[starts, 0] = 8.0
    whole = Stream(*map(np.concatenate, zip(*parts, strict=True)))
    arms, dim = shape["arms"], shape["dim"]
    both = whole._replace(contexts=np.column_stack([whole.contexts, signals]))
    found = [
        regret(both, played(both, tacit.ContextMixture(arms, dim + SIGNALS, signals_dim=SIGNALS), seed)),
        regret(whole, played(whole, tacit.ContextMixture(arms, dim), seed)),
        regret(whole, played(whole._replace(contexts=signals), tacit.auto(arms, signals_dim=SIGNALS), seed)),
    ]
    found.append(sum(regret(part, played(part, tacit.ContextMixture(arms, dim), seed)) for part in parts))
    return found


def main() -> None:
    """Print a row for each setting."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("settings", nargs="*", default=list(SETTINGS))
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--first", type=int, default=1)
    asked = parser.parse_args()
    print("| setting | both | context alone | signals alone | oracle | both / context alone |")
    print("|---|--:|--:|--:|--:|--:|")
    ratios = []
    for name in asked.settings:
        seeds = range(asked.first, asked.first + asked.seeds)
        runs = np.array([regrets(name, seed) for seed in seeds])
        error = runs.std(axis=0, ddof=1) / np.sqrt(len(runs))
        cells = [f"{mean:,.0f} ± {off:,.0f}" for mean, off in zip(runs.mean(axis=0), error, strict=True)]
        means = runs.mean(axis=0)
        off = np.std(runs[:, 0] - means[0] / means[1] * runs[:, 1], ddof=1) / np.sqrt(len(runs)) / means[1]
        ratios.append(means[0] / means[1])
        print(f"| {name} | {' | '.join(cells)} | {ratios[-1]:.2f} ± {off:.2f} |", flush=True)
    print(f"geometric mean of the last column: {np.exp(np.mean(np.log(ratios))):.2f}")


if __name__ == "__main__":
    main()
