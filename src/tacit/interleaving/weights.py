"""Outcomes of duels as signs of sums, for exact sums over all clicks."""

from __future__ import annotations

import numpy as np

from tacit.core.arrays import Floats
from tacit.interleaving.base import Interleaved


def outcome_weights(shown: Interleaved) -> Floats:
    """Return weights whose sum over the clicks has the sign of the left ranker's lead.

    Parameters
    ----------
    shown : Interleaved
        A duel's list, with ``teams``, ``credits`` or ``ranks`` remembered.

    Returns
    -------
    array of float64, shape (positions, positions)
        In row m: the weight of a click at each position, where m is the lowest click.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.interleaving import TeamDraft
    >>> shown = TeamDraft(length=2).interleave([["a", "b"], ["b", "a"]], np.random.default_rng(1))
    >>> shown.memory["teams"], outcome_weights(shown)[1]
    ([0, 1], array([ 1., -1.]))
    """
    positions = len(shown.items)
    memory = shown.memory
    if "ranks" in memory:
        left, right = (
            np.array([np.inf if rank is None else rank for rank in row]) for row in memory["ranks"]
        )
        depth = np.minimum(left, right)[:, None]
        return np.asarray((left <= depth).astype(np.float64) - (right <= depth))
    if "credits" in memory:
        weights = np.subtract(*map(np.asarray, memory["credits"]))
    else:
        weights = np.array([{0: 1.0, 1: -1.0, None: 0.0}[team] for team in memory["teams"]])
    return np.asarray(np.broadcast_to(weights, (positions, positions)), np.float64)
