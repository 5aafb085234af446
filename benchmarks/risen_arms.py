"""A policy that is not shipped: the default, which also checks whether single arms have risen unseen.

Each arm but the best has a doubt: the probability that it has risen above the best since it was last
looked at. It grows while the arm is not shown; where it is worth a look, the arm is shown until clicks
have settled it. ``frontier.py`` plays it with several thresholds.

Why it is not shipped: on streams that chose nothing (seed 86000, 128 runs of 10,000 rounds) it has 0.986 ±
0.029 times the default's regret where changes are unseen, 1.02 ± 0.05 times where five arms stay as they
are, and choosing and learning take 1.6 times as long with ten arms. With a memory of 0.1 and a threshold of
12 (seed 85000, 256 runs) it had 0.860 ± 0.019 and 1.15 ± 0.04 times: what one gains the other loses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

import tacit
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import kernel
from tacit.policies.base import Impression, Outcome
from tacit.policies.shifting import drift_mixture, hypotheses, shared_priors, shift_mixture

# A rise every 3,000 rounds is expected of a key, as if 0.1 had been seen in 300.
RISES, ROUNDS = 0.1, 300.0
# A risen arm has at least e^0.5 times the odds of the best.
RISE = math.exp(0.5)
# A look costs at least this share of the best arm's clicks.
LEAST_COST = 0.05
# A doubt of this is taken for a rise.
SURE = 0.75
# How abruptly what a check is worth, squared, turns into one, below what it does not; what evidence of a
# play is usual.
STEEP, LEAST_WORTH, USUAL = 4, 0.1, 0.15


class Doubts(NamedTuple):
    """Of each lane: doubts, clicks since a rise, exposure until the last look and now; rises; best; room."""

    doubt: Floats
    counts: Floats
    looked: Floats
    exposure: Floats
    found: Floats
    best: Ints
    room: Floats


@kernel
def rise_rate(state: Any, lane: int) -> float:
    """Return how likely an arm rises in a round, by what was found."""
    rounds, others = ROUNDS + state.own.rounds[lane], max(state.own.counts.shape[2] - 1, 1)
    return float((RISES + state.doubts.found[lane]) / (rounds * others))


@kernel
def doubt_of(state: Any, lane: int, arm: int) -> tuple[float, float]:
    """Return the doubt of an arm, and how much of it is as old as the last look."""
    doubts = state.doubts
    kept = math.exp(doubts.looked[lane, arm] - doubts.exposure[lane])
    doubt = 1.0 - (1.0 - doubts.doubt[lane, arm]) * kept
    return doubt, min(1.0, doubts.doubt[lane, arm] * kept / doubt) if doubt > 0.0 else 0.0


@kernel
def note_best(state: Any, lane: int) -> None:
    """Note which arm is the best by what is believed."""
    own, best, high, low = state.own, 0, 0.0, 1.0
    for arm in range(own.counts.shape[2]):
        a, b = hypotheses.posterior(own, state.shared.priors, lane, own.leading[lane], arm)
        if a * low > high * b:
            best, high, low = arm, a, b
    state.doubts.best[lane] = best


@kernel
def risen_mean(state: Any, lane: int, arm: int, part: float, level: float) -> float:
    """Return the click rate of an arm that has risen to a level or above, by so much of its clicks since."""
    beta, counts = state.shared.priors.beta, state.doubts.counts
    a = beta[0, 0, 0] + part * counts[lane, arm, 0]
    b = beta[0, 0, 1] + part * counts[lane, arm, 1]
    return float(max(a / (a + b), level))


@kernel
def levels_of(state: Any, lane: int) -> tuple[float, float]:
    """Return the click rate of the best arm, and the least of one that has risen above it."""
    own, doubts = state.own, state.doubts
    a, b = hypotheses.posterior(own, state.shared.priors, lane, own.leading[lane], doubts.best[lane])
    return a / (a + b), RISE * a / (RISE * a + b)


@kernel
def check_of(params: Any, state: Any, lane: int, arm: int, best: float, level: float, worth: float) -> float:
    """Return with what probability an arm is checked, where a doubt of 1 is worth so much but for the arm."""
    own, doubts = state.own, state.doubts
    a, b = hypotheses.posterior(own, state.shared.priors, lane, own.leading[lane], arm)
    before = a / (a + b)
    # What a play loses.
    cost = max(best - before, LEAST_COST * best)
    # Most arms need no logarithms: neither the doubt nor what a play tells is more than this.
    doubt = doubts.doubt[lane, arm] + doubts.exposure[lane] - doubts.looked[lane, arm]
    after = max(risen_mean(state, lane, arm, 0.0, level), risen_mean(state, lane, arm, 1.0, level))
    most = doubt * doubt * (after - best) * (after - before) ** 2 * worth
    if most < LEAST_WORTH * cost * after * (1.0 - after):
        return 0.0
    doubt, part = doubt_of(state, lane, arm)
    after = risen_mean(state, lane, arm, part, level)
    # How much it tells between a rise and none.
    tells = before * math.log(before / after) + (1.0 - before) * math.log((1.0 - before) / (1.0 - after))
    square = doubt * doubt * (after - best) * tells * worth / cost
    if square < LEAST_WORTH:
        return 0.0
    power = square**STEEP
    return float(params.most * power / (1.0 + power))


@kernel
def note_checks(params: Any, state: Any, lane: int, impression: Impression) -> float:
    """Write with what probability each arm is checked, and return their sum."""
    room, total, best = state.doubts.room[0], 0.0, state.doubts.best[lane]
    top, level = levels_of(state, lane)
    # The threshold is that of five arms; of more arms, each is checked less.
    many = 4.0 / max(state.own.counts.shape[2] - 1, 1)
    worth = many * many / (USUAL * rise_rate(state, lane) * params.threshold**2)
    for i in range(len(impression.arms)):
        arm = impression.arms[i]
        room[i] = 0.0 if arm == best else check_of(params, state, lane, arm, top, level, worth)
        total += room[i]
    if total > params.most:
        for i in range(len(impression.arms)):
            room[i] *= params.most / total
    return float(min(total, params.most))


@kernel
def settle(state: Any, lane: int, arm: int) -> None:
    """Doubt an arm no more, until it has not been shown for a while."""
    doubts = state.doubts
    doubts.doubt[lane, arm] = doubts.counts[lane, arm, 0] = doubts.counts[lane, arm, 1] = 0.0
    doubts.looked[lane, arm] = doubts.exposure[lane]


@kernel
def look(state: Any, lane: int, arm: int, reward: float, scale: float) -> None:
    """Weigh by a reward whether an arm has risen, and let a round pass."""
    doubts = state.doubts
    if arm == doubts.best[lane]:
        settle(state, lane, arm)
    else:
        doubt, part = doubt_of(state, lane, arm)
        after = risen_mean(state, lane, arm, part, levels_of(state, lane)[1])
        a, b = hypotheses.posterior(state.own, state.shared.priors, lane, state.own.leading[lane], arm)
        risen = doubt * hypotheses.reward_likelihood(after, 1.0 - after, reward, scale)
        same = (1.0 - doubt) * hypotheses.reward_likelihood(a, b, reward, scale)
        doubts.doubt[lane, arm] = risen / (risen + same)
        doubts.counts[lane, arm, 0] = part * doubts.counts[lane, arm, 0] + scale * reward
        doubts.counts[lane, arm, 1] = part * doubts.counts[lane, arm, 1] + scale * (1.0 - reward)
        doubts.looked[lane, arm] = doubts.exposure[lane]
    doubts.exposure[lane] += rise_rate(state, lane)


@kernel
def take_rise(state: Any, lane: int, arm: int) -> None:
    """If an arm has surely risen, let all hypotheses know it by its clicks since."""
    doubts, own = state.doubts, state.own
    if doubts.doubt[lane, arm] < SURE:
        return
    hits, misses = doubts.counts[lane, arm, 0], doubts.counts[lane, arm, 1]
    for h in range(hypotheses.HYPOTHESES):
        if own.weight[lane, h] > 0.0 and own.counts[lane, h, arm].sum() > hits + misses:
            own.counts[lane, h, arm, 0], own.counts[lane, h, arm, 1] = hits, misses
    doubts.found[lane] += 1.0
    settle(state, lane, arm)


@dataclass(frozen=True, repr=False)
class RisenMixture(tacit.DriftMixture):
    """The default, which also checks whether arms have risen; above ``threshold`` a doubt is worth a look."""

    class State(NamedTuple):
        own: Any
        memory: Any
        shared: Any
        means: Any
        warned: Any
        doubts: Doubts

    threshold: float = field(default=14.0, kw_only=True)
    most: float = field(default=0.25, kw_only=True)
    memory: float = field(default=0.05, kw_only=True)

    def init(self, lanes: int) -> Any:
        begun = tacit.DriftMixture(self.arms).init(lanes)
        begun.memory.weight[:] = self.memory
        arms, one = np.zeros((lanes, self.arm_count)), np.zeros(lanes)
        best = np.zeros(lanes, np.int64)
        counts, room = np.zeros((lanes, self.arm_count, 2)), np.zeros((1, self.arm_count))
        return self.State(*begun, Doubts(arms, counts, arms.copy(), one, one.copy(), best, room))

    @staticmethod
    def choose(params: Any, state: Any, lane: int, impression: Impression, rng: Generator) -> int:
        uniform = rng.random()
        if uniform < note_checks(params, state, lane, impression):
            last = 0
            for i in range(len(impression.arms)):
                if uniform >= 0.0 and state.doubts.room[0, i] > 0.0:
                    last = i
                    uniform -= state.doubts.room[0, i]
            return int(impression.arms[last])
        h, uniform, weight = drift_mixture.MEMORY, rng.random(), state.memory.weight[lane]
        if uniform >= weight:
            h = hypotheses.draw_hypothesis(state.own, lane, (uniform - weight) / (1.0 - weight), params.idle)
        return shift_mixture.draw_arm(params, state, lane, h, impression, rng)

    @staticmethod
    def propensity(params: Any, state: Any, lane: int, impression: Impression, arm: int) -> float:
        weight, memory = state.memory.weight[lane], drift_mixture.MEMORY
        found = shift_mixture.mixture_chance(params, state, lane, impression, arm, 1.0 - weight)
        found += weight * shift_mixture.arm_chance(params, state, lane, memory, impression, arm)
        found *= 1.0 - note_checks(params, state, lane, impression)
        for i in range(len(impression.arms)):
            if impression.arms[i] == arm:
                found += state.doubts.room[0, i]
        return min(1.0, float(found))

    @staticmethod
    def learn(params: Any, state: Any, lane: int, outcome: Outcome) -> None:
        arm, reward, own = outcome.shown, outcome.reward, state.own
        share = min(
            drift_mixture.MOST_SHARE, drift_mixture.SHARE * math.sqrt(hypotheses.change_rate(own, lane))
        )
        scale = shift_mixture.record_reward(params, state, lane, arm, reward)
        look(state, lane, arm, reward, scale)
        a, b = drift_mixture.memory_posterior(state, lane, arm)
        known = 0.0
        for h in range(hypotheses.HYPOTHESES):
            known += own.weight[lane, h]
        foretells = hypotheses.update_weights(own, state.shared.priors, lane, arm, reward, scale) / known
        remembers = hypotheses.reward_likelihood(a, b, reward, scale)
        drift_mixture.weigh_memory(state.memory, lane, remembers, foretells, share, params.memory)
        drift_mixture.update_memory(state.memory, lane, arm, scale * reward, scale * (1.0 - reward))
        believed = own.leading[lane]
        hypotheses.accept_change(params, state, lane)
        hypotheses.advance_round(params, state, lane, 1.0)
        if own.leading[lane] != believed:
            for each in range(own.counts.shape[2]):
                settle(state, lane, each)
        take_rise(state, lane, arm)
        note_best(state, lane)
        shared_priors.count_round(state.shared.priors, params.prior_betas, params.floor)
