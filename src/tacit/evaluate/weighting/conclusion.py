"""From the sums over a log to an estimate and its intervals."""

from __future__ import annotations

import math
from dataclasses import replace

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
    widened,
)
from tacit.evaluate.sums import Sums
from tacit.evaluate.weighting.arm_means import ArmMeans
from tacit.evaluate.weighting.estimators import DoublyRobust, Estimator
from tacit.evaluate.weighting.result import NO_OVERLAP, Estimate, bounds_text
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
    slots = _slots(estimator)
    found = Estimate(
        estimator=estimator.label,
        value=math.nan,
        standard_error=math.nan,
        intervals={},
        effective_sample_size=sums.effective_sample_size,
        mean_weight=sums.mean_weight / slots,
        largest_weights=tuple((sums.largest[sums.largest > 0] / slots).tolist()),
        sums=sums,
    )
    if not _overlaps(estimator, sums):
        return replace(found, warnings=(f"{estimator.label}: {NO_OVERLAP}",) if sums.n else ())
    found = replace(found, value=estimate_of(sums, estimator.ratio))
    if not estimator.judged:
        return found
    bounds: dict[str, Bounds | None] = {
        kind: widened(limits, sums, confidence, slots=slots, clustered=clustered)
        for kind, limits in (
            ("normal", normal(sums, estimator.ratio, confidence, clustered=clustered)),
            ("bootstrap", bootstrap(sums, estimator.ratio, confidence, seed=seed)),
        )
    }
    if not clustered:
        bounds["score"] = _score(estimator, sums, confidence)
        bounds["anytime"] = _anytime(estimator, sums, confidence, weight_bound)
    sure = bounds.get("anytime")
    found = replace(
        found,
        # None at all where no two rewards differ: then it would be 0.
        standard_error=standard_error(sums, estimator.ratio, clustered=clustered) or math.nan,
        intervals={kind: x for kind, x in bounds.items() if x and x[0] < x[1]},
        empty=("anytime",) if sure and sure[0] >= sure[1] else (),
    )
    told = [f"{estimator.label}: {found.note}"] if found.note else []
    return replace(found, warnings=(*told, *_doubts(estimator, sums, found.intervals)))


def _slots(estimator: Estimator) -> float:
    return float(estimator.slots) if isinstance(estimator, SlateEstimator) else 1.0


def _overlaps(estimator: Estimator, sums: Sums) -> bool:
    """Whether the log says anything of what the target policy would show."""
    of_the_log = isinstance(getattr(estimator, "model", None), ArmMeans)
    return sums.w > 0 or (sums.n > 0 and not estimator.judged and not of_the_log)


def _doubts(estimator: Estimator, sums: Sums, found: dict[str, Bounds]) -> tuple[str, ...]:
    """Return what speaks against the intervals that hold in the limit only."""
    doubts = []
    if sums.n and sums.effective_sample_size < FEW:
        doubts.append(
            f"the {sums.n:,} units, weighted, tell as much as {sums.effective_sample_size:.3g} "
            f"(n_eff) would; the largest weight is {sums.largest[0]:,.6g}"
        )
    low, high = found.get("normal", (0.0, 0.0))
    most = _slots(estimator)
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
    return score(sums, confidence, slots=_slots(estimator))


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
