"""Estimate the examination of each position from a log, under the position-based model.

The rows of a log are summed to cells; three methods separate examination from relevance on them; the result
is a table, a text and a figure.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np

from tacit.clicks.conditional import fit_factors, has_sparse_kinds
from tacit.core.arrays import Floats, Ints
from tacit.core.refusals import Refusal, refuse_options, refuse_rows
from tacit.core.text import Column, Tabulated, format_table
from tacit.errors import AssumptionWarning
from tacit.evaluate.intervals import CONFIDENCE, check_confidence, normal_quantile, wilson
from tacit.evaluate.options import Options
from tacit.evaluate.rows import LoggedRows, RowReader, hash_clusters, positions, suggest_propensity_column
from tacit.logs.sources import ReadOptions, get_reward_range, warn_rejected

# ---- From a log to cells: rows and rewards by key, arm and position

GROUPS = 20
"""Number of groups of decisions of the delete-a-group jackknife."""


UNKNOWN = (
    "there is none, by which randomization tells examination from relevance; if all arms were as "
    "likely, give their chance, constants={'propensity': 0.25} (--constant propensity=0.25), else another "
    "method, 'harvesting' or 'em' (--method harvesting,em)"
)


class Cells(NamedTuple):
    """Counts of rows and rewards: one cell per group of decisions, pair of key and arm, and position.

    Attributes
    ----------
    group, pair, position : array of int64, shape (cells,)
    row_counts, clicks : array of float64, shape (cells,)
        Number of rows and sum of their rewards; for randomization weighted to uniform placement.
    names : list of (str, str)
        Key and arm of each pair.
    """

    group: Ints
    pair: Ints
    position: Ints
    row_counts: Floats
    clicks: Floats
    names: list[tuple[str, str]]

    def drop_group(self, group: int) -> Cells:
        """Return the cells without one group of decisions (one step of the jackknife)."""
        return Cells._make([*(column[self.group != group] for column in self[:5]), self.names])


def count_cells(log: Any, missing_reward: float | None, *, randomized: bool, highest: float = 1.0) -> Cells:
    """Return a log's row counts and reward sums by group of decisions, placement, key, arm and position.

    Rewards are divided by the highest possible reward, ``highest``. With ``randomized``, each row is weighted
    by 1/(arms on offer × propensity), as if arms were placed uniformly; then a row without propensity raises
    UnfitLog.
    """
    log_columns = ("placement", "key", "position", "decision_id")
    reader = RowReader(log_columns, missing_reward, need_propensity=False)
    pairs: dict[tuple[int, int, int], int] = {}
    names: list[tuple[str, str]] = []
    parts: list[Floats] = []
    for rows in reader.read(log):
        if randomized:
            text = f"{suggest_propensity_column(rows.unread)}{UNKNOWN}"
            refuse_rows(rows.locate_row, [Refusal("propensity", np.isnan(rows.propensity), text)])
        group = hash_clusters(rows.chunk.batch["decision_id"], GROUPS)
        weights = _compute_uniform_weights(rows) if randomized else np.ones(len(group))
        pair = _number_pairs(rows, pairs, names)
        batch_cells = np.stack([group, pair, positions(rows), weights, weights * rows.reward / highest])
        parts.append(_sum_duplicates(batch_cells))
        if len(parts) > 32:  # bounds the memory
            parts = [_sum_duplicates(np.concatenate(parts, axis=1))]
    columns = _sum_duplicates(np.concatenate([np.zeros((5, 0)), *parts], axis=1))
    return Cells._make([*columns[:3].astype(np.int64), *columns[3:], names])


def _compute_uniform_weights(rows: LoggedRows) -> Floats:
    """Return one weight per row, 1/(arms on offer × propensity), that corrects to uniform placement."""
    sizes = np.array([len(offer) for offer in rows.offers], np.float64)
    return 1.0 / (sizes[rows.offer] * rows.propensity)


def _number_pairs(
    rows: LoggedRows, pairs: dict[tuple[int, int, int], int], names: list[tuple[str, str]]
) -> Ints:
    """Return the number of each row's pair of key and arm; add new pairs to ``pairs`` and ``names``.

    ``pairs`` maps the codes of placement, key and arm to the number; keys of two placements are different.
    """
    table = np.stack([rows.names["placement"].codes, rows.names["key"].codes, rows.arm.codes])
    distinct, pair_index = np.unique(table, axis=1, return_inverse=True)
    numbers = []
    for pair in map(tuple, distinct.T.tolist()):
        if pair not in pairs:
            pairs[pair] = len(names)
            names.append((rows.names["key"].names[pair[1]], rows.arm.names[pair[2]]))
        numbers.append(pairs[pair])
    return np.array(numbers, np.int64)[pair_index.ravel()]


def _sum_duplicates(columns: Floats) -> Floats:
    """Return an array's distinct columns, sorted, where columns with equal first three rows count as equal.

    These rows are group, pair and position; the other rows of equal columns are summed.
    """
    # lexsort sorts by its last key first: the rows 2, 1, 0 are position, pair, group.
    columns = columns[:, np.lexsort(columns[2::-1])]
    is_first = np.ones(columns.shape[1], np.bool_)
    is_first[1:] = (np.diff(columns[:3], axis=1) != 0).any(axis=0)
    first = np.flatnonzero(is_first)
    return np.concatenate([columns[:3, first], np.add.reduceat(columns[3:], first, axis=1)])


# ---- Three methods to separate examination from relevance, on cells

ITERATIONS = 5000


def randomization(cells: Cells, width: int) -> Floats:
    """Return the click rate of each position relative to the first; NaN for a position without rows.

    ``width`` is the number of positions, here and below. Counts must be weighted to uniform placement.
    """
    shown_counts = sum_by_position(cells, cells.row_counts, width)
    clicks = sum_by_position(cells, cells.clicks, width)
    return scale_to_first(np.divide(clicks, shown_counts, out=np.full(width, np.nan), where=shown_counts > 0))


def sum_by_position(cells: Cells, values: Floats, width: int) -> Floats:
    """Return, for each position, the sum of ``values`` (one per cell) over the position's cells."""
    return np.asarray(np.bincount(cells.position, values, width), np.float64)


def scale_to_first(effects: Floats) -> Floats:
    """Return effects divided by the first one; all NaN if the first is 0."""
    first = effects[0]
    return np.asarray(effects / (first if first > 0 else math.nan))


def _count_pairs(cells: Cells, width: int) -> tuple[Floats, Floats]:
    """Return number of rows and sum of rewards of each pair of key and arm at each position, over all groups.

    Both arrays have the shape (pairs, width), with ``width`` the number of positions.
    """
    size = len(cells.names) * width
    index = cells.pair * width + cells.position
    return (
        np.asarray(np.bincount(index, cells.row_counts, size).reshape(-1, width), np.float64),
        np.asarray(np.bincount(index, cells.clicks, size).reshape(-1, width), np.float64),
    )


def harvesting(cells: Cells, width: int) -> Floats:
    """Return each position's examination relative to the first, from arms shown at several positions.

    It maximises the AllPairs likelihood of Agarwal et al. (2019). A position that no chain of such arms
    connects to the first has NaN.

    With pₖ the examination of position k, and r_{k,k′} the mean relevance of the pairs of key and arm shown
    at both k and k′, their click rate at k is pₖ·r_{k,k′}. Over these pairs ĉ (``hits``) is the sum of click
    rates at k, and ĉ̄ (``misses``) the sum of the rates of no click. In a = log pₖ and b = log r_{k,k′},
    ĉ·(a + b) + ĉ̄·log(1 − exp(a + b)) is concave, so Newton's method finds the maximum.
    """
    shown_counts, clicks = _count_pairs(cells, width)
    is_shown = (shown_counts > 0).astype(np.float64)
    rates = np.divide(clicks, shown_counts, out=np.zeros_like(clicks), where=shown_counts > 0)
    hits, misses = rates.T @ is_shown, (is_shown - rates).T @ is_shown
    # Without a click at either end, the likelihood has no maximum: log p would be −∞.
    edges = [(k, m) for k in range(width) for m in range(k + 1, width) if hits[k, m] > 0 and hits[m, k] > 0]
    connected = _find_connected(edges, width)
    edges = [edge for edge in edges if edge[0] in connected]
    effects = np.full(width, np.nan)
    effects[0] = 1.0
    if not edges:
        return effects
    free = sorted(connected - {0})
    column = {k: number for number, k in enumerate(free)}
    # Two rows for each edge, one per end; columns are log p of the free positions, then log r of the edges.
    design = np.zeros((2 * len(edges), len(free) + len(edges)))
    good, bad = np.zeros(len(design)), np.zeros(len(design))
    start = np.zeros(design.shape[1])
    for number, (k, m) in enumerate(edges):
        for row, (position, other_position) in enumerate(((k, m), (m, k)), 2 * number):
            if position in column:
                design[row, column[position]] = 1.0
            design[row, len(free) + number] = 1.0
            good[row], bad[row] = hits[position, other_position], misses[position, other_position]
        both = slice(2 * number, 2 * number + 2)
        # All p are 1 at first, and r half of the click rate, so that p·r < 1 even if every row has a click.
        start[len(free) + number] = math.log(good[both].sum() / (good + bad)[both].sum() * 0.5)
    effects[free] = np.exp(_maximise_log_linear(design, good, bad, start)[: len(free)])
    return effects


def _find_connected(edges: list[tuple[int, int]], width: int) -> set[int]:
    """Return position 0 and all of ``width`` positions that a chain of edges connects to it.

    An edge is a pair of positions.
    """
    connected = {0}
    for _ in range(width):
        connected |= {m for edge in edges if connected & set(edge) for m in edge}
    return connected


def _find_isolated(cells: Cells, width: int) -> list[int]:
    """Return, sorted, the positions not connected to the first by arms that are shown at two positions."""
    shows = _count_pairs(cells, width)[0] > 0
    edges = [(k, m) for k in range(width) for m in range(k + 1, width) if (shows[:, k] & shows[:, m]).any()]
    return sorted({*range(width)} - _find_connected(edges, width))


def _count_compared(cells: Cells, width: int) -> float:
    """Return the number of rows of the pairs of key and arm that are shown at two positions or more."""
    shown_counts = _count_pairs(cells, width)[0]
    return float(shown_counts[(shown_counts > 0).sum(axis=1) > 1].sum())


def _maximise_log_linear(design: Floats, good: Floats, bad: Floats, start: Floats) -> Floats:
    """Return the x that maximises Σ good·u + bad·log(1 − eᵘ) with u = design · x < 0, by Newton's method.

    ``start`` is the first x; at most 200 steps, each halved until the value does not fall.
    """

    def value(x: Floats) -> float:
        """Return the objective at x; −∞ outside of its domain u < 0."""
        u = design @ x
        if (u >= 0).any():
            return -math.inf
        return float(good @ u + bad @ np.log1p(-np.exp(u)))

    x, best = start, value(start)
    for _ in range(200):
        # eᵘ/(1 − eᵘ); below, first and second derivative of the objective (the second with its sign turned).
        odds = 1.0 / np.expm1(-(design @ x))
        slope = design.T @ (good - bad * odds)
        curve = (design.T * (bad * odds * (1.0 + odds))) @ design
        step = np.linalg.lstsq(curve, slope, rcond=None)[0]
        size = 1.0
        while value(x + size * step) < best and size > 1e-12:
            size /= 2
        x = x + size * step if size > 1e-12 else x
        gain, best = value(x) - best, value(x)
        if gain <= 1e-13 * abs(best):
            break
    return x


def em(cells: Cells, width: int, start: Floats | None, regression: Regression) -> Floats:
    """Return each position's examination relative to the first, by expectation maximisation.

    It is algorithm 1 of Wang et al. (2018), at most 5,000 iterations. ``start`` are effects to begin with,
    such as the whole log's effects for a part of it; ``regression`` smooths the relevance of pairs of key
    and arm.

    With θ the examination of a position and γ the relevance of a pair, the E-step gives, for a row without a
    click, P(examined) = θ(1 − γ)/(1 − θγ) and P(relevant) = γ(1 − θ)/(1 − θγ); for a click both are 1. The
    M-step sets θ to the mean of P(examined) per position, and fits γ to the mean of P(relevant) per pair.
    """
    shown_counts, clicks = _count_pairs(cells, width)
    missed = shown_counts - clicks
    rows, position_rows = (np.maximum(shown_counts.sum(axis=axis), 1e-300) for axis in (1, 0))
    if start is None:
        theta = np.full(width, 0.5)
        gamma = (clicks.sum(axis=1) + 1.0) / (rows + 2.0)
    else:
        # Effects are relative: scaled to at most 0.9, they are probabilities that may still grow. A pair's
        # relevance is then its clicks over its examined rows, nearly.
        theta = 0.9 * np.nan_to_num(start, nan=1.0) / np.nanmax(start)
        gamma = np.minimum(0.95, (clicks.sum(axis=1) + 0.1) / np.maximum(shown_counts @ theta, 1e-9))
    for _ in range(ITERATIONS):
        both = theta * gamma[:, None]
        examined = clicks + missed * theta * (1 - gamma[:, None]) / (1 - both)
        relevant = clicks + missed * gamma[:, None] * (1 - theta) / (1 - both)
        new = np.clip(examined.sum(axis=0) / position_rows, 1e-9, 1 - 1e-9)
        gamma = np.clip(regression(relevant.sum(axis=1) / rows, rows), 1e-9, 1 - 1e-9)
        change = np.abs(np.log(scale_to_first(new) / scale_to_first(theta))).max()
        theta = new
        if change < 1e-8:
            break
    return scale_to_first(theta)


class Regression:
    """Estimator of each pair's relevance in the M-step: a regression on features, or the mean itself."""

    def __init__(self, cells: Cells, features: Any, regression: Any) -> None:
        """Compute the feature vector of each pair of key and arm, if there are features."""
        self._regression = regression
        if features is not None:
            vectors = [np.asarray(features(key, arm), np.float64) for key, arm in cells.names]
            self._features = np.stack(vectors)

    def __call__(self, targets: Floats, rows: Floats) -> Floats:
        """Return one relevance per pair: ``targets`` unchanged, or predictions of the refitted regression.

        The regression is fitted to ``targets`` with the numbers of rows as weights.
        """
        if self._regression is None:
            return targets
        self._regression.fit(self._features, targets, sample_weight=rows)
        return np.asarray(self._regression.predict(self._features), np.float64)


# ---- The result, as table, text and figure


@dataclass(frozen=True, repr=False)
class Examination(Tabulated):
    """Estimated examination of each position.

    Attributes
    ----------
    method : str
    positions : array of int64, shape (positions,)
        The positions of the log, in ascending order.
    effects : array of float64, shape (positions,)
        Examination of each position relative to the first; NaN if it is not identified, as without
        clicks.
    low, high : array of float64, shape (positions,)
        Interval of each effect (delete-a-group jackknife, on the log scale). If that
        has no width, as without any click: for ``randomization`` from Wilson's intervals of both
        click rates, else NaN.
    shown, clicks : array of float64, shape (positions,)
        Number of rows at each position, and sum of their rewards; for ``randomization`` weighted to
        uniform placement.
    confidence : float
    rows_compared : float
        Number of rows of arms that a key shows at two positions or more, which alone tell examination in
        ``harvesting`` and ``em``; NaN where all rows do, as with ``randomization`` or ``features``.
    """

    method: str
    positions: Ints
    effects: Floats
    low: Floats
    high: Floats
    shown: Floats
    clicks: Floats
    confidence: float = CONFIDENCE
    rows_compared: float = math.nan

    @property
    def probabilities(self) -> Floats:
        """The effects divided by their maximum, as policies expect them; NaN where an effect is NaN."""
        return np.asarray(self.effects / np.nanmax(self.effects))

    def table(self) -> list[dict[str, Any]]:
        """Return the same list of dicts as :meth:`records`."""
        return self.records()

    def records(self) -> list[dict[str, Any]]:
        """Return one flat dict per position: method, position, effect, its interval, rows and clicks."""
        names = "position", "effect", "low", "high", "shown", "clicks"
        columns = self.positions, self.effects, self.low, self.high, self.shown, self.clicks
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [{"method": self.method, **dict(zip(names, row, strict=True))} for row in rows]

    def summary(self) -> str:
        """Return a title and a table of positions with effects, intervals, rows and clicks as text."""
        columns = [
            Column("position", "{position}"),
            Column("effect", "{effect:.3f}"),
            Column(f"{self.confidence:.0%} interval", "[{low:.3f}, {high:.3f}]"),
            Column("shown", "{shown:,.0f}"),
            Column("clicks", "{clicks:,.0f}"),
        ]
        title = f"examination relative to position {self.positions[0]}, by {self.method}"
        text = f"{title}\n{format_table(self.records(), columns)}"
        if self.rows_compared < self.shown.sum() / 2:
            rows = f"{self.rows_compared:,.0f} of {self.shown.sum():,.0f} rows"
            text += f"\nonly {rows} tell examination: those of arms that a key shows at several positions"
        return text


def plot(results: Sequence[Examination], path: str | Path | None = None, *, ax: Any = None) -> Any:
    """Draw the effects by each method with their intervals; return the axes.

    ``path`` is a file to save the figure to; ``ax`` are existing matplotlib axes to draw on.
    """
    from tacit.plots import open_axes

    with open_axes(path, ax, height=4.0) as axes:
        _draw(results, axes)
    return axes


def _draw(results: Sequence[Examination], ax: Any) -> None:
    """Draw the effects of each result with their intervals as error bars on matplotlib axes."""
    for number, result in enumerate(results):
        # Results stand side by side around the position.
        x = result.positions + 0.12 * (number - (len(results) - 1) / 2)
        errors = np.abs(np.stack([result.low, result.high]) - result.effects)
        ax.errorbar(x, result.effects, np.nan_to_num(errors), fmt="o", capsize=3, lw=1.5,
                    label=result.method)  # fmt: skip
    ax.set_xticks(results[0].positions)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("position")
    ax.set_ylabel(f"examination relative to position {results[0].positions[0]}")
    ax.set_title(f"position effects, {results[0].confidence:.0%} intervals", size=10)
    ax.legend(frameon=False)


# ---- The entry point
#
# In the position-based model (Richardson et al. 2007) a click is examination of the position times
# relevance of the arm: P(click) = θ_k · γ(key, arm). Clicks determine the θ only up to a common
# factor, so effects are relative to the first position. Three methods separate them from the
# relevance of the arms shown there:
#
# - ``randomization``: if arms were placed at random (or with known propensities), all
#   positions have arms of equal relevance on average, and their click rates differ by examination alone;
# - ``harvesting``: the same arm for the same key, shown at two positions by chance or after a
#   change of policy, is a natural experiment;
# - ``em``: relevance is estimated together with examination, perhaps by a regression on features. Where arms
#   of a key are seen too seldom for that, relevance is conditioned out (``clicks/conditional.py``): a prior
#   common to all arms would take the relevance of a good ranker's first positions for their examination.

METHODS = ("randomization", "harvesting", "em")
NO_SHARES = (
    "a reward must be a share of the highest, as of a click: give (0, HIGHEST), of which 0 is no click"
)


def examine(
    log: Any,
    method: str = "harvesting",
    *,
    features: Callable[[str, str], Any] | None = None,
    regression: Any = None,
    missing_reward: float | None = 0.0,
    confidence: float = CONFIDENCE,
    **reading: Unpack[ReadOptions],
) -> Examination:
    """Estimate from a log how much each position is examined, under the position-based model.

    Parameters
    ----------
    log : LogReader, path, or table in memory
        A click log with positions, as for :func:`tacit.read_log`. Memory grows with
        the number of distinct combinations of key, arm and position, not with the number of rows.
    method : {"randomization", "harvesting", "em"}
        ``randomization`` needs propensities, to weight rows to uniform placement.
        ``harvesting`` uses only arms that were shown at two positions or more, and weighs them alike.
        ``em`` weighs them by their rows; where there are few rows for each arm of a key, it maximises the
        conditional likelihood given each one's clicks, which no longer depends on relevance.
    features : callable, optional
        For ``em``: from key and arm to a vector of features.
    regression : object, optional
        For ``em``, with ``features``: has ``fit(features, targets, sample_weight=...)`` and
        ``predict(features)``, whose predictions are the relevance. Without it each pair of key
        and arm has its own relevance.
    missing_reward : float or None, default 0
        The reward of a row without feedback; None leaves such rows out.
    confidence : float, default 0.95
    **reading
        How a log that is not open yet is read: options of :func:`tacit.read_log`.

    Returns
    -------
    Examination

    Raises
    ------
    LogError
        If there are no rows.
    UnfitLog
        If rows have no position, or no propensity and the method needs it.
    InvalidValue
        If an option is wrong.

    Warns
    -----
    AssumptionWarning
        If no arm of a key is shown both at a position and at others, or such arms have too few clicks: the
        position's effect is then NaN, except with ``randomization`` or ``features``.

    References
    ----------
    Joachims, Swaminathan, Schnabel (2017), "Unbiased learning-to-rank with biased feedback",
    section 5 (randomization); Agarwal, Zaitsev, Wang, Li, Najork, Joachims (2019), "Estimating
    position bias without intrusive interventions", section 4 (harvesting: interventional sets
    and the AllPairs estimator); Wang, Golbandi, Bendersky, Metzler, Najork (2018), "Position
    bias estimation for unbiased learning to rank in personal search", section 4 and algorithm 1
    (regression-based EM); Hausman, Hall, Griliches (1984) and Wooldridge (1999), for the conditional
    likelihood; Kott (2001), "The delete-a-group jackknife".

    Examples
    --------
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> rng, rows = np.random.default_rng(1), 20_000
    >>> arm, position = rng.integers(2, size=rows), rng.integers(2, size=rows)
    >>> chance = np.array([0.3, 0.6])[arm] * np.array([0.9, 0.45])[position]
    >>> log = pa.table(
    ...     {
    ...         "timestamp": ["2017-07-04T12:00:00Z"] * rows,
    ...         "decision_id": [str(row) for row in range(rows)],
    ...         "placement": ["home"] * rows,
    ...         "key": ["independence day"] * rows,
    ...         "arms": [["film", "holiday"]] * rows,
    ...         "arm": np.array(["film", "holiday"])[arm].tolist(),
    ...         "position": pa.array(position, pa.int32()),
    ...         "propensity": [0.5] * rows,
    ...         "reward": (rng.random(rows) < chance).astype(float),
    ...     }
    ... )
    >>> result = examine(log, "harvesting")
    >>> bool(result.low[1] < 0.5 < result.high[1])
    True
    """
    is_misused = (features is None) != (regression is None) or (features and method != "em")
    refuse_options(
        [
            Refusal("method", method not in METHODS, f"give one of {', '.join(METHODS)}", method),
            Refusal("features", is_misused, "give features and regression, both for 'em'", features),
        ]
    )
    options = Options(missing_reward=missing_reward)
    check_confidence("confidence", confidence)
    reader = options.open_log(log, **reading)
    reward_range = get_reward_range(reader)
    is_wrong = reward_range.is_open or reward_range.low != 0.0
    refuse_options([Refusal("reward_range", is_wrong, NO_SHARES, reward_range.text)])
    randomized = method == "randomization"
    cells = count_cells(reader, options.missing_reward, randomized=randomized, highest=reward_range.width)
    reader.report.drop_order_warnings()
    warn_rejected(reader, log, by_placement=True)
    # From here on the cells, and all arrays of effects, number the positions by their index in ``places``.
    places = np.unique(cells.position)
    cells = cells._replace(position=np.searchsorted(places, cells.position))
    is_sparse = not features and has_sparse_kinds(len(cells.names), cells.row_counts.sum())

    def estimate_effects(part: Cells, start: Floats | None) -> Floats:
        """Return the effects from some of the cells by the chosen method; ``em`` begins from ``start``."""
        if method == "randomization":
            return randomization(part, len(places))
        if method == "harvesting":
            return harvesting(part, len(places))
        if is_sparse:
            return fit_factors(*_count_pairs(part, len(places)))
        return em(part, len(places), start, Regression(cells, features, regression))

    shown_counts, clicks = (sum_by_position(cells, x, len(places)) for x in (cells.row_counts, cells.clicks))
    compares_arms = method != "randomization" and not features
    isolated = _find_isolated(cells, len(places)) if compares_arms else []
    effects = estimate_effects(cells, start=None)
    if method == "em":  # it does not converge at positions without clicks
        effects[clicks == 0] = np.nan
        effects[isolated] = np.nan
        effects = scale_to_first(effects)
    if compares_arms:
        unknown_positions = set(np.flatnonzero(np.isnan(effects) & (clicks > 0)).tolist())
        _warn_of_positions(places, shown_counts, isolated, sorted(unknown_positions - set(isolated)))
    low, high = _jackknife(cells, effects, estimate_effects, confidence)
    # Without two groups, or with equal effects in all of them, the jackknife gives no interval. The first
    # position's effect is 1 by definition.
    for place in (np.flatnonzero(~(low < high)[1:]) + 1).tolist():
        low[place] = high[place] = np.nan
        # A randomized effect is a ratio of click rates, whose Wilson intervals bound it.
        if method == "randomization" and not np.isnan(effects[place]):
            least, most = wilson(clicks[0] / shown_counts[0], shown_counts[0], confidence)
            ends = wilson(clicks[place] / shown_counts[place], shown_counts[place], confidence)
            low[place], high[place] = ends[0] / most, ends[1] / least
    rows_compared = _count_compared(cells, len(places)) if compares_arms else math.nan
    return Examination(method, places, effects, low, high, shown_counts, clicks, confidence, rows_compared)


def _warn_of_positions(places: Ints, shown_counts: Floats, isolated: list[int], thin: list[int]) -> None:
    """Warn of ``isolated`` positions, which no arm connects to others, and of ``thin`` ones of few clicks."""
    names = [", ".join(map(str, places[numbers])) for numbers in (isolated, thin)]
    where = [f"both at one of {name} and at another position" for name in names]
    rows = f"in {shown_counts[isolated].sum():,.0f} of {shown_counts.sum():,.0f} rows"
    messages = [
        f"no arm of a key stands {where[0]}, so how much is examined there cannot be separated from how "
        f"relevant it is, {rows}",
        f"the arms of a key that stand {where[1]} have too few clicks there to be compared",
    ]
    for numbers, message in zip((isolated, thin), messages, strict=True):
        if numbers:
            remedy = "swap some at random, as ListMix(epsilon=0.1) does"
            warnings.warn(f"position: {message}; {remedy}", AssumptionWarning, stacklevel=3)


def _jackknife(
    cells: Cells,
    effects: Floats,
    estimate_effects: Callable[[Cells, Floats | None], Floats],
    confidence: float,
) -> tuple[Floats, Floats]:
    """Return lower and upper ends of each effect's interval, by the delete-a-group jackknife.

    The effects are estimated again without each group of decisions; NaN with fewer than two groups.
    """
    groups = np.unique(cells.group)
    if len(groups) < 2:
        return np.full_like(effects, np.nan), np.full_like(effects, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = [np.log(estimate_effects(cells.drop_group(group), effects)) for group in groups.tolist()]
        spread = np.stack(parts) - np.log(effects)
    size = len(groups)
    error = np.sqrt((size - 1) / size * np.sum(spread**2, axis=0))
    z = normal_quantile(confidence)
    # Student's quantile for size − 1 degrees of freedom, to second order.
    quantile = z + (z**3 + z) / (4 * (size - 1)) + z * (5 * z**4 + 16 * z**2 + 3) / (96 * (size - 1) ** 2)
    factor = np.exp(quantile * error)
    return effects / factor, effects * factor
