"""Replay: the rejection method for logs of uniform choice (Li, Chu, Langford, Wang 2011).

Counts of passes and the estimate that follows from them; then the passes, of which parts of a log may each
do some.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import add
from types import MappingProxyType
from typing import Any, NamedTuple, Unpack

from tacit.core.parallel import counted
from tacit.core.text import Column, Tabulated, laid_out
from tacit.errors import AssumptionWarning
from tacit.evaluate.intervals import CONFIDENCE, wilson
from tacit.evaluate.results import doubted_propensities
from tacit.evaluate.rows import names_of, one_sided
from tacit.evaluate.windows import Pass, Replaying, WindowReader
from tacit.logs.parts import KeyShard
from tacit.logs.sources import Reading, say_rejected, say_unread
from tacit.policies.base import Policy

# ---- What replay came to: counts of passes, and the estimate that follows

NO_OVERLAP = "no overlap: no row shows what the policy chose"
WHOLE = "estimate", "low", "high", "logged", "rows", "unanswered"
SEGMENT_COLUMNS = (
    Column("mean reward", "{estimate:.5f}", "no overlap"),
    Column("95 % interval", "[{low:.5f}, {high:.5f}]"),
    Column("matched a pass", "{matched:,.1f}"),
)
PerPass = tuple[tuple[float, ...], tuple[float, ...]]
"""How many rows matched and the sum of their rewards, per pass."""


class ReplaySegment(NamedTuple):
    """What a policy would have earned in one segment, having learned from all.

    Attributes
    ----------
    estimate, low, high : float
        As of :class:`ReplayResult`; all segments' intervals hold at once with 95 % (Bonferroni).
    matched : float
        Rows that counted, on average over the passes.
    """

    estimate: float
    low: float
    high: float
    matched: float


@dataclass(frozen=True, repr=False)
class ReplayResult(Tabulated):
    """What a policy would have earned.

    Attributes
    ----------
    policy : str
        The policy and its hyperparameters.
    estimate : float
        Mean over the passes of the mean reward of a pass's matched rows; NaN without a match, which
        is printed as "no overlap".
    low, high : float
        95 % interval for it: the score interval of Wilson (1927) for as many rows as a pass
        matched on average. Passes share their rows, so more passes never narrow it; a reward
        in [0, 1] varies at most as a click of the same mean does, so it is conservative for
        fractions. Rewards of a policy that learns depend on one another, but the deviations
        from the expected reward of what was shown are martingale differences, so the interval
        covers, at the given rate for many matches, the expected reward of the arms that were
        shown. How much the policy's own luck in learning matters is seen from ``estimates``.
    logged : float
        Mean reward of the log itself; NaN if it is empty.
    rows : int
        Rows of the log that were replayed in each pass.
    unanswered : int
        Rows to which no feedback came.
    matched : tuple of int
        Rows that counted, per pass: those in which the policy chose the logged arm.
    clicks : tuple of float
        Sum of their rewards, per pass.
    estimates : tuple of float
        Mean of their rewards, per pass; NaN without a match.
    by : str or None
        The column that tells segments apart, if one was asked for.
    segments : dict
        From its values to a :class:`ReplaySegment`, the largest first.
    notes : tuple of str
        What was taken for granted of the log, as of :class:`~tacit.evaluate.OffPolicyResult`.
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
        """Return one flat dict, of the passes their means; with segments, one for each besides."""
        passes = len(self.matched)
        mean = sum(self.matched) / passes
        if self.by is not None:
            whole = ReplaySegment(self.estimate, self.low, self.high, mean)
            return [
                {"policy": self.policy, "segment": name, **part._asdict()}
                for name, part in [(None, whole), *self.segments.items()]
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
        """Return the result as text."""
        passes = len(self.matched)
        matched, clicks = sum(self.matched) / passes, sum(self.clicks) / passes
        share = matched / self.rows if self.rows else 0.0
        return "\n".join(
            [
                f"{self.policy}, replayed on {self.rows:,} logged rows, passes: {passes}",
                *self._earned(),
                f"  the log's own    {self.logged:.5f}",
                f"  matched a pass   {matched:,.1f} rows ({share:.1%}) with {clicks:,.1f} clicks",
                f"  without feedback {self.unanswered:,} rows",
                *(f"  {note}" for note in self.notes),
                *(self._segment_lines() if self.by is not None else ()),
            ]
        )

    def _earned(self) -> list[str]:
        known = [estimate for estimate in self.estimates if estimate == estimate]
        if not known:
            return [f"  mean reward      {NO_OVERLAP}"]
        return [
            f"  mean reward      {self.estimate:.5f}, 95 % interval {self.low:.5f} to {self.high:.5f}",
            f"  single passes    {min(known):.5f} to {max(known):.5f}",
        ]

    def _segment_lines(self) -> list[str]:
        rows = [{**part._asdict(), "segment": name or "(none)"} for name, part in self.segments.items()]
        return [
            "",
            laid_out(rows, [Column(str(self.by), "{segment}"), *SEGMENT_COLUMNS]),
            f"intervals hold in all {len(rows)} segments at once with 95 % (Bonferroni)",
        ]


class ReplayCounts(NamedTuple):
    """What passes over a log, or over a shard of one, came to.

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
        What the record of the first pass says against the policy's assumptions.
    segments : mapping of str to (tuple of float, tuple of float)
        Of each segment, how many rows matched and the sum of their rewards, per pass.
    """

    matched: tuple[int, ...]
    clicks: tuple[float, ...]
    rows: int
    unanswered: int
    reward: float
    warnings: tuple[str, ...]
    segments: Mapping[str, PerPass] = MappingProxyType({})

    def beside(self, other: ReplayCounts) -> ReplayCounts:
        """Return the result of these passes and of others over the same rows."""
        return self._replace(
            matched=self.matched + other.matched,
            clicks=self.clicks + other.clicks,
            segments={
                name: (mine[0] + other.segments[name][0], mine[1] + other.segments[name][1])
                for name, mine in self.segments.items()
            },
        )

    def merge(self, other: ReplayCounts) -> ReplayCounts:
        """Return the result of the same passes over these rows and over others."""
        return ReplayCounts(
            tuple(a + b for a, b in zip(self.matched, other.matched, strict=True)),
            tuple(a + b for a, b in zip(self.clicks, other.clicks, strict=True)),
            self.rows + other.rows,
            self.unanswered + other.unanswered,
            self.reward + other.reward,
            self.warnings + other.warnings,
            _added(self.segments, other.segments),
        )

    def result(self, policy: str, by: str | None = None) -> ReplayResult:
        """Return what follows for a policy of this name, by segments of a column if there are."""
        estimates = tuple(_ratios(self.matched, self.clicks))
        estimate, low, high, _ = _segment((self.matched, self.clicks))
        many = len(self.segments)
        parts = {name: _segment(counts, many) for name, counts in self.segments.items()}
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
            segments=dict(sorted(parts.items(), key=lambda item: -item[1].matched)),
        )


def _ratios(matched: Sequence[float], clicks: Sequence[float]) -> list[float]:
    return [c / rows if rows else math.nan for c, rows in zip(clicks, matched, strict=True)]


def _segment(counts: PerPass, segments: int = 1) -> ReplaySegment:
    known = [ratio for ratio in _ratios(*counts) if not math.isnan(ratio)]
    estimate = math.fsum(known) / len(known) if known else math.nan
    matched = sum(counts[0]) / len(counts[0])
    return ReplaySegment(estimate, *wilson(estimate, matched, 1 - (1 - CONFIDENCE) / segments), matched)


def _added(mine: Mapping[str, PerPass], theirs: Mapping[str, PerPass]) -> dict[str, PerPass]:
    found = {**theirs, **mine}
    for name in set(mine) & set(theirs):
        found[name] = (
            tuple(map(add, mine[name][0], theirs[name][0])),
            tuple(map(add, mine[name][1], theirs[name][1])),
        )
    return found


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
    **reading: Unpack[Reading],
) -> ReplayResult:
    """Estimate what a policy would have earned, from a log of uniformly chosen arms.

    The log is read row by row. Where the policy chooses the arm that was logged, the row
    counts and the policy learns from it; any other row leaves no trace in what it learns. Where
    the log's arms were chosen uniformly, the rows that count are distributed as if the policy
    itself had decided in them, so their mean reward is unbiased.

    The first pass takes the rows in the log's order and makes the very draws of a
    :class:`~tacit.Learner` with seed ``tacit.core.seeds.stream("replay", seed, 0)``. Pass p draws
    from ``stream("replay", seed, p)``, learns from nothing, and shuffles the rows of each
    window. The log is read once; memory holds one window (some 100 bytes a row, and 8 bytes for
    each number of a context and for each arm of each distinct list of arms on offer), its keys, and
    one state per pass, however long the log is.

    Parameters
    ----------
    policy : Policy
        Over the log's arms by their names (see :func:`arms_of`), or over n numbered arms
        where the log's are called 0, 1, …, n − 1. A key learns on its own in each placement;
        what all keys share, they share across placements.
    log : LogReader, path, or table in memory
        A click log; what :func:`tacit.read_log` takes.
    passes : int, default 10
        How often to replay it.
    seed : int, default 0
        Where every random draw comes from.
    window : int, default 1,000,000
        How many rows are shuffled among themselves; at least 1.
    tolerance : float, default 1e-6
        How far a propensity may be from 1/(number of arms on offer).
    assume_uniform : bool, default False
        Whether to take rows without a propensity for rows of uniform choice.
    missing_reward : float or None, default 0
        The reward of a row to which no feedback came, in [0, 1]. None leaves such rows out,
        which is right only where feedback is lost regardless of what it would have been.
    by : str, optional
        A column of the log, of the schema or not: the result then tells of each of its values
        besides (``segments``), having learned from all.
    progress : function, optional
        In place of a bar on a terminal or in a notebook, called with the number of rows replayed so
        far, all passes together.
    **reading
        How a log that is not open yet is read: ``columns``, ``constants``, ``arms``, ``time_unit``,
        ``strict`` and ``format`` of :func:`tacit.read_log`. What is in memory is read strictly,
        unless ``strict=False``.

    Returns
    -------
    ReplayResult

    Raises
    ------
    UnfitLog
        If a propensity says that the choice was not uniform, or says nothing.
    UnknownName
        If the log has an arm that the policy does not know.
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
    replaying = Replaying(
        policy=policy,
        passes=passes,
        seed=seed,
        window=window,
        tolerance=tolerance,
        assume_uniform=assume_uniform,
        missing_reward=missing_reward,
        by=by,
    )
    reader = replaying.opened(log, **reading)
    say_unread(reader, policy)
    with counted("replaying", progress) as report:
        found = played(replaying, reader, range(replaying.passes), progress=report)
    result = replace(found.result(policy.label, by), notes=say_rejected(reader, log))
    for warning in (*found.warnings, *(one_sided(result) if missing_reward is None else ())):
        warnings.warn(warning, AssumptionWarning, stacklevel=2)
    return result


def played(
    replaying: Replaying, log: Any, numbers: Sequence[int], *, progress: Callable[[int], None] | None = None
) -> ReplayCounts:
    """Return what the passes of these numbers come to.

    Parameters
    ----------
    replaying : Replaying
    log : LogReader, KeyShard, or what :func:`tacit.read_log` takes
        A shard of several makes draws of its own.
    numbers : sequence of int
    progress : function, optional
        As for :func:`replay`.
    """
    shard = log.shard if isinstance(log, KeyShard) and log.shards > 1 else None
    reader = WindowReader(replaying)
    passes = [Pass(replaying, number, shard) for number in numbers]
    done = 0
    for window in reader.read(log):
        for each in passes:
            for rows in each.play(window, len(reader.lanes), len(reader.segments)):
                done += rows
                if progress is not None:
                    progress(done)
    return ReplayCounts(
        tuple(each.matched for each in passes),
        tuple(each.clicks for each in passes),
        reader.rows,
        reader.unanswered,
        reader.reward,
        _contradictions(replaying.policy, passes[0].state, reader) if 0 in numbers else (),
        {
            name: (
                tuple(each.tally[place, 0].item() for each in passes),
                tuple(each.tally[place, 1].item() for each in passes),
            )
            for name, place in reader.segments.items()
        },
    )


def _contradictions(policy: Policy, state: Any, reader: WindowReader) -> tuple[str, ...]:
    """Return what a pass's own record says against the policy, and the log against uniform choice."""
    diagnostics = getattr(policy, "diagnostics", None)
    found = [] if diagnostics is None else [f"{policy.label}: {said}" for said in diagnostics(state).warnings]
    doubt = doubted_propensities(names_of(policy), reader.tally) if reader.tally.any() else ""
    return (*found, *([doubt] if doubt else []))
