"""Interleaved Filter: a candidate duels all other arms until one of them surely beats it."""

# 1. ``State``; ``compare_arm``: whether the candidate surely beats an arm, or loses.
# 2. ``finish_sweep``: after a sweep, eliminate the arms that lost; ``replace_candidate``: the arm that beat
#    the candidate takes its place.
# 3. ``InterleavedFilter``: the policy; the two versions differ in the arms eliminated with a candidate.

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import kernel
from tacit.core.part import Positive, int_range, param
from tacit.core.state_ranges import ArmIndexOrNone, IntCount
from tacit.policies.base import About, Impression, Outcome
from tacit.policies.duels import working_set


class State(NamedTuple):
    """State of Interleaved Filter.

    Attributes
    ----------
    working : WorkingSet
        The arms that the candidate duels.
    candidate : array of int64, shape (lanes,)
        The candidate for the best arm; −1 before the first comparison.
    wins : array of float64, shape (lanes, arms)
        The candidate's wins against an arm.
    plays : array of int64, shape (lanes, arms)
        The candidate's comparisons with an arm.
    spent : array of int64, shape (lanes,)
        Number of comparisons learned from.
    winner : array of int64, shape (lanes,)
        The best arm; −1 while exploring.
    """

    working: working_set.WorkingSet
    candidate: ArmIndexOrNone
    wins: Floats
    plays: IntCount
    spent: IntCount
    winner: ArmIndexOrNone


@kernel
def compare_arm(state: State, lane: int, arm: int, kappa: float) -> int:
    """Return 1 if the candidate surely beats the arm, −1 if it surely loses to it, else 0.

    Sure means that the candidate's share of wins differs from ½ by at least kappa/√n after n comparisons.
    """
    n = state.plays[lane, arm]
    lead = state.wins[lane, arm] / n - 0.5
    if abs(lead) < kappa / np.sqrt(n):
        return 0
    return 1 if lead > 0.0 else -1


@kernel
def replace_candidate(state: State, lane: int, challenger: int, prunes: bool) -> None:
    """Make ``challenger`` the candidate, eliminate the former candidate, and reset the comparisons of all
    arms.

    With ``prunes``, the arms that the former candidate led are eliminated, too.
    """
    working, spent = state.working, state.spent[lane]
    # It leaves the working set to become the candidate, not because it lost.
    working_set.remove_arm(working, lane, challenger, -1)
    for i in range(working.size[lane] - 1, -1, -1):
        arm = working.members[lane, i]
        if prunes and state.wins[lane, arm] > 0.5 * state.plays[lane, arm]:
            working_set.remove_arm(working, lane, arm, spent)
        state.wins[lane, arm] = 0.0
        state.plays[lane, arm] = 0
    working.left[lane, state.candidate[lane]] = spent
    state.candidate[lane] = challenger


@kernel
def finish_sweep(state: State, lane: int, kappa: float, prunes: bool) -> None:
    """End a sweep: eliminate the arms that surely lost; the arm that most clearly beat the candidate replaces
    it.

    If no arm remains, the candidate becomes the winner.
    """
    working = state.working
    challenger, lowest = -1, math.inf
    for i in range(working.size[lane] - 1, -1, -1):
        arm = working.members[lane, i]
        comparison = compare_arm(state, lane, arm, kappa)
        if comparison > 0:
            working_set.remove_arm(working, lane, arm, state.spent[lane])
        elif comparison < 0:
            mean = state.wins[lane, arm] / state.plays[lane, arm]
            if mean < lowest or (mean == lowest and arm < challenger):
                challenger, lowest = arm, mean
    if challenger >= 0:
        replace_candidate(state, lane, challenger, prunes)
    if working.size[lane] == 0:
        state.winner[lane] = state.candidate[lane]
    else:
        working_set.regroup(working, lane, state.plays)


@dataclass(frozen=True)
class InterleavedFilter(working_set.EliminationPolicy, abstract=True):
    """Base of both versions of Interleaved Filter."""

    horizon: Annotated[int, int_range(1, 2**53)]
    scale: Positive = 2.0

    about: ClassVar[About] = About(
        source="Yue, Broder, Kleinberg, Joachims (2009)",
        regret="O(K/ε(1, 2)·ln T) expected (Interleaved Filter 2); an additional factor ln K "
        "(Interleaved Filter 1)",
        assumes="strong stochastic transitivity, the stochastic triangle inequality, and a known "
        "horizon; regret can grow with K² where transitivity is relaxed",
        fails="regret grows steeply with γ, and differs between runs by far",
        otherwise="BeatTheMean where transitivity is relaxed; RMED1 for less regret",
    )

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance with a horizon of 10,000 comparisons; ``dim`` is ignored."""
        return cls(arms, horizon=10_000)

    @param
    def kappa(self) -> float:
        """Factor of the confidence radius: after n comparisons it is kappa/√n."""
        return self.scale * math.sqrt(math.log(self.horizon * self.arm_count**2))

    @param
    def budget(self) -> int:
        """Total number of comparisons after which exploration ends and the candidate wins."""
        return self.horizon

    @param
    def prunes(self) -> bool:
        """True if a new candidate also eliminates the arms that its predecessor leads."""
        return False

    def init(self, lanes: int) -> State:
        """Return the state of ``lanes`` keys before the first comparison, without candidates."""
        arms = self.arm_count
        return State(
            working=working_set.WorkingSet.full(lanes, arms),
            candidate=np.full(lanes, -1),
            wins=np.zeros((lanes, arms)),
            plays=np.zeros((lanes, arms), np.int64),
            spent=np.zeros(lanes, np.int64),
            winner=np.full(lanes, 0 if arms == 1 else -1),
        )

    @property
    def guarantee(self) -> str:
        """The guarantee for the winner as text, with its probability and assumptions."""
        return (
            f"the best arm, with probability at least 1 − 1/{self.horizon:,}, under strong "
            "stochastic transitivity and the triangle inequality, unless the horizon came first"
        )

    @staticmethod
    def choose(params: Any, state: State, lane: int, impression: Impression, rng: Generator) -> Any:
        """Return the candidate and an arm that it was compared with least often; or the winner twice.

        Before the first comparison, or if the needed arms are not on offer, two arms on offer are drawn at
        random.
        """
        winner, candidate = state.winner[lane], state.candidate[lane]
        if winner >= 0:
            if working_set.is_on_offer(impression, winner):
                return winner, winner
        elif candidate < 0:
            count = len(impression.arms)
            first = int(rng.random() * count)
            second = int(rng.random() * (count - 1))
            if count > 1:
                return impression.arms[first], impression.arms[second + (second >= first)]
        elif working_set.is_on_offer(impression, candidate):
            rival = working_set.draw_arm(state.working, lane, state.plays, impression, True, rng)
            if rival >= 0:
                return candidate, rival
        return working_set.draw_any_pair(impression, rng)

    @staticmethod
    def propensity(params: Any, state: State, lane: int, impression: Impression, pair: Any) -> float:
        """Return the probability that ``choose`` returns this ordered pair."""
        winner, candidate, count = state.winner[lane], state.candidate[lane], len(impression.arms)
        if winner >= 0:
            if working_set.is_on_offer(impression, winner):
                return 1.0 if pair[0] == winner and pair[1] == winner else 0.0
        elif candidate < 0:
            if count > 1:
                return 1.0 / (count * (count - 1)) if pair[0] != pair[1] else 0.0
        elif working_set.is_on_offer(impression, candidate):
            none_chance = working_set.draw_chance(state.working, lane, state.plays, impression, True, -1)
            rival_chance = working_set.draw_chance(
                state.working, lane, state.plays, impression, True, pair[1]
            )
            if none_chance < 1.0:
                return rival_chance if pair[0] == candidate else 0.0
        return 1.0 / count**2

    @staticmethod
    def learn(params: Any, state: State, lane: int, outcome: Outcome) -> None:
        """Count a comparison of the candidate with an arm, and end the sweep if each arm was compared once.

        The left arm of the first comparison becomes the candidate. When the budget is spent, the candidate
        wins. Ignores comparisons with former candidates or eliminated arms, and all comparisons after the
        winner is set.
        """
        left_arm, arm = outcome.shown
        if state.winner[lane] >= 0:
            return
        if state.candidate[lane] < 0 and left_arm != arm:
            state.candidate[lane] = left_arm
            working_set.remove_arm(state.working, lane, left_arm, -1)
            working_set.regroup(state.working, lane, state.plays)
        # A late result of another candidate or an eliminated arm is ignored.
        if left_arm != state.candidate[lane] or not working_set.is_member(state.working, lane, arm):
            return
        state.wins[lane, arm] += outcome.reward
        state.plays[lane, arm] += 1
        state.spent[lane] += 1
        if working_set.mark_compared(state.working, lane, arm):
            finish_sweep(state, lane, params.kappa, params.prunes)
        if state.spent[lane] >= params.budget:
            state.winner[lane] = state.candidate[lane]


@dataclass(frozen=True)
class InterleavedFilter1(InterleavedFilter):
    """Let a candidate duel every arm of the working set once a sweep, until one surely beats it.

    Arms that the candidate surely beats are eliminated. The arm that surely beats the candidate takes its
    place (of several, the one that does so most clearly, then of lowest index), and the comparisons start
    again with the remaining arms. The last candidate is then played against itself. The confidence
    radius after n comparisons is scale·sqrt(ln(1/δ)/n) with δ = 1/(T·K²).

    A comparison costs O(1), amortised; a lane takes some 40·arms bytes. A tie counts half a win.
    Arms that are added later are never compared.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    horizon : int
        Comparisons of a key, T; at least 1.
    scale : float, default 2
        Scale of the radius, above 0. 2 is sqrt(4·ln(1/δ)/n), which implementations use; 1 is
        what Yue and Joachims (2011) call equivalent (their equation 9).

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Yue, Broder, Kleinberg, Joachims (2009), "The K-armed dueling bandits problem", Interleaved
    Filter 1.

    Examples
    --------
    >>> import tacit
    >>> policy = tacit.policies.InterleavedFilter1(arms=["old", "new"], horizon=10_000)
    >>> learner = tacit.Learner(policy, seed=1)
    >>> for _ in range(500):
    ...     decision = learner.choose("ranking")
    ...     left, right = decision.pair
    ...     _ = learner.learn(decision, 0.5 if left == right else float(left == "new"))
    >>> policy.result(learner.state, learner.lane("ranking")).winner
    1
    """


@dataclass(frozen=True)
class InterleavedFilter2(InterleavedFilter):
    """As :class:`InterleavedFilter1`; a new candidate also eliminates the arms that the old one led.

    All arms against which the former candidate won most comparisons are eliminated with it:
    the new candidate, which surely beats it, is assumed to beat them too. That saves the factor
    ln K in the regret, and is wrong if preferences are not transitive.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    horizon : int
        Comparisons of a key, T; at least 1.
    scale : float, default 2
        Scale of the radius, above 0, as in :class:`InterleavedFilter1`.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Yue, Broder, Kleinberg, Joachims (2009), "The K-armed dueling bandits problem", Interleaved
    Filter 2.

    Examples
    --------
    >>> import tacit
    >>> tacit.policies.InterleavedFilter2(arms=3, horizon=1000).label
    'InterleavedFilter2(horizon=1000)'
    """

    @param
    def prunes(self) -> bool:
        """True: a new candidate also eliminates the arms that its predecessor leads."""
        return True
