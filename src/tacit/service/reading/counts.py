"""Plays and rewards as policies count them, found in their states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tacit.core.arrays import Floats
from tacit.policies.base import Counts
from tacit.policies.lists.position_based import PositionCounts
from tacit.policies.shifting.hypotheses import Hypotheses
from tacit.policies.stationary.thompson import Thompson

BetaState = Thompson.State


def parts_of(state: Any) -> Iterator[Any]:
    """Yield a policy's state and, where it holds those of others, theirs."""
    yield state
    if isinstance(state, tuple):
        for part in state:
            if isinstance(part, tuple):
                yield from parts_of(part)


def counts_of(state: Any) -> Counts | BetaState | PositionCounts | None:
    """Return plays and rewards as a policy counts them; None where it counts otherwise."""
    kinds = (Counts, BetaState, PositionCounts, Hypotheses)
    found = next((part for part in parts_of(state) if isinstance(part, kinds)), None)
    return _led(found) if isinstance(found, Hypotheses) else found


def _led(of: Hypotheses) -> Counts:
    """Return what was counted since the change that each lane believes in, if in any."""
    led = of.counts[np.arange(len(of.leading)), of.leading].astype(np.float64)
    return Counts(led.sum(axis=-1), led[..., 0], of.rounds.astype(np.float64))


def rounds_of(counts: Counts | BetaState | PositionCounts) -> Floats:
    """Return how many impressions each lane counts."""
    if isinstance(counts, Thompson.State):
        return counts.successes.sum(axis=1) + counts.failures.sum(axis=1)  # type: ignore[no-any-return]
    return counts.rounds


def plays_and_rewards(counts: Counts | BetaState, lane: int) -> tuple[Floats, Floats]:
    """Return the counts of each arm of a lane."""
    if isinstance(counts, Thompson.State):
        return counts.successes[lane] + counts.failures[lane], counts.successes[lane]
    return counts.plays[lane], counts.rewards[lane]
