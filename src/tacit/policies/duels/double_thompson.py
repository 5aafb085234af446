"""Double Thompson sampling (Wu, Liu 2016)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import kernel
from tacit.core.ranges import Positive
from tacit.policies.actions import DuelPolicy
from tacit.policies.base import About, Impression, Outcome
from tacit.policies.duels.duel_bounds import Bounds, record_duel, sure_losses
from tacit.policies.stationary.beta_tail import beta_tail, draw_above


@dataclass(frozen=True)
class DoubleThompsonSampling(DuelPolicy):
    """Draw the preferences twice from their posterior: once for each arm of the duel.

    With θ(i, j) ~ Beta(w(i, j) + 1, w(j, i) + 1), the left arm is the one of most
    θ(i, j) > 1/2, among the arms whose upper bounds beat the most others. The right arm is the
    one of the largest new θ(j, left), the left one itself counting 1/2, among the arms that do not
    surely beat the left one. A tie counts as half a win for both.

    All that is drawn, in most rounds, is whether each θ exceeds 1/2, with a probability that is
    kept for each pair; numbers are drawn only where several arms exceed the left one. This is
    exact. The propensity is not known.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    alpha : float, default 0.51
        Scale of the confidence radius sqrt(α·ln t/n); above 1/2 in the analysis, above 0 here.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Wu, Liu (2016), "Double Thompson sampling for dueling bandits", algorithm 1.

    Examples
    --------
    >>> import tacit
    >>> environment = tacit.PreferenceMatrix("arxiv")
    >>> policies = [tacit.DoubleThompsonSampling(arms=6), tacit.RUCB(arms=6)]
    >>> result = tacit.simulate(policies, environment, horizon=20_000, runs=10, seed=1)
    >>> result.compare(0, 1).difference < 0
    True
    """

    class Params(NamedTuple):
        alpha: float

    class State(NamedTuple):
        bounds: Bounds
        above: Floats  # (lanes, arms, arms) probability that θ of row against column exceeds 1/2
        votes: Floats  # (lanes, arms) room for counting; all zero between choices
        favourite: Ints  # (lanes,) the left arm of the last duel, likely to win all its pairs

    about: ClassVar[About] = About(
        source="Wu, Liu (2016), algorithm 1 (D-TS)",
        regret="O(K·ln T + K²·ln ln T) with a Condorcet winner",
        assumes="preferences that never change; a Copeland winner, which always exists",
        fails="keeps to the old winner for long after a change",
        otherwise="RMED1, where there is a Condorcet winner",
    )
    randomized: ClassVar[bool] = False

    alpha: Positive = 0.51

    def init(self, lanes: int) -> State:
        arms = self.arm_count
        above = np.full((lanes, arms, arms), 0.5)
        return self.State(
            Bounds.zeros(lanes, arms), above, np.zeros((lanes, arms)), np.zeros(lanes, np.int64)
        )

    @staticmethod
    def choose(
        params: Params, state: State, lane: int, impression: Impression, rng: Generator
    ) -> tuple[int, int]:
        left = first_candidate(state, lane, impression, rng)
        return left, second_candidate(state, lane, impression, left, rng)

    @staticmethod
    def learn(params: Params, state: State, lane: int, outcome: Outcome) -> None:
        left, right = outcome.shown
        record_duel(state.bounds, lane, params.alpha, left, right, outcome.reward)
        state.favourite[lane] = left
        if left != right:
            won = state.bounds.wins[lane, left, right] + 1.0
            lost = state.bounds.wins[lane, right, left] + 1.0
            state.above[lane, left, right] = beta_tail(won, lost, 0.5)
            state.above[lane, right, left] = beta_tail(lost, won, 0.5)


@kernel
def first_candidate(
    state: DoubleThompsonSampling.State, lane: int, impression: Impression, rng: Generator
) -> int:
    """Return the arm that wins most of the drawn pairs, among those that lose fewest surely.

    The favourite's pairs are drawn first: if it wins them all, no other arm can, and what the
    others would have drawn does not matter.
    """
    arms = impression.arms
    fewest, count, leader = math.inf, 0, arms[0]
    for arm in arms:
        losses = sure_losses(state.bounds, lane, impression, arm)
        if losses < fewest:
            fewest, count, leader = losses, 1, arm
        elif losses == fewest:
            count += 1
            if arm == state.favourite[lane]:
                leader = arm
    if count == 1:
        return int(leader)
    votes, favourite = state.votes[lane], leader
    uniform, none = rng.random(), 1.0
    for arm in arms:
        if arm != favourite:
            none *= state.above[lane, favourite, arm]
            if uniform < none:
                votes[favourite] += 1.0
            else:
                votes[arm] += 1.0
                uniform, none = rng.random(), 1.0
    if votes[favourite] == len(arms) - 1.0:
        votes[favourite] = 0.0
        return int(favourite)
    for i in range(len(arms)):
        arm = arms[i]
        candidate = sure_losses(state.bounds, lane, impression, arm) == fewest
        for j in range(i):
            other = arms[j]
            if arm == favourite or other == favourite:
                continue
            if candidate or sure_losses(state.bounds, lane, impression, other) == fewest:
                winner = arm if rng.random() < state.above[lane, arm, other] else other
                votes[winner] += 1.0
    most, ties = -1.0, 0.0
    for arm in arms:
        if sure_losses(state.bounds, lane, impression, arm) == fewest:
            if votes[arm] > most:
                most, leader, ties = votes[arm], arm, 1.0
            elif votes[arm] == most:
                ties += 1.0
                if rng.random() * ties < 1.0:
                    leader = arm
    for arm in arms:
        votes[arm] = 0.0
    return int(leader)


@kernel
def second_candidate(
    state: DoubleThompsonSampling.State, lane: int, impression: Impression, left: int, rng: Generator
) -> int:
    """Return the arm of the largest draw against the left one; the left one, if none exceeds 1/2.

    One uniform number serves until the next arm whose draw exceeds 1/2.
    """
    wins = state.bounds.wins[lane]
    right, largest = left, -1.0
    uniform, none = rng.random(), 1.0
    for arm in impression.arms:
        if arm == left or state.bounds.lost[lane, left, arm] > 0.0:
            continue
        none *= state.above[lane, left, arm]
        if uniform < none:
            continue
        uniform, none = rng.random(), 1.0
        if right == left:
            right = arm
            continue
        if largest < 0.0:
            largest = draw_above(wins[right, left] + 1.0, wins[left, right] + 1.0, 0.5, rng)
        draw = draw_above(wins[arm, left] + 1.0, wins[left, arm] + 1.0, 0.5, rng)
        if draw > largest:
            right, largest = arm, draw
    return int(right)
