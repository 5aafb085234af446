"""Duels against a drawn horizon: a rival is met while what may be gained until then is worth its duels."""

# A leader that beats all others meets a rival as long as the gain until a drawn horizon is worth the duels;
# where no arm beats all others, those that may lead meet those that contest it. ``meeting_of`` tells the two
# apart, ``drawn_duel`` draws, ``chance_of_duel`` is the probability of the same draw, and the policy comes
# last.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from tacit.core.arrays import Generator, Ints
from tacit.core.dispatch import OPEN_UNIT, kernel
from tacit.core.part import within
from tacit.policies.actions import Duel, DuelPolicy
from tacit.policies.base import About, Impression, Outcome
from tacit.policies.duels import standings
from tacit.policies.duels.standings import Ladder

# Of the rivals that may be met: how often any of them is, rather than the one of which most is expected.
ANY = 0.2
# How often any two arms meet, whatever is known, times the root of the round.
ANY_PAIR = 0.1


# ---- Whom a leader meets that beats all others


@kernel
def opening(state: Ladder, lane: int, arm: int, log_round: float, tail: float) -> float:
    """Return by how much the logarithm of the horizon must exceed the round's, for a rival to be met.

    While a walk is under way it is met at once; but the more seldom, the more duels wait to be learned: else
    all that are decided until one is learned would be against it.
    """
    gap, walk = max(state.gates[lane, state.leader[lane], arm] - log_round, 0.0), state.walk[lane, arm]
    if walk > 0.0:
        waiting = max(state.open[lane], 0) / OPEN_UNIT
        gap = min(gap, np.log1p(waiting / (1.0 + walk) ** 2) / tail)
    return float(gap)


@kernel
def expected_gain(state: Ladder, lane: int, arm: int) -> float:
    """Return what is expected of a rival."""
    if state.beaten[lane] < state.walk.shape[1] - 1:
        return standings.gain_of(state.margins, lane, state.leader[lane], arm)
    return float(state.gains[lane, arm])


@kernel
def open_rivals(
    state: Ladder, lane: int, arms: Ints, log_round: float, tail: float, reach: float
) -> tuple[int, int, float]:
    """Return how many rivals open within ``reach``, the best of them, and the next opening beyond it."""
    count, best, most, beyond = 0, -1, -1.0, np.inf
    for arm in arms:
        if arm != state.leader[lane]:
            gap = opening(state, lane, arm, log_round, tail)
            if gap <= reach:
                count += 1
                gain = expected_gain(state, lane, arm)
                if gain > most:
                    best, most = arm, gain
            else:
                beyond = min(beyond, gap)
    return count, best, beyond


@kernel
def nth_rival(
    state: Ladder, lane: int, arms: Ints, log_round: float, tail: float, reach: float, n: int
) -> int:
    """Return the n-th rival that opens within ``reach``."""
    for arm in arms:
        if arm != state.leader[lane] and opening(state, lane, arm, log_round, tail) <= reach:
            if n == 0:
                return int(arm)
            n -= 1
    return int(state.leader[lane])


@kernel
def probe_chance(state: Ladder, lane: int, arms: Ints, arm: int) -> float:
    """Return how likely a rival is met all the same, in a round in which none would be."""
    now = state.rounds[lane] + 1.0
    mean, _ = standings.margin_of(state.margins, lane, state.leader[lane], arm)
    wait = 30.0 * np.sqrt(now * abs(mean) * (len(arms) - 1))
    return float(1.0 / max(wait, 0.1 * now, 1.0))


@kernel
def rival(state: Ladder, lane: int, arms: Ints, log_round: float, tail: float, rng: Generator) -> int:
    """Return whom a leader meets that beats all others: itself, if no rival is worth it."""
    leader = state.leader[lane]
    reach = -np.log(1.0 - rng.random()) / tail
    if state.soonest[lane] - log_round <= reach:
        count, best, _ = open_rivals(state, lane, arms, log_round, tail, reach)
        if count > 0:
            if count == 1 or rng.random() >= ANY:
                return best
            return nth_rival(state, lane, arms, log_round, tail, reach, int(rng.random() * count))
    left = rng.random()
    if left * 0.1 * (state.rounds[lane] + 1.0) < len(arms) - 1.0:
        for arm in arms:
            if arm != leader:
                left -= probe_chance(state, lane, arms, arm)
                if left < 0.0:
                    return int(arm)
    return int(leader)


@kernel
def rival_chance(state: Ladder, lane: int, arms: Ints, log_round: float, tail: float, arm: int) -> float:
    """Return how likely :func:`rival` returns ``arm``.

    The reach r is drawn with P(r > x) = exp(−tail·x). From one opening to the next, the same rivals open.
    """
    leader, found, left = state.leader[lane], 0.0, 1.0
    if arm != leader:
        low = opening(state, lane, arm, log_round, tail)
        above = np.exp(-tail * low)
        while above > 0.0:
            count, best, low = open_rivals(state, lane, arms, log_round, tail, low)
            beyond = np.exp(-tail * low)
            found += (above - beyond) * (ANY / count + (1.0 - ANY) * (best == arm))
            above = beyond
    _, _, soonest = open_rivals(state, lane, arms, log_round, tail, -1.0)
    none = 1.0 - np.exp(-tail * soonest)
    for other in arms:
        if other != leader:
            chance = min(probe_chance(state, lane, arms, other), left)
            left -= chance
            if other == arm:
                return float(found + none * chance)
    return float(none * left)


# ---- Who meets whom where no arm beats all others


@kernel
def gate(state: Ladder, lane: int, arm: int, other: int) -> float:
    """Return the gate of two arms, as far as possible from what is kept."""
    if state.beaten[lane] < state.walk.shape[1] - 1:
        return float(state.gates[lane, arm, other])
    return standings.gate_of(state.margins, lane, arm, other)


@kernel
def opponents(state: Ladder, lane: int, arms: Ints, left: int, log_round: float) -> Duel:
    """Return how many others an arm may meet, and which of them has most wins in the room."""
    wins, count, best, least = state.room[0, 0], 0, left, np.inf
    for arm in arms:
        if arm != left:
            own = gate(state, lane, left, arm)
            if own <= log_round:
                count += 1
                more = best == left or wins[arm] > wins[best]
                if more or (wins[arm] == wins[best] and own < least):
                    best, least = arm, own
    return count, int(best)


@kernel
def contest(state: Ladder, lane: int, arms: Ints, log_round: float) -> tuple[int, int, int]:
    """Return who meets others where no arm beats all, how many it may meet, and the first of them.

    It is who has most wins, unless another one may beat more arms than it; and none is met once no other
    may beat more than it surely does.
    """
    margins, wins, may = state.margins, state.room[0, 0], state.room[0, 1]
    standings.count_wins(state, lane, arms)
    for i in range(len(arms)):
        may[arms[i]] += wins[arms[i]]
        for j in range(i):
            margin = standings.ahead(margins, lane, arms[i], arms[j])
            if gate(state, lane, arms[i], arms[j]) <= log_round:
                may[arms[i]] += 1.0 if margin <= 0.0 else 0.0
                may[arms[j]] += 1.0 if margin >= 0.0 else 0.0
    leader, surely, rest = standings.most_winning(state, lane, arms), 0, -1.0
    first = leader
    for arm in arms:
        if arm != leader:
            if (
                standings.ahead(margins, lane, leader, arm) > 0.0
                and gate(state, lane, leader, arm) > log_round
            ):
                surely += 1
            rest = max(rest, may[arm])
        if may[arm] > may[first]:
            first = arm
    left, count, best = leader, 0, leader
    if rest > surely:
        left = first
        count, best = opponents(state, lane, arms, left, log_round)
        if count == 0:
            left = leader
            count, best = opponents(state, lane, arms, left, log_round)
    state.room[0] = 0.0
    return int(left), count, best


@kernel
def nth_opponent(state: Ladder, lane: int, arms: Ints, left: int, log_round: float, n: int) -> int:
    """Return the n-th other arm that an arm may meet."""
    for arm in arms:
        if arm != left and gate(state, lane, left, arm) <= log_round:
            if n == 0:
                return int(arm)
            n -= 1
    return left


# ---- A duel


class Meeting(NamedTuple):
    """Who meets whom, as far as it is not drawn.

    Attributes
    ----------
    log_round : float
    tail : float
        As the policy has it.
    share : float
        How likely any two arms meet.
    left : int
        Who meets another one otherwise.
    others : int
        How many it may meet; −1 if it beats all others.
    best : int
        Of these, the first.
    """

    log_round: float
    tail: float
    share: float
    left: int
    others: int
    best: int


@kernel
def meeting_of(state: Ladder, lane: int, arms: Ints, tail: float) -> Meeting:
    """Return who meets whom."""
    now = state.rounds[lane] + 1.0
    if len(arms) == 1:
        return Meeting(0.0, tail, 0.0, arms[0], 0, arms[0])
    if state.leader[lane] < 0:
        return Meeting(0.0, tail, 1.0, arms[0], 0, arms[0])
    log_round, share = np.log(now), ANY_PAIR / np.sqrt(now)
    if standings.beats_all(state, lane, arms):
        return Meeting(log_round, tail, share, state.leader[lane], -1, state.leader[lane])
    left, count, best = contest(state, lane, arms, log_round)
    return Meeting(log_round, tail, share, left, count, best)


@kernel
def drawn_duel(state: Ladder, lane: int, arms: Ints, meeting: Meeting, rng: Generator) -> Duel:
    """Draw a duel; which of the two is left is a coin's."""
    if meeting.share > 0.0 and rng.random() < meeting.share:
        first, second = int(rng.random() * len(arms)), int(rng.random() * (len(arms) - 1))
        return arms[first], arms[second + (1 if second >= first else 0)]
    left, right, count = meeting.left, meeting.best, meeting.others
    if count < 0:
        right = rival(state, lane, arms, meeting.log_round, meeting.tail, rng)
    elif count > 1 and rng.random() < ANY:
        right = nth_opponent(state, lane, arms, left, meeting.log_round, int(rng.random() * count))
    if left != right and rng.random() < 0.5:
        return right, left
    return left, right


@kernel
def chance_of_duel(state: Ladder, lane: int, arms: Ints, meeting: Meeting, first: int, second: int) -> float:
    """Return how likely :func:`drawn_duel` draws these two."""
    found, left, count = 0.0, meeting.left, meeting.others
    if first == left or second == left:
        other = second if first == left else first
        if count < 0:
            found = rival_chance(state, lane, arms, meeting.log_round, meeting.tail, other)
        elif other == left:
            found = 1.0 if count == 0 else 0.0
        elif count > 0 and gate(state, lane, left, other) <= meeting.log_round:
            found = ANY / count + (1.0 - ANY) * (other == meeting.best)
    found *= 1.0 - meeting.share
    if first == second:
        return found
    return 0.5 * found + meeting.share / (len(arms) * (len(arms) - 1.0))


@dataclass(frozen=True)
class HorizonDraw(DuelPolicy):
    """Let the leader duel who may gain more than its duels cost, until a horizon that is drawn: the default.

    All duels teach a utility of each arm, and each pair has a margin of its own beside. In round t a
    horizon is drawn, beyond x·t with probability x^−tail. Of the rivals whose further duels are worth what
    may be gained until then, the leader meets that of which most is expected, or, in a fifth of the rounds,
    any; if there is none, it mostly meets itself. Where no arm beats all others, those meet that may beat
    most. Rivals are probed ever more seldom, and what is known fades where they win more than they should.
    In a share of 0.1/√t of the rounds the two are drawn from all arms: a live log can be weighed, and says
    less and less of pairs that are settled. A tie counts for nothing; which of two is left is a coin's.

    Over 62 settings (``benchmarks/duel_defaults.py``) it has a third of the regret of :class:`RMED1`, and
    at most 0.98 times in any. Each key learns for itself.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    tail : float, default 4
        How seldom a far horizon is drawn, from 1 to 100. With more there is less regret where all stays as it
        is, and a log says less of rivals that are settled; what began when it was 2 goes on with that.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    See Also
    --------
    RMED1 : where the best arm beats all others by a hair, and those are far apart.
    WinnerStays : down to half the regret with a tuned ``beta``, where gaps are clear and their size is known.

    References
    ----------
    Lai (1988), "Nearly optimal sequential tests of composite hypotheses", and Anscombe (1963), "Sequential
    medical trials": duels that are worth the gain until a horizon. Wu, Liu (2016), "Double Thompson sampling
    for dueling bandits": Copeland winners.

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.HorizonDraw(arms=["left", "right"]), seed=1)
    >>> for _ in range(200):
    ...     decision = learner.choose("query")
    ...     first, second = decision.pair
    ...     _ = learner.learn(decision, float(first == "left") if first != second else 0.5)
    >>> learner.choose("query").pair
    ('left', 'left')
    """

    about: ClassVar[About] = About(
        source="tacit's own: a Gaussian model of margins, tested as Lai (1988) would until a drawn horizon",
        regret="none proved; in simulations it grows like ln T",
        assumes="margins of some hundredths to tenths, mostly in one order; shifts that show in duels "
        "with the leader",
        fails="an arm that beats all others by one or two hundredths only, where these are a tenth apart, "
        "is found late: 1.7 times the regret of RMED1",
        otherwise="RMED1 there; WinnerStays with a tuned beta where all gaps are clear; FeelGoodThompson "
        "where contexts say which arm is best",
        suits="duels of rankers: no knobs, little regret, exact propensities",
        weak="two rankers 0.02 apart, 1.5 ± 0.2 times the regret of WinnerStays after 100,000 duels; six "
        "that differ clearly, 1.3 times that of WinnerStays with its beta tuned",
    )

    earlier: ClassVar[Mapping[str, Any]] = MappingProxyType({"tail": 2.0})

    tail: Annotated[float, within(1.0, 100.0)] = 4.0

    def init(self, lanes: int) -> Ladder:
        return Ladder.blank(lanes, self.arm_count)

    def enrol(self, state: Ladder, lanes: int, known: int) -> None:
        for lane in range(lanes):
            if state.leader[lane] >= 0:
                standings.renew(state, lane, np.arange(self.arm_count))

    @staticmethod
    def choose(params: HorizonDraw, state: Ladder, lane: int, impression: Impression, rng: Generator) -> Duel:
        return drawn_duel(
            state, lane, impression.arms, meeting_of(state, lane, impression.arms, params.tail), rng
        )

    @staticmethod
    def propensity(
        params: HorizonDraw, state: Ladder, lane: int, impression: Impression, pair: Duel
    ) -> float:
        meeting = meeting_of(state, lane, impression.arms, params.tail)
        return chance_of_duel(state, lane, impression.arms, meeting, pair[0], pair[1])

    @staticmethod
    def decide_and_weigh(
        params: HorizonDraw, state: Ladder, lane: int, impression: Impression, rng: Generator, action: Ints
    ) -> float:
        arms = impression.arms
        meeting = meeting_of(state, lane, arms, params.tail)
        action[0], action[1] = drawn_duel(state, lane, arms, meeting, rng)
        return chance_of_duel(state, lane, arms, meeting, action[0], action[1])

    @staticmethod
    def count_open(params: HorizonDraw, state: Ladder, lane: int, arm: int, hits: int, plays: int) -> None:
        state.open[lane] += plays

    @staticmethod
    def learn(params: HorizonDraw, state: Ladder, lane: int, outcome: Outcome) -> None:
        left, right = outcome.shown
        state.rounds[lane] += 1.0
        if left == right or outcome.reward == 0.5:
            return
        if left == state.leader[lane]:
            standings.watch(state, lane, right, outcome.reward)
        elif right == state.leader[lane]:
            standings.watch(state, lane, left, 1.0 - outcome.reward)
        standings.count_duel(state.margins, lane, left, right, outcome.reward)
        standings.renew(state, lane, outcome.impression.arms)
