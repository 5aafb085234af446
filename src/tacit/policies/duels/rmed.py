"""RMED1: relative minimum empirical divergence (Komiyama, Honda, Kashima, Nakagawa 2015)."""

# 1. ``RMED1``: the policy, its state and its kernels.
# 2. ``draw_unmet_pair`` …: at first every pair duels once.
# 3. ``draw_least_evidence``, ``draw_opponent``: the two arms of a duel (algorithm 2), and its probability.
# 4. ``update_evidence``, ``finish_turn``, ``foresee_solo_pass``: the pass over the arms that may be best,
#    updated in O(K) per duel.

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import kernel
from tacit.core.part import optional, param, within
from tacit.core.state_ranges import ArmIndex, Count, ValueRange
from tacit.policies.actions import Duel, DuelPolicy
from tacit.policies.base import About, Impression, Outcome
from tacit.policies.stationary.ucb import bernoulli_kl


@dataclass(frozen=True)
class RMED1(DuelPolicy):
    """Let each arm that may be the best duel the arm that gives most evidence against it.

    The evidence against arm i is I(i) = Σ n(i, j)·kl(μ(i, j), 1/2) over the arms j that it does
    not beat, μ(i, j) ≤ 1/2. After one duel of every pair, the policy goes through the arms i with
    I(i) − min I ≤ ln t + f(K), in the order of their indices. Each duels the arm of least I if that arm
    beats it or no arm does, else the arm that beats it most. A tie counts as half a win for both arms. If
    several arms qualify, one is drawn; the propensity is exact.

    In the runs of ``python -m studies dueling-practice`` :class:`DoubleThompsonSampling` has half to
    three quarters of its regret, and takes four to twenty times as long for a duel.

    The terms of I are stored for each pair, so a duel costs O(K) and computes one divergence.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    f : float, optional
        Constant part of the evidence up to which an arm stays in the pass, at least 0. By default 0.3·K^1.01,
        as in the paper's experiments.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Komiyama, Honda, Kashima, Nakagawa (2015), "Regret lower bound and optimal algorithm in
    dueling bandit problem", algorithms 1 and 2.

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.policies.RMED1(arms=["left", "right"]), seed=1)
    >>> for _ in range(200):
    ...     decision = learner.choose("query")
    ...     first, second = decision.pair
    ...     _ = learner.learn(decision, float(first == "left") if first != second else 0.5)
    >>> learner.choose("query").pair
    ('left', 'left')
    """

    class State(NamedTuple):
        wins: Count  # (lanes, arms, arms) of the row's arm over the column's
        terms: Floats  # (lanes, arms, arms) n·kl(μ, 1/2) where the row's arm does not win more
        evidence: Floats  # (lanes, arms) sums of the rows of terms
        met: Floats  # (lanes, arms) number of other arms that an arm has dueled
        waiting: Floats  # (lanes, arms) 1 while the arm's turn in this pass is to come
        next: Floats  # (lanes, arms) 1 if the arm takes part in the next pass
        rounds: Count  # (lanes,)
        alone: Floats  # (lanes,) round until which the best arm surely duels itself
        best: ArmIndex  # (lanes,) this best arm
        among: Annotated[Ints, ValueRange(0, 0, "arms")]  # (lanes,) number of arms when this was computed

    about: ClassVar[About] = About(
        source="Komiyama, Honda, Kashima, Nakagawa (2015), algorithms 1 and 2",
        regret="Σ gap/(2·kl(P(arm, best), 1/2))·ln T + O(K^(2+ε)): optimal where duels with the "
        "best arm tell most for their regret",
        assumes="a Condorcet winner; preferences that never change",
        fails="has no guarantee without such a winner; keeps to the old one for long after a change",
        otherwise="HorizonDraw, also where no arm beats all others or preferences change",
    )

    f: Annotated[float | None, optional(within(0.0, 1e12))] = None

    @param
    def slack(self) -> float:
        """The constant f(K) of the bound on evidence."""
        return 0.3 * self.arm_count**1.01 if self.f is None else self.f

    def init(self, lanes: int) -> State:
        pairs, single = (lanes, self.arm_count, self.arm_count), (lanes, self.arm_count)
        return self.State(
            wins=np.zeros(pairs),
            terms=np.zeros(pairs),
            evidence=np.zeros(single),
            met=np.zeros(single),
            waiting=np.ones(single),
            next=np.zeros(single),
            rounds=np.zeros(lanes),
            alone=np.zeros(lanes),
            best=np.zeros(lanes, np.int64),
            among=np.zeros(lanes, np.int64),
        )

    @staticmethod
    def choose(params: RMED1, state: State, lane: int, impression: Impression, rng: Generator) -> Duel:
        # Until round ``alone`` the pass is one arm that duels itself, so nothing needs to be computed.
        if state.rounds[lane] < state.alone[lane] and everyone(state, lane, impression):
            return state.best[lane], state.best[lane]
        left, right = unmet_pair(state, lane, impression, rng)
        if left >= 0:
            return left, right
        best = least_evidence(state, lane, impression, rng)
        left = best
        for arm in impression.arms:
            if state.waiting[lane, arm] > 0.0:
                left = arm
                break
        return left, denier(state, lane, impression, left, best, rng)

    @staticmethod
    def propensity(params: RMED1, state: State, lane: int, impression: Impression, pair: Duel) -> float:
        if state.rounds[lane] < state.alone[lane] and everyone(state, lane, impression):
            return 1.0 if pair[0] == pair[1] == state.best[lane] else 0.0
        for arm in impression.arms:
            if has_unmet(state, lane, impression, arm):
                return unmet_chance(state, lane, impression, pair)
        least, turn = math.inf, -1
        for arm in impression.arms:
            least = min(least, state.evidence[lane, arm])
            if turn < 0 and state.waiting[lane, arm] > 0.0:
                turn = arm
        chance, ties = 0.0, 0.0
        for best in impression.arms:
            if state.evidence[lane, best] == least:
                ties += 1.0
                left = turn if turn >= 0 else best
                if left == pair[0]:
                    chance += denial_chance(state, lane, impression, left, best, pair[1])
        return chance / ties

    @staticmethod
    def learn(params: RMED1, state: State, lane: int, outcome: Outcome) -> None:
        left, right = outcome.shown
        state.rounds[lane] += 1.0
        foreseen = left == right == state.best[lane] and everyone(state, lane, outcome.impression)
        if foreseen and state.rounds[lane] < state.alone[lane]:
            return
        state.alone[lane] = 0.0
        if left != right:
            first = state.wins[lane, left, right] + state.wins[lane, right, left] == 0.0
            state.wins[lane, left, right] += outcome.reward
            state.wins[lane, right, left] += 1.0 - outcome.reward
            weigh(state, lane, left, right)
            # Pairs that never met duel before any pass, and do not take a turn.
            if first:
                state.met[lane, left] += 1.0
                state.met[lane, right] += 1.0
                return
        take_turn(state, lane, outcome.impression, left, params.slack)


@kernel
def everyone(state: RMED1.State, lane: int, impression: Impression) -> bool:
    """True if all arms are on offer, and none was added since the solo pass was foreseen."""
    return bool(len(impression.arms) == state.met.shape[1] == state.among[lane])


@kernel
def unmet_pair(state: RMED1.State, lane: int, impression: Impression, rng: Generator) -> Duel:
    """Draw two arms on offer that have never met, or return (−1, −1); the search starts at random."""
    arms = impression.arms
    total = state.met.shape[1]
    complete = True
    for arm in arms:
        complete = complete and state.met[lane, arm] >= total - 1.0
    if not complete:
        count = len(arms)
        start, other_start = int(rng.random() * count), int(rng.random() * count)
        for i in range(count):
            left = arms[(start + i) % count]
            if state.met[lane, left] < total - 1.0:
                for j in range(count):
                    right = arms[(other_start + j) % count]
                    if unmet(state, lane, left, right):
                        return left, right
    return -1, -1


@kernel
def unmet(state: RMED1.State, lane: int, left: int, right: int) -> bool:
    """True if two different arms have never met."""
    met = state.wins[lane, left, right] + state.wins[lane, right, left] > 0.0
    return left != right and not met


@kernel
def has_unmet(state: RMED1.State, lane: int, impression: Impression, left: int) -> bool:
    """True if an arm has not yet met every other arm on offer."""
    if state.met[lane, left] < state.met.shape[1] - 1.0:
        for right in impression.arms:
            if unmet(state, lane, left, right):
                return True
    return False


@kernel
def unmet_chance(state: RMED1.State, lane: int, impression: Impression, pair: Duel) -> float:
    """Return the probability that :func:`draw_unmet_pair` returns a pair.

    The search goes from a random arm to the next suitable one, so an arm's probability is proportional to its
    distance from the suitable arm before it.
    """
    arms, count = impression.arms, len(impression.arms)
    left, right = pair
    if not unmet(state, lane, left, right):
        return 0.0
    place, other_place, distance, other_distance = 0, 0, 1, 1
    for i in range(count):
        if arms[i] == left:
            place = i
        elif arms[i] == right:
            other_place = i
    while not has_unmet(state, lane, impression, arms[(place - distance) % count]):
        distance += 1
    while not unmet(state, lane, left, arms[(other_place - other_distance) % count]):
        other_distance += 1
    return distance * other_distance / count**2


@kernel
def least_evidence(state: RMED1.State, lane: int, impression: Impression, rng: Generator) -> int:
    """Return the arm on offer with the least evidence against it; of several, draw one."""
    best, leader, ties = math.inf, -1, 0.0
    for arm in impression.arms:
        evidence = state.evidence[lane, arm]
        if evidence < best:
            best, leader, ties = evidence, arm, 1.0
        elif evidence == best:
            ties += 1.0
            if rng.random() * ties < 1.0:
                leader = arm
    return leader


@kernel
def denier(
    state: RMED1.State, lane: int, impression: Impression, left: int, best: int, rng: Generator
) -> int:
    """Return the arm that the left arm duels (algorithm 2); of several, draw one."""
    wins = state.wins[lane]
    if best != left and wins[left, best] <= wins[best, left]:
        return best
    least, right, ties = 0.5, best, 0.0
    for arm in impression.arms:
        won, lost = wins[left, arm], wins[arm, left]
        if arm != left and won <= lost:
            # All arms on offer have met: pairs that have not duel first.
            share = won / (won + lost)
            if share < least or ties == 0.0:
                least, right, ties = share, arm, 1.0
            elif share == least:
                ties += 1.0
                if rng.random() * ties < 1.0:
                    right = arm
    return right


@kernel
def denial_chance(
    state: RMED1.State, lane: int, impression: Impression, left: int, best: int, right: int
) -> float:
    """Return the probability that :func:`draw_opponent` returns an arm."""
    wins = state.wins[lane]
    if best != left and wins[left, best] <= wins[best, left]:
        return 1.0 if right == best else 0.0
    least, ties, tied = 0.5, 0.0, right == best
    for arm in impression.arms:
        won, lost = wins[left, arm], wins[arm, left]
        if arm != left and won <= lost:
            share = won / (won + lost)
            if share < least or ties == 0.0:
                least, ties, tied = share, 1.0, arm == right
            elif share == least:
                ties, tied = ties + 1.0, tied or arm == right
    return 1.0 / max(ties, 1.0) if tied else 0.0


@kernel
def weigh(state: RMED1.State, lane: int, left: int, right: int) -> None:
    """Update a pair's terms, and the evidence against its two arms."""
    won, lost = state.wins[lane, left, right], state.wins[lane, right, left]
    # The evidence I against an arm is the sum of these terms.
    term = (won + lost) * bernoulli_kl(won / (won + lost), 0.5)
    against_left = term if won <= lost else 0.0
    against_right = term if lost <= won else 0.0
    # Recompute the sum: corrections by the difference would accumulate rounding errors.
    if state.terms[lane, left, right] != against_left:
        state.terms[lane, left, right] = against_left
        state.evidence[lane, left] = state.terms[lane, left].sum()
    if state.terms[lane, right, left] != against_right:
        state.terms[lane, right, left] = against_right
        state.evidence[lane, right] = state.terms[lane, right].sum()


@kernel
def take_turn(state: RMED1.State, lane: int, impression: Impression, left: int, slack: float) -> None:
    """End the left arm's turn, select arms for the next pass, and start that pass once this one is over."""
    state.waiting[lane, left] = 0.0
    least = math.inf
    for arm in impression.arms:
        least = min(least, state.evidence[lane, arm])
    # Algorithm 1: an arm whose evidence is within ln t + f(K) of the least may still be the best.
    limit = least + np.log(state.rounds[lane]) + slack
    over = True
    for arm in impression.arms:
        if state.waiting[lane, arm] > 0.0:
            over = False
        elif state.evidence[lane, arm] <= limit:
            state.next[lane, arm] = 1.0
    if over:
        for arm in impression.arms:
            state.waiting[lane, arm] = state.next[lane, arm]
            state.next[lane, arm] = 0.0
        if len(impression.arms) == state.met.shape[1]:
            foresee(state, lane, slack)


@kernel
def foresee(state: RMED1.State, lane: int, slack: float) -> None:
    """Store the round until which the pass consists of one arm that beats all others, and duels itself."""
    least, second, best = math.inf, math.inf, -1
    unmet = 0.0
    for arm in range(state.met.shape[1]):
        evidence = state.evidence[lane, arm]
        unmet += state.met.shape[1] - 1.0 - state.met[lane, arm]
        if evidence < least:
            least, second, best = evidence, least, arm
        elif evidence < second:
            second = evidence
    # An arm without evidence against it beats all others, or ties with another such arm.
    waiting = state.waiting[lane].sum()
    if least == 0.0 < second and unmet == 0.0 and waiting == state.waiting[lane, best]:
        state.best[lane] = best
        state.among[lane] = state.met.shape[1]
        state.alone[lane] = np.exp(second - slack)
