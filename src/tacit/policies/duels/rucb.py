"""RUCB: optimism for every pair (Zoghi, Whiteson, Munos, de Rijke 2014)."""

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
from tacit.policies.duels.duel_bounds import Bounds, log_round, record_duel, sure_losses


@kernel
def upper_bound(bounds: Bounds, lane: int, width: float, arm: int, other: int) -> float:
    """Return the upper confidence bound on P(arm beats other); 2 before their first duel."""
    wins = bounds.wins[lane, arm, other]
    duels = wins + bounds.wins[lane, other, arm]
    return float(wins / duels + np.sqrt(width / duels)) if duels > 0.0 else 2.0


@kernel
def possible_winners(bounds: Bounds, lane: int, impression: Impression, best: int) -> tuple[int, bool]:
    """Count the arms on offer that surely lose to none; say whether ``best`` is one."""
    count, among = 0, False
    for arm in impression.arms:
        if sure_losses(bounds, lane, impression, arm) == 0.0:
            count += 1
            among = among or arm == best
    return count, among


@dataclass(frozen=True)
class RUCB(DuelPolicy):
    """Duel an arm that may be the best with the arm that could beat it most.

    With the upper bounds u(i, j) = w(i, j)/n + sqrt(α·ln t/n), the left arm c is drawn from the
    arms with u(c, j) ≥ 1/2 for all j: the hypothesised best one with probability one half where
    there is one, else uniformly. The right arm is the d with the largest u(d, c), which is c
    itself if all others are below 1/2. A tie counts as half a win for both arms.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    alpha : float, default 0.51
        Scale of the confidence radius; above 1/2 in the analysis, above 0 here.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Zoghi, Whiteson, Munos, de Rijke (2014), "Relative upper confidence bound for the k-armed
    dueling bandit problem", algorithm 1.

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.RUCB(arms=["left", "right"]), seed=1)
    >>> for _ in range(200):
    ...     decision = learner.choose("query")
    ...     first, second = decision.pair
    ...     _ = learner.learn(decision, float(first == "left") if first != second else 0.5)
    >>> learner.choose("query").pair
    ('left', 'left')
    """

    class Params(NamedTuple):
        alpha: float

    class State(NamedTuple):
        bounds: Bounds
        best: Ints  # (lanes,) the hypothesised best arm, or −1
        still: Floats  # (lanes,) of all arms, if it duels itself until a verdict changes; else 0

    about: ClassVar[About] = About(
        source="Zoghi, Whiteson, Munos, de Rijke (2014), algorithm 1",
        regret="O(K²) + O(K·ln T), constants from all gaps",
        assumes="a Condorcet winner; preferences that never change",
        fails="has no guarantee without such a winner; keeps to the old one for long after a change",
        otherwise="RMED1, whose regret is several times smaller",
    )

    alpha: Positive = 0.51

    def init(self, lanes: int) -> State:
        return self.State(Bounds.zeros(lanes, self.arm_count), np.full(lanes, -1, np.int64), np.zeros(lanes))

    @staticmethod
    def choose(
        params: Params, state: State, lane: int, impression: Impression, rng: Generator
    ) -> tuple[int, int]:
        arms, best = impression.arms, state.best[lane]
        if len(arms) == state.bounds.losses.shape[1] == state.still[lane]:
            return best, best
        count, among = possible_winners(state.bounds, lane, impression, best)
        left = arms[0]
        if among and (count == 1 or rng.random() < 0.5):
            left = best
        else:
            # The n-th of the possible winners but the best; of all arms, if there are none.
            rest = count - among if count > 0 else len(arms)
            pick = int(rng.random() * rest)
            for arm in arms:
                eligible = count == 0 or sure_losses(state.bounds, lane, impression, arm) == 0.0
                if eligible and not (among and arm == best):
                    if pick == 0:
                        left = arm
                        break
                    pick -= 1
        right, highest, ties = left, -math.inf, 0.0
        width = params.alpha * log_round(state.bounds, lane)
        for arm in arms:
            if arm != left and state.bounds.lost[lane, arm, left] == 0.0:
                bound = upper_bound(state.bounds, lane, width, arm, left)
                if bound > highest:
                    highest, right, ties = bound, arm, 1.0
                elif bound == highest:
                    ties += 1.0
                    if rng.random() * ties < 1.0:
                        right = arm
        return left, right

    @staticmethod
    def propensity(
        params: Params, state: State, lane: int, impression: Impression, pair: tuple[int, int]
    ) -> float:
        left, right = pair
        count, among = possible_winners(state.bounds, lane, impression, state.best[lane])
        if count == 0:
            chance = 1.0 / len(impression.arms)
        elif sure_losses(state.bounds, lane, impression, left) > 0.0:
            chance = 0.0
        elif among and count > 1:
            chance = 0.5 if left == state.best[lane] else 0.5 / (count - 1)
        else:
            chance = 1.0 / count
        highest, ties, own = -math.inf, 0.0, -math.inf
        width = params.alpha * log_round(state.bounds, lane)
        for arm in impression.arms:
            if arm != left and state.bounds.lost[lane, arm, left] == 0.0:
                bound = upper_bound(state.bounds, lane, width, arm, left)
                if bound > highest:
                    highest, ties = bound, 1.0
                elif bound == highest:
                    ties += 1.0
                if arm == right:
                    own = bound
        if ties == 0.0:
            return chance if right == left else 0.0
        return chance / ties if right != left and own == highest else 0.0

    @staticmethod
    def learn(params: Params, state: State, lane: int, outcome: Outcome) -> None:
        bounds = state.bounds
        verdicts_stand = record_duel(
            bounds, lane, params.alpha, outcome.shown[0], outcome.shown[1], outcome.reward
        )
        if verdicts_stand and state.still[lane] == bounds.losses.shape[1]:
            return
        if state.best[lane] >= 0 and bounds.losses[lane, state.best[lane]] > 0.0:
            state.best[lane] = -1
        count, only = 0, -1
        for arm in range(bounds.losses.shape[1]):
            if bounds.losses[lane, arm] == 0.0:
                count, only = count + 1, arm
        state.still[lane] = 0.0
        if count == 1:
            state.best[lane] = only
            state.still[lane] = bounds.losses.shape[1]
            for arm in range(bounds.losses.shape[1]):
                if arm != only and bounds.lost[lane, arm, only] == 0.0:
                    state.still[lane] = 0.0
