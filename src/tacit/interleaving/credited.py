"""Credit for what any of the methods has shown."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.errors import InvalidValue
from tacit.interleaving.balanced import Balanced, DebiasedBalanced
from tacit.interleaving.base import Credit, Interleaved, InterleavingMethod
from tacit.interleaving.optimized import Optimized
from tacit.interleaving.probabilistic import Probabilistic, ProbabilisticMultileave
from tacit.interleaving.team_draft import TeamDraft, TeamDraftMultileave

METHODS: dict[str, type[InterleavingMethod]] = {
    method.__name__: method
    for method in (
        Balanced,
        DebiasedBalanced,
        Optimized,
        Probabilistic,
        ProbabilisticMultileave,
        TeamDraft,
        TeamDraftMultileave,
    )
}


def credited(interleaved: Interleaved, clicks: Sequence[int]) -> Credit:
    """Turn clicks into credit by the method that made the list.

    Parameters
    ----------
    interleaved : Interleaved
        What was shown, as remembered.
    clicks : sequence of int
        The clicked positions, from 0, in any order; a position counts once.

    Raises
    ------
    InvalidValue
        If there is no such method or a position is not in the list.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.interleaving import TeamDraft
    >>> shown = TeamDraft(length=2).interleave([["a", "b"], ["b", "a"]], np.random.default_rng(1))
    >>> credited(shown, clicks=[0]) == TeamDraft().credit(shown, clicks=[0])
    True
    """
    if interleaved.method not in METHODS:
        raise InvalidValue("interleaved.method", interleaved.method, f"give one of {', '.join(METHODS)}")
    if interleaved.method == "Probabilistic" and "teams" in interleaved.memory:
        return Probabilistic(marginalised=False).credit(interleaved, clicks)
    return METHODS[interleaved.method]().credit(interleaved, clicks)
