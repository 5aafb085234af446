"""What policies have in common that restart arms when a test finds a change."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tacit.core.arrays import Generator
from tacit.core.dispatch import kernel
from tacit.policies.base import Impression
from tacit.policies.index import IndexPolicy, greedy_choice, greedy_propensity


@kernel
def forced_arm(share: float, shown: int, arms: int, impression: Impression) -> int:
    """Return the arm whose turn it is to be explored, or −1 if it is no arm's turn.

    Of every ⌊arms/share⌋ impressions the first ``arms`` explore the arms in their order; an arm
    that is not on offer loses its turn. Impressions are counted, not rewards: otherwise a batch
    of decisions would all be forced, or none.
    """
    if share > 0.0:
        turn = (shown - 1) % int(arms / share)
        if turn < arms:
            for offered in impression.arms:
                if offered == turn:
                    return int(turn)
    return -1


class Detector(IndexPolicy):
    """Base of the policies that restart: their State has ``counts`` and ``restarts``."""

    @staticmethod
    def index(params: Any, state: Any, lane: int, arm: int, confidence: float) -> float:
        plays = state.counts.plays[lane, arm]
        if plays == 0.0:
            return math.inf
        return float(state.counts.rewards[lane, arm] / plays + confidence / np.sqrt(plays))

    @staticmethod
    def epoch(params: Any, state: Any, lane: int) -> int:
        return int(state.restarts[lane])


class ForcingDetector(Detector):
    """Base of those that explore in turn: ``share`` in their Params, ``shown`` in their State."""

    @staticmethod
    def observe(params: Any, state: Any, lane: int, impression: Impression) -> None:
        state.shown[lane] += 1

    @staticmethod
    def choose(params: Any, state: Any, lane: int, impression: Impression, rng: Generator) -> int:
        arms = state.counts.plays.shape[1]
        forced = forced_arm(params.share, state.shown[lane], arms, impression)
        return forced if forced >= 0 else greedy_choice(params, state, lane, impression, rng)

    @staticmethod
    def propensity(params: Any, state: Any, lane: int, impression: Impression, arm: int) -> float:
        arms = state.counts.plays.shape[1]
        forced = forced_arm(params.share, state.shown[lane], arms, impression)
        if forced >= 0:
            return 1.0 if arm == forced else 0.0
        return greedy_propensity(params, state, lane, impression, arm)
