"""Many impressions at once: the compiled loops behind the learner.

Crossing from Python into compiled code costs microseconds however small the work, so the batch
is the native form and a single call is a batch of one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tacit.arrays import Floats, Generator, Ints
from tacit.dispatch import choose, epoch, learn, observe, propensity
from tacit.policies.base import Impression


class Batch(NamedTuple):
    """Impressions as columns.

    Attributes
    ----------
    lanes : array of int64, shape (rows,)
    arms : array of int64
        Slots of offered arms, all rows in one array; rows may share a stretch.
    starts, stops : array of int64, shape (rows,)
        Row i is offered ``arms[starts[i]:stops[i]]``.
    contexts : array of float64, shape (rows, context_dim)
    """

    lanes: Ints
    arms: Ints
    starts: Ints
    stops: Ints
    contexts: Floats


def choose_rows(
    params: Any,
    state: Any,
    batch: Batch,
    rng: Generator,
    chosen: Ints,
    epochs: Ints,
    propensities: Floats | None,
) -> None:
    """Observe and choose row by row; fill ``chosen``, ``epochs`` and, if given, propensities."""
    for i in range(len(batch.lanes)):
        lane = batch.lanes[i]
        impression = Impression(batch.arms[batch.starts[i] : batch.stops[i]], batch.contexts[i])
        observe(params, state, lane, impression)
        arm = choose(params, state, lane, impression, rng)
        chosen[i] = arm
        epochs[i] = epoch(params, state, lane)
        if propensities is not None:
            propensities[i] = propensity(params, state, lane, impression, arm)


def observe_rows(params: Any, state: Any, batch: Batch) -> None:
    """Observe row by row: what remains of decisions that were made before."""
    for i in range(len(batch.lanes)):
        impression = Impression(batch.arms[batch.starts[i] : batch.stops[i]], batch.contexts[i])
        observe(params, state, batch.lanes[i], impression)


def learn_rows(
    params: Any,
    state: Any,
    batch: Batch,
    chosen: Ints,
    rewards: Floats,
    propensities: Floats,
    epochs: Ints,
) -> int:
    """Learn row by row; return how many rows were of their lane's present epoch."""
    learned = 0
    for i in range(len(batch.lanes)):
        lane = batch.lanes[i]
        if epochs[i] == epoch(params, state, lane):
            impression = Impression(batch.arms[batch.starts[i] : batch.stops[i]], batch.contexts[i])
            learn(params, state, lane, impression, chosen[i], rewards[i], propensities[i])
            learned += 1
    return learned
