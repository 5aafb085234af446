"""The conclusion of an evaluation: estimates with intervals and warnings, from sums over a log."""

# Needs the sums alone, so that parts of a log can be summed on different machines.

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tacit.core.checks import describe_similar_names
from tacit.core.reward_range import UNIT_RANGE, RewardRange
from tacit.errors import InvalidValue
from tacit.evaluate import intervals
from tacit.evaluate.estimate_sums import LogSums, SegmentSums
from tacit.evaluate.estimators import DoublyRobust, Estimator, IndependentIPS, SlateEstimator
from tacit.evaluate.intervals import Sums
from tacit.evaluate.options import OffPolicyEvaluation
from tacit.evaluate.results import (
    NO_OVERLAP,
    ByEstimator,
    Estimate,
    OffPolicyResult,
    Segment,
    bounds_text,
    describe_propensity_doubt,
)
from tacit.evaluate.rewards import ASSUMES, ModelOfLog
from tacit.uplift.sentences import are_heavy, describe_shares

FITTED = "the learner was fitted to this very log, and is judged too well by it; judge it by later rows"
MIN_EFFECTIVE_SIZE = 100
"""Effective sample size below which asymptotic intervals are not trusted."""
MODEL_ONLY = (
    "weights above its threshold, the largest is {:,.4g}, are left to the model, of which no row tells "
    "how far off it is; so it has no interval, DoublyRobust has one"
)

PROPENSITY_SUBSTITUTED = (
    "; the log has no position_propensity, that of the arm at its position whatever stands elsewhere, and "
    "propensity is taken for it: give it, or CascadeIPS"
)
ANYTIME_OPEN = (
    "anytime has no upper end (for one give the largest reward there can be, reward_range=(LOWEST, HIGHEST))",
    "there is no anytime interval (for one give the lowest reward there can be, reward_range=(LOWEST, None))",
)
"""Notes on the anytime interval: of a range with a lowest reward, and of one without."""
ONE_CLUSTER = "cluster: all rows have the same, so it has no interval; give a column of more values"
FEW_CLUSTERS = 10
FEW_CLUSTERS_NOTE = (
    "cluster: it has about {} values, too few to tell how much they differ, so trust no interval; give a "
    "column of more values, such as user"
)


def conclude(
    estimator: Estimator,
    sums: Sums,
    *,
    clustered: bool = False,
    confidence: float = intervals.CONFIDENCE,
    weight_bound: float | None = None,
    seed: int = 0,
    segments: int = 1,
    given_above: bool = False,
    reward_range: RewardRange = UNIT_RANGE,
) -> Estimate:
    """Return an estimator's estimate, with intervals and warnings, from its sums over a log.

    Without overlap the value is NaN and there are no intervals.

    Parameters
    ----------
    estimator : Estimator
    sums : Sums
        May be merged from parts of a log.
    clustered : bool, default False
        True if the sums are grouped by clusters.
    confidence, weight_bound, seed
        As for :func:`off_policy`.
    segments : int, default 1
        Number of segments whose intervals hold simultaneously (Bonferroni).
    given_above : bool, default False
        True if propensities given the arms above were used in place of those at the position.
    reward_range : RewardRange, default (0, 1)
    """
    corrected_confidence = 1 - (1 - confidence) / segments
    length = _count_positions(estimator)
    estimate = Estimate(
        estimator=estimator.label,
        value=math.nan,
        standard_error=math.nan,
        intervals={},
        effective_sample_size=sums.effective_sample_size,
        mean_weight=sums.mean_weight / length,
        largest_weights=tuple((sums.largest[sums.largest > 0] / length).tolist()),
        sums=sums,
    )
    if not _has_overlap(estimator, sums):
        return replace(estimate, warnings=(f"{estimator.label}: {NO_OVERLAP}",) if sums.n else ())
    estimate = replace(estimate, value=intervals.compute_estimate(sums, estimator.ratio))
    if not estimator.has_interval:
        return estimate
    if sums.largest[0] > getattr(estimator, "threshold", math.inf):
        return replace(estimate, warnings=(f"{estimator.label}: {MODEL_ONLY.format(sums.largest[0])}",))
    scale, is_open = UnitScale.from_sums(reward_range, estimator, sums), reward_range.is_open
    normal = intervals.normal(
        sums, estimator.ratio, corrected_confidence, clustered=clustered, skewed=is_open
    )
    bootstrap = intervals.bootstrap(sums, estimator.ratio, corrected_confidence, seed=seed)
    bounds: dict[str, intervals.Bounds | None] = {
        kind: scale.widen(limits, corrected_confidence, clustered)
        for kind, limits in (("normal", normal), ("bootstrap", bootstrap))
    }
    if not clustered:
        bounds["score"] = scale.restore(_score(estimator, scale.sums, confidence, segments))
        bounds["anytime"] = _anytime(estimator, sums, scale, corrected_confidence, weight_bound)
    anytime = bounds.get("anytime")
    estimate = replace(
        estimate,
        # NaN if all rewards are equal: the formula's 0 would claim certainty.
        standard_error=intervals.standard_error(sums, estimator.ratio, clustered=clustered) or math.nan,
        # Without intervals that do not exist (None or NaN) or are empty.
        intervals={kind: x for kind, x in bounds.items() if x and x[0] < x[1]},
        empty=("anytime",) if anytime and anytime[0] >= anytime[1] else (),
    )
    substitution = PROPENSITY_SUBSTITUTED if given_above and "mean weight" in estimate.note else ""
    notes = [f"{estimator.label}: {estimate.note}{substitution}"] if estimate.note else []
    if clustered and (count := np.count_nonzero(sums.groups[0])) < FEW_CLUSTERS:
        notes.append(f"{estimator.label}: {ONE_CLUSTER if count < 2 else FEW_CLUSTERS_NOTE.format(count)}")
    # Weights w ≤ clip have Σw² ≤ clip·Σw, equal only if each is clip or 0. With mean 1 their variance would
    # be at most clip: the observed mean is five standard errors below 1.
    clip, mean = getattr(estimator, "clip", math.inf), estimate.mean_weight
    if sums.ww >= clip * sums.w * (1 - 1e-9) and mean + 5 * math.sqrt(clip / sums.n) < 1:
        warning = f"clip: every weight is cut to {clip:g}, and they are {mean:.3g} on average in place of 1"
        notes.append(f"{estimator.label}: {warning}; give a larger clip")
    doubts = _list_interval_warnings(estimator, sums, estimate.intervals, reward_range)
    return replace(estimate, warnings=(*notes, *doubts))


class UnitScale(NamedTuple):
    """The sums of an estimator's units with rewards scaled to [0, 1], and the scale to restore their unit.

    Attributes
    ----------
    reward_range : RewardRange
        Of rewards at a position. If an end is open, the unit has no highest reward, either.
    length : float
        Number of positions of a unit.
    sums : Sums
        Sums of values, in the unit only if they are weight times reward.
    ends : int
        How many ends of the caller's range are known: 2 unless one or both are open.
    """

    reward_range: RewardRange
    length: float
    sums: Sums
    ends: int

    @classmethod
    def from_sums(cls, reward_range: RewardRange, estimator: Estimator, sums: Sums) -> UnitScale:
        """Return an estimator's sums scaled to rewards in [0, 1]; for the range (0, 1) they stay unchanged.

        For lists the range is extended to contain 0, the reward of an empty position. If it has no lowest
        reward, it begins at the lowest one of the log.
        """
        length, (low, high) = _count_positions(estimator), reward_range
        if isinstance(estimator, SlateEstimator) and low is not None:
            low, high = min(low, 0.0), high and max(high, 0.0)  # an open end, None, stays open
        elif low is None and math.isfinite(sums.least):
            low = sums.least / length
        scale = RewardRange(low, high)
        unit_sums = sums if scale == UNIT_RANGE else sums.to_unit(scale, length)
        return cls(scale, length, unit_sums, reward_range.ends)

    def restore(self, bounds: intervals.Bounds | None) -> intervals.Bounds | None:
        """Return bounds for rewards scaled to [0, 1] in the caller's unit; None stays None."""
        if bounds is None or self.reward_range == UNIT_RANGE:
            return bounds
        start, width = self.length * (self.reward_range.low or 0.0), self.reward_range.width
        return start + width * bounds[0], start + width * bounds[1]

    def widen(self, bounds: intervals.Bounds, confidence: float, clustered: bool) -> intervals.Bounds | None:
        """Return bounds in the caller's unit unchanged, or, if all rewards are equal, widened to exact ones.

        None if all rewards are equal and an end of the range is open.
        """
        if self.sums.least != self.sums.most:
            return bounds
        if self.ends < 2:
            return None
        sums, unknown = self.sums, (math.nan, math.nan)
        exact = intervals.widen_interval(unknown, sums, confidence, length=self.length, clustered=clustered)
        low, high = self.restore(exact) or unknown
        # Bounds that are NaN do not count: comparisons with them are false.
        return min(low, bounds[0]), max(high, bounds[1])


def _count_positions(estimator: Estimator) -> float:
    """Return the number of positions of an estimator's unit: ``slots`` for slates, else 1."""
    return float(estimator.slots) if isinstance(estimator, SlateEstimator) else 1.0


def _has_overlap(estimator: Estimator, sums: Sums) -> bool:
    """True if the sums suffice to estimate the target's value: a row has a positive weight.

    For direct methods with a model that was not fitted to this log, any row suffices.
    """
    is_model_of_log = isinstance(getattr(estimator, "model", None), ModelOfLog)
    return sums.w > 0 or (sums.n > 0 and not estimator.has_interval and not is_model_of_log)


def _list_interval_warnings(
    estimator: Estimator, sums: Sums, bounds: dict[str, intervals.Bounds], reward_range: RewardRange
) -> tuple[str, ...]:
    """Return a tuple with one warning if normal and bootstrap intervals cannot be trusted, else ().

    The reasons: an effective sample size below 100, a normal interval (in ``bounds``) that leaves the range
    of rewards, or, with an open range, a few rewards that bring most of the sum.
    """
    doubts = []
    if sums.n and sums.effective_sample_size < MIN_EFFECTIVE_SIZE:
        unit = "lists" if isinstance(estimator, SlateEstimator) else "rows"
        doubts.append(
            f"the {sums.n:,} {unit}, weighted, tell as much as {sums.effective_sample_size:.3g} "
            f"(n_eff) would; the largest weight is {sums.largest[0]:,.6g}"
        )
    length, ends = _count_positions(estimator), (-math.inf, math.inf)
    pairs = zip(reward_range, ends, strict=True)
    least, most = (open_end if end is None else end * length for end, open_end in pairs)
    # Without a normal interval, neither comparison is true.
    low, high = bounds.get("normal", (math.inf, -math.inf))
    if low < least or high > most:
        doubts.append(
            f"the normal interval, {bounds_text((low, high))}, leaves the range of mean rewards, {least:g} "
            f"to {most:g} (it is not clipped)"
        )
    if reward_range.is_open and are_heavy(sums.shares):
        doubts.append(describe_shares(sums.shares))
    if not doubts:
        return ()
    remedy = "trust none of its intervals"
    if not estimator.weighted:
        remedy += " (the anytime interval of IPS holds for any weights)"
    elif "anytime" in bounds:
        remedy = f"trust the anytime interval, {bounds_text(bounds['anytime'])}, alone"
    return (
        f"{estimator.label}: {'; '.join(doubts)}: {remedy}, and log more rows, with a larger "
        "propensity of what the target policy shows, as under an ExplorationFloor",
    )


def _score(estimator: Estimator, sums: Sums, confidence: float, segments: int) -> intervals.Bounds | None:
    """Return the score interval from sums of rewards in [0, 1], or None.

    It is one of ``segments`` intervals that hold simultaneously. None if the estimator is clipped or is no
    weighted mean, or if there is too little data.
    """
    # A clipped estimate is biased, which this interval does not account for.
    if not estimator.weighted or getattr(estimator, "clip", math.inf) < math.inf:
        return None
    return intervals.score(sums, confidence, length=_count_positions(estimator), segments=segments)


def _anytime(
    estimator: Estimator, sums: Sums, scale: UnitScale, confidence: float, weight_bound: float | None
) -> intervals.Bounds | None:
    """Return the anytime interval in the caller's unit, or None.

    ``sums`` are in that unit, ``scale`` has them with rewards in [0, 1].
    Weighted means have one unless the range of rewards has no lowest end; without a highest end it has no
    upper end, either. DoublyRobust has one if ``weight_bound`` is given and cuts no weight. Raises
    InvalidValue if a weight exceeds ``weight_bound``.
    """
    clip = float(getattr(estimator, "clip", math.inf))
    if weight_bound is not None and sums.largest[0] > weight_bound * (1 + 1e-12):
        remedy = f"there is a weight of {sums.largest[0]:g}; give more"
        raise InvalidValue("weight_bound", weight_bound, remedy)
    unclipped = weight_bound is not None and clip >= weight_bound
    if estimator.weighted and scale.ends == 1:
        return scale.restore(intervals.anytime_below(scale.sums, confidence))
    if scale.ends < 2:
        return None
    if isinstance(estimator, SlateEstimator):
        if not estimator.weighted:
            return None
        return scale.restore(intervals.anytime(scale.sums, confidence, length=scale.length))
    if estimator.weighted:
        limit = weight_bound if unclipped else None
        return scale.restore(intervals.anytime(scale.sums, confidence, weight_bound=limit))
    threshold = float(getattr(estimator, "threshold", math.inf))
    if not isinstance(estimator, DoublyRobust) or weight_bound is None:
        return None
    if not unclipped or threshold < weight_bound:
        return None
    (low, high), width = scale.reward_range, scale.reward_range.width
    assert low is not None
    assert high is not None
    # A value is the model's prediction, within the range, plus weight times an error of at most its width.
    margin = weight_bound * width
    return intervals.anytime_in_range(sums, low - margin, high + margin, confidence)


def compute_result(question: OffPolicyEvaluation, log_sums: LogSums) -> OffPolicyResult:
    """Return the result of the evaluation ``question`` from the sums over a log, which is read no more.

    It has estimates with intervals, in total and by segment, the log's own mean reward, arms that the log
    never shows, and warnings.
    """
    reward_range = log_sums.reward_range
    return OffPolicyResult(
        target=question.target.label,
        estimates=_compute_estimates(
            question, log_sums.sums, reward_range=reward_range, given_above=log_sums.given_above
        ),
        logged=_compute_logged_mean(question, log_sums),
        rows=log_sums.rows,
        lists=log_sums.sums[0].n if question.has_only_slate_estimators else None,
        by=question.by,
        # Segments do not repeat the note on propensities given the arms above.
        segments={
            name: Segment(
                _compute_estimates(question, part.sums, len(log_sums.segments), reward_range=reward_range),
                part.rows,
                _compute_logged_mean(question, part),
            )
            for name, part in sorted(log_sums.segments.items(), key=lambda item: -item[1].rows)
        },
        assumes="; ".join(filter(None, _list_result_warnings(question, log_sums))),
        unanswered=log_sums.unanswered,
        never_shown=tuple(
            arm for arm, counts in log_sums.arms.items() if not counts[0] and arm in log_sums.reachable
        ),
        confidence=question.confidence,
        missing_reward=question.missing_reward,
        notes=tuple(_list_open_notes(question, log_sums)),
        reward_range=reward_range,
    )


def _list_open_notes(question: OffPolicyEvaluation, log_sums: LogSums) -> Iterator[str]:
    """Yield notes on intervals and large rewards, if the range of rewards has an open end."""
    if log_sums.reward_range.is_open:
        anytime = ANYTIME_OPEN[log_sums.reward_range.low is None]
        yield f"rewards have no bound: the normal interval is corrected for skewness; {anytime}"
        labels: dict[str, list[str]] = {}
        for estimator, sums in zip(question.estimators, log_sums.sums, strict=True):
            if estimator.has_interval:
                labels.setdefault(describe_shares(sums.shares), []).append(estimator.label)
        yield from (f"{', '.join(names)}: {shares}" for shares, names in labels.items())


def _list_result_warnings(question: OffPolicyEvaluation, log_sums: LogSums) -> Iterator[str]:
    """Yield warnings: propensities are not logged or contradict the log, the target was fitted to this log.

    A text is empty if its warning does not apply.
    """
    yield question.assumes
    yield FITTED * log_sums.learned
    if question.target_policy[0] is None:
        # The reader of the log warns of blanks and empty names; a policy warns of its own arms.
        yield describe_similar_names("arms", [arm for arm in log_sums.arms if arm and arm == arm.strip()])
    # Propensities that are estimated from the log cannot contradict it.
    if question.assumes != ASSUMES and not question.has_slate_estimator and log_sums.arms:
        yield describe_propensity_doubt(list(log_sums.arms), np.array([*log_sums.arms.values()]).T)


def _compute_estimates(
    question: OffPolicyEvaluation,
    estimator_sums: Sequence[Sums],
    segments: int = 1,
    *,
    reward_range: RewardRange,
    given_above: bool = False,
) -> ByEstimator:
    """Return one estimate with intervals per estimator, from the estimators' sums.

    With several segments, intervals are wider, so that they hold in all segments simultaneously.
    """
    return ByEstimator(
        conclude(
            estimator,
            sums,
            clustered=question.cluster is not None,
            confidence=question.confidence,
            weight_bound=question.weight_bound,
            seed=question.seed,
            segments=segments,
            given_above=given_above and isinstance(estimator, IndependentIPS),
            reward_range=reward_range,
        )
        for estimator, sums in zip(question.estimators, estimator_sums, strict=True)
    )


def _compute_logged_mean(question: OffPolicyEvaluation, log_sums: LogSums | SegmentSums) -> float:
    """Return the log's mean reward per row, or per list if all estimators are for lists; NaN if empty."""
    units = log_sums.sums[0].n if question.has_only_slate_estimators else log_sums.rows
    return log_sums.reward / units if units else math.nan
