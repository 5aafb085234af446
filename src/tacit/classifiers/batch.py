"""Many contexts at once: the compiled loops behind :class:`~tacit.classifiers.SafeClassifier`."""

from __future__ import annotations

from typing import Any

from tacit.core.arrays import Booleans, Floats
from tacit.core.dispatch import learn_false, predict


def predict_all(params: Any, state: Any, row: int, contexts: Floats, positive: Booleans) -> None:
    """Predict each context from one row of the state; fill ``positive``."""
    for i in range(len(contexts)):
        positive[i] = predict(params, state, row, contexts[i])


def learn_all_false(params: Any, state: Any, row: int, contexts: Floats) -> None:
    """Learn in order, in one row of the state, that each context was no event."""
    for i in range(len(contexts)):
        learn_false(params, state, row, contexts[i])
