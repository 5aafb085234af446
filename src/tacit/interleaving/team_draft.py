"""Team-draft interleaving: the rankers pick items for their teams, as captains do."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.interleaving.base import Credit, Interleaved, compared
from tacit.interleaving.team_draft_multileave import TeamDraftMultileave


@dataclass(frozen=True)
class TeamDraft(TeamDraftMultileave):
    """Team-draft interleaving of two rankings: the method to begin with.

    In every round a coin says who picks first; each ranker picks its best item that is not shown
    yet, for its team. The ranker whose team gets more clicks wins; equally many, or none, are a
    tie. Clicks that do not depend on what is shown favour nobody.

    Below the length of the shortest ranking the list is filled up with what is left, best ranks
    first, and those items belong to no team.

    Remembers ``teams``: per item shown, the ranker that picked it (0 left, 1 right), null for none.

    Parameters
    ----------
    length : int, default 10
        Most items in the list that is shown, 1 to 100.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Radlinski, Kurup, Joachims (2008), "How does clickthrough data reflect retrieval quality?",
    algorithm 2.

    Examples
    --------
    >>> import numpy as np
    >>> method = TeamDraft(length=4)
    >>> rankings = [["a", "b", "c", "d"], ["b", "e", "a", "f"]]
    >>> shown = method.interleave(rankings, np.random.default_rng(7))
    >>> shown.items, shown.memory["teams"]
    (('a', 'b', 'c', 'e'), [0, 1, 0, 1])
    >>> method.credit(shown, clicks=[0, 2]).outcome
    1.0
    >>> method.credit(shown, clicks=[]).outcome
    0.5
    """

    duels = True

    def _credits(self, interleaved: Interleaved, clicks: list[int]) -> Credit:
        credit = super()._credits(interleaved, clicks)
        return credit._replace(chance=compared(credit.credits[0] - credit.credits[1]))
