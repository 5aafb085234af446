"""Compiled loops over batches of impressions, which the learner runs.

A call from Python into compiled code costs microseconds even for little work, so all calls work on
batches; a single decision is a batch of one.
"""

# The loops, in the order in which a batch passes through them:
# 1. ``choose_rows``: observe each impression and decide; ``force_rows``: the same, but show forced arms.
# 2. ``weigh_rows``, ``weigh_cells``, ``place_rows``: probabilities of arms, and of arms at positions.
# 3. ``observe_rows``: only observe, for decisions read from a log; nothing is drawn.
# 4. ``learn_rows``: learn outcomes, unless the lane has restarted since; ``correct_rows``: replace rewards.
# 5. ``replay_rows``: steps 3 and 4 for each row, as offline evaluation replays a log.

from __future__ import annotations

from typing import Any, NamedTuple

from tacit.core.arrays import Booleans, Floats, Generator, Ints
from tacit.core.dispatch import (
    cells,
    decide,
    decide_and_weigh,
    epoch,
    kernel,
    learn,
    observe,
    placed,
    propensity,
    refit,
    shown_in,
    unlearn,
)
from tacit.policies.base import Impression, make_outcome


class Batch(NamedTuple):
    """Impressions as columns.

    Attributes
    ----------
    lanes : array of int64, shape (rows,)
    arms : array of int64
        Indices of the offered arms, all rows in one array; rows may share a range of it.
    starts, stops : array of int64, shape (rows,)
        Row i is offered ``arms[starts[i]:stops[i]]``.
    contexts : array of float64, shape (rows, context_dim)
    relevance, examination : array of float64, shape (offered, d)
        Features of the offered arms, a row for each entry of ``arms``; without rows if the policy
        reads no features.
    """

    lanes: Ints
    arms: Ints
    starts: Ints
    stops: Ints
    contexts: Floats
    relevance: Floats
    examination: Floats


@kernel
def get_impression(batch: Batch, i: int) -> Impression:
    """Return row ``i`` of a batch as the impression that kernels take."""
    start, stop = batch.starts[i], batch.stops[i]
    return Impression(
        batch.arms[start:stop], batch.contexts[i], batch.relevance[start:stop], batch.examination[start:stop]
    )


def choose_rows(
    params: Any,
    state: Any,
    batch: Batch,
    rng: Generator,
    actions: Ints,
    epochs: Ints,
    propensities: Floats | None,
) -> None:
    """Observe each impression and decide, row by row; draws from ``rng`` and updates ``state``.

    Fills ``actions`` with the arm indices to show, shape (rows, action_width), ``epochs`` with how often the
    lane had restarted, and ``propensities``, unless it is None.
    """
    for i in range(len(batch.lanes)):
        lane = batch.lanes[i]
        impression = get_impression(batch, i)
        observe(params, state, lane, impression)
        if propensities is None:
            decide(params, state, lane, impression, rng, actions[i])
        else:
            propensities[i] = decide_and_weigh(params, state, lane, impression, rng, actions[i])
        epochs[i] = epoch(params, state, lane)


def refit_shared(params: Any, state: Any) -> None:
    """Recompute, in ``state``, the values that follow from the sums that all lanes share."""
    refit(params, state)


def force_rows(
    params: Any,
    state: Any,
    batch: Batch,
    rng: Generator,
    forced: Ints,
    randomized: bool,
    actions: Ints,
    epochs: Ints,
    propensities: Floats,
) -> None:
    """Observe each impression and decide, row by row, but show the arms of ``forced`` in place of the
    decision.

    ``forced`` has the arm indices of each row; a row that begins with −1 keeps the policy's decision. Updates
    ``state``, and fills ``actions`` and ``epochs``. ``propensities`` become the policy's own probabilities of
    the arms shown; of a policy that is not ``randomized``, 1 if it would have shown them, else 0.
    """
    for i in range(len(batch.lanes)):
        lane = batch.lanes[i]
        impression = get_impression(batch, i)
        observe(params, state, lane, impression)
        if randomized and forced[i, 0] < 0:
            propensities[i] = decide_and_weigh(params, state, lane, impression, rng, actions[i])
            epochs[i] = epoch(params, state, lane)
            continue
        # Drawn even if another arm is forced: the draws of later rows follow from it.
        decide(params, state, lane, impression, rng, actions[i])
        epochs[i] = epoch(params, state, lane)
        differs = False
        if forced[i, 0] >= 0:
            for place in range(actions.shape[1]):
                differs = differs or actions[i, place] != forced[i, place]
                actions[i, place] = forced[i, place]
        if randomized:
            action = shown_in(params, actions[i])
            propensities[i] = propensity(params, state, lane, impression, action)
        else:
            propensities[i] = 0.0 if differs else 1.0


def weigh_rows(params: Any, state: Any, batch: Batch, probabilities: Floats) -> None:
    """Fill ``probabilities`` with the probability that the policy chooses each arm on offer, in the order of
    the batch's ``arms``.

    NaN if the policy does not know it; ``state`` does not change.
    """
    for i in range(len(batch.lanes)):
        impression = get_impression(batch, i)
        for j in range(len(impression.arms)):
            arm = impression.arms[j]
            place = batch.starts[i] + j
            probabilities[place] = propensity(params, state, batch.lanes[i], impression, arm)


def weigh_cells(params: Any, state: Any, batch: Batch, probabilities: Floats) -> None:
    """Fill ``probabilities`` with the probability that each arm on offer is at each position of the list.

    The shape is (entries of the batch's ``arms``, positions); ``state`` does not change.
    """
    for i in range(len(batch.lanes)):
        cell_probabilities = probabilities[batch.starts[i] : batch.stops[i]]
        cells(params, state, batch.lanes[i], get_impression(batch, i), cell_probabilities)


def place_rows(
    params: Any, state: Any, batch: Batch, actions: Ints, prefixes: Floats, places: Floats
) -> None:
    """Fill ``prefixes`` and ``places``, shape (rows, positions), with probabilities of the lists shown in
    ``actions``.

    ``prefixes`` is the probability that a list begins with the same arms down to the position, ``places`` the
    probability that it has the same arm at the position.
    """
    for i in range(len(batch.lanes)):
        impression = get_impression(batch, i)
        placed(params, state, batch.lanes[i], impression, actions[i], prefixes[i], places[i])


def observe_rows(params: Any, state: Any, batch: Batch) -> None:
    """Let the policy observe the impressions row by row, which updates ``state``; nothing is decided or
    learned.
    """
    for i in range(len(batch.lanes)):
        observe(params, state, batch.lanes[i], get_impression(batch, i))


@kernel
def count_shown(plays: Ints, lanes: Ints, actions: Ints, fresh: Booleans) -> None:
    """Add 1 to ``plays``, in place, for each arm shown in a row of the mask ``fresh``.

    Does nothing if ``plays`` has no columns, as for policies whose beliefs count all plays.
    """
    if plays.shape[1] > 0:
        for i in range(len(lanes)):
            for k in range(actions.shape[1]):
                if fresh[i] and actions[i, k] >= 0:
                    plays[lanes[i], actions[i, k]] += 1


def learn_rows(
    params: Any,
    state: Any,
    batch: Batch,
    plays: Ints,
    actions: Ints,
    feedback: Floats,
    propensities: Floats,
    epochs: Ints,
    fresh: Booleans,
) -> int:
    """Learn the outcomes row by row into ``state``; return the number of rows learned.

    A row is learned only if its lane has not restarted since the decision (by ``epochs``). ``fresh`` is
    filled with the mask of learned rows, and their shown arms are counted in ``plays``.
    """
    learned = 0
    for i in range(len(batch.lanes)):
        lane = batch.lanes[i]
        fresh[i] = epochs[i] == epoch(params, state, lane)
        if fresh[i]:
            impression = get_impression(batch, i)
            outcome = make_outcome(params, impression, actions[i], feedback[i], propensities[i])
            learn(params, state, lane, outcome)
            learned += 1
    count_shown(plays, batch.lanes, actions, fresh)
    return learned


def replay_rows(
    params: Any,
    state: Any,
    batch: Batch,
    plays: Ints,
    actions: Ints,
    feedback: Floats,
    propensities: Floats,
    fresh: Booleans,
) -> None:
    """Update ``state`` row by row: observe the impression, then learn its outcome.

    The shown arms are counted in ``plays``. ``fresh``, the mask of rows to count, must be True for all rows.
    """
    for i in range(len(batch.lanes)):
        lane = batch.lanes[i]
        impression = get_impression(batch, i)
        observe(params, state, lane, impression)
        row_propensity = propensities[i]
        learn(params, state, lane, make_outcome(params, impression, actions[i], feedback[i], row_propensity))
    count_shown(plays, batch.lanes, actions, fresh)


def correct_rows(
    params: Any,
    state: Any,
    batch: Batch,
    actions: Ints,
    before: Floats,
    after: Floats,
    propensities: Floats,
    epochs: Ints,
) -> int:
    """Replace learned rewards ``before`` by ``after``, in ``state``; return the number of rows corrected.

    A row is corrected only if its lane has not restarted since the decision (by ``epochs``).
    """
    corrected = 0
    for i in range(len(batch.lanes)):
        lane = batch.lanes[i]
        if epochs[i] == epoch(params, state, lane):
            impression = get_impression(batch, i)
            action, row_propensity = actions[i], propensities[i]
            wrong = make_outcome(params, impression, action, before[i], row_propensity)
            unlearn(params, state, lane, wrong)
            right = make_outcome(params, impression, action, after[i], row_propensity)
            learn(params, state, lane, right)
            corrected += 1
    return corrected
