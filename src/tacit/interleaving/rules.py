"""Credit for lists of any method, and rules that weigh actions by kind, position and disagreement."""

# 1. ``credit_clicks``: credit by the method that built a list.
# 2. ``outcome_weights``: outcomes as signs of sums, for exact sums over all clicks.
# 3. ``CreditRule``: weights of kinds of actions, of positions, and of the rankers' disagreement.

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats
from tacit.errors import InvalidValue, with_suggestions
from tacit.interleaving.base import Credit, Interleaved, InterleavingMethod
from tacit.interleaving.probabilistic import Optimized, Probabilistic, ProbabilisticMultileave
from tacit.interleaving.team_draft import Balanced, DebiasedBalanced, TeamDraft, TeamDraftMultileave

# ---- Credit for lists of any method

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
_METHODS_FOR_CREDIT = {name: method() for name, method in METHODS.items()}
"""Methods by name; the credit does not depend on their parameters."""


@with_suggestions
def credit_clicks(interleaved: Interleaved, clicks: Sequence[int]) -> Credit:
    """Return the credit of each ranker for the clicks on a list, by the method named in the list.

    Parameters
    ----------
    interleaved : Interleaved
        The list that was shown.
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
    >>> credit_clicks(shown, clicks=[0]) == TeamDraft().credit(shown, clicks=[0])
    True
    """
    if not isinstance(interleaved, Interleaved):
        remedy = "give what interleave returned, or Interleaved.from_dict(…) of what as_dict did"
        raise InvalidValue("interleaved", interleaved, remedy)
    if interleaved.method not in METHODS:
        raise InvalidValue("interleaved.method", interleaved.method, f"give one of {', '.join(METHODS)}")
    if interleaved.method == "Probabilistic" and "teams" in interleaved.memory:
        return Probabilistic(marginalised=False).credit(interleaved, clicks)
    return _METHODS_FOR_CREDIT[interleaved.method].credit(interleaved, clicks)


# ---- Outcomes of duels as signs of sums, for exact sums over all clicks


def outcome_weights(shown: Interleaved) -> Floats:
    """Return weights of clicks whose sum over the clicked positions has the sign of the left ranker's lead.

    Parameters
    ----------
    shown : Interleaved
        A duel's list, with ``teams``, ``credits`` or ``ranks`` in its memory.

    Returns
    -------
    array of float64, shape (positions, positions)
        Row m has the weight of a click at each position if m is the lowest clicked position.

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
        left_ranks, right_ranks = (
            np.array([np.inf if rank is None else rank for rank in row]) for row in memory["ranks"]
        )
        depth = np.minimum(left_ranks, right_ranks)[:, None]
        return np.asarray((left_ranks <= depth).astype(np.float64) - (right_ranks <= depth))
    if "credits" in memory:
        weights = np.subtract(*map(np.asarray, memory["credits"]))
    else:
        weights = np.array([{0: 1.0, 1: -1.0, None: 0.0}[team] for team in memory["teams"]])
    return np.asarray(np.broadcast_to(weights, (positions, positions)), np.float64)


# ---- Weights of actions: by kind of action, by position, and by how far the rankers disagree

CLICK = "click"
"""The kind of action that counts by default."""

POSITIONS: dict[str, Callable[[int], float]] = {
    "equal": lambda place: 1.0,
    "inverse": lambda place: 1.0 / (place + 1),
    "dcg": lambda place: 1.0 / math.log2(place + 2),
    "effort": lambda place: math.log2(place + 2),
}
"""Weight of an action by its position in the list, from 0; ``effort`` gives lower positions more weight,
as users read more to reach them."""


class Action(NamedTuple):
    """An action of a user on an item of a list.

    Attributes
    ----------
    position : int
        Position of the item in the list, from 0.
    kind : str, default "click"
        Kind of action, such as ``click``, ``add_to_cart``, ``purchase`` or ``dwell``.
    amount : float, default 1
        Amount of the action, such as seconds of dwelling or money; at least 0.
    """

    position: int
    kind: str = CLICK
    amount: float = 1.0


CreditFunction = Callable[[Interleaved, Sequence[Action]], Sequence[float]]
"""A custom credit function: takes a list and the actions on it, returns a credit per ranker."""


@dataclass(frozen=True)
class CreditRule:
    """A rule that turns the actions on a list into credit for the rankers.

    The credit of a ranker is a sum over the actions on the list. Each action adds the product of the weight
    of its kind, its amount, the weight of its position, and the ranker's share of the item: 1 for an item
    of its team, or the share in the list's memory.

    Parameters
    ----------
    worth : dict, default {"click": 1}
        Weight per kind of action, at least 0; other kinds have weight 0.
    position : str or sequence of float, default "equal"
        Weight of a position: ``equal``, ``inverse`` (1/position), ``dcg``, ``effort`` (the lower
        the more), or a number for each position from the top, and 0 below.
    distinct : bool, default False
        Whether an item counts only as far as the rankers disagree on it: by the difference of its
        inverse ranks. Needs ``rankings``.
    once : bool, default True
        Whether a kind of action counts once per position, with its largest amount; else each action counts.
    most : float, default infinity
        Upper limit of an action's amount, such as 60 for seconds of dwelling.
    own : function, optional
        A custom credit function that replaces all of this: takes the list and its actions, and
        returns a credit per ranker.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Weights by position and kind: Chapelle, Joachims, Radlinski, Yue (2012), "Large-scale
    validation and analysis of interleaved search evaluation", section 6.

    Examples
    --------
    >>> shown = Interleaved(("a", "b"), 2, "TeamDraft", {"teams": [0, 1]})
    >>> rule = CreditRule({"click": 1, "purchase": 10})
    >>> rule.credits(shown, [Action(0), Action(1), Action(1, "purchase")])
    (1.0, 11.0)
    """

    worth: Mapping[str, float] = field(default_factory=lambda: {CLICK: 1.0})
    position: str | Sequence[float] = "equal"
    distinct: bool = False
    once: bool = True
    most: float = math.inf
    own: CreditFunction | None = None

    def __post_init__(self) -> None:
        """Validate the fields; raise InvalidValue for negative or unknown weights."""
        if not isinstance(self.worth, Mapping) or not self.worth:
            raise InvalidValue("worth", self.worth, "give an amount for each kind of action")
        for kind, amount in self.worth.items():
            checks.number(f"worth.{checks.name('worth', kind)}", amount, 0.0, 1e300)
        if isinstance(self.position, str):
            if self.position not in POSITIONS:
                remedy = f"give one of {', '.join(POSITIONS)}, or a number for each place"
                raise InvalidValue("position", self.position, remedy)
        else:
            for amount in self.position:
                checks.number("position", amount, 0.0, 1e300)
        if not self.most > 0:
            raise InvalidValue("most", self.most, "give a number above 0")

    def credits(
        self, shown: Interleaved, actions: Iterable[Action], rankings: Sequence[Sequence[Any]] | None = None
    ) -> tuple[float, ...]:
        """Return the credit of each ranker for the actions on a list, in the order of the rankings.

        Parameters
        ----------
        shown : Interleaved
            The list that was shown.
        actions : iterable of Action
        rankings : sequence of sequences, optional
            The rankings, as for ``interleave``; needed for ``distinct``.

        Raises
        ------
        InvalidValue
            If a position is not in the list, or ``distinct`` is set without rankings.
        """
        counted = self._select_actions(shown, actions)
        if self.own is not None:
            values = tuple(map(float, self.own(shown, counted)))
            if len(values) != shown.rankers or not all(map(math.isfinite, values)):
                raise InvalidValue("own", values, f"return {shown.rankers} finite numbers")
            return values
        disagreements = self._measure_disagreements(shown, rankings)
        shares = item_shares(shown, [action.position for action in counted])
        amounts = [
            self.worth[action.kind]
            * min(action.amount, self.most)
            * self.place_worth(action.position)
            * disagreements[action.position]
            for action in counted
        ]
        return tuple(
            math.fsum(amount * row[action.position] for action, amount in zip(counted, amounts, strict=True))
            for row in shares
        )

    def place_worth(self, place: int) -> float:
        """Return the weight of a position, from 0; 0 beyond the end of configured weights."""
        if isinstance(self.position, str):
            return POSITIONS[self.position](place)
        return float(self.position[place]) if place < len(self.position) else 0.0

    def _select_actions(self, shown: Interleaved, actions: Iterable[Action]) -> list[Action]:
        """Validate the actions and return the ones that count, sorted by position and kind.

        Kinds without weight are left out unless there is a custom credit function. With ``once``, only the
        largest amount of each kind at a position counts.
        """
        largest: dict[tuple[int, str, int], Action] = {}
        last = len(shown.items) - 1
        for number, action in enumerate(actions):
            checks.integer("position", action.position, 0, last)
            if self.own is None and not self.worth.get(action.kind, 0.0):
                continue
            amount = checks.number("amount", action.amount, 0.0, 1e300)
            key = action.position, action.kind, 0 if self.once else number
            if key not in largest or amount > largest[key].amount:
                largest[key] = action
        return [largest[key] for key in sorted(largest)]

    def _measure_disagreements(self, shown: Interleaved, rankings: Any) -> list[float]:
        """Return, per item, how far the rankers disagree: the range of its inverse ranks.

        It is 1 for all items unless ``distinct``. Raise InvalidValue if the rankings are needed and missing.
        """
        if not self.distinct:
            return [1.0] * len(shown.items)
        if rankings is None:
            raise InvalidValue("rankings", None, "give what the rankers gave, for distinct credit")
        inverse = [{item: 1.0 / (rank + 1) for rank, item in enumerate(row)} for row in rankings]
        return [
            max(row.get(item, 0.0) for row in inverse) - min(row.get(item, 0.0) for row in inverse)
            for item in shown.items
        ]


def item_shares(shown: Interleaved, clicks: Sequence[int]) -> list[list[float]]:
    """Return how much of a click on each item counts for each ranker, one row per ranker.

    It follows from the list's memory: 1 for an item of the ranker's team, or a stored share or credit.

    Parameters
    ----------
    shown : Interleaved
        The list that was shown.
    clicks : sequence of int
        The positions with actions: the lowest one sets the depth of balanced interleaving.

    Examples
    --------
    >>> item_shares(Interleaved(("a", "b"), 2, "TeamDraft", {"teams": [0, None]}), [])
    [[1.0, 0.0], [0.0, 0.0]]
    """
    memory = shown.memory
    if "teams" in memory:
        return [[float(team == r) for team in memory["teams"]] for r in range(shown.rankers)]
    if "ranks" in memory:
        lowest = [row[max(clicks)] for row in memory["ranks"]] if clicks else []
        depth = min((rank for rank in lowest if rank is not None), default=0)
        return [[float(rank is not None and rank <= depth) for rank in row] for row in memory["ranks"]]
    (rows,) = memory.values()
    return [[cell or 0.0 for cell in row] for row in rows]
