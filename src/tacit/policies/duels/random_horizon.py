"""HorizonDraw: duels against a random horizon, as long as the gain until then may exceed their cost."""

# A leader that beats all others duels a rival as long as the gain until a random horizon is worth the duels.
# If no arm beats all others, the arms that may beat most duel their contestants. ``plan_duel`` picks one of
# these two cases, ``draw_duel`` draws, ``duel_chance`` is the probability of that draw, and the policy comes
# last.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from tacit.core.arrays import Generator, Ints
from tacit.core.dispatch import OPEN_UNIT, kernel
from tacit.core.part import float_range
from tacit.policies.actions import Duel, DuelPolicy
from tacit.policies.base import About, Impression, Outcome
from tacit.policies.duels import standings
from tacit.policies.duels.standings import DuelStandings

# Probability that the rival is drawn from all eligible ones, instead of the one of the largest expected gain.
ANY_RIVAL = 0.2
# Probability that the pair is drawn from all arms, times the square root of the round.
ANY_PAIR = 0.1


# ---- The rival of a leader that beats all others


@kernel
def opening(state: DuelStandings, lane: int, arm: int, log_round: float, tail: float) -> float:
    """Return the least reach that makes a rival eligible: log of the horizon over the round from which duels
    pay off.

    While the change test has evidence against the leader (a walk above 0), the rival is eligible at once,
    except for a delay that grows with the duels not yet learned: otherwise all duels decided until one is
    learned would be against it.
    """
    gap, walk = max(state.gates[lane, state.leader[lane], arm] - log_round, 0.0), state.walk[lane, arm]
    if walk > 0.0:
        waiting = max(state.open[lane], 0) / OPEN_UNIT
        gap = min(gap, np.log1p(waiting / (1.0 + walk) ** 2) / tail)
    return float(gap)


@kernel
def rival_gain(state: DuelStandings, lane: int, arm: int) -> float:
    """Return the expected gain of a rival over the leader: the mean of max(0, its margin over the leader).

    While the leader beats all others, it is stored and need not be computed.
    """
    if state.beaten[lane] < state.walk.shape[1] - 1:
        return standings.possible_gain(state.margins, lane, state.leader[lane], arm)
    return float(state.gains[lane, arm])


@kernel
def find_open_rivals(
    state: DuelStandings, lane: int, arms: Ints, log_round: float, tail: float, reach: float
) -> tuple[int, int, float]:
    """Return the number of rivals that are eligible within ``reach``, the best of them, and the next opening.

    The best one has the largest expected gain; it is −1 if none is eligible. The next opening is the least
    reach that makes a further rival eligible; infinity if all are.
    """
    count, best, most, beyond = 0, -1, -1.0, np.inf
    for arm in arms:
        if arm != state.leader[lane]:
            gap = opening(state, lane, arm, log_round, tail)
            if gap <= reach:
                count += 1
                gain = rival_gain(state, lane, arm)
                if gain > most:
                    best, most = arm, gain
            else:
                beyond = min(beyond, gap)
    return count, best, beyond


@kernel
def nth_rival(
    state: DuelStandings, lane: int, arms: Ints, log_round: float, tail: float, reach: float, n: int
) -> int:
    """Return rival number ``n``, from 0, of those eligible within ``reach``; the leader if there are
    fewer.
    """
    for arm in arms:
        if arm != state.leader[lane] and opening(state, lane, arm, log_round, tail) <= reach:
            if n == 0:
                return int(arm)
            n -= 1
    return int(state.leader[lane])


@kernel
def probe_chance(state: DuelStandings, lane: int, arms: Ints, arm: int) -> float:
    """Return the probability that the leader duels ``arm`` in a round without eligible rivals, to notice
    changes.

    It falls with the number of rounds and with the distance of the two arms.
    """
    now = state.rounds[lane] + 1.0
    mean, _ = standings.pair_margin(state.margins, lane, state.leader[lane], arm)
    # Mean number of rounds between two such duels.
    wait = 30.0 * np.sqrt(now * abs(mean) * (len(arms) - 1))
    return float(1.0 / max(wait, 0.1 * now, 1.0))


@kernel
def draw_rival(
    state: DuelStandings, lane: int, arms: Ints, log_round: float, tail: float, rng: Generator
) -> int:
    """Return a rival for a leader that beats all others; the leader itself if there is to be no duel.

    A random reach decides which rivals are eligible. Of these, the one of the largest expected gain is
    returned or, with probability ``ANY_RIVAL``, any of them. If none is eligible, each other arm is returned
    with its small :func:`probe_chance`.
    """
    leader = state.leader[lane]
    reach = -np.log(1.0 - rng.random()) / tail
    if state.soonest[lane] - log_round <= reach:
        count, best, _ = find_open_rivals(state, lane, arms, log_round, tail, reach)
        if count > 0:
            if count == 1 or rng.random() >= ANY_RIVAL:
                return best
            return nth_rival(state, lane, arms, log_round, tail, reach, int(rng.random() * count))
    remaining = rng.random()
    if remaining * 0.1 * (state.rounds[lane] + 1.0) < len(arms) - 1.0:
        for arm in arms:
            if arm != leader:
                remaining -= probe_chance(state, lane, arms, arm)
                if remaining < 0.0:
                    return int(arm)
    return int(leader)


@kernel
def rival_chance(
    state: DuelStandings, lane: int, arms: Ints, log_round: float, tail: float, arm: int
) -> float:
    """Return the exact probability that :func:`draw_rival` returns ``arm``.

    The reach r is drawn with P(r > x) = exp(−tail·x); between two successive openings, the eligible rivals
    are the same.
    """
    leader, total, remaining = state.leader[lane], 0.0, 1.0
    if arm != leader:
        low = opening(state, lane, arm, log_round, tail)
        above = np.exp(-tail * low)
        # From opening to opening, ``above`` is the probability that the reach is at least ``low``.
        while above > 0.0:
            count, best, low = find_open_rivals(state, lane, arms, log_round, tail, low)
            beyond = np.exp(-tail * low)
            total += (above - beyond) * (ANY_RIVAL / count + (1.0 - ANY_RIVAL) * (best == arm))
            above = beyond
    _, _, soonest = find_open_rivals(state, lane, arms, log_round, tail, -1.0)
    # The probability that no rival is eligible.
    probe_share = 1.0 - np.exp(-tail * soonest)
    for candidate in arms:
        if candidate != leader:
            chance = min(probe_chance(state, lane, arms, candidate), remaining)
            remaining -= chance
            if candidate == arm:
                return float(total + probe_share * chance)
    return float(probe_share * remaining)


# ---- The two arms of a duel if no arm beats all others


@kernel
def pair_gate(state: DuelStandings, lane: int, arm: int, rival: int) -> float:
    """Return the logarithm of the horizon from which duels of two arms pay off; stored while some arm is not
    beaten.
    """
    if state.beaten[lane] < state.walk.shape[1] - 1:
        return float(state.gates[lane, arm, rival])
    return standings.duel_gate(state.margins, lane, arm, rival)


@kernel
def count_opponents(state: DuelStandings, lane: int, arms: Ints, left_arm: int, log_round: float) -> Duel:
    """Return the number of arms worth a duel with ``left_arm``, and the one that beats most arms.

    They are the arms whose gate is at most ``log_round``. The workspace must hold the number of arms that
    each arm beats. Of equal ones, the arm of the lowest gate is returned; ``left_arm`` itself if there are
    none.
    """
    wins, count, best, least = state.room[0, 0], 0, left_arm, np.inf
    for arm in arms:
        if arm != left_arm:
            arm_gate = pair_gate(state, lane, left_arm, arm)
            if arm_gate <= log_round:
                count += 1
                more = best == left_arm or wins[arm] > wins[best]
                if more or (wins[arm] == wins[best] and arm_gate < least):
                    best, least = arm, arm_gate
    return count, int(best)


@kernel
def find_contest(state: DuelStandings, lane: int, arms: Ints, log_round: float) -> tuple[int, int, int]:
    """Return the first arm of a duel if no arm beats all others, the number of its opponents, and the best of
    them.

    The first arm is the leader, unless another arm may beat more arms than it. There are no opponents once no
    arm may beat more arms than the leader surely does. The workspace must be clear before, and is cleared
    afterwards.
    """
    margins, wins, possible_wins = state.margins, state.room[0, 0], state.room[0, 1]
    standings.count_wins(state, lane, arms)
    # An arm may beat another if it seems better, or if the pair is still worth a duel.
    for i in range(len(arms)):
        possible_wins[arms[i]] += wins[arms[i]]
        for j in range(i):
            margin = standings.signed_margin(margins, lane, arms[i], arms[j])
            if pair_gate(state, lane, arms[i], arms[j]) <= log_round:
                possible_wins[arms[i]] += 1.0 if margin <= 0.0 else 0.0
                possible_wins[arms[j]] += 1.0 if margin >= 0.0 else 0.0
    # How many arms the leader surely beats, and the most that another arm may beat.
    leader, sure_wins, most_possible = standings.find_leader(state, lane, arms), 0, -1.0
    first = leader
    for arm in arms:
        if arm != leader:
            if (
                standings.signed_margin(margins, lane, leader, arm) > 0.0
                and pair_gate(state, lane, leader, arm) > log_round
            ):
                sure_wins += 1
            most_possible = max(most_possible, possible_wins[arm])
        if possible_wins[arm] > possible_wins[first]:
            first = arm
    left_arm, count, best = leader, 0, leader
    # Without opponents of its own, the arm that may beat the most leaves the duel to the leader.
    if most_possible > sure_wins:
        left_arm = first
        count, best = count_opponents(state, lane, arms, left_arm, log_round)
        if count == 0:
            left_arm = leader
            count, best = count_opponents(state, lane, arms, left_arm, log_round)
    state.room[0] = 0.0
    return int(left_arm), count, best


@kernel
def nth_opponent(state: DuelStandings, lane: int, arms: Ints, left_arm: int, log_round: float, n: int) -> int:
    """Return opponent number ``n``, from 0, of the arms worth a duel with ``left_arm``; ``left_arm`` if there
    are fewer.
    """
    for arm in arms:
        if arm != left_arm and pair_gate(state, lane, left_arm, arm) <= log_round:
            if n == 0:
                return int(arm)
            n -= 1
    return left_arm


# ---- A duel


class DuelPlan(NamedTuple):
    """The part of a duel that is determined before any random draw.

    Attributes
    ----------
    log_round : float
        Logarithm of the round.
    tail : float
        The policy's ``tail``.
    share : float
        Probability that the pair is drawn from all arms.
    left_arm : int
        First arm of the duel otherwise.
    opponent_count : int
        Number of its possible opponents; −1 if it beats all others.
    best : int
        The best of its opponents.
    """

    log_round: float
    tail: float
    share: float
    left_arm: int
    opponent_count: int
    best: int


@kernel
def plan_duel(state: DuelStandings, lane: int, arms: Ints, tail: float) -> DuelPlan:
    """Return the part of the next duel that is not random: the first arm, its opponents, and the shares of
    draws.

    −1 opponents mean that the leader beats all others, and that its rival is still to be drawn.
    """
    now = state.rounds[lane] + 1.0
    if len(arms) == 1:
        return DuelPlan(0.0, tail, 0.0, arms[0], 0, arms[0])
    if state.leader[lane] < 0:
        return DuelPlan(0.0, tail, 1.0, arms[0], 0, arms[0])
    log_round, share = np.log(now), ANY_PAIR / np.sqrt(now)
    if standings.beats_all(state, lane, arms):
        return DuelPlan(log_round, tail, share, state.leader[lane], -1, state.leader[lane])
    left_arm, count, best = find_contest(state, lane, arms, log_round)
    return DuelPlan(log_round, tail, share, left_arm, count, best)


@kernel
def draw_duel(state: DuelStandings, lane: int, arms: Ints, plan: DuelPlan, rng: Generator) -> Duel:
    """Return the pair of a duel, drawn by its plan or from all arms; which arm is left is drawn, too."""
    if plan.share > 0.0 and rng.random() < plan.share:
        first, second = int(rng.random() * len(arms)), int(rng.random() * (len(arms) - 1))
        return arms[first], arms[second + (1 if second >= first else 0)]
    left_arm, right_arm, count = plan.left_arm, plan.best, plan.opponent_count
    if count < 0:
        right_arm = draw_rival(state, lane, arms, plan.log_round, plan.tail, rng)
    elif count > 1 and rng.random() < ANY_RIVAL:
        right_arm = nth_opponent(state, lane, arms, left_arm, plan.log_round, int(rng.random() * count))
    if left_arm != right_arm and rng.random() < 0.5:
        return right_arm, left_arm
    return left_arm, right_arm


@kernel
def duel_chance(
    state: DuelStandings, lane: int, arms: Ints, plan: DuelPlan, first: int, second: int
) -> float:
    """Return the probability that :func:`draw_duel` returns these two arms in this order."""
    chance, left_arm, count = 0.0, plan.left_arm, plan.opponent_count
    if first == left_arm or second == left_arm:
        rival = second if first == left_arm else first
        if count < 0:
            chance = rival_chance(state, lane, arms, plan.log_round, plan.tail, rival)
        elif rival == left_arm:
            chance = 1.0 if count == 0 else 0.0
        elif count > 0 and pair_gate(state, lane, left_arm, rival) <= plan.log_round:
            chance = ANY_RIVAL / count + (1.0 - ANY_RIVAL) * (rival == plan.best)
    chance *= 1.0 - plan.share
    if first == second:
        return chance
    return 0.5 * chance + plan.share / (len(arms) * (len(arms) - 1.0))


@dataclass(frozen=True)
class HorizonDraw(DuelPolicy):
    """Duel the leader with rivals whose possible gain until a random horizon exceeds the cost: the default.

    The margin of a pair is the difference of its arms' utilities, learned from all duels, plus an effect of
    the pair. In round t a horizon is drawn; it is beyond x·t with probability x^−tail. A rival is eligible
    if the possible gain until the horizon is worth further duels. The leader duels the eligible rival of the
    largest expected gain, or, in a fifth of the rounds, any eligible one; without any, it mostly duels
    itself. If no arm beats all others, the arms that may beat most duel. Rivals are also probed, ever less
    often; if they win more often than expected, earlier duels are mostly forgotten. In a share of 0.1/√t of
    the rounds the pair is drawn from all arms: so a live log supports off-policy evaluation, less and less
    for pairs that are decided. A tie counts for nothing; a coin decides which of the two is left.

    Over 62 settings (``benchmarks/duel_defaults.py``) it has a third of the regret of :class:`RMED1`, and
    at most 0.98 times in any. Each key learns separately.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    tail : float, default 4
        Exponent of the horizon's tail, from 1 to 100. A larger value draws far horizons less often: regret is
        lower if nothing changes, and a log says less about decided rivals. Placements that began when the
        default was 2 keep it.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    See Also
    --------
    RMED1 : if the best arm beats all others by very little, and those are far apart.
    WinnerStays : down to half the regret with a tuned ``beta``, if gaps are clear and their size is known.

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

    tail: Annotated[float, float_range(1.0, 100.0)] = 4.0

    def init(self, lanes: int) -> DuelStandings:
        """Return the standings of ``lanes`` keys before the first duel, without a leader."""
        return DuelStandings.blank(lanes, self.arm_count)

    def enrol(self, state: DuelStandings, lanes: int, known: int) -> None:
        """Update the leader of each of the first ``lanes`` lanes after arms were added."""
        for lane in range(lanes):
            if state.leader[lane] >= 0:
                standings.update_leader(state, lane, np.arange(self.arm_count))

    @staticmethod
    def choose(
        params: HorizonDraw, state: DuelStandings, lane: int, impression: Impression, rng: Generator
    ) -> Duel:
        """Return a pair drawn by :func:`draw_duel`: mostly the leader and a rival, or the leader twice."""
        return draw_duel(
            state, lane, impression.arms, plan_duel(state, lane, impression.arms, params.tail), rng
        )

    @staticmethod
    def propensity(
        params: HorizonDraw, state: DuelStandings, lane: int, impression: Impression, pair: Duel
    ) -> float:
        """Return the probability that ``choose`` returns this ordered pair."""
        plan = plan_duel(state, lane, impression.arms, params.tail)
        return duel_chance(state, lane, impression.arms, plan, pair[0], pair[1])

    @staticmethod
    def decide_and_weigh(
        params: HorizonDraw,
        state: DuelStandings,
        lane: int,
        impression: Impression,
        rng: Generator,
        action: Ints,
    ) -> float:
        """Fill ``action`` with a drawn pair, and return its propensity."""
        arms = impression.arms
        plan = plan_duel(state, lane, arms, params.tail)
        action[0], action[1] = draw_duel(state, lane, arms, plan, rng)
        return duel_chance(state, lane, arms, plan, action[0], action[1])

    @staticmethod
    def count_open(
        params: HorizonDraw, state: DuelStandings, lane: int, arm: int, hits: int, plays: int
    ) -> None:
        """Add ``plays`` to the number of duels that are not learned yet, in units of 1/1024; negative when
        one is learned.
        """
        state.open[lane] += plays

    @staticmethod
    def learn(params: HorizonDraw, state: DuelStandings, lane: int, outcome: Outcome) -> None:
        """Count a round; from a decided duel, update the test for changes, the margins and the leader.

        A tie, or a duel of an arm with itself, only counts a round.
        """
        left_arm, right_arm = outcome.shown
        state.rounds[lane] += 1.0
        if left_arm == right_arm or outcome.reward == 0.5:
            return
        if left_arm == state.leader[lane]:
            standings.update_walk(state, lane, right_arm, outcome.reward)
        elif right_arm == state.leader[lane]:
            standings.update_walk(state, lane, left_arm, 1.0 - outcome.reward)
        standings.count_duel(state.margins, lane, left_arm, right_arm, outcome.reward)
        standings.update_leader(state, lane, outcome.impression.arms)
