"""State of a mixture over contexts: its models, and the weights of its hypotheses.

First the state; then the base rate of new arms; then how rewards update the weights, and when the recent
hypothesis restarts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tacit.classifiers.concepts import UsualRange
from tacit.core.arrays import Floats
from tacit.core.dispatch import kernel
from tacit.core.state_ranges import Count
from tacit.policies.features import context_models
from tacit.policies.features.context_inputs import BUFFER_SIZE, EventBuffer, Scaling
from tacit.policies.features.context_models import Base, Design, Models, Observation, Workspace
from tacit.policies.features.gaussian import sigmoid
from tacit.policies.features.mixture import log_predictive
from tacit.policies.shifting import graded_rewards
from tacit.policies.shifting.shift_mixture import RewardSpread, click_equivalents

WIDTH = 0.7
"""Factor on the single draw that moves the scores of all arms."""
DROPPED = 6e-6
"""Weight, relative to the largest, below which a hypothesis is ignored in a choice."""
SPAN, SHARE = 200.0, 0.2
"""The recent hypothesis restarts after this number of events, or this share of all events if larger."""
BEHIND = 0.0025
"""Weight, relative to the largest, with which it restarts; hypotheses as far behind it adopt its beliefs."""
UNLIKELIEST = -700.0
"""Lower bound of the logarithm of a reward's probability: weights stay above 0."""
SEASONED = 50.0
"""Events after which its beliefs may be adopted, and after which a warning is judged."""
WORTHLESS, SUREST = 0.05, 0.98
"""Least share of correct warnings at which warnings count; largest probability of a change."""


# ---- The state


class SignalWarnings(NamedTuple):
    """Warnings by signals, and how many were correct.

    Attributes
    ----------
    usual : UsualRange
        The usual range of the signals, for all models.
    warnings, right : array of float64, shape (models,)
        Warnings that were judged, and the sum of the weights that the recent hypothesis gained after them.
    waiting : array of float64, shape (models,)
        1 if a warning has restarted the recent hypothesis and is not yet judged.
    """

    usual: UsualRange
    warnings: Floats
    right: Floats
    waiting: Floats

    @classmethod
    def empty(cls, models: int, signals: int) -> SignalWarnings:
        """Return the state of ``signals`` signals and ``models`` models before the first event."""
        return cls(UsualRange.empty(signals), *np.zeros((3, models)))


class MixtureTally(NamedTuple):
    """Counts of events, and the weights of the hypotheses.

    Attributes
    ----------
    rounds, clicks, age : array of float64, shape (models,)
        Events, the sum of their rewards, and events since the recent hypothesis restarted.
    weights : array of float64, shape (models, 4)
        Weights of the hypotheses, of sum 1.
    spread : RewardSpread
        Variation of rewards, since the first that was neither 0 nor 1; arrays of shape (models,).
    surprises : array of float64, shape (models, arms, 5)
        The same for each arm, as in :class:`~tacit.policies.shifting.graded_rewards.GradedRewards`.
    announced : SignalWarnings
    """

    rounds: Count
    clicks: Floats
    age: Count
    weights: Floats
    spread: RewardSpread
    surprises: Floats
    announced: SignalWarnings

    @classmethod
    def empty(cls, models: int, signals: int = 0, arms: int = 0) -> MixtureTally:
        """Return the tally of each model before the first event, with equal weights of all hypotheses."""
        rounds, clicks, age, *spread = np.zeros((6, models))
        weights = np.full((models, context_models.HYPOTHESES), 1.0 / context_models.HYPOTHESES)
        surprises, announced = np.zeros((models, arms, 5)), SignalWarnings.empty(models, signals)
        return cls(rounds, clicks, age, weights, RewardSpread(*spread), surprises, announced)


class ContextState(NamedTuple):
    """Models of clicks given contexts; the leading axis has length 1 if all keys share them.

    Attributes
    ----------
    models : Models
    tally : MixtureTally
    measure : Scaling
    kept : EventBuffer
    room : Workspace
    """

    models: Models
    tally: MixtureTally
    measure: Scaling
    kept: EventBuffer
    room: Workspace


# ---- The base rate of new arms, and the hypotheses in use


@kernel
def compute_base(tally: MixtureTally, model: int) -> Base:
    """Return the prior mean and variance of a new arm's constant (log-odds), from the click rate of all
    events.
    """
    clicks, misses = tally.clicks[model] + 0.5, tally.rounds[model] - tally.clicks[model] + 0.5
    return Base(np.log(clicks) - np.log(misses), 1.0 + 1.0 / clicks + 1.0 / misses)


@kernel
def weight_in_use(weights: Floats) -> tuple[float, float]:
    """Return the weight from which on a hypothesis counts in a choice, and the sum of the weights that
    count.
    """
    top, total = 0.0, 0.0
    for h in range(context_models.HYPOTHESES):
        top = max(top, weights[h])
    for h in range(context_models.HYPOTHESES):
        if weights[h] >= DROPPED * top:
            total += weights[h]
    return DROPPED * top, total


# ---- Learning


@kernel
def forget_all(state: ContextState, model: int, layout: Design, prior: Any) -> None:
    """Reset a model to its prior: counts, weights of hypotheses and all arms; the scaling of contexts
    stays.
    """
    tally, spread = state.tally, state.tally.spread
    for sums in (tally.rounds, tally.clicks, tally.age, spread.squares, spread.expected, spread.fractions):
        sums[model] = 0.0
    tally.surprises[model] = 0.0
    for h in range(context_models.HYPOTHESES):
        tally.weights[model, h] = 1.0 / context_models.HYPOTHESES
        for arm in range(state.models.met.shape[1]):
            context_models.forget_arm(state.models, model, arm, h, layout, prior)


@kernel
def share_weights(weights: Floats, share: float) -> None:
    """Normalise weights to a sum of 1, in place, then redistribute a share of them uniformly."""
    total = 0.0
    for h in range(len(weights)):
        total += weights[h]
    for h in range(len(weights)):
        # Fixed share (Herbster, Warmuth 1998): no hypothesis falls so far behind that it cannot come back.
        weights[h] = (1.0 - share) * weights[h] / total + share / len(weights)


@kernel
def heaviest_other(weights: Floats) -> float:
    """Return the largest weight of a hypothesis other than the recent one."""
    largest = 0.0
    for h in range(context_models.HYPOTHESES):
        largest = max(largest, weights[h] if h != context_models.RECENT else 0.0)
    return largest


@kernel
def begin_recent(state: ContextState, model: int, layout: Design) -> bool:
    """Restart the recent hypothesis if it is due or far ahead of the others; return True if it was far ahead.

    In that case the others first take over its beliefs. A pending warning is judged before.
    """
    tally, weights = state.tally, state.tally.weights[model]
    ahead = (
        tally.age[model] >= SEASONED and heaviest_other(weights) <= BEHIND * weights[context_models.RECENT]
    )
    if ahead or tally.age[model] >= max(SPAN, SHARE * tally.rounds[model]):
        judge_warning(tally, model, 1.0 if ahead else weights[context_models.RECENT])
        restart_recent(state, model, layout, ahead, BEHIND)
    return bool(ahead)


@kernel
def restart_recent(state: ContextState, model: int, layout: Design, adopted: bool, weight: float) -> None:
    """Reset the recent hypothesis to the prior; its weight becomes ``weight`` times the largest weight, its
    age 0.

    If ``adopted``, the other hypotheses first take over its beliefs and get equal weights.
    """
    tally, weights = state.tally, state.tally.weights[model]
    largest = max(heaviest_other(weights), weights[context_models.RECENT])
    for arm in range(state.models.met.shape[1]):
        if adopted:
            context_models.adopt_recent(state.models, model, arm, layout)
        context_models.forget_arm(state.models, model, arm, context_models.RECENT, layout, None)
    for h in range(context_models.HYPOTHESES):
        weights[h] = 1.0 if adopted else weights[h]
    weights[context_models.RECENT] = weight * (1.0 if adopted else largest)
    tally.age[model] = 0.0
    share_weights(weights, 0.0)


@kernel
def judge_warning(tally: MixtureTally, model: int, right: float) -> None:
    """If a warning is pending, count it as correct to the degree ``right``, from 0 to 1, and clear it."""
    announced = tally.announced
    if announced.waiting[model] > 0.0:
        announced.warnings[model] += 1.0
        announced.right[model] += right
        announced.waiting[model] = 0.0


@kernel
def apply_warning(state: ContextState, model: int, layout: Design) -> None:
    """Restart the recent hypothesis at a warning, with the probability of a change as its weight.

    The probability is the share of earlier warnings that were correct. Do nothing before 128 events, soon
    after another warning, or if hardly any warning was correct. An earlier pending warning is judged first.
    """
    tally, weights, announced = state.tally, state.tally.weights[model], state.tally.announced
    # A hypothesis that has just restarted is not yet judged: another warning would throw away the little it
    # has learned.
    early = announced.waiting[model] > 0.0 and tally.age[model] < SEASONED
    if early or tally.rounds[model] < BUFFER_SIZE:
        return
    judge_warning(tally, model, weights[context_models.RECENT])
    change = min((0.5 + announced.right[model]) / (1.0 + announced.warnings[model]), SUREST)
    if change >= WORTHLESS:
        adopted = weights[context_models.RECENT] > heaviest_other(weights)
        # The odds of a change, because the weight is relative to the largest one.
        restart_recent(state, model, layout, adopted, change / (1.0 - change))
        announced.waiting[model] = 1.0


@kernel
def is_binary(tally: MixtureTally, model: int, reward: float) -> bool:
    """True if a reward, and all rewards of the model so far, are 0 or 1."""
    return tally.spread.fractions[model] == 0.0 and not 0.0 < reward < 1.0


@kernel
def equivalent_clicks(
    tally: MixtureTally, model: int, arm: int, mean: float, reward: float, by_arm: bool
) -> float:
    """Return the number of clicks that an arm's reward counts as, and add it to the spread of rewards.

    It is above 1 if rewards vary less than clicks: those of the arm, at most 10⁴, or, unless ``by_arm``, all
    rewards, at most 20. ``mean`` is the expected reward.
    """
    spread, row, sums = tally.spread, slice(model, model + 1), tally.surprises[model]
    if not by_arm:
        rewards = RewardSpread(spread.squares[row], spread.expected[row], spread.fractions[row])
        return click_equivalents(rewards, mean, reward)
    spread.fractions[model] += 1.0 if 0.0 < reward < 1.0 else 0.0
    shared = graded_rewards.mean_share(sums, 1.0, 2, 1.0)
    clicks = graded_rewards.arm_equivalents(sums[arm], 1.0, 2, 1.0, shared)
    graded_rewards.add_surprise(sums[arm], reward - mean, mean)
    return clicks


@kernel
def click_probability(logit: float, variance: float) -> float:
    """Return the mean probability of a click whose logit is normal, of mean ``logit`` and ``variance``;
    approximate.
    """
    return sigmoid(logit / np.sqrt(1.0 + 0.125 * np.pi * variance))


@kernel
def learn_event(
    state: ContextState, model: int, arm: int, reward: float, times: float, layout: Design
) -> None:
    """Learn a reward of an arm, in the context in the workspace, as ``times`` clicks.

    Updates the arm under each hypothesis, the hypotheses' weights and the counts of events, and restarts the
    recent hypothesis when that is due.
    """
    tally, weights = state.tally, state.tally.weights[model]
    base, observation = compute_base(tally, model), Observation(reward, times, 1.0, 0.0)
    for h in range(context_models.HYPOTHESES):
        if not state.models.met[model, arm, h]:
            context_models.start_arm(state.models, model, arm, h, base)
        logit, s, _, _ = context_models.learn_arm(
            state.models, state.room, model, arm, h, layout, observation
        )
        weights[h] *= np.exp(max(times * log_predictive(logit, s, reward), UNLIKELIEST))
    tally.rounds[model] += 1.0
    tally.clicks[model] += reward
    tally.age[model] += 1.0
    share_weights(weights, 1.0 / (tally.rounds[model] + 1.0))
    begin_recent(state, model, layout)
