"""Offline evaluation of a log in parts, whose sums are merged.

Both functions spread their parts over threads, or within :func:`tacit.cluster.on_ray` over a
cluster. The cuts depend on the log alone, so results do not depend on the number of workers.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from functools import partial, reduce
from itertools import accumulate
from pathlib import Path
from typing import Any, Unpack

from tacit.core import checks
from tacit.core.parallel import Report, spread
from tacit.errors import AssumptionWarning, InvalidValue
from tacit.evaluate.estimators import Estimator
from tacit.evaluate.evaluation import Weighing, warned
from tacit.evaluate.options import OffPolicyOptions, ReplayOptions
from tacit.evaluate.rejection import ReplayCounts, ReplayResult, played
from tacit.evaluate.results import OffPolicyResult
from tacit.evaluate.rows import in_order, offered_in
from tacit.evaluate.targets import Target
from tacit.evaluate.windows import Replaying
from tacit.logs.parts import KeyShard, LogPart, parts_of
from tacit.logs.reader import LogReader
from tacit.logs.rows import LogReport
from tacit.logs.sources import read_log, say_rejected
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

    For a fixed target the result is that of :func:`tacit.evaluate.off_policy`, up to rounding,
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
        As there; also if a list is split over two files.

    Examples
    --------
    >>> from tacit.cluster import off_policy, on_ray
    >>> from tacit.evaluate import Uniform
    >>> with on_ray():  # doctest: +SKIP
    ...     result = off_policy(Uniform(), "s3://bucket/clicks/")
    """
    weighing = Weighing(target=target, estimators=estimators, **options)
    reader = weighing.opened(_reader(log))
    shards = checks.integer("shards", shards, 1, 2**20)
    if shards > 1 and not weighing.sequential:
        raise InvalidValue("shards", shards, "leave it out: only targets that learn need shards")
    parts: list[Any] = (
        _shards(reader, shards) if weighing.sequential else parts_of(reader, whole=weighing.weighs_slates)
    )
    first = [0] * len(parts)
    if weighing.models:
        counts = _read("counting", partial(_counts, weighing), parts, workers, reader)
        weighing = weighing.fitted([reduce(_merged, model) for model in zip(*counts, strict=True)])
        first = [0, *accumulate(part[0].rows for part in counts[:-1])]
    found = _read("weighting", weighing.sums_of, parts, workers, reader, [(at,) for at in first])
    weighing.doubt_log(reader.report)
    say_rejected(reader, reader)
    return warned(weighing.concluded(reduce(weighing.merged, found)))


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
        As there.

    Examples
    --------
    >>> import tacit
    >>> from tacit.cluster import on_ray, replay
    >>> with on_ray():  # doctest: +SKIP
    ...     result = replay(tacit.Thompson(arms=["film", "holiday"]), "clicks/*.parquet")
    """
    replaying = Replaying(policy=policy, **options)
    reader = replaying.opened(_reader(log))
    parts = _shards(reader, checks.integer("shards", shards, 1, 2**20))
    tasks = [(part, number) for number in range(replaying.passes) for part in parts]
    found = _read(
        "replaying",
        partial(played, replaying),
        [part for part, _ in tasks],
        workers,
        reader,
        [([number],) for _, number in tasks],
    )
    whole = [
        reduce(ReplayCounts.merge, found[start : start + len(parts)])
        for start in range(0, len(found), len(parts))
    ]
    every: ReplayCounts = reduce(ReplayCounts.beside, whole)
    say_rejected(reader, reader)
    for warning in every.warnings:
        warnings.warn(warning, AssumptionWarning, stacklevel=2)
    return every.result(policy.label, replaying.by)


def arms_of(log: Any, workers: int | None = None) -> tuple[str, ...]:
    """Return the distinct arms that a log ever offers, like :func:`tacit.evaluate.arms_of`.

    Parameters
    ----------
    log : LogReader, path or sequence of paths
    workers : int, optional
    """
    reader = _reader(log)
    found = _read("reading the arms", _offered, parts_of(reader), workers, reader)
    return in_order(set().union(*found))


def _reader(log: Any) -> LogReader:
    if isinstance(log, LogReader):
        return log
    if isinstance(log, (str, Path)) or (
        isinstance(log, Sequence) and all(isinstance(place, (str, Path)) for place in log)
    ):
        return read_log(log)
    raise InvalidValue("log", log, "give files, or a LogReader; other logs are in memory already")


def _shards(reader: LogReader, shards: int) -> list[Any]:
    """Return the shards, each with a copy of the reader, because readers hold a report."""
    if shards == 1:
        return [reader]
    return [KeyShard(copy.copy(reader), shard, shards) for shard in range(shards)]


def _read(
    label: str,
    reading: Any,
    parts: Sequence[Any],
    workers: int | None,
    reader: LogReader,
    more: Sequence[tuple[Any, ...]] | None = None,
) -> list[Any]:
    """Return the result of ``evaluate`` for each part; merge the parts' reports into the reader's."""
    tasks = [(part, *rest) for part, rest in zip(parts, more or [()] * len(parts), strict=True)]
    amounts = [float(getattr(part, "rows", 0)) for part in parts]
    found = spread(partial(_reported, reading), tasks, amounts, label=label, workers=workers)
    reports = [report for _, report in found]
    # All shards and passes read the same rows, so one report is enough.
    cut = isinstance(parts[0], LogPart) if parts else False
    reader.report = reduce(LogReport.merge, reports if cut else reports[:1], LogReport())
    return [value for value, _ in found]


def _reported(reading: Any, part: Any, *rest: Any) -> tuple[Any, LogReport]:
    *given, report = rest
    done = 0

    def so_far(rows: int) -> None:
        nonlocal done
        report(rows - done)
        done = rows

    found = reading(part, *given, progress=so_far)
    log = part.log if isinstance(part, (LogPart, KeyShard)) else part
    return found, log.report


def _counts(weighing: Weighing, part: Any, *, progress: Report) -> list[Any]:
    return [model.counted(part, weighing.missing_reward) for model in weighing.models]


def _merged(before: Any, after: Any) -> Any:
    return before.merge(after)


def _offered(part: Any, *, progress: Report) -> set[str]:
    return offered_in(part)
