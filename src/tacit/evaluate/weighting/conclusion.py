"""From the sums over a log to an estimate and its intervals."""

from __future__ import annotations

import math

from tacit.errors import InvalidValue
from tacit.evaluate.intervals import (
    CONFIDENCE,
    Bounds,
    anytime,
    bootstrap,
    bounded,
    estimate_of,
    normal,
    score,
    standard_error,
)
from tacit.evaluate.sums import Sums
from tacit.evaluate.weighting.estimators import (
    DoublyRobust,
    Estimator,
)
from tacit.evaluate.weighting.result import Estimate, bounds_text
from tacit.evaluate.weighting.slates import SlateEstimator

FEW = 100
"""Effective sample size below which intervals that hold in the limit are doubted."""


def conclude(
    estimator: Estimator,
    sums: Sums,
    *,
    clustered: bool = False,
    confidence: float = CONFIDENCE,
    weight_bound: float | None = None,
    seed: int = 0,
) -> Estimate:
    """Return what an estimator says, given the sums over a log.

    Parameters
    ----------
    estimator : Estimator
    sums : Sums
        Perhaps merged from those of the parts of a log.
    clustered : bool, default False
        Whether they were made with a ``cluster``.
    confidence, weight_bound, seed
        As for :func:`off_policy`.
    """
    ratio = estimator.ratio
    slots = estimator.slots if isinstance(estimator, SlateEstimator) else 1
    found: dict[str, Bounds] = {
        "normal": normal(sums, ratio, confidence, clustered=clustered),
        "bootstrap": bootstrap(sums, ratio, confidence, seed=seed),
    }
    looked_at_any_time = {
        "score": _score(estimator, sums, confidence),
        "anytime": _anytime(estimator, sums, confidence, weight_bound),
    }
    if not clustered:
        found |= {kind: bounds for kind, bounds in looked_at_any_time.items() if bounds is not None}
    return Estimate(
        estimator=estimator.label,
        value=estimate_of(sums, ratio),
        standard_error=standard_error(sums, ratio, clustered=clustered),
        intervals=found,
        effective_sample_size=sums.effective_sample_size,
        mean_weight=sums.mean_weight / slots,
        largest_weights=tuple((sums.largest[sums.largest > 0] / slots).tolist()),
        sums=sums,
        warnings=_doubts(estimator, sums, found),
    )


def _doubts(estimator: Estimator, sums: Sums, found: dict[str, Bounds]) -> tuple[str, ...]:
    """Return what speaks against the intervals that hold in the limit only."""
    doubts = []
    if sums.n and sums.effective_sample_size < FEW:
        doubts.append(
            f"the {sums.n:,} units, weighted, tell as much as {sums.effective_sample_size:.3g} "
            f"(n_eff) would; the largest weight is {sums.largest[0]:,.6g}"
        )
    low, high = found["normal"]
    most = float(estimator.slots) if isinstance(estimator, SlateEstimator) else 1.0
    if low < 0.0 or high > most:
        doubts.append(
            f"the normal interval, {bounds_text((low, high))}, leaves the range of mean rewards, 0 "
            f"to {most:g} (it is not clipped)"
        )
    if not doubts:
        return ()
    remedy = "trust none of its intervals"
    if not estimator.weighted:
        remedy += " (the anytime interval of IPS holds for any weights)"
    elif "anytime" in found:
        remedy = f"trust the anytime interval, {bounds_text(found['anytime'])}, alone"
    return (
        f"{estimator.label}: {'; '.join(doubts)}: {remedy}, and log more rows, with a larger "
        "propensity of what the target policy shows",
    )


def _score(estimator: Estimator, sums: Sums, confidence: float) -> Bounds | None:
    # A clipped estimate is biased, and this interval knows nothing of it.
    if not estimator.weighted or getattr(estimator, "clip", math.inf) < math.inf:
        return None
    slots = estimator.slots if isinstance(estimator, SlateEstimator) else 1
    return score(sums, confidence, slots=float(slots))


def _anytime(
    estimator: Estimator, sums: Sums, confidence: float, weight_bound: float | None
) -> Bounds | None:
    clip = float(getattr(estimator, "clip", math.inf))
    if weight_bound is not None and sums.largest[0] > weight_bound * (1 + 1e-12):
        raise InvalidValue(
            "weight_bound", weight_bound, f"there is a weight of {sums.largest[0]:g}; give more"
        )
    unclipped = weight_bound is not None and clip >= weight_bound
    if isinstance(estimator, SlateEstimator):
        if not estimator.weighted:
            return None
        return anytime(sums, confidence, slots=float(estimator.slots))
    if estimator.weighted:
        return anytime(sums, confidence, weight_bound=weight_bound if unclipped else None)
    threshold = float(getattr(estimator, "threshold", math.inf))
    if not isinstance(estimator, DoublyRobust) or weight_bound is None:
        return None
    if not unclipped or threshold < weight_bound:
        return None
    return bounded(sums, -weight_bound, 1.0 + weight_bound, confidence)
