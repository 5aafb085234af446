"""What is kept of the rows of a log: sums per estimator, and counts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.errors import UnfitLog
from tacit.evaluate.lists import lists_of
from tacit.evaluate.rows import LoggedRows, check_segments, clusters, unanswerable
from tacit.evaluate.sums import GROUPS, Sums, nothing, summed
from tacit.evaluate.targets.base import Target
from tacit.evaluate.targets.ranking import Ranking
from tacit.evaluate.weighting.estimators import DirectMethod, Estimator, Units, WeightedRows
from tacit.evaluate.weighting.slates import SlateEstimator
from tacit.logs.schema import SEGMENT


class SegmentSums(NamedTuple):
    """What is kept of a segment: sums per estimator, how many rows, the sum of their rewards."""

    sums: tuple[Sums, ...]
    rows: int
    reward: float


class LogSums(NamedTuple):
    """All that is kept of the rows of a log, or of a part of one.

    Attributes
    ----------
    sums : tuple of Sums
        Per estimator.
    rows, unanswered : int
    reward : float
        Sum of all rewards.
    shown : dict
        From each arm that was on offer to how often it was shown.
    reached : frozenset of str
        Those of these arms that the target policy may have shown.
    slates : tuple of (str, str), optional
        The decisions of the first row and of the last, where slates are weighted.
    segments : mapping of str to SegmentSums
        The same of each segment, where the log is told apart by one of its columns.
    """

    sums: tuple[Sums, ...]
    rows: int
    unanswered: int
    reward: float
    shown: dict[str, int]
    reached: frozenset[str]
    slates: tuple[str | None, str | None] | None = None
    segments: Mapping[str, SegmentSums] = MappingProxyType({})


class Summing:
    """One pass over a log: the estimators' sums so far."""

    def __init__(
        self,
        target: Target,
        estimators: Collection[Estimator],
        cluster: str | None,
        logging: Target | None,
        by_segment: bool = False,
    ) -> None:
        every = logging is not None or any(given.every for given in estimators)
        self._target = target.begin(every)
        self._logging = logging.begin(True) if logging else None
        self._estimators = [_begun(given) for given in estimators]
        self._cluster = cluster
        self._given_above = any(getattr(given, "given_above", False) for given in estimators)
        self._slots = [given.slots for given in estimators if isinstance(given, SlateEstimator)]
        self.slate_ids: tuple[str | None, str | None] | None = None
        self.sums = [nothing(GROUPS) for _ in estimators]
        self._by_segment = by_segment
        self.segments: dict[str, SegmentSums] = {}
        self._counts: Ints = np.zeros(0, np.int64)

    def add(self, rows: LoggedRows) -> None:
        """Add some rows to the sums."""
        shown = self._target.shown(rows)
        given_above = shown
        if isinstance(self._target, Ranking):
            shown = self._target.at_position(rows)
        self._check_support(rows, shown)
        counts = np.bincount(rows.arm.codes, minlength=len(rows.arm.names))
        counts[: len(self._counts)] += self._counts
        self._counts = counts
        weights = shown / rows.propensity, given_above / rows.given_above
        terms = WeightedRows(rows, *weights, self._target)
        lists = None
        if self._slots:
            self._note_slates(rows)
            lists = lists_of(rows, min(self._slots))
        group = None
        if self._cluster is not None and len(self._slots) < len(self._estimators):
            group = clusters(rows.chunk.batch[self._cluster], GROUPS)
        segments = self._segments(rows) if self._by_segment else None
        for place, estimator in enumerate(self._estimators):
            if isinstance(estimator, SlateEstimator):
                assert lists is not None
                units, cluster = estimator.list_units(terms, lists), None
                of = None if segments is None else segments[lists.first]
            else:
                units, cluster, of = estimator.units(terms), group, segments
            self.sums[place] = _added(self.sums[place], units, cluster)
            if of is not None:
                self._add_segments(place, units, cluster, of)

    def _segments(self, rows: LoggedRows) -> Ints:
        """Return the segment of each row, having counted them."""
        codes, names = rows.names[SEGMENT]
        check_segments(rows.chunk.source, names)
        counts = np.bincount(codes, minlength=len(names)).tolist()
        rewards = np.bincount(codes, rows.reward, len(names)).tolist()
        for name, count, reward in zip(names, counts, rewards, strict=True):
            before = self.segments.get(name)
            if before is None:
                before = SegmentSums(tuple(nothing(GROUPS) for _ in self.sums), 0, 0.0)
            total = before.rows + count, before.reward + reward
            self.segments[name] = SegmentSums(before.sums, *total)
        self._names = names
        return codes

    def _add_segments(self, place: int, units: Units, cluster: Ints | None, of: Ints) -> None:
        for code, picked in _parted(of):
            before = self.segments[self._names[code]]
            sums = list(before.sums)
            rewards = None if units.rewards is None else units.rewards[picked]
            mine = Units(units.weights[picked], units.values[picked], rewards)
            sums[place] = _added(sums[place], mine, None if cluster is None else cluster[picked])
            self.segments[self._names[code]] = before._replace(sums=tuple(sums))

    def _check_support(self, rows: LoggedRows, shown: Floats) -> None:
        unknown = np.isnan(rows.given_above)
        if self._given_above and unknown.any():
            raise unanswerable(rows, int(np.argmax(unknown)))
        certain = (rows.propensity >= 1.0) & (shown < 1.0 - 1e-9)
        if certain.any():
            row = int(np.argmax(certain))
            arm = rows.arm.names[rows.arm.codes[row]]
            raise UnfitLog(
                f"{rows.where(row)}: propensity: {arm!r} was certain to be shown, so the log could "
                f"never have shown another arm, but the target policy shows {arm!r} only with "
                f"probability {shown[row]:g}; log with a policy that randomizes, such as "
                "ExplorationFloor, or ListMix(epsilon=0.1) for lists"
            )
        if self._logging is not None:
            wanted = self._target.every(rows)
            self._logging.shown(rows)
            never = (wanted > 0) & (self._logging.every(rows) <= 0)
            if never.any():
                row, code = np.argwhere(never)[0].tolist()
                raise UnfitLog(
                    f"{rows.where(row)}: arm: the target policy shows {rows.arm.names[code]!r} "
                    f"with probability {wanted[row, code]:g}, the logging policy never; leave it "
                    "out of the target policy"
                )

    def _note_slates(self, rows: LoggedRows) -> None:
        ids = rows.chunk.batch["decision_id"]
        first = self.slate_ids[0] if self.slate_ids else ids[0].as_py()
        self.slate_ids = first, ids[-1].as_py()

    def shown(self, arms: Sequence[str]) -> dict[str, int]:
        """Return how often each arm was shown."""
        counts = np.zeros(len(arms), np.int64)
        counts[: len(self._counts)] = self._counts
        return dict(zip(arms, counts.tolist(), strict=True))

    def reached(self, arms: Sequence[str]) -> list[str]:
        """Return those of some arms that the target policy may have shown."""
        return self._target.reached(arms)


def _added(before: Sums, units: Units, cluster: Ints | None) -> Sums:
    weights, values, rewards = units
    new = summed(weights, values, rewards=rewards, cluster=cluster, first=before.n)
    return before.merge(new)


def _parted(codes: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield each code that there is, with the places where it stands."""
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for part in np.split(order, starts[1:]) if len(order) else ():
        yield int(codes[part[0]]), part


def _begun(estimator: Estimator) -> Estimator:
    """Return the estimator with its model as it is before the first row."""
    if not isinstance(estimator, DirectMethod) or estimator.model is None:
        return estimator
    return replace(estimator, model=estimator.model.begin(True))
