"""What a target policy would earn, from the log of another: one pass, many estimators."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Unpack

from tacit.errors import AssumptionWarning, InvalidValue, LogError, UnfitLog
from tacit.evaluate.intervals import CONFIDENCE
from tacit.evaluate.targets.base import Target
from tacit.evaluate.weighting.estimators import Estimator
from tacit.evaluate.weighting.result import NO_OVERLAP, OffPolicyResult
from tacit.evaluate.weighting.weighing import Weighing
from tacit.logs.rows import NO_ROWS
from tacit.logs.sources import Reading, opened, say_rejected
from tacit.policies.base import Policy


def off_policy(
    target: Target | Policy,
    log: Any,
    estimators: Sequence[Estimator] | None = None,
    *,
    cluster: str | None = None,
    confidence: float = CONFIDENCE,
    weight_bound: float | None = None,
    logging: Target | None = None,
    missing_reward: float | None = 0.0,
    seed: int = 0,
    propensities: Any = "logged",
    by: str | None = None,
    progress: Callable[[int], None] | None = None,
    **reading: Unpack[Reading],
) -> OffPolicyResult:
    """Estimate what a target policy would have earned, from the log of another policy.

    The log is read once (once more where an estimator fits :class:`~tacit.evaluate.ArmMeans`)
    and in bounded memory: of the rows, sums alone are kept.

    Parameters
    ----------
    target : Target or Policy
        :class:`~tacit.evaluate.Table`, :class:`~tacit.evaluate.Uniform`,
        :class:`~tacit.evaluate.ByClassifier`, :class:`~tacit.evaluate.Probabilities`, or a policy,
        which then learns from the log as :class:`~tacit.evaluate.Learning` says, or, if it shows
        lists, :class:`~tacit.evaluate.Ranking`.
    log : LogReader, path, or table in memory
        A click log with propensities; what :func:`tacit.read_log` takes.
    estimators : sequence of Estimator, optional
        By default IPS and SNIPS; for a policy that shows lists, :class:`IndependentIPS`,
        :class:`CascadeIPS` and :class:`SlateIPS`.
    cluster : {None, "decision_id", "key", "placement", "policy"}
        What makes rows depend on one another; normal and bootstrap intervals then take whole
        clusters for independent. None: every row (or slate) is.
    confidence : float, default 0.95
        Of each interval.
    weight_bound : float, optional
        What no weight can exceed, known beforehand (largest target probability over smallest
        logged one). The anytime interval of IPS then takes its upper bound from it: lower where
        clicks are rare, higher where they are frequent. It also gives such an interval to
        :class:`DoublyRobust`, whose model must then stay within [0, 1].
    logging : Target, optional
        The policy that wrote the log, if known: an arm to which it gives probability 0 where
        the target does not is an error.
    missing_reward : float or None, default 0
        The reward of a row to which no feedback came, in [0, 1]. None leaves such rows out,
        which is right only where feedback is lost regardless of what it would have been.
    seed : int, default 0
        For the bootstrap, and for lists that are drawn.
    propensities : {"logged", "estimated"} or Target, default "logged"
        Those of the log; or, where it has none, how often it shows each arm for a key at a position
        (cross-fitted, see :class:`~tacit.evaluate.Frequencies`, in one more pass), or what a
        :class:`~tacit.evaluate.ByClassifier` of the policy that wrote the log says, such as a
        logistic regression of the arms shown on the contexts. Both assume that this policy looked
        at nothing else that moves clicks. Lists are then weighed by :class:`IndependentIPS`.
    by : str, optional
        A column of the log, of the schema or not (``"device"``): the result then tells of each of
        its values besides (``segments``). Their intervals are not corrected for how many there are.
    progress : function, optional
        Called with the number of rows read so far.
    **reading
        How a log that is not open yet is read: ``columns``, ``constants``, ``arms``, ``time_unit``,
        ``strict`` and ``format`` of :func:`tacit.read_log`. What is in memory is read strictly,
        unless ``strict=False``.

    Returns
    -------
    OffPolicyResult

    Raises
    ------
    UnfitLog
        If a row has no propensity, or could never have shown an arm that the target would show; if
        no row shows what it would.
    LogError
        If the log cannot be read.
    InvalidValue
        If an option is wrong.

    Warns
    -----
    AssumptionWarning
        If propensities are not those of the log, what that assumes (also in ``assumes``). If few
        rows carry all the weight, or the normal interval leaves the range of mean rewards: which
        interval to trust then (also in each estimate's ``warnings``).

    Examples
    --------
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> from tacit.evaluate import Table
    >>> arms, rng = ["film", "holiday"], np.random.default_rng(1)
    >>> shown = rng.choice(2, size=4000, p=[0.8, 0.2])
    >>> log = pa.table(
    ...     {
    ...         "timestamp": ["2017-07-04T12:00:00Z"] * 4000,
    ...         "decision_id": [str(row) for row in range(4000)],
    ...         "placement": ["home"] * 4000,
    ...         "key": ["independence day"] * 4000,
    ...         "arms": [arms] * 4000,
    ...         "arm": [arms[arm] for arm in shown],
    ...         "propensity": np.array([0.8, 0.2])[shown],
    ...         "reward": (rng.random(4000) < np.array([0.1, 0.4])[shown]).astype(float),
    ...     }
    ... )
    >>> result = off_policy(Table({"film": 0.1, "holiday": 0.9}), log)
    >>> all(low < 0.37 < high for low, high in result.estimates[0].intervals.values())
    True
    """
    weighing = Weighing(
        target,
        estimators,
        cluster=cluster,
        confidence=confidence,
        weight_bound=weight_bound,
        logging=logging,
        missing_reward=missing_reward,
        seed=seed,
        propensities=propensities,
        by=by,
    )
    reader = opened(log, **reading)
    reader = reader if by is None else reader.by(by)
    if weighing.unfitted:
        if reader.once:
            raise InvalidValue(
                "log", log, "give a log that can be read twice, or an estimator with a fitted model"
            )
        counts = [model.counted(reader, missing_reward) for model in weighing.means]
        weighing = weighing.fitted(counts)
    result = weighing.concluded(weighing.sums_of(reader, progress=progress))
    say_rejected(reader, log)
    return warned(result)


def warned(result: OffPolicyResult) -> OffPolicyResult:
    """Return a result, having said which of its intervals are not to be trusted.

    Raises
    ------
    LogError
        If there is no row.
    UnfitLog
        If no estimator has anything to say.
    """
    if not result.rows:
        raise LogError(f"log: {NO_ROWS}")
    if all(math.isnan(estimate.value) for estimate in result.estimates):
        never = ", ".join(map(repr, result.never_shown[:5]))
        raise UnfitLog(
            f"log: arm: {NO_OVERLAP}{never and f' (it never shows {never})'}; give the log of a "
            "policy that may, as with ExplorationFloor, or a target that shows what is there"
        )
    if result.assumes:
        warnings.warn(result.assumes, AssumptionWarning, stacklevel=3)
    for estimate in result.estimates:
        for warning in estimate.warnings:
            warnings.warn(warning, AssumptionWarning, stacklevel=3)
    return result
