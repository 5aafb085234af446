"""Options of evaluation on a log, with their types and ranges, and the question of an off-policy evaluation.

Public functions list their options as parameters. Code that passes options on types them as
:class:`OffPolicyOptions` or :class:`ReplayOptions`; :class:`OffPolicyEvaluation` and ``ReplayConfig``
validate and hold them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypedDict, Unpack

from tacit.core import checks
from tacit.core.part import Checked, float_range, int_range, optional, set_field
from tacit.core.refusals import Refusal, refuse_options
from tacit.errors import LogError
from tacit.evaluate.estimators import (
    IPS,
    NAMES,
    NO_LOGGING,
    SNIPS,
    CascadeIPS,
    DirectMethod,
    Estimator,
    IndependentIPS,
    SlateEstimator,
    SlateIPS,
    estimators_from_names,
    lacks_methods,
)
from tacit.evaluate.intervals import CONFIDENCE, check_confidence
from tacit.evaluate.learners import Frozen, Learning, Ranking
from tacit.evaluate.rewards import ASSUMES, ASSUMES_GIVEN, Frequencies, ModelOfLog
from tacit.evaluate.ridge import ArmRidges
from tacit.evaluate.rows import RowReader, extra_columns
from tacit.evaluate.targets import ByClassifier, Target
from tacit.frames import is_frame
from tacit.learning.learner import Learner
from tacit.logs.reader import LogReader, missing_columns_error
from tacit.logs.schema import SEGMENT
from tacit.logs.sources import ReadOptions, get_reward_range, open_log, open_policy_log
from tacit.policies.actions import SlatePolicy
from tacit.policies.base import Policy

Confidence = Annotated[float, check_confidence]
MissingReward = Annotated[float | None, optional(float_range(-math.inf, math.inf))]
Seed = Annotated[int, int_range(0)]
AtLeastOne = Annotated[int, int_range(1)]
WeightBound = Annotated[float | None, optional(checks.positive)]


class OffPolicyOptions(TypedDict, total=False):
    """Options of :func:`tacit.off_policy`."""

    cluster: str | None
    confidence: float
    weight_bound: float | None
    logging: Target | None
    missing_reward: float | None
    seed: int
    propensities: Any
    by: str | None


class ReplayOptions(TypedDict, total=False):
    """Options of :func:`tacit.replay`."""

    passes: int
    seed: int
    window: int
    tolerance: float
    assume_uniform: bool
    missing_reward: float | None
    by: str | None


@dataclass(frozen=True, kw_only=True)
class Options(Checked):
    """Options shared by all evaluations of a log; each is as for :func:`tacit.off_policy`."""

    missing_reward: MissingReward = 0.0
    seed: Seed = 0
    by: str | None = None

    @property
    def schema(self) -> Any:
        """The schema by which contexts are built of the log's columns; None to use the log's contexts."""
        return None

    def open_log(self, log: Any, **reading: Unpack[ReadOptions]) -> Any:
        """Return a reader of the log with the contexts and the segments that the evaluation reads.

        A log that is not open is opened by :func:`tacit.read_log` with the options ``reading``. Raises
        InvalidValue if its range of rewards is not that of a policy that learns, or lacks ``missing_reward``.
        """
        policy, learns = self.target_policy
        if policy is None:
            reader = open_log(log, **reading)
        else:
            reader = open_policy_log(log, policy, reading, learns=learns)
        get_reward_range(reader).check_missing(self.missing_reward)
        if self.schema and isinstance(reader, LogReader):
            reader = reader.with_context(self.schema)
        return reader if self.by is None else reader.with_segment(self.by)

    @property
    def target_policy(self) -> tuple[Policy | None, bool]:
        """The policy that is evaluated, or None if there is none, and whether it learns from the log."""
        return None, False


# ---- The question of an off-policy evaluation: target policy, estimators and options, validated together

LOGGED, ESTIMATED = "logged", "estimated"
NO_PROPENSITIES = (
    f"give {LOGGED!r}, {ESTIMATED!r} or a target policy: the one that wrote the log, such as Uniform() "
    "or Table({'film': 0.8, …}); one probability for all rows goes into constants={'propensity': 0.5}"
)
NO_LIST_PROPENSITIES = (
    "propensities that are not logged are those of arms at positions; of those for lists, give IndependentIPS"
)


@dataclass(frozen=True, kw_only=True)
class OffPolicyEvaluation(Options):
    """The question of an off-policy evaluation, validated: target policy, estimators and options.

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
        set_field(self, "target", _convert_target(self.target, self.seed))
        if self.propensities == ESTIMATED:
            set_field(self, "propensities", Frequencies())
        if self.estimators is None:
            set_field(self, "estimators", _choose_estimators(self.target, self.propensities == LOGGED))
        refuse_options(self._list_refusals())
        set_field(self, "estimators", _with_models(self.estimators))

    def _list_refusals(self) -> Iterator[Refusal]:
        """Yield the checks of the options: first of each one, then of options that must fit together."""
        target, propensities, estimators = self.target, self.propensities, self.estimators
        no_target = lacks_methods(target, "evaluate_shown", "begin")
        yield Refusal("target", no_target, lambda: _suggest_target(target), target)
        no_name = not isinstance(self.cluster, str | None)
        yield Refusal("cluster", no_name, "give the name of a column, such as 'key' or 'user'", self.cluster)
        no_target = self.logging is not None and lacks_methods(self.logging, "evaluate_shown")
        yield Refusal("logging", no_target, NO_LOGGING, self.logging)
        no_target = propensities != LOGGED and lacks_methods(propensities, "evaluate_shown")
        is_class = isinstance(propensities, type)
        instead = _suggest_target(propensities) if is_class else NO_PROPENSITIES
        yield Refusal("propensities", no_target, instead, propensities)
        is_list = isinstance(estimators, list | tuple) and bool(estimators)
        no_estimators = not is_list or not all(isinstance(x, Estimator) for x in estimators)
        yield Refusal(
            "estimators", no_estimators, lambda: f"give {_suggest_estimators(estimators)}", estimators
        )
        is_single = isinstance(target, Ranking) and not self.has_only_slate_estimators
        remedy = "give such as weigh lists, as IndependentIPS and CascadeIPS do"
        yield Refusal("estimators", is_single, remedy, estimators)
        needs_lists = propensities != LOGGED and any(getattr(x, "given_above", False) for x in estimators)
        yield Refusal("estimators", needs_lists, NO_LIST_PROPENSITIES, estimators)
        is_split = self.has_slate_estimator and self.cluster not in (None, "decision_id")
        yield Refusal("cluster", is_split, "slates are units of their own; leave it out", self.cluster)

    @property
    def schema(self) -> Any:
        """The schema by which the target policy reads contexts; None if it has none."""
        return getattr(self.target, "schema", None)

    def open_log(self, log: Any, **reading: Unpack[ReadOptions]) -> Any:
        """Return a reader of the log, as :meth:`Options.open_log` does, with all columns of the evaluation.

        They are the columns of target, estimators and cluster, and the contexts and segments. Raises LogError
        if rows are to be clustered by key and the log has no column of keys.
        """
        reader = super().open_log(log, **reading)
        if self.cluster == "key" and getattr(reader, "one_key", False):
            names = reader.files[0].names
            raise LogError(missing_columns_error(str(reader.files[0].path), {"key": "key"}, names))
        extra = extra_columns(self.columns)
        return reader.with_columns(extra, self.cluster) if extra else reader

    @property
    def target_policy(self) -> tuple[Policy | None, bool]:
        """The policy of the target, or None if it has none, and whether it learns from the log."""
        learns = isinstance(self.target, (Learning, Ranking))
        return (self.target.policy if learns or isinstance(self.target, Frozen) else None), learns

    @property
    def models(self) -> list[ModelOfLog]:
        """The distinct models to fit to the log: reward models of estimators, then the propensity model."""
        reward_models: list[Any] = [x.model for x in self.estimators if isinstance(x, DirectMethod)]
        log_models = {id(x): x for x in [*reward_models, self.propensities] if isinstance(x, ModelOfLog)}
        return list(log_models.values())

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
    def is_weighed(self) -> bool:
        """True if rows are weighed one by one, by their logged propensities, so that one without is left out.

        In a list without one of its rows, the others would be weighed as if they were all of it.
        """
        return self.propensities == LOGGED and not self.has_slate_estimator

    @property
    def has_only_slate_estimators(self) -> bool:
        """True if all estimators are for slates."""
        return all(isinstance(estimator, SlateEstimator) for estimator in self.estimators)

    def make_row_reader(self, **options: Any) -> RowReader:
        """Return a reader of the rows to weigh; ``options`` are further ones of :class:`RowReader`."""
        return RowReader(self.columns, self.missing_reward, is_weighed=self.is_weighed, **options)

    def count_log(self, log: Any) -> list[Any]:
        """Return the counts of a log, or of a part of one, for each of ``models``."""
        # Models read all columns of the evaluation: of a Parquet file, others would not be checked, and rows
        # that only the weighting rejects would move later rows to other folds.
        return [model.count_log(log, self.make_row_reader(need_propensity=False)) for model in self.models]

    def with_fitted_models(self, counts: Sequence[Any]) -> OffPolicyEvaluation:
        """Return a copy of the evaluation whose unfitted models are fitted.

        ``counts`` has one element for each of ``models``, from :meth:`count_log`. Estimators without a
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

    @property
    def in_turn(self) -> list[bool]:
        """Per estimator, True if its units are assigned to groups in turn, and not by cluster."""
        return [self.cluster is None or isinstance(x, SlateEstimator) for x in self.estimators]

    @property
    def assumes(self) -> str:
        """A sentence with the assumption under which propensities are correct; empty if they are logged."""
        if self.propensities == LOGGED:
            return ""
        estimated = isinstance(self.propensities, ModelOfLog | ByClassifier)
        return ASSUMES if estimated else ASSUMES_GIVEN.format(getattr(self.propensities, "label", "given"))


def _convert_target(target: Any, seed: int) -> Any:
    """Return a policy as a target that learns, and a learner as a frozen target; other values unchanged."""
    if isinstance(target, SlatePolicy):
        return Ranking(target, seed)
    if isinstance(target, Learner):
        return Frozen(target)
    return Learning(target) if isinstance(target, Policy) else target


def _suggest_target(target: Any) -> str:
    """Return advice on how to turn a value that is no target policy into one, for an error message."""
    if isinstance(target, type):
        return f"give {target.__name__}(), made of the class"
    if isinstance(target, Mapping) and all(isinstance(x, Mapping | float | int) for x in target.values()):
        text = repr(target)
        return f"give Table({text if len(text) <= 200 else '{…}'})"
    if isinstance(target, LogReader) or is_frame(target):
        return "this is a log: give the target policy before it, as in off_policy(target, log)"
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


def _choose_estimators(target: Any, logged: bool) -> tuple[Estimator, ...]:
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
    """Return the estimators, where all that need a reward model and have none share one new ArmRidges."""
    model = ArmRidges()
    return tuple(
        replace(x, model=model) if isinstance(x, DirectMethod) and x.model is None else x for x in estimators
    )
