"""How many standard errors an interval extends that may be looked at at any time."""

from __future__ import annotations

import math

from tacit.core import checks
from tacit.errors import InvalidValue

ANY_TIME = {0.9: 2.98, 0.95: 3.25, 0.99: 3.75}
"""From the confidence to the boundary: flat over a thousandfold range of information, with 0.05
added for skewness."""

PLANNED = 2.548
"""The boundary at one planned look, for a confidence of 95 %."""


def boundary(confidence: float = 0.95, comparisons: int = 1, *, planned: bool = False) -> float:
    """Return how many standard errors an interval extends to either side.

    Whoever looks often needs wider intervals than whoever looks once (1.96 for 95 %). These hold
    for all looks together, over a thousandfold range of information.

    Parameters
    ----------
    confidence : float, default 0.95
        Probability that no look ever misleads: 0.9, 0.95 or 0.99.
    comparisons : int, default 1
        How many intervals are to hold together; c becomes √(c² + 2 ln m).
    planned : bool, default False
        Whether this is the one look that was planned before the first decision. It is sharper, and
        the others hold as they do without it; for a confidence of 0.95.

    Raises
    ------
    InvalidValue
        If the confidence is another one.

    References
    ----------
    See docs/proof.md.

    Examples
    --------
    >>> boundary(), round(boundary(comparisons=5), 3)
    (3.25, 3.712)
    >>> boundary(planned=True)
    2.548
    """
    known = [0.95] if planned else list(ANY_TIME)
    if confidence not in known:
        raise InvalidValue("confidence", confidence, f"give one of {known}")
    c = PLANNED if planned else ANY_TIME[confidence]
    return math.sqrt(c * c + 2 * math.log(checks.integer("comparisons", comparisons, 1)))


def checked_share(share: float) -> float:
    """Return the share of a control.

    Raises
    ------
    InvalidValue
        If it is not within (0, 1).
    """
    if not 0 < share < 1:
        raise InvalidValue("share", share, "give a number between 0 and 1, neither of them")
    return float(share)
