"""ShiftMixture, for named arms: a mixture over the time of the last shift of a key's intent."""

# 1. ``RewardSpread`` and ``click_equivalents``: the number of clicks that a reward counts as.
# 2. ``draw_arm``, ``arm_chance``, ``mixture_chance``: draw an arm under a hypothesis; its exact probability
#    under one and over all.
# 3. ``check_signals``: weigh a context that announces a change.
# 4. ``ShiftMixture``: the policy; its state and hypotheses are those of ``hypotheses.py``.

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.classifiers.concepts import UsualRange, is_unusual
from tacit.core import checks, dispatch
from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import kernel, odds
from tacit.core.part import float_range, int_range, param, set_field
from tacit.policies.base import ADDED_LATER, About, ArmBeliefs, Impression, Outcome
from tacit.policies.index import PriorsPolicy, break_tie, insert_crossing, probability_alone
from tacit.policies.shifting import hypotheses
from tacit.policies.shifting.graded_rewards import Evidence
from tacit.policies.shifting.shared_priors import Priors, beta_priors, count_play, count_round, fit_all

# At most, rewards vary this many times less than clicks; weight of the prior that they vary as clicks do.
MAX_EQUIVALENTS, PRIOR_SPREAD = 20.0, 5.0
# This many plays, and this many more for each arm, show in nine of ten cases that an arm has risen to
# 0.3 above the arm that is shown.
NOTICE_PLAYS, NOTICE_ARM_PLAYS, HAZARD = 15, 2, 0.25
SPAWN_LEAST, SPAWN_MOST = 20, 100
# Beyond this z a normal distribution has a probability below 1e-16.
FAR = 8.3


class RewardSpread(NamedTuple):
    """Variation of rewards; every array has shape (1,).

    Attributes
    ----------
    squares, expected : array of float64
        Sum of squared differences between rewards and their expectations, and its expectation if rewards
        were clicks.
    fractions : array of float64
        Number of rewards that were neither 0 nor 1.
    """

    squares: Floats
    expected: Floats
    fractions: Floats


class SharedPriors(NamedTuple):
    """State that all keys share.

    Attributes
    ----------
    priors : Priors
    found : ChangeTotals
    spread : RewardSpread
    usual : UsualRange
        Usual ranges of the signals.
    crossings : array of float64, shape (1, arms)
        Workspace of :func:`arm_chance`; 0 between its calls.
    """

    priors: Priors
    found: hypotheses.ChangeTotals
    spread: RewardSpread
    usual: UsualRange
    crossings: Floats


@kernel
def click_equivalents(spread: RewardSpread, mean: float, reward: float) -> float:
    """Return the number of clicks that a reward counts as, from 1 to 20, and add the reward to the spread.

    ``mean`` is the reward's expectation. The number is 1 until a reward was neither 0 nor 1.
    """
    if 0.0 < reward < 1.0:
        spread.fractions[0] += 1.0
    scale = 1.0
    if spread.fractions[0] > 0.0:
        scale = (PRIOR_SPREAD + spread.expected[0]) / (PRIOR_SPREAD + spread.squares[0])
    spread.squares[0] += (reward - mean) ** 2
    spread.expected[0] += mean * (1.0 - mean)
    return float(min(max(scale, 1.0), MAX_EQUIVALENTS))


@kernel
def log_odds_deviation(a: float, b: float) -> float:
    """Return the approximate standard deviation of the log-odds of a mean that is distributed as Beta(a,
    b).
    """
    return float(np.sqrt((a + b) / (a * b)))


@kernel
def find_leader_place(params: Any, state: Any, lane: int, h: int, impression: Impression) -> int:
    """Return the place of the leader among the offered arms: the arm of the highest odds a/b under hypothesis
    ``h``.

    Among arms of equal odds, the one of the larger deviation (the smaller a) leads.
    """
    leader, highest_odds, leader_a = 0, -1.0, 0.0
    for i in range(len(impression.arms)):
        a, b, _ = odds(params, state, lane, h, impression.arms[i])
        if a / b > highest_odds or (a / b == highest_odds and a < leader_a):
            leader, highest_odds, leader_a = i, a / b, a
    return leader


@kernel
def draw_arm(params: Any, state: Any, lane: int, h: int, impression: Impression, rng: Generator) -> int:
    r"""Return a random arm under hypothesis ``h``: of the arms that take part, the one of the highest score.

    A score is the mean of the arm's log-odds + z·deviation, with the same z = \|N(0, 1)\| for all arms. The
    leader takes part always, each other arm with probability ½. Equal arms win with equal probability.
    """
    z, coin_bits = abs(rng.standard_normal()), rng.random()
    score_tie = rng.random()
    leader_tie = score_tie
    leader_odds, leader_a, leader_ties, leader = -1.0, 0.0, 0.0, 0
    best, top_sd, top_odds, top_a, ties, winner = -np.inf, 0.0, 0.0, 0.0, 0.0, 0
    for i in range(len(impression.arms)):
        arm = impression.arms[i]
        a, b, deviation = odds(params, state, lane, h, arm)
        ratio = a / b
        if ratio == leader_odds and a == leader_a:
            leader_ties += 1.0
            replaces, leader_tie = break_tie(leader_ties, leader_tie)
            leader = arm if replaces else leader
        elif ratio > leader_odds or (ratio == leader_odds and a < leader_a):
            leader_odds, leader_a, leader_ties, leader = ratio, a, 1.0, arm
        # Each binary digit of coin_bits is the fair coin of one arm.
        coin_bits += coin_bits
        if coin_bits >= 1.0:
            coin_bits -= 1.0
            score = np.log(ratio) + z * deviation
            if score == best and ratio == top_odds and a == top_a:
                ties += 1.0
                replaces, score_tie = break_tie(ties, score_tie)
                winner = arm if replaces else winner
            elif score > best or (score == best and (deviation, ratio, -a) > (top_sd, top_odds, -top_a)):
                best, top_sd, top_odds, top_a, ties, winner = score, deviation, ratio, a, 1.0, arm
        if i % 52 == 51:
            # A draw has 53 fair bits.
            coin_bits = rng.random()
    a, b, deviation = odds(params, state, lane, h, leader)
    score = np.log(a / b) + z * deviation
    if score > best or (score == best and deviation >= top_sd):
        return int(leader)
    return int(winner)


@kernel
def arm_chance(params: Any, state: Any, lane: int, h: int, impression: Impression, arm: int) -> float:
    """Return the probability that :func:`draw_arm` returns an arm under hypothesis ``h``, exact to 1e-12.

    It integrates over z: the arm must score at least as high as the leader, and all other arms that score
    higher must not take part.
    """
    crossings = state.shared.crossings[0]
    leader = impression.arms[find_leader_place(params, state, lane, h, impression)]
    a, b, leader_deviation = odds(params, state, lane, h, leader)
    leader_odds, leader_a = a / b, a
    a, b, deviation = odds(params, state, lane, h, arm)
    arm_odds = a / b
    is_leader = arm_odds == leader_odds and a == leader_a
    if not is_leader and deviation <= leader_deviation:
        return 0.0
    arm_log_odds, lowest_z = np.log(arm_odds), 0.0
    if not is_leader:
        # From this z on the arm scores at least as high as the leader.
        lowest_z = (np.log(leader_odds) - arm_log_odds) / (deviation - leader_deviation)
    above, count, ties = 0, 0, 0
    for i in range(len(impression.arms)):
        if impression.arms[i] == leader and not is_leader:
            continue
        rival_a, rival_b, rival_deviation = odds(params, state, lane, h, impression.arms[i])
        rival_odds = rival_a / rival_b
        # Count the arms that score higher at ``lowest_z``, and collect the points where an arm's line crosses
        # this arm's.
        slope = rival_deviation - deviation
        if rival_odds == arm_odds and rival_a == a:
            ties += 1
        elif slope == 0.0:
            above += 1 if rival_odds > arm_odds or (rival_odds == arm_odds and rival_a < a) else 0
        else:
            crossing = (arm_log_odds - np.log(rival_odds)) / slope
            if (slope > 0.0) == (crossing <= lowest_z):
                above += 1
            if lowest_z < crossing < FAR:
                insert_crossing(crossings, count, crossing, slope > 0.0)
                count += 1
    # The probability that this arm, or one that is equal to it, takes part.
    entry_chance = 1.0 if is_leader else 1.0 - math.ldexp(1.0, -ties)
    return probability_alone(crossings, count, lowest_z, above) * entry_chance / ties


@kernel
def mixture_chance(
    params: Any, state: Any, lane: int, impression: Impression, arm: int, weight: float
) -> float:
    """Return the probability that an arm is drawn, averaged over the active hypotheses, times ``weight``."""
    lanes, total = state.own, 0.0
    for h in range(hypotheses.HYPOTHESES):
        if lanes.weight[lane, h] >= params.idle:
            total += lanes.weight[lane, h] * arm_chance(params, state, lane, h, impression, arm)
    return total * (weight / hypotheses.active_weight(lanes, lane, params.idle))


@kernel
def record_reward(params: Any, state: Any, lane: int, arm: int, reward: float) -> Evidence:
    """Add a reward to the statistics that all keys share; return the evidence that it is.

    It counts as 1 to 20 clicks: more than 1 if fractional rewards vary less than clicks. The reward is added
    to the spread of rewards and, before the key's first accepted change, to the data of the arm's prior.
    """
    lanes, shared = state.own, state.shared
    a, b = hypotheses.posterior(lanes, shared.priors, lane, lanes.leading[lane], arm, 1.0)
    scale = click_equivalents(shared.spread, a / (a + b), reward)
    if lanes.found[lane] == 0:
        counts = lanes.counts[lane, lanes.leading[lane], arm]
        hit, miss = scale * reward, scale * (1.0 - reward)
        count_play(shared.priors, arm, float(counts[0]), float(counts[1]), hit, miss)
    return Evidence(reward, reward, scale, 1.0, scale)


@kernel
def check_signals(params: Any, state: Any, lane: int, impression: Impression, margin: float | None) -> None:
    """Add hypotheses of an announced change if the context is unusual; without a margin (None), do nothing.

    The context is added to the usual ranges, too.
    """
    if margin is not None and is_unusual(state.shared.usual, margin, impression.context):
        hypotheses.weigh_warning(params, state, lane)


def count_explorations(policy: ShiftMixture) -> int:
    """Return the number of exploring impressions of a key that are needed to notice a change with probability
    0.9.
    """
    return (NOTICE_PLAYS + NOTICE_ARM_PLAYS * policy.arm_count) * policy.arm_count


@dataclass(frozen=True)
class ShiftMixture(PriorsPolicy):
    """Play the best arm under a drawn hypothesis about when the key's intent last shifted.

    Needs no tuning: many keys or one, few arms or many, intent that shifts or does not, with or
    without signals that announce it, rewards in [0, 1].

    Each key weighs at most eight hypotheses: that nothing has changed, that all arms' rates changed at
    some round, or that they changed back to those of one of four earlier epochs. New hypotheses are added
    every 20 rounds. The prior of an arm's rates is learned over all keys, so that a new key starts with what
    the others have learned. So are the frequency of recurring intents, the share of contexts that announce
    shifts correctly, and the variance of fractional rewards.

    For a decision a hypothesis is drawn by its weight. Each arm's log-odds have a mean and a
    deviation under it; every arm but the one of the highest mean is left out with probability ½,
    and among the remaining arms the one of the highest mean + z·deviation is played, with one
    z = \\|N(0, 1)\\| for all. The propensity is exact, to 1e-12; some arms have propensity 0.

    Late feedback is learned by the hypotheses that exist when it comes: one that was added after the
    decision counts it, too. That costs little as long as the delay is short compared with the time
    between shifts.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    context_dim : int, default 0
        Number of signals in a context. If there are any, an unusual context is a warning of a shift,
        weighed by how often earlier warnings were right. A signal that always grows, such as the time,
        is always unusual and costs more than it helps: leave it out.
    margin : float, default 0.1
        A signal is unusual if it lies outside the range of earlier values, without their highest and lowest
        0.3 %, by more than this share of the range's width; at least 0.
    notice_within : int, optional
        Number of impressions of a key within which a change in an arm that is not shown is to be noticed:
        the arm has risen to 0.3 above the arm shown, whose clicks are as before. With K arms at
        least 3·K·(15 + 2·K). A share of the impressions (``exploration``), K·(15 + 2·K) over this
        number, then shows an arm drawn uniformly, at the cost of its lower reward. By default
        no impression does; such a change may then go unnoticed for long.
    priors : dict of arm to (float, float), optional
        Successes and failures of arms known beforehand: ``{"film": (4, 96)}`` is 4 clicks in 100
        impressions. Each key starts with Beta(1 + 4, 1 + 96) for that arm, weakened to the weight of
        500 impressions if it has more. As keys learn, the prior of the arm is fitted to them together with
        five imaginary keys, which follow the configured prior, or, without one, the common prior of all arms.
        After a shift of a key, its arms no longer use their own priors.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    Notes
    -----
    With ``notice_within``, changes from 0.2 to 0.8 next to an arm of 0.5, and from 0.05 to 0.4
    next to an arm of 0.1, were noticed in time in nine of ten runs or more, after 30,000 impressions
    without any; in eight of ten with 20 arms and the first change. A smaller rise takes more impressions.

    A key takes 82·arms + 100 bytes, some 0.9 KB with ten arms, and all keys together 6 KB per arm.

    References
    ----------
    tacit's own. Run lengths: Adams, MacKay (2007), "Bayesian online changepoint detection"; Mellor,
    Shapiro (2013), "Thompson sampling in switching environments with Bayesian online change
    detection". Priors over keys: empirical Bayes by the beta-binomial likelihood, steps of
    Minka (2000), "Estimating a Dirichlet distribution", equation 55.

    Examples
    --------
    >>> import tacit
    >>> environment = tacit.ShiftingArms(arms=3, events=[1001], gap=0.3)
    >>> policies = [tacit.policies.ShiftMixture(arms=3), tacit.Thompson(arms=3)]
    >>> result = tacit.simulate(policies, environment, horizon=3000, runs=20, seed=1)
    >>> result.compare("ShiftMixture", "Thompson").difference < 0
    True
    """

    class State(NamedTuple):
        own: hypotheses.Hypotheses
        shared: SharedPriors

    about: ClassVar[About] = About(
        source="ours; run lengths by Adams, MacKay (2007), priors by empirical Bayes over keys",
        regret="none proved",
        assumes="shifts that change the rates of the arm being shown",
        fails="a shift that lifts an arm which is not shown is found late",
        otherwise="notice_within where such shifts matter; ExplorationFloor over it where logs "
        "shall answer for all arms",
    )

    sums: ClassVar[tuple[str, ...]] = (
        "shared.priors.tails",
        "shared.priors.rounds",
        "shared.found",
        "shared.spread",
    )
    kernels: ClassVar[tuple[Any, ...]] = dispatch.POLICY_KERNELS + dispatch.SHIFT_KERNELS
    context_dim: Annotated[int, int_range(0, 10_000)] = field(default=0, kw_only=True)
    margin: Annotated[float, float_range(0.0, math.inf)] = field(default=0.1, kw_only=True)
    notice_within: int | None = field(default=None, kw_only=True)
    priors: Any = field(default=(), kw_only=True, metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        """Validate the hyperparameters; raise InvalidValue if ``notice_within`` is too small for the arms."""
        super().__post_init__()
        if self.notice_within is not None:
            number = checks.integer("notice_within", self.notice_within, 3 * count_explorations(self))
            set_field(self, "notice_within", number)

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance with ``dim`` signals."""
        return cls(arms, context_dim=dim)

    @property
    def reads(self) -> str:
        """Number of signals in words; empty if there are none."""
        return f"signals, {self.context_dim} numbers given as context" if self.context_dim else ""

    @property
    def observes(self) -> bool:
        """True if contexts have signals, whose unusual values announce a change."""
        return self.signal_margin is not None

    @param
    def signal_margin(self) -> float | None:
        """The margin; None without signals, so that compiled loops skip the check of contexts."""
        return self.margin if self.context_dim else None

    @param
    def exploration(self) -> float:
        """The share of impressions that show an arm drawn uniformly.

        The expected loss is this share of the difference between the best arm's mean reward and the mean of
        all arms.
        """
        if self.notice_within is None:
            return 0.0
        return count_explorations(self) / self.notice_within

    @param
    def hazard(self) -> float:
        """Minimum of the assumed rate of shifts, per impression of a key; 0 unless ``notice_within`` is
        set.
        """
        return 0.0 if self.notice_within is None else HAZARD / self.notice_within

    @param
    def spawn(self) -> int:
        """Number of impressions of a key between two additions of hypotheses."""
        within = 0 if self.notice_within is None else self.notice_within
        return min(max(SPAWN_LEAST, within // 100), SPAWN_MOST)

    @param
    def idle(self) -> float:
        """Weight below which a hypothesis is not drawn for decisions."""
        return 1e-3

    @param
    def pace(self) -> float:
        """Factor by which the estimated rate of changes is multiplied."""
        return 1.0

    @param
    def floor(self) -> float:
        """Minimum of each parameter of a fitted Beta prior."""
        return 0.0

    @param
    def prior_betas(self) -> Floats | None:
        """Parameters of the configured Beta priors of arms, of shape (arms, 2); None without priors."""
        return beta_priors(self) if self.priors else None

    def init(self, lanes: int) -> Any:
        """Return the initial state: no changes so far, and the configured priors of arms."""
        arms = self.arm_count
        spread = RewardSpread(*(np.zeros(1) for _ in RewardSpread._fields))
        changes = hypotheses.ChangeTotals(*(np.zeros(1) for _ in hypotheses.ChangeTotals._fields))
        usual, workspace = UsualRange.empty(self.context_dim), np.zeros((1, arms))
        priors, betas = Priors.uniform(arms), self.prior_betas
        if betas is not None:
            rows = np.flatnonzero(betas.any(axis=1))
            priors.beta[0, 1 + rows] = betas[rows]
        shared = SharedPriors(priors, changes, spread, usual, workspace)
        return ShiftMixture.State(hypotheses.Hypotheses.initial(lanes, arms), shared)

    @staticmethod
    def odds(params: ShiftMixture, state: State, lane: int, h: int, arm: int) -> tuple[float, float, float]:
        """Return an arm's Beta parameters under hypothesis ``h``, and the deviation of its log-odds."""
        a, b = hypotheses.posterior(state.own, state.shared.priors, lane, h, arm, 1.0)
        return a, b, log_odds_deviation(a, b)

    @staticmethod
    def enter(params: ShiftMixture, state: State, lane: int, weight: float, kind: int, epoch: int) -> None:
        """Add a hypothesis of a change just now, in place of the lightest one, if it has more weight than
        that; else do nothing.
        """
        hypotheses.add_hypothesis(state.own, lane, weight, kind, epoch)

    @staticmethod
    def observe(params: ShiftMixture, state: State, lane: int, impression: Impression) -> None:
        """Add hypotheses of an announced change if the context is unusual; do nothing without signals."""
        check_signals(params, state, lane, impression, params.signal_margin)

    @staticmethod
    def choose(params: ShiftMixture, state: State, lane: int, impression: Impression, rng: Generator) -> int:
        """Draw an active hypothesis by weight, and return an arm drawn under it.

        With probability ``exploration``, return an arm drawn uniformly.
        """
        if params.exploration > 0.0 and rng.random() < params.exploration:
            return int(impression.arms[int(rng.random() * len(impression.arms))])
        h = hypotheses.draw_hypothesis(state.own, lane, rng.random(), params.idle)
        return draw_arm(params, state, lane, h, impression, rng)

    @staticmethod
    def propensity(params: ShiftMixture, state: State, lane: int, impression: Impression, arm: int) -> float:
        """Return the probability of an arm, summed over the active hypotheses and exploration."""
        chance = mixture_chance(params, state, lane, impression, arm, 1.0 - params.exploration)
        # Weights sum up to 1 but for rounding.
        return min(1.0, float(chance + params.exploration / len(impression.arms)))

    @staticmethod
    def learn(params: ShiftMixture, state: State, lane: int, outcome: Outcome) -> None:
        """Weigh the hypotheses by the reward's likelihood, and add the reward to their counts.

        Then, each when due: accept a change that has become likely, add hypotheses, and fit the priors that
        all keys share.
        """
        arm, reward = outcome.shown, outcome.reward
        lanes, shared = state.own, state.shared
        evidence = record_reward(params, state, lane, arm, reward)
        # In this order: a reward is evidence for the hypotheses as they were before this round, in which
        # rates may change again.
        hypotheses.update_weights(lanes, shared.priors, lane, arm, evidence)
        hypotheses.accept_change(params, state, lane)
        hypotheses.advance_round(params, state, lane, 1.0)
        count_round(shared.priors, params.prior_betas, params.floor)

    @staticmethod
    def refit(params: ShiftMixture, state: State) -> None:
        """Recompute the priors of arms, in place, from the statistics of all keys."""
        fit_all(state.shared.priors, params.prior_betas, params.floor)

    def beliefs(self, state: State, lane: int) -> ArmBeliefs:
        """Return the posteriors of a lane's arms under the hypothesis of most weight."""
        lanes, beta = state.own, state.shared.priors.beta[0]
        # Not the accepted hypothesis, which may have hardly any weight by now.
        heaviest = int(lanes.weight[lane].argmax())
        counts = lanes.counts[lane, heaviest].astype(np.float64)
        prior = beta[1:] if lanes.kind[lane, heaviest] == hypotheses.INITIAL else beta[0]
        return ArmBeliefs.from_posteriors(counts.sum(axis=1), *(prior + counts).T)

    @staticmethod
    def restart(params: ShiftMixture, state: State, lane: int) -> None:
        """Reset the hypotheses of a lane; state shared by all keys stays."""
        hypotheses.reset_lane(state.own, lane)

    @staticmethod
    def estimate(params: ShiftMixture, state: State, lane: int, arm: int) -> float:
        """Return the mean reward of an arm under the accepted hypothesis; 0 before its first play."""
        counts = state.own.counts[lane, state.own.leading[lane], arm]
        plays = float(counts[0]) + float(counts[1])
        return float(counts[0]) / plays if plays > 0.0 else 0.0
