"""What policies have in common that rank arms by the plays that they still remember."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tacit.policies.index import IndexPolicy


class ForgettingUCB(IndexPolicy):
    """Base of the upper confidence bounds over ``plays`` and ``rewards`` that are forgotten."""

    @staticmethod
    def index(params: Any, state: Any, lane: int, arm: int, confidence: float) -> float:
        plays = state.plays[lane, arm]
        if plays == 0.0:
            return math.inf
        return float(state.rewards[lane, arm] / plays + confidence / np.sqrt(plays))
