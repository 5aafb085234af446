"""Odds and choices of ProbationBandit: weigh explanations of the clicks, and play the best arm under one."""

# 1. ``ProbationLanes``, ``EventRecord``: state of each lane, and statistics of events.
# 2. ``weigh_explanations``: the odds that all arms changed, one did, or none; ``end_mode`` ends a probation
#    by them.
# 3. ``QuietRates``, ``choose_by_explanation``: draw an explanation, and play the best arm under it.
# 4. ``choice_chance``: the exact probability of that choice.

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import kernel, learn_false
from tacit.core.state_ranges import Count, IntCount, ValueRange
from tacit.policies.base import Impression
from tacit.policies.stationary.beta_mixture import mixture_largest, two_valued_largest
from tacit.policies.stationary.ucb import kl_upper_bound

# ---- State of lanes, and the odds of changes

QUIET, WARNED, SORTING = range(3)

# Below this probability of an event a warning starts no probation; at half of it a probation ends.
LEAST = 0.02
# From this probability on an event is certain, and the changed arms are determined in this many more rounds.
CERTAIN, SORTED = 0.95, 60
# Posterior odds above which an arm is taken to have changed without a warning.
COMMIT = 5.0
# Logarithm of the Bayes factor below which an arm's new counts are merged into the old.
RENEWAL = -1.5
# Share of the events that change all arms in which the clicks of the played arm show no change.
UNSEEN = 0.03
# Discount of the rate of warnings, per warning: the classifier learns, and warns less.
FORGET = 0.7
# Weights of the priors, as numbers of events.
ANNOUNCED_WEIGHT, SURPRISE_WEIGHT, LANE_WEIGHT = 3.0, 0.1, 0.3
WHOLE_WEIGHT, SINGLE_WEIGHT = 1.0, 0.5


class ProbationLanes(NamedTuple):
    """Counts and mode of each lane.

    Attributes
    ----------
    old, new : array of float64, shape (lanes, arms, 2)
        Rewards and missed rewards before the present window of the arm, and in it.
    factor : array of float64, shape (lanes, arms)
        Logarithm of the Bayes factor for "this arm has changed", from the new counts.
    start : array of float64, shape (lanes, arms)
        The lane's round before the window.
    rounds : array of float64, shape (lanes,)
    found, due : array of float64, shape (lanes,)
        Events found, and events expected by the rates of all lanes; sums of probabilities.
    prior : array of float64, shape (lanes,)
        Prior probability of the event that is being weighed.
    mode : array of int64, shape (lanes,)
        0 if quiet, 1 in a probation after a warning, 2 after an arm has changed without one.
    length : array of int64, shape (lanes,)
        Rounds learned in the mode.
    restarts : array of int64, shape (lanes,)
    context : array of float64, shape (lanes, dim)
        Context of the warning.
    """

    old: Floats
    new: Floats
    factor: Floats
    start: Floats
    rounds: Count
    found: Floats
    due: Floats
    prior: Floats
    mode: Annotated[Ints, ValueRange(0, 2)]
    length: IntCount
    restarts: IntCount
    context: Floats


class EventRecord(NamedTuple):
    """Statistics of events and warnings; one row for all lanes, or one per lane.

    Attributes
    ----------
    rounds : array of float64, shape (rows,)
    warnings, span : array of float64, shape (rows,)
        Warnings, and the rounds in which they came; both are discounted at each warning.
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
    """Posterior weights of three explanations, not normalized: all arms changed, one did, or none."""

    whole: float
    single: float
    nothing: float


@kernel
def relative_event_rate(lanes: ProbationLanes, lane: int) -> float:
    """Return the lane's rate of events divided by the rate of all lanes; at most 20."""
    events, expected = LANE_WEIGHT + lanes.found[lane], LANE_WEIGHT + lanes.due[lane]
    return float(min(events / expected, 20.0))


@kernel
def surprise_rate(params: Any, record: EventRecord, row: int) -> float:
    """Return the estimated rate of events without a warning, per round of any lane; ``row`` is the event
    record's.
    """
    rounds = SURPRISE_WEIGHT / params.surprise + record.rounds[row]
    return float((SURPRISE_WEIGHT + record.surprises[row]) / rounds)


@kernel
def whole_share(record: EventRecord, row: int) -> float:
    """Return the estimated share of events that change all arms; the others change one."""
    whole = WHOLE_WEIGHT + record.whole[row]
    return float(whole / (whole + SINGLE_WEIGHT + record.single[row]))


@kernel
def bayes_factor(lanes: ProbationLanes, lane: int, arm: int) -> float:
    """Return the Bayes factor of "this arm has changed" against "it has not"; at most exp(100)."""
    return float(np.exp(min(lanes.factor[lane, arm], 100.0)))


@kernel
def sum_of_factors(lanes: ProbationLanes, lane: int) -> float:
    """Return the sum of all arms' Bayes factors for a change."""
    total = 0.0
    for arm in range(lanes.factor.shape[1]):
        total += bayes_factor(lanes, lane, arm)
    return total


@kernel
def weigh_explanations(params: Any, state: Any, lane: int) -> Odds:
    """Return the posterior weights of "all arms changed", "one arm changed" and "nothing changed".

    They are not normalized.
    """
    lanes = state.lanes
    share = whole_share(state.record, lane if params.per_key else 0)
    arms = lanes.factor.shape[1]
    prior, together, factors = lanes.prior[lane], 0.0, 0.0
    for arm in range(arms):
        factor = bayes_factor(lanes, lane, arm)
        # If all arms changed, each arm changed with probability ``changes``, independently.
        together += np.log(params.changes * factor + 1.0 - params.changes)
        factors += factor
    whole = prior * share * np.exp(min(together, 300.0))
    # If one arm changed, each is equally likely; without a warning, the one that changed is known.
    single = prior * (1.0 - share) * factors / arms if lanes.mode[lane] == WARNED else 0.0
    return Odds(float(whole), float(single), float(1.0 - prior))


@kernel
def merge_counts(lanes: ProbationLanes, lane: int, arm: int) -> None:
    """Add an arm's new counts to the old ones, and start a new window: counts and log Bayes factor of 0."""
    for k in range(2):
        lanes.old[lane, arm, k] += lanes.new[lane, arm, k]
        lanes.new[lane, arm, k] = 0.0
    lanes.factor[lane, arm] = 0.0
    lanes.start[lane, arm] = lanes.rounds[lane]


@kernel
def forget_old(lanes: ProbationLanes, lane: int, arm: int) -> None:
    """Drop an arm's old counts, as after a change, and reset its log Bayes factor to 0."""
    lanes.old[lane, arm] = 0.0
    lanes.factor[lane, arm] = 0.0


@kernel
def set_mode(lanes: ProbationLanes, lane: int, mode: int, prior: float) -> None:
    """Set a lane's mode and the prior probability of the event that it weighs, and begin to count the mode's
    rounds.
    """
    lanes.mode[lane] = mode
    lanes.prior[lane] = prior
    lanes.length[lane] = 0


@kernel
def record_outcome(params: Any, state: Any, lane: int, odds: Odds) -> None:
    """Add how a lane's probation ended, or what kind an event without a warning was, to the event statistics.

    If the warning was probably false, the classifier learns that its context announces nothing.
    """
    lanes, record = state.lanes, state.record
    row = lane if params.per_key else 0
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
def end_mode(params: Any, state: Any, lane: int) -> None:
    """End a probation: record its outcome, drop the counts from before probable changes, and make the lane
    quiet.

    An arm's old counts are dropped if it changed with a probability above ½; if any arm's are, a restart is
    counted. Then the new counts of all arms are merged into the old ones.
    """
    lanes = state.lanes
    odds = weigh_explanations(params, state, lane)
    record_outcome(params, state, lane, odds)
    total = odds.whole + odds.single + odds.nothing
    factors, restarted = sum_of_factors(lanes, lane), False
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
    set_mode(lanes, lane, QUIET, 0.0)


@kernel
def draw_changed_arm(lanes: ProbationLanes, lane: int, uniform: float) -> int:
    """Return the arm that ``uniform``, a draw in [0, 1), selects in proportion to the arms' Bayes factors."""
    last = lanes.factor.shape[1] - 1
    remaining = uniform * sum_of_factors(lanes, lane)
    for arm in range(last):
        remaining -= bayes_factor(lanes, lane, arm)
        if remaining < 0.0:
            return arm
    return int(last)


# ---- Choices: draw an explanation, and rank the arms under it

BASES = ("thompson", "kl-ucb")
THOMPSON, KL_UCB = range(2)

EXCLUDED = 1e-12
"""Explanations less probable than this are left out of an arm's propensity."""


class QuietRates(NamedTuple):
    """Rates of changes without a warning, the same for all arms of a lane.

    Attributes
    ----------
    recently, long_ago : float
        Rate at which an arm changes, per round since any arm was tested, and per round since the arm itself
        was tested.
    tested : float
        The round in which an arm was tested last.
    """

    recently: float
    long_ago: float
    tested: float


@kernel
def quiet_change_rates(params: Any, state: Any, lane: int) -> QuietRates:
    """Return the rates at which arms change without a warning, for a lane in mode ``QUIET``.

    They are estimated from the recorded events. The round in which an arm was tested last is returned with
    them.
    """
    lanes = state.lanes
    arms = lanes.factor.shape[1]
    row = lane if params.per_key else 0
    rate = surprise_rate(params, state.record, row) * relative_event_rate(lanes, lane)
    share = whole_share(state.record, row)
    tested = 0.0
    for arm in range(arms):
        tested = max(tested, lanes.start[lane, arm])
    return QuietRates(rate * share, rate * (share * UNSEEN + (1.0 - share) / arms), tested)


@kernel
def arm_odds(params: Any, lanes: ProbationLanes, lane: int, arm: int, rates: QuietRates) -> Any:
    """Return two weights, proportional to the probabilities that an arm has changed and that it has not.

    Arms are taken to change independently. In mode ``QUIET``, the prior weight of a change grows by ``rates``
    with the rounds since the last tests; else it is ``params.changes``.
    """
    factor = bayes_factor(lanes, lane, arm)
    if lanes.mode[lane] == QUIET:
        age = lanes.rounds[lane] - lanes.start[lane, arm]
        change = rates.recently * (lanes.rounds[lane] - rates.tested) + rates.long_ago * age
        return change * factor, 1.0
    return params.changes * factor, 1.0 - params.changes


@kernel
def total_plays(lanes: ProbationLanes, lane: int, impression: Impression, whole: bool) -> float:
    """Return the number of plays of all arms on offer: the new ones and, unless ``whole`` (all arms changed),
    the old ones.
    """
    total = 0.0
    for arm in impression.arms:
        for k in range(2):
            total += lanes.new[lane, arm, k] + (0.0 if whole else lanes.old[lane, arm, k])
    return total


@kernel
def upper_bound(successes: float, failures: float, total: float) -> float:
    """Return an arm's Kullback–Leibler upper confidence bound after ``total`` plays of all arms.

    It is 2, above all others, before the arm's first play.
    """
    plays = successes + failures
    if plays == 0.0:
        return 2.0
    return float(kl_upper_bound(successes / plays, np.log(total + 1.0) / plays))


@kernel
def choose_by_explanation(params: Any, state: Any, lane: int, impression: Impression, rng: Generator) -> int:
    """Draw an explanation of the clicks by its posterior weight, and return the best arm under it.

    Arms that changed by this explanation are ranked by their new counts alone: by draws from their
    posteriors, or by upper bounds, as ``base`` says. Ties are broken at random.
    """
    lanes = state.lanes
    quiet = lanes.mode[lane] == QUIET
    whole, single = False, -1
    rates = QuietRates(0.0, 0.0, 0.0)
    uniform = rng.random()
    if quiet:
        rates = quiet_change_rates(params, state, lane)
    else:
        odds = weigh_explanations(params, state, lane)
        # Which explanation ``uniform`` selects: all arms, one arm, or nothing changed.
        point = uniform * (odds.whole + odds.single + odds.nothing)
        whole = point < odds.whole
        if odds.whole <= point < odds.whole + odds.single:
            single = draw_changed_arm(lanes, lane, (point - odds.whole) / odds.single)
    total = total_plays(lanes, lane, impression, whole) if params.base_place == KL_UCB else 0.0
    best, leader, ties = -1.0, -1, 0.0
    for arm in impression.arms:
        changed = arm == single
        if quiet or whole:
            # Each arm may have changed on its own.
            change, unchanged = arm_odds(params, lanes, lane, arm, rates)
            changed = rng.random() * (change + unchanged) < change
        successes, failures = lanes.new[lane, arm, 0], lanes.new[lane, arm, 1]
        if not changed:
            successes += lanes.old[lane, arm, 0]
            failures += lanes.old[lane, arm, 1]
        if params.base_place == THOMPSON:
            score = rng.beta(1.0 + successes, 1.0 + failures)
        else:
            score = upper_bound(successes, failures, total)
        if score > best:
            best, leader, ties = score, arm, 1.0
        elif score == best:
            ties += 1.0
            if rng.random() * ties < 1.0:
                leader = arm
    return int(leader)


class ArmScores(NamedTuple):
    """The two possible scores of each arm on offer: if unchanged, and from its window alone.

    Attributes
    ----------
    first, second : array of float64, shape (2·offered,)
        Parameters of the Beta distributions of the scores; for ``kl-ucb``, ``first`` has the scores
        themselves. The scores of unchanged arms come first.
    shares : array of float64, shape (2·offered,)
        Probability that the arm has this score.
    """

    first: Floats
    second: Floats
    shares: Floats


@kernel
def fill_scores(
    params: Any,
    lanes: ProbationLanes,
    lane: int,
    impression: Impression,
    place: int,
    rates: QuietRates,
    scores: ArmScores,
) -> None:
    """Fill ``scores`` for one explanation: each offered arm's score by all its counts, and by its new counts
    alone.

    Each score gets the probability that it is the arm's. If ``place`` is −1, each arm may have changed; if it
    is an arm's place, this arm has; if it is the number of arms, none has.
    """
    count = len(impression.arms)
    whole = place < 0 and lanes.mode[lane] != QUIET
    total = total_plays(lanes, lane, impression, whole) if params.base_place == KL_UCB else 0.0
    # First the scores by all counts, then those by new counts alone.
    for i in range(2 * count):
        arm = impression.arms[i % count]
        successes, failures = lanes.new[lane, arm, 0], lanes.new[lane, arm, 1]
        share = 1.0 if i % count == place else 0.0
        if place < 0:
            change, unchanged = arm_odds(params, lanes, lane, arm, rates)
            share = change / (change + unchanged)
        if i < count:
            share = 1.0 - share
            successes += lanes.old[lane, arm, 0]
            failures += lanes.old[lane, arm, 1]
        if params.base_place == THOMPSON:
            scores.first[i], scores.second[i] = 1.0 + successes, 1.0 + failures
        else:
            scores.first[i] = upper_bound(successes, failures, total)
        scores.shares[i] = share


@kernel
def choice_chance(params: Any, state: Any, lane: int, impression: Impression, shown: int) -> float:
    """Return the probability that :func:`choose_by_explanation` returns the arm ``shown``.

    It is summed over the explanations: each arm may have changed independently, one arm has changed, or
    nothing has. Under each, the scores of arms are independent. Explanations of a probability below 1e-12 are
    left out.
    """
    lanes, arms, count = state.lanes, impression.arms, len(impression.arms)
    odds, rates = Odds(1.0, 0.0, 0.0), QuietRates(0.0, 0.0, 0.0)
    if lanes.mode[lane] == QUIET:
        rates = quiet_change_rates(params, state, lane)
    else:
        odds = weigh_explanations(params, state, lane)
    factors, shown_place = sum_of_factors(lanes, lane), 0
    for i in range(count):
        if arms[i] == shown:
            shown_place = i
    scores = ArmScores(np.empty(2 * count), np.empty(2 * count), np.empty(2 * count))
    total = odds.whole + odds.single + odds.nothing
    remaining, chance = total, 0.0
    # −1 stands for "all arms changed", an arm's place for "this arm changed".
    for place in range(-1, count + 1):
        # The last weight is that of "nothing has changed" and of a change in an arm that is not on offer.
        weight = remaining
        if place < 0:
            weight = odds.whole
        elif place < count:
            weight = odds.single * bayes_factor(lanes, lane, arms[place]) / factors
        remaining -= weight
        if weight > EXCLUDED * total:
            fill_scores(params, lanes, lane, impression, place, rates, scores)
            if params.base_place == THOMPSON:
                largest = mixture_largest(scores.first, scores.second, scores.shares, count, shown_place)
            else:
                largest = two_valued_largest(scores.first, scores.shares, count, shown_place)
            chance += weight / total * largest
    return chance
