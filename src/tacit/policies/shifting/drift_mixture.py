"""DriftMixture: hypotheses about when intent last shifted, plus a fading memory for drift and hidden shifts.

It differs from ``ShiftMixture`` in four ways: the deviation of an arm's log-odds accounts for the skew of the
Beta distribution (``odds``); new hypotheses are always added, and keep a part of the counts (``enter``); a
fading memory competes with the hypotheses by its predictions; and the weight of a warning follows from the
clicks after earlier warnings (``start_warning``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.classifiers.concepts import is_unusual
from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import OPEN_UNIT, enter, kernel
from tacit.core.part import float_range, one_word, param
from tacit.core.reward_range import RewardRange
from tacit.core.state_ranges import IntCount, ValueRange
from tacit.errors import InvalidValue
from tacit.policies.base import ADDED_LATER, About, ArmBeliefs, Impression, Outcome
from tacit.policies.shifting import graded_rewards, hypotheses, shift_mixture
from tacit.policies.shifting.graded_rewards import Evidence, GradedRewards
from tacit.policies.shifting.shared_priors import Priors, count_play, count_round, fit_all

# The memory's index, after the eight hypotheses.
MEMORY = hypotheses.HYPOTHESES
# The memory's prior weight, at first and whenever weight is redistributed.
MEMORY_WEIGHT = 0.2
# Share of all weight that is redistributed each round, per square root of the rate of changes; its maximum.
SHARE, MOST_SHARE = 0.1, 0.05
# The memory's discount per round, and the maximum number of plays of an arm in it.
MEMORY_DISCOUNT, MOST_PLAYS = 0.998, 30.0
# Below this scale, counts are rescaled to a scale of 1.
LEAST_SCALE = 1e-6
# Upper limit of the prior share of changes that are announced.
MOST_ANNOUNCED = 0.99
# Rounds after which a warning counts as right or wrong; the maximum probability of an announced change.
SETTLE_ROUNDS, MAX_CHANGE = 300, 0.98
# Share of announced changes that leave the best arm as it was; the ``epoch`` argument that stands for one.
UNSEEN, EXCEPT_LEADER = 0.5, -2
# Prior number of warnings, of which half of one was right, if changes are assumed to be announced.
PRIOR_WARNINGS = 2.0
# Plays that a new hypothesis takes over, per arm and expected change per round.
TAKEOVER_TURNS = 20.0


class Memory(NamedTuple):
    """Discounted counts of each lane, which fade whether or not rates change.

    Attributes
    ----------
    counts : array of float32, shape (lanes, arms, 2)
        Successes and failures of each arm, to be multiplied by ``scale``.
    scale : array of float64, shape (lanes,)
    weight : array of float64, shape (lanes,)
        Posterior probability of the memory against the hypotheses.
    """

    counts: npt.NDArray[np.float32]
    scale: Floats
    weight: Floats


@kernel
def memory_posterior(state: Any, lane: int, arm: int, factor: float) -> tuple[float, float]:
    """Return the two parameters, a and b, of an arm's Beta posterior under the lane's fading memory.

    ``factor`` is the number of clicks that a play counts as.
    """
    memory, beta = state.memory, state.shared.priors.beta
    a = beta[0, 1 + arm, 0] + factor * (memory.scale[lane] * float(memory.counts[lane, arm, 0]))
    b = beta[0, 1 + arm, 1] + factor * (memory.scale[lane] * float(memory.counts[lane, arm, 1]))
    return a, b


@kernel
def posterior(params: Any, state: Any, lane: int, h: int, arm: int) -> tuple[float, float]:
    """Return the two parameters, a and b, of an arm's Beta posterior under hypothesis ``h``, or under the
    memory if ``h`` is ``MEMORY``.

    In an open range of rewards, a key's counts may be in an older, smaller unit: they are rescaled, but the
    state does not change.
    """
    factor, ends = 1.0, params.ends
    if params.by_arm:
        factor = graded_rewards.count_equivalents(state.graded, lane, arm, ends)
    if h == MEMORY:
        a, b = memory_posterior(state, lane, arm, factor)
    else:
        a, b = hypotheses.posterior(state.own, state.shared.priors, lane, h, arm, factor)
    if ends < 2:
        ratio = graded_rewards.width_ratio(state.graded, lane)
        if ratio != 1.0:
            row = 1 + arm if h == MEMORY or state.own.kind[lane, h] == hypotheses.INITIAL else 0
            prior_a, prior_b = state.shared.priors.beta[0, row, 0], state.shared.priors.beta[0, row, 1]
            hits, misses = graded_rewards.rescale_counts(a - prior_a, b - prior_b, ratio, ends)
            a, b = prior_a + hits, prior_b + misses
    return a, b


@kernel
def rescale_lane(state: Any, lane: int, ends: int) -> None:
    """Rescale all counts of a lane, in place, if the width of an open range has grown since the lane last
    learned.
    """
    ratio = graded_rewards.enter_width(state.graded, lane)
    if ratio == 1.0:
        return
    lanes, memory = state.own, state.memory
    for arm in range(lanes.counts.shape[2]):
        for h in range(hypotheses.HYPOTHESES):
            rescale_pair(lanes.counts[lane, h, arm], ratio, ends)
        for epoch in range(lanes.epochs[lane]):
            rescale_pair(lanes.remembered[lane, epoch, arm], ratio, ends)
        rescale_pair(memory.counts[lane, arm], ratio, ends)


@kernel
def rescale_pair(counts: Any, ratio: float, ends: int) -> None:
    """Rescale an array of successes and failures, in place, to a width that is larger by ``ratio``."""
    counts[0], counts[1] = graded_rewards.rescale_counts(float(counts[0]), float(counts[1]), ratio, ends)


@kernel
def record_grade(params: Any, state: Any, lane: int, arm: int, reward: float) -> Evidence:
    """Add a graded reward to the statistics that all keys share; return the evidence that it is for its arm
    and key.

    Evidence is how many clicks the reward counts as, by the spread of the rewards of this arm and key. The
    reward is added to the squared surprises; before the key's first accepted change also to the data of the
    arm's prior. In an open range, the width may grow.
    """
    lanes, shared, graded, ends = state.own, state.shared, state.graded, params.ends
    # ``size`` is the reward in the caller's unit, ``scaled`` in [0, 1].
    size = reward
    if ends < 2:
        size = graded_rewards.grow_width(graded, arm, reward, ends)
        rescale_lane(state, lane, ends)
    scaled = graded_rewards.scale_reward(size, graded.exponent[0], ends)
    leading = lanes.leading[lane]
    a, b = posterior(params, state, lane, leading, arm)
    mean = a / (a + b)
    clicks = graded_rewards.count_equivalents(graded, lane, arm, ends)
    # Priors are fitted to data from before a key's first change.
    if lanes.found[lane] == 0 and ends == 2:
        counts = lanes.counts[lane, leading, arm]
        count_play(shared.priors, arm, float(counts[0]), float(counts[1]), scaled, 1.0 - scaled)
    graded_rewards.record_surprise(graded, lane, arm, size, mean, ends)
    return graded_rewards.weigh_reward(scaled, mean, clicks)


@kernel
def fit_open_priors(state: Any, ends: int) -> None:
    """Set the Beta priors of all arms, in place, to the one prior of an open range."""
    a, b = graded_rewards.open_prior(state.graded, ends)
    beta = state.shared.priors.beta[0]
    for row in range(beta.shape[0]):
        beta[row, 0], beta[row, 1] = a, b


@kernel
def update_memory(memory: Memory, lane: int, arm: int, hits: float, misses: float) -> None:
    """Discount the lane's memory by one round, and add successes (``hits``) and failures (``misses``) of the
    arm played.

    Counts are stored divided by ``scale``, so that a discount changes one number. An arm's counts are scaled
    down if they exceed 30 plays.
    """
    memory.scale[lane] *= MEMORY_DISCOUNT
    scale, counts = memory.scale[lane], memory.counts[lane, arm]
    counts[0] = float(counts[0]) + hits / scale
    counts[1] = float(counts[1]) + misses / scale
    plays = scale * (float(counts[0]) + float(counts[1]))
    if plays > MOST_PLAYS:
        counts[0] = float(counts[0]) * (MOST_PLAYS / plays)
        counts[1] = float(counts[1]) * (MOST_PLAYS / plays)
    if scale < LEAST_SCALE:
        for arm_index in range(memory.counts.shape[1]):
            for k in range(2):
                memory.counts[lane, arm_index, k] = scale * float(memory.counts[lane, arm_index, k])
        memory.scale[lane] = 1.0


@kernel
def silent_change_share(params: Any, state: Any, lane: int) -> float:
    """Return the estimated share of changes that no signal announces, from the changes accepted in all lanes.

    It is 1 without signals that announce changes, and while a warning is pending, as the announced change may
    be in an arm that is not shown.
    """
    if params.announced == 0.0 or state.warned[lane] > 0:
        return 1.0
    changes = state.shared.found
    total = changes.fresh[0] + changes.recalled[0]
    return float((1.0 - params.announced + max(total - changes.announced[0], 0.0)) / (1.0 + total))


@kernel
def weigh_memory(
    memory: Memory,
    lane: int,
    memory_likelihood: float,
    mixture_likelihood: float,
    share: float,
    prior_weight: float,
) -> None:
    """Update the memory's weight by Bayes' rule, from a reward's likelihood under the memory and under the
    hypotheses.

    Then a ``share`` of all weight is redistributed: ``prior_weight`` of it goes to the memory.
    """
    weight = memory.weight[lane] * memory_likelihood
    weight /= weight + (1.0 - memory.weight[lane]) * mixture_likelihood
    memory.weight[lane] = (1.0 - share) * weight + share * prior_weight


@kernel
def settle_warning(state: Any, lane: int) -> None:
    """Count the lane's pending warning as right or wrong, and clear it.

    In the lane's counts it is right if the hypotheses of a change since the warning have more than half of
    the weight; the counts of all lanes add this weight itself.
    """
    lanes, changes, support = state.own, state.shared.found, 0.0
    for h in range(hypotheses.HYPOTHESES):
        if lanes.born[lane, h] >= state.warned[lane]:
            support += lanes.weight[lane, h]
    lanes.warnings[lane] += 1
    lanes.announced[lane] += 1 if support > 0.5 else 0
    changes.warnings[0] += 1.0
    changes.announced[0] += support
    state.warned[lane] = 0


@kernel
def start_warning(params: Any, state: Any, lane: int) -> float:
    """Add hypotheses of a change that an unusual context announces; return the probability of the change.

    The probability is estimated from earlier warnings: how many there were, and how many were right. One of
    the hypotheses keeps the best arm's counts, as only plays of other arms can confirm such a change. Returns
    0 and adds nothing soon after another warning, or if the probability is below 0.002. An older pending
    warning is settled first.
    """
    lanes, changes = state.own, state.shared.found
    if state.warned[lane] > 0:
        if lanes.rounds[lane] < state.warned[lane] - 1 + hypotheses.WARNED_ROUNDS:
            return 0.0
        settle_warning(state, lane)
    before = 1.0 if params.announced == 0.0 else PRIOR_WARNINGS
    # The share of warnings that were right: of all keys, then of this one.
    general = (0.5 + changes.announced[0]) / (before + changes.warnings[0])
    change = min((general + lanes.announced[lane]) / (1.0 + lanes.warnings[lane]), MAX_CHANGE)
    if change < hypotheses.MIN_WARNING_CHANCE:
        return 0.0
    state.warned[lane] = 1 + lanes.rounds[lane]
    hypotheses.add_hypotheses(params, state, lane, change, 0)
    # A share ``UNSEEN`` of the change's weight goes to the hypothesis that the best arm stays as it was.
    for h in range(hypotheses.HYPOTHESES):
        if lanes.born[lane, h] == state.warned[lane]:
            lanes.weight[lane, h] *= 1.0 - UNSEEN
    enter(params, state, lane, UNSEEN * change, hypotheses.FRESH, EXCEPT_LEADER)
    return float(change)


@kernel
def check_drift_signals(
    params: Any, state: Any, lane: int, impression: Impression, margin: float | None
) -> None:
    """If the context is unusual, start a warning and multiply the memory's weight by 1 − its probability.

    The context is added to the usual ranges. Without a margin (None), do nothing.
    """
    if margin is not None and is_unusual(state.shared.usual, margin, impression.context):
        state.memory.weight[lane] *= 1.0 - start_warning(params, state, lane)


@kernel
def find_closest_pair(
    lanes: hypotheses.Hypotheses, priors: Priors, lane: int, means: Floats
) -> tuple[int, int]:
    """Return the two hypotheses of a lane whose merging loses least: the first is to be merged into the
    second.

    The loss is the smaller weight times the squared distance of their mean rewards. The first is neither the
    heaviest nor the accepted hypothesis. ``means``, of shape (8, arms), is a workspace that is overwritten.
    """
    arms, heaviest, first, second = lanes.counts.shape[2], hypotheses.find_heaviest(lanes, lane), -1, -1
    for h in range(hypotheses.HYPOTHESES):
        for arm in range(arms):
            a, b = hypotheses.posterior(lanes, priors, lane, h, arm, 1.0)
            means[h, arm] = a / (a + b)
    least = np.inf
    for i in range(hypotheses.HYPOTHESES):
        free = i != heaviest and i != lanes.leading[lane]
        for j in range(hypotheses.HYPOTHESES):
            if not free or i == j or lanes.weight[lane, j] == 0.0:
                continue
            distance = 0.0
            for arm in range(arms):
                distance += (means[i, arm] - means[j, arm]) ** 2
            # Merging replaces the lighter hypothesis's means by the other's.
            loss = min(lanes.weight[lane, i], lanes.weight[lane, j]) * distance
            if loss < least:
                least, first, second = loss, i, j
    return first, second


@dataclass(frozen=True)
class DriftMixture(shift_mixture.ShiftMixture):
    """Play the best arm under a drawn hypothesis about when intent last shifted, or under a fading memory.

    It extends ``ShiftMixture`` for many arms that drift and for shifts in arms that are not shown. A memory,
    discounted by rounds and limited in plays, competes with the hypotheses and is drawn by its weight. A new
    hypothesis takes over the part of the counts that cannot be learned again between two shifts. And
    hypotheses of similar rates are merged to make place for a new one.

    Parameters
    ----------
    arms : int or sequence of str
        Number of arms, or their names.
    context_dim : int, default 0
        Number of signals in a context, which may announce a shift.
    margin : float, default 0.1
        Distance from the usual range at which a signal is unusual, as a share of the range's width.
    notice_within : int, optional
        Number of impressions of a key within which a change in an arm that is not shown is to be noticed, at
        the price that :class:`ShiftMixture` states; by default there is no limit.
    priors : dict of arm to (float, float), optional
        Successes and failures of arms known beforehand, as :class:`ShiftMixture` uses them.
    announced : float, default 0.0
        Prior share of the changes that the signals in a context announce, from 0 to 0.99; its true value is
        learned over all keys. The remaining share is left to the memory and to hypotheses of unannounced
        changes. :func:`auto` sets 0.9 if there are signals.
    spread : "arm" or "all", default "arm"
        Whose rewards determine how many clicks a graded reward counts as: those of its arm and key, or those
        of all arms and keys, as in version 0.3.
    reward_range : (float, float), (float, None) or None, default (0, 1)
        The lowest and the highest reward. Where there is no highest one, rewards are scaled by the largest so
        far, and one above all earlier ones of its arm counts as the highest of these.

    Raises
    ------
    InvalidValue
        If a value is outside its range, changes are announced by a context of no numbers, or there are
        priors of an open range.

    See Also
    --------
    ShiftMixture : no memory; half the regret if nothing changes in 100,000 rounds, equal regret in 10,000.

    Examples
    --------
    A film is clicked less and less, and nothing announces it.

    >>> import tacit
    >>> learner = tacit.Learner(tacit.DriftMixture(["film", "show"]), seed=1)
    >>> for t in range(600):
    ...     decision = learner.choose("avatar")
    ...     best = "film" if t < 300 else "show"
    ...     assert learner.learn(decision, float(decision.arm == best))
    >>> learner.choose("avatar").arm
    'show'
    """

    class State(NamedTuple):
        own: hypotheses.Hypotheses
        memory: Memory
        shared: shift_mixture.SharedPriors
        means: Floats
        warned: IntCount
        graded: GradedRewards
        open: Annotated[npt.NDArray[np.int32], ValueRange(-(2**31))]

    takes_open_ranges: ClassVar[bool] = True
    earlier: ClassVar[Mapping[str, Any]] = MappingProxyType({"spread": "all"})
    sums: ClassVar[tuple[str, ...]] = (
        *shift_mixture.ShiftMixture.sums,
        "graded.sums",
        "graded.fractions",
        "graded.totals",
    )
    about: ClassVar[About] = About(
        source="ours; run lengths by Adams, MacKay (2007), priors by empirical Bayes over keys, memory by "
        "Gupta, Granmo, Agrawala (2011)",
        regret="none proved",
        assumes="that what changes shows in what is played within some hundred impressions of a key",
        fails="a shift that lifts an arm which is not shown is found late",
        otherwise="SlidingWindowUCB where such shifts are the rule, notice_within where large ones must be "
        "found; ExplorationFloor over it where logs shall answer for all arms",
        suits="arms known by their names, whether intent shifts or not: no knobs, exact propensities",
        weak="where nothing changes in 100,000 rounds, 3.2 ± 0.3 times the regret of Thompson (1.2 in "
        "10,000); changes unseen in what is not shown, 1.6 ± 0.1 times that of a window tuned for them",
    )

    weak_with: ClassVar[dict[str, str]] = {
        "announced": "changes that signals announce, but what is shown does not have, 2.1 ± 0.1 times the "
        "regret of who knows of them (1.8 with announced=0)"
    }

    announced: Annotated[float, float_range(0.0, MOST_ANNOUNCED)] = field(
        default=0.0, kw_only=True, metadata=ADDED_LATER
    )
    spread: Annotated[str, one_word("arm", "all")] = field(default="arm", kw_only=True, metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        """Validate the hyperparameters; raise InvalidValue for options that do not go together."""
        super().__post_init__()
        if self.priors and self.reward_range.is_open:
            remedy = "leave it out: of an open range there are no successes and failures to begin with"
            raise InvalidValue("priors", self.priors, remedy)
        if self.announced and not self.context_dim:
            raise InvalidValue("announced", self.announced, "leave it out, or give context_dim signals")

    @param
    def by_arm(self) -> bool:
        """Whether each arm of each key has its own estimate of the spread of its rewards."""
        return self.spread == "arm"

    @param
    def counts_open(self) -> bool:
        """Whether decisions that are not learned yet count in posteriors: only for rewards from 0 to a
        highest one.
        """
        return bool(self.ends == 2 and self.reward_range.low == 0.0)

    @param
    def ends(self) -> int:
        """Number of known ends of the reward range: 2, or fewer for an open range."""
        return int(self.reward_range.ends)

    @param
    def idle(self) -> float:
        """Weight below which a hypothesis is not drawn for decisions."""
        return 0.03

    @param
    def pace(self) -> float:
        """Factor by which the estimated rate of changes is multiplied."""
        return 0.5

    @param
    def floor(self) -> float:
        """Minimum of each parameter of a fitted Beta prior."""
        return 0.5

    def init(self, lanes: int) -> Any:
        """Return the initial state: that of ShiftMixture, and an empty memory with its prior weight."""
        base_state, arms = super().init(lanes), self.arm_count
        weight = np.full(lanes, MEMORY_WEIGHT * (1.0 - self.announced))
        memory = Memory(np.zeros((lanes, arms, 2), np.float32), np.ones(lanes), weight)
        return self.State(
            base_state.own,
            memory,
            base_state.shared,
            np.zeros((1, hypotheses.HYPOTHESES, arms)),
            np.zeros(lanes, np.int64),
            GradedRewards.initial(lanes, arms, self.ends),
            np.zeros((lanes, arms, 2), np.int32),
        )

    @staticmethod
    def count_open(params: Any, state: Any, lane: int, arm: int, hits: int, plays: int) -> None:
        """Add clicks (``hits``) and plays to the arm's counts of decisions that are not learned yet.

        They are integers in units of 1/OPEN_UNIT, and negative when a decision is learned. Does nothing for
        rewards that do not start at 0 or have no highest one.
        """
        if params.counts_open:
            state.open[lane, arm, 0] += hits
            state.open[lane, arm, 1] += plays

    @staticmethod
    def odds(params: Any, state: Any, lane: int, h: int, arm: int) -> tuple[float, float, float]:
        """Return an arm's two Beta parameters and the standard deviation of its log-odds under hypothesis
        ``h`` or the memory.

        Decisions that are not learned yet count. The deviation is an approximation that accounts for skew; it
        is reduced where changes are frequent, as exploration pays off less.
        """
        a, b = posterior(params, state, lane, h, arm)
        hits, plays = state.open[lane, arm, 0], state.open[lane, arm, 1]
        if plays > 0 or hits > 0:
            a += hits / OPEN_UNIT
            b += max(plays - hits, 0) / OPEN_UNIT
        # Approximates the variance of ln(p/(1 − p)), p of Beta(a, b), with account of its skew.
        variance = 1.0 / (a + 0.85 * np.sqrt(a) + 0.5) + (b + 1.6 + 0.9 * np.sqrt(b)) / (b * b)
        # Expected number of changes while each arm is played once.
        turns = state.own.counts.shape[2] * hypotheses.change_rate(state.own, lane)
        return a, b, float(np.sqrt(variance)) / (1.0 + turns)

    @staticmethod
    def enter(params: Any, state: Any, lane: int, weight: float, kind: int, epoch: int) -> None:
        """Add a hypothesis of a change just now to a lane, of a ``weight`` and ``kind``.

        It replaces the lightest hypothesis; if that has at least this weight, the two most similar hypotheses
        are merged and it takes the place of one. Its counts are those stored for an ``epoch``. With a
        negative ``epoch`` they are a part of the heaviest hypothesis's: TAKEOVER_TURNS plays per arm and
        expected change; with ``EXCEPT_LEADER`` the leader's are taken over in full.
        """
        lanes = state.own
        source, h = hypotheses.find_heaviest(lanes, lane), hypotheses.find_lightest(lanes, lane)
        # No hypothesis is lighter than the new one: make a place by merging.
        if lanes.weight[lane, h] >= weight:
            h, target = find_closest_pair(lanes, state.shared.priors, lane, state.means[0])
            lanes.weight[lane, target] += lanes.weight[lane, h]
        hypotheses.set_hypothesis(lanes, lane, h, weight, kind)
        most = TAKEOVER_TURNS * lanes.counts.shape[2] * hypotheses.change_rate(lanes, lane)
        leader = hypotheses.find_leader(lanes, state.shared.priors, lane, lanes.counts[lane, source], 1.0)
        for arm in range(lanes.counts.shape[2]):
            counts = lanes.counts[lane, source, arm]
            hits, misses = float(counts[0]), float(counts[1])
            # The part of the arm's counts that is taken over.
            part = min(1.0, most / max(hits + misses, 1.0))
            if epoch == EXCEPT_LEADER and arm == leader:
                part = 1.0
            if epoch >= 0:
                part, hits = 1.0, hypotheses.epoch_count(lanes, lane, epoch, arm, 0)
                misses = hypotheses.epoch_count(lanes, lane, epoch, arm, 1)
            lanes.counts[lane, h, arm, 0], lanes.counts[lane, h, arm, 1] = part * hits, part * misses

    @staticmethod
    def observe(params: Any, state: Any, lane: int, impression: Impression) -> None:
        """Start a warning if the context is unusual; do nothing without signals."""
        check_drift_signals(params, state, lane, impression, params.signal_margin)

    @staticmethod
    def choose(params: Any, state: Any, lane: int, impression: Impression, rng: Generator) -> int:
        """Draw the memory or an active hypothesis by weight, and return an arm drawn from its posteriors.

        With probability ``exploration``, return an arm drawn uniformly.
        """
        if params.exploration > 0.0 and rng.random() < params.exploration:
            return int(impression.arms[int(rng.random() * len(impression.arms))])
        h, uniform, weight = MEMORY, rng.random(), state.memory.weight[lane]
        if uniform >= weight:
            h = hypotheses.draw_hypothesis(state.own, lane, (uniform - weight) / (1.0 - weight), params.idle)
        return shift_mixture.draw_arm(params, state, lane, h, impression, rng)

    @staticmethod
    def propensity(params: Any, state: Any, lane: int, impression: Impression, arm: int) -> float:
        """Return the probability of an arm, summed over the memory, the active hypotheses and exploration."""
        weight = state.memory.weight[lane]
        chance = shift_mixture.mixture_chance(params, state, lane, impression, arm, 1.0 - weight)
        chance += weight * shift_mixture.arm_chance(params, state, lane, MEMORY, impression, arm)
        # Weights sum up to 1 but for rounding.
        return min(
            1.0, float((1.0 - params.exploration) * chance + params.exploration / len(impression.arms))
        )

    @staticmethod
    def learn(params: Any, state: Any, lane: int, outcome: Outcome) -> None:
        """Weigh hypotheses and memory by the reward's likelihood, and add the reward to their counts.

        Then, each when due: accept a change that has become likely, add hypotheses, settle a pending warning,
        and fit the priors and spreads that all keys share.
        """
        arm, lanes, shared = outcome.shown, state.own, state.shared
        # The share of weight that is redistributed between memory and hypotheses.
        share = min(MOST_SHARE, SHARE * float(np.sqrt(hypotheses.change_rate(lanes, lane))))
        if params.by_arm:
            evidence = record_grade(params, state, lane, arm, outcome.reward)
        else:
            evidence = shift_mixture.record_reward(params, state, lane, arm, outcome.reward)
        a, b = memory_posterior(state, lane, arm, evidence.factor)
        total_weight = 0.0
        for h in range(hypotheses.HYPOTHESES):
            total_weight += lanes.weight[lane, h]
        mixture_likelihood = (
            hypotheses.update_weights(lanes, shared.priors, lane, arm, evidence) / total_weight
        )
        part = silent_change_share(params, state, lane)
        memory_likelihood = hypotheses.reward_likelihood(a, b, evidence.likely, evidence.clicks)
        weigh_memory(state.memory, lane, memory_likelihood, mixture_likelihood, share, MEMORY_WEIGHT * part)
        hit, miss = evidence.plays * evidence.reward, evidence.plays * (1.0 - evidence.reward)
        update_memory(state.memory, lane, arm, hit, miss)
        hypotheses.accept_change(params, state, lane)
        hypotheses.advance_round(params, state, lane, part)
        if state.warned[lane] > 0 and lanes.rounds[lane] >= state.warned[lane] - 1 + SETTLE_ROUNDS:
            settle_warning(state, lane)
        if params.by_arm and graded_rewards.is_fit_due(state.graded):
            graded_rewards.fit_equivalents(state.graded, params.ends)
        if params.ends < 2:
            fit_open_priors(state, params.ends)
        else:
            count_round(shared.priors, params.prior_betas, params.floor)

    def beliefs(self, state: Any, lane: int) -> ArmBeliefs:
        """Return the posteriors of a lane's arms under the heaviest of its memory and its hypotheses.

        Plays are counts of rewards; in the posteriors, a graded reward may count as several clicks.
        """
        memory, lanes = state.memory, state.own
        heaviest = int(lanes.weight[lane].argmax())
        if memory.weight[lane] > (1.0 - memory.weight[lane]) * lanes.weight[lane, heaviest]:
            heaviest, counts = MEMORY, memory.scale[lane] * memory.counts[lane].astype(np.float64)
        else:
            counts = lanes.counts[lane, heaviest].astype(np.float64)
        arms = range(len(counts))
        posteriors = np.array([posterior(self.params, state, lane, heaviest, arm) for arm in arms])
        return ArmBeliefs.from_posteriors(counts.sum(axis=1), *posteriors.T)

    def read_unit(self, state: Any) -> RewardRange:
        """Return the range whose ends are 0 and 1 in a state; the policy's open range before the first reward
        that is not 0.
        """
        exponent = int(state.graded.exponent[0])
        if exponent == graded_rewards.NO_WIDTH:
            return self.reward_range  # type: ignore[no-any-return]
        width = math.ldexp(1.0, exponent)
        return (
            RewardRange(-width, width)
            if self.ends == 0
            else RewardRange(low := self.reward_range.low, low + width)
        )

    @staticmethod
    def estimate(params: Any, state: Any, lane: int, arm: int) -> float:
        """Return an arm's mean reward in [0, 1] under the accepted hypothesis; 0 before its first play."""
        counts = state.own.counts[lane, state.own.leading[lane], arm]
        hits, misses = float(counts[0]), float(counts[1])
        if params.ends < 2:
            ratio = graded_rewards.width_ratio(state.graded, lane)
            hits, misses = graded_rewards.rescale_counts(hits, misses, ratio, params.ends)
        return hits / (hits + misses) if hits + misses > 0.0 else 0.0

    @staticmethod
    def refit(params: Any, state: Any) -> None:
        """Recompute the priors of arms and how many clicks a reward counts as, from the statistics of all
        keys.
        """
        graded = state.graded
        if params.ends == 2:
            fit_all(state.shared.priors, params.prior_betas, params.floor)
        else:
            for lane in range(len(graded.key_exponent)):
                graded.exponent[0] = max(graded.exponent[0], graded.key_exponent[lane])
            fit_open_priors(state, params.ends)
        if params.by_arm:
            graded_rewards.fit_equivalents(graded, params.ends)

    @staticmethod
    def restart(params: Any, state: Any, lane: int) -> None:
        """Reset the hypotheses, the memory and the pending warning of a lane; state that all keys share
        stays.
        """
        hypotheses.reset_lane(state.own, lane)
        state.memory.counts[lane] = 0.0
        state.memory.scale[lane] = 1.0
        state.warned[lane] = 0
        state.graded.key_sums[lane] = 0.0
        state.memory.weight[lane] = MEMORY_WEIGHT * silent_change_share(params, state, lane)
