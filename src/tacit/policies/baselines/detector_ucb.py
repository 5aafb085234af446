"""UCB with change detection: CUSUM-UCB, M-UCB, and the base of policies that restart at a change."""

# 1. Base of policies that test for changes, with forced exploration in turn.
# 2. CUSUM-UCB: two walks per arm, and a baseline from its first plays.
# 3. M-UCB: compares the halves of a window, whose sums are updated in O(1).

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tacit.core import checks
from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import kernel
from tacit.core.part import Fraction, Positive, PositiveFraction, int_range, param
from tacit.core.state_ranges import IntCount
from tacit.errors import InvalidValue
from tacit.policies.base import About, Counts, Impression, Outcome, count, forget
from tacit.policies.index import IndexPolicy, greedy_choice, greedy_propensity, radius_index

# ---- Base of the policies that restart arms when a test finds a change


@kernel
def explore_in_turn(share: float, impressions: int, arms: int, impression: Impression) -> int:
    """Return the arm that must be explored at this impression, or −1 if none must.

    Of every ⌊arms/share⌋ impressions the first ``arms`` explore the arms in their order; an arm that is not
    on offer loses its turn. ``impressions`` counts the lane's impressions, this one included. Impressions are
    counted, not rewards: otherwise all decisions of a batch would be forced, or none.
    """
    if share > 0.0:
        turn = (impressions - 1) % int(arms / share)
        if turn < arms:
            for offered in impression.arms:
                if offered == turn:
                    return int(turn)
    return -1


class Detector(IndexPolicy, abstract=True):
    """Base of the policies that detect changes and restart: their State has ``counts`` and ``restarts``."""

    @staticmethod
    def index(params: Any, state: Any, lane: int, arm: int, confidence: float) -> float:
        """Return mean + confidence/sqrt(plays) of an arm; infinity before its first play."""
        return radius_index(state.counts, lane, arm, confidence)

    @staticmethod
    def epoch(params: Any, state: Any, lane: int) -> int:
        """Return the number of restarts of a lane."""
        return int(state.restarts[lane])


class ForcingDetector(Detector, abstract=True):
    """Base of detectors that explore in turn, with a param ``share``, and ``shown`` in their State."""

    @staticmethod
    def observe(params: Any, state: Any, lane: int, impression: Impression) -> None:
        """Count an impression of the lane."""
        state.shown[lane] += 1

    @staticmethod
    def choose(params: Any, state: Any, lane: int, impression: Impression, rng: Generator) -> int:
        """Return the arm whose turn it is to be explored, or else the arm of the highest index."""
        arms = state.counts.plays.shape[1]
        forced = explore_in_turn(params.share, state.shown[lane], arms, impression)
        return forced if forced >= 0 else greedy_choice(params, state, lane, impression, rng)

    @staticmethod
    def propensity(params: Any, state: Any, lane: int, impression: Impression, arm: int) -> float:
        """Return the probability that ``choose`` returns this arm."""
        arms = state.counts.plays.shape[1]
        forced = explore_in_turn(params.share, state.shown[lane], arms, impression)
        if forced >= 0:
            return 1.0 if arm == forced else 0.0
        return greedy_propensity(params, state, lane, impression, arm)


# ---- CUSUM-UCB: restart an arm when its rewards drift from their first mean (Liu et al. 2018)


class DriftState(NamedTuple):
    """Counts since each arm's restart, and the two walks of each arm's test.

    Attributes
    ----------
    counts : Counts
        Plays and rewards since the arm's last restart; ``rounds`` sums the plays.
    baseline : array of float64, shape (lanes, arms)
        Mean of the first rewards, once there are enough of them.
    rise, fall : array of float64, shape (lanes, arms)
    restarts : array of int64, shape (lanes,)
    """

    counts: Counts
    baseline: Floats
    rise: Floats
    fall: Floats
    restarts: IntCount


@kernel
def restart_arm(state: DriftState, lane: int, arm: int) -> None:
    """Reset an arm's counts and walks, so that its next plays set a new baseline, and count a restart of the
    lane.
    """
    state.counts.rounds[lane] -= state.counts.plays[lane, arm]
    state.counts.plays[lane, arm] = 0.0
    state.counts.rewards[lane, arm] = 0.0
    state.rise[lane, arm] = 0.0
    state.fall[lane, arm] = 0.0
    state.restarts[lane] += 1


@dataclass(frozen=True)
class CUSUMUCB(Detector):
    """Play UCB, explore at random, and restart an arm when a two-sided CUSUM test raises an alarm.

    The first M rewards of an arm give its baseline. Each later reward r moves two walks that
    never go below 0: one by r − baseline − ε, the other by baseline − r − ε. When one of them
    reaches h, that arm is restarted. The index of an arm, with N its plays since its
    restart, μ their mean reward and n the plays of all arms since their restarts, is
    μ + sqrt(ξ·ln n/N). With probability α an arm is drawn uniformly instead, so that
    changes of other arms are noticed.

    The restart of any arm starts a new epoch of the lane. A round costs O(1) apart from the
    indices. A lane takes 40·arms + 16 bytes.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    samples : int, default 100
        Number of rewards M for a baseline; at least 1. If the baseline is off by more than ε, which
        happens with a probability of some 2·exp(−2·M·ε²), there will be a false alarm sooner or later.
    epsilon : float, default 0.1
        The drift ε that is tolerated; in (0, 1). Half of the smallest change to be found.
    threshold : float, default 10
        The height h of an alarm; above 0. The default suits about one shift in 20 000 rounds;
        :meth:`from_horizon` sets the published value.
    alpha : float, default 0.02
        Probability α of a uniform choice, in [0, 1]. Each of K arms gets at least
        α/K of the rounds: with 40 arms and the default one in 2000, so that M rewards take up to
        200 000 rounds, and changes of arms that are hardly played are found late.
    xi : float, default 1
        Scale ξ of the confidence radius; above 0.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Liu, Lee, Shroff (2018), "A change-detection based framework for piecewise-stationary
    multi-armed bandit problem", algorithms CD-UCB and CUSUM, and corollary 2. The paper itself was
    not available for checking: walks, restarts, h and α are those of two other implementations,
    of SMPyBandits and of the authors of GLR-klUCB.

    Examples
    --------
    >>> policy = CUSUMUCB.from_horizon(arms=5, horizon=100_000, shifts=5)
    >>> round(policy.threshold, 2), round(policy.alpha, 4)
    (9.9, 0.0223)
    """

    about: ClassVar[About] = About(
        source="Liu, Lee, Shroff (2018), CUSUM-UCB",
        regret="O(sqrt(Υ·T·ln(T/Υ))) with Υ shifts in T rounds, tuned (corollary 2)",
        assumes="changes of at least 2ε, with more than M plays of every arm between them",
        fails="smaller changes go unnoticed, and sooner ones fall into the baseline",
        otherwise="GLRKLUCB, which needs no size of a change and no baseline",
    )
    randomized: ClassVar[bool] = True

    samples: Annotated[int, int_range(1, 2**31)] = 100
    epsilon: PositiveFraction = 0.1
    threshold: Positive = 10.0
    alpha: Fraction = 0.02
    xi: Positive = 1.0

    @classmethod
    def from_horizon(cls, arms: int | tuple[str, ...], horizon: int, shifts: int) -> Self:
        """Return the policy with h = ln(T/Υ) and α = sqrt(Υ/T·ln(T/Υ)).

        These are the published orders with their constants, which depend on M and ε, set to 1,
        as is usual in experiments; M and ε keep their defaults. In corollary 2 the number of arms
        is also a factor of α, which experiments omit: with many arms α is too small to
        find changes of arms that are hardly played.

        Parameters
        ----------
        arms : int or sequence of str
        horizon : int
            Number of rounds T of a key; at least 2.
        shifts : int
            Number of changes Υ of the click probabilities in the horizon; from 1 to half of the rounds.

        Raises
        ------
        InvalidValue
            If a parameter is out of its range.
        """
        rounds = checks.integer("horizon", horizon, 2)
        ratio = rounds / checks.integer("shifts", shifts, 1, rounds // 2)
        return cls(arms, threshold=math.log(ratio), alpha=math.sqrt(math.log(ratio) / ratio))

    def init(self, lanes: int) -> DriftState:
        """Return zero counts, baselines, walks and restarts for each lane."""
        shape = (lanes, self.arm_count)
        return DriftState(
            Counts.zeros(*shape), np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(lanes, np.int64)
        )

    @staticmethod
    def confidence(params: CUSUMUCB, state: DriftState, lane: int) -> float:
        """Return sqrt(ξ·ln n), n the plays of all arms since their restarts; a radius is this over the root
        of plays.
        """
        return float(np.sqrt(params.xi * np.log(max(state.counts.rounds[lane], 1.0))))

    @staticmethod
    def choose(params: CUSUMUCB, state: DriftState, lane: int, impression: Impression, rng: Generator) -> int:
        """Return the arm of the highest index, or with probability ``alpha`` an arm drawn uniformly."""
        if rng.random() < params.alpha:
            return int(impression.arms[int(rng.random() * len(impression.arms))])
        return greedy_choice(params, state, lane, impression, rng)

    @staticmethod
    def propensity(params: CUSUMUCB, state: DriftState, lane: int, impression: Impression, arm: int) -> float:
        """Return the probability that ``choose`` returns this arm."""
        greedy = greedy_propensity(params, state, lane, impression, arm)
        return float(params.alpha / len(impression.arms) + (1.0 - params.alpha) * greedy)

    @staticmethod
    def learn(params: CUSUMUCB, state: DriftState, lane: int, outcome: Outcome) -> None:
        """Count the reward, and update the arm's baseline or, once that is set, its two walks.

        If a walk reaches the threshold, the arm is restarted.
        """
        arm = outcome.shown
        count(state.counts, lane, arm, outcome.reward)
        plays = state.counts.plays[lane, arm]
        if plays == params.samples:
            state.baseline[lane, arm] = state.counts.rewards[lane, arm] / plays
        elif plays > params.samples:
            drift = outcome.reward - state.baseline[lane, arm]
            rise = max(0.0, state.rise[lane, arm] + drift - params.epsilon)
            fall = max(0.0, state.fall[lane, arm] - drift - params.epsilon)
            state.rise[lane, arm] = rise
            state.fall[lane, arm] = fall
            if max(rise, fall) >= params.threshold:
                restart_arm(state, lane, arm)


# ---- M-UCB: restart when the halves of an arm's latest rewards differ (Cao et al. 2019)


class HalvesState(NamedTuple):
    """Counts since the restart, and the latest rewards of each arm with the sums of their halves.

    Attributes
    ----------
    counts : Counts
    recent : array of float32, shape (lanes, arms, window)
        A ring buffer per arm.
    older, newer : array of float64, shape (lanes, arms)
        Sums of the older and of the newer half of the window.
    shown : array of int64, shape (lanes,)
        Impressions since the restart.
    restarts : array of int64, shape (lanes,)
    """

    counts: Counts
    recent: npt.NDArray[np.float32]
    older: Floats
    newer: Floats
    shown: IntCount
    restarts: IntCount


@kernel
def slide_window(state: HalvesState, lane: int, arm: int, reward: float) -> None:
    """Add a reward to an arm's window, remove the oldest one if it is full, and update the sums of both
    halves.

    The play must be counted before.
    """
    window = state.recent.shape[2]
    played = int(state.counts.plays[lane, arm])
    at = (played - 1) % window
    if played > window:
        state.older[lane, arm] -= state.recent[lane, arm, at]
    state.recent[lane, arm, at] = reward
    state.newer[lane, arm] += state.recent[lane, arm, at]
    if played > window // 2:
        middle = state.recent[lane, arm, (played - 1 - window // 2) % window]
        state.newer[lane, arm] -= middle
        state.older[lane, arm] += middle


@kernel
def restart_halves(state: HalvesState, lane: int) -> None:
    """Reset the counts, sums of halves and impressions of a lane, and count a restart.

    Rewards in the ring buffers stay, but are overwritten before they are used.
    """
    forget(state.counts, lane)
    state.older[lane, :] = 0.0
    state.newer[lane, :] = 0.0
    state.shown[lane] = 0
    state.restarts[lane] += 1


@dataclass(frozen=True)
class MUCB(ForcingDetector):
    """Play UCB1, explore in turn, and restart when the two halves of a window differ.

    Of every ⌊arms/γ⌋ impressions since the restart the first show each arm once. Otherwise, with
    N the plays of an arm since the restart, μ their mean reward and t the rounds since then, the
    index is μ + sqrt(2·ln t/N). When the sum of the rewards of the last w/2 plays of the arm just played
    differs by more than b from that of the w/2 plays before, all arms are
    restarted, and the lane has a new epoch.

    A round costs O(1) apart from the indices and, at a restart, O(arms). A lane takes
    4·arms·window + 32·arms + 24 bytes: 16 kB for 5 arms with the default window. The rewards in
    the windows are stored in single precision, in which clicks are exact.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    window : int, default 800
        Number of plays w in the window; even, at least 2.
    threshold : float, default 100
        The difference b above which there is an alarm; above 0. Above window/2 there is never one.
    gamma : float, default 0.05
        Share γ of forced exploration, in [0, 1]. Each of K arms gets at least γ/K
        of the rounds: with 40 arms and the default one in 800, so that a window takes up to 640 000
        rounds to fill, and only changes of arms that are played often are found.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Cao, Wen, Kveton, Xie (2019), "Nearly optimal adaptive procedure with change detection for
    piecewise-stationary bandit", algorithms CD and M-UCB. The default window is that of its
    experiments, the default threshold about that of its rule for 100 000 rounds and 5 arms. The
    paper itself was not available for checking: w, b, the test and the exploration are those of
    two other implementations, of SMPyBandits and of the authors of GLR-klUCB. Both use
    γ = sqrt(Υ·K·(2·b + 3·sqrt(w))/(2·T)) in experiments, as does the paper according to SMPyBandits.

    Examples
    --------
    >>> policy = MUCB.from_horizon(arms=5, horizon=100_000, shifts=5, change=1.0)
    >>> policy.window, round(policy.threshold, 2), round(policy.gamma, 3)
    (292, 60.81, 0.118)
    """

    about: ClassVar[About] = About(
        source="Cao, Wen, Kveton, Xie (2019), M-UCB",
        regret="O(sqrt(M·K·T·ln T)) with M segments in T rounds, tuned",
        assumes="changes of a known least size, with window plays of every arm between them",
        fails="smaller changes, and sooner ones, go unnoticed",
        otherwise="GLRKLUCB, which needs no size of a change and no window",
    )
    begins_in_turn: ClassVar[bool] = True

    window: Annotated[int, int_range(2, 2**31)] = 800
    threshold: Positive = 100.0
    gamma: Fraction = 0.05

    def __post_init__(self) -> None:
        """Validate the hyperparameters; raise InvalidValue unless ``window`` is even."""
        super().__post_init__()
        if self.window % 2:
            raise InvalidValue("window", self.window, "give an even number")

    @classmethod
    def from_horizon(
        cls, arms: int | tuple[str, ...], horizon: int, shifts: int, change: float = 0.5
    ) -> Self:
        """Return the policy with w, b and γ by the published rules.

        With K arms, T rounds, Υ shifts and changes of at least δ,
        w = 4/δ²·(sqrt(ln(2·K·T²)) + sqrt(ln(2·T)))², b = sqrt(w·ln(2·K·T²)/2) and
        γ = sqrt(Υ·K·min(w/2, ⌈b/δ⌉ + 3·sqrt(w))/(2·T)), which weighs the cost of forced
        exploration against the delay of a detection.

        Parameters
        ----------
        arms : int or sequence of str
        horizon : int
            Number of rounds T of a key; at least 2.
        shifts : int
            Number of changes Υ of the click probabilities in the horizon; from 1 to half of the rounds.
        change : float, default 0.5
            Least change δ of an arm's click probability to be detected; in (0, 1].

        Raises
        ------
        InvalidValue
            If a parameter is out of its range.
        """
        k = cls(arms).arm_count
        t = checks.integer("horizon", horizon, 2)
        changes = checks.integer("shifts", shifts, 1, t // 2)
        delta = checks.number("change", change, 1e-3, 1.0)
        log_all = math.log(2.0 * k * t * t)
        window = 4.0 / delta**2 * (math.sqrt(log_all) + math.sqrt(math.log(2.0 * t))) ** 2
        window = 2 * math.ceil(window / 2.0)
        threshold = math.sqrt(window * log_all / 2.0)
        plays = min(window / 2.0, math.ceil(threshold / delta) + 3.0 * math.sqrt(window))
        gamma = math.sqrt(changes * k * plays / (2.0 * t))
        return cls(arms, window, threshold, min(1.0, gamma))

    @param
    def share(self) -> float:
        """γ, the share of impressions that explore arms in turn."""
        return self.gamma

    def init(self, lanes: int) -> HalvesState:
        """Return zero counts, empty windows and zero restarts for each lane."""
        shape = (lanes, self.arm_count)
        return HalvesState(
            Counts.zeros(*shape),
            np.zeros((*shape, self.window), np.float32),
            np.zeros(shape),
            np.zeros(shape),
            np.zeros(lanes, np.int64),
            np.zeros(lanes, np.int64),
        )

    @staticmethod
    def confidence(params: MUCB, state: HalvesState, lane: int) -> float:
        """Return sqrt(2·ln t) for round t since the restart; an arm's radius is this over the root of its
        plays.
        """
        return float(np.sqrt(2.0 * np.log(state.counts.rounds[lane] + 1.0)))

    @staticmethod
    def learn(params: MUCB, state: HalvesState, lane: int, outcome: Outcome) -> None:
        """Count the reward; restart all arms of the lane if the two halves of the arm's window differ too
        much.
        """
        arm = outcome.shown
        count(state.counts, lane, arm, outcome.reward)
        slide_window(state, lane, arm, outcome.reward)
        full = state.counts.plays[lane, arm] >= state.recent.shape[2]
        if full and abs(state.newer[lane, arm] - state.older[lane, arm]) > params.threshold:
            restart_halves(state, lane)
