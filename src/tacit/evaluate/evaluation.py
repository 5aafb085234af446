"""Off-policy evaluation: estimate a target policy's mean reward from the log of another policy.

:func:`off_policy` validates its question (:mod:`tacit.evaluate.options`) before a row is read, sums the log
(:mod:`tacit.evaluate.estimate_sums`), and concludes from the sums (:mod:`tacit.evaluate.conclusions`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Unpack

from tacit.core.parallel import report_progress
from tacit.errors import AssumptionWarning, InvalidValue, LogError, UnfitLog
from tacit.evaluate.conclusions import compute_result
from tacit.evaluate.estimate_sums import sum_log
from tacit.evaluate.estimators import Estimator
from tacit.evaluate.intervals import CONFIDENCE
from tacit.evaluate.options import OffPolicyEvaluation
from tacit.evaluate.results import NO_OVERLAP, OffPolicyResult
from tacit.evaluate.rows import warn_one_sided
from tacit.evaluate.targets import Target, Uniform
from tacit.logs.rows import NO_ROWS, LogReport
from tacit.logs.sources import ReadOptions, warn_rejected, warn_unread_context
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
    **reading: Unpack[ReadOptions],
) -> OffPolicyResult:
    """Estimate what a target policy would have earned, from the log of another policy.

    The log is read once (once more where an estimator fits :class:`~tacit.evaluate.ArmRidges`)
    and in bounded memory: only sums over the rows are kept.

    Parameters
    ----------
    target : Target or Policy
        :class:`~tacit.evaluate.Table`, :class:`~tacit.evaluate.Uniform`,
        :class:`~tacit.evaluate.ByClassifier`, :class:`~tacit.evaluate.Probabilities`, or a policy,
        which then learns from the log as in :class:`~tacit.evaluate.Learning` or, if it shows lists,
        :class:`~tacit.evaluate.Ranking`. A learner does not learn: give rows that are new to it.
    log : LogReader, path, or table in memory
        A click log with propensities, as for :func:`tacit.read_log`.
    estimators : sequence of Estimator, optional
        By default IPS and SNIPS; for a policy that shows lists, :class:`IndependentIPS`,
        :class:`CascadeIPS` and :class:`SlateIPS`.
    cluster : str, optional
        A column, of the schema or not (``"key"``, ``"user"``): rows with the same value depend on one
        another, and normal and bootstrap intervals treat whole clusters as independent. None: every row
        (or slate) is independent.
    confidence : float, default 0.95
        Of each interval.
    weight_bound : float, optional
        An upper bound on all weights, known beforehand (largest target probability over smallest
        logged one). The anytime interval of IPS then takes its upper bound from it: lower where
        clicks are rare, higher where they are frequent. :class:`DoublyRobust` has an anytime interval
        only with it; its model must then stay within the range of rewards.
    logging : Target, optional
        The policy that wrote the log, if known: an arm to which it gives probability 0 where
        the target does not is an error.
    missing_reward : float or None, default 0
        The reward of a row without feedback, in the range of rewards. None leaves such rows out,
        which is right only if feedback is lost independently of its value.
    seed : int, default 0
        For the bootstrap, and for lists that are sampled.
    propensities : {"logged", "estimated"} or Target, default "logged"
        ``"logged"``: of the log. If it has none, ``"estimated"``: how often it shows each arm for a key at a
        position (cross-fitted, see :class:`~tacit.evaluate.Frequencies`, in one more pass); or the policy
        that wrote the log as a target, for example a :class:`~tacit.evaluate.ByClassifier` with a
        logistic regression of the arms shown on the contexts. Both assume that this policy used
        nothing else that affects clicks. Lists are then weighted by :class:`IndependentIPS`.
    by : str, optional
        A column of the log, of the schema or not (``"device"``): the result then also has estimates for each
        of its values (``segments``), with simultaneous intervals (Bonferroni).
    progress : function, optional
        Called with the number of rows read so far, in place of a progress bar.
    **reading
        How a log that is not open yet is read: options of :func:`tacit.read_log`, such as
        ``reward_range``, by default that of a policy that learns. A table in memory is read strictly,
        unless ``strict=False``.

    Returns
    -------
    OffPolicyResult

    Raises
    ------
    UnfitLog
        If no row has a propensity, or, in a log of lists or under ``strict``, a row has none (other logs
        leave it out, and count it among the rejected rows); if a row could never have shown an arm that
        the target would show; if no row shows an arm that the target would show.
    LogError
        If the log cannot be read.
    InvalidValue
        If an option is wrong.

    Warns
    -----
    AssumptionWarning
        If propensities are not logged: the assumption under which they are correct (also in ``assumes``).
        If few rows carry all the weight, or the normal interval leaves the range of mean rewards: which
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
    question = OffPolicyEvaluation(
        target=target,
        estimators=estimators,
        cluster=cluster,
        confidence=confidence,
        weight_bound=weight_bound,
        logging=logging,
        missing_reward=missing_reward,
        seed=seed,
        propensities=propensities,
        by=by,
    )
    reader = question.open_log(log, **reading)
    # Models may read the contexts that the policy does not.
    if isinstance(getattr(question.target, "policy", None), Policy) and not question.models:
        warn_unread_context(reader, question.target.policy)
    if not all(model.is_fitted for model in question.models):
        if reader.is_stream:
            remedy = "give a log that can be read twice, or an estimator with a fitted model"
            raise InvalidValue("log", log, remedy)
        question = question.with_fitted_models(question.count_log(reader))
    with report_progress("weighting", progress) as report:
        result = compute_result(question, sum_log(question, reader, progress=report))
    warn_of_lists(question, reader.report)
    return warn_of_doubts(replace(result, notes=(*result.notes, *warn_rejected(reader, log))))


def warn_of_doubts(result: OffPolicyResult) -> OffPolicyResult:
    """Issue the warnings of a result and its estimates as AssumptionWarning; return the result unchanged.

    Raises
    ------
    LogError
        If there is no row.
    UnfitLog
        If no estimator has a value.
    """
    if not result.rows:
        raise LogError(f"log: {NO_ROWS}")
    if all(math.isnan(estimate.value) for estimate in result.estimates):
        never_shown = ", ".join(map(repr, result.never_shown[:5]))
        raise UnfitLog(
            f"log: arm: {NO_OVERLAP}{never_shown and f' (it never shows {never_shown})'}; give the log of a "
            "policy that may, as with ExplorationFloor, or a target that shows what is there"
        )
    one_sided = warn_one_sided(result, result.reward_range) if result.missing_reward is None else ()
    for warning in (*filter(None, [result.assumes]), *one_sided):
        warnings.warn(warning, AssumptionWarning, stacklevel=3)
    for estimate in result.estimates:
        for warning in estimate.warnings:
            warnings.warn(warning, AssumptionWarning, stacklevel=3)
    return result


def warn_of_lists(question: OffPolicyEvaluation, report: LogReport) -> None:
    """Warn if the log holds lists but the target policy does not depend on the position.

    Also remove the report's warnings about the order of rows, unless rows are weighted in their order.
    """
    if not question.is_sequential:
        report.drop_order_warnings()
    ignores_position = "position" not in question.target.columns and not isinstance(question.target, Uniform)
    if report.lists and ignores_position:
        warnings.warn(
            "position: rows of one decision are a list, and the target shows one arm everywhere; give "
            "fixed_target('list:a,b,c') (--policy list:a,b,c) or a policy of lists, such as ListMix",
            AssumptionWarning,
            stacklevel=3,
        )
