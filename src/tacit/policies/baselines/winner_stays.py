"""Winner stays: an endless tournament of duels (Chen, Frazier 2017)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import kernel
from tacit.core.part import float_range, one_word, param
from tacit.core.state_ranges import ArmIndexOrNone
from tacit.policies.actions import Duel, DuelPolicy
from tacit.policies.base import About, Impression, Outcome
from tacit.policies.duels.working_set import is_on_offer


@dataclass(frozen=True)
class WinnerStays(DuelPolicy):
    """Let the two arms of most wins minus losses duel; of equal arms, the two of the last duel stay.

    A round of the tournament is over when the winner has beaten each other arm once more than
    before. In the weak variant the next round follows at once. In the strong one the winner of round l first
    plays ⌊β^l⌋ duels against itself, from which nothing is learned. A tie changes nothing. Of several
    eligible arms one is drawn uniformly; the propensity is exact.

    The policy is cheap and commits fast: if the best two arms are close, a wrong winner may be
    played for a long time. Look at quantiles of the regret, not at means.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    variant : str, default "strong"
        ``strong`` plays the best arm on both sides; ``weak`` is for weak regret, where one side is enough.
    beta : float, default 1.1
        Growth of the strong variant's exploitation; above 1. For a regret of O(ln T) it must be
        below p/(1 − p), if the best arm beats each other with probability p or more: 1.1 is for
        p ≥ 0.524.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Chen, Frazier (2017), "Dueling bandits with weak regret", WS-W (algorithm 1) and WS-S
    (algorithm 2).

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.policies.baselines.WinnerStays(arms=2, variant="weak"), seed=1)
    >>> decision = learner.choose("query")
    >>> sorted(decision.pair), decision.propensity
    ([0, 1], 0.5)
    """

    class State(NamedTuple):
        score: Floats  # (lanes, arms) wins minus losses
        pair: ArmIndexOrNone  # (lanes, 2) the last duel's arms, or −1
        winner: ArmIndexOrNone  # (lanes,) the arm that is exploited
        exploit: Floats  # (lanes,) duels of exploitation to come
        passed: Floats  # (lanes,) rounds of the tournament that are over

    about: ClassVar[About] = About(
        source="Chen, Frazier (2017), algorithms 1 and 2",
        regret="weak: O(K²), constant in T; strong: O(K² + K·ln T); K·ln K for K² in a total order",
        assumes="a Condorcet winner; for ln T, beta below p/(1 − p)",
        fails="may stay with the second best for ever",
        otherwise="RMED1, where the best two arms are close: its regret has no heavy tail",
    )

    variant: Annotated[str, one_word("strong", "weak")] = "strong"
    beta: Annotated[float, float_range(1.0, 1000.0, open_low=True)] = 1.1

    @param
    def strong(self) -> bool:
        """True for the strong variant, which exploits the winner of each round."""
        return self.variant == "strong"

    def init(self, lanes: int) -> State:
        """Return the state of ``lanes`` keys before the first duel."""
        return self.State(
            score=np.zeros((lanes, self.arm_count)),
            pair=np.full((lanes, 2), -1, np.int64),
            winner=np.full(lanes, -1, np.int64),
            exploit=np.zeros(lanes),
            passed=np.zeros(lanes),
        )

    @staticmethod
    def choose(params: WinnerStays, state: State, lane: int, impression: Impression, rng: Generator) -> Duel:
        """Return the two arms of the highest scores, or the last winner twice while it is exploited.

        Of arms with equal scores, those of the last duel stay; otherwise one is drawn.
        """
        if is_exploiting(state, lane, impression):
            return state.winner[lane], state.winner[lane]
        left_arm, ties = find_incumbent(state, lane, impression, -1)
        if left_arm < 0:
            left_arm = draw_top_arm(state, lane, impression, -1, ties, rng)
        right_arm, ties = find_incumbent(state, lane, impression, left_arm)
        if right_arm < 0 and ties > 0:
            right_arm = draw_top_arm(state, lane, impression, left_arm, ties, rng)
        return left_arm, right_arm if right_arm >= 0 else left_arm

    @staticmethod
    def propensity(params: WinnerStays, state: State, lane: int, impression: Impression, pair: Duel) -> float:
        """Return the probability that ``choose`` returns this ordered pair."""
        if is_exploiting(state, lane, impression):
            both = pair[0] == state.winner[lane] and pair[1] == state.winner[lane]
            return 1.0 if both else 0.0
        if len(impression.arms) == 1:
            return 1.0
        return choice_chance(state, lane, impression, -1, pair[0]) * choice_chance(
            state, lane, impression, pair[0], pair[1]
        )

    @staticmethod
    def learn(params: WinnerStays, state: State, lane: int, outcome: Outcome) -> None:
        """Update the scores of both arms; in the strong variant, end a round of the tournament when it is
        over.

        Its winner is then exploited for ⌊β^l⌋ duels after round l. A duel of the winner with itself only
        counts down these duels.
        """
        left_arm, right_arm = outcome.shown
        if left_arm == right_arm:
            if state.exploit[lane] > 0.0 and left_arm == state.winner[lane]:
                state.exploit[lane] -= 1.0
            return
        state.pair[lane, 0], state.pair[lane, 1] = left_arm, right_arm
        state.score[lane, left_arm] += 2.0 * outcome.reward - 1.0
        state.score[lane, right_arm] += 1.0 - 2.0 * outcome.reward
        if params.strong:
            ahead = left_arm if state.score[lane, left_arm] >= state.score[lane, right_arm] else right_arm
            opponent_count = state.score.shape[1] - 1.0
            if state.score[lane, ahead] >= opponent_count * (state.passed[lane] + 1.0):
                state.passed[lane] += 1.0
                state.winner[lane] = ahead
                state.exploit[lane] = np.floor(params.beta ** state.passed[lane])


@kernel
def is_exploiting(state: WinnerStays.State, lane: int, impression: Impression) -> bool:
    """True if the last winner is on offer and has duels of exploitation to come."""
    return bool(state.exploit[lane] > 0.0 and is_on_offer(impression, state.winner[lane]))


@kernel
def find_incumbent(state: WinnerStays.State, lane: int, impression: Impression, without: int) -> Duel:
    """Return the arm of the last duel that is among those of the highest score, and the number of arms with
    this score.

    The arm ``without`` is left out. The first value is −1 if no such arm was in the last duel.
    """
    best, count, stays = -math.inf, 0, -1
    for arm in impression.arms:
        score = state.score[lane, arm]
        if arm != without and score >= best:
            if score > best:
                best, count, stays = score, 0, -1
            count += 1
            first = arm == state.pair[lane, 0]
            if first or (arm == state.pair[lane, 1] and stays < 0):
                stays = arm
    return stays, count


@kernel
def draw_top_arm(
    state: WinnerStays.State, lane: int, impression: Impression, without: int, count: int, rng: Generator
) -> int:
    """Return one of the arms on offer of the highest score, drawn uniformly; ``count`` is their number.

    The arm ``without`` is left out. Returns −1 if there are fewer than ``count``.
    """
    best = -math.inf
    for arm in impression.arms:
        if arm != without:
            best = max(best, state.score[lane, arm])
    pick = int(rng.random() * count)
    for arm in impression.arms:
        if arm != without and state.score[lane, arm] == best:
            if pick == 0:
                return int(arm)
            pick -= 1
    return -1


@kernel
def choice_chance(
    state: WinnerStays.State, lane: int, impression: Impression, without: int, arm: int
) -> float:
    """Return the probability that ``choose`` takes ``arm`` as its next arm, where ``without`` (or −1) is
    taken already.
    """
    stays, count = find_incumbent(state, lane, impression, without)
    if stays >= 0:
        return 1.0 if arm == stays else 0.0
    best = -math.inf
    for rival in impression.arms:
        if rival != without:
            best = max(best, state.score[lane, rival])
    return 1.0 / count if arm != without and state.score[lane, arm] == best else 0.0
