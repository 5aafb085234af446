"""Thompson sampling for duels: SelfSparring, by key, and FeelGoodThompson, by contexts."""

# 1. ``SelfSparring``: two draws from one sampler.
# 2. ``beta_mean``, ``update_tail``, ``set_level``: stored probabilities, so that few arms need a random draw.
# 3. ``draw_arm``: the arm of the largest draw; only arms whose draw exceeds the level are drawn.
# 4. ``FeelGoodThompson``: utilities of arms that depend on the context.

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core.arrays import Floats, Generator, borrow_array, release_array
from tacit.core.dispatch import kernel
from tacit.core.part import Positive, float_range, int_range
from tacit.core.state_ranges import ArmIndex, Count, ValueRange
from tacit.policies.actions import Duel, DuelPolicy
from tacit.policies.base import About, Impression, Outcome
from tacit.policies.features.gaussian import dot, learn_logit, project
from tacit.policies.stationary.beta_maximum import beta_tail, draw_above, probability_largest


@dataclass(frozen=True)
class SelfSparring(DuelPolicy):
    """Draw each side of the duel by Thompson sampling from one posterior of wins and losses.

    An arm's posterior is Beta(1 + wins, 1 + losses) over all its duels, against all arms. A tie
    counts as half a win and half a loss for both arms; an arm that duels itself has a win and
    a loss. The propensity is exact, to 1e-7.

    Often the best in the median, but wins against weak arms may keep a close
    second ahead of the best arm for long: look at quantiles.

    For speed, the state has a level that the leading arm's draw almost surely exceeds, and for each other
    arm the probability that its draw does; numbers are drawn only for arms that do. This is exact.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    eta : float, default 1
        Weight of a duel; above 0. A smaller one learns more slowly and more safely.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Sui, Zhuang, Burdick, Yue (2017), "Multi-dueling bandits with dependent arms", algorithm 2
    (independent self-sparring) with m = 2.

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.policies.baselines.SelfSparring(arms=2), seed=1)
    >>> round(learner.choose("query").propensity, 6)
    0.25
    """

    class State(NamedTuple):
        wins: Count  # (lanes, arms)
        losses: Count  # (lanes, arms)
        leader: ArmIndex  # (lanes,) an arm that is likely to have the largest draw
        level: Annotated[Floats, ValueRange(0, 1)]  # (lanes,) the leader's draw exceeds it almost surely
        below: Annotated[Floats, ValueRange(-1, 1)]  # (lanes, arms) probability that a draw does not, or −1
        due: Floats  # (lanes,) duels of the leader at which the level is next set

    about: ClassVar[About] = About(
        source="Sui, Zhuang, Burdick, Yue (2017), algorithm 2",
        regret="asymptotically O(K·ln T/Δ) for arms with a linear order",
        assumes="a total order with clear gaps; preferences that never change",
        fails="may commit to the second best",
        otherwise="RMED1, where the best two arms are close: its regret has no heavy tail",
    )

    eta: Annotated[float, float_range(0.0, 1000.0, open_low=True)] = 1.0

    def init(self, lanes: int) -> State:
        """Return the state of ``lanes`` keys before the first duel, with uniform posteriors."""
        shape = (lanes, self.arm_count)
        return self.State(
            wins=np.zeros(shape),
            losses=np.zeros(shape),
            leader=np.zeros(lanes, np.int64),
            level=np.full(lanes, 0.5),
            below=np.full(shape, -1.0),
            due=np.zeros(lanes),
        )

    @staticmethod
    def choose(params: SelfSparring, state: State, lane: int, impression: Impression, rng: Generator) -> Duel:
        """Draw twice from the posteriors of all arms, and return the arm of the largest draw each time; they
        may be equal.
        """
        left_arm = draw_arm(state, lane, impression, rng)
        return left_arm, draw_arm(state, lane, impression, rng)

    @staticmethod
    def propensity(
        params: SelfSparring, state: State, lane: int, impression: Impression, pair: Duel
    ) -> float:
        """Return the probability that ``choose`` returns this ordered pair."""
        count = len(impression.arms)
        if count == 1:
            return 1.0
        work, left_place, right_place = borrow_array(2, count), 0, 0
        wins, losses = work[0], work[1]
        for i in range(count):
            arm = impression.arms[i]
            wins[i] = 1.0 + state.wins[lane, arm]
            losses[i] = 1.0 + state.losses[lane, arm]
            if arm == pair[0]:
                left_place = i
            if arm == pair[1]:
                right_place = i
        left_chance = probability_largest(wins, losses, left_place)
        right_chance = (
            left_chance if left_place == right_place else probability_largest(wins, losses, right_place)
        )
        release_array(work)
        return left_chance * right_chance

    @staticmethod
    def learn(params: SelfSparring, state: State, lane: int, outcome: Outcome) -> None:
        """Count the outcome, times ``eta``, as wins and losses of both arms.

        Updates ``below`` of both arms, or, when that is due or an arm overtakes the leader, the leader and
        the level.
        """
        reward = outcome.reward
        left_arm, right_arm = outcome.shown
        state.wins[lane, left_arm] += params.eta * reward
        state.losses[lane, left_arm] += params.eta * (1.0 - reward)
        state.wins[lane, right_arm] += params.eta * (1.0 - reward)
        state.losses[lane, right_arm] += params.eta * reward
        leader = state.leader[lane]
        ahead = beta_mean(state, lane, leader)
        moved = beta_mean(state, lane, left_arm) > ahead or beta_mean(state, lane, right_arm) > ahead
        if moved or state.wins[lane, leader] + state.losses[lane, leader] >= state.due[lane]:
            set_level(state, lane)
        else:
            for arm in outcome.shown:
                if arm != leader:
                    update_tail(state, lane, arm)


@kernel
def beta_mean(state: SelfSparring.State, lane: int, arm: int) -> float:
    """Return the mean of an arm's posterior, its estimated probability of winning a duel."""
    wins = 1.0 + state.wins[lane, arm]
    return float(wins / (wins + 1.0 + state.losses[lane, arm]))


@kernel
def update_tail(state: SelfSparring.State, lane: int, arm: int) -> None:
    """Recompute ``below`` of an arm: the probability that a draw from its posterior does not exceed the
    level.
    """
    wins, losses = 1.0 + state.wins[lane, arm], 1.0 + state.losses[lane, arm]
    state.below[lane, arm] = beta_tail(losses, wins, 1.0 - state.level[lane])


@kernel
def set_level(state: SelfSparring.State, lane: int) -> None:
    """Make the arm of the highest mean the leader, and set the level five deviations below its mean.

    The level is at least half of this mean. Recomputes ``below`` of all arms, and the leader's number of
    duels at which the level is set next.
    """
    leader = state.leader[lane]
    for arm in range(state.wins.shape[1]):
        if beta_mean(state, lane, arm) > beta_mean(state, lane, leader):
            leader = arm
    state.leader[lane] = leader
    duels = state.wins[lane, leader] + state.losses[lane, leader]
    centre = beta_mean(state, lane, leader)
    deviation = np.sqrt(centre * (1.0 - centre) / (duels + 3.0))
    state.level[lane] = max(centre - 5.0 * deviation, 0.5 * centre)
    state.due[lane] = 1.1 * duels + 10.0
    for arm in range(state.wins.shape[1]):
        update_tail(state, lane, arm)


@kernel
def draw_arm(state: SelfSparring.State, lane: int, impression: Impression, rng: Generator) -> int:
    """Draw from the posterior of each arm on offer, and return the arm of the largest draw.

    If the leader's draw exceeds the level, as nearly always, the other arms count only if theirs do, too: few
    random numbers are needed to decide which ones do, and only these arms are drawn. The result has the same
    distribution.
    """
    level, leader = state.level[lane], state.leader[lane]
    best, winner = draw_posterior(state, lane, leader, rng), leader
    if len(impression.arms) < state.wins.shape[1] or best <= level:
        offered = False
        for arm in impression.arms:
            offered = offered or arm == leader
        if not offered:
            best, winner = -1.0, -1
        for arm in impression.arms:
            if arm != leader:
                draw = draw_posterior(state, lane, arm, rng)
                if draw > best:
                    best, winner = draw, arm
        return int(winner)
    # One uniform number decides for all arms up to the next one whose draw exceeds the level.
    uniform, none = rng.random(), 1.0
    for arm in impression.arms:
        if arm != leader:
            none *= state.below[lane, arm]
            if uniform >= none:
                uniform, none = rng.random(), 1.0
                if state.below[lane, arm] < 0.0:
                    draw = draw_posterior(state, lane, arm, rng)
                else:
                    wins, losses = 1.0 + state.wins[lane, arm], 1.0 + state.losses[lane, arm]
                    draw = draw_above(wins, losses, level, rng)
                if draw > best:
                    best, winner = draw, arm
    return int(winner)


@kernel
def draw_posterior(state: SelfSparring.State, lane: int, arm: int, rng: Generator) -> float:
    """Return a draw from an arm's posterior of winning a duel, Beta(1 + wins, 1 + losses)."""
    return float(rng.beta(1.0 + state.wins[lane, arm], 1.0 + state.losses[lane, arm]))


# ---- FeelGoodThompson: the best arm depends on the context (Li, Zhao, Gu 2024)


MAX_DIM = 256


@dataclass(frozen=True)
class FeelGoodThompson(DuelPolicy):
    """Choose the two arms of a duel by context, with two draws from one posterior over all keys.

    An arm's utility is linear in the context plus a constant, and the probability that an arm wins is the
    logistic function of the difference of utilities. Parameters are drawn separately for the left and the
    right arm, and each is the arm of the highest utility under its draw. A new key starts with the posterior
    of all keys; differences between keys that the context does not show are not learned.

    The paper draws from its posterior by Langevin steps over all rounds; here it is a Gaussian
    that takes one Laplace step per duel. The *feel-good* term, which favours parameters
    under which the drawn arms are good, is evaluated at the draw, where it is linear.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    context_dim : int, default 0
        Number of signals in a context; at most 256.
    feel_good : float, default 0
        μ, the weight of the feel-good term relative to an observation; in [0, 1]. 0 is
        Thompson sampling.
    prior_variance : float, default 1
        Variance of each parameter before the first duel; above 0.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Li, Zhao, Gu (2024), "Feel-good Thompson sampling for contextual dueling bandits",
    algorithm 1 (FGTS.CDB).

    Examples
    --------
    >>> import tacit
    >>> environment = tacit.environments.ContextualDuels(arms=5, context_dim=3, keys=100)
    >>> policies = [tacit.policies.baselines.FeelGoodThompson(5, 3), tacit.policies.RMED1(5)]
    >>> result = tacit.simulate(policies, environment, 20_000, runs=5, seed=1)
    >>> result.compare(0, 1).difference < 0
    True
    """

    class SharedSums(NamedTuple):
        mean: Floats  # (1, arms·(context_dim + 1))
        root: Floats  # (1, the same, the same)
        tilt: Floats  # (1, the same) shift of the left arm's parameters; negated for the right arm
        room: Floats  # (1, 3, the same) workspace, all zero between calls

    class State(NamedTuple):
        shared: FeelGoodThompson.SharedSums

    about: ClassVar[About] = About(
        source="Li, Zhao, Gu (2024), algorithm 1 (FGTS.CDB), with a Gaussian posterior",
        regret="O(d·√T) up to logarithms, for exact draws",
        assumes="utilities that are linear in the context, the same for all keys, and never change",
        fails="what contexts do not tell of a key is not learned, however many duels it has",
        otherwise="RMED1, by key",
    )
    randomized: ClassVar[bool] = False

    context_dim: Annotated[int, int_range(0, MAX_DIM)] = 0
    feel_good: Annotated[float, float_range(0.0, 1.0)] = 0.0
    prior_variance: Positive = 1.0

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance with ``arms`` arms and a context of ``dim`` numbers."""
        return cls(arms, dim)

    def init(self, lanes: int) -> State:
        """Return the prior state; all lanes share one posterior."""
        width = self.arm_count * (self.context_dim + 1)
        root = np.eye(width)[None] * np.sqrt(self.prior_variance)
        rows = np.zeros((1, width))
        return self.State(self.SharedSums(rows, root, rows.copy(), np.zeros((1, 3, width))))

    @staticmethod
    def choose(
        params: FeelGoodThompson, state: State, lane: int, impression: Impression, rng: Generator
    ) -> Duel:
        """Draw the parameters once for each side of the duel, and return the arm of the highest utility under
        each draw.
        """
        left_arm = draw_best_arm(state.shared, impression, 1.0, rng)
        return left_arm, draw_best_arm(state.shared, impression, -1.0, rng)

    @staticmethod
    def learn(params: FeelGoodThompson, state: State, lane: int, outcome: Outcome) -> None:
        """Update the posterior of all keys with the outcome by a Laplace step, and the tilt of the feel-good
        term.

        A duel of an arm with itself is ignored.
        """
        left_arm, right_arm = outcome.shown
        if left_arm == right_arm:
            return
        shared = state.shared
        mean, root, work = shared.mean[0], shared.root[0], shared.room[0]
        x = work[0]
        fill_contrast(outcome.impression.context, left_arm, right_arm, x)
        if params.feel_good > 0.0:
            for i in range(len(x)):
                shared.tilt[0, i] += params.feel_good * x[i]
        learn_logit(mean, root, work, dot(mean, x), outcome.reward)


@kernel
def fill_contrast(context: Floats, left_arm: int, right_arm: int, x: Floats) -> None:
    """Fill ``x`` with the features of a duel: for the left arm the context and 1, for the right arm both
    negated.

    ``x`` has a block of features for each arm, and must be 0 before.
    """
    width = len(context) + 1
    for i in range(len(context)):
        x[left_arm * width + i] = context[i]
        x[right_arm * width + i] = -context[i]
    x[left_arm * width + width - 1] = 1.0
    x[right_arm * width + width - 1] = -1.0


@kernel
def draw_best_arm(
    shared: FeelGoodThompson.SharedSums, impression: Impression, side: float, rng: Generator
) -> int:
    """Draw the parameters for one side of a duel (1: left, −1: right); return the arm of the highest utility.

    The workspace is cleared afterwards.
    """
    mean, root, work = shared.mean[0], shared.root[0], shared.room[0]
    z, theta = work[0], work[1]
    project(root, shared.tilt[0], z)
    for i in range(len(z)):
        z[i] = side * z[i] + rng.standard_normal()
    context = impression.context
    width = len(context) + 1
    best, leader = -np.inf, impression.arms[0]
    for arm in impression.arms:
        score = 0.0
        for i in range(width):
            index = arm * width + i
            theta[index] = mean[index] + dot(root[index], z)
            score += theta[index] * (context[i] if i < len(context) else 1.0)
        if score > best:
            best, leader = score, arm
    work[:] = 0.0
    return int(leader)
