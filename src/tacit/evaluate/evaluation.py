"""Off-policy evaluation: estimate a target policy's mean reward from the log of another policy.

:class:`OffPolicyEvaluation` validates target policy, estimators and options before a row is read, sums a log
or each part of one, and computes the result from the sums. :func:`off_policy` runs it on a log.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack
from zlib import crc32

import numpy as np

from tacit.core.parallel import report_progress
from tacit.core.part import set_field
from tacit.errors import AssumptionWarning, InvalidValue, LogError, UnfitLog
from tacit.evaluate.conclusions import conclude
from tacit.evaluate.estimate_sums import LogSummation, LogSums, SegmentSums
from tacit.evaluate.estimators import (
    IPS,
    NAMES,
    SNIPS,
    CascadeIPS,
    DirectMethod,
    Estimator,
    IndependentIPS,
    SlateEstimator,
    SlateIPS,
    check_logging,
    estimators_from_names,
)
from tacit.evaluate.intervals import CONFIDENCE, Sums
from tacit.evaluate.learners import Frozen, Learning, Ranking
from tacit.evaluate.options import Confidence, Options, WeightBound
from tacit.evaluate.results import (
    NO_OVERLAP,
    ByEstimator,
    OffPolicyResult,
    Segment,
    describe_propensity_doubt,
)
from tacit.evaluate.rewards import ASSUMES, ASSUMES_GIVEN, Frequencies, ModelOfLog
from tacit.evaluate.ridge import ArmRidges
from tacit.evaluate.rows import LoggedRows, RowReader, extra_columns, warn_one_sided
from tacit.evaluate.targets import ByClassifier, Target, Uniform
from tacit.learning.learner import Learner
from tacit.logs.data_warnings import MIN_ROWS
from tacit.logs.reader import missing_columns_error
from tacit.logs.rows import NO_ROWS, LogReport
from tacit.logs.schema import SEGMENT
from tacit.logs.sources import ReadOptions, warn_rejected, warn_unread_context
from tacit.policies.actions import SlatePolicy
from tacit.policies.base import Policy

# ---- An evaluation: a target policy, estimators and options, validated together

LOGGED, ESTIMATED = "logged", "estimated"
FITTED = "the learner was fitted to this very log, and is judged too well by it; judge it by later rows"


@dataclass(frozen=True, kw_only=True)
class OffPolicyEvaluation(Options):
    """A validated off-policy evaluation; parts of a log can be summed separately and merged.

    Every field is as for :func:`off_policy`.
    """

    target: Any
    estimators: Any = None
    cluster: str | None = None
    confidence: Confidence = CONFIDENCE
    weight_bound: WeightBound = None
    logging: Target | None = None
    propensities: Any = LOGGED

    def __post_init__(self) -> None:
        """Validate all options; replace ``target``, ``estimators`` and ``propensities`` by usable objects.

        Policies and learners become target policies, "estimated" becomes a model, missing estimators become
        the defaults, and missing reward models are added. Raises InvalidValue for options that do not fit
        together.
        """
        super().__post_init__()
        target = _as_target(self.target, self.seed)
        if isinstance(target, type) or not (hasattr(target, "evaluate_shown") and hasattr(target, "begin")):
            raise InvalidValue("target", self.target, _suggest_target(self.target))
        if not isinstance(self.cluster, str | None):
            raise InvalidValue("cluster", self.cluster, "give the name of a column, such as 'key' or 'user'")
        set_field(self, "target", target)
        check_logging(self.logging)
        set_field(self, "propensities", _check_propensities(self.propensities))
        estimators = self.estimators
        if estimators is None:
            estimators = _default_estimators(target, self.propensities == LOGGED)
        is_list = isinstance(estimators, list | tuple)
        if (
            not is_list
            or not estimators
            or not all(isinstance(estimator, Estimator) for estimator in estimators)
        ):
            raise InvalidValue("estimators", estimators, f"give {_suggest_estimators(estimators)}")
        set_field(self, "estimators", _with_models(estimators))
        if isinstance(target, Ranking) and not all(isinstance(x, SlateEstimator) for x in estimators):
            remedy = "give such as weigh lists, as IndependentIPS and CascadeIPS do"
            raise InvalidValue("estimators", estimators, remedy)
        if self.propensities != LOGGED and any(getattr(x, "given_above", False) for x in estimators):
            remedy = (
                "propensities that are not logged are those of arms at positions; of those for "
                "lists, give IndependentIPS"
            )
            raise InvalidValue("estimators", estimators, remedy)
        if self.has_slate_estimator and self.cluster not in (None, "decision_id"):
            raise InvalidValue("cluster", self.cluster, "slates are units of their own; leave it out")

    @property
    def schema(self) -> Any:
        """The schema by which the target policy reads contexts; None if it has none."""
        return getattr(self.target, "schema", None)

    def open_log(self, log: Any, **reading: Unpack[ReadOptions]) -> Any:
        """Return a reader of the log that also reads the target's, estimators' and cluster's columns.

        Raises LogError if rows are to be clustered by key and the log has no column of keys.
        """
        reader = super().open_log(log, **reading)
        if self.cluster == "key" and getattr(reader, "one_key", False):
            raise LogError(
                missing_columns_error(str(reader.files[0].path), {"key": "key"}, reader.files[0].names)
            )
        return reader.with_columns(extra_columns(self.columns), self.cluster)

    @property
    def models(self) -> list[ModelOfLog]:
        """The distinct models to fit to the log: reward models of estimators, then the propensity model."""
        reward_models: list[Any] = [x.model for x in self.estimators if isinstance(x, DirectMethod)]
        log_models = {id(x): x for x in [*reward_models, self.propensities] if isinstance(x, ModelOfLog)}
        return list(log_models.values())

    @property
    def has_unfitted_models(self) -> bool:
        """True if at least one of ``models`` has not been fitted to the log yet."""
        return any(not model.is_fitted for model in self.models)

    @property
    def is_sequential(self) -> bool:
        """True if a target or logging policy learns from the log, so that the order of rows matters."""
        logging = [getattr(estimator, "logging", None) for estimator in self.estimators]
        targets = self.target, self.logging, *logging
        return any(isinstance(target, (Learning, Ranking)) for target in targets)

    @property
    def has_slate_estimator(self) -> bool:
        """True if at least one estimator is for slates."""
        return any(isinstance(estimator, SlateEstimator) for estimator in self.estimators)

    @property
    def has_only_slate_estimators(self) -> bool:
        """True if all estimators are for slates."""
        return all(isinstance(estimator, SlateEstimator) for estimator in self.estimators)

    def with_fitted_models(self, counts: Sequence[Any]) -> OffPolicyEvaluation:
        """Return a copy of the evaluation whose unfitted models are fitted.

        ``counts`` has one element for each of ``models``, from its ``count_log``. Estimators without a
        model stay unchanged.
        """
        fitted_models: dict[int, Any] = {
            id(model): model if model.is_fitted else model.from_counts(counted)
            for model, counted in zip(self.models, counts, strict=True)
        }

        def fit(estimator: Estimator) -> Estimator:
            """Return the estimator with its fitted reward model; unchanged if it has none of ``models``."""
            if not isinstance(estimator, DirectMethod) or id(estimator.model) not in fitted_models:
                return estimator
            return replace(estimator, model=fitted_models[id(estimator.model)])

        return replace(
            self,
            estimators=tuple(map(fit, self.estimators)),
            propensities=fitted_models.get(id(self.propensities), self.propensities),
        )

    def sum_log(self, log: Any, first: int = 0, *, progress: Callable[[int], None] | None = None) -> LogSums:
        """Read a log once and return each estimator's sums, with counts of rows, rewards and arms.

        ``first`` is the number of rows before this part of the log. Propensities that are not logged are
        computed by the propensity model. ``progress`` is called with the number of rows read so far. Raises
        UnfitLog if the propensity model gives a shown arm probability 0, or the log does not support the
        target.
        """
        names = {key: column for model in self.models for key, column in model.names.items()}
        reader = RowReader(
            self.columns,
            self.missing_reward,
            need_propensity=self.propensities == LOGGED,
            first=first,
            names=names,
            whole=self.has_slate_estimator,
        )
        summing = LogSummation(self.target, self.estimators, self.cluster, self.logging, self.by is not None)
        propensity_model: Any = None if self.propensities == LOGGED else self.propensities
        if hasattr(propensity_model, "begin"):
            propensity_model = propensity_model.begin()
        logs, checksum = getattr(getattr(self.target, "learner", None), "logs_learned", ()), 0
        for rows in reader.read(log):
            checksum = crc32(rows.reward.tobytes(), checksum) if logs else checksum
            summing.add(rows if propensity_model is None else _set_propensities(rows, propensity_model))
            if progress is not None:
                progress(reader.rows)
        return summing.sum_up(reader, reader.rows >= MIN_ROWS and (reader.rows, checksum) in logs)

    @property
    def columns(self) -> frozenset[str]:
        """All log columns that the evaluation needs in addition to arm, arms, propensity and reward.

        They are the columns of the target, estimators, cluster, segments, propensity model and logging
        policy.
        """
        columns = frozenset().union(self.target.columns, *(x.columns for x in self.estimators))
        columns |= {self.cluster} if self.cluster else set()
        columns |= {SEGMENT} if self.by is not None else set()
        columns |= getattr(self.propensities, "columns", frozenset())
        return columns | (self.logging.columns if self.logging else frozenset())

    def merge_sums(self, before: LogSums, after: LogSums) -> LogSums:
        """Return the sums over two consecutive parts of a log.

        Raises
        ------
        UnfitLog
            If a slate begins in one part and ends in the other.
        """
        return before.merge(
            after, [self.cluster is None or isinstance(x, SlateEstimator) for x in self.estimators]
        )

    def warn_of_lists(self, report: LogReport) -> None:
        """Warn if the log holds lists but the target policy does not depend on the position.

        Also remove the report's warnings about the order of rows, unless rows are weighted in their order.
        """
        if not self.is_sequential:
            report.drop_order_warnings()
        blind = "position" not in self.target.columns and not isinstance(self.target, Uniform)
        if report.lists and blind:
            warnings.warn(
                "position: rows of one decision are a list, and the target shows one arm everywhere; give "
                "fixed_target('list:a,b,c') (--policy list:a,b,c) or a policy of lists, such as ListMix",
                AssumptionWarning,
                stacklevel=3,
            )

    def compute_result(self, log_sums: LogSums) -> OffPolicyResult:
        """Return the result of the evaluation: estimates with intervals, in total and by segment.

        It also has the log's own mean reward, arms that the log never shows, and doubts about propensities.
        """
        return OffPolicyResult(
            target=self.target.label,
            estimates=self._estimates(log_sums.sums, given_above=log_sums.given_above),
            logged=self._mean_logged_reward(log_sums),
            rows=log_sums.rows,
            lists=log_sums.sums[0].n if self.has_only_slate_estimators else None,
            by=self.by,
            segments={
                name: Segment(
                    self._estimates(part.sums, len(log_sums.segments)),
                    part.rows,
                    self._mean_logged_reward(part),
                )
                for name, part in sorted(log_sums.segments.items(), key=lambda item: -item[1].rows)
            },
            assumes="; ".join(filter(None, self._list_doubts(log_sums))),
            unanswered=log_sums.unanswered,
            never_shown=tuple(
                arm for arm, counts in log_sums.arms.items() if not counts[0] and arm in log_sums.reachable
            ),
            confidence=self.confidence,
            missing_reward=self.missing_reward,
        )

    @property
    def assumes(self) -> str:
        """A sentence with the assumption under which propensities are correct; empty if they are logged."""
        if self.propensities == LOGGED:
            return ""
        estimated = isinstance(self.propensities, ModelOfLog | ByClassifier)
        return ASSUMES if estimated else ASSUMES_GIVEN.format(getattr(self.propensities, "label", "given"))

    def _list_doubts(self, log_sums: LogSums) -> Iterator[str]:
        """Yield texts on why to doubt the result; a text is empty if its doubt does not apply.

        They are: propensities are not logged, the target was fitted to this log, propensities contradict
        the log.
        """
        yield self.assumes
        yield FITTED * log_sums.learned
        if self.assumes != ASSUMES and not self.has_slate_estimator and log_sums.arms:
            yield describe_propensity_doubt(list(log_sums.arms), np.array([*log_sums.arms.values()]).T)

    def _estimates(
        self, estimator_sums: Sequence[Sums], segments: int = 1, *, given_above: bool = False
    ) -> ByEstimator:
        """Return one estimate with intervals per estimator, from the estimators' sums.

        With several segments, intervals are wider, so that they hold in all segments simultaneously.
        """
        return ByEstimator(
            conclude(
                estimator,
                sums,
                clustered=self.cluster is not None,
                confidence=self.confidence,
                weight_bound=self.weight_bound,
                seed=self.seed,
                segments=segments,
                given_above=given_above and isinstance(estimator, IndependentIPS),
            )
            for estimator, sums in zip(self.estimators, estimator_sums, strict=True)
        )

    def _mean_logged_reward(self, log_sums: LogSums | SegmentSums) -> float:
        """Return the log's mean reward per row, or per list if all estimators are for lists; NaN if empty."""
        units = log_sums.sums[0].n if self.has_only_slate_estimators else log_sums.rows
        return log_sums.reward / units if units else math.nan


def _set_propensities(rows: LoggedRows, model: Any) -> LoggedRows:
    """Return the rows with the propensities that a fitted model or a logging policy gives.

    Raises UnfitLog if that of a row is 0.
    """
    chances = model.evaluate_shown(rows)
    if not chances.all():
        row = int(np.argmin(chances))
        arm = rows.arm.names[rows.arm.codes[row]]
        remedy = "give what may show each arm that was shown, or leave such rows out"
        raise UnfitLog(f"{rows.locate_row(row)}: propensity: {arm!r} has 0, as given; {remedy}")
    return rows._replace(propensity=chances, given_above=np.full(len(rows.reward), np.nan))


def _as_target(target: Any, seed: int) -> Any:
    """Return a target policy: of a policy one that learns, of a learner a frozen one; else the same value."""
    if isinstance(target, SlatePolicy):
        return Ranking(target, seed)
    if isinstance(target, Learner):
        return Frozen(target)
    return Learning(target) if isinstance(target, Policy) else target


def _suggest_target(target: Any) -> str:
    """Return advice on how to turn a value that is no target policy into one, for an error message."""
    if isinstance(target, type):
        return f"give {target.__name__}(), made of the class"
    if isinstance(target, Mapping):
        return f"give Table({target!r})"
    if isinstance(target, str) and ":" in target:
        return f"give fixed_target({target!r})"
    if isinstance(target, str):
        return f"give Table({{{target!r}: 1.0}}) for what always shows this arm, or a policy"
    if hasattr(target, "predict_proba") and hasattr(target, "classes_"):
        return "give ByClassifier(model), if its classes are the arms"
    if hasattr(target, "predict"):
        return "give Greedy(Predicted(model, arms=[...])), if it predicts rewards"
    return "give a policy, or a target such as Uniform()"


def _suggest_estimators(estimators: Any) -> str:
    """Return the correct form of a wrong option ``estimators`` as code, for an error message."""
    calls = []
    for estimator in estimators if isinstance(estimators, list | tuple) else [estimators]:
        estimator_class = estimator if isinstance(estimator, type) else type(estimator)
        if isinstance(estimator, str) and estimator in NAMES:
            estimator_class = type(estimators_from_names([estimator])[0])
        if not issubclass(estimator_class, Estimator):
            return "estimators, such as [IPS(), SNIPS()]"
        calls.append(f"{estimator_class.__name__}({'slots' * issubclass(estimator_class, SlateEstimator)})")
    return f"[{', '.join(calls)}]" if calls else "estimators, such as [IPS(), SNIPS()]"


def _check_propensities(propensities: Any) -> Any:
    """Return the option ``propensities`` if it is valid; replace "estimated" by a model of frequencies.

    Raises InvalidValue for other values than "logged", "estimated" and target policies.
    """
    if propensities == ESTIMATED:
        return Frequencies()
    is_instance = not isinstance(propensities, type)
    if propensities == LOGGED or (is_instance and hasattr(propensities, "evaluate_shown")):
        return propensities
    remedy = (
        f"give {LOGGED!r}, {ESTIMATED!r} or a target policy: the one that wrote the log, such as Uniform() "
    )
    remedy += (
        "or Table({'film': 0.8, …}); one probability for all rows goes into constants={'propensity': 0.5}"
    )
    raise InvalidValue("propensities", propensities, remedy if is_instance else _suggest_target(propensities))


def _default_estimators(target: Any, logged: bool) -> tuple[Estimator, ...]:
    """Return the estimators that are used if none are given.

    They are IPS and SNIPS for targets of single arms, and slate estimators for targets of lists; only
    IndependentIPS if propensities are not logged.
    """
    positions = target.policy.action_width if isinstance(target, Ranking) else getattr(target, "slots", 0)
    if not positions:
        return IPS(), SNIPS()
    if not logged:
        return (IndependentIPS(positions),)
    return IndependentIPS(positions), CascadeIPS(positions), SlateIPS(positions)


def _with_models(estimators: Sequence[Estimator]) -> tuple[Estimator, ...]:
    """Return the estimators; all that need a reward model and have none share one new ArmRidges."""
    model = ArmRidges()
    return tuple(
        replace(x, model=model) if isinstance(x, DirectMethod) and x.model is None else x for x in estimators
    )


# ---- The entry point: open a log, fit models, sum it, warn


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
        only with it; its model must then stay within [0, 1].
    logging : Target, optional
        The policy that wrote the log, if known: an arm to which it gives probability 0 where
        the target does not is an error.
    missing_reward : float or None, default 0
        The reward of a row without feedback, in [0, 1]. None leaves such rows out,
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
        How a log that is not open yet is read: ``columns``, ``constants``, ``arms``, ``time_unit``,
        ``strict`` and ``format`` of :func:`tacit.read_log`. A table in memory is read strictly,
        unless ``strict=False``.

    Returns
    -------
    OffPolicyResult

    Raises
    ------
    UnfitLog
        If a row has no propensity, or could never have shown an arm that the target would show; if
        no row shows an arm that the target would show.
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
    evaluation = OffPolicyEvaluation(
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
    reader = evaluation.open_log(log, **reading)
    if isinstance(getattr(evaluation.target, "policy", None), Policy) and not evaluation.models:
        warn_unread_context(reader, evaluation.target.policy)
    if evaluation.has_unfitted_models:
        if reader.is_stream:
            remedy = "give a log that can be read twice, or an estimator with a fitted model"
            raise InvalidValue("log", log, remedy)
        counts = [model.count_log(reader, missing_reward) for model in evaluation.models]
        evaluation = evaluation.with_fitted_models(counts)
    with report_progress("weighting", progress) as report:
        result = evaluation.compute_result(evaluation.sum_log(reader, progress=report))
    evaluation.warn_of_lists(reader.report)
    return warn_of_doubts(replace(result, notes=warn_rejected(reader, log)))


def warn_of_doubts(result: OffPolicyResult) -> OffPolicyResult:
    """Issue an AssumptionWarning for each doubt about a result, and return the result unchanged.

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
        never = ", ".join(map(repr, result.never_shown[:5]))
        raise UnfitLog(
            f"log: arm: {NO_OVERLAP}{never and f' (it never shows {never})'}; give the log of a "
            "policy that may, as with ExplorationFloor, or a target that shows what is there"
        )
    sided = warn_one_sided(result) if result.missing_reward is None else ()
    for doubt in (*filter(None, [result.assumes]), *sided):
        warnings.warn(doubt, AssumptionWarning, stacklevel=3)
    for estimate in result.estimates:
        for warning in estimate.warnings:
            warnings.warn(warning, AssumptionWarning, stacklevel=3)
    return result
