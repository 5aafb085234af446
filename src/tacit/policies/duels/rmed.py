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
from tacit.core.part import float_range, optional, param
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

    f: Annotated[float | None, optional(float_range(0.0, 1e12))] = None

    @param
    def slack(self) -> float:
        """The constant f(K) of the bound on evidence: 0.3·K^1.01 unless ``f`` is given."""
        return 0.3 * self.arm_count**1.01 if self.f is None else self.f

    def init(self, lanes: int) -> State:
        """Return the state of ``lanes`` keys before the first duel, with all arms in the first pass."""
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
        """Return two arms that never met; once all have met, the next arm of the pass and its opponent."""
        # Until round ``alone`` the pass is one arm that duels itself, so nothing needs to be computed.
        if state.rounds[lane] < state.alone[lane] and has_all_arms(state, lane, impression):
            return state.best[lane], state.best[lane]
        left_arm, right_arm = draw_unmet_pair(state, lane, impression, rng)
        if left_arm >= 0:
            return left_arm, right_arm
        best = draw_least_evidence(state, lane, impression, rng)
        left_arm = best
        for arm in impression.arms:
            if state.waiting[lane, arm] > 0.0:
                left_arm = arm
                break
        return left_arm, draw_opponent(state, lane, impression, left_arm, best, rng)

    @staticmethod
    def propensity(params: RMED1, state: State, lane: int, impression: Impression, pair: Duel) -> float:
        """Return the probability that ``choose`` returns this ordered pair."""
        if state.rounds[lane] < state.alone[lane] and has_all_arms(state, lane, impression):
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
                left_arm = turn if turn >= 0 else best
                if left_arm == pair[0]:
                    chance += opponent_chance(state, lane, impression, left_arm, best, pair[1])
        return chance / ties

    @staticmethod
    def learn(params: RMED1, state: State, lane: int, outcome: Outcome) -> None:
        """Count a duel for both arms, update the evidence against them, and end the left arm's turn in the
        pass.

        A first meeting of two arms takes no turn. While the best arm is known to be alone in the pass, its
        duels with itself only count a round.
        """
        left_arm, right_arm = outcome.shown
        state.rounds[lane] += 1.0
        is_solo = left_arm == right_arm == state.best[lane] and has_all_arms(state, lane, outcome.impression)
        if is_solo and state.rounds[lane] < state.alone[lane]:
            return
        state.alone[lane] = 0.0
        if left_arm != right_arm:
            first = state.wins[lane, left_arm, right_arm] + state.wins[lane, right_arm, left_arm] == 0.0
            state.wins[lane, left_arm, right_arm] += outcome.reward
            state.wins[lane, right_arm, left_arm] += 1.0 - outcome.reward
            update_evidence(state, lane, left_arm, right_arm)
            # Pairs that never met duel before any pass, and do not take a turn.
            if first:
                state.met[lane, left_arm] += 1.0
                state.met[lane, right_arm] += 1.0
                return
        finish_turn(state, lane, outcome.impression, left_arm, params.slack)


@kernel
def has_all_arms(state: RMED1.State, lane: int, impression: Impression) -> bool:
    """True if all arms are on offer, and no arm was added since ``alone`` was computed."""
    return bool(len(impression.arms) == state.met.shape[1] == state.among[lane])


@kernel
def draw_unmet_pair(state: RMED1.State, lane: int, impression: Impression, rng: Generator) -> Duel:
    """Return two arms on offer that have never met, searched from a random arm on; (−1, −1) if there are
    none.
    """
    arms = impression.arms
    total = state.met.shape[1]
    complete = True
    for arm in arms:
        complete = complete and state.met[lane, arm] >= total - 1.0
    if not complete:
        count = len(arms)
        start, other_start = int(rng.random() * count), int(rng.random() * count)
        for i in range(count):
            left_arm = arms[(start + i) % count]
            if state.met[lane, left_arm] < total - 1.0:
                for j in range(count):
                    right_arm = arms[(other_start + j) % count]
                    if is_unmet(state, lane, left_arm, right_arm):
                        return left_arm, right_arm
    return -1, -1


@kernel
def is_unmet(state: RMED1.State, lane: int, left_arm: int, right_arm: int) -> bool:
    """True if these are two different arms that have never met in a duel."""
    met = state.wins[lane, left_arm, right_arm] + state.wins[lane, right_arm, left_arm] > 0.0
    return left_arm != right_arm and not met


@kernel
def has_unmet(state: RMED1.State, lane: int, impression: Impression, left_arm: int) -> bool:
    """True if there is an arm on offer that ``left_arm`` has not met."""
    if state.met[lane, left_arm] < state.met.shape[1] - 1.0:
        for right_arm in impression.arms:
            if is_unmet(state, lane, left_arm, right_arm):
                return True
    return False


@kernel
def unmet_chance(state: RMED1.State, lane: int, impression: Impression, pair: Duel) -> float:
    """Return the probability that :func:`draw_unmet_pair` returns a pair.

    The search goes from a random arm on to the first suitable one, so an arm's probability is proportional to
    its distance from the suitable arm before it.
    """
    arms, count = impression.arms, len(impression.arms)
    left_arm, right_arm = pair
    if not is_unmet(state, lane, left_arm, right_arm):
        return 0.0
    place, other_place, distance, other_distance = 0, 0, 1, 1
    for i in range(count):
        if arms[i] == left_arm:
            place = i
        elif arms[i] == right_arm:
            other_place = i
    while not has_unmet(state, lane, impression, arms[(place - distance) % count]):
        distance += 1
    while not is_unmet(state, lane, left_arm, arms[(other_place - other_distance) % count]):
        other_distance += 1
    return distance * other_distance / count**2


@kernel
def draw_least_evidence(state: RMED1.State, lane: int, impression: Impression, rng: Generator) -> int:
    """Return the arm on offer with the least evidence against being best; ties are broken at random."""
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
def draw_opponent(
    state: RMED1.State, lane: int, impression: Impression, left_arm: int, best: int, rng: Generator
) -> int:
    """Return the arm that the left arm duels (algorithm 2); ties are broken at random.

    It is ``best``, the arm of least evidence, if the left arm does not beat it or no arm beats the left arm;
    else the arm that beats the left arm most.
    """
    wins = state.wins[lane]
    if best != left_arm and wins[left_arm, best] <= wins[best, left_arm]:
        return best
    least, right_arm, ties = 0.5, best, 0.0
    for arm in impression.arms:
        won, lost = wins[left_arm, arm], wins[arm, left_arm]
        if arm != left_arm and won <= lost:
            # All arms on offer have met: pairs that have not duel first.
            share = won / (won + lost)
            if share < least or ties == 0.0:
                least, right_arm, ties = share, arm, 1.0
            elif share == least:
                ties += 1.0
                if rng.random() * ties < 1.0:
                    right_arm = arm
    return right_arm


@kernel
def opponent_chance(
    state: RMED1.State, lane: int, impression: Impression, left_arm: int, best: int, right_arm: int
) -> float:
    """Return the probability that :func:`draw_opponent` returns ``right_arm``."""
    wins = state.wins[lane]
    if best != left_arm and wins[left_arm, best] <= wins[best, left_arm]:
        return 1.0 if right_arm == best else 0.0
    least, ties, tied = 0.5, 0.0, right_arm == best
    for arm in impression.arms:
        won, lost = wins[left_arm, arm], wins[arm, left_arm]
        if arm != left_arm and won <= lost:
            share = won / (won + lost)
            if share < least or ties == 0.0:
                least, ties, tied = share, 1.0, arm == right_arm
            elif share == least:
                ties, tied = ties + 1.0, tied or arm == right_arm
    return 1.0 / max(ties, 1.0) if tied else 0.0


@kernel
def update_evidence(state: RMED1.State, lane: int, left_arm: int, right_arm: int) -> None:
    """Recompute a pair's terms n·kl(μ, ½) of the evidence from its wins, and the evidence against its two
    arms.
    """
    won, lost = state.wins[lane, left_arm, right_arm], state.wins[lane, right_arm, left_arm]
    # The evidence I against an arm is the sum of these terms.
    term = (won + lost) * bernoulli_kl(won / (won + lost), 0.5)
    against_left = term if won <= lost else 0.0
    against_right = term if lost <= won else 0.0
    # Recompute the sum: corrections by the difference would accumulate rounding errors.
    if state.terms[lane, left_arm, right_arm] != against_left:
        state.terms[lane, left_arm, right_arm] = against_left
        state.evidence[lane, left_arm] = state.terms[lane, left_arm].sum()
    if state.terms[lane, right_arm, left_arm] != against_right:
        state.terms[lane, right_arm, left_arm] = against_right
        state.evidence[lane, right_arm] = state.terms[lane, right_arm].sum()


@kernel
def finish_turn(state: RMED1.State, lane: int, impression: Impression, left_arm: int, slack: float) -> None:
    """End the left arm's turn, select arms for the next pass, and start that pass if this one is over.

    An arm is selected if its evidence is within ln t + ``slack`` of the least. When a pass starts, ``alone``
    is recomputed.
    """
    state.waiting[lane, left_arm] = 0.0
    least = math.inf
    for arm in impression.arms:
        least = min(least, state.evidence[lane, arm])
    # Algorithm 1: an arm whose evidence is within ln t + f(K) of the least may still be the best.
    limit = least + np.log(state.rounds[lane]) + slack
    # The pass is over if no arm on offer still waits for its turn.
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
            foresee_solo_pass(state, lane, slack)


@kernel
def foresee_solo_pass(state: RMED1.State, lane: int, slack: float) -> None:
    """If one arm is alone in the pass and beats all others, store until which round (``alone``) this will be
    so.

    Stores the arm (``best``) and the number of arms (``among``), too. Otherwise nothing changes.
    """
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
        # Until then no other arm is within ln t + ``slack``.
        state.alone[lane] = np.exp(second - slack)
