"""What estimators say of a target policy."""

# 1. ``Estimate``: what one estimator says, with what speaks against it.
# 2. ``Segment``: the same of a segment.
# 3. ``OffPolicyResult``: a table of all of them, and its figure.

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tacit.core.arrays import Floats
from tacit.core.text import MISSING, ByName, Column, Tabulated, laid_out
from tacit.evaluate.intervals import Bounds, Sums, arm_in_doubt, weights_are_wrong
from tacit.plots import COLOURS, Plotted

NO_OVERLAP = "no overlap: no row that counts shows what the target policy would"
EMPTY = "empty: the propensities cannot be right"
INTERVALS = ("normal", "bootstrap", "score", "anytime")
SAID = (
    Column("estimator", "{estimator}"),
    Column("value", "{value:.5f}", "no overlap"),
    *(Column(kind, f"{{{kind}}}") for kind in INTERVALS),
    Column("n_eff", "{effective_sample_size:,.0f}"),
)
WEIGHTS = Column("mean w", "{mean_weight:.3f}", "nan"), Column("max w", "{largest_weight:.4g}", "nan")
DOUBTED, ODDS = math.log(100), math.log(1e6)
"""From which evidence on weights are doubted, and the most of it that is said."""
SHOWN_SEGMENTS = 30
"""The most segments that a text or a figure tells of."""


@dataclass(frozen=True)
class Estimate:
    """What one estimator says.

    Attributes
    ----------
    estimator : str
    value : float
        NaN where there is no overlap: the log shows nothing of what the target policy would do.
    standard_error : float
        By the central limit theorem; NaN where it says nothing, as where all rewards are alike.
    intervals : dict
        Per kind (normal, bootstrap, score, anytime) its bounds; a kind is left out where an
        estimator has none, where there are too few rows, and where it is empty. Where all rewards
        are alike, the first two are as :func:`~tacit.evaluate.intervals.widened` says.
    effective_sample_size : float
        (Σw)²/Σw²: how many equally weighted units would tell as much.
    mean_weight : float
        Of a list, over its positions; 1 in expectation; far from it (in its own standard errors) the
        log's propensities are wrong, or the log could not show what the target policy shows, or too seldom.
    largest_weights : tuple of float
    sums : Sums
        All that was kept of the rows.
    warnings : tuple of str
        Why the normal and the bootstrap interval are not to be trusted, and which one is. They
        hold in the limit only; with an effective sample size below 100 it is far away, and where
        the normal interval leaves the range of mean rewards it has not been reached. No interval
        is clipped to that range: it would look better than it is. First of all, ``note``.
    empty : tuple of str
        The kinds of interval that leave no value: their lower end is above their upper one, which
        has at most the probability of a miss if the log's propensities are right.
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
        """What the numbers alone would hide: no overlap, an empty interval, a value outside of one.

        The value stays what the estimator's formula gives. The score and the anytime interval
        count besides on the mean weight, which is 1 in expectation: where it is not, they may
        contradict the value, and are the ones to believe if the propensities are right.
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
        """Return :meth:`row` with the intervals as texts besides."""
        return self.row() | {
            kind: EMPTY if kind in self.empty else bounds_text(self.intervals.get(kind)) for kind in INTERVALS
        }

    def doubted_weights(self) -> str:
        """Return what is wrong where the mean weight is as right propensities have it once in 100 logs."""
        n, mean, most = self.sums.n, self.mean_weight, self.sums.possible
        if "clip=" in self.estimator or not self.sums.ww:
            return ""
        evidence = weights_are_wrong(self.sums)
        if evidence >= DOUBTED:
            odds = math.exp(min(evidence, ODDS))
            return (
                f"{self.estimator}: mean w is {mean:.3f}, as right propensities have it in one of "
                f"{odds:,.0f} logs at most: they are wrong, or the log could not show what the target shows"
            )
        spread = math.sqrt(max(self.sums.ww / n - mean**2, 0.0) / n)
        if most and 1 - mean > 4 * spread:
            return (
                f"{self.estimator}: mean w is {mean:.3f}: what weighs most, {most:,.4g} or so, is hardly in "
                "the log yet, so the estimate leaves out what it would have earned; log more rows"
            )
        return ""

    def row(self) -> dict[str, Any]:
        """Return it as a flat dict of plain numbers, None for an interval that there is not."""
        bounds = {
            f"{kind}_{side}": self.intervals[kind][end] if kind in self.intervals else None
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
    """Estimates in the order of their estimators; each is found by its estimator's name, too."""

    by = "estimator"


@dataclass(frozen=True)
class Segment:
    """What several estimators say of the rows of one segment.

    Attributes
    ----------
    estimates : ByEstimator
        The intervals of one kind hold in all segments at once with
        the result's confidence: each is one of 1 − (1 − confidence)/segments (Bonferroni), the score
        interval of √(c² + 2 ln segments) standard errors. None by the bootstrap for many segments.
    rows : int
    logged : float
        Mean reward of the log itself in this segment.
    """

    estimates: ByEstimator
    rows: int
    logged: float


@dataclass(frozen=True, repr=False)
class OffPolicyResult(Tabulated, Plotted):
    """What several estimators say of one target policy.

    Attributes
    ----------
    target : str
    estimates : ByEstimator
        In the order of the estimators, such as ``estimates[0]`` or ``estimates["IPS"]``.
    logged : float
        Mean reward of the log itself, per list where lists are weighed; NaN if it is empty.
    rows, unanswered : int
        Rows that were used, and rows without feedback.
    never_shown : tuple of str
        Arms that the target policy would show and that were on offer, but that the log never
        shows: by chance, or because it could not.
    confidence : float
    lists : int or None
        How many lists there were, if the estimators weigh lists.
    assumes : str
        What is assumed where propensities are not those of the log; empty where they are.
    by : str or None
        The column that tells the segments apart, if one was asked for.
    segments : dict
        From its values to a :class:`Segment`, the largest first.
    notes : tuple of str
        What was taken for granted of the log: one key, where it has no column of keys.
    missing_reward : float or None
        What rows without feedback counted as; None left them out.
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

    def records(self) -> list[dict[str, Any]]:
        """Return one flat dict per estimator; with segments, then one for each of them and it."""
        target = {"target": self.target}
        if self.by is None:
            return [target | estimate.row() for estimate in self.estimates]
        whole = Segment(self.estimates, self.rows, self.logged)
        return [
            target | {"segment": name, "rows": part.rows, "logged": part.logged} | estimate.row()
            for name, part in [(None, whole), *self.segments.items()]
            for estimate in part.estimates
        ]

    def table(self) -> list[dict[str, Any]]:
        """Return :meth:`records`."""
        return self.records()

    def summary(self) -> str:
        """Return the result as text."""
        of = f"{self.rows:,} logged rows"
        what = f"mean reward, from {of}"
        if self.lists is not None:
            what = f"mean reward of a list, from {self.lists:,} lists of {of}"
        counted = "left out" if self.missing_reward is None else f"{self.missing_reward:g} each"
        silent = f"{self.unanswered:,} ({counted})" if self.unanswered else "0"
        lines = [
            f"{self.target}: {what}",
            laid_out([estimate.texts() for estimate in self.estimates], [*SAID, *WEIGHTS]),
            f"the log's own mean reward: {self.logged:.5f}; rows without feedback: "
            f"{silent}; intervals of {self.confidence:.0%}",
        ]
        lines += [f"{each.estimator}: {each.note}" for each in self.estimates if each.note]
        if self.lists is None:
            lines += [line for estimate in self.estimates if (line := estimate.doubted_weights())]
        lines += [*self.notes, *([self.assumes] if self.assumes else [])]
        if self.never_shown:
            shown = ", ".join(map(repr, self.never_shown[:5]))
            more = ", …" if len(self.never_shown) > 5 else ""
            lines.append(
                f"the log never shows {shown}{more}, which the target policy would: by chance, or "
                "because it could not; then these estimates are too low"
            )
        return "\n".join(lines + (self._segment_lines() if self.by is not None else []))

    def _segment_lines(self) -> list[str]:
        """Return the table of the segments, and what their intervals promise."""
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
            *SAID,
            Column("the log's own", "{logged:.5f}", "nan"),
        ]
        count = len(self.segments)
        lines = [
            "",
            laid_out(body, columns),
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
        """The estimates of a figure, with their labels, and what the log itself earned there."""
        rows = [(estimate.estimator, estimate, self.logged) for estimate in self.estimates]
        for name, part in list(self.segments.items())[:SHOWN_SEGMENTS]:
            rows += [(f"{self.by} {name or '(none)'}: {e.estimator}", e, part.logged) for e in part.estimates]
        return rows

    @property
    def height(self) -> float:
        """How high its figure is."""
        return 1.6 + 0.62 * len(self._rows)

    def draw(self, ax: Any) -> None:
        """Draw the estimates with their intervals, then those of the segments."""
        rows = self._rows
        for number, kind in enumerate(INTERVALS):
            label = f"{kind} interval"
            for place, (_, estimate, _) in enumerate(rows):
                if kind in estimate.intervals:
                    y = place + 0.16 * (number - 1.5)
                    bounds = estimate.intervals[kind]
                    ax.plot(bounds, [y, y], color=COLOURS[number], lw=2, label=label)
                    label = "_"
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


def doubted_propensities(arms: Sequence[str], tally: Floats) -> str:
    """Return what is wrong where an arm is shown more often than right propensities have it once in 100 logs.

    Parameters
    ----------
    arms : sequence of str
    tally : array of float64, shape (4, arms)
        As for :func:`~tacit.evaluate.intervals.arm_in_doubt`.
    """
    arm, evidence = arm_in_doubt(tally)
    if evidence < DOUBTED:
        return ""
    mean, odds = tally[2, arm] / tally[1, arm], math.exp(min(evidence, ODDS))
    return (
        f"propensity: mean w of {arms[arm]!r} alone is {mean:.3f}, as right ones have it in one of "
        f"{odds:,.0f} logs at most: they are wrong (a row has the probability of the arm that it "
        "shows: 1 − p, where p is that of the only other), or rows are left out by what they show"
    )


def bounds_text(bounds: Bounds | None) -> str:
    return MISSING if bounds is None else f"[{bounds[0]:.5f}, {bounds[1]:.5f}]"
