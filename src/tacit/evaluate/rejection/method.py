"""Replay: the rejection method for logs of uniform choice (Li, Chu, Langford, Wang 2011)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Unpack

from tacit.core import checks
from tacit.errors import AssumptionWarning
from tacit.evaluate.rejection.passes import Pass
from tacit.evaluate.rejection.result import ReplayCounts, ReplayResult
from tacit.evaluate.rejection.rules import Rules
from tacit.evaluate.rejection.windows import WindowReader
from tacit.logs.parts import KeyShard
from tacit.logs.sources import Reading, opened, say_rejected
from tacit.policies.base import Policy


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
        Called with the number of rows replayed so far, all passes together.
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
    passes = checks.integer("passes", passes, 1)
    rules = Rules(policy, seed, window, tolerance, assume_uniform, missing_reward, by)
    reader = opened(log, **reading)
    reader = reader if by is None else reader.by(by)
    found = played(rules, reader, range(passes), progress=progress)
    say_rejected(reader, log)
    for warning in found.warnings:
        warnings.warn(warning, AssumptionWarning, stacklevel=2)
    return found.result(policy.label, by)


def played(
    rules: Rules, log: Any, numbers: Sequence[int], *, progress: Callable[[int], None] | None = None
) -> ReplayCounts:
    """Return what the passes of these numbers come to.

    Parameters
    ----------
    rules : Rules
    log : LogReader, KeyShard, or what :func:`tacit.read_log` takes
        A shard of several makes draws of its own.
    numbers : sequence of int
    progress : function, optional
        As for :func:`replay`.
    """
    shard = log.shard if isinstance(log, KeyShard) and log.shards > 1 else None
    reader = WindowReader(rules)
    passes = [Pass(rules, number, shard) for number in numbers]
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
        _contradictions(rules.policy, passes[0].state) if 0 in numbers else (),
        {
            name: (
                tuple(each.tally[place, 0].item() for each in passes),
                tuple(each.tally[place, 1].item() for each in passes),
            )
            for name, place in reader.segments.items()
        },
    )


def _contradictions(policy: Policy, state: Any) -> tuple[str, ...]:
    """Return what a pass's own record says against the policy's assumptions."""
    diagnostics = getattr(policy, "diagnostics", None)
    found = () if diagnostics is None else diagnostics(state).warnings
    return tuple(f"{policy.label}: {warning}" for warning in found)
