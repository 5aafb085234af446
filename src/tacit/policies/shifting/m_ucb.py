"""M-UCB: restart when the halves of an arm's latest rewards differ (Cao et al. 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tacit.core import checks
from tacit.core.arrays import Floats, Ints
from tacit.core.dispatch import kernel
from tacit.core.ranges import Fraction, Positive, whole
from tacit.errors import InvalidValue
from tacit.policies.base import About, Counts, Outcome, count, forget
from tacit.policies.shifting.detector import ForcingDetector


class HalvesState(NamedTuple):
    """Counts since the restart, and the latest rewards of each arm with the sums of their halves.

    Attributes
    ----------
    counts : Counts
    recent : array of float32, shape (lanes, arms, window)
        A ring per arm.
    older, newer : array of float64, shape (lanes, arms)
    shown : array of int64, shape (lanes,)
        Impressions since the restart.
    restarts : array of int64, shape (lanes,)
    """

    counts: Counts
    recent: npt.NDArray[np.float32]
    older: Floats
    newer: Floats
    shown: Ints
    restarts: Ints


@kernel
def slide(state: HalvesState, lane: int, arm: int, reward: float) -> None:
    """Move an arm's window on by the reward of its latest play, which is already counted."""
    window = state.recent.shape[2]
    played = int(state.counts.plays[lane, arm])
    slot = (played - 1) % window
    if played > window:
        state.older[lane, arm] -= state.recent[lane, arm, slot]
    state.recent[lane, arm, slot] = reward
    state.newer[lane, arm] += state.recent[lane, arm, slot]
    if played > window // 2:
        middle = state.recent[lane, arm, (played - 1 - window // 2) % window]
        state.newer[lane, arm] -= middle
        state.older[lane, arm] += middle


@kernel
def restart_halves(state: HalvesState, lane: int) -> None:
    """Forget what a lane has learned; what is left in the rings is overwritten before use."""
    forget(state.counts, lane)
    state.older[lane, :] = 0.0
    state.newer[lane, :] = 0.0
    state.shown[lane] = 0
    state.restarts[lane] += 1


@dataclass(frozen=True)
class MUCB(ForcingDetector):
    """Play UCB1, explore in turn, and restart when the two halves of a window differ.

    Of every ⌊arms/γ⌋ impressions since the restart the first show each arm once. Otherwise, with
    N the plays of an arm since the restart, μ their mean reward and t the round since then, the
    index is μ + sqrt(2·ln t/N). When the rewards of the last w/2 plays of the arm just played
    and those of the w/2 plays before sum to numbers that are more than b apart, all arms are
    restarted, and the lane has a new epoch.

    A round costs O(1) but for the indices and, at a restart, O(arms). A lane takes
    4·arms·window + 32·arms + 24 bytes: 16 kB for 5 arms with the default window. The rewards in
    the windows are kept in single precision, in which clicks are exact.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    window : int, default 800
        The plays w that are compared; even, at least 2.
    threshold : float, default 100
        The difference b of an alarm; above 0. Above window/2 there is none.
    gamma : float, default 0.05
        Share γ of forced exploration, in [0, 1]. An arm of K that is not played otherwise gets γ/K
        of the rounds: with 40 arms and the default one in 800, so that its window takes 640 000
        rounds to fill, and only changes of arms that are played much are found.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Cao, Wen, Kveton, Xie (2019), "Nearly optimal adaptive procedure with change detection for
    piecewise-stationary bandit", algorithms CD and M-UCB. The default window is that of its
    experiments, the default threshold about that of its rule for 100 000 rounds and 5 arms. The
    paper itself was not at hand to check against: w, b, the test and the exploration are those of
    two other implementations, of SMPyBandits and of the authors of GLR-klUCB. Both run
    γ = sqrt(Υ·K·(2·b + 3·sqrt(w))/(2·T)) in experiments, as SMPyBandits says that the paper does.

    Examples
    --------
    >>> policy = MUCB.tuned(arms=5, horizon=100_000, shifts=5, change=1.0)
    >>> policy.window, round(policy.threshold, 2), round(policy.gamma, 3)
    (292, 60.81, 0.118)
    """

    class Params(NamedTuple):
        threshold: float
        share: float

    about: ClassVar[About] = About(
        source="Cao, Wen, Kveton, Xie (2019), M-UCB",
        regret="O(sqrt(M·K·T·ln T)) with M segments in T rounds, tuned",
        assumes="changes of a known least size, with window plays of every arm between them",
        fails="smaller changes, and sooner ones, go unnoticed",
        otherwise="GLRKLUCB, which needs no size of a change and no window",
    )
    begins_in_turn: ClassVar[bool] = True

    window: Annotated[int, whole(2, 2**31)] = 800
    threshold: Positive = 100.0
    gamma: Fraction = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window % 2:
            raise InvalidValue("window", self.window, "give an even number")

    @classmethod
    def tuned(cls, arms: int | tuple[str, ...], horizon: int, shifts: int, change: float = 0.5) -> Self:
        """Return the policy with w, b and γ by the published rules.

        With K arms, T rounds, Υ shifts and changes of at least δ,
        w = 4/δ²·(sqrt(ln(2·K·T²)) + sqrt(ln(2·T)))², b = sqrt(w·ln(2·K·T²)/2) and
        γ = sqrt(Υ·K·min(w/2, ⌈b/δ⌉ + 3·sqrt(w))/(2·T)), which weighs the rounds that forced
        exploration costs against the delay of a detection.

        Parameters
        ----------
        arms : int or sequence of str
        horizon : int
            Rounds T of a key; at least 2.
        shifts : int
            How often, Υ, its click probabilities change in them; from 1 to half of the rounds.
        change : float, default 0.5
            Least change δ of an arm's click probability that is to be found; in (0, 1].

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

    @property
    def share(self) -> float:
        """Share of forced exploration."""
        return self.gamma

    def init(self, lanes: int) -> HalvesState:
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
    def confidence(params: Params, state: HalvesState, lane: int) -> float:
        return float(np.sqrt(2.0 * np.log(state.counts.rounds[lane] + 1.0)))

    @staticmethod
    def learn(params: Params, state: HalvesState, lane: int, outcome: Outcome) -> None:
        arm = outcome.shown
        count(state.counts, lane, arm, outcome.reward)
        slide(state, lane, arm, outcome.reward)
        full = state.counts.plays[lane, arm] >= state.recent.shape[2]
        if full and abs(state.newer[lane, arm] - state.older[lane, arm]) > params.threshold:
            restart_halves(state, lane)
