"""Offline evaluation of a log in parts, whose sums are merged.

Both functions spread their parts over threads, or within :func:`tacit.cluster.on_ray` over a
cluster. The cuts depend on the log alone, so results do not depend on the number of workers.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import accumulate
from pathlib import Path
from typing import Any, Unpack

from tacit.core import checks
from tacit.core.parallel import Report, run_tasks
from tacit.errors import AssumptionWarning, InvalidValue
from tacit.evaluate.conclusions import compute_result
from tacit.evaluate.estimate_sums import sum_log
from tacit.evaluate.estimators import Estimator
from tacit.evaluate.evaluation import warn_of_doubts, warn_of_lists
from tacit.evaluate.options import OffPolicyEvaluation, OffPolicyOptions, ReplayOptions
from tacit.evaluate.rejection import ReplayCounts, ReplayResult, replay_passes
from tacit.evaluate.results import OffPolicyResult
from tacit.evaluate.rows import collect_arms, sort_arms
from tacit.evaluate.targets import Target
from tacit.evaluate.windows import ReplayConfig
from tacit.logs.parts import KeyShard, LogPart, split_log
from tacit.logs.reader import LogReader
from tacit.logs.rows import LogReport
from tacit.logs.sources import read_log, warn_rejected
from tacit.policies.base import Policy


def off_policy(
    target: Target | Policy,
    log: Any,
    estimators: Sequence[Estimator] | None = None,
    *,
    shards: int = 1,
    workers: int | None = None,
    **options: Unpack[OffPolicyOptions],
) -> OffPolicyResult:
    """Estimate the value of a target policy from a log that is read in parts.

    For a fixed target the result equals :func:`tacit.evaluate.off_policy`'s, up to rounding,
    because sums are added in another order. Parts are ranges of about four million rows of Parquet,
    or whole files of other formats and of logs of lists. A worker holds one batch of rows at a time
    (of Parquet also the columns read of a row group), the names in the log, 24 KiB of sums per
    estimator, and the reward model, if there is one.

    A target that learns reads each key's rows in order; ``shards`` distributes the keys. Each
    shard has a separate learner. For a policy that learns each key separately, values, standard
    errors, normal and anytime intervals are the same as in one process; rows are assigned to the
    groups of the bootstrap, and to the folds of means, per shard, which gives other draws of the
    same distribution. If a policy shares parameters between keys (such as BWC its classifier), each
    shard learns its own: then the estimate is that of separate learners.

    Parameters
    ----------
    target : Target or Policy
        The probabilities of a target other than a policy must depend on each row alone.
    log : LogReader, path or sequence of paths
        As for :func:`tacit.read_log`.
    estimators : sequence of Estimator, optional
    shards : int, default 1
        Number of shards of keys for a target that learns; each reads the whole log.
    workers : int, optional
        Threads; by default one per core. A cluster knows its own number.
    **options
        As for :func:`tacit.evaluate.off_policy`: ``cluster``, ``confidence``, ``weight_bound``, ``logging``,
        ``missing_reward``, ``seed``, ``propensities``, ``by``.

    Raises
    ------
    UnfitLog, LogError, InvalidValue
        As :func:`tacit.evaluate.off_policy`; also if a list is split over two files.

    Examples
    --------
    >>> from tacit.cluster import off_policy, on_ray
    >>> from tacit.evaluate import Uniform
    >>> with on_ray():  # doctest: +SKIP
    ...     result = off_policy(Uniform(), "s3://bucket/clicks/")
    """
    question = OffPolicyEvaluation(target=target, estimators=estimators, **options)
    reader = question.open_log(_open_reader(log))
    shards = checks.integer("shards", shards, 1, 2**20)
    if shards > 1 and not question.is_sequential:
        raise InvalidValue("shards", shards, "leave it out: only targets that learn need shards")
    parts: list[Any] = (
        _split_shards(reader, shards)
        if question.is_sequential
        else split_log(reader, whole_files=question.has_slate_estimator)
    )
    first_rows = [0] * len(parts)
    if question.models:
        model_counts = _evaluate_parts("counting", partial(_count_rows, question), parts, workers, reader)
        question = question.with_fitted_models(
            [
                reduce(lambda before, after: before.merge(after), model)
                for model in zip(*model_counts, strict=True)
            ]
        )
        first_rows = [0, *accumulate(part[0].rows for part in model_counts[:-1])]
    sums = _evaluate_parts(
        "weighting", partial(sum_log, question), parts, workers, reader, [(first,) for first in first_rows]
    )
    warn_of_lists(question, reader.report)
    notes = warn_rejected(reader, reader)
    log_sums = reduce(lambda before, after: before.merge(after, question.in_turn), sums)
    result = compute_result(question, log_sums)
    return warn_of_doubts(replace(result, notes=(*result.notes, *notes)))


def replay(
    policy: Policy, log: Any, *, shards: int = 1, workers: int | None = None, **options: Unpack[ReplayOptions]
) -> ReplayResult:
    """Replay a log of uniformly chosen arms, with passes in parallel.

    With one shard the result is that of :func:`tacit.replay`, bit for bit: each pass has its own
    random generators. With more shards, each pass has one learner per shard, which sees the keys of
    its shard alone, and their counts are added. For a policy that learns each key separately, the
    estimand is the same, with other draws; for a policy that shares parameters between keys, it is the
    value of separate learners, which share only within a shard.

    Parameters
    ----------
    policy : Policy
    log : LogReader, path or sequence of paths
        As for :func:`tacit.read_log`.
    shards : int, default 1
        Number of shards of keys. Every pass of every shard reads the whole log.
    workers : int, optional
        Threads; by default one per core. A cluster knows its own number.
    **options
        As for :func:`tacit.replay`: ``passes``, ``seed``, ``window``, ``tolerance``, ``assume_uniform``,
        ``missing_reward``, ``by``. A worker holds one window.

    Raises
    ------
    UnfitLog, UnknownName, LogError, InvalidValue
        As :func:`tacit.replay`.

    Examples
    --------
    >>> import tacit
    >>> from tacit.cluster import on_ray, replay
    >>> with on_ray():  # doctest: +SKIP
    ...     result = replay(tacit.Thompson(arms=["film", "holiday"]), "clicks/*.parquet")
    """
    config = ReplayConfig(policy=policy, **options)
    reader = config.open_log(_open_reader(log))
    parts = _split_shards(reader, checks.integer("shards", shards, 1, 2**20))
    tasks = [(part, number) for number in range(config.passes) for part in parts]
    counts = _evaluate_parts(
        "replaying",
        partial(replay_passes, config),
        [part for part, _ in tasks],
        workers,
        reader,
        [([number],) for _, number in tasks],
    )
    # The parts of a pass follow one another.
    pass_counts = [
        reduce(ReplayCounts.merge, counts[start : start + len(parts)])
        for start in range(0, len(counts), len(parts))
    ]
    all_counts: ReplayCounts = reduce(ReplayCounts.add_passes, pass_counts)
    notes = warn_rejected(reader, reader)
    for warning in all_counts.warnings:
        warnings.warn(warning, AssumptionWarning, stacklevel=2)
    result = all_counts.result(policy.label, config.by, policy.reward_range)
    return replace(result, notes=(*result.notes, *notes))


def arms_of(log: Any, workers: int | None = None) -> tuple[str, ...]:
    """Return the sorted distinct arms that a log ever offers, like :func:`tacit.evaluate.arms_of`.

    The log is read in parts, in parallel.

    Parameters
    ----------
    log : LogReader, path or sequence of paths
    workers : int, optional
    """
    reader = _open_reader(log)
    arm_sets = _evaluate_parts("reading the arms", _collect_offered, split_log(reader), workers, reader)
    return sort_arms(set().union(*arm_sets))


def _open_reader(log: Any) -> LogReader:
    """Return a LogReader for files, or the given one; raise InvalidValue for logs in memory."""
    if isinstance(log, LogReader):
        return log
    if isinstance(log, (str, Path)) or (
        isinstance(log, Sequence) and all(isinstance(place, (str, Path)) for place in log)
    ):
        return read_log(log)
    raise InvalidValue("log", log, "give files, or a LogReader; other logs are in memory already")


def _split_shards(reader: LogReader, shards: int) -> list[Any]:
    """Return one KeyShard per shard, each with a copy of the reader, or the reader alone for one shard.

    Copies are needed because a reader holds a report.
    """
    if shards == 1:
        return [reader]
    return [KeyShard(copy.copy(reader), shard, shards) for shard in range(shards)]


def _evaluate_parts(
    label: str,
    evaluate: Any,
    parts: Sequence[Any],
    workers: int | None,
    reader: LogReader,
    extra_arguments: Sequence[tuple[Any, ...]] | None = None,
) -> list[Any]:
    """Return the result of ``evaluate`` for each part, computed in parallel; replace the reader's report.

    ``evaluate`` is called with a part and its extra arguments; ``label`` is shown with the progress. The new
    report is merged from the parts of a log; for shards, which all read the same rows, it is the first.
    Raises TooManyRejected if more rows are rejected than the reader allows.
    """
    tasks = [(part, *extra) for part, extra in zip(parts, extra_arguments or [()] * len(parts), strict=True)]
    amounts = [float(getattr(part, "rows", 0)) for part in parts]
    results = run_tasks(partial(_evaluate_part, evaluate), tasks, amounts, label=label, workers=workers)
    reports = [report for _, report in results]
    # All shards and passes read the same rows, so one report is enough.
    is_split = isinstance(parts[0], LogPart) if parts else False
    reader.report = reduce(LogReport.merge, reports if is_split else reports[:1], LogReport())
    reader.report.check_limit(reader.most_rejected)
    return [value for value, _ in results]


def _evaluate_part(evaluate: Any, part: Any, *arguments_and_report: Any) -> tuple[Any, LogReport]:
    """Return ``evaluate(part, *arguments)`` for a part of a log, and the part's log report.

    The last of ``arguments_and_report`` is not passed to ``evaluate``: it is a function that is called with
    the number of rows read since its last call.
    """
    *arguments, report = arguments_and_report
    rows_done = 0

    def report_rows(rows: int) -> None:
        """Report the rows read since the last call; ``rows`` is their number so far."""
        nonlocal rows_done
        report(rows - rows_done)
        rows_done = rows

    result = evaluate(part, *arguments, progress=report_rows)
    log = part.log if isinstance(part, (LogPart, KeyShard)) else part
    return result, log.report


def _count_rows(question: OffPolicyEvaluation, part: Any, *, progress: Report) -> list[Any]:
    """Return, for each model that the evaluation fits to the log, its counts over a part of the log."""
    return question.count_log(part)


def _collect_offered(part: Any, *, progress: Report) -> set[str]:
    """Return the set of arms that a part of the log offers."""
    return collect_arms(part)
