"""Confidence bounds on all pairs, and two policies that use them: RUCB and double Thompson sampling."""

# 1. ``PairBounds``: whether an arm surely loses to another. A verdict is valid until a known round, so a duel
#    costs O(K).
# 2. ``RUCB``: an arm that may be the best duels the arm that could beat it most.
# 3. ``DoubleThompsonSampling``: two draws of the preferences, over the same bounds.

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import kernel
from tacit.core.part import Positive
from tacit.core.state_ranges import ArmIndexOrNone, Count
from tacit.policies.actions import Duel, DuelPolicy
from tacit.policies.base import About, Impression, Outcome
from tacit.policies.stationary.beta_maximum import beta_tail, draw_above

# ---- Sure losses: confidence bounds on all pairs, updated in O(K) per duel
#
# Arm i surely loses to arm j in round t if its upper confidence bound is below one half,
#
#     w(i, j)/n + sqrt(α·ln t/n) < 1/2,  that is  ln t < (w(j, i) − w(i, j))²/(4·α·n).
#
# The right side changes with the pair's own duels only. It gives the round until which the verdict is valid,
# so a round reviews only the arms with an expired verdict, not all pairs.


class PairBounds(NamedTuple):
    """Wins of all pairs, and the verdicts on them.

    Attributes
    ----------
    wins : array of float64, shape (lanes, arms, arms)
        Wins of the row's arm over the column's; a tie is half a win for both.
    lost : array of float64, shape (lanes, arms, arms)
        1 where the row's arm surely loses to the column's, else 0.
    losses : array of float64, shape (lanes, arms)
        Number of other arms to which an arm surely loses.
    until : array of float64, shape (lanes, arms)
        All verdicts on the arm's losses are valid while ln t is below this.
    soonest : array of float64, shape (lanes,)
        The minimum of ``until``.
    rounds : array of float64, shape (lanes,)
    """

    wins: Count
    lost: Floats
    losses: Floats
    until: Floats
    soonest: Floats
    rounds: Count

    @classmethod
    def zeros(cls, lanes: int, arms: int) -> PairBounds:
        """Return the bounds of ``lanes`` keys before the first duel, without sure losses."""
        pairs = (lanes, arms, arms)
        return cls(
            np.zeros(pairs),
            np.zeros(pairs),
            np.zeros((lanes, arms)),
            np.full((lanes, arms), np.inf),
            np.full(lanes, np.inf),
            np.zeros(lanes),
        )


@kernel
def log_round(bounds: PairBounds, lane: int) -> float:
    """Return ln t for the coming round t of a lane."""
    return float(np.log(bounds.rounds[lane] + 1.0))


@kernel
def update_verdict(bounds: PairBounds, lane: int, alpha: float, arm: int, rival: int, now: float) -> None:
    """Update the verdict whether an arm surely loses to ``rival``, at ``now`` = ln t, in place.

    That includes the arm's number of sure losses, and the time at which its verdicts expire.
    """
    won, lost = bounds.wins[lane, arm, rival], bounds.wins[lane, rival, arm]
    verdict = 0.0
    if lost > won:
        # u(i, j) < ½ holds while ln t is below ``until``: the expiry is known, so no bound needs to be
        # computed every round.
        until = (lost - won) * (lost - won) / (4.0 * alpha * (lost + won))
        if now < until:
            verdict = 1.0
            bounds.until[lane, arm] = min(bounds.until[lane, arm], until)
            bounds.soonest[lane] = min(bounds.soonest[lane], until)
    bounds.losses[lane, arm] += verdict - bounds.lost[lane, arm, rival]
    bounds.lost[lane, arm, rival] = verdict


@kernel
def review_verdicts(bounds: PairBounds, lane: int, alpha: float, now: float) -> None:
    """Update the verdicts of all arms of which one may have expired at ``now`` = ln t, in place."""
    bounds.soonest[lane] = np.inf
    for arm in range(bounds.losses.shape[1]):
        if bounds.until[lane, arm] <= now:
            bounds.until[lane, arm] = np.inf
            for rival in range(bounds.losses.shape[1]):
                if bounds.lost[lane, arm, rival] > 0.0:
                    update_verdict(bounds, lane, alpha, arm, rival, now)
        bounds.soonest[lane] = min(bounds.soonest[lane], bounds.until[lane, arm])


@kernel
def record_duel(
    bounds: PairBounds, lane: int, alpha: float, left_arm: int, right_arm: int, outcome: float
) -> bool:
    """Count a round and its outcome, and update verdicts; return True if no verdict can have changed.

    ``outcome`` is 1 if the left arm won, 0 if it lost, 0.5 for a tie. A duel of an arm with itself changes no
    wins, but time may let verdicts expire.
    """
    bounds.rounds[lane] += 1.0
    now = log_round(bounds, lane)
    if left_arm != right_arm:
        bounds.wins[lane, left_arm, right_arm] += outcome
        bounds.wins[lane, right_arm, left_arm] += 1.0 - outcome
        update_verdict(bounds, lane, alpha, left_arm, right_arm, now)
        update_verdict(bounds, lane, alpha, right_arm, left_arm, now)
    # A round affects all pairs, but only expired verdicts need to be reviewed.
    if now >= bounds.soonest[lane]:
        review_verdicts(bounds, lane, alpha, now)
        return False
    return left_arm == right_arm


@kernel
def count_sure_losses(bounds: PairBounds, lane: int, impression: Impression, arm: int) -> float:
    """Return the number of arms on offer to which ``arm`` surely loses."""
    if len(impression.arms) == bounds.losses.shape[1]:
        return float(bounds.losses[lane, arm])
    count = 0.0
    for rival in impression.arms:
        count += bounds.lost[lane, arm, rival]
    return count


# ---- RUCB: optimism for every pair (Zoghi, Whiteson, Munos, de Rijke 2014)


@kernel
def upper_bound(bounds: PairBounds, lane: int, width: float, arm: int, rival: int) -> float:
    """Return the upper confidence bound on P(arm beats rival): share of wins + sqrt(width/duels), width being
    α·ln t.

    It is 2 before their first duel.
    """
    wins = bounds.wins[lane, arm, rival]
    duels = wins + bounds.wins[lane, rival, arm]
    return float(wins / duels + np.sqrt(width / duels)) if duels > 0.0 else 2.0


@kernel
def count_possible_winners(
    bounds: PairBounds, lane: int, impression: Impression, best: int
) -> tuple[int, bool]:
    """Return the number of arms on offer that surely lose to no arm, and whether ``best`` is one of them."""
    count, among = 0, False
    for arm in impression.arms:
        if count_sure_losses(bounds, lane, impression, arm) == 0.0:
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
    >>> learner = tacit.Learner(tacit.policies.baselines.RUCB(arms=["left", "right"]), seed=1)
    >>> for _ in range(200):
    ...     decision = learner.choose("query")
    ...     first, second = decision.pair
    ...     _ = learner.learn(decision, float(first == "left") if first != second else 0.5)
    >>> learner.choose("query").pair
    ('left', 'left')
    """

    class State(NamedTuple):
        bounds: PairBounds
        best: ArmIndexOrNone  # (lanes,) the hypothesised best arm, or −1
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
        """Return the state of ``lanes`` keys before the first duel."""
        return self.State(
            PairBounds.zeros(lanes, self.arm_count), np.full(lanes, -1, np.int64), np.zeros(lanes)
        )

    @staticmethod
    def choose(params: RUCB, state: State, lane: int, impression: Impression, rng: Generator) -> Duel:
        """Return a left arm that surely loses to no arm, and as right arm the one with the highest upper
        bound against it.

        They are the same arm if no other has a bound of at least ½ against it.
        """
        arms, best = impression.arms, state.best[lane]
        if len(arms) == state.bounds.losses.shape[1] == state.still[lane]:
            return best, best
        count, among = count_possible_winners(state.bounds, lane, impression, best)
        left_arm = arms[0]
        # The hypothesised best arm is taken alone, or with probability ½.
        if among and (count == 1 or rng.random() < 0.5):
            left_arm = best
        else:
            # Draw from the possible winners except ``best``, or from all arms if there are none.
            pool_size = count - among if count > 0 else len(arms)
            pick = int(rng.random() * pool_size)
            for arm in arms:
                eligible = count == 0 or count_sure_losses(state.bounds, lane, impression, arm) == 0.0
                if eligible and not (among and arm == best):
                    if pick == 0:
                        left_arm = arm
                        break
                    pick -= 1
        right_arm, highest, ties = left_arm, -math.inf, 0.0
        width = params.alpha * log_round(state.bounds, lane)
        for arm in arms:
            # An arm that surely loses to the left one has a bound below ½.
            if arm != left_arm and state.bounds.lost[lane, arm, left_arm] == 0.0:
                bound = upper_bound(state.bounds, lane, width, arm, left_arm)
                if bound > highest:
                    highest, right_arm, ties = bound, arm, 1.0
                elif bound == highest:
                    ties += 1.0
                    if rng.random() * ties < 1.0:
                        right_arm = arm
        return left_arm, right_arm

    @staticmethod
    def propensity(params: RUCB, state: State, lane: int, impression: Impression, pair: Duel) -> float:
        """Return the probability that ``choose`` returns this ordered pair."""
        left_arm, right_arm = pair
        count, among = count_possible_winners(state.bounds, lane, impression, state.best[lane])
        if count == 0:
            chance = 1.0 / len(impression.arms)
        elif count_sure_losses(state.bounds, lane, impression, left_arm) > 0.0:
            chance = 0.0
        elif among and count > 1:
            chance = 0.5 if left_arm == state.best[lane] else 0.5 / (count - 1)
        else:
            chance = 1.0 / count
        highest, ties, right_bound = -math.inf, 0.0, -math.inf
        width = params.alpha * log_round(state.bounds, lane)
        for arm in impression.arms:
            if arm != left_arm and state.bounds.lost[lane, arm, left_arm] == 0.0:
                bound = upper_bound(state.bounds, lane, width, arm, left_arm)
                if bound > highest:
                    highest, ties = bound, 1.0
                elif bound == highest:
                    ties += 1.0
                if arm == right_arm:
                    right_bound = bound
        if ties == 0.0:
            return chance if right_arm == left_arm else 0.0
        return chance / ties if right_arm != left_arm and right_bound == highest else 0.0

    @staticmethod
    def learn(params: RUCB, state: State, lane: int, outcome: Outcome) -> None:
        """Record the duel, and update the hypothesised best arm.

        ``still`` is set if all other arms surely lose to it: until a verdict changes, that arm duels itself.
        """
        bounds = state.bounds
        verdicts_stand = record_duel(
            bounds, lane, params.alpha, outcome.shown[0], outcome.shown[1], outcome.reward
        )
        if verdicts_stand and state.still[lane] == bounds.losses.shape[1]:
            return
        if state.best[lane] >= 0 and bounds.losses[lane, state.best[lane]] > 0.0:
            state.best[lane] = -1
        # The arms that surely lose to no other may be the best; one that is alone is taken for it.
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


# ---- Double Thompson sampling (Wu, Liu 2016)


@dataclass(frozen=True)
class DoubleThompsonSampling(DuelPolicy):
    """Draw the preferences twice from their posterior: once for each arm of the duel.

    With θ(i, j) ~ Beta(w(i, j) + 1, w(j, i) + 1), the left arm is the one of most
    θ(i, j) > 1/2, among the arms whose upper bounds beat the most others. The right arm is the
    one of the largest θ(j, left) in a second draw, where the left arm itself counts 1/2, among the arms that
    do not surely beat the left one. A tie counts as half a win for both.

    In most rounds only whether each θ exceeds 1/2 is drawn, with a probability that is
    stored for each pair; values are drawn only if several arms exceed the left one. This is
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
    >>> from tacit.policies.baselines import RUCB, DoubleThompsonSampling
    >>> policies = [DoubleThompsonSampling(arms=6), RUCB(arms=6)]
    >>> result = tacit.simulate(policies, environment, horizon=20_000, runs=10, seed=1)
    >>> result.compare(0, 1).difference < 0
    True
    """

    class State(NamedTuple):
        bounds: PairBounds
        above: Floats  # (lanes, arms, arms) probability that θ of row against column exceeds 1/2
        votes: Floats  # (lanes, arms) workspace for counting; all zero between choices
        favourite: ArmIndexOrNone  # (lanes,) the left arm of the last duel, likely to win all its pairs

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
        """Return the state of ``lanes`` keys before the first duel."""
        arms = self.arm_count
        above = np.full((lanes, arms, arms), 0.5)
        return self.State(
            PairBounds.zeros(lanes, arms), above, np.zeros((lanes, arms)), np.zeros(lanes, np.int64)
        )

    @staticmethod
    def choose(
        params: DoubleThompsonSampling, state: State, lane: int, impression: Impression, rng: Generator
    ) -> Duel:
        """Return a left arm by a first draw of all pairs' preferences, and a right arm by a second draw."""
        left_arm = draw_left_arm(state, lane, impression, rng)
        return left_arm, draw_right_arm(state, lane, impression, left_arm, rng)

    @staticmethod
    def learn(params: DoubleThompsonSampling, state: State, lane: int, outcome: Outcome) -> None:
        """Record the duel, make the left arm the favourite, and update the pair's probabilities that θ
        exceeds ½.
        """
        left_arm, right_arm = outcome.shown
        record_duel(state.bounds, lane, params.alpha, left_arm, right_arm, outcome.reward)
        state.favourite[lane] = left_arm
        if left_arm != right_arm:
            won = state.bounds.wins[lane, left_arm, right_arm] + 1.0
            lost = state.bounds.wins[lane, right_arm, left_arm] + 1.0
            state.above[lane, left_arm, right_arm] = beta_tail(won, lost, 0.5)
            state.above[lane, right_arm, left_arm] = beta_tail(lost, won, 0.5)


@kernel
def draw_left_arm(
    state: DoubleThompsonSampling.State, lane: int, impression: Impression, rng: Generator
) -> int:
    """Draw preferences, and return the arm that wins most pairs, among the arms with fewest sure losses.

    Ties are broken at random. The favourite's pairs are drawn first: if it wins them all, no other arm can
    win as many, and the other pairs need not be drawn.
    """
    arms = impression.arms
    fewest, count, leader = math.inf, 0, arms[0]
    for arm in arms:
        losses = count_sure_losses(state.bounds, lane, impression, arm)
        if losses < fewest:
            fewest, count, leader = losses, 1, arm
        elif losses == fewest:
            count += 1
            if arm == state.favourite[lane]:
                leader = arm
    if count == 1:
        return int(leader)
    votes, favourite = state.votes[lane], leader
    # One uniform number decides for all pairs up to the first that the favourite loses: ``none`` is the
    # probability that it loses none of them.
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
    # The pairs of two other arms, of which at least one is a candidate.
    for i in range(len(arms)):
        arm = arms[i]
        candidate = count_sure_losses(state.bounds, lane, impression, arm) == fewest
        for j in range(i):
            rival = arms[j]
            if arm == favourite or rival == favourite:
                continue
            if candidate or count_sure_losses(state.bounds, lane, impression, rival) == fewest:
                winner = arm if rng.random() < state.above[lane, arm, rival] else rival
                votes[winner] += 1.0
    most, ties = -1.0, 0.0
    for arm in arms:
        if count_sure_losses(state.bounds, lane, impression, arm) == fewest:
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
def draw_right_arm(
    state: DoubleThompsonSampling.State, lane: int, impression: Impression, left_arm: int, rng: Generator
) -> int:
    """Draw preferences against the left arm, and return the arm of the largest draw; the left arm if none
    exceeds ½.

    Arms that the left arm surely beats are left out. Draws that do not exceed ½ are skipped: one uniform
    number decides for all arms up to the next one whose draw does.
    """
    wins = state.bounds.wins[lane]
    right_arm, largest = left_arm, -1.0
    # ``none`` is the probability that no draw exceeds ½ since ``uniform`` was drawn.
    uniform, none = rng.random(), 1.0
    for arm in impression.arms:
        if arm == left_arm or state.bounds.lost[lane, left_arm, arm] > 0.0:
            continue
        none *= state.above[lane, left_arm, arm]
        if uniform < none:
            continue
        uniform, none = rng.random(), 1.0
        # The first draw above ½ is made only if a second arm has one, too.
        if right_arm == left_arm:
            right_arm = arm
            continue
        if largest < 0.0:
            largest = draw_above(wins[right_arm, left_arm] + 1.0, wins[left_arm, right_arm] + 1.0, 0.5, rng)
        draw = draw_above(wins[arm, left_arm] + 1.0, wins[left_arm, arm] + 1.0, 0.5, rng)
        if draw > largest:
            right_arm, largest = arm, draw
    return int(right_arm)
