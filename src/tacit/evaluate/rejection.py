"""Replay: the rejection method for logs of uniform choice (Li, Chu, Langford, Wang 2011).

Counts of passes, which can be merged over parts of a log, and the estimate that follows from them; then
:func:`replay`, which runs the passes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import add
from types import MappingProxyType
from typing import Any, NamedTuple, Unpack

import numpy as np

from tacit.core.arrays import Floats
from tacit.core.parallel import report_progress
from tacit.core.reward_range import UNIT_RANGE, RewardRange
from tacit.core.text import Column, Tabulated, format_table
from tacit.errors import AssumptionWarning
from tacit.evaluate.intervals import CONFIDENCE, LARGEST, correct_skewness, wilson
from tacit.evaluate.results import describe_propensity_doubt
from tacit.evaluate.rows import list_arm_names, warn_one_sided
from tacit.evaluate.windows import Pass, ReplayConfig, WindowReader
from tacit.logs.parts import KeyShard
from tacit.logs.sources import ReadOptions, warn_rejected, warn_unread_context
from tacit.policies.base import Policy
from tacit.uplift.sentences import are_heavy, describe_shares

# ---- The result of replay: counts of passes, and the estimate that follows from them

NO_OVERLAP = "no overlap: no row shows what the policy chose"
WHOLE = "estimate", "low", "high", "logged", "rows", "unanswered"
SEGMENT_COLUMNS = (
    Column("mean reward", "{estimate:.5f}", "no overlap"),
    Column("95 % interval", "[{low:.5f}, {high:.5f}]"),
    Column("matched a pass", "{matched:,.1f}"),
)
PerPass = tuple[tuple[float, ...], ...]
"""One element for each of the MOMENTS sums over matched rows (their number, the sum of their rewards, …): its
values, one for each pass."""


class ReplaySegment(NamedTuple):
    """Estimated mean reward in one segment, of a policy that learns from the matched rows of all segments.

    Attributes
    ----------
    estimate, low, high : float
        As in :class:`ReplayResult`; the intervals of all segments hold simultaneously with 95 % (Bonferroni).
    matched : float
        Number of matched rows, on average over the passes.
    """

    estimate: float
    low: float
    high: float
    matched: float


@dataclass(frozen=True, repr=False)
class ReplayResult(Tabulated):
    """Estimated mean reward of a policy by replay.

    Attributes
    ----------
    policy : str
        The policy and its hyperparameters.
    estimate : float
        Mean over the passes of the mean reward of a pass's matched rows; NaN without a match, which
        is printed as "no overlap".
    low, high : float
        95 % interval of the estimate: the score interval of Wilson (1927) for as many rows as a pass
        matched on average. Passes share their rows, so more passes never narrow it. The variance of a
        reward in [0, 1] is at most that of a click of the same mean, so the interval is conservative for
        fractions. Of another range the rewards are mapped to [0, 1]; if an end is open, it is the interval
        by the central limit theorem, corrected for skewness.
        Rewards of a policy that learns depend on one another, but the deviations
        from the expected reward of the arms shown are martingale differences, so with many matches the
        interval covers the expected reward of the arms shown. The spread of ``estimates`` shows
        the effect of chance in learning.
    logged : float
        Mean reward of the log itself; NaN if it is empty.
    rows : int
        Rows of the log that were replayed in each pass.
    unanswered : int
        Rows without feedback.
    matched : tuple of int
        Matched rows, in which the policy chose the logged arm, per pass.
    clicks : tuple of float
        Sum of their rewards, per pass.
    estimates : tuple of float
        Mean of their rewards, per pass; NaN without a match.
    by : str or None
        The column whose values are the segments, if any.
    segments : dict
        From its values to a :class:`ReplaySegment`, the largest first.
    notes : tuple of str
        Assumptions on the log, as in :class:`~tacit.evaluate.OffPolicyResult`; if an end of the range of
        rewards is open, the share of the sum that the largest rewards bring.
    """

    policy: str
    estimate: float
    low: float
    high: float
    logged: float
    rows: int
    unanswered: int
    matched: tuple[int, ...]
    clicks: tuple[float, ...]
    estimates: tuple[float, ...]
    by: str | None = None
    segments: dict[str, ReplaySegment] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def records(self) -> list[dict[str, Any]]:
        """Return one flat dict of means over the passes; with segments, one in total and one of each."""
        passes = len(self.matched)
        mean = sum(self.matched) / passes
        if self.by is not None:
            all_rows = ReplaySegment(self.estimate, self.low, self.high, mean)
            return [
                {"policy": self.policy, "segment": name, **part._asdict()}
                for name, part in [(None, all_rows), *self.segments.items()]
            ]
        return [
            {
                "policy": self.policy,
                **{name: getattr(self, name) for name in WHOLE},
                "passes": passes,
                "matched": mean,
                "clicks": sum(self.clicks) / passes,
            }
        ]

    def summary(self) -> str:
        """Return the result as text: mean reward and interval, the log's own, matches, and segments."""
        passes = len(self.matched)
        matched, clicks = sum(self.matched) / passes, sum(self.clicks) / passes
        share = matched / self.rows if self.rows else 0.0
        return "\n".join(
            [
                f"{self.policy}, replayed on {self.rows:,} logged rows, passes: {passes}",
                *self._describe_rewards(),
                f"  the log's own    {self.logged:.5f}",
                f"  matched a pass   {matched:,.1f} rows ({share:.1%}) and a reward of {clicks:,.1f} in all",
                f"  without feedback {self.unanswered:,} rows",
                *(f"  {note}" for note in self.notes),
                *(self._describe_segments() if self.by is not None else ()),
            ]
        )

    def _describe_rewards(self) -> list[str]:
        """Return text lines with estimate, interval and range of single passes, or "no overlap"."""
        estimates = [estimate for estimate in self.estimates if not math.isnan(estimate)]
        if not estimates:
            return [f"  mean reward      {NO_OVERLAP}"]
        return [
            f"  mean reward      {self.estimate:.5f}, 95 % interval {self.low:.5f} to {self.high:.5f}",
            f"  single passes    {min(estimates):.5f} to {max(estimates):.5f}",
        ]

    def _describe_segments(self) -> list[str]:
        """Return the lines of the table of segments, and a remark on their intervals."""
        rows = [{**part._asdict(), "segment": name or "(none)"} for name, part in self.segments.items()]
        return [
            "",
            format_table(rows, [Column(str(self.by), "{segment}"), *SEGMENT_COLUMNS]),
            f"intervals hold in all {len(rows)} segments at once with 95 % (Bonferroni)",
        ]


class ReplayCounts(NamedTuple):
    """Counts of passes over a log, or over a shard of one.

    Attributes
    ----------
    matched : tuple of int
        Per pass.
    clicks : tuple of float
    rows, unanswered : int
        Of the log.
    reward : float
        Sum of all its rewards.
    warnings : tuple of str
        Evidence of the first pass against the policy's assumptions.
    moments : tuple of tuple of float
        The sums over matched rows, per pass.
    largest : tuple of tuple of float
        The largest absolute rewards of matched rows, per pass.
    segments : mapping of str to tuple of tuple of float
        For each segment the sums over its matched rows, per pass.
    """

    matched: tuple[int, ...]
    clicks: tuple[float, ...]
    rows: int
    unanswered: int
    reward: float
    warnings: tuple[str, ...]
    moments: PerPass
    largest: tuple[tuple[float, ...], ...]
    segments: Mapping[str, PerPass] = MappingProxyType({})

    def add_passes(self, other: ReplayCounts) -> ReplayCounts:
        """Return the counts of these passes followed by other passes over the same rows.

        Only values per pass are joined; the rest, of the log, is the same in both.
        """
        return self._replace(
            matched=self.matched + other.matched,
            clicks=self.clicks + other.clicks,
            moments=tuple(map(add, self.moments, other.moments)),
            largest=self.largest + other.largest,
            segments={
                name: tuple(map(add, counts, other.segments[name])) for name, counts in self.segments.items()
            },
        )

    def merge(self, other: ReplayCounts) -> ReplayCounts:
        """Return the counts of the same passes summed over these rows and other rows."""
        return ReplayCounts(
            tuple(a + b for a, b in zip(self.matched, other.matched, strict=True)),
            tuple(a + b for a, b in zip(self.clicks, other.clicks, strict=True)),
            self.rows + other.rows,
            self.unanswered + other.unanswered,
            self.reward + other.reward,
            self.warnings + other.warnings,
            _merge_sums(self.moments, other.moments),
            tuple(
                tuple(sorted(mine + theirs, reverse=True)[:LARGEST])
                for mine, theirs in zip(self.largest, other.largest, strict=True)
            ),
            _merge_segments(self.segments, other.segments),
        )

    @property
    def shares(self) -> tuple[float, float]:
        """Shares of the sum of absolute rewards that the largest and the five largest bring.

        They are means over the passes. The last of the moments are the sums of absolute rewards.
        """
        shares = [
            (row[0] / total, sum(row) / total)
            for row, total in zip(self.largest, self.moments[-1], strict=True)
            if total
        ]
        largest, five = np.mean(shares or [(0.0, 0.0)], axis=0).tolist()
        return largest, five

    def result(
        self, policy: str, by: str | None = None, reward_range: RewardRange = UNIT_RANGE
    ) -> ReplayResult:
        """Return the estimate, its interval and segments that follow from the counts.

        ``policy`` is the policy's name and ``by`` the column of the segments, for the result.
        """
        estimates = tuple(_divide_rewards(self.matched, self.clicks))
        estimate, low, high, _ = _estimate_segment(self.moments, reward_range)
        many = len(self.segments)
        parts = {name: _estimate_segment(sums, reward_range, many) for name, sums in self.segments.items()}
        return ReplayResult(
            policy=policy,
            estimate=estimate,
            low=low,
            high=high,
            logged=self.reward / self.rows if self.rows else math.nan,
            rows=self.rows,
            unanswered=self.unanswered,
            matched=self.matched,
            clicks=self.clicks,
            estimates=estimates,
            by=by,
            notes=(describe_shares(self.shares),) if reward_range.is_open else (),
            segments=dict(sorted(parts.items(), key=lambda item: -item[1].matched)),
        )


def _divide_rewards(matched: Sequence[float], clicks: Sequence[float]) -> list[float]:
    """Return the mean reward of each pass's matched rows; NaN without a match."""
    return [reward / rows if rows else math.nan for reward, rows in zip(clicks, matched, strict=True)]


def _estimate_segment(counts: PerPass, reward_range: RewardRange, segments: int = 1) -> ReplaySegment:
    """Return the mean reward over passes with its interval, and the mean number of matches per pass.

    Mean and interval are NaN without a match. ``counts`` are the sums of one segment. The interval is
    Wilson's; if the range of rewards has an open end, it is by the central limit theorem, corrected for
    skewness. It is one of ``segments`` intervals that hold simultaneously.
    """
    ratios = [ratio for ratio in _divide_rewards(*counts[:2]) if not math.isnan(ratio)]
    estimate = math.fsum(ratios) / len(ratios) if ratios else math.nan
    matched, confidence = sum(counts[0]) / len(counts[0]), 1 - (1 - CONFIDENCE) / segments
    if reward_range.is_open:
        # Over all passes: the number of matches, and the sums of their rewards, squares and cubes. Moments
        # are means over all matches; but passes share rows, so the sample is only as large as one pass's.
        n, y, yy, yyy = (math.fsum(values) for values in counts[:4])
        if matched < 2:
            return ReplaySegment(estimate, math.nan, math.nan, matched)
        mean = y / n
        squares = max(yy - mean * y, 0.0)
        cubes = yyy - 3 * mean * yy + 2 * mean**2 * y
        error = math.sqrt(squares / n / (matched - 1))
        bounds = correct_skewness(estimate, error, squares / n, cubes / n, matched, confidence)
    else:
        low, high = wilson(reward_range.to_unit(estimate), matched, confidence)
        bounds = reward_range.from_unit(low), reward_range.from_unit(high)
    return ReplaySegment(estimate, *bounds, matched)


def _merge_segments(mine: Mapping[str, PerPass], theirs: Mapping[str, PerPass]) -> dict[str, PerPass]:
    """Return the sums of each segment over two disjoint sets of rows; a segment may be in only one."""
    merged = {**theirs, **mine}
    for name in set(mine) & set(theirs):
        merged[name] = _merge_sums(mine[name], theirs[name])
    return merged


def _merge_sums(mine: PerPass, theirs: PerPass) -> PerPass:
    """Return the sums of the same passes over two disjoint sets of rows."""
    return tuple(tuple(map(add, *pair)) for pair in zip(mine, theirs, strict=True))


# ---- Replay: the rejection method for logs of uniform choice (Li, Chu, Langford, Wang 2011)


def replay(
    policy: Policy,
    log: Any,
    *,
    passes: int = 10,
    seed: int = 0,
    window: int = 1_000_000,
    tolerance: float = 1e-6,
    assume_uniform: bool = False,
    missing_reward: float | None = 0.0,
    by: str | None = None,
    progress: Callable[[int], None] | None = None,
    **reading: Unpack[ReadOptions],
) -> ReplayResult:
    """Estimate the mean reward of a policy from a log of uniformly chosen arms.

    The log is read row by row. If the policy chooses the logged arm, the row is
    matched and the policy learns from it; other rows are skipped. If
    the log's arms were chosen uniformly, the matched rows are distributed as if the policy
    itself had decided in them, so their mean reward is unbiased.

    The first pass reads the rows in the log's order and makes the same random draws as a
    :class:`~tacit.Learner` with seed ``tacit.core.seeds.stream("replay", seed, 0)``. Pass p draws
    from ``stream("replay", seed, p)``, starts with an untrained policy, and shuffles the rows of each
    window. The log is read once; memory holds one window (some 100 bytes a row, and 8 bytes for
    each number of a context and for each arm of each distinct list of arms on offer), its keys, and
    one state per pass, regardless of the length of the log.

    Parameters
    ----------
    policy : Policy
        Over the log's arms by their names (see :func:`arms_of`), or over n numbered arms
        if the log's are called 0, 1, …, n − 1. Each key of a placement learns separately;
        state that all keys share is shared across placements.
    log : LogReader, path, or table in memory
        A click log, as for :func:`tacit.read_log`.
    passes : int, default 10
        Number of replays of the log.
    seed : int, default 0
        Seed of all random draws.
    window : int, default 1,000,000
        Number of rows that are shuffled together; at least 1.
    tolerance : float, default 1e-6
        Largest deviation of a propensity from 1/(number of arms on offer).
    assume_uniform : bool, default False
        Whether to treat rows without a propensity as rows of uniform choice; else they are left out and
        counted among the rejected rows, if other rows have one and the log is not read strictly.
    missing_reward : float or None, default 0
        The reward of a row without feedback, in the range of rewards. None leaves such rows out,
        which is right only if feedback is lost independently of its value.
    by : str, optional
        A column of the log, of the schema or not: the result then also has an estimate for each of its
        values (``segments``), from the policy that learns from all rows.
    progress : function, optional
        Called with the number of rows replayed so far in all passes, in place of a progress bar.
    **reading
        How a log that is not open yet is read: options of :func:`tacit.read_log`, with the policy's
        ``reward_range``. A table in memory is read strictly, unless ``strict=False``.

    Returns
    -------
    ReplayResult

    Raises
    ------
    UnfitLog
        If a propensity is not that of uniform choice, or missing in all rows or under ``strict``.
    UnknownName
        If the log has an arm that the policy does not have.
    LogError
        If the log cannot be read, or has no context that fits a policy that needs one.
    InvalidValue
        If an option is wrong.

    References
    ----------
    Li, Chu, Langford, Wang (2011), "Unbiased offline evaluation of contextual-bandit-based
    news article recommendation algorithms", algorithm 2; Wilson (1927), "Probable inference,
    the law of succession, and statistical inference".

    Examples
    --------
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> import tacit
    >>> arms, rng = ["film", "holiday"], np.random.default_rng(1)
    >>> shown = rng.integers(2, size=2000)
    >>> log = pa.table(
    ...     {
    ...         "timestamp": ["2017-07-04T12:00:00Z"] * 2000,
    ...         "decision_id": [str(row) for row in range(2000)],
    ...         "placement": ["home"] * 2000,
    ...         "key": ["independence day"] * 2000,
    ...         "arms": [arms] * 2000,
    ...         "arm": [arms[arm] for arm in shown],
    ...         "propensity": [0.5] * 2000,
    ...         "reward": (rng.random(2000) < [[0.1], [0.4]])[shown, np.arange(2000)].astype(float),
    ...     }
    ... )
    >>> result = replay(tacit.Thompson(arms=arms), log)
    >>> result.low < 0.4 < result.high
    True
    """
    config = ReplayConfig(
        policy=policy,
        passes=passes,
        seed=seed,
        window=window,
        tolerance=tolerance,
        assume_uniform=assume_uniform,
        missing_reward=missing_reward,
        by=by,
    )
    reader = config.open_log(log, **reading)
    warn_unread_context(reader, policy)
    with report_progress("replaying", progress) as report:
        counts = replay_passes(config, reader, range(config.passes), progress=report)
    result = counts.result(policy.label, by, policy.reward_range)
    one_sided = warn_one_sided(result, policy.reward_range) if missing_reward is None else ()
    heavy_reward_notes = result.notes if are_heavy(counts.shares) else ()
    result = replace(result, notes=(*result.notes, *warn_rejected(reader, log)))
    for warning in (*counts.warnings, *heavy_reward_notes, *one_sided):
        warnings.warn(warning, AssumptionWarning, stacklevel=2)
    return result


def replay_passes(
    config: ReplayConfig, log: Any, numbers: Sequence[int], *, progress: Callable[[int], None] | None = None
) -> ReplayCounts:
    """Replay a log once for each pass number; return the passes' counts of matches and rewards.

    All passes share one reading of the log.

    Parameters
    ----------
    config : ReplayConfig
    log : LogReader, KeyShard, or any argument of :func:`tacit.read_log`
        Each of several shards has its own random streams.
    numbers : sequence of int
    progress : function, optional
        As for :func:`replay`.
    """
    shard = log.shard if isinstance(log, KeyShard) and log.shards > 1 else None
    reader = WindowReader(config)
    passes = [Pass(config, number, shard) for number in numbers]
    done = 0
    for window in reader.read(log):
        for replay_pass in passes:
            for rows in replay_pass.replay(window, len(reader.lanes), len(reader.segments)):
                done += rows
                if progress is not None:
                    progress(done)
    return ReplayCounts(
        tuple(replay_pass.match_count for replay_pass in passes),
        tuple(replay_pass.clicks for replay_pass in passes),
        reader.rows,
        reader.unanswered,
        reader.reward,
        _list_contradictions(config.policy, passes[0].state, reader) if 0 in numbers else (),
        _list_sums([replay_pass.tally.sum(axis=0) for replay_pass in passes]),
        tuple(tuple(replay_pass.largest.tolist()) for replay_pass in passes),
        {
            name: _list_sums([replay_pass.tally[place] for replay_pass in passes])
            for name, place in reader.segments.items()
        },
    )


def _list_sums(passes: Sequence[Floats]) -> PerPass:
    """Return, for each sum, a tuple of its values per pass; ``passes`` has an array of sums per pass."""
    return tuple(map(tuple, np.transpose(passes).tolist()))


def _list_contradictions(policy: Policy, state: Any, reader: WindowReader) -> tuple[str, ...]:
    """Return warnings from the policy's diagnostics, and one if the log contradicts uniform choice."""
    diagnostics = getattr(policy, "diagnostics", None)
    policy_warnings = (
        []
        if diagnostics is None
        else [f"{policy.label}: {warning}" for warning in diagnostics(state).warnings]
    )
    doubt = describe_propensity_doubt(list_arm_names(policy), reader.tally) if reader.tally.any() else ""
    return (*policy_warnings, *([doubt] if doubt else []))
