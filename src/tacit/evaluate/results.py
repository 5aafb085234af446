"""Results of off-policy evaluation."""

# 1. ``Estimate``: the result of one estimator, with warnings.
# 2. ``Segment``: the estimates for one segment.
# 3. ``OffPolicyResult``: all estimates as a table, as text and as a figure.

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tacit.core.arrays import Floats
from tacit.core.reward_range import UNIT_RANGE, RewardRange
from tacit.core.text import MISSING, ByName, Column, Tabulated, format_table
from tacit.evaluate.intervals import Bounds, Sums, evidence_against_weights, find_suspect_arm
from tacit.plots import COLOURS, Plot

NO_OVERLAP = "no overlap: no row that counts shows what the target policy would"
EMPTY = "empty: the propensities cannot be right"
INTERVALS = ("normal", "bootstrap", "score", "anytime")
ESTIMATE_COLUMNS = (
    Column("estimator", "{estimator}"),
    Column("value", "{value:.5f}", "no overlap"),
    *(Column(kind, f"{{{kind}}}") for kind in INTERVALS),
    Column("n_eff", "{effective_sample_size:,.0f}"),
)
WEIGHTS = Column("mean w", "{mean_weight:.3f}", "nan"), Column("max w", "{largest_weight:.4g}", "nan")
MIN_EVIDENCE, MAX_EVIDENCE = math.log(100), math.log(1e6)
"""Log evidence at which a warning on weights is given, and the largest that it states."""
SHOWN_SEGMENTS = 30
"""The most segments that a text or a figure shows."""


@dataclass(frozen=True)
class Estimate:
    """The estimate of one estimator.

    Attributes
    ----------
    estimator : str
    value : float
        NaN if there is no overlap: the log has no row that the target policy would show.
    standard_error : float
        By the central limit theorem; NaN if it is not defined, as when all rewards are equal.
    intervals : dict
        Bounds by kind (normal, bootstrap, score, anytime); a kind is left out if the
        estimator has none, if there are too few rows, and if the interval is empty. If all rewards
        are equal, the first two are widened by :func:`~tacit.evaluate.intervals.widen_interval`. If an end
        of the range of rewards is open, normal is corrected for skewness, and anytime has no upper end
        (infinity); without a lowest reward there is no anytime.
    effective_sample_size : float
        (Σw)²/Σw²: the number of equally weighted units with the same information.
    mean_weight : float
        For lists, over their positions; 1 in expectation. If it is many standard errors from 1, the
        log's propensities are wrong, or the log could not, or too seldom did, show the target's arms.
    largest_weights : tuple of float
    sums : Sums
        Sums over the rows, from which everything else is computed.
    warnings : tuple of str
        First ``note``, then why the normal and the bootstrap interval cannot be trusted, and which one can.
        They are asymptotic: with an effective sample size below 100, or a normal interval that
        leaves the range of mean rewards, there are too few rows for them. No interval
        is clipped to that range: it would look better than it is.
    empty : tuple of str
        The kinds of interval that contain no value: their lower end is above their upper one. If the
        log's propensities are right, this is no more probable than a miss.
    """

    estimator: str
    value: float
    standard_error: float
    intervals: dict[str, Bounds]
    effective_sample_size: float
    mean_weight: float
    largest_weights: tuple[float, ...]
    sums: Sums
    warnings: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """Remarks on the value: no overlap, an empty interval, or a value outside of an interval; "" if none.

        The value follows the estimator's formula. The score and the anytime interval also use that the mean
        weight is 1 in expectation: if the observed one is not, they may contradict the value; trust the
        intervals then if the propensities are right.
        """
        if math.isnan(self.value):
            return NO_OVERLAP
        notes = [f"the {kind} interval is {EMPTY}" for kind in self.empty]
        bounds = self.intervals.items()
        outside = [kind for kind, (low, high) in bounds if not low <= self.value <= high]
        if outside:
            notes.append(
                f"the value is outside of its {' and '.join(outside)} interval, which counts on a "
                f"mean weight of 1: here it is {self.mean_weight:.3f}"
            )
        return "; ".join(notes)

    def texts(self) -> dict[str, Any]:
        """Return the dict of :meth:`row` with one more entry per kind of interval, its bounds as text."""
        return self.row() | {
            kind: EMPTY if kind in self.empty else bounds_text(self.intervals.get(kind)) for kind in INTERVALS
        }

    def describe_weight_doubt(self) -> str:
        """Return a warning that the mean weight is improbable under right propensities, else "".

        Such a warning has probability below 1 in 100 if they are right. A second warning says that the
        largest weights are hardly in the log yet. Clipped estimators have none.
        """
        n, mean, most = self.sums.n, self.mean_weight, self.sums.possible
        if "clip=" in self.estimator or not self.sums.ww:
            return ""
        evidence = evidence_against_weights(self.sums)
        if evidence >= MIN_EVIDENCE:
            odds = math.exp(min(evidence, MAX_EVIDENCE))
            return (
                f"{self.estimator}: mean w is {mean:.3f}, as right propensities have it in one of "
                f"{odds:,.0f} logs at most: they are wrong, or the log could not show what the target shows"
            )
        # No evidence, but four standard errors too few: heavy weights are missing.
        spread = math.sqrt(max(self.sums.ww / n - mean**2, 0.0) / n)
        if most and 1 - mean > 4 * spread:
            return (
                f"{self.estimator}: mean w is {mean:.3f}: what weighs most, {most:,.4g} or so, is hardly in "
                "the log yet, so the estimate leaves out what it would have earned; log more rows"
            )
        return ""

    def row(self) -> dict[str, Any]:
        """Return the estimate as a flat dict of numbers and ``note``; None for bounds that do not exist."""
        bounds = {
            f"{kind}_{side}": self.intervals[kind][end]
            if kind in self.intervals and math.isfinite(self.intervals[kind][end])
            else None
            for kind in INTERVALS
            for end, side in enumerate(("low", "high"))
        }
        return {
            "estimator": self.estimator,
            "value": self.value,
            "standard_error": self.standard_error,
            **bounds,
            "units": self.sums.n,
            "effective_sample_size": self.effective_sample_size,
            "mean_weight": self.mean_weight,
            "largest_weight": self.largest_weights[0] if self.largest_weights else math.nan,
            "note": self.note,
        }


class ByEstimator(ByName[Estimate]):
    """Estimates in the order of their estimators, indexed by position or by the estimator's name."""

    by = "estimator"


@dataclass(frozen=True)
class Segment:
    """Estimates for the rows of one segment.

    Attributes
    ----------
    estimates : ByEstimator
        The intervals of one kind hold in all segments simultaneously with the result's
        confidence: each has confidence 1 − (1 − confidence)/segments (Bonferroni), the score
        interval a half-width of √(c² + 2 ln segments) standard errors. With many segments there is no
        bootstrap interval.
    rows : int
    logged : float
        Mean reward of the log itself in this segment.
    """

    estimates: ByEstimator
    rows: int
    logged: float


@dataclass(frozen=True, repr=False)
class OffPolicyResult(Tabulated, Plot):
    """Estimates of a target policy's mean reward by several estimators.

    Attributes
    ----------
    target : str
    estimates : ByEstimator
        In the order of the estimators, such as ``estimates[0]`` or ``estimates["IPS"]``.
    logged : float
        Mean reward of the log itself, per list if the estimators are for lists; NaN if the log is empty.
    rows, unanswered : int
        Rows that were used, and rows without feedback.
    never_shown : tuple of str
        Arms on offer that the target policy would show but the log never shows, whether by chance
        or because it could not.
    confidence : float
    lists : int or None
        Number of lists, if the estimators are for lists.
    assumes : str
        The assumption under which propensities are correct; empty if they are logged.
    by : str or None
        The column whose values are the segments, if any.
    segments : dict
        From its values to a :class:`Segment`, the largest first.
    notes : tuple of str
        Assumptions on the log, such as a single key if it has no column of keys.
    missing_reward : float or None
        The reward of rows without feedback; None left them out.
    reward_range : RewardRange
        The lowest and the highest reward there can be, in whose unit all values are.
    """

    target: str
    estimates: ByEstimator
    logged: float
    rows: int
    unanswered: int
    never_shown: tuple[str, ...]
    confidence: float
    lists: int | None = None
    assumes: str = ""
    by: str | None = None
    segments: dict[str, Segment] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    missing_reward: float | None = 0.0
    reward_range: RewardRange = UNIT_RANGE

    def records(self) -> list[dict[str, Any]]:
        """Return one flat dict per estimator; with segments, also one for each segment and estimator."""
        target = {"target": self.target}
        if self.by is None:
            return [target | estimate.row() for estimate in self.estimates]
        all_rows = Segment(self.estimates, self.rows, self.logged)
        return [
            target | {"segment": name, "rows": part.rows, "logged": part.logged} | estimate.row()
            for name, part in [(None, all_rows), *self.segments.items()]
            for estimate in part.estimates
        ]

    def table(self) -> list[dict[str, Any]]:
        """Return the same list of dicts as :meth:`records`."""
        return self.records()

    def summary(self) -> str:
        """Return the result as text: a table of estimates, the log's mean reward, doubts and segments."""
        rows_text = f"{self.rows:,} logged rows"
        heading = f"mean reward, from {rows_text}"
        if self.lists is not None:
            heading = f"mean reward of a list, from {self.lists:,} lists of {rows_text}"
        missing_text = "left out" if self.missing_reward is None else f"{self.missing_reward:g} each"
        unanswered_text = f"{self.unanswered:,} ({missing_text})" if self.unanswered else "0"
        lines = [
            f"{self.target}: {heading}",
            format_table([estimate.texts() for estimate in self.estimates], [*ESTIMATE_COLUMNS, *WEIGHTS]),
            f"the log's own mean reward: {self.logged:.5f}; rows without feedback: "
            f"{unanswered_text}; intervals of {self.confidence:.0%}",
        ]
        lines += [f"{result.estimator}: {result.note}" for result in self.estimates if result.note]
        if self.lists is None:  # the evidence is for weights of rows, not for their sums over lists
            lines += [line for estimate in self.estimates if (line := estimate.describe_weight_doubt())]
        lines += [*self.notes, *([self.assumes] if self.assumes else [])]
        if self.never_shown:
            arms = ", ".join(map(repr, self.never_shown[:5]))
            rest = ", …" if len(self.never_shown) > 5 else ""
            lines.append(
                f"the log never shows {arms}{rest}, which the target policy would: by chance, or "
                "because it could not; then these estimates are too low"
            )
        return "\n".join(lines + (self._describe_segments() if self.by is not None else []))

    def _describe_segments(self) -> list[str]:
        """Return the lines of the table of the largest 30 segments, and remarks on their intervals."""
        body = [
            {
                **estimate.texts(),
                "segment": name or "(none)",
                "rows": segment.rows,
                "logged": segment.logged,
                "estimator": estimate.estimator + ("!" if estimate.warnings else ""),
            }
            for name, segment in list(self.segments.items())[:SHOWN_SEGMENTS]
            for estimate in segment.estimates
        ]
        columns = [
            Column(str(self.by), "{segment}"),
            Column("rows", "{rows:,}"),
            *ESTIMATE_COLUMNS,
            Column("the log's own", "{logged:.5f}", "nan"),
        ]
        count = len(self.segments)
        lines = [
            "",
            format_table(body, columns),
            f"intervals of a kind hold in all {count} segments at once with {self.confidence:.0%}: each is "
            f"one of {1 - (1 - self.confidence) / max(count, 1):.5g} (Bonferroni)",
        ]
        if any(estimate.warnings for part in self.segments.values() for estimate in part.estimates):
            lines.append("! too few rows carry the weight: trust its anytime interval alone")
        if count > SHOWN_SEGMENTS:
            lines.append(f"the largest {SHOWN_SEGMENTS} of {count} segments; table() has all")
        return lines

    @property
    def _rows(self) -> list[tuple[str, Estimate, float]]:
        """Rows of the figure: label, estimate and the log's mean reward, first in total, then by segment."""
        rows = [(estimate.estimator, estimate, self.logged) for estimate in self.estimates]
        for name, part in list(self.segments.items())[:SHOWN_SEGMENTS]:
            rows += [(f"{self.by} {name or '(none)'}: {e.estimator}", e, part.logged) for e in part.estimates]
        return rows

    @property
    def height(self) -> float:
        """Height of the figure in inches, by the number of estimates."""
        return 1.6 + 0.62 * len(self._rows)

    def draw(self, ax: Any) -> None:
        """Draw all estimates with their intervals on axes, first of the whole log, then of the segments.

        Dashed lines show the log's own mean reward.
        """
        rows = self._rows
        for number, kind in enumerate(INTERVALS):
            label = f"{kind} interval"
            for place, (_, estimate, _) in enumerate(rows):
                if kind in estimate.intervals:
                    y = place + 0.16 * (number - 1.5)
                    # An interval without an upper end is drawn up to the value.
                    bounds = np.nan_to_num(estimate.intervals[kind], posinf=estimate.value)
                    ax.plot(bounds, [y, y], color=COLOURS[number], lw=2, label=label)
                    label = "_"  # no second entry in the legend
        for place, (_, estimate, _) in enumerate(rows):
            if estimate.note:
                ax.text(0.01, place + 0.42, estimate.note, size=6, transform=ax.get_yaxis_transform())
        values = [estimate.value for _, estimate, _ in rows]
        places = np.arange(len(rows))
        ax.plot(values, places, "o", color="black", ms=4, label="estimate")
        dashed = {"color": "grey", "lw": 1, "ls": "--", "label": "the log's own mean"}
        ax.vlines([logged for *_, logged in rows], places - 0.5, places + 0.5, **dashed)
        ax.set_yticks(places, [label for label, *_ in rows])
        ax.grid(axis="x", alpha=0.25, linewidth=0.6)
        ax.set(xlabel=f"mean reward ({self.confidence:.0%} intervals)", ylim=(len(values) - 0.5, -0.5))
        ax.set_title(f"{self.target}, from {self.rows:,} logged rows", size=10)
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "borderaxespad": 4.5}
        ax.legend(**below, ncols=3, frameon=False, fontsize=8)


def describe_propensity_doubt(arms: Sequence[str], tally: Floats) -> str:
    """Return a warning that an arm's propensities contradict how often it was shown, else "".

    With right propensities the probability of a warning is at most 1 in 100.

    Parameters
    ----------
    arms : sequence of str
    tally : array of float64, shape (4, arms)
        As for :func:`~tacit.evaluate.intervals.find_suspect_arm`.
    """
    arm, evidence = find_suspect_arm(tally)
    if evidence < MIN_EVIDENCE:
        return ""
    mean, odds = tally[2, arm] / tally[1, arm], math.exp(min(evidence, MAX_EVIDENCE))
    return (
        f"propensity: mean w of {arms[arm]!r} alone is {mean:.3f}, as right ones have it in one of "
        f"{odds:,.0f} logs at most: they are wrong (a row has the probability of the arm that it "
        "shows: 1 − p, where p is that of the only other), or rows are left out by what they show"
    )


def bounds_text(bounds: Bounds | None) -> str:
    """Return an interval as text with five decimals, "open" for an infinite end; a placeholder for None."""
    if bounds is None:
        return MISSING
    low, high = ("open" if math.isinf(end) else f"{end:.5f}" for end in bounds)
    return f"[{low}, {high}]"
