"""Sums over the rows of a log, and the estimate with its intervals that follows from them."""

# 1. ``LogSummation``: one pass; add each estimator's units to its sums, in total and by segment.
# 2. ``conclude``: compute estimate, intervals and warnings from the sums alone, so that parts of a log can be
#    summed on different machines.

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.errors import InvalidValue, UnfitLog
from tacit.evaluate import intervals
from tacit.evaluate.estimators import (
    DirectMethod,
    DoublyRobust,
    Estimator,
    PositionBasedIPS,
    SlateEstimator,
    Units,
    WeightedRows,
)
from tacit.evaluate.intervals import GROUPS, Sums, empty_sums, sum_units
from tacit.evaluate.learners import Ranking
from tacit.evaluate.results import NO_OVERLAP, Estimate, bounds_text
from tacit.evaluate.rewards import ModelOfLog
from tacit.evaluate.rows import (
    LoggedRows,
    check_segments,
    group_lists,
    hash_clusters,
    missing_propensity_error,
)
from tacit.evaluate.targets import Target
from tacit.logs.schema import SEGMENT

# ---- Sums per estimator and counts, from one pass over a log


MIN_REMAINDER, HOPELESS_RATIO = 1e-6, 1e3
"""A log lacks support for the target where the propensity left to other arms is at most the first and the
target's probability of them exceeds it by the second as a factor."""


class SegmentSums(NamedTuple):
    """Sums of one segment: per estimator, number of rows, and sum of their rewards."""

    sums: tuple[Sums, ...]
    rows: int
    reward: float


class LogSums(NamedTuple):
    """Sums over the rows of a log, or of a part of one.

    Attributes
    ----------
    sums : tuple of Sums
        Per estimator.
    rows, unanswered : int
    reward : float
        Sum of all rewards.
    arms : dict
        For each arm that was on offer: how often it was shown and on offer, and the sums of 1/p and 1/p²
        over the rows that show it.
    reachable : frozenset of str
        The arms on offer that the target policy may have shown.
    slates : tuple of (str, str), optional
        The decision ids of the first row and of the last, if slates are weighted.
    segments : mapping of str to SegmentSums
        Sums of each segment, if the evaluation is by segment.
    learned : bool
        True if the target is a learner that was fitted to these very rows.
    given_above : bool
        True if a row has only the propensity of its arm given the arms above it, not the one at its position.
    """

    sums: tuple[Sums, ...]
    rows: int
    unanswered: int
    reward: float
    arms: dict[str, Floats]
    reachable: frozenset[str]
    slates: tuple[str | None, str | None] | None = None
    segments: Mapping[str, SegmentSums] = MappingProxyType({})
    learned: bool = False
    given_above: bool = False


class LogSummation:
    """Accumulates the estimators' sums in one pass over a log."""

    def __init__(
        self,
        target: Target,
        estimators: Collection[Estimator],
        cluster: str | None,
        logging: Target | None,
        by_segment: bool = False,
    ) -> None:
        """Reset target, logging policy and models to before the first row, and set all sums to 0."""
        needs_all_arms = logging is not None or any(estimator.needs_all_arms for estimator in estimators)
        self._target = target.begin(needs_all_arms)
        if isinstance(self._target, Ranking):
            self._target.needs_positions = any(
                isinstance(estimator, PositionBasedIPS) for estimator in estimators
            )
        self._logging = logging.begin(True) if logging else None
        self._estimators = [_begin_model(estimator) for estimator in estimators]
        self._cluster = cluster
        self._given_above = any(getattr(estimator, "given_above", False) for estimator in estimators)
        self._lengths = [estimator.slots for estimator in estimators if isinstance(estimator, SlateEstimator)]
        self.slate_ids: tuple[str | None, str | None] | None = None
        self.sums = [empty_sums(GROUPS) for _ in estimators]
        self._by_segment = by_segment
        self.segments: dict[str, SegmentSums] = {}
        self._tally: Floats = np.zeros((4, 0))

    def add(self, rows: LoggedRows) -> None:
        """Add the next batch of rows to all sums: of each estimator, each segment and each arm.

        The target evaluates the rows, and learns from them if it learns. Raises UnfitLog if the log could
        not have shown an arm of the target, a needed propensity or cluster is missing, or lists are
        malformed.
        """
        probabilities = self._target.evaluate_shown(rows)
        given_above = probabilities
        if isinstance(self._target, Ranking):
            probabilities = self._target.position_probabilities(rows)
        self._check_support(rows, probabilities)
        tally = _tally_arms(rows)
        tally[:, : self._tally.shape[1]] += self._tally
        self._tally = tally
        weights = probabilities / rows.propensity, given_above / rows.given_above
        weighted = WeightedRows(rows, *weights, self._target)
        possible = 0.0 if self._lengths else largest_possible(rows, probabilities)
        lists = None
        if self._lengths:
            self._note_slates(rows)
            lists = group_lists(rows, min(self._lengths))
        cluster_groups = None
        if self._cluster is not None and len(self._lengths) < len(self._estimators):
            cluster_groups = hash_clusters(self._cluster_column(rows), GROUPS)
        segments = self._segments(rows) if self._by_segment else None
        for place, estimator in enumerate(self._estimators):
            if isinstance(estimator, SlateEstimator):
                assert lists is not None
                units, cluster = estimator.list_units(weighted, lists), None
                unit_segments = None if segments is None else segments[lists.first]
            else:
                units, cluster, unit_segments = estimator.units(weighted), cluster_groups, segments
            added = _add_units(self.sums[place], units, cluster)
            self.sums[place] = added._replace(possible=max(added.possible, possible))
            if unit_segments is not None:
                self._add_segments(place, units, cluster, unit_segments)

    def _segments(self, rows: LoggedRows) -> Ints:
        """Return the segment code of each row; add numbers of rows and rewards to the sums of segments.

        Raises UnfitLog if there are too many segments.
        """
        codes, names = rows.names[SEGMENT]
        check_segments(rows.chunk.source, names)
        counts = np.bincount(codes, minlength=len(names)).tolist()
        rewards = np.bincount(codes, rows.reward, len(names)).tolist()
        for name, count, reward in zip(names, counts, rewards, strict=True):
            before = self.segments.get(name)
            if before is None:
                before = SegmentSums(tuple(empty_sums(GROUPS) for _ in self.sums), 0, 0.0)
            total = before.rows + count, before.reward + reward
            self.segments[name] = SegmentSums(before.sums, *total)
        self._names = names
        return codes

    def _add_segments(self, place: int, units: Units, cluster: Ints | None, unit_segments: Ints) -> None:
        """Add the units of the estimator with the index ``place`` to its sums in each unit's segment."""
        for code, picked in _group_by_code(unit_segments):
            before = self.segments[self._names[code]]
            sums = list(before.sums)
            rewards = None if units.rewards is None else units.rewards[picked]
            segment_units = Units(units.weights[picked], units.values[picked], rewards)
            sums[place] = _add_units(sums[place], segment_units, None if cluster is None else cluster[picked])
            self.segments[self._names[code]] = before._replace(sums=tuple(sums))

    def _check_support(self, rows: LoggedRows, target_probability: Floats) -> None:
        """Raise UnfitLog if the log could not have shown an arm that the target shows.

        That is so if the logged arm was certain, or nearly, and the target's is not, or if the logging
        policy gives an arm probability 0 and the target does not. Also if a propensity given the arms above
        is needed and missing.
        """
        unknown = np.isnan(rows.given_above)
        if self._given_above and unknown.any():
            raise missing_propensity_error(rows, int(np.argmax(unknown)))
        remainder = 1.0 - rows.propensity
        certain = (remainder <= MIN_REMAINDER) & (
            1.0 - target_probability > HOPELESS_RATIO * remainder + 1e-9
        )
        if certain.any():
            row = int(np.argmax(certain))
            arm = rows.arm.names[rows.arm.codes[row]]
            was, ever = (
                ("certain", "never")
                if not remainder[row]
                else (f"certain but for {remainder[row]:.1g}", "hardly")
            )
            raise UnfitLog(
                f"{rows.locate_row(row)}: propensity: {arm!r} was {was} to be shown, so the log could "
                f"{ever} have shown another arm, but the target policy shows {arm!r} only with "
                f"probability {target_probability[row]:g}; log with a policy that randomizes, such as "
                'ExplorationFloor(policy, 0.05) (policy = "exploration-floor(auto, epsilon=0.05)" in the '
                "service's configuration), or ListMix(epsilon=0.1) for lists; where chance chose the arm, "
                "give that chance"
            )
        if self._logging is not None:
            probabilities = self._target.evaluate_arms(rows)
            self._logging.evaluate_shown(rows)
            never = (probabilities > 0) & (self._logging.evaluate_arms(rows) <= 0)
            if never.any():
                row, code = np.argwhere(never)[0].tolist()
                raise UnfitLog(
                    f"{rows.locate_row(row)}: arm: the target policy shows {rows.arm.names[code]!r} "
                    f"with probability {probabilities[row, code]:g}, the logging policy never; leave it "
                    "out of the target policy"
                )

    def _cluster_column(self, rows: LoggedRows) -> Any:
        """Return the column of cluster names; raise UnfitLog if a row has none."""
        column = rows.batch[self._cluster]
        if column.null_count:
            row = int(np.argmax(np.asarray(column.is_null())))
            remedy = "give such rows ids of their own, or leave them out"
            raise UnfitLog(f"{rows.locate_row(row)}: cluster: {self._cluster} is missing; {remedy}")
        return column

    def _note_slates(self, rows: LoggedRows) -> None:
        """Store the decision ids of the first and of the last row so far in ``slate_ids``."""
        ids = rows.chunk.batch["decision_id"]
        first = self.slate_ids[0] if self.slate_ids else ids[0].as_py()
        self.slate_ids = first, ids[-1].as_py()

    def tally_by_arm(self, arms: Sequence[str]) -> dict[str, Floats]:
        """Return per arm the numbers of rows that show it and that offer it, and Σ1/p and Σ1/p².

        The sums are over the rows that show the arm.
        """
        tally = np.zeros((len(arms), 4))
        tally[: self._tally.shape[1]] = self._tally.T
        return dict(zip(arms, tally, strict=True))

    def select_reachable(self, arms: Sequence[str]) -> list[str]:
        """Return the ``arms`` that the target policy may have shown so far."""
        return self._target.select_reachable(arms)


def _tally_arms(rows: LoggedRows) -> Floats:
    """Return, shape (4, arms): rows that show an arm, rows that offer it, Σ1/p and Σ1/p² of the former."""
    size, often = len(rows.arm.names), np.bincount(rows.offer)
    offers = np.flatnonzero(often)
    offers_shown = [rows.offers[offer] for offer in offers.tolist()]
    times = np.repeat(often[offers], [len(arms) for arms in offers_shown])
    inverse = 1.0 / rows.propensity
    codes = (rows.arm.codes, np.concatenate(offers_shown), rows.arm.codes, rows.arm.codes)
    weights = None, times, inverse, inverse**2
    return np.array(
        [np.bincount(*arguments, size) for arguments in zip(codes, weights, strict=True)], np.float64
    )


def largest_possible(rows: LoggedRows, probabilities: Floats) -> float:
    """Return the largest weight that any of these rows could have had, whichever arm was shown.

    The weight of an arm that was not shown is known with two arms on offer, and with more if the unshown
    arms were equally likely, as under an exploration floor.

    Parameters
    ----------
    rows : LoggedRows
    probabilities : array of float64, shape (rows,)
        The target's probability of the arm that each row shows.
    """
    other_counts = np.array([len(offer) - 1 for offer in rows.offers], np.float64)[rows.offer]
    remainder = 1.0 - rows.propensity
    other_weights = np.divide(
        (1.0 - probabilities) * other_counts, remainder, out=np.zeros(len(remainder)), where=remainder > 0
    )
    return float(np.maximum(probabilities / rows.propensity, other_weights).max(initial=0.0))


def _add_units(before: Sums, units: Units, cluster: Ints | None) -> Sums:
    """Return the sums ``before`` merged with the sums of more units."""
    weights, values, rewards = units
    new = sum_units(weights, values, rewards=rewards, cluster=cluster, first=before.n)
    return before.merge(new)


def _group_by_code(codes: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield each distinct code with the indices at which it occurs."""
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for indices in np.split(order, starts[1:]) if len(order) else ():
        yield int(codes[indices[0]]), indices


def _begin_model(estimator: Estimator) -> Estimator:
    """Return the estimator with its reward model reset for a new log; unchanged if it has none."""
    if not isinstance(estimator, DirectMethod) or estimator.model is None:
        return estimator
    return replace(estimator, model=estimator.model.begin(True))


# ---- From the sums over a log to an estimate and its intervals

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
    """
    share = 1 - (1 - confidence) / segments
    length = _length(estimator)
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
    if _is_left_to_model(estimator, sums):
        return replace(estimate, warnings=(f"{estimator.label}: {MODEL_ONLY.format(sums.largest[0])}",))
    bounds: dict[str, intervals.Bounds | None] = {
        kind: intervals.widen_interval(limits, sums, share, length=length, clustered=clustered)
        for kind, limits in (
            ("normal", intervals.normal(sums, estimator.ratio, share, clustered=clustered)),
            ("bootstrap", intervals.bootstrap(sums, estimator.ratio, share, seed=seed)),
        )
    }
    if not clustered:
        bounds["score"] = _score(estimator, sums, confidence, segments)
        bounds["anytime"] = _anytime(estimator, sums, share, weight_bound)
    sure = bounds.get("anytime")
    estimate = replace(
        estimate,
        # NaN if all rewards are equal: the formula's 0 would claim certainty.
        standard_error=intervals.standard_error(sums, estimator.ratio, clustered=clustered) or math.nan,
        intervals={kind: x for kind, x in bounds.items() if x and x[0] < x[1]},
        empty=("anytime",) if sure and sure[0] >= sure[1] else (),
    )
    substitution = PROPENSITY_SUBSTITUTED if given_above and "mean weight" in estimate.note else ""
    notes = [f"{estimator.label}: {estimate.note}{substitution}"] if estimate.note else []
    if clustered and (several := np.count_nonzero(sums.groups[0])) < FEW_CLUSTERS:
        notes.append(
            f"{estimator.label}: {ONE_CLUSTER if several < 2 else FEW_CLUSTERS_NOTE.format(several)}"
        )
    clip, mean = getattr(estimator, "clip", math.inf), estimate.mean_weight
    if sums.ww >= clip * sums.w * (1 - 1e-9) and mean + 5 * math.sqrt(clip / sums.n) < 1:
        doubt = f"clip: every weight is cut to {clip:g}, and they are {mean:.3g} on average in place of 1"
        notes.append(f"{estimator.label}: {doubt}; give a larger clip")
    return replace(estimate, warnings=(*notes, *_list_doubts(estimator, sums, estimate.intervals)))


def _unit(estimator: Estimator) -> str:
    """Return the word for an estimator's units in messages: "lists" or "rows"."""
    return "lists" if isinstance(estimator, SlateEstimator) else "rows"


def _length(estimator: Estimator) -> float:
    """Return the number of positions of an estimator's unit: ``slots`` for slates, else 1."""
    return float(estimator.slots) if isinstance(estimator, SlateEstimator) else 1.0


def _is_left_to_model(estimator: Estimator, sums: Sums) -> bool:
    """True if a weight exceeds the estimator's threshold, so that the model alone estimates those rows."""
    return bool(sums.largest[0] > getattr(estimator, "threshold", math.inf))


def _has_overlap(estimator: Estimator, sums: Sums) -> bool:
    """True if the estimator can estimate the target's value from the sums: the log shows its arms.

    Direct methods with a model that was not fitted to this log need only a row.
    """
    of_the_log = isinstance(getattr(estimator, "model", None), ModelOfLog)
    return sums.w > 0 or (sums.n > 0 and not estimator.has_interval and not of_the_log)


def _list_doubts(estimator: Estimator, sums: Sums, bounds: dict[str, intervals.Bounds]) -> tuple[str, ...]:
    """Return a tuple with one warning if normal and bootstrap intervals cannot be trusted, else ().

    They cannot with an effective sample size below 100, or if the normal interval leaves the range of
    rewards.
    """
    doubts = []
    if sums.n and sums.effective_sample_size < MIN_EFFECTIVE_SIZE:
        doubts.append(
            f"the {sums.n:,} {_unit(estimator)}, weighted, tell as much as {sums.effective_sample_size:.3g} "
            f"(n_eff) would; the largest weight is {sums.largest[0]:,.6g}"
        )
    low, high = bounds.get("normal", (0.0, 0.0))
    most = _length(estimator)
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
    elif "anytime" in bounds:
        remedy = f"trust the anytime interval, {bounds_text(bounds['anytime'])}, alone"
    return (
        f"{estimator.label}: {'; '.join(doubts)}: {remedy}, and log more rows, with a larger "
        "propensity of what the target policy shows, as under an ExplorationFloor",
    )


def _score(estimator: Estimator, sums: Sums, confidence: float, segments: int) -> intervals.Bounds | None:
    """Return the score interval; None if the estimator is clipped or not a weighted mean, or data are few."""
    # A clipped estimate is biased, which this interval does not account for.
    if not estimator.weighted or getattr(estimator, "clip", math.inf) < math.inf:
        return None
    return intervals.score(sums, confidence, length=_length(estimator), segments=segments)


def _anytime(
    estimator: Estimator, sums: Sums, confidence: float, weight_bound: float | None
) -> intervals.Bounds | None:
    """Return the anytime interval; None if the estimator does not support it.

    Raises InvalidValue if a weight exceeds ``weight_bound``.
    """
    clip = float(getattr(estimator, "clip", math.inf))
    if weight_bound is not None and sums.largest[0] > weight_bound * (1 + 1e-12):
        raise InvalidValue(
            "weight_bound", weight_bound, f"there is a weight of {sums.largest[0]:g}; give more"
        )
    unclipped = weight_bound is not None and clip >= weight_bound
    if isinstance(estimator, SlateEstimator):
        if not estimator.weighted:
            return None
        return intervals.anytime(sums, confidence, length=float(estimator.slots))
    if estimator.weighted:
        return intervals.anytime(sums, confidence, weight_bound=weight_bound if unclipped else None)
    threshold = float(getattr(estimator, "threshold", math.inf))
    if not isinstance(estimator, DoublyRobust) or weight_bound is None:
        return None
    if not unclipped or threshold < weight_bound:
        return None
    return intervals.anytime_in_range(sums, -weight_bound, 1.0 + weight_bound, confidence)
