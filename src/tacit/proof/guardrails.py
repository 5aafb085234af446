"""Guardrails: metrics that learning must not harm."""

from __future__ import annotations

from typing import Literal

from tacit.core import checks
from tacit.proof.result import Lift

Safety = Literal["early", "harm", "safe", "unknown"]


def guarded(
    lift: Lift, margin: float = 0.0, *, better: Literal["more", "less"] = "more", span: float = 1.0
) -> Safety:
    """Return whether a metric was harmed.

    Parameters
    ----------
    lift : Lift
        Of the metric; where m metrics are watched, of ``comparisons=m``.
    margin : float, default 0
        How much worse it may be, as a share of the control's; in [0, 1). Without a ratio, as a
        share of the ``span``.
    better : str, default "more"
        Whether ``more`` of it is better or ``less``.
    span : float, default 1
        From the least amount to the largest, where there is a difference only.

    Returns
    -------
    str
        ``harm`` if it is worse without doubt, ``safe`` if it is not worse than the margin, else
        ``unknown``; ``early`` if there is too little traffic.

    Raises
    ------
    InvalidValue
        If the margin is out of its range.

    References
    ----------
    See docs/proof.md.

    Examples
    --------
    >>> from tacit.proof import Interval
    >>> guarded(Lift("undecided", Interval(1.0, 0.99, 1.01)), margin=0.02)
    'safe'
    >>> guarded(Lift("worse", Interval(0.9, 0.85, 0.95)), margin=0.02)
    'harm'
    """
    margin = checks.number("margin", margin, 0.0, 1.0)
    if lift.difference is not None and lift.ratio is None:
        even, allowed, interval = 0.0, margin * span, lift.difference
    elif lift.ratio is not None:
        even, allowed, interval = 1.0, margin, lift.ratio
    else:
        return "early" if lift.claim == "early" else "unknown"
    _, low, high = interval
    if high < even if better == "more" else low > even:
        return "harm"
    kept = low >= even - allowed if better == "more" else high <= even + allowed
    return "safe" if kept else "unknown"
