"""Lists by name before five kinds of readers: the tables of docs/lists.md.

python benchmarks/list_readers.py [streams] [horizon]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

import tacit
from tacit.core.compiled import compiled
from tacit.core.dispatch import kernel

SEED = 20_261
SHAPES = {"5 of 20": (20, 5), "10 of 10": (10, 10)}
STARTS = {"good": (0.5, 1.0), "random": (50.0, 1.0), "sparse, good": (0.5, 0.1)}
KINDS = ("position-based", "cascade", "dependent click", "dynamic Bayesian", "mixture")


class Group(NamedTuple):
    """Readers of one kind, as columns: their share; whether they read from the top (1), look at
    positions (0) or click at random (2); which taste they have; how they go on.

    ``onward`` holds, for position-based ones, the probability of each position being seen; for
    the others, of going on after a click there.
    """

    share: np.ndarray  # (groups,)
    kind: np.ndarray  # (groups,)
    taste: np.ndarray  # (groups, arms)
    leaves: np.ndarray  # (groups, arms) probability of being done after a click on an arm
    skip: np.ndarray  # (groups,) of going on after a skip
    onward: np.ndarray  # (groups, positions)


@kernel
def clicks_of(group, g, action):
    """Return the expected clicks of one group on a list."""
    total, examined = 0.0, 1.0
    for k in range(len(action)):
        if action[k] < 0:
            continue
        if group.kind[g] == 2:
            total += group.skip[g]
            continue
        if group.kind[g] == 0:
            examined = group.onward[g, k]
        m = group.taste[g, action[k]]
        total += examined * m
        stays = m * group.onward[g, k] * (1.0 - group.leaves[g, action[k]])
        examined *= stays + (1.0 - m) * group.skip[g]
    return total


@kernel
def clicks(group, action):
    """Return the expected clicks on a list."""
    total = 0.0
    for g in range(len(group.share)):
        total += group.share[g] * clicks_of(group, g, action)
    return total


def climb(group, order, action):
    """Exchange arms of an order while that adds to the clicks on its beginning."""
    best, better = clicks(group, order[: len(action)]), True
    while better:
        better = False
        for i in range(len(action)):
            for j in range(i + 1, len(order)):
                order[i], order[j] = order[j], order[i]
                now = clicks(group, order[: len(action)])
                if now > best + 1e-12:
                    best, better = now, True
                else:
                    order[i], order[j] = order[j], order[i]
    return best


@dataclass(frozen=True)
class Readers(tacit.environments.Environment):
    """One key and its readers, drawn anew in each run; arms are offered in the start's order.

    ``noise`` is the deviation of the logits by which the start list is sorted.
    """

    takes: ClassVar[str] = "slate"

    class Params(NamedTuple):
        pass

    class World(NamedTuple):
        impression: tacit.Impression
        group: Group
        drawn: np.ndarray  # (1 + 2 · positions,)
        best: np.ndarray  # (1,)

    readers: str
    arms: int
    positions: int
    noise: float
    scale: float

    @property
    def arm_count(self):
        return self.arms

    @property
    def action_width(self):
        return self.positions

    def world(self, rng, horizon):
        taste = self.scale * rng.beta(1.0, 3.0, (2, self.arms))
        k = np.arange(1.0, self.positions + 1)
        by_position = k ** -rng.uniform(0.3, 1.3)
        after_click = rng.uniform(0.4, 0.9) * k ** -rng.uniform(0.0, 0.5)
        done = rng.uniform(0.1, 0.9, self.arms)
        gamma, mixed = rng.uniform(0.7, 1.0), rng.uniform(0.2, 0.6)
        one, none = np.ones(self.positions), np.zeros(self.arms)
        rows = {
            "position-based": [(1.0, 0, 0, none, 1.0, by_position)],
            "cascade": [(1.0, 1, 0, none, 1.0, 0.0 * one)],
            "dependent click": [(1.0, 1, 0, none, 1.0, after_click)],
            "dynamic Bayesian": [(1.0, 1, 0, done, gamma, gamma * one)],
            "mixture": [
                (0.9 * mixed, 0, 0, none, 1.0, by_position),
                (0.9 - 0.9 * mixed, 1, 1, none, gamma, after_click),
                (0.1, 2, 0, none, 0.1 * self.scale, one),
            ],
        }[self.readers]
        share, kind, tastes, leaves, skip, onward = zip(*rows, strict=True)
        group = Group(
            np.array(share), np.array(kind), taste[list(tastes)], np.array(leaves),
            np.array(skip), np.array(onward),
        )  # fmt: skip
        liked = np.array(share)[np.array(kind) != 2] @ group.taste[np.array(kind) != 2]
        order, action = np.argsort(-liked), np.zeros(self.positions, np.int64)
        best = compiled(climb, self.params)(group, order, action)
        guess = np.log(liked) + self.noise * rng.standard_normal(self.arms)
        impression = tacit.Impression(np.argsort(-guess), np.zeros(0))
        drawn = np.zeros(1 + 2 * self.positions)
        return self.World(impression, group, drawn, np.array([best]))

    @staticmethod
    def arrive(params, world, round, rng):
        for i in range(len(world.drawn)):
            world.drawn[i] = rng.random()
        return 0

    @staticmethod
    def react(params, world, lane, action, feedback):
        group, g, u = world.group, 0, world.drawn[0]
        while g + 1 < len(group.share) and u >= group.share[g]:
            u -= group.share[g]
            g += 1
        reading = True
        for k in range(len(action)):
            feedback[k] = 0.0
            if action[k] < 0 or not reading:
                continue
            p = group.taste[g, action[k]]
            if group.kind[g] == 0:
                p *= group.onward[g, k]
            if group.kind[g] == 2:
                p = group.skip[g]
            onward = group.skip[g]
            if world.drawn[1 + 2 * k] < p:
                feedback[k] = 1.0
                onward = group.onward[g, k] * (1.0 - group.leaves[g, action[k]])
            if group.kind[g] == 1:
                reading = world.drawn[2 + 2 * k] < onward

    @staticmethod
    def regret(params, world, lane, action):
        return world.best[0] - clicks(world.group, action)


@dataclass(frozen=True)
class Fixed(tacit.SlatePolicy):
    """Show the first ``shown`` arms as they are offered."""

    class Params(NamedTuple):
        shown: int

    class State(NamedTuple):
        nothing: np.ndarray

    positions: int = 3
    shown: int = 3

    def init(self, lanes):
        return self.State(np.zeros(lanes))

    @staticmethod
    def decide(params, state, lane, impression, rng, action):
        for k in range(len(action)):
            action[k] = impression.arms[k] if k < params.shown else -1

    @staticmethod
    def learn(params, state, lane, outcome):
        pass


def policies(arms, positions):
    """Return what is compared, the start list and the empty one last."""
    return {
        "ListMix": tacit.ListMix(arms, positions=positions),
        "SafeListMix": tacit.SafeListMix(arms, positions=positions),
        "CascadeKLUCB": tacit.CascadeKLUCB(arms, positions=positions),
        "PBMUCB": tacit.PBMUCB(arms, positions=positions),
        "RankedBandit(KLUCB)": tacit.RankedBandit(tacit.KLUCB(arms), positions=positions),
        "the start list": Fixed(arms, positions=positions, shown=positions),
        "nothing": Fixed(arms, positions=positions, shown=0),
    }


def main(streams=100, horizon=5_000):
    """Print, for each setting, what is lost of the best list's clicks, and the worst shortfall."""
    for shape, (arms, positions) in SHAPES.items():
        for start, (noise, scale) in STARTS.items():
            compared = policies(arms, positions)
            for number, kind in enumerate(KINDS):
                environment = Readers(kind, arms, positions, noise, scale)
                seed = SEED + number
                result = tacit.simulate(
                    list(compared.values()), environment, horizon, runs=streams, seed=seed
                )
                lost = result.regret / result.regret[-1]
                below = (result.regret - result.regret[-2]) / (result.regret[-1] - result.regret[-2])
                print(f"\n{shape}, {start}, {kind}")
                for i, name in enumerate(list(compared)[:-1]):
                    end, ahead = 100 * lost[i, :, -1], 100 * (lost[i] - lost[0])[:, -1]
                    error, paired = (x.std(ddof=1) / streams**0.5 for x in (end, ahead))
                    worst = 100 * below[i].mean(axis=0).max()
                    print(
                        f"  {name:20} {end.mean():6.2f} ± {error:.2f}, behind ListMix "
                        f"{ahead.mean():6.2f} ± {paired:.2f}, below the start at most {worst:.2f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
