"""A mixture over when intent last shifted, beside a memory that fades: for shifts that hide.

It is ``ShiftMixture`` but for four things, each said once below: lines that know how unlike a Beta's two
sides are (``odds``), newcomers that are never refused and do not forget everything (``enter``), the
memory, drawn beside the hypotheses by what it foretold, and warnings, which are believed as far as what
was clicked after earlier ones bears them out (``take_warning``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.classifiers.concepts import is_unusual
from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import OPEN_UNIT, enter, kernel
from tacit.core.part import param, within
from tacit.core.state_ranges import IntCount, ValueRange
from tacit.errors import InvalidValue
from tacit.policies.base import About, ArmBeliefs, Impression, Outcome
from tacit.policies.index import LATER
from tacit.policies.shifting import hypotheses, shift_mixture
from tacit.policies.shifting.shared_priors import Priors, count_round

# Where eight hypotheses are counted, the memory is the ninth.
MEMORY = hypotheses.HYPOTHESES
# What the memory weighs at first, and is dealt of all weight that is dealt anew.
MEMORY_WEIGHT = 0.2
# The share of all weight that is dealt anew each round, by the root of how often rates change; the most.
SHARE, MOST_SHARE = 0.1, 0.05
# How much of its counts the memory keeps a round, and how many plays of an arm it knows at most.
KEPT, MOST_PLAYS = 0.998, 30.0
# Below this scale, counts are brought back to a scale of 1.
LEAST_SCALE = 1e-6
# The most that the share of changes which are announced may be supposed to be.
MOST_ANNOUNCED = 0.99
# After so many rounds it is known how far a warning was right; none is believed more than this.
SETTLED, SUREST = 300, 0.98
# How often an announced change leaves the best arm as it was; in place of an earlier epoch, that it does.
UNSEEN, BUT_LEADER = 0.5, -2
# Where changes are held to be announced, half a warning of so many is held to have been right before any.
WARNED_BEFORE = 2.0
# How many plays a new hypothesis takes over, in turns of all arms between two changes.
TURNS = 20.0


class Memory(NamedTuple):
    """What each lane has seen of late, whatever has changed.

    Attributes
    ----------
    counts : array of float32, shape (lanes, arms, 2)
        Successes and failures of each arm, of which ``scale`` is left by now.
    scale : array of float64, shape (lanes,)
    weight : array of float64, shape (lanes,)
        Probability that the memory foretells better than the hypotheses.
    """

    counts: npt.NDArray[np.float32]
    scale: Floats
    weight: Floats


@kernel
def remembered(state: Any, lane: int, arm: int) -> tuple[float, float]:
    """Return the parameters of the Beta posterior of an arm by the memory."""
    memory, beta = state.memory, state.shared.priors.beta
    a = beta[0, 1 + arm, 0] + memory.scale[lane] * float(memory.counts[lane, arm, 0])
    b = beta[0, 1 + arm, 1] + memory.scale[lane] * float(memory.counts[lane, arm, 1])
    return a, b


@kernel
def fade(memory: Memory, lane: int, arm: int, hits: float, misses: float) -> None:
    """Let a round pass in which an arm had so many successes and failures."""
    memory.scale[lane] *= KEPT
    scale, counts = memory.scale[lane], memory.counts[lane, arm]
    counts[0] = float(counts[0]) + hits / scale
    counts[1] = float(counts[1]) + misses / scale
    plays = scale * (float(counts[0]) + float(counts[1]))
    if plays > MOST_PLAYS:
        counts[0] = float(counts[0]) * (MOST_PLAYS / plays)
        counts[1] = float(counts[1]) * (MOST_PLAYS / plays)
    if scale < LEAST_SCALE:
        for each in range(memory.counts.shape[1]):
            for k in range(2):
                memory.counts[lane, each, k] = scale * float(memory.counts[lane, each, k])
        memory.scale[lane] = 1.0


@kernel
def unannounced(params: Any, state: Any, lane: int) -> float:
    """Return how large a share of changes nothing announces, by those that were found in all lanes.

    After a warning it is as if all were: what was announced may be in an arm that is not shown.
    """
    if params.announced == 0.0 or state.warned[lane] > 0:
        return 1.0
    found = state.shared.found
    changes = found.fresh[0] + found.recalled[0]
    return float((1.0 - params.announced + max(changes - found.announced[0], 0.0)) / (1.0 + changes))


@kernel
def weigh_memory(
    memory: Memory, lane: int, remembers: float, foretells: float, share: float, dealt: float
) -> None:
    """Weigh the memory by how likely it and the hypotheses made a reward; deal out a share of all anew."""
    weight = memory.weight[lane] * remembers
    weight /= weight + (1.0 - memory.weight[lane]) * foretells
    memory.weight[lane] = (1.0 - share) * weight + share * dealt


@kernel
def settle(state: Any, lane: int) -> None:
    """Count the warning that waits as far as it was right: by the weight of a change since."""
    own, found, right = state.own, state.shared.found, 0.0
    for h in range(hypotheses.HYPOTHESES):
        if own.born[lane, h] >= state.warned[lane]:
            right += own.weight[lane, h]
    own.warnings[lane] += 1
    own.announced[lane] += 1 if right > 0.5 else 0
    found.warnings[0] += 1.0
    found.announced[0] += right
    state.warned[lane] = 0


@kernel
def take_warning(params: Any, state: Any, lane: int) -> float:
    """Take in a context that announces a change, as far as earlier ones were right: return how far.

    What it announces may leave the best arm as it was, so that only what is not shown can bear it out.
    """
    own, found = state.own, state.shared.found
    if state.warned[lane] > 0:
        if own.rounds[lane] < state.warned[lane] - 1 + hypotheses.WARNED_ROUNDS:
            return 0.0
        settle(state, lane)
    before = 1.0 if params.announced == 0.0 else WARNED_BEFORE
    general = (0.5 + found.announced[0]) / (before + found.warnings[0])
    change = min((general + own.announced[lane]) / (1.0 + own.warnings[lane]), SUREST)
    if change < hypotheses.WORTHLESS:
        return 0.0
    state.warned[lane] = 1 + own.rounds[lane]
    hypotheses.add_hypotheses(params, state, lane, change, 0)
    for h in range(hypotheses.HYPOTHESES):
        if own.born[lane, h] == state.warned[lane]:
            own.weight[lane, h] *= 1.0 - UNSEEN
    enter(params, state, lane, UNSEEN * change, hypotheses.FRESH, BUT_LEADER)
    return float(change)


@kernel
def heed_by_memory(params: Any, state: Any, lane: int, impression: Impression, margin: float | None) -> None:
    """Take in what a context may announce; nothing without a margin."""
    if margin is not None and is_unusual(state.shared.usual, margin, impression.context):
        state.memory.weight[lane] *= 1.0 - take_warning(params, state, lane)


@kernel
def most_alike(own: hypotheses.Hypotheses, priors: Priors, lane: int, means: Floats) -> tuple[int, int]:
    """Return the hypotheses that are merged at least loss, the first into the second."""
    arms, heaviest, first, second = own.counts.shape[2], hypotheses.heaviest_of(own, lane), -1, -1
    for h in range(hypotheses.HYPOTHESES):
        for arm in range(arms):
            a, b = hypotheses.posterior(own, priors, lane, h, arm)
            means[h, arm] = a / (a + b)
    least = np.inf
    for i in range(hypotheses.HYPOTHESES):
        free = i != heaviest and i != own.leading[lane]
        for j in range(hypotheses.HYPOTHESES):
            if not free or i == j or own.weight[lane, j] == 0.0:
                continue
            apart = 0.0
            for arm in range(arms):
                apart += (means[i, arm] - means[j, arm]) ** 2
            loss = min(own.weight[lane, i], own.weight[lane, j]) * apart
            if loss < least:
                least, first, second = loss, i, j
    return first, second


@dataclass(frozen=True, repr=False)
class DriftMixture(shift_mixture.ShiftMixture):
    """Play what is best under a drawn hypothesis about when intent last shifted, or by a fading memory.

    As ``ShiftMixture``, with what that one lacks where many arms drift or a shift hides in an arm which is
    not shown: a memory that forgets by age and by play foretells beside the hypotheses and is drawn by its
    weight; a new hypothesis takes over as much of what was known as can't be learned anew between two
    shifts; and the pool of hypotheses merges what foretells alike rather than refuse a newcomer.

    Parameters
    ----------
    arms, context_dim, margin, notice_within, priors
        As in ``ShiftMixture``.
    announced : float, default 0.0
        How large a share of changes the signals in a context are held to announce before any was found,
        from 0 to 0.99; the keys teach how large it is. The memory and hypotheses that nothing announced
        count as much as the rest. :func:`auto` takes 0.9 where there are signals.

    Raises
    ------
    InvalidValue
        If a value is outside its range, or changes are announced by a context of no numbers.

    See Also
    --------
    ShiftMixture : no memory: half the regret where nothing changes in 100,000 rounds, level in 10,000.

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
        shared: shift_mixture.SharedByKeys
        means: Floats
        warned: IntCount
        open: Annotated[npt.NDArray[np.int32], ValueRange(-(2**31))]

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

    announced: Annotated[float, within(0.0, MOST_ANNOUNCED)] = field(
        default=0.0, kw_only=True, metadata=LATER
    )

    @property
    def weak(self) -> str:
        if not self.announced:
            return super().weak
        cost = "2.1 ± 0.1 times the regret of who knows of them (1.8 with announced=0)"
        return f"{super().weak}; changes that signals announce, but what is shown does not have, {cost}"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.announced and not self.context_dim:
            raise InvalidValue("announced", self.announced, "leave it out, or give context_dim signals")

    @param
    def idle(self) -> float:
        """The least weight of a hypothesis that decides."""
        return 0.03

    @param
    def pace(self) -> float:
        """How many changes are expected for each that was found."""
        return 0.5

    @param
    def floor(self) -> float:
        """The least that a parameter of a fitted prior may be."""
        return 0.5

    def init(self, lanes: int) -> Any:
        begun, arms = super().init(lanes), self.arm_count
        weight = np.full(lanes, MEMORY_WEIGHT * (1.0 - self.announced))
        memory = Memory(np.zeros((lanes, arms, 2), np.float32), np.ones(lanes), weight)
        return self.State(
            begun.own,
            memory,
            begun.shared,
            np.zeros((1, hypotheses.HYPOTHESES, arms)),
            np.zeros(lanes, np.int64),
            np.zeros((lanes, arms, 2), np.int32),
        )

    @staticmethod
    def count_open(params: Any, state: Any, lane: int, arm: int, hits: int, plays: int) -> None:
        state.open[lane, arm, 0] += hits
        state.open[lane, arm, 1] += plays

    @staticmethod
    def odds(params: Any, state: Any, lane: int, h: int, arm: int) -> tuple[float, float, float]:
        if h == MEMORY:
            a, b = remembered(state, lane, arm)
        else:
            a, b = hypotheses.posterior(state.own, state.shared.priors, lane, h, arm)
        hits, plays = state.open[lane, arm, 0], state.open[lane, arm, 1]
        if plays > 0 or hits > 0:
            a += hits / OPEN_UNIT
            b += max(plays - hits, 0) / OPEN_UNIT
        variance = 1.0 / (a + 0.85 * np.sqrt(a) + 0.5) + (b + 1.6 + 0.9 * np.sqrt(b)) / (b * b)
        turns = state.own.counts.shape[2] * hypotheses.rate_of(state.own, lane)
        return a, b, float(np.sqrt(variance)) / (1.0 + turns)

    @staticmethod
    def enter(params: Any, state: Any, lane: int, weight: float, kind: int, epoch: int) -> None:
        own = state.own
        source, h = hypotheses.heaviest_of(own, lane), hypotheses.lightest_of(own, lane)
        if own.weight[lane, h] >= weight:
            h, kept = most_alike(own, state.shared.priors, lane, state.means[0])
            own.weight[lane, kept] += own.weight[lane, h]
        hypotheses.place_hypothesis(own, lane, h, weight, kind)
        most = TURNS * own.counts.shape[2] * hypotheses.rate_of(own, lane)
        leader = hypotheses.leader_of(own, state.shared.priors, lane, own.counts[lane, source], 1.0)
        for arm in range(own.counts.shape[2]):
            hits, misses = float(own.counts[lane, source, arm, 0]), float(own.counts[lane, source, arm, 1])
            part = min(1.0, most / max(hits + misses, 1.0))
            if epoch == BUT_LEADER and arm == leader:
                part = 1.0
            if epoch >= 0:
                part, hits = 1.0, hypotheses.remembered_of(own, lane, epoch, arm, 0)
                misses = hypotheses.remembered_of(own, lane, epoch, arm, 1)
            own.counts[lane, h, arm, 0], own.counts[lane, h, arm, 1] = part * hits, part * misses

    @staticmethod
    def observe(params: Any, state: Any, lane: int, impression: Impression) -> None:
        heed_by_memory(params, state, lane, impression, params.heeded)

    @staticmethod
    def choose(params: Any, state: Any, lane: int, impression: Impression, rng: Generator) -> int:
        if params.exploration > 0.0 and rng.random() < params.exploration:
            return int(impression.arms[int(rng.random() * len(impression.arms))])
        h, uniform, weight = MEMORY, rng.random(), state.memory.weight[lane]
        if uniform >= weight:
            h = hypotheses.drawn(state.own, lane, (uniform - weight) / (1.0 - weight), params.idle)
        return shift_mixture.play_under(params, state, lane, h, impression, rng)

    @staticmethod
    def propensity(params: Any, state: Any, lane: int, impression: Impression, arm: int) -> float:
        weight = state.memory.weight[lane]
        found = shift_mixture.chance_over(params, state, lane, impression, arm, 1.0 - weight)
        found += weight * shift_mixture.chance_under(params, state, lane, MEMORY, impression, arm)
        # Weights sum up to 1 but for rounding.
        return min(1.0, float((1.0 - params.exploration) * found + params.exploration / len(impression.arms)))

    @staticmethod
    def learn(params: Any, state: Any, lane: int, outcome: Outcome) -> None:
        arm, reward, own, shared = outcome.shown, outcome.reward, state.own, state.shared
        share = min(MOST_SHARE, SHARE * float(np.sqrt(hypotheses.rate_of(own, lane))))
        scale = shift_mixture.note_reward(params, state, lane, arm, reward)
        a, b = remembered(state, lane, arm)
        known = 0.0
        for h in range(hypotheses.HYPOTHESES):
            known += own.weight[lane, h]
        foretells = hypotheses.weigh(own, shared.priors, lane, arm, reward, scale) / known
        part = unannounced(params, state, lane)
        remembers = hypotheses.likelihood_of(a, b, reward, scale)
        weigh_memory(state.memory, lane, remembers, foretells, share, MEMORY_WEIGHT * part)
        fade(state.memory, lane, arm, scale * reward, scale * (1.0 - reward))
        hypotheses.believe(params, state, lane)
        hypotheses.pass_round(params, state, lane, part)
        if state.warned[lane] > 0 and own.rounds[lane] >= state.warned[lane] - 1 + SETTLED:
            settle(state, lane)
        count_round(shared.priors, params.prior_betas, params.floor)

    def beliefs(self, state: Any, lane: int) -> ArmBeliefs:
        """Return the posteriors of the arms by what decides most: the memory or a hypothesis."""
        memory = state.memory
        if memory.weight[lane] <= (1.0 - memory.weight[lane]) * state.own.weight[lane].max():
            return super().beliefs(state, lane)
        counts = memory.scale[lane] * memory.counts[lane].astype(np.float64)
        return ArmBeliefs.of_posteriors(counts.sum(axis=1), *(state.shared.priors.beta[0, 1:] + counts).T)

    @staticmethod
    def restart(params: Any, state: Any, lane: int) -> None:
        hypotheses.forget_lane(state.own, lane)
        state.memory.counts[lane] = 0.0
        state.memory.scale[lane] = 1.0
        state.warned[lane] = 0
        state.memory.weight[lane] = MEMORY_WEIGHT * unannounced(params, state, lane)
