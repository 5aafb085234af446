"""What a mixture over contexts has learned: its models, and the weights of the hypotheses they stand for.

What was learned from, then what is expected of an arm by that, then how rewards move the weights, and
when the recent hypothesis begins anew.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tacit.classifiers.concepts import Usual
from tacit.core.arrays import Floats
from tacit.core.dispatch import kernel
from tacit.core.state_ranges import Count
from tacit.policies.features import context_models
from tacit.policies.features.context_inputs import KEPT, Kept, Measure
from tacit.policies.features.context_models import Base, Design, Models, Room, Sighting
from tacit.policies.features.gaussian import sigmoid
from tacit.policies.features.mixture import foretold
from tacit.policies.shifting.shift_mixture import Spread, steadiness

WIDTH = 0.7
"""Factor on the one draw that moves the scores of all arms."""
DROPPED = 6e-6
"""Weight, beside the largest, below which a hypothesis takes no part in a choice."""
SPAN, SHARE = 200.0, 0.2
"""The recent hypothesis begins anew after so many events, and that share of all, if it is more."""
BEHIND = 0.0025
"""Weight with which it begins, beside the largest; and of all others, beside it, when it is adopted."""
UNLIKELIEST = -700.0
"""Logarithm of a reward's probability, at least: weights stay above 0."""
SEASONED = 50.0
"""Events after which it may be adopted, and after which it is seen whether a warning was right."""
WORTHLESS, SUREST = 0.05, 0.98
"""A warning that is right less often is none; none is believed more."""


# ---- What was learned from


class Announced(NamedTuple):
    """What signals have announced, and how far it was right.

    Attributes
    ----------
    usual : Usual
        What signals were so far, whatever the model.
    warnings, right : array of float64, shape (models,)
        Warnings that were judged, and the sum of the weights which the recent hypothesis won by them.
    waiting : array of float64, shape (models,)
        1 where a warning has let the recent hypothesis begin, and is not judged yet.
    """

    usual: Usual
    warnings: Floats
    right: Floats
    waiting: Floats

    @classmethod
    def nothing(cls, models: int, signals: int) -> Announced:
        """Return what is known of so many signals before the first."""
        return cls(Usual.nothing(signals), *np.zeros((3, models)))


class MixtureTally(NamedTuple):
    """What was learned from, and the weights of the hypotheses.

    Attributes
    ----------
    rounds, clicks, age : array of float64, shape (models,)
        Events, the sum of their rewards, and events since the recent hypothesis began.
    weights : array of float64, shape (models, 4)
        Of sum 1.
    spread : Spread
        How much rewards vary, since the first that was neither 0 nor 1; arrays of shape (models,).
    announced : Announced
    """

    rounds: Count
    clicks: Floats
    age: Count
    weights: Floats
    spread: Spread
    announced: Announced

    @classmethod
    def nothing(cls, models: int, signals: int = 0) -> MixtureTally:
        """Return the tally before the first event."""
        rounds, clicks, age, *spread = np.zeros((6, models))
        weights = np.full((models, context_models.HYPOTHESES), 1.0 / context_models.HYPOTHESES)
        return cls(rounds, clicks, age, weights, Spread(*spread), Announced.nothing(models, signals))


class ContextState(NamedTuple):
    """Models of a user's clicks; the leading axis is 1 where all keys share them.

    Attributes
    ----------
    models : Models
    tally : MixtureTally
    measure : Measure
    kept : Kept
    room : Room
    """

    models: Models
    tally: MixtureTally
    measure: Measure
    kept: Kept
    room: Room


# ---- What is expected of an arm, and by which hypotheses


@kernel
def base_of(tally: MixtureTally, model: int) -> Base:
    """Return what is expected of an arm that was not met: the log-odds of a click, by all events so far."""
    clicks, misses = tally.clicks[model] + 0.5, tally.rounds[model] - tally.clicks[model] + 0.5
    return Base(np.log(clicks) - np.log(misses), 1.0 + 1.0 / clicks + 1.0 / misses)


@kernel
def weight_in_use(weights: Floats) -> tuple[float, float]:
    """Return the least weight of a hypothesis that takes part in a choice, and the sum of all that do."""
    top, total = 0.0, 0.0
    for h in range(context_models.HYPOTHESES):
        top = max(top, weights[h])
    for h in range(context_models.HYPOTHESES):
        if weights[h] >= DROPPED * top:
            total += weights[h]
    return DROPPED * top, total


# ---- What is learned


@kernel
def forget_all(state: ContextState, model: int, layout: Design, prior: Any) -> None:
    """Know nothing of arms again; how contexts are measured stays."""
    tally = state.tally
    tally.rounds[model] = 0.0
    tally.clicks[model] = 0.0
    tally.age[model] = 0.0
    tally.spread.squares[model] = 0.0
    tally.spread.expected[model] = 0.0
    tally.spread.fractions[model] = 0.0
    for h in range(context_models.HYPOTHESES):
        tally.weights[model, h] = 1.0 / context_models.HYPOTHESES
        for arm in range(state.models.met.shape[1]):
            context_models.forget_arm(state.models, model, arm, h, layout, prior)


@kernel
def share_weights(weights: Floats, share: float) -> None:
    """Normalise weights, after each has given a share of it to all alike."""
    total = 0.0
    for h in range(len(weights)):
        total += weights[h]
    for h in range(len(weights)):
        # Fixed share (Herbster, Warmuth 1998): no hypothesis falls so far behind that it cannot come back.
        weights[h] = (1.0 - share) * weights[h] / total + share / len(weights)


@kernel
def heaviest_other(weights: Floats) -> float:
    """Return the largest weight but that of the recent hypothesis."""
    others = 0.0
    for h in range(context_models.HYPOTHESES):
        others = max(others, weights[h] if h != context_models.RECENT else 0.0)
    return others


@kernel
def begin_recent(state: ContextState, model: int, layout: Design) -> bool:
    """Let the recent hypothesis begin anew when it is due, or is far ahead of all others; return if that."""
    tally, weights = state.tally, state.tally.weights[model]
    ahead = (
        tally.age[model] >= SEASONED and heaviest_other(weights) <= BEHIND * weights[context_models.RECENT]
    )
    if ahead or tally.age[model] >= max(SPAN, SHARE * tally.rounds[model]):
        settle(tally, model, 1.0 if ahead else weights[context_models.RECENT])
        restart_recent(state, model, layout, ahead, BEHIND)
    return bool(ahead)


@kernel
def restart_recent(state: ContextState, model: int, layout: Design, adopted: bool, weight: float) -> None:
    """Let the recent hypothesis begin anew, with a weight beside the largest; it may be adopted before."""
    tally, weights = state.tally, state.tally.weights[model]
    largest = max(heaviest_other(weights), weights[context_models.RECENT])
    for arm in range(state.models.met.shape[1]):
        if adopted:
            context_models.adopt(state.models, model, arm, layout)
        context_models.forget_arm(state.models, model, arm, context_models.RECENT, layout, None)
    for h in range(context_models.HYPOTHESES):
        weights[h] = 1.0 if adopted else weights[h]
    weights[context_models.RECENT] = weight * (1.0 if adopted else largest)
    tally.age[model] = 0.0
    share_weights(weights, 0.0)


@kernel
def settle(tally: MixtureTally, model: int, right: float) -> None:
    """Count the warning that waits, if one does, as far as it was right."""
    announced = tally.announced
    if announced.waiting[model] > 0.0:
        announced.warnings[model] += 1.0
        announced.right[model] += right
        announced.waiting[model] = 0.0


@kernel
def take_warning(state: ContextState, model: int, layout: Design) -> None:
    """Let the recent hypothesis begin anew at a warning, weighed as far as earlier ones were right."""
    tally, weights, announced = state.tally, state.tally.weights[model], state.tally.announced
    # A hypothesis that has just begun is not judged yet: another warning would throw away the little it
    # knows.
    early = announced.waiting[model] > 0.0 and tally.age[model] < SEASONED
    if early or tally.rounds[model] < KEPT:
        return
    settle(tally, model, weights[context_models.RECENT])
    change = min((0.5 + announced.right[model]) / (1.0 + announced.warnings[model]), SUREST)
    if change >= WORTHLESS:
        adopted = weights[context_models.RECENT] > heaviest_other(weights)
        # The odds of a change, as the weight is beside the largest one.
        restart_recent(state, model, layout, adopted, change / (1.0 - change))
        announced.waiting[model] = 1.0


@kernel
def tells_as_clicks(tally: MixtureTally, model: int, reward: float) -> bool:
    """Return whether a reward, and all before, was 0 or 1."""
    return tally.spread.fractions[model] == 0.0 and not 0.0 < reward < 1.0


@kernel
def clicks_worth(tally: MixtureTally, model: int, mean: float, reward: float) -> float:
    """Return how many clicks a reward tells as much as: more than one where rewards vary less."""
    spread, own = tally.spread, slice(model, model + 1)
    return steadiness(Spread(spread.squares[own], spread.expected[own], spread.fractions[own]), mean, reward)


@kernel
def click_chance(logit: float, variance: float) -> float:
    """Return the mean chance of a click whose logit is normal."""
    return sigmoid(logit / np.sqrt(1.0 + 0.125 * np.pi * variance))


@kernel
def take_in(state: ContextState, model: int, arm: int, reward: float, times: float, layout: Design) -> None:
    """Learn from an event whose context is in the room, as from so many clicks."""
    tally, weights = state.tally, state.tally.weights[model]
    base, given = base_of(tally, model), Sighting(reward, times, 1.0, 0.0)
    for h in range(context_models.HYPOTHESES):
        if not state.models.met[model, arm, h]:
            context_models.meet(state.models, model, arm, h, base)
        logit, s, _, _ = context_models.learn_arm(state.models, state.room, model, arm, h, layout, given)
        weights[h] *= np.exp(max(times * foretold(logit, s, reward), UNLIKELIEST))
    tally.rounds[model] += 1.0
    tally.clicks[model] += reward
    tally.age[model] += 1.0
    share_weights(weights, 1.0 / (tally.rounds[model] + 1.0))
    begin_recent(state, model, layout)
