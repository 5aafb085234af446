"""What would be if two arms always met: their duels in a log, weighed by how likely each was."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from tacit.core import checks
from tacit.errors import InvalidValue
from tacit.evaluate.intervals import CONFIDENCE, anytime
from tacit.evaluate.sums import summed


class Always(NamedTuple):
    """How often an arm would win if it always met another one; a tie counts one half.

    Attributes
    ----------
    value : float
        Importance-weighted: unbiased, but not bound to [low, high], nor to [0, 1].
    low, high : float
        Cover the true value at all times at once, so that one may look whenever one likes.
    met : int
        Duels of the two that the log has.
    duels : int
        Rows of the log.
    """

    value: float
    low: float
    high: float
    met: int
    duels: int


def always(
    duels: Iterable[tuple[Any, Any, float, float | None]],
    first: Any,
    second: Any,
    *,
    confidence: float = CONFIDENCE,
) -> Always:
    """Return how often ``first`` would win if it always met ``second``, on a side that a coin decides.

    Counting how often it won will not do: a policy goes on with duels that went one way, and shows a pair
    to some keys more often than to others. Each duel of the two counts by the inverse of its probability,
    which needs no assumption but that this is what is logged. The interval is wide where a policy has
    hardly shown the two, and shows it: it asks nothing of the weights.

    Parameters
    ----------
    duels : iterable of (left, right, outcome, propensity)
        All of the log, whoever met whom: the outcome is 1.0 where the left one won, 0.0 where the right one
        did, 0.5 for a tie, or between; the propensity that of ``decision``.
    first, second : arm
        As the log names them; different ones.
    confidence : float, default 0.95

    Raises
    ------
    InvalidValue
        If the two are one, an outcome or a propensity is missing or out of its range, or there is no row.

    References
    ----------
    Karampatziakis, Mineiro, Ramdas (2021), "Off-policy confidence sequences".

    Examples
    --------
    >>> import tacit
    >>> from tacit.evaluate.duels import always
    >>> policy = tacit.ExplorationFloor(tacit.auto(["a", "b", "c"], shows="duel"), 0.5)
    >>> learner, log = tacit.Learner(policy, seed=1), []
    >>> for _ in range(2000):
    ...     decision = learner.choose("query")
    ...     outcome = 0.5 + (decision.pair[0] == "a") / 2 - (decision.pair[1] == "a") / 2  # a always wins
    ...     _ = learner.learn(decision, outcome)
    ...     log.append((*decision.pair, outcome, decision.propensity))
    >>> found = always(log, "a", "b")
    >>> found.low > 0.5
    True
    """
    if first == second:
        raise InvalidValue("second", second, "give two different arms")
    weights, values, met = [], [], 0
    for left, right, outcome, propensity in duels:
        won = checks.number("outcome", outcome, 0.0, 1.0)
        weight = 0.0
        if {left, right} == {first, second}:
            remedy = "give the decision's, in (0, 1]; a policy that has none needs an ExplorationFloor"
            if propensity is None or not 0.0 < propensity <= 1.0:
                raise InvalidValue("propensity", propensity, remedy)
            weight, met = 0.5 / propensity, met + 1
        weights.append(weight)
        values.append(weight * (won if left == first else 1.0 - won))
    if not weights:
        raise InvalidValue("duels", "no row", "give a log with duels")
    sums = summed(np.array(weights), np.array(values))
    return Always(sums.y / sums.n, *anytime(sums, confidence), met, sums.n)
