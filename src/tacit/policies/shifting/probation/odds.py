"""What a probation weighs: what each lane has learned, and the odds of what may have changed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.core.dispatch import kernel, learn_false

QUIET, WARNED, SORTING = range(3)

# Below this probability of an event a warning is not tried; at half of it a probation ends.
LEAST = 0.02
# From this probability on an event is certain, and its arms are sorted for so many rounds more.
CERTAIN, SORTED = 0.95, 60
# Posterior odds at which an arm has changed without a warning.
COMMIT = 5.0
# Bayes factor, as a logarithm, at which an arm's new counts join the old.
RENEWAL = -1.5
# Share of the events that change all arms in which the arm being played shows nothing.
UNSEEN = 0.03
# How fast the rate of warnings forgets, per warning: the classifier learns, and warns less.
FORGET = 0.7
# Weights of the priors, as numbers of events.
ANNOUNCED_WEIGHT, SURPRISE_WEIGHT, LANE_WEIGHT = 3.0, 0.1, 0.3
WHOLE_WEIGHT, SINGLE_WEIGHT = 1.0, 0.5


class Lanes(NamedTuple):
    """What each lane has learned, and where it stands.

    Attributes
    ----------
    old, new : array of float64, shape (lanes, arms, 2)
        Rewards and missed rewards before the present window of the arm, and in it.
    factor : array of float64, shape (lanes, arms)
        Logarithm of the Bayes factor for "this arm has changed", of the new counts.
    start : array of float64, shape (lanes, arms)
        The lane's round before the window.
    rounds : array of float64, shape (lanes,)
    found, due : array of float64, shape (lanes,)
        Events found, and those that the rates of all lanes made expect; sums of probabilities.
    prior : array of float64, shape (lanes,)
        Prior probability of the event that is being weighed.
    mode : array of int64, shape (lanes,)
        0 if quiet, 1 in a probation after a warning, 2 after an arm has changed without one.
    length : array of int64, shape (lanes,)
        Rounds of the mode that were learned.
    restarts : array of int64, shape (lanes,)
    context : array of float64, shape (lanes, dim)
        Of the warning.
    """

    old: Floats
    new: Floats
    factor: Floats
    start: Floats
    rounds: Floats
    found: Floats
    due: Floats
    prior: Floats
    mode: Ints
    length: Ints
    restarts: Ints
    context: Floats


class Record(NamedTuple):
    """What the events so far have taught, of all lanes or of each.

    Attributes
    ----------
    rounds : array of float64, shape (rows,)
    warnings, span : array of float64, shape (rows,)
        Warnings, and rounds in which they came; both fade with each warning.
    announced, surprises : array of float64, shape (rows,)
        Events with a warning (a sum of probabilities) and without.
    whole, single : array of float64, shape (rows,)
        Events that changed all arms, and that changed one; sums of probabilities.
    """

    rounds: Floats
    warnings: Floats
    span: Floats
    announced: Floats
    surprises: Floats
    whole: Floats
    single: Floats


class Odds(NamedTuple):
    """Posterior weights of three explanations; they need not add up to 1."""

    whole: float
    single: float
    nothing: float


@kernel
def propensity_to_shift(lanes: Lanes, lane: int) -> float:
    """Return how many times more often the lane has events than all lanes on average."""
    found, due = LANE_WEIGHT + lanes.found[lane], LANE_WEIGHT + lanes.due[lane]
    return float(min(found / due, 20.0))


@kernel
def surprise_rate(params: Any, record: Record, row: int) -> float:
    """Return the rate of events without a warning, per round of any lane."""
    rounds = SURPRISE_WEIGHT / params.surprise + record.rounds[row]
    return float((SURPRISE_WEIGHT + record.surprises[row]) / rounds)


@kernel
def whole_share(record: Record, row: int) -> float:
    """Return the share of the events that change all arms."""
    whole = WHOLE_WEIGHT + record.whole[row]
    return float(whole / (whole + SINGLE_WEIGHT + record.single[row]))


@kernel
def bayes_factor(lanes: Lanes, lane: int, arm: int) -> float:
    """Return the Bayes factor for a change of the arm, kept finite."""
    return float(np.exp(min(lanes.factor[lane, arm], 100.0)))


@kernel
def weigh(params: Any, state: Any, lane: int) -> Odds:
    """Weigh "all arms changed", "one arm changed" and "nothing changed"."""
    lanes = state.lanes
    share = whole_share(state.record, 0 if params.shared else lane)
    arms = lanes.factor.shape[1]
    prior, together, one = lanes.prior[lane], 0.0, 0.0
    for arm in range(arms):
        factor = bayes_factor(lanes, lane, arm)
        together += np.log(params.changes * factor + 1.0 - params.changes)
        one += factor
    whole = prior * share * np.exp(min(together, 300.0))
    single = prior * (1.0 - share) * one / arms if lanes.mode[lane] == WARNED else 0.0
    return Odds(float(whole), float(single), float(1.0 - prior))


@kernel
def merge_counts(lanes: Lanes, lane: int, arm: int) -> None:
    """Add what is new of an arm to the old, and begin its next window."""
    for k in range(2):
        lanes.old[lane, arm, k] += lanes.new[lane, arm, k]
        lanes.new[lane, arm, k] = 0.0
    lanes.factor[lane, arm] = 0.0
    lanes.start[lane, arm] = lanes.rounds[lane]


@kernel
def forget_old(lanes: Lanes, lane: int, arm: int) -> None:
    """Keep of an arm only what is new."""
    lanes.old[lane, arm, 0] = 0.0
    lanes.old[lane, arm, 1] = 0.0
    lanes.factor[lane, arm] = 0.0


@kernel
def enter(lanes: Lanes, lane: int, mode: int, prior: float) -> None:
    """Begin a mode, with a prior probability of what is weighed in it."""
    lanes.mode[lane] = mode
    lanes.prior[lane] = prior
    lanes.length[lane] = 0


@kernel
def note_outcome(params: Any, state: Any, lane: int, odds: Odds) -> None:
    """Enter what came of a probation or a surprise in the record; label the context."""
    lanes, record = state.lanes, state.record
    row = 0 if params.shared else lane
    if lanes.mode[lane] == SORTING:
        changed_all = odds.whole / (odds.whole + odds.nothing)
        record.whole[row] += changed_all
        record.single[row] += 1.0 - changed_all
        return
    changed = odds.whole + odds.single
    event = changed / (changed + odds.nothing)
    record.announced[row] += event
    lanes.found[lane] += event
    if event > 0.5:
        record.whole[row] += odds.whole / changed
        record.single[row] += odds.single / changed
    if event < params.excluded:
        learn_false(params.classifier, state.classifier, row, lanes.context[lane])


@kernel
def settle(params: Any, state: Any, lane: int) -> None:
    """End a mode: the arms that have probably changed start over, the others go on."""
    lanes = state.lanes
    odds = weigh(params, state, lane)
    note_outcome(params, state, lane, odds)
    total = odds.whole + odds.single + odds.nothing
    factors = 0.0
    for arm in range(lanes.factor.shape[1]):
        factors += bayes_factor(lanes, lane, arm)
    restarted = False
    for arm in range(lanes.factor.shape[1]):
        factor = bayes_factor(lanes, lane, arm)
        change = params.changes * factor
        changed = odds.whole * change / (change + 1.0 - params.changes)
        changed += odds.single * factor / factors
        if changed > 0.5 * total:
            forget_old(lanes, lane, arm)
            restarted = True
        merge_counts(lanes, lane, arm)
    if restarted:
        lanes.restarts[lane] += 1
    enter(lanes, lane, QUIET, 0.0)


@kernel
def draw_single(lanes: Lanes, lane: int, uniform: float) -> int:
    """Draw which arm changed, given that one did."""
    last = lanes.factor.shape[1] - 1
    total = 0.0
    for arm in range(last + 1):
        total += bayes_factor(lanes, lane, arm)
    left = uniform * total
    for arm in range(last):
        left -= bayes_factor(lanes, lane, arm)
        if left < 0.0:
            return arm
    return int(last)
